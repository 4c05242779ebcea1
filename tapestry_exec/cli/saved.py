"""Questions to a plan that was saved by `tapestry plan --json`: why, which bytes go where, is it whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import click
from click.shell_completion import CompletionItem
from msgspec import Raw

from tapestry_exec.cli.answers import (
    DeviceFigures,
    ExplainAnswer,
    PlanFigures,
    TransfersAnswer,
    VerifyAnswer,
    print_answer,
)
from tapestry_exec.cli.commands import main
from tapestry_exec.cli.planning import PATH, read_plan
from tapestry_exec.cli.printing import print_devices, print_totals
from tapestry_exec.cli.terminal import echo, json_option, print_table, units_option
from tapestry_exec.run import InvalidPlan, check_plan
from tapestry_sets.limits import Units, quote, tell_count

HEADS = ("step", "from", "to", "tensor", "cells", "made by", "read by", "size", "why")
"""What a table of transfers calls its columns."""
LEGEND = "step: of the plan; from, to: devices; cells: of the tensor; made by, read by: operators"

plan_argument = click.argument("file", type=PATH, metavar="PLAN.json")


def complete_stages(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The operators of the plan that is given, for shells that complete; none of another file."""
    try:
        stages = json.loads(Path(ctx.params["file"]).read_bytes())["stages"]
        return [CompletionItem(one["node"]) for one in stages if one["node"].startswith(incomplete)]
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return []


@main.command(
    "explain",
    short_help="Say why operators of a saved plan are sharded so.",
    examples=["tapestry explain plan.json conv act x", "tapestry explain plan.json conv --json"],
)
@plan_argument
@click.argument("operators", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_stages)
@json_option
def explain_command(file: Path, operators: tuple[str, ...], as_json: bool) -> None:
    """Say why operators of a saved plan are sharded as they are, and what they would cost otherwise, and why.

    Of an input, a weight or a view: where it lies, who reads it, and what moves because of it.

    `tapestry plan MODEL --like PLAN.json --fix OPERATOR=AXIS:PARTS` makes the plan that has one of the others.
    """
    p = read_plan(file)
    if as_json:
        return print_answer(ExplainAnswer.of(p, operators))
    echo("\n\n".join(p.explain(operator) for operator in operators))


@main.command(
    "transfers",
    short_help="Print what a saved plan moves, where and why.",
    examples=["tapestry transfers plan.json --from 1 --to 2", "tapestry transfers plan.json --consumer act --json"],
)
@plan_argument
@click.option("--from", "source", type=click.IntRange(0), metavar="DEVICE", help="Only from this device.")
@click.option("--to", "target", type=click.IntRange(0), metavar="DEVICE", help="Only to this device.")
@click.option("--tensor", metavar="NAME", help="Only of this tensor.")
@click.option("--producer", metavar="OPERATOR", help="Only of what this operator makes; input or constant: is given.")
@click.option("--consumer", metavar="OPERATOR", help="Only for this operator.")
@units_option
@json_option
def transfers_command(
    file: Path,
    source: int | None,
    target: int | None,
    tensor: str | None,
    producer: str | None,
    consumer: str | None,
    units: Units,
    as_json: bool,
) -> None:
    """Print what a saved plan moves from device to device: which bytes of which tensor, for whom, and why."""
    p = read_plan(file)
    found = p.transfers(source, target, tensor=tensor, producer=producer, consumer=consumer)
    if as_json:
        rows = cast(Any, Raw(found.to_json().encode()))
        return print_answer(TransfersAnswer(rows, found.nbytes, p.nbytes_moved))
    if not found:
        return echo(found.tell_elsewhere(units.nbytes))
    table = [
        (
            str(row.step),
            str(row.source),
            str(row.target),
            row.tensor,
            row.cells,
            row.producer,
            row.consumer,
            units.nbytes(row.nbytes),
            row.why,
        )
        for row in found
    ]
    print_table("", HEADS, table, (0, 1, 2, 7), LEGEND)
    whole = units.nbytes(p.nbytes_moved)
    echo(f"{tell_count(len(found), 'transfer')}, {units.nbytes(found.nbytes)}; in the whole plan {whole}")


@main.command(
    "verify",
    short_help="Check a saved plan without running it.",
    examples=["tapestry verify plan.json", "tapestry verify plan.json --units exact"],
)
@plan_argument
@units_option
@json_option
def verify_command(file: Path, units: Units, as_json: bool) -> None:
    """Check a saved plan without running it: its digest, its steps, and the bytes that it says it moves.

    Every step is followed: each cell is there when it is read, no two buffers that live lie over one another, index
    boxes cover each operator once, and outputs are whole.
    """
    p = read_plan(file)
    shards = check_plan(p)
    moved = p.transfers().nbytes_by("source", "target")
    if moved != p.nbytes_by_link:
        raise InvalidPlan(
            f"{quote(str(file))}: its steps move {sum(moved.values()):,} B and it says {p.nbytes_moved:,}; make the "
            "plan again"
        )
    if as_json:
        return print_answer(VerifyAnswer(PlanFigures.of(p), len(p.steps), len(shards), DeviceFigures.list_of(p)))
    print_devices(p, None, units)
    print_totals(p, units)
    whole = units.nbytes(p.nbytes_moved)
    echo(
        f"{tell_count(len(p.steps), 'step')} with {tell_count(len(shards), 'shard')} fit together; bytes moved: {whole}"
    )
