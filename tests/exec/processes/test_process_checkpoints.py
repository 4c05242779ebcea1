"""Processes that are killed go on from the last checkpoint: the bits of a run without faults."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tapestry_exec import Checkpoints, ProcessBackend, deploy, open_checkpoint, run
from tapestry_plan import Mesh, plan
from tests.exec.own_ops import Sabotage, as_relu
from tests.exec.processes.test_processes import of_mine
from tests.exec.run.test_checkpoints import chain
from tests.exec.run.test_deploy import training_step
from tests.exec.run.test_side_by_side import made

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")


class Later(Sabotage):
    """Does nothing where `relu` runs first: only behind a checkpoint."""

    def act(self, kind: str) -> None:
        super().act("" if kind == "waiting" else kind)


@pytest.mark.heavy(2)
def test_a_killed_process_costs_what_is_behind_the_last_checkpoint(rounds: int, tmp_path: Path) -> None:
    """The process of device 0 is killed in the third of six stages, once in each round; all go on from the second."""
    for k in range(rounds):
        (tmp_path / f"marks{k}").mkdir()
        p, inputs = chain()
        wanted = run(p, inputs, backend="serial").outputs["y"].tobytes()
        kinds = ("waiting", "waiting", ("computing", "sending", "receiving")[k % 3])
        found = run(
            p,
            inputs,
            backend=ProcessBackend(retries=1),
            ops=as_relu(Later(kinds, str(tmp_path / f"marks{k}"))),
            checkpoints=Checkpoints(tmp_path / str(k), after=["act0", "act1"]),
        )
        assert found.outputs["y"].tobytes() == wanted
        assert len(found.faults) == 1 and "died (signal 9)" in found.faults[0].error
        # The last checkpoint that was finished when the process died, as all others may have been behind.
        assert found.resumed_at is not None and {event.node for event in found.timeline} >= {"act2", "act5"}
        assert "act0" not in {event.node for event in found.timeline if event.kind == "compute"}


def test_a_state_that_a_checkpoint_has_is_not_lost(tmp_path: Path) -> None:
    """Without one the run could not begin again: what the run before had left dies with the processes."""
    g, carry, feeds = training_step()
    p = plan(g, Mesh((2,)), tie=carry)
    saving = Checkpoints(tmp_path, after=[p.stages[0].node])
    with deploy(p, backend="serial", carry=carry) as placed:
        wanted = [placed.run(feeds if not k else {"x": feeds["x"]}) for k in range(4)][-1].outputs
    with deploy(p, backend=ProcessBackend(retries=2), carry=carry) as placed:
        placed.run(feeds)
        placed.run({"x": feeds["x"]}, checkpoints=saving)
        assert open_checkpoint(tmp_path).manifest.run == 1
        os.kill(max(of_mine()), signal.SIGKILL)
        found = placed.run({"x": feeds["x"]}, resume=tmp_path)  # the second run again, from its checkpoint
        assert len(found.faults) == 1 and found.resumed_at is not None
        placed.run({"x": feeds["x"]})
        last = placed.run({"x": feeds["x"]})
    for name in carry:
        assert last.outputs[name].tobytes() == wanted[name].tobytes()
    assert not of_mine()


def test_processes_save_and_go_on(tmp_path: Path) -> None:
    """What processes saved one loop goes on from, and the other way around; with seconds, too."""
    p, inputs = made(3)
    wanted = run(p, inputs, backend="serial").outputs["y"].tobytes()
    with deploy(p, backend="processes") as placed, deploy(p, backend="serial") as other:
        for number, stage in enumerate(p.stages):
            for one, two in ((placed, other), (other, placed)):
                there = tmp_path / f"{one is placed}{number}"
                one.run(inputs, checkpoints=Checkpoints(there, after=[stage.node]))
                assert two.run(inputs, resume=there).outputs["y"].tobytes() == wanted
        there = tmp_path / "often"
        placed.run(inputs, checkpoints=Checkpoints(there, seconds=1e-9, keep=99))
        assert sum(path.name[0] != "." for path in there.iterdir()) == len(p.stages)
        assert placed.run(inputs, resume=there).outputs["y"].tobytes() == wanted
