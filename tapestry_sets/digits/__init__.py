"""Which numbers are an offset plus steps?

One form, an offset and levels of (count, step), for progressions, strided views and the copies that run them.
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
)
from tapestry_sets.digits.row_major import Bools, Int64Array, number_of, point_of, points_of
from tapestry_sets.digits.strided import Strided, at_index, contiguous, cut_axis, flip_axis, renumber
from tapestry_sets.digits.tuning import COUNT_LIMIT, MAX_COPIES, MAX_GRIDS
