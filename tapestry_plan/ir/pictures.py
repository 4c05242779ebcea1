"""The one hook through which graphs and other values draw themselves: the wing `draw` stands above and fills it in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from tapestry_sets.draw import Picture, canvas
from tapestry_sets.regions import Box

Parts = Mapping[str, int] | Box | Sequence[Box]
"""How an operator is cut: parts by index axis, or boxes of its index space."""


class Pictures(Struct, frozen=True):
    """What the wing `draw` draws for others.

    Parameters
    ----------
    graph : callable
        ``(graph, its items in order, shards, direction, folded)``: a graph, with what the given shards read and write.
    value : callable
        ``(value)``: a value that is `Shown`.
    """

    graph: Callable[..., Picture]
    value: Callable[[Any], Picture]


pictures: Pictures


def fill_pictures(given: Pictures) -> None:
    """Let values draw themselves by these functions; `draw` calls it once."""
    global pictures
    pictures = given


class Shown:
    """A value that a notebook shows as a picture, with its repr beside it."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        try:
            return pictures.value(self).bundle(repr(self))
        except canvas.NOT_DRAWN:
            return {"text/plain": repr(self)}
