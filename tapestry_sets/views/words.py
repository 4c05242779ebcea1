"""NumPy's words for views, written once for everything that a view kind can be applied to.

`Viewable` turns each word into view kinds; a class that has a shape and says how a kind is applied to it (a view of
memory, a tensor of an alias graph, a tensor of a program) has them all. Functions of several stand in `functions`.

The words mean what they mean in NumPy, and a call that NumPy refuses raises NumPy's class of error. What differs:

- Nothing is copied: reshapes, repeats, tiles, pads and arrays of indices make aliases too.
- Integers are integers: a float, a boolean or a string in place of one is a TypeError, in a subscript an IndexError,
  even where NumPy would convert it or find another fault first. Sizes have no bound of 64 bits.
- Indices, counts and repetitions are checked also where there is nothing to read; rank 0 has no axis 0; -1 is the one
  negative extent of a reshape; windows have one cell or more, along different axes; a split into 0 parts is a
  ValueError.
- A subscript may have one array; `pad` has the modes that make no new values.
- `sliding_windows` has a step and a dilation, takes one size for all axes, and by default windows the leading ones.

Every n-th cell is a slice, ``x[::n]``, and each cell n times is `repeat`: subsampling and upsampling have no words of
their own.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from itertools import accumulate, chain, pairwise
from math import prod
from typing import Any, NoReturn, ParamSpec, Self, TypeGuard, TypeVar

import numpy as np

from tapestry_sets.integers import DisjointSetts, Sett, Stripe
from tapestry_sets.limits import as_int, as_ints, check_cell, check_pieces, extents_of, quote
from tapestry_sets.regions import DisjointRegions, Region
from tapestry_sets.views.kinds import shaping
from tapestry_sets.views.kinds.choosing import AsStrided, Diagonal, Index, Sample, Slice, SlidingWindow, Take
from tapestry_sets.views.kinds.joining import Fill
from tapestry_sets.views.kinds.kind import ViewKind, axes_of, axis_of
from tapestry_sets.views.pieces.maps import Shape
from tapestry_sets.views.subscript import Key, parse_index, take_kinds

V = TypeVar("V", bound="Viewable")
T = TypeVar("T")
P = ParamSpec("P")
Product = Region | DisjointRegions | Sett | DisjointSetts | Stripe | Sequence[Sett | DisjointSetts | Stripe]
"""A product of setts: a region, or one sett for each axis; a union will do that has one member."""


def at_once(word: Callable[P, T]) -> Callable[P, T]:
    """Let a word of several kinds leave nothing behind where one of them is refused."""

    @wraps(word)
    def said(*args: P.args, **kwargs: P.kwargs) -> T:
        first = args[0] if args else None
        if not isinstance(first, Viewable):
            given = chain(args, kwargs.values())
            flat = chain.from_iterable(x if isinstance(x, (list, tuple)) else (x,) for x in given)
            first = next((x for x in flat if isinstance(x, Viewable)), None)
        with nullcontext() if first is None else first._all_or_nothing():
            return word(*args, **kwargs)

    return said


class Viewable:
    """Something of a shape that view kinds can be applied to: NumPy's words in terms of `apply`."""

    __slots__ = ()

    __array_ufunc__: Any = None  # NumPy's operators leave these alone

    def __array__(self, *args: object, **kwargs: object) -> NoReturn:
        raise TypeError(
            f"NumPy is given a {type(self).__name__}, which has places and no values; use the words of tapestry_sets "
            "(overlaps, concatenate, pad, …) on it, and NumPy on arrays"
        )

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Extents.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> allocate((4, 6))[1:, ::2].shape
        (3, 3)
        """

    @abstractmethod
    def apply(self, kind: ViewKind, *others: Self) -> Self:
        """Apply a view kind to this and other views."""

    def _all_or_nothing(self) -> AbstractContextManager[None]:
        """Where `apply` adds something to a whole: what takes it back if an error is raised meanwhile."""
        return nullcontext()

    @property
    def rank(self) -> int:
        """Number of axes.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> allocate((4, 6))[0].rank
        1
        """
        return len(self.shape)

    @property
    def ndim(self) -> int:
        """Number of axes, under NumPy's name.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> allocate((4, 6)).ndim
        2
        """
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of cells of the view, repeated ones included.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> allocate((6,)).broadcast_to((4, 6)).size
        24
        """
        return prod(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a view of rank 0")
        return self.shape[0]

    def __iter__(self) -> Iterator[Self]:
        """The view at each place of its first axis, as `unstack` gives it."""
        if not self.shape:
            raise TypeError("iteration over a view of rank 0")
        return map(self.__getitem__, range(self.shape[0]))

    def __getitem__(self, key: Key | tuple[Key, ...]) -> Self:
        """Return the view under integers, slices, Ellipsis, None and at most one array of integers or booleans.

        All have NumPy's meaning. Unlike in NumPy, an array of indices makes an alias as slices do, booleans by
        themselves are refused, and two arrays are: `take` one axis after the other, or index with one array of
        row-major numbers of the reshaped view.

        Raises
        ------
        IndexError
            If an index is out of bounds, there are too many, or one is neither an integer nor a slice.
        TypeError
            If there are two arrays.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> a = allocate((4, 6))
        >>> a[1:, ::-2].shape, a[[3, 0, 0]].shape, a[:, np.arange(6) % 3 < 2].shape
        ((3, 3), (3, 6), (4, 4))
        """
        kinds = parse_index(key, self.shape)
        if len(kinds) == 1:
            return self.apply(kinds[0])
        with self._all_or_nothing():
            return apply_all(self, kinds)

    def reshape(self, *shape: int | Sequence[int]) -> Self:
        """Return the same cells in row-major order under another shape; one extent may be -1.

        Raises
        ------
        ValueError
            If the sizes differ.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> allocate((4, 6)).reshape(-1, 3).shape
        (8, 3)
        """
        return self.apply(shaping.Reshape(extents_of(shape, "reshape: shape")))

    def ravel(self) -> Self:
        """Return the cells in row-major order.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> allocate((4, 6)).T.ravel().shape
        (24,)
        """
        return self.reshape(self.size)

    def flatten(self) -> Self:
        """Return the cells in row-major order; as `ravel`, an alias.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> a = allocate((4, 6), name="a")
        >>> a.flatten()[7] == a[1, 1]
        True
        """
        return self.reshape(self.size)

    def permute_dims(self, axes: int | Sequence[int]) -> Self:
        """Return the view whose axis k is this one's axis axes[k].

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> allocate((2, 3, 4)).permute_dims((2, 0, 1)).shape
        (4, 2, 3)
        """
        return self.apply(shaping.PermuteDims(axis_tuple(axes, "permute_dims: axes")))

    def transpose(self, *axes: int | Sequence[int]) -> Self:
        """Return the view with axes in the given order, by default reversed.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> a = allocate((2, 3, 4))
        >>> a.transpose().shape, a.transpose(1, 0, 2).shape
        ((4, 3, 2), (3, 2, 4))
        """
        if not axes or (len(axes) == 1 and axes[0] is None):
            return self.permute_dims(tuple(reversed(range(self.rank))))
        return self.permute_dims(extents_of(axes, "transpose: axes"))

    @property
    def T(self) -> Self:
        """The view with its axes reversed.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> allocate((2, 3, 4)).T.shape
        (4, 3, 2)
        """
        return self.transpose()

    @property
    def mT(self) -> Self:
        """The view with its last two axes exchanged.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> allocate((2, 3, 4)).mT.shape
        (2, 4, 3)
        """
        if self.rank < 2:
            raise ValueError(
                f"mT: shape {quote(self.shape)} has rank {self.rank}; a matrix transpose needs 2 axes or more"
            )
        return self.swapaxes(-2, -1)

    def matrix_transpose(self) -> Self:
        """Return the view with its last two axes exchanged: Array API's name of `mT`.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> allocate((2, 3, 4)).matrix_transpose().shape
        (2, 4, 3)
        """
        return self.mT

    def swapaxes(self, axis1: int, axis2: int) -> Self:
        """Return the view with two axes exchanged.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> allocate((2, 3, 4)).swapaxes(0, -1).shape
        (4, 3, 2)
        """
        a, b = (axis_of(axis, self.rank, "swapaxes") for axis in (axis1, axis2))
        order = list(range(self.rank))
        order[a], order[b] = b, a
        return self.permute_dims(order)

    def moveaxis(self, source: int | Sequence[int], destination: int | Sequence[int]) -> Self:
        """Return the view with some axes moved to other places; the others stay in order.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> allocate((2, 3, 4, 5)).moveaxis((0, 1), (-1, 0)).shape
        (3, 4, 5, 2)
        """
        old, new = axis_tuple(source, "moveaxis: source"), axis_tuple(destination, "moveaxis: destination")
        old, new = axes_of(old, self.rank, "moveaxis: source"), axes_of(new, self.rank, "moveaxis: destination")
        if len(old) != len(new):
            raise ValueError(f"moveaxis: {len(old)} axes {old} for {len(new)} places {new}; give one place for each")
        moved = dict(zip(new, old, strict=True))
        rest = iter([axis for axis in range(self.rank) if axis not in moved.values()])
        return self.permute_dims([moved[at] if at in moved else next(rest) for at in range(self.rank)])

    def swizzle(self, bits: int, base: int, shift: int) -> Self:
        """Return the view whose index of row-major number x reads this one's number ``x ^ ((x & mask) >> shift)``.

        The mask is `bits` bits from ``base + shift`` on; a negative shift moves the `bits` from `base` on upwards. So
        a tile in shared memory is laid out without bank conflicts. Done twice it is undone. Of other layouts than
        row-major ones, swizzle the memory first: ``memory.swizzle(3, 3, 3).apply(AsStrided(shape, strides))``.

        Raises
        ------
        ValueError
            If the shift is below `bits` either way, or a number would leave the view: its size must be a multiple of
            2 to the power of the highest flipped bit, and one.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> tile = allocate((8, 64), name="tile", itemsize=2)
        >>> swizzled = tile.swizzle(3, 3, 3)  # 16 bytes stay together; row r begins at column 8 * r
        >>> swizzled[3, :8].same_elements(tile[3, 24:32]), swizzled[:, :8].contains(tile[:, :8])
        (True, False)
        >>> swizzled.swizzle(3, 3, 3) == tile
        True

        References
        ----------
        CUTLASS, CuTe: ``Swizzle<bits, base, shift>``.
        """
        of = as_int(bits, "swizzle: bits"), as_int(base, "swizzle: base"), as_int(shift, "swizzle: shift")
        return self.apply(shaping.Swizzle(*of))

    def flip(self, axis: int | Sequence[int] | None = None) -> Self:
        """Return the view with the given axes, by default all, reversed.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> a = allocate((4, 6), name="a")
        >>> a.flip(0)[0] == a[3], a.flip() == a[::-1, ::-1]
        (True, True)
        """
        return self.apply(shaping.Flip(tuple(range(self.rank)) if axis is None else axis_tuple(axis, "flip: axis")))

    def flipud(self) -> Self:
        """Return the view with the first axis reversed.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> a = allocate((4, 6), name="a")
        >>> a.flipud() == a[::-1]
        True
        """
        return self.flip(0)

    def fliplr(self) -> Self:
        """Return the view with the second axis reversed.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> a = allocate((4, 6), name="a")
        >>> a.fliplr() == a[:, ::-1]
        True
        """
        return self.flip(1)

    def rot90(self, k: int = 1, axes: Sequence[int] = (0, 1)) -> Self:
        """Return the view turned k times by 90 degrees in the plane of two axes, from the first to the second.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> allocate((4, 6)).rot90().shape
        (6, 4)
        """
        plane = as_ints(axes, "rot90: axes")
        if len(plane) != 2:
            raise ValueError(f"rot90: axes {quote(plane)} must be two, the plane in which to turn")
        a, b = axes_of(plane, self.rank, "rot90")
        turns = as_int(k, "rot90: k") % 4
        if turns == 2:
            return self.flip((a, b))
        if turns == 1:
            return self.flip(b).swapaxes(a, b)
        return self.swapaxes(a, b).flip(b) if turns else self.flip(())

    def squeeze(self, axis: int | Sequence[int] | None = None) -> Self:
        """Return the view without the given axes, by default all, of extent 1.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> allocate((1, 4, 1)).squeeze(0).shape
        (4, 1)
        """
        return self.apply(shaping.Squeeze(None if axis is None else axis_tuple(axis, "squeeze: axis")))

    def expand_dims(self, axis: int | Sequence[int]) -> Self:
        """Return the view with new axes of extent 1 at the given positions of the result.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> allocate((4, 6)).expand_dims((0, -1)).shape
        (1, 4, 6, 1)
        """
        return self.apply(shaping.ExpandDims(axis_tuple(axis, "expand_dims: axis")))

    def broadcast_to(self, shape: Sequence[int]) -> Self:
        """Return the view repeated to a shape.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> bias = allocate((6,), name="bias")
        >>> wide = bias.broadcast_to((4, 6))
        >>> wide.has_internal_overlap(), wide[2] == bias
        (True, True)
        """
        return self.apply(shaping.Broadcast(extents_of((shape,), "broadcast_to: shape")))

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Self:
        """Return the cells with x[axis2] - x[axis1] = offset as the last axis.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> a = allocate((4, 6), name="a")
        >>> a.diagonal(1).shape, a.diagonal(1)[0] == a[0, 1]
        ((4,), True)
        """
        return self.apply(Diagonal(as_int(offset, "diagonal: offset"), axis1, axis2))

    def sliding_windows(
        self,
        size: int | Sequence[int],
        step: int | Sequence[int] = 1,
        dilation: int | Sequence[int] = 1,
        axis: int | Sequence[int] | None = None,
    ) -> Self:
        """Return all windows of `size` cells along the given axes, by default the leading ones.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> allocate((10, 8)).sliding_windows((3, 3), step=2).shape
        (4, 3, 3, 3)
        """
        if axis is not None:
            axes = axes_of(axis_tuple(axis, "sliding_windows: axis"), self.rank, "sliding_windows")
        else:
            axes = tuple(range(len(size))) if _is_sequence(size) else (0,)
        n = len(axes)
        each = [_per_axis(value, n, what) for what, value in (("size", size), ("step", step), ("dilation", dilation))]
        return self.apply(SlidingWindow(each[0], each[1], each[2], axes))

    @at_once
    def take(self, indices: int | Sequence[Any] | np.ndarray[Any, Any], axis: int | None = None) -> Self:
        """Return the cells at some places along an axis, in the order of the indices; without an axis, flattened.

        Parameters
        ----------
        indices : int or array of int
            Negative ones count from the end. The axis is replaced by the axes of the array.
        axis : int, optional

        Raises
        ------
        IndexError
            If an index is out of bounds.
        TooManyPieces
            When cells are asked for as explicit sets, if the indices are too many runs of equal steps.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> a = allocate((4, 6), name="a")
        >>> print(a.take([5, 0, 2], axis=1).origins()[a])
        1.1..1
        1.1..1
        1.1..1
        1.1..1

        References
        ----------
        NumPy take, with mode "raise"; ONNX Gather.
        """
        view = self.ravel() if axis is None else self
        at = axis_of(0 if axis is None else axis, view.rank, "take")
        if isinstance(indices, (list, tuple, range)) or (isinstance(indices, np.ndarray) and indices.ndim):
            return apply_all(view, take_kinds(indices, at, view.shape))
        return view.apply(Index(((at, as_int(indices, "take: indices")),)))

    @at_once
    def paged(
        self, table: Sequence[int] | np.ndarray[Any, Any], block: int | None = None, length: int | None = None
    ) -> Self:
        """Return a sequence that lies in pages of this pool: its rows, page after page.

        Row r of the sequence is row ``r % block`` of page ``table[r // block]``; in a flat pool that is row
        ``table[r // block] * block + r % block``, the slot. So it is ``pool[table].reshape(-1, ...)[:length]`` of a
        pool of shape (pages, block, ...), with pages of a table checked first.

        Parameters
        ----------
        table : sequence of int
            The numbers of the sequence's pages, in its order. What stands behind the last page that `length` needs
            is not looked at: rows of a batch's table are filled up there with any number.
        block : int, optional
            Rows of a page, where the pool is flat, of shape (pages * block, ...). By default the pool has the shape
            (pages, block, ...).
        length : int, optional
            Rows of the sequence, by default all of its pages.

        Raises
        ------
        IndexError
            If the pool has no such page; -1, which often stands for none, is not the last one.
        ValueError
            If the pool is not made of whole pages, or `length` is more than the pages hold.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> from tapestry_sets import overlaps
        >>> keys = allocate((64, 16, 8, 128), name="keys")  # 64 pages of 16 tokens, 8 heads
        >>> one, two = keys.paged([7, 3, 60], length=37), keys.paged([5, 9, 60], length=40)
        >>> one.shape, overlaps(one, two), overlaps(one[:32], two)
        ((37, 8, 128), True, False)
        >>> keys.reshape(-1, 8, 128).paged([7, 3, 60, -1], block=16, length=37) == one
        True

        References
        ----------
        vLLM's block tables and slots; "Efficient Memory Management for Large Language Model Serving with
        PagedAttention", Kwon et al. 2023.
        """
        pool = _in_pages(self, block)
        pages, rows = pool.shape[:2]
        numbers = _row_of(table, "paged: table")
        most = len(numbers) * rows
        many = most if length is None else as_int(length, "paged: length")
        if not 0 <= many <= most:
            raise ValueError(
                f"paged: length {many} where {len(numbers)} pages of {rows} rows hold {most}; give one in [0, "
                f"{most}], or a longer table"
            )
        used = numbers[: -(-many // rows) if rows else 0]
        for k, page in enumerate(used):
            if not 0 <= page < pages:
                raise IndexError(
                    f"paged: page {page}, number {k} of the table, is not one of the pool's {pages}, [0, {pages}); "
                    "where the table is filled up behind the sequence, give its length"
                )
        whole = pool.apply(Take(used, 0)).reshape(len(used) * rows, *pool.shape[2:])
        return whole if many == len(used) * rows else whole.apply(Slice(((0, many, None),)))

    def ragged(self, lengths: Sequence[int] | np.ndarray[Any, Any], axis: int = 0) -> list[Self]:
        """Return the sequences of a ragged batch: consecutive parts of the given lengths along an axis.

        ``ragged(lengths)[k]`` is ``view[offsets[k]:offsets[k + 1]]`` for the offsets 0, lengths[0], lengths[0] +
        lengths[1], …; `split` takes those offsets instead, without the first and the last.

        Raises
        ------
        ValueError
            If a length is below 0, or they do not add up to the axis.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> tokens = allocate((9, 64), name="tokens")
        >>> [part.shape for part in tokens.ragged([4, 0, 5])]
        [(4, 64), (0, 64), (5, 64)]

        References
        ----------
        PyTorch split with a list of sizes, and the parts of a jagged nested tensor (unbind).
        """
        at = axis_of(axis, self.rank, "ragged")
        many, n = _row_of(lengths, "ragged: lengths"), self.shape[at]
        check_pieces(len(many), "ragged", "slice the view where it is needed")
        for k, length in enumerate(many):
            if length < 0:
                raise ValueError(f"ragged: lengths[{k}] is {length}; lengths must be >= 0")
        if sum(many) != n:
            raise ValueError(
                f"ragged: {len(many)} lengths add up to {sum(many)}, but axis {at} of shape {quote(self.shape)} has "
                "extent "
                f"{n}; they must be equal" + (", and a slice leaves out what is padding" if sum(many) < n else "")
            )
        lead = ((None, None, None),) * at
        return [self.apply(Slice((*lead, (b - m, b, None)))) for m, b in zip(many, accumulate(many), strict=True)]

    def as_strided(self, shape: int | Sequence[int], strides: int | Sequence[int], offset: int = 0) -> Self:
        """Return the view whose index i reads cell number ``offset + sum(i * strides)`` of this one, row by row.

        Parameters
        ----------
        shape, strides : int or sequence of int
            Strides in cells, of either sign, one for each axis.
        offset : int, optional
            The number of the cell at the first index.

        Raises
        ------
        ValueError
            If a cell is not one of this view's: unlike NumPy's, this reads no other memory.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> A = allocate((4, 6))
        >>> A.as_strided((3, 2), (7, -1), offset=1).strides, A[:, 1:].as_strided(4, 5) == A[:, 1]
        ((7, -1), True)

        References
        ----------
        NumPy lib.stride_tricks.as_strided, whose strides are bytes; PyTorch as_strided.
        """
        counts, steps = extents_of((shape,), "as_strided: shape"), extents_of((strides,), "as_strided: strides")
        return self.apply(AsStrided(counts, steps, as_int(offset, "as_strided: offset")))

    def tril(self, k: int = 0, value: float = 0) -> Self:
        """Return the view with a constant above a diagonal of the last two axes: of the cells there it reads none.

        Parameters
        ----------
        k : int
            Kept are the cells with x[-1] - x[-2] <= k.
        value : float
            The constant, which is not memory; -inf for the scores of causal attention.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> from tapestry_sets import overlap
        >>> scores = allocate((10**9, 10**9), name="scores")
        >>> causal = scores.tril(value=float("-inf"))
        >>> overlap(causal, scores).size == 10**9 * (10**9 + 1) // 2
        True
        >>> overlap(causal[:, 64:], scores[:64]).size, overlap(causal[64:], scores[:, :64]).size == (10**9 - 64) * 64
        (0, True)

        References
        ----------
        NumPy tril; ONNX Trilu.
        """
        return self.apply(shaping.Triangle(as_int(k, "tril: k"), False, as_cell(self, value, "tril: value")))

    def triu(self, k: int = 0, value: float = 0) -> Self:
        """Return the view with a constant below a diagonal of the last two axes; kept is x[-1] - x[-2] >= k.

        See `tril`.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> a = allocate((3, 3), name="a")
        >>> print(a.triu().origins()[a])
        111
        .11
        ..1
        """
        return self.apply(shaping.Triangle(as_int(k, "triu: k"), True, as_cell(self, value, "triu: value")))

    def unstack(self, axis: int = 0) -> list[Self]:
        """Return the views at each place along an axis, without it.

        Raises
        ------
        TooManyPieces
            If they are more than the limit of pieces.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> first, second = allocate((2, 6)).unstack()
        >>> first.shape
        (6,)
        """
        at = axis_of(axis, self.rank, "unstack")
        check_pieces(self.shape[at], "unstack", "index the view where it is needed")
        return [self.apply(Index(((at, i),))) for i in range(self.shape[at])]

    def split(self, sections: int | Sequence[int], axis: int = 0) -> list[Self]:
        """Return the view in equal parts along an axis, or cut before the given indices.

        Raises
        ------
        ValueError
            If the axis does not divide into so many parts; `array_split` divides all the same.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> [part.shape for part in allocate((6, 4)).split([1, 4])]
        [(1, 4), (3, 4), (2, 4)]
        """
        at = axis_of(axis, self.rank, "split")
        if not isinstance(sections, (Sequence, np.ndarray)):
            count = _sections(sections, "split")
            if self.shape[at] % count:
                raise ValueError(
                    f"split: axis {at} of shape {quote(self.shape)} has extent {quote(self.shape[at])}, which is not "
                    f"divided by {count}; array_split makes parts of nearly equal extents"
                )
        return self._parts(sections, at, "split")

    def array_split(self, sections: int | Sequence[int], axis: int = 0) -> list[Self]:
        """Return the view in parts along an axis, the first ones longer by 1 if need be, or cut before indices.

        Examples
        --------
        >>> from tapestry_sets.views import allocate
        >>> [part.shape for part in allocate((7,)).array_split(3)]
        [(3,), (2,), (2,)]
        """
        return self._parts(sections, axis_of(axis, self.rank, "array_split"), "array_split")

    def _parts(self, sections: int | Sequence[int], at: int, what: str) -> list[Self]:
        n = self.shape[at]
        cuts: list[int | None]
        if isinstance(sections, (Sequence, np.ndarray)):
            cuts = [0, *as_ints(sections, f"{what}: indices"), None]
        else:
            count = _sections(sections, what)
            each, longer = divmod(n, count)
            cuts = [k * each + min(k, longer) for k in range(count + 1)]
        check_pieces(len(cuts) - 1, what, "slice the view where it is needed")
        lead = ((None, None, None),) * at
        return [self.apply(Slice((*lead, (a, b, None)))) for a, b in pairwise(cuts)]

    def sample(self, region: Product) -> Self:
        """Return the cells in a region, in ascending order along each axis: a slice by nested stripes.

        Parameters
        ----------
        region : Region, or one Sett for each axis
            In this view's box, which starts at zero; for rank 1 a Sett will do, and a union that has one member.
            An axis whose sett is empty has extent 0, the others keep theirs; a region without points does not know
            its axes: it leaves extents of 0 alone.

        Raises
        ------
        ValueError
            If the region is in another box.

        Examples
        --------
        >>> from tapestry_sets import Sett, Stripe
        >>> from tapestry_sets.views import allocate
        >>> a = allocate((14,), name="a")
        >>> print(a.sample(Sett(Stripe(5, 2), Stripe(2, 1))).origins()[a])
        11.11..11.11..

        References
        ----------
        poprithms, memory/alias: settsample.
        """
        if isinstance(region, DisjointRegions):
            region = _only(region.members, "Region")
        if isinstance(region, Region):
            return self.apply(Sample(region))
        setts = _setts_of(region, self.shape)
        made = Region(self.shape, setts)
        if not made.is_empty:
            return self.apply(Sample(made))
        counts = [s.count(0, n) for s, n in zip(setts, self.shape, strict=True)]
        return self.apply(Slice(tuple([(0, count, None) for count in counts])))  # of no cells: whichever they are

    @at_once
    def fill_into(self, region: Region, into: Self) -> Self:
        """Return `into` with this view's cells, in ascending order along each axis, in the places of a region.

        Examples
        --------
        >>> from tapestry_sets import Region, Stripe
        >>> from tapestry_sets.views import allocate
        >>> a, b = allocate((3,), name="a"), allocate((7,), name="b")
        >>> c = a.fill_into(Region((7,), [Stripe(1, 1, phase=1)]), b)
        >>> c.shape, c.contains(a), print(c.origins()[b])
        1.1.1.1
        ((7,), True, None)
        """
        if not isinstance(region, Region):
            raise TypeError(f"fill_into: region must be a Region, not {type(region).__name__}; it makes one product")
        if not isinstance(into, Viewable):
            raise TypeError(f"fill_into: into is a {type(into).__name__}, not a View; as_view makes an array one")
        rest = (~region).members
        return self.apply(Fill((region, *rest)), *[into.sample(part) for part in rest])


# -------------------------------------------------------------------------------------------- reading arguments


def _setts_of(
    region: Sett | DisjointSetts | Stripe | Sequence[Sett | DisjointSetts | Stripe], shape: Shape
) -> list[Sett]:
    """One sett for each axis, from the ways to write them."""
    axes = [region] if isinstance(region, (Sett, DisjointSetts, Stripe)) else region
    if not isinstance(axes, Sequence) or isinstance(axes, (str, bytes)):
        raise TypeError(
            f"sample: region is a {type(region).__name__}; give a Region of shape {quote(shape)}, or one Sett for "
            "each axis"
        )
    if len(axes) != len(shape):
        raise ValueError(f"sample: region has {len(axes)} setts for shape {quote(shape)}; give one for each axis")
    return [_as_sett(one, axis) for axis, one in enumerate(axes)]


def _as_sett(one: object, axis: int) -> Sett:
    if isinstance(one, DisjointSetts):
        return _only(one.members, "Sett") if one.members else Sett(Stripe(0, 1))
    if isinstance(one, Stripe):
        return Sett(one)
    if not isinstance(one, Sett):
        raise TypeError(f"sample: axis {axis} takes a Sett or a Stripe, not a {type(one).__name__}")
    return one


def _only(members: Sequence[T], what: str) -> T:
    """What a union of one member is."""
    if len(members) != 1:
        raise TypeError(f"sample: takes one {what}, not a union of {len(members)}; sample at each of its members")
    return members[0]


def _row_of(values: Iterable[object], what: str) -> tuple[int, ...]:
    """Integers of one sequence, such as a row of a batch's table."""
    if isinstance(values, np.ndarray) and (values.ndim != 1 or values.dtype.kind not in "iu"):
        raise TypeError(
            f"{what} is an array of shape {quote(values.shape)} of {values.dtype}; give integers in one row"
        )
    if not isinstance(values, Iterable):
        raise TypeError(f"{what} must be a sequence of integers, not {quote(values)}")
    return tuple(values.tolist()) if isinstance(values, np.ndarray) else as_ints(values, what)


def _in_pages(pool: V, block: int | None) -> V:
    """A pool whose first two axes are pages and their rows."""
    shape = pool.shape
    if block is None:
        if len(shape) < 2:
            raise ValueError(
                f"paged: the pool has shape {quote(shape)}, where (pages, block, …) is needed; give block, the rows "
                "of a page, if it is flat"
            )
        return pool
    rows = as_int(block, "paged: block")
    if not shape or rows < 1 or shape[0] % rows:
        raise ValueError(
            f"paged: blocks of {rows} rows in a pool of shape {quote(shape)}; its first axis must be pages of block "
            "rows, block >= 1 a divisor of that axis"
            + (", and without a block the first two axes are pages and rows" if shape[1:2] == (rows,) else "")
        )
    return pool.reshape(shape[0] // rows, rows, *shape[1:])


def as_cell(view: object, value: object, what: str) -> float:
    """Return a real number that a cell of a view holds, where it says of what dtype its cells are."""
    dtype = getattr(view, "dtype", None)
    if isinstance(value, bool) and dtype is not None and np.dtype(dtype) == bool:
        return value
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise TypeError(f"{what} {quote(value)} must be a real number, not a {type(value).__name__}")
    if dtype is not None:
        check_cell(value, np.dtype(dtype), what)
    return value


def _sections(count: object, what: str) -> int:
    n = as_int(count, f"{what}: sections")
    if n < 1:
        raise ValueError(f"{what}: {n} parts; give 1 or more")
    check_pieces(n, what, "slice the view where it is needed")
    return n


def apply_all(view: V, kinds: Sequence[ViewKind]) -> V:
    """A view of one kind after another."""
    for kind in kinds:
        view = view.apply(kind)
    return view


def axis_tuple(axis: int | Sequence[int], what: str) -> Shape:
    """One axis or several as a tuple."""
    return as_ints(axis, what) if isinstance(axis, (Sequence, np.ndarray)) else (as_int(axis, what),)


def _is_sequence(value: int | Sequence[int]) -> TypeGuard[Sequence[int]]:
    """Whether a value has an item for each axis; an array without an axis is a number, as NumPy has it."""
    return isinstance(value, Sequence) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _per_axis(value: int | Sequence[int], n: int, what: str) -> Shape:
    if not _is_sequence(value):
        if not n:
            raise ValueError(f"sliding_windows: {what} {quote(value)} names no axis; name one axis or more")
        return (as_int(value, f"sliding_windows: {what}"),) * n
    values = as_ints(value, f"sliding_windows: {what}")
    if len(values) != n:
        raise ValueError(
            f"sliding_windows: {what} {quote(values)} has {len(values)} values for {n} axes; give one for each"
        )
    return values
