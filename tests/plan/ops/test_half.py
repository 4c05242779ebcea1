"""Half precision: means and rows are added up in float32, as NumPy's mean is, whole and in parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tapestry_exec import ResultMismatch, evaluate, run
from tapestry_plan import Graph, Mesh, ops, plan

RNG = np.random.default_rng(5)
WIDE = (RNG.normal(size=(8, 256)) * 300).astype(np.float16)
SCALE = np.linspace(0.5, 2, 256).astype(np.float16)


def graph_of(build: Callable[..., Any], arrays: list[np.ndarray]) -> tuple[Graph, dict[str, np.ndarray]]:
    g = Graph()
    g.output(build(*[g.input(f"x{k}", a.shape, str(a.dtype)) for k, a in enumerate(arrays)]), "y")
    return g, {f"x{k}": a for k, a in enumerate(arrays)}


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_the_mean_of_large_halves_is_their_mean(parts: int) -> None:
    x = np.full((4,), 6e4, np.float16)
    g, feed = graph_of(ops.mean, [x])
    assert evaluate(g, feed)["y"] == x.mean() == np.float16(6e4)
    sharded = plan(g, Mesh((parts,)), fix={"mean": {"i0": parts}} if parts > 1 else {})
    assert run(sharded, feed).outputs["y"] == np.float16(6e4)


@pytest.mark.parametrize("axis", [0, 1])
def test_means_of_halves_are_those_of_numpy(axis: int) -> None:
    g, feed = graph_of(lambda x: ops.mean(x, axis=axis), [WIDE])
    np.testing.assert_array_equal(evaluate(g, feed)["y"], WIDE.mean(axis))


def test_the_mean_of_more_halves_than_a_half_counts() -> None:
    x = np.ones((2, 70000), np.float16)
    g, feed = graph_of(lambda x: ops.mean(x, axis=1), [x])
    np.testing.assert_array_equal(evaluate(g, feed)["y"], x.mean(1))


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def centered(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale


def by_root(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale


def by_group(x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    rows = centered(x.reshape(2, 2, -1), np.ones(1)).reshape(x.shape)
    return rows * scale[:, None] + bias[:, None]


@pytest.mark.parametrize(
    ("build", "wanted", "arrays"),
    [
        (ops.softmax, softmax, [WIDE / np.float16(300)]),
        (ops.softmax, softmax, [np.zeros((2, 70000), np.float16)]),
        (ops.log_softmax, lambda x: np.log(softmax(x)), [WIDE / np.float16(300)]),
        (ops.layer_normalization, centered, [WIDE, SCALE]),
        (ops.rms_normalization, by_root, [WIDE, SCALE]),
        (
            lambda x, s, b: ops.group_normalization(x, s, b, groups=2),
            by_group,
            [WIDE.reshape(2, 4, 256), SCALE[:4], SCALE[4:8]],
        ),
    ],
    ids=["softmax", "long softmax", "log_softmax", "layer", "rms", "group"],
)
@pytest.mark.parametrize("devices", [1, 2])
def test_rows_of_halves_are_normalized_in_single_precision(
    build: Callable[..., Any], wanted: Callable[..., np.ndarray], arrays: list[np.ndarray], devices: int
) -> None:
    g, feed = graph_of(build, arrays)
    found = run(plan(g, Mesh((devices,))), feed).outputs["y"]
    exact = wanted(*[a.astype(np.float64) for a in arrays])
    assert found.dtype == np.float16
    least = 2.0**-24  # of halves above 0
    atol = max(least, 1e-4 * float(np.abs(exact).max()))
    np.testing.assert_allclose(found.astype(np.float64), exact, rtol=1e-3, atol=atol)


# -- parts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "arrays", "fix"),
    [
        (ops.sum, [WIDE[0] / np.float16(300)], {"sum": {"i0": 4}}),
        (ops.matmul, [WIDE / np.float16(300), WIDE.T / np.float16(300)], {"matmul": {"k": 4}}),
    ],
    ids=["sum", "matmul"],
)
def test_parts_of_halves_round_once_each(build: Callable[..., Any], arrays: list[np.ndarray], fix: Any) -> None:
    """Four parts are rounded, and three times what is merged of them."""
    g, feed = graph_of(build, arrays)
    found = run(plan(g, Mesh((4,)), fix=fix), feed).outputs["y"]
    exact = build_of(build)(*[a.astype(np.float64) for a in arrays])
    largest = build_of(build)(*[abs(a.astype(np.float64)) for a in arrays])
    assert found.dtype == np.float16 and (abs(found - exact) <= 8 * 2.0**-11 * largest).all()


def build_of(build: Callable[..., Any]) -> Callable[..., np.ndarray]:
    return np.matmul if build is ops.matmul else np.sum


LARGE = np.array([6e4, 6e4, -6e4, -6e4], np.float16)


@pytest.mark.parametrize(
    ("build", "arrays", "fix"),
    [
        (ops.sum, [LARGE], {"sum": {"i0": 2}}),
        (ops.matmul, [LARGE[None], np.ones((4, 1), np.float16)], {"matmul": {"k": 2}}),
    ],
    ids=["sum", "matmul"],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_part_beyond_float16_is_infinite_and_verify_finds_it(
    build: Callable[..., Any], arrays: list[np.ndarray], fix: Any
) -> None:
    """The limit that docs/limits.md states: the whole is 0, as NumPy's; its halves are 120,000 and -120,000."""
    g, feed = graph_of(build, arrays)
    assert evaluate(g, feed)["y"].item() == build_of(build)(*arrays).item() == 0
    split = plan(g, Mesh((2,)), fix=fix)
    assert not np.isfinite(run(split, feed).outputs["y"]).any()
    with pytest.raises(ResultMismatch):
        run(split, feed, verify=True)
    wide = Graph()
    cast = [wide.input(name, a.shape, "float16").astype("float32") for name, a in feed.items()]
    wide.output(build(*cast).astype("float16"), "y")
    assert run(plan(wide, Mesh((2,)), fix=fix), feed, verify=True).outputs["y"].item() == 0


def test_the_sigmoid_of_halves_is_that_of_their_numbers() -> None:
    """Rounded once: far from 0 too, where (1 + tanh(x/2))/2 of halves is 0."""
    x = np.linspace(-9, 9, 2001).astype(np.float16)
    g, feed = graph_of(ops.sigmoid, [x])
    exact = 1 / (1 + np.exp(-x.astype(np.float64)))
    np.testing.assert_allclose(evaluate(g, feed)["y"].astype(np.float64), exact, rtol=1e-3, atol=0)
