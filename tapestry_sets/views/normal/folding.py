"""Folding: the patches of a view as fewer, so that equal views usually have equal patches.

Four rules are applied again and again, as long as one of them finds something. A letter is a patch, a column an index::

    ends      aaaabbb      a's last digit goes on where b begins: aaaaaaa
    rows      a..b..c.     equal patches at even distances: one digit more, outside or in the gap between others
    uneven    abcabca      patches take turns, and the first of them have one turn more: one run again
    loops     aabaab       a stretch that several patches fill, filled again in the same way: a digit of 2 for each

What is left is compared with the one patch that its first indices suggest (`as_one`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from tapestry_sets.digits import Digit, join_digits
from tapestry_sets.limits import OPEN, Open
from tapestry_sets.views import tuning
from tapestry_sets.views.normal.patches import Flat, Patch, through


def as_one(patches: Sequence[Patch]) -> Patch | None:
    """Return the one patch that holds the same pairs as patches of all indices from 0; None if there is none.

    It is guessed digit by digit, innermost first: a digit ends where the patches first disagree with the guess.

    Examples
    --------
    >>> as_one([Patch(0, 0, ((4, 5, 5), (3, 1, 1)), "A"), Patch(3, 3, ((4, 5, 5), (2, 1, 1)), "A")])
    Patch(at=0, cell=0, digits=((20, 1, 1),), home='A')
    """
    home, size = patches[0].home, sum([patch.size for patch in patches])
    if any(patch.home != home for patch in patches):
        return None
    if min([patch.at for patch in patches]) or max([patch.last for patch in patches]) >= size:
        return None
    flat = Flat(size, tuple(patches), 0)
    first, by = _cell_at(flat, 0), 1
    digits: tuple[Digit, ...] = ()
    while by < size:
        digits = ((size // by, by, _cell_at(flat, by) - first), *digits)
        end = _first_difference(patches, Patch(0, first, digits, home))
        if end is OPEN:
            return None
        if end is None:
            return Patch(0, first, join_digits(digits), home)
        if end % by or size % end or end == by:
            return None
        digits = ((end // by, by, digits[0][2]), *digits[1:])
        by = end
    return None


def _cell_at(flat: Flat, index: int) -> int:
    return next(cell for cell in [patch.cell_at(index) for patch in flat.patches] if cell is not None)


def _first_difference(patches: Iterable[Patch], guess: Patch) -> int | Open | None:
    """The first index where patches read something else than a guess that covers them all, None if there is none."""
    found: list[int] = []
    for patch in patches:
        parts = through(patch.forms.pick_forms((0, 1, 0)), guess, tuning.FOLDED_COPIES)
        if parts is OPEN:
            return OPEN
        # for each box of each form its origin and its steps
        for (at, *steps), cell, other in (zip(x.origin, *[d[1:] for d in x.digits], strict=True) for x in parts):
            ways = [by for by, c, o in zip(steps, cell[1:], other[1:], strict=True) if c != o]
            found += [at] if cell[0] != other[0] else [at + by for by in ways]
    return min(found, default=None)


def fold(patches: Iterable[Patch]) -> tuple[Patch, ...]:
    """Return the same patches as fewer: those that go on where others end, and rows of equal ones, become one.

    Examples
    --------
    >>> halves = [Patch(0, 0, ((5, 1, 1),), "A"), Patch(5, 5, ((3, 1, 1),), "A")]
    >>> fold(halves)
    (Patch(at=0, cell=0, digits=((8, 1, 1),), home='A'),)
    >>> evens, odds = Patch(0, 0, ((4, 2, 2),), "A"), Patch(1, 1, ((3, 2, 2),), "A")
    >>> fold([evens, odds])
    (Patch(at=0, cell=0, digits=((7, 1, 1),), home='A'),)
    """
    found = _fold_until_done(list(patches))
    while 1 < len(found) <= tuning.FOLDED_COPIES:
        again = _fold_until_done([copy for patch in found for copy in _list_copies(patch)])
        if len(again) >= len(found):
            break
        found = again
    if 1 < len(found) <= tuning.LOOPED_PATCHES:
        whole = as_one(found)
        found = found if whole is None else [whole]
    found.sort(key=lambda patch: patch.at)
    return tuple(found)


def _list_copies(patch: Patch) -> list[Patch]:
    """The copies that the outermost digit makes, where these are few and do not touch."""
    if not patch.digits:
        return [patch]
    (count, by, step), inner = patch.digits[0], patch.digits[1:]
    if count > tuning.FOLDED_COPIES or by == (inner[0][0] * inner[0][1] if inner else 1):
        return [patch]
    return [Patch(patch.at + j * by, patch.cell + j * step, inner, patch.home) for j in range(count)]


def _fold_until_done(patches: list[Patch]) -> list[Patch]:
    while len(patches) > 1:
        before = len(patches)
        patches = _fold_loops(_fold_rows(_fold_uneven(_fold_ends(patches))))
        if len(patches) == before:
            break
    return patches


def _fold_ends(patches: list[Patch]) -> list[Patch]:
    """Join patches that are equal but for the count of one digit, where one goes on as the other ends."""
    starts = {patch.at: patch for patch in patches}
    for at in sorted(starts):
        patch = starts.get(at)
        while patch is not None:
            patch = _join_next(patch, starts)
            if patch is not None:
                starts[patch.at] = patch
    return list(starts.values())


def _join_next(patch: Patch, starts: dict[int, Patch]) -> Patch | None:
    """The patch with another joined to it, both taken out of `starts`; None if there is none.

    The other one starts where digit k would go on, or is one copy that lies just before it::

        digit k counts 3 copies of ab     ab ab ab | ab ab        the other continues: 5 copies
        one copy, then the others         ab | ab ab ab           the first copy was cut off: 4 copies
    """
    for k, (count, by, step) in enumerate(patch.digits):
        other = starts.get(patch.at + count * by)
        if other is not None and other.cell == patch.cell + count * step and other.home == patch.home:
            more = _count_beside(other.digits, patch.digits, k)
            if more and _is_nested(patch.digits, k, count + more):
                del starts[patch.at], starts[other.at]
                return patch._replace(digits=_set_count(patch.digits, k, count + more))
        other = starts.get(patch.at - by)
        if other is None or other.cell != patch.cell - step or other.home != patch.home:
            continue
        if other.digits == patch.digits[:k] + patch.digits[k + 1 :] and _is_nested(patch.digits, k, count + 1):
            del starts[patch.at], starts[other.at]
            return other._replace(digits=_set_count(patch.digits, k, count + 1))
    return None


def _count_beside(other: tuple[Digit, ...], mine: tuple[Digit, ...], k: int) -> int:
    """The count of digit k in digits that are otherwise the same; 0 if they are not."""
    if len(other) == len(mine):
        same = other[:k] == mine[:k] and other[k + 1 :] == mine[k + 1 :] and other[k][1:] == mine[k][1:]
        return other[k][0] if same else 0
    return int(other == mine[:k] + mine[k + 1 :])


def _is_nested(digits: tuple[Digit, ...], k: int, count: int) -> bool:
    """Whether digit k may have so many values without reaching the next copy that the digit before it makes."""
    inner = sum([(n - 1) * by for n, by, _ in digits[k + 1 :]])
    return not k or (count - 1) * digits[k][1] + inner < digits[k - 1][1]


def _set_count(digits: tuple[Digit, ...], k: int, count: int) -> tuple[Digit, ...]:
    return join_digits((*digits[:k], (count, *digits[k][1:]), *digits[k + 1 :]))


def _fold_rows(patches: list[Patch]) -> list[Patch]:
    """Join equal patches at even distances, where they fill a gap or are at least three."""
    groups: dict[object, dict[tuple[int, int], Patch]] = {}
    for patch in sorted(patches, key=lambda p: p.at):
        groups.setdefault((patch.home, patch.digits), {})[patch.at, patch.cell] = patch
    found: list[Patch] = []
    for group in groups.values():
        while group:
            first = next(iter(group))
            n, by, step = _next_row(group, first)
            at, cell = first
            patch = group[first]
            for k in range(n):
                del group[at + k * by, cell + k * step]
            digits = (n, by, step)
            found.append(patch if n == 1 else patch._replace(digits=_add_digit(patch.digits, digits)))
    return found


def _next_row(group: dict[tuple[int, int], Patch], first: tuple[int, int]) -> Digit:
    """The row of equal patches from the first on whose second is nearest, as a digit."""
    digits = group[first].digits
    at, cell = first
    for second in islice(group, 1, 1 + tuning.LOOK_AHEAD):
        by, step = second[0] - at, second[1] - cell
        n = 2
        while (at + n * by, cell + n * step) in group:
            n += 1
        if _fits(digits, (n, by, step)):
            return n, by, step
    return 1, 1, 0


def _fits(digits: tuple[Digit, ...], new: Digit) -> bool:
    """Whether a new digit lies between the others, and either fills a gap there or is long."""
    n, by, _ = new
    outer = [digit for digit in digits if digit[1] > by]
    inner = digits[len(outer) :]
    reach = sum([(count - 1) * step for count, step, _ in inner])
    if by <= reach or (outer and (n - 1) * by + reach >= outer[-1][1]):
        return False
    fills = by == (inner[0][0] * inner[0][1] if inner else 1) or bool(outer and n * by == outer[-1][1])
    return fills or n > 2


def _add_digit(digits: tuple[Digit, ...], new: Digit) -> tuple[Digit, ...]:
    return join_digits(sorted((*digits, new), key=lambda digit: -digit[1]))


def _fold_uneven(patches: list[Patch]) -> list[Patch]:
    """Join patches that take turns where the first of them have one turn more: they are dealt and not all even."""
    # Eight cells dealt to three patches:
    #
    #     at        0  1  2  3  4  5  6  7
    #     patch     A  B  C  A  B  C  A  B      counts 3, 3, 2 with steps of 3: one patch of 8 with steps of the gap
    #
    # So the round, `by`, must be as many gaps as there are patches, and only the last ones may have a turn less.
    groups: dict[_Deal, dict[tuple[int, int], int]] = {}
    for patch in sorted(patches, key=lambda p: p.at):
        for k, (count, by, step) in enumerate(patch.digits):
            if by > 1:
                deal = _Deal(patch.home, by, step, patch.digits[:k], patch.digits[k + 1 :])
                groups.setdefault(deal, {})[patch.at, patch.cell] = count
    alone = {(p.at, p.cell): p for p in patches}
    made: list[Patch] = []
    for deal, counts in groups.items():
        starts = list(counts)
        for k, first in enumerate(starts):
            ahead = [start for start in starts[k + 1 : k + 1 + 2 * tuning.LOOK_AHEAD] if start in counts]
            for turn in _list_turns(first, ahead[: tuning.LOOK_AHEAD] if first in counts else [], deal):
                n = _count_turns(turn, counts, alone, deal)
                gap = (turn[1][0] - first[0], turn[1][1] - first[1])
                if n and deal.has_room(n, gap[0]):
                    made.append(Patch(*first, join_digits((*deal.outer, (n, *gap), *deal.inner)), deal.home))
                    for start in turn:
                        alone.pop(start)
                        counts.pop(start, None)
                    break
    return [*made, *alone.values()] if made else patches


class _Deal(NamedTuple):
    """What patches that take turns have in common: the steps of a round, and the other digits."""

    home: Hashable
    by: int
    step: int
    outer: tuple[Digit, ...]
    inner: tuple[Digit, ...]

    def has_room(self, n: int, gap: int) -> bool:
        """Whether n copies of the inner digits, `gap` apart, lie between them and the outer ones."""
        reach = sum([(count - 1) * by for count, by, _ in self.inner])
        return gap > reach and (not self.outer or (n - 1) * gap + reach < self.outer[-1][1])


def _list_turns(
    first: tuple[int, int], ahead: Sequence[tuple[int, int]], deal: _Deal
) -> Iterator[list[tuple[int, int]]]:
    """The places where those start that may take turns with the first, each with another second."""
    at, cell = first
    for second in ahead:
        gap = second[0] - at
        if deal.by % gap == 0 and deal.by // gap * (second[1] - cell) == deal.step:
            yield [(at + j * gap, cell + j * (second[1] - cell)) for j in range(deal.by // gap)]


def _count_turns(
    turn: list[tuple[int, int]], counts: dict[tuple[int, int], int], alone: dict[tuple[int, int], Patch], deal: _Deal
) -> int:
    """How many turns patches that start there take together; 0 if they do not take turns."""
    many = []
    for start in turn:
        patch = alone.get(start)
        if patch is None:
            return 0
        once = patch.home == deal.home and patch.digits == deal.outer + deal.inner
        if not once and start not in counts:
            return 0
        many.append(1 if once else counts[start])
    longer, few = many.count(many[0]), many[0] - 1
    return len(turn) * few + longer if many == [many[0]] * longer + [few] * (len(many) - longer) else 0


def _fold_loops(patches: list[Patch]) -> list[Patch]:
    """Join patches that fill a stretch of indices with equal ones that fill the next stretch in the same way."""
    todo = sorted(patches, key=lambda p: p.at)
    if not 4 <= len(todo) <= tuning.LOOPED_PATCHES:
        return patches
    k = 0
    while k < len(todo):
        body = _find_body(todo, k)
        if body:
            by = todo[k + body].at - todo[k].at
            pairs = zip(todo[k : k + body], todo[k + body : k + 2 * body], strict=True)
            loop = [p._replace(digits=_add_digit(p.digits, (2, by, q.cell - p.cell))) for p, q in pairs]
            todo[k : k + 2 * body] = loop
        k += 1
    return todo


def _find_body(patches: list[Patch], k: int) -> int:
    """How many patches from number k on fill a stretch that the following ones fill again; 0 if there is none."""
    # a stretch is full when its sizes add up to its length, as patches share no index; only then may the next begin
    start, filled, end = patches[k].at, 0, patches[k].at
    for n in range(1, (len(patches) - k) // 2 + 1):
        last = patches[k + n - 1]
        filled, end = filled + last.size, max(end, last.last + 1)
        if n > 1 and filled == end - start == patches[k + n].at - start:
            one, two = patches[k : k + n], patches[k + n : k + 2 * n]
            if all(
                p.home == q.home and p.digits == q.digits and q.at - p.at == filled
                for p, q in zip(one, two, strict=True)
            ):
                return n
    return 0
