"""One file that shows a plan: panels made here, and a script that lets them answer.

The page has no other file and asks for none: styles and script are inside, and the data and the library that lays out
the graph, compressed. What is left out so that it stays small is said where it would be.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
from msgspec import Struct

from tapestry_plan.report.arenas import memory_panel
from tapestry_plan.report.home import home_panel
from tapestry_plan.report.lanes import check_run, lanes_panel
from tapestry_plan.report.markup import element, escape, panel
from tapestry_plan.report.network import describe_graph
from tapestry_plan.report.operators import Explained, describe_operators
from tapestry_plan.report.summary import summary_panel
from tapestry_plan.report.traffic import describe_transfers, traffic_panel
from tapestry_plan.report.tuning import COMPRESSION, FRAME_TALL, MAX_NBYTES
from tapestry_plan.steps import MeasuredRun, ShardPlan
from tapestry_sets.limits import check_arguments, check_target, cut_text, replace_file, tell_count

NOTICE = (
    "The graph is laid out by elkjs 0.12.1 (Eclipse Public License 2.0, without warranty), which is in this file "
    "unchanged; its source is at https://github.com/kieler/elkjs and its license at "
    "https://www.eclipse.org/legal/epl-2.0/."
)
ASSETS = os.path.join(os.path.dirname(__file__), "assets")
PANELS = {
    "summary": "summary",
    "graph": "graph",
    "operator": "operator",
    "traffic": "bytes between devices",
    "memory": "memory",
    "lanes": "time",
    "home": "code",
}


@cache
def read_asset(name: str) -> str:
    """A file of the page, as text."""
    with open(os.path.join(ASSETS, name), encoding="utf-8") as file:
        return file.read()


@cache
def read_layouter() -> bytes:
    """The library that lays out graphs, compressed."""
    with open(os.path.join(ASSETS, "elk-worker.min.js.gz"), "rb") as file:
        return file.read()


class Report(Struct, frozen=True):
    """A plan in one page: notebooks show it, and `save` writes the file.

    Parameters
    ----------
    title : str
    html : str
        The whole page, which needs no other file and no network.
    document : bytes
        What the page shows, as JSON: the graph, its operators, what is explained, and transfers.
    left_out : tuple of str
        What there was no room for, in words.
    """

    title: str
    html: str
    document: bytes
    left_out: tuple[str, ...] = ()

    @property
    def data(self) -> dict[str, Any]:
        """What `document` has, as plain values."""
        found: dict[str, Any] = msgspec.json.decode(self.document)
        return found

    def __repr__(self) -> str:
        size = f"{len(self.html.encode()):,} B"
        return f"Report({cut_text(self.title, 120)}: {size} of HTML; save('report.html') writes it)"

    @check_arguments(path="give the path of a file, as 'report.html'")
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to a file, which appears when it is whole.

        Raises
        ------
        ValueError
            For a path in a folder that is not there, or cannot be written to.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from tapestry_plan import Graph, Mesh, plan
        >>> g = Graph()
        >>> _ = g.output(g.input("x", (8, 8)) @ g.input("w", (8, 8)))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     plan(g, Mesh(2)).report(Path(folder, "report.html")).save(Path(folder, "again.html"))
        ...     sorted(path.name for path in Path(folder).iterdir())
        ['again.html', 'report.html']
        """
        with replace_file(check_target(path, "report")) as file:
            file.write(self.html.encode())

    def _repr_html_(self) -> str:
        """The page in a frame, so that its styles are its own; links lead to its parts, not to what is around it."""
        page = self.html.replace("<head>", '<head><base href="about:srcdoc">', 1)
        frame = f'<iframe title="{escape(self.title)}" style="width:100%;height:{FRAME_TALL}px;border:0" srcdoc="'
        return f'{frame}{page.replace("&", "&amp;").replace(chr(34), "&quot;")}"></iframe>'


def make_report(plan: ShardPlan, run: MeasuredRun | None = None) -> Report:
    """The report of a plan; see `ShardPlan.report`."""
    if run is not None:
        check_run(plan, run)
    title = tell_title(plan)
    panels = panels_of(plan, run)
    data, left_out = describe_plan(plan)
    while True:
        document = msgspec.json.encode(data)
        page = _fill_page(title, _body(title, panels, left_out), document)
        if len(page.encode()) <= MAX_NBYTES or not _drop(data, left_out):
            return Report(title, page, document, tuple(left_out))


def tell_title(plan: ShardPlan) -> str:
    """What stands above a plan."""
    mesh = "×".join(map(str, plan.mesh.shape))
    name = f"{plan.graph.name}: " if plan.graph.name else ""
    return f"{name}{tell_count(len(plan.graph.nodes), 'operator')} on {mesh} devices"


def describe_plan(plan: ShardPlan) -> tuple[dict[str, Any], list[str]]:
    """What the script needs, as plain data, and what it lacks."""
    explained, operators = describe_operators(plan)
    data = {
        "format": "tapestry-report/1",
        "graph": describe_graph(plan),
        "operators": operators,
        "explained": {name: one._asdict() for name, one in explained.items()},
        "transfers": describe_transfers(plan),
    }
    return data, _tell_untold(data)


def panels_of(plan: ShardPlan, run: MeasuredRun | None = None) -> dict[str, str]:
    """The panels that need no script, by name, as markup."""
    return {
        "summary": summary_panel(plan),
        "traffic": traffic_panel(plan),
        "memory": memory_panel(plan),
        "lanes": lanes_panel(plan, run),
        "home": home_panel(plan),
    }


def arrange(panels: Mapping[str, str]) -> str:
    """The panels in the order of the page, those that a script fills among them."""
    tools = "".join(
        element("button", escape(words), type="button", data_do=do, title=told)
        for do, words, told in (
            ("out", "−", "smaller (key -)"),
            ("in", "+", "larger (key +)"),
            ("fit", "fit width", "as wide as the panel"),
            ("whole", "fit all", "the whole graph"),
            ("fold", "unfold all", "show every repetition of blocks, or the first of each"),
        )
    )
    search = '<input type="search" aria-label="search operators" placeholder="search operators, types, shardings">'
    keys = (
        "Colors are shardings; thick lines move bytes. Arrow keys go from node to node, Enter chooses an operator or "
        "unfolds a block, dragging moves, Ctrl and the wheel zoom. Weights stand with the operators that read them."
    )
    graph = panel(
        "graph",
        "The graph",
        element("div", search, tools, class_="tp-tools"),
        element("div", class_="tp-found", aria_live="polite"),
        element("ul", class_="tp-legend", aria_label="shardings and their colors"),
        element("div", element("p", "The graph is being laid out …", class_="tp-note"), class_="tp-graph"),
        element("p", escape(keys), class_="tp-note"),
    )
    empty = element("p", "Choose an operator in the graph.", class_="tp-note")
    detail = element(
        "section", element("h2", "One operator"), empty, class_="tp-panel tp-detail", id="operator", tabindex=-1
    )
    explore = element("div", element("div", graph), detail, class_="tp-explore")
    sides = element("div", panels["traffic"], panels["memory"], class_="tp-sides")
    return "".join([panels["summary"], explore, sides, panels["lanes"], panels["home"]])


def style_of(*, is_page: bool) -> str:
    """The styles of panels, and of the page or the widget around them."""
    names = ("report.css", "explore.css", *(("page.css",) if is_page else ()))
    return "\n".join(map(read_asset, names))


def _drop(data: dict[str, Any], left_out: list[str]) -> bool:
    """Leave out the largest pictures, a quarter of those that are there; without pictures, half of the transfers."""
    explained, transfers = data["explained"], data["transfers"]
    drawn = sorted(
        (name for name, one in explained.items() if "<svg" in one["picture"]),
        key=lambda name: -len(explained[name]["picture"]),
    )
    for name in drawn[: -(-len(drawn) // 4)]:
        explained[name] = Explained(**explained[name]).without_picture()._asdict()
    gone: list[Any] = []
    if not drawn:
        kept = len(transfers["rows"]) // 2
        gone = transfers["rows"][kept:]
        transfers["rows"] = transfers["rows"][:kept]
        transfers["left"] += len(gone)
        transfers["left_nbytes"] += sum(row[2] for row in gone)
    pictures = sum("<svg" not in one["picture"] for one in explained.values())
    left_out[:] = [tell_count(pictures, "picture") + " of operators, the largest"] + _tell_untold(data)
    return bool(drawn or gone)


def _tell_untold(data: dict[str, Any]) -> list[str]:
    """Which operators have no reasons, and which transfers no rows."""
    untold, transfers = sum(one["key"] is None for one in data["operators"]), data["transfers"]
    said = [f"reasons of {tell_count(untold, 'operator')}: too many differ"] if untold else []
    if dropped := data["graph"]["dropped"]:
        said.append(f"{tell_count(dropped, 'edge')} of the graph, beside each of which is a path of others")
    if transfers["left"]:
        said.append(f"{tell_count(transfers['left'], 'transfer')} of {transfers['left_nbytes']:,} B, the smallest")
    return said


def _body(title: str, panels: Mapping[str, str], left_out: list[str]) -> str:
    links = "".join(f'<a href="#{name}">{escape(words)}</a>' for name, words in PANELS.items())
    head = element("header", element("h1", escape(title)), element("nav", links, aria_label="panels"), class_="tp-head")
    missing = "".join(element("p", escape(f"Left out: {words}."), class_="tp-note") for words in left_out)
    foot = element("footer", missing, element("p", escape(NOTICE)), class_="tp-foot")
    return head + element("main", arrange(panels)) + foot


def _fill_page(title: str, body: str, document: bytes) -> str:
    """The page; where a part goes is sought in the template alone, so that parts may have braces."""
    import gzip  # loaded with the first report, not with the package
    from base64 import b64encode

    filled = {
        "title": escape(title),
        "style": style_of(is_page=True),
        "script": read_asset("explore.js"),
        "body": body,
        "data": b64encode(gzip.compress(document, COMPRESSION, mtime=0)).decode(),
        "layouter": b64encode(read_layouter()).decode(),
    }
    before, *parts = read_asset("page.html").split("{{")
    for part in parts:
        name, after = part.split("}}", 1)
        before += filled[name] + after
    return before
