"""What `explain` says of inputs, constants and views, against cells that are looked up one by one."""

from __future__ import annotations

import random
import re
from itertools import product

import numpy as np
import pytest

from tapestry_plan import Graph, Mesh, Placed, ShardPlan, concat, load_onnx, operation, ops, plan
from tapestry_plan.steps import HOST, Copy, tuning
from tests.exec.run.test_every_kind_of_plan import make_graph, make_plan
from tests.oracles import cell_read

Cells = set[tuple[str, tuple[int, ...]]]


def cells_behind(g: Graph, name: str, points: list[tuple[int, ...]]) -> Cells:
    """The stored cells that some cells of a tensor are."""
    source, found = g.source(name), Cells()
    for point in points:
        for piece in source.pieces:
            if piece.source >= 0 and (at := cell_read(piece, point)) is not None:
                found.add((source.stored[piece.source], at))
    return found


def is_through(g: Graph, read: str, name: str) -> bool:
    return read == name or (read in g.selections and any(is_through(g, one, name) for one in g.selections[read].inputs))


def count_moved(p: ShardPlan, name: str) -> int:
    """Bytes of cells of a tensor that come for who reads it so, cell by cell."""
    g, total = p.graph, 0
    shown = cells_behind(g, name, list(product(*map(range, g.source(name).shape))))
    for row in p.transfers():
        for region in row.regions:
            cells = {(row.tensor, tuple(map(int, point))) for point in region.points()} & shown
            if row.consumer in g.nodes:
                wanted, inputs = Cells(), g.nodes[row.consumer].inputs
                for box in p.placement[row.consumer].get(row.target, ()):
                    for read, region in zip(inputs, operation(g, row.consumer).region(box).inputs, strict=True):
                        if is_through(g, read, name):
                            wanted |= cells_behind(g, read, [tuple(map(int, point)) for point in region.points()])
                cells &= wanted
            elif row.consumer.startswith("output"):
                cells = cells if any(is_through(g, read, name) for read in g.outputs.values()) else Cells()
            total += len(cells) * np.dtype(g.stored[row.tensor].dtype).itemsize
    return total


def said(text: str) -> int:
    """The bytes that move because of it, as the last line says."""
    last = text.splitlines()[-1].strip()
    found = re.fullmatch(r"because of it ([\d,]+) B move between devices", last)
    assert found or last == "nothing moves because of it"
    return int(found[1].replace(",", "")) if found else 0


def check(p: ShardPlan) -> int:
    g, moving = p.graph, 0
    names = [name for name, stored in g.stored.items() if stored.kind != "result"]
    for name in (*names, *g.selections):
        if name in p.expanded or name in p.unified:  # what stands for it is explained
            continue
        text = p.explain(name)
        assert text.splitlines()[0].startswith(f"{name}: ") and not text.alternatives
        readers = [node.name for node in g.nodes.values() if any(is_through(g, read, name) for read in node.inputs)]
        for reader in readers:
            assert f"\n  {reader} reads " in text
        assert said(text) == count_moved(p, name)
        moving += said(text) > 0
        if name in g.stored:
            assert said(text) == p.transfers(tensor=name).nbytes
            placed = sum(region.size for step in p.steps if isinstance(step, Copy) and step.src == HOST
                         if step.tensor == name and step.piece is None for region in step.regions)  # fmt: skip
            told = re.findall(r"([\d,]+) B on (?:device \d+|each of (\d+) devices?)", text.splitlines()[1])
            nbytes = sum(int(n.replace(",", "")) * int(count or 1) for n, count in told)
            assert nbytes == placed * np.dtype(g.stored[name].dtype).itemsize or "other amounts" in text
    return moving


@pytest.mark.parametrize("begin", [0, *(pytest.param(k, marks=pytest.mark.heavy(16)) for k in range(5, 60, 5))])
def test_what_moves_because_of_a_tensor(begin: int) -> None:
    moving = 0
    for seed in range(begin, begin + 5):
        rng = random.Random(seed)
        moving += check(make_plan(make_graph(rng), rng)[0])
    assert moving


def turned() -> ShardPlan:
    g = Graph()
    rows = ops.relu(g.input("x", (4, 6)), name="rows")
    w = g.constant("w", np.ones((6, 4), np.float32))
    g.output(ops.add(rows.T, w, name="columns"), "y")
    g.output(rows[::2], "odd")
    return plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}})


def test_it_is_said_in_words() -> None:
    p = turned()
    assert p.explain("w") == (
        "w: constant, float32 of 6×4, 96 B\n"
        "  placed: 48 B on each of 2 devices\n"
        "  columns reads 96 B of constant w, all of it where it is placed\n"
        "  nothing moves because of it"
    )
    assert p.explain("permute_dims") == (
        "permute_dims: view, float32 of 6×4, 96 B, stored nowhere by itself\n"
        "  permute_dims of rows: cells of result rows\n"
        "  columns reads 96 B of result rows; 48 B come from other devices, as cells [2, 4)×[0, 3) from device 1 to 0\n"
        "  because of it 48 B move between devices"
    )
    assert p.explain("y").splitlines()[:2] == ["y: output, tensor columns, which columns makes", "columns (add): i0:2"]
    assert p.explain("odd").splitlines()[0] == "odd: output, tensor slice"
    assert "output odd: nothing moves for it" in p.explain("odd")
    with pytest.raises(ValueError, match=r"no operator, input, constant, view or output 'nosuch'; known names: .*'w'"):
        p.explain("nosuch")


def test_views_of_views_say_through_which_they_are_read() -> None:
    g = Graph()
    x = g.input("x", (8, 4))
    half = x[:4]
    g.output(ops.relu(concat([half, x[4:]], 0), name="a"), "y")
    p = plan(g, Mesh(2), layout={"x": Placed({0: np.s_[:]})}, fix={"a": {"i0": 2}})
    assert ", through concat" in p.explain(half.name) and ", through concat" in p.explain("x")
    assert check(p) >= 1


def test_what_nothing_reads_and_equal_constants() -> None:
    g = Graph()
    x = g.input("x", (4, 4))
    g.input("idle", (4, 4))
    one, other = (g.constant(name, np.ones((4, 4), np.float32)) for name in ("one", "other"))
    g.output(ops.relu(x @ one @ other, name="r"), "y")
    p = plan(g, Mesh(2))
    assert "  nothing reads it\n" in p.explain("idle")
    assert p.unified == {"other": "one"}
    assert p.explain("other").splitlines()[0] == ("other: the same as one, which is computed once and stands for both")
    assert p.explain("other").splitlines()[1].startswith("one: constant")


def test_of_many_devices_steps_are_not_written_down_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    expected, p = turned().explain("w"), turned()
    monkeypatch.setattr(tuning, "TOLD_SHARDS", 1)
    assert p.explain("w").splitlines()[1:] == [
        "  read by columns",
        "  left out, as it takes the steps of all 2 devices: where it lies, how much of it is read, and what moves "
        "because of it; plan.transfers(tensor='w') writes them, and explain says it then",
    ]
    assert "tensor='rows'" in p.explain("permute_dims") and "written" not in p.__dict__
    assert not p.transfers(tensor="w").nbytes and p.explain("w") == expected


def test_a_name_of_several_things_is_asked_for_with_its_kind() -> None:
    g = Graph()
    a = ops.relu(g.input("x", (8, 8)), name="x")
    g.output(ops.exp(a.T, name="b"), "y")
    g.output(a, "b")
    c = ops.exp(a, name="d")
    g.output(ops.relu(c, name=a.name), "z")
    p = plan(g, Mesh(2), fuse=False)
    for name, things, ways in (
        ("x", "an operator and of an input", "'operator x' or 'tensor x'"),
        ("b", "an operator and of an output, tensor 'x_1'", "'operator b' or 'label b'"),
        ("x_1", "an operator and of what the operator 'x' makes", "'operator x_1' or 'tensor x_1'"),
    ):
        with pytest.raises(ValueError, match=f"explain: '{name}' is the name of {things}; ask for {ways}"):
            p.explain(name)
    heads = {
        "operator x": "x (relu): ",
        "tensor x": "x: input, ",
        "operator b": "b (exp): ",
        "label b": "b: output, tensor x_1, which x makes",
        "tensor x_1": "x (relu): ",
        "operator x_1": "x_1 (relu): ",
        "tensor d": "d (exp): ",
        "label y": "y: output, tensor b, which b makes",
    }
    for name, head in heads.items():
        assert p.explain(name).startswith(head)
    assert p.explain("tensor x").node == "" and p.explain("operator x").node == "x"
    with pytest.raises(ValueError, match="no operator, input, constant, view or output 'label nosuch'"):
        p.explain("label nosuch")


def test_names_of_models_are_known() -> None:
    p = plan(load_onnx("tests/models/gpt2.onnx"), Mesh(2))
    for name in ("input_ids", "wte.weight", "view"):
        assert p.explain(name).startswith(f"{name}: ")
    label = next(iter(p.graph.outputs))
    assert p.explain(label)
