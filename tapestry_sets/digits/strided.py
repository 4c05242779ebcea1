"""Strided views: an offset and, for each axis, levels of (count, step), so that most chains cost little to ask.

Index i of an axis has one digit for each of its levels, outermost first, and reads ``offset + sum(digit * step)``
over the digits of all axes: a row-major number of the allocation. Slices, permutations, broadcasts and those
reshapes that cut levels where they divide keep this form; whatever does not is None here and goes the general
way, by pieces.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from tapestry_sets.digits.digits import Levels, join_digits

Strided = tuple[int, tuple[Levels, ...]]
"""(offset, levels of each axis): the extent of an axis is the product of its levels' counts."""


def contiguous(shape: Sequence[int]) -> Strided:
    """Return the strided form of a whole allocation.

    Examples
    --------
    >>> contiguous((4, 6))
    (0, (((4, 6),), ((6, 1),)))
    """
    if len(shape) == 1:
        return 0, (((shape[0], 1),),)
    axes: list[Levels] = []
    step = 1
    for n in reversed(shape):
        axes.append(((n, step),))
        step *= n
    axes.reverse()
    return 0, tuple(axes)


def cut_axis(levels: Levels, start: int, count: int, step: int) -> tuple[int, Levels] | None:
    """Return the offset and the levels of ``axis[start::step]``, `count` >= 1 elements; None if they do not align.

    Examples
    --------
    >>> cut_axis(((10, 3),), 8, 4, -2)
    (24, ((4, -6),))
    >>> cut_axis(((4, 100), (5, 1)), 5, 10, 1)  # whole rows of the inner level
    (100, ((2, 100), (5, 1)))
    >>> cut_axis(((4, 100), (5, 1)), 3, 4, 1) is None
    True
    """
    if len(levels) == 1:
        by = levels[0][1]
        return start * by, ((count, step * by),)
    if count == 1:
        return at_index(levels, start), ((1, 0),)
    if step < 0:  # the same elements from the other end
        found = cut_axis(levels, start + (count - 1) * step, count, -step)
        if found is None:
            return None
        more, turned = flip_axis(found[1])
        return found[0] + more, turned
    by, inner = levels[0][1], levels[1:]
    width = prod([m for m, _ in inner])
    if step == 1 and start % width == 0 and count % width == 0:
        return start // width * by, ((count // width, by), *inner)
    row, rest = divmod(start, width)
    if 0 <= rest + (count - 1) * step < width:  # inside one row
        found = cut_axis(inner, rest, count, step)
        return None if found is None else (row * by + found[0], found[1])
    if width % step == 0 and rest < step and count % (width // step) == 0:  # the same of each row
        found = cut_axis(inner, rest, width // step, step)
        return None if found is None else (row * by + found[0], ((count // (width // step), by), *found[1]))
    return None


def at_index(levels: Levels, i: int) -> int:
    """Return the number that index i of an axis adds to the offset."""
    offset = 0
    for n, by in levels[:0:-1]:
        i, digit = divmod(i, n)
        offset += digit * by
    return offset + i * levels[0][1]


def flip_axis(levels: Levels) -> tuple[int, Levels]:
    """Return the offset and the levels of an axis from its other end."""
    return sum([(n - 1) * by for n, by in levels]), tuple([(n, -by) for n, by in levels])


def join_runs(runs: Iterable[tuple[int, int, int]]) -> Levels | None:
    """Return the levels of an axis that reads one run (first, count, step) after another; None if they are not levels.

    Examples
    --------
    >>> join_runs([(0, 4, 2), (8, 2, 2)]), join_runs([(0, 3, 1), (10, 3, 1), (20, 3, 1)])
    (((6, 2),), ((3, 10), (3, 1)))
    >>> join_runs([(0, 3, 1), (10, 3, 1), (25, 3, 1)]) is None
    True
    """
    #   numbers   0 1 . 3 4 5 6 . 8 9      blocks of two, every 3, and four of these blocks as two and two, every 5
    #   joined    ---   -------   ---      runs that go on are one, also where two blocks happen to touch
    #   cut       ---   --- ---   ---      by the shortest, which is the inner level; what they begin with is the others
    #
    # A third block never touches too: then the inner level would be longer.
    joined: list[tuple[int, int, int]] = []
    for first, count, step in runs:
        if joined:
            at, many, by = joined[-1]
            if many == 1:
                by = step if count > 1 else first - at
            if first == at + many * by and (count == 1 or step == by):
                joined[-1] = at, many + count, by
                continue
        joined.append((first, count, step))
    if len(joined) == 1:
        [(_, many, by)] = joined
        return ((many, by),)
    inner = min([many for _, many, _ in joined])
    step = joined[0][2]
    if inner == 1 or any(by != step or many % inner or many > 2 * inner for _, many, by in joined):
        return None
    firsts = [at + z * step for at, many, _ in joined for z in range(0, many, inner)]
    outer = join_runs([(at, 1, 0) for at in firsts])
    return None if outer is None else join_digits((*outer, (inner, step)))


def renumber(axes: Iterable[Levels], shape: Sequence[int]) -> tuple[Levels, ...] | None:
    """Return the levels of a reshape to a shape without empty axes; None if an axis ends inside an indivisible level.

    Examples
    --------
    >>> renumber((((4, 6),), ((6, 1),)), (3, 8))
    (((3, 8),), ((8, 1),))
    >>> renumber((((4, 10),), ((6, 1),)), (2, 12))
    (((2, 20),), ((2, 10), (6, 1)))
    >>> renumber((((4, 10),), ((6, 1),)), (3, 8)) is None
    True
    """
    todo = [level for levels in axes for level in levels if level[0] > 1]
    out: list[Levels] = []
    count = by = 1  # what is left of a level
    for n in reversed(shape):
        if n == 1:
            out.append(((1, 0),))
            continue
        inner: Levels = ()
        while count % n:
            if count == 1:
                count, by = todo.pop()
            elif todo and todo[-1][1] == count * by:  # which goes on without a break
                count *= todo.pop()[0]
            elif n % count:
                return None
            else:
                inner = ((count, by), *inner)
                n //= count
                count = 1
        out.append(((n, by), *inner) if inner else ((n, by),))
        count //= n
        by *= n
    out.reverse()
    return tuple(out)
