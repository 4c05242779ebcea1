"""Shard plans: explicit steps over buffers, the executor's only input, as a versioned JSON document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, TypeVar, cast, get_args
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct, field
from msgspec.structs import asdict, astuple, force_setattr

from tapestry_plan.ir import Graph, Op, UnsupportedOp, finite, from_finite, same_graph
from tapestry_plan.rewrite import Derivation
from tapestry_plan.steps.layout import SplitAxis, tell_rule
from tapestry_plan.steps.mesh import Mesh, Space
from tapestry_plan.steps.misfits import find_misfit
from tapestry_plan.steps.rates import Device, Link
from tapestry_plan.steps.schedule import Schedule, list_queued, run_queues
from tapestry_plan.steps.step import Buffer, Output, Step
from tapestry_sets.limits import FrozenDict, check_arguments, freeze_dicts, hide_fields, list_names, quote, read_json
from tapestry_sets.regions import Box, Region
from tapestry_sets.views import Piece, piece_from_dict, piece_to_dict, region_from_dict, region_to_dict

PLAN_FORMAT = "tapestry-plan/2"
T = TypeVar("T")


class Stage(msgspec.Struct, frozen=True):
    """The costs of one operator in the plan.

    Parameters
    ----------
    node, op : str
    sharding : dict of str to int
        Parts of each split index axis.
    nbytes_received : tuple of int
        By device, from other devices.
    nbytes_shared : int
        Bytes that more than one device reads of the same cells: Σ bytes read by each − bytes of their union.
    flop : tuple of float
        By device.
    seconds : float
        Modeled: slowest device's compute plus transfers.
    work_seconds : tuple of float
        Modeled, by device: its own compute, without transfers and merges. Empty in documents of before.
    """

    node: str
    op: str
    sharding: dict[str, int]
    nbytes_received: tuple[int, ...]
    nbytes_shared: int
    flop: tuple[float, ...]
    seconds: float
    work_seconds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "sharding", freeze_dicts(self.sharding))


class Alternative(msgspec.Struct, frozen=True):
    """Another sharding of one operator, all other operators kept: modeled seconds and bytes of the graph."""

    sharding: dict[str, int]
    seconds: float
    nbytes_moved: int

    def __post_init__(self) -> None:
        force_setattr(self, "sharding", freeze_dicts(self.sharding))


class Expansions(msgspec.Struct, frozen=True):
    """The ways to say an operator in other ones that the search compared with the operator itself.

    Parameters
    ----------
    node : str
        The operator. Where an expansion was chosen the plan's graph has it no more; its outputs keep their names.
    considered : tuple of str
        Expansions that its declaration lists, by name.
    chosen : str or None
        The one that the plan has in its place.
    nodes : tuple of str
        The operators that stand for it then; some of them may have been expanded in turn.
    left_out : tuple of str
        Expansions that were not compared: who reads the operator would read through too many combinations of views, or
        the time was up, or the fastest plan does not keep the memory cap.
    split : tuple of SplitAxis
        Of an operator that is not expanded, but works over more index axes: as the rule `split_axes` makes them.
    """

    node: str
    considered: tuple[str, ...]
    chosen: str | None = None
    nodes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    split: tuple[SplitAxis, ...] = ()


class OnDemand(Mapping[str, T]):
    """A mapping whose values are made when they are asked for, each once; equal to the dict of all of them.

    Parameters
    ----------
    keys : iterable of str
    make : callable
        ``(key) -> value``.
    """

    def __init__(self, keys: Iterable[str], make: Callable[[str], T]) -> None:
        self._keys, self._make = dict.fromkeys(keys), make
        self._made: dict[str, T] = {}

    def __getitem__(self, key: str) -> T:
        if key not in self._made:
            if key not in self._keys:
                raise KeyError(key)
            self._made[key] = self._make(key)
        return self._made[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)


class PlanVersionError(ValueError):
    """A plan document is of another version, was edited, or does not hold together."""


class InfeasiblePlan(ValueError):
    """No plan keeps what was asked for: that is proved.

    Parameters
    ----------
    message : str
    fastest : ShardPlan, optional
        The plan that would be given if it did not need more memory than allowed; `spilled` may make it fit.
    """

    def __init__(self, message: str, fastest: Any = None) -> None:
        super().__init__(message)
        self.fastest = fastest


class NotFound(ValueError):
    """No plan was found that keeps what was asked for; there may be one.

    Parameters
    ----------
    message : str
        With what was tried.
    fastest : ShardPlan
        The plan that would be given if it did not need more memory than allowed; `spilled` may make it fit.
    least_nbytes : int
        Bytes that any plan of the graph as given needs on some device, at least.
    found_nbytes : int
        The least of the plans that were looked at: as `memory_nbytes` it is enough.
    """

    def __init__(self, message: str, fastest: Any, least_nbytes: int, found_nbytes: int) -> None:
        super().__init__(message)
        self.fastest, self.least_nbytes, self.found_nbytes = fastest, least_nbytes, found_nbytes


class ShardPlan(Struct, frozen=True, dict=True, weakref=True):
    """A plan that says what runs where: placements, steps, and their predicted costs.

    What is predicted was counted twice before a plan is given out: by region algebra on the layouts, and while
    the steps were written.
    """

    graph: Graph
    mesh: Mesh
    placement: dict[str, dict[int, tuple[Box, ...]]]
    """For each operator, the index boxes of each device that takes part."""
    sharding: dict[str, dict[str, int]]
    """For each operator, its split index axes and their numbers of parts."""
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[Output, ...]
    nbytes_received: tuple[int, ...]
    """Bytes that each device gets from other devices."""
    nbytes_by_link: dict[tuple[int, int], int]
    """Bytes from device to device."""
    nbytes_placed: tuple[int, ...]
    """Bytes of inputs and weights that start on each device."""
    peak_nbytes: tuple[int, ...]
    """High-water mark of each device's arena."""
    flop: tuple[float, ...]
    """Floating-point operations of each device."""
    seconds: float
    """Modeled time: the sum over stages of the slowest device's compute plus transfers."""
    bound: float
    """No plan of the searched `space` takes fewer seconds; the space has every expansion that was considered."""
    alternatives: Mapping[str, tuple[Alternative, ...]] = field(default_factory=dict)
    """For each operator, its shardings from best to worst, all other operators kept; compared when asked for."""
    nbytes_spilled: tuple[int, ...] = ()
    """Bytes that each device sends to host memory for want of room, and gets back; zeros if not given."""
    expansions: tuple[Expansions, ...] = ()
    """The operators whose expansions were compared with them, each with what was chosen."""
    space: Space = "all"
    """The layouts that were compared, over which the bound holds: "mesh" or "all", as in `plan`."""
    unified: dict[str, str] = field(default_factory=dict)
    """Operators and constants of the graph as given, by name, for which equal ones stand: the rule `unify`."""

    __repr__ = hide_fields(
        "graph",
        "placement",
        "buffers",
        "steps",
        "stages",
        "outputs",
        "nbytes_by_link",
        "alternatives",
        "expansions",
        "unified",
    )

    def __post_init__(self) -> None:
        for name in ("placement", "sharding", "nbytes_by_link", "alternatives", "unified"):
            force_setattr(self, name, freeze_dicts(getattr(self, name)))
        if not self.nbytes_spilled and isinstance(self.mesh, Mesh):
            force_setattr(self, "nbytes_spilled", (0,) * self.mesh.size)

    def __eq__(self, other: object) -> bool:
        """Whether two plans are of the same graph and say the same: so a plan that was written and read is."""
        if not isinstance(other, ShardPlan):
            return NotImplemented
        fields = [name for name in self.__struct_fields__ if name != "graph"]
        if any(getattr(self, name) != getattr(other, name) for name in fields):
            return False
        return self.graph is other.graph or same_graph(self.graph, other.graph)

    __hash__ = None  # type: ignore[assignment]  # plans have dictionaries

    @property
    def nbytes_moved(self) -> int:
        """Bytes between devices, once for each receiving device."""
        return sum(self.nbytes_received)

    @property
    def cost(self) -> float:
        """The figure that the search minimized: `seconds`."""
        return self.seconds

    @cached_property
    def schedule(self) -> Schedule:
        """When each step runs where copies run beside work: what `makespan_seconds` is from, worked out when asked for.

        Raises
        ------
        ValueError
            For a plan from a document of before, which does not say what each device's work takes.
        """
        if any(node in self.stage and not self.stage[node].work_seconds for node in self.placement):
            raise ValueError(
                "schedule: the plan is from a document that does not say what each device's work takes; plan again"
            )
        work = {stage.node: stage.work_seconds for stage in self.stages}
        return run_queues(list_queued(self.steps, self.buffers, self.mesh, work))

    @property
    def makespan_seconds(self) -> float:
        """Modeled time with copies beside work: every device's work, and every link, in a queue of its own.

        Messages of one device over one link go one after the other, whole, so that it may be more than `seconds`, of
        which `bound` is a bound, where a stage's messages do not fit together; mostly it is less.
        """
        return self.schedule.seconds

    @property
    def gap(self) -> float:
        """(cost − bound) / cost, 0 when the cost is 0."""
        return (self.cost - self.bound) / self.cost if self.cost else 0.0

    @property
    def expanded(self) -> dict[str, str]:
        """The operators that the search said in other ones, each with the name of its expansion."""
        return {found.node: found.chosen for found in self.expansions if found.chosen is not None}

    @property
    def derivation(self) -> Derivation:
        """The rewrites that lead from the graph that was planned to the graph that the plan has.

        Replayed, they give the same operators on the same tensors, but for their order: the plan runs what stands for
        an operator where the operator would run, rewrites add it at the end. Where several operators read one tensor,
        the first of them pays for what arrives, so that a plan of the replayed graph may cost a little less or more.
        """
        steps = Derivation()
        for name, other in self.unified.items():
            steps = steps.then("unify", name, other=other)
        for found in self.expansions:
            if found.split:
                steps = steps.then("split_axes", found.node, **tell_rule(found.split))
            elif found.chosen is not None:
                steps = steps.then("expand", found.node, into=found.chosen)
        return steps

    @cached_property
    def kept(self) -> WeakKeyDictionary[object, Any]:
        """Answers kept for this plan, by who keeps them here; gone with either. Neither written nor compared."""
        return WeakKeyDictionary()

    @cached_property
    def stage(self) -> dict[str, Stage]:
        """The stages by operator."""
        return FrozenDict((stage.node, stage) for stage in self.stages)

    @check_arguments
    def explain(self, node: str) -> str:
        """Why an operator is sharded as it is: its costs otherwise, all else being equal.

        Each other sharding has the totals of the whole graph, and by how much they differ from the plan's.

        Raises
        ------
        ValueError
            When the plan has no operator of that name.
        """
        same = self.unified.get(node)
        if same is not None and node not in self.stage and (same in self.stage or same in self.expanded):
            return f"{node}: the same as {same}, which is computed once and stands for both\n{self.explain(same)}"
        found = {entry.node: entry for entry in self.expansions}
        if node in self.expanded:
            stands = ", ".join(found[node].nodes)
            return f"{node}: expanded by {self.expanded[node]}, which the search found better, into {stands}"
        if node not in self.stage:
            known = list_names(self.stage, node, "operators")
            raise ValueError(f"explain: the plan has no operator {quote(node)}; {known}")
        stage = self.stage[node]
        lines = [
            f"{node} ({stage.op}): {_sharding_text(stage.sharding)}",
            f"  receives {sum(stage.nbytes_received):,} B, its devices share {stage.nbytes_shared:,} B, "
            f"{stage.seconds * 1e6:.2f} us in this plan",
            f"  with every other operator as it is, and {_COMPARED[self.space]}, the graph would take:"
            if self.alternatives.get(node)
            else "  (not compared with other shardings: its tensors have too many consumers)",
        ]
        if node in found:
            lines[2:2] = self._compared(found[node])
        lines[2:2] = [
            f"  stands, with others, for {entry.node}, expanded by {entry.chosen}"
            for entry in self.expansions
            if node in entry.nodes
        ]
        for other in self.alternatives.get(node, ()):
            mark = " <- chosen" if other.sharding == stage.sharding else ""
            more = f" ({(other.seconds - self.cost) * 1e6:+.2f} us, {other.nbytes_moved - self.nbytes_moved:+,} B)"
            lines.append(
                f"    {_sharding_text(other.sharding):24} {other.seconds * 1e6:12.2f} us "
                f"{other.nbytes_moved:14,} B moved{mark or more}"
            )
        return "\n".join(lines)

    def _compared(self, entry: Expansions) -> list[str]:
        """What is known of an operator's expansions, which the plan does not have."""
        lines = []
        if entry.considered:
            finding = "no better" if self.gap == 0 else "not found better (the gap is not closed)"
            lines.append(f"  {finding} where expanded by {' or '.join(entry.considered)}")
        if entry.left_out:
            by = " or ".join(entry.left_out)
            lines.append(f"  not compared with what it is expanded by {by}: too many views to be read, or no time")
        return lines

    @check_arguments
    def diff(self, other: ShardPlan) -> str:
        """What another plan has otherwise: totals, the machine, and each operator whose parts lie elsewhere.

        Operators are compared by name: plans of different graphs have few in common. Empty text where nothing that is
        listed differs, not even a total.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, plan
        >>> g = Graph()
        >>> _ = g.output(g.input("x", (64, 64)) @ g.input("w", (64, 64)))
        >>> p, q = plan(g, Mesh(4)), plan(g, Mesh(4), fix={"matmul": {"k": 4}})
        >>> p.diff(p)
        ''
        >>> print(p.diff(q))  # doctest: +ELLIPSIS
        time          ... us ->          ... us ...
        moved           0 B ->      ... B ...
        """
        totals: list[tuple[str, float, float, str]] = [
            ("time", self.seconds * 1e6, other.seconds * 1e6, ",.2f us"),
            ("bound", self.bound * 1e6, other.bound * 1e6, ",.2f us"),
            ("moved", self.nbytes_moved, other.nbytes_moved, ",d B"),
            ("placed", sum(self.nbytes_placed), sum(other.nbytes_placed), ",d B"),
            ("spilled", sum(self.nbytes_spilled), sum(other.nbytes_spilled), ",d B"),
            ("peak", max(self.peak_nbytes, default=0), max(other.peak_nbytes, default=0), ",d B"),
        ]
        lines = [_total_text(*row) for row in totals if row[1] != row[2]]
        asked = [
            (f"mesh.{name}", getattr(self.mesh, name), getattr(other.mesh, name)) for name in Mesh.__struct_fields__
        ]
        for what, mine, theirs in (*asked, ("space", self.space, other.space)):
            if mine != theirs:
                lines.append(f"{what}: {mine} -> {theirs}")
        for node in dict.fromkeys((*self.placement, *other.placement)):
            one, two = self._place_text(node), other._place_text(node)
            if one == two and self.placement[node] != other.placement[node]:
                two += ", on other devices"
            if one != two:
                lines.append(f"{node}: {one} -> {two}")
        return "\n".join(lines)

    def _place_text(self, node: str) -> str:
        """How an operator is sharded; or what the plan has in its place."""
        if node in self.expanded:
            return f"expanded by {self.expanded[node]}"
        if node in self.unified and node not in self.placement:
            return f"as {self.unified[node]}"
        return _sharding_text(self.sharding[node]) if node in self.placement else "not in the plan"

    # -- as a document -----------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data."""
        links = [(*link, nbytes) for link, nbytes in self.nbytes_by_link.items()]
        body = {"format": PLAN_FORMAT, **asdict(self), "graph": self.graph.to_dict(), "nbytes_by_link": links}
        return cast("dict[str, Any]", _plain(body))

    def to_json(self) -> str:
        """The plan as a JSON document with its own SHA-256, so that an edited plan is recognized."""
        body = self.to_dict()
        return msgspec.json.encode({**body, "sha256": _digest(body)}).decode()

    @classmethod
    def from_json(cls, text: str | bytes, ops: Mapping[str, Op] | None = None) -> ShardPlan:
        """A plan from its JSON document; `ops` declares operators beyond the built-in ones.

        Raises
        ------
        PlanVersionError
            For text that is not JSON, another format or version, or a document that was edited.
        """
        try:
            document = read_json(text, "plan document", PLAN_FORMAT, "make the plan again: tapestry plan MODEL --json")
        except ValueError as error:
            raise PlanVersionError(str(error)) from None
        edited = document.pop("sha256", None) != _digest(document)
        told = "its SHA-256 does not match, it was edited; make it again"
        try:
            _require(document, cls)
            graph = Graph.from_dict(document["graph"], ops)
            own = {name: value for name, value in document.items() if name not in ("format", "graph")}
            made = cls(graph, **_read_fields(READERS, own))
            wrong = find_misfit(made, cls, "$")
            if wrong is not None:
                raise ValueError(wrong)
        except WRONG as error:
            if isinstance(error, UnsupportedOp) and not edited:
                raise
            raise PlanVersionError(f"plan document: {error}{f'; {told}' if edited else ''}") from None
        if edited:
            raise PlanVersionError(f"plan document: {told}")
        return made


_COMPARED: dict[Space, str] = {
    "mesh": "layouts along the mesh's axes (space 'mesh')",
    "all": "any factorization of the devices (space 'all')",
}
"""What the shardings were compared over."""


def _total_text(what: str, mine: float, theirs: float, form: str) -> str:
    number, unit = form.split()
    more = f"({(theirs - mine) / mine:+.1%})" if mine else "(from nothing)"
    return f"{what:8}{mine:>16{number}} {unit} -> {theirs:>16{number}} {unit} {more}"


def _sharding_text(sharding: Mapping[str, int]) -> str:
    return " ".join(f"{axis}:{parts}" for axis, parts in sharding.items()) or "whole"


def _plain(value: Any) -> Any:
    """Steps and their parts as dicts, lists and numbers."""
    match value:
        case int() | str():  # most of a plan
            return value
        case tuple() | list():
            return [_plain(item) for item in value]
        case Region():
            return region_to_dict(value)
        case Piece():
            return piece_to_dict(value)
        case Box():
            return [list(value.start), list(value.shape)]
        case Link() | Device():
            return list(astuple(value))
        case msgspec.Struct():
            fields = {name: _plain(getattr(value, name)) for name in value.__struct_fields__}
            tag = value.__struct_config__.tag
            return {"type": tag, **fields} if tag else fields
        case float():
            return finite(value)
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case _:
            return value


OF_LATE = {"host", "nbytes_spilled", "expansions", "space", "unified", "work_seconds"}
"""Fields that documents have not which were written before plans could spill, be expanded, say their space or each
device's work, or have one for equal ones."""
STEPS = {kind.__struct_config__.tag: kind for kind in get_args(Step)}
"""The kinds of steps by the word that documents have for them."""


WRONG = (LookupError, TypeError, ValueError, AttributeError, RecursionError)
"""What is raised for plain data that cannot be read."""


class _WrongAt(ValueError):
    """What is wrong in a document, and where."""

    def __init__(self, place: str, reason: str, shown: str) -> None:
        super().__init__(f"{reason} - at `${place}`{shown}")
        self.place, self.reason, self.shown = place, reason, shown


def _wrong_at(place: str, value: Any, error: Exception) -> _WrongAt:
    """The error of a value at a place, or of what is wrong inside of it."""
    if isinstance(error, _WrongAt):
        return _WrongAt(place + error.place, error.reason, error.shown)
    return _WrongAt(
        place, f"field {error} is missing" if isinstance(error, KeyError) else str(error), f", which is {quote(value)}"
    )


def _read_fields(readers: Mapping[str, Callable[[Any], Any]], entry: Mapping[str, Any]) -> dict[str, Any]:
    """Fields, each by its reader, or as plain values."""
    fields = {}
    for name, value in entry.items():
        try:
            fields[name] = readers.get(name, from_finite)(value)
        except WRONG as error:
            raise _wrong_at(f".{name}", value, error) from None
    return fields


def _read_list(entries: Any) -> tuple[Any, ...]:
    if not isinstance(entries, list):
        raise TypeError("a list is needed")
    return tuple(entries)


def _read_all(read: Callable[[Any], Any], entries: Any) -> tuple[Any, ...]:
    entries, made = _read_list(entries), []
    for i, entry in enumerate(entries):
        try:
            made.append(read(entry))
        except WRONG as error:
            raise _wrong_at(f"[{i}]", entry, error) from None
    return tuple(made)


def _read_step(entry: dict[str, Any]) -> Step:
    kind = STEPS.get(entry["type"])
    if kind is None:
        raise TypeError(f"there is no step {quote(entry['type'])}; {list_names(sorted(STEPS), entry['type'], 'steps')}")
    return cast(Step, _read(kind, {name: value for name, value in entry.items() if name != "type"}))


def _read(kind: Any, entry: dict[str, Any]) -> Any:
    """A struct from its fields; regions and pieces by their own readers."""
    _require(entry, kind)
    return kind(**_read_fields(FIELDS, entry))


def _read_each(kind: Any, entries: Sequence[dict[str, Any]]) -> tuple[Any, ...]:
    return _read_all(partial(_read, kind), entries)


def _read_mesh(entry: dict[str, Any]) -> Mesh:
    _require(entry, Mesh)
    fields: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()}
    fields["shape"] = _read_list(entry["shape"])
    fields["device"] = _read_device(fields["device"])
    if "host" in fields:
        fields["host"] = Link(*fields["host"])
    return Mesh(**{**fields, "link": _read_link(fields["link"])})


def _read_device(entry: Sequence[Any]) -> Device | tuple[Device, ...]:
    """A device for all of a mesh, or one for each."""
    return tuple(Device(*one) for one in entry) if any(isinstance(one, list) for one in entry) else Device(*entry)


def _read_link(entry: Sequence[Any]) -> Link | tuple[Link | str, ...]:
    """A link for all axes of a mesh, or one for each, or the name of an axis that has it."""
    if any(isinstance(link, list) for link in entry):
        return tuple(link if isinstance(link, str) else Link(*link) for link in entry)
    return Link(*entry)


def _require(entry: Mapping[str, Any], kind: type[Struct]) -> None:
    missing = set(kind.__struct_fields__) - OF_LATE - entry.keys()
    if missing:
        raise ValueError(f"field {quote(min(missing))} is missing")


def _read_boxes(boxes: Sequence[Any]) -> tuple[Box, ...]:
    return tuple(Box(tuple(start), tuple(shape)) for start, shape in boxes)


def _read_blocks(blocks: Sequence[Any]) -> tuple[tuple[int, Region], ...]:
    return tuple((buffer, region_from_dict(region)) for buffer, region in blocks)


READERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("nbytes_received", "nbytes_placed", "peak_nbytes", "flop", "nbytes_spilled"), _read_list),
    "mesh": _read_mesh,
    "placement": lambda all_: {n: {int(d): _read_boxes(b) for d, b in places.items()} for n, places in all_.items()},
    "buffers": partial(_read_each, Buffer),
    "steps": partial(_read_all, _read_step),
    "stages": partial(_read_each, Stage),
    "outputs": partial(_read_each, Output),
    "nbytes_by_link": lambda links: {(a, b): nbytes for a, b, nbytes in links},
    "alternatives": lambda all_: {node: _read_each(Alternative, entries) for node, entries in all_.items()},
    "expansions": partial(_read_each, Expansions),
}
"""The fields of a plan that are more than plain values in its document, with what reads each."""
FIELDS: dict[str, Callable[[Any], Any]] = {
    "split": partial(_read_each, SplitAxis),
    "regions": partial(_read_all, region_from_dict),
    "piece": lambda piece: None if piece is None else piece_from_dict(piece),
    "blocks": _read_blocks,
    "replicas": _read_blocks,
}
"""The same of what is in these."""


def _digest(body: dict[str, Any]) -> str:
    import hashlib  # OpenSSL, loaded with the first document, not with the package

    return hashlib.sha256(msgspec.json.encode(body, order="sorted")).hexdigest()
