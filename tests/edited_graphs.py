"""Random edits of alias graphs, with NumPy replaying a graph's nodes over arrays of distinct numbers."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tapestry_sets import (
    AliasGraph,
    AliasTensor,
    ViewKind,
)
from tapestry_sets.views import (
    Broadcast,
    Concat,
    Diagonal,
    ExpandDims,
    Flip,
    Index,
    Interleave,
    Pad,
    PermuteDims,
    Repeat,
    Reshape,
    Roll,
    Slice,
    SlidingWindow,
    Stack,
    Tile,
)

# --------------------------------------------------------------------------------------------------- the oracle

Arrays = Sequence[np.ndarray]


@dataclass(frozen=True)
class Entry:
    """What the test believes of one tensor: how NumPy makes it of others, or the shape of its memory."""

    shape: tuple[int, ...]
    numpys: Callable[[Arrays], np.ndarray] | None
    kind: ViewKind | None
    inputs: tuple[int, ...]
    color: Hashable = 0


def values(model: Sequence[Entry]) -> list[np.ndarray]:
    """Each tensor's values, where every cell of memory holds a number of its own, >= 1, and constants are 0."""
    arrays: dict[int, np.ndarray] = {}
    first = 1
    for i, entry in enumerate(model):
        if entry.numpys is None:
            n = int(np.prod(entry.shape))
            arrays[i] = np.arange(first, first + n).reshape(entry.shape)
            first += n
    while len(arrays) < len(model):
        for i, entry in enumerate(model):
            if i not in arrays and all(j in arrays for j in entry.inputs):
                assert entry.numpys is not None
                arrays[i] = entry.numpys([arrays[j] for j in entry.inputs])
    return [arrays[i] for i in range(len(model))]


def cells(array: np.ndarray) -> set[int]:
    return set(array.ravel().tolist()) - {0}


def reads(model: Sequence[Entry], i: int) -> set[int]:
    """Tensor i and all that it reads."""
    found, stack_ = {i}, [i]
    while stack_:
        new = set(model[stack_.pop()].inputs) - found
        found |= new
        stack_ += new
    return found


def check(g: AliasGraph, model: Sequence[Entry], pairs: bool = False) -> None:
    """Nodes, the aliases map, colors and self-overlap are as NumPy's numbers say; questions on pairs too if asked."""
    arrays = values(model)
    held = [cells(a) for a in arrays]
    assert len(g) == len(model)
    color_of = {
        z: entry.color for entry, array in zip(model, arrays, strict=True) if entry.numpys is None for z in cells(array)
    }
    expected = {t: tuple(u for u in g if held[t.id] & held[u.id]) for t in g}
    assert g.all_aliases() == expected
    for t, entry, array in zip(g, model, arrays, strict=True):
        assert (t.shape, t.kind, t.is_allocation) == (array.shape, entry.kind, entry.kind is None)
        assert tuple(u.id for u in t.ins) == entry.inputs
        assert {u.id for u in t.outs} == {i for i, e in enumerate(model) if t.id in e.inputs}
        assert t.colors() == {color_of[z] for z in held[t.id]}
        assert t.has_internal_overlap() == (np.count_nonzero(array) > len(held[t.id]))
    if pairs and len(g):
        check_pairs(g, arrays)


def check_pairs(g: AliasGraph, arrays: Arrays) -> None:
    """The questions about the last tensor and each other one."""
    a = g[-1]
    x, mine = arrays[-1], cells(arrays[-1])
    assert a.aliases() == g.all_aliases()[a]
    for b, y in zip(g, arrays, strict=True):
        theirs = cells(y)
        assert a.overlaps(b) == bool(mine & theirs)
        assert a.contains(b) == (theirs <= mine)
        assert a.same_elements(b) == (theirs == mine)
        found = a.overlap(b)
        assert bool(found) == bool(mine & theirs) and found.size == len(mine & theirs)
        assert set(found.witnesses) == set(found.regions) == set(found.allocations)
        for home, w in found.witnesses.items():
            assert x[w.a] == y[w.b] == arrays[home.id][w.cell]
        assert found.witness == next(iter(found.witnesses.values()), None)
        listed = {
            int(arrays[t.id][tuple(p)]) for t, regions in found.regions.items() for p in regions.points().tolist()
        }
        assert listed == mine & theirs
    homes = {t: {int(arrays[t.id][tuple(p)]) for p in r.points().tolist()} for t, r in a.origins().items()}
    assert set().union(*homes.values()) == mine and all(t.is_allocation for t in homes)
    one = [arrays[t.id] for t in homes]
    assert a.is_contiguous() == (not one or (len(one) == 1 and max(mine) - min(mine) + 1 == len(mine)))
    assert a.is_contiguous("C") == (
        not x.size or (x.ravel()[0] > 0 and len(one) == 1 and (np.diff(x.ravel()) == 1).all())
    )
    twice = a.internal_overlap()
    if twice is not None:
        assert twice.a != twice.b and x[twice.a] == x[twice.b] == arrays[twice.allocation.id][twice.cell]  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------------- random graphs

Made = tuple[ViewKind, Callable[[Arrays], np.ndarray]]


@st.composite
def kinds_of_one(draw: st.DrawFn, shape: tuple[int, ...]) -> Made:
    """A kind over one tensor, and what NumPy does."""
    rank, size = len(shape), int(np.prod(shape))
    axis = draw(st.integers(0, rank - 1)) if rank else 0
    n = shape[axis] if rank else 0
    choices = ["reshape", "new", "permute", "flip"]
    if rank and size:
        choices += ["slice", "slice", "slice", "index", "roll", "repeat", "tile", "pad", "window", "broadcast"]
    if rank > 1:
        choices += ["diagonal"]
    choice = draw(st.sampled_from(choices))
    if choice == "slice":
        bound = st.none() | st.integers(-n - 1, n + 1)
        triple = (draw(bound), draw(bound), draw(st.sampled_from([None, 1, 2, 3, -1, -2])))
        keys = ((None, None, None),) * axis + (triple,)
        return Slice(keys), lambda a: a[0][tuple(slice(*k) for k in keys)]
    if choice == "index":
        i = draw(st.integers(-n, n - 1))
        return Index(((axis, i),)), lambda a: np.take(a[0], i, axis)
    if choice == "roll":
        k = draw(st.integers(-n, n))
        return Roll(k, axis), lambda a: np.roll(a[0], k, axis)
    if choice == "repeat":
        return Repeat(2, axis), lambda a: np.repeat(a[0], 2, axis)
    if choice == "tile":
        return Tile((2,)), lambda a: np.tile(a[0], (2,))
    if choice == "pad":
        mode: Any = draw(st.sampled_from(["constant", "edge", "wrap", "symmetric"]))
        widths = tuple((1, 2) if k == axis else (0, 0) for k in range(rank))
        return Pad(widths, mode), lambda a: np.pad(a[0], widths, mode)
    if choice == "window":
        k = draw(st.integers(1, min(n, 3)))
        kind = SlidingWindow((k,), (1,), (1,), (axis,))
        return kind, lambda a: np.lib.stride_tricks.sliding_window_view(a[0], k, axis)
    if choice == "broadcast":
        new = (2, *shape)
        return Broadcast(new), lambda a: np.broadcast_to(a[0], new)
    if choice == "diagonal":
        offset = draw(st.integers(-1, 1))
        return Diagonal(offset, 0, 1), lambda a: np.diagonal(a[0], offset)
    if choice == "permute":
        order = tuple(draw(st.permutations(range(rank))))
        return PermuteDims(order), lambda a: a[0].transpose(order)
    if choice == "flip":
        axes = (axis,) if rank else ()
        return Flip(axes), lambda a: np.flip(a[0], axes)
    if choice == "new":
        return ExpandDims((0,)), lambda a: a[0][None]
    new = draw(st.sampled_from([(size,), (1, size), (size, 1), *([(2, size // 2)] if size % 2 == 0 else [])]))
    return Reshape(new), lambda a: a[0].reshape(new)


@st.composite
def kinds_of_several(draw: st.DrawFn, shape: tuple[int, ...], count: int) -> Made:
    """A kind over several tensors of one shape, and what NumPy does."""
    axis = draw(st.integers(0, max(len(shape) - 1, 0)))
    choice = draw(st.sampled_from(["concat", "interleave", "stack"] if shape else ["stack"]))
    if choice == "concat":
        return Concat(axis), lambda a: np.concatenate(a, axis)
    if choice == "interleave":
        out = tuple(n * count if k == axis else n for k, n in enumerate(shape))
        return Interleave(axis), lambda a: np.stack(a, axis + 1).reshape(out)
    return Stack(axis), lambda a: np.stack(a, axis)


MAX_CELLS = 96
MAX_NODES = 15


class Play:
    """A graph and what the test believes of it, changed together by random moves."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self.draw, self.g, self.model = draw, AliasGraph(), list[Entry]()
        for _ in range(draw(st.integers(1, 3))):
            self.allocate(tuple(draw(st.lists(st.integers(1, 4) | st.integers(0, 3), max_size=3))))

    def allocate(self, shape: tuple[int, ...]) -> None:
        color = self.draw(st.integers(0, 2))
        self.g.allocate(shape, color=color)
        self.model.append(Entry(shape, None, None, (), color))

    def any_tensor(self) -> int:
        return self.draw(st.integers(0, len(self.g) - 1))  # type: ignore[no-any-return]

    def add(self) -> None:
        """A view of one tensor, or of several of its shape."""
        i = self.any_tensor()
        alike = [j for j, e in enumerate(self.model) if e.shape == self.model[i].shape]
        several = self.draw(st.integers(0, 3)) == 0
        inputs = (i, *(self.draw(st.sampled_from(alike)) for _ in range(2))) if several else (i,)
        shape = self.model[i].shape
        kind, numpys = self.draw(kinds_of_several(shape, 3) if several else kinds_of_one(shape))
        out = kind.out_shape((shape,) * len(inputs))
        if len(self.g) < MAX_NODES and int(np.prod(out)) <= MAX_CELLS:
            first, *others = (self.g[j] for j in inputs)
            made = first.apply(kind, *others)
            assert made.id == len(self.model)
            self.model.append(Entry(out, numpys, kind, inputs))

    def to_allocation(self) -> None:
        i, color = self.any_tensor(), self.draw(st.none() | st.integers(0, 2))
        kept = self.model[i].color if self.model[i].kind is None else 0
        self.g.to_allocation(i, color)
        self.model[i] = Entry(self.model[i].shape, None, None, (), kept if color is None else color)

    def to_view(self) -> None:
        """A tensor becomes a view of one or two of the same size, wherever they stand, that do not read it."""
        i = self.any_tensor()
        shape = self.model[i].shape
        free = [j for j in range(len(self.g)) if i not in reads(self.model, j)]
        same = [j for j in free if int(np.prod(self.model[j].shape)) == int(np.prod(shape))]
        halves = [j for j in free if shape and self.model[j].shape == (shape[0] / 2, *shape[1:])]
        if halves and self.draw(st.booleans()):
            pair = (self.draw(st.sampled_from(halves)), self.draw(st.sampled_from(halves)))
            self.g.to_view(i, Concat(0), *pair)
            self.model[i] = Entry(shape, np.concatenate, Concat(0), pair)
        elif same:
            j = self.draw(st.sampled_from(same))
            if self.model[j].shape == shape and self.draw(st.booleans()):
                self.g.to_identity(i, j)
                self.model[i] = Entry(shape, lambda a: a[0], Slice(()), (j,))
            else:
                self.g.to_view(i, Reshape(shape), self.g[j])
                self.model[i] = Entry(shape, lambda a: a[0].reshape(shape), Reshape(shape), (j,))

    def refused(self) -> None:
        """Cycles, other shapes and item sizes, and kinds that do not fit leave the graph as it was."""
        before, table = self.g.copy(), self.g.table()
        i = self.any_tensor()
        shape = self.model[i].shape
        above = self.draw(st.sampled_from([j for j in range(len(self.g)) if i in reads(self.model, j)]))
        wrong: list[Callable[[], object]] = [
            lambda: self.g.to_view(i, Flip((9,)), above),
            lambda: self.g.to_view(i, Slice(())),
            lambda: self.g.to_view(i, ExpandDims((0,)), i),
            lambda: self.g[i].apply(Concat(0), AliasGraph().allocate(shape)),
            lambda: self.g[i][(0,) * (len(shape) + 1)],
            lambda: self.g.recolor(i, []),  # type: ignore[arg-type]
        ]
        if int(np.prod(self.model[above].shape)) == int(np.prod(shape)):
            wrong.append(lambda: self.g.to_view(i, Reshape(shape), above))
        with pytest.raises((ValueError, IndexError, TypeError)):
            self.draw(st.sampled_from(wrong))()
        assert self.g == before and self.g.table() == table

    def recolor(self) -> None:
        i, color = self.any_tensor(), self.draw(st.integers(0, 5))
        if self.model[i].kind is None:
            self.g.recolor(i, color)
            self.model[i] = replace(self.model[i], color=color)

    def clone(self) -> None:
        i, color = self.any_tensor(), self.draw(st.none() | st.integers(0, 2))
        if len(self.g) + len(reads(self.model, i)) > MAX_NODES:
            return
        top = self.g.clone(i, color)
        pattern = {top.id: i}
        for new in range(top.id, len(self.model) - 1, -1):  # what a clone reads was added before it
            ins = [t.id for t in self.g[new].ins]
            pattern |= dict(zip(ins, self.model[pattern[new]].inputs, strict=True))
        assert sorted(pattern) == list(range(len(self.model), len(self.g)))
        for new in range(len(self.model), len(self.g)):
            old = self.model[pattern[new]]
            fresh = old.color if color is None or old.kind is not None else color
            self.model.append(replace(old, inputs=tuple(t.id for t in self.g[new].ins), color=fresh))

    def pad(self) -> None:
        i, shared = self.any_tensor(), self.draw(st.booleans())
        widths = [(self.draw(st.integers(0, 2)), self.draw(st.integers(0, 2))) for _ in self.model[i].shape]
        inside = values(self.model)[i]
        out = np.pad(inside, widths, constant_values=-1) if widths else inside
        if out.size > MAX_CELLS or len(self.g) + 1 + 3 * sum(map(any, widths)) > MAX_NODES:
            return
        made = self.g.pad(i, widths, color=7, shared=shared)
        for t in list(self.g)[len(self.model) :]:
            self.model.append(self._padding(t))
        array = values(self.model)[made.id]
        around = array[out == -1]
        assert (array[out != -1] == out[out != -1]).all()
        assert len(np.unique(around)) == (min(1, around.size) if shared else around.size)
        assert not set(around.tolist()) & cells(inside)
        assert not around.size or made.has_color(7)

    @staticmethod
    def _padding(t: AliasTensor) -> Entry:
        ins = tuple(u.id for u in t.ins)
        if t.is_allocation:
            return Entry(t.shape, None, None, (), 7)
        if len(ins) == 1:
            return Entry(t.shape, lambda a, shape=t.shape: np.broadcast_to(a[0], shape), t.kind, ins)  # type: ignore[misc]
        return Entry(t.shape, lambda a, axis=t.kind.axis: np.concatenate(a, axis), t.kind, ins)  # type: ignore[misc,union-attr]


EDITS = ("to_allocation", "to_view", "to_view", "refused", "recolor", "clone", "pad")
