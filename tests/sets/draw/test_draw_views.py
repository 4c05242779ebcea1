"""Pictures of views are read back and must be the cells that each view reads, listed one by one."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from math import gcd, lcm, prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import (
    Picture,
    Stripe,
    TooHard,
    View,
    allocate,
    concatenate,
    draw,
    origins_table,
    overlap,
    pad,
    show_views,
)
from tapestry_sets.draw import show, tuning
from tapestry_sets.draw.views import _number_if_told
from tapestry_sets.views import Derived
from tapestry_sets.views.view import _learn
from tests.drawings import SVG, Drawing, assert_legible, holders, name_of, read
from tests.oracles import memory_for, read_view
from tests.strategies import view_pairs

Pair = tuple[View, np.ndarray, View, np.ndarray, View]

# ------------------------------------------------------------------------------------------------ what is true of views


def numbers(view: View, home: View) -> set[int]:
    """The row-major numbers of the cells of an allocation that a view reads, one by one."""
    memory = memory_for([home, view])  # the home's cells are 1, 2, 3, and so on; a constant is 0
    return {int(value) - 1 for value in read_view(view, memory).ravel() if 1 <= value <= home.size}


def rows_of(drawing: Drawing, rows: int) -> list[dict[int, frozenset[int]]]:
    """What a drawing in rows shows: for each row the numbers of marked cells, with the sets that mark them.

    The drawings of views' own shapes below are left out: their places are indices, not cells.
    """
    squares = sorted(drawing.squares, key=lambda s: s.y)
    heights = sorted({s.y for s in squares})
    found: list[dict[int, frozenset[int]]] = [{} for _ in range(rows)]
    for square in squares:
        if square.at is not None:
            found[heights.index(square.y) % rows][int(square.at)] = square.held
    return found


def legend(picture: Picture) -> list[str]:
    return [line for line in picture.text.split("\n") if re.match(r"[1-9a-wX]  .*: ", line)]


def in_text(picture: Picture, heads: list[str]) -> list[str]:
    """The rows of a picture in rows, put together from its blocks."""
    found = ["" for _ in heads]
    for line in picture.text.split("\n"):
        for k, head in enumerate(heads):
            if re.match(rf"{re.escape(head)} +[…1-9X.]+$", line):
                found[k] += line.split()[-1]
    return found


# -------------------------------------------------------------------------------------------------- small allocations


@pytest.mark.heavy(2)
@given(view_pairs(cells=100), st.integers(1, 70))
def test_rows_read_back(pair: Pair, wrap: int) -> None:
    one, _, two, _, home = pair
    a, b = numbers(one, home), numbers(two, home)
    picture = show_views(one, two, names=["one", "two"], mode="rows", wrap=wrap, indices=False)
    drawing = read(picture.svg)
    assert_legible(drawing)
    if not (a and b):
        assert picture.text.count("reads no memory") == (not a) + (not b)
        return
    rows = rows_of(drawing, 3)
    assert rows[0] == dict.fromkeys(a, frozenset({1})) and rows[1] == dict.fromkeys(b, frozenset({2}))
    assert rows[2] == dict.fromkeys(a & b, frozenset({1, 2}))
    assert len(drawing.squares) == 3 * home.size
    line = in_text(picture, ["one", "two", "shared"])
    assert line[0] == "".join(".1"[z in a] for z in range(home.size))
    assert line[1] == "".join(".2"[z in b] for z in range(home.size))
    assert line[2] == "".join(".X"[z in a & b] for z in range(home.size))
    each = {"1  one": len(a), "2  two": len(b), "X  shared": len(a & b)}
    counts = [f"{what}: {count} of {home.size} cells" for what, count in each.items()]
    assert legend(picture) == counts
    assert [w.words for w in drawing.words if " cells" in w.words] == [line[3:] for line in counts]


@given(view_pairs())
def test_the_grid_reads_back(pair: Pair) -> None:
    one, _, two, _, home = pair
    a, b = numbers(one, home), numbers(two, home)
    picture = show_views(one, two, names=["one", "two"], mode="grid", indices=False)
    drawing = read(picture.svg)
    assert_legible(drawing)
    if a and b:
        at = [",".join(map(str, np.unravel_index(z, home.shape or (1,)))) for z in range(home.size)]
        held = {at[z]: frozenset([1] * (z in a) + [2] * (z in b)) for z in a | b}
        assert holders(drawing) == held
        assert len(drawing.squares) == home.size


@given(view_pairs(cells=60))
def test_the_indices_named_read_the_cell_named(pair: Pair) -> None:
    one, first, two, second, home = pair
    shared = numbers(one, home) & numbers(two, home)
    picture = show_views(one, two, names=["one", "two"], mode="rows")
    drawing = read(picture.svg)
    assert_legible(drawing)
    words = re.search(r"^one(.*) and two(.*) both read A(.*)$", picture.text, re.M)
    assert (words is not None) == bool(shared)
    if words is None:
        return
    i, j, cell = (tuple(int(x) for x in re.findall(r"\d+", part)) for part in words.groups())
    number = int(np.ravel_multi_index(cell, home.shape)) if cell else 0
    assert number == min(shared)
    assert first[i] == second[j] == number + 1
    for name, at in (("one", i), ("two", j)):
        if len(at) <= 3:
            assert name_of(at) in box_of(picture.svg, name)[1]


@given(st.lists(st.sampled_from([(5,), (2, 3), (2, 2, 2), (2, 1, 2, 2)]), min_size=2, max_size=4), st.data())
def test_several_allocations_stand_below_each_other(shapes: list[tuple[int, ...]], data: st.DataObject) -> None:
    homes = [allocate(shape, name=f"H{k}") for k, shape in enumerate(shapes)]
    steps = st.lists(st.integers(1, 4), min_size=len(homes), max_size=len(homes))
    one, two = ([home.ravel()[::step] for home, step in zip(homes, data.draw(steps), strict=True)] for _ in range(2))
    views = concatenate(one[1:]), concatenate(two[:-1])
    picture = show_views(*views, names=["one", "two"], mode="grid", indices=False)
    assert_legible(read(picture.svg))
    expected = []
    for home in [*homes[1:], homes[0]]:
        read_by = [numbers(view, home) for view in views]
        each = zip(("1  one", "2  two"), read_by, strict=True)
        expected += [f"{name}: {len(cells)} of {home.size} cells" for name, cells in each if cells]
        if all(read_by):
            expected.append(f"X  shared: {len(read_by[0] & read_by[1])} of {home.size} cells")
    assert legend(picture) == expected
    assert [line for line in picture.text.split("\n") if line.startswith("H")] == [
        f"{home.name} {home.shape}" for home in [*homes[1:], homes[0]]
    ]


def test_the_figures_of_the_document_on_nested_striding() -> None:
    A = allocate((27,), name="A")
    B, C = A.reshape(3, 3, 3)[:2, :2, :2], A[2::5]
    picture = show_views(A, B, C, names=["A", "B", "C"], title="Layouts")
    assert in_text(picture, ["A", "B", "C", "shared"]) == [
        "1" * 27,
        "22.22....22.22.............",
        "..3....3....3....3....3....",
        "XXXXX..X.XX.XX...X....X....",
    ]
    assert "A[12], B[1, 1, 0] and C[2] all read A[12]" in picture.text
    assert picture.text.startswith("Layouts\nA (27,)\n")
    A = allocate((24,), name="A")
    on_a_grid = show_views(A.reshape(4, 6)[:, 3:6], A[::7], names=["B", "C"], mode="grid", wrap=6, indices=False)
    assert on_a_grid.text.split("\n")[1:] == [
        "   +0   +5",
        " 0 2..111",
        " 6 .2.111",
        "12 ..2111",
        "18 ...X11",
        "1  B: 12 of 24 cells",
        "2  C: 4 of 24 cells",
        "X  shared: 1 of 24 cells",
        "B[3, 0] and C[3] both read A[21]",
    ]


def test_counts_are_in_bytes_too_where_a_cell_has_several() -> None:
    A = allocate((10,), name="A", dtype="float64")
    assert legend(show_views(A[:4], A[3:])) == [
        "1  A[:4]: 4 of 10 cells, 32 bytes",
        "2  A[3:]: 7 of 10 cells, 56 bytes",
        "X  shared: 1 of 10 cells, 8 bytes",
    ]


def test_names_stand_in_brief_before_rows_and_indices() -> None:
    A = allocate((10,), name="A")
    text = show_views(A[:4], A[3:], names=["B = A[:4]", "the rest"], indices=False).text
    assert in_text(show_views(A[:4], A[3:], names=["B = A[:4]", "the rest"]), ["B", "the rest"]) == [
        "1111......",
        "...2222222",
    ]
    assert "1  B = A[:4]: 4 of 10 cells" in text
    assert "B[3] and (the rest)[0] both read A[3]" in text
    assert "A[0] and A[::3][0] both" in show_views(A, A[::3], names=["A", "A[::3]"]).text
    assert "(a + b)[0]" in show_views(A, A[::3], names=["A", "a + b"]).text


def test_what_reads_no_memory_is_said() -> None:
    A = allocate((4,), name="A")
    nothing = pad(A[:0], 2)
    text = show_views(A, nothing, names=["A", "padding"]).text
    assert text.split("\n")[-1] == "padding, of shape (4,), reads no memory"
    assert show_views(nothing, names=["padding"]).text == "padding, of shape (4,), reads no memory"
    assert_legible(read(show_views(nothing).svg))


def test_views_of_rank_zero() -> None:
    A = allocate((), name="A")
    picture = show_views(A, A.expand_dims(0), names=["A", "B"])
    assert "A and B[0] both read A" in picture.text
    assert_legible(read(picture.svg))


# -------------------------------------------------------------------------------------------------- large allocations


@contextmanager
def small_pictures() -> Iterator[None]:
    """Windows so small that small allocations are drawn in part."""
    small: dict[str, object] = {"MAX_LINE": 7, "MAX_CELLS": 9, "MAX_ROW": 5, "BEFORE": 2, "AFTER": 3}
    small |= {"BOX": (1, 2, 3), "INDEX_BOX": (1, 2, 2)}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in small.items():
            patch.setattr(tuning, name, value)
        yield


def check_windows(picture: Picture, a: set[int], b: set[int], shape: tuple[int, ...], in_rows: bool) -> None:
    """What is drawn is true, the counts are those of everything, and a shared cell is in the picture."""
    drawing = read(picture.svg)
    assert_legible(drawing)
    if not (a and b):
        return
    shown: dict[int, frozenset[int]] = {}
    for square in drawing.squares:
        if square.at is not None:
            at = [int(x) for x in square.at.split(",")]
            z = at[0] if in_rows or len(shape) == 1 else int(np.ravel_multi_index(at, shape))
            shown[z] = shown.get(z, frozenset()) | square.held
    for z, held in shown.items():
        assert held == {k for k, cells in ((1, a), (2, b)) if z in cells}
    marks = [sum(k in held for held in shown.values()) for k in (1, 2)] + [sum(len(h) == 2 for h in shown.values())]
    n = prod(shape)
    for line, count, drawn in zip(legend(picture), (len(a), len(b), len(a & b)), marks, strict=True):
        words = f": {count} of {n} cells"
        assert line.endswith(words if count == drawn else f"{words}; {drawn} shown")
    assert bool(marks[2]) == bool(a & b)


@given(view_pairs(cells=100), st.integers(1, 9), st.sampled_from(["rows", "grid"]))
def test_windows_show_the_truth(pair: Pair, wrap: int, mode: str) -> None:
    one, _, two, _, home = pair
    with small_pictures():
        picture = show_views(one, two, names=["one", "two"], mode=mode, wrap=wrap, indices=False)
    in_rows = mode == "rows" or home.rank not in (2, 3)
    check_windows(picture, numbers(one, home), numbers(two, home), home.shape, in_rows)


class Bare:
    """Cells that are held in no closed form, so that they are listed, or asked about one by one."""

    setts = sums = None

    def __init__(self, cells: Any) -> None:
        self.real = cells

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    def a_common_cell(self, other: Any) -> tuple[int, ...] | None:
        """Return a cell in both."""
        return self.real.a_common_cell(getattr(other, "real", other))

    def count_common(self, other: Any) -> int:
        """Return how many cells are in both."""
        return self.real.count_common(getattr(other, "real", other))


@pytest.mark.parametrize("listed", [tuning.MAX_LISTED, 0])
def test_windows_of_views_that_are_held_in_no_closed_form(listed: int) -> None:
    @given(view_pairs(length=2, cells=60), st.sampled_from(["rows", "grid"]))
    def check(pair: Pair, mode: str) -> None:
        one, _, two, _, home = pair
        for view in (one, two):
            if isinstance(view, Derived):  # as if no closed form were known; an allocation always has one
                _learn(view).cells = {a: Bare(cells) for a, cells in view.cells.items()}
        with small_pictures(), pytest.MonkeyPatch.context() as patch:
            patch.setattr(tuning, "MAX_LISTED", listed)
            picture = show_views(one, two, names=["one", "two"], mode=mode, indices=False)
        in_rows = mode == "rows" or home.rank not in (2, 3)
        check_windows(picture, numbers(one, home), numbers(two, home), home.shape, in_rows)

    check()


def slices(size: int) -> st.SearchStrategy[tuple[int, int]]:
    """A first element and a step of a slice."""
    return st.tuples(st.integers(0, size // 2), st.integers(1, 50) | st.integers(1, size // 4))


@given(st.integers(10**12, 10**24), st.data())
def test_pictures_of_what_is_far_too_large(size: int, data: st.DataObject) -> None:
    """Two slices of a line: who reads which cell is a residue, how many are shared the Chinese remainder theorem."""
    (p, a), (q, b) = data.draw(slices(size)), data.draw(slices(size))
    A = allocate((size,), name="A")
    picture = show_views(A[p::a], A[q::b], names=["one", "two"], indices=False)
    drawing = read(picture.svg)
    assert_legible(drawing)
    rows = rows_of(drawing, 3)
    for z in {*rows[0], *rows[1]}:
        reads = {k for k, (first, step) in ((1, (p, a)), (2, (q, b))) if z >= first and (z - first) % step == 0}
        assert {k for k in (1, 2) if z in rows[k - 1]} == reads
        assert (z in rows[2]) == (len(reads) == 2)
    meet = first_common((p, a), (q, b), size)
    shared = 0 if meet is None else -(-(size - meet) // lcm(a, b))
    each = [-(-(size - first) // step) for first, step in ((p, a), (q, b))]
    counts = [int(re.search(r": (\d+) of", line)[1]) for line in legend(picture)]  # type: ignore[index]
    assert counts == [*each, shared]
    if meet is not None:
        assert f"read A[{meet}]" in picture.text
        assert meet in rows[2]


def first_common(one: tuple[int, int], two: tuple[int, int], size: int) -> int | None:
    """The first common element of two progressions below a size."""
    (p, a), (q, b) = one, two
    g = gcd(a, b)
    if (q - p) % g:
        return None
    low = max(p, q)
    z = p + a * ((q - p) // g * pow(a // g, -1, b // g) % (b // g)) if b // g > 1 else p
    z += -(-(low - z) // lcm(a, b)) * lcm(a, b)
    return z if z < size else None


def test_a_window_of_a_large_grid() -> None:
    A = allocate((10**6, 10**6), name="A")
    picture = show_views(A[::2], A[:, 10**5 :: 3], names=["even", "third"])
    drawing = read(picture.svg)
    assert_legible(drawing)
    body = [line for line in picture.text.split("\n") if re.match(r" *\d+ …[12X.]{64}…$", line)]
    assert len(body) == 24
    for row, line in enumerate(body):
        shown = line.strip("…").split("…")[-1].rstrip("…")
        columns = range(99984, 99984 + 64)
        assert shown == "".join(".12X"[(row % 2 == 0) + 2 * (c >= 10**5 and (c - 10**5) % 3 == 0)] for c in columns)
    assert "[0:24, 99984:100048]: around a shared cell" in picture.text
    assert legend(picture)[2] == "X  shared: 150000000000 of 1000000000000 cells; 192 shown"


def test_a_window_of_a_view_that_shatters() -> None:
    """Ever fewer of ever longer rows: too many setts to write out, so that the view is held as filled sets."""
    rows = [(7, 4), (11, 5), (13, 6), (17, 8)]
    A = allocate((7 * 11 * 13 * 17 * 10**9,), name="A")
    view: View = A
    for m, on in rows:
        view = view.reshape(-1, m)[:, :on].reshape(-1)

    def is_read(z: int) -> bool:
        for m, on in rows:
            if z % m >= on:
                return False
            z = z // m * on + z % m
        return True

    picture = show_views(view, A[10**12 + 1 :: 5], names=["one", "two"], indices=False)
    drawing = read(picture.svg)
    assert_legible(drawing)
    windows = [tuple(map(int, ends)) for ends in re.findall(r"^\[(\d+), (\d+)\):", picture.text, re.M)]
    every = [z for lo, hi in windows for z in range(lo, hi)]
    a = {z for z in every if is_read(z)}
    b = {z for z in every if z > 10**12 and z % 5 == 1}
    found = rows_of(drawing, 3)
    assert set(found[0]) == a and set(found[1]) == b and set(found[2]) == a & b
    assert a and b and a & b
    assert legend(picture)[0].startswith(f"1  one: {4 * 5 * 6 * 8 * 10**9} of ")


@pytest.mark.heavy(2)
def test_windows_of_sums_of_steps() -> None:
    """Too many steps that lie within each other for setts: each cell of a window is asked about by itself."""

    class Strided:
        """An array interface without memory behind it."""

        def __init__(self, address: int, counts: tuple[int, ...], strides: tuple[int, ...]) -> None:
            self.__array_interface__ = {
                "version": 3,
                "data": (address, False),
                "shape": counts,
                "strides": strides,
                "typestr": "|u1",
            }

    base, steps = 2**40, ((36674, 61119, 85569), (12223, 12224))
    one, two = Strided(base, (1049,) * 3, steps[0]), Strided(base + 110022, (1049,) * 2, steps[1])
    i, j, k = np.ogrid[:300, :200, :150]
    a = set((steps[0][0] * i + steps[0][1] * j + steps[0][2] * k).ravel().tolist())
    b = {110022 + z for z in (steps[1][0] * np.ogrid[:1049] + steps[1][1] * np.c_[:1049]).ravel().tolist()}
    picture = show_views(one, two, names=["one", "two"], indices=False)
    drawing = read(picture.svg)
    assert_legible(drawing)
    ends = [tuple(map(int, e)) for e in re.findall(r"^\[\+(\d+), \+(\d+)\):", picture.text, re.M)]
    every = {z for lo, hi in ends for z in range(lo, hi)}
    assert ends[0][0] == 0 and max(every) < 85569 * 150
    found = [{z - base for z in row} for row in rows_of(drawing, 3)]
    assert found == [every & a, every & b, every & a & b] and found[2]
    assert "1  one: too many cells to count;" in picture.text and f"2  two: {len(b)} bytes;" in picture.text


def test_disjoint_views_of_a_large_line_are_both_shown() -> None:
    A = allocate((10**12,), name="A")
    picture = show_views(A[10:20], A[-20:-10], names=["head", "tail"], indices=False)
    drawing = read(picture.svg)
    assert_legible(drawing)
    rows = rows_of(drawing, 3)
    assert set(rows[0]) == set(range(10, 20)) and set(rows[1]) == set(range(10**12 - 20, 10**12 - 10)) and not rows[2]
    assert legend(picture)[2] == "X  shared: 0 of 1000000000000 cells"
    assert "…" in picture.text and "read A[" not in picture.text


def test_all_that_is_read_is_shown_if_it_is_close_together() -> None:
    A = allocate((10**15,), name="A")
    picture = show_views(A[10**14 : 10**14 + 10], A[10**14 + 5 : 10**14 + 20 : 2], names=["one", "two"])
    assert "[100000000000000, 100000000000020): all that is read" in picture.text
    lines = in_text(picture, ["one", "two", "shared"])
    assert lines == ["…1111111111..........…", "…....." + "2." * 7 + "2…", "….....X.X.X" + "." * 10 + "…"]


def test_many_views_of_a_large_line_are_counted_in_pairs() -> None:
    A = allocate((10**9,), name="A")
    text = show_views(*(A[k::7] for k in (0, 1, 7, 14, 21, 28)), indices=False).text
    pairs = re.findall(r"^X  in (\w) and (\w): (\d+) of", text, re.M)
    assert len(pairs) == tuning.MAX_PAIRS == 10  # 1, 3, 4, 5, 6 among each other
    for i, j, n in pairs:
        first = max((0, 1, 7, 14, 21, 28)[int(k) - 1] for k in (i, j))
        assert int(n) == -(-(10**9 - first) // 7)


# ---------------------------------------------------------------------------------------------- notebooks and refusals


def test_views_in_notebooks() -> None:
    a = allocate((4, 6), name="A")
    bundle = overlap(a[1], a[:, 2])._repr_mimebundle_()
    assert "0 ..2...\n1 11X111\n2 ..2...\n3 ..2..." in bundle["text/plain"]
    assert "both read A[1, 2]" in bundle["text/plain"]
    assert read(bundle["image/svg+xml"]).words[0].words.startswith("Overlap(")
    large = allocate((10**9,), name="L")[::3]
    bundle = large._repr_mimebundle_()
    assert bundle["text/plain"].startswith(repr(large) + "\nL (1000000000,)\n[0, 64): where a view begins\n")
    assert_legible(read(bundle["image/svg+xml"]))
    empty = allocate((0, 3))
    assert empty._repr_mimebundle_()["text/plain"].startswith(repr(empty))


def box_of(svg: str, name: str) -> tuple[int, set[str]]:
    """How many cells of a view's own box are drawn, and the indices of those that are marked as shared."""
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        if len(group) and group[0].tag == f"{SVG}text" and (group[0].text or "").startswith(f"{name} ("):
            cells = [
                (part.get("data-in", ""), cell) for part in group.iter(f"{SVG}g") for cell in part.findall(f"{SVG}rect")
            ]
            assert {held for held, _ in cells} <= {"", "1 2"}
            return len(cells), {cell.attrib["data-at"] for held, cell in cells if held}
    raise AssertionError(f"no box of {name}")


@given(view_pairs(length=2))
def test_the_boxes_of_two_views_mark_all_indices_that_read_a_shared_cell(case: tuple) -> None:
    one, first, two, second, _ = case
    both = overlap(one, two)
    if not both:
        return
    svg = both._repr_mimebundle_()["image/svg+xml"]
    for name, array, other in (("a", first, second), ("b", second, first)):
        if np.ndim(array) > 3:
            continue
        many, marked = box_of(svg, name)
        expected = {name_of(at) for at, value in np.ndenumerate(array) if value and (np.asarray(other) == value).any()}
        assert marked and marked <= expected
        if many == np.size(array):  # the whole box is drawn
            assert marked == expected


@given(view_pairs(cells=90), st.sampled_from(["rows", "grid"]))
def test_pictures_of_views_for_narrow_pages_show_the_same(pair: Pair, mode: str) -> None:
    one, _, two, _, _ = pair
    picture = show_views(one, two, names=["one", "the other one of two"], mode=mode)
    if picture.narrow:
        wide, narrow = read(picture.svg), read(picture.narrow)
        assert_legible(narrow)
        assert narrow.width <= 400 < wide.width + 48
        assert Counter((s.at, s.held) for s in narrow.squares) == Counter((s.at, s.held) for s in wide.squares)


def test_show_takes_views_too() -> None:
    A = allocate((12,), name="A")
    assert show(A[::2], A[:5], names=["one", "two"]).text == show_views(A[::2], A[:5], names=["one", "two"]).text
    with pytest.raises(ValueError, match="slice the views instead"):
        show(A, stop=3)


def test_views_that_cannot_be_drawn_are_refused() -> None:
    A = allocate((4,), name="A")
    with pytest.raises(ValueError, match="at least one view"):
        show_views()
    with pytest.raises(TypeError, match="argument 0: Stripe is neither a View nor an array"):
        show_views(Stripe(1, 1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="mode must be one of 'auto', 'rows', 'grid', not 'lines'"):
        show_views(A, mode="lines")
    with pytest.raises(ValueError, match="wrap must be at least 1, not 0"):
        show_views(A, wrap=0)
    with pytest.raises(ValueError, match="sequence of 1 strings"):
        show_views(A, names=["one", "two"])
    with pytest.raises(ValueError, match="at least one view"):
        show_views()
    with pytest.raises(ValueError, match="33 views are more than 32"):
        show_views(*([A] * 33))
    with pytest.raises(TypeError, match="Stripe"):
        show_views(Stripe(1, 1))
    assert draw.text(Stripe(1, 1)) == "1."


def test_a_wrong_number_of_names_is_refused_by_the_verb() -> None:
    A = allocate((4,))
    with pytest.raises(ValueError, match=r"^show_views: names must be a sequence of 1 strings, .* not \['a', 'b'\]"):
        show_views(A, names=["a", "b"])
    with pytest.raises(ValueError, match=r"^origins_table: names must be a sequence of 1 strings"):
        origins_table(A, names="a")


def test_a_picture_hides_refusals_and_no_faults() -> None:
    def fail(error: Exception) -> int:
        raise error

    assert _number_if_told(fail, TooHard("no answer")) is None
    with pytest.raises(ValueError, match="a fault"):
        _number_if_told(fail, ValueError("a fault"))
