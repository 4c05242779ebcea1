"""What block functions are given for NumPy on a GPU: CuPy, with products that can be recorded.

CuPy refuses its own products while a stream is recorded, and its `min` takes the result for a dtype (14.2, with
NumPy 2.5). Arrays of the host are refused while a run is recorded: a graph would read them again when they are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from tapestry_exec.cuda.cublas import KINDS, Handle, StackOfMatrices, lay_products
from tapestry_exec.cuda.gpus import Current

BRING = frozenset({"array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray"})
"""Functions of an array library that bring arrays of the host to a GPU."""


class NotRecordable(RuntimeError):
    """A run does what no graph of the driver holds; its steps are issued one by one then."""


class Namespace:
    """CuPy for the blocks of one device.

    Parameters
    ----------
    cupy : module
    current : Current
        Tells whether the work becomes a graph of the driver.
    open_handle : callable
        Gives cuBLAS in the stream that blocks run in; OSError where there is no such library.
    """

    def __init__(self, cupy: Any, current: Current, open_handle: Callable[[], Handle]) -> None:
        self._cupy, self._current, self._open_handle = cupy, current, open_handle
        self._handle: Handle | None = None
        self._has_no_library = False

    def __getattr__(self, name: str) -> Any:
        """Anything else is CuPy's."""
        found = getattr(self._cupy, name)
        if name in BRING:
            return self._bringing(name, found)
        self.__dict__[name] = found
        return found

    def _bringing(self, name: str, make: Callable[..., Any]) -> Callable[..., Any]:
        if not self._current.is_recording:
            return make

        def bring(a: Any, *args: Any, **more: Any) -> Any:
            if not isinstance(a, self._cupy.ndarray):
                raise NotRecordable(
                    f"a block function calls {name} for {type(a).__name__} while the run is recorded: a graph would "
                    "read that again from memory of the host that is no longer its own"
                )
            return make(a, *args, **more)

        return bring

    def min(self, a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        """NumPy's `min`."""
        found = self._cupy.min(a, axis=axis, keepdims=keepdims)
        if out is None:
            return found
        out[...] = found
        return out

    amin = min

    def matmul(self, a: Any, b: Any, out: Any = None) -> Any:
        """NumPy's `matmul`, of floats by cuBLAS."""
        cupy = self._cupy
        if a.dtype.name not in KINDS or a.dtype != b.dtype or not (a.ndim and b.ndim) or self._find_handle() is None:
            return cupy.matmul(a, b, out=out)
        one, two = a[None] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b
        if one.shape[-1] != two.shape[-2]:
            raise ValueError(f"matmul: {a.shape}, {b.shape} do not fit: {one.shape[-1]} columns, {two.shape[-2]} rows")
        stack = np.broadcast_shapes(one.shape[:-2], two.shape[:-2])
        whole = *stack, one.shape[-2], two.shape[-1]
        asked = (*stack, *(() if a.ndim == 1 else whole[-2:-1]), *(() if b.ndim == 1 else whole[-1:]))
        if out is None:
            out = cupy.empty(asked, a.dtype)
        elif out.shape != asked:
            raise ValueError(f"matmul: out has shape {out.shape}; {a.shape} @ {b.shape} has {asked}")
        made = out[..., None] if b.ndim == 1 else out
        self._multiply(one, two, made[..., None, :] if a.ndim == 1 else made)
        return out

    def tensordot(self, a: Any, b: Any, axes: int | Sequence[Any] = 2) -> Any:
        """NumPy's `tensordot`: one product of two matrices."""
        folded = (range(a.ndim - axes, a.ndim), range(axes)) if isinstance(axes, int) else axes
        over = [
            [int(k) % array.ndim for k in ([some] if isinstance(some, int) else some)]
            for array, some in zip((a, b), folded, strict=True)
        ]
        kept = [[k for k in range(array.ndim) if k not in some] for array, some in zip((a, b), over, strict=True)]
        shapes = [tuple(array.shape[k] for k in some) for array, some in zip((a, b), kept, strict=True)]
        left = a.transpose(*kept[0], *over[0]).reshape(prod(shapes[0]), -1)
        right = b.transpose(*over[1], *kept[1]).reshape(-1, prod(shapes[1]))
        return self.matmul(left, right).reshape(*shapes[0], *shapes[1])

    def einsum(self, subscripts: str, *operands: Any, **options: Any) -> Any:
        """NumPy's `einsum`; of floats, with a result that is named, by products of two operands at a time."""
        terms, _, made = subscripts.replace(" ", "").partition("->")
        labels = terms.split(",")
        sizes = [dict(zip(term, array.shape, strict=False)) for term, array in zip(labels, operands, strict=False)]
        extents = {label: n for one in sizes for label, n in one.items()}
        is_plain = "->" in subscripts and "." not in subscripts and all(one.items() <= extents.items() for one in sizes)
        if len(operands) < 2 or not is_plain or {x.dtype.name for x in operands} - KINDS.keys():
            return self._cupy.einsum(subscripts, *operands, **options)
        here, left = labels[0], operands[0]
        for k, (term, right) in enumerate(zip(labels[1:], operands[1:], strict=True), 2):
            later = set(made).union(*labels[k:])
            here, left = self._contract(here, left, term, right, later)
        return self._cupy.einsum(f"{here}->{made}", left)

    def _contract(self, here: str, left: Any, there: str, right: Any, later: set[str]) -> tuple[str, Any]:
        """Two operands as one, over the labels that nobody reads later; with the labels of what is made."""
        # stack: in both, read later    over: in both, not read later    rows, columns: in one of them, read later
        stack = "".join(label for label in dict.fromkeys(here) if label in there and label in later)
        over = "".join(label for label in dict.fromkeys(here) if label in there and label not in later)
        rows = "".join(label for label in dict.fromkeys(here) if label not in there and label in later)
        columns = "".join(label for label in dict.fromkeys(there) if label not in here and label in later)
        one = self._cupy.einsum(f"{here}->{stack}{rows}{over}", left)
        two = self._cupy.einsum(f"{there}->{stack}{over}{columns}", right)
        cut = len(stack), len(stack) + len(rows), len(stack) + len(over)
        shared, wide, tall = one.shape[: cut[0]], one.shape[cut[0] : cut[1]], two.shape[cut[2] :]
        depth = prod(one.shape[cut[1] :])
        found = self.matmul(
            one.reshape(*shared, prod(wide), depth),
            two.reshape(*shared, depth, prod(tall)),
        )
        return stack + rows + columns, found.reshape(*shared, *wide, *tall)

    def _multiply(self, a: Any, b: Any, out: Any) -> None:
        cupy = self._cupy
        if not out.size:
            return
        if not a.shape[-1]:
            out[...] = 0
            return
        handle = self._find_handle()
        laid = None if out.dtype != a.dtype else lay_products(*map(_layout_of, (a, b, out)))
        if laid is not None:
            assert handle is not None, "asked before"
            handle.multiply(laid, a.dtype.name, a.data.ptr, b.data.ptr, out.data.ptr)
            return
        one = cupy.ascontiguousarray(cupy.broadcast_to(a, (*out.shape[:-2], *a.shape[-2:])))
        two = cupy.ascontiguousarray(cupy.broadcast_to(b, (*out.shape[:-2], *b.shape[-2:])))
        made = cupy.empty(out.shape, a.dtype)
        laid = lay_products(*map(_layout_of, (one, two, made)))
        if laid is None:  # beyond 32 bits
            cupy.matmul(one, two, out=made)
        else:
            assert handle is not None, "asked before"
            handle.multiply(laid, a.dtype.name, one.data.ptr, two.data.ptr, made.data.ptr)
        out[...] = made

    def _find_handle(self) -> Handle | None:
        """cuBLAS in the stream of the blocks; None where there is no such library."""
        if self._handle is None and not self._has_no_library:
            if self._current.is_recording:
                raise NotRecordable("cuBLAS was not opened before, and opening it takes memory, which no graph does")
            try:
                self._handle = self._open_handle()
            except OSError:
                self._has_no_library = True
        return self._handle


def _layout_of(array: Any) -> StackOfMatrices:
    size = array.dtype.itemsize
    return tuple(array.shape), tuple(step // size for step in array.strides)
