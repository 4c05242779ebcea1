"""What `calibrate` measures becomes a machine's file: fits of known times, and a run on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from tapestry_exec import calibrate
from tapestry_exec.cli import main
from tapestry_exec.run import calibration, tuning
from tapestry_plan import Device, Graph, Link, Mesh, ops, plan

SECONDS = st.floats(0, 1e-3)
RATES = st.floats(1e6, 1e15)


@given(SECONDS, SECONDS)
@example(0.0, 0.0)
@example(1e-5, 3e-6)
def test_starts_are_found_again(launch: float, operand: float) -> None:
    found = [(many, launch + operand * many) for many in (2, 3, 3, 6)]
    noisy = [*found, (2, 1.0)] if launch else found  # one that was disturbed: its median is between two
    assert calibration._fit_starts(found) == pytest.approx((launch, operand), rel=0.02, abs=2e-8)
    assert all(seconds >= 0 for seconds in calibration._fit_starts(noisy))


@given(RATES, SECONDS, st.lists(st.integers(1, 10**12), min_size=1, max_size=5))
def test_rates_are_found_again(rate: float, start: float, amounts: list[int]) -> None:
    timed = [(float(amount), start + amount / rate, start) for amount in amounts]
    found, least = calibration._find_rate(timed), tuning.MIN_WORKING
    assert rate * (1 - 0.01) / 1 >= 0 and found <= rate * 1.01
    if all(amount / rate >= least * seconds for amount, seconds, _ in timed):
        assert found == pytest.approx(rate, rel=0.01)


@given(st.floats(1e9, 1e13), st.none() | st.floats(1e8, 1e11))
@example(1e11, None)
def test_rates_of_products_are_found_again(rate: float, packing: float | None) -> None:
    """Of products of many rows and of few: what each takes beside its arithmetic is packing."""
    shapes = (512, 512, 512), (32, 768, 2304), (128, 768, 768), (16, 1024, 1024), (8, 256, 4096), (1024, 1024, 64)
    timed = []
    for m, k, n in shapes:
        flop, packed, start = 2.0 * m * k * n, 4 * (m * k + k * n), 5e-6
        timed.append((flop, 0.0, packed, start + flop / rate + (packed / packing if packing else 0.0), start))
    found, pack = calibration._fit_products(timed)
    for flop, _, packed, seconds, start in timed:  # the two may stand for each other, where one of them is small
        assert start + flop / found + (packed / pack if pack else 0.0) == pytest.approx(seconds, rel=0.05)
    if packing is None:
        assert found == pytest.approx(rate, rel=0.05)


@given(st.floats(1e-7, 1e-4), st.floats(1e8, 1e11), st.just(0.0) | st.floats(1e-10, 1e-7))
@example(1e-6, 1e9, 0.0)
def test_links_are_found_again(latency: float, rate: float, run: float) -> None:
    sent = (64, 5), (4096, 33), (16384, 4097), (1 << 22, 1025), (1 << 22, 3)
    timed = [(nbytes, runs, latency + nbytes / rate + runs * run) for nbytes, runs in sent]
    link = calibration._fit_link(timed)
    assert link.latency_seconds == pytest.approx(latency, rel=0.01)
    assert link.nbytes_per_second == pytest.approx(rate, rel=0.01)
    assert link.run_seconds == pytest.approx(run, rel=0.01, abs=1e-13)


@given(st.lists(st.tuples(st.integers(1, 1 << 22), st.integers(0, 10**4), st.floats(1e-7, 1e-1)), min_size=1))
def test_no_rate_of_a_link_is_below_zero(timed: list[tuple[int, int, float]]) -> None:
    """Whatever was measured: a link takes no negative ones, and no rate of zero."""
    link = calibration._fit_link(timed)
    told = [link.latency_seconds + n / link.nbytes_per_second + runs * link.run_seconds for n, runs, _ in timed]
    without = sum(n / s for n, _, s in timed) / sum((n / s) ** 2 for n, _, s in timed)  # seconds a byte, by itself
    error = sum((mine / s - 1) ** 2 for mine, (_, _, s) in zip(told, timed, strict=True))
    alone = sum((n * without / s - 1) ** 2 for n, _, s in timed)
    assert error <= alone * 1.01 + 0.01 * len(timed)


def test_this_machine_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "CALIBRATION_RUNS", 1)
    monkeypatch.setattr(tuning, "COPY_RUNS", 1)
    file = tmp_path / "mine.toml"
    done = CliRunner().invoke(main, ["calibrate", str(file), "--devices", "2"])
    assert done.exit_code == 0 and "kernels: " in done.output
    mesh = Mesh.from_toml(file)
    assert mesh.shape == (2,) and mesh.to_toml() in file.read_text() and "# Measured by" in file.read_text()
    device = mesh.device
    assert isinstance(device, Device) and device.cell_flop_per_second is not None
    assert device.cell_flop_per_second > 1e8 and 1e8 < device.flop_per_second < 1e14
    assert 1e8 < device.memory_nbytes_per_second < 1e13 and 1e6 < mesh.ports[0].nbytes_per_second < 1e13
    assert 0 < device.launch_seconds + device.operand_seconds < 0.1
    assert device.packed_nbytes_per_second is None or 1e7 < device.packed_nbytes_per_second < 1e13
    g = Graph()
    g.output(ops.relu(g.input("x", (64, 64)) @ g.input("w", (64, 64))))
    assert plan(g, mesh).makespan_seconds > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none/mine.toml"], "FILE.toml: the folder of 'none/mine.toml' does not exist; make it first"),
        (["/proc/mine.toml"], "the folder of '/proc/mine.toml' cannot be written to"),
        (["mine.txt"], "'mine.txt' does not end in .toml"),
        (["mine.toml", "--devices", "0"], "0 is not in the range x>=1"),
        (["mine.toml", "--backend", "simulated"], "'simulated' is not one of 'cupy', 'dask', 'mpi', 'nccl', 'numpy'"),
    ],
)
def test_what_cannot_be_written_is_refused_at_once(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(calibration, "_measure_device", lambda backend: pytest.fail("nothing is to be measured"))
    done = CliRunner().invoke(main, ["calibrate", *arguments])
    assert done.exit_code == 2 and message in " ".join(done.output.split()) and not list(tmp_path.iterdir())


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match=r"backend is 'tpu'; known backends: 'cupy', 'dask', 'mpi', 'nccl', 'numpy'"):
        calibrate("tpu")
    with pytest.raises(ValueError, match="times of simulated GPUs are those of the simulator"):
        calibrate("simulated")
    with pytest.raises(ValueError, match="devices is 0; give an integer >= 1"):
        calibrate(devices=0)


# -- files ---------------------------------------------------------------------------------------------------

LINKS = st.builds(Link, st.floats(0, 1), st.floats(1, 1e20), st.just(0.0) | st.floats(0, 1))
DEVICES = st.builds(
    Device,
    st.floats(1, 1e20),
    st.floats(1, 1e20),
    st.floats(0, 1),
    st.integers(1, 10**15),
    st.none() | st.floats(1, 1e20),
    st.floats(0, 1),
    st.none() | st.floats(1, 1e20),
)


@given(st.lists(DEVICES, min_size=6, max_size=6) | DEVICES, st.lists(LINKS, min_size=2, max_size=2) | LINKS, LINKS)
@example(Device(), [Link(), Link(0.0)], Link())
def test_a_mesh_is_what_its_text_says(device: object, link: object, host: Link) -> None:
    mesh = Mesh((2, 3), ("rack", 'a "b" é'), link, device, host)  # type: ignore[arg-type]
    import tomllib

    from tapestry_plan.steps.layouts.machines import _parse_machine

    assert Mesh(**_parse_machine(tomllib.loads(mesh.to_toml()), "mine")) == mesh
    shared = Mesh((2, 3), link=[Link(), "x"], host=host)
    assert Mesh(**_parse_machine(tomllib.loads(shared.to_toml()), "mine")) == shared
