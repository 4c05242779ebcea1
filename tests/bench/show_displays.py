"""Pictures of the same objects as tapestry and other libraries show them, beside each other, for docs/displays.md.

python tests/bench/show_displays.py [--write] [--browser /usr/bin/chromium]

Needs dask with jinja2, xarray, netron, playwright and pillow, and Chromium, which runs headless. An object is shown by
each library as a notebook would show it, in one page with two columns (one below the other on a narrow page), in light
and dark, 400 and 1,600 px wide. Netron is a page of its own, of which a picture is taken. Nothing but this machine is
asked.
"""

from __future__ import annotations

import argparse
import base64
import sys
import tempfile
from collections.abc import Callable, Iterator
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

import dask.array as da  # noqa: E402
import netron  # noqa: E402
import numpy as np  # noqa: E402
import xarray as xr  # noqa: E402
from PIL import Image  # noqa: E402
from playwright.sync_api import Browser, sync_playwright  # noqa: E402

from tapestry_plan import Graph, Mesh, load_onnx, ops, plan  # noqa: E402
from tapestry_plan.draw import show_placement  # noqa: E402
from tapestry_sets import AliasGraph, Box  # noqa: E402

PICTURES = ROOT / "docs" / "displays"
MODEL = ROOT / "tests" / "models" / "resnet.onnx"
ADDRESS = ("127.0.0.1", 8931)
SCHEMES, WIDTHS = ("light", "dark"), (400, 1600)
MOST = 1000
"""Pixels of height; a longer page is cut there."""
STYLE = """
:root { color-scheme: light dark; font: 15px sans-serif; background: light-dark(#fff, #131416);
  color: light-dark(#000, #cfd0d0); }
body { margin: 16px; display: grid; grid-template-columns: 1fr 1fr; gap: 32px; align-items: start; }
section { min-width: 0; overflow-x: auto; }
h2 { font-size: 16px; }
img { max-width: 100%; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; }
@media (max-width: 700px) { body { grid-template-columns: 1fr; } }
"""

Shown = tuple[str, object]


def blocks() -> tuple[Shown, Shown]:
    """A matrix in 2 × 4 blocks."""
    g = Graph()
    g.output(ops.exp(g.input("x", (4096, 4096)), name="exp"), "y")
    p = plan(g, Mesh((2, 4)), layout={"x": {0: 2, 1: 4}, "y": {0: 2, 1: 4}})
    return ("show_placement(plan, ['x'])", show_placement(p, ["x"])), (
        "dask.array, chunks of 2,048 × 1,024",
        da.ones((4096, 4096), chunks=(2048, 1024), dtype="float32"),
    )


def ranks() -> tuple[Shown, Shown]:
    """A tensor of rank 4, a quarter of its batch in one part."""
    shape = (32, 64, 56, 56)
    return ("Region of rank 4", Box((8, 0, 0, 0), (8, *shape[1:])).to_region(shape)), (
        "dask.array, chunks of 8 images",
        da.ones(shape, chunks=(8, *shape[1:]), dtype="float32"),
    )


def tensors() -> tuple[Shown, Shown]:
    """Weights of a layer, with names."""
    g = AliasGraph()
    for name, shape in {"x": (32, 64), "w": (64, 16), "b": (16,)}.items():
        g.allocate(shape, name=name, dtype="float32")
    g[1].T.rename("w.T")
    axes = {"x": ("batch", "in"), "w": ("in", "out"), "b": ("out",)}
    sizes = {"batch": 32, "in": 64, "out": 16}
    arrays = {name: (of, np.zeros([sizes[axis] for axis in of], np.float32)) for name, of in axes.items()}
    return ("AliasGraph", g), ("xarray.Dataset", xr.Dataset(arrays))


def models() -> tuple[Shown, Shown]:
    """A small ResNet."""
    return ("load_onnx('resnet.onnx')", load_onnx(MODEL)), ("netron resnet.onnx", MODEL)


OBJECTS: dict[str, Callable[[], tuple[Shown, Shown]]] = {
    "blocks": blocks,
    "ranks": ranks,
    "tensors": tensors,
    "models": models,
}


def show(value: Any) -> str:
    """What a notebook shows of a value: the richest of its displays."""
    bundle = value._repr_mimebundle_() if hasattr(value, "_repr_mimebundle_") else {}
    found = bundle.get("text/html") or bundle.get("image/svg+xml")
    if found is None and hasattr(value, "_repr_html_"):
        found = value._repr_html_()
    return str(found) if found else f"<pre>{escape(bundle.get('text/plain') or repr(value))}</pre>"


def shoot_netron(browser: Browser, scheme: Any) -> str:
    """A page with a picture of netron's, which asks for consent first."""
    netron.start(str(MODEL), address=ADDRESS, browse=False)
    page = browser.new_context(color_scheme=scheme, viewport={"width": 740, "height": 900}).new_page()
    page.goto(f"http://{ADDRESS[0]}:{ADDRESS[1]}/")
    page.get_by_role("button", name="Accept").first.click()
    page.wait_for_timeout(4000)
    found = base64.b64encode(page.screenshot()).decode()
    page.context.close()
    netron.stop(ADDRESS)
    return f'<img alt="netron" src="data:image/png;base64,{found}">'


def shoot(browser: Browser, folder: Path) -> Iterator[tuple[str, bytes]]:
    """Names of pictures, and the pictures."""
    for name, make in OBJECTS.items():
        both = make()
        for scheme in SCHEMES:
            shown = [(words, shoot_netron(browser, scheme) if value is MODEL else show(value)) for words, value in both]
            parts = [f"<section><h2>{escape(words)}</h2>{markup}</section>" for words, markup in shown]
            path = folder / f"{name}.html"
            path.write_text(
                f"<!doctype html><html data-theme={scheme}><meta charset=utf-8><style>{STYLE}</style>{''.join(parts)}",
                encoding="utf-8",
            )
            for width in WIDTHS:
                given: Any = {"color_scheme": scheme, "viewport": {"width": width, "height": 300}}
                page = browser.new_context(**given).new_page()
                page.goto(path.as_uri())
                tall = min(page.evaluate("document.documentElement.scrollHeight"), MOST)
                assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{name} scrolls sideways"
                shot = page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": width, "height": tall})
                yield f"{name}-{scheme}-{width}.png", shot
                page.context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write them into docs/displays")
    parser.add_argument("--browser", default="/usr/bin/chromium")
    given = parser.parse_args()
    quiet = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    with sync_playwright() as tools, tempfile.TemporaryDirectory() as made:
        browser = tools.chromium.launch(executable_path=given.browser, args=quiet)
        for name, shot in shoot(browser, Path(made)):
            small = Image.open(BytesIO(shot)).convert("RGB").quantize(64)
            print(name, small.size)
            if given.write:
                small.save(PICTURES / name, optimize=True)
        browser.close()


if __name__ == "__main__":
    main()
