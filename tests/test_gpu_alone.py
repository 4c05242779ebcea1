"""`pytest -m gpu` needs NumPy, CuPy, pytest, Hypothesis, msgspec and islpy, and `.ci/gpu` says which are missing."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.conftest import GPU_TESTS

ROOT = Path(__file__).resolve().parents[1]
BARRED = "onnx onnxruntime click rich sympy nbmake"
"""Some of what is kept from being imported; all else but those packages is, too."""
ALONE = """
import re, sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

def key(name):
    return re.sub("[-_.]+", "-", name).lower()

left = ["numpy", "cupy-cuda13x", "cupy-cuda12x", "pytest", "hypothesis", "msgspec", "islpy"]
allowed = {"tapestry-tensor"}
while left:
    if (name := key(left.pop())) not in allowed:
        allowed.add(name)
        try:
            needed = requires(name) or []
        except PackageNotFoundError:
            continue
        left += [re.match("[-_.A-Za-z0-9]+", line)[0] for line in needed if "extra ==" not in line]
tops = packages_distributions()
barred = {top for top, names in tops.items() if not allowed & set(map(key, names))} - sys.stdlib_module_names
assert {"onnx", "onnxruntime", "click", "rich", "sympy", "nbmake"} <= barred | (set(sys.argv[1].split()) - set(tops))

class Barred:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in barred:
            raise ModuleNotFoundError(f"No module named {name!r}: it is barred", name=name)

sys.meta_path.insert(0, Barred())
import pytest
sys.exit(pytest.main(sys.argv[2:]))
"""


CI = runpy.run_path(str(ROOT / ".ci" / "gpu"))


def alone(*words: str) -> str:
    """What pytest says with nothing but the packages named above."""
    command = [
        sys.executable,
        "-c",
        ALONE,
        "onnx onnxruntime click rich sympy nbmake",
        "-p",
        "no:cacheprovider",
        *words,
    ]
    env = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT), "PATH": ""}
    result = subprocess.run(
        [*command, "-p", "_hypothesis_pytestplugin"], cwd=ROOT, env=env, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_the_gpu_suite_is_collected_with_six_packages() -> None:
    names = [line.split("::")[0] for line in alone("-m", "gpu", "--collect-only", "-q").splitlines() if "::" in line]
    assert set(names) == set(GPU_TESTS) and len(names) >= 335


def test_a_file_of_gpu_tests_that_is_not_named_is_refused(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import *\n")
    (tmp_path / "pyproject.toml").write_text(
        f'[tool.pytest.ini_options]\npythonpath = ["{ROOT.as_posix()}"]\nmarkers = ["gpu: a GPU", "heavy: large"]\n'
    )
    (tmp_path / "test_it.py").write_text("import pytest\n\n@pytest.mark.gpu\ndef test_it(): pass\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert re.search(r"test_it\.py: has tests marked gpu; name it in GPU_TESTS", result.stdout + result.stderr)


# -- .ci/gpu ------------------------------------------------------------------------------------------------


def test_its_packages_are_those_that_the_six_need() -> None:
    """In their releases that are installed here; extras and needs of other systems and Pythons are none."""
    left, needed = ["numpy", "msgspec", "islpy", "pytest", "hypothesis"], set()
    while left:
        needed.add(name := re.sub("[-_.]+", "-", left.pop()).lower())
        for line in metadata.requires(name) or []:
            wanted, _, condition = line.partition(";")
            if not re.search("extra|python_version|sys_platform|implementation_name|python_full_version", condition):
                left.append(re.split("[^-_.A-Za-z0-9]", wanted)[0])
    assert needed <= set(CI["NEEDED"]) == needed | {"cupy-cuda13x", "cuda-pathfinder"}


def test_what_is_missing_is_named_with_versions_and_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = {"numpy": "1.25.9", "msgspec": "0.19", "islpy": "2024.2.1", "cupy-cuda12x": "13.6", "pytest": "10.0"}

    def version(name: str) -> str:
        if name not in there:
            raise metadata.PackageNotFoundError(name)
        return there[name]

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(sys, "argv", ["gpu", "kernels"])
    assert CI["main"]() == 3
    said = capsys.readouterr().out
    assert "\n  numpy>=1.26\n  cuda-pathfinder>=1.3\n  iniconfig>=" in said, "numpy is too old, five others will do"
    assert "pip download --no-deps" in said and "'numpy>=1.26' 'cuda-pathfinder>=1.3' " in said


def test_a_share_that_takes_too_long_is_stopped_and_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "gpu.md"
    commands = CI["COMMANDS"]
    monkeypatch.setitem(CI["main"].__globals__, "missing", list)
    for share, code, status in (("kernels", "print(1); import time; time.sleep(99)", 124), ("bench", "print(2)", 0)):
        monkeypatch.setitem(commands, share, ["-c", code])
        monkeypatch.setattr(sys, "argv", ["gpu", share, "--report", str(report), "--seconds", "1.5"])
        assert CI["main"]() == status
    text = report.read_text()
    assert re.search(
        r"^## kernels\n\n.*: stopped after 2 s\.\n\n```text\n1\n```\n\n## bench\n\n.*: status 0 after", text
    )
    assert CI["MOST_SECONDS"] == 480
