"""What block functions are given for NumPy on a GPU: CuPy, with products that can be recorded.

CuPy refuses its own products while a stream is recorded, and its `min` takes the result for a dtype (14.2, with
NumPy 2.5). Arrays of the host are refused while a run is recorded: a graph would read them again when they are gone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np

from tapestry_exec.cuda.cublas import KINDS, Handle, StackOfMatrices, lay_products
from tapestry_exec.cuda.gpus import Current
from tapestry_exec.cuda.tuning import KEPT

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

    def min(self, a: Any, axis: Any = None, out: Any = None, keepdims: bool = False, **options: Any) -> Any:
        """NumPy's `min`."""
        found = self._cupy.min(a, axis=axis, keepdims=keepdims, **options)
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

    def dot(self, a: Any, b: Any, out: Any = None) -> Any:
        """NumPy's `dot`; of matrices and vectors as `matmul`."""
        is_product = all(getattr(one, "ndim", 0) in (1, 2) for one in (a, b))
        return self.matmul(a, b, out=out) if is_product else self._cupy.dot(a, b, out=out)

    def tensordot(self, a: Any, b: Any, axes: int | Sequence[Any] = 2) -> Any:
        """NumPy's `tensordot`: one product of two matrices."""
        folded = (range(a.ndim - axes, a.ndim), range(axes)) if isinstance(axes, int) else axes
        over = [
            [int(k) % array.ndim for k in ([some] if isinstance(some, int) else some)]
            for array, some in zip((a, b), folded, strict=True)
        ]
        sums = [tuple(array.shape[k] for k in some) for array, some in zip((a, b), over, strict=True)]
        if sums[0] != sums[1]:
            raise ValueError(
                f"tensordot: {a.shape} and {b.shape} are summed over {sums[0]} and {sums[1]}; give equal ones"
            )
        kept = [[k for k in range(array.ndim) if k not in some] for array, some in zip((a, b), over, strict=True)]
        shapes = [tuple(array.shape[k] for k in some) for array, some in zip((a, b), kept, strict=True)]
        left = a.transpose(*kept[0], *over[0]).reshape(prod(shapes[0]), prod(sums[0]))
        right = b.transpose(*over[1], *kept[1]).reshape(prod(sums[0]), prod(shapes[1]))
        return self.matmul(left, right).reshape(*shapes[0], *shapes[1])

    def einsum(self, subscripts: Any, *operands: Any, optimize: Any = True, **options: Any) -> Any:
        """NumPy's `einsum`; of floats, with a result that is named, by products of two operands at a time."""
        if not _is_by_products(subscripts, operands) or options:
            return self._cupy.einsum(subscripts, *operands, optimize=optimize, **options)
        terms, _, made = subscripts.replace(" ", "").partition("->")
        left = list(zip(terms.split(","), operands, strict=True))
        for places in _list_pairs(terms, made, tuple(x.shape for x in operands)):
            chosen = [left[k] for k in places]
            left = [one for k, one in enumerate(left) if k not in places]
            for k, (term, operand) in enumerate(chosen[1:], 2):
                later = set(made).union(*(label for label, _ in (*left, *chosen[k:])))
                chosen[0] = self._contract(*chosen[0], term, operand, later)
            left.append(chosen[0])
        ((here, found),) = left
        return self._cupy.einsum(f"{here}->{made}", found)

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
        is_apart = out.dtype == a.dtype and not any(_may_meet(one, out) for one in (a, b))
        laid = lay_products(*map(_layout_of, (a, b, out))) if is_apart else None
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

    def open(self) -> None:
        """Open cuBLAS, as long as that is allowed: it takes memory, which no graph does."""
        self._find_handle()

    def _find_handle(self) -> Handle | None:
        """cuBLAS in the stream of the blocks; None where there is no such library."""
        if self._handle is None and not self._has_no_library:
            if self._current.is_recording:
                raise NotRecordable("cuBLAS was not opened before, and opening it takes memory, which no graph does")
            self._current.has_products = True
            try:
                self._handle = self._open_handle()
            except OSError:
                self._has_no_library = True
        return self._handle


def _is_by_products(subscripts: Any, operands: Sequence[Any]) -> bool:
    """Whether an einsum is of several arrays of floats, with labels of one extent each and a result that is named."""
    if not isinstance(subscripts, str) or "->" not in subscripts or "." in subscripts or len(operands) < 2:
        return False
    terms = subscripts.replace(" ", "").partition("->")[0].split(",")
    if list(map(len, terms)) != [x.ndim for x in operands]:
        return False
    pairs = {pair for term, x in zip(terms, operands, strict=True) for pair in zip(term, x.shape, strict=True)}
    return len(dict(pairs)) == len(pairs) and {x.dtype.name for x in operands} <= KINDS.keys()


@lru_cache(maxsize=KEPT)
def _list_pairs(terms: str, made: str, shapes: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """Which operands are contracted in turn: their places among those that are left, what is made comes last."""
    stand_ins = [np.broadcast_to(np.float32(0), shape) for shape in shapes]
    _, *path = np.einsum_path(f"{terms}->{made}", *stand_ins, optimize="greedy")[0]
    return tuple(map(tuple, path))


def _may_meet(one: Any, two: Any) -> bool:
    """Whether the bytes from the first to the last cell of two arrays meet: cuBLAS writes while it reads."""
    (a, b), (c, d) = map(_bounds, (one, two))
    return a < d and c < b


def _bounds(array: Any) -> tuple[int, int]:
    reach = [step * (n - 1) for n, step in zip(array.shape, array.strides, strict=True)]
    begin: int = array.data.ptr + sum(min(0, r) for r in reach)
    return begin, array.data.ptr + sum(max(0, r) for r in reach) + array.dtype.itemsize


def _layout_of(array: Any) -> StackOfMatrices:
    size = array.dtype.itemsize
    return tuple(array.shape), tuple(step // size for step in array.strides)
