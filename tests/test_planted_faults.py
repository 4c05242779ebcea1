"""The comparison with ONNX Runtime sees every fault that is planted, and passes the networks as they are."""

from __future__ import annotations

import pytest

from tests.planted_faults import FAULTS, RESULTS, measure, network

NETWORKS = sorted({name for name, _ in FAULTS.values()})


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_as_they_are_pass(name: str) -> None:
    assert measure(name, lambda model: None) < network(name).tolerance


@pytest.mark.heavy(2)
@pytest.mark.parametrize("fault", [one for one, (name, _) in FAULTS.items() if name != "squeezenet"])
def test_faults_are_seen(fault: str) -> None:
    name, change = FAULTS[fault]
    assert measure(name, change) > network(name).tolerance


@pytest.mark.heavy
@pytest.mark.parametrize("fault", [one for one, (name, _) in FAULTS.items() if name == "squeezenet"])
def test_faults_of_larger_networks_are_seen(fault: str) -> None:
    name, change = FAULTS[fault]
    assert measure(name, change) > network(name).tolerance


def test_the_table_is_of_these_faults() -> None:
    lines = RESULTS.read_text(encoding="utf-8").splitlines()
    rows = [line.split(" | ")[0].removeprefix("| ") for line in lines if line.startswith("| ")]
    assert rows[1:] == list(FAULTS) and len(FAULTS) >= 18
