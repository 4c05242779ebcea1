"""Machines by name, from files, and along other axes."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tapestry_plan import Device, Link, Mesh
from tapestry_plan.steps import number_ports
from tapestry_plan.steps.layouts.machines import SHIPPED

NAMES = sorted(tomllib.loads(SHIPPED.read_text(encoding="utf-8")))


@pytest.mark.parametrize("name", NAMES)
def test_machines_that_come_along(name: str) -> None:
    mesh = Mesh.named(name)
    assert name.endswith(f"{mesh.size}") and mesh.regroup(mesh.shape) == mesh
    latencies = [link.latency_seconds for link in mesh.ports]
    rates = [link.nbytes_per_second for link in mesh.ports]
    assert latencies == sorted(latencies, reverse=True) and rates == sorted(rates)  # the innermost is the fastest


def test_the_machine_where_nothing_is_said() -> None:
    assert Mesh.named("cpu4") == Mesh((4,))


def test_an_unknown_machine() -> None:
    with pytest.raises(ValueError, match=r"no machine 'b200'; known machines: 'a100x8', .*, or give a file"):
        Mesh.named("b200")


def test_a_machine_of_one_s_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        """
        shape = [2, 2, 2]
        names = ["node", "board", "chip"]
        device = { flop_per_second = 1e12, memory_nbytes_per_second = 2e10 }
        host = { latency_seconds = 1e-6, nbytes_per_second = 5e9 }
        [link]
        node = { latency_seconds = 1e-5, nbytes_per_second = 1e9 }
        board = "chip"
        chip = { latency_seconds = 1e-6, nbytes_per_second = 1e11 }
        """
    )
    slow, fast = Link(1e-5, 1e9), Link(nbytes_per_second=1e11)
    names, host = ("node", "board", "chip"), Link(nbytes_per_second=5e9)
    wanted = Mesh((2, 2, 2), names, (slow, "chip", fast), Device(1e12), host)
    assert Mesh.from_toml(file) == wanted and wanted.ports == (slow, fast) and wanted.ports_of_axes == (0, 1, 1)
    assert number_ports(wanted)[0].tolist() == [-1, 1, 1, 1, 0, 0, 0, 0]
    file.write_text("shape = [2]\nlink = { latency_seconds = 1e-6, nbytes_per_second = 1e9 }")
    assert Mesh.from_toml(file) == Mesh((2,), link=Link(nbytes_per_second=1e9))


LINK = "{latency_seconds = 1e-6, nbytes_per_second = 1e10}"
DEVICE = "{flop_per_second = 1e12, memory_nbytes_per_second = 1e11}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shape = [2]\ndevice = {}", "device: 'flop_per_second' is missing; give it too, or leave out all of device"),
        ("shape = [2]\ndevice.flop_per_second = 1e12", "device: 'memory_nbytes_per_second' is missing; give it too"),
        ("shape = [2]\nlink.latency_seconds = 1e-6", "link: 'nbytes_per_second' is missing; give it too"),
        ("shape = [2]\nhost.nbytes_per_second = 1e9", "host: 'latency_seconds' is missing; give it too, or leave out"),
        (f"shape = [2, 2]\nlink.x = {LINK}\nlink.y = {{}}", "link.y: 'latency_seconds' is missing"),
        (f"shape = [2]\ndevice = [{DEVICE}, {{}}]", r"device\[1\]: 'flop_per_second' is missing"),
        ("shape = [2", "not TOML: "),
        ("", r"field 'shape' is missing; give the devices along each axis, as \[8, 8\]"),
        ("shape = [2]\nrate = 1", "there is no field 'rate'; known fields:"),
        ("shape = [2]\ndevice.flops = 1", "device: there is no field 'flops'; known fields:"),
        ("shape = [2]\ndevice = 5", "device is 5; give a table of flop_per_second"),
        ("shape = [2]\ndevice.flop_per_second = 0", "device: Device: flop_per_second is 0, it must be finite and > 0"),
        ("shape = [2]\ndevice.flop_per_second = 'fast'", "flop_per_second must be a number, not 'fast'"),
        ("shape = [2, 2]\nlink.x.nbytes_per_second = -1", r"link.x: Link: nbytes_per_second is -1"),
        (f"shape = [2, 2]\nlink.x = {LINK}", "Mesh: link has none for axis 'y'"),
        (
            f"shape = [2, 2]\nlink.x = {LINK}\nlink.y = 'z'",
            r"link\['y'\] is that of axis 'z', which has none; \['x'\]",
        ),
        ("shape = [0]", "axis 0 of .* has 0 devices"),
        (f"shape = [2]\ndevice = [{DEVICE}]", "Mesh: device has 1 entries; .* has 2 devices: give one for each"),
        (f"shape = [2]\ndevice = [{DEVICE}, {{flops = 1}}]", r"device\[1\]: there is no field 'flops'; known fields:"),
        ("shape = [2]\ndevice.cell_flop_per_second = -1", "cell_flop_per_second is -1, it must be finite and > 0"),
        (
            "shape = [2]\ndevice.packed_nbytes_per_second = 0",
            "packed_nbytes_per_second is 0, it must be finite and > 0",
        ),
        ("shape = [2]\ndevice.operand_seconds = -1", "operand_seconds is -1, it must be finite and >= 0"),
        (f"shape = [2]\ndevice = [{DEVICE}, {{launch_seconds = -1}}]", r"device\[1\]: Device: launch_seconds is -1"),
        ("shape = [2]\ndevice = {memory_nbytes = 0}", "device: Device: memory_nbytes is 0, it must be > 0; leave it"),
        (
            f"shape = [2]\ndevice = [{DEVICE}, {DEVICE[:-1]}, memory_nbytes = 9}}]",
            r"device\[0\] has no memory_nbytes and others have; give it",
        ),
    ],
)
def test_what_is_wrong_in_a_file(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=f"machine .*mine.toml: .*{message}"):
        Mesh.from_toml(file)


@pytest.mark.parametrize("name", ["none.toml", "none/none.toml", "."])
def test_a_file_that_is_not_there_is_named(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        OSError, match=r"machine .*: there is no file to be read .*; give the path of a TOML file"
    ) as caught:
        Mesh.from_toml(tmp_path / name)
    assert isinstance(caught.value, FileNotFoundError) or name == "."


def test_a_machine_whose_devices_differ(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        """
        shape = [2]
        [[device]]
        flop_per_second = 4e12
        memory_nbytes_per_second = 2e10
        memory_nbytes = 1_000_000
        [[device]]
        flop_per_second = 1e12
        memory_nbytes_per_second = 2e10
        memory_nbytes = 500_000
        """
    )
    one, two = Device(4e12, memory_nbytes=10**6), Device(1e12, memory_nbytes=5 * 10**5)
    mesh = Mesh.from_toml(file)
    assert mesh == Mesh(2, device=[one, two]) and mesh.devices == (one, two) and mesh.differs
    assert mesh.kinds == ((one, (0,)), (two, (1,)))


def test_axes_of_a_mesh_lie_inside_those_of_the_machine() -> None:
    cluster = Mesh.named("h100x64")
    network, switch = cluster.ports
    assert cluster.regroup((4, 2, 2, 4)).link == (network, "x", switch, "z")
    assert cluster.regroup((2, 4)) == Mesh((2, 4), link=switch, device=cluster.device, host=cluster.host)
    assert cluster.regroup((8,)).link == switch and cluster.regroup((2, 1, 8)).ports == (network, switch)
    with pytest.raises(ValueError, match=r"an axis of 64 devices in \(64,\) goes over two links .*; divide it"):
        cluster.regroup((64,))
    with pytest.raises(ValueError, match=r"has 64 devices along \(8, 8\); \(16, 8\) are 128"):
        cluster.regroup((16, 8))
    assert Mesh.named("h100x8").regroup((2, 4)).link == Mesh.named("h100x8").link
