"""Meshes: the devices that a plan runs on, and the links between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, prod
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from msgspec import Struct, field
from msgspec.structs import force_setattr, replace
from numpy.typing import NDArray

from tapestry_plan.ir import Shown
from tapestry_plan.steps import tuning
from tapestry_plan.steps.layouts.machines import find_machine, read_machine, write_machine
from tapestry_plan.steps.layouts.rates import Device, Link, tell_link
from tapestry_sets.digits import point_of
from tapestry_sets.limits import (
    Public,
    as_int,
    check_arguments,
    check_fields,
    conform,
    cut_text,
    kind_of,
    list_names,
    quote,
)

N = TypeVar("N", int, NDArray[np.int64])

NAMES = "xyzuvwabcdefghij"
"""Of the axes of meshes whose axes are not named."""

Space = Literal["mesh", "all"]
"""Which layouts a search compares: those that cut along the mesh's axes, or every factorization of the devices."""


class Mesh(Shown, Struct, frozen=True, metaclass=Public):
    """A grid of devices, numbered in row-major order.

    Devices that are near each other, as on one machine, lie along the last axes: what two devices exchange goes over
    the link of the outermost axis on which their coordinates differ. So does a transfer between machines, which crosses
    the network once wherever in the machines it begins and ends; what it adds inside them is faster, and not counted.

    Parameters
    ----------
    shape : tuple of int
        Devices along each axis of the mesh; an int makes a mesh of one axis.
    names : tuple of str, optional
        Names of the axes, ``x y z …`` by default.
    link : Link, or Link for each axis
        One link through which a device sends and receives everything, or one for each axis, by name, ``{"x": …}``, or
        in order; those work at the same time. The name of another axis in place of a link says that it goes through
        that axis' link, as where several axes of the mesh lie behind one switch.
    device : Device, or sequence of Device
        The same for all devices, or one for each, in the order of their numbers.
    host : Link
        Between each device and the host's memory, for each device alone: what spilling takes.

    Examples
    --------
    >>> from tapestry_plan import Device, Link, Mesh
    >>> Mesh((2, 2)).size
    4
    >>> ethernet, nvlink = Link(1e-5, 1e9), Link(1e-6, 1e11)
    >>> Mesh((2, 4), link={"x": ethernet, "y": nvlink}).ports == (ethernet, nvlink)
    True
    >>> Mesh(2, device=[Device(flop_per_second=3e12), Device(flop_per_second=1e12)]).differs
    True
    >>> Mesh((2, 0))
    Traceback (most recent call last):
    ...
    ValueError: Mesh: axis 1 of (2, 0) has 0 devices; every axis needs at least 1
    """

    shape: tuple[int, ...]
    names: tuple[str, ...] = ()
    link: Link | tuple[Link | str, ...] = field(default_factory=Link)
    device: Device | tuple[Device, ...] = field(default_factory=Device)
    host: Link = field(default_factory=Link)

    def __post_init__(self) -> None:
        shape = (conform(self.shape, kind_of(int | Sequence[int]), "Mesh: shape"),)
        if not isinstance(shape[0], int):
            shape = tuple(shape[0])
        if not shape:
            raise ValueError("Mesh: shape is (); give the devices of one axis at least, as 4 or (2, 2)")
        for axis, n in enumerate(shape):
            if n < 1:
                raise ValueError(f"Mesh: axis {axis} of {quote(shape)} has {n} devices; every axis needs at least 1")
        if prod(shape) > tuning.MAX_DEVICES:
            raise ValueError(
                f"Mesh: {quote(shape)} has {prod(shape)} devices; at most {tuning.MAX_DEVICES} can be planned"
            )
        names = tuple(
            conform(self.names, kind_of(Sequence[str]), "Mesh: names", "give one for each axis, as ('x', 'y')")
        ) or tuple(NAMES[: len(shape)])
        if len(names) != len(shape) or len(set(names)) != len(names):
            raise ValueError(
                f"Mesh: names {quote(names)} do not name the {len(shape)} axes of {quote(shape)} one by one; "
                "give each its own"
            )
        force_setattr(self, "shape", shape)
        force_setattr(self, "names", names)
        force_setattr(self, "link", _parse_link(self.link, names))
        force_setattr(self, "device", _parse_device(self.device, prod(shape), shape))
        check_fields(self)

    def __repr__(self) -> str:
        axes = cut_text(", ".join(f"{name}:{n}" for name, n in zip(self.names, self.shape, strict=True)), 60)
        links = list(dict.fromkeys(self.ports))
        more = "" if len(links) == 1 else f" and {len(links) - 1} others"
        one = self.fastest
        rates = f"{one.flop_per_second / 1e12:g} TFLOP/s, {one.memory_nbytes_per_second / 1e9:g} GB/s"
        which = "devices differ, up to" if self.differs else "devices"
        return f"Mesh({axes}; links {tell_link(links[0])}{more}; {which} {rates})"

    @property
    def size(self) -> int:
        """Number of devices.

        Examples
        --------
        >>> from tapestry_plan import Mesh
        >>> Mesh((2, 3)).size
        6
        """
        return prod(self.shape)

    @property
    def devices(self) -> tuple[Device, ...]:
        """The rates and memory of each device, by number.

        Examples
        --------
        >>> from tapestry_plan import Mesh
        >>> len(Mesh((2, 3)).devices)
        6
        """
        return (self.device,) * self.size if isinstance(self.device, Device) else self.device

    @property
    def differs(self) -> bool:
        """Whether devices differ from each other.

        Examples
        --------
        >>> from tapestry_plan import Device, Mesh
        >>> fast, slow = Device(flop_per_second=3e12), Device(flop_per_second=1e12)
        >>> Mesh(2).differs, Mesh(2, device=[fast, slow]).differs
        (False, True)
        """
        return not isinstance(self.device, Device)

    @check_arguments
    def limit_memory(self, memory_nbytes: int | None = None) -> tuple[int, ...] | None:
        """Bytes that each device's arena may have: its own memory, and no more than is given; None for no limit.

        Examples
        --------
        >>> from tapestry_plan import Device, Mesh
        >>> Mesh(2, device=[Device(memory_nbytes=8 << 20), Device(memory_nbytes=2 << 20)]).limit_memory(4 << 20)
        (4194304, 2097152)
        """
        limits = [[n for n in (one.memory_nbytes, memory_nbytes) if n is not None] for one in self.devices]
        return tuple(map(min, limits)) if all(limits) else None

    @property
    def fastest(self) -> Device:
        """A device that is as fast in everything as any of them.

        Examples
        --------
        >>> from tapestry_plan import Device, Mesh
        >>> Mesh(2, device=[Device(flop_per_second=3e12), Device(flop_per_second=1e12)]).fastest.flop_per_second
        3000000000000.0
        """
        each = self.devices
        packing = max(one.packing_rate for one in each)
        return Device(
            max(one.flop_per_second for one in each),
            max(one.memory_nbytes_per_second for one in each),
            min(one.launch_seconds for one in each),
            cell_flop_per_second=max(one.cell_rate for one in each),
            operand_seconds=min(one.operand_seconds for one in each),
            packed_nbytes_per_second=None if packing == inf else packing,
        )

    @property
    def kinds(self) -> tuple[tuple[Device, tuple[int, ...]], ...]:
        """The devices that differ, each with the numbers of those that are so.

        Examples
        --------
        >>> from tapestry_plan import Device, Mesh
        >>> fast, slow = Device(flop_per_second=3e12), Device(flop_per_second=1e12)
        >>> [numbers for device, numbers in Mesh(3, device=[fast, slow, fast]).kinds]
        [(0, 2), (1,)]
        """
        if isinstance(self.device, Device):
            return ((self.device, tuple(range(self.size))),)
        numbers: dict[Device, list[int]] = {}
        for number, device in enumerate(self.device):
            numbers.setdefault(device, []).append(number)
        return tuple((device, tuple(mine)) for device, mine in numbers.items())

    @property
    def ports(self) -> tuple[Link, ...]:
        """The links that each device has: one for everything, or one for each axis that has its own.

        Examples
        --------
        >>> from tapestry_plan import Link, Mesh
        >>> len(Mesh((2, 3)).ports), len(Mesh((2, 3), link={"x": Link(), "y": Link(1e-5)}).ports)
        (1, 2)
        """
        return (self.link,) if isinstance(self.link, Link) else tuple(one for one in self.link if isinstance(one, Link))

    @property
    def prices_packing(self) -> bool:
        """Whether contractions take time to pack their operands on some device.

        Examples
        --------
        >>> from tapestry_plan import Device, Mesh
        >>> Mesh(2).prices_packing, Mesh(2, device=Device(packed_nbytes_per_second=1e10)).prices_packing
        (False, True)
        """
        return any(device.packed_nbytes_per_second for device, _ in self.kinds)

    @property
    def prices_runs(self) -> bool:
        """Whether the runs of which messages are take time over some link.

        Examples
        --------
        >>> from tapestry_plan import Link, Mesh
        >>> Mesh(2).prices_runs, Mesh(2, link=Link(run_seconds=1e-9)).prices_runs
        (False, True)
        """
        return any(link.run_seconds for link in self.ports)

    @property
    def ports_of_axes(self) -> tuple[int, ...]:
        """For each axis the number, in `ports`, of the link that what crosses the axis goes over.

        Examples
        --------
        >>> from tapestry_plan import Link, Mesh
        >>> Mesh((2, 3), link={"x": Link(), "y": Link(1e-5)}).ports_of_axes
        (0, 1)
        """
        if isinstance(self.link, Link):
            return (0,) * len(self.shape)
        own = [name for name, one in zip(self.names, self.link, strict=True) if isinstance(one, Link)]
        through = (one if isinstance(one, str) else name for name, one in zip(self.names, self.link, strict=True))
        return tuple(map(own.index, through))

    @classmethod
    @check_arguments
    def named(cls, name: str) -> Mesh:
        """One of the machines that come along, as ``"h100x8"``; a ValueError lists them.

        Examples
        --------
        >>> from tapestry_plan import Mesh
        >>> Mesh.named("h100x64").shape, Mesh.named("h100x64").regroup((4, 2, 8)).names
        ((8, 8), ('x', 'y', 'z'))
        """
        return cls(**find_machine(name))

    @classmethod
    @check_arguments
    def from_toml(cls, path: str | Path) -> Mesh:
        """The machine that a TOML file describes: `shape`, and if it says so `names`, `device`, `link` and `host`.

        A device that it tells has `flop_per_second` and `memory_nbytes_per_second`, a link both of its rates.

        Raises
        ------
        FileNotFoundError, OSError
            For a file that is not there, or cannot be read.
        ValueError
            For text that is not TOML, unknown fields, and values that a mesh cannot have, each with its place.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from tapestry_plan import Mesh
        >>> rates = "{{latency_seconds = 1e-6, nbytes_per_second = {}}}".format
        >>> text = f"shape = [2, 4]\\nlink.x = {rates(1e9)}\\nlink.y = {rates(1e11)}"
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder, "mine.toml")
        ...     _ = file.write_text(text)
        ...     [link.nbytes_per_second for link in Mesh.from_toml(file).ports]
        [1000000000.0, 100000000000.0]
        """
        fields = read_machine(path)
        try:
            return cls(**fields)
        except (TypeError, ValueError) as error:
            raise ValueError(f"machine {path}: {error}") from None

    def to_toml(self) -> str:
        """The text of a file that `from_toml` reads as this mesh.

        Examples
        --------
        >>> from tapestry_plan import Mesh
        >>> print(Mesh((2, 3)).to_toml().splitlines()[0])
        shape = [2, 3]
        """
        return write_machine({name: getattr(self, name) for name in self.__struct_fields__})

    @check_arguments
    def regroup(self, shape: Sequence[int]) -> Mesh:
        """The same devices, or the first of them, along other axes: each inside of one of the axes that there are.

        Where several of the new axes lie inside of one, they go over its link.

        Raises
        ------
        ValueError
            When there are fewer devices, or an axis would go over two links.

        Examples
        --------
        >>> from tapestry_plan import Mesh
        >>> Mesh.named("h100x8").regroup((2, 4)).ports == Mesh.named("h100x8").ports
        True
        """
        made = replace(self, shape=tuple(shape), names=(), link=Link(), device=Device())
        if made.size > self.size:
            raise ValueError(
                f"the machine has {self.size} devices along {quote(self.shape)}; {quote(made.shape)} are {made.size}"
            )
        made = replace(made, device=self.device if isinstance(self.device, Device) else self.device[: made.size])
        first: dict[int, str] = {}
        link: list[Link | str] = []
        for axis, n in enumerate(made.shape):
            inner = prod(made.shape[axis + 1 :])
            port = self._find_port(inner, n, made.shape)
            link.append(first.get(port, self.ports[port]))
            first.setdefault(port, made.names[axis])
        names = self.names if made.shape == self.shape else made.names
        return replace(made, names=names, link=self.link if made.shape == self.shape else tuple(link) or self.ports[0])

    def _find_port(self, step: int, n: int, shape: tuple[int, ...]) -> int:
        """Over which link n devices exchange that lie so many numbers from each other."""
        for axis in reversed(range(len(self.shape))):
            inner = prod(self.shape[axis + 1 :])
            if n == 1 or (inner <= step and step % inner == 0 and step * n <= inner * self.shape[axis]):
                return self.ports_of_axes[axis]
        if len(self.ports) == 1:
            return 0
        raise ValueError(
            f"an axis of {n} devices in {quote(shape)} goes over two links of the machine's axes {quote(self.shape)}; "
            "divide it where these end"
        )

    @classmethod
    @check_arguments
    def parse(cls, text: str) -> Mesh:
        """A mesh from ``"4"`` or ``"2x2"``; a ValueError names the part that could not be read.

        Examples
        --------
        >>> from tapestry_plan import Mesh
        >>> Mesh.parse("2x4").shape
        (2, 4)
        """
        parts = text.lower().replace("×", "x").split("x")
        if not all(part.strip().isdecimal() for part in parts):
            raise ValueError(f"mesh text {quote(text)} is not numbers joined by 'x'; write for example 4 or 2x2")
        return cls(tuple(int(part) for part in parts))

    @check_arguments
    def coordinates(self, device: int) -> tuple[int, ...]:
        """Position of a device in the mesh; ValueError for a number that no device has.

        Examples
        --------
        >>> from tapestry_plan import Mesh
        >>> Mesh((2, 3)).coordinates(4)
        (1, 1)
        """
        if not 0 <= device < self.size:
            raise ValueError(f"Mesh.coordinates: device is {device}; the mesh has the devices 0 to {self.size - 1}")
        return point_of(device, self.shape)


def _parse_link(link: Any, names: tuple[str, ...]) -> Link | tuple[Link | str, ...]:
    """One link, or one for each axis in their order, or the name of an axis that has it."""
    if isinstance(link, Link):
        return link
    if isinstance(link, str) or not isinstance(link, Mapping | Sequence):
        raise TypeError(
            f"Mesh: link is {quote(link)}, it must be a Link, or one for each axis as {{{quote(names[0])}: Link()}}"
        )
    if isinstance(link, Mapping):
        for name in link:
            if name not in names:
                raise ValueError(
                    f"Mesh: link has {quote(name)}, which is not an axis of the mesh; {list_names(names, name, 'axes')}"
                )
        for name in names:
            if name not in link:
                raise ValueError(
                    f"Mesh: link has none for axis {quote(name)}; give one for each of {quote(names)}, or one for all"
                )
        link = [link[name] for name in names]
    if len(link) != len(names):
        raise ValueError(
            f"Mesh: link has {len(link)} entries; give one for each of the axes {quote(names)}, or one for all"
        )
    own = {name: one for name, one in zip(names, link, strict=True) if isinstance(one, Link)}
    for name, one in zip(names, link, strict=True):
        if isinstance(one, str) and one not in own:
            raise ValueError(
                f"Mesh: link[{quote(name)}] is that of axis {quote(one)}, which has none; {quote(list(own))} have one"
            )
        if not isinstance(one, Link | str):
            raise TypeError(
                f"Mesh: link[{quote(name)}] is {quote(one)}, it must be a Link, as Link(1e-6, 1e10), or another axis"
            )
    return tuple(link) if len(own) > 1 else next(iter(own.values()))


def _parse_device(device: Any, size: int, shape: tuple[int, ...]) -> Device | tuple[Device, ...]:
    """One device for all where they are equal, else one for each."""
    if isinstance(device, Device):
        return device
    if isinstance(device, str) or not isinstance(device, Sequence):
        raise TypeError(f"Mesh: device is {quote(device)}, it must be a Device, or a list of them, one for each device")
    for number, one in enumerate(device):
        if not isinstance(one, Device):
            raise TypeError(f"Mesh: device[{number}] is {quote(one)}, it must be a Device, as Device(1e13, 1e12)")
    if len(device) != size:
        raise ValueError(
            f"Mesh: device has {len(device)} entries; {quote(shape)} has {size} devices: give one for each, or one for "
            "all"
        )
    unlimited = [number for number, one in enumerate(device) if one.memory_nbytes is None]
    if 0 < len(unlimited) < size:
        raise ValueError(
            f"Mesh: device[{unlimited[0]}] has no memory_nbytes and others have; give it to all of them, or to none"
        )
    return device[0] if len(set(device)) == 1 else tuple(device)


def align(nbytes: N) -> N:
    """`nbytes` rounded up to the alignment of an arena."""
    return -(-nbytes // tuning.ALIGNMENT_NBYTES) * tuning.ALIGNMENT_NBYTES


def parse_parts(value: int | str | Sequence[str], mesh: Mesh, where: str) -> int:
    """Number of parts that a value of `fix` or `layout` asks for: an int or mesh axes by name."""
    if isinstance(value, str):
        value = (value,)
    if isinstance(value, Sequence):
        unknown = [name for name in value if name not in mesh.names]
        if unknown:
            known = list_names(mesh.names, unknown[0], "axes of the mesh")
            raise ValueError(f"{where}: {quote(unknown[0])} is not an axis of the mesh; {known}")
        return prod(mesh.shape[mesh.names.index(name)] for name in value)
    try:
        parts = as_int(value, where)
    except TypeError:
        raise TypeError(
            f"{where}: {quote(value)} is not a number of parts; give an integer, or names of mesh axes as ('x', 'y')"
        ) from None
    if not 1 <= parts <= mesh.size:
        raise ValueError(
            f"{where}: {parts} parts asked for, the mesh has {mesh.size} devices; give a number from 1 to {mesh.size}"
        )
    return parts
