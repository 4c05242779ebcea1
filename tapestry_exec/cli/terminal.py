"""What the `tapestry` command says on a terminal, or into a pipe: lines, tables, progress, errors of one line."""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from time import perf_counter
from typing import Any, NoReturn

import click

from tapestry_exec.cli import tuning
from tapestry_exec.run import BackendUnavailable, OrderingFault, ResultMismatch, StepFailed, TransferMismatch
from tapestry_sets.limits import Units, escape_controls, list_names, quote

DEBUG = "tapestry.debug"
"""Where a context keeps whether errors are to be shown with their traceback."""
BROKEN_PIPE = 128 + 13
"""The exit status of a command whose reader went away, as shells tell that SIGPIPE ended it."""
WENT_WRONG = (TransferMismatch, StepFailed, ResultMismatch, OrderingFault)
"""What a run raises that is nobody's input."""
DEFAULT_ERRORS = ("strict", "surrogateescape", "backslashreplace")
"""How Python's streams treat what they cannot encode, where nobody asked for something else."""
REFUSED = (ValueError, TypeError, IndexError, OSError, MemoryError, BackendUnavailable)
"""What is raised for what the user gave."""


class Command(click.Command):
    """A command with examples in its help, which can show where an error comes from.

    Parameters
    ----------
    *args, **extra
        As for `click.Command`.
    examples : sequence of str
        Lines of a shell, each of which runs as it stands.
    """

    def __init__(self, *args: Any, examples: Sequence[str] = (), **extra: Any) -> None:
        super().__init__(*args, **extra)
        self.examples = tuple(examples)
        words = "Show where an error comes from: a traceback in place of one line."
        self.params.append(
            click.Option(["--debug"], is_flag=True, is_eager=True, expose_value=False, callback=_note_debug, help=words)
        )

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:  # whole, so that they can be copied
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")


def _note_debug(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    ctx.meta[DEBUG] = value or ctx.meta.get(DEBUG, False)


class Commands(Command, click.Group):
    """A group whose errors are one line.

    The exit status is 2 for what the user gave, 1 for a run that went wrong and
    for what was asked as a status, 130 after Ctrl-C, 141 where nobody reads what is printed.
    """

    command_class = Command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args[0] in self.commands or args[0].startswith("-"):
            return super().resolve_command(ctx, args)
        raise click.UsageError(
            f"no such command {quote(args[0])}; {list_names(self.commands, args[0], 'commands')}", ctx
        )

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with ending_with_reader():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with ending_with_reader():
                return super().invoke(ctx)
        except KeyboardInterrupt:
            if sys.stderr.isatty():  # behind the ^C that the terminal shows
                click.echo(err=True)
            raise click.Abort from None
        except (click.ClickException, *WENT_WRONG, *REFUSED) as error:
            if not ctx.meta.get(DEBUG):
                raise
            echo("".join(traceback.format_exception(error)).rstrip(), err=True)
            sys.exit(_find_status(error))

    def main(self, *args: Any, **extra: Any) -> Any:
        ready_streams()
        try:
            status = super().main(*args, **{**extra, "standalone_mode": False})
        except click.ClickException as error:
            fail(error.format_message(), _find_status(error))
        except click.Abort:
            fail("stopped by Ctrl-C", 130)
        except (*WENT_WRONG, *REFUSED) as error:
            fail(str(error) or type(error).__name__, _find_status(error))
        sys.exit(status if isinstance(status, int) else 0)


def _find_status(error: Exception) -> int:
    return 1 if isinstance(error, WENT_WRONG) else 2


LOOKALIKES = str.maketrans(
    {"─": "-", "−": "-", "–": "-", "·": ".", "×": "x", "…": "...", "→": "->", "≈": "~", "±": "+-", "µ": "u"}
)
"""What stands for signs of the command's own where a terminal has not all of Unicode."""


def _spell(error: UnicodeError) -> tuple[str, int]:
    """Signs that an encoding has not, in ASCII: alike, or else as Python's escapes, so that none is lost."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end].translate(LOOKALIKES)
    return signs.encode("ascii", "backslashreplace").decode(), error.end


codecs.register_error("tapestry.spell", _spell)


def ready_streams() -> None:
    """Let any text be printed, whatever the terminal's encoding, and where who began the command closed a stream."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  # until the process ends
        elif isinstance(stream, io.TextIOWrapper) and stream.errors in DEFAULT_ERRORS:
            stream.reconfigure(errors="tapestry.spell")


def fail(message: str, status: int) -> None:
    echo("error: " + " ".join(message.split()), err=True)
    sys.exit(status)


@contextmanager
def ending_with_reader() -> Iterator[None]:
    """End quietly where nobody reads any more what is printed, as behind ``| head``."""
    try:
        yield
    except BrokenPipeError:
        _end_quietly()
    except SystemExit as error:  # so rich ends a program
        if not isinstance(error.__context__, BrokenPipeError):
            raise
        _end_quietly()


def _end_quietly() -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # what is left in their buffers is not tried again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(BROKEN_PIPE)


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
        return click.echo(escape_controls(text), file=sys.stderr)
    with naming_stdout():
        click.echo(escape_controls(text), file=sys.stdout)  # else click would take ASCII for UTF-8


def _plain(text: str) -> str:
    """A text of one line as rich shows it: no controls, no markup."""
    return escape_controls(text, keep="").replace("[", r"\[")


def escape_json(document: str) -> str:
    """The same document; what is not printable is written as JSON's escapes."""
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in document)


# ------------------------------------------------------------------------------------------------ progress


@contextmanager
def progress_bar(label: str, quiet: bool = False) -> Iterator[Callable[[int, int, str], None]]:
    """A progress callback for what lasts: a bar on a terminal, a line for each tenth elsewhere, on stderr."""
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


@contextmanager
def timed_progress(label: str, quiet: bool = False) -> Iterator[Callable[[int, int, str], None]]:
    """As `progress_bar`; at the end it says how long it took."""
    begin = perf_counter()
    with progress_bar(label, quiet) as report:
        yield report
    if not quiet:
        echo(f"{label}: {perf_counter() - begin:.2f} s", err=True)


# -------------------------------------------------------------------------------------------------- options

units_option = click.option(
    "--units",
    type=click.Choice(["human", "exact"]),
    default="human",
    show_default=True,
    callback=lambda ctx, param, value: Units(exact=value == "exact"),
    help="Numbers rounded in MiB, ms and GFLOP, or every byte, digit and operation.",
)
quiet_option = click.option("-q", "--quiet", is_flag=True, help="Say nothing on stderr but errors.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON; `tapestry schema` has its JSON Schema.")


# -------------------------------------------------------------------------------------------------- tables


def print_table(
    title: str, heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int], legend: str = ""
) -> None:
    """Print a table to stdout; columns in `numbers` are aligned at the right. The legend says what columns are.

    In a terminal cells are folded to its width. Elsewhere a row is a line, so that names are found in it, however long;
    a cell that is far longer than others pushes the rest of its own row to the right.
    """
    from rich.box import SIMPLE
    from rich.console import Console, JustifyMethod
    from rich.table import Table

    is_terminal = sys.stdout.isatty()
    console = Console(file=sys.stdout, width=None if is_terminal else tuning.PIPED_WIDTH, highlight=False)
    with naming_stdout():
        if title:  # in a line of its own, however narrow the table is
            console.print(_plain(title), style="italic", soft_wrap=True)
        if is_terminal:
            table = Table(box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
            for k, head in enumerate(heads):
                justify: JustifyMethod = "right" if k in numbers else "left"
                table.add_column(head, justify=justify, overflow="fold", no_wrap=k in numbers, min_width=len(head))
            for row in rows:
                table.add_row(*map(_plain, row))
            console.print(table)
        else:
            sys.stdout.writelines(f"{line.rstrip()}\n" for line in _piped_rows(heads, rows, numbers))
        if legend:
            console.print(_plain(legend), style="dim")


def _piped_rows(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int]) -> Iterator[str]:
    """Return a table for a file or another program, line by line."""
    from rich.cells import cell_len

    cells = [[escape_controls(cell, keep="") for cell in row] for row in rows]
    widths = [
        max([cell_len(head), *(n for cell in column if (n := cell_len(cell)) <= tuning.PIPED_CELL)])
        for head, *column in zip(heads, *cells, strict=True)
    ]
    yield ""
    for number, row in enumerate([list(heads), *cells]):
        gaps = [" " * max(0, width - cell_len(cell)) for cell, width in zip(row, widths, strict=True)]
        padded = [
            gap + cell if k in numbers else cell + gap for k, (cell, gap) in enumerate(zip(row, gaps, strict=True))
        ]
        yield f" {'  '.join(padded)}"
        if not number:
            yield f" {'─' * (sum(widths) + 2 * len(widths) - 2)}"
    yield ""
