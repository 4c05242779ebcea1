"""Blocks: what devices' parts of operators read, see and make of tensors, each answer once for alike operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tapestry_plan.ir import Graph, OpNode
from tapestry_plan.steps.layouts.cells import CellAlgebra
from tapestry_plan.steps.layouts.holders import Holders, meets, project_bounds
from tapestry_plan.steps.layouts.layout import Layout, Lot
from tapestry_plan.steps.layouts.local import list_pieces
from tapestry_plan.steps.layouts.mesh import Mesh
from tapestry_plan.steps.layouts.reads import Reads
from tapestry_plan.steps.layouts.routes import BoolArray
from tapestry_sets.limits import OPEN, REFUSALS, ask_one
from tapestry_sets.regions import Box, DisjointRegions, Region
from tapestry_sets.views import Guard, Piece, piece_domain


class OperatorBlocks:
    """What the blocks of a graph's operators read and make, by the layouts that were chosen.

    Parameters
    ----------
    graph : Graph
    mesh : Mesh
    layouts : mapping of (kind, name) to Layout
    reads : Reads
    algebra : CellAlgebra
        Where answers are kept.
    """

    def __init__(
        self,
        graph: Graph,
        mesh: Mesh,
        layouts: Mapping[tuple[str, str], Layout],
        reads: Reads,
        algebra: CellAlgebra,
    ) -> None:
        self.graph, self.mesh, self.layouts, self.reads, self.algebra = graph, mesh, layouts, reads, algebra
        self.order = graph.order()

    def see(self, node: OpNode, operand: int, index: Box) -> DisjointRegions:
        """The cells of a view that a block reads."""
        shape = self.graph.source(node.inputs[operand]).shape
        key = "seen", self.reads.kind(node), operand, index
        return self.algebra.fact(key, lambda: self.graph.signature(node.name).input_region(operand, index, shape))

    def input_box(self, node: OpNode, operand: int, index: Box) -> Box | None:
        """The box of an operand that an index box reads."""
        key = "input", self.reads.kind(node), operand, index
        return self.algebra.fact(key, lambda: self.graph.signature(node.name).input_box(operand, index))

    def output_box(self, node: OpNode, output: int, index: Box) -> Box:
        """The box of an output that an index box makes."""
        key = "output", self.reads.kind(node), output, index
        box = self.algebra.fact(key, lambda: self.graph.signature(node.name).output_box(output, index))
        assert box is not None, "shards are not empty"
        return box

    def list_pieces(self, node: OpNode, operand: int, index: Box) -> list[tuple[Piece, tuple[Region, ...]]]:
        """Of a block of a viewed tensor: the pieces that it reads through, and the cells that each gives."""
        key = "pieces", self.reads.kind(node), operand, index
        return self.algebra.fact(
            key, lambda: [(piece, cells.members) for piece, cells in list_pieces(self.graph, node, operand, index)]
        )

    def read(self, node: OpNode, operand: int, stored: str, device: int) -> DisjointRegions:
        """The cells of a stored tensor that a device reads of it for an operand."""
        index = self.layouts["operator", node.name].box(device)
        assert index is not None, "idle devices read nothing"
        return self.reads.of_operand(node, operand, index)[stored]

    def list_readers(self, node: OpNode, operand: int, k: int, cells: DisjointRegions) -> BoolArray:
        """The devices on which an operator may read some cells of the k-th stored tensor behind an operand."""
        layout = self.layouts["operator", node.name]
        declared = self.graph.signature(node.name).inputs[operand]
        if declared.outside != "forbid":
            return layout.bounds[0]
        kind = "readers", self.reads.kind(node), operand, self.algebra.identity(layout)

        def found() -> BoolArray:
            seen = self._look_through(node.inputs[operand], k, cells)
            return meets(self.algebra.fact(kind, lambda: project_bounds(declared, layout)), seen)

        return self.algebra.fact((*kind, k, self.algebra.identity(cells)), found)

    def _look_through(self, name: str, k: int, cells: DisjointRegions) -> Box:
        """A box around the cells of a tensor that are read from some of the k-th stored one behind it."""
        source = self.graph.source(name)
        pieces = [piece for piece in source.pieces if piece.source == k]
        key = "view", self.reads.source_key(name), k, self.algebra.identity(cells)
        found = self.algebra.fact(key, lambda: ask_one(REFUSALS, _find_around, source.shape, pieces, cells))
        return Box.of(source.shape) if found is OPEN else found

    def list_read(self, name: str) -> dict[int, list[DisjointRegions]]:
        """What operators read of a tensor, by device."""
        found: dict[int, list[DisjointRegions]] = {device: [] for device in range(self.mesh.size)}
        for node in self.order:
            for device, index in enumerate(self.layouts["operator", node.name].boxes):
                for operand, read in enumerate(node.inputs if index is not None else ()):
                    if index is not None and name in self.graph.source(read).stored:
                        found[device].append(self.reads.of_operand(node, operand, index)[name])
        return found

    def hold_blocks(self, layout: Layout) -> Holders:
        """Who holds a tensor that lies in the blocks of a layout of its own."""
        key = "blocks", self.algebra.identity(layout)
        return self.algebra.fact(key, lambda: Holders(self.mesh, layout.bounds, lots=layout.lots))

    def hold_output(self, node: OpNode, output: int, layout: Layout) -> Holders:
        """Who holds an output: complete, or in partial results where a reduction is cut."""
        signature = self.graph.signature(node.name)
        cut = signature.reductions

        def made() -> Holders:
            numbers = layout.number_parts(cut) if layout.count_parts(cut) > 1 else None
            return Holders(self.mesh, project_bounds(signature.outputs[output], layout), numbers)

        return self.algebra.fact(("made", self.reads.kind(node), output, self.algebra.identity(layout)), made)

    def find_cells(self, box: Box, lots: Sequence[Lot | None], device: int, shape: tuple[int, ...]) -> DisjointRegions:
        """What a device has of a tensor: all of a box, or its lot within that."""
        lot = lots[device] if lots else None
        return self.algebra.of_box(box, shape) if lot is None else lot.cells


def _find_around(shape: tuple[int, ...], pieces: Iterable[Piece], cells: DisjointRegions) -> Box:
    """The box around the cells of a view that read some cells through one of its pieces."""
    around = None
    for piece in pieces:
        for member in cells.members:
            guards = *piece.guards, Guard(len(piece.map.steps), member)
            bounds = piece_domain(Piece(piece.source, guards, piece.map, piece.fill), Box.of(shape)).bounds()
            if bounds is not None:
                box = Box.from_bounds(*bounds)
                around = box if around is None else around.hull(box)
    return Box((0,) * len(shape), (0,) * len(shape)) if around is None else around
