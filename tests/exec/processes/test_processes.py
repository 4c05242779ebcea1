"""A process for each device: the bits and bytes of one loop, and nothing left behind, whatever happens."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tapestry_exec import BackendUnavailable, NumpyBackend, ProcessBackend, StepFailed, deploy, run
from tapestry_exec.processes import backend
from tapestry_exec.processes.backend import SERVER
from tapestry_exec.processes.segments import Segment
from tapestry_exec.processes.setup import SharedCells
from tapestry_exec.processes.worker import Arrivals, Slots
from tapestry_exec.run import Parcel, count_cores, find_core, share_out
from tapestry_plan import Graph, Mesh, ShardPlan, least_memory, load_onnx, plan
from tapestry_plan.ops import relu
from tapestry_plan.steps import Buffer, Recv, spill
from tapestry_sets import Region
from tests.exec.own_ops import as_relu, die_first, doubled, raise_first, sleep_long
from tests.exec.run.test_deploy import training_step
from tests.exec.run.test_every_kind_of_plan import make_graph, make_plan
from tests.exec.run.test_same_bits import of_floats
from tests.exec.run.test_side_by_side import made
from tests.exec.small_networks import EVERY, SAMPLE, make_case
from tests.ways_of_running import Threads, assert_same

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
MODELS = Path(__file__).parents[2] / "models"
REPOSITORY = Path(__file__).parents[3]


def list_processes() -> dict[int, str]:
    """The processes that the server or a device is, of anybody on this machine whose command says so."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if "tapestry_exec.processes.worker" in command:
                found[int(folder.name)] = command
    return found


def of_mine() -> set[int]:
    """Those of these that this process has started, or its children have."""
    every, mine = list_processes(), {os.getpid()}
    parents = {}
    for number in every:
        try:
            parents[number] = int((Path("/proc") / str(number) / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue
    for _ in range(3):
        mine |= {number for number, parent in parents.items() if parent in mine}
    return mine - {os.getpid()}


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait, ten seconds at most."""
    stop = time.monotonic() + 10
    while not holds() and time.monotonic() < stop:
        time.sleep(0.01)


def watch_opening(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The descriptors that this thread opens from now on, each with its inode: pipes, sockets and shared memory."""
    opened, here = list[tuple[int, int]](), threading.get_ident()

    def watch(module: Any, name: str, files: Callable[[Any], Iterable[int]]) -> None:
        make = getattr(module, name)

        def made(*args: Any, **kwargs: Any) -> Any:
            found = make(*args, **kwargs)
            if threading.get_ident() == here:
                opened.extend((file, os.fstat(file).st_ino) for file in files(found))
            return found

        monkeypatch.setattr(module, name, made)

    watch(os, "pipe", lambda pair: pair)
    watch(backend, "socketpair", lambda pair: (one.fileno() for one in pair))
    if hasattr(os, "memfd_create"):
        watch(os, "memfd_create", lambda file: [file])
    return opened


def list_memory() -> set[str]:
    """The descriptors of shared memory, of which maps have some as well."""
    found = set()
    for file in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            if "memfd:tapestry" in os.readlink(f"/proc/self/fd/{file}"):
                found.add(file)
    return found


def is_open(file: int, inode: int) -> bool:
    """Whether a descriptor is still the one that was opened."""
    try:
        return os.fstat(file).st_ino == inode
    except OSError:
        return False


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No test leaves a process, a descriptor or a name of shared memory behind.

    Where Dask's tests ran before, their cluster lives in this process: its threads open and close descriptors whenever
    they like, so that how many there are says nothing then. Those that this thread opened are looked at one by one.
    """
    shared, before = Path("/dev/shm"), len(os.listdir("/proc/self/fd"))
    names = set(os.listdir(shared)) if shared.exists() else set()
    with monkeypatch.context() as watching:
        opened = watch_opening(watching)
        yield
    wait_until(lambda: not of_mine())
    assert not of_mine()
    assert not [one for one in opened if is_open(*one)] and not list_memory()
    if "distributed" not in sys.modules:
        assert len(os.listdir("/proc/self/fd")) <= before
    assert not {name for name in os.listdir(shared) if name not in names and "tapestry" in name}


def test_processes_give_the_bits_and_counts_of_one_loop() -> None:
    p, inputs = made()
    assert_same(run(p, inputs, backend="processes"), run(p, inputs, backend="serial"))


@pytest.mark.skipif(count_cores() < 2, reason="two processes do not have a core each")
def test_processes_keep_off_each_other_s_cores() -> None:
    p, inputs = made(2)
    one, two, *others = sorted(os.sched_getaffinity(0))
    with deploy(p, backend="processes") as placed:
        placed.run(inputs)
        found = [os.sched_getaffinity(number) for number in of_mine()]
    assert [cores for cores in found if one in cores and two not in cores] == [{one, *others}]
    assert [cores for cores in found if two in cores and one not in cores] == [{two, *others}]


@pytest.mark.parametrize("which", [SAMPLE[-1:], pytest.param(EVERY, marks=pytest.mark.heavy)], ids=["one", "every"])
def test_networks_have_the_bits_and_counts_of_one_loop(which: Sequence[tuple[str, int]]) -> None:
    """On threads, too."""
    for case in (make_case(*one) for one in which):
        for way in ("processes", Threads()):
            found = run(case.plan, case.inputs, backend=way)
            assert_same(found, case.wanted)
            assert found.nbytes_by_link == case.plan.nbytes_by_link


@pytest.mark.heavy(2)
@pytest.mark.parametrize("processes", [1, 2, 4])
def test_processes_that_stay_run_often(processes: int) -> None:
    g = load_onnx(MODELS / "gpt2.onnx")
    p, rng = plan(g, Mesh((4,))), np.random.default_rng(0)
    given = [s for s in g.stored.values() if s.kind == "input"]
    with deploy(p, backend=ProcessBackend(processes=processes)) as placed:
        one_by_one = deploy(p, backend="serial")
        for _ in range(3):
            feeds = {s.name: rng.integers(0, 2, s.shape).astype(s.dtype) for s in given}
            assert_same(placed.run(feeds, verify=True), one_by_one.run(feeds))
        one_by_one.close()
        assert len(of_mine()) == 1 + processes, "a server, and those of the devices"


def test_plans_that_spill_run_in_processes() -> None:
    p, inputs = made()
    tight = spill(p, max(least_memory(p)))
    assert_same(run(tight, inputs, backend="processes"), run(tight, inputs, backend="serial"))


def test_state_stays_with_the_processes() -> None:
    g, carry, feeds = training_step()
    p = plan(g, Mesh((2,)), tie=carry)
    with deploy(p, backend="processes", carry=carry) as placed, deploy(p, backend="serial", carry=carry) as other:
        for k in range(4):
            given = feeds if k == 0 else {"x": feeds["x"]}
            assert_same(placed.run(given), other.run(given))


def test_operators_of_a_module_and_progress() -> None:
    p, inputs = made()
    seen: list[tuple[int, int, str]] = []
    found = run(p, inputs, backend="processes", ops=as_relu(doubled), progress=lambda *at: seen.append(at))
    assert_same(found, run(p, inputs, backend="serial", ops=as_relu(doubled)))
    assert seen[-1][:2] == (len(p.steps), len(p.steps)) and "act" in {name for _, _, name in seen}


def test_many_parcels_wait_in_their_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a pipe holds, to a device that reads none before the end: it reads while it has to write."""
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    caller, end = os.pipe()
    os.set_blocking(ours, False)
    (device,) = NumpyBackend().open([64], [0])
    buffer, regions = Buffer(0, 1, "x", (0,), (4,), "float32", 0, 16), (Region.full((4,)),)
    device.alloc(buffer, (4,))
    device.unpack(np.arange(4, dtype=np.float32), buffer, regions)
    arrivals = Arrivals([1], Segment.create(64), ours, [theirs, theirs], caller)
    slot = SharedCells(16, (4,), "float32")
    told = Slots(1, {(*pair, tag): (tag, slot) for tag in range(40_000) for pair in ((1, 0), (0, 1))}, arrivals)
    for tag in range(40_000):
        told.send(tag, 0, Parcel(device.lend(buffer, regions, False), 0.0, 0.0))
    assert told.is_there(Recv(39_999, 0, "", "x", 0, regions)) and arrivals.arrived.keys() >= set(range(20_000))
    assert told.recv(39_999, 0).cells.tolist() == [0, 1, 2, 3]
    for file in (ours, theirs, caller, end, arrivals.shared.file):
        os.close(file)


def test_numpys_errors_are_handled_as_the_caller_says() -> None:
    g = Graph()
    g.output(g.input("x", (4,)) / g.input("z", (4,)), "y")
    p, feeds = plan(g, Mesh((2,))), {"x": np.ones(4, np.float32), "z": np.zeros(4, np.float32)}
    with np.errstate(divide="raise"), pytest.raises(StepFailed, match="FloatingPointError"):
        run(p, feeds, backend="processes")
    with np.errstate(divide="ignore"):
        assert np.isinf(run(p, feeds, backend="processes").outputs["y"]).all()


# -- what goes wrong ------------------------------------------------------------------------------------------


def test_a_step_that_raises_is_named_and_all_processes_end() -> None:
    p, inputs = made()
    with pytest.raises(
        StepFailed, match=r"step \d+ \(compute 'act' on device 0, .* FloatingPointError: too hot"
    ) as error:
        run(p, inputs, backend="processes", ops=as_relu(raise_first))
    assert isinstance(error.value.__cause__, FloatingPointError)


def test_a_process_that_dies_is_named_and_all_others_end() -> None:
    p, inputs = made()
    with pytest.raises(
        StepFailed,
        match=r"the process of devices? 0.* died \(signal 9\) at step \d+ \(compute 'act' .* before the run was done",
    ):
        run(p, inputs, backend="processes", ops=as_relu(die_first))


def test_the_process_that_has_this_core_is_told_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins at once, and the caller, who runs there, would come to tell the others behind it."""
    assert find_core() in (os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else (None,))
    p, inputs = made()
    told, tell = list[Any](), backend.ProcessSession._tell

    def note(session: backend.ProcessSession, process: Any, message: Any) -> None:
        told.append((session.processes.index(process), message[0]))
        tell(session, process, message)

    monkeypatch.setattr(backend.ProcessSession, "_tell", note)
    monkeypatch.setattr(backend, "list_own_cores", lambda many: [3, 5, 8, 9][:many])
    orders = {3: [1, 2, 3, 0], 5: [0, 2, 3, 1], 9: [0, 1, 2, 3], 4: [0, 1, 2, 3], None: [0, 1, 2, 3]}
    with deploy(p, backend=ProcessBackend(processes=4)) as placed:
        for here, order in orders.items():
            monkeypatch.setattr(backend, "find_core", lambda here=here: here)
            told.clear()
            placed.run(inputs)
            assert told == [(k, "run") for k in order]
        monkeypatch.setattr(backend, "list_own_cores", lambda many: None)
        told.clear()
        placed.run(inputs)
        assert told == [(k, "run") for k in range(4)]


def test_devices_share_processes_where_that_is_even() -> None:
    assert share_out([1.0] * 4, 2) == [(0, 1), (2, 3)] and share_out([0.0] * 3, 8) == [(0,), (1,), (2,)]
    assert share_out([1.0] * 5, 2) == [(0, 1), (2, 3, 4)], "who asks for two has two"
    for seconds in product((0.0, 1.0, 3.0, 40.0), repeat=5):
        for many in range(1, 8):
            groups = share_out(seconds, many)
            assert len(groups) == min(many, 5) and all(groups), "none has no device"
            assert [device for group in groups for device in group] == list(range(5)), "neighbors, in order"
            most, even = max(sum(seconds[k] for k in group) for group in groups), sum(seconds) / len(groups)
            assert most <= even + max(seconds), "whose middles lie in one group's share"
    for cores in (1, 2, 3, 4, 7):
        for size in (1, 2, 3, 4, 6, 8, 64):
            with mock.patch("tapestry_exec.run.together.count_cores", lambda cores=cores: cores):
                groups = share_out([1.0] * size, None)
            assert [device for group in groups for device in group] == list(range(size))
            most, even = max(map(len, groups)), size / min(size, cores)
            assert len(groups) == size or (len(groups) == cores and most <= 1.1 * even)
    with mock.patch("tapestry_exec.run.together.count_cores", lambda: 2):
        assert share_out([3.0, 1.0, 1.0, 1.0], None) == [(0,), (1, 2, 3)]
        assert share_out([5.0, 1.0, 1.0, 1.0], None) == [(0,), (1,), (2,), (3,)], "half would wait for the other half"
        assert share_out([1.0] * 4, None, [6, 4, 3, 3], 10) == [(0, 1), (2, 3)], "each process has room for two"
        assert share_out([1.0] * 4, None, [6, 4, 3, 3], 9) == [(0,), (1,), (2,), (3,)], "one of two would be full"


@pytest.mark.heavy(2)
@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("devices", [3, 4])
def test_devices_of_one_process_take_turns(devices: int, processes: int) -> None:
    """The bits, counts and steps of one loop, in runs of one deployment; what fails is named with its device."""
    p, inputs = made(devices)
    with deploy(p, backend=ProcessBackend(processes=processes)) as placed, deploy(p, backend="serial") as loop:
        for k in range(3):
            given = {"x": inputs["x"] + k}
            assert_same(placed.run(given), loop.run(given))
    with pytest.raises(StepFailed, match=r"compute 'act' on device 0, .* FloatingPointError: too hot"):
        run(p, inputs, backend=ProcessBackend(processes=processes), ops=as_relu(raise_first))


@pytest.mark.heavy(4)
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("seed", range(8))
def test_every_kind_of_plan_runs_in_one_loop_for_each_process(seed: int, processes: int) -> None:
    """Once the calls are known: then what goes from device to device of a process is not packed."""
    rng = random.Random(seed)
    p = make_plan(make_graph(rng), rng)[0]
    with deploy(p, backend=ProcessBackend(processes=processes)) as placed, deploy(p, backend="serial") as loop:
        for turn in range(6):
            feeds = of_floats(p.graph, 100 * turn + seed)
            found, wanted = placed.run(feeds), loop.run(feeds)
            assert_same(found, wanted)
            assert found.nbytes_copied == wanted.nbytes_copied == p.nbytes_copied
            assert all(0 <= event.start <= event.start + event.seconds for event in found.timeline)
            packed = [phase.seconds for event in found.timeline for phase in event.phases if phase.kind == "pack"]
            if processes == 1 and packed:  # the third run packs what it notes
                assert any(packed) == (turn < 3)


@pytest.mark.parametrize("which", [0, 1], ids=["the server", "a device"])
def test_processes_that_are_killed_between_runs_are_started_again(which: int) -> None:
    p, inputs = made(2)
    wanted = run(p, inputs, backend="serial")
    with deploy(p, backend="processes") as placed:
        first = placed.run(inputs).outputs["y"]
        server, *devices = sorted(of_mine())
        os.kill([server, *devices][which], signal.SIGKILL)
        ended = {server, *devices} if which == 0 else {devices[which - 1]}
        wait_until(lambda: not ended & list_processes().keys())
        with pytest.raises(StepFailed, match=r"died .*before the run was done"):
            placed.run(inputs)
        assert first.tobytes() == placed.run(inputs).outputs["y"].tobytes() == wanted.outputs["y"].tobytes()


@pytest.mark.heavy(2)
def test_ctrl_c_ends_the_processes() -> None:
    p, inputs = made(2)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells have programs behind `&` ignore it
    threading.Timer(3.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(p, inputs, backend="processes", ops=as_relu(sleep_long))
    assert time.monotonic() - begin < 30


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system does not tell of ignored signals")
def test_ctrl_c_while_the_server_begins_is_the_caller_s() -> None:
    """A terminal sends it to all: the server would write a traceback beside the caller's line."""
    with subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stderr=subprocess.PIPE) as server:
        status, end = Path(f"/proc/{server.pid}/status"), time.monotonic() + 30
        ignored = 0
        while not ignored >> (signal.SIGINT - 1) & 1 and time.monotonic() < end:
            time.sleep(0.01)
            ignored = int(re.findall(r"SigIgn:\s*(\w+)", status.read_text())[0], 16)
        server.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            server.wait(0.5)
        server.kill()
        assert server.stderr is not None and server.stderr.read() == b""


@pytest.mark.heavy(2)
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_processes_end_when_the_caller_is_killed(how: signal.Signals, rounds: int, tmp_path: Path) -> None:
    """As its blocks take a minute, they are killed amid them."""
    program = tmp_path / "caller.py"
    program.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(REPOSITORY)!r})\n"
        "from tapestry_exec import run\n"
        "from tests.exec.own_ops import as_relu, sleep_long\n"
        "from tests.exec.run.test_side_by_side import made\n"
        "p, inputs = made(2)\n"
        "print('begun', flush=True)\n"
        "run(p, inputs, backend='processes', ops=as_relu(sleep_long))\n"
    )
    before = set(list_processes())

    def list_new() -> set[int]:
        return set(list_processes()) - before

    for _ in range(rounds):
        with subprocess.Popen([sys.executable, str(program)], stdout=subprocess.PIPE, text=True) as caller:
            assert caller.stdout is not None and caller.stdout.readline() == "begun\n"
            stop = time.monotonic() + 30
            while len(list_new()) < 3 and time.monotonic() < stop:
                time.sleep(0.05)
            assert len(list_new()) >= 3
            time.sleep(0.3)
            caller.send_signal(how)
        wait_until(lambda: not list_new())
        assert not list_new()


def test_operators_that_cannot_be_told_are_refused_before_anything_starts() -> None:
    p, inputs = made(2)

    def local(xp: Any, inputs: Any, outputs: Any, shard: Any) -> None:
        outputs[0][...] = inputs[0]

    with pytest.raises(
        BackendUnavailable, match=r"cannot be told its operators .*functions of operators must stand in a m"
    ):
        run(p, inputs, backend="processes", ops=as_relu(local))


def test_operators_that_processes_cannot_import_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone_soon.py").write_text("def block(xp, inputs, outputs, shard):\n    outputs[0][...] = inputs[0]\n")
    monkeypatch.syspath_prepend(tmp_path)
    import gone_soon  # type: ignore[import-not-found]

    (tmp_path / "gone_soon.py").unlink()
    p, inputs = made(2)
    with pytest.raises(BackendUnavailable, match=r"a process could not begin: ModuleNotFoundError: .*'gone_soon'"):
        run(p, inputs, backend="processes", ops=as_relu(gone_soon.block))


def test_too_little_shared_memory_is_said_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(file: int, begin: int, nbytes: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", none_left)
    p, inputs = made(2)
    with pytest.raises(MemoryError, match=r"[\d,]+ bytes of memory that processes share cannot be had \(No space left"):
        run(p, inputs, backend="processes")


def test_a_system_without_fork_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "fork")
    g = Graph()
    g.output(relu(g.input("x", (4,))), "y")
    p: ShardPlan = plan(g, Mesh((2,)))
    with pytest.raises(BackendUnavailable, match="needs a system with fork; use 'numpy'"):
        run(p, {"x": np.ones(4, np.float32)}, backend=ProcessBackend())
