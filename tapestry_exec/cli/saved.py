"""Questions to a plan that was saved by `tapestry plan --json`: why, which bytes go where, is it whole."""

from __future__ import annotations

from pathlib import Path

import click

from tapestry_exec.cli.commands import main, print_devices, print_totals
from tapestry_exec.cli.planning import PATH, find_file
from tapestry_exec.cli.terminal import echo, escape_json, print_table
from tapestry_exec.run import InvalidPlan, check_plan
from tapestry_plan.steps import ShardPlan
from tapestry_sets.limits import quote

HEADS = ("step", "from", "to", "tensor", "cells", "made by", "read by", "bytes", "why")
"""What a table of transfers calls its columns."""

plan_argument = click.argument("file", type=PATH, metavar="PLAN.json")


def read_plan(file: Path) -> ShardPlan:
    """The plan of a document that fits itself: its digest, its fields, and its figures."""
    try:
        return ShardPlan.from_json(find_file(file).read_bytes())
    except ValueError as error:
        raise click.UsageError(f"{quote(str(file))}: {error}") from None


@main.command("explain")
@plan_argument
@click.argument("operators", nargs=-1, required=True, metavar="OPERATOR...")
def explain_command(file: Path, operators: tuple[str, ...]) -> None:
    """Say why operators of a saved plan are sharded as they are, and what their shards read from where.

    What the other shardings cost is told where the plan was asked before it was saved, as `tapestry plan --explain` is.

    For example: tapestry plan model.onnx --json > plan.json; tapestry explain plan.json conv1
    """
    p = read_plan(file)
    echo("\n\n".join(p.explain(operator) for operator in operators))


@main.command("transfers")
@plan_argument
@click.option("--from", "source", type=click.IntRange(0), metavar="DEVICE", help="Only from this device.")
@click.option("--to", "target", type=click.IntRange(0), metavar="DEVICE", help="Only to this device.")
@click.option("--tensor", metavar="NAME", help="Only of this tensor.")
@click.option("--producer", metavar="OPERATOR", help="Only of what this operator makes; input or constant: is given.")
@click.option("--consumer", metavar="OPERATOR", help="Only for this operator.")
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON, the cells as regions.")
def transfers_command(
    file: Path,
    source: int | None,
    target: int | None,
    tensor: str | None,
    producer: str | None,
    consumer: str | None,
    as_json: bool,
) -> None:
    """Print what a saved plan moves from device to device: which bytes of which tensor, for whom, and why.

    For example: tapestry transfers plan.json --from 1 --to 2
    """
    p = read_plan(file)
    found = p.transfers(source, target, tensor=tensor, producer=producer, consumer=consumer)
    if as_json:
        return echo(escape_json(found.to_json()))
    table = [
        (
            str(row.step),
            str(row.source),
            str(row.target),
            row.tensor,
            row.cells,
            row.producer,
            row.consumer,
            f"{row.nbytes:,}",
            row.why,
        )
        for row in found
    ]
    print_table("", HEADS, table, (0, 1, 2, 7))
    echo(f"{len(found):,} transfers, {found.nbytes:,} B; in the whole plan {p.nbytes_moved:,} B")


@main.command("verify")
@plan_argument
def verify_command(file: Path) -> None:
    """Check a saved plan without running it: its digest, its steps, and the bytes that it says it moves.

    Every step is followed: each cell is there when it is read, no two buffers that live lie over one another, index
    boxes cover each operator once, and outputs are whole.

    For example: tapestry verify plan.json
    """
    p = read_plan(file)
    shards = check_plan(p)
    moved = p.transfers().nbytes_by("source", "target")
    if moved != p.nbytes_by_link:
        raise InvalidPlan(
            f"{quote(str(file))}: its steps move {sum(moved.values()):,} B and it says {p.nbytes_moved:,}; make the "
            "plan again"
        )
    print_devices(p, None)
    print_totals(p)
    echo(f"{len(p.steps):,} steps with {len(shards):,} shards fit together; bytes moved: {p.nbytes_moved:,}")
