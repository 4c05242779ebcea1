"""Where the executor's tests run: on arenas of NumPy's and, with `-m gpu`, the same tests on a GPU."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tapestry_exec import CupyBackend
from tapestry_plan import Mesh, load_onnx, plan


@pytest.fixture(scope="module", params=["numpy", pytest.param("gpu", marks=pytest.mark.gpu)])
def backend(request: pytest.FixtureRequest) -> str | CupyBackend:
    """What `run` gets as its backend: the name of NumPy's, or a CupyBackend that all tests of a module share."""
    return "numpy" if request.param == "numpy" else CupyBackend(fallback=True, poison=True)


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    """How often each fault happens: once, and 20 times with `--all`."""
    return int(os.environ.get("R", "0")) or (20 if request.config.getoption("--all") else 1)


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the examples of the help texts take it for granted: a model, its plan, and values for its input."""
    import onnx  # what is collected without it must not load it

    from tests.exec.cli.test_cli import network

    folder = tmp_path_factory.mktemp("folder")
    onnx.save(network(), folder / "model.onnx")
    onnx.save(network("batch"), folder / "open.onnx")
    text = "agraph (float[4, 6] x) => (int64[2, n] y) { a = Relu(x) b = NonZero(a) y = Neg(b) }"
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 21]> {text}'), folder / "staged.onnx")
    # halves of rows at first, of columns then: the operators exchange cells
    fix = {"conv": {"h": 4}, "act": {"i3": 4}}
    (folder / "plan.json").write_text(plan(load_onnx(folder / "model.onnx"), Mesh(4), fix=fix, fuse=False).to_json())
    np.save(folder / "x.npy", np.ones((2, 3, 8, 8), np.float32))
    return folder


@pytest.fixture
def folder(made_once: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of it, which is the working directory meanwhile."""
    here = Path.cwd()
    shutil.copytree(made_once, tmp_path, dirs_exist_ok=True)
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(here)
