"""Values of tensors: held against their dims, and mapped where they lie in files beside the model.

A model may be larger than memory: its large values are mapped, and the pages of a file are read when, and where, a
device's part of a constant is copied. Files are found in the model's folder alone.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from hashlib import file_digest
from math import prod
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapestry_plan.onnx import tuning
from tapestry_sets.limits import quote

BITS = {"INT2": 2, "UINT2": 2, "INT4": 4, "UINT4": 4, "FLOAT4E2M1": 4}
"""Element types of ONNX that are stored packed, several in one byte."""


def is_external(tensor: Any) -> bool:
    """Whether a tensor's values lie in a file beside the model."""
    return bool(tensor.HasField("data_location") and tensor.data_location == tensor.EXTERNAL)


class FilesBeside:
    """The files beside a model, each mapped once.

    Parameters
    ----------
    path : Path or None
        The model's own file, None where it came from none.
    """

    def __init__(self, path: Path | None) -> None:
        self._folder = None if path is None else path.resolve().parent
        self._mapped: dict[Path, mmap] = {}

    def find(self, tensor: Any) -> tuple[Path, int, int]:
        """File, offset and bytes of a tensor that is stored beside the model.

        Raises
        ------
        ValueError
            For a place outside the model's folder, without a file, that does not hold what the tensor's dims need, or
            whose file has another checksum than the model says; and for strings, which no file has.
        """
        _check_place(tensor)
        if self._folder is None:
            raise ValueError(
                "tensors are stored outside the model, but no file was given to look beside; give the model's path"
            )
        return _find_place(tensor, self._folder)

    def take(self, tensor: Any) -> None:
        """Read a tensor's values into it."""
        file, offset, nbytes = self.find(tensor)
        tensor.raw_data = _read_bytes(file, offset, nbytes)
        tensor.data_location = tensor.DEFAULT
        del tensor.external_data[:]

    def read(self, tensor: Any) -> NDArray[Any]:
        """A tensor's values, which it holds itself, or which are mapped."""
        from onnx import TensorProto, helper, numpy_helper

        if not is_external(tensor):
            return np.asarray(numpy_helper.to_array(tensor))
        file, offset, nbytes = self.find(tensor)
        dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type))
        is_plain = TensorProto.DataType.Name(tensor.data_type) not in BITS and sys.byteorder == "little"
        if is_plain and nbytes >= tuning.MAPPED_NBYTES and offset % dtype.itemsize == 0:
            mapped = self._map(file)
            if mapped is not None:
                return np.frombuffer(mapped, dtype, nbytes // dtype.itemsize, offset).reshape(tuple(tensor.dims))
        here = TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        here.raw_data = _read_bytes(file, offset, nbytes)
        return np.asarray(numpy_helper.to_array(here))

    def _map(self, file: Path) -> mmap | None:
        if file not in self._mapped:
            with open(file, "rb") as stored:
                try:
                    self._mapped[file] = mmap(stored.fileno(), 0, access=ACCESS_READ)
                except OSError:  # a file system without, or as many open files as a process may have
                    return None
        return self._mapped[file]


def _read_bytes(file: Path, offset: int, nbytes: int) -> bytes:
    with open(file, "rb") as stored:
        stored.seek(offset)
        return stored.read(nbytes)


def _find_place(tensor: Any, folder: Path) -> tuple[Path, int, int]:
    """File, offset and bytes of a tensor that is stored beside the model."""
    entry = {item.key: item.value for item in tensor.external_data}
    location = entry.get("location", "")
    where = f"tensor {quote(tensor.name)} is stored in {quote(location)}"
    try:
        target = (folder / location).resolve()  # resolves symbolic links and ".."
        is_file = target.is_file()
    except (ValueError, OSError, RuntimeError) as error:  # a zero character, a name too long, a loop of links
        raise ValueError(f"{where}, which is not a path: {error}; name a file beside the model") from None
    if not location or Path(location).is_absolute() or not target.is_relative_to(folder):
        raise ValueError(f"{where}, outside the model's folder {folder}; only files beside the model are read")
    if not is_file:
        raise ValueError(f"{where}, which does not exist in {folder}; put the file beside the model")
    needed = count_nbytes(tensor)
    try:
        offset, length = int(entry.get("offset", 0)), int(entry.get("length", needed))
    except ValueError:
        raise ValueError(f"{where} at an offset or length that is not a number: {entry}") from None
    if offset < 0 or length < 0:
        raise ValueError(
            f"{where} at offset {offset}, length {length}; neither can be negative: export the model again"
        )
    size = target.stat().st_size
    if offset + length > size:
        raise ValueError(
            f"{where}, bytes {offset} to {offset + length}, but the file has {size} bytes; it is truncated"
        )
    if length != needed:
        raise ValueError(f"{where} with {length} bytes; {_needs(tensor, needed)}: export the model again")
    said = entry.get("checksum", "")
    if said:
        state = target.stat()
        found = _find_sum(target, state.st_size, state.st_mtime_ns)
        if found != said.strip().lower():
            raise ValueError(
                f"{where} with the SHA-1 {quote(said)}, but the file has {found}: it was changed, or is another one; "
                "put the file there that the model was exported with"
            )
    return target, offset, needed


@lru_cache(maxsize=64)
def _find_sum(file: Path, nbytes: int, changed: int) -> str:
    """The SHA-1 of a file, which is read once as long as it has so many bytes and was not changed since then."""
    with open(file, "rb") as stored:
        return file_digest(stored, "sha1").hexdigest()


def count_nbytes(tensor: Any) -> int:
    """Bytes that a tensor's dtype and dims ask for."""
    from onnx import TensorProto, helper

    where = f"tensor {quote(tensor.name)}"
    if any(n < 0 for n in tensor.dims):
        raise ValueError(f"{where} has dims {quote(list(tensor.dims))}; none can be negative: export the model again")
    try:
        packed = BITS.get(TensorProto.DataType.Name(tensor.data_type))
        bits = packed or 8 * int(helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize)
    except (KeyError, ValueError, TypeError):
        raise ValueError(
            f"{where} has elements of type {tensor.data_type}, which ONNX does not know: export the model again"
        ) from None
    return -(-prod(map(int, tensor.dims)) * bits // 8)


def count_stored(model: Any) -> int:
    """Bytes that a model has, with those of its initializers that lie beside it."""
    sparse = [part for one in model.graph.sparse_initializer for part in (one.values, one.indices)]
    return int(model.ByteSize()) + sum(map(count_nbytes, filter(is_external, [*model.graph.initializer, *sparse])))


def _needs(tensor: Any, nbytes: int) -> str:
    from onnx import TensorProto

    return f"dims {list(tensor.dims)} of {TensorProto.DataType.Name(tensor.data_type)} need {nbytes}"


def _check_place(tensor: Any) -> None:
    """Raise ValueError for strings that are told as bytes: addresses in memory would be read from them."""
    from onnx import TensorProto

    if tensor.data_type == TensorProto.STRING and (is_external(tensor) or tensor.HasField("raw_data")):
        raise ValueError(
            f"tensor {quote(tensor.name)} has its strings as bytes, or in a file; ONNX has them one by one: export the "
            "model again"
        )


def check_values(tensor: Any) -> None:
    """Compare how many values a tensor holds with its dims; of those that lie outside `FilesBeside.find` does."""
    from onnx import TensorProto, helper

    _check_place(tensor)
    if is_external(tensor):
        return
    needed = count_nbytes(tensor)
    where = f"tensor {quote(tensor.name)}"
    if tensor.HasField("raw_data"):
        if len(tensor.raw_data) != needed:
            raise ValueError(
                f"{where} holds {len(tensor.raw_data)} bytes; {_needs(tensor, needed)}: export the model again"
            )
    elif TensorProto.DataType.Name(tensor.data_type) not in BITS:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
        present = len(getattr(tensor, helper.tensor_dtype_to_field(tensor.data_type)))
        count = prod(tensor.dims) * (2 if dtype.kind == "c" else 1)
        if present != count:
            raise ValueError(
                f"{where} holds {present} values; dims {quote(list(tensor.dims))} need {count}: export the model again"
            )
