"""Views written as text: ``A[27]; A.reshape(3,3,3)[:2,:2,:2]; A[2::5]``.

The text is parsed with `ast` and only the forms listed here mean something; nothing is ever executed.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any, NoReturn

from tapestry_sets.integers import Sett, Stripe
from tapestry_sets.limits import list_names, quote
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
}
OF_SEVERAL = frozenset({"concatenate", "concat", "stack", "interleave", "hstack", "vstack"})
"""Functions whose first argument is a list of views."""
OF_NO_VIEW = frozenset({"Sett", "Stripe"})
"""Functions that make what ``sample`` takes; all others begin with one view."""


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
    try:
        module = ast.parse(text.strip())
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"overlap: cannot read {quote(text)}: {error}") from None
    except (RecursionError, MemoryError):
        raise ValueError("overlap: the text is nested too deeply") from None
    names: dict[str, View] = {}
    views = []
    for statement in module.body:
        found = _Reader(statement, names).statement()
        if found is not None:
            views.append((ast.unparse(statement), found))
    return views


class _Reader:
    def __init__(self, statement: ast.stmt, names: dict[str, View]) -> None:
        self.node, self.names = statement, names

    def fail(self, message: str) -> NoReturn:
        raise ValueError(f'overlap: "{ast.unparse(self.node)}": {message}')

    def statement(self) -> View | None:
        node = self.node
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            self.names[node.targets[0].id] = self.view(node.value)
            return None
        if not isinstance(node, ast.Expr):
            self.fail("only declarations such as A[27], views, and name = view are understood")
        declared = self._declaration(node.value)
        if declared is not None:
            self.names[declared[0]] = declared[1]
            return None
        return self.view(node.value)

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
                if not isinstance(whole, View | list):  # a list is what `split` makes
                    self.fail(f"{quote(ast.unparse(base))} is not a view")
                return self._try(lambda: whole[at])
            case ast.Attribute(value=base, attr=name) if name in PROPERTIES:
                return getattr(self.view(base), name)
            case ast.Call():
                return self._call(node)
        self.fail(f"{quote(ast.unparse(node))} means nothing here")

    def _negative(self, value: Any) -> Any:
        if not isinstance(value, int | float):
            self.fail(f"- needs a number, not {quote(value)}")
        return -value

    def _call(self, node: ast.Call) -> Any:
        match node.func:
            case ast.Attribute(value=base, attr=name):
                if name not in METHODS:
                    self.fail(f"views have no method {quote(name)}; {list_names(sorted(METHODS), name, 'methods')}")
                function = getattr(self.view(base), name)
            case ast.Name(id=name):
                if name not in FUNCTIONS:
                    self.fail(f"there is no function {quote(name)}; {list_names(sorted(FUNCTIONS), name, 'functions')}")
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
