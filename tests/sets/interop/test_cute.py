"""CuTe's layouts against their definitions, number by number, and against what CUTLASS's own module answers."""

from __future__ import annotations

import json
import re
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tapestry_sets import CuteLayout, TooHard, allocate, concatenate, from_cute, pad, to_cute
from tests.oracles import as_layout, is_layout, memory_for, read_view
from tests.sets.interop.cute_answers import ANSWERS, QUESTIONS, answers_of, cutlass, leaves_of, size_of
from tests.strategies import views

# ---------------------------------------------------------------------------------------------- the definitions


def cell(number: int, layout: CuteLayout) -> int:
    """The cell of a number: the first mode fastest, and the last takes what the others leave."""
    shape, stride = list(leaves_of(layout.shape)), list(leaves_of(layout.stride))
    found = 0
    for n, by in zip(shape[:-1], stride[:-1], strict=True):
        found += number % n * by
        number //= n
    return found + number * stride[-1]


def cells(layout: CuteLayout) -> list[int]:
    return [cell(c, layout) for c in range(size_of(layout.shape))]


def copies(layout: CuteLayout, many: int) -> list[int] | None:
    """Where copies of a layout must begin to fill the cells from 0 on, each of them once: at the first that is free.

    None if they cannot, or if the layout itself reaches a cell twice, other than by strides of 0.
    """
    tile = set(cells(layout))
    if len(tile) < prod(n for n, by in layout.leaves if by):
        return None
    found: list[int] = []
    filled: set[int] = set()
    while len(filled) < many or max(filled) != len(filled) - 1:
        at = next(z for z in range(len(filled) + 1) if z not in filled)
        copy = {at + z for z in tile}
        if copy & filled:
            return None
        filled |= copy
        found.append(at)
    return found


def composed(a: CuteLayout, b: CuteLayout) -> CuteLayout | None:
    """R with R(c) = a(b(c)), found from all of its values; None if there is none."""
    shape, stride = [], []
    for n, by in b.leaves:
        found = as_layout([cell(k * by, a) for k in range(n)])
        if found is None:
            return None
        shape.append(found[0][0] if len(found) == 1 else tuple(n for n, _ in found) or 1)
        stride.append(found[0][1] if len(found) == 1 else tuple(by for _, by in found) or 0)
    left = iter(zip(shape, stride, strict=True))

    def refill(nest: Any) -> Any:
        if not isinstance(nest, tuple):
            return next(left)
        each = [refill(one) for one in nest]
        return tuple(n for n, _ in each), tuple(by for _, by in each)

    made = CuteLayout(*refill(b.shape))
    return made if cells(made) == [cell(x, a) for x in cells(b)] else None


def is_right(question: str, a: CuteLayout, b: CuteLayout, n: int, answer: Any) -> bool:
    """Whether an answer is one, by the definition of what is asked."""
    if question == "size":
        return bool(answer == len(cells(a)))
    if question == "cosize":
        return bool(answer == max(cells(a)) + 1)
    if question == "divide by number":
        question, b = "divide", CuteLayout(1 + n % 8)
    try:
        found = CuteLayout.parse(answer)
    except ValueError:  # an extent of 0
        return False
    if question == "coalesce":
        return cells(found) == cells(a) and found.leaves == tuple(as_layout(cells(a)) or [(1, 0)])
    if question == "compose":
        return found == composed(a, b)
    if question == "complement":
        return cells(found) == copies(a, n)
    if question == "divide":
        rest = copies(b, a.size)
        return (
            rest is not None
            and len(set(cells(b))) * len(rest) >= a.size
            and found.modes[0].size == b.size
            and cells(found) == [cell(x + y, a) for y in rest for x in cells(b)]
        )
    if question == "multiply":
        rest = copies(a, a.size * (max(cells(b)) + 1))
        places = cells(b)
        return (
            rest is not None
            and found.modes[0] == a
            and (max(places) < len(rest) and cells(found.modes[1]) == [rest[z] for z in places])
        )
    if question == "right inverse":
        return [cell(z, a) for z in cells(found)] == list(range(found.size))
    assert question == "left inverse"
    return [cell(z, found) for z in cells(a)] == list(range(a.size))


ASK: dict[str, Any] = {
    "size": lambda a, b, n: a.size,
    "cosize": lambda a, b, n: a.cosize,
    "coalesce": lambda a, b, n: a.coalesce(),
    "compose": lambda a, b, n: a.compose(b),
    "complement": lambda a, b, n: a.complement(n),
    "divide": lambda a, b, n: a.divide(b),
    "divide by number": lambda a, b, n: a.divide(1 + n % 8),
    "multiply": lambda a, b, n: a.multiply(b),
    "right inverse": lambda a, b, n: a.right_inverse(),
    "left inverse": lambda a, b, n: a.left_inverse(),
}


def is_same(one: Any, two: Any) -> bool:
    """Whether two answers are the same layout; a mode of one leaf is as good as the leaf."""
    if not isinstance(two, CuteLayout):
        return bool(one == two)

    def plain(nest: Any) -> Any:
        if not isinstance(nest, tuple):
            return nest
        return plain(nest[0]) if len(nest) == 1 else tuple(map(plain, nest))

    one = CuteLayout.parse(one)
    return (plain(one.shape), plain(one.stride)) == (plain(two.shape), plain(two.stride))


@pytest.mark.heavy(2)
@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_are_those_of_cutlass_where_these_are_right(question: str) -> None:
    """Where CUTLASS's module asserts, or answers past its preconditions, ours is right or a ValueError."""
    counts = dict.fromkeys(("same", "other", "refused"), 0)
    for case in json.loads(ANSWERS.read_text()):
        a, b, n = CuteLayout.parse(case["a"]), CuteLayout.parse(case["b"]), case["n"]
        theirs = case[question]
        try:
            ours = ASK[question](a, b, n)
        except ValueError:
            assert theirs is None or not is_right(question, a, b, n, theirs), case
            counts["refused"] += 1
            continue
        assert is_right(question, a, b, n, str(ours) if isinstance(ours, CuteLayout) else ours), (case, str(ours))
        if theirs is not None and is_right(question, a, b, n, theirs) and is_same(theirs, ours):
            counts["same"] += 1
        else:
            shorter = question == "right inverse" and CuteLayout.parse(theirs).size < ours.size
            assert shorter or theirs is None or not is_right(question, a, b, n, theirs), (case, str(ours))
            counts["other"] += 1
    assert counts["same"] >= 100, counts


@pytest.mark.skipif(cutlass() is None, reason="nvidia-cutlass is not installed")
def test_committed_answers_are_those_of_cutlass() -> None:
    assert list(answers_of(cutlass())) == json.loads(ANSWERS.read_text())


# ------------------------------------------------------------------------------------------------ laws, any layouts


@st.composite
def layouts(draw: st.DrawFn, most: int = 48, signed: bool = False) -> CuteLayout:
    """Layouts of any nest and strides, mostly of strides that fit."""

    def nest(depth: int, room: int) -> Any:
        if depth == 0 or draw(st.booleans()):
            return draw(st.sampled_from([n for n in (1, 2, 3, 4, 6) if n <= room] or [1]))
        found: list[Any] = []
        for _ in range(draw(st.integers(1, 3))):
            found.append(nest(depth - 1, room))
            room //= size_of(found[-1])
        return tuple(found)

    shape = nest(2, most)
    extents = list(leaves_of(shape))
    strides, step = [0] * len(extents), draw(st.sampled_from([1, 1, 2, 3]))
    for at in draw(st.permutations(range(len(extents)))):
        strides[at] = step if draw(st.integers(0, 4)) else draw(st.integers(0, 9))
        step *= extents[at] * draw(st.sampled_from([1, 1, 2]))
    if signed:
        strides = [by * draw(st.sampled_from([1, 1, -1])) for by in strides]
    left = iter(strides)

    def refill(one: Any) -> Any:
        return tuple(map(refill, one)) if isinstance(one, tuple) else next(left)

    return CuteLayout(shape, refill(shape))


@settings(max_examples=300)
@given(layouts(signed=True), layouts(24))
@example(CuteLayout((2, 2, 2), (1, 3, 5)), CuteLayout((2, 2), (1, 3)))  # two carries cancel each other
@example(CuteLayout((2, 2, 2), (1, 3, 5)), CuteLayout(4, 3))
@example(CuteLayout((6, 2), (1, 100)), CuteLayout(3, 4))  # in no run of equal steps
@example(CuteLayout((6, 2), (1, 100)), CuteLayout(2, 4))  # where CuTe asserts that 4 divides 6
@example(CuteLayout((1, 4), (5, 3)), CuteLayout((2, 2), (1, 2)))
@example(CuteLayout(4, 2), CuteLayout(8, 1))  # past the end: the last mode goes on
def test_compositions_are_found_where_there_are_any(a: CuteLayout, b: CuteLayout) -> None:
    wanted = composed(a, b)
    if wanted is None:
        with pytest.raises(ValueError, match="is not a layout: "):
            a.compose(b)
    else:
        assert a.compose(b) == wanted


@given(layouts(), layouts(8), layouts(6))
def test_composition_is_associative(a: CuteLayout, b: CuteLayout, c: CuteLayout) -> None:
    try:
        one = a.compose(b).compose(c)
        two = a.compose(b.compose(c))
    except ValueError:
        assume(False)
    # a.compose(b) goes on past its end in its own way
    if max(cells(c)) < b.size:
        assert cells(one) == cells(two)


@given(layouts(), st.integers(1, 200))
def test_complements_fill_what_is_left(a: CuteLayout, n: int) -> None:
    rest = copies(a, n)
    if rest is None:
        with pytest.raises(ValueError, match="is not a multiple of"):
            a.complement(n)
        return
    found = a.complement(n)
    assert cells(found) == rest
    sums = sorted(x + y for x in set(cells(a)) for y in cells(found))
    assert sums == list(range(len(sums))) and len(sums) >= n
    assert found.coalesce() == found


@given(layouts(), st.integers(1, 12))
def test_divisions_hold_each_cell_of_a_layout_in_one_tile(a: CuteLayout, n: int) -> None:
    try:
        found = a.divide(n)
    except ValueError:
        assume(False)
    assert found.modes[0].size == n
    if a.size % n == 0:
        assert sorted(cells(found)) == sorted(cells(a))
    assert cells(found)[: a.size] == cells(a)


@given(layouts(signed=True))
def test_layouts_are_functions_of_numbers_and_of_coordinates(a: CuteLayout) -> None:
    shape = list(leaves_of(a.shape))
    every = [at[::-1] for at in product(*[range(n) for n in reversed(shape)])]  # the first mode fastest
    assert [sum(i * by for i, by in zip(at, leaves_of(a.stride), strict=True)) for at in every] == cells(a)
    assert [a(c) for c in range(a.size)] == [a.flatten()(*at) for at in every] == cells(a)
    assert CuteLayout.parse(str(a)) == a == eval(repr(a))
    assert cells(a.coalesce()) == cells(a)
    assert a.cosize == 1 + sum(abs(by) * (n - 1) for n, by in a.leaves)
    modes = [range(mode.size) for mode in a.modes]
    assert [a(*at) if a.rank > 1 else a(at[0]) for at in (p[::-1] for p in product(*modes[::-1]))] == cells(a)


@given(layouts())
def test_right_inverses_are_the_longest_there_are(a: CuteLayout) -> None:
    found = a.right_inverse()
    assert [a(z) for z in cells(found)] == list(range(found.size))
    if len(set(cells(a))) == prod(n for n, by in a.leaves if by):  # a longer one would begin so and go on
        assert not any(n > 1 and by == found.size for n, by in a.leaves)


def test_sizes_and_work_do_not_depend_on_each_other() -> None:
    n = 10**9
    a = CuteLayout((n, (n, n)), (n * n, (1, n)))
    assert a.size == a.cosize == n**3
    assert str(a.compose(CuteLayout((n, n), (n * n, n)))) == f"({n},{n}):({n},1)"
    assert str(a.divide((1000, n))) == f"((1000,{n // 1000}),({n},{n})):(({n * n},{1000 * n * n}),(1,{n}))"
    assert str(CuteLayout((n, n), (1, 2 * n)).complement(10**30)) == f"(2,{10**30 // (2 * n * n)}):({n},{2 * n * n})"
    assert CuteLayout((n, n), (n, 1)).right_inverse().size == n * n
    with pytest.raises(ValueError, match="the parts of 1000000000 lie at cells of the sum"):
        CuteLayout((n, n), (1, 2 * n)).compose(CuteLayout((n, 2), (1, 1)))


def test_carries_that_may_cancel_are_too_hard_where_they_are_many() -> None:
    a = CuteLayout((2, 2, 2), (1, 3, 5))
    assert str(a.compose(CuteLayout((2, 2), (1, 3)))) == "(2,2):(1,4)"
    with pytest.raises(TooHard, match="may cancel each other"):
        a.compose(CuteLayout((10**9, 2, 2), (8, 1, 3)))


# ---------------------------------------------------------------------------------------------------------- views


def numbers_of(view: Any) -> np.ndarray:
    """The row-major number of the cell at each index, of a view of one variable."""
    memory = memory_for([view])
    return read_view(view, memory) - 1


@given(layouts(signed=True), st.integers(0, 3))
@example(CuteLayout((), ()), 2)
@example(CuteLayout(((2, 2), 8), ((1, 4), 8)), 0)
def test_views_read_what_layouts_say(a: CuteLayout, more: int) -> None:
    low = sum((n - 1) * by for n, by in a.leaves if by < 0)
    if low:
        with pytest.raises(ValueError, match=rf"reaches cell {low}; an offset larger by {-low} begins at 0"):
            from_cute(a)
    first = more - low
    view = from_cute(str(a), offset=first)
    assert view.shape == tuple(mode.size for mode in a.modes)
    found = numbers_of(view)
    for index in product(*map(range, view.shape)):
        assert found[index] == first + (a(*index) if index else 0)
    assert found.T.ravel().tolist() == [first + (cell(c, a) if a.shape else 0) for c in range(a.size)]
    again = CuteLayout.parse(to_cute(view))
    assert [m.coalesce() for m in again.modes] == [m.coalesce() for m in a.modes]
    assert from_cute(to_cute(view), view.allocations[0], first) == view


@given(layouts())
def test_layouts_read_a_base_by_row_major_numbers(a: CuteLayout) -> None:
    base = allocate(2 * a.cosize)[1::2].reshape(1, a.cosize)
    assert (numbers_of(from_cute(a, base)) == 2 * numbers_of(from_cute(a)) + 1).all()


@given(views(5))
def test_layouts_of_views_say_what_they_read(case: tuple[Any, np.ndarray]) -> None:
    view, values = case
    values = np.asarray(values) - 1
    try:
        text = to_cute(view)
    except ValueError:
        assert not values.size or values.min() < 0 or not is_layout(values)
        return
    swizzle = re.fullmatch(r"Sw<(\d+),(\d+),(-?\d+)> o (\d+) o (.*)", text)
    layout = CuteLayout.parse(swizzle[5] if swizzle else text)
    assert [mode.size for mode in layout.modes] == list(view.shape)
    first = int(swizzle[4]) if swizzle else int(values.ravel()[0])
    found = [first + (cell(c, layout) if view.shape else 0) for c in range(view.size)]
    assert values.T.ravel().tolist() == [swizzled(x, *map(int, swizzle.groups()[:3])) if swizzle else x for x in found]


def swizzled(x: int, bits: int, low: int, shift: int) -> int:
    """A number of which as many bits flip others, that many places below or above."""
    moved = x & ((1 << bits) - 1) << (low + max(0, shift))
    return x ^ (moved >> shift if shift > 0 else moved << -shift)


@given(layouts(), st.integers(0, 3), st.integers(0, 3), st.integers(-4, 4), st.integers(0, 5))
@example(CuteLayout((8, 64), (64, 1)), 3, 3, 3, 0)
def test_swizzled_layouts_flip_bits_of_what_layouts_say(
    a: CuteLayout, bits: int, low: int, shift: int, offset: int
) -> None:
    assume(abs(shift) >= bits)
    text = f"Sw<{bits},{low},{shift}> o {offset} o {a}"
    view = from_cute(text)
    found = numbers_of(view)
    assert found.T.ravel().tolist() == [swizzled(offset + cell(c, a), bits, low, shift) for c in range(a.size)]
    (home,) = view.allocations
    again = to_cute(view)
    assert from_cute(again, home, view.offset or 0) == view
    assert from_cute(f"Sw<{bits},{low},{shift}> o {offset - 1} o {a}", home, 1) == view


def test_only_swizzles_of_whole_memory_are_layouts() -> None:
    memory = allocate((8, 64))
    assert to_cute(memory.swizzle(3, 3, 3)[2:, ::-1].T) == "Sw<3,3,3> o 191 o (64,6):(-1,64)"
    assert to_cute(memory.swizzle(3, 3, 3).swizzle(3, 3, 3)) == "(8,64):(64,1)"
    for view in (memory[:, 8:16].swizzle(1, 0, 2), memory.T.swizzle(1, 0, 2), memory[4:].swizzle(1, 0, 2)):
        with pytest.raises(ValueError, match="is not a layout"):
            to_cute(view)


A = allocate((4, 6), name="A")


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: CuteLayout((4, 0)), ValueError, r"extent 0 in shape \(4,0\) must be >= 1"),
        (lambda: CuteLayout((4, 8), (1,)), ValueError, r"stride \(1\) for shape \(4,8\); give one for each extent"),
        (lambda: CuteLayout((4, (2, 2)), (1, 4)), ValueError, "nested alike"),
        (lambda: CuteLayout((4, 1.5)), TypeError, "shape must be an integer, not 1.5"),
        (lambda: CuteLayout("(4):(1)"), TypeError, "shape must be an integer"),
        (lambda: CuteLayout((4, 8))(-1), ValueError, "coordinate -1 must be >= 0"),
        (lambda: CuteLayout((4, 8))(1, 2, 3), ValueError, r"coordinate \(1,2,3\) for shape \(4,8\)"),
        (lambda: CuteLayout.parse("(4,8)"), ValueError, "character 5: the text ends where ':'"),
        (lambda: CuteLayout.parse("(4,8:(8,1)"), ValueError, "character 4: ':' where ',' or '\\)' is needed"),
        (lambda: CuteLayout.parse("(4,,8):(8,1)"), ValueError, "character 3: ',' where a number"),
        (lambda: CuteLayout.parse("4:1 5"), ValueError, "character 4: '5' after the end"),
        (lambda: CuteLayout.parse("4:1@0"), ValueError, "character 3: '@' cannot be part"),
        (lambda: CuteLayout.parse("(" * 200), ValueError, "more than 100 parentheses"),
        (lambda: CuteLayout.parse("1" * 2000), ValueError, "a number of 2000 digits"),
        (lambda: CuteLayout.parse("(4,8):(8)"), ValueError, "give one for each extent"),
        (lambda: CuteLayout.parse(8), TypeError, "8 is int; give a text such as"),
        (lambda: CuteLayout(8).compose(CuteLayout(2, -1)), ValueError, "stride -1 in 2:-1 must be >= 0"),
        (lambda: CuteLayout(8).compose("2:1"), TypeError, "must be an integer, not '2:1'"),
        (lambda: CuteLayout(8).divide((2, 2)), ValueError, "2 layouts for the 1 modes of 8:1"),
        (lambda: CuteLayout(8).divide(0), ValueError, "extent 0 in shape 0 must be >= 1"),
        (lambda: CuteLayout(8).divide(CuteLayout((2, 2), (1, 3))), ValueError, "stride 3 in .* is not a multiple of 2"),
        (lambda: CuteLayout(8, -1).complement(), ValueError, "stride -1 in 8:-1 must be >= 0"),
        (lambda: CuteLayout(8).complement(0), ValueError, "extent 0 must be >= 1"),
        (lambda: CuteLayout(8, 0).left_inverse(), ValueError, "stride 0 of extent 8 in 8:0 reaches a cell 8 times"),
        (lambda: CuteLayout.parse("Sw<3,4,3> o 0 o (8,64):(64,1)"), ValueError, "begins with a swizzle"),
        (lambda: from_cute("Sw<3,4> o 0 o (8,64):(64,1)"), ValueError, "character 0: a swizzle is written as in"),
        (lambda: from_cute("Sw<3,4,3> o 0 o (8,64):(64;1)"), ValueError, "character 26: ';' cannot be part"),
        (lambda: from_cute("Sw<3,0,1> o 0 o 64:1"), ValueError, "flip bits by themselves"),
        (lambda: from_cute("Sw<2,1,2> o 0 o 8:1", A[:, :3]), ValueError, "12 cells, not a multiple of 2"),
        (lambda: from_cute("4:1", [1, 2]), TypeError, "base is a list, not a View"),
        (lambda: from_cute("(4,8):(8,1)", A), ValueError, r"reaches cell 31 of a base of shape \(4, 6\), which has 24"),
        (lambda: from_cute("4:1", offset="0"), TypeError, "from_cute: offset must be an integer"),
        (lambda: from_cute(4), TypeError, "4 is int; give a text"),
        (lambda: to_cute(np.zeros(3)), TypeError, "ndarray, not a View"),
        (lambda: to_cute(A[:0]), ValueError, "reads no cell"),
        (lambda: to_cute(pad(A, 1)), ValueError, "is not a layout"),
        (lambda: to_cute(A.take([0, 1, 3])), ValueError, "is not a layout"),
        (lambda: to_cute(concatenate([A, allocate((4, 6))])), ValueError, "is not a layout"),
    ],
)
def test_wrong_input(call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        call()


def test_mode_by_mode() -> None:
    a = CuteLayout((9, (4, 8)), (59, (13, 1)))
    assert str(a.compose((3, None))) == "(3,(4,8)):(59,(13,1))"
    assert str(a.divide((CuteLayout(3, 3), (2,)))) == "((3,3),((2,2),8)):((177,59),((13,26),1))"
    assert a.divide(None) == a and a.divide(()) == a
    assert str(a.multiply((CuteLayout(2), None))) == "((9,2),(4,8)):((59,1),(13,1))"
    assert prod(mode.size for mode in a.modes) == a.size == 288
