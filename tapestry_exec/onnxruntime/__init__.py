"""How does ONNX Runtime run the blocks of a plan?

A block that does not depend on where it lies is written as a small model, with the constants that stay as its weights,
and has a session of its own; other blocks are NumPy's. Arenas, copies and counts are those of the wing `numpy`.
"""

from tapestry_exec.onnxruntime.backend import OnnxruntimeBackend
