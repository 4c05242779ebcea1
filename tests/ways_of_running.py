"""All ways in which the devices of one machine run, and what of two runs must be the same."""

from __future__ import annotations

from functools import partial

from tapestry_exec import NumpyBackend, RunResult

COUNTED = ("nbytes_by_link", "nbytes_received", "nbytes_placed", "nbytes_spilled", "peak_nbytes", "flop")


Threads = partial(NumpyBackend, threads=True)
"""A thread for each device, however little there is to do."""


def assert_same(found: RunResult, wanted: RunResult) -> None:
    """Both have the same bits, count the same, and tell of the same steps."""
    assert found.outputs.keys() == wanted.outputs.keys()
    for name, array in wanted.outputs.items():
        assert found.outputs[name].tobytes() == array.tobytes(), name
    for name in COUNTED:
        assert getattr(found, name) == getattr(wanted, name), name

    def told(run: RunResult) -> list[tuple[int, str, str, int, int]]:
        return [(event.step, event.kind, event.node, event.device, event.nbytes) for event in run.timeline]

    assert told(found) == told(wanted)
