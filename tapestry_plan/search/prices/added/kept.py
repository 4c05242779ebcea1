"""A plan's own choices as a problem again, in which some operators may be sharded otherwise.

All variables have the one layout of the plan, as row 0; an operator that is open has others behind it, and so have the
places where what it makes in parts may land, or lie at the end::

    plan's choices ─►  a  b  c  d        row 0 of each: the plan
                             │ open
                             ▼
                       other layouts of c, and other places for its parts; a, b and d stay
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tapestry_plan.ir import Axis, Graph
from tapestry_plan.search.prices.costs import Asked, Kind, Problem, TensorCost, Variable
from tapestry_plan.steps import Choices, Layout, list_candidates


class KeptProblem(Problem):
    """The problem of choices that are made, but for those of some operators.

    Parameters
    ----------
    graph : Graph
        That the choices are of.
    asked : Asked
        Of which the mesh, the space, `fan_in`, known facts and layouts that are offered count: what else was asked for
        is in the choices.
    choices : Choices
    open_ : collection of str
        Operators that may be sharded otherwise.
    """

    def __init__(self, graph: Graph, asked: Asked, choices: Choices, open_: Collection[str] = ()) -> None:
        self._kept, self._open, self._asked_outputs = choices.layouts, frozenset(open_), choices.asked_outputs
        super().__init__(graph, asked)

    @property
    def kept(self) -> tuple[int, ...]:
        """The plan's own layouts."""
        return (0,) * len(self.variables)

    def _put_first(self, kept: Layout, others: Sequence[Layout] = ()) -> tuple[Layout, ...]:
        """A layout and others: one object for the same ones."""
        others = tuple(others)
        key = "kept", kept, self.known.identity(others) if others else None
        return self.known.fact(key, lambda: (kept, *(one for one in others if one != kept)))

    def _add_place(self, kind: Kind, name: str, layouts: tuple[Layout, ...]) -> None:
        axes = tuple(Axis(str(k), n) for k, n in enumerate(self.graph.stored[name].shape))
        self._add(Variable(name, kind, axes, layouts))

    def _declare_sources(self, asked: Asked) -> None:
        for name in self.graph.stored:
            if (kept := self._kept.get(("source", name))) is not None:
                self._add_place("source", name, self._put_first(kept))

    def _declare_operators(self, asked: Asked) -> None:
        for node in self.order:
            axes, kept = self.graph.signature(node.name).axes, self._kept["operator", node.name]
            layouts = self._put_first(kept)
            if node.name in self._open:
                more = tuple(each for each in asked.derived.get(node.name, ()) if each.keeps(axes) and not each.digits)
                options = self._list_options(axes)
                layouts = self._put_first(kept, self._join_options(options, more) if more else options)
            self._add(Variable(node.name, "operator", axes, layouts))

    def _declare_outputs(self, layout: Mapping[str, Any]) -> None:
        self.asked_outputs = frozenset(self._asked_outputs)
        makers = {name: node.name for node in self.order for name in node.outputs}
        in_parts = self._in_parts()
        for label in self.graph.outputs:
            for name in self.stored_of(label):
                kept, maker = self._kept.get(("output", name)), makers.get(name)
                if ("output", name) in self.position:
                    continue
                if maker in self._open and name in in_parts and name not in self.asked_outputs:
                    places = list_candidates(self.graph.stored[name].shape, self.mesh, self.asked.space)
                    self._add_place("output", name, self._put_first(kept or places[0], places))
                elif kept is not None:
                    self._add_place("output", name, self._put_first(kept))

    def _declare_landings(self) -> None:
        landed = {name: kept for (kind, name), kept in self._kept.items() if kind == "landing"}
        for name in self.graph.stored:
            if name in landed and ("source", name) in self.position:
                self._add_place("landing", name, self._put_first(landed[name]))
        for node in self.order:
            cut = self.graph.signature(node.name).reductions
            layouts = self._variable("operator", node.name).layouts
            may_land = node.name in self._open and any(one.count_parts(cut) > 1 for one in layouts)
            for k, name in enumerate(node.outputs):
                if may_land:
                    places = self._list_landings(self.graph.stored[name].shape)  # the first one is nowhere
                    every = self._join_options(places, self._list_merged(node, k))
                    self._add_place("landing", name, self._put_first(landed.get(name, places[0]), every))
                elif name in landed:
                    self._add_place("landing", name, self._put_first(landed[name]))

    def _shares_out(self, kind: Kind, name: str, asked: Collection[str]) -> bool:
        """Whether it lands in the plan though it is complete."""
        if kind == "source":
            return ("landing", name) in self._kept
        cut, kept = self.graph.signature(name).reductions, self._kept["operator", name]
        is_whole = kept.count_parts(cut) == 1
        return is_whole and any(("landing", out) in self._kept for out in self.graph.nodes[name].outputs)

    def _settle_landing(self, cost: TensorCost) -> None:
        """It may land wherever it may: tables are made of what is open alone."""
