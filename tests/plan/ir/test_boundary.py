"""What operands read outside their tensors: each policy against NumPy, whole and sharded; boxes that begin anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_exec import evaluate, run
from tapestry_plan import Axis, Graph, Mesh, Op, Operand, Signature, Tensor, operation, plan, project
from tapestry_plan.ir.boundary import AROUND
from tapestry_plan.ir.signature import parts_of
from tapestry_sets import AffineMap, Box, IndexProjection

Array = np.ndarray[Any, Any]
PADDED = ("wrap", "edge", "reflect", "symmetric")


def window(outside: str, *, turned: bool = False, name: str = "window", axes: str = "ij") -> Op:
    """y[i, c] = Σ_j (j + 1)·x[s·i + d·j − a, c], with what is outside x as declared; from the last i if turned."""

    def signature(shapes: Sequence[tuple[int, ...]], attrs: Any) -> Signature:
        count, stride, dilation, kernel = attrs["count"], attrs["stride"], attrs["dilation"], attrs["kernel"]
        named = {"i": Axis("i", count), "j": Axis("j", kernel, "reduction"), "c": Axis("c", shapes[0][1])}
        space = tuple(named[a] for a in (*axes, "c"))
        row = {"i": stride, "j": dilation, "": -attrs["before"]}
        x = Operand(project(space, [row, {"c": 1}]), outside=outside)  # type: ignore[arg-type]
        made = Signature(space, (x,), (Operand(project(space, [{"i": 1}, {"c": 1}])),))
        return made.reversed("i") if turned else made

    def block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Any) -> None:
        (x,), (out,), attrs = inputs, outputs, shard.attrs
        (j0, j1), n = shard.range("j"), out.shape[0]
        out[...] = 0
        for j in range(j0, j1):
            at = (j - j0) * attrs["dilation"]
            out += (j + 1) * x[at : at + (n - 1) * attrs["stride"] + 1 : attrs["stride"]]

    attributes = ("count", "stride", "dilation", "kernel", "before")
    return Op(name, signature, block, reduction="sum", attributes=attributes)


def expected(x: Array, mode: str, attrs: dict[str, int]) -> Array:
    """The same by `numpy.pad`."""
    last = (attrs["count"] - 1) * attrs["stride"] + (attrs["kernel"] - 1) * attrs["dilation"] - attrs["before"]
    width = (max(0, attrs["before"]), max(0, last - len(x) + 1))
    padded = np.pad(x, (width, (0, 0)), mode=mode)  # type: ignore[call-overload]
    shift = width[0] - attrs["before"]
    rows = [
        sum((j + 1) * padded[shift + i * attrs["stride"] + j * attrs["dilation"]] for j in range(attrs["kernel"]))
        for i in range(attrs["count"])
    ]
    return np.array(rows).reshape(attrs["count"], x.shape[1])


def run_on(g: Graph, x: Array, name: str, cut: dict[str, int], devices: int, layout: int) -> tuple[Array, Any]:
    p = plan(g, Mesh(devices), fix={name: cut}, layout={"x": {0: layout}})
    return run(p, {"x": x}, verify=True).outputs["y"], p


def applied(op: Op, x: Array, attrs: dict[str, Any], name: str = "op") -> Graph:
    g = Graph()
    y: Tensor = g.op(op, g.input("x", x.shape, x.dtype.name), name=name, **attrs)
    g.output(y, "y")
    g.validate()
    return g


@st.composite
def windows(draw: st.DrawFn) -> dict[str, int]:
    return {
        "count": draw(st.integers(1, 8)),
        "stride": draw(st.integers(1, 3)),
        "dilation": draw(st.integers(1, 3)),
        "kernel": draw(st.integers(1, 4)),
        "before": draw(st.integers(0, 9)),
    }


@given(st.data(), st.sampled_from(PADDED), st.integers(1, 7), windows(), st.booleans())
def test_policies_are_those_of_numpy_pad(
    data: st.DataObject, mode: str, n: int, attrs: dict[str, int], turned: bool
) -> None:
    x = np.arange(2 * n, dtype=np.int64).reshape(n, 2) ** 2 + 1
    want = expected(x, mode, attrs)
    op = window(mode, turned=turned)
    g = applied(op, x, attrs)
    np.testing.assert_array_equal(evaluate(g, {"x": x})["y"], want)
    cut = {
        "i": data.draw(st.integers(1, min(5, attrs["count"]))),
        "j": data.draw(st.integers(1, min(2, attrs["kernel"]))),
    }
    devices = cut["i"] * cut["j"]
    found, p = run_on(g, x, "op", cut, devices, min(n, devices))
    np.testing.assert_array_equal(found, want)
    assert p.nbytes_moved <= 8 * (2 * n * (devices - 1) + (cut["j"] - 1) * devices * want.size)
    back = Graph.from_json(g.to_json(), {"window": op})
    assert back.to_json() == g.to_json() and back.signature("op") == g.signature("op")


@pytest.mark.heavy(2)
@given(st.sampled_from(PADDED), st.integers(2, 7), windows(), st.integers(2, 4))
def test_names_and_the_order_of_axes_change_no_byte(mode: str, n: int, attrs: dict[str, int], parts: int) -> None:
    parts = min(parts, attrs["count"])
    x = np.arange(2 * n).reshape(n, 2)
    plans = [
        run_on(applied(op, x, attrs), x, "op", {"i": parts}, parts, min(n, parts))
        for op in (window(mode), window(mode, name="other", axes="ji"))
    ]
    np.testing.assert_array_equal(plans[0][0], plans[1][0])
    assert (
        plans[0][1].nbytes_moved == plans[1][1].nbytes_moved
        and plans[0][1].nbytes_received == plans[1][1].nbytes_received
    )


@pytest.mark.parametrize(("parts", "cells"), [(2, 4), (3, 6), (4, 8), (5, 10)])
def test_a_ring_moves_its_halo_only(parts: int, cells: int) -> None:
    """Each device receives one cell from either side; both come from the same one where there are two."""
    x = np.arange(20.0).reshape(20, 1)
    g = applied(window("wrap"), x, {"count": 20, "stride": 1, "dilation": 1, "kernel": 3, "before": 1})
    _, p = run_on(g, x, "op", {"i": parts}, parts, parts)
    assert p.nbytes_moved == 8 * cells


def gathering(outside: str) -> Op:
    """y[i] = x[s·i + a], forwards or backwards."""

    def signature(shapes: Sequence[tuple[int, ...]], attrs: Any) -> Signature:
        axes = (Axis("i", attrs["count"]),)
        x = Operand(project(axes, [{"i": attrs["step"], "": attrs["at"]}]), outside=outside)  # type: ignore[arg-type]
        return Signature(axes, (x,), (Operand(project(axes, [{"i": 1}])),))

    def block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Any) -> None:
        step = shard.attrs["step"]
        outputs[0][...] = inputs[0][:: step or 1] if step else inputs[0][0]

    return Op("gathering", signature, block, attributes=("count", "step", "at"))


@pytest.mark.heavy(2)
@given(st.data(), st.integers(1, 9), st.integers(1, 6), st.integers(-3, 3), st.integers(-12, 12))
@example(None, 5, 3, -2, -1)
def test_indices_are_those_of_numpy_take(data: Any, n: int, count: int, step: int, at: int) -> None:
    x = np.arange(n) * 7 + 3
    index = step * np.arange(count) + at
    parts = min(count, 2 if data is None else data.draw(st.integers(1, 5)))
    for outside, mode in (("wrap", "wrap"), ("edge", "clip"), ("from_end", "raise"), ("forbid", None)):
        attrs = {"count": count, "step": step, "at": at}
        low = -n if mode == "raise" else 0
        if mode in ("raise", None) and not (low <= index.min() and index.max() < n):
            g = Graph()
            given_x = g.input("x", (n,), "int64")
            before = g.to_json()
            with pytest.raises(ValueError, match="counted from the end" if mode else "outside the tensor"):
                g.op(gathering(outside), given_x, **attrs)
            assert g.to_json() == before and not g.ops
            continue
        want = np.take(x, index, mode=mode or "raise")  # type: ignore[call-overload]
        found, _ = run_on(applied(gathering(outside), x, attrs), x, "op", {"i": parts}, parts, min(n, parts))
        np.testing.assert_array_equal(found, want)


def mixed() -> Op:
    """y[i] = x[i + 1] + 2·x[−2 − i] + 4·x[−1 − i]: two projections that wrap, and one counted from the end."""

    def signature(shapes: Sequence[tuple[int, ...]], attrs: Any) -> Signature:
        axes = (Axis("i", shapes[0][0]),)
        first, also, last = [project(axes, [{"i": c, "": b}]) for c, b in ((1, 1), (-1, -2), (-1, -1))]
        around, end = Operand(first, also=(also,), outside="wrap"), Operand(last, outside="from_end")
        return Signature(axes, (around, end), (Operand(project(axes, [{"i": 1}])),))

    def block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Any) -> None:
        (around, end), (out,), (begin, stop) = inputs, outputs, shard.range("i")
        n, start = shard.signature.axes[0].size, shard.input_boxes[0].start[0]
        ahead = n + 1 + 1 + begin - start  # the tensor begins after n + 1 cells of the copy before it
        behind = n + 1 - 2 - (stop - 1) - start
        width = stop - begin
        out[...] = around[ahead:][:width] + 2 * around[behind:][:width][::-1] + 4 * end[::-1]

    return Op("mixed", signature, block)


@pytest.mark.heavy(2)
@given(st.integers(1, 9), st.integers(1, 5))
def test_policies_of_several_projections_and_operands(n: int, parts: int) -> None:
    x, i, k = np.arange(n) ** 2 + 1, np.arange(n), min(n, parts)
    g = Graph()
    t = g.input("x", (n,), "int64")
    g.output(g.op(mixed(), t, t, name="op"), "y")
    want = np.take(x, i + 1, mode="wrap") + 2 * np.take(x, -2 - i, mode="wrap") + 4 * x[-1 - i]
    np.testing.assert_array_equal(evaluate(g, {"x": x})["y"], want)
    found, p = run_on(g, x, "op", {"i": k}, k, k)
    np.testing.assert_array_equal(found, want)
    own = [set(range(*span)) for span in parts_of(n, k)]
    read = [{c % n for a in part for c in (a + 1, -2 - a, -1 - a)} for part in own]
    assert p.nbytes_moved == 8 * sum(len(r - o) for r, o in zip(read, own, strict=True))


# ---------------------------------------------------------------------------------- tensors that begin anywhere


def shifted(low: int, out_low: int, outside: str = "forbid") -> Op:
    """y[t + out_low] = x[t + low − 1] + x[t + low], x beginning at `low` − 1 and y at `out_low`."""

    def signature(shapes: Sequence[tuple[int, ...]], attrs: Any) -> Signature:
        (n,) = shapes[0]
        axes = (Axis("t", n - 1 if outside == "forbid" else n),)
        x = Operand(project(axes, [{"t": 1, "": low - 1}], [2]), outside=outside, origin=(low - 1,))  # type: ignore[arg-type]
        y = Operand(project(axes, [{"t": 1, "": out_low}]), origin=(out_low,))
        return Signature(axes, (x,), (y,))

    def block(xp: Any, inputs: Sequence[Any], outputs: Sequence[Any], shard: Any) -> None:
        xp.add(inputs[0][:-1], inputs[0][1:], out=outputs[0])

    return Op("shifted", signature, block)


@given(st.integers(2, 9), st.integers(-20, 20), st.integers(-20, 20), st.integers(1, 5))
def test_tensors_begin_where_they_say(n: int, low: int, out_low: int, parts: int) -> None:
    x = np.arange(n) ** 2
    for outside, want in (("forbid", x[:-1] + x[1:]), ("wrap", x + np.roll(x, -1))):
        g = applied(shifted(low, out_low, outside), x, {})
        k = min(parts, len(want))
        found, _ = run_on(g, x, "op", {"t": k}, k, min(n, k))
        np.testing.assert_array_equal(found, want)
        plain, _ = run_on(applied(shifted(1, 0, outside), x, {}), x, "op", {"t": k}, k, min(n, k))
        np.testing.assert_array_equal(plain, want)


@given(st.data(), st.integers(-6, 6), st.integers(-6, 6), st.integers(1, 8))
def test_regions_in_boxes_below_zero_are_those_of_the_points(data: st.DataObject, b: int, low: int, n: int) -> None:
    axes = (Axis("i", 6), Axis("j", 3, "reduction"))
    row = [data.draw(st.integers(-2, 2)), data.draw(st.integers(-2, 2))]
    projection = IndexProjection(AffineMap((tuple(row),), (b,)), (data.draw(st.integers(1, 3)),))
    signature = Signature(axes, (Operand(projection, pad=0.0),), ())
    start = (data.draw(st.integers(0, 5)), data.draw(st.integers(0, 2)))
    box = Box(start, (data.draw(st.integers(1, 6 - start[0])), data.draw(st.integers(1, 3 - start[1]))))
    frame = Box((low,), (n,))
    region = signature.input_region(0, box, frame)
    cells = {c for i, j in box.points() for c in range(*_span(projection((i, j))))}
    assert {point for (point,) in region.points().tolist()} == {c for c in cells if low <= c < low + n}
    assert (region.start, region.shape) == ((low,), (n,))


def _span(box: Box) -> tuple[int, int]:
    return box.start[0], box.stop[0]


# ------------------------------------------------------------------------------------------------ what is refused


ATTRS = {"count": 5, "stride": 1, "dilation": 1, "kernel": 3, "before": 1}


@pytest.mark.parametrize(
    ("outside", "attrs", "message"),
    [
        ("forbid", ATTRS, r"is read in Box\(start=\(-1, 0\), shape=\(7, 2\)\), outside the tensor"),
        ("from_end", ATTRS, "read at -1 to 5 along axis 0 of extent 5; counted from the end, -5 to 4 can be read"),
        ("wrap", {**ATTRS, "before": 10**9}, "more than 1024 copies; tile the tensor first"),
        ("reflect", {**ATTRS, "count": 10**6}, "more than 1024 copies; tile the tensor first"),
        ("mirror", ATTRS, "outside must be one of"),
        ("wrap", {**ATTRS, AROUND: (((1, 0), (0, 0)),)}, "but the operands reach out by"),
        ("wrap", {**ATTRS, AROUND: (((3, 2), (0, 0)),)}, "more than an input of shape"),
        ("wrap", {**ATTRS, AROUND: "wide"}, "holds .before, after. for each axis of each input"),
        ("forbid", {**ATTRS, AROUND: ((),)}, "outside the tensor"),
    ],
    ids=["forbid", "from_end", "wide", "long", "unknown", "forged", "too much", "no widths", "none"],
)
def test_refused_operands_leave_the_graph_unchanged(outside: str, attrs: dict[str, Any], message: str) -> None:
    g = Graph()
    x = g.input("x", (5, 2))
    before = g.to_json()
    with pytest.raises(ValueError, match=message):
        g.op(window(outside), x, **attrs)
    assert g.to_json() == before and not g.ops and not g.selections


def test_one_policy_and_only_for_inputs() -> None:
    axes = (Axis("i", 4),)
    p = project(axes, [{"i": 1}])
    with pytest.raises(ValueError, match="are two policies; declare one"):
        Operand(p, pad=0.0, outside="wrap")
    with pytest.raises(ValueError, match=r"origin .* has rank 2"):
        Operand(p, origin=(0, 0))
    for operand in (Operand(p, outside="wrap"), Operand(p, pad=0.0), Operand(p, also=(p,))):
        with pytest.raises(ValueError, match="an output is written through one projection and nowhere outside"):
            Signature(axes, (), (operand,)).validate([], [(4,)], "here")


def test_a_node_can_be_added_again_from_its_inputs_and_attributes() -> None:
    """As a rewrite does; what is extended already is not extended again."""
    x = np.arange(10).reshape(5, 2)
    g = applied(window("reflect"), x, ATTRS)
    node = g.nodes["op"]
    again = g.op(node.op, *map(g.tensor, node.inputs), name="again", **node.attrs)
    assert g.signature("again") == g.signature("op") and len(g.selections) == 1
    g.output(again, "z")
    found = evaluate(g, {"x": x})
    np.testing.assert_array_equal(found["y"], found["z"])


def test_sizes_do_not_matter() -> None:
    n = 10**9
    g = Graph()
    g.op(window("wrap"), g.input("x", (n, 1)), name="op", **{**ATTRS, "count": n})
    shards = operation(g, "op").shard({"i": 1000})
    assert [part.inputs[0].size for part in shards] == [n // 1000 + 2] * 1000
