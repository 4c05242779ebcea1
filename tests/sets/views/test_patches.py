"""Patches and their folding against pairs of (index, cell), listed digit by digit."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import View
from tapestry_sets.digits import Digits, join_digits
from tapestry_sets.views.normal.folding import as_one, fold
from tapestry_sets.views.normal.patches import (
    Constant,
    Flat,
    Patch,
    patch_of,
    read_patches,
    resolve,
    strided_patch,
    through,
)
from tests.oracles import cell_read
from tests.strategies import views

FAR = 10**6


def pairs(patches: list[Patch] | tuple[Patch, ...]) -> list[tuple[int, int, str]]:
    """List what each index reads, and assert that no index is in two patches."""
    found = []
    for patch in patches:
        for values in product(*(range(count) for count, _, _ in patch.digits)):
            at = patch.at + sum(k * by for k, (_, by, _) in zip(values, patch.digits, strict=True))
            cell = patch.cell + sum(k * step for k, (_, _, step) in zip(values, patch.digits, strict=True))
            found.append((at, cell, str(patch.home)))
    assert len({at for at, _, _ in found}) == len(found)
    return sorted(found)


def is_nested(patch: Patch) -> bool:
    """Say whether each index step exceeds the reach of those after it."""
    reach = 0
    for count, by, _ in reversed(patch.digits):
        if by <= reach or count < 2:
            return False
        reach += (count - 1) * by
    return patch.digits == join_digits(patch.digits)


@st.composite
def partitions(draw: st.DrawFn) -> list[Patch]:
    """Patches of [0, n): a strided function, or two, cut at random into what a chain of cuts and deals leaves."""
    counts = draw(st.lists(st.integers(2, 5), min_size=1, max_size=3))
    levels = [(n, draw(st.integers(-6, 6))) for n in counts]
    patches = [strided_patch(draw(st.integers(0, 9)), tuple(levels), "A")]
    if draw(st.booleans()):
        other = strided_patch(draw(st.integers(0, 9)), tuple(levels[1:]), draw(st.sampled_from(["A", "B"])))
        patches.append(other._replace(at=patches[0].last + 1))
    for _ in range(draw(st.integers(0, 4))):
        k = draw(st.integers(0, len(patches) - 1))
        whole = patches.pop(k)
        if not whole.digits:
            patches.append(whole)
            continue
        j = draw(st.integers(0, len(whole.digits) - 1))
        patches += draw(cuts(whole, j))
    return patches


@st.composite
def cuts(draw: st.DrawFn, whole: Patch, j: int) -> list[Patch]:
    """A patch as two, cut within digit j, or dealt by it."""
    (count, by, step), others = whole.digits[j], (whole.digits[:j], whole.digits[j + 1 :])
    k = draw(st.integers(1, count - 1))
    if draw(st.booleans()):
        parts = [(0, k, 1), (k, count - k, 1)]
    else:
        parts = [(s, len(range(s, count, 2)), 2) for s in range(2)]
    return [
        Patch(
            whole.at + first * by,
            whole.cell + first * step,
            join_digits((*others[0], (n, every * by, every * step), *others[1])),
            whole.home,
        )
        for first, n, every in parts
    ]


@given(partitions())
@example([Patch(20, 0, ((2, 30, 10), (3, 10, 43), (3, 3, 1)), "A"), Patch(29, 3, ((3, 10, 43),), "A")])
def test_folding_changes_no_pair(patches: list[Patch]) -> None:
    folded = fold(patches)
    assert pairs(folded) == pairs(patches)
    assert len(folded) <= len(patches) and all(map(is_nested, folded))
    assert fold(folded) == folded


@given(st.lists(st.tuples(st.integers(2, 5), st.integers(-9, 9)), min_size=1, max_size=3), st.data())
def test_cuts_of_one_strided_view_fold_to_it(levels: list[tuple[int, int]], data: st.DataObject) -> None:
    whole = strided_patch(3, tuple(levels), "A")
    patches = [whole]
    for _ in range(data.draw(st.integers(1, 3))):
        patch = patches.pop(data.draw(st.integers(0, len(patches) - 1)))
        patches += data.draw(cuts(patch, data.draw(st.integers(0, len(patch.digits) - 1)))) if patch.digits else [patch]
    assert fold(patches) == (whole,)
    assert as_one(patches) == whole


@given(st.permutations(range(8)), st.data())
def test_the_one_form_of_a_patch_does_not_depend_on_its_digits(order: list[int], data: st.DataObject) -> None:
    """Digits in any order, backwards or split in two, are the same patch."""
    patch = strided_patch(7, ((3, 40), (4, 7), (6, -1)), "A")
    digits = []
    origin = list(patch.forms.origin)
    for count, by, step in patch.digits:
        if data.draw(st.booleans()):
            origin = [origin[0] + (count - 1) * by, origin[1] + (count - 1) * step]
            by, step = -by, -step
        n = data.draw(st.sampled_from([d for d in range(1, count + 1) if count % d == 0]))
        digits += [(count // n, n * by, n * step), (n, by, step)]
    shuffled = [digits[k] for k in order if k < len(digits)]
    assert patch_of(Digits(tuple(origin), tuple(shuffled)), "A") == patch


@given(views(length=3, cells=200))
def test_patches_of_pieces_read_what_the_pieces_read(pair: tuple[View, np.ndarray]) -> None:
    view, _ = pair
    for piece in view.pieces:
        home = () if piece.source < 0 else view.allocations[piece.source].shape
        found = pairs([patch_of(b, "A") for b in read_patches(piece, view.shape, home, FAR)] if view.size else [])
        expected = []
        for k, point in enumerate(product(*map(range, view.shape))):
            cell = cell_read(piece, point)
            if cell is not None:
                expected.append((k, int(np.ravel_multi_index(cell, home)) if home else 0, "A"))
        assert found == expected


@given(partitions(), partitions())
def test_a_view_of_a_view_reads_what_the_inner_one_reads(outer: list[Patch], inner: list[Patch]) -> None:
    table = {at: (cell, home) for at, cell, home in pairs(inner)}
    expected = [(at, *table[cell]) for at, cell, _ in pairs(outer) if cell in table]
    found = [patch_of(part, q.home) for p in outer for q in inner for part in through(p.forms, q, FAR)]
    assert pairs(found) == expected
    flat = Flat(len(table), tuple(sorted(inner, key=lambda p: p.at)), 0)
    inside = [p for p in outer if all(cell in table for _, cell, _ in pairs([p]))]
    every = Flat(0, tuple(patch for p in inside for patch in resolve(p.forms, flat)), 0)
    for at, cell, _ in pairs(inside):
        assert every.at(at) == table[cell][::-1]
    for at, (cell, home) in table.items():
        assert flat.at(at) == (home, cell)


def test_constants_are_equal_by_value() -> None:
    nan = float("nan")
    assert Constant(nan) == Constant(nan) and hash(Constant(nan)) == hash(Constant(nan))
    assert Constant(0) == Constant(0.0) and hash(Constant(0)) == hash(Constant(0.0))
    assert Constant(0) != Constant(1) and Constant(0) != (0,)
    assert patch_of(Digits((3, 5), ((2, 4, 9),)), Constant(1)) == Patch(3, 0, ((2, 4, 0),), Constant(1))
