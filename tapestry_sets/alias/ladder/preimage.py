"""Preimages: sets pulled back through the last steps of a map.

A view whose cells make many setts is often a plain one before its last renumbering. What another view reads is then
pulled back through that renumbering, as progressions, and the question is asked where the view is plain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from math import gcd, prod
from typing import NamedTuple

from tapestry_sets.alias import tuning
from tapestry_sets.digits import Progression, clip_progression, progression, split_progression
from tapestry_sets.integers import Nest, explicit_setts
from tapestry_sets.limits import TooManyPieces
from tapestry_sets.regions import AffineMap, Box, Region
from tapestry_sets.views import Guard, IndexMap, Piece, Relinearize, Step, bounding_boxes, images


class Turn(NamedTuple):
    """The last steps of a chain: a renumbering, and coordinates each of which is one of those before, or a constant.

    The transpose of a reshape is one: u = 4i + j is a number before the turn, (j, i) the cell after it, z its number
    at home. A set of z is pulled back to its u, where the rest of the view may be plain::

        u:  0 1 2 3         z:  0 3 6 9
            4 5 6 7   ──►       1 4 7 10        {z : z % 3 == 1} is the row {4, 5, 6, 7} of u
            8 9 10 11           2 5 8 11

    Attributes
    ----------
    renumbering : Relinearize
    selection : AffineMap
    home : tuple of int
        The shape whose row-major numbers the turn ends in.
    is_loose : bool
        Whether what is left of the view may read numbers that the turn takes out of home: those of its padding.
    """

    renumbering: Relinearize
    selection: AffineMap
    home: tuple[int, ...]
    is_loose: bool = False

    @property
    def extents(self) -> tuple[int, ...]:
        """Of the coordinates between the two steps."""
        return self.renumbering.to_shape

    @property
    def extent(self) -> int:
        """Above all numbers before the turn."""
        return prod(self.extents)

    @property
    def is_injective(self) -> bool:
        """Whether different numbers stay different."""
        read = {j for row in self.selection.terms() for j, _ in row}
        return all(j in read or n == 1 for j, n in enumerate(self.extents))

    def is_like(self, other: Turn) -> bool:
        """Return whether two turns take each number to the same cell, and different ones to different cells."""
        return self == other and not self.is_loose and self.is_injective

    def apply(self, number: int) -> int:
        """Return the row-major number, in `home`, to which the turn takes a number."""
        cell = self.selection.apply(Relinearize((self.extent,), self.extents).apply((number,)))
        return Relinearize(self.home, (prod(self.home),)).apply(cell)[0]

    def pull(self, sets: Iterable[Progression]) -> list[Nest]:
        """Return the numbers before the turn that go into disjoint progressions, as a disjoint union of nests.

        Raises
        ------
        TooManyPieces
            If they are not few.

        Examples
        --------
        >>> turn = Turn(Relinearize((12,), (3, 4)), AffineMap(((0, 1), (2, 0)), (0, 0)), (4, 6))
        >>> turn.pull([(0, ((3, 4),))])  # 0, 4, 8 in (4, 6) are (0, 0), (0, 4), (1, 2)
        [((1, 12, 5),), ((9, 12, 0), (1, 8, 0))]
        """
        # Home's coordinates are a product of axes, and so are those before the selection: each progression is cut
        # into grids, which are few unless it runs across rows at an odd angle, and each grid goes back axis by axis.
        found: list[Nest] = []
        spent = 0
        for p in sets:
            grids = _in_coordinates(p, self.home, tuning.MAX_PRODUCTS - spent)
            spent += len(grids)
            for grid in grids:
                for box in self._before(grid):
                    found += [
                        s.nest for s in explicit_setts(images.flatten_grid(box, self.extents), self.extent).members
                    ]
                    _check(len(found))
        return found

    def _before(self, grid: Sequence[Progression]) -> Iterable[tuple[Progression, ...]]:
        """The coordinates before the selection that go into a grid, as disjoint grids."""
        axes: list[list[Progression]] = [[(0, ((n, 1),) if n > 1 else ())] for n in self.extents]
        for p, terms, b in zip(grid, self.selection.terms(), self.selection.offset, strict=True):
            if terms:
                j, c = terms[0]
                inner = [_divided(part, b, c) for part in congruent(p, b, abs(c))]
                axes[j] = [cut for part in inner for cut in clip_progression(part, 0, self.extents[j])]
            elif not any(congruent(part, b, 1) for part in clip_progression(p, b, b + 1)):
                return ()
        _check(prod(map(len, axes)))
        return product(*axes)


def _in_coordinates(p: Progression, shape: Sequence[int], most: int) -> list[tuple[Progression, ...]]:
    """The coordinates of row-major numbers, as at most so many disjoint grids; the outermost extent is free."""
    grids: list[tuple[Progression, ...]] = [(p,)]
    for n in shape[:0:-1]:
        after: list[tuple[Progression, ...]] = []
        for rest, *done in grids:
            after += [(high, low, *done) for high, low in split_progression(rest, n)]
            _check(len(after), most)
        grids = after
    return grids if shape else [()]


def _check(n: int, most: int = tuning.MAX_PRODUCTS) -> None:
    if n > most:
        raise TooManyPieces(f"a set pulled back through a view has more than {tuning.MAX_PRODUCTS} products")


def turned(piece: Piece, shape: Sequence[int], home: tuple[int, ...]) -> tuple[Piece, Turn] | None:
    """Return a piece without its last turn, and the turn; None if its last steps are not a turn.

    What is left reads numbers in [0, extent) of the turn: it is a piece of a view of so many cells. Guards in the turn
    that hold wherever it ends in `home`, as those of a pad do, are left out; then the turn is loose.

    Examples
    --------
    >>> steps = (Relinearize((12,), (3, 4)), AffineMap(((0, 1), (1, 0)), (0, 0)))
    >>> head, turn = turned(Piece(0, (), IndexMap(steps)), (12,), (4, 3))
    >>> head.map.steps, turn.apply(7), turn.is_injective
    ((), 10, True)
    """
    steps = piece.map.steps
    at = len(steps) - 2
    if steps and isinstance(steps[-1], Relinearize) and steps[-1].to_shape[1:] == home[1:]:
        home = steps[-1].from_shape  # row-major numbers are kept
        at -= 1
    if at < 0:
        return None
    renumbering, selection = steps[at], steps[at + 1]
    if not isinstance(renumbering, Relinearize) or not isinstance(selection, AffineMap) or not _selects(selection):
        return None
    hulls = bounding_boxes(piece.map, Box.of(tuple(shape)), at + 1)
    for box, bounds in ((hulls[at], (None, *renumbering.from_shape[1:])), (hulls[at + 1], renumbering.to_shape)):
        ends = zip(box.start, box.shape, bounds, strict=True)
        if any(a < 0 or not n or (m is not None and a + n > m) for a, n, m in ends):
            return None  # as where guards cut it
    guards = tuple([guard for guard in piece.guards if guard.prefix <= at])
    within = [guard for guard in piece.guards if guard.prefix > at]
    if any(g.prefix > at + 1 or not _holds_at_home(g, renumbering.to_shape, selection, home) for g in within):
        return None
    before, rows = steps[:at], renumbering.from_shape
    if all(guard.prefix <= at - 2 for guard in guards):
        before, rows = _join_axes(before, rows)
    head = Piece(piece.source, guards, IndexMap(before, len(shape)))
    return head, Turn(Relinearize(rows, renumbering.to_shape), selection, home, bool(within))


def _join_axes(steps: tuple[Step, ...], home: tuple[int, ...]) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """Steps to the same row-major numbers of fewer axes, where a renumbering into rows is moved by whole rows.

    So the rows are not cut: in rows of 3, number u moved by a row is u + 3 of one axis.
    """
    renumbering, move = steps[-2:] if len(steps) > 1 else (None, None)
    if not isinstance(renumbering, Relinearize) or not isinstance(move, AffineMap):
        return steps, home
    rank, to = len(home), renumbering.to_shape
    if move.matrix != tuple([tuple([int(i == j) for j in range(rank)]) for i in range(rank)]):
        return steps, home
    p = rank - 1
    while p > 0 and not move.offset[p] and to[p] == home[p]:
        p -= 1
    if p == rank - 1:
        return steps, home
    width = prod(home[p + 1 :])
    joined = Relinearize(renumbering.from_shape, (*to[:p], to[p] * width))
    moved = AffineMap.select(p + 1, [(a, 1) for a in range(p + 1)], (*move.offset[:p], move.offset[p] * width))
    return (*steps[:-2], joined, moved), (*home[:p], home[p] * width)


def _holds_at_home(guard: Guard, extents: Sequence[int], selection: AffineMap, home: tuple[int, ...]) -> bool:
    """Whether a guard on coordinates holds at all that a selection takes to cells of home."""
    low, high = [0] * len(extents), list(extents)
    for n, terms, b in zip(home, selection.terms(), selection.offset, strict=True):
        if terms:
            (j, c), *_ = terms
            ends = sorted([-b * (1 if c > 0 else -1), (n - 1 - b) * (1 if c > 0 else -1)])  # of |c| times it
            low[j], high[j] = max(0, -(-ends[0] // abs(c))), min(extents[j], ends[1] // abs(c) + 1)
            if low[j] >= high[j]:
                return False
    return Region.from_bounds(tuple(extents), low, high) <= guard.region


def _selects(m: AffineMap) -> bool:
    """Whether each coordinate is one of those before, scaled and moved, or a constant; none is read twice."""
    rows = m.terms()
    read = [j for row in rows for j, _ in row]
    return all(len(row) < 2 for row in rows) and len(read) == len(set(read))


def _divided(p: Progression, b: int, c: int) -> Progression:
    """Return {(v - b) / c : v in p}; c divides each v - b."""
    first, levels = p
    return progression((first - b) // c, [(count, step // c) for count, step in levels])


def congruent(p: Progression, b: int, c: int) -> list[Progression]:
    """Return the elements of a progression that are b modulo c, as progressions whose steps c divides.

    They are disjoint where all sums of the progression's steps differ.

    Raises
    ------
    TooManyPieces
        If they are more than `MAX_CLASSES`.

    Examples
    --------
    >>> congruent((0, ((10, 2),)), 1, 3)
    [(4, ((3, 6),))]
    """
    first, levels = p
    fixed = [(count, step) for count, step in levels if step % c == 0]
    todo = [(first, fixed)]
    loose = [(count, step) for count, step in levels if step % c]
    for k, (count, step) in enumerate(loose):
        is_last = k == len(loose) - 1
        todo = [cut for at, done in todo for cut in _classes(at, done, count, step, b if is_last else None, c)]
        if len(todo) > tuning.MAX_CLASSES:
            raise TooManyPieces(f"{p} modulo {c} is more than {tuning.MAX_CLASSES} progressions")
    return [progression(at, done) for at, done in todo if (at - b) % c == 0]


def _classes(
    first: int, done: list[tuple[int, int]], count: int, step: int, b: int | None, c: int
) -> list[tuple[int, list[tuple[int, int]]]]:
    """Cut a level by the remainders of its sums modulo c; only that which makes b, if there is a b."""
    # step 4 modulo c = 6: a cycle of 3 remainders
    #
    #     k              0  1  2  3  4  5  6
    #     4·k modulo 6   0  4  2  0  4  2  0      class 0 is k = 0, 3, 6, class 1 is 1, 4, class 2 is 2, 5
    #
    # A class is one level, every third k with the step 4·3, which c divides: so all of it is in or out.
    g = gcd(step, c)
    cycle = c // g
    if b is None:
        if min(cycle, count) > tuning.MAX_CLASSES:
            raise TooManyPieces(f"steps of {step} modulo {c} are more than {tuning.MAX_CLASSES} remainders")
        starts: Iterable[int] = range(min(cycle, count))
    elif (b - first) % g:
        return []
    else:
        starts = [(b - first) // g * pow(step // g, -1, cycle) % cycle]
    return [(first + d * step, [*done, (-(-(count - d) // cycle), step * cycle)]) for d in starts if d < count]
