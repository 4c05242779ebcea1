"""Helpers for values, beyond msgspec: bases, constructors without checks, reprs that leave long fields out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np
from msgspec import Struct, StructMeta

from tapestry_sets.limits.printable import list_names, quote

T = TypeVar("T")
F = TypeVar("F", bound="Frozen")
K = TypeVar("K")
V = TypeVar("V")
Held = TypeVar("Held", bound="np.ndarray[Any, Any] | None")


class Frozen:
    """The base of values that never change: the constructor sets the fields, and nothing else can."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__}.{name}: a {type(self).__name__} is never changed; make a new one")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__}.{name}: a field is never deleted")

    def __setstate__(self, state: tuple[None, dict[str, object]]) -> None:
        put_fields(self, **state[1])  # of a pickle or a copy


class Guarded:
    """The base of what its own methods alone change: they write its public attributes by `put_fields`.

    Examples
    --------
    >>> class Shelf(Guarded):
    ...     def __init__(self) -> None:
    ...         put_fields(self, books={})
    >>> Shelf().books = {}
    Traceback (most recent call last):
        ...
    AttributeError: Shelf.books is never assigned: the methods of Shelf change it; make a new Shelf, or change a copy
    """

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_"):
            self._refuse(name)
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        if not name.startswith("_"):
            self._refuse(name)
        object.__delattr__(self, name)

    def _refuse(self, name: str) -> NoReturn:
        cls = type(self).__name__
        raise AttributeError(
            f"{cls}.{name} is never assigned: the methods of {cls} change it; make a new {cls}, or change a copy"
        )


class FrozenDict(dict[K, V]):
    """A dict that is never changed: what values hand out, so that no answer changes through it.

    It equals, and is written as, the dict of its items; `dict` makes one that can be changed. Who owns it may fill it
    by `put_item` and `drop_item`, as a graph does to which a node is added.

    Examples
    --------
    >>> parts = FrozenDict({"m": 4})
    >>> parts == {"m": 4}, parts
    (True, {'m': 4})
    >>> parts["k"] = 2
    Traceback (most recent call last):
        ...
    TypeError: {'m': 4} is handed out and never changes; change a copy of it, dict(…)
    """

    __slots__ = ()

    def __new__(cls, *items: Any, **more: V) -> FrozenDict[K, V]:
        new = super().__new__(cls)
        dict.__init__(new, *items, **more)
        return new

    def __init__(self, *items: Any, **more: V) -> None:
        """Nothing: the items are there since `__new__`, and a second call changes nothing."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(f"{quote(self)} is handed out and never changes; change a copy of it, dict(…)")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (dict(self),)


put_item = dict.__setitem__
"""Sets an item of a `FrozenDict` of one's own: ``put_item(frozen, key, value)``."""
drop_item = dict.__delitem__
"""Deletes an item of a `FrozenDict` of one's own: ``drop_item(frozen, key)``."""


def freeze_dicts(found: Any) -> Any:
    """Return a dict, and the dicts that it holds, as ones that are never changed; another value as it is.

    Examples
    --------
    >>> type(freeze_dicts({"matmul": {"k": 4}})["matmul"]).__name__
    'FrozenDict'
    """
    if not isinstance(found, dict):
        return found
    return FrozenDict((key, freeze_dicts(value)) for key, value in found.items())


def freeze_array(array: Held) -> Held:
    """Return an array after barring that anybody writes to it; None stays None."""
    if array is not None:
        array.flags.writeable = False
    return array


class Value(Frozen):
    """A value with slots and a constructor of its own, equal to one of its class with the same fields.

    `__match_args__` names the fields that are compared, hashed and shown. A struct does this at less cost, but has no
    room for fields that follow from the others, nor for a base that is abstract.
    """

    __slots__ = ()
    __match_args__: tuple[str, ...]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        fields_of = attrgetter(*cls.__match_args__)

        def equal(self: object, other: object) -> bool:
            return fields_of(self) == fields_of(other) if self.__class__ is other.__class__ else NotImplemented

        def hashed(self: object) -> int:
            return hash(fields_of(self))

        for name, method in (("__eq__", equal), ("__hash__", hashed)):
            if name not in vars(cls):  # a class may say by itself what equals it
                setattr(cls, name, method)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
        return f"{type(self).__name__}({shown})"


def tell_call(what: str, taken: Signature, given: Sequence[Any], named: Mapping[str, Any]) -> str:
    """Return why a call does not fit the arguments that are taken, and how to mend it; nothing where it fits.

    Examples
    --------
    >>> from inspect import Parameter, Signature, signature
    >>> taken = signature(lambda size, at=0: None)
    >>> tell_call("cut", taken, (1,), {"att": 3})
    "cut() got an unexpected keyword argument 'att'; known arguments: 'size', 'at'"
    >>> tell_call("cut", taken, (), {"at": 3})
    "cut() missing a required argument: 'size'; write cut(size)"
    >>> tell_call("cut", taken, (1,), {"at": 3})
    ''
    """
    shown = [p for p in taken.parameters.values() if p.name not in ("self", "cls", "_cls")]
    known = [p.name for p in shown if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in shown)
    unknown = [] if takes_any else [name for name in named if name not in known]
    if unknown:
        any_number = [f"*{p.name}" for p in shown if p.kind is p.VAR_POSITIONAL]
        names = list_names([*known, *any_number], unknown[0], "arguments")
        return f"{what}() got an unexpected keyword argument {quote(unknown[0])}; {names}"
    try:
        taken.bind(*given, **named)
    except TypeError as error:
        needed = ", ".join(p.name for p in shown if p.name in known and p.default is p.empty)
        mend = f"write {what}({needed})" if "missing" in str(error) else list_names(known, "", "arguments")
        return f"{what}() {error}; {mend}"
    return ""


def mend_calls(cls: type[T]) -> type[T]:
    """Have a class with a constructor of its own, or a named tuple, say how to mend a call that does not fit it.

    Examples
    --------
    >>> @mend_calls
    ... class Page:
    ...     def __init__(self, number: int) -> None:
    ...         self.number = number
    >>> Page(nummer=3)
    Traceback (most recent call last):
    ...
    TypeError: Page() got an unexpected keyword argument 'nummer'; known arguments: 'number'
    """
    name = "__new__" if issubclass(cls, tuple) else "__init__"
    make = vars(cls)[name]

    @wraps(make)
    def told(*args: Any, **kwargs: Any) -> Any:
        try:
            return make(*args, **kwargs)
        except TypeError:
            if said := tell_call(cls.__name__, signature(make), args, kwargs):
                raise TypeError(said) from None
            raise

    setattr(cls, name, told)
    return cls


def _fields_of(cls: Any) -> Signature:
    """What a struct takes, without its annotations, some of which name what only type checkers import."""
    fields, defaults = cls.__struct_fields__, cls.__struct_defaults__
    kind, needed = Parameter.POSITIONAL_OR_KEYWORD, (Parameter.empty,) * (len(fields) - len(defaults))
    return Signature(
        [Parameter(name, kind, default=value) for name, value in zip(fields, (*needed, *defaults), strict=True)]
    )


class Public(StructMeta):
    """The class of structs that users make: a call that does not fit says the name, and which fields there are.

    Examples
    --------
    >>> class Page(Struct, metaclass=Public):
    ...     number: int
    >>> Page(nummer=3)
    Traceback (most recent call last):
    ...
    TypeError: Page() got an unexpected keyword argument 'nummer'; known arguments: 'number'
    """

    if not TYPE_CHECKING:  # that a struct takes its fields is known without this

        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            try:
                return super().__call__(*args, **kwargs)
            except TypeError:
                if told := tell_call(cls.__name__, _fields_of(cls), args, kwargs):
                    raise TypeError(told) from None
                raise


class Checked(StructMeta):
    """The class of structs that check their fields.

    The fields of ``Cls(…)`` are what ``Cls._check(…)`` returns; ``Cls._of(…)`` takes fields that are known to be right.

    Examples
    --------
    >>> class Even(Struct, frozen=True, metaclass=Checked):
    ...     number: int
    ...     @classmethod
    ...     def _check(cls, number: int) -> tuple[int]:
    ...         if number % 2:
    ...             raise ValueError(f"Even: {number} is odd")
    ...         return (number,)
    >>> Even(4), Even._of(4)
    (Even(number=4), Even(number=4))
    """

    _check: Callable[..., tuple[Any, ...]]
    _of = StructMeta.__call__

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        try:
            return cls._of(*cls._check(*args, **kwargs))
        except TypeError:
            if told := tell_call(cls.__name__, signature(cls._check), args, kwargs):
                raise TypeError(told) from None
            raise


put_field = object.__setattr__
"""Sets a field of a frozen value that is being made: ``put_field(made, name, value)``."""


def put_fields(made: Frozen | Guarded, **fields: object) -> None:
    """Set the fields of a frozen value that is being made, or of a guarded one of one's own.

    `put_field` is faster, where many are made.
    """
    for name, value in fields.items():
        put_field(made, name, value)


def make_unchecked(cls: type[F], **fields: object) -> F:
    """Return a frozen value with these fields, which are known to be right; see `compile_constructor` for many."""
    made = object.__new__(cls)
    put_fields(made, **fields)
    return made


def compile_constructor(cls: type[T], *names: str, **constants: object) -> Callable[..., T]:
    """Return a constructor of a frozen class with slots that takes values of its slots and checks nothing.

    A frozen class bars `setattr`, but not the setters of its own slots: with them the constructor is written out as
    code once, which makes an object in a third of the time that `object.__setattr__` takes for each slot.

    Parameters
    ----------
    cls : type
    *names
        Of the slots that the constructor takes, in order.
    **constants
        The values of the other slots.

    Examples
    --------
    >>> class Even(Value):
    ...     __slots__ = __match_args__ = ("half",)
    ...     def __init__(self, number: int) -> None:
    ...         raise ValueError("not checked yet")
    >>> make = compile_constructor(Even, "half")
    >>> make(3)
    Even(half=3)
    """
    values: dict[str, object] = {"new": object.__new__, "cls": cls}
    values |= {f"set_{name}": getattr(cls, name).__set__ for name in (*names, *constants)}
    values |= {f"constant_{name}": value for name, value in constants.items()}
    lines = [f"def make({', '.join(names)}):", "    made = new(cls)"]
    lines += [f"    set_{name}(made, {name})" for name in names]
    lines += [f"    set_{name}(made, constant_{name})" for name in constants]
    exec("\n".join([*lines, "    return made"]), values)
    return values["make"]  # type: ignore[return-value]


def hide_fields(*hidden: str) -> Callable[[Struct], str]:
    """Return the `__repr__` of a Struct that shows all of its fields but these, which are long or follow from others.

    Examples
    --------
    >>> class Page(Struct):
    ...     number: int
    ...     text: str
    ...     __repr__ = hide_fields("text")
    >>> Page(3, "Call me Ishmael.")
    Page(number=3)
    """

    def show(value: Struct) -> str:
        shown = (name for name in value.__struct_fields__ if name not in hidden)
        return f"{type(value).__name__}({', '.join(f'{name}={getattr(value, name)!r}' for name in shown)})"

    return show
