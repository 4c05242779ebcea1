"""Where a plan's devices stop together, without a word to each other: what each of them holds there.

A cut is a number of a step: what is before it is done, on every device. A copy between devices is before it or behind
it with both its halves, so nothing is on its way::

    step            0  1  2  3 | 4  5  6            cut 4
    device 0        a     send |    c               saves a, when it is about to do c
    device 1           b  recv | d     e            saves b and what came, when it is about to do d

Each saves when it comes to the cut, so none waits for another one. Of what is behind the cut a send may have been done
early; who goes on from there sends again, since its buffer is as it was.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from tapestry_exec.run.interpreter import StepFacts
from tapestry_plan.steps import (
    HOST,
    READ,
    Alloc,
    Buffer,
    Compute,
    Copy,
    DeviceStep,
    Fetch,
    Free,
    Recv,
    Reduce,
    Send,
    ShardPlan,
    Spill,
    list_buffers,
    list_written,
    tell_standing,
)
from tapestry_sets.limits import list_names, quote
from tapestry_sets.regions import DisjointRegions, Region


class Cut(Struct, frozen=True):
    """What one device holds at a cut.

    Parameters
    ----------
    number : int
        The first step that is not done.
    alive : tuple of int
        The buffers that have their places, in the order in which they took them.
    saved : tuple of int
        Those of them whose cells are read later.
    kept : tuple of int
        Buffers that wait in host memory, by the numbers under which they were spilled.
    again : tuple of DeviceStep
        What places constants that are read later, which are not saved.
    full : frozenset of int
        Buffers that have all cells of their boxes that are the tensor's, complete: of those that are saved or kept.
    guests : tuple of int
        Buffers within those that are saved which have theirs, too: so what stands in parts can be read.
    """

    number: int
    alive: tuple[int, ...]
    saved: tuple[int, ...]
    kept: tuple[int, ...]
    again: tuple[DeviceStep, ...]
    full: frozenset[int]
    guests: tuple[int, ...]


def find_cuts(plan: ShardPlan) -> dict[str, int]:
    """Each stage of a plan, in order, with the cut right behind it."""
    last: dict[str, int] = {}
    for k, step in enumerate(plan.steps):
        if isinstance(step, Copy | Compute | Reduce):
            last[step.node] = k + 1
    for name, cut in last.items():  # what is given back right behind it is not held any more
        while cut < len(plan.steps) and isinstance(plan.steps[cut], Free):
            cut += 1
        last[name] = cut
    return {stage.node: last[stage.node] for stage in plan.stages if stage.node in last}


def check_stages(plan: ShardPlan, names: Iterable[str]) -> None:
    """Raise ValueError for the name of a stage that a plan does not have, with what stands for it."""
    known = find_cuts(plan)
    for name in names:
        if name not in known:
            stands = tell_standing(plan, name) or f"; {list_names(known, name, 'stages')}"
            raise ValueError(f"checkpoints: the plan has no stage {quote(name)}{stands}")


def find_constant(
    steps: Iterable[DeviceStep], is_constant: Callable[[Copy], bool]
) -> tuple[set[int], dict[int, list[Copy]]]:
    """The buffers into which only constants are copied, and the copies into each that copies alone fill.

    Parameters
    ----------
    steps : iterable of DeviceStep
        In their order.
    is_constant : callable
        Whether what a copy places from the host is one.
    """
    written: dict[int, list[DeviceStep]] = {}
    moved: set[int] = set()
    for at in steps:
        for number in list_written(at.step):
            written.setdefault(number, []).append(at)
        if isinstance(at.step, Spill | Fetch):
            moved.add(at.step.buffer)
            moved.update([at.step.spilled] if isinstance(at.step, Fetch) else ())
    constant, filled = set[int](), dict[int, list[Copy]]()
    for number, each in written.items():  # by who is written to first, so that what is copied from comes before
        copies = [at.step for at in each if isinstance(at.step, Copy) and not at.step.again]
        if len(copies) < len(each) or number in moved:
            continue
        filled[number] = copies
        if all(is_constant(one) if is_placing(one) else one.src in constant or one.src == HOST for one in copies):
            constant.add(number)
    return constant, filled


def is_placing(step: Copy) -> bool:
    """Whether a copy places cells of an input or a constant from the host."""
    return step.src == HOST and step.piece is None


def find_cut(
    number: int,
    program: Sequence[DeviceStep],
    work: StepFacts,
    buffers: Mapping[int, Buffer],
    constants: Collection[str],
) -> Cut:
    """What a device holds at a cut.

    Parameters
    ----------
    number : int
    program : sequence of DeviceStep
        Of the device, in its order; without what is done once for a deployment.
    work : StepFacts
        What the steps are about.
    buffers : mapping of int to Buffer
        Its own.
    constants : collection of str
    """
    roots = {n: _find_root(n, buffers) for n in buffers}
    before = [at for at in program if at.number < number and not isinstance(at.step, Send)]
    alive, written, kept = dict[int, None](), set[int](), dict[int, None]()
    for at in before:
        match at.step:
            case Alloc(buffer=mine):
                alive[mine] = None
            case Free(buffer=mine):
                del alive[mine]
            case Spill(buffer=mine):
                kept[mine] = None
            case Fetch(spilled=there, keep=False):
                del kept[there]
        written.update(roots[n] for n in list_written(at.step))
    read, fetched = set[int](), set[int]()
    for at in program:
        if at.number >= number:
            read.update(roots[n] for n in list_buffers(at.step, READ))
            if isinstance(at.step, Spill):
                read.add(roots[at.step.buffer])
            elif isinstance(at.step, Fetch):
                fetched.add(at.step.spilled)
    taken = {n for output in work.outputs for n, _ in output.blocks if n in buffers}
    needed = [n for n in alive if roots[n] == n and n in written and n in read | {roots[n] for n in taken}]
    constant = _find_whole(before, roots, constants)
    saved, waiting = [n for n in needed if n not in constant], [n for n in kept if n in fetched | taken]
    inner = [n for n in alive if roots[n] != n and roots[n] in saved]
    full = frozenset(_list_full(before, work, {n: buffers[n] for n in (*saved, *waiting, *inner)}))
    return Cut(
        number,
        tuple(alive),
        tuple(saved),
        tuple(waiting),
        tuple(_list_again(before, constant, [n for n in needed if n in constant])),
        full,
        tuple(n for n in inner if n in full),
    )


def _list_full(before: Sequence[DeviceStep], work: StepFacts, buffers: Mapping[int, Buffer]) -> Iterator[int]:
    """Of some buffers those into all of whose cells something was written."""
    written: defaultdict[int, list[Region]] = defaultdict(list)
    for at in before:
        match at.step:
            case Fetch(buffer=n, spilled=there):
                written[n] = [*written[there]]
            case Compute(outputs=several):
                for n, box in zip(several, work.shards[at.number].output_boxes, strict=True):
                    written[n].append(Region.full(box.shape, box.start))
            case Copy(dst=n) | Recv(dst=n) | Reduce(output=n):
                written[n] += at.step.regions
    yield from (n for n, one in buffers.items() if has_all(one, written[n], work))


def has_all(buffer: Buffer, written: Iterable[Region], work: StepFacts) -> bool:
    """Whether what was written are all cells of a buffer's box that are the tensor's."""
    shape = work.shapes.get(buffer.tensor)
    if shape is None or buffer.part >= 0:
        return False
    low = [max(a, 0) for a in buffer.start]
    high = [min(a + n, m) for a, n, m in zip(buffer.start, buffer.shape, shape, strict=True)]
    if any(a >= b for a, b in zip(low, high, strict=True)):
        return False
    left = DisjointRegions(shape, [Region.from_bounds(shape, low, high)])
    for region in written:
        left = left - _lay_in(region, shape)
    return left.is_empty


def _lay_in(region: Region, shape: tuple[int, ...]) -> DisjointRegions:
    """The cells of a region, of whatever box, that are in a tensor."""
    low, high = region.bounds() or ((0,) * len(shape), (0,) * len(shape))
    ends = [(min(max(a, 0), n), min(max(b, 0), n)) for a, b, n in zip(low, high, shape, strict=True)]
    box = Region.from_bounds(shape, [a for a, _ in ends], [b for _, b in ends])
    return box & (box if region.is_box else Region(shape, region.setts))


def _find_root(number: int, buffers: Mapping[int, Buffer]) -> int:
    """The buffer in whose place one lies: itself, or the one within which it is."""
    while (within := buffers[number].within) is not None:
        number = within.buffer
    return number


def _find_whole(before: Sequence[DeviceStep], roots: Mapping[int, int], constants: Collection[str]) -> set[int]:
    """The buffers that hold constants alone, with all that lies within them."""
    constant, _ = find_constant(before, lambda step: step.tensor in constants)
    mixed = {roots[n] for at in before for n in list_written(at.step) if n not in constant}
    return {n for n in constant if roots[n] in constant and roots[n] not in mixed}


def _list_again(before: Sequence[DeviceStep], constant: set[int], wanted: Iterable[int]) -> list[DeviceStep]:
    """The steps that place some constants, with what they are copied from on the way."""
    mine = set(wanted)
    for at in reversed(before):
        if isinstance(at.step, Copy) and at.step.dst in mine and at.step.src in constant:
            mine.add(at.step.src)
    about = (at.step.buffer if isinstance(at.step, Alloc | Free) else _find_target(at) for at in before)
    return [at for at, n in zip(before, about, strict=True) if n in mine]


def _find_target(at: DeviceStep) -> int | None:
    return at.step.dst if isinstance(at.step, Copy) else None
