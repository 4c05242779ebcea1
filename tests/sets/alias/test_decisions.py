"""How answers were decided: the rung that answered, the time, and formulas that make the counts that they stand by."""

from __future__ import annotations

import ast
import re
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from tapestry_sets import Allocation, View, allocate, concatenate, contains, overlap, overlaps, tally
from tapestry_sets.alias import RUNGS, CellQuestion
from tapestry_sets.limits import decide
from tapestry_sets.limits.formulas import tidy_formula
from tapestry_sets.solvers import equation, isl
from tests.sets.alias.test_ladder import without_closed_forms
from tests.strategies import view_pairs


def value_of(formula: str) -> Any:
    """What Python makes of numbers, signs and brackets."""
    assert set(formula) <= set("0123456789+-*/() ")
    return eval(formula)


def check_tidy(formula: str) -> None:
    """No sum of two numbers, no zero in a sum, no factor of 0 or 1."""
    for node in ast.walk(ast.parse(formula, mode="eval")):
        if isinstance(node, ast.BinOp):
            numbers = [side.value for side in (node.left, node.right) if isinstance(side, ast.Constant)]
            assert 0 not in numbers, formula
            if isinstance(node.op, ast.Mult):
                assert 1 not in numbers, formula
            else:
                assert len(numbers) < 2 or isinstance(node.op, ast.FloorDiv), formula


WRITTEN = st.recursive(
    st.integers(0, 12).map(str),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(lambda x: f"({x[0]}) {x[1]} ({x[2]})"),
        st.tuples(inner, st.integers(1, 9)).map(lambda x: f"({x[0]}) // {x[1]}"),
        inner.map(lambda x: f"-({x})"),
    ),
    max_leaves=12,
)


@given(WRITTEN)
@example("-((7) // 2)")
@example("-((2 - 9 // 2)*3)")
@example("3*(2 + 5//2) - 2*(2 + 5//2)")
@example("(-((8)//4))//1")
def test_tidy_formulas_are_of_the_same_value(formula: str) -> None:
    found = tidy_formula(formula)
    assert value_of(found) == value_of(formula)
    check_tidy(found)
    again = tidy_formula(found)
    assert value_of(again) == value_of(found) and len(again) <= len(found)


def test_tidy_formulas_are_as_a_person_would_write_them() -> None:
    for formula, wanted in {
        "(2*3) + 2*3 + (5 - 0)": "2*2*3 + 5",
        "10*4 - 10*5 + 12": "2",
        "2*(3 + 4//3) - 0*7": "2*(4//3 + 3)",
        "5*((7 - 1)//2 + 1)": "5*(6//2 + 1)",
        "-5 + 3*4": "3*4 - 5",
    }.items():
        assert tidy_formula(formula) == wanted
    with pytest.raises(ValueError, match="2 \\*\\* 3 is not a sum, product or quotient"):
        tidy_formula("1 + 2**3")


def test_every_rung_says_in_words_what_it_does() -> None:
    told = [rung.ask for rungs in RUNGS.values() for rung in rungs]
    assert [ask.__name__ for ask in (*told, equation.meet, equation.count_met) if not (ask.__doc__ or "").strip()] == []
    assert all(10 < len((ask.__doc__ or "").splitlines()[0]) < 140 for ask in told)


@given(view_pairs())
def test_formulas_make_the_numbers_that_numpy_counts(
    pair: tuple[View, np.ndarray, View, np.ndarray, Allocation],
) -> None:
    one, x, two, y, _ = pair
    shared = overlap(one, two)
    size, decision = shared.size, shared.decisions["size"]
    assert size == len(np.intersect1d(x[x > 0], y[y > 0]))
    if decision.formula is not None:
        assert value_of(decision.formula) == size, decision
        check_tidy(decision.formula)
    with tally() as decided:
        for cells in one.cells.values():
            assert cells.size == len(np.unique(x[x > 0]))
    if one.cells:
        formula = decided.tell(0).formula
        assert formula is None or value_of(formula) == len(np.unique(x[x > 0]))


A = allocate((12, 10), name="A")
T = allocate((40, 40), name="T")
CASES = {
    "two strides": (A.reshape(120)[::2], A.reshape(120)[1::3]),
    "two tiles": (A[2:9, ::2], A[::3, 1:8]),
    "unions": (A.take([0, 1, 4, 5, 9, 11], axis=0)[:, :7], concatenate([A[2:5], A[9:, ::-1]])),
    "triangles": (T.tril(), T[5:30]),
    "triangle and columns": (T.tril(3), T[:, 7:]),
    "table": (A.take([7, 1, 4], axis=0), A[:5, 3:]),
    "two allocations": (concatenate([A.reshape(120)[:50], T.reshape(1600)[::2]]), concatenate([A.ravel(), T.ravel()])),
}


@pytest.mark.parametrize("case", CASES)
def test_common_counts_have_formulas(case: str) -> None:
    one, two = CASES[case]
    shared = overlap(one, two)
    formula = shared.decisions["size"].formula if shared.size else None
    assert formula is not None and value_of(formula) == shared.size == _count(one, two), shared.decisions


def _count(one: View, two: View) -> int:
    """How many cells both read, index by index."""
    return len(_cells(one) & _cells(two))


def _cells(view: View) -> set[Any]:
    return {view._read_at(index) for index in np.ndindex(*view.shape)} - {None} if view.size else set()


def test_an_answer_is_kept_with_the_time_of_its_first_deciding() -> None:
    shared = overlap(A[::2], A[:, 1:4])
    assert shared.decisions == {}
    first = (shared.size, shared.decisions["size"])
    assert not first[1].is_kept and first[1].microseconds > 0 and first[1].way == "closed form"
    again = (shared.size, shared.decisions["size"])
    assert again[0] == first[0] and again[1].is_kept and again[1].microseconds == first[1].microseconds
    assert bool(shared) and not shared.decisions["overlaps"].is_kept
    assert repr(shared) == repr(overlap(A[::2], A[:, 1:4]))  # no time, no way: the same each time
    assert "kept since" in shared.explain() and "µs" in shared.explain()
    for shown in shared._repr_mimebundle_().values():
        assert re.search(r"size: closed form, [\d.,]+ µs, kept since", shown) and "overlaps: closed form, " in shown


def test_ways_are_those_of_the_rungs_that_answered() -> None:
    pytest.importorskip("islpy")
    folded = concatenate([A.T.reshape(120)[5:60], A.reshape(120)[70:]])
    with tally() as decided:
        assert overlaps(folded, A)
    assert decided.last is not None and (decided.last.way, decided.last.rung) != ("closed form", "meet")
    assert decided.rungs[decided.last.rung] >= 1
    with without_closed_forms():
        shared = overlap(folded, A[::5])
        assert (
            shared and shared.decisions["overlaps"].rung == "meet_by_isl" and shared.decisions["overlaps"].way == "isl"
        )
        big = allocate((400, 300))
        mine, theirs = (replace(view.cells[big], held=None) for view in (big[:, ::7], big[3::5]))
        with patch.object(isl, "available", lambda: False):
            answer, kept, spent = decide(mine.meets, theirs)
        assert answer and (kept.tell(spent).way, kept.tell(spent).rung) == ("list", "meet_by_list")


def test_what_strided_views_are_asked_by_is_told() -> None:
    shared = overlap(A[::2], A[1::2])
    assert not shared and shared.decisions["overlaps"].rung == "meet"
    assert "linear equation" in shared.decisions["overlaps"].words
    apart = overlap(A, T)
    assert (
        not apart
        and apart.decisions["overlaps"].rung == ""
        and "nothing to decide" in repr(apart.decisions["overlaps"])
    )


def test_a_tally_tells_of_the_last_question() -> None:
    with tally() as decided:
        assert decided.last is None
        assert contains(T.tril(), T.tril(-1))
        assert decided.last is not None and decided.last.rung in {r.ask.__name__ for r in RUNGS[CellQuestion.SUBSET]}
        assert overlap(A[::2], A).size == 60 and decided.total == 2


def test_an_answer_that_is_refused_is_not_kept() -> None:
    shared = overlap(A[::2], A[:, 1:4])
    with patch.object(equation, "count_met", side_effect=RuntimeError("a fault")), pytest.raises(RuntimeError):
        _ = shared.size
    assert "size" not in shared.decisions and shared.size == 18 and not shared.decisions["size"].is_kept
