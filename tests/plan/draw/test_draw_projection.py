"""Pictures of projections, read back and compared with what index points read and write one by one."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import dataclass, field
from itertools import product
from math import prod

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tapestry_plan import Axis, Graph, Operand, Operation, Signature, operation, project
from tapestry_plan.draw import show_projection
from tapestry_plan.draw.tuning import PLANES, SHOWN_PARTS
from tapestry_plan.ops import conv, linear
from tapestry_plan.ops.cells.elementwise import relu
from tapestry_plan.ops.products.matrices import matmul
from tapestry_sets import Box
from tests.cutting import Case
from tests.drawings import SVG, assert_legible, read
from tests.operator_cases import CASES

Cell = tuple[int, ...]


@dataclass
class Shown:
    """What a drawing shows of one space: the parts of each cell, the places outside, the boxes of an outline, words."""

    cells: dict[Cell, set[int]] = field(default_factory=dict)
    squares: int = 0
    outside: int = 0
    boxes: list[tuple[str, str]] = field(default_factory=list)
    words: list[str] = field(default_factory=list)


def shown(svg: str, shapes: dict[str, tuple[int, ...]]) -> dict[str, Shown]:
    """The spaces of a drawing by their roles; `shapes` says how long the axes are of which all is meant."""
    found: dict[str, Shown] = {}
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        role = group.get("data-role")
        if role is None:
            continue
        space = found.setdefault(role, Shown())
        for squares in group.iter(f"{SVG}g"):
            for square in squares.findall(f"{SVG}rect"):
                space.squares += 1
                if "data-at" in square.attrib:
                    for cell in cells_at(square.attrib["data-at"], shapes[role]):
                        space.cells.setdefault(cell, set()).update(int(k) for k in squares.attrib["data-in"].split())
        for path in group.iter(f"{SVG}path"):
            space.outside += int(path.get("data-outside", 0))
            if "data-part" in path.attrib:
                space.boxes.append((path.attrib["data-part"], path.attrib["data-box"]))
        space.words += [text.text or "" for text in group.iter(f"{SVG}text")]
    return found


def cells_at(place: str, shape: tuple[int, ...]) -> list[Cell]:
    """The cells that a square stands for: on each axis a number, a slice, or a list."""
    axes = []
    for words, n in zip(place.split(",") if place else [], shape, strict=True):
        every: list[int] = []
        for one in words.split("|"):
            bounds = [int(w) if w else None for w in one.split(":")]
            every += [*range(n)[slice(*bounds)]] if ":" in one else [int(one)]
        axes.append(every)
    return list(product(*axes))


def of_points(op: Operation, boxes: list[Box]) -> dict[str, dict[Cell, set[int]]]:
    """The parts that touch each cell, from the projection of each index point; cells outside have coordinates too."""
    signature, found = op.signature, {}
    roles = [("input", k, operand) for k, operand in enumerate(signature.inputs)]
    roles += [("output", k, operand) for k, operand in enumerate(signature.outputs)]
    for role, k, operand in roles:
        cells: dict[Cell, set[int]] = {}
        for number, box in enumerate(boxes, 1):
            if operand.at_start_of and not signature.starts(box, operand.at_start_of):
                continue
            for point in product(*(range(a, b) for a, b in zip(box.start, box.stop, strict=True))):
                for projection in operand.projections:
                    block = projection(point)
                    for cell in product(*(range(a, b) for a, b in zip(block.start, block.stop, strict=True))):
                        cells.setdefault(cell, set()).add(number)
        found[f"{role} {k}"] = cells
    return found


def shapes_of(op: Operation) -> dict[str, tuple[int, ...]]:
    shapes = {"index": op.signature.index_shape}
    shapes |= {f"input {k}": op.graph.source(name).shape for k, name in enumerate(op.node.inputs)}
    return shapes | {f"output {k}": op.graph.stored[name].shape for k, name in enumerate(op.node.outputs)}


def assert_shows(op: Operation, parts: dict[str, int]) -> None:
    """Drawing and text say of each operand what its index points do, each cell of it and none more."""
    picture, shapes = show_projection(op, parts), shapes_of(op)
    spaces, boxes = shown(picture.svg, shapes), [part.index for part in op.shard(parts)]
    blocks = re.split(r"\n\n(?=(?:input|output) \d+: )", picture.text)
    for role, wanted in of_points(op, boxes).items():
        shape = shapes[role]
        inside = {c: held for c, held in wanted.items() if all(0 <= x < n for x, n in zip(c, shape, strict=True))}
        space = spaces[role]
        counts = [sum(number in held for held in inside.values()) for number in range(1, len(boxes) + 1)]
        shared = sum(len(held) > 1 for held in inside.values())
        (text,) = (block for block in blocks if block.startswith(f"{role}: "))
        for words in ("\n".join(space.words), text):
            for count in counts:
                assert f": {count:,} of {prod(shape):,} cells" in words
            if len(boxes) > 1:
                assert f"in two or more: {shared:,} of {prod(shape):,} cells" in words
            outside = len(wanted) - len(inside)
            assert (f"{outside:,} places outside are read" in words) == (outside > 0)
        if not space.boxes and not any("different planes are drawn" in words for words in space.words):
            assert space.cells == inside


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[Operation, dict[str, int]]:
    rank = draw(st.integers(1, 2))
    group = draw(st.sampled_from([1, 1, 2, 3]))
    kernel = draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    attrs = {
        "strides": tuple(draw(st.integers(1, 3)) for _ in range(rank)),
        "dilations": tuple(draw(st.integers(1, 3)) for _ in range(rank)),
        "pads": tuple(draw(st.integers(0, 2)) for _ in range(2 * rank)),
        "groups": group,
    }
    spatial = [(k - 1) * d + draw(st.integers(1, 5)) for k, d in zip(kernel, attrs["dilations"], strict=True)]
    g = Graph()
    x = g.input("x", (draw(st.integers(1, 2)), group * draw(st.integers(1, 2)), *spatial))
    w = g.input("w", (group * draw(st.integers(1, 2)), x.shape[1] // group, *kernel))
    bias = [g.input("b", (w.shape[0],))] if draw(st.booleans()) else []
    conv(x, w, *bias, **attrs, name="c")
    op = operation(g, "c")
    axes = draw(st.lists(st.sampled_from(op.signature.axes), max_size=2, unique=True))
    return op, {axis.name: draw(st.integers(1, min(3, axis.size))) for axis in axes}


@pytest.mark.heavy(2)
@given(convolutions())
def test_convolutions_are_drawn_as_their_points_say(chosen: tuple[Operation, dict[str, int]]) -> None:
    op, parts = chosen
    assume(op.signature.index.size <= 1500)
    assert_shows(op, parts)


@pytest.mark.heavy(2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_operator_is_drawn_as_its_points_say(case: Case) -> None:
    g = Graph()
    inputs = [g.input(f"x{k}", a.shape, a.dtype.name) for k, a in enumerate(case.arrays())]
    g.op(case.op, *inputs, name="op", **case.attrs)
    op = operation(g, "op")
    if op.signature.index.size > 1500:
        pytest.skip("its points are too many to list")
    for axis in [axis.name for axis in op.signature.axes if axis.size > 1][:2]:
        assert_shows(op, {axis: 2})
    assert_legible(read(show_projection(op).svg))


# -- the text, exactly ---------------------------------------------------------------------------------------------


def fc1() -> Operation:
    g = Graph()
    linear(g.input("x", (4, 3)), g.input("w", (3, 2)), g.input("b", (2,)), name="fc1")
    return operation(g, "fc1")


def test_linear_by_out_is_written_exactly() -> None:
    assert (
        show_projection(fc1(), {"out": 2}).text
        == """fc1: linear
index space: m 4 (batch), n 2 (out), k 3 (in, reduction); 2 parts
axis n down, axis k across, [:, ·, ·]
  0 2
0 111
1 222
1  [:, 0, :]: 12 of 24 cells
2  [:, 1, :]: 12 of 24 cells
X  in two or more: 0 of 24 cells

input 0: x float32 (4, 3) at [m, k]
  0 2
0 XXX
1 XXX
2 XXX
3 XXX
X  1, 2: [:, :]: 12 of 12 cells
X  in two or more: 12 of 12 cells

input 1: w float32 (3, 2) at [k, n]
  0
0 12
1 12
2 12
1  [:, 0]: 3 of 6 cells
2  [:, 1]: 3 of 6 cells
X  in two or more: 0 of 6 cells

input 2: b float32 (2,) at [n], at the start of k only
0
12
1  [0]: 1 of 2 cells
2  [1]: 1 of 2 cells
X  in two or more: 0 of 2 cells

output 0: fc1 float32 (4, 2) at [m, n]
  0
0 12
1 12
2 12
3 12
1  [:, 0]: 4 of 8 cells
2  [:, 1]: 4 of 8 cells
X  in two or more: 0 of 8 cells"""
    )


def test_partial_results_are_said() -> None:
    words = "partial results, to be merged over k"
    assert show_projection(fc1(), {"in": 3, "out": 2}).text.endswith(words)
    assert words in [w.words for w in read(show_projection(fc1(), {"in": 3}).svg).words]
    assert show_projection(fc1(), [Box((0, 0, 0), (4, 2, 1))]).text.endswith(words)
    assert "partial" not in show_projection(fc1(), {"batch": 4, "out": 2}).text


def test_a_grouped_convolution_has_a_plane_for_each_group() -> None:
    g = Graph()
    conv(g.input("x", (1, 4, 5)), g.input("w", (4, 2, 3)), groups=2, strides=2, pads=1, name="c")
    text = show_projection(operation(g, "c"), {"c": 2}).text
    assert (
        """input 0: x float32 (1, 4, 5) at [n, ci + 2·c//2, 2·w + kw - 1]
axis 1 down, axis 2 across, [0, ·, ·]
   0    5
0  11111
1  11111
2  22222
3  22222
1  [0, 0:2, :]: 10 of 20 cells
2  [0, 2:4, :]: 10 of 20 cells
X  in two or more: 0 of 20 cells
8 places outside are read as 0"""
        in text
    )


# -- beyond what can be drawn by the cell --------------------------------------------------------------------------


@pytest.mark.heavy(2)
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "pad", "height", "parts"),
    [(3, 1, 1, 1, 224, 4), (7, 2, 1, 3, 224, 4), (3, 1, 8, 8, 4096, 8), (3, 2, 1, 1, 10**6, 512)],
)
def test_halos_of_large_convolutions_are_counted(
    kernel: int, stride: int, dilation: int, pad: int, height: int, parts: int
) -> None:
    g = Graph()
    x, w = g.input("x", (32, 64, height, 224)), g.input("w", (64, 64, kernel, kernel))
    conv(x, w, strides=stride, dilations=dilation, pads=pad, name="c")
    op = operation(g, "c")
    picture, shapes = show_projection(op, {"h": parts}), shapes_of(op)
    space = shown(picture.svg, shapes)["input 0"]
    reads: Counter[int] = Counter()
    for part in op.shard({"h": parts}):
        lo, n = part.index.start[2], part.index.shape[2]
        rows = {s * stride + k * dilation - pad for s in range(lo, lo + n) for k in range(kernel)}
        reads.update(row for row in rows if 0 <= row < height)
    columns = {s * stride + k * dilation - pad for s in range(op.signature.axes[3].size) for k in range(kernel)}
    across = 32 * 64 * len(columns & set(range(224)))
    halo = sum(times > 1 for times in reads.values()) * across
    assert f"in two or more: {halo:,} of {32 * 64 * height * 224:,} cells" in space.words
    drawn = {str(k + 1) for k in range(min(parts, SHOWN_PARTS))}
    assert space.squares == 0 and {part for part, _ in space.boxes} == drawn | {"shared"}
    hidden = f"{parts - SHOWN_PARTS:,} more parts are not drawn; they are counted"
    assert (hidden in space.words) == (hidden in picture.text) == (parts > SHOWN_PARTS)
    assert_legible(read(picture.svg))


def test_outlines_say_what_they_show() -> None:
    g = Graph()
    linear(g.input("x", (1000, 640)), g.input("w", (640, 500)), name="big")
    picture = show_projection(operation(g, "big"), {"batch": 2, "in": 2})
    spaces = shown(picture.svg, shapes_of(operation(g, "big")))
    wanted = [
        ("1", "[0:500, 0:320]"),
        ("2", "[0:500, 320:640]"),
        ("3", "[500:1000, 0:320]"),
        ("4", "[500:1000, 320:640]"),
    ]
    assert spaces["input 0"].boxes == wanted
    assert spaces["output 0"].boxes[-1] == ("shared", "[:, :]") and "too large to draw by the cell" in picture.text
    assert {"0", "320", "640", "500", "1000"} <= set(spaces["input 0"].words)


def test_planes_that_are_left_out_are_said() -> None:
    g = Graph()
    relu(g.input("x", (13, 13, 13)), name="r")
    for count in (11, 12):
        diagonal = [Box((k, k, k), (1, 1, 1)) for k in range(count)]
        text = show_projection(operation(g, "r"), diagonal).text.split("\n\ninput 0")[0]
        assert text.count("axis i1 down, axis i2 across") == PLANES == 12
        assert (f"{PLANES} of 13 different planes are drawn" in text) == (count == 12)
        assert f"1  [0, 0, 0]: 1 of {13**3:,} cells" in text


# -- signatures without a graph ------------------------------------------------------------------------------------

AXES = (Axis("h", 4), Axis("kh", 3, "reduction"))
ROWS = Signature(
    AXES, (Operand(project(AXES, [{"h": 2, "kh": 1, "": -1}]), pad=0.0),), (Operand(project(AXES, [{"h": 1}])),)
)


def test_what_a_signature_reads_outside_is_told_by_the_shapes_that_are_given() -> None:
    text = show_projection(ROWS, {"h": 2}, shapes=[(7,)], title="rows").text
    assert "input 0 (7,) at [2·h + kh - 1]\n 0    5\n 111X222\n1  [0:4]" in text
    assert "1  [0:4]: 4 of 7 cells\n2  [3:7]: 4 of 7 cells\nX  in two or more: 1 of 7 cells\n2 places outside" in text
    text = show_projection(ROWS, {"h": 2}).text
    assert "input 0, its shape not given, all that is read, from (-1,) on, (9,) at [2·h + kh - 1]" in text
    assert "1  [-1:4]: 5 of 9 cells\n2  [3:8]: 5 of 9 cells\nX  in two or more: 1 of 9 cells" in text
    with pytest.raises(ValueError, match=r"input 0 has rank 1, the shape given is \(7, 7\)"):
        show_projection(ROWS, shapes=[(7, 7)])
    with pytest.raises(ValueError, match="2 shapes for 1 inputs"):
        show_projection(ROWS, shapes=[(7,), (7,)])


def test_several_projections_are_one_operand() -> None:
    i = AXES[:1]
    both = Operand(project(i, [{"h": 1}]), also=(project(i, [{"h": -1, "": 7}]),))
    text = show_projection(Signature(i, (both,), (Operand(project(i, [{"h": 1}])),)), {"h": 2}).text
    assert "input 0 (8,) at [h] and [-h + 7]" in text and "1  [0:2|6:8]: 4 of 8 cells" in text


def test_policies_are_said() -> None:
    i = AXES[:1]
    ring = Operand(project(i, [{"h": 1, "": -1}], [3]), outside="wrap", extents=(4,))
    text = show_projection(Signature(i, (ring,), (Operand(project(i, [{"h": 1}])),)), {"h": 2}).text
    assert "at [h - 1 : +3]" in text and "2 places outside are read by the policy 'wrap'" in text


# -- wrong input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "error", "message"),
    [
        ({"q": 2}, ValueError, "there is no index axis 'q'; known axes"),
        ({"m": 0}, ValueError, "0 parts of axis 'm', which has 4 index points; give a number from 1 to 4"),
        ({"m": 5}, ValueError, "5 parts of axis 'm'"),
        ({"m": 2.0}, TypeError, r"parts\['m'\] must be an integer, not 2.0"),
        ([], ValueError, "there are no parts"),
        ([Box((0, 0, 0), (5, 1, 1))], ValueError, "part 0 is Box.*outside the index space"),
        ([Box((0, 0), (1, 1))], ValueError, "part 0 is Box.*outside the index space"),
        (Box((0, 0, 0), (0, 1, 1)), ValueError, "part 0 is Box.*has no index points"),
        (["m"], TypeError, r"parts\[0\] must be a Box, not 'm'"),
    ],
)
def test_wrong_parts_are_named(parts: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        show_projection(fc1(), parts)  # type: ignore[arg-type]


def test_wrong_operators_are_named() -> None:
    with pytest.raises(TypeError, match="op must be an Operation or a Signature, not 'fc1'"):
        show_projection("fc1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="shapes are for signatures"):
        show_projection(fc1(), shapes=[(1,)])


HOSTILE = ["<script>&amp;\"'", "a\nb\x00\u202e", "n" * 5000, "\ud800", "]]>", "名前", ""]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_escaped(name: str) -> None:
    g = Graph()
    matmul(g.input(name or "x", (3, 2)), g.input("w", (2, 2)), name=name + "op")
    picture = show_projection(operation(g, name + "op"), {"m": 2}, title=name)
    drawing = read(picture.svg)
    assert_legible(drawing)
    assert "<script" not in picture.svg and max(map(len, picture.text.split("\n"))) < 200
    assert shown(picture.svg, shapes_of(operation(g, name + "op")))["input 0"].cells
