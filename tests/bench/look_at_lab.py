"""JupyterLab and marimo for real: a plan, its explorer and that of two views, light and dark, wide and narrow.

    pip install '.[notebook]' marimo playwright
    python tests/bench/look_at_lab.py [--only jupyterlab] [--write] [--keep FOLDER]

A notebook runs in a JupyterLab, and then in a marimo, of its own, which headless Chromium opens. Each answer is looked
at where it stands: how much it shows, what of it scrolls sideways (in a frame the page in it), the least contrast of
its words and what is under them, what is said after a slider was moved by a key, and how many errors the browser's
console has. In marimo the system's theme is the other one. `--keep` keeps a screenshot of each.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from importlib.metadata import version
from pathlib import Path
from textwrap import indent
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
NAMES = "A, Mesh, OverlapExplorer, PlanExplorer, g, p, show_views"
TOLD = r"Overlap\([^\n]*"
GROUND = """(area) => {
  const { backgroundColor } = getComputedStyle(area.querySelector(".tp-root") ?? area);
  return Number(backgroundColor.match(/\\d+/)[0]) > 127 ? "light" : "dark";
}"""
SCROLLS = """(area) => {
  const found = [];
  for (const one of [area, ...area.querySelectorAll("*")]) {
    const style = getComputedStyle(one);
    const scrolls = ["auto", "scroll"].includes(style.overflowX) && one.scrollWidth > one.clientWidth + 1;
    if (scrolls && !one.closest(".tp-graph, pre")) found.push(`${one.tagName}.${one.className} ${one.scrollWidth}`);
  }
  return found;
}"""


MARIMO_OUTPUT = ".output-area"


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


def marimo_notebook(theme: str) -> str:
    """The same notebook as marimo's, which has a function for each cell, with its theme."""
    cells = [f"def _():\n{indent(FIRST, '    ')}\n    return {NAMES}"]
    cells += [f"def _({NAMES}):\n    {source}\n    return" for source in CELLS.values()]
    settings = f'# /// script\n# [tool.marimo.display]\n# theme = "{theme}"\n# ///'
    head = f'{settings}\nimport marimo\n\napp = marimo.App(width="full")'
    return "\n\n\n".join([head, *(f"@app.cell\n{cell}" for cell in cells), ""])


@contextmanager
def start_marimo(folder: Path, theme: str) -> Iterator[str]:
    """A marimo that runs the notebook on a port of its own; its address."""
    path, log = folder / f"look_{theme}.py", folder / f"marimo_{theme}.log"
    path.write_text(marimo_notebook(theme))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    options = ["--headless", "--no-token", "--host", "127.0.0.1", "--port", str(port)]
    with log.open("w") as file:
        command = [sys.executable, "-m", "marimo", "run", path.name, *options]
        server = subprocess.Popen(command, stdout=file, stderr=file, cwd=folder)
    try:
        for _ in range(240):
            time.sleep(0.5)
            with suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=30).read()
                break
            if server.poll() is not None:
                raise SystemExit(f"marimo ended: {log.read_text()[-2000:]}")
        else:
            raise SystemExit("marimo did not begin within two minutes")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(timeout=30)


def look_in_marimo(browser: Any, address: str, theme: str, width: int, keep: Path | None) -> list[list[str]]:
    """Rows of what was found in one window of marimo, whose theme is not the system's."""
    system = "light" if theme == "dark" else "dark"
    with open_window(browser, width, system) as (page, printed):
        page.goto(address)
        cells, rows = page.locator(MARIMO_OUTPUT), list[list[str]]()
        page.wait_for_function(f"document.querySelectorAll({MARIMO_OUTPUT!r}).length >= {len(CELLS)}")
        for k, kind in enumerate(CELLS):
            cell = cells.nth(k)
            cell.scroll_into_view_if_needed()
            if "Explorer" in kind:
                cell.locator("input[type=range]").first.wait_for()
                cell.locator(".tp-answer svg").first.wait_for(state="attached")
            elif kind == "its report":
                cell.frame_locator("iframe").locator("[data-ready]").wait_for()
            rows.append([kind, theme, str(width), *look_at_marimo(cell)])
            if kind == "OverlapExplorer":
                rows.append(["its slider", theme, str(width), move_slider(page, cell), "", ""])
            if keep is not None:
                cell.screenshot(path=str(keep / f"marimo_{kind.replace(' ', '_')}_{theme}_{width}.png"))
        rows.append(tell_console(printed, theme, width))
    return rows


def look_at_marimo(cell: Any) -> list[str]:
    """As `look_at`, of what may be in a frame or in the shadow of marimo's widgets."""
    frame, root = cell.locator("iframe"), cell.locator(".tp-root")
    inside = frame.first.element_handle().content_frame() if frame.count() else None
    where = cell.element_handle() if inside is None else inside.query_selector("html")
    here = where if inside is not None or not root.count() else root.first.element_handle()
    words = here.inner_text() if inside is None else inside.inner_text("body")
    said = f"{len(words):,} characters" if words.strip() else f"{cell.locator('svg, img').count()} pictures"
    wide = dict.fromkeys([*where.evaluate(SCROLLS), *here.evaluate(SCROLLS)])
    if not root.count() and inside is None:
        return [said, ", ".join(wide) or "no", ""]
    found = [one for one in here.evaluate(CONTRASTS_IN) if not one[0].startswith("text")]  # a picture's own
    ground = here.evaluate(GROUND)
    return [said, ", ".join(wide) or "no", f"{min(ratio for _, _, ratio in found):.1f} on {ground}"]


def set_theme(folder: Path, theme: str) -> None:
    """Choose JupyterLab's theme in its settings, and that it asks nobody for news."""
    place = folder / "settings" / "@jupyterlab" / "apputils-extension"
    place.mkdir(parents=True, exist_ok=True)
    for name, chosen in (("themes", {"theme": THEMES[theme]}), ("notification", {"fetchNews": "false"})):
        place.joinpath(f"{name}.jupyterlab-settings").write_text(json.dumps(chosen))


def look(browser: Any, address: str, folder: Path, theme: str, width: int, keep: Path | None) -> list[list[str]]:
    """Rows of what was found in one window."""
    set_theme(folder, theme)
    rows = []
    with open_window(browser, width, theme) as (page, printed):
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
        rows.append(tell_console(printed, theme, width))
        if keep is not None and printed:
            (keep / f"console_{theme}_{width}.txt").write_text("\n".join(printed))
    return rows


@contextmanager
def open_window(browser: Any, width: int, system: str) -> Iterator[tuple[Any, list[str]]]:
    """A page where the system is light or dark, and the errors of its console."""
    context = browser.new_context(viewport={"width": width, "height": TALL}, color_scheme=system)
    context.set_default_timeout(PATIENCE)
    page, printed = context.new_page(), list[str]()
    page.on("console", lambda message: printed.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: printed.append(str(error)))
    try:
        yield page, printed
    finally:
        context.close()


def tell_console(printed: Sequence[str], theme: str, width: int) -> list[str]:
    own = [words for words in printed if "tapestry" in words or "tp-" in words]
    return ["(console)", theme, str(width), f"{len(printed)} errors, {len(own)} of ours", "", ""]


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
    slider, area = cell.locator("input[type=range]").last, cell.locator(".tp-widget").first
    before = re.findall(TOLD, cell.inner_text())
    slider.focus()
    page.keyboard.press("ArrowRight")
    for _ in range(100):
        page.wait_for_timeout(100)
        told = [one for one in re.findall(TOLD, area.inner_text()) if one not in before]
        if told:
            return f"`{told[0]}`"
    return "nothing changed"


def look_everywhere(
    folder: Path, browser: Any, only: str | None, keep: Path | None
) -> Iterator[tuple[str, list[list[str]]]]:
    """The rows of each window, and where it is."""
    if only != "marimo":
        folder.joinpath("look.ipynb").write_text(json.dumps(notebook()))
        with start_lab(folder) as address:
            for theme in THEMES:
                for width in WIDTHS:
                    yield "JupyterLab", look(browser, address, folder, theme, width, keep)
    if only != "jupyterlab":
        for theme in THEMES:
            with start_marimo(folder, theme) as address:
                for width in WIDTHS:
                    yield "marimo", look_in_marimo(browser, address, theme, width, keep)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--keep", type=Path, help="a folder for screenshots")
    parser.add_argument("--only", choices=("jupyterlab", "marimo"))
    given = parser.parse_args()
    if given.keep is not None:
        given.keep.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[list[str]]] = {}
    with tempfile.TemporaryDirectory() as name, start_chromium() as browser:
        for where, rows in look_everywhere(Path(name), browser, given.only, given.keep):
            found.setdefault(where, []).extend(rows)
            print(where, *(" | ".join(row) for row in rows), sep="\n", flush=True)
    if given.write:
        versions = {"JupyterLab": version("jupyterlab"), "marimo": version("marimo")}
        parts = [f"# In JupyterLab and marimo, {date.today()}", machine()]
        for where, rows in found.items():
            heads = "| answer | theme | width | shown | scrolls sideways | least contrast |\n|---|---|---|---|---|---|"
            table = "\n".join([heads, *(f"| {' | '.join(row)} |" for row in rows)])
            parts += [f"## {where} {versions[where]}", table]
        RESULTS.write_text("\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
