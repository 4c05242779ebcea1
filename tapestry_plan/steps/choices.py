"""Choices: all that a plan decides. Its steps, of all devices or of one, follow from them (`deriving`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from math import prod
from typing import get_args

from msgspec import Struct
from msgspec.structs import force_setattr

from tapestry_plan.ir import Graph
from tapestry_plan.steps.layouts.holders import project_bounds
from tapestry_plan.steps.layouts.layout import Layout
from tapestry_plan.steps.layouts.merging import MergeOrder, MergeStage, list_merge_stages
from tapestry_plan.steps.layouts.mesh import Mesh
from tapestry_plan.steps.layouts.placed import check_lots
from tapestry_plan.steps.step import Written
from tapestry_sets.limits import cut_text, freeze_dicts, quote
from tapestry_sets.regions import Box


class Choices(Struct, frozen=True, dict=True):
    """What a plan decides.

    Parameters
    ----------
    layouts : dict of (kind, name) to Layout
        Where each "operator" is computed, where a "source" (an input or a constant) lies that does not lie where it is
        read, where a tensor rests before it is read, its "landing", and where an "output" is brought. Partial results
        are merged where they land; of what is complete the shares lie there beside what lies where it was made.
    asked_outputs : tuple of str
        Outputs, by stored tensor, that are brought to their layout in any case; others only from partial results.
    fan_in : int, optional
        How many partial results are merged at a time; None for one after the other.
    merged : dict of str to "near" or "far"
        Tensors whose partial results are merged in stages to where they land, and which of them first, see
        `tapestry_plan.steps.layouts.merging`; others are merged at once.
    memory_nbytes : tuple of int, optional
        By device: bytes within which arenas are laid out anew, as far as places are found.
    spill_nbytes : tuple of int, optional
        By device: bytes of its arena; what idles beyond them waits in host memory.
    """

    layouts: Mapping[tuple[str, str], Layout]
    asked_outputs: tuple[str, ...] = ()
    fan_in: int | None = None
    merged: Mapping[str, MergeOrder] = {}
    memory_nbytes: tuple[int, ...] | None = None
    spill_nbytes: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        force_setattr(self, "layouts", freeze_dicts(self.layouts))
        force_setattr(self, "merged", freeze_dicts(self.merged))

    def __repr__(self) -> str:
        kinds = ("operator", "source", "landing", "output")
        counts = ", ".join(f"{kind}s: {len(self.of_kind(kind))}" for kind in kinds if self.of_kind(kind))
        more = "".join(
            f", {name}={cut_text(str(given), 30)}"
            for name in ("fan_in", "memory_nbytes", "spill_nbytes")
            if (given := getattr(self, name)) is not None
        )
        return f"Choices({counts or 'none'}{more})"

    @property
    def caps(self) -> tuple[int, ...] | None:
        """Bytes that each device's arena may have, where arenas were laid out anew within them or spill; else None.

        Examples
        --------
        >>> from tapestry_plan import Graph, Mesh, ops, plan
        >>> g = Graph()
        >>> _ = g.output(ops.relu(g.input("x", (8, 8))))
        >>> plan(g, Mesh(2)).choices.caps is None
        True
        """
        return self.memory_nbytes if self.spill_nbytes is None else self.spill_nbytes

    def of_kind(self, kind: str) -> dict[str, Layout]:
        """The layouts of one kind, by name."""
        return {name: layout for (one, name), layout in self.layouts.items() if one == kind}

    def remember(self, graph: Graph, mesh: Mesh, written: Written) -> None:
        """Keep the steps that follow for a graph on a mesh, for all plans with these choices."""
        self._known.append((graph, mesh, written))

    def recall(self, graph: Graph, mesh: Mesh) -> Written | None:
        """The steps that were kept."""
        return next((written for one, other, written in self._known if one is graph and other == mesh), None)

    @cached_property
    def _known(self) -> list[tuple[Graph, Mesh, Written]]:
        return []


def check_choices(graph: Graph, mesh: Mesh, choices: Choices) -> None:
    """Check that choices say where each operator of a graph is computed, and of tensors only what can be.

    Raises
    ------
    ValueError
        Naming what is missing or does not fit.
    """
    placed = choices.of_kind("operator")
    for name in graph.nodes:
        if name not in placed:
            raise ValueError(f"the choices have no layout of operator {quote(name)}; plan the graph as it is now")
    fitting: set[tuple[Layout, tuple[int, ...]]] = set()  # many operators have one layout
    for (kind, name), layout in choices.layouts.items():
        what = f"the layout of {kind} {quote(name)}"
        is_given = ("source", name) in choices.layouts
        extents = _find_extents(graph, kind, name, what, is_given=is_given)
        is_nowhere = kind == "landing" and not any(cell is not None for cell in layout.cells)
        if not is_nowhere and (layout, extents) not in fitting:
            for wrong in _list_faults(extents, mesh, layout):
                raise ValueError(f"{what} {wrong}")
            fitting.add((layout, extents))
    for what, given in (("memory_nbytes", choices.memory_nbytes), ("spill_nbytes", choices.spill_nbytes)):
        if given is not None and (len(given) != mesh.size or min(given) < 0):
            raise ValueError(f"{what} of the choices is {quote(given)}; it is bytes for each of {mesh.size} devices")
    for name, order in choices.merged.items():
        if not list_stages_of(graph, choices, name, order):
            raise ValueError(
                f"the choices merge {quote(name)} in stages, {quote(order)} parts first; where its partial results are "
                "made and where they land must allow that"
            )
    if choices.fan_in is not None and choices.fan_in < 2:
        raise ValueError(f"fan_in of the choices is {choices.fan_in}; it is at least 2")


def list_placed(graph: Graph, choices: Choices) -> Iterator[tuple[str, Layout]]:
    """Inputs and constants that lie in layouts of their own before anything runs, as far as anything reads them."""
    read = {stored for node in graph.nodes.values() for name in node.inputs for stored in graph.source(name).stored}
    used = read.union(list_given_out(graph))
    for name, tensor in graph.stored.items():
        layout = choices.layouts.get(("source", name))
        if tensor.kind != "result" and layout is not None and name in used:
            yield name, layout


def list_given_out(graph: Graph) -> list[str]:
    """The stored tensors behind a graph's outputs, each once."""
    return list(dict.fromkeys(s for name in graph.outputs.values() for s in graph.source(name).stored))


def find_landing(choices: Choices, name: str) -> Layout | None:
    """The layout in which a tensor rests as soon as it is there; None where it stays where it is made."""
    layout = choices.layouts.get(("landing", name))
    return layout if layout is not None and any(cell is not None for cell in layout.cells) else None


def find_last_place(choices: Choices, name: str, in_parts: bool) -> Layout | None:
    """The layout to which a tensor is brought at the end: one in partial results, and one that was asked for there."""
    return choices.layouts.get(("output", name)) if in_parts or name in choices.asked_outputs else None


def list_stages_of(graph: Graph, choices: Choices, name: str, order: MergeOrder) -> tuple[MergeStage, ...]:
    """The stages in which partial results of a tensor are merged; none where they cannot be."""
    node = next((node for node in graph.nodes.values() if name in node.outputs), None)
    rests = choices.layouts.get(("landing", name))
    layout = None if node is None else choices.layouts.get(("operator", node.name))
    if node is None or rests is None or layout is None or order not in get_args(MergeOrder):
        return ()
    signature = graph.signature(node.name)
    bounds = project_bounds(signature.outputs[node.outputs.index(name)], layout)
    return list_merge_stages(bounds, layout.number_parts(signature.reductions), rests, order)


def _find_extents(graph: Graph, kind: str, name: str, what: str, *, is_given: bool) -> tuple[int, ...]:
    """The index space or the shape that a layout is of; what is given lands from where it lies."""
    if kind == "operator" and name in graph.nodes:
        return graph.signature(name).index_shape
    tensor = graph.stored.get(name)
    if kind not in ("source", "landing", "output") or tensor is None:
        raise ValueError(f"{what} is of nothing that the graph has")
    is_made = tensor.kind == "result"
    if kind != "output" and (kind == "source") == is_made and not (kind == "landing" and is_given):
        raise ValueError(f"{what} is of a tensor that is {'made' if is_made else 'given'}")
    return tensor.shape


def _list_faults(extents: tuple[int, ...], mesh: Mesh, layout: Layout) -> Iterator[str]:
    """What is wrong with a layout."""
    if layout.extents != extents or layout.digits:
        yield f"cuts extents {quote(layout.extents)}; it must cut {quote(extents)}"
    if len(layout.parts) != len(extents) or any(not 1 <= k <= n for k, n in zip(layout.parts, extents, strict=True)):
        yield f"has {quote(layout.parts)} parts; extents {quote(extents)} have from 1 to so many along each axis"
    if layout.sizes and [(len(each), sum(each), min(each, default=0) > 0) for each in layout.sizes] != [
        (k, n, True) for k, n in zip(layout.parts, extents, strict=True)
    ]:
        yield f"has parts of sizes {quote(layout.sizes)}; they must make up {quote(extents)} in {quote(layout.parts)}"
    if len(layout.cells) != mesh.size:
        yield f"has the parts of {len(layout.cells)} devices; the mesh has {mesh.size}"
    found = {cell for cell in layout.cells if cell is not None}
    for cell in found:
        if len(cell) != len(extents) or any(not 0 <= at < k for at, k in zip(cell, layout.parts, strict=True)):
            yield f"has a device with part {quote(cell)}; there are {quote(layout.parts)} parts"
    if layout.lots:
        yield from _list_lot_faults(extents, layout)
    if len(found) < prod(layout.parts):
        yield f"leaves {prod(layout.parts) - len(found)} of its parts to no device"


def _list_lot_faults(extents: tuple[int, ...], layout: Layout) -> Iterator[str]:
    """What is wrong with boxes that devices have."""
    if [lot is None for lot in layout.lots] != [cell is None for cell in layout.cells] or prod(layout.parts) > 1:
        yield f"has lots of {len(layout.lots)} devices; each device of one part has one"
    boxes = [() if lot is None else lot.boxes for lot in layout.lots]
    if any(lot is not None and lot.extents != extents for lot in layout.lots) or any(
        not Box.of(extents).contains(box) for each in boxes for box in each
    ):
        yield f"has boxes outside of {quote(extents)}"
    else:
        check_lots(boxes, extents, "its boxes")
