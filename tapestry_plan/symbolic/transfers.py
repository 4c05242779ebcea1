"""Bytes of a plan's transfers as polynomials in one size of its model.

::

    the model read at 8, 9, 10, 13 … ─► extents, offsets and views that are affine in N
    N = base + step·m, for each remainder ─► who gets which cells, as sets of isl for all m
                                         ─► their number, by the symbolic counts of the set engine: a polynomial
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import gcd, lcm
from typing import NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from tapestry_plan.ir import Graph
from tapestry_plan.search import bind_to, read_again, rewrite_again
from tapestry_plan.steps import TRANSFER_COLUMNS, PlannedTransfer, ShardPlan, fill_formulas
from tapestry_plan.symbolic import tuning
from tapestry_plan.symbolic.affine import PARAMETER, Affine, Frame, Samples
from tapestry_plan.symbolic.exchanges import Coincidence, Exchanges, Route
from tapestry_plan.symbolic.polynomials import Coefficients, Polynomials, add, substitute
from tapestry_plan.symbolic.reach import Reach, count_strange, find_reach
from tapestry_sets.draw import align, as_html
from tapestry_sets.interop import FinerClasses, NonAffineSize, count_polynomial
from tapestry_sets.limits import (
    REFUSALS,
    Open,
    Public,
    TooHard,
    ask_one,
    escape_controls,
    freeze_dicts,
    list_names,
    quote,
    tell_count,
)


class SymbolicTransfer(Struct, frozen=True):
    """What goes from one device to another of a tensor, for an operator or a stage, at any size.

    Parameters
    ----------
    source, target : int
        Devices.
    tensor : str
    producer : str
        The operator that makes the tensor; "input" or "constant" of one that is given.
    consumer : str
        The operator that reads the cells; the stage, as "landing t" or "output t", where none does.
    part : int
        Which partial result it is of; -1 of complete values.
    nbytes : Polynomials
        Bytes as polynomials in the size.
    """

    source: int
    target: int
    tensor: str
    producer: str
    consumer: str
    part: int
    nbytes: Polynomials


NAMES = {name: TRANSFER_COLUMNS[name] for name in SymbolicTransfer.__struct_fields__ if name in TRANSFER_COLUMNS}
NUMBERS = [0, 1]
"""Columns of numbers."""


class Refused(Struct, frozen=True):
    """Transfers that have no polynomial, and why."""

    tensor: str
    consumer: str
    why: str


class SymbolicTransfers(Struct, frozen=True, dict=True, metaclass=Public):
    """The transfers of a plan with their bytes as polynomials in one size of its model.

    Each polynomial is counted, not fitted: the cells of a transfer are a set with the size as its parameter, made by
    the rules by which steps are written, and its points are counted for all sizes at once. That is proved of a model
    whose extents, offsets and views are affine in the size. That they are is read, not proved: from the model at
    several sizes near the plan's own, and at far ones, to 4,096 times that (`read`). Where they are otherwise at one
    of those, the last size at which they are as before is found by halving, and polynomials hold up to it (`most`);
    below the plan's own size it is `least`. Of sizes between those that were read, `confirm` tests single ones.

    Parameters
    ----------
    symbol : str
    sizes : mapping of str to int
        Those of the other symbols, which are fixed.
    least : int
        The size from which on the polynomials hold.
    rows : tuple of SymbolicTransfer

    Examples
    --------
    >>> from onnx import parser
    >>> from tapestry_plan import Mesh, load_onnx, plan
    >>> text = 'agraph (float[N, 4] x) => (float[4, N] y) { a = Relu(x) b = Transpose(a) y = Exp(b) }'
    >>> model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 21]> {text}')
    >>> p = plan(load_onnx(model, shapes={"N": 8}), Mesh(2), fix={"Relu_0": {"i0": 2}, "Exp_0": {"i0": 2}})
    >>> found = p.symbolic_transfers("N")
    >>> print(found)
    from  to  tensor  made by  read by  bytes
       1   0  a       Relu_0   Exp_0    4·N for N mod 2 = 0; 4·N - 4 for N mod 2 = 1
       0   1  a       Relu_0   Exp_0    4·N for N mod 2 = 0; 4·N + 4 for N mod 2 = 1
    8·N bytes in all, for N >= 2
    as plans at 1 size move them: 8
    >>> found.nbytes.at(1000), p.bind(N=1000).nbytes_moved
    (8000, 8000)
    """

    symbol: str
    sizes: Mapping[str, int]
    least: int
    rows: tuple[SymbolicTransfer, ...]
    nbytes: Polynomials
    """Of all rows together."""
    refused: tuple[Refused, ...] = ()
    confirmed: tuple[int, ...] = ()
    """Sizes at which a plan was bound, and its steps moved these bytes, row by row."""
    most: int | None = None
    """The size up to which the polynomials hold; None where no end was found."""
    read: tuple[int, ...] = ()
    """Sizes at which the model was read."""
    why: str = ""
    """What is otherwise in the model behind `most`."""

    def __post_init__(self) -> None:
        force_setattr(self, "sizes", freeze_dicts(self.sizes))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[SymbolicTransfer]:
        return iter(self.rows)

    def __getitem__(self, at: int) -> SymbolicTransfer:
        return self.rows[at]

    def confirm(self, plan: ShardPlan, sizes: Iterable[int]) -> SymbolicTransfers:
        """The same polynomials, held against the plan that they are of, bound at more sizes.

        Parameters
        ----------
        plan : ShardPlan
            The one that they were found of.
        sizes : sequence of int

        Raises
        ------
        ValueError
            For a size for which they do not hold, or at which the plan moves other bytes than they say.

        Examples
        --------
        >>> from onnx import parser
        >>> from tapestry_plan import Mesh, load_onnx, plan
        >>> text = 'agraph (float[N, 4] x) => (float[4, N] y) { a = Relu(x) b = Transpose(a) y = Exp(b) }'
        >>> model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 21]> {text}')
        >>> p = plan(load_onnx(model, shapes={"N": 8}), Mesh(2), fix={"Relu_0": {"i0": 2}, "Exp_0": {"i0": 2}})
        >>> p.symbolic_transfers().confirm(p, [4, 6]).confirmed
        (8, 4, 6)
        """
        new = [size for size in sizes if size not in self.confirmed]
        return msgspec.structs.replace(self, confirmed=(*self.confirmed, *_confirm(plan, self, new)))

    def to_json(self) -> str:
        """A JSON object; polynomials by remainder, with their coefficients as text, that of the lowest power first.

        Examples
        --------
        >>> import json
        >>> from onnx import parser
        >>> from tapestry_plan import Mesh, load_onnx, plan
        >>> text = 'agraph (float[N, 4] x) => (float[4, N] y) { a = Relu(x) b = Transpose(a) y = Exp(b) }'
        >>> model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 21]> {text}')
        >>> p = plan(load_onnx(model, shapes={"N": 8}), Mesh(2), fix={"Relu_0": {"i0": 2}, "Exp_0": {"i0": 2}})
        >>> json.loads(p.symbolic_transfers().to_json())["nbytes"]["classes"]
        [['0', '8'], ['0', '8']]
        """
        return msgspec.json.encode(self, enc_hook=str).decode()

    def __repr__(self) -> str:
        return (
            f"SymbolicTransfers({tell_count(len(self), 'row')}, {self.nbytes} B for {self.nbytes.tell_sizes()}"
            f"{f', {len(self.refused)} without' * bool(self.refused)})"
        )

    def __str__(self) -> str:
        """A table in plain text."""
        return "\n".join([*align([[*NAMES.values()], *self._list_cells()], numbers=NUMBERS), *self._tell_rest()])

    def _repr_html_(self) -> str:
        table = as_html([[*NAMES.values()], *self._list_cells()], numbers=NUMBERS)
        return table + "".join(f"<p>{line}</p>" for line in self._tell_rest())

    def _list_cells(self) -> list[list[str]]:
        return [
            [escape_controls(str(getattr(row, name)), "") for name in NAMES] for row in self.rows[: tuning.SHOWN_ROWS]
        ]

    def _tell_rest(self) -> list[str]:
        fixed = "".join(f", {name}={size}" for name, size in self.sizes.items())
        more = len(self) - tuning.SHOWN_ROWS
        total = f"{self.nbytes} bytes in all, for {self.nbytes.tell_sizes()}{fixed}"
        checked = self.confirmed
        told = [
            *([f"and {more:,} more"] if more > 0 else []),
            total,
            *([f"as plans at {tell_count(len(checked), 'size')} move them: {_tell_range(checked)}"] if checked else []),
        ]
        told += [f"{self.symbol} ends there, as {self.why}"] * (self.most is not None)
        told += [f"no polynomial of {one.tensor} for {one.consumer}: {one.why}" for one in self.refused]
        return [escape_controls(line, "") for line in told]


def _tell_range(sizes: Sequence[int]) -> str:
    first, last = min(sizes), max(sizes)
    return str(first) if first == last else f"{first} to {last}"


# ------------------------------------------------------------------------------------------------- how they are found


def find_transfers(plan: ShardPlan, symbol: str | None, confirm: Iterable[int]) -> SymbolicTransfers:
    """The transfers of a plan with their bytes as polynomials; see `ShardPlan.symbolic_transfers`."""
    name = choose_symbol(plan.graph, symbol, "symbolic_transfers")
    if plan.explicit is not None:
        raise ValueError(
            "symbolic_transfers: this is a plan whose steps somebody wrote, which no choices say; ask one without them"
        )
    try:
        found = _find_formulas(plan, name)
    except NonAffineSize as error:
        raise NonAffineSize(f"symbolic_transfers: {error}; bind the plan at the sizes of interest") from None
    reach = found.reach
    if reach.most is not None and found.least > reach.most:
        raise NonAffineSize(
            f"symbolic_transfers: polynomials hold from {name}={found.least} on, and the model is affine in it up to "
            f"{reach.most} ({reach.why}); bind the plan at the sizes of interest"
        )
    nbytes = {route: Polynomials(name, classes, found.least, reach.most) for route, classes in found.rows.items()}
    made = tuple(SymbolicTransfer(**r._asdict(), nbytes=nbytes[r]) for r in nbytes)
    fixed = {other: size for other, size in plan.graph.sizes.items() if other != name}
    total = Polynomials(name, found.total, found.least, reach.most)
    result = SymbolicTransfers(
        name, fixed, found.least, made, total, found.refused, most=reach.most, read=reach.read, why=reach.why
    )
    return result.confirm(plan, (plan.graph.sizes[name], *confirm))


def _find_formulas(plan: ShardPlan, name: str) -> Found:
    """The polynomials of a plan in one symbol, in as many classes as they need."""
    samples, graphs = _read_samples(plan, name)
    period = _find_period(plan, samples, graphs)
    reach = find_reach(plan, name, samples, graphs, _find_least(plan, samples, graphs))
    least = reach.least
    while True:
        if period > tuning.MAX_CLASSES or least > tuning.MAX_LEAST:
            raise TooHard(
                f"symbolic_transfers: bytes are not one polynomial in each of {tuning.MAX_CLASSES} classes of {name}, "
                f"for {name} up to {tuning.MAX_LEAST}; bind the plan at the sizes of interest"
            )
        try:
            return _find_all(plan, samples, graphs, period, least, reach)
        except FinerClasses as error:
            period *= error.many
        except Coincidence:
            least = 2 * least


def choose_symbol(graph: Graph, symbol: str | None, verb: str) -> str:
    """The symbol that is asked for, or the one that there is.

    Raises
    ------
    ValueError
        For an unknown symbol, without one where there are several, and for a graph without a model that has any.
    """
    if not graph.sizes or graph._model is None:
        raise ValueError(
            f"{verb}: the plan's graph was not read from a model with open axes, or the plan was read from a document; "
            "load the model, as load_onnx(model, shapes={'batch': 8}), and plan that graph, or bind the plan to it"
        )
    if symbol is None and len(graph.sizes) > 1:
        raise ValueError(f"{verb}: the model has several symbols; name one: {', '.join(map(quote, graph.sizes))}")
    if symbol is not None and symbol not in graph.sizes:
        raise ValueError(f"{verb}: {quote(symbol)} is not a symbol; {list_names(graph.sizes, symbol, 'symbols')}")
    return next(iter(graph.sizes)) if symbol is None else symbol


def _read_samples(plan: ShardPlan, symbol: str) -> tuple[Samples, list[Graph]]:
    """The plan's graph at several sizes on one side of its own: on that where more of the model is affine."""
    own = plan.graph.sizes[symbol]
    known: dict[int, Graph | None] = {own: plan.graph}
    ways = [[own + more for more in tuning.SAMPLES], [own - fewer for fewer in tuning.SAMPLES]]
    refused = ""
    best: tuple[int, Samples, list[Graph]] | None = None
    for order in (ways[0] + ways[1], ways[1] + ways[0]):
        found = {own: plan.graph} if own > 1 else {}
        for size in order:
            if size < 2 or len(found) > len(tuning.SAMPLES):
                continue
            if size not in known:
                try:
                    known[size] = rewrite_again(plan, read_again(plan, {symbol: size}))
                except ValueError as error:  # what the model has beside may fit some sizes alone, as a table
                    known[size], refused = None, str(error)
            graph = known[size]
            if graph is not None:
                found[size] = graph
        if len(found) < tuning.MIN_SAMPLES:
            continue
        samples, graphs = Samples(tuple(found)), list(found.values())
        strange = count_strange(samples, graphs)
        if best is None or strange < best[0]:
            best = strange, samples, graphs
        if not strange:
            break
    if best is None:
        raise ValueError(f"symbolic_transfers: the model cannot be read at other sizes of {symbol}: {refused}")
    return best[1], best[2]


def _list_extents(plan: ShardPlan, samples: Samples, graphs: Sequence[Graph]) -> Iterator[tuple[Affine, int, bool]]:
    """For each axis that is cut its extent, its parts, and whether they must be equal."""
    for (kind, name), layout in plan.choices.layouts.items():
        operator = kind == "operator"
        shapes = [g.signature(name).index_shape if operator else g.stored[name].shape for g in graphs]
        axes = plan.graph.signature(name).axes if operator else ()
        for k, parts in enumerate(layout.parts):
            if parts > 1:
                extent = samples.fit([shape[k] for shape in shapes], f"axis {k} of {kind} {quote(name)}")
                yield extent, parts, operator and axes[k].parts == "equal"


def _find_period(plan: ShardPlan, samples: Samples, graphs: Sequence[Graph]) -> int:
    """By what the size is divided, so that in each class of remainders parts have affine ends."""
    return lcm(*(parts // gcd(parts, e.slope) for e, parts, _ in _list_extents(plan, samples, graphs) if e.slope))


def _find_least(plan: ShardPlan, samples: Samples, graphs: Sequence[Graph]) -> int:
    """The least size from which on each axis has as many points as parts; 1 is left out, as it may be broadcast."""
    each = [-((e.constant - parts) // e.slope) for e, parts, _ in _list_extents(plan, samples, graphs) if e.slope > 0]
    return max(2, *each) if each else 2


class Found(NamedTuple):
    """The polynomials of all classes."""

    rows: dict[Route, tuple[Coefficients | None, ...]]
    total: tuple[Coefficients | None, ...]
    refused: tuple[Refused, ...]
    least: int
    reach: Reach


def _find_all(
    plan: ShardPlan, samples: Samples, graphs: Sequence[Graph], period: int, least: int, reach: Reach
) -> Found:
    """The polynomials of all classes from a size on, and the size from which on they hold."""
    extents = list(_list_extents(plan, samples, graphs))
    by_class: list[dict[Route, Coefficients] | None] = []
    refused: dict[tuple[str, str], str] = {}
    holds = least
    for remainder in range(period):
        base = least + (remainder - least) % period
        if any(equal and e.at(base) % parts for e, parts, equal in extents):
            by_class.append(None)
            continue
        frame = Frame(base, period)
        exchanges = Exchanges(plan.graph, graphs, samples, plan.mesh, plan.choices, frame)
        exchanges.run()
        counted, first = _count_each(exchanges, frame)
        refused |= exchanges.refused
        by_class.append(counted)
        holds = max(holds, base + period * (first - 1) + 1)
    without = {tensor for tensor, _ in refused}
    routes = dict.fromkeys(r for each in by_class for r in each or () if r.tensor not in without)
    rows = {r: tuple(None if each is None else each.get(r, ()) for each in by_class) for r in routes}
    rows = {r: classes for r, classes in rows.items() if any(classes)}  # some are of sizes before these hold
    total = tuple(
        None if each is None else add(found for route, found in each.items() if route.tensor not in without)
        for each in by_class
    )
    return Found(rows, total, tuple(Refused(*where, why) for where, why in refused.items()), holds, reach)


def _count_each(exchanges: Exchanges, frame: Frame) -> tuple[dict[Route, Coefficients], int]:
    """The bytes of each route as polynomials in the size, and the m from which on all hold."""
    least = 0
    counted: dict[str, tuple[Coefficients, int] | Open] = {}
    found: dict[Route, Coefficients] = {}
    for route, sets in exchanges.found.items():
        cells = []
        for points in sets:
            text = str(points)
            if text not in counted:
                counted[text] = ask_one(REFUSALS, count_polynomial, points, PARAMETER)
            one = counted[text]
            if isinstance(one, Open):
                exchanges.refused[route.tensor, route.consumer] = "the set engine does not count its cells at any size"
                break
            cells.append(one[0])
            least = max(least, one[1])
        itemsize = exchanges.itemsize(route)
        total = substitute(add(cells), frame.base, frame.step)
        found[route] = tuple(factor * itemsize for factor in total)
    return found, least


def _route_of(row: PlannedTransfer | SymbolicTransfer) -> Route:
    return Route(*(getattr(row, name) for name in Route._fields))


def _confirm(plan: ShardPlan, found: SymbolicTransfers, sizes: Iterable[int]) -> Iterator[int]:
    """The sizes at which a plan that is bound moves what the rows say; its own is left out where they say nothing."""
    own = plan.graph.sizes[found.symbol]
    without = {one.tensor for one in found.refused}
    for size in dict.fromkeys(sizes):
        outside = size < found.least or (found.most is not None and size > found.most)
        if size == own and (outside or size % len(found.nbytes.classes) not in found.nbytes.remainders):
            continue
        found.nbytes.at(size)  # refuses a size of which nothing is said
        bound = plan if size == own else bind_to(plan, read_again(plan, {found.symbol: size}), in_memory=False)
        moved: Counter[Route] = Counter()
        for row in bound.transfers():
            if row.tensor not in without:
                moved[_route_of(row)] += row.nbytes
        said = {_route_of(row): row.nbytes.at(size) for row in found.rows}
        wrong = {
            route: (said.get(route, 0), moved[route])
            for route in said.keys() | moved.keys()
            if said.get(route, 0) != moved[route]
        }
        if wrong:
            route, (one, other) = next(iter(wrong.items()))
            raise NonAffineSize(
                f"symbolic_transfers: at {found.symbol}={size} the model is not affine in the size: of {route.tensor} "
                f"for {route.consumer} from device {route.source} to {route.target} the polynomial says {one} bytes, "
                f"the plan that is bound moves {other}; bind the plan at the sizes of interest"
            )
        yield size


fill_formulas(find_transfers)
