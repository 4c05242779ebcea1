"""The editable alias graph, against NumPy replaying its nodes over arrays of distinct numbers."""

from __future__ import annotations

import copy
import json
import pickle
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import (
    AffineMap,
    AliasGraph,
    AliasTensor,
    Region,
    Sett,
    Stripe,
    TooHard,
    View,
    ViewKind,
    broadcast_arrays,
    concatenate,
    fill_into,
    hstack,
    interleave,
    overlaps,
    pad,
    repeat,
    roll,
    stack,
    tile,
    vstack,
)
from tapestry_sets.alias.graphs import graph as alias_graph
from tapestry_sets.views import (
    Broadcast,
    Concat,
    Diagonal,
    ExpandDims,
    Flip,
    Index,
    IndexMap,
    Interleave,
    Pad,
    PermuteDims,
    Piece,
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


MOST_CELLS = 96
MOST_NODES = 15


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
        if len(self.g) < MOST_NODES and int(np.prod(out)) <= MOST_CELLS:
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
        if len(self.g) + len(reads(self.model, i)) > MOST_NODES:
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
        if out.size > MOST_CELLS or len(self.g) + 1 + 3 * sum(map(any, widths)) > MOST_NODES:
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


@given(st.data())
def test_edited_graphs_answer_as_numpy_does(data: st.DataObject) -> None:
    play = Play(data.draw)
    for _ in range(data.draw(st.integers(0, 10))):
        play.add()
    check(play.g, play.model)
    for edit in data.draw(st.lists(st.sampled_from(EDITS), min_size=1, max_size=4)):
        getattr(play, edit)()
        check(play.g, play.model)
        play.add()
    check(play.g, play.model, pairs=True)


@given(st.data())
def test_edits_are_undone_by_their_opposites(data: st.DataObject) -> None:
    play = Play(data.draw)
    for _ in range(data.draw(st.integers(0, 8))):
        play.add()
    play.to_view()  # so that inputs may stand behind what reads them
    g, before, aliases = play.g, play.g.copy(), play.g.all_aliases()
    t = g[play.any_tensor()]
    kind, ins, color = t.kind, t.ins, t.color
    t.to_allocation(3)
    assert t.is_allocation and t.colors() <= {3} and t.ins == ()
    if kind is None:
        g.recolor(t, color)
    else:
        assert g != before
        t.to_view(kind, *ins)
    assert g == before and g.all_aliases() == aliases
    check(g, play.model)


@given(st.data())
def test_json_gives_the_graph_back(data: st.DataObject) -> None:
    play = Play(data.draw)
    for _ in range(data.draw(st.integers(0, 8))):
        play.add()
    play.to_view()
    g = play.g
    for t in g:
        if data.draw(st.booleans()):
            t.rename(f't{t.id} Ω"')
    text = g.to_json(indent=data.draw(st.none() | st.integers(0, 2)))
    back = AliasGraph.from_json(text)
    assert back == g and [t.name for t in back] == [t.name for t in g]
    assert back.to_json() == AliasGraph.from_json(text.encode()).to_json()
    check(back, play.model)


# -------------------------------------------------------------------------------------------------- NumPy's words


WORDS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a[1:, ::-2],
    lambda a, b: a[..., None, 2],
    lambda a, b: a[-1, 1:3],
    lambda a, b: a.reshape(-1, 3),
    lambda a, b: a.ravel(),
    lambda a, b: a.flatten(),
    lambda a, b: a.permute_dims((1, 0)),
    lambda a, b: a.transpose(),
    lambda a, b: a.T,
    lambda a, b: a.flip(),
    lambda a, b: a.flip(1),
    lambda a, b: a[:1].squeeze(0),
    lambda a, b: a.expand_dims((0, -1)),
    lambda a, b: a.broadcast_to((2, 4, 6)),
    lambda a, b: a.diagonal(1),
    lambda a, b: a.sliding_windows((2, 3), step=2),
    lambda a, b: a.sample([Stripe(1, 1), Sett(Stripe(3, 3), Stripe(1, 1))]),
    lambda a, b: a[:2, :3].fill_into(Region.from_slices((4, 6), (slice(1, 3), slice(0, None, 2))), b),
    lambda a, b: concatenate([a, b, a], 1),
    lambda a, b: stack([a, b]),
    lambda a, b: interleave([a, b], 1),
    lambda a, b: fill_into([Region((4, 12), [Sett(), Stripe(1, 1, k)]) for k in range(2)], [a, b]),
    lambda a, b: pad(a, 1),
    lambda a, b: pad(a, ((1, 2), (0, 1)), "reflect"),
    lambda a, b: repeat(a, 2, 1),
    lambda a, b: repeat(a, 2),
    lambda a, b: tile(a, (2, 1)),
    lambda a, b: roll(a, 1),
    lambda a, b: roll(a, (1, 2), (0, 1)),
]


@pytest.mark.parametrize("word", WORDS)
def test_every_word_makes_what_it_makes_of_plain_views(word: Callable[[Any, Any], Any]) -> None:
    g = AliasGraph()
    a, b = g.allocate((4, 6), name="a"), g.allocate((4, 6), name="b")
    made, plain = word(a, b), word(a.view, b.view)
    assert isinstance(made, AliasTensor) and made.graph is g and made.id == len(g) - 1
    assert made.shape == plain.shape and made.view.pieces == plain.pieces
    assert made.view.allocations == plain.allocations


def test_words_that_change_nothing_add_nothing() -> None:
    g = AliasGraph()
    a = g.allocate((4, 6))
    assert a[...] is not None and a[:] == a and a[...] == a and len(g) == 1


def test_an_index_that_fails_late_adds_nothing() -> None:
    """The slice fits and the integer after it does not."""
    g = AliasGraph()
    a = g.allocate((4, 6), name="a")
    before = g.copy()
    with pytest.raises(IndexError, match="index 6 is out of bounds for axis 1"):
        a[1:, 6]
    assert g == before and a.outs == () and a[1:].id == 1


# ------------------------------------------------------------------------------------------------ nodes and names


def test_names_are_of_one_tensor_each() -> None:
    g = AliasGraph()
    a, b = g.allocate((4,), name="a"), g.allocate((4,))
    assert g["a"] == a == g[0] == g[-2] == g[np.int64(0)] and "a" in g and "b" not in g and a in g
    with pytest.raises(ValueError, match="name 'a' is taken by tensor 0; give another one"):
        b.rename("a")
    with pytest.raises(ValueError, match="name 'a' is taken"):
        g.allocate((3,), name="a")
    assert len(g) == 2 and b.name == ""
    assert a.rename("b") == g["b"] and "a" not in g
    assert b.rename("a").name == "a" and a.rename("b") == a
    assert b.rename("").name == "" and "a" not in g
    with pytest.raises(TypeError, match="name 3 is a int; give a string"):
        b.rename(3)  # type: ignore[arg-type]
    with pytest.raises(KeyError, match="no tensor 'z'"):
        g["z"]
    with pytest.raises(IndexError, match="no tensor 2: it has 2"):
        g[2]
    with pytest.raises(TypeError, match="is no tensor of the graph; give an AliasTensor, its number or name"):
        g[1.0]  # type: ignore[index]
    with pytest.raises(TypeError, match="True is no tensor of the graph"):
        g[True]
    assert [t.id for t in g] == [0, 1] and len(g) == 2


def test_equality_is_of_nodes_in_order_and_not_of_names() -> None:
    def build(**changed: Any) -> AliasGraph:
        g = AliasGraph()
        a = g.allocate((4, 6), name=changed.get("name", "a"), itemsize=changed.get("itemsize"))
        g.allocate(changed.get("shape", (3,)), color=changed.get("color", 0), itemsize=changed.get("itemsize"))
        a.permute_dims(changed.get("axes", (1, 0)))
        return g

    assert build() == build() == build(name="b")
    for changed in ({"shape": (4,)}, {"color": 1}, {"axes": (0, 1)}, {"itemsize": 2}):
        assert build() != build(**changed)
    g, h = AliasGraph(), AliasGraph()
    g.allocate((1,)), g.allocate((2,))
    h.allocate((2,)), h.allocate((1,))
    assert g != h and g != "graph" and build() != AliasGraph()
    with pytest.raises(TypeError, match="unhashable"):
        hash(g)


@pytest.mark.parametrize(
    "made",
    [AliasGraph.copy, copy.copy, copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))],
    ids=["copy", "copy.copy", "deepcopy", "pickle"],
)
def test_a_copy_is_equal_and_on_its_own(made: Callable[[AliasGraph], AliasGraph]) -> None:
    assert made(AliasGraph()) == AliasGraph()
    g = AliasGraph()
    a = g.allocate((4, 6), name="a", color="weights", dtype="float32")
    half = a[:2].rename("half")
    h = made(g)
    assert h == g and [t.name for t in h] == ["a", "half"] and h["a"].itemsize == 4
    assert h["a"] != a and h["half"].overlaps(h["a"])
    half.to_allocation()
    h["a"][0]
    assert h["half"].overlaps(h["a"]) and not half.overlaps(a) and len(g) == 2
    with pytest.raises(ValueError, match="belongs to another graph"):
        h["a"].overlaps(a)


def test_tensors_are_equal_if_they_are_the_same_one() -> None:
    g, h = AliasGraph(), AliasGraph()
    a, b = g.allocate((4,)), h.allocate((4,))
    assert a == g[0] and hash(a) == hash(g[0]) and a != b and a != 0 and len({a, g[0], b}) == 2
    one, two = pickle.loads(pickle.dumps((a[1:], a)))
    assert one.overlaps(two) and one.graph is two.graph and one.graph == g and one != a


def test_bytes_follow_the_item_size() -> None:
    g = AliasGraph()
    a = g.allocate((8,), dtype="float64", name="a")
    found = a[2:].overlap(a[:4])
    assert (a[2:].itemsize, found.size, found.nbytes) == (8, 2, 16)
    assert found.regions[a].bounds() == ((2,), (4,)) and found.allocations == (a,)
    assert not a[:2].overlap(a[2:]) and a[:2].overlap(a[2:]).witness is None


def test_a_witness_where_the_shared_part_is_not_the_first() -> None:
    """The map of a stacked part forgets the new axis; only the part's guard says where on it the part is."""
    g = AliasGraph()
    a, b = g.allocate((4,), name="a"), g.allocate((4,), name="b")
    for t, index in ((stack([a, a, b]), (2, 0)), (stack([a, a, b], 1), (0, 2))):
        found = t.overlap(b)
        assert found.witness is not None and found.witness.a == index and found.witness.cell == found.witness.b == (0,)


# -------------------------------------------------------------------------------------------------------- edits


def test_only_what_is_downstream_of_an_edit_is_built_anew() -> None:
    g = AliasGraph()
    a, b = g.allocate((4,), name="a"), g.allocate((4,), name="b")
    left, right = a[1:], b[1:]
    both = concatenate([left, right])
    top = both.flip()
    other = right[1:]
    kept = {t: t.view for t in g}
    left.to_allocation()
    for t in (a, b, right, other):
        assert t.view is kept[t], f"{t} was built anew"
    for t in (left, both, top):
        assert t.view is not kept[t], f"{t} is as it was before the edit"
    kept = {t: t.view for t in g}
    both.rename("both")
    assert all(t.view is kept[t] for t in g), "a view's name is nothing that its plain view has"
    b.recolor("input")
    assert [t.id for t in g if t.view is not kept[t]] == [1, 3, 4, 5, 6]
    assert top.colors() == {0, "input"} and right.has_color("input") and not left.has_color("input")


def test_plain_views_have_their_memorys_new_name() -> None:
    g = AliasGraph()
    a = g.allocate((4,), name="a")
    b = a[1:]
    assert b.view.allocations[0].name == "a"
    a.rename("z")
    assert b.view.allocations[0].name == "z" and a.rename("").view.name == "[0]"


def test_an_overlap_is_that_of_when_it_was_asked() -> None:
    """And the graph does not hold on to memory that it no longer has."""
    g = AliasGraph()
    a = g.allocate((6,), name="a")
    b = g.allocate((6,), name="b")
    found = a[2:].overlap(a[:4])
    for _ in range(5):
        a.to_identity(b)
        assert a.origins()[b].is_full
        a.to_allocation()
        assert a.origins()[a].is_full
    assert found and found.size == 2 and found.regions[a].bounds() == ((2,), (4,)) and found.allocations == (a,)
    assert len(g._homes) == 2


def test_a_view_that_becomes_memory_takes_its_readers_along() -> None:
    g = AliasGraph()
    a = g.allocate((4, 6), name="a", color=5)
    b = a[:2]
    c = b.T
    assert b.to_allocation() == b and b.is_allocation and b.color == 0 and b.ins == () and a.outs == ()
    assert not b.overlaps(a) and c.same_elements(b) and not c.overlaps(a)
    assert list(c.origins()) == [b] and c.origins()[b].is_full
    assert b.to_allocation(3).color == 3 and b.to_allocation().color == 3 and a.to_allocation().color == 5


def test_inputs_may_stand_behind_what_reads_them() -> None:
    g = AliasGraph()
    a = g.allocate((6,), name="a")
    b = a[::2]
    c = g.allocate((2, 3), name="c")
    a.to_view(Reshape((6,)), c)
    assert [u.id for u in a.ins] == [2] and b.overlaps(c) and g.all_aliases()[b] == (a, b, c)
    assert b.origins()[c].size == 3
    assert AliasGraph.from_json(g.to_json()) == g
    assert [t.id for t in g.copy()[0].aliases()] == [0, 1, 2]


CYCLES: list[tuple[Callable[[AliasGraph], object], str]] = [
    (lambda g: g.to_identity(0, 0), "tensor 0 cannot be a view of tensor 0, for 0: that is a cycle"),
    (lambda g: g.to_identity(0, 3), "tensor 0 cannot be a view of tensor 3, for 3 reads 2 reads 0: that is a cycle"),
    (lambda g: g.to_view(2, Flip((0,)), "top"), "tensor 2 cannot be a view of tensor 3, for 3 reads 2"),
    (lambda g: g.to_view(0, Reshape((6,)), 4), "tensor 0 cannot be a view of tensor 4, for 4 reads 3 reads 2 reads 0"),
]


@pytest.mark.parametrize(("edit", "message"), CYCLES)
def test_cycles_are_named(edit: Callable[[AliasGraph], object], message: str) -> None:
    g = AliasGraph()
    a = g.allocate((6,), name="a")
    g.allocate((3,), name="b")
    top = a.flip().flip().rename("top")
    top.reshape(2, 3)
    before, table = g.copy(), g.table()
    with pytest.raises(ValueError, match=message):
        edit(g)
    assert g == before and g.table() == table


REFUSED: list[tuple[Callable[[AliasGraph], object], type[Exception], str]] = [
    (
        lambda g: g.to_view("a", Concat(0), "b"),
        ValueError,
        r"AliasTensor\(0 'a': allocation, shape \(4, 6\)\) has shape \(4, 6\) and 1 bytes a cell, "
        r"but Concat\(0\) of \[1\] has \(3,\) and 1; they must agree",
    ),
    (lambda g: g.to_view("b", Slice(()), "w"), ValueError, r"has \(3,\) and 4; they must agree"),
    (
        lambda g: g.to_view("b", Concat(0), "b", "w"),
        ValueError,
        r"Concat\(0\): inputs \[1, 2\] have \[1, 4\] bytes a cell",
    ),
    (lambda g: concatenate([g["b"], g["w"]]), ValueError, "bytes a cell; they must agree"),
    (lambda g: g.to_view("b", Concat(0)), ValueError, "a view needs at least one input"),
    (lambda g: g.to_view("b", "Concat", "b"), TypeError, "'Concat' is no view kind"),  # type: ignore[arg-type]
    (lambda g: g.to_view("b", Concat(0), "c"), KeyError, "no tensor 'c'"),
    (lambda g: g.to_view("b", Flip((1,)), "b"), ValueError, "flip: axis 1 is out of range"),
    (lambda g: g.recolor("v", 3), ValueError, r"tensor 3 is a view; colors belong to allocations, here to \[0\]"),
    (lambda g: g.recolor("a", [3]), TypeError, r"recolor: color \[3\] is a list, which has no hash"),  # type: ignore[arg-type]
    (lambda g: g.to_allocation("v", {}), TypeError, "to_allocation: color {} is a dict"),  # type: ignore[arg-type]
    (lambda g: g.allocate((3,), color=[]), TypeError, "allocate: color"),  # type: ignore[arg-type]
    (lambda g: g.clone("v", color=[]), TypeError, "clone: color"),  # type: ignore[arg-type]
    (lambda g: g.pad("a", 1, color=[]), TypeError, "allocate: color"),  # type: ignore[arg-type]
    (lambda g: g.pad("a", -1), ValueError, "pad: widths: -1 must be >= 0"),
    (lambda g: g.pad("a", ((1, 1),) * 3), ValueError, "must be one number, a pair, or 2 pairs"),
    (lambda g: g.pad("a", 1.5), TypeError, "pad: width"),  # type: ignore[arg-type]
    (lambda g: g.allocate((3, -1)), ValueError, r"extent -1 of axis 1"),
    (lambda g: g["a"].overlaps(g["a"].view), TypeError, "AliasTensor.overlaps: the other is a Allocation"),
    (lambda g: g["a"].contains(np.zeros(3)), TypeError, "AliasTensor.contains: the other is a ndarray"),
    (lambda g: concatenate([g["a"], np.zeros((4, 6))]), TypeError, "source 1 is a ndarray, not a view"),
    (lambda g: 3 in g["a"], TypeError, "AliasTensor"),
    # words of several kinds, of which a later one is refused
    (lambda g: g["a"].take(99), IndexError, "99 is out of bounds"),
    (lambda g: g["a"][1:, [0, 9]], IndexError, "index 9, number 1, is out of bounds"),
    (lambda g: hstack([g["b"], g["a"]]), ValueError, "hstack: .* source 1 has shape"),
    (lambda g: vstack([g["b"], g["a"]]), ValueError, "vstack: .* source 1 has shape"),
    (lambda g: repeat(g["a"], [1, 2]), ValueError, "2 counts for axis 0"),
    (lambda g: broadcast_arrays(g["b"], g["a"]), ValueError, "broadcast_arrays: view 1"),
    (lambda g: g["b"].fill_into(Region((4, 6), [Stripe(1, 3), Stripe(1, 1)]), g["v"]), ValueError, "box of shape"),
    (
        lambda g: g["b"].fill_into(Region((4, 6), [Stripe(1, 3), Stripe(1, 2)]), g["a"]),
        ValueError,
        "source 0 has shape",
    ),
    (lambda g: pad(g["a"], 1, padding=lambda shape: g.allocate(shape[1:])), ValueError, "must give a view of"),
    (lambda g: concatenate([g["a"], g["w"]], axis=None), ValueError, "bytes a cell; they must agree"),
    (lambda g: AliasGraph.from_json(3), TypeError, "JSON is a int"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("act", "error", "message"), REFUSED)
def test_wrong_input_is_refused_and_changes_nothing(
    act: Callable[[AliasGraph], object], error: type[Exception], message: str
) -> None:
    g = AliasGraph()
    a = g.allocate((4, 6), name="a")
    g.allocate((3,), name="b")
    g.allocate((3,), name="w", dtype="float32")
    a[1:].rename("v")
    before, table = g.copy(), g.table()
    with pytest.raises(error, match=message):
        act(g)
    assert g == before and g.table() == table and [t.name for t in g] == ["a", "b", "w", "v"]


def test_a_clone_keeps_what_a_graph_shares_within_itself() -> None:
    """What two inputs share is shared by their clones."""
    g = AliasGraph()
    a, b = g.allocate((6,), color=1, dtype="int16"), g.allocate((6,), color=2, dtype="int16")
    both = concatenate([a[1:], a[:2], b])
    same = both.clone()
    assert same.colors() == {1, 2} and both.clone("new").colors() == {"new"} and same.itemsize == 2
    assert same.has_internal_overlap() and not same.overlaps(both) and not same.overlaps(a)
    assert {u.id for u in same.aliases()} == set(range(both.id + 1, same.id + 1)) and same.id == 2 * both.id + 1
    assert [u.name for u in g if u.name] == []


# ------------------------------------------------------------------------------------------------------- growing


def test_growing_takes_back_what_cannot_be_finished() -> None:
    program = {"x": [], "y": ["x"], "z": ["y", "w"], "w": ["z"]}
    g = AliasGraph()

    def make(name: str, ins: tuple[AliasTensor, ...]) -> AliasTensor:
        return concatenate(ins) if ins else g.allocate((2,))

    with pytest.raises(ValueError, match=r"grow: 'z' aliases itself through \['z', 'w'\]; that is a cycle"):
        g.grow(["y", "z"], program.__getitem__, make)
    assert len(g) == 0 and "x" not in g
    g.grow(["y"], program.__getitem__, make)
    with pytest.raises(ValueError, match=r"grow: make gave AliasTensor\(0 'x'.*it must be a new tensor"):
        g.grow(["v"], lambda name: ["x"], lambda name, ins: ins[0])
    assert [t.name for t in g] == ["x", "y"] and g["x"].outs == (g["y"],)


# ---------------------------------------------------------------------------------------------------------- JSON


def example() -> AliasGraph:
    g = AliasGraph()
    a = g.allocate((4, 6), name="a", color=("weights", 1, (True, None, 2.5)), dtype="float32")
    b = g.allocate((4, 6), name="b", itemsize=4)
    concatenate([a, b], 1)[1:, ::-2].rename("c")
    b.to_view(Flip((0,)), a)
    return g


def test_json_keeps_the_types_of_colors() -> None:
    g = AliasGraph()
    colors: list[Hashable] = [0, 1, True, 1.0, "1", None, (), ("a", (1, False)), 10**30, -0.5, "ß"]
    for color in colors:
        g.allocate((1,), color=color)
    back = AliasGraph.from_json(g.to_json())
    assert [(type(t.color), t.color) for t in back] == [(type(c), c) for c in colors]


class Halved:
    """Every second cell of a line: a kind from outside, without fields or equality."""

    def out_shape(self, shapes: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
        return ((shapes[0][0] + 1) // 2,)

    def pieces(self, shapes: tuple[tuple[int, ...], ...]) -> tuple[Piece, ...]:
        return (Piece(0, (), IndexMap((AffineMap(((2,),), (0,)),))),)


def test_a_kind_from_outside_works_and_is_written_as_its_pieces() -> None:
    g = AliasGraph()
    a, b = g.allocate((7,), name="a"), g.allocate((4,), name="b", color=1)
    even = a.apply(Halved())
    assert even.same_elements(a[::2]) and not even.overlaps(a[1::2])
    assert repr(even) == "AliasTensor(2: Halved() of 0, shape (4,))"
    b.to_view(Halved(), a)
    assert b.same_elements(even) and [t.id for t in b.aliases()] == [0, 1, 2, 3]
    with pytest.raises(ValueError, match=r"has shape \(4,\) and 1 bytes a cell, but Halved\(\) of \[2\] has \(2,\)"):
        b.to_view(Halved(), even)
    back = AliasGraph.from_json(g.to_json())
    assert back != g and back.to_json() == g.to_json()
    assert [t.view.pieces for t in back] == [t.view.pieces for t in g]
    assert [[u.id for u in t.aliases()] for t in back] == [[u.id for u in t.aliases()] for t in g]


@pytest.mark.parametrize("color", [frozenset({1}), float("nan"), float("inf"), ("a", b"b"), np.int64(3)])
def test_a_color_without_a_json_form_is_named(color: Hashable) -> None:
    g = AliasGraph()
    g.allocate((1,))
    g.allocate((1,), color=color)
    with pytest.raises(TypeError, match=r"nodes\[1\]\.color(\[1\])?: .* has no JSON form; use None, strings"):
        g.to_json()


def at(*path: Any, value: Any = ..., drop: bool = False) -> Callable[[dict[str, Any]], None]:
    """A change of one place of a document."""

    def change(document: dict[str, Any]) -> None:
        inner: Any = document
        for step in path[:-1]:
            inner = inner[step]
        if drop:
            del inner[path[-1]]
        else:
            inner[path[-1]] = value

    return change


SPOILT: list[tuple[Callable[[dict[str, Any]], None], str]] = [
    (at("format", value="tapestry-graph"), r"format is 'tapestry-graph', .* reads 'tapestry-alias-graph/3'; write"),
    (at("format", value="tapestry-alias-graph"), r"format is 'tapestry-alias-graph', .* anew with AliasGraph.to_json"),
    (at("format", drop=True), r"format is None, this version reads"),
    (at("more", value=1), r"unknown field `more`; write the graph anew"),
    (at("nodes", drop=True), r"missing required field `nodes`"),
    (at("nodes", value={}), r"Expected `array`, got `object` - at `\$\.nodes`"),
    (at("nodes", 0, value=3), r"Expected `object`, got `int` - at `\$\.nodes\[0\]`, which is 3"),
    (at("nodes", 0, "shape", value="4"), r"^nodes\[0\]: Expected `array`, got `str` - at `\$\.shape`, which is '4'"),
    (at("nodes", 0, "shape", 1, value=-1), r"^nodes\[0\]: Expected `int` >= 0 - at `\$\.shape\[1\]`, which is -1"),
    (at("nodes", 0, "shape", 1, value=6.0), r"^nodes\[0\]: .* got `float` - at `\$\.shape\[1\]`, which is 6.0"),
    (at("nodes", 0, "shape", 1, value=True), r"^nodes\[0\]: .* got `bool` - at `\$\.shape\[1\]`, which is True"),
    (at("nodes", 0, "itemsize", value=0), r"^nodes\[0\]: Expected `int` >= 1 - at `\$\.itemsize`, which is 0"),
    (at("nodes", 0, "color", value=[{}]), r"^nodes\[0\]\.color\[0\]: must be null, a string.*, not {}"),
    (at("nodes", 0, "color", drop=True), r"^nodes\[0\]: .*missing required field `color`"),
    (at("nodes", 0, "dtype", value="float32"), r"^nodes\[0\]: .*unknown field `dtype`"),
    (at("nodes", 0, "name", value=None), r"^nodes\[0\]: Expected `str`, got `null` - at `\$\.name`, which is None"),
    (at("nodes", 1, "name", value="a"), r"^nodes\[1\]\.name: 'a' is the name of nodes\[0\] too"),
    (at("nodes", 3, "inputs", 0, value=4), r"^nodes\[3\]\.inputs\[0\]: must be a node's number below 4, not 4"),
    (at("nodes", 3, "inputs", 0, value="b"), r"^nodes\[3\]: .* - at `\$\.inputs\[0\]`, which is 'b'"),
    (at("nodes", 3, "inputs", value=[]), r"^nodes\[3\]\.inputs: .*at least one input"),
    (at("nodes", 3, "inputs", value=[0, 1]), r"^nodes\[3\]\.inputs: slice: takes one source, not 2"),
    (at("nodes", 3, "inputs", 0, value=3), r"^nodes\[3\]\.inputs\[0\]: 3 reads 3: that is a cycle"),
    (at("nodes", 1, "inputs", 0, value=3), r"^nodes\[[123]\]\.inputs\[[01]\]: .*1 reads 3 reads 2.*: that is a cycle"),
    (at("nodes", 3, "shape", 0, value=4), r"^nodes\[3\]\.shape: is \[4, 6\], but the kind makes \[3, 6\]"),
    (at("nodes", 3, "kind", value=None), r"^nodes\[3\]: .* - at `\$\.kind`, which is None"),
    (at("nodes", 3, "kind", value={"kind": "Slices"}), r"^nodes\[3\]\.kind\b"),
    (at("nodes", 3, "itemsize", value=4), r"^nodes\[3\]: .*unknown field `itemsize`"),
]


@pytest.mark.parametrize(("spoil", "message"), SPOILT)
def test_a_document_that_is_wrong_is_refused_with_the_place(
    spoil: Callable[[dict[str, Any]], None], message: str
) -> None:
    document = json.loads(example().to_json())
    spoil(document)
    with pytest.raises(ValueError, match=message):
        AliasGraph.from_json(json.dumps(document))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        ("[1]", "format is None"),
        ('{"format": NaN}', "NaN is no JSON number"),
        ('{"format": 1, "format": 2}', "field 'format' is given twice"),
        ("[" * 100_000, "recursion"),
        (b"\xff\xfe\xff", "codec"),
    ],
)
def test_text_that_is_no_document_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=f"^an alias graph's JSON: .*{message}"):
        AliasGraph.from_json(text)


# -------------------------------------------------------------------------------------------------------- tables


def test_the_table_says_what_there_is() -> None:
    g = AliasGraph()
    a = g.allocate((2, 3), name="a", color="in")
    twice = a.broadcast_to((2, 2, 3))
    g.allocate((0,), name="none")
    twice[0].flip(1)
    assert g.table(origins=True).splitlines() == [
        "id  name  kind                  ins  shape      outs  color  self-overlap  aliased to",
        "0   a     allocation                 (2, 3)     1     'in'   no            0, 1, 3, 4",
        "1         Broadcast((2, 2, 3))  0    (2, 2, 3)  3            yes           0, 1, 3, 4",
        "2   none  allocation                 (0,)             0      no",
        "3         Index(((0, 0),))      1    (2, 3)     4            no            0, 1, 3, 4",
        "4         Flip((1,))            3    (2, 3)                  no            0, 1, 3, 4",
        "",
        "id  regions read of allocations",
        "0   [0 a] (2, 3): (Sett(), Sett())",
        "1   [0 a] (2, 3): (Sett(), Sett())",
        "2",
        "3   [0 a] (2, 3): (Sett(), Sett())",
        "4   [0 a] (2, 3): (Sett(), Sett())",
    ]
    a[:, ::2]
    assert g.table(bitwise=True).endswith("\n5   [0 a] (2, 3)\n    1.1\n    1.1")
    assert AliasGraph().table() == "id  name  kind  ins  shape  outs  color  self-overlap  aliased to"


def test_what_is_too_hard_for_the_table_is_a_question_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise TooHard("no answer")

    g = AliasGraph()
    g.allocate((4,), name="m")
    g["m"][1:]
    monkeypatch.setattr(View, "has_internal_overlap", refuse)
    assert [line.split()[-3:] for line in g.table().splitlines()[1:]] == [["?", "0,", "1"], ["?", "0,", "1"]]
    monkeypatch.setattr(View, "origins", refuse)
    assert g.table(origins=True).splitlines()[-2:] == ["0   ?", "1   ?"]
    monkeypatch.setattr(alias_graph, "overlap_matrix", refuse)
    assert g.table().splitlines()[-1].split()[-2:] == ["?", "?"]
    with pytest.raises(TooHard, match="no answer"):
        g.all_aliases()


def test_notebooks_show_the_table() -> None:
    g = AliasGraph()
    assert g._repr_mimebundle_() == {"text/plain": "AliasGraph(0 tensors, 0 of them allocations)"}
    a = g.allocate((2, 3), name="<a>")
    bundle = g._repr_mimebundle_()
    assert bundle["text/plain"] == f"AliasGraph(1 tensors, 1 of them allocations)\n{g.table()}"
    assert "<td>&lt;a&gt;</td>" in bundle["text/html"] and bundle["text/html"].count("<tr>") == 2
    assert repr(a) == "AliasTensor(0 '<a>': allocation, shape (2, 3))"
    assert repr(a[1:]) == "AliasTensor(1: Slice(((1, None, None),)) of 0, shape (1, 3))"
    shown = a[1:]._repr_mimebundle_()
    assert shown["text/plain"].startswith("AliasTensor(2: Slice") and shown["image/svg+xml"].startswith("<svg")
    assert "text/plain" in a.overlap(a[1:])._repr_mimebundle_()
    for _ in range(300):
        a = a.flip()
    assert list(g._repr_mimebundle_()) == ["text/plain"]


# --------------------------------------------------------------------------------------------------------- sizes


def test_answers_do_not_depend_on_sizes() -> None:
    n = 10**9
    g = AliasGraph()
    a, b = g.allocate((n, 6 * n), name="a"), g.allocate((n, 6 * n), name="b")
    both = concatenate([a, b], 1)
    odd, even = both[:, 1::2], both[:, ::2]
    found = g.all_aliases()
    assert found[odd] == (a, b, both, odd) and found[even] == (a, b, both, even) and found[a] == (a, both, odd, even)
    assert odd.overlap(a).size == 3 * n * n and not odd.has_internal_overlap()
    b.to_identity(a)
    assert g.all_aliases()[odd] == (a, b, both, odd) and both.has_internal_overlap() and odd.has_internal_overlap()
    assert odd.overlap(b).size == 3 * n * n and not odd.overlaps(even)
    even.to_allocation()
    assert g.pad(even, 1).size == (n + 2) * (6 * n + 2) and even.origins()[even].is_full


def test_a_thousand_tensors_in_about_a_second() -> None:
    """All aliases of a thousand tensors over twenty allocations, each a network of slices, transposes and joins."""
    rng = np.random.default_rng(0)
    g = AliasGraph()
    for k in range(20):
        mine = [g.allocate((64, 96)), g.allocate((96, 64))]
        while len(g) < 50 * (k + 1):
            t = mine[rng.integers(len(mine))]
            i, j = (int(rng.integers(0, n // 2)) for n in t.shape)
            made: list[Callable[[AliasTensor], AliasTensor]] = [
                lambda t, i=i, j=j: t[i:, j:],  # type: ignore[misc]
                lambda t, i=i: t[i % 2 :: 2],  # type: ignore[misc]
                lambda t: t.T,
                lambda t: t.flip(0),
                lambda t: concatenate([t, t[:1]]),
            ]
            u = made[rng.integers(len(made))](t)
            if min(u.shape) > 1:
                mine.append(u)
    start = time.process_time()
    found = g.all_aliases()
    took = time.process_time() - start
    assert took < 2, f"{took:.1f} s"
    assert len(found) == len(g) >= 1000
    for i in (0, 60, 333, 999):  # and they are right
        assert found[g[i]] == g[i].aliases()
        assert set(found[g[i]]) == {t for t in g if overlaps(t.view, g[i].view)}


def test_long_chains_do_not_recurse() -> None:
    g = AliasGraph()
    t = a = g.allocate((3, 4), name="a")
    for _ in range(3000):
        t = t.flip(0)
    assert t.same_elements(a) and len(t.clone().aliases()) == 3001
    assert AliasGraph.from_json(g.to_json()) == g
    with pytest.raises(ValueError, match="cannot be a view of tensor 3000"):
        a.to_identity(t.graph[3000])
