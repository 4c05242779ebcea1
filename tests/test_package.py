"""What is published holds all that it must, and says of itself what the project's files say."""

from __future__ import annotations

import email
import json
import re
import tomllib
import zipfile
from collections import Counter
from pathlib import Path
from typing import get_args

import pytest

from tapestry_plan.steps import describe_document
from tapestry_plan.steps.schemas import DocumentKind

ROOT = Path(__file__).resolve().parent.parent
CONFIGURED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = CONFIGURED["project"]
PACKAGES = CONFIGURED["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
MUST_HAVE = {
    "tapestry_exec/cuda/kernels.cu",
    "tapestry_exec/simulated/shim.h",
    "tapestry_exec/simulated/traced.h",
    "tapestry_plan/steps/layouts/machines.toml",
    *(f"tapestry_plan/schemas/{kind}.json" for kind in get_args(DocumentKind)),
    *(f"{package}/py.typed" for package in PACKAGES),
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    builders = pytest.importorskip("hatchling.builders.wheel", reason="hatchling, which builds the wheel, is missing")
    folder = tmp_path_factory.mktemp("wheel")
    (path,) = builders.WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    return zipfile.ZipFile(path)


def test_the_wheel_holds_what_the_packages_need(wheel: zipfile.ZipFile) -> None:
    held = set(wheel.namelist())
    assert held >= MUST_HAVE
    there = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in held if ".dist-info/" not in name} == there


def test_what_is_said_to_be_installed_has_the_name_that_is_published() -> None:
    """Extras are of ``tapestry-tensor``; those of another name would be another project's."""
    name, extras = PROJECT["name"], PROJECT["optional-dependencies"]
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "notebooks").rglob("*.*")]
    codes = [path for top in (*PACKAGES, "tests") for kind in ("*.py", "*.md") for path in (ROOT / top).rglob(kind)]
    asked = [
        (path.name, *found)
        for path in (*pages, *codes)
        for found in re.findall(r"([\w-]*tapestry[\w-]*)\\?\[([a-z][\w,]*)\\?\]", path.read_text(encoding="utf-8"))
    ]
    assert len(asked) >= 5
    for file, project, wanted in asked:
        assert project == name and {*wanted.split(",")} <= {*extras}, f"{file} says {project}[{wanted}]"


def test_the_wheel_says_what_it_is(wheel: zipfile.ZipFile) -> None:
    (info,) = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name}
    told = email.message_from_bytes(wheel.read(f"{info}/METADATA"))
    assert (told["Name"], told["Version"]) == ("tapestry-tensor", PROJECT["version"])
    assert told["Author"] == "The tapestry authors" and told["License-Expression"] == "Apache-2.0 AND EPL-2.0"
    assert wheel.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert b"tapestry = tapestry_exec.cli:main" in wheel.read(f"{info}/entry_points.txt")


@pytest.mark.parametrize("kind", get_args(DocumentKind))
def test_the_schemas_in_the_package_are_those_that_the_code_makes(kind: DocumentKind) -> None:
    path = ROOT / "tapestry_plan" / "schemas" / f"{kind}.json"
    written = json.loads(path.read_text(encoding="utf-8"))
    assert written == json.loads(json.dumps(describe_document(kind))), (
        f"tapestry schema {kind} > {path.relative_to(ROOT)}"
    )


def test_no_two_test_modules_have_one_name() -> None:
    """pytest imports a test by its file's name: a second one of that name is refused, whole."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert len(names) > 100
    assert [name for name, times in names.items() if times > 1] == []


def test_the_citation_says_what_the_project_says() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    told = dict(re.findall(r"^(\w[\w-]*): (\S.*)$", text, re.M))
    own, _, bundled = PROJECT["license"].partition(" AND ")  # elkjs, which lays graphs out in reports, has its own
    assert (told["version"], told["license"], bundled) == (PROJECT["version"], own, "EPL-2.0")
    assert told["cff-version"] == "1.2.0" and PROJECT["description"].lower() in told["title"].lower()
    assert re.findall(r"^  - name: (.*)$", text, re.M) == [author["name"] for author in PROJECT["authors"]]
    assert re.findall(r"^  - (?!name: )(.*)$", text, re.M) == PROJECT["keywords"]


def test_each_python_that_is_claimed_has_run_the_wheel() -> None:
    claimed = {kind.rpartition(" ")[2] for kind in PROJECT["classifiers"] if re.search(r"Python :: 3\.", kind)}
    table = (ROOT / "tests" / "bench" / "results" / "interpreters.md").read_text(encoding="utf-8")
    ran = dict(re.findall(r"^\| (3\.\d+)\.\S+ \|.*\| (\S+) \|$", table, re.M))
    assert {version for version, passed in ran.items() if passed == "yes"} == claimed
