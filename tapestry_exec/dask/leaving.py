"""Arrays whose chunks lie on Dask's workers: outputs that are left there, and inputs that are read there.

::

    device    y[0:4]  ──► a value of its worker's, under the key (name, 0, 0) ─┐   one array of Dask's, whose chunks are
    device    y[4:8]  ──► …                           (name, 1, 0)            ─┘   the shards; none goes to the caller

    device    x[2:6]  ◄── of its own worker's values as they lie; of another's by chunk, from worker to worker
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from math import prod
from time import monotonic, sleep
from typing import Any, ClassVar
from uuid import uuid4

import numpy as np
from msgspec import Struct

from tapestry_exec.copies import Array
from tapestry_exec.dask.tuning import LEFT_CHUNKS, LOOK_SECONDS
from tapestry_exec.run import MAX_WAIT_SECONDS, DaskSource, Source, Target
from tapestry_plan.steps import Output
from tapestry_sets.limits import quote
from tapestry_sets.regions import Region

Key = tuple[Any, ...]
Cuts = tuple[tuple[int, ...], ...]
"""By axis, where chunks begin, and where the last one ends."""


class LeftOutput(Target, frozen=True):
    """An output that stays on the workers.

    Parameters
    ----------
    array : object
        The client whose array it will be; None on workers.
    name : str
        Of the array.
    shape : tuple of int
    dtype : str
    cuts : tuple of tuple of int
    owner : str
        The client, as the scheduler knows it.
    values : dict of key to array
        On a worker: what its device wrote.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    cuts: Cuts
    owner: str
    values: dict[Key, Array]

    def __reduce__(self) -> tuple[Any, ...]:
        return LeftOutput, (None, self.name, self.shape, self.dtype, self.cuts, self.owner, {})

    def write(self, region: Region, cells: Array) -> None:
        """Keep the cells of a region as values: an arena's are overwritten by the next run."""
        low, high = _find_bounds(region)
        block = cells.reshape(region.counts)
        for at, spans in _list_chunks(self.cuts, low, high):
            here = tuple(slice(a - first, b - first) for (a, b), first in zip(spans, low, strict=True))
            self.values[self.name, *at] = np.array(block[here])

    @property
    def keys(self) -> list[Key]:
        """Of all chunks."""
        return [(self.name, *at) for at, _ in _list_chunks(self.cuts, (0,) * len(self.shape), self.shape)]

    def give(self) -> Any:
        """The array, of futures of the client's: its chunks live as long as these."""
        import dask.array

        chunks = tuple(tuple(b - a for a, b in pairwise(cuts)) for cuts in self.cuts)
        make: Any = dask.array.Array
        return make(self._hold(), self.name, chunks, dtype=np.dtype(self.dtype))

    def _hold(self) -> dict[Key, Any]:
        """The chunks as the client holds what it has scattered."""
        from distributed import Future

        found = {key: Future(key, self.array) for key in self.keys}
        for key in found:
            self.array.futures[key].finish(type=np.ndarray)
        return found

    def drop(self) -> None:
        """Have the scheduler forget chunks of a run that failed."""
        self._hold()


def leave_output(client: Any, output: Output, blocks: Sequence[Region]) -> LeftOutput:
    """How an output is left on a client's workers: in chunks of the grid that all its blocks' edges make.

    Raises
    ------
    ValueError
        For blocks that are not boxes, and where the grid has very many chunks.
    """
    edges: list[set[int]] = [{0, n} for n in output.shape]
    for region in blocks:
        if not region.is_box:
            raise ValueError(
                f"outputs: output {quote(output.name)} cannot be left on Dask's workers: a device has cells of it with "
                "gaps between them, which are not chunks; write it to an array of Zarr's"
            )
        for axis, pair in enumerate(zip(*_find_bounds(region), strict=True)):
            edges[axis].update(pair)
    cuts = tuple(tuple(sorted(each)) for each in edges)
    if (count := prod(len(each) - 1 for each in cuts)) > LEFT_CHUNKS:
        raise ValueError(
            f"outputs: output {quote(output.name)} would be left on Dask's workers in {count:,} chunks, as its shards "
            f"do not stand in rows; at most {LEFT_CHUNKS:,} are: write it to an array of Zarr's"
        )
    return LeftOutput(client, f"tapestry-{uuid4().hex}", output.shape, output.dtype, cuts, client.id, {})


async def keep_values(worker: Any, outputs: Sequence[LeftOutput]) -> None:
    """Have a worker hold what its device wrote, for the client: what `scatter` does where it is called in a task."""
    for output in outputs:
        values = output.values
        if values:
            worker.update_data(data=dict(values))
            who, nbytes = {key: [worker.address] for key in values}, {key: one.nbytes for key, one in values.items()}
            await worker.scheduler.update_data(who_has=who, nbytes=nbytes, client=output.owner)


# ---------------------------------------------------------------------------------------------------- reading


class Chunks(Struct, frozen=True):
    """What is known of an array whose chunks are values of workers.

    Parameters
    ----------
    shape : tuple of int
    dtype : str
    cuts : tuple of tuple of int
    keys : mapping of tuple of int to key
        By the place of each chunk in the grid.
    who_has : mapping of key to sequence of str
        Addresses of workers.
    """

    shape: tuple[int, ...]
    dtype: str
    cuts: Cuts
    keys: Mapping[tuple[int, ...], Any]
    who_has: Mapping[Any, Sequence[str]]


class LyingSource(Source, frozen=True):
    """An array whose chunks are values of workers, as the task of a device reads it.

    Parameters
    ----------
    array : Chunks
    fetched : dict of key to array
        Chunks of other workers, each fetched once in a run.
    """

    fetched: dict[Any, Array]
    kind: ClassVar[str] = "Dask"

    def read(self, where: tuple[slice, ...]) -> Array:
        """The cells of some slices."""
        axes = [list(_split(one, cuts)) for one, cuts in zip(where, self.array.cuts, strict=True)]
        found = np.empty([len(range(one.start, one.stop, one.step or 1)) for one in where], self.dtype)
        for chosen in product(*axes):
            chunk = self._find(self.array.keys[tuple(k for k, _, _ in chosen)])
            found[tuple(here for _, _, here in chosen)] = chunk[tuple(there for _, there, _ in chosen)]
        return found

    def _find(self, key: Any) -> Array:
        """A chunk, where it lies here, or of another worker; which needs no thread of that one, as it has none free."""
        from distributed import get_worker

        worker = get_worker()
        if key in worker.data:
            return np.asarray(worker.data[key])
        if key not in self.fetched:
            self.fetched[key] = self._fetch(key, worker)
        return self.fetched[key]

    def _fetch(self, key: Any, worker: Any) -> Array:
        from distributed.worker import get_data_from_worker

        stop, places = monotonic() + MAX_WAIT_SECONDS, self.array.who_has[key]
        while monotonic() < stop:
            is_busy = False
            for address in places:
                asking = get_data_from_worker(worker.rpc, [key], address, who=worker.address)
                answer = asyncio.run_coroutine_threadsafe(asking, worker.loop.asyncio_loop).result(MAX_WAIT_SECONDS)
                if key in answer.get("data", {}):
                    return np.asarray(answer["data"][key])
                is_busy |= answer["status"] == "busy"
            if not is_busy:
                break
            sleep(LOOK_SECONDS / 10)
        raise LookupError(
            f"the chunk {quote(key)} of an array of Dask's is not given by {quote(places)}: compute the array again"
        )


def find_lying(source: Source, client: Any) -> LyingSource | None:
    """How workers read an array all of whose chunks are values of theirs; None of others, as of what is to be computed.

    Parameters
    ----------
    source : Source
    client : distributed.Client
        Of the workers' scheduler.
    """
    if not isinstance(source, DaskSource) or -1 in source.shape:
        return None
    array, futures = source.array, source.list_futures()
    if futures is None or any(_find_address(one) != client.scheduler.address for one in futures.values()):
        return None
    who_has = client.who_has(list(futures.values()))
    if not all(who_has.get(one.key) for one in futures.values()):
        return None
    cuts = tuple(tuple(int(n) for n in np.cumsum([0, *chunks])) for chunks in array.chunks)
    keys = {at: one.key for at, one in futures.items()}
    who = {key: tuple(who_has[key]) for key in keys.values()}
    return LyingSource(Chunks(source.shape, source.dtype.str, cuts, keys, who), {})


def _find_address(future: Any) -> str:
    """Of a future's scheduler."""
    return "" if future.client is None else str(future.client.scheduler.address)


# ---------------------------------------------------------------------------------------------------- chunks


def _list_chunks(
    cuts: Cuts, low: Sequence[int], high: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], tuple[tuple[int, int], ...]]]:
    """The chunks of a grid in a box whose edges are cuts: their places, and by axis their begin and end."""
    axes = [
        [(k, span) for k, span in enumerate(pairwise(each)) if a <= span[0] and span[1] <= b]
        for each, a, b in zip(cuts, low, high, strict=True)
    ]
    for chosen in product(*axes):
        yield tuple(k for k, _ in chosen), tuple(span for _, span in chosen)


def _find_bounds(region: Region) -> tuple[Sequence[int], Sequence[int]]:
    bounds = region.bounds()
    assert bounds is not None, "blocks of outputs have cells"
    return bounds


def _split(one: slice, cuts: Sequence[int]) -> Iterator[tuple[int, slice, slice]]:
    """A slice chunk by chunk: the chunk, the slice there, and where its cells are in the whole slice."""
    step, points = one.step or 1, range(one.start, one.stop, one.step or 1)
    for k, (a, b) in enumerate(pairwise(cuts)):
        first, last = (-(-(edge - one.start) // step) for edge in (a, b))
        first, last = max(first, 0), min(last, len(points))
        if first < last:
            yield k, slice(points[first] - a, points[last - 1] - a + 1, step), slice(first, last)
