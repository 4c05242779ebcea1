"""The two spaces of layouts: the larger one has no dearer plans, the smaller one is nearly as good on few devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from tapestry_plan import Mesh, load_onnx, plan

MODELS = Path(__file__).parents[2] / "models"


@pytest.mark.heavy(2)
@pytest.mark.parametrize(
    ("model", "devices"), [("gpt2", 3), ("bert", 3), ("resnet", 3), ("gpt2", 4), ("bert", 6), ("resnet", 6)]
)
def test_layouts_along_the_mesh_cost_little_more_than_all(model: str, devices: int) -> None:
    """Two heads on three devices are two parts and an idle device: both spaces have that."""
    g = load_onnx(MODELS / f"{model}.onnx")
    wide, narrow = (plan(g, Mesh((devices,)), space=space, expand=False) for space in ("all", "mesh"))
    assert wide.gap == narrow.gap == 0
    # Neighbors ask those along the mesh for others than all, so that here and there these find a little less.
    assert 0.975 * wide.cost <= narrow.cost <= 1.02 * wide.cost
