"""Reports as a browser shows them: no error, no request, keys, widths, contrast, and numbers read back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tapestry_plan import Mesh, ShardPlan, plan
from tapestry_plan.report import network, show_plan, tuning
from tests.pages import CONTRASTS, Opened, open_page
from tests.report_models import chain, layers, resnet50, transformer

HEAVY = [pytest.param(resnet50, marks=pytest.mark.heavy, id="resnet50"), pytest.param(layers, marks=pytest.mark.heavy)]
SLOWEST_SECONDS = 10.0
"""Until a page answers the first key on a machine that does other things; tests/bench/results/report.md has 2."""
LEAST_CONTRAST = 4.5


@cache
def page_of(make: Callable[[], ShardPlan]) -> str:
    return str(make().report().html)


def chained() -> ShardPlan:
    cuts = {f"x product{k}": {"m": 4} for k in range(4)} | {"x turned": {"i0": 4}}
    return plan(chain(), Mesh((2, 2)), fuse=False, fix=cuts)


@pytest.fixture
def written(tmp_path: Path) -> Callable[[Callable[[], ShardPlan]], Path]:
    def write(make: Callable[[], ShardPlan]) -> Path:
        path = tmp_path / "report.html"
        path.write_text(page_of(make), "utf-8")
        return path

    return write


@pytest.fixture(scope="module")
def opened(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """The report of a chain, open once for all that look at it."""
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page_of(chained), "utf-8")
    with open_page(browser, path) as found:
        found.wait()
        yield found
        assert not found.printed


@pytest.mark.parametrize("make", [transformer, *HEAVY])
def test_a_report_opens_alone_and_answers_soon(browser: Any, written: Any, make: Callable[[], ShardPlan]) -> None:
    path = written(make)
    assert path.stat().st_size <= tuning.MAX_NBYTES
    with open_page(browser, path) as opened:
        page = opened.page
        page.wait_for_selector(".tp-node[tabindex='0'], .tp-stack[tabindex='0']")
        page.locator(".tp-node").nth(1).focus()
        page.keyboard.press("Enter")
        page.wait_for_selector(".tp-node[aria-pressed=true]")
        assert page.evaluate("performance.now()") <= SLOWEST_SECONDS * 1000
        chosen = page.locator(".tp-node[aria-pressed=true] title").first.text_content()
        assert page.locator(".tp-detail h2").text_content() in chosen
        assert not opened.printed
        assert opened.asked[0] == path.resolve().as_uri()
        assert all(url.startswith("blob:") for url in opened.asked[1:]), "what the page makes itself"


@pytest.mark.heavy(2)
def test_links_of_a_report_in_a_notebook_lead_to_its_parts(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "notebook.html"
    path.write_text(f"<title>a notebook</title>{chained().report()._repr_html_()}", "utf-8")
    with open_page(browser, path) as opened:
        inside = opened.page.frame_locator("iframe")
        inside.locator("[data-ready]").wait_for()
        inside.get_by_role("link", name="time").click()
        frame = opened.page.frames[1]
        frame.wait_for_function("window.scrollY > 0")
        assert frame.url == "about:srcdoc#lanes" and not opened.printed


@pytest.mark.heavy(2)
def test_keys_reach_and_choose_operators(opened: Opened) -> None:
    p = chained()
    page = opened.page
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.matches('.tp-node, .tp-stack')"):
            break
    page.keyboard.press("Home")
    seen = set()
    for _ in range(12):
        page.keyboard.press("Enter") if page.evaluate("document.activeElement.matches('.tp-node')") else None
        seen.add(page.locator(".tp-detail h2").text_content())
        page.keyboard.press("ArrowDown")
    assert {"x product0", "x relu0", "x turned", "x end"} <= seen
    # A block that is repeated unfolds, and folds, by Enter; its operators are then all there.
    told = network.describe_graph(p)
    tree, every = told["tree"], len(told["nodes"])
    folded = sum(1 if isinstance(part, int) else len(part["members"][0]) for part in tree)
    assert page.locator(".tp-node").count() == folded < every
    page.locator(".tp-stack[aria-expanded=false]").focus()
    page.keyboard.press("Enter")
    page.wait_for_function(f"document.querySelectorAll('.tp-node').length === {every}")
    names = page.locator(".tp-node title").all_text_contents()
    assert {name.split(":")[0] for name in names if ":" in name} == set(p.graph.nodes)
    assert page.evaluate("document.activeElement.matches('.tp-stack')")
    page.keyboard.press("Enter")
    page.wait_for_function(f"document.querySelectorAll('.tp-node').length === {folded}")


def test_search_finds_and_unfolds(opened: Opened) -> None:
    page = opened.page
    page.locator("input[type=search]").fill("relu3")
    page.keyboard.press("Enter")
    page.wait_for_function("document.querySelector('.tp-detail h2').textContent === 'x relu3'")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')").startswith("x relu3, relu, sharded")
    page.locator("input[type=search]").fill("no such thing")
    assert "nothing has this" in page.locator(".tp-found").text_content()


def test_pairs_list_their_transfers(opened: Opened) -> None:
    p = chained()
    assert p.nbytes_moved > 0
    page = opened.page
    for (source, target), nbytes in sorted(p.nbytes_by_link.items())[:6]:
        page.locator(f"td[data-from='{source},{source}'][data-to='{target},{target}']").click()
        shown = page.locator(".tp-pairs")
        assert int(shown.get_attribute("data-nbytes")) == nbytes
        wanted = sorted(p.transfers(source, target), key=lambda row: -row.nbytes)[:10]
        rows = shown.locator("tbody tr").all()
        assert [int(row.get_attribute("data-step")) for row in rows] == [one.step for one in wanted]
        assert rows[0].locator("td").all_text_contents()[-1] == wanted[0].why
    page.locator("td[data-from='0,0'][data-to='0,0']").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.locator("td[aria-pressed=true]").get_attribute("data-to") == "1,1"


def test_operators_show_their_parts_and_their_reasons(opened: Opened) -> None:
    p = chained()
    page = opened.page
    page.locator("[data-node] title", has_text="x turned:").locator("..").click()
    detail = page.locator(".tp-detail")
    roles = detail.locator("[data-role]").evaluate_all("all => all.map((one) => one.dataset.role)")
    assert roles == ["index", "input 0", "output 0"]
    parts = detail.locator("[data-role=index] [data-in]:not([data-in=''])").count()
    assert parts == p.sharding["x turned"]["i0"]
    bars = detail.locator(".tp-bars tr[data-seconds]")
    assert bars.count() == len(p.alternatives["x turned"])


def test_where_pages_may_have_no_workers_the_graph_is_laid_out_too(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    allowed = "script-src 'unsafe-inline' 'unsafe-eval' blob:; worker-src blob:"
    html = page_of(chained)
    assert allowed in html
    path.write_text(html.replace(allowed, "script-src 'unsafe-inline' 'unsafe-eval'; worker-src 'none'"), "utf-8")
    with open_page(browser, path) as opened:
        opened.wait()
        assert opened.page.locator(".tp-node").count() > 4
        assert any("worker" in line.lower() for line in opened.printed), "it was refused one"


@pytest.mark.heavy(2)
def test_zoom_and_pan_keep_to_the_panel(browser: Any, written: Any) -> None:
    with open_page(browser, written(transformer)) as opened:
        opened.wait()
        page = opened.page
        wide = "document.querySelector('.tp-graph svg').getBoundingClientRect().width"
        before = page.evaluate(wide)
        page.locator("[data-do=in]").click()
        assert page.evaluate(wide) == pytest.approx(1.25 * before, rel=0.01)
        page.locator("[data-do=whole]").click()
        room = page.locator(".tp-graph").bounding_box()
        assert (
            page.evaluate("document.querySelector('.tp-graph svg').getBoundingClientRect().height")
            <= room["height"] + 1
        )
        page.locator("[data-do=fit]").click()
        page.mouse.move(room["x"] + 30, room["y"] + 200)
        page.mouse.down()
        page.mouse.move(room["x"] + 30, room["y"] + 60, steps=4)
        page.mouse.up()
        assert page.evaluate("document.querySelector('.tp-graph').scrollTop") == pytest.approx(140, abs=8)


@pytest.mark.heavy(2)
def test_nothing_scrolls_sideways_and_all_words_are_legible(browser: Any, written: Any, tmp_path: Path) -> None:
    still = tmp_path / "still.html"
    still.write_text(f"<!doctype html><meta charset='utf-8'>{show_plan(transformer())}", "utf-8")
    grounds = set()
    for path in (written(transformer), still):
        with open_page(browser, path) as opened:
            page = opened.page
            if path != still:
                opened.wait()
            for width, scheme in product((400, 1600), ("light", "dark")):
                page.set_viewport_size({"width": width, "height": 900})
                page.emulate_media(color_scheme=scheme)
                assert page.evaluate("document.documentElement.scrollWidth") <= width
                found = page.evaluate(CONTRASTS)
                assert len(found) > 10
                faint = [one for one in found if one[2] < LEAST_CONTRAST]
                assert not faint, (path.name, width, scheme, faint)
                ground = page.evaluate("getComputedStyle(document.querySelector('.tp-root')).backgroundColor")
                grounds.add((scheme, ground))
    assert grounds == {("light", "rgb(255, 255, 255)"), ("dark", "rgb(17, 17, 17)")}


def test_words_that_are_faint_are_seen(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "faint.html"
    path.write_text('<div class="tp-root" style="background:#111"><b style="color:#555">faint</b></div>', "utf-8")
    with open_page(browser, path) as opened:
        [(_, words, ratio)] = opened.page.evaluate(CONTRASTS)
    assert words == "faint" and 2 < ratio < 3


@pytest.mark.heavy(2)
def test_in_a_notebook_the_report_follows_the_notebook(browser: Any, tmp_path: Path) -> None:
    made = chained().report()
    light, dark = "rgb(255, 255, 255)", "rgb(17, 17, 17)"
    for theme, ground in (
        ("data-jp-theme-light='true'", light),
        ("data-jp-theme-light='false'", dark),
        ("data-theme='dark'", dark),
        ("class='vscode-light'", light),
    ):
        path = tmp_path / "notebook.html"
        path.write_text(f"<!doctype html><meta charset='utf-8'><body {theme}>{made._repr_html_()}</body>", "utf-8")
        with open_page(browser, path, 900, "dark" if ground == light else "light") as opened:
            frame = opened.page.frame_locator("iframe")
            frame.locator("[data-ready]").wait_for()
            assert frame.locator("body").evaluate("(body) => getComputedStyle(body).backgroundColor") == ground
            assert not opened.printed
