"""Good models in which something was changed: 1,000 of them, the same in each run.

    python tests/mutated_models.py K …     tries models of these numbers; prints lines of JSON for each

Half are changed in their bytes: some flipped, left out, doubled, put elsewhere, or cut off. Half are changed in their
structure: some field of the parsed model, at any depth, is given another value of its type, left out, doubled, swapped
with a neighbor or with the same field of another node. `try_all` imports some in a process of their own, whose memory
is bounded, some of them in stages and by the command line too, and tells how each ended.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import re
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from google.protobuf.message import Message
from onnx import ModelProto

sys.path[:0] = [str(Path(__file__).parent.parent)] if __name__ == "__main__" else []

from tapestry_plan.onnx.examples import read_example  # noqa: E402
from tests.hostile_models import HARD_NBYTES, Ending, _peak_nbytes  # noqa: E402
from tests.layered_models import bert, gpt2, llama, vit  # noqa: E402

COUNT, SEED = 1000, 20_261_128
MODELS = Path(__file__).parent / "models"
Random = random.Random
MADE: dict[str, Callable[[], Any]] = {
    "llama": partial(llama, 1, length=8, width=32, heads=2, inner=48, words=20),
    "bert": partial(bert, 1, length=8, width=64),
    "gpt2": partial(gpt2, 1, length=8, width=64),
    "vit": partial(vit, 1, side=32, width=64),
}
STORED = ("resnet.onnx", "gpt2.onnx", "bert.onnx")
CASES = {
    "If": "if_", "Loop": "loop", "Scan": "scan", "LSTM": "lstm", "GRU": "gru", "RNN": "rnn",
    "QuantizeLinear": "quantizelinear", "DequantizeLinear": "dequantizelinear", "QLinearConv": "qlinearconv",
    "QLinearMatMul": "qlinearmatmul", "ConvInteger": "convinteger", "MatMulInteger": "matmulinteger",
    "DynamicQuantizeLinear": "dynamicquantizelinear", "SequenceMap": "sequence_map", "Attention": "attention",
}  # fmt: skip
"""Operators of whose cases, as ONNX has them, some are changed; and the module of the cases."""
FUSED = (
    *("GroupQueryAttention", "QAttention", "MultiHeadAttention", "SkipLayerNormalization", "FusedMatMul", "BiasGelu"),
    *("MatMulNBits", "RotaryEmbedding", "EmbedLayerNormalization", "QLinearConcat", "QGemm", "QLinearLeakyRelu"),
)
"""Of com.microsoft."""
MANY = ("SequenceInsert", "SequenceErase", "SplitToSequence", "ConcatFromSequence", "MelWeightMatrix", "Multinomial")
"""Of whose examples here, some of several nodes, some are changed."""
WAYS = ("import", "stages", "plan")
SECONDS = 60
"""What trying a model takes at most, by the clock."""


@cache
def bytes_of(name: str) -> bytes:
    """A good model: a network, or of one node."""
    if name in STORED:
        return (MODELS / name).read_bytes()
    found: bytes = (MADE[name] if name in MADE else partial(model_of_node, name))().SerializeToString()
    return found


def model_of_node(name: str) -> Any:
    """The first of ONNX's cases of an operator, one without open axes; of com.microsoft, and of `MANY`, the example."""
    from onnx.backend.test.case import node

    if name in FUSED:
        return read_example(f"com.microsoft::{name}")
    if name in MANY:
        return read_example(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module(f"{node.__name__}.{CASES[name]}")
    own = [case for case in node._NodeTestCases if any(one.op_type == name for one in case.model.graph.node)]
    return min(own, key=lambda case: (is_open(case.model), case.name)).model


def is_open(model: Any) -> bool:
    """Whether an axis of an input has no size."""
    shapes = [value.type.tensor_type.shape for value in model.graph.input]
    return any(not dim.HasField("dim_value") for shape in shapes for dim in shape.dim)


# -- bytes -------------------------------------------------------------------------------------------------


def change_bytes(rng: Random, data: bytearray) -> None:
    """One change, mostly near the beginning or the end, where the structure is."""
    edge = min(len(data), 8000)
    if not data:  # all is gone already
        return
    at = rng.choice([rng.randrange(len(data)), rng.randrange(edge), len(data) - 1 - rng.randrange(edge)])
    length = rng.choice([1, 1, 2, 8, 64])
    how = rng.randrange(7)
    if how == 0:
        data[at] = rng.randrange(256)
    elif how == 1:
        data[at] ^= 1 << rng.randrange(8)
    elif how == 2:
        del data[at : at + length]
    elif how == 3:
        data[at:at] = data[at : at + length]
    elif how == 4:
        data[at : at + length] = bytes(rng.choice([0, 255, 127, 128]) for _ in range(length))
    elif how == 5:
        other = rng.randrange(len(data))
        data[at : at + length] = data[other : other + length]
    elif rng.random() < 0.3:
        del data[at:]


# -- structure ---------------------------------------------------------------------------------------------

INTS = (0, 1, -1, 2, 3, 7, 255, 2**31 - 1, -(2**31), 10**6)
LONGS = (*INTS, 2**31, 2**62, 2**63 - 1, -(2**63), 10**12)
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 1e38, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", "x", "y", "Relu", "Add", "Conv", "Loop", "axis", "\n", "\x1b[2J", "é" * 9, "a" * 4000, "%s{}", "\0")


def walk(message: Message) -> Iterator[tuple[Message, Any]]:
    """All fields that are set, at any depth, each with the message that has it."""
    for field, value in message.ListFields():
        yield message, field
        if field.message_type is not None:
            for inner in value if is_repeated(field) else [value]:
                yield from walk(inner)


def is_repeated(field: Any) -> bool:
    return bool(field.is_repeated)


def another(rng: Random, field: Any, value: Any) -> Any:
    """Another value of a field's type."""
    if field.enum_type is not None:
        return rng.choice([*field.enum_type.values_by_number])
    if isinstance(value, bool | int):
        return rng.choice([value + 1, value - 1, -value, *(INTS if field.cpp_type == field.CPPTYPE_INT32 else LONGS)])
    if isinstance(value, float):
        return rng.choice([-value, 2 * value, *FLOATS])
    if isinstance(value, bytes):
        return rng.choice([b"", value[:-1], value + b"\0", value[::-1], b"NOTSET", bytes(8), b"\xff\xfe"])
    return rng.choice([value[:-1], value + "_", *TEXTS])


def change_structure(rng: Random, model: ModelProto) -> None:
    """One change of one field, whichever."""
    places = list(walk(model))
    kinds = sorted({field.full_name for _, field in places})
    if not kinds:  # all is gone already
        return
    kind = rng.choice(kinds)  # of rare fields as often as of common ones
    message, field = rng.choice([one for one in places if one[1].full_name == kind])
    value = getattr(message, field.name)
    others = [m for m, f in places if f.full_name == kind and m is not message]
    with suppress(ValueError, TypeError, UnicodeError):  # what a field cannot hold is no change
        if not is_repeated(field):
            if field.message_type is not None:
                message.ClearField(field.name)
            elif others and rng.random() < 0.3:
                setattr(message, field.name, getattr(rng.choice(others), field.name))
            elif rng.random() < 0.2:
                message.ClearField(field.name)
            else:
                setattr(message, field.name, another(rng, field, value))
            return
        at, how = rng.randrange(len(value)), rng.randrange(5)
        items = list(value)
        if field.message_type is not None:
            items = [type(items[0]).FromString(one.SerializeToString()) for one in items]
        if how == 0:
            del items[at]
        elif how == 1:
            items.insert(at, items[rng.randrange(len(items))])
        elif how == 2:
            other = rng.randrange(len(items))
            items[at], items[other] = items[other], items[at]
        elif how == 3:
            items = items[:at]
        elif field.message_type is None:
            items[at] = another(rng, field, items[at])
        message.ClearField(field.name)
        getattr(message, field.name).extend(items)


def make(k: int) -> bytes:
    """The bytes of model k."""
    rng = Random(SEED * 10_000 + k)
    name = rng.choice([[*MADE, *MADE, *STORED], [*CASES], [*FUSED], [*MANY]][rng.choice([0, 0, 1, 1, 2, 3])])
    if k % 2:
        data = bytearray(bytes_of(name))
        for _ in range(rng.choice([1, 1, 2, 5, 20])):
            change_bytes(rng, data)
        return bytes(data)
    model = ModelProto.FromString(bytes_of(name))
    for _ in range(rng.choice([1, 1, 2, 4])):
        change_structure(rng, model)
    return model.SerializeToString()


# -- what becomes of them ----------------------------------------------------------------------------------

LISTED = re.compile(
    r"(load_onnx|StagedModel): [^\n]*: \d+ nodes? ha(s|ve) an operator that is not supported:\n(  [^\n]+\n)+"
    r"\d+ operators of ONNX: [^\n]+"
)
"""The one message of several lines: a head, an indented line for each node, and what there is."""


def jobs_of(models: Iterable[int]) -> list[tuple[int, str]]:
    """What is done with models: all are imported; of both kinds each eighth is imported in stages, and planned too."""
    return [(k, way) for k in models for way in (WAYS if k // 2 % 8 == 0 else WAYS[:1])]


def try_all(models: Iterable[int]) -> list[Ending]:
    """Try models in one process of their own."""
    chosen = list(models)
    jobs = jobs_of(chosen)
    found = subprocess.run(
        [sys.executable, __file__, *map(str, chosen)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        timeout=SECONDS * len(jobs),
    )
    endings = [Ending(*json.loads(line)) for line in found.stdout.splitlines()]
    if len(endings) < len(jobs):  # the process died
        k, way = jobs[len(endings)]
        endings.append(Ending(k, f"died: {way}", found.returncode or 1, found.stderr, 0.0, 0))
    return endings


def try_here(models: Iterable[int]) -> Iterator[Ending]:
    """Try models in this process."""
    ways = dict(zip(WAYS, (_import, _import_in_stages, _plan), strict=True))
    for k, way in jobs_of(models):
        data = make(k)
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the peak is measured anew
        begin = _seconds()
        status, words = ways[way](data)
        yield Ending(
            k, f"{'bytes' if k % 2 else 'structure'}: {way}", status, words, _seconds() - begin, _peak_nbytes()
        )


def _import(data: bytes) -> tuple[int, str]:
    from tapestry_plan import load_onnx

    return _tell(lambda: load_onnx(data))


def _import_in_stages(data: bytes) -> tuple[int, str]:
    from tapestry_plan.onnx import StagedModel

    return _tell(lambda: StagedModel(data))


def _tell(read: Callable[[], Any]) -> tuple[int, str]:
    """How reading a model ended, and the error as who called it sees it."""
    from tapestry_plan import UnsupportedOp

    try:
        read()
    except ValueError as error:
        text = str(error)
        if isinstance(error, UnsupportedOp) and LISTED.fullmatch(text):
            text = " ".join(text.split("\n"))
        return 2, f"error: {text}\n"
    except Exception as error:
        return 1, f"{type(error).__name__}: {error}"
    return 0, ""


def _plan(data: bytes) -> tuple[int, str]:
    """By the command line."""
    from click.testing import CliRunner

    from tapestry_exec.cli import main

    with TemporaryDirectory() as place:
        file = Path(place) / "m.onnx"
        file.write_bytes(data)
        result = CliRunner().invoke(main, ["plan", str(file), "-q", "--mesh", "2"])
    words = result.stderr
    if result.exc_info is not None and not isinstance(result.exception, SystemExit | None):
        words += "".join(traceback.format_exception(result.exception))
    return result.exit_code, words


def _seconds() -> float:
    """Processor time of this process, and of the one that infers for it."""
    from tapestry_plan.onnx.inference import _PROCESS

    seconds = time.process_time()
    if _PROCESS._process is not None:
        with suppress(OSError):
            fields = Path(f"/proc/{_PROCESS._process.pid}/stat").read_text().rpartition(")")[2].split()
            seconds += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


def _main() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (HARD_NBYTES, HARD_NBYTES))
    for ending in try_here(map(int, sys.argv[1:])):
        print(json.dumps(ending), flush=True)


if __name__ == "__main__":
    _main()
