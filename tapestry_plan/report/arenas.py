"""What each device's arena holds step by step, and which buffers where that is the most."""

from __future__ import annotations

from collections.abc import Sequence

from tapestry_plan.report.markup import OWN_KEYS, UNITS, element, escape, panel, table, tell_nbytes
from tapestry_plan.report.tuning import CURVE, LISTED_BUFFERS, POINTS, SHOWN_CURVES
from tapestry_plan.steps import MemoryUse, ShardPlan
from tapestry_sets.draw import canvas
from tapestry_sets.limits import cut_text

HEADS = ("bytes", "tensor", "what", "steps")


def memory_panel(plan: ShardPlan) -> str:
    """A curve for each device, which opens what lies there at the peak."""
    shown = plan.memory[:SHOWN_CURVES]
    most = max((use.peak_nbytes for use in plan.memory), default=0)
    if not most:
        return panel("memory", "Memory over steps", element("p", "No device holds anything.", class_="tp-note"))
    first = next(use.device for use in plan.memory if use.peak_nbytes == most)
    notes = [f"Steps 0 to {len(plan.steps) - 1:,} to the right; all curves are up to {tell_nbytes(most)}."]
    if len(plan.memory) > len(shown):
        notes.append(f"{len(plan.memory) - len(shown):,} more devices are not drawn; the most is held on {first}.")
    each = (_device(use, most, len(plan.steps), is_open=use.device == first) for use in shown)
    return panel("memory", "Memory over steps", *(element("p", escape(n), class_="tp-note") for n in notes), *each)


def _device(use: MemoryUse, most: int, steps: int, is_open: bool) -> str:
    if use.peak_step < 0:
        said = element("p", escape(f"device {use.device}: nothing lies there at any step"), class_="tp-note")
        return element("div", said, class_="tp-device", data_device=use.device, data_peak=0)
    said = (
        f"device {use.device}: at most {UNITS.nbytes(use.peak_nbytes)}, {use.peak_nbytes:,} B, at step {use.peak_step}"
    )
    gap = use.arena_nbytes - use.peak_nbytes
    more = f"; its arena is {gap:,} B larger" if gap else ""
    head = element("summary", element("span", escape(said + more)), draw_curve(use, most, steps), **OWN_KEYS)
    rows = [
        (f"{one.nbytes:,}", cut_text(one.buffer.tensor, 60), one.what, f"{one.first} to {one.last}")
        for one in use.at_peak[:LISTED_BUFFERS]
    ]
    left = use.at_peak[LISTED_BUFFERS:]
    rest = f"and {len(left)} more of {sum(one.nbytes for one in left):,} B"
    return element(
        "details",
        head,
        element("p", f"What lies there at step {use.peak_step}:", class_="tp-note"),
        table(HEADS, rows, [0]),
        element("p", rest, class_="tp-note") if left else "",
        class_="tp-device",
        data_device=use.device,
        data_peak=use.peak_nbytes,
        open="open" if is_open else None,
    )


def list_points(held: Sequence[tuple[int, int]], steps: int) -> list[tuple[int, int]]:
    """The points of a curve: each step that changes it, or the most that is held in each of many ranges of steps.

    Examples
    --------
    >>> list_points([(2, 64), (5, 0)], 9)
    [(2, 64), (5, 0)]
    """
    if len(held) <= POINTS:
        return list(held)
    each = -(-steps // POINTS)
    most: dict[int, int] = {}
    before = 0
    at = 0
    for begin in range(0, steps, each):
        most[begin] = before
        while at < len(held) and held[at][0] < begin + each:
            before = held[at][1]
            most[begin] = max(most[begin], before)
            at += 1
    return list(most.items())


def draw_curve(use: MemoryUse, most: int, steps: int) -> str:
    """A curve of steps; what is held behind a step stays until the next one."""
    (wide, tall), end = CURVE, max(1, steps)
    d = [f"M0 {tall}"]
    for step, nbytes in list_points(use.held, steps):
        d.append(f"H{step * wide / end:.4g}V{tall - tall * nbytes / most:.4g}")
    d.append(f"H{wide}V{tall}z")
    held = use.held
    told = (
        f"from {held[0][1]:,} B at step {held[0][0]:,} to {use.peak_nbytes:,} B at step {use.peak_step:,} and "
        f"{held[-1][1]:,} B at step {held[-1][0]:,}, in {len(held):,} changes"
        if held
        else "nothing is held"
    )
    title = f"bytes that device {use.device} holds, step by step; at most {use.peak_nbytes:,} at step {use.peak_step}"
    at = use.peak_step * wide / end
    mark = f'<path class="tp-peak" d="M{at:.4g} 0V{tall}"/>'
    return (
        f'<svg class="tp-curve" role="img" viewBox="0 0 {wide} {tall}" preserveAspectRatio="none">'
        f'{"".join(canvas.describe(title, told))}<path class="tp-area" d="{"".join(d)}"/>{mark}</svg>'
    )
