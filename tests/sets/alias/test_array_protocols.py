"""Real arrays by every protocol: DLPack, array interfaces, buffers, devices, and what is refused."""

from __future__ import annotations

import array
import ctypes
import gc
import mmap
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from tapestry_sets.alias.memory import arrays as arrays_module
from tapestry_sets.alias.memory.arrays import MEMORY, as_view
from tapestry_sets.alias.overlap import (
    contains,
    has_internal_overlap,
    overlap,
    overlap_matrix,
    overlaps,
    same_elements,
)
from tests.array_exports import (
    BASES,
    Exported,
    OldDLPack,
    OnlyArray,
    OnlyCuda,
    OnlyDLPack,
    OnlyInterface,
    Strided,
    addresses,
    as_memoryview,
    as_strict,
    as_torch,
    name_of_capsule,
    pointer,
)


@pytest.mark.parametrize(
    "wrap",
    [np.asarray, OnlyInterface, OnlyDLPack, OldDLPack, as_memoryview, as_strict, as_torch],
    ids=lambda f: f.__name__,
)
def test_an_array_is_known_by_each_protocol_alone(wrap: Callable[[np.ndarray], Any]) -> None:
    x = np.arange(24.0, dtype=np.float32).reshape(4, 6)
    for part in (x, x[1:, ::2], x.T, x[2], x[:, 3:3], x[0, 0:1]):
        view, same = as_view(wrap(part)), as_view(part)
        assert view.shape == same.shape
        if part.size:  # PyTorch's empty tensors are at address 0
            assert view.kind.offset == pointer(part) and same_elements(wrap(part), part)
    assert overlaps(wrap(x[::2]), x[:, 1]) and not overlaps(wrap(x[::2]), wrap(x[1::2]))
    assert overlap(wrap(x[:, ::2]), wrap(x[1])).nbytes == 12


@pytest.mark.parametrize("wrap", [OnlyInterface, as_memoryview], ids=lambda f: f.__name__)
def test_negative_strides_by_each_protocol(wrap: Callable[[np.ndarray], Any]) -> None:
    x = np.zeros((4, 6), np.int16)
    assert as_view(wrap(x[::-1, ::-2])).kind.strides == (-12, -4, 1)
    assert overlap(wrap(x[::-1, ::-2]), x[1]).nbytes == 6


def test_a_capsule_is_read_and_not_consumed() -> None:
    x = np.zeros(5)
    before = sys.getrefcount(x)
    view = as_view(OnlyDLPack(x))
    assert sys.getrefcount(x) == before + 1  # the wrapper's own
    del view
    gc.collect()
    assert sys.getrefcount(x) == before
    exported = Exported(1000, (3,))
    as_view(exported)
    assert name_of_capsule(exported.capsules[0]) == b"dltensor"  # a consumer would have renamed it


@pytest.mark.parametrize("version", [None, (1, 0), (1, 1), (1, 9)])
def test_every_number_of_a_dlpack_tensor_counts(version: tuple[int, int] | None) -> None:
    x = as_view(Exported(1000, (3, 4), (8, 2), 16, 1, (1, 0), 24, version))
    assert (x.kind.offset, x.kind.shape, x.kind.strides) == (1024, (3, 4, 2), (16, 4, 1))
    row_by_row = as_view(Exported(1000, (3, 4, 5), None, 32, version=version))
    assert row_by_row.kind.strides == (80, 20, 4, 1)
    vectors = as_view(Exported(1000, (3,), (1,), 32, 4, version=version))
    assert (vectors.kind.strides, vectors.shape[-1]) == ((16, 1), 16)
    alone = as_view(Exported(1000, (), (), 64, version=version))
    assert alone.shape == (8,)
    brain = as_view(Exported(1000, (4,), (-1,), 16, code=4, version=version))
    assert (brain.kind.strides, brain.shape[-1]) == ((-2, 1), 2)
    packed = as_view(Exported(1000, (4,), (1,), 4, 2, code=17, version=version))  # two of 4 bits in a byte
    assert packed.shape[-1] == 1
    assert as_view(Exported(0, (0, 3), None, version=version)).size == 0  # without elements, without an address


def test_elements_of_less_than_a_byte() -> None:
    with pytest.raises(ValueError, match="elements of 4 bits, which share bytes; give a view of it as bytes"):
        as_view(Exported(1000, (4,), (1,), 4, code=17, version=(1, 1)))
    padded = as_view(Exported(1000, (4,), (1,), 4, code=17, version=(1, 1), flags=4))
    assert padded.shape[-1] == 1


def test_dlpack_exports_that_say_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="its __dlpack__ exports a copy"):
        as_view(Exported(1000, (4,), version=(1, 1), flags=2))
    assert as_view(Exported(1000, (4,), version=(1, 1), flags=1)).shape == (4, 1)  # read-only
    with pytest.raises(ValueError, match=r"version 2\.0 of DLPack; versions up to 1"):
        as_view(Exported(1000, (4,), version=(2, 0)))
    with pytest.raises(ValueError, match="address 0, as those of tensors without values"):
        as_view(Exported(0, (4,)))
    used = Exported(1000, (4,))
    used.name = b"used_dltensor"
    with pytest.raises(ValueError, match="returned no unused capsule of a tensor"):
        as_view(used)
    with pytest.raises(ValueError, match="returned no unused capsule of a tensor but 7"):
        as_view(type("Odd", (), {"__dlpack__": lambda self, **more: 7})())


def test_dlpack_is_asked_for_no_copy_and_no_wait() -> None:
    host, gpu = Exported(1000, (4,)), Exported(1000, (4,), device=(2, 1))
    as_view(host), as_view(gpu)
    assert host.asked[0]["copy"] is False and "stream" not in host.asked[0]
    assert gpu.asked[0]["copy"] is False and gpu.asked[0]["stream"] == -1


# ------------------------------------------------------------------------------------------------------- devices


def test_each_device_has_addresses_of_its_own() -> None:
    homes = [(1, 0), (2, 0), (2, 1), (10, 0), (4, 0), (7, 0), (8, 0), (12, 0), (14, 0), (18, 3), (99, 0)]
    same = [Exported(1000, (4,), device=device) for device in homes]
    np.testing.assert_array_equal(overlap_matrix(same), np.eye(len(homes), dtype=bool))
    for device in homes:
        x = Exported(1000, (4,), device=device)
        y = Exported(1003, (4,), device=device)
        assert overlap(x, y).nbytes == 1
        assert as_view(x).allocations == as_view(y).allocations
    names = [as_view(x).allocations[0].name for x in same]
    assert names[:4] == ["memory", "cuda:0", "cuda:1", "rocm:0"]
    assert names[-2:] == ["trainium:3", "DLPack device type 99:0"]


@pytest.mark.parametrize("kind", [3, 11, 13])
def test_pinned_and_managed_memory_is_the_hosts(kind: int) -> None:
    x = np.zeros(8, np.uint8)
    pinned = Exported(pointer(x), (8,), device=(kind, 0))
    assert overlap(pinned, x[6:]).nbytes == 2 and as_view(pinned).allocations == (MEMORY,)


def test_arrays_on_a_gpu_and_on_the_host_do_not_overlap() -> None:
    x = np.zeros(8, np.float32)
    cuda = OnlyCuda(pointer(x), (8,))
    assert not overlaps(cuda, x) and not overlap(x, cuda) and not contains(x, cuda)
    assert overlap(cuda, x).nbytes == 0 and overlap(cuda, x).witness is None


def test_the_cuda_interface_alone() -> None:
    x = OnlyCuda(1 << 40, (4, 6))
    assert as_view(x).kind.strides == (24, 4, 1)
    assert overlaps(x, OnlyCuda((1 << 40) + 92, (1,))) and not overlaps(x, OnlyCuda((1 << 40) + 96, (1,)))
    columns = [OnlyCuda((1 << 40) + 4 * j, (4,), (24,)) for j in range(6)]
    np.testing.assert_array_equal(overlap_matrix(columns), np.eye(6, dtype=bool))
    assert overlaps(x, Exported(1 << 40, (1,), device=(2, 0)))  # as DLPack sees the first device
    assert as_view(OnlyCuda(0, (0, 3))).size == 0


def test_the_cuda_interface_with_a_device() -> None:
    class Both(OnlyCuda):
        """As CuPy's arrays of before DLPack's version: the device is told, the export fails."""

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 3

        def __dlpack__(self, **more: Any) -> object:
            raise BufferError("cannot export")

    x = Both(1 << 40, (4,))
    assert as_view(x).allocations[0].name == "cuda:3"
    assert overlaps(x, Exported(1 << 40, (1,), device=(2, 3))) and not overlaps(x, OnlyCuda(1 << 40, (4,)))


def test_the_driver_tells_the_device_of_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    class Driver:
        """Of CUDA: which of its devices an address is on, and whether it is managed memory."""

        def cuPointerGetAttribute(self, out: Any, attribute: int, address: Any) -> int:
            value = {8: address.value >= 1 << 41, 9: 1 if address.value >= 1 << 40 else 0}[attribute]
            ctypes.cast(out, ctypes.POINTER(ctypes.c_int))[0] = int(value)
            return 0

    monkeypatch.setattr(arrays_module, "_cuda_driver", Driver)
    names = [as_view(OnlyCuda(at, (4,))).allocations[0].name for at in (1 << 39, 1 << 40, 1 << 41)]
    assert names == ["cuda:0", "cuda:1", "memory"]
    assert overlaps(OnlyCuda(1 << 40, (4,)), Exported(1 << 40, (1,), device=(2, 1)))


@pytest.mark.gpu
def test_cupy() -> None:
    cupy = pytest.importorskip("cupy")
    x = cupy.zeros((4, 6), cupy.float32)
    assert overlap(x[:, ::2], x[1]).nbytes == 12 and not overlaps(x[::2], x[1::2])
    assert not overlaps(x, np.zeros((4, 6)))
    assert overlaps(x.view(cupy.int32)[1:], x)


# --------------------------------------------------------------------------------------------------------- PyTorch


def test_torch_tensors_share_memory_as_numpy_sees_it() -> None:
    torch = pytest.importorskip("torch")
    t = torch.zeros(4, 6)
    x = t.numpy()
    for key in product((slice(None), slice(1, 3), slice(None, None, 2), slice(3, None)), repeat=2):
        assert overlap(t[key], x[1:3, ::3]).nbytes == len(addresses(x[key]) & addresses(x[1:3, ::3]))
    assert has_internal_overlap(t[:1].expand(5, 6)) and not has_internal_overlap(t.T)
    assert overlaps(t.view(torch.int16), t) and not overlaps(t, t.clone())


def test_torch_parameters_are_read_as_their_data() -> None:
    torch = pytest.importorskip("torch")
    t = torch.zeros(4, 6)
    parameter = torch.nn.Parameter(t)
    assert same_elements(parameter, t)
    assert overlaps(parameter[1:], t) and not overlaps(parameter[1:], t[:1])


def test_torch_types_that_numpy_does_not_have() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.complex32):
        t = torch.zeros(8, dtype=torch.uint8).view(dtype)
        assert overlap(t, t[1:]).nbytes == 8 - t.element_size()


def test_torch_tensors_without_an_address_are_refused() -> None:
    torch = pytest.importorskip("torch")
    for t, why in [
        (torch.zeros(3, dtype=torch.complex64).conj(), "conjugate bit"),
        (torch.zeros(3).to_sparse(), "layout other than"),
        (torch.zeros(3, device="meta"), "meta"),
    ]:
        with pytest.raises((BufferError, ValueError), match=f"as_view: Tensor.__dlpack__ gives no address.*{why}"):
            as_view(t)


# ------------------------------------------------------------------------------------------------------------- JAX


@pytest.mark.filterwarnings("ignore")
def test_jax_arrays() -> None:
    jnp = pytest.importorskip("jax.numpy")
    x = jnp.zeros((3, 4), jnp.float32)
    assert overlaps(x, np.asarray(x)[1:]) and not overlaps(x, x + 1)
    assert as_view(jnp.zeros(4, jnp.bfloat16)).shape == (4, 2)
    x.delete()
    with pytest.raises((RuntimeError, TypeError), match=r"__dlpack__ gives no address; is it freed"):
        as_view(x)


# ---------------------------------------------------------------------------------------------------------- buffers


def test_buffers() -> None:
    data = bytearray(20)
    assert overlaps(data, memoryview(data)[3::2]) and not overlaps(memoryview(data)[::2], memoryview(data)[1::2])
    assert overlaps(data, np.frombuffer(data, np.uint8)[7:]) and not overlaps(data, bytearray(20))
    numbers = array.array("d", range(4))
    assert as_view(numbers).shape == (4, 8) and overlaps(numbers, np.frombuffer(numbers)[::2])
    words = (ctypes.c_int32 * 6)()
    assert as_view(words).shape == (6, 4) and overlaps(words, np.frombuffer(words, np.int32)[3:])
    fixed = bytes(range(50))
    assert overlaps(fixed, memoryview(fixed)[10:]) and not overlaps(fixed, bytes(bytearray(fixed)))
    assert as_view(memoryview(np.zeros((3, 4), np.int16))).shape == (3, 4, 2)
    assert as_view(memoryview(np.zeros((), np.int16))).shape == (2,)
    assert as_view(b"").size == 0


def test_a_mapped_file(tmp_path: Path) -> None:
    with mmap.mmap(-1, 100) as mapped:
        assert as_view(mapped).shape == (100, 1)
        window = memoryview(mapped)
        assert overlaps(mapped, window[40:60])
        window.release()
    for gone in (mapped, window):
        with pytest.raises(ValueError, match=r"as_view: (mmap|memoryview) gives no buffer; what is closed or released"):
            as_view(gone)


def test_rows_behind_pointers_have_no_address() -> None:
    testing = pytest.importorskip("_testbuffer")
    rows = testing.ndarray([1, 2, 3, 4], shape=[2, 2], format="B", flags=testing.ND_PIL)
    with pytest.raises(ValueError, match="ndarray gives no address: its rows lie behind pointers"):
        as_view(rows)


def test_a_buffer_is_released_again() -> None:
    data = bytearray(10)
    as_view(data)
    data.extend(b"more")  # BufferError if it were still held


def test_scalars_are_memory_of_their_own() -> None:
    """NumPy's array interface of a scalar is that of a copy made for it, which is gone when it is read."""
    x = np.zeros(4)
    assert not overlaps(x[1], x) and not overlaps(np.float64(1), np.float64(1))
    value = x[2]
    assert overlaps(value, value) and as_view(value).shape == (8,)
    for scalar in (np.datetime64("2020-01-01"), np.bytes_(b"ab"), np.bool_(True), np.complex64(1j)):
        assert as_view(scalar).size == scalar.nbytes


def test_a_row_of_a_structured_array_is_a_view_of_it() -> None:
    table = np.zeros(3, [("a", "<i4"), ("b", "<f4")])
    row = table[1]
    row["a"] = 7
    assert table["a"][1] == 7
    assert overlaps(row, table) and overlap(row, table["b"]).nbytes == 4 and not overlaps(row, table[2:])


def test_interfaces_over_buffers() -> None:
    """The protocol allows a buffer, or none and the object's own, in place of an address."""
    data = bytearray(24)

    class Over:
        def __init__(self, data: object, offset: int) -> None:
            self.__array_interface__ = {"typestr": "<i2", "shape": (4,), "data": data, "offset": offset, "version": 3}

    assert overlap(Over(data, 4), memoryview(data)[11:]).nbytes == 1
    assert overlap(Over(memoryview(data), 6), memoryview(data)[:8]).nbytes == 2
    with pytest.raises(ValueError, match="are the bytes of a copy"):
        as_view(Over(bytes(data), 0))  # as of a picture of PIL


# ------------------------------------------------------------------------------------------------------ wrong input


@pytest.mark.parametrize("x", [[1, 2], (), 3, 2.5, None, "text", {}, object(), np.ndarray, np.float64, len])
def test_what_is_no_array_is_refused(x: object) -> None:
    kind = type(x).__name__
    with pytest.raises(TypeError, match=rf"as_view: {kind} is neither a View nor an array.*np\.asarray\(x\) makes"):
        as_view(x)
    with pytest.raises(TypeError, match=f"{kind} is neither a View nor an array"):
        overlaps(x, np.zeros(2))


def test_what_would_be_copied_is_refused() -> None:
    with pytest.raises(TypeError, match="OnlyArray is neither a View nor an array"):
        as_view(OnlyArray(np.zeros(3)))
    assert overlaps(np.asarray(OnlyArray(BASES[0])), BASES[0])


@pytest.mark.parametrize(
    "x",
    [
        np.zeros(2, object),
        np.zeros(2, [("n", "i4"), ("o", "O")]),
        np.zeros(2, [("n", [("o", "O")])])["n"],
        OnlyInterface(np.zeros(2, object)),
        OnlyInterface(np.zeros(2, [("n", "i4"), ("m", [("o", "O")])])),
        (ctypes.py_object * 2)(),
        pytest.param(getattr(np.dtypes, "StringDType", None), id="StringDType"),
    ],
    ids=lambda x: type(x).__name__,
)
def test_objects_are_refused(x: Any) -> None:
    if x is None:
        pytest.skip("NumPy 2.0 has the first strings of any length")
    x = np.array(["text"], x()) if isinstance(x, type) else x
    with pytest.raises(ValueError, match="holds Python objects, that is references, not values"):
        as_view(x)


def test_fields_beside_objects_are_read() -> None:
    table = np.zeros(3, [("n", "i4"), ("o", "O"), ("Oslo", "f4")])
    assert not overlaps(table["n"], table["Oslo"])
    assert overlaps(OnlyInterface(table["n"]), table["n"][1:])
    named = memoryview(np.zeros(3, [("Oslo", "f4"), ("O", "i2")]))
    assert as_view(named).shape == (3, 6)  # a name in the format is not an object


def with_data(**changes: Any) -> Strided:
    broken = Strided(1000, (2,), (1,))
    broken.__array_interface__.update(changes)
    return broken


@pytest.mark.parametrize(
    ("x", "kind", "message"),
    [
        (with_data(data=None), ValueError, "gives no address: the 'data' of its __array_interface__ are None"),
        (with_data(typestr="|t3"), ValueError, r"elements of type '\|t3', of which the bytes are not known"),
        (with_data(shape=(2, 3)), ValueError, r"shape \(2, 3\) and strides \(1,\); one stride for each axis"),
        (with_data(shape=(-1,)), ValueError, r"shape \(-1,\)"),
        (with_data(shape=(2.5,)), TypeError, "numbers that are not integers"),
        (Strided(5, (7,), (-1,)), ValueError, r"from address 0x5 reaches from -1 to 6, beyond the addresses"),
        (Strided(2**64 - 4, (3,), (2,)), ValueError, "beyond the addresses"),
    ],
)
def test_broken_interfaces_are_refused(x: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=f"as_view: .*{message}"):
        as_view(x)


def test_the_last_addresses_are_addresses() -> None:
    assert overlaps(Strided(2**64 - 5, (3,), (2,)), Strided(2**64 - 1, (1,), (1,)))
    assert not overlaps(Strided(2**64 - 5, (3,), (2,)), Strided(2**64 - 2, (1,), (1,)))
    assert not overlaps(Strided(0, (2,), (1,)), Strided(2**64 - 5, (3,), (2,)))


def test_strides_that_leave_the_addresses_are_refused() -> None:
    with pytest.raises(ValueError, match="make the view within a buffer"):
        as_view(as_strided(np.zeros(1), (3,), (-(2**62),)))


def test_a_deleted_array_says_what_it_said() -> None:
    """As JAX's arrays after ``delete()``."""

    class Deleted:
        def __dlpack__(self, **more: Any) -> object:
            raise RuntimeError("Array has been deleted with shape=float32[3].")

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    with pytest.raises(RuntimeError, match=r"as_view: Deleted.__dlpack__ gives no address; is it freed.*been deleted"):
        as_view(Deleted())


def test_an_error_of_a_kind_of_its_own_is_a_runtime_error() -> None:
    class OddError(Exception):
        pass

    class Odd:
        def __dlpack__(self, **more: Any) -> object:
            raise OddError("odd")

    with pytest.raises(RuntimeError, match=r"as_view: Odd.__dlpack__ .*odd") as raised:
        as_view(Odd())
    assert isinstance(raised.value.__cause__, OddError)
