"""What public values say of themselves: one short line that holds the answer, whatever they were made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec import StructMeta

import tapestry_exec
import tapestry_plan
import tapestry_sets
from tapestry_exec import run
from tapestry_exec.run import TraceEvent
from tapestry_plan import MONOIDS, Device, Graph, Link, Mesh, Tensor, operation, ops, plan
from tapestry_plan.rewrite import Derivation, forward, shard
from tapestry_sets import AffineMap, AliasGraph, Region, Sett, Stripe, Witness, allocate, overlap, overlaps

MOST = 200
"""Characters of what a value says of itself."""

LONG = "tensor\x1b[2J" * 2_000


def _perceptron(name: str) -> tuple[Graph, Tensor]:
    g = Graph()
    x, w = g.input(name, (8, 6)), g.input(f"{name} w", (6, 4))
    hidden = ops.matmul(x, w, name=f"{name} product")
    g.output(ops.relu(hidden, name=f"{name} relu"), f"{name} out")
    return g, x


def _values(name: str) -> dict[str, Any]:
    g, x = _perceptron(name)
    mesh = Mesh((2, 2), names=(name, "y"), link={name: Link(1e-5, 1e9), "y": Link(1e-6, 1e11)})
    chosen = plan(g, mesh)
    ran = run(chosen, {name: np.ones((8, 6), np.float32), f"{name} w": np.ones((6, 4), np.float32)}, verify=True)
    memory = allocate((27,), name=name)
    a = memory.reshape(3, 3, 3)[:2, :2, :2]
    node = next(iter(g.nodes))
    return {
        "plan": chosen,
        "run": ran,
        "stage": chosen.stages[0],
        "mesh": mesh,
        "signature": g.signature(node),
        "operation": operation(g, node),
        "operator": g.ops["matmul"],
        "tensor": x,
        "monoid": MONOIDS["sum"],
        "choices": chosen.choices,
        "program": chosen.program(0),
        "written": chosen.written,
        "schedule": chosen.schedule,
        "transfers": chosen.transfers(),
        "explanation": chosen.explain(node),
        "none of many transfers": plan(g, Mesh(16), fix={node: {"k": 6}}).transfers(tensor=name),
        "transfer": plan(g, mesh, fix={node: {"m": 2, "k": 2}}).transfers()[0],
        "report": chosen.report(),
        "region": Region((50,) * 10, [Stripe(3, 4)] * 10),
        "no region": Region.empty((10**12,) * 40),
        "map": AffineMap(((1,) * 40,) * 40, (10**12,) * 40),
        "difference": chosen.diff(plan(g, Mesh(3, names=(name,)))),
        "memory": chosen.memory[0],
        "overlap": overlap(a, memory[2::5]),
        "no overlap": overlap(memory[::2], memory[1::2]),
        "graph": g,
        "derivation": Derivation().then(shard, node, axis="m", parts=2),
        "long derivation": Derivation().then(shard, node, axis="m", parts=2).then(forward, node).then(forward, name),
    }


@pytest.mark.parametrize("name", ["x", LONG, "a\nb"], ids=["short", "long", "of two lines"])
def test_public_values_say_the_answer_in_one_short_line(name: str) -> None:
    for kind, value in _values(name).items():
        said = repr(value)
        assert said.isprintable(), f"{kind}: {said!r}"
        assert len(said) <= MOST, f"{kind}: {len(said)} characters"
        assert " at 0x" not in said, kind


def test_explorers_say_the_answer_in_one_short_line() -> None:
    pytest.importorskip("anywidget", reason="explorers are made with anywidget")
    from tapestry_plan import OverlapExplorer, PlanExplorer

    g, _ = _perceptron("a\nb")
    memory = allocate((27,), name=LONG)
    explorers = [PlanExplorer(plan(g, Mesh(2))), OverlapExplorer(memory[::2], memory[1::2])]
    for value, answer in zip(explorers, ("ShardPlan(1 operator on 2 devices", "Overlap(no cell"), strict=True):
        said = repr(value)
        assert said.isprintable() and len(said) <= MOST and " at 0x" not in said
        assert said.startswith(f"{type(value).__name__}({answer}")


def test_answers_are_those_of_the_values() -> None:
    values = _values("x")
    chosen, ran = values["plan"], values["run"]
    for number in (chosen.nbytes_moved, max(chosen.peak_nbytes)):
        assert f"{number:,} B" in repr(chosen)
    assert f"{ran.nbytes_moved:,} B moved" in repr(ran)
    assert f"{sum(ran.nbytes_placed):,} B placed" in repr(ran)
    assert repr(values["overlap"]) == "Overlap(1 cell, 1 B: x[12] = a[1, 1, 0] = b[2])"
    row = values["transfer"]
    assert f"{row.nbytes:,} B of {row.tensor!r}" in repr(row) and f"for {row.consumer!r}" in repr(row)
    assert repr(values["no overlap"]).startswith("Overlap(no cell: ")
    assert repr(values["signature"]) == "Signature(m:8, n:4, k:6 summed; 2 inputs, 1 output)"
    assert repr(values["tensor"]) == "Tensor('x', (8, 6), float32)"
    assert repr(values["derivation"]) == "Derivation(1 step: shard at 'x product')"
    assert repr(values["long derivation"]) == "Derivation(3 steps: shard at 'x product', …, forward at 'x')"
    assert repr(Derivation()) == "Derivation(0 steps)"
    assert repr(Mesh(2, device=[Device(flop_per_second=3e12), Device(flop_per_second=1e12)])).count("up to 3 TFLOP/s")


def test_overlaps_of_any_size_and_of_tensors_say_how_much_they_share() -> None:
    wide = allocate((10**12, 10**12), name="wide", itemsize=4)
    found = repr(overlap(wide[::3], wide[::5]))
    assert f"{10**12 * ((10**12 - 1) // 15 + 1)} cells" in found
    assert overlaps(wide[::3], wide[::5])
    vast = allocate((10**5000,), name="vast")
    assert len(repr(overlap(vast[1:], vast[::2]))) <= MOST
    g = AliasGraph()
    t = g.allocate((4, 4), name="t")
    assert repr(overlap(t.view[:2], t.view[1:])).startswith("Overlap(4 cells")


def test_calls_that_do_not_fit_say_of_what_they_are_and_how_to_mend_it() -> None:
    made = 0
    for package in (tapestry_sets, tapestry_plan, tapestry_exec):
        for cls in vars(package).values():
            if isinstance(cls, StructMeta):
                with pytest.raises(
                    TypeError, match=rf"^{cls.__name__}\(\) got an unexpected keyword argument 'nosuch'; "
                ):
                    cls(nosuch=1)
                made += 1
    assert made > 30
    for call, said in (
        (lambda: Witness(a=3), r"^Witness\(\) missing a required argument: 'b'; write Witness\(a, b, cell\)$"),
        (lambda: Witness(3, (1,), (1,)), "^Witness: a must be a sequence of integers, not 3 of type int$"),
        (lambda: Sett(on=3), r"^Sett\(\) got an unexpected keyword argument 'on'; known arguments: '\*stripes'$"),
        (lambda: Region(), r"^Region\(\) missing a required argument: 'shape'; write Region\(shape, setts\)$"),
        (lambda: Stripe(2), r"^Stripe\(\) missing a required argument: 'off'; write Stripe\(on, off\)$"),
        (
            lambda: TraceEvent(stepp=1),
            r"^TraceEvent\(\) got an unexpected .* 'stepp'; nearest of \d+ arguments: 'step'",
        ),
        (lambda: Mesh(), r"^Mesh\(\) missing a required argument: 'shape'; write Mesh\(shape\)$"),
        (lambda: Mesh(2, x=1), r"^Mesh\(\) got an unexpected keyword argument 'x'; known arguments: 'shape', 'names'"),
        (lambda: plan(Graph(), Mesh(2), layot={}), r"argument 'layot'; nearest of \d+ arguments: 'layout'"),
        (
            lambda: Graph().input(),
            r"^Graph.input\(\) missing a required argument: 'name'; write Graph.input\(name, shape\)$",
        ),
    ):
        with pytest.raises(TypeError, match=said) as caught:
            call()  # type: ignore[no-untyped-call]
        assert "\n" not in str(caught.value)
