"""Digits: linear forms over one box of digits, and the one normalizer of such boxes.

The cells of a view, the order of a packed region, the target of a copy: all of these walk over a box of digits, and
each number that matters moves by a step of its own as a digit counts up::

    digits (3; 4, 10), (4; 1, 1) from (5, 0)        i < 3, j < 4

        form 0, an index:    5  6  7  8     9 10 11 12    13 14 15 16       5 +  4·i + j
        form 1, a cell:      0  1  2  3    10 11 12 13    20 21 22 23       0 + 10·i + j

A digit is a plain tuple ``(count, step of form 0, step of form 1, …)``, so that levels (count, step) of one form,
patches of index and cell, and copies between many arrays are the same thing, and share what follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

Ints = tuple[int, ...]
Digit = Ints
"""(count, step of form 0, step of form 1, …)."""
Levels = tuple[tuple[int, int], ...]
"""Digits (count, step) of one form, outermost first."""

D = TypeVar("D", bound=Digit)


class Digits(NamedTuple):
    """Linear forms of common digits: form f is ``origin[f] + Σ value·digit[1 + f]`` over ``0 <= value < digit[0]``.

    Attributes
    ----------
    origin : tuple of int
        One value for each form, where all digits are 0.
    digits : tuple of Digit
        Outermost first, where there is an order.
    """

    origin: Ints
    digits: tuple[Digit, ...]

    def bounds(self, form: int) -> tuple[int, int]:
        """Return the smallest and the largest value of a form."""
        low = high = self.origin[form]
        for digit in self.digits:
            by = (digit[0] - 1) * digit[1 + form]
            if by < 0:
                low += by
            else:
                high += by
        return low, high

    def columns(self) -> tuple[Ints, ...]:
        """Return the counts, then for each form its steps."""
        return tuple(zip(*self.digits, strict=True)) if self.digits else ((),) * (1 + len(self.origin))

    def drop_form(self, form: int) -> Digits:
        """Return the other forms."""
        return self.pick_forms([f for f in range(len(self.origin)) if f != form])

    def pick_forms(self, forms: Sequence[int]) -> Digits:
        """Return the given forms, in the given order."""
        return Digits(
            tuple([self.origin[f] for f in forms]),
            tuple([(digit[0], *[digit[1 + f] for f in forms]) for digit in self.digits]),
        )

    def shift_form(self, form: int, by: int) -> Digits:
        """Return the digits with a constant added to one form."""
        return Digits((*self.origin[:form], self.origin[form] + by, *self.origin[form + 1 :]), self.digits)


def advance(origin: Ints, digit: Digit, by: int) -> Ints:
    """Return the forms where a digit stands `by` further on."""
    return tuple([a + by * step for a, step in zip(origin, digit[1:], strict=True)])


def scale_digit(digit: Digit, by: int) -> Digit:
    """Return a digit whose steps are `by` times as long."""
    return (digit[0], *[by * step for step in digit[1:]])


def turn_digit(origin: Ints, digit: Digit) -> tuple[Ints, Digit]:
    """Return origin and digit such that the same values are counted from the other end."""
    return advance(origin, digit, digit[0] - 1), scale_digit(digit, -1)


def make_steps_positive(origin: Ints, digits: Iterable[D], form: int = 0) -> tuple[Ints, list[D]]:
    """Return the same values with no digit that steps one form downwards.

    Examples
    --------
    >>> make_steps_positive((5, 0), [(6, -1, 2), (3, 10, -4)])
    ((0, 10), [(6, 1, -2), (3, 10, -4)])
    """
    start = list(origin)
    found: list[D] = []
    for digit in digits:
        if digit[1 + form] < 0:  # as by `turn_digit`
            reach = digit[0] - 1
            for f, step in enumerate(digit[1:]):
                start[f] += reach * step
            digit = (digit[0], *[-step for step in digit[1:]])  # type: ignore[assignment]
        found.append(digit)
    return tuple(start), found


def join_digits(digits: Iterable[D]) -> tuple[D, ...]:
    """Return digits, outermost first, without those of one value, and as one where two go on without a break.

    A digit goes on where the next one ends if each form steps as far as the inner digit's count times its step.

    Examples
    --------
    >>> join_digits([(4, 6), (1, 9), (6, 1)]), join_digits([(4, 6, 12), (6, 1, 2)]), join_digits([(4, 6, 7), (6, 1, 1)])
    (((24, 1),), ((24, 1, 2),), ((4, 6, 7), (6, 1, 1)))
    """
    found: list[D] = []
    outer: Digit = ()
    for digit in digits:
        count = digit[0]
        if count == 1:
            continue
        if (
            outer
            and outer[1] == count * digit[1]
            and (len(digit) == 2 or outer[2:] == tuple([count * step for step in digit[2:]]))
        ):
            outer = found[-1] = (outer[0] * count, *digit[1:])  # type: ignore[assignment]
        else:
            outer = digit
            found.append(digit)
    return tuple(found)
