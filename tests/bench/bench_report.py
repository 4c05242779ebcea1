"""Reports in headless Chromium: how large they are, and how soon they answer.

    python tests/bench/bench_report.py [--write]

Seconds of a page count from where the browser begins to load the file: until the graph is drawn, and until an operator
that was chosen by Enter, as soon as the graph has one, is shown. To unfold is the time from the key to the whole graph,
every repetition of its blocks laid out anew. The middle of five tries, each in a fresh context. A report is made in
seconds of processor time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench_sets import RESULTS as SETS_RESULTS
from bench_sets import machine

from tapestry_plan import ShardPlan
from tapestry_plan.draw.layers import LayerNode, layered
from tapestry_sets.draw import canvas
from tests.pages import open_page, start_chromium
from tests.report_models import layers, resnet50, transformer

RESULTS = SETS_RESULTS.with_name("report.md")
TRIES = 5
MODELS: dict[str, Callable[[], ShardPlan]] = {
    "GPT-2, small, 2×2": transformer,
    "ResNet-50, 2×2": resnet50,
    "GPT of 25 layers, operators apart, 2×2": layers,
}
UNFOLD = """async () => {
  const button = document.querySelector("[data-do=fold]"), room = document.querySelector(".tp-graph");
  if (button.hidden) return null;
  const before = room.firstElementChild, begin = performance.now();
  button.click();
  while (room.firstElementChild === before) await new Promise((resolve) => setTimeout(resolve, 5));
  return [(performance.now() - begin) / 1000, Number(room.dataset.nodes)];
}"""


class Measured(NamedTuple):
    """One report: operators of the plan, bytes and seconds."""

    operators: int
    made_seconds: float
    nbytes: int
    shown: int
    drawn_seconds: float
    answered_seconds: float
    unfolded: tuple[int, float] | None


def measure(browser: Any, p: ShardPlan) -> Measured:
    begin = time.process_time()
    report = p.report()
    made = time.process_time() - begin
    drawn, answered, unfolded = [], [], []
    shown = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report.html")
        report.save(path)
        for _ in range(TRIES):
            with open_page(browser, path) as opened:
                page = opened.page
                page.wait_for_selector(".tp-node")
                page.locator(".tp-node").first.focus()
                page.keyboard.press("Enter")
                page.wait_for_selector(".tp-node[aria-pressed=true]")
                answered.append(page.evaluate("performance.now()") / 1000)
                opened.wait()
                drawn.append(float(page.locator("[data-ready]").get_attribute("data-ready")) / 1000)
                shown = int(page.locator(".tp-graph").get_attribute("data-nodes"))
                unfolded.append(page.evaluate(UNFOLD))
                assert not opened.printed, opened.printed
    whole = None
    if unfolded[0] is not None:
        whole = unfolded[0][1], statistics.median(seconds for seconds, _ in unfolded)
    middle = statistics.median(drawn), statistics.median(answered)
    return Measured(len(p.graph.nodes), made, len(report.html.encode()), shown, *middle, whole)


def by_layers(p: ShardPlan) -> tuple[float, float]:
    """Seconds and height, in pixels, of the whole graph in the layers of `Graph.draw`, nodes as large as the page's."""
    graph, box = p.graph, canvas.Drawing(208, 54, ())
    made = {name: node.name for node in graph.nodes.values() for name in node.outputs}
    nodes = []
    for node in graph.order():
        before = (made.get(name) for read in node.inputs for name in graph.source(read).stored)
        nodes.append(LayerNode(node.name, tuple(dict.fromkeys(name for name in before if name)), box))
    begin = time.perf_counter()
    drawn = layered(nodes, "down")
    return time.perf_counter() - begin, drawn.height


def row(name: str, one: Measured) -> str:
    whole = f"{one.unfolded[0]} in {one.unfolded[1]:.2f} s" if one.unfolded else "nothing is folded"
    return (
        f"| {name} | {one.operators} | {one.made_seconds:.2f} s | {one.nbytes:,} | {one.shown} in "
        f"{one.drawn_seconds:.2f} s | {one.answered_seconds:.2f} s | {whole} |"
    )


def table(rows: Sequence[str]) -> list[str]:
    head = "| plan | operators | report made in | bytes | nodes drawn | first operator chosen by | all unfolded |"
    return [head, "|---|---|---|---|---|---|---|", *rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    with start_chromium() as browser:
        rows = [row(name, measure(browser, make())) for name, make in MODELS.items()]
    seconds, height = by_layers(layers())
    text = "\n".join(
        [
            f"# Reports, {date.today()}",
            "",
            f"{machine()}, at a load of {os.getloadavg()[0]:.0f}. Written by `python tests/bench/bench_report.py "
            "--write`.",
            "",
            *(__doc__ or "").split("\n\n", 2)[2].strip().splitlines(),
            "",
            *table(rows),
            "",
            f"The layers of `Graph.draw` would place the 400 operators in {seconds:.2f} s, {height:,} pixels high; but",
            "each block that is unfolded asks for another layout, which elkjs makes in the page.",
        ]
    )
    print(text)
    if arguments.write:
        RESULTS.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
