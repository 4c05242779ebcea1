"""Groups of arrays that share memory, against sets of addresses and cells."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets import allocate, concatenate, interleave, overlap, shared_memory
from tapestry_sets.alias import tuning
from tapestry_sets.alias.memory import sieve as sieve_module
from tapestry_sets.alias.memory.groups import SharedGroup, SharedMemory
from tapestry_sets.alias.memory.parts import Cover, Forest, Part, Space
from tapestry_sets.alias.memory.sieve import Sieve
from tapestry_sets.integers.nest import Nest, canonical, clip, elements
from tapestry_sets.limits.budget import TooHard, TooManyPieces, limits
from tapestry_sets.limits.tallies import tally
from tapestry_sets.views import Allocation
from tests.array_exports import BASES, Exported, OnlyCuda, Strided, addresses, pointer, views
from tests.machine_pace import slower

# ---------------------------------------------------------------------------------------------- the truth, by listing


def connected(sets: Sequence[set[Any]]) -> list[list[int]]:
    """The groups of two or more sets that are connected by common elements, in the order of their first."""
    label = list(range(len(sets)))
    for i, j in combinations(range(len(sets)), 2):
        if sets[i] & sets[j]:
            a, b = label[i], label[j]
            label = [min(a, b) if x in (a, b) else x for x in label]
    groups = [[i for i, x in enumerate(label) if x == k] for k in dict.fromkeys(label)]
    return [group for group in groups if len(group) > 1]


def check(found: SharedMemory, sets: Sequence[set[Any]]) -> None:
    """Compare all answers about arrays whose keys are their numbers with what they read, listed."""
    groups = connected(sets)
    assert [list(group.keys) for group in found] == groups
    assert set(found.alone) == set(range(len(sets))) - {i for group in groups for i in group}
    assert found.nbytes_shared == sum(len(shared(sets, members)) for members in groups)
    for group, members in zip(found, groups, strict=True):
        check_group(group, {i: sets[i] for i in members})
        assert str(group) in str(found)


def shared(sets: Sequence[set[Any]], members: Sequence[int]) -> set[Any]:
    return {z for i, j in combinations(members, 2) for z in sets[i] & sets[j]}


def check_group(group: SharedGroup, sets: dict[int, set[Any]]) -> None:
    several = {z for i, j in combinations(sets, 2) for z in sets[i] & sets[j]}
    assert group.pairs == tuple((i, j) for i, j in combinations(sets, 2) if sets[i] & sets[j])
    assert group.nbytes == len(set().union(*sets.values()))
    assert group.nbytes_shared == len(several)
    kin = {i: [j for j in sets if sets[i] == sets[j]] for i in sets}
    assert set(group.identical) == {tuple(some) for some in kin.values() if len(some) > 1}
    assert group.keep == tuple(i for i in sets if kin[i][0] == i and not any(sets[i] < sets[j] for j in sets))
    assert set(group.inside) == set(sets) - set(group.keep)
    assert all(sets[i] <= sets[j] and j in group.keep for i, j in group.inside.items())


def check_places(group: SharedGroup, sets: Sequence[set[int]]) -> None:
    """Compare where a group of arrays lies with the addresses, listed."""
    every, several = set().union(*(sets[i] for i in group)), shared(sets, group.keys)
    assert (group.start, group.stop) == (min(every), max(every) + 1)
    offsets = group.offsets.elements(0, group.stop - group.start)
    assert {group.start + z for z in offsets.tolist()} == several
    (regions,) = group.regions.values()
    assert {z for (z,) in regions.points().tolist()} == several


some_views = st.lists(st.one_of(views(BASES[0]), views(BASES[0]), views(BASES[1])), min_size=1, max_size=8)


@given(some_views)
def test_arrays_are_grouped_by_the_bytes_that_they_share(arrays: list[np.ndarray]) -> None:
    sets = [addresses(x) for x in arrays]
    found = shared_memory(arrays)
    check(found, sets)
    for group in found:
        check_places(group, sets)


@given(some_views)
def test_what_sorting_tells_apart_is_apart(arrays: list[np.ndarray]) -> None:
    """As above, but even two arrays are sorted and asked in columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "FEW_PARTS", 1)
        patch.setattr(tuning, "FIRST_PAIRS", 2)
        check(shared_memory(arrays), [addresses(x) for x in arrays])


@st.composite
def some_parts(draw: st.DrawFn) -> list[Part]:
    """Nests of any phases in one allocation, of one and of several levels, cut where a block may be cut."""
    found: list[Part] = []
    for member in range(draw(st.integers(2, 9))):
        levels = []
        for period in draw(st.sampled_from([(6,), (8,), (24, 8), (12, 4), (10, 3), (24, 8, 3)])):
            on = draw(st.integers(1, period - 1))
            levels.append((on, period, draw(st.integers(0, period - 1))))
        low, high = sorted((draw(st.integers(0, EXTENT)), draw(st.integers(0, EXTENT))))
        item = clip(canonical(levels), low, high)
        if item is not None:
            found.append(Part(member, *item, None))
    return found


EXTENT = 72


@given(some_parts(), st.sampled_from([1, 6]))
@example([Part(0, 0, 9, ((1, 4, 0),), None), Part(1, 0, 9, ((1, 2, 0),), None), Part(2, 2, 1, (), None)], 1)
@example([Part(0, 0, 10, (), None), Part(1, 10, 9, ((1, 8, 0),), None), Part(2, 5, 21, ((1, 20, 0),), None)], 1)
def test_nests_of_any_phase(found: list[Part], few: int) -> None:
    sets = {part.member: set(elements(part.nest(EXTENT), 0, EXTENT).tolist()) for part in found}
    listed = [sets.get(member, set()) for member in range(10)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "FEW_PARTS", few)
        forest = Forest(10)
        if found:
            space = Space(allocate((EXTENT,)), found, range(10))
            space.join(forest)
            pairs = {(i, j) for i, j in combinations(range(10), 2) if listed[i] & listed[j]}
            assert list(map(tuple, space.sharing().tolist())) == sorted(pairs)
            cover = Cover(space.home, found)
            times = Counter(z for s in listed for z in s)
            several = {z for z, n in times.items() if n > 1}
            assert (cover.size(1), cover.size(2)) == (len(times), len(several))
            if len(found) < 5 or cover.boxes is not None:  # to join many sets takes long
                assert set(cover.setts(2, 0, EXTENT).elements(0, EXTENT).tolist()) == several
        assert forest.trees() == connected(listed)


@st.composite
def some_tensors(draw: st.DrawFn) -> tuple[list[Any], list[np.ndarray]]:
    """Views of three allocations, some of several of them, and what each index reads of which, as numbers."""
    homes = [allocate(shape, name) for shape, name in [((4, 6), "A"), ((30,), "B"), ((2, 3, 5), "C")]]
    pool: list[tuple[Any, np.ndarray]] = []
    for k, home in enumerate(homes):
        pool.append((home, np.arange(home.size).reshape(home.shape) + 100 * k))
    for _ in range(draw(st.integers(1, 8))):
        (x, a), (y, b) = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
        x, a, y, b = x.reshape(x.size), a.reshape(-1), y.reshape(y.size), b.reshape(-1)
        choice = draw(st.sampled_from(["slice", "slice", "concatenate", "interleave", "table"]))
        if choice == "slice":
            key = slice(draw(st.integers(0, x.size)), draw(st.integers(0, x.size)), draw(st.sampled_from([1, 2, 3, 7])))
            pool.append((x[key], a[key]))
        elif choice == "concatenate":
            pool.append((concatenate([x, y]), np.concatenate([a, b])))
        elif choice == "interleave":
            n = min(x.size, y.size)
            pool.append((interleave([x[:n], y[:n]]), np.stack([a[:n], b[:n]], 1).reshape(-1)))
        elif x.size % 6 == 0:
            pool.append((x.reshape(-1, 6)[:, 1:4], a.reshape(-1, 6)[:, 1:4]))
    return [view for view, _ in pool], [values for _, values in pool]


@given(some_tensors())
def test_views_of_several_allocations_are_grouped(drawn: tuple[list[Any], list[np.ndarray]]) -> None:
    tensors, values = drawn
    sets = [set(x.ravel().tolist()) for x in values]
    found = shared_memory(tensors)
    check(found, sets)
    for group in found:
        regions = group.regions
        numbers = {
            int(100 * "ABC".index(home.name) + np.ravel_multi_index(point, home.shape))
            for home, cells in regions.items()
            for point in cells.points().tolist()
        }
        assert numbers == shared(sets, group.keys)


# ------------------------------------------------------------------------------------------- models, as they come


def test_tied_weights_fused_weights_and_flat_buffers() -> None:
    embed = np.zeros((50, 8), np.float32)
    fused = np.zeros((24, 8), np.float32)
    flat = np.zeros(300, np.float32)
    model = {
        "embed": embed,
        "head": embed.T,
        "qkv": fused,
        "q": fused[:8],
        "k": fused[8:16],
        "v": fused[16:],
        **{f"layer{i}": flat[100 * i : 100 * i + 100] for i in range(3)},
        "bias": np.zeros(8, np.float32),
    }
    found = shared_memory(model)
    assert [group.keys for group in found] == [("embed", "head"), ("qkv", "q", "k", "v")]
    tied, split = found
    assert tied.identical == (("embed", "head"),) and tied.keep == ("embed",) and tied.inside == {"head": "embed"}
    assert split.keep == ("qkv",) and split.inside == dict.fromkeys("qkv", "qkv")
    assert split.pairs == (("qkv", "q"), ("qkv", "k"), ("qkv", "v"))
    assert (split.nbytes, split.nbytes_shared, found.nbytes_shared) == (fused.nbytes, fused.nbytes, 768 + 1600)
    assert found.alone == ("layer0", "layer1", "layer2", "bias")
    assert split.overlap("qkv", "k") and split.overlap("qkv", "k").nbytes == 256 and not split.overlap("q", "k")
    assert "k" in split and len(split) == 4 and split["k"].shape == (8, 8, 4)


def test_members_that_meet_through_others_only() -> None:
    x = np.zeros(100, np.uint8)
    (group,) = shared_memory({"left": x[:40], "middle": x[30:70], "right": x[60:], "far": np.zeros(9)})
    assert group.keys == ("left", "middle", "right")
    assert group.pairs == (("left", "middle"), ("middle", "right"))
    assert group.keep == group.keys and group.inside == {} and group.identical == ()
    assert (group.start, group.stop) == (pointer(x), pointer(x) + 100)
    assert group.offsets.elements(0, 100).tolist() == [*range(30, 40), *range(60, 70)]


def test_bounds_that_meet_are_not_enough() -> None:
    x = np.zeros((10, 12), np.float32)
    assert not shared_memory([x[:, j] for j in range(12)])
    assert not shared_memory([x[:, :6], x[:, 6:9], x[:4, 9:], x[4:, 9:]])
    assert not shared_memory([x[::2], x[1::2, ::3], x[1::2, 1::3]])
    (group,) = shared_memory([x[:, :6], x[:, 6:9], x[:4, 8:], x[4:, 9:]])
    assert group.keys == (1, 2) and group.nbytes_shared == 4 * 4
    fields = np.zeros(7, [("a", "i2"), ("b", "f8")])
    assert not shared_memory({"a": fields["a"], "b": fields["b"]})


def test_each_device_is_asked_alone() -> None:
    x = np.zeros(16, np.uint8)
    at = pointer(x)
    found = shared_memory(
        {
            "host": x,
            "gpu": OnlyCuda(at, (4,)),
            "same gpu": Exported(at + 12, (8,), device=(2, 0)),
            "other gpu": Exported(at, (16,), device=(2, 1)),
            "pinned": Exported(at + 8, (8,), device=(3, 0)),
        }
    )
    assert [group.keys for group in found] == [("host", "pinned"), ("gpu", "same gpu")]
    assert "of memory from" in str(found[0]) and "of cuda:0 from" in str(found[1])


def test_addresses_across_all_of_the_address_space() -> None:
    """Differences beyond int64."""
    found = shared_memory(
        [
            Strided(0, (5,), (2,)),
            Strided(2**64 - 20, (5,), (2,)),
            Strided(2**64 - 20, (3, 2), (6, 4)),
            Strided(8, (3, 3), (2**61, 2**62)),
            Strided(2**63, (7,), (3,)),
            Strided(2**63 + 9, (1,), (1,)),
        ]
    )
    assert [group.keys for group in found] == [(0, 3), (1, 2), (4, 5)]
    assert [group.nbytes_shared for group in found] == [1, 3, 1]
    assert found[0].inside == {} and found[2].inside == {5: 4}


def test_arrays_that_overlap_themselves() -> None:
    x = np.zeros(60, np.uint8)
    windows = np.lib.stride_tricks.sliding_window_view(x[:20], 5)
    repeated = np.broadcast_to(x[3:6], (1000, 3))
    comb = np.lib.stride_tricks.as_strided(x[10:], (4, 5), (5, 7))
    (group,) = shared_memory({"windows": windows, "repeated": repeated, "comb": comb, "x": x})
    sets = [addresses(y) for y in (windows, repeated, comb, x)]
    assert group.nbytes == 60 and group.nbytes_shared == len(shared(sets, range(4)))
    assert group.keep == ("x",)


def test_arrays_without_elements_are_alone() -> None:
    x = np.zeros(10)
    found = shared_memory({"x": x, "none": x[5:5], "more": x[7:]})
    assert found.alone == ("none",) and len(found) == 1
    assert not shared_memory([np.zeros(0), np.zeros((0, 3))])
    assert shared_memory([np.zeros(3)]).groups == ()


def test_one_array_twice() -> None:
    x = np.zeros((3, 4))
    (group,) = shared_memory([x, x, x[1:]])
    assert group.identical == ((0, 1),) and group.keep == (0,) and group.inside == {1: 0, 2: 0}


# --------------------------------------------------------------------------------------- closed forms and hard cases


def big_cases() -> list[tuple[str, Callable[[int], list[Any]], int, int]]:
    """Views of a table of 8n rows of 12 blocks of n: members by n, and what they read and share, in n²."""
    return [
        ("columns and all", lambda n: [t(n), *(t(n)[:, k * n : k * n + n] for k in range(12))], 96, 96),
        ("windows", lambda n: [t(n)[:, k * n : k * n + 2 * n] for k in range(11)], 96, 80),
        ("crosses", lambda n: [*rows(n), *columns(n)], 96 - 6 * 9, 2 * 3),
        (
            "tiles",
            lambda n: [t(n)[r * n : r * n + 3 * n, c * n : c * n + 4 * n] for r in (0, 2) for c in (0, 3)],
            35,
            12,
        ),
    ]


HOMES: dict[int, Any] = {}


def t(n: int) -> Any:
    return HOMES.setdefault(n, allocate((8 * n, 12 * n)))


def rows(n: int) -> list[Any]:
    return [t(n)[2 * n : 3 * n], t(n)[5 * n : 6 * n]]


def columns(n: int) -> list[Any]:
    return [t(n)[:, 3 * n : 4 * n], t(n)[:, 7 * n : 8 * n], t(n)[:, 9 * n : 10 * n]]


@pytest.mark.parametrize("n", [1, 3, 10**9])
@pytest.mark.parametrize("case", big_cases(), ids=lambda case: case[0])
def test_sizes_do_not_matter(case: tuple[str, Callable[[int], list[Any]], int, int], n: int) -> None:
    _, members, _, _ = case
    small = [np.arange(96).reshape(8, 12)[tuple(slices(view))] for view in members(1)]
    sets = [set(x.ravel().tolist()) for x in small]
    with tally() as decided:
        found = shared_memory(members(n))
        (group,) = found
        assert group.nbytes == len(set().union(*sets)) * n * n
        assert group.nbytes_shared == len(shared(sets, range(len(sets)))) * n * n
        assert group.pairs == tuple((i, j) for i, j in combinations(range(len(sets)), 2) if sets[i] & sets[j])
        assert set(group.inside) == {j for j in range(len(sets)) if any(sets[j] < s for s in sets)}
        count = group.offsets.count(0, group.stop - group.start)
        assert count == group.nbytes_shared and sum(r.size for r in group.regions.values()) == count
    assert decided.isl == decided.listed == 0


def slices(view: Any) -> list[slice]:
    """The slices of a table of which a view is made."""
    if isinstance(view, Allocation):
        return [slice(None)]
    return [slice(*s) for s in view.kind.slices]


def test_the_two_hard_cases() -> None:
    pytest.importorskip("islpy")
    first = [Strided(0, (1049,) * 3, (36674, 61119, 85569)), Strided(64023025, (1049,) * 2, (12223, 12224))]
    reach = (12223, 12224, 36674, 61119, 85569)
    second = [Strided(2**40, (10_000,) * 5, reach), Strided(2**40 + 89643481, (1,), (1,))]
    third = Strided(2**40 + 12223 * 7 + 85569 * 3, (1,), (1,))
    assert not shared_memory([*first, *second])
    found = shared_memory([*first, *second, third])
    assert [group.keys for group in found] == [(2, 4)] and found.nbytes_shared == 1


def test_strides_that_have_no_common_multiple_below_the_buffers_size() -> None:
    x = np.zeros(3000, np.uint8)
    arrays = [x[k :: 7 + 4 * k] for k in range(9)]
    check(shared_memory(arrays), [addresses(y) for y in arrays])


def test_too_many_setts_to_join_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "FEW_BYTES", 0)
    monkeypatch.setattr(tuning, "MAX_JOINED", 3)
    x = np.zeros(3000, np.uint8)
    arrays = [x[k :: 7 + 4 * k] for k in range(9)]
    sets = [addresses(y) for y in arrays]
    for group in shared_memory(arrays):
        assert group.nbytes == len(set().union(*(sets[i] for i in group)))
        assert group.nbytes_shared == len(shared(sets, group.keys))


def test_thousands_of_strides_are_counted_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "SIEVE_BLOCK", 777)  # several blocks
    monkeypatch.setattr(tuning, "FEW_BYTES", 0)
    rng = np.random.default_rng(5)
    x = np.zeros(5000, np.uint8)
    periods = rng.integers(2, 4000, 2000).tolist()
    arrays = [x[rng.integers(p) :: p] for p in periods]
    (group,) = shared_memory([*arrays, np.zeros(3)])
    often = np.zeros(5000, np.int64)
    for y in (arrays[k] for k in group):
        often[np.array(sorted(addresses(y))) - x.__array_interface__["data"][0]] += 1
    read, twice = np.flatnonzero(often), np.flatnonzero(often > 1)
    assert (group.nbytes, group.nbytes_shared) == (len(read), len(twice))
    assert group.offsets.elements(0, group.stop - group.start).tolist() == (twice - read[0]).tolist()
    assert str(group).startswith(f"{len(group):,} arrays read {len(read):,} bytes")


def test_bytes_that_are_too_many_to_write_out_are_refused_before_they_are_looked_at() -> None:
    A = allocate((10**14,))
    found = shared_memory([A[k :: 10007 + 2 * k] for k in range(3000)])
    (group,) = found
    with patch.object(sieve_module, "_raise", side_effect=AssertionError("none is looked at")):
        with pytest.raises(TooManyPieces, match="steps, more than"):
            _ = group.offsets
        with pytest.raises(TooHard, match="ask for the overlap of two of them"):
            _ = group.nbytes
        assert "an unknown number of bytes" in str(found)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 60), st.integers(1, 30), st.integers(1, 30)), min_size=1))
def test_the_sieve_counts_as_lists_do(parts: list[tuple[int, int, int, int]]) -> None:
    often: Counter[int] = Counter()
    bounded: list[tuple[int, int, Nest]] = []
    for start, length, on, gap in parts:
        tail = ((on, on + gap, start % (on + gap)),)
        bounded.append((start, length, tail))
        often.update(start + t for t in range(length) if (t - tail[0][2]) % (on + gap) < on)
    sieve = Sieve(bounded, [np.array([1, 7, 61])])
    often.update([1, 7, 61])
    assert sieve.sizes() == (len(often), sum(n > 1 for n in often.values()))
    for least in (1, 2):
        items = sieve.items(least)
        read = [item.start + t for item in items for t in elements(item.tail, 0, item.length).tolist()]
        assert sorted(read) == sorted(z for z, n in often.items() if n >= least)


def test_bytes_that_are_too_many_to_list() -> None:
    A = allocate((10**15,))
    found = shared_memory([A[k :: 10007 + 2 * k] for k in (0, 2, 18)])
    with limits(max_pieces=50):
        assert [group.keys for group in found] == [(0, 1, 2)]
        with pytest.raises(TooHard, match="ask for the overlap of two of them"):
            _ = found[0].nbytes_shared
        assert "an unknown number of bytes" in str(found)
    assert found[0].overlap(0, 1).nbytes == overlap(A[::10007], A[2::10011]).nbytes


# -------------------------------------------------------------------------------------------------------- as a table


def test_the_table() -> None:
    x = np.zeros((4, 6), np.float32)
    found = shared_memory({"w": x, "tied": x.T, "left": x[:, :3], "b": np.zeros(1500), "two": x[1:2, 2:4]})
    at = hex(pointer(x))
    assert str(found).splitlines() == [
        "1 group of 4 arrays among 5; at least two of them read 96 bytes",
        "",
        f"group 0: 4 arrays read 96 bytes of memory from {at} on; at least two of them read 96 bytes",
        "  'w'     96 bytes  from +0   the same bytes as 'tied'",
        "  'tied'  96 bytes  from +0   the same bytes as 'w'",
        "  'left'  48 bytes  from +0   inside 'w'",
        "  'two'   8 bytes   from +32  inside 'w'",
    ]
    assert repr(found) == "<SharedMemory: 1 group of 4 arrays among 5; at least two of them read 96 bytes>"
    assert found._repr_mimebundle_() == {"text/plain": str(found)}
    assert repr(found[0]) == "SharedGroup(keys=('w', 'tied', 'left', 'two'))"


def test_a_long_table_is_cut() -> None:
    x = np.zeros(1000, np.uint8)
    (group,) = found = shared_memory([x, *(x[10 * k : 10 * k + 15] for k in range(60))])
    lines = str(group).splitlines()
    assert lines[1] == "  0   1,000 bytes  from +0    holds all others"
    assert lines[-1] == "  and 41 more" and len(lines) == 22
    pairs_of = [np.zeros(8) for _ in range(30)]
    found = shared_memory(pairs_of + pairs_of)
    assert str(found).endswith("and 10 more groups") and len(found) == 30


def test_the_table_of_arrays_that_overlap_in_part() -> None:
    x = np.zeros(100, np.uint8)
    (group,) = shared_memory([x[:60], x[50:], x[10:20], x[55:58]])
    words = [line.partition("from +")[2].split("  ", 1)[1].strip() for line in str(group).splitlines()[1:]]
    assert words == ["holds 2 others", "overlaps others in part", "inside 0", "inside 0"]


def test_no_group() -> None:
    found = shared_memory({"a": np.zeros(3), "b": np.zeros(3)})
    assert not found and str(found) == "no two of 2 arrays share a byte" and found.nbytes_shared == 0


def test_members_over_several_allocations() -> None:
    A, B = allocate((6,), "A", itemsize=4), allocate((5,), "B", itemsize=2)
    (group,) = shared_memory({"both": concatenate([A, B]), "a": A[2:], "b": B[:3]})
    assert (group.nbytes, group.nbytes_shared) == (24 + 10, 16 + 6)
    assert group.allocations == (A, B) and {h.name: r.size for h, r in group.regions.items()} == {"A": 4, "B": 3}
    assert group.keep == ("both",) and "of A and B; at least" in str(group)
    for ask in (lambda: group.start, lambda: group.offsets):
        with pytest.raises(ValueError, match=r"members read several allocations \(A, B\); ask for regions"):
            ask()


# ------------------------------------------------------------------------------------------------------ wrong input


@pytest.mark.parametrize("nothing", [[], {}, (), iter([])], ids=lambda x: type(x).__name__)
def test_no_arrays(nothing: Any) -> None:
    with pytest.raises(ValueError, match="shared_memory: no arrays; give a mapping of names to arrays or a sequence"):
        shared_memory(nothing)


@pytest.mark.parametrize("x", [np.zeros((3, 4)), "text", b"bytes", 3, allocate((3,)), None])
def test_one_array_is_not_a_sequence_of_arrays(x: Any) -> None:
    with pytest.raises(TypeError, match=rf"shared_memory: takes a mapping .* not a {type(x).__name__}; write \[x, y\]"):
        shared_memory(x)


def test_a_wrong_member_is_named() -> None:
    with pytest.raises(TypeError, match=r"shared_memory: member 'lr':.* float is neither a View nor an array"):
        shared_memory({"w": np.zeros(3), "lr": 0.1})
    with pytest.raises(TypeError, match=r"shared_memory: member 1:.* list is neither"):
        shared_memory([np.zeros(3), [1, 2]])
    with pytest.raises(ValueError, match=r"shared_memory: member 'names':.* ndarray holds Python objects"):
        shared_memory({"names": np.zeros(3, object)})

    class Deleted:
        def __dlpack__(self, **more: Any) -> object:
            raise RuntimeError("deleted")

    with pytest.raises(RuntimeError, match=r"shared_memory: member 'gone':.* Deleted.__dlpack__ .*: deleted"):
        shared_memory({"gone": Deleted()})


def test_a_wrong_key_is_named() -> None:
    x = np.zeros(3)
    found = shared_memory({"a": x, "b": x, "c": np.zeros(2)})
    with pytest.raises(KeyError, match="'c' is not a member of this group; known members: 'a', 'b'"):
        found[0].overlap("a", "c")
    with pytest.raises(IndexError):
        found[1]


# ------------------------------------------------------------------------------------------------------------ speed

MANY = 10_000
SECONDS = 5.0
"""Ten times what it may take, for slow machines with other work."""


def parameters() -> list[np.ndarray]:
    return [np.zeros(50 + k % 100, np.float32) for k in range(MANY)]


def columns_in_one_buffer() -> list[np.ndarray]:
    x = np.zeros((100, MANY // 2), np.float32)
    return [*(x[:, j] for j in range(MANY // 2)), *parameters()[MANY // 2 :]]


def windows_in_one_buffer() -> list[np.ndarray]:
    x = np.zeros((100, MANY + 1), np.float32)
    return [x[:, j : j + 2] for j in range(MANY)]


def halves_of_columns() -> list[np.ndarray]:
    x = np.zeros((100, MANY // 2), np.float32)
    return [half for j in range(MANY // 2) for half in (x[:50, j], x[50:, j])]


def inner_slices() -> list[np.ndarray]:
    x = np.zeros((10, 100, 100, 4), np.float32)
    return [x[:, i, j, ::2] for i in range(100) for j in range(100)]


def tied_pairs() -> list[np.ndarray]:
    return [y for x in parameters()[: MANY // 2] for y in (x, x.reshape(1, -1))]


def rows_and_columns() -> list[np.ndarray]:
    x = np.zeros((MANY // 2, MANY // 2), np.uint8)
    return [y for j in range(MANY // 2) for y in (x[j], x[:, j])]


@pytest.mark.parametrize(
    ("arrays", "groups", "members"),
    [
        (parameters, 0, 0),
        (columns_in_one_buffer, 0, 0),
        (halves_of_columns, 0, 0),
        (inner_slices, 0, 0),
        (windows_in_one_buffer, 1, MANY),
        (tied_pairs, MANY // 2, MANY),
        (rows_and_columns, 1, MANY),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_ten_thousand_arrays_are_grouped_soon(
    arrays: Callable[[], list[np.ndarray]], groups: int, members: int
) -> None:
    given_ = arrays()
    began = time.process_time()
    found = shared_memory(given_)
    took = time.process_time() - began
    assert len(found) == groups and sum(map(len, found)) == members
    assert took < SECONDS * slower()
