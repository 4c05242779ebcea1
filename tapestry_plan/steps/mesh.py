"""Meshes: the devices that a plan runs on, and the links between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite, prod
from typing import Any, Literal

import numpy as np
from msgspec import Struct, field
from msgspec.structs import force_setattr

from tapestry_plan.steps import tuning
from tapestry_sets.digits import point_of
from tapestry_sets.limits import as_int, as_ints

Space = Literal["mesh", "all"]
"""Which layouts a search compares: those that cut along the mesh's axes, or every factorization of the devices."""


class Device(Struct, frozen=True):
    """The rates of one device; by default of a processor of a few cores.

    Parameters
    ----------
    flop_per_second : float
    memory_nbytes_per_second : float
    launch_seconds : float
        What it takes to start one computation: of an operator's shard, or of a merge of partial results.
    """

    flop_per_second: float = tuning.FLOP_PER_SECOND
    memory_nbytes_per_second: float = tuning.MEMORY_NBYTES_PER_SECOND
    launch_seconds: float = tuning.LAUNCH_SECONDS

    def __post_init__(self) -> None:
        _check_rate("Device", "flop_per_second", self.flop_per_second)
        _check_rate("Device", "memory_nbytes_per_second", self.memory_nbytes_per_second)
        _check_wait("Device", "launch_seconds", self.launch_seconds)


class Link(Struct, frozen=True):
    """What a device sends and receives through, both at once.

    Parameters
    ----------
    latency_seconds : float
        Before the first byte of each message.
    nbytes_per_second : float
        In each of the two directions.
    """

    latency_seconds: float = tuning.LATENCY_SECONDS
    nbytes_per_second: float = tuning.NBYTES_PER_SECOND

    def __post_init__(self) -> None:
        _check_wait("Link", "latency_seconds", self.latency_seconds)
        _check_rate("Link", "nbytes_per_second", self.nbytes_per_second)


class Mesh(Struct, frozen=True):
    """A grid of equal devices, numbered in row-major order.

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
        in order; those work at the same time.
    device : Device
        The same for all devices.
    host : Link
        Between each device and the host's memory, for each device alone: what spilling takes.

    Examples
    --------
    >>> Mesh((2, 2)).size
    4
    >>> ethernet, nvlink = Link(1e-5, 1e9), Link(1e-6, 1e11)
    >>> Mesh((2, 4), link={"x": ethernet, "y": nvlink}).ports == (ethernet, nvlink)
    True
    >>> Mesh((2, 0))
    Traceback (most recent call last):
    ...
    ValueError: Mesh: axis 1 of (2, 0) has 0 devices; every axis needs at least 1
    """

    shape: tuple[int, ...]
    names: tuple[str, ...] = ()
    link: Link | tuple[Link, ...] = field(default_factory=Link)
    device: Device = field(default_factory=Device)
    host: Link = field(default_factory=Link)

    def __post_init__(self) -> None:
        if isinstance(self.shape, str) or not isinstance(self.shape, int | Sequence):
            raise TypeError(f"Mesh: shape is {self.shape!r}; give a number of devices or one for each axis")
        given = (self.shape,) if isinstance(self.shape, int) else tuple(self.shape)
        shape = as_ints(given, "Mesh: numbers of devices")
        for axis, n in enumerate(shape):
            if n < 1:
                raise ValueError(f"Mesh: axis {axis} of {shape} has {n} devices; every axis needs at least 1")
        if prod(shape) > tuning.MAX_DEVICES:
            raise ValueError(f"Mesh: {shape} has {prod(shape)} devices; at most {tuning.MAX_DEVICES} can be planned")
        names = tuple(self.names) or tuple("xyzuvwabcdefghij"[: len(shape)])
        if len(names) != len(shape) or len(set(names)) != len(names):
            raise ValueError(f"Mesh: names {names} do not name the {len(shape)} axes of {shape} one by one")
        force_setattr(self, "shape", shape)
        force_setattr(self, "names", names)
        force_setattr(self, "link", _parse_link(self.link, names))
        for name, kind in (("device", Device), ("host", Link)):
            if not isinstance(getattr(self, name), kind):
                raise TypeError(f"Mesh: {name} is {getattr(self, name)!r}, it must be a {kind.__name__}")

    @property
    def size(self) -> int:
        """Number of devices."""
        return prod(self.shape)

    @property
    def ports(self) -> tuple[Link, ...]:
        """The links that each device has: one for everything, or one for each axis."""
        return (self.link,) if isinstance(self.link, Link) else self.link

    @classmethod
    def parse(cls, text: str) -> Mesh:
        """A mesh from ``"4"`` or ``"2x2"``; a ValueError names the part that could not be read."""
        parts = text.lower().replace("×", "x").split("x")
        if not all(part.strip().isdecimal() for part in parts):
            raise ValueError(f"mesh {text!r} is not numbers joined by 'x'; write for example 4 or 2x2")
        return cls(tuple(int(part) for part in parts))

    def coordinates(self, device: int) -> tuple[int, ...]:
        """Position of a device in the mesh."""
        return point_of(device, self.shape)


def _parse_link(link: Any, names: tuple[str, ...]) -> Link | tuple[Link, ...]:
    """One link, or one for each axis in their order."""
    if isinstance(link, Link):
        return link
    if isinstance(link, str) or not isinstance(link, Mapping | Sequence):
        raise TypeError(f"Mesh: link is {link!r}, it must be a Link, or one for each axis as {{{names[0]!r}: Link()}}")
    if isinstance(link, Mapping):
        for name in link:
            if name not in names:
                raise ValueError(f"Mesh: link has {name!r}, which is not an axis of the mesh; the axes are {names}")
        for name in names:
            if name not in link:
                raise ValueError(f"Mesh: link has none for axis {name!r}; give one for each of {names}, or one for all")
        link = [link[name] for name in names]
    if len(link) != len(names):
        raise ValueError(f"Mesh: link has {len(link)} entries; give one for each of the axes {names}, or one for all")
    for name, one in zip(names, link, strict=True):
        if not isinstance(one, Link):
            raise TypeError(f"Mesh: link[{name!r}] is {one!r}, it must be a Link, as Link(1e-6, 1e10)")
    return tuple(link)


def _check_number(what: str, name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"{what}: {name} is {value!r}, it must be a number")


def _check_rate(what: str, name: str, value: float) -> None:
    _check_number(what, name, value)
    if not isfinite(value) or value <= 0:
        raise ValueError(f"{what}: {name} is {value}, it must be finite and > 0")


def _check_wait(what: str, name: str, value: float) -> None:
    _check_number(what, name, value)
    if not isfinite(value) or value < 0:
        raise ValueError(f"{what}: {name} is {value}, it must be finite and >= 0")


def align(nbytes: int) -> int:
    """`nbytes` rounded up to the alignment of an arena."""
    return -(-nbytes // tuning.ALIGNMENT_NBYTES) * tuning.ALIGNMENT_NBYTES


def parse_parts(value: int | str | Sequence[str], mesh: Mesh, where: str) -> int:
    """Number of parts that a value of `fix` or `layout` asks for: an int or mesh axes by name."""
    if isinstance(value, str):
        value = (value,)
    if isinstance(value, Sequence):
        unknown = [name for name in value if name not in mesh.names]
        if unknown:
            raise ValueError(f"{where}: mesh axis {unknown[0]!r} is not one of {mesh.names}")
        return prod(mesh.shape[mesh.names.index(name)] for name in value)
    try:
        parts = as_int(value, where)
    except TypeError:
        raise TypeError(f"{where}: {value!r} is not a number of parts; give an integer or names of mesh axes") from None
    if not 1 <= parts <= mesh.size:
        raise ValueError(
            f"{where}: {parts} parts asked for, the mesh has {mesh.size} devices; give a number from 1 to {mesh.size}"
        )
    return parts
