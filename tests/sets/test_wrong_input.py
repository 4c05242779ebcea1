"""Wrong input is refused by built-in errors that name the argument, its value and what is required.

Each row is a call, the error's type and words that its message must hold, in any order.
"""

from __future__ import annotations

import contextvars
import operator
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tapestry_sets import (
    AffineMap,
    Box,
    DisjointRegions,
    DisjointSetts,
    ImplicitRegion,
    IndexProjection,
    Limits,
    Region,
    Sett,
    Stripe,
    TooHard,
    TooManyPieces,
    allocate,
    concatenate,
    count_common,
    limits,
    overlap,
    overlap_count,
    pad,
    stack,
    tile,
)
from tapestry_sets.draw import text
from tapestry_sets.integers import progression_set
from tapestry_sets.limits import current
from tapestry_sets.regions import unflatten
from tapestry_sets.solvers import isl

S = Sett(Stripe(6, 1), Stripe(2, 1))
T = Sett(Stripe(1, 4))
U = T | Stripe(1, 6, 2)
BOTH = S & T
R = Region((4, 6), [Sett(), Stripe(1, 2)])
MOVED = Region((4, 6), [Sett(), Stripe(1, 2)], start=(1, 0))
WINDOWS = IndexProjection(AffineMap(((2,),), (-1,)), (3,))
A = allocate((4, 6), name="A")

Row = tuple[str, Callable[[], Any], type[Exception] | tuple[type[Exception], ...], tuple[str, ...]]


def rows(*every: Row) -> list[Any]:
    return [pytest.param(*row[1:], id=row[0]) for row in every]


# --------------------------------------------------------------------------------------------- stripes and setts

SIZES = rows(
    ("stripe: negative on", lambda: Stripe(-1, 3), ValueError, ("on=-1", "off=3", ">= 0")),
    ("stripe: negative off", lambda: Stripe(3, -2), ValueError, ("on=3", "off=-2", ">= 0")),
    ("stripe: no period", lambda: Stripe(0, 0), ValueError, ("on=0", "off=0", "not both 0")),
    ("sett: a pair for a stripe", lambda: Sett((2, 1)), TypeError, ("stripe 0", "(2, 1)", "Stripe(on, off)")),
    ("sett: a sett for a stripe", lambda: Sett(Stripe(2, 1), S), TypeError, ("stripe 1", "Stripe")),
    ("interval: reversed", lambda: Sett.interval(5, 3, 9), ValueError, ("lo=5", "hi=3", "extent=9")),
    ("interval: too long", lambda: Sett.interval(0, 10, 9), ValueError, ("lo=0", "hi=10", "extent=9")),
    (
        "setts: a stripe for a sett",
        lambda: DisjointSetts([Stripe(1, 1)]),
        TypeError,
        ("member 0", "Sett", "Stripe(1, 1)"),
    ),
    ("setts: shared elements", lambda: DisjointSetts([S, T]), ValueError, ("share 0", "one | two")),
    ("scale: by nothing", lambda: S.scale(0), ValueError, ("scale: f", "at least 1", "0")),
    ("scale: by less", lambda: S.scale(-3), ValueError, ("scale: f", "at least 1", "-3")),
    ("strided: no step", lambda: S.strided(1, 0), ValueError, ("step", "not be 0")),
    ("split: no period", lambda: S.split(0), ValueError, ("split: period", "at least 1", "0")),
    ("nth: of nothing", lambda: Sett.empty().nth(3), IndexError, ("nth", "3", "empty")),
    ("nth: of no stripe", lambda: Stripe(0, 2).nth(3), IndexError, ("nth", "3", "empty")),
    ("limits: no pieces", lambda: limits(max_pieces=0).__enter__(), ValueError, ("max_pieces", "at least 1", "0")),
    ("limits: less budget", lambda: limits(budget=-5).__enter__(), ValueError, ("budget", "at least 1", "-5")),
    ("progressions: negative count", lambda: progression_set(0, [(-2, 1)]), ValueError, ("count of level 0", "-2")),
    ("progressions: negative width", lambda: progression_set(0, [], -1), ValueError, ("width", ">= 0", "-1")),
    ("progressions: short extent", lambda: progression_set(0, [(3, 4)], extent=5), ValueError, ("extent 5", "spans 9")),
    ("elements: beyond int64", lambda: T.elements(2**63, 2**63 + 9), OverflowError, (str(2**63 + 2), "int64", "find")),
)

RANGES = rows(
    ("count: reversed", lambda: S.count(9, 3), ValueError, ("start=9", "stop=3", "stop must be >= start")),
    ("elements: reversed", lambda: S.elements(9, 3), ValueError, ("start=9", "stop=3")),
    ("runs: reversed", lambda: S.runs(9, 3), ValueError, ("start=9", "stop=3")),
    ("first: reversed", lambda: BOTH.first(9, 3), ValueError, ("start=9", "stop=3")),
    ("count of both: reversed", lambda: BOTH.count(9, 3), ValueError, ("start=9", "stop=3")),
    ("elements of both: reversed", lambda: BOTH.elements(9, 3), ValueError, ("start=9", "stop=3")),
    ("count of a union: reversed", lambda: U.count(9, 3), ValueError, ("start=9", "stop=3")),
    ("first_common: reversed", lambda: S.first_common(T, 9, 3), ValueError, ("start=9", "stop=3")),
    ("count_common: reversed", lambda: S.count_common(T, 9, 3), ValueError, ("start=9", "stop=3")),
    ("stripe: count reversed", lambda: Stripe(2, 1).count(9, 3), ValueError, ("start=9", "stop=3")),
    ("stripe: elements reversed", lambda: Stripe(2, 1).elements(9, 3), ValueError, ("start=9", "stop=3")),
    ("isdisjoint: reversed", lambda: S.isdisjoint(T, within=(9, 3)), ValueError, ("within", "(9, 3)", "start <= stop")),
    ("issubset: reversed", lambda: S.issubset(T, within=(9, 3)), ValueError, ("within", "(9, 3)")),
    ("same_points: reversed", lambda: S.same_points(T, within=(9, 3)), ValueError, ("within", "(9, 3)")),
    ("union: reversed", lambda: S.union(T, within=(9, 3)), ValueError, ("union", "within", "(9, 3)")),
    ("difference: reversed", lambda: S.difference(T, within=(9, 3)), ValueError, ("difference", "within", "(9, 3)")),
    ("setts: reversed", lambda: BOTH.setts(within=(9, 3)), ValueError, ("within", "(9, 3)")),
    ("both isdisjoint: reversed", lambda: BOTH.isdisjoint(U, within=(9, 3)), ValueError, ("within", "(9, 3)")),
    ("count: half a range", lambda: S.count(3), ValueError, ("start=3", "stop=None", "both")),
    ("count_common: half a range", lambda: S.count_common(T, stop=3), ValueError, ("start=None", "stop=3", "both")),
    ("within: a number", lambda: S.isdisjoint(T, within=5), TypeError, ("within", "(start, stop)", "5")),
    ("within: one number", lambda: S.union(T, within=(5,)), ValueError, ("within", "(start, stop)", "(5,)")),
    ("within: three numbers", lambda: S.union(T, within=(1, 2, 3)), ValueError, ("within", "(1, 2, 3)")),
    ("within: nothing", lambda: S.union(T, within=()), ValueError, ("within", "(start, stop)", "()")),
    ("within: half a range", lambda: S.issubset(T, within=(1, None)), TypeError, ("within[1]", "None", "integer")),
)

INTEGERS: list[Any] = []
for bad in (True, np.True_, 1.0, np.float64(2), "3", None, [4], 2 + 0j):
    shown = repr(bad)
    INTEGERS += rows(
        (f"Stripe on {shown}", lambda b=bad: Stripe(b, 1), TypeError, ("on", shown, "integer")),
        (f"Stripe off {shown}", lambda b=bad: Stripe(1, b), TypeError, ("off", shown, "integer")),
        (f"Stripe phase {shown}", lambda b=bad: Stripe(1, 1, b), TypeError, ("phase", shown, "integer")),
        (f"in {shown}", lambda b=bad: b in S, TypeError, ("element", shown, "integer")),
        (f"count {shown}", lambda b=bad: S.count(0, b), (TypeError, ValueError), ("stop", shown)),
        (f"find {shown}", lambda b=bad: S.find(b), TypeError, ("start", shown, "integer")),
        (f"nth {shown}", lambda b=bad: S.nth(b), TypeError, ("nth: k", shown, "integer")),
        (f"shift {shown}", lambda b=bad: S.shift(b), TypeError, ("shift: k", shown, "integer")),
        (f"reverse {shown}", lambda b=bad: S.reverse(b), TypeError, ("pivot", shown, "integer")),
        (f"scale {shown}", lambda b=bad: S.scale(b), TypeError, ("scale: f", shown, "integer")),
        (f"within {shown}", lambda b=bad: S.union(T, (0, b)), TypeError, ("within[1]", shown, "integer")),
        (f"Region shape {shown}", lambda b=bad: Region.full((3, b)), TypeError, ("shape[1]", shown, "integer")),
        (f"Region start {shown}", lambda b=bad: Region.full((3,), (b,)), TypeError, ("start[0]", shown, "integer")),
        (f"Box shape {shown}", lambda b=bad: Box((0,), (b,)), TypeError, ("shape[0]", shown, "integer")),
        (f"AffineMap {shown}", lambda b=bad: AffineMap(((b,),), (0,)), TypeError, ("matrix[0]", shown, "integer")),
        (f"limits {shown}", lambda b=bad: limits(budget=b).__enter__(), TypeError, ("budget", shown, "integer"))
        if bad is not None
        else (f"progressions {shown}", lambda: progression_set(None, []), TypeError, ("first", "None", "integer")),
    )

OPERANDS: list[Any] = []
for bad in (3, (0, 5), range(4), {1, 2}, None, "evens", np.arange(3)):
    kind = type(bad).__name__
    for one, ours in (("sett", S), ("union", U), ("both", BOTH)):
        for verb in ("isdisjoint", "issubset", "same_points", "count_common", "union", "difference"):
            OPERANDS += rows(
                (f"{one}.{verb} {bad!r}", lambda b=bad, s=ours, v=verb: getattr(s, v)(b), TypeError, ("Sett", kind))
            )
        OPERANDS += rows(
            (f"{one} & {bad!r}", lambda b=bad, s=ours: s & b, TypeError, ("Sett", kind)),
            (f"{one} | {bad!r}", lambda b=bad, s=ours: s | b, TypeError, ("Sett", kind)),
            (f"{one} - {bad!r}", lambda b=bad, s=ours: s - b, TypeError, ("Sett", kind)),
            (f"{one} ^ {bad!r}", lambda b=bad, s=ours: s ^ b, TypeError, ("Sett", kind)),
            (f"{one} <= {bad!r}", lambda b=bad, s=ours: s <= b, TypeError, ("Sett", kind)),
            (f"{one} >= {bad!r}", lambda b=bad, s=ours: s >= b, TypeError, ("Sett", kind)),
        )

# --------------------------------------------------------------------------------------------------- regions

REGIONS = rows(
    ("negative extent", lambda: Region.full((3, -2)), ValueError, ("-2", "axis 1", ">= 0")),
    ("setts too few", lambda: Region((3, 2), [Sett()]), ValueError, ("1 setts", "(3, 2)", "each axis")),
    ("setts too many", lambda: Region((3,), [Sett(), Sett()]), ValueError, ("2 setts", "(3,)")),
    ("no sett", lambda: Region((3,), [5]), TypeError, ("axis 0", "Sett", "5")),
    ("start too short", lambda: Region.full((3, 2), (1,)), ValueError, ("start (1,)", "(3, 2)", "each axis")),
    ("shape no sequence", lambda: Region.full(5), TypeError, ("shape", "5", "sequence")),
    ("point of another rank", lambda: (1,) in R, ValueError, ("(1,)", "(4, 6)", "each axis")),
    ("point no sequence", lambda: 5 in R, TypeError, ("point", "5", "sequence")),
    ("point of floats", lambda: (1, 2.0) in R, TypeError, ("point[1]", "2.0", "integer")),
    ("bounds outside", lambda: Region.from_bounds((4,), (2,), (5,)), ValueError, ("[2, 5)", "axis 0", "[0, 4)")),
    ("bounds before", lambda: Region.from_bounds((4,), (-1,), (2,)), ValueError, ("[-1, 2)", "axis 0", "[0, 4)")),
    ("bounds reversed", lambda: Region.from_bounds((4,), (3,), (2,)), ValueError, ("[3, 2)", "lo <= hi")),
    ("bounds of another rank", lambda: Region.from_bounds((4,), (0, 0), (1, 1)), ValueError, ("(0, 0)", "(4,)")),
    ("index out of range", lambda: Region.from_slices((4,), 4), IndexError, ("4", "axis 0", "extent 4")),
    ("index below range", lambda: Region.from_slices((4,), -5), IndexError, ("-5", "axis 0", "extent 4")),
    (
        "too many slices",
        lambda: Region.from_slices((4,), (slice(1), slice(1))),
        IndexError,
        ("slice(None, 1, None)", "(4,)", "too many"),
    ),
    (
        "slice without step",
        lambda: Region.from_slices((4,), slice(0, 4, 0)),
        ValueError,
        ("step", "axis 0", "not be 0"),
    ),
    ("slice by floats", lambda: Region.from_slices((4,), (1.5,)), TypeError, ("axis 0", "1.5", "an int")),
    ("members in another box", lambda: DisjointRegions((4, 6), [MOVED]), ValueError, ("member 0", "(1, 0)", "(0, 0)")),
    (
        "members that share",
        lambda: DisjointRegions((4, 6), [R, R]),
        ValueError,
        ("share the point (0, 0)", "one | two"),
    ),
    ("members that are none", lambda: DisjointRegions((4, 6), [S]), TypeError, ("member 0", "Region", "Sett")),
    ("transpose: no permutation", lambda: R.transpose((0, 0)), ValueError, ("perm (0, 0)", "once")),
    ("transpose: another rank", lambda: R.transpose((0, 1, 2)), ValueError, ("transpose", "axis 2", "rank 2")),
    ("flip: no such axis", lambda: R.flip(2), ValueError, ("2", "rank 2")),
    ("shift: another rank", lambda: R.shift((1,)), ValueError, ("offset", "(1,)", "(4, 6)")),
    ("broadcast_to: does not fit", lambda: R.broadcast_to((4, 5)), ValueError, ("(4, 6)", "(4, 5)", "broadcast")),
    ("broadcast_to: fewer axes", lambda: R.broadcast_to((6,)), ValueError, ("(4, 6)", "(6,)", "broadcast")),
    ("reduce_to: does not fit", lambda: R.reduce_to((2, 6)), ValueError, ("(4, 6)", "(2, 6)", "broadcast")),
    ("reshape: another size", lambda: R.reshape((5, 5)), ValueError, ("(4, 6)", "24", "(5, 5)", "25")),
    ("reshape: away from zero", lambda: MOVED.reshape((24,)), ValueError, ("reshape", "(1, 0)", "zero", "shift")),
    ("flatten: away from zero", lambda: MOVED.flatten(), ValueError, ("flatten", "(1, 0)", "zero", "shift")),
    ("unflatten: negative extent", lambda: unflatten(S, (4, -1)), ValueError, ("-1", "axis 1", ">= 0")),
)

BOXES: list[Any] = []
OTHER = Region.full((4, 5))
for name, ours, theirs, words in (
    ("shape", R, OTHER, ("(4, 6)", "(4, 5)", "one box")),
    ("start", R, MOVED, ("(0, 0)", "(1, 0)", "one box")),
    ("rank", R, Region.full((4,)), ("(4, 6)", "(4,)", "one box")),
):
    for verb in ("isdisjoint", "count_common", "first_common", "issubset", "same_points"):
        BOXES += rows((f"{verb}: another {name}", lambda v=verb, r=ours, t=theirs: getattr(r, v)(t), ValueError, words))
    BOXES += rows(
        (f"&: another {name}", lambda r=ours, t=theirs: r & t, ValueError, words),
        (f"|: another {name}", lambda r=ours, t=theirs: r | t, ValueError, words),
        (f"-: another {name}", lambda r=ours, t=theirs: r - t, ValueError, words),
        (f"^: another {name}", lambda r=ours, t=theirs: r ^ t, ValueError, words),
        (f"<=: another {name}", lambda r=ours, t=theirs: r <= t, ValueError, words),
        (f">=: another {name}", lambda r=ours, t=theirs: r >= t, ValueError, words),
    )
for bad in (3, S, (0, 1), None):
    kind = type(bad).__name__
    for verb in ("isdisjoint", "count_common", "first_common", "issubset", "same_points"):
        BOXES += rows((f"{verb}: {bad!r}", lambda b=bad, v=verb: getattr(R, v)(b), TypeError, ("Region", kind)))
    BOXES += rows(
        (f"& {bad!r}", lambda b=bad: R & b, TypeError, ("Region", kind)),
        (f"| {bad!r}", lambda b=bad: R | b, TypeError, ("Region", kind)),
        (f"- {bad!r}", lambda b=bad: R - b, TypeError, ("Region", kind)),
        (f"^ {bad!r}", lambda b=bad: R ^ b, TypeError, ("Region", kind)),
    )

# ------------------------------------------------------------------------------------- projections and views

PROJECTIONS = rows(
    ("box: negative extent", lambda: Box((0,), (-3,)), ValueError, ("-3", "axis 0", ">= 0")),
    ("box: ranks differ", lambda: Box((0, 0), (3,)), ValueError, ("(0, 0)", "(3,)")),
    ("box: point of another rank", lambda: (1, 2) in Box.of((3,)), ValueError, ("rank 2", "rank 1")),
    ("map: rows differ", lambda: AffineMap(((1, 2), (3,)), (0, 0)), ValueError, ("row 1", "1", "2")),
    ("map: offsets differ", lambda: AffineMap(((1, 2),), (0, 0)), ValueError, ("1 rows", "2 offsets")),
    ("projection: no extent", lambda: IndexProjection(AffineMap(((1,),), (0,)), (0,)), ValueError, ("0", ">= 1")),
    ("projection: ranks", lambda: IndexProjection(AffineMap(((1,),), (0,)), (1, 1)), ValueError, ("(1, 1)", "1")),
    ("projection: point's rank", lambda: WINDOWS((1, 2)), ValueError, ("(1, 2)", "rank 2", "rank 1")),
    ("projection: index rank", lambda: WINDOWS.image(Box.of((2, 2))), ValueError, ("rank 2", "rank 1")),
    ("projection: within a number", lambda: WINDOWS.image(Box.of((2,)), 5), TypeError, ("within", "5", "shape")),
    (
        "projection: within's rank",
        lambda: WINDOWS.image(Box.of((2,)), (3, 3)),
        ValueError,
        ("within", "rank 2", "rank 1"),
    ),
    (
        "projection: within's rank, shared",
        lambda: WINDOWS.shared(Box.of((2,)), Box.of((2,)), (3, 3)),
        ValueError,
        ("within", "rank 2", "rank 1"),
    ),
    (
        "projection: negative within",
        lambda: WINDOWS.image(Box.of((2,)), (-3,)),
        ValueError,
        ("-3", "axis 0", ">= 0"),
    ),
    ("projection: empty box", lambda: WINDOWS.bounding_box(Box.of((0,))), ValueError, ("(0,)", "empty")),
    ("projection: no such axis", lambda: WINDOWS.reversed(1, 3), ValueError, ("axis 1", "[0, 1)")),
    ("region: box of another rank", lambda: Box.of((3,)).to_region((3, 3)), ValueError, ("rank 2", "rank 1")),
)

VIEWS = rows(
    ("allocate: negative", lambda: allocate((3, -1)), ValueError, ("-1", "(3, -1)")),
    ("index out of range", lambda: A[4], IndexError, ("4", "axis 0")),
    ("index by a float", lambda: A[1.5], IndexError, ("1.5",)),
    ("too many indices", lambda: A[0, 0, 0], IndexError, ("3", "(4, 6)")),
    ("slice without step", lambda: A[::0], ValueError, ("step", "0")),
    ("reshape: another size", lambda: A.reshape(5, 5), ValueError, ("(4, 6)", "(5, 5)")),
    ("reshape: two unknown", lambda: A.reshape(-1, -1), ValueError, ("-1", "(-1, -1)")),
    ("reshape: nothing fits", lambda: A.reshape(5, -1), ValueError, ("(4, 6)", "(5, -1)")),
    ("permute: no permutation", lambda: A.permute_dims((0, 0)), ValueError, ("(0, 0)",)),
    ("flip: no such axis", lambda: A.flip(2), ValueError, ("2", "rank 2")),
    ("squeeze: not one", lambda: A.squeeze(0), ValueError, ("axis 0", "4")),
    ("broadcast_to: does not fit", lambda: A.broadcast_to((4, 5)), ValueError, ("(4, 6)", "(4, 5)")),
    ("concatenate: nothing", lambda: concatenate([]), ValueError, ("concatenate", "at least one")),
    ("concatenate: shapes", lambda: concatenate([A, A[:, 1:]]), ValueError, ("(4, 6)", "(4, 5)")),
    ("stack: shapes", lambda: stack([A, A[1:]]), ValueError, ("(4, 6)", "(3, 6)")),
    ("tile: negative", lambda: tile(A, -2), ValueError, ("-2", ">= 0")),
    ("windows: too long", lambda: A.sliding_windows(7, axis=1), ValueError, ("7", "6")),
)


OPERATORS = {"&": "and_", "|": "or_", "-": "sub", "^": "xor", "<=": "le", ">=": "ge"}
IMPLICIT = ImplicitRegion((0, 0), (4, 6), "{ [i, j] : 0 <= i < 4 and 0 <= j < 6 and i + j < 5 }")
OF_INTEGERS = [T, U, BOTH, ~U]
OF_POINTS = [R, R | Region.from_bounds((4, 6), (0, 0), (2, 3)), R.reshape((6, 4)).reshape((4, 6)), IMPLICIT]


@pytest.mark.parametrize("sign", OPERATORS)
@pytest.mark.parametrize("is_left", [True, False])
@pytest.mark.parametrize("one", [*OF_INTEGERS, *OF_POINTS], ids=lambda x: type(x).__name__)
def test_operators_of_sets_refuse_what_is_of_another_kind(one: Any, is_left: bool, sign: str) -> None:
    """They name both types, as Python does, or the operator, what is wrong with its type, and what it takes."""
    others = OF_POINTS if any(one is own for own in OF_INTEGERS) else OF_INTEGERS
    for other in (3, None, {1}, "a", Box((0,), (4,)), A, *others):
        if other is A and not is_left:
            continue  # views answer for themselves
        left, right = (one, other) if is_left else (other, one)
        with pytest.raises((TypeError, ValueError)) as caught:
            getattr(operator, OPERATORS[sign])(left, right)
        said, kinds = str(caught.value), [type(left).__name__, type(right).__name__]
        of_python = all(f"'{kind}'" in said for kind in kinds)
        of_ours = " takes " in said or "a set of integers is a" in said or "rank 1 where rank 2" in said
        assert of_python or (of_ours and any(kind in said for kind in kinds)), said


@pytest.mark.parametrize("sign", OPERATORS)
@pytest.mark.parametrize("one", OF_POINTS[:3], ids=lambda x: type(x).__name__)
def test_operators_of_regions_refuse_other_boxes(one: Any, sign: str) -> None:
    for other in (Region.full((5, 6)), Region.full((4,)), MOVED, Region.full((6, 4)).reshape((3, 8))):
        with pytest.raises(ValueError, match=r"in one box, not shape .* from .* and shape .* from .*; shift one"):
            getattr(operator, OPERATORS[sign])(one, other)


def test_implicit_regions_refuse_what_has_another_rank() -> None:
    line = Region.full((4,))
    for ask in (IMPLICIT.__and__, IMPLICIT.__le__, IMPLICIT.isdisjoint, IMPLICIT.same_points):
        with pytest.raises(ValueError, match=r"the other side is Region\(\(4,\).*rank 1 where rank 2 is needed"):
            ask(line)
        with pytest.raises(TypeError, match="takes an ImplicitRegion, regions or a Box, not Sett: Sett"):
            ask(T)  # type: ignore[arg-type]


def says(message: str, words: tuple[str, ...]) -> list[str]:
    """Return the words that a message lacks."""
    return [word for word in words if word not in message]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [*SIZES, *RANGES, *INTEGERS, *OPERANDS, *REGIONS, *BOXES, *PROJECTIONS, *VIEWS],
)
def test_wrong_input_is_refused_by_name_value_and_requirement(
    call: Callable[[], Any], error: type[Exception], words: tuple[str, ...]
) -> None:
    with pytest.raises(error) as caught:
        call()
    assert not isinstance(caught.value, (TooHard, TooManyPieces, UnicodeError))
    missing = says(str(caught.value), words)
    assert not missing, f"{str(caught.value)!r} does not say {missing}"


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.uint64, np.int64, np.intp])
def test_integers_of_numpy_are_integers(kind: Any) -> None:
    two, five = kind(2), kind(5)
    assert Stripe(two, five, two) == Stripe(2, 5, 2)
    assert all(type(n) is int for n in Stripe(two, five, two).level)
    assert five in S.shift(two)
    assert S.count(two, five) == S.count(2, 5)
    assert S.find(five) == S.find(5)
    assert S.nth(five) == S.nth(5)
    assert S.elements(two, five).tolist() == S.elements(2, 5).tolist()
    assert S.scale(two) == S.scale(2)
    assert S.reverse(five) == S.reverse(5)
    assert S.isdisjoint(T, within=(two, five)) == S.isdisjoint(T, within=(2, 5))
    assert S.first_common(T, two, five) == S.first_common(T, 2, 5)
    assert Region.full((two, five)).size == 10
    assert type(Region.full((two, five)).size) is int
    assert Box((two,), (five,)) == Box((2,), (5,))
    assert AffineMap(((two,),), (five,)) == AffineMap(((2,),), (5,))
    assert progression_set(two, [(five, two)]).same_points(progression_set(2, [(5, 2)]))


def test_an_array_without_an_axis_is_a_window_size_as_for_numpy() -> None:
    # NumPy's sliding_window_view takes np.array(2) as 2
    size: Any = np.array(2)
    windows = np.lib.stride_tricks.sliding_window_view(np.arange(12).reshape(4, 3), size, axis=0)
    view = allocate((4, 3), name="w")
    assert view.sliding_windows(size).same_view(view.sliding_windows(2))
    assert view.sliding_windows(size, axis=0).size == windows.size
    assert view.sliding_windows(2, step=size).same_view(view.sliding_windows(2, step=2))


def test_empty_ranges_raise_nothing() -> None:
    assert S.count(4, 4) == 0
    assert S.elements(4, 4).tolist() == []
    assert BOTH.first(4, 4) is None
    assert S.first_common(T, 4, 4) is None
    assert S.isdisjoint(S, within=(4, 4))
    assert S.union(T, within=(4, 4)).is_empty
    assert Stripe(2, 1).count(4, 4) == 0


def test_doors_that_take_one_kind_of_thing_say_which() -> None:
    s, A = Sett(Stripe(1, 1)), allocate((3,))
    doors = [
        (lambda: Stripe(1, 1) & Stripe(1, 2), "Sett"),
        (lambda: unflatten(3, (3,)), "not 3"),
        (lambda: overlap_count(A, A), "SymbolicView"),
        (lambda: DisjointSetts(s), "iterable of setts"),
        (lambda: count_common([s]), "not list"),
    ]
    for door, said in doors:
        with pytest.raises(TypeError, match=said):
            door()
    with pytest.raises(ValueError, match="stop=1"):
        text(s, start=5, stop=1)
    assert Stripe(1, 1) & s <= s and Stripe(1, 1) | s == DisjointSetts([s])


def test_a_diagonal_against_a_padded_slice_is_counted_without_isl() -> None:
    n = 10**12 + 39  # a prime extent
    A = allocate((n, n))
    diagonal, other = A.diagonal(), A.T[::2, ::3]  # A[3j, 2i]: on the diagonal the multiples of 6
    with mock.patch.object(isl, "available", lambda: False):
        shared = overlap(diagonal.reshape((1, -1)).broadcast_to((2, n)), pad(other, 1, "reflect"))
        assert shared.size == -(-n // 6)


# --------------------------------------------------------------------------------- what is too long, or means nothing


def filled(times: int) -> Any:
    s: Any = S
    for _ in range(times):
        s = s.fill(Stripe(5, 1))
    return s


def filled_inwards(times: int) -> Any:
    s: Any = S
    for _ in range(times):
        s = S.fill(s)
    return s


def repeated(change: Callable[[Any], Any], times: int = 2000) -> Any:
    s: Any = S
    for _ in range(times):
        s = change(s)
    return s


TOO_LONG = rows(
    (
        "2,000 samples",
        lambda: repeated(lambda s: s.sample(Stripe(5, 1))),
        TooHard,
        ("fill: 201 sets", "more than 200", "setts()"),
    ),
    (
        "2,000 samples seen through samples",
        lambda: repeated(S.sample),
        TooHard,
        ("sample: 201 sets", "a sample 20", "more than 200", "setts()"),
    ),
    (
        "2,000 common elements, sampled",
        lambda: repeated(lambda s: (s & T).sample(S)),
        TooHard,
        ("sample: 221 sets", "common elements count 10", "setts()"),
    ),
    (
        "2,000 common elements, filled",
        lambda: repeated(lambda s: S.fill(s & T)),
        TooHard,
        ("fill: 210 sets", "common elements count 10", "setts()"),
    ),
    ("2,000 sets filled inwards", lambda: filled_inwards(2000), TooHard, ("201 sets", "more than 200", "setts()")),
    ("members that are one number", lambda: DisjointSetts(5), TypeError, ("iterable of setts", "not 5", "[it]")),  # type: ignore[arg-type]
    ("2,000 sets filled into one another", lambda: filled(2000), TooHard, ("201 sets", "more than 200", "setts()")),
    (
        "elements",
        lambda: S.elements(0, 10**12),
        TooManyPieces,
        ("elements: 571428571429 elements", "[0, 1000000000000)", "shorter range"),
    ),
    (
        "elements, lazy",
        lambda: filled(2).elements(0, 10**12),
        TooManyPieces,
        (" elements in [0, 1000000000000)", "shorter range"),
    ),
    (
        "points",
        lambda: Region.full((10**6, 10**6)).points(),
        TooManyPieces,
        ("points", "1000000000000 points", "rank 2", "size"),
    ),
    (
        "pieces of a pad that goes around often",
        lambda: pad(A, 10**9, "wrap").pieces,
        TooManyPieces,
        ("pad, mode wrap", "more than 10000", "need none"),
    ),
    (
        "a view in the place of its shape",
        lambda: A.broadcast_to(allocate((10**9, 4), name="long")),  # type: ignore[arg-type]
        TypeError,
        ("broadcast_to: shape[0] must be an integer", "long"),
    ),
    ("an array and a view", lambda: np.arange(4) + A, TypeError, ("ndarray", "places and no values", "arrays")),
    ("a view and an array", lambda: A * np.arange(4), TypeError, ("ndarray", "places and no values", "arrays")),
    ("a view and a number", lambda: 1 - A, TypeError, ("int", "places and no values", "arrays")),
)


@pytest.mark.parametrize(("call", "error", "words"), TOO_LONG)
def test_what_is_too_long_is_refused_before_it_is_made(
    call: Callable[[], Any], error: type[Exception], words: tuple[str, ...]
) -> None:
    with pytest.raises(error) as info:
        call()
    for word in words:
        assert word in str(info.value)


def test_sets_filled_into_one_another_take_a_step_each() -> None:
    """The innermost first: asked the other way around, each of them would be asked twice for each one around it."""
    deep = filled(150)
    listed = S.elements(0, 3000)
    for _ in range(150):
        listed = listed[np.arange(len(listed)) % 6 < 5]
    assert deep.elements(0, 3000).tolist() == listed.tolist()
    assert not deep.isdisjoint(Stripe(1, 6)) and deep.first(1) == int(listed[1])
    assert deep.count(0, 10**18) > 0


def test_samples_of_samples_are_one_sample() -> None:
    """What is seen through sets one after another is seen through one that they fill: 150 of them in a step each."""
    deep = repeated(lambda s: s.sample(Stripe(5, 1)), 150)
    numbers = np.flatnonzero(np.isin(np.arange(10**6), S.elements(0, 10**6)))
    for _ in range(20):  # of the first numbers, which 150 rounds leave where 20 do
        numbers = numbers[numbers % 6 < 5] // 6 * 5 + numbers[numbers % 6 < 5] % 6
    shallow = repeated(lambda s: s.sample(Stripe(5, 1)), 20)
    assert shallow.elements(0, 1000).tolist() == numbers[numbers < 1000].tolist()
    assert deep.count(0, 6) == shallow.count(0, 6) and deep.find(10**6) is not None


def test_common_elements_moved_on_2000_times_hold_each_set_once() -> None:
    moved = repeated(lambda s: (s & T).shift(1))
    assert moved.is_empty and len(moved.operands) <= 2 * T.period + S.period
    assert (
        repeated(lambda s: (s & Sett(Stripe(2, 0))).shift(7)).elements(0, 20).tolist()
        == S.shift(14_000).elements(0, 20).tolist()
    )


def test_cells_of_a_column_are_keys() -> None:
    view = A.take([3, 0, 1], axis=0)
    (cells,) = view.cells.values()
    assert {cells: 1}[cells] == 1 and hash(overlap(view, A[1:])) == hash(overlap(view, A[1:]))


def test_indices_beyond_63_bits_are_integers_in_a_list() -> None:
    home = allocate((2**64,), name="home")
    taken = home.take([0, 2**63, 5])
    assert taken == home[[0, 2**63, 5]] and overlap(taken, home[2**62 :]).witness.cell == (2**63,)  # type: ignore[union-attr]
    with pytest.raises(TypeError, match="array of float64"):
        home.take([0, 2.0**63, 5])


def test_few_elements_of_a_long_range_are_listed() -> None:
    """How many there are is counted, not guessed from how dense the sets are."""
    evens = Sett(Stripe(1, 1))
    assert (evens & Stripe(1, 1, phase=1)).elements(0, 10**12).tolist() == []
    sparse = Sett(Stripe(1, 10**11 - 1)) & Stripe(1, 1)
    assert sparse.elements(0, 10**12).tolist() == list(range(0, 10**12, 10**11))


def test_members_of_unions_are_iterated_and_numbered() -> None:
    regions = R | Region((4, 6), [Stripe(1, 3), Stripe(1, 2, 1)])
    for union in (U, regions):
        assert list(union) == [union[k] for k in range(len(union))] == list(union.members)
        with pytest.raises(IndexError):
            _ = union[len(union)]


def test_limits_hold_in_the_thread_that_enters_them() -> None:
    def budget() -> int:
        return current().budget

    with limits(budget=7), ThreadPoolExecutor(1) as pool:
        assert budget() == 7
        assert pool.submit(budget).result() == Limits().budget
        assert pool.submit(contextvars.copy_context().run, budget).result() == 7
