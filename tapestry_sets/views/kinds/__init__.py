"""View kinds: NumPy's ways of slicing, reshaping and assembling tensors, each one an alias of its sources.

A kind is one small frozen class with two methods, `out_shape` and `pieces`; nothing else in the package names a
kind's nature, so that a new one is written in one place: in one of the modules here, or outside the package.
"""

from typing import Any

from tapestry_sets.views.kinds import choosing, joining, shaping

KINDS: dict[str, type[Any]] = {
    name: value
    for module in (choosing, joining, shaping)
    for name, value in vars(module).items()
    if isinstance(value, type) and value.__module__ == module.__name__ and hasattr(value, "out_shape")
}
"""The kinds of this library, by name."""
