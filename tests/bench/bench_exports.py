"""Plans taken home: the same tensors in the same places in JAX and in PyTorch, what comes out, and what XLA moves.

python tests/bench/bench_exports.py [--write]

Needs jax and torch (the extra `export`). Each program is written a second time in `jax.numpy`, with
`with_sharding_constraint` at every result of which the plan tells where it lies, and compiled for forced CPU devices.
Values are compared with the unsharded ones, and the bytes of XLA's collectives (`xla_bytes.py`) with those of the plan.
With DTensor four processes on gloo make the same of local tensors. Whether each device, or process, has the cells that
the plan gives it is compared too. BERT, GPT-2 and ResNet run in JAX value by value as their files have them
(`onnx_in_jax.py`), and DTensor places all of their tensors.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import socket
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
import onnx_in_jax  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import xla_bytes  # noqa: E402 - which forces the devices, before the first one is asked for
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.tensor import Replicate, distribute_tensor  # noqa: E402

from tapestry_exec import evaluate  # noqa: E402
from tapestry_plan import Graph, Mesh, ShardPlan, load_onnx, ops, plan  # noqa: E402
from tapestry_plan.steps import HOST, Compute, Copy, Reduce  # noqa: E402
from tapestry_sets import Box  # noqa: E402

RESULTS = HERE / "results" / "exports.md"
Constrain = Callable[[str, Any], Any]


class Case(NamedTuple):
    """A graph, the same in a library's words, and a mesh."""

    graph: Callable[[], Graph]
    words: Callable[[Any, Mapping[str, Any], Constrain], Any]
    mesh: Mesh
    asked: dict[str, Any]


def mlp() -> Graph:
    g = Graph()
    x, w, v = g.input("x", (256, 512)), g.input("w", (512, 1024)), g.input("v", (1024, 512))
    h = ops.relu(ops.matmul(x, w, name="first"), name="act")
    g.output(ops.matmul(h, v, name="second"), "y")
    return g


def say_mlp(xp: Any, given: Mapping[str, Any], at: Constrain) -> Any:
    h = at("act", xp.maximum(at("first", given["x"] @ given["w"]), 0))
    return at("second", h @ given["v"])


def say_mlp_in_torch(given: Mapping[str, Any], at: Constrain) -> Any:
    return at("second", at("act", torch.relu(at("first", given["x"] @ given["w"]))) @ given["v"])


def convolved() -> Graph:
    g = Graph()
    y = ops.conv(g.input("x", (1, 8, 64, 64)), g.input("w", (16, 8, 3, 3)), pads=1, name="one")
    g.output(ops.conv(ops.relu(y, name="act"), g.input("v", (8, 16, 3, 3)), pads=1, name="two"), "y")
    return g


def say_convolved(xp: Any, given: Mapping[str, Any], at: Constrain) -> Any:
    def conv(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (1, 1), [(1, 1)] * 2)

    y = at("act", jnp.maximum(at("one", conv(given["x"], given["w"])), 0))
    return at("two", conv(y, given["v"]))


def attended() -> Graph:
    g = Graph()
    x = g.input("x", (256, 256))

    def split(t: Any) -> Any:
        return t.reshape(256, 8, 32).permute_dims((1, 0, 2))

    q, k, v = (split(ops.matmul(x, g.input(f"w{n}", (256, 256)), name=n)) for n in "qkv")
    seen = ops.matmul(ops.softmax(ops.matmul(q, k.permute_dims((0, 2, 1)), name="scores"), name="soft"), v, name="seen")
    g.output(ops.matmul(seen.permute_dims((1, 0, 2)).reshape(256, 256), g.input("wo", (256, 256)), name="out"), "y")
    return g


def say_attended(xp: Any, given: Mapping[str, Any], at: Constrain) -> Any:
    def split(t: Any) -> Any:
        return t.reshape(256, 8, 32).transpose(1, 0, 2)

    q, k, v = (split(at(n, given["x"] @ given[f"w{n}"])) for n in "qkv")
    soft = at("soft", jax.nn.softmax(at("scores", q @ k.transpose(0, 2, 1))))
    return at("out", at("seen", soft @ v).transpose(1, 0, 2).reshape(256, 256) @ given["wo"])


CASES: dict[str, Case] = {
    "MLP, 4 devices": Case(mlp, say_mlp, Mesh(4), {}),
    "MLP, 2×4": Case(mlp, say_mlp, Mesh((2, 4)), {}),
    "MLP, hidden layer in parts": Case(
        mlp, say_mlp, Mesh(4), {"fix": {"first": {"n": 4}, "act": {"i1": 4}, "second": {"k": 4}}, "expand": False}
    ),
    "two convolutions, rows": Case(
        convolved,
        say_convolved,
        Mesh(4),
        {"fix": {"one": {"h": 4}, "act": {"i2": 4}, "two": {"h": 4}}, "expand": False},
    ),
    "attention, 4 devices": Case(attended, say_attended, Mesh(4), {"expand": False}),
    "attention, 2×2": Case(attended, say_attended, Mesh((2, 2)), {"expand": False}),
}


NETWORKS = {"BERT": "bert", "GPT-2": "gpt2", "ResNet": "resnet"}
"""By name their files, whose even plans of space "mesh" on 2×2 devices are exported whole."""
MODELS = HERE.parent / "models"


def list_spans(p: ShardPlan) -> dict[str, dict[int, list[range]]]:
    """By tensor and device the cells that the plan's steps place or make there first, as ranges around them."""
    buffers = {buffer.id: buffer for buffer in p.buffers}
    boxes: dict[tuple[str, int], list[Box]] = {}
    for step in p.steps:
        is_placed = isinstance(step, Copy) and step.src == HOST and step.piece is None
        numbers = step.outputs if isinstance(step, Compute) else ()
        if is_placed or isinstance(step, Reduce):
            numbers = (step.dst if isinstance(step, Copy) else step.output,)
        for number in numbers:
            buffer = buffers[number]
            known = boxes.setdefault((buffer.tensor, buffer.device), [])
            if buffer.part < 0 and (is_placed or not known):
                regions = () if isinstance(step, Compute) else step.regions
                known += [Box.from_bounds(*region.bounds()) for region in regions] or [buffer.box]
    found: dict[str, dict[int, list[range]]] = {}
    for (name, device), each in boxes.items():
        if each:
            spans = zip(*(zip(box.start, box.stop, strict=True) for box in each), strict=True)
            found.setdefault(name, {})[device] = [
                range(min(a), max(b)) for a, b in (zip(*x, strict=True) for x in spans)
            ]
    return found


def fits(said: Any, name: str, theirs: list[range], ours: list[range]) -> bool:
    """Whether a device of the library has the plan's cells; of an input with a halo those but the halo."""
    halos = said.placements[name].halos
    pairs = zip(theirs, ours, halos, strict=True)
    return all(a == b or (halo and b.start <= a.start and a.stop <= b.stop) for a, b, halo in pairs)


def make(case: Case) -> tuple[Graph, ShardPlan, dict[str, np.ndarray]]:
    g = case.graph()
    return g, plan(g, case.mesh, space="mesh", fuse=False, **case.asked), feed(g)


def feed(g: Graph) -> dict[str, np.ndarray]:
    """Random inputs: numbers, and indices that every table has."""
    rng = np.random.default_rng(0)
    given = {}
    for t in g.stored.values():
        if t.kind == "input":
            is_number = np.dtype(t.dtype).kind == "f"
            values = 0.1 * rng.standard_normal(t.shape) if is_number else rng.integers(0, 2, t.shape)
            given[t.name] = values.astype(t.dtype)
    return given


def run_jax(case: Case) -> dict[str, Any]:
    """What comes out in JAX of a program in its words, and what XLA moves."""
    g, p, feeds = make(case)
    found = run_in_jax(g, p, feeds, lambda given, at: {"y": case.words(jnp, given, at)})
    assert not p.nbytes_moved or found["xla"] <= 2 * p.nbytes_moved, "XLA moves more than twice what the plan does"
    return found


def run_network(file: str) -> dict[str, Any]:
    """The same of a network in its file's words, with weights that lie as the plan has them."""
    model, g = onnx.load(MODELS / f"{file}.onnx"), load_onnx(MODELS / f"{file}.onnx")
    weights = {t.name: np.asarray(t.data) for t in g.stored.values() if t.kind == "constant"}
    p = plan(g, Mesh((2, 2)), space="mesh", expand=False)
    given = {name: array for name, array in (feed(g) | weights).items() if name in p.graph.stored}

    def words(values: Mapping[str, Any], at: Constrain) -> Any:
        made = onnx_in_jax.run_nodes(model, values, at)
        return {label: made[label] for label in g.outputs}

    return run_in_jax(g, p, given, words, weights)


def run_in_jax(
    g: Graph, p: ShardPlan, given: Mapping[str, np.ndarray], words: Any, weights: Mapping[str, np.ndarray] | None = None
) -> dict[str, Any]:
    axes = p.to_jax().mesh
    mesh = jax.sharding.Mesh(np.array(jax.devices()[: p.mesh.size]).reshape(axes.shape), axes.names)
    said = p.to_jax(mesh)
    said.check()
    used = set[str]()

    def constrain(name: str, value: Any) -> Any:
        if name not in said:
            return value
        used.add(name)
        return jax.lax.with_sharding_constraint(value, said[name])

    # What only shapes depend on is no argument, but part of the program.
    names = [name for name in given if name in said]
    whole = {name: value for name, value in given.items() if name not in said}

    def function(*values: Any) -> Any:
        return words(whole | dict(zip(names, values, strict=True)), constrain)

    jitted = jax.jit(function, in_shardings=tuple(said[name] for name in names), out_shardings=dict(said.outputs))
    shapes = [jax.ShapeDtypeStruct(given[name].shape, given[name].dtype) for name in names]
    text = jitted.lower(*shapes).compile().as_text()
    results = jitted(*(jax.device_put(given[name], said[name]) for name in names))
    results_of = {t.name for t in p.graph.stored.values() if t.kind == "result"} & set(said)
    feeds = {name: value for name, value in given.items() if name not in (weights or {})}
    wanted = evaluate(g, feeds)
    _, moved = xla_bytes.count_bytes(text, p.mesh.size)
    lies, extents = list_spans(p), {name: p.graph.stored[name].shape for name in said}

    def is_placed(name: str, shards: Mapping[int, Any], shape: tuple[int, ...]) -> bool:
        """Whether the devices have the plan's cells; those that the plan leaves idle have copies."""
        placed = {d: [range(*each.indices(n)) for each, n in zip(at, shape, strict=True)] for d, at in shards.items()}
        return all(fits(said, name, placed[d], mine) for d, mine in lies[name].items())

    same = all(
        is_placed(name, {d.id: at for d, at in said[name].devices_indices_map(extents[name]).items()}, extents[name])
        for name in said
    )
    for label, name in p.graph.outputs.items():
        if name in lies and said.outputs[label] == said[name]:
            shards = {shard.device.id: shard.index for shard in results[label].addressable_shards}
            same = same and is_placed(name, shards, extents[name])
    taken: dict[str, Any] = {}
    exec(said.to_code(), taken)
    assert taken["placed"] == dict(said) and taken["outputs"] == dict(said.outputs)
    assert used >= results_of, f"never said where {results_of - used} lie"
    return {
        "tensors": len(said),
        "idle": sum(bool(one.idle) for one in said.placements.values()),
        "difference": max(
            float(np.abs(np.asarray(results[label]) - array).max() / np.abs(array).max())
            for label, array in wanted.items()
        ),
        "in its place": same,
        "xla": moved,
        "plan": p.nbytes_moved,
    }


def run_rank(rank: int, port: int, results: Any) -> None:
    """One of four processes that make the MLP of local tensors."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=4)
    found = {}
    for name in ("MLP, 4 devices", "MLP, hidden layer in parts"):
        case = CASES[name]
        g, p, feeds = make(case)
        said = p.to_dtensor()
        mesh = init_device_mesh("cpu", said.mesh.shape, mesh_dim_names=said.mesh.names)
        given = {key: distribute_tensor(torch.from_numpy(value), mesh, said[key]) for key, value in feeds.items()}
        lies = list_spans(p)

        def has_its_cells(key: str, local: Any, whole: np.ndarray, lies: Any = lies, rank: int = rank) -> bool:
            mine = whole[tuple(slice(each.start, each.stop) for each in lies[key][rank])]
            return local.shape == mine.shape and bool(np.abs(local - mine).max() < 1e-3 * np.abs(whole).max())

        placed = all(has_its_cells(key, given[key].to_local().numpy(), feeds[key]) for key in given)

        def constrain(key: str, value: Any, said: Any = said, mesh: Any = mesh) -> Any:
            return value.redistribute(mesh, said[key])

        made = say_mlp_in_torch(given, constrain)
        whole, wanted = made.full_tensor().numpy(), evaluate(g, feeds)["y"]
        local = made.to_local().numpy()
        same = placed and has_its_cells("second", local, wanted)
        found[name] = float(np.abs(whole - wanted).max() / np.abs(wanted).max()), same
    found |= {name: place_all(file, rank) for name, file in NETWORKS.items()}
    results[rank] = found
    dist.destroy_process_group()


def place_all(file: str, rank: int) -> tuple[float, bool]:
    """All tensors of a network's plan as DTensors, there and back: the difference, and whether cells are the plan's."""
    p = plan(load_onnx(MODELS / f"{file}.onnx"), Mesh((2, 2)), space="mesh", expand=False)
    said, lies, same, worst = p.to_dtensor(), list_spans(p), True, 0.0
    said.check()
    mesh = init_device_mesh("cpu", said.mesh.shape, mesh_dim_names=said.mesh.names)
    for name, placements in said.items():
        shape = p.graph.stored[name].shape
        whole = torch.arange(int(np.prod(shape)), dtype=torch.float64).reshape(shape)
        placed = distribute_tensor(whole, mesh, placements)
        if rank in lies[name]:
            mine = lies[name][rank]
            told = said.placements[name]
            local, halo = placed.to_local(), any(told.halos)
            wanted = whole[tuple(slice(each.start, each.stop) for each in mine)]
            same = same and (bool(torch.isin(local, wanted).all()) if halo else torch.equal(local, wanted))
        back = placed.full_tensor()
        again = distribute_tensor(whole, mesh, [Replicate()] * len(placements)).redistribute(mesh, placements)
        same = same and torch.equal(again.to_local(), placed.to_local())
        worst = max(worst, float((back - whole).abs().max()))
    return worst, same


def run_torch() -> dict[str, tuple[float, bool]]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with torch.multiprocessing.get_context("spawn").Manager() as manager:
        results = manager.dict()
        torch.multiprocessing.spawn(run_rank, (port, results), nprocs=4)
        ranks = [results[rank] for rank in range(4)]
    return {name: (max(one[name][0] for one in ranks), all(one[name][1] for one in ranks)) for name in ranks[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    write = parser.parse_args().write
    lines = [
        "# Plans in JAX and PyTorch",
        "",
        f"{datetime.date.today()}, Python {platform.python_version()}, JAX {jax.__version__}, PyTorch "
        f"{torch.__version__}, forced CPU devices. Written by `python tests/bench/bench_exports.py --write`.",
        "",
        "Differences are of the largest value, against the unsharded run. Bytes are what all devices receive: of XLA's "
        "collectives as rings run them, and of the plan, which gives inputs with their halos.",
        "",
        "Idle: tensors of which devices have copies that the plan leaves without.",
        "",
        "| JAX | tensors told | idle | difference | devices have the plan's cells | B XLA moves | B the plan moves | "
        "ratio |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, row in (
        *((name, run_jax(case)) for name, case in CASES.items()),
        *((f"{name}, 2×2", run_network(file)) for name, file in NETWORKS.items()),
    ):
        assert row["difference"] < 1e-4 and row["in its place"], (name, row)
        ratio = f"{row['xla'] / row['plan']:.2f}" if row["plan"] else "–"
        lines.append(
            f"| {name} | {row['tensors']} | {row['idle']} | {row['difference']:.0e} | yes | "
            f"{row['xla']:,} | {row['plan']:,} | {ratio} |"
        )
        print(lines[-1])
    lines += [
        "",
        "| DTensor, four processes on gloo | difference | processes have the plan's cells |",
        "|---|---|---|",
    ]
    for name, (difference, same) in run_torch().items():
        assert difference < 1e-4 and same, (name, difference, same)
        lines.append(f"| {name} | {difference:.0e} | yes |")
        print(lines[-1])
    if write:
        RESULTS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
