"""Reading pictures back: does a drawing show the right cells, legibly?"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from itertools import takewhile

SVG = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True)
class Square:
    """A cell of a drawing: its corner, its sides, its place and the sets that hold it."""

    x: float
    y: float
    wide: float
    tall: float
    at: str | None
    held: frozenset[int]


@dataclass(frozen=True)
class Words:
    """Words of a drawing, and the rectangle that they cover at 6 pixels for each 10 of their size."""

    words: str
    left: float
    right: float
    top: float
    bottom: float
    is_mark: bool


@dataclass(frozen=True)
class Drawing:
    """What a drawing shows."""

    width: float
    height: float
    squares: list[Square]
    words: list[Words]
    bars: list[tuple[int, int, int]]


def read(svg: str) -> Drawing:
    """Parse a drawing as XML and add up the translations of its groups."""
    root = ElementTree.fromstring(svg)
    found = Drawing(float(root.attrib["width"]), float(root.attrib["height"]), [], [], [])

    def visit(element: ElementTree.Element, x: float, y: float, group: dict[str, str]) -> None:
        own = element.attrib
        if element.tag == f"{SVG}g":
            moved = re.fullmatch(r"translate\((.+),(.+)\)", own.get("transform", "translate(0,0)"))
            assert moved is not None
            x, y, group = x + float(moved[1]), y + float(moved[2]), group | own
        elif element.tag == f"{SVG}rect":
            held = frozenset(map(int, group["data-in"].split()))
            sides = (x + float(own["x"]), y + float(own["y"]), float(own["width"]), float(own["height"]))
            found.squares.append(Square(*sides, own.get("data-at"), held))
        elif element.tag == f"{SVG}text":
            found.words.append(placed(element, x, y, group | own))
        elif "data-level" in own:
            found.bars.append((int(own["data-level"]), int(own["data-lo"]), int(own["data-hi"])))
        for child in element:
            visit(child, x, y, group)

    visit(root, 0, 0, {})
    return found


def placed(element: ElementTree.Element, x: float, y: float, style: dict[str, str]) -> Words:
    size, words = float(style["font-size"]), element.text or ""
    length = 0.6 * size * len(words)
    left = x + float(element.attrib["x"]) - length * {"start": 0, "middle": 0.5, "end": 1}[style["text-anchor"]]
    base = y + float(element.attrib["y"])
    return Words(words, left, left + length, base - 0.75 * size, base, "font-size" not in element.attrib)


def assert_legible(drawing: Drawing) -> None:
    """Nothing is cut off at the edge, no words run into others, and no two squares share a corner."""
    for w in drawing.words:
        assert w.left >= 0 and w.right <= drawing.width and w.top >= 0 and w.bottom <= drawing.height, w
    for s in drawing.squares:
        assert s.x >= 0 and s.x + s.wide <= drawing.width and s.y >= 0 and s.y + s.tall <= drawing.height, s
    words = sorted(drawing.words, key=lambda w: w.left)
    for k, a in enumerate(words):
        for b in takewhile(lambda b, a=a: b.left < a.right, words[k + 1 :]):
            assert a.right == a.left or b.right == b.left or a.bottom <= b.top or b.bottom <= a.top, (
                f"{a} runs into {b}"
            )
    assert len({(s.x, s.y) for s in drawing.squares}) == len(drawing.squares)


def holders(drawing: Drawing) -> dict[str, frozenset[int]]:
    """The sets that hold each place that some set holds."""
    return {s.at: s.held for s in drawing.squares if s.at is not None}


def name_of(point: tuple[int, ...]) -> str:
    return ",".join(map(str, point))
