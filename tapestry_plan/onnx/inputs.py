"""Inputs of ONNX models: their dtypes, the sizes of axes that a model leaves open, and values known before any run.

A size is given by input, for all axes at once, or by the symbol that stands for it in the model, wherever it stands.
Axes that are called by formulas of symbols, as ``past + now``, follow from these. The value of an input that is given
makes it a constant, on which shapes may depend.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral, Real
from shlex import quote as quote_word
from typing import Any, cast

import numpy as np

from tapestry_plan.ir import Unread, UnsupportedOp, freeze_sizes, tell_sizes
from tapestry_plan.onnx.nodes import Array, NotOfGraphs, is_number
from tapestry_plan.onnx.symbols import Symbols
from tapestry_sets.limits import as_items, check_extent, describe, escape_controls, list_names, quote, take_array

Sizes = Mapping[str, int | Sequence[int]]
"""Shapes by input, and sizes by symbol."""
SAME = "give one of them, or the same"


def dtype_of(value: Any) -> str:
    """NumPy's name of an input's dtype."""
    from onnx import TensorProto, helper

    kind = value.type.WhichOneof("value")
    if kind is None:
        raise ValueError(f"input {quote(value.name)} has no type; export the model again")
    if kind != "tensor_type":
        raise NotOfGraphs(f"input {quote(value.name)} is a {kind.removesuffix('_type')}, not a tensor")
    code = value.type.tensor_type.elem_type
    try:
        dtype = helper.tensor_dtype_to_np_dtype(code) if code else np.dtype(object)
    except (KeyError, ValueError, TypeError):
        raise ValueError(
            f"input {quote(value.name)} has elements of type {code}, which ONNX does not know: export the model again"
        ) from None
    if not is_number(dtype):
        label = TensorProto.DataType.Name(code)
        raise NotOfGraphs(f"input {quote(value.name)} has elements of type {label}; cast it to numbers of NumPy")
    return str(dtype.name)


def dims_of(value: Any) -> list[Any] | None:
    """The declared axes of an input, None where not even their number is."""
    tensor = value.type.tensor_type
    return list(tensor.shape.dim) if tensor.HasField("shape") else None


def show_dims(dims: Sequence[Any]) -> str:
    """Declared axes as messages show them, open ones by their symbols."""
    names = [str(d.dim_value) if _is_fixed(d) else escape_controls(d.dim_param, keep="") or "?" for d in dims]
    return f"({', '.join(names)})"


def _is_fixed(dim: Any) -> bool:
    """Whether a declared axis has a size; some exporters write -1 for an open one."""
    return bool(dim.HasField("dim_value") and dim.dim_value >= 0)


def _leaves_open(value: Any) -> bool:
    """Whether a declared input has open axes, or none are declared."""
    dims = dims_of(value)
    return dims is None or not all(map(_is_fixed, dims))


def _symbol(dim: Any) -> str:
    """The name that an open axis has, empty where it has none: a name has a letter, unlike ``?`` and ``-1``."""
    return dim.dim_param if not _is_fixed(dim) and any(map(str.isalpha, dim.dim_param)) else ""


# -- shapes ----------------------------------------------------------------------------------------------


class InputShapes:
    """The shapes of a model's inputs: declared axes as the model fixes them, open ones as they were given.

    Parameters
    ----------
    inputs : sequence of onnx.ValueInfoProto
    sizes : mapping
        Shapes by input, and sizes by symbol.
    known : mapping of str to array
        Values of inputs, which fix symbols too.
    outputs : sequence of onnx.ValueInfoProto
        What else may say which names are symbols.

    Raises
    ------
    ValueError
        For names that are neither an input's nor a symbol's, shapes that do not fit what the model declares, and a
        symbol with two sizes, or another one than its formula says.
    """

    def __init__(
        self, inputs: Sequence[Any], sizes: Sizes, known: Mapping[str, Array], outputs: Sequence[Any] = ()
    ) -> None:
        self._inputs = {value.name: value for value in inputs}
        self._symbols = Symbols(_list_symbols(inputs), _list_symbols(outputs))
        self._given: dict[str, tuple[int, ...]] = {}
        for name, size in sizes.items():
            self._take(name, size)
        self._symbols.settle()
        for name, shape in self._given.items():
            self.compare(name, shape, f"shapes[{quote(name)}] = {quote(shape)}")
        for name, array in known.items():
            if self._given.get(name, array.shape) != array.shape:
                raise ValueError(
                    f"shapes[{quote(name)}] is {quote(self._given[name])} and values[{quote(name)}] is of shape "
                    f"{quote(array.shape)}; {SAME}"
                )
            self.compare(name, array.shape, f"values[{quote(name)}] of shape {array.shape}")

    def _take(self, name: str, size: int | Sequence[int]) -> None:
        """Note a size by symbol, or a shape by input."""
        what = f"shapes[{quote(name)}]"
        is_number = _is_number(size)
        symbols = self._symbols.names
        extents = (size,) if is_number else as_items(cast("Iterable[int]", size), what, "shape, or one number")
        if name in symbols and len(extents) == 1 and (name not in self._inputs or is_number):
            self._symbols.note(name, check_extent(extents[0], what), f"{what} = {extents[0]}")
        elif name in self._inputs:
            self._given[name] = tuple([check_extent(n, f"{what}[{axis}]") for axis, n in enumerate(extents)])
        else:
            also = f"; {list_names(sorted(symbols), name, 'symbols of open axes')}"
            known = list_names(self._inputs, name, "inputs") + also
            raise ValueError(f"shapes names {quote(name)}, which is neither an input nor an open axis; {known}")

    def take_feed(self, name: str, shape: tuple[int, ...]) -> None:
        """Take the shape of an array that is given for an input: it says the sizes of the axes that are open.

        Raises
        ------
        ValueError
            For what is not an input, and a shape that does not fit.
        """
        if name not in self._inputs:
            raise ValueError(
                f"feeds names {quote(name)}, and the model has no input {quote(name)}; "
                + list_names(self._inputs, name, "inputs")
            )
        if self._inputs[name].type.WhichOneof("value") == "tensor_type":
            what = f"feeds[{quote(name)}] of shape {shape}"
            if self._given.get(name, shape) != shape:
                raise ValueError(f"{what} is given, and {quote(self._given[name])} as its shape before; {SAME}")
            self.compare(name, shape, what)
            if _leaves_open(self._inputs[name]):
                self._given[name] = shape

    @property
    def symbols(self) -> dict[str, int]:
        """The symbols that have sizes, with these; not those that follow from others."""
        return self._symbols.sizes

    @property
    def as_declared(self) -> bool:
        """Whether the model has all shapes by itself."""
        return not self._given and not self._symbols.sizes

    def compare(self, name: str, shape: tuple[int, ...], what: str) -> None:
        """Compare a shape with the declared axes, and note what it says of symbols."""
        dims = dims_of(self._inputs[name])
        if dims is None:
            return
        if len(shape) != len(dims):
            raise ValueError(f"{what} has rank {len(shape)}, the input has rank {len(dims)}: {show_dims(dims)}")
        for axis, (dim, extent) in enumerate(zip(dims, shape, strict=True)):
            if _is_fixed(dim) and dim.dim_value != extent:
                raise ValueError(
                    f"{what} says {extent} on axis {axis}, but the model fixes it to {dim.dim_value}; shape "
                    f"{show_dims(dims)} is needed"
                )
            if _symbol(dim):
                self._symbols.note(_symbol(dim), extent, f"{what} on axis {axis}")
        self._symbols.settle()

    @contextmanager
    def tell_sizes(self) -> Iterator[None]:
        """Let errors of what comes to other shapes than it takes say at which sizes the model was read."""
        try:
            yield
        except UnsupportedOp:
            raise
        except (ValueError, TypeError, MemoryError) as error:
            if self.symbols:
                error.args = (f"at {tell_sizes(freeze_sizes(self.symbols))}: {error}",)
            raise

    def empty(self, value: Any) -> tuple[int, ...] | None:
        """The shape of an input that has no cells, whether the model declares so or it was given; None for others."""
        found: tuple[int | None, ...] = self._given.get(value.name) or tuple(map(self._extent, dims_of(value) or ()))
        return tuple(n for n in found if n is not None) if 0 in found and None not in found else None

    def shape(self, value: Any) -> tuple[int, ...]:
        """The shape of an input that runs are given.

        Raises
        ------
        ValueError
            For an axis without a size.
        """
        name, given, dims = value.name, self._given.get(value.name), dims_of(value)
        if dims is None:
            if given is None:
                raise ValueError(f"input {quote(name)} has no shape; {_mend(name, ('…',))}")
            return given
        where = f"input {quote(name)} of shape {show_dims(dims)}"
        found: tuple[int | None, ...] = given or tuple(self._extent(dim) for dim in dims)
        for axis, (dim, extent) in enumerate(zip(dims, found, strict=True)):
            if extent is None:
                symbol = f" ({escape_controls(dim.dim_param, keep='')})" if dim.dim_param else ""
                shown = ["…" if n is None else str(n) for n in found]
                needed = self._symbols.list_needed(_symbol(dim))
                raise ValueError(f"{where} is dynamic on axis {axis}{symbol}; {_mend(name, shown, needed)}")
        return tuple(n for n in found if n is not None)

    def unread(self, value: Any) -> Unread:
        """What is known of an input that nothing reads; of what is not a tensor of numbers, nothing."""
        try:
            dtype = dtype_of(value)
        except ValueError:
            return Unread()
        dims = dims_of(value)
        return Unread(self._given.get(value.name) or (None if dims is None else tuple(map(self._extent, dims))), dtype)

    def _extent(self, dim: Any) -> int | None:
        return int(dim.dim_value) if _is_fixed(dim) else self._symbols.get(_symbol(dim))


def _list_symbols(values: Iterable[Any]) -> Iterator[str]:
    """The names of open axes."""
    return filter(None, (_symbol(dim) for value in values for dim in dims_of(value) or ()))


def symbols_of(graph: Any) -> Symbols:
    """The names of a model's open axes."""
    return Symbols(_list_symbols(graph.input), _list_symbols(graph.output))


def say_again(graph: Any, sizes: Sizes, symbols: Mapping[str, int]) -> dict[str, int | Sequence[int]]:
    """What was given as shapes and sizes, with other sizes of some symbols wherever they stand.

    Raises
    ------
    ValueError
        For sizes at which an axis that follows from them would be less than 0.
    """
    declared = {value.name: dims_of(value) or [] for value in graph.input}
    found: dict[str, int | Sequence[int]] = dict(symbols)
    known = symbols_of(graph)
    for name, extent in symbols.items():
        known.note(name, extent, f"shapes[{quote(name)}] = {extent}")
    known.settle()
    for name, size in sizes.items():
        extents = (cast(int, size),) if _is_number(size) else tuple(cast("Sequence[int]", size))
        if known.get(name) is not None and _is_number(size):
            continue
        dims = declared.get(name, [])
        if len(dims) == len(extents):
            there = (known.get(_symbol(dim)) for dim in dims)
            extents = tuple(n if new is None else new for new, n in zip(there, extents, strict=True))
        found[name] = extents
    return found


def _is_number(size: Any) -> bool:
    """Whether a size is one number: NumPy's have ``__iter__``, but raise."""
    return not isinstance(size, Iterable) or getattr(size, "ndim", None) == 0


def _mend(name: str, shown: Sequence[str], symbols: Sequence[str] = ()) -> str:
    extents = ", ".join(shown)
    words = f"fix it with shapes={{{quote(name)}: [{extents}]}} or --shape {quote_word(name)}={','.join(shown)}"
    if not symbols:
        return words
    sizes = ", ".join(f"{quote(one)}: …" for one in symbols)
    options = " ".join(f"--shape {quote_word(escape_controls(one, keep=''))}=…" for one in symbols)
    return f"{words}, or with shapes={{{sizes}}} or {options}"


# -- values of sequences and maps ------------------------------------------------------------------------


def take_elements(value: Any, kind: Any, what: str) -> Any:
    """What is given for a sequence or a map of a type of ONNX, maps as dicts of Python's own numbers and texts.

    Others are as they are.

    Raises
    ------
    ValueError
        For what is not a list, not a dict, or a dict with keys or values that the type has not.
    """
    if kind.WhichOneof("value") == "sequence_type":
        if not isinstance(value, list | tuple):
            raise ValueError(f"{what} is {describe(value)}, the input is a sequence: give a list of its elements")
        return [take_elements(one, kind.sequence_type.elem_type, f"{what}[{k}]") for k, one in enumerate(value)]
    if kind.WhichOneof("value") != "map_type":
        return value
    key, held = kind.map_type.key_type, kind.map_type.value_type.tensor_type.elem_type
    if not isinstance(value, Mapping):
        raise ValueError(
            f"{what} is {describe(value)}, the input is a map: give a dict of {_label(key)} to {_label(held)}"
        )
    return {
        _take_one(one, key, f"{what} has the key"): _take_one(other, held, f"{what}[{quote(one)}] is")
        for one, other in value.items()
    }


def _take_one(value: Any, code: int, what: str) -> Any:
    """A key or a value of a map, which has elements of a type of ONNX, as Python has it."""
    dtype = np.dtype(_dtype_of_code(code))
    kind, make = {"O": (str, str), "f": (Real, float)}.get(dtype.kind, (Integral, int))
    fits = isinstance(value, kind)
    if fits and kind is Integral and dtype.kind in "iu":
        limits = np.iinfo(dtype)
        fits = limits.min <= value <= limits.max
    if not fits:
        raise ValueError(f"{what} {quote(value)}, the input has {_label(code)} there: convert it")
    return make(value)


def _dtype_of_code(code: int) -> Any:
    from onnx import helper

    return helper.tensor_dtype_to_np_dtype(code)


def _label(code: int) -> str:
    from onnx import TensorProto

    return "texts" if code == TensorProto.STRING else str(np.dtype(_dtype_of_code(code)).name)


# -- values ----------------------------------------------------------------------------------------------


def read_values(inputs: Sequence[Any], values: Mapping[str, Any]) -> dict[str, Array]:
    """The values that are given for inputs, as arrays of the inputs' dtypes.

    Arrays have the dtype already; numbers of Python, and lists of them, take it where they can. One number stands for
    any number of axes of extent 1.

    Raises
    ------
    ValueError
        For names that no input has, values of another dtype, and numbers that it has not.
    """
    return {name: _as_input(value, declared) for name, value, declared in _pairs(inputs, values)}


def _pairs(inputs: Sequence[Any], values: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    declared = {value.name: value for value in inputs}
    for name, value in values.items():
        if name not in declared:
            raise ValueError(
                f"values names {quote(name)}, which is not an input; {list_names(declared, name, 'inputs')}"
            )
        yield name, value, declared[name]


def _as_input(value: Any, declared: Any) -> Array:
    """A value with the dtype of an input: a copy, since graphs keep their constants."""
    what, dtype = f"values[{quote(declared.name)}]", np.dtype(dtype_of(declared))
    wanted = f"an array of {dtype}, or numbers that it has"
    array = take_array(value, what, wanted)
    if hasattr(value, "dtype"):
        array = np.array(array)
        if array.dtype != dtype:
            raise ValueError(
                f"{what} has dtype {array.dtype}, the input has {dtype}: convert it with .astype({quote(str(dtype))})"
            )
        return array
    if array.size and array.dtype.kind not in "biuf":
        raise ValueError(f"{what} is {quote(value)}; give {wanted}")
    with np.errstate(all="ignore"):
        found = array.astype(dtype)
    if dtype.kind != "f" and not np.array_equal(array, found):
        raise ValueError(f"{what} is {quote(value)}, which {dtype} has not; give numbers of the input's dtype")
    dims = dims_of(declared)
    return found.reshape((1,) * len(dims)) if dims and not found.ndim else found
