"""Where tensors lie, in the words of other libraries: what these words mean against what the steps place and make."""

from __future__ import annotations

import random
import sys
from itertools import pairwise, product
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry_plan import Graph, Mesh, NotExported, Placed, Shardings, ShardPlan, concat, load_onnx, ops, plan
from tapestry_plan.steps import HOST, Buffer, Compute, Copy, Reduce
from tests.exec.run.test_every_kind_of_plan import make_graph, make_plan

Cells = set[tuple[int, ...]]


def held(p: ShardPlan) -> dict[str, dict[int, Cells]]:
    """By tensor and device the cells that steps place there, or that are made or merged there first, one by one."""
    buffers: dict[int, Buffer] = {buffer.id: buffer for buffer in p.buffers}
    out: dict[str, dict[int, Cells]] = {}
    for step in p.steps:
        numbers: tuple[int, ...] = ()
        if isinstance(step, Copy) and step.src == HOST and step.piece is None:
            numbers = (step.dst,)
        elif isinstance(step, Compute):
            numbers = step.outputs
        elif isinstance(step, Reduce):
            numbers = (step.output,)
        for number in numbers:
            buffer = buffers[number]
            if buffer.part >= 0:
                continue
            mine = out.setdefault(buffer.tensor, {})
            if isinstance(step, Compute):
                spans = zip(buffer.start, buffer.shape, strict=True)
                mine.setdefault(buffer.device, set(product(*(range(a, a + n) for a, n in spans))))
                continue
            cells = {tuple(map(int, point)) for region in step.regions for point in region.points()}
            if isinstance(step, Reduce):
                mine.setdefault(buffer.device, cells)
            else:
                mine.setdefault(buffer.device, set()).update(cells)
    return out


def part_of(shardings: Shardings[Any], name: str, device: int) -> tuple[range, ...]:
    """The cells of a device as `PartitionSpec` defines them: a part's number is that of coordinates, row-major."""
    mesh, placement = shardings.mesh, shardings.placements[name]
    at = dict(zip(mesh.names, np.unravel_index(device, mesh.shape), strict=True)) if mesh.shape else {}
    extents = dict(zip(mesh.names, mesh.shape, strict=True))
    spans = []
    for along, sizes in zip(placement.axes, placement.sizes, strict=True):
        number = 0
        for axis in along:
            number = number * extents[axis] + int(at[axis])
        assert prod(extents[axis] for axis in along) == len(sizes)
        spans.append(range(sum(sizes[:number]), sum(sizes[: number + 1])))
    return tuple(spans)


def check(p: ShardPlan) -> tuple[int, int]:
    """What is said is where cells are, also within halos; what is refused is none of the keys. How many are both."""
    shardings, lies = p.to_dask_chunks(), held(p)
    assert {*shardings, *shardings.refused} == {name for name in lies if name in p.graph.stored}
    assert prod(shardings.mesh.shape) == p.mesh.size
    for name in shardings:
        placement = shardings.placements[name]
        assert shardings[name] == placement.sizes and tuple(map(sum, placement.sizes)) == p.graph.stored[name].shape
        for device in range(p.mesh.size):
            mine, part = lies[name][device], part_of(shardings, name, device)
            own = set(product(*part))
            assert own <= mine and (own == mine or any(placement.halos))
            beside = [max([*(part[k].start - c for c in axis), *(c - part[k].stop + 1 for c in axis), 0])
                      for k, axis in enumerate(map(set, zip(*mine, strict=True)))]  # fmt: skip
            assert all(n <= most for n, most in zip(beside, placement.halos, strict=True))
    for name, why in shardings.refused.items():
        with pytest.raises(NotExported, match="tensor '") as error:
            shardings[name]
        assert why in str(error.value)
    return len(shardings), len(shardings.refused)


@settings(max_examples=max(25, settings.default.max_examples // 4), deadline=None)
@given(st.integers(0, 10**6))
def test_plans_of_every_kind(seed: int) -> None:
    rng = random.Random(seed)
    check(make_plan(make_graph(rng), rng)[0])


@pytest.mark.parametrize("mesh", [Mesh(2), Mesh(4), Mesh((2, 2), names=("a", "b"))])
@pytest.mark.parametrize("name", ["bert", "gpt2", "resnet"])
def test_every_even_plan_of_a_network_is_said(name: str, mesh: Mesh) -> None:
    """All tensors, but those that some devices have nothing of."""
    p = plan(load_onnx(f"tests/models/{name}.onnx"), mesh, space="mesh")
    said, refused = check(p)
    assert said >= 35 and refused <= 2
    assert all("has none of it" in why for why in p.to_dask_chunks().refused.values())


def test_known_words() -> None:
    g = Graph()
    x, w = g.input("x", (8, 12)), g.constant("w", np.ones((12, 8), np.float32))
    g.output(ops.relu(ops.matmul(x, w, name="mm"), name="act"), "y")
    p = plan(g, Mesh((2, 2), names=("a", "b")), fix={"mm": {"m": ("a",), "k": ("b",)}, "act": {"i0": ("a", "b")}})
    found = p.to_dask_chunks()
    assert found.mesh.names == ("a", "b")
    assert {name: found.placements[name].axes for name in found} == {
        "x": (("a",), ("b",)),
        "w": (("b",), ()),
        "mm": (("a", "b"), ()),
        "act": (("a", "b"), ()),
    }
    assert found["x"] == ((4, 4), (6, 6)) and found["act"] == ((2,) * 4, (8,))
    assert set(found.of_kind("input")) == {"x"} and set(found.of_kind("constant")) == {"w"}
    assert found.to_code().splitlines()[0] == "chunks['x'] = ((4, 4), (6, 6))"
    assert "act" in str(found) and "<td>act" in found._repr_html_() and repr(found) == "Shardings(4 tensors, 0 refused)"
    found.check()


def test_an_axis_is_taken_apart_where_tensors_are_cut_along_a_part_of_it() -> None:
    g = Graph()
    g.output(ops.relu(ops.exp(g.input("x", (8, 6)), name="a").T, name="b"))
    p = plan(g, Mesh(4), fix={"a": {"i0": 2, "i1": 2}, "b": {"i0": 2}}, fuse=False)
    found = p.to_dask_chunks()
    assert found.mesh.names == ("x.0", "x.1") and found.mesh.shape == (2, 2)
    assert found.placements["a"].axes == (("x.0",), ("x.1",))


def test_halos_are_told_beside_the_part() -> None:
    g = Graph()
    g.output(ops.conv(g.input("x", (1, 2, 16, 8)), g.input("w", (2, 2, 3, 3)), pads=1, name="c"), "y")
    found = plan(g, Mesh(4), fix={"c": {"h": 4}}, expand=False).to_dask_chunks()
    assert found["x"] == ((1,), (2,), (4, 4, 4, 4), (8,)) and found.placements["x"].halos == (0, 0, 1, 0)
    assert "with 1 cells beside" in str(found)


@pytest.mark.parametrize(
    ("shape", "mesh", "asked", "name", "why"),
    [
        ((7, 6), 3, {"fix": {"y": {"i0": 3}}}, "y", None),
        ((8, 6), 2, {"layout": {"x": Placed({0: np.s_[4:], 1: np.s_[:4]})}}, "x", "order of the mesh"),
        ((8, 6), 3, {"fix": {"y": {"i0": 2}}}, "y", "device 2 has none of it"),
        ((8, 6), 2, {"layout": {"x": Placed({0: [np.s_[:2], np.s_[4:6]], 1: [np.s_[2:4], np.s_[6:]]})}}, "x", "a box"),
    ],
)  # fmt: skip
def test_what_cannot_be_said_is_refused_with_a_reason(
    shape: tuple[int, int], mesh: int, asked: dict[str, Any], name: str, why: str | None
) -> None:
    g = Graph()
    g.output(ops.relu(g.input("x", shape), name="y"))
    found = plan(g, Mesh(mesh), fuse=False, **asked).to_dask_chunks()
    if why is None:  # chunks of Dask may be uneven; those of JAX are not
        assert found[name] == ((3, 2, 2), (6,))
        return
    with pytest.raises(NotExported, match=why):
        found[name]
    with pytest.raises(NotExported, match=rf"of {len(found) + len(found.refused)} tensors: .*{why}"):
        found.check()


def test_unknown_names_are_answered_with_known_ones() -> None:
    g = Graph()
    g.output(ops.relu(g.input("x", (8, 6)), name="act"))
    with pytest.raises(KeyError, match=r"no tensor 'atc'.*'act'"):
        plan(g, Mesh(2)).to_dask_chunks()["atc"]


@pytest.mark.parametrize(("method", "module"), [("to_jax", "jax"), ("to_dtensor", "torch")])
def test_without_the_library_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, method: str, module: str) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    g = Graph()
    g.output(ops.relu(g.input("x", (8, 6)), name="act"))
    with pytest.raises(ImportError, match=f"pip install {module}"):
        getattr(plan(g, Mesh(2)), method)()


def joined() -> Graph:
    g = Graph()
    x, w = g.input("x", (16, 24)), g.input("w", (24, 32))
    h = ops.relu(ops.matmul(x, w, name="first"), name="act")
    g.output(ops.softmax(concat([h, h[:, ::-1]], 1), name="last"), "y")
    return g


@pytest.mark.parametrize("shape", [(2,), (4,), (2, 2)])
def test_jax_means_the_same(shape: tuple[int, ...]) -> None:
    jax = pytest.importorskip("jax")
    sharding = pytest.importorskip("jax.sharding")
    p = plan(joined(), Mesh(shape), space="mesh")
    specs = p.to_jax()
    mesh = sharding.AbstractMesh(specs.mesh.shape, specs.mesh.names)
    lies = held(p)
    for name in specs:
        assert isinstance(specs[name], sharding.PartitionSpec)
        tensor = p.graph.stored[name]
        local = sharding.NamedSharding(mesh, specs[name]).shard_shape(tensor.shape)
        assert all(prod(local) == len(lies[name][device]) for device in range(p.mesh.size))
    with pytest.raises(ValueError, match="the mesh of JAX has axes"):
        p.to_jax(sharding.AbstractMesh((p.mesh.size,), ("other",)))
    assert "NamedSharding(mesh, P(" in specs.to_code() and jax.__version__


def test_parts_of_a_tensor_begin_where_others_end() -> None:
    g = Graph()
    g.output(ops.relu(g.input("x", (24, 6)), name="act"))
    found = plan(g, Mesh((2, 3)), fix={"act": {"i0": 6}}).to_dask_chunks()
    parts = [part_of(found, "act", device)[0] for device in range(6)]
    assert parts[0].start == 0 and parts[-1].stop == 24 and all(a.stop == b.start for a, b in pairwise(parts))
