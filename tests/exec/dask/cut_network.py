"""A cluster whose network is cut for a while: `unshare --net python -m tests.exec.dask.cut_network FOLDER`.

Three workers stand in network namespaces of their own, and their cables end in a bridge of this one's::

    scheduler, client ── 10.77.0.1 ─ bridge ─┬─ 10.77.0.2  worker
                                             ├─ 10.77.0.3  worker
                                             └─ 10.77.0.4  worker, for one that is lost

One of two devices waits in its block until its cable was cut, and sends then: once for a second, once for longer than
anyone waits. Prints a line of JSON for each, and for a run when all cables are whole again: whether bits and bytes are
those of one loop, the faults, seconds, and bytes that were sent in vain.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tapestry_exec import DaskBackend, deploy, run
from tests.exec.own_ops import Sabotage, as_relu
from tests.exec.run.test_side_by_side import made

WORKERS, PATIENCE = 3, 8.0


def set_up(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True)


def start_worker(stack: ExitStack, number: int, scheduler: str) -> None:
    """A worker with a cable of its own, at 10.77.0.`number`."""
    space = stack.enter_context(subprocess.Popen(["unshare", "--net", "sleep", "600"]))
    stack.callback(space.kill)
    inside = ["nsenter", "--target", str(space.pid), "--net"]
    here = Path("/proc/self/ns/net").readlink()
    while Path(f"/proc/{space.pid}/ns/net").readlink() == here:  # until it has left this namespace
        time.sleep(0.01)
    set_up(f"link add cable{number} type veth peer name end netns {space.pid}")
    set_up(f"link set cable{number} master bridge up")
    for words in (f"address add 10.77.0.{number}/24 dev end", "link set end up", "link set lo up"):
        subprocess.run([*inside, "ip", *words.split()], check=True)
    command = [sys.executable, "-m", "distributed.cli.dask_worker", scheduler, "--resources", "tapestry=1"]
    command += ["--nthreads", "1", "--no-dashboard", "--host", f"10.77.0.{number}", "--no-nanny"]
    stack.callback(stack.enter_context(subprocess.Popen([*inside, *command], stderr=subprocess.DEVNULL)).kill)


def main(folder: str) -> None:
    from distributed import Client, LocalCluster

    for words in ("link set lo up", "link add bridge type bridge", "address add 10.77.0.1/24 dev bridge"):
        set_up(words)
    set_up("link set bridge up")
    p, inputs = made(2)
    wanted = run(p, inputs, backend="serial")
    with ExitStack() as stack:
        cluster = stack.enter_context(
            LocalCluster(n_workers=0, host="10.77.0.1", dashboard_address=None, silence_logs=logging.CRITICAL)
        )
        for number in range(2, 2 + WORKERS):
            start_worker(stack, number, cluster.scheduler_address)
        client = stack.enter_context(Client(cluster, set_as_default=False))
        client.wait_for_workers(WORKERS, timeout=120)
        backend = DaskBackend(client, retries=1, patience=PATIENCE)
        for number, seconds in enumerate((1.0, 600.0, 0.0)):
            there = Path(folder, str(number))
            there.mkdir()
            sabotage = Sabotage(("waiting",) if seconds else (), str(there))
            with deploy(p, backend=backend, ops=as_relu(sabotage)) as placed:
                session: Any = placed._session
                cable = "cable" + session.workers[0].rsplit(":", 1)[0].rsplit(".", 1)[1]
                ran = threading.Event()
                cutting = threading.Thread(target=cut, args=(cable, seconds, there, ran))
                cutting.start()
                begin = time.perf_counter()
                try:
                    found = placed.run(inputs)
                    took = time.perf_counter() - begin
                finally:
                    ran.set()
                    cutting.join()
            same = all(found.outputs[name].tobytes() == array.tobytes() for name, array in wanted.outputs.items())
            same &= found.nbytes_by_link == wanted.nbytes_by_link
            told = {"same": same, "faults": [fault.error for fault in found.faults], "seconds": took}
            sent = [nbytes for fault in found.faults for nbytes in fault.nbytes_sent]
            told |= {"in vain": sum(nbytes or 0 for nbytes in sent), "unknown": sent.count(None)}
            print(json.dumps(told), flush=True)


def cut(cable: str, seconds: float, there: Path, ran: threading.Event) -> None:
    """Once the device waits, for so long, or until the run is done."""
    while seconds and not ran.is_set():
        if not Path(there, "0").exists():
            time.sleep(0.01)
            continue
        set_up(f"link set {cable} down")
        Path(there, "go on").touch()
        ran.wait(seconds)
        set_up(f"link set {cable} up")
        return


if __name__ == "__main__":
    main(sys.argv[1])
