"""Devices that exchange through NCCL: on simulated GPUs, none of which reaches another one's memory otherwise."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from threading import Thread
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings

from tapestry_exec import BackendUnavailable, NcclBackend, StepFailed, deploy, run
from tapestry_exec.cuda import device, payloads
from tapestry_exec.run import OrderingFault
from tapestry_exec.simulated import namespace as simulated
from tapestry_plan import Link, Mesh, plan
from tapestry_plan.steps import HOST, Copy
from tests.exec.run.test_collectives_as_one import CASES, Words, build, feeds_of, product, words
from tests.exec.run.test_side_by_side import made
from tests.exec.small_networks import make_case

Calls = list[tuple[Any, ...]]


def make_backend(gpus: int, calls: Calls | None = None, **options: Any) -> NcclBackend:
    """A backend whose calls of NCCL are taken down: GPUs have no other way to each other."""
    xp = simulated.cupy(gpus, peers=False, unwritten=True)

    def refuse(*given: Any) -> None:
        raise AssertionError("a copy between GPUs that is not NCCL's")

    xp.cuda.runtime.memcpyPeerAsync = refuse
    if calls is not None:
        nccl = xp.cuda.nccl
        for name in ("groupStart", "groupEnd"):
            setattr(nccl, name, note(calls, name, getattr(nccl, name)))
        for name in ("send", "recv", "broadcast"):
            setattr(nccl.NcclCommunicator, name, note(calls, name, getattr(nccl.NcclCommunicator, name)))
    return NcclBackend(cupy=xp, poison=True, fallback=True, **options)


def note(calls: Calls, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def noted(*given: Any) -> Any:
        calls.append((name, *given))
        return function(*given)

    return noted


@pytest.mark.parametrize("count", [2, 3, 4])
def test_partial_sums_have_the_bits_and_counts_of_one_loop(count: int) -> None:
    case, calls = make_case("sums", count), Calls()
    found = run(case.plan, case.inputs, backend=make_backend(count, calls))
    for name, array in case.wanted.outputs.items():
        assert found.outputs[name].tobytes() == array.tobytes()
    for name in ("nbytes_by_link", "nbytes_received", "nbytes_placed", "peak_nbytes"):
        assert getattr(found, name) == getattr(case.wanted, name)
    sent = [call for call in calls if call[0] == "send"]
    assert sum(count for _, _, _, count, *_ in sent) == case.plan.nbytes_moved == found.nbytes_moved


@pytest.mark.parametrize(("link", "asked", "kinds"), CASES)
def test_collectives_are_groups(link: Link, asked: dict[str, Any], kinds: dict[str, int]) -> None:
    """A round a group, in which each device sends one message and gets one; a broadcast to all is NCCL's own."""
    count = 3 if asked["fix"] == {"it": {"k": 3}} else 4
    g = product()
    p, feeds, calls = plan(g, Mesh((count,), link=link), **asked), feeds_of(g), Calls()
    found, wanted = run(p, feeds, backend=make_backend(count, calls)), run(p, feeds)
    assert found.outputs["y"].tobytes() == wanted.outputs["y"].tobytes()
    assert found.nbytes_by_link == wanted.nbytes_by_link and found.peak_nbytes == wanted.peak_nbytes
    groups, inside = list[list[tuple[str, int]]](), False
    for name, *call in calls:
        assert inside == (name != "groupStart"), "no call outside of a group, no group in another one"
        if name == "groupStart":
            groups.append([])
        elif name != "groupEnd":
            groups[-1].append((name, call[0].rank))
        inside = name != "groupEnd"
    assert not inside and all(len(set(group)) == len(group) for group in groups)
    devices = {one.id: one.device for one in p.buffers}
    rounds = [1 if one.kind == "broadcast" else len(one.group) - 1 for one in p.collectives()]
    singles = [one for one in p.grouped_steps if isinstance(one, Copy) and one.src != HOST and one.piece is None]
    crossing = [one for one in singles if devices[one.src] != devices[one.dst]]
    assert len(groups) == sum(rounds) + len(crossing)
    assert sum(group[0][0] == "broadcast" for group in groups) == kinds.get("broadcast", 0)


@pytest.fixture(scope="module", params=["small rings", "sent from where it lies"])
def tight(request: pytest.FixtureRequest) -> Iterator[None]:
    """Rings have no byte too much; what lies in one piece may be sent without a copy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(payloads, "RING_PAYLOADS", 1)
        patch.setattr(device, "DIRECT_NBYTES", 1 if request.param == "sent from where it lies" else 1 << 30)
        yield


@pytest.mark.heavy(2)
@pytest.mark.usefixtures("tight")
@given(words())
@settings(max_examples=max(10, settings.default.max_examples // 6))
# in rounds a payload that is sent and one that comes must both fit, wherever the ring begins
@example(((2,), [("rows", 8), ("rows", 6), ("max", 3), ("rows", 8), ("turned", 3)], "whole", True))
# a device gets what it is sent where something lay that it has just sent
@example(((4,), [("rows", 5), ("sum", 2), ("max", 3), ("sum", 3), ("product", 5)], "whole", False))
def test_random_plans(words: Words) -> None:
    p = build(words)
    feeds = feeds_of(p.graph)
    together, apart = make_backend(p.mesh.size), make_backend(p.mesh.size)
    apart.takes = lambda collective: False  # type: ignore[method-assign]
    wanted = run(p, feeds, backend="serial")
    for backend in (together, apart):
        found = run(p, feeds, backend=backend)
        for name, array in wanted.outputs.items():
            np.testing.assert_array_equal(found.outputs[name], array)
        assert found.nbytes_by_link == wanted.nbytes_by_link


def test_devices_that_stay_run_often() -> None:
    p, inputs = made(3)
    wanted = run(p, inputs, backend="serial").outputs["y"].tobytes()
    with deploy(p, backend=make_backend(3, blocking=True)) as placed:
        assert all(placed.run(inputs).outputs["y"].tobytes() == wanted for _ in range(3))


def test_what_is_missing_is_named() -> None:
    p, inputs = made(3)
    with pytest.raises(BackendUnavailable, match=r"3 devices and this machine 2 GPUs; .*plan for Mesh\(2\), or use"):
        run(p, inputs, backend=make_backend(2))
    for nccl in (None, SimpleNamespace(available=False)):
        backend = make_backend(3)
        backend.cupy.cuda.nccl = nccl
        with pytest.raises(BackendUnavailable, match="needs NCCL, which CuPy does not find: pip install nvidia-nccl"):
            run(p, inputs, backend=backend)
    backend = make_backend(3)

    def fail(devices: Sequence[int]) -> None:
        raise RuntimeError("NCCL_ERROR_SYSTEM_ERROR")

    backend.cupy.cuda.nccl.NcclCommunicator.initAll = fail
    with pytest.raises(BackendUnavailable, match=r"NCCL does not begin on GPUs \[0, 1, 2\]: NCCL_ERROR_SYSTEM_ERROR"):
        run(p, inputs, backend=backend)
    with pytest.raises(ValueError, match=r"devices\[2\] is 1, as devices\[1\] is; NCCL has one rank a GPU"):
        NcclBackend([0, 1, 1])
    with pytest.raises(ValueError, match="capture is True; runs through NCCL are not recorded"):
        NcclBackend(capture=True)


def test_a_call_that_fails_is_named() -> None:
    """And the group in which it was is over."""
    p, inputs = made(2)
    backend = make_backend(2)
    nccl = backend.cupy.cuda.nccl

    def fail(*given: Any) -> None:
        raise nccl.NcclError("NCCL_ERROR_REMOTE_ERROR")

    send, nccl.NcclCommunicator.send = nccl.NcclCommunicator.send, fail
    with pytest.raises(StepFailed, match="NcclError: NCCL_ERROR_REMOTE_ERROR"):
        run(p, inputs, backend=backend)
    nccl.NcclCommunicator.send = send
    assert run(p, inputs, backend=backend).outputs["y"].tobytes() == run(p, inputs).outputs["y"].tobytes()


# -- what stands in for NCCL, against what NCCL's documentation says ------------------------------------------------


class Ranks:
    """Ranks with eight bytes each to send, and eight to get."""

    def __init__(self, count: int = 3) -> None:
        self.cupy = simulated.cupy(count, peers=False)
        self.nccl, self.streams, self.given, self.got = self.cupy.cuda.nccl, list[Any](), list[Any](), list[Any]()
        self.comms = self.nccl.NcclCommunicator.initAll(count)
        for rank in range(count):
            with self.cupy.cuda.Device(rank):
                self.streams.append(self.cupy.cuda.Stream(non_blocking=True))
                with self.streams[-1]:
                    self.given.append(self.cupy.full(8, 10 + rank, np.uint8))
                    self.got.append(self.cupy.full(8, 0, np.uint8))

    def join(self, number: tuple[int, ...], rank: int, size: int) -> None:
        """Be one of several processes', with other bytes each."""
        self.comms = [self.nccl.NcclCommunicator(size, number, rank)]
        with self.cupy.cuda.Device(0), self.streams[0]:
            self.given = [self.cupy.full(8, 10 + rank, np.uint8)]

    def send(self, at: int, to: int, count: int = 8) -> None:
        self.comms[at].send(self.given[at].data.ptr, count, 1, to, self.streams[at].ptr)

    def recv(self, at: int, source: int, count: int = 8) -> None:
        self.comms[at].recv(self.got[at].data.ptr, count, 1, source, self.streams[at].ptr)

    def read(self, rank: int) -> list[int]:
        with self.cupy.cuda.Device(rank), self.streams[rank]:
            found: list[int] = self.got[rank].get().tolist()
            return found


def test_a_group_exchanges_both_ways() -> None:
    one = Ranks()
    one.nccl.groupStart()
    for at in range(3):
        one.send(at, (at + 1) % 3)
        one.recv(at, (at - 1) % 3)
    one.nccl.groupEnd()
    assert [one.read(rank) for rank in range(3)] == [[12] * 8, [10] * 8, [11] * 8]


def test_a_broadcast_needs_all_ranks() -> None:
    one = Ranks()
    for ranks in ((0, 1), (0, 1, 2)):
        one.nccl.groupStart()
        for at in ranks:
            given, got = one.given[at].data.ptr, one.got[at].data.ptr
            one.comms[at].broadcast(given, got, 8, 1, 1, one.streams[at].ptr)
        if len(ranks) == 2:
            with pytest.raises(OrderingFault, match=r"wait for ever: broadcast of rank 0 .*: 2 of 3 ranks call it"):
                one.nccl.groupEnd()
    one.nccl.groupEnd()
    assert [one.read(rank) for rank in range(3)] == [[11] * 8] * 3


def test_what_would_wait_for_ever_is_a_fault() -> None:
    one = Ranks()
    with pytest.raises(OrderingFault, match=r"wait for ever: send of rank 0 with rank 1, .*: no recv in this group"):
        one.send(0, 1)  # outside of a group the other end cannot come any more
    one.nccl.groupStart()
    one.recv(0, 1)
    with pytest.raises(OrderingFault, match=r"wait for ever: recv of rank 0 with rank 1, .*: no send in this group"):
        one.nccl.groupEnd()
    one.nccl.groupStart()
    one.send(0, 1, 8)
    one.recv(1, 0, 4)
    with pytest.raises(OrderingFault, match="corrupt memory or wait for ever"):
        one.nccl.groupEnd()


def test_who_reads_before_the_group_has_ended_is_found() -> None:
    one = Ranks()
    one.nccl.groupStart()
    one.send(0, 1)
    one.recv(1, 0)
    one.nccl.groupEnd()
    with one.cupy.cuda.Device(1), one.cupy.cuda.Stream(non_blocking=True), pytest.raises(OrderingFault, match="wait"):
        one.got[1] + one.got[1]


class Apart:
    """Two ranks in threads, each with a machine of its own, as processes have: what they exchange are files."""

    def __init__(self) -> None:
        self.ranks = [Ranks(1) for _ in range(2)]
        self.number = self.ranks[0].nccl.get_unique_id()
        self.do(lambda rank, one: one.join(self.number, rank, 2))

    def do(self, way: Callable[[int, Ranks], Any]) -> list[Any]:
        """What each of both does, at once; what it gives or raises."""
        found: list[Any] = [None, None]

        def begin(rank: int) -> None:
            try:
                found[rank] = way(rank, self.ranks[rank])
            except Exception as error:
                found[rank] = error

        threads = [Thread(target=begin, args=(rank,), daemon=True) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        return found


def test_a_group_between_processes_exchanges_both_ways() -> None:
    both = Apart()

    def exchange(rank: int, one: Ranks) -> list[int]:
        one.nccl.groupStart()
        one.send(0, 1 - rank)
        one.recv(0, 1 - rank)
        one.nccl.groupEnd()
        return one.read(0)

    assert both.do(exchange) == [[11] * 8, [10] * 8]

    def spread(rank: int, one: Ranks) -> list[int]:
        at = one.got[0].data.ptr if rank else one.given[0].data.ptr
        one.comms[0].broadcast(at, at, 8, 1, 0, one.streams[0].ptr)
        return one.read(0)

    assert both.do(spread)[1] == [10] * 8


def test_without_a_group_a_call_between_processes_waits() -> None:
    """Both send first: each waits for a receipt behind its own send, until somebody aborts."""
    both = Apart()
    ends = [threading.Timer(0.2, one.comms[0].abort) for one in both.ranks]
    for end in ends:
        end.start()

    def send_first(rank: int, one: Ranks) -> None:
        one.send(0, 1 - rank)
        one.recv(0, 1 - rank)

    found = both.do(send_first)
    assert [type(error).__name__ for error in found] == ["NcclError"] * 2 and "was aborted" in str(found[0])


def test_both_ends_between_processes_must_agree() -> None:
    both = Apart()
    end = threading.Timer(0.3, both.ranks[0].comms[0].abort)
    end.start()
    found = both.do(lambda rank, one: one.recv(0, 0, 4) if rank else one.send(0, 1, 8))
    assert isinstance(found[1], OrderingFault) and "would corrupt memory" in str(found[1])
    nccl = both.ranks[0].nccl
    assert isinstance(found[0], nccl.NcclError)
    other = nccl.get_unique_id()
    found = both.do(lambda rank, one: one.join(other, rank, 2 + rank) if rank else one.join(other, rank, 2))
    assert any(isinstance(error, OrderingFault) and "one of" in str(error) for error in found)


def test_the_stand_in_has_what_cupy_has() -> None:
    """CuPy's own class, where its library is installed: the methods and their parameters."""
    pytest.importorskip("cupy")
    try:
        ctypes.CDLL("libnccl.so.2")
    except OSError:
        pytest.skip("NCCL's library is not installed")
    from cupy.cuda import nccl

    stand_in = Ranks().nccl
    for name in ("send", "recv", "broadcast"):
        theirs = getattr(nccl.NcclCommunicator, name).__doc__.split("(")[1].split(")")[0].replace(",", "").split()
        ours = getattr(stand_in.NcclCommunicator, name).__code__.co_varnames
        assert [word for word in theirs if word in ours] == list(ours)[: len(theirs)]
    for name in ("abort", "destroy", "check_async_error", "size", "rank_id"):
        assert hasattr(nccl.NcclCommunicator, name) and hasattr(stand_in.NcclCommunicator, name)
    assert len(nccl.get_unique_id()) == len(stand_in.get_unique_id()) and nccl.get_version() >= 2700
    assert nccl.NCCL_UINT8 == stand_in.NCCL_UINT8 and issubclass(nccl.NcclError, RuntimeError)
