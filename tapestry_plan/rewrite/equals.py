"""What is the same is there once: constants of equal content, operators on equal operands.

Operators are numbered by what they compute, each after those that it reads (value numbering)::

    c1 = [1, 2]   c2 = [1, 2]              c2 is c1
    a = x + c1    b = x + c2               b is a, as c2 is c1
    u = a[::2]    v = b[::2]               views are compared by the cells that they show, not by their names
    p = relu(u)   q = relu(v)              q is p

A generator's seed and stream are attributes, so two are the same only where they draw the same numbers.
"""

from __future__ import annotations

import mmap
import weakref
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapestry_plan.ir import Graph, Stored, sha256_of
from tapestry_plan.rewrite import tuning
from tapestry_plan.rewrite.derivation import rule
from tapestry_plan.rewrite.draft import Draft, NotApplicable
from tapestry_sets.limits import FrozenDict, put_fields, quote


def _list_places(graph: Graph) -> Iterator[str]:
    """Operators, and constants that have not the name of one."""
    yield from graph.nodes
    yield from (name for name, one in graph.stored.items() if one.kind == "constant" and name not in graph.nodes)


@rule(
    requires="another operator with the same attributes on the same operands, or another constant of the same content",
    keeps="values to the bit",
    places=_list_places,
)
def unify(draft: Draft, at: str, other: str | None = None) -> None:
    """Let what reads an operator's results, or a constant, read those of an equal one; the operator is removed.

    A constant stays in the graph, though nothing reads it any more.

    Parameters
    ----------
    at : str
        The operator, or the constant where no operator has that name.
    other : str, optional
        The one that stands for it; the first one before it by default.
    """
    is_operator = at in draft.nodes
    number = _number_operator if is_operator else _number_constant
    mine = number(draft, at)
    if other is None:
        other = next((one for one in _list_before(draft, at) if number(draft, one) == mine), None)
        if other is None:
            raise NotApplicable("there is no equal one before it")
    elif other == at:
        raise NotApplicable("it cannot stand for itself")
    elif number(draft, other) != mine:
        what = "operator, attributes or operands" if is_operator else "dtype, shape or content"
        raise NotApplicable(f"{quote(other)} has another {what}")
    _join(draft, at, other)


def _list_before(draft: Draft, at: str) -> list[str]:
    """The operators, or the constants, that are before one in the graph."""
    if at in draft.nodes:
        names = [node.name for node in draft.order()]
    else:
        names = [name for name, one in draft.stored.items() if one.kind == "constant"]
    return names[: names.index(at)] if at in names else []


def _number_operator(draft: Draft, at: str) -> object:
    """What an operator computes: equal operators on equal operands have equal ones."""
    node = draft.node(at)
    sources = map(draft.source, node.inputs)
    reads = tuple((source.stored, source.pieces, source.shape) for source in sources)
    return node.op, repr(sorted(node.attrs.items())), reads  # as text, 0.0 is not -0.0, nor 1


def _number_constant(draft: Draft, at: str) -> object:
    """What a constant is: constants of equal content have equal ones."""
    tensor = draft.stored.get(at)
    if tensor is None or tensor.kind != "constant":
        raise NotApplicable(f"there is no operator and no constant {quote(at)} in graph {quote(draft.name)}")
    outline = _outline(tensor)
    if outline is None:
        raise NotApplicable(f"of constant {quote(at)} neither values nor a digest are known")
    return outline, _digest(tensor)


def unify_equal(graph: Graph, apart: Collection[str] = (), *, operators: bool = True) -> tuple[Graph, dict[str, str]]:
    """A graph in which constants of equal content are read as one, and equal operators are there once.

    Parameters
    ----------
    graph : Graph
        Not changed; given back where nothing in it is the same.
    apart : collection of str
        Operators and constants that stay as they are: none stands for them, nor they for another.
    operators : bool
        Whether operators are looked at, beside constants.

    Returns
    -------
    graph, unified : Graph and dict of str to str
        What is not read, or not there, any more, with the name of what stands for it: as the rule `unify` takes them,
        in this order.

    Examples
    --------
    >>> from tapestry_plan.ops import exp
    >>> g = Graph()
    >>> x = g.input("x", (4,))
    >>> y = g.output(exp(x, name="one") + exp(x, name="two"))
    >>> made, unified = unify_equal(g)
    >>> unified, list(made.nodes)
    ({'two': 'one'}, ['one', 'add'])
    """
    draft, unified = Draft(graph), dict[str, str]()
    for name, other in list(_list_equal_constants(draft, apart)):
        _join(draft, name, other)
        unified[name] = other
    known: dict[object, str] = {}
    order = graph.order() if operators else []
    for node in order:
        if node.name not in apart:
            other = known.setdefault(_number_operator(draft, node.name), node.name)
            if other != node.name:
                _join(draft, node.name, other)
                unified[node.name] = other
    if not unified:
        return graph, {}
    made = draft.done()
    # Operators run in the order in which they did: the first reader of a tensor pays for what arrives.
    kept = [node.name for node in graph.order() if node.name in made.nodes]
    put_fields(made, nodes=FrozenDict((name, made.nodes[name]) for name in kept))
    return made, unified


def list_equal_by_chance(graph: Graph, unified: Mapping[str, str]) -> frozenset[str]:
    """Of constants for which another one stands those that are not equal to it where open axes have other sizes.

    A model may make them of sizes: the batch as a number is 1 at a batch of 1. It is read again with one point more
    along each open axis, where some of these constants are none that it has as they are.
    """
    model, stored = graph._model, graph.stored
    pairs = [] if model is None else [(one, other) for one, other in unified.items() if one in stored]
    if model is None or all(name in model.stored for pair in pairs for name in pair):
        return frozenset()
    try:
        there = model({name: size + 1 for name, size in graph.sizes.items()}).stored
    except ValueError:  # at which the model has no graph
        return frozenset()
    return frozenset(
        one for one, other in pairs if one in there and other in there and not _are_equal(there[one], there[other])
    )


def _are_equal(one: Stored, other: Stored) -> bool:
    """Whether two constants have the same content."""
    outline = _outline(one)
    return outline is not None and outline == _outline(other) and _digest(one) == _digest(other)


def _join(draft: Draft, at: str, other: str) -> None:
    """Let an equal operator, or constant, stand for one."""
    if at not in draft.nodes:
        draft.replace(at, draft.tensor(other))
        return
    node = draft.nodes[at]
    for old, new in zip(node.outputs, draft.nodes[other].outputs, strict=True):
        draft.replace(old, draft.tensor(new))
    draft.remove(at)


def _list_equal_constants(draft: Draft, apart: Collection[str]) -> Iterator[tuple[str, str]]:
    """Constants that are read, each with an equal one before it."""
    alike: dict[object, list[Stored]] = {}
    for name, tensor in draft.stored.items():
        # At a place with the name of an operator the rule would look at that.
        if tensor.kind != "constant" or name in apart or name in draft.nodes:
            continue
        is_read = draft.readers(name) or draft.is_output(name)
        if is_read and (outline := _outline(tensor)) is not None:
            alike.setdefault(outline, []).append(tensor)
    first: dict[object, str] = {}
    for outline, tensors in alike.items():
        for tensor in tensors if len(tensors) > 1 else ():
            other = first.setdefault((outline, _digest(tensor)), tensor.name)
            if other != tensor.name:
                yield tensor.name, other


def _outline(tensor: Stored) -> object:
    """What equal constants have in common that is quick to see: some of the bytes; None where nothing is known."""
    if tensor.data is not None:
        return tensor.dtype, tensor.shape, _sample(tensor)
    return None if tensor.sha256 is None else (tensor.dtype, tensor.shape, None)


_SAMPLES: dict[int, tuple[weakref.ref[Any], bytes]] = {}
"""Samples of arrays that cannot be written to, by identity: of a mapped file each place is a page that is read."""


def _sample(tensor: Stored) -> bytes:
    """Bytes at some places of a constant.

    A sample that is kept may be older than the cells, where another array writes to them. Then equal constants may be
    taken for different ones, which costs time; that others are equal is said by their digests alone.
    """
    data = tensor.data
    assert data is not None, "the caller has seen values"
    kept = _SAMPLES.get(id(data))
    if kept is not None and kept[0]() is data:
        return kept[1]
    raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    each = tuning.LOOKED_AT_NBYTES // tuning.LOOKED_AT_PLACES
    starts = np.linspace(0, max(0, len(raw) - each), tuning.LOOKED_AT_PLACES).astype(np.int64)
    with _read_page_by_page(data):
        found = b"".join(raw[at : at + each].tobytes() for at in starts)
    if not data.flags.writeable:
        number = id(data)
        _SAMPLES[number] = weakref.ref(data, lambda _: _SAMPLES.pop(number, None)), found
    return found


@contextmanager
def _read_page_by_page(data: NDArray[Any]) -> Iterator[None]:
    """Where an array is mapped from a file, let its pages be read one by one, without those behind them."""
    base: object = data
    while isinstance(base, (np.ndarray, memoryview)):
        base = base.base if isinstance(base, np.ndarray) else base.obj
    if not isinstance(base, mmap.mmap) or not hasattr(base, "madvise"):  # Windows gives no advice
        yield
        return
    base.madvise(mmap.MADV_RANDOM)
    try:
        yield
    finally:
        base.madvise(mmap.MADV_NORMAL)  # who reads all of it later reads ahead


def _digest(tensor: Stored) -> str:
    """SHA-256 of a constant's cells: of those that are there now, as their owner may have written to them."""
    found = tensor.sha256 if tensor.data is None else sha256_of(tensor.data)
    assert found is not None, "what has neither values nor a digest has no outline"
    return found
