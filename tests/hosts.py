"""Hosts made of namespaces of this machine: each has its own network, name, processes, clock and shared memory.

::

    this process ── 10.77.0.1 ─ bridge ─┬─ 10.77.0.2  host1   clock 1,000 s ahead
                                        ├─ 10.77.0.3  host2         2,000 s
                                        └─ …

What is said by a cable goes through the kernel's TCP, and nothing else is shared but the files. It is not a network: no
packet is lost, and nothing takes time on its way. Whoever makes hosts does it in a network namespace of his own, with
`IN_NETWORK` in front of his command.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

IN_NETWORK = ("unshare", "--net")
ADDRESS = "10.77.0.1"
"""Of who makes the hosts."""
AHEAD_SECONDS = 1000
"""By how much the clock of the first host is ahead of this process'; that of the second one twice as much."""
SPACES = ("--net", "--uts", "--mount", "--pid", "--time", "--ipc")


class Host(NamedTuple):
    """A host, and how to begin a command there."""

    name: str
    address: str
    cable: str
    inside: Sequence[str]

    def count_received(self) -> int:
        """The bytes that came by its cable."""
        found = subprocess.run([*self.inside, "cat", "/sys/class/net/end/statistics/rx_bytes"], capture_output=True)
        return int(found.stdout)


def find_mpiexec() -> str | None:
    """The program that begins ranks: that of this Python's environment, or any."""
    here = Path(sys.executable).with_name("mpiexec")
    return str(here) if here.exists() else shutil.which("mpiexec")


@cache
def find_obstacle() -> str:
    """Why no hosts can be made here; empty where they can."""
    missing = [tool for tool in ("ip", "nsenter", "unshare", "mount") if shutil.which(tool) is None]
    if missing:
        return f"there is no command {missing[0]}"
    command = ["unshare", *SPACES, "--fork", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"]
    if subprocess.run(command, capture_output=True).returncode:
        return "namespaces are not allowed here"
    return ""


def set_up(words: str, inside: Sequence[str] = ()) -> None:
    """Do something to a network: what `ip` is told."""
    subprocess.run([*inside, "ip", *words.split()], check=True)


@contextmanager
def make_hosts(count: int, alike: bool = False) -> Iterator[list[Host]]:
    """So many hosts, which end with all that runs there; `alike` ones have one name, start of the kernel and memory."""
    for words in ("link set lo up", "link add bridge type bridge", f"address add {ADDRESS}/24 dev bridge"):
        set_up(words)
    set_up("link set bridge up")
    with ExitStack() as stack:
        yield [make_host(stack, number, alike) for number in range(1, 1 + count)]


def make_host(stack: ExitStack, number: int, alike: bool) -> Host:
    name, address, cable = f"host{number}", f"10.77.0.{1 + number}", f"cable{number}"
    folder = Path(stack.enter_context(TemporaryDirectory()))
    (folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
    does = ["mount -t sysfs sysfs /sys", f"hostname {'host' if alike else name}"]  # the first has its network's devices
    if not alike:
        does += "mount -t tmpfs tmpfs /dev/shm", f"mount --bind {folder}/boot_id /proc/sys/kernel/random/boot_id"
    script = "; ".join([*does, "echo $?", "exec cat >/dev/null"])
    command = ["unshare", *SPACES, "--monotonic", str(AHEAD_SECONDS * number), "--fork", "--kill-child", "--mount-proc"]
    command += "sh", "-ec", script  # which ends when this process does, and all that runs there with it
    holder = stack.enter_context(
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    )
    stack.callback(holder.kill)
    assert holder.stdout is not None and holder.stdout.readline() == "0\n", f"{name} is made"
    process = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()[0]
    inside = ("nsenter", "--target", process, *SPACES)
    set_up(f"link add {cable} type veth peer name end netns {process}")
    set_up(f"link set {cable} master bridge up")
    for words in (f"address add {address}/24 dev end", "link set end up", "link set lo up"):
        set_up(words, inside)
    return Host(name, address, cable, inside)


@contextmanager
def launch_by(hosts: Sequence[Host]) -> Iterator[list[str]]:
    """What MPICH's `mpiexec` is told to begin ranks there: a script, in place of ssh, enters the host it is given."""
    with TemporaryDirectory() as folder:
        script = Path(folder, "enter")
        each = "\n".join(f'{host.name}) shift; exec {" ".join(host.inside)} sh -c "$*" ;;' for host in hosts)
        script.write_text(
            f'#!/bin/sh\n[ "$1" = -x ] && shift\ncase "$1" in\n{each}\nesac\necho "no host $1" >&2; exit 1\n'
        )
        script.chmod(0o700)
        names = ",".join(host.name for host in hosts)
        yield ["-hosts", names, "-launcher", "ssh", "-launcher-exec", str(script), "-iface", "bridge"]


def main(count: str, alike: str, ranks: str, *command: str) -> int:
    """Run a program of so many ranks a host: ``unshare --net python -m tests.hosts 2 "" 2 COMMAND…``."""
    with make_hosts(int(count), bool(alike)) as hosts, launch_by(hosts) as how:
        whole = [str(find_mpiexec()), *how, "-ppn", ranks, "-n", str(int(ranks) * len(hosts)), *command]
        code = subprocess.run(whole, env=os.environ).returncode
        print("came by cable:", *(host.count_received() for host in hosts), flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
