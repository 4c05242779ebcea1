"""Models of older opsets: what operators meant then, as ONNX Runtime has it, alone, in branches and in functions."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import defs, helper
from onnx.reference import ReferenceEvaluator

from tapestry_exec import evaluate, run, run_stages
from tapestry_plan import Mesh, plan
from tapestry_plan.onnx import StagedModel, load_onnx
from tests.older_opsets import NEWEST, OLDEST, in_branches, in_function, models_of, schemas
from tests.onnx_cases import floats, i64
from tests.onnx_models import model_of, ort
from tests.plan.onnx.test_attributes import agree

Array = NDArray[Any]
make = helper.make_node

MOST = 40
"""Models that are tried of one operator in one opset."""

NOT_TRIED = {
    *("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),  # drawn
    *("If", "Loop", "Scan"),  # whose bodies are tried here and elsewhere
    *("ConcatFromSequence", "SequenceAt", "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert"),
    *("SequenceLength", "SequenceMap", "SplitToSequence", "Optional", "OptionalGetElement", "OptionalHasElement"),
    *("ImageDecoder", "RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit", "TfIdfVectorizer"),
}
"""Operators whose operands or results are not tensors of numbers, or are drawn."""

NOT_IN_RUNTIME = {("GlobalLpPool", 22), ("MaxRoiPool", 22), ("Mean", 6), ("Min", 6), ("RoiAlign", 22)}
"""Operators that ONNX Runtime 1.32 does not run as they are from an opset on."""


def pairs() -> Iterator[tuple[str, int]]:
    """Each operator with each of its schemas that a model of the opsets tried may have."""
    names = {schema.name for schema in defs.get_all_schemas_with_history() if schema.domain == ""}
    for op in sorted(names - NOT_TRIED):
        yield from ((op, version) for version, schema in schemas(op).items() if not schema.deprecated)


def results(model: Any, feeds: dict[str, Array]) -> list[Array]:
    """What a model gives: by a graph, or in stages where shapes follow from values."""
    try:
        graph = load_onnx(model)
    except ValueError as error:
        if "StagedModel" not in str(error):
            raise
        found = run_stages(StagedModel(model, feeds), {}, lambda graph: plan(graph, Mesh((1,)))).outputs
        return [np.asarray(found[value.name]) for value in model.graph.output]
    needed = {name: array for name, array in feeds.items() if name in graph.stored}
    return list(evaluate(graph, needed).values())


@pytest.mark.heavy(16)
@pytest.mark.parametrize("form", ["alone", "branches", "function"])
@pytest.mark.parametrize(("op", "version"), list(pairs()))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_operators_mean_what_they_did(op: str, version: int, form: str) -> None:
    found, opset, judged = list(models_of(op, version)), max(version, OLDEST), 0
    if form != "alone":  # where each node is tried as it is
        found = [one for one in found if "," not in one[0]]
    chosen = np.random.default_rng(zlib.crc32(op.encode())).permutation(len(found))[:MOST]
    for what, model, feeds in (found[k] for k in sorted(chosen)):
        try:
            wanted = [np.asarray(array) for array in ort(model, feeds)]
        except Exception:  # whatever the runtime raises for what it does not have
            continue
        judged += 1
        given = feeds
        if form == "branches":
            model, given = in_branches(model), feeds | {"which": np.array(True)}
        elif form == "function":
            model = in_function(model, NEWEST if opset != NEWEST else NEWEST - 1)
        try:
            made = results(model, given)
        except ValueError as error:
            assert "give one of them" in str(error), (
                what,
                error,
            )  # auto_pad beside pads, of which the runtime takes one
            continue
        except IndexError:  # numbers in another channel, which the runtime does not tell
            assert op == "MaxUnpool", what
            continue
        if op == "Dropout":  # the mask has a test of its own
            made, wanted = made[:1], wanted[:1]
        assert agree(made, wanted), (what, made, wanted)
    assert bool(judged) != ((op, version) in NOT_IN_RUNTIME)


# -- one by one ----------------------------------------------------------------------------------------------

NUMBERS = {"x": floats(2, 3, 4, 5)}


def wanted_of(model: Any, feeds: dict[str, Array]) -> list[Array]:
    return [np.asarray(array) for array in ort(model, feeds)]


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scales", [(2, 2), (1 / 3, 0.4), (2.5, 1.25), (1.3, 0.6)])
def test_factors_that_a_run_computes(mode: str, scales: tuple[float, float]) -> None:
    """An axis that shrinks has the cell above, as in ONNX's own case of opset 10: [1, 2, 3, 4] by 0.6 is [1, 3]."""
    model = model_of([make("Resize", ["x", "s"], ["y"], mode=mode)], {"x": (1, 2, 9, 10), "s": (4,)}, opset=10)
    feeds = {"x": floats(1, 2, 9, 10), "s": np.array([1, 1, *scales], np.float32)}
    assert agree(results(model, feeds), wanted_of(model, feeds))
    known = model_of([make("Resize", ["x", "s"], ["y"])], {"x": (1, 1, 1, 4)}, constants={"s": _last(0.6)}, opset=10)
    (found,) = results(known, {"x": np.arange(1, 5, dtype=np.float32).reshape(1, 1, 1, 4)})
    np.testing.assert_array_equal(found.ravel(), [1, 3])


def _last(scale: float) -> Array:
    return np.array([1, 1, 1, scale], np.float32)


def test_a_resize_that_changes_nothing_is_no_operator() -> None:
    for factors in ([1, 1, 2, 3], [1, 1, 1, 1]):
        node = make("Upsample", ["x", "s"], ["y"])
        model = model_of([node], {"x": (2, 3, 4, 5)}, constants={"s": np.array(factors, np.float32)}, opset=9)
        assert len(load_onnx(model).nodes) == (factors[-1] > 1)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("rounded", ["floor", "ceil", "round_prefer_ceil"])
def test_axes_that_stay_are_not_moved(mode: str, rounded: str) -> None:
    """By its formula tf_half_pixel_for_nn would move them by half a cell."""
    how = {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "mode": mode, "nearest_mode": rounded}
    scales = {"r": np.zeros(0, np.float32), "s": np.array([1, 1, 1.5, 0.6], np.float32)}
    shape = (1, 1, 4, 5) if mode == "cubic" else (2, 3, 4, 5)
    model = model_of([make("Resize", ["x", "r", "s"], ["y"], **how)], {"x": shape}, constants=scales, opset=11)
    assert agree(results(model, {"x": floats(*shape)}), wanted_of(model, {"x": floats(*shape)}))


@pytest.mark.parametrize("op", ["Hardmax", "Softmax", "LogSoftmax"])
@pytest.mark.parametrize("kind", ["Loop", "Scan"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_matrices_in_bodies(op: str, kind: str, axis: int) -> None:
    """ONNX's reference has Hardmax along the axis, in any opset."""
    info = helper.make_tensor_value_info
    inner = make(op, ["a"], ["b"], axis=axis)
    if kind == "Scan":
        ends = [info("a", 1, (3, 4, 5))], [info("b", 1, (3, 4, 5))]
        nodes = [make("Scan", ["x"], ["y"], num_scan_inputs=1, body=helper.make_graph([inner], "one", *ends))]
        model = model_of(nodes, {"x": (2, 3, 4, 5)}, opset=11)
    else:
        ins = [info("i", 7, ()), info("c", 9, ()), info("a", 1, (2, 3, 4, 5))]
        outs = [info("d", 9, ()), info("b", 1, (2, 3, 4, 5))]
        body = helper.make_graph([inner, make("Identity", ["c"], ["d"])], "one", ins, outs)
        nodes = [make("Loop", ["n", "", "x"], ["y"], body=body)]
        model = model_of(nodes, {"x": (2, 3, 4, 5)}, constants={"n": np.array(2)}, opset=11)
    assert agree(results(model, NUMBERS), wanted_of(model, NUMBERS))


@pytest.mark.parametrize(("opset", "dtype"), [(7, "float32"), (9, "float32"), (10, "bool"), (12, "bool")])
def test_masks_of_what_is_not_dropped(opset: int, dtype: str) -> None:
    """All ones, as opset 12 says and ONNX's reference has in each; ONNX Runtime has zeros before."""
    model = model_of([make("Dropout", ["x"], ["y", "mask"])], {"x": (2, 3, 4, 5)}, ["y", "mask"], opset=opset)
    model.graph.output[1].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    kept, mask = results(model, NUMBERS)
    np.testing.assert_array_equal(kept, NUMBERS["x"])
    assert mask.dtype == dtype == wanted_of(model, NUMBERS)[1].dtype and mask.all()


def test_slopes_of_channels() -> None:
    """ONNX Runtime has no PRelu of opset 6: the slope of a channel, by its text, or one for all."""
    x, slope = NUMBERS["x"], floats(3, seed=3)
    for own in (slope, slope[:1]):
        model = model_of([make("PRelu", ["x", "s"], ["y"])], {"x": x.shape}, constants={"s": own}, opset=6)
        (found,) = results(model, NUMBERS)
        np.testing.assert_allclose(found, np.where(x < 0, x * own.reshape(1, -1, 1, 1), x), rtol=1e-6)


def test_norms_of_cells_are_not_trained() -> None:
    names = ["g", "b", "m", "v"]
    constants = dict.fromkeys(names, np.ones((3, 4, 5), np.float32))
    node = make("BatchNormalization", ["x", *names], ["y", "mean", "var"], "it", spatial=0)
    model = model_of([node], {"x": (2, 3, 4, 5)}, constants=constants, opset=8)
    with pytest.raises(
        ValueError, match=r"node 'it' \(BatchNormalization\) with spatial = 0 is trained, by its further"
    ):
        load_onnx(model)


@pytest.mark.parametrize("shape", [(1, 1, 5, 5), (2, 3, 5, 5), (2, 3, 4, 7), (1, 2, 4, 4)])
@pytest.mark.parametrize("more", [0, 1])
def test_cells_go_back_to_where_they_were_pooled(shape: tuple[int, ...], more: int) -> None:
    """As in ONNX Runtime where output_shape is the pooled tensor's; it counts in output_shape, whatever was pooled."""
    out = (*shape[:2], *(n + more for n in shape[2:]))
    how = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [make("MaxPool", ["x"], ["p", "i"], **how), make("Identity", ["i"], ["j"])]
    nodes.append(make("MaxUnpool", ["p", "j", "o"], ["y"], **how))
    model = model_of(nodes, {"x": shape}, constants={"o": i64(*out)})
    feeds = {"x": floats(*shape)}
    (found,) = results(model, feeds)
    inside = found[tuple(map(slice, shape))]
    assert found.shape == out and (inside != 0).sum() == (found != 0).sum() == np.prod(shape[:2]) * (shape[2] // 2) * (
        shape[3] // 2
    )
    np.testing.assert_array_equal(inside[inside != 0], feeds["x"][inside != 0])
    if not more:
        assert agree([found], wanted_of(model, feeds))


def test_numbers_from_elsewhere_count_in_what_the_result_is_without_output_shape() -> None:
    """ONNX's own case, which ONNX Runtime has otherwise: 5 is cell (1, 1) of 4 × 4."""
    node = make("MaxUnpool", ["x", "i", "o"], ["y"], kernel_shape=[2, 2], strides=[2, 2])
    known = {"i": i64(5, 7, 13, 15).reshape(1, 1, 2, 2), "o": i64(1, 1, 5, 5)}
    model, feeds = model_of([node], {"x": (1, 1, 2, 2)}, constants=known), {"x": floats(1, 1, 2, 2)}
    (found,) = results(model, feeds)
    np.testing.assert_array_equal(found, ReferenceEvaluator(model).run(None, feeds)[0])
    assert found[0, 0, 1, 1] == feeds["x"][0, 0, 0, 0]


def test_shapes_that_the_converter_infers_are_not_the_model_s() -> None:
    """Of windows that begin in the padding at the end it counts one more than there are."""
    how = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1}
    model, feeds = (
        model_of([make("AveragePool", ["x"], ["y"], **how)], {"x": (1, 2, 7, 6)}, opset=10),
        {"x": floats(1, 2, 7, 6)},
    )
    assert agree(results(model, feeds), wanted_of(model, feeds))


# -- functions -----------------------------------------------------------------------------------------------


def functions(*written: tuple[str, int, list[Any]]) -> list[Any]:
    opsets = [helper.make_opsetid("own", 1)]
    return [
        helper.make_function("own", name, ["a"], ["b"], nodes, [helper.make_opsetid("", opset), *opsets])
        for name, opset, nodes in written
    ]


@pytest.mark.parametrize("opset", [11, 13, 21])
@pytest.mark.parametrize("order", [(11, 21), (21, 11), (13, 18), (21, 9)])
def test_functions_of_other_opsets_that_call_each_other(opset: int, order: tuple[int, int]) -> None:
    """Each operator means what it does in its own function's opset: a softmax along axis 1, or of a matrix."""
    outer, inner = order
    soft = make("Softmax", ["m"], ["b"], axis=1)
    calls = [make("G", ["a"], ["m"], domain="own"), soft]
    made = functions(("F", outer, calls), ("G", inner, [make("Softmax", ["a"], ["b"], axis=1)]))
    nodes = [
        make("F", ["x"], ["t"], domain="own"),
        make("Softmax", ["t"], ["u"], axis=1),
        make("F", ["u"], ["y"], domain="own"),
    ]
    model = model_of(nodes, {"x": (2, 3, 4)}, opset=opset)
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.functions.extend(made)
    wanted = x = floats(2, 3, 4)
    for version in (inner, outer, opset, inner, outer):
        flat = wanted.reshape(2, -1, 1) if version < 13 else wanted
        wanted = (np.exp(flat) / np.exp(flat).sum(1, keepdims=True)).reshape(2, 3, 4)
    before = model.SerializeToString()
    np.testing.assert_allclose(results(model, {"x": x})[0], wanted, rtol=1e-5)
    assert model.SerializeToString() == before


def test_a_function_of_an_opset_that_nobody_knows() -> None:
    model = model_of([make("F", ["x"], ["y"], domain="own")], {"x": (2,)})
    model.opset_import.append(helper.make_opsetid("own", 1))
    model.functions.extend(functions(("F", 9999, [make("Relu", ["a"], ["b"])])))
    with pytest.raises(
        ValueError, match="the local function own::F is written for opset 9999; the newest supported is"
    ):
        load_onnx(model)


@pytest.mark.parametrize("opset", [7, 12])
@pytest.mark.parametrize("op", ["LayerNormalization", "SimplifiedLayerNormalization"])
def test_norms_that_onnx_runtime_writes_into_any_opset(op: str, opset: int) -> None:
    """Which ONNX has not there: its converter knows neither, nor what they are beside a Softmax of then."""
    biases = ["b"] if op == "LayerNormalization" else []
    nodes = [
        helper.make_node(op, ["x", "s", *biases], ["n"], axis=-1, epsilon=1e-3),
        helper.make_node("Softmax", ["n"], ["y"], axis=1),
    ]
    constants = {"s": floats(4, seed=2), **({"b": floats(4, seed=3)} if biases else {})}
    model = model_of(nodes, {"x": (2, 3, 4)}, constants=constants, opset=opset)
    x = floats(2, 3, 4)
    graph = load_onnx(model, opaque=False)
    found = run(plan(graph, Mesh(3)), {"x": x}).outputs["y"]
    np.testing.assert_allclose(found, ort(model, {"x": x})[0], rtol=1e-5)
