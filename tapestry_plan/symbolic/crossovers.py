"""Sizes of a model at which another one of some plans takes less time, or moves fewer bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from tapestry_plan.search import bind_to, read_again
from tapestry_plan.steps import ShardPlan
from tapestry_plan.symbolic import tuning
from tapestry_plan.symbolic.transfers import choose_symbol
from tapestry_sets.draw import align, as_html
from tapestry_sets.limits import (
    Public,
    Units,
    as_items,
    check_arguments,
    check_positive,
    escape_controls,
    freeze_dicts,
    quote,
    tell_count,
)


class Bound(Struct, frozen=True):
    """What a plan comes to at one size: as `ShardPlan.seconds` and `nbytes_moved` of the plan that is bound to it."""

    seconds: float
    nbytes_moved: int


class Crossover(Struct, frozen=True):
    """A size from which on another plan is the best.

    Parameters
    ----------
    size : int
    before, after : int or None
        The best plan at the size that was looked at before, and here, by number; None where none can be bound.
    gain : float
        By how much the plan is better here than the one before, as a share of what that comes to; 1 where that cannot
        be bound.
    """

    size: int
    before: int | None
    after: int | None
    gain: float


class Crossovers(Struct, frozen=True, metaclass=Public):
    """What plans of one model come to at some sizes, and where another one is the best.

    Each plan is bound to each size: nothing in between was looked at, nor plans that were not given.

    Parameters
    ----------
    symbol : str
    others : mapping of str to int
        The sizes of the other symbols.
    by : "seconds" or "nbytes_moved"
        What is compared; of equal plans the best one so far stays.
    planned_at : tuple of int
        For each plan the size at which it was planned.
    sizes : tuple of int
        Those that were looked at.
    found : tuple of tuple of (Bound or None)
        By size, what each plan comes to; None where it cannot be bound.
    best : tuple of (int or None)
        By size, the best plan, by number.

    Examples
    --------
    >>> from onnx import parser
    >>> from tapestry_plan import Mesh, crossovers, load_onnx, plan
    >>> text = 'agraph (float[N, 4] x) => (float[4, N] y) { a = Relu(x) b = Transpose(a) y = Exp(b) }'
    >>> model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 21]> {text}')
    >>> g = load_onnx(model, shapes={"N": 8})
    >>> one, two = (plan(g, Mesh(2), fix={"Relu_0": {"i0": k}, "Exp_0": {"i1": k}}) for k in (1, 2))
    >>> found = crossovers([one, two], "N", range(1, 9))
    >>> found.best, found.points[0].size
    ((0, 1, 1, 1, 1, 1, 1, 1), 2)
    """

    symbol: str
    others: Mapping[str, int]
    by: Literal["seconds", "nbytes_moved"]
    planned_at: tuple[int, ...]
    sizes: tuple[int, ...]
    found: tuple[tuple[Bound | None, ...], ...]
    best: tuple[int | None, ...]

    def __post_init__(self) -> None:
        force_setattr(self, "others", freeze_dicts(self.others))

    @property
    def points(self) -> tuple[Crossover, ...]:
        """The sizes from which on another plan is the best, in order.

        Examples
        --------
        >>> Crossovers("N", {}, "seconds", (2,), (2,), ((Bound(1.0, 0),),), (0,)).points
        ()
        """
        return tuple(self._list_points())

    def _list_points(self) -> Iterator[Crossover]:
        for k in range(1, len(self.sizes)):
            before, after = self.best[k - 1], self.best[k]
            if before != after:
                here = self.found[k]
                old = None if before is None else here[before]
                new = None if after is None else here[after]
                gain = 1.0 if old is None or new is None else 1 - _read(new, self.by) / (_read(old, self.by) or 1)
                yield Crossover(self.sizes[k], before, after, gain)

    def to_json(self) -> str:
        """A JSON object of the fields.

        Examples
        --------
        >>> import json
        >>> made = Crossovers("N", {}, "seconds", (2,), (2,), ((Bound(1.0, 0),),), (0,))
        >>> json.loads(made.to_json())["found"]
        [[{'seconds': 1.0, 'nbytes_moved': 0}]]
        """
        return msgspec.json.encode(self).decode()

    def __repr__(self) -> str:
        at = ", ".join(str(point.size) for point in self.points) or "none"
        return (
            f"Crossovers({tell_count(len(self.planned_at), 'plan')} at {tell_count(len(self.sizes), 'size')} of "
            f"{self.symbol}, by {self.by}: {at})"
        )

    def __str__(self) -> str:
        """A table in plain text."""
        return "\n".join([*align(self._list_cells(), numbers=(0, 2, 3, 4)), *self._tell_rest()])

    def _repr_html_(self) -> str:
        table = as_html(self._list_cells(), numbers=(0, 2, 3, 4))
        return table + "".join(f"<p>{line}</p>" for line in self._tell_rest())

    def _list_cells(self) -> list[list[str]]:
        units, rows = Units(), []
        gains = {point.size: "" if point.before is None else f"{point.gain:.1%}" for point in self.points}
        for k, size in enumerate(self.sizes):
            if k and size not in gains:
                continue
            best = self.best[k]
            one = None if best is None else self.found[k][best]
            symbol = escape_controls(self.symbol, "")
            told = "none can be bound" if best is None else f"planned at {symbol}={self.planned_at[best]}"
            costs = ["", ""] if one is None else [units.seconds(one.seconds), units.nbytes(one.nbytes_moved)]
            rows.append([str(size), told, *costs, gains.get(size, "")])
        return [
            [escape_controls(f"from {self.symbol}", ""), "best plan", "seconds", "moved", "better by"],
            *rows[: tuning.SHOWN_ROWS],
        ]

    def _tell_rest(self) -> list[str]:
        fixed = "".join(f", {name}={size}" for name, size in self.others.items())
        first, last = min(self.sizes), max(self.sizes)
        told = (
            f"by {self.by}, of {tell_count(len(self.planned_at), 'plan')} bound at each of "
            f"{tell_count(len(self.sizes), 'size')}, {first} to {last}{fixed}"
        )
        return [escape_controls(told, "")]


def _read(one: Bound, by: str) -> float:
    found: float = getattr(one, by)
    return found


@check_arguments(plans="give plans of one model", sizes="give sizes, as range(1, 51)")
def crossovers(
    plans: Sequence[ShardPlan],
    symbol: str | None = None,
    sizes: Sequence[int] = (),
    *,
    by: Literal["seconds", "nbytes_moved"] = "seconds",
) -> Crossovers:
    """The sizes from which on another one of some plans is the best, each plan bound to every size.

    Parameters
    ----------
    plans : sequence of ShardPlan
        Of one model, as at several sizes: ``[plan(g.bind(batch=n), mesh) for n in (1, 8, 64)]``. Of equal ones the
        first is the best.
    symbol : str, optional
        The one that there is, by default.
    sizes : sequence of int
        Where they are compared, as ``range(1, 51)``; sizes at which a plan cannot be bound are told.
    by : "seconds" or "nbytes_moved"

    Returns
    -------
    Crossovers

    Raises
    ------
    ValueError
        For no plans or sizes, an unknown symbol, plans with other sizes of the other symbols, and plans that can be
        bound at none of the sizes.

    Examples
    --------
    >>> from onnx import parser
    >>> from tapestry_plan import Mesh, crossovers, load_onnx, plan
    >>> text = 'agraph (float[N, 4] x) => (float[4, N] y) { a = Relu(x) b = Transpose(a) y = Exp(b) }'
    >>> model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 21]> {text}')
    >>> g = load_onnx(model, shapes={"N": 8})
    >>> one, two = (plan(g, Mesh(2), fix={"Relu_0": {"i0": k}, "Exp_0": {"i1": k}}) for k in (1, 2))
    >>> crossovers([one, two], "N", range(1, 9))
    Crossovers(2 plans at 8 sizes of N, by seconds: 2)
    """
    if not plans:
        raise ValueError("crossovers: no plan is given; give some of one model, as planned at several sizes")
    name = choose_symbol(plans[0].graph, symbol, "crossovers")
    looked = tuple(
        dict.fromkeys(check_positive(n, "crossovers: sizes") for n in as_items(sizes, "sizes", "of numbers"))
    )
    if not looked:
        raise ValueError(f"crossovers: no size is given; give those of {quote(name)} to look at, as range(1, 51)")
    fixed = [_list_others(one, name) for one in plans]
    for k, one in enumerate(fixed):
        if one != fixed[0]:
            raise ValueError(
                f"crossovers: plan {k} is of {quote(one)}, plan 0 of {quote(fixed[0])}; bind the other symbols alike"
            )
    found: list[tuple[Bound | None, ...]] = []
    refused: dict[int, str] = {}
    for size in sorted(looked):
        try:
            graph = read_again(plans[0], {name: size})
        except ValueError as error:  # the model has no such size, so that no plan has
            refused |= dict.fromkeys(range(len(plans)), str(error))
            found.append((None,) * len(plans))
            continue
        found.append(tuple(_bind(one, graph, refused, k) for k, one in enumerate(plans)))
    for k, why in refused.items():
        if all(each[k] is None for each in found):
            raise ValueError(f"crossovers: plan {k} can be bound at none of the sizes: {why}")
    best = tuple(_list_best(found, by))
    own = tuple(one.graph.sizes[name] for one in plans)
    return Crossovers(name, fixed[0], by, own, tuple(sorted(looked)), tuple(found), best)


def _list_others(plan: ShardPlan, symbol: str) -> dict[str, int]:
    choose_symbol(plan.graph, symbol, "crossovers")
    return {name: size for name, size in plan.graph.sizes.items() if name != symbol}


def _bind(plan: ShardPlan, graph: Any, refused: dict[int, str], number: int) -> Bound | None:
    try:
        made = bind_to(plan, graph)
    except ValueError as error:  # too few points, or too little memory
        refused[number] = str(error)
        return None
    return Bound(made.seconds, made.nbytes_moved)


def _list_best(found: Iterable[Sequence[Bound | None]], by: str) -> Iterator[int | None]:
    last: int | None = None
    for each in found:
        costs = {k: _read(one, by) for k, one in enumerate(each) if one is not None}
        least = min(costs.values(), default=None)
        if least is None:
            last = None
        elif last is None or costs.get(last) != least:
            last = next(k for k, cost in costs.items() if cost == least)
        yield last
