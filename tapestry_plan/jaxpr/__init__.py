"""How does a function that JAX traced become a graph?

JAX is not imported: what it traced is read by its fields. Each row stands on rows above it:

    tuning        how far loops are unrolled
    primitives    what each primitive of JAX is, in operators and views
    reading       equations one after another, and what is inside of them

Examples
--------
>>> from tapestry_plan.jaxpr import PRIMITIVES
>>> [name for name in ("dot_general", "while") if name in PRIMITIVES]
['dot_general']
"""

from tapestry_plan.jaxpr.primitives import PRIMITIVES
from tapestry_plan.jaxpr.reading import from_jaxpr
