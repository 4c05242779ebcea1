"""Axes whose names are formulas of symbols, as exporters of decoders with a cache write them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tapestry_exec import run, run_stages
from tapestry_plan import Graph, Mesh, ShardPlan, load_onnx, plan
from tapestry_plan.onnx import StagedModel
from tapestry_plan.onnx.symbols import find_derived
from tapestry_plan.symbolic import crossovers
from tapestry_sets.limits import read_formula
from tests.onnx_models import ort
from tests.open_models import MASKED, feed_decoder, open_decoder

BATCH, PAST, NOW = "batch_size", "past_sequence_length", "sequence_length"
SIZES = {BATCH: 2, NOW: 3, PAST: 5}
CUT: dict[str, Any] = {
    "fix": {"products": {"n": 2}, "shares": {"i1": 2}},
    "fuse": False,
    "expand": False,
    "space": "mesh",
}


def decoder(**sizes: int) -> Graph:
    return load_onnx(open_decoder(), shapes={**SIZES, **sizes})


def relus(*axes: str, output: str | None = None) -> Any:
    """A Relu of a vector for each axis, called by its place."""
    names = [f"x{k}" for k in range(len(axes))]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [a]) for name, a in zip(names, axes, strict=True)]
    outputs = [helper.make_tensor_value_info(f"y{name}", TensorProto.FLOAT, [output]) for name in names]
    nodes = [helper.make_node("Relu", [name], [f"y{name}"]) for name in names]
    graph = helper.make_graph(nodes, "relus", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def zeros(shape: tuple[int, ...]) -> Any:
    return np.zeros(shape, np.float32)


def extents_of(graph: Graph) -> list[int]:
    return [one.shape[0] for one in graph.stored.values() if one.kind == "input"]


def test_a_mask_over_old_and_new_tokens_follows_from_both() -> None:
    g = decoder()
    assert g.sizes == SIZES and g.stored["attention_mask"].shape == (2, 8)
    assert g.bind({PAST: 7}).stored["attention_mask"].shape == (2, 10)
    for shapes in (
        {**SIZES, MASKED: 8},
        {BATCH: 2, NOW: 3, MASKED: 8},  # which leaves one size for the cache
        {"x": (2, 3, 8), "attention_mask": (2, 8)},
    ):
        again = load_onnx(open_decoder(), shapes=shapes)
        assert again.sizes == SIZES and again.bind({PAST: 6, NOW: 1}).stored["attention_mask"].shape == (2, 7)
    assert g.bind({PAST: 6, MASKED: 9}).sizes[PAST] == 6


@pytest.mark.parametrize(("batch", "past", "now"), [(2, 5, 3), (3, 7, 1), (4, 2, 4), (2, 4, 6)])
def test_a_bound_decoder_runs_as_onnx_runtime_does(batch: int, past: int, now: int) -> None:
    p = plan(decoder(), Mesh(2), **CUT)
    bound = p.bind({BATCH: batch, PAST: past, NOW: now})
    feeds = feed_decoder(batch, past, now)
    found = run(bound, feeds, backend="serial")
    assert found.nbytes_moved == bound.nbytes_moved > 0
    names = [*bound.graph.outputs]
    for name, wanted in zip(names, ort(open_decoder(), feeds, names), strict=True):
        assert found.outputs[name].shape == wanted.shape
        np.testing.assert_allclose(found.outputs[name], wanted, rtol=0, atol=1e-5 * float(np.abs(wanted).max()))


def test_an_empty_cache_is_a_size_too() -> None:
    feeds = feed_decoder(1, 0, 4)
    found = run(plan(load_onnx(open_decoder(), feeds=feeds), Mesh(2)), feeds, backend="serial")
    (wanted,) = ort(open_decoder(), feeds, ["y"])
    np.testing.assert_allclose(found.outputs["y"], wanted, rtol=0, atol=1e-5 * float(np.abs(wanted).max()))


def test_binding_is_reading_at_these_sizes() -> None:
    p = plan(decoder(), Mesh(2), **CUT)
    for past in range(1, 11):
        sizes = {BATCH: 2 + past % 3, PAST: past, NOW: 2 + past % 4}
        bound, read = p.bind(sizes), load_onnx(open_decoder(), shapes=sizes)
        assert bound.graph.to_json() == read.to_json()
        assert bound == p.bind(read) and bound.transfers() == p.bind(read).transfers()


def test_polynomials_in_the_symbol_below_are_plans_at_its_sizes() -> None:
    def planned(past: int) -> ShardPlan:
        g = load_onnx(open_decoder(), shapes={**SIZES, PAST: past}, outputs=["shares"])
        return plan(g, Mesh(2), **CUT)

    found = planned(5).symbolic_transfers(PAST)
    assert found.sizes == {BATCH: 2, NOW: 3} and found.nbytes.at(1000) > found.nbytes.at(10)
    for past in range(found.least, found.least + 20):
        assert found.nbytes.at(past) == planned(past).nbytes_moved


def test_crossovers_are_in_the_symbol_below() -> None:
    plans = [plan(decoder(), Mesh(2), **CUT), plan(decoder(), Mesh(2))]
    found = crossovers(plans, PAST, (4, 7), search=False)
    assert found.symbol == PAST
    with pytest.raises(ValueError, match=r"is not a symbol; known symbols: 'batch_size', 'past_sequence_length', 'seq"):
        crossovers(plans, MASKED, (4, 7), search=False)


# -- formulas ----------------------------------------------------------------------------------------------


def test_sizes_of_dynamo() -> None:
    axes = ("s0", "s1", "2*s0", "s0 - 1", "s0 + s1", "(s0 + 1)*2", "s0//2", "s1 - s0//2*2 + 7")
    for s0 in range(1, 8):
        for s1 in range(5):
            wanted = [eval(text, {"s0": s0, "s1": s1}) for text in axes]
            g = load_onnx(relus(*axes), shapes={"s0": s0, "s1": s1})
            assert extents_of(g) == [n for n in wanted if n] and g.sizes == {"s0": s0, "s1": s1}
            named = {text: n for text, n in zip(axes, wanted, strict=True) if text not in ("s0", "s1", "s0//2")}
            assert load_onnx(relus(*axes), shapes=named).sizes == g.sizes  # read backwards


def test_a_size_that_a_quotient_leaves_open_is_asked_for() -> None:
    with pytest.raises(ValueError, match=r"dynamic on axis 0 \(s0\); .*or --shape s0=…$"):
        load_onnx(relus("s0", "s0//2"), shapes={"s0//2": 2})
    assert extents_of(load_onnx(relus("s0", "s0//2"), shapes={"s0//2": 2, "s0": 5})) == [5, 2]


@pytest.mark.parametrize("name", ["unk__12", "batch size", "a.b", "N-gram", "a/2", "2a", "f(a)", "a**2", "a + ", "-"])
def test_other_names_stay_symbols(name: str) -> None:
    assert not find_derived([name, "a"])
    if name != "-":
        assert load_onnx(relus(name, "a"), shapes={name: 3, "a": 4}).bind({name: 5}).sizes == {name: 5, "a": 4}


def test_names_of_formulas_alone_and_words_with_hyphens() -> None:
    assert extents_of(load_onnx(relus("2*s0", "s0 + 1"), shapes={"s0": 4})) == [8, 5]
    assert extents_of(load_onnx(relus("2*s0", output="s0"), shapes={"s0": 4})) == [8]
    assert extents_of(load_onnx(relus("2*s0"), shapes={"2*s0": 5})) == [5]  # nobody else knows s0
    assert extents_of(load_onnx(relus("row-1", "row-2"), shapes={"row-1": 5, "row-2": 9})) == [5, 9]
    assert extents_of(load_onnx(relus("n", "n-1"), shapes={"n": 5})) == [5, 4]


def test_names_that_would_keep_python_busy() -> None:
    for name in ("+".join(["n"] * 5000), "(" * 5000 + "n" + ")" * 5000, "-" * 3000 + "n", "n" * 10**5 + "!"):
        assert load_onnx(relus("n", name), shapes={"n": 2, name: 10000} if "+" in name else {"n": 2, name: 2}).sizes


@pytest.mark.parametrize(
    ("axes", "shapes", "says"),
    [
        (
            ("a", "b", "a + b"),
            {"a": 5, "b": 3, "a + b": 9},
            r"the symbol 'a \+ b' is 9 by shapes\['a \+ b'\] = 9 and 8 by its formula with 'a' = 5 "
            r"\(by shapes\['a'\] = 5\) and 'b' = 3 \(by shapes\['b'\] = 3\)",
        ),
        (("a", "b", "a + b"), {"a": 5, "b": 3, "x2": [9]}, r"'a \+ b' is 8 by its formula .*and 9 by shapes\['x2'\]"),
        (("a", "a - 4"), {"a": 3}, r"axis 'a - 4' would be -1 with 'a' = 3 \(by shapes\['a'\] = 3\); give sizes at"),
        (("a", "2*a"), {"2*a": 7}, r"axis '2\*a' is 7 by shapes\['2\*a'\] = 7, which it is at no size of 'a'; give"),
        (("a", "a + 2"), {"a + 2": 1}, r"axis 'a \+ 2' is 1 by .*which it is at no size of 'a'; give"),
        (("a", "b", "a//b"), {"a": 3, "b": 0}, r"axis 'a//b' is divided by 0 with 'a' = 3 .* and 'b' = 0"),
        (
            ("a b", "c", "d", "c + d"),
            {"c": 1, "d": 2},
            r"with shapes=\{'a b': …\} or --shape 'a b'=…$",
        ),
        (
            ("c + d", "d", "c"),
            {},
            r"\(c \+ d\); fix it .*, or with shapes=\{'c': …, 'd': …\} or --shape c=… --shape d=…$",
        ),
    ],
)
def test_sizes_that_do_not_fit_a_formula(axes: tuple[str, ...], shapes: Any, says: str) -> None:
    with pytest.raises(ValueError, match=rf"load_onnx: the model: .*{says}"):
        load_onnx(relus(*axes), shapes=shapes)


def test_a_plan_is_bound_to_no_size_below_none() -> None:
    p = plan(load_onnx(relus("a", "a - 4"), shapes={"a": 8}), Mesh(2))
    assert extents_of(p.bind(a=6).graph) == [6, 2]
    with pytest.raises(ValueError, match=r"load_onnx: the model: the axis 'a - 4' would be -1 with 'a' = 3"):
        p.bind(a=3)
    with pytest.raises(ValueError, match=r"'a - 4' is 3 by .* and 4 by its formula with 'a' = 8"):
        p.bind({"a - 4": 3})


def test_errors_of_operators_say_at_which_sizes() -> None:
    """As where the mask has a name of its own, which nothing ties to the lengths."""
    g = load_onnx(open_decoder("mask_length"), shapes={**SIZES, "mask_length": 8})
    says = r"at batch_size=2, mask_length=8, past_sequence_length=7, sequence_length=3: node 'scores'.* not broadcast"
    for bind in (g.bind, plan(g, Mesh(2)).bind):
        with pytest.raises(ValueError, match=says):
            bind({PAST: 7})
    with pytest.raises(ValueError, match=rf"StagedModel: the model: {says}"):
        StagedModel(open_decoder("mask_length"), shapes={**SIZES, "mask_length": 8, PAST: 7})


def write_formula(rng: random.Random, depth: int) -> str:
    if not depth or rng.random() < 0.2:
        return rng.choice(["a", "b", "c", str(rng.randrange(5))])
    one, two = (write_formula(rng, depth - 1) for _ in range(2))
    return rng.choice(
        [f"{one} + {two}", f"{one}-{two}", f"({one})*({two})", f"({one})//{two}", f"-({one})", f" {one} "]
    )


@pytest.mark.parametrize("seed", range(20))
def test_formulas_are_what_python_computes(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(30):
        text, sizes = write_formula(rng, 4), {name: rng.randrange(6) for name in "abc"}
        formula = read_formula(text)
        assert formula is not None and set(formula.names) == set(text) & {*"abc"}
        try:
            wanted = eval(text.strip(), dict(sizes))
            assert formula.compute(sizes) == wanted, text
            line = formula.straighten("a", {"b": sizes["b"], "c": sizes["c"]})
            assert line is None or line[0] * sizes["a"] + line[1] == wanted, text
        except ZeroDivisionError:
            with pytest.raises(ZeroDivisionError):
                formula.compute(sizes)


# -- sizes from arrays -------------------------------------------------------------------------------------


def test_arrays_say_open_sizes() -> None:
    feeds = feed_decoder(2, 5, 3)
    for names in (feeds.keys(), ("x", "past_key"), ("x", "attention_mask")):
        given = {name: feeds[name] for name in names}
        g = load_onnx(open_decoder(), feeds=given)
        assert g.sizes == SIZES and g.bind({PAST: 1}).stored["attention_mask"].shape == (2, 4)
        staged = StagedModel(open_decoder(), given)
        assert staged.stage is not None and staged.stage.graph is not None
        assert staged.stage.graph.stored["attention_mask"].shape == (2, 8)
    found = run_stages(StagedModel(open_decoder(), feeds), {}, lambda graph: plan(graph, Mesh(2)))
    (wanted,) = ort(open_decoder(), feeds, ["y"])
    np.testing.assert_allclose(found.outputs["y"], wanted, rtol=0, atol=1e-5 * float(np.abs(wanted).max()))


@pytest.mark.parametrize(
    ("feeds", "shapes", "says"),
    [
        (
            {"x": zeros((2, 3, 8)), "past_key": zeros((3, 2, 5, 4))},
            {},
            r"'batch_size' is 2 by feeds\['x'\] of shape \(2, 3, 8\) on axis 0 and 3 by feeds\['past_key'\] of shape "
            r"\(3, 2, 5, 4\) on axis 0; it stands for one size",
        ),
        (
            {"x": zeros((2, 3, 8)), "attention_mask": np.zeros((2, 9), np.int64)},
            {PAST: 5},
            r"th' is 8 by its formula with .* and 9 by feeds\['attention_mask'\] of shape \(2, 9\) on axis 1",
        ),
        ({"x": zeros((2, 3, 8))}, {NOW: 4}, r"'sequence_length' is 4 by shapes\['sequence_length'\] = 4 and 3 by"),
        ({"x": zeros((2, 3, 8))}, {"x": (2, 4, 8)}, r"feeds\['x'\] of shape \(2, 3, 8\) is given, and \(2, 4, 8\) as"),
        ({"x": zeros((2, 3, 9))}, {}, r"says 9 on axis 2, but the model fixes it to 8; shape \(.*, 8\) is needed"),
        ({"x": zeros((2, 3))}, {}, r"feeds\['x'\] of shape \(2, 3\) has rank 2, the input has rank 3"),
        ({"q": zeros((3,))}, {}, r"feeds names 'q', and the model has no input 'q'; known inputs: 'x'"),
    ],
)
def test_arrays_that_do_not_fit(feeds: Any, shapes: Any, says: str) -> None:
    for read in (load_onnx, StagedModel):
        with pytest.raises(ValueError, match=says):
            read(open_decoder(), feeds=feeds, shapes=shapes)


def test_an_axis_whose_name_has_a_line_break_is_told_in_one_line() -> None:
    value = helper.make_tensor_value_info("x", 1, ["a\nb", 2])
    made = helper.make_tensor_value_info("y", 1, ["a\nb", 2])
    model = helper.make_model(helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [value], [made]))
    with pytest.raises(ValueError, match="is dynamic on axis 0") as error:
        load_onnx(model)
    assert r"shape (a\nb, 2) is dynamic on axis 0 (a\nb); fix it" in str(error.value)
    assert len(str(error.value).splitlines()) == 1
