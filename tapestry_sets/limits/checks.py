"""Calls and structs held to their annotations: the signature of a public function says what it takes.

What holds a call is written out as code once, of the function's own signature, so that Python binds the arguments and
a value of just the right type costs one comparison. Of ``def cut(size: int, at: Sequence[int] = ())``::

    def checked(size, at=default_at):
        if type(size) is not int: size = conform(size, kind of int, "cut: size")
        if at is not default_at: at = conform(at, kind of Sequence[int], "cut: at")
        return cut(size, at)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache, wraps
from inspect import Parameter, Signature, get_annotations, signature
from typing import Any, ParamSpec, TypeVar, get_type_hints, overload

from msgspec import NODEFAULT, Struct
from msgspec.structs import force_setattr

from tapestry_sets.limits.annotations import ANYTHING, Kind, conform, kind_of, read_hint
from tapestry_sets.limits.constructors import tell_call

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


@overload
def check_arguments(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def check_arguments(**mends: str) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def check_arguments(function: Callable[P, R] | None = None, /, **mends: str) -> Any:
    """Have a function's arguments checked against their annotations before it runs.

    As ``@check_arguments``, or with words on what to do about arguments that are wrong, ``@check_arguments(size="…")``.

    Integers are taken as `as_int` takes them, so that the function gets Python's own; numbers are not truth values, and
    texts are not sequences. A default is always admitted. What no annotation says, the function checks itself.
    Functions of ours that call it often, with arguments that are known to be right, call `skip_checks` of it.

    Raises
    ------
    TypeError
        From the function that is returned, for an argument that its annotation does not admit; it names the argument.
    ValueError
        For one that is none of those that a ``Literal`` lists.

    Examples
    --------
    >>> import numpy as np
    >>> @check_arguments
    ... def repeat(text: str, times: int | Sequence[int] = 2) -> str:
    ...     return text * times
    >>> repeat("ab", np.int64(3))
    'ababab'
    >>> repeat("ab", "3")
    Traceback (most recent call last):
    ...
    TypeError: repeat: times must be an integer or a sequence of integers, not '3' of type str
    """
    if function is None:
        return lambda checked: hold_calls(checked, mends=mends)
    return hold_calls(function)


def skip_checks(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function whose arguments are checked without the checks."""
    return function.__wrapped__  # type: ignore[attr-defined, no-any-return]


def hold_calls(
    function: Callable[P, Any],
    what: str = "",
    but: Sequence[str] = (),
    mends: Mapping[str, str] | None = None,
    then: Callable[..., R] | None = None,
) -> Callable[P, R]:
    """Return a function that calls another one with arguments that its annotations admit.

    Annotations are read at the first call, since they may name what a module defines further below.

    Parameters
    ----------
    function : callable
    what : str
        How messages name it; by its qualified name by default.
    but : sequence of str
        Parameters that are not checked.
    mends : mapping, optional
        What messages say, by parameter, that could be done.
    then : callable, optional
        ``then(answer, *values)`` answers in its place: it gets the function's answer and the value of each parameter.
    """
    made: Callable[..., Any] | None = None

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> Any:
        nonlocal made
        if made is None:
            made = _compile_call(function, what or _name_of(function), but, mends or {}, then)
        try:
            return made(*args, **kwargs)
        except TypeError:
            if told := tell_call(what or _name_of(function), signature(function), args, kwargs):
                raise TypeError(told) from None
            raise

    return checked


def _name_of(function: Callable[..., Any]) -> str:
    return function.__qualname__.rpartition("<locals>.")[2].removesuffix(".__init__")


_BEFORE = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}


class _Word:
    """What is written in code as these words."""

    def __init__(self, words: str) -> None:
        self.words = words

    def __repr__(self) -> str:
        return self.words


def _compile_call(
    function: Callable[..., Any],
    what: str,
    but: Sequence[str],
    mends: Mapping[str, str],
    then: Callable[..., Any] | None,
) -> Callable[..., Any]:
    """The code that checks and calls. Names of its own begin with an underscore and a digit, as no parameter does."""
    module, call = getattr(function, "__globals__", {}), signature(function)
    names: dict[str, Any] = {"_0function": function, "_0then": then}
    head, lines, given = [], [], []
    for name, p in call.parameters.items():
        hint = Any if name in but or p.annotation is p.empty else read_hint(p.annotation, module)
        default = p.empty if p.default is p.empty else _Word(f"_0default_{name}")
        head.append(p.replace(annotation=p.empty, default=default))
        names[f"_0default_{name}"] = p.default
        given.append(f"{_BEFORE.get(p.kind.name, '')}{name}" if p.kind is not p.KEYWORD_ONLY else f"{name}={name}")
        if (kind := kind_of(hint)) is not ANYTHING:
            lines += _write_check(p, kind, f"{what}: {name}", mends.get(name, ""), names)
    answer = f"_0function({', '.join(given)})"
    if then is not None:
        answer = f"_0then({', '.join([answer, *call.parameters])})"
    return _compile(f"def _0checked{Signature(head)}:", [*lines, f"return {answer}"], names, function.__qualname__)


def _write_check(p: Parameter, kind: Kind, what: str, mend: str, names: dict[str, Any]) -> list[str]:
    """The lines that check one parameter; what they need of Python's is put among `names`."""
    name = p.name
    names[f"_0take_{name}"] = _taking(kind, what, mend, p)
    if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD):
        values = name if p.kind is p.VAR_POSITIONAL else f"{name}.values()"
        names[f"_0exact_{name}"] = kind.exact
        tests = [f"not _0exact_{name}.issuperset(_0map(_0type, {values}))"]
    else:
        tests = _write_tests(name, kind, p.default, names)
    return [f"if {' and '.join(tests)}: {name} = _0take_{name}({name})"]


def _write_tests(name: str, kind: Kind, default: Any, names: dict[str, Any]) -> list[str]:
    """What is true of a value that is not right at sight."""
    tests = []
    for k, one in enumerate(sorted(kind.exact, key=repr)):
        if one is type(None):
            tests.append(f"{name} is not None")
        else:
            names[f"_{k}type_{name}"] = one
            tests.append(f"_0type({name}) is not _{k}type_{name}")
    if default is not Parameter.empty and type(default) not in kind.exact:
        names[f"_0default_{name}"] = default
        tests.append(f"{name} is not _0default_{name}")
    return tests or ["True"]


def _taking(kind: Kind, what: str, mend: str, p: Parameter) -> Callable[[Any], Any]:
    """Makes of an argument what the function shall have: of one that is not right at sight."""
    if p.kind is p.VAR_POSITIONAL:
        return lambda values: tuple([conform(one, kind, f"{what}[{k}]", mend) for k, one in enumerate(values)])
    if p.kind is p.VAR_KEYWORD:
        place = what.removesuffix(p.name)
        return lambda values: {key: conform(one, kind, f"{place}{key}", mend) for key, one in values.items()}
    return lambda value: conform(value, kind, what, mend)


def _compile(head: str, lines: Sequence[str], names: dict[str, Any], qualname: str) -> Callable[..., Any]:
    names |= {"_0type": type, "_0map": map}
    exec(compile("\n    ".join([head, *lines]), f"<checks of {qualname}>", "exec"), names)
    made = names["_0checked"]
    made.__qualname__ = qualname  # by which Python says which argument is missing
    return made  # type: ignore[no-any-return]


def check_tuple(cls: type[T]) -> type[T]:
    """Have a named tuple check its fields against their annotations, as a struct does.

    `_make` of it takes fields that are known to be right.

    Examples
    --------
    >>> from typing import NamedTuple
    >>> @check_tuple
    ... class Page(NamedTuple):
    ...     number: int
    >>> Page("3")
    Traceback (most recent call last):
    ...
    TypeError: Page: number must be an integer, not '3' of type str
    """
    make: Any = cls.__new__
    hints, found = get_type_hints(cls), signature(make)
    fields = [p.replace(annotation=hints.get(p.name, p.empty)) for p in found.parameters.values()]
    make.__signature__ = found.replace(parameters=fields)
    cls.__new__ = hold_calls(make, cls.__name__)  # type: ignore[method-assign]
    return cls


# -- structs -------------------------------------------------------------------------------------------------


def check_fields(value: Struct) -> None:
    """Check the fields of a struct that is being made against their annotations, from its ``__post_init__``.

    Examples
    --------
    >>> class Page(Struct):
    ...     number: int
    ...     __post_init__ = check_fields
    >>> Page("3")
    Traceback (most recent call last):
    ...
    TypeError: Page: number must be an integer, not '3' of type str
    """
    _compile_fields(type(value))(value)


@cache
def _compile_fields(cls: type[Struct]) -> Callable[[Struct], None]:
    """The code that checks a struct's fields, written as that of calls is."""
    names: dict[str, Any] = {}
    hints = _read_hints(cls)
    fields, defaults = cls.__struct_fields__, cls.__struct_defaults__
    lines = ["pass"]
    for name, default in zip(fields, (NODEFAULT,) * (len(fields) - len(defaults)) + defaults, strict=True):
        if (kind := kind_of(hints[name])) is ANYTHING:
            continue
        names[f"_0take_{name}"] = _putting(name, kind, f"{cls.__name__}: {name}")
        known = Parameter.empty if default is NODEFAULT else default
        lines.append(f"{name} = _0value.{name}")
        lines.append(f"if {' and '.join(_write_tests(name, kind, known, names))}: _0take_{name}(_0value, {name})")
    return _compile("def _0checked(_0value):", lines, names, cls.__name__)


def _putting(name: str, kind: Kind, what: str) -> Callable[[Struct, Any], None]:
    """Puts a field as the struct shall have it: one that is not right at sight."""

    def put(made: Struct, value: Any) -> None:
        if (taken := conform(value, kind, what)) is not value:
            force_setattr(made, name, taken)

    return put


def _read_hints(cls: type[Struct]) -> dict[str, Any]:
    """The types of a struct's fields, those of its bases included."""
    return {
        name: read_hint(written, vars(sys.modules[base.__module__]))
        for base in reversed(cls.__mro__)
        for name, written in get_annotations(base).items()
    }
