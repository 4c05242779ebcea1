"""A plan's shardings as code of other libraries, or why they cannot say them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from tapestry_plan.report.markup import OWN_KEYS, element, escape, panel
from tapestry_plan.steps import NotExported, Shardings, ShardPlan
from tapestry_sets.limits import cut_text, tell_count


def home_panel(plan: ShardPlan) -> str:
    """The code, library by library; each opens where it is asked for."""
    return panel(
        "home",
        "Taking it home",
        element("p", "Where each tensor lies, to be pasted into a program of one's own.", class_="tp-note"),
        _tell("JAX", "plan.to_jax().to_code()", plan.to_jax),
        _tell("PyTorch DTensor", "plan.to_dtensor().to_code()", plan.to_dtensor),
        _tell("axes of the mesh, in no library's words", "plan.to_mesh_axes().to_code()", plan.to_mesh_axes),
        _tell("Dask", "plan.to_dask_chunks().to_code()", plan.to_dask_chunks),
        _tell_onnx(plan),
    )


def _tell(library: str, call: str, say: Callable[[], Shardings[Any]]) -> str:
    try:
        found = say()
    except ImportError as error:
        return _entry(library, f"not written: {error}", "")
    refused = found.every_refusal
    told = f"{tell_count(len(found), 'tensor')} by {call}"
    if refused:
        told += f", {len(refused):,} refused"
    return _entry(library, told, found.to_code())


def check_model(plan: ShardPlan) -> None:
    """Raise where a plan cannot be a model of ONNX, whose library is loaded then."""
    import_module("tapestry_plan.onnx").check_onnx(plan)


def write_model(plan: ShardPlan) -> Any:
    """The plan as a model of ONNX, whose library is loaded then."""
    return import_module("tapestry_plan.onnx").to_onnx(plan)


def _tell_onnx(plan: ShardPlan) -> str:
    """Whether the plan can be a model of ONNX, and how it becomes one."""
    try:
        check_model(plan)
    except (ImportError, NotExported, ValueError) as error:
        return _entry("ONNX", f"not written: {cut_text(str(error), 300)}", "")
    code = 'import onnx\n\nonnx.save(plan.to_onnx(), "sharded.onnx")'
    return _entry("ONNX", "a model with ShardingSpecProtos", code)


def _entry(library: str, said: str, code: str) -> str:
    head = element("summary", element("b", escape(library)), " ", escape(said), **OWN_KEYS)
    if not code:
        return element("p", element("b", escape(library)), " ", escape(said), class_="tp-refused", data_code=library)
    return element("details", head, element("pre", escape(code), tabindex=0), data_code=library)
