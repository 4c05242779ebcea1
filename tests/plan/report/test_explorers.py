"""Explorers: sliders ask Python anew, the module parses, and it renders on a model that a page plays."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from tapestry_plan import Device, Graph, Link, Mesh, ops, plan
from tapestry_plan.report.tuning import MEMORY_SHARES
from tapestry_plan.steps import least_memory, spill
from tapestry_sets import allocate, overlap
from tests.pages import open_page
from tests.report_models import chain, residual

pytest.importorskip("anywidget", reason="explorers are widgets of anywidget")
from tapestry_plan import OverlapExplorer, PlanExplorer

MODEL = """<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width"><style>%s</style>
<div id="here"></div><script type="module">
const traits = %s, listeners = {};
traits.layouter = Uint8Array.from(atob(traits.layouter), (c) => c.charCodeAt(0));
window.sent = [];
window.model = {
  get: (name) => traits[name],
  set: (name, value) => { traits[name] = value; },
  save_changes: () => window.sent.push(traits.places),
  on: (name, react) => { (listeners[name] ||= new Set()).add(react); },
  off: (name, react) => listeners[name].delete(react),
  receive: (name, value) => { traits[name] = value; (listeners["change:" + name] || []).forEach((react) => react()); },
};
const url = URL.createObjectURL(new Blob([%s], { type: "text/javascript" }));
const { default: widget } = await import(url);
window.stop = widget.render({ model: window.model, el: document.getElementById("here") });
</script>"""


SHADOW = """document.body.dataset.theme = "dark";
const here = document.getElementById("here"), shadow = here.attachShadow({ mode: "open" });
shadow.append(document.querySelector("style"), document.createElement("div"));
window.stop = widget.render({ model: window.model, el: shadow.lastChild });"""
"""A page whose theme it says itself, and which keeps widgets in shadows, as marimo does."""


def harness(widget: Any, is_shadow: bool = False) -> str:
    traits = {name: getattr(widget, name) for name in ("controls", "places", "said", "answer")}
    traits["layouter"] = b64encode(widget.layouter).decode()
    told, module = (json.dumps(value).replace("</", "<\\/") for value in (traits, widget._esm))
    page = MODEL % (widget._css, told, module)
    if not is_shadow:
        return page
    line = next(one for one in page.splitlines() if one.startswith("window.stop"))
    return page.replace(line, SHADOW)


def controls(widget: Any) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in widget.controls}


@pytest.mark.heavy(2)
def test_sliders_plan_anew() -> None:
    g = chain()
    explorer = PlanExplorer(g, Mesh((2, 2), link=Link(1e-6, 1e9)), fuse=False)
    first = explorer.plan
    assert first == plan(g, Mesh((2, 2), link=Link(1e-6, 1e9)), fuse=False)
    told = controls(explorer)
    assert (
        told["mesh"]["words"][told["mesh"]["place"]] == "2×2"
        and told["link"]["words"][told["link"]["place"]] == "1 GB/s"
    )
    heard: list[Any] = []
    explorer.observe(lambda change: heard.append(change["new"]), names="answer")
    explorer.places = {"mesh": told["mesh"]["words"].index("3"), "link": told["link"]["words"].index("4 GB/s")}
    assert explorer.plan == plan(g, Mesh((3,), link=Link(1e-6, 4e9)), fuse=False)
    assert len(heard) == 1 and f"{explorer.plan.nbytes_moved:,} B" in explorer.said
    explorer.places = {}
    assert explorer.plan is first, "plans are kept"


def test_memory_is_a_share_of_what_the_fastest_plan_takes() -> None:
    explorer = PlanExplorer(chain(), Mesh(2), fuse=False)
    free = max(explorer.plan.peak_nbytes)
    words = controls(explorer)["memory"]["words"]
    explorer.places = {"memory": 2}
    assert words[2].endswith("a device")
    assert max(explorer.plan.peak_nbytes) <= 0.9 * free or explorer.said.startswith("No such plan: ")


def test_what_cannot_be_planned_is_said_and_the_last_plan_stays() -> None:
    explorer = PlanExplorer(chain(), Mesh((4,)), fix={"x product0": {"m": 4}})
    before = explorer.plan
    explorer.places = {"mesh": 0}
    assert explorer.said.startswith("No such plan: ") and explorer.plan is before
    with pytest.raises(ValueError, match="no operator"):
        PlanExplorer(chain(), Mesh(2), fix={"nobody": {"m": 2}})


def test_a_plan_is_explored_as_it_is() -> None:
    p = plan(chain(), Mesh((2, 2), names=("a", "b"), link={"a": Link(1e-6, 1e9), "b": Link(1e-6, 4e9)}), space="mesh")
    explorer = PlanExplorer(p)
    assert explorer.plan.mesh == p.mesh and explorer.plan.space == p.space
    assert len(controls(explorer)["mesh"]["words"]) == 1, "axes have links of their own"
    uneven = PlanExplorer(chain(), Mesh(2, device=[Device(1e12), Device(2e12)]))
    assert len(controls(uneven)["mesh"]["words"]) == 1


@pytest.mark.heavy(2)
def test_the_slider_of_memory_shows_plans_that_spill_and_place_inputs_twice() -> None:
    explorer = PlanExplorer(residual(), Mesh(2))
    spilled = False
    for place in range(len(MEMORY_SHARES)):
        explorer.places = {"memory": place}
        spilled |= any(explorer.plan.nbytes_spilled)
        assert explorer.said.startswith("No such plan: device ") or " modeled, gap " in explorer.said
        assert "tp-panel" in explorer.answer["html"]
    assert spilled


def test_what_cannot_be_shown_is_said_and_the_last_plan_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    explorer = PlanExplorer(chain(), Mesh(2))
    before, html = explorer.plan, explorer.answer["html"]

    def refuse(plan: Any) -> Any:
        raise ValueError("no panel for this one")

    monkeypatch.setattr("tapestry_plan.report.widgets.panels_of", refuse)
    explorer.places = {"mesh": 0}
    assert explorer.said == "No such plan: no panel for this one"
    assert explorer.plan is before and explorer.answer["html"] == html


def test_a_plan_keeps_its_caps() -> None:
    g = residual()
    free = plan(g, Mesh(2), fuse=False)
    caps = least_memory(free)
    spilled = spill(free, max(caps))
    explorer = PlanExplorer(spilled, fuse=False)
    assert max(explorer.plan.peak_nbytes) <= max(caps) < max(free.peak_nbytes)
    assert controls(explorer)["memory"]["words"][0] == f"{max(caps) // 1024} KiB a device"
    assert len(controls(explorer)["mesh"]["words"]) > 1
    uneven = PlanExplorer(spill(free, (max(caps), 2 * max(caps))), fuse=False)
    assert uneven.plan.mesh.limit_memory() == (max(caps), 2 * max(caps))
    assert all(mine <= cap for mine, cap in zip(uneven.plan.peak_nbytes, (max(caps), 2 * max(caps)), strict=True))
    assert max(PlanExplorer(spilled, memory_nbytes=10**9, fuse=False).plan.peak_nbytes) > max(caps), "options say more"
    capped = plan(g, Mesh(2), fuse=False, memory_nbytes=int(max(free.peak_nbytes) * 0.8))
    assert max(PlanExplorer(capped, fuse=False).plan.peak_nbytes) <= int(max(free.peak_nbytes) * 0.8)
    assert controls(PlanExplorer(free))["memory"]["words"][0] == "no limit"


def test_overlaps_are_asked_anew() -> None:
    memory = allocate((27,), name="A")
    a, b = memory.reshape(3, 3, 3)[:2, :2, :2], memory[2::5]
    explorer = OverlapExplorer(a, b)
    assert explorer.said == repr(overlap(a, b)) and "<svg" in explorer.answer["html"]
    assert [one["label"] for one in explorer.controls if one["name"].startswith("b")] == [
        "b, axis 0: start",
        "b, axis 0: step",
    ]
    explorer.places = {"b 0 start": 1, "b 0 step": 1, "a 2 start": 1}
    assert explorer.said == repr(overlap(a[:, :, 1:], b[1::2]))
    explorer.places = {"b 0 start": 99, "a 0 step": "x"}
    assert explorer.said == repr(overlap(a, b[b.shape[0] - 1 :]))


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match=r"source must be .*; give a Graph, or a ShardPlan"):
        PlanExplorer(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"b must be .*; give a view"):
        OverlapExplorer(allocate((3,)), "b")  # type: ignore[arg-type]


def test_without_anywidget_one_line_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['anywidget'] = None; import tapestry_plan\n"
        "try: tapestry_plan.PlanExplorer\n"
        "except ImportError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == (
        "explorers are widgets of anywidget, which is not installed; pip install 'tapestry-tensor[widgets]', and ask "
        "again\n"
    )


def test_the_module_parses(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("the module is parsed by node, which is not installed")
    path = tmp_path / "widget.mjs"
    path.write_text(PlanExplorer._esm, "utf-8")
    subprocess.run([node, "--check", path], check=True)


@pytest.mark.heavy(2)
def test_explorers_render_and_send_what_is_asked(browser: Any, tmp_path: Path) -> None:
    g = Graph()
    g.output(ops.exp(ops.relu(g.input("x", (8, 8)), name="rows").T, name="columns"), "y")
    explorer = PlanExplorer(g, Mesh(2), fuse=False, fix={"rows": {"i0": 2}, "columns": {"i0": 2}})
    path = tmp_path / "plan.html"
    path.write_text(harness(explorer), "utf-8")
    with open_page(browser, path, 400) as opened:
        opened.wait()
        page = opened.page
        assert page.locator(".tp-node").count() == 4
        assert page.locator(".tp-sliders input").count() == 3
        slider = page.locator("input[data-name=link]")
        slider.focus()
        page.keyboard.press("ArrowRight")
        assert page.evaluate("sent") == [{"link": 5}]
        assert page.locator(":focus").get_attribute("data-lm-suppress-shortcuts"), "JupyterLab leaves it its keys"
        explorer.places = {"link": 5}
        for name in ("controls", "said", "answer"):
            page.evaluate(f"model.receive({name!r}, {json.dumps(getattr(explorer, name))})")
        assert page.locator("label:has([data-name=link]) output").text_content() == "20 GB/s"
        assert explorer.said in page.locator(".tp-widget").text_content()
        assert page.evaluate("document.activeElement.dataset.name") == "link", "the slider keeps the keys"
        page.wait_for_selector(".tp-node")
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
        page.evaluate("stop()")
        assert not opened.printed
    memory = allocate((27,), name="A")
    path.write_text(harness(OverlapExplorer(memory.reshape(3, 3, 3)[:2, :2, :2], memory[2::5])), "utf-8")
    with open_page(browser, path, 400, "dark") as opened:
        opened.page.wait_for_selector(".tp-answer svg.tapestry-narrow")
        assert opened.page.locator(".tp-sliders input").count() == 8
        assert "Overlap(1 cell" in opened.page.locator(".tp-widget").text_content()
        assert not opened.printed
    path.write_text(harness(OverlapExplorer(memory[::2], memory[1::2]), is_shadow=True), "utf-8")
    with open_page(browser, path, 900, "light") as opened:
        page, ground = opened.page, "(one) => getComputedStyle(one).backgroundColor"
        root, picture = page.locator(".tp-widget"), page.locator(".tp-answer svg.tapestry >> nth=0")
        assert root.evaluate(ground) == "rgb(17, 17, 17)", "the page's theme, not the system's"
        assert picture.evaluate("(one) => getComputedStyle(one).colorScheme") == "dark"
        page.locator("input >> nth=1").focus()
        page.evaluate("model.receive('controls', model.get('controls'))")
        assert page.evaluate("here.shadowRoot.activeElement.dataset.name") == "a 0 step", "the slider keeps the keys"
        page.evaluate("document.body.dataset.theme = 'light'")
        page.wait_for_function("here.shadowRoot.querySelector('.tp-widget').dataset.theme === 'light'")
        assert root.evaluate(ground) == "rgb(255, 255, 255)"
        assert not opened.printed
