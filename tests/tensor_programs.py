"""Questions that tensor programs raise about memory, each in words, with its views and the answer by hand.

    question ──► views (ours, of `allocate`d memory) ──► asked of the engine ──┐
             ├─► views (NumPy's, of arrays of cell numbers) ──► np.unique … ───┼─► all agree, at the small size
             └─► answer (arithmetic on the sizes) ─────────────────────────────┘   ours and this, at the real one

A question is one function of the words, and of sizes: the same code builds views and NumPy's arrays. The tests run all
three at small sizes; the bench asks at the real ones, where no array would fit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate, combinations
from math import prod
from typing import Any, NamedTuple

import numpy as np

import tapestry_sets as ts

# ------------------------------------------------------------------------------------------------------ the words


class Views:
    """Our words."""

    allocate = staticmethod(ts.allocate)
    concatenate = staticmethod(ts.concatenate)
    stack = staticmethod(ts.stack)
    pad = staticmethod(ts.pad)
    roll = staticmethod(ts.roll)
    repeat = staticmethod(ts.repeat)
    flip = staticmethod(lambda x, axis: x.flip(axis))
    broadcast_to = staticmethod(lambda x, shape: x.broadcast_to(shape))
    take = staticmethod(lambda x, table, axis: x.take(table, axis))

    @staticmethod
    def windows(
        x: Any, size: Sequence[int], axis: Sequence[int], step: Sequence[int] | int = 1, dilation: int = 1
    ) -> Any:
        return x.sliding_windows(size, step, dilation, axis)


class Numbers:
    """NumPy's words on arrays of cell numbers; -1 stands where no memory is read."""

    concatenate = staticmethod(np.concatenate)
    stack = staticmethod(np.stack)
    roll = staticmethod(np.roll)
    repeat = staticmethod(np.repeat)
    flip = staticmethod(np.flip)
    broadcast_to = staticmethod(np.broadcast_to)
    take = staticmethod(np.take)

    def __init__(self) -> None:
        self.made = 0

    def allocate(self, shape: Sequence[int]) -> np.ndarray:
        first, self.made = self.made, self.made + prod(shape)
        return np.arange(first, self.made).reshape(shape)

    @staticmethod
    def pad(x: np.ndarray, widths: Any, mode: str = "constant") -> np.ndarray:
        return np.pad(x, widths, mode, **({"constant_values": -1} if mode == "constant" else {}))

    @staticmethod
    def windows(
        x: np.ndarray, size: Sequence[int], axis: Sequence[int], step: Sequence[int] | int = 1, dilation: int = 1
    ) -> np.ndarray:
        steps = (step,) * len(size) if isinstance(step, int) else step
        dense = tuple((n - 1) * dilation + 1 for n in size)
        every = np.lib.stride_tricks.sliding_window_view(x, dense, tuple(axis))
        keys: list[slice] = [slice(None)] * every.ndim
        for k, a in enumerate(axis):
            keys[a] = slice(None, None, steps[k])
            keys[x.ndim + k] = slice(None, None, dilation)
        return every[tuple(keys)]


def cells(x: np.ndarray) -> np.ndarray:
    """The different cells that an array of numbers reads."""
    found = np.unique(x)
    return found[found >= 0]


class Ask(NamedTuple):
    """A way to ask: of views, and of arrays of cell numbers."""

    views: Callable[..., Any]
    numbers: Callable[..., Any]


def count_pairs(meets: np.ndarray) -> int:
    """How many pairs of different views meet."""
    return (np.count_nonzero(meets) - np.count_nonzero(meets.diagonal())) // 2


ASKS = {
    "meet": Ask(ts.overlaps, lambda a, b: len(np.intersect1d(cells(a), cells(b))) > 0),
    "share": Ask(lambda a, b: ts.overlap(a, b).size, lambda a, b: len(np.intersect1d(cells(a), cells(b)))),
    "read": Ask(lambda a: ts.overlap(a, a).size, lambda a: len(cells(a))),
    "hold": Ask(ts.contains, lambda a, b: len(np.setdiff1d(cells(b), cells(a))) == 0),
    "same cells": Ask(ts.same_elements, lambda a, b: np.array_equal(cells(a), cells(b))),
    "same view": Ask(lambda a, b: a.same_view(b), np.array_equal),
    "twice": Ask(ts.has_internal_overlap, lambda a: len(cells(a)) < (a >= 0).sum()),
    "run": Ask(ts.is_contiguous, lambda a: np.ptp(cells(a)) + 1 == len(cells(a))),
    "run in order": Ask(
        lambda a: ts.is_contiguous(a, "C"), lambda a: a.min() >= 0 and bool((np.diff(a.ravel()) == 1).all())
    ),
    "read by": Ask(lambda a, b: a.preimage(b.origins()).size, lambda a, b: int(np.isin(a, cells(b)).sum())),
    "pairs": Ask(
        lambda *views: count_pairs(ts.overlap_matrix(views)),
        lambda *arrays: sum(len(np.intersect1d(cells(a), cells(b))) > 0 for a, b in combinations(arrays, 2)),
    ),
}
"""What is asked: do they meet, how many cells do they share, does the first hold the second, …"""

# ------------------------------------------------------------------------------------------------------- the table


class Program(NamedTuple):
    """A question of a tensor program.

    Attributes
    ----------
    group, question : str
        Where it comes up, and what is asked, in words.
    ask : str
        A key of `ASKS`.
    views : callable
        The views, from the words and the sizes.
    answer : callable
        The answer, from the sizes alone.
    small, real : dict
        Sizes for the tests and for the bench.
    """

    group: str
    question: str
    ask: str
    views: Callable[..., Sequence[Any]]
    answer: Callable[..., int | bool]
    small: dict[str, Any]
    real: dict[str, Any]

    @property
    def name(self) -> str:
        return self.views.__name__


PROGRAMS: list[Program] = []

Build = Callable[..., Sequence[Any]]


def program(
    group: str, question: str, ask: str, answer: Callable[..., int | bool], small: dict[str, Any], real: dict[str, Any]
) -> Callable[[Build], Build]:
    """Enter a function of the words and the sizes into the table as a question."""

    def enter(views: Build) -> Build:
        PROGRAMS.append(Program(group, question, ask, views, answer, small, real))
        return views

    return enter


# --------------------------------------------------------------------------------------------------- convolutions

CONV = "Convolutions and images"
RESNET_STEM = {"n": 32, "c": 3, "h": 224, "k": 7, "s": 2}
SMALL_STEM = {"n": 2, "c": 2, "h": 12, "k": 5, "s": 2}


def _stem(m: Any, n: int, c: int, h: int, k: int, s: int) -> Any:
    padded = m.pad(m.allocate((n, c, h, h)), ((0, 0), (0, 0), (k // 2, k // 2), (k // 2, k // 2)))
    return m.windows(padded, (k, k), (2, 3), s)


@program(
    CONV,
    "How many pixels do the windows of the upper and of the lower half of the output rows share (im2col, stride 2)?",
    "share",
    lambda n, c, h, k, s: n * c * (k - s) * h,
    SMALL_STEM,
    RESNET_STEM,
)
def im2col_halo(m: Any, **sizes: int) -> Sequence[Any]:
    windows = _stem(m, **sizes)
    half = windows.shape[2] // 2
    return windows[:, :, :half], windows[:, :, half:]


@program(
    CONV,
    "Does a window of the stem read some pixel twice, or share one with the next window?",
    "twice",
    lambda n, c, h, k, s: True,
    SMALL_STEM,
    RESNET_STEM,
)
def im2col_windows_overlap(m: Any, **sizes: int) -> Sequence[Any]:
    return (_stem(m, **sizes),)


def _dilated(m: Any, n: int, c: int, h: int, d: int) -> Any:
    padded = m.pad(m.allocate((n, c, h, h)), ((0, 0), (0, 0), (d, d), (d, d)))
    return m.windows(padded, (3, 3), (2, 3), 1, d)


ASPP, SMALL_ASPP = {"n": 8, "c": 256, "h": 65, "d": 12}, {"n": 2, "c": 2, "h": 7, "d": 2}


@program(
    CONV,
    "How many pixels do d output rows of a 3 x 3 convolution of dilation d share with the next d rows?",
    "share",
    lambda n, c, h, d: n * c * 2 * d * h,
    SMALL_ASPP,
    ASPP,
)
def dilated_rows(m: Any, d: int, **sizes: int) -> Sequence[Any]:
    windows = _dilated(m, d=d, **sizes)
    return windows[:, :, :d], windows[:, :, d : 2 * d]


@program(
    CONV,
    "Do even and odd output rows of a convolution of even dilation share a pixel?",
    "meet",
    lambda n, c, h, d: False,
    SMALL_ASPP,
    ASPP,
)
def dilated_phases(m: Any, **sizes: int) -> Sequence[Any]:
    windows = _dilated(m, **sizes)
    return windows[:, :, ::2], windows[:, :, 1::2]


def _pixels_of_rows(w: int, first: int, last: int) -> set[tuple[int, int]]:
    """The pixels of a w x w image that rows of its im2col matrix, 3 x 3 and padded by 1, read."""
    near = ((p // w + i, p % w + j) for p in range(first, last) for i in (-1, 0, 1) for j in (-1, 0, 1))
    return {(i, j) for i, j in near if 0 <= i < w and 0 <= j < w}


@program(
    CONV,
    "How many pixels do two neighboring row blocks of the im2col matrix share, where blocks end inside image rows?",
    "share",
    lambda n, c, w, t: c * len(_pixels_of_rows(w, 5 * t, 6 * t) & _pixels_of_rows(w, 6 * t, 7 * t)),
    {"n": 2, "c": 2, "w": 8, "t": 9},
    {"n": 32, "c": 64, "w": 56, "t": 128},
)
def im2col_matrix_blocks(m: Any, n: int, c: int, w: int, t: int) -> Sequence[Any]:
    padded = m.pad(m.allocate((n, c, w, w)), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = m.windows(padded, (3, 3), (2, 3))
    matrix = windows.transpose(0, 2, 3, 1, 4, 5).reshape(n * w * w, c * 9)
    return matrix[5 * t : 6 * t], matrix[6 * t : 7 * t]


@program(
    CONV,
    "How many cells does group 3 of a grouped convolution (ResNeXt) read of channels that end inside the group?",
    "share",
    lambda n, g, c, h: n * (c - c // 2) * h * h,
    {"n": 2, "g": 4, "c": 3, "h": 5},
    {"n": 32, "g": 32, "c": 8, "h": 56},
)
def grouped_convolution(m: Any, n: int, g: int, c: int, h: int) -> Sequence[Any]:
    x = m.allocate((n, g * c, h, h))
    padded = m.pad(x.reshape(n, g, c, h, h), ((0, 0), (0, 0), (0, 0), (1, 1), (1, 1)))
    windows = m.windows(padded, (3, 3), (3, 4))
    return windows[:, 3], x[:, : 3 * c + c - c // 2]


def _space_to_depth(m: Any, n: int, h: int, c: int) -> tuple[Any, Any]:
    x = m.allocate((n, h, h, c))
    blocks = x.reshape(n, h // 2, 2, h // 2, 2, c).transpose(0, 1, 3, 2, 4, 5)
    return x, blocks.reshape(n, h // 2, h // 2, 4 * c)


STEM, SMALL_DEPTH = {"n": 32, "h": 224, "c": 3}, {"n": 2, "h": 8, "c": 3}


@program(
    CONV,
    "Are the last channels after space-to-depth the odd pixels of the odd rows, index by index?",
    "same view",
    lambda n, h, c: True,
    SMALL_DEPTH,
    STEM,
)
def space_to_depth(m: Any, n: int, h: int, c: int) -> Sequence[Any]:
    x, deep = _space_to_depth(m, n, h, c)
    return deep[..., 3 * c :], x[:, 1::2, 1::2]


@program(
    CONV,
    "Does a 4 x 4 window after space-to-depth hold the 7 x 7 window of stride 2 before it (MLPerf's stem)?",
    "hold",
    lambda n, h, c: True,
    {"n": 2, "h": 12, "c": 2},
    STEM,
)
def space_to_depth_windows(m: Any, n: int, h: int, c: int) -> Sequence[Any]:
    x, deep = _space_to_depth(m, n, h, c)
    wide = m.windows(x, (7, 7), (1, 2), 2)
    return m.windows(deep, (4, 4), (1, 2))[:, 1, 1], wide[:, 1, 1]


@program(
    CONV,
    "Are every r-th row and column after pixel shuffle the channels of one phase, index by index?",
    "same view",
    lambda n, c, r, h: True,
    {"n": 2, "c": 2, "r": 3, "h": 4},
    {"n": 8, "c": 64, "r": 3, "h": 128},
)
def pixel_shuffle(m: Any, n: int, c: int, r: int, h: int) -> Sequence[Any]:
    x = m.allocate((n, c * r * r, h, h))
    big = x.reshape(n, c, r, r, h, h).transpose(0, 1, 4, 2, 5, 3).reshape(n, c, h * r, h * r)
    return big[:, :, 1::r, 2::r], x[:, r + 2 :: r * r]


@program(
    CONV,
    "How many pixels do the even and the odd columns of Winograd tiles (6 x 6, every 4) share?",
    "share",
    lambda n, c, t: n * c * (4 * t + 2) * 2 * (t - 1),
    {"n": 2, "c": 2, "t": 3},
    {"n": 32, "c": 64, "t": 14},
)
def winograd_tiles(m: Any, n: int, c: int, t: int) -> Sequence[Any]:
    tiles = m.windows(m.allocate((n, c, 4 * t + 2, 4 * t + 2)), (6, 6), (2, 3), 4)
    return tiles[:, :, :, ::2], tiles[:, :, :, 1::2]


def _halo(mode: str, extra: int) -> None:
    """Enter the halo of two halves of a padded image; the image's other end comes in addition."""

    def halo(m: Any, n: int, c: int, h: int) -> Sequence[Any]:
        padded = m.pad(m.allocate((n, c, h, h)), ((0, 0), (0, 0), (1, 1), (1, 1)), mode)
        windows = m.windows(padded, (3, 3), (2, 3))
        return windows[:, :, : h // 2], windows[:, :, h // 2 :]

    halo.__name__ = f"padded_halo_{mode}"
    program(
        CONV,
        f"How many pixels do the windows of two halves of the output rows share, of an image padded by {mode}?",
        "share",
        lambda n, c, h: n * c * h * (2 + extra),
        {"n": 2, "c": 2, "h": 6},
        {"n": 32, "c": 64, "h": 56},
    )(halo)


for _mode, _extra in (("constant", 0), ("edge", 0), ("reflect", 0), ("wrap", 2)):
    _halo(_mode, _extra)


@program(
    CONV,
    "How many cells do two halves of a causal convolution of 4 taps share along the sequence (Mamba)?",
    "share",
    lambda b, s, d: b * 3 * d,
    {"b": 2, "s": 10, "d": 3},
    {"b": 8, "s": 8192, "d": 5120},
)
def causal_convolution(m: Any, b: int, s: int, d: int) -> Sequence[Any]:
    taps = m.windows(m.pad(m.allocate((b, s, d)), ((0, 0), (3, 0), (0, 0))), (4,), (1,))
    return taps[:, : s // 2], taps[:, s // 2 :]


@program(
    CONV,
    "How many window positions read the pixels of one row (what its gradient sums)?",
    "read by",
    lambda n, c, h: n * c * 3 * (3 * h - 2),
    {"n": 2, "c": 2, "h": 7},
    {"n": 32, "c": 64, "h": 56},
)
def windows_of_a_row(m: Any, n: int, c: int, h: int) -> Sequence[Any]:
    x = m.allocate((n, c, h, h))
    padded = m.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    return m.windows(padded, (3, 3), (2, 3)), x[:, :, h // 2]


# ------------------------------------------------------------------------------------------------------ attention

ATTENTION = "Attention"
LLAMA_QKV = {"b": 8, "s": 8192, "h": 64, "k": 8, "d": 128}
SMALL_QKV = {"b": 2, "s": 6, "h": 4, "k": 2, "d": 4}


def _qkv(m: Any, b: int, s: int, h: int, k: int, d: int) -> tuple[Any, Any, Any, Any]:
    """The fused projection, and of it queries, keys and values as (b, s, heads, d)."""
    fused = m.allocate((b, s, (h + 2 * k) * d))
    q, keys, v = fused[..., : h * d], fused[..., h * d : (h + k) * d], fused[..., (h + k) * d :]
    return fused, q.reshape(b, s, h, d), keys.reshape(b, s, k, d), v.reshape(b, s, k, d)


@program(
    ATTENTION,
    "Do queries, keys and values, cut from one fused projection, overlap each other?",
    "pairs",
    lambda b, s, h, k, d: 0,
    SMALL_QKV,
    LLAMA_QKV,
)
def fused_qkv(m: Any, **sizes: int) -> Sequence[Any]:
    return _qkv(m, **sizes)[1:]


@program(
    ATTENTION,
    "Which heads does a slice of the fused projection cut: how many cells of the last query head does it hold?",
    "share",
    lambda b, s, h, k, d: b * s * (d // 2),
    SMALL_QKV,
    LLAMA_QKV,
)
def qkv_against_heads(m: Any, b: int, s: int, h: int, k: int, d: int) -> Sequence[Any]:
    fused, q, _, _ = _qkv(m, b, s, h, k, d)
    return q.transpose(0, 2, 1, 3)[:, h - 1], fused[..., h * d - d // 2 : h * d + d // 2]


@program(
    ATTENTION,
    "How many cells of four heads lie in a block of rows that begins inside a sequence?",
    "share",
    lambda b, s, h, d: (s + s // 2) * 2 * d,
    {"b": 3, "s": 6, "h": 5, "d": 3},
    {"b": 8, "s": 8192, "h": 64, "d": 128},
)
def heads_against_rows(m: Any, b: int, s: int, h: int, d: int) -> Sequence[Any]:
    x = m.allocate((b, s, h, d))
    return x.transpose(0, 2, 1, 3)[:, 2:4], x.reshape(b * s, h * d)[s // 2 : 2 * s]


@program(
    ATTENTION,
    "How many cells do query heads 1 and 2 of one group read in common, keys repeated for the group?",
    "share",
    lambda b, s, k, g, d: b * s * d,
    {"b": 2, "s": 5, "k": 2, "g": 3, "d": 4},
    {"b": 8, "s": 8192, "k": 8, "g": 8, "d": 128},
)
def gqa_by_repeat(m: Any, b: int, s: int, k: int, g: int, d: int) -> Sequence[Any]:
    keys = m.repeat(m.allocate((b, s, k, d)), g, 2)
    return keys[:, :, g + 1], keys[:, :, g + 2]


GQA, SMALL_GQA = {"b": 8, "s": 8192, "k": 8, "g": 8, "d": 128}, {"b": 2, "s": 5, "k": 2, "g": 3, "d": 4}


def _gqa_by_broadcast(m: Any, keys: Any, b: int, s: int, k: int, g: int, d: int) -> Any:
    return m.broadcast_to(keys[:, :, :, None], (b, s, k, g, d)).reshape(b, s, k * g, d)


@program(
    ATTENTION,
    "Are keys repeated for each group the same view as keys broadcast and reshaped?",
    "same view",
    lambda b, s, k, g, d: True,
    SMALL_GQA,
    GQA,
)
def gqa_repeat_is_broadcast(m: Any, **sizes: int) -> Sequence[Any]:
    keys = m.allocate((sizes["b"], sizes["s"], sizes["k"], sizes["d"]))
    return m.repeat(keys, sizes["g"], 2), _gqa_by_broadcast(m, keys, **sizes)


@program(
    ATTENTION,
    "Do the heads of two groups, keys broadcast and reshaped, share a cell?",
    "meet",
    lambda b, s, k, g, d: False,
    SMALL_GQA,
    GQA,
)
def gqa_by_broadcast(m: Any, **sizes: int) -> Sequence[Any]:
    keys = m.allocate((sizes["b"], sizes["s"], sizes["k"], sizes["d"]))
    wide, g = _gqa_by_broadcast(m, keys, **sizes), sizes["g"]
    return wide[:, :, :g], wide[:, :, g : 2 * g]


@program(
    ATTENTION,
    "Which tiles of FlashAttention share cells: queries and keys of one head, in a fused buffer (none)?",
    "pairs",
    lambda b, s, h, d, rows, columns: 0,
    {"b": 2, "s": 12, "h": 2, "d": 3, "rows": 4, "columns": 3},
    {"b": 8, "s": 8192, "h": 64, "d": 128, "rows": 128, "columns": 128},
)
def flash_attention_tiles(m: Any, b: int, s: int, h: int, d: int, rows: int, columns: int) -> Sequence[Any]:
    fused = m.allocate((b, s, 3, h, d)).transpose(2, 0, 3, 1, 4)
    q, k = fused[0, 1, 1], fused[1, 1, 1]
    tiles = [q[i : i + rows] for i in range(0, s, rows)] + [k[i : i + columns] for i in range(0, s, columns)]
    return tiles


@program(
    ATTENTION,
    "Do tiles of 96 rows of one head and tiles of 64 rows of the next share rows: how many cells, head by head?",
    "share",
    lambda b, s, h, d: b * (s // 12) * 4 * h * d,
    {"b": 2, "s": 24, "h": 2, "d": 3},
    {"b": 8, "s": 9216, "h": 64, "d": 128},
)
def flash_attention_misaligned(m: Any, b: int, s: int, h: int, d: int) -> Sequence[Any]:
    x = m.allocate((b, s, h, d)).transpose(0, 2, 1, 3)
    u = s // 12
    return x.reshape(b, h, 2, 6 * u, d)[:, :, 0], x.reshape(b, h, 3, 4 * u, d)[:, :, ::2]


@program(
    ATTENTION,
    "Do the even and the odd features of rotary embeddings share a cell?",
    "meet",
    lambda b, s, h, d: False,
    {"b": 2, "s": 3, "h": 2, "d": 6},
    {"b": 8, "s": 8192, "h": 64, "d": 128},
)
def rope_even_odd(m: Any, b: int, s: int, h: int, d: int) -> Sequence[Any]:
    pairs = m.allocate((b, s, h * d)).reshape(b, s, h, d // 2, 2)
    return pairs[..., 0], pairs[..., 1]


@program(
    ATTENTION,
    "Does half-rotation read the same features as before, each once?",
    "same cells",
    lambda b, s, h, d: True,
    {"b": 2, "s": 3, "h": 2, "d": 6},
    {"b": 8, "s": 8192, "h": 64, "d": 128},
)
def rope_half_rotate(m: Any, b: int, s: int, h: int, d: int) -> Sequence[Any]:
    x = m.allocate((b, s, h, d))
    return m.concatenate([x[..., d // 2 :], x[..., : d // 2]], -1), x


@program(
    ATTENTION,
    "Is half-rotation a roll by half of the features?",
    "same view",
    lambda b, s, h, d: True,
    {"b": 2, "s": 3, "h": 2, "d": 6},
    {"b": 8, "s": 8192, "h": 64, "d": 128},
)
def rope_half_rotate_is_a_roll(m: Any, b: int, s: int, h: int, d: int) -> Sequence[Any]:
    x = m.allocate((b, s, h, d))
    return m.concatenate([x[..., d // 2 :], x[..., : d // 2]], -1), m.roll(x, d // 2, -1)


@program(
    ATTENTION,
    "Are the first halves of the heads' permuted rows (Llama's weights for half-rotation) the even rows?",
    "same view",
    lambda h, d, f: True,
    {"h": 3, "d": 6, "f": 5},
    {"h": 64, "d": 128, "f": 8192},
)
def rope_permuted_weights(m: Any, h: int, d: int, f: int) -> Sequence[Any]:
    w = m.allocate((h * d, f))
    permuted = w.reshape(h, d // 2, 2, f).transpose(0, 2, 1, 3).reshape(h * d, f)
    return permuted.reshape(h, 2, d // 2, f)[:, 0], w.reshape(h, d, f)[:, ::2]


@program(
    ATTENTION,
    "How many cells do neighboring key windows of sliding-window attention share (Mistral)?",
    "share",
    lambda b, s, w, f: b * (w - 1) * f,
    {"b": 2, "s": 12, "w": 4, "f": 3},
    {"b": 8, "s": 32768, "w": 4096, "f": 1024},
)
def sliding_window_attention(m: Any, b: int, s: int, w: int, f: int) -> Sequence[Any]:
    keys = m.windows(m.pad(m.allocate((b, s, f)), ((0, 0), (w - 1, 0), (0, 0))), (w,), (1,))
    return keys[:, s // 2], keys[:, s // 2 + 1]


@program(
    ATTENTION,
    "After Transformer-XL's shift (pad a column, reshape, drop a row): how many cells does the upper half read of the "
    "lower half's scores?",
    "share",
    lambda h, q, k: h * (q // 2 - 1),
    {"h": 2, "q": 6, "k": 9},
    {"h": 16, "q": 1024, "k": 2048},
)
def transformer_xl_shift(m: Any, h: int, q: int, k: int) -> Sequence[Any]:
    scores = m.allocate((h, q, k))
    padded = m.pad(scores, ((0, 0), (0, 0), (1, 0)))
    shifted = padded.reshape(h, k + 1, q)[:, 1:].reshape(h, q, k)
    return shifted[:, : q // 2], scores[:, q // 2 :]


@program(
    ATTENTION,
    "Does Transformer-XL's shift read some score twice?",
    "twice",
    lambda h, q, k: False,
    {"h": 2, "q": 6, "k": 9},
    {"h": 16, "q": 1024, "k": 2048},
)
def transformer_xl_shift_once(m: Any, h: int, q: int, k: int) -> Sequence[Any]:
    padded = m.pad(m.allocate((h, q, k)), ((0, 0), (0, 0), (1, 0)))
    return (padded.reshape(h, k + 1, q)[:, 1:].reshape(h, q, k),)


# -------------------------------------------------------------------------------------------------------- layouts

LAYOUTS = "Layouts and permutations"


@program(
    LAYOUTS,
    "How many cells do channels 20 to 40 share with block 2 of the layout nChw16c?",
    "share",
    lambda n, c, h: n * 8 * h * h,
    {"n": 2, "c": 64, "h": 3},
    {"n": 32, "c": 256, "h": 56},
)
def n_chw16c(m: Any, n: int, c: int, h: int) -> Sequence[Any]:
    x = m.allocate((n, c, h, h))
    blocked = x.reshape(n, c // 16, 16, h, h).transpose(0, 1, 3, 4, 2)
    return blocked[:, 2], x[:, 20:40]


@program(
    LAYOUTS,
    "How many cells of matrix rows 8 to 24 do the 16 x 8 tiles of one column of tiles hold?",
    "share",
    lambda rows, columns: 16 * 8,
    {"rows": 48, "columns": 32},
    {"rows": 8192, "columns": 8192},
)
def tensor_core_tiles(m: Any, rows: int, columns: int) -> Sequence[Any]:
    x = m.allocate((rows, columns))
    tiles = x.reshape(rows // 16, 16, columns // 8, 8).transpose(0, 2, 1, 3).reshape(-1, 16 * 8)
    return tiles[2 :: columns // 8], x[8:24]


@program(
    LAYOUTS,
    "Are 16 x 16 x 8 tiles of three axes, put back in order, the array itself?",
    "same view",
    lambda a, b, c: True,
    {"a": 32, "b": 48, "c": 16},
    {"a": 4096, "b": 4096, "c": 512},
)
def tiles_of_three_axes(m: Any, a: int, b: int, c: int) -> Sequence[Any]:
    x = m.allocate((a, b, c))
    tiles = x.reshape(a // 16, 16, b // 16, 16, c // 8, 8).transpose(0, 2, 4, 1, 3, 5).reshape(-1, 16, 16, 8)
    again = tiles.reshape(a // 16, b // 16, c // 8, 16, 16, 8).transpose(0, 3, 1, 4, 2, 5).reshape(a, b, c)
    return again, x


def _bit_reversal(m: Any, bits: int) -> tuple[Any, Any]:
    x = m.allocate((2**bits,))
    return x, x.reshape((2,) * bits).transpose(tuple(reversed(range(bits)))).reshape(2**bits)


def _bits(bits: int) -> None:
    """Enter the questions of bit reversal at a real size."""

    def halves(m: Any, bits: int) -> Sequence[Any]:
        x, reversed_ = _bit_reversal(m, bits)
        return reversed_[: 2 ** (bits - 1)], x[::2]

    def twice(m: Any, bits: int) -> Sequence[Any]:
        x, reversed_ = _bit_reversal(m, bits)
        return reversed_.reshape((2,) * bits).transpose(tuple(reversed(range(bits)))).reshape(2**bits), x

    def parts(m: Any, bits: int) -> Sequence[Any]:
        x, reversed_ = _bit_reversal(m, bits)
        return reversed_[: 2 ** (bits - 3)], x[2 ** (bits - 1) : 3 * 2 ** (bits - 2)]

    for views, words, ask, answer in (
        (halves, "Does the first half after bit reversal read the even cells?", "same cells", lambda bits: True),
        (twice, "Is bit reversal, done twice, the array itself?", "same view", lambda bits: True),
        (
            parts,
            "How many cells does the first eighth share with the third quarter?",
            "share",
            lambda bits: 2**bits // 32,
        ),
    ):
        views.__name__ = f"bit_reversal_{views.__name__}_{bits}"
        program(LAYOUTS, f"{words} (2^{bits})", ask, answer, {"bits": 7}, {"bits": bits})(views)


for _k in (16, 20):
    _bits(_k)


@program(
    LAYOUTS,
    "Do upper and lower wings of a stage's butterflies share a cell?",
    "meet",
    lambda bits, s: False,
    {"bits": 7, "s": 3},
    {"bits": 24, "s": 11},
)
def butterfly_wings(m: Any, bits: int, s: int) -> Sequence[Any]:
    x = m.allocate((2**bits,)).reshape(-1, 2, 2**s)
    return x[:, 0], x[:, 1]


@program(
    LAYOUTS,
    "How many cells do the upper wings of two stages share?",
    "share",
    lambda bits, s, t: 2 ** (bits - 2),
    {"bits": 7, "s": 3, "t": 5},
    {"bits": 24, "s": 11, "t": 4},
)
def butterfly_stages(m: Any, bits: int, s: int, t: int) -> Sequence[Any]:
    x = m.allocate((2**bits,))
    return x.reshape(-1, 2, 2**s)[:, 0], x.reshape(-1, 2, 2**t)[:, 0]


@program(
    LAYOUTS,
    "Is one patch of a vision transformer a run of pixels?",
    "run",
    lambda n, g, p: False,
    {"n": 2, "g": 3, "p": 4},
    {"n": 64, "g": 14, "p": 16},
)
def vit_patch(m: Any, n: int, g: int, p: int) -> Sequence[Any]:
    x = m.allocate((n, 3, g * p, g * p))
    patches = x.reshape(n, 3, g, p, g, p).transpose(0, 2, 4, 1, 3, 5).reshape(n, g * g, 3 * p * p)
    return (patches[1, g + 1],)


def _swin(m: Any, n: int, g: int, w: int, c: int, shift: int) -> tuple[Any, Any]:
    """The windows of an image, and of the image rolled."""
    x = m.allocate((n, g * w, g * w, c))

    def windows(image: Any) -> Any:
        return image.reshape(n, g, w, g, w, c).transpose(0, 1, 3, 2, 4, 5).reshape(n, g * g, w * w, c)

    return windows(x), windows(m.roll(x, (-shift, -shift), (1, 2)))


SWIN, SMALL_SWIN = {"n": 64, "g": 8, "w": 7, "c": 96, "shift": 3}, {"n": 2, "g": 3, "w": 4, "c": 2, "shift": 1}


@program(
    LAYOUTS,
    "How many cells does a shifted Swin window share with the plain one that it is shifted from?",
    "share",
    lambda n, g, w, c, shift: n * (w - shift) ** 2 * c,
    SMALL_SWIN,
    SWIN,
)
def swin_shifted(m: Any, g: int, **sizes: int) -> Sequence[Any]:
    plain, shifted = _swin(m, g=g, **sizes)
    return shifted[:, g + 1], plain[:, g + 1]


@program(
    LAYOUTS,
    "How many cells does the last shifted window, which wraps around, share with the first plain one?",
    "share",
    lambda n, g, w, c, shift: n * shift**2 * c,
    SMALL_SWIN,
    SWIN,
)
def swin_wrapped(m: Any, g: int, **sizes: int) -> Sequence[Any]:
    plain, shifted = _swin(m, g=g, **sizes)
    return shifted[:, g * g - 1], plain[:, 0]


@program(
    LAYOUTS,
    "Do the shifted windows of an image read it whole?",
    "same cells",
    lambda n, g, w, c, shift: True,
    SMALL_SWIN,
    SWIN,
)
def swin_all_windows(m: Any, **sizes: int) -> Sequence[Any]:
    plain, shifted = _swin(m, **sizes)
    return shifted, plain


# ------------------------------------------------------------------------------------------------------- shards

SHARDS = "Shards and parallelism"
LLAMA_LAYER = {"f": 8192, "k": 1024, "ff": 28672, "ranks": 16}
SMALL_LAYER = {"f": 6, "k": 2, "ff": 10, "ranks": 4}


def _layer(f: int, k: int, ff: int) -> list[tuple[int, ...]]:
    """The shapes of a transformer layer's parameters."""
    return [(f,), (f, f), (k, f), (k, f), (f, f), (f,), (ff, f), (ff, f), (f, ff)]


def _flat_layer(m: Any, f: int, k: int, ff: int, ranks: int) -> tuple[Any, list[Any]]:
    """A layer's flat buffer, one row for each rank, and the parameters in it."""
    shapes = _layer(f, k, ff)
    ends = list(accumulate(map(prod, shapes)))
    flat = m.allocate((-(-ends[-1] // ranks) * ranks,))
    each = zip(shapes, ends, strict=True)
    return flat.reshape(ranks, -1), [flat[end - prod(shape) : end].reshape(shape) for shape, end in each]


def _shard_ends(f: int, k: int, ff: int, ranks: int) -> tuple[list[int], int]:
    ends = list(accumulate(map(prod, _layer(f, k, ff))))
    return ends, -(-ends[-1] // ranks)


def _parameter_shards(f: int, k: int, ff: int, ranks: int) -> int:
    """How many parameters have cells in how many shards, together."""
    ends, width = _shard_ends(f, k, ff, ranks)
    starts = [0, *ends[:-1]]
    return sum((end - 1) // width - start // width + 1 for start, end in zip(starts, ends, strict=True))


@program(
    SHARDS,
    "Which flat shards hold which parameters of a Llama-3-70B layer (FSDP): how many pairs meet?",
    "pairs",
    lambda f, k, ff, ranks: _parameter_shards(f, k, ff, ranks),
    SMALL_LAYER,
    LLAMA_LAYER,
)
def fsdp_shards(m: Any, ranks: int, **sizes: int) -> Sequence[Any]:
    shards, parameters = _flat_layer(m, ranks=ranks, **sizes)
    return [*parameters, *(shards[r] for r in range(ranks))]


def _columns_in_shard(f: int, k: int, ff: int, ranks: int) -> int:
    """How many cells of columns ff/4 to ff/2 of the last parameter are in the last shard but one."""
    ends, width = _shard_ends(f, k, ff, ranks)
    lo, hi = (ranks - 2) * width, (ranks - 1) * width
    rows = range(ends[-2], ends[-1], ff)
    return sum(max(0, min(hi, row + ff // 2) - max(lo, row + ff // 4)) for row in rows)


@program(
    SHARDS,
    "How many cells of a column shard (tensor parallel) of the down projection are in one flat shard (FSDP)?",
    "share",
    lambda f, k, ff, ranks: _columns_in_shard(f, k, ff, ranks),
    SMALL_LAYER,
    LLAMA_LAYER,
)
def fsdp_against_columns(m: Any, f: int, k: int, ff: int, ranks: int) -> Sequence[Any]:
    shards, parameters = _flat_layer(m, f, k, ff, ranks)
    return parameters[-1][:, ff // 4 : ff // 2], shards[ranks - 2]


@program(
    SHARDS,
    "How many cells do a row shard and a column shard of one weight share?",
    "share",
    lambda f, ff, ranks: (f // ranks) * (ff // ranks),
    {"f": 6, "ff": 9, "ranks": 3},
    {"f": 8192, "ff": 28672, "ranks": 8},
)
def tensor_parallel(m: Any, f: int, ff: int, ranks: int) -> Sequence[Any]:
    w = m.allocate((f, ff))
    return w.reshape(ranks, f // ranks, ff)[1], w.reshape(f, ranks, ff // ranks)[:, 2]


@program(
    SHARDS,
    "How many rows of rank 0's share of gate and up lie in the naive first chunk of the fused weight?",
    "share",
    lambda f, ff, ranks: ff // ranks * f,
    {"f": 4, "ff": 8, "ranks": 4},
    {"f": 8192, "ff": 28672, "ranks": 8},
)
def fused_gate_up(m: Any, f: int, ff: int, ranks: int) -> Sequence[Any]:
    w = m.allocate((2 * ff, f))
    own = w.reshape(2, ranks, ff // ranks, f)[:, 0]
    return own, w.reshape(ranks, 2 * ff // ranks, f)[0]


@program(
    SHARDS,
    "Do the ranks' shares of a fused grouped-query projection (queries, keys, values of each) overlap?",
    "pairs",
    lambda h, k, d, f, ranks: 0,
    {"h": 4, "k": 2, "d": 3, "f": 5, "ranks": 2},
    {"h": 64, "k": 8, "d": 128, "f": 8192, "ranks": 8},
)
def fused_gqa_shares(m: Any, h: int, k: int, d: int, f: int, ranks: int) -> Sequence[Any]:
    w = m.allocate(((h + 2 * k) * d, f))
    q, keys, v = w[: h * d], w[h * d : (h + k) * d], w[(h + k) * d :]
    parts = [part.reshape(ranks, -1, f) for part in (q, keys, v)]
    return [m.concatenate([part[r] for part in parts]) for r in range(ranks)]


@program(
    SHARDS,
    "How many cells does one rank send to another in Ulysses' all-to-all, from sequence shards to head shards?",
    "share",
    lambda s, h, d, ranks: (s // ranks) * (h // ranks) * d,
    {"s": 6, "h": 4, "d": 3, "ranks": 2},
    {"s": 131072, "h": 64, "d": 128, "ranks": 8},
)
def ulysses(m: Any, s: int, h: int, d: int, ranks: int) -> Sequence[Any]:
    x = m.allocate((s, h, d))
    return x.reshape(ranks, s // ranks, h, d)[1], x.reshape(s, ranks, h // ranks, d)[:, 0]


def _zigzag(m: Any, x: Any, s: int, ranks: int) -> list[Any]:
    """Of 2 x ranks chunks each rank's: one from the front and one from the back."""
    chunk = s // (2 * ranks)
    chunks = [x[k * chunk : (k + 1) * chunk] for k in range(2 * ranks)]
    return [m.concatenate([chunks[r], chunks[2 * ranks - 1 - r]]) for r in range(ranks)]


RING, SMALL_RING = {"s": 131072, "f": 8192, "ranks": 8}, {"s": 12, "f": 2, "ranks": 3}


@program(
    SHARDS,
    "Do the ranks of a zigzag ring share a token?",
    "pairs",
    lambda s, f, ranks: 0,
    SMALL_RING,
    RING,
)
def zigzag_ranks(m: Any, s: int, f: int, ranks: int) -> Sequence[Any]:
    return _zigzag(m, m.allocate((s, f)), s, ranks)


@program(
    SHARDS,
    "Do the ranks of a zigzag ring read all tokens together?",
    "same cells",
    lambda s, f, ranks: True,
    SMALL_RING,
    RING,
)
def zigzag_is_whole(m: Any, s: int, f: int, ranks: int) -> Sequence[Any]:
    x = m.allocate((s, f))
    return m.concatenate(_zigzag(m, x, s, ranks)), x


@program(
    SHARDS,
    "How many layers of an interleaved pipeline stage lie in the second half of the layers?",
    "share",
    lambda layers, ranks, v, f: (layers // ranks // 2) * f,
    {"layers": 12, "ranks": 3, "v": 2, "f": 5},
    {"layers": 80, "ranks": 4, "v": 4, "f": 855_654_400},
)
def interleaved_pipeline(m: Any, layers: int, ranks: int, v: int, f: int) -> Sequence[Any]:
    x = m.allocate((layers, f))
    return x.reshape(v, ranks, layers // (ranks * v), f)[:, 1], x[layers // 2 :]


def _bucket_pairs(total: int, ranks: int, bucket: int) -> int:
    cuts = {*range(0, total, bucket), *range(0, total, total // ranks)}
    return len(cuts)


@program(
    SHARDS,
    "Which gradient buckets meet which optimizer shards, where neither divides the other?",
    "pairs",
    lambda total, ranks, bucket: _bucket_pairs(total, ranks, bucket),
    {"total": 60, "ranks": 5, "bucket": 7},
    {"total": 855_654_400, "ranks": 64, "bucket": 13_107_200},
)
def buckets_against_shards(m: Any, total: int, ranks: int, bucket: int) -> Sequence[Any]:
    flat = m.allocate((total,))
    shards = flat.reshape(ranks, total // ranks)
    buckets = [flat[k : k + bucket] for k in range(0, total, bucket)]
    return [*buckets, *(shards[r] for r in range(ranks))]


@program(
    SHARDS,
    "How many tokens of rank 1's samples (every 8th) are in its neighbor's block of the data set?",
    "share",
    lambda n, s, ranks: n // ranks // ranks * s,
    {"n": 18, "s": 4, "ranks": 3},
    {"n": 1 << 20, "s": 8192, "ranks": 8},
)
def strided_samples(m: Any, n: int, s: int, ranks: int) -> Sequence[Any]:
    x = m.allocate((n, s))
    return x[1::ranks], x.reshape(ranks, n // ranks, s)[2]


# ------------------------------------------------------------------------------------------------ ragged and paged

RAGGED = "Ragged batches, pages and scans"


def lengths_of(count: int, most: int) -> list[int]:
    """Lengths of sequences, from 1 to `most`."""
    return [1 + (k * 7919 + k * k * 104729) % most for k in range(count)]


BATCH, SMALL_BATCH = {"count": 300, "most": 2048, "f": 1024}, {"count": 7, "most": 6, "f": 2}


def _ragged(m: Any, count: int, most: int, f: int) -> tuple[Any, list[Any]]:
    """The packed tokens of a batch, and its sequences."""
    lengths = lengths_of(count, most)
    ends = list(accumulate(lengths))
    flat = m.allocate((ends[-1], f))
    return flat, [flat[end - n : end] for n, end in zip(lengths, ends, strict=True)]


@program(
    RAGGED,
    "Do the sequences of a ragged batch, one after another, read the packed tokens whole?",
    "same cells",
    lambda count, most, f: True,
    SMALL_BATCH,
    BATCH,
)
def ragged_is_whole(m: Any, **sizes: int) -> Sequence[Any]:
    flat, sequences = _ragged(m, **sizes)
    return m.concatenate(sequences), flat


def _padded_stack(m: Any, sequences: Sequence[Any], most: int) -> Any:
    return m.stack([m.pad(x, ((0, most - x.shape[0]), (0, 0))) for x in sequences])


def _tokens_within(count: int, most: int, first: int, last: int) -> int:
    """How many of the first positions of each sequence are in a range of the packed tokens."""
    lengths = lengths_of(count, most)
    starts = [0, *accumulate(lengths)]
    kept = [range(s, s + min(n, most // 2)) for s, n in zip(starts, lengths, strict=False)]
    return sum(max(0, min(last, r.stop) - max(first, r.start)) for r in kept)


@program(
    RAGGED,
    "How many cells does the first half of the columns of the padded batch share with a slice of the packed tokens?",
    "share",
    lambda count, most, f: f * _tokens_within(count, most, most, 3 * most),
    SMALL_BATCH,
    BATCH,
)
def padded_stack_against_slice(m: Any, count: int, most: int, f: int) -> Sequence[Any]:
    flat, sequences = _ragged(m, count, most, f)
    return _padded_stack(m, sequences, most)[:, : most // 2], flat[most : 3 * most]


def _pairs_of_cuts(count: int, most: int) -> int:
    """How many pairs of a sequence and a block of `most` tokens meet."""
    lengths = lengths_of(count, most)
    ends = list(accumulate(lengths))
    return sum((end - 1) // most - (end - n) // most + 1 for n, end in zip(lengths, ends, strict=True))


@program(
    RAGGED,
    "Which sequences of a ragged batch meet which blocks of tokens: how many pairs?",
    "pairs",
    lambda count, most, f: _pairs_of_cuts(count, most),
    SMALL_BATCH,
    BATCH,
)
def ragged_against_blocks(m: Any, count: int, most: int, f: int) -> Sequence[Any]:
    flat, sequences = _ragged(m, count, most, f)
    blocks = [flat[k : k + most] for k in range(0, flat.shape[0], most)]
    return [*sequences, *blocks]


def _scan(numbers: Any, cuts: Sequence[tuple[int, int]]) -> Any:
    """Chunks of the numbers, the first few of each dropped, several times."""
    for chunk, dropped in cuts:
        whole = numbers.shape[1] // chunk * chunk
        chunks = numbers[:, :whole].reshape(numbers.shape[0], -1, chunk, numbers.shape[-1])
        numbers = chunks[:, :, dropped:].reshape(numbers.shape[0], -1, numbers.shape[-1])
    return numbers


def _scanned_tokens(s: int, cuts: Sequence[tuple[int, int]]) -> list[int]:
    tokens = list(range(s))
    for chunk, dropped in cuts:
        whole = len(tokens) // chunk * chunk
        tokens = [t for k, t in enumerate(tokens[:whole]) if k % chunk >= dropped]
    return tokens


SCAN = {"b": 8, "s": 16384, "f": 4096, "cuts": ((256, 3), (192, 5), (100, 7))}
SMALL_SCAN = {"b": 2, "s": 60, "f": 2, "cuts": ((8, 1), (5, 2), (7, 3))}


@program(
    RAGGED,
    "After chunks of a scan were cut three times, no two alike: how many cells of the second half are left?",
    "share",
    lambda b, s, f, cuts: b * f * sum(t >= s // 2 for t in _scanned_tokens(s, cuts)),
    SMALL_SCAN,
    SCAN,
)
def misaligned_scan(m: Any, b: int, s: int, f: int, cuts: Sequence[tuple[int, int]]) -> Sequence[Any]:
    x = m.allocate((b, s, f))
    return _scan(x, cuts), x[:, s // 2 :]


@program(
    RAGGED,
    "Do even and odd chunks of a scan share a cell after chunks were cut three times, no two alike?",
    "meet",
    lambda b, s, f, cuts: False,
    SMALL_SCAN,
    SCAN,
)
def misaligned_scan_chunks(m: Any, b: int, s: int, f: int, cuts: Sequence[tuple[int, int]]) -> Sequence[Any]:
    chunk = cuts[-1][0] - cuts[-1][1]
    found = _scan(m.allocate((b, s, f)), cuts)
    chunks = found.reshape(b, -1, chunk, f)
    return chunks[:, ::2], chunks[:, 1::2]


def page_table(sequence: int, pages: int, total: int) -> np.ndarray:
    """The pages of a sequence, scattered over a cache; no page is in two sequences' tables."""
    return (sequence * pages + np.arange(pages)) * 7919 % total


PAGES, SMALL_PAGES = {"pages": 312, "total": 16384, "f": 1024}, {"pages": 5, "total": 32, "f": 3}


@program(
    RAGGED,
    "Do two sequences of a paged cache (vLLM, 16 tokens a page) share a cell?",
    "meet",
    lambda pages, total, f: False,
    SMALL_PAGES,
    PAGES,
)
def paged_cache(m: Any, pages: int, total: int, f: int) -> Sequence[Any]:
    cache = m.allocate((total, 16, f))
    return tuple(m.take(cache, page_table(k, pages, total), 0) for k in (0, 1))


@program(
    RAGGED,
    "How many cells do two sequences with a common prompt share, of pages of a third of their length?",
    "share",
    lambda pages, total, f: pages // 3 * 16 * f,
    SMALL_PAGES,
    PAGES,
)
def paged_prefix(m: Any, pages: int, total: int, f: int) -> Sequence[Any]:
    cache = m.allocate((total, 16, f))
    one, two = (page_table(k, pages, total) for k in (0, 1))
    forked = np.concatenate([one[: pages // 3], two[pages // 3 :]])
    return m.take(cache, one, 0), m.take(cache, forked, 0)


@program(
    RAGGED,
    "Does a page table name the same cells as the slots of its tokens?",
    "same cells",
    lambda pages, total, f: True,
    SMALL_PAGES,
    PAGES,
)
def paged_slots(m: Any, pages: int, total: int, f: int) -> Sequence[Any]:
    cache, table = m.allocate((total, 16, f)), page_table(1, pages, total)
    slots = (table[:, None] * 16 + np.arange(16)).ravel()
    return m.take(cache, table, 0), m.take(cache.reshape(total * 16, f), slots, 0)


@program(
    RAGGED,
    "After a ring of keys was rolled into order: how many cells do its older half and the ring's first quarter share?",
    "share",
    lambda w, f: w // 8 * f,
    {"w": 16, "f": 2},
    {"w": 4096, "f": 1024},
)
def rolled_ring(m: Any, w: int, f: int) -> Sequence[Any]:
    ring = m.allocate((w, f))
    ordered = m.roll(ring, -5 * w // 8, 0)
    return ordered[: w // 2], ring[: w // 4]


@program(
    RAGGED,
    "How many cells do inputs (all tokens but the last) and labels (all but the first) share?",
    "share",
    lambda b, s: b * (s - 2),
    {"b": 3, "s": 7},
    {"b": 512, "s": 8192},
)
def shifted_labels(m: Any, b: int, s: int) -> Sequence[Any]:
    tokens = m.allocate((b, s))
    return tokens[:, :-1], tokens[:, 1:]


@program(
    RAGGED,
    "How many cells do the tokens of expert 2, gathered by a router, share with the first half of the tokens?",
    "share",
    lambda tokens, f, experts: f * int((_routed(tokens, experts, 2) < tokens // 2).sum()),
    {"tokens": 20, "f": 3, "experts": 4},
    {"tokens": 4096, "f": 7168, "experts": 64},
)
def routed_tokens(m: Any, tokens: int, f: int, experts: int) -> Sequence[Any]:
    x = m.allocate((tokens, f))
    return m.take(x, _routed(tokens, experts, 2), 0), x[: tokens // 2]


def _routed(tokens: int, experts: int, expert: int) -> np.ndarray:
    """The tokens that a router sends to an expert."""
    chosen = (np.arange(tokens) * 2654435761 >> 7) % experts
    return np.flatnonzero(chosen == expert)
