"""Whether a Loop has more rounds than may be put in place, seen before any is.

i ──► Less ──► condition     the part of the body that the condition follows from, computed alone round after round, if
last ──┘                     it is of single numbers, which are known
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from tapestry_plan.onnx.nodes import Array, Node
from tapestry_plan.onnx.order import needed_of, read_nodes, sort

OF_NUMBERS = frozenset({
    "Abs", "Add", "And", "Cast", "Constant", "Div", "Equal", "Greater", "GreaterOrEqual", "Identity", "Less",
    "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Squeeze", "Sub", "Where", "Xor",
})  # fmt: skip
"""Operators that make one number of single numbers."""


class Condition:
    """The part of a Loop's body that its condition follows from.

    Parameters
    ----------
    body : onnx.GraphProto
    carried : sequence of (array or None)
        What the first round is given behind its number and condition, None for what is not one number that is known.
    value_of : callable
        The same of what the body reads from outside, or stores.
    opsets : mapping of str to int
    """

    def __init__(
        self,
        body: Any,
        carried: Sequence[Array | None],
        value_of: Callable[[str], Array | None],
        opsets: Mapping[str, int],
    ) -> None:
        inputs, made = [value.name for value in body.input], [value.name for value in body.output]
        given = dict(zip(inputs[1:], made, strict=False))  # a round's results, behind its number, are the next one's
        nodes, self._wanted = sort(list(read_nodes(body))), made[:1]
        while True:
            needed = needed_of(nodes, self._wanted)
            reads = {name for node in needed for name in node.inputs if name} | {*self._wanted}
            more = [after for before, after in given.items() if before in reads and after not in self._wanted]
            if not more:
                break
            self._wanted += more
        first = dict(zip(inputs, [np.array(0), np.array(True), *carried], strict=True))
        own = {name for node in needed for name in node.outputs}
        values = {name: first[name] if name in first else value_of(name) for name in reads - own}
        self._number = inputs[0]
        self._values = {name: value for name, value in values.items() if value is not None}
        self._given = {before: after for before, after in given.items() if before in self._values}
        self._evaluator = None
        if len(self._values) == len(values) and all(map(_is_of_numbers, needed)):
            self._evaluator = _open(needed, [*self._values], self._wanted, opsets)

    def lasts(self, count: int) -> bool:
        """Whether there are so many rounds; false where that is not seen."""
        return self.count_rounds(count) == count

    def count_rounds(self, most: int) -> int | None:
        """How many rounds there are, as far as `most`; None where that is not seen."""
        values = dict(self._values)
        for number in range(most):
            if self._evaluator is None:
                return None
            if self._number in values:
                values[self._number] = np.array(number)
            try:
                with np.errstate(all="ignore"):
                    made = dict(zip(self._wanted, self._evaluator.run(None, values), strict=True))
            except Exception:  # whatever the reference's operators raise: the rounds themselves will say it
                return None
            if not np.all(made[self._wanted[0]]):
                return number + 1
            values |= {before: made[after] for before, after in self._given.items()}
        return most


def _is_of_numbers(node: Node) -> bool:
    if node.domain or node.op_type not in OF_NUMBERS or node.captured is not None:
        return False
    stored = [one.t for one in node.proto.attribute if one.name == "value"]
    return node.op_type != "Constant" or (len(stored) == 1 and prod(stored[0].dims) == 1)


def _open(nodes: Sequence[Node], reads: Sequence[str], wanted: Sequence[str], opsets: Mapping[str, int]) -> Any:
    """What computes tensors of some nodes."""
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    ports = [[helper.make_empty_tensor_value_info(name) for name in names] for names in (reads, wanted)]
    graph = helper.make_graph([node.proto for node in nodes], "condition", *ports)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return ReferenceEvaluator(helper.make_model(graph, opset_imports=imports))
