"""Sequences that nodes of a model make and take apart: lists of tensors at import, of which no graph knows.

nodes that make a sequence, all of whose readers are known here ─► its tensors' names; readers read these
other sequences: inputs, outputs, read by a Loop or a SequenceMap ─► the host has them, between stages
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from tapestry_plan.ir import UnsupportedOp
from tapestry_plan.onnx.nodes import Importing, Node, axes_of, check_inputs, refusal
from tapestry_plan.onnx.order import read_nodes
from tapestry_plan.onnx.replacing.whole import reads_of
from tapestry_sets.limits import quote


class Listed(NamedTuple):
    """A sequence.

    Parameters
    ----------
    elements : tuple of str
        Its tensors.
    read : tuple of str
        Those of the model that it is made of.
    """

    elements: tuple[str, ...]
    read: tuple[str, ...]


CHANGING = frozenset({"Identity", "SequenceErase", "SequenceInsert"})
"""Operators that make a sequence of another one, their first input."""
MAKING = frozenset({"SequenceConstruct", "SequenceEmpty", "SplitToSequence"})
"""Operators that make a sequence of tensors."""
READING = CHANGING | {"ConcatFromSequence", "SequenceAt", "SequenceLength"}
"""Operators that read a sequence, their first input."""


def find_sequences(nodes: Sequence[Node], outputs: Collection[str], importers: Collection[str]) -> frozenset[str]:
    """The sequences of a model, whose nodes are in order, that are lists of tensors at import.

    Operators among the importers are others' own.
    """
    making, reading = (some - {*importers} | some & {"Identity"} for some in (MAKING, READING))
    made = dict[str, Node]()
    for node in nodes:
        if node.operator in making or (node.operator in reading & CHANGING and node.input(0) in made):
            made[node.outputs[0]] = node
    if not made:
        return frozenset()
    readers: dict[str, list[Node]] = {name: [] for name in made}
    for node in nodes:
        for name in reads_of(node):
            readers.get(name, []).append(node)

    def is_listed(name: str) -> bool:
        """Whether who makes it, and all who read it, are."""
        known = all(
            one.operator in reading
            and name not in one.inputs[1:]
            and (one.operator not in CHANGING or one.outputs[0] in made)
            for one in readers[name]
        )
        maker = made[name]
        return known and name not in outputs and (maker.operator in making or maker.inputs[0] in made)

    lost = [name for name in made if not is_listed(name)]
    while lost:  # with each, what it is made of and what is made of it may be
        maker = made.pop(lost.pop(), None)
        near = [] if maker is None else [*maker.inputs[:1], *(one.outputs[0] for one in readers[maker.outputs[0]])]
        lost += [name for name in near if name in made and not is_listed(name)]
    return frozenset(made)


def is_of_sequences(at: Importing, node: Node) -> bool:
    """Whether a node makes or reads a sequence that is a list of tensors."""
    return not at.listed.isdisjoint((*node.inputs, *node.outputs))


def replace_sequences(at: Importing, node: Node) -> list[Node]:
    """Note the sequence that a node makes, or give the nodes that read the tensors in place of one that reads it.

    Raises
    ------
    ValueNeeded
        Where a place in the sequence, or the extents that a tensor is split into, are not known.
    ValueError
        For places that a sequence has not, and nodes with too few inputs or too many.
    """
    replace, least, most = _WAYS[node.op_type]
    check_inputs(node, least, most)
    try:
        return replace(at, node)
    except UnsupportedOp:
        raise
    except ValueError as error:
        raise ValueError(f"{node.where}: {error}") from None


def _list(at: Importing, node: Node, elements: Iterable[str], read: Iterable[str]) -> list[Node]:
    at.list_tensors(node.outputs[0], Listed(tuple(elements), tuple(dict.fromkeys(read))))
    return []


def _construct(at: Importing, node: Node) -> list[Node]:
    return _list(at, node, node.inputs, node.inputs)


def _split(at: Importing, node: Node) -> list[Node]:
    """By a Split of ONNX; without extents each index of the axis by itself, which may go."""
    whole, shape = node.inputs[0], at.shape(node.inputs[0])
    (axis,) = axes_of([node.attrs.get("axis", 0)], len(shape), "axis")
    given = at.constant(node, 1, "split")
    if given is not None and given.ndim:
        parts = [int(n) for n in given.reshape(-1)]
    else:
        size = 1 if given is None else int(given)
        if size < 1:
            raise ValueError(f"split is {size}; a number of at least 1 is needed")
        count = -(-shape[axis] // size)
        if count > at.unrolled.left:
            raise refusal(node, f"{count:,} tensors are more than the {at.unrolled.most:,} that a model may unroll to")
        parts = [min(size, shape[axis] - k) for k in range(0, shape[axis], size)]
    if sum(parts) != shape[axis] or min(parts, default=0) < 0:
        raise ValueError(f"split is {quote(parts)}; the extent {shape[axis]} of axis {axis} is to be shared")
    if not parts:
        return _list(at, node, (), [whole])
    at.unrolled.spend(len(parts))
    drops = given is None and not node.attrs.get("keepdims", 1)
    names = [_name(at, f"{node.outputs[0]}.{k}") for k in range(len(parts))]
    sliced = [_name(at, f"{name}.kept") for name in names] if drops else names
    made = [_node(at, node, "Split", [whole, _known(at, node, "parts", parts)], sliced, axis=axis)]
    if drops:
        axes = _known(at, node, "axes", [axis])
        made += [_node(at, node, "Squeeze", [one, axes], [name]) for one, name in zip(sliced, names, strict=True)]
    _list(at, node, names, [whole])
    return made


def _insert(at: Importing, node: Node) -> list[Node]:
    elements, read = at.sequences[node.inputs[0]]
    place = _place(at, node, 2, len(elements), len(elements), len(elements))
    return _list(at, node, (*elements[:place], node.inputs[1], *elements[place:]), (*read, node.inputs[1]))


def _erase(at: Importing, node: Node) -> list[Node]:
    elements, read = at.sequences[node.inputs[0]]
    place = _place(at, node, 1, len(elements) - 1, len(elements), len(elements) - 1)
    return _list(at, node, (*elements[:place], *elements[place + 1 :]), read)


def _same(at: Importing, node: Node) -> list[Node]:
    return _list(at, node, *at.sequences[node.inputs[0]])


def _take(at: Importing, node: Node) -> list[Node]:
    elements = at.sequences[node.inputs[0]].elements
    return [
        _node(at, node, "Identity", [elements[_place(at, node, 1, -1, len(elements), len(elements) - 1)]], node.outputs)
    ]


def _count(at: Importing, node: Node) -> list[Node]:
    at.bind_computed(node, node.outputs[0], np.array(len(at.sequences[node.inputs[0]].elements)))
    return []


def _join(at: Importing, node: Node) -> list[Node]:
    """By a Concat of ONNX, along an axis that is there or, with new_axis, one that each tensor gets before."""
    elements, axis = at.sequences[node.inputs[0]].elements, node.attrs["axis"]
    if not elements:
        raise ValueError("the sequence is empty; tensors are needed")
    if not node.attrs.get("new_axis"):
        return [_node(at, node, "Concat", elements, node.outputs, axis=axis)]
    names = [_name(at, f"{node.outputs[0]}.{k}") for k in range(len(elements))]
    axes = _known(at, node, "axes", [axis])
    wide = [_node(at, node, "Unsqueeze", [one, axes], [name]) for one, name in zip(elements, names, strict=True)]
    return [*wide, _node(at, node, "Concat", names, node.outputs, axis=axis)]


_WAYS: dict[str, tuple[Callable[[Importing, Node], list[Node]], int, int | None]] = {
    "ConcatFromSequence": (_join, 1, 1),
    "Identity": (_same, 1, 1),
    "SequenceAt": (_take, 2, 2),
    "SequenceConstruct": (_construct, 1, None),
    "SequenceEmpty": (_construct, 0, 0),
    "SequenceErase": (_erase, 1, 2),
    "SequenceInsert": (_insert, 2, 3),
    "SequenceLength": (_count, 1, 1),
    "SplitToSequence": (_split, 1, 2),
}
"""What is done with a node, and how many inputs it takes."""


def _place(at: Importing, node: Node, k: int, usual: int, count: int, last: int) -> int:
    """A place that input k says, from the front, or from behind so many tensors where it is below 0."""
    given = at.constant(node, k, "position")
    if given is not None and given.size != 1:
        raise ValueError(f"position has {given.size} numbers; one is needed")
    place = usual if given is None else int(given.reshape(()))
    if not -count <= place <= last:
        raise ValueError(f"position is {place}; the sequence has the places {-count} to {last}")
    return place if place >= 0 else place + count


def _name(at: Importing, wanted: str) -> str:
    """A name that no tensor of the model has."""
    name, k = wanted, 0
    while name in at.taken or at.has(name):
        name, k = f"{wanted}.{k}", k + 1
    at.taken.add(name)
    return name


def _known(at: Importing, node: Node, label: str, numbers: Sequence[int]) -> str:
    name = _name(at, f"{node.name}.{label}")
    at.bind(name, np.array(numbers, np.int64))
    return name


def _node(at: Importing, node: Node, kind: str, reads: Sequence[str], makes: Sequence[str], **attrs: Any) -> Node:
    from onnx import helper

    name = node.name if list(makes) == list(node.outputs) else _name(at, f"{node.name}/{kind}")
    proto = helper.make_node(kind, list(reads), list(makes), name=name, **attrs)
    (made,) = read_nodes(helper.make_graph([proto], kind, [], []))
    return made
