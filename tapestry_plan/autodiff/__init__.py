"""What is the gradient of a graph?

Adjoints of operators, and reverse mode over a graph.
"""

from tapestry_plan.autodiff import adjoints
from tapestry_plan.autodiff.gradient import gradient
