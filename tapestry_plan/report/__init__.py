"""What does a plan come to, and why?

One page about a plan, the same panels in notebooks, and widgets that plan anew. Each row stands on rows above it:

    tuning                              how much is shown, and how large a file may be
    markup                              elements of HTML
    summary  traffic  arenas  lanes     panels: totals and assumptions, bytes by pair, memory, time
    home  network                       code to take home; the graph as plain data, with repeated blocks
    operators                           why operators are sharded as they are
    page                                the file
    showing                             plans in notebooks
    widgets                             explorers of plans and of overlaps

Examples
--------
>>> from tapestry_plan import Graph, Mesh, plan, report
>>> g = Graph("perceptron")
>>> _ = g.output(g.input("x", (8, 8)) @ g.input("w", (8, 8)))
>>> page = report.make_report(plan(g, Mesh(2)))
>>> page.html.startswith("<!doctype html>"), len(page.html) < 2_000_000
(True, True)
"""

from tapestry_plan.report.page import Report, make_report
from tapestry_plan.report.showing import show_plan, show_run  # plans show themselves through it
