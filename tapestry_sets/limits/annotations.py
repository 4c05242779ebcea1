"""What callers give against annotations: the signature of a public function says what it takes, and here it is held.

Of ``def cut(size: int, at: Sequence[int] = ())``::

    cut(4.0)         cut: size is 4.0, a float, and must be an integer
    cut(4, "12")     cut: at is '12', a str, and must be a sequence of integers
    cut(4, [1.5])    cut: at[0] is 1.5, a float, and must be an integer
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache, wraps
from inspect import Parameter, signature
from numbers import Real
from types import CodeType, NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
from msgspec import Struct
from msgspec.structs import force_setattr

from tapestry_sets.limits.arguments import as_int
from tapestry_sets.limits.printable import quote

P = ParamSpec("P")
R = TypeVar("R")


class Kind(NamedTuple):
    """What an annotation admits.

    Parameters
    ----------
    words : str
        How messages name it, as ``"an integer"``.
    several : str
        How they name many of it, as ``"integers"``.
    take : callable
        ``(value, what) -> value`` as the function shall have it; raises `Unfit`, or ValueError for a value of the
        right type that is none of those listed.
    """

    words: str
    several: str
    take: Callable[[Any, str], Any]


class Unfit(TypeError):
    """A value that an annotation does not admit; it reaches callers as a plain TypeError."""

    def __init__(self, what: str, value: object, words: str) -> None:
        super().__init__(f"{what} is {describe(value)} and must be {words}")
        self.what = what


def describe(value: object) -> str:
    """Return what an error calls a value: an array by shape and dtype, not by its values.

    Examples
    --------
    >>> describe("x"), describe(np.zeros((2, 3)))
    ("'x', a str,", 'an array of shape (2, 3) and dtype float64')
    """
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and dtype {value.dtype.name}"
    name = type(value).__name__
    return f"{quote(value)}, {_article(name)} {name},"


def conform(value: Any, kind: Kind, what: str) -> Any:
    """Return a value as what a function of this kind of argument shall have; `what` is how errors name it.

    Examples
    --------
    >>> conform(np.int64(3), kind_of(int), "size")
    3
    >>> conform(3.0, kind_of(int), "size")
    Traceback (most recent call last):
    ...
    TypeError: size is 3.0, a float, and must be an integer
    """
    try:
        return kind.take(value, what)
    except Unfit as error:
        raise TypeError(str(error)) from None


def check_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """Have a function's arguments checked against their annotations before it runs.

    Integers are taken as `as_int` takes them, so that the function gets Python's own; numbers are not truth values, and
    texts are not sequences. A default is always admitted. What no annotation says, the function checks itself.

    Raises
    ------
    TypeError
        From the function that is returned, for an argument that its annotation does not admit; it names the argument.
    ValueError
        For one that is none of those that a ``Literal`` lists.

    Examples
    --------
    >>> @check_arguments
    ... def repeat(text: str, times: int | Sequence[int] = 2) -> str:
    ...     return text * times
    >>> repeat("ab", np.int64(3))
    'ababab'
    >>> repeat("ab", "3")
    Traceback (most recent call last):
    ...
    TypeError: repeat: times is '3', a str, and must be an integer or a sequence of integers
    """
    call, what = signature(function), function.__qualname__.rpartition("<locals>.")[2]
    admit = arguments_check(function, what)

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            given = call.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # raises in Python's own words
        admit(given.arguments)
        return function(*given.args, **given.kwargs)

    return checked


def arguments_check(
    function: Callable[..., Any], what: str, but: Sequence[str] = ()
) -> Callable[[dict[str, Any]], None]:
    """Return what checks a function's arguments but some, by name, and puts them as the function shall have them.

    Annotations are read when it is first asked, since they may name what a module defines further below.
    """
    found: dict[str, tuple[Parameter, Kind]] = {}

    def admit(arguments: dict[str, Any]) -> None:
        if not found:
            names = getattr(function, "__globals__", {})
            for p in signature(function).parameters.values():
                hint = Any if p.name in but or p.annotation is Parameter.empty else read_hint(p.annotation, names)
                found[p.name] = p, kind_of(hint)
        for name, value in arguments.items():
            parameter, kind = found[name]
            if value is parameter.default or kind is ANYTHING:
                continue
            if parameter.kind is Parameter.VAR_POSITIONAL:
                arguments[name] = tuple([conform(one, kind, f"{what}: {name}[{k}]") for k, one in enumerate(value)])
            elif parameter.kind is Parameter.VAR_KEYWORD:
                arguments[name] = {key: conform(one, kind, f"{what}: {key}") for key, one in value.items()}
            else:
                arguments[name] = conform(value, kind, f"{what}: {name}")

    return admit


def check_fields(value: Struct) -> None:
    """Check the fields of a struct that is being made against their annotations, from its ``__post_init__``."""
    cls = type(value)
    for name, kind, default in _fields_of(cls):
        given = getattr(value, name)
        if given is not default and (taken := conform(given, kind, f"{cls.__name__}: {name}")) is not given:
            force_setattr(value, name, taken)


@cache
def _fields_of(cls: type[Struct]) -> tuple[tuple[str, Kind, Any], ...]:
    hints = get_type_hints(cls)
    fields = cls.__struct_fields__
    defaults = (*((...,) * (len(fields) - len(cls.__struct_defaults__))), *cls.__struct_defaults__)
    kinds = ((name, kind_of(hints[name]), default) for name, default in zip(fields, defaults, strict=True))
    return tuple(field for field in kinds if field[1] is not ANYTHING)


def read_hint(written: Any, names: dict[str, Any]) -> Any:
    """Return the type that an annotation means, among the names of its module."""
    if isinstance(written, str) and not {"'", '"'} & set(written):
        return eval(_compile_hint(written), names)  # 400 parameters share 40 annotations: they are compiled once
    return get_type_hints(SimpleNamespace(__annotations__={"it": written}), names)["it"]


@cache
def _compile_hint(written: str) -> CodeType:
    return compile(written, "<annotation>", "eval")


# -- kinds -------------------------------------------------------------------------------------------------


@cache
def kind_of(hint: Any) -> Kind:
    """Return what an annotation admits; `ANYTHING` for one that says nothing that could be checked.

    Examples
    --------
    >>> kind_of(int | None).words, kind_of(Mapping[str, Sequence[float]]).words
    ('an integer or None', 'a mapping from strings to sequences of numbers')
    """
    hint = getattr(hint, "__value__", hint)  # of an alias that `type` declares
    if hint in (None, NoneType):
        return _of_test("None", "None", lambda value: value is None)
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Literal:
        return _one_of(parts)
    if isinstance(hint, UnionType) or origin is Union:
        return _either([kind_of(part) for part in parts])
    if origin is tuple and parts[-1:] != (...,):
        return _row([kind_of(part) for part in parts])
    bare = origin or hint
    if not isinstance(bare, type):
        return ANYTHING  # a type variable, a name that is not read yet
    if bare.__name__ == "Callable":
        return _of_test("callable", "callables", callable)
    if issubclass(bare, Mapping):
        return _mapping(*(kind_of(part) for part in parts or (Any, Any)))
    if bare is type:
        return _of_test("a class", "classes", lambda value: isinstance(value, type))
    if parts and issubclass(bare, AbstractSet):
        return _collection("set", AbstractSet, kind_of(parts[0]))
    if parts and issubclass(bare, Sequence):
        return _collection("sequence", Sequence, kind_of(parts[0]))
    if bare is Iterable:
        return _collection("sequence", Iterable, kind_of(parts[0]) if parts else ANYTHING)
    if getattr(bare, "_is_protocol", False):
        return _protocol(bare)
    return _of_class(bare)


def _of_test(words: str, several: str, admits: Callable[[Any], bool]) -> Kind:
    def take(value: Any, what: str) -> Any:
        if admits(value):
            return value
        raise Unfit(what, value, words)

    return Kind(words, several, take)


def _of_class(cls: type) -> Kind:
    name = cls.__name__
    return _of_test(f"{_article(name)} {name}", f"{name}s", lambda value: isinstance(value, cls))


def _take_integer(value: Any, what: str) -> int:
    if type(value) is int:
        return value
    try:
        return as_int(value, what)
    except TypeError:
        raise Unfit(what, value, _PLAIN[int].words) from None


def _take_truth(value: Any, what: str) -> bool:
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise Unfit(what, value, _PLAIN[bool].words)


ANYTHING = Kind("anything", "anything", lambda value, what: value)
_PLAIN: dict[Any, Kind] = {
    Any: ANYTHING,
    object: ANYTHING,
    int: Kind("an integer", "integers", _take_integer),
    bool: Kind("True or False", "truth values", _take_truth),
    float: _of_test("a number", "numbers", lambda value: isinstance(value, Real) and not isinstance(value, bool)),
    str: _of_test("a string", "strings", lambda value: isinstance(value, str)),
}


def _one_of(listed: tuple[Any, ...]) -> Kind:
    words = f"one of {', '.join(map(repr, listed))}"

    def take(value: Any, what: str) -> Any:
        if not any(isinstance(value, type(one)) for one in listed):
            raise Unfit(what, value, words)
        if value not in listed:
            raise ValueError(f"{what} is {quote(value)}; it must be {words}")
        return value

    return Kind(words, words, take)


def _either(kinds: Sequence[Kind]) -> Kind:
    if ANYTHING in kinds:
        return ANYTHING
    words = " or ".join(kind.words for kind in kinds)

    def take(value: Any, what: str) -> Any:
        inside: Unfit | None = None
        for kind in kinds:
            try:
                return kind.take(value, what)
            except Unfit as error:
                inside = inside or (error if error.what != what else None)
        raise inside or Unfit(what, value, words)  # what is wrong inside of it says more than that it is wrong

    return Kind(words, words, take)


def _items_of(value: Any, base: Any) -> Sequence[Any] | None:
    """What a collection holds; None for what is not one, such as a text."""
    if isinstance(value, np.ndarray):
        return value.tolist() if value.ndim and value.dtype.kind != "O" else None
    if isinstance(value, str | bytes | bytearray | memoryview):
        return None
    if isinstance(value, Mapping) and base is not Iterable:
        return None
    try:
        return tuple(value) if isinstance(value, base) else None
    except TypeError:  # a class that is iterable in name only
        return None


def _collection(noun: str, base: Any, item: Kind) -> Kind:
    end = "" if item is ANYTHING else f" of {item.several}"
    words, several = f"a {noun}{end}", f"{noun}s{end}"

    def take(value: Any, what: str) -> Any:
        items = _items_of(value, base)
        if items is None:
            raise Unfit(what, value, words)
        taken = tuple([item.take(one, f"{what}[{k}]") for k, one in enumerate(items)])
        unchanged = isinstance(value, list | tuple | AbstractSet) and all(map(_same, taken, items))
        return value if unchanged else taken

    return Kind(words, several, take)


def _row(items: Sequence[Kind]) -> Kind:
    words = f"a sequence of {len(items)}: {', '.join(item.words for item in items)}"

    def take(value: Any, what: str) -> Any:
        given = _items_of(value, Sequence)
        if given is None:
            raise Unfit(what, value, words)
        if len(given) != len(items):
            raise ValueError(f"{what} is {quote(value)}, which has {len(given)} entries; it must be {words}")
        return tuple([item.take(one, f"{what}[{k}]") for k, (item, one) in enumerate(zip(items, given, strict=True))])

    return Kind(words, words, take)


def _mapping(key: Kind, entry: Kind) -> Kind:
    words = f"a mapping from {key.several} to {entry.several}"

    def take(value: Any, what: str) -> Any:
        if not isinstance(value, Mapping):
            raise Unfit(what, value, words)
        taken = {
            key.take(name, f"{what}, its key {name!r:.60},"): entry.take(one, f"{what}[{name!r:.60}]")
            for name, one in value.items()
        }
        return value if all(map(_same, taken.values(), value.values())) else taken

    return Kind(words, words.replace("a mapping", "mappings", 1), take)


def _protocol(cls: type) -> Kind:
    """What has all that a protocol names."""
    if "__call__" in vars(cls):
        return _of_test("callable", "callables", callable)
    names = [name for name in vars(cls) if not name.startswith("_")]
    words = f"{_article(cls.__name__)} {cls.__name__}, with {' and '.join(names)}"
    return _of_test(words, words, lambda value: not isinstance(value, type) and all(hasattr(value, n) for n in names))


def _same(one: object, two: object) -> bool:
    return one is two


def _article(name: str) -> str:
    return "an" if name[:1].lower() in "aeio" else "a"
