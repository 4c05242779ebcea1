"""Plans whose reports are looked at."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tapestry_plan import Graph, Mesh, ShardPlan, load_onnx, ops, plan
from tapestry_plan.onnx import before_softmax, light_model
from tests.layered_models import gpt

MODELS = Path(__file__).parent / "models"


def chain(name: str = "x") -> Graph:
    """Operators that are repeated, one that is not, and rows that become columns, which moves bytes."""
    g = Graph(f"{name} chain")
    x = g.input(name, (16, 24))
    for k in range(4):
        x = ops.relu(
            ops.matmul(x, g.input(f"{name} w{k}", (24, 24)), name=f"{name} product{k}"), name=f"{name} relu{k}"
        )
    g.output(ops.softmax(ops.exp(x.T, name=f"{name} turned"), axis=-1, name=f"{name} end"), f"{name} y")
    return g


def residual() -> Graph:
    """Products beside each of which an input is added; in little memory it is placed again for each."""
    g = Graph("residual")
    x = y = g.input("x", (64, 64))
    for k in range(4):
        y = ops.tanh(y * 2.0) @ g.input(f"w{k}", (64, 64)) + x
    g.output(y, "y")
    return g


@cache
def transformer() -> ShardPlan:
    """A small GPT-2, whose plan has 36 operators, on 2×2 devices."""
    return plan(load_onnx(MODELS / "gpt2.onnx"), Mesh((2, 2)))


@cache
def resnet50() -> ShardPlan:
    """ResNet-50 on 2×2 devices."""
    model = light_model("resnet50", seed=1)
    return plan(load_onnx(model, outputs=before_softmax(model)), Mesh((2, 2)))


@cache
def layers() -> ShardPlan:
    """25 layers of a GPT, 400 operators that are not in blocks, on 2×2 devices."""
    return plan(load_onnx(gpt(25)), Mesh((2, 2)), fuse=False)
