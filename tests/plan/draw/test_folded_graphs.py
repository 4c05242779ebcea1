"""Folding of graphs: what is repeated is found, is really repeated, and comes back whole."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_plan import Graph, Tensor, load_onnx, ops, same_graph
from tapestry_plan.draw import Folded, Repeated, fold, unfold
from tapestry_plan.ir import OpNode, Selection
from tapestry_plan.onnx import light_model
from tests.graph_recipes import Recipe, built, recipes
from tests.layered_models import bert, gpt, gpt2, vit
from tests.machine_pace import slower

Item = OpNode | Selection


def repeated(parts: Iterable[Folded]) -> Iterator[Repeated]:
    """All repeated blocks, those in others too."""
    for part in parts:
        if isinstance(part, Repeated):
            yield part
            yield from repeated(part.body)


def shown(parts: Iterable[Folded]) -> int:
    """How many operators and selections are left to look at."""
    return sum(shown(part.body) if isinstance(part, Repeated) else 1 for part in parts)


def alone(g: Graph, member: tuple[Item, ...]) -> Graph:
    """Some items as a graph of their own, whose inputs are what they read of others, in order of reading."""
    document = g.to_dict()
    names = {item.name for item in member}
    order = [one for one in document["order"] if one.get("node", one.get("select")) in names]
    inside = {name for item in member for name in item.outputs}
    outside: dict[str, str] = {}
    for one in order:
        for name in one["inputs"]:
            if name not in inside:
                outside.setdefault(name, f"outside {len(outside)}")
        one["inputs"] = [outside.get(name, name) for name in one["inputs"]]
    made = [one for one in document["tensors"] if one["name"] in inside]
    given = [
        {"name": new, "shape": list(g.tensor(old).shape), "dtype": g.tensor(old).dtype, "kind": "input"}
        for old, new in outside.items()
    ]
    return Graph.from_dict({**document, "tensors": [*given, *made], "order": order, "outputs": {}})


def check(g: Graph, parts: tuple[Folded, ...]) -> None:
    """Everything is there once and in order, and all repetitions of a block are the same, and are wired the same."""
    items = unfold(parts)
    assert Counter(map(id, items)) == Counter(map(id, (*g.nodes.values(), *g.selections.values())))
    known = {name for name, stored in g.stored.items() if stored.kind != "result"}
    for item in items:
        assert known.issuperset(item.inputs)
        known.update(item.outputs)
    for block in repeated(parts):
        check_block(g, block)


def check_block(g: Graph, block: Repeated) -> None:
    assert block.times == len(block.members) == len(block.carried) == len(block.own) > 1
    assert unfold(block.body) == block.members[0]
    first = alone(g, block.members[0])
    made = [[name for item in member for name in item.outputs] for member in block.members]
    for k, member in enumerate(block.members):
        assert k == 0 or same_graph(first, alone(g, member))
        read = {name for item in member for name in item.inputs} - {*made[k]}
        assert Counter((*block.carried[k], *block.shared, *block.own[k])) == Counter(read)
        assert k == 0 or all(name in made[k - 1] for name in block.carried[k])
    places = [[made[k - 1].index(name) for name in block.carried[k]] for k in range(1, block.times)]
    assert all(place == places[0] for place in places)
    own = Counter(name for names in block.own for name in names)
    assert not own or max(own.values()) == 1
    assert own.keys().isdisjoint(block.shared) and all(own.keys().isdisjoint(names) for names in made)


# -- chains of which it is known what they repeat ------------------------------------------------------------------

STEPS = 7
Steps = list[tuple[int, int, int]]
chains = st.tuples(
    *(
        st.lists(st.tuples(st.integers(0, STEPS - 1), st.integers(0, 99), st.integers(0, 99)), max_size=n)
        for n in (3, 7, 3)
    ),
    st.integers(2, 6),
    st.integers(0, 999),
)


class Writer:
    """A graph under random names: `block` adds some steps, of which each reads what is known, and gives the last."""

    def __init__(self, seed: int) -> None:
        self.g, self.names = Graph(), random.Random(seed)
        self.shared = self.g.input(self.name(), (3, 3))

    def name(self) -> str:
        return f"t{self.names.getrandbits(60)}"

    def step(self, kind: int, a: Tensor, b: Tensor) -> Any:
        if kind == 0:
            return self.g.op("relu", a, name=self.name())
        if kind == 1:
            return self.g.op("matmul", a, self.g.input(self.name(), (3, 3)), name=self.name())
        if kind == 2:
            return self.g.op("matmul", a, b.T, name=self.name())
        if kind == 3:
            return self.g.op("add", a.flip(0), self.shared, name=self.name())
        if kind == 4:
            return self.g.op("leaky_relu", a, alpha=0.25, name=self.name())
        return self.g.op("add" if kind == 5 else "subtract", a, b, name=self.name())

    def block(self, x: Tensor, steps: Steps) -> Tensor:
        known = [x]
        for kind, a, b in steps:
            known.append(self.step(kind, known[a % len(known)], known[b % len(known)]))
        return known[-1] * x


@pytest.mark.heavy(2)
@given(chains)
@example(([], [(0, 0, 0)] * 3, [], 5, 0))  # a block whose operators are one repeated
@example(([(2, 0, 0)], [(1, 0, 0), (2, 0, 1), (5, 2, 0)], [(5, 0, 0)], 4, 1))
def test_a_chain_folds_to_what_it_repeats(chain: tuple[Steps, Steps, Steps, int, int]) -> None:
    before, block, after, times, seed = chain
    w = Writer(seed)
    x = w.block(w.g.input(w.name(), (3, 3)), before)
    sizes = [len(w.g.nodes) + len(w.g.selections)]
    for _ in range(times):
        x = w.block(x, block)
        sizes.append(len(w.g.nodes) + len(w.g.selections))
    w.g.output(w.block(x, after), "y")
    parts, count = fold(w.g), len(w.g.nodes) + len(w.g.selections)
    check(w.g, parts)
    size = sizes[1] - sizes[0]
    assert all(sizes[k + 1] - sizes[k] == size for k in range(times))
    if size * (times - 1) >= 4:
        assert shown(parts) <= count - size * (times - 1)


@given(recipes(30))
def test_what_is_folded_of_any_graph_is_repeated(recipe: Recipe) -> None:
    g = built(recipe)
    check(g, fold(g))


def test_a_block_in_a_block() -> None:
    g = Graph()
    x = g.input("x", (4, 4))
    for k in range(3):
        for n in range(5):
            x = ops.relu(x @ g.input(f"w{k}{n}", (4, 4)))
        x = ops.softmax(x)
    (outer,) = fold(g)
    assert repr(outer) == "3 × (5 × (matmul relu) softmax)"
    assert isinstance(outer, Repeated) and isinstance(outer.body[0], Repeated)
    assert outer.own[1] == ("w10", "w11", "w12", "w13", "w14") and outer.body[0].own[4] == ("w04",)
    assert outer.carried == (("x",), ("softmax",), ("softmax_1",)) and outer.at["softmax_2"] == (2, 10)
    check(g, (outer,))


@pytest.mark.parametrize("odd", ["operator", "attribute", "shape", "wiring", "order", "tied", "kind"])
def test_a_block_that_differs_ends_the_run(odd: str) -> None:
    g = Graph()
    x = y = g.input("x", (4, 4))
    z = g.input("z", (4, 4))
    for k in range(8):
        if k != 4 or odd not in ("tied", "kind"):
            own = g.input(f"w{k}", (4, 4))
        else:  # that of the block before, or one that is computed
            own = g.tensor("w3") if odd == "tied" else ops.relu(z)
        h = x @ own
        h = g.op("leaky_relu", h, alpha=0.5 if (odd, k) == ("attribute", 4) else 0.25)
        h = ops.softmax(h) if (odd, k) == ("operator", 4) else ops.relu(h)
        if (odd, k) == ("shape", 4):
            h = turned_twice(h)
        past = y if (odd, k) == ("wiring", 4) else x
        x, y = (h - past if (odd, k) != ("order", 4) else past - h), x
    parts = fold(g)
    check(g, parts)
    times = [part.times for part in parts if isinstance(part, Repeated)]
    assert max(times) == 4 and sum(times) >= 7


def turned_twice(x: Tensor) -> Any:
    return ops.relu(x).T.T


@pytest.mark.heavy(2)
@pytest.mark.parametrize(
    ("model", "times"),
    [
        (gpt(12, length=128), [12]),
        (bert(3), [3, 3]),  # query, key and value are three alike in each layer
        (gpt2(4), [4]),
        (vit(5), [5]),
        ("resnet50", [2, 3, 5, 2]),  # 3, 4, 6 and 3 blocks, of which the first of each stage has a projection
        ("shufflenet", [3, 7, 3]),
    ],
    ids=["gpt", "bert", "gpt2", "vit", "resnet50", "shufflenet"],
)
def test_networks_fold_to_their_layers(model: Any, times: list[int]) -> None:
    g = load_onnx(light_model(model, seed=1) if isinstance(model, str) else model)
    parts = fold(g)
    check(g, parts)
    assert [block.times for block in repeated(parts)] == times


@pytest.mark.heavy(2)
def test_a_long_graph_folds_in_a_second() -> None:
    g = load_onnx(gpt(84, length=128))
    before = time.process_time()
    (block,) = fold(g)
    assert len(g.nodes) + len(g.selections) > 2000 and time.process_time() - before < 1 * slower()
    assert isinstance(block, Repeated) and block.times == 84
    r, g = random.Random(0), Graph()
    xs = [g.input("x", (4, 4)), g.input("y", (4, 4))]
    for _ in range(1000):
        xs.append(r.choice(xs) + r.choice(xs))
    before = time.process_time()
    assert len(unfold(fold(g))) == 1000 and time.process_time() - before < 5 * slower()
