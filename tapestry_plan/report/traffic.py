"""Which bytes go from device to device: a map of all pairs, and the transfers of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tapestry_plan.report.markup import UNITS, element, escape, panel, table, tell_nbytes
from tapestry_plan.report.tuning import LISTED_TRANSFERS, NUMBERED_DEVICES, SHADES, SHOWN_DEVICES, SHOWN_TRANSFERS
from tapestry_plan.steps import PlannedTransfer, ShardPlan
from tapestry_sets.limits import tell_count


def group_devices(size: int) -> list[range]:
    """Devices that share a row of the map: each has its own where there are few.

    Examples
    --------
    >>> group_devices(3), group_devices(40)[-1]
    ([range(0, 1), range(1, 2), range(2, 3)], range(39, 40))
    """
    each = -(-size // SHOWN_DEVICES)
    return [range(first, min(first + each, size)) for first in range(0, size, each)]


def name_group(devices: range) -> str:
    """What stands before a row: a device, or the first and the last one."""
    return str(devices[0]) if len(devices) == 1 else f"{devices[0]}–{devices[-1]}"


def traffic_panel(plan: ShardPlan) -> str:
    """The map of bytes, and the largest transfers."""
    moved = draw_links(plan.nbytes_by_link, plan.mesh.size)
    largest = element("div", _largest(plan), class_="tp-pairs", aria_live="polite") if plan.nbytes_by_link else ""
    return panel("traffic", "Which bytes go where", moved, largest)


def draw_links(nbytes_by_link: Mapping[tuple[int, int], int], size: int) -> str:
    """The map of bytes, and what it says in all.

    Parameters
    ----------
    nbytes_by_link : mapping of (source, target) to int
    size : int
        Devices.
    """
    if not any(nbytes_by_link.values()):
        return element("p", "Nothing goes from device to device.", class_="tp-note")
    groups = group_devices(size)
    of_device = {device: k for k, devices in enumerate(groups) for device in devices}
    joined: Counter[tuple[int, int]] = Counter()
    for (source, target), nbytes in nbytes_by_link.items():
        joined[of_device[source], of_device[target]] += nbytes
    notes = [
        f"Rows send, columns receive. The most is {tell_nbytes(max(joined.values()))}; "
        f"{tell_nbytes(sum(joined.values()))} in all."
    ]
    if len(groups) < size:
        notes.append(f"Each row stands for up to {len(groups[0])} devices; what stays within them is on the diagonal.")
    return "".join(element("p", escape(note), class_="tp-note") for note in notes) + _map(groups, joined)


def _map(groups: Sequence[range], joined: Mapping[tuple[int, int], int]) -> str:
    most, is_numbered = max(joined.values()), len(groups) <= NUMBERED_DEVICES
    names = [name_group(devices) for devices in groups]
    head = "".join(element("th", escape(name), scope="col") for name in names)
    rows = []
    for a, source in enumerate(names):
        cells = []
        for b, target in enumerate(names):
            nbytes = joined.get((a, b), 0)
            words = f"device {source} to {target}: {nbytes:,} B"
            shown = UNITS.nbytes(nbytes) if is_numbered and nbytes else ""
            label = element("span", escape(words), class_="tp-unseen")
            cells.append(
                element(
                    "td",
                    element("span", escape(shown), aria_hidden="true") if shown else "",
                    label,
                    class_=f"tp-shade{-(-(SHADES - 1) * nbytes // most)}",
                    title=words,
                    data_nbytes=nbytes,
                    data_from=f"{groups[a][0]},{groups[a][-1]}",
                    data_to=f"{groups[b][0]},{groups[b][-1]}",
                )
            )
        rows.append(element("tr", element("th", escape(source), scope="row"), *cells))
    corner = element("tr", element("th", "from \\ to", scope="col"), head)
    caption = element("caption", "Bytes from device to device", class_="tp-unseen")
    size = f"--tp-columns:{len(groups)}"
    kind = "tp-map tp-numbered" if is_numbered else "tp-map"
    return element("table", caption, element("thead", corner), element("tbody", *rows), class_=kind, style=size)


HEADS = ("from → to", "tensor", "made by → read by", "cells", "bytes")


def _largest(plan: ShardPlan) -> str:
    found = sorted(plan.transfers(), key=lambda row: -row.nbytes)
    shown = found[:LISTED_TRANSFERS]
    rows = [
        (f"{one.source} → {one.target}", one.tensor, f"{one.producer} → {one.consumer}", one.cells, f"{one.nbytes:,}")
        for one in shown
    ]
    left = found[LISTED_TRANSFERS:]
    rest = f"; {tell_count(len(left), 'more transfer')} of {sum(one.nbytes for one in left):,} B" if left else ""
    said = f"The largest of {tell_count(len(found), 'transfer')}{rest}"
    return element("p", escape(said), class_="tp-note") + table(HEADS, rows, [4], cards=True)


def describe_transfers(plan: ShardPlan) -> dict[str, Any]:
    """All transfers as plain data: words once in a list, rows with their places in it; the largest where too many."""
    every = sorted(plan.transfers(), key=lambda row: -row.nbytes)
    words: dict[str, int] = {}

    def place(text: str) -> int:
        return words.setdefault(text, len(words))

    def row(one: PlannedTransfer) -> list[int]:
        named = map(place, (one.tensor, one.producer, one.consumer, one.cells, one.why))
        return [one.source, one.target, one.nbytes, one.step, *named]

    rows = [row(one) for one in every[:SHOWN_TRANSFERS]]
    left = every[SHOWN_TRANSFERS:]
    return {"words": [*words], "rows": rows, "left": len(left), "left_nbytes": sum(one.nbytes for one in left)}
