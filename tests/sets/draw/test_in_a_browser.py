"""Pictures in a real page: nothing scrolls sideways, words are legible on light and dark, the theme is followed."""

from __future__ import annotations

from typing import Any

import pytest

from tapestry_sets import Region, Sett, Stripe, allocate, overlap, show_views
from tapestry_sets.draw import show

LOOK = """() => {
  const light = color => { // the relative luminance of WCAG 2
    const [r, g, b] = color.match(/[\\d.]+/g).slice(0, 3).map(v => v / 255)
      .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
  }
  const contrast = (a, b) => {
    const [low, high] = [light(a), light(b)].sort((x, y) => x - y)
    return (high + 0.05) / (low + 0.05)
  }
  const fill = e => getComputedStyle(e).fill
  const shown = [...document.querySelectorAll('svg.tapestry')].filter(svg => svg.getBoundingClientRect().width)
  const words = shown.flatMap(svg => [...svg.querySelectorAll('text')].map(text => {
    const paper = fill(svg.querySelector('path'))
    const at = text.getBoundingClientRect()
    const below = document.elementsFromPoint(at.x + at.width / 2, at.y + at.height / 2)
      .find(e => ['rect', 'path'].includes(e.tagName) && fill(e) !== 'none')
    const on = below && below.closest('svg') === svg && !getComputedStyle(below).fillOpacity.match(/^0/)
      ? fill(below) : paper
    const scale = svg.getBoundingClientRect().width / svg.viewBox.baseVal.width
    const size = parseFloat(getComputedStyle(text).fontSize) * scale
    return {words: text.textContent, contrast: contrast(fill(text), on), size}
  }))
  return {
    wide: document.scrollingElement.scrollWidth, room: document.scrollingElement.clientWidth, words,
    pictures: shown.length, papers: shown.map(svg => fill(svg.querySelector('path'))),
    own: fill(document.querySelector('#own')),
    named: shown.map(svg => [svg.getAttribute('role'), ...['labelledby', 'describedby'].map(
      kind => document.getElementById(svg.getAttribute(`aria-${kind}`))?.textContent)]),
  }
}"""


def pictures() -> list[str]:
    A, M = allocate((27,), name="A"), allocate((40, 50), name="M")
    shown = [
        Sett(Stripe(6, 1), Stripe(2, 1)),
        Sett(Stripe(10**12, 10**15), Stripe(10**6, 10**6), Stripe(3, 2)),
        Region.full((12, 20)),
        Region.from_slices((10**6, 10**6), (slice(1, 10**6, 2), slice(0, 10**6, 3))),
        Region.full((10**18,) * 5),
        show_views(A.reshape(3, 3, 3)[:2, :2, :2], A[2::5], names=["B", "C"]),
        show_views(
            *(A[k::7] for k in range(7)), mode="grid", title="Each seventh cell of a line of memory, seven times"
        ),
        overlap(M[::2], M[3:]),
        show(*(Stripe(1, 7, k) for k in range(8)), stop=200),
    ]
    return [one._repr_mimebundle_()["text/html"] for one in shown]


def look(browser: Any, body: str, width: int, scheme: str, attributes: str = "") -> dict[str, Any]:
    """Open a page of this body; return what is seen there, once it is certain that nothing was logged or loaded."""
    page = browser.new_page(viewport={"width": width, "height": 5_000}, color_scheme=scheme)
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.append(request.url))
    own = '<svg width="9" height="9"><circle id="own" r="4" fill="#0967cc"/></svg>'
    page.set_content(f"<!doctype html><body style='margin:16px' {attributes}>{body}{own}</body>")
    found: dict[str, Any] = page.evaluate(LOOK)
    page.close()
    assert said == []
    return found


@pytest.mark.heavy(2)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1600])
def test_pictures_fit_and_can_be_read(browser: Any, width: int, scheme: str) -> None:
    bodies = pictures()
    found = look(browser, "".join(bodies), width, scheme)
    assert found["wide"] <= found["room"] == width
    assert found["pictures"] == len(bodies)
    assert len(found["words"]) > 300
    for words in found["words"]:
        assert words["contrast"] >= 4.5, words
        assert words["size"] >= 8, words
    assert set(found["papers"]) == {"rgb(255, 255, 255)" if scheme == "light" else "rgb(17, 17, 17)"}
    assert found["own"] == "rgb(9, 103, 204)", "the style of a picture reaches others"
    for role, name, description in found["named"]:
        assert role == "img" and name and description


@pytest.mark.parametrize(
    ("attributes", "paper"),
    [
        ('data-jp-theme-light="false"', "rgb(17, 17, 17)"),
        ('data-jp-theme-light="true"', "rgb(255, 255, 255)"),
        ('data-theme="dark"', "rgb(17, 17, 17)"),
        ('class="vscode-dark"', "rgb(17, 17, 17)"),
    ],
)
def test_the_theme_of_a_page_comes_before_the_system(browser: Any, attributes: str, paper: str) -> None:
    other = "dark" if paper == "rgb(255, 255, 255)" else "light"
    found = look(browser, pictures()[5], 1600, other, attributes)
    assert found["papers"] == [paper]
    assert all(words["contrast"] >= 4.5 for words in found["words"])


def test_paper_and_ink_are_those_of_jupyter(browser: Any) -> None:
    own = "<style>body{--jp-layout-color0:#002b36;--jp-content-font-color1:#eee8d5}</style>"
    found = look(browser, own + pictures()[5], 1600, "light", 'data-jp-theme-light="false"')
    assert found["papers"] == ["rgb(0, 43, 54)"]
    assert all(words["contrast"] >= 4.5 for words in found["words"])
