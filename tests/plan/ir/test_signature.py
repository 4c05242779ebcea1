"""Signatures: authoring, exact regions of one and of several projections, coherence, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sympy import floor, symbols, sympify

from tapestry_exec import run
from tapestry_plan import Axis, Graph, Mesh, Op, Operand, Shard, Signature, operation, plan, project
from tapestry_plan.ir import check_partition, count_shared
from tapestry_plan.ir.signature import parts_of
from tapestry_sets import AffineMap, Box, DisjointRegions, IndexProjection
from tapestry_sets.solvers import isl

AXES = (Axis("n", 1), Axis("c", 4), Axis("h", 5), Axis("kh", 3, "reduction"))


def conv_like(pad: float | None = 0.0, offset: int = -1) -> Signature:
    """y[c, h] = Σ_kh x[c // 2, 2h + kh − 1] over two groups of channels."""
    x = Operand(project(AXES, [{"c//": 1}, {"h": 2, "kh": 1, "": offset}], splits={"c": 2}), pad)
    y = Operand(project(AXES, [{"c": 1}, {"h": 1}]))
    return Signature(AXES, (x,), (y,))


def test_regions_are_those_of_the_index_points() -> None:
    signature = conv_like()
    for start, shape in [((0, 0, 0, 0), (1, 4, 5, 3)), ((0, 1, 1, 0), (1, 2, 2, 3)), ((0, 3, 4, 1), (1, 1, 1, 2))]:
        box = Box(start, shape)
        cells = {(c // 2, 2 * h + kh - 1) for _, c, h, kh in box.points() if 0 <= 2 * h + kh - 1 < 11}
        region = signature.input_region(0, box, (2, 11))
        assert {tuple(point) for point in region.points().tolist()} == cells


def test_operands_that_only_the_first_part_reads() -> None:
    bias = Operand(project(AXES, [{"c": 1}]), at_start_of=("kh",))
    signature = Signature(AXES, (bias,), conv_like().outputs)
    first, later = Box((0, 0, 0, 0), (1, 4, 5, 1)), Box((0, 0, 0, 1), (1, 4, 5, 2))
    assert signature.input_region(0, first, (4,)).size == 4
    assert signature.input_region(0, later, (4,)).size == 0
    assert signature.input_box(0, later) is None


def test_axes_answer_to_their_alias() -> None:
    signature = Signature((Axis("m", 3, alias="batch"),), (), ())
    assert signature.axis("m") == signature.axis("batch") == 0
    with pytest.raises(ValueError, match="no index axis 'q'"):
        signature.axis("q")


def test_unknown_names_in_forms() -> None:
    with pytest.raises(ValueError, match="coordinate 0 uses 'w'"):
        project(AXES, [{"w": 1}])


def test_reading_outside_needs_a_padding() -> None:
    with pytest.raises(ValueError, match="declare a padding value"):
        conv_like(pad=None).validate([(2, 11)], [(4, 5)], "here")
    conv_like().validate([(2, 11)], [(4, 5)], "here")


@pytest.mark.parametrize(
    ("forms", "shape"),
    [
        ([{"c": 1}, {"h": 1}], (4, 6)),  # a gap at the end
        ([{"c": 1}, {}], (4, 1)),  # every h writes the same cells
        ([{"c": 1}, {"h": 2}], (4, 9)),  # gaps between
        ([{"c": 1}, {"h": 1, "": 1}], (4, 5)),  # outside
    ],
)
def test_outputs_are_written_exactly_once(forms: list[dict[str, int]], shape: tuple[int, ...]) -> None:
    signature = Signature(AXES, (), (Operand(project(AXES, forms)),))
    with pytest.raises(ValueError, match="exactly once"):
        signature.validate([], [shape], "here")


def test_outputs_do_not_move_along_reductions() -> None:
    signature = Signature(AXES, (), (Operand(project(AXES, [{"c": 1}, {"kh": 1}])),))
    with pytest.raises(ValueError, match="reduction axis"):
        signature.validate([], [(4, 3)], "here")


def test_counts_and_ranks_are_checked() -> None:
    with pytest.raises(ValueError, match="2 inputs given"):
        conv_like().validate([(2, 11), (3,)], [(4, 5)], "here")
    with pytest.raises(ValueError, match="rank 3"):
        conv_like().validate([(2, 11, 1)], [(4, 5)], "here")


def test_a_reduction_needs_a_merge() -> None:
    def signature(shapes, attrs):  # type: ignore[no-untyped-def]
        axes = (Axis("k", shapes[0][0], "reduction"),)
        return Signature(axes, (Operand(project(axes, [{"k": 1}])),), (Operand(project(axes, [])),))

    def block(xp, inputs, outputs, shard):  # type: ignore[no-untyped-def]
        outputs[0][...] = xp.sum(inputs[0])

    g = Graph()
    x = g.input("x", (5,))
    with pytest.raises(ValueError, match="how parts merge; declare it with a monoid"):
        g.op(Op("total", signature, block), x)
    assert not g.nodes and "total" not in g.ops
    assert g.op(Op("total", signature, block, reduction="sum"), x).shape == ()
    assert np.dtype(g.stored["total"].dtype) == np.float32


# ------------------------------------------------------------------------------------------ authoring as a whole


def test_expressions_and_forms_say_the_same() -> None:
    n, c, h, kh = symbols("n c h kh", integer=True)
    sizes = {axis.name: axis.size for axis in AXES}
    by_expressions = Signature.from_exprs(
        {n: sizes["n"], c: sizes["c"], h: sizes["h"], kh: sizes["kh"]},
        [Operand.from_exprs([n, c, h, kh], [floor(c / 2), 2 * h + kh - 1], pad=0.0)],
        [[c, h]],
        reductions=[kh],
    )
    assert by_expressions == conv_like()


def test_blocks_are_pairs_of_start_and_extent() -> None:
    i = symbols("i", integer=True)
    signature = Signature.from_exprs({i: 4}, [[(3 * i, 2), (0, 7)]], [[i]])
    assert signature.input_box(0, Box((1,), (2,))) == Box((3, 0), (5, 7))


@pytest.mark.parametrize(
    ("inputs", "reductions", "message"),
    [
        ([["i * i"]], [], "not affine"),
        ([["i / 2"]], [], "not affine"),
        ([["i + q"]], [], "q, which is not an index symbol"),
        ([["i"]], ["q"], "the reduction q is not one of the axes"),
    ],
)
def test_what_is_not_a_signature(inputs: list[list[str]], reductions: list[str], message: str) -> None:
    i, q = symbols("i q", integer=True)
    known = {"i": i, "q": q}
    read = [[sympify(one, locals=known) for one in operand] for operand in inputs]
    with pytest.raises(ValueError, match=message):
        Signature.from_exprs({i: 4}, read, [[i]], reductions=[known[name] for name in reductions])
    with pytest.raises(ValueError, match="no projection is given"):
        Operand.from_exprs([i])


# ------------------------------------------------------------------------------------ several projections, exactly


@st.composite
def operands(draw: st.DrawFn, rank: int) -> Operand:
    """An operand of rank 1 that is read through one to three projections."""

    def one() -> IndexProjection:
        row = tuple(draw(st.integers(-3, 3)) for _ in range(rank))
        return IndexProjection(AffineMap((row,), (draw(st.integers(-4, 4)),), rank), (draw(st.integers(1, 3)),))

    first, *rest = [one() for _ in range(draw(st.integers(1, 3)))]
    return Operand(first, pad=0.0, also=tuple(rest))


def parts(draw: Any, extents: Sequence[int]) -> Box:
    start = [draw(st.integers(0, n - 1)) for n in extents]
    return Box(tuple(start), tuple(draw(st.integers(1, n - a)) for n, a in zip(extents, start, strict=True)))


def cells_read(operand: Operand, box: Box, size: int) -> set[int]:
    blocks = [p(point) for p in operand.projections for point in box.points()]
    return {c for block in blocks for c in range(block.start[0], block.stop[0]) if 0 <= c < size}


def listed(region: DisjointRegions) -> set[int]:
    assert region.size == len(region.points())
    return {c for (c,) in region.points().tolist()}


@given(st.data(), st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(1, 12))
def test_unions_of_projections_are_those_of_the_points(data: st.DataObject, extents: list[int], size: int) -> None:
    operand = data.draw(operands(len(extents)))
    signature = Signature(tuple(Axis(f"i{k}", n) for k, n in enumerate(extents)), (operand,), ())
    one, two = parts(data.draw, extents), parts(data.draw, extents)
    reads = [cells_read(operand, box, size) for box in (one, two)]
    assert listed(signature.input_region(0, one, (size,))) == reads[0]
    assert listed(signature.input_shared(0, one, two, (size,))) == reads[0] & reads[1]
    assert [listed(region) for region in signature.input_regions(0, [one, two, one], (size,))] == [*reads, reads[0]]
    bounds = [p(point) for p in operand.projections for point in one.points()]
    box = signature.input_box(0, one)
    assert box is not None
    assert (box.start[0], box.stop[0]) == (min(b.start[0] for b in bounds), max(b.stop[0] for b in bounds))
    axis = data.draw(st.integers(0, len(extents) - 1))
    n = extents[axis]
    mirror = Box(
        tuple(n - a - m if k == axis else a for k, (a, m) in enumerate(zip(one.start, one.shape, strict=True))),
        one.shape,
    )
    assert listed(signature.reversed(f"i{axis}").input_region(0, mirror, (size,))) == reads[0]
    assert signature.reversed(f"i{axis}").reversed(f"i{axis}") == signature


def butterfly(name: str = "butterfly") -> Op:
    """y[i] = x[i] − 2·x[n − 1 − i], each cell of x read through two projections."""

    def signature(shapes: Sequence[tuple[int, ...]], attrs: Any) -> Signature:
        i, (n,) = symbols("i", integer=True), shapes[0]
        return Signature.from_exprs({i: n}, [[[i], [n - 1 - i]]], [[i]])

    def block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Shard) -> None:
        (x,), (out,), (begin, end) = inputs, outputs, shard.range("i")
        (box,), n = shard.input_boxes, shard.signature.axes[0].size
        assert box is not None
        ahead, behind = begin - box.start[0], n - end - box.start[0]
        out[...] = x[ahead:][: end - begin] - 2 * x[behind:][: end - begin][::-1]

    return Op(name, signature, block)


@pytest.mark.parametrize("n", [1, 2, 5, 8, 13])
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_a_butterfly_moves_the_cells_it_reads_and_no_more(n: int, count: int) -> None:
    count = min(n, count)
    x = np.arange(n, dtype=np.float32) ** 2
    g = Graph()
    g.output(g.op(butterfly(), g.input("x", (n,)), name="b"), "y")
    p = plan(g, Mesh(count), fix={"b": {"i": count}}, layout={"x": {0: count}})
    found = run(p, {"x": x}, verify=True).outputs["y"]
    np.testing.assert_array_equal(found, x - 2 * x[::-1])
    own = [range(*span) for span in parts_of(n, count)]
    missing = [{c for i in part for c in (i, n - 1 - i)} - set(part) for part in own]
    assert p.nbytes_moved == 4 * sum(map(len, missing))


def test_a_butterfly_of_a_billion_cells() -> None:
    n = 10**9
    g = Graph()
    g.op(butterfly(), g.input("x", (n,)), name="b")
    op = operation(g, "b")
    with patch.object(isl, "_islpy", side_effect=ImportError("islpy is blocked")):
        shards = op.shard({"i": 1000})
        assert [part.inputs[0].size for part in shards] == [2 * n // 1000] * 1000
        assert shards[0].inputs[0].same_points(shards[-1].inputs[0])
        assert count_shared(op, "i", 2) == (n,)
        op.check_shards(shards)


def test_projections_of_one_operand_have_one_rank() -> None:
    with pytest.raises(ValueError, match="goes from rank 1 to rank 2, projection 0 from rank 1 to rank 1"):
        Operand(project(AXES[:1], [{"n": 1}]), also=(project(AXES[:1], [{"n": 1}, {}]),))


# --------------------------------------------------------------------------------------------------- coherence


def test_incoherent_operands_are_named_with_two_points() -> None:
    conv_like().check_coherence()
    Signature(AXES, (Operand(project(AXES, [{"h": -3, "kh": 1}])),), ()).check_coherence()  # 3 cells, 3 ahead
    sparse = Signature(AXES, (Operand(project(AXES, [{"h": 4, "kh": 1}])),), ())
    message = (
        r"input 0: the index points \(0, 0, 0, 0\) and \(0, 0, 1, 0\), neighbors along axis 'h', touch "
        r"Box\(start=\(0,\), shape=\(3,\)\) and Box\(start=\(4,\), shape=\(3,\)\)"
    )
    with pytest.raises(ValueError, match=message):
        sparse.check_coherence()
    folded = Signature(AXES, (), (Operand(project(AXES, [{"c//": 1}, {"c%": 1}], splits={"c": 2})),))
    folded.check_coherence()
    back = Signature(AXES, (), (Operand(project(AXES, [{"h//": 1}, {"h%": 1}], splits={"h": 4})),))
    with pytest.raises(ValueError, match=r"output 0: the index points \(0, 0, 3, 0\) and \(0, 0, 4, 0\)"):
        back.check_coherence()


@given(st.data(), st.lists(st.integers(1, 5), min_size=2, max_size=3))
def test_coherence_by_every_pair_of_neighbors(data: st.DataObject, extents: list[int]) -> None:
    """Against the boxes around all that two parallel points touch, listed over the whole reduction."""
    kinds = ["parallel", *(data.draw(st.sampled_from(["parallel", "reduction"])) for _ in extents[1:])]
    axes = tuple(Axis(f"i{k}", n, kind) for k, (n, kind) in enumerate(zip(extents, kinds, strict=True)))  # type: ignore[arg-type]
    operand = data.draw(operands(len(extents)))
    signature = Signature(axes, (operand,), ())

    def span(p: IndexProjection, point: tuple[int, ...]) -> tuple[int, int]:
        ends = [range(n) if kind == "reduction" else (x,) for x, n, kind in zip(point, extents, kinds, strict=True)]
        blocks = [p(at) for at in product(*ends)]
        return min(b.start[0] for b in blocks), max(b.stop[0] for b in blocks)

    coherent = True
    for p, axis in product(operand.projections, [k for k, kind in enumerate(kinds) if kind == "parallel"]):
        for point in product(*(range(n - (k == axis)) for k, n in enumerate(extents))):
            one, two = span(p, point), span(p, tuple(x + (k == axis) for k, x in enumerate(point)))
            coherent &= max(one[0], two[0]) <= min(one[1], two[1])
    if coherent:
        signature.check_coherence()
    else:
        with pytest.raises(ValueError, match="which leave a gap between them"):
            signature.check_coherence()


def test_an_axis_at_whose_start_only_an_operand_is_read_is_not_reversed() -> None:
    bias = Operand(project(AXES, [{"c": 1}]), at_start_of=("kh",))
    signature = Signature(AXES, (bias,), conv_like().outputs)
    with pytest.raises(ValueError, match="input 0 is read at the start of 'kh' only"):
        signature.reversed("kh")
    assert signature.reversed("c").input_box(0, Box.of((1, 1, 1, 1))) == Box((3,), (1,))


# ------------------------------------------------------------------------------------------------- validation


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ((Axis("i", 4), Axis("i", 3)), "two index axes are called 'i'"),
        ((Axis("i", 4, alias="k"), Axis("k", 3)), "two index axes are called 'k'"),
    ],
)
def test_index_axes_are_checked(axes: tuple[Axis, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Signature(axes, (), ()).validate([], [], "here")


def test_projections_take_points_of_the_index_space() -> None:
    signature = Signature(AXES, (Operand(project(AXES[:2], [{"c": 1}])),), ())
    with pytest.raises(ValueError, match="takes index points of rank 2; the index space has 4 axes"):
        signature.validate([(4,)], [], "here")


def test_outputs_do_not_move_along_parts_of_a_reduction() -> None:
    axes = (Axis("c", 4), Axis("k", 6, "reduction"))
    signature = Signature(axes, (), (Operand(project(axes, [{"c": 1}, {"k//": 1}], splits={"k": 3})),))
    with pytest.raises(ValueError, match="reduction axis"):
        signature.validate([], [(4, 2)], "here")


@given(st.lists(st.tuples(st.integers(-2, 9), st.integers(0, 6)), max_size=5), st.integers(0, 8))
@example([(0, 3), (2, 2), (5, 3)], 8)
@example([], 0)
def test_partitions_are_exact(spans: list[tuple[int, int]], n: int) -> None:
    boxes = [Box((a - 3,), (m,)) for a, m in spans]
    points = [a for box in boxes for (a,) in box.points()]
    inside = all(m == 0 or (a >= 0 and a + m <= n) for a, m in spans)
    exact = inside and sorted(points) == list(range(-3, n - 3))
    if exact:
        check_partition(boxes, Box((-3,), (n,)), "parts")
        return
    with pytest.raises(ValueError, match="parts: "):
        check_partition(boxes, Box((-3,), (n,)), "parts")
