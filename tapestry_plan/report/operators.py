"""Why each operator is sharded as it is: its index box cut into parts, what these read, and the other shardings."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

from tapestry_plan.draw import draw_spaces
from tapestry_plan.ir import OpNode, map_makers, operation
from tapestry_plan.report.markup import UNITS, element, escape
from tapestry_plan.report.tuning import MAX_EXPLAINED, SHOWN_ALTERNATIVES
from tapestry_plan.steps import (
    Alternative,
    MemoryNeed,
    Reads,
    ShardPlan,
    list_stored,
    tell_block,
    tell_cut,
    tell_limit,
    tell_reasons,
    tell_seconds,
    tell_sharding,
    weigh_memory,
)
from tapestry_sets.limits import OPEN, REFUSALS, ask_one, tell_count
from tapestry_sets.regions import Box


class Explained(NamedTuple):
    """What a panel has of an operator, as markup."""

    picture: str
    reasons: str

    def without_picture(self) -> Explained:
        """The same, where there is no room for the picture."""
        note = "The picture is left out: the report would be too large. draw.show_projection makes it."
        return self._replace(picture=element("p", escape(note), class_="tp-note"))


def explain_operators(plan: ShardPlan) -> tuple[dict[str, Explained], dict[str, str]]:
    """Of operators that are alike, as what is around them is, the first is explained: the others have its numbers.

    Returns
    -------
    explained : dict of str to Explained
        By operator.
    standing : dict of str to str
        For each operator the one that is explained for it; none for those that are too many.
    """
    first: dict[Hashable, str] = {}
    explained: dict[str, Explained] = {}
    standing: dict[str, str] = {}
    mark = _Marks(plan)
    for node in plan.graph.order():
        key = mark(node)
        if key not in first:
            if len(explained) >= MAX_EXPLAINED:
                continue
            first[key] = node.name
            explained[node.name] = Explained(_draw(plan, node.name), _list_reasons(plan, node.name))
        standing[node.name] = first[key]
    return explained, standing


class _Marks:
    """What an operator's reasons, and what it would cost otherwise, depend on: equal ones have equal numbers."""

    def __init__(self, plan: ShardPlan) -> None:
        self.plan, self.reads = plan, Reads(plan.graph)
        self.makers = map_makers(plan.graph)
        self.readers: dict[str, list[OpNode]] = {}
        for node in plan.graph.order():
            for name in list_stored(plan.graph, node.inputs):
                self.readers.setdefault(name, []).append(node)

    def __call__(self, node: OpNode) -> Hashable:
        read = list_stored(self.plan.graph, node.inputs)
        stage = self.plan.stage[node.name]
        around = tuple(self._mark_tensor(name, node) for name in (*read, *node.outputs))
        return self._mark_operator(node), stage.nbytes_received, stage.seconds, around

    def _mark_operator(self, node: OpNode) -> Hashable:
        return self.reads.kind(node), self.plan.choices.layouts["operator", node.name]

    def _mark_tensor(self, name: str, node: OpNode) -> Hashable:
        """Where a tensor is made, lands and lies, and who reads it in which order; of these which is the operator."""
        layouts, stored, maker = self.plan.choices.layouts, self.plan.graph.stored[name], self.makers.get(name)
        made = None if maker is None else (self._mark_operator(maker), maker.outputs.index(name), maker is node)
        places = tuple(layouts.get((kind, name)) for kind in ("source", "landing", "output"))
        readers = tuple(
            (self._mark_operator(one), list_stored(self.plan.graph, one.inputs).index(name), one is node)
            for one in self.readers.get(name, ())
        )
        is_asked = name in self.plan.choices.asked_outputs
        is_output = any(name in self.plan.graph.source(out).stored for out in self.plan.graph.outputs.values())
        return stored.shape, stored.dtype, stored.kind, made, places, readers, is_asked, is_output


def _draw(plan: ShardPlan, node: str) -> str:
    """The index box in parts, and what these read and write; and which devices have each part."""
    devices: dict[Box, list[int]] = {}
    for device, boxes in plan.placement[node].items():
        for box in boxes:
            devices.setdefault(box, []).append(device)
    pictures = ask_one(REFUSALS, draw_spaces, operation(plan.graph, node), list(devices))
    if pictures is OPEN:
        return element("p", "There is no picture: what the parts read is too hard to say.", class_="tp-note")
    parts = [
        f"part {k + 1} on device{'s' * (len(mine) > 1)} {', '.join(map(str, mine))}"
        for k, mine in enumerate(devices.values())
    ]
    return element("p", escape("; ".join(parts)), class_="tp-note") + element("div", *pictures, class_="tp-pictures")


def _list_reasons(plan: ShardPlan, node: str) -> str:
    """The sentences of `explain`, and a row with bars for each sharding that was compared."""
    others = plan.alternatives.get(node, ())
    head = element("ul", *(element("li", escape(reason)) for reason in tell_reasons(plan, node)))
    return head + "".join(_bars(plan, others)) if others else head


def _bars(plan: ShardPlan, others: tuple[Alternative, ...]) -> Iterator[str]:
    shown = others[:SHOWN_ALTERNATIVES]
    chosen = next(one for one in others if one.is_chosen)
    most_seconds = max(abs(one.seconds - chosen.seconds) for one in shown)
    most_nbytes = max(abs(one.nbytes_moved - chosen.nbytes_moved) for one in shown)
    needs = _weigh_faster(plan, chosen, shown)
    yield element("p", escape(_tell_bars(plan, needs is not None)), class_="tp-note")
    rows = []
    for k, one in enumerate(shown):
        seconds, nbytes = one.seconds - chosen.seconds, one.nbytes_moved - chosen.nbytes_moved
        name = tell_sharding(one.sharding, one.devices, plan.mesh.size) + " (chosen)" * one.is_chosen
        more = tell_seconds(one) if one.is_counted_short else _sign(UNITS.seconds(abs(seconds)), seconds)
        rows.append(
            element(
                "tr",
                element("th", escape(name), scope="row"),
                _bar(seconds / most_seconds if most_seconds else 0.0, more),
                _bar(nbytes / most_nbytes if most_nbytes else 0.0, _sign(f"{abs(nbytes):,} B", nbytes)),
                class_="tp-chosen" if one.is_chosen else None,
                data_seconds=f"{one.seconds:.9g}",
                data_nbytes=one.nbytes_moved,
            )
        )
        need = (needs or {}).get(k)
        why = (element("p", escape(reason)) for reason in (*one.reasons, *(() if need is None else (str(need),))))
        rows.append(element("tr", element("td", *why, colspan=3), class_="tp-why"))
    head = "<thead><tr><th>sharding</th><th>time</th><th>bytes</th></tr></thead>"
    yield element("table", head, element("tbody", *rows), class_="tp-bars")
    left = len(others) - len(shown)
    if left > 0:
        yield element("p", f"and {tell_count(left, 'other sharding')} that cost more", class_="tp-note")


def _weigh_faster(plan: ShardPlan, chosen: Alternative, shown: Sequence[Alternative]) -> dict[int, MemoryNeed] | None:
    """What shardings that would take less time than the chosen one take of memory; None where that is not told."""
    if plan.limit_nbytes is None:
        return {}
    faster = [k for k, one in enumerate(shown) if one.seconds < chosen.seconds]
    needs = weigh_memory(plan, chosen.node, [shown[k] for k in faster])
    return dict(zip(faster, needs, strict=True)) if len(needs) == len(faster) else None


def _tell_bars(plan: ShardPlan, are_weighed: bool) -> str:
    """What is shown of other shardings."""
    where = ""
    if plan.limit_nbytes is not None:
        told = "what is faster says what it takes of it" if are_weighed else "which is not compared"
        where = f" ({tell_limit(plan.limit_nbytes)}; {told})"
    return f"With every other operator as it is, the graph would take{where}, and move between devices:"


def _bar(share: float, words: str) -> str:
    wide = f"--tp-share:{min(1.0, abs(share)):.3f}"
    kind = "tp-bar tp-less" if share < 0 else "tp-bar"
    return element("td", element("span", class_=kind, style=wide), element("span", escape(words)))


def _sign(words: str, number: float) -> str:
    return f"{'+' if number > 0 else '−' if number < 0 else '±'}{words}"


def describe_operators(plan: ShardPlan) -> tuple[dict[str, Explained], list[dict[str, Any]]]:
    """What the page shows of an operator that is chosen: what is explained, and for each operator its head and key."""
    explained, standing = explain_operators(plan)
    heads = []
    for node in plan.graph.order():
        stage = plan.stage[node.name]
        facts = [
            f"{tell_block(node.op)}, sharded {tell_cut(plan, node.name)}, {UNITS.flop(sum(stage.flop))}",
        ]
        heads.append({"name": node.name, "facts": facts, "key": standing.get(node.name)})
    return explained, heads
