"""Which numbers are an offset plus steps?

`Digits` is the one type, an offset of each form and digits (count, step of each form); `make_steps_positive` and
`join_digits` are its normalizer. Forms with names of their own either hold `Digits` or are normalized by these two:

- `Patch` is index and cell as `Digits`, with the memory that the cells are of.
- `GuardedDigits` and `Transfer`, of tapestry_exec, are `Digits` with bounds; a `Transfer` has them column by column.
- `Strided` keeps the levels of one form apart by axis, as a shape does; `renumber` joins them.
- `StridedRun` is what a `Progression` is, with the rank of its first element.
- `SymbolicRow`, of interop, has expressions in place of numbers, so that signs and counts are unknown.

Two places make steps positive by themselves. With the normalizer, of the rows in tests/bench/results/bench_alias.md,

- `nest_of` lets "two NumPy arrays, x[::2, 5:].T and x[1::3, ::-7]" take 30 us in place of 24, where 15 is the aim;
- `progression`, a set, in which digits that overlap join too, lets "1000 views of (32, 128, 28, 28) with reshapes" take
  4 to 7 % more.
"""

from tapestry_sets.digits import strided
from tapestry_sets.digits.cutting import (
    CutDigits,
    clip_form,
    cut_each,
    insert_zero,
    keep_in_nest,
    split_form,
    unflatten,
)
from tapestry_sets.digits.digits import (
    Digit,
    Digits,
    Ints,
    Levels,
    advance,
    join_digits,
    make_steps_positive,
    turn_digit,
)
from tapestry_sets.digits.progressions import (
    Grid,
    Progression,
    as_interval,
    clip_progression,
    combine,
    count_distinct,
    interleaved_copies,
    interval,
    progression,
    reach,
    separate,
    split_progression,
    sum_bits,
)
from tapestry_sets.digits.row_major import Bools, Int64Array, number_of, point_of, points_of
from tapestry_sets.digits.strided import Strided, at_index, contiguous, cut_axis, flip_axis, join_runs, renumber
from tapestry_sets.digits.tuning import MAX_COPIES, MAX_GRIDS, MAX_SCAN
