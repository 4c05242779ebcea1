"""What does the command `tapestry` do?

From the ground up; each row stands on rows above it:

    terminal  expression  planning       lines, tables and errors; views, and what is asked of a plan, from text
    commands                             demo, plan, export, pareto, run, calibrate, schema, overlap
    saved                                explain, transfers, verify: of a plan that was saved
    __main__                             the command as a module
"""

from tapestry_exec.cli import saved
from tapestry_exec.cli.commands import main

__all__ = ["main", "saved"]
