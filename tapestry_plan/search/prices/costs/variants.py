"""Variants: a graph that holds each operator and its expansions side by side, to choose among them.

A choice is made for each operator that has expansions: 0 for the operator itself, 1, 2, … for its expansions. What an
expansion builds may have expansions in turn, which are chosen only where it was. So the variants of n operators are
2ⁿ graphs or more, held in the space of n.

One draft holds everything side by side: y = softmax(x), and beside it the operators that its expansion builds. What
reads y reads, where the choice is 0, y itself, and where it is 1, the result of the last of these::

    x ──┬── softmax ──────── y   ──┐ where choice 0 is 0
        └── max ── … ── div ─ y' ──┴ where choice 0 is 1 ── relu

Where an expansion ends in a view instead of a result, its readers read through that view, so they have as many readings
as there are views to read through: `Present.readings`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from tapestry_plan.ir import Expansion, Graph, NotApplicable, OpNode, Tensor, is_coarse
from tapestry_plan.rewrite import Draft, as_tuple, expand
from tapestry_plan.search import tuning
from tapestry_plan.steps import Expansions
from tapestry_sets.limits import FrozenDict, put_fields, put_item, quote

BY_PHASE = frozenset(["space_to_batch"])
"""Expansions in which points that share no cells are apart, though no even blocks of the operator's own axes are."""

Given = tuple[tuple[int, int], ...]
"""Numbers of choices with the values that they must have."""

Path = tuple[str | int, ...]
"""An operator of the graph as given, then each expansion that leads to another one, with its place in what that builds.

Unlike names, paths stay the same when other expansions are left out.
"""


class Option(Struct, frozen=True):
    """One expansion of an operator.

    Parameters
    ----------
    into : str
        The expansion's name.
    nodes : tuple of str
        What it builds, in order.
    outputs : tuple of str
        The tensors that stand for the operator's outputs: new results, or views.
    """

    into: str
    nodes: tuple[str, ...]
    outputs: tuple[str, ...]


class Choice(Struct, frozen=True):
    """Between an operator (value 0) and its expansions (from 1 on); open only where other choices are as `given`.

    `left_out` names expansions that are not options, as too many combinations of views would be read.
    """

    node: str
    given: Given
    options: tuple[Option, ...]
    left_out: tuple[str, ...] = ()


class Reading(Struct, frozen=True):
    """The names of the tensors that an operator, or an output, reads where choices are as `given`."""

    given: Given
    names: tuple[str, ...]


class Present(Struct, frozen=True):
    """An operator of some variants, those in which choices are as `given`, and the tensors that it reads in them."""

    node: OpNode
    given: Given
    readings: tuple[Reading, ...]


class Variants:
    """A graph with expansions beside the operators that they say.

    Parameters
    ----------
    graph : Graph
        Not changed.
    expand : bool or collection of str
        True for every operator a point of whose index space reads or writes several cells, so that its shards are
        coarser than cells, and for `BY_PHASE` of any operator; or the names of the expansions that are wanted.
    pinned : collection of str
        Operators that stay as they are.
    kept : collection of str
        Tensors that must stay stored ones.

    Examples
    --------
    >>> from tapestry_plan.ops import (softmax)
    >>> g = Graph()
    >>> _ = g.output(softmax(g.input("x", (4, 8)), name="y"))
    >>> variants = Variants(g, True)
    >>> [(choice.node, [option.into for option in choice.options]) for choice in variants.choices]
    [('y', ['exp_sum'])]
    >>> found, expanded = variants.build_graph([1])
    >>> [node.op for node in found.order()], expanded[0].chosen
    (['max', 'subtract', 'exp', 'sum', 'divide'], 'exp_sum')
    """

    def __init__(
        self,
        graph: Graph,
        expand: bool | Collection[str],
        pinned: Collection[str] = (),
        kept: Collection[str] = (),
    ) -> None:
        self.original = graph
        self.expand, self.pinned, self.kept = expand, frozenset(pinned), frozenset(kept)
        self._dropped: set[tuple[Path, str]] = set()
        while not self._build():
            pass

    def _build(self) -> bool:
        """Lay out the variants; False if views had to be dropped, so that it must be done again."""
        self.graph = Draft(self.original)
        self.choices: list[Choice] = []
        self.without: list[Choice] = []
        """Operators all of whose expansions are left out."""
        self._nodes: list[tuple[OpNode, Given]] = []
        self._paths: list[Path] = []
        self._choice_of: dict[str, int] = {}
        self._same: dict[str, str] = {}
        self._clones: dict[tuple[str, str, str], str] = {}
        for node in self.original.order():
            self._add(node, (), (node.name,))
        asked = [(node.inputs, given) for node, given in self._nodes]
        asked += [((name,), ()) for name in self.original.outputs.values()]
        found = [tuple(islice(self._list_readings(*one), tuning.MAX_READINGS + 1)) for one in asked]
        many = [one for one, readings in zip(asked, found, strict=True) if len(readings) > tuning.MAX_READINGS]
        if many:
            self._dropped.update(self._last_view(names) for names, _ in many)
            return False
        nodes = zip(self._nodes, found[: len(self._nodes)], strict=True)
        self.present = [Present(node, given, readings) for (node, given), readings in nodes]
        self.results = dict(zip(self.original.outputs, found[len(self._nodes) :], strict=True))
        return True

    # -- building ----------------------------------------------------------------------------------------

    def _add(self, node: OpNode, given: Given, path: Path) -> None:
        wanted = len(path) // 2 < tuning.MAX_DEPTH and self._is_wanted(node)
        options, left_out = self._options(node, path) if wanted else ([], [])
        if not options:
            self._nodes.append((node, given))
            if left_out:
                self.without.append(Choice(node.name, given, (), tuple(left_out)))
            return
        number = len(self.choices)
        self.choices.append(Choice(node.name, given, tuple(options), tuple(left_out)))
        self._paths.append(path)
        self._choice_of.update(dict.fromkeys(node.outputs, number))
        self._nodes.append((node, (*given, (number, 0))))
        for value, option in enumerate(options, 1):
            for k, below in enumerate(option.nodes):
                self._add(self.graph.nodes[below], (*given, (number, value)), (*path, option.into, k))

    def _is_wanted(self, node: OpNode) -> bool:
        expansions = self.graph.ops[node.op].expansions
        if node.name in self.pinned or not expansions:
            return False
        return self.expand is not True or any(self._is_compared(node, one.__name__) for one in expansions)

    def _is_compared(self, node: OpNode, into: str) -> bool:
        """Whether an expansion is asked for, or compared by default."""
        if self.expand is not True:
            return self.expand is not False and into in self.expand
        return into in BY_PHASE or is_coarse(self.graph.signature(node.name))

    def _options(self, node: OpNode, path: Path) -> tuple[list[Option], list[str]]:
        """The expansions of an operator that are compared with it, and the names of those that are left out."""
        found, left_out = [], []
        for expansion in self.graph.ops[node.op].expansions:
            into = expansion.__name__
            if not self._is_compared(node, into):
                continue
            if (path, into) in self._dropped:
                left_out.append(into)
            elif (option := self._lay(node, into, partial(self._expand, node, expansion))) is not None:
                found.append(option)
        return found, left_out

    def _expand(self, node: OpNode, expansion: Expansion) -> tuple[Tensor, ...]:
        """What an expansion of an operator builds."""
        tensors = as_tuple(expansion(tuple(map(self.graph.tensor, node.inputs)), node.attrs))
        _check_made(node, expansion, tensors)
        return tensors

    def _lay(self, node: OpNode, into: str, build: Callable[[], tuple[Tensor, ...]]) -> Option | None:
        """Another way to say an operator, laid beside it; None where it does not apply."""
        draft = self.graph
        before = set(draft.nodes)
        try:
            with draft.edit(), draft.scope(node.name):
                outs = tuple(t.name for t in build())
                new = [name for name in draft.nodes if name not in before]
                stored = [out for out in outs if (maker := draft.maker(out)) and maker.name not in before]
                self._check(node, outs, len(new), set(stored))
        except NotApplicable:
            return None
        if len(set(stored)) == len(stored):
            self._same.update((out, old) for out, old in zip(outs, node.outputs, strict=True) if out in stored)
        return Option(into, tuple(new), outs)

    def _check(self, node: OpNode, outs: Sequence[str], count: int, stored: Collection[str]) -> None:
        """Raise NotApplicable for an expansion that is not considered."""
        pairs = tuple(zip(node.outputs, outs, strict=True))
        for old, new in pairs:
            a, b = self.graph.tensor(old), self.graph.tensor(new)
            if (a.shape, a.dtype) != (b.shape, b.dtype):
                raise NotApplicable("other shapes or dtypes than the operator's")
        if count > tuning.MAX_EXPANSION_NODES:
            raise NotApplicable(f"more than {tuning.MAX_EXPANSION_NODES} operators")
        if any(self.stored(old) in self.kept and new not in stored for old, new in pairs):
            raise NotApplicable("a view in place of a tensor whose layout is asked for")

    # -- asking ------------------------------------------------------------------------------------------

    def stored(self, name: str) -> str:
        """The tensor of the original graph that a result stands for; a result that stands for none itself."""
        while name in self._same:
            name = self._same[name]
        return name

    def _is_moving(self, tensor: str) -> bool:
        """Whether a stored tensor is a view of others in some variant."""
        return tensor in self._choice_of and any(
            self._same.get(out) != tensor or self._is_moving(out) for out in self._expanded(tensor)
        )

    def _expanded(self, tensor: str) -> list[str]:
        """What stands for an operator's output, by option of the choice about the operator."""
        choice = self.choices[self._choice_of[tensor]]
        at = self.graph.nodes[choice.node].outputs.index(tensor)
        return [option.outputs[at] for option in choice.options]

    def _list_readings(self, names: tuple[str, ...], given: Given) -> Iterator[Reading]:
        """What some names read, for each way to choose where that matters."""
        # Names are replaced leaf by leaf: of a leaf that is a view in some variant, its choice is settled first; where
        # that says that it is expanded, the view takes the leaf's place, and its own leaves come next.
        stack = [(names, given)]
        while stack:
            names, given = stack.pop()
            values = dict(given)
            leaf = next((t for t in self._leaves(names) if values.get(self._choice_of[t]) != 0), None)
            if leaf is None:
                yield Reading(given, names)
                continue
            number, outs = self._choice_of[leaf], self._expanded(leaf)
            if number in values:
                new = outs[values[number] - 1]
                stack.append((tuple(self._replace(name, leaf, new) for name in names), given))
            else:
                stack += [(names, (*given, (number, value))) for value in range(len(outs), -1, -1)]

    def _leaves(self, names: Sequence[str]) -> list[str]:
        """The stored tensors behind some names that are views of others in some variant."""
        return [t for name in names for t in self.graph.source(name).stored if self._is_moving(t)]

    def _last_view(self, names: Sequence[str]) -> tuple[Path, str]:
        """The deepest expansion that ends in a view which something reads, and of these the last."""
        number, into = max(self._views(names), key=lambda found: (len(self.choices[found[0]].given), *found))
        return self._paths[number], self.choices[number].options[into].into

    def _views(self, names: Sequence[str]) -> Iterator[tuple[int, int]]:
        """The choices, and the numbers of their options, that end in views behind some names."""
        left = self._leaves(names)
        seen: set[str] = set()
        while left:
            leaf = left.pop()
            if leaf in seen:
                continue
            seen.add(leaf)
            for k, out in enumerate(self._expanded(leaf)):
                if self._same.get(out) != leaf:
                    yield self._choice_of[leaf], k
                left += self._leaves((out,))

    def _replace(self, name: str, old: str, new: str) -> str:
        """A name as it is read with another tensor in place of one, through selections of its own."""
        if name == old:
            return new
        if name not in self.graph.selections or old not in self.graph.source(name).stored:
            return name
        key = name, old, new
        if key not in self._clones:
            selection = self.graph.selections[name]
            inputs = tuple(self._replace(below, old, new) for below in selection.inputs)
            clone = self.graph._fresh(name)
            put_item(self.graph.selections, clone, replace(selection, name=clone, inputs=inputs))
            self._clones[key] = clone
        return self._clones[key]

    def kind(self, choice: Choice) -> object:
        """The key of operators that are probably better expanded together."""
        node = self.graph.nodes[choice.node]
        shapes = tuple(self.graph.tensor(name).shape for name in node.inputs)
        return node.op, repr(sorted(node.attrs.items())), shapes, len(choice.given), len(choice.options)

    # -- one of them -------------------------------------------------------------------------------------

    def normalize(self, values: Sequence[int]) -> tuple[int, ...]:
        """The values of the choices, 0 for those that are not there."""
        out: list[int] = []
        for choice, value in zip(self.choices, values, strict=True):
            out.append(value if all(out[number] == wanted for number, wanted in choice.given) else 0)
        return tuple(out)

    def build_graph(self, values: Sequence[int]) -> tuple[Graph, tuple[Expansions, ...]]:
        """The graph in which the choices have some values, and its choices, in an order that can be replayed."""
        draft = Draft(self.original)
        order = {node.name: [node.name] for node in self.original.order()}
        names: dict[str, str] = {}
        found = []
        for choice, value in zip(self.choices, values, strict=True):
            if any(values[number] != wanted for number, wanted in choice.given):
                continue
            at, considered = names.get(choice.node, choice.node), tuple(option.into for option in choice.options)
            if value == 0:
                found.append(Expansions(at, considered, left_out=choice.left_out))
                continue
            option, before = choice.options[value - 1], set(draft.nodes)
            expand.on(draft, at, into=option.into)
            new = [name for name in draft.nodes if name not in before]
            names.update(zip(option.nodes, new, strict=True))
            order.update({at: new, **{name: [name] for name in new}})
            found.append(Expansions(at, considered, option.into, tuple(new), choice.left_out))
        found += [
            Expansions(names.get(choice.node, choice.node), (), left_out=choice.left_out)
            for choice in self.without
            if all(values[number] == wanted for number, wanted in choice.given)
        ]
        made = draft.done()
        # What stands for an operator comes where the operator was, as the costs were counted.
        roots = [node.name for node in self.original.order()]
        nodes = ((name, made.nodes[name]) for root in roots for name in _list_standing(root, order))
        put_fields(made, nodes=FrozenDict(nodes))
        return made, tuple(found)


def _check_made(node: OpNode, expansion: Expansion, made: Sequence[object]) -> None:
    """Raise TypeError for an expansion that is declared wrongly."""
    said = f"operator {quote(node.op)}: its expansion {quote(expansion.__name__)}, applied to {quote(node.name)}, gives"
    if len(made) != len(node.outputs):
        raise TypeError(f"{said} {len(made)} tensors; the operator has {len(node.outputs)} outputs")
    for one in made:
        if not isinstance(one, Tensor):
            raise TypeError(f"{said} {quote(one)}; it must give a Tensor, or a tuple of them")


def _list_standing(name: str, order: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """What stands for an operator, expansions of expansions included."""
    if list(order[name]) == [name]:
        yield name
        return
    for below in order[name]:
        yield from _list_standing(below, order)
