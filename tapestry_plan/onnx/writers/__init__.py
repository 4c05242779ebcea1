"""How does a graph or a plan become an ONNX model?

Operators, views as nodes, and how a plan cuts them.
"""
