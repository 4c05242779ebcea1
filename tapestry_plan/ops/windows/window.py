"""Windows that move over spatial axes: of convolutions and of pools."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import cast

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tapestry_plan.ir import Attrs, LinearForm, Shape, Shard
from tapestry_plan.ops.operands import ints_of
from tapestry_sets.limits import quote


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

    @classmethod
    def of_pool(cls, rank: int, attrs: Attrs) -> Window:
        """As `of`, with the extents of the attribute `kernel`."""
        if "kernel" not in attrs:
            raise ValueError(f"the attribute kernel is missing; give {rank} extents")
        return cls.of(ints_of(attrs["kernel"], rank, "kernel", 1), attrs)

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
            if room < 0 and (not ceil_mode or room <= -self.strides[axis]):
                raise ValueError(
                    f"a window of {quote(self.kernel)} with dilations {self.dilations} reaching over {self.reach} "
                    f"cells does not fit extents {quote(extents)} padded by {quote(self.begins)} and "
                    f"{quote(self.ends)}, spatial axis {axis}; pad more or take a smaller window"
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

    def counts(self, axis: int, outputs: range, extent: int, includes_padding: bool) -> NDArray[np.intp]:
        """How many cells of the windows of some outputs count toward their averages, along one axis of a tensor."""
        begin, end = (self.begins[axis], self.ends[axis]) if includes_padding else (0, 0)
        # Integers of Python: of one window the stride, of one cell the dilation may be of any size.
        first = np.array([o * self.strides[axis] - self.begins[axis] for o in outputs])[:, None]
        cells = first + np.array([k * self.dilations[axis] for k in range(self.kernel[axis])])
        return cast("NDArray[np.intp]", np.count_nonzero((cells >= -begin) & (cells < extent + end), axis=1))


def offsets_of(shard: Shard, window: Window, names: Sequence[str]) -> Iterator[tuple[slice, ...]]:
    """For each kernel offset of a shard the cells that it reads."""
    outs = [shard.length(name) for name in names]
    for at in product(*(range(shard.length(f"k{name}")) for name in names)):
        steps = zip(at, window.dilations, window.strides, outs, strict=True)
        yield tuple(slice(k * d, k * d + (n - 1) * s + 1, s) for k, d, s, n in steps)


def groups_of(shard: Shard) -> Iterator[tuple[int, slice, int]]:
    """For each group of a shard: its number, its output channels, and where its channels begin in the block read."""
    begin, end = shard.range("c")
    width, depth = shard.extent("c") // shard.attrs["groups"], shard.extent("ci")
    first = begin // width
    for group in range(first, (end - 1) // width + 1):
        low, high = max(begin, group * width), min(end, (group + 1) * width)
        yield group, slice(low - begin, high - begin), (group - first) * depth
