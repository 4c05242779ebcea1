"""A derivation equals itself after its document, whatever plain values its steps hold."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_plan.rewrite import Derivation

PLAIN = st.recursive(
    st.integers(-5, 5) | st.text("ab", max_size=3) | st.booleans(),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)


@given(st.dictionaries(st.sampled_from(["axis", "parts", "into"]), PLAIN))
@example({"parts": (2, (3, (4,)))})
def test_a_derivation_is_itself_after_its_document(arguments: dict[str, Any]) -> None:
    steps = Derivation().then("shard", "m", **arguments).then("fuse", "n")
    again = Derivation.from_json(steps.to_json())
    assert again == steps
    assert again.to_json() == steps.to_json()
