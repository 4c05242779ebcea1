"""The folder of checkpoints: written aside, each made valid by one rename, read again with its sums compared.

::

    there/
      .lock                        of the run that saves here: its process, and the host
      .00000002-000040.PLAN.begun/ being written, by a run of the plan with this digest: devices put parts there;
                                   whoever is last arranges them, and renames
        c.0.0.part                 what device 0 holds, as bytes, then its records; it loses .part when all is there
        0.17                       a large buffer of device 0, as bytes
      00000002-000040/             finished: the second attempt, cut 40; of Zarr v3, without large buffers an array
        zarr.json                  of the array, with the manifest: which cells lie where, sums of their bytes, and
                                   the digest of the plan
        c.0.0 …                    its chunks: each device wrote a row of bytes, its small buffers and their records
      00000003-000040/             with large buffers a group
        zarr.json                  of the group, with the manifest
        devices/c.0.0 …            the array of rows
        tensors/0.act/…            an array of a whole tensor, whose chunks are large boxes of devices
        buffers/0.17/…             an array of a large buffer that does not fall on such chunks

No file has two writers, so neither has a chunk. A file costs as much as some 100 KiB of cells, and so does a folder: so
a device has one file for all its small buffers, and no folder is made for these alone. Chunks are bytes as they lie in
memory, without a codec, so that they are written and read here as files, and regions are read through the system's
pages. With Zarr's own package the same arrays took 10 times as long (`tests/bench/bench_checkpoints.py` measures it),
and it writes no two arrays to one file; tests read them with it.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.lib.stride_tricks import as_strided

from tapestry_exec.copies import Array
from tapestry_exec.run import tuning
from tapestry_plan.steps import PlanVersionError, align, seal, unseal
from tapestry_sets.limits import FrozenDict, quote

FORMAT = "tapestry-checkpoint/3"
FINISHED = re.compile(r"(\d{8})-(\d{6,})")
BEGUN = re.compile(r"\.(\d{8})-(\d{6,})\.(\w+)\.begun")
LOCK = ".lock"
ZARR_DTYPES = frozenset(
    {
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    }
)
"""Dtypes that Zarr has under the same names; cells of others are stored as bytes, in one more axis."""
DESCRIPTION = "zarr.json"
"""The file that tells Zarr of an array or a group."""
MANIFEST = "tapestry"
"""Its name among the attributes of a checkpoint."""
LENGTH = struct.Struct("<Q")
"""The number at the end of a device's part, which says how long its records are."""
ROW_NBYTES = 4096
"""Rows are as long as some pages, which they take anyway: so they mostly are of one length, as chunks have to be."""


class SavedBuffer(Struct, frozen=True, omit_defaults=True):
    """The cells of one buffer of a device, as they stand in a checkpoint.

    Parameters
    ----------
    device, buffer : int
    tensor : str
    start, shape : tuple of int
        The box of the tensor's coordinates; it may reach outside the tensor (padding).
    dtype : str
    part : int
        As of `Buffer`.
    is_kept : bool
        Whether it waited in host memory.
    is_full : bool
        Whether it has all cells of its box that are the tensor's: not one that others were still to send.
    sum : str
        Of its bytes, as `sum_bytes` gives it.
    file : str
        Where its bytes are, in the checkpoint's folder.
    at : int
        How many bytes of that file are before them.
    behind : int
        How many are behind them.
    within : int
        The buffer in whose place it lies, and among whose bytes its own are; -1 where these are its own alone.
    strides : tuple of int
        Of its axes there, in elements; empty where it is row-major.
    """

    device: int
    buffer: int
    tensor: str
    start: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str
    part: int
    is_kept: bool
    is_full: bool
    sum: str
    file: str = ""
    at: int = 0
    behind: int = 0
    within: int = -1
    strides: tuple[int, ...] = ()

    @property
    def nbytes(self) -> int:
        """Of its cells."""
        return prod(self.shape) * np.dtype(self.dtype).itemsize


class Manifest(Struct, frozen=True):
    """What a checkpoint says of itself.

    Parameters
    ----------
    plan : str
        The digest of the plan that was running.
    devices : int
    cut : int
        The plan's step with which a run goes on.
    after : str
        The stage behind which it was saved.
    run : int
        Which run of a deployment it was, from 0.
    versions : dict of str to str
        Of what decides about bits.
    inputs : dict of str to str
        Sums of the inputs that lay in memory.
    shapes : dict of str to tuple of int
        Of the tensors that it has cells of.
    buffers : tuple of SavedBuffer
    guests : tuple of SavedBuffer
        Complete buffers within others, whose bytes these have.
    described : dict of str to str
        Sums of the files that tell Zarr of arrays and groups; of the uppermost one without this manifest.
    """

    plan: str
    devices: int
    cut: int
    after: str
    run: int
    versions: dict[str, str]
    inputs: dict[str, str]
    shapes: dict[str, tuple[int, ...]]
    buffers: tuple[SavedBuffer, ...] = ()
    guests: tuple[SavedBuffer, ...] = ()
    described: dict[str, str] = {}


def sum_bytes(array: Array, file: int | None = None, at: int = 0) -> str:
    """A number for an array's bytes, their CRC-32C and how many they are: where bytes differ, so does it.

    That is certain where they differ within 32 bits in a row; of all other differences, also of rows and pages that
    are exchanged, one in four billion is missed. It is the sum of Zarr's own codec; processors have an instruction
    for it, so that it takes a fifth of the time of zlib's CRC-32.

    Parameters
    ----------
    array : array
    file : int, optional
        Where they are written, piece by piece: they are summed while they are in the processor's cache.
    at : int
        How many bytes are before them in the file.
    """
    from google_crc32c import extend  # where there are checkpoints: machines that run kernels alone do not have it

    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if file is not None and flat.nbytes > tuning.SUMMED_NBYTES:
        _reserve(file, at, flat.nbytes)
    found = 0
    for low in range(0, flat.nbytes, tuning.SUMMED_NBYTES):
        piece = flat[low : low + tuning.SUMMED_NBYTES]
        if file is not None:  # first, since that brings them to the cache: the other way around took a third more
            _write_whole(file, piece.data)
        found = extend(found, piece)
    return f"{found:08x}-{flat.nbytes:x}"


# ---------------------------------------------------------------------------------------------------- writing


def name_checkpoint(turn: int, cut: int) -> str:
    """The name of a finished checkpoint: the attempt that wrote it, from 1, and its cut."""
    return f"{turn:08}-{cut:06}"


def name_begun(turn: int, manifest: Manifest) -> str:
    """The name of one that is being written, which says of what plan it is."""
    return f".{name_checkpoint(turn, manifest.cut)}.{manifest.plan}.begun"


def write_part(
    folder: str,
    turn: int,
    manifest: Manifest,
    device: int,
    records: Sequence[SavedBuffer],
    show: Callable[[SavedBuffer], Array],
) -> None:
    """Write what a device holds: its cells first, then its records; a new name says that all of it is there."""
    begun, row = f"{folder}/{name_begun(turn, manifest)}", _name_row(device)
    told = [one for one in records if one.within >= 0]
    small = [one for one in records if one.within < 0 and one.nbytes < tuning.OWN_FILE_NBYTES]
    large = [one for one in records if one.within < 0 and one.nbytes >= tuning.OWN_FILE_NBYTES]
    last = small or large[-1:]  # of large ones alone one has the records behind it
    for record in large if small else large[:-1]:
        name = f"{device}.{_name_alone(record)}"
        with _create(begun, name) as file:
            told.append(replace(record, file=name, sum=sum_bytes(show(record), file)))
    with _create(begun, f"{row}.part") as file:
        end = 0
        for record in last:
            at = align(end)
            if at > end:
                os.lseek(file, at, os.SEEK_SET)
            name = "" if small else row
            told.append(replace(record, file=name, at=at, sum=sum_bytes(show(record), file, at)))
            end = at + record.nbytes
        packed = msgspec.json.encode(told)
        packed += LENGTH.pack(len(packed))
        behind = end + len(packed)
        os.lseek(file, -(-behind // ROW_NBYTES) * ROW_NBYTES - len(packed), os.SEEK_SET)
        _write_whole(file, memoryview(packed))
    os.rename(f"{begun}/{row}.part", f"{begun}/{row}")


@contextmanager
def _create(folder: str, name: str) -> Iterator[int]:
    """A new file, by its descriptor, in a folder that is made where there is none."""
    try:
        file = _open_new(f"{folder}/{name}")
    except FileNotFoundError:
        with suppress(FileExistsError):
            os.mkdir(folder)
        file = _open_new(f"{folder}/{name}")
    try:
        yield file
    finally:
        os.close(file)


def _open_new(path: str) -> int:
    """The descriptor of a new file: Python's own files cost as much again."""
    return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0), 0o666)


def _write_whole(file: int, data: memoryview) -> None:
    while data.nbytes:  # the system may write less
        data = data[os.write(file, data) :]


def _find_fallocate() -> Callable[[int, int, int, int], int] | None:
    """The system's call; Python's own one writes to each page where a file system cannot do that."""
    found = getattr(ctypes.CDLL(None), "fallocate64", None) if sys.platform == "linux" else None
    if found is not None:
        found.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
    return found


_fallocate = _find_fallocate()


def _reserve(file: int, at: int, nbytes: int) -> None:
    """Have room on the disk set aside for what is written next, where that can be done: so it takes a third less.

    The file keeps its length. What cannot be set aside the writing itself will tell.
    """
    if _fallocate is not None:
        _fallocate(file, 1, at, nbytes)  # 1: FALLOC_FL_KEEP_SIZE


def _name_alone(record: SavedBuffer) -> str:
    return f"{record.buffer}{'.kept' if record.is_kept else ''}"


def finish(folder: str, turn: int, manifest: Manifest) -> bool:
    """Make a checkpoint valid, if all devices have written their parts and nobody else does; whether that was done."""
    begun = f"{folder}/{name_begun(turn, manifest)}"
    rows = [_name_row(device) for device in range(manifest.devices)]
    if not all(os.path.exists(f"{begun}/{row}") for row in reversed(rows)):  # the last one is mostly the one missing
        return False
    try:
        group = _open_new(f"{begun}/zarr.json")  # of those that were last, one is told that it made it
    except (FileExistsError, FileNotFoundError):
        return False
    try:
        told, guests = dict[str, tuple[int, list[SavedBuffer]]](), list[SavedBuffer]()
        for row in rows:
            end, records = _read_records(f"{begun}/{row}")
            guests += (one for one in records if one.within >= 0)
            told[row] = end, [one for one in records if one.within < 0]
        described = dict[str, str]()
        large = [one for _, records in told.values() for one in records if one.file]
        for one in large:
            if one.file in told:
                os.truncate(f"{begun}/{one.file}", one.nbytes)
        ends = {row: end for row, (end, records) in told.items() if all(one.file != row for one in records)}
        length, above = max(ends.values(), default=0), "devices/" if large else ""
        top = _join_rows(begun, ends, (len(rows), length), above, described)
        buffers = [
            replace(one, file=above + row, behind=length - one.at - one.nbytes)
            for row in ends
            for one in told[row][1]
            if not one.file
        ]
        buffers += _arrange(begun, large, manifest.shapes, described)
        hosts = {(one.device, one.buffer): one for one in buffers if not one.is_kept}
        guests = [_lay_in(one, hosts[one.device, one.within]) for one in guests]
        known = {one.tensor for one in (*buffers, *guests)}
        shapes = {name: shape for name, shape in manifest.shapes.items() if name in known}
        described[DESCRIPTION] = _sum_text(msgspec.json.encode({**top, "attributes": {MANIFEST: None}}))
        lying = {"buffers": tuple(buffers), "guests": tuple(guests), "described": described}
        whole = replace(manifest, shapes=shapes, **lying)
        sealed = msgspec.Raw(seal({"format": FORMAT, **msgspec.to_builtins(whole)}).encode())
        _write_json(group, {**top, "attributes": {MANIFEST: sealed}})
    finally:
        os.close(group)
    os.rename(begun, f"{folder}/{name_checkpoint(turn, manifest.cut)}")
    return True


def _lay_in(guest: SavedBuffer, host: SavedBuffer) -> SavedBuffer:
    """The record of a buffer within another one, with where its cells lie in the file of that."""
    return replace(
        guest, file=host.file, at=host.at + guest.at, behind=host.nbytes + host.behind - guest.at - guest.nbytes
    )


def _join_rows(
    begun: str, ends: Mapping[str, int], shape: tuple[int, int], above: str, described: dict[str, str]
) -> Mapping[str, Any]:
    """Make devices' parts the rows of an array, beside others in a folder of its own; what Zarr reads of the whole."""
    array = _describe(shape, (1, shape[1]), "uint8", {})
    for row, end in ends.items():
        if end < shape[1]:
            os.truncate(f"{begun}/{row}", shape[1])
    if not above:
        return array
    if ends:
        os.mkdir(f"{begun}/{above}")
        for row in ends:
            os.rename(f"{begun}/{row}", f"{begun}/{above}{row}")
        _write_description(begun, above, array, described)
    return GROUP


def _read_records(part: str) -> tuple[int, list[SavedBuffer]]:
    """How many bytes a device's part has, and its records, which are the last of these."""
    file = os.open(part, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    try:
        end = os.lseek(file, -LENGTH.size, os.SEEK_END)
        (length,) = LENGTH.unpack(os.read(file, LENGTH.size))
        os.lseek(file, end - length, os.SEEK_SET)
        return end + LENGTH.size, _RECORDS.decode(os.read(file, length))
    finally:
        os.close(file)


_RECORDS = msgspec.json.Decoder(list[SavedBuffer])


def _name_row(device: int) -> str:
    return f"c.{device}.0"


def _arrange(
    begun: str, records: Sequence[SavedBuffer], shapes: Mapping[str, tuple[int, ...]], described: dict[str, str]
) -> Iterator[SavedBuffer]:
    """Put the bytes of large buffers to where Zarr looks for chunks; the records, with these places."""
    by_tensor: dict[str, list[SavedBuffer]] = {}
    for record in records:
        by_tensor.setdefault(record.tensor, []).append(record)
    for number, (tensor, mine) in enumerate(by_tensor.items()):
        chunk = _find_chunk(mine, shapes.get(tensor))
        whole = f"tensors/{number}.{re.sub(r'[^A-Za-z0-9_-]', '_', tensor)[:60]}"
        if chunk is not None:
            _make_group(begun, "tensors/", described)
            os.mkdir(f"{begun}/{whole}")
            array = _describe(shapes[tensor], chunk, mine[0].dtype, {"tensor": tensor})
            _write_description(begun, f"{whole}/", array, described)
        taken = set[str]()
        for record in mine:
            file = f"{whole}/{_name_chunk(record, chunk)}" if chunk is not None else ""
            if not file or file in taken:  # a replica of a chunk has an array of its own
                alone = f"buffers/{record.device}.{_name_alone(record)}"
                about = {"tensor": tensor, "device": record.device, "start": list(record.start), "part": record.part}
                _make_group(begun, "buffers/", described)
                os.mkdir(f"{begun}/{alone}")
                array = _describe(record.shape, record.shape, record.dtype, about)
                _write_description(begun, f"{alone}/", array, described)
                file = f"{alone}/c" + ".0" * (len(record.shape) + (record.dtype not in ZARR_DTYPES))
            taken.add(file)
            os.rename(f"{begun}/{record.file}", f"{begun}/{file}")
            yield replace(record, file=file)


def _make_group(begun: str, name: str, described: dict[str, str]) -> None:
    with suppress(FileExistsError):
        os.mkdir(f"{begun}/{name}")
        _write_description(begun, name, GROUP, described)


def _find_chunk(records: Sequence[SavedBuffer], shape: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """The chunks of a regular grid of which some buffers of a tensor are all, each whole; None if they are not."""
    chunk = records[0].shape
    if shape is None or len(chunk) != len(shape) or any(r.shape != chunk or r.part >= 0 for r in records):
        return None
    if not all(chunk) or any(n % size for n, size in zip(shape, chunk, strict=True)):
        return None
    starts = {record.start for record in records}
    if any(at % size or not 0 <= at < n for start in starts for at, n, size in zip(start, shape, chunk, strict=True)):
        return None
    return chunk if len(starts) == np.prod([n // size for n, size in zip(shape, chunk, strict=True)]) else None


def _name_chunk(record: SavedBuffer, chunk: tuple[int, ...]) -> str:
    numbers = [at // size for at, size in zip(record.start, chunk, strict=True)]
    return ".".join(["c", *map(str, numbers), *(["0"] if record.dtype not in ZARR_DTYPES else [])])


def _describe(shape: Sequence[int], chunk: Sequence[int], dtype: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """What Zarr v3 reads of an array: of chunks of bytes in row-major order, the lowest byte first."""
    itemsize = np.dtype(dtype).itemsize
    more = () if dtype in ZARR_DTYPES else (itemsize,)
    name = dtype if dtype in ZARR_DTYPES else "uint8"
    fill: Any = False if name == "bool" else [0.0, 0.0] if name.startswith("complex") else 0
    is_single = np.dtype(name).itemsize == 1
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [*shape, *more],
        "data_type": name,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [*(max(n, 1) for n in chunk), *more]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "codecs": [{"name": "bytes"} if is_single else {"name": "bytes", "configuration": {"endian": "little"}}],
        "fill_value": fill,
        "attributes": {**about, **({} if dtype in ZARR_DTYPES else {"dtype": dtype})},
    }


GROUP: FrozenDict[str, Any] = FrozenDict({"zarr_format": 3, "node_type": "group", "attributes": FrozenDict[str, Any]()})
"""What Zarr v3 reads of a group."""


def _write_description(begun: str, folder: str, metadata: Mapping[str, Any], described: dict[str, str]) -> None:
    """Write what Zarr reads of a folder, whose name ends with a slash, and note its sum."""
    text = msgspec.json.encode(metadata)
    with _create(f"{begun}/{folder}", DESCRIPTION) as file:
        _write_whole(file, memoryview(text))
    described[folder + DESCRIPTION] = _sum_text(text)


def _sum_text(text: bytes) -> str:
    return sum_bytes(np.frombuffer(text, np.uint8))


def _write_json(file: int, metadata: Mapping[str, Any]) -> None:
    _write_whole(file, memoryview(msgspec.json.encode(metadata)))


# ---------------------------------------------------------------------------------------------------- reading


def list_finished(folder: Path) -> list[tuple[int, int, Path]]:
    """The finished checkpoints of a folder, from the oldest to the newest: attempt, cut and folder of each."""
    with suppress(OSError, ValueError):
        found = (FINISHED.fullmatch(name) for name in os.listdir(folder))
        return sorted((int(m.group(1)), int(m.group(2)), folder / m.string) for m in found if m is not None)
    return []


def list_begun(folder: Path) -> list[tuple[int, str, Path]]:
    """Those that were never finished: attempt, digest of the plan and folder of each."""
    with suppress(OSError, ValueError):
        found = (BEGUN.fullmatch(name) for name in os.listdir(folder))
        return sorted((int(m.group(1)), m.group(3), folder / m.string) for m in found if m is not None)
    return []


def is_begun(path: Path) -> bool:
    """Whether a folder is named as a checkpoint that is being written."""
    return BEGUN.fullmatch(path.name) is not None


def find_plan(path: Path) -> str:
    """The digest of the plan that a finished checkpoint is of; empty where its manifest cannot be read."""
    try:
        return read_manifest(path).plan
    except ValueError:
        return ""


def check_folder(folder: Path, plan: str) -> None:
    """Raise ValueError for a folder with checkpoints of another plan: begun, or finished."""
    others = [(other, path) for _, other, path in list_begun(folder)]
    others += [(find_plan(path), path) for _, _, path in list_finished(folder)]
    for other, path in others:
        if other not in ("", plan):
            raise ValueError(
                f"checkpoints: the folder {quote(str(folder))} has {path.name} of another plan (its digest is {other}, "
                f"this plan's {plan}); give each run a folder of its own"
            )


def keep_last(folder: str, count: int, plan: str) -> None:
    """Take away the finished checkpoints of a plan, but for the last ones."""
    names = [name for name in os.listdir(folder) if FINISHED.fullmatch(name) is not None]
    for name in sorted(names, key=lambda name: [int(number) for number in name.split("-")])[:-count]:
        if find_plan(old := Path(folder, name)) == plan:
            remove(old)


def check_path(what: str, path: str | PathLike[str]) -> None:
    """Raise ValueError for what names no folder: no text at all, or one that the system cannot take."""
    text = os.fspath(path)
    if not text or "\0" in text:
        raise ValueError(f"{what} is {quote(text)}; give the path of a folder")


_held = set[str]()
"""Locks of this process."""


def lock(folder: Path) -> None:
    """Let no other run save to a folder, until `unlock`.

    Raises
    ------
    ValueError
        Where one does. A lock of a process of this host that is not there any more does not count.
    """
    path = os.path.realpath(folder / LOCK)
    mine = f"{os.getpid()} {socket.gethostname()}"
    for _ in range(2):
        try:
            with open(path, "x") as file:
                file.write(mine)
        except OSError as error:
            if not isinstance(error, FileExistsError):
                with suppress(OSError):
                    os.unlink(path)
                raise ValueError(
                    f"checkpoints: the folder {quote(str(folder))} cannot be written to ({error.strerror}); make room "
                    "there, or choose another one"
                ) from None
            if not _is_over(path):
                break
            with suppress(FileNotFoundError):
                os.unlink(path)
        else:
            _held.add(path)
            return
    with suppress(OSError), open(path) as file:
        process, _, host = file.read().partition(" ")
        mine = f"process {process} on {host}" if host else "another process"
    raise ValueError(
        f"checkpoints: another run saves to the folder {quote(str(folder))} ({mine}); give each run a folder of its "
        f"own, or remove {LOCK} there if that run is over"
    )


def unlock(folder: Path) -> None:
    """Let other runs save to a folder again."""
    path = os.path.realpath(folder / LOCK)
    if path in _held:
        _held.discard(path)
        with suppress(OSError):
            os.unlink(path)


def _is_over(path: str) -> bool:
    """Whether the process that made a lock has ended, as far as that can be known here."""
    try:
        with open(path) as file:
            process, _, host = file.read().partition(" ")
        if host != socket.gethostname():
            return False
        if int(process) == os.getpid():
            return path not in _held
        os.kill(int(process), 0)
    except (FileNotFoundError, ProcessLookupError):
        return True
    except (OSError, ValueError):
        return False
    return False


def remove(path: Path) -> None:
    """Take a checkpoint away: by one rename first, so that what is left is never taken for a finished one."""
    with suppress(OSError):
        gone = path.with_name(f".{path.name.strip('.')}.gone")
        os.rename(path, gone)
        shutil.rmtree(gone, ignore_errors=True)


def read_manifest(path: Path) -> Manifest:
    """What a finished checkpoint says of itself.

    Raises
    ------
    ValueError
        Where it cannot be read, is of another format, or was edited.
    """
    damaged = "it is damaged, or not a checkpoint; resume from another one"
    try:
        group = msgspec.json.decode((path / DESCRIPTION).read_bytes(), type=_Group)
    except OSError as error:
        raise ValueError(f"checkpoint {quote(str(path))} has no zarr.json ({error.strerror}): {damaged}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ValueError(f"checkpoint {quote(str(path))} has another zarr.json ({error}): {damaged}") from None
    if MANIFEST not in group.attributes:
        raise ValueError(f"checkpoint {quote(str(path))} has no manifest in its zarr.json: {damaged}")
    try:
        return unseal(bytes(group.attributes[MANIFEST]), "manifest", FORMAT, "save it again", _read_plain)
    except PlanVersionError as error:
        raise ValueError(
            f"checkpoint {quote(str(path))} is damaged, or of another version: {error}; resume from another one"
        ) from None


class _Group(Struct):
    """What is read of the description of a group of Zarr's."""

    attributes: dict[str, msgspec.Raw]


def _read_plain(entry: dict[str, Any]) -> Manifest:
    return msgspec.convert(entry, Manifest)


def map_cells(path: Path, record: SavedBuffer) -> Array:
    """The cells of a buffer as they lie in their file, of which pages are read when they are looked at.

    Raises
    ------
    ValueError
        Where the file is missing or has another length.
    """
    file, dtype = path / record.file, np.dtype(record.dtype)
    try:
        found = file.stat().st_size
    except OSError as error:
        raise ValueError(_tell_damaged(path, f"{record.file} cannot be read ({error.strerror})", record)) from None
    written = record.at + record.nbytes + record.behind
    if found != written:
        raise ValueError(
            _tell_damaged(path, f"{record.file} has {found:,} bytes, and {written:,} were written", record)
        )
    if not record.nbytes:
        return np.empty(record.shape, dtype)
    last = sum((n - 1) * step for n, step in zip(record.shape, record.strides, strict=False))
    nbytes = (last + 1) * dtype.itemsize if record.strides else record.nbytes
    flat = np.memmap(file, np.uint8, "r", record.at, (nbytes,)).view(dtype)
    if record.strides:
        steps = [step * dtype.itemsize for step in record.strides]
        return as_strided(flat, record.shape, steps, writeable=False)
    cells: Array = flat.reshape(record.shape)
    return cells


def check_bytes(path: Path, manifest: Manifest) -> None:
    """Raise ValueError where a file of a checkpoint is missing or has other bytes than were written."""
    for record in manifest.buffers:
        if sum_bytes(map_cells(path, record)) != record.sum:
            raise ValueError(_tell_damaged(path, f"{record.file} has other bytes than were written", record))
    for name, wanted in manifest.described.items():
        try:
            text = (path / name).read_bytes()
        except OSError as error:
            raise ValueError(_tell_damaged(path, f"{name} cannot be read ({error.strerror})")) from None
        if name == DESCRIPTION:  # of which the manifest has a seal of its own
            sealed = bytes(msgspec.json.decode(text, type=_Group).attributes[MANIFEST])
            text = text.replace(sealed, b"null", 1)
        if _sum_text(text) != wanted:
            raise ValueError(_tell_damaged(path, f"{name} has other bytes than were written"))


def _tell_damaged(path: Path, what: str, record: SavedBuffer | None = None) -> str:
    whose = "" if record is None else f" (tensor {quote(record.tensor)} of device {record.device})"
    return f"checkpoint {quote(str(path))} is damaged: {what}{whose}; resume from another one"
