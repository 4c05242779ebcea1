"""The arguments of a plan: names that the graph has, and what they ask for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from functools import wraps
from inspect import signature
from typing import Any, Literal, ParamSpec, Protocol, TypeVar

from msgspec import Struct

from tapestry_plan.ir import BUILTIN_OPS, Graph
from tapestry_plan.rewrite import split_axes
from tapestry_plan.search.progress import Progress
from tapestry_plan.steps import Mesh, Placed, ShardPlan, Space, lay_tensor
from tapestry_sets.limits import list_names, quote

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
OptionsT = TypeVar("OptionsT", bound="Options")
MENDS = {
    "graph": "load_onnx makes one from a model",
    "mesh": "write Mesh((4,)) for four devices",
    "time_limit_seconds": "give a number of seconds",
    "fix": "it maps operators to axes to parts, as in {'conv': {'h': 2}}",
    "forbid": "it maps operators to axes to parts, as in {'conv': {'h': 2}}",
    "layout": "it maps tensors to axes to parts, as in {'x': {0: 2}}, or to a Placed",
    "tie": "it maps outputs to inputs, as in {'new_w': 'w'}",
    "progress": "it is called with what is done, all that there is to do, and words",
    "like": "give a plan, as plan(graph, mesh) returns one, or ShardPlan.from_json",
    "expand": "give True, False, or names of expansions as ['exp_sum']",
}
"""What to do about arguments of a wrong type."""


class Options(Struct, frozen=True, kw_only=True):
    """What may be asked for of a plan: names, types and defaults of `plan`'s arguments, which says what each means."""

    seed: int = 0
    time_limit_seconds: float | None = None
    placement: Literal["free", "single"] = "free"
    layout: Mapping[str, Mapping[Any, Any] | Placed] | None = None
    fix: Mapping[str, Mapping[str, Any]] | None = None
    forbid: Mapping[str, Mapping[str, Any]] | None = None
    tie: Mapping[str, str] | None = None
    fan_in: int | None = None
    expand: bool | Collection[str] = True
    space: Space | None = None
    same_bits: bool = False
    unify: bool = True
    fuse: bool = True
    progress: Progress | None = None


class CapOptions(Options, frozen=True, kw_only=True):
    """The same of a plan in the memory that there is, or with the choices of another one."""

    memory_nbytes: int | None = None
    like: ShardPlan | None = None


class ParetoOptions(Options, frozen=True, kw_only=True):
    """The same of plans in less and less memory."""

    points: int = 5


def list_asked(options: Options) -> dict[str, Any]:
    """What is asked for beyond defaults, by argument of `plan`: what else stands here says how it is called.

    Examples
    --------
    >>> list_asked(CapOptions(fix={"conv": {"h": 2}}, progress=print, memory_nbytes=1000))
    {'fix': {'conv': {'h': 2}}, 'memory_nbytes': 1000}
    """
    of_plan = {**dict.fromkeys(Options.__struct_fields__), "memory_nbytes": None}
    defaults = zip(options.__struct_fields__, options.__struct_defaults__, strict=True)
    return {
        name: getattr(options, name)
        for name, default in defaults
        if name in of_plan and name != "progress" and getattr(options, name) != default
    }


class Planning(Protocol[P, R_co]):
    """A function of a graph, a mesh, and options by name."""

    def __call__(self, graph: Graph, mesh: Mesh, *args: P.args, **kwargs: P.kwargs) -> R_co: ...


def with_options(make: Callable[P, OptionsT]) -> Callable[[Callable[[Graph, Mesh, OptionsT], R_co]], Planning[P, R_co]]:
    """Let a function of options have each of their fields as an argument by name: so its signature says, and `help`."""

    def decorate(function: Callable[[Graph, Mesh, OptionsT], R_co]) -> Planning[P, R_co]:
        @wraps(function)
        def planned(graph: Graph, mesh: Mesh, *args: P.args, **given: P.kwargs) -> R_co:
            return function(graph, mesh, make(*args, **given))

        fields = list(signature(make).parameters.values())
        fields.sort(key=lambda p: p.name in Options.__struct_fields__)  # its own ones before those of all
        call = signature(function)
        first = [p for p in call.parameters.values() if p.name != "options"]
        planned.__annotations__ = {p.name: p.annotation for p in (*first, *fields)} | {"return": call.return_annotation}
        words = {**Options.__annotations__, **make.__annotations__}  # shorter than the types
        fields = [p.replace(annotation=words[p.name]) for p in fields]
        planned.__signature__ = call.replace(parameters=[*first, *fields])  # type: ignore[attr-defined]
        return planned

    return decorate


def check_least(what: str, value: float | None, wanted: str, least: float) -> None:
    if value is not None and not value >= least:
        raise ValueError(f"plan: {what} is {quote(value)}; it is {wanted}")


def check_names(
    graph: Graph,
    layout: Mapping[str, Any],
    fix: Mapping[str, Any],
    forbid: Mapping[str, Any],
) -> None:
    starts = [name for name, tensor in graph.stored.items() if tensor.kind != "result"]
    for name, wanted in layout.items():
        if not isinstance(wanted, Placed) and len({str(axis) for axis in wanted}) < len(wanted):
            raise ValueError(f"layout[{quote(name)}] is {quote(wanted)}, which gives an axis twice; give it once")
        if name not in starts and name not in graph.outputs:
            known = list_names([*starts, *graph.outputs], name, "tensors that begin or end the graph")
            raise ValueError(f"layout: {quote(name)} is not a graph input, constant or output; {known}")
        if name not in starts and graph.outputs[name] not in graph.stored:
            behind = ", ".join(map(repr, graph.source(graph.outputs[name]).stored)) or "constants"
            raise ValueError(
                f"layout: output {quote(name)} is a view of {behind}, which has no place of its own; ask for the "
                "layout of an output that an operator makes, such as its sum with 0"
            )
    for what, given in (("fix", fix), ("forbid", forbid)):
        for name in given:
            if name not in graph.nodes:
                known = list_names(graph.nodes, name, "operators")
                raise ValueError(f"{what}: there is no operator {quote(name)}; {known}")
    both = set(fix).intersection(forbid)
    if both:
        raise ValueError(f"operator {quote(both.pop())} is in fix and in forbid; fixing alone says it all")


def check_same_bits(expand: bool | Collection[str], fan_in: int | None) -> tuple[Literal[False], int]:
    """What plans with the same bits ask for beside leaves: nothing is expanded, and parts are merged two by two."""
    if not isinstance(expand, bool):
        raise ValueError(
            f"expand is {quote(expand)}, but with same_bits no operator is expanded, since which are depends on the "
            "mesh; expand the graph first (tapestry_plan.rewrite.expand), or leave one of the two out"
        )
    if fan_in not in (None, 2):
        raise ValueError(f"fan_in is {fan_in}, but with same_bits parts are merged two by two; give 2, or leave it out")
    return False, 2


def parse_tie(graph: Graph, mesh: Mesh, tie: Mapping[str, str] | None, layout: Mapping[str, Any]) -> dict[str, str]:
    """Which outputs lie where which inputs lie."""
    if tie is None:
        return {}
    starts = [name for name, tensor in graph.stored.items() if tensor.kind != "result"]
    for label, source in tie.items():
        where = f"tie[{quote(label)}]"
        if label not in graph.outputs:
            known = list_names(graph.outputs, label, "outputs")
            raise ValueError(f"{where}: there is no graph output {quote(label)}; {known}")
        if source not in starts:
            known = list_names(starts, source, "inputs and constants")
            raise ValueError(f"{where}: {quote(source)} is not a graph input or constant; {known}")
        name, there = graph.outputs[label], graph.stored[source]
        if name not in graph.stored or graph.stored[name].kind != "result":
            raise ValueError(
                f"{where}: output {quote(label)} is not a result of an operator, so it has no place of its own; tie an "
                "output that an operator makes, such as its sum with 0"
            )
        here = graph.stored[name]
        if (here.shape, here.dtype) != (there.shape, there.dtype):
            raise ValueError(
                f"{where}: output {quote(label)} is {here.dtype} of shape {quote(here.shape)}, input "
                f"{quote(source)} {there.dtype} of "
                f"shape {quote(there.shape)}; they must be alike"
            )
        both = [lay_tensor(layout[n], here.shape, mesh, f"layout[{quote(n)}]") for n in (label, source) if n in layout]
        if len(set(both)) > 1:
            raise ValueError(
                f"{where}: layout asks for {quote(layout[label])} of {quote(label)} and for "
                f"{quote(layout[source])} of {quote(source)}; "
                "tied tensors lie alike, so ask for one of them"
            )
    for what, names in (("input", list(tie.values())), ("output", [graph.outputs[label] for label in tie])):
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"tie: the {what} {quote(twice[0])} is tied twice, in {quote(dict(tie))}; tie it once")
    return dict(tie)


def parse_expand(graph: Graph, expand: bool | Collection[str]) -> bool | tuple[str, ...]:
    """What `expand` asks for, False for nothing."""
    if isinstance(expand, bool):
        return expand
    known = {split_axes.name} | {
        e.__name__ for op in (*BUILTIN_OPS.values(), *graph.ops.values()) for e in op.expansions
    }
    for name in expand:
        if name not in known:
            near = list_names(sorted(known), name, "expansions")
            raise ValueError(f"plan: expand has {quote(name)}, which no declaration lists; {near}")
    return tuple(sorted(expand) if isinstance(expand, Set) else expand) or False
