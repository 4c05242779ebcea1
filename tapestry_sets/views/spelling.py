"""Views as the code that makes them: ``A.reshape(3, 3, 3)[:2, :2, :2]``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from keyword import iskeyword
from math import isfinite
from typing import Any

from tapestry_sets.limits import cut_middle, cut_text, quote
from tapestry_sets.views import tuning
from tapestry_sets.views.kinds import choosing, joining, shaping
from tapestry_sets.views.kinds.kind import Triple, axis_of
from tapestry_sets.views.walks import sources_first


def spell_view(view: Any) -> str:
    """Return the code that makes a view of its allocations, as `tapestry_sets` and their names are at hand.

    It is cut in the middle where it is long; no more is written than is shown, however long the chain is. A kind that
    has no word of its own is applied.
    """
    below = sources_first(view, _read)
    at = {id(one): k for k, one in enumerate(below)}
    spelled: list[str] = []
    for one in below:
        sources = [spelled[at[id(source)]] for source in _read(one)]
        spelled.append(cut_middle(_spell(one, sources)))
    return spelled[-1]


def _read(view: Any) -> Sequence[Any]:
    """Return the views that a view's code is made of: its sources, of one subscript in two steps those below both."""
    return tuple(view.sources[0].sources if _is_one_subscript(view) else view.sources)


def _is_one_subscript(view: Any) -> bool:
    """Whether a view is places on some axes of a slice that leaves these axes alone, as ``A[1, 2:4]`` is made."""
    if not (view.sources and type(view.kind) is choosing.Index and getattr(view.sources[0], "kind", None) is not None):
        return False
    (source,) = view.sources
    if type(source.kind) is not choosing.Slice:
        return False
    cut = source.kind.slices
    places = (axis_of(axis, source.rank, "index") for axis, _ in view.kind.at)
    return all(axis >= len(cut) or cut[axis] == (None, None, None) for axis in places)


def _spell(view: Any, sources: Sequence[str]) -> str:
    """Return the code of a view from that of the views that it reads."""
    if not view.sources:
        return _spell_memory(view)
    if _is_one_subscript(view):
        (source,) = view.sources
        return f"{sources[0]}[{_subscript(source.kind.slices, view.kind, source.rank)}]"
    kind = view.kind
    shape = tuple(view.sources[0].shape)
    if (method := METHODS.get(type(kind))) is not None:
        return f"{sources[0]}{method(kind, shape)}"
    if (function := FUNCTIONS.get(type(kind))) is not None:
        return function(kind, _listed(sources), shape)
    return f"{sources[0]}.apply({', '.join([cut_text(quote(kind), tuning.SHOWN_KIND), *sources[1:]])})"


def _spell_memory(memory: Any) -> str:
    name, size = memory.name, f", itemsize={memory.itemsize}" if memory.itemsize != 1 else ""
    if name.isidentifier() and not iskeyword(name):
        return str(name)
    return f"allocate({quote(memory.shape)}{f', name={quote(name)}' if name else ''}{size})"


def _listed(texts: Sequence[str]) -> str:
    """Return the code of several views; of very many only the first and the last are shown."""
    many = tuning.SHOWN_SOURCES
    shown = list(texts) if len(texts) <= many else [*texts[: many // 2], "…", *texts[-(many // 2) :]]
    return ", ".join(shown)


# -------------------------------------------------------------------------------------------- the words of the kinds


def _triple(triple: Triple) -> str:
    start, stop, step = ("" if z is None else quote(z) for z in triple)
    return f"{start}:{stop}" + (f":{step}" if step not in ("", "1") else "")


def _subscript(slices: Sequence[Triple], index: choosing.Index | None, rank: int) -> str:
    keys = [_triple(triple) for triple in slices]
    for axis, place in index.at if index else ():
        at = axis_of(axis, rank, "index")
        keys += [":"] * (at + 1 - len(keys))
        keys[at] = quote(place)
    return ", ".join(keys or ["..."])


def _axes(axes: Sequence[int]) -> str:
    return quote(axes[0] if len(axes) == 1 else tuple(axes))


def _reshape(kind: shaping.Reshape, shape: Sequence[int]) -> str:
    return f".reshape({', '.join(map(quote, kind.shape)) or '()'})"


def _permute_dims(kind: shaping.PermuteDims, shape: Sequence[int]) -> str:
    turned = [axis_of(axis, len(shape), "permute_dims") for axis in kind.axes]
    return ".T" if turned == list(reversed(range(len(shape)))) else f".permute_dims({quote(kind.axes)})"


def _flip(kind: shaping.Flip, shape: Sequence[int]) -> str:
    every = {axis_of(axis, len(shape), "flip") for axis in kind.axes} == set(range(len(shape)))
    return f".flip({'' if every else _axes(kind.axes)})"


def _diagonal(kind: choosing.Diagonal, shape: Sequence[int]) -> str:
    if (kind.axis1, kind.axis2) != (0, 1):
        return f".diagonal({quote(kind.offset)}, {kind.axis1}, {kind.axis2})"
    return f".diagonal({quote(kind.offset) if kind.offset else ''})"


def _windows(kind: choosing.SlidingWindow, shape: Sequence[int]) -> str:
    steps = [("step", kind.step), ("dilation", kind.dilation)]
    more = [f"{name}={_axes(each)}" for name, each in steps if any(n != 1 for n in each)]
    if kind.axes != tuple(range(len(kind.size))):
        more.append(f"axis={_axes(kind.axes)}")
    return f".sliding_windows({', '.join([_axes(kind.size), *more])})"


def _as_strided(kind: choosing.AsStrided, shape: Sequence[int]) -> str:
    offset = f", offset={quote(kind.offset)}" if kind.offset else ""
    return f".as_strided({quote(kind.shape)}, {quote(kind.strides)}{offset})"


def _triangle(kind: shaping.Triangle, shape: Sequence[int]) -> str:
    k, value = quote(kind.k), _constant(kind.value)
    given = f"{k}, {value}" if value != "0" else k if kind.k else ""
    return f".{'triu' if kind.upper else 'tril'}({given})"


def _constant(value: object) -> str:
    return f"float({str(value)!r})" if isinstance(value, float) and not isfinite(value) else quote(value)


def _pad(kind: shaping.Pad, sources: str, shape: Sequence[int]) -> str:
    each = {width for pair in kind.widths for width in pair}
    widths = quote(each.pop() if len(each) == 1 else kind.widths)
    value = _constant(kind.value)
    more = f", {kind.mode!r}" if kind.mode != "constant" else f", value={value}" if value != "0" else ""
    return f"pad({sources}, {widths}{more})"


def _joined(word: str) -> Callable[[Any, str, Sequence[int]], str]:
    def spell(kind: Any, sources: str, shape: Sequence[int]) -> str:
        return f"{word}([{sources}]{f', axis={kind.axis}' if kind.axis else ''})"

    return spell


METHODS: Mapping[type, Callable[[Any, Sequence[int]], str]] = {
    choosing.Slice: lambda kind, shape: f"[{_subscript(kind.slices, None, len(shape))}]",
    choosing.Index: lambda kind, shape: f"[{_subscript((), kind, len(shape))}]",
    choosing.Diagonal: _diagonal,
    choosing.SlidingWindow: _windows,
    choosing.AsStrided: _as_strided,
    choosing.Sample: lambda kind, shape: f".sample({quote(kind.region)})",
    choosing.Take: lambda kind, shape: f".take({quote(list(kind.indices))}, axis={kind.axis})",
    shaping.ExpandDims: lambda kind, shape: f".expand_dims({_axes(kind.axes)})",
    shaping.Squeeze: lambda kind, shape: f".squeeze({'' if kind.axes is None else _axes(kind.axes)})",
    shaping.PermuteDims: _permute_dims,
    shaping.Flip: _flip,
    shaping.Reshape: _reshape,
    shaping.Broadcast: lambda kind, shape: f".broadcast_to({quote(kind.shape)})",
    shaping.Swizzle: lambda kind, shape: f".swizzle({kind.bits}, {kind.base}, {kind.shift})",
    shaping.Triangle: _triangle,
}
"""The words that are methods, by kind; they are given the shape of the source."""

FUNCTIONS: Mapping[type, Callable[[Any, str, Sequence[int]], str]] = {
    joining.Concat: _joined("concatenate"),
    joining.Stack: _joined("stack"),
    joining.Interleave: _joined("interleave"),
    joining.Fill: lambda kind, sources, shape: f"fill_into({quote(list(kind.regions))}, [{sources}])",
    shaping.Pad: _pad,
    shaping.Repeat: lambda kind, sources, shape: f"repeat({sources}, {quote(kind.count)}, axis={kind.axis})",
    shaping.Tile: lambda kind, sources, shape: f"tile({sources}, {quote(kind.reps)})",
    shaping.Roll: lambda kind, sources, shape: f"roll({sources}, {quote(kind.shift)}, axis={kind.axis})",
}
"""The words that are functions, by kind; they are given the code of the sources."""
