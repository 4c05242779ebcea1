"""Windows that move over spatial axes, and the pools that fold them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise, product
from typing import Any, cast

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tapestry_plan.autodiff import adjoints
from tapestry_plan.ir import Attrs, Axis, LinearForm, Shape, Shard, Signature, Tensor
from tapestry_plan.ops.cells import elementwise
from tapestry_plan.ops.declaration import operator
from tapestry_plan.ops.operands import floating, ints_of, length, numeric, spatial_names, spatial_of, touched


class Window(Struct, frozen=True):
    """How a window moves over the spatial axes.

    Parameters
    ----------
    kernel, strides, dilations : tuple of int
        One value for each spatial axis.
    begins, ends : tuple of int
        Padding cells before and after the tensor.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    @classmethod
    def of(cls, kernel: Sequence[int], attrs: Attrs) -> Window:
        """From the attributes `strides`, `pads` and `dilations`, ints or one value for each axis.

        `pads` may also hold all begins and then all ends.

        Raises
        ------
        ValueError
            For values of the wrong count or sign.
        """
        rank = len(kernel)
        pads = attrs.get("pads", 0)
        two_sided = not isinstance(pads, int) and len(pads) == 2 * rank
        both = ints_of(pads, 2 * rank if two_sided else rank, "pads", 0)
        return cls(
            tuple(kernel),
            ints_of(attrs.get("strides", 1), rank, "strides", 1),
            ints_of(attrs.get("dilations", 1), rank, "dilations", 1),
            both[:rank],
            both[-rank:],
        )

    @property
    def reach(self) -> tuple[int, ...]:
        """Cells from the window's first to its last, both counted."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    def out_shape(self, extents: Shape, ceil_mode: bool = False) -> Shape:
        """How many windows fit along each axis.

        With `ceil_mode` a last window may reach beyond the padding, but must begin before it.
        """
        out = []
        for axis, n in enumerate(extents):
            room = n + self.begins[axis] + self.ends[axis] - self.reach[axis]
            if room < 0:
                raise ValueError(
                    f"a window of {self.kernel} reaching over {self.reach} cells does not fit extents {extents} "
                    f"padded by {self.begins} and {self.ends}, spatial axis {axis}; "
                    "pad more or take a smaller window"
                )
            stride = self.strides[axis]
            count = room // stride + 1
            if ceil_mode and room % stride and count * stride < n + self.begins[axis]:
                count += 1
            out.append(count)
        return tuple(out)

    def forms(self, names: Sequence[str]) -> list[LinearForm]:
        """The coordinates read along the spatial axes, with a reduction axis k<name> for the offset."""
        return [
            {name: s, f"k{name}": d, "": -p}
            for name, s, d, p in zip(names, self.strides, self.dilations, self.begins, strict=True)
        ]


def offsets_of(
    shard: Shard, window: Window, names: Sequence[str]
) -> Iterator[tuple[tuple[int, ...], tuple[slice, ...]]]:
    """For each kernel offset of a shard: its number on each axis, and the cells that it reads."""
    outs = [length(shard, name) for name in names]
    kernel = [range(length(shard, f"k{name}")) for name in names]
    for at in product(*kernel):
        yield (
            at,
            tuple(
                slice(k * d, k * d + (n - 1) * s + 1, s)
                for k, d, s, n in zip(at, window.dilations, window.strides, outs, strict=True)
            ),
        )


# -- pools ---------------------------------------------------------------------------------------------


def _pool_signature(shapes: Sequence[Shape], attrs: Attrs, pad: float = 0.0, has_extents: bool = False) -> Signature:
    (x,) = shapes
    names = spatial_names(x, "operand 0")
    if "kernel" not in attrs:
        raise ValueError(f"the attribute kernel is missing; give {len(names)} extents")
    kernel = ints_of(attrs["kernel"], len(names), "kernel", 1)
    window = Window.of(kernel, attrs)
    for axis, (before, after, reach) in enumerate(zip(window.begins, window.ends, window.reach, strict=True)):
        if max(before, after) >= reach:
            raise ValueError(
                f"pads of {before} and {after} on spatial axis {axis} leave windows of {reach} cells wholly "
                "in the padding; pad by less than the window"
            )
    out = map(Axis, ("n", "c", *names), (*x[:2], *window.out_shape(x[2:], bool(attrs.get("ceil_mode")))))
    axes = (*out, *(Axis(f"k{name}", size, "reduction") for name, size in zip(names, kernel, strict=True)))
    read = touched(axes, ["n", "c", *window.forms(names)], pad=pad, extents=x if has_extents else None)
    return Signature(axes, (read,), (touched(axes, ["n", "c", *names]),))


def _fold_block(fold: str) -> Any:
    """The block that folds windows by a function of the array namespace."""

    def block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
        _fold_windows(getattr(xp, fold), inputs[0], outputs[0], shard)

    return block


def _average_pool_block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
    (out,) = outputs
    _fold_windows(xp.add, inputs[0], out, shard)
    names = spatial_of(shard)
    counts = [_cells_counted(shard, axis, name) for axis, name in enumerate(names)]
    if all((c == c[0]).all() for c in counts):
        xp.divide(out, out.dtype.type(math.prod(int(c[0]) for c in counts)), out=out)
        return
    for axis, count in enumerate(counts):
        ends = [0, *(np.flatnonzero(np.diff(count)) + 1).tolist(), len(count)]
        for begin, end in pairwise(ends):  # cells of one count at a time: the counts need no array on the device
            part = out[(..., slice(begin, end), *(slice(None),) * (len(counts) - axis - 1))]
            xp.divide(part, out.dtype.type(count[begin]), out=part)


def _fold_windows(fold: Any, x: Any, out: Any, shard: Shard) -> None:
    """Fold each window, one kernel offset after the other, a batch item at a time."""
    names = spatial_of(shard)
    window = Window.of(ints_of(shard.attrs["kernel"], len(names), "kernel", 1), shard.attrs)
    offsets = [(slice(None), *cells) for _, cells in offsets_of(shard, window, names)]
    for n in range(out.shape[0]):
        out[n] = x[n][offsets[0]]
        for cells in offsets[1:]:
            fold(out[n], x[n][cells], out=out[n])


def _cells_counted(shard: Shard, axis: int, name: str) -> NDArray[np.intp]:
    """How many cells of each window of a shard count toward its average, along one spatial axis."""
    rank = len(spatial_of(shard))
    window = Window.of(ints_of(shard.attrs["kernel"], rank, "kernel", 1), shard.attrs)
    kernel = window.kernel[axis]
    positions = np.arange(*shard.range(name)) * window.strides[axis] - window.begins[axis]
    extents = shard.signature.inputs[0].extents
    assert extents is not None, "the signature of average_pool says where its tensor ends"
    low, high = 0, extents[2 + axis]
    if shard.attrs.get("count_include_pad"):
        low, high = -window.begins[axis], high + window.ends[axis]
    cells = positions[:, None] + np.arange(kernel) * window.dilations[axis]
    return cast("NDArray[np.intp]", np.count_nonzero((cells >= low) & (cells < high), axis=1))


@operator(
    block=_fold_block("maximum"),
    signature=partial(_pool_signature, pad=float("-inf")),
    reduction="max",
    dtype=floating,
    expansions=(adjoints.windows_max,),
)
def max_pool(
    x: Tensor,
    kernel: int | Sequence[int],
    *,
    strides: int | Sequence[int] = 1,
    pads: int | Sequence[int] = 0,
    dilations: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    name: str | None = None,
) -> Tensor:
    """The maximum of each window; the parameters are those of `conv`.

    With `ceil_mode` a last window may reach beyond the padding.

    References
    ----------
    ONNX MaxPool.
    """


@operator(
    block=_average_pool_block,
    signature=partial(_pool_signature, has_extents=True),
    reduction="sum",
    dtype=floating,
    expansions=(adjoints.windows_mean,),
)
def average_pool(
    x: Tensor,
    kernel: int | Sequence[int],
    *,
    strides: int | Sequence[int] = 1,
    pads: int | Sequence[int] = 0,
    dilations: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    name: str | None = None,
) -> Tensor:
    """The mean of each window; the parameters are those of `max_pool`.

    With `count_include_pad` the cells of the padding count, as zeros; cells beyond it never do.

    References
    ----------
    ONNX AveragePool.
    """


@operator(
    block=_fold_block("add"),
    signature=_pool_signature,
    reduction="sum",
    dtype=numeric,
    expansions=(adjoints.windows_sum,),
)
def sum_pool(
    x: Tensor,
    kernel: int | Sequence[int],
    *,
    strides: int | Sequence[int] = 1,
    pads: int | Sequence[int] = 0,
    dilations: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    name: str | None = None,
) -> Tensor:
    """The sum of each window, the padding being zeros; the parameters are those of `max_pool`."""


def lp_pool(
    x: Tensor,
    kernel: int | Sequence[int],
    *,
    p: int = 2,
    strides: int | Sequence[int] = 1,
    pads: int | Sequence[int] = 0,
    dilations: int | Sequence[int] = 1,
    ceil_mode: bool = False,
    name: str | None = None,
) -> Tensor:
    """(Σ |x|ᵖ)^(1/p) over each window: powers, their `sum_pool`, and the root, each an operator of its own.

    Parameters
    ----------
    x : Tensor of a floating dtype
    p : int
        At least 1. The other parameters are those of `max_pool`.

    References
    ----------
    ONNX LpPool.
    """
    window = {"strides": strides, "pads": pads, "dilations": dilations}
    return p_norm(x, p, lambda powers: sum_pool(powers, kernel, ceil_mode=ceil_mode, name=name, **window))


def p_norm(x: Tensor, p: int, total: Callable[[Tensor], Tensor]) -> Tensor:
    """(Σ |x|ᵖ)^(1/p), the sum being what `total` makes of the powers.

    Raises
    ------
    ValueError
        For a p that is no integer of 1 or more, and integers in x.
    """
    if isinstance(p, bool) or not isinstance(p, int) or p < 1:
        raise ValueError(f"p is {p!r}; give an integer >= 1")
    floating([x.dtype], {})
    if p == 1:
        return total(abs(x))
    if p == 2:
        return elementwise.sqrt(total(x * x))
    return total(abs(x) ** p) ** (1 / p)
