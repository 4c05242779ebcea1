"""From which size to which a model is as it is near a plan's own: its numbers affine in the size, all else the same.

::

    N = 8      9  10  13  17   33   128  …  32768        near sizes say the affine numbers, far ones are compared
    slice 1:30 ●   ●   ●   ●    ○     ○       ○          ─►  by halving: up to 30
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from msgspec import Struct

from tapestry_plan.ir import Graph
from tapestry_plan.search import read_again, rewrite_again
from tapestry_plan.steps import ShardPlan
from tapestry_plan.symbolic import tuning
from tapestry_plan.symbolic.affine import Affine, Samples
from tapestry_sets.interop import NonAffineSize
from tapestry_sets.limits import quote
from tapestry_sets.regions import AffineMap, Region
from tapestry_sets.views import Piece, Relinearize

Fact = tuple[Hashable, tuple[int, ...]]
"""What must be the same at all sizes, and the numbers that must be affine."""


class Reach(Struct, frozen=True):
    """The sizes between which a model is affine in its size, as far as it was read."""

    least: int
    most: int | None
    """None where it is affine at the largest size that was read."""
    read: tuple[int, ...]
    """All sizes that it was read at, in order."""
    why: str = ""
    """What is otherwise at the size behind the last one."""


def find_reach(plan: ShardPlan, symbol: str, samples: Samples, graphs: Sequence[Graph], least: int) -> Reach:
    """Between which sizes the model is as at the sizes at which it was read, from a least one on.

    Parameters
    ----------
    plan : ShardPlan
    symbol : str
    samples : Samples
        Sizes near the plan's own.
    graphs : sequence of Graph
        The plan's at these sizes.
    least : int
        Below this nothing is asked.
    """
    known, seen = _NearFacts(samples, graphs), dict[int, str | None](dict.fromkeys(samples.sizes))

    def tell_misfit(size: int) -> str | None:
        if size not in seen:
            try:
                seen[size] = known.tell_misfit(size, rewrite_again(plan, read_again(plan, {symbol: size})))
            except ValueError as error:  # the model has no such size, as where a table of positions ends
                seen[size] = f"it cannot be read: {error}"
        return seen[size]

    first, last, own = min(samples.sizes), max(samples.sizes), plan.graph.sizes[symbol]
    below = [max(least, own // factor) for factor in tuning.FAR if least < first]
    above = [own * factor + k % 2 for k, factor in enumerate(tuning.FAR)]
    lowest, _ = _find_end(first, [n for n in dict.fromkeys([*below, least]) if n < first], tell_misfit)
    most, beyond = _find_end(last, [n for n in above if n > last], tell_misfit)
    why = "" if beyond is None else f"at {symbol}={beyond} {tell_misfit(beyond)}"
    return Reach(lowest, None if beyond is None else most, tuple(sorted(seen)), why)


def count_strange(samples: Samples, graphs: Sequence[Graph]) -> int:
    """How much of a model is not affine in the size at some sizes."""
    return _NearFacts(samples, graphs).strange


def _find_end(good: int, ladder: Sequence[int], tell: Callable[[int], str | None]) -> tuple[int, int | None]:
    """The last size on the way from a good one that is good, and the next that is not, if there is any.

    A size at which the model is otherwise ends the way; one at which it cannot be read does where no later one can.
    """
    bad: int | None = None
    for size in ladder:
        misfit = tell(size)
        if misfit is None:
            good, bad = size, None
        elif bad is None or not misfit.startswith("it cannot be read"):
            bad = size
            if not misfit.startswith("it cannot be read"):
                break
    if bad is None:
        return good, None
    while abs(bad - good) > 1:
        middle = (good + bad) // 2
        if tell(middle) is None:
            good = middle
        else:
            bad = middle
    return good, bad


class _NearFacts:
    """What a graph is at some sizes, with its numbers as functions of the size."""

    def __init__(self, samples: Samples, graphs: Sequence[Graph]) -> None:
        each = [dict(list_facts(graph)) for graph in graphs]
        self._facts: dict[str, tuple[Hashable, list[Affine | None]]] = {}
        self.strange = 0
        """How many facts or numbers are not affine in the size, or not the same at all of them."""
        for what, (same, numbers) in each[0].items():
            facts = [one.get(what) for one in each]
            found = [fact for fact in facts if fact is not None and fact[0] == same and len(fact[1]) == len(numbers)]
            if len(found) < len(facts):  # there are no formulas, which `Relations` tells
                self.strange += 1
                continue
            columns = zip(*(fact[1] for fact in found), strict=True)
            fitted = [_fit(samples, column) for column in columns]
            self._facts[what] = same, fitted
            self.strange += fitted.count(None)

    def tell_misfit(self, size: int, graph: Graph) -> str | None:
        """The first thing in which a graph is otherwise than it is to be at its size, in words."""
        facts = dict(list_facts(graph))
        for what, (same, numbers) in self._facts.items():
            mine = facts.get(what)
            if mine is None or mine[0] != same or len(mine[1]) != len(numbers):
                return f"{what} is made otherwise"
            for wanted, number in zip(numbers, mine[1], strict=True):
                if wanted is not None and wanted.at(size) != number:
                    return f"{what} has {number} where it would have {wanted.at(size)}"
        return None


def _fit(samples: Samples, values: Sequence[int]) -> Affine | None:
    try:
        return samples.fit(values, "")
    except NonAffineSize:
        return None


def list_facts(graph: Graph) -> Iterator[tuple[str, Fact]]:
    """All that formulas are made of, as `Relations` reads it of a graph."""
    for name, tensor in graph.stored.items():
        yield f"the shape of {quote(name)}", (len(tensor.shape), tensor.shape)
    for node in graph.nodes.values():
        signature = graph.signature(node.name)
        index = tuple((axis.name, axis.parts) for axis in signature.axes)
        yield f"the index space of {quote(node.name)}", (index, signature.index_shape)
        for k, operand in enumerate(signature.outputs):
            yield f"output {k} of {quote(node.name)}", _write_projections(operand.projections)
        for k, (operand, name) in enumerate(zip(signature.inputs, node.inputs, strict=True)):
            what, source = f"operand {k} of {quote(node.name)}", graph.source(name)
            same, numbers = _write_projections(operand.projections)
            fixed = (same, tuple(operand.at_start_of), tuple(source.stored), source.direct, len(source.shape))
            yield what, (fixed, (*numbers, *source.shape))
            if not source.direct:
                for number, piece in enumerate(source.pieces):
                    yield f"piece {number} of the views behind {what}", _write_piece(piece)
                yield f"the number of pieces behind {what}", (len(source.pieces), ())


def _write_projections(some: Sequence[Any]) -> Fact:
    same = tuple((repr(one.map.matrix), repr(one.splits), one.index_rank) for one in some)
    return same, tuple(n for one in some for n in (*one.map.offset, *one.shape))


def _write_piece(piece: Piece) -> Fact:
    same: list[Hashable] = [piece.source, piece.map.in_rank, *(guard.prefix for guard in piece.guards)]
    numbers: list[int] = []
    for guard in piece.guards:
        for fixed, some in _write_region(guard.region):
            same.append(fixed)
            numbers += some
    for step in piece.map.steps:
        if isinstance(step, AffineMap):
            same.append(("affine", repr(step.matrix), step.in_rank))
            numbers += step.offset
        elif isinstance(step, Relinearize):
            same.append(("shapes", len(step.from_shape), len(step.to_shape)))
            numbers += [*step.from_shape, *step.to_shape]
        else:
            same.append(("table", step))
    return tuple(same), tuple(numbers)


def _write_region(region: Region) -> Iterator[tuple[Hashable, Sequence[int]]]:
    for axis, (start, extent) in enumerate(zip(region.start, region.shape, strict=True)):
        span = region.spans[axis]
        if span is None:
            yield ("periodic", region.nests[axis]), (start, extent)
        else:
            yield "interval", span
