"""MLIR's affine maps as text: read into index projections and written from them.

``floordiv`` and ``mod`` by positive constants become splits of an index axis; what folds to splits is folded, as
``d0 * 6 floordiv 4`` to ``d0 + d0 floordiv 2``, and what does not is refused with its position.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import gcd
from typing import NoReturn, TypeVar

from msgspec import Struct, field

from tapestry_sets.interop import tuning
from tapestry_sets.interop.positions import refuse_at
from tapestry_sets.limits import as_int, as_ints, check_type, list_names, quote
from tapestry_sets.regions import AffineMap, IndexProjection

_TOKEN = r"\s*(?:(?P<number>\d+)|(?P<name>[A-Za-z_][\w$.]*)|(?P<sign>->|[-+*(),<>\[\]])|(?P<wrong>\S))"
_PRODUCTS = ("*", "mod", "floordiv", "ceildiv")
T = TypeVar("T")
AffineTerm = tuple[int, int, int]
"""(axis, divisor, what): the axis itself (divisor 1), its quotient (what 0) or its remainder (what 1)."""


def from_mlir(
    text: str, *, symbols: Mapping[str, int] | None = None, shape: Sequence[int] | None = None
) -> IndexProjection:
    """Return the index projection whose start is an affine map of MLIR.

    Parameters
    ----------
    text : str
        ``affine_map<(d0, d1)[s0] -> (…)>``, or what stands between the angle brackets.
    symbols : mapping of str to int, optional
        Values of the symbols that the map uses.
    shape : sequence of int, optional
        Extents of the block at each index point; all ones by default, since MLIR's maps go to points.

    Raises
    ------
    ValueError
        For text that is not an affine map, symbols without a value, and forms that are not affine or not splits of one
        index axis; the message says at which character.

    Examples
    --------
    >>> from tapestry_sets import from_mlir, to_mlir
    >>> p = from_mlir("affine_map<(d0, d1)[s0] -> (d0 + s0 * d1, d1 floordiv 4, d1 mod 4)>", symbols={"s0": 2})
    >>> p((1, 6)).start
    (13, 1, 2)
    >>> to_mlir(p)
    'affine_map<(d0, d1) -> (d0 + d1 * 2, d1 floordiv 4, d1 mod 4)>'
    >>> from_mlir("affine_map<(d0, d1) -> (d0 * d1)>")
    Traceback (most recent call last):
    ...
    ValueError: from_mlir: character 27: a product needs a constant on one side: '…1) -> (d0 ⟨*⟩ d1)>'

    References
    ----------
    MLIR, 'affine' dialect, affine maps.
    """
    if not isinstance(text, str):
        raise TypeError(f"from_mlir: {quote(text)} is {type(text).__name__}; give the text of an affine map")
    values = {} if symbols is None else check_type(symbols, Mapping, "from_mlir: symbols", "values by name")
    extents = None if shape is None else as_ints(shape, "from_mlir: shape")
    dims, forms = _Reader(text, values).affine_map()
    splits = sorted({(axis, q) for form in forms for axis, q, _ in form.terms if q > 1})
    columns = [(axis, 1, 0) for axis in range(len(dims))]
    columns += [(axis, q, what) for axis, q in splits for what in (0, 1)]
    rows = tuple(tuple(form.terms.get(term, 0) for term in columns) for form in forms)
    start = AffineMap(rows, tuple(form.constant for form in forms), len(columns))
    return IndexProjection(start, (1,) * len(rows) if extents is None else extents, tuple(splits))


def to_mlir(projection: IndexProjection | AffineMap) -> str:
    """Return an index projection, or an affine map, as MLIR writes it.

    Raises
    ------
    ValueError
        For a projection to blocks of more than one cell: MLIR's maps go to points.

    Examples
    --------
    >>> from tapestry_sets import AffineMap, to_mlir
    >>> to_mlir(AffineMap(((-1, 4), (0, 0)), (2, 7)))
    'affine_map<(d0, d1) -> (-d0 + d1 * 4 + 2, 7)>'
    """
    if isinstance(projection, AffineMap):
        projection = IndexProjection(projection, (1,) * projection.out_rank)
    if any(n != 1 for n in check_type(projection, IndexProjection, "to_mlir: projection", "or an AffineMap").shape):
        raise ValueError(
            f"to_mlir: the projection goes to blocks of shape {quote(projection.shape)}, an affine map to points; "
            "write the map of its starts, and give the shape to from_mlir"
        )
    rank = max(projection.index_rank, 0)
    names = [f"d{k}" for k in range(rank)]
    for axis, q in projection.splits:
        names += [f"d{axis} floordiv {q}", f"d{axis} mod {q}"]
    rows = zip(projection.map.matrix, projection.map.offset, strict=True)
    results = ", ".join(_written(row, names, constant) for row, constant in rows)
    return f"affine_map<({', '.join(names[:rank])}) -> ({results})>"


def _written(row: Sequence[int], names: Sequence[str], constant: int) -> str:
    coefficients: dict[str, int] = {}
    for name, c in zip(names, row, strict=True):
        coefficients[name] = coefficients.get(name, 0) + c
    text = ""
    for name, c in coefficients.items():
        if c:
            one = name if " " not in name or abs(c) == 1 else f"({name})"
            if not text:
                text = one if c == 1 else f"-{_whole(one)}" if c == -1 else f"{one} * {c}"
            else:
                text += f" {'-' if c < 0 else '+'} {one}" + ("" if abs(c) == 1 else f" * {abs(c)}")
    if not text:
        return str(constant)
    return text + (f" {'-' if constant < 0 else '+'} {abs(constant)}" if constant else "")


def _whole(term: str) -> str:
    return f"({term})" if " " in term else term


# ---------------------------------------------------------------------------------------------------- linear forms


class _AffineForm(Struct, frozen=True):
    """A linear form over terms."""

    terms: dict[AffineTerm, int] = field(default_factory=dict)
    constant: int = 0

    def plus(self, other: _AffineForm, factor: int = 1) -> _AffineForm:
        terms = dict(self.terms)
        for term, c in other.terms.items():
            terms[term] = terms.get(term, 0) + factor * c
        return _AffineForm({t: c for t, c in terms.items() if c}, self.constant + factor * other.constant)

    def times(self, factor: int) -> _AffineForm:
        return _AffineForm().plus(self, factor)

    def divided(self, q: int) -> tuple[_AffineForm, _AffineForm] | None:
        """The quotient and the remainder by q, which is positive; None where they are not splits of one axis."""
        if q == 1:
            return self, _AffineForm()
        quotient = _AffineForm({t: c // q for t, c in self.terms.items() if c // q}, self.constant // q)
        rest = self.plus(quotient, -q)
        if not rest.terms:
            return quotient, rest
        # floor((g·x + c) / (g·p)) = floor((x + c // g) / p), and what is left is c mod g
        g = gcd(q, *rest.terms.values())
        carried, over = divmod(rest.constant, g)
        inner = _AffineForm({t: c // g for t, c in rest.terms.items()}, carried)
        parts = (inner, _AffineForm()) if q == g else _term_divided(inner, q // g)
        if parts is None:
            return None
        return quotient.plus(parts[0]), parts[1].times(g).plus(_AffineForm({}, over))


def _term_divided(form: _AffineForm, q: int) -> tuple[_AffineForm, _AffineForm] | None:
    """Quotient and remainder of a single term without a constant; None for any other form."""
    if form.constant or list(form.terms.values()) != [1]:
        return None
    ((axis, p, what),) = form.terms
    if p == 1:
        return _AffineForm({(axis, q, 0): 1}), _AffineForm({(axis, q, 1): 1})
    if what == 0:  # (i // p) // q is i // pq, and what remains is i // p - q·(i // pq)
        whole = _AffineForm({(axis, p * q, 0): 1})
        return whole, form.plus(whole, -q)
    if q % p == 0:  # i % p is below q
        return _AffineForm(), form
    if p % q:
        return None
    whole = _AffineForm({(axis, q, 0): 1}).plus(_AffineForm({(axis, p, 0): 1}), -(p // q))
    return whole, _AffineForm({(axis, q, 1): 1})


# ----------------------------------------------------------------------------------------------------------- reading


class _Reader:
    """A recursive-descent reader of one affine map."""

    def __init__(self, text: str, symbols: Mapping[str, int]) -> None:
        self.text = text
        self.values = symbols
        self.names: dict[str, _AffineForm | None] = {}
        self.tokens = list(self._tokens())
        self.at = 0
        self.depth = 0

    def affine_map(self) -> tuple[list[str], list[_AffineForm]]:
        wrapped = self.word == "affine_map"
        if wrapped:
            self.take()
            self.expect("<")
        dims = self.list_of("(", ")", self.name)
        for axis, name in enumerate(dims):
            self.names[name] = _AffineForm({(axis, 1, 0): 1})
        if self.word == "[":
            self.list_of("[", "]", self.symbol)
        self.expect("->")
        forms = self.list_of("(", ")", self.sum)
        if wrapped:
            self.expect(">")
        if self.word:
            self.fail(f"{quote(self.word)} after the end of the map")
        return dims, forms

    # -- expressions ----------------------------------------------------------------------------------

    def sum(self) -> _AffineForm:
        found = self.product()
        while self.word in ("+", "-"):
            sign = 1 if self.take() == "+" else -1
            found = found.plus(self.product(), sign)
        return found

    def product(self) -> _AffineForm:
        found = self.factor()
        while self.word in _PRODUCTS:
            at = self.at
            found = self.combined(self.take(), found, self.factor(), at)
        return found

    def combined(self, word: str, left: _AffineForm, right: _AffineForm, at: int) -> _AffineForm:
        if word == "*":
            if left.terms and right.terms:
                self.fail("a product needs a constant on one side", at)
            return left.times(right.constant) if not right.terms else right.times(left.constant)
        if right.terms:
            self.fail(f"{word} needs a constant on its right", at)
        if right.constant < 1:
            self.fail(f"{word} by {right.constant}; it must be positive", at)
        above = right.constant - 1 if word == "ceildiv" else 0
        parts = left.plus(_AffineForm({}, above)).divided(right.constant)
        if parts is None:
            self.fail(f"{word} of a form that does not split a single index axis", at)
        return parts[1] if word == "mod" else parts[0]

    def factor(self) -> _AffineForm:
        self.depth += 1
        if self.depth > tuning.MAX_DEPTH:
            self.fail(f"more than {tuning.MAX_DEPTH} nested parentheses or signs")
        found = self.atom()
        self.depth -= 1
        return found

    def atom(self) -> _AffineForm:
        word, at = self.word, self.at
        if word == "-":
            self.take()
            return self.factor().times(-1)
        if word == "(":
            self.take()
            inner = self.sum()
            self.expect(")")
            return inner
        if word.isdecimal():
            if len(word) > tuning.MAX_DIGITS:
                self.fail(f"a number of {len(word)} digits; {tuning.MAX_DIGITS} are read")
            return _AffineForm({}, int(self.take()))
        if word not in self.names:
            known = list_names(self.names, word, "dimensions and symbols")
            self.fail(f"{quote(word)} is not a dimension or symbol; {known}" if word else "the map ends too early")
        self.take()
        found = self.names[word]
        if found is None:
            self.fail(f"the symbol {quote(word)} has no value; give symbols={{{quote(word)}: …}}", at)
        return found

    # -- tokens ---------------------------------------------------------------------------------------

    def symbol(self) -> str:
        name = self.name()
        value = self.values.get(name)
        self.names[name] = (
            None if value is None else _AffineForm({}, as_int(value, f"from_mlir: the symbol {quote(name)}"))
        )
        return name

    def name(self) -> str:
        if not re.fullmatch(r"[A-Za-z_][\w$.]*", self.word):
            self.fail(f"{quote(self.word)} where a name is needed")
        if self.word in self.names:
            self.fail(f"{quote(self.word)} is declared twice")
        self.names[self.word] = None
        return self.take()

    def list_of(self, begin: str, end: str, item: Callable[[], T]) -> list[T]:
        self.expect(begin)
        found: list[T] = []
        while self.word != end:
            if found:
                self.expect(",")
            found.append(item())
        self.take()
        return found

    @property
    def word(self) -> str:
        return self.tokens[self.at][0]

    def take(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1][0]

    def expect(self, word: str) -> None:
        if self.word != word:
            self.fail(f"{repr(self.word) if self.word else 'the map ends'} where {quote(word)} is needed")
        self.take()

    def _tokens(self) -> Iterator[tuple[str, int]]:
        for found in re.finditer(_TOKEN, self.text):
            word = found.group().strip()
            at = found.end() - len(word)
            if found["wrong"]:
                refuse_at("from_mlir", self.text, at, 1, f"{quote(word)} cannot be part of an affine map")
            yield word, at
        yield "", len(self.text.rstrip())

    def fail(self, why: str, token: int | None = None) -> NoReturn:
        word, at = self.tokens[self.at if token is None else token]
        refuse_at("from_mlir", self.text, at, len(word), why)
