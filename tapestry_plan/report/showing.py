"""Plans and runs in notebooks, without script: the summary, the map of bytes and the memory."""

from __future__ import annotations

from tapestry_plan.report.arenas import memory_panel
from tapestry_plan.report.markup import element, escape
from tapestry_plan.report.page import make_report, read_asset, tell_title
from tapestry_plan.report.summary import summary_panel
from tapestry_plan.report.traffic import traffic_panel
from tapestry_plan.steps import ShardPlan, fill_report


def show_plan(plan: ShardPlan) -> str:
    """A plan as markup that needs no script and no other file."""
    return wrap(element("h1", escape(tell_title(plan))), summary_panel(plan), traffic_panel(plan), memory_panel(plan))


def wrap(*inside: str) -> str:
    """Panels with their styles, as one element."""
    style = element("style", read_asset("report.css"))
    return element("div", style, *inside, class_="tp-root")


fill_report(make_report, show_plan)
