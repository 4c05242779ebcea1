"""Generations: all devices of a plan begin together and end together, whatever becomes of one of them.

A member that is lost is never begun again alone: those that it had sent to would not be sent to again. So any fault
ends a generation, and the next one begins from the last checkpoint, or from the beginning::

    generation 1    device 0  compute ─► recv ─► ended
                    device 1  compute ─► killed
    generation 2    device 0  compute ─► recv ─► compute ─► the result
                    device 1  compute ─► send ─► compute ─►
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Never, TypeVar

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from tapestry_exec.copies import Array
from tapestry_exec.run.checkpoints.saving import Savings, Start
from tapestry_exec.run.prepared import PreparedPlan
from tapestry_exec.run.results import Fault, RunResult, StepFailed
from tapestry_exec.run.sessions import Deployed
from tapestry_exec.run.ways import name_step
from tapestry_plan.steps import Buffer, DeviceStep, Send
from tapestry_sets.limits import FrozenDict

T = TypeVar("T")


class GenerationEnded(Exception):
    """A device failed or is gone, and the others are ended.

    Parameters
    ----------
    device : int, optional
    step : int, optional
        The plan's step that it was at.
    why : str
    nbytes_sent : sequence of (int or None)
        By device: what it is known to have sent by then.
    cause : Exception, optional
        What the step raised.
    """

    def __init__(
        self,
        device: int | None,
        step: int | None,
        why: str,
        nbytes_sent: Sequence[int | None],
        cause: Exception | None = None,
    ) -> None:
        super().__init__(why)
        self.device, self.step, self.why, self.cause = device, step, why, cause
        self.nbytes_sent = tuple(nbytes_sent)
        self.cut = 0
        """The plan's step with which the generation began."""


class Generations(Struct, frozen=True):
    """How often all devices begin again after a fault.

    Parameters
    ----------
    retries : int
        How many generations may follow the first one.
    patience : float
        Seconds without a sign of life after which a member counts as lost.

    Raises
    ------
    ValueError
        For negative numbers, and where members have no time at all.
    """

    retries: int
    patience: float

    def __post_init__(self) -> None:
        if self.retries < 0:
            raise ValueError(f"retries must be at least 0, not {self.retries}; with 0 the first fault is raised")
        if not 0 < self.patience < inf:
            raise ValueError(f"patience must be a number of seconds above 0, not {self.patience}")

    def begin(
        self,
        prepared: PreparedPlan,
        attempt: Callable[[], T],
        goes_on: bool = False,
        savings: Savings | None = None,
    ) -> tuple[T, list[Fault]]:
        """Attempt until a generation gives its result; that, and what ended those before it.

        An error that comes again at the same step would come in each: then no further generation is begun.

        Parameters
        ----------
        prepared : PreparedPlan
        attempt : callable
            Raises `GenerationEnded` when all members are gone.
        goes_on : bool
            Whether the run goes on from what the run before left on the devices: as that is lost with a generation, no
            other one is begun, unless a checkpoint has it.
        savings : Savings, optional

        Raises
        ------
        StepFailed
            When the last generation ended, too: names step, device and generation.
        """
        faults: list[Fault] = []
        while True:
            try:
                return attempt(), faults
            except GenerationEnded as ended:
                generation = len(faults) + 1
                again = bool(faults) and ended.cause is not None and _is_same(faults[-1], ended)
                goes_on = goes_on and (savings is None or savings.find_last() is None)
                if generation > self.retries or goes_on or again:
                    self._fail(prepared, ended, generation, goes_on)
                sent = ended.nbytes_sent
                steps = _find_steps(prepared, ended.cut, sent)
                faults.append(Fault(generation, ended.device, ended.step, ended.why, sent, steps))

    def run(
        self,
        what: Deployed,
        host: Mapping[str, Array],
        savings: Savings | None,
        attempt: Callable[[Start | None], RunResult],
    ) -> RunResult:
        """Run in generations, each from the last checkpoint; the result lists what ended those before it."""
        goes_on = what.stays is not None and any(name not in host for name in what.stays.given)

        def begin_one() -> RunResult:
            if savings is None:
                return attempt(None)
            start = savings.begin()
            try:
                return savings.mark(attempt(start), start)
            except GenerationEnded as ended:
                ended.cut = find_first(start)
                raise

        result, faults = self.begin(what.prepared, begin_one, goes_on, savings)
        return replace(result, faults=tuple(faults)) if faults else result

    def _fail(self, prepared: PreparedPlan, ended: GenerationEnded, generation: int, goes_on: bool) -> Never:
        which = f" (generation {generation} of at most {self.retries + 1})" if self.retries else ""
        if self.retries and goes_on:
            which += "; what the run before had left is lost with it: give the carried inputs again"
        if ended.cause is not None and ended.step is not None:
            failed = name_step(prepared, ended.step, ended.cause)
            raise StepFailed(f"{failed}{which}") from ended.cause
        raise StepFailed(f"{ended.why}{which}") from ended.cause


def _is_same(one: Fault, other: GenerationEnded) -> bool:
    return (one.device, one.step, one.error) == (other.device, other.step, other.why)


def find_first(start: Start | None) -> int:
    """The plan's step with which a generation begins."""
    return 0 if start is None or start.resumed is None else start.resumed.manifest.cut


def list_sends(
    program: Iterable[DeviceStep], buffers: Mapping[int, Buffer], first: int = 0
) -> Iterator[tuple[int, int]]:
    """What a device sends, from a step of the plan on: the steps and their bytes, in the order in which it does so."""
    for at in program:
        if isinstance(at.step, Send) and at.number >= first:
            cells = sum(region.size for region in at.step.regions)
            yield at.number, cells * np.dtype(buffers[at.step.src].dtype).itemsize


def _find_steps(prepared: PreparedPlan, first: int, sent: Sequence[int | None]) -> FrozenDict[int, int]:
    """Of which of the plan's steps the bytes are that devices sent: as many of each program's sends as make them up."""
    found = Counter[int]()
    for program, left in zip(prepared.programs, sent, strict=True):
        sends = list_sends(program, prepared.work.buffers, first)
        while left:
            number, nbytes = next(sends)
            found[number] += nbytes
            left -= nbytes
            assert left >= 0, "a device sends what its program says"
    return FrozenDict(sorted(found.items()))
