"""What `show` draws: an expression, an operator by name, a model or a plan from a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from tapestry_exec.cli.expression import Shown, parse_shown
from tapestry_exec.cli.operators import fill_example, make_operation
from tapestry_exec.cli.planning import find_file, read_plan
from tapestry_plan.draw import show_placement, show_projection
from tapestry_plan.ir import BUILTIN_OPS, Graph, Signature, operation
from tapestry_plan.onnx import load_onnx
from tapestry_sets.alias import show_views
from tapestry_sets.draw import Picture, show
from tapestry_sets.limits import list_names, quote
from tapestry_sets.views import View

OPTIONS = {"parts": "--parts", "shapes": "--shapes", "attributes": "--attr", "node": "--op"}


class Drawing(Struct):
    """A picture as text, and as SVG where there is one, under a title."""

    title: str
    text: str
    svg: str | None

    @classmethod
    def of(cls, title: str, picture: Picture) -> Drawing:
        return cls(title, picture.text, picture.svg)


def draw_named(what: str, options: Mapping[str, Any], read: Mapping[str, Any]) -> Drawing:
    """The picture of an operator, a model, a plan or an expression.

    Parameters
    ----------
    what : str
    options : mapping
        Values of the options that `OPTIONS` names, those not given false.
    read : mapping
        Arguments of `load_onnx`.
    """
    if what in BUILTIN_OPS:
        _allow(what, options, "parts", "shapes", "attributes")
        return _draw_operator(what, options)
    if what.endswith(".onnx"):
        _allow(what, options, "parts", "node")
        return _draw_model(what, load_onnx(find_file(Path(what)), **read), options)
    if what.endswith(".json"):
        _allow(what, options, "parts", "node")
        return _draw_plan(what, options)
    if what.isidentifier():
        raise click.UsageError(
            f"there is no operator {quote(what)}; {list_names(sorted(BUILTIN_OPS), what, 'operators')}; or give a "
            "model.onnx, a plan.json, or an expression such as 'A[27]; A[2::5]'"
        )
    _allow(what, options, "parts")
    return _draw_expression(what, options["parts"])


def _allow(what: str, options: Mapping[str, Any], *allowed: str) -> None:
    """Refuse options that mean nothing for what is shown."""
    for name, value in options.items():
        if value and name not in allowed:
            raise click.UsageError(f"{OPTIONS[name]} means nothing for {quote(what)}; leave it out")


def _draw_operator(name: str, options: Mapping[str, Any]) -> Drawing:
    shapes, attributes = fill_example(name, options["shapes"], options["attributes"])
    return Drawing.of(name, show_projection(make_operation(name, shapes, attributes), options["parts"]))


def _draw_model(name: str, graph: Graph, options: Mapping[str, Any]) -> Drawing:
    if options["node"] is not None:
        return Drawing.of(options["node"], show_projection(_find_node(graph, options["node"]), options["parts"]))
    _need_operator(options)
    return Drawing.of(Path(name).name, graph.draw())


def _find_node(graph: Graph, name: str) -> Any:
    if name not in graph.nodes:
        raise click.UsageError(
            f"--op: there is no operator {quote(name)}; {list_names(graph.nodes, name, 'operators')}"
        )
    return operation(graph, name)


def _need_operator(options: Mapping[str, Any]) -> None:
    if options["parts"] is not None:
        raise click.UsageError("--parts cuts one operator; name it with --op")


def _draw_plan(name: str, options: Mapping[str, Any]) -> Drawing:
    """Where a plan's tensors lie, or an operator cut as the plan cuts it."""
    p = read_plan(Path(name))
    if options["node"] is None:
        _need_operator(options)
        return Drawing.of(Path(name).name, show_placement(p, title=Path(name).name))
    op = _find_node(p.graph, options["node"])
    parts = options["parts"]
    return Drawing.of(options["node"], show_projection(op, p.sharding[options["node"]] if parts is None else parts))


def _draw_expression(text: str, parts: Mapping[str, int] | None) -> Drawing:
    """Views together, sets together, a projection."""
    found = parse_shown(text)
    if not found:
        raise click.UsageError(f"show: {quote(text)} names nothing to show; write for example 'A[27]; A[2::5]'")
    names, values = [name for name, _ in found], [value for _, value in found]
    title = "; ".join(names)
    if len(values) == 1 and isinstance(values[0], Signature):
        return Drawing.of(title, show_projection(values[0], parts, title=title))
    if parts is not None:
        raise click.UsageError("--parts cuts an operator or a projection; leave it out")
    views = [value for value in values if isinstance(value, View)]
    if len(views) == len(values):
        return Drawing.of(title, show_views(*views, names=names))
    if views or any(isinstance(value, Signature) for value in values):
        raise click.UsageError(
            f"show: {quote(title)} are views, sets and projections together; show views together, or sets together, or "
            "one projection"
        )
    return _draw_set(title, values[0]) if len(values) == 1 else Drawing.of(title, show(*values, names=names))


def _draw_set(title: str, value: Shown) -> Drawing:
    """A set as notebooks show it: its text, and a drawing where it is small enough."""
    bundle = getattr(value, "_repr_mimebundle_", lambda: {"text/plain": repr(value)})()
    return Drawing(title, bundle["text/plain"], bundle.get("image/svg+xml"))
