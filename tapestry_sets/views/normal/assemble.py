"""Views built anew from patches, as short chains of kinds: slices of reshaped memory, concatenations, pads, fills.

Several patches are parts of a box, which is taken apart in the order of what costs fewest kinds::

    frame    ccccc        slabs    aaa|bb        turned    bb|aaa        fill    aab
             caabc                 aaa|bb                  bb|aaa                cbb
             ccccc                                                               cca
    a pad of the inside   concatenated slabs     a roll of one view      parts put in their places, one by one

One patch is a strided view of memory. Memory gets the axes of some shape in which each of the patch's digits steps
along one axis; then a slice, an index, windows, a permutation and a broadcast say the digits.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from math import gcd, prod
from typing import Any, Generic, TypeVar

from msgspec import Struct

from tapestry_sets.digits import Digit, Digits, Ints, renumber, unflatten
from tapestry_sets.integers import Sett, nest_of
from tapestry_sets.limits import OPEN
from tapestry_sets.regions import Region
from tapestry_sets.views import tuning
from tapestry_sets.views.functions import concatenate, fill_into, pad, roll
from tapestry_sets.views.kinds.choosing import AsStrided
from tapestry_sets.views.normal.folding import fold
from tapestry_sets.views.normal.patches import Constant, Flat, patch_of
from tapestry_sets.views.pieces.maps import Relinearize, put_extents
from tapestry_sets.views.words import Viewable

V = TypeVar("V", bound=Viewable)
HomeLevels = Sequence[tuple[int, int]]
"""(count, step of the cell) for each digit of a view's indices, outermost first."""


class Assembly(Generic[V]):
    """Builds views from patches.

    Parameters
    ----------
    leaf : callable
        The view of a home: of memory, or of what is not spelled out.
    blank : view
        Some view, of which constants are made: none of its cells is read for them.
    """

    def __init__(self, leaf: Callable[[Hashable], V], blank: V) -> None:
        self._leaf = leaf
        self._blank = blank
        self._made: dict[Hashable, V] = {}

    def view(self, flat: Flat, shape: Ints) -> V:
        """Return a view of `shape`, without empty axes, that reads the cells of `flat`.

        One patch takes at most 6 kinds, a constant fewer: of `Reshape`, `Slice`, `Index`, `SlidingWindow`,
        `PermuteDims`, `Broadcast` and `Reshape` where so many do, else `AsStrided` and `Reshape`. A patch may be cut
        in two where it goes on from row to row. Parts are put together by kinds that take two or more of what is
        there, of which there are fewer than parts, or by a `Pad` or a `Roll`, which each leave fewer parts than
        before; then comes a `Reshape` where parts cross rows. So p > 1 patches, those of patches that are not spelled
        out among them, take at most 14·p kinds.
        """
        if len(flat.patches) == 1:
            (one,) = flat.patches
            return self._strided(one.home, one.cell, [(count, step) for count, _, step in one.digits], shape)
        parts = _find_parts(flat, shape)
        if parts is not None:
            return self._box(parts, (0,) * len(shape), shape)
        parts = _find_parts(flat, (flat.size,))
        assert parts is not None, "row-major numbers are one axis"
        return _reshape(self._box(parts, (0,), (flat.size,)), shape)

    def _home(self, home: Hashable) -> V:
        if not isinstance(home, Flat):
            return self._leaf(home)
        if home not in self._made:
            self._made[home] = self.view(home, (home.size,))
        return self._made[home]

    def _strided(self, home: Hashable, cell: int, levels: HomeLevels, shape: Ints) -> V:
        """The view of a home, or a constant, by the steps of its digits."""
        if isinstance(home, Constant):
            none = _reshape(self._blank, (self._blank.size,))[:0]
            return _reshape(pad(none, ((0, prod(shape)),), "constant", home.value), shape)
        made = self._home(home)
        for word in _find_shortest(made.shape, cell, levels, shape).words:
            made = word(made)
        return made

    # -- several parts --------------------------------------------------------------------------------

    def _box(self, parts: Sequence[_BoxPart], start: Ints, shape: Ints) -> V:
        """The view of a box of indices that parts partition."""
        if len(parts) == 1 or all(part.home == parts[0].home and isinstance(part.home, Constant) for part in parts):
            return self._one(parts[0], shape)
        framed = _find_frame(parts, start, shape)
        if framed is not None:
            value, inner, low, extents = framed
            widths = [(a - s, s + n - a - m) for a, m, s, n in zip(low, extents, start, shape, strict=True)]
            return pad(self._box(inner, low, extents), widths, "constant", value.value)
        for axis in range(len(shape)):
            slabs = _find_slabs(parts, axis)
            turned = _turn_slabs(slabs, axis, start, shape) if len(slabs) == 2 else None
            if turned is not None:
                return roll(self.view(turned, shape), _span_of(slabs[0], axis)[1] - start[axis], axis)
            if len(slabs) > 1:
                return concatenate([self._slab(slab, axis, start, shape) for slab in slabs], axis)
        regions = [_region_of(part, start, shape) for part in parts]
        return fill_into(regions, [self._one(p, region.counts) for p, region in zip(parts, regions, strict=True)])

    def _slab(self, parts: Sequence[_BoxPart], axis: int, start: Ints, shape: Ints) -> V:
        low, stop = _span_of(parts, axis)
        return self._box(parts, put_extents(start, axis, low), put_extents(shape, axis, stop - low))

    def _one(self, part: _BoxPart, shape: Ints) -> V:
        """The view of one part by itself, its indices without gaps."""
        levels = [(count, step) for digits in part.axes(len(shape)) for count, _, step in digits]
        return self._strided(part.home, part.forms.origin[-1], levels, shape)


def _reshape(view: V, shape: Ints) -> V:
    return view if view.shape == shape else view.reshape(shape)


# ---------------------------------------------------------------------------------------------- parts of a box


class _BoxPart(Struct, frozen=True):
    """The coordinates of indices and, as the last form, the cells of a home that they read; a digit moves one axis."""

    forms: Digits
    home: Hashable

    def axes(self, rank: int) -> list[list[Digit]]:
        """For each axis the digits that move it, outermost first: (count, step along the axis, step of the cell)."""
        found: list[list[Digit]] = [[] for _ in range(rank)]
        for digit in self.forms.digits:
            axis = next(axis for axis in range(rank) if digit[1 + axis])
            found[axis].append((digit[0], digit[1 + axis], digit[-1]))
        return [sorted(digits, key=lambda digit: -digit[1]) for digits in found]


def _find_parts(flat: Flat, shape: Ints) -> list[_BoxPart] | None:
    """The patches as parts of a box, at most two for each; None if they are more or no products of its axes."""
    found: list[_BoxPart] = []
    for patch in flat.patches:
        cuts = unflatten(patch.forms, 0, shape, 2)
        if cuts is OPEN or any(sum(map(bool, digit[1:-1])) > 1 for cut in cuts for digit in cut.digits):
            return None
        found += [_BoxPart(cut, patch.home) for cut in cuts]
    return found


def _region_of(part: _BoxPart, start: Ints, shape: Ints) -> Region:
    """The indices of a part, in a box."""
    setts = []
    for axis, (digits, n) in enumerate(zip(part.axes(len(shape)), shape, strict=True)):
        levels = tuple([(count, step) for count, step, _ in digits])
        nest = nest_of((part.forms.origin[axis] - start[axis], (levels,)), n)
        assert nest is not None, "the digits of an axis do not lie within each other"
        setts.append(Sett._of(nest))
    return Region(shape, setts)


def _span_of(parts: Sequence[_BoxPart], axis: int) -> tuple[int, int]:
    bounds = [part.forms.bounds(axis) for part in parts]
    return min([low for low, _ in bounds]), max([high for _, high in bounds]) + 1


def _find_slabs(parts: Sequence[_BoxPart], axis: int) -> list[list[_BoxPart]]:
    """The parts in groups, each of which ends on an axis where the next begins."""
    slabs: list[list[_BoxPart]] = []
    end = -1
    for part in sorted(parts, key=lambda part: part.forms.bounds(axis)):
        low, high = part.forms.bounds(axis)
        if not slabs or low > end:
            slabs.append([])
        slabs[-1].append(part)
        end = max(end, high)
    return slabs


def _turn_slabs(slabs: Sequence[Sequence[_BoxPart]], axis: int, start: Ints, shape: Ints) -> Flat | None:
    """The patches of a box whose two slabs change places, if they fold: then the box is a roll of that."""
    # ├─── slab 0 ───┼─ slab 1 ─┤        as the box is
    # ├─ slab 1 ─┼─── slab 0 ───┤        turned: slab 0 moves up by the length of slab 1, slab 1 down by that of slab 0
    #
    # A roll has two slabs whatever it rolled; where the turned box is of fewer patches, it is what was rolled.
    size = prod(shape)
    weights = [size := size // n for n in shape]
    middle = _span_of(slabs[0], axis)[1]
    first = sum([a * w for a, w in zip(start, weights, strict=True)])
    moves = [(start[axis] + shape[axis] - middle) * weights[axis], (middle - start[axis]) * weights[axis]]
    patches, turned = [], []
    for slab, move in zip(slabs, moves, strict=True):
        for part in slab:
            origin, digits = part.forms
            at = sum([a * w for a, w in zip(origin, weights, strict=False)]) - first
            flat = [(d[0], sum([a * w for a, w in zip(d[1:], weights, strict=False)]), d[-1]) for d in digits]
            patches.append(patch_of(Digits((at, origin[-1]), tuple(flat)), part.home))
            turned.append(patches[-1]._replace(at=patches[-1].at + move * (-1 if slab is slabs[1] else 1)))
    folded = fold(turned)
    return Flat(prod(shape), folded, 0) if len(folded) < len(fold(patches)) else None


def _find_frame(
    parts: Sequence[_BoxPart], start: Ints, shape: Ints
) -> tuple[Constant, list[_BoxPart], Ints, Ints] | None:
    """The constant around what is not constant, and the box inside; None if it has no such frame."""
    inner, low, extents = list(parts), list(start), list(shape)
    value: Constant | None = None
    for axis in range(len(shape)):
        slabs = _find_slabs(inner, axis)
        for end in (0, -1):
            home = slabs[end][0].home
            constant = isinstance(home, Constant) and all(part.home == home for part in slabs[end])
            if len(slabs) > 1 and constant and value in (None, home):
                value = slabs.pop(end)[0].home  # type: ignore[assignment]
        inner = [part for slab in slabs for part in slab]
        low[axis], stop = _span_of(inner, axis)
        extents[axis] = stop - low[axis]
    return None if value is None else (value, inner, tuple(low), tuple(extents))


# ------------------------------------------------------------------------------------------- one strided view


class _Plan:
    """Words to be said to a view one after another, each of which adds one kind; idle ones are not noted."""

    def __init__(self, shape: Ints) -> None:
        self.shape = shape
        self.words: list[Callable[[Any], Any]] = []

    def say(self, shape: Ints, word: Callable[[Any], Any]) -> None:
        self.shape = shape
        self.words.append(word)

    def reshape(self, shape: Ints) -> None:
        if shape != self.shape:
            self.say(shape, lambda v: v.reshape(shape))

    def slice(self, shape: Ints, key: tuple[slice, ...]) -> None:
        if any(k != slice(None) for k in key):
            self.say(shape, lambda v: v[key])

    def index(self, at: Sequence[int | None]) -> None:
        if any(i is not None for i in at):
            key = tuple([slice(None) if i is None else i for i in at])
            self.say(tuple([n for n, i in zip(self.shape, at, strict=True) if i is None]), lambda v: v[key])

    def permute(self, order: Sequence[int]) -> None:
        if list(order) != sorted(order):
            self.say(tuple([self.shape[axis] for axis in order]), lambda v: v.permute_dims(order))

    def broadcast(self, ones: Ints, shape: Ints) -> None:
        """As `ones`, which has extent 1 where axes are repeated; leading ones come by themselves."""
        if ones != shape:
            lead = len(ones) - len(self.shape)
            if lead < 0 or ones != (1,) * lead + self.shape:
                self.reshape(ones)
            self.say(shape, lambda v: v.broadcast_to(shape))


class _AxisDigit(Struct, frozen=True):
    """A digit of a view's indices: n cells, `step` apart along an axis of memory; axis -1 if it does not move."""

    n: int
    step: int
    axis: int


def _find_shortest(home: Ints, cell: int, levels: HomeLevels, shape: Ints) -> _Plan:
    """The shortest plan for a strided view of memory of a shape; by `AsStrided` where no other is short.

    Examples
    --------
    >>> len(_find_shortest((4, 6), 0, [(24, 1)], (24,)).words), len(_find_shortest((4, 6), 0, [(24, 1)], (4, 6)).words)
    (1, 0)
    """
    size = prod(home)
    axes = renumber((tuple(levels),), shape)
    forms = [levels] if axes is None else [levels, [level for axis in axes for level in axis]]
    found: list[_Plan] = []
    for form in forms:
        steps = [abs(step) for count, step in form if step and count > 1]
        for radices in dict.fromkeys((home, (size,), _radices(steps, size))):
            for keep in (False, True):
                plan = _by_axes(_Plan(home), radices, (cell, form), shape, keep)
                found += [] if plan is None else [plan]
    best = min(found, key=lambda plan: len(plan.words), default=None)
    if best is not None and len(best.words) <= tuning.STRIDED_WORDS:
        return best
    plan = _Plan(home)
    counts, strides = zip(*levels or [(1, 0)], strict=True)
    plan.say(counts, lambda v: v.apply(AsStrided(counts, strides, cell)))
    plan.reshape(shape)
    return plan


def _radices(steps: Sequence[int], size: int) -> Ints:
    """A shape of memory of so many cells that has an axis for each step, as far as divisors allow."""
    found: list[int] = []
    for step in sorted(set(steps), reverse=True)[:-1]:
        inner = gcd(step, size)
        if inner < size:
            found.append(size // inner)
        size = inner
    return (*found, size)


def _by_axes(plan: _Plan, radices: Ints, what: tuple[int, HomeLevels], shape: Ints, keep: bool) -> _Plan | None:
    """Memory reshaped, cut, windowed, permuted, reshaped, broadcast and reshaped; None if steps lie on no axes.

    Where one place of an axis of memory is read, the axis stays, of extent 1, if `keep`, else it goes.
    """
    cell, levels = what
    low = cell + sum([(count - 1) * step for count, step in levels if step < 0])
    starts = Relinearize((prod(radices),), radices).apply((low,))
    digits: list[_AxisDigit] = []
    for count, step in levels:
        moved = _split_level(count, step, starts, radices) if step and count > 1 else [_AxisDigit(count, 0, -1)]
        if moved is None:
            return None
        digits += moved
    on = [[k for k, d in enumerate(digits) if d.axis == axis] for axis in range(len(radices))]
    plan.reshape(radices)
    if not _say_cut(plan, [[digits[k] for k in moved] for moved in on], starts, keep):
        return None
    axes = [moved[0] if moved else -1 for moved in on if moved or keep]
    axes += _say_windows(plan, [[digits[k] for k in moved] for moved in on if moved or keep], on)
    _say_order(plan, digits, axes)
    plan.reshape(shape)
    return plan


def _split_level(count: int, step: int, starts: Ints, radices: Ints) -> list[_AxisDigit] | None:
    """A level as digits along axes of memory: several where it fills the inner ones; None if it crosses them.

    In memory of (4, 6), innermost axis first::

        5 steps of 1 from 0     0 <= 0 + 4·1 < 6: one digit of 5 along the inner axis
        12 steps of 2           3 of them fill the inner axis: a digit of 3 there, and 4 of 6 are left
        4 steps of 4            4 does not divide 6: the level crosses rows, None
    """
    found: list[_AxisDigit] = []
    by, sign, weight = abs(step), 1 if step > 0 else -1, 1
    for axis in range(len(radices) - 1, -1, -1):
        n = radices[axis]
        if n > 1 and by < weight * n:
            t, rest = divmod(by, weight)
            if rest:
                return None
            if starts[axis] + (count - 1) * t < n:
                return [_AxisDigit(count, sign * t, axis), *reversed(found)]
            if n % t or starts[axis] >= t or count % (n // t):
                return None
            found.append(_AxisDigit(n // t, sign * t, axis))
            count, by = count // (n // t), weight * n
        weight *= n
    return None


def _say_cut(plan: _Plan, on: Sequence[Sequence[_AxisDigit]], starts: Ints, keep: bool) -> bool:
    """Say the slice and the index for the digits on each axis; False if there are none such."""
    counts, cuts = [], []
    for n, digits, start in zip(plan.shape, on, starts, strict=True):
        cut = _slice(start, n, digits)
        if cut is None:
            return False
        counts.append(1 if keep and not digits else cut[0])
        cuts.append(slice(start, start + 1) if keep and not digits and n > 1 else cut[1])
    plan.slice(tuple(counts), tuple(cuts))
    plan.index([None if digits or keep else start for digits, start in zip(on, starts, strict=True)])
    return True


def _slice(start: int, n: int, digits: Sequence[_AxisDigit]) -> tuple[int, slice] | None:
    """How many places of an axis of extent n are cut out for digits on it, and how; None if that cannot be."""
    reach = sum([(d.n - 1) * abs(d.step) for d in digits])
    forward = {d.step > 0 for d in digits}
    if start + reach >= n or len(digits) > 2 or len(forward) > 1:
        return None
    if not digits:
        return n, slice(None)
    by, count = (abs(digits[0].step), digits[0].n) if len(digits) == 1 else (1, reach + 1)
    if forward == {True}:
        stop = None if start + count * by >= n else start + reach + 1
        return count, slice(start or None, stop, by if by > 1 else None)
    last = start + reach
    return count, slice(last if last < n - 1 else None, start - 1 if start >= by else None, -by)


def _say_windows(plan: _Plan, on: Sequence[Sequence[_AxisDigit]], numbers: Sequence[Sequence[int]]) -> list[int]:
    """Say the windows of axes with two digits; return the numbers of the second ones, which are axes of their own."""
    axes = [axis for axis, digits in enumerate(on) if len(digits) == 2]
    if axes:
        shape = list(plan.shape)
        for axis in axes:
            shape[axis] = on[axis][0].n
        step, dilation = [[abs(on[axis][k].step) for axis in axes] for k in (0, 1)]
        size = [on[axis][1].n for axis in axes]
        plan.say((*shape, *size), lambda v: v.sliding_windows(size, step, dilation, axes))
    return [moved[1] for moved in numbers if len(moved) == 2]


def _say_order(plan: _Plan, digits: Sequence[_AxisDigit], axes: Sequence[int]) -> None:
    """Permute axes, given by the numbers of their digits, -1 for extent 1, to the view's order, and repeat some."""
    ones = iter([k for k, number in enumerate(axes) if number < 0])
    order = [axes.index(k) if d.axis >= 0 else next(ones, -1) for k, d in enumerate(digits)]
    plan.permute([*ones, *[k for k in order if k >= 0]])
    plan.broadcast(tuple([d.n if d.axis >= 0 else 1 for d in digits]), tuple([d.n for d in digits]))
