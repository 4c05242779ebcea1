"""Lanes of time: what each device works on and what it sends and receives, as predicted and as a run measured it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tapestry_plan.report.markup import UNITS, element, escape, panel, table
from tapestry_plan.report.tuning import CURVE, LISTED_OPERATORS, NARROWEST, SHOWN_CURVES, TOLD_BARS
from tapestry_plan.steps import Compute, Copy, MeasuredRun, Reduce, ShardPlan, list_queued
from tapestry_sets.draw import canvas
from tapestry_sets.limits import cut_text

LANES = {"work": "works", "send": "sends", "receive": "receives", "host": "host"}
"""The lanes of a device, from the top, and what stands before each."""
MEASURED = {
    "compute": "work", "reduce": "work", "copy": "work", "pack": "send", "move": "receive", "unpack": "receive",
    "place": "host", "spill": "host", "fetch": "host",
}  # fmt: skip
"""In which lane a run's events are; those that take and give back places are in none."""
STEPS = {"compute": Compute, "reduce": Reduce, "copy": Copy}
"""The kinds of a run's events that are steps of the plan of the same number."""


class Bar(NamedTuple):
    """Something that takes its time in a lane."""

    device: int
    lane: str
    node: str
    start: float
    seconds: float


def list_predicted(plan: ShardPlan) -> list[Bar]:
    """The operations of a plan's schedule."""
    work = {stage.node: stage.work_seconds for stage in plan.stages}
    operations = list_queued(plan.steps, plan.buffers, plan.mesh, work)
    return [
        Bar(device, kind if kind in LANES else "host", one.node, start, one.seconds)
        for one, start in zip(operations, plan.schedule.starts, strict=True)
        for kind, device, _ in one.queues
        if one.seconds > 0
    ]


def list_measured(run: MeasuredRun) -> list[Bar]:
    """The events of a run."""
    return [
        Bar(part.device, MEASURED[part.kind], event.node, part.start, part.seconds)
        for event in run.timeline
        for part in event.phases or (event,)
        if part.kind in MEASURED
    ]


def check_run(plan: ShardPlan, run: MeasuredRun) -> None:
    """Raise a ValueError for a run that is not of this plan."""
    mend = "give the result of run(plan, …) with this very plan"
    if len(run.peak_nbytes) != plan.mesh.size:
        raise ValueError(
            f"report: the run has {len(run.peak_nbytes)} devices and the plan has {plan.mesh.size}; {mend}"
        )
    counted, planned = dict(run.nbytes_by_link), dict(plan.nbytes_by_link)
    for a, b in sorted({*counted, *planned}):
        found, wanted = counted.get((a, b), 0), planned.get((a, b), 0)
        if found != wanted:
            raise ValueError(
                f"report: the run moved {found:,} B from device {a} to {b} and the plan says {wanted:,} B; {mend}"
            )
    for event in run.timeline:
        kind = STEPS.get(event.kind)
        step = plan.steps[event.step] if 0 <= event.step < len(plan.steps) else None
        if kind is not None and not (isinstance(step, kind) and getattr(step, "node", event.node) == event.node):
            raise ValueError(
                f"report: step {event.step} of the run is a {event.kind} of {cut_text(event.node, 60)!r} and the "
                f"plan's is not; {mend}"
            )


def lanes_panel(plan: ShardPlan, run: MeasuredRun | None) -> str:
    """Lanes as predicted, below them those of a run, and the operators in which the two differ most."""
    predicted = list_predicted(plan)
    parts = [draw_lanes("predicted", predicted, plan.mesh.size, plan.makespan_seconds)]
    if run is None:
        how = "Copies beside work, as the schedule of the plan has them; give a run to see what was measured beside it."
        return panel("lanes", "When it runs", element("p", escape(how), class_="tp-note"), *parts)
    measured = list_measured(run)
    parts.append(draw_lanes("measured", measured, plan.mesh.size, run.seconds))
    parts.append(_compare(plan, measured))
    said = (
        f"Predicted {UNITS.seconds(plan.makespan_seconds)}, measured {UNITS.seconds(run.seconds)}: each has its own "
        "scale, and the shape is what to compare."
    )
    return panel("lanes", "When it runs", element("p", escape(said), class_="tp-note"), *parts)


def draw_lanes(name: str, bars: Sequence[Bar], size: int, seconds: float) -> str:
    """Lanes of all devices, from the first operation to the last."""
    by_lane: defaultdict[tuple[int, str], list[Bar]] = defaultdict(list)
    for bar in bars:
        by_lane[bar.device, bar.lane].append(bar)
    end = max([seconds, *(bar.start + bar.seconds for bar in bars)], default=0.0)
    rows = []
    for device, lane in sorted(by_lane, key=lambda one: (one[0], [*LANES].index(one[1]))):
        if device < SHOWN_CURVES:
            mine = by_lane[device, lane]
            busy = sum(bar.seconds for bar in mine)
            said = f"device {device} {LANES[lane]}"
            rows.append(
                element("span", escape(f"{device} {LANES[lane]}"), class_="tp-lane-name")
                + _draw_lane(mine, lane, end, f"{said}, {UNITS.seconds(busy)} of {UNITS.seconds(end)}")
            )
    left = f"{size - SHOWN_CURVES:,} more devices are not drawn" if size > SHOWN_CURVES else ""
    return element(
        "div",
        element("h3", escape(f"{name}: 0 to {UNITS.seconds(end)}")),
        element("div", *rows, class_="tp-lane-grid"),
        element("p", left, class_="tp-note") if left else "",
        data_lanes=name,
        data_seconds=f"{end:.9g}",
    )


def _draw_lane(bars: Iterable[Bar], lane: str, end: float, title: str) -> str:
    """A lane: bars of one operator that touch are one, and so are the narrowest of any."""
    wide, tall = CURVE
    joined: list[tuple[str, float, float]] = []
    for bar in sorted(bars, key=lambda one: one.start):
        stop = bar.start + bar.seconds
        if joined:
            node, begin, until = joined[-1]
            is_narrow = until - begin < NARROWEST * end and bar.seconds < NARROWEST * end
            if bar.start - until < NARROWEST * end and (node == bar.node or is_narrow):
                joined[-1] = node if node == bar.node else "", begin, max(until, stop)
                continue
        joined.append((bar.node, bar.start, stop))
    parts = []
    for node, begin, until in joined:
        told = f"{node or 'several'}: {UNITS.seconds(begin)} to {UNITS.seconds(until)}"
        width = max((until - begin) / end, NARROWEST) * wide if end else 0
        at = begin / end * wide if end else 0
        parts.append(
            f'<rect x="{at:.5g}" y="0" width="{width:.5g}" height="{tall}"><title>{escape(told)}</title></rect>'
        )
    return (
        f'<svg class="tp-lane tp-lane-{lane}" role="img" viewBox="0 0 {wide} {tall}" preserveAspectRatio="none">'
        f"{''.join(canvas.describe(title, _tell_longest(joined)))}{''.join(parts)}</svg>"
    )


def _tell_longest(joined: Sequence[tuple[str, float, float]]) -> str:
    """The longest bars of a lane, in their order, for those who hear it."""
    kept = sorted(sorted(joined, key=lambda bar: bar[1] - bar[2])[:TOLD_BARS], key=lambda bar: bar[1])
    each = (
        f"{cut_text(node, 60) or 'several'} from {UNITS.seconds(begin)} to {UNITS.seconds(until)}"
        for node, begin, until in kept
    )
    head = f"the longest of {len(joined):,} bars: " if len(kept) < len(joined) else ""
    return f"{head}{'; '.join(each)}"


def _compare(plan: ShardPlan, measured: Sequence[Bar]) -> str:
    """The slowest device's work on each operator, predicted and measured."""
    taken: defaultdict[str, defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
    for bar in measured:
        if bar.lane == "work":
            taken[bar.node][bar.device] += bar.seconds
    slowest = {node: max(each.values()) for node, each in taken.items() if node in plan.stage}
    shown = sorted(slowest, key=lambda node: -slowest[node])[:LISTED_OPERATORS]
    rows = []
    for node in shown:
        modeled = max(plan.stage[node].work_seconds, default=0.0)
        times = slowest[node] / modeled if modeled else 0.0
        ratio = f"{times:,.0f}" if times >= 100 else f"{times:.3g}" if times else ""
        rows.append((cut_text(node, 60), UNITS.seconds(modeled), UNITS.seconds(slowest[node]), ratio))
    left = len(slowest) - len(shown)
    more = element("p", f"and {left:,} more operators", class_="tp-note") if left else ""
    return table(("operator", "predicted", "measured", "times as long"), rows, (1, 2, 3)) + more
