"""Why an operator of a plan is sharded as it is, in words made from the plan's numbers; what tensors are read for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from tapestry_plan.steps import showing, tuning
from tapestry_plan.steps.asking.alternatives import Alternative, MemoryNeed, tell_seconds
from tapestry_plan.steps.asking.lookups import Lookups, has_steps, tell_cut, tell_left_out
from tapestry_plan.steps.asking.reasons import list_reads
from tapestry_plan.steps.asking.tensors import is_explained, tell_tensor
from tapestry_plan.steps.inside import tell_block
from tapestry_plan.steps.layouts.layout import tell_sharding
from tapestry_plan.steps.layouts.mesh import Space
from tapestry_plan.steps.stages import tell_opaque, tell_rounds
from tapestry_sets.draw import as_html
from tapestry_sets.limits import Guarded, Units, cut_text, escape_controls, list_names, put_fields, quote, tell_count


class Explanation(Guarded, str):
    """Why an operator is sharded as it is: plain text, which notebooks show as a table.

    Examples
    --------
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.relu(g.input("x", (64, 64)), name="act"))
    >>> text = plan(g, Mesh(2)).explain("act")
    >>> text
    Explanation(act (relu): i1:2; 3 shardings compared; print it)
    >>> text.splitlines()[0], [tell_sharding(one.sharding) for one in text.alternatives]
    ('act (relu): i1:2', ['i1:2', 'i0:2', 'whole'])
    """

    lines: tuple[str, ...]
    """What is said before other shardings are told, a sentence each."""
    node: str
    """The operator of the plan's graph that they are of; empty of an input, a constant or a view."""
    alternatives: tuple[Alternative, ...]
    """The shardings that were compared, from best to worst."""
    _rows: Sequence[_ToldSharding]
    needs: tuple[MemoryNeed, ...]
    """What each of these takes of the devices' memory, of a plan in memory that is limited; else none."""

    @classmethod
    def of(
        cls,
        lines: Sequence[str],
        node: str,
        alternatives: Sequence[Alternative] = (),
        needs: Sequence[MemoryNeed] = (),
        devices: int = 1,
    ) -> Explanation:
        """Sentences, and the shardings that were compared, on a mesh of some devices."""
        rows = list(_list_rows(alternatives, needs, devices))
        made = cls("\n".join([*lines, *(text for row in rows for text in row.tell())]))
        put_fields(made, lines=tuple(lines), node=node, alternatives=tuple(alternatives), needs=tuple(needs))
        made._rows = rows
        return made

    def after(self, *lines: str) -> Explanation:
        """The same behind other sentences."""
        made = type(self)("\n".join([*lines, self]))
        put_fields(made, lines=(*lines, *self.lines), node=self.node, alternatives=self.alternatives, needs=self.needs)
        made._rows = self._rows
        return made

    def __repr__(self) -> str:
        compared = f"; {tell_count(len(self.alternatives), 'sharding')} compared" if self.alternatives else ""
        return f"Explanation({cut_text(self.lines[0], 120)}{compared}; print it)"

    def _repr_html_(self) -> str:
        from html import escape  # loaded with the first page, not with the package

        said = "".join(f"<p>{escape(line.strip())}</p>" for line in self.lines)
        rows = [
            (row.sharding, tell_seconds(row.one), f"{row.one.nbytes_moved:,} B", row.change, "; ".join(row.reasons))
            for row in self._rows
        ]
        return said + (as_html([HEADS, *rows], numbers={1, 2}) if rows else "")


HEADS = "sharding", "time", "moved", "difference", "why"


class _ToldSharding(NamedTuple):
    """A sharding that was compared, in words."""

    one: Alternative
    sharding: str
    change: str
    """By how much the totals differ from the chosen one's."""
    reasons: tuple[str, ...]

    def tell(self) -> Iterator[str]:
        one, mark = self.one, " <- chosen" if self.one.is_chosen else f" ({self.change})"
        yield f"    {self.sharding:24} {tell_seconds(one):>15} {one.nbytes_moved:14,} B moved{mark}"
        yield from (f"      {reason}" for reason in self.reasons)


def _list_rows(
    alternatives: Sequence[Alternative], needs: Sequence[MemoryNeed], devices: int
) -> Iterator[_ToldSharding]:
    chosen = next((one for one in alternatives if one.is_chosen), None)
    for k, one in enumerate(alternatives):
        change = "chosen" if one.is_chosen else ""
        if chosen is not None and not one.is_chosen:
            change = f"{tell_seconds(one, chosen.seconds)}, {one.nbytes_moved - chosen.nbytes_moved:+,} B"
        reasons = (*one.reasons, *map(str, needs[k : k + 1]))
        yield _ToldSharding(one, tell_sharding(one.sharding, one.devices, devices), change, reasons)


def explain(plan: Any, node: str) -> Explanation:
    """The text of `ShardPlan.explain`: names in it are in one line each."""
    return _explain(plan, *read_name(plan, node))


def _explain(plan: Any, kind: str, name: str) -> Explanation:
    """Of what has a name, of a kind where several have it."""
    if kind == "label":
        return _explain_output(plan, name)
    if kind == "tensor" and is_explained(plan.graph, name):
        return _explain_tensor(plan, name)
    node = _find_maker(plan, name) if kind == "tensor" else find_operator(plan, name)
    told = _show(node)
    same = plan.unified.get(node)
    if same is not None and (kind == "tensor" or node not in plan.stage) and _is_known(plan, same):
        is_tensor = is_explained(plan.graph, same) and (kind == "tensor" or same not in plan.stage)
        return _explain(plan, "tensor" if is_tensor else "operator", same).after(
            f"{told}: the same as {_show(same)}, which is computed once and stands for both"
        )
    known: Lookups = plan._lookups
    if node in known.blocks:
        last = known.blocks[node]
        head = f"{told}: in one block with {_show(last)}, so that what is between them is not stored"
        return _explain(plan, "operator", last).after(head)
    if node in plan.expanded:
        stands = ", ".join(map(_show, known.expansions[node].nodes))
        head = f"{told}: expanded by {plan.expanded[node]}, which the search found better, into {stands}"
        return Explanation.of([head], node)
    if node not in plan.stage:
        return _explain_tensor(plan, node)
    stage = plan.stage[node]
    if node not in plan.placement:
        said = [f"  {line}" for line in _tell_stage(plan, stage)]
        return Explanation.of([f"{told}: {_PURPOSE[stage.op]}", *said], node)
    others = plan.alternatives.get(node, ())  # a graph that was changed since is refused here
    lines = [f"{told} ({tell_block(stage.op)}): {tell_cut(plan, node)}"]
    lines += [f"  {reason}" for reason in tell_reasons(plan, node)]
    if others:
        needs = weigh_memory(plan, node, others)
        beside = ", before idle buffers wait in host memory" if any(plan.nbytes_spilled) else ""
        if plan.limit_nbytes is not None:
            beside += f" ({tell_limit(plan.limit_nbytes)}{'' if needs else _tell_unweighed(plan, node)})"
        compared = f"with every other operator as it is, and {_COMPARED[plan.space]}, the graph would take{beside}:"
        lines.append(f"  {compared}")
        return Explanation.of(lines, node, others, needs, plan.mesh.size)
    return Explanation.of(lines, node)


def tell_choice(plan: Any, node: str) -> tuple[str, ...]:
    """In two sentences why an operator is sharded as it is: what it receives, and what the best other sharding changes.

    The second one is left out where none was compared. `explain` says all of it.
    """
    stage, told = plan.stage[node], _show(node)
    if node not in plan.placement:
        return (f"{told}: {_PURPOSE[stage.op]}; {_tell_costs(stage)}",)
    head, others = f"{told} ({tell_cut(plan, node)})", plan.alternatives.get(node, ())
    chosen = next((one for one in others if one.is_chosen), None)
    best = next((one for one in others if not one.is_chosen), None)
    if chosen is None or best is None:
        return (f"{head}: {_tell_costs(stage)}",)
    own = [one for one in chosen.causes if one.reader == node and one.nbytes[1]]
    first = f"{head}: {own[0].tell(node, is_chosen=True) if own else chosen.reasons[0]}"
    both = chosen, best
    _, row = _list_rows(both, weigh_memory(plan, node, both), plan.mesh.size)
    sign = 1 if best.seconds >= chosen.seconds else -1
    most = max(best.causes, key=lambda one: sign * one.more_seconds, default=None)
    why = [best.reasons[0] if most is None else most.tell(node), *row.reasons[len(best.reasons) :]]
    return first, f"with {row.sharding} instead {row.change}: {'; '.join(why)}"


def weigh_memory(plan: Any, node: str, some: Sequence[Alternative]) -> Sequence[MemoryNeed]:
    """What shardings of an operator take of memory that is limited; none of many devices, whose steps are many."""
    if plan.limit_nbytes is None or plan.mesh.size > tuning.TOLD_DEVICES or plan.explicit is not None:
        return ()
    return showing.weigh_choices(plan, node, some)


def _tell_unweighed(plan: Any, node: str) -> str:
    """Why the memory of other shardings is not told, and how to learn it."""
    if plan.explicit is not None:
        return ", which is not compared: the plan's steps were changed by hand"
    how = f"plan(graph, mesh, like=p, fix={{{quote(node)}: …}}, memory_nbytes=…) keeps it"
    return f", which is not compared on more than {tuning.TOLD_DEVICES} devices; {how}"


def tell_limit(limits: Sequence[int]) -> str:
    least, most = min(limits), max(limits)
    return f"a device may have {f'{least:,}' if least == most else f'{least:,} to {most:,}'} B"


def _is_known(plan: Any, name: str) -> bool:
    return name in plan.stage or name in plan.expanded or is_explained(plan.graph, name)


def _explain_tensor(plan: Any, name: str) -> Explanation:
    """Of an input, a constant or a view, or an output by its label."""
    graph = plan.graph
    if is_explained(graph, name):
        first, *lines = tell_tensor(plan, name)
        return Explanation.of([first, *(f"  {line}" for line in lines)], "")
    if name in graph.outputs:
        return _explain_output(plan, name)
    views = [one for one in (*graph.stored, *graph.selections) if is_explained(graph, one)]
    near = list_names([*plan.stage, *views, *graph.outputs], name, "names")
    raise ValueError(f"explain: the plan has no operator, input, constant, view or output {quote(name)}; {near}")


def _explain_output(plan: Any, label: str) -> Explanation:
    """Of an output by its label: what is said of its tensor."""
    tensor = plan.graph.outputs[label]
    found = _explain(plan, "tensor", tensor)
    made = f", which {_show(found.node)} makes" if found.node in plan.stage else ""
    return found.after(f"{_show(label)}: output, tensor {_show(tensor)}{made}")


KINDS = ("operator", "tensor", "label")
"""What a name may be of, the label that of an output; before it, as in "tensor x", one of these says which."""


def read_name(plan: Any, name: str) -> tuple[str, str]:
    """What is asked for by a name, with or without its kind before it, and the name alone.

    Returns
    -------
    kind : str
        One of `KINDS`; empty where only one thing has the name, or nothing.
    name : str

    Raises
    ------
    ValueError
        For a name of several things, without its kind.
    """
    found = _list_kinds(plan, name)
    if len(found) > 1:
        *some, last = found.values()
        ways = " or ".join(quote(f"{kind} {name}") for kind in found)
        raise ValueError(f"explain: {quote(name)} is the name of {', '.join(some)} and of {last}; ask for {ways}")
    kind, _, rest = name.partition(" ")
    is_kind = {
        "operator": _is_operator(plan, rest),
        "tensor": is_explained(plan.graph, rest) or rest in plan.unified or _find_maker(plan, rest, "") != "",
        "label": rest in plan.graph.outputs,
    }
    return (kind, rest) if not found and is_kind.get(kind) else ("", name)


def _list_kinds(plan: Any, name: str) -> dict[str, str]:
    """The things that have a name, by kind, in words: one of an operator and its result, or a tensor and its label."""
    graph, found = plan.graph, dict[str, str]()
    is_operator, maker = _is_operator(plan, name), _find_maker(plan, name, "")
    if is_operator:
        found["operator"] = "an operator"
    if name in graph.selections:
        found["tensor"] = "a view"
    elif is_explained(graph, name):
        found["tensor"] = f"{'an input' if graph.stored[name].kind == 'input' else 'a constant'}"
    elif maker not in ("", name) and not (is_operator and maker in _list_expanded(plan, name)):
        found["tensor"] = f"what the operator {quote(maker)} makes"
    elif is_operator and name in plan.unified:
        found["tensor"] = f"what is the same as {quote(plan.unified[name])}"
    label = graph.outputs.get(name, name)
    if label != name and not (is_operator and _find_maker(plan, label, "") == name):
        found["label"] = f"an output, tensor {quote(label)}"
    return found


def _list_expanded(plan: Any, name: str) -> tuple[str, ...]:
    """The operators by which an operator is expanded, one of which makes its result."""
    expansions = plan._lookups.expansions
    return tuple(expansions[name].nodes) if name in expansions else ()


def _is_operator(plan: Any, name: str) -> bool:
    return name in plan.stage or name in plan.expanded or name in plan._lookups.blocks


def _find_maker(plan: Any, tensor: str, otherwise: str | None = None) -> str:
    """The operator that makes a tensor; if there is none something else, by default the name given."""
    if tensor in plan.made_by:
        return str(plan.made_by[tensor])
    made = (node.name for node in plan.graph.nodes.values() if tensor in node.outputs)
    return next(made, tensor if otherwise is None else otherwise)


def find_operator(plan: Any, name: str) -> str:
    """The operator of a name, or else the one that makes the tensor of this name; the name where there is neither."""
    known: Lookups = plan._lookups
    if name in plan.stage or name in plan.unified or name in plan.expanded or name in known.blocks:
        return name
    return _find_maker(plan, name)


def check_known(plan: Any, what: str, name: str) -> None:
    """Check that a "tensor", "producer" or "consumer" is one of those between which a plan may move something.

    Raises
    ------
    ValueError
        For a name that the plan's graph does not have so, with what stands for it, or with those that are near.
    """
    graph = plan.graph
    known = {
        "tensor": dict.fromkeys(graph.stored),
        "producer": dict.fromkeys(("input", "constant", *graph.nodes)),
        "consumer": dict.fromkeys((*graph.nodes, *(stage.node for stage in plan.stages))),
    }[what]
    if name in known:
        return
    is_tensor = what == "tensor"
    stands = tell_standing(plan, plan.made_by.get(name, name) if is_tensor else name, is_tensor=is_tensor)
    if not stands and is_tensor and name in graph.nodes:
        made = ", ".join(map(quote, graph.nodes[name].outputs))
        stands = f", but {made}, which the operator {quote(name)} makes; ask for that"
    if not stands:
        stands = f"; {list_names(known, name, what + 's')}"
    if is_tensor and (name in graph.outputs or name in graph.selections):
        of = ", ".join(map(quote, graph.source(graph.outputs.get(name, name)).stored))
        stands = f" that is stored, but it is read from {of}; ask for that"
    raise ValueError(f"transfers: no {what} is {quote(name)}{stands}")


def tell_gap(plan: Any) -> str:
    """How far a plan's time is from what is proved of any, at most, or that nothing is."""
    return f"gap {plan.gap:.1%}" if has_bound(plan) else "no bound"


def has_bound(plan: Any) -> bool:
    """Whether anything is proved of a plan's time; nothing is where nothing was searched."""
    return bool(plan.bound) or not plan.cost


def tell_standing(plan: Any, name: str, *, is_tensor: bool = False) -> str:
    """What stands in a plan for an operator of the graph as given, as the end of a sentence; empty for nothing.

    Where a tensor is asked for, which that operator makes, it is what these make.
    """
    known, nodes = plan._lookups, plan.graph.nodes

    def tell(*operators: str) -> str:
        if not is_tensor:
            return ", ".join(map(quote, operators))
        blocks = dict.fromkeys(known.blocks.get(one, one) for one in operators)
        made = (out for one in blocks for out in (nodes[one].outputs if one in nodes else [one]))
        return ", ".join(map(quote, dict.fromkeys(made)))

    if (last := known.blocks.get(name)) is not None:
        makes = f" makes {tell(last)}" if is_tensor else ", where what it makes is not stored"
        return f", but the block {quote(last)} that it is inside of{makes}; ask for that"
    if (same := plan.unified.get(name)) is not None:
        return f", but {tell(same)}, which is the same and stands for it; ask for that"
    if name in plan.expanded:
        return f", but {tell(*known.expansions[name].nodes)}, by which it is expanded; ask for one of these"
    return ""


def tell_reasons(plan: Any, node: str) -> list[str]:
    """What `explain` says of an operator of the plan's graph before it compares it, sentence by sentence."""
    stage, told, known = plan.stage[node], _show(node), plan._lookups
    lines = []
    if inside := known.inside.get(node):
        cuts = {one: tell_cut(plan, one) for one in (*inside, node)}
        names = ", ".join(_show(one) + f" ({cuts[one]})" * (cuts[one] != cuts[node]) for one in inside)
        lines.append(f"one block of {names} and {told}: what is between them is not stored")
    lines.append(_tell_costs(stage))
    if node in plan.opaque:
        lines.append(f"opaque: {escape_controls(plan.graph.nodes[node].attrs.get('why', ''), '') or 'it runs whole'}")
        cost, units = plan.opaque[node], Units(exact=True)
        lines.append(tell_rounds(cost, units) if cost.is_known else tell_opaque([cost], units))
    lines += [
        f"stands, with others, for {_show(entry.node)}, expanded by {entry.chosen}"
        for entry in known.made_for.get(node, ())
    ]
    if node in known.expansions:
        lines += _list_compared(plan, known.expansions[node])
    if has_steps(plan):
        lines += map(str, list_reads(plan.graph, node, plan.placement[node], plan._transfers))
    else:
        lines.append(tell_left_out(plan, "what it reads of which tensor, and from where", "consumer", node))
    if not plan.alternatives.get(node, ()):
        too_many = ": its tensors have too many consumers" * (node in plan.alternatives)
        lines.append(f"(not compared with other shardings{too_many})")
    return lines


def _tell_costs(stage: Any) -> str:
    return (
        f"receives {sum(stage.nbytes_received):,} B, its devices share {stage.nbytes_shared:,} B, "
        f"{stage.seconds * 1e6:.2f} us in this plan"
    )


def _tell_stage(plan: Any, stage: Any) -> list[str]:
    """What a stage without an operator moves from where to where; it has no other shardings."""
    lines = [_tell_costs(stage)]
    if not has_steps(plan):
        return [*lines, tell_left_out(plan, "which cells go from where to where", "consumer", stage.node)]
    rows = [row for row in plan._transfers if row.consumer == stage.node]
    for row in rows[: tuning.SHOWN_ROWS]:
        kind = plan.graph.stored[row.tensor].kind
        part = f" (part {row.part} of its sums)" if row.part >= 0 else ""
        lines.append(
            f"{row.nbytes:,} B of {kind} {_show(row.tensor)}, {row.cells}{part}, go from device {row.source} "
            f"to {row.target}"
        )
    left = rows[tuning.SHOWN_ROWS :]
    if left:
        lines.append(f"and {sum(row.nbytes for row in left):,} B in {tell_count(len(left), 'more transfer')}")
    return lines


def _show(name: str) -> str:
    return escape_controls(name, "")


def _list_compared(plan: Any, entry: Any) -> list[str]:
    """What is known of an operator's expansions, which the plan does not have."""
    lines = []
    if entry.considered:
        finding = "no better" if plan.gap == 0 else "not found better (the gap is not closed)"
        lines.append(f"{finding} where expanded by {' or '.join(entry.considered)}, in operators that are apart")
    if entry.left_out:
        by = " or ".join(entry.left_out)
        lines.append(f"not compared with what it is expanded by {by}: too many views to be read, or no time")
    return lines


_PURPOSE = {
    "landing": "brings a tensor to where it lands before it is read",
    "output": "brings an output to where it lies at the end",
}
"""What stages without an operator do."""
_COMPARED: dict[Space, str] = {
    "mesh": "layouts along the mesh's axes (space 'mesh')",
    "all": "any factorization of the devices (space 'all')",
}
"""What the shardings were compared over."""
