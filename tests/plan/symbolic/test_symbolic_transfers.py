"""Bytes as polynomials: at many sizes they are those that the steps of the plan that is bound move, copy by copy."""

from __future__ import annotations

import random
from collections import Counter
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tapestry_plan import Device, Mesh, Placed, ShardPlan, SymbolicTransfers, load_onnx, plan
from tapestry_plan.symbolic import Polynomials
from tapestry_plan.symbolic.affine import Samples
from tapestry_plan.symbolic.polynomials import substitute, write
from tapestry_sets.interop import FinerClasses, NonAffineSize, count_polynomial
from tapestry_sets.solvers import isl
from tests.open_models import open_batch
from tests.plan.symbolic.test_binding import SIZES, WAYS, attention


def routes_of(p: ShardPlan) -> Counter[tuple[Any, ...]]:
    """Bytes of the copies of a plan's steps."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row in p.transfers():
        found[row.tensor, row.producer, row.consumer, row.source, row.target, row.part] += row.nbytes
    return found


def check(p: ShardPlan, found: SymbolicTransfers, sizes: range | list[int]) -> int:
    """Each row, and no other one, is what the steps move."""
    without = {one.tensor for one in found.refused}
    looked = 0
    for size in sizes:
        if size < found.least or size % len(found.nbytes.classes) not in found.nbytes.remainders:
            continue
        moved = routes_of(p.bind({found.symbol: size}))
        moved = Counter({route: n for route, n in moved.items() if route[0] not in without})
        said = Counter(
            {
                (row.tensor, row.producer, row.consumer, row.source, row.target, row.part): row.nbytes.at(size)
                for row in found
            }
        )
        assert +said == moved, size
        assert found.nbytes.at(size) == moved.total()
        looked += 1
    return looked


@pytest.mark.heavy(4)
@pytest.mark.parametrize("symbol", ["batch", "seq"])
@pytest.mark.parametrize("way", [way for way in WAYS if way != "unlike devices"])
def test_every_transfer_of_attention(way: str, symbol: str) -> None:
    mesh, options = WAYS[way]
    p = plan(attention(), mesh, **options)
    found = p.symbolic_transfers(symbol)
    assert not found.refused and found.sizes == {name: n for name, n in SIZES.items() if name != symbol}
    assert check(p, found, range(found.least, found.least + 7)) == 7
    if way == "columns of scores":
        assert found.nbytes.degree == (2 if symbol == "seq" else 1)


@pytest.mark.heavy(2)
def test_fifty_sizes_of_a_small_plan() -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("x", "NM"), ("y", "MN")))
    nodes = [
        helper.make_node("Exp", ["x"], ["a"], "rows"),
        helper.make_node("Transpose", ["a"], ["t"]),
        helper.make_node("Exp", ["t"], ["y"], "columns"),
    ]
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y]))
    fix = {"rows": {"i0": 3}, "columns": {"i0": 3}}
    p = plan(load_onnx(model, shapes={"N": 6, "M": 7}), Mesh(3), fix=fix)
    for symbol in "NM":
        found = p.symbolic_transfers(symbol, confirm=range(3, 53))
        assert set(found.confirmed) == set(range(3, 53))
        assert check(p, found, range(3, 53)) == 50


@pytest.mark.heavy(2)
@pytest.mark.parametrize(("name", "batch", "devices"), [("bert", 2, 4), ("gpt2", 2, 4)])
def test_every_transfer_of_a_transformer_has_its_polynomial(
    name: str, batch: int, devices: int, request: pytest.FixtureRequest
) -> None:
    p = plan(load_onnx(open_batch(name), shapes={"batch": batch}), Mesh(devices))
    found = p.symbolic_transfers("batch")
    assert not found.refused and routes_of(p).keys() <= {
        (row.tensor, row.producer, row.consumer, row.source, row.target, row.part) for row in found
    }
    assert len(found) >= 20 and all(row.nbytes.degree <= 1 for row in found)
    sizes = range(2, 52) if request.config.getoption("--all") else [2, 3, 9]
    assert check(p, found, sizes) == len(sizes)


@cache
def convolutions() -> Any:
    """Two of them over rows that are left open: with a halo, and behind a transposition with none."""
    rng = np.random.default_rng(0)
    w = numpy_helper.from_array(rng.standard_normal((4, 4, 3, 3)).astype(np.float32), "w")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, "H", 6])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 6, "H"])
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["c", "w"], ["d"], "second", pads=[2, 2, 2, 2], dilations=[2, 2]),
        helper.make_node("Transpose", ["d"], ["t"], perm=[0, 1, 3, 2]),
        helper.make_node("Exp", ["t"], ["y"], "turned"),
    ]
    return helper.make_model(helper.make_graph(nodes, "g", [x], [y], [w]))


def test_halos_are_the_same_at_any_size() -> None:
    fix = {"first": {"h": 4}, "second": {"h": 4}, "turned": {"i2": 4}}
    p = plan(load_onnx(convolutions(), shapes={"H": 12}), Mesh(4), fix=fix, fuse=False, expand=False)
    found = p.symbolic_transfers()
    halo = [row for row in found if row.consumer == "second"]
    assert len(halo) == 6 and {str(row.nbytes) for row in halo} == {"192"}  # 2 rows of 6 cells, 4 channels, 4 bytes
    assert found.nbytes.least == 8  # from which on each device reads its neighbors' rows alone
    assert check(p, found, range(8, 20)) == 12


def random_plan(rng: random.Random) -> ShardPlan:
    """A plan of attention with some operators sharded at random."""
    devices = rng.choice([2, 3, 4, 6])
    g = attention(batch=rng.randint(2, 4), seq=rng.randint(6, 9))
    fix = {}
    for name in rng.sample(["q", "k", "scores", "shares", "mixed", "y"], rng.randint(2, 4)):
        axes = [axis for axis in g.signature(name).axes if axis.may_have(devices)]
        if axes:
            fix[name] = {rng.choice(axes).name: devices}
    more: dict[str, Any] = rng.choice([{}, {"placement": "single"}, {"layout": {"y": {1: devices}}}, {"fan_in": 2}])
    return plan(g, Mesh(devices), fix=fix, fuse=False, expand=False, **more)


@pytest.mark.heavy(2)
def test_random_plans(request: pytest.FixtureRequest) -> None:
    rng = random.Random(7)
    for _ in range(60 if request.config.getoption("--all") else 4):
        p = random_plan(rng)
        found = p.symbolic_transfers(rng.choice(["batch", "seq"]))
        assert not found.refused
        assert check(p, found, [found.least + k for k in rng.sample(range(14), 4)])


def test_what_cannot_be_said_is_told() -> None:
    """Parts in proportion to what devices do are no polynomials; nor are tensors placed in boxes."""
    mesh = Mesh(2, device=[Device(1e12, 1e11), Device(3e12, 3e11)])
    p = plan(attention(batch=1, seq=400), mesh)
    found = p.symbolic_transfers("seq")
    assert not found.rows or found.refused
    corners = [(slice(0, 1), slice(0, 3)), (slice(1, 2), slice(3, 6))]
    others = [(slice(0, 1), slice(3, 6)), (slice(1, 2), slice(0, 3))]
    p = plan(attention(), Mesh(2), layout={"x": Placed({0: corners, 1: others})})
    assert routes_of(p)
    told = [one for one in p.symbolic_transfers("batch").refused if one.tensor == "x"]
    assert told and "placed in boxes by device" in told[0].why


def test_a_stride_over_an_open_axis_is_refused() -> None:
    model = onnx.ModelProto()
    model.CopyFrom(convolutions())
    model.graph.node[0].attribute.append(helper.make_attribute("strides", [2, 2]))
    model.graph.output[0].type.tensor_type.ClearField("shape")
    p = plan(load_onnx(model, shapes={"H": 16}), Mesh(2), fix={"first": {"h": 2}}, fuse=False, expand=False)
    with pytest.raises(ValueError, match="is not affine in the size"):
        p.symbolic_transfers("H")
    assert p.bind(H=18).nbytes_moved > 0


def slices(start: int, end: int, steps: int = 1) -> Any:
    """Rows from one to another of a tensor with N of them, read transposed."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, "M"])
    ends = {"starts": [start], "ends": [end], "axes": [0], "steps": [steps]}
    given = [numpy_helper.from_array(np.array(values, np.int64), name) for name, values in ends.items()]
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], "rows"),
        helper.make_node("Slice", ["a", *ends], ["b"]),
        helper.make_node("Transpose", ["b"], ["t"]),
        helper.make_node("Exp", ["t"], ["y"], "columns"),
    ]
    return helper.make_model(helper.make_graph(nodes, "g", [x], [y], given))


@pytest.mark.parametrize(("start", "end"), [(1, 30), (0, 23), (2, 500)])
def test_polynomials_end_where_a_slice_does(start: int, end: int) -> None:
    """A slice is as long as its tensor allows, up to its own length; both ways from the plan's size."""
    for own in (8, end // 2 + 4, 4 * end):
        g = load_onnx(slices(start, end), shapes={"N": own})
        p = plan(g, Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}})
        found = p.symbolic_transfers()
        assert own in found.read and (found.most == end) == (own <= end) == bool(found.why)
        if own <= end:
            assert f"<= N <= {end}" in str(found) and f"at N={end + 1} the shape of" in str(found)
            assert check(p, found, sorted({found.least, own, end - 1, end})) >= 3
            for size in (end + 1, 10**6):
                with pytest.raises(ValueError, match=f"N={size} is above {end}, up to which"):
                    found.nbytes.at(size)
            with pytest.raises(ValueError, match="is above"):
                p.symbolic_transfers(confirm=[end + 1])
        else:
            assert found.least >= end and check(p, found, [found.least, found.least + 1, own, 10_000]) == 4


def test_a_model_that_is_affine_far_away_has_no_end() -> None:
    p = plan(attention(), Mesh(2))
    found = p.symbolic_transfers("seq")
    assert found.most is None and found.nbytes.most is None and found.why == ""
    assert found.read[-1] >= 4096 * SIZES["seq"] and "N ends" not in str(found)


def test_what_a_bound_plan_contradicts_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As between sizes that were read: here none far away is, so that the slice's end is not seen."""
    p = plan(load_onnx(slices(1, 30), shapes={"N": 8}), Mesh(2), fix={"rows": {"i0": 2}, "columns": {"i0": 2}})
    monkeypatch.setattr("tapestry_plan.symbolic.tuning.FAR", ())
    assert p.symbolic_transfers(confirm=[30]).confirmed == (8, 30)
    with pytest.raises(NonAffineSize, match=r"at N=40 the model is not affine in the size: of a for .* says \d+ bytes"):
        p.symbolic_transfers(confirm=[30, 40])


def test_wrong_symbols() -> None:
    p = plan(attention(), Mesh(2))
    for symbol, said in ((None, "several symbols; name one: 'batch', 'seq'"), ("sek", "'sek' is not a symbol; known")):
        with pytest.raises(ValueError, match=f"symbolic_transfers: .*{said}"):
            p.symbolic_transfers(symbol)
    with pytest.raises(ValueError, match="whose steps somebody wrote"):
        p.with_steps(steps=p.steps[1:]).symbolic_transfers("seq")
    with pytest.raises(ValueError, match="not read from a model with open axes"):
        plan(load_onnx(fixed()), Mesh(1)).symbolic_transfers()
    with pytest.raises(ValueError, match="batch=1 is below 2"):
        p.symbolic_transfers("batch", confirm=[1])


def fixed() -> Any:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    return helper.make_model(helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", [x], [y]))


def test_tables_and_documents() -> None:
    mesh, options = WAYS["columns of scores"]
    found = plan(attention(), mesh, **options).symbolic_transfers("seq")
    assert len(str(found).splitlines()) == len(found) + 3 and "batch=2" in str(found)
    assert found._repr_html_().count("<tr>") == len(found) + 1
    assert str(found[0].nbytes) in str(found) and "seq²" in repr(found)


# -- numbers ---------------------------------------------------------------------------------------------------


def test_polynomials_of_a_shifted_size() -> None:
    rng = random.Random(3)
    for _ in range(100):
        coefficients = tuple(Fraction(rng.randint(-9, 9), rng.randint(1, 4)) for _ in range(rng.randint(0, 4)))
        base, step = rng.randint(0, 9), rng.randint(1, 5)
        moved = substitute(coefficients, base, step)
        for m in range(5):
            wanted = sum(c * m**k for k, c in enumerate(coefficients))
            assert sum(c * (base + step * m) ** k for k, c in enumerate(moved)) == wanted


def test_polynomials_are_written_as_people_do() -> None:
    assert write((Fraction(0), Fraction(-1), Fraction(1)), "N") == "N² - N"
    assert write((Fraction(5), Fraction(-2, 3)), "N") == "-2/3·N + 5"
    found = Polynomials("N", ((Fraction(1),), None), 4)
    with pytest.raises(ValueError, match="N=2 is below 4"):
        found.at(2)
    with pytest.raises(ValueError, match="at N=5 there is no such plan"):
        found.at(5)


def test_counted_polynomials_are_those_of_listed_points() -> None:
    """Points of sets with a parameter, listed value by value."""
    rng = random.Random(1)
    for _ in range(60):
        a, b, c, d = (rng.randint(0, 5) for _ in range(4))
        text = (
            f"0 <= x < {1 + a}m + {b} and {c} <= y < {1 + d}m + 3 and x + {rng.randint(0, 1)}*y >= {rng.randint(0, 4)}"
        )
        points = isl.read_set(f"[m] -> {{ [x, y] : {text} }}")
        try:
            coefficients, least = count_polynomial(points, "m")
        except (FinerClasses, ValueError):
            continue
        for m in range(least, least + 6):
            listed = isl.read_set(f"{{ [x, y] : {text.replace('m', f'*{m}')} }}")
            assert sum(k * m**power for power, k in enumerate(coefficients)) == (isl.count_points(listed, 10**6) or 0)


def test_numbers_that_are_not_affine() -> None:
    with pytest.raises(NonAffineSize, match=r"extent is .* at sizes .*not affine"):
        Samples((2, 3, 4)).fit((4, 9, 16), "extent")


def test_polynomials_show_themselves_as_text() -> None:
    found = Polynomials("N", ((Fraction(0), Fraction(4)), (Fraction(2), Fraction(4))), 2)
    assert repr(found) == "Polynomials(4·N for N mod 2 = 0; 4·N + 2 for N mod 2 = 1, for N >= 2)"
