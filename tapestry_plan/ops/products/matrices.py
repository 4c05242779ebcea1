"""Products of matrices, their determinants, and those that are stored in few bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tapestry_plan.autodiff import adjoints
from tapestry_plan.ir import Attrs, Axis, MatrixProduct, Operand, Shape, Shard, Signature, Tensor, same_anywhere
from tapestry_plan.ops import tuning
from tapestry_plan.ops.declaration import add_op, operator
from tapestry_plan.ops.expansions import matmul_add, prod_sum
from tapestry_plan.ops.operands import (
    align_axes,
    common_shape,
    floating,
    need_rank,
    need_vector,
    number_axes,
    same_dtype,
    touched,
    writes,
)
from tapestry_sets.limits import quote


def _scaled(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    """The factors of a gemm are values of its operands' dtype."""
    for key in ("alpha", "beta"):
        if np.dtype(dtypes[0]).kind != "f" and attrs.get(key, 1) % 1:
            raise ValueError(f"{key} is {quote(attrs[key])}, but operand 0 is {dtypes[0]}; give a whole number")
    return same_dtype(dtypes, attrs)


def matmul_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    """Index axes b0, b1, …, m, n and the reduction k of a product of stacks of matrices."""
    a, b = shapes
    if len(a) < 2 or len(b) < 2:
        raise ValueError(f"operands have shapes {a} and {b}; both need rank 2 or more: give vectors an axis of 1")
    if a[-1] != b[-2]:
        raise ValueError(
            f"operand 0 of shape {a} has {a[-1]} columns (axis {len(a) - 1}), "
            f"operand 1 of shape {b} has {b[-2]} rows (axis {len(b) - 2}); they must be equal"
        )
    batch = tuple(Axis(f"b{k}", n) for k, n in enumerate(common_shape((a[:-2], b[:-2]))))
    axes = (*batch, Axis("m", a[-2]), Axis("n", b[-1]), Axis("k", a[-1], "reduction"))
    left, right = (align_axes(shape[:-2], batch) for shape in shapes)
    inputs = touched(axes, [*left, "m", "k"]), touched(axes, [*right, "k", "n"])
    return Signature(axes, inputs, (touched(axes, [axis.name for axis in axes[:-1]]),))


def _gemm_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    a, b = shapes[:2]
    need_rank(a, 2, "operand 0", "rows, columns")
    need_rank(b, 2, "operand 1", "rows, columns")
    m, k = a[::-1] if attrs.get("trans_a") else a
    rows, n = b[::-1] if attrs.get("trans_b") else b
    if rows != k:
        raise ValueError(
            f"operand 0 of shape {a} is multiplied over {k} values, operand 1 of shape {b} over {rows}; they must be "
            "equal"
        )
    axes = (Axis("m", m, alias="batch"), Axis("n", n, alias="out"), Axis("k", k, "reduction", alias="in"))
    inputs = [
        touched(axes, ["k", "m"] if attrs.get("trans_a") else ["m", "k"]),
        touched(axes, ["n", "k"] if attrs.get("trans_b") else ["k", "n"]),
    ]
    if len(shapes) > 2:
        inputs.append(_gemm_bias(shapes[2], axes))
    return Signature(axes, tuple(inputs), (touched(axes, ["m", "n"]),))


def _gemm_bias(shape: Shape, axes: tuple[Axis, ...]) -> Operand:
    m, n = axes[0].size, axes[1].size
    if len(shape) > 2 or any(have not in (1, need) for have, need in zip(shape[::-1], (n, m), strict=False)):
        raise ValueError(f"the bias has shape {quote(shape)}; it must broadcast to {(m, n)}")
    return touched(axes, align_axes(shape, axes[:2]), at_start_of=("k",))


def _linear_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    """Index axes b0, b1, … of what is before the rows of operand 0; m, n and the reduction k."""
    x, w = shapes[:2]
    if len(x) < 2:
        raise ValueError(
            f"operand 0 has shape {x}, rank {len(x)}; rank 2 or more is needed (batch axes, rows, columns)"
        )
    if len(w) == 2 and x[-1] != w[0]:
        raise ValueError(
            f"operand 0 of shape {x} has {x[-1]} columns, operand 1 of shape {w} has {w[0]} rows; they must be equal"
        )
    flat = _gemm_signature([x[-2:], w], {})
    batch = tuple(Axis(f"b{k}", n) for k, n in enumerate(x[:-2]))
    axes = (*batch, *flat.axes)
    rows = [*(axis.name for axis in batch), "m"]
    inputs = [touched(axes, [*rows, "k"]), touched(axes, ["k", "n"])]
    if len(shapes) > 2:
        need_vector(shapes[2], flat.axes[1].size, "the bias", "the output's columns (out)")
        inputs.append(touched(axes, ["n"], at_start_of=("k",)))
    return Signature(axes, tuple(inputs), (touched(axes, [*rows, "n"]),))


def _gemm(xp: Any, out: Any, a: Any, b: Any, c: Any = None, **attrs: Any) -> None:
    xp.matmul(a.T if attrs.get("trans_a") else a, b.T if attrs.get("trans_b") else b, out=out)
    alpha, beta = attrs.get("alpha", 1.0), attrs.get("beta", 1.0)
    if alpha != 1:
        xp.multiply(out, out.dtype.type(alpha), out=out)
    if c is not None:
        xp.add(out, c if beta == 1 else c * out.dtype.type(beta), out=out)


def _product(shard: Shard) -> MatrixProduct | None:
    """The product as a form, unless it is scaled."""
    attrs = shard.attrs
    if attrs.get("alpha", 1) != 1 or attrs.get("beta", 1) != 1:
        return None
    bias = 2 if len(shard.input_boxes) > 2 else None
    return MatrixProduct(bias=bias, transposed=(bool(attrs.get("trans_a")), bool(attrs.get("trans_b"))))


_BY_GEMM: dict[str, Any] = {
    "block": writes(_gemm),
    "flop": 2.0,
    "reduction": "sum",
    "work": _product,
    "local": same_anywhere,
    "rows": True,
}
"""What the products have in common: a product and an addition at each index point."""


def _det_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    """Index axes i0, i1, … of what is before the matrices, each of which is read whole."""
    (x,) = shapes
    if len(x) < 2 or x[-1] != x[-2]:
        raise ValueError(f"operand 0 has shape {quote(x)}; square matrices are needed along the last two axes")
    axes = number_axes(x[:-2])
    return Signature(axes, (touched(axes, [*(axis.name for axis in axes), "", ""], x),), (touched(axes),))


def _det(xp: Any, out: Any, x: Any) -> None:
    """Gauss's elimination of all matrices at once, in each step by the row with the largest cell."""
    wide, n = "float32" if out.dtype == "float16" else out.dtype, x.shape[-1]
    a = x.astype(wide).reshape(-1, n, n)
    found, matrices = xp.ones(a.shape[0], wide), xp.arange(a.shape[0])
    for k in range(n):
        place = k + xp.argmax(xp.abs(a[:, k:, k]), axis=1)
        row = a[matrices, place]
        a[matrices, place] = a[:, k]
        first = row[:, k]
        found *= xp.where(place == k, first, -first)
        share = a[:, k + 1 :, k] / xp.where(first == 0, xp.ones_like(first), first)[:, None]  # of zeros: all are
        a[:, k + 1 :, k + 1 :] -= share[:, :, None] * row[:, None, k + 1 :]
    out[...] = found.reshape(out.shape)


def _det_flop(signature: Signature, attrs: Attrs) -> float:
    return 2 / 3 * float(signature.inputs[0].projection.shape[-1]) ** 3


@operator(**_BY_GEMM, signature=matmul_signature, dtype=same_dtype, expansions=(prod_sum,), adjoint=adjoints.matmul)
def matmul(a: Tensor, b: Tensor, *, name: str | None = None) -> Tensor:
    """The product of matrices over the last two axes; those before broadcast.

    Parameters
    ----------
    a : Tensor of shape (…, m, k)
    b : Tensor of shape (…, k, n)
        Of a's dtype.

    Returns
    -------
    Tensor of shape (…, m, n)

    Raises
    ------
    ValueError
        For shapes or dtypes that do not fit.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> a, b = g.constant("a", [[1.0, 2.0]]), g.constant("b", [[3.0], [4.0]])
    >>> _ = g.output(ops.matmul(a, b), "y")
    >>> evaluate(g, {})["y"].tolist()
    [[11.0]]
    >>> g.signature("matmul")  # plans split rows, columns and the sum
    Signature(m:1, n:1, k:2 summed; 2 inputs, 1 output)

    References
    ----------
    ONNX MatMul; Array API matmul, without vectors.
    """


@operator(
    **_BY_GEMM,
    signature=_linear_signature,
    dtype=same_dtype,
    expansions=(matmul_add, prod_sum),
    adjoint=adjoints.linear,
)
def linear(x: Tensor, w: Tensor, b: Tensor | None = None, *, name: str | None = None) -> Tensor:
    """x @ w + b.

    Parameters
    ----------
    x : Tensor of shape (..., batch, in)
        Any number of axes before the last two, as a matmul has.
    w : Tensor of shape (in, out)
    b : Tensor of shape (out,), optional

    Returns
    -------
    Tensor of shape (..., batch, out)

    Raises
    ------
    ValueError
        For shapes or dtypes that do not fit.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x, w, b = g.constant("x", [[1.0, 2.0]]), g.constant("w", [[3.0], [4.0]]), g.constant("b", [10.0])
    >>> _ = g.output(ops.linear(x, w, b), "y")
    >>> evaluate(g, {})["y"].tolist()
    [[21.0]]

    References
    ----------
    Tapestry, "Linear": index axes m (batch), n (out) and the reduction k (in); b0, b1, … before them.
    """


@operator(**_BY_GEMM, signature=_gemm_signature, dtype=_scaled, expansions=(matmul_add,))
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    trans_a: bool = False,
    trans_b: bool = False,
    name: str | None = None,
) -> Tensor:
    """alpha·a @ b + beta·c, with a or b transposed where asked and c broadcast.

    Parameters
    ----------
    a : Tensor of shape (m, k), or (k, m) to be transposed
    b : Tensor of shape (k, n), or (n, k) to be transposed
    c : Tensor, optional
        Broadcasts to (m, n).
    alpha, beta : float
    trans_a, trans_b : bool
        Whether a, or b, is transposed.

    Returns
    -------
    Tensor of shape (m, n)

    Raises
    ------
    ValueError
        For shapes or dtypes that do not fit, and factors that are none of the dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> a, b, c = g.constant("a", [[1.0, 2.0]]), g.constant("b", [[3.0, 4.0]]), g.constant("c", [100.0])
    >>> _ = g.output(ops.gemm(a, b, c, alpha=0.5, trans_b=True), "y")
    >>> evaluate(g, {})["y"].tolist()
    [[105.5]]

    References
    ----------
    ONNX Gemm.
    """


@operator(block=writes(_det), signature=_det_signature, flop=_det_flop, dtype=floating)
def det(x: Tensor, *, name: str | None = None) -> Tensor:
    """The determinants of square matrices, which lie along the last two axes.

    Parameters
    ----------
    x : Tensor of shape (…, n, n)
        Of a floating dtype; float16 is computed with in float32.

    Returns
    -------
    Tensor of shape (…)

    Raises
    ------
    ValueError
        For matrices that are not square, and another dtype.

    Examples
    --------
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> _ = g.output(ops.det(g.constant("x", [[[1.0, 2.0], [3.0, 4.0]], [[0.0, 1.0], [1.0, 0.0]]])), "y")
    >>> evaluate(g, {})["y"].tolist()
    [-2.0, -1.0]
    >>> g.signature("det")  # plans split what is before the matrices
    Signature(i0:2; 1 input, 1 output)

    References
    ----------
    ONNX Det; Array API linalg.det.
    """


# -- few bits ----------------------------------------------------------------------------------------------


def _unpack_signature(shapes: Sequence[Shape], attrs: Attrs) -> Signature:
    """Index axes r (rows) and b (blocks): each point reads the bytes of a block and writes its cells."""
    bits = attrs.get("bits")
    if bits not in (1, 2, 4, 8):
        raise ValueError(f"bits is {quote(bits)}; 1, 2, 4 or 8 of a number are in a byte")
    packed = shapes[0]
    need_rank(packed, 3, "operand 0", "rows, blocks, bytes")
    rows, blocks, nbytes = packed
    axes = Axis("r", rows), Axis("b", blocks)
    if shapes[1:2] and shapes[1] != (rows, blocks):
        raise ValueError(
            f"operand 1 has shape {quote(shapes[1])}; {(rows, blocks)} is needed beside blocks of {packed}"
        )
    inputs = [touched(axes, ["r", "b", ""], packed), touched(axes, ["r", "b"])]
    if shapes[2:]:
        is_packed = attrs.get("zeros_packed")
        if is_packed is None:
            raise ValueError("operand 2 is given without zeros_packed: say True of bytes, False of one for each block")
        wanted = (rows, -(-blocks * bits // 8)) if is_packed else (rows, blocks)
        if shapes[2] != wanted:
            kind = f"packed by {8 // bits} in a byte of uint8" if is_packed else "that are one for each block"
            mend = "pack them, or cast them to the scales' dtype" if is_packed else "unpack them, or give uint8"
            raise ValueError(
                f"operand 2 has shape {quote(shapes[2])}; zeros {kind} have {wanted}, by zeros_packed: {mend}"
            )
        inputs.append(touched(axes, ["r", "" if is_packed and bits < 8 else "b"], wanted))
    return Signature(axes, tuple(inputs), (touched(axes, ["r", "b", ""], (rows, blocks, nbytes * 8 // bits)),))


def _unpack_dtype(dtypes: Sequence[str], attrs: Attrs) -> tuple[str, ...]:
    if dtypes[0] != "uint8":
        raise ValueError(f"operand 0 is {dtypes[0]}; numbers are packed in uint8")
    (made,) = floating(dtypes[1:2], attrs)
    if dtypes[2:] and dtypes[2] != ("uint8" if attrs.get("zeros_packed") else made):
        raise ValueError(f"operand 2 is {dtypes[2]}; packed in uint8 or of the scales' {made} are zeros: cast them")
    return (made,)


def _unpack(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    (packed, scales, *zeros), (out,), bits = inputs, outputs, shard.attrs["bits"]

    def write(target: Any, given: Any) -> None:
        for k in range(8 // bits):
            target[..., k :: 8 // bits] = xp.bitwise_and(xp.right_shift(given, bits * k), 2**bits - 1)

    if not zeros:
        middle = out.dtype.type(2 ** (bits - 1))
    elif zeros[0].dtype == "uint8" and bits < 8:
        row = xp.empty((zeros[0].shape[0], zeros[0].shape[1] * (8 // bits)), out.dtype)
        write(row, zeros[0])
        middle = row[:, slice(*shard.range("b"))][..., None]
    else:
        middle = zeros[0].astype(out.dtype)[..., None]
    each = max(1, len(out) if xp is not np else tuning.TILE_CELLS * len(out) // max(1, out.size))
    for first in range(0, len(out), each):  # as many rows as stay in a cache until they are scaled
        part = slice(first, first + each)
        write(out[part], packed[part])
        xp.subtract(out[part], middle[part] if zeros else middle, out=out[part])
        xp.multiply(out[part], scales[part][..., None], out=out[part])


def _unpack_flop(signature: Signature, attrs: Attrs) -> float:
    return 4.0 * signature.outputs[0].projection.shape[-1]


@operator(block=_unpack, signature=_unpack_signature, flop=_unpack_flop, dtype=_unpack_dtype)
def unpack_blocks(
    packed: Tensor,
    scales: Tensor,
    zeros: Tensor | None = None,
    *,
    bits: int = 4,
    zeros_packed: bool | None = None,
    name: str | None = None,
) -> Tensor:
    """Numbers of few bits, (number − zero) · scale, each block of which has a scale and a zero.

    Parameters
    ----------
    packed : Tensor of uint8, of shape (rows, blocks, bytes)
        The numbers of a block in its bytes, the first one in the lowest bits.
    scales : Tensor of a floating dtype, of shape (rows, blocks)
    zeros : Tensor, optional
        Of the scales' shape and dtype, or of uint8 and packed row by row, the last byte maybe in part; by default the
        middle of the numbers, 8 of 4 bits.
    bits : 1, 2, 4 or 8
    zeros_packed : bool, optional
        Whether zeros are packed; by default those of uint8 are.

    Returns
    -------
    Tensor of shape (rows, blocks, 8 · bytes / bits), of the scales' dtype

    Raises
    ------
    ValueError
        For shapes and dtypes that do not fit, each or together.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_exec import evaluate
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> packed, scales = np.array([[[0x98, 0xBA]]], "uint8"), np.array([[0.5]], "float32")
    >>> _ = g.output(ops.unpack_blocks(g.constant("packed", packed), g.constant("scales", scales)), "y")
    >>> evaluate(g, {})["y"].tolist()
    [[[0.0, 0.5, 1.0, 1.5]]]

    References
    ----------
    ONNX Runtime, com.microsoft MatMulNBits: its weights.
    """
    operands = (packed, scales) if zeros is None else (packed, scales, zeros)
    if zeros is not None and zeros_packed is None:
        zeros_packed = zeros.dtype == "uint8"
    return add_op(unpack_blocks.op, *operands, name=name, bits=bits, zeros_packed=zeros_packed)
