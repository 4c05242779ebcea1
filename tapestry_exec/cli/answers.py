"""What commands print with ``--json``: one document for each, with its version, from which its JSON Schema is made.

To add a document, declare a struct here, tagged with its format, and list it in `ANSWERS`. A field that changes its
meaning, or goes, makes another version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, get_args

import msgspec
from msgspec import Struct

from tapestry_exec.cli.terminal import echo, escape_json
from tapestry_exec.run import RunResult, StagedResult
from tapestry_plan.ir import FoldedNodes, Signature
from tapestry_plan.onnx import ModelStage
from tapestry_plan.steps import (
    Cause,
    DocumentKind,
    MemoryNeed,
    OpaqueCost,
    PlannedTransfer,
    ShardPlan,
    describe_document,
    describe_type,
)
from tapestry_plan.symbolic import Crossovers, Polynomials, Refused, SymbolicTransfers


class PlanFigures(Struct, forbid_unknown_fields=True):
    """What a plan costs: modeled seconds, the proved bound of them, bytes between devices, and at most held by one.

    `makespan_seconds` has copies beside work; `opaque` are operators that run whole, or in parts of all their rounds,
    with the bytes that move for them, those that each reads and writes, its seconds, which are the least of one that
    nobody knows, its operations, and how many devices run it; `apart` those whose expansions the bound
    has with their operators apart; `folded` what was computed when the model was read.
    """

    mesh: list[int]
    seconds: float
    bound: float
    gap: float
    space: str
    flop: float
    nbytes_moved: int
    peak_nbytes: int
    sharding: dict[str, dict[str, int]]
    makespan_seconds: float
    opaque: dict[str, OpaqueCost]
    apart: list[str]
    folded: FoldedNodes | None

    @classmethod
    def of(cls, p: ShardPlan) -> PlanFigures:
        peak, shape = max(p.peak_nbytes, default=0), list(p.mesh.shape)
        sharding = {node: dict(parts) for node, parts in p.sharding.items()}
        return cls(
            shape,
            p.seconds,
            p.bound,
            p.gap,
            p.space,
            sum(p.flop),
            p.nbytes_moved,
            peak,
            sharding,
            p.makespan_seconds,
            dict(p.opaque),
            list(p.apart),
            p.graph.folded,
        )


class DeviceFigures(Struct, forbid_unknown_fields=True):
    """The bytes of one device: from others, from the host, copied within it, spilled and fetched, at most held."""

    device: int
    nbytes_received: int
    nbytes_placed: int
    nbytes_copied: int
    nbytes_spilled: int
    peak_nbytes: int

    @classmethod
    def list_of(cls, found: ShardPlan | RunResult) -> list[DeviceFigures]:
        names = [name for name in cls.__struct_fields__ if name != "device"]
        return [cls(d, *(_at(getattr(found, name), d) for name in names)) for d in range(len(found.peak_nbytes))]


def _at(values: Sequence[int], device: int) -> int:
    return values[device] if values else 0


class OutputFigures(Struct, forbid_unknown_fields=True):
    """An output, and with ``--verify`` its difference from the unsharded run."""

    name: str
    dtype: str
    shape: list[int]
    difference: float | None


class FaultFigures(Struct, forbid_unknown_fields=True):
    """What ended a generation of all devices, which then began again; steps are [the plan's step, bytes sent]."""

    generation: int
    device: int | None
    step: int | None
    error: str
    nbytes_sent: list[int | None]
    steps: list[tuple[int, int]]


class RunFigures(Struct, forbid_unknown_fields=True):
    """What a run counted, each equal to what the plan predicted; links are [source, target, bytes].

    It is the generation behind those that faults ended. `waited_for` are [device, seconds that others stood still for
    what it sent], the longest first; times are off by at most `clock_error` seconds where devices have other clocks.
    """

    seconds: float
    clock_error: float
    nbytes_moved: int
    links: list[tuple[int, int, int]]
    devices: list[DeviceFigures]
    outputs: list[OutputFigures]
    waited_for: list[tuple[int, float]]
    generation: int
    faults: list[FaultFigures]

    @classmethod
    def of(cls, r: RunResult) -> RunFigures:
        apart = r.difference or {}
        outputs = [
            OutputFigures(name, str(value.dtype), list(value.shape), apart.get(name))
            for name, value in r.outputs.items()
        ]
        links = [(a, b, nbytes) for (a, b), nbytes in r.nbytes_by_link.items()]
        faults = [
            FaultFigures(
                *(f.generation, f.device, f.step, f.error), list(f.nbytes_sent), list(f.nbytes_by_step.items())
            )
            for f in r.faults
        ]
        rest = list(r.waited_for.items()), 1 + len(faults), faults
        return cls(r.seconds, r.clock_error, r.nbytes_moved, links, DeviceFigures.list_of(r), outputs, *rest)


class _Answer(Struct, forbid_unknown_fields=True, tag_field="format"):
    """A document; its format comes first."""


class DemoAnswer(_Answer, tag="tapestry-demo/1"):
    """What `demo` found: the plan, its run, and the largest difference from the network run whole."""

    plan: PlanFigures
    run: RunFigures
    reference: str
    difference: float | None
    allowed_difference: float


class RunAnswer(_Answer, tag="tapestry-run/1"):
    """What `run` counted, of which plan."""

    plan: PlanFigures
    run: RunFigures


class StageEntry(Struct, forbid_unknown_fields=True):
    """A stage: why it ends, what runs whole behind it, whose values the next one needs; null without a graph.

    `awaited` are inputs that must be given before that one.
    """

    number: int
    reasons: list[str]
    whole: list[str]
    wanted: list[str]
    awaited: list[str]
    behind: int
    plan: PlanFigures | None
    run: RunFigures | None

    @classmethod
    def of(cls, stage: ModelStage, plan: PlanFigures | None = None, run: RunFigures | None = None) -> StageEntry:
        told = list(stage.reasons), list(stage.whole), list(stage.wanted), list(stage.awaited)
        return cls(stage.number, *told, stage.behind, plan, run)


class StagesAnswer(_Answer, tag="tapestry-stages/1"):
    """What `run` prints of a model whose shapes follow from values: its stages, and its outputs.

    `plan` prints it where nothing is planned yet: the first stage, which says why, and no outputs.

    `whole_before` are nodes that ran whole before any stage; `nbytes_whole` came to the host for all that ran whole. An
    output that is not a tensor has the dtype "object".
    """

    stages: list[StageEntry]
    outputs: list[OutputFigures]
    whole_before: list[str]
    nbytes_whole: int

    @classmethod
    def planned(cls, stage: ModelStage | None) -> StagesAnswer:
        """Of a model of which nothing is planned yet."""
        return cls([] if stage is None else [StageEntry.of(stage)], [], [], 0)

    @classmethod
    def of(cls, found: StagedResult) -> StagesAnswer:
        each = iter(zip(found.plans, found.runs, strict=True))
        stages = []
        for one in found.stages:
            p, r = next(each) if one.graph is not None else (None, None)
            figures = None if p is None or r is None else (PlanFigures.of(p), RunFigures.of(r))
            stages.append(StageEntry.of(one, *(figures or (None, None))))
        outputs = [
            OutputFigures(name, str(getattr(value, "dtype", "object")), list(getattr(value, "shape", ())), None)
            for name, value in found.outputs.items()
        ]
        return cls(stages, outputs, list(found.whole_before), found.nbytes_whole)


class ParetoAnswer(_Answer, tag="tapestry-pareto/1"):
    """Plans from the fastest one to the one in the least memory."""

    plans: list[PlanFigures]


class AlternativeEntry(Struct, forbid_unknown_fields=True):
    """A sharding of an operator: what the whole graph would take so, and why, in words and in numbers.

    Devices are those of one that is whole; memory is of plans in limited memory.
    """

    sharding: dict[str, int]
    seconds: float
    nbytes_moved: int
    is_chosen: bool
    reasons: list[str]
    causes: tuple[Cause, ...]
    devices: tuple[int, ...]
    memory: MemoryNeed | None


class Explained(Struct, forbid_unknown_fields=True):
    """Why an operator is sharded so, in words and numbers; no stage where others stand for it."""

    node: str
    text: str
    sharding: dict[str, int] | None
    nbytes_received: list[int] | None
    nbytes_shared: int | None
    seconds: float | None
    alternatives: list[AlternativeEntry]


class ExplainAnswer(_Answer, tag="tapestry-explain/1"):
    """Why operators are sharded as they are."""

    explained: list[Explained]

    @classmethod
    def of(cls, p: ShardPlan, nodes: Sequence[str]) -> ExplainAnswer:
        return cls([_explain(p, node) for node in nodes])


def _explain(p: ShardPlan, node: str) -> Explained:
    text = p.explain(node)
    stage = p.stage.get(text.node)
    if stage is None:
        return Explained(node, str(text), None, None, None, None, [])
    others = [
        AlternativeEntry(
            dict(one.sharding),
            one.seconds,
            one.nbytes_moved,
            one.is_chosen,
            list(one.reasons),
            one.causes,
            one.devices,
            next(iter(text.needs[k : k + 1]), None),
        )
        for k, one in enumerate(text.alternatives)
    ]
    received = list(stage.nbytes_received)
    return Explained(node, str(text), dict(stage.sharding), received, stage.nbytes_shared, stage.seconds, others)


class TransfersAnswer(_Answer, tag="tapestry-transfers/1"):
    """What a plan moves from device to device: bytes of these transfers, and of all that the plan has."""

    transfers: list[PlannedTransfer]
    nbytes: int
    nbytes_moved: int


class PolynomialsEntry(Struct, forbid_unknown_fields=True):
    """Bytes at any size: by remainder of the size the coefficients, that of the lowest power first, and in words."""

    text: str
    classes: list[list[str] | None]

    @classmethod
    def of(cls, found: Polynomials) -> PolynomialsEntry:
        return cls(str(found), [None if each is None else list(map(str, each)) for each in found.classes])


class SizedTransfer(Struct, forbid_unknown_fields=True):
    """What goes from one device to another of a tensor, for an operator or a stage, at any size."""

    source: int
    target: int
    tensor: str
    producer: str
    consumer: str
    part: int
    nbytes: PolynomialsEntry


class BoundEntry(Struct, forbid_unknown_fields=True):
    """What a plan comes to at a size; null where it cannot be bound to it."""

    seconds: float
    nbytes_moved: int


class SizeEntry(Struct, forbid_unknown_fields=True):
    """A size, what each plan comes to there, and which of them is the best, by number.

    Of a plan that was found it is null also where another one is proved to be the best. No plan of the planner's space
    takes less than `bound` seconds, so that one may be better by `gap` at most; `unplanned` says why none was planned.
    """

    size: int
    plans: list[BoundEntry | None]
    best: int | None
    bound: float | None
    gap: float | None
    unplanned: str | None


class SizesAnswer(_Answer, tag="tapestry-sizes/1"):
    """What a plan moves at any size of an open axis, and which plan is the best at some sizes.

    Polynomials hold from `least` to `most`, which is null where no end was found; `why` says what is otherwise there.
    """

    symbol: str
    others: dict[str, int]
    least: int
    most: int | None
    why: str
    nbytes: PolynomialsEntry
    transfers: list[SizedTransfer]
    refused: list[Refused]
    confirmed: list[int]
    planned_at: list[int]
    sizes: list[SizeEntry]
    crossovers: list[int]

    @classmethod
    def of(cls, found: SymbolicTransfers, crossing: Crossovers) -> SizesAnswer:
        rows = [
            SizedTransfer(
                row.source,
                row.target,
                row.tensor,
                row.producer,
                row.consumer,
                row.part,
                PolynomialsEntry.of(row.nbytes),
            )
            for row in found
        ]
        sizes = [
            SizeEntry(
                size,
                [None if one is None else BoundEntry(one.seconds, one.nbytes_moved) for one in each],
                best,
                bound,
                gap,
                crossing.unplanned.get(size),
            )
            for size, each, best, bound, gap in zip(
                crossing.sizes, crossing.found, crossing.best, crossing.bounds, crossing.gaps, strict=True
            )
        ]
        return cls(
            found.symbol,
            dict(found.sizes),
            found.least,
            found.most,
            found.why,
            PolynomialsEntry.of(found.nbytes),
            rows,
            list(found.refused),
            list(found.confirmed),
            list(crossing.planned_at),
            sizes,
            [point.size for point in crossing.points],
        )


class VerifyAnswer(_Answer, tag="tapestry-verify/1"):
    """That a saved plan is whole, and what it says."""

    plan: PlanFigures
    steps: int
    shards: int
    devices: list[DeviceFigures]


class ExportAnswer(_Answer, tag="tapestry-export/1"):
    """Where tensors lie in the words of a library: code, or the file that has it; and what cannot be said, and why."""

    library: str
    file: str | None
    code: str | None
    refused: dict[str, str]


class CalibrateAnswer(_Answer, tag="tapestry-calibrate/1"):
    """A machine that was measured: the file that describes it, and its text."""

    file: str
    toml: str


class WitnessEntry(Struct, forbid_unknown_fields=True):
    """A cell that two views share: where it lies, and its index in each of them."""

    allocation: str
    a: list[int]
    b: list[int]
    cell: list[int]


class PairEntry(Struct, forbid_unknown_fields=True):
    """What two views share."""

    a: str
    b: str
    cells: int
    witness: WitnessEntry | None


class OverlapAnswer(_Answer, tag="tapestry-overlap/1"):
    """Which views share cells: each pair of them."""

    pairs: list[PairEntry]


class ShowAnswer(_Answer, tag="tapestry-show/1"):
    """A picture as text, and as SVG unless what is shown has no drawing."""

    title: str
    text: str
    svg: str | None


class AxisEntry(Struct, forbid_unknown_fields=True):
    """An index axis of an operator, over which its work is cut; kinds as those of `Axis`."""

    name: str
    size: int
    kind: str

    @classmethod
    def list_of(cls, signature: Signature) -> list[AxisEntry]:
        return [cls(axis.name, axis.size, axis.kind) for axis in signature.axes]


class OperatorEntry(Struct, forbid_unknown_fields=True):
    """An operator, and the index axes that it has for operands of these shapes with these attributes."""

    name: str
    call: str
    says: str
    shapes: list[list[int]]
    attributes: dict[str, Any]
    axes: list[AxisEntry]
    dtypes: list[str]


class OpsAnswer(_Answer, tag="tapestry-ops/2"):
    """The operators that come along."""

    operators: list[OperatorEntry]


class OnnxPart(Struct, forbid_unknown_fields=True):
    """An operator of graphs that an example becomes, and its index axes; a + is before those that are summed over."""

    op: str
    axes: list[str]


class OnnxEntry(Struct, forbid_unknown_fields=True):
    """An operator of ONNX: imported, defined by others, folded, opaque or refused; and dtypes of its first operand.

    Without parts it is opaque, or whole by nature: views, and values that are known. `instead` are expansions of the
    parts, which plans compare with them.
    """

    operator: str
    how: str
    dtypes: list[str]
    parts: list[OnnxPart]
    instead: list[OnnxPart]


class OnnxAnswer(_Answer, tag="tapestry-onnx-ops/3"):
    """The operators of ONNX."""

    operators: list[OnnxEntry]


class DocumentEntry(Struct, forbid_unknown_fields=True):
    """A document that has a JSON Schema, by the name that `tapestry schema` knows."""

    name: str
    format: str
    says: str


class SchemaAnswer(_Answer, tag="tapestry-schema/1"):
    """The documents that have a JSON Schema."""

    documents: list[DocumentEntry]


ANSWERS: dict[str, type[_Answer]] = {
    "demo": DemoAnswer,
    "run": RunAnswer,
    "stages": StagesAnswer,
    "pareto": ParetoAnswer,
    "explain": ExplainAnswer,
    "transfers": TransfersAnswer,
    "sizes": SizesAnswer,
    "verify": VerifyAnswer,
    "export": ExportAnswer,
    "calibrate": CalibrateAnswer,
    "overlap": OverlapAnswer,
    "show": ShowAnswer,
    "ops": OpsAnswer,
    "schema": SchemaAnswer,
}
"""The document of each command with ``--json``, but for `plan`, which prints the plan itself; `run` has two."""
KINDS: tuple[DocumentKind, ...] = get_args(DocumentKind)
DOCUMENTS = (*KINDS, *ANSWERS)
"""What has a JSON Schema: what a library writes, and what commands print."""


def describe_answer(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a document.

    Examples
    --------
    >>> describe_answer("overlap")["properties"]["format"]
    {'enum': ['tapestry-overlap/1']}
    """
    return describe_type(ANSWERS[name]) if name in ANSWERS else describe_document(_kind(name))


def _kind(name: str) -> DocumentKind:
    (kind,) = [kind for kind in KINDS if kind == name]
    return kind


def list_documents() -> Iterator[DocumentEntry]:
    """What has a JSON Schema, each in a sentence."""
    for name in DOCUMENTS:
        schema = describe_answer(name)
        (form,) = schema["properties"]["format"]["enum"]
        yield DocumentEntry(name, form, schema["description"])


def print_answer(answer: _Answer) -> None:
    """Print a document; numbers that JSON does not have are null."""
    echo(escape_json(msgspec.json.format(msgspec.json.encode(answer), indent=1).decode()))
