"""Which numbers are an offset plus steps?

One form, an offset and levels of (count, step), for progressions, strided views and the copies that run them.
"""

from tapestry_sets.digits import strided
from tapestry_sets.digits.cutting import Cut, clip_form, cut_each, insert_zero, keep_in_nest, split_form, unflatten
from tapestry_sets.digits.digits import Digit, Digits, Ints, advance, join_digits, make_steps_positive
from tapestry_sets.digits.progressions import (
    COUNT_LIMIT,
    MAX_GRIDS,
    Grid,
    Progression,
    as_interval,
    axis_setts,
    clip_progression,
    combine,
    count_distinct,
    explicit_setts,
    interleaved_copies,
    interval,
    progression,
    progression_set,
    reach,
    separated,
    split_progression,
)
from tapestry_sets.digits.strided import Levels, Strided, at_index, contiguous, cut_axis, flip_axis, nest_of, renumber
