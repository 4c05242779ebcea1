"""Sparse tensors of a model as dense ones, which everything behind the import takes.

values   [5, 7]                   two cells that are stored, in a tensor of dims [2, 3]
indices  [1, 5], or               of each its number in the flat tensor,
         [[0, 1], [1, 2]]         or its index along each axis
dense    [[0, 5, 0], [0, 0, 7]]   all other cells are zeros, of strings empty ones
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tapestry_plan.onnx import tuning
from tapestry_plan.onnx.nodes import Array, TooLargeToFold, schema_of
from tapestry_plan.onnx.order import all_graphs, names_of
from tapestry_plan.onnx.outside import FilesBeside, check_values, count_nbytes, count_stored
from tapestry_sets.limits import Budget, quote

ATTRIBUTE = "sparse_value"
"""Of ONNX's Constant, in place of `value`."""


class Filling:
    """The sparse tensors of a model, made dense one by one while an import may make more bytes.

    Parameters
    ----------
    model : onnx.ModelProto
        What it stores says how much may be made.
    outside : FilesBeside
        Where values and indices may lie.
    """

    def __init__(self, model: Any, outside: FilesBeside) -> None:
        stored = int(model.ByteSize())
        most = tuning.FOLDED_NBYTES + tuning.FOLDED_TIMES * count_stored(model)
        self._outside, self._budget = outside, Budget(max(0, min(most, tuning.MESSAGE_NBYTES - stored)))

    @property
    def nbytes(self) -> int:
        """What was made by now."""
        return self._budget.spent

    def fill_initializers(self, model: Any) -> Any:
        """The model with dense initializers alone, those of graphs inside nodes too: a copy where it had others."""
        if not any(map(_list_sparse, all_graphs(model))):
            return model
        copy = _copied(model)
        for graph in all_graphs(copy):
            for sparse in _list_sparse(graph):
                name = sparse.values.name
                if not name:
                    raise ValueError(
                        f"a sparse initializer of graph {quote(graph.name)} has no name; its values carry it: export "
                        "the model again"
                    )
                graph.initializer.append(_to_tensor(self.read_initializer(sparse), name))
            if _list_sparse(graph):
                graph.ClearField("sparse_initializer")
        return copy

    def fill_constants(self, model: Any, opset: int) -> Any:
        """The model whose Constants have dense values alone: a copy where they had others."""
        if not any(_has_sparse(node, opset) for graph in all_graphs(model) for node in graph.node):
            return model
        copy = _copied(model)
        for graph in all_graphs(copy):
            for name, node in names_of(graph):
                if not _has_sparse(node, opset):
                    continue
                for one in node.attribute:
                    if one.name == ATTRIBUTE and one.type == one.SPARSE_TENSOR:
                        dense = self._read(one.sparse_tensor, f"node {quote(name)} (Constant): its {ATTRIBUTE}")
                        one.Clear()
                        one.name, one.type = "value", one.TENSOR
                        one.t.CopyFrom(_to_tensor(dense, name))
        return copy

    def read_initializer(self, sparse: Any) -> Array:
        """The dense array of a sparse initializer.

        Raises
        ------
        ValueError
            For values and indices that do not fit each other or the dims, indices out of range, given twice or out of
            order, a type without a zero, and more bytes than an import may make.
        """
        return self._read(sparse, f"sparse initializer {quote(sparse.values.name)}")

    def _read(self, sparse: Any, where: str) -> Array:
        from onnx import TensorProto

        dims = [int(extent) for extent in sparse.dims]
        if not dims or min(dims) < 1:
            raise ValueError(
                f"{where} has dims {quote(dims)}; one or more are needed, each at least 1: export the model again"
            )
        whole = TensorProto(name=sparse.values.name, data_type=sparse.values.data_type, dims=dims)
        nbytes, left = count_nbytes(whole), self._budget.left
        if nbytes > left:
            raise TooLargeToFold(
                f"{where} of dims {quote(dims)} takes {nbytes:,} bytes when dense, where {left:,} are left of the "
                f"{self._budget.most:,} that known values may take; store it dense beside the model, or give it as an "
                "input"
            )
        self._budget.spend(nbytes)
        values = self._read_part(sparse.values)
        if values.ndim != 1:
            raise ValueError(f"{where} has values of dims {quote(list(values.shape))}; they are one list: [NNZ]")
        cells = self._find_cells(sparse, dims, len(values), where)
        is_text = values.dtype.kind in "OSU"
        dense = np.full(dims, "", object) if is_text else np.zeros(dims, values.dtype)
        if len(values) < dense.size and not is_text and dense.flat[0] != 0:
            raise ValueError(f"{where} is of {values.dtype}, which has no zero for the cells between: store it dense")
        dense.reshape(-1)[cells] = values
        return dense

    def _read_part(self, tensor: Any) -> Array:
        check_values(tensor)
        return self._outside.read(tensor)

    def _find_cells(self, sparse: Any, dims: list[int], count: int, where: str) -> Array:
        """The numbers of the stored cells in the flat tensor."""
        from onnx import TensorProto

        if not count and not sparse.HasField("indices"):
            return np.empty(0, np.int64)
        if sparse.indices.data_type != TensorProto.INT64:
            raise ValueError(
                f"{where} has indices of type {sparse.indices.data_type}; ONNX has them of {TensorProto.INT64}, INT64: "
                "export the model again"
            )
        indices = self._read_part(sparse.indices)
        if indices.shape not in ((count,), (count, len(dims))):
            raise ValueError(
                f"{where} has {count} values and indices of dims {quote(list(indices.shape))}; [{count}] or "
                f"[{count}, {len(dims)}] are needed for dims {quote(dims)}: export the model again"
            )
        most = np.array(dims if indices.ndim == 2 else [int(np.prod(dims))])
        rows = indices.reshape(count, len(most))
        beyond = ((rows < 0) | (rows >= most)).any(axis=1)
        if beyond.any():
            row = int(beyond.argmax())
            raise ValueError(
                f"{where}: index {row} is {quote(indices[row].tolist())}, which is not a cell of dims {quote(dims)}: "
                "export the model again"
            )
        cells = np.asarray(np.ravel_multi_index(tuple(rows.T), dims)) if indices.ndim == 2 else indices
        steps = np.diff(cells)
        if (steps <= 0).any():
            row = int((steps <= 0).argmax()) + 1
            fault = "is there twice" if not steps[row - 1] else f"comes after {quote(indices[row - 1].tolist())}"
            raise ValueError(
                f"{where}: index {row}, {quote(indices[row].tolist())}, {fault}; indices ascend, each once: export the "
                "model again"
            )
        return cells


def _list_sparse(graph: Any) -> list[Any]:
    return list(getattr(graph, "sparse_initializer", ()))  # functions have none


def _has_sparse(node: Any, opset: int) -> bool:
    """Whether a node is a Constant of a sparse tensor, in an opset that has such."""
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
        return False
    named = any(one.name == ATTRIBUTE and one.type == one.SPARSE_TENSOR for one in node.attribute)
    return named and ATTRIBUTE in schema_of("Constant", opset).attributes


def _to_tensor(array: Array, name: str) -> Any:
    from onnx import numpy_helper

    return numpy_helper.from_array(array, name)


def _copied(model: Any) -> Any:
    copy = type(model)()
    copy.CopyFrom(model)
    return copy
