"""From isl: stripes where they exist, and a clear word where they do not.

What is found is compared with what was given, by isl, before it is returned; of a map in several pieces the domains,
and what it reads at their first and last points: its floors become renumberings term by term, without a guess.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import lcm
from typing import Any

from tapestry_sets.integers import DisjointSetts, Item, Nest, from_items, merge, merge_nests, unions
from tapestry_sets.integers import nest as nests
from tapestry_sets.interop import tuning, views_from_isl
from tapestry_sets.interop.symbolic import SymbolicView
from tapestry_sets.limits import OPEN, TooHard, check_pieces, cut_text, quote, unite_by_halves
from tapestry_sets.regions import AffineMap, Box, DisjointRegions, IndexProjection, Region, as_box, unite
from tapestry_sets.solvers import isl
from tapestry_sets.views import Guard, IndexMap, Piece, Relinearize, Step, View, reading

Found = DisjointSetts | DisjointRegions | AffineMap | IndexProjection | tuple[Piece, ...] | View | SymbolicView


def from_isl(x: Any, within: Box | Sequence[int] | None = None) -> Found:
    """Return a set or map of isl as stripes, regions, maps or views, exactly.

    Parameters
    ----------
    x : str, islpy.Set, islpy.Map or an islpy affine expression, or a mapping of memory to maps
        One space, no parameters; text is in isl's notation. What ``to_isl(view)`` returns is a mapping of allocations
        to maps; that of a symbolic view has its memory as key, and a map whose parameters are the symbols.
    within : Box or shape, optional
        A set is clipped to this box, and the regions returned are in it; a map's domain is restricted to it. Of a
        mapping of allocations, the view's shape.

    Returns
    -------
    DisjointSetts
        For a set of one dimension that has a period and no bounds, unless `within` is given. The empty set too.
    DisjointRegions
        For any other set, which must be bounded: in the box `within`, by default the smallest one.
    AffineMap
        For an affine map of every point.
    IndexProjection
        For a map of every point to a block of cells, and where an affine map uses i // q or i % q.
    tuple of Piece
        For any other map to one cell each, which must have a bounded domain: as the pieces of a view.
    View
        For a mapping of allocations: of the shape `within`, by default as far as indices go that read some cell.
        Where no map says anything it has the constant 0, as isl's maps have no constants.
    SymbolicView
        For a mapping of the memory of a symbolic view.

    Raises
    ------
    TypeError
        If `x` is not one of these.
    ValueError
        If the text is wrong (the message says where), or it describes none of the above (the message names
        the part that is not).
    TooManyPieces
        If more pieces are needed than allowed.
    TooHard
        If isl needs too many operations.

    Examples
    --------
    >>> from tapestry_sets import from_isl
    >>> from_isl("{ [z] : exists k : 0 <= z - 7k < 5 and (z - 7k) mod 3 < 2 }")
    DisjointSetts([Sett(Stripe(5, 2), Stripe(2, 1))])
    >>> from_isl("{ [i, j] : 0 <= i < 4 and 0 <= j < 6 and j mod 3 = 1 }").size
    8
    >>> from_isl("{ [i, j] -> [2i + 1, j - i] }")
    AffineMap(matrix=((2, 0), (-1, 1)), offset=(1, 0), in_rank=2)
    >>> from_isl("{ [z] : z >= 3 }")
    Traceback (most recent call last):
        ...
    ValueError: from_isl: { [z] : z >= 3 } is neither bounded nor periodic; give within= the box that is meant
    >>> from tapestry_sets import allocate, concatenate, to_isl
    >>> A, B = allocate((4, 6), name="A"), allocate((2, 6), name="B")
    >>> view = concatenate([A[::-2], B])
    >>> from_isl(to_isl(view)) == view
    True

    References
    ----------
    isl, the integer set library.
    """
    if isinstance(x, Mapping):
        return _view_of(x, None if within is None else as_box(within, Box((), ())))
    shape, is_map = isl.as_set_or_map(x)
    if within is not None:
        box = as_box(within, Box((), ()))
        rank = _rank(shape.domain() if is_map else shape)
        if rank != box.rank:
            raise ValueError(
                f"from_isl: within {quote(box)} has rank {box.rank} where {quote(shape)} needs rank {rank}"
            )
        inside = isl.box_set(box.start, box.stop)
        shape = shape.intersect_domain(inside) if is_map else shape.intersect(inside)
    clip = None if within is None else box
    found = isl.within(lambda: _map_of(shape) if is_map else _set_of(shape, clip), tuning.MAX_OPERATIONS)
    if found is OPEN:
        raise TooHard(f"from_isl: isl needs more than {tuning.MAX_OPERATIONS} operations for {_told(shape)}")
    return found


def _view_of(x: Mapping[Any, Any], box: Box | None) -> View | SymbolicView:
    maps = views_from_isl.read_maps(x)
    (home, m), *more = maps.items()
    refusal = TooHard(f"from_isl: isl needs more than {tuning.MAX_OPERATIONS} operations for the maps of a view")
    if isinstance(home, views_from_isl.SymbolicMemory):
        if more or box is not None:
            raise ValueError("from_isl: a symbolic view is of one memory, and its shape follows from its map")
        return isl.bounded(lambda: views_from_isl.symbolic_view_of(home, m), refusal, tuning.MAX_OPERATIONS)
    if box is not None:
        if any(box.start) or box.rank != isl.ranks_of(m)[0]:
            raise ValueError(f"from_isl: within {quote(box)} is not the shape of a view of rank {isl.ranks_of(m)[0]}")
        inside = isl.box_set(box.start, box.stop)
        maps = {home: m.intersect_domain(inside) for home, m in maps.items()}
    shape = None if box is None else box.shape
    parts = isl.bounded(
        lambda: views_from_isl.parts_of_view(maps, shape, _pieces, _guards), refusal, tuning.MAX_OPERATIONS
    )
    return views_from_isl.view_of_parts(*parts, tuple(maps))


def _guards(points: Any, box: Box) -> Iterator[Guard]:
    """The products that a set is, as guards."""
    return (Guard(0, Region._of(box.shape, raw, box.start)) for raw in _products(points, box))


def _rank(points: Any) -> int:
    return int(points.n_dim())


def _told(given: Any) -> str:
    """A set or map of isl in an error, which may be of thousands of parts."""
    return cut_text(str(given))


def _checked(found: Any, given: Any) -> Any:
    """What was found, once isl has compared it with what was given."""
    if not isl.to_isl(found).is_equal(given):
        raise AssertionError(f"from_isl: {quote(found)} is not {_told(given)}; this is a bug of tapestry_sets")
    return found


# ----------------------------------------------------------------------------------------------------- sets


def _set_of(points: Any, box: Box | None) -> DisjointSetts | DisjointRegions:
    if box is None and _rank(points) == 1 and not (isl.is_bounded(points) and not points.is_empty()):
        found = DisjointSetts() if points.is_empty() else _periodic(points)
        if found is None:
            raise ValueError(
                f"from_isl: {_told(points)} is neither bounded nor periodic; give within= the box that is meant"
            )
        return found
    if not isl.is_bounded(points):
        raise ValueError(f"from_isl: {_told(points)} is not bounded; give within= the box that is meant")
    if box is None:
        bounds = isl.bounds_of(points)
        zero = (0,) * _rank(points)
        box = Box(zero, zero) if bounds is None else Box.from_bounds(*bounds)
    each: list[Sequence[Region]] = []
    many = 0
    for part in isl.parts_of(points):  # compared part by part, as those of `_periodic` are
        raw = _products(part.to_set(), box)
        apart = DisjointRegions._of(box.shape, [Region._of(box.shape, nests, box.start) for nests in raw], box.start)
        each.append(_checked(apart, part.to_set()).regions)
        many += len(raw)
        check_pieces(many, f"from_isl: a set in {quote(box)}", "clip it with within=")
    return unite(box.shape, each, box.start) | DisjointRegions(box.shape, (), box.start)


def _periodic(points: Any) -> DisjointSetts | None:
    """The setts of a set that goes on for ever on both sides, None if it has no period.

    isl compares what is found with what was given part by part: two unions of some twenty parts it may compare for
    minutes, and whether each two of a hundred parts are disjoint it tells no sooner.
    """
    parts = isl.parts_of(points)
    periods = [isl.floor_period(part) for part in parts]
    sets = [part.to_set() for part in parts]
    if not all(isl.moved(s, period).is_equal(s) for s, period in zip(sets, periods, strict=True)):
        sets, periods = [points], [lcm(*periods)]
        if not isl.moved(points, periods[0]).is_equal(points):
            return None
    found: list[DisjointSetts] = []
    many = 0
    for s, period in zip(sets, periods, strict=True):
        found.append(_checked(DisjointSetts._of(_one_period(s, period)), s))
        many += len(found[-1])
        check_pieces(many, "from_isl")
    every = [s for one in found for s in one]
    if any(not every[i].isdisjoint(every[j]) for i, j in unions.close_pairs([s.nest for s in every])):
        return unite_by_halves(found)  # type: ignore[no-any-return]
    return DisjointSetts._of(merge_nests(s.nest for s in every))


def _one_period(points: Any, period: int) -> list[Nest]:
    start = isl.first_from(points, 0)
    assert start is not None, "a periodic set that is not empty has elements everywhere"
    items = _items(isl.in_window(points, start, start + period))
    if len(items) > 1:  # begin after the longest gap: a block cut in two hides its pattern
        ends = [items[-1].start + items[-1].length - period, *(item.start + item.length for item in items)]
        _, start = max((item.start - end, item.start) for item, end in zip(items, ends, strict=False))
        items = min(items, _items(isl.in_window(points, start, start + period)), key=len)
    return [nests.repeat(length, period, first, tail) for first, length, tail in items]


def _items(points: Any) -> list[Item]:
    """A bounded set as nested pieces, read from whichever end gives fewer."""
    ahead = _items_upwards(points)
    if len(ahead) < 2:
        return ahead
    mirror = isl.affine_map(1, ((("x0", -1),),), (0,), (1,))
    back = [
        Item(1 - item.start - item.length, item.length, nests.canonical(nests.reverse(item.tail, item.length)))
        for item in _items_upwards(points.apply(mirror))
    ]
    return min(merge(ahead), merge(sorted(back)), key=len)


def _items_upwards(points: Any) -> list[Item]:
    items: list[Item] = []
    outside = points.complement()
    last = isl.bounds_of(points)
    at = None if last is None else last[0][0]
    while at is not None:
        stop = isl.first_from(outside, at)
        assert stop is not None, "a bounded set ends"
        items.append(_grown(points, Item(at, stop - at, ())))
        check_pieces(len(items), "from_isl")
        at = isl.first_from(points, items[-1].start + items[-1].length)
    return items


def _grown(points: Any, item: Item) -> Item:
    """The item repeated as long as the set goes on like that, level by level."""
    while (following := isl.first_from(points, item.start + item.length)) is not None:
        step = following - item.start
        change = isl.first_change(points, step, item.start)
        assert change is not None, "a bounded set ends"
        reach = change[0] + step - item.start
        if change[1]:  # an element that the pattern lacks: only whole copies before it belong to the pattern
            reach = reach // step * step
        if reach <= step or len(item.tail) == tuning.MAX_LEVELS:
            return item
        grown = nests.clip(nests.repeat(item.length, step, 0, item.tail), 0, reach)
        assert grown is not None, "the pattern begins with an element"
        item = Item(item.start, grown.length, grown.tail)
    return item


def _products(points: Any, box: Box) -> list[tuple[Nest, ...]]:
    """A bounded set as disjoint products of nests."""
    if points.is_empty():
        return []
    axes = [isl.along(points, axis) for axis in range(box.rank)]
    if isl.set_product(axes).is_equal(points):
        each = (from_items(_items(axis), low, low + n) for axis, low, n in zip(axes, box.start, box.shape, strict=True))
        return list(product(*each))
    parts = [part.to_set() for part in isl.disjoint_parts(points)]
    if len(parts) < 2:
        parts = list(_slices(points))
    found: list[tuple[Nest, ...]] = []
    for part in parts:
        found += _products(part, box)
        check_pieces(len(found), f"from_isl: a set in {quote(box)} as products", "clip it with within=")
    return found


def _slices(points: Any) -> Iterator[Any]:
    """The points with each value of the shortest axis that has more than one."""
    bounds = isl.bounds_of(points)
    assert bounds is not None, "an empty set is a product"
    n, axis = min((hi - lo, axis) for axis, (lo, hi) in enumerate(zip(*bounds, strict=True)) if hi - lo > 1)
    check_pieces(n, f"from_isl: a set between {bounds}, which is not a product of its axes", "clip it with within=")
    for value in range(bounds[0][axis], bounds[1][axis]):
        yield isl.with_coordinate(points, axis, value)


# ----------------------------------------------------------------------------------------------------- maps


def _map_of(relation: Any) -> AffineMap | IndexProjection | tuple[Piece, ...]:
    if not relation.is_single_valued():
        return _blocks(relation)
    pieces = isl.function_pieces(relation)
    if len(pieces) == 1 and isl.is_everything(pieces[0][0]):
        return _checked(_total(pieces[0][1], None), relation)  # type: ignore[no-any-return]
    if not isl.is_bounded(relation.domain()):
        raise ValueError(f"from_isl: the domain of {_told(relation)} is neither every point nor bounded; give within=")
    found: list[Piece] = []
    for domain, function in pieces:
        found += _checked_pieces(tuple(_pieces(domain, function)), domain, relation)
    return tuple(found)


def _checked_pieces(pieces: tuple[Piece, ...], domain: Any, relation: Any) -> tuple[Piece, ...]:
    """The pieces of one function, once their domains, and what they read at two points, are those given.

    Whole relations are not compared: isl may take minutes over the floors of two ways to write the same.
    """
    regions = [piece.guards[0].region for piece in pieces]
    held = domain.subtract(domain)
    for region in regions:
        held = held.union(isl.to_isl(region))
    ends = [at for end in (domain.lexmin(), domain.lexmax()) if (at := isl.a_point(end)) is not None]
    read = [isl.a_point(relation.intersect_domain(isl.point_set(at)).range()) for at in ends]
    mine = [next((c for p in pieces if (c := reading.cell_read(p, at)) is not None), None) for at in ends]
    if not held.is_equal(domain) or read != mine:
        raise AssertionError(f"from_isl: {quote(pieces)} is not {_told(relation)}; this is a bug of tapestry_sets")
    return pieces


def _blocks(relation: Any) -> IndexProjection:
    """The projection that takes each point to a block of cells."""
    low = relation.lexmin().coalesce()
    offsets = relation.sum(low.neg()).range()
    first = isl.function_pieces(low)
    if len(first) != 1:
        raise ValueError(
            f"from_isl: the first cell of each block of {_told(relation)} is not a single expression: {_told(low)}"
        )
    if isl.is_everything(first[0][0]) and isl.is_bounded(offsets):
        bounds = isl.bounds_of(offsets)
        assert bounds is not None, "a map of every point is not empty"
        found = _total(first[0][1], bounds[1])
        if not any(bounds[0]) and relation.is_equal(isl.to_isl(found)):
            assert isinstance(found, IndexProjection), "a block has a shape"
            return found
    raise ValueError(
        f"from_isl: {_told(relation)} takes a point to several cells that are not one block of constant shape"
    )


def _total(function: Any, shape: tuple[int, ...] | None) -> AffineMap | IndexProjection:
    """The map of every point; a projection if its block has a shape or floors of one axis are used."""
    rows, floors = isl.floors_and_rows(function)
    rank = isl.in_rank(function)
    splits: list[tuple[int, int]] = []
    matrix, offset = [], []
    for row, own in zip(rows, floors, strict=True):
        if row.divisor > 1:
            raise ValueError(f"from_isl: {_told(function)} has values that are not integers")
        columns, constant = [*row.axes, *[0] * (2 * len(splits))], row.constant
        for c, d in zip(row.divs, own, strict=True):
            if not c:
                continue
            split = _split_of(d)
            if split is None:
                raise ValueError(f"from_isl: {_told(function)} takes a floor of more than i/q; give within= its domain")
            place, *values = split
            if place not in splits:
                splits.append(place)
                columns += [0, 0]
            at = rank + 2 * splits.index(place)
            columns[at] += c * values[0]
            columns[at + 1] += c * values[1]
            constant += c * values[2]
        matrix.append(columns)
        offset.append(constant)
    width = rank + 2 * len(splits)
    m = AffineMap(tuple((*row, *[0] * (width - len(row))) for row in matrix), tuple(offset), width)
    if shape is None and not splits:
        return m
    return IndexProjection(m, (1,) * len(rows) if shape is None else shape, tuple(splits))


def _split_of(d: isl.Row) -> tuple[tuple[int, int], int, int, int] | None:
    """Return ((axis, q), s, t, c) if the floor is s·(i[axis] // q) + t·(i[axis] % q) + c, else None."""
    used = [axis for axis, c in enumerate(d.axes) if c]
    if any(d.divs) or len(used) != 1 or abs(d.axes[used[0]]) != 1:
        return None
    sign = d.axes[used[0]]
    # floor((c - i)/q) = -floor((i - c + q - 1)/q)
    more, rest = divmod(d.constant if sign > 0 else d.divisor - 1 - d.constant, d.divisor)
    if rest and d.divisor > 2:
        return None
    return (used[0], d.divisor), sign, sign * rest, sign * more  # (i + 1) // 2 = i // 2 + i % 2


def _pieces(domain: Any, function: Any) -> Iterator[Piece]:
    """The pieces of one quasi-affine function on a bounded domain, one for each product of its axes."""
    bounds = isl.bounds_of(domain)
    if bounds is None:
        return
    box = Box.from_bounds(*bounds)
    chain = _chain(function, box)
    for raw in _products(domain, box):
        yield Piece(0, (Guard(0, Region._of(box.shape, raw, box.start)),), chain)


def _chain(function: Any, box: Box) -> IndexMap:
    """A quasi-affine function on a box as a chain: each floor becomes a coordinate by a renumbering."""
    rows, floors = isl.floors_and_rows(function)
    steps: list[Step] = []
    rank = box.rank
    places: list[list[int]] = []
    for own in floors:
        at: list[int] = []
        for d in own:
            more, box = _append_floor(_over(d, at, rank, box.rank), d, box)
            steps += more
            at.append(box.rank - 1)
        places.append(at)
    for k, row in enumerate(rows):  # c·x/n, an integer on the domain, is a floor as well
        if row.divisor > 1:
            more, box = _append_floor(_over(row, places[k], rank, box.rank), row, box)
            steps += more
            rows = (*rows[:k], isl.Row((0,) * rank, (1,), 0, 1), *rows[k + 1 :])
            places[k] = [box.rank - 1]
    matrix = tuple(_over(row, at, rank, box.rank) for row, at in zip(rows, places, strict=True))
    steps.append(AffineMap(matrix, tuple(row.constant for row in rows), box.rank))
    return IndexMap(tuple(steps), rank).simplify()


def _over(row: isl.Row, places: list[int], rank: int, columns: int) -> tuple[int, ...]:
    """The row's coefficients over all coordinates so far."""
    found = [*row.axes, *[0] * (columns - rank)]
    for c, at in zip(row.divs, places, strict=False):
        found[at] += c
    return tuple(found)


def _range(coefficients: Sequence[int], constant: int, box: Box) -> tuple[int, int]:
    """The least and the greatest value of an affine expression on a box."""
    ends = [sorted((c * a, c * (b - 1))) for c, a, b in zip(coefficients, box.start, box.stop, strict=True)]
    return constant + sum(e[0] for e in ends), constant + sum(e[1] for e in ends)


def _append_floor(coefficients: tuple[int, ...], d: isl.Row, box: Box) -> tuple[list[Step], Box]:
    """Steps that append floor((coefficients·x + constant) / divisor) to a point of a box, and the box of these."""
    q, n = d.divisor, box.rank
    low, high = (v // q for v in _range(coefficients, d.constant, box))
    many = high - low + 1
    to_zero = tuple(-a for a in box.start)
    steps: list[Step] = [
        AffineMap((*AffineMap.identity(n).matrix, coefficients), (*to_zero, d.constant - low * q), n),
        Relinearize((*box.shape, many * q), (*box.shape, many, q)),
        AffineMap.select(n + 2, [(k, 1) for k in range(n + 1)], (*box.start, low)),
    ]
    return steps, Box((*box.start, low), (*box.shape, many))
