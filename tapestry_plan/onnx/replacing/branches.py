"""The branch that an If takes, when its condition is known at import, in place of the If.

outputs ─► what they need ─► an If ─► its condition, imported aside ─► known: the branch's nodes, and what they need
                                                                    └► not known: the If stays, to be both branches

Nothing is looked at twice, so that thousands of Ifs take as long as thousands of other nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tapestry_plan.ir import UnsupportedOp
from tapestry_plan.onnx.adding import add_input, add_node, check_made, check_node, is_supported
from tapestry_plan.onnx.inputs import InputShapes
from tapestry_plan.onnx.nodes import Importing, Node, check_attributes
from tapestry_plan.onnx.order import made_in, read_nodes, sort
from tapestry_plan.onnx.replacing.bodies import branch_of, check_condition, check_one_condition, renamed
from tapestry_plan.onnx.replacing.whole import reads_of
from tapestry_sets.limits import quote


def settle_branches(
    nodes: Sequence[Node], outputs: Sequence[str], inputs: Mapping[str, Any], shapes: InputShapes, aside: Importing
) -> tuple[list[Node], dict[str, str]]:
    """The nodes, where each needed If whose condition is known gives way to the nodes of the branch that it takes.

    Conditions follow from shapes and known values; what they depend on is imported aside, to find out.

    Returns
    -------
    nodes : list of Node
    undecided : dict of str to str
        First outputs of the Ifs that stay, and why.
    """
    settling = _Settling(nodes, outputs, inputs, shapes, aside)
    todo, seen = list(outputs), set[int]()
    while todo:
        name = todo.pop()
        node = settling.makers.get(name)
        if node is None or id(node) in seen:
            continue
        if node.operator == "If" and settling.decide(node):
            todo.append(name)  # which another node makes now
        else:
            seen.add(id(node))
            todo += [*node.inputs, *(node.captured or ())]
    return list(settling.settled(nodes)), settling.undecided


class _Settling:
    """What is known so far of the makers of tensors, and of conditions."""

    def __init__(
        self,
        nodes: Sequence[Node],
        outputs: Sequence[str],
        inputs: Mapping[str, Any],
        shapes: InputShapes,
        aside: Importing,
    ) -> None:
        self._inputs, self._shapes, self._aside = inputs, shapes, aside
        self.makers = {name: node for node in nodes for name in node.outputs if name}
        self._read = {*outputs}
        self._note_reads(nodes)
        self._instead: dict[int, list[Node]] = {}
        self._unknown: dict[str, str] = {}
        """Tensors that cannot be imported aside, and why."""
        self.undecided: dict[str, str] = {}

    def settled(self, nodes: Iterable[Node]) -> Iterator[Node]:
        """The nodes, those of branches in place of decided Ifs."""
        todo = list(nodes)[::-1]
        while todo:
            node = todo.pop()
            if id(node) in self._instead:
                todo += self._instead[id(node)][::-1]
            else:
                yield node

    def decide(self, node: Node) -> bool:
        """Whether an If gave way to a branch; its outputs have other makers then."""
        if not self._is_open(node):
            return id(node) in self._instead
        check_attributes(node, self._aside.opset)
        check_one_condition(node)
        check_made(node, node.inputs[0], self._is_made(node.inputs[0]))
        self._import_aside(node.inputs[0])
        return self._take(node)

    def _is_open(self, node: Node) -> bool:
        return id(node) not in self._instead and not any(name in self.undecided for name in node.outputs)

    def _is_made(self, name: str) -> bool:
        return name in self.makers or name in self._inputs or self._aside.has(name)

    def _import_aside(self, wanted: str) -> None:
        """Import a tensor aside, and first what it depends on; or note why that cannot be."""
        todo = [wanted]
        while todo:
            name = todo[-1]
            node = self.makers.get(name)
            if self._aside.has(name) or name in self._unknown:
                todo.pop()
            elif node is None:
                add_input(self._inputs[name], self._shapes, self._aside)
            elif waits := [one for one in self._reads(node) if not self._aside.has(one) and one not in self._unknown]:
                todo += waits
            elif node.operator != "If":
                self._add(node)
            elif not self.decide(node):
                self._give_up(node, self._behind(node))

    def _reads(self, node: Node) -> list[str]:
        """What a node reads, all made by something; of an If its condition alone, before it is decided."""
        reads = [name for name in node.inputs if name] if node.operator == "If" else reads_of(node)
        for name in reads:
            check_made(node, name, self._is_made(name))
        return reads

    def _add(self, node: Node) -> None:
        """Import a node aside whose inputs were, or note why it cannot be."""
        why = next((self._unknown[name] for name in reads_of(node) if name in self._unknown), "")
        if not why and not is_supported(node, self._aside):
            why = f"which is not known: the operator of {node.where} is not supported"
        if not why:
            outputs = tuple(name if not k or name in self._read else "" for k, name in enumerate(node.outputs))
            try:
                check_node(self._aside, node)
                add_node(self._aside, replace(node, outputs=outputs))
            except UnsupportedOp as error:
                why = f"which is not known: {error}"
        if why:
            self._give_up(node, why)

    def _behind(self, node: Node) -> str:
        """Why the outputs of an If are not known: by the first If, where conditions depend on one another."""
        (name,) = node.inputs
        why = self.undecided[next(filter(None, node.outputs))]
        return (
            why if name in self._unknown else f"which depends on {node.where}, whose condition is {quote(name)}, {why}"
        )

    def _give_up(self, node: Node, why: str) -> None:
        self._unknown.update((name, why) for name in node.outputs if name)

    def _take(self, node: Node) -> bool:
        """Put a branch in place of an If whose condition was imported aside, if it is known."""
        (name,) = node.inputs
        if not self._aside.is_known(name):
            why = self._unknown[name] if name in self._unknown else self._aside.describe_unknown(name)
            self.undecided.update((out, why) for out in node.outputs if out)
            return False
        holds = check_condition(node, name, self._aside.value(name))
        branch = branch_of(node, holds)
        own = made_in(branch)
        for one in branch.output:
            if one.name not in own and not self._is_made(one.name):
                raise ValueError(
                    f"{node.where}: its branch {quote(branch.name)} gives {quote(one.name)}, which no node makes and "
                    "which is not an input"
                )
        found = sort(list(read_nodes(renamed(node, branch, self._aside.taken))))
        self._instead[id(node)] = found
        self.makers.update((out, maker) for maker in found for out in maker.outputs if out)
        self._note_reads(found)
        return True

    def _note_reads(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            self._read.update(node.inputs, node.captured or ())
