"""What is looked at: which views touch, pictures, the operators that come along, and the schemas of documents."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from tapestry_exec.cli import tuning
from tapestry_exec.cli.answers import (
    DOCUMENTS,
    OnnxAnswer,
    OnnxEntry,
    OnnxPart,
    OperatorEntry,
    OpsAnswer,
    OverlapAnswer,
    PairEntry,
    SchemaAnswer,
    ShowAnswer,
    WitnessEntry,
    describe_answer,
    list_documents,
    print_answer,
)
from tapestry_exec.cli.commands import main
from tapestry_exec.cli.expression import parse_views
from tapestry_exec.cli.operators import (
    describe_operator,
    parse_attributes,
    parse_operand_shapes,
    tell_dtypes,
)
from tapestry_exec.cli.pictures import draw_named
from tapestry_exec.cli.planning import PATH, opaque_option, parse_shapes, parse_shardings, parse_values
from tapestry_exec.cli.printing import tell_shape
from tapestry_exec.cli.terminal import echo, json_option, print_table
from tapestry_exec.run import check_target, replace_file
from tapestry_plan.ir import BUILTIN_OPS
from tapestry_plan.onnx import Supported, count_ways, list_supported
from tapestry_sets.alias import Overlap, origins_table, overlap, show_views
from tapestry_sets.limits import quote, tell_count
from tapestry_sets.views import Allocation


def complete_operators(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The operators that come along, for shells that complete."""
    return [CompletionItem(name) for name in sorted(BUILTIN_OPS) if name.startswith(incomplete)]


def complete_shown(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Operators, and the files of models and plans."""
    return [*complete_operators(ctx, param, incomplete), CompletionItem(incomplete, type="file")]


def write_picture(file: Path, svg: str) -> None:
    """Write a picture; its folder must be there."""
    if not file.absolute().parent.is_dir():
        raise click.UsageError(f"--svg: there is no directory {quote(str(file.absolute().parent))}; make it first")
    with replace_file(check_target(file, "--svg")) as written:
        written.write(svg.encode())


svg_option = click.option("--svg", "-o", "svg_file", type=PATH, help="Write the picture to this file, as SVG.")


# -- what touches ------------------------------------------------------------------------------------------


@main.command(
    "overlap",
    examples=[
        "tapestry overlap 'A[27]; A.reshape(3,3,3)[:2,:2,:2]; A[2::5]'",
        "tapestry overlap 'A[4, 6]; left = A[:, :3]; left; A.T[2:]' --table --svg overlap.svg",
        "tapestry overlap 'A[10]; A[:4]; A[4:]' --exit-code --json",
    ],
)
@click.argument("views")
@click.option("--table", is_flag=True, help="Print what each view reads of each allocation, as a table.")
@json_option
@svg_option
@click.option("--exit-code", is_flag=True, help="Exit with 1 where views share a cell, with 0 where none do.")
def overlap_command(views: str, table: bool, as_json: bool, svg_file: Path | None, exit_code: bool) -> int:
    """Say which views share cells, and where.

    VIEWS are declarations of memory, then views, with semicolons between them; with 'B = A[::2]; B' a view has a name.
    Quote them, for shells read brackets too.
    """
    if table and as_json:
        raise click.UsageError("--table is text and --json is not; give one of them")
    found = parse_views(views)
    if len(found) < 2:
        raise click.UsageError(
            f"overlap needs two views or more, {len(found)} given; write for example 'A[27]; A[:9]; A[2::5]'"
        )
    names, given = [name for name, _ in found], [view for _, view in found]
    pairs = [(names[j], names[k], overlap(given[j], given[k])) for k in range(len(found)) for j in range(k)]
    status = int(exit_code and any(shared for _, _, shared in pairs))
    if svg_file is not None:
        write_picture(svg_file, show_views(*given, names=names).svg)
    if as_json:
        print_answer(OverlapAnswer([describe_pair(*pair) for pair in pairs]))
        return status
    for a, b, shared in pairs:
        echo(f"{a}  and  {b}:\n  {describe_overlap(shared)}")
    if table:
        echo(f"\n{origins_table(*given, names=names)}")
    if len(found) <= tuning.SHOWN_VIEWS:
        echo(f"\n{show_views(*given, names=names, indices=False).text}")
    return status


def describe_pair(a: str, b: str, o: Overlap[Allocation]) -> PairEntry:
    """An overlap as documents have it."""
    witness = o.witness
    if witness is None:
        return PairEntry(a, b, o.size, None)
    places = [list(map(int, place)) for place in (witness.a, witness.b, witness.cell)]
    return PairEntry(a, b, o.size, WitnessEntry(o.allocations[0].name, *places))


def describe_overlap(o: Overlap[Allocation]) -> str:
    """An overlap in words: the witness and the size.

    Examples
    --------
    >>> from tapestry_sets import allocate
    >>> A = allocate((27,), name="A")
    >>> describe_overlap(overlap(A.reshape(3, 3, 3)[:2, :2, :2], A[2::5]))
    'aliases at A[12]: cell [1, 1, 0] of the first, [2] of the second; 1 cell shared'
    """
    witness = o.witness
    if witness is None:
        return "no common cell"
    name = o.allocations[0].name

    def at(point: tuple[int, ...]) -> str:
        return "[" + ", ".join(map(str, point)) + "]"

    cells = "1 cell" if o.size == 1 else f"{o.size:,} cells"
    where = f"cell {at(witness.a)} of the first, {at(witness.b)} of the second"
    return f"aliases at {name}{at(witness.cell)}: {where}; {cells} shared"


# -- pictures ----------------------------------------------------------------------------------------------


@main.command(
    "show",
    short_help="Draw sets, views, operators, models or plans.",
    examples=[
        "tapestry show 'Sett(Stripe(3, 2), Stripe(1, 1))'",
        "tapestry show 'Region((4, 6), [Stripe(2, 1), Stripe(1, 1)])' --svg region.svg",
        "tapestry show 'A[4, 6]; A.T[1:]; A[:, ::2]'",
        "tapestry show 'projection(h=4, kh=3, reads=[2*h + kh], writes=[h])' --parts h:2",
        "tapestry show gemm --shapes 8x6,6x4 --parts m:2,n:2",
        "tapestry show model.onnx",
        "tapestry show model.onnx --op conv --parts n:2",
        "tapestry show plan.json --json",
    ],
)
@click.argument("what", shell_complete=complete_shown)
@click.option("--op", "node", metavar="NAME", help="Of a model or a plan: this operator.")
@click.option("--parts", metavar="AXIS:PARTS", help="Cut the index space of an operator or projection, as m:2,n:2.")
@click.option("--shapes", metavar="AxB,…", help="Of an operator's operands, as 32x64,64x16; an example's otherwise.")
@click.option("--attr", "attributes", multiple=True, metavar="NAME=VALUE", help="Of an operator, as pads=1.")
@click.option("--shape", "open_shapes", multiple=True, metavar="NAME=1,3,8,8", help="Of a model's input, as for plan.")
@click.option("--value", "values", multiple=True, metavar="NAME=1,3", help="Of a model's input, as for plan.")
@opaque_option
@svg_option
@json_option
def show_command(what: str, svg_file: Path | None, as_json: bool, **how: Any) -> None:
    """Draw sets, views, projections, operators, models or plans, as text or SVG.

    WHAT is the name of an operator, a model.onnx, a plan.json, or an expression: views as for `overlap`, sets as
    Stripe(3, 2), Sett(…), DisjointSetts([…]), Region((4, 6), […]), Box.of((4, 6)), with & | - ^ ~ and methods, or a
    projection. Quote expressions, for shells read brackets too.
    """
    parts = _parse_parts(how["parts"])
    shapes = None if how["shapes"] is None else parse_operand_shapes(how["shapes"])
    options = {"parts": parts, "shapes": shapes, "attributes": parse_attributes(how["attributes"]), "node": how["node"]}
    read = {
        "shapes": parse_shapes(how["open_shapes"]),
        "values": parse_values(how["values"]),
        "opaque": not how["no_opaque"],
    }
    shown = draw_named(what, options, read)
    if svg_file is not None:
        if shown.svg is None:
            raise click.UsageError(
                f"--svg: {quote(shown.title)} has no drawing, it is too large or of too many axes; show a part of it"
            )
        write_picture(svg_file, shown.svg)
    if as_json:
        return print_answer(ShowAnswer(shown.title, shown.text, shown.svg))
    echo(shown.text)


def _parse_parts(text: str | None) -> Mapping[str, int] | None:
    """Numbers of parts by axis, from ``m:2,n:2``."""
    if text is None:
        return None
    found = (parse_shardings("--parts", [f"op={text}"]) or {}).get("op", {})
    for axis, count in found.items():
        if type(count) is not int:
            raise click.UsageError(f"--parts {quote(text)}: axis {axis} needs a number of parts; write for example m:2")
    return found


# -- what comes along --------------------------------------------------------------------------------------


@main.command(
    "ops",
    short_help="List operators, their calls, index axes and dtypes.",
    examples=[
        "tapestry ops",
        "tapestry ops --onnx",
        "tapestry ops --onnx Conv",
        "tapestry ops conv",
        "tapestry ops conv --shapes 1x3x8x8,4x3x3x3 --json",
    ],
)
@click.argument("names", nargs=-1, metavar="[NAME]...", shell_complete=complete_operators)
@click.option("--shapes", metavar="AxB,…", help="Of the operands, as 32x64,64x16; an example's otherwise.")
@click.option("--attr", "attributes", multiple=True, metavar="NAME=VALUE", help="An attribute, as pads=1.")
@click.option(
    "--onnx", "of_onnx", is_flag=True, help="Of ONNX's operators: how each is imported and sharded, or runs whole."
)
@json_option
def ops_command(
    names: Sequence[str], shapes: str | None, attributes: Sequence[str], of_onnx: bool, as_json: bool
) -> None:
    """List operators: how each is called, its index axes, over which plans cut it, dtypes, and what it computes.

    Index axes follow from shapes and attributes; without --shapes they are those of an example.
    """
    if of_onnx:
        if shapes is not None or attributes:
            raise click.UsageError("--onnx tells how operators of ONNX are imported; leave out --shapes and --attr")
        return _print_onnx(names, as_json)
    if (shapes is not None or attributes) and len(names) != 1:
        raise click.UsageError("--shapes and --attr are for one operator; name it, as `tapestry ops conv --shapes …`")
    given = None if shapes is None else parse_operand_shapes(shapes)
    found = [describe_operator(name, given, parse_attributes(attributes)) for name in names or sorted(BUILTIN_OPS)]
    if as_json:
        return print_answer(OpsAnswer(found))
    if names:
        return echo("\n\n".join(map(tell_operator, found)))
    rows = [
        (one.call, " ".join(tell_axis(axis.name, axis.kind) for axis in one.axes), tell_dtypes(one.dtypes), one.says)
        for one in found
    ]
    legend = "index axes: of an example, `tapestry ops NAME` shows it; +axis: summed over; dtypes: of the first operand"
    print_table(f"{len(found)} operators", ("call", "index axes", "dtypes", "what it computes"), rows, (), legend)


def _print_onnx(names: Sequence[str], as_json: bool) -> None:
    try:
        found = list(list_supported(*names))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if as_json:
        return print_answer(
            OnnxAnswer(
                [
                    OnnxEntry(one.operator, one.how, list(one.dtypes), *map(_list_parts, (one.axes, one.instead)))
                    for one in found
                ]
            )
        )
    rows = [(one.operator, one.how, _tell_parts(one), tell_dtypes(one.dtypes)) for one in found]
    legend = (
        "imported: as operators and views, which plans split; defined: by ONNX's own definition in such; folded: known "
        "at import; opaque: whole, or in parts of rows, by ONNX Runtime or ONNX's reference; index axes: of an "
        "example's operators, the most work first, +axis: summed over; or: expansions, which plans "
        "compare with these; views: or known values, without work; dtypes: of the first operand"
    )
    title = tell_count(len(found), "operator") + " of ONNX" if names else count_ways()
    print_table(title, ("operator", "how", "index axes", "dtypes"), rows, (), legend)


def _tell_parts(one: Supported) -> str:
    """How an operator of ONNX is sharded: the first index axes of an example, or that it has none."""
    if one.how in ("opaque", "refused", "folded") and not one.axes:
        return "known" if one.how == "folded" else "whole"
    ways = " or ".join(map(_tell_cuts, filter(None, (one.axes, one.instead))))
    return ways or "views"


def _tell_cuts(cuts: Sequence[tuple[str, Sequence[str]]]) -> str:
    told = [f"{op} {' '.join(axes)}" for op, axes in cuts[: tuning.PARTS_TOLD]]
    return "; ".join([*told, *["…"] * (len(cuts) > tuning.PARTS_TOLD)])


def _list_parts(cuts: Sequence[tuple[str, Sequence[str]]]) -> list[OnnxPart]:
    return [OnnxPart(op, list(axes)) for op, axes in cuts]


def tell_axis(name: str, kind: str) -> str:
    """An index axis, marked where parts along it must be merged."""
    return f"+{name}" if kind == "reduction" else name


def tell_operator(one: OperatorEntry) -> str:
    """An operator in a few lines."""
    axes = ", ".join(f"{axis.name}:{axis.size}{' (summed)' * (axis.kind == 'reduction')}" for axis in one.axes)
    given = ", ".join(map(tell_shape, one.shapes)) or "none"
    more = "".join(f", {name}={value!r}" for name, value in one.attributes.items())
    dtypes = f"\n  dtypes {tell_dtypes(one.dtypes)}" if one.dtypes else ""
    return f"{one.call}\n  {one.says}\n  index axes {axes or 'none: one point'}\n  of operands {given}{more}{dtypes}"


@main.command(
    "schema", short_help="Print the JSON Schema of a document.", examples=["tapestry schema", "tapestry schema plan"]
)
@click.argument("document", required=False, type=click.Choice(DOCUMENTS))
@json_option
def schema_command(document: str | None, as_json: bool) -> None:
    """Print the JSON Schema of a DOCUMENT, or list the documents that have one.

    A schema is JSON with --json and without.
    """
    if document is not None:
        return echo(json.dumps(describe_answer(document), indent=2))
    found = list(list_documents())
    if as_json:
        return print_answer(SchemaAnswer(found))
    print_table("", ("document", "format", "what it says"), [(one.name, one.format, one.says) for one in found], ())
