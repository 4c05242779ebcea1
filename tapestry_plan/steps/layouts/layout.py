"""Layouts: how an index space is cut and laid over the devices of a mesh."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache, reduce
from itertools import accumulate, pairwise, permutations, product
from math import inf, isqrt, prod
from operator import or_
from typing import Any, cast

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from tapestry_plan.ir import Axis, cells_of, parts_of
from tapestry_plan.steps import tuning
from tapestry_plan.steps.layouts.mesh import Mesh, Space, parse_parts
from tapestry_sets.digits import number_of, point_of
from tapestry_sets.limits import list_names, quote
from tapestry_sets.regions import Box, DisjointRegions
from tapestry_sets.views import allocate, roll

Bounds = tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]
"""Blocks of the devices as columns: whether each has one, and its first points and ends by (device, axis), or zeros."""
REPLICAS, IDLE = -1, -2
"""What the devices along an axis of the mesh may do besides sharing an index axis."""


class SplitAxis(Struct, frozen=True):
    """An index axis for which others stand: its points are numbered in digits of some sizes.

    Parameters
    ----------
    axis : str
    sizes : tuple of int
        Of those that stand for it.
    first : int
        The point at which it begins then; those before it come last.
    """

    axis: str
    sizes: tuple[int, ...]
    first: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether the axis stays as it is."""
        return len(self.sizes) == 1 and self.first == 0

    def __str__(self) -> str:
        return f"{self.axis}={'x'.join(map(str, self.sizes))}{f'@{self.first}' if self.first else ''}"


def tell_sharding(sharding: Mapping[str, int], on: Collection[int] = (), of: int = 1) -> str:
    """How an operator is cut, in a few words: parts by index axis.

    Parameters
    ----------
    sharding : mapping of str to int
    on : collection of int
        The devices that take part, which are told of what is whole: one has it, or several have all of it each.
    of : int
        How many devices the mesh has.

    Examples
    --------
    >>> tell_sharding({"m": 2, "k": 4}), tell_sharding({})
    ('m:2 k:4', 'whole')
    >>> [tell_sharding({}, devices, 4) for devices in ([3], range(4), [0, 1])]
    ['whole on device 3', 'whole on each device', 'whole on each of 2 devices']
    """
    cut = " ".join(f"{axis}:{parts}" for axis, parts in sharding.items())
    if cut or not on or of == 1:
        return cut or "whole"
    if len(on) == 1:
        return f"whole on device {next(iter(on))}"
    return "whole on each device" if len(on) == of else f"whole on each of {len(on)} devices"


def tell_rule(split: Sequence[SplitAxis]) -> dict[str, dict[str, Any]]:
    """The arguments of the rule `split_axes` that make some axes."""
    first = {one.axis: one.first for one in split if one.first}
    sizes = {one.axis: list(one.sizes) for one in split if not one.is_whole}
    return {"sizes": sizes, **({"first": first} if first else {})}


class PeriodicBlock(Struct, frozen=True, dict=True):
    """A part of an index space that is a box of the digits of its axes."""

    box: Box
    digits: tuple[SplitAxis, ...]

    @cached_property
    def cells(self) -> DisjointRegions:
        """The points, as products of axis sets.

        Examples
        --------
        >>> block = PeriodicBlock(Box((0, 1), (3, 1)), (SplitAxis("i0", (3, 4)),))
        >>> [(n,) in block.cells for n in range(6)]
        [False, True, False, False, False, True]
        """
        shape = tuple(prod(each.sizes) for each in self.digits)
        if not self.box.size:
            return DisjointRegions(shape)
        view = allocate(shape)
        for axis, each in enumerate(self.digits):
            view = roll(view, -each.first, axis) if each.first else view
        view = view.reshape(tuple(n for each in self.digits for n in each.sizes))
        (cells,) = view[tuple(map(slice, self.box.start, self.box.stop))].cells.values()
        return cells.regions()


class Lot(Struct, frozen=True, dict=True):
    """A part of a tensor in boxes, which share no cells."""

    boxes: tuple[Box, ...]
    extents: tuple[int, ...]

    @cached_property
    def cells(self) -> DisjointRegions:
        """The points, as products of axis sets."""
        return reduce(or_, (cells_of(box, self.extents) for box in self.boxes))

    @cached_property
    def around(self) -> Box:
        """The smallest box that has all of it."""
        starts, stops = zip(*((box.start, box.stop) for box in self.boxes), strict=True)
        return Box.from_bounds(tuple(map(min, *starts)), tuple(map(max, *stops))) if starts[1:] else self.boxes[0]


class Layout(Struct, frozen=True, dict=True):
    """A cut of an index space and the part that each device has.

    Parameters
    ----------
    extents : tuple of int
        Sizes of the index axes.
    parts : tuple of int
        Number of parts along each axis; sizes differ by at most one, larger parts first, unless `sizes` says them.
    cells : tuple of (tuple of int, or None)
        For each device the number of its part along each axis, None for an idle device.
    digits : tuple of SplitAxis
        For each index axis the digits that its points are numbered in, whose sizes are the extents then: so a part may
        be every fourth point. Empty where the axes are cut as they are.
    sizes : tuple of tuple of int
        For each index axis the sizes of its parts, as where devices are not equally fast. Empty for even parts.
    lots : tuple of (Lot or None)
        Of a tensor: for each device what it has, where that is not a grid of parts (`Placed`); then there is one part,
        which each device counts as having that has anything, and `boxes` are around what it has. Empty for parts.
    """

    extents: tuple[int, ...]
    parts: tuple[int, ...]
    cells: tuple[tuple[int, ...] | None, ...]
    digits: tuple[SplitAxis, ...] = ()
    sizes: tuple[tuple[int, ...], ...] = ()
    lots: tuple[Lot | None, ...] = ()

    @property
    def cuts(self) -> list[tuple[tuple[int, int], ...]]:
        """Where the parts along each axis begin and end."""
        if self.sizes:
            return [tuple(pairwise(accumulate(sizes, initial=0))) for sizes in self.sizes]
        return [parts_of(n, k) for n, k in zip(self.extents, self.parts, strict=True)]

    def keeps(self, axes: Sequence[Axis]) -> bool:
        """Whether it cuts no index axis otherwise than that may be cut, whatever its parts follow from."""
        if all(axis.parts == "any" for axis in axes):
            return True
        if self.digits or self.lots:
            return False
        each = zip(axes, self.cuts, strict=True)
        return all(a.may_have(len(cut)) and (a.parts == "any" or len({b - c for c, b in cut}) == 1) for a, cut in each)

    @cached_property
    def boxes(self) -> tuple[Box | None, ...]:
        """The part of the index space that each device has, None for an idle device."""
        if self.lots:
            return tuple(None if lot is None else lot.around for lot in self.lots)
        cuts = self.cuts
        made: dict[tuple[int, ...], Box] = {}
        for cell in self.cells:
            if cell is not None and cell not in made:
                spans = [cut[c] for cut, c in zip(cuts, cell, strict=True)]
                made[cell] = Box(tuple(lo for lo, _ in spans), tuple(hi - lo for lo, hi in spans))
        return tuple(None if cell is None else made[cell] for cell in self.cells)

    @cached_property
    def blocks(self) -> tuple[Box | PeriodicBlock | Lot | None, ...]:
        """The part that each device has: a box of the index space, or of the digits of its axes, or several boxes."""
        if self.lots:
            return self.lots
        if not self.digits:
            return self.boxes
        return tuple(None if box is None else PeriodicBlock(box, self.digits) for box in self.boxes)

    @cached_property
    def columns(self) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Whether each device has a part, and the number of its part along each axis, 0 where idle."""
        busy = np.array([cell is not None for cell in self.cells], bool)
        nothing = (0,) * len(self.extents)
        numbers = np.array([nothing if cell is None else cell for cell in self.cells], np.int64).reshape(len(busy), -1)
        busy.flags.writeable = numbers.flags.writeable = False
        return busy, numbers

    @cached_property
    def seats(self) -> tuple[int | None, ...]:
        """For each device the row-major number of its part, None for an idle one."""
        numbers = self.number_parts(range(len(self.parts))).tolist()
        return tuple(n if cell is not None else None for n, cell in zip(numbers, self.cells, strict=True))

    @cached_property
    def bounds(self) -> Bounds:
        """The same boxes as columns."""
        busy, numbers = self.columns
        low, high = np.zeros((2, len(busy), len(self.extents)), np.int64)
        if self.lots:
            for device, box in enumerate(self.boxes):
                if box is not None:
                    low[device], high[device] = box.start, box.stop
            return busy, low, high
        for axis, cuts in enumerate(self.cuts):
            low[:, axis], high[:, axis] = np.array(cuts, np.int64)[numbers[:, axis]].T
        found = busy, low * busy[:, None], high * busy[:, None]
        for column in found:
            column.flags.writeable = False
        return found

    def box(self, device: int) -> Box | None:
        """The part of one device, alone."""
        busy, low, high = self.bounds
        return Box.from_bounds(low[device].tolist(), high[device].tolist()) if busy[device] else None

    def count_parts(self, axes: Sequence[int]) -> int:
        """How many parts there are along some axes; of those that are reduced, so many partial results."""
        return prod(self.parts[axis] for axis in axes)

    def number_parts(self, axes: Sequence[int]) -> NDArray[np.int64]:
        """Row-major number of each device's part among the parts along some axes; 0 for idle devices."""
        found: NDArray[np.int64] = np.zeros(len(self.cells), np.int64)
        for axis in axes:
            found = found * self.parts[axis] + self.columns[1][:, axis]
        return found

    def seat_first(self) -> Layout:
        """The same parts, each on the first device alone that has it: where it is done once."""
        return replace(
            self, cells=tuple(None if cell in self.cells[:device] else cell for device, cell in enumerate(self.cells))
        )

    def number_of(self, device: int, axes: Sequence[int]) -> int:
        """Row-major number of the device's part among the parts along some axes."""
        cell = self.cells[device]
        assert cell is not None, "an idle device has no part"
        return cast(int, number_of([cell[axis] for axis in axes], [self.parts[axis] for axis in axes]))


def list_candidates(extents: tuple[int, ...], mesh: Mesh, space: Space, *, replicas: bool = True) -> tuple[Layout, ...]:
    """The layouts of an index space that a search over some space compares, each once.

    Where devices differ they are those of each of `list_teams`, in even parts, and in parts of sizes in proportion to
    what its devices compute in a second, or move within their memories.
    """
    if not mesh.differs:
        return _list_plain(extents, mesh.shape, space, replicas)
    found = (_list_on_team(extents, mesh, team, space, replicas) for team in list_teams(mesh))
    return tuple(dict.fromkeys(layout for each in found for layout in each))


def tell_bounds(bounds: Bounds) -> bytes:
    """Which devices have which boxes: equal for equal ones."""
    return b"".join(column.tobytes() for column in bounds)


def list_spread(extents: tuple[int, ...], mesh: Mesh, space: Space) -> tuple[Layout, ...]:
    """Those candidates in which as many devices as can be, of all or of a team, have a share of their own."""
    teams = list_teams(mesh) if mesh.differs else (tuple(range(mesh.size)),)
    out: dict[Layout, None] = {}
    for team in teams:
        options = [*_list_on_team(extents, mesh, team, space, replicas=False)]
        most = max(prod(option.parts) for option in options)
        out |= dict.fromkeys(option for option in options if prod(option.parts) == most > 1)
    return tuple(out)


def list_teams(mesh: Mesh) -> tuple[tuple[int, ...], ...]:
    """All devices, and those that are at least as fast as each of them: in arithmetic, or in moving bytes.

    Of very many of these, `tuning.MAX_TEAMS`.

    Examples
    --------
    >>> from tapestry_plan import Device
    >>> slow, fast = Device(1e12, 1e11), Device(5e12, 5e11)
    >>> list_teams(Mesh(3, device=[fast, slow, fast]))
    ((0, 1, 2), (0, 2))
    """
    teams: dict[tuple[int, ...], None] = {tuple(range(mesh.size)): None}
    for rate in _list_rates(mesh):
        limits = sorted(set(rate))
        step = -(-len(limits) // tuning.MAX_TEAMS)
        for limit in limits[::step]:
            teams[tuple(device for device, mine in enumerate(rate) if mine >= limit)] = None
    return tuple(teams)


def _list_rates(mesh: Mesh) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """What each device computes in a second, and moves within its memory."""
    each = mesh.devices
    return tuple(one.flop_per_second for one in each), tuple(one.memory_nbytes_per_second for one in each)


def _list_plain(extents: tuple[int, ...], shape: tuple[int, ...], space: Space, replicas: bool) -> tuple[Layout, ...]:
    """The layouts over some devices that are taken for equal ones."""
    along = list_mesh_layouts(extents, shape, replicas=replicas)
    if space == "mesh":
        return along
    # An axis of fewer points than devices has as many parts as points, which the factorizations may not have; nor have
    # they parts that are cut along one axis of the mesh after the other.
    short = (layout for layout in along if layout.sizes or prod(shape) % prod(layout.parts))
    return tuple(dict.fromkeys((*list_layouts(extents, prod(shape), replicas=replicas), *short)))


def _list_on_team(
    extents: tuple[int, ...], mesh: Mesh, team: tuple[int, ...], space: Space, replicas: bool
) -> Iterator[Layout]:
    """The layouts over some of the devices, the others idle: in even parts, and where devices differ in others too."""
    rates = _list_rates(mesh) if mesh.differs else ()
    for layout in _list_plain(extents, _find_shape(mesh, team), space, replicas):
        even = replace(layout, cells=_seat(layout.cells, team, mesh.size))
        yield even
        yield from (_size_parts(even, rate) for rate in rates)


def _find_shape(mesh: Mesh, team: tuple[int, ...]) -> tuple[int, ...]:
    """The extents of some devices along the axes of the mesh, where they are a grid; else they are in a row."""
    places = [sorted(set(along)) for along in zip(*map(mesh.coordinates, team), strict=True)]
    shape = tuple(map(len, places))
    return (
        (tuple(n for n in shape if n > 1) or (1,))
        if prod(shape) == len(team) < mesh.size
        else (mesh.shape if len(team) == mesh.size else (len(team),))
    )


def _seat(
    cells: Sequence[tuple[int, ...] | None], team: tuple[int, ...], size: int
) -> tuple[tuple[int, ...] | None, ...]:
    """Parts of a team's devices as those of a mesh of some size."""
    mine = dict(zip(team, cells, strict=True))
    return tuple(mine.get(device) for device in range(size))


def _size_parts(layout: Layout, rate: Sequence[float]) -> Layout:
    """The same parts in sizes that devices of some rates work through in about the same time; as it is if even."""
    # Devices with one part do the same, so that the slowest of them counts. Along each axis a slab of parts is sized by
    # what its devices do together:     rates   1 1    rows 2 : 6
    #                                           3 3    columns 4 : 4
    slowest: dict[tuple[int, ...], float] = {}
    for cell, mine in zip(layout.cells, rate, strict=True):
        if cell is not None:
            slowest[cell] = min(mine, slowest.get(cell, inf))
    sizes = []
    for axis, (n, parts) in enumerate(zip(layout.extents, layout.parts, strict=True)):
        wanted = [sum(mine for cell, mine in slowest.items() if cell[axis] == part) for part in range(parts)]
        sizes.append(share_out(n, wanted))
    return replace(layout, sizes=leave_out_even(layout.extents, sizes))


def leave_out_even(extents: Sequence[int], sizes: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """The sizes of parts along each axis as layouts have them: none where they are even along all axes.

    Examples
    --------
    >>> leave_out_even((5, 2), [(3, 2), (2,)]), leave_out_even((5, 2), [(2, 3), (2,)])
    ((), ((2, 3), (2,)))
    """
    cuts = (parts_of(n, len(mine)) for n, mine in zip(extents, sizes, strict=bool(sizes)))
    even = [tuple(high - low for low, high in cut) for cut in cuts]
    return () if list(sizes) == even else tuple(sizes)


def share_out(n: int, wanted: Sequence[float]) -> tuple[int, ...]:
    """Whole numbers above zero whose sum is given, as near to some proportions as can be.

    Examples
    --------
    >>> share_out(10, [1, 3]), share_out(4, [1e-9, 1, 1])
    ((3, 7), (1, 2, 1))
    """
    most = max(wanted)
    exact = [n * mine / most / sum(each / most for each in wanted) for mine in wanted]
    sizes = [max(1, int(mine)) for mine in exact]
    while (more := n - sum(sizes)) != 0:
        step = 1 if more > 0 else -1
        open_ = [k for k, mine in enumerate(sizes) if mine + step >= 1]
        at = max(open_, key=lambda k: (step * (exact[k] - sizes[k]), -k))
        sizes[at] += step
    return tuple(sizes)


@lru_cache(maxsize=4096)
def list_mesh_layouts(extents: tuple[int, ...], shape: tuple[int, ...], *, replicas: bool = True) -> tuple[Layout, ...]:
    """Every layout in which each axis of the mesh cuts one index axis, holds replicas, or idles.

    So there are at most (rank + 2)^(mesh axes) ways, however many devices. Several axes of the mesh may cut one
    index axis, in the order of the mesh. Where that makes more parts than the index axis has points, there are as many
    parts as points, and the devices beyond them idle. On an idle axis of the mesh only the first device works. Where
    parts differ, as of 10 points over 2 × 4 devices, they are cut as evenly as can be, and also axis after axis of the
    mesh, so that four devices together have what one of two would::

        at once     2 2 1 1 │ 1 1 1 1     6 points and 4
        in turn     2 1 1 1 │ 2 1 1 1     5 points and 5

    A mesh of one axis says nothing of how its devices are wired, so that two axes stand for it: 8 devices as 2 × 4, and
    64 as 8 × 8; its parts are cut at once.

    Parameters
    ----------
    extents : tuple of int
        Sizes of the index axes.
    shape : tuple of int
        Devices along each axis of the mesh.
    replicas : bool
        Whether placements with replicas are wanted.

    Examples
    --------
    >>> found = list_mesh_layouts((6, 5), (2, 3))
    >>> len(found), sorted({layout.parts for layout in found})
    (16, [(1, 1), (1, 2), (1, 3), (1, 5), (2, 1), (2, 3), (3, 1), (3, 2), (6, 1)])
    """
    in_turn = len(shape) > 1
    if not in_turn:
        small = max(d for d in range(1, isqrt(shape[0]) + 1) if shape[0] % d == 0)
        shape = (small, shape[0] // small)
    roles = (*range(len(extents)), *((REPLICAS,) if replicas else ()), IDLE)
    found: dict[Layout, None] = {}
    for chosen in product(roles, repeat=len(shape)):
        layout = _lay_along(extents, shape, chosen)
        found[layout] = None
        if in_turn:
            found[_cut_in_turn(layout, shape, chosen)] = None
    return tuple(found)


def _lay_along(extents: tuple[int, ...], shape: tuple[int, ...], roles: Sequence[int]) -> Layout:
    """The layout in which each axis of a mesh has a role: the index axis that it cuts, REPLICAS or IDLE."""
    at = np.indices(shape).reshape(len(shape), -1)
    works = np.ones(prod(shape), bool)
    numbers = np.zeros((len(extents), prod(shape)), np.int64)
    for along, n, role in zip(at, shape, roles, strict=True):
        if role == IDLE:
            works &= along == 0
        elif role != REPLICAS:
            numbers[role] = numbers[role] * n + along
    wanted = [prod(n for n, role in zip(shape, roles, strict=True) if role == axis) for axis in range(len(extents))]
    parts = tuple(min(n, extent) for n, extent in zip(wanted, extents, strict=True))
    works &= (numbers < np.reshape(parts, (-1, 1))).all(axis=0)
    cells = (tuple(cell) if busy else None for cell, busy in zip(numbers.T.tolist(), works.tolist(), strict=True))
    return Layout(extents, parts, tuple(cells))


def _cut_in_turn(layout: Layout, shape: tuple[int, ...], roles: Sequence[int]) -> Layout:
    """The layout in which parts are cut along one axis of the mesh after the other; as it is if some are empty then."""
    sizes = []
    for axis, extent in enumerate(layout.extents):
        mine = [extent]
        for n, role in zip(shape, roles, strict=True):
            if role == axis:
                mine = [high - low for part in mine for low, high in parts_of(part, n)] if n <= min(mine) else []
                if not mine:
                    return layout
        sizes.append(tuple(mine))
    return replace(layout, sizes=leave_out_even(layout.extents, sizes))


@lru_cache(maxsize=4096)
def list_layouts(extents: tuple[int, ...], devices: int, *, replicas: bool = True) -> tuple[Layout, ...]:
    """Every layout of the whole space: any factorization over any axes, in any order of the axes.

    The products of the parts are the divisors of the number of devices, and where no factorization reaches
    that number, also the largest product that can be reached. The parts take the devices row-major over the
    axes in each of their orders. A product below the number of devices comes in two placements: trailing
    replicas (if it divides evenly), and the remaining devices idle.

    Parameters
    ----------
    extents : tuple of int
        Sizes of the index axes; an axis is never cut into more parts than it has points.
    devices : int
    replicas : bool
        Whether placements with replicas are wanted.
    """
    products = [k for k in range(devices, 0, -1) if devices % k == 0]
    cuts = {k: list(_factorizations(k, extents)) for k in products}
    if not cuts[devices]:
        largest = next(k for k in range(devices, 0, -1) for _ in _factorizations(k, extents))
        cuts.setdefault(largest, list(_factorizations(largest, extents)))
    out: dict[Layout, None] = {}
    for k in sorted(cuts, reverse=True):
        for parts in cuts[k]:
            cut_axes = [axis for axis, n in enumerate(parts) if n > 1]
            for order in permutations(cut_axes):
                if replicas and k < devices and devices % k == 0:
                    out[_lay(extents, parts, devices, devices // k, order)] = None
                out[_lay(extents, parts, devices, 1, order)] = None
    return tuple(out)


def sort_layouts(options: Iterable[Layout], axes: Sequence[Axis]) -> tuple[Layout, ...]:
    """Layouts in an order that does not depend on the order of the axes: the first of equally good ones is taken."""
    order = sorted(range(len(axes)), key=lambda k: axes[k].name)

    def key(layout: Layout) -> tuple[Any, ...]:
        cells = [() if cell is None else tuple(cell[k] for k in order) for cell in layout.cells]
        sizes = tuple(layout.sizes[k] for k in order) if layout.sizes else ()
        return -prod(layout.parts), cells.count(()), tuple(layout.parts[k] for k in order), cells, sizes

    return tuple(sorted(options, key=key))


def _lay(extents: tuple[int, ...], parts: tuple[int, ...], devices: int, copies: int, order: Sequence[int]) -> Layout:
    """Parts over the devices, row-major over the axes of `order`, each part on `copies` devices in turn."""
    cells: list[tuple[int, ...] | None] = [None] * devices
    for device in range(prod(parts) * copies):
        at = dict(zip(order, point_of(device // copies, [parts[axis] for axis in order]), strict=True))
        cells[device] = tuple(at.get(axis, 0) for axis in range(len(parts)))
    return Layout(extents, parts, tuple(cells))


def _factorizations(product: int, extents: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Tuples of parts, no more than the extents, whose product is given."""
    if not extents:
        if product == 1:
            yield ()
        return
    for first in range(1, min(product, extents[0]) + 1):
        if product % first == 0:
            for rest in _factorizations(product // first, extents[1:]):
                yield (first, *rest)


def parse_layout(axes: Sequence[Axis], wanted: Mapping[str, Any], mesh: Mesh, where: str) -> Layout:
    """The one layout that a user asks for: axis name to a number of parts or to mesh axes by name.

    Numbers take the devices in the order of the axes, row-major; the remaining devices are trailing
    replicas if they divide evenly, else idle. Mesh axes that are not named hold replicas.

    Raises
    ------
    ValueError
        For unknown axes, more parts than points or than devices, a mesh axis used twice, and numbers and
        names mixed.
    """
    known = {name: k for k, axis in enumerate(axes) for name in (axis.name, axis.alias) if name}
    parts = [1] * len(axes)
    named: dict[int, tuple[str, ...]] = {}
    given: dict[int, Any] = {}
    for name, value in wanted.items():
        if name not in known:
            near = list_names([a.name for a in axes], name, "axes")
            raise ValueError(f"{where}: there is no axis {quote(name)}; {near}")
        axis = known[name]
        if axis in given:
            raise ValueError(
                f"{where}: {quote(given[axis])} and {quote(name)} are one axis, which is given twice; give it once"
            )
        given[axis] = name
        parts[axis] = parse_parts(value, mesh, f"{where}[{quote(name)}]")
        if parts[axis] > axes[axis].size:
            raise ValueError(
                f"{where}: axis {quote(name)} has {axes[axis].size} points, not {parts[axis]} parts; give at most as "
                "many parts as points"
            )
        if not axes[axis].may_have(parts[axis]):
            kept = "is not cut" if axes[axis].parts == "one" else f"of {axes[axis].size} is cut into equal parts only"
            raise ValueError(f"{where}: axis {quote(name)} {kept}, not into {parts[axis]} parts")
        if not hasattr(value, "__index__"):
            named[axis] = (value,) if isinstance(value, str) else tuple(value)
    extents = tuple(axis.size for axis in axes)
    if named:
        return _parse_named(extents, tuple(parts), named, mesh, where)
    product = prod(parts)
    if product > mesh.size:
        raise ValueError(f"{where}: {product} parts asked for, the mesh has {mesh.size} devices")
    copies = mesh.size // product if mesh.size % product == 0 else 1
    return _lay(extents, tuple(parts), mesh.size, copies, range(len(parts)))


def _parse_named(
    extents: tuple[int, ...],
    parts: tuple[int, ...],
    named: Mapping[int, tuple[str, ...]],
    mesh: Mesh,
    where: str,
) -> Layout:
    used = [name for names in named.values() for name in names]
    if len(set(used)) != len(used):
        raise ValueError(f"{where}: a mesh axis is used twice in {used}; name each once")
    if any(n > 1 and axis not in named for axis, n in enumerate(parts)):
        raise ValueError(f"{where}: numbers of parts and names of mesh axes are mixed; use one of them")
    along = [[mesh.names.index(name) for name in named.get(axis, ())] for axis in range(len(extents))]
    cells = tuple(
        tuple(number_of([at[k] for k in axes], [mesh.shape[k] for k in axes]) for axes in along)
        for at in map(mesh.coordinates, range(mesh.size))
    )
    return Layout(extents, parts, cells)
