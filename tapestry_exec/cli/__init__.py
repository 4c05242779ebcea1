"""What does the command `tapestry` do?

From the ground up; each row stands on rows above it:

    terminal  expression         lines, tables and errors; views, sets and projections from text
    answers                      the documents that ``--json`` prints, with their schemas
    planning  operators          what is asked of a plan, from text; the operators that come along
    models  pictures  printing   models and inputs; what `show` draws; what is printed of a plan and its run
    staging                      models in stages
    commands                     demo, plan, export, pareto, run, calibrate
    looking  saved  sizing       overlap, show, ops, schema; explain, transfers, verify: of a saved plan; sizes
    __main__                     the command as a module

To add a command, write its function in one of the last four modules, or in one more that is imported below; its
examples are run by the tests. What it prints with ``--json`` is a struct in `answers`, which makes its schema.
"""

from tapestry_exec.cli import looking, saved, sizing
from tapestry_exec.cli.commands import main

__all__ = ["looking", "main", "saved", "sizing"]
