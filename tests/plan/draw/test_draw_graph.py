"""Pictures of graphs: what each node and edge is, that nothing covers anything else, and what shards touch."""

from __future__ import annotations

import re
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from msgspec import Struct

from tapestry_plan import Graph, concat, load_onnx, operation
from tapestry_plan.draw import Folded, Repeated, fold
from tapestry_plan.draw.layers import LayerNode, layered
from tapestry_plan.ops import conv, linear, relu
from tapestry_plan.ops.products.matrices import matmul
from tapestry_sets import Box
from tapestry_sets.draw import canvas
from tapestry_sets.limits import drop_item
from tests.drawings import SVG, assert_legible, read
from tests.graph_recipes import Recipe, built, recipes
from tests.layered_models import bert, gpt
from tests.machine_pace import slower

Rectangle = tuple[float, float, float, float]


def net() -> Graph:
    g = Graph("net")
    x = g.input("x", (4, 3))
    w = g.constant("w", np.ones((3, 2), np.float32))
    h = relu(linear(x, w, name="fc1"), name="h")
    g.output((h + linear(x, w, name="fc2"))[::2], "y")
    return g


def test_the_text_exactly() -> None:
    assert (
        repr(net().draw())
        == str(net().draw())
        == """graph net
  input    x: float32[4, 3]
  constant w: float32[3, 2]
  op       fc1: [4, 2] = linear(x, w)
  op       h: [4, 2] = relu(fc1)
  op       fc2: [4, 2] = linear(x, w)
  op       add: [4, 2] = add(h, fc2)
  view     slice: [2, 2] = slice(add)
  output   y = slice"""
    )


def test_the_text_of_shards_exactly() -> None:
    text = net().draw({"h": {"i0": 2}}).text
    assert text.startswith(net().draw().text) and text.endswith("""
shards of h (relu)
index space: i0 4, i1 2; 2 parts
axis i0 down, axis i1 across
  0
0 11
1 11
2 22
3 22
1  [0:2, :]: 4 of 8 cells
2  [2:4, :]: 4 of 8 cells
X  in two or more: 0 of 8 cells
input 0: fc1 float32 (4, 2) at [i0, i1]
  0
0 11
1 11
2 22
3 22
1  [0:2, :]: 4 of 8 cells
2  [2:4, :]: 4 of 8 cells
X  in two or more: 0 of 8 cells
output 0: h float32 (4, 2) at [i0, i1]
  0
0 11
1 11
2 22
3 22
1  [0:2, :]: 4 of 8 cells
2  [2:4, :]: 4 of 8 cells
X  in two or more: 0 of 8 cells""")


# -- the drawing, read back ----------------------------------------------------------------------------------------


def nodes_and_edges(svg: str) -> tuple[dict[int, tuple[str, list[str], Rectangle]], Counter[tuple[int, int]]]:
    """Each node with its kind, words and rectangle, and how many arrows go from one to another."""
    found: dict[int, tuple[str, list[str], Rectangle]] = {}
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        if "data-number" not in group.attrib:
            continue
        moved = re.fullmatch(r"translate\((.+),(.+)\)", group.attrib["transform"])
        (body,) = (inner for inner in group.iter(f"{SVG}g") if "data-node" in inner.attrib)
        assert moved is not None
        corner = (float(moved[1]), float(moved[2]))
        xs, ys = extent(body.findall(f"{SVG}path")[0].attrib["d"])
        words = [text.text or "" for text in body.iter(f"{SVG}text")]
        box = (corner[0], corner[1], corner[0] + xs, corner[1] + ys)
        found[int(group.attrib["data-number"])] = (body.attrib["data-node"], words, box)
    edges = re.findall(r'data-edge="(\d+) (\d+)"', svg)
    return found, Counter((int(a), int(b)) for a, b in edges)


def extent(d: str) -> tuple[float, float]:
    """Width and height of a path of relative steps that begins on the top edge."""
    x = y = right = bottom = 0.0
    for verb, numbers in re.findall(r"([MhvlaZz])([^MhvlaZz]*)", d):
        values = [float(n) for n in numbers.split()]
        steps = {"M": values, "h": [*values, 0], "v": [0, *values], "l": values, "a": values[-2:]}.get(verb, [0, 0])
        x, y = x + steps[0], y + steps[1]
        right, bottom = max(right, x), max(bottom, y)
    return right, bottom


def wanted_edges(g: Graph) -> Counter[tuple[str, str]]:
    """Every (source, target) of a graph, each once."""
    made = {name: f"tensor {name}" for name in g.stored} | {name: f"view {name}" for name in g.selections}
    edges = {(made[name], f"view {view.name}") for view in g.selections.values() for name in view.inputs}
    edges |= {(made[name], f"op {node.name}") for node in g.nodes.values() for name in node.inputs}
    edges |= {(f"op {node.name}", made[name]) for node in g.nodes.values() for name in node.outputs}
    return Counter(edges)


def key_of(g: Graph, kind: str, words: list[str]) -> str:
    if kind == "view":
        return f"view {words[1].split(' [')[0]}"
    if kind == "op":
        return f"op {words[1] if len(words) > 1 and words[1] in g.nodes else words[0]}"
    return f"tensor {words[0]}"


@given(recipes(10))
@example(([], []))
@example(([(1, 0, 1), (1, 2, 0), (1, 3, 0), (1, 4, 0), (1, 5, 0)], [6]))
def test_every_node_and_edge_is_drawn_once_and_nothing_covers_another(recipe: Recipe) -> None:
    g = built(recipe)
    for direction in ("right", "down"):
        svg = g.draw(direction=direction).svg
        nodes, edges = nodes_and_edges(svg)
        keys = {number: key_of(g, kind, words) for number, (kind, words, _) in nodes.items()}
        assert Counter({(keys[a], keys[b]): n for (a, b), n in edges.items()}) == wanted_edges(g)
        kinds = Counter(kind for kind, _, _ in nodes.values())
        assert kinds == Counter(t.kind for t in g.stored.values()) + Counter(op=len(g.nodes), view=len(g.selections))
        boxes = [box for _, _, box in nodes.values()]
        for k, (left, top, right, bottom) in enumerate(boxes):
            for other in boxes[k + 1 :]:
                assert right < other[0] or other[2] < left or bottom < other[1] or other[3] < top
        forward = 1 if direction == "down" else 0
        assert all(nodes[a][2][forward + 2] < nodes[b][2][forward] for a, b in edges)
        assert_legible(read(svg))


def test_nodes_say_what_they_are() -> None:
    g = net()
    nodes, _ = nodes_and_edges(g.draw().svg)
    words = {key_of(g, kind, words): words for kind, words, _ in nodes.values()}
    assert words["tensor x"] == ["x", "float32 [4, 3]", "input"]
    assert words["tensor fc1"] == ["fc1", "float32 [4, 2]"]
    assert words["op fc1"] == ["linear", "fc1", "parallel m 4, n 2", "reduction k 3"]
    assert words["op add"] == ["add", "parallel i0 4, i1 2"]
    assert words["view slice"] == ["slice", "slice [2, 2]", "output y"]


def test_shards_are_drawn_in_the_tensors_and_through_selections() -> None:
    g = Graph()
    x = g.input("x", (1, 1, 8, 8))
    both = concat([x[:, :, ::2, ::2], g.input("z", (1, 1, 2, 4))], 2)
    g.output(conv(both, g.input("k", (2, 1, 3, 3)), pads=1, name="c"))
    picture = g.draw({"c": {"h": 3}})
    reads = [part.inputs[0] for part in operation(g, "c").shard({"h": 3})]
    wanted: dict[str, dict[tuple[int, ...], set[int]]] = {"x": {}, "z": {}, "concat": {}}
    for number, region in enumerate(reads, 1):
        for _, _, row, column in region.points().tolist():
            wanted["concat"].setdefault((row, column), set()).add(number)
            name, place = ("x", (2 * row, 2 * column)) if row < 4 else ("z", (row - 4, column))
            wanted[name].setdefault(place, set()).add(number)
    for name, cells in wanted.items():
        assert cells_of_node(picture.svg, name) == cells
        size = g.tensor(name).shape[2] * g.tensor(name).shape[3]
        halo = sum(len(held) > 1 for held in cells.values())
        assert f"in two or more: {halo} of {size} cells" in words_of_node(picture.svg, name)
        assert f"in two or more: {halo} of {size} cells" in picture.text
    assert_legible(read(picture.svg))


def node_called(svg: str, name: str) -> Any:
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        if group.get("data-node") in ("input", "constant", "result", "view"):
            first = next(text.text for text in group.iter(f"{SVG}text"))
            if first == name:
                return group
    raise AssertionError(f"no node is called {name}")


def words_of_node(svg: str, name: str) -> list[str]:
    return [text.text or "" for text in node_called(svg, name).iter(f"{SVG}text")]


def cells_of_node(svg: str, name: str) -> dict[tuple[int, ...], set[int]]:
    """The parts that hold each cell of the last two axes in the node of a tensor or a view."""
    found: dict[tuple[int, ...], set[int]] = {}
    for squares in node_called(svg, name).iter(f"{SVG}g"):
        for square in squares.findall(f"{SVG}rect"):
            if "data-at" in square.attrib:
                place = tuple(int(x) for x in square.attrib["data-at"].split(",")[-2:])
                found.setdefault(place, set()).update(map(int, squares.attrib["data-in"].split()))
    return found


def test_a_tensor_that_a_view_has_twice_shows_both() -> None:
    g = Graph()
    x = g.input("x", (6,))
    relu(concat([x, x.flip(0)]), name="r")
    cells = cells_of_node(g.draw({"r": [Box((4,), (3,)), Box((10,), (1,))]}).svg, "x")
    assert cells == {(4,): {1}, (5,): {1}, (1,): {2}}  # the second half is backwards: cells 5, and 1


def test_two_operators_are_shown_in_one_tensor() -> None:
    words = words_of_node(net().draw({"fc1": {"out": 2}, "h": [Box((0, 0), (1, 2))]}).svg, "fc1")
    assert "written by fc1" in words and "read by h" in words and ["1", "[0, :]: 2 of 8 cells"][1] in words


def test_lines_that_pass_layers_leave_the_nodes_free() -> None:
    box = canvas.Drawing(60, 30, ())
    nodes = [LayerNode("a", (), box)]
    nodes += [LayerNode(f"n{k}", (f"n{k - 1}" if k else "a",), box) for k in range(4)]
    drawn = layered([*nodes, LayerNode("end", ("n3", "a"), box)], "right")
    alone = layered([*nodes, LayerNode("end", ("n3",), box)], "right")
    assert drawn.width == alone.width and drawn.height >= alone.height + 6  # a lane of its own beside the chain
    more = layered([*nodes, LayerNode("end", ("n3", "a"), box), LayerNode("other", ("n3", "a"), box)], "right")
    curves = [part for part in more.parts if 'fill="none"' in part]
    assert len(curves) == len(set(curves)) == 4 + 4 + 2 + 2  # the chain, one lane for both, and what ends at them


@pytest.mark.heavy(2)
def test_large_graphs_are_drawn_whole_when_asked_for() -> None:
    g = Graph()
    x = g.input("x", (4, 4))
    for _ in range(700):
        x = relu(x).T
    g.output(x)
    before = time.process_time()
    nodes, edges = nodes_and_edges(g.draw(folded=False).svg)
    assert len(nodes) == 2101 and sum(edges.values()) == 2100 and time.process_time() - before < 5 * slower()
    shown = g._repr_mimebundle_()
    assert shown["text/plain"] == repr(g) and shown["image/svg+xml"] == g.draw().svg and "<svg" in shown["text/html"]
    assert len(g.draw().svg) < 10_000 and 'data-block="700"' in g.draw().svg


# -- folded drawings, read back ------------------------------------------------------------------------------------


class Level(Struct):
    """What one frame of a drawing has: boxes of words, frames with how often they are there, arrows by words."""

    boxes: list[str]
    frames: dict[str, tuple[int, Level]]
    edges: Counter[tuple[str, str]]


def levels(group: Any) -> Level:
    """A folded drawing as it is nested; a box is known by its name, a frame by a name in it."""
    found, keys = Level([], {}, Counter()), {}
    numbered = next(each for each in group.iter(f"{SVG}g") if any("data-number" in inner.attrib for inner in each))
    for each in numbered:
        if "data-number" not in each.attrib:
            continue
        (body,) = each
        if "data-block" in body.attrib:
            inner = levels(body)
            key = f"frame {min(named(inner))}"
            found.frames[key] = (int(body.attrib["data-block"]), inner)
        else:
            words = [text.text or "" for text in body.iter(f"{SVG}text")]
            kind = body.attrib["data-node"]
            key = words[1 if kind in ("op", "view") and not words[1].startswith(("gives", "reads")) else 0]
            key = f"in {key}" if kind not in ("op", "view") else key
            found.boxes.append(key)
        keys[each.attrib["data-number"]] = key
    for path in numbered:
        if "data-edge" in path.attrib:
            one, other = path.attrib["data-edge"].split()
            found.edges[keys[one], keys[other]] += 1
    return found


def expected(g: Graph, parts: Sequence[Folded], entering: set[str]) -> Level:
    """What a drawing of these parts has, from the graph's own wiring."""
    found, made = Level([f"in {name}" for name in entering], {}, Counter()), {name: f"in {name}" for name in entering}
    for part in parts:
        members = part.members if isinstance(part, Repeated) else ((part,),)
        read = {name for member in members for item in member for name in item.inputs}
        key = members[0][0].name
        if isinstance(part, Repeated):
            key = f"frame {min(item.name for item in first_of(part.body))}"
            first = {name for item in members[0] for name in item.inputs} - {n for i in members[0] for n in i.outputs}
            # what it reads of operators, or of inputs for all or of the first block, has a box in the frame
            inside = {name for name in first if kind_of(g, name) == "made"}
            inside |= {name for name in first if kind_of(g, name) == "input" and name not in part.own[0]}
            found.frames[key] = (part.times, expected(g, part.body, inside))
        else:
            found.boxes.append(key)
        found.edges.update({(made[name], key) for name in read if name in made})
        made |= {name: key for member in members for item in member for name in item.outputs}
    return found


def first_of(parts: Sequence[Folded]) -> list[Any]:
    """What is drawn of some parts: of each block the first repetition."""
    return [one for part in parts for one in (first_of(part.body) if isinstance(part, Repeated) else [part])]


def named(level: Level) -> list[str]:
    """The operators and selections of a level and of the frames in it."""
    inner = [name for _, each in level.frames.values() for name in named(each)]
    return [*(name for name in level.boxes if not name.startswith("in ")), *inner]


def kind_of(g: Graph, name: str) -> str:
    return g.stored[name].kind if name in g.stored and g.stored[name].kind != "result" else "made"


def sort(level: Level) -> Any:
    """A level whatever the order of its boxes."""
    return sorted(level.boxes), {key: (n, sort(each)) for key, (n, each) in level.frames.items()}, level.edges


@pytest.mark.parametrize("direction", ["right", "down"])
def test_a_folded_drawing_has_each_block_once(direction: Any) -> None:
    g = Graph()
    x, mask = g.input("x", (4, 4)), g.input("mask", (4, 4))
    x = relu(x, name="first")
    for k in range(6):
        h = x
        for n in range(4):
            h = relu(h @ g.constant(f"c{k}{n}", np.ones((4, 4), np.float32)), name=f"r{k}{n}")
        x = x + (h + mask).T @ g.input(f"w{k}", (4, 4))
    g.output(g.op("softmax", x, name="last"), "y")
    picture = g.draw(direction=direction, folded=True)
    level = levels(ElementTree.fromstring(picture.svg))
    assert sort(level) == sort(expected(g, fold(g), {"x", "mask"}))
    assert_legible(read(picture.svg))
    ((times, outer),) = level.frames.values()
    assert times == 6 and [n for n, _ in outer.frames.values()] == [4]
    lines = picture.text.splitlines()
    assert "  6 times the block of 12 operators and selections:" in lines
    assert "    4 times the block of 2 operators and selections:" in lines
    assert "      op       r00: [4, 4] = relu(matmul)" in lines and "      others read r03" in lines
    assert not any("r01:" in line or "c01" in line for line in lines) and "  output   y = last" in lines


@pytest.mark.parametrize("model", [gpt(12, length=128), bert(6)], ids=["gpt", "bert"])
def test_networks_are_drawn_with_their_layers_folded(model: Any) -> None:
    g = load_onnx(model)
    before = time.process_time()
    picture = g.draw()
    assert time.process_time() - before < 2 * slower() and len(picture.to_html()) < 150_000
    level = levels(ElementTree.fromstring(picture.svg))
    parts = fold(g)
    own = {name for part in parts if isinstance(part, Repeated) for names in part.own for name in names}
    inputs = {name for name, stored in g.stored.items() if stored.kind == "input" and name not in own}
    assert sort(level) == sort(expected(g, parts, inputs))
    assert_legible(read(picture.svg))
    assert_legible(read(picture.narrow or picture.svg))


def test_of_a_long_graph_that_repeats_nothing_the_beginning_is_drawn() -> None:
    g = Graph()
    x = g.input("x", (2, 2))
    for k in range(1100):
        x = g.op("leaky_relu", x, alpha=float(k))
    picture = g.draw()
    assert "… and 100 more operators and selections" in picture.text and "… and 100 more" in picture.svg
    assert len(levels(ElementTree.fromstring(picture.svg)).boxes) == 1001


# -- wrong input ---------------------------------------------------------------------------------------------------


def test_an_empty_graph_says_so() -> None:
    picture = Graph("none").draw()
    assert picture.text == "graph none is empty: it has no tensors yet"
    assert [w.words for w in read(picture.svg).words] == [picture.text]


@pytest.mark.parametrize(
    ("shards", "error", "message"),
    [
        (
            {"fc9": {"m": 2}},
            ValueError,
            r"graph 'net' has no operator 'fc9'; known operators: 'fc1', 'h', 'fc2', 'add'",
        ),
        ({"x": {}}, ValueError, "has no operator 'x'"),
        ({"fc1": {"q": 2}}, ValueError, r"there is no index axis 'q'; known axes: 'm', 'n', 'k'"),
        ({"fc1": {"m": 9}}, ValueError, "shards of 'fc1': 9 parts of axis 'm', which has 4 index points"),
        ({"fc1": [Box((0, 0), (1, 1))]}, ValueError, "shards of 'fc1': part 0 is Box.*outside the index space"),
    ],
)
def test_wrong_shards_are_named(shards: Any, error: type[Exception], message: str) -> None:
    g = net()
    before = g.to_json()
    with pytest.raises(error, match=message):
        g.draw(shards)
    assert g.to_json() == before


def test_shards_are_not_drawn_in_a_folded_graph() -> None:
    with pytest.raises(ValueError, match="leave one of shards and folded out"):
        net().draw({"fc1": {"m": 2}}, folded=True)
    assert "shards of fc1" in net().draw({"fc1": {"m": 2}}, folded=False).text


def test_wrong_directions_and_broken_graphs_are_named() -> None:
    with pytest.raises(ValueError, match=r"direction must be one of \['right', 'down'\], not 'up'"):
        net().draw(direction="up")  # type: ignore[arg-type]
    g = net()
    drop_item(g.stored, "x")
    with pytest.raises(ValueError, match="'x'"):
        g.draw()


HOSTILE = ["<script>&amp;\"'", "a\nb\x00\u202e", "n" * 5000, "\ud800", "]]>", "名前", "lane 3 x"]


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_names_are_escaped(name: str) -> None:
    g = Graph(name)
    x = g.input(name, (2, 3))
    y = matmul(x.T.flip(0), x, name=f"{name}m")
    g.output(y.T, name)
    picture = g.draw({f"{name}m": {"m": 3}})
    assert "<script" not in picture.svg and "\x00" not in picture.svg
    assert_legible(read(picture.svg))
    nodes, edges = nodes_and_edges(picture.svg)
    assert len(nodes) == 6 and len(edges) == 6
    head = picture.text.split("\n\nshards of")[0]
    assert len(head.split("\n")) == 1 + 1 + len(g.nodes) + len(g.selections) + len(g.outputs)
