"""The backend named "simulated": what anyone without a GPU runs, and what it says when something is wrong."""

from __future__ import annotations

import re
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace

from tapestry_exec import RawKernel, SimulatedBackend, StepFailed, evaluate, run
from tapestry_exec.cli.commands import main, random_inputs
from tapestry_exec.cuda import device as cupy_device
from tapestry_exec.cuda import lanes
from tapestry_exec.run.backends import OrderingFault
from tapestry_exec.simulated import machine as simulated_machine
from tapestry_exec.simulated import shim
from tapestry_plan import Graph, Link, Mesh, ShardPlan, Tensor, concat, least_memory, load_onnx, ops, plan
from tapestry_plan.ir import BUILTIN_OPS
from tapestry_plan.onnx import demo_model
from tapestry_plan.ops import exp, matmul, relu, tanh
from tapestry_plan.rewrite import shard
from tapestry_sets.views import Take
from tests.exec.cli.test_cli import network


def example() -> tuple[ShardPlan, dict[str, Any]]:
    g = Graph()
    x = g.input("x", (6, 6))
    y = relu(x + 1)
    g.output(matmul(y, y.T), "z")
    fix = {node.name: {next(a.name for a in g.signature(node.name).axes): 3} for node in g.order()}
    feeds = {"x": np.random.default_rng(0).integers(-3, 4, (6, 6)).astype(np.float32)}
    return plan(g, Mesh(3), fix=fix, placement="single"), feeds


def command(*args: object) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args], prog_name="tapestry")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    onnx.save(network(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_the_name_runs_a_plan_on_simulated_gpus() -> None:
    p, feeds = example()
    wanted, found = run(p, feeds), run(p, feeds, backend="simulated", verify=True)
    np.testing.assert_array_equal(found.outputs["z"], wanted.outputs["z"])
    assert found.nbytes_by_link == wanted.nbytes_by_link != {}
    assert found.peak_nbytes == wanted.peak_nbytes


@pytest.mark.parametrize("reduction", ["sum", "mean", "var", "argmax", "logsumexp", "max"])
def test_parts_are_merged_in_stages(reduction: str) -> None:
    """States that are merged into states, and unwrapped by the last stage alone: as NumPy's backend and NumPy do."""
    g = Graph()
    y = g.op(reduction, g.input("x", (5, 24)), name="y", axis=(1,) if reduction != "argmax" else 1)
    g.output(relu(y * 1), "z")
    p = plan(g, Mesh((8,), link=Link(1e-6, 1e9)), fix={"y": {"i1": 8}, "multiply": {}})
    assert p.choices.merged
    feeds = {"x": np.random.default_rng(3).standard_normal((5, 24)).astype(np.float32)}
    wanted, found = run(p, feeds), run(p, feeds, backend="simulated", verify=True)
    np.testing.assert_array_equal(found.outputs["z"], wanted.outputs["z"])
    np.testing.assert_allclose(found.outputs["z"], evaluate(g, feeds)["z"], rtol=1e-5, atol=1e-6)
    assert (found.nbytes_by_link, found.peak_nbytes) == (p.nbytes_by_link, p.peak_nbytes)


def test_the_same_bits_whatever_is_left_to_chance() -> None:
    p, feeds = example()
    feeds = {"x": np.random.default_rng(1).standard_normal((6, 6)).astype(np.float32)}
    backends = [SimulatedBackend(gpus, seed=seed, unwritten=True) for gpus in (1, 2, 3) for seed in (0, 1)]
    assert len({run(p, feeds, backend=backend).outputs["z"].tobytes() for backend in backends}) == 1


def numbered(b: Tensor) -> Tensor:
    return b.reshape(4, 9).T.reshape(6, 6)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("turn", [numbered, lambda b: b.apply(Take((5, 3, 1, 0, 2, 4), 1))], ids=["numbered", "taken"])
def test_what_is_written_by_tables_waits_for_the_blocks_beside_it(turn: Any, nested: bool) -> None:
    """Another device reads a block that lies in one whose other cells are written by the numbers of a table."""
    g = Graph()
    a, b = exp(g.input("x", (6, 6)), name="a"), tanh(g.input("y", (6, 6)), name="b")
    wide = concat([a, turn(b)], 1)
    if nested:
        wide = concat([relu(wide, name="inner"), turn(b)], 1)
    g.output(relu(wide, name="z"), "z")
    g.output(tanh(a, name="u"), "u")
    fix: dict[str, Any] = {"a": {"i0": 2}, "b": {}, "z": {"i0": 2}, "u": {}, **({"inner": {"i0": 2}} if nested else {})}
    p = plan(g, Mesh(2), fix=fix, fuse=False, expand=False)
    assert any(buffer.within for buffer in p.buffers)
    rng = np.random.default_rng(2)
    feeds = {name: rng.standard_normal((6, 6)).astype(np.float32) for name in "xy"}
    wanted = run(p, feeds, backend="serial").outputs
    for gpus, seed in product((1, 2), (0, 1, 2)):
        found = run(p, feeds, backend=SimulatedBackend(gpus, seed=seed)).outputs
        assert all(np.allclose(found[label], wanted[label], rtol=1e-6) for label in "zu")


def nothing_unpacked(self: Any, payload: Any, buffer: Any, regions: Any) -> None:
    self._ready(buffer, self.incoming)


def first_row(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
    outputs[0][0] = inputs[0][0]


@pytest.mark.parametrize("fault", ["a copy that is left out", "a block function that writes one row of several"])
def test_cells_that_nothing_wrote_are_found(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """Only where they are asked for: poison is read then, and what comes out is wrong."""
    p, feeds = example()
    p = plan(p.graph, Mesh(1), fuse=False) if fault.startswith("a block") else p
    ops = {"relu": replace(BUILTIN_OPS["relu"], block=first_row, work=None)}
    given: dict[str, Any] = {"ops": ops} if fault.startswith("a block") else {}
    if not given:
        monkeypatch.setattr(cupy_device.CupyDevice, "unpack", nothing_unpacked)
    wrong = run(p, feeds, backend=SimulatedBackend(), **given).outputs["z"]
    assert not np.array_equal(wrong, run(p, feeds).outputs["z"])
    with pytest.raises(
        StepFailed, match=r"OrderingFault: operation .* of which byte \d+ was never written since it was"
    ):
        run(p, feeds, backend=SimulatedBackend(unwritten=True), **given)


def test_buffers_that_are_spilled_before_all_of_them_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """They wait in host memory with what is poison in them, which nobody else reads."""
    g = Graph()
    x, w = g.input("x", (6, 6)), g.input("w", (6, 6))
    y = x[1:] + w[1:]
    z = relu(y) + y * y
    g.output(matmul(z, z.T), "z")
    g.output(x[:5] + x[1:], "v")
    p = plan(g, Mesh(2))
    feeds = {name: np.random.default_rng(k).integers(-3, 4, (6, 6)).astype(np.float32) for k, name in enumerate("xw")}
    wanted, memory = run(p, feeds), max(least_memory(p))
    found = run(p, feeds, backend=SimulatedBackend(unwritten=True), memory_nbytes=memory)
    assert sum(found.nbytes_spilled) > 0
    for name, array in wanted.outputs.items():
        np.testing.assert_array_equal(found.outputs[name], array)
    monkeypatch.setattr(simulated_machine.Machine, "mark_moved", lambda *args: None)
    with pytest.raises(StepFailed, match=r"\(spill of buffer .* OrderingFault: .* was never written since"):
        run(p, feeds, backend=SimulatedBackend(unwritten=True), memory_nbytes=memory)


BEYOND = """
extern "C" __global__ void beyond(const float* x, float* y, int n, int at) {
    int i = threadIdx.x;
    if (i < n) y[i] = x[i] > 0 ? x[i] : 0;
    if (i == 0) y[at] = 7777;
}
"""


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (23, None),
        (-40, r"at byte \d+ of memory \d+ of device 0, where no buffer lives; no argument of the launch points there"),
        (-32, r"at byte \d+ of memory \d+ of device 0, where buffer \d+ \(add\) lives; no argument of the launch"),
        (1 << 20, r"at 0x\w+, .*where no memory is; no argument|at byte \d+ of .*; no argument"),
    ],
    ids=["in bounds", "into a gap", "into a neighbor", "beyond the arena"],
)
def test_a_kernel_that_is_attached_stays_in_its_buffers(at: int, message: str | None) -> None:
    g = Graph()
    x = g.input("x", (4, 6))
    z, y = x + 1, relu(x)
    g.output(y + z, "y")
    g.output(x, "x")  # so that nothing overwrites it
    p = plan(g, Mesh(1), expand=False, fuse=False)
    places = {buffer.tensor: buffer.offset for buffer in p.buffers}
    assert places["relu"] - places["add"] == 128, "what the offsets above are made for"

    def launch(inputs: Any, outputs: Any, shard: Any) -> Any:
        return (1,), (32,), (inputs[0], outputs[0], np.int32(inputs[0].size), np.int32(at))

    feeds = {"x": np.arange(24, dtype=np.float32).reshape(4, 6)}
    backend = SimulatedBackend(1, kernels={"relu": RawKernel(BEYOND, "beyond", launch)})
    if message is None:
        assert run(p, feeds, backend=backend).outputs["y"][3, 5] == 7777 + 24
        return
    with pytest.raises(
        StepFailed, match=r"compute 'relu' .* OrderingFault: kernel beyond: thread 0 of .* writes"
    ) as one:
        run(p, feeds, backend=backend)
    assert re.search(message, str(one.value)), one.value


def test_options_are_those_of_the_gpu_backend() -> None:
    p, feeds = example()
    backend = SimulatedBackend(2, devices=[1, "cpu", 0], blocking=True)
    np.testing.assert_array_equal(run(p, feeds, backend=backend).outputs["z"], run(p, feeds).outputs["z"])


@pytest.mark.parametrize("gpus", [0, -1])
def test_numbers_of_gpus_that_are_none(gpus: int) -> None:
    with pytest.raises(ValueError, match=r"SimulatedBackend: gpus is .*; give how many .*, an int from 1 to 1024"):
        SimulatedBackend(gpus)


@pytest.mark.parametrize("seed", ["a", 1.5, True, None])
def test_seeds_that_are_none(seed: Any) -> None:
    with pytest.raises(TypeError, match=r"SimulatedBackend: seed must be an integer, not .*"):
        SimulatedBackend(seed=seed)


def test_a_machine_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Kernels run on the CPU once g++ has compiled them; without it, and nothing compiled before, the mend is named."""
    p, feeds = example()
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("TAPESTRY_CACHE", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"g\+\+|compiler"):
        run(p, feeds, backend=SimulatedBackend())


def test_a_step_that_comes_too_early_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    p, feeds = example()
    monkeypatch.setattr(lanes.Lane, "after", lambda self, marks: None)
    with pytest.raises(
        StepFailed, match=r"step \d+ \(.*\) failed: OrderingFault: operation \d+ .* while operation"
    ) as raised:
        run(p, feeds, backend="simulated")
    assert isinstance(raised.value.__cause__, OrderingFault)


MODELS = Path(__file__).parents[2] / "models"


def agrees(graph: Graph, devices: int) -> None:
    """A network on simulated GPUs: equal to the unsharded run within its bound, the bytes that were predicted."""
    p = plan(graph, Mesh(devices))
    found = run(p, random_inputs(graph, 0), backend="simulated", verify=True)
    assert found.nbytes_moved == p.nbytes_moved > 0
    assert set(found.outputs) == set(graph.outputs)


@pytest.mark.heavy(2)
@pytest.mark.parametrize("name", ["resnet", "gpt2"])
def test_networks_run_under_the_checker(name: str) -> None:
    agrees(load_onnx(MODELS / f"{name}.onnx"), 3)


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["bert", "SqueezeNet"])
def test_large_networks_run_under_the_checker(name: str) -> None:
    agrees(load_onnx(demo_model() if name == "SqueezeNet" else MODELS / f"{name}.onnx"), 4)


# -- the command --------------------------------------------------------------------------------------------


@pytest.mark.skipif(shim.found_compiler() is None, reason="no C++ compiler")
def test_the_command_runs_a_model_on_simulated_gpus(file: Path) -> None:
    result = command("run", file, "--mesh", "2", "--backend", "simulated", "--verify", "-q")
    assert result.exit_code == 0, result.output
    assert "output y: float32[2, 4, 8, 8], difference from the unsharded run" in result.stdout
    assert "equal" in result.stdout


def test_the_command_explains_backends_and_refuses_others(file: Path) -> None:
    text = " ".join(command("run", "--help").stdout.split())
    assert "[cupy|dask|mpi|nccl|numpy|onnxruntime|processes|serial|simulated]" in text.replace("| ", "|").replace(
        " |", "|"
    )
    assert "GPUs that are simulated, slowly, under a checker of streams" in text
    result = command("run", file, "--backend", "abacus")
    assert result.exit_code == 2
    assert "'abacus' is not one of" in result.stderr and "'simulated'" in result.stderr


@pytest.mark.skipif(shim.found_compiler() is None, reason="no C++ compiler")
def test_a_fault_ends_the_command_with_one_line(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes.Lane, "after", lambda self, marks: None)
    result = command("run", file, "--mesh", "2", "--backend", "simulated", "-q")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: step ") and "may still write them" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", sorted(name for name, op in BUILTIN_OPS.items() if op.has_states))
def test_states_of_leaves_lie_component_by_component(name: str) -> None:
    """GPUs' libraries have no structured dtypes, and the states of a leaf are in no buffer of the plan."""
    feeds = {"x": np.random.default_rng(0).standard_normal((40, 6)).astype(np.float32)}
    made = set()
    for devices in (1, 3):
        g = Graph()
        g.output(g.op(name, g.input("x", (40, 6)), axis=0, name="y"), "y")
        p = plan(g, Mesh((devices,)), same_bits=True)
        assert p.graph.nodes["y"].op == f"leaves({name})"
        found = run(p, feeds, backend="simulated").outputs["y"]
        np.testing.assert_allclose(found, evaluate(g, feeds)["y"], rtol=1e-5)
        made.add(found.tobytes())
    assert len(made) == 1


@pytest.mark.parametrize("name", ["argmax", "var", "logsumexp"])
def test_states_may_be_outputs_of_their_own(name: str) -> None:
    """As the rewriting has them that cuts a reduction into parts."""
    g = Graph()
    g.output(g.op(name, g.input("x", (40, 6)), axis=0, name="y"), "y")
    parts = shard.apply(g, "y", axis="i0", parts=4)
    assert f"state({name})" in {node.op for node in parts.nodes.values()}
    feeds = {"x": np.random.default_rng(0).standard_normal((40, 6)).astype(np.float32)}
    found = run(plan(parts, Mesh(2)), feeds, backend="simulated").outputs["y"]
    np.testing.assert_allclose(found, evaluate(g, feeds)["y"], rtol=1e-5)


def test_any_number_of_devices_has_the_same_bits() -> None:
    """Leaves are copied so that they lie alike, which asks for arrays in row-major order."""
    g = Graph()
    x, w = g.input("x", (24, 32)), g.input("w", (32, 16))
    g.output(ops.softmax(ops.relu(x.T.reshape(24, 32) @ w), axis=-1), "y")
    g.output(ops.sum(x, axis=1), "s")
    g.output(ops.conv(g.input("c", (2, 3, 9, 9)), g.input("k", (4, 3, 3, 3)), pads=1), "z")
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal(t.shape).astype(np.float32) for name, t in g.stored.items() if t.kind == "input"}
    made = {}
    for devices in (1, 2, 3):
        result = run(plan(g, Mesh((devices,)), same_bits=True), feeds, backend="simulated", verify=True)
        made[devices] = {name: array.tobytes() for name, array in result.outputs.items()}
    assert made[1] == made[2] == made[3]
