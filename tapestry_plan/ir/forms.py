"""A shard's work in a few closed forms, for backends that have kernels for them.

A declaration's block function is the truth, and runs wherever NumPy's functions do. A form says the same work in
words: a backend that knows them may do it in one pass, and leaves to the block function whatever it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

ACTIVATIONS = "none", "relu", "sigmoid", "tanh", "gelu"
"""Functions of one cell that a form may end in; ``gelu`` is the exact one, ``relu`` keeps NaNs."""


class MatrixProduct(Struct, frozen=True):
    """Output 0 is ``activation(a @ b + bias)``.

    Parameters
    ----------
    a, b : int
        Numbers of the shard's inputs.
    bias : int or None
        The same; it broadcasts to the output, and may be missing from a shard.
    transposed : tuple of bool
        Whether a and b are read with their last two axes exchanged.
    activation : str
        One of `ACTIVATIONS`.
    """

    a: int = 0
    b: int = 1
    bias: int | None = None
    transposed: tuple[bool, bool] = (False, False)
    activation: str = "none"


class Correlation(Struct, frozen=True):
    """Output 0 is ``activation(w ⋆ x + bias)`` of blocks that hold the halo: samples, channels, one to three axes.

    Parameters
    ----------
    x, w : int
        Numbers of the shard's inputs.
    bias : int or None
        The same, one value for each output channel; it may be missing from a shard.
    strides, dilations : tuple of int
    groups : tuple of ((begin, end), begin)
        For each group in the blocks its output channels, and the first channel that it reads of as many as w has.
    activation : str
        One of `ACTIVATIONS`.
    """

    x: int
    w: int
    bias: int | None
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: tuple[tuple[tuple[int, int], int], ...]
    activation: str = "none"


class Activation(Struct, frozen=True):
    """Output 0 is a function of input 0, cell by cell: one of `ACTIVATIONS`, by name."""

    name: str


class Addition(Struct, frozen=True):
    """Output 0 is the sum of inputs 0 and 1, which broadcast to it."""


class Softmax(Struct, frozen=True):
    """Output 0 is ``exp(x) / Σ exp(x)`` of input 0 along its last axis."""


class Normalization(Struct, frozen=True):
    """Output 0 is input 0 divided by its deviation over the axes that input 1 has, times that, plus input 2.

    Parameters
    ----------
    epsilon : float
        Added to the variance.
    is_centered : bool
        Whether the mean is taken off first; else the deviation is from zero.
    has_bias : bool
        Whether there is an input 2.
    """

    epsilon: float
    is_centered: bool
    has_bias: bool


class Attention(Struct, frozen=True):
    """Output 0 is the attention of inputs 0, 1 and 2, many heads at once.

    Parameters
    ----------
    attend : callable
        ``(xp, inputs, out, nbytes)``: makes it with scores of so many bytes at a time, at least those of one head of
        keys.
    """

    attend: Callable[[Any, Sequence[Any], Any, int], None]


class RandomCells(Struct, frozen=True):
    """Output 0 is made of Philox's words of the cells in a box of a tensor.

    Parameters
    ----------
    key : tuple of int
        Two words.
    start, shape, extents : tuple of int
        The box, and the tensor's shape.
    each : int
        Words of a cell: those from number ``each·(its row-major number)`` on.
    finish : callable
        ``(xp, words, inputs, outputs)``: writes the output from words of shape (*shape, each).
    ends : tuple of float, optional
        Where the cells are uniform in [low, high), these: a word's upper 24 bits for float32, 53 bits for float64.
    """

    key: tuple[int, int]
    start: tuple[int, ...]
    shape: tuple[int, ...]
    extents: tuple[int, ...]
    each: int
    finish: Callable[[Any, Any, Sequence[Any], Sequence[Any]], None]
    ends: tuple[float, float] | None = None


class Scatter(Struct, frozen=True):
    """Output 0 is input 0 with updates put into its cells, those of one cell one after the other.

    Parameters
    ----------
    function : str
        NumPy's name of what combines a cell and an update; "replace" for the update alone.
    named : tuple of int
        Axes of the output whose cells are named by index.
    turn : int
        The axis of the updates along which cells may be named again. The updates' other axes are, in order, the
        output's that are not named.
    prepare : callable
        ``(xp, inputs) -> (cells, updates)``: for each named axis the numbers of cells, from the front, which broadcast
        to the updates' shape; IndexError for one outside the axis.
    """

    function: str
    named: tuple[int, ...]
    turn: int
    prepare: Callable[[Any, Sequence[Any]], tuple[Sequence[Any], Any]]


Form = MatrixProduct | Correlation | Activation | Addition | Softmax | Normalization | Attention | RandomCells | Scatter
