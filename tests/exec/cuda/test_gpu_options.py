"""What a GPU backend may be asked for, and what it does once instead of often, on simulated GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tapestry_exec import run
from tapestry_exec.cuda import CupyBackend
from tapestry_exec.simulated import namespace as simulated
from tapestry_exec.simulated.cublas import CublasLibrary
from tapestry_plan import Graph, Mesh, ops, plan
from tapestry_plan.ir import BUILTIN_OPS
from tests.exec.run.test_same_bits import of_floats

pytestmark = pytest.mark.filterwarnings("error")


def padded() -> Graph:
    g, rng = Graph(), np.random.default_rng(0)
    x = ops.relu(g.input("x", (1, 2, 8, 6)), name="a")
    g.output(ops.conv(x, g.constant("w", rng.standard_normal((3, 2, 3, 3)).astype(np.float32)), pads=1, name="c"), "y")
    g.output(ops.exp(x), "z")
    return g


def counting(cupy: Any, name: str) -> list[int]:
    """The sizes that a function of the runtime is asked for."""
    sizes: list[int] = []
    made = getattr(cupy.cuda.runtime, name)

    def counted(*args: Any) -> Any:
        sizes.append(args[2])
        return made(*args)

    setattr(cupy.cuda.runtime, name, counted)
    return sizes


@pytest.mark.parametrize("poison", [None, False, True])
def test_buffers_are_poisoned_where_that_is_asked_for(poison: bool | None) -> None:
    """Cells of padding are filled all the same."""
    g = padded()
    p, feeds, cupy = plan(g, Mesh((2,)), fix={"c": {"h": 2}}), of_floats(g), simulated.cupy(2)
    sizes = counting(cupy, "memsetAsync")
    engine = CupyBackend(cupy=cupy) if poison is None else CupyBackend(cupy=cupy, poison=poison)
    found, wanted = run(p, feeds, backend=engine), run(p, feeds)
    for name, array in wanted.outputs.items():
        np.testing.assert_allclose(found.outputs[name], array, rtol=1e-5)
    assert bool(sizes) == bool(poison)


def test_all_outputs_are_copied_before_one_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    g = padded()
    p, feeds, log = plan(g, Mesh((2,)), fix={"c": {"h": 2}}), of_floats(g), list[str]()
    collect, arrive = CupyBackend.collect, CupyBackend.arrive

    def collected(self: CupyBackend, payload: Any) -> Any:
        log.append("collect")
        return collect(self, payload)

    def arrived(self: CupyBackend) -> None:
        log.append("arrive")
        arrive(self)

    monkeypatch.setattr(CupyBackend, "collect", collected)
    monkeypatch.setattr(CupyBackend, "arrive", arrived)
    monkeypatch.setattr(CupyBackend, "_to_host", lambda *_: pytest.fail("an output was waited for by itself"))
    engine = CupyBackend(cupy=simulated.cupy(2))
    for _ in range(2):
        found, wanted = run(p, feeds, backend=engine), run(p, feeds)
        for name, array in wanted.outputs.items():
            np.testing.assert_allclose(found.outputs[name], array, rtol=1e-5)
    blocks = sum(len(output.blocks) for output in p.outputs)
    assert blocks > 2 and log == ["collect"] * blocks + ["arrive"] + ["collect"] * blocks + ["arrive"]


def test_a_block_that_brings_host_arrays_is_not_recorded() -> None:
    """A graph would read the table again when it is gone: the run goes on step by step, and is right every time."""
    calls: list[str] = []

    def block(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        calls.append("block")
        xp.multiply(inputs[0], xp.asarray(np.full(1, 3, np.float32)), out=outputs[0])

    g = Graph()
    tripled = replace(BUILTIN_OPS["relu"], name="tripled", block=block, work=None)
    g.output(g.op(tripled, g.input("x", (4, 4))), "y")
    p, engine = plan(g, Mesh((2,))), CupyBackend(cupy=simulated.cupy(2), capture=True)
    for k in range(4):
        feeds = {"x": np.full((4, 4), k, np.float32)}
        found = run(p, feeds, backend=engine, ops={"tripled": tripled})
        assert (found.outputs["y"] == 3 * k).all()
    assert len(calls) >= 2 * 4, "each run computes: none is a graph's"


def test_tf32_is_asked_of_cublas_for_float32_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """77 is cuBLAS's number of sums with factors rounded to TF32, 68 that of float32 and 70 that of float64."""
    asked: list[int] = []
    call = CublasLibrary.cublasGemmStridedBatchedEx
    monkeypatch.setattr(
        CublasLibrary, "cublasGemmStridedBatchedEx", lambda *given: asked.append(given[-2]) or call(*given)
    )
    for tf32, dtype, sums in ((True, "float32", 77), (True, "float64", 70), (False, "float32", 68)):
        g = Graph()
        g.output(ops.matmul(g.input("x", (4, 6), dtype), g.input("w", (6, 5), dtype)), "y")
        engine = CupyBackend(cupy=simulated.cupy(2), tf32=tf32)
        run(plan(g, Mesh((2,))), {"x": np.ones((4, 6), dtype), "w": np.ones((6, 5), dtype)}, backend=engine)
        assert set(asked) == {sums}
        asked.clear()


@pytest.mark.gpu
def test_tf32_rounds_factors() -> None:
    g, rng = Graph(), np.random.default_rng(0)
    g.output(ops.matmul(g.input("x", (256, 512)), g.input("w", (512, 256))), "y")
    feeds = {name: rng.standard_normal(g.stored[name].shape).astype(np.float32) for name in "xw"}
    exact = feeds["x"].astype(float) @ feeds["w"]
    p, worst = plan(g, Mesh((1,))), dict[bool, float]()
    for tf32 in (False, True):
        found = run(p, feeds, backend=CupyBackend(tf32=tf32)).outputs["y"]
        worst[tf32] = float(np.abs(found - exact).max() / np.abs(exact).max())
    assert worst[False] < 1e-5 < worst[True] < 1e-2


def test_a_block_that_is_replaced_runs_also_where_it_is_part_of_a_product() -> None:
    """What the operator in its place said of its work is not what another block function does."""
    g = Graph()
    x, w = g.input("x", (4, 6)), g.input("w", (6, 5))
    g.output(ops.relu(ops.linear(x, w)), "y")
    p, feeds = plan(g, Mesh((2,))), {"x": np.ones((4, 6), np.float32), "w": np.ones((6, 5), np.float32)}
    assert p.fused

    def tenfold(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        xp.multiply(inputs[0], 10, out=outputs[0])

    own = replace(BUILTIN_OPS["relu"], block=tenfold)
    found = run(p, feeds, backend=CupyBackend(cupy=simulated.cupy(2)), ops={"relu": own})
    np.testing.assert_array_equal(found.outputs["y"], np.full((4, 5), 60))


def test_an_operator_under_a_name_of_its_own_with_a_block_of_its_own_runs_that() -> None:
    """Made of a built-in one, it still has what that said of its work."""

    def sevens(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        outputs[0].fill(7)

    for name, shapes in (("conv", ((1, 2, 4, 4), (2, 2, 1, 1))), ("linear", ((4, 6), (6, 5), (5,)))):
        own = replace(BUILTIN_OPS[name], name=f"my{name}", block=sevens)
        g = Graph()
        g.output(g.op(own, *(g.input(f"x{k}", shape) for k, shape in enumerate(shapes))), "y")
        feeds = {f"x{k}": np.ones(shape, np.float32) for k, shape in enumerate(shapes)}
        found = run(plan(g, Mesh(2)), feeds, backend=CupyBackend(cupy=simulated.cupy(2))).outputs["y"]
        assert (found == 7).all()
