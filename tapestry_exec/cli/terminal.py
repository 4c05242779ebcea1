"""What the `tapestry` command says on a terminal, or into a pipe: lines, tables, progress, errors of one line."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from time import perf_counter
from typing import Any

import click

from tapestry_exec.cli import tuning
from tapestry_exec.run import BackendUnavailable, OrderingFault, ResultMismatch, StepFailed, TransferMismatch
from tapestry_sets.limits import escape_controls


class Commands(click.Group):
    """A group whose errors are one line.

    The exit status is 2 for what the user gave, 1 for a run that went wrong and
    for what was asked as a status, 130 after Ctrl-C.
    """

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            if sys.stderr.isatty():  # behind the ^C that the terminal shows
                click.echo(err=True)
            raise click.Abort from None

    def main(self, *args: Any, **extra: Any) -> Any:
        try:
            status = super().main(*args, **{**extra, "standalone_mode": False})
        except click.ClickException as error:
            fail(error.format_message(), 2)
        except click.Abort:
            fail("stopped by Ctrl-C", 130)
        except (TransferMismatch, StepFailed, ResultMismatch, OrderingFault) as error:
            fail(str(error), 1)
        except (ValueError, TypeError, IndexError, OSError, MemoryError, BackendUnavailable) as error:
            fail(str(error) or type(error).__name__, 2)
        sys.exit(status if isinstance(status, int) else 0)


def fail(message: str, status: int) -> None:
    echo("error: " + " ".join(message.split()), err=True)
    sys.exit(status)


@contextmanager
def naming_stdout() -> Iterator[None]:
    """Let an error of the system, as of a disk that is full, say that standard output is meant."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        with suppress(OSError):  # what is left in its buffer is not tried again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OSError(error.errno, error.strerror or str(error), "standard output") from error


def echo(text: str, err: bool = False) -> None:
    """Print a text; what terminals would obey is shown escaped."""
    if err:
        return click.echo(escape_controls(text), err=True)
    with naming_stdout():
        click.echo(escape_controls(text))


def _plain(text: str) -> str:
    """A text of one line as rich shows it: no controls, no markup."""
    return escape_controls(text, keep="").replace("[", r"\[")


def escape_json(document: str) -> str:
    """The same document; what is not printable is written as JSON's escapes."""
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in document)


# ------------------------------------------------------------------------------------------------ progress


@contextmanager
def progress_bar(label: str, quiet: bool = False) -> Iterator[Callable[[int, int, str], None]]:
    """A progress callback for runs that last: a bar on a terminal, a line for each tenth elsewhere, on stderr."""
    if quiet:
        yield lambda done, total, name: None
        return
    with ExitStack() as stack:
        shown: list[Callable[[int, int, str], None]] = []
        begin = perf_counter()

        def report(done: int, total: int, name: str) -> None:
            if not shown and perf_counter() - begin >= tuning.SHOWN_AFTER:
                shown.append(stack.enter_context(_bar(label)) if sys.stderr.isatty() else _plain_lines(label))
            for each in shown:
                each(done, total, name)

        yield report


@contextmanager
def _bar(label: str) -> Iterator[Callable[[int, int, str], None]]:
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total, name: bar.update(
            task, completed=done, total=total, description=_plain(f"{label} {name}")
        )


def _plain_lines(label: str) -> Callable[[int, int, str], None]:
    tenths = 0

    def report(done: int, total: int, name: str) -> None:
        nonlocal tenths
        if total and done * 10 // total > tenths:
            tenths = done * 10 // total
            echo(f"{label}: {tenths * 10} % ({done} of {total} steps, {name})", err=True)

    return report


@contextmanager
def timed(label: str, quiet: bool = False) -> Iterator[None]:
    """Say what is being done, and how long it took: a spinner on a terminal, a plain line elsewhere."""
    begin = perf_counter()
    if sys.stderr.isatty() and not quiet:
        from rich.console import Console

        with Console(stderr=True).status(label):
            yield
    else:
        yield
    if not quiet:
        echo(f"{label}: {perf_counter() - begin:.2f} s", err=True)


# -------------------------------------------------------------------------------------------------- tables


def print_table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int]) -> None:
    """Print a table to stdout; columns in `numbers` are aligned at the right."""
    from rich.box import SIMPLE
    from rich.console import Console
    from rich.table import Table

    table = Table(box=SIMPLE, pad_edge=False)
    for k, head in enumerate(heads):
        table.add_column(head, justify="right" if k in numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_plain(cell) for cell in row))
    console = Console(file=sys.stdout, width=None if sys.stdout.isatty() else 110, highlight=False)
    with naming_stdout():
        if title:  # in a line of its own, however narrow the table is
            console.print(_plain(title), style="italic", soft_wrap=True)
        console.print(table)
