"""Random numbers by index: against Philox in plain integers, published answers, and slices of the whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_exec import run
from tapestry_plan import Graph, Mesh, Tensor, plan
from tapestry_plan.ops import bernoulli, dropout, integers, normal, uniform
from tapestry_plan.ops.random.philox import philox, region_words, words
from tests.oracles import philox_of_integers

WORDS = st.integers(0, 2**32 - 1)
KNOWN = [
    ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
"""Random123's kat_vectors of philox4x32-10."""


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_the_published_answers(counter: tuple[int, ...], key: tuple[int, int], answer: tuple[int, ...]) -> None:
    made = philox(np, [np.array([word], np.uint64) for word in counter], key)
    assert tuple(made[0].tolist()) == answer == philox_of_integers(counter, key)


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4), st.tuples(WORDS, WORDS))
def test_words_of_counters_of_64_bits(counters: list[int], key: tuple[int, int]) -> None:
    made = words(np, np.array(counters, np.uint64), key)
    assert made.dtype == np.uint32
    for row, counter in zip(made.tolist(), counters, strict=True):
        assert tuple(row) == philox_of_integers((counter % 2**32, counter >> 32, 0, 0), key)


@st.composite
def boxes(draw: st.DrawFn) -> tuple[list[int], list[int], list[int]]:
    extents = draw(st.lists(st.integers(1, 7), max_size=3))
    start = [draw(st.integers(0, n - 1)) for n in extents]
    return start, [draw(st.integers(1, n - a)) for n, a in zip(extents, start, strict=True)], extents


@given(boxes(), st.integers(1, 4), st.tuples(WORDS, WORDS))
def test_a_region_is_a_slice_of_the_whole(
    box: tuple[list[int], list[int], list[int]], each: int, key: tuple[int, int]
) -> None:
    start, shape, extents = box
    made = region_words(np, start, shape, extents, key, each)
    assert made.shape == (*shape, each)
    for index in np.ndindex(*shape):
        cell = 0
        for axis, n in enumerate(extents):
            cell = cell * n + start[axis] + index[axis]
        wanted = [
            philox_of_integers((k // 4 % 2**32, k // 4 >> 32, 0, 0), key)[k % 4]
            for k in range(cell * each, (cell + 1) * each)
        ]
        assert made[index].tolist() == wanted


def test_cells_far_out_have_counters_of_their_own() -> None:
    """Row-major numbers beyond 2³² use the counter's second word."""
    extents = (10**9, 10**6)
    made = region_words(np, (999_999_999, 999_998), (1, 2), extents, (5, 6))
    for k, word in enumerate(made.ravel().tolist()):
        cell = 999_999_999 * 10**6 + 999_998 + k
        assert word == philox_of_integers((cell // 4 % 2**32, cell // 4 >> 32, 0, 0), (5, 6))[cell % 4]


Maker = Callable[[Graph], Tensor]
SHAPE = (9, 5, 8)
MAKERS: dict[str, Maker] = {
    "uniform": lambda g: uniform(g, SHAPE, -2.0, 3.0, seed=1),
    "uniform64": lambda g: uniform(g, SHAPE, seed=1, dtype="float64"),
    "normal": lambda g: normal(g, SHAPE, 1.0, 2.0, seed=2),
    "normal64": lambda g: normal(g, SHAPE, seed=2, dtype="float64"),
    "bernoulli": lambda g: bernoulli(g, SHAPE, 0.3, seed=3),
    "integers": lambda g: integers(g, SHAPE, -7, 2**31, seed=4),
    "dropout": lambda g: dropout(uniform(g, SHAPE, 1.0, 2.0, seed=9), 0.4, seed=5),
}


def made_by(make: Maker, parts: dict[str, int]) -> np.ndarray:
    g = Graph()
    out = g.output(make(g), "out")
    op = next(name for name, node in g.nodes.items() if out.name in node.outputs)
    devices = int(np.prod(list(parts.values())))
    return np.asarray(run(plan(g, Mesh((devices,)), fix={op: parts}), {}, verify=True).outputs["out"])


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("axis", ["i0", "i1", "i2"])
def test_every_sharding_makes_the_same_bits(name: str, axis: str) -> None:
    whole = made_by(MAKERS[name], {})
    for parts in (2, 3, 5):
        shard = made_by(MAKERS[name], {axis: parts})
        assert shard.dtype == whole.dtype and shard.tobytes() == whole.tobytes()
    assert made_by(MAKERS[name], {"i0": 2, "i2": 3}).tobytes() == whole.tobytes()


def test_uniforms_are_the_words() -> None:
    """As Random123 converts them: the upper 24 bits of one word, or 53 bits of two."""
    g = Graph()
    g.output(uniform(g, (3, 5), seed=11, stream=12), "a")
    g.output(uniform(g, (3, 5), seed=11, stream=12, dtype="float64"), "b")
    outputs = run(plan(g, Mesh((1,))), {}).outputs
    key = (11, 12)
    for cell in range(15):
        word = philox_of_integers((cell // 4, 0, 0, 0), key)[cell % 4]
        assert float(outputs["a"].ravel()[cell]) == (word >> 8) / 2**24
        two = philox_of_integers((cell // 2, 0, 0, 0), key)[cell % 2 * 2 : cell % 2 * 2 + 2]
        assert float(outputs["b"].ravel()[cell]) == ((two[0] >> 5) * 2**26 + (two[1] >> 6)) / 2**53


def draw(make: Callable[[Graph, tuple[int, ...]], Tensor], n: int = 200_000) -> np.ndarray:
    g = Graph()
    g.output(make(g, (n,)), "out")
    return np.asarray(run(plan(g, Mesh((1,))), {}).outputs["out"], np.float64)


def test_what_is_drawn_has_the_moments_of_its_distribution() -> None:
    """Five standard errors of 200,000 draws; the draws are fixed."""
    n = 200_000
    u = draw(lambda g, shape: uniform(g, shape, -2, 4, seed=1))
    assert abs(u.mean() - 1) < 5 * np.sqrt(3 / n) and abs(u.var() - 3) < 0.03 and u.min() >= -2 and u.max() < 4
    x = draw(lambda g, shape: normal(g, shape, 5, 3, seed=2))
    z = (x - 5) / 3
    assert abs(z.mean()) < 5 / np.sqrt(n) and abs(z.var() - 1) < 5 * np.sqrt(2 / n)
    assert abs((z**3).mean()) < 5 * np.sqrt(15 / n) and abs((z**4).mean() - 3) < 5 * np.sqrt(96 / n)
    assert abs(draw(lambda g, shape: bernoulli(g, shape, 0.3, seed=3)).mean() - 0.3) < 5 * np.sqrt(0.21 / n)
    counts = np.bincount(draw(lambda g, shape: integers(g, shape, 0, 10, seed=4)).astype(int), minlength=10)
    assert ((counts - n / 10) ** 2 / (n / 10)).sum() < 33.7  # chi-squared of 9 degrees, one in 10,000
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 5 / np.sqrt(n)


def test_probabilities_at_the_ends() -> None:
    assert draw(lambda g, shape: bernoulli(g, shape, 1.0, seed=3), 1000).all()
    assert not draw(lambda g, shape: bernoulli(g, shape, 0.0, seed=3), 1000).any()
    assert (draw(lambda g, shape: integers(g, shape, 4, 5, seed=3), 1000) == 4).all()
    wide = draw(lambda g, shape: integers(g, shape, 0, 2**32, seed=3), 1000)
    assert wide.max() > 0.9 * 2**32 and wide.min() < 0.1 * 2**32


def test_high_is_never_reached_by_rounding() -> None:
    x = draw(lambda g, shape: uniform(g, shape, 2.0**24 - 1, 2.0**24, seed=1), 10_000)
    assert x.max() == 2**24 - 1


def test_dropout_keeps_and_scales() -> None:
    g = Graph()
    x = g.input("x", (50, 40))
    g.output(dropout(x, 0.25, seed=5), "y")
    given_x = np.linspace(1, 2, 2000, dtype=np.float32).reshape(50, 40)
    y = run(plan(g, Mesh((1,))), {"x": given_x}).outputs["y"]
    assert set(np.unique(y == 0)) == {False, True}
    assert abs((y == 0).mean() - 0.25) < 5 * np.sqrt(0.1875 / 2000)
    np.testing.assert_array_equal(y[y != 0], (given_x * np.float32(1 / 0.75))[y != 0])


def test_streams_are_apart_and_kept() -> None:
    g = Graph()
    a, b = uniform(g, (100,), seed=1), uniform(g, (100,), seed=1)
    c, d = uniform(g, (100,), seed=2), uniform(g, (100,), seed=1, stream=0)
    for label, tensor in zip("abcd", (a, b, c, d), strict=True):
        g.output(tensor, label)
    out = run(plan(g, Mesh((1,))), {}).outputs
    assert (out["a"] == out["d"]).all() and (out["a"] != out["b"]).mean() > 0.9 and (out["a"] != out["c"]).mean() > 0.9
    again = Graph.from_json(g.to_json())
    assert [node.attrs for node in again.nodes.values()] == [node.attrs for node in g.nodes.values()]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda g: uniform(g, (3,), seed=-1), r"uniform 'uniform': seed=-1 must be an integer in \[0, 2\*\*32\)"),
        (lambda g: uniform(g, (3,), seed=2**32), "seed=4294967296 must be"),
        (lambda g: uniform(g, (3,), seed=2**70), "must be an integer in"),
        (lambda g: uniform(g, (3, 0), seed=1), r"uniform 'uniform': shape \(3, 0\) must hold integers >= 1"),
        (lambda g: uniform(g, (3,), 2, 2, seed=1), "low < high"),
        (lambda g: uniform(g, (3,), 0, 1e-50, seed=1), "apart in float32"),
        (lambda g: uniform(g, (3,), -3e38, 3e38, seed=1), "not by infinity"),
        (lambda g: uniform(g, (2**40, 2**30), seed=1), r"more than 2\*\*60 numbers"),
        (lambda g: uniform(g, (3,), 0, float("inf"), seed=1), "must be finite"),
        (
            lambda g: uniform(g, (3,), seed=1, dtype="int32"),
            "uniform 'uniform': dtype 'int32' must be float32 or float64",
        ),
        (lambda g: normal(g, (3,), 0, -1, seed=1), "scale >= 0"),
        (lambda g: bernoulli(g, (3,), 1.5, seed=1), "p=1.5 must be a probability"),
        (lambda g: integers(g, (3,), 5, 5, seed=1), r"low=5 and high=5: .* holds 0 integers"),
        (lambda g: integers(g, (3,), 0, 2**32 + 1, seed=1), "from 1 to"),
        (lambda g: integers(g, (3,), 0, 200, seed=1, dtype="int8"), "do not fit int8"),
        (lambda g: dropout(g.input("x", (3,)), 1.0, seed=1), r"rate=1.0 must be in \[0, 1\)"),
        (lambda g: dropout(g.input("x", (3,), "int32"), 0.5, seed=1), "operand 0 is int32"),
    ],
)
def test_wrong_input(make: Callable[[Graph], Any], message: str) -> None:
    g = Graph()
    with pytest.raises(ValueError, match=message):
        make(g)
    assert not g.nodes
