"""Bytes that XLA moves: collectives of compiled programs on eight forced CPU devices, counted as rings run them.

python tests/bench/xla_bytes.py            prints one line a program: bytes of the busiest device, and in all
python tests/bench/xla_bytes.py --json     the same as JSON, for bench_bytes.py

Needs jax (the extra `bench`). Of a group of g devices with n bytes each receives 2·(g − 1)/g·n in an all-reduce,
(g − 1)/g·n in an all-gather, an all-to-all, or a reduce-scatter (n of what all have together); of a permutation each
receiver one block.
"""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any, NamedTuple

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

Spec = tuple[Any, ...]
"""For each axis the mesh's axis that cuts it, or None."""


class Program(NamedTuple):
    """A function of arrays, their shapes, and where they and its results lie on a mesh of named axes."""

    function: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    lies: tuple[Spec, ...]
    result: Any
    mesh: Mapping[str, int]


def convolve(x: jax.Array, w: jax.Array, stride: int = 1, pad: int = 0, dilation: int = 1, groups: int = 1) -> Any:
    return jax.lax.conv_general_dilated(
        x, w, (stride,) * 2, [(pad, pad)] * 2, rhs_dilation=(dilation,) * 2, feature_group_count=groups
    )


def rows_of(channels: int, size: int, kernel: int, mesh: Mapping[str, int], **how: int) -> Program:
    """A convolution to one channel of an image that is cut along its height, and its width on a mesh of two axes."""
    image = (None, None, *mesh)
    shapes = ((1, channels, size, size), (1, channels, kernel, kernel))
    return Program(partial(convolve, **how), shapes, (image, ()), image, mesh)


def layer(x: jax.Array, q: Any, k: Any, v: Any, o: Any, up: Any, down: Any, heads: int = 16) -> jax.Array:
    """A transformer layer without its normalizations."""

    def split(t: jax.Array) -> jax.Array:
        return t.reshape(len(x), heads, -1).transpose(1, 0, 2)

    seen = jax.nn.softmax(split(x @ q) @ split(x @ k).transpose(0, 2, 1)) @ split(x @ v)
    x = x + seen.transpose(1, 0, 2).reshape(len(x), -1) @ o
    return x + jax.nn.relu(x @ up) @ down


def train(x: jax.Array, t: jax.Array, w: jax.Array, v: jax.Array) -> Any:
    def loss(w: jax.Array, v: jax.Array) -> jax.Array:
        return jnp.sum((jax.nn.relu(x @ w) @ v - t) ** 2)

    dw, dv = jax.grad(loss, (0, 1))(w, v)
    return w - dw, v - dv


def through(view: Callable[[jax.Array], Any], n: int = 1 << 22) -> Program:
    """Cell by cell work before and after a view of cells that lie in blocks on four devices."""
    return Program(lambda x: jax.tree.map(jnp.tanh, view(jnp.exp(x))), ((n,),), (("d",),), ("d",), {"d": 4})


HALF = 1 << 21
MLP = ((1024, 256), (256, 1024), (1024, 256))
TRAINED = ((65_536, 1024), (65_536, 1024), (1024, 4096), (4096, 1024))
LAYER = ((512, 1024), *[(1024, 1024)] * 4, (1024, 4096), (4096, 1024))
COLUMNS, ROWS = (None, "d"), ("d", None)

PROGRAMS: dict[str, Program] = {
    "conv3": rows_of(16, 224, 3, {"h": 4}, pad=1),
    "conv7": rows_of(3, 224, 7, {"h": 4}, stride=2, pad=3),
    "conv3-strided": rows_of(64, 56, 3, {"h": 4}, stride=2, pad=1),
    "conv3-grid": rows_of(32, 64, 3, {"h": 4, "w": 2}, stride=2, pad=1),
    "conv3-dilated": rows_of(16, 32, 3, {"h": 8}, pad=8, dilation=8),
    "conv3-strided-dilated": rows_of(16, 64, 3, {"h": 4}, stride=2, pad=2, dilation=2),
    "conv3-groups": Program(
        partial(convolve, pad=1, groups=4), ((8, 16, 8, 8), (16, 4, 3, 3)), (("d",), ()), ("d",), {"d": 8}
    ),
    "product-k": Program(jnp.matmul, ((1024, 1024),) * 2, (COLUMNS, ROWS), (), {"d": 8}),
    "product-k-rows": Program(jnp.matmul, ((1024, 1024),) * 2, (COLUMNS, ROWS), ROWS, {"d": 8}),
    "product-grid": Program(jnp.matmul, ((1024, 1024),) * 2, (("a", "b"),) * 2, ("a", "b"), {"a": 2, "b": 4}),
    "rows-to-columns": Program(lambda x: x * 2, ((64, 64),), (ROWS,), COLUMNS, {"d": 8}),
    "mlp": Program(lambda x, w, v: jax.nn.relu(x @ w) @ v, MLP, ((), COLUMNS, ROWS), (), {"d": 8}),
    "layer": Program(layer, LAYER, ((), *[COLUMNS] * 3, ROWS, COLUMNS, ROWS), (), {"d": 8}),
    "training": Program(train, TRAINED, (ROWS, ROWS, (), ()), ((), ()), {"d": 8}),
    "reversed": through(lambda e: e[::-1]),
    "rolled": through(lambda e: jnp.roll(e, HALF)),
    "swapped": through(lambda e: jnp.concatenate([e[HALF:], e[:HALF]])),
    "transposed": through(lambda e: e.reshape(4, -1).T),
    "halves": through(lambda e: (e[:HALF], e[HALF:])),
    "conv3-phases": Program(
        lambda x, w: jnp.tanh(convolve(jnp.exp(x), w, pad=2, dilation=2)),
        ((1, 1, 64, 64), (1, 1, 3, 3)),
        ((None, None, "h"), ()),
        (None, None, "h"),
        {"h": 2},
    ),
}


def compile_text(program: Program) -> str:
    """The compiled program, as XLA prints it."""
    count = prod(program.mesh.values())
    mesh = Mesh(np.array(jax.devices()[:count]).reshape(*program.mesh.values()), tuple(program.mesh))

    def place(spec: Any) -> Any:
        if any(isinstance(part, tuple) for part in spec) or spec == ((), ()):
            return tuple(place(part) for part in spec)
        return NamedSharding(mesh, PartitionSpec(*spec))

    lies = tuple(NamedSharding(mesh, PartitionSpec(*spec)) for spec in program.lies)
    jitted = jax.jit(program.function, in_shardings=lies, out_shardings=place(program.result))
    return jitted.lower(*(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in program.shapes)).compile().as_text()


KINDS = ["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute"]
STEP = re.compile(rf"= (.*?) ({'|'.join(KINDS)})(?:-start)?\(")


def count_group(line: str, devices: int) -> int:
    """How many devices are in one group of a collective."""
    if found := re.search(r"replica_groups=mesh\[(.*?)\][^{]*\{(.*?)\}", line):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", found[1]))
        return prod(int(sizes[name]) for name in re.findall(r"'(\w+)'", found[2]))
    if found := re.search(r"replica_groups=\[\d+,(\d+)\]", line):
        return int(found[1])
    if found := re.search(r"replica_groups=\{\{([\d,]*)\}", line):
        return len(found[1].split(","))
    assert re.search(r"replica_groups=\{\}|source_target_pairs", line), line
    return devices


def count_bytes(text: str, devices: int) -> tuple[int, int]:
    """Bytes that the busiest device receives, and that all receive."""
    received = [0] * devices
    for line in text.splitlines():
        if not (found := STEP.search(line)):
            continue
        shapes = re.findall(r"(?:f32|s32|u32|pred|f16|bf16)\[([\d,]*)\]", found[1])
        widths = re.findall(r"(f32|s32|u32|pred|f16|bf16)\[", found[1])
        size = {"f32": 4, "s32": 4, "u32": 4, "pred": 1, "f16": 2, "bf16": 2}
        n = sum(size[w] * prod(int(k) for k in s.split(",") if k) for w, s in zip(widths, shapes, strict=True))
        assert n, line
        if found[2] == "collective-permute":
            pairs = re.search(r"source_target_pairs=\{(\{.*?\})\}", line)
            assert pairs, line
            for source, target in re.findall(r"\{(\d+),(\d+)\}", pairs[1]):
                received[int(target)] += n * (source != target)
            continue
        group = count_group(line, devices)
        share = {
            "all-reduce": 2 * (group - 1) * n // group,
            "all-gather": (group - 1) * n // group,
            "reduce-scatter": (group - 1) * n,
            "all-to-all": (group - 1) * n // group,
        }[found[2]]
        received = [one + share for one in received]
    return max(received), sum(received)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="one JSON object: by name [busiest, in all]")
    as_json = parser.parse_args().json
    found = {
        name: count_bytes(compile_text(program), prod(program.mesh.values())) for name, program in PROGRAMS.items()
    }
    if as_json:
        print(json.dumps({"version": jax.__version__, "bytes": found}))
        return
    for name, (busiest, total) in found.items():
        print(f"{name:24}{busiest:>14,}{total:>16,}")


if __name__ == "__main__":
    main()
