"""Affine maps of MLIR: published ones, against what LLVM's own tests say, and against Python's arithmetic."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets import AffineMap, Box, IndexProjection, from_mlir, to_mlir

PUBLISHED = [
    # https://mlir.llvm.org/docs/Dialects/Affine, "Dimensions and Symbols" and "Named affine mappings"
    "affine_map<(d0, d1)[s0] -> (d0, d1 + s0, d1 - s0)>",
    "affine_map<(d0, d1)[s0] -> (d0, d0 + d1 + s0 floordiv 2)>",
    # llvm-project, mlir/test/IR/affine-map.mlir
    "affine_map<() -> (0)>",
    "affine_map<() -> ()>",
    "affine_map<(i, j)[s0] -> (i + 2*6 + 5*(j+s0*3), j)>",
    "affine_map<(i, j)[N] -> (i, 2 + N*N*9*i + 1)>",
    "affine_map<(i, j)[s0, s1] -> (i*(s0*s1), j)>",
    "affine_map<(i, j)[s0, s1] -> (i, j mod 5)>",
    "affine_map<(i, j)[s0, s1] -> (i, j floordiv 5)>",
    "affine_map<(i, j)[M, N] -> (i, i - N*j + 2)>",
    "affine_map<(i, j)[s0, s1] -> (-5*i, -3*j, -2, -1*(i+j), -1*s0)>",
    "affine_map<(i, j)[s0, s1] -> (i, j floordiv s0, j mod s0)>",
    "affine_map<(i, j, k)[s0, s1, s2] -> (i*s1*s2 + j*s1 + k)>",
    "affine_map<(i, j)[M, N] -> (i*M, M + i, 2+i, j*2, N*2, 2 + M)>",
    "affine_map<(i, j) -> (i - 2*j, j * 6 floordiv 4)>",
    "affine_map<(i, j, k) [N] -> (1 + i + 3 + j - 3 + k, k + 5 + j - 5, 2*i*4*N)>",
    "affine_map<(d0, d1)[step, loc] -> (step - d0, loc - d1)>",
    "affine_map<(d0, d1)[mod, floordiv] -> (mod floordiv 2 - d0, floordiv mod 3 - d1)>",
    "affine_map<(d0, d1)[mod, floordiv] -> (floordiv floordiv 2 - d0, mod mod 3 - d1)>",
    "affine_map<(i0, i1)[mod] -> (i0 + i1 + mod)>",
    "affine_map<(d0) -> (d0 + ((d0 floordiv 4) - 4))>",
    # the layout of a tile, as MLIR's documentation of memref has it
    "affine_map<(d0, d1) -> (d0 floordiv 32, d1 floordiv 64, d0 mod 32, d1 mod 64)>",
]

SAME = [
    # given -> what FileCheck expects mlir-opt to print, same file
    ("(i, j) -> (2 + 3 - 2*2 + i, 4*j + 2)", "(d0, d1) -> (d0 + 1, d1 * 4 + 2)"),
    ("(i, j) -> (1*i+3*2-2*2-1, 4*j + 2)", "(d0, d1) -> (d0 + 1, d1 * 4 + 2)"),
    ("(i, j) -> (i + 1, 2*j*2 + 2)", "(d0, d1) -> (d0 + 1, d1 * 4 + 2)"),
    ("(i, j) -> (-2+-5-(-3), -1*i)", "(d0, d1) -> (-4, -d0)"),
    ("(i, j) -> (5+3, 2*2, 8-7, 100 floordiv 32, 5 mod 3, 10 ceildiv 3)", "(d0, d1) -> (8, 4, 1, 3, 2, 4)"),
    ("(i, j) -> (5 mod 3 + 2, 5*3 - 4, 128 * (500 ceildiv 128), 40 floordiv 7 * 3)", "(d0, d1) -> (4, 11, 512, 15)"),
    ("(i, j, k) -> (i*0, 1*j, i * 128 floordiv 64, j * 0 floordiv 64)", "(d0, d1, d2) -> (0, d1, d0 * 2, 0)"),
    (
        "(i, j, k) -> (i * 64 ceildiv 64, i * 512 ceildiv 128, 4 * j mod 4, 4*j*4 mod 8, k mod 1)",
        "(d0, d1, d2) -> (d0, d0 * 4, 0, 0, 0)",
    ),
    ("(i) -> (-5 floordiv 3, -5 mod 3, -5 ceildiv 3)", "(d0) -> (-2, 1, -1)"),
    ("(d0) -> (d0 - (d0 + 1))", "(d0) -> (-1)"),
    (
        "(d0, d1) -> (d0 - d0 + d1, -d0 + d0 + d0, (1 + d0 + d1 floordiv 4) - (d0 + d1 floordiv 4 + 1))",
        "(d0, d1) -> (d1, d0, 0)",
    ),
    (
        "(d0, d1) -> (4*d0 - 2*d0 + d0, (d0 + d1) + (d0 + d1), 2 * (d0 mod 2) - d0 mod 2)",
        "(d0, d1) -> (d0 * 3, d0 * 2 + d1 * 2, d0 mod 2)",
    ),
    ("(d0, d1) -> ((d0 mod 35) mod 5, d1)", "(d0, d1) -> (d0 mod 5, d1)"),
]


class Int(int):
    """An integer whose `@` is MLIR's ceildiv: as strong as `*` and from left to right."""

    def __matmul__(self, other: int) -> Int:
        return Int(-(-int(self) // int(other)))


for _name in ("add", "sub", "mul", "floordiv", "mod", "neg"):

    def _wrapped(self: Int, *other: int, _name: str = f"__{_name}__") -> Int:
        return Int(getattr(int, _name)(self, *other))

    setattr(Int, f"__{_name}__", _wrapped)


def evaluate(text: str, point: tuple[int, ...], symbols: dict[str, int]) -> tuple[int, ...]:
    """An affine map by Python's own arithmetic: the same precedence, floors and remainders."""
    inner = text.removeprefix("affine_map<").removesuffix(">") if text.startswith("affine_map") else text
    head, _, body = inner.partition("->")
    dims, _, declared = head.partition("[")
    names = re.findall(r"[A-Za-z]\w*", dims)
    values = dict(zip(names, map(Int, point), strict=True)) | {s: Int(symbols[s]) for s in re.findall(r"\w+", declared)}
    spelled, operand = [], True
    for token in re.findall(r"\d+|[A-Za-z]\w*|\S", body):
        if operand or token not in ("mod", "floordiv", "ceildiv"):
            spelled.append(f"Int({values.get(token, token)})" if re.fullmatch(r"\w+", token) else token)
        else:
            spelled.append({"mod": "%", "floordiv": "//", "ceildiv": "@"}[token])
        operand = not (re.fullmatch(r"\w+", token) and operand) and token != ")"
    results = eval("".join(spelled), {"Int": Int})
    return tuple(map(int, results)) if isinstance(results, tuple) else (int(results),)


def rank_of(text: str) -> int:
    return len(re.findall(r"\w+", text.partition("(")[2].partition(")")[0]))


SYMBOLS = {"s0": 3, "s1": 2, "s2": 5, "N": 4, "M": 6, "step": 7, "loc": 1, "mod": 9, "floordiv": 11}


@pytest.mark.parametrize("text", PUBLISHED)
def test_published_maps(text: str) -> None:
    p = from_mlir(text, symbols=SYMBOLS)
    for point in product(range(-5, 9, 2), repeat=rank_of(text)):
        assert p(point).start == evaluate(text, point, SYMBOLS)
    written = to_mlir(p)
    assert from_mlir(written) == p and to_mlir(from_mlir(written)) == written


@pytest.mark.parametrize(("given_text", "printed"), SAME)
def test_what_llvm_simplifies_is_read_as_the_same_map(given_text: str, printed: str) -> None:
    p = from_mlir(f"affine_map<{given_text}>")
    assert p == from_mlir(printed)
    assert to_mlir(p) == f"affine_map<{printed}>"


def expressions(names: list[str]) -> st.SearchStrategy[str]:
    """Affine expressions whose divisions are of multiples of one dimension, as splits must be."""
    dims = st.sampled_from(names) if names else st.just("3")
    q = st.integers(1, 6).map(str)
    words = st.sampled_from(["floordiv", "mod"])
    split = st.builds(lambda d, w, n: f"{d} {w} {n}", dims, words, q)
    small = st.integers(1, 4)  # g·d + g·h·k·d, divided by g·h
    scaled = st.builds(
        lambda d, g, h, k, w: f"({d} * {g + g * h * k}) {w} {g * h}", dims, small, small, st.integers(0, 2), words
    )
    nested = st.builds(lambda d, g, h, v, w: f"({d} {v} {g * h}) {w} {h}", dims, small, small, words, words)
    leaf = dims | st.integers(0, 9).map(str) | split | scaled | nested
    more = st.builds(lambda a, s, c, b: f"{a} {s} {c} * ({b})", leaf, st.sampled_from("+-"), st.integers(0, 5), leaf)
    return leaf | more | more.map(lambda e: f"-({e}) + 2")


@given(st.data(), st.integers(0, 3))
def test_any_map_equals_pythons_arithmetic_and_comes_back(data: st.DataObject, rank: int) -> None:
    names = [f"d{k}" for k in range(rank)]
    results = data.draw(st.lists(expressions(names), max_size=3))
    text = f"affine_map<({', '.join(names)}) -> ({', '.join(results)}{',' if len(results) == 1 else ''})>"
    text = text.replace(",)>", ")>")
    p = from_mlir(text)
    for point in data.draw(st.lists(st.tuples(*[st.integers(-20, 20)] * rank), min_size=1, max_size=5)):
        assert p(point).start == (evaluate(text, point, {}) if results else ())
    assert from_mlir(to_mlir(p)) == p


@given(st.data())
def test_any_projection_to_points_comes_back_as_the_same_map(data: st.DataObject) -> None:
    rank, out = data.draw(st.integers(1, 3)), data.draw(st.integers(0, 3))
    splits = tuple(data.draw(st.lists(st.tuples(st.integers(0, rank - 1), st.integers(1, 5)), max_size=3)))
    width = rank + 2 * len(splits)
    number = st.integers(-(10**12), 10**12)
    rows = tuple(tuple(data.draw(st.lists(number, min_size=width, max_size=width))) for _ in range(out))
    offset = tuple(data.draw(number) for _ in range(out))
    p = IndexProjection(AffineMap(rows, offset, width), (1,) * out, splits)
    back = from_mlir(to_mlir(p))
    for point in data.draw(st.lists(st.tuples(*[st.integers(-(10**9), 10**9)] * rank), max_size=5)):
        assert back(point) == p(point)
    assert from_mlir(to_mlir(back)) == back and to_mlir(from_mlir(to_mlir(back))) == to_mlir(back)


@pytest.mark.parametrize(
    ("maps", "forms"),
    [  # https://mlir.llvm.org/docs/Dialects/Linalg: the indexing maps of matmul, and of a convolution of one dimension
        (["(d0, d1, d2) -> (d0, d2)", "(d0, d1, d2) -> (d2, d1)", "(d0, d1, d2) -> (d0, d1)"], ["mk", "kn", "mn"]),
        (["(d0, d1) -> (d0 + d1)", "(d0, d1) -> (d1)", "(d0, d1) -> (d0)"], None),
    ],
    ids=["matmul", "conv_1d"],
)
def test_indexing_maps_of_linalg(maps: list[str], forms: list[str] | None) -> None:
    for k, text in enumerate(maps):
        p = from_mlir(text)
        assert to_mlir(p) == f"affine_map<{text}>"
        if forms is not None:
            assert p((2, 3, 5)).start == tuple({"m": 2, "n": 3, "k": 5}[axis] for axis in forms[k])
    assert from_mlir("(d0, d1) -> (d0 + d1)").image(Box.of((10**9, 3))).size == 10**9 + 2


def test_blocks_are_said_beside_the_map() -> None:
    p = from_mlir("(d0, d1) -> (d0 * 2 - 1, d1)", shape=(3, 1))
    assert p((1, 5)) == Box((1, 5), (3, 1))
    with pytest.raises(ValueError, match="blocks of shape"):
        to_mlir(p)


@pytest.mark.parametrize(
    ("text", "at", "message"),
    [
        ("affine_map<(d0) -> (d0 * d0)>", 23, "constant on one side"),
        ("affine_map<(d0, d1) -> ((d0 + d1) floordiv 4)>", 34, "does not split a single index axis"),
        ("affine_map<(d0) -> ((d0 + 1) mod 4)>", 29, "does not split a single index axis"),
        ("affine_map<(d0) -> (d0 ceildiv 4)>", 23, "does not split a single index axis"),
        ("affine_map<(d0) -> (d0 mod 0)>", 23, "must be positive"),
        ("affine_map<(d0) -> (d0 floordiv -1)>", 23, "must be positive"),
        ("affine_map<(d0) -> (7 mod d0)>", 22, "constant on its right"),
        ("affine_map<(d0)[s0] -> (d0 + s0)>", 29, "has no value"),
        ("affine_map<(d0) -> (d1)>", 20, "'d1' is not a dimension or symbol; known dimensions and symbols: 'd0'"),
        ("affine_map<(d0, d0) -> (d0)>", 16, "declared twice"),
        ("affine_map<(d0) -> (d0)", 23, "the map ends where '>' is needed"),
        ("affine_map<(d0) -> (d0", 22, "the map ends where ',' is needed"),
        ("affine_map<(d0) -> (d0 +)>", 24, "')' is not a dimension"),
        ("affine_map<(d0) -> (d0)> x", 25, "after the end"),
        ("affine_map<(d0) : (d0 >= 0)>", 16, "cannot be part of an affine map"),
        ("affine_map<(d0) -> (d0 ? 1)>", 23, "'?' cannot be part of an affine map"),
        ("(2) -> (d0)", 1, "where a name is needed"),
        ("", 0, "the map ends where '(' is needed"),
        ("() -> (" + "(" * 500 + "1" + ")" * 500 + ")", 107, "nested parentheses"),
        ("() -> (" + "9" * 5000 + ")", 7, "5000 digits"),
    ],
)
def test_errors_say_where(text: str, at: int, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        from_mlir(text)
    assert f"character {at}:" in str(raised.value)


@pytest.mark.parametrize(("symbols", "message"), [({"s0": 1.5}, "s0"), ({"s0": "4"}, "s0")])
def test_symbols_are_integers(symbols: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        from_mlir("(d0)[s0] -> (d0 + s0)", symbols=symbols)
    with pytest.raises(TypeError, match="text of an affine map"):
        from_mlir(7)  # type: ignore[arg-type]
