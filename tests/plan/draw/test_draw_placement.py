"""Pictures of where tensors lie, read back cell by cell and compared with NumPy's view of who computes what."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tapestry_plan import Device, Graph, Link, Mesh, Placed, concat, ops, plan
from tapestry_plan.draw import show_placement
from tapestry_plan.draw.tuning import SHOWN_TENSORS
from tests.drawings import assert_legible, read

MACHINES = Mesh((4,), device=Device(flop_per_second=1e9), link=Link(1e-6, 1e9))


def devices_of(text: str) -> dict[str, str]:
    """The marks of each tensor of one axis that a picture has, in the order of its cells."""
    found = {}
    for block in text.split("\n\n"):
        caption, _, *lines = block.splitlines()
        found[caption.split(",")[0]] = lines[0]
    return found


VIEWS: dict[str, Callable[[Any], Any]] = {
    "flipped": lambda e: e[::-1],
    "rolled": lambda e: (concat if not isinstance(e, np.ndarray) else np.concatenate)([e[8:], e[:8]], 0),
    "riffled": lambda e: e.reshape(2, 8).T.reshape(16),
    "strided": lambda e: (concat if not isinstance(e, np.ndarray) else np.concatenate)([e[::2], e[1::2]], 0),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_where_nothing_moves_each_cell_ends_where_it_began(view: Callable[[Any], Any]) -> None:
    g = Graph()
    g.output(ops.tanh(view(ops.exp(g.input("x", (16,))))), "y")
    p = plan(g, MACHINES)
    picture = show_placement(p, title="x and y")
    found = devices_of(picture.text.removeprefix("x and y\n"))
    assert p.nbytes_moved == 0
    assert found["y"] == "".join(view(np.array(list(found["x"]))))
    assert sorted(found["x"]) == sorted("0123" * 4)
    for device in range(4):
        assert len(re.findall(rf"^{device}  device {device} has .*: 4 of 16 cells$", picture.text, re.M)) == 2
    shown = read(picture.svg)
    assert_legible(shown)
    assert {"x, an input: float32 (16,)", "y, an output: float32 (16,)"} <= {word.words for word in shown.words}


def test_tensors_lie_where_they_were_asked_to() -> None:
    g = Graph()
    x, w = g.input("x", (8,)), g.constant("w", np.ones(8, np.float32))
    g.output(x + w, "y")
    where = Placed({0: np.s_[:3], 1: np.s_[3:5], 3: np.s_[5:]})
    p = plan(g, MACHINES, layout={"x": where, "w": Placed({2: ...}), "y": where})
    found = devices_of(show_placement(p, ["y", "w", "x"]).text)
    assert (list(found), found["x"], found["y"], found["w"]) == (["y", "w", "x"], "00011333", "00011333", "2" * 8)
    assert "device 2 has nothing: 0 of 8 cells" in show_placement(p, ["x"]).text
    copies = plan(g, MACHINES, layout={"x": {0: 2}})
    assert "X  devices 0, 1 have [0:4]: 4 of 8 cells" in show_placement(copies, ["x"]).text
    assert "X  in two or more: 8 of 8 cells" in show_placement(copies, ["x"]).text


def test_what_is_drawn_without_names() -> None:
    """Inputs and outputs, the first ones; constants where they are named."""
    g = Graph()
    total = g.constant("c", np.ones(4, np.float32)) * 2.0
    for number in range(SHOWN_TENSORS):
        total = total + g.input(f"x{number}", (4,))
    g.output(total, "y")
    picture = show_placement(plan(g, Mesh((2,))))
    assert picture.text.count(", an input: ") == SHOWN_TENSORS and "a constant" not in picture.text
    assert picture.text.endswith("1 more not drawn: name the tensors to draw")
    assert "c, a constant: float32 (4,)" in show_placement(plan(g, Mesh((2,))), ["c"]).text


def test_other_names_are_refused() -> None:
    g = Graph()
    g.output(ops.exp(g.input("x", (4,))), "y")
    p = plan(g, Mesh((2,)))
    with pytest.raises(ValueError, match=r"'exp' is not an input, a constant or an output; .*'x', 'y'"):
        show_placement(p, ["exp"])
    with pytest.raises(TypeError, match="names must be"):
        show_placement(p, "x")
    with pytest.raises(TypeError, match="plan must be a ShardPlan"):
        show_placement(g)  # type: ignore[arg-type]
