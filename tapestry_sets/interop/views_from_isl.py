"""Views from isl's maps: of each memory a map from the view's indices to its cells, as `to_isl` gives them.

Memory of numbers gives a view of pieces, one for each product of indices on which one function holds. Memory of
symbolic sizes gives a symbolic view: parameters are its symbols, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

from tapestry_sets.interop import symbolic_expressions as sizes
from tapestry_sets.interop.symbolic import SymbolicMemory, SymbolicView, coordinates_of, read_affine_view
from tapestry_sets.interop.symbolic_expressions import Expr, NonAffineSize, load_sympy
from tapestry_sets.limits import cut_text, quote
from tapestry_sets.regions import AffineMap, Box
from tapestry_sets.solvers import isl
from tapestry_sets.views import Allocation, Assembled, Guard, IndexMap, Piece, View

MakePieces = Callable[[Any, Any], Iterator[Piece]]
"""The pieces of one function of isl on its domain."""
MakeGuards = Callable[[Any, Box], Iterator[Guard]]
"""The products of indices that make up a set of isl in a box."""


def read_maps(maps: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return isl's map for each memory, as islpy.Map.

    Raises
    ------
    TypeError, ValueError
        If a key is not memory, a value not a map, or the maps are not of one rank into memories of theirs.
    """
    if not maps:
        raise ValueError("from_isl: a mapping of memory to isl's maps is empty; give the map of each allocation")
    kinds = {isinstance(home, SymbolicMemory) for home in maps}
    wrong = [home for home in maps if not isinstance(home, (Allocation, SymbolicMemory))]
    if wrong or len(kinds) > 1:
        raise TypeError(
            f"from_isl: keys of a mapping must be allocations, or all memories of symbolic views (SymbolicView.base), "
            f"not {quote(wrong[0] if wrong else list(maps))}"
        )
    read = {home: isl.as_set_or_map(x, symbolic=kinds == {True}) for home, x in maps.items()}
    for home, (x, is_map) in read.items():
        if not is_map:
            raise TypeError(f"from_isl: {cut_text(str(x))}, given for {quote(home.name or home.shape)}, is not a map")
    found = {home: m for home, (m, _) in read.items()}
    ranks = {isl.ranks_of(m)[0] for m in found.values()}
    for home, m in found.items():
        if isl.ranks_of(m)[1] != len(home.shape) or len(ranks) > 1:
            raise ValueError(
                f"from_isl: {cut_text(str(m))} maps {isl.ranks_of(m)[0]} to {isl.ranks_of(m)[1]} coordinates, where "
                f"views have one rank, and {quote(home.name or home.shape)} has {len(home.shape)} axes"
            )
        if not m.is_single_valued():
            raise ValueError(f"from_isl: {cut_text(str(m))} takes an index to several cells; a view reads one")
    return found


def parts_of_view(
    maps: Mapping[Allocation, Any], shape: tuple[int, ...] | None, pieces: MakePieces, guards: MakeGuards
) -> tuple[tuple[int, ...], tuple[Piece, ...]]:
    """Return the shape and the pieces of a view that reads what maps say; the constant 0 where none says anything."""
    domains = [m.domain() for m in maps.values()]
    read = domains[0]
    for domain in domains[1:]:
        if not read.is_disjoint(domain):
            raise ValueError("from_isl: two maps of a mapping are given for one index; a view reads one cell at each")
        read = read.union(domain)
    for home, m in maps.items():
        if not m.range().is_subset(isl.box_set((0,) * len(home.shape), home.shape)):
            raise ValueError(f"from_isl: {cut_text(str(m))} reads outside {quote(home.name)} of {quote(home.shape)}")
    rank = isl.ranks_of(next(iter(maps.values())))[0]
    if not isl.is_bounded(read):
        raise ValueError(f"from_isl: {cut_text(str(read))} is not bounded; give within= the view's shape")
    bounds = isl.bounds_of(read)
    if bounds is not None and min(bounds[0], default=0) < 0:
        raise ValueError(f"from_isl: {cut_text(str(read))} has indices below 0, which no view has")
    if shape is None:
        shape = (0,) * rank if bounds is None else tuple(bounds[1])
    parts = [
        Piece(k, piece.guards, piece.map)
        for k, m in enumerate(maps.values())
        for domain, function in isl.function_pieces(m)
        for piece in pieces(domain, function)
    ]
    box = Box.of(shape)
    rest = isl.box_set((0,) * rank, shape).subtract(read)
    nothing = IndexMap((AffineMap((), (), rank),))
    parts += [Piece(-1, (guard,), nothing, 0) for guard in (guards(rest, box) if prod(shape) else ())]
    return shape, tuple(parts)


def view_of_parts(shape: tuple[int, ...], parts: tuple[Piece, ...], homes: Sequence[Allocation]) -> View:
    """Return the view of some pieces, as short a chain as is found."""
    first, *others = homes
    if 0 in shape:
        return first.reshape(first.size)[:0].reshape(shape)
    return first.apply(Assembled(shape, parts, tuple([home.shape for home in homes])), *others).simplify()


def symbolic_view_of(memory: SymbolicMemory, m: Any) -> SymbolicView:
    """Return the symbolic view that reads what a map with parameters says, one affine function of each index.

    Raises
    ------
    NonAffineSize
        If the map is several functions, or indices are not all of a box of which the extents are expressions.
    """
    known = {s.name: s for s in sizes.find_symbols(memory.shape)}
    symbols = [known.get(name) or _symbol(name, m) for name in isl.parameters_of(m)]
    homes = coordinates_of(memory)
    sums = [" + ".join([f"{w}*y{axis}" for axis, w in home.items()]) for home in homes]
    place = ", ".join([f"y{k}" for k in range(len(memory.shape))])
    joined = m.apply_range(isl.read_map(f"{{ [{place}] -> [{', '.join(sums)}] }}"))
    domain, functions = m.domain(), isl.function_pieces(joined)
    extents = tuple([_extent(domain, axis, symbols) for axis in range(isl.ranks_of(m)[0])])
    place = ", ".join([f"x{k}" for k in range(len(extents))])
    bounds = [sizes.write_context(symbols), *[f"0 <= x{k} < {sizes.write_expr(n)}" for k, n in enumerate(extents)]]
    box = isl.read_set(f"{sizes.write_parameters(symbols)} -> {{ [{place}] : {' and '.join(bounds)} }}")
    box = isl.name_parameters(box, [s.name for s in symbols])
    if not box.is_equal(domain) or len(functions) > 1:
        raise NonAffineSize(
            f"from_isl: {cut_text(str(m))} is not one function of all indices of a box; symbolic views have no guards"
        )
    if not functions:  # no index for any values
        rows = [((0,) * len(extents), load_sympy().Integer(0)) for _ in homes]
    else:
        each = isl.rows_with_parameters(functions[0][1])
        rows = [_split_row(row, floors, symbols, m) for row, floors in each]
    return read_affine_view(memory, extents, rows)


def _symbol(name: str, m: Any) -> Expr:
    """A symbol for a parameter that the memory does not have, of the sign that the map asks for."""
    values = m.params()
    low = next((low for low in (1, 0) if isl.is_at_least(values, name, low)), None)
    return load_sympy().Symbol(name, integer=True, positive=low == 1 or None, nonnegative=low is not None or None)


def _extent(domain: Any, axis: int, symbols: Sequence[Expr]) -> Expr:
    """One more than the last index on an axis, 0 where there is none."""
    last = isl.last_on_axis(domain, axis)
    if len(last) > 1:
        raise NonAffineSize(f"from_isl: axis {axis} of {cut_text(str(domain))} ends at several expressions")
    sympy = load_sympy()
    if not last:
        return sympy.Integer(0)
    ((row, floors),) = last
    return sizes.choose_larger(sympy.expand(_write(row, floors, symbols) + 1), sympy.Integer(0))


def _write(row: isl.Row, floors: Sequence[isl.Row], symbols: Sequence[Expr]) -> Expr:
    """An expression of the parameters, with floors of such."""
    sympy = load_sympy()
    values: list[Expr] = []
    for d in floors:
        top = sum((c * s for c, s in zip(d.axes, symbols, strict=False)), sympy.Integer(d.constant))
        top += sum((c * v for c, v in zip(d.divs, values, strict=False)), sympy.Integer(0))
        values.append(sympy.floor(top / sympy.Integer(d.divisor)))
    total = sum((c * s for c, s in zip(row.axes, symbols, strict=False)), sympy.Integer(row.constant))
    total += sum((c * v for c, v in zip(row.divs, values, strict=False)), sympy.Integer(0))
    return sympy.expand(total / sympy.Integer(row.divisor))


def _split_row(
    row: isl.Row, floors: Sequence[isl.Row], symbols: Sequence[Expr], m: Any
) -> tuple[tuple[int, ...], Expr]:
    """The coefficients of the indices, and what is left, of the parameters alone."""
    many = len(symbols)
    if row.divisor > 1 or any(any(d.axes[many:]) for d in floors):
        raise NonAffineSize(f"from_isl: {cut_text(str(m))} takes floors of an index; symbolic views have none")
    return row.axes[many:], _write(row, floors, symbols)
