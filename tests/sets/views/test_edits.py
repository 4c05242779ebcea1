"""Views after many edits: what is asked of them costs what the view needs, however it was made; the rest is refused.

Work is counted, not timed: pieces kept, patches gone through, pairs compared.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry_sets import TooHard, View, allocate, concatenate, interleave, limits, overlap, overlaps, pad, roll
from tapestry_sets.alias.ladder import flat as flat_module
from tapestry_sets.limits import OPEN
from tapestry_sets.solvers import isl
from tapestry_sets.views import Derived
from tapestry_sets.views import questions as questions_module
from tapestry_sets.views.normal import normal_form as normal_module
from tapestry_sets.views.normal import patches as patches_module
from tapestry_sets.views.normal.normal_form import agree
from tapestry_sets.views.normal.patches import Flat, Patch
from tapestry_sets.views.pieces import piece as pieces_module
from tests.oracles import read_view
from tests.strategies import one_more


def under(view: View) -> list[View]:
    """The views below and including a view that are made of others, each once."""
    found: dict[int, View] = {}
    todo = [view]
    while todo:
        v = todo.pop()
        if isinstance(v, Derived) and id(v) not in found:
            found[id(v)] = v
            todo += v.sources
    return list(found.values())


def turned(view: View, times: int) -> View:
    """A vector whose first cell goes to its end so many times."""
    for _ in range(times):
        view = concatenate([view[1:], view[:1]])
    return view


def shuffled(edits: int, seed: int = 3) -> tuple[View, np.ndarray]:
    """A cube after bijective edits that shatter it, and the numbers of the cells that it reads."""
    rng = random.Random(seed)
    view: View = allocate((64, 64, 8), name="cube")
    numbers = np.arange(view.size).reshape(view.shape)
    for _ in range(edits):
        match rng.randrange(5):
            case 0:
                view, numbers = view.T, numbers.T
            case 1:
                axis = rng.randrange(view.rank)
                view, numbers = view.flip(axis), np.flip(numbers, axis)
            case 2:
                view, numbers = roll(view, 1, 0), np.roll(numbers, 1, 0)
            case k:
                shape = (64, 64, 8) if k == 3 else (8, 64, 64)
                view, numbers = view.reshape(shape), numbers.reshape(shape)
    return view, numbers


def counting(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, calls: Counter[str]) -> None:
    """Count the calls of a function of a module."""
    real = getattr(where, name)

    def counted(*args: Any, **kwargs: Any) -> Any:
        calls[name] += 1
        return real(*args, **kwargs)

    monkeypatch.setattr(where, name, counted)


# ----------------------------------------------------------------------------------------------- the same values


@settings(max_examples=max(25, settings.default.max_examples // 4))
@given(st.data())
def test_long_chains_read_what_numpy_reads(data: st.DataObject) -> None:
    """Chains of more kinds than are composed one by one; some views on the way are asked before."""
    homes = [allocate((6, 4), name="A"), allocate((5,), name="B")]
    memory = {homes[0]: np.arange(1, 25).reshape(6, 4), homes[1]: np.arange(25, 30)}
    view: View = homes[0]
    array = memory[homes[0]]
    for _ in range(data.draw(st.integers(20, 36))):
        new, values = view, array
        if data.draw(st.integers(0, 3)) == 0:
            flat, other = view.reshape(view.size), data.draw(st.sampled_from([view.reshape(view.size)[:3], homes[1]]))
            rest = array.reshape(-1)[:3] if other is not homes[1] else memory[homes[1]]
            new, values = concatenate([flat[2:], other]), np.concatenate([array.reshape(-1)[2:], rest])
        else:
            new, values = data.draw(one_more(view, array))
        if 0 < new.size <= 60 and new.rank <= 4:
            view, array = new, values
        if data.draw(st.integers(0, 39)) == 0:
            assert len(view.pieces) >= 1
    assert set(view.allocations) <= set(homes)
    np.testing.assert_array_equal(np.nan_to_num(read_view(view, memory)), array)
    assert view.simplify().same_view(view)


@pytest.mark.parametrize("edits", [17, 40, 70])
def test_shuffled_cells_are_where_numpy_has_them(edits: int) -> None:
    view, numbers = shuffled(edits)
    (home,) = view.allocations
    for at in [(0, 0, 0), (1, 2, 3), (7, 5, 7), (3, 60, 1)]:
        if all(k < n for k, n in zip(at, view.shape, strict=True)):
            part = view[tuple(slice(k, k + 1) for k in at)]
            cell = np.unravel_index(int(numbers[at]), home.shape)
            assert overlap(part, home).witness.cell == tuple(map(int, cell))  # type: ignore[union-attr]


# ------------------------------------------------------------------------------------------- many edits, few pieces


@pytest.mark.heavy(2)
def test_edits_that_leave_a_view_simple_leave_it_few_pieces() -> None:
    home = allocate((1000 * 10**9,))
    view = turned(home, 300)
    assert overlap(view, home[::2]).size == home.size // 2
    assert len(view.pieces) == 2 and view == roll(home, -300) and view.same_view(roll(home, -300))
    kept = [v for v in under(view) if isinstance(v, Derived) and v._known.composed]
    assert len(kept) <= 4, "views on the way hold no pieces of their own"


def test_a_view_asked_after_each_edit_has_few_pieces() -> None:
    view: View = allocate((1000,))
    most = 0
    for _ in range(60):
        view = turned(view, 1)
        most = max(most, len(view.pieces))
    assert most <= 12


def test_the_order_of_allocations_is_that_of_pieces_composed_one_by_one() -> None:
    a, b, c = (allocate((4,), name=name) for name in "abc")
    view = concatenate([c, a[:2], pad(b, 1), a])
    short = view.allocations
    for _ in range(20):
        view = view[::-1].reshape(2, view.size // 2)[:, ::-1].reshape(view.size)
    assert short == (c, a, b) == view.allocations
    assert {view.allocations[p.source] for p in view.pieces if p.source >= 0} == {a, b, c}


def test_questions_about_all_cells_need_no_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rolls, flips, transposes and reshapes read every cell once, whatever becomes of their order."""
    view, _ = shuffled(300)
    (home,) = view.allocations
    counting(monkeypatch, pieces_module, "compose_pieces", calls := Counter())
    assert overlaps(view, home[3]) and overlap(view, home[3, ::2]).size == 32 * 8
    assert view.contains(home) and home.contains(view) and view.same_elements(home)
    assert view.internal_overlap() is None and view.is_contiguous()
    assert calls["compose_pieces"] <= 3, "those of the parts of the cube"


def test_pieces_that_shatter_are_refused_with_the_work_named(monkeypatch: pytest.MonkeyPatch) -> None:
    view, _ = shuffled(120)
    calls: Counter[str] = Counter()
    counting(monkeypatch, pieces_module, "compose_pieces", calls)
    with limits(budget=5_000):
        with pytest.raises(TooHard, match=r"more than 5000 guards and steps; .* limits\(budget=50000\)"):
            view.pieces  # noqa: B018
        before = calls.total()
        with pytest.raises(TooHard, match="more than 5000"):
            view.pieces  # noqa: B018
        assert before and calls.total() == before, "what is refused once is not begun again"


# ---------------------------------------------------------------------------------------------------- patches


def test_each_edit_goes_through_few_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    view, _ = shuffled(150)
    calls: Counter[str] = Counter()
    counting(monkeypatch, patches_module, "through", calls)
    assert view == view.T.T
    assert calls["through"] <= 150 * 100


def test_patches_of_patches_are_hashed_once() -> None:
    """Each of 200 stages reads the one before twice; without a memory that is 2**200 hashes."""
    flat, other = (Flat(2, (Patch(0, cell, ((2, 1, 1),), "A"),), 0) for cell in (0, 7))
    same = Flat(2, (Patch(0, 0, ((2, 1, 1),), "A"),), 0)
    for k in range(200):
        flat, other, same = (Flat(2, (Patch(0, 0, (), f), Patch(1, 1, (), f)), k + 1) for f in (flat, other, same))
    assert flat != other and hash(flat) == hash(same)


def test_comparing_patches_of_patches_ends() -> None:
    """Each stage swaps two halves, and how they do that is not spelled out: 2**18 pairs."""
    one, two = (Flat(4, (Patch(0, cell, ((4, 1, 1),), "A"),), 0) for cell in (0, 1))
    for k in range(18):
        one, two = (Flat(4, (Patch(0, 2, ((2, 1, 1),), f), Patch(2, 0, ((2, 1, 1),), f)), k + 1) for f in (one, two))
    assert agree(one, two) is False
    with limits(budget=100):
        assert agree(one, two) is None


# -------------------------------------------------------------------------------------------------- many pieces


def irregular(many: int, seed: int = 7) -> list[tuple[int, int]]:
    rng = random.Random(seed)
    return [(rng.randrange(10**12), rng.randrange(2, 300)) for _ in range(many)]


@pytest.mark.heavy(2)
def test_views_of_many_pieces_are_compared_patch_by_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """More pieces than the normal form has, and cut at other places in the two views: isl is not asked."""
    monkeypatch.setattr(isl, "bounded", lambda *args, **kwargs: pytest.fail("isl is asked"))
    home = allocate((10**13,))
    runs = irregular(1100)
    one = concatenate([home[a : a + n] for a, n in runs])

    def halves(runs: list[tuple[int, int]]) -> View:
        return concatenate([part for a, n in runs for part in (home[a : a + n // 2], home[a + n // 2 : a + n])])

    assert one.same_view(halves(runs))
    runs[777] = runs[777][0] + 1, runs[777][1]
    assert not one.same_view(halves(runs))


def test_dealt_views_of_many_pieces_are_compared() -> None:
    rng = random.Random(1)
    home = allocate((10**6,))
    indices = [rng.randrange(10**6) for _ in range(2200)]
    dealt = interleave([home.take(indices[::2]), home.take(indices[1::2])])
    assert dealt.same_view(home.take(indices))
    indices[501] = (indices[501] + 1) % 10**6
    assert not dealt.same_view(home.take(indices))


def test_isl_compares_views_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed: list[int] = []
    monkeypatch.setattr(isl, "bounded", lambda question, refusal, operations: allowed.append(operations))
    home = allocate((10**6,))
    parts = [home[k * 7 : k * 7 + 2] for k in range(0, 4000, 3)]
    many, swapped = concatenate(parts), concatenate([parts[0], parts[2], parts[1], *parts[3:]])
    monkeypatch.setattr(questions_module, "agree", lambda *args: None)
    many.same_view(swapped)
    assert allowed == [isl.BUILD_OPERATIONS]


@given(st.integers(0, 2**32), st.sampled_from([40, 10**6, 10**21]))
def test_irregular_indices_are_united(seed: int, size: int) -> None:
    rng = random.Random(seed)
    indices = [rng.randrange(size) for _ in range(rng.randrange(1, 150))]
    view = allocate((size,)).take(indices)
    assert overlap(view, view).size == len(set(indices))
    assert view.has_internal_overlap() == (len(set(indices)) < len(indices))


def test_irregular_indices_are_not_compared_pair_by_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(2)
    home = allocate((10**9,))
    indices = [rng.randrange(10**9) for _ in range(800)]
    calls: Counter[str] = Counter()
    counting(monkeypatch, flat_module.pairs, "first_in_both", calls)
    view = home.take(indices)
    assert overlap(view, home[::3]).size == sum(1 for z in set(indices) if z % 3 == 0)
    assert view.internal_overlap() is None
    assert calls["first_in_both"] <= 2 * len(indices)


@pytest.mark.heavy(2)
def test_the_normal_form_allows_as_many_patches_as_asked_for() -> None:
    home = allocate((10**13,))
    view = concatenate([home[a : a + n] for a, n in irregular(1100)])
    sources = [(home.shape, Flat(home.size, (Patch(0, 0, ((home.size, 1, 1),), home),), 0))]
    assert len(normal_module.flat_of(view.pieces, view.shape, sources, 2000).patches) > 1000
    assert normal_module.flat_of(view.pieces, view.shape, sources) is OPEN
