"""Which views PyTorch takes: run by hand where torch is installed; what it prints is `torch_views.json`.

python tests/sets/alias/torch_views.py > tests/sets/alias/torch_views.json
"""

from __future__ import annotations

import json
import random
from importlib import import_module

SHAPES = [(4, 6), (2, 3, 4), (2, 1, 6), (1, 4, 1), (6, 4, 1), (1, 1), (3, 1, 2, 2), (0, 4), (2, 0, 3), ()]
NEW = [(24,), (4, 6), (6, 4), (2, 12), (2, 2, 6), (3, 8), (1, 24, 1), (4,), (2, 2), (1, 4), (12,), (2, 6), (3, 4)]
NEW += [(1, 12), (0,), (3, 0), (), (1,), (1, 1, 1), (2, 3, 2)]


def main() -> None:
    torch = import_module("torch")
    chance = random.Random(0)
    rows = []
    for shape in SHAPES:
        for _ in range(12):
            strides, step = [], chance.choice([1, 1, 2, 0])
            for n in reversed(shape):
                strides.append(step)
                step = chance.choice([step * max(n, 1)] * 4 + [1, 7, 0])
            tensor = torch.zeros(4096).as_strided(shape, strides[::-1])
            same = [new for new in NEW if torch.zeros(new).numel() == tensor.numel()]
            rows += [json.dumps([shape, strides[::-1], new, is_taken(tensor, new)]) for new in same]
    print("[" + ",\n ".join(sorted(set(rows))) + "]")


def is_taken(tensor: object, new: tuple[int, ...]) -> bool:
    """Whether `Tensor.view` takes a shape."""
    try:
        tensor.view(new)  # type: ignore[attr-defined]
    except RuntimeError:
        return False
    return True


if __name__ == "__main__":
    main()
