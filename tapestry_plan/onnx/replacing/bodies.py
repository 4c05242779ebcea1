"""Nodes that stand in the place of one: what ONNX, or the model itself, says that it computes.

an operator that is a function by ONNX's schema ─► the nodes of the function, for operands of these types
an If whose condition is known ──────────────────► those of the branch that it takes
an If whose condition is computed ───────────────► those of both branches, and of each output a Where
a Loop or Scan whose rounds are known ───────────► those of its body, round after round
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf, prod
from typing import Any, NoReturn

import numpy as np

from tapestry_plan.onnx.nodes import Array, Importing, Node, axes_of, refusal, schema_of
from tapestry_plan.onnx.order import graphs_inside, made_in, needed_of, read_nodes, sort
from tapestry_plan.onnx.replacing.lasting import Condition
from tapestry_sets.limits import quote, tell_count

BODY_DOMAIN = "tapestry.body"
"""The domain of a function of ONNX's own while its body is put in place of a call."""


def has_body(node: Node, at: Importing) -> bool:
    """Whether other nodes can stand in the place of a node: of a Loop, a Scan, or a function by ONNX's schema."""
    if node.operator in ("Loop", "Scan"):
        return True
    schema = _schema(node, at)
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


def _schema(node: Node, at: Importing) -> Any:
    return schema_of(node.op_type, at.opsets[node.domain], node.domain) if node.domain in at.opsets else None


def nodes_of(node: Node, at: Importing) -> Iterator[Node]:
    """The nodes that make a node's outputs in its place, each to be added before the next is asked for.

    Raises
    ------
    UnsupportedOp
        For conditions and numbers of rounds that are not known, and rounds of too many nodes in all.
    ValueError
        For graphs inside the node that do not fit its inputs and outputs.
    """
    ways = {"If": _branch, "Loop": _loop, "Scan": _scan}
    yield from ways.get(node.operator, _function)(node, at)


# -- functions -----------------------------------------------------------------------------------------------


def _function(node: Node, at: Importing) -> Iterator[Node]:
    """The body that ONNX's schema has for a node, whose names are the node's own."""
    from onnx import helper, inliner

    call, function = _call_of(node, at)
    given = [helper.make_empty_tensor_value_info(name) for name in dict.fromkeys(filter(None, node.proto.input))]
    outputs = [helper.make_empty_tensor_value_info(name) for name in filter(None, node.proto.output)]
    graph = helper.make_graph([call], node.name, given, outputs)
    imports = [helper.make_opsetid(function.domain, 1), *function.opset_import]
    model = helper.make_model(graph, opset_imports=imports, functions=[function])
    try:
        inlined = inliner.inline_local_functions(model).graph
    except Exception as error:  # whatever its C++ raises
        raise ValueError(f"{node.where}: {' '.join(str(error).split())}") from None
    made = [helper.make_empty_tensor_value_info(name) for name in node.proto.output]
    body = renamed(node, helper.make_graph(inlined.node, node.name, [], made), at.taken)
    yield from needed_of(sort(list(read_nodes(body))), list(filter(None, node.outputs)))


def _call_of(node: Node, at: Importing) -> tuple[Any, Any]:
    """A node that gives every attribute, and the function that it calls, for operands of these types."""
    import onnx

    schema = _schema(node, at)
    for what, names, most in (("inputs", node.inputs, schema.max_input), ("outputs", node.outputs, schema.max_output)):
        if len(names) > most:
            raise refusal(node, f"it has {len(names)} {what}, and {node.op_type} at most {most}")
    call = onnx.NodeProto()
    call.CopyFrom(node.proto)
    named = {one.name for one in call.attribute}
    defaults = [one.default_value for name, one in schema.attributes.items() if name not in named]
    call.attribute.extend(one for one in defaults if one.name)
    types = [_type_of(name, at).SerializeToString() for name in call.input]
    found = [(version, schema.get_function_with_opset_version(version)) for version in schema.function_opset_versions]
    make = schema.get_context_dependent_function_with_opset_version
    dependent = schema.context_dependent_function_opset_versions
    found += [(version, make(version, call.SerializeToString(), types)) for version in dependent]
    newest = max(at.opsets[node.domain], schema.since_version)
    _, data = max((one for one in found if one[0] <= newest), default=(0, b""))
    if not data:
        raise refusal(node, "its operator is not supported, and ONNX has no function for it in this opset")
    function = onnx.FunctionProto()
    function.ParseFromString(data)
    function.domain = call.domain = BODY_DOMAIN
    function.name = call.op_type
    kept = [one for one in call.attribute if one.name in function.attribute]
    del call.attribute[:]
    call.attribute.extend(kept)
    return call, function


def _type_of(name: str, at: Importing) -> Any:
    """The type of a model tensor, as ONNX says it; of one that is not given, none."""
    import onnx
    from onnx import helper

    if not name:
        return onnx.TypeProto()
    dtype = at.tensors[name].dtype if name in at.tensors else at.value(name).dtype
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), at.shape(name))


# -- branches ------------------------------------------------------------------------------------------------


def check_one_condition(node: Node) -> None:
    """Raise ValueError for an If that has not one input."""
    if len(node.inputs) != 1:
        raise ValueError(f"{node.where} has {len(node.inputs)} inputs; If takes 1: export the model again")


def check_condition(node: Node, name: str, value: Array) -> bool:
    """The truth value of a node's condition.

    Raises
    ------
    ValueError
        For any other value.
    """
    if value.size != 1 or value.dtype != bool:
        raise ValueError(
            f"{node.where}: its condition {quote(name)} is {quote(value.tolist())} of dtype {value.dtype} and "
            f"shape {quote(value.shape)}; one truth value is needed: compare it in the model"
        )
    return bool(value.reshape(()))


def _branch(node: Node, at: Importing) -> Iterator[Node]:
    value = at.constant(node, 0, "condition")
    assert value is not None, "an If has a condition"
    graph = renamed(node, branch_of(node, check_condition(node, node.inputs[0], value)), at.taken)
    yield from needed_of(sort(list(read_nodes(graph))), list(filter(None, node.outputs)))


def both_branches(node: Node, at: Importing) -> Iterator[Node]:
    """The nodes of both branches of an If whose condition a run computes, and those that choose between their outputs.

    Each is to be added before the next is asked for, since the outputs of both are compared then.

    Raises
    ------
    UnsupportedOp
        For a condition that is not one truth value, and outputs that differ in shape or dtype.
    """
    from onnx import helper

    (condition,) = node.inputs
    if at.dtype_of(condition) != "bool" or prod(at.shape(condition)) != 1:
        raise refusal(node, f"its condition {quote(condition)} is not one truth value")
    made = []
    for takes, label in ((True, "then"), (False, "else")):
        names = tuple(_fresh(f"{node.name}/{label}/{name}", at.taken) if name else "" for name in node.outputs)
        aside = replace(node, name=f"{node.name}/{label}", outputs=names)
        graph = renamed(aside, branch_of(node, takes), at.taken)
        yield from needed_of(sort(list(read_nodes(graph))), list(filter(None, names)))
        made.append(names)
    chosen = _fresh(f"{node.name}/condition", at.taken)
    nodes = [helper.make_node("Squeeze", [condition], [chosen], chosen)]
    for out, then, other in zip(node.outputs, *made, strict=True):
        if out:
            _compare_results(node, out, (then, other), at)
            nodes.append(helper.make_node("Where", [chosen, then, other], [out], f"{node.name}/{out}"))
    yield from read_nodes(helper.make_graph(nodes, node.name, [], []))


def _compare_results(node: Node, out: str, names: tuple[str, str], at: Importing) -> None:
    (shape, dtype), (other, kind) = ((at.shape(name), at.dtype_of(name)) for name in names)
    if (shape, dtype) != (other, kind):
        raise refusal(node, f"its branches make {quote(out)} as {dtype} {shape} and as {kind} {other}")


def all_names(proto: Any) -> set[str]:
    """Names that a node, and the graphs inside it, give to tensors or read."""
    names = {*proto.input, *proto.output}
    todo = list(graphs_inside(proto))
    while todo:
        graph = todo.pop()
        names |= made_in(graph)
        for node in graph.node:
            names.update(node.input)
            todo += graphs_inside(node)
    return names


def branch_of(node: Node, condition: bool) -> Any:
    """The graph that an If computes."""
    key = "then_branch" if condition else "else_branch"
    found = [attribute.g for attribute in node.proto.attribute if attribute.name == key]
    if not found or len(found[0].output) != len(node.outputs):
        made = f"{len(found[0].output)} outputs" if found else "no graph"
        raise ValueError(
            f"{node.where}: its {key} has {made}, the node has {len(node.outputs)}: export the model again"
        )
    if found[0].input:
        raise ValueError(
            f"{node.where}: its {key} has the input {quote(found[0].input[0].name)}; branches have none: export it "
            "again"
        )
    return found[0]


def renamed(node: Node, graph: Any, taken: set[str]) -> Any:
    """A graph whose nodes do what the If does: those of a branch, and its constants, under names of their own.

    What the branch makes is called after the If, so that both branches, and several Ifs, may use one name; what it
    reads from outside keeps its name. `taken` are names of tensors that there are already; the new ones join them.
    """
    import onnx
    from onnx import helper

    branch = onnx.GraphProto()
    branch.CopyFrom(graph)
    names = {name: _fresh(f"{node.name}/{name}", taken) for name in sorted(made_in(branch))}
    for k, proto in enumerate(branch.node):
        proto.name = f"{node.name}/{proto.name or f'{proto.op_type}_{k}'}"
    rename(branch.node, names)
    constants = [
        helper.make_node("Constant", [], [names[one.name]], f"{node.name}/{one.name}", value=one)
        for one in branch.initializer
    ]
    results = [
        helper.make_node("Identity", [names.get(value.name, value.name)], [name], f"{node.name}/{value.name}")
        for value, name in zip(branch.output, node.outputs, strict=True)
        if name
    ]
    return helper.make_graph([*constants, *branch.node, *results], node.name, [], [])


def _fresh(wanted: str, taken: set[str]) -> str:
    while wanted in taken:
        wanted += "_"
    taken.add(wanted)
    return wanted


def rename(nodes: Iterable[Any], names: Mapping[str, str]) -> None:
    """Let nodes, and the graphs inside them, call tensors by other names."""
    for node in nodes:
        for ports in (node.input, node.output):
            for k, name in enumerate(ports):
                ports[k] = names.get(name, name)
        for graph in graphs_inside(node):
            own = made_in(graph)
            inside = {name: new for name, new in names.items() if name not in own}
            rename(graph.node, inside)
            for value in graph.output:
                value.name = inside.get(value.name, value.name)


# -- rounds --------------------------------------------------------------------------------------------------


class _Rounds:
    """The body of a Loop or Scan, put in place again and again under other names.

    Parameters
    ----------
    node : Node
    at : Importing
    inputs : int
        That the body must have.
    outputs : int
        That it must have at least, or, where the node has more, as many as that says.
    """

    def __init__(self, node: Node, at: Importing, inputs: int, outputs: int) -> None:
        (self.body,) = [attribute.g for attribute in node.proto.attribute if attribute.name == "body"] or [None]
        self._node, self._at = node, at
        if self.body is None or len(self.body.input) != inputs or len(self.body.output) < outputs:
            has = f"{len(self.body.input)} inputs and {len(self.body.output)} outputs" if self.body else "no nodes"
            raise ValueError(
                f"{node.where}: its body has {has}; {inputs} inputs and at least {outputs} outputs are needed: export "
                "the model again"
            )
        self._size = max(1, len(self.body.node))
        """Nodes of a round; one of no nodes takes its time too."""
        self._stored = {one.name: _fresh(f"{node.name}/{one.name}", at.taken) for one in self.body.initializer}
        for one in self.body.initializer:
            at.bind(self._stored[one.name], one)
        self.outputs: list[str] = []
        """What the body's outputs are called in the last round."""

    def refuse_above(self, count: float) -> None:
        """Raise UnsupportedOp where so many rounds stand for more nodes than may be added, before any of them is."""
        most = self._at.unrolled.left // self._size
        if count > most:
            self._refuse(most)

    def _refuse(self, number: int) -> NoReturn:
        raise refusal(
            self._node,
            f"its rounds of {tell_count(self._size, 'node')} each, more than {number:,}, stand for more nodes than the "
            f"{self._at.unrolled.most:,} that a model may unroll to; export it with fewer",
        )

    def refuse_endless(self, carried: Sequence[str], limit: float) -> None:
        """Raise UnsupportedOp where a Loop of so many rounds at most is seen to have too many, before one is added."""
        most = self._at.unrolled.left // self._size
        if limit <= most:
            return
        first = [self._value_of(name) if name else None for name in carried]
        if Condition(self.body, first, self._value_inside, self._at.opsets).lasts(most + 1):
            self._refuse(most)

    def _value_inside(self, name: str) -> Array | None:
        """Of what the body stores, or reads from outside."""
        return self._value_of(self._stored.get(name, name))

    def _value_of(self, name: str) -> Array | None:
        """The value of a tensor of the model, if it is one number that is known."""
        value = self._at.value(name) if self._at.is_known(name) else None
        return value if value is not None and value.size == 1 else None

    def add(self, number: int, given: Sequence[str]) -> Iterator[Node]:
        """The nodes of a round whose inputs have these names."""
        import onnx

        at, node = self._at, self._node
        if at.unrolled.left < self._size:
            self._refuse(number)
        at.unrolled.spend(self._size)
        copy = onnx.GraphProto()
        copy.CopyFrom(self.body)
        inner = [value.name for value in copy.input]
        names = {**self._stored, **dict(zip(inner, given, strict=True))}
        own = sorted(made_in(copy) - names.keys())
        names |= {name: _fresh(f"{node.name}/{number}/{name}", at.taken) for name in own}
        for k, proto in enumerate(copy.node):
            proto.name = f"{node.name}/{number}/{proto.name or f'{proto.op_type}_{k}'}"
        rename(copy.node, names)
        self.outputs = [names.get(value.name, value.name) for value in copy.output]
        yield from needed_of(sort(list(read_nodes(copy))), self.outputs)

    def value(self, array: Array) -> str:
        """A name for a known value."""
        name = _fresh(f"{self._node.name}/known", self._at.taken)
        self._at.bind(name, array)
        return name

    def stacked(self, parts: Sequence[str], axis: int, name: str) -> Iterator[Node]:
        """The nodes that stack what rounds made, along a new axis."""
        from onnx import helper

        if not parts:
            raise refusal(self._node, f"its output {quote(name)} has no cells, since it has no rounds")
        at, where = self._at, self.value(np.array([axis]))
        wide = [_fresh(f"{name}/{k}", at.taken) for k in range(len(parts))]
        nodes = [helper.make_node("Unsqueeze", [a, where], [b], b) for a, b in zip(parts, wide, strict=True)]
        joined = helper.make_node("Concat", wide, [name], name, axis=axis)
        yield from read_nodes(helper.make_graph([*nodes, joined], name, [], []))


def _loop(node: Node, at: Importing) -> Iterator[Node]:
    most, first = at.constant(node, 0, "trip count"), at.constant(node, 1, "condition")
    carried = list(node.inputs[2:])
    rounds = _Rounds(node, at, 2 + len(carried), 1 + len(carried))
    scans: list[list[str]] = [[] for _ in rounds.body.output[1 + len(carried) :]]
    goes_on = first is None or check_condition(node, node.inputs[1], first)
    number, limit = 0, inf if most is None else int(most.reshape(()))
    if goes_on:
        rounds.refuse_endless(carried, limit)
    while goes_on and number < limit:
        given = [rounds.value(np.array(number)), rounds.value(np.array(True)), *carried]
        yield from rounds.add(number, given)
        condition, *made = rounds.outputs
        carried = made[: len(carried)]
        for scan, name in zip(scans, made[len(carried) :], strict=True):
            scan.append(name)
        if not at.is_known(condition):
            raise refusal(node, f"whether it goes on after round {number} is {at.describe_unknown(condition)}")
        goes_on = check_condition(node, condition, at.value(condition))
        number += 1
    yield from _results(node, rounds, carried, scans, [0] * len(scans))


def _scan(node: Node, at: Importing) -> Iterator[Node]:
    from onnx import helper

    attrs, count = node.attrs, node.attrs["num_scan_inputs"]
    states, scanned = list(node.inputs[: len(node.inputs) - count]), node.inputs[len(node.inputs) - count :]
    rounds = _Rounds(node, at, len(node.inputs), len(states))
    made = len(rounds.body.output) - len(states)
    shapes = [at.shape(name) for name in scanned]
    wanted = attrs.get("scan_input_axes", [0] * count)
    axes = [axes_of([a], len(s), "axis")[0] for a, s in zip(wanted, shapes, strict=True)]
    backward = attrs.get("scan_input_directions", [0] * count)
    lengths = {shape[axis] for shape, axis in zip(shapes, axes, strict=True)}
    if len(lengths) != 1 or len(backward) != count:
        raise ValueError(f"{node.where}: its scan inputs have the lengths {sorted(lengths)}; they need one length")
    (length,) = lengths
    scans: list[list[str]] = [[] for _ in range(made)]
    rounds.refuse_above(length)
    for number in range(length):
        parts = []
        for name, axis, back in zip(scanned, axes, backward, strict=True):
            parts.append(_fresh(f"{node.name}/{number}/{name}", at.taken))
            at_index = rounds.value(np.array(length - 1 - number if back else number))
            taken = helper.make_node("Gather", [name, at_index], [parts[-1]], parts[-1], axis=axis)
            yield from read_nodes(helper.make_graph([taken], node.name, [], []))
        yield from rounds.add(number, [*states, *parts])
        states = rounds.outputs[: len(states)]
        for scan, name in zip(scans, rounds.outputs[len(states) :], strict=True):
            scan.append(name)
    for k, back in enumerate(attrs.get("scan_output_directions", [0] * made)):
        scans[k] = scans[k][::-1] if back else scans[k]
    yield from _results(node, rounds, states, scans, attrs.get("scan_output_axes", [0] * made))


def _results(
    node: Node, rounds: _Rounds, states: Sequence[str], scans: Sequence[Sequence[str]], axes: Sequence[int]
) -> Iterator[Node]:
    """The nodes that give a node's outputs: the last states, then what rounds made."""
    from onnx import helper

    for name, state in zip(node.outputs, states, strict=False):
        if name:
            last = helper.make_node("Identity", [state], [name], f"{node.name}/{name}")
            yield from read_nodes(helper.make_graph([last], node.name, [], []))
    for name, parts, axis in zip(node.outputs[len(states) :], scans, axes, strict=False):
        if name:
            yield from rounds.stacked(parts, axis, name)
