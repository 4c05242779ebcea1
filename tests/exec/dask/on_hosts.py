"""Workers on several hosts: `unshare --net python -m tests.exec.dask.on_hosts CASES WORKERS`.

So many workers stand on each of two hosts (`tests.hosts`), whose clocks are a thousand seconds apart; the scheduler and
the client are on a third one. Each plan of a file runs three times where it is deployed, and has the bits and bytes of
one loop, and clocks that are known as well as is stated. Prints a line of JSON for each: on how many hosts its devices
were, the bytes that they sent between hosts, and what came there; and then of a run that failed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tapestry_exec import DaskBackend, StepFailed, deploy, run
from tests.exec.dask.clusters import client_of
from tests.exec.own_ops import as_relu, raise_first
from tests.exec.run.test_side_by_side import made
from tests.exec.small_networks import read_cases
from tests.hosts import AHEAD_SECONDS, make_hosts
from tests.ways_of_running import assert_same


def main(cases: str, workers: str) -> None:
    with make_hosts(2) as hosts, client_of(hosts, int(workers)) as client:
        ahead = {host.address: AHEAD_SECONDS * number for number, host in enumerate(hosts, 1)}
        backend = DaskBackend(client, retries=0)
        for name, p, inputs, wanted in read_cases(Path(cases)):
            before = sum(host.count_received() for host in hosts)
            with deploy(p, backend=backend) as placed, deploy(p, backend="serial") as other:
                for _ in range(3):
                    found = placed.run(inputs)
                    assert_same(found, other.run(inputs))
                    assert found.nbytes_by_link == p.nbytes_by_link and not found.faults
                session: Any = placed._session
                at = [one.rsplit(":", 1)[0].removeprefix("tcp://") for _, one in sorted(session.workers.items())]
                wrong = [one - ahead[address] for one, address in zip(session.ahead, at, strict=True)]
                assert max(map(abs, wrong)) <= found.clock_error < 1, (wrong, found.clock_error)
            assert_same(run(p, inputs, backend=backend), wanted)
            sent = sum(nbytes for (src, dst), nbytes in p.nbytes_by_link.items() if at[src] != at[dst])
            came = sum(host.count_received() for host in hosts) - before
            print(json.dumps({"name": name, "hosts": len(set(at)), "sent": 3 * sent, "came": came}), flush=True)
        p, inputs = made(2 * int(workers))
        try:
            run(p, inputs, backend=backend, ops=as_relu(raise_first))
        except StepFailed as error:
            print(json.dumps({"error": str(error)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
