"""Wing onnx."""

from tapestry_plan.onnx.models import load_onnx, read_constant
from tapestry_plan.onnx.networks import before_softmax, demo_model, he_random, light_model
