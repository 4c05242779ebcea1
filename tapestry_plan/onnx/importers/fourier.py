"""DFT and STFT of ONNX: a transform of one axis is a product with a matrix, of which plans split what products have."""

from __future__ import annotations

import numpy as np

from tapestry_plan import ops
from tapestry_plan.ir import Tensor
from tapestry_plan.onnx.nodes import Array, Importing, Node, Result, axes_of
from tapestry_sets.limits import quote


def dft(at: Importing, node: Node) -> Result:
    x, attrs = at.tensor(node.inputs[0]), node.attrs
    lengths, given = at.ints(node, 1, "dft_length"), at.ints(node, 2, "axes") if at.opset >= 20 else None
    wanted = given[0] if given else attrs.get("axis", 1) if at.opset < 20 else -2
    (axis,) = axes_of([wanted], x.ndim, "axis")
    inverse, onesided = bool(attrs.get("inverse")), bool(attrs.get("onesided"))
    if x.shape[-1] not in (1, 2) or axis == x.ndim - 1:
        raise ValueError(
            f"the input has shape {quote(x.shape)}; its last axis holds real numbers, or two parts of each"
        )
    if onesided and not inverse and x.shape[-1] == 2:
        raise ValueError("onesided is for real inputs: the other half of a complex one's transform is not the same")
    usual = 2 * (x.shape[axis] - 1) if inverse and onesided else x.shape[axis]
    length = lengths[0] if lengths else usual
    matrix = _matrix(x.shape[axis], x.shape[-1], length, inverse, onesided)
    return _transformed(at, node, x.moveaxis(axis, -2), matrix).moveaxis(-2, axis)


def stft(at: Importing, node: Node) -> Result:
    x, steps, lengths = at.tensor(node.inputs[0]), at.ints(node, 1, "frame_step"), at.ints(node, 3, "frame_length")
    window = at.tensor(node.inputs[2]) if node.input(2) else None
    length = lengths[0] if lengths else 0 if window is None else window.shape[0]
    if not steps or length < 1 or x.ndim != 3 or x.shape[-1] not in (1, 2) or length > x.shape[1]:
        raise ValueError(f"frames of {length} cells every {steps} do not fit a signal of shape {quote(x.shape)}")
    if window is not None and window.shape != (length,):
        raise ValueError(f"the window has shape {quote(window.shape)}; {(length,)} is needed")
    onesided = bool(node.attrs.get("onesided", 1))
    if onesided and x.shape[-1] == 2:
        raise ValueError("onesided is for real signals: the other half of a complex one's transform is not the same")
    frames = x.sliding_windows(length, steps[0], axis=1)
    frames = frames if window is None else frames * window
    return _transformed(at, node, frames.swapaxes(-1, -2), _matrix(length, x.shape[-1], length, False, onesided))


def _matrix(cells: int, parts: int, length: int, inverse: bool, onesided: bool) -> Array:
    """What each cell and part adds to each of the results' cells and parts, by NumPy's transforms of single ones."""
    rows = []
    for unit in (1, 1j)[:parts]:
        single = np.eye(cells) * unit
        if inverse and onesided:
            rows.append(np.fft.irfft(single, length)[..., None])
            continue
        made = np.fft.ifft(single, length) if inverse else np.fft.fft(single, length)
        made = made[:, : length // 2 + 1] if onesided else made
        rows.append(np.stack([made.real, made.imag], axis=-1))
    return np.stack(rows, axis=1)


def _transformed(at: Importing, node: Node, x: Tensor, matrix: Array) -> Tensor:
    """The last two axes, cells and parts, through a matrix."""
    cells, parts, made, out = matrix.shape
    flat = matrix.reshape(cells * parts, made * out).astype(x.dtype)
    at.spend(node, flat.nbytes)
    known = at.graph.constant(f"{node.name}.matrix", flat)
    found = ops.matmul(x.reshape((*x.shape[:-2], cells * parts)), known, name=node.name)
    return found.reshape((*x.shape[:-2], made, out))
