"""What selections read and what has to travel, against NumPy and the listing of cells."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_exec import evaluate
from tapestry_plan import Graph, Tensor, concat
from tapestry_plan.ops import add, conv, matmul, relu
from tapestry_plan.rewrite import Motion, motion, replay, selected_view
from tapestry_sets import (
    AffineMap,
    Allocation,
    Box,
    DisjointRegions,
    Region,
    Stripe,
    TooHard,
    TooManyPieces,
    View,
    allocate,
    concatenate,
    interleave,
    pad,
    repeat,
    stack,
)
from tapestry_sets.alias import Cells
from tapestry_sets.limits import put_fields
from tapestry_sets.views import Guard, IndexMap, Piece, Slice
from tests.cascades import Case, cascades
from tests.oracles import read_view

N = 10**9
Cell = tuple[str, tuple[int, ...]]

# ------------------------------------------------------------------------------------ random cascades, and oracles


@st.composite
def placements(draw: st.DrawFn, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Each tensor on one of three devices, or cut in two along an axis, perhaps with copies."""
    found: dict[str, Any] = {}
    for name, array in arrays.items():
        device = draw(st.integers(0, 2))
        found[name] = device
        if array.ndim and draw(st.booleans()):
            axis = draw(st.integers(0, array.ndim - 1))
            cuts = sorted(draw(st.lists(st.integers(0, array.shape[axis]), min_size=2, max_size=2)))
            low = [slice(cuts[1]) if a == axis else slice(None) for a in range(array.ndim)]
            high = [slice(cuts[0], None) if a == axis else slice(None) for a in range(array.ndim)]
            shares = [Region.from_slices(array.shape, tuple(s)) for s in (low, high)]
            found[name] = {device: shares[0], (device + draw(st.integers(1, 2))) % 3: shares[1]}
    return found


def owners(arrays: Mapping[str, np.ndarray], placement: Mapping[str, Any], consumer: Any) -> dict[Cell, Any]:
    """The device that each cell is read from: the consumer if it holds it, else the first that does."""
    found = {}
    for name, array in arrays.items():
        held = placement[name]
        for cell in np.ndindex(array.shape):
            holders = [d for d, share in held.items() if cell in share] if isinstance(held, dict) else [held]
            found[name, cell] = consumer if consumer in holders else holders[0]
    return found


def cells_seen(arrays: Mapping[str, np.ndarray], values: np.ndarray) -> list[Cell]:
    """The cell that each cell of a view shows, by its value; constants, which are 0, show none."""
    of = {int(array[cell]): (name, cell) for name, array in arrays.items() for cell in np.ndindex(array.shape)}
    return [of[int(value)] for value in values.ravel() if value]


def sent_and_unpacked(found: Motion, arrays: Mapping[str, np.ndarray], owner: Mapping[Cell, Any]) -> np.ndarray:
    """What the consumer sees: of its own tensors only the cells that it holds, else what the messages bring."""
    memory: dict[Allocation, np.ndarray] = {}
    for message in found.messages:
        memory[message.arrived] = read_view(message.pack, {message.home: arrays[message.tensor]})
    for home in found.local:
        own = arrays[home.name].astype(float)
        for cell in np.ndindex(own.shape):
            if owner[home.name, cell] != found.consumer:
                own[cell] = np.nan
        memory[home] = own
    return read_view(found.unpack, memory)


def allocations_below(view: View) -> set[Allocation]:
    if isinstance(view, Allocation):
        return {view}
    return {a for source in view.sources for a in allocations_below(source)}


# ---------------------------------------------------------------------------------------------------- what is read


@given(cascades())
def test_a_selection_reads_the_cells_that_numpy_shows(case: Case) -> None:
    g, tensor, arrays, values = case
    if tensor.name not in g.selections:
        return
    view, seen = selected_view(g, tensor.name), cells_seen(arrays, values)
    read = {a.name: cells for a, cells in view.cells.items()}
    assert view.shape == values.shape
    assert {name: cells.size for name, cells in read.items()} == Counter(name for name, _ in set(seen))
    assert {(name, tuple(p)) for name, c in read.items() for p in c.regions().points().tolist()} == set(seen)


def test_cells_behind_a_partial_last_round_are_counted_once() -> None:
    """Three columns dealt to two sources: the renumbering is of four, the last of which is in no row of the view."""
    g = Graph()
    x, y = g.input("x", (4, 3)), g.input("y", (2,))
    dealt = interleave([x[:, 1:], x[:, :1]], 1)
    view = selected_view(g, concat([dealt.reshape(12), y])[::-1].name)
    assert {a.name: cells.size for a, cells in view.cells.items()} == {"x": 12, "y": 2}


def test_reads_do_not_depend_on_sizes() -> None:
    g = Graph()
    x, y = g.input("x", (4 * N, 6)), g.input("y", (2 * N, 6))
    t = pad(concat([x[::2, 1:4], y[:, ::2]]).broadcast_to((5, 4 * N, 3)), [(0, 0), (1, 1), (0, 0)], "edge")
    read = {a.name: cells for a, cells in selected_view(g, t.name).cells.items()}
    assert {name: cells.size for name, cells in read.items()} == {"x": 6 * N, "y": 6 * N}
    assert read["x"].regions() == DisjointRegions(
        (4 * N, 6), [Region.from_slices((4 * N, 6), (slice(0, None, 2), slice(1, 4)))]
    )


def test_selections_are_views_of_memory() -> None:
    g = Graph()
    x = g.input("x", (8, 6))
    view = selected_view(g, x[::2].T[1:].name)
    assert [a.name for a in view.allocations] == ["x"] and not view.has_internal_overlap()
    assert selected_view(g, "x").shape == (8, 6)


def test_long_cascades_are_resolved() -> None:
    g = Graph()
    t = g.input("x", (3000,))
    for k in range(1500):
        t = t.view(Slice(((1, None, None),)), name=f"slice {k}")
    ((home, cells),) = selected_view(g, t[:1].name).cells.items()
    assert home.name == "x" and cells.regions().points().tolist() == [[1500]]


# -------------------------------------------------------------------------------------------------- what travels


@given(cascades(), st.data())
def test_each_remote_cell_travels_once_and_the_view_is_the_same(case: Case, data: st.DataObject) -> None:
    g, tensor, arrays, values = case
    if tensor.name not in g.selections:
        return
    placement = data.draw(placements(arrays))
    consumer = data.draw(st.integers(0, 2))
    found = motion(g, tensor.name, placement, consumer)
    owner = owners(arrays, placement, consumer)
    remote = Counter((owner[cell], consumer) for cell in set(cells_seen(arrays, values)) if owner[cell] != consumer)
    assert found.nbytes_by_link == {link: 4 * cells for link, cells in remote.items()}
    assert found.nbytes == 4 * remote.total()
    for message in found.messages:
        sent = read_view(message.pack, {message.home: arrays[message.tensor]})
        assert sent.size == message.size == len(np.unique(sent)), "a cell travels once"
        assert message.holder != consumer
        assert allocations_below(message.pack) == {message.home}, "a holder packs its own tensor"
    seen = set(cells_seen(arrays, values))
    held = {name for name, cell in seen if owner[name, cell] == consumer}
    assert {home.name for home in found.local} == held or not seen
    assert allocations_below(found.unpack) == {*found.local, *(m.arrived for m in found.messages)}
    assert len({(m.tensor, m.holder) for m in found.messages}) == len(found.messages)
    np.testing.assert_array_equal(sent_and_unpacked(found, arrays, owner), values)
    whole = found.composed()
    np.testing.assert_array_equal(read_view(whole, {a: arrays[a.name] for a in whole.allocations}), values)


@given(cascades())
@example((lambda g: (g, g.input("a", (4,))[::-1], {"a": np.arange(1, 5)}, np.arange(4, 0, -1)))(Graph()))
def test_renaming_and_permuting_axes_change_no_byte(case: Case) -> None:
    g, tensor, arrays, _ = case
    if tensor.name not in g.selections:
        return
    placement = {name: k + 1 for k, name in enumerate(arrays)}
    expected = motion(g, tensor.name, placement, 0).nbytes_by_link
    other = Graph()
    named = {name: other.input(f"tensor {k}", arrays[name].T.shape).T for k, name in enumerate(arrays)}
    view = selected_view(g, tensor.name)
    again = replay(view, {a: named[a.name] for a in view.allocations}).T
    renamed = {f"tensor {k}": k + 1 for k in range(len(arrays))}
    assert motion(other, again.name, renamed, 0).nbytes_by_link == expected


# ------------------------------------------------------------------------------ which kinds stay, and which travel


def kinds_of(view: View) -> list[str]:
    """The names of a view's kinds, those nearest to memory first; of selections that stay as they are, the labels."""
    below = [name for source in view.sources for name in kinds_of(source)]
    return below if isinstance(view, Allocation) else [*below, getattr(view.kind, "label", type(view.kind).__name__)]


def two_sided(tensor: Tensor, **placement: Any) -> Motion:
    return motion(tensor.graph, tensor.name, placement, consumer="here")


def test_what_narrows_moves_to_the_holder() -> None:
    g = Graph()
    x = g.input("x", (6, 8, 10))
    found = two_sided(x[2, ::2].T[::-1], x="there")
    (message,) = found.messages
    assert message.pack.shape == (10, 4) and found.nbytes == 160
    assert found.unpack is message.arrived, "the consumer takes what arrives"


def test_what_widens_stays_with_the_consumer() -> None:
    g = Graph()
    x = g.input("x", (6, 8))
    wide: list[tuple[Tensor, int, str]] = [
        (x[:2].T.broadcast_to((5, 8, 2)), 16, "Broadcast"),
        (repeat(x[:2].T, 3, 0), 16, "repeat"),
        (pad(x[:2].T, 2), 16, "Pad"),
        (x[:2].sliding_windows(3, axis=1), 16, "SlidingWindow"),
        (pad(x, [(0, 0), (3, 3)], "reflect"), 48, "pad"),
        (x.reshape(48)[::2].broadcast_to((9, 24)), 24, "Broadcast"),
        (concat([x[:, :3], x[:, 1:6]], 1), 36, "Concat"),
    ]
    for tensor, cells, widening in wide:
        found = two_sided(tensor, x="there")
        (message,) = found.messages
        assert message.pack.size == cells, tensor.name
        assert set(kinds_of(message.pack)) <= {"Slice", "PermuteDims", "Reshape"}, tensor.name
        assert widening in kinds_of(found.unpack), tensor.name


def test_joined_tensors_are_packed_apart() -> None:
    g = Graph()
    a, b, c = (g.input(name, (4, 6)) for name in "abc")
    found = two_sided(concat([a.T, b.T, c.T[:2]], 0), a="one", b="here", c="two")
    assert [(m.tensor, m.holder, m.pack.shape) for m in found.messages] == [
        ("a", "one", (6, 4)),
        ("c", "two", (2, 4)),
    ]
    assert [home.name for home in found.local] == ["b"]
    assert found.nbytes_by_link == {("one", "here"): 96, ("two", "here"): 32}


def test_all_at_home_moves_nothing() -> None:
    g = Graph()
    found = two_sided(g.input("x", (6, 8))[::2], x="here")
    assert not found.messages and found.nbytes == 0 and found.nbytes_by_link == {}


def test_constants_alone_need_no_message() -> None:
    g = Graph()
    x = g.input("x", (6, 8))
    found = two_sided(pad(x, 2)[:2], x="there")
    assert not found.messages and found.unpack.shape == (2, 12)
    np.testing.assert_array_equal(read_view(found.unpack, {found.local[0]: np.full((6, 8), np.nan)}), np.zeros((2, 12)))


def test_tensors_that_are_not_read_need_no_place() -> None:
    g = Graph()
    a, b = g.input("a", (4, 6)), g.input("b", (4, 6))
    assert two_sided(concat([a, b])[:4], a="there").nbytes == 96


class Butterfly:
    """The two halves of the last axis swapped, the second one backwards: a kind from outside."""

    def out_shape(self, shapes: Any) -> tuple[int, ...]:
        return tuple(shapes[0])

    def pieces(self, shapes: Any) -> tuple[Piece, ...]:
        (rows, n), half = shapes[0], shapes[0][1] // 2
        low, high = (
            Region.from_bounds((rows, n), (0, 0), (rows, half)),
            Region.from_bounds((rows, n), (0, half), (rows, n)),
        )
        there = AffineMap(((1, 0), (0, 1)), (0, half)), AffineMap(((1, 0), (0, -1)), (0, n - 1))
        return tuple(Piece(0, (Guard(0, r),), IndexMap((m,))) for r, m in zip((low, high), there, strict=True))


def test_kinds_from_outside_are_cut_too() -> None:
    g = Graph()
    x = np.arange(1, 25).reshape(4, 6)
    swapped = np.concatenate([x[:, 3:], x[:, :3][:, ::-1]], 1)
    tensor = g.input("x", (4, 6)).view(Butterfly())[1:3, :4].broadcast_to((2, 2, 4))
    found = two_sided(tensor, x="there")
    assert found.nbytes == 8 * 4
    values = np.broadcast_to(swapped[1:3, :4], (2, 2, 4))
    owner = owners({"x": x}, {"x": "there"}, "here")
    np.testing.assert_array_equal(sent_and_unpacked(found, {"x": x}, owner), values)
    big = g.input("big", (N, 6 * N)).view(Butterfly())[:, ::3].broadcast_to((7, N, 2 * N))
    assert two_sided(big, big="there").nbytes == 4 * N * 2 * N


# ------------------------------------------------------------------------------------------------ sizes and shards


def test_bytes_do_not_depend_on_sizes() -> None:
    g = Graph()
    x = g.input("x", (8 * N, 6))
    cases = {
        x[::2].broadcast_to((9, 4 * N, 6)): 24 * N,
        pad(x[1::4], 5, "wrap"): 12 * N,
        x.sliding_windows(5, step=7): (8 * N - 5) // 7 * 5 * 6 + 30,
        x.reshape(6, 8 * N)[:, ::2]: 24 * N,
        repeat(interleave([x[1::2], x[0::2]]), 3, 1): 48 * N,
        stack([x.T, x.T], 1)[:, :, N:]: 42 * N,
    }
    for tensor, cells in cases.items():
        assert two_sided(tensor, x="there").nbytes == 4 * cells, tensor.name


def test_shards_are_sent_by_their_holders() -> None:
    g = Graph()
    w = g.input("w", (4 * N, 8))
    rows = {d: Box((k * N, 0), (N, 8)) for k, d in enumerate(["a", "b", "here", "c"])}
    found = two_sided(w.T[::2, N // 2 : 3 * N], w=rows)
    assert found.nbytes_by_link == {("a", "here"): 8 * N, ("b", "here"): 16 * N}
    assert [home.name for home in found.local] == ["w"]
    again = two_sided(w.T[:, 3 * N :], w={**rows, "b": Region.full((4 * N, 8))})
    assert again.nbytes_by_link == {("b", "here"): 32 * N}, "the first that holds a cell sends it"


def test_strided_shards() -> None:
    g = Graph()
    x = g.input("x", (12 * N,))
    parts = [Region((12 * N,), [Stripe(1, 2, phase=k)]) for k in range(3)]
    placement = {"x": {"a": parts[0], "here": parts[1], "b": DisjointRegions((12 * N,), [parts[2]])}}
    found = motion(g, x[::2].broadcast_to((3, 6 * N)).name, placement, "here")
    assert found.nbytes_by_link == {("a", "here"): 8 * N, ("b", "here"): 8 * N}
    assert [m.pack.shape for m in found.messages] == [(2 * N,), (2 * N,)]


def test_many_regions_go_by_number_or_are_refused() -> None:
    """Half of the columns of (n, n + 1), seen as (n + 1, n): one set of numbers there, more than a thousand boxes."""
    g = Graph()
    n = 1024
    x = g.input("x", (n, n + 1))
    half = x[:, : n // 2]
    found = two_sided(half.reshape(n // 2, n).sliding_windows(2), x="there")
    assert found.nbytes == 4 * n * n // 2 and found.messages[0].pack.shape in [(n, n // 2), (n // 2, n)]
    y = g.input("y", (n + 1, n))
    back = y.reshape(n, n + 1)[:, : n // 2]
    again = two_sided(pad(back, 1, "edge"), y="there")
    assert again.nbytes == 4 * n * n // 2 and again.messages[0].pack.size == n * n // 2


@pytest.mark.heavy(2)
def test_deep_cascades_are_evaluated_by_their_holder_or_by_regions_or_refused() -> None:
    """Parts of parts of rows: no few regions of the tensor, but a cascade that shows each of its cells once."""
    g = Graph()
    x = t = g.input("x", (1024, 1025))
    shards = {"a": Box((0, 0), (512, 1025)), "b": Box((512, 0), (512, 1025))}
    t = x.ravel()
    for prime in (7, 11, 13, 17):
        rows = t.size // prime
        t = t[: rows * prime].reshape(rows, prime)[:, : prime // 2 + 1].ravel()
        wide = pad(t, 1, "edge")
        found = two_sided(wide, x="there")
        assert found.nbytes == 4 * t.size and found.messages[0].pack.shape == t.shape
        if prime in (7, 11):
            assert two_sided(wide, x=shards).nbytes == 4 * t.size
    with pytest.raises(TooManyPieces, match=r"that are needed are \d+ regions, and a message may have \d+; move a sel"):
        two_sided(wide, x=shards)


# -------------------------------------------------------------------------------------------- the seed's examples


def run(g: Graph, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    (result,) = evaluate(g, {name: value.astype(np.float32) for name, value in inputs.items()}).values()
    return result


def test_a_dilated_convolution_as_dense_ones_on_strided_slices() -> None:
    """Each dense convolution gets every other column; of the results, interleaved, the other half moves."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 3, 4, 16)), rng.standard_normal((2, 3, 1, 3))
    whole = Graph()
    whole.output(conv(whole.input("x", x.shape), whole.input("w", w.shape), dilations=(1, 2)))
    g = Graph()
    gx, gw = g.input("x", x.shape), g.input("w", w.shape)
    halves = [gx[..., k::2] for k in range(2)]
    dense = [conv(half, gw, name=f"conv{k}") for k, half in enumerate(halves)]
    y = interleave(dense, 3)
    g.output(relu(y))
    put_fields(whole, outputs={"y": relu(whole.tensor("conv")).name})
    np.testing.assert_allclose(run(g, {"x": x, "w": w}), run(whole, {"x": x, "w": w}), rtol=1e-5, atol=1e-6)

    there = motion(g, halves[1].name, {"x": 0}, consumer=1)
    assert there.nbytes == x.nbytes // 2 // 2, "half of the columns, in float32"
    assert there.messages[0].pack.shape == (1, 3, 4, 8) and there.unpack is there.messages[0].arrived
    back = motion(g, y.name, {"conv0": 0, "conv1": 1}, consumer=0)
    assert back.nbytes_by_link == {(1, 0): 2 * 4 * 6 * 4}
    assert [home.name for home in back.local] == ["conv0"]
    assert back.messages[0].pack is back.messages[0].home, "all of it, as it is"


def test_partial_features_of_linear_are_joined_by_concat() -> None:
    """Linear by feature group: each device makes some of the out features; the consumer joins them."""
    g = Graph()
    x = g.input("x", (32, 64))
    parts = [matmul(x, g.input(f"w{k}", (64, n)), name=f"part{k}") for k, n in enumerate((16, 24))]
    y = concat(parts, 1)
    g.output(relu(y))
    rng = np.random.default_rng(1)
    values = {
        "x": rng.standard_normal((32, 64)),
        "w0": rng.standard_normal((64, 16)),
        "w1": rng.standard_normal((64, 24)),
    }
    expected = np.maximum(values["x"] @ np.concatenate([values["w0"], values["w1"]], 1), 0)
    np.testing.assert_allclose(run(g, values), expected, rtol=1e-4, atol=1e-4)
    found = motion(g, y.name, {"part0": 0, "part1": 1}, consumer=0)
    assert found.nbytes_by_link == {(1, 0): 32 * 24 * 4}
    by_row = motion(g, y[:8].name, {"part0": 0, "part1": 1}, consumer=2)
    assert by_row.nbytes_by_link == {(0, 2): 8 * 16 * 4, (1, 2): 8 * 24 * 4}


def test_shards_by_batch_are_joined_by_concat() -> None:
    g = Graph()
    w1, w2 = g.input("w1", (64, 10)), g.input("w2", (64, 22))
    found = motion(g, concat([w1, w2], 1).T.name, {"w1": 1, "w2": 2}, consumer=0)
    assert [(m.holder, m.pack.size) for m in found.messages] == [(1, 640), (2, 1408)]
    assert found.nbytes == 64 * 32 * 4


def test_a_bias_is_broadcast_where_it_is_added() -> None:
    g = Graph()
    x, b = g.input("x", (32, 64)), g.input("b", (64,))
    wide = b.broadcast_to((32, 64))
    g.output(add(x, wide))
    found = motion(g, wide.name, {"b": 1}, consumer=0)
    assert found.nbytes == 64 * 4 and found.messages[0].pack.shape == (64,)


def test_a_reflection_is_made_where_it_is_read() -> None:
    g = Graph()
    x = g.input("x", (1, 3, 8, 8))
    t = pad(x, [(0, 0), (0, 0), (2, 2), (2, 2)], "reflect")
    found = motion(g, t.name, {"x": 1}, consumer=0)
    assert found.nbytes == 3 * 64 * 4
    corner = motion(g, t[:, :, :3, :3].name, {"x": 1}, consumer=0)
    assert corner.nbytes == 3 * 9 * 4, "the reflected corner reads rows 0 to 2"


def test_a_permutation_feature_first() -> None:
    g = Graph()
    w = g.input("w", (64, 32))
    found = motion(g, w.T.name, {"w": 1}, consumer=0)
    assert found.messages[0].pack.shape == (32, 64) and found.unpack is found.messages[0].arrived


# -------------------------------------------------------------------------------------------------- wrong input


@pytest.mark.parametrize(
    ("name", "placement", "error", "message"),
    [
        ("nope", {"x": 0}, ValueError, "no tensor 'nope'"),
        ("x", {"x": 0}, ValueError, "'x' is a stored tensor, not a selection; give one of those"),
        ("flip", {}, ValueError, "the placement has no device for tensor 'x'"),
        ("flip", {"x": {0: Box((0, 0), (2, 6))}}, ValueError, "cell (2, 0) of tensor 'x', which cell (1, 0) of 'flip'"),
        ("flip", {"x": {0: Box((0, 0), (5, 6))}}, ValueError, "which reaches outside its shape (4, 6)"),
        ("flip", {"x": {0: Region.full((4, 5))}}, ValueError, "is in a box of shape (4, 5) from (0, 0)"),
        ("flip", {"x": {0: "all"}}, TypeError, "must be a Box or a Region or a DisjointRegions, not 'all'"),
        ("flip", {"x": {}}, ValueError, "is held by no device"),
        ("flip", ["x"], TypeError, "placement must be a mapping"),
    ],
)
def test_wrong_input(name: str, placement: Any, error: type[Exception], message: str) -> None:
    g = Graph()
    g.input("x", (4, 6)).flip(0)
    with pytest.raises(error, match=re.escape(message)):
        motion(g, name, placement, consumer=1)


def test_views_are_replayed_over_all_their_allocations() -> None:
    a, b = allocate((4,), name="a"), allocate((4,), name="b")
    g = Graph()
    both = replay(concatenate([a, b])[::2], {a: g.input("x", (4,)), b: g.input("y", (4,))})
    assert both.shape == (4,) and g.source(both.name).stored == ("x", "y")
    with pytest.raises(ValueError, match="replay: nothing stands for Allocation"):
        replay(concatenate([a, b]), {a: g.tensor("x")})


def test_a_tensor_that_is_read_twice_travels_once() -> None:
    """The tensor itself and a view of it side by side, in either order, are one memory."""
    for order in (1, -1):
        g = Graph()
        a = g.input("a", (2,))
        both = concatenate([a, a[::-1]][::order])
        assert motion(g, both.name, {"a": 1}, 2).nbytes == 8
        assert selected_view(g, both.name).has_internal_overlap()


def test_a_question_that_is_too_hard_is_not_said_to_be_of_too_many_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(cells: object) -> None:
        raise TooHard("a question of the cells")

    g = Graph()
    x = g.input("x", (12,))
    g.output(x[::2])
    (name,) = g.selections
    monkeypatch.setattr(Cells, "explicit", refuse)
    with pytest.raises(TooHard, match="a question of the cells"):
        motion(g, name, {"x": {0: Box((0,), (5,)), 1: Box((5,), (7,))}}, 1)
