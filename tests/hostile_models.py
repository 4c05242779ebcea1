"""Models that mean harm, or that something harmed: 360 of them, the same in each run.

    python tests/hostile_models.py DIRECTORY K …     plans models of these numbers; prints a line of JSON for each

Twelve classes in turn: cycles, dims, types, external data, bombs, attributes, functions, names, opsets, bytes changed
at random, right nodes with attributes of wrong types, and very many Ifs. Each model is a folder of files with `m.onnx`
in it. `plan_all` plans some in a process of their own, whose memory is bounded, and tells how each ended: by an exit
status, with its words, processor time and peak memory.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper
from onnx.defs import get_all_schemas

COUNT, SEED = 360, 20_240_601
MODELS = Path(__file__).parent / "models"
HARD_NBYTES = 6 * 2**30
"""Address space of the process that plans: what asks for more gets MemoryError, and does not hurt its neighbors."""
Random = random.Random
Files = dict[str, bytes]
F, I64 = TensorProto.FLOAT, TensorProto.INT64
node, info = helper.make_node, helper.make_tensor_value_info


def model_of(
    nodes: list[Any], x: Any = (4, 6), constants: dict[str, Any] | None = None, opset: int = 21, **more: Any
) -> ModelProto:
    """A model that reads x and gives y."""
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()]
    graph = helper.make_graph(nodes, "hostile", [info("x", F, x)], [info("y", F, None)], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8, **more)


def files_of(model: ModelProto, **beside: bytes) -> Files:
    return {"m.onnx": model.SerializeToString(), **beside}


# -- the classes -------------------------------------------------------------------------------------------


def cycles(rng: Random) -> Files:
    """Nodes that wait for each other, for themselves, or for nobody."""
    n = rng.choice([1, 2, 3, 50, 2000])
    names = [f"t{k}" for k in range(n)]
    nodes = [node("Add", [names[k - 1], "x"], [names[k]]) for k in range(n)]
    kind = rng.randrange(4)
    if kind == 1:  # no cycle, but in any order
        nodes[0] = node("Relu", ["x"], [names[0]])
        rng.shuffle(nodes)
    elif kind == 2:
        nodes[0] = node("Relu", ["nobody"], [names[0]])
    elif kind == 3:
        nodes[0] = node("Relu", ["y"], [names[0]])
    return files_of(model_of([*nodes, node("Relu", [names[-1]], ["y"])]))


EXTENTS = (0, 1, -1, 2, 3, 7, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, -(2**63), 10**6)


def dims(rng: Random) -> Files:
    """Extents that are huge, negative, zero, or too many; shapes that do not fit."""
    some = [rng.choice(EXTENTS) for _ in range(rng.choice([0, 1, 2, 3, 8, 40, 2000]))]
    op = rng.choice(["Relu", "Reshape", "Transpose", "Expand", "Tile", "Slice", "Softmax", "MatMul", "Unsqueeze"])
    model = model_of([node(op, ["x"] if op in ("Relu", "Softmax") else ["x", "s"], ["y"])], (4, 6), {"s": [2, 12]})
    if op == "MatMul":
        model.graph.node[0].input[1] = "x"
    if op == "Slice":
        model.graph.node[0].input.append("s")
    if rng.random() < 0.6:
        del model.graph.input[0].type.tensor_type.shape.dim[:]
        for extent in some:
            model.graph.input[0].type.tensor_type.shape.dim.add().dim_value = extent
    if rng.random() < 0.6:
        tensor = numpy_helper.from_array(np.array(some, np.int64), "s")
        if rng.random() < 0.3:
            del tensor.dims[:]
            tensor.dims.extend(rng.choice(EXTENTS) for _ in range(2))
        model.graph.initializer[0].CopyFrom(tensor)
    return files_of(model)


def types(rng: Random) -> Files:
    """Elements of every type there is and of some that there are not, in inputs, constants, casts and zero points."""
    code = rng.choice([*range(30), 1000, -1])
    model = model_of([node("Cast", ["c"], ["d"], to=rng.choice([code, F])), node("Add", ["x", "d"], ["y"])])
    tensor = model.graph.initializer.add()
    tensor.name, tensor.data_type = "c", code
    tensor.dims.extend([2, 6][: rng.randrange(3)])
    raw = rng.randrange(3)
    if raw:
        tensor.raw_data = bytes(rng.randrange(256) for _ in range(rng.choice([0, 6, 12, 24, 48, 96])))
    else:
        tensor.float_data.extend([1.0] * rng.choice([0, 1, 12]))
    if rng.random() < 0.4:
        model.graph.input[0].type.tensor_type.elem_type = code
    if rng.random() < 0.1:
        model.graph.input[0].type.sequence_type.elem_type.tensor_type.elem_type = F
    if rng.random() < 0.2:
        model.graph.node.insert(
            0, node(rng.choice(["QuantizeLinear", "DequantizeLinear", "CastLike"]), ["x", "c"], ["z"])
        )
        model.graph.node[-1].input[0] = "z"
    return files_of(model)


LOCATIONS = (
    "w.bin",
    "missing.bin",
    "",
    ".",
    "..",
    "../../../../etc/passwd",
    "/etc/passwd",
    "/dev/zero",
    "w.bin\0.txt",
    "\0",
    "a" * 5000,
    "a/" * 3000,
    "./w.bin",
    "sub/../w.bin",
    "sub",
    "~/w.bin",
    "file:///etc/passwd",
    "\x1b]0;owned\x07",
    "m.onnx",
)


def external(rng: Random) -> Files:
    """Values beside the model: elsewhere, nowhere, too short, at numbers that are none."""
    model = model_of([node("Add", ["x", "w"], ["y"])])
    tensor = model.graph.initializer.add()
    tensor.name, tensor.data_type, tensor.data_location = "w", F, TensorProto.EXTERNAL
    tensor.dims.extend(rng.choice([(6,), (4, 6), (10**6, 10**6), (-6,), (0,), ()]))
    numbers = ["0", "24", "96", "-1", "1e3", "", "0x10", str(2**63), "9" * 5000, "٣"]
    entries = {"location": rng.choice(LOCATIONS)}
    entries |= {key: rng.choice(numbers) for key in ("offset", "length") if rng.random() < 0.6}
    for key, value in entries.items():
        item = tensor.external_data.add()
        item.key, item.value = key, value
    return files_of(model, **{"w.bin": bytes(rng.choice([0, 24, 96, 4096]))})


def bombs(rng: Random) -> Files:
    """Few bytes that ask for very many, or for very much work."""
    big = 10 ** rng.choice([4, 5, 6, 9, 12])
    one = np.ones(1, np.float32)
    column, row = np.ones((big % 99_999 + 2, 1), np.float32), np.ones((1, big % 99_999 + 2), np.float32)
    chain = [node("Concat", [f"d{k}", f"d{k}"], [f"d{k + 1}"], axis=0) for k in range(rng.choice([10, 34, 60]))]
    square = [node("Add", [f"d{k}", f"d{k}"], [f"d{k + 1}"]) for k in range(rng.choice([10, 300]))]
    cases: list[tuple[list[Any], dict[str, Any]]] = [
        ([node("ConstantOfShape", ["s"], ["c"])], {"s": [big, big]}),
        ([node("Expand", ["one", "s"], ["c"])], {"s": [big, 3], "one": one}),
        ([node("Tile", ["one", "s"], ["c"])], {"s": [big], "one": one}),
        ([node("Pad", ["one", "s"], ["c"])], {"s": [big, big], "one": one}),
        (
            [node("Range", ["a", "s", "one"], ["c"])],
            {"s": np.float32(big), "one": np.float32(rng.choice([1, 0, 1e-30, -1])), "a": np.float32(0)},
        ),
        ([node("OneHot", ["s", "n", "v"], ["c"])], {"s": np.arange(50), "n": big, "v": np.array([0, 1], np.float32)}),
        ([node("MatMul", ["a", "b"], ["c"])], {"a": column, "b": row}),
        ([node("Mul", ["a", "b"], ["c"])], {"a": column, "b": row}),
        (
            [node("Resize", ["a", "", "s"], ["c"])],
            {"a": np.ones((1, 1, 9, 9), np.float32), "s": np.array([1, 1, big, 2], np.float32)},
        ),
        ([*chain, node("Identity", [chain[-1].output[0]], ["c"])], {"d0": one}),
        ([*square, node("Identity", [square[-1].output[0]], ["c"])], {"d0": one}),
        ([node("HannWindow", ["s"], ["c"])], {"s": big}),
        ([node("Expand", ["i", "s"], ["e"]), node("EyeLike", ["e"], ["c"], dtype=F)], {"i": one, "s": [big, big]}),
        (
            [node("Einsum", list("abcdefgh"), ["c"], equation="a,b,c,d,e,f,g,h->")],
            dict.fromkeys("abcdefgh", np.ones(99, np.float32)),
        ),
        ([node("Trilu", ["x"], ["c"])], {}),
        ([node("Dropout", ["x"], ["z", "m"]), node("Cast", ["m"], ["c"], to=F)], {}),
        ([node("Gather", ["x", "i"], ["c"])], {"i": np.random.default_rng(1).integers(0, 4, 200_000)}),
        (
            [node("Relu" if k % 2 else "Transpose", [f"r{k}" if k else "x"], [f"r{k + 1}"]) for k in range(600)],
            {"c": one},
        ),
        ([node("Split", ["x"], [f"p{k}" for k in range(900)], num_outputs=900)], {"c": one}),
        ([node("Concat", ["x"] * 3000, ["c"], axis=0)], {}),
        ([node("DepthToSpace", ["q"], ["c"], blocksize=big)], {"q": np.ones((1, 4, 2, 2), np.float32)}),
    ]
    nodes, constants = rng.choice(cases)
    after = [node("ReduceSum", ["c"], ["t"], keepdims=0), node("Add", ["x", "t"], ["y"])]
    return files_of(
        model_of([*nodes, *after], (min(big, 60_000), min(big, 60_000)) if not constants else (4, 6), constants)
    )


SCHEMAS = sorted((s for s in get_all_schemas() if not s.domain), key=lambda s: s.name)


def attributes(rng: Random) -> Files:
    """Operators with attributes of any type and value, and with inputs that are not theirs."""
    schema = rng.choice(SCHEMAS)
    values: list[Any] = [
        0,
        -1,
        2**62,
        1.5,
        float("nan"),
        float("inf"),
        "",
        "\x1b[2J",
        [0],
        [1, 1],
        [-(2**62)],
        [1.0],
        ["a"],
    ]
    count = max(1, min(schema.min_input, 6)) if rng.random() < 0.8 else rng.randrange(8)
    reads = [rng.choice(["x", "c", "s", "i", "z"]) for _ in range(count)]
    made = node(schema.name, reads, ["y"])
    for name in [*schema.attributes, "foo"]:
        if rng.random() < 0.5:
            made.attribute.append(helper.make_attribute(name, rng.choice(values)))
    if rng.random() < 0.1:
        made.attribute.add(name="odd", type=rng.choice([AttributeProto.UNDEFINED, AttributeProto.TENSOR]))
    constants = {"c": np.ones((2, 3, 4, 4), np.float32), "s": [1, 2], "i": np.int64(3), "z": np.zeros((4, 6), bool)}
    return files_of(model_of([made], rng.choice([(4, 6), (2, 3, 8, 8), ()]), constants))


def functions(rng: Random) -> Files:
    """Functions of the model's own: nested, recursive, missing, doubled, with graphs inside."""
    depth = rng.choice([1, 2, 20, 24])
    twice = rng.random() < 0.5 and depth > 2
    model = model_of([node("f0", ["x"], ["y"], domain="own")])
    model.opset_import.append(helper.make_opsetid("own", 1))
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    for k in range(depth):
        inner = f"f{k + 1}" if k + 1 < depth else rng.choice(["Relu", "f0", "nothing", f"f{k}"])
        domain = "" if inner == "Relu" else "own"
        nodes = [node(inner, ["a"], ["b"], domain=domain)]
        nodes += [node(inner, ["b"], ["c"], domain=domain)] if twice and k < 12 else [node("Neg", ["b"], ["c"])]
        model.functions.append(helper.make_function("own", f"f{k}", ["a"], ["c"], nodes, opsets))
    if rng.random() < 0.2:
        model.functions.append(model.functions[0])
    if rng.random() < 0.3:
        body = helper.make_graph([node("Relu", ["x"], ["r"])], "body", [], [info("r", F, None)])
        model.graph.node.insert(0, node("If", ["k"], ["w"], then_branch=body, else_branch=body))
        model.graph.initializer.append(numpy_helper.from_array(np.array(rng.random() < 0.5), "k"))
        model.graph.node[1].input[0] = "w"
    return files_of(model)


NAMES = (
    "",
    " ",
    "\n",
    "\x1b]0;owned\x07",
    "\x1b[2J",
    "\u202ex",
    "x" * 100_000,
    "é" * 50,
    "[red]",
    "%s{}",
    "../x",
    "y",
    "x",
)


def names(rng: Random) -> Files:
    """Names that are empty, doubled, endless, or that a terminal would obey."""
    first, second, third = (rng.choice(NAMES) for _ in range(3))
    model = model_of(
        [node("Relu", ["x"], [first], name=second), node("Tanh", [first], ["y"], name=rng.choice([second, third]))]
    )
    model.graph.name = rng.choice(NAMES)
    model.graph.node[1].domain = rng.choice(["", "", "ai.onnx", "ai.onnx.ml", *NAMES[:6]])
    model.graph.node[0].op_type = rng.choice(["Relu", "Relu", *NAMES])
    if rng.random() < 0.3:
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = rng.choice(NAMES)
    if rng.random() < 0.3:
        model.graph.output[0].name = third
    if rng.random() < 0.3:
        model.graph.initializer.append(numpy_helper.from_array(np.ones((4, 6), np.float32), third))
    return files_of(model)


def opsets(rng: Random) -> Files:
    """Versions that are old, not made yet, doubled, missing or impossible."""
    model = model_of([node(rng.choice(["Softmax", "Clip", "Upsample", "Resize", "Dropout", "Relu"]), ["x"], ["y"])])
    del model.opset_import[:]
    for _ in range(rng.randrange(4)):
        version = rng.choice([0, 1, 6, 7, 12, 13, 18, 21, 22, 23, 99, 2**40, -1])
        model.opset_import.append(helper.make_opsetid(rng.choice(["", "", "ai.onnx", "com.microsoft", "own"]), version))
    model.ir_version = rng.choice([0, 3, 8, 10, 99, -1])
    return files_of(model)


def changed(rng: Random) -> Files:
    """A good model in which some bytes were changed, left out, doubled, or cut off at the end."""
    data = bytearray((MODELS / rng.choice(["resnet.onnx", "resnet.onnx", "gpt2.onnx", "bert.onnx"])).read_bytes())
    ends = [k for k in (2000, 6000, len(data)) if k <= len(data)]
    for _ in range(rng.choice([1, 2, 5, 40])):
        at = rng.randrange(rng.choice(ends))
        how = rng.randrange(4)
        if how == 0:
            data[at] = rng.randrange(256)
        elif how == 1:
            data[at] ^= 1 << rng.randrange(8)
        elif how == 2:
            del data[at : at + rng.randrange(1, 9)]
        else:
            data[at:at] = data[at : at + rng.randrange(1, 9)]
    if rng.random() < 0.1:
        del data[rng.randrange(len(data)) :]
    return {"m.onnx": bytes(data)}


WINDOW = {"kernel_shape": [2, 2], "strides": [1, 1], "pads": [0, 0, 0, 0], "dilations": [1, 1], "auto_pad": "NOTSET"}
RIGHT: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("Conv", "qw", {**WINDOW, "group": 1}),
    ("ConvTranspose", "qw", {**WINDOW, "group": 1, "output_padding": [0, 0], "output_shape": [9, 9]}),
    ("AveragePool", "q", {**WINDOW, "ceil_mode": 0, "count_include_pad": 0}),
    ("MaxPool", "q", {**WINDOW, "ceil_mode": 0, "storage_order": 0}),
    ("LRN", "q", {"size": 1, "alpha": 1e-4, "beta": 0.75, "bias": 1.0}),
    ("ConstantOfShape", "s", {"value": helper.make_tensor("v", F, [1], [2.0])}),
    ("Gemm", "xm", {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}),
    ("Softmax", "x", {"axis": -1}),
    ("LayerNormalization", "xb", {"axis": -1, "epsilon": 1e-5, "stash_type": 1}),
    ("Transpose", "x", {"perm": [1, 0]}),
    ("Concat", "xx", {"axis": 0}),
    ("Split", "x", {"axis": 0, "num_outputs": 1}),
    ("Einsum", "xm", {"equation": "ij,jk->ik"}),
    ("Cast", "x", {"to": F}),
    ("DepthToSpace", "q", {"blocksize": 2, "mode": "DCR"}),
    ("Resize", "q", {"mode": "nearest", "axes": [0, 1, 2, 3], "coordinate_transformation_mode": "asymmetric"}),
    ("Constant", "", {"value": helper.make_tensor("v", F, [1], [2.0])}),
)
"""Nodes that are right, with all that they may say."""


def wrong_types(rng: Random) -> Files:
    """Right nodes of which one attribute is of another type, doubled, or says two things."""
    op, reads, attrs = rng.choice(RIGHT)
    made = node(op, list(reads), ["y"], **attrs)
    values: list[Any] = [0, 1, -1, 1.5, float("nan"), "a", "NOTSET", [1], [0, 0], [1.5], ["a"], made.attribute[0]]
    values += [helper.make_tensor("t", code, [1], [3]) for code in (F, I64)]
    values.append(helper.make_graph([node("Relu", ["x"], ["r"])], "body", [], [info("r", F, None)]))
    spoiled = rng.choice(list(made.attribute))
    value = rng.choice(values)
    if isinstance(value, AttributeProto):  # twice, or with the value of another beside its own
        made.attribute.append(value) if rng.random() < 0.5 else spoiled.floats.append(1.0)
    else:
        other = helper.make_attribute(spoiled.name, value)
        if rng.random() < 0.2:
            other.type = rng.choice([AttributeProto.UNDEFINED, AttributeProto.INT, AttributeProto.TENSORS])
        spoiled.CopyFrom(other)
    ones = {"q": (1, 4, 8, 8), "w": (4, 4, 2, 2), "m": (6, 5), "b": (6,)}
    constants: dict[str, Any] = {name: np.ones(shape, np.float32) for name, shape in ones.items()}
    model = model_of([made], constants={**constants, "s": [2, 3]})
    if rng.random() < 0.5 and "q" in reads:  # not known at import
        model.graph.node.insert(0, node("Add", ["q", "one"], ["q2"]))
        model.graph.node.insert(0, node("ReduceSum", ["x"], ["one"], keepdims=0))
        made = model.graph.node[2]
        made.input[0] = "q2"
    return files_of(model)


def many_ifs(rng: Random) -> Files:
    """Up to a thousand Ifs: in a row, in one another, deciding one another; known, unknown, or not a condition."""
    count = rng.choice([1, 30, 300, 1000])
    value = rng.choice([True, True, True, True, False, False, 1.5, float("nan"), 1, [True, True]])
    kind = rng.choice(["row", "each decides the next", "inside one another", "all on one"])
    if kind == "inside one another":
        last = helper.make_graph([node("Relu", ["x"], ["r"])], "body", [], [info("r", F, None)])
        body = last
        for _ in range(min(count, 30)):
            inner = node("If", ["k"], ["r"], then_branch=body, else_branch=last, name=rng.choice(["", "n"]))
            body = helper.make_graph([inner], "body", [], [info("r", F, None)])
        nodes = list(body.node)
        nodes[-1].output[0] = "y"
    else:
        nodes, before, condition = [], "x", "k"
        for k in range(count):
            reads = "x" if kind == "all on one" else before
            bodies = [
                helper.make_graph(
                    [node(op, [reads], ["r"]), node("Not", [condition], ["c"])],
                    "body",
                    [],
                    [info("r", F, None), info("c", TensorProto.BOOL, None)],
                )
                for op in ("Relu", rng.choice(["Neg", "Neg", "Tanh", "Unique", "nothing"]))
            ]
            nodes.append(node("If", [condition], [f"t{k}", f"c{k}"], then_branch=bodies[0], else_branch=bodies[1]))
            before, condition = f"t{k}", f"c{k}" if kind == "each decides the next" else "k"
        nodes.append(node("Sum", [f"t{k}" for k in range(count)] if kind == "all on one" else [before], ["y"]))
    if rng.random() < 0.2:
        nodes.insert(0, node("Cast", ["x"], ["k"], to=TensorProto.BOOL))
        return files_of(model_of(nodes))
    return files_of(model_of(nodes, constants={"k": value}))


CLASSES: tuple[Callable[[Random], Files], ...] = (
    cycles, dims, types, external, bombs, attributes, functions, names, opsets, changed, wrong_types, many_ifs
)  # fmt: skip


def make(k: int) -> Files:
    """The files of model k."""
    return CLASSES[k % len(CLASSES)](random.Random(SEED * 1000 + k))


# -- planning them -----------------------------------------------------------------------------------------


class Ending(NamedTuple):
    """How planning a model ended."""

    model: int
    kind: str
    status: int
    words: str
    seconds: float
    """Of processor time."""
    peak_nbytes: int

    @property
    def fault(self) -> str:
        """What is wrong with it; empty if nothing is."""
        if self.status not in (0, 2) or "Traceback" in self.words:
            return f"exit status {self.status}: {self.words[-2000:]}"
        if self.status == 2 and not (self.words.startswith("error: ") and self.words.count("\n") == 1):
            return f"not one line of error: {self.words[:500]!r}"
        if any(not c.isprintable() for c in self.words.removesuffix("\n")):
            return f"controls in {self.words[:500]!r}"
        if self.seconds > 10:
            return f"{self.seconds:.1f} s of processor time"
        if self.peak_nbytes > 10**9:
            return f"{self.peak_nbytes:,} bytes"
        return ""


def plan_all(models: Iterable[int], place: Path) -> list[Ending]:
    """Write models into folders of a place, and plan them in one process of their own."""
    chosen = list(models)
    for k in chosen:
        folder = place / str(k)
        folder.mkdir()
        for name, data in make(k).items():
            (folder / name).write_bytes(data)
    found = subprocess.run(
        [sys.executable, __file__, str(place), *map(str, chosen)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
    )
    endings = [Ending(*json.loads(line)) for line in found.stdout.splitlines()]
    if len(endings) < len(chosen):  # the process died
        k = chosen[len(endings)]
        endings.append(Ending(k, CLASSES[k % len(CLASSES)].__name__, found.returncode, found.stderr, 0.0, 0))
    return endings


def plan_here(place: Path, models: Iterable[int]) -> Iterator[Ending]:
    """Plan models in this process."""
    from click.testing import CliRunner

    from tapestry_exec.cli import main

    for k in models:
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the peak is measured anew
        begin = time.process_time()
        file = str(place / str(k) / "m.onnx")
        result = CliRunner().invoke(main, ["plan", file, "-q", "--mesh", str(2 + k % 3)])
        words = result.stderr
        if result.exc_info is not None and not isinstance(result.exception, SystemExit | None):
            words += "".join(traceback.format_exception(result.exception))
        seconds = time.process_time() - begin
        yield Ending(k, CLASSES[k % len(CLASSES)].__name__, result.exit_code, words, seconds, _peak_nbytes())


def _peak_nbytes() -> int:
    try:
        text = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return int(text.split("VmHWM:")[1].split()[0]) * 1024


def _main() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (HARD_NBYTES, HARD_NBYTES))
    for ending in plan_here(Path(sys.argv[1]), map(int, sys.argv[2:])):
        print(json.dumps(ending), flush=True)


if __name__ == "__main__":
    _main()
