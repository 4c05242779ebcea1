"""A run's shards in Dask's task stream: its dashboard and `client.get_task_stream()` show them as they show tasks.

::

    worker      done: what each step took, and when the run began by the scheduler's clock
    caller      list_entries ─► an entry for each shard of an operator, as Dask has one for each task
    scheduler   show ─► the hook through which its task stream hears of tasks; only where a stream is on

Each device has a row of its own below its worker's: the long task that the device is would hide its shards. Dask has
five kinds of bars, and no others; what a shard waited for and got comes before what it computed::

    compute   compute and reduce           transfer   waits for another device's cells, and what puts them in place
    disk-…    to host memory, and back     deserialize   cells of the host, or of the device itself, put in place
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from tapestry_exec.dask.tuning import STREAM_BARS
from tapestry_exec.run import TraceEvent
from tapestry_plan.ir import Shard

ACTIONS = {
    "compute": "compute",
    "reduce": "compute",
    "copy": "deserialize",
    "place": "deserialize",
    "spill": "disk-write",
    "fetch": "disk-read",
}
"""What Dask calls a step of each kind; a copy from another device is a transfer."""


class Bar(NamedTuple):
    """What a device did, in seconds since the run's first step."""

    action: str
    start: float
    stop: float


Named = tuple[tuple[str, ...], list[Bar]]
"""A key, of which Dask shows the first part and colors by it, and what was done under it."""


def list_entries(timeline: Sequence[TraceEvent], shards: Mapping[int, Shard], device: int, most: int) -> list[Named]:
    """What a device did, shard by shard.

    Parameters
    ----------
    timeline : sequence of TraceEvent
        Of this device.
    shards : mapping of int to Shard
        By step.
    device : int
    most : int
        How many bars there may be: of more the oldest are one, which says how many shards it has.
    """
    found, bars = list[Named](), list[Bar]()
    where = f"device {device}"
    for event in timeline:
        bar = _make_bar(event)
        if bar is None:
            continue
        if bars and bars[-1].action == bar.action and event.kind not in ("compute", "reduce"):
            bars[-1] = bars[-1]._replace(stop=bar.stop)
        else:
            bars.append(bar)
        if event.kind in ("compute", "reduce"):
            what = "merged parts" if event.kind == "reduce" else _name_shard(shards[event.step])
            found.append(((event.node, what, where), bars))
            bars = []
    if bars:
        found.append((("outputs", "behind the last shard", where), bars))
    return _shorten(found, where, most)


def _name_shard(shard: Shard) -> str:
    """Its part of the index space, as steps are described."""
    box = shard.index
    return "×".join(f"[{a}, {b})" for a, b in zip(box.start, box.stop, strict=True)) or "one point"


def _make_bar(event: TraceEvent) -> Bar | None:
    if event.phases:
        unpack = event.phases[-1]
        return Bar("transfer", unpack.start - event.waited, unpack.start + unpack.seconds)
    action = ACTIONS.get(event.kind)
    return None if action is None else Bar(action, event.start, event.start + event.seconds)


def _shorten(found: list[Named], where: str, most: int) -> list[Named]:
    """The last entries, with no more bars than are allowed; what was before them is one."""
    count = sum(len(bars) for _, bars in found)
    if count <= most:
        return found
    first = 0
    while first < len(found) and count + 1 > most:
        count -= len(found[first][1])
        first += 1
    before = [bar for _, bars in found[:first] for bar in bars]
    whole = Bar("compute", before[0].start, max(bar.stop for bar in before))
    return [(("earlier", f"{first} entries that are not shown one by one", where), [whole]), *found[first:]]


def list_messages(told: Sequence[tuple[Sequence[Named], str, float]]) -> list[dict[str, Any]]:
    """Entries as the scheduler's stream has them, in the order in which they ended.

    Parameters
    ----------
    told : sequence of (entries, str, float)
        By device: with its worker's address, and when the run began by the scheduler's clock.
    """
    messages = [
        {
            "key": key,
            "worker": worker,
            "thread": key[-1],
            "status": "OK",
            "nbytes": 0,
            "type": None,
            "typename": "",
            "startstops": [
                {"action": bar.action, "start": begin + bar.start, "stop": begin + bar.stop} for bar in bars
            ],
        }
        for entries, worker, begin in told
        for key, bars in entries
    ]
    return sorted(messages, key=lambda one: max(each["stop"] for each in one["startstops"]))


class TaskStream:
    """The task stream of a client's scheduler."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.asked: Future[Any] | None = None
        self.has_warned = False

    def ask(self) -> None:
        """Ask whether a stream is on, while the run is; where the scheduler reads no functions none can be shown."""
        from distributed.protocol.pickle import dumps

        is_on, _ = _make_functions()
        asking = self.client.scheduler.run_function(function=dumps(is_on))
        self.asked = asyncio.run_coroutine_threadsafe(asking, self.client.loop.asyncio_loop)

    def is_on(self, seconds: float) -> bool:
        """What the scheduler said; False where it does not answer."""
        if self.asked is None:
            return False
        asked, self.asked = self.asked, None
        try:
            return bool(asked.result(seconds).get("result"))
        except Exception:  # it is gone, or refuses: the run is done all the same
            asked.cancel()
            return False

    def show(self, told: Sequence[tuple[Sequence[Named], str, float]]) -> None:
        """Have entries shown; that they cannot be does not end a run that is done, and is said once."""
        _, show = _make_functions()
        try:
            self.client.run_on_scheduler(show, list_messages(told))
        except Exception as error:
            if not self.has_warned:
                self.has_warned = True
                warnings.warn(
                    f"backend 'dask': shards are not in Dask's task stream ({type(error).__name__}: {error})",
                    RuntimeWarning,
                    stacklevel=2,
                )


def count_bars(devices: int) -> int:
    """How many bars each device may have."""
    return max(STREAM_BARS // devices, 1)


def _make_functions() -> tuple[Callable[..., bool], Callable[..., None]]:
    """What the scheduler does: functions that go by value, as it need not have this package."""

    def is_on(dask_scheduler: Any) -> bool:
        from distributed.diagnostics.task_stream import TaskStreamPlugin

        return TaskStreamPlugin.name in dask_scheduler.plugins

    def show(messages: Sequence[Mapping[str, Any]], dask_scheduler: Any) -> None:
        from distributed.diagnostics.task_stream import TaskStreamPlugin

        plugin = dask_scheduler.plugins.get(TaskStreamPlugin.name)
        for message in messages if plugin is not None else ():
            told = dict(message)
            plugin.transition(told.pop("key"), "processing", "memory", **told)

    return is_on, show
