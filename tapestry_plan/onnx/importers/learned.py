"""Operators of the domain ai.onnx.ml, which classical models are written in: features made ready, and linear models.

They take a matrix with a row for each example, or one row as a vector. Where ONNX's text leaves something open, or
ONNX's reference differs, it is as in ONNX Runtime: results are single floats, and MAX of Normalizer has the sign.
"""

from __future__ import annotations

from math import floor, isnan
from typing import Any

import numpy as np

from tapestry_plan import ops
from tapestry_plan.ir import Tensor, concat
from tapestry_plan.onnx.nodes import Importing, Node, Result, refusal
from tapestry_sets.limits import quote
from tapestry_sets.views import pad

DOMAIN = "ai.onnx.ml"
"""What ONNX calls its domain of classical models."""
DTYPES = ("int32", "int64", "float32", "float64")
"""What its operators take."""
OF_ROWS = frozenset(
    f"{DOMAIN}::{name}"
    for name in (
        *("Imputer", "LinearClassifier", "LinearRegressor", "Normalizer", "SVMClassifier", "SVMRegressor", "Scaler"),
        *("TreeEnsemble", "TreeEnsembleClassifier", "TreeEnsembleRegressor"),
    )
)
"""Operators that make a row of each result from each row of a matrix, their only operand; ONNX tells few shapes."""
ROW = "n"
"""The index axis that these have where they are opaque."""


def scaler(at: Importing, node: Node) -> Result:
    """(x − offset) · scale, of each column; doubles are rounded behind it, integers before."""
    x = _rows(at, node)
    wide = "float64" if x.dtype == "float64" else "float32"
    offset, scale = (node.attrs.get(key, ()) for key in ("offset", "scale"))
    if len(offset) != len(scale) or len(scale) not in (1, x.shape[-1]):
        raise refusal(
            node, f"{len(offset)} offsets and {len(scale)} scales for {x.shape[-1]} columns; give one of each for all"
        )
    offset, scale = (
        at.graph.constant(f"{node.name}.{key}", np.array(values, np.float32).astype(wide))
        for key, values in (("offset", offset), ("scale", scale))
    )
    moved = ops.subtract(ops.astype(x, wide), offset)
    if wide == "float32":
        return ops.multiply(moved, scale, name=node.name)
    return ops.astype(ops.multiply(moved, scale), "float32", name=node.name)


def binarizer(at: Importing, node: Node) -> Result:
    """1 where a cell is above the threshold, else 0; integers are above a number where they are above its floor."""
    x, threshold = _operand(at, node), float(node.attrs.get("threshold", 0.0))
    if np.dtype(x.dtype).kind != "f":
        if not np.iinfo(x.dtype).min <= threshold <= np.iinfo(x.dtype).max:
            raise refusal(node, f"its threshold {threshold} is none of {x.dtype}")
        threshold = floor(threshold)
    limit = at.graph.constant(f"{node.name}.threshold", np.array(threshold, x.dtype))
    return ops.astype(ops.greater(x, limit), x.dtype, name=node.name)


def imputer(at: Importing, node: Node) -> Result:
    """Cells that are a number, or no number, become another one, which each column may have for itself."""
    x = _rows(at, node)
    floats, ints = (node.attrs.get(f"imputed_value_{key}", ()) for key in ("floats", "int64s"))
    is_float = np.dtype(x.dtype).kind == "f"
    values, others = (floats, ints) if is_float else (ints, floats)
    replaced = node.attrs.get("replaced_value_float", 0.0) if is_float else node.attrs.get("replaced_value_int64", 0)
    if others or len(values) not in (1, x.shape[-1]):
        raise refusal(
            node,
            f"{len(floats)} floats and {len(ints)} integers are imputed to {x.shape[-1]} columns of {x.dtype}; give "
            "one of that kind for all, or for each",
        )
    number = at.graph.constant(f"{node.name}.imputed", _as_dtype(node, values, x.dtype))
    if is_float and isnan(replaced):
        return ops.where(ops.isnan(x), number, x, name=node.name)
    old = at.graph.constant(f"{node.name}.replaced", _as_dtype(node, replaced, x.dtype))
    return ops.where(ops.equal(x, old), number, x, name=node.name)


def _as_dtype(node: Node, values: Any, dtype: str) -> Any:
    array = np.asarray(values).astype(np.float32 if np.dtype(dtype).kind == "f" else np.int64)
    with np.errstate(all="ignore"):
        found = array.astype(dtype)
    if np.dtype(dtype).kind != "f" and not np.array_equal(found, array):
        raise refusal(node, f"{dtype} has not all of {quote(values)}")
    return found


def normalizer(at: Importing, node: Node) -> Result:
    """Rows by their largest cell, with its sign, by the sum of sizes, or by their length, where that is not 0."""
    x = ops.astype(_rows(at, node), "float32")
    norm = node.attrs.get("norm", "MAX")
    if norm == "MAX":
        divisor = ops.max(x, (-1,), keepdims=True)
    elif norm == "L1":
        divisor = ops.sum(ops.abs(x), (-1,), keepdims=True)
    elif norm == "L2":
        divisor = ops.sqrt(ops.sum(x * x, (-1,), keepdims=True))
    else:
        raise refusal(node, f"its norm is {quote(norm)}; MAX, L1 and L2 are supported")
    one, zero = (at.graph.constant(f"{node.name}.{n}", np.float32(n)) for n in (1, 0))
    return ops.divide(x, ops.where(ops.equal(divisor, zero), one, divisor), name=node.name)


def regressor(at: Importing, node: Node) -> Result:
    """A product with the coefficients of each target, and a curve of it."""
    x, targets = _matrix(at, node), int(node.attrs.get("targets", 1))
    given, curve = node.attrs.get("intercepts", ()), node.attrs.get("post_transform", "NONE")
    if x.dtype != "float32":
        raise refusal(node, f"its operand is {x.dtype}; float32 is supported")
    if len(given) not in (0, targets) or (targets == 1 and curve != "NONE"):
        raise refusal(node, f"{len(given)} intercepts, and {quote(curve)}, for {targets} targets are not supported")
    return _bend(node, _scores(at, node, x, targets, given), curve, node.name)


def classifier(at: Importing, node: Node) -> Result:
    """The label of each row's largest score, of equal ones the first, and a curve of the scores."""
    x, given = ops.astype(_matrix(at, node), "float32"), node.attrs.get("intercepts", ())
    labels = node.attrs.get("classlabels_ints", ())
    if node.attrs.get("classlabels_strings"):
        raise refusal(node, "its labels are strings, which no graph has")
    if len(labels) < 2 or len(given) != len(labels):
        raise refusal(
            node, f"{len(given)} intercepts for {len(labels)} integer labels; as many, and two, are supported"
        )
    scores = _scores(at, node, x, len(labels), given)
    curve = node.attrs.get("post_transform", "NONE")
    made = _bend(node, scores, curve, node.name)
    return [ops.take(at.graph.constant(f"{node.name}.labels", np.array(labels)), ops.argmax(scores, 1)), made]


def _scores(at: Importing, node: Node, x: Tensor, count: int, given: Any) -> Tensor:
    """So many numbers of each row: products with coefficients, and intercepts where they are given."""
    stored = np.array(node.attrs["coefficients"], np.float32)
    if count < 1 or stored.size != count * x.shape[1]:
        raise refusal(node, f"{stored.size} coefficients for {x.shape[1]} columns and {count} results")
    known = [at.graph.constant(f"{node.name}.coefficients", stored.reshape(count, -1))]
    if len(given):
        known.append(at.graph.constant(f"{node.name}.intercepts", np.array(given, np.float32)))
    return ops.gemm(x, *known, trans_b=True)


def _bend(node: Node, scores: Tensor, curve: str, name: str) -> Tensor:
    if curve not in ("NONE", "LOGISTIC", "SOFTMAX"):
        raise refusal(node, f"its post_transform is {quote(curve)}; NONE, LOGISTIC and SOFTMAX are supported")
    if curve == "NONE":
        return scores
    return ops.sigmoid(scores, name=name) if curve == "LOGISTIC" else ops.softmax(scores, -1, name=name)


def extracted(at: Importing, node: Node) -> Result:
    """Cells of the last axis, by number; a vector is one row."""
    x, indices = _operand(at, node), node.inputs[1]
    if at.is_known(indices):
        places: Any = at.value(indices).reshape(-1)
    else:
        tensor = at.tensor(indices)
        places = tensor if tensor.ndim == 1 else tensor.reshape(-1)
    return ops.take(x if x.ndim > 1 else x.expand_dims(0), places, -1, name=node.name)


def joined(at: Importing, node: Node) -> Result:
    """Matrices side by side, each with so many columns: the first of them, or zeros behind them."""
    given = [_operand(at, node, k) for k in range(len(node.inputs))]
    counts = node.attrs.get("inputdimensions", ())
    rows = [one.expand_dims(0) if one.ndim == 1 else one for one in given]
    if len(counts) != len(rows) or min(counts) < 1 or any(one.ndim != 2 for one in rows):
        shapes = [one.shape for one in given]
        raise refusal(node, f"inputdimensions {quote(list(counts))} for operands of {quote(shapes)}")
    if len({one.shape[0] for one in rows}) > 1:
        raise ValueError(f"its operands have {quote([one.shape[0] for one in rows])} rows; as many are needed")
    fitted = [pad(one, [(0, 0), (0, max(0, n - one.shape[1]))])[:, :n] for one, n in zip(rows, counts, strict=True)]
    return concat([ops.astype(one, "float32") for one in fitted], axis=1)


def encoded(at: Importing, node: Node) -> Result:
    """An axis more, with 1 at the category that a cell is, as an integer; all zeros where it is none."""
    x, known = _operand(at, node), node.attrs.get("cats_int64s", ())
    if not known or len(set(known)) < len(known) or not node.attrs.get("zeros", 1):
        raise refusal(node, "only integer categories, each once, are supported, and zeros for cells that are none")
    categories = at.graph.constant(f"{node.name}.categories", np.array(known, np.int64))
    cells = ops.astype(x, "int64").expand_dims(x.ndim)
    return ops.astype(ops.equal(cells, categories), "float32", name=node.name)


def _operand(at: Importing, node: Node, k: int = 0) -> Tensor:
    dtype = at.dtype_of(node.inputs[k])
    if dtype not in DTYPES:
        raise ValueError(f"its input {k} is {dtype}; {', '.join(DTYPES[:-1])} or {DTYPES[-1]} is needed: cast it")
    return at.tensor(node.inputs[k])


def _rows(at: Importing, node: Node) -> Tensor:
    x = _operand(at, node)
    if x.ndim not in (1, 2):
        raise refusal(node, f"its operand has shape {quote(x.shape)}; a matrix, or one row of it, is needed")
    return x


def _matrix(at: Importing, node: Node) -> Tensor:
    x = _rows(at, node)
    return x.expand_dims(0) if x.ndim == 1 else x
