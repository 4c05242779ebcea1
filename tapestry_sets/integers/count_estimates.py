"""About how many entries of columns each way to count takes, known before it begins."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from math import gcd, lcm

from tapestry_sets.integers import nest as nests
from tapestry_sets.integers import tuning
from tapestry_sets.integers.block_columns import count_blocks
from tapestry_sets.integers.nest import Nest


def list_classes(s: Nest, t: Nest) -> Iterator[tuple[int, tuple[int, float], tuple[int, float]]]:
    """Yield the moduli m for which classes of integers make plain stripes of two nests: 1, and such that the short
    periods inside of one nest or of both divide. With each comes, for both nests, at which depth it is taken apart,
    and into about how many stripes a class.
    """
    for d, e in dict.fromkeys(product(_cuts(s), _cuts(t))):
        m = lcm(*(nest[k][1] for nest, k in ((s, d), (t, e)) if k < len(nest)))
        if m <= tuning.CLASSES:
            yield m, (d, _stripes_a_class(s, d, m)), (e, _stripes_a_class(t, e, m))


def _cuts(s: Nest) -> list[int]:
    """Return its depth, and that above which the periods are short."""
    short = [k for k in range(1, len(s)) if s[k][1] <= tuning.CLASSES]
    return [len(s), *short[:1]]


def _stripes_a_class(s: Nest, depth: int, m: int) -> float:
    a, P, _ = s[0]
    held, Q = 1, 1
    if depth < len(s):
        Q = s[depth][1]
        held = nests.count(s[depth:], 0, Q)
    return about(count_blocks(s[1:depth], a) * held * (m // gcd(P, m)), Q)


def count_looked_up(t: Nest, k: int) -> int:
    """Return how many entries it takes to number k integers in a nest."""
    return (len(t) + 1) * (tuning.ENTRIES_A_ROUND + k)


def about(n: int, by: int = 1) -> float:
    """Return n / by for an estimate, but no more than `tuning.FAR`: nests may be too long for floats."""
    try:
        return min(n / by, tuning.FAR)
    except OverflowError:
        return tuning.FAR


def find_slowness(P: int) -> int:
    """Return how many times as much an entry costs as one of int64, where it is of Python integers as long as this."""
    return tuning.PYTHON_INTEGERS * (1 + P.bit_length() // tuning.LONG_BITS)


def find_mean_overlap(a: int, b: int) -> int:
    """Return what blocks of two lengths that overlap share on average."""
    return -(-a * b // (a + b))


def estimate_walk(s: Nest, t: Nest, width: int, pairs: float) -> float:
    """Return about how many entries a walk has that begins with as many pairs, which overlap as widely."""
    entries = pairs
    while s and t:
        if len(s) == 1 == len(t) and width > tuning.FEW_BLOCKS * max(s[0][1], t[0][1]):
            return entries + pairs * tuning.ENTRIES_OF_STRIPES
        if s[0][1] < t[0][1]:
            s, t = t, s
        (a, P, _), s = s[0], s[1:]
        entries += pairs * (about(width, P) + 1)
        pairs = min(pairs * about(width + a, P), tuning.FAR)
        width = find_mean_overlap(width, a)
    return entries + pairs * (len(s) + len(t))
