"""Machines from files: what is known by name, and what a user describes, as the fields of a mesh."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from tapestry_plan.steps.layouts.rates import Device, Link
from tapestry_sets.limits import list_names, quote

SHIPPED = Path(__file__).with_name("machines.toml")
FIELDS = {"shape", "names", "device", "link", "host"}
RATES = {
    Device: ("flop_per_second", "memory_nbytes_per_second"),
    Link: ("latency_seconds", "nbytes_per_second"),
}
"""What a table of a file must say; without the whole table it is as for the machine `cpu4`."""


def read_machine(path: str | Path) -> dict[str, Any]:
    """The fields of the mesh that a TOML file describes; a ValueError names what is wrong in it, and where."""
    return _parse_machine(_read_toml(Path(path)), str(path))


def find_machine(name: str) -> dict[str, Any]:
    """The fields of one of the machines that come along, by name; a ValueError lists them.

    Examples
    --------
    >>> find_machine("h100x64")["shape"]
    [8, 8]
    """
    known = _shipped()
    if name not in known:
        raise ValueError(
            f"there is no machine {quote(name)}; {list_names(sorted(known), name, 'machines')}, or give a file that "
            "ends in .toml"
        )
    return _parse_machine(known[name], name)


def list_machines() -> list[str]:
    """The names of the machines that come along.

    Examples
    --------
    >>> "h100x8" in list_machines()
    True
    """
    return sorted(_shipped())


@cache
def _shipped() -> dict[str, Any]:
    return _read_toml(SHIPPED)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes()
    except OSError as error:
        raise type(error)(
            f"machine {path}: there is no file to be read ({error.strerror}); give the path of a TOML file such as "
            "`tapestry calibrate FILE.toml` writes, or take a machine by name: Mesh.named('h100x8')"
        ) from None
    try:
        return tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"machine {path}: not TOML: {error}") from None


def _parse_machine(entry: Mapping[str, Any], where: str) -> dict[str, Any]:
    if unknown := sorted(entry.keys() - FIELDS):
        known = list_names(sorted(FIELDS), unknown[0], "fields")
        raise ValueError(f"machine {where}: there is no field {quote(unknown[0])}; {known}")
    if "shape" not in entry:
        raise ValueError(f"machine {where}: field 'shape' is missing; give the devices along each axis, as [8, 8]")
    fields = dict(entry)
    if "link" in fields:
        fields["link"] = _parse_links(fields["link"], f"machine {where}: link")
    if "host" in fields:
        fields["host"] = _parse_rates(Link, fields["host"], f"machine {where}: host")
    if isinstance(fields.get("device"), list):
        each = enumerate(fields["device"])
        fields["device"] = [_parse_rates(Device, one, f"machine {where}: device[{k}]") for k, one in each]
    elif "device" in fields:
        fields["device"] = _parse_rates(Device, fields["device"], f"machine {where}: device")
    return fields


def write_machine(fields: Mapping[str, Any]) -> str:
    """The text of a TOML file that describes a machine, from the fields of its mesh: `read_machine` gives them back.

    Examples
    --------
    >>> print(write_machine({"shape": (2,), "link": Link(1e-6, 1e9), "device": (Device(1e12), Device(3e12))}))
    shape = [2]
    link = { latency_seconds = 1e-06, nbytes_per_second = 1000000000.0 }
    device = [
        { flop_per_second = 1000000000000.0, memory_nbytes_per_second = 20000000000.0 },
        { flop_per_second = 3000000000000.0, memory_nbytes_per_second = 20000000000.0 },
    ]
    """
    lines = []
    for name, value in fields.items():
        if name == "link" and not isinstance(value, Link):
            lines += [f"link.{_write(axis)} = {_write(one)}" for axis, one in zip(fields["names"], value, strict=True)]
        elif name == "device" and not isinstance(value, Device):
            lines += ["device = [", *(f"    {_write(one)}," for one in value), "]"]
        else:
            lines.append(f"{name} = {_write(value)}")
    return "\n".join(lines)


def _write(value: object) -> str:
    """A value in TOML; of rates those that a file must say, and those that are not the usual ones."""
    match value:
        case Device() | Link():
            usual = type(value)()
            names = [
                name
                for name in value.__struct_fields__
                if name in RATES[type(value)] or getattr(value, name) != getattr(usual, name)
            ]
            return "{ " + ", ".join(f"{name} = {_write(getattr(value, name))}" for name in names) + " }"
        case str():
            return json.dumps(value, ensure_ascii=False)
        case tuple() | list():
            return "[" + ", ".join(map(_write, value)) + "]"
        case float():
            return repr(value)
        case _:
            return str(value)


def _parse_links(entry: object, where: str) -> Any:
    """A link for all axes, or a link or another axis for each by name."""
    if isinstance(entry, Mapping) and any(isinstance(value, Mapping | str) for value in entry.values()):
        return {
            name: value if isinstance(value, str) else _parse_rates(Link, value, f"{where}.{name}")
            for name, value in entry.items()
        }
    return _parse_rates(Link, entry, where)


def _parse_rates(kind: type[Device] | type[Link], entry: object, where: str) -> Device | Link:
    names = kind.__struct_fields__
    if not isinstance(entry, Mapping):
        raise ValueError(f"{where} is {quote(entry)}; give a table of {', '.join(names)}")
    if unknown := sorted(entry.keys() - set(names)):
        raise ValueError(f"{where}: there is no field {quote(unknown[0])}; {list_names(names, unknown[0], 'fields')}")
    try:
        found = kind(**entry)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None
    if missing := [name for name in RATES[kind] if name not in entry]:
        table = where.rpartition(" ")[2].partition(".")[0].partition("[")[0]
        raise ValueError(
            f"{where}: {quote(missing[0])} is missing; give it too, or leave out all of {table}, whose rates are those "
            "of the machine 'cpu4' then"
        )
    return found
