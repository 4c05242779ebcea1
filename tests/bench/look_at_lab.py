"""JupyterLab for real: a plan, its explorer and that of two views, in light and dark, in wide and narrow windows.

    pip install '.[notebook]' playwright
    python tests/bench/look_at_lab.py [--write] [--keep FOLDER]

A notebook runs in a JupyterLab of its own, which headless Chromium opens. Each answer is looked at where it stands: how
much it shows, what of it scrolls sideways (in a frame the page in it), the least contrast of its words, what is said
after a slider was moved by a key, and how many errors the browser's console has. `--keep` keeps a screenshot of each.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench_sets import RESULTS as SETS_RESULTS
from bench_sets import machine

from tests.pages import CONTRASTS, PATIENCE, start_chromium

RESULTS = SETS_RESULTS.with_name("lab.md")
WIDTHS = (1600, 400)
TALL = 2600
"""Pixels: an answer is whole in its screenshot."""
THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
CELLS = {
    "ShardPlan": "p",
    "its report": "p.report()",
    "PlanExplorer": "PlanExplorer(g, Mesh((2, 2)))",
    "OverlapExplorer": "OverlapExplorer(A.reshape(3, 3, 3)[:2, :2, :2], A[2::5])",
    "a Picture": "show_views(A.reshape(3, 3, 3)[:2, :2, :2], A[2::5])",
    "an Alternative": "p.explain('matmul').alternatives[1]",
}
FIRST = """\
from tapestry_plan import Graph, Mesh, OverlapExplorer, PlanExplorer, ops, plan
from tapestry_sets import allocate, show_views

g = Graph("perceptron")
h = ops.relu(g.input("x", (64, 128)) @ g.input("w1", (128, 256)))
g.output(h @ g.input("w2", (256, 32)), "y")
p = plan(g, Mesh((2, 2)))
A = allocate((27,), name="A")"""
CONTRASTS_IN = CONTRASTS.replace("() => {", "(area) => {", 1).replace('document.querySelector(".tp-root")', "area")
SCROLLS = """(area) => {
  const found = [];
  for (const one of [area, ...area.querySelectorAll("*")]) {
    const style = getComputedStyle(one);
    const scrolls = ["auto", "scroll"].includes(style.overflowX) && one.scrollWidth > one.clientWidth + 1;
    if (scrolls && !one.closest(".tp-graph, pre")) found.push(`${one.tagName}.${one.className} ${one.scrollWidth}`);
  }
  return found;
}"""


def notebook() -> dict[str, Any]:
    """The notebook, not run."""
    cells = [
        {"cell_type": "code", "id": f"c{k}", "source": source, "metadata": {}, "outputs": [], "execution_count": None}
        for k, source in enumerate([FIRST, *CELLS.values()])
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}


@contextmanager
def start_lab(folder: Path) -> Iterator[str]:
    """A JupyterLab that serves a folder on a port of its own; its address."""
    settings = {f"JUPYTER_{name}_DIR": str(folder / name.lower()) for name in ("CONFIG", "DATA", "RUNTIME")}
    settings |= {f"JUPYTERLAB_{name}_DIR": str(folder / name.lower()) for name in ("SETTINGS", "WORKSPACES")}
    options = ["--no-browser", "--ServerApp.port=0", "--IdentityProvider.token=", f"--ServerApp.root_dir={folder}"]
    if hasattr(os, "getuid") and os.getuid() == 0:
        options.append("--allow-root")
    log = folder / "lab.log"
    command = [sys.executable, "-m", "jupyterlab", *options, "--LabApp.news_url=", "--LabApp.check_for_updates_class="
               "jupyterlab.NeverCheckForUpdate"]  # fmt: skip
    with log.open("w") as file:
        server = subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, **settings}, cwd=folder)
    try:
        for _ in range(240):
            time.sleep(0.5)
            told = re.search(r"http://(?:localhost|127\.0\.0\.1):(\d+)/lab", log.read_text())
            if told:
                address = f"http://127.0.0.1:{told[1]}"
                urllib.request.urlopen(f"{address}/api/status", timeout=30).read()
                break
            if server.poll() is not None:
                raise SystemExit(f"JupyterLab ended: {log.read_text()[-2000:]}")
        else:
            raise SystemExit("JupyterLab did not begin within two minutes")
        yield address
    finally:
        server.terminate()
        server.wait(timeout=30)


def set_theme(folder: Path, theme: str) -> None:
    """Choose JupyterLab's theme in its settings, and that it asks nobody for news."""
    place = folder / "settings" / "@jupyterlab" / "apputils-extension"
    place.mkdir(parents=True, exist_ok=True)
    for name, chosen in (("themes", {"theme": THEMES[theme]}), ("notification", {"fetchNews": "false"})):
        place.joinpath(f"{name}.jupyterlab-settings").write_text(json.dumps(chosen))


def look(browser: Any, address: str, folder: Path, theme: str, width: int, keep: Path | None) -> list[list[str]]:
    """Rows of what was found in one window."""
    set_theme(folder, theme)
    context = browser.new_context(viewport={"width": width, "height": TALL}, color_scheme=theme)
    context.set_default_timeout(PATIENCE)
    page, printed = context.new_page(), list[str]()
    page.on("console", lambda message: printed.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: printed.append(str(error)))
    rows = []
    try:
        page.goto(f"{address}/doc/tree/look.ipynb?reset")
        page.wait_for_selector(".jp-Notebook .jp-Cell")
        page.wait_for_function("document.querySelector('.jp-Notebook-ExecutionIndicator')?.dataset.status === 'idle'")
        page.click(".jp-Notebook .jp-Cell >> nth=0")
        page.keyboard.press("Escape")
        page.click('text="Run"')
        page.click("text=Run All Cells")
        cells = page.locator(".jp-Notebook .jp-CodeCell")
        for k, kind in enumerate(CELLS, 1):
            cell = cells.nth(k)
            cell.scroll_into_view_if_needed()
            area = cell.locator(".jp-OutputArea-output, .jp-OutputArea-child .jp-Widget").first
            area.wait_for()
            if "Explorer" in kind:
                cell.locator("input[type=range]").first.wait_for()
            elif kind != "a Picture":
                page.wait_for_timeout(1500)
            rows.append([kind, theme, str(width), *look_at(page, cell, kind)])
            if kind == "OverlapExplorer":
                rows.append(["its slider", theme, str(width), move_slider(page, cell), "", ""])
            if keep is not None:
                cell.screenshot(path=str(keep / f"{kind.replace(' ', '_')}_{theme}_{width}.png"))
        own = [words for words in printed if "tapestry" in words or "tp-" in words]
        rows.append(["(console)", theme, str(width), f"{len(printed)} errors, {len(own)} of ours", "", ""])
        if keep is not None and printed:
            (keep / f"console_{theme}_{width}.txt").write_text("\n".join(printed))
    finally:
        context.close()
    return rows


def look_at(page: Any, cell: Any, kind: str) -> list[str]:
    """Whether an answer is there, what of it scrolls sideways, and the least contrast."""
    frame = cell.locator("iframe")
    where = cell.locator(".jp-OutputArea").first.element_handle()
    inside = frame.first.element_handle().content_frame() if frame.count() else None
    wide = where.evaluate(SCROLLS)
    if inside is not None:
        wide += inside.query_selector("html").evaluate(SCROLLS)
    words = where.inner_text() if inside is None else inside.inner_text("body")
    said = f"{len(words):,} characters" if words.strip() else f"{len(where.query_selector_all('svg'))} pictures"
    if where.query_selector(".jp-RenderedText[data-mime-type='application/vnd.jupyter.stderr']"):
        said = "an error"
    here = inside.query_selector("html") if inside is not None else where
    found = here.evaluate(CONTRASTS_IN) if here.query_selector(".tp-root") else []
    found = [one for one in found if kind != "OverlapExplorer" or not one[0].startswith("text")]  # the picture's own
    least = f"{min(ratio for _, _, ratio in found):.1f}" if found else ""
    return [said, ", ".join(wide) or "no", least]


def move_slider(page: Any, cell: Any) -> str:
    """What an explorer says after its last slider was moved by a key."""
    slider = cell.locator("input[type=range]").last
    before = cell.inner_text()
    slider.focus()
    page.keyboard.press("ArrowRight")
    for _ in range(100):
        page.wait_for_timeout(100)
        told = re.search(r"Overlap\([^\n]*", cell.locator(".jp-OutputArea").first.inner_text())
        if told and told[0] not in before:
            return f"`{told[0]}`"
    return "nothing changed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--keep", type=Path, help="a folder for screenshots")
    given = parser.parse_args()
    if given.keep is not None:
        given.keep.mkdir(parents=True, exist_ok=True)
    rows = []
    with tempfile.TemporaryDirectory() as name, start_chromium() as browser:
        folder = Path(name)
        folder.joinpath("look.ipynb").write_text(json.dumps(notebook()))
        with start_lab(folder) as address:
            for theme in THEMES:
                for width in WIDTHS:
                    rows += look(browser, address, folder, theme, width, given.keep)
                    print(*(" | ".join(row) for row in rows[-len(CELLS) - 1 :]), sep="\n", flush=True)
    if given.write:
        heads = "| answer | theme | width | shown | scrolls sideways | least contrast |\n|---|---|---|---|---|---|\n"
        table = heads + "\n".join(f"| {' | '.join(row)} |" for row in rows)
        RESULTS.write_text(f"# In JupyterLab, {date.today()}\n\n{machine()}\n\n{table}\n")


if __name__ == "__main__":
    main()
