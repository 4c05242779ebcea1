"""Operators that write where they read: the bits of those that write elsewhere, and the room that this saves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tapestry_exec import evaluate, run
from tapestry_plan import Graph, Mesh, Tensor, ops, plan
from tapestry_plan.ir import BUILTIN_OPS, CellBlock, Op, is_in_place
from tapestry_plan.steps import shard_of
from tests.cutting import Array, Case
from tests.operator_cases import CASES


def overwritten(op: Op, attrs: Mapping[str, Any], arrays: Sequence[Array]) -> Iterator[tuple[bytes, bytes]]:
    """The output, made elsewhere and where an operand of its shape lies, for each of those it may lie at, else all."""
    g = Graph()
    g.op(op, *[g.input(f"x{k}", array.shape, array.dtype.name) for k, array in enumerate(arrays)], name="it", **attrs)
    node, signature = g.nodes["it"], g.signature("it")
    shard = shard_of(g, node, signature.index)
    out = np.zeros(shard.output_boxes[0].shape, g.stored[node.outputs[0]].dtype)
    op.block(np, [array.copy() for array in arrays], [out], shard)
    for k, array in enumerate(arrays):
        promised = list_promised(op)
        if array.shape == out.shape and array.itemsize == out.itemsize and (not promised or k in promised):
            given = [one.copy() for one in arrays]
            place = given[k].view(out.dtype)
            given[k] = given[k][...]
            given[k].setflags(write=False)  # as operands are
            op.block(np, given, [place], shard)
            yield out.tobytes(), place.tobytes()


def list_promised(op: Op) -> list[int]:
    """The operands that the output may lie at, of the first three."""
    return [k for k in range(3) if is_in_place(op.block, k)]


@pytest.mark.parametrize("case", [case for case in CASES if list_promised(BUILTIN_OPS[case.op])], ids=str)
def test_what_is_overwritten_changes_no_bit(case: Case) -> None:
    for seed in range(2):
        for elsewhere, there in overwritten(BUILTIN_OPS[case.op], case.attrs, case.arrays(seed)):
            assert there == elsewhere


@pytest.mark.heavy
@pytest.mark.parametrize("name", sorted(name for name, op in BUILTIN_OPS.items() if len(list_promised(op)) == 3))
def test_nor_in_large_blocks(name: str) -> None:
    """Where NumPy has several loops, and activations several tiles."""
    op = BUILTIN_OPS[name]
    rng = np.random.default_rng(1)
    case = next(case for case in CASES if case.op == name and case.shapes)
    arrays = [rng.permutation(np.resize(array, 33 * 17 * 401)).reshape(33, 17, 401) for array in case.arrays(0)]
    for elsewhere, there in overwritten(op, case.attrs, arrays):
        assert there == elsewhere


def test_some_operators_must_not_overwrite() -> None:
    """There is something to be careful about, and the check sees it."""
    found = set()
    for case in CASES:
        op = BUILTIN_OPS[case.op]
        if isinstance(op.block, CellBlock) and case.shapes and not list_promised(op):
            try:
                if any(there != elsewhere for elsewhere, there in overwritten(op, case.attrs, case.arrays(0))):
                    found.add(case.op)
            except ValueError:
                pass  # several outputs, or operands that are only read
    assert {"leaky_relu", "prelu"} <= found


def chain(x: Tensor, far: bool = True) -> Tensor:
    y = ops.tanh(x)
    return ops.exp(ops.relu(y)) if far else y


def convolved(x: Tensor, far: bool = True) -> Tensor:
    w = x.graph.constant("w", np.random.default_rng(2).standard_normal((8, 8, 3, 3)).astype(np.float32))
    y = ops.conv(x, w, pads=1)
    return ops.gelu(ops.sigmoid(y)) if far else y


def with_residual(x: Tensor, far: bool = True) -> Tensor:
    y = ops.tanh(x) + x.graph.input("y", x.shape)
    return ops.relu(y) if far else y


@pytest.mark.parametrize("word", [chain, convolved, with_residual])
@pytest.mark.parametrize("devices", [1, 2])
def test_what_is_between_takes_no_room(word: Any, devices: int) -> None:
    """It lies where the result will: a block takes what its first operator takes alone."""
    peaks = []
    for far in (False, True):
        g = Graph()
        g.output(word(g.input("x", (4, 8, 32, 32))[::-1], far), "out")  # which is not overwritten
        p = plan(g, Mesh((devices,)))
        peaks.append(p.peak_nbytes)
    assert p.fused and len(p.graph.nodes) == 1, "the operators are one block"
    assert peaks[0] == peaks[1]
    arrays = {
        name: np.random.default_rng(k).standard_normal(t.shape).astype(np.float32)
        for k, (name, t) in enumerate(g.stored.items())
        if t.kind == "input"
    }
    assert run(p, arrays).outputs["out"].tobytes() == evaluate(g, arrays)["out"].tobytes()


def test_simulated_gpus_take_no_more_than_the_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    """There an operator of a block runs as it would by itself, and keeps its promise."""
    from tapestry_exec.simulated import ordering

    taken: list[int] = []
    allocated = ordering.Checker.allocated

    def note(self: Any, name: str, data: Any, device: int | None) -> Any:
        if device is not None:
            taken.append(data.nbytes)
        return allocated(self, name, data, device)

    monkeypatch.setattr(ordering.Checker, "allocated", note)
    beside = []
    for far in (False, True):
        g = Graph()
        g.output(chain(g.input("x", (64, 64)), far), "out")
        p = plan(g, Mesh(1))
        taken.clear()
        x = np.random.default_rng(3).standard_normal((64, 64)).astype(np.float32)
        run(p, {"x": x}, backend="simulated", verify=True)
        assert p.peak_nbytes[0] in taken
        taken.remove(p.peak_nbytes[0])
        beside.append(sorted(taken))
    assert beside[0] == beside[1]
