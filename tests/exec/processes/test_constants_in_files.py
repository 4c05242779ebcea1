"""Constants that lie in files: processes map them and read their regions; what lies elsewhere is shared memory."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from tapestry_exec import deploy, run
from tapestry_exec.processes.segments import Segment
from tapestry_exec.run import tuning
from tapestry_exec.run.stores import MappedFiles
from tapestry_plan import Graph, Mesh, ShardPlan, plan
from tapestry_sets import Region
from tests.strategies import regions_in_one_box
from tests.ways_of_running import assert_same

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="the system does not list its maps")
W = np.random.default_rng(0).standard_normal((300, 256), np.float32)


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of the segments of shared memory that are made."""
    found, create = list[int](), Segment.create.__func__  # type: ignore[attr-defined]

    def count(cls: type[Segment], nbytes: int) -> Segment:
        found.append(nbytes)
        made: Segment = create(cls, nbytes)
        return made

    monkeypatch.setattr(Segment, "create", classmethod(count))
    return found


def from_file(folder: Path) -> tuple[ShardPlan, dict[str, Any]]:
    """A plan whose document names the file of its constant; each device reads some of its columns."""
    np.save(folder / "w.npy", W)
    g = Graph()
    g.output(g.input("x", (8, 300)) @ g.constant("w", W, str(folder / "w.npy")), "y")
    p = plan(g, Mesh(2), fix={"matmul": {"n": 2}})
    return ShardPlan.from_json(p.to_json()), {"x": np.ones((8, 300), np.float32)}


@pytest.mark.parametrize("is_mapped", [True, False])
def test_processes_read_files_themselves(
    is_mapped: bool, sizes: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Placed once or in every run: the shared memory has no room for what is mapped."""
    if not is_mapped:
        monkeypatch.setattr(tuning, "MAPPED_NBYTES", 1 << 40)
    p, inputs = from_file(tmp_path)
    wanted = run(p, inputs, backend="serial")
    assert_same(run(p, inputs, backend="processes"), wanted)
    with deploy(p, backend="processes") as placed, deploy(p, backend="serial") as other:
        for _ in range(2):
            assert_same(placed.run(inputs), other.run(inputs))
    assert (max(sizes) >= W.nbytes) == (not is_mapped)


def test_a_file_that_was_replaced_is_not_read(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", W)
    mapped = np.load(tmp_path / "w.npy", "r")
    found = MappedFiles().find(np.asarray(mapped))
    assert found is not None and found.read_whole().tobytes() == W.tobytes()
    np.save(tmp_path / "new.npy", W + 1)
    os.replace(tmp_path / "new.npy", tmp_path / "w.npy")
    with pytest.raises(OSError, match=r"w.npy was replaced while its constants were used: run again"):
        found.read_whole()
    assert MappedFiles().find(np.asarray(mapped)) is None, "its file has no name any more"


def test_what_others_cannot_map_is_handed_over(tmp_path: Path) -> None:
    """Arrays in memory, private maps, and views that are not contiguous; of others the bytes before are skipped."""
    with open(tmp_path / "cells", "wb") as file:
        file.write(b"head" + W.tobytes())
    view = np.memmap(tmp_path / "cells", np.float32, "r", 4, W.shape)
    private = np.memmap(tmp_path / "cells", np.float32, "c", 4, W.shape)
    files = MappedFiles()
    assert all(files.find(one) is None for one in (W, private, view.T, view[:, 1:], view[:0], 5))
    for part in (view, view[7:9], view.reshape(-1)[5:]):
        found = files.find(part)
        assert found is not None and pickle.loads(pickle.dumps(found)).read_whole().tobytes() == part.tobytes()


@given(regions_in_one_box(2, at_zero=True))
@settings(max_examples=25)
def test_regions_of_a_file(regions: tuple[Region, ...]) -> None:
    """Against cells that are taken one by one."""
    shape = regions[0].shape
    values = np.arange(np.prod(shape, dtype=int) or 1, dtype=np.int32)
    with TemporaryDirectory() as folder:
        np.save(f"{folder}/x.npy", values)
        cells = np.asarray(np.load(f"{folder}/x.npy", "r"))[: np.prod(shape, dtype=int)].reshape(shape)
        found = MappedFiles().find(cells)
        if not cells.size:
            assert found is None
            return
        assert found is not None
        wanted = [cells[tuple(point)] for region in regions for point in region.points()]
        assert found.take(regions).tolist() == wanted
