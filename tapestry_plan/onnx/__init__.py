"""How does an ONNX model become a graph, and a graph or a plan a model?

The importer with its table of operators, the way back, and real networks with seeded weights; no other wing imports
onnx, but the block of `ops.opaque`.
"""

from tapestry_plan.onnx.models import (  # kept: one who runs a plan asks for it by name
    load_onnx,
    read_constant,
    read_constants,
)
from tapestry_plan.onnx.networks import before_softmax, demo_model, he_random, light_model
from tapestry_plan.onnx.nodes import Import, Importing, Node
from tapestry_plan.onnx.operators import IMPORTERS
from tapestry_plan.onnx.stages import ModelStage, StagedModel
from tapestry_plan.onnx.supported import Supported, list_supported
from tapestry_plan.onnx.writing import WRITERS, to_onnx
