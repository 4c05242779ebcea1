"""``python -m tapestry_exec.cli``."""

from tapestry_exec.cli.commands import main

main()
