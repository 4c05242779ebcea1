"""Plans and runs in notebooks, without script: the summary, the map of bytes and the memory."""

from __future__ import annotations

from collections.abc import Sequence

from tapestry_plan.report.arenas import memory_panel
from tapestry_plan.report.home import write_model
from tapestry_plan.report.lanes import draw_lanes, list_measured
from tapestry_plan.report.markup import UNITS, element, escape, panel, table
from tapestry_plan.report.page import make_report, read_asset, tell_title
from tapestry_plan.report.summary import by_device, summary_panel
from tapestry_plan.report.traffic import draw_links, traffic_panel
from tapestry_plan.steps import MeasuredRun, ShardPlan, fill_report
from tapestry_sets.limits import tell_count


def show_plan(plan: ShardPlan) -> str:
    """A plan as markup that needs no script and no other file."""
    return wrap(element("h1", escape(tell_title(plan))), summary_panel(plan), traffic_panel(plan), memory_panel(plan))


def show_run(run: MeasuredRun, outputs: Sequence[Sequence[str]]) -> str:
    """A run as markup that needs no script and no other file.

    Parameters
    ----------
    run : RunResult
    outputs : sequence of (name, dtype and shape, difference)
        In words.
    """
    size, moved = len(run.peak_nbytes), sum(run.nbytes_by_link.values())
    title = f"{UNITS.seconds(run.seconds)} on {tell_count(size, 'device')}, {UNITS.nbytes(moved)} moved"
    columns = {"received B": run.nbytes_received, "placed B": run.nbytes_placed, "peak B": run.peak_nbytes}
    return wrap(
        element("h1", escape(title)),
        panel("outputs", "Its outputs", table(("output", "cells", "differs by"), outputs)),
        panel("counted", "What it counted", by_device(columns)),
        panel("traffic", "Which bytes went where", draw_links(run.nbytes_by_link, size)),
        panel("lanes", _tell_when(run.clock_error), draw_lanes("measured", list_measured(run), size, run.seconds)),
    )


def _tell_when(clock_error: float) -> str:
    return "When it ran" + (f", by clocks that are off by at most {UNITS.seconds(clock_error)}" if clock_error else "")


def wrap(*inside: str) -> str:
    """Panels with their styles, as one element."""
    style = element("style", read_asset("report.css"))
    return element("div", style, *inside, class_="tp-root tp-still")


fill_report(make_report, show_plan, write_model)
