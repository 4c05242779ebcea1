"""What a plan says of its operators: what each costs, which expansions were compared, which are one block."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import asdict, force_setattr

from tapestry_plan.ir import FoldedNodes, Graph, Shown
from tapestry_plan.steps import tuning
from tapestry_plan.steps.documents import read_list
from tapestry_plan.steps.layouts.layout import SplitAxis, tell_sharding
from tapestry_sets.limits import Public, Units, cut_text, freeze_dicts, tell_count


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


class OpaqueCost(msgspec.Struct, frozen=True, metaclass=Public):
    """What an opaque operator costs: one that runs whole, or in parts of all its rounds.

    Parameters
    ----------
    nbytes_moved : int
        From other devices, for it.
    nbytes_read, nbytes_written : int
        Of its operands and results.
    seconds : float
        Modeled, of its own work, on the device that takes longest: what it does inside, as far as that is known, and at
        least a launch, and its operands and results through the device's memory once. What nobody knows may take any
        time more.
    flop : float
        What it does inside, on all devices together; 0 where that is not known.
    devices : int
        How many run it.
    rounds : int, optional
        Of a Loop or Scan that nobody unrolls: how many there are, where that is known before a run.
    is_known : bool
        Whether it is known what it does inside, of a Loop or Scan in a round. Where `rounds` are not known, `seconds`
        and `flop` are those of one.

    Examples
    --------
    >>> OpaqueCost(0, 4096, 64, 2e-6).seconds
    2e-06
    """

    nbytes_moved: int
    nbytes_read: int
    nbytes_written: int
    seconds: float
    flop: float = 0.0
    devices: int = 1
    rounds: int | None = None
    is_known: bool = False

    @classmethod
    def of(cls, graph: Graph, stage: Stage, devices: int) -> OpaqueCost:
        """That of the operator of a stage, which so many devices run.

        Parameters
        ----------
        graph : Graph
        stage : Stage
        devices : int
        """
        node = graph.nodes[stage.node]
        read, written = (
            sum(prod(one.shape) * np.dtype(one.dtype).itemsize for one in map(graph.source, names))
            for names in (node.inputs, node.outputs)
        )
        is_known = bool(graph.ops[node.op].list_inner(graph.signature(node.name), node.attrs))
        return cls(
            sum(stage.nbytes_received),
            read,
            written,
            max(stage.work_seconds, default=0.0),
            flop=sum(stage.flop) if is_known else 0.0,
            devices=devices,
            rounds=node.attrs.get("rounds"),
            is_known=is_known,
        )


def list_opaque(found: Mapping[str, OpaqueCost], units: Units) -> Iterator[tuple[float, str]]:
    """Modeled seconds and words of opaque operators: together of what nobody knows, and else one by one, slowest first.

    Examples
    --------
    >>> known = OpaqueCost(0, 64, 64, 2.0, flop=4e9, devices=4, rounds=5000, is_known=True)
    >>> for seconds, words in list_opaque({"sort": OpaqueCost(8, 8, 8, 1e-6), "loop": known}, Units(exact=True)):
    ...     print(seconds, words[:62])
    1e-06 1 operator of ONNX without a declaration here, sort: 8 B move
    2.0 loop: 5,000 rounds on 4 devices, 4,000,000,000 flop, 2.0 s
    """
    whole = {name: one for name, one in found.items() if not one.is_known}
    if whole:
        costs, names = list(whole.values()), cut_text(", ".join(whole), 200)
        what = f"{tell_count(len(whole), 'operator')} of ONNX without a declaration here, {names}"
        yield sum(one.seconds for one in costs), f"{what}: {tell_opaque(costs, units)}"
    known = sorted(((name, one) for name, one in found.items() if one.is_known), key=lambda pair: -pair[1].seconds)
    for name, one in known[: tuning.TOLD_ROUNDS]:
        yield one.seconds, f"{cut_text(name, 100)}: {tell_rounds(one, units)}"
    if rest := [one for _, one in known[tuning.TOLD_ROUNDS :]]:
        flop, taken = units.flop(sum(one.flop for one in rest)), sum(one.seconds for one in rest)
        yield taken, f"{tell_count(len(rest), 'more operator')} of rounds: {flop}, {units.seconds(taken)}"


def tell_rounds(cost: OpaqueCost, units: Units) -> str:
    """What an operator of many rounds costs, in words.

    Examples
    --------
    >>> tell_rounds(OpaqueCost(0, 64, 64, 2e-6, flop=128.0, is_known=True), Units(exact=True))
    'on 1 device, 128 flop, 2e-06 s: of one round, since how many there are is known in a run alone'
    """
    where = f"on {tell_count(cost.devices, 'device')}, {units.flop(cost.flop)}, {units.seconds(cost.seconds)}"
    if cost.rounds is None:
        return f"{where}: of one round, since how many there are is known in a run alone"
    return f"{tell_count(cost.rounds, 'round')} {where}"


def tell_opaque(found: Sequence[OpaqueCost], units: Units) -> str:
    """What operators that run whole, and of which nobody knows what they do, cost together, in words.

    Examples
    --------
    >>> tell_opaque([OpaqueCost(0, 4096, 64, 2e-6), OpaqueCost(8, 8, 8, 1e-6)], Units(exact=True))
    '8 B move for what runs whole; it reads 4,104 B, writes 72 B, and takes 3e-06 s or more: once through these'
    """
    moved, read, written = (
        units.nbytes(sum(getattr(one, name) for one in found))
        for name in ("nbytes_moved", "nbytes_read", "nbytes_written")
    )
    taken = units.seconds(sum(one.seconds for one in found))
    costs = f"it reads {read}, writes {written}, and takes {taken} or more: once through these"
    return f"{moved} move for what runs whole; {costs}"


def tell_folded(folded: FoldedNodes, units: Units) -> str:
    """What was computed when a model was read, in words.

    Examples
    --------
    >>> tell_folded(FoldedNodes(3, 4096), Units(exact=True))
    'computed when the model was read: 3 nodes, into constants of 4,096 B'
    """
    nodes = tell_count(folded.nodes, "node")
    return f"computed when the model was read: {nodes}, into constants of {units.nbytes(folded.nbytes)}"


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
