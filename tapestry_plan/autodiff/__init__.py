"""Wing autodiff."""

from tapestry_plan.autodiff import adjoints
from tapestry_plan.autodiff.gradient import gradient
