"""The numbers of this wing: what an import may compute in advance. No result of a graph changes with them."""

# -- what ONNX says ------------------------------------------------------------------------------------------

KNOWN_OPSET = 28
"""The newest opset that the importers follow; an operator whose schema changed later is refused."""
MIN_OPSET = 18
"""Models are written in this version of ONNX's operators, or in a later one that an operator needs."""
SHARDED_IR_VERSION = 11
"""That which has shardings."""
IR_VERSION = 10
"""Of the format of written models: what ONNX Runtime of 2024 reads."""
MISCOUNTED_OPSET = 21
"""The last one whose inference counts a window of a pool that begins in the padding behind the cells."""
BEFORE_ALL = -(2**31)
"""The bound of a slice that goes down to the first cell."""
FLOAT = 1
"""ONNX's number of float32."""
INT32 = 6
"""ONNX's number of int32."""
CUBIC = -0.75
"""The slope of GridSample's cubic weights, as PyTorch has it."""

# -- bounds of work and memory -------------------------------------------------------------------------------

FOLDED_NBYTES = 2**28
"""Nodes whose inputs are known are evaluated at import while they read and make so many bytes in all …"""
FOLDED_TIMES = 16
"""… and so many for each byte that the model itself stores: weights of 4 bits are dequantized and then transposed."""
MESSAGE_NBYTES = 2**31 - 1
"""What one message of protobuf may have, hence a model in memory with its sparse tensors made dense."""
CELLWISE_TIMES = 256
"""Bytes count so many times where ONNX's reference implementation loops over cells in Python."""
SHAPE_CELLS = 2**12
"""Known inputs of up to so many cells are shown to shape inference: they may be shapes, axes, counts."""
INFERENCE_NBYTES = 2**30
"""Of data that ONNX's shape inference may take for a node that runs whole …"""
INFERENCE_SECONDS = 10
"""… and how long it may take."""
MAX_RANK = 64
"""Of operands that a local function's declaration says, NumPy's own."""
MAX_INLINED_NODES = 2**12
"""Nodes that local functions may stand for in all, whatever the model's own number of nodes …"""
INLINED_TIMES = 16
"""… and so many for each node that the model itself has: each takes a millisecond to import."""
TRIED_EXTENTS = 64
"""Parts of a Loop or Scan that are all tried where its body computes with shapes."""
TRIED_ROUNDS = 2**14
"""Rounds of a Loop of which each is asked whether it goes on."""
VIEWED_INDICES = 2**18
"""Known indices, up to so many, make a view with exact regions; more are a constant that an operator reads."""
MAPPED_NBYTES = 2**16
"""Values of so many bytes that lie beside a model are mapped, smaller ones read: they may be shapes, and soon asked."""
MAX_TABLE_CELLS = 2**20
"""A view that no few nodes make is written as a table of its cells while it has no more than these."""
