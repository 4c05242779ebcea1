"""Index axes that could be several: what a neighbor's view says of periods.

A view between two operators may say that a block of the one is every fourth cell of the other::

    exp    0 1 2 | 3 4 5 | 6 7 8 | 9 10 11        four rows of three, read by columns
    tanh   0 3 6 9 | 1 4 7 10 | 2 5 8 11

No even blocks of tanh's only axis are blocks of exp. Over two axes of 3 and 4 points they are, or with exp over 4 and
3: the digits of a cell's number in which the block is a box. Blocks are followed through the views as regions, and the
periods of the stripes that they come out as are the digits. So no kind of view is named here, and an operator that
works cell by cell may be laid out by phase, by blocks dealt out in turn, or by both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import gcd, prod

from msgspec.structs import replace

from tapestry_plan.ir import Axis, Graph, NotApplicable, OpNode, Signature, Source, cells_of
from tapestry_plan.rewrite import follow_cells, follow_inputs, view_once
from tapestry_plan.search import tuning
from tapestry_plan.steps import Facts, Layout, PeriodicBlock, SplitAxis, pull_back, unite
from tapestry_sets.digits import point_of
from tapestry_sets.integers import Stripe
from tapestry_sets.limits import OPEN, REFUSALS, ask_one
from tapestry_sets.regions import Box, DisjointRegions
from tapestry_sets.views import View

Split = tuple[SplitAxis, ...]
"""Index axes for which others stand."""
Read = tuple[OpNode, Sequence[str]]
"""An operator, and the tensors that it reads."""
Digits = tuple[tuple[int, ...], int]
"""Of an axis: the sizes of the digits of its cells' numbers, and the cell that is numbered 0."""


def offer_cuts(
    graph: Graph,
    devices: int,
    pinned: Collection[str],
    reads: Sequence[Read] | None = None,
    known: Facts | None = None,
) -> dict[str, tuple[Layout, ...]]:
    """Return for operators that work cell by cell, by name, one layout for each way to cut split axes.

    Parameters
    ----------
    graph : Graph
    devices : int
        Of the mesh; there are as many parts as divide it.
    pinned : collection of str
        Operators that stay as they are.
    reads, known
        As of `derive_splits`.
    """
    found = derive_splits(graph, devices, reads, known)
    return {
        name: tuple(_list_cuts(graph.signature(name).axes, splits, devices))
        for name, splits in found.items()
        if name not in pinned
    }


def add_offered(
    offered: Mapping[str, tuple[Layout, ...]], derived: Mapping[str, tuple[Layout, ...]]
) -> dict[str, tuple[Layout, ...]]:
    """Return derived layouts and, of the cuts that were offered, the first ones in which all devices have a part.

    What neighbors ask for lies with them wholly. Where an operator reads two views, no layout may lie so with both, and
    one that was only offered moves the least.
    """
    out = {}
    for name, each in offered.items():
        have = derived.get(name, ())
        most = max((prod(one.parts) for one in each), default=1)
        finest = [one for one in each if prod(one.parts) == most and one not in have]
        out[name] = (*have, *finest[: tuning.MAX_OFFERED])
    return out


def _list_cuts(axes: Sequence[Axis], splits: Iterable[Split], devices: int) -> Iterator[Layout]:
    """The cuts of some splits into as many parts as divide the devices, each once, and none that needs no split.

    Of a split those with the most parts come first, up to `tuning.MAX_DERIVED_PARTS` parts in all of them.
    """
    seen, left = set(), tuning.MAX_DERIVED_PARTS
    for split in splits:
        given = {one.axis: one for one in split}
        digits = tuple(given.get(axis.name, SplitAxis(axis.name, (axis.size,))) for axis in axes)
        extents = tuple(n for each in digits for n in each.sizes)
        for parts in sorted(_list_parts(extents, devices), key=prod, reverse=True):
            periods = tuple(_list_periods(digits, parts))
            plain = (_is_plain(axis, *each) for axis, each in zip(axes, periods, strict=True))
            if periods not in seen and not all(plain):
                seen.add(periods)
                count = prod(parts)
                left -= count
                if left < 0:
                    return
                cells = tuple(point_of(k, parts) if k < count else None for k in range(devices))
                yield Layout(extents, parts, cells, digits)


def _list_parts(extents: Sequence[int], devices: int) -> Iterator[tuple[int, ...]]:
    """The numbers of even parts along some axes whose product divides the devices."""
    if not extents:
        yield ()
        return
    for count in range(1, devices + 1):
        if devices % count == 0 and extents[0] % count == 0:
            yield from ((count, *rest) for rest in _list_parts(extents[1:], devices // count))


def _list_periods(digits: Split, parts: Sequence[int]) -> Iterator[tuple[int, tuple[tuple[int, int], ...]]]:
    """For each axis where a cut begins and its levels, (period, block), the same for the same parts."""
    #   12 = 3 · 4 in (1, 2) parts       every 4 cells are cut in blocks of 2: (4, 2)
    #   12 = 3 · 2 · 2 in (1, 2, 1)      the same
    at = 0
    for each in digits:
        levels: list[tuple[int, int]] = []
        period = prod(each.sizes)
        for n, count in zip(each.sizes, parts[at : at + len(each.sizes)], strict=True):
            if count > 1:
                above, _ = levels.pop() if levels and levels[-1][1] == period else (period, period)
                levels.append((above, period // count))
            period //= n
        at += len(each.sizes)
        yield (each.first if levels else 0), tuple(levels)


def _is_plain(axis: Axis, first: int, levels: Sequence[tuple[int, int]]) -> bool:
    """Whether an axis is cut in blocks of neighbors from its beginning on, as it may be anyway."""
    return not first and all(period == axis.size for period, _ in levels)


def derive_splits(
    graph: Graph, devices: int, reads: Sequence[Read] | None = None, known: Facts | None = None
) -> dict[str, tuple[Split, ...]]:
    """Return for operators that work cell by cell, by name, index axes that neighbors ask for in place of their own.

    Parameters
    ----------
    graph : Graph
    devices : int
        Of the mesh; axes are followed in as many blocks as divide it.
    reads : sequence of Read, optional
        Operators and the names of what they read; by default as they stand in the graph. In one that holds variants
        side by side an operator has several.
    known : Facts, optional
        What views of other graphs were found to ask for on as many devices.

    Returns
    -------
    dict of str to tuple of Split
        At most `tuning.MAX_SPLITS` for each operator.

    Examples
    --------
    >>> from tapestry_plan.ops import exp, tanh
    >>> g = Graph()
    >>> _ = g.output(tanh(exp(g.input("x", (12,))).reshape(4, 3).T.reshape(12)))
    >>> {name: str(splits[0][0]) for name, splits in derive_splits(g, 4).items()}
    {'tanh': 'i0=3x4', 'exp': 'i0=4x3'}
    """
    if devices < 2:
        return {}
    stand = [(node, node.inputs) for node in graph.order()]
    return _Splits(graph, devices, stand if reads is None else reads, known or Facts()).list_found()


def asks_for_splits(graph: Graph, devices: int, reads: Sequence[Read], known: Facts) -> bool:
    """Whether a view that operators read through asks for other index axes, of them or of who makes what is behind it.

    Parameters
    ----------
    graph : Graph
        A part of a larger one: anybody may make its inputs.
    devices : int
    reads : sequence of Read
    known : Facts
        As of `derive_splits`.
    """
    return _Splits(graph, devices, reads, known).asks()


class _Splits:
    def __init__(self, graph: Graph, devices: int, reads: Sequence[Read], known: Facts) -> None:
        self.graph, self.reads, self.known = graph, reads, known
        self.counts = [k for k in range(devices, 1, -1) if devices % k == 0]
        self.makers = {out: node for node in graph.nodes.values() for out in node.outputs}
        self.views: dict[str, View] = {}
        """Of the tensors that are read: what they have in common below them is looked at once."""
        self.cellwise: dict[str, bool] = {}

    def asks(self) -> bool:
        graph = self.graph
        for node, names in self.reads:
            signature = graph.signature(node.name)
            for k, name in enumerate(names):
                source = graph.source(name)
                for t in () if source.direct else source.stored:
                    behind = graph.stored[t].shape
                    found = [(each, source.shape) for each in self._follow_view("reads", name, source, t, None)]
                    found += [(each, behind) for each in self._follow_view("is read", name, source, t, (signature, k))]
                    if any(one != ((n,), 0) for each, shape in found for one, n in zip(each, shape, strict=True)):
                        return True
        return False

    def list_found(self) -> dict[str, tuple[Split, ...]]:
        graph = self.graph
        every: dict[str, dict[Split, None]] = {}
        for node, names in self.reads:
            for k, name in enumerate(names):
                source = graph.source(name)
                if not source.direct:
                    for at, split in self._follow(node, k, name, source):
                        if split:
                            every.setdefault(at, {})[split] = None
            for at, split in self._follow_together(node, names):
                if split:
                    every.setdefault(at, {})[split] = None
        if every:
            self._carry_on(every)
        return {at: self._join(at, tuple(splits)[: tuning.MAX_SPLITS]) for at, splits in every.items() if splits}

    def _join(self, at: str, splits: tuple[Split, ...]) -> tuple[Split, ...]:
        """Splits of an operator, behind the one that has the digits of all, whose cuts include theirs."""
        joined = _join_splits(self.graph.signature(at).axes, splits)
        return splits if joined in splits else (joined, *splits)

    def _is_cellwise(self, node: OpNode) -> bool:
        if node.name not in self.cellwise:
            try:
                follow_inputs(self.graph.ops[node.op], self.graph.signature(node.name))
                self.cellwise[node.name] = True
            except NotApplicable:
                self.cellwise[node.name] = False
        return self.cellwise[node.name]

    def _follow(self, node: OpNode, k: int, name: str, source: Source) -> Iterator[tuple[str, Split]]:
        """What one operand of an operator, read through a view, says of the operator and of who makes it."""
        graph, signature = self.graph, self.graph.signature(node.name)
        makers = {t: maker for t in source.stored if (maker := self.makers.get(t)) and self._is_cellwise(maker)}
        followed = follow_cells(signature, signature.inputs[k]) if self._is_cellwise(node) else None
        if followed is not None:
            for t in source.stored:
                for digits in self._follow_view("reads", name, source, t, None):
                    yield node.name, _name_axes(signature.axes, dict(zip(followed, digits, strict=True)))
        for t, maker in makers.items():
            made = graph.signature(maker.name)
            writes = follow_cells(made, made.outputs[0]) if len(maker.outputs) == 1 else None
            if writes is not None:
                for digits in self._follow_view("is read", name, source, t, (signature, k)):
                    yield maker.name, _name_axes(made.axes, dict(zip(writes, digits, strict=True)))

    def _follow_together(self, node: OpNode, names: Sequence[str]) -> Iterator[tuple[str, Split]]:
        """What an operator that reads one tensor through several operands says, of what it reads through all of them.

        A flip and swapped halves map blocks to blocks each, but only the blocks of every fourth cell to the same ones.
        """
        graph, signature = self.graph, self.graph.signature(node.name)
        read: dict[str, list[int]] = {}
        for k, name in enumerate(names):
            for t in dict.fromkeys(graph.source(name).stored):
                read.setdefault(t, []).append(k)
        for t, operands in read.items():
            maker = self.makers.get(t)
            if len(operands) < 2 or maker is None or not self._is_cellwise(maker) or not self._is_cellwise(node):
                continue
            followed, *others = (follow_cells(signature, signature.inputs[k]) for k in operands)
            if followed is None or None in followed or any(other != followed for other in others):
                continue  # what is broadcast says nothing of the other operands' blocks
            made, used = graph.signature(maker.name).axes, [names[k] for k in operands]
            reads, is_read = self._follow_both(node, t, operands, used)
            for digits in reads:
                yield node.name, _name_axes(signature.axes, dict(zip(followed, digits, strict=True)))
            for digits in is_read:
                yield maker.name, _name_axes(made, dict(enumerate(digits)))

    def _follow_both(
        self, node: OpNode, stored: str, operands: Sequence[int], names: Sequence[str]
    ) -> tuple[list[tuple[Digits, ...]], list[tuple[Digits, ...]]]:
        """The digits of what reads a block of a tensor, and of what blocks of the operands read of it, all in one."""
        graph, signature = self.graph, self.graph.signature(node.name)
        sources = [graph.source(name) for name in names]
        alike = tuple((s.shape, s.stored_shapes, s.pieces, s.stored.index(stored)) for s in sources)
        key = "split together", tuple(self.counts), alike, tuple(operands), signature

        def made() -> tuple[list[tuple[Digits, ...]], list[tuple[Digits, ...]]]:
            behind, shape = graph.stored[stored].shape, sources[0].shape
            # Blocks half as large as a device's: together several of them are as large as one again.
            finer = [2 * count for count in self.counts]
            blocks = [cells_of(box, behind) for box in self._blocks(behind, finer)]
            indices = list(self._blocks(signature.index_shape, finer))
            readers = [
                blocks if source.direct else list(self._list_readers(name, stored, blocks))
                for source, name in zip(sources, names, strict=True)
            ]
            behinds = [
                list(self._list_read(source, stored, signature.inputs[k].images(indices, Box.of(shape))))
                for source, k in zip(sources, operands, strict=True)
            ]
            return (
                [digits for cells in _unite_each(readers, shape) for digits in _list_digits(cells, shape)],
                [digits for cells in _unite_each(behinds, behind) for digits in _list_digits(cells, behind)],
            )

        return self.known.fact(key, made)

    def _follow_view(
        self,
        what: str,
        name: str,
        source: Source,
        stored: str,
        reader: tuple[Signature, int] | None,
        split: Split = (),
    ) -> list[tuple[Digits, ...]]:
        """The digits of a tensor's axes, or of a view's, that follow from even blocks, or parts over split axes.

        Of what is alike they are found once.
        """
        asked = what, reader, split
        alike = source.shape, source.stored_shapes, source.pieces, source.stored.index(stored)

        def made() -> list[tuple[Digits, ...]]:
            behind = self.graph.stored[stored].shape
            if reader is None:
                axes = tuple(Axis(str(c), n) for c, n in enumerate(behind))
                regions, shape = self._list_readers(name, stored, self._list_parts(axes, split)), source.shape
            else:
                regions, shape = self._list_read(source, stored, self._list_images(*reader, source, split)), behind
            found = [digits for cells in regions for digits in _list_digits(cells, shape)]
            if not split:
                found += self._list_shares(name, source, stored, reader)
            return found

        return self.known.fact(("split", tuple(self.counts), *asked, *alike), made)

    def _list_shares(
        self, name: str, source: Source, stored: str, reader: tuple[Signature, int] | None
    ) -> Iterator[tuple[Digits, ...]]:
        """The digits in which what is read of a tensor at all, or the part of a view that reads it, is a block.

        So a tensor of which one operator reads the upper half may be cut in each of its halves.
        """
        behind = self.graph.stored[stored].shape
        if reader is None:
            parts = self._list_readers(name, stored, [DisjointRegions.full(behind)])
            shape = source.shape
        else:
            signature, k = reader
            whole = signature.inputs[k].image(Box.of(signature.index_shape), Box.of(source.shape))
            parts, shape = self._list_read(source, stored, [whole]), behind
        for cells in parts:
            bounds = cells.bounds()
            if bounds is not None and cells.size == prod(b - a for a, b in zip(*bounds, strict=True)):
                sizes = [
                    b - a if a % (b - a) == n % (b - a) == 0 else n for a, b, n in zip(*bounds, shape, strict=True)
                ]
                if sizes != list(shape):
                    yield tuple(((n,) if n == m else (n // m, m), 0) for n, m in zip(shape, sizes, strict=True))

    def _list_readers(self, name: str, stored: str, parts: Iterable[DisjointRegions]) -> Iterator[DisjointRegions]:
        """The cells of a view that read parts of a tensor."""
        view = view_once(self.graph, name, self.views)
        home = next((each for each in view.cells if each.name == stored), None)
        for part in parts if home is not None else ():  # of what a view has parts it may read no cell
            found = ask_one(REFUSALS, view.preimage, {home: part})
            if found is not OPEN and isinstance(found, DisjointRegions):
                yield found

    def _list_read(self, source: Source, stored: str, parts: Iterable[DisjointRegions]) -> Iterator[DisjointRegions]:
        """The cells of a tensor behind parts of a view."""
        for part in parts:
            found = ask_one(REFUSALS, pull_back, self.graph, source, part)
            if found is not OPEN:
                yield found[stored]

    def _list_images(self, signature: Signature, k: int, source: Source, split: Split) -> Iterator[DisjointRegions]:
        """The cells of an operand that an operator reads for all of its index space, and for parts of it."""
        operand, within = signature.inputs[k], Box.of(source.shape)
        if not split:
            yield from operand.images([Box.of(signature.index_shape), *self._blocks(signature.index_shape)], within)
            return
        followed = follow_cells(signature, operand)
        assert followed is not None, "only what works cell by cell has parts over split axes"
        extents = [1 if c is None else signature.axes[c].size for c in followed]
        for cells in self._list_parts(signature.axes, split):
            yield cells.reduce_to(extents)

    def _list_parts(self, axes: Sequence[Axis], split: Split) -> Iterator[DisjointRegions]:
        """Parts of a space: the first two of each way to cut it along one axis, or over split axes."""
        shape = tuple(axis.size for axis in axes)
        if not split:
            yield from (cells_of(box, shape) for box in self._blocks(shape))
            return
        for layout in _list_cuts(axes, [split], self.counts[0]) if self.counts else ():  # one device cuts nothing
            for block in layout.blocks[:2]:
                if isinstance(block, PeriodicBlock):
                    yield block.cells

    def _blocks(self, shape: Sequence[int], counts: Iterable[int] = ()) -> Iterator[Box]:
        """The first two of several blocks along each axis: one of them lies in one piece where a view goes around."""
        for count in counts or self.counts:
            for axis, n in enumerate(shape):
                if n % count == 0:
                    size = (*shape[:axis], n // count, *shape[axis + 1 :])
                    before, after = (0,) * axis, (0,) * (len(shape) - axis - 1)
                    yield from (Box((*before, begin, *after), size) for begin in (0, n // count))

    def _carry_on(self, every: dict[str, dict[Split, None]]) -> None:
        """Offer the same to all that work cell by cell on the same cells, and through views what these make of it."""
        around: dict[str, list[str]] = {}
        behind: dict[str, list[tuple[OpNode, int, str]]] = {}
        """By the operator at either end of a view: who reads through it, by which operand, and its name."""
        for node, names in self.reads:
            for k, name in enumerate(names) if self._is_cellwise(node) else ():
                source = self.graph.source(name)
                makers = [maker for t in source.stored if (maker := self.makers.get(t)) and self._is_cellwise(maker)]
                if not source.direct:
                    for at in {node.name, *(maker.name for maker in makers)} if makers else ():
                        behind.setdefault(at, []).append((node, k, name))
                elif makers and self._axes(makers[0]) == self._axes(node):
                    around.setdefault(node.name, []).append(makers[0].name)
                    around.setdefault(makers[0].name, []).append(node.name)
        left = [(at, split) for at, found in every.items() for split in tuple(found)[: tuning.MAX_SPLITS]]
        while left:
            at, split = left.pop()
            found = [(other, split) for other in around.get(at, ())]
            for node, k, name in behind.get(at, ()):
                found += self._follow_split(at, split, node, k, name)
            for other, new in found:
                known = every.setdefault(other, {})
                if new and new not in known and len(known) < tuning.MAX_SPLITS:
                    known[new] = None
                    left.append((other, new))

    def _follow_split(self, at: str, split: Split, node: OpNode, k: int, name: str) -> Iterator[tuple[str, Split]]:
        """What the parts of one end of a view, over split axes, say of the other end."""
        graph, source = self.graph, self.graph.source(name)
        signature = graph.signature(node.name)
        followed = follow_cells(signature, signature.inputs[k])
        assert followed is not None, "what works cell by cell reads cell by cell"
        for t in source.stored:
            maker = self.makers.get(t)
            if maker is None or not self._is_cellwise(maker):
                continue
            made = graph.signature(maker.name).axes
            if at == node.name:
                for digits in self._follow_view("is read", name, source, t, (signature, k), split):
                    yield maker.name, _name_axes(made, dict(enumerate(digits)))
            if at == maker.name:
                for digits in self._follow_view("reads", name, source, t, None, _number_axes(made, split)):
                    yield node.name, _name_axes(signature.axes, dict(zip(followed, digits, strict=True)))

    def _axes(self, node: OpNode) -> list[tuple[str, int]]:
        return [(axis.name, axis.size) for axis in self.graph.signature(node.name).axes]


def _name_axes(axes: Sequence[Axis], digits: Mapping[int | None, Digits]) -> Split:
    """The index axes for which others stand, by name; those that stay as they are left out."""
    kept = ((k, each) for k, each in digits.items() if k is not None and each != ((axes[k].size,), 0))
    return tuple(SplitAxis(axes[k].name, *each) for k, each in kept)


def _number_axes(axes: Sequence[Axis], split: Split) -> Split:
    """A split of an operator's index axes as one of the coordinates of what it writes cell by cell."""
    names = [axis.name for axis in axes]
    return tuple(replace(one, axis=str(names.index(one.axis))) for one in split)


def _unite_each(each: Sequence[Sequence[DisjointRegions]], shape: Sequence[int]) -> Iterator[DisjointRegions]:
    """The unions of the first regions of some lists, of the second ones, and so on; none where one is missing."""
    if len({len(regions) for regions in each}) == 1:
        yield from (unite(regions, tuple(shape)) for regions in zip(*each, strict=True))


def _join_splits(axes: Sequence[Axis], splits: Sequence[Split]) -> Split:
    """The split that cuts each axis wherever one of some splits does, as far as these divide each other.

    An operator that reads two views, each of which asks for periods of its own, may lie with both in both's digits.
    """
    found = []
    for axis in axes:
        each = [one for split in splits for one in split if one.axis == axis.name]
        if each:
            first = each[0].first
            ends = {prod(one.sizes[k:]) for one in each if one.first == first for k in range(1, len(one.sizes))}
            chain = [axis.size, *_list_divisors(axis.size, ends), 1]
            found.append(
                SplitAxis(axis.name, tuple(a // b for a, b in pairwise(chain) if a > b) or (axis.size,), first)
            )
    return tuple(found)


def _list_digits(cells: DisjointRegions, shape: Sequence[int]) -> Iterator[tuple[Digits, ...]]:
    """The digits of each axis in which cells may be a box, as their stripes say: numbered from where a block begins,
    where one does not begin at a multiple of its length, and from 0.
    """
    #   cells 2 3 of every 8, in 32       stripes (2, 6, phase=2): the period 8, in blocks of 2
    #   32 = 4 · 4 · 2                    a digit for the period, one for the block in it, one inside of the block
    #   cells 3 4 of every 8              the same, numbered from 3 on; or 32 = 4 · 8, a block of one digit
    bounds = cells.bounds()
    if (
        bounds is not None
        and len(cells.regions) > 1
        and cells.size == prod(b - a for a, b in zip(*bounds, strict=True))
    ):
        cells = cells_of(Box.from_bounds(*bounds), tuple(shape))  # one box, however its pieces came
    if not 0 < len(cells.regions) <= tuning.MAX_SPLIT_REGIONS:
        return
    sides = [[region.setts[axis].stripes for region in cells.regions] for axis in range(len(shape))]
    first = [_find_first(side, n) for side, n in zip(sides, shape, strict=True)]
    for begins in (first, [0] * len(shape)) if any(first) else (first,):
        yield tuple((_factor(n, side, at), at) for n, side, at in zip(shape, sides, begins, strict=True))


def _find_first(side: Sequence[Sequence[Stripe]], n: int) -> int:
    """Where the first block begins beyond a multiple of its length, if such blocks fill the axis."""
    for outer in (stripes[0] for stripes in side if stripes):
        if n % outer.period == 0 and outer.period % outer.on == 0:
            return outer.phase % outer.on
    return 0


def _factor(n: int, side: Sequence[Sequence[Stripe]], first: int) -> tuple[int, ...]:
    stripes = [stripe for stripes in side for stripe in stripes]
    ends = {end for s in stripes if s.period < n for end in (s.period, gcd(s.on, (s.phase - first) % s.period))}
    chain = [n, *_list_divisors(n, ends), 1]
    return tuple(a // b for a, b in pairwise(chain) if a > b) or (n,)


def _list_divisors(n: int, ends: Iterable[int]) -> Iterator[int]:
    """Those of some numbers that divide each other and n, the largest first."""
    for end in sorted(ends, reverse=True):
        if end and n % end == 0:
            n = end
            yield end
