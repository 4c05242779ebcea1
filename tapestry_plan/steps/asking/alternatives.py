"""Other shardings of one operator: what the graph would cost, and what makes the difference, in numbers and in words.

Nothing here knows operators by name: a cause is a tensor and who reads it, with bytes and seconds in both plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr

from tapestry_plan.ir import Shown
from tapestry_plan.steps import tuning
from tapestry_sets.limits import Brief, Guarded, Public, escape_controls, freeze_dicts, put_fields, tell_count

T = TypeVar("T")


class Sample(Brief, Struct, frozen=True):
    """Cells that go from one device to another: an instance of what moves.

    Parameters
    ----------
    source, target : int
        Devices.
    cells : str
        In words, as `PlannedTransfer.cells`.
    nbytes : int
    """

    source: int
    target: int
    cells: str
    nbytes: int

    def __str__(self) -> str:
        return f"{self.cells} from device {self.source} to {self.target}"


class Cause(Brief, Struct, frozen=True):
    """What another sharding of an operator changes in one place.

    Parameters
    ----------
    what : "works", "receives", "merges" or "holds"
        The operator's own work; what a reader of a tensor receives, of complete cells or of parts that are merged; the
        bytes of an input or constant that all devices hold from the start.
    tensor, kind : str
        The tensor, and whether it is an "input", a "constant" or a "result"; empty of work.
    reader : str
        The operator that works or receives, or the stage, as "landing t" or "output t"; empty of what is held.
    seconds, nbytes : tuple of two numbers
        In the plan, and with that sharding.
    size : int
        Bytes of the whole tensor.
    parts : int
        How many partial results of each cell there are with that sharding; 1 of complete cells.
    sample : Sample, optional
        The largest of the transfers with that sharding, of causes that are told; None where nothing moves.
    stage_nbytes : tuple of two tuples of int
        Where partial results are merged in several stages before they are read, the bytes of each stage, in the plan
        and with that sharding; else empty.
    runs : tuple of two int
        Contiguous runs of memory that messages pack and unpack, in the plan and with that sharding; 0 where no link's
        runs take time.

    Examples
    --------
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.relu(ops.relu(g.input("x", (4, 6)), name="rows").T, name="columns"))
    >>> p = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}}, fuse=False)
    >>> [(one.what, one.tensor, one.reader, one.nbytes) for one in p.alternatives["columns"][0].causes]
    [('receives', 'rows', 'columns', (48, 0))]
    """

    what: Literal["works", "receives", "merges", "holds"]
    tensor: str
    kind: str
    reader: str
    seconds: tuple[float, float]
    nbytes: tuple[int, int]
    size: int = 0
    parts: int = 1
    sample: Sample | None = None
    stage_nbytes: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    runs: tuple[int, int] = (0, 0)

    @property
    def more_seconds(self) -> float:
        """By how much the graph takes longer for it."""
        return self.seconds[1] - self.seconds[0]

    @property
    def is_counted_short(self) -> bool:
        """Whether it may take longer than it counts: no price is above `MAX_STAGE_SECONDS`."""
        return self.seconds[1] >= tuning.MAX_STAGE_SECONDS

    @property
    def more_nbytes(self) -> int:
        """How many bytes more move, or are held, for it."""
        return self.nbytes[1] - self.nbytes[0]

    def tell(self, node: str, *, is_chosen: bool = False) -> str:
        """In words: what another sharding of an operator would change, or what moves with the chosen one."""
        took = "" if is_chosen or not self.more_seconds else f" ({_tell_more(self.more_seconds)})"
        if self.is_counted_short:
            took = f" ({tuning.MAX_STAGE_SECONDS:,.0f} s or more)"
        if self.what == "works":
            return f"its slowest device would work {'longer' if self.more_seconds > 0 else 'less'}{took}"
        tensor = f"{self.kind} {escape_controls(self.tensor, '')}"
        if self.what == "holds":
            return f"{self._tell_copies(tensor)} ({self.more_nbytes:+,} B)"
        who = "" if self.reader == node else f"{escape_controls(self.reader, '')} "
        verb = f"{who}receives" if is_chosen else f"{who}would receive"
        before, after = self.nbytes
        runs, in_runs = self.runs, [f" in {tell_count(n, 'run')}" if n else "" for n in self.runs]
        if not after:
            return f"{verb} nothing of {tensor}, {before:,} B{in_runs[0]} now{took}"
        much = f"the same {after:,} B" if before == after else f"{after:,} B"
        much = (f"{after:,} B" if is_chosen else much) + in_runs[1]
        stages = self.stage_nbytes[1]
        in_stages = f" in {len(stages)} stages of {_tell_each(stages)}" if stages else ""
        of = f"{tensor} in {self.parts} parts, which are merged{in_stages}" if self.what == "merges" else tensor
        now = f", {before:,} B{in_runs[0]} now" if before and before != after else ""
        now = f", {runs[0]:,} now" if before == after and runs[0] != runs[1] else now
        seen = ""
        if self.sample is not None:
            one_of = "" if self.sample.nbytes == after else f"{self.sample.nbytes:,} B of it are "
            seen = f", as {self.sample}" if not one_of else f" ({one_of}{self.sample})"
        return f"{verb} {much} of {of}{now}{seen}{took}"

    def _tell_copies(self, tensor: str) -> str:
        """How much of a tensor devices hold, in copies of it where these are whole ones."""
        before, after = self.nbytes
        if self.size and not before % self.size and not after % self.size:
            before, after = before // self.size, after // self.size
            if after > before:
                return f"would replicate {tensor}: {after:,} copies, {before:,} now"
            return f"would need fewer copies of {tensor}: {after:,}, {before:,} now"
        return f"would place {after:,} B of {tensor} on devices, {before:,} B now"


def _tell_each(nbytes: Sequence[int]) -> str:
    """The bytes of some stages: once where all have as many."""
    if len(set(nbytes)) == 1:
        return f"{nbytes[0]:,} B each"
    return f"{', '.join(f'{n:,} B' for n in nbytes[:-1])} and {nbytes[-1]:,} B"


def _tell_more(seconds: float) -> str:
    """Seconds more or less, in a unit that has some of them."""
    return f"{seconds * 1e6:+.2f} us" if abs(seconds) >= 5e-9 else f"{seconds * 1e9:+.3f} ns"


class Alternative(Brief, Shown, Struct, frozen=True, metaclass=Public):
    """Another sharding of one operator, all other operators kept: modeled seconds and bytes of the graph.

    Where the operator's results land, if it makes them in parts, is what is best then; ``plan(graph, mesh, like=p,
    fix={node: one.sharding})`` is that plan.

    Parameters
    ----------
    sharding : dict of str to int
        Parts of each split index axis.
    seconds : float
        Modeled, of the whole graph, without what is spilled; at least so many where a cause is counted short.
    nbytes_moved : int
        Between devices, in the whole graph.
    node : str
        The operator.
    is_chosen : bool
        Whether it is the plan's own one.
    causes : tuple of Cause
        What differs, the largest difference of seconds first: their differences make up those of the totals. Of the
        plan's own sharding what moves around the operator.
    devices : tuple of int
        Of one that is not cut, those that compute it, each all of it.

    Examples
    --------
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.relu(ops.relu(g.input("x", (4, 6)), name="rows").T, name="columns"))
    >>> p = plan(g, Mesh(2), fix={"rows": {"i0": 2}})
    >>> {tuple(one.sharding.items()): one.nbytes_moved for one in p.alternatives["columns"] if one.sharding}
    {(('i1', 2),): 0, (('i0', 2),): 48}
    >>> p.alternatives["columns"][1].reasons
    ('would receive 48 B of result rows (24 B of it are cells [0, 2)×[3, 6) from device 0 to 1) (+1.00 us)',)
    """

    sharding: dict[str, int]
    seconds: float
    nbytes_moved: int
    node: str = ""
    is_chosen: bool = False
    causes: tuple[Cause, ...] = ()
    devices: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        force_setattr(self, "sharding", freeze_dicts(self.sharding))

    @property
    def is_counted_short(self) -> bool:
        """Whether it may take longer than it counts, as a cause does."""
        return any(one.is_counted_short for one in self.causes)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why it costs what it costs, in words made from the numbers.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(g.input("x", (64, 64)), name="act"))
        >>> plan(g, Mesh(2)).alternatives["act"][0].reasons
        ('what it reads lies where it runs, and what it makes where it is read',)
        """
        if not self.causes:
            near = "what it reads lies where it runs, and what it makes where it is read"
            return (near if self.is_chosen else "nothing that is counted would differ",)
        told = [one.tell(self.node, is_chosen=self.is_chosen) for one in self.causes[: tuning.TOLD_CAUSES]]
        left = len(self.causes) - len(told)
        return (*told, f"and {tell_count(left, 'smaller difference')}") if left else tuple(told)


class MemoryNeed(Struct, frozen=True):
    """What the plan with another sharding takes of its devices' memory, where that is limited.

    Parameters
    ----------
    peak_nbytes : int
        The most that a device holds at once; of a plan that spills after idle buffers wait in host memory, as far as
        that helps.
    over_nbytes : int
        By how much more some device would hold than it may have; 0 where each has room.
    """

    peak_nbytes: int
    over_nbytes: int

    def __str__(self) -> str:
        if not self.over_nbytes:
            return f"at most {self.peak_nbytes:,} B on a device"
        return f"exceeds the memory: {self.peak_nbytes:,} B on a device, {self.over_nbytes:,} B more than it may have"


def tell_seconds(one: Alternative, than: float = 0.0) -> str:
    """An alternative's seconds in words, or how many more than others they are."""
    if one.is_counted_short:
        return f"{tuning.MAX_STAGE_SECONDS:,.0f} s or more"
    return f"{(one.seconds - than) * 1e6:{'+' if than else ''}.2f} us"


class OnDemand(Guarded, Mapping[str, T]):
    """A mapping whose values are made when they are asked for, each once; equal to the dict of all of them.

    Parameters
    ----------
    keys : iterable of str
    make : callable
        ``(key) -> value``.
    made : mapping, optional
        Values that are there already.
    """

    make: Callable[[str], T]

    def __init__(self, keys: Iterable[str], make: Callable[[str], T], made: Mapping[str, T] | None = None) -> None:
        self._keys = dict.fromkeys(keys)
        put_fields(self, make=make)
        self._made: dict[str, T] = dict(made or {})

    def __getitem__(self, key: str) -> T:
        if key not in self._made:
            if key not in self._keys:
                raise KeyError(key)
            self._made[key] = self.make(key)
        return self._made[key]

    @property
    def made(self) -> dict[str, T]:
        """The values that were asked for so far."""
        return dict(self._made)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)
