"""A checker of programs on streams, with vector clocks: every order that the waits allow must be right.

Work on one stream is done in its order; between streams, and for the host, only events and synchronization order
anything. Two accesses to a byte of which one writes must be ordered so, or the result depends on luck. The checker is
told of every operation when it is issued, with the bytes that it reads and writes, and raises at the first that some
order could do too early. Every byte of a memory block remembers, for each stream, the last operation that read or wrote
it; an operation is ordered after another one if the clock of its stream has reached that one's number.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from tapestry_exec.run import OrderingFault
from tapestry_sets.limits import quote

Clock = dict[str, int]
"""For each agent (a stream or the host) the number of the last of its operations that is known to be done."""

HOST = "host"
Numbers = NDArray[np.int32]


class Memory:
    """A block of memory that was allocated at once, and the last accesses of each of its bytes.

    Parameters
    ----------
    name : str
    data : contiguous array of uint8
        The bytes themselves.
    device : int, optional
        The device that it is on; None for memory of the host that devices can reach.
    """

    def __init__(self, name: str, data: NDArray[np.uint8], device: int | None) -> None:
        self.name, self.data, self.device = name, data, device
        self.start, self.nbytes = int(data.ctypes.data), int(data.nbytes)
        self.is_live = True
        self.in_pool = False
        """Whether it was freed to a pool, which may hand it out again."""
        self.tenure = 0
        """How often a pool handed it out."""
        self.written: NDArray[np.bool_] | None = None
        """Which bytes have been written since the memory was handed out; None where nobody asks."""
        self.owners: Numbers | None = None
        """For each byte the number of the buffer in it, negative when that was freed; None where there are none."""
        self.touched = np.zeros(self.nbytes, np.bool_), np.zeros(self.nbytes, np.bool_)
        """Room for which bytes a kernel reads and writes; false while none runs."""
        self._last: dict[tuple[str, bool], Numbers] = {}

    @property
    def stop(self) -> int:
        """The address behind the last byte."""
        return self.start + self.nbytes

    def last(self, agent: str, writes: bool) -> Numbers:
        """For each byte, the last operation of an agent that wrote, or read, it."""
        found = self._last.get((agent, writes))
        if found is None:
            found = self._last[agent, writes] = np.zeros(self.nbytes, np.int32)
        return found

    def histories(self, writes_only: bool) -> Iterator[tuple[str, bool, Numbers]]:
        """Every agent's last operations that wrote, and unless only these are asked for, that read."""
        for (agent, writes), numbers in self._last.items():
            if writes or not writes_only:
                yield agent, writes, numbers


class HeldBuffer(NamedTuple):
    """A buffer in a block of memory: its name, and its first byte and the one behind its last."""

    name: str
    start: int
    stop: int


class Access(Struct, frozen=True, eq=False):
    """Bytes that an operation reads or writes: an array's cells, or the bytes of a mask.

    Parameters
    ----------
    memory : Memory
    offset : int
        Bytes from the block's beginning to the first cell, or to the mask's first byte.
    shape, strides : tuple of int
        Of the bytes: the cells' own, and at last the bytes of one cell at stride 1.
    mask : array of bool, optional
        Which of consecutive bytes are meant; then the shape is ``(len(mask),)``.
    is_poison : bool
        Whether what is written may be poison: it is, where that fills a buffer that nothing was written to. Such bytes
        count as unwritten.
    """

    memory: Memory
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    mask: NDArray[np.bool_] | None = None
    is_poison: bool = False

    def of(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """These bytes' entries in an array with one for each byte of the block, as a view but for a mask."""
        view = self._view(numbers)
        return view if self.mask is None else view[self.mask]

    def put(self, numbers: NDArray[Any], value: int) -> None:
        """Set these bytes' entries."""
        view = self._view(numbers)
        view[... if self.mask is None else self.mask] = value

    def _view(self, numbers: NDArray[Any]) -> NDArray[Any]:
        size = numbers.itemsize
        strides = tuple(s * size for s in self.strides)
        return np.ndarray(self.shape, numbers.dtype, numbers.data, self.offset * size, strides)

    def first(self, wanted: NDArray[np.bool_]) -> int:
        """The address of the first byte for which an array of `of`'s shape is true."""
        places = self.of(np.arange(self.memory.nbytes, dtype=np.int64))
        return self.memory.start + int(places[wanted].min())

    def describe(self) -> str:
        """The range of addresses, from the beginning of the block."""
        places = self.of(np.arange(self.memory.nbytes, dtype=np.int64))
        return f"bytes {int(places.min())} to {int(places.max()) + 1} of {self.memory.name}"


class Operation(Struct, frozen=True):
    """An issued operation, for messages."""

    number: int
    name: str
    agent: str

    def __str__(self) -> str:
        return f"operation {self.number} ({self.name}) on {self.agent}"


@dataclass
class Checker:
    """Follows the operations and the waits that are issued to streams.

    Parameters
    ----------
    check_unwritten : bool
        Also find reads of bytes on devices that nothing wrote since the memory was allocated; what the host writes into
        its own memory is not seen.

    Examples
    --------
    Two streams, and no event between the write and the read:

    >>> checker = Checker()
    >>> memory = checker.allocated("arena 0", np.zeros(64, np.uint8), 0)
    >>> cells = checker.cells(memory.data[:16])
    >>> checker.issue("fill", "stream 1", 0, (), [cells])
    >>> try:
    ...     checker.issue("copy", "stream 2", 0, [cells], ())
    ... except OrderingFault as fault:
    ...     print(str(fault).split(" while ")[0])
    operation 2 (copy) on stream 2 reads bytes 0 to 16 of arena 0

    References
    ----------
    Lamport, "Time, clocks, and the ordering of events in a distributed system", 1978; Flanagan and Freund,
    "FastTrack: efficient and precise dynamic race detection", 2009.
    """

    check_unwritten: bool = False
    clocks: dict[str, Clock] = field(default_factory=dict)
    operations: dict[int, Operation] = field(default_factory=dict)
    peers: set[tuple[int, int]] = field(default_factory=set)
    """Pairs of a device and another one whose memory it may reach."""
    blocks: list[Memory] = field(default_factory=list)
    """By address."""
    count: int = 0
    """Of operations that were issued."""
    _buffers: dict[int, HeldBuffer] = field(default_factory=dict)

    # -- memory ------------------------------------------------------------------------------------------

    def allocated(self, name: str, data: NDArray[np.uint8], device: int | None) -> Memory:
        """Take note of a block of memory."""
        memory = Memory(name, data, device)
        if self.check_unwritten and device is not None:
            memory.written = np.zeros(memory.nbytes, bool)
        self.blocks.insert(bisect_right([block.start for block in self.blocks], memory.start), memory)
        return memory

    def freed(self, memory: Memory) -> None:
        """A block is given back; any later access to it is a fault. Its addresses are not used again."""
        memory.is_live = False
        memory._last.clear()
        memory.owners = None

    def forget(self, memory: Memory) -> None:
        """Drop a block that was freed: its addresses may be used again."""
        self.blocks.remove(memory)

    def at(self, address: int) -> Memory | None:
        """The block that an address lies in."""
        k = bisect_right([block.start for block in self.blocks], address) - 1
        found = self.blocks[k] if k >= 0 else None
        return found if found is not None and address < found.stop else None

    def place(self, address: int) -> tuple[Memory, int, int] | None:
        """The block that a pointer leads to, and the first byte and the one behind the last of the buffer there.

        Of a block that holds no buffers these are all of its bytes. None where no memory is, or no buffer in a block
        that holds some; a buffer that was freed is found until another one takes its place.
        """
        memory = self.at(address)
        if memory is None or memory.owners is None:
            return None if memory is None else (memory, 0, memory.nbytes)
        number = abs(int(memory.owners[address - memory.start]))
        return (memory, *self._buffers[number][1:]) if number else None

    def whereabouts(self, address: int) -> str:
        """The buffer or block at an address, in words for messages."""
        memory = self.at(address)
        if memory is None:
            before = [block for block in self.blocks if block.stop <= address]
            beyond = f", {address - before[-1].stop} bytes behind {before[-1].name}" if before else ""
            return f"at {address:#x}{beyond}, where no memory is"
        where = f"at byte {address - memory.start} of {memory.name}"
        if not memory.is_live:
            return f"{where}, which has been freed"
        if memory.owners is None:
            return where
        number = int(memory.owners[address - memory.start])
        if not number:
            return f"{where}, where no buffer lives"
        return f"{where}, where buffer {self._buffers[abs(number)].name} {'lives' if number > 0 else 'lived'}"

    def span(self, address: int, nbytes: int, what: str) -> Access:
        """So many bytes from an address on, which lie in one block.

        Raises
        ------
        OrderingFault
            When they do not.
        """
        memory = self.at(address)
        if memory is None or address + nbytes > memory.stop:
            where = "in no block of memory" if memory is None else f"beyond the {memory.nbytes} bytes of {memory.name}"
            raise OrderingFault(f"{what}: {nbytes} bytes at {address:#x} lie {where}")
        return Access(memory, address - memory.start, (nbytes,), (1,))

    def cells(self, array: NDArray[Any]) -> Access:
        """The cells of an array that lies in a block."""
        address = int(array.__array_interface__["data"][0])
        memory = self.at(address)
        if memory is None:
            raise OrderingFault(f"an array of shape {quote(array.shape)} at {address:#x} lies in no block of memory")
        return Access(memory, address - memory.start, (*array.shape, array.itemsize), (*array.strides, 1))

    def mark(self, address: int, nbytes: int, name: str, live: bool) -> None:
        """A buffer takes its place in a block, or gives it back.

        Raises
        ------
        OrderingFault
            When another buffer that lives has some of the bytes, or the buffer that is given back does not live there.
        """
        if not nbytes:
            return
        bytes_ = self.span(address, nbytes, f"buffer {name}")
        memory = bytes_.memory
        if memory.owners is None:
            memory.owners = np.zeros(memory.nbytes, np.int32)
        owners = bytes_.of(memory.owners)
        if live:
            taken = owners[owners > 0]
            if len(taken):
                other = self._buffers[int(taken[0])].name
                raise OrderingFault(
                    f"{bytes_.describe()} are given to buffer {name} while buffer {other} lives there; free it first"
                )
            self._buffers[len(self._buffers) + 1] = HeldBuffer(name, bytes_.offset, bytes_.offset + nbytes)
            owners[...] = len(self._buffers)
            if memory.written is not None:
                bytes_.put(memory.written, 0)
            return
        first = int(owners[0])
        if first <= 0 or (owners != first).any() or self._buffers[first].name != name:
            raise OrderingFault(f"{bytes_.describe()} are freed by buffer {name}, which does not live there")
        owners[...] = -first

    # -- order -------------------------------------------------------------------------------------------

    def clock(self, agent: str) -> Clock:
        """The clock that an agent's next operation follows."""
        return self.clocks.setdefault(agent, {})

    def join(self, agent: str, clock: Mapping[str, int]) -> None:
        """All of an agent's later operations come after what a clock says is done."""
        mine = self.clock(agent)
        for other, number in clock.items():
            if mine.get(other, 0) < number:
                mine[other] = number

    def issue(
        self,
        name: str,
        agent: str,
        device: int | None,
        reads: Sequence[Access],
        writes: Sequence[Access],
        everywhere: bool = False,
    ) -> None:
        """An operation is issued to a stream, or done by the host; it comes after what the host knows to be done.

        Parameters
        ----------
        name, agent : str
        device : int, optional
            The one that the stream belongs to; None for the host.
        reads, writes : sequence of Access
        everywhere : bool
            Whether it reaches the memory of every device.

        Raises
        ------
        OrderingFault
            When it touches bytes that are freed, that lie between buffers, that the device cannot reach, or that an
            operation may still write or, where it writes, read.
        """
        # All accesses are checked before any is noted: an operation may write what it reads.
        self.join(agent, self.clock(HOST))
        self.count += 1
        made = Operation(self.count, name, agent)
        accesses = [(access, False) for access in reads] + [(access, True) for access in writes]
        touched = [(access, is_write) for access, is_write in accesses if 0 not in access.shape]
        for access, is_write in touched:
            self._check_reach(made, device, access, everywhere)
            self._check_owner(made, access)
            self._check_order(made, access, is_write)
        for access, is_write in touched:
            if not is_write:
                self._check_written(made, access)
        for access, is_write in touched:
            access.put(access.memory.last(agent, is_write), made.number)
            if is_write and access.memory.written is not None and not self._is_poison(access):
                access.put(access.memory.written, 1)
        self.operations[made.number] = made
        self.clock(agent)[agent] = made.number

    def is_done(self, agent: str, number: int, by: str = HOST) -> bool:
        """Whether an agent, by default the host, comes after an operation."""
        return self.clock(by).get(agent, 0) >= number

    def _check_reach(self, made: Operation, device: int | None, access: Access, everywhere: bool) -> None:
        memory = access.memory
        if not memory.is_live:
            raise OrderingFault(f"{made} touches {access.describe()}, which has been freed")
        if everywhere or memory.device in (None, device) or (device, memory.device) in self.peers:
            return
        who = HOST if device is None else f"device {device}"
        raise OrderingFault(
            f"{made} touches {access.describe()} on device {memory.device}, which {who} cannot reach; copy it, or "
            "enable access between the devices"
        )

    def _check_owner(self, made: Operation, access: Access) -> None:
        if access.memory.owners is None:
            return
        owners = access.of(access.memory.owners)
        if (owners < 0).any():
            name = self._buffers[-int(owners.min())].name
            raise OrderingFault(f"{made} touches {access.describe()}, where buffer {name} lived, which has been freed")
        if not owners.max():
            raise OrderingFault(f"{made} touches {access.describe()}, where no buffer lives")
        if not owners.min() or (access.mask is None and owners.max() != owners.min()):
            names = [self._buffers[int(n)].name if n else "no buffer" for n in (owners.min(), owners.max())]
            raise OrderingFault(f"{made} touches {access.describe()}, which reach from {names[0]} into {names[1]}")

    def _check_order(self, made: Operation, access: Access, is_write: bool) -> None:
        # byte         0  1  2  3      for each stream the number of the last operation that wrote it
        # by stream A  7  7  9  9      an operation of B whose clock says A: 8 may touch bytes 0 and 1 only:
        # by stream B  4  4  .  .      no wait tells that A's operation 9 is done
        clock = self.clock(made.agent)
        for agent, wrote, numbers in access.memory.histories(writes_only=not is_write):
            if agent == made.agent:
                continue
            last = access.of(numbers)
            if int(last.max(initial=0)) > clock.get(agent, 0):
                self._fault(made, access, agent, last > clock.get(agent, 0), int(last.max()), is_write, wrote)

    def _fault(
        self,
        made: Operation,
        access: Access,
        agent: str,
        early: NDArray[np.bool_],
        number: int,
        is_write: bool,
        wrote: bool,
    ) -> None:
        other = self.operations[number]
        if made.agent == HOST:
            mend = f"synchronize {agent}, or an event that it records after that operation, first"
        elif agent == HOST:
            mend = "let the host do so before it issues the operation"
        else:
            mend = f"let {made.agent} wait for an event that {agent} records after that operation"
        first = access.first(early) - access.memory.start
        from_ = "" if early.all() else f" (from byte {first} on)"
        raise OrderingFault(
            f"{made} {'writes' if is_write else 'reads'} {access.describe()}{from_} while {other} may still "
            f"{'write' if wrote else 'read'} them: {mend}"
        )

    def _is_poison(self, access: Access) -> bool:
        """Whether an access fills a buffer that nothing was written to since it took its place, with poison."""
        memory = access.memory
        if not access.is_poison or memory.owners is None or memory.written is None or access.mask is not None:
            return False
        held = self._buffers[int(access.of(memory.owners).flat[0])]
        is_whole = (access.offset, access.shape) == (held.start, (held.stop - held.start,))
        return is_whole and not access.of(memory.written).any()

    def _check_written(self, made: Operation, access: Access) -> None:
        written = access.memory.written
        if written is None:
            return
        found = access.of(written)
        if not found.all():
            first = access.first(~found) - access.memory.start
            raise OrderingFault(
                f"{made} reads {access.describe()}, of which byte {first} was never written since it was allocated"
            )
