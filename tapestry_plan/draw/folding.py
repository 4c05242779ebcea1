"""Folding: blocks of operators that a graph repeats, each found once, with all its repetitions.

The layers of a transformer, or the residual blocks of a network, are the same operators again and again::

    embed  norm matmul … add  norm matmul … add  norm matmul … add  linear
           └──── block ────┘  └──── block ────┘  └──── block ────┘
    folds to   embed   3 × (norm matmul … add)   linear

Blocks are alike in operators, attributes, shapes, dtypes and wiring, never in names; values of constants do not count.
What a block reads from outside is in each repetition one of three things: made by the repetition before it (of the
first, by something before all), the same tensor for all, or a tensor of its own, such as a weight.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from tapestry_plan.draw import tuning
from tapestry_plan.ir import Graph, OpNode, Selection, mark_of
from tapestry_sets.digits import Int64Array
from tapestry_sets.limits import check_arguments

Item = OpNode | Selection


class Repeated(Struct, frozen=True, dict=True):
    """A block of operators and selections that several times follows itself.

    Parameters
    ----------
    body : tuple of (OpNode, Selection or Repeated)
        The first repetition, in which blocks may be repeated again.
    members : tuple of tuple of (OpNode or Selection)
        The operators and selections of each repetition, unfolded: those at one place correspond.
    carried : tuple of tuple of str
        For each repetition the tensors that it reads of the one before it, the first of something before all.
    shared : tuple of str
        Tensors from outside that all repetitions read.
    own : tuple of tuple of str
        For each repetition the tensors from outside that it alone reads, such as weights.
    """

    body: tuple[Folded, ...]
    members: tuple[tuple[Item, ...], ...]
    carried: tuple[tuple[str, ...], ...]
    shared: tuple[str, ...]
    own: tuple[tuple[str, ...], ...]

    @property
    def times(self) -> int:
        """How often the block is there."""
        return len(self.members)

    @cached_property
    def at(self) -> dict[str, tuple[int, int]]:
        """For each operator and selection by name the repetition that it is in, and its place there."""
        return {item.name: (k, at) for k, member in enumerate(self.members) for at, item in enumerate(member)}

    def __repr__(self) -> str:
        return f"{self.times} × (" + " ".join(map(_word, self.body)) + ")"


Folded = OpNode | Selection | Repeated


def _word(part: Folded) -> str:
    return repr(part) if isinstance(part, Repeated) else part.op if isinstance(part, OpNode) else part.label


@check_arguments
def fold(graph: Graph) -> tuple[Folded, ...]:
    """Fold the repeated blocks of a graph.

    Parameters
    ----------
    graph : Graph

    Returns
    -------
    tuple of (OpNode, Selection or Repeated)
        Each after what it reads; `unfold` gives the operators and selections back in the same order.

    Raises
    ------
    ValueError
        For a graph with a cycle.

    Examples
    --------
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.input("x", (8, 8))
    >>> for k in range(12):
    ...     x = ops.relu(x @ g.input(f"w{k}", (8, 8))) + x
    >>> y = g.output(ops.softmax(x))
    >>> print(*fold(g)[:-1], fold(g)[-1].op)
    12 × (matmul relu add) softmax

    Notes
    -----
    Found are repetitions that follow each other where each operator comes after what it reads, in the order in which
    the graph was written. Of the blocks that begin at different places the longest run is taken, cut where fewest
    tensors pass; the rest, and the block itself, are folded again. The time is quadratic in the number of operators,
    in steps of whole arrays. Where thousands of operators of one kind are wired at random the search ends early, so
    that blocks may be missed there.
    """
    items = tuple(graph._ordered())
    return tuple(_Folder(graph, items).parts(0, len(items), ()))


@check_arguments
def unfold(parts: Sequence[Folded]) -> tuple[Item, ...]:
    """All operators and selections of folded parts, in order.

    Parameters
    ----------
    parts : sequence of (OpNode, Selection or Repeated)
        As `fold` gives them.

    Examples
    --------
    >>> from tapestry_plan import Graph, ops
    >>> g = Graph()
    >>> x = g.input("x", (8,))
    >>> for k in range(5):
    ...     x = ops.relu(x, name=f"relu{k}")
    >>> fold(g), [item.name for item in unfold(fold(g))]
    ((5 × (relu),), ['relu0', 'relu1', 'relu2', 'relu3', 'relu4'])
    """
    each = (part.members if isinstance(part, Repeated) else ((part,),) for part in parts)
    return tuple(item for members in each for member in members for item in member)


class _Wire(NamedTuple):
    """An operand: its tensor, the place of the item that makes it and as which output, or of none its kind."""

    tensor: str
    place: int
    slot: int
    kind: str


class _Run(NamedTuple):
    """Some places in order that fold: where the first block begins, its length, and how often it is there."""

    begin: int
    period: int
    times: int

    @property
    def saved(self) -> int:
        """Items that need not be shown."""
        return (self.times - 1) * self.period

    @property
    def end(self) -> int:
        return self.begin + self.times * self.period

    def moved(self, by: int) -> _Run:
        """The same at another place."""
        return self._replace(begin=self.begin + by)


class _Folder:
    """A graph's items in order, with numbers for what each is, and what it reads from where."""

    def __init__(self, graph: Graph, items: Sequence[Item]) -> None:
        self.items = items
        made = {name: (k, slot) for k, item in enumerate(items) for slot, name in enumerate(item.outputs)}
        kinds = {name: stored.kind for name, stored in graph.stored.items()}
        self.reads = [
            tuple(_Wire(name, *made.get(name, (-1, 0)), "" if name in made else kinds[name]) for name in item.inputs)
            for item in items
        ]
        numbers: dict[Hashable, int] = {}
        forms = {name: (one.shape, one.dtype) for name, one in graph.stored.items()}
        forms |= {name: (one.shape, one.dtype) for name, one in graph.selections.items()}
        marks = (
            (
                isinstance(item, OpNode),
                mark_of(item),
                tuple(forms[name] for name in item.inputs),
                tuple(forms[name] for name in item.outputs),
            )
            for item in items
        )
        self.marks: Int64Array = np.array([numbers.setdefault(mark, len(numbers)) for mark in marks], np.int64)
        self.passing = self._count_passing()
        self.table = self._list_reads()
        self.counted: dict[tuple[int, int], tuple[int, int]] = {}
        """For a place and a period: of how many blocks it was asked how many are wired alike, and how many are."""

    def _count_passing(self) -> Int64Array:
        """For each place, how many tensors that items before it make are read there or behind."""
        last: dict[tuple[int, int], int] = {}
        for k, reads in enumerate(self.reads):
            last.update({(read.place, read.slot): k for read in reads if read.place >= 0})
        steps = np.zeros(len(self.items) + 2, np.int64)
        for (place, _), reader in last.items():
            steps[place + 1] += 1
            steps[reader + 1] -= 1
        return np.cumsum(steps)

    def _list_reads(self) -> Int64Array:
        """For each place: where its operands are made, as which outputs, and which tensors they are; -1 for none."""
        tensors: dict[str, int] = {}
        table = np.full((len(self.items), 3, max(map(len, self.reads), default=0)), -1, np.int64)
        for k, reads in enumerate(self.reads):
            for at, read in enumerate(reads):
                table[k, :, at] = read.place, read.slot, tensors.setdefault(read.tensor, len(tensors))
        return table

    def parts(self, begin: int, end: int, others: Sequence[int]) -> Iterator[Folded]:
        """The items of some places, folded; as well those that are moved by `others`, which repeat them."""
        run = self._find(begin, end, others)
        if run is None:
            yield from self.items[begin:end]
            return
        yield from self.parts(begin, run.begin, others)
        yield self._repeated(run, others)
        yield from self.parts(run.end, end, others)

    def _repeated(self, run: _Run, others: Sequence[int]) -> Repeated:
        starts = range(run.begin, run.end, run.period)
        within = [by + k * run.period for by in (0, *others) for k in range(run.times)]
        body = tuple(self.parts(run.begin, run.begin + run.period, within[1:]))
        members = tuple(self.items[start : start + run.period] for start in starts)
        outside = [self._outside(start, run.period) for start in starts]
        carried = [k for k, read in enumerate(outside[1]) if read.place >= run.begin]
        shared = [k for k, read in enumerate(outside[1]) if read == outside[0][k]]
        own = [k for k in range(len(outside[1])) if k not in {*carried, *shared}]
        return Repeated(
            body,
            tuple(map(tuple, members)),
            tuple(tuple(reads[k].tensor for k in carried) for reads in outside),
            tuple(outside[0][k].tensor for k in shared),
            tuple(tuple(reads[k].tensor for k in own) for reads in outside),
        )

    # -- finding -----------------------------------------------------------------------------------------

    def _find(self, begin: int, end: int, others: Sequence[int]) -> _Run | None:
        """The run that saves most of the items of some places, if there is one."""
        best: _Run | None = None
        for most, period, first, last in self._candidates(begin, end):
            if most <= (tuning.MIN_SAVED - 1 if best is None else best.saved):
                break
            found = self._longest(period, first, last, others)
            if found is not None and found.saved >= max(tuning.MIN_SAVED, best.saved + 1 if best else 0):
                best = found
        return best

    def _candidates(self, begin: int, end: int) -> list[tuple[int, int, int, int]]:
        """Places of items that are those of one period before: how many items that may save at most, period, ends."""
        marks, found = self.marks[begin:end], []
        for period in range(1, len(marks) // 2 + 1):
            same = np.concatenate([[0], marks[period:] == marks[:-period], [0]]).astype(np.int8)
            turns = np.diff(same)
            starts, stops = np.flatnonzero(turns > 0), np.flatnonzero(turns < 0)
            for first, last in zip(starts.tolist(), stops.tolist(), strict=True):
                if last - first >= period:
                    most = (last - first) // period * period
                    found.append((most, period, begin + first, begin + last + period))
        return sorted(found, key=lambda one: (-one[0], one[1]))

    def _longest(self, period: int, first: int, last: int, others: Sequence[int]) -> _Run | None:
        """Of items with equal marks, the longest run of blocks that are wired alike."""
        best: _Run | None = None
        can_begin = self._can_begin(period, first, last)
        # Most repetitions first, then those that few tensors enter; of equal ones the block that begins last, since
        # what comes before the first repetition often ends like one.
        starts = sorted(can_begin, key=lambda s: (-((last - s) // period), int(self.passing[s]), -s))
        for start in starts:
            most = (last - start) // period
            if best is not None and most <= best.times:
                break
            times = self._count(start, period, most)
            if times > (1 if best is None else best.times) and all(
                self._count(start + by, period, times) == times for by in others
            ):
                best = _Run(start, period, times)
        return best

    def _can_begin(self, period: int, first: int, last: int) -> list[int]:
        """Where a first block may begin that the next one repeats, by looking at pairs of operands.

        An operand that moves not with the block, and is not the same tensor, is made before the first block.
        """
        one, next_one = self.table[first : last - period], self.table[first + period : last]
        moves = (next_one[:, 0] - one[:, 0] == period) & (next_one[:, 1] == one[:, 1])
        stays = next_one[:, 2] == one[:, 2]
        least = np.where(moves | stays, -1, one[:, 0]).max(axis=1, initial=-1)
        width = 1
        while width < period:  # the greatest of as many as a block has, by doubling
            step = min(width, period - width)
            least = np.maximum(least[:-step], least[step:])
            width += step
        found: list[int] = (first + np.flatnonzero(least < first + np.arange(len(least)))).tolist()
        return found

    def _count(self, begin: int, period: int, most: int) -> int:
        """How many blocks from a place on are wired alike, of at most so many with equal marks."""
        asked, found = self.counted.get((begin, period), (0, 0))
        if found == asked < most and len(self.counted) < tuning.MAX_COMPARED:  # there may be more than was asked for
            found = self._count_anew(begin, period, most)
            self.counted[begin, period] = (most, found)
        return min(found, most)

    def _count_anew(self, begin: int, period: int, most: int) -> int:
        first = [*self._wires(begin, period)] if most > 2 else None
        relations, before, seen = None, list[_Wire](), set[str]()
        for k in range(1, most):
            expected = self._wires(begin, period) if first is None else first
            wires = self._wires(begin + k * period, period)
            if any(one != other for one, other in zip(expected, wires, strict=True)):
                return k
            if k == 1:
                before = self._outside(begin, period)
                seen.update(read.tensor for read in before)
            outside = self._outside(begin + k * period, period)
            relation = [
                _relation(old, new, begin, period if k > 1 else None) for old, new in zip(before, outside, strict=True)
            ]
            fresh = {read.tensor for read, how in zip(outside, relation, strict=True) if how == "own"}
            if None in relation or relations not in (None, relation) or fresh & seen:
                return k
            relations, before = relation, outside
            seen |= fresh
        return most

    def _wires(self, begin: int, period: int) -> Iterator[tuple[int, int]]:
        """The operands of a block: those made inside by how far back and which output, others by their number."""
        outside: dict[str, int] = {}
        for k in range(begin, begin + period):
            for read in self.reads[k]:
                inside = read.place >= begin
                yield (k - read.place, read.slot) if inside else (-1, outside.setdefault(read.tensor, len(outside)))

    def _outside(self, begin: int, period: int) -> list[_Wire]:
        """What a block reads from outside, each tensor once, in the order of their numbers."""
        found: dict[str, _Wire] = {}
        for reads in self.reads[begin : begin + period]:
            for read in reads:
                if read.place < begin:
                    found.setdefault(read.tensor, read)
        return [*found.values()]


def _relation(old: _Wire, new: _Wire, begin: int, period: int | None) -> str | None:
    """How what a block reads from outside is related to what the one before it reads there; None for no way.

    The run has its begin there; without a period the block before is the first one, which another item may serve.
    """
    if new.place >= begin:
        moved = period is None or (old.place, old.slot) == (new.place - period, new.slot)
        return "carried" if moved else None
    if new.tensor == old.tensor:
        return "shared"
    return "own" if (new.place < 0) == (old.place < 0) and new.kind == old.kind else None
