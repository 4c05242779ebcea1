"""Attention of com.microsoft, with masks and lengths that a run says: split by batch and heads, as ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import helper

from tapestry_exec import evaluate, run
from tapestry_plan import Mesh, UnsupportedOp, plan
from tapestry_plan.onnx import load_onnx
from tapestry_plan.onnx.nodes import ValueNeeded
from tests.onnx_cases import MICROSOFT, NodeCase, floats, ints
from tests.onnx_models import difference, ort

BATCH, HEADS, WIDTH = 3, 4, 16
i32 = np.int32


def same_on_devices(case: NodeCase, wanted: list[Any] | None = None, model: Any = None, bound: float = 1e-5) -> None:
    """The results of ONNX Runtime, on 2 devices as plans choose, and with the attention cut by batch or heads."""
    model = case.model if model is None else model
    wanted = ort(model, case.inputs) if wanted is None else wanted
    graph = load_onnx(model, opaque=False)
    (name,) = [node.name for node in graph.order() if node.op == "attention"]
    sizes = {axis.name: axis.size for axis in graph.signature(name).axes}
    ways: list[tuple[int, dict[str, Any]]] = [(2, {})]
    ways += [(k, {"fix": {name: {axis: k}}}) for axis, k in (("b", 3), ("h", 4)) if sizes[axis] >= k]
    for devices, how in ways:
        made = plan(graph, Mesh((devices,)), expand=False, **how)
        found = run(made, case.inputs)
        assert found.nbytes_moved == made.nbytes_moved
        for out, one in zip(filter(None, case.outputs), wanted, strict=True):
            assert found.outputs[out].dtype == one.dtype and difference(found.outputs[out], one) < bound, (out, how)
        again = run(made, case.inputs, backend="serial").outputs
        assert all(one.tobytes() == found.outputs[out].tobytes() for out, one in again.items())


# -- sequences of lengths that a run says -----------------------------------------------------------------------

ANGLES = np.arange(32)[:, None] * np.linspace(1, 0.1, WIDTH // 2)
TABLES = {"cos": np.cos(ANGLES).astype(np.float32), "sin": np.sin(ANGLES).astype(np.float32)}


def grouped(
    ends: list[int],
    total: int,
    length: int,
    past: int,
    packed: bool = False,
    known: tuple[str, ...] = (),
    bias: tuple[int, ...] = (),
    sinks: int = 0,
    **attrs: Any,
) -> NodeCase:
    """A node whose 4 heads of queries share 2 of keys; `known` are constants of the model."""
    batch, groups = len(ends), 2
    shapes = {"q": (batch, length, HEADS * WIDTH)}
    shapes |= {"k": (batch, length, groups * WIDTH), "v": (batch, length, groups * WIDTH)}
    if packed:
        shapes = {"q": (batch, length, (HEADS + 2 * groups) * WIDTH)}
    if past:
        shapes |= {"past": (batch, groups, past, WIDTH), "before": (batch, groups, past, WIDTH)}
    feeds: dict[str, Any] = {name: floats(*shape, seed=k) for k, (name, shape) in enumerate(shapes.items())}
    feeds |= {"ends": np.array(ends, i32), "all": np.array([total], i32)}
    if bias:
        feeds["bias"] = floats(*bias, seed=8)
    if sinks:
        feeds["sinks"] = floats(sinks, seed=9)
    tables = TABLES if attrs.get("do_rotary") else {}
    reads = tuple(
        name if name in feeds or name in tables else ""
        for name in ("q", "k", "v", "past", "before", "ends", "all", "cos", "sin", "", "bias", "sinks")
    )
    constants = tables | {name: feeds.pop(name) for name in known}
    attrs = {"num_heads": HEADS, "kv_num_heads": groups, **attrs}
    outputs = ("y", "keys", "values")
    return NodeCase("GroupQueryAttention", feeds, constants, attrs, outputs, reads=reads, domain=MICROSOFT)


@pytest.mark.heavy(2)
@pytest.mark.parametrize(
    "case",
    [
        grouped([5, 3, 0], 6, 1, 5, known=("all",)),
        grouped([5, 3, 1], 6, 1, 5, known=("all", "ends")),
        grouped([3, 1, 0], 4, 4, 0, known=("all",)),
        grouped([3, 1, 2], 4, 4, 0, packed=True, do_rotary=1),
        grouped([6], 8, 3, 5, known=("all",), do_rotary=1),
        grouped([6], 8, 3, 12, known=("all",), do_rotary=1, rotary_interleaved=1),
        grouped([0, 3, 7], 8, 1, 12, known=("all",), local_window_size=2, softcap=4.0, scale=0.3),
        grouped([2, 2, 1], 3, 3, 5, known=("all",)),
        grouped([2, 0, 1], 4, 1, 5, known=("all",), do_rotary=1),
    ],
    ids=["grows", "known", "begins", "packed", "one", "room", "window", "begins with room", "shorter"],
)
def test_lengths_of_sequences_are_read_in_the_run(case: NodeCase) -> None:
    same_on_devices(case)


@pytest.mark.heavy(2)
@pytest.mark.parametrize(
    ("case", "room"),
    [(grouped([5, 3, 0], 6, 1, 7), 7), (grouped([2, 1, 2], 3, 3, 7), 7), (grouped([7, 3, 5], 8, 1, 7, do_rotary=1), 8)],
    ids=["room", "begins", "grows"],
)
def test_so_is_the_total_length_where_the_model_declares_the_cache(case: NodeCase, room: int) -> None:
    model = case.model
    for value in model.graph.output[1:]:
        value.CopyFrom(helper.make_tensor_value_info(value.name, 1, [3, 2, room, WIDTH]))
    same_on_devices(case, model=model)


@pytest.mark.parametrize(
    "case",
    [
        grouped([3, 3], 4, 4, 0, known=("all", "ends"), smooth_softmax=1),
        grouped([3, 3], 4, 4, 0, known=("all", "ends"), sinks=4),
        grouped([5, 5], 6, 1, 5, known=("all", "ends"), bias=(2, 4, 1, 6)),
        grouped([5, 5], 6, 1, 5, known=("all", "ends"), bias=(1, 1, 1, 6), sinks=4, softcap=2.0),
        grouped([5, 3, 0], 6, 1, 5, known=("all",), bias=(3, 4, 1, 6), smooth_softmax=1),
        grouped([3, 3], 4, 4, 0, known=("all",), sinks=4, local_window_size=2, packed=True, do_rotary=1),
        grouped([6], 8, 3, 12, known=("all",), bias=(1, 4, 3, 8), sinks=4),
        *(grouped([3, 3], 4, 4, 0, known=("all", "ends"), sinks=4, smooth_softmax=k) for k in (-1, 0, 1)),
    ],
    ids=["smooth", "sinks", "bias", "softcap", "lengths", "window", "room", "said", "not smooth", "both"],
)
def test_a_bias_and_a_key_that_all_see(case: NodeCase) -> None:
    """Scores that are added to, and a softmax whose numbers add up to less than 1."""
    same_on_devices(case)


def test_a_bias_is_of_all_keys() -> None:
    case = grouped([5, 5], 6, 1, 5, known=("all", "ends"), bias=(2, 4, 1, 5))
    with pytest.raises(ValueError, match=r"'bias' has shape \(2, 4, 1, 5\); .* of \(2, 4, 1, 6\) is needed"):
        load_onnx(case.model, opaque=False)


def test_else_the_total_length_must_be_known() -> None:
    model = grouped([5, 3], 6, 1, 7).model
    with pytest.raises(ValueNeeded, match="total_sequence_length"):
        load_onnx(model, opaque=False)


def test_several_new_positions_of_several_sequences_are_those_of_each() -> None:
    """ONNX Runtime takes them of one sequence at a time."""
    case = grouped([7, 5, 4], 8, 3, 5, known=("all",), do_rotary=1)
    each = []
    for b in range(3):
        feeds = {name: one[b : b + 1] for name, one in case.inputs.items()}
        each.append(ort(replace(case, inputs=feeds).model, feeds))
    same_on_devices(case, [np.concatenate(one) for one in zip(*each, strict=True)])


@pytest.mark.parametrize(
    ("case", "says"),
    [
        (grouped([5], 7, 1, 5, known=("all",)), "total_sequence_length is 7; with 5 positions of before and 1 new"),
        (grouped([5], 6, 1, 5, known=("all",), causal=0), "causal 0 is not supported"),
        (grouped([5], 6, 1, 5, known=("all",), qk_output=1), "qk_output 1 is not supported"),
    ],
)
def test_what_contradicts_itself_or_is_not_there_is_refused(case: NodeCase, says: str) -> None:
    with pytest.raises((ValueError, UnsupportedOp), match=says):
        load_onnx(case.model, opaque=False)


# -- masks of padding ---------------------------------------------------------------------------------------------


def masks(queries: int, keys: int) -> dict[str, Any]:
    """Ends of sequences; numbers for keys, of which those above 0 count; the same for each query."""
    ends = np.array([3, 1, keys], i32)
    rows = np.array([[1, 1, 0], [1, 0, 0], [0, 2, -1]], i32)
    return {
        "ends": ends,
        "keys": np.concatenate([rows, np.ones((3, keys - 3), i32)], axis=1),
        "queries": (ints(0, 1, 3, queries, keys) | (np.arange(keys) == 0)).astype(i32),
    }


@pytest.mark.parametrize("kind", ["ends", "longer", "keys", "queries"])
@pytest.mark.parametrize(("past", "causal"), [(0, 1), (2, 0), (2, 1)])
def test_keys_of_padding_are_masked(kind: str, past: int, causal: int) -> None:
    length, keys = 4, 4 + past
    shape = (BATCH, length, HEADS * 5)
    feeds: dict[str, Any] = {name: floats(*shape, seed=k) for k, name in enumerate("qkv")}
    if past:
        feeds |= {name: floats(BATCH, HEADS, past, 5, seed=k) for k, name in enumerate(("before", "older"), 5)}
    ends = masks(length, keys)["ends"]
    longer = np.concatenate([ends, np.zeros(2 * BATCH + 2, i32)])
    feeds["m"] = longer if kind == "longer" else masks(length, keys)[kind]
    reads = ("q", "k", "v", "", "m", "", *(("before", "older") if past else ()))
    outputs = ("y", "keys", "values") if past else ("y",)
    attrs = {"num_heads": HEADS, "unidirectional": causal, "mask_filter_value": -100.0}
    same_on_devices(NodeCase("MultiHeadAttention", feeds, {}, attrs, outputs, reads=reads, domain=MICROSOFT))


@pytest.mark.heavy(2)
@pytest.mark.parametrize("op", ["Attention", "QAttention"])
@pytest.mark.parametrize("kind", ["none", "ends", "both", "keys", "queries", "idle"])
@pytest.mark.parametrize(("past", "causal"), [(0, 0), (2, 1)])
def test_so_are_those_of_attention_with_its_product(op: str, kind: str, past: int, causal: int) -> None:
    length, keys, width = 4, 4 + past, 5
    wide = HEADS * width
    given = masks(length, keys)
    both = np.concatenate([given["ends"], np.array([1, 0, 2], i32)])
    mask = {"none": None, "both": both, "idle": np.zeros((BATCH, 1), i32), **given}[kind]
    feeds: dict[str, Any] = {} if mask is None else {"m": mask}
    if past:
        feeds["past"] = floats(2, BATCH, HEADS, past, width, seed=7)
    constants: dict[str, Any] = {"b": floats(3 * wide, seed=3)}
    if op == "Attention":
        feeds["x"], constants["w"] = floats(BATCH, length, 8), floats(8, 3 * wide, seed=2)
        reads = ("x", "w", "b", "m", "past")
    else:
        feeds["x"], constants["w"] = (
            ints(0, 255, BATCH, length, 8, dtype=np.uint8),
            ints(-90, 90, 8, 3 * wide, dtype=np.int8),
        )
        constants |= {"xs": np.array(0.02, np.float32), "ws": np.array(0.01, np.float32)}
        constants |= {"xz": np.array(120, np.uint8), "wz": np.array(3, np.int8)}
        reads = ("x", "w", "b", "xs", "ws", "m", "xz", "wz", "past")
    reads = tuple(name if name in feeds or name in constants else "" for name in reads)
    outputs = ("y", "present") if past else ("y",)
    attrs = {"num_heads": HEADS, "unidirectional": causal}
    same_on_devices(NodeCase(op, feeds, constants, attrs, outputs, reads=reads, domain=MICROSOFT), bound=3e-5)


def test_values_may_have_another_width_than_keys() -> None:
    feeds = {"x": floats(BATCH, 4, 8), "more": floats(BATCH, 1, 4, 4, seed=4)}
    constants = {"w": floats(8, 2 * 12 + 20, seed=2), "b": floats(44, seed=3)}
    attrs = {"num_heads": HEADS, "qkv_hidden_sizes": [12, 12, 20], "scale": 0.4}
    reads = ("x", "w", "b", "", "", "more")
    same_on_devices(NodeCase("Attention", feeds, constants, attrs, reads=reads, domain=MICROSOFT))


def test_packed_queries_keys_and_values_are_their_parts() -> None:
    """No processor of ONNX Runtime's takes them packed: the same node is run with the parts."""
    packed, pairs = floats(BATCH, 6, HEADS, 3, 5), floats(BATCH, 6, HEADS, 2, 5, seed=2)
    parts = {name: packed[:, :, :, n].reshape(BATCH, 6, -1) for n, name in enumerate("qkv")}
    attrs = {"num_heads": HEADS, "unidirectional": 1}
    apart = NodeCase("MultiHeadAttention", parts, {}, attrs, domain=MICROSOFT)
    whole = NodeCase("MultiHeadAttention", {"qkv": packed}, {}, attrs, domain=MICROSOFT)
    same_on_devices(whole, ort(apart.model, parts))
    queries = floats(BATCH, 4, HEADS * 5, seed=3)
    parts = {"q": queries, **{name: pairs[:, :, :, n].reshape(BATCH, 6, -1) for n, name in enumerate("kv")}}
    apart = NodeCase("MultiHeadAttention", parts, {}, {"num_heads": HEADS}, domain=MICROSOFT)
    whole = replace(apart, inputs={"q": queries, "kv": pairs})
    same_on_devices(whole, ort(apart.model, parts))
    with pytest.raises(ValueError, match=r"'q' has shape \(3, 4, 20\); without all of queries, keys and values"):
        load_onnx(replace(apart, inputs={"q": queries}).model, opaque=False)


def test_masks_of_other_shapes_are_refused() -> None:
    feeds = {"q": floats(2, 3, 8), "k": floats(2, 5, 8), "v": floats(2, 5, 8), "m": np.ones((2, 4), i32)}
    case = NodeCase("MultiHeadAttention", feeds, {}, {"num_heads": 2}, reads=("q", "k", "v", "", "m"), domain=MICROSOFT)
    with pytest.raises(UnsupportedOp, match=r"a mask of shape \(2, 4\) is not supported, only \(2,\), \(8,\)"):
        load_onnx(case.model, opaque=False)


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "says"),
    [
        ("GroupQueryAttention", {"q": (3, 16), "k": (2, 3, 8), "v": (2, 3, 8)}, {}, "operands have shapes"),
        ("GroupQueryAttention", {"q": (2, 3, 17)}, {}, "without keys and values the last extent is that of 4 .+ heads"),
        ("GroupQueryAttention", {"q": (2, 3, 16)}, {"num_heads": 0}, "num_heads is 0, kv_num_heads 2"),
        ("GroupQueryAttention", {"q": (2, 1, 32), "p": (2, 2), "r": (2, 2)}, {}, "'p' has shape .2, 2.; .batch, heads"),
        ("GroupQueryAttention", {"q": (2, 1, 32), "p": (2, 2, 5, 4)}, {}, "past_key and past_value have shapes"),
        ("Attention", {"x": (4, 8), "w": (8, 24)}, {}, r"the product has shape \(4, 24\)"),
        (
            "Attention",
            {"x": (1, 4, 8), "w": (8, 24), "": (), "p": (3, 4)},
            {},
            "'p' has shape .3, 4.; .2, batch, heads",
        ),
        ("MultiHeadAttention", {"q": (2, 3, 8), "": (), "v": (2, 3, 8)}, {}, "'v' has shape .2, 3, 8.; without all"),
        (
            "MultiHeadAttention",
            {"q": (2, 3, 8), "k": (2, 3, 8), "v": (2, 3, 8), "m": (2, 3)},
            {},
            "'m' is float32; int",
        ),
    ],
)
def test_operands_that_do_not_fit_are_told(op: str, shapes: dict[str, Any], attrs: dict[str, Any], says: str) -> None:
    feeds: dict[str, Any] = {name: floats(*shape) for name, shape in shapes.items() if name}
    attrs = {"num_heads": 4, **({"kv_num_heads": 2} if op[0] == "G" else {}), **attrs}
    names = {"G": ("q", "k", "v", "p", "r", "ends", "all"), "A": ("x", "w", "", "", "p"), "M": ("q", "k", "v", "", "m")}
    if op[0] == "G":
        feeds |= {"ends": np.zeros(2, i32), "all": np.ones(1, i32)}
    reads = tuple(name if name in feeds else "" for name in names[op[0]])
    with pytest.raises(ValueError, match=says):
        load_onnx(NodeCase(op, feeds, {}, attrs, reads=reads, domain=MICROSOFT).model, opaque=False)


def test_a_cache_that_begins_empty_is_none() -> None:
    feeds = {"q": floats(2, 3, 8), "k": floats(2, 3, 8, seed=2), "v": floats(2, 3, 8, seed=3)}
    case = NodeCase("MultiHeadAttention", feeds, {}, {"num_heads": 2}, ("y", "keys", "values"), domain=MICROSOFT)
    empty = {"p": np.zeros((2, 2, 0, 4), np.float32), "r": np.zeros((2, 2, 0, 4), np.float32)}
    model = replace(case, inputs=feeds | empty, reads=("q", "k", "v", "", "", "", "p", "r")).model
    found = evaluate(load_onnx(model, opaque=False), feeds)
    (wanted,) = ort(replace(case, outputs=("y",)).model, feeds)
    assert difference(found["y"], wanted) < 1e-5 and found["keys"].shape == (2, 2, 3, 4)
