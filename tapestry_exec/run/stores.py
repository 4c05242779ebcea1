"""Arrays that lie elsewhere, of Zarr's, Dask's and in files: read and written region by region, never as a whole.

::

    run(plan, {"x": zarr_array}, outputs={"y": another})

    device 0   place x[:2]   ◄── source.take(regions)        reads the cells that it is given, where the device runs
               output y[:2]  ──► target.write(region, …)     if no other device writes to the chunks there
    caller     output y[2:4] ──► target.write(region, …)     else he writes, who is alone
"""

from __future__ import annotations

import os
import pickle
from abc import abstractmethod
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import product
from math import prod
from typing import Any, ClassVar, TypeVar

import numpy as np
from msgspec import Struct

from tapestry_exec.copies import Array
from tapestry_exec.run import tuning
from tapestry_plan.ir import Graph
from tapestry_plan.steps import Buffer, Output
from tapestry_sets.limits import list_names, quote
from tapestry_sets.regions import Region

T = TypeVar("T")
LEFT = "dask"
"""What is given in the place of an array for an output that is left on Dask's workers."""
Slices = tuple[slice, ...]


class Source(Struct, frozen=True):
    """An array that is read by region.

    Parameters
    ----------
    array : object
        Of the library that has it.
    """

    array: Any
    kind: ClassVar[str] = ""

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array."""
        return tuple(self.array.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of its cells."""
        found: np.dtype[Any] = np.dtype(self.array.dtype)
        return found

    @abstractmethod
    def read(self, where: Slices) -> Array:
        """The cells of some slices."""

    @property
    def is_portable(self) -> bool:
        """Whether another process can read it: not by a function of the caller's own script, which none imports."""
        try:
            data = pickle.dumps(self)
            pickle.loads(data)
        except Exception:
            return False
        return b"__main__" not in data

    def list_stored(self) -> Iterator[Any]:
        """The arrays of Zarr's that are read for it."""
        yield from ()

    def take(self, regions: Sequence[Region]) -> Array:
        """The cells of regions, each row-major, one behind the other."""
        parts = [self._take(region) for region in regions]
        return np.concatenate(parts) if len(parts) != 1 else parts[0]

    def _take(self, region: Region) -> Array:
        out: Array = np.empty(region.counts, self.dtype)
        for there, here in list_slices(region):
            block = out[here] if here else out  # of no axes it would be a number
            for few, at in self.cut(there):
                block[at] = self.read(few)
        return out.reshape(-1)

    def cut(self, where: Slices) -> Iterator[tuple[Slices, Slices]]:
        """Slices that are read one after the other in the place of some, each with where it is in these."""
        yield where, (slice(None),) * len(where)

    def read_whole(self) -> Array:
        """All cells."""
        return self.take([Region.full(self.shape)]).reshape(self.shape)


class ZarrSource(Source, frozen=True):
    """An array of Zarr's."""

    kind: ClassVar[str] = "Zarr"

    def read(self, where: Slices) -> Array:
        """The cells of some slices; chunks that they do not touch are not read.

        Raises
        ------
        OSError
            For a chunk that cannot be read: names the store, the chunk, and what Zarr or its codec says.
        """
        try:
            return np.asarray(self.array[where])
        except MemoryError:
            raise
        except Exception as error:  # of any codec, or any store
            raise OSError(
                f"Zarr's array {quote(_name_store(self.array))}: {self._find_damaged(where)} cannot be read "
                f"({type(error).__name__}: {error}); it is damaged, or its codec is not installed here: write it "
                "again, or give the values in another array"
            ) from error

    def cut(self, where: Slices) -> Iterator[tuple[Slices, Slices]]:
        """Slices of few chunks."""
        return cut_at_chunks(where, self.array.chunks, self.dtype.itemsize)

    def _find_damaged(self, where: Slices) -> str:
        """Which chunk of some slices cannot be read."""
        sizes = Target(self.array).chunk
        axes = [range(n)[one] for one, n in zip(where, self.shape, strict=True)]
        spans = [range(axis[0] // size, axis[-1] // size + 1) for axis, size in zip(axes, sizes, strict=True)]
        for at in product(*spans):
            try:
                self.array[tuple(slice(k * size, (k + 1) * size) for k, size in zip(at, sizes, strict=True))]
            except Exception:
                return f"its chunk {quote(self.array.metadata.encode_chunk_key(at))}"
        return f"a chunk of its cells {where}"

    def list_stored(self) -> Iterator[Any]:
        """The array itself."""
        yield self.array

    @property
    def is_portable(self) -> bool:
        """Whether another process can read it: not one that lies in this one's memory."""
        return "Memory" not in type(getattr(self.array, "store", None)).__name__ and super().is_portable


class FilePart(Struct, frozen=True):
    """The cells of an array as they lie in a file, row-major.

    Parameters
    ----------
    file : str
    inode : int
        Which tells a file from another one that took its name.
    at : int
        How many bytes are before them.
    shape : tuple of int
    dtype : str
    """

    file: str
    inode: int
    at: int
    shape: tuple[int, ...]
    dtype: str

    def map(self) -> Array:
        """The cells, of which pages are read when they are looked at.

        Raises
        ------
        OSError
            Where the file is gone, or is another one.
        """
        with open(self.file, "rb") as file:
            if os.fstat(file.fileno()).st_ino != self.inode:
                raise OSError(f"the file {self.file} was replaced while its constants were used: run again")
            return np.asarray(np.memmap(file, self.dtype, "r", self.at, self.shape))


class FileSource(Source, frozen=True):
    """An array in a file that this process has mapped: others map it, too, and read their regions."""

    kind: ClassVar[str] = "file"

    def read(self, where: Slices) -> Array:
        """The cells of some slices; pages that they do not touch are not read."""
        found: Array = self.array.map()[where]
        return found

    def take(self, regions: Sequence[Region]) -> Array:
        """The cells of regions, each row-major, one behind the other: the file is mapped once."""
        cells = self.array.map()
        out = np.empty(sum(region.size for region in regions), self.dtype)
        end = 0
        for region in regions:
            block = out[end : end + region.size].reshape(region.counts)
            for there, here in list_slices(region):
                block[here] = cells[there]
            end += region.size
        return out


class MappedFiles:
    """The files that this process has mapped for reading, by where they lie in memory; of Linux alone."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, int, int, int, str]] = []
        """Where each begins and ends, what is before it in the file, the file's inode, and its path; ascending."""
        with suppress(OSError), open("/proc/self/maps") as maps:
            for line in maps:
                span, may, offset, _, inode, *path = line.rstrip("\n").split(maxsplit=5)
                if may == "r--s" and path and inode != "0":  # shared: what others do to it is seen here as well
                    begin, end = (int(each, 16) for each in span.split("-"))
                    self.parts.append((begin, end, int(offset, 16), int(inode), path[0]))

    def find(self, array: Any) -> FileSource | None:
        """What reads an array from its file, where it lies in one and the file still has its name."""
        if not isinstance(array, np.ndarray) or not array.size or not array.flags.c_contiguous:
            return None
        if np.dtype(array.dtype.str) != array.dtype:  # which has no name of NumPy's
            return None
        where = array.__array_interface__["data"][0]
        k = bisect_right(self.parts, where, key=lambda part: part[0]) - 1
        if k < 0 or where + array.nbytes > self.parts[k][1]:
            return None
        begin, _, offset, inode, path = self.parts[k]
        try:
            if os.stat(path).st_ino != inode:
                return None
        except OSError:
            return None
        return FileSource(FilePart(path, inode, where - begin + offset, array.shape, array.dtype.str))


class DaskSource(Source, frozen=True):
    """An array of Dask's, of which chunks are computed as they are read."""

    kind: ClassVar[str] = "Dask"

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array; -1 where it is not known."""
        return tuple(-1 if n != n else int(n) for n in self.array.shape)

    def read(self, where: Slices) -> Array:
        """The cells of some slices; only the chunks that they touch are computed.

        Raises
        ------
        ValueError
            Where they have another shape or dtype than the array says.
        """
        asked = self.array[where]
        found = np.asarray(_fetch_chunks(asked).compute(scheduler="synchronous"))
        if found.shape != asked.shape or found.dtype != self.dtype:
            raise ValueError(
                f"Dask's array {quote(self.array.name)} has cells of dtype {found.dtype} and shape "
                f"{quote(found.shape)} where it says {self.dtype} and {quote(tuple(asked.shape))}; say what its "
                "function returns, as map_blocks(function, dtype=, chunks=)"
            )
        return found

    def list_stored(self) -> Iterator[Any]:
        """Those in its graph."""
        for one in self._list_values():
            if isinstance(found := find_source(one), ZarrSource):
                yield found.array

    def _list_values(self) -> Iterator[Any]:
        """What its graph has, beside its tasks."""
        return (getattr(one, "value", one) for one in dict(self.array.__dask_graph__()).values())

    @property
    def _has_futures(self) -> bool:
        """Whether chunks lie on workers of a cluster, which only its client reaches."""
        return any(map(_is_future, self._list_values()))

    def list_futures(self) -> dict[tuple[int, ...], Any] | None:
        """By the place in the grid: the future of each chunk; None where some chunk is not one, but to be computed."""
        graph, name = dict(self.array.__dask_graph__()), self.array.name
        places = list(product(*(range(len(each)) for each in self.array.chunks)))
        found = {at: getattr(one, "value", one) for at in places if (one := graph.get((name, *at))) is not None}
        return found if len(found) == len(places) and all(map(_is_future, found.values())) else None

    @property
    def is_portable(self) -> bool:
        """Whether another process can compute it."""
        return not self._has_futures and super().is_portable


def _is_future(value: Any) -> bool:
    return type(value).__module__.startswith("distributed") and hasattr(value, "client")


KINDS: dict[str, type[Source]] = {"zarr": ZarrSource, "dask": DaskSource}
"""By library, which is loaded where there is an array of it."""


def find_source(value: Any) -> Source | None:
    """What reads an array by region, where it lies elsewhere; None of arrays in memory."""
    if isinstance(value, Source):
        return value
    kind = KINDS.get(type(value).__module__.partition(".")[0])
    return kind(value) if kind is not None and hasattr(value, "shape") and hasattr(value, "dtype") else None


def take_whole(value: Any) -> Any:
    """An array in memory: what lies elsewhere is read."""
    source = find_source(value)
    return value if source is None else source.read_whole()


def list_slices(region: Region) -> Iterator[tuple[Slices, Slices]]:
    """Slices that make up a region, each with where its cells are in an array of the region's alone."""
    if region.is_box:
        bounds = region.bounds()
        if bounds is not None:
            yield tuple(slice(a, b) for a, b in zip(*bounds, strict=True)), (slice(None),) * region.rank
        return
    axes = [[pair for run in runs for pair in _cut_run(run.first, run.levels, run.rank)] for runs in region.grids()]
    for chosen in product(*axes):
        yield tuple(there for there, _ in chosen), tuple(here for _, here in chosen)


def _cut_run(first: int, levels: Sequence[tuple[int, int]], rank: int) -> Iterator[tuple[slice, slice]]:
    """Elements of a nested grid as slices along its longest level."""
    if not levels:
        yield slice(first, first + 1), slice(rank, rank + 1)
        return
    weights = [prod(count for count, _ in levels[k + 1 :]) for k in range(len(levels))]
    longest = max(range(len(levels)), key=lambda k: levels[k][0])
    count, step = levels[longest]
    others = [range(n) if k != longest else range(1) for k, (n, _) in enumerate(levels)]
    for at in product(*others):
        begin = first + sum(j * each for j, (_, each) in zip(at, levels, strict=True))
        place = rank + sum(j * weight for j, weight in zip(at, weights, strict=True))
        end = place + (count - 1) * weights[longest] + 1
        yield slice(begin, begin + (count - 1) * step + 1, step), slice(place, end, weights[longest])


def cut_at_chunks(where: Slices, chunk: Sequence[int], itemsize: int) -> Iterator[tuple[Slices, Slices]]:
    """Cut slices where chunks begin, in halves of the first axis that has more than one, until they are few bytes."""
    axes = [range(one.start, one.stop, one.step or 1) for one in where]
    for found in _halve_at_chunks([range(len(axis)) for axis in axes], axes, chunk, itemsize):
        there = [axis[each.start : each.stop] for axis, each in zip(axes, found, strict=True)]
        yield tuple(slice(r.start, r.stop, r.step) for r in there), tuple(slice(r.start, r.stop) for r in found)


def _halve_at_chunks(
    places: list[range], axes: Sequence[range], chunk: Sequence[int], itemsize: int
) -> Iterator[list[range]]:
    if prod(map(len, places)) * itemsize > tuning.ASKED_NBYTES:
        for k, (place, axis, size) in enumerate(zip(places, axes, chunk, strict=True)):
            if axis[place[0]] // size == axis[place[-1]] // size:
                continue
            half = axis[place[len(place) // 2]] // size
            border = max(half, axis[place[0]] // size + 1) * size  # where a chunk begins
            middle = bisect_left(axis, border)
            for part in (range(place.start, middle), range(middle, place.stop)):
                yield from _halve_at_chunks([*places[:k], part, *places[k + 1 :]], axes, chunk, itemsize)
            return
    yield places


# ---------------------------------------------------------------------------------------------------- writing


class Target(Struct, frozen=True):
    """An array of Zarr's that an output is written to.

    Parameters
    ----------
    array : object
    """

    array: Any

    def give(self) -> Any:
        """What the result of the run has."""
        return self.array

    def write(self, region: Region, cells: Array) -> None:
        """Write the cells of a region, which come row-major."""
        block = cells.reshape(region.counts)
        try:
            for there, here in list_slices(region):
                for few, at in cut_at_chunks(there, self.chunk, block.itemsize):
                    self.array[few] = block[here][at]
        except OSError as error:
            raise OSError(
                error.errno,
                f"an output cannot be written to Zarr's array {quote(_name_store(self.array))} "
                f"({error.strerror or error}); make room there, or give another array",
            ) from error

    @property
    def chunk(self) -> tuple[int, ...]:
        """What has one writer at a time: a shard, or a chunk where there are none."""
        return tuple(getattr(self.array, "shards", None) or self.array.chunks)


class Written(Struct, frozen=True):
    """The outputs of a run that are written elsewhere, and who writes them.

    Parameters
    ----------
    targets : mapping of str to Target
        By label.
    own : mapping of int to str
        The blocks, by their places among those of all outputs, that their devices write, with the labels.
    is_writer : bool
        Whether who has this writes the others.
    """

    targets: Mapping[str, Target]
    own: Mapping[int, str]
    is_writer: bool = True

    def write(self, k: int, region: Region, cells: Array) -> Array:
        """Write a block, if its device does; what is left to hand to the caller."""
        if k not in self.own:
            return cells
        self.targets[self.own[k]].write(region, cells)
        return cells[:0]


def check_label(graph: Graph, label: str, argument: str) -> None:
    """Raise ValueError for an output that the graph does not have."""
    if label not in graph.outputs:
        known = list_names(graph.outputs, label, "outputs")
        raise ValueError(f"{argument}: the graph has no output {quote(label)}; {known}")


def find_targets(
    graph: Graph,
    outputs: Sequence[Output],
    buffers: Mapping[int, Buffer],
    given: Mapping[str, Any],
    inputs: Mapping[str, Any],
    leave: Callable[[Output], Target] | None = None,
) -> Written:
    """Who writes which blocks of outputs to which arrays.

    Parameters
    ----------
    graph : Graph
    outputs : sequence of Output
    buffers : mapping of int to Buffer
    given : mapping of str to array, or "dask"
        By label.
    inputs : mapping of str to array
    leave : callable, optional
        What has an output stay where the backend's devices are.

    Raises
    ------
    TypeError
        For what is not an array of Zarr's.
    ValueError
        For outputs that the graph does not have, or that are not brought, arrays of another shape or dtype, or that
        cannot be written, and those that an input is read from, or another output is written to.
    """
    taken = {
        _locate(one): f"input {quote(name)} is read from"
        for name, value in inputs.items()
        if (read := find_source(value)) is not None
        for one in read.list_stored()
    }
    targets = dict[str, Target]()
    for label, value in given.items():
        check_label(graph, label, "outputs")
        if label not in {one.name for one in outputs}:
            raise ValueError(
                f"outputs: output {quote(label)} is not brought to the caller; have deploy(outputs=) name it, too"
            )
        what = f"output {quote(label)}"
        if isinstance(value, str) and value == LEFT:
            targets[label] = _leave(graph, next(one for one in outputs if one.name == label), leave)
            continue
        if not isinstance(find_source(value), ZarrSource):
            raise TypeError(
                f"outputs: {what} is to be written to {quote(value)}; give an array of Zarr's, as zarr.create_array "
                "makes, or 'dask' to leave it on Dask's workers"
            )
        source = graph.source(graph.outputs[label])
        if tuple(value.shape) != source.shape:
            raise ValueError(
                f"outputs: {what} has shape {quote(source.shape)}, the array of Zarr's {quote(tuple(value.shape))}; "
                "give one of that shape"
            )
        if np.dtype(value.dtype) != np.dtype(source.dtype):
            raise ValueError(
                f"outputs: {what} is {source.dtype}, the array of Zarr's {np.dtype(value.dtype)}; give one of "
                f"{source.dtype}"
            )
        if getattr(value, "read_only", False):
            raise ValueError(f"outputs: the array for {what} is open for reading; open it with mode='r+'")
        place = _locate(value)
        if place in taken:
            raise ValueError(
                f"outputs: {what} is to be written to the array that {taken[place]}, while it is; give it an array of "
                "its own"
            )
        taken[place] = f"output {quote(label)} is written to"
        targets[label] = Target(value)
    own: dict[int, str] = {}
    begin = 0
    for output in outputs:
        if isinstance(given.get(output.name), str):
            own |= {begin + k: output.name for k in range(len(output.blocks))}
        elif output.name in targets and graph.source(output.tensor).direct and is_portable(targets[output.name]):
            mine = [(buffers[number].device, region) for number, region in output.blocks]
            alone = _find_alone(mine, targets[output.name].chunk)
            own |= {begin + k: output.name for k in alone}
        begin += len(output.blocks)
    return Written(targets, own)


def _leave(graph: Graph, output: Output, leave: Callable[[Output], Target] | None) -> Target:
    """How an output stays where its devices are.

    Raises
    ------
    ValueError
        Where nothing stays there, and for views: their cells are those of other tensors.
    """
    what = f"outputs: output {quote(output.name)} is to stay on Dask's workers"
    if leave is None:
        raise ValueError(f"{what}, which the backend does not run on; give backend=DaskBackend(client)")
    if not graph.source(output.tensor).direct:
        raise ValueError(
            f"{what}, and is a view of what operators made; give out what is viewed, and view that in Dask, or let an "
            "operator make it"
        )
    return leave(output)


def _locate(array: Any) -> tuple[str, ...]:
    """Where an array of Zarr's lies, the same for all its handles."""
    store, path = getattr(array, "store", None), str(getattr(array, "path", ""))
    while type(inner := getattr(store, "_store", None)).__module__.startswith("zarr."):  # as one that logs
        store = inner
    root = getattr(store, "root", None)
    if isinstance(root, str | os.PathLike):
        return "file", os.path.realpath(os.path.join(root, path))
    if (system := getattr(store, "fs", None)) is not None:
        return "fsspec", str(hash(system)), f"{getattr(store, 'path', '')}/{path}"
    return str(store), path


def _name_store(array: Any) -> str:
    """An array of Zarr's as messages name it."""
    return str(getattr(array, "store_path", None) or "/".join(_locate(array)))


def is_portable(target: Target) -> bool:
    """Whether another process can write to it."""
    return ZarrSource(target.array).is_portable


def _find_alone(blocks: Sequence[tuple[int, Region]], chunk: Sequence[int]) -> list[int]:
    """The blocks no chunk of which another device's block touches."""
    spans = []
    for device, region in blocks:
        bounds = region.bounds()
        if bounds is not None:
            low, high = (
                np.array([edge // size for edge, size in zip(edges, chunk, strict=True)], np.int64)
                for edges in (bounds[0], [edge - 1 for edge in bounds[1]])
            )
            spans.append((device, low, high))
        else:
            spans.append((device, np.ones(len(chunk), np.int64), np.zeros(len(chunk), np.int64)))
    devices = np.array([device for device, _, _ in spans])
    lows, highs = (np.array([span[k] for span in spans]).reshape(len(spans), len(chunk)) for k in (1, 2))
    return [
        k
        for k, (device, low, high) in enumerate(spans)
        if not ((devices != device) & (low <= highs).all(axis=1) & (lows <= high).all(axis=1)).any()
    ]


def _fetch_chunks(asked: Any) -> Any:
    """An array of Dask's, with the chunks that lie on workers, as far as it needs them, in this process.

    Workers compute none of it: their threads may be those of devices, which wait for what is read here.
    """
    nodes = dict(asked.__dask_graph__())
    if not any(_is_future(getattr(one, "value", one)) for one in nodes.values()):
        return asked
    from dask import array, optimization

    cull: Any = optimization.cull
    make: Any = array.Array
    nodes, _ = cull(nodes, asked.__dask_keys__())
    futures = {key: found for key, one in nodes.items() if _is_future(found := getattr(one, "value", one))}
    for client in {id(one.client): one.client for one in futures.values()}.values():
        nodes |= client.gather({key: one for key, one in futures.items() if one.client is client})
    return make(nodes, asked.name, asked.chunks, meta=asked._meta)
