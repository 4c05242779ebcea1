"""Which integers are in a periodic set, or in two of them?

Stripes, nests, setts, their unions and lazy sets; whether, where and how often they meet; numbers of elements.
"""

from tapestry_sets.digits import Bools, Int64Array
from tapestry_sets.integers import conjunction, explicit, nest, pairs, ranks, unions
from tapestry_sets.integers.conjunction import NestConjunction
from tapestry_sets.integers.digit_sets import axis_setts, explicit_setts, nest_of, progression_set
from tapestry_sets.integers.explicit import from_items, merge, merge_nests
from tapestry_sets.integers.integers import Integers
from tapestry_sets.integers.lazy import Filled, Intersection, common_elements, count_common, first_common, isdisjoint
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
from tapestry_sets.integers.sett import DisjointSetts, Sett
from tapestry_sets.integers.stripe import Level, Stripe
