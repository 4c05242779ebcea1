"""What do isl and a linear equation answer?

isl behind one module, bounded linear equations, index expressions of sympy. No type of set is known here.
"""

from tapestry_sets.solvers import equation, isl
from tapestry_sets.solvers.expressions import read_exprs
from tapestry_sets.solvers.isl import to_isl
