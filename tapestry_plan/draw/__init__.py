"""Wing draw."""

from tapestry_plan.draw.projections import show_projection

__all__ = ["show_projection"]
