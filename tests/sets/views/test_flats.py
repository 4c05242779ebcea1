"""Normal forms made by hand and at random, of few indices, against lists of what each index reads."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import product

import numpy as np
import pytest

from tapestry_sets import (
    AffineMap,
    DisjointRegions,
    Region,
    Sett,
    Stripe,
    TooHard,
    allocate,
    concatenate,
    interleave,
    limits,
)
from tapestry_sets.digits import Digits
from tapestry_sets.limits import OPEN
from tapestry_sets.views import Guard, IndexMap, Piece, tuning
from tapestry_sets.views.normal.normal_form import (
    Opaque,
    agree,
    find_opaque,
    flat_of,
    flat_over,
    preimage,
    read_the_same,
)
from tapestry_sets.views.normal.patches import Constant, Flat, Patch, patch_of
from tests.oracles import listed_points

Read = tuple[str, int]
MEMORY = 12
"""So many cells of each memory may be read."""


def reads(flat: Flat) -> list[Read]:
    """List what each index reads, digit by digit, and assert that the patches partition the indices."""
    found: dict[int, Read] = {}
    for patch in flat.patches:
        below = reads(patch.home) if isinstance(patch.home, Flat) else None
        for values in product(*(range(count) for count, _, _ in patch.digits)):
            at = patch.at + sum(k * by for k, (_, by, _) in zip(values, patch.digits, strict=True))
            cell = patch.cell + sum(k * step for k, (_, _, step) in zip(values, patch.digits, strict=True))
            assert at not in found and cell >= 0
            found[at] = (str(patch.home), cell) if below is None else below[cell]
    assert sorted(found) == list(range(flat.size))
    return [found[at] for at in range(flat.size)]


def stages_of(flat: Flat) -> int:
    return max((1 + stages_of(patch.home) for patch in flat.patches if isinstance(patch.home, Flat)), default=0)


def made_of(patches: list[Patch]) -> Flat:
    flat = Flat(sum(patch.size for patch in patches), tuple(sorted(patches, key=lambda patch: patch.at)), 0)
    return Flat(flat.size, flat.patches, stages_of(flat))


def random_flat(r: np.random.Generator, size: int, homes: list[Hashable]) -> Flat:
    """Patches of one or two digits, some of them dealt, whose cells go up, down or stay."""
    patches: list[Patch] = []
    at = 0
    while at < size:
        left = size - at
        inner = int(r.integers(1, min(left, 4) + 1))
        outer = int(r.integers(1, left // inner + 1))
        hands = 2 if 2 * inner * outer <= left and r.integers(2) else 1
        for hand in range(hands):
            home = homes[int(r.integers(len(homes)))]
            limit = home.size if isinstance(home, Flat) else MEMORY
            while True:
                first, down, along = (int(r.integers(low, limit)) for low in (0, -limit, -3))
                corners = [first + a * (outer - 1) * down + b * (inner - 1) * along for a in (0, 1) for b in (0, 1)]
                if min(corners) >= 0 and max(corners) < limit:
                    break
            by = ((outer, hands * inner, down), (inner, hands, along))
            box = Digits((at + hand, first), tuple(digit for digit in by if digit[0] > 1))
            patches.append(patch_of(box, home))
        at += hands * inner * outer
    return made_of(patches)


def rewritten(r: np.random.Generator, flat: Flat) -> Flat:
    """The same reads in other patches: cut in two, or through another stage, or of one index each."""
    word = int(r.integers(3))
    if word == 0:
        where = int(r.integers(flat.size + 1))
        parts = [(0, where), (where, flat.size - where)]
        return made_of([Patch(a, a, ((n, 1, 1),) if n > 1 else (), flat) for a, n in parts if n])
    if word == 1:
        return made_of([Patch(at, cell, (), home) for at, (home, cell) in enumerate(reads(flat))])
    patches = []
    for patch in flat.patches:
        if not patch.digits:
            patches.append(patch)
            continue
        (count, by, step), *rest = patch.digits
        k = int(r.integers(1, count))
        for first, n in ((0, k), (k, count - k)):
            digits = ((n, by, step), *rest) if n > 1 else tuple(rest)
            patches.append(Patch(patch.at + first * by, patch.cell + first * step, digits, patch.home))
    return made_of(patches)


def random_pairs(seed: int, count: int) -> list[tuple[Flat, Flat]]:
    """Two normal forms of one size each, of up to two stages: a third of them the same, a third but for one index."""
    r = np.random.default_rng(seed)
    pairs = []
    for k in range(count):
        homes: list[Hashable] = ["A", "B"]
        for _ in range(int(r.integers(3))):
            homes = [*homes[-2:], random_flat(r, int(r.integers(1, 9)), homes)]
        one = random_flat(r, int(r.integers(1, 25)), homes)
        if k % 3 == 0:
            two = random_flat(r, one.size, homes)
        else:
            two = rewritten(r, rewritten(r, one))
        if k % 3 == 2:
            listed = reads(two)
            at = int(r.integers(one.size))
            listed[at] = (listed[at][0], listed[at][1] + 1) if r.integers(2) else ("BA"["AB".index(listed[at][0])], 0)
            two = made_of([Patch(i, cell, (), home) for i, (home, cell) in enumerate(listed)])
        pairs.append((one, two))
    return pairs


def test_normal_forms_agree_where_their_lists_do() -> None:
    answers = []
    for one, two in random_pairs(0, 300):
        same = reads(one) == reads(two)
        assert agree(one, two) is same and agree(two, one) is same
        assert read_the_same(one, two) is same and read_the_same(two, one) is same
        assert agree(one, one) is True
        answers.append(same)
    assert 100 <= sum(answers) < 150


def test_normal_forms_over_others_read_what_these_read() -> None:
    """Digits through a normal form, folded: the stages said are those there are."""
    r = np.random.default_rng(1)
    for one, _ in random_pairs(1, 100):
        digits = random_flat(r, int(r.integers(1, 13)), [one])
        listed = reads(one)
        for patch in digits.patches:
            found = flat_over(Digits((0, patch.cell), rows(patch)), one)
            assert found is not OPEN
            assert reads(found) == [listed[cell] for cell in cells(patch)]
            assert found.stages == stages_of(found)


def rows(patch: Patch) -> tuple[tuple[int, int, int], ...]:
    """The digits of a patch with indices one after another."""
    found, by = [], 1
    for count, _, step in reversed(patch.digits):
        found.append((count, by, step))
        by *= count
    return tuple(reversed(found))


def cells(patch: Patch) -> list[int]:
    steps = [[k * step for k in range(count)] for count, _, step in patch.digits]
    return [patch.cell + sum(moved) for moved in product(*steps)]


def whole(size: int, home: Hashable) -> Flat:
    return made_of([Patch(0, 0, ((size, 1, 1),), home)])


def halves(size: int, home: Hashable) -> Flat:
    cut = size // 2
    return made_of([Patch(0, 0, ((cut, 1, 1),), home), Patch(cut, cut, ((size - cut, 1, 1),), home)])


def test_what_is_not_spelled_out_is_the_same_only_as_itself() -> None:
    hidden, other = Opaque("v"), Opaque("v")
    assert agree(whole(6, hidden), halves(6, hidden)) is True
    assert agree(whole(6, hidden), halves(6, other)) is None
    assert agree(whole(6, hidden), halves(6, "A")) is None and agree(halves(6, "A"), whole(6, hidden)) is None
    turned = made_of([Patch(0, 5, ((6, 1, -1),), hidden)])
    assert agree(whole(6, hidden), turned) is None  # its cells may be the same
    assert agree(whole(6, "A"), made_of([Patch(0, 5, ((6, 1, -1),), "A")])) is False
    assert agree(whole(6, "A"), whole(6, "B")) is False
    # one index surely differs, whatever the others do
    mixed = [Patch(0, 0, ((5, 1, 1),), hidden), Patch(5, 5, (), "A")]
    assert agree(made_of(mixed), whole(6, "A")) is None
    assert agree(made_of([mixed[0], Patch(5, 4, (), "A")]), whole(6, "A")) is False
    assert read_the_same(whole(6, hidden), halves(6, hidden)) is None
    assert read_the_same(whole(6, "A"), whole(6, hidden)) is None
    below = whole(6, made_of(mixed))
    assert find_opaque(below) == ["v"] and find_opaque(whole(6, "A")) == []


def test_stages_that_read_the_same_at_other_indices_agree() -> None:
    one_cell = made_of([Patch(0, 3, ((4, 1, 0),), "A")])
    turned = made_of([Patch(0, 3, ((4, 1, -1),), one_cell)])
    assert agree(whole(4, one_cell), turned) is True
    assert agree(whole(4, halves(4, "A")), made_of([Patch(0, 3, ((4, 1, -1),), halves(4, "A"))])) is False


def test_comparisons_are_given_up_where_they_take_more_than_is_allowed() -> None:
    inner = made_of([Patch(0, 0, (), "A"), Patch(1, 4, (), "A"), Patch(2, 2, (), "A")])
    stage, spelled = whole(3, inner), made_of([Patch(0, 0, (), "A"), Patch(1, 4, ((2, 1, -2),), "A")])
    assert reads(stage) == reads(spelled)
    assert agree(stage, spelled, 3) is True and agree(stage, spelled) is True
    assert agree(whole(3, inner), made_of([Patch(0, 2, ((3, 1, -1),), inner)]), 3) is False
    backwards = made_of([patch._replace(at=2 - patch.at) for patch in inner.patches])
    flipped = made_of([Patch(0, 2, ((3, 1, -1),), backwards)])
    assert agree(stage, flipped, 3) is True and agree(stage, flipped, 2) is None
    with limits(budget=1):  # one pair of patches is compared whatever the budget
        assert agree(whole(6, "A"), made_of([Patch(0, 1, ((6, 1, 1),), "A")])) is False
        assert agree(halves(6, "A"), whole(6, "A")) is None


def test_listing_is_given_up_where_it_is_long() -> None:
    one, two = whole(6, "A"), halves(6, "A")
    assert read_the_same(one, two, 6) is True and read_the_same(one, two, 7) is True
    assert read_the_same(one, two, 5) is None
    few = made_of([Patch(0, 0, ((3, 1, 1),), one)])
    assert read_the_same(few, whole(3, "A"), 6) is True and read_the_same(few, whole(3, "A"), 5) is None


@pytest.mark.parametrize("cell", [2**63, 2**63 - 4, 2**64, 2**64 + 1])
def test_cells_that_exceed_64_bits_are_not_listed(cell: int) -> None:
    """As floating point, or modulo 2^64, neighbors could pass for the same."""
    far, last = made_of([Patch(0, cell, ((6, 1, 1),), "A")]), made_of([Patch(0, 2**63 - 6, ((6, 1, 1),), "A")])
    near = made_of([Patch(0, cell + 1, ((6, 1, 1),), "A")])
    assert read_the_same(far, near) is None and read_the_same(whole(6, "A"), far) is None
    assert read_the_same(whole(6, "A"), made_of([Patch(0, 0, ((6, 1, 2**62),), "A")])) is None
    assert agree(far, near) is False
    assert read_the_same(last, last) is True and read_the_same(last, whole(6, "A")) is False


def test_views_of_cells_past_64_bits_are_not_taken_for_the_same() -> None:
    """Two neighbors swapped: patches tell, and where they may not be compared, no answer is made up."""
    A, far = allocate((2**66,), name="A"), 2**63 + 2**20
    cells = A[far : far + 100]
    swapped = concatenate([cells[:20], cells[21:22], cells[20:21], cells[22:]])
    with limits(budget=1), pytest.raises(TooHard, match="has too many patches and pieces to say whether"):
        cells.same_view(swapped)
    assert not cells.same_view(swapped) and cells != swapped


def test_more_patches_than_small_integers() -> None:
    """Pairs of 300 patches and singles of 600 read the same, unless one of the last does not."""
    pairs = [Patch(2 * k, (7 * k) % 599, ((2, 1, 1),), "A") for k in range(300)]
    singles = [Patch(p.at + j, p.cell + j, (), "A") for p in pairs for j in range(2)]
    assert agree(made_of(singles), made_of(pairs)) is True and agree(made_of(pairs), made_of(singles)) is True
    wrong = [*singles[:-1], singles[-1]._replace(cell=0)]
    assert agree(made_of(wrong), made_of(pairs)) is False


# ----------------------------------------------------------------------------------------------- how far spelled out


def test_what_folds_into_a_whole_is_spelled_out_again() -> None:
    """Every 40th cell of 20 matrices' columns shatters; all 40 dealt together are the columns, no stage left."""
    bases = [allocate((50, 150), name=f"A{k}") for k in range(20)]
    columns = concatenate([base[:, :101] for base in bases]).ravel()
    hands = [columns[s::40] for s in range(40)]
    assert hands[0]._normal_form().stages == 1
    dealt = interleave(hands)
    wanted = tuple(Patch(5050 * k, 0, ((50, 101, 150), (101, 1, 1)), base) for k, base in enumerate(bases))
    assert dealt._normal_form().patches == columns._normal_form().patches == wanted
    assert dealt._normal_form().stages == 0 and dealt == columns and hash(dealt) == hash(columns)


def test_each_piece_has_two_tries_whatever_those_before_took() -> None:
    """Over three patches a piece takes three tries: once they are used up, two still do for a piece of two."""
    flat = made_of([Patch(k, 0, (), home) for k, home in enumerate("ABC")])
    full = tuning.TRIES + 2 * 3  # one fewer after each piece of three
    starts = [3 * k for k in range(full + 2)]
    n = starts[-1] + 2
    bounds = [*((a, a + 3, -a) for a in starts[:-1]), (starts[-1], n, 1 - starts[-1])]
    pieces = [
        Piece(0, (Guard(0, Region.from_bounds((n,), (a,), (b,))),), IndexMap((AffineMap(((1,),), (offset,)),)))
        for a, b, offset in bounds
    ]
    found = flat_of(pieces, (n,), [((3,), flat)])
    assert found is not OPEN
    assert reads(found) == [*[("A", 0), ("B", 0), ("C", 0)] * (full + 1), ("B", 0), ("C", 0)]
    assert [patch for patch in found.patches if patch.home == flat] == [Patch(starts[full], 0, ((3, 1, 1),), flat)]
    assert found.stages == 1


def test_views_of_too_many_patches_are_left_open() -> None:
    pieces = [
        Piece(-1, (Guard(0, Region.from_bounds((5,), (k,), (k + 1,))),), IndexMap((AffineMap((), (), 1),)), float(k))
        for k in range(5)
    ]
    found = flat_of(pieces, (5,), [], 5)
    assert found is not OPEN and found.patches == tuple(Patch(k, 0, (), Constant(float(k))) for k in range(5))
    assert flat_of(pieces, (5,), [], 4) is OPEN


# ---------------------------------------------------------------------------------------------------- the mirror


def indices_of(shape: tuple[int, ...], found: DisjointRegions) -> set[int]:
    points = listed_points(found)
    assert found.shape == shape and len(points) == found.size
    return {int(np.ravel_multi_index(point, shape)) for point in points}


def test_preimages_of_normal_forms_are_those_of_their_lists() -> None:
    r = np.random.default_rng(2)
    for one, _ in random_pairs(2, 150):
        side = int(r.choice([k for k in range(1, one.size + 1) if one.size % k == 0]))
        cells, wanted = [], set()
        for home in ("A", "B"):
            nests = [Sett(Stripe(int(r.integers(1, 3)), int(r.integers(0, 3)))) for _ in range(2)]
            region = Region((3, 5), nests)
            cells.append((home, (3, 5), DisjointRegions((3, 5), (region,))))
            wanted |= {(home, 5 * i + j) for i, j in listed_points(region)}
        shape = (side, one.size // side)
        found = preimage(one, shape, cells)
        assert found is not OPEN
        assert indices_of(shape, found) == {at for at, read in enumerate(reads(one)) if read in wanted}


@pytest.mark.parametrize(
    ("n", "m", "has_answer"), [(8, 3, True), (50, 20, True), (50, 21, False), (64, 2, True), (65, 2, False)]
)
def test_diagonals_are_listed_while_they_are_few(n: int, m: int, has_answer: bool) -> None:
    """Two diagonals at once, of n and of m points: none moves along one axis alone."""
    assert tuning.MAX_PATCHES == 1000 and tuning.MAX_DIGIT == 64
    diagonals = Region((n * n, m * m), [Sett(Stripe(1, n)), Sett(Stripe(1, m))])
    cells = [("A", diagonals.shape, DisjointRegions(diagonals.shape, (diagonals,)))]
    found = preimage(whole(n * n * m * m, "A"), (n, n, m, m), cells)
    assert (found is not OPEN) == has_answer
    if found is not OPEN:
        assert found.size == n * m
        assert listed_points(found) == {(i, i, j, j) for i in range(n) for j in range(m)}


def test_preimages_of_what_is_not_spelled_out_are_left_open() -> None:
    cells = [("A", (6,), DisjointRegions((6,), (Region.full((6,)),)))]
    assert preimage(whole(6, Opaque("v")), (6,), cells) is OPEN
    assert preimage(whole(6, whole(6, Opaque("v"))), (6,), cells) is OPEN
    found = preimage(made_of([Patch(0, 0, ((4, 1, 0),), Constant(0.0)), Patch(4, 5, (), "A")]), (5,), cells)
    assert found is not OPEN and listed_points(found) == {(4,)}
