"""What does a plan move at other sizes of its model, as formulas, and which is best there?

From the ground up; each row stands on rows above it:

    affine  polynomials      numbers that are affine in a size; polynomials, by remainder
    relations                what operators read at any size, as relations of isl
    reach                    between which sizes a model is affine in its size
    exchanges                who gets which cells at any size
    transfers                bytes of transfers as polynomials
    candidates               plans that may be the best at some sizes, given or planned there anew
    crossovers               sizes at which another plan wins
"""

from tapestry_plan.symbolic.crossovers import Crossover, Crossovers, crossovers
from tapestry_plan.symbolic.polynomials import Polynomials
from tapestry_plan.symbolic.transfers import (
    Refused,
    SymbolicTransfer,
    SymbolicTransfers,
    choose_symbol,
    find_transfers,
)
