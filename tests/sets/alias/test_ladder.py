"""The ladder of ways: each rung alone is right or leaves the question open, and a fault in one is not passed over."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeGuard
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given

import tapestry_sets
from tapestry_sets import Allocation, TooHard, TooManyPieces, View, allocate, concatenate, overlap, overlaps, tally
from tapestry_sets.alias.ladder.cells import Cells
from tapestry_sets.alias.ladder.rungs import RUNGS, CellQuestion
from tapestry_sets.limits import OPEN, Open, Rung, ask_one
from tapestry_sets.solvers import isl
from tests.strategies import view_pairs

Fault = Callable[..., Any]

ASK: dict[CellQuestion, Callable[[Cells, Cells], Any]] = {
    CellQuestion.EMPTY: lambda a, b: a.is_empty,
    CellQuestion.SIZE: lambda a, b: a.size,
    CellQuestion.EXPLICIT: lambda a, b: a.explicit(),
    CellQuestion.RUN: lambda a, b: a.is_run(),
    CellQuestion.INDEX: lambda a, b: a.index_of((0, 0)),
    CellQuestion.NUMBER: lambda a, b: a.a_common_cell(b),
    CellQuestion.MEETS: lambda a, b: a.meets(b),
    CellQuestion.SUBSET: lambda a, b: a.issubset(b),
    CellQuestion.COUNT: lambda a, b: a.count_common(b),
    CellQuestion.BESIDE: lambda a, b: a.cell_beside(b),
}
EACH = [
    pytest.param(question, k, id=f"{question.name}-{rung.ask.__name__}")
    for question in RUNGS
    for k, rung in enumerate(RUNGS[question])
]


def without_closed_forms() -> Any:
    """Leave whether two views meet to isl and to lists."""
    return patch.dict(
        RUNGS, {q: tuple(r for r in RUNGS[q] if r.help) for q in (CellQuestion.MEETS, CellQuestion.NUMBER)}
    )


def two_cells() -> tuple[Cells, Cells]:
    home = allocate((12, 35))
    return home[::2, ::3].cells[home], home[1::3, 5:].cells[home]


def planted(question: CellQuestion, k: int, error: Exception) -> Any:
    """Let the rung k raise, and leave those before it open."""

    def fail(*about: object) -> None:
        raise error

    def leave_open(*about: object) -> Open:
        return OPEN

    rungs = list(RUNGS[question])
    rungs[:k] = [rung._replace(ask=leave_open) for rung in rungs[:k]]
    rungs[k] = rungs[k]._replace(ask=fail)
    return patch.dict(RUNGS, {question: tuple(rungs)})


@pytest.mark.parametrize(("question", "k"), EACH)
def test_a_fault_in_a_rung_reaches_the_caller(question: CellQuestion, k: int) -> None:
    with planted(question, k, RuntimeError("a fault")), pytest.raises(RuntimeError, match="a fault"):
        ASK[question](*two_cells())


@pytest.mark.parametrize(("question", "k"), EACH)
def test_what_a_rung_may_not_refuse_with_reaches_the_caller(question: CellQuestion, k: int) -> None:
    """A public error that the table does not name for the rung is a fault, and so is what only looks like one."""
    for kind in {TooHard, TooManyPieces, ValueError} - set(RUNGS[question][k].refusals):
        with planted(question, k, kind("not by this rung")), pytest.raises(kind, match="not by this rung"):
            ASK[question](*two_cells())


@pytest.mark.parametrize("question", RUNGS)
def test_what_isl_said_is_told_where_no_rung_answers(question: CellQuestion) -> None:
    def refuse(rung: Rung) -> Rung:
        def fail(*about: object) -> Any:
            if rung.refusals:
                raise rung.refusals[0](f"said by {rung.help or 'a closed form'}")
            return OPEN

        return rung._replace(ask=fail)

    with patch.dict(RUNGS, {question: tuple(map(refuse, RUNGS[question]))}):
        said = "too many setts" if question is CellQuestion.EXPLICIT else "said by isl"
        with pytest.raises((TooHard, TooManyPieces), match=said):
            ASK[question](*two_cells())


@given(view_pairs())
def test_each_rung_alone_is_right_or_leaves_the_question_open(
    pair: tuple[View, np.ndarray, View, np.ndarray, Allocation],
) -> None:
    one, x, two, y, home = pair
    if home in one.cells and home in two.cells:
        mine, theirs = (set((values[values > 0] - 1).tolist()) for values in (x, y))
        check_rungs(one.cells[home], mine, two.cells[home], theirs)


def check_rungs(a: Cells, mine: set[int], b: Cells, theirs: set[int]) -> None:
    both = mine & theirs
    for z in answers(CellQuestion.NUMBER, a, b):
        assert z in both if both else z is None
    for z in answers(CellQuestion.BESIDE, a, b):
        assert z in mine - theirs if mine - theirs else z is None
    wanted = {
        CellQuestion.MEETS: bool(both), CellQuestion.SUBSET: mine <= theirs, CellQuestion.COUNT: len(both),
    }  # fmt: skip
    for question, right in wanted.items():
        assert set(answers(question, a, b)) <= {right}
    alone = {
        CellQuestion.EMPTY: not mine,
        CellQuestion.SIZE: len(mine),
        CellQuestion.RUN: max(mine) - min(mine) < len(mine),
    }
    for question, right in alone.items():
        assert set(answers(question, a)) <= {right}
    for setts in answers(CellQuestion.EXPLICIT, a):
        assert set(setts.elements(0, a.extent).tolist()) == mine


def answers(question: CellQuestion, *about: Any) -> Iterator[Any]:
    """What those rungs answer that do not leave the question open."""
    for rung in RUNGS[question]:
        if rung.help != "isl" or isl.available():
            answer = ask_one(rung.refusals, rung.ask, *about)
            if answer is not OPEN:
                yield answer


def test_a_tally_names_the_rungs_that_decided() -> None:
    A = allocate((6, 6))
    with tally() as decided:
        assert overlap(A.diagonal(), concatenate([A[2:4], A[5:]])).size == 3  # not strided: these go by no equation
    assert decided.rungs["meet_closed"] == 1 and sum(decided.rungs.values()) > 2
    with without_closed_forms(), tally() as decided:
        assert not overlaps(allocate((9,)).sliding_windows(3)[::4], allocate((9,)))
    assert decided.total == 1


def test_public_errors_are_caught_in_the_loop_alone() -> None:
    """No `except` and no `suppress` of the packages names them, but where the loop catches what its rung may raise."""
    found = []
    for path, text in _list_catching():
        for node in ast.walk(ast.parse(text)):
            caught = [node.type] if isinstance(node, ast.ExceptHandler) and node.type else []
            if _is_suppress(node):
                caught = node.args
            names = {
                name
                for kind in caught
                for name in ("TooHard", "TooManyPieces", "REFUSALS", "refusals")
                if name in ast.unparse(kind)
            }
            found += [(path.name, name) for name in names]
    assert sorted(found) == [("climb.py", "refusals")] * 3


SWALLOW = {
    "tapestry_exec/cuda/backend.py: _begin",  # what ended it is raised
    "tapestry_exec/dask/backend.py: _submit",
    "tapestry_exec/run/stores.py: _find_damaged",
    "tapestry_plan/onnx/replacing/lasting.py: count_rounds",
    "tapestry_sets/limits/formulas.py: read_formula",
    "tapestry_plan/onnx/replacing/rounds.py: _agrees",
    "tapestry_plan/onnx/replacing/rounds.py: find_cut",
    "tapestry_plan/rewrite/equals.py: list_equal_by_chance",
    "tapestry_plan/onnx/replacing/whole.py: bind_without_cells",
    "tapestry_plan/onnx/replacing/whole.py: check_runs",
    "tapestry_exec/cli/commands.py: _planned_before",
    "tapestry_exec/cli/operators.py: _parse_value",
    "tapestry_exec/cli/operators.py: make_operation",
    "tapestry_exec/cli/operators.py: _is_taken",
    "tapestry_exec/cli/saved.py: complete_stages",
    "tapestry_exec/cli/terminal.py: _end_quietly",
    "tapestry_exec/cli/expression.py: _declaration",
    "tapestry_exec/cli/expression.py: _try",
    "tapestry_exec/cli/planning.py: _parse_boxes",
    "tapestry_exec/cuda/recording.py: abandon",
    "tapestry_exec/dask/backend.py: __init__",
    "tapestry_exec/dask/backend.py: _end",
    "tapestry_exec/dask/backend.py: close",
    "tapestry_exec/dask/backend.py: run",
    "tapestry_exec/dask/member.py: serve",
    "tapestry_exec/dask/stream.py: is_on",
    "tapestry_exec/dask/stream.py: show",
    "tapestry_exec/mpi/backend.py: _end_together",
    "tapestry_exec/mpi/backend.py: _look_around",
    "tapestry_exec/mpi/gpus.py: join",
    "tapestry_exec/mpi/gpus.py: join_aside",
    "tapestry_exec/mpi/gpus.py: over",
    "tapestry_exec/mpi/gpus.py: watch",
    "tapestry_exec/onnxruntime/backend.py: _open_model",
    "tapestry_exec/run/parts.py: make_portable",
    "tapestry_exec/processes/worker.py: serve",
    "tapestry_exec/run/check.py: _check_kind",
    "tapestry_exec/run/checkpoints/folders.py: _is_over",
    "tapestry_exec/run/checkpoints/folders.py: find_plan",
    "tapestry_exec/run/checkpoints/folders.py: list_begun",
    "tapestry_exec/run/checkpoints/folders.py: list_finished",
    "tapestry_exec/run/checkpoints/saving.py: find_last",
    "tapestry_exec/run/sessions.py: __init__",
    "tapestry_exec/run/sessions.py: closing",
    "tapestry_exec/run/sessions.py: _run_on_devices",
    "tapestry_exec/run/sessions.py: _run_where_it_stays",
    "tapestry_exec/run/room.py: _groups_limits",
    "tapestry_exec/run/room.py: _host_limits",
    "tapestry_exec/run/ways/threads.py: _work",
    "tapestry_exec/run/ways/threads.py: _work_together",
    "tapestry_exec/run/room.py: _left_in_group",
    "tapestry_exec/run/room.py: _own_limits",
    "tapestry_exec/run/stores.py: is_portable",
    "tapestry_plan/ir/tensors.py: check_dtype",
    "tapestry_plan/onnx/inputs.py: unread",
    "tapestry_plan/onnx/replacing/whole.py: _find_fault",
    "tapestry_plan/onnx/replacing/whole.py: _infer",
    "tapestry_plan/onnx/ways.py: _find_way",
    "tapestry_plan/onnx/supported.py: _is_taken",
    "tapestry_plan/onnx/walks.py: _is_own",
    "tapestry_plan/onnx/writers/view_writing.py: _makes",
    "tapestry_plan/ops/evaluators.py: _open_reference",
    "tapestry_plan/ops/evaluators.py: _open_session",
    "tapestry_plan/ops/evaluators.py: run_model",
    "tapestry_plan/report/home.py: _tell_onnx",
    "tapestry_plan/search/caps/by_memory.py: _tell_more_devices",
    "tapestry_plan/search/kept/binding.py: is_bound_as",
    "tapestry_plan/symbolic/candidates.py: _bind",
    "tapestry_plan/symbolic/candidates.py: _look",
    "tapestry_plan/symbolic/candidates.py: _plan",
    "tapestry_plan/symbolic/reach.py: find_reach",
    "tapestry_plan/symbolic/reach.py: tell_misfit",
    "tapestry_plan/symbolic/transfers.py: _read_samples",
    "tapestry_sets/alias/overlap.py: _meet",
    "tapestry_sets/limits/printable.py: _write",
    "tapestry_sets/views/view.py: width_of",
}
"""Functions that go on after any ValueError, or any exception: each is about something else than how hard it is."""


def test_nothing_swallows_a_public_error_with_all_others() -> None:
    """They are ValueErrors: a handler of these that raises nothing takes a refusal, and a fault, for an answer."""
    found = set()
    for path, text in _list_catching():
        for made in ast.walk(ast.parse(text)):
            if isinstance(made, ast.FunctionDef) and any(map(_swallows, ast.walk(made))):
                found.add(f"{path.relative_to(ROOT)}: {made.name}")
    assert found == SWALLOW


ROOT = Path(tapestry_sets.__file__).parents[1]


def _list_catching() -> Iterator[tuple[Path, str]]:
    """The files of the packages that may catch errors; others need not be parsed."""
    for path in ROOT.glob("tapestry_*/**/*.py"):
        text = path.read_text()
        if "except" in text or "suppress" in text:
            yield path, text


def _is_suppress(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "suppress"


def _swallows(node: ast.AST) -> bool:
    """Whether a node catches ValueErrors, by that name or a wider one, and raises none, or one that is passed over."""
    if isinstance(node, ast.ExceptHandler):
        kinds = [node.type] if node.type else []
        raised = [inner.exc for inner in ast.walk(node) if isinstance(inner, ast.Raise)]
        if raised and not any(exc is not None and ast.unparse(exc).startswith("NotApplicable(") for exc in raised):
            return False
        is_bare = not kinds
    else:
        kinds, is_bare = list(node.args) if _is_suppress(node) else [], False
    names = {inner.id for kind in kinds for inner in ast.walk(kind) if isinstance(inner, ast.Name)}
    return is_bare or bool(names & {"ValueError", "Exception", "BaseException"})
