"""Values as messages quote them: short, in one line, and never a reason to fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets.limits import cut_text, quote

MOST = 200

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=300) | st.binary(max_size=300),
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.tuples(inner)
        | st.lists(inner, max_size=5).map(tuple)
        | st.dictionaries(st.text(max_size=9), inner, max_size=5)
        | st.frozensets(st.integers() | st.text(max_size=5), max_size=4)
    ),
    max_leaves=12,
)


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    return 1 + max(map(depth, value), default=0) if isinstance(value, list | tuple | frozenset) else 0


@given(plain)
def test_a_value_is_quoted_as_python_writes_it_up_to_the_cut(value: Any) -> None:
    shown, written = quote(value), repr(value)
    assert len(shown) <= MOST and shown.isprintable()
    if depth(value) <= 5:
        assert shown == (written if len(written) <= MOST else f"{written[: MOST - 1]}…")


@given(st.text(max_size=300), st.integers(1, 250))
def test_a_text_is_cut_and_its_controls_are_escaped(text: str, most: int) -> None:
    shown = cut_text(text, most)
    assert len(shown) <= most and shown.replace("\n", "").isprintable()
    if text.isprintable():
        assert shown == (text if len(text) <= most else f"{text[: most - 1]}…")


class Fails:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


def of_itself() -> list[Any]:
    inner: list[Any] = [1]
    inner.append(inner)
    return inner


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (10**5000, "over 2**16609"),
        (-(10**5000), "below -2**16609"),
        (10**190, "1" + "0" * 190),
        ((1, 10**5000), "(1, over 2**16609)"),
        (of_itself(), "[1, [1, [1, [1, [1, [1, …]]]]]]"),
        (Fails(), "a value of type Fails"),
        (np.arange(3), "array([0, 1, 2])"),
        (np.zeros((2, 2)), "array([[0., 0.], [0., 0.]])"),
        (np.zeros((40, 40)), "an array of shape (40, 40) and dtype float64"),
        (np.array([None]), "an array of shape (1,) and dtype object"),
        (set(), "set()"),
        (frozenset({2}), "frozenset({2})"),
        ((1,), "(1,)"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_what_cannot_be_written_out_is_described(value: Any, shown: str) -> None:
    assert quote(value) == shown


def test_a_long_value_costs_no_more_than_what_is_shown() -> None:
    many = [[str(k) * 50 for k in range(50)]] * 10**6
    assert quote(many).startswith("[['000")
    assert quote("n" * 10**8) == "'" + "n" * 198 + "…"
