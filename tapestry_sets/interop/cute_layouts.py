"""CuTe's layouts and their algebra: a nest of extents, and a stride for each of them.

    (4,(2,3)):(2,(1,8))      coordinate (i, (j, k)) is at  2 i + 1 j + 8 k
                             the first mode runs fastest: number c is (c % 4, (c // 4 % 2, c // 8))

Composition is the one hard step: A(B(c)) is a layout where adding the steps of B carries from no mode of A into the
next. A carry shows in remainders, mode by mode and without a list of coordinates:

    A = (6,2):(1,100)        a carry where what is added exceeds 6
    B = 4:3                  3 + 3 carries, so B falls into (2,2):(3,6), and 3 + 6 does not carry
    A(B(c))                  (2,2):(3,100)

The algebra is exact: what CuTe computes past its preconditions, without a word, is a ValueError here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import prod
from typing import NamedTuple, NoReturn, TypeAlias

from tapestry_sets.interop import tuning
from tapestry_sets.interop.positions import refuse_at
from tapestry_sets.limits import TooHard, Value, as_int, cut_text, put_fields, quote

IntTuple: TypeAlias = "int | tuple[IntTuple, ...]"
"""An integer, or a tuple of these, as deep as may be."""
Modes = Sequence[tuple[int, int]]
"""(extent, stride) of each leaf, the fastest first."""
Tiler: TypeAlias = "CuteLayout | int | tuple[Tiler, ...] | None"
"""What divides a layout: a layout, n for n:1, or one of these for each leading mode, where None leaves a mode whole."""

_TOKEN = re.compile(r"\s*(?:(?P<number>-?_?\d+)|(?P<sign>[(),:])|(?P<wrong>\S))")


_SWIZZLE = re.compile(r"\s*Sw?<\s*(\d{1,4})\s*,\s*(\d{1,4})\s*,\s*(-?\d{1,4})\s*>\s*o\s*_?(-?\d{1,1000})\s*o\b")


class CuteLayout(Value):
    """A layout of CuTe: a function from coordinates, or from their numbers, to numbers of cells.

    Parameters
    ----------
    shape : int or nest of tuples of int
        Extents, >= 1.
    stride : the same nest of int, optional
        In cells, of either sign; by default cells lie without gaps, the first mode's next to each other.

    Raises
    ------
    ValueError
        If an extent is not positive, or the two nests differ.

    Examples
    --------
    >>> from tapestry_sets import CuteLayout
    >>> tile = CuteLayout((4, (2, 3)), (2, (1, 8)))
    >>> print(tile, tile.size, tile.cosize)
    (4,(2,3)):(2,(1,8)) 24 24
    >>> tile(1, (1, 2)), tile(1, 5), tile(21)  # one coordinate, as CuTe takes it: nested, by mode, as a number
    (19, 19, 19)
    >>> print(CuteLayout((4, 8)))
    (4,8):(1,4)

    References
    ----------
    CUTLASS, "CuTe Layouts" and "CuTe Layout Algebra".
    """

    shape: IntTuple
    stride: IntTuple
    __slots__ = __match_args__ = ("shape", "stride")

    def __init__(self, shape: IntTuple, stride: IntTuple | None = None) -> None:
        extents = _read_nest(shape, "CuteLayout: shape")
        for n in _leaves(extents):
            if n < 1:
                raise ValueError(f"CuteLayout: extent {n} in shape {_shown(extents)} must be >= 1")
        strides = _compact(extents)[0] if stride is None else _read_nest(stride, "CuteLayout: stride")
        if not _are_congruent(extents, strides):
            raise ValueError(
                f"CuteLayout: stride {_shown(strides)} for shape {_shown(extents)}; give one for each extent, nested "
                "alike"
            )
        put_fields(self, shape=extents, stride=strides)

    @classmethod
    def parse(cls, text: str) -> CuteLayout:
        """Return the layout that a text of CuTe's says; ``_4``, a number known at compile time, is 4.

        Raises
        ------
        ValueError
            If it is not one; the message says at which character.

        Examples
        --------
        >>> CuteLayout.parse("((_2,_2),8):((1,4),8)")
        CuteLayout(shape=((2, 2), 8), stride=((1, 4), 8))
        >>> CuteLayout.parse("(4,8):(8;1)")
        Traceback (most recent call last):
        ...
        ValueError: from_cute: character 8: ';' cannot be part of a layout: '(4,8):(8⟨;⟩1)'
        """
        found = read_cute(text)
        if found.swizzle is not None:
            raise ValueError(
                f"CuteLayout: {quote(text)} begins with a swizzle, which is not a layout; from_cute reads it"
            )
        return found.layout

    def __str__(self) -> str:
        return f"{written(self.shape)}:{written(self.stride)}"

    # -- the function -------------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """Number of modes at the top."""
        return len(self.shape) if isinstance(self.shape, tuple) else 1

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        return prod(_leaves(self.shape))

    @property
    def cosize(self) -> int:
        """How many cells lie from the first to the last that is reached."""
        return 1 + sum([(n - 1) * abs(by) for n, by in self.leaves])

    @property
    def leaves(self) -> tuple[tuple[int, int], ...]:
        """(extent, stride) of each mode without modes of its own, the fastest first."""
        return tuple(zip(_leaves(self.shape), _leaves(self.stride), strict=True))

    @property
    def modes(self) -> tuple[CuteLayout, ...]:
        """The modes at the top, each a layout."""
        if not isinstance(self.shape, tuple) or not isinstance(self.stride, tuple):
            return (self,)
        return tuple([CuteLayout(n, by) for n, by in zip(self.shape, self.stride, strict=True)])

    def __call__(self, *coordinate: IntTuple) -> int:
        """Return the number of the cell at a coordinate, or at the coordinate of a number.

        Parameters
        ----------
        *coordinate
            One number, or a coordinate for each mode at the top, each a number or a nest itself. As in CuTe a number
            may exceed the extent of the last mode, which then goes on.

        Raises
        ------
        ValueError
            If a number is negative, or the nest is another.
        """
        given = _read_nest(coordinate[0] if len(coordinate) == 1 else coordinate, "CuteLayout: coordinate")
        if min(_leaves(given), default=0) < 0:
            raise ValueError(f"CuteLayout: coordinate {written(given)} must be >= 0")
        return _place(given, self.shape, self.stride)

    # -- the algebra --------------------------------------------------------------------------------------

    def flatten(self) -> CuteLayout:
        """Return the layout whose modes are the leaves."""
        return CuteLayout(tuple(_leaves(self.shape)), tuple(_leaves(self.stride)))

    def coalesce(self) -> CuteLayout:
        """Return the same function of numbers by as few modes as can be, without a nest.

        Examples
        --------
        >>> print(CuteLayout((2, (1, 6)), (1, (6, 2))).coalesce())
        12:1

        References
        ----------
        CuTe, coalesce.
        """
        return _of_modes(_joined(self.leaves))

    def compose(self, other: Tiler) -> CuteLayout:
        """Return the layout R of the shape of `other`, its modes split where need be, with R(c) = self(other(c)).

        Parameters
        ----------
        other : CuteLayout, int, or tuple of these
            n stands for n:1; a tuple holds one for each leading mode, each composed with that mode alone.

        Raises
        ------
        ValueError
            If no layout does so, or a stride of `other` is negative.
        TooHard
            If carries may cancel each other, and coordinates are too many to try.

        Notes
        -----
        What `other` reads past the last coordinate is there: the last mode goes on, as in CuTe.

        Examples
        --------
        >>> print(CuteLayout((6, 2), (8, 2)).compose(CuteLayout((4, 3), (3, 1))))
        ((2,2),3):((24,2),8)
        >>> CuteLayout((4, 2), (1, 10)).compose(CuteLayout(3, 3))
        Traceback (most recent call last):
        ...
        ValueError: compose: 3:3 under (4,2):(1,10) is not a layout: 3 numbers do not divide into equal runs of 2

        References
        ----------
        CuTe, composition.
        """
        return _by_mode(self, other, _compose, "compose: other")

    def complement(self, extent: int | None = None) -> CuteLayout:
        """Return the layout of the cells between and after this one's, so that both together reach `extent` cells.

        Each cell of [0, the cosize of both) is the sum of one cell of each, and its strides ascend.

        Parameters
        ----------
        extent : int, optional
            How many cells both are to reach at least, >= 1; by default the cosize.

        Raises
        ------
        ValueError
            If a stride is negative, or one is not a multiple of what the modes of smaller strides reach: then a cell
            is reached twice, or no copies fill what lies between. Strides of 0 are passed over.

        Examples
        --------
        >>> print(CuteLayout((2, 2), (1, 6)).complement(24))
        (3,2):(2,12)

        References
        ----------
        CuTe, complement.
        """
        most = self.cosize if extent is None else as_int(extent, "complement: extent")
        if most < 1:
            raise ValueError(f"complement: extent {most} must be >= 1")
        gaps: list[tuple[int, int]] = []
        filled = 1
        for by, n in sorted([(by, n) for n, by in self.leaves if n > 1 and by]):
            if by < 0:
                raise ValueError(f"complement: stride {by} in {self} must be >= 0; reverse that mode")
            if by % filled:
                raise ValueError(
                    f"complement: stride {by} in {self} is not a multiple of {filled}, the cells that the modes of "
                    "smaller strides reach; a cell is reached twice, or no copies fill what lies between"
                )
            gaps.append((by // filled, filled))
            filled = n * by
        return _of_modes(_joined([*gaps, (-(-most // filled), filled)]))

    def divide(self, tiler: Tiler) -> CuteLayout:
        """Return the layout of two modes: within a tile, and from tile to tile.

        Parameters
        ----------
        tiler : CuteLayout, int, or tuple of these
            The numbers that a tile holds; n for n in a row. A tuple holds one for each leading mode, each divided by
            itself; None leaves a mode whole. Where tiles do not divide the size, the last one goes on past it.

        Raises
        ------
        ValueError
            As for `complement` of the tiler, and `compose`.

        Examples
        --------
        >>> print(CuteLayout((4, 2, 3), (2, 1, 8)).divide(CuteLayout(4, 2)))
        ((2,2),(2,3)):((4,1),(2,8))
        >>> print(CuteLayout((9, 32), (59, 13)).divide((3, 8)))
        ((3,3),(8,4)):((59,177),(13,104))

        References
        ----------
        CuTe, logical_divide.
        """
        return _by_mode(self, tiler, _divide, "divide: tiler")

    def multiply(self, other: Tiler) -> CuteLayout:
        """Return the layout of two modes: this one, and its copies, which lie as `other` says.

        Parameters
        ----------
        other : CuteLayout, int, or tuple of these
            n for n copies one after the other; a tuple holds one for each leading mode.

        Raises
        ------
        ValueError
            As for `complement` of this layout, and `compose`.

        Examples
        --------
        >>> print(CuteLayout((2, 2), (4, 1)).multiply(CuteLayout(6, 1)))
        ((2,2),(2,3)):((4,1),(2,8))

        References
        ----------
        CuTe, logical_product.
        """
        return _by_mode(self, other, _multiply, "multiply: other")

    def right_inverse(self) -> CuteLayout:
        """Return a layout R with self(R(k)) = k for each k below its size: the longest, if no cell is reached twice.

        Examples
        --------
        >>> print(CuteLayout((4, 8), (8, 1)).right_inverse())
        (8,4):(4,1)

        References
        ----------
        CuTe, right_inverse.
        """
        found: list[tuple[int, int]] = []
        filled = number = 1
        numbered = []
        for n, by in self.leaves:
            numbered.append((by, n, number))
            number *= n
        for by, n, at in sorted([one for one in numbered if one[0] > 0 and one[1] > 1]):
            if by != filled:
                break
            found.append((n, at))
            filled *= n
        return _of_modes(_joined(found))

    def left_inverse(self) -> CuteLayout:
        """Return a layout L with L(self(c)) = c for each number c.

        Raises
        ------
        ValueError
            As for `complement`, or if a cell is reached twice.

        Examples
        --------
        >>> print(CuteLayout((4, 2), (1, 8)).left_inverse())
        (4,2,2):(1,8,4)

        References
        ----------
        CuTe, left_inverse.
        """
        for n, by in self.leaves:
            if n > 1 and not by:
                raise ValueError(f"left_inverse: stride 0 of extent {n} in {self} reaches a cell {n} times")
        return _paired(self, self.complement()).right_inverse()


# ------------------------------------------------------------------------------------------------------------- nests


def written(nest: IntTuple) -> str:
    """Return a nest as CuTe prints it.

    Examples
    --------
    >>> written(((2, 2), 8)), written((4,))
    ('((2,2),8)', '(4)')
    """
    return f"({','.join(map(written, nest))})" if isinstance(nest, tuple) else str(nest)


def _shown(nest: IntTuple) -> str:
    """A nest as a message shows it, its end left out where it is long."""
    return cut_text(written(nest))


def _read_nest(nest: object, what: str, depth: int = 0) -> IntTuple:
    """A nest as tuples of Python's integers."""
    if not isinstance(nest, (tuple, list)):
        return as_int(nest, what)
    if depth == tuning.MAX_DEPTH:
        raise ValueError(f"{what}: more than {tuning.MAX_DEPTH} tuples in each other")
    return tuple([_read_nest(one, what, depth + 1) for one in nest])


def _leaves(nest: IntTuple) -> Iterator[int]:
    if isinstance(nest, tuple):
        for one in nest:
            yield from _leaves(one)
    else:
        yield nest


def _are_congruent(one: IntTuple, two: IntTuple) -> bool:
    if isinstance(one, tuple) and isinstance(two, tuple):
        return len(one) == len(two) and all(map(_are_congruent, one, two))
    return not isinstance(one, tuple) and not isinstance(two, tuple)


def _compact(shape: IntTuple, step: int = 1) -> tuple[IntTuple, int]:
    """The strides of cells without gaps, the first mode's next to each other, and the step after them all."""
    if not isinstance(shape, tuple):
        return step, step * shape
    found = []
    for one in shape:
        strides, step = _compact(one, step)
        found.append(strides)
    return tuple(found), step


def _place(coordinate: IntTuple, shape: IntTuple, stride: IntTuple) -> int:
    if isinstance(coordinate, tuple):
        if not isinstance(shape, tuple) or not isinstance(stride, tuple) or len(coordinate) != len(shape):
            raise ValueError(
                f"CuteLayout: coordinate {_shown(coordinate)} for shape {_shown(shape)}; give a number, or one "
                "coordinate for each mode"
            )
        return sum(map(_place, coordinate, shape, stride))
    return _cell_at(coordinate, list(zip(_leaves(shape), _leaves(stride), strict=True)))


def _cell_at(number: int, modes: Modes) -> int:
    """The cell of a number, of which the last mode takes all that the others leave."""
    cell = 0
    for n, by in modes[:-1]:
        number, i = divmod(number, n)
        cell += i * by
    return cell + number * modes[-1][1] if modes else cell


def _of_modes(modes: Modes) -> CuteLayout:
    """The layout of some modes: one mode is an integer, none of them 1:0."""
    shape, stride = tuple([n for n, _ in modes]), tuple([by for _, by in modes])
    return CuteLayout(shape, stride) if len(modes) > 1 else CuteLayout(*(modes[0] if modes else (1, 0)))


def _paired(*layouts: CuteLayout) -> CuteLayout:
    """The layout whose modes are these."""
    return CuteLayout(tuple([one.shape for one in layouts]), tuple([one.stride for one in layouts]))


def _joined(modes: Modes) -> list[tuple[int, int]]:
    """The same function by as few modes as can be: without those of one coordinate, and of those that go on, one."""
    found: list[tuple[int, int]] = []
    for n, by in modes:
        if n == 1:
            continue
        if found and found[-1][0] * found[-1][1] == by:
            found[-1] = (found[-1][0] * n, found[-1][1])
        else:
            found.append((n, by))
    return found


def _by_mode(
    one: CuteLayout, other: Tiler, verb: Callable[[CuteLayout, CuteLayout], CuteLayout], what: str
) -> CuteLayout:
    """A verb of two layouts, where the other is a number or is given by mode."""
    if other is None:
        return one
    if isinstance(other, CuteLayout):
        return verb(one, other)
    if not isinstance(other, (tuple, list)):
        n = as_int(other, f"{what}, where it is not a CuteLayout or a tuple of them,")
        return verb(one, CuteLayout(n, 1))
    modes = one.modes
    if len(other) > len(modes):
        raise ValueError(f"{what}: {len(other)} layouts for the {len(modes)} modes of {one}; give one a mode, or fewer")
    found = [_by_mode(mode, each, verb, what) for mode, each in zip(modes, other, strict=False)]
    return _paired(*found, *modes[len(other) :])


# ------------------------------------------------------------------------------------------------------- composition


class _Carries:
    """A layout A as a function of all numbers >= 0: where a sum carries from mode to mode, and what that adds.

    A(x) = first x + Σ jump floor(x / unit), where units are the products of extents: A is linear but for carries.
    """

    def __init__(self, layout: CuteLayout) -> None:
        self.layout = layout
        self.modes = layout.leaves
        unit, below, self.jumps = 1, 0, list[tuple[int, int]]()
        for k, (n, by) in enumerate(self.modes):
            if k and by != below:
                self.jumps.append((unit, by - below))
            unit, below = unit * n, n * by

    def at(self, number: int) -> int:
        return _cell_at(number, self.modes)

    def split(self, n: int, step: int, mode: str) -> list[tuple[int, int]]:
        """The mode n:step split where multiples of the step carry, as (extent, number)."""
        found: list[tuple[int, int]] = []
        whole, start = n, step
        while n > 1:
            runs = [-(-unit // (step % unit)) for unit, _ in self.jumps if step % unit]
            run = min(runs, default=n)
            if run < n and self.at(run * step) == run * self.at(step):  # carries cancel: only a list can tell
                self.check_listed(whole, mode)
                return self.split_listed([self.at(k * start) for k in range(whole)], start, mode)
            if run >= n:
                return [*found, (n, step)]
            if n % run:
                self.refuse(mode, f"{n} numbers do not divide into equal runs of {run}")
            found.append((run, step))
            n, step = n // run, step * run
        return found

    def split_listed(self, cells: list[int], step: int, mode: str) -> list[tuple[int, int]]:
        """The same from the cells themselves."""
        found = []
        while len(cells) > 1:
            by = cells[1] - cells[0]
            run = next((k for k, cell in enumerate(cells) if cell != cells[0] + k * by), len(cells))
            if len(cells) % run:
                self.refuse(mode, f"{len(cells)} numbers do not divide into equal runs of {run}")
            found.append((run, step))
            cells, step = cells[::run], step * run
        return found

    def check_sums(self, levels: Modes, other: CuteLayout) -> None:
        """Refuse levels of which a sum is not where its parts say."""
        carrying = [unit for unit, _ in self.jumps if sum([(n - 1) * (step % unit) for n, step in levels]) >= unit]
        for unit in carrying:
            self.check_sum(_first_carry(levels, unit), levels, other)
        if carrying:  # and yet the first sums are right
            self.check_listed(prod([n for n, _ in levels]), str(other))
            for digits in product(*[range(n) for n, _ in levels]):
                self.check_sum(digits, levels, other)

    def check_sum(self, digits: Sequence[int], levels: Modes, other: CuteLayout) -> None:
        number = sum([k * step for k, (_, step) in zip(digits, levels, strict=True)])
        cell = sum([k * self.at(step) for k, (_, step) in zip(digits, levels, strict=True)])
        if self.at(number) != cell:
            self.refuse(
                str(other), f"the parts of {number} lie at cells of the sum {cell}, itself at {self.at(number)}"
            )

    def check_listed(self, many: int, mode: str) -> None:
        if many > tuning.MAX_LISTED:
            raise TooHard(
                f"compose: {mode} under {self.layout}: carries of different modes may cancel each other, which is "
                f"looked at number by number; there are {many:,}, and up to {tuning.MAX_LISTED:,} are tried"
            )

    def refuse(self, mode: str, why: str) -> NoReturn:
        raise ValueError(f"compose: {mode} under {self.layout} is not a layout: {why}")


def _first_carry(levels: Modes, unit: int) -> list[int]:
    """Digits whose sum carries past a unit, as few of the largest remainders as do."""
    digits, rest = [0] * len(levels), 0
    for _, at in sorted([(-(step % unit), at) for at, (_, step) in enumerate(levels) if step % unit]):
        n, step = levels[at]
        digits[at] = min(n - 1, -(-(unit - rest) // (step % unit)))
        rest += digits[at] * (step % unit)
        if rest >= unit:
            break
    return digits


def _compose(one: CuteLayout, other: CuteLayout) -> CuteLayout:
    carries = _Carries(one)
    levels: list[tuple[int, int]] = []

    def under(shape: IntTuple, stride: IntTuple) -> CuteLayout:
        if isinstance(shape, tuple) and isinstance(stride, tuple):
            return _paired(*map(under, shape, stride))
        assert isinstance(shape, int) and isinstance(stride, int), "nests of a layout are alike"
        if stride < 0:
            raise ValueError(f"compose: stride {stride} in {other} must be >= 0; {one} has no cells before number 0")
        if not stride:
            return CuteLayout(shape, 0)
        found = carries.split(shape, stride, f"{shape}:{stride}")
        levels.extend(found)
        return _of_modes(_joined([(n, carries.at(step)) for n, step in found]))

    made = under(other.shape, other.stride)
    carries.check_sums(levels, other)
    return made


def _divide(one: CuteLayout, tiler: CuteLayout) -> CuteLayout:
    return _compose(one, _paired(tiler, tiler.complement(one.size)))


def _multiply(one: CuteLayout, other: CuteLayout) -> CuteLayout:
    return _paired(one, _compose(one.complement(one.size * other.cosize), other))


# ----------------------------------------------------------------------------------------------------------- reading


class SwizzledLayout(NamedTuple):
    """What a text of CuTe's says: coordinates are at a layout plus an offset, of which a swizzle flips bits.

    Attributes
    ----------
    swizzle : tuple of int, or None
        Bits, base and shift.
    offset : int
    layout : CuteLayout
    """

    swizzle: tuple[int, int, int] | None
    offset: int
    layout: CuteLayout


def read_cute(text: object) -> SwizzledLayout:
    """Return what a text says: ``(4,8):(8,1)``, or ``Sw<3,4,3> o 0 o (8,64):(64,1)``.

    Raises
    ------
    ValueError
        If it says neither; the message says at which character.

    Examples
    --------
    >>> read_cute("Sw<3,4,3> o 0 o 64:1")
    SwizzledLayout(swizzle=(3, 4, 3), offset=0, layout=CuteLayout(shape=64, stride=1))
    """
    if not isinstance(text, str):
        raise TypeError(f"from_cute: {quote(text)} is {type(text).__name__}; give a text such as '(4,8):(8,1)'")
    prefix = _SWIZZLE.match(text)
    if prefix is None:
        if text.lstrip()[:1] == "S":
            at = text.index("S")
            refuse_at("from_cute", text, at, 1, "a swizzle is written as in 'Sw<3,4,3> o 0 o (8,64):(64,1)'")
        return SwizzledLayout(None, 0, CuteLayout(*_LayoutReader(text).layout()))
    bits, base, shift, offset = map(int, prefix.groups())
    return SwizzledLayout((bits, base, shift), offset, CuteLayout(*_LayoutReader(text, prefix.end()).layout()))


class _LayoutReader:
    """A reader of ``nest : nest``, which needs no recursion."""

    def __init__(self, text: str, at: int = 0) -> None:
        self.text = text
        self.at = at

    def layout(self) -> tuple[IntTuple, IntTuple]:
        shape = self.nest()
        word, at = self.take()
        if word != ":":
            self.refuse(at, word, f"{_name(word)} where ':' and the strides are needed")
        stride = self.nest()
        word, at = self.take()
        if word:
            self.refuse(at, word, f"{quote(word)} after the end of the layout")
        return shape, stride

    def nest(self) -> IntTuple:
        """Read an integer, or a nest of tuples, up to its last parenthesis."""
        above: list[list[IntTuple]] = []
        while True:
            word, at = self.take()
            if word == "(":
                if len(above) == tuning.MAX_DEPTH:
                    self.refuse(at, word, f"more than {tuning.MAX_DEPTH} parentheses in each other")
                above.append([])
                continue
            done: IntTuple
            if word == ")" and above and not above[-1]:
                done = tuple(above.pop())
            elif word.lstrip("-_").isdecimal():
                if len(word) > tuning.MAX_DIGITS:
                    self.refuse(at, word, f"a number of {len(word)} digits; {tuning.MAX_DIGITS} are read")
                done = int(word.replace("_", ""))
            else:
                self.refuse(at, word, f"{_name(word)} where a number or '(' is needed")
            while above:
                above[-1].append(done)
                word, at = self.take()
                if word == ",":
                    break
                if word != ")":
                    self.refuse(at, word, f"{_name(word)} where ',' or ')' is needed")
                done = tuple(above.pop())
            else:
                return done

    def take(self) -> tuple[str, int]:
        found = _TOKEN.match(self.text, self.at)
        if found is None:
            return "", len(self.text.rstrip())
        self.at = found.end()
        word = found.group().strip()
        if found["wrong"]:
            self.refuse(self.at - len(word), word, f"{quote(word)} cannot be part of a layout")
        return word, self.at - len(word)

    def refuse(self, at: int, word: str, why: str) -> NoReturn:
        refuse_at("from_cute", self.text, at, len(word), why)


def _name(word: str) -> str:
    return repr(word) if word else "the text ends"
