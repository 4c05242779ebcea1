"""The row-major numbers of the cells that pieces read: setts, sums of steps, or a set around them.

Each piece makes of the view's box a product of progressions, one an axis, and of this the numbers of the cells. Where
copies of a pattern lie within each other too often, a plain chain of steps stays a sum of them; all else is united as
setts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tapestry_sets.alias import tuning
from tapestry_sets.digits import Progression, combine, interleaved_copies, interval, reach, separate
from tapestry_sets.integers import DisjointSetts, Nest, explicit_setts, members, merge_nests, pairs, unions
from tapestry_sets.integers import nest as nests
from tapestry_sets.limits import Budget, TooHard, TooManyPieces, ask_one, current
from tapestry_sets.regions import AffineMap, Box
from tapestry_sets.views import IndexMap, Lookup, Piece, Relinearize, bounding_boxes, images


def flatten_pieces(
    pieces: Sequence[Piece], shape: tuple[int, ...], home: tuple[int, ...], extent: int
) -> DisjointSetts | Progression:
    """Return the row-major numbers of the cells that pieces read, as sums where these lie within each other too often.

    Raises
    ------
    TooManyPieces
        If the setts are too many.
    """
    if 0 in shape or not extent:
        return DisjointSetts()
    parts: list[list[Nest]] = []
    for piece in pieces:
        runs, apart = _flat_runs(piece, shape, home)
        if any(interleaved_copies(run[1]) > tuning.MAX_COPIES for run in runs):
            single = [q for run in runs for q in separate(run)]
            if not any(interleaved_copies(run[1]) > tuning.MAX_COPIES for run in single):
                runs, apart = single, False
        if len(runs) == len(pieces) == 1:  # a plain chain
            return runs[0] if interleaved_copies(runs[0][1]) > tuning.MAX_COPIES else explicit_setts(runs[0], extent)
        each = [[m.nest for m in explicit_setts(run, extent).members] for run in dict.fromkeys(runs)]
        parts += [merge_nests(nest for part in each for nest in part)] if apart and len(each) > 1 else each
    return DisjointSetts._joined(_union(_join_windows(parts, extent), extent))


def _join_windows(parts: list[list[Nest]], extent: int) -> list[list[Nest]]:
    """Parts that see one comb through windows that overlap, or touch, as one part each: its window is theirs together.

    part 0   |x..x..x..x|                    the rows of a band are such parts:
    part 1         |x..x..x..x..x|           however many there are, few are left
    joined   |x..x..x..x..x..x..x|
    """
    joined: list[list[Nest]] = []
    combs: dict[Nest, list[tuple[int, int]]] = {}
    for part in parts:
        (s, *more) = part or [()]
        if more or not s or s[0][1] != extent or s[0][2] + s[0][0] > extent:
            joined.append(part)
        else:
            combs.setdefault(nests.shift(s[1:], s[0][2]), []).append((s[0][2], s[0][2] + s[0][0]))
    for comb, windows in combs.items():
        together: list[tuple[int, int]] = []
        for low, high in sorted(windows):  # each begins and ends with an element of the comb
            if together and nests.find(comb, together[-1][1]) >= low:
                low, before = together.pop()
                high = max(high, before)
            together.append((low, high))
        joined += [[nests.canonical(((high - low, extent, low), *nests.shift(comb, -low)))] for low, high in together]
    return joined


def _union(parts: list[list[Nest]], extent: int) -> list[Nest]:
    """The union of disjoint unions: those whose bounds are apart are only put beside each other."""
    groups = _group_by_bounds(parts, extent) if len(parts) > 1 else [parts]
    if len(groups) < 2:
        return _union_close(parts, extent)
    return merge_nests([nest for group in groups for nest in _union_close(group, extent)])


def _group_by_bounds(parts: list[list[Nest]], extent: int) -> list[list[list[Nest]]]:
    """Parts cut into groups, so that no bounds of nests of two groups meet.

    part 0   [----]             [--]
    part 1      [-------]             [-----]
    part 2                              [-----]
    groups   ------------       ----  --------
    """
    bounds = sorted([(*_ends(s, extent), k, s) for k, part in enumerate(parts) for s in part], key=lambda one: one[:3])
    groups: list[dict[int, list[Nest]]] = []
    end = -1
    for start, stop, k, s in bounds:
        if start >= end:
            groups.append({})
        groups[-1].setdefault(k, []).append(s)
        end = max(end, stop)
    return [list(group.values()) for group in groups]


def _union_close(parts: list[list[Nest]], extent: int) -> list[Nest]:
    """The union of disjoint unions: parts apart from all others are only put beside them."""
    sizes = [sum([nests.count(s, 0, extent) for s in part]) for part in parts]
    order = sorted(range(len(parts)), key=lambda k: -sizes[k])
    few = [k for k in order if sizes[k] <= tuning.FEW_NUMBERS] if len(parts) > tuning.MAX_SETTS else []
    total: list[Nest] = []
    is_merged = True
    budget = Budget(current().budget)
    for k in order[: len(order) - len(few)]:
        if not budget.spend(len(total) * len(parts[k])):
            raise TooManyPieces(
                f"the cells of {len(parts)} pieces: comparing their {sum(map(len, parts))} sets with each other takes "
                f"more than {budget.most} branches; ask about a part of the view, or allow more by limits(budget=…)"
            )
        if total and _are_apart(total, parts[k], extent):
            total = [*total, *parts[k]]
            is_merged = False
        elif ask_one((TooHard,), members.hold, total, parts[k], 0, extent) is not True:
            total = unions.union(total, parts[k], (0, extent)) if total else parts[k]
            is_merged = True
    if few:
        total = [*total, *_beside(total, [parts[k] for k in few], extent)]
    return total if is_merged and not few else merge_nests(total)


def _beside(total: Sequence[Nest], parts: Sequence[Sequence[Nest]], extent: int) -> list[Nest]:
    """The numbers of short parts that are neither in a union nor in a part before, as disjoint nests."""
    found: list[Nest] = []
    seen: set[int] = set()
    for part in parts:
        for nest in part:
            numbers = [nests.nth(nest, k) for k in range(nests.count(nest, 0, extent))]
            new = [z for z in numbers if z not in seen and not any(nests.contains(s, z) for s in total)]
            seen.update(new)
            single = (m.nest for z in new for m in explicit_setts((z, ()), extent).members)
            found += [nest] if len(new) == len(numbers) else single
    return found


def _are_apart(xs: Sequence[Nest], ys: Sequence[Nest], extent: int) -> bool:
    """Whether two unions surely share no number in [0, extent)."""
    for y in ys:
        start, stop = _ends(y, extent)
        for x in xs:
            low, high = _ends(x, extent)
            if low < stop and start < high and not _miss(x, y, max(low, start), min(high, stop)):
                return False
    return True


def _miss(x: Nest, y: Nest, lo: int, hi: int) -> bool:
    return ask_one((TooHard,), pairs.first_in_both, x, y, lo, hi) is None


def _ends(s: Nest, extent: int) -> tuple[int, int]:
    """Bounds of a nest's numbers in [0, extent)."""
    if not s or s[0][1] != extent or s[0][2] + s[0][0] > extent:
        return 0, extent
    return s[0][2], s[0][2] + s[0][0]


def set_around(pieces: Iterable[Piece], shape: tuple[int, ...], home: tuple[int, ...], extent: int) -> DisjointSetts:
    """Return a set of numbers that pieces which shatter read at most: the image of a box under their last map."""
    total: list[Nest] = []
    for piece in pieces:
        last = 0  # a map of a box, or what follows a table
        for k, step in enumerate(piece.map.steps):
            last = k + 1 if isinstance(step, Lookup) else k if isinstance(step, AffineMap) else last
        box = bounding_boxes(piece.map, Box.of(shape), last)[last]
        shift = AffineMap.select(box.rank, [(axis, 1) for axis in range(box.rank)], list(box.start))
        rest = Piece(0, (), IndexMap((shift, *piece.map.steps[last:])).simplify())
        (run,), _ = _flat_runs(rest, box.shape, home)
        if run[0] < 0 or run[0] + reach(run[1]) >= extent or interleaved_copies(run[1]) > 1:  # as where guards cut it
            return DisjointSetts._of([()])
        total = unions.union(total, [m.nest for m in explicit_setts(run, extent).members], (0, extent))
        if len(total) > tuning.MAX_SETTS:
            return DisjointSetts._of([()])
    return DisjointSetts._of(total)


def _flat_runs(piece: Piece, shape: tuple[int, ...], home: tuple[int, ...]) -> tuple[list[Progression], bool]:
    """The row-major numbers of the cells that one piece reads, and whether no number is in two progressions."""
    piece, parts = images.guards_first(piece, [tuple([interval(0, n) for n in shape])])
    steps = piece.map.steps
    stop, last_guard = len(steps), max([g.prefix for g in piece.guards], default=0)
    if stop > last_guard:
        last = steps[-1]
        if isinstance(last, Relinearize) and last.to_shape[1:] == home[1:]:
            # the renumbering keeps row-major numbers: no need to split them into the allocation's axes
            stop, home = stop - 1, last.from_shape
    form = steps[stop - 1] if stop > last_guard else None
    if not isinstance(form, AffineMap):
        grids, apart = images.push(piece, parts, stop)
        return [images.flatten_grid(grid, home) for grid in grids], apart
    grids, apart = images.push(piece, parts, stop - 1)
    # the numbers are one linear form of the coordinates, also where these share axes
    offset, terms = images.flatten_affine(form, home)
    runs = [combine(offset, [(c, grid[k]) for k, c in terms]) for grid in grids]
    return runs, apart and (len(grids) < 2 or images.is_injective(form, grids))
