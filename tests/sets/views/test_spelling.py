"""What a view says of itself is the code that makes it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, target

import tapestry_sets
from tapestry_sets import Allocation, View, allocate, concatenate
from tapestry_sets.limits import cut_middle
from tests.oracles import read_view
from tests.strategies import views


def made_by(code: str, **memory: View) -> View:
    """What code makes, in a namespace of the package's names and of the memory."""
    return eval(code, {name: getattr(tapestry_sets, name) for name in tapestry_sets.__all__} | memory)


@given(views())
def test_a_view_is_made_again_by_what_it_says(case: tuple[View, np.ndarray]) -> None:
    view, array = case
    code = repr(view)
    assert len(code) <= 200 and "\n" not in code
    if "…" in code or isinstance(view, Allocation):
        return
    target(float(len(code)))
    memory = next(iter(view.allocations), allocate((), name="A"))
    again = made_by(code, A=memory)
    held = np.arange(1, memory.size + 1).reshape(memory.shape)
    np.testing.assert_array_equal(read_view(again, {memory: held}), array)


A, B = allocate((4, 6), name="A"), allocate((4, 6), name="B")
CODES = [
    "A.reshape(3, 8)[:2, ::-2]",
    "A[1, 2:4]",
    "A[:, 3]",
    "A[-1]",
    "A[1:][0]",
    "A.reshape(2, 2, 6)[1, :, 2:4]",
    "A.T",
    "A.reshape(2, 2, 6).permute_dims((0, 2, 1))",
    "A.flip()",
    "A.flip(1)",
    "A.expand_dims(1).squeeze(1)",
    "A.reshape(1, 24).squeeze()",
    "A[0, 0].reshape(())",
    "A[0].broadcast_to((3, 6))",
    "A.diagonal()",
    "A.diagonal(-1, 1, 0)",
    "A.sliding_windows((2, 3))",
    "A.sliding_windows(2, step=2, axis=1)",
    "A.as_strided((3, 2), (7, -1), offset=1)",
    "A.take([3, 0, 0], axis=0)",
    "A.swizzle(1, 0, 1)",
    "A.tril()",
    "A.triu(1, float('-inf'))",
    "A.sample(Region((4, 6), [Sett(Stripe(1, 1)), Sett(Stripe(2, 1))]))",
    "concatenate([A, B[:2]])",
    "concatenate([A, B], axis=1)",
    "stack([A, B], axis=2)",
    "interleave([A, B])",
    "pad(A, 1)",
    "pad(A, ((1, 0), (0, 2)), 'wrap')",
    "pad(A, 2, value=1.5)",
    "repeat(A, 2, axis=1)",
    "tile(A, (2, 1))",
    "roll(A, 1, axis=0)",
]


@pytest.mark.parametrize("code", CODES)
def test_views_say_what_was_typed(code: str) -> None:
    view = made_by(code, A=A, B=B)
    assert repr(view) == code
    assert str(view) == code


def test_memory_without_a_name_that_code_can_have_is_spelled_out() -> None:
    assert repr(allocate((4, 6))[0]) == "allocate((4, 6))[0]"
    assert (
        repr(allocate((2, 2), name="keys cache", itemsize=4)[0]) == "allocate((2, 2), name='keys cache', itemsize=4)[0]"
    )
    assert repr(allocate((2,), name="in")[:1]) == "allocate((2,), name='in')[:1]"


def test_long_chains_and_shared_sources_are_cut_in_the_middle() -> None:
    view = A
    for _ in range(2_000):
        view = view.flip()[::2].broadcast_to(view.shape) if 1 in view.shape else view.flip(0)
    assert len(repr(view)) == 200 and repr(view).startswith("A.flip(0).flip(0)") and repr(view).endswith(".flip(0)")
    assert repr(view).count("…") == 1
    doubled = A[0]
    for _ in range(64):  # written out this would be 2 to the power of 64 words
        doubled = concatenate([doubled, doubled])[:6]
    assert len(repr(doubled)) <= 200 and repr(doubled).endswith("[:6]")
    assert repr(concatenate([A] * 1000)) == "concatenate([A, A, A, A, …, A, A, A, A])"


class Turned:
    """A kind that others wrote."""

    def out_shape(self, shapes: tuple) -> tuple[int, ...]:
        return shapes[0]

    def pieces(self, shapes: tuple) -> tuple:
        return tapestry_sets.views.kinds.shaping.Flip((0,)).pieces(shapes)

    def __repr__(self) -> str:
        return "Turned()"


def test_kinds_of_others_are_applied() -> None:
    assert repr(A.apply(Turned())[0]) == "A.apply(Turned())[0]"


def test_texts_are_cut_in_the_middle() -> None:
    assert cut_middle("abc", 3) == "abc"
    assert cut_middle("a" * 99 + "\x1b" + "b" * 99, 21) == "a" * 10 + "…" + "b" * 10
