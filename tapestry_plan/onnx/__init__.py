"""How does an ONNX model become a graph, and a graph or a plan a model?

The importer with its table of operators, the way back, and real networks with seeded weights; no other wing imports
onnx, but who runs `ops.opaque`.

From the ground up; each row stands on rows above it:

    inference              ONNX's checker and shape inference, in a process of their own
    outside                values of tensors, those too that lie in files beside the model
    nodes  walks           nodes of models, and what an importer sees of them; recurrences as functions of models
    symbols                names of open axes, and those that follow from others
    inputs  order          open axes, and values known before any run; the nodes that are needed, in order
    sparse                 sparse tensors of a model as dense ones
    importers/views        selections
    importers/windows      windows over spatial axes, and resizing
    importers              the other families of operators, a module for each
    operators  examples    the table of all that is imported; a small model of each operator
    ways                   in which way each operator runs, counted
    replacing/lasting      whether a Loop has more rounds than may stand in its place
    replacing/bodies       nodes that stand in the place of one
    replacing              local functions, known values, folded normalizations, Scans of opset 8, nodes that run whole
    adding                 one node after another becomes part of a graph
    replacing/branches     the branch that an If takes
    models                 a model as a graph
    supported              what the table says, for people
    networks  stages       real networks with seeded weights; models whose shapes follow from values
    writers/sharding       how a plan cuts its operators, in its model
    writers/view_writing   views as nodes
    writers                graphs and plans as models
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
from tapestry_plan.onnx.ways import count_ways
from tapestry_plan.onnx.writers.writing import WRITERS, check_onnx, to_onnx
