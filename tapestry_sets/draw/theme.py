"""How drawings look on light and dark pages, and how they are put into a page.

A drawing is written in the colors of a light page, as attributes that every viewer reads. Its style then gives each
color that occurs a counterpart for dark pages, so a new color needs no entry anywhere. The counterpart has the hue, and
the luminance that turns light into dark: the contrast of any two colors is the same on both pages.
"""

from __future__ import annotations

import re
from functools import cache
from hashlib import blake2b
from itertools import count

from tapestry_sets.draw.tuning import DARK_PAPER, INK, NARROW_VIEWPORT, PAPER

CHANNELS = (0.2126, 0.7152, 0.0722)
"""How much of a color's luminance is of red, of green and of blue light."""

TO_XYZ = ((0.43395, 0.37621, 0.18984), CHANNELS, (0.01776, 0.10947, 0.87277))
"""From light to CIE's X, Y and Z, each as a share of white's."""

FROM_XYZ = ((3.07996, -1.53714, -0.54282), (-0.92126, 1.87601, 0.04525), (0.05289, -0.20403, 1.15114))
"""And back."""

CUBIC, SLOPE = 0.008856, 7.787
"""Up to where CIELAB is a line and no root, and how steep it is there."""

_PICTURES = count(1)
"""Numbers the pictures that pages are given: an id must come up once in a page, even of one picture shown twice."""

_USED = re.compile(r'(fill|stroke)="(#[0-9a-f]{6})"')


# ----------------------------------------------------------------------------------------------------------- colors


def _light(color: str) -> list[float]:
    """Return how much light of each channel a color has, from 0 to 1; screens show them by a power."""
    shown = [int(color[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shown]


def _as_color(light: list[float]) -> str:
    shown = [c * 12.92 if c <= 0.0031308 else 1.055 * c ** (1 / 2.4) - 0.055 for c in light]
    return "#" + "".join(f"{round(255 * c):02x}" for c in shown)


def luminance(color: str) -> float:
    """Return the relative luminance of a color as WCAG 2 defines it.

    Examples
    --------
    >>> luminance("#ffffff"), luminance("#000000")
    (1.0, 0.0)
    """
    return round(sum(part * c for part, c in zip(CHANNELS, _light(color), strict=True)), 12)


def contrast(one: str, two: str) -> float:
    """Return the contrast of two colors as WCAG 2 defines it, from 1 to 21.

    Examples
    --------
    >>> contrast("#ffffff", "#000000"), contrast("#777777", "#777777")
    (21.0, 1.0)
    """
    dark, light = sorted((luminance(one) + 0.05, luminance(two) + 0.05))
    return light / dark


@cache
def dark_of(color: str) -> str:
    """Return what stands for a color on dark pages: of its hue, and in its contrast with paper.

    Light is scaled for a color that becomes brighter. A tint that becomes darker would be all but gray so: it keeps its
    distance from gray, as CIELAB measures it, as far as a screen shows that.

    Parameters
    ----------
    color : str
        As ``#`` and six hexadecimal digits.

    Examples
    --------
    >>> dark_of("#ffffff"), dark_of("#cfe3f5")
    ('#111111', '#192c3a')
    >>> round(contrast("#cfe3f5", "#ffffff"), 1), round(contrast("#192c3a", "#111111"), 1)
    (1.3, 1.3)
    """
    before = luminance(color)
    wanted = min(1.0, max(0.0, 1.05 * (luminance(DARK_PAPER) + 0.05) / (before + 0.05) - 0.05))
    if wanted < before:
        return _as_color(_dimmed(_light(color), wanted))
    light = [c * wanted / before for c in _light(color)] if before else [wanted] * 3
    if (brightest := max(light)) > 1:  # no screen shows it: white is added to the brightest of this hue
        light = [c / brightest for c in light]
        share = (wanted - wanted / brightest) / (1 - wanted / brightest)
        light = [min(1.0, c + (1 - c) * share) for c in light]
    return _as_color(light)


def _dimmed(light: list[float], wanted: float) -> list[float]:
    """Return the light of a color of this luminance that is as far from gray, or as far as a screen shows."""

    def root(t: float) -> float:
        return float(t ** (1 / 3)) if t > CUBIC else t * SLOPE + 16 / 116

    def square_off(f: float) -> float:
        return float(f**3) if f**3 > CUBIC else (f - 16 / 116) / SLOPE

    x, y, z = (root(sum(m * c for m, c in zip(row, light, strict=True))) for row in TO_XYZ)
    middle, apart = root(wanted), (x - y, z - y)
    low, high = 0.0, 2.0
    found = [wanted] * 3
    while high - low > 1e-3:  # the first try is the whole distance
        share = (low + high) / 2
        xyz = [square_off(middle + share * apart[0]), wanted, square_off(middle + share * apart[1])]
        tried = [sum(m * c for m, c in zip(row, xyz, strict=True)) for row in FROM_XYZ]
        if all(-1e-6 <= c <= 1 + 1e-6 for c in tried):
            found, low = tried, share
            if share == 1:
                break
        else:
            high = share
    return [min(1.0, max(0.0, c)) for c in found]


# ------------------------------------------------------------------------------------------------------------ style


def style_of(parts: str) -> str:
    """Return the style of a drawing of these elements, for its ``<style>``; it concerns no other part of a page.

    Jupyter's own colors come first for ink and paper. Where a page does not say whether it is light or dark, the
    reader's system does. Viewers that do not know these rules skip them, and show the colors that attributes have.
    """
    rules = [
        ".tapestry{color-scheme:light dark;"
        f"--tapestry-ink:var(--jp-content-font-color1,light-dark({INK},{dark_of(INK)}));"
        f"--tapestry-paper:var(--jp-layout-color0,light-dark({PAPER},{dark_of(PAPER)}))}}",
        "[data-jp-theme-light=true] .tapestry,[data-theme=light] .tapestry,.vscode-light .tapestry{color-scheme:light}",
        "[data-jp-theme-light=false] .tapestry,[data-theme=dark] .tapestry,.vscode-dark .tapestry{color-scheme:dark}",
    ]
    named = {INK: "var(--tapestry-ink)", PAPER: "var(--tapestry-paper)"}
    for what, color in sorted(set(_USED.findall(parts)) | {("fill", PAPER)}):
        shown = named.get(color) or f"light-dark({color},{dark_of(color)})"
        rules.append(f'.tapestry [{what}="{color}"]{{{what}:{shown}}}')
    if "data-at" in parts:
        rules += [
            ".tapestry rect[data-at]:hover{stroke:var(--tapestry-ink);stroke-width:3}",
            ".tapestry g[font-weight]{pointer-events:none}",
        ]
    marks = f'.tapestry text[fill="{PAPER}"],.tapestry g[font-weight]'  # on cells, whose colors no page changes
    rules.append(f"{marks}{{fill:light-dark({PAPER},{dark_of(PAPER)})}}")
    return "\n".join(["@supports (color:light-dark(#000,#fff)){", *rules, "}"])


# ------------------------------------------------------------------------------------------------------------ pages


def as_html(svg: str, narrow: str = "", text: str = "") -> str:
    """Return a drawing as a part of a page of HTML.

    Parameters
    ----------
    svg : str
        As `canvas.document` makes it: with a title and a description, to which ids are given here.
    narrow : str
        The same for pages too narrow for it, empty if it needs none.
    text : str
        What stands in place of the drawing where a site strips drawings and styles from its pages.
    """
    from html import escape  # loaded with the first picture, not with the package

    style = [".tapestry-picture pre,.tapestry-narrow{display:none}"] if text or narrow else []
    if narrow:
        swap = ".tapestry-wide{display:none}.tapestry-narrow{display:inline}"
        style.append(f"@media (max-width:{NARROW_VIEWPORT}px){{{swap}}}")
    drawings = [_named(svg, "wide" * bool(narrow)), *([_named(narrow, "narrow")] if narrow else [])]
    head = [f"<style>{''.join(style)}</style>"] if style else []
    words = [f"<pre>{escape(text)}</pre>"] if text else []
    return "\n".join(['<div class="tapestry-picture">', *head, *words, *drawings, "</div>"])


def _named(svg: str, which: str) -> str:
    """Return a drawing whose title and description its element names, by ids that no other picture has."""
    own = f"tapestry-{blake2b(svg.encode(), digest_size=6).hexdigest()}-{next(_PICTURES)}"
    for kind, tag in (("t", "title"), ("d", "desc")):
        svg = svg.replace(f"<{tag}>", f'<{tag} id="{own}-{kind}">', 1)
    svg = svg.replace('role="img"', f'role="img" aria-labelledby="{own}-t" aria-describedby="{own}-d"', 1)
    return svg.replace('class="tapestry"', f'class="tapestry tapestry-{which}"', 1) if which else svg
