"""What a plan comes to, and what that rests on, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tapestry_plan.report.markup import UNITS, element, escape, panel, table, tell_nbytes
from tapestry_plan.report.tuning import SHOWN_DEVICES
from tapestry_plan.steps import Device, Link, Mesh, ShardPlan, has_bound, list_opaque, tell_folded, tell_gap
from tapestry_sets.limits import tell_count


def list_facts(plan: ShardPlan) -> Iterator[tuple[str, str, str]]:
    """What a plan comes to: a short name, the number, and what it means."""
    busiest, flop = max(plan.flop, default=0.0), sum(plan.flop)
    yield (
        "modeled time",
        UNITS.seconds(plan.seconds),
        f"of {tell_count(len(plan.stages), 'operator')}, one after the other",
    )
    if has_bound(plan):
        yield "at best", UNITS.seconds(plan.bound), f"no plan of the space takes less: {tell_gap(plan)}"
    else:
        yield "at best", tell_gap(plan), "nothing was searched: the plan has the choices of one at other sizes"
    moved = f"{plan.nbytes_moved:,} B between devices, on {tell_count(len(plan.nbytes_by_link), 'link')}"
    yield "moved", UNITS.nbytes(plan.nbytes_moved), moved
    placed = sum(plan.nbytes_placed)
    yield "placed", UNITS.nbytes(placed), f"{placed:,} B of inputs and weights, copies counted"
    peak = max(plan.peak_nbytes, default=0)
    where = plan.peak_nbytes.index(peak) if plan.peak_nbytes else 0
    yield "peak memory", UNITS.nbytes(peak), f"{peak:,} B in the arena of device {where}"
    share = f"the busiest device does {busiest / flop:.1%}" if flop else "nothing is computed"
    yield "work", UNITS.flop(flop), share
    for seconds, words in list_opaque(plan.opaque, UNITS):
        yield "opaque", UNITS.seconds(seconds), words
    if any(plan.nbytes_spilled):
        spilled = sum(plan.nbytes_spilled)
        yield "spilled", UNITS.nbytes(spilled), f"{spilled:,} B go to host memory for want of room, and back"


def list_assumptions(plan: ShardPlan) -> Iterator[str]:
    """The machine and the rules that the numbers rest on, a sentence for each."""
    yield from list_rates(plan.mesh)
    compared = {
        "mesh": "layouts that cut tensors along the mesh's axes",
        "all": "every factorization of the devices, for each operator",
    }[plan.space]
    yield f"Compared were {compared} (space {plan.space!r}); the bound holds over these, and over this model of cost."
    if plan.graph.folded is not None and plan.graph.folded.nodes:
        yield f"Once, {tell_folded(plan.graph.folded, UNITS)}; the plan's time is without that."
    if plan.apart:
        yield (
            f"The bound has the expansions of {tell_count(len(plan.apart), 'operator')} with their operators apart, "
            "not in blocks."
        )
    fit = "" if plan.makespan_seconds <= plan.seconds else ", more since messages of one device over one link wait"
    yield (
        "Time is the sum over operators of the slowest device's work and of what it waits for; with copies beside "
        f"work it would be {UNITS.seconds(plan.makespan_seconds)}{fit}."
    )
    caps = plan.choices.caps
    if caps is not None:
        yield f"Each device may hold {' or '.join(map(tell_nbytes, sorted(set(caps))))}."
    yield "Bytes are exact: cells that a shard needs less those that lie where it runs, counted by sets."


def list_rates(mesh: Mesh) -> Iterator[str]:
    """What a mesh is taken for."""
    axes = ", ".join(f"{name} of {n}" for name, n in zip(mesh.names, mesh.shape, strict=True))
    yield f"The mesh has {tell_count(mesh.size, 'device')} along {'axes' if len(mesh.shape) > 1 else 'axis'} {axes}."
    for number, link in enumerate(mesh.ports):
        mine = [name for name, port in zip(mesh.names, mesh.ports_of_axes, strict=True) if port == number]
        along = f"Along {' and '.join(mine)} each" if len(mesh.ports) > 1 else "Each"
        yield (
            f"{along} device sends and receives {link.nbytes_per_second / 1e9:,.4g} GB/s at once, "
            f"{UNITS.seconds(link.latency_seconds)} after a message begins."
        )
    for device, numbers in mesh.kinds:
        who = "Each device" if not mesh.differs else f"Device {', '.join(map(str, numbers[:SHOWN_DEVICES]))}"
        who += f" and {len(numbers) - SHOWN_DEVICES} more" if mesh.differs and len(numbers) > SHOWN_DEVICES else ""
        yield f"{who} {_tell_device(device)}."
    if mesh.link == Link() and mesh.device == Device():
        yield "These rates are those that a mesh has where nobody says other ones; a machine's own make other plans."


def _tell_device(device: Device) -> str:
    cells = (
        ""
        if device.cell_rate == device.flop_per_second
        else f" in products and {UNITS.flop(device.cell_rate)}/s in all else"
    )
    room = "" if device.memory_nbytes is None else f", and has {tell_nbytes(device.memory_nbytes)}"
    launch = f", starts in {UNITS.seconds(device.launch_seconds)}" if device.launch_seconds else ""
    rate = device.packed_nbytes_per_second
    packs = f", packs operands of contractions at {rate / 1e9:,.4g} GB/s" if rate else ""
    return (
        f"computes {UNITS.flop(device.flop_per_second)}/s{cells}, moves "
        f"{device.memory_nbytes_per_second / 1e9:,.4g} GB/s in its memory{packs}{launch}{room}"
    )


def summary_panel(plan: ShardPlan) -> str:
    """The numbers of a plan, by device too, and what they rest on."""
    facts = "".join(
        element("div", element("dt", escape(name)), element("dd", element("b", escape(number)), escape(f" {words}")))
        for name, number, words in list_facts(plan)
    )
    columns = {"receives B": plan.nbytes_received, "starts with B": plan.nbytes_placed, "peak B": plan.peak_nbytes}
    said = "".join(element("li", escape(line)) for line in list_assumptions(plan))
    return panel(
        "summary",
        "What it comes to",
        element("dl", facts, class_="tp-facts"),
        element(
            "div",
            element("div", element("h3", "by device"), by_device(columns)),
            element("div", element("h3", "what these numbers rest on"), element("ul", said)),
            class_="tp-totals",
        ),
    )


def by_device(columns: Mapping[str, Sequence[int]]) -> str:
    """A table of numbers, with a row for each device as far as there is room."""
    size = min(map(len, columns.values()))
    rows = [[str(d), *(f"{column[d]:,}" for column in columns.values())] for d in range(min(size, SHOWN_DEVICES))]
    left = f"and {size - SHOWN_DEVICES:,} more devices" if size > SHOWN_DEVICES else ""
    heads = ("device", *columns)
    return table(heads, rows, range(len(heads))) + (element("p", left, class_="tp-note") if left else "")
