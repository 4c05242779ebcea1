"""Symbols of open axes, and axes whose names are formulas of symbols, as exporters of cached decoders write them.

::

    input_ids       (batch_size, sequence_length)                               symbols
    past_keys       (batch_size, 4, past_sequence_length, 16)
    attention_mask  (batch_size, past_sequence_length + sequence_length)        follows from two of them
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from tapestry_sets.limits import SizeFormula, quote, read_formula

HYPHEN = re.compile(r"\w-\w")
"""A minus that may be a hyphen."""


def find_derived(names: Iterable[str]) -> dict[str, SizeFormula]:
    """Those of the names of open axes that are formulas of others; all others are symbols, whatever they look like.

    The names in a formula stand alone in the model, or in another formula. But what has a minus without spaces may be
    a word with a hyphen: each of its names must stand alone.

    Examples
    --------
    >>> list(find_derived(["past", "now", "past + now", "N-gram", "now // k", "unk__12", "batch size"]))
    ['past + now']
    >>> list(find_derived(["2*s0", "s0 + 1", "row-1", "row-2"]))
    ['2*s0', 's0 + 1']
    """
    texts = dict.fromkeys(names)
    read = {text: read_formula(text) for text in texts}
    found = {text: formula for text, formula in read.items() if formula is not None and text not in formula.names}
    while True:
        alone = texts.keys() - found.keys()
        clear = {text: formula for text, formula in found.items() if not HYPHEN.search(text)}
        shared = {name for name, n in Counter(n for formula in clear.values() for n in formula.names).items() if n > 1}
        kept = {text: formula for text, formula in found.items() if alone.issuperset(formula.names)}
        kept |= {text: formula for text, formula in clear.items() if (alone | shared).issuperset(formula.names)}
        if len(kept) == len(found):
            return kept
        found = kept


class Symbols:
    """The sizes of a model's open axes, by name, and who says each.

    Parameters
    ----------
    names : iterable of str
        Those of the axes of inputs.
    others : iterable of str
        Those of outputs, of which formulas may be too.
    """

    def __init__(self, names: Iterable[str], others: Iterable[str]) -> None:
        own = dict.fromkeys(names)
        self.derived = {text: one for text, one in find_derived([*own, *others]).items() if text in own}
        """Axes whose names are formulas."""
        self.names = {*own, *(name for formula in self.derived.values() for name in formula.names)}
        """What can be given."""
        self._found: dict[str, tuple[int, str]] = {}

    def note(self, name: str, extent: int, where: str) -> None:
        """Note a size, and who says it.

        Raises
        ------
        ValueError
            Where another one was said before.
        """
        found, first = self._found.setdefault(name, (extent, where))
        if found != extent:
            raise ValueError(
                f"the symbol {quote(name)} is {found} by {first} and {extent} by {where}; "
                "it stands for one size: give the same everywhere"
            )

    def settle(self) -> None:
        """Note what follows from the sizes that are known: formulas of these, and the one name that a formula lacks.

        Raises
        ------
        ValueError
            For a formula that comes to another size than was said, or to none.
        """
        while any(self._follow(text, formula) for text, formula in self.derived.items()):
            pass

    def _follow(self, text: str, formula: SizeFormula) -> bool:
        """Whether a formula says something new."""
        sizes = {name: self._found[name][0] for name in formula.names if name in self._found}
        unknown = [name for name in formula.names if name not in sizes]
        told, _ = self._found.get(text, (None, ""))
        if len(unknown) > (told is not None):
            return False
        try:
            if unknown and told is not None:
                return self._solve(text, formula, unknown[0], sizes)
            extent = formula.compute(sizes)
        except ZeroDivisionError:
            raise ValueError(
                f"the axis {quote(text)} is divided by 0 with {self._tell(sizes)}; give another size"
            ) from None
        if extent < 0:
            raise ValueError(
                f"the axis {quote(text)} would be {extent} with {self._tell(sizes)}; give sizes at which it is 0 or "
                "more"
            )
        self.note(text, extent, f"its formula with {self._tell(sizes)}")
        return told is None

    def _tell(self, sizes: Mapping[str, int]) -> str:
        return " and ".join(f"{quote(name)} = {size} (by {self._found[name][1]})" for name, size in sizes.items())

    def _solve(self, text: str, formula: SizeFormula, name: str, sizes: dict[str, int]) -> bool:
        """Whether the one name that a formula lacks follows from its size."""
        (told, where), line = self._found[text], formula.straighten(name, sizes)
        if line is None or not line[0]:
            return False
        slope, constant = line
        extent, rest = divmod(told - constant, slope)
        if rest or extent < 0:
            fixed = f" with {self._tell(sizes)}" * bool(sizes)
            raise ValueError(
                f"the axis {quote(text)} is {told} by {where}, which it is at no size of {quote(name)}{fixed}; give "
                "sizes that agree"
            )
        self.note(name, extent, f"{quote(text)} = {told} (by {where})")
        return True

    def get(self, name: str) -> int | None:
        """The size of an axis, None where it is not known."""
        return self._found.get(name, (None, ""))[0]

    def list_needed(self, name: str) -> list[str]:
        """The symbols without a size from which that of an axis would follow; none for an axis without a name."""
        formula = self.derived.get(name)
        return [one for one in (formula.names if formula else filter(None, [name])) if one not in self._found]

    @property
    def sizes(self) -> dict[str, int]:
        """The symbols that have sizes, with these; a formula only where those of its names are not known."""
        return {
            name: size
            for name, (size, _) in self._found.items()
            if name not in self.derived or any(one not in self._found for one in self.derived[name].names)
        }
