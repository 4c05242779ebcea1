"""What the command line asks of a plan: one option for each that `plan` has, read from text.

The options are drawn from what declares the arguments of `plan` and `pareto`: their names, types and defaults. Here
stand only their words, and how texts are read that are more than a number or a choice::

    same_bits: bool = False                 --same-bits/--no-same-bits
    space: Literal["mesh", "all"] | None    --space [mesh|all]
    memory_nbytes: int | None               --memory 16GB                    `READERS` has how a size is read
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce, wraps
from pathlib import Path
from shlex import quote as quote_word
from types import NoneType
from typing import Any, get_args

import click
from click.shell_completion import CompletionItem
from msgspec import Struct
from msgspec.structs import FieldInfo, fields

from tapestry_exec.cli.terminal import quiet_option
from tapestry_exec.copies import Array
from tapestry_exec.run import read_array, read_arrays
from tapestry_plan.search import CapOptions, Options
from tapestry_plan.steps import Mesh, Placed, ShardPlan, list_machines
from tapestry_sets.limits import quote

PATH = click.Path(path_type=Path)
html_option = click.option(
    "--html",
    metavar="FILE.html",
    type=PATH,
    help="Write a page about the plan: the graph, reasons, bytes, memory.",
)
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
WORDS = {
    "memory_nbytes": ("16GB", "Most memory for each device; what does not fit waits in host memory while idle."),
    "points": ("N", "How many plans at most, as 5."),
    "time_limit_seconds": ("SECONDS", "Of planning, as 60; the best plan by then is given, with its gap."),
    "layout": (
        "TENSOR=AXIS:PARTS",
        "Where an input, weight or output lies: as x=0:4, x=0:y along an axis of the mesh, or 'x=0[:3];1[3:]' in "
        "boxes by device.",
    ),
    "placement": (
        "",
        "Whether inputs and weights start wherever the plan wants them, or in one copy, as single.",
    ),
    "tie": ("NEW=OLD", "An output lies where the input does whose place it takes in the next run, as new_w=w."),
    "fix": ("OPERATOR=AXIS:PARTS", "Shard an operator so, as conv=h:2,w:2; axes that are not named stay whole."),
    "like": (
        "PLAN.json",
        "Keep all that a saved plan of this model decided, as plan.json, at other sizes of --shape too; only operators "
        "of --fix are sharded anew.",
    ),
    "forbid": ("OPERATOR=AXIS:PARTS", "Do not shard an operator so, as conv=h:2, which leaves conv=h:2,w:2."),
    "expand": ("NAME", "Compare operators with expansions of this name, as exp_sum, and with no others."),
    "fuse": ("", "Whether neighbors may be one block, as a product and its relu."),
    "unify": ("", "Whether equal operators run once, as two exp of one tensor, and equal weights are one."),
    "space": (
        "",
        "Compare layouts along the mesh's axes, or every factorization of the devices; by default all up to 8.",
    ),
    "fan_in": ("N", "Merge so many partial results at a time, as 2, in a tree; by default one after the other."),
    "same_bits": ("", "Results have the same bits on any number of devices; the plan says the cost."),
    "seed": ("N", "Of random numbers, as 7: in improving moves, and in inputs of a run."),
}
"""For each argument, in the order of the help: what stands for its value, none where its type says that, and words."""


# -- how texts are read ------------------------------------------------------------------------------------


def parse_mesh(ctx: click.Context, param: click.Parameter, value: str | None) -> Mesh | None:
    """A mesh from ``4`` or ``2x2``."""
    try:
        return None if value is None else Mesh.parse(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise click.BadParameter(str(error), ctx, param) from None


def parse_machine(ctx: click.Context, param: click.Parameter, value: str | None) -> Mesh | None:
    """A machine from its name, or from a file that ends in ``.toml``."""
    try:
        if value is None:
            return None
        return Mesh.from_toml(value) if value.endswith(".toml") else Mesh.named(value)
    except (ValueError, OSError) as error:
        raise click.BadParameter(str(error), ctx, param) from None


def parse_shapes(given: Sequence[str]) -> dict[str, int | tuple[int, ...]]:
    """Shapes of inputs from ``name=1,3,224,224``, and sizes of symbols, or of inputs with one axis, from ``name=3``.

    Examples
    --------
    >>> parse_shapes(["x=1,3", "batch=8"])
    {'x': (1, 3), 'batch': 8}
    """
    out: dict[str, int | tuple[int, ...]] = {}
    for item in given:
        name, sign, extents = item.rpartition("=")
        parts = [part.strip() for part in extents.split(",")]
        if not sign or not name or not all(part.isdecimal() for part in parts):
            raise click.UsageError(f"--shape {quote(item)} is not of the form name=1,3,224,224 or symbol=3")
        sizes = tuple(int(part) for part in parts)
        if name in out:
            raise click.UsageError(f"--shape {quote(item)}: {quote(name)} is given twice; give it once")
        out[name] = sizes if len(sizes) > 1 else sizes[0]
    return out


def parse_values(given: Sequence[str]) -> dict[str, Any]:
    """Values of inputs from ``name=1,3``, ``name=true``, ``name=0.5``, ``name=`` for none, or ``name=file.npy``.

    Examples
    --------
    >>> parse_values(["shape=1,-1", "k=2", "training=false", "axes="])
    {'shape': [1, -1], 'k': 2, 'training': False, 'axes': []}
    """
    out: dict[str, Any] = {}
    for item in given:
        name, sign, text = item.rpartition("=")
        if not sign or not name:
            raise click.UsageError(f"--value {quote(item)} is not of the form name=1,3 or name=file.npy")
        if text.endswith(".npy"):
            out[name] = read_file("--value", item, text)
            continue
        try:
            found = [_parse_number(part.strip()) for part in text.split(",")] if text.strip() else []
        except ValueError:
            raise click.UsageError(
                f"--value {quote(item)}: {quote(text)} is neither numbers, as 1,3 or 0.5 or true, nor a file that "
                "ends in .npy"
            ) from None
        out[name] = found[0] if len(found) == 1 else found
    return out


def _parse_number(text: str) -> bool | int | float:
    truth = {"true": True, "false": False}.get(text.lower())
    if truth is not None:
        return truth
    return int(text) if re.fullmatch(r"[+-]?\d+", text) else float(text)


def find_file(path: Path) -> Path:
    """The path of a file, if there is one."""
    if path.is_dir():
        raise click.UsageError(f"{quote(str(path))} is a folder; give a file in it")
    if not path.is_file():
        if path.exists():
            raise click.UsageError(
                f"{quote(str(path))} is not an ordinary file; write what it gives to one, and give that"
            )
        raise click.UsageError(f"there is no file {quote(str(path))}")
    return path


def read_file(option: str, item: str, file: str) -> Array:
    """The array of a file that an option names."""
    try:
        return read_array(file)
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{option} {quote(item)} cannot be read: {error}") from None


def read_archive(option: str, file: str) -> dict[str, Array]:
    """The arrays of a file of several, as ``numpy.savez`` and ``tapestry run --save`` write it."""
    try:
        return read_arrays(file)
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{option} {quote(file)} cannot be read: {error}") from None


def parse_nbytes(text: str | None) -> int | None:
    """Bytes from ``16GB``, ``512MiB`` or ``1000000``.

    Examples
    --------
    >>> parse_nbytes("16GB"), parse_nbytes("1.5KiB")
    (16000000000, 1536)
    """
    if text is None:
        return None
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]i?)?b?\s*", text.lower())
    if not found:
        raise click.UsageError(f"--memory {quote(text)} is not a size; write for example 16GB, 512MiB or 1000000")
    return int(float(found[1]) * UNITS[found[2] or ""]) if "." in found[1] else int(found[1]) * UNITS[found[2] or ""]


def parse_ties(given: Sequence[str]) -> dict[str, str] | None:
    """Outputs and the inputs that they take the place of, from ``new_w=w``.

    Examples
    --------
    >>> parse_ties(["new_w=w", "new_b=b"])
    {'new_w': 'w', 'new_b': 'b'}
    """
    return _collect("--tie", "NEW=OLD", "new_w=w", given, lambda item, old: old)


def parse_shardings(option: str, given: Sequence[str]) -> dict[str, dict[str, Any]] | None:
    """Operators with parts of their axes, from ``conv=h:2,w:2``, or by axes of the mesh, from ``conv=h:x,w:y+z``.

    Examples
    --------
    >>> parse_shardings("--fix", ["conv=h:2,w:2", "fc=m:x+y", "relu="])
    {'conv': {'h': 2, 'w': 2}, 'fc': {'m': ('x', 'y')}, 'relu': {}}
    """
    read = partial(_parse_parts, option, "OPERATOR=AXIS:PARTS", "conv=h:2,w:2")
    return _collect(option, "OPERATOR=AXIS:PARTS", "conv=h:2,w:2", given, read)


def parse_layouts(given: Sequence[str]) -> dict[str, dict[str, Any] | Placed] | None:
    """Tensors with parts of their axes, as operators have them, or in boxes by device, from ``x=0[:3];1[3:]``.

    Examples
    --------
    >>> parse_layouts(["x=0:4", "w=1[...]"])
    {'x': {'0': 4}, 'w': Placed(by_device={1: ((Ellipsis,),)})}
    """
    form, example = "TENSOR=AXIS:PARTS", "x=0:4, or 'x=0[:3];1[3:]'"

    def read(item: str, text: str) -> dict[str, Any] | Placed:
        return _parse_boxes(item, text) if "[" in text else _parse_parts("--layout", form, example, item, text)

    return _collect("--layout", form, example, given, read)


def _collect(
    option: str, form: str, example: str, given: Sequence[str], read: Callable[[str, str], Any]
) -> dict[str, Any] | None:
    """What is given by name, each name once; None for nothing. Names may hold ``=``: the last one counts."""
    out: dict[str, Any] = {}
    for item in given:
        name, sign, text = item.rpartition("=")
        if not sign or not name:
            raise click.UsageError(f"{option} {quote(item)} is not of the form {form}; write for example {example}")
        if name in out:
            raise click.UsageError(f"{option} {quote(item)}: {quote(name)} is given twice; give it once")
        out[name] = read(item, text)
    return out or None


def _parse_parts(option: str, form: str, example: str, item: str, text: str) -> dict[str, Any]:
    """Axes with numbers of parts, or with names of mesh axes."""
    out: dict[str, Any] = {}
    for part in text.split(",") if text.strip() else []:
        axis, _, parts = (word.strip() for word in part.partition(":"))
        names = tuple(name.strip() for name in parts.split("+"))
        if not axis or not all(names):
            raise click.UsageError(f"{option} {quote(item)} is not of the form {form}; write for example {example}")
        if axis in out:
            raise click.UsageError(f"{option} {quote(item)} gives axis {quote(axis)} twice; give it once")
        if re.match(r"[+-]?[\d.]", parts) and not re.fullmatch(r"[+-]?\d{1,9}", parts):
            raise click.UsageError(
                f"{option} {quote(item)}: {quote(parts)} is not a number of parts of axis {quote(axis)}; give an "
                "integer, or axes of the mesh as x+y"
            )
        out[axis] = int(parts) if re.fullmatch(r"[+-]?\d+", parts) else names
    return out


def _parse_boxes(item: str, text: str) -> Placed:
    """Boxes by device, each as an index: nothing of the text is executed."""
    boxes: dict[int, list[Any]] = {}
    for part in text.split(";"):
        try:
            match ast.parse(part.strip(), mode="eval").body:
                case ast.Subscript(value=ast.Constant(value=device), slice=index) if type(device) is int:
                    items = index.elts if isinstance(index, ast.Tuple) else [index]
                    boxes.setdefault(device, []).append(tuple(map(_read_index, items)))
                    continue
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass
        raise click.UsageError(
            f"--layout {quote(item)}: {quote(part)} is not of the form DEVICE[SLICES]; write for example "
            "'x=0[:3];1[3:]'"
        )
    return Placed(boxes)


def _read_index(index: ast.expr) -> Any:
    """A slice between integers, or ``...``."""
    if isinstance(index, ast.Slice):
        ends = [None if end is None else ast.literal_eval(end) for end in (index.lower, index.upper, index.step)]
        if all(end is None or type(end) is int for end in ends):
            return slice(*ends)
    elif isinstance(index, ast.Constant) and index.value is ...:
        return ...
    raise ValueError("neither a slice nor ...")


def is_document(file: Path) -> bool:
    """Whether a file begins as documents do, such as plans, and models of ONNX do not."""
    with find_file(file).open("rb") as opened:
        return opened.read(256).lstrip()[:1] == b"{"


def read_plan(file: Path) -> ShardPlan:
    """The plan of a document that fits itself: its digest, its fields, and its figures."""
    if file.suffix == ".onnx" and not is_document(file):
        raise click.UsageError(
            f"{quote(str(file))} is a model of ONNX, not a plan; make one, as tapestry plan {quote_word(str(file))} "
            "--json > plan.json, and give that"
        )
    try:
        return ShardPlan.from_json(find_file(file).read_bytes())
    except ValueError as error:
        raise click.UsageError(f"{quote(str(file))}: {error}") from None


READERS: dict[str, Callable[[Any], Any]] = {
    "like": lambda file: None if file is None else read_plan(Path(file)),
    "memory_nbytes": parse_nbytes,
    "tie": parse_ties,
    "layout": parse_layouts,
    "fix": partial(parse_shardings, "--fix"),
    "forbid": partial(parse_shardings, "--forbid"),
}
"""How the text of an argument is read, or its texts where it may be given more than once: all but those of `ONCE`."""
ONCE = ("memory_nbytes", "like")
"""Arguments with a reader that are given once."""


# -- options as they are declared --------------------------------------------------------------------------


class Planning(Struct, frozen=True):
    """A model and how it is to be planned: what `planning` makes of the options that are read by it."""

    model: Path
    shapes: dict[str, int | tuple[int, ...]]
    values: dict[str, Any]
    opaque: bool
    machine: Mesh | None
    quiet: bool
    options: dict[str, Any]
    """Arguments of `plan` or `pareto`, by name."""
    changed: tuple[str, ...]
    """Those that are given, and make another plan, as they are spelled on the command line."""

    def find_mesh(self, asked: Mesh | None) -> Mesh:
        """The devices that are asked for, with the rates of the machine; all of the machine, or 4, if none are.

        A plan whose choices are kept says its own, unless there is a machine.
        """
        like: ShardPlan | None = self.options.get("like")
        if self.machine is None and like is not None:
            return like.mesh if asked is None else like.mesh.regroup(asked.shape)
        if self.machine is None:
            return asked or Mesh.parse("4")
        return self.machine if asked is None else self.machine.regroup(asked.shape)


def spell_option(name: str) -> str:
    """The option of an argument.

    Examples
    --------
    >>> spell_option("same_bits"), spell_option("time_limit_seconds"), spell_option("memory_nbytes")
    ('--same-bits', '--time-limit', '--memory')
    """
    return "--" + re.sub(r"_(seconds|nbytes)$", "", name).replace("_", "-")


def draw_options(field: FieldInfo) -> list[Callable[..., Any]]:
    """The options of one argument, as decorators of a command."""
    (shown, words), option, name = WORDS[field.name], spell_option(field.name), field.name
    more: dict[str, Any] = {"help": words, "metavar": shown or None}
    if name == "expand":
        without = click.option("--no-expand", is_flag=True, help="Plan every operator as it is, without expansions.")
        return [click.option(option, name, multiple=True, **more), without]
    if name in READERS:
        more |= {"multiple": name not in ONCE, "callback": lambda ctx, param, text: READERS[name](text)}
        return [click.option(option, name, **more)]
    # None stands for what the planner chooses by itself.
    (kind,) = [kind for kind in get_args(field.type) if kind is not NoneType and not isinstance(kind, str)] or [
        field.type
    ]
    more |= {"default": field.default, "show_default": field.default is not None}
    if kind is bool:
        return [click.option(f"{option}/{spell_option('no_' + name)}", name, **more)]
    known = {int: click.INT, float: click.FLOAT}
    return [click.option(option, name, type=known.get(kind) or click.Choice(get_args(kind)), **more)]


def parse_expand(wanted: Sequence[str], no_expand: bool) -> bool | list[str]:
    """The expansions that `plan` may apply, from ``--expand NAME`` and ``--no-expand``.

    Examples
    --------
    >>> parse_expand([], False), parse_expand([], True), parse_expand(["exp_sum"], False)
    (True, False, ['exp_sum'])
    """
    if wanted and no_expand:
        raise click.UsageError("--expand and --no-expand cannot both be given: one asks for what the other excludes")
    return list(wanted) or not no_expand


def complete_machines(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The machines that come along, for shells that complete; they add the files."""
    known = [CompletionItem(name) for name in list_machines() if name.startswith(incomplete)]
    return [*known, CompletionItem(incomplete, type="file")]


opaque_option = click.option(
    "--no-opaque", is_flag=True, help="Refuse a model with nodes that have no declaration, rather than run these whole."
)
MODEL = (
    click.argument("model", type=PATH),
    click.option(
        "--shape",
        "shapes",
        multiple=True,
        metavar="NAME=1,3,224,224",
        help="Shape of an input left open, or as batch=3 the size of a symbol that the model has for open axes; "
        "those called by a formula, as past + now, follow.",
    ),
    click.option(
        "--value",
        "values",
        multiple=True,
        metavar="NAME=1,3",
        help="Value of an input that is known in advance, as the shape of a Reshape; numbers, or a file.npy.",
    ),
    opaque_option,
)
"""What is planned."""
DEVICES = (
    click.option(
        "--mesh",
        metavar="N[xM…]",
        callback=parse_mesh,
        help="Devices, as 4 or 2x2; 4 by default, or all of the machine.",
    ),
    click.option(
        "--machine",
        metavar="NAME|FILE.toml",
        callback=parse_machine,
        shell_complete=complete_machines,
        help="Plan with the rates of this machine, as h100x8; --mesh says which of its devices, along which axes.",
    ),
)
"""For which devices."""
SQUEEZENET = Path("SqueezeNet")
"""What a command without a model plans."""


def planning(
    command: Callable[..., None], declared: type[Options] = CapOptions, of_model: bool = True
) -> Callable[..., None]:
    """Let a command have a model, a mesh, and an option for each argument that is declared: as `Planning` and mesh."""
    by_name = {field.name: field for field in fields(declared) if field.name in WORDS}

    @wraps(command)
    def planned(
        machine: Mesh | None,
        quiet: bool,
        no_expand: bool,
        model: Path = SQUEEZENET,
        shapes: Sequence[str] = (),
        values: Sequence[str] = (),
        no_opaque: bool = False,
        **rest: Any,
    ) -> None:
        options = {name: rest.pop(name) for name in by_name}
        options["expand"] = parse_expand(options["expand"], no_expand)
        asked = Planning(
            model,
            parse_shapes(shapes),
            parse_values(values),
            not no_opaque,
            machine,
            quiet,
            options,
            _list_changed(by_name, options),
        )
        command(asked, **rest)

    drawn = [option for name in WORDS if name in by_name for option in draw_options(by_name[name])]
    given = [*(MODEL if of_model else ()), *DEVICES, *drawn, quiet_option]
    return reduce(lambda made, option: option(made), reversed(given), planned)


def _list_changed(by_name: Mapping[str, FieldInfo], options: Mapping[str, Any]) -> tuple[str, ...]:
    """Options that make another plan, where they are given; the seed makes inputs too, and memory serves runs."""
    return tuple(
        spell_option(f"no_{name}" if value is False else name)
        for name, value in options.items()
        if name not in ("seed", "memory_nbytes") and value != by_name[name].default
    )
