"""What one plan has otherwise than another: totals, the machine, operators and transfers, as text and as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

from msgspec import Struct

from tapestry_plan.steps import tuning
from tapestry_plan.steps.asking.lookups import tell_cut
from tapestry_plan.steps.layouts.mesh import Mesh
from tapestry_sets.draw import as_html
from tapestry_sets.limits import Public, Units, cut_text, tell_count


class ChangedOperator(Struct, frozen=True):
    """An operator whose parts lie elsewhere in another plan.

    Parameters
    ----------
    node, before, after : str
        How it is sharded in each plan, or what a plan has in its place.
    seconds, nbytes : tuple of (number or None)
        Modeled seconds of its stage, and bytes that its devices receive, in each; None where a plan has no such stage.
    """

    node: str
    before: str
    after: str
    seconds: tuple[float | None, float | None]
    nbytes: tuple[int | None, int | None]


class ChangedTransfer(Struct, frozen=True):
    """What goes from device to device in one plan, and less or more of it in the other: bytes of both."""

    tensor: str
    consumer: str
    before: int
    after: int


class PlanDifference(Struct, frozen=True, dict=True, metaclass=Public):
    """What a plan has otherwise than another one: false where nothing that is listed differs, as text and as tables.

    Parameters
    ----------
    one, other : ShardPlan

    Examples
    --------
    >>> from tapestry_plan import Graph, Mesh, plan
    >>> g = Graph()
    >>> _ = g.output(g.op("matmul", g.input("x", (64, 32)), g.input("w", (32, 64)), name="fc"))
    >>> found = plan(g, Mesh(2)).diff(plan(g, Mesh(2), fix={"fc": {"k": 2}}))
    >>> bool(found), [(one.node, one.before, one.after) for one in found.operators]
    (True, [('fc', 'n:2', 'k:2')])
    """

    one: Any
    other: Any

    @cached_property
    def totals(self) -> tuple[tuple[str, float, float, str], ...]:
        """What differs of seconds and bytes: its name, both numbers and how they are written."""
        one, other = self.one, self.other
        rows: list[tuple[str, float, float, str]] = [
            ("time", one.seconds * 1e6, other.seconds * 1e6, ",.2f us"),
            ("bound", one.bound * 1e6, other.bound * 1e6, ",.2f us"),
            ("moved", one.nbytes_moved, other.nbytes_moved, ",d B"),
            ("placed", sum(one.nbytes_placed), sum(other.nbytes_placed), ",d B"),
            ("spilled", sum(one.nbytes_spilled), sum(other.nbytes_spilled), ",d B"),
            ("peak", max(one.peak_nbytes, default=0), max(other.peak_nbytes, default=0), ",d B"),
        ]
        return tuple(row for row in rows if row[1] != row[2])

    @cached_property
    def settings(self) -> tuple[tuple[str, str, str], ...]:
        """What differs of the machine and the space that was searched."""
        asked = [(f"mesh.{name}", *(getattr(p.mesh, name) for p in (self.one, self.other)))
                 for name in Mesh.__struct_fields__]  # fmt: skip
        rows = (*asked, ("space", self.one.space, self.other.space))
        return tuple((what, str(mine), str(theirs)) for what, mine, theirs in rows if mine != theirs)

    @cached_property
    def operators(self) -> tuple[ChangedOperator, ...]:
        """Operators whose parts lie elsewhere, or that one of both has not."""
        return tuple(self._list_operators())

    @cached_property
    def transfers(self) -> tuple[ChangedTransfer, ...]:
        """Tensors of which more or fewer bytes go to an operator, the largest difference first; of all links together.

        It writes down the steps of all devices of both plans.
        """
        before, after = (
            Counter[tuple[str, str]](p.transfers().nbytes_by("tensor", "consumer")) for p in (self.one, self.other)
        )
        found = [
            ChangedTransfer(tensor, consumer, before[tensor, consumer], after[tensor, consumer])
            for tensor, consumer in dict.fromkeys((*before, *after))
            if before[tensor, consumer] != after[tensor, consumer]
        ]
        return tuple(sorted(found, key=lambda row: -abs(row.after - row.before)))

    def _list_operators(self) -> Iterator[ChangedOperator]:
        one, other = self.one, self.other
        for node in dict.fromkeys((*one.placement, *other.placement)):
            before, after = tell_place(one, node), tell_place(other, node)
            if before == after and one.placement[node] != other.placement[node]:
                after += ", on other devices"
            if before != after:
                stages = [p.stage.get(node) for p in (one, other)]
                seconds = tuple(None if stage is None else stage.seconds for stage in stages)
                nbytes = tuple(None if stage is None else sum(stage.nbytes_received) for stage in stages)
                yield ChangedOperator(node, before, after, seconds, nbytes)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        # Steps of both plans are written down for transfers: they are looked at where nothing else differs.
        return bool(self.totals or self.settings or self.operators or self.transfers)

    def __str__(self) -> str:
        """A line for each total, setting and operator, or else for each transfer; empty where nothing differs."""
        lines = [_total_text(*row) for row in self.totals]
        lines += [f"{what}: {mine} -> {theirs}" for what, mine, theirs in self.settings]
        lines += [f"{row.node}: {row.before} -> {row.after}" for row in self.operators]
        moved = () if lines else self.transfers
        lines += [f"{row.tensor} for {row.consumer}: {row.before:,} B -> {row.after:,} B" for row in moved]
        return "\n".join(lines)

    def __repr__(self) -> str:
        found = {what: (mine, theirs, form) for what, mine, theirs, form in self.totals}
        told = [
            f"{what} {mine:{form.split()[0]}} -> {theirs:{form.split()[0]}} {form.split()[1]}"
            for what, (mine, theirs, form) in found.items()
            if what in ("time", "moved")
        ]
        told += [f"{tell_count(len(self.operators), 'operator')} elsewhere"] if self.operators else []
        told += [f"other {cut_text(', '.join(what for what, _, _ in self.settings), 60)}"] if self.settings else []
        if not told and not found and self.transfers:
            told = [f"{tell_count(len(self.transfers), 'tensor')} moved otherwise"]
        told = told or ([f"other {', '.join(found)}"] if found else ["none"])
        return f"PlanDifference({', '.join(told)})"

    def _repr_html_(self) -> str:
        """Tables of totals, settings, operators and transfers."""
        if not self:
            return "<p>The plans do not differ.</p>"
        totals = [
            (
                what,
                *(f"{number:{form.split()[0]}} {form.split()[1]}" for number in (mine, theirs)),
                _change(mine, theirs),
            )
            for what, mine, theirs, form in self.totals
        ]
        operators = [
            (
                row.node,
                f"{row.before} → {row.after}",
                _told(row.seconds, Units().seconds),
                _told(row.nbytes, Units(exact=True).nbytes),
            )
            for row in self.operators
        ]
        transfers = [
            (row.tensor, row.consumer, f"{row.before:,} → {row.after:,} B", f"{row.after - row.before:+,} B")
            for row in self.transfers
        ]
        tables = (
            (("total", "before", "after", "change"), totals),
            (("asked", "before", "after"), self.settings),
            (("operator", "parts", "time", "receives"), operators),
            (("tensor", "read by", "moved", "change"), transfers),
        )
        return "\n".join(_table(heads, rows) for heads, rows in tables if rows)


def _table(heads: tuple[str, ...], rows: Any) -> str:
    left = len(rows) - tuning.SHOWN_ROWS
    more = f"<p>and {left:,} more</p>" if left > 0 else ""
    style = "overflow-wrap:anywhere;text-align:left"
    return f'<div style="overflow-x:auto">{as_html([heads, *rows[: tuning.SHOWN_ROWS]], style)}</div>{more}'


def _told(pair: tuple[Any, Any], tell: Callable[[Any], str]) -> str:
    return " → ".join("–" if one is None else tell(one) for one in pair)


def _change(mine: float, theirs: float) -> str:
    return f"{(theirs - mine) / mine:+.1%}" if mine else "from nothing"


def _total_text(what: str, mine: float, theirs: float, form: str) -> str:
    number, unit = form.split()
    return f"{what:8}{mine:>16{number}} {unit} -> {theirs:>16{number}} {unit} ({_change(mine, theirs)})"


def tell_place(plan: Any, node: str) -> str:
    """How an operator is sharded; or what the plan has in its place."""
    if node in plan.expanded:
        return f"expanded by {plan.expanded[node]}"
    if node in plan.unified and node not in plan.placement:
        return f"as {plan.unified[node]}"
    if node not in plan.placement:
        return "not in the plan"
    block = plan._lookups.readers.get(node)
    return tell_cut(plan, node) + (f", in one block with {block}" if block else "")
