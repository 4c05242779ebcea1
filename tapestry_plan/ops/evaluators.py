"""Who runs a small ONNX model whole: ONNX Runtime where it is installed and takes it, else ONNX's reference.

model ─┬─► ONNX Runtime        installed, and has its operators for these dtypes; random draws are not its own
       └─► ONNX's reference    NumPy in Python; not what it is known to run otherwise than ONNX says
"""

from __future__ import annotations

import time
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from threading import Timer, local
from typing import Any

import numpy as np

from tapestry_plan.ir import SHORT_DTYPES, SHORT_FLOATS
from tapestry_plan.ops import tuning
from tapestry_sets.limits import cut_text, quote

RANDOM_OPS = frozenset(
    {"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""Operators of ONNX that draw: by their seeds the reference draws the same in each run, a session goes on.

Examples
--------
>>> from tapestry_plan import ops
>>> "RandomNormal" in ops.RANDOM_OPS, "Relu" in ops.RANDOM_OPS
(True, False)
"""

MISREAD = frozenset({"GRU", "LSTM", "RNN"})
"""Operators of ONNX that its reference implementation runs otherwise than ONNX says: without a word it takes the usual
activations for others, and leaves out lengths of sequences."""


def encode_model(model: Any) -> str:
    """An `onnx.ModelProto` as an attribute has it: its bytes in base64.

    Raises
    ------
    TypeError
        For what is not a message.

    Examples
    --------
    >>> from onnx import parser
    >>> from tapestry_plan import ops
    >>> text = 'agraph (float[4] x) => (float[4] y) { y = Hardmax(x) }'
    >>> ops.encode_model(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 21]> {text}'))[:12]
    'CAg6PQoRCgF4'
    """
    if not hasattr(model, "SerializeToString"):
        raise TypeError(f"encode_model: model is {quote(model)}; give an onnx.ModelProto")
    return b64encode(model.SerializeToString(deterministic=True)).decode()


@lru_cache(maxsize=tuning.KEPT_EVALUATORS)
def decode_model(text: str) -> Any:
    """The model of an attribute.

    Raises
    ------
    ValueError
        For what is none, and one that would read files.
    """
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    model = onnx.ModelProto()
    try:
        model.ParseFromString(b64decode(text, validate=True))
    except (ValueError, DecodeError):
        raise ValueError(f"model {quote(text)} is not an ONNX model in base64") from None
    if not model.graph.node:
        raise ValueError("model has no nodes: it is not an ONNX model in base64, or an empty one")
    if any(tensor.external_data for tensor in _tensors_in(model)):
        raise ValueError("model stores tensors in files, which operators do not read; store their values in it")
    return model


def _tensors_in(model: Any) -> list[Any]:
    """All tensors that a model, its functions and the graphs inside nodes store."""
    found: list[Any] = []
    for graph in _graphs_in(model):
        found += getattr(graph, "initializer", ())
        for sparse in getattr(graph, "sparse_initializer", ()):
            found += [sparse.values, sparse.indices]
        for attribute in (one for node in graph.node for one in node.attribute):
            found += [*([attribute.t] if attribute.HasField("t") else []), *attribute.tensors]
            for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                found += [sparse.values, sparse.indices]
    return found


def _graphs_in(model: Any) -> Iterator[Any]:
    """A model's graph, its functions, and the graphs inside nodes."""
    todo = [model.graph, *model.functions]
    while todo:
        graph = todo.pop()
        yield graph
        for attribute in (one for node in graph.node for one in node.attribute):
            todo += [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def kinds_in(model: Any) -> set[str]:
    """The operators that a model runs, those inside nodes too, after their domains where these are not ONNX's own."""
    nodes = (node for graph in _graphs_in(model) for node in graph.node)
    return {f"{node.domain}::{node.op_type}" if node.domain else node.op_type for node in nodes}


# -- ONNX Runtime ----------------------------------------------------------------------------------------


def _find_runtime() -> Any:
    """The package onnxruntime, or None where it is not installed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    return onnxruntime


@lru_cache(maxsize=1)
def _list_runtime() -> frozenset[str]:
    """All operators of ONNX Runtime."""
    if _find_runtime() is None:
        return frozenset()
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return frozenset(
        {f"{one.domain}::{one.name}" if one.domain else one.name for one in state.get_all_operator_schema()}
    )


def is_in_runtime(operator: str) -> bool:
    """Whether ONNX Runtime is installed and has an operator.

    Parameters
    ----------
    operator : str
        Its type, after its domain where that is not ONNX's own.

    Examples
    --------
    >>> from tapestry_plan import ops
    >>> ops.is_in_runtime("com.example::Scale")
    False
    """
    return operator in _list_runtime()


@lru_cache(maxsize=tuning.KEPT_EVALUATORS)
def _widen(text: str) -> tuple[bytes, dict[str, str], list[str]]:
    """A model that is given and makes no short numbers, which arrays of ONNX Runtime are not: it casts them itself.

    Beside it the dtypes of its inputs that it is given wide, by name, and of each output the one that it has, or "".
    """
    from onnx import ModelProto, helper

    model = ModelProto()
    model.CopyFrom(decode_model(text))
    given, made, casts = dict[str, str](), list[str](), list[Any]()
    for value in model.graph.input:
        code, short = value.type.tensor_type.elem_type, _short_dtype(value)
        if short:
            name, value.name = value.name, f"{value.name}, wide"
            value.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(_wide_dtype(short)))
            given[value.name] = short
            casts.append(helper.make_node("Cast", [value.name], [name], to=code))
    nodes = [*casts, *model.graph.node]
    for value in model.graph.output:
        short = _short_dtype(value)
        made.append(short)
        if short:
            name, value.name = value.name, f"{value.name}, wide"
            code = helper.np_dtype_to_tensor_dtype(np.dtype(_wide_dtype(short)))
            value.type.tensor_type.elem_type = code
            nodes.append(helper.make_node("Cast", [name], [value.name], to=code))
    if not any((given, *made)):
        return b64decode(text), {}, made
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model.SerializeToString(), given, made


def _short_dtype(value: Any) -> str:
    """The dtype of an input or an output, where it is a short one; else nothing."""
    from onnx import helper

    code = value.type.tensor_type.elem_type if value.type.WhichOneof("value") == "tensor_type" else 0
    try:
        dtype = helper.tensor_dtype_to_np_dtype(code).name if code else ""
    except (KeyError, TypeError):
        return ""
    return dtype if dtype in SHORT_DTYPES else ""


def _wide_dtype(short: str) -> str:
    """A dtype of NumPy's that has all numbers of a short one."""
    return "float32" if short in SHORT_FLOATS else "uint8" if short.startswith("u") else "int8"


@lru_cache(maxsize=tuning.KEPT_EVALUATORS)
def _open_session(text: str) -> Any:
    """A session of ONNX Runtime, or in words why there is none."""
    runtime = _find_runtime()
    if runtime is None:
        return "is not installed: pip install 'tapestry-tensor[verify]'"
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        model = _widen(text)[0]
        return runtime.InferenceSession(model, options, ["CPUExecutionProvider"])
    except Exception as error:  # what it raises of an operator or dtype that it has no kernel for is of no one class
        return f"does not take it: {cut_text(' '.join(str(error).split()), 300)}"


def _run_session(text: str, given: Mapping[str, Any]) -> list[Any]:
    kinds = kinds_in(decode_model(text))
    session = (_open_session.__wrapped__ if RANDOM_OPS & kinds else _open_session)(text)  # a kept one's draws go on
    if isinstance(session, str):
        raise ValueError(session)
    _, wide, made = _widen(text)
    feeds = {}
    for name in (value.name for value in session.get_inputs()):
        own = name.removesuffix(", wide") if name in wide else name
        if own in given:
            feeds[name] = given[own].astype(_wide_dtype(wide[name])) if name in wide else given[own]
    options = _find_runtime().RunOptions()
    options.log_severity_level = 4

    def stop() -> None:
        options.terminate = True

    clock = Timer(tuning.OPAQUE_SECONDS, stop) if "Loop" in kinds else None
    if clock is not None:
        clock.daemon = True
        clock.start()
    try:
        found = session.run(None, feeds, options)
        return [one.astype(short) if short else one for one, short in zip(found, made, strict=True)]
    except Exception as error:  # as above
        if options.terminate:
            raise _TakesTooLong(_tell_limit()) from None
        raise ValueError(f"does not run it: {cut_text(' '.join(str(error).split()), 300)}") from None
    finally:
        if clock is not None:
            clock.cancel()


# -- ONNX's reference ------------------------------------------------------------------------------------


class _TakesTooLong(ValueError):
    """A model that ran longer than it may, whoever runs it."""


def _tell_limit() -> str:
    return (
        f"it was not done after {tuning.OPAQUE_SECONDS} s, which is what a model with a Loop may take: "
        "give the Loop fewer rounds"
    )


_CLOCK = local()
"""When the reference, in this thread, is to be done."""


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    _CLOCK.end = time.monotonic() + seconds
    try:
        yield
    finally:
        _CLOCK.end = None


@lru_cache(maxsize=1)
def _own_ops() -> list[Any]:
    """Operators in the place of the reference's: a Loop that looks at the clock in each round.

    Its own one may have no end, makes no round without a condition, and joins what rounds make along the first axis
    that this has, not along a new one.
    """
    from onnx.reference.ops.op_loop import Loop as Rounds

    class Loop(Rounds):  # type: ignore[misc]  # the reference finds operators by the names of their classes
        def _run(self, most: Any, goes: Any, *states: Any, context: Any = None, body: Any = None, **more: Any) -> Any:
            names, around = self.body.input_names, dict(context or {})
            count, made = len(names) - 2, [list[Any]() for _ in range(self.K)]
            number = 0
            while (goes is None or bool(np.all(goes))) and (most is None or number < int(np.asarray(most).item())):
                if getattr(_CLOCK, "end", None) is not None and time.monotonic() > _CLOCK.end:
                    raise _TakesTooLong(_tell_limit())
                head = np.array(number, np.int64), np.array(True)
                found = self._run_body({**around, **dict(zip(names, (*head, *states), strict=True))}, **more)
                goes, states = found[0], tuple(found[1 : 1 + count])
                for rows, one in zip(made, found[1 + count :], strict=True):
                    rows.append(one)
                number += 1
            if made and not number:
                raise ValueError("a Loop that makes no round does not say the shape of what rounds would make")
            return self._check_and_fix_outputs((*states, *map(np.stack, made)))

    return [Loop]


@lru_cache(maxsize=tuning.KEPT_EVALUATORS)
def _open_reference(text: str) -> Any:
    """ONNX's reference evaluator of a model, or in words why there is none."""
    from onnx.reference import ReferenceEvaluator

    model = decode_model(text)
    misread = sorted(MISREAD & kinds_in(model))
    if misread:
        return f"does not heed all that a {misread[0]} is given"
    try:
        return ReferenceEvaluator(model, new_ops=_own_ops() if "Loop" in kinds_in(model) else None)
    except Exception as error:  # whatever it raises of what it does not know
        return f"does not implement it: {cut_text(' '.join(str(error).split()), 120)}"


def _run_reference(text: str, given: Mapping[str, Any]) -> list[Any]:
    evaluator = _open_reference(text)
    if isinstance(evaluator, str):
        raise ValueError(evaluator)
    try:
        with np.errstate(all="ignore"), _within(tuning.OPAQUE_SECONDS):
            return list(evaluator.run(None, dict(given)))
    except _TakesTooLong:
        raise
    except Exception as error:  # whatever the implementation of any operator raises
        raise ValueError(f"does not run it: {' '.join(str(error).split())}") from None


# -- either ----------------------------------------------------------------------------------------------


def check_reference(text: str) -> None:
    """Raise ValueError where ONNX's reference implementation has not all operators of a model in base64.

    Raises
    ------
    ValueError
        For what is not a model, and where an operator of it is not implemented, or otherwise than ONNX says.

    Examples
    --------
    >>> from tapestry_plan import ops
    >>> ops.check_reference("")
    Traceback (most recent call last):
        ...
    ValueError: model has no nodes: it is not an ONNX model in base64, or an empty one
    """
    evaluator = _open_reference(text)
    if isinstance(evaluator, str):
        raise ValueError(f"ONNX's reference {evaluator}")


def run_model(text: str, given: Mapping[str, Any], *, runtime: bool = True) -> list[Any]:
    """What a model in base64 gives, by ONNX Runtime where it is installed and takes it, else by ONNX's reference.

    Parameters
    ----------
    text : str
        Of `encode_model`.
    given : mapping of str to array
        Its inputs; lists of arrays are sequences, dicts are maps.
    runtime : bool
        Whether ONNX Runtime may be asked.

    Returns
    -------
    list
        Its outputs, in its order.

    Raises
    ------
    ValueError
        Where neither runs it, whatever it raised, and where a Loop in it takes too long.

    Examples
    --------
    >>> import numpy as np
    >>> from onnx import parser
    >>> from tapestry_plan import ops
    >>> text = 'agraph (float[4] x) => (int64[1, n] y) { y = NonZero(x) }'
    >>> model = ops.encode_model(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 21]> {text}'))
    >>> ops.run_model(model, {"x": np.array([0, 2, 0, 1], np.float32)})[0].tolist()
    [[1, 3]]
    """
    ways = [("ONNX Runtime", _run_session)] * runtime + [("ONNX's reference implementation", _run_reference)]
    if RANDOM_OPS & kinds_in(decode_model(text)):
        ways.reverse()
    why = []
    for who, run in ways:
        try:
            return run(text, given)
        except _TakesTooLong:
            raise
        except ValueError as error:
            why.append(f"{who} {error}")
    raise ValueError("; ".join(why))


def run_by_all(text: str, given: Mapping[str, Any]) -> list[Any]:
    """What a model in base64 gives by ONNX Runtime, or by ONNX's reference, where each that has its operators runs it.

    One of them alone may let pass what the other, and ONNX's text, does not.

    Parameters
    ----------
    text : str
        Of `encode_model`.
    given : mapping of str to array
        Its inputs.

    Returns
    -------
    list
        Its outputs, in its order.

    Raises
    ------
    ValueError
        Where one that has its operators does not run it, neither has them, or they make arrays of other shapes.

    Examples
    --------
    >>> import numpy as np
    >>> from onnx import parser
    >>> from tapestry_plan import ops
    >>> text = 'agraph (float[4] x) => (int64[1, n] y) { y = NonZero(x) }'
    >>> model = ops.encode_model(parser.parse_model(f'<ir_version: 8, opset_import: ["" : 21]> {text}'))
    >>> ops.run_by_all(model, {"x": np.array([0, 2, 0, 1], np.float32)})[0].tolist()
    [[1, 3]]
    """
    ways = (_open_session, _run_session), (_open_reference, _run_reference)
    made = [run(text, given) for open_one, run in ways if not isinstance(open_one(text), str)]
    if not made:
        raise ValueError("neither ONNX Runtime nor ONNX's reference has its operators")
    shapes = [[np.shape(array) for array in arrays] for arrays in made]
    if shapes[0] != shapes[-1]:
        raise ValueError(f"ONNX Runtime makes arrays of shapes {shapes[0]}, ONNX's reference of {shapes[-1]}")
    return made[0]
