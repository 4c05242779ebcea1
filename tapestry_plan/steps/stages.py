"""What a plan says of its operators: what each costs, which expansions were compared, which are one block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict, force_setattr

from tapestry_plan.ir import Shown
from tapestry_plan.steps.documents import read_list
from tapestry_plan.steps.layouts.layout import SplitAxis, tell_sharding
from tapestry_sets.limits import Public, Units, cut_text, freeze_dicts


class Stage(Shown, msgspec.Struct, frozen=True):
    """The costs of one operator in the plan.

    Parameters
    ----------
    node, op : str
    sharding : dict of str to int
        Parts of each split index axis.
    nbytes_received : tuple of int
        By device, from other devices.
    nbytes_shared : int
        Bytes that more than one device reads of the same cells: Σ bytes read by each − bytes of their union.
    flop : tuple of float
        By device.
    seconds : float
        Modeled: slowest device's compute, plus transfers, merges and copies of own cells beside what comes.
    work_seconds : tuple of float
        Modeled, by device: its own compute, without transfers and merges; of a stage that brings an output home none.
    """

    node: str
    op: str
    sharding: dict[str, int]
    nbytes_received: tuple[int, ...]
    nbytes_shared: int
    flop: tuple[float, ...]
    seconds: float
    work_seconds: tuple[float, ...] = ()

    def __repr__(self) -> str:
        return (
            f"Stage({cut_text(self.node, 50)} ({cut_text(self.op, 40)}) {tell_sharding(self.sharding)}: receives "
            f"{sum(self.nbytes_received):,} B, shares {self.nbytes_shared:,} B, {Units().seconds(self.seconds)})"
        )

    def __post_init__(self) -> None:
        force_setattr(self, "sharding", freeze_dicts(self.sharding))


class Expansions(msgspec.Struct, frozen=True, metaclass=Public):
    """The ways to say an operator in other ones that the search compared with the operator itself.

    Parameters
    ----------
    node : str
        The operator. Where an expansion was chosen the plan's graph has it no more; its outputs keep their names.
    considered : tuple of str
        Expansions that its declaration lists, by name.
    chosen : str or None
        The one that the plan has in its place.
    nodes : tuple of str
        The operators that stand for it then; some of them may have been expanded in turn.
    left_out : tuple of str
        Expansions that were not compared: who reads the operator would read through too many combinations of views, or
        the time was up, or the fastest plan does not keep the memory cap.
    split : tuple of SplitAxis
        Of an operator that is not expanded, but works over more index axes: as the rule `split_axes` makes them.

    Examples
    --------
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.softmax(g.input("x", (4, 6))), "y")
    >>> found = plan(g, Mesh(2)).expansions[0]
    >>> found.node, found.considered, found.chosen
    ('softmax', ('exp_sum',), None)
    """

    node: str
    considered: tuple[str, ...]
    chosen: str | None = None
    nodes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    split: tuple[SplitAxis, ...] = ()


class Fused(msgspec.Struct, frozen=True):
    """Two operators that are one block in the plan, under the name of the second one: as the rule `fuse` makes it.

    Parameters
    ----------
    first, second : str
    operand : int
        The input of the second one that the first one makes.
    """

    first: str
    second: str
    operand: int


def write_stages(stages: Sequence[Stage]) -> list[dict[str, Any]]:
    """Stages as plain data: numbers by device that an earlier stage has, too, are told by that stage's number."""
    first: dict[tuple[str, tuple[float, ...]], int] = {}
    out = []
    for k, stage in enumerate(stages):
        entry = asdict(stage)
        for name in COLUMNS:
            at = first.setdefault((name, entry[name]), k)
            entry[name] = at if at < k else entry[name]
        out.append(entry)
    return out


def fill_columns(entries: Any) -> list[Any]:
    """The entries of stages, each with its own numbers by device."""
    out: list[Any] = []
    for k, entry in enumerate(read_list(entries)):
        filled = dict(entry)
        for name in COLUMNS:
            at = filled.get(name)
            if type(at) is int:
                if not 0 <= at < k:
                    raise ValueError(f"stages[{k}].{name} is {at}; it is a list, or the number of an earlier stage")
                filled[name] = out[at].get(name)
        out.append(filled)
    return out


COLUMNS = ("nbytes_received", "flop", "work_seconds")
"""Of stages: numbers by device, which alike stages have alike."""
