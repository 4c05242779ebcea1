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
"""

from tapestry_plan.report.page import Report, make_report
from tapestry_plan.report.showing import show_plan, show_run  # plans show themselves through it
