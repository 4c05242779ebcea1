"""Sizes of a model at which another plan takes less time, or moves fewer bytes: of some plans, and of all others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from tapestry_plan.search import Progress
from tapestry_plan.steps import ShardPlan
from tapestry_plan.symbolic import tuning
from tapestry_plan.symbolic.candidates import Bound, Candidates, MakePlan, check_unchanged, list_known, read_search
from tapestry_plan.symbolic.transfers import choose_symbol
from tapestry_sets.draw import align, as_html
from tapestry_sets.limits import (
    Public,
    Units,
    as_items,
    check_arguments,
    check_positive,
    cut_text,
    escape_controls,
    freeze_dicts,
    quote,
    tell_count,
)


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
    """What plans of one model come to at some sizes, where another one is the best, and how good any other can be.

    Nothing is said of sizes in between.

    Parameters
    ----------
    symbol : str
    others : mapping of str to int
        The sizes of the other symbols.
    by : "seconds" or "nbytes_moved"
        What is compared; of equal plans the best one so far stays.
    plans : tuple of ShardPlan
        Those that were given, and behind them those that were found: each was planned at one of the sizes, where it is
        better than all before it. ``plans[k].bind(batch=n)`` is one at another size.
    sizes : tuple of int
        Those that were looked at.
    found : tuple of tuple of (Bound or None)
        By size, what each plan comes to; None where it cannot be bound, and of a plan that was found also where it was
        not bound, since another one is proved to be the best.
    best : tuple of (int or None)
        By size, the best plan, by number.
    bounds : tuple of (float or None)
        By size the seconds that no plan of the planner's space takes less than, as `ShardPlan.bound`; compared by bytes
        0, since the planner proves nothing of these alone. None where nothing was planned.
    unplanned : mapping of int to str
        Why nothing was planned, by size, where that was to be.

    Examples
    --------
    >>> from onnx import parser
    >>> from tapestry_plan import Mesh, crossovers, load_onnx, plan
    >>> text = 'agraph (float[N, 4] x) => (float[4, N] y) { a = Relu(x) b = Transpose(a) y = Exp(b) }'
    >>> model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 21]> {text}')
    >>> g = load_onnx(model, shapes={"N": 8})
    >>> found = crossovers(plan(g, Mesh(2), fix={"Relu_0": {"i0": 2}}), "N", [2, 3, 8])
    >>> found.best, found.gaps, found.plans[0].bind(N=3).seconds == found.found[1][0].seconds
    ((0, 0, 0), (0.0, 0.0, 0.0), True)
    """

    symbol: str
    others: Mapping[str, int]
    by: Literal["seconds", "nbytes_moved"]
    plans: tuple[ShardPlan, ...]
    sizes: tuple[int, ...]
    found: tuple[tuple[Bound | None, ...], ...]
    best: tuple[int | None, ...]
    bounds: tuple[float | None, ...]
    unplanned: Mapping[int, str] = {}

    def __post_init__(self) -> None:
        force_setattr(self, "others", freeze_dicts(self.others))
        force_setattr(self, "unplanned", freeze_dicts(self.unplanned))

    @property
    def planned_at(self) -> tuple[int, ...]:
        """For each plan the size that it is of itself.

        Examples
        --------
        >>> Crossovers("N", {}, "seconds", (), (2,), ((),), (None,), (None,)).planned_at
        ()
        """
        return tuple(one.graph.sizes[self.symbol] for one in self.plans)

    @property
    def gaps(self) -> tuple[float | None, ...]:
        """By size by how much another plan may be better than the best one, as a share of what that comes to.

        0 is proof that no plan of the planner's space is better; None where nothing was planned, or can be bound.

        Examples
        --------
        >>> Crossovers("N", {}, "seconds", (), (2,), ((Bound(4.0, 0),),), (0,), (3.0,)).gaps
        (0.25,)
        """
        return tuple(self._list_gaps())

    def _list_gaps(self) -> Iterator[float | None]:
        for each, best, bound in zip(self.found, self.best, self.bounds, strict=True):
            one = None if best is None else each[best]
            if one is None or bound is None:
                yield None
                continue
            cost = one.read(self.by)
            # A plan that was bound may be outside of the space, and better than all in it.
            yield max(0.0, (cost - bound) / cost) if cost else 0.0

    @property
    def points(self) -> tuple[Crossover, ...]:
        """The sizes from which on another plan is the best, in order.

        Examples
        --------
        >>> Crossovers("N", {}, "seconds", (), (2,), ((Bound(1.0, 0),),), (0,), (None,)).points
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
                gain = 1.0 if old is None or new is None else 1 - new.read(self.by) / (old.read(self.by) or 1)
                yield Crossover(self.sizes[k], before, after, gain)

    def to_json(self) -> str:
        """A JSON object of the fields and the gaps, of plans `planned_at`.

        Examples
        --------
        >>> import json
        >>> made = Crossovers("N", {}, "seconds", (), (2,), ((Bound(1.0, 0),),), (0,), (1.0,))
        >>> json.loads(made.to_json())["found"]
        [[{'seconds': 1.0, 'nbytes_moved': 0}]]
        """
        names = [name for name in self.__struct_fields__ if name != "plans"]
        fields = {name: getattr(self, name) for name in (*names, "planned_at", "gaps")}
        return msgspec.json.encode(fields).decode()

    def __repr__(self) -> str:
        at = ", ".join(str(point.size) for point in self.points) or "none"
        return (
            f"Crossovers({tell_count(len(self.plans), 'plan')} at {tell_count(len(self.sizes), 'size')} of "
            f"{self.symbol}, by {self.by}: {at})"
        )

    def __str__(self) -> str:
        """A table in plain text."""
        return "\n".join([*align(self._list_cells(), numbers=(0, 2, 3, 4, 5)), *self._tell_rest()])

    def _repr_html_(self) -> str:
        table = as_html(self._list_cells(), numbers=(0, 2, 3, 4, 5))
        return table + "".join(f"<p>{line}</p>" for line in self._tell_rest())

    def _list_cells(self) -> list[list[str]]:
        units, rows = Units(), []
        points = {point.size: point for point in self.points}
        gaps, known = self.gaps, list[float | None]()
        for k in reversed(range(len(self.sizes))):
            known.append(gaps[k])
            size, best = self.sizes[k], self.best[k]
            if k and size not in points:
                continue
            most = None if None in known else max((gap for gap in known if gap is not None), default=None)
            known.clear()
            one = None if best is None else self.found[k][best]
            symbol = escape_controls(self.symbol, "")
            told = "none can be bound" if best is None else f"planned at {symbol}={self.planned_at[best]}"
            costs = ["", ""] if one is None else [units.seconds(one.seconds), units.nbytes(one.nbytes_moved)]
            gain = _tell_share(points[size].gain) if k and points[size].before is not None else ""
            rows.append([str(size), told, *costs, gain, "" if most is None else _tell_share(most)])
        heads = ("best plan", "seconds", "moved", "better by", "gap until next")
        return [[escape_controls(f"from {self.symbol}", ""), *heads], *rows[::-1][: tuning.SHOWN_ROWS]]

    def _tell_rest(self) -> list[str]:
        fixed = "".join(f", {name}={size}" for name, size in self.others.items())
        first, last = min(self.sizes), max(self.sizes)
        told = [
            f"by {self.by}, of {tell_count(len(self.plans), 'plan')} at {tell_count(len(self.sizes), 'size')}, "
            f"{first} to {last}{fixed}"
        ]
        planned = [gap for gap, bound in zip(self.gaps, self.bounds, strict=True) if bound is not None]
        is_searched = planned or self.unplanned
        told.append(self._tell_planned(planned) if is_searched else "no others were planned, which may be better")
        if self.unplanned:
            where, why = cut_text(list_sizes([*self.unplanned]), 60), next(iter(self.unplanned.values()))
            more = f" (of {next(iter(self.unplanned))})" if len(set(self.unplanned.values())) > 1 else ""
            told.append(f"not planned at {where}: {why}{more}")
        return [escape_controls(line, "") for line in told]

    def _tell_planned(self, gaps: Sequence[float | None]) -> str:
        proved = sum(gap == 0 for gap in gaps)
        rest = max((gap for gap in gaps if gap), default=0.0)
        return (
            f"planned at {len(gaps)} of them: no plan of the planner's space is better at {proved}"
            f"{f', at the others by at most {_tell_share(rest)}' if rest else ''}"
        )


def _tell_share(share: float) -> str:
    """A share in words, nothing alone of which is 0."""
    return "0" if share == 0 else "under 0.01%" if share < 5e-5 else f"{share:.2%}"


def list_sizes(sizes: Sequence[int]) -> str:
    """Ascending sizes in words, those that follow each other by their ends.

    Examples
    --------
    >>> list_sizes([1, 2, 3, 8, 10, 11])
    '1 to 3, 8, 10, 11'
    """
    runs = list[list[int]]()
    for size in sizes:
        if runs and size == runs[-1][-1] + 1:
            runs[-1].append(size)
        else:
            runs.append([size])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


@check_arguments(
    plans="give a plan, or several of one model",
    sizes="give sizes, as range(1, 51)",
    search="give True, False, or what makes a plan of a graph, as lambda g: plan(g, mesh)",
    progress="it is called with what is done, all that there is to do, and words",
)
def crossovers(
    plans: ShardPlan | Sequence[ShardPlan],
    symbol: str | None = None,
    sizes: Sequence[int] = (),
    *,
    by: Literal["seconds", "nbytes_moved"] = "seconds",
    search: bool | MakePlan = True,
    progress: Progress | None = None,
) -> Crossovers:
    """The sizes from which on another plan is the best: a plan is made at each size, and bound to others.

    The plan that the planner makes at a size, and its bound, say how good any plan can be there. Where it has the
    choices of a plan that is known, or one that is known is as good, that one is the best still; where it is better
    than all, it is one more candidate, for the other sizes too. A candidate is bound to a size where it may be the
    best; where a gap is left, all are: so one of another size can be better than the one that is planned there.

    Parameters
    ----------
    plans : ShardPlan or sequence of ShardPlan
        One, or several of one model, as at several sizes. Of equal ones the first is the best.
    symbol : str, optional
        The one that there is, by default.
    sizes : sequence of int
        Where they are compared, as ``range(1, 51)``; sizes at which a plan cannot be bound, or made, are told.
    by : "seconds" or "nbytes_moved"
        The planner looks for few seconds in any case: by bytes, `Crossovers.bounds` are 0.
    search : bool or callable
        Whether plans are made at each size, as the first plan was asked for: on its mesh, with its memory and all
        options, as `ShardPlan.asked` has them, a time limit for each; where it spills they may spill. A callable makes
        the plan of the graph that it is called with. With False the plans given are compared, each bound to every size.
    progress : callable, optional
        ``progress(done, total, words)``; each size counts twice.

    Returns
    -------
    Crossovers

    Raises
    ------
    ValueError
        For no plans or sizes, an unknown symbol, plans with other sizes of the other symbols, of graphs that were
        changed after they were loaded, or whose steps somebody wrote; plans that can be bound at none of the sizes
        where no other one is found; and to search where it is not known what was asked for.
    TypeError
        Where `search` makes no plan of its graph.

    Examples
    --------
    >>> from onnx import parser
    >>> from tapestry_plan import Mesh, crossovers, load_onnx, plan
    >>> text = 'agraph (float[N, 4] x) => (float[4, N] y) { a = Relu(x) b = Transpose(a) y = Exp(b) }'
    >>> model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 21]> {text}')
    >>> g = load_onnx(model, shapes={"N": 8})
    >>> one, two = (plan(g, Mesh(2), fix={"Relu_0": {"i0": k}, "Exp_0": {"i1": k}}) for k in (1, 2))
    >>> crossovers([one, two], "N", range(1, 9), search=False)
    Crossovers(2 plans at 8 sizes of N, by seconds: 2)
    """
    given = [plans] if isinstance(plans, ShardPlan) else list(plans)
    if not given:
        raise ValueError("crossovers: no plan is given; give one, or some of one model as planned at several sizes")
    name = choose_symbol(given[0].graph, symbol, "crossovers")
    looked = sorted({check_positive(n, "crossovers: sizes") for n in as_items(sizes, "sizes", "of numbers")})
    if not looked:
        raise ValueError(f"crossovers: no size is given; give those of {quote(name)} to look at, as range(1, 51)")
    fixed = [_list_others(one, name) for one in given]
    for k, one in enumerate(fixed):
        if one != fixed[0]:
            raise ValueError(
                f"crossovers: plan {k} is of {quote(one)}, plan 0 of {quote(fixed[0])}; bind the other symbols alike"
            )
    check_unchanged(given)
    known = list_known(given, name) if search is True else {}
    make = read_search(given[0]) if search is True else search or None
    among = Candidates(given, name, by, make, known)
    found, best = among.compare(looked, progress)
    for k, why in among.why.items():
        alone = make is None or all(one is None for one in best)
        if alone and all(at.bounds.get(k) is None for at in found):
            raise ValueError(f"crossovers: plan {k} can be bound at none of the sizes: {why}")
    return Crossovers(
        symbol=name,
        others=fixed[0],
        by=by,
        plans=tuple(among.plans),
        sizes=tuple(looked),
        found=tuple(tuple(at.bounds.get(k) for k in range(len(among.plans))) for at in found),
        best=tuple(best),
        bounds=tuple(at.least for at in found),
        unplanned={at.size: at.refused for at in found if at.refused and make is not None},
    )


def _list_others(plan: ShardPlan, symbol: str) -> dict[str, int]:
    choose_symbol(plan.graph, symbol, "crossovers")
    return {name: size for name, size in plan.graph.sizes.items() if name != symbol}
