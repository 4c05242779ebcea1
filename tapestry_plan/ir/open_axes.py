"""Sizes of the axes that a model leaves open, by the symbols that it has for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from tapestry_sets.limits import FrozenDict, check_extent, list_names, quote


class AtSizes(Protocol):
    """What reads the graph of a model again, at other sizes of its open axes."""

    @property
    def derived(self) -> Collection[str]:
        """Axes whose sizes follow from those of symbols: what is said of these must agree."""

    @property
    def stored(self) -> Collection[str]:
        """Constants that the model has as they are: the others may be made of sizes."""
        ...

    def __call__(self, sizes: Mapping[str, int], /) -> Any: ...


def read_sizes(
    known: Mapping[str, int],
    model: AtSizes | None,
    sizes: Mapping[str, int] | None,
    more: Mapping[str, int],
    verb: str,
) -> dict[str, int]:
    """The sizes that are asked for, checked: those that a mapping has, and those given by name.

    Parameters
    ----------
    known : mapping
        The symbols of a graph, with their sizes.
    model : callable or None
        What reads the graph again.
    sizes, more : mapping
    verb : str
        Who asks, as errors call it.

    Raises
    ------
    ValueError
        Without a model, for none, and for unknown symbols, those that are given twice, and sizes below 0.
    """
    if model is None:
        raise ValueError(
            f"{verb}: this graph was not read from a model with open axes, or it was read from a document, so that it "
            "cannot be read again at other sizes; load the model at these sizes, as load_onnx(model, "
            "shapes={'batch': 32}), and give that graph to ShardPlan.bind"
        )
    found: dict[str, int] = {}
    for given in (sizes or {}, more):
        for name, size in given.items():
            if name not in known and name not in model.derived:
                raise ValueError(f"{verb}: {quote(name)} is not a symbol; {list_names(known, name, 'symbols')}")
            if name in found:
                raise ValueError(
                    f"{verb}: the symbol {quote(name)} is given twice, as {found[name]} and {quote(size)}; give it once"
                )
            found[name] = check_extent(size, f"{verb}: {name}")
    if not found:
        raise ValueError(f"{verb}: no size is given; give some by symbol, as {next(iter(known))}=32")
    return found


def tell_sizes(sizes: Mapping[str, int]) -> str:
    """Sizes as messages have them.

    Examples
    --------
    >>> tell_sizes({"batch": 2, "seq": 6})
    'batch=2, seq=6'
    """
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


def freeze_sizes(sizes: Mapping[str, int]) -> FrozenDict[str, int]:
    """Sizes as a graph keeps them: by symbol, in the order of their names."""
    return FrozenDict(sorted(sizes.items()))
