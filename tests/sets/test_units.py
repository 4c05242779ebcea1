"""Bytes, seconds and operations in words: as near as four digits are, and exact when asked."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapestry_sets.limits import Units

NBYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50, "EiB": 2**60}
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
FLOP = {"flop": 1, "kFLOP": 1e3, "MFLOP": 1e6, "GFLOP": 1e9, "TFLOP": 1e12, "PFLOP": 1e15, "EFLOP": 1e18}


def value(text: str, units: dict[str, float]) -> float:
    number, unit = text.replace(",", "").split(" ")
    return float(number) * units[unit]


@given(st.integers(0, 2**63))
def test_bytes(n: int) -> None:
    assert value(Units().nbytes(n), NBYTES) == pytest.approx(n, rel=5.01e-4)
    assert len(Units().nbytes(n)) <= len("1023 KiB") + 1
    assert Units(exact=True).nbytes(n).replace(",", "") == f"{n} B"
    assert not re.match(r"102[4-9]", Units().nbytes(n)) or n < 1024 or n >= 2**70, "the next unit begins there"


@given(st.floats(1e-12, 1e6))
def test_seconds(n: float) -> None:
    assert value(Units().seconds(n), SECONDS) == pytest.approx(n, rel=5.01e-4)
    assert value(Units(exact=True).seconds(n), SECONDS) == n


@given(st.floats(0, 1e21, allow_subnormal=False) | st.integers(0, 10**21).map(float))
def test_operations(n: float) -> None:
    assert value(Units().flop(n), FLOP) == pytest.approx(n, rel=5.01e-4)
    assert value(Units(exact=True).flop(n), FLOP) == n


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (Units().nbytes(1023), "1023 B"),
        (Units().nbytes(1024**2 - 1), "1 MiB"),
        (Units().seconds(0.99999), "1 s"),
        (Units().seconds(9.9999e-4), "1 ms"),
        (Units().seconds(0), "0 s"),
        (Units().flop(999_999), "1 MFLOP"),
        (Units(exact=True).flop(0.5), "0.5 flop"),
    ],
)
def test_where_units_begin(text: str, shown: str) -> None:
    assert text == shown
