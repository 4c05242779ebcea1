"""Collectives of plans, run as one operation each by their textbook definitions, against their steps one by one.

The backend here looks at a collective's kind, group and parts alone: of what is gathered it packs one share for each
device, whoever gets it; of what is reduced it adds the parts up. What has the wrong name gives other values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tapestry_exec import TransferMismatch, evaluate, run
from tapestry_exec.numpy import NumpyBackend
from tapestry_exec.numpy.backend import NumpyDevice
from tapestry_exec.run.backends import Exchanged
from tapestry_plan import Graph, Link, Mesh, Placed, ShardPlan, concat, ops, plan
from tapestry_plan.steps import Alloc, Buffer, Collective, Copy, Reduce, ungroup
from tests.plan.steps.test_collectives import assert_it_is


class Textbook(NumpyBackend):
    """Arenas of NumPy, with collectives as their definitions say."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def takes(self, collective: Collective) -> bool:
        return True

    def exchange(
        self, devices: Sequence[NumpyDevice], collective: Collective, buffers: Mapping[int, Buffer]
    ) -> Exchanged:
        self.seen[collective.kind] += 1
        group, moves = collective.group, {}
        for copy in collective.copies:
            moves[buffers[copy.src].device, buffers[copy.dst].device] = copy
        links = dict.fromkeys(moves, collective.nbytes)

        def pack(source: int, copy: Copy) -> np.ndarray:
            made = devices[source].pack(buffers[copy.src], copy.regions)
            assert made.nbytes == collective.nbytes
            return made

        if collective.kind in ("broadcast", "all_gather"):
            senders = group[:1] if collective.kind == "broadcast" else group
            shares = {s: next(copy for (source, _), copy in moves.items() if source == s) for s in senders}
            table = np.stack([pack(s, shares[s]) for s in senders])
            for target in group:
                for row, s in zip(table, senders, strict=True):
                    if s != target:
                        devices[target].unpack(row, buffers[moves[s, target].dst], shares[s].regions)
            return Exchanged(links)
        places = {t: next(copy for (_, target), copy in moves.items() if target == t).regions for t in group}
        if collective.kind == "all_to_all":
            for (s, t), copy in moves.items():
                devices[t].unpack(pack(s, copy), buffers[copy.dst], copy.regions)
            return Exchanged(links)
        merges = {buffers[one.output].device: one for one in collective.closing if isinstance(one, Reduce)}
        if any(one.monoid != "sum" for one in merges.values()):
            for (s, t), copy in moves.items():
                devices[t].unpack(pack(s, copy), buffers[copy.dst], copy.regions)
            return Exchanged(links)
        parts = sorted(
            (buffers[copy.src] for copy in {c.src: c for c in collective.copies}.values()), key=lambda b: b.part
        )
        for t in group:
            total = np.sum([devices[part.device].pack(part, places[t]) for part in parts], axis=0, dtype=parts[0].dtype)
            devices[t].unpack(total, buffers[merges[t].output], places[t])
        return Exchanged(links, is_merged=True)


def feeds_of(g: Graph) -> dict[str, np.ndarray]:
    """Small integers, whose sums are exact in any order."""
    rng = np.random.default_rng(0)
    inputs = [one for one in g.stored.values() if one.kind == "input"]
    return {one.name: rng.integers(-3, 4, one.shape).astype(one.dtype) for one in inputs}


def assert_the_same(p: ShardPlan, feeds: Mapping[str, np.ndarray]) -> Counter[str]:
    """Each way of running a plan gives the same; the kinds of its collectives."""
    assert tuple(ungroup(p.grouped_steps)) == p.steps
    one_by_one, textbook = run(p, feeds), Textbook()
    as_one = run(p, feeds, backend=textbook)
    assert textbook.seen == Counter(one.kind for one in p.collectives())
    for name, array in one_by_one.outputs.items():
        np.testing.assert_array_equal(as_one.outputs[name], array)
        np.testing.assert_allclose(array, evaluate(p.graph, feeds)[name], rtol=1e-5)
    for name in ("nbytes_by_link", "nbytes_received", "nbytes_placed", "peak_nbytes", "flop"):
        assert getattr(as_one, name) == getattr(one_by_one, name)
    return textbook.seen


def product() -> Graph:
    g = Graph()
    g.output(g.op("matmul", g.input("x", (16, 24)), g.input("w", (24, 8)), name="it"), "y")
    return g


FAST = Link(0.0, 1e9)
CASES: list[tuple[Link, dict[str, Any], dict[str, int]]] = [
    (FAST, {"fix": {"it": {"k": 4}}, "layout": {"y": {0: 4}}}, {"reduce_scatter": 1}),
    (Link(), {"fix": {"it": {"k": 4}}, "layout": {"y": {0: 4}}}, {"reduce_scatter": 4}),  # in stages, of pairs
    (Link(), {"fix": {"it": {"k": 4}}, "layout": {"y": {}}}, {"all_reduce": 1}),
    (Link(), {"fix": {"it": {"k": 3}}, "layout": {"y": {}}}, {"all_reduce": 1}),
    (FAST, {"fix": {"it": {"k": 4}}, "layout": {"y": {}}}, {"reduce_scatter": 1, "all_gather": 1}),
    (FAST, {"fix": {"it": {"m": 2, "k": 2}}, "layout": {"y": {0: 4}}}, {"reduce_scatter": 2}),
    (Link(), {"fix": {"it": {"m": 4}}, "layout": {"y": {1: 4}}}, {"all_to_all": 1}),
    (Link(), {"fix": {"it": {"m": 4}}, "layout": {"y": {}}}, {"all_gather": 1}),
    (Link(), {"fix": {"it": {"m": 4}}, "layout": {"w": {0: 4}}}, {"all_gather": 1}),
    (Link(), {"fix": {"it": {"m": 4}}, "layout": {"w": Placed({2: ...})}}, {"broadcast": 1}),
    (Link(), {"fix": {"it": {"m": 4}}, "layout": {"w": Placed({1: np.s_[:9], 2: np.s_[9:]})}}, {}),  # unequal parts
]


@pytest.mark.parametrize(("link", "asked", "kinds"), CASES)
def test_textbook_cases(link: Link, asked: dict[str, Any], kinds: dict[str, int]) -> None:
    g = product()
    devices = 3 if asked["fix"] == {"it": {"k": 3}} else 4
    assert assert_the_same(plan(g, Mesh((devices,), link=link), **asked), feeds_of(g)) == kinds


def test_steps_of_groups_stand_together() -> None:
    """Columns of the mesh gather, each by itself, what its devices hold, which are not beside each other."""
    g = product()
    p = plan(g, Mesh((2, 3)), fix={"it": {"m": ("x",), "n": ("y",)}}, layout={"y": {1: ("y",)}})
    gathered = p.collectives()
    assert [(one.kind, one.group, one.axes) for one in gathered] == [
        ("all_gather", (k, k + 3), ("x",)) for k in range(3)
    ]
    for one in gathered:
        assert len(one.copies) == 2 and {type(step) for step in one.opening} == {Alloc, Copy} and not one.closing
    assert assert_the_same(p, feeds_of(g)) == {"all_gather": 3}


def test_a_backend_that_takes_some() -> None:
    class Few(Textbook):
        def takes(self, collective: Collective) -> bool:
            return collective.kind == "all_gather"

    g, few = product(), Few()
    p = plan(g, Mesh((4,), link=FAST), fix={"it": {"k": 4}}, layout={"y": {}})
    feeds = feeds_of(g)
    np.testing.assert_array_equal(run(p, feeds, backend=few).outputs["y"], run(p, feeds).outputs["y"])
    assert few.seen == {"all_gather": 1} != Counter(one.kind for one in p.collectives())


def test_wrong_bytes_of_a_backend_are_found() -> None:
    class Wrong(Textbook):
        def exchange(self, *given: Any) -> Exchanged:
            done = super().exchange(*given)
            return done._replace(nbytes_by_link={link: n - 1 for link, n in done.nbytes_by_link.items()})

    g = product()
    p = plan(g, Mesh((4,)), fix={"it": {"k": 4}}, layout={"y": {}})
    with pytest.raises(TransferMismatch, match="512 B predicted, 511 B counted"):
        run(p, feeds_of(g), backend=Wrong())


def test_steps_by_hand_may_have_collectives() -> None:
    g = product()
    p = plan(g, Mesh((4,)), fix={"it": {"m": 4}}, layout={"y": {1: 4}})
    assert p.with_steps(p.grouped_steps) == p and p.with_steps(p.grouped_steps).collectives() == p.collectives()
    assert ShardPlan.from_json(p.to_json()).grouped_steps == p.grouped_steps


Words = tuple[tuple[int, ...], list[tuple[str, int]], str, bool]


@st.composite
def words(draw: st.DrawFn) -> Words:
    """A mesh, operators one after the other, each with a number that says how it is cut, and where the end lies."""
    shape = draw(st.sampled_from([(2,), (3,), (4,), (2, 2), (2, 3), (6,)]))
    names = st.sampled_from(["relu", "product", "sum", "turned", "max", "rows"])
    chain = draw(st.lists(st.tuples(names, st.integers(0, 8)), min_size=1, max_size=4))
    return shape, chain, draw(st.sampled_from(["whole", "rows", "columns", "free"])), draw(st.booleans())


def build(words: Words) -> ShardPlan:
    shape, chain, end, is_fast = words
    mesh = Mesh(shape, link=FAST if is_fast else Link())
    g, fix = Graph(), dict[str, dict[str, Any]]()
    t = g.input("x", (12, 12))
    for number, (word, cut) in enumerate(chain):
        name = f"n{number}"
        if word == "product":
            t = g.op("matmul", t, g.input(f"w{number}", (12, 12)), name=name)
        elif word in ("sum", "max"):
            t = t + g.op(word, t, axis=cut % 2, keepdims=True, name=name)
        else:
            t = ops.relu(t[:6].T if word == "rows" and t.shape[0] == 12 else t.T if word == "turned" else t, name=name)
            t = t if t.shape == (12, 12) else ops.relu(concat([t, t], 1))
        axes = [axis.name for axis in g.signature(name).axes]
        if cut < 6:
            first, second = axes[cut % len(axes)], axes[cut // 2 % len(axes)]
            fix[name] = {
                first: mesh.names[:1],
                **({second: mesh.names[1:2]} if second != first and len(shape) > 1 else {}),
            }
    g.output(t, "y")
    ends = {"whole": {"y": {}}, "rows": {"y": {0: mesh.names[:1]}}, "columns": {"y": {1: mesh.names[:1]}}, "free": {}}
    return plan(g, mesh, fix=fix, layout=ends[end], expand=False)


@given(words())
@settings(max_examples=max(20, settings.default.max_examples // 3))
@example(((2, 2), [("product", 1), ("product", 2)], "whole", True))
@example(((2, 3), [("relu", 0), ("turned", 1), ("sum", 0)], "rows", False))
@example(((6,), [("product", 2), ("max", 1)], "columns", True))
def test_collectives_of_random_plans_are_what_they_are_called(words: Words) -> None:
    p = build(words)
    assert_the_same(p, feeds_of(p.graph))
    for one in p.collectives():
        assert_it_is(p, one)
