"""Which integers are in a periodic set, or in two of them?

Stripes, nests, setts, their unions and lazy sets; whether, where and how often they meet; numbers of elements.
"""

from tapestry_sets.integers import conjunction, explicit, nest, pairs, ranks, unions
from tapestry_sets.integers.digit_sets import axis_setts, explicit_setts, nest_of, progression_set
from tapestry_sets.integers.explicit import from_items, merge, merge_nests
from tapestry_sets.integers.nest import (
    EMPTY,
    Item,
    Nest,
    StridedRun,
    clip,
    complement,
    contains,
    contains_each,
    count,
    elements,
    find,
    in_window,
    nth_each,
    rank_each,
    repeat,
    rfind,
    runs,
)
from tapestry_sets.integers.pairs import surely_disjoint
from tapestry_sets.integers.sett import (
    DisjointSetts,
    Filled,
    Integers,
    Intersection,
    Sampled,
    Sett,
    count_common_all,
    first_common_all,
    isdisjoint_all,
)
from tapestry_sets.integers.stripe import Int64Array, Level, Stripe
