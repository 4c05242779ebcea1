"""DFT and STFT of ONNX: a transform of one axis is a product with a matrix, of which plans split what products have.

Beside them the matrix by which their spectra come onto the mel scale.
"""

from __future__ import annotations

import numpy as np

from tapestry_plan import ops
from tapestry_plan.ir import Tensor
from tapestry_plan.onnx import tuning
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


def mel_weights(at: Importing, node: Node) -> Result:
    """Triangles over the bins of a spectrum, whose corners are as far apart as tones sound, cell by cell.

    The rate and the edges may be inputs of the run, where how many triangles and bins there are is known.
    """
    counts = [at.ints(node, k, label) or [] for k, label in enumerate(("num_mel_bins", "dft_length"))]
    if any(len(one) != 1 or one[0] < 1 for one in counts):
        raise ValueError(f"num_mel_bins and dft_length are {quote(counts)}; one number of at least 1 each is needed")
    triangles, length = (one[0] for one in counts)
    rate, low, high = (ops.astype(at.tensor(name).reshape(()), "float64") for name in node.inputs[2:])
    low, high = (ops.log1p(edge / 700) * (2595 / np.log(10)) for edge in (low, high))
    mels = ops.iota(at.graph, triangles + 2, dtype="float64") * ((high - low) / (triangles + 2)) + low
    corners = ops.floor(ops.expm1(mels * (np.log(10) / 2595)) * (700 * (length + 1)) / rate)
    left, middle, right = (corners[k : triangles + k] for k in range(3))
    bins = ops.iota(at.graph, length // 2 + 1, dtype="float64").reshape(-1, 1)
    rising = ops.where(ops.equal(left, middle), 1.0, (bins - left) / ops.maximum(middle - left, 1))
    made = ops.where(ops.logical_and(bins >= left, bins <= middle), rising, 0.0)
    falling = (right - bins) / ops.maximum(right - middle, 1)
    made = ops.where(ops.logical_and(bins >= middle, bins < right), falling, made)
    return ops.astype(made, at.dtype(node.attrs.get("output_datatype", tuning.FLOAT)), name=node.name)


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
