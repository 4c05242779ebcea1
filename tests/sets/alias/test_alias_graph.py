"""The editable alias graph, against NumPy replaying its nodes over arrays of distinct numbers."""

from __future__ import annotations

import copy
import pickle
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import (
    AliasGraph,
    AliasTensor,
    Region,
    Sett,
    Stripe,
    TooHard,
    View,
    concatenate,
    fill_into,
    interleave,
    overlaps,
    pad,
    repeat,
    roll,
    stack,
    tile,
)
from tapestry_sets.alias.graphs import graph as alias_graph
from tests.edited_graphs import EDITS, Play, check


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
    with pytest.raises(TypeError, match="is not a tensor of the graph; give a tensor, number or name"):
        g[1.0]  # type: ignore[index]
    with pytest.raises(TypeError, match="True is not a tensor of the graph"):
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
