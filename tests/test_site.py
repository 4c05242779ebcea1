"""The site that Sphinx makes of docs/: which pages it has, what is on them, where their links lead.

That it is built without a warning is seen by `.ci/run`, which installs Sphinx.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("tapestry_sets", "tapestry_plan", "tapestry_exec")


@cache
def site() -> ModuleType:
    """What makes the site's pages, docs/pages.py; it needs nothing but the packages."""
    spec = spec_from_file_location("pages", ROOT / "docs" / "pages.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("package", [*PACKAGES, "tapestry_plan.ops"])
def test_each_public_name_is_on_a_page_of_the_api(package: str) -> None:
    pages = dict(site().write_api())
    index = pages.pop("made/api/index.rst")
    described: dict[int, str] = {}
    for page in pages.values():
        for path in re.findall(r"^\.\. (?:autoclass|autofunction|py:data):: (\S+)$", page, re.M):
            described[id(getattr(import_module(path.rpartition(".")[0]), path.rpartition(".")[2]))] = path
    door = import_module(package)
    public = getattr(door, "__all__", None) or [
        n for n, each in vars(door).items() if hasattr(each, "op") and n[0] != "_"
    ]
    listed = index.split(f"``{package}``")[1].split("\n``")[0]
    assert len(public) > 20
    for name in public:
        value = getattr(door, name)
        if isinstance(value, ModuleType):  # its names are listed under its own name
            assert f"``{value.__name__}``" in index
            continue
        assert id(value) in described, f"{package}.{name} is on no page"
        assert described[id(value)] in listed, f"{package}.{name} is not in the list of all names"


def test_each_file_of_the_guide_is_in_the_contents() -> None:
    contents, pages = site().write_contents(), site().pages_of_files()
    assert all(re.search(rf"^{re.escape(page)}$", contents, re.M) for page in pages.values() if page != "index")


def test_links_lead_to_pages_where_files_have_some() -> None:
    turned = site().follow_links(
        "[a](../README.md#limits) [b](tour.md) [c](../pyproject.toml) [d](x.md)", "docs/a.md", "a"
    )
    assert turned == "[a](made/README.md#limits) [b](tour.md) [c](../pyproject.toml) [d](x.md)"
    turned = site().follow_links(
        "[n](2_views_and_alias.ipynb)\n```text\n[n](3.ipynb)\n```\n", "notebooks/1_setts.ipynb", "index"
    )
    assert turned == "[n](made/notebooks/2_views_and_alias.ipynb)\n```text\n[n](3.ipynb)\n```\n"


def test_docstrings_are_read_as_they_are_meant() -> None:
    told = ["|x| of `View`s, a | b", ">>> a | b  # |x| of `View`s", "`View`s", "", "``a`` `b` |y|"]
    assert site().mend_lines(told) == ["\\|x\\| of `View`\\ s, a | b", *told[1:3], "", "``a`` `b` \\|y\\|"]
