"""Edits of an alias graph: what is built anew, and the cycles and wrong inputs that are refused."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tapestry_sets import (
    AliasGraph,
    Region,
    Stripe,
    broadcast_arrays,
    concatenate,
    hstack,
    pad,
    repeat,
    vstack,
)
from tapestry_sets.views import (
    Concat,
    Flip,
    Reshape,
    Slice,
)

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
    (lambda g: g.to_view("b", "Concat", "b"), TypeError, "'Concat' is not a view kind"),  # type: ignore[arg-type]
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
    (lambda g: AliasGraph.from_json(3), TypeError, "JSON: 3 is a int"),  # type: ignore[arg-type]
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
