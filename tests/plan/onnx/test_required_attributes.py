"""A node without an attribute that ONNX's schema requires is refused by name, whether or not an importer reads it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from onnx import defs, helper

from tapestry_plan.onnx.models import OLDEST_OPSET, load_onnx
from tapestry_plan.onnx.operators import IMPORTERS, NOT_ADDED
from tests.onnx_models import model_of

NEWEST = 21


def required() -> Iterator[tuple[str, str]]:
    """The imported operators of ONNX's own with attributes that a node must have."""
    for op in sorted({*IMPORTERS, *NOT_ADDED, "If"}):
        if "::" not in op and defs.has(op, NEWEST):
            attributes = defs.get_schema(op, NEWEST).attributes
            yield from ((op, name) for name, attribute in attributes.items() if attribute.required)


@pytest.mark.parametrize(("op", "name"), list(required()))
@pytest.mark.parametrize("is_known", [False, True], ids=["fed", "known"])
def test_a_missing_attribute_is_named(op: str, name: str, is_known: bool) -> None:
    schema = defs.get_schema(op, NEWEST)
    reads = ["x"] * min(max(schema.min_input, 1), schema.max_input)
    node = helper.make_node(op, reads, ["y"], name="it")
    constants = {"x": np.ones((2, 3, 4, 4), "float32")} if is_known else {}
    model = model_of([node], {} if is_known else {"x": (2, 3, 4, 4)}, constants=constants)
    others = [one for other, one in required() if other == op]
    with pytest.raises(ValueError, match=rf"node 'it' \({op}\): the attribute '({'|'.join(others)})' is missing"):
        load_onnx(model)


def test_some_operators_require_attributes_in_every_opset() -> None:
    assert {"Cast", "Concat", "If", "MaxPool", "SpaceToDepth"} <= {op for op, _ in required()}
    assert OLDEST_OPSET <= NEWEST
