"""Wing solvers."""

from tapestry_sets.solvers import equation, isl
from tapestry_sets.solvers.expressions import read_exprs
from tapestry_sets.solvers.isl import to_isl
