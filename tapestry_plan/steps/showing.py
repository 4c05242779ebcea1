"""The hooks through which a plan shows itself, becomes a model, and is compared: what stands above fills them in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol


class DeviceCounts(Protocol):
    """What plans predict, and runs count, in the fields of the same names."""

    @property
    def nbytes_by_link(self) -> Mapping[tuple[int, int], int]: ...
    @property
    def nbytes_received(self) -> tuple[int, ...]: ...
    @property
    def nbytes_placed(self) -> tuple[int, ...]: ...
    @property
    def peak_nbytes(self) -> tuple[int, ...]: ...


class MeasuredRun(DeviceCounts, Protocol):
    """What a report takes of a run: a `tapestry_exec.RunResult` has all of it."""

    @property
    def seconds(self) -> float: ...
    @property
    def timeline(self) -> Sequence[Any]: ...
    @property
    def clock_error(self) -> float: ...


MakeReport = Callable[..., Any]
"""``(plan, run) -> Report``."""
ShowPlan = Callable[..., str]
"""``(plan) -> HTML``."""
WriteModel = Callable[..., Any]
"""``(plan) -> onnx.ModelProto``."""

Compare = Callable[..., Callable[[str], Any]]
"""``(graph, mesh, choices, space) -> (operator) -> its alternatives``."""

Bind = Callable[..., Any]
"""``(plan, graph or sizes, more sizes) -> ShardPlan``."""
FindFormulas = Callable[..., Any]
"""``(plan, symbol, sizes) -> SymbolicTransfers``."""

make_report: MakeReport
show_plan: ShowPlan
write_model: WriteModel
Weigh = Callable[..., Sequence[Any]]
"""``(plan, operator, some of its alternatives) -> what each takes of memory``."""

compare_choices: Compare
bind_plan: Bind
find_transfers: FindFormulas
weigh_choices: Weigh


def fill_report(make: MakeReport, show: ShowPlan, write: WriteModel) -> None:
    """Let plans show themselves, and be written, by these functions; `report` calls it once."""
    global make_report, show_plan, write_model
    make_report, show_plan, write_model = make, show, write


def fill_comparison(compare: Compare) -> None:
    """Let plans be compared with other shardings of their operators by this function; `search` calls it once."""
    global compare_choices
    compare_choices = compare


def fill_binding(bind: Bind) -> None:
    """Let plans be bound to other sizes by this function; `search` calls it once."""
    global bind_plan
    bind_plan = bind


def fill_formulas(find: FindFormulas) -> None:
    """Let plans say their transfers at any size by this function; `symbolic` calls it once."""
    global find_transfers
    find_transfers = find


def fill_weighing(weigh: Weigh) -> None:
    """Let alternatives be weighed against limits of memory by this function; `search` calls it once."""
    global weigh_choices
    weigh_choices = weigh
