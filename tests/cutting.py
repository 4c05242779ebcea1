"""Operators cut into parts: each part run on poisoned blocks as an executor hands them over, and the parts merged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st
from msgspec.structs import replace
from numpy.typing import NDArray

from tapestry_plan.ir import Op, Shard
from tapestry_plan.ir.signature import Operand, Signature, parts_of
from tapestry_sets import AffineMap, Box, IndexProjection

Array = NDArray[Any]
MERGE: dict[str | None, Any] = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


# -- running blocks ----------------------------------------------------------------------------------------


def poisoned(shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """An array that no result may depend on: NaN, or a conspicuous integer."""
    return np.full(shape, np.nan if dtype.kind == "f" else 99, dtype)


def input_block(signature: Signature, k: int, index: Box, array: Array) -> tuple[Box | None, Array | None]:
    """The block of input k as an executor hands it over: only the cells of the exact region are set.

    It is a slice of a larger buffer on purpose, so it is not contiguous.
    """
    box = signature.input_box(k, index)
    if box is None:
        return None, None
    outer = poisoned([n + 1 for n in box.shape], array.dtype)
    block = outer[(..., *(slice(0, n) for n in box.shape))]
    if signature.inputs[k].pad is not None:
        outside = np.ones(box.shape, bool)
        low = [max(0, -a) for a in box.start]
        high = [n - max(0, b - m) for n, b, m in zip(box.shape, box.stop, array.shape, strict=True)]
        outside[tuple(map(slice, low, high))] = False
        block[outside] = signature.inputs[k].pad
    points = signature.input_region(k, index, array.shape).points()
    block[tuple((points - np.array(box.start, np.int64)).T)] = array[tuple(points.T)]
    return box, block


def run_shard(op: Op, signature: Signature, attrs: dict[str, Any], arrays: Sequence[Array], index: Box) -> Any:
    """One shard's output boxes and blocks."""
    blocks = [input_block(signature, k, index, array) for k, array in enumerate(arrays)]
    boxes = [signature.output_box(k, index) for k in range(len(signature.outputs))]
    out_boxes = tuple(box for box in boxes if box is not None)
    attrs = op.complete(attrs)
    dtypes = op.dtype([array.dtype.name for array in arrays], attrs)
    outputs = [poisoned(box.shape, np.dtype(d)) for box, d in zip(out_boxes, dtypes, strict=True)]
    shard = Shard(index, signature, attrs, tuple(box for box, _ in blocks), out_boxes, None)
    nbytes = op.workspace(shard, outputs[0].itemsize)
    shard = Shard(index, signature, attrs, shard.input_boxes, out_boxes, np.full(nbytes, 0xFF, np.uint8))
    kept = [None if block is None else block.copy() for _, block in blocks]
    op.block(np, [block for _, block in blocks], outputs, shard)
    for before, (_, after) in zip(kept, blocks, strict=True):
        if before is not None:
            np.testing.assert_array_equal(before, after, "a block function changed an input")
    return out_boxes, outputs


def run_cut(op: Op, attrs: dict[str, Any], arrays: Sequence[Array], cut: dict[str, int] | None = None) -> list[Array]:
    """All shards of a cut of the index space, merged."""
    shapes = [array.shape for array in arrays]
    signature = op.signature(shapes, attrs)
    whole = [operand.projection.bounding_box(signature.index) for operand in signature.outputs]
    signature.validate(shapes, [box.shape for box in whole], op.name)
    results: list[Array | None] = [None] * len(whole)
    written: list[Array] = [np.zeros(box.shape, bool) for box in whole]
    for index in cut_boxes(signature, cut or {}):
        boxes, blocks = run_shard(op, signature, attrs, arrays, index)
        for k, (box, block) in enumerate(zip(boxes, blocks, strict=True)):
            if results[k] is None:
                results[k] = np.zeros(whole[k].shape, block.dtype)
            at = tuple(map(slice, box.start, box.stop))
            target = results[k]
            assert target is not None
            done = written[k][at]
            target[at] = np.where(done, MERGE.get(op.reduction, np.add)(target[at], block), block)
            assert signature.reductions or not done.any()
            written[k][at] = True
    assert all(mask.all() for mask in written)
    return [array for array in results if array is not None]


def cut_boxes(signature: Signature, cut: dict[str, int]) -> list[Box]:
    """The index boxes of a cut, axis name -> number of parts."""
    pieces: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((), ())]
    for axis in signature.axes:
        ranges = parts_of(axis.size, cut.get(axis.name, 1))
        pieces = [((*start, a), (*shape, b - a)) for start, shape in pieces for a, b in ranges]
    return [Box(start, shape) for start, shape in pieces]


def close(actual: Array, wanted: Array, bound: float = 2e-5) -> None:
    """Same dtype, shape and values, floats within `bound` of the largest."""
    assert actual.dtype == wanted.dtype and actual.shape == wanted.shape
    if actual.dtype.kind != "f":
        np.testing.assert_array_equal(actual, wanted)
        return
    assert not np.isnan(actual).any(), "a result depends on a cell that was not given"
    scale = max(1e-3, float(np.abs(wanted).max()))
    np.testing.assert_allclose(actual, wanted, rtol=0, atol=bound * scale)


# -- the reference -----------------------------------------------------------------------------------------


def ort(
    op_type: str, arrays: Sequence[Array | None], opset: int = 21, dtype: Any = None, outputs: int = 1, **attrs: Any
) -> Any:
    """The output of a model of one node, or a list of several, by ONNX Runtime; an input that is None is left out."""
    import onnxruntime  # here, so that a machine with a GPU and without ONNX runs the tests that compare with NumPy
    from onnx import helper

    given = {f"x{k}": array for k, array in enumerate(arrays) if array is not None}
    reads = ["" if array is None else f"x{k}" for k, array in enumerate(arrays)]
    names = ["y", *(f"y{k}" for k in range(1, outputs))]
    node = helper.make_node(op_type, reads, names, **attrs)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
    ]
    out_type = inputs[0].type.tensor_type.elem_type if dtype is None else dtype
    made = [helper.make_tensor_value_info(name, out_type, None) for name in names]
    graph = helper.make_graph([node], "one", inputs, made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    results = session.run(None, given)
    return results[0] if outputs == 1 else results


@dataclass(frozen=True)
class Case:
    """An operator with attributes on random operands, and what says what comes out: an ONNX node, or a function.

    Parameters
    ----------
    dtype, dtypes : str, tuple of str
        Of all operands, or of each.
    ranges : dict of int to (int, int)
        Operands whose cells are integers of a range.
    positive, within : tuple of int
        Operands whose cells are at least 1/2, or between -1 and 1.
    oracle : callable, optional
        ``(op, attrs, arrays) -> array or tuple of arrays``, instead of ONNX Runtime.
    """

    op: str
    shapes: tuple[tuple[int, ...], ...]
    attrs: dict[str, Any] = field(default_factory=dict)
    onnx: str = ""
    onnx_attrs: dict[str, Any] = field(default_factory=dict)
    onnx_extra: tuple[Any, ...] = ()
    dtype: str = "float32"
    positive: tuple[int, ...] = ()
    reorder: Callable[[Array], Array] = lambda array: array
    oracle: Callable[[str, dict[str, Any], Sequence[Array]], Any] | None = None
    dtypes: tuple[str, ...] = ()
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)
    within: tuple[int, ...] = ()
    opset: int = 21
    onnx_dtype: str = ""

    def arrays(self, seed: int = 0) -> list[Array]:
        rng = np.random.default_rng(seed)
        dtypes = [np.dtype(name) for name in self.dtypes or (self.dtype,) * len(self.shapes)]
        return [
            self._drawn(rng, k, shape, dtype) for k, (shape, dtype) in enumerate(zip(self.shapes, dtypes, strict=True))
        ]

    def _drawn(self, rng: np.random.Generator, k: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        if k in self.ranges:
            return rng.integers(*self.ranges[k], shape).astype(dtype)
        if dtype.kind in "iub":
            low, high = {"i": (-9, 10), "u": (0, 19), "b": (0, 2)}[dtype.kind]
            return rng.integers(low, high, shape).astype(dtype)
        array: Array = rng.normal(size=shape).astype(dtype)
        if k in self.within:
            return np.tanh(array)
        return np.asarray(np.abs(array) + dtype.type(0.5)) if k in self.positive else array

    def expected(self, arrays: Sequence[Array]) -> list[Array]:
        if self.oracle is not None:
            made = self.oracle(self.op, self.attrs, arrays)
            return [np.asarray(array) for array in (made if isinstance(made, tuple) else (made,))]
        extra = [None if value is None else np.asarray(value) for value in self.onnx_extra]
        from onnx import helper

        dtype = None if not self.onnx_dtype else helper.np_dtype_to_tensor_dtype(np.dtype(self.onnx_dtype))
        return [self.reorder(ort(self.onnx, [*arrays, *extra], self.opset, dtype, **self.onnx_attrs))]

    def __str__(self) -> str:
        shown = ",".join("x".join(map(str, shape)) or "scalar" for shape in self.shapes)
        attrs = ",".join(f"{key}={value}" for key, value in self.attrs.items())
        dtype = "" if self.dtype == "float32" and not self.dtypes else ",".join(self.dtypes) or self.dtype
        return f"{self.op}[{shown}]{attrs}{dtype}".replace(" ", "")


# -- cuts and orders of index axes ------------------------------------------------------------------------


def backwards(signature: Signature) -> Signature:
    """The signature with its index axes in the reverse order."""
    rank = len(signature.axes)

    def turned(operand: Operand) -> Operand:
        p = operand.projection
        rows = tuple((*row[:rank][::-1], *row[rank:]) for row in p.map.matrix)
        splits = tuple((rank - 1 - axis, q) for axis, q in p.splits)
        return replace(operand, projection=IndexProjection(AffineMap(rows, p.map.offset), p.shape, splits))

    inputs, outputs = map(turned, signature.inputs), map(turned, signature.outputs)
    return Signature(signature.axes[::-1], tuple(inputs), tuple(outputs))


def broadcastable(data: st.DataObject, shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape that broadcasts to `shape`: leading axes left out, others set to 1."""
    first = data.draw(st.integers(0, len(shape)), "axes left out")
    return tuple(1 if data.draw(st.booleans(), "one") else n for n in shape[first:])


def any_cut(data: st.DataObject, signature: Signature) -> dict[str, int]:
    return {axis.name: data.draw(st.integers(1, axis.size), axis.name) for axis in signature.axes}
