"""Which operators of ONNX are imported, and how those that are not run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from msgspec import Struct

from tapestry_plan import ops
from tapestry_plan.onnx import tuning
from tapestry_plan.onnx.nodes import is_number, schema_of
from tapestry_plan.onnx.operators import IMPORTERS, NOT_ADDED

BODIES = ("If", "Loop", "Scan")
"""Operators that the model itself defines, by graphs inside their nodes."""

How = Literal["imported", "defined", "opaque", "refused"]


class Supported(Struct, frozen=True):
    """An operator of ONNX.

    Parameters
    ----------
    operator : str
        Its type, after the domain where that is not ONNX's own.
    how : str
        "imported": it becomes operators and views, which plans split; "defined": it is taken apart by ONNX's own
        definition, or by graphs inside the node, in operators that are imported, or else is opaque; "opaque": it runs
        whole, by ONNX Runtime or ONNX's reference, in a graph or, where its results' shapes follow from values, between
        two stages; "refused": none of these is there.
    dtypes : tuple of str
        Of its first operand, those that graphs have; none where it takes no tensor.
    """

    operator: str
    how: How
    dtypes: tuple[str, ...]


def list_supported() -> Iterator[Supported]:
    """All operators of ONNX's own domain in the newest opset, and those that joined `IMPORTERS`, by name.

    Examples
    --------
    >>> from tapestry_plan.onnx import list_supported
    >>> found = {one.operator: one.how for one in list_supported()}
    >>> [found[name] for name in ("Conv", "RotaryEmbedding", "NonZero")]
    ['imported', 'defined', 'opaque']
    """
    from onnx import defs

    newest = min(defs.onnx_opset_version(), tuning.KNOWN_OPSET)
    own = {schema.name for schema in defs.get_all_schemas() if schema.domain == "" and not schema.deprecated}
    for name in sorted({*own, *IMPORTERS, *NOT_ADDED}):
        domain, _, op_type = name.rpartition("::")
        schema = schema_of(op_type, newest, domain)
        yield Supported(name, _how(name, schema), _dtypes_of(schema))


def _how(name: str, schema: Any) -> How:
    from onnx.reference.ops import load_op

    if name in IMPORTERS or name in NOT_ADDED:
        return "imported"
    if name in BODIES or (schema is not None and (schema.has_function or schema.has_context_dependent_function)):
        return "defined"
    try:
        load_op("", name, None)
    except Exception:  # whatever it raises of what it does not know
        return "opaque" if ops.is_in_runtime(name) else "refused"
    return "opaque"


def _dtypes_of(schema: Any) -> tuple[str, ...]:
    """NumPy's names of the element types that an operator's first operand may have."""
    from onnx import TensorProto, helper

    names = {"float": "FLOAT", "double": "DOUBLE"}
    found = []
    for text in sorted(schema.inputs[0].types) if schema is not None and schema.inputs else ():
        label = text.removeprefix("tensor(").removesuffix(")")
        code = dict(TensorProto.DataType.items()).get(names.get(label, label.upper()))
        if text.startswith("tensor(") and code:
            dtype = helper.tensor_dtype_to_np_dtype(code)
            found += [dtype.name] if is_number(np.dtype(dtype)) else []
    return tuple(sorted(found, key=lambda name: ("biufV".find(np.dtype(name).kind), np.dtype(name).itemsize)))
