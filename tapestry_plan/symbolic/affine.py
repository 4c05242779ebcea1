"""Numbers of a model that are affine in one size: read at several sizes, and written for isl."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from tapestry_sets.interop import NonAffineSize
from tapestry_sets.limits import quote

PARAMETER = "m"
"""What isl calls the parameter: the size is ``base + step·m``."""


class Affine(NamedTuple):
    """slope·n + constant."""

    slope: int
    constant: int

    def at(self, n: int) -> int:
        """The number for one n."""
        return self.slope * n + self.constant

    def plus(self, other: Affine, factor: int = 1) -> Affine:
        """The sum with a multiple of another one."""
        return Affine(self.slope + factor * other.slope, self.constant + factor * other.constant)

    def times(self, factor: int) -> Affine:
        """A multiple."""
        return Affine(self.slope * factor, self.constant * factor)

    def __str__(self) -> str:
        """As isl reads it, in parentheses where it is a sum."""
        return f"({self.slope}*{PARAMETER} + {self.constant})" if self.slope else f"{self.constant}"


class Frame(Struct, frozen=True):
    """The sizes of one residue class from some size on: base + step·m for m >= 0."""

    base: int
    step: int

    def of(self, number: Affine) -> Affine:
        """A number that is affine in the size, in m."""
        return Affine(number.slope * self.step, number.slope * self.base + number.constant)


class Samples(Struct, frozen=True):
    """The sizes at which a model was read."""

    sizes: tuple[int, ...]

    def fit(self, values: Sequence[int], what: str) -> Affine:
        """The affine number that has these values at these sizes: two of them say it, the others confirm it.

        Raises
        ------
        NonAffineSize
            Where they are not affine in the size.

        Examples
        --------
        >>> Samples((2, 3, 7)).fit([9, 13, 29], "extent")
        Affine(slope=4, constant=1)
        """
        slope, rest = divmod(values[1] - values[0], self.sizes[1] - self.sizes[0])
        found = Affine(slope, values[0] - slope * self.sizes[0])
        if rest or any(found.at(n) != value for n, value in zip(self.sizes, values, strict=True)):
            raise NonAffineSize(
                f"{what} is {quote(list(values))} at sizes {quote(list(self.sizes))}, which is not affine in the size"
            )
        return found

    def fit_each(self, values: Sequence[Sequence[int]], what: str) -> tuple[Affine, ...]:
        """The same of several numbers, given for each size."""
        if len({len(each) for each in values}) > 1:
            raise NonAffineSize(f"{what} has {quote([len(each) for each in values])} numbers at these sizes")
        return tuple(self.fit(each, what) for each in zip(*values, strict=True))

    def same(self, values: Sequence[object], what: str) -> None:
        """Raise NonAffineSize where something is not the same at all sizes."""
        if any(value != values[0] for value in values):
            raise NonAffineSize(f"{what} depends on the size otherwise than by its extents")
