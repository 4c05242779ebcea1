"""Graphs as ONNX models: what the importer reads becomes what it was.

    graph      inputs, constants          operators             views                 outputs
    model      inputs, initializers       a node each           nodes (`view_writing`)  names, Identity where two share

Import of a model that was written so gives the graph again, where that came from a model: `same_graph` says so.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from typing import Any

import numpy as np

from tapestry_plan.ir import BUILTIN_OPS, Graph, OpNode, Selection, UnsupportedOp
from tapestry_plan.onnx import tuning
from tapestry_plan.onnx.nodes import schema_of
from tapestry_plan.onnx.replacing.bodies import rename
from tapestry_plan.onnx.walks import DOMAIN, DRAWING, SCALING, declare, make_function
from tapestry_plan.onnx.writers.sharding import add_shardings, list_shardings
from tapestry_plan.onnx.writers.view_writing import NotWritten, write_view
from tapestry_plan.steps import ShardPlan, take_apart
from tapestry_sets.limits import FrozenDict, check_arguments, list_names, quote

TYPES = {
    "float32": "float",
    "float64": "double",
    "float4_e2m1fn": "float4e2m1",
    "float8_e8m0fnu": "float8e8m0",
    **{name: name.replace("_", "") for name in ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz")},
}
"""Dtypes that ONNX's schemas call otherwise than NumPy."""


class Writing:
    """A model as it is written."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.opset = graph, tuning.MIN_OPSET
        self.nodes: list[Any] = []
        self.made_for: list[str] = []
        """Of each node the operator or view of the graph that it is a part of; "" for none."""
        self.constants: dict[str, Any] = {}
        self.names: dict[str, str] = {}
        """Of the graph's tensors, in the model."""
        self.dtypes: dict[str, str] = {}
        """The same tensors' dtypes, by their names in the model."""
        self.domains: dict[str, int] = {}
        """Of operators that are not ONNX's own, with their versions."""
        self.functions: dict[str, str] = {}
        """The names of local functions, by what they are of."""
        self.fixed: list[tuple[str, str, int]] = []
        """Nodes that were written for an opset of their own: what of the graph they are, their operator, the opset."""
        self._numbers: dict[tuple[int, ...] | tuple[Any, str], str] = {}
        self._taken = {*graph.outputs, *graph.stored, *graph.selections}
        self._at = ""

    def fresh(self, wanted: str) -> str:
        """A name that nothing in the model has."""
        name, k = wanted, 0
        while name in self._taken:
            k += 1
            name = f"{wanted}.{k}"
        self._taken.add(name)
        return name

    def name(self, tensor: str) -> str:
        """The name of a graph's tensor: its own, or that of the output that it is alone."""
        return self.names[tensor]

    def add(self, kind: str, inputs: Sequence[str], outputs: Sequence[str], name: str, **attrs: Any) -> None:
        """Add a node; attributes that are None are not given."""
        from onnx import helper

        given = {key: value for key, value in attrs.items() if value is not None}
        self.check_types(kind, inputs)
        self.made_for.append(self._at)
        self.nodes.append(helper.make_node(kind, list(inputs), list(outputs), name=name, **given))

    def check_types(self, kind: str, inputs: Sequence[str]) -> None:
        """Let the model be of the first opset whose operator takes the dtypes of the graph's tensors."""
        from onnx import defs

        given = [(k, self.dtypes[name]) for k, name in enumerate(inputs) if name in self.dtypes]
        for opset in range(self.opset, tuning.KNOWN_OPSET + 1):
            formal = defs.get_schema(kind, opset).inputs
            if all(_names(t) in formal[min(k, len(formal) - 1)].types for k, t in given):
                self.need(opset)
                return
        raise NotWritten(f"{kind} of ONNX takes no {' and '.join(dict.fromkeys(t for _, t in given))}; cast it")

    def node(self, kind: str, inputs: Sequence[str], out: str = "", **attrs: Any) -> str:
        """Add a node with one output, and return its name."""
        made = out or self.fresh(f"{self._at}.{kind}")
        self.add(kind, inputs, [made], self._at if out else made, **attrs)
        return made

    def number(self, values: Any) -> str:
        """Integers as a constant."""
        key = tuple(np.asarray(values, np.int64).reshape(-1).tolist())
        if key not in self._numbers:
            self._numbers[key] = name = self.fresh(f"{self._at}.ints")
            self.constants[name] = np.array(key, np.int64)
        return self._numbers[key]

    def scalar(self, value: Any, dtype: str) -> str:
        """A number as a constant of rank 0."""
        key = np.asarray(value, dtype).tobytes(), dtype
        if key not in self._numbers:
            self._numbers[key] = name = self.fresh(f"{self._at}.value")
            self.constants[name] = np.asarray(value, dtype)
        return self._numbers[key]

    def need(self, opset: int) -> None:
        """Let the model be of this version of ONNX's operators, or of a later one."""
        self.opset = max(self.opset, opset)

    def list_changed(self) -> Iterator[str]:
        """What cannot stand beside the others, since its operator is another one in the model's opset."""
        for name, kind, opset in self.fixed:
            own, now = schema_of(kind, opset), schema_of(kind, self.opset)
            if own is None or now is None or own.since_version != now.since_version:
                yield (
                    f"operator {quote(name)}: its {kind} is of opset {opset}, and another one in opset {self.opset}, "
                    "which other operators need"
                )

    # -- in order ----------------------------------------------------------------------------------------

    def write(self) -> Any:
        """All of the graph, and the model."""
        from onnx import helper, numpy_helper

        graph = self.graph
        self._name_tensors()
        inputs = [
            helper.make_tensor_value_info(name, _type_of(stored.dtype), stored.shape)
            for name, stored in graph.stored.items()
            if stored.kind == "input"
        ]
        for name, stored in graph.stored.items():
            if stored.kind == "constant":
                self.constants[name] = np.asarray(stored.data)
        for item in _list_in_order(graph):
            self._at = item.name
            if isinstance(item, OpNode):
                find_writer(graph, item)(self, item)
            else:
                read = [graph.tensor(name) for name in item.inputs]
                shapes = [tensor.shape for tensor in read]
                write_view(self, item, [self.names[t.name] for t in read], shapes, self.names[item.name])
        outputs, self._at = [], ""
        for label, name in graph.outputs.items():
            if self.names[name] != label:
                self.add("Identity", [self.names[name]], [label], self.fresh(f"{label}.output"))
            source = graph.source(name)
            outputs.append(helper.make_tensor_value_info(label, _type_of(source.dtype), source.shape))
        initializers = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        made = helper.make_graph(self.nodes, graph.name or "graph", inputs, outputs, initializers)
        return helper.make_model(
            made,
            opset_imports=[helper.make_opsetid(*one) for one in {"": self.opset, **self.domains}.items()],
            ir_version=tuning.IR_VERSION,
            functions=[make_function(name, said, self.opset) for said, name in self.functions.items()],
            producer_name="tapestry",
        )

    def _name_tensors(self) -> None:
        """Results and views that are one output have its name; other tensors their own, unless an output has that."""
        labels: dict[str, list[str]] = {}
        for label, name in self.graph.outputs.items():
            labels.setdefault(name, []).append(label)
        for name in (*self.graph.stored, *self.graph.selections):
            stored = self.graph.stored.get(name)
            is_made = stored is None or stored.kind == "result"
            mine = labels.get(name, [])
            if is_made and mine and (name in mine or mine[0] not in self._others(name)):
                self.names[name] = name if name in mine else mine[0]
            elif is_made and name in self.graph.outputs:
                self.names[name] = self.fresh(f"{name}.made")
            elif name in self.graph.outputs and self.graph.outputs[name] != name:
                raise NotWritten(
                    f"output {quote(name)} is called like the {stored.kind if stored else 'view'} {quote(name)}, which "
                    "it is not; give it another name"
                )
            else:
                self.names[name] = name
        self.dtypes = {self.names[name]: self.graph.tensor(name).dtype for name in self.names}

    def _others(self, name: str) -> set[str]:
        """The other tensors that cannot give up their names: inputs and constants."""
        return {one for one, stored in self.graph.stored.items() if stored.kind != "result" and one != name}


def _list_in_order(graph: Graph) -> list[OpNode | Selection]:
    """Operators and views, each behind what it reads."""
    makers: dict[str, OpNode | Selection] = {out: node for node in graph.nodes.values() for out in node.outputs}
    makers |= graph.selections
    done: dict[str, OpNode | Selection] = {}
    every: list[OpNode | Selection] = [*graph.nodes.values(), *graph.selections.values()]
    todo = every[::-1]
    while todo:
        item = todo[-1]
        before = [makers[name] for name in item.inputs if name in makers and makers[name].name not in done]
        if item.name in done:
            todo.pop()
        elif before:
            todo += before
        else:
            done[item.name] = todo.pop()
    return list(done.values())


def _type_of(dtype: str) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


# -- operators -------------------------------------------------------------------------------------------

Write = Callable[[Writing, OpNode], None]


def _inputs(to: Writing, node: OpNode) -> list[str]:
    return [to.name(tensor) for tensor in node.inputs]


def _outputs(to: Writing, node: OpNode) -> list[str]:
    return [to.name(tensor) for tensor in node.outputs]


def _alike(kind: str, names: Mapping[str, str] = FrozenDict(), opset: int = tuning.MIN_OPSET) -> Write:
    """The operator of ONNX with the same attributes, by the same names or those given."""

    def write(to: Writing, node: OpNode) -> None:
        to.need(opset)
        attrs = {names.get(key, key): _plain(value) for key, value in _list_given(to, node)}
        to.add(kind, _inputs(to, node), _outputs(to, node), node.name, **attrs)

    return write


def _list_given(to: Writing, node: OpNode) -> Iterator[tuple[str, Any]]:
    """Attributes, without fractions that are the default, which ONNX has too: its own are of 32 bits."""
    defaults = dict(to.graph.ops[node.op].defaults)

    def is_said(key: str, value: Any) -> bool:
        return not isinstance(value, float) or key not in defaults or defaults[key] != value

    return ((key, value) for key, value in node.attrs.items() if is_said(key, value))


def _plain(value: Any) -> Any:
    """An attribute as ONNX has it: a truth as 0 or 1, integers as a list."""
    return int(value) if isinstance(value, bool) else list(value) if isinstance(value, tuple) else value


def _extent(to: Writing, node: OpNode, key: str, count: int) -> list[int]:
    """An attribute that is one integer for all axes, or one for each."""
    value = node.attrs[key]
    return [value] * count if isinstance(value, int) else list(value)


def _window(to: Writing, node: OpNode, **more: Any) -> dict[str, Any]:
    """Strides, pads and dilations of a window."""
    rank = len(to.graph.tensor(node.inputs[0]).shape) - 2
    pads = node.attrs["pads"]
    both = not isinstance(pads, int) and len(pads) == 2 * rank
    found = {
        "strides": _extent(to, node, "strides", rank),
        "dilations": _extent(to, node, "dilations", rank),
        "pads": list(pads) if both else _extent(to, node, "pads", rank) * 2,
    }
    if "kernel" in node.attrs:
        found["kernel_shape"] = _extent(to, node, "kernel", rank)
    return {**found, **more}


def _conv(to: Writing, node: OpNode) -> None:
    attrs = _window(to, node, group=node.attrs["groups"])
    to.add("Conv", _inputs(to, node), _outputs(to, node), node.name, **attrs)


def _conv_transpose(to: Writing, node: OpNode) -> None:
    rank = len(to.graph.tensor(node.inputs[0]).shape) - 2
    more = {"group": node.attrs["groups"], "output_padding": _extent(to, node, "output_padding", rank)}
    to.add("ConvTranspose", _inputs(to, node), _outputs(to, node), node.name, **_window(to, node, **more))


def _pool(kind: str, *options: str) -> Write:
    def write(to: Writing, node: OpNode) -> None:
        to.need(19)  # dilated averages
        attrs = _window(to, node, **{key: int(node.attrs[key]) for key in options})
        to.add(kind, _inputs(to, node), _outputs(to, node), node.name, **attrs)

    return write


def _reduce(kind: str) -> Write:
    def write(to: Writing, node: OpNode) -> None:
        axis = node.attrs.get("axis")
        axes = [] if axis is None else [to.number([axis] if isinstance(axis, int) else list(axis))]
        keepdims = int(node.attrs["keepdims"])
        if axis is not None and not isinstance(axis, int) and not axis:
            raise NotWritten("it reduces no axis, which is a copy")
        to.add(kind, [*_inputs(to, node), *axes], _outputs(to, node), node.name, keepdims=keepdims)

    return write


def _arg(kind: str) -> Write:
    def write(to: Writing, node: OpNode) -> None:
        axis = node.attrs.get("axis")
        if axis is None:
            raise NotWritten("it looks through all axes at once; flatten its operand and give axis=0")
        keepdims = int(node.attrs["keepdims"])
        to.add(kind, _inputs(to, node), _outputs(to, node), node.name, axis=axis, keepdims=keepdims)

    return write


def _cast(to: Writing, node: OpNode) -> None:
    dtype = node.attrs["dtype"]
    _need_cast(to, dtype)
    how = {"saturate": 0} if dtype.startswith("float8") else {}
    to.add("Cast", _inputs(to, node), _outputs(to, node), node.name, to=_type_of(dtype), **how)


def _need_cast(to: Writing, dtype: str) -> None:
    """Let the model be of the first opset that casts to a dtype."""
    from onnx import defs

    since = (
        n for n in range(to.opset, tuning.KNOWN_OPSET) if _names(dtype) in defs.get_schema("Cast", n).outputs[0].types
    )
    to.need(next(since, tuning.KNOWN_OPSET))


def _scaling(to: Writing, node: OpNode) -> None:
    """QuantizeLinear or DequantizeLinear, where these do the same, or a function that says it in other operators."""
    x, scale, *zeros = (to.graph.tensor(name) for name in node.inputs)
    out, how = to.graph.tensor(node.outputs[0]), _linear_attrs(to, node)
    if how is None:
        for one in (x, *zeros, out):
            _need_cast(to, one.dtype)
        _function(to, node)
        return
    given = _inputs(to, node)
    if node.op == "quantize" and not zeros and out.dtype != "uint8":  # whose dtype is the result's
        given.append(to.fresh(f"{node.name}.zero"))
        to.constants[given[-1]] = np.zeros(scale.shape, out.dtype)
    to.need(how.pop("opset"))
    to.add(
        "QuantizeLinear" if node.op == "quantize" else "DequantizeLinear", given, [to.name(out.name)], node.name, **how
    )


def _linear_attrs(to: Writing, node: OpNode) -> dict[str, Any] | None:
    """The attributes of ONNX's operator, and the first opset that has them; None where that does something else."""
    x, scale, *zeros = (to.graph.tensor(name) for name in node.inputs)
    out, attrs = to.graph.tensor(node.outputs[0]), node.attrs
    if node.op not in ("quantize", "dequantize") or out.shape != x.shape or any(z.shape != scale.shape for z in zeros):
        return None
    if attrs.get("rounds_last") or attrs.get("precision") == "float64":
        return None
    how: dict[str, Any] = {}
    if scale.ndim == 1 and scale.size == x.shape[attrs["axis"]]:
        how["axis"] = attrs["axis"] % x.ndim
    elif scale.ndim and scale.shape == x.shape:
        how |= {"axis": x.ndim - 1, "block_size": 1}
    elif scale.ndim:
        return None
    if attrs.get("precision"):
        how["precision"] = _type_of(attrs["precision"])
    if attrs.get("dtype") and node.op == "dequantize":
        how["output_dtype"] = _type_of(attrs["dtype"])
    if not attrs.get("saturate", True):
        how["saturate"] = 0
    since = _find_linear(node.op, (x.dtype, scale.dtype, out.dtype), how)
    return None if since is None else {**how, "opset": since}


def _find_linear(op: str, dtypes: Sequence[str], attrs: Mapping[str, Any]) -> int | None:
    """The first opset whose operator takes an operand and a scale of some dtypes, and makes another one."""
    from onnx import defs

    for opset in range(tuning.MIN_OPSET, tuning.KNOWN_OPSET + 1):
        schema = defs.get_schema("QuantizeLinear" if op == "quantize" else "DequantizeLinear", opset)
        formal = *schema.inputs[:2], schema.outputs[0]
        bound = {(one.type_str, dtype) for one, dtype in zip(formal, dtypes, strict=True)}
        is_taken = all(_names(dtype) in one.types for one, dtype in zip(formal, dtypes, strict=True))
        # Two operands of one type in the schema have one dtype.
        if is_taken and len(bound) == len({kind for kind, _ in bound}) and attrs.keys() <= schema.attributes.keys():
            return opset
    return None


def _names(dtype: str) -> str:
    """A type as ONNX's schemas write it."""
    return f"tensor({TYPES.get(dtype, dtype)})"


def _clip(to: Writing, node: OpNode) -> None:
    dtype = to.graph.tensor(node.inputs[0]).dtype
    bounds = [node.attrs.get(key) for key in ("min", "max")]
    given = ["" if bound is None else to.scalar(bound, dtype) for bound in bounds]
    to.add("Clip", [*_inputs(to, node), *given], _outputs(to, node), node.name)


def _shift(direction: str) -> Write:
    def write(to: Writing, node: OpNode) -> None:
        to.add("BitShift", _inputs(to, node), _outputs(to, node), node.name, direction=direction)

    return write


def _gather(to: Writing, node: OpNode) -> None:
    """Where negative indices are an error, which ONNX counts from the end, a function says so."""
    if not node.attrs["from_end"]:
        to.check_types("Gather", _inputs(to, node))
        _function(to, node)
        return
    to.add("Gather", _inputs(to, node), _outputs(to, node), node.name, axis=node.attrs["axis"])


def _cumulative_sum(to: Writing, node: OpNode) -> None:
    if node.attrs.get("axis") is None:
        raise NotWritten("it has no axis; give one")
    how = {key: int(node.attrs[key]) for key in ("exclusive", "reverse")}
    axis = to.scalar(node.attrs["axis"], "int64")
    to.add("CumSum", [*_inputs(to, node), axis], _outputs(to, node), node.name, **how)


def _one_hot(to: Writing, node: OpNode) -> None:
    attrs = node.attrs
    values = to.fresh(f"{node.name}.values")
    to.constants[values] = np.array([attrs["off"], attrs["on"]], attrs["dtype"])
    given = [*_inputs(to, node), to.scalar(attrs["depth"], "int64"), values]
    to.add("OneHot", given, _outputs(to, node), node.name, axis=attrs["axis"])


def _top_k(to: Writing, node: OpNode) -> None:
    attrs = {"axis": node.attrs["axis"], "largest": int(node.attrs["largest"])}
    to.add("TopK", [*_inputs(to, node), to.number([node.attrs["k"]])], _outputs(to, node), node.name, **attrs)


def _linear(to: Writing, node: OpNode) -> None:
    x, w, *bias = _inputs(to, node)
    (out,) = _outputs(to, node)
    product = to.node("MatMul", [x, w], "" if bias else out)
    if bias:
        to.node("Add", [product, bias[0]], out)


def _swish(to: Writing, node: OpNode) -> None:
    (x,), (out,) = _inputs(to, node), _outputs(to, node)
    to.node("Mul", [x, to.node("Sigmoid", [x])], out)


def _remainder(to: Writing, node: OpNode) -> None:
    dtype = to.graph.tensor(node.inputs[0]).dtype
    if np.dtype(dtype).kind == "f" and not node.attrs["truncate"]:
        to.need(28)  # before, those of fractions have the sign of what is divided
    to.add("Mod", _inputs(to, node), _outputs(to, node), node.name, fmod=int(node.attrs["truncate"]))


def _not_equal(to: Writing, node: OpNode) -> None:
    (out,) = _outputs(to, node)
    to.node("Not", [to.node("Equal", _inputs(to, node))], out)


def _resize(to: Writing, node: OpNode) -> None:
    attrs, (x,) = node.attrs, _inputs(to, node)
    mode, is_part = attrs["mode"], attrs["coordinates"] == "tf_crop_and_resize"
    if attrs["coordinates"] == "tf_half_pixel_for_nn":
        raise NotWritten("ONNX has no tf_half_pixel_for_nn from opset 13 on")
    how = {
        "mode": mode,
        "coordinate_transformation_mode": attrs["coordinates"],
        "nearest_mode": attrs["nearest"] if mode == "nearest" else None,
        "cubic_coeff_a": attrs["cubic"] if mode == "cubic" else None,
        "antialias": int(attrs["antialias"]) or None,
        "exclude_outside": int(attrs["exclude_outside"]) or None,
        "extrapolation_value": attrs["outside"] if is_part else None,
    }
    if attrs["coordinates"] == "half_pixel_symmetric":
        to.need(19)
    roi = ""
    if is_part:
        ends = attrs.get("part") or ((0.0, 1.0),) * to.graph.tensor(node.inputs[0]).ndim
        roi = to.fresh(f"{node.name}.roi")
        to.constants[roi] = _exactly([end[k] for k in (0, 1) for end in ends], "part")
    sizes, scales = attrs.get("sizes"), attrs.get("scales")
    if scales is None:
        given = [roi, "", to.number(sizes)]
    else:
        given = [roi, to.fresh(f"{node.name}.scales")]
        to.constants[given[1]] = _exactly(scales, "scales")
        extents = np.array(to.graph.tensor(node.inputs[0]).shape, np.float32)
        if tuple(np.floor(extents * to.constants[given[1]]).tolist()) != sizes:
            raise NotWritten("its sizes do not follow from its scales, and ONNX takes one of them")
    to.add("Resize", [x, *given], _outputs(to, node), node.name, **how)


def _iota(to: Writing, node: OpNode) -> None:
    first, step, size = (node.attrs[key] for key in ("start", "step", "size"))
    dtype = np.dtype(node.attrs["dtype"])
    if dtype.name not in ("int16", "int32", "int64", "float32", "float64"):
        raise NotWritten(f"ONNX's Range has no numbers of {dtype.name}; make others and cast them")
    # Just behind the last number; of fractions halfway to the next one, as the end may be rounded to either side.
    limit = first + (size - 1) * step + (step / 2 if dtype.kind == "f" else 1 if step > 0 else -1)
    try:
        with np.errstate(over="ignore"):
            given = [dtype.type(one) for one in (first, limit, step)]
    except OverflowError:
        given = []
    is_exact = bool(given) and given[0].item() == first and given[2].item() == step and np.isfinite(given[1])
    if not is_exact or not step or (dtype.kind == "f" and ceil((given[1].item() - first) / step) != size):
        raise NotWritten(f"no start, limit and delta of {dtype.name} say what its {size:,} numbers are")
    to.add("Range", [to.scalar(one, dtype.name) for one in given], _outputs(to, node), node.name)


def _function(to: Writing, node: OpNode) -> None:
    """A call of a local function (see `walks`): one function for all operators that are alike."""
    from onnx import helper

    tensors = [to.graph.tensor(name) for name in (*node.inputs, *node.outputs)]
    shapes = [one.shape for one in tensors[: len(node.inputs)]]
    said = declare(node.op, shapes, [one.dtype for one in tensors], node.attrs)
    kind = to.functions.setdefault(said, f"{node.attrs.get('kind', node.op)}_{len(to.functions)}")
    to.domains[DOMAIN] = 1
    to.made_for.append(node.name)
    to.nodes.append(helper.make_node(kind, _inputs(to, node), _outputs(to, node), node.name, domain=DOMAIN))


def _bitcast(to: Writing, node: OpNode) -> None:
    to.need(26)
    to.add("BitCast", _inputs(to, node), _outputs(to, node), node.name, to=_type_of(node.attrs["dtype"]))


def _unpack_blocks(to: Writing, node: OpNode) -> None:
    """Numbers out of bytes by shifts, without their zeros, and scaled."""
    (packed, scales, *zeros), (out,), bits = _inputs(to, node), _outputs(to, node), node.attrs["bits"]
    rows, blocks, cells = to.graph.tensor(node.outputs[0]).shape
    dtype, last = to.graph.tensor(node.outputs[0]).dtype, to.number([2])

    def numbers(name: str, shape: Sequence[int]) -> str:
        """The numbers of bytes side by side, in the floating dtype."""
        axis, each = [len(shape)], 8 // bits
        shifts = [to.node("BitShift", [name, to.scalar(bits * k, "uint8")], direction="RIGHT") for k in range(each)]
        parts = [to.node("BitwiseAnd", [part, to.scalar(2**bits - 1, "uint8")]) for part in shifts]
        parts = [to.node("Unsqueeze", [part, to.number(axis)]) for part in parts]
        joined = to.node("Concat", parts, axis=axis[0])
        whole = to.node("Reshape", [joined, to.number([*shape[:-1], shape[-1] * each])])
        return to.node("Cast", [whole], to=_type_of(dtype))

    found = numbers(packed, (rows, blocks, cells * bits // 8))
    middle = to.scalar(2 ** (bits - 1), dtype)
    if zeros:
        given = to.graph.tensor(node.inputs[2])
        if given.dtype == "uint8":
            row = numbers(zeros[0], given.shape)
            row = to.node("Slice", [row, to.number([0]), to.number([blocks]), to.number([1])])
        else:
            row = zeros[0]
        middle = to.node("Unsqueeze", [row, last])
    found = to.node("Sub", [found, middle])
    to.node("Mul", [found, to.node("Unsqueeze", [scales, last])], out)


def _exactly(numbers: Sequence[float], what: str) -> Any:
    made = np.array(numbers, np.float32)
    if tuple(made.tolist()) != tuple(map(float, numbers)):
        raise NotWritten(f"its {what} need more than 32 bits each")
    return made


def _attention(to: Writing, node: OpNode) -> None:
    to.need(23)
    attrs = node.attrs
    if attrs.get("left") is not None or attrs.get("right") is not None:
        raise NotWritten("it has windows, which the Attention of this opset has not")
    how = {"scale": attrs.get("scale"), "is_causal": int(attrs["causal"]), "softcap": attrs.get("softcap")}
    to.add("Attention", _inputs(to, node), _outputs(to, node), node.name, **how)


# fmt: off
_SAME = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "add": "Add", "add_n": "Sum", "asin": "Asin", "asinh": "Asinh",
    "atan": "Atan", "atanh": "Atanh", "batch_normalization": "BatchNormalization", "bitwise_and": "BitwiseAnd",
    "bitwise_invert": "BitwiseNot", "bitwise_or": "BitwiseOr", "bitwise_xor": "BitwiseXor", "ceil": "Ceil",
    "celu": "Celu", "cos": "Cos", "cosh": "Cosh", "divide": "Div", "einsum": "Einsum", "elu": "Elu", "equal": "Equal",
    "erf": "Erf", "exp": "Exp", "floor": "Floor", "gather_nd": "GatherND", "global_average_pool": "GlobalAveragePool",
    "global_max_pool": "GlobalMaxPool", "greater": "Greater", "greater_equal": "GreaterOrEqual",
    "hard_sigmoid": "HardSigmoid", "hard_swish": "HardSwish", "instance_normalization": "InstanceNormalization",
    "isinf": "IsInf", "isnan": "IsNaN", "layer_normalization": "LayerNormalization", "leaky_relu": "LeakyRelu",
    "less": "Less", "less_equal": "LessOrEqual", "local_response_normalization": "LRN", "log": "Log",
    "log_softmax": "LogSoftmax", "logical_and": "And", "logical_not": "Not", "logical_or": "Or", "logical_xor": "Xor",
    "matmul": "MatMul", "maximum": "Max", "minimum": "Min", "mish": "Mish", "multiply": "Mul", "negative": "Neg",
    "pow": "Pow", "prelu": "PRelu", "put_along_axis": "ScatterElements", "reciprocal": "Reciprocal", "relu": "Relu",
    "round": "Round", "scatter_nd": "ScatterND", "selu": "Selu", "sigmoid": "Sigmoid", "sign": "Sign", "sin": "Sin",
    "sinh": "Sinh", "softmax": "Softmax", "softplus": "Softplus", "softsign": "Softsign", "sqrt": "Sqrt",
    "subtract": "Sub", "take_along_axis": "GatherElements", "tan": "Tan", "tanh": "Tanh",
    "thresholded_relu": "ThresholdedRelu", "where": "Where",
}
# fmt: on
"""Operators that ONNX has with the same operands and attributes."""


def _opaque(to: Writing, node: OpNode) -> None:
    """The nodes of its model, under the names that the graph has."""
    from onnx import ModelProto, numpy_helper

    model = ModelProto.FromString(b64decode(node.attrs["model"]))
    if model.functions:
        raise NotWritten("its model has functions of its own; put them in place with onnx.inliner")
    graph = model.graph
    names = dict(zip([one.name for one in graph.input], _inputs(to, node), strict=True))
    names |= dict(zip([one.name for one in graph.output], _outputs(to, node), strict=True))
    for tensor in graph.initializer:
        names[tensor.name] = name = to.fresh(f"{node.name}.{tensor.name}")
        to.constants[name] = numpy_helper.to_array(tensor)
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx"):
            to.need(entry.version)
            to.fixed += [(node.name, one.op_type, entry.version) for one in graph.node if not one.domain]
        elif to.domains.setdefault(entry.domain, entry.version) != entry.version:
            raise NotWritten(f"its operators of {quote(entry.domain)} are of another version than others of the graph")
    made = {name for one in graph.node for name in one.output if name}
    names |= {name: to.fresh(f"{node.name}.{name}") for name in sorted(made - names.keys())}
    protos = list(graph.node)
    rename(protos, names)
    for k, proto in enumerate(protos):
        proto.name = node.name if k == len(protos) - 1 else to.fresh(f"{node.name}.{proto.name or proto.op_type}")
        to.made_for.append(node.name)
        to.nodes.append(proto)


_ROWS: dict[str, Write] = {
    **{name: _alike(kind) for name, kind in _SAME.items()},
    **dict.fromkeys(DRAWING, _function),
    **dict.fromkeys(SCALING, _scaling),
    "argmax": _arg("ArgMax"),
    "argmin": _arg("ArgMin"),
    "astype": _cast,
    "attention": _attention,
    "average_pool": _pool("AveragePool", "ceil_mode", "count_include_pad"),
    "bitcast": _bitcast,
    "bitwise_left_shift": _shift("LEFT"),
    "bitwise_right_shift": _shift("RIGHT"),
    "clip": _clip,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "cumulative_sum": _cumulative_sum,
    "det": _alike("Det"),
    "gelu": _alike("Gelu", opset=20),
    "gemm": _alike("Gemm", {"trans_a": "transA", "trans_b": "transB"}),
    "group_normalization": _alike("GroupNormalization", {"groups": "num_groups"}, opset=21),
    "iota": _iota,
    "linear": _linear,
    "logsumexp": _reduce("ReduceLogSumExp"),
    "max": _reduce("ReduceMax"),
    "max_pool": _pool("MaxPool", "ceil_mode"),
    "mean": _reduce("ReduceMean"),
    "min": _reduce("ReduceMin"),
    "not_equal": _not_equal,
    "one_hot": _one_hot,
    "opaque": _opaque,
    "prod": _reduce("ReduceProd"),
    "recurrence": _function,
    "recurrence_step": _function,
    "remainder": _remainder,
    "resize": _resize,
    "rms_normalization": _alike("RMSNormalization", opset=23),
    "silu": _swish,
    "sum": _reduce("ReduceSum"),
    "take": _gather,
    "top_k": _top_k,
    "unpack_blocks": _unpack_blocks,
}
WRITERS: Mapping[str, Write] = FrozenDict(_ROWS)
"""How each operator is written; others are refused."""


@check_arguments(graph="make one with Graph(), load_onnx or the operators of tapestry_plan.ops")
def to_onnx(graph: Graph | ShardPlan) -> Any:
    """Return a graph as an ONNX model; the graph of a plan with where its tensors lie, as `ShardingSpecProto`s.

    Parameters
    ----------
    graph : Graph or ShardPlan
        A plan's blocks of several operators are written as these, each with its own shardings.

    Returns
    -------
    onnx.ModelProto
        Its inputs, outputs and initializers are called as in the graph; its operators are of opset 18, or of a later
        one where they need that.

    Raises
    ------
    UnsupportedOp
        Listing every operator and view that ONNX does not have.
    NotExported
        For a plan some of whose tensors lie as ONNX cannot say, with the reasons: see `ShardPlan.to_jax`.
    ValueError
        For a graph that does not hold together, and for constants that it names but does not carry.

    Notes
    -----
    What `load_onnx` made of a model comes back the same from what this writes (`same_graph`); where convolutions have
    batch normalizations behind them, by ``load_onnx(…, fold=False)``. Of other graphs `linear`, `silu` and `not_equal`
    are two operators of ONNX, `unpack_blocks` is several, and views may be several nodes. `requantize` and `center` are
    local functions, and so are `quantize` and `dequantize` where QuantizeLinear and DequantizeLinear do something else.

    Examples
    --------
    >>> from tapestry_plan import same_graph
    >>> from tapestry_plan.onnx import demo_model, load_onnx
    >>> graph = load_onnx(demo_model())
    >>> same_graph(load_onnx(to_onnx(graph)), graph)
    True

    References
    ----------
    ONNX IR and operators.
    """
    plan = graph if isinstance(graph, ShardPlan) else None
    graph = _check(graph)
    writing = Writing(graph)
    model = writing.write()
    if plan is not None:
        add_shardings(model, plan, graph, writing.names, writing.made_for)
    return model


def check_onnx(plan: ShardPlan) -> None:
    """Raise what `to_onnx` raises of a plan, which is not written down.

    Examples
    --------
    >>> from tapestry_plan import Graph, Mesh, ops, plan
    >>> g = Graph()
    >>> _ = g.output(ops.relu(g.input("x", (3,)), name="act"), "y")
    >>> try:
    ...     check_onnx(plan(g, Mesh(2), fix={"act": {"i0": 2}}))
    ... except ValueError as error:
    ...     print(str(error)[:42])
    to_onnx: 2 tensors not in even blocks: 'ac
    """
    list_shardings(plan, _check(plan))


def _check(graph: Graph | ShardPlan) -> Graph:
    """The graph that is written, a plan's with the operators of its blocks apart; raise where ONNX has no words."""
    if isinstance(graph, ShardPlan):
        pairs = [(pair.first, pair.second) for pair in graph.fused]
        graph = take_apart(graph.graph, pairs, graph.made_by)
    graph.validate()
    absent = [name for name, stored in graph.stored.items() if stored.kind == "constant" and stored.data is None]
    if absent:
        raise ValueError(
            f"to_onnx: the graph names constant {quote(absent[0])} without its values; import it from its model again"
        )
    try:
        wrong = _list_unknown(graph)
    except NotWritten as error:
        raise UnsupportedOp(f"to_onnx: {error}") from None
    if wrong:
        raise UnsupportedOp(f"to_onnx: ONNX does not have {len(wrong)} of the graph's parts:\n" + "\n".join(wrong))
    return graph


def find_writer(graph: Graph, node: OpNode) -> Write:
    """How a node is written: its operator must be the one that is known by that name."""
    if node.op not in WRITERS:
        raise NotWritten(f"its operator is {quote(node.op)}; {list_names(WRITERS, node.op, 'operators')}")
    if graph.ops[node.op] is not BUILTIN_OPS[node.op]:
        raise NotWritten(f"its operator is called {quote(node.op)}, and is another one; give it a name of its own")
    return WRITERS[node.op]


def _list_unknown(graph: Graph) -> list[str]:
    """A line for each operator and view that cannot be written, with the reason."""
    found, trial = [], Writing(graph)
    trial._name_tensors()
    for item in _list_in_order(graph):
        trial._at = item.name
        try:
            if not isinstance(item, OpNode):
                shapes = [graph.tensor(name).shape for name in item.inputs]
                write_view(trial, item, [trial.name(name) for name in item.inputs], shapes, trial.name(item.name))
            else:
                find_writer(graph, item)(trial, item)
        except NotWritten as error:
            what = (
                f"operator {quote(item.name)}"
                if isinstance(item, OpNode)
                else f"view {quote(item.name)} ({item.label})"
            )
            found.append(f"  {what}: {error}")
    return found + [f"  {line}" for line in trial.list_changed()]
