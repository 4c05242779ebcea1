"""Pictures of real arrays and the table of origins are read back and must be what NumPy and enumeration say."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import Stripe, View, allocate, concatenate, origins_table, pad, show_views, tile
from tapestry_sets.alias import OriginsTable
from tests.drawings import assert_legible, read
from tests.oracles import in_nesting, memory_for, read_view
from tests.strategies import subscripts, view_pairs

# ------------------------------------------------------------------------------------------------------ real arrays


def addresses(x: np.ndarray) -> list[int]:
    """The address of each byte of an array, by its strides."""
    base = x.__array_interface__["data"][0]
    elements = (sum(i * s for i, s in zip(at, x.strides, strict=True)) for at in np.ndindex(x.shape))
    return [base + offset + byte for offset in elements for byte in range(x.itemsize)]


@st.composite
def array_pairs(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Two views of one buffer, of different dtypes."""
    buffer = np.zeros(96, np.uint8)
    found = []
    for dtype, shape in ((np.float32, (4, 6)), (np.int16, (6, 8))):
        x = buffer.view(dtype).reshape(shape)
        found.append(x[tuple(k for k in draw(subscripts(shape)) if not isinstance(k, int))])
    return found[0], found[1]


@given(array_pairs(), st.integers(8, 64))
def test_arrays_are_drawn_byte_by_byte(pair: tuple[np.ndarray, np.ndarray], wrap: int) -> None:
    one, two = pair
    a, b = set(addresses(one)), set(addresses(two))
    picture = show_views(one, two, names=["one", "two"], mode="rows", wrap=wrap, indices=False)
    drawing = read(picture.svg)
    assert_legible(drawing)
    if not (a and b):
        assert "reads no memory" in picture.text
        return
    heights = sorted({s.y for s in drawing.squares})
    rows: list[set[int]] = [set(), set(), set()]
    for square in drawing.squares:
        if square.at is not None:
            rows[heights.index(square.y) % 3].add(int(square.at))
    assert rows == [a, b, a & b]
    assert len(drawing.squares) == 3 * (max(a | b) - min(a | b) + 1)
    assert f"+0 is memory[{min(a | b)}] ({min(a | b):#x})" in picture.text
    counts = re.findall(r"^[12X]  \w+: (\d+) bytes$", picture.text, re.M)
    assert counts == [str(len(a)), str(len(b)), str(len(a & b))]


@given(array_pairs())
def test_the_elements_of_arrays_that_are_named_share_the_byte(pair: tuple[np.ndarray, np.ndarray]) -> None:
    one, two = pair
    text = show_views(one, two, names=["one", "two"]).text
    words = re.search(r"^one(.*) \(its byte (\d)\) and two(.*) \(its byte (\d)\) both read memory\[(\d+)\]", text, re.M)
    assert (words is not None) == np.shares_memory(one, two)
    if words is not None:
        for x, at, byte in ((one, words[1], words[2]), (two, words[3], words[4])):
            index = tuple(int(i) for i in re.findall(r"\d+", at))
            offset = sum(i * s for i, s in zip(index, x.strides, strict=True)) + int(byte)
            assert x.__array_interface__["data"][0] + offset == int(words[5])


def test_far_apart_arrays_are_drawn_in_windows() -> None:
    class At:
        """An array interface without memory behind it."""

        def __init__(self, address: int) -> None:
            self.__array_interface__ = {"version": 3, "data": (address, False), "shape": (3,), "typestr": "<u2"}

    picture = show_views(At(2**40), At(2**63 + 8), names=["low", "high"])
    drawing = read(picture.svg)
    assert_legible(drawing)
    marked = {int(s.at) for s in drawing.squares if s.at is not None}
    assert marked == {*range(2**40, 2**40 + 6), *range(2**63 + 8, 2**63 + 14)}
    assert "+0 is memory[1099511627776] (0x10000000000)" in picture.text
    assert f"[+{2**63 - 2**40 - 16}, +{2**63 - 2**40 + 14}): where a view begins" in picture.text


# ------------------------------------------------------------------------------------------------- the table of origins


def axis_of(text: str, n: int) -> set[int]:
    """The integers of an axis of extent n that a table's words stand for."""
    if re.fullmatch(r"\d+", text):
        return {int(text)}
    parts = re.fullmatch(r"([\d:]*)((?:\(\d+,\d+,-?\d+\))*)", text)
    assert parts is not None, text
    bounds = [int(x) if x else None for x in parts[1].split(":")] if parts[1] else []
    stripes = [Stripe(*map(int, s.split(","))) for s in re.findall(r"\(([^)]*)\)", parts[2])]
    low = (bounds[0] or 0) if bounds else 0
    return {z for z in range(n)[slice(*bounds) if bounds else slice(None)] if in_nesting(stripes, z - low)}


def points_of(regions: str, shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """All points of the regions that a table lists."""
    found: list[tuple[int, ...]] = []
    for line in regions.split("\n"):
        axes = line.removeprefix("[").removesuffix("]")
        found += product(*(axis_of(a, n) for a, n in zip(axes.split(", ") if axes else [], shape, strict=True)))
    return found


def rows_of(table: OriginsTable) -> list[dict[str, str]]:
    return [row for rows in table.views for row in rows]


@pytest.fixture(autouse=True)
def long_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """All regions are listed, so that they can be read back."""
    monkeypatch.setattr("tapestry_sets.alias.tuning.SHOWN_REGIONS", 10_000)


@given(view_pairs(cells=120))
def test_a_table_of_origins_reads_back(pair: tuple[View, np.ndarray, View, np.ndarray, View]) -> None:
    views, home = (pair[0], pair[2]), pair[4]
    memory = memory_for([home, *views])
    read = [[int(v) - 1 for v in read_view(view, memory).ravel() if 1 <= v <= home.size] for view in views]
    every = [read_view(view, memory).ravel() for view in views]
    for k, rows in enumerate(origins_table(*views, names=["one", "two"]).views):
        cells, (row, *more) = set(read[k]), rows
        assert not more and row["view"] == ("one", "two")[k] and row["shape"] == str(views[k].shape)
        assert row["self-overlap"] == ("yes" if len(read[k]) > len(cells) else "no")
        gapless = not cells or max(cells) - min(cells) + 1 == len(cells)
        assert row["contiguous"] == ("yes" if gapless else "no")
        other = ("two", "one")[k]
        assert row["aliases"] == (other if cells & set(read[1 - k]) else "-")
        if not cells:
            assert row["reads"] == row["regions"] == row["cells"] == "-"
            continue
        assert row["reads"] == f"A {home.shape}" and row["cells"] == row["nbytes"] == str(len(cells))
        points = points_of(row["regions"], home.shape)
        assert len(points) == len(cells)
        assert {int(np.ravel_multi_index(p, home.shape)) if p else 0 for p in points} == cells
        assert len(every[k]) == views[k].size


def test_a_row_for_each_allocation() -> None:
    A, b = allocate((4, 6), name="A", dtype="float32"), allocate((3,), name="b")
    table = origins_table(concatenate([b, A[1, ::2]]), b, A.T)
    rows = rows_of(table)
    assert [row["reads"] for row in rows] == ["b (3,)", "A (4, 6)", "b (3,)", "A (4, 6)"]
    assert [row["regions"] for row in rows] == ["[:]", "[1, ::2]", "[:]", "[:, :]"]
    assert [row["nbytes"] for row in rows] == ["3", "12", "3", "96"]
    assert [row["view"] for row in rows] == ["v0", "v0", "b", "v2"]
    assert [row["aliases"] for row in rows] == ["b, v2", "b, v2", "v0", "v0"]
    assert rows[0]["chain"].split("\n") == ["2 sources", "Concat (6,)"]
    assert [row["reads"] for row in rows_of(origins_table(A, A.clone()))] == ["A (4, 6)", "A (4, 6) #2"]
    assert rows[2]["chain"] == "-" and rows[3]["chain"] == "PermuteDims (6, 4)"


def test_the_table_as_html_says_the_same_as_the_text() -> None:
    A, b = allocate((27,), name="<A>"), allocate((3,), name="b")
    table = origins_table(A.reshape(3, 3, 3)[:2, :2, :2], concatenate([b, A[::9]]), names=["one & two", "two"])
    root = ElementTree.fromstring(table.html)
    html = [["".join(cell.itertext()) for cell in row] for row in root.iter("tr")]
    assert html[0] == list(table.columns)
    lines = table.text.split("\n")
    starts = [m.start() for m in re.finditer(r"-+", lines[1])]
    ends = [m.end() for m in re.finditer(r"-+", lines[1])]
    columns = list(zip(starts, ends, strict=True))
    written = [[line[a:b].strip() for a, b in columns] for line in [lines[0], *lines[2:]]]
    spread: list[list[str]] = []
    for row in html:
        cells = [cell.split("\n") for cell in row]
        spread += [[c[k] if k < len(c) else "" for c in cells] for k in range(max(map(len, cells)))]
    assert written == spread
    assert table._repr_mimebundle_() == {"text/plain": repr(table), "text/html": table.html}
    assert html[1][4] == "[0:14(5,4,0)(2,1,0)]" and html[2][3] == "b (3,)" and html[3][3] == "<A> (27,)"


def test_a_table_of_large_views_and_of_arrays() -> None:
    A = allocate((10**9, 10**9), name="A", dtype="float64")
    rows = rows_of(origins_table(A[::2], tile(A[0], 3), A[:, 5:100:7], A[:0]))
    assert [row["regions"] for row in rows] == ["[::2, :]", "[0, :]", "[:, 5:97:7]", "-"]
    assert rows[0]["nbytes"] == str(5 * 10**17 * 8) and rows[1]["self-overlap"] == "yes"
    assert [row["contiguous"] for row in rows] == ["no", "yes", "no", "yes"]
    x = np.zeros((4, 6), np.float32)
    rows = rows_of(origins_table(x, x[1:, ::-2], x.T[2], names=["x", "y", "z"]))
    base = x.__array_interface__["data"][0]
    assert rows[0]["regions"] == f"{base:#x} + [0:96]" and rows[0]["shape"] == "(4, 6)"
    offset, pattern = re.fullmatch(r"(0x[0-9a-f]+) \+ \[(.*)\]", rows[1]["regions"]).groups()  # type: ignore[union-attr]
    assert {int(offset, 16) + z for z in axis_of(pattern, 96)} == set(addresses(x[1:, ::-2]))
    assert [row["aliases"] for row in rows] == ["y, z", "x", "x"]
    assert rows[0]["reads"] == "memory"


def test_long_chains_and_many_regions_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tapestry_sets.alias.tuning.SHOWN_REGIONS", 2)
    view: View = allocate((64, 64), name="A")
    for _ in range(20):
        view = view[1:].T
    (row,) = rows_of(origins_table(view))
    assert row["chain"].startswith("28 more steps\n") and len(row["chain"].split("\n")) == 13
    (row,) = rows_of(origins_table(allocate((4, 6), name="A").reshape(24)[::7]))
    assert row["regions"] == "[0, 0]\n[1, 1]\nand 2 more"


def test_a_padded_view_and_what_reads_nothing() -> None:
    A = allocate((4,), name="A")
    rows = rows_of(origins_table(pad(A, 1), pad(A[:0], 2)))
    assert rows[0]["cells"] == "4" and rows[0]["self-overlap"] == "no"
    assert rows[1]["reads"] == "-" and rows[1]["aliases"] == "-"


def test_what_has_no_origins_is_refused() -> None:
    A = allocate((4,), name="A")
    bad: Any = Stripe(1, 1)
    with pytest.raises(TypeError, match="Stripe"):
        origins_table(bad)
    with pytest.raises(ValueError, match="at least one view"):
        origins_table()
    with pytest.raises(ValueError, match="sequence of 1 strings"):
        origins_table(A, names=["a", "b"])
