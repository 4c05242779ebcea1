"""What callers give against annotations: the signature of a public function says what it takes, and here it is held.

Of ``def cut(size: int, at: Sequence[int] = ())``::

    cut(4.0)         cut: size is 4.0, a float, and must be an integer
    cut(4, "12")     cut: at is '12', a str, and must be a sequence of integers
    cut(4, [1.5])    cut: at[0] is 1.5, a float, and must be an integer
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache, cached_property, wraps
from inspect import Parameter, Signature, signature
from numbers import Integral, Real
from types import CodeType, MappingProxyType, NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints, overload

import numpy as np
from msgspec import Struct
from msgspec.structs import force_setattr

from tapestry_sets.limits.arguments import as_int
from tapestry_sets.limits.printable import quote

P = ParamSpec("P")
R = TypeVar("R")


class Everything(frozenset[type]):
    """All types."""

    def __contains__(self, kind: object) -> bool:
        return True


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
    exact : set of types
        Values of these very types are admitted as they are.
    """

    words: str
    several: str
    take: Callable[[Any, str], Any]
    exact: frozenset[type] = frozenset()


class Unfit(TypeError):
    """A value that an annotation does not admit; it reaches callers as a plain TypeError."""

    def __init__(self, what: str, value: object, words: str) -> None:
        again = "; it is read only once, so make it a tuple" if hasattr(value, "__next__") else ""
        super().__init__(f"{what} is {describe(value)} and must be {words}{again}")
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
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{quote(value)}, {_article(name)} {name},"


def conform(value: Any, kind: Kind, what: str, mend: str = "") -> Any:
    """Return a value as a function with this kind of argument shall have it; `what` is how errors name it.

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
        raise TypeError(f"{error}{'; ' * bool(mend)}{mend}") from None


@overload
def check_arguments(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def check_arguments(**mends: str) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def check_arguments(function: Callable[P, R] | None = None, /, **mends: str) -> Any:
    """Have a function's arguments checked against their annotations before it runs.

    As ``@check_arguments``, or with words on what to do about arguments that are wrong, ``@check_arguments(size="…")``.

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
    if function is None:
        return lambda checked: _checking(checked, mends)
    return _checking(function, {})


def _checking(function: Callable[P, R], mends: Mapping[str, str]) -> Callable[P, R]:
    checks = Checks(function, function.__qualname__.rpartition("<locals>.")[2].removesuffix(".__init__"), mends=mends)

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if len(args) <= len(checks.plain) and checks.single.issuperset(kwargs):
            checks.by_name(kwargs)
            return function(*checks.by_place(args), **kwargs)
        try:
            given = checks.call.bind(*args, **kwargs)
        except TypeError:
            return function(*args, **kwargs)  # raises in Python's own words
        checks.by_name(given.arguments)
        return function(*given.args, **given.kwargs)

    return checked


class Checks:
    """What checks the arguments of a function.

    Annotations are read when the first arguments are checked, since they may name what a module defines further below.

    Parameters
    ----------
    function : callable
    what : str
        How messages name it.
    but : sequence of str
        Parameters that are not checked.
    mends : mapping, optional
        What messages say, by parameter, that could be done.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        what: str,
        but: Sequence[str] = (),
        mends: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.function, self.what, self.but, self.mends = function, what, but, mends

    @cached_property
    def call(self) -> Signature:
        return signature(self.function)

    @cached_property
    def entries(self) -> dict[str, tuple[Parameter, Kind, str, str]]:
        """Each parameter, what it admits, how messages name it, and what they say that could be done."""
        names = getattr(self.function, "__globals__", {})
        found = {}
        for name, p in self.call.parameters.items():
            hint = Any if name in self.but or p.annotation is Parameter.empty else read_hint(p.annotation, names)
            found[name] = p, kind_of(hint), f"{self.what}: {name}", self.mends.get(name, "")
        return found

    @cached_property
    def plain(self) -> tuple[tuple[Any, Kind, str, str], ...]:
        """As `entries`, with their defaults, those that are given by place, one argument for each."""
        placed = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        return tuple([(p.default, *entry) for p, *entry in self.entries.values() if p.kind in placed])

    @cached_property
    def single(self) -> frozenset[str]:
        """The names of those that are given by name, one argument for each."""
        named = (Parameter.KEYWORD_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        return frozenset(name for name, (p, *_) in self.entries.items() if p.kind in named)

    def by_place(self, args: Sequence[Any]) -> list[Any]:
        """Arguments given by place as the function shall have them."""
        return [
            value if type(value) in kind.exact or value is default else conform(value, kind, what, mend)
            for value, (default, kind, what, mend) in zip(args, self.plain, strict=False)
        ]

    def by_name(self, arguments: dict[str, Any]) -> None:
        """Put arguments by name as the function shall have them."""
        for name, value in arguments.items():
            p, kind, what, mend = self.entries[name]
            if type(value) in kind.exact or value is p.default:
                continue
            if p.kind is p.VAR_POSITIONAL:
                arguments[name] = tuple([conform(one, kind, f"{what}[{k}]") for k, one in enumerate(value)])
            elif p.kind is p.VAR_KEYWORD:
                arguments[name] = {key: conform(one, kind, f"{self.what}: {key}") for key, one in value.items()}
            else:
                arguments[name] = conform(value, kind, what, mend)


def check_fields(value: Struct) -> None:
    """Check the fields of a struct that is being made against their annotations, from its ``__post_init__``."""
    cls = type(value)
    for name, kind, default in _fields_of(cls):
        given = getattr(value, name)
        if type(given) in kind.exact or given is default:
            continue
        if (taken := conform(given, kind, f"{cls.__name__}: {name}")) is not given:
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
        return _of_test("None", "None", lambda value: value is None, NoneType)
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
        return _collection("sequence", Sequence, kind_of(parts[0]), tuple if bare is tuple else list)
    if bare is Collection:
        return _collection("collection", Collection, kind_of(parts[0]) if parts else ANYTHING)
    if bare is Iterable:
        return _collection("sequence", Iterable, kind_of(parts[0]) if parts else ANYTHING)
    if getattr(bare, "_is_protocol", False):
        return _protocol(bare)
    return _of_class(bare)


def _of_test(words: str, several: str, admits: Callable[[Any], bool], *exact: type) -> Kind:
    def take(value: Any, what: str) -> Any:
        if admits(value):
            return value
        raise Unfit(what, value, words)

    return Kind(words, several, take, frozenset(exact))


def _of_class(cls: type) -> Kind:
    name = cls.__name__
    if cls is bytes:
        return _of_test("bytes", "bytes", lambda value: isinstance(value, bytes), bytes)
    return _of_test(f"{_article(name)} {name}", f"{name}s", lambda value: isinstance(value, cls), cls)


def _take_integer(value: Any, what: str) -> int:
    if type(value) is int:
        return value
    try:
        return as_int(value, what)
    except TypeError:
        raise Unfit(what, value, _PLAIN[int].words) from None


def _take_truth(value: Any, what: str) -> bool:
    if isinstance(value, bool | np.bool_) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise Unfit(what, value, _PLAIN[bool].words)


def _take_number(value: Any, what: str) -> float:
    """A number as Python's own: documents hold no others."""
    if isinstance(value, np.ndarray) and not value.ndim and value.dtype.kind in "iuf":
        value = value.item()
    if not isinstance(value, Real) or isinstance(value, bool):
        raise Unfit(what, value, _PLAIN[float].words)
    if isinstance(value, Integral):
        value = int(value)
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{what} is {quote(value)}, which is beyond a float; it must be less") from None
    return value if type(value) is int else number


def _take_text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise Unfit(what, value, _PLAIN[str].words)
    return str(value) if isinstance(value, np.str_) else value


ANYTHING = Kind("anything", "anything", lambda value, what: value, Everything())
_PLAIN: dict[Any, Kind] = {
    Any: ANYTHING,
    object: ANYTHING,
    int: Kind("an integer", "integers", _take_integer, frozenset({int})),
    bool: Kind("True or False", "truth values", _take_truth, frozenset({bool})),
    float: Kind("a number", "numbers", _take_number, frozenset({float})),
    str: Kind("a string", "strings", _take_text, frozenset({str})),
}


def _one_of(listed: tuple[Any, ...]) -> Kind:
    words = f"one of {list(listed)}"

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

    return Kind(words, words, take, frozenset[type]().union(*(kind.exact for kind in kinds)))


def _items_of(value: Any, base: Any) -> Sequence[Any] | None:
    """What a collection holds; None for what is not one, such as a text."""
    if type(value) in (list, tuple) and base is not AbstractSet:
        return value  # type: ignore[no-any-return]
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


def _collection(noun: str, base: Any, item: Kind, make: type = list) -> Kind:
    end = "" if item is ANYTHING else f" of {item.several}"
    words, several = f"a {noun}{end}", f"{noun}s{end}"

    def take(value: Any, what: str) -> Any:
        items = _items_of(value, base)
        if items is None:
            raise Unfit(what, value, words)
        if items is value and all(map(item.exact.__contains__, map(type, items))):
            return value if make is list else make(value)
        taken = tuple([item.take(one, f"{what}[{k}]") for k, one in enumerate(items)])
        unchanged = isinstance(value, tuple | make | AbstractSet) and all(map(_same, taken, items))
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
        if all(map(key.exact.__contains__, map(type, value))) and all(
            map(entry.exact.__contains__, map(type, value.values()))
        ):
            return value
        taken = {
            key.take(name, f"{what}, its key {quote(name)},"): entry.take(one, f"{what}[{quote(name)}]")
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
