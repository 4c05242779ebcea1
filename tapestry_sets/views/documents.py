"""View kinds, pieces and regions as plain data, which JSON can hold, and back.

    kind    {"kind": "Flip", "axes": [0]}          a struct is its fields, a view kind its name and its fields
    region  {"start": …, "shape": …, "setts": …}   each sett a list of stripes [on, off, phase]

Writing goes through the fields of the classes. Reading has msgspec check the document against the types of the same
fields, so that a new kind is read and written without a line here. A document may hold less than the classes do (maps
are named, regions are lists of stripes, infinities are words), and unknown fields are refused: so each class gets a
struct for its documents when the first of them is read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import isfinite
from typing import Any, Literal, cast, get_args, get_type_hints

import msgspec
import numpy as np

from tapestry_sets.integers import Sett, Stripe
from tapestry_sets.limits import list_names, quote, read_fields
from tapestry_sets.regions import AffineMap, Region
from tapestry_sets.views.kinds import KINDS
from tapestry_sets.views.kinds.joining import Assembled
from tapestry_sets.views.kinds.kind import ViewKind
from tapestry_sets.views.pieces.lookup import Lookup
from tapestry_sets.views.pieces.maps import IndexMap, Relinearize
from tapestry_sets.views.pieces.piece import Guard, Piece


def kind_to_dict(kind: ViewKind, shapes: Sequence[Sequence[int]] | None = None) -> dict[str, Any]:
    """Return a view kind as plain lists, strings and numbers: its name and its fields.

    Parameters
    ----------
    kind : ViewKind
    shapes : sequence of shapes, optional
        Of its sources; needed for a kind from outside this library, which is written as `Assembled`.

    Raises
    ------
    ValueError
        If the kind is from outside this library and no shapes are given.

    Examples
    --------
    >>> from tapestry_sets.views import Slice
    >>> kind_to_dict(Slice(((1, None, 2),)))
    {'kind': 'Slice', 'slices': [[1, None, 2]]}
    >>> kind_from_dict(kind_to_dict(Slice(((1, None, 2),))))
    Slice(slices=((1, None, 2),))
    """
    name = type(kind).__name__
    if KINDS.get(name) is not type(kind):
        if shapes is None:
            raise ValueError(
                f"kind_to_dict: {name} is not a kind of this library; give its sources' shapes, and it is written as "
                "its pieces"
            )
        given = tuple(tuple(shape) for shape in shapes)
        kind = Assembled(kind.out_shape(given), kind.pieces(given), given)
    return cast("dict[str, Any]", _plain(kind))


def kind_from_dict(data: Mapping[str, Any]) -> ViewKind:
    """Return the kind that `kind_to_dict` wrote.

    Raises
    ------
    ValueError
        If it is not such a document; the message names the place in it.

    Examples
    --------
    >>> kind_from_dict({"kind": "Flip", "axes": [0, "1"]})
    Traceback (most recent call last):
    ...
    ValueError: Flip: Expected `int`, got `str` - at `$.axes[1]`, which is '1'
    """
    name = data.get("kind") if isinstance(data, Mapping) else None
    if not isinstance(name, str):
        raise ValueError(f"kind_from_dict: {quote(data)} has no key 'kind', which names the kind of view")
    if name not in KINDS:
        raise ValueError(f"kind_from_dict: there is no kind {quote(name)}; {list_names(sorted(KINDS), name, 'kinds')}")
    return cast(ViewKind, _read(data, name))


def piece_to_dict(piece: Piece) -> dict[str, Any]:
    """Return a piece as plain lists, strings and numbers.

    Examples
    --------
    >>> piece = Piece(-1, (), IndexMap((AffineMap((), (), 1),)), float("-inf"))
    >>> piece_from_dict(piece_to_dict(piece)) == piece
    True
    """
    return cast("dict[str, Any]", _plain(piece))


def piece_from_dict(data: Mapping[str, Any]) -> Piece:
    """Return the piece that `piece_to_dict` wrote; a ValueError names the place where a document is wrong."""
    return cast(Piece, _read(data, "Piece"))


def region_to_dict(region: Region) -> dict[str, Any]:
    """Return a region as plain lists: each axis a list of stripes [on, off, phase].

    Examples
    --------
    >>> region = Region.from_slices((4,), (slice(1, 3),))
    >>> region_from_dict(region_to_dict(region)) == region
    True
    """
    return {
        "start": list(region.start),
        "shape": list(region.shape),
        "setts": [[[s.on, s.off, s.phase] for s in sett.stripes] for sett in region.setts],
    }


def region_from_dict(data: Mapping[str, Any]) -> Region:
    """Return the region that `region_to_dict` wrote; a ValueError names the place where a document is wrong."""
    return cast(Region, _read(data, "Region"))


# ------------------------------------------------------------------------------------------------------- writing

TAGS: dict[type, tuple[str, str]] = {
    AffineMap: ("step", "affine"),
    Relinearize: ("step", "relinearize"),
    Lookup: ("step", "lookup"),
    **{kind: ("kind", name) for name, kind in KINDS.items()},
}
"""The key and the value that tell classes apart which may stand at one place of a document."""


def _plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, Region):
        return region_to_dict(value)
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not isfinite(value):
        return repr(value)  # JSON has no infinities
    names = getattr(type(value), "__match_args__", None)
    if names is None:
        return value
    data = {name: _plain(item) for name in names if (item := getattr(value, name)) is not None}
    tag = TAGS.get(type(value))
    return data if tag is None else {tag[0]: tag[1], **data}


# ------------------------------------------------------------------------------------------------------- reading

NOT_FINITE = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}


def _region(start: tuple[int, ...], shape: tuple[int, ...], setts: tuple[tuple[Sequence[int], ...], ...]) -> Region:
    return Region(shape, [Sett(*[Stripe(*stripe) for stripe in stripes]) for stripes in setts], start)


MAKERS: dict[str, Any] = {c.__name__: c for c in (AffineMap, Relinearize, Lookup, IndexMap, Guard, Piece)} | KINDS
MAKERS["Region"] = _region
"""By the name of a struct, what makes the value of its fields."""


def _read(data: Any, name: str) -> Any:
    """What a document of a class, by name, holds."""
    read = read_fields(data, _struct(name), name)
    try:
        return _made(read, "$")
    except _Wrong as error:
        raise ValueError(f"{name}: {error}") from None


class _Wrong(ValueError):
    """Values of the right types that make nothing together, and their place in the document."""


@cache
def _struct(name: str) -> Any:
    """The struct with the fields of a class, in whose type hints the structs of other ones stand in their place."""
    if name == "Region":
        hints: dict[str, Any] = get_type_hints(_region)
        del hints["return"]
        return msgspec.defstruct(name, list(hints.items()), forbid_unknown_fields=True)
    cls = MAKERS[name]
    own = {name: hint for name, hint in vars(cls)["__annotations__"].items() if name in cls.__match_args__}
    fields = type(name, (), {"__annotations__": own, "__module__": cls.__module__})
    hints = get_type_hints(fields, localns=_Structs())  # of its fields, not of what else the class has
    key, tag = TAGS.get(cls, (None, None))
    each = [(field, hint, None) if type(None) in get_args(hint) else (field, hint) for field, hint in hints.items()]
    return msgspec.defstruct(name, each, tag_field=key, tag=tag, forbid_unknown_fields=True)


class _Structs(dict[str, Any]):
    """What names in type hints stand for in documents."""

    def __missing__(self, name: str) -> Any:
        if name == "Step":
            return _struct("AffineMap") | _struct("Relinearize") | _struct("Lookup")
        if name == "float":
            return int | float | Literal[tuple(NOT_FINITE)]
        if name in MAKERS:
            return _struct(name)
        raise KeyError(name)


def _made(data: Any, path: str) -> Any:
    """The value of structs, tuples and numbers that msgspec has read at `path`."""
    if isinstance(data, tuple):
        return tuple([_made(item, f"{path}[{k}]") for k, item in enumerate(data)])
    if isinstance(data, str):
        return NOT_FINITE.get(data, data)
    make = MAKERS.get(type(data).__name__)
    if make is None:
        return data
    values = {name: _made(getattr(data, name), f"{path}.{name}") for name in data.__struct_fields__}
    try:
        return make(**values)
    except (TypeError, ValueError, IndexError) as error:
        raise _Wrong(f"{error} - at `{path}`") from None
