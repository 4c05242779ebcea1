"""The answers of docs/questions.md, found again by listing cells: NumPy and sets of Python, nothing of the engine."""

from __future__ import annotations

import re
from collections import Counter, namedtuple
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "questions.md").read_text()
QUESTIONS = dict(re.findall(r"^## (.+?)$.*?```pycon\n(.*?)```", PAGE, re.S | re.M))
Witness = namedtuple("Witness", "a b cell")
Missing = namedtuple("Missing", "at allocation cell")
Check = Callable[..., bool]


def printed(heading: str) -> list[str]:
    """What the lines of a question print."""
    return [line for line in QUESTIONS[heading].splitlines() if not line.startswith((">>> ", "... "))]


def value(heading: str) -> Any:
    """The last of it, as Python reads it."""
    words = {"Witness": Witness, "Missing": Missing, "Allocation": lambda *shape, **named: (shape, named)}
    return eval(printed(heading)[-1], words)


def cells(array: np.ndarray) -> set[int]:
    return set(np.asarray(array).ravel().tolist())


def common(one: np.ndarray, two: np.ndarray) -> int:
    return len(cells(one) & cells(two))


def in_place() -> bool:
    x = np.arange(1024)
    witness, odd = value("In-place hazards")
    return x[1:][witness.a] == x[:-1][witness.b] == witness.cell[0] and odd == (common(x[1::2], x[::2]) > 0)


def layouts() -> bool:
    buffer = np.arange(2 * 8 * 16 * 16)
    nchw, nhwc = buffer.reshape(2, 8, 16, 16), buffer.reshape(2, 16, 16, 8).transpose(0, 3, 1, 2)
    return value("NCHW against NHWC tiles") == 2 * common(nchw[:, :4, :8], nhwc[:, :4, :8])


def halos() -> bool:
    def reads(rows: range) -> set[tuple[int, int]]:
        every = product(rows, range(64), range(3), range(3))
        at = ((r + 4 * i - 4, c + 4 * j - 4) for r, c, i, j in every)
        return {(y, x) for y, x in at if 0 <= y < 64 and 0 <= x < 64}

    return value("Dilated halos") == len(reads(range(32)) & reads(range(32, 64)))


def pages() -> bool:
    cache = np.arange(64 * 16 * 128).reshape(64, 16, 128)
    one, two = cache[[7, 3, 60]].reshape(-1, 128)[:40], cache[[5, 3]].reshape(-1, 128)
    size, witness = value("Paged KV caches")
    return size == common(one, two) and one[witness.a] == two[witness.b] == cache[witness.cell]


def banks() -> bool:
    worst = [max(Counter((row * step) % 32 for row in range(32)).values()) for step in (32, 33)]
    return value("Bank conflicts") == worst


def transfers() -> bool:
    receive = 4096 + 1024 * np.arange(64)[:, None] + np.arange(256)
    send = 768 + 4096 * np.arange(16)[:, None] + np.arange(512)
    size, witness = value("DMA descriptors")
    return size == common(receive, send) and receive[witness.a] == send[witness.b] == witness.cell[0]


def symbols() -> bool:
    meet = {n for n in range(1, 200) if set(range(2, n, 5)) & set(range(0, n, 3))}
    return printed("Symbolic tiles") == [f"N >= {min(meet)}"] and meet == set(range(min(meet), 200))


def divisors() -> bool:
    a = np.arange(6000)
    return value("GCD tests") == (common(a[3::6], a[::4]) > 0, common(a[2::6], a[::4]))


def triangles() -> bool:
    kept = sum(key <= query for query in range(128, 192) for key in range(96, 192))
    return value("Causal triangles") == kept


def shards() -> bool:
    w = np.arange(512 * 384).reshape(512, 384)
    once = Counter(x for part in [*[w[k::4, :200] for k in range(4)], w[:, 200:]] for x in part.ravel().tolist())
    twice = Counter([*w[:, :200].ravel().tolist(), *w[:, 192:380].ravel().tolist()])
    first, second = printed("Exact cover by shards")
    gap, held, one, two = (tuple(map(int, at.split(", "))) for at in re.findall(r"\[(\d+, \d+)\]", second))
    return (
        once == Counter(w.ravel().tolist())
        and first == "Coverage(exactly once, by 5 views)"
        and twice[int(w[gap])] == 0
        and twice[int(w[held])] == 2
        and w[held] == w[:, :200][one] == w[:, 192:380][two]
    )


def widths() -> bool:
    data = np.arange(64 * 256).reshape(64, 256)
    half, floats = data[:, 10:12], [data[:, 4 * k : 4 * k + 4] for k in (2, 1)]
    return value("fp16 views of an fp32 buffer") == (common(half, floats[0]), common(half, floats[1]) > 0)


def arena() -> bool:
    each = [set(range(1024)), set(range(1024, 3072)), set(range(2560, 4096))]
    matrix = [[int(bool(a & b)) for b in each] for a in each]
    return value("An arena's buffers") == (matrix, len(each[1] & each[2]))


def tied() -> bool:
    embed = np.zeros((100, 16), np.float32)
    rows = cells(np.arange(embed.nbytes).reshape(100, -1)[:80])
    return value("Tied weights") == [(("embed", "head"), len(rows))] and np.shares_memory(embed, embed[:80].T)


def swizzles() -> bool:
    tile = np.arange(8 * 64)
    swizzled = (tile ^ ((tile & (7 << 6)) >> 3)).reshape(8, 64)[:, :8]
    tile = tile.reshape(8, 64)
    return value("Swizzles") == (common(swizzled, tile[:, :8]), common(swizzled, tile[3, 24:32]))


def unions() -> bool:
    a = np.arange(100 * 100).reshape(100, 100)
    return value("Unions") == (len(cells(a[:60:2]) | cells(a[40::3])), a[:60:2].size + a[40::3].size)


def unread() -> bool:
    a = np.arange(48).reshape(6, 8)
    gap = value("Cells that nobody reads")
    return int(a[gap.cell]) not in cells(a[::2]) | cells(a[:, ::2]) and gap.at == gap.cell


CHECKS: dict[str, Check] = {
    "In-place hazards": in_place,
    "NCHW against NHWC tiles": layouts,
    "Dilated halos": halos,
    "Paged KV caches": pages,
    "Bank conflicts": banks,
    "DMA descriptors": transfers,
    "Symbolic tiles": symbols,
    "GCD tests": divisors,
    "Causal triangles": triangles,
    "Exact cover by shards": shards,
    "fp16 views of an fp32 buffer": widths,
    "An arena's buffers": arena,
    "Tied weights": tied,
    "Swizzles": swizzles,
    "Unions": unions,
    "Cells that nobody reads": unread,
}


def test_each_of_sixteen_questions_is_at_most_three_lines() -> None:
    assert list(QUESTIONS) == list(CHECKS) and len(QUESTIONS) == 16
    assert all(1 <= sum(line.startswith(">>> ") for line in text.splitlines()) <= 3 for text in QUESTIONS.values())
    assert "... " not in "".join(QUESTIONS.values())


@pytest.mark.parametrize("heading", CHECKS)
def test_answers_are_those_that_listed_cells_give(heading: str) -> None:
    assert CHECKS[heading]()
