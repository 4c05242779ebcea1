"""What a plan moves at other sizes of its model's open axes, and where another plan is better."""

from __future__ import annotations

import re

import click

from tapestry_exec.cli import tuning
from tapestry_exec.cli.answers import SizesAnswer, print_answer
from tapestry_exec.cli.commands import load_model, main, plan_model
from tapestry_exec.cli.planning import Planning, planning
from tapestry_exec.cli.terminal import echo, json_option, timed, timed_progress
from tapestry_plan.ir import Graph
from tapestry_plan.search import plan_or_spill
from tapestry_plan.steps import Mesh, ShardPlan
from tapestry_plan.symbolic import SymbolicTransfers, choose_symbol, crossovers
from tapestry_sets.limits import quote, tell_count


def parse_sizes(option: str, text: str) -> list[int]:
    """Sizes from ``1..50``, ``8`` and ``1,8,32..40``, ascending.

    Examples
    --------
    >>> parse_sizes("--at", "8,1..4")
    [1, 2, 3, 4, 8]
    """
    found: set[int] = set()
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d{1,9})\s*(?:\.\.\s*(\d{1,9})\s*)?", part)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (0, 0)
        if not 1 <= first <= last or last - first >= tuning.MAX_SIZES:
            raise click.UsageError(
                f"{option} {quote(text)}: {quote(part)} is not sizes, as 1..50 or 1,8,32; give such, from 1 "
                f"on, at most {tuning.MAX_SIZES}"
            )
        found |= set(range(first, last + 1))
    return sorted(found)


@main.command(
    "sizes",
    short_help="Print bytes as polynomials in an open size.",
    examples=[
        "tapestry sizes open.onnx --shape batch=4 --mesh 2",
        "tapestry sizes open.onnx --shape batch=4 --mesh 2 --at 2..12 --plan-at 1,16",
    ],
)
@planning
@json_option
@click.option("--symbol", metavar="NAME", help="The open axis, where the model has several, as batch.")
@click.option(
    "--at", "at", metavar="SIZES", default="1..50", show_default=True, help="Where plans are bound, as 1..50 or 1,8,32."
)
@click.option(
    "--plan-at",
    "plan_at",
    metavar="SIZES",
    help="Where other plans are made, which takes less than at each size of --at, as by default.",
)
def sizes_command(
    asked: Planning, mesh: Mesh | None, as_json: bool, symbol: str | None, at: str, plan_at: str | None
) -> None:
    """Print a plan's transfers as polynomials in a size that the model leaves open, and where another plan wins.

    The plan keeps its choices at each size of --at, where its bytes are counted and compared with the polynomials.
    Another one is planned at each of these sizes, as is asked for: so each size tells the best plan of all that were
    found, and by how much another one may be better. With --plan-at others are planned at these sizes alone, each bound
    to all of --at, and with --like none is: then nothing is said of plans that were not made.
    """
    looked = parse_sizes("--at", at)
    made_at = [] if plan_at is None else parse_sizes("--plan-at", plan_at)
    graph, devices = load_model(asked), asked.find_mesh(mesh)
    if not graph.sizes:
        raise click.UsageError(
            f"{quote(str(asked.model))} has no open axes: all extents of its inputs are numbers; export it with names "
            "in their places, as dynamic_shapes of torch.onnx.export writes them"
        )
    name = choose_symbol(graph, symbol, "sizes")
    p, keeps = plan_model(asked, graph, devices), asked.options.get("like") is not None
    p = p.bind(graph) if keeps else p  # at a saved plan's own size it is of the document's graph, which has no model
    with timed(f"counting bytes at {tell_count(len(looked), 'size')} of {name}", asked.quiet):
        found = p.symbolic_transfers(name)
        found = found.confirm(p, list_possible(found, looked))
    plans = [p]
    for size in made_at:
        try:
            plans += [plan_at_size(asked, graph, devices, name, size)] if size != graph.sizes[name] else []
        except ValueError as error:
            raise ValueError(f"--plan-at: at {name}={size}: {error}") from None
    searches = plan_at is None and not keeps
    label = f"{'planning' if searches else 'comparing plans'} at {tell_count(len(looked), 'size')} of {name}"
    with timed_progress(label, asked.quiet) as progress:

        def search(graph: Graph) -> ShardPlan:
            return p if graph.sizes == p.graph.sizes else plan_or_spill(graph, devices, **asked.options)

        crossing = crossovers(plans, name, looked, search=search if searches else False, progress=progress)
    if as_json:
        return print_answer(SizesAnswer.of(found, crossing))
    echo(str(found))
    echo("")
    echo(str(crossing))


def plan_at_size(asked: Planning, graph: Graph, mesh: Mesh, symbol: str, size: int) -> ShardPlan:
    """The plan of the model at another size."""
    return plan_model(asked, graph.bind({symbol: size}), mesh)


def list_possible(found: SymbolicTransfers, sizes: list[int]) -> list[int]:
    """The sizes at which there is such a plan, and its polynomials hold."""
    classes, remainders = len(found.nbytes.classes), found.nbytes.remainders
    last = sizes[-1] if found.most is None else found.most
    return [size for size in sizes if found.least <= size <= last and size % classes in remainders]
