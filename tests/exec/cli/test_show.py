"""`tapestry show` and `tapestry ops`: pictures against points that are enumerated here, axes against NumPy."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapestry_exec.cli.expression import parse_shown
from tapestry_exec.cli.operators import SHAPES, describe_operator
from tapestry_plan.ir import BUILTIN_OPS, Signature
from tests.drawings import holders, read
from tests.exec.cli.test_cli import call


def shown(*words: object) -> str:
    result = call("show", *words)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def drawn(folder: Path, *words: object) -> dict[str, frozenset[int]]:
    """The cells of a drawing that sets hold, by name of the place."""
    shown(*words, "--svg", folder / "p.svg")
    return holders(read((folder / "p.svg").read_text()))


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("Stripe(3, 2)", lambda z: z % 5 < 3),
        ("Stripe(3, 2) & Stripe(1, 1)", lambda z: z % 5 < 3 and z % 2 == 0),
        ("Stripe(3, 2) | Stripe(1, 1)", lambda z: z % 5 < 3 or z % 2 == 0),
        ("Stripe(3, 2) - Stripe(1, 1)", lambda z: z % 5 < 3 and z % 2),
        ("Stripe(3, 2) ^ Stripe(1, 1)", lambda z: (z % 5 < 3) != (z % 2 == 0)),
        ("~Stripe(3, 2, 1)", lambda z: not (z - 1) % 5 < 3),
        ("S = Sett(Stripe(3, 2)); S.shift(1)", lambda z: (z - 1) % 5 < 3),
        ("Stripe(3, 2).complement()", lambda z: z % 5 >= 3),
        ("DisjointSetts([Sett(Stripe(1, 3)), Sett(Stripe(1, 3, 2))])", lambda z: z % 2 == 0),
    ],
)
def test_sets_of_integers(text: str, holds: Any) -> None:
    """The last line of the text is a period of the set, cell by cell."""
    line = shown(text).splitlines()[-1]
    assert set(line) <= {"1", "."} and len(line) >= 2
    assert [c == "1" for c in line] == [bool(holds(z)) for z in range(len(line))]


@pytest.mark.parametrize(
    ("text", "shape", "holds"),
    [
        ("Region((4, 6), [Stripe(2, 1), Stripe(1, 1)])", (4, 6), lambda i, j: i % 3 < 2 and j % 2 == 0),
        ("Region.from_slices((5, 5), (slice(1, 4), slice(0, 5, 2)))", (5, 5), lambda i, j: 1 <= i < 4 and j % 2 == 0),
        ("R = Region((4, 4), [Stripe(2, 2), Stripe(1, 1)]); ~R", (4, 4), lambda i, j: not (i < 2 and j % 2 == 0)),
        ("Region((4, 6), [Stripe(2, 1), Stripe(1, 1)]).transpose()", (6, 4), lambda i, j: i % 2 == 0 and j % 3 < 2),
    ],
)
def test_regions_are_drawn_point_by_point(text: str, shape: tuple[int, int], holds: Any, folder: Path) -> None:
    cells = drawn(folder, text)
    expected = {f"{i},{j}" for i, j in np.ndindex(shape) if holds(i, j)}
    assert {name for name, sets in cells.items() if sets} == expected


def test_views_are_drawn_cell_by_cell() -> None:
    rows = re.findall(r"^\d+ ([.12X]{6})$", shown("A[4, 6]; A.T[1:]; A[::2, 2:4]"), re.M)
    table = np.arange(24).reshape(4, 6)
    one, two = (np.isin(table, view) for view in (table.T[1:], table[::2, 2:4]))
    assert ["".join(row) for row in np.select([one & two, one, two], ["X", "1", "2"], ".").tolist()] == rows


AXES = {"a": 3, "b": 4, "c": 2}
coefficient = st.integers(-2, 3)


@settings(max_examples=60, deadline=None)
@given(
    forms=st.lists(st.fixed_dictionaries(dict.fromkeys([*AXES, ""], coefficient)), min_size=1, max_size=3),
    order=st.permutations([*AXES, ""]),
)
def test_projections_read_what_their_forms_say(forms: list[dict[str, int]], order: list[str]) -> None:
    """Coordinates written in any order, against the same arithmetic in Python at every index point."""

    def term(name: str, n: int) -> str:
        return f"({n} * {name})" if name else f"({n})"

    reads = ", ".join(" + ".join(term(name, form[name]) for name in order) for form in forms)
    text = f"projection(a=3, b=4, c=2, reads=[{reads}], writes=[b])"
    ((_, signature),) = parse_shown(text)
    assert isinstance(signature, Signature)
    assert [(axis.name, axis.kind) for axis in signature.axes] == [
        ("a", "reduction"),
        ("b", "parallel"),
        ("c", "reduction"),
    ]
    for point in itertools.product(*map(range, AXES.values())):
        at = dict(zip(AXES, point, strict=True))
        (read_,) = signature.inputs[0].projections
        assert read_(point).start == tuple(eval(one, {}, at) for one in _forms(forms))


def _forms(forms: list[dict[str, int]]) -> list[str]:
    return [" + ".join(f"{n} * {name or 1}" for name, n in form.items()) for form in forms]


def test_projections_divide_axes() -> None:
    ((_, signature),) = parse_shown("projection(c=12, reads=[[c // 4, c % 4], [-c + 11]], writes=[c])")
    assert isinstance(signature, Signature)
    for c in range(12):
        one, other = (operand.projections[0]([c]).start for operand in signature.inputs)
        assert (one, other) == ((c // 4, c % 4), (11 - c,))


def test_parts_of_a_product() -> None:
    """Of a product cut by its rows, each part reads all of the second operand."""
    text = shown("gemm", "--shapes", "8x6,6x4", "--parts", "m:2")
    assert "index space: m 8 (batch), n 4 (out), k 6 (in, reduction); 2 parts" in text
    assert re.search(r"input 1: b .*?in two or more: 24 of 24 cells", text, re.S)
    assert re.search(r"input 0: a .*?in two or more: 0 of 48 cells", text, re.S)


def test_models_and_plans(folder: Path) -> None:
    assert "conv" in shown("model.onnx") and shown("model.onnx", "-o", "m.svg") == shown("model.onnx")
    assert (folder / "m.svg").read_text().startswith("<svg")
    assert "; 2 parts" in shown("model.onnx", "--op", "conv", "--parts", "n:2")
    assert "; 4 parts" in shown("plan.json", "--op", "conv"), "as the plan cuts it"
    assert "x" in shown("plan.json")


# -- operators ---------------------------------------------------------------------------------------------------


def test_all_operators_are_listed() -> None:
    found = json.loads(call("ops", "--json").stdout)["operators"]
    assert [one["name"] for one in found] == sorted(BUILTIN_OPS)
    assert set(SHAPES) <= set(BUILTIN_OPS)
    for one in found:
        assert one["call"].startswith(f"{one['name']}(") and one["says"].endswith((".", "`.", ")."))
        assert one["axes"] or one["name"] in {"any"} or one["shapes"], one["name"]
    text = call("ops").stdout
    assert text.startswith(f"{len(found)} operators\n") and "+axis: summed over" in text


@pytest.mark.parametrize(
    ("words", "axes"),
    [
        (["matmul", "--shapes", "5x7,7x3"], {"m": 5, "n": 3, "k": 7}),
        (["einsum", "--shapes", "2x3x4,4x5", "--attr", "equation=bij,jk->bik"], {"b": 2, "i": 3, "k": 5, "j": 4}),
        (
            ["conv", "--shapes", "1x3x9x9,4x3x3x3", "--attr", "strides=2", "--attr", "pads=[1,1,1,1]"],
            {"n": 1, "c": 4, "h": 5, "w": 5, "ci": 3, "kh": 3, "kw": 3},
        ),
        (["sum", "--shapes", "4x5", "--attr", "axis=1"], {"i0": 4, "i1": 5}),
        (["add_n", "--shapes", "4x5,5,1x5"], {"i0": 4, "i1": 5}),
    ],
)
def test_index_axes_follow_from_shapes(words: list[str], axes: dict[str, int]) -> None:
    (found,) = json.loads(call("ops", *words, "--json").stdout)["operators"]
    assert {axis["name"]: axis["size"] for axis in found["axes"]} == axes
    assert found["name"] in call("ops", *words).stdout


def test_each_example_is_one_of_its_operator() -> None:
    """Sizes of an index space come from its operands, or from attributes."""
    for name in BUILTIN_OPS:
        one = describe_operator(name)
        known = {n for shape in one.shapes for n in shape}
        if not one.attributes and name not in ("conv", "conv_transpose"):
            assert {axis.size for axis in one.axes} <= known | {1}, name
