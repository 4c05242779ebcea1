"""What operators read at any size, as relations of isl whose parameter is the size.

What an operator reads of a stored tensor is a projection, then the pieces of the views in between. At all sizes they
are made of the same steps, whose numbers are affine in the size; renumberings (reshapes) are split into groups of axes
of equal products::

    (4·N, 16)  ─►  (N, 4, 16)        groups  4·N │ N·4  and  16 │ 16        x0 ─► x0 // 4, x0 mod 4
    (2, N, 64) ─►  (2·N, 64)         groups  2·N │ 2·N                      0·N + x1, or 1·N + x1: for each x0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache, reduce
from itertools import product
from math import prod
from operator import or_
from typing import Any

from tapestry_plan.ir import Graph, Operand, Source
from tapestry_plan.symbolic import tuning
from tapestry_plan.symbolic.affine import PARAMETER, Affine, Frame, Samples
from tapestry_sets.interop import NonAffineSize
from tapestry_sets.limits import quote
from tapestry_sets.regions import AffineMap, Box, IndexProjection, Region
from tapestry_sets.solvers import isl
from tapestry_sets.views import Lookup, Piece, Relinearize

AffineBox = tuple[tuple[Affine, Affine], ...]
"""A box: first cell and end along each axis, in m."""


@lru_cache(maxsize=tuning.KEPT_BOXES)
def write_box(bounds: AffineBox) -> Any:
    """A box as a set of isl, for m >= 0."""
    names = [f"x{k}" for k in range(len(bounds))]
    conditions = [f"{low} <= {x} < {high}" for x, (low, high) in zip(names, bounds, strict=True)]
    return isl.read_set(f"[{PARAMETER}] -> {{ [{', '.join(names)}] : {' and '.join([*conditions, _given()])} }}")


def _given() -> str:
    return f"{PARAMETER} >= 0"


class Relations:
    """What the operators of a graph read, at the sizes of a frame.

    Parameters
    ----------
    graphs : sequence of Graph
        One graph, at several sizes.
    samples : Samples
        These sizes.
    frame : Frame
    """

    def __init__(self, graphs: Sequence[Graph], samples: Samples, frame: Frame) -> None:
        self._graphs, self._samples, self._frame = graphs, samples, frame
        self._known: dict[tuple[str, int], dict[str, Any]] = {}

    def number(self, values: Sequence[int], what: str) -> Affine:
        """A number in m, from what it is at the sizes."""
        return self._frame.of(self._samples.fit(values, what))

    def shape(self, name: str) -> tuple[Affine, ...]:
        """The shape of a stored tensor in m."""
        shapes = [graph.stored[name].shape for graph in self._graphs]
        return self._numbers(shapes, f"the shape of {quote(name)}")

    def index_shape(self, node: str) -> tuple[Affine, ...]:
        """The extents of an operator's index space in m."""
        shapes = [graph.signature(node).index_shape for graph in self._graphs]
        return self._numbers(shapes, f"the index space of {quote(node)}")

    def _numbers(self, values: Sequence[Sequence[int]], what: str) -> tuple[Affine, ...]:
        return tuple(map(self._frame.of, self._samples.fit_each(values, what)))

    def reads(self, node: str, operand: int) -> dict[str, Any]:
        """For each stored tensor behind an operand the relation from index points to the cells that are read.

        Raises
        ------
        NonAffineSize
            Where it is not affine in the size.
        """
        key = node, operand
        if key not in self._known:
            self._known[key] = self._find_reads(node, operand)
        return self._known[key]

    def _find_reads(self, node: str, operand: int) -> dict[str, Any]:
        declared = [graph.signature(node).inputs[operand] for graph in self._graphs]
        sources = [graph.source(graph.nodes[node].inputs[operand]) for graph in self._graphs]
        self._samples.same([(one.stored, one.direct) for one in sources], f"what {quote(node)} reads")
        what = f"operand {operand} of {quote(node)}"
        shape = self._numbers([one.shape for one in sources], what)
        seen = self._project(declared, what).intersect_range(write_box(tuple((Affine(0, 0), n) for n in shape)))
        stored = sources[0].stored
        if sources[0].direct:
            return {stored[0]: seen}
        found: dict[str, Any] = {}
        for k, through in self._list_pieces(sources, what):
            read = seen.apply_range(through)
            found[stored[k]] = found[stored[k]] | read if stored[k] in found else read
        return found

    def hull(self, node: str, output: int, box: AffineBox) -> AffineBox:
        """The box around what an index box writes of an output."""
        what = f"output {output} of {quote(node)}"
        projections = [graph.signature(node).outputs[output].projection for graph in self._graphs]
        self._samples.same([(one.map.matrix, one.splits) for one in projections], what)
        offsets = self._numbers([one.map.offset for one in projections], what)
        widths = self._numbers([one.shape for one in projections], what)
        first = projections[0]
        if first.splits:
            if any(n.slope for pair in box for n in pair) or any(n.slope for n in (*offsets, *widths)):
                raise NonAffineSize(f"{what} splits an index axis")
            found = first.bounding_box(
                Box.from_bounds([low.constant for low, _ in box], [high.constant for _, high in box])
            )
            return tuple((Affine(0, a), Affine(0, b)) for a, b in zip(found.start, found.stop, strict=True))
        ends = []
        for row, offset, width in zip(first.map.matrix, offsets, widths, strict=True):
            low = high = offset
            for factor, (begin, end) in zip(row, box, strict=True):
                last = end.plus(Affine(0, 1), -1)
                low = low.plus(begin if factor > 0 else last, factor) if factor else low
                high = high.plus(last if factor > 0 else begin, factor) if factor else high
            ends.append((low, high.plus(width)))
        return tuple(ends)

    # -- projections -------------------------------------------------------------------------------------

    def _project(self, operands: Sequence[Operand], what: str) -> Any:
        self._samples.same([len(one.projections) for one in operands], what)
        each = zip(*(one.projections for one in operands), strict=True)
        return reduce(or_, (self._write_projection(some, what) for some in each))

    def _write_projection(self, some: Sequence[IndexProjection], what: str) -> Any:
        self._samples.same([(one.map.matrix, one.splits, one.index_rank) for one in some], what)
        first = some[0]
        names = [f"x{k}" for k in range(first.index_rank)]
        for axis, q in first.splits:
            names += [f"floor(x{axis}/{q})", f"(x{axis} mod {q})"]
        offsets = self._numbers([one.map.offset for one in some], what)
        widths = self._numbers([one.shape for one in some], what)
        rows = first.map.matrix
        values = [_write_sum(row, names, offset) for row, offset in zip(rows, offsets, strict=True)]
        return _write_map(first.index_rank, [(v, str(w)) for v, w in zip(values, widths, strict=True)])

    # -- pieces of views ---------------------------------------------------------------------------------

    def _list_pieces(self, sources: Sequence[Source], what: str) -> Iterator[tuple[int, Any]]:
        self._samples.same([len(one.pieces) for one in sources], f"the views behind {what}")
        for pieces in zip(*(one.pieces for one in sources), strict=True):
            heads = [(p.source, len(p.map.steps), p.map.in_rank, [g.prefix for g in p.guards]) for p in pieces]
            self._samples.same(heads, f"the views behind {what}")
            if pieces[0].source >= 0:
                yield pieces[0].source, self._write_piece(pieces, what)

    def _write_piece(self, pieces: Sequence[Piece], what: str) -> Any:
        first = pieces[0]
        relation = _write_map(first.map.in_rank, [(f"x{k}", "1") for k in range(first.map.in_rank)])
        for prefix in range(len(first.map.steps) + 1):
            for k, guard in enumerate(first.guards):
                if guard.prefix == prefix:
                    region = self._write_region([piece.guards[k].region for piece in pieces], what)
                    relation = relation.intersect_range(region)
            if prefix < len(first.map.steps):
                steps = [piece.map.steps[prefix] for piece in pieces]
                relation = relation.apply_range(self._write_step(steps, what))
        return relation

    def _write_region(self, regions: Sequence[Region], what: str) -> Any:
        """A product of intervals whose ends are affine, and of periodic sets that are the same at all sizes."""
        starts = self._numbers([one.start for one in regions], what)
        shapes = self._numbers([one.shape for one in regions], what)
        bounds, found = [], None
        for axis, (start, extent) in enumerate(zip(starts, shapes, strict=True)):
            spans = [one.spans[axis] for one in regions]
            if None not in spans:
                bounds.append(self._numbers([span for span in spans if span is not None], what))
                continue
            self._samples.same([one.nests[axis] for one in regions], what)
            bounds.append((start, start.plus(extent)))
            points = isl.nest_set(regions[0].nests[axis])
            before = isl.read_set(f"{{ [{', '.join(f'y{k}' for k in range(axis))}] }}")
            after = isl.read_set(f"{{ [{', '.join(f'y{k}' for k in range(axis + 1, len(starts)))}] }}")
            one = before.flat_product(points).flat_product(after)
            found = one if found is None else found & one
        box = write_box(tuple((low, high) for low, high in bounds))
        return box if found is None else box & found

    def _write_step(self, steps: Sequence[Any], what: str) -> Any:
        first = steps[0]
        self._samples.same([type(step) for step in steps], f"the views behind {what}")
        if isinstance(first, AffineMap):
            self._samples.same([(one.matrix, one.in_rank) for one in steps], f"the views behind {what}")
            offsets = self._numbers([one.offset for one in steps], what)
            names = [f"x{k}" for k in range(first.in_rank)]
            values = [_write_sum(row, names, offset) for row, offset in zip(first.matrix, offsets, strict=True)]
            return _write_map(first.in_rank, [(value, "1") for value in values])
        if isinstance(first, Lookup):
            self._samples.same(steps, f"a table behind {what}")
            return isl.to_isl(first)
        assert isinstance(first, Relinearize), "there are three kinds of steps"
        shapes = [self._numbers([getattr(s, way) for s in steps], what) for way in ("from_shape", "to_shape")]
        return _write_renumbering(shapes[0], shapes[1], what)


def _write_sum(row: Sequence[int], names: Sequence[str], offset: Affine) -> str:
    return " + ".join([*(f"{c}*{name}" for c, name in zip(row, names, strict=True) if c), str(offset)])


def _write_map(in_rank: int, outs: Sequence[tuple[str, str]], also: Sequence[str] = ()) -> Any:
    """The relation from x to what begins at values, and is so wide."""
    conditions = [
        f"y{k} = {value}" if width == "1" else f"{value} <= y{k} < {value} + {width}"
        for k, (value, width) in enumerate(outs)
    ]
    names, made = ", ".join(f"x{k}" for k in range(in_rank)), ", ".join(f"y{k}" for k in range(len(outs)))
    said = " and ".join([*conditions, *also, _given()])
    return isl.read_map(f"[{PARAMETER}] -> {{ [{names}] -> [{made}] : {said} }}")


# ------------------------------------------------------------------------------------------------- renumberings


def _write_renumbering(old: Sequence[Affine], new: Sequence[Affine], what: str) -> Any:
    """The same cell's coordinates in another shape, group by group of axes of equal products."""
    conditions: list[list[str]] = []
    at = to = 0
    while at < len(old) or to < len(new):
        here, there = _find_group(old, new, at, to, what)
        mine = [(f"x{k}", old[k]) for k in range(at, here)]
        theirs = [(f"y{k}", new[k]) for k in range(to, there)]
        conditions.append(_equate(mine, theirs, what))
        at, to = here, there
    names, made = (", ".join(f"{x}{k}" for k in range(len(shape))) for x, shape in (("x", old), ("y", new)))
    bounds = [f"0 <= y{k} < {n}" for k, n in enumerate(new) if k]  # the outermost extent bounds nothing
    parts = (
        isl.read_map(f"[{PARAMETER}] -> {{ [{names}] -> [{made}] : {' and '.join([*some, *bounds, _given()])} }}")
        for some in product(*conditions)
    )
    return reduce(or_, parts)


def _find_group(old: Sequence[Affine], new: Sequence[Affine], at: int, to: int, what: str) -> tuple[int, int]:
    """Where the next axes end whose products are equal; axes of one point join the group before them."""
    here, there = min(at + 1, len(old)), min(to + 1, len(new))
    while not _same_product(old[at:here], new[to:there]):
        ahead = [(old, at, here), (new, to, there)]
        sizes = [prod(n.at(1) for n in shape[a:b]) for shape, a, b in ahead]
        if sizes[0] <= sizes[1] and here < len(old):
            here += 1
        elif there < len(new):
            there += 1
        elif here < len(old):
            here += 1
        else:
            raise NonAffineSize(f"a reshape behind {what} has no groups of axes of equal products")
    while here < len(old) and old[here] == (0, 1):
        here += 1
    while there < len(new) and new[there] == (0, 1):
        there += 1
    return here, there


def _same_product(some: Sequence[Affine], others: Sequence[Affine]) -> bool:
    """Whether two products of affine numbers are equal for all m: as polynomials of some degree, at more points."""
    many = range(len(some) + len(others) + 1)
    return all(prod(n.at(m) for n in some) == prod(n.at(m) for n in others) for m in many)


def _equate(mine: Sequence[tuple[str, Affine]], theirs: Sequence[tuple[str, Affine]], what: str) -> list[str]:
    """Conditions, of which one holds: two groups of digits have the same number."""
    if [n for _, n in mine] == [n for _, n in theirs]:
        return [" and ".join(f"{x} = {y}" for (x, _), (y, _) in zip(mine, theirs, strict=True)) or "true"]
    sums = [list(zip((name for name, _ in group), _list_factors(group, what), strict=True)) for group in (mine, theirs)]
    extents = dict([*mine, *theirs])
    written = {name: extents[name] for terms in sums for name, factor in terms if factor.slope}
    if any(extent.slope for extent in written.values()):
        raise NonAffineSize(f"a reshape behind {what} counts in steps of a product of sizes")
    digits = {name: extent.constant for name, extent in written.items()}
    if prod(digits.values()) > tuning.MAX_PASSES:
        raise NonAffineSize(f"a reshape behind {what} counts {prod(digits.values())} times in steps of the size")
    return [_write_equation(sums, dict(zip(digits, values, strict=True))) for values in _list_values(digits)]


def _list_factors(group: Sequence[tuple[str, Affine]], what: str) -> list[Affine]:
    """How much one more of each digit of a group counts: the product of the extents behind it."""
    found = [Affine(0, 1)]
    for _, extent in reversed(group[1:]):
        if found[-1].slope and extent.slope:
            raise NonAffineSize(f"a reshape behind {what} counts in steps of a product of sizes")
        found.append(extent.times(found[-1].constant) if extent.slope else found[-1].times(extent.constant))
    return found[::-1][: len(group)]


def _list_values(digits: Mapping[str, int]) -> Iterator[tuple[int, ...]]:
    return product(*map(range, digits.values()))


def _write_equation(sums: Sequence[Sequence[tuple[str, Affine]]], values: Mapping[str, int]) -> str:
    """The equation of two sums where some digits, those that count in steps of the size, have values."""
    sides = []
    for terms in sums:
        parts = [
            str(factor.times(values[name])) if name in values else f"{factor.constant}*{name}" for name, factor in terms
        ]
        sides.append(" + ".join(parts) or "0")
    given = [f"{name} = {value}" for name, value in values.items()]
    return " and ".join([f"{sides[0]} = {sides[1]}", *given])
