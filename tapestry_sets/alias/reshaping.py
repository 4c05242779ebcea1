"""Would a reshape be a view, or a copy? NumPy's and PyTorch's rules, from strides alone.

Axes that a new one is made of must go on where the next inner one ends, in steps of one length:

    (4, 6) with strides (6, 1) to (24,)     6 = 6 * 1: one run, a view
    (6, 4) with strides (1, 6) to (24,)     1 is not 4 * 6: a copy
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal

from msgspec import Struct

from tapestry_sets.alias.memory.arrays import ViewLike, read_view
from tapestry_sets.digits import Levels, renumber
from tapestry_sets.limits import Public, extents_of, quote
from tapestry_sets.views import Reshape, View


class ReshapeView(Struct, frozen=True, metaclass=Public):
    """Whether a reshape is a view of the same memory; true if it is in both libraries.

    Attributes
    ----------
    numpy : bool
        Whether ``np.reshape(x, shape, copy=False)`` succeeds.
    torch : bool
        Whether ``x.view(shape)`` succeeds, of a tensor with these strides; there are none with negative ones, or with
        ones that are not whole elements.
    strides : tuple of int or None
        Of the reshaped array, in cells of a view, in bytes of an array; 0 on axes of extent 1. None if it is copied or
        has no elements.
    why : str
        What decides it.

    Examples
    --------
    >>> from tapestry_sets import allocate, reshape_is_view
    >>> x = allocate((4, 6), itemsize=4)
    >>> found = reshape_is_view(x[:, :3], (2, 2, 3))
    >>> found.numpy, found.torch, found.strides
    (True, True, (12, 6, 1))
    """

    numpy: bool
    torch: bool
    strides: tuple[int, ...] | None
    why: str

    def __bool__(self) -> bool:
        return self.numpy and self.torch

    def __repr__(self) -> str:
        said = {(True, True): "a view", (True, False): "a view in NumPy alone", (False, False): "a copy"}
        return f"ReshapeView({said[self.numpy, self.torch]}: {self.why})"


def reshape_is_view(x: ViewLike, shape: int | Sequence[int], order: Literal["C", "F"] = "C") -> ReshapeView:
    """Return whether a reshape would be a view of the same memory, in NumPy and in PyTorch, or a copy.

    Parameters
    ----------
    x : View or array
        Of a view, an array of its strides is meant; a view that has none is a copy in both libraries already.
    shape : int or sequence of int
        Of as many elements; one extent may be -1.
    order : "C" or "F"
        In which elements are read and placed, as ``np.reshape`` has it. In PyTorch "F" is the same of reversed axes,
        by ``permute``, ``view`` and ``permute``.

    Raises
    ------
    TypeError, ValueError
        If `x` is neither a view nor an array, the sizes differ, or the order is another.

    Examples
    --------
    >>> import numpy as np
    >>> from tapestry_sets import reshape_is_view
    >>> a = np.zeros((4, 6), np.float32)
    >>> reshape_is_view(a[:, ::2], (12,)), reshape_is_view(a.T, 24)
    (ReshapeView(a view: strides (8,)), ReshapeView(a copy: 4 is not 4 * 24, where axes 0 and 1 would be one))
    >>> reshape_is_view(a.T, -1, order="F").strides, reshape_is_view(a[::-1], (2, 2, 6))
    ((4,), ReshapeView(a view in NumPy alone: strides (-48, -24, 4); PyTorch has no strides below 0))

    References
    ----------
    NumPy's ``_attempt_nocopy_reshape``; PyTorch's ``Tensor.view`` and ``at::detail::computeStride``.
    """
    if not (isinstance(order, str) and order in ("C", "F")):
        raise ValueError(f'reshape_is_view: order {quote(order)} must be "C" (row-major) or "F" (column-major)')
    view = read_view(x, "reshape_is_view: x")
    itemsize = 1 if isinstance(x, View) else view.shape[-1]
    old = view.shape if isinstance(x, View) else view.shape[:-1]
    new = Reshape(extents_of((shape,), "reshape_is_view: shape")).out_shape((old,))
    if 0 in old:
        return ReshapeView(True, True, None, "there are no elements")
    found = view.find_strided()
    axes = None if found is None else found[1][1][: len(old)]
    if axes is None or any(len(levels) > 1 for levels in axes):
        return ReshapeView(False, False, None, f"{quote(view)} has no strides, so that it is a copy before")
    if order == "F":
        axes, new = axes[::-1], new[::-1]
    levels = renumber(axes, new)
    if levels is None or any(len(axis) > 1 for axis in levels):
        return ReshapeView(False, False, None, _say_break(axes, new, order))
    strides = tuple([axis[0][1] if n > 1 else 0 for axis, n in zip(levels, new, strict=True)])
    if order == "F":
        strides = strides[::-1]
    each = [axis[0][1] for axis in axes if axis and axis[0][0] > 1]
    why = f"strides {quote(strides)}"
    if min(each, default=0) < 0:
        return ReshapeView(True, False, strides, f"{why}; PyTorch has no strides below 0")
    if any(by % itemsize for by in each):
        return ReshapeView(True, False, strides, f"{why}; PyTorch has no strides that are not whole elements")
    return ReshapeView(True, True, strides, why)


def _say_break(axes: Sequence[Levels], shape: Sequence[int], order: str) -> str:
    """The innermost two axes that would have to be one, and do not go on in each other."""
    ends = {prod(shape[k:]) for k in range(len(shape))}
    inner, last = 1, None
    for axis in range(len(axes) - 1, -1, -1):
        n, by = axes[axis][0] if axes[axis] else (1, 0)
        if n == 1:
            continue
        if last is not None and inner not in ends and by != last[1] * last[2]:
            named = [k if order == "C" else len(axes) - 1 - k for k in (axis, last[0])]
            return f"{by} is not {last[1]} * {last[2]}, where axes {min(named)} and {max(named)} would be one"
        inner, last = inner * n, (axis, n, by)
    raise AssertionError("a reshape that is a copy joins axes that do not go on in each other")
