"""Which blocks must be written anew: against cells numbered one by one, and views that NumPy has as strides."""

from __future__ import annotations

from itertools import pairwise, product
from math import prod

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tapestry_exec import evaluate
from tapestry_plan import Device, Graph, Link, Mesh, ShardPlan, Tensor, concat, ops, plan
from tapestry_plan.search.prices.costs.problem import Problem
from tapestry_plan.search.prices.costs.variables import Asked
from tapestry_plan.steps import APART, PeriodicBlock, Reads, SplitAxis, count_copied, is_padded, list_hostings
from tapestry_sets import Box
from tapestry_sets.views import Pad

VIEWS = ("turn", "flip", "step", "cut", "joined", "padded", "rolled", "flat", "fold", "taken", "wide")


def viewed(x: Tensor, y: Tensor, words: list[str]) -> Tensor:
    """A view of x, or of x and y."""
    for word in words:
        rows, columns = x.shape
        if word == "turn":
            x = x.T
        elif word == "flip":
            x = x.flip(0)
        elif word == "step":
            x = x[::2]
        elif word == "cut":
            x = x[:, 1:]
        elif word == "joined":
            x = concat([x, x.flip(1)])
        elif word == "padded":
            x = x.view(Pad(((1, 0), (0, 2))))
        elif word == "rolled":
            x = concat([x[-1:], x[:-1]])
        elif word == "flat":
            x = x.reshape(columns, rows)
        elif word == "fold" and rows % 2 == 0:
            x = x.reshape(2, rows // 2, columns).transpose(1, 0, 2).reshape(rows, columns)
        elif word == "taken":
            x = concat([x[:1], x[-1:], x[:1]])
        elif word == "wide":
            x = x[:1].broadcast_to((3, columns))
        if min(x.shape) < 1 or prod(x.shape) > 200:
            return y
    return x


def addresses(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each cell the tensor that it is from (-1: from none), and its place in the box around what is read of it."""
    tensor = np.where(np.isnan(values), -1, values // 1000)
    place = np.full(values.shape, -1)
    for number in set(tensor.ravel().tolist()) - {-1}:
        mine = tensor == number
        cells = (values[mine] % 1000).astype(int)
        rows, columns = cells // 10, cells % 10
        place[mine] = (rows - rows.min()) * (columns.max() - columns.min() + 1) + columns - columns.min()
    return tensor, place


def is_strided(values: np.ndarray) -> bool:
    """Whether all cells are of one tensor, with one step along each axis."""
    tensor, place = addresses(values)
    if (tensor == -1).any() or len(set(tensor.ravel().tolist())) > 1:
        return False
    return all(len(set(np.diff(place, axis=axis).ravel().tolist())) <= 1 for axis in range(place.ndim))


@settings(max_examples=max(20, settings.default.max_examples // 2))
@given(st.lists(st.sampled_from(VIEWS), max_size=3), st.data())
@example(["joined"], None)
@example(["flat", "turn"], None)
@example(["fold"], None)
@example(["padded"], None)
@example(["taken"], None)
def test_blocks_that_cost_nothing_are_strided_views_of_one_buffer(words: list[str], data: st.DataObject | None) -> None:
    g = Graph()
    x, y = g.input("x", (4, 6)), g.input("y", (5, 3))
    view = viewed(x, y, words)
    node = g.nodes[ops.relu(view, name="n").name]
    place = np.arange(10)[:, None] * 10 + np.arange(10)
    numbered = {"x": place[:4, :6] + 1000.0, "y": place[:5, :3] + 2000.0}
    h = Graph()
    same = viewed(h.input("x", (4, 6), "float64"), h.input("y", (5, 3), "float64"), words)
    h.output(ops.add(same, 0.0), "v")
    whole = evaluate(h, numbered)["v"]
    whole = np.where(whole == 0, np.nan, whole)  # what a pad has
    cuts = []
    for n in view.shape:
        ends = (
            [0, n]
            if data is None
            else sorted(data.draw(st.lists(st.integers(0, n), min_size=2, max_size=2, unique=True)))
        )
        cuts.append(list(pairwise(ends)))
    for spans in product(*cuts):
        box = Box(tuple(lo for lo, _ in spans), tuple(hi - lo for lo, hi in spans))
        block = whole[tuple(slice(*span) for span in spans)]
        found = count_copied(Reads(g), node, 0, box)
        assert found in (0, 4 * box.size)
        if found == 0:
            assert is_strided(block), (words, box)
        elif is_strided(block):  # cells that lie so by chance, as any two do, or several pieces, are not looked into
            assert {"joined", "rolled", "taken"}.intersection(words), (words, box)


@pytest.mark.parametrize(
    ("words", "copied"),
    [
        (["turn"], 0),
        (["flip", "step"], 0),
        (["wide"], 0),
        (["flat"], 0),
        (["joined"], 1),
        (["rolled"], 1),
        (["taken"], 1),
    ],
)
def test_views_that_numpy_has_as_strides_cost_nothing(words: list[str], copied: int) -> None:
    g = Graph()
    view = viewed(g.input("x", (4, 6)), g.input("y", (5, 3)), words)
    node = g.nodes[ops.relu(view, name="n").name]
    assert count_copied(Reads(g), node, 0, Box.of(view.shape)) == copied * 4 * prod(view.shape)


def test_only_what_a_device_has_is_copied_into_padding() -> None:
    """Padding is filled where a block has its place; what of it comes from elsewhere is priced where that moves."""
    g = Graph()
    ops.conv(g.input("x", (1, 2, 8, 8)), g.input("w", (2, 2, 3, 3)), pads=1, name="c")
    reads, node = Reads(g), g.nodes["c"]
    axes = g.signature("c").index_shape
    whole, inner = Box((0,) * len(axes), axes), Box((0, 0, 1, 1, 0, 0, 0), (1, 2, 6, 6, 2, 3, 3))
    assert [count_copied(reads, node, 0, box) for box in (whole, inner)] == [0, 0]
    assert [is_padded(reads, node, 0, box) for box in (whole, inner)] == [True, False]
    # A given block is placed so. Of what is read as it is and with padding the second one copies all of the first.
    for kind, copied in (("given", 0), ("made", 0), ("read twice", 4 * 2 * 8 * 8)):
        g = Graph()
        x = g.input("x", (1, 2, 8, 8))
        x = x if kind == "given" else ops.exp(x, name="e")
        g.output(ops.conv(x, g.input("w", (2, 2, 3, 3)), pads=1, name="c"), "y")
        if kind == "read twice":
            g.output(ops.conv(x, g.input("v", (2, 2, 5, 5)), pads=1, name="d"), "z")
            g.output(ops.relu(x, name="r"), "u")
        p = plan(g, Mesh(1), fuse=False, expand=False)
        assert p.nbytes_local == p.nbytes_copied == (copied * (p.nbytes_local != (0,)),)


@pytest.mark.parametrize(
    ("joined", "digits", "copied"),
    [
        (False, (SplitAxis("i0", (4, 2)), SplitAxis("i1", (6,))), 0),  # every second row of a tensor
        (True, (SplitAxis("i0", (4, 2)), SplitAxis("i1", (6,))), 4 * 4 * 6),  # of two joined ones: some of each
        (True, (SplitAxis("i0", (2, 4)), SplitAxis("i1", (6,))), 0),  # rows of one of them
    ],
)
def test_periodic_blocks_are_strided_where_they_are_one_piece(
    joined: bool, digits: tuple[SplitAxis, ...], copied: int
) -> None:
    g = Graph()
    view = concat([g.input("x", (4, 6)), g.input("y", (4, 6))]) if joined else g.input("z", (8, 6)).flip(0)
    node = g.nodes[ops.relu(view, name="n").name]
    first, second = digits[0].sizes
    box = Box((0, 1, 0), (first, 1, 6)) if first == 4 else Box((1, 0, 0), (1, second, 6))
    assert count_copied(Reads(g), node, 0, PeriodicBlock(box, digits)) == copied


# -- in plans --------------------------------------------------------------------------------------------------


def test_plans_say_and_price_what_is_copied() -> None:
    g = Graph()
    x, y = g.input("x", (64, 64)), g.input("y", (64, 64))
    g.output(ops.relu(concat([x, y]), name="r"))
    g.output(ops.relu(x.T, name="t"))
    device = Device(1e30, 1e9, 1e-6)
    p = plan(g, Mesh(1, device=device))
    assert p.nbytes_local == (2 * 64 * 64 * 4,)
    assert p.stage["r"].seconds == pytest.approx(1e-6 + 3 * 2 * 64 * 64 * 4 / 1e9)
    assert p.stage["t"].seconds == pytest.approx(1e-6 + 2 * 64 * 64 * 4 / 1e9)
    assert ShardPlan.from_json(p.to_json()) == p
    # on two devices each takes what lies in one tensor
    q = plan(g, Mesh(2, device=device))
    assert q.nbytes_local == (0, 0) and q.sharding["r"] == {"i0": 2} and q.gap == 0


@pytest.mark.parametrize("bandwidth", [1e8, 1e10])
@pytest.mark.parametrize("words", [["joined"], ["rolled"], ["padded"], ["flat", "turn"]])
def test_the_plan_is_the_best_with_what_is_copied(words: list[str], bandwidth: float) -> None:
    """Every choice of layouts, each with the bytes of its blocks: the least sum is the plan's, and its bound."""
    g = Graph()
    x, w = g.input("x", (8, 6)), g.input("w", (6, 4))
    h = viewed(ops.relu(x, name="a"), w, words)
    g.output(ops.relu(h, name="b") @ g.input("v", (h.shape[1], 4)))
    mesh = Mesh(2, link=Link(1e-8, bandwidth), device=Device(1e10, 1e9))
    problem = Problem(g, Asked(mesh))
    costs = {choice: problem.count_cost(choice) for choice in product(*map(range, problem.sizes))}
    p = plan(g, mesh, expand=False)
    assert round(p.bound * 1e12) <= min(costs.values())[0] and round(p.seconds * 1e12) <= min(costs.values())[0]
    least, reads = min(costs, key=lambda choice: costs[choice]), Reads(g)
    for node in problem.order:  # what is priced is what each block is counted at
        layout = problem.variables[problem.position["operator", node.name]].layouts[
            least[problem.position["operator", node.name]]
        ]
        row = least[problem.position["operator", node.name]]
        hosts = list_hostings(g)
        own = [
            0
            if box is None
            else sum(
                count_copied(reads, node, k, box, [hosts.get(s, APART) for s in g.source(name).stored])
                for k, name in enumerate(node.inputs)
            )
            for box in layout.boxes
        ]
        assert problem.count_copied(node, slice(row, row + 1))[0].tolist() == own
