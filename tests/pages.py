"""Pages in headless Chromium: what they print, ask for and show; skipped where there is no Chromium or Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ARGUMENTS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE = 120_000.0
"""Milliseconds that a busy machine may take for anything."""
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const known = new Map();
  const parse = (color, under) => {
    const key = `${color} ${under}`;
    if (!known.has(key)) known.set(key, paint(color, under));
    return known.get(key);
  };
  const paint = (color, under) => {
    canvas.fillStyle = under ? `rgb(${under.join(",")})` : "#fff";
    canvas.fillRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (color) => color.map((c) => c / 255)
    .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
  const ground = (element) => {
    const chain = [];
    for (let one = element; one; one = one.parentElement) chain.unshift(one);
    let color = null;
    for (const one of chain) {
      const svg = one.closest(".tp-node")?.querySelector("rect");
      const style = one === element && svg ? getComputedStyle(svg).fill : getComputedStyle(one).backgroundColor;
      color = parse(style, color);
    }
    return color;
  };
  const found = new Map();
  const walker = document.createTreeWalker(document.querySelector(".tp-root"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const isShown = walker.currentNode.textContent.trim() && element.checkVisibility();
    if (!isShown || element.closest(".tp-pictures, script, style, title, .tp-unseen")) continue;
    const style = getComputedStyle(element), under = ground(element);
    const ink = parse(element instanceof SVGElement ? style.fill : style.color, under);
    const [dark, bright] = [light(ink) + 0.05, light(under) + 0.05].sort((a, b) => a - b);
    const ratio = bright / dark, key = `${element.tagName}.${element.className.baseVal ?? element.className}`;
    const words = walker.currentNode.textContent.slice(0, 40);
    if (!(found.get(key)?.ratio <= ratio)) found.set(key, { ratio, words });
  }
  return [...found].map(([key, one]) => [key, one.words, one.ratio]);
}"""
"""The least contrast of words on what is under them, by kind of element, as browsers compute the colors."""


class Opened:
    """A page that is open, with what it has printed and asked for."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.printed: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.printed.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.printed.append(f"error: {error}"))
        page.on("request", lambda request: self.asked.append(request.url))

    def wait(self) -> None:
        """Until the graph of a report is laid out."""
        self.page.wait_for_selector("[data-ready]")


@contextmanager
def start_chromium() -> Iterator[Any]:
    """A browser; the test is skipped where it cannot be had."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pages are looked at with Playwright")
    if CHROMIUM is None:
        pytest.skip("pages are looked at in Chromium, which is not installed: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS, timeout=PATIENCE)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_page(browser: Any, path: Path, width: int = 1600, scheme: str = "light") -> Iterator[Opened]:
    """A file in a page of some width, in light or dark."""
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    context.set_default_timeout(PATIENCE)
    opened = Opened(context.new_page())
    try:
        opened.page.goto(path.resolve().as_uri())
        yield opened
    finally:
        context.close()
