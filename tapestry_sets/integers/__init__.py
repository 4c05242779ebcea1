"""Which integers are in a periodic set, or in two of them?

Stripes, nests, setts, their unions and lazy sets; whether, where and how often they meet; numbers of elements.
What several sets have in common is asked from the ground up, and each module asks the one above it here:

    stripe        two stripes                 in closed form
    pair_counts   two nests, how often        the least of five ways, by `count_estimates`, over `block_columns`
    pairs         two nests                   leaps, isl
    conjunction   any number of nests         the Chinese remainder theorem, then two by two
    members       two unions of nests         any common element: also by linear equations
    lazy          sets of any form            by their numbers in an outer set, else listed
    together      as callers ask              picks one of the above

`alias`, `regions` and `batch` ask these; those of them that ask about many pairs at once hold levels as columns.
"""

from tapestry_sets.digits import Bools, Int64Array
from tapestry_sets.integers import conjunction, explicit, members, nest, pairs, ranks, together, unions
from tapestry_sets.integers.conjunction import NestConjunction
from tapestry_sets.integers.digit_sets import axis_setts, explicit_setts, nest_of, progression_set
from tapestry_sets.integers.explicit import from_items, merge, merge_nests
from tapestry_sets.integers.integers import Integers
from tapestry_sets.integers.lazy import Filled, Intersection
from tapestry_sets.integers.members import NestSpan
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
from tapestry_sets.integers.ramps import sum_ramps
from tapestry_sets.integers.sett import DisjointSetts, Sett
from tapestry_sets.integers.stripe import Level, Stripe, sum_ramp
from tapestry_sets.integers.together import count_common, ends_of, first_common, isdisjoint
from tapestry_sets.integers.tuning import MAX_ELEMENTS, MAX_SETTS
