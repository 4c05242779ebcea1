"""Every page of a built site in headless Chromium, in light and dark, 400 and 1,600 px wide.

python tests/bench/look_at_site.py SITE [--browser /usr/bin/chromium] [--pictures FOLDER]

Needs playwright and Chromium. A page fails that scrolls sideways, writes an error to the console, or asks for anything
but files of the site; the exit status is 1 then. With a folder, a picture of the top of each page is written there.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

SCHEMES, WIDTHS = ("light", "dark"), (400, 1600)
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
BEYOND = """() => [...document.querySelectorAll('article *')]
    .filter(each => each.getBoundingClientRect().right > innerWidth + 1 && !each.closest('pre, .output, table'))
    .slice(0, 2).map(each => each.outerHTML.slice(0, 80))"""
"""Markup of what reaches beyond the page, where the page scrolls."""


def look(page: Page, path: Path) -> list[str]:
    """What is wrong with a page."""
    wrong: list[str] = []

    def note_error(message: Any) -> None:
        if message.type == "error":
            wrong.append(f"console: {message.text}")

    def note_request(request: Any) -> None:
        if not request.url.startswith(("file:", "data:", "blob:")):
            wrong.append(f"asks for {request.url}")

    page.on("console", note_error)
    page.on("request", note_request)
    page.goto(path.as_uri())
    wide, room = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    if wide > room:
        wrong.append(f"is {wide} px wide: {page.evaluate(BEYOND)}")
    page.remove_listener("console", note_error)
    page.remove_listener("request", note_request)
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("site", type=Path)
    parser.add_argument("--browser", default="/usr/bin/chromium")
    parser.add_argument("--pictures", type=Path)
    given = parser.parse_args()
    paths, failed = sorted(given.site.resolve().rglob("*.html")), 0
    if not paths:
        raise SystemExit(f"{given.site} has no page; build it: sphinx-build -W --keep-going -b html docs {given.site}")
    with sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=given.browser, args=[*QUIET])
        for scheme in SCHEMES:
            for width in WIDTHS:
                options: Any = {"color_scheme": scheme, "viewport": {"width": width, "height": 1000}}
                page = browser.new_context(**options).new_page()
                for path in paths:
                    name = path.relative_to(given.site.resolve()).as_posix()
                    for wrong in look(page, path):
                        failed += 1
                        print(f"{name}, {scheme}, {width} px: {wrong}")
                    if given.pictures:
                        given.pictures.mkdir(parents=True, exist_ok=True)
                        page.screenshot(path=given.pictures / f"{name.replace('/', '_')}-{scheme}-{width}.png")
        browser.close()
    print(f"{len(paths)} pages, {len(SCHEMES) * len(WIDTHS)} times each: {failed} faults")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
