"""What does the command `tapestry` do?

The commands demo, plan, run and overlap, and views written as text.
"""

from tapestry_exec.cli.commands import main
