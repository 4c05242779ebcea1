"""Meshes: the devices that a plan runs on, and the links between them."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, prod
from typing import Literal

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
    """

    flop_per_second: float = tuning.FLOP_PER_SECOND
    memory_nbytes_per_second: float = tuning.MEMORY_NBYTES_PER_SECOND

    def __post_init__(self) -> None:
        _check_positive("Device", "flop_per_second", self.flop_per_second)
        _check_positive("Device", "memory_nbytes_per_second", self.memory_nbytes_per_second)


class Link(Struct, frozen=True):
    """The link into a device: seconds before the first byte, and bytes in a second."""

    latency_seconds: float = tuning.LATENCY_SECONDS
    nbytes_per_second: float = tuning.NBYTES_PER_SECOND

    def __post_init__(self) -> None:
        if not isfinite(self.latency_seconds) or self.latency_seconds < 0:
            raise ValueError(f"Link: latency_seconds is {self.latency_seconds}, it must be finite and >= 0")
        _check_positive("Link", "nbytes_per_second", self.nbytes_per_second)


class Mesh(Struct, frozen=True):
    """A grid of equal devices, numbered in row-major order.

    Parameters
    ----------
    shape : tuple of int
        Devices along each axis of the mesh; an int makes a mesh of one axis.
    names : tuple of str, optional
        Names of the axes, ``x y z …`` by default.
    link, device : Link, Device
        The same for all devices.
    host : Link
        Between each device and the host's memory, for each device alone: what spilling takes.

    Examples
    --------
    >>> Mesh((2, 2)).size
    4
    >>> Mesh((2, 0))
    Traceback (most recent call last):
    ...
    ValueError: Mesh: axis 1 of (2, 0) has 0 devices; every axis needs at least 1
    """

    shape: tuple[int, ...]
    names: tuple[str, ...] = ()
    link: Link = field(default_factory=Link)
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

    @property
    def size(self) -> int:
        """Number of devices."""
        return prod(self.shape)

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


def _check_positive(what: str, name: str, value: float) -> None:
    if not isfinite(value) or value <= 0:
        raise ValueError(f"{what}: {name} is {value}, it must be finite and > 0")


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
