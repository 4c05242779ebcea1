"""Good models in which something was changed: 1,000 of them, the same in each run.

    python tests/mutated_models.py K …     imports models of these numbers; prints a line of JSON for each

Half are changed in their bytes: some flipped, left out, doubled, put elsewhere, or cut off. Half are changed in their
structure: some field of the parsed model, at any depth, is given another value of its type, left out, doubled, swapped
with a neighbor or with the same field of another node. `import_all` imports some in a process of their own, whose
memory is bounded, and tells how each ended.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from google.protobuf.message import Message
from onnx import ModelProto

sys.path[:0] = [str(Path(__file__).parent.parent)] if __name__ == "__main__" else []

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


@cache
def bytes_of(name: str) -> bytes:
    """A good model."""
    found: bytes = MADE[name]().SerializeToString() if name in MADE else (MODELS / name).read_bytes()
    return found


# -- bytes -------------------------------------------------------------------------------------------------


def change_bytes(rng: Random, data: bytearray) -> None:
    """One change, mostly near the beginning or the end, where the structure is."""
    edge = min(len(data), 8000)
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
    name = rng.choice([*MADE, *MADE, *STORED])
    if k % 2:
        data = bytearray(bytes_of(name))
        for _ in range(rng.choice([1, 1, 2, 5, 20])):
            change_bytes(rng, data)
        return bytes(data)
    model = ModelProto.FromString(bytes_of(name))
    for _ in range(rng.choice([1, 1, 2, 4])):
        change_structure(rng, model)
    return model.SerializeToString()


# -- importing them ----------------------------------------------------------------------------------------


def import_all(models: Iterable[int]) -> list[Ending]:
    """Import models in one process of their own."""
    chosen = list(models)
    found = subprocess.run(
        [sys.executable, __file__, *map(str, chosen)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
    )
    endings = [Ending(*json.loads(line)) for line in found.stdout.splitlines()]
    if len(endings) < len(chosen):  # the process died
        endings.append(Ending(chosen[len(endings)], "died", found.returncode or 1, found.stderr, 0.0, 0))
    return endings


def import_here(models: Iterable[int]) -> Iterator[Ending]:
    """Import models in this process."""
    from tapestry_plan import load_onnx
    from tapestry_plan.ir import UnsupportedOp

    for k in models:
        data = make(k)
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the peak is measured anew
        begin, status, words = time.process_time(), 0, ""
        try:
            load_onnx(data)
        except UnsupportedOp as error:  # a line for each node
            status, words = 2, "error: " + " ".join(str(error).split("\n")) + "\n"
        except ValueError as error:
            status, words = 2, f"error: {error}\n"
        except Exception as error:
            status, words = 1, f"{type(error).__name__}: {error}"
        seconds = time.process_time() - begin
        yield Ending(k, "bytes" if k % 2 else "structure", status, words, seconds, _peak_nbytes())


def _main() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (HARD_NBYTES, HARD_NBYTES))
    for ending in import_here(map(int, sys.argv[1:])):
        print(json.dumps(ending), flush=True)


if __name__ == "__main__":
    _main()
