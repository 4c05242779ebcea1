"""Recurrences, and operators that draw or scale, as local functions of a model, which the importer knows again.

ONNX's LSTM, GRU and RNN multiply each step's input by weights, and give the last cells alone; `ops.recurrence` does
neither. So a recurrence is a call of a function that says it in ONNX's own operators: a Scan over the steps. What runs
ONNX runs that. The function carries the operator's declaration; where it is what would be written for that, the
importer takes the call for the operator::

    y = tapestry.lstm(x, w, h, c)     lstm: x ─► Scan of MatMul, Add, Sigmoid, … ─► y     {"attrs": …, "shapes": …}

A single step, `ops.recurrence_step`, is a function too: of what is in the Scan. So is what draws numbers, since ONNX
leaves open which ones a node draws: whoever else runs the model draws others of the same distribution. And so are the
operators between integers and the numbers that they stand for, where ONNX's QuantizeLinear and DequantizeLinear are not
what they do, and gathers that negative indices end: of these a function says the dtypes, and its calls are of any
shapes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tapestry_plan import ops
from tapestry_plan.ir import SHORT_FLOATS, Attrs, Shape
from tapestry_plan.onnx import tuning
from tapestry_plan.ops import quantized as scaling
from tapestry_sets.limits import is_int, quote

DOMAIN, KIND, STEP = "tapestry", "recurrence", "recurrence_step"
"""Of the nodes that call such functions, as the importer sees them; in models each function has a name of its own."""
DECLARATION = "declaration"
"""The attribute by which the importer is told what a function says of itself."""
DRAWING = frozenset({"bernoulli", "dropout", "integers", "normal", "uniform"})
"""Operators that draw numbers."""
SCALING = frozenset({"center", "dequantize", "quantize", "requantize"})
"""Operators between integers and the numbers that they stand for."""
TAKE = "take"
"""The operator that gathers cells, where negative indices are an error: those of ONNX's Gather count from the end."""


def declare(operator: str, shapes: Sequence[Shape], dtypes: Sequence[str], attrs: Attrs) -> str:
    """What an operator, of which there are operands of these shapes and dtypes and then results, is, as a text."""
    said: dict[str, Any] = {"attrs": dict(attrs)}
    if operator in SCALING or operator == TAKE:
        said |= {
            "operands": [[one, len(shape)] for one, shape in zip(dtypes, shapes, strict=False)],
            "dtype": dtypes[-1],
        }
    else:
        said |= {"dtype": dtypes[0], "shapes": [list(shape) for shape in shapes]}
    if operator != KIND:
        said["operator"] = operator
    return json.dumps(said, sort_keys=True)


def make_function(name: str, declaration: str, opset: int) -> Any:
    """The function of ONNX that does what a declaration says."""
    from onnx import helper

    said = json.loads(declaration)
    if said.get("operator") in SCALING:
        nodes = _make_scaling(said["operator"], said["operands"], said["dtype"], said["attrs"])
        given, opsets = _scaled_by(said["operator"])[: len(said["operands"])], [helper.make_opsetid("", opset)]
        return helper.make_function(DOMAIN, name, given, ["y"], nodes, opsets, doc_string=declaration)
    if said.get("operator") == TAKE:
        nodes = _make_take([dtype for dtype, _ in said["operands"]], said["attrs"]["axis"])
        opsets = [helper.make_opsetid("", opset)]
        return helper.make_function(DOMAIN, name, ["x", "i"], ["y"], nodes, opsets, doc_string=declaration)
    shapes, dtype, attrs = [tuple(shape) for shape in said["shapes"]], said["dtype"], said["attrs"]
    if said.get("operator", KIND) in DRAWING:
        nodes, inputs = _make_drawing(said["operator"], dtype, attrs), ["x"][: len(shapes)]
        opsets = [helper.make_opsetid("", opset)]
        return helper.make_function(DOMAIN, name, inputs, ["y"], nodes, opsets, doc_string=declaration)
    wide = "float32" if dtype == "float16" else dtype
    kind = attrs["kind"]
    results = ["y", "cells"][: 2 if kind == "lstm" else 1]
    if said.get("operator", KIND) == STEP:
        inputs = ["x", "w", "h", *{"lstm": ["c"], "gru": ["own"], "rnn": []}[kind], "extra"][: len(shapes)]
        nodes = [*_make_step(shapes, wide, attrs, inputs, results), *_casts_to(dtype, results)]
        opsets = [helper.make_opsetid("", opset)]
        return helper.make_function(DOMAIN, name, inputs, results, nodes, opsets, doc_string=declaration)
    body = _Body(shapes[0][1:], shapes[2], wide, attrs, len(shapes) > (4 if kind == "lstm" else 3))
    inputs = ["x", "w", "h", *(["c"] if kind == "lstm" else []), "extra"][: len(shapes)]
    top = [helper.make_node("Cast", [one], [f"{one}_"], to=body.kind) for one in inputs]
    top.append(helper.make_node("Transpose", ["w_"], ["turned_"], perm=[0, 2, 1]))
    if "extra" in inputs:
        top.append(_constant("one_", [1], "int64"))
        top.append(helper.make_node("Unsqueeze", ["extra_", "one_"], ["beside_"]))
    states = [f"{one}_" for one in (("h", "c") if kind == "lstm" else ("h",))]
    walk = helper.make_node(
        "Scan",
        [*states, "x_"],
        [*(f"last_{one}" for one in results), *(f"{one}_" for one in results)],
        body=body.make(),
        num_scan_inputs=1,
    )
    nodes = [*top, walk, *_casts_to(dtype, results)]
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_function(DOMAIN, name, inputs, results, nodes, opsets, doc_string=declaration)


def _make_take(operands: Sequence[str], axis: int) -> list[Any]:
    """Nodes of ONNX that gather cells, with negative indices behind the last one, where they are an error."""
    from onnx import helper

    end = {"end": axis + 1} if axis != -1 else {}
    return [
        helper.make_node("Shape", ["x"], ["extents"], start=axis, **end),
        helper.make_node("Squeeze", ["extents"], ["extent"]),
        helper.make_node("Cast", ["extent"], ["behind"], to=_code(operands[1])),
        _constant("zero", 0, operands[1]),
        helper.make_node("Less", ["i", "zero"], ["is_below"]),
        helper.make_node("Where", ["is_below", "behind", "i"], ["kept"]),
        helper.make_node("Gather", ["x", "kept"], ["y"], axis=axis),
    ]


def _make_drawing(operator: str, dtype: str, attrs: Attrs) -> list[Any]:
    """Nodes of ONNX that draw numbers of the same distribution."""
    from onnx import helper

    if operator == "dropout":
        known = [_constant("ratio", attrs["rate"], "float32"), _constant("training", True, "bool")]
        return [*known, helper.make_node("Dropout", ["x", "ratio", "training"], ["y"])]
    names = {"normal": ("mean", "scale"), "bernoulli": ()}.get(operator, ("low", "high"))
    ends = {name: float(attrs["loc" if name == "mean" else name]) for name in names}
    of, wide = ("RandomNormal", dtype) if operator == "normal" else ("RandomUniform", dtype)
    if operator in ("bernoulli", "integers"):
        wide = "float32" if operator == "bernoulli" else "float64"
    last = "y" if wide == dtype else "drawn"
    drawn = helper.make_node(of, [], [last], shape=list(attrs["shape"]), dtype=_code(wide), **ends)
    if operator == "bernoulli":
        return [drawn, _constant("p", attrs["p"], wide), helper.make_node("Less", ["drawn", "p"], ["y"])]
    if operator == "integers":
        floor = helper.make_node("Floor", ["drawn"], ["whole"])
        return [drawn, floor, helper.make_node("Cast", ["whole"], ["y"], to=_code(dtype))]
    return [drawn]


def _scaled_by(operator: str) -> list[str]:
    """The operands of a function that scales, and of a part of it the first ones."""
    return ["x", "zero"] if operator == "center" else ["x", "scale", "zero"]


def _make_scaling(operator: str, operands: Sequence[tuple[str, int]], made: str, attrs: Attrs) -> list[Any]:
    """Nodes of ONNX that do what an operator between integers and numbers does, of operands' dtypes and ranks."""
    from onnx import helper

    nodes: list[Any] = []
    if any(not is_int(rank, 0, tuning.MAX_RANK) for _, rank in operands):
        raise ValueError(f"operands are {quote(operands)}; ranks of tensors are 0 to {tuning.MAX_RANK}")
    ops.operands.axis_of(attrs["axis"], max(1, operands[0][1]))
    given = [dtype for dtype, _ in operands]
    ranks = {one: rank for one, (_, rank) in zip(_scaled_by(operator), operands, strict=False)}

    def add(kind: str, *inputs: str, **how: Any) -> str:
        nodes.append(helper.make_node(kind, list(inputs), [f"t{len(nodes)}"], **how))
        return f"t{len(nodes) - 1}"

    def cast(one: str, dtype: Any) -> str:
        if one != "x" and ranks.get(one) == 1:
            behind = scaling.along((-1,), attrs["axis"], ranks["x"])
            if len(behind) > 1:
                nodes.append(_constant(f"shape{len(nodes)}", behind, "int64"))
                one = add("Reshape", one, f"shape{len(nodes) - 1}")
        how = {"saturate": 0} if str(dtype).startswith("float8") else {}
        return add("Cast", one, to=_code(dtype), **how)

    def clip(one: str, least: float, most: float, dtype: Any) -> str:
        ends = [f"least{len(nodes)}", f"most{len(nodes)}"]
        nodes.extend(_constant(end, value, dtype) for end, value in zip(ends, (least, most), strict=True))
        return add("Clip", one, *ends)

    if operator == "center":
        add("Sub", cast("x", made), cast("zero", made))
    elif operator == "dequantize":
        wide = scaling.added_in(made)
        held = wide if len(given) < 3 else scaling.centered_in(given[0], wide)
        x = cast("x", held)
        if len(given) > 2:
            x = cast(add("Sub", x, cast("zero", held)), wide)
        cast(add("Mul", x, cast("scale", wide)), made)
    else:
        is_share = operator == "quantize"
        kind = scaling.divided_in(given[:2], attrs.get("precision")) if is_share else scaling.WIDE
        x = add("Div" if is_share else "Mul", cast("x", kind), cast("scale", kind))
        limits = scaling.limits_of(made)
        if made in SHORT_FLOATS:
            if attrs["saturate"] and made != "float4_e2m1fn":
                x = clip(x, -float(limits.max), float(limits.max), kind)
        else:
            wide, rounds_last = scaling.added_in(kind), attrs.get("rounds_last", False)
            x = cast(x if rounds_last else add("Round", x), wide)
            x = add("Add", x, cast("zero", wide)) if len(given) > 2 else x
            x = clip(add("Round", x) if rounds_last else x, float(limits.min), float(limits.max), wide)
        cast(x, made)
    nodes[-1].output[0] = "y"
    return nodes


def _casts_to(dtype: str, results: Sequence[str]) -> list[Any]:
    from onnx import helper

    return [helper.make_node("Cast", [f"{one}_"], [one], to=_code(dtype)) for one in results]


def _make_step(
    shapes: Sequence[Shape], dtype: str, attrs: Mapping[str, Any], inputs: Sequence[str], results: Sequence[str]
) -> list[Any]:
    """The nodes of one step; its gates lie one behind the other in what the input adds and in the weights."""
    from onnx import helper

    (directions, batch, gates, width), state = shapes[0], shapes[2]
    body = _Body((directions, batch, gates * width), state, dtype, attrs, "extra" in inputs)
    top = [helper.make_node("Cast", [one], [f"{one}_"], to=body.kind) for one in inputs]
    flat = {"x": (directions, batch, gates * width), "w": (directions, gates * width, width)}
    if "extra" in inputs:
        flat["extra"] = (directions, 1, shapes[-1][-1] * (3 if attrs["kind"] == "lstm" else 1))
    named = {"x": "x__", "w": "flat_w", "extra": "beside_"}
    for one, shape in flat.items():
        top.append(_constant(f"shape_{one}", shape, "int64"))
        top.append(helper.make_node("Reshape", [f"{one}_", f"shape_{one}"], [named[one]]))
    top.append(helper.make_node("Transpose", ["flat_w"], ["turned_"], perm=[0, 2, 1]))
    for given, one in (("h", "h__"), ("c", "c__"), ("own", "own__")):
        if given in inputs:
            top.append(helper.make_node("Identity", [f"{given}_"], [one]))
    nodes, made = body.make_nodes("own__" if "own" in inputs else "h__")
    ends = [helper.make_node("Identity", [one], [f"{result}_"]) for one, result in zip(made, results, strict=True)]
    return [*top, *nodes, *ends]


def show_walks(model: Any) -> Any:
    """The model in which calls of such functions are nodes that the importer knows; others stay what they are."""
    import onnx

    own = [one for one in model.functions if one.domain == DOMAIN and _is_own(one)]
    if not own:
        return model
    said = {one.name: one.doc_string for one in own}
    kinds = {name: json.loads(text).get("operator", KIND) for name, text in said.items()}
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    kept = [one for one in copy.functions if not (one.domain == DOMAIN and one.name in said)]
    del copy.functions[:]
    copy.functions.extend(kept)
    for node in copy.graph.node:
        if node.domain == DOMAIN and node.op_type in said:
            node.attribute.append(onnx.helper.make_attribute(DECLARATION, said[node.op_type]))
            node.op_type = kinds[node.op_type]
    return copy


def _is_own(function: Any) -> bool:
    """Whether a function is what would be written for its declaration, to the letter."""
    versions = [one.version for one in function.opset_import if one.domain in ("", "ai.onnx")]
    try:
        again = make_function(function.name, function.doc_string, versions[0])
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):  # any text may stand there
        return False
    return bool(again.SerializeToString(deterministic=True) == function.SerializeToString(deterministic=True))


def _code(dtype: str) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def _constant(name: str, value: Any, dtype: str) -> Any:
    from onnx import helper, numpy_helper

    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(value, dtype)))


class _Body:
    """The graph of one step."""

    def __init__(self, step: Shape, state: Shape, dtype: str, attrs: Mapping[str, Any], has_extra: bool) -> None:
        self.attrs, self.dtype, self.kind = attrs, dtype, _code(dtype)
        self._step, self._state, self._has_extra, self._own = step, state, has_extra, "h__"
        self._nodes: list[Any] = []
        names = attrs.get("activations") or ops.recurrent.USUAL[attrs["kind"]]
        alphas, betas = (attrs.get(key) or [0.0] * len(names) for key in ("alphas", "betas"))
        self._curves = list(zip(names, alphas, betas, strict=True))

    def make(self) -> Any:
        from onnx import helper

        _, made = self.make_nodes("h__")
        states = ["h", "c"][: len(made)]

        def declared(name: str, shape: Shape) -> Any:
            return helper.make_tensor_value_info(name, self.kind, shape)

        outputs = [*(f"next_{one}" for one in states), *(f"made_{one}" for one in states)]
        for name, out in zip([*made, *made], outputs, strict=True):
            self._nodes.append(helper.make_node("Identity", [name], [out]))
        inputs = [*(declared(f"{one}__", self._state) for one in states), declared("x__", self._step)]
        return helper.make_graph(self._nodes, "step", inputs, [declared(out, self._state) for out in outputs])

    def make_nodes(self, own: str) -> tuple[list[Any], list[str]]:
        """The nodes, and the names of the states that they make; a "gru" keeps a part of the state `own`."""
        self._own = own
        steps = {"rnn": self._rnn, "gru": self._gru, "lstm": self._lstm}
        return self._nodes, steps[self.attrs["kind"]]()

    def _add(self, kind: str, *inputs: str, outputs: int = 1, **attrs: Any) -> Any:
        from onnx import helper

        names = [f"t{len(self._nodes)}_{k}" for k in range(outputs)]
        self._nodes.append(helper.make_node(kind, list(inputs), names, **attrs))
        return names[0] if outputs == 1 else names

    def _number(self, value: float) -> str:
        name = f"t{len(self._nodes)}_n"
        self._nodes.append(_constant(name, value, self.dtype))
        return name

    def _cut(self, of: str, count: int) -> list[str]:
        found = self._add("Split", of, outputs=count, axis=-1, num_outputs=count)
        return list(found)

    def _bend(self, number: int, value: str) -> str:
        """An activation of what is cut off first, where it is."""
        clip = self.attrs.get("clip")
        if clip:
            value = self._add("Clip", value, self._number(-clip), self._number(clip))
        return self._curve(number, value)

    def _curve(self, number: int, x: str) -> str:
        name, a, b = self._curves[number]
        plain = {"relu": "Relu", "sigmoid": "Sigmoid", "softplus": "Softplus", "softsign": "Softsign", "tanh": "Tanh"}
        if name in plain:
            return str(self._add(plain[name], x))
        add, say = self._add, self._number
        made: dict[str, Callable[[], Any]] = {
            "affine": lambda: add("Add", add("Mul", x, say(a)), say(b)),
            "hardsigmoid": lambda: add("Clip", add("Add", add("Mul", x, say(a)), say(b)), say(0), say(1)),
            "scaledtanh": lambda: add("Mul", add("Tanh", add("Mul", x, say(b))), say(a)),
            "leakyrelu": lambda: add("Where", add("Less", x, say(0)), add("Mul", x, say(a)), x),
            "thresholdedrelu": lambda: add("Where", add("Greater", x, say(a)), x, add("Mul", x, say(0))),
            "elu": lambda: add("Where", add("Less", x, say(0)), add("Mul", self._less_one(x), say(a)), x),
        }
        return str(made[name]())

    def _less_one(self, x: str) -> str:
        """exp(x) − 1 of what is below 0."""
        below = self._add("Min", x, self._number(0))
        return str(self._add("Sub", self._add("Exp", below), self._number(1)))

    def _rnn(self) -> list[str]:
        return [self._bend(0, self._add("Add", "x__", self._add("MatMul", "h__", "turned_")))]

    def _gru(self) -> list[str]:
        add = self._add
        z, r, new = self._cut("x__", 3)
        of_z, of_r, of_new = self._cut("turned_", 3)
        z = self._bend(0, add("Add", z, add("MatMul", "h__", of_z)))
        r = self._bend(0, add("Add", r, add("MatMul", "h__", of_r)))
        if self._has_extra:
            inner = add("Mul", r, add("Add", add("MatMul", "h__", of_new), "beside_"))
        else:
            inner = add("MatMul", add("Mul", r, "h__"), of_new)
        fresh = self._bend(1, add("Add", new, inner))
        return [add("Add", add("Mul", add("Sub", self._number(1), z), fresh), add("Mul", z, self._own))]

    def _lstm(self) -> list[str]:
        add = self._add
        i, o, f, c = self._cut(add("Add", "x__", add("MatMul", "h__", "turned_")), 4)
        looks = self._cut("beside_", 3) if self._has_extra else []

        def look(gate: str, k: int, cell: str) -> str:
            return str(add("Add", gate, add("Mul", looks[k], cell))) if looks else gate

        i = self._bend(0, look(i, 0, "c__"))
        if self.attrs.get("input_forget"):
            f = add("Sub", self._number(1), i)
        else:
            f = self._bend(0, look(f, 2, "c__"))
        cell = add("Add", add("Mul", f, "c__"), add("Mul", i, self._bend(1, c)))
        out = self._bend(0, look(o, 1, cell))
        return [add("Mul", out, self._curve(2, cell)), cell]
