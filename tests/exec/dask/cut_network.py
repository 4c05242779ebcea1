"""A cluster whose network is cut for a while: `unshare --net python -m tests.exec.dask.cut_network FOLDER`.

Three workers stand on hosts of their own (`tests.hosts`), one of them for one that is lost. One of two devices waits in
its block until its cable was cut, and sends then: once for a second, once for longer than anyone waits. Prints a line
of JSON for each, and for a run when all cables are whole again: whether bits and bytes are those of one loop, the
faults, seconds, and bytes that were sent in vain.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tapestry_exec import DaskBackend, deploy, run
from tests.exec.dask.clusters import client_of
from tests.exec.own_ops import Sabotage, as_relu
from tests.exec.run.test_side_by_side import made
from tests.hosts import make_hosts, set_up

WORKERS, PATIENCE = 3, 8.0


def main(folder: str) -> None:
    p, inputs = made(2)
    wanted = run(p, inputs, backend="serial")
    with make_hosts(WORKERS) as hosts, client_of(hosts) as client:
        cables = {host.address: host.cable for host in hosts}
        backend = DaskBackend(client, retries=1, patience=PATIENCE)
        for number, seconds in enumerate((1.0, 600.0, 0.0)):
            there = Path(folder, str(number))
            there.mkdir()
            sabotage = Sabotage(("waiting",) if seconds else (), str(there))
            with deploy(p, backend=backend, ops=as_relu(sabotage)) as placed:
                session: Any = placed._session
                cable = cables[session.workers[0].rsplit(":", 1)[0].removeprefix("tcp://")]
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
