"""Numbers of things, bytes, seconds and operations as people read them: one place for all that is printed."""

from __future__ import annotations

from msgspec import Struct

BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
SECONDS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))
FLOP = ("flop", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP")


class Units(Struct, frozen=True):
    """How numbers with units are written: rounded to four digits in a unit that fits, or exactly.

    Bytes have binary units, 1 KiB being 1,024 B; operations have decimal ones, and seconds too.

    Parameters
    ----------
    exact : bool
        Whole bytes and operations, and seconds with all their digits.

    Examples
    --------
    >>> human, exact = Units(), Units(exact=True)
    >>> [human.nbytes(n) for n in (0, 1000, 1024, 49152, 3 << 20, (1 << 30) - 1)]
    ['0 B', '1000 B', '1 KiB', '48 KiB', '3 MiB', '1 GiB']
    >>> human.seconds(2.88712345e-4), exact.seconds(2.88712345e-4), human.seconds(0.0), human.seconds(90.0)
    ('288.7 us', '0.000288712345 s', '0 s', '90 s')
    >>> human.flop(8.218e9), exact.flop(8.218e9), exact.nbytes(49152)
    ('8.218 GFLOP', '8,218,000,000 flop', '49,152 B')
    """

    exact: bool = False

    def nbytes(self, number: int) -> str:
        """Bytes, as ``48 KiB`` or ``49,152 B``."""
        return f"{number:,} B" if self.exact else _scale(number, BINARY, 1024)

    def flop(self, number: float) -> str:
        """Operations, as ``8.218 GFLOP`` or ``8,218,000,000 flop``."""
        if self.exact:
            return f"{int(number):,} flop" if float(number).is_integer() else f"{number!r} flop"
        return _scale(number, FLOP, 1000)

    def seconds(self, number: float) -> str:
        """Seconds, as ``288.7 us`` or ``0.000288712345 s``."""
        if self.exact:
            return f"{float(number)!r} s"
        for unit, size in SECONDS:
            if float(f"{abs(number):.4g}") >= size:
                return f"{_round(number / size)} {unit}"
        return f"{_round(number / 1e-9)} ns" if number else "0 s"


def tell_count(number: int, what: str) -> str:
    """A number of things.

    Examples
    --------
    >>> from tapestry_sets.limits import tell_count
    >>> tell_count(1, "operator"), tell_count(1200, "operator")
    ('1 operator', '1,200 operators')
    """
    return f"{number:,} {what}{'s' * (number != 1)}"


def _scale(number: float, units: tuple[str, ...], base: int) -> str:
    """A number in the largest unit of which there is at least one, after rounding."""
    at = 0
    while at + 1 < len(units) and float(_round(abs(number) / base**at)) >= base:
        at += 1
    return f"{_round(number / base**at)} {units[at]}"


def _round(number: float) -> str:
    """Four digits, without zeros behind the point and without an exponent where there are few digits before it."""
    return f"{number:.0f}" if 1000 <= abs(number) < 1e15 else f"{number:.4g}"
