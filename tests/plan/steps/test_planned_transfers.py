"""What goes from device to device, row by row: against the plan's own counts, and cells counted one by one."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry_plan import Graph, Mesh, PlannedTransfers, ShardPlan, load_onnx, plan
from tapestry_plan.ops import matmul, relu
from tests.graph_recipes import Recipe, built, recipes

MODELS = Path(__file__).parents[2] / "models"


def turned() -> ShardPlan:
    """Rows that become columns; a product whose reduction is cut, merged by who reads it."""
    g = Graph()
    x = g.input("x", (8, 6))
    y = relu(relu(x, name="rows").T, name="columns")
    g.output(relu(matmul(y, x, name="product"), name="last"), "y")
    fix = {"rows": {"i0": 2}, "columns": {"i0": 2}, "product": {"k": 2}, "last": {"i0": 2}}
    return plan(g, Mesh(2), fix=fix, expand=False, fuse=False)


def count_cells(p: ShardPlan) -> Counter[tuple[int, int]]:
    """Bytes from device to device: each cell of each row by itself, none twice."""
    found: Counter[tuple[int, int]] = Counter()
    for row in p.transfers():
        cells = {point for region in row.regions for point in region.points()}
        assert len(cells) == sum(region.size for region in row.regions)
        stored = p.graph.stored[row.tensor]
        assert all(0 <= k < n for point in cells for k, n in zip(point, stored.shape, strict=True))
        itemsize = row.nbytes // len(cells)
        assert row.part >= 0 or itemsize == np.dtype(stored.dtype).itemsize
        found[row.source, row.target] += len(cells) * itemsize
    return found


@settings(max_examples=40)
@given(recipes(), st.integers(2, 4))
def test_rows_add_up_to_what_links_carry(recipe: Recipe, devices: int) -> None:
    p = plan(built(recipe), Mesh(devices))
    assert dict(count_cells(p)) == dict(p.nbytes_by_link)
    table = p.transfers()
    assert table.nbytes == p.nbytes_moved and len(table) == len(list(table))
    assert table.nbytes_by("source", "target") == dict(p.nbytes_by_link)


@pytest.mark.parametrize("name", ["bert", "gpt2", "resnet"])
def test_networks(name: str) -> None:
    p = plan(load_onnx(MODELS / f"{name}.onnx"), Mesh(4))
    table = p.transfers()
    assert table.nbytes_by("source", "target") == dict(p.nbytes_by_link) and table.nbytes
    received = table.nbytes_by("target")
    assert tuple(received.get(device, 0) for device in range(4)) == p.nbytes_received
    by_consumer = table.nbytes_by("consumer")
    for stage in p.stages:
        if stage.node in p.graph.nodes:
            assert by_consumer.get(stage.node, 0) == sum(stage.nbytes_received)


def test_every_row_says_who_makes_who_reads_and_why() -> None:
    p = turned()
    for row in p.transfers():
        assert p.steps[row.step].tensor == row.tensor  # type: ignore[union-attr]
        assert row.producer in ("rows", "columns", "product", "input") and row.source != row.target
        assert f"device {row.source}" in row.why and f"device {row.target}" in row.why
    parts = [row for row in p.transfers() if row.part >= 0]
    assert parts and all("part" in row.why and row.producer == "product" for row in parts)


def test_rows_are_chosen_by_what_they_are() -> None:
    p = turned()
    every = p.transfers()
    for what in ("source", "target", "tensor", "producer", "consumer"):
        values = {getattr(row, what) for row in every}
        chosen = [p.transfers(**{what: value}) for value in values]
        assert sum(map(len, chosen)) == len(every) and all(chosen)
        assert all(getattr(row, what) in values for table in chosen for row in table)
    both = p.transfers(0, 1, tensor="rows")
    assert list(both) == [r for r in every if (r.source, r.target, r.tensor) == (0, 1, "rows")] and both
    assert every[0] == every.rows[0] and every[1:] == PlannedTransfers(every.rows[1:]) != every


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"source": 2}, "source is 2; the mesh has devices 0 to 1"),
        ({"target": -1}, "target is -1; the mesh has devices 0 to 1"),
        ({"tensor": "row"}, "no tensor is 'row'; known tensors: .*'rows'"),
        ({"consumer": "row"}, "no consumer is 'row'; known consumers: .*'rows'"),
        ({"producer": "row"}, "no producer is 'row'; known producers: 'input', 'constant', .*'rows'"),
        ({"producer": 3}, "producer must be a string or None, not 3"),
    ],
)
def test_what_no_transfer_has_is_told(asked: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        turned().transfers(**asked)


def test_names_that_move_nothing_have_no_transfers() -> None:
    p = turned()
    names = {"tensor": p.graph.stored, "producer": ("input", "constant", *p.graph.nodes), "consumer": p.graph.nodes}
    empty = 0
    for what, known in names.items():
        for name in known:
            found = p.transfers(**{what: name})
            assert list(found) == [row for row in p.transfers() if getattr(row, what) == name]
            empty += not found
            if not found:
                assert {(a, b): n for a, b, n in found.elsewhere} == p.nbytes_by_link
                said = str(found).splitlines()[1]
                assert said.startswith(f"nothing that was asked for; the plan moves {p.nbytes_moved:,} B from ")
                assert found[:0] == found and p.transfers()[:0] == found and said in found._repr_html_()
    assert empty >= 3
    g = Graph()
    g.output(relu(g.input("x", (8, 8))), "y")
    still = plan(g, Mesh(2)).transfers(0, 1)
    assert not still.elsewhere and str(still).splitlines()[1:] == ["nothing goes from device to device"]


def test_what_stands_for_a_name_is_told() -> None:
    g = Graph()
    x, w = g.input("x", (8, 8)), g.input("w", (8, 8))
    hidden = relu(matmul(x, w, name="product"), name="act")
    g.output(matmul(hidden.T, w, name="last"), "y")
    p = plan(g, Mesh(2))
    assert [pair.first for pair in p.fused] == ["product"]
    for what in ("tensor", "producer", "consumer"):
        with pytest.raises(ValueError, match=f"no {what} is 'product', but the block 'act' that it is inside of"):
            p.transfers(**{what: "product"})
    with pytest.raises(ValueError, match="no tensor is 'y' that is stored, but it is read from 'last'; ask for that"):
        p.transfers(tensor="y")


def test_tables() -> None:
    table = turned().transfers()
    lines = str(table).splitlines()
    assert lines[0].split() == ["step", "from", "to", "tensor", "made", "by", "read", "by", "bytes", "why"]
    assert len(lines) == 1 + len(table)
    assert repr(table) == f"PlannedTransfers({len(table)} transfers on 2 links, {table.nbytes:,} B)"
    html = table._repr_html_()
    assert html.count("<tr>") == 1 + len(table) and html.count("</td>") == 8 * len(table)
    many = PlannedTransfers(table.rows * 10)
    assert str(many).splitlines()[-1] == f"and {10 * len(table) - 20} more; {many.nbytes:,} B in all"
    assert many._repr_html_().endswith(f"<p>and {10 * len(table) - 20} more; {many.nbytes:,} B in all</p>")
    with pytest.raises(ValueError, match="nbytes_by: 'why'; give some of step, source, target"):
        table.nbytes_by("source", "why")
    with pytest.raises(ValueError, match="nbytes_by: no column"):
        table.nbytes_by()


def test_a_data_frame_has_a_column_for_each_field(monkeypatch: pytest.MonkeyPatch) -> None:
    table = turned().transfers()
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=dict))
    frame = table.to_pandas()
    assert frame["nbytes"] == [row.nbytes for row in table] and len(frame) == 11
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError):
        table.to_pandas()
