"""The documents that the project was made from: their worked examples, and their errata, run.

Where a document contradicts itself, the tests use the corrected form and name the erratum:

- nesting takes ``(z - phase) mod (on + off)``, not ``mod on``: only so do the documents' own examples hold;
- ``A[1:5:2, 0:6:3].T`` of a 6 x 7 array has strides 3 and 14, not 14 and 2;
- the example of a reshape means ``B = A.reshape(2, 3); C = B[:, 0:2]; D = C.reshape(4)``;
- the region that reshapes into two has ``phase=1``: a stripe has no stride;
- the tiles of ``A[1:4N-3, 1:4N-3]`` meet those of ``A`` in 8 cells at N = 3; those of ``A[2:-2, 2:-2]`` are apart;
- the split sum runs over [0, k] and [k + 1, m - 1], not to m;
- the shapes of P_W and P_Y by ``out`` are [in, 1] and [batch, 1];
- both boxes of the strided selection are labeled Stride_0; the second one means Stride_1;
- the laws that a reduction needs are those of a monoid; the order of merges needs associativity alone;
- the row-major number of a point, not ``(point * shape).sum()``, is the index of a generator.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tapestry_exec import evaluate, run
from tapestry_plan import Graph, Mesh, plan
from tapestry_plan.ir import Monoid
from tapestry_plan.ops import conv, linear, reduce_with, relu
from tapestry_sets import Box, DisjointRegions, Region, Sett, Stripe, allocate, overlap, overlaps
from tapestry_sets.views import AsStrided, Interleave

BATCH, IN, OUT = 100, 6, 8


def linear_relu() -> tuple[Graph, dict[str, np.ndarray], np.ndarray]:
    """Z = Linear(X, W, b); Y = ReLU(Z)."""
    rng = np.random.default_rng(0)
    x, w, b = (rng.standard_normal(s).astype(np.float32) for s in ((BATCH, IN), (IN, OUT), (OUT,)))
    g = Graph()
    z = linear(g.input("X", x.shape), g.input("W", w.shape), g.input("b", b.shape), name="Linear")
    g.output(relu(z, name="ReLU"), "Y")
    return g, {"X": x, "W": w, "b": b}, np.maximum(x @ w + b, 0)


def blocks(graph: Graph, point: tuple[int, ...]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Start and shape of each operand's block at one point of Linear's index space (m, n, k)."""
    signature = graph.signature("Linear")
    whole = Box((point[0], point[1], 0), (1, 1, IN))
    boxes = [signature.input_box(k, whole) for k in range(3)] + [signature.output_box(0, whole)]
    return [(box.start, box.shape) for box in boxes if box is not None]


def test_linear_projects_batch_and_out() -> None:
    """P_X = [i, 0] of [1, in], P_W = [0, j] of [in, 1], P_b = [j] of [1], P_Y = [i, j] of [1, 1].

    The document prints [W_out, 1] for the shapes of P_W and P_Y by `out`; a column of W has `in` cells and
    a column of Y has `batch` (erratum).
    """
    g, _, _ = linear_relu()
    assert blocks(g, (7, 3)) == [((7, 0), (1, IN)), ((0, 3), (IN, 1)), ((3,), (1,)), ((7, 3), (1, 1))]
    signature = g.signature("Linear")
    column = Box((0, 3, 0), (BATCH, 1, IN))
    assert signature.input_box(1, column) == Box((0, 3), (IN, 1))
    assert signature.output_box(0, column) == Box((0, 3), (BATCH, 1))


@pytest.mark.parametrize(
    ("cut", "shared"),
    [
        ({"batch": 4}, 3 * 4 * (IN * OUT + OUT)),  # W and b are read by all four
        ({"out": 4}, 3 * 4 * BATCH * IN),  # X is read by all four
    ],
)
def test_linear_by_batch_and_by_out(cut: dict[str, int], shared: int) -> None:
    """The chain Linear => ReLU in fused shards: nothing moves between the two."""
    g, inputs, expected = linear_relu()
    axis = {"batch": "i0", "out": "i1"}[next(iter(cut))]
    p = plan(g, Mesh((4,)), fix={"Linear": cut, "ReLU": {axis: 4}})
    assert p.nbytes_moved == 0
    assert p.stage["Linear"].nbytes_shared == shared
    np.testing.assert_allclose(run(p, inputs, verify=True).outputs["Y"], expected, rtol=1e-5, atol=1e-6)


def test_linear_by_in_merges_partial_sums_and_adds_the_bias_once() -> None:
    g, inputs, expected = linear_relu()
    p = plan(g, Mesh((3,)), fix={"Linear": {"in": 3}, "ReLU": {"i0": 3}})
    assert [len(box.shape) for (box,) in p.placement["Linear"].values()] == [3, 3, 3]
    assert p.stage["ReLU"].nbytes_received == tuple(2 * rows * OUT * 4 for rows in (34, 33, 33))
    np.testing.assert_allclose(run(p, inputs, verify=True).outputs["Y"], expected, rtol=1e-5, atol=1e-6)


def test_convolution_windows() -> None:
    """A 100-batch of 10x10 one-channel images and 128 kernels of 3x3: windows of the input, 8x8 outputs."""
    g = Graph()
    y = conv(g.input("X", (100, 1, 10, 10)), g.input("F", (128, 1, 3, 3)), name="conv")
    assert y.shape == (100, 128, 8, 8)
    signature = g.signature("conv")
    n, c, h, w = 5, 17, 1, 0
    point = Box((n, c, h, w, 0, 0, 0), (1, 1, 1, 1, 1, 3, 3))
    assert signature.input_box(0, point) == Box((n, 0, h, w), (1, 1, 3, 3))
    right = Box((n, c, h, w + 1, 0, 0, 0), (1, 1, 1, 1, 1, 3, 3))
    shared = signature.inputs[0].projection.shared(point, right, within=(100, 1, 10, 10))
    assert isinstance(shared, DisjointRegions) and shared.size == 3 * 2  # neighbors share two of three columns


def dilated(split: bool) -> Graph:
    """A convolution dilated by 2, whole or as dense convolutions over strided slices, interleaved."""
    g = Graph()
    x, f = g.input("X", (1, 3, 16, 20)), g.input("F", (4, 3, 3, 3))
    if not split:
        g.output(conv(x, f, dilations=(2, 2), name="conv"), "Y")
        return g
    rows = []
    for i in range(2):
        columns = [conv(x[:, :, i::2, j::2], f, name=f"conv{i}{j}") for j in range(2)]
        rows.append(columns[0].view(Interleave(3), columns[1]))
    g.output(rows[0].view(Interleave(2), rows[1]), "Y")
    return g


def test_a_dilated_convolution_is_dense_convolutions_interleaved() -> None:
    rng = np.random.default_rng(1)
    inputs = {"X": rng.standard_normal((1, 3, 16, 20)).astype(np.float32)}
    inputs["F"] = rng.standard_normal((4, 3, 3, 3)).astype(np.float32)
    whole = evaluate(dilated(split=False), inputs)["Y"]
    expected = np.zeros((1, 4, 12, 16), np.float32)
    for i, j in np.ndindex(3, 3):
        window = inputs["X"][:, :, 2 * i : 2 * i + 12, 2 * j : 2 * j + 16]
        expected += np.einsum("nchw,oc->nohw", window, inputs["F"][:, :, i, j])
    np.testing.assert_allclose(whole, expected, rtol=1e-4, atol=1e-5)
    for devices in (1, 2, 3, 4):
        p = plan(dilated(split=True), Mesh((devices,)))
        np.testing.assert_allclose(run(p, inputs).outputs["Y"], expected, rtol=1e-4, atol=1e-5)


def test_neighbors_share_two_dense_rows_of_each_phase() -> None:
    """By rows over two devices: a dense 3x3 convolution of each phase shares two rows with its neighbor."""
    fix = {f"conv{i}{j}": {"h": 2} for i in range(2) for j in range(2)}
    p = plan(dilated(split=True), Mesh((2,)), layout={"X": {2: 2}}, fix=fix)
    weights, two_rows = 4 * 3 * 9 * 4, 2 * 10 * 3 * 4
    assert [p.stage[name].nbytes_shared for name in fix] == [weights + two_rows] * 4
    whole = plan(dilated(split=False), Mesh((2,)), layout={"X": {2: 2}}, fix={"conv": {"h": 2}})
    # Both forms move the same cells: the four phases together are the dilated halo.
    assert p.nbytes_received == whole.nbytes_received == (2 * 3 * 20 * 4,) * 2


def test_strides_of_a_strided_transpose() -> None:
    """``A[1:5:2, 0:6:3].T`` of a 6 x 7 array: 3 and 14 (the document prints 14 and 2)."""
    numbers = np.arange(42).reshape(6, 7)[1:5:2, 0:6:3].T
    assert tuple(step // numbers.itemsize for step in numbers.strides) == (3, 14)
    a = allocate((6, 7))
    assert a.apply(AsStrided((2, 2), (3, 14), offset=7)) == a[1:5:2, 0:6:3].T
    assert a.apply(AsStrided((2, 2), (14, 2), offset=7)) != a[1:5:2, 0:6:3].T


def test_a_reshape_that_no_strides_describe_is_an_alias_here() -> None:
    """``D = C.reshape(4)`` of ``C = A.reshape(2, 3)[:, 0:2]`` (the document calls the tensors otherwise)."""
    a = allocate((6,))
    d = a.reshape(2, 3)[:, 0:2].reshape(4)
    assert [overlap(d[k], a).witness.cell for k in range(4)] == [(0,), (1,), (3,), (4,)]  # steps of 1, 2 and 1
    strided = np.arange(6).reshape(2, 3)[:, 0:2]
    assert not np.shares_memory(strided.reshape(4), strided)  # where NumPy copies


@pytest.mark.parametrize("phase", [0, 1])
def test_a_region_that_reshapes_into_two(phase: int) -> None:
    """Every second column of (3, 4), as (4, 3): two regions (the document writes ``stride=1`` for the phase 1)."""
    columns = Region((3, 4), (Sett(), Sett(Stripe(1, 1, phase))))
    held = np.zeros((3, 4), bool)
    held[:, phase::2] = True
    regions = columns.reshape((4, 3)).explicit()
    assert len(regions.members) == 2
    assert sorted(map(tuple, regions.points().tolist())) == sorted(map(tuple, np.argwhere(held.reshape(4, 3)).tolist()))


def tiled(x: Any) -> Any:
    """2 x 2 tiles of a square array, as the document takes them."""
    n = x.shape[0]
    return x.reshape(n * n // 4, 4)[:, 0:2].reshape(4, n * n // 8)[0:2, :].reshape(n // 2, n // 2)


@pytest.mark.parametrize("n", [3, 4, 6])
def test_tiles_of_an_array_and_of_its_inside(n: int) -> None:
    """``A[1:4N-3, 1:4N-3]`` as printed meets ``A``'s tiles, in 8 cells at N = 3; ``A[2:-2, 2:-2]`` does not."""
    a, numbers = allocate((4 * n, 4 * n)), np.arange(16 * n * n).reshape(4 * n, 4 * n)
    for cut, apart in ((slice(1, 4 * n - 3), False), (slice(2, -2), True)):
        ours = overlap(tiled(a), tiled(a[cut, cut]))
        shared = np.intersect1d(tiled(numbers), tiled(numbers[cut, cut]))
        assert (0 if ours is None else ours.size) == len(shared)
        assert overlaps(tiled(a), tiled(a[cut, cut])) == (not apart) == bool(len(shared))
        assert apart or n != 3 or len(shared) == 8
    far = allocate((4 * 10**9, 4 * 10**9))
    assert not overlaps(tiled(far), tiled(far[2:-2, 2:-2]))


def test_the_split_sum_ends_at_m_minus_one() -> None:
    """[0, m - 1] is [0, k] and [k + 1, m - 1]: the parts of the axis ``in`` are these, and cover it once."""
    g, inputs, expected = linear_relu()
    p = plan(g, Mesh((2,)), fix={"Linear": {"in": 2}})
    parts = sorted((box.start[2], box.start[2] + box.shape[2] - 1) for (box,) in p.placement["Linear"].values())
    assert parts == [(0, 2), (3, IN - 1)]
    np.testing.assert_allclose(run(p, inputs, verify=True).outputs["Y"], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore::tapestry_plan.ir.monoids.NoMonoid")  # NaN is not neutral on the right
def test_a_merge_order_needs_associativity_alone() -> None:
    """The document asks for "monadic laws". Parts merge in ascending order, so that merges need not commute."""
    last = Monoid("last", lambda xp, a, b: b, (float("nan"),), is_commutative=False)
    g = Graph()
    g.output(reduce_with(last, g.input("x", (10, 4)), (0,), name="last", keepdims=True), "y")
    x = np.random.default_rng(5).standard_normal((10, 4)).astype(np.float32)
    for parts in (1, 2, 3, 4):
        p = plan(g, Mesh((parts,)), fix={"last": {"i0": parts}})
        np.testing.assert_array_equal(run(p, {"x": x}, verify=True).outputs["y"], x[-1:])
