"""In which way each operator of ONNX runs, and how many do so in each."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Literal, get_args

from tapestry_plan import ops
from tapestry_plan.onnx.examples import has_example
from tapestry_plan.onnx.importers.learned import DOMAIN as LEARNED
from tapestry_plan.onnx.importers.learned import OF_ROWS
from tapestry_plan.onnx.operators import IMPORTERS, NOT_ADDED
from tapestry_plan.onnx.walks import DOMAIN
from tapestry_sets.limits import FrozenDict

How = Literal["imported", "defined", "folded", "opaque", "refused"]


def list_ways() -> dict[str, How]:
    """All operators of ONNX's own domains in the newest opset, and those that joined `IMPORTERS`, by name.

    Examples
    --------
    >>> found = list_ways()
    >>> [found[name] for name in ("Conv", "RotaryEmbedding", "Shape", "NonZero")]
    ['imported', 'defined', 'folded', 'opaque']
    """
    return _ways_of(tuple(IMPORTERS))


def count_ways() -> str:
    """How many operators there are, in words.

    Examples
    --------
    >>> count_ways().partition(":")[0] == f"{len(list_ways())} operators of ONNX"
    True
    """
    found = list_ways()
    counts = Counter(found.values())
    listed = ", ".join(f"{counts[how]} {how}" for how in get_args(How) if counts[how])
    return f"{len(found)} operators of ONNX: {listed}"


@cache
def _ways_of(imported: tuple[str, ...]) -> dict[str, How]:
    from onnx import defs

    schemas = [schema for schema in defs.get_all_schemas() if not schema.deprecated]
    own = {one.name for one in schemas if one.domain == ""}
    learned = {f"{LEARNED}::{one.name}" for one in schemas if one.domain == LEARNED}
    names = sorted({*own, *learned, *OF_ROWS, *imported, *NOT_ADDED})
    # Those of DOMAIN are what `to_onnx` writes.
    return FrozenDict((name, _find_way(name)) for name in names if name.rpartition("::")[0] != DOMAIN)


def _find_way(name: str) -> How:
    from onnx.reference.ops import load_op

    if name in NOT_ADDED or name == "Constant":
        return "folded"
    if name in IMPORTERS:
        return "imported"
    if has_example(name):
        return "defined"
    try:
        domain, _, op_type = name.rpartition("::")
        load_op(domain, op_type, None)
    except Exception:  # whatever it raises of what it does not know
        return "opaque" if ops.is_in_runtime(name) else "refused"
    return "opaque"
