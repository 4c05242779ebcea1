"""Stages by name, and numbers for copies between devices that both ends find without each other."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate

from tapestry_plan.ir import Graph
from tapestry_sets.limits import quote


def name_stage(kind: str, tensor: str, number: int | None = None) -> str:
    """The stage in which a tensor lands, or is brought to where it lies at the end, as steps call it.

    Of several stages all but the last one have their numbers, from 1 on.
    """
    return f"{kind} {tensor}" if number is None else f"{kind}.{number} {tensor}"


class Tags:
    """Numbers for the copies between devices, which both ends find without each other.

    The stages' reads are numbered in the order of the graph; a stage that reads a tensor through several operands may
    copy it as often between two devices.
    """

    def __init__(self, graph: Graph) -> None:
        reads = Counter(
            (node.name, stored)
            for node in graph.order()
            for name in node.inputs
            for stored in graph.source(name).stored
        )
        reads.update((name_stage(kind, name), name) for name in graph.stored for kind in ("landing", "output"))
        self._first = dict(zip(reads, accumulate(reads.values(), initial=0), strict=False))
        self._taken: Counter[tuple[str, str, int, int]] = Counter()

    def _find(self, label: str, tensor: str) -> str:
        if label.startswith("landing.") and (label, tensor) not in self._first:
            return name_stage("landing", tensor)  # two devices exchange a tensor in one of the stages of its landing
        return label

    def knows(self, label: str, tensor: str) -> bool:
        """Whether a stage of the graph reads a tensor."""
        return (self._find(label, tensor), tensor) in self._first

    def take(self, label: str, tensor: str, source: int, target: int) -> int:
        """The number of the next copy of a tensor for a stage from one device to another."""
        label = self._find(label, tensor)
        copy = label, tensor, source, target
        if (label, tensor) not in self._first:
            raise ValueError(
                f"{quote(label)} is not a stage of the graph that reads {quote(tensor)}; check the plan's steps"
            )
        self._taken[copy] += 1
        return self._first[label, tensor] + self._taken[copy] - 1
