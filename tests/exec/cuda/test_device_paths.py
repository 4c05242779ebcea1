"""Raw kernels in the place of block functions: plans whose shards and merges they compute, against NumPy's backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tapestry_exec import CupyBackend, StepFailed, run
from tapestry_exec.cuda import gpus, kernels
from tapestry_exec.cuda import paths as device_paths
from tapestry_exec.cuda.paths import is_direct_faster, merging, way_of
from tapestry_exec.simulated import namespace as simulated
from tapestry_plan import MONOIDS, Graph, Mesh, Op, Tensor, plan
from tapestry_plan.ir import BUILTIN_OPS, Correlation, MatrixProduct
from tapestry_plan.ops import add, conv, gelu, gemm, linear, matmul, relu, sigmoid, tanh, uniform
from tapestry_plan.rewrite import fuse, shard
from tests.cutting import Case, close
from tests.exec.run.test_operators_sharded import graph_of
from tests.operator_cases import CASES

Feeds = dict[str, Any]


def make_simulated(**options: Any) -> CupyBackend:
    return CupyBackend(cupy=simulated.cupy(2), **{"poison": True, **options})


def make_real(**options: Any) -> CupyBackend:
    return CupyBackend(**{"poison": True, **options})


@pytest.fixture(params=["simulated", pytest.param("real", marks=pytest.mark.gpu)])
def make(request: pytest.FixtureRequest) -> Callable[..., CupyBackend]:
    return {"simulated": make_simulated, "real": make_real}[request.param]


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the kernels that were launched."""
    found: list[str] = []
    function = gpus.Gpu.function

    def noted(self: gpus.Gpu, entry: str, *given: Any) -> Any:
        found.append(entry)
        return function(self, entry, *given)

    monkeypatch.setattr(gpus.Gpu, "function", noted)
    return found


def compute_entries(entries: list[str]) -> set[str]:
    """Kernels that compute, by their names' first words: no copies and fills."""
    return {entry.split("_")[0] for entry in entries} - {"copy", "fill"}


def agree(g: Graph, feeds: Feeds, backend: CupyBackend, fix: Any, exact: bool, **how: Any) -> None:
    """A plan's outputs on GPUs are those on NumPy, to the bit or within rounding; bytes move as predicted."""
    devices = max([n for axes in fix.values() for n in axes.values()] or [1])
    made = plan(g, Mesh(devices), fix=fix, placement="single", **how)
    wanted, found = run(made, feeds), run(made, feeds, backend=backend)
    assert found.nbytes_by_link == wanted.nbytes_by_link and found.nbytes_moved == made.nbytes_moved
    for name, array in wanted.outputs.items():
        if exact:
            np.testing.assert_array_equal(found.outputs[name], array)
        else:
            close(found.outputs[name], array, 2e-5 if array.dtype == np.float32 else 1e-12)


def numbers(g: Graph, seed: int = 0, whole: bool = False) -> Feeds:
    """Arrays for all inputs; whole numbers, so that no sum is rounded, if asked."""
    rng = np.random.default_rng(seed)
    stored = [t for t in g.stored.values() if t.kind == "input"]
    return {
        t.name: (rng.integers(-3, 4, t.shape) if whole else rng.normal(size=t.shape)).astype(t.dtype) for t in stored
    }


# ------------------------------------------------------------------------------------------------- products

ENDS: dict[str, Callable[[Tensor], Tensor]] = {"relu": relu, "sigmoid": sigmoid, "tanh": tanh, "gelu": gelu}


def fused_linear(end: str, dtype: str = "float32") -> Graph:
    g = Graph()
    x, w, b = g.input("x", (6, 5), dtype), g.input("w", (5, 8), dtype), g.input("b", (8,), dtype)
    g.output(ENDS[end](linear(x, w, b, name="l")), "y")
    return fuse.apply(g, end)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("axis", ["i0", "i1"])
def test_a_product_a_bias_and_an_activation_are_one_pass_of_the_epilogue(
    make: Callable[..., CupyBackend], entries: list[str], end: str, dtype: str, axis: str
) -> None:
    g = fused_linear(end, dtype)
    (node,) = g.nodes
    agree(g, numbers(g), make(), {node: {axis: 2}}, exact=end == "relu" and make is make_simulated)
    assert compute_entries(entries) == {"epilogue"}
    assert sum(entry.startswith("epilogue") for entry in entries) == 2, "one for each shard"


def test_a_bias_that_is_an_operator_of_its_own_joins_in(make: Callable[..., CupyBackend], entries: list[str]) -> None:
    for biased in (lambda y, b: add(y, b, name="a"), lambda y, b: add(b, y, name="a")):
        g = Graph()
        x, w, b = g.input("x", (2, 6, 5)), g.input("w", (5, 8)), g.input("b", (8,))
        g.output(relu(biased(matmul(x, w, name="m"), b), name="r"), "y")
        whole = fuse.apply(fuse.apply(g, "a"), "r")
        assert [node.op for node in whole.nodes.values()] == ["fused(fused(matmul,add),relu)"]
        entries.clear()
        (node,) = whole.nodes
        agree(whole, numbers(whole, whole=True), make(), {node: {"i1": 2}}, exact=True)
        assert compute_entries(entries) == {"epilogue"}


def test_parts_of_operators_have_the_paths_of_the_whole(make: Callable[..., CupyBackend], entries: list[str]) -> None:
    g = shard.apply(fused_linear("relu"), next(iter(fused_linear("relu").nodes)), axis="i0", parts=2)
    assert any(node.op == "part(fused(linear,relu))" for node in g.nodes.values())
    agree(g, numbers(g, whole=True), make(), {}, exact=True)
    assert compute_entries(entries) == {"epilogue"}


def test_a_part_that_lacks_an_operand_is_left_to_the_block_function(
    make: Callable[..., CupyBackend], entries: list[str]
) -> None:
    g = Graph()
    g.output(linear(g.input("x", (6, 12)), g.input("w", (12, 8)), g.input("b", (8,)), name="l"), "y")
    parts = shard.apply(g, "l", axis="k", parts=3)
    assert sorted(len(node.inputs) for node in parts.nodes.values() if node.op == "part(linear)") == [2, 2, 3]
    agree(parts, numbers(g, whole=True), make(), {}, exact=True)
    assert sum(entry.startswith("epilogue") for entry in entries) == 1


def test_a_cut_reduction_adds_its_bias_once(make: Callable[..., CupyBackend], entries: list[str]) -> None:
    g = Graph()
    g.output(linear(g.input("x", (6, 12)), g.input("w", (12, 8)), g.input("b", (8,)), name="l"), "y")
    agree(g, numbers(g, whole=True), make(), {"l": {"k": 3}}, exact=True)
    assert sum(entry.startswith("epilogue") for entry in entries) == 1, "where the reduction begins"
    assert "merge_float32" in entries


@pytest.mark.parametrize(("trans_a", "trans_b"), [(False, True), (True, False), (True, True)])
def test_transposed_products(
    make: Callable[..., CupyBackend], entries: list[str], trans_a: bool, trans_b: bool
) -> None:
    g = Graph()
    a, b = g.input("a", (5, 6) if trans_a else (6, 5)), g.input("b", (8, 5) if trans_b else (5, 8))
    g.output(gemm(a, b, g.input("c", (1, 8)), trans_a=trans_a, trans_b=trans_b, name="l"), "y")
    agree(g, numbers(g, whole=True), make(), {"l": {"m": 2}}, exact=True)
    assert compute_entries(entries) == {"epilogue"}


def no_path(case: str) -> Graph:
    """Products whose bias, factors, dtype or activation no kernel knows."""
    g = Graph()
    dtype = "int32" if case == "integers" else "float32"
    x, w = g.input("x", (6, 5), dtype), g.input("w", (5, 8), dtype)
    if case == "a bias for each row":
        g.output(gemm(x, w, g.input("b", (6, 1)), name="l"), "y")
    elif case == "factors":
        g.output(gemm(x, w, g.input("b", (8,)), alpha=2.0, name="l"), "y")
    elif case == "integers":
        g.output(linear(x, w, g.input("b", (8,), dtype), name="l"), "y")
    elif case == "a matrix added":
        g.output(add(matmul(x, w, name="m"), g.input("b", (6, 8)), name="l"), "y")
        g = fuse.apply(g, "l")
    elif case == "a bias of higher rank":
        g.output(add(matmul(x, w, name="m"), g.input("b", (1, 1, 8)), name="l"), "y")
        g = fuse.apply(g, "l")
    elif case == "added to itself":
        y = matmul(x, w, name="m")
        g.output(add(y, y, name="l"), "y")
        g = fuse.apply(g, "l")
    elif case == "two biases":
        g.output(add(linear(x, w, g.input("b", (8,)), name="m"), g.input("c", (8,)), name="l"), "y")
        g = fuse.apply(g, "l")
    elif case == "two activations":
        g.output(tanh(relu(matmul(x, w, name="m"), name="r"), name="l"), "y")
        g = fuse.apply(fuse.apply(g, "r"), "l")
    elif case == "another gelu":
        g.output(gelu(matmul(x, w, name="m"), "tanh", name="l"), "y")
        g = fuse.apply(g, "l")
    else:
        g.output(matmul(x, w, name="l"), "y")
    return g


CASES_WITHOUT = (
    *("a bias for each row", "factors", "integers", "a matrix added", "a bias of higher rank", "added to itself"),
    *("two biases", "two activations", "another gelu", "a product alone"),
)


@pytest.mark.parametrize("case", CASES_WITHOUT)
def test_what_no_kernel_knows_is_left_to_the_block_function(
    make: Callable[..., CupyBackend], entries: list[str], case: str
) -> None:
    g = no_path(case)
    (node,) = g.nodes
    axis = next(axis.name for axis in g.signature(node).axes if axis.size > 1)
    agree(g, numbers(g, whole=True), make(), {node: {axis: 2}}, exact=case not in ("another gelu", "two activations"))
    # Of a block that is not run as one the first operator has its own epilogue.
    assert compute_entries(entries) == ({"epilogue"} if case == "two biases" else set())


@pytest.mark.parametrize("is_direct", [False, True])
def test_a_convolution_in_a_block_that_is_not_run_as_one_is_run_as_by_itself(
    make: Callable[..., CupyBackend], entries: list[str], is_direct: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Something is added to it: no kernel does all, but tiles for a CPU's cache are not what runs."""
    monkeypatch.setattr(device_paths, "is_direct_faster", lambda *given: is_direct)
    g = Graph()
    x, w, other = g.input("x", (1, 3, 9, 9)), g.input("w", (4, 3, 3, 3)), g.input("o", (1, 4, 9, 9))
    y = conv(x, w, g.input("b", (4,)), pads=1, name="c")
    g.output(relu(add(y, other, name="a"), name="r"), "y")
    g = fuse.apply(fuse.apply(g, "a"), "r")
    (node,) = g.nodes
    agree(g, numbers(g, whole=True), make(), {node: {g.signature(node).axes[1].name: 2}}, exact=True)
    assert compute_entries(entries) == {"convolution" if is_direct else "epilogue"}


def test_a_product_into_a_part_of_a_larger_array_is_left_to_the_block_function() -> None:
    xp = simulated.cupy(1)
    a, b, out = xp.zeros((6, 5), np.float32), xp.zeros((5, 8), np.float32), xp.zeros((6, 9), np.float32)
    form = MatrixProduct(activation="relu")
    assert way_of(form, [a, b], [out[:, :8]]) is None
    assert way_of(form, [a, b], [xp.zeros((6, 8), np.float32)]) is not None
    assert way_of(form, [a, b.astype(np.float64)], [xp.zeros((6, 8), np.float32)]) is None


def test_operators_have_paths_by_their_declarations_not_their_names(
    make: Callable[..., CupyBackend], entries: list[str]
) -> None:
    other = replace(BUILTIN_OPS["linear"], name="of my own")
    g = Graph()
    g.output(g.op(other, g.input("x", (6, 5)), g.input("w", (5, 8)), g.input("b", (8,)), name="l"), "y")
    agree(g, numbers(g, whole=True), make(), {"l": {"n": 2}}, exact=True)
    assert compute_entries(entries) == {"epilogue"}


def test_an_operator_from_outside_has_a_path_by_its_one_declaration(
    make: Callable[..., CupyBackend], entries: list[str]
) -> None:
    def block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Any) -> None:
        raise AssertionError("the kernel does it")

    twice = Op(
        "squashed product",
        BUILTIN_OPS["matmul"].signature,
        block,
        reduction="sum",
        work=lambda shard: MatrixProduct(activation="tanh"),
    )
    g = Graph()
    g.output(g.op(twice, g.input("x", (6, 5)), g.input("w", (5, 8)), name="l"), "y")
    made = plan(g, Mesh(2), fix={"l": {"m": 2}}, placement="single")
    feeds = numbers(g)
    found = run(made, feeds, backend=make(), ops={twice.name: twice}).outputs["y"]
    close(found, np.tanh(feeds["x"].astype(float) @ feeds["w"]).astype(np.float32), 2e-5)


# --------------------------------------------------------------------------------------------- convolutions


@st.composite
def convolutions(draw: st.DrawFn) -> tuple[Graph, dict[str, dict[str, int]]]:
    """A convolution, perhaps with a bias and an activation in its block, and a cut of one axis."""
    rank = draw(st.integers(1, 3))
    kernel = draw(st.lists(st.integers(1, 3), min_size=rank, max_size=rank))
    strides = draw(st.lists(st.integers(1, 2), min_size=rank, max_size=rank))
    dilations = draw(st.lists(st.integers(1, 2), min_size=rank, max_size=rank))
    groups, channels, width = draw(st.sampled_from([1, 1, 2, 3])), draw(st.integers(1, 3)), draw(st.integers(1, 5))
    pads = draw(st.lists(st.integers(0, 2), min_size=2 * rank, max_size=2 * rank))
    dtype = draw(st.sampled_from(["float32", "float64"]))
    extents = [(k - 1) * d + 1 + draw(st.integers(0, 4)) for k, d in zip(kernel, dilations, strict=True)]
    g = Graph()
    x = g.input("x", (draw(st.integers(1, 2)), groups * channels, *extents), dtype)
    w = g.input("w", (groups * width, channels, *kernel), dtype)
    b = g.input("b", (groups * width,), dtype) if draw(st.booleans()) else None
    y = conv(x, w, b, strides=strides, pads=pads, dilations=dilations, groups=groups, name="c")
    has_gaps = any(s > (k - 1) * d + 1 for s, k, d in zip(strides, kernel, dilations, strict=True))
    if draw(st.booleans()) and not has_gaps and set(dilations) == {1}:  # what fusing asks for
        g.output(relu(y, name="r"), "y")
        g = fuse.apply(g, "r")
    else:
        g.output(y, "y")
    (node,) = g.nodes
    axis = draw(st.sampled_from(list(g.signature(node).axes)))
    return g, {node: {axis.name: min(draw(st.integers(1, 3)), axis.size)}}


@pytest.mark.heavy(2)
@given(convolutions(), st.integers(0, 9))
@settings(max_examples=60, suppress_health_check=[*HealthCheck])
def test_direct_convolutions(work: tuple[Graph, Any], seed: int) -> None:
    g, fix = work
    launched: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_paths, "is_direct_faster", lambda *given: True)
        way = kernels.convolutions
        patch.setattr(kernels, "convolutions", lambda *given: launched.append("one") or way(*given))
        agree(g, numbers(g, seed, whole=True), make_simulated(), fix, exact=True)
    assert launched


@pytest.mark.gpu
@pytest.mark.parametrize("is_direct", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_convolutions_either_way_on_a_gpu(
    seed: int, is_direct: bool, monkeypatch: pytest.MonkeyPatch, entries: list[str]
) -> None:
    monkeypatch.setattr(device_paths, "is_direct_faster", lambda *given: is_direct)
    g = Graph()
    x, w, b = g.input("x", (2, 6, 17, 19)), g.input("w", (10, 3, 3, 2)), g.input("b", (10,))
    g.output(conv(x, w, b, strides=2, pads=1, groups=2, name="c"), "y")
    agree(g, numbers(g, seed, whole=True), make_real(), {"c": {"c": 3}}, exact=True)
    assert ("convolution" in compute_entries(entries)) == is_direct


def test_groups_of_one_width_are_one_launch_and_cut_ones_others() -> None:
    def form(*groups: tuple[tuple[int, int], int]) -> Correlation:
        return Correlation(0, 1, None, (1,), (1,), groups)

    even = device_paths._even_groups
    assert even(form(((0, 4), 0), ((4, 8), 3), ((8, 12), 6)), 3) == [((0, 12), 0, 3)]
    assert even(form(((0, 1), 0), ((1, 5), 3), ((5, 9), 6)), 3) == [((0, 1), 0, 1), ((1, 9), 3, 2)]
    assert even(form(((0, 4), 0), ((4, 6), 3)), 3) == [((0, 4), 0, 1), ((4, 6), 3, 1)]
    # Half of each group's channels: they do not lie side by side.
    assert even(form(((0, 4), 0), ((4, 8), 6)), 3) == [((0, 4), 0, 1), ((4, 8), 6, 1)]


@pytest.mark.parametrize(
    ("out", "w", "groups", "is_direct"),
    [
        ((1, 96, 112, 112), (96, 1, 3, 3), 96, True),  # depthwise
        ((1, 96, 14, 14), (96, 4, 3, 3), 24, False),  # 24 blocks for a GPU that has room for hundreds
        ((4, 64, 112, 112), (64, 3, 3, 3), 1, True),  # small windows, many cells
        ((8, 64, 56, 56), (64, 64, 3, 3), 1, False),
        ((1, 2048, 7, 7), (2048, 512, 1, 1), 1, False),  # a product of matrices, without unfolding
        ((1, 512, 64, 64), (512, 512, 3, 3), 1, False),
    ],
)
def test_the_faster_way_is_chosen_by_sizes_alone(
    out: tuple[int, ...], w: tuple[int, ...], groups: int, is_direct: bool
) -> None:
    each = out[1] // groups
    of = tuple(((g * each, (g + 1) * each), g * w[1]) for g in range(groups))
    form = Correlation(0, 1, None, (1, 1), (1, 1), of)
    assert is_direct_faster(form, "float32", out, w, False) == is_direct


def test_a_convolution_has_the_same_result_either_way(
    make: Callable[..., CupyBackend], entries: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    g = Graph()
    g.output(conv(g.input("x", (1, 3, 9, 9)), g.input("w", (4, 3, 3, 3)), pads=1, name="c"), "y")
    for is_direct in (False, True):
        entries.clear()
        monkeypatch.setattr(device_paths, "is_direct_faster", lambda *given, value=is_direct: value)
        agree(g, numbers(g, whole=True), make(), {"c": {"h": 2}}, exact=True)
        assert ("convolution" in compute_entries(entries)) == is_direct


@pytest.mark.heavy(2)
@given(convolutions(), st.integers(0, 9), st.sampled_from([1, 1 << 28]))
@settings(max_examples=60, suppress_health_check=[*HealthCheck])
def test_unfolded_convolutions(work: tuple[Graph, Any], seed: int, nbytes: int) -> None:
    """Samples all at once, or one by one; a block in a larger buffer may have its cells apart."""
    g, fix = work
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(device_paths, "is_direct_faster", lambda *given: False)
        patch.setattr(device_paths, "UNFOLDED_NBYTES", nbytes)
        unfold, ways = device_paths.convolve_unfolded, list[str]()
        patch.setattr(device_paths, "convolve_unfolded", lambda *given: ways.append("one") or unfold(*given))
        agree(g, numbers(g, seed, whole=True), make_simulated(), fix, exact=True)
    assert ways


# ---------------------------------------------------------------------------------------------- random cells


def drawn_by(name: str) -> Case:
    return next(case for case in CASES if case.op == name)


@pytest.mark.parametrize("name", ["uniform", "normal", "bernoulli", "integers", "dropout"])
def test_random_cells_are_the_same_bits(make: Callable[..., CupyBackend], entries: list[str], name: str) -> None:
    g, feeds = graph_of(drawn_by(name))
    for axis in g.signature("it").axes:
        is_exact = name != "normal" or make is make_simulated
        agree(g, feeds, make(), {"it": {axis.name: min(3, axis.size)}}, exact=is_exact)
    assert compute_entries(entries) == {"philox"}
    assert ("philox_words" in entries) == (name != "uniform")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("ends", [(0.0, 1.0), (-2.5, 0.1), (1.0, 1.0000002)])
def test_uniform_cells(
    make: Callable[..., CupyBackend], entries: list[str], dtype: str, ends: tuple[float, float]
) -> None:
    g = Graph()
    g.output(uniform(g, (5, 7, 6), *ends, seed=9, dtype=dtype, name="u"), "y")
    for axis in ("i0", "i1", "i2"):
        agree(g, {}, make(), {"u": {axis: 3}}, exact=True)
    assert compute_entries(entries) == {"philox"} and f"philox_{dtype}" in entries


# ------------------------------------------------------------------------------------------------- scatters

HOW = "none", "add", "mul", "min", "max"


@pytest.mark.heavy(2)
@given(
    st.sampled_from(["put_along_axis", "scatter_nd"]),
    st.sampled_from(HOW),
    st.sampled_from(["float32", "float64", "int32", "uint8"]),
    st.integers(0, 99),
)
@settings(max_examples=60, suppress_health_check=[*HealthCheck])
def test_scatters_go_update_by_update(name: str, how: str, dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    shape = tuple(int(n) for n in rng.integers(1, 6, rank))
    if name == "put_along_axis":
        axis = int(rng.integers(-rank, rank))
        turns = tuple(int(rng.integers(1, 9)) if k == axis % rank else n for k, n in enumerate(shape))
        indices, attrs = rng.integers(-shape[axis], shape[axis], turns), {"axis": axis}
    else:
        depth, rows = int(rng.integers(1, rank + 1)), tuple(int(n) for n in rng.integers(1, 5, rng.integers(0, 3)))
        indices = np.stack([rng.integers(-n, n, rows) for n in shape[:depth]], axis=-1)
        turns, attrs = (*rows, *shape[depth:]), {}
    feeds = {
        "x": rng.normal(size=shape).astype(np.float32) * 8,
        "updates": rng.normal(size=turns).astype(np.float32) * 8,
    }
    feeds = {
        key: np.abs(array).astype(dtype) if dtype == "uint8" else array.astype(dtype) for key, array in feeds.items()
    }
    feeds["indices"] = indices.astype(np.int64)
    g = Graph()
    operands = [g.input(key, feeds[key].shape, feeds[key].dtype.name) for key in ("x", "indices", "updates")]
    g.output(g.op(name, *operands, name="it", reduction=how, **attrs), "y")
    axes = [axis for axis in g.signature("it").axes if axis.size > 1]
    fix = {axes[0].name: 2} if axes else {}
    launched: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        way = kernels.scatters
        patch.setattr(kernels, "scatters", lambda *given: launched.append(given[0]) or way(*given))
        agree(g, feeds, make_simulated(), {"it": fix}, exact=True)
    assert set(launched) == {{"none": "replace", "mul": "multiply", "min": "minimum", "max": "maximum"}.get(how, how)}


@pytest.mark.parametrize("how", HOW)
def test_scatters_to_a_few_cells(make: Callable[..., CupyBackend], entries: list[str], how: str) -> None:
    g = Graph()
    x, i, u = g.input("x", (4, 30)), g.input("i", (200, 1), "int64"), g.input("u", (200, 30))
    g.output(g.op("scatter_nd", x, i, u, name="it", reduction=how), "y")
    feeds = {**numbers(g), "i": np.random.default_rng(1).integers(0, 4, (200, 1))}
    agree(g, feeds, make(), {"it": {"i1": 2}}, exact=True)
    assert compute_entries(entries) == {"scatter"}


def test_an_index_outside_is_told(make: Callable[..., CupyBackend]) -> None:
    g = Graph()
    x, i, u = g.input("x", (4,)), g.input("i", (3,), "int64"), g.input("u", (3,))
    g.output(g.op("put_along_axis", x, i, u, name="it"), "y")
    feeds = {"x": np.zeros(4, np.float32), "i": np.array([0, 4, 1]), "u": np.ones(3, np.float32)}
    with pytest.raises(StepFailed, match=r"an index is outside -4 … 3"):
        run(plan(g, Mesh(1)), feeds, backend=make())


# --------------------------------------------------------------------------------------------------- merges


REDUCTIONS = "sum", "prod", "min", "max", "any", "all"


@given(
    st.sampled_from(REDUCTIONS),
    st.sampled_from(["float32", "float64", "int32", "uint8", "int64"]),
    st.sampled_from([None, 2, 3]),
    st.integers(2, 7),
    st.integers(0, 99),
)
@settings(max_examples=60, suppress_health_check=[*HealthCheck])
@example("sum", "float32", 2, 7, 0)
def test_merges(name: str, dtype: str, fan_in: int | None, parts: int, seed: int) -> None:
    g = Graph()
    made = "bool" if name in ("any", "all") else dtype
    g.output(g.op(name, g.input("x", (5, 14, 3), made), name="it", axis=(1,), keepdims=True), "y")
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(5, 14, 3)) * 10 if np.dtype(made).kind == "f" else rng.integers(0, 2, (5, 14, 3))
    cut = next(axis.name for axis in g.signature("it").axes if axis.kind == "reduction")
    launched: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        way = kernels.merges
        patch.setattr(kernels, "merges", lambda *given: launched.append(given[0]) or way(*given))
        agree(g, {"x": x.astype(made)}, make_simulated(), {"it": {cut: parts}}, exact=True, fan_in=fan_in)
    assert set(launched) == {MONOIDS[BUILTIN_OPS[name].monoid.name].ufunc}


@pytest.mark.gpu
@pytest.mark.parametrize("fan_in", [None, 2, 3])
@pytest.mark.parametrize("name", ["sum", "prod", "min", "max"])
def test_merges_on_a_gpu(name: str, fan_in: int | None, entries: list[str]) -> None:
    g = Graph()
    g.output(g.op(name, g.input("x", (5, 14, 3)), name="it", axis=(1,), keepdims=True), "y")
    cut = next(axis.name for axis in g.signature("it").axes if axis.kind == "reduction")
    agree(g, numbers(g), make_real(), {"it": {cut: 7}}, exact="s" not in name[-3:], fan_in=fan_in)
    assert "merge_float32" in entries


def test_a_variance_is_merged_by_its_own_functions(make: Callable[..., CupyBackend], entries: list[str]) -> None:
    g = Graph()
    g.output(g.op("var", g.input("x", (5, 14)), name="it", axis=(1,), keepdims=True), "y")
    cut = next(axis.name for axis in g.signature("it").axes if axis.kind == "reduction")
    agree(g, numbers(g), make(), {"it": {cut: 4}}, exact=False)
    assert compute_entries(entries) == set()


def test_which_merges_a_kernel_does() -> None:
    float32, state = np.dtype("float32"), np.dtype("f8,f8")
    known = [merging(MONOIDS[name], [float32] * 3, 2, None) for name in ("sum", "prod", "min", "max")]
    assert known == ["add", "multiply", "minimum", "maximum"]
    assert merging(MONOIDS["mean"], [state] * 3, 2, None) is None
    assert merging(MONOIDS["sum"], [float32, np.dtype("float64")], 1, None) is None
    assert merging(MONOIDS["sum"], [np.dtype("complex64")] * 3, 2, None) is None
    assert merging(MONOIDS["sum"], [float32] * 41, 40, 2) is None, "a tree of more parts than a launch holds"
    assert merging(MONOIDS["sum"], [float32] * 41, 40, None) == "add"


# --------------------------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize(
    "case", [c for c in CASES if c.op in ("softmax", "layer_normalization", "rms_normalization")], ids=str
)
def test_rows_are_one_launch_where_they_lie_side_by_side(
    make: Callable[..., CupyBackend], entries: list[str], case: Case
) -> None:
    g, feeds = graph_of(case)
    for axis in g.signature("it").axes:
        entries.clear()
        agree(g, feeds, make(), {"it": {axis.name: min(2, axis.size)}}, exact=False)
        is_last = case.op != "softmax" or case.attrs.get("axis", -1) in (-1, len(case.shapes[0]) - 1)
        is_known = is_last and g.stored["it"].dtype in kernels.LANES
        assert ("rows" in compute_entries(entries)) == is_known


def test_a_softmax_in_a_block_is_one_launch(make: Callable[..., CupyBackend], entries: list[str]) -> None:
    g = Graph()
    scores = matmul(g.input("q", (4, 6, 5)), g.input("k", (4, 5, 7)), name="m")
    g.output(g.op("softmax", scores / 2, name="s"), "y")
    made = plan(g, Mesh(2), fix={"m": {"b0": 2}})
    feeds = numbers(g)
    assert made.fused
    found, wanted = run(made, feeds, backend=make()), run(made, feeds)
    close(found.outputs["y"], wanted.outputs["y"], 2e-5)
    assert "rows" in compute_entries(entries)
