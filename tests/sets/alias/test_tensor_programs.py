"""Questions of tensor programs: ours and NumPy on arrays of cell numbers at small sizes; by hand at real ones."""

from __future__ import annotations

import pytest

from tapestry_sets import overlap, tally
from tests.tensor_programs import ASKS, PROGRAMS, Numbers, Program, Views, cells

ONE = ("read", "twice", "run", "run in order")
TWO = ("meet", "share", "hold", "same cells", "same view", "read by")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_small_programs_are_answered_as_numpy_answers_them(program: Program) -> None:
    ask = ASKS[program.ask]
    by_hand = program.answer(**program.small)
    assert ask.numbers(*program.views(Numbers(), **program.small)) == by_hand
    assert ask.views(*program.views(Views, **program.small)) == by_hand


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_real_programs_are_answered_as_by_hand_and_nothing_is_listed(program: Program) -> None:
    with tally() as decided:
        assert ASKS[program.ask].views(*program.views(Views, **program.real)) == program.answer(**program.real)
    assert decided.listed == 0


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_every_other_question_about_the_views_of_a_program(program: Program) -> None:
    views, arrays = program.views(Views, **program.small)[:2], program.views(Numbers(), **program.small)[:2]
    for name in ONE:
        for view, array in zip(views, arrays, strict=True):
            assert ASKS[name].views(view) == ASKS[name].numbers(array), name
    if len(views) == 2:
        for name in TWO:
            assert ASKS[name].views(*views) == ASKS[name].numbers(*arrays), name
            assert ASKS[name].views(*views[::-1]) == ASKS[name].numbers(*arrays[::-1]), name


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_indices_that_read_a_cell_twice_or_together_do_so(program: Program) -> None:
    views, arrays = program.views(Views, **program.small)[:2], program.views(Numbers(), **program.small)[:2]
    for view, array in zip(views, arrays, strict=True):
        found = view.internal_overlap()
        if found is not None:
            assert found.a != found.b and array[found.a] == array[found.b] >= 0
    both = overlap(*views) if len(views) == 2 else None
    if both:
        at = both.witness
        assert at is not None and arrays[0][at.a] == arrays[1][at.b] >= 0
        assert at.cell in [
            c for r in both.regions[both.allocations[0]].members for c in map(tuple, r.points().tolist())
        ]


def test_cells_of_an_array_of_numbers_are_the_different_ones() -> None:
    assert cells(Numbers.pad(Numbers().allocate((2,)), 1, "wrap")).tolist() == [0, 1]
    assert cells(Numbers.pad(Numbers().allocate((2,)), 1)).tolist() == [0, 1]
