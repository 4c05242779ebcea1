"""Views, sets and projections written as text: ``A[27]; A.reshape(3,3,3)[:2,:2,:2]; A[2::5]``.

The text is parsed with `ast` and only the forms listed here mean something; nothing is ever executed.
"""

from __future__ import annotations

import ast
import inspect
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, TypeAlias

from tapestry_plan.ir import Axis, Operand, Signature, project
from tapestry_sets.integers import DisjointSetts, Integers, Sett, Stripe
from tapestry_sets.limits import list_names, quote
from tapestry_sets.regions import Box, DisjointRegions, ImplicitRegion, Region
from tapestry_sets.views import (
    View,
    Viewable,
    allocate,
    concatenate,
    hstack,
    interleave,
    pad,
    repeat,
    roll,
    stack,
    tile,
    vstack,
)

WORDS = {name: member for name, member in inspect.getmembers(Viewable) if not name.startswith("_")}
METHODS = frozenset(name for name, member in WORDS.items() if callable(member)) - {"apply"}
"""What views have; those that return several views are followed by an index."""
PROPERTIES = frozenset(WORDS) - METHODS - {"apply", "ndim", "rank", "shape", "size"}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "concatenate": concatenate,
    "concat": concatenate,
    "stack": stack,
    "interleave": interleave,
    "pad": pad,
    "repeat": repeat,
    "roll": roll,
    "tile": tile,
    "hstack": hstack,
    "vstack": vstack,
    "Sett": Sett,
    "Stripe": Stripe,
    "DisjointSetts": DisjointSetts,
    "Region": Region,
    "DisjointRegions": DisjointRegions,
    "Box": Box,
    "slice": slice,
}
OF_SEVERAL = frozenset({"concatenate", "concat", "stack", "interleave", "hstack", "vstack"})
"""Functions whose first argument is a list of views."""
OF_NO_VIEW = frozenset({"Sett", "Stripe", "DisjointSetts", "Region", "DisjointRegions", "Box", "slice"})
"""Functions that make sets, and what these are made of; all others begin with one view."""
MAKERS = {
    "Sett": frozenset({"empty", "interval", "strided"}),
    "Region": frozenset({"empty", "from_bounds", "from_slices", "full"}),
    "Box": frozenset({"from_bounds", "of"}),
}
"""Methods of classes that make sets."""
SETS = (Integers, Region, DisjointRegions, ImplicitRegion, Box)
Shown: TypeAlias = View | Integers | Region | DisjointRegions | ImplicitRegion | Box | Signature
SET_METHODS = frozenset(
    {
        *("broadcast_to", "complement", "difference", "flatten", "flip", "hull", "intersect", "intersection", "merge"),
        *("nest", "reduce_to", "reshape", "reverse", "sample", "scale", "shift", "simplify", "slice"),
        *("symmetric_difference", "to_region", "transpose", "union"),
    }
)
"""What makes a set of a set; questions, which may list cells, mean nothing here."""
OPERATORS: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.BitAnd: ("&", operator.and_),
    ast.BitOr: ("|", operator.or_),
    ast.BitXor: ("^", operator.xor),
    ast.Sub: ("-", operator.sub),
}
"""What makes a set of two."""
FORMS = {
    "overlap": "write memory and views with semicolons between them, for example 'A[27]; A[:9]; A[2::5]'",
    "show": "write statements with semicolons between them, for example 'S = Stripe(3, 2); S & ~Stripe(1, 1)'",
}
"""What a command reads, in words."""
FORM = "for example projection(h=4, kh=3, reads=[2*h + kh], writes=[h])"


def parse_views(text: str) -> list[tuple[str, View]]:
    """The views that a text names, in order, each with its own text.

    Parameters
    ----------
    text : str
        Statements separated by semicolons or lines. ``A[27]`` or ``A[4, 6]`` with a new name declares
        memory; ``name = view`` names a view; every other statement is a view: indexing, `METHODS`,
        `FUNCTIONS` and ``T``.

    Raises
    ------
    ValueError
        Naming the place in the text and what is wrong there.

    Examples
    --------
    >>> [(t, v.shape) for t, v in parse_views("A[4, 6]; B = A.T; B[::2]; concatenate([A[0], A[1]])")]
    [('B[::2]', (3, 4)), ('concatenate([A[0], A[1]])', (12,))]
    >>> parse_views("A[4]; __import__('os')")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: overlap: "__import__('os')": there is no function '__import__'; nearest of ...
    """
    found = []
    for name, value in _read(text, "overlap"):
        if not isinstance(value, View):
            raise ValueError(f'overlap: "{name}": {quote(name)} is not a view')
        found.append((name, value))
    return found


def parse_shown(text: str) -> list[tuple[str, Shown]]:
    """The views, sets and projections that a text names, in order, each with its own text.

    Parameters
    ----------
    text : str
        As for `parse_views`; also sets of integers and regions, made by their constructors, `MAKERS`, `SET_METHODS`
        and ``& | - ^ ~``; and projections, whose axes are named with their sizes and whose operands are lists of
        linear forms. An axis that no coordinate of `writes` has is summed over.

    Raises
    ------
    ValueError
        As `parse_views` does.

    Examples
    --------
    >>> [(t, str(v)) for t, v in parse_shown("S = Stripe(3, 2); S & ~Stripe(1, 1)")]
    [('S & ~Stripe(1, 1)', '.1...1.1..')]
    >>> parse_shown("projection(h=4, kh=3, reads=[2*h + kh], writes=[h])")[0][1]
    Signature(h:4, kh:3 summed; 1 input, 1 output)
    """
    found = []
    for name, value in _read(text, "show"):
        if isinstance(value, Stripe):
            value = Sett(value)
        if not isinstance(value, View | Signature | Integers | Region | DisjointRegions | ImplicitRegion | Box):
            raise ValueError(f'show: "{name}": {quote(name)} is not a view, a set or a projection')
        found.append((name, value))
    return found


def _tell_misread(error: SyntaxError | ValueError) -> str:
    """Where a text stops being an expression, and why; Python's words about nothing are left out."""
    if not isinstance(error, SyntaxError) or not error.text or not error.offset:
        return f": {error}"
    line = f"line {error.lineno}, " if (error.lineno or 1) > 1 else ""
    rest = quote(error.text[error.offset - 1 :].rstrip("\n"))
    why = re.sub(r"^invalid syntax(\. )?|\(detected at line \d+\)", "", error.msg).strip()
    return f" at {line}character {error.offset}, {rest}{f': {why}' if why else ''}"


def _read(text: str, command: str) -> Iterable[tuple[str, Any]]:
    """What the statements of a text are, but for those that declare or name something."""
    try:
        module = ast.parse(text.strip())
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"{command}: cannot read {quote(text)}{_tell_misread(error)}; {FORMS[command]}") from None
    except (RecursionError, MemoryError):
        raise ValueError(f"{command}: the text is nested too deeply") from None
    names: dict[str, Any] = {}
    found = []
    for statement in module.body:
        reader = _Reader(statement, names, command)
        if not reader.declare():
            found.append((ast.unparse(statement), reader.value(statement.value)))  # type: ignore[attr-defined]
    return found


class _Reader:
    def __init__(self, node: ast.stmt, names: dict[str, Any], command: str) -> None:
        self.node, self.names, self.command = node, names, command

    def fail(self, message: str) -> NoReturn:
        raise ValueError(f'{self.command}: "{ast.unparse(self.node)}": {message}')

    def declare(self) -> bool:
        """Whether the statement declares memory or names something, which is done then."""
        node = self.node
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            self.names[node.targets[0].id] = self.value(node.value)
            return True
        if not isinstance(node, ast.Expr):
            self.fail("only declarations such as A[27], views, and name = view are understood")
        declared = self._declaration(node.value)
        if declared is not None:
            self.names[declared[0]] = declared[1]
        return declared is not None

    def _declaration(self, node: ast.expr) -> tuple[str, View] | None:
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name) or node.value.id in self.names:
            return None
        name = node.value.id
        shape = self.value(node.slice)
        extents = shape if isinstance(shape, tuple) else (shape,)
        if not all(type(n) is int for n in extents):
            self.fail(f"{quote(name)} has no memory yet; declare it first, for example {name}[27] or {name}[4, 6]")
        try:
            return name, allocate(extents, name=name)
        except ValueError as error:
            self.fail(str(error))

    def view(self, node: ast.expr) -> View:
        found = self.value(node)
        if not isinstance(found, View):
            self.fail(f"{quote(ast.unparse(node))} is not a view")
        return found

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value=int() | str() | float() | None as value) if not isinstance(value, bool):
                return value
            case ast.Constant(value=value) if value is Ellipsis:
                return Ellipsis
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._negative(self.value(operand))
            case ast.UnaryOp(op=ast.Invert(), operand=operand):
                return self._try(self._set(operand).__invert__)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
                sign, combine = OPERATORS[type(op)]
                one, other = self._set(left, sign), self._set(right, sign)
                return self._try(lambda: combine(one, other))
            case ast.Tuple(elts=items):
                return tuple(self.value(item) for item in items)
            case ast.List(elts=items):
                return [self.value(item) for item in items]
            case ast.Slice(lower=low, upper=high, step=step):
                return slice(*(None if part is None else self.value(part) for part in (low, high, step)))
            case ast.Name(id="newaxis"):
                return None
            case ast.Name(id=name):
                if name not in self.names:
                    self.fail(f"{quote(name)} is not declared; declare its memory first, for example {name}[27]")
                return self.names[name]
            case ast.Subscript(value=base, slice=key):
                whole, at = self.value(base), self.value(key)
                if not isinstance(whole, View | list | DisjointSetts | DisjointRegions):  # a list is what `split` makes
                    self.fail(f"{quote(ast.unparse(base))} is not a view")
                return self._try(lambda: whole[at])
            case ast.Attribute(value=base, attr=name) if name in PROPERTIES:
                return getattr(self.view(base), name)
            case ast.Call():
                return self._call(node)
        self.fail(f"{quote(ast.unparse(node))} means nothing here")

    def _set(self, node: ast.expr, sign: str = "~") -> Any:
        found = self.value(node)
        if isinstance(found, Stripe):
            return Sett(found)
        if not isinstance(found, SETS):
            self.fail(f"{sign} needs sets; {quote(ast.unparse(node))} is none")
        return found

    def _negative(self, value: Any) -> Any:
        if not isinstance(value, int | float):
            self.fail(f"- needs a number, not {quote(value)}")
        return -value

    def _call(self, node: ast.Call) -> Any:
        match node.func:
            case ast.Attribute(value=ast.Name(id=kind), attr=name) if kind in MAKERS and kind not in self.names:
                if name not in MAKERS[kind]:
                    known = list_names(sorted(MAKERS[kind]), name, "methods")
                    self.fail(f"{kind} makes no set by {quote(name)}; {known}")
                function = getattr(FUNCTIONS[kind], name)
            case ast.Attribute(value=base, attr=name):
                function = self._method(base, name)
            case ast.Name(id="projection"):
                return self._projection(node)
            case ast.Name(id=name):
                if name not in FUNCTIONS:
                    known = list_names(sorted([*FUNCTIONS, "projection"]), name, "functions")
                    self.fail(f"there is no function {quote(name)}; {known}")
                function = FUNCTIONS[name]
            case _:
                self.fail(f"{quote(ast.unparse(node.func))} cannot be called")
        args = [self.value(arg) for arg in node.args]
        if isinstance(node.func, ast.Name):
            self._check_operand(node.func.id, args)
        keywords = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                self.fail("** means nothing here")
            keywords[keyword.arg] = self.value(keyword.value)
        return self._try(lambda: function(*args, **keywords))

    def _method(self, base: ast.expr, name: str) -> Callable[..., Any]:
        """A method of a view, or of a set."""
        owner = self.value(base)
        if isinstance(owner, Stripe):
            owner = Sett(owner)
        if isinstance(owner, SETS):
            known = [word for word in sorted(SET_METHODS) if hasattr(owner, word)]
            if name not in known:
                self.fail(f"{type(owner).__name__} has no method {quote(name)}; {list_names(known, name, 'methods')}")
        elif name not in METHODS:
            self.fail(f"views have no method {quote(name)}; {list_names(sorted(METHODS), name, 'methods')}")
        elif not isinstance(owner, View):
            self.fail(f"{quote(ast.unparse(base))} is not a view")
        return getattr(owner, name)  # type: ignore[no-any-return]

    def _projection(self, node: ast.Call) -> Signature:
        """An index space and what is read and written at each of its points."""
        given = {keyword.arg: keyword.value for keyword in node.keywords}
        if node.args or None in given or "reads" not in given or "writes" not in given:
            self.fail(f"a projection has axes with sizes, reads and writes by name, {FORM}")
        sizes = {str(name): self.value(size) for name, size in given.items() if name not in ("reads", "writes")}
        for name, size in sizes.items():
            if type(size) is not int or size < 1:
                self.fail(f"axis {name} has size {quote(size)}; give an integer >= 1")
        reads, writes = (self._operands(given[name], name, sizes) for name in ("reads", "writes"))
        kept = {word.rstrip("/%") for forms, _ in writes for form in forms for word in form}
        axes = [Axis(name, n, "parallel" if name in kept else "reduction") for name, n in sizes.items()]

        def make(operands: list[tuple[list[dict[str, int]], dict[str, int]]]) -> tuple[Operand, ...]:
            return tuple(Operand(project(axes, forms, splits=splits)) for forms, splits in operands)

        return self._try(lambda: Signature(tuple(axes), make(reads), make(writes)))  # type: ignore[no-any-return]

    def _operands(
        self, node: ast.expr, name: str, sizes: Mapping[str, int]
    ) -> list[tuple[list[dict[str, int]], dict[str, int]]]:
        """Linear forms for each coordinate of each operand, with the divisors of axes that are split."""
        if not isinstance(node, ast.List):
            self.fail(f"{name} is {quote(ast.unparse(node))}; give a list of coordinates, {FORM}")
        several = node.elts if node.elts and all(isinstance(item, ast.List) for item in node.elts) else [node]
        found = []
        for operand in several:
            splits: dict[str, int] = {}
            found.append(([self._form(item, sizes, splits) for item in operand.elts], splits))  # type: ignore[attr-defined]
        return found

    def _form(self, node: ast.expr, sizes: Mapping[str, int], splits: dict[str, int]) -> dict[str, int]:
        """A linear form of axes: what each is multiplied by, and under the empty name what is added."""
        match node:
            case ast.Constant(value=int() as value) if not isinstance(value, bool):
                return {"": value}
            case ast.Name(id=name) if name in sizes:
                return {name: 1}
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return {name: -n for name, n in self._form(operand, sizes, splits).items()}
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
                one, other = self._form(left, sizes, splits), self._form(right, sizes, splits)
                sign = 1 if isinstance(op, ast.Add) else -1
                return {name: one.get(name, 0) + sign * other.get(name, 0) for name in {**one, **other}}
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                one, other = self._form(left, sizes, splits), self._form(right, sizes, splits)
                number, form = (one, other) if one.keys() <= {""} else (other, one)
                if number.keys() <= {""}:
                    return {name: n * number.get("", 0) for name, n in form.items()}
            case ast.BinOp(
                left=ast.Name(id=name), op=ast.FloorDiv() | ast.Mod() as op, right=ast.Constant(value=int() as by)
            ) if name in sizes:
                if splits.setdefault(name, by) != by:
                    self.fail(f"axis {name} is divided by {splits[name]} and by {by}; an operand has one divisor of it")
                return {f"{name}{'//' if isinstance(op, ast.FloorDiv) else '%'}": 1}
        known = list_names(sizes, ast.unparse(node), "axes")
        self.fail(f"{quote(ast.unparse(node))} is not a linear form of axes; write for example 2*h + kh - 1; {known}")

    def _check_operand(self, name: str, args: list[Any]) -> None:
        """The first argument of a function is a view, or a list of views."""
        if name in OF_NO_VIEW:
            return
        if name not in OF_SEVERAL:
            if not args or not isinstance(args[0], View):
                self.fail(f"{name} needs a view first, {repr(args[0]) if args else 'nothing'} is given")
            return
        if not args or not isinstance(args[0], list | tuple) or not args[0]:
            self.fail(f"{name} needs a list of views first, for example {name}([A, B])")
        for k, item in enumerate(args[0]):
            if not isinstance(item, View):
                self.fail(f"{name}: item {k} of the list is {quote(item)}; every item must be a view")

    def _try(self, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except (ValueError, IndexError, TypeError, AttributeError) as error:
            self.fail(str(error))
