"""Values as messages quote them: short, in one line, and never a reason to fail."""

from __future__ import annotations

import time
from difflib import SequenceMatcher
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_sets.limits import cut_text, list_names, quote

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


@given(st.lists(st.text(max_size=40), max_size=30), st.text(max_size=300))
@example(["n" * 20_000 + str(k) for k in range(9)], "n" * 20_000)
@example(["a", "b"], "")
@example([""] * 3, "")
def test_known_names_are_all_shown_or_the_three_nearest_and_the_count(names: list[str], wrong: str) -> None:
    said = list_names(names, wrong, "operators")
    known = list(dict.fromkeys(names))
    assert len(said) < 2 * MOST and said.isprintable()
    if not known:
        assert said == "there are no operators"
    elif said.startswith("known operators: "):
        assert said == f"known operators: {', '.join(map(quote, known))}"
    else:
        assert said.startswith(f"nearest of {len(known)} operators: ") and ("…" in said or ", " in said)
        assert len(known) > 3 or len(", ".join(map(quote, known))) > MOST


@given(st.lists(st.text("abcdef", min_size=4, max_size=12), min_size=10, max_size=60, unique=True), st.data())
def test_no_name_is_nearer_than_the_three_shown(names: list[str], data: st.DataObject) -> None:
    meant = data.draw(st.sampled_from(names))
    at = data.draw(st.integers(0, len(meant) - 1))
    wrong = f"{meant[:at]}z{meant[at + 1 :]}"
    shown = list_names(names, wrong, "names").partition(": ")[2].split(", ")
    apart = {repr(name): SequenceMatcher(None, name, wrong).ratio() for name in names}
    assert sorted((apart[name] for name in shown), reverse=True) == sorted(apart.values(), reverse=True)[:3]


def test_nearest_names_among_many_take_little_time() -> None:
    names = [f"layer_{k}/block/{k % 7}/weights" for k in range(20_000)]
    began = time.process_time()
    said = list_names(names, "layer_123/blok/4/weights", "tensors")
    assert "'layer_123/block/4/weights'" in said and time.process_time() - began < 3
    assert list_names(names, "x" * 10**6, "tensors").startswith("nearest of 20,000 tensors: 'layer_0/")
