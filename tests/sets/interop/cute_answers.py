"""Questions to CUTLASS's own layouts in Python, and what they answered: cute_answers.json.

The answers are of the module `pycute` in the wheel of nvidia-cutlass 3.8.0.0 on PyPI (BSD-3-Clause; the package of PyPI
that is named pycute is another). With the wheel on the path

    python -m tests.sets.interop.cute_answers > tests/sets/interop/cute_answers.json

writes them anew; null is where an assertion of it failed, or an error was raised.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

ANSWERS = Path(__file__).with_suffix(".json")
SEED, MANY = 2026, 400
Nest = Any


def random_shape(rng: random.Random, most: int = 60, depth: int = 0) -> Nest:
    """An extent, or a nest of extents, of a size up to `most`."""
    if depth and rng.random() < 0.6:
        return rng.choice([1, 2, 2, 3, 4, 4, 6, 8])
    modes: list[Nest] = []
    for _ in range(rng.randint(1, 3)):
        one = random_shape(rng, most, depth + 1) if depth < 2 else rng.choice([2, 3, 4])
        if size_of((*modes, one)) <= most:
            modes.append(one)
    return tuple(modes) if modes else 2


def leaves_of(nest: Nest) -> Iterator[int]:
    if isinstance(nest, tuple):
        for one in nest:
            yield from leaves_of(one)
    else:
        yield nest


def size_of(shape: Nest) -> int:
    size = 1
    for n in leaves_of(shape):
        size *= n
    return size


def random_stride(rng: random.Random, shape: Nest) -> Nest:
    """Strides of compact modes in some order, some of them spread, zero or whatever."""
    extents = list(leaves_of(shape))
    order = rng.sample(range(len(extents)), len(extents))
    strides, step = [0] * len(extents), rng.choice([1, 1, 1, 2, 3])
    for at in order:
        strides[at] = step
        step *= extents[at] * rng.choice([1, 1, 1, 2, 3])
    for at in range(len(extents)):
        if rng.random() < 0.12:
            strides[at] = rng.choice([0, 1, 2, 5, 7, 12])
    left = iter(strides)

    def refill(nest: Nest) -> Nest:
        return tuple(map(refill, nest)) if isinstance(nest, tuple) else next(left)

    return refill(shape)


def random_layout(rng: random.Random, most: int = 60) -> tuple[Nest, Nest]:
    shape = random_shape(rng, most)
    return shape, random_stride(rng, shape)


QUESTIONS: dict[str, Callable[[Any, Any, Any, int], Any]] = {
    "size": lambda cute, a, b, n: cute.size(a),
    "cosize": lambda cute, a, b, n: cute.cosize(a),
    "coalesce": lambda cute, a, b, n: cute.coalesce(a),
    "compose": lambda cute, a, b, n: cute.composition(a, b),
    "complement": lambda cute, a, b, n: cute.complement(a, n),
    "divide": lambda cute, a, b, n: cute.logical_divide(a, b),
    "divide by number": lambda cute, a, b, n: cute.logical_divide(a, 1 + n % 8),
    "multiply": lambda cute, a, b, n: cute.logical_product(a, b),
    "right inverse": lambda cute, a, b, n: cute.right_inverse(a),
    "left inverse": lambda cute, a, b, n: cute.left_inverse(a),
}


def answers_of(cute: Any) -> Iterator[dict[str, Any]]:
    """Yield each case with what the module `pycute` of CUTLASS answers."""
    rng = random.Random(SEED)
    for _ in range(MANY):
        a, b, n = random_layout(rng), random_layout(rng, 24), rng.choice([1, 4, 16, 24, 60, 120, 128])
        found: dict[str, Any] = {"a": text_of(*a), "b": text_of(*b), "n": n}
        for question, ask in QUESTIONS.items():
            try:
                answer = ask(cute, cute.Layout(*a), cute.Layout(*b), n)
            except Exception:
                answer = None
            found[question] = text_of(answer.shape, answer.stride) if hasattr(answer, "stride") else answer
        yield found


def text_of(shape: Nest, stride: Nest) -> str:
    return re.sub(r",(?=\))|\s", "", f"{shape}:{stride}")


def cutlass() -> Any:
    """The module `pycute` of CUTLASS, None where it is not installed."""
    try:
        metadata.version("nvidia-cutlass")
        return import_module("pycute")
    except (ImportError, metadata.PackageNotFoundError):
        return None


if __name__ == "__main__":
    print("[")
    print(",\n".join(json.dumps(row) for row in answers_of(cutlass())))
    print("]")
