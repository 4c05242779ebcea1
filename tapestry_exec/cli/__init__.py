"""The `tapestry` command."""

from tapestry_exec.cli.commands import main
