"""Steps that share a session: which do, what comes out, and what the export of their graphs must know."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tapestry_exec import TraceEvent, deploy, evaluate
from tapestry_exec.onnxruntime import segments, tuning
from tapestry_exec.onnxruntime.backend import OnnxruntimeBackend, OnnxruntimeDevice
from tapestry_plan import Graph, Mesh, Tensor, concat, ops, plan
from tapestry_plan.onnx import light_model, load_onnx, to_onnx
from tapestry_sets.views import Pad
from tests.exec.run.test_same_bits import of_floats

ort = pytest.importorskip("onnxruntime")


@pytest.fixture(autouse=True)
def small_blocks_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "MIN_POINTS", 1)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[segments.Stretch]:
    """The segments that get a session."""
    seen: list[segments.Stretch] = []
    plain = OnnxruntimeDevice._bind_segment

    def bind(self: OnnxruntimeDevice, segment: segments.Stretch, session: Any) -> None:
        seen.append(segment)
        plain(self, segment, session)

    monkeypatch.setattr(OnnxruntimeDevice, "_bind_segment", bind)
    return seen


def ran(g: Graph, devices: int, **asked: Any) -> None:
    """A deployment gives what the graph says, three times; between runs other feeds lie in the arena."""
    p, feeds = plan(g, Mesh(devices), **asked), of_floats(g)
    other = {name: -np.asarray(array) for name, array in feeds.items()}
    with deploy(p, backend=OnnxruntimeBackend()) as placed:
        for given in (feeds, other, feeds):
            wanted = evaluate(g, given)
            for name, array in placed.run(given, verify=False).outputs.items():
                np.testing.assert_allclose(array, wanted[name], rtol=2e-5, atol=2e-5)


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.heavy(2)
@pytest.mark.parametrize("name", ["resnet50", "shufflenet", "squeezenet"])
def test_a_network_on_one_device_is_one_session_with_the_bits_of_the_whole(
    name: str, found: list[segments.Stretch]
) -> None:
    model = light_model(name, seed=1)
    g = load_onnx(model)
    feeds = {
        tensor.name: np.random.default_rng(2).standard_normal(tensor.shape).astype(np.float32)
        for tensor in g.stored.values()
        if tensor.kind == "input"
    }
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    whole = ort.InferenceSession(to_onnx(g).SerializeToString(), options, ["CPUExecutionProvider"])
    with deploy(plan(g, Mesh(1)), backend="onnxruntime") as placed:
        outputs = placed.run(feeds).outputs
        (segment,) = found
        assert len(segment.blocks) >= 25 and len(segment.outputs) == 1
        for made, array in zip(outputs.values(), whole.run(None, feeds), strict=True):
            np.testing.assert_allclose(made, array, rtol=1e-4, atol=1e-6)


def test_what_is_given_back_before_the_last_step_is_kept(found: list[segments.Stretch]) -> None:
    """`x` is read by the first step alone; what the third one makes takes its place before the session reads it."""
    g = Graph()
    h = g.input("x", (16, 16))
    for k in range(4):
        h = ops.tanh(ops.linear(h, g.constant(f"w{k}", weights(16, 16, seed=k))))
    g.output(h, "y")
    ran(g, 1, fuse=False)
    (segment,) = found
    assert [one.is_early for one in segment.inputs] == [True]
    buffers = {block.outputs[0][0].id: block.outputs[0][0] for block in segment.blocks}
    ((first, *_), *_) = segment.blocks[0].inputs[:1]
    assert any(buffer.offset == first.offset for buffer in buffers.values()), "its place is taken again"


def draw_network(rng: random.Random) -> Graph:
    """Convolutions, sums and poolings, between which channels and rows are turned, shuffled, and put together."""
    g = Graph()
    made, count = [g.input("x", (2, 8, 6, 6)), g.input("z", (2, 8, 6, 6))], 0

    def w(*shape: int) -> Tensor:
        nonlocal count
        count += 1
        return g.constant(f"w{count}", weights(*shape, seed=count) * 0.3)

    kinds: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (
        lambda a, b: ops.conv(a, w(8, 8, 3, 3), pads=1),
        lambda a, b: ops.conv(a, w(8, 8, 1, 1)),
        lambda a, b: ops.conv(a, w(8, 1, 3, 3), pads=1, groups=8),
        lambda a, b: ops.tanh(a),
        lambda a, b: a + b,
        lambda a, b: ops.max_pool(a, 3, pads=1),
        lambda a, b: a.reshape(2, 4, 2, 6, 6).permute_dims((0, 2, 1, 3, 4)).reshape(2, 8, 6, 6),
        lambda a, b: a.reshape(2, 2, 4, 36).permute_dims((0, 2, 1, 3)).reshape(2, 8, 6, 6),
        lambda a, b: a.permute_dims((0, 1, 3, 2)),
        lambda a, b: a[:, :, ::-1],
        lambda a, b: concat([a[:, :4], b[:, 4:]], 1),
        lambda a, b: concat([a[:, ::2], b[:, 1::2]], 1),
    )
    for _ in range(rng.randint(3, 10)):
        made.append(rng.choice(kinds)(rng.choice(made[-3:]), rng.choice(made)))
    for k, tensor in enumerate({id(t): t for t in (*rng.sample(made[2:], rng.randint(0, 2)), made[-1])}.values()):
        g.output(tensor, f"y{k}")
    return g


@pytest.mark.heavy(2)
def test_sessions_put_together_what_copies_would(found: list[segments.Stretch]) -> None:
    """Numbers, counts and events are those of one loop on NumPy."""
    for seed in (2, 41, 53, 61, 64, 70, 93, 98, 130, 156):
        rng = random.Random(seed)
        g, devices, asked = draw_network(rng), rng.choice((1, 1, 2, 3)), {"fuse": rng.random() < 0.5}
        p, feeds = plan(g, Mesh(devices), **asked), of_floats(g)
        other = {name: -np.asarray(array) for name, array in feeds.items()}
        with deploy(p, backend="serial") as there, deploy(p, backend=OnnxruntimeBackend()) as here:
            for given in (feeds, other, feeds):
                wanted, made = there.run(given), here.run(given)
                assert [tell(event) for event in made.timeline] == [tell(event) for event in wanted.timeline]
                for name in ("nbytes_by_link", "nbytes_placed", "nbytes_copied", "peak_nbytes", "flop"):
                    assert getattr(made, name) == getattr(wanted, name), (seed, name)
                for name, array in wanted.outputs.items():
                    np.testing.assert_allclose(made.outputs[name], array, rtol=1e-4, atol=1e-5)
    assert sum(len(one.put) for one in found) > 10, "views are made in sessions"


def test_a_view_that_others_read_comes_out_of_its_session(found: list[segments.Stretch]) -> None:
    """The rounding to 16 bits is NumPy's, and reads what the session has put together for the convolution."""
    g = Graph()
    a = ops.conv(g.input("x", (1, 8, 6, 6)), g.constant("w", weights(8, 8, 3, 3)), pads=1)
    turned = a.reshape(1, 2, 4, 36).permute_dims((0, 2, 1, 3)).reshape(1, 8, 6, 6)
    g.output(ops.conv(turned, g.constant("v", weights(8, 8, 1, 1))), "y")
    g.output(ops.astype(turned, "float16"), "z")
    ran(g, 1, fuse=False)
    (segment,) = found
    assert {buffer.id for buffer, _ in segment.outputs} & segment.put


def tell(event: TraceEvent) -> tuple[int, str, str, int]:
    return event.step, event.kind, event.node, event.nbytes


def put_together(words: str, a: Tensor, b: Tensor) -> Tensor:
    match words:
        case "joined":
            return concat([a, b], 1)
        case "turned":
            return a.T @ b
        case "reshaped":
            return a.reshape(4, 2, 8).permute_dims((1, 0, 2)).reshape(8, 8)
        case "part":
            return a[2:6, ::2]
        case "reversed":
            return a[::-1] + b
        case "columns of what is numbered anew":
            return a.reshape(4, 16)[:, :5]
        case "rows of what is numbered anew":
            return a.reshape(16, 4)[:3]
        case "a corner of what has an axis more":
            return a.reshape(1, 2, 4, 8)[0, 1, :2, 3:]
        case "padded":
            return a.view(Pad(((1, 2), (0, 1)))) * 2.0
    raise AssertionError(words)


WORDS = (
    "joined",
    "turned",
    "reshaped",
    "part",
    "reversed",
    "padded",
    "columns of what is numbered anew",
    "rows of what is numbered anew",
    "a corner of what has an axis more",
)


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("devices", [1, 2])
def test_views_inside_of_segments(words: str, devices: int, found: list[segments.Stretch]) -> None:
    g = Graph()
    x, w = g.input("x", (8, 8)), g.constant("w", weights(8, 8))
    a, b = ops.tanh(ops.linear(x, w), name="a"), ops.exp(x * 0.1, name="b")
    y = ops.tanh(put_together(words, a, b), name="c")
    g.output(ops.relu(y - 0.1, name="d"), "y")
    ran(g, devices, fuse=False, expand=False)
    assert found and (devices > 1 or max(len(one.blocks) for one in found) >= 3)


def test_convolutions_do_their_own_padding(found: list[segments.Stretch]) -> None:
    """Whole ones as they are; of channels in parts the padding is written out."""
    for fix in ({}, {"one": {"c": 2}, "two": {"c": 2}}):
        g = Graph()
        y = ops.conv(g.input("x", (1, 3, 9, 9)), g.constant("w", weights(4, 3, 3, 3)), pads=1, name="one")
        y = ops.conv(ops.relu(y, name="act"), g.constant("v", weights(4, 4, 3, 3)), pads=1, strides=2, name="two")
        g.output(ops.max_pool(y, (2, 2), pads=1, name="pool"), "y")
        ran(g, 2 if fix else 1, fix=fix, fuse=False)
    kinds = [{node.op_type for node in to_onnx(one.graph).graph.node} for one in found]
    assert {"Conv", "Relu", "MaxPool"} in kinds, "without a Pad"


def test_operators_of_one_s_own_part_a_run(found: list[segments.Stretch]) -> None:
    g = Graph()
    h = g.input("x", (8, 8))
    for k in range(6):
        h = ops.cumulative_sum(h, 0) if k == 3 else ops.tanh(h)
    g.output(h, "y")
    ran(g, 1, fuse=False)
    assert sum(len(one.blocks) for one in found) >= 5


# -------------------------------------------------------------------------------------------- their export


def exported(g: Graph, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return ort.InferenceSession(to_onnx(g).SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)


def test_a_view_that_reads_some_of_what_a_step_numbers_is_written_right() -> None:
    """Padding that later steps leave out again is in no guard; the nodes must not take the tensor for all cells."""
    g, x = Graph(), np.arange(4, dtype=np.float32).reshape(1, 4)
    given = g.input("x", (1, 4))
    g.output(ops.exp(given.view(Pad(((0, 0), (4, 0)))).reshape(2, 4)[1:]), "y")
    (selection, *_) = [one for one in g.selections.values() if one.shape == (1, 4)]
    assert selection
    np.testing.assert_allclose(exported(g, {"x": x})[0], np.exp(x), rtol=1e-6)


def test_a_chain_in_one_view_is_written_as_the_chain_is() -> None:
    """Of heads that lie in a third of the columns: the numbers of some cells, then those of all."""
    g, x = Graph(), np.arange(32 * 12, dtype=np.float32).reshape(32, 12) / 100
    view = g.input("x", (32, 12)).reshape(2, 16, 12)[:, :, :4].reshape(2, 16, 2, 2).permute_dims((0, 2, 1, 3))
    whole = segments.Local(view.shape, g.source(view.name).pieces)
    g.output(ops.exp(g.tensor("x").apply(whole)), "y")
    wanted = np.exp(x.reshape(2, 16, 12)[:, :, :4].reshape(2, 16, 2, 2).transpose(0, 2, 1, 3))
    np.testing.assert_allclose(exported(g, {"x": x})[0], wanted, rtol=1e-6)
    assert "Gather" not in {node.op_type for node in to_onnx(g).graph.node}
