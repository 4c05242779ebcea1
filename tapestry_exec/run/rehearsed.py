"""Steps that are known by heart: what they call was noted in one run, and is called at once in later ones.

Where cells lie, and what a step calls there, does not depend on numbers. So the second run of the same steps on the
same devices notes the calls of each step, with what it counts, and later ones look up neither buffers, nor blocks, nor
views. What a caller gives is looked at in every run, and so is what other threads or processes send::

    steps          alloc y    place x    compute y           free x
    first run        ●          ●          ●                   ●        ● looked up and done
    second run       ●          ●          ●                   ●        and noted
    later ones     alloc(y)     ●        matmul(x, w, y)     free(x)    called
                                         add(y, b, y)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tapestry_exec.run.trace import TraceEvent
from tapestry_plan.ir import Op
from tapestry_plan.steps import Alloc, DeviceStep, Free

if TYPE_CHECKING:
    from tapestry_exec.run.together import Together


class Rehearsed(NamedTuple):
    """What one step calls, and what is counted of it."""

    calls: tuple[Callable[[], object], ...]
    event: TraceEvent | None
    """As it was when the step was noted; None of a `Send`."""
    flop: float
    copied_nbytes: int
    placed_nbytes: int
    sent: tuple[int, int] | None
    """Of a `Send`: the device that cells were handed to, and their bytes."""
    lend: Callable[[], Any] | None = None
    """Of a `Send` where devices run side by side: behind the calls, what is handed over."""
    post: Callable[[float], None] | None = None
    """Of one to another process: behind the calls, what copies the cells there; it is given when the step began."""
    source: Any = None
    """Of a `Recv` there: where the cells lay that the calls copy."""


class Totals(NamedTuple):
    """What the known steps of a device count behind the run."""

    flop: float
    copied_nbytes: int
    placed_nbytes: int
    nbytes_by_peer: Mapping[int, int]
    """Bytes that were sent, but for those that were counted as they were handed over."""

    @classmethod
    def of(cls, parts: Iterable[Rehearsed]) -> Totals:
        """Of all parts."""
        flop, copied, placed, sent = 0.0, 0, 0, Counter[int]()
        for part in parts:
            flop, copied, placed = flop + part.flop, copied + part.copied_nbytes, placed + part.placed_nbytes
            if part.sent is not None and part.lend is None:
                sent[part.sent[0]] += part.sent[1]
        return cls(flop, copied, placed, sent)


class Score(NamedTuple):
    """The steps of all devices in one loop."""

    steps: list[tuple[DeviceStep, tuple[Callable[[], object], ...] | None, TraceEvent | None]]
    """Each with its calls and its event; without where it is looked up again. Those that call nothing are left out."""

    @classmethod
    def of(cls, parts: Iterable[tuple[DeviceStep, Rehearsed | None]], settled: Collection[int]) -> Score:
        """Of steps with what is known of them; the places of settled buffers are taken before the first one."""
        found = list[tuple[DeviceStep, tuple[Callable[[], object], ...] | None, TraceEvent | None]]()
        for at, part in parts:
            is_settled = isinstance(at.step, Alloc | Free) and at.step.buffer in settled
            found.append((at, None, None) if part is None else (at, () if is_settled else part.calls, part.event))
        return cls([one for one in found if one[1] != () or one[2] is not None])


class Rehearsal:
    """What a device knows of some steps.

    Parameters
    ----------
    work : StepFacts
    ops : mapping of str to Op
    steps : sequence of DeviceStep
        In the order in which they are done.
    lending : bool, optional
        As of `Interpreter`.
    """

    def __init__(self, work: object, ops: Mapping[str, Op], steps: Sequence[DeviceStep], lending: bool | None) -> None:
        self.work, self.ops, self.steps, self.lending = work, ops, steps, lending
        self.parts: dict[int, Rehearsed] | None = None
        """By the plan's number of each step that was noted, of a device that idles none; None before."""
        self.constants: Mapping[str, Any] = {}
        """What these steps read in the host's memory."""
        self.totals: Totals | None = None
        self.score: Score | None = None
        """Of all devices, where these are in one loop."""
        self.together: Together | None = None
        """Of those of its process or thread, where it is the first of these."""

    def keep(self, parts: dict[int, Rehearsed], constants: Mapping[str, Any]) -> None:
        """Know what was noted in a run."""
        self.parts, self.constants, self.totals, self.score, self.together = parts, constants, None, None, None

    def reads_same(self, host: Mapping[str, Any]) -> bool:
        """Whether the constants that were read lie where they lay."""
        return all(host.get(name) is array for name, array in self.constants.items())

    def count(self) -> Totals:
        """What all steps that are known count together."""
        if self.totals is None:
            self.totals = Totals.of((self.parts or {}).values())
        return self.totals

    def is_of(self, work: object, ops: Mapping[str, Op], steps: Sequence[DeviceStep], lending: bool | None) -> bool:
        """Whether it is of the same steps, which would be done in the same way."""
        if self.work is not work or self.steps is not steps or self.lending is not lending:
            return False
        return are_same_ops(self.ops, ops)


def are_same_ops(ops: Mapping[str, Op], others: Mapping[str, Op]) -> bool:
    """Whether operators are the same ones, by name."""
    return ops is others or (len(ops) == len(others) and all(others.get(name) is op for name, op in ops.items()))


def find_rehearsal(
    memory: Any, work: object, ops: Mapping[str, Op], steps: Sequence[DeviceStep], lending: bool | None
) -> Rehearsal | None:
    """What a device knows of steps that it has done before; None in the first run, and of one that notes nothing."""
    if not getattr(memory, "notes", False):
        return None
    known: Rehearsal | None = memory.rehearsal
    if known is None or not known.is_of(work, ops, steps, lending):
        memory.rehearsal = Rehearsal(work, ops, steps, lending)
        return None
    return known
