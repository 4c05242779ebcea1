"""Signatures: authoring by linear forms, exact regions, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tapestry_plan import Axis, Graph, Op, Operand, Signature, project
from tapestry_sets import Box

AXES = (Axis("n", 1), Axis("c", 4), Axis("h", 5), Axis("kh", 3, "reduction"))


def conv_like(pad: float | None = 0.0, offset: int = -1) -> Signature:
    """y[c, h] = Σ_kh x[c // 2, 2h + kh − 1] over two groups of channels."""
    x = Operand(project(AXES, [{"c//": 1}, {"h": 2, "kh": 1, "": offset}], splits={"c": 2}), pad)
    y = Operand(project(AXES, [{"c": 1}, {"h": 1}]))
    return Signature(AXES, (x,), (y,))


def test_regions_are_those_of_the_index_points() -> None:
    signature = conv_like()
    for start, shape in [((0, 0, 0, 0), (1, 4, 5, 3)), ((0, 1, 1, 0), (1, 2, 2, 3)), ((0, 3, 4, 1), (1, 1, 1, 2))]:
        box = Box(start, shape)
        cells = {(c // 2, 2 * h + kh - 1) for _, c, h, kh in box.points() if 0 <= 2 * h + kh - 1 < 11}
        region = signature.input_region(0, box, (2, 11))
        assert {tuple(point) for point in region.points().tolist()} == cells


def test_operands_that_only_the_first_part_reads() -> None:
    bias = Operand(project(AXES, [{"c": 1}]), at_start_of=("kh",))
    signature = Signature(AXES, (bias,), conv_like().outputs)
    first, later = Box((0, 0, 0, 0), (1, 4, 5, 1)), Box((0, 0, 0, 1), (1, 4, 5, 2))
    assert signature.input_region(0, first, (4,)).size == 4
    assert signature.input_region(0, later, (4,)).size == 0
    assert signature.input_box(0, later) is None


def test_axes_answer_to_their_alias() -> None:
    signature = Signature((Axis("m", 3, alias="batch"),), (), ())
    assert signature.axis("m") == signature.axis("batch") == 0
    with pytest.raises(ValueError, match="no index axis 'q'"):
        signature.axis("q")


def test_unknown_names_in_forms() -> None:
    with pytest.raises(ValueError, match="coordinate 0 uses 'w'"):
        project(AXES, [{"w": 1}])


def test_reading_outside_needs_a_padding() -> None:
    with pytest.raises(ValueError, match="declare a padding value"):
        conv_like(pad=None).validate([(2, 11)], [(4, 5)], "here")
    conv_like().validate([(2, 11)], [(4, 5)], "here")


@pytest.mark.parametrize(
    ("forms", "shape"),
    [
        ([{"c": 1}, {"h": 1}], (4, 6)),  # a gap at the end
        ([{"c": 1}, {}], (4, 1)),  # every h writes the same cells
        ([{"c": 1}, {"h": 2}], (4, 9)),  # gaps between
        ([{"c": 1}, {"h": 1, "": 1}], (4, 5)),  # outside
    ],
)
def test_outputs_are_written_exactly_once(forms: list[dict[str, int]], shape: tuple[int, ...]) -> None:
    signature = Signature(AXES, (), (Operand(project(AXES, forms)),))
    with pytest.raises(ValueError, match="exactly once"):
        signature.validate([], [shape], "here")


def test_outputs_do_not_move_along_reductions() -> None:
    signature = Signature(AXES, (), (Operand(project(AXES, [{"c": 1}, {"kh": 1}])),))
    with pytest.raises(ValueError, match="reduction axis"):
        signature.validate([], [(4, 3)], "here")


def test_counts_and_ranks_are_checked() -> None:
    with pytest.raises(ValueError, match="2 inputs given"):
        conv_like().validate([(2, 11), (3,)], [(4, 5)], "here")
    with pytest.raises(ValueError, match="rank 3"):
        conv_like().validate([(2, 11, 1)], [(4, 5)], "here")


def test_a_reduction_needs_a_merge() -> None:
    def signature(shapes, attrs):  # type: ignore[no-untyped-def]
        axes = (Axis("k", shapes[0][0], "reduction"),)
        return Signature(axes, (Operand(project(axes, [{"k": 1}])),), (Operand(project(axes, [])),))

    def block(xp, inputs, outputs, shard):  # type: ignore[no-untyped-def]
        outputs[0][...] = xp.sum(inputs[0])

    g = Graph()
    x = g.input("x", (5,))
    with pytest.raises(ValueError, match="how parts merge"):
        g.op(Op("total", signature, block), x)
    assert not g.nodes and "total" not in g.ops
    assert g.op(Op("total", signature, block, reduction="sum"), x).shape == ()
    assert np.dtype(g.stored["total"].dtype) == np.float32
