"""What is printed of a plan and its run: tables, each with a legend where its columns need one, and totals."""

from __future__ import annotations

from collections.abc import Sequence

from tapestry_exec.cli.terminal import echo, print_table
from tapestry_exec.cli.tuning import LONG_WAIT, REASONED, REASONED_SHARDS
from tapestry_exec.run import RunResult
from tapestry_plan.steps import (
    ShardPlan,
    has_bound,
    list_opaque,
    tell_block,
    tell_choice,
    tell_cut,
    tell_folded,
    tell_gap,
)
from tapestry_sets.limits import Units, escape_controls

QUEUES = {
    "work": "the work of",
    "send": "what is sent by",
    "receive": "what is received by",
    "to host": "what goes to host memory from",
    "from host": "what comes from host memory to",
}
"""The queues of a schedule, in words."""
OPERATOR_LEGEND = (
    "tensor, shape: what the operator makes, under its own name unless one is told; sharding: parts along its index "
    "axes, or which devices compute all of it; pulled: what its devices get from others; shared: what several of them "
    "read"
)
DEVICE_LEGEND = "received: from other devices; peak: most held at once; spilled: to host memory and back"


def print_operators(p: ShardPlan, title: str, units: Units) -> None:
    """For each operator what it makes, its sharding, what it pulls from other devices, and what its shards share."""
    rows, labels = [], {tensor: label for label, tensor in p.graph.outputs.items()}
    for one in p.stages:
        made = p.graph.nodes[one.node].outputs if one.node in p.graph.nodes else ()
        label = labels.get(made[0], made[0]) if made else ""
        more = f" and {len(made) - 1} more" if len(made) > 1 else ""
        rows.append(
            (
                one.node,
                tell_block(one.op),
                f"{'' if label == one.node else label}{more}",
                tell_shape(p.graph.stored[made[0]].shape) if made else "",
                tell_cut(p, one.node),
                units.nbytes(sum(one.nbytes_received)),
                units.nbytes(one.nbytes_shared),
            )
        )
    heads = ("operator", "type", "tensor", "shape", "sharding", "pulled", "shared")
    print_table(title, heads, rows, (5, 6), OPERATOR_LEGEND)


def tell_shape(shape: Sequence[int]) -> str:
    """A shape as tables have it, and options take it.

    Examples
    --------
    >>> tell_shape((2, 3, 8, 8)), tell_shape(())
    ('2x3x8x8', 'scalar')
    """
    return "x".join(map(str, shape)) or "scalar"


def print_pareto(plans: Sequence[ShardPlan], title: str, units: Units) -> None:
    """For each plan the memory that it needs, its time with what is proved of it, and what moves."""
    rows = [
        (
            units.nbytes(max(p.peak_nbytes)),
            units.seconds(p.seconds),
            f"{100 * p.gap:.1f} %",
            units.nbytes(p.nbytes_moved),
        )
        for p in plans
    ]
    legend = "peak: most that a device holds at once; time: modeled; gap: at most so much of it is more than the least"
    print_table(title, ("peak", "time", "gap", "moved"), rows, range(4), legend)


def print_devices(p: ShardPlan, r: RunResult | None, units: Units) -> None:
    """For each device its bytes and peak memory, predicted and, after a run, counted; the spilled bytes if any."""
    shown = [("received", "nbytes_received"), ("peak", "peak_nbytes")]
    if any(p.nbytes_spilled):
        shown.append(("spilled", "nbytes_spilled"))
    found: list[tuple[ShardPlan | RunResult, str | None]] = [(p, None)]
    if r is not None:  # of a run that went on from a checkpoint the plan says what a whole one takes
        found = [(r, None)] if r.resumed_at is not None else [(p, None), (r, "counted")]
    columns = [(other or head, getattr(one, name)) for head, name in shown for one, other in found]
    heads = ["device", *(head for head, _ in columns)]
    rows = [[str(d), *(units.nbytes(values[d]) for _, values in columns)] for d in range(p.mesh.size)]
    known = [part for part in DEVICE_LEGEND.split("; ") if part.partition(":")[0] in heads]
    print_table("", heads, rows, range(1, len(heads)), "; ".join(known))


def print_totals(p: ShardPlan, units: Units) -> None:
    """Modeled time, its proven bound, and how the work is divided."""
    flop = sum(p.flop)
    busiest = max(p.flop, default=0.0)
    proven = f"proven bound {units.seconds(p.bound)} ({tell_gap(p)}, space {p.space!r})"
    echo(
        f"modeled {units.seconds(p.seconds)}, {proven if has_bound(p) else tell_gap(p)}; "
        f"{units.flop(flop)}, the busiest device {busiest / flop if flop else 0:.1%}"
    )
    if p.apart and has_bound(p):
        some = f"{p.apart[0]} and {len(p.apart) - 1} more" if len(p.apart) > 1 else p.apart[0]
        echo(f"the bound has expansions of {some} with their operators apart, not in blocks")
    if p.choices.memory_nbytes is not None and has_bound(p):
        echo("in the memory given, the bound is of plans with the fastest plan's blocks and expansions, or with none")
    for _, words in list_opaque(p.opaque, units):
        echo(f"opaque: {escape_controls(words, keep='')}")
    if p.graph.folded is not None and p.graph.folded.nodes:
        echo(f"{tell_folded(p.graph.folded, units)}; not in these times")
    schedule = p.schedule
    if schedule.busiest is not None:
        kind, device, _ = schedule.busiest
        echo(
            f"with copies beside work {units.seconds(p.makespan_seconds)}; busiest is {QUEUES[kind]} device {device}, "
            f"{units.seconds(schedule.busy_seconds[schedule.busiest])}"
        )


def print_reasons(p: ShardPlan, ask: str) -> None:
    """Why the operators that receive most, or else take longest, are sharded so; `ask` tells how to learn it of others.

    Of a plan of many shards, for which it takes long to compare others, it is only said how to ask, and on one device
    nothing.
    """
    if not p.stages or p.mesh.size == 1:
        return
    some = sorted(p.stages, key=lambda one: (-sum(one.nbytes_received), -one.seconds))[:REASONED]
    some *= len(p.stages) * p.mesh.size <= REASONED_SHARDS
    most = "received" if any(sum(one.nbytes_received) for one in some) else "time"
    beside = f" (most {most} first; of others: {ask})" if len(p.stages) > len(some) > 0 else ""
    echo(f"why{beside}:" if some else f"why: {ask}")
    for one in some:
        first, *rest = tell_choice(p, one.node)
        echo(f"  {first}")
        for line in rest:
            echo(f"    {line}")


def print_counted(what: str, predicted: int, counted: int, units: Units, is_rest: bool = False) -> None:
    """Bytes that a run counted, which are those that the plan predicted, or it had failed."""
    if is_rest:
        echo(f"{what} behind the checkpoint: {units.nbytes(counted)} counted, as predicted of what was left to do")
        return
    echo(f"{what}: {units.nbytes(predicted)} predicted, {units.nbytes(counted)} counted, equal")


def print_run(p: ShardPlan, r: RunResult, units: Units) -> None:
    """What a run gave, and what it counted beside what was predicted."""
    print_devices(p, r, units)
    for name, value in r.outputs.items():
        found = f", difference from the unsharded run {r.difference[name]:.3g}" if r.difference else ""
        echo(f"output {escape_controls(name, keep='')}: {value.dtype}{list(value.shape)}{found}")
    is_rest = r.resumed_at is not None
    if is_rest:
        echo(f"went on from a checkpoint behind step {r.resumed_at}")
    print_counted("bytes moved", p.nbytes_moved, r.nbytes_moved, units, is_rest)
    told = {"bytes placed": "nbytes_placed", "bytes copied within devices": "nbytes_copied"}
    if any(p.nbytes_spilled):
        told["bytes spilled to host memory and back"] = "nbytes_spilled"
    for what, name in told.items():
        print_counted(what, sum(getattr(p, name)), sum(getattr(r, name)), units, is_rest)
    for fault in r.faults:
        echo(
            f"generation {fault.generation} ended, and all devices began again: {escape_controls(fault.error, keep='')}"
        )
    if r.clock_error:
        echo(f"times of devices that have other clocks are off by at most {units.seconds(r.clock_error)}")
    device, waited = next(iter(r.waited_for.items()), (0, 0.0))
    if waited > LONG_WAIT * r.seconds:
        echo(f"device {device} was waited for most: others stood still for {units.seconds(waited)} in all")
    echo(f"took {units.seconds(r.seconds)}, modeled {units.seconds(p.seconds)}")
