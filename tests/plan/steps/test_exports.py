"""Where tensors lie, in the words of other libraries: what these words mean against what the steps place and make."""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Sequence
from itertools import pairwise, permutations, product
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry_plan import Graph, Mesh, NotExported, Placed, Shardings, ShardPlan, concat, load_onnx, ops, plan
from tapestry_plan.steps import HOST, Buffer, Compute, Copy, Reduce, least_memory, spill
from tests.exec.run.test_every_kind_of_plan import make_graph, make_plan
from tests.report_models import residual

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


def check_idle(shardings: Shardings[Any], name: str, busy: set[int]) -> None:
    """Those devices have a tensor that have one coordinate, the same, along each axis that is told as idle."""
    mesh = shardings.mesh
    idle = [mesh.names.index(axis) for axis in shardings.placements[name].idle]
    at = [[int(np.unravel_index(device, mesh.shape)[axis]) for axis in idle] for device in range(prod(mesh.shape))]
    assert all(mesh.shape[axis] > 1 for axis in idle)
    assert busy == {device for device, mine in enumerate(at) if mine == at[min(busy)]}


def check(p: ShardPlan) -> tuple[int, int]:
    """What is said is where cells are, also within halos; what is refused is none of the keys. How many are both."""
    shardings, lies, chunks = p.to_mesh_axes(), held(p), p.to_dask_chunks()
    assert {*shardings} <= {*chunks} and {*shardings, *shardings.refused} == {
        name for name in lies if name in p.graph.stored
    }
    assert prod(shardings.mesh.shape) == p.mesh.size
    for name in shardings:
        placement = shardings.placements[name]
        assert chunks[name] == placement.sizes and shardings[name] == placement.axes
        assert tuple(map(sum, placement.sizes)) == p.graph.stored[name].shape
        check_idle(shardings, name, {*lies[name]})
        for device, mine in lies[name].items():
            part = part_of(shardings, name, device)
            own = set(product(*part))
            assert own <= mine and (own == mine or any(placement.halos))
            beside = [max([*(part[k].start - c for c in axis), *(c - part[k].stop + 1 for c in axis), 0])
                      for k, axis in enumerate(map(set, zip(*mine, strict=True)))]  # fmt: skip
            assert all(n <= most for n, most in zip(beside, placement.halos, strict=True))
    for name, why in shardings.refused.items():
        with pytest.raises(NotExported, match="tensor '") as error:
            shardings[name]
        assert why in str(error.value) and name not in shardings and shardings.get(name) is None
    check_ends(p)
    return len(shardings), len(shardings.refused)


def check_ends(p: ShardPlan) -> None:
    """What is said of outputs is where their blocks are when the plan has run."""
    found, buffers = p.to_mesh_axes().outputs, {buffer.id: buffer for buffer in p.buffers}
    assert {*found, *found.refused} == {*p.graph.outputs}
    for output in p.outputs:
        if output.name not in found:
            continue
        mine: dict[int, Cells] = {}
        for number, region in (*output.blocks, *output.replicas):
            cells = {tuple(map(int, point)) for point in region.points()}
            mine.setdefault(buffers[number].device, set()).update(cells)
        check_idle(found, output.name, {*mine})
        for device, cells in mine.items():
            own = set(product(*part_of(found, output.name, device)))
            assert own == cells or (own < cells and any(found.placements[output.name].halos))


@pytest.mark.heavy(2)
@settings(max_examples=max(12, settings.default.max_examples // 4), deadline=None)
@given(st.integers(0, 10**6))
def test_plans_of_every_kind(seed: int) -> None:
    rng = random.Random(seed)
    check(make_plan(make_graph(rng), rng)[0])


@pytest.mark.parametrize("devices", [2, 4])
def test_a_plan_that_spills_has_tensors_where_they_are_placed_again(devices: int) -> None:
    p = plan(residual(), Mesh(devices), fuse=False)
    q = spill(p, max(least_memory(p)))
    placed = [step.dst for step in q.steps if isinstance(step, Copy) and step.src == HOST]
    homes = [(q.buffers[number].tensor, q.buffers[number].device) for number in placed]
    assert len(set(homes)) < len(set(placed)), "a tensor is placed twice on a device"
    check(q)
    assert dict(q.to_mesh_axes()) == dict(p.to_mesh_axes()) and dict(q.to_dask_chunks()) == dict(p.to_dask_chunks())


@pytest.mark.heavy(4)
@pytest.mark.parametrize("mesh", [Mesh(2), Mesh((2, 2), names=("a", "b")), Mesh(8)])
@pytest.mark.parametrize("name", ["bert", "gpt2", "resnet"])
def test_every_even_plan_of_a_network_is_said(name: str, mesh: Mesh) -> None:
    """All tensors by every library, those that half of the devices make too."""
    p = plan(load_onnx(f"tests/models/{name}.onnx"), mesh, space="mesh")
    said, refused = check(p)
    assert said >= 35 and not refused
    for found in (p.to_mesh_axes(), p.to_jax(), p.to_dtensor(), p.to_dask_chunks()):
        found.check()
        assert len(found) == said and len(found.outputs) == len(p.outputs)
        told = [line for line in found.to_code().splitlines() if "on one device along" in line]
        assert bool(told) == (name == "bert" and mesh.size > 2 and found.mesh is not None)


def test_known_words() -> None:
    g = Graph()
    x, w = g.input("x", (8, 12)), g.constant("w", np.ones((12, 8), np.float32))
    g.output(ops.relu(ops.matmul(x, w, name="mm"), name="act"), "y")
    p = plan(g, Mesh((2, 2), names=("a", "b")), fix={"mm": {"m": ("a",), "k": ("b",)}, "act": {"i0": ("a", "b")}})
    axes = p.to_mesh_axes()
    assert axes.mesh.names == ("a", "b") and axes.mesh.shape == (2, 2)
    assert dict(axes) == {
        "x": (("a",), ("b",)),
        "w": (("b",), ()),
        "mm": (("a", "b"), ()),
        "act": (("a", "b"), ()),
    }
    found = p.to_dask_chunks()
    assert found["x"] == ((4, 4), (6, 6)) and found["act"] == ((2,) * 4, (8,))
    assert set(found.of_kind("input")) == {"x"} and set(found.of_kind("constant")) == {"w"}
    for said in (axes, found):
        ran: dict[str, Any] = {}
        exec(said.to_code(), ran)
        assert ran["placed"] == dict(said) and ran["outputs"] == dict(said.outputs)
        again = pickle.loads(pickle.dumps(said))
        assert dict(again) == dict(said) and again.to_code() == said.to_code()
    assert (
        "act" in str(found) and ">act</td>" in found._repr_html_() and repr(found) == "Shardings(4 tensors, 0 refused)"
    )
    found.check()


def test_an_axis_is_taken_apart_where_tensors_are_cut_along_a_part_of_it() -> None:
    g = Graph()
    g.output(ops.relu(ops.exp(g.input("x", (8, 6)), name="a").T, name="b"))
    p = plan(g, Mesh(4), fix={"a": {"i0": 2, "i1": 2}, "b": {"i0": 2}}, fuse=False)
    found = p.to_mesh_axes()
    assert found.mesh.names == ("x.0", "x.1") and found.mesh.shape == (2, 2)
    assert found["a"] == (("x.0",), ("x.1",))
    check(p)


def chain(shape: tuple[int, ...] = (8, 6)) -> Graph:
    g = Graph()
    g.output(ops.exp(ops.relu(g.input("x", shape), name="a"), name="b"), "y")
    return g


@pytest.mark.parametrize("names", [("x", "x.0"), ("x.0", "x"), ("x", "x.1"), ("x.0", "x.0_"), ("x", "x.0.0")])
def test_names_of_parts_are_nobody_elses(names: tuple[str, str]) -> None:
    p = plan(chain((16, 16)), Mesh((4, 4), names=names), fix={"a": {"i0": 2}, "b": {"i0": 2, "i1": 2}}, fuse=False)
    found = p.to_mesh_axes()
    assert len(set(found.mesh.names)) == len(found.mesh.names) and prod(found.mesh.shape) == 16
    check(p)


def test_axes_of_one_device_are_axes_too() -> None:
    found = plan(chain(), Mesh((1, 4)), fix={"a": {"i0": 4}, "b": {"i0": 4}}, fuse=False).to_mesh_axes()
    assert found.mesh.shape == (1, 4) and found.mesh.names == ("x", "y") and found["a"] == (("y",), ())
    assert plan(chain(), Mesh(1)).to_mesh_axes().mesh.shape == (1,)


@pytest.mark.parametrize("parts", [2, 3])
def test_factors_are_tried_in_other_orders(parts: int) -> None:
    p = plan(chain((24, 6)), Mesh(6), fix={"a": {"i0": parts}, "b": {"i0": parts}}, fuse=False)
    assert not p.to_mesh_axes().refused
    check(p)


def test_outputs_are_told_where_they_end() -> None:
    g = Graph()
    g.output(ops.relu(g.input("x", (8, 8)), name="a"), "y")
    p = plan(g, Mesh(4), layout={"x": {0: 4}, "y": {1: 4}}, fix={"a": {"i0": 4}}, fuse=False)
    found = p.to_mesh_axes()
    assert found["a"] == (("x",), ()) and found.outputs["y"] == ((), ("x",))
    with pytest.raises(KeyError, match=r"outputs\['y'\]"):
        found["y"]
    p = plan(g, Mesh(4), layout={"y": Placed({0: ...})}, fix={"a": {"i0": 4}}, fuse=False)
    found = p.to_mesh_axes()
    assert found.outputs["y"] == ((), ()) and found.outputs.placements["y"].idle == ("x",)
    assert "outputs['y'] = ((), ())  # in the plan on one device along x" in found.to_code()
    p = plan(g, Mesh(3), layout={"y": Placed({0: np.s_[:4], 2: np.s_[4:]})}, fix={"a": {"i0": 2}}, fuse=False)
    with pytest.raises(NotExported, match="output 'y': device 1 has none of it"):
        p.to_mesh_axes().check()


def test_halos_are_told_beside_the_part() -> None:
    g = Graph()
    g.output(ops.conv(g.input("x", (1, 2, 16, 8)), g.input("w", (2, 2, 3, 3)), pads=1, name="c"), "y")
    found = plan(g, Mesh(4), fix={"c": {"h": 4}}, expand=False).to_dask_chunks()
    assert ("c" in found) is True
    assert found["x"] == ((1,), (2,), (4, 4, 4, 4), (8,)) and found.placements["x"].halos == (0, 0, 1, 0)
    assert "with 1 cells beside along axis 2" in str(found)


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
    p = plan(g, Mesh(mesh), fuse=False, **asked)
    found, chunks = p.to_mesh_axes(), p.to_dask_chunks()
    assert (name in chunks) == (why != "a box")  # chunks of Dask have no devices
    if why is None:  # chunks of Dask may be uneven; those of JAX are not
        assert chunks[name] == ((3, 2, 2), (6,)) and found[name] == (("x",), ())
        return
    with pytest.raises(NotExported, match=why):
        found[name]
    with pytest.raises(NotExported, match=rf"of \d+ tensors: .*{why}"):
        found.check()
    lines = found.to_code().splitlines()
    assert [line for line in lines if line.startswith("#")] == [
        f"# refused: {each}: {told}" for each, told in found.every_refusal.items()
    ]
    ran: dict[str, Any] = {}
    exec(found.to_code(), ran)
    assert ran["placed"] == dict(found) and name not in ran["placed"]


def test_names_with_line_breaks_stay_in_their_comments() -> None:
    g, name = Graph(), "a\nraise SystemExit"
    g.output(ops.relu(g.input("x", (8, 6)), name=name), "y")
    found = plan(g, Mesh(3), fix={name: {"i0": 2}}, fuse=False).to_mesh_axes()
    assert name in found.refused
    exec(found.to_code(), {})


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
    found = getattr(plan(g, Mesh(2)), method)()
    assert "placed['act'] = " in found.to_code() and "act" in str(found)
    with pytest.raises(ImportError, match=f"pip install {module}"):
        found["act"]


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
    assert len(specs) > 3 and jax.__version__
    axes, number = p.to_mesh_axes(), {name: k for k, name in enumerate(specs.mesh.names)}
    for name, spec in (*specs.items(), *specs.outputs.items()):
        assert isinstance(spec, sharding.PartitionSpec)
        cut = axes.get(name, axes.outputs.get(name))
        said = [() if one is None else (one,) if isinstance(one, str) else one for one in spec]
        assert tuple(said) == cut and all(one in number for each in said for one in each)
    named = p.to_jax(sharding.AbstractMesh(specs.mesh.shape, specs.mesh.names))
    assert all(isinstance(one, sharding.NamedSharding) and one.spec == specs[name] for name, one in named.items())
    with pytest.raises(ValueError, match=r"the mesh of JAX has axes .* make it of these"):
        p.to_jax(sharding.AbstractMesh((p.mesh.size,), ("other",)))
    for wrong in (5, p.mesh, specs.mesh):
        with pytest.raises(TypeError, match=r"give a jax\.sharding\.Mesh"):
            p.to_jax(wrong)
    code = specs.to_code()
    compile(code, "code", "exec")
    assert "NamedSharding(mesh, P(" in code and "import PartitionSpec" not in code


class FakeShard:
    """What DTensor's `Shard` is to these placements: an axis of the tensor."""

    def __init__(self, dim: int) -> None:
        self.dim = dim


class FakeStridedShard(FakeShard):
    """What DTensor's `_StridedShard` is: the axis, and in how many parts others cut it before."""

    def __init__(self, dim: int, *, split_factor: int) -> None:
        super().__init__(dim)
        self.split_factor = split_factor


class FakeReplicate:
    """DTensor's `Replicate`."""


def local_cells(placements: tuple[Any, ...], shape: tuple[int, ...], mesh: tuple[int, ...], device: int) -> Cells:
    """The cells of a process as DTensor defines them: for each axis of the mesh, a chunk of what is left."""
    spans: list[Sequence[int]] = [range(n) for n in shape]
    for placement, n, at in zip(placements, mesh, np.unravel_index(device, mesh), strict=True):
        if isinstance(placement, FakeStridedShard):  # every n-th of the parts that there are then
            parts = np.array_split(spans[placement.dim], placement.split_factor * n)
            spans[placement.dim] = [cell for part in parts[int(at) :: n] for cell in part.tolist()]
        elif isinstance(placement, FakeShard):
            size = -(-len(spans[placement.dim]) // n)
            spans[placement.dim] = spans[placement.dim][int(at) * size : (int(at) + 1) * size]
    return set(product(*spans))


@pytest.mark.parametrize("extents", [(8, 6), (8, 8), (7, 6), (5, 4)])
@pytest.mark.parametrize("shape", [(2,), (4,), (2, 2), (2, 3), (2, 2, 2)])
def test_dtensor_means_the_same(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], extents: tuple[int, int]
) -> None:
    """The words of DTensor against the cells of the steps, with its own rule of who has which chunk."""
    module = SimpleNamespace(Shard=FakeShard, _StridedShard=FakeStridedShard, Replicate=FakeReplicate)
    monkeypatch.setattr("tapestry_plan.steps.exports.shardings.import_library", lambda *_: module)
    mesh = Mesh(shape)
    some = told = 0
    for first, second in (("i0", "i1"), ("i1", "i0")):
        for axes in {(mesh.names[-1],), *permutations(mesh.names)}:
            parts = prod(mesh.shape[mesh.names.index(axis)] for axis in axes)
            if parts > min(extents):
                continue
            p = plan(chain(extents), mesh, fix={"a": {first: axes}, "b": {second: axes}}, fuse=False)
            found, lies = p.to_dtensor(), held(p)
            some += len(lies)
            told += len(found)
            for name, placements in found.items():
                assert len(placements) == len(found.mesh.shape)
                for device in range(mesh.size):
                    cells = local_cells(placements, extents, found.mesh.shape, device)
                    assert cells == lies[name][device], (name, device)
            for why in found.refused.values():
                assert "of DTensor" in why or "none of it" in why
    assert some and (told or extents == (7, 6) or extents == (5, 4))


def test_parts_of_a_tensor_begin_where_others_end() -> None:
    g = Graph()
    g.output(ops.relu(g.input("x", (24, 6)), name="act"))
    found = plan(g, Mesh((2, 3)), fix={"act": {"i0": 6}}).to_mesh_axes()
    parts = [part_of(found, "act", device)[0] for device in range(6)]
    assert parts[0].start == 0 and parts[-1].stop == 24 and all(a.stop == b.start for a, b in pairwise(parts))
