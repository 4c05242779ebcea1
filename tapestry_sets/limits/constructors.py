"""What classes of values need beyond msgspec: constructors without checks, and reprs that leave long fields out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

T = TypeVar("T")


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
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, slots=True)
    ... class Even:
    ...     half: int
    ...     def __post_init__(self) -> None:
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
