"""Pictures of meshes, operators, tensors, derivations and stages, read back."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry_plan import Axis, Device, Graph, Link, Mesh, Operand, Signature, operation, ops, plan, project
from tapestry_plan.ir import BUILTIN_OPS, Pictures
from tapestry_plan.ir.pictures import pictures
from tapestry_plan.rewrite import Derivation, Derived, NotApplicable, Rule, fix_bits, forward, fuse, shard, split_axes
from tapestry_sets.draw import Picture
from tests.cutting import Case
from tests.drawings import SVG, assert_legible, name_of, read
from tests.graph_recipes import Recipe, built, recipes
from tests.operator_cases import CASES


def drawn(value: Any) -> Picture:
    """The picture of a value, which is also what a notebook shows, and is legible on any page."""
    assert isinstance(pictures, Pictures)
    picture = pictures.value(value)
    bundle = value._repr_mimebundle_()
    assert bundle["text/plain"] == repr(value) and bundle["image/svg+xml"] == picture.svg
    assert 'role="img"' in bundle["text/html"] and "<title" in bundle["text/html"]
    for svg in (picture.svg, picture.narrow):
        if svg:
            assert_legible(read(svg))
    return picture


def net() -> Graph:
    g = Graph()
    y = ops.linear(g.input("x", (8, 6)), g.input("w", (6, 4)), name="fc")
    g.output(ops.relu(y, name="act"), "y")
    return g


@settings(max_examples=30)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_a_mesh_has_each_device_and_each_link_between_neighbors(shape: list[int]) -> None:
    mesh = Mesh(tuple(shape), link={name: Link(1e-6 * (k + 1), 1e9) for k, name in enumerate("xyzu"[: len(shape)])})
    picture = drawn(mesh)
    if mesh.size > 64:
        assert "data-device" not in picture.svg
        return
    places: dict[int, str] = {}
    for group in ElementTree.fromstring(picture.svg).iter(f"{SVG}g"):
        if "data-device" in group.attrib:
            number = int(group.attrib["data-device"])
            assert number not in places and [text.text for text in group.iter(f"{SVG}text")] == [str(number)]
            places[number] = group.attrib["data-place"]
    assert places == {d: name_of(mesh.coordinates(d)) for d in range(mesh.size)}
    for axis, n in enumerate(shape):
        links = picture.svg.count(f'data-link="{axis}"')
        near = mesh.size // n * (n - 1) if axis >= len(shape) - 2 else 0
        assert links == 1 + near  # one of the legend
        assert f"along {mesh.names[axis]}: {n} devices, {axis + 1} us + 1 GB/s" in picture.text
    numbers = [int(n) for line in picture.text.splitlines() if re.fullmatch(r"[ \d-]+", line) for n in line.split("-")]
    assert numbers == [*range(mesh.size)]


def test_devices_that_differ_are_told_by_number() -> None:
    mesh = Mesh(3, device=[Device(rate * 1e12, memory_nbytes=1 << 30) for rate in (1, 2, 1)])
    text = drawn(mesh).text
    assert "device 0, 2: 1 TFLOP/s, 20 GB/s, 1,073,741,824 B of memory" in text
    assert "device 1: 2 TFLOP/s, 20 GB/s, 1,073,741,824 B of memory" in text
    shared = drawn(Mesh((2, 2))).text
    assert "along x: 2 devices, 1 us + 10 GB/s, one for x and y" in shared
    assert "data-device" not in drawn(Mesh((16, 16))).svg


def test_an_operator_is_drawn_in_two_parts_with_the_cells_of_each() -> None:
    op = operation(net(), "fc")
    for value in (op, op.signature):
        picture = drawn(value)
        assert "index space: m 8 (batch), n 4 (out), k 6 (in, reduction); 2 parts" in picture.text
    held: dict[tuple[int, ...], set[int]] = {}
    for number, part in enumerate(op.shard({"batch": 2}), 1):
        for point in part.inputs[0].points().tolist():
            held.setdefault(tuple(point), set()).add(number)
    groups = ElementTree.fromstring(drawn(op).svg).iter(f"{SVG}g")
    group = next(group for group in groups if group.get("data-role") == "input 0")
    found = {}
    for squares in group.iter(f"{SVG}g"):
        for square in squares.findall(f"{SVG}rect"):
            if "data-at" in square.attrib:
                place = tuple(map(int, square.attrib["data-at"].split(",")))
                found[place] = {int(n) for n in squares.attrib["data-in"].split()}
    assert found == held


def test_a_convolution_is_cut_where_its_parts_share_a_halo() -> None:
    g = Graph()
    ops.conv(g.input("x", (1, 3, 8, 8)), g.input("k", (4, 3, 3, 3)), pads=1, name="c")
    text = drawn(operation(g, "c")).text
    reads = [part.inputs[0] for part in operation(g, "c").shard({"h": 2})]
    assert reads[0].count_common(reads[1]) == 3 * 2 * 8 and "in two or more: 48 of 192 cells" in text


def test_a_signature_that_nothing_can_be_cut_of_is_one_part() -> None:
    axes = (Axis("k", 5, "reduction"),)
    signature = Signature(axes, (Operand(project(axes, [{"k": 1}])),), (Operand(project(axes, [])),))
    assert drawn(signature).text.startswith("signature, whole\nindex space: k 5 (reduction); 1 part")


@pytest.mark.parametrize("name", ["conv", "linear", "softmax", "relu", "max_pool"])
def test_a_declaration_says_what_it_takes(name: str) -> None:
    op = BUILTIN_OPS[name]
    text = drawn(op).text
    assert text.startswith(f"operator {name}")
    assert all(attribute in text for attribute in op.attributes)
    assert all(each.__name__ in text for each in op.expansions)
    assert ("merge by" in text) == (op.reduction is not None)


def with_case(case: Case) -> Graph:
    """An operator of which everything is read by another one."""
    g = Graph()
    dtypes = case.dtypes or (case.dtype,) * len(case.shapes)
    tensors = [g.input(f"in{k}", shape, dtypes[k]) for k, shape in enumerate(case.shapes)]
    made = g.op(case.op, *tensors, **case.attrs, name="it")
    for k, tensor in enumerate(made if isinstance(made, tuple) else (made,)):
        g.output(ops.multiply(tensor, tensor, name=f"reader{k}") if tensor.dtype != "bool" else tensor, f"y{k}")
    return g


def show(g: Graph, *names: str) -> set[str]:
    """Display what a notebook may have of these operators, or of one of each kind; the words of their names."""
    forms = set()
    for name in names or {node.op: name for name, node in g.nodes.items() if node.op != "multiply"}.values():
        node = g.nodes[name]
        op = g.ops[node.op]
        forms.add(op.form if isinstance(op, Derived) else "")
        for value in (op, g.signature(name), operation(g, name)):
            bundle = value._repr_mimebundle_()
            assert bundle["text/plain"] == repr(value)
            assert "<svg" in bundle["image/svg+xml"], (node.op, type(value).__name__)
    return forms


@pytest.mark.heavy
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_operator_is_displayed(case: Case) -> None:
    assert show(with_case(case), "it") == {""}


def made_of(case: Case) -> set[str]:
    """Display what is made of an operator; the words of these."""
    met, g = set[str](), with_case(case)
    axes = [axis for axis in g.signature("it").axes if axis.may_have(2)]
    tried: list[tuple[Rule, str, dict[str, Any]]] = [(fuse, "reader0", {"operand": 0})]
    for kind in ("parallel", "reduction"):
        tried += [(shard, "it", {"axis": axis.name, "parts": 2}) for axis in axes if axis.kind == kind][:1]
    for rule, at, arguments in tried:
        try:
            met |= show(rule.apply(g, at, **arguments))
        except NotApplicable:
            continue
    return met | show(fix_bits(g))


@pytest.mark.heavy
@pytest.mark.parametrize("case", {case.op: case for case in CASES}.values(), ids=str)
def test_operators_made_of_every_other_one_are_displayed(case: Case) -> None:
    assert made_of(case) <= {"", "part", "merge", "fused", "leaves", "split"}


def test_operators_made_of_others_are_displayed() -> None:
    cases = {case.op: case for case in CASES}
    assert set[str]().union(*(made_of(cases[op]) for op in ("matmul", "relu", "sum"))) >= {
        "part",
        "merge",
        "fused",
        "leaves",
    }
    show(split_axes.apply(net(), "act", sizes={"i0": (2, 4)}))


def test_a_block_of_a_plan_says_what_it_is_made_of() -> None:
    p = plan(net(), Mesh(2))
    op = p.graph.ops[p.graph.nodes["act"].op]
    assert drawn(op).text.splitlines()[0] == "operator fused(linear,relu)"
    assert "made of: linear, relu" in drawn(op).text


def test_a_padded_signature_is_drawn_with_all_that_it_reads() -> None:
    g = Graph()
    ops.conv(g.input("x", (1, 2, 4, 4)), g.input("w", (2, 2, 3, 3)), pads=1)
    said = "input 0, its shape not given, all that is read, from (0, 0, -1, -1) on, (1, 2, 6, 6) at "
    assert said in drawn(g.signature("conv")).text


@settings(max_examples=25)
@given(recipes(8))
def test_a_tensor_has_who_makes_and_who_reads_it(recipe: Recipe) -> None:
    g = built(recipe)
    for name in [*g.stored, *g.selections]:
        picture = drawn(g.tensor(name))
        items = [*g.nodes.values(), *g.selections.values()]
        readers = [item.name for item in items if name in item.inputs]
        told = re.findall(r"^read by (\S+):", picture.text, re.M)
        assert told == readers[:8] and (f"and by {len(readers) - 8} more" in picture.text) == (len(readers) > 8)
        makers = [item for item in items if name in item.outputs]
        nodes = re.findall(r'data-node="(\w+)"', picture.svg)
        assert len(nodes) == len(makers) + 1 + len(told)
        assert picture.svg.count("data-edge") == len(makers) + len(told)


def test_a_derivation_is_a_chain_of_rules() -> None:
    steps = Derivation().then(shard, "fc", axis="batch", parts=2).then(forward, "act")
    assert drawn(steps).text.splitlines() == [
        "derivation of 2 steps", "0  shard at fc axis = 'batch' parts = 2", "1  forward at act"
    ]  # fmt: skip
    assert drawn(steps).svg.count("data-edge") == 1
    assert drawn(Derivation()).text == "derivation of 0 steps: the graph as given"
    many = Derivation(steps.steps * 10)
    assert "and 8 more steps" in drawn(many).text and drawn(many).svg.count("data-node") == 12


def test_a_stage_has_a_bar_for_each_device_to_scale() -> None:
    p = plan(net(), Mesh(3), fix={"fc": {"n": 3}, "act": {"i0": 3}})
    for stage in p.stages:
        svg = drawn(stage).svg
        bars = [(int(k), float(x)) for k, x in re.findall(r'data-bar="(\d+)" data-value="([\d.e+-]+)"', svg)]
        received = [float(f"{n:g}") for n in stage.nbytes_received]
        assert bars[:3] == [*enumerate(received)] and [k for k, _ in bars] == [0, 1, 2] * 3
        widths = [float(w) for w in re.findall(r'd="M24 \d+h([\d.]+)v12', svg)][:3]
        most = max(received) or 1
        assert widths == [round(n / most * 120, 1) for n in stage.nbytes_received]
        assert f"receives {stage.nbytes_received[1]:,} B" in drawn(stage).text
    assert any(sum(stage.nbytes_received) for stage in p.stages)


def test_alternatives_show_what_each_reason_adds_or_saves() -> None:
    g = Graph()
    x, w = g.input("x", (8, 4096)), g.input("w", (4096, 8))
    g.output(ops.relu(ops.matmul(x, w, name="mm"), name="r"), "y")
    p = plan(g, Mesh(4), fix={"mm": {"k": 4}, "r": {}})
    signs = set[bool]()
    for one in p.alternatives["mm"]:
        bundle = one._repr_mimebundle_()
        assert bundle["text/plain"] == repr(one) and "<svg" in bundle["text/html"]
        drawn = [float(value) for value in re.findall(r'data-value="([^"]*)"', bundle["image/svg+xml"])]
        told = [each.more_seconds for each in one.causes[: len(one.reasons)]]
        wanted = [n for n in told if n > 0] + [-n for n in told if n < 0]
        assert drawn == pytest.approx([] if one.is_chosen else wanted, rel=1e-5)
        signs |= {n > 0 for n in told if n}
        assert all(f"{k}  " in pictures.value(one).text for k in range(len(one.reasons)))
    assert signs == {True, False}
