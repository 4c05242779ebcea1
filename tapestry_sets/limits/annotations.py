"""What an annotation admits: the kinds of values that it means, and how errors name them.

A kind is made of the checks of `arguments`; `conform` holds one value to it, and `checks` holds whole calls::

    int                 an integer                  4.0      size must be an integer, not 4.0 of type float
    Sequence[int]       a sequence of integers      "12"     at must be a sequence of integers, not '12' of type str
                                                    [1.5]    at[0] must be an integer, not 1.5 of type float
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cache, partial
from types import CodeType, NoneType, SimpleNamespace, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import numpy as np

from tapestry_sets.limits.arguments import (
    add_article,
    as_int,
    as_items,
    as_number,
    as_text,
    check_flag,
    check_type,
    wrong_type,
)
from tapestry_sets.limits.printable import quote


class Everything(frozenset[type]):
    """All types."""

    def __contains__(self, kind: object) -> bool:
        return True

    def issuperset(self, *kinds: Iterable[object]) -> bool:
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
    """A value that an annotation does not admit; `conform` makes a plain TypeError of it."""

    def __init__(self, what: str, said: str) -> None:
        super().__init__(said)
        self.what = what


def _unfit(value: object, words: str, what: str) -> Unfit:
    again = "it is read only once, so make it a tuple" if hasattr(value, "__next__") else ""
    return Unfit(what, str(wrong_type(value, words, what, again)))


def conform(value: Any, kind: Kind, what: str, mend: str = "") -> Any:
    """Return a value as a function with this kind of argument shall have it; `what` is how errors name it.

    Examples
    --------
    >>> conform(np.int64(3), kind_of(int), "size")
    3
    >>> conform(3.0, kind_of(int), "size")
    Traceback (most recent call last):
    ...
    TypeError: size must be an integer, not 3.0 of type float
    """
    try:
        return kind.take(value, what)
    except Unfit as error:
        raise TypeError(f"{error}{'; ' * bool(mend)}{mend}") from None


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
        return _of_test("a callable", "callables", callable)
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
    words = add_article(bare.__name__)
    return _of_check(words, f"{bare.__name__}s", partial(_check_class, bare), bare)


def _of_check(words: str, several: str, check: Callable[[Any, str], Any], *exact: type) -> Kind:
    """What a check of `arguments` admits."""

    def take(value: Any, what: str) -> Any:
        try:
            return check(value, what)
        except TypeError as error:
            raise Unfit(what, str(error)) from None

    return Kind(words, several, take, frozenset(exact))


def _of_test(words: str, several: str, admits: Callable[[Any], bool], *exact: type) -> Kind:
    def check(value: Any, what: str) -> Any:
        if admits(value):
            return value
        raise wrong_type(value, words, what)

    return _of_check(words, several, check, *exact)


def _check_class(cls: type, value: Any, what: str) -> Any:
    return check_type(value, cls, what)


ANYTHING = Kind("anything", "anything", lambda value, what: value, Everything())
_PLAIN: dict[Any, Kind] = {
    Any: ANYTHING,
    object: ANYTHING,
    None: (nothing := _of_test("None", "None", lambda value: value is None, NoneType)),
    NoneType: nothing,
    int: _of_check("an integer", "integers", as_int, int),
    bool: _of_check("True or False", "truth values", check_flag, bool),
    float: _of_check("a number", "numbers", as_number, float),
    str: _of_check("a string", "strings", as_text, str),
}


def _one_of(listed: tuple[Any, ...]) -> Kind:
    words = f"one of {list(listed)}"

    def take(value: Any, what: str) -> Any:
        if not any(isinstance(value, type(one)) for one in listed):
            raise _unfit(value, words, what)
        if value not in listed:
            raise ValueError(f"{what} must be {words}, not {quote(value)}")
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
        # What is wrong inside of it says more than that it is wrong.
        raise inside or _unfit(value, words, what)

    return Kind(words, words, take, frozenset[type]().union(*(kind.exact for kind in kinds)))


def _items_of(value: Any, base: Any, words: str, what: str) -> Sequence[Any]:
    """What a collection holds; raises `Unfit` for what is not one, such as a text."""
    if type(value) in (list, tuple) and base is not AbstractSet:
        return value  # type: ignore[no-any-return]
    try:
        if base is Sequence and isinstance(value, Sequence | np.ndarray):
            return as_items(value, what)
        text = (str, bytes, bytearray, memoryview) + (() if base is Iterable else (Mapping,))
        if base is not Sequence and isinstance(value, base) and not isinstance(value, text):
            return tuple(value)
    except TypeError:  # an array of rank 0, a class that is iterable in name only
        pass
    raise _unfit(value, words, what)


def _collection(noun: str, base: Any, item: Kind, make: type = list) -> Kind:
    end = "" if item is ANYTHING else f" of {item.several}"
    words, several = f"a {noun}{end}", f"{noun}s{end}"

    def take(value: Any, what: str) -> Any:
        items = _items_of(value, base, words, what)
        if items is value and item.exact.issuperset(map(type, items)):
            return value if make is list else make(value)
        taken = tuple([item.take(one, f"{what}[{k}]") for k, one in enumerate(items)])
        unchanged = isinstance(value, tuple | make | AbstractSet) and all(map(_same, taken, items))
        return value if unchanged else taken

    return Kind(words, several, take)


def _row(items: Sequence[Kind]) -> Kind:
    words = f"a sequence of {len(items)}: {', '.join(item.words for item in items)}"

    def take(value: Any, what: str) -> Any:
        given = _items_of(value, Sequence, words, what)
        if len(given) != len(items):
            raise ValueError(f"{what} must be {words}, not {quote(value)}, which has {len(given)} entries")
        return tuple([item.take(one, f"{what}[{k}]") for k, (item, one) in enumerate(zip(items, given, strict=True))])

    return Kind(words, words, take)


def _mapping(key: Kind, entry: Kind) -> Kind:
    ends = ((" from", key), (" to", entry))
    words = "a mapping" + "".join(f"{word} {kind.several}" for word, kind in ends if kind is not ANYTHING)

    def take(value: Any, what: str) -> Any:
        if not isinstance(value, Mapping):
            raise _unfit(value, words, what)
        if key.exact.issuperset(map(type, value)) and entry.exact.issuperset(map(type, value.values())):
            return value
        taken = {
            key.take(name, f"{what}, its key {quote(name)},"): entry.take(one, f"{what}[{quote(name)}]")
            for name, one in value.items()
        }
        return value if all(map(_same, taken.values(), value.values())) else taken

    return Kind(words, words.replace("a mapping", "mappings", 1), take)


def _protocol(cls: type) -> Kind:
    """What has all that a protocol names; where some of it is abstract, that."""
    if "__call__" in vars(cls):
        return _of_test("a callable", "callables", callable)
    names = sorted(getattr(cls, "__abstractmethods__", ())) or [name for name in vars(cls) if not name.startswith("_")]
    words = add_article(cls.__name__) + f", with {' and '.join(names)}" * (len(names) < 4)
    return _of_test(words, words, lambda value: not isinstance(value, type) and all(hasattr(value, n) for n in names))


def _same(one: object, two: object) -> bool:
    return one is two
