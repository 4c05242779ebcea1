"""Pictures of large graphs: each repeated block is drawn once, in a frame that says how often it is there.

A node is an operator with what it gives; weights that it alone reads are lines in it, so that what is left is the way
that tensors go. In a frame stands the first repetition, with what it reads from outside as nodes of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from tapestry_plan.draw import tuning
from tapestry_plan.draw.folding import Folded, Item, Repeated, unfold
from tapestry_plan.draw.layers import Direction, LayerNode, layered
from tapestry_plan.draw.nodes import boxed, cut_box, plain_box, round_box, short, word
from tapestry_sets.draw import canvas
from tapestry_sets.limits import cut_text

FRAME = "#f6f8fa"
"""Fill behind a block that is repeated."""


def folded_lines(graph: Any, parts: Sequence[Folded]) -> Iterator[str]:
    """A line for each input, each operator and selection that is drawn, and each block that is repeated."""
    yield from _Scene(graph, parts).lines()


def folded_drawing(graph: Any, parts: Sequence[Folded], direction: Direction | None) -> canvas.Drawing:
    """The drawing of folded parts of a graph, at least one."""
    return _Scene(graph, parts).drawing(direction)


def count_shown(parts: Sequence[Folded]) -> int:
    """How many operators and selections are drawn of folded parts."""
    return sum(count_shown(part.body) if isinstance(part, Repeated) else 1 for part in parts)


class _Scene:
    """The parts of a graph that are shown, and which tensors stand for themselves."""

    def __init__(self, graph: Any, parts: Sequence[Folded]) -> None:
        self.graph, self.parts, self.left = graph, list[Folded](), 0
        shown = 0
        for part in parts:
            shown += count_shown([part])
            if shown <= tuning.SHOWN_ITEMS:
                self.parts.append(part)
            else:
                self.left += len(unfold([part]))
        self.own = {name for part in parts if isinstance(part, Repeated) for names in part.own for name in names}
        self.readers: dict[str, set[str]] = {}
        for item in unfold(parts):
            for name in item.inputs:
                self.readers.setdefault(name, set()).add(item.name)
        self.labels: dict[str, list[str]] = {}
        for label, name in graph.outputs.items():
            self.labels.setdefault(name, []).append(label)

    # -- text --------------------------------------------------------------------------------------------

    def lines(self) -> Iterator[str]:
        for stored in self.graph.stored.values():
            if stored.kind != "result" and stored.name not in self.own:
                yield f"  {stored.kind:8} {word(stored.name)}: {self._form(stored.name)}"
        yield from self._lines(self.parts, "  ")
        if self.left:
            yield f"  … and {self.left:,} more operators and selections"
        for label, name in self.graph.outputs.items():
            yield f"  output   {word(label)} = {word(name)}"

    def _lines(self, parts: Sequence[Folded], before: str) -> Iterator[str]:
        for part in parts:
            if not isinstance(part, Repeated):
                verb, what = ("op", part.op) if hasattr(part, "op") else ("view", part.label)
                outs = ", ".join(f"{word(name)}: {list(self.graph.tensor(name).shape)}" for name in part.outputs)
                yield f"{before}{verb:8} {outs} = {word(what)}({', '.join(map(word, part.inputs))})"
                continue
            yield f"{before}{part.times} times the block {_said(part)}:"
            yield from self._lines(part.body, before + "  ")
            if given := self._given(part):
                yield f"{before}  {given}"

    def _given(self, part: Repeated) -> str:
        """What others read of a block, or the graph gives, in all its repetitions."""
        inside = {item.name for member in part.members for item in member}
        made = [name for member in part.members for item in member for name in item.outputs]
        given = [short(name) for name in made if name in self.labels or not self.readers.get(name, set()) <= inside]
        more = f" and {len(given) - 4} more" if len(given) > 4 else ""
        return f"others read {', '.join(given[:4])}{more}" if given else ""

    def _form(self, name: str) -> str:
        tensor = self.graph.tensor(name)
        return f"{tensor.dtype}{list(tensor.shape)}"

    # -- drawing -----------------------------------------------------------------------------------------

    def drawing(self, direction: Direction | None) -> canvas.Drawing:
        drawn = layered(list(self._nodes(self.parts, {}, set(), direction)), direction)
        if not self.left:
            return drawn
        return canvas.below([drawn, canvas.as_drawn(f"… and {self.left:,} more operators and selections")])

    def _nodes(
        self, parts: Sequence[Folded], entering: Mapping[str, str], alone: Set[str], direction: Direction | None
    ) -> Iterator[LayerNode]:
        """Nodes of some parts; tensors that are entering have the nodes of these keys, those alone have none."""
        made = dict(entering)
        for part in parts:
            items = unfold([part])
            own = alone | ({name for names in part.own for name in names} if isinstance(part, Repeated) else set())
            read = dict.fromkeys(name for item in items for name in item.inputs)
            for name in read:
                stored = self.graph.stored.get(name)
                if name not in made and stored is not None and stored.kind == "input" and name not in own:
                    made[name] = f"tensor {name}"
                    yield self._tensor(name, stored.kind, ["input"])
            after = dict.fromkeys(made[name] for name in read if name in made)
            key = f"{'part' if isinstance(part, Repeated) else 'item'} {items[0].name}"
            made |= {name: key for item in items for name in item.outputs}
            if isinstance(part, Repeated):
                yield self._frame(key, list(after), part, own, direction)
            else:
                yield self._item(key, list(after), part, [name for name in part.inputs if name not in made])

    def _tensor(self, name: str, kind: str, words: Sequence[str]) -> LayerNode:
        return boxed(f"tensor {name}", (), [short(name), self._form(name), *words], kind, (), plain_box)

    def _item(self, key: str, after: Sequence[str], item: Item, alone: Sequence[str]) -> LayerNode:
        """An operator or a selection, with the tensors that have no node of their own, and what it gives."""
        what, name, kind, shape = (
            (item.op, item.name, "op", cut_box) if hasattr(item, "op") else (item.label, item.name, "view", round_box)
        )
        lines = [short(what), *([short(name)] if name != what else [])]
        lines += [cut_text(f"reads {short(name)} {self._form(name)}", 48) for name in dict.fromkeys(alone)]
        lines += [cut_text(f"gives {self._form(name)}", 48) for name in item.outputs]
        lines += [f"output {short(label)}" for name in item.outputs for label in self.labels.get(name, ())]
        return boxed(key, after, lines, kind, (), shape)

    def _frame(
        self, key: str, after: Sequence[str], part: Repeated, alone: Set[str], direction: Direction | None
    ) -> LayerNode:
        """A block in a frame: the first repetition, and what enters it."""
        entering, nodes = {}, []
        for names, words in ((part.carried[0], "then of the block before"), (part.shared, "the same for all")):
            for name in names:
                stored = self.graph.stored.get(name)
                if stored is None or stored.kind != "constant":
                    entering[name] = f"tensor {name}"
                    nodes.append(self._tensor(name, "result" if stored is None else stored.kind, [words]))
        for name in part.own[0]:
            if name not in self.graph.stored or self.graph.stored[name].kind == "result":
                entering[name] = f"tensor {name}"
                nodes.append(self._tensor(name, "result", ["each block its own"]))
        inner = layered([*nodes, *self._nodes(part.body, entering, alone, direction)], direction)
        head = canvas.written(0, canvas.SMALL + 2, f"{part.times} ×", size=14)
        head = head.replace("<text ", '<text font-weight="bold" ', 1)
        said = canvas.written(10 * len(f"{part.times} × "), canvas.SMALL + 1, _said(part))
        wide = 10 * len(f"{part.times} × ") + canvas.breadth(_said(part))
        given = [canvas.as_drawn(one) for one in [self._given(part)] if one]
        body = canvas.below([canvas.Drawing(wide, 18, (head, said)), inner, *given], 10)
        width, height = body.width + 24, body.height + 20
        back = f'<path d="{plain_box(width, height)}" fill="{FRAME}" stroke="{canvas.INK}" stroke-dasharray="6 3"/>'
        inside = [f'<g data-block="{part.times}">', back, '<g transform="translate(12,10)">', *body.parts, "</g></g>"]
        return LayerNode(key, tuple(after), canvas.Drawing(width, height, tuple(inside)))


def _said(part: Repeated) -> str:
    """A block in words."""
    count = len(part.members[0])
    return f"of {count} operators and selections" if count > 1 else "of one"
