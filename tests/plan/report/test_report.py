"""What a report says is what the plan says; and what it refuses."""

from __future__ import annotations

import itertools
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapestry_exec import run
from tapestry_plan import Device, Graph, Link, Mesh, ops, plan
from tapestry_plan.report import make_report, network, operators, show_plan, tuning
from tapestry_plan.report.arenas import list_points
from tapestry_plan.steps import least_memory, spill
from tests.report_models import chain, residual, transformer

chained = itertools.chain.from_iterable
HOSTILE = "</script><script>alert(1)</script>\"'&<img src=x onerror=alert(2)>\x1b[2J"


class Elements(HTMLParser):
    """The elements of a page with their attributes, and the words in each kind of element."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[tuple[str, str]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "link", "input", "path", "rect"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open:
            while self.open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        self.words.append((self.open[-1] if self.open else "", data))

    def having(self, attribute: str) -> list[dict[str, str | None]]:
        return [given for _, given in self.found if attribute in given]


def test_bytes_of_pairs_are_those_of_the_plan() -> None:
    p = transformer()
    cells = Elements(show_plan(p)).having("data-from")
    found = {
        (int(str(one["data-from"]).split(",")[0]), int(str(one["data-to"]).split(",")[0])): int(str(one["data-nbytes"]))
        for one in cells
    }
    assert len(cells) == p.mesh.size**2
    assert {pair: nbytes for pair, nbytes in found.items() if nbytes} == dict(p.nbytes_by_link)


def test_a_plan_that_spills_is_shown() -> None:
    p = plan(residual(), Mesh(2), fuse=False)
    q = spill(p, max(least_memory(p)))
    assert sum(q.nbytes_spilled)
    page = Elements(q.report().html)
    assert [int(str(one["data-peak"])) for one in page.having("data-peak")] == [*q.peak_nbytes]


def test_rows_are_the_transfers_of_the_plan() -> None:
    p = transformer()
    told = p.report().data["transfers"]
    words = told["words"]
    rows = sorted(
        (s, t, n, step, words[a], words[b], words[c], words[d], words[e])
        for s, t, n, step, a, b, c, d, e in told["rows"]
    )
    assert rows == sorted(
        (r.source, r.target, r.nbytes, r.step, r.tensor, r.producer, r.consumer, r.cells, r.why) for r in p.transfers()
    )
    assert sum(row[2] for row in rows) == p.nbytes_moved and told["left"] == 0


def test_peaks_and_totals_are_those_of_the_plan() -> None:
    p = transformer()
    page = Elements(show_plan(p))
    assert [int(str(one["data-peak"])) for one in page.having("data-peak")] == [use.peak_nbytes for use in p.memory]
    text = " ".join(words for _, words in page.words)
    for number in (p.nbytes_moved, sum(p.nbytes_placed), max(p.peak_nbytes), *p.nbytes_received):
        assert f"{number:,}" in text
    assert f"gap {p.gap:.1%}" in text


def test_the_graph_is_that_of_the_plan() -> None:
    p = transformer()
    told = network.describe_graph(p)
    named = [node["name"] for node in told["nodes"] if node["kind"] == "op"]
    assert sorted(named) == sorted(p.graph.nodes)
    made = {name: node.name for node in p.graph.nodes.values() for name in node.outputs}
    wanted = {
        (made[name], node.name)
        for node in p.graph.nodes.values()
        for read in node.inputs
        for name in p.graph.source(read).stored
        if name in made
    }
    nodes = told["nodes"]
    found = {
        (nodes[a]["name"], nodes[b]["name"])
        for a, b, *_ in told["edges"]
        if {nodes[a]["kind"], nodes[b]["kind"]} == {"op"}
    }
    assert found == wanted
    assert sorted(leaves(told["tree"])) == list(range(len(nodes)))
    assert sum(one["count"] for one in told["legend"]) + told["others"][0] == len(named)


def leaves(tree: list[Any]) -> list[int]:
    inner = ([part] if isinstance(part, int) else chained(map(leaves, part["members"])) for part in tree)
    return list(chained(inner))


def test_repeated_blocks_are_stacks_of_operators_that_are_alike() -> None:
    p = plan(chain(), Mesh(2), fuse=False, fix={f"x product{k}": {"m": 2} for k in range(4)})
    told = network.describe_graph(p)
    stacks = [part for part in told["tree"] if isinstance(part, dict)]
    assert [stack["times"] for stack in stacks] == [4] and stacks[0]["of"] == 4
    ops_of = [[told["nodes"][leaf]["op"] for leaf in member] for member in stacks[0]["members"]]
    assert ops_of == [["matmul", "relu"]] * 4


def test_repetitions_that_are_sharded_otherwise_are_apart() -> None:
    cuts = {f"x product{k}": {"m": 2} if k < 3 else {"n": 2} for k in range(4)}
    told = network.describe_graph(plan(chain(), Mesh(2), fuse=False, fix=cuts))
    assert sum(part["times"] for part in told["tree"] if isinstance(part, dict)) == 4
    assert max(part["times"] for part in told["tree"] if isinstance(part, dict)) < 4


def test_bars_are_the_alternatives_of_the_plan() -> None:
    p = plan(chain(), Mesh((2, 2)), fuse=False)
    told = p.report().data
    for head in told["operators"]:
        markup = told["explained"][head["key"]]["reasons"]
        rows = [one for one in Elements(markup).having("data-nbytes") if "data-seconds" in one]
        others = p.alternatives[head["key"]][: tuning.SHOWN_ALTERNATIVES]
        assert [int(str(row["data-nbytes"])) for row in rows] == [one.nbytes_moved for one in others]
        np.testing.assert_allclose(
            [float(str(row["data-seconds"])) for row in rows], [one.seconds for one in others], rtol=1e-8
        )
        assert sum(row.get("class") == "tp-chosen" for row in rows) == 1


@pytest.mark.parametrize("make", [chain, residual])
def test_operators_share_reasons_where_all_numbers_are_equal(make: Any) -> None:
    """Alike operators between others cost otherwise than the first of them, as the ends of a chain do."""
    p = plan(make(), Mesh(4), fuse=False)
    _, standing = operators.explain_operators(p)
    assert len(set(standing.values())) < len(standing) == len(p.graph.nodes)
    for node, key in standing.items():
        mine, theirs = p.alternatives[node], p.alternatives[key]
        assert [(one.sharding, one.seconds, one.nbytes_moved) for one in mine] == [
            (one.sharding, one.seconds, one.nbytes_moved) for one in theirs
        ]
        assert [[(c.what, c.seconds, c.nbytes) for c in one.causes] for one in mine] == [
            [(c.what, c.seconds, c.nbytes) for c in one.causes] for one in theirs
        ]


def test_each_bar_has_its_reasons() -> None:
    p = plan(chain(), Mesh((2, 2)), fuse=False)
    told = p.report().data
    for name, one in told["explained"].items():
        said = [words for tag, words in Elements(one["reasons"]).words if tag == "p"]
        wanted = [reason for other in p.alternatives[name][: tuning.SHOWN_ALTERNATIVES] for reason in other.reasons]
        assert said[1 : 1 + len(wanted)] == wanted and len(said) <= 2 + len(wanted)


def test_devices_that_hold_nothing_say_so() -> None:
    g = Graph()
    g.output(ops.relu(g.input("x", (1, 3)), name="act"), "y")
    p = plan(g, Mesh(4), fix={"act": {"i1": 3}})
    markup = p._repr_html_()
    idle = [use for use in p.memory if use.peak_step < 0]
    assert idle and "step -1" not in markup and len(idle) == markup.count("nothing lies there at any step")


def test_reasons_are_the_sentences_of_explain() -> None:
    p = plan(chain(), Mesh((2, 2)), fuse=False)
    told = p.report().data
    for name, one in told["explained"].items():
        said = [words for tag, words in Elements(one["reasons"]).words if tag == "li"]
        assert said and all(words in p.explain(name) for words in said)


def test_every_picture_says_what_it_is_and_what_it_shows() -> None:
    p = plan(chain(), Mesh(2), fuse=False, fix={"x product0": {"k": 2}, "x product1": {"n": 2}})
    inputs = {name: np.zeros(t.shape, np.float32) for name, t in p.graph.stored.items() if t.kind == "input"}
    made = p.report(run=run(p, inputs))
    markup = made.html + "".join(one["picture"] for one in made.data["explained"].values())
    pictures = re.findall(
        r'<svg[^>]*role="img"[^>]*>\s*<title[^>]*>([^<]+)</title>\s*<desc[^>]*>([^<]+)</desc>', markup
    )
    assert len(pictures) == len(re.findall("<svg[^>]*>", markup)) > 10
    curves = [told for title, told in pictures if title.startswith("bytes that device")]
    assert len(curves) == 2
    for told, use in zip(curves, p.memory, strict=True):
        assert f"{use.peak_nbytes:,} B at step {use.peak_step}" in told
    lanes = [told for title, told in pictures if title.startswith("device 0 works")]
    assert len(lanes) == 2 and all("x product0 from 0 s to " in told for told in lanes[:1])


def test_names_with_line_breaks_are_told_whole() -> None:
    g = Graph("first\nsecond")
    g.output(ops.relu(g.input("with every\nother x", (4, 4)), name="with every\nother operator"), "y")
    made = plan(g, Mesh(2)).report()
    assert len(repr(made).splitlines()) == 1
    (one,) = made.data["explained"].values()
    said = [words for tag, words in Elements(one["reasons"]).words if tag == "li"]
    assert len(said) == 2 and said[0].startswith("receives 0 B")
    assert said[1] == r"reads 64 B of input with every\nother x, all of it where it is placed"


def test_a_run_stands_beside_what_was_predicted() -> None:
    p = plan(chain(), Mesh(2), fuse=False, fix={"x product0": {"k": 2}, "x product1": {"n": 2}})
    inputs = {name: np.zeros(t.shape, np.float32) for name, t in p.graph.stored.items() if t.kind == "input"}
    r = run(p, inputs)
    page = Elements(p.report(run=r).html)
    ends = {one["data-lanes"]: float(str(one["data-seconds"])) for one in page.having("data-lanes")}
    assert set(ends) == {"predicted", "measured"}
    assert ends["predicted"] == pytest.approx(p.makespan_seconds) and ends["measured"] >= max(
        event.start + event.seconds for event in r.timeline if event.kind == "compute"
    ) * (1 - 1e-6)
    shown = Elements(r._repr_html_())
    found = {int(str(one["data-nbytes"])) for one in shown.having("data-from")}
    assert found == {0, *r.nbytes_by_link.values()} and p.nbytes_moved > 0


def test_a_run_of_another_plan_is_refused() -> None:
    g = chain()
    one, other = plan(g, Mesh(2)), plan(g, Mesh(2), fuse=False, fix={"x product0": {"k": 2}, "x product1": {"n": 2}})
    inputs = {name: np.zeros(t.shape, np.float32) for name, t in g.stored.items() if t.kind == "input"}
    with pytest.raises(ValueError, match=r"^report: the run moved .* give the result of run"):
        other.report(run=run(one, inputs))
    with pytest.raises(ValueError, match=r"^report: the run has 1 devices and the plan has 2; give the result"):
        one.report(run=run(plan(g, Mesh(1)), inputs))
    still = plan(g, Mesh(1), fuse=False)
    with pytest.raises(ValueError, match=r"^report: step .* give the result"):
        still.report(run=run(plan(g, Mesh(1)), inputs))


def test_what_cannot_be_is_refused_in_one_line(tmp_path: Path) -> None:
    p = plan(chain(), Mesh(1))
    for bad, words in ((tmp_path / "no" / "r.html", "does not exist"), (tmp_path, "is a folder")):
        for ask in (p.report, p.report().save):
            with pytest.raises(ValueError, match=f"^report: .*{words}") as caught:
                ask(bad)
            assert "\n" not in str(caught.value)
    with pytest.raises(TypeError, match=r"^ShardPlan.report: run must be .* give what run"):
        p.report(run=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("outputs", [0, 1])
def test_a_plan_without_operators_has_a_page(outputs: int) -> None:
    g = Graph()
    if outputs:
        g.output(g.input("x", (4,)), "y")
    p = plan(g, Mesh((2, 2)))
    made = p.report(run=run(p, {"x": np.zeros(4, np.float32)} if outputs else {}))
    assert "0 operators on 2×2 devices" in made.html and not made.left_out
    assert [node["name"] for node in made.data["graph"]["nodes"]] == ["y"] * outputs
    assert made.data["explained"] == {} and made.data["operators"] == []


def test_names_are_words_and_never_markup(tmp_path: Path) -> None:
    p = plan(chain(HOSTILE), Mesh(2), fuse=False, fix={f"{HOSTILE} turned": {"i0": 2}, f"{HOSTILE} product0": {"m": 2}})
    made = p.report(tmp_path / "report.html")
    for html in (
        made.html,
        show_plan(p),
        *(one["reasons"] + one["picture"] for one in made.data["explained"].values()),
    ):
        tags = [tag for tag, _ in Elements(html).found]
        assert "img" not in tags and "alert(" not in " ".join(w for tag, w in Elements(html).words if tag == "script")
        assert "\x1b" not in html
    assert [tag for tag, _ in Elements(made.html).found].count("script") == 3
    assert (tmp_path / "report.html").read_text("utf-8") == made.html
    frame = Elements(made._repr_html_())
    assert [tag for tag, _ in frame.found] == ["iframe"]
    inside = frame.found[0][1]["srcdoc"]
    assert inside is not None and inside.replace('<base href="about:srcdoc">', "", 1) == made.html != inside


def test_plain_data_are_json() -> None:
    told = plan(chain(), Mesh(2)).report().data
    assert json.loads(json.dumps(told)) == told


def test_too_large_a_report_says_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    p = transformer()
    whole = p.report()
    assert not whole.left_out and len(whole.html.encode()) <= tuning.MAX_NBYTES
    from tapestry_plan.report import page

    monkeypatch.setattr(page, "MAX_NBYTES", len(whole.html.encode()) - 30_000)
    less = make_report(p)
    assert len(less.html.encode()) <= len(whole.html.encode()) - 30_000
    assert re.search(r"\d+ pictures? of operators, the largest", less.left_out[0])
    assert f"Left out: {less.left_out[0]}." in less.html


def test_many_devices_are_joined_and_counted() -> None:
    g = Graph()
    g.output(ops.exp(ops.relu(g.input("x", (80, 80)), name="rows").T, name="columns"), "y")
    p = plan(g, Mesh(40), space="mesh", fuse=False, fix={"rows": {"i0": 40}, "columns": {"i0": 40}})
    cells = Elements(show_plan(p)).having("data-from")
    assert len(cells) == 14**2
    assert sum(int(str(one["data-nbytes"])) for one in cells) == p.nbytes_moved > 0


def test_assumptions_name_the_machine() -> None:
    slow, fast, device = Link(2e-6, 3e9), Link(1e-6, 4e10), Device(5e12, 7e11, 3e-6, 1 << 30)
    mesh = Mesh((2, 2), names=("rack", "card"), link={"rack": slow, "card": fast}, device=device)
    text = " ".join(words for _, words in Elements(show_plan(plan(chain(), mesh))).words)
    for said in ("rack of 2, card of 2", "3 GB/s", "40 GB/s", "5 TFLOP/s", "700 GB/s", "1 GiB", "3 us", "2 us"):
        assert said in text, said


@pytest.mark.parametrize("steps", [3, 5_000])
def test_curves_keep_the_most(steps: int) -> None:
    rng = np.random.default_rng(steps)
    held = [(k, int(rng.integers(0, 1000))) for k in range(steps)]
    points = list_points(held, steps)
    assert len(points) <= max(tuning.POINTS, 3)
    assert max(n for _, n in points) == max(n for _, n in held)
    each = points[1][0] - points[0][0]
    for step, nbytes in held:
        assert points[step // each][1] >= nbytes


def test_operators_that_are_too_many_to_explain_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "MAX_EXPLAINED", 2)
    made = plan(chain(), Mesh(2), fuse=False).report()
    untold = [one["name"] for one in made.data["operators"] if one["key"] is None]
    assert len(made.data["explained"]) == 2 and untold
    assert made.left_out == (f"reasons of {len(untold)} operators: too many differ",)


def test_of_too_many_edges_those_with_a_path_beside_them_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    g = Graph()
    made = [ops.exp(g.input("x", (8, 8)), name="e0")]
    for k in range(1, 9):
        made.append(ops.exp(ops.add_n(*made, name=f"sum{k}") if k > 1 else made[0], name=f"e{k}"))
    g.output(made[-1], "y")
    p = plan(g, Mesh(2), fuse=False, expand=False)
    whole = network.describe_graph(p)
    monkeypatch.setattr(network, "MAX_EDGES", 10)
    made_less = p.report()
    less = made_less.data["graph"]
    assert less["dropped"] == len(whole["edges"]) - len(less["edges"]) > 0
    assert f"{less['dropped']} edges of the graph" in made_less.left_out[0]
    assert reachable(whole["edges"]) == reachable(less["edges"])


def reachable(edges: list[Any]) -> set[tuple[int, int]]:
    """All pairs that paths join, by going through them."""
    after: dict[int, set[int]] = {}
    for a, b, *_ in edges:
        after.setdefault(a, set()).add(b)
    found = set()
    for start in after:
        todo = [start]
        while todo:
            for b in after.get(todo.pop(), ()):
                if (start, b) not in found:
                    found.add((start, b))
                    todo.append(b)
    return found
