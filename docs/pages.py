"""Which pages the site has beside those in docs/: copies of files elsewhere in the repository, and the API's.

All are made in docs/made/ and docs/index.ipynb when the site is built, and are no part of the repository. A link in any
page is written for the repository, relative to the file that it stands in; `follow_links` turns it to the page that the
file has on the site, so that it works in both.
"""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
MADE = "made"
FIRST = "notebooks/1_setts.ipynb"
"""The notebook that is the first page."""

COPIED = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "tapestry_*/README.md", "notebooks/*.ipynb")
RESULTS = "tests/bench/results/*.md"
PACKAGES = ("tapestry_sets", "tapestry_sets.draw", "tapestry_plan", "tapestry_exec")
"""Whose public names have pages; modules among these names are packages of their own, with `EXTRA` of them."""

EXTRA = {"tapestry_plan.ops": "tapestry_plan.ops.array_api"}
"""A module of a public module whose own names are public: the array API standard's."""

LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(#[^)\s]*)?(?=\))")
FENCED = re.compile(r"^(?:```|~~~).*?^(?:```|~~~)$", re.S | re.M)

START = """\
tapestry says which parts of a tensor program are independent, which data they share and exactly which bytes must move.
This page is its first notebook, as it ran when the site was built. {links}
"""
LINKS = "[Install it](docs/start.md), [look at all features](docs/tour.md), or [ask it in short](README.md)."
STILL: dict[str, Any] = {
    "cell_type": "code",
    "execution_count": None,
    "id": "still",
    "metadata": {"tags": ["remove-cell"]},
    "outputs": [],
    "source": "import sys\n\nsys.modules.update(ipywidgets=None, anywidget=None)",
}
"""Runs first, unseen: a page has no kernel to answer sliders, and asks no other host for the code of widgets."""

CONTENTS: dict[str, tuple[str, ...]] = {
    "Guide": ("docs/start.md", "docs/tour.md", "docs/*.md"),
    "Notebooks": ("notebooks/*.ipynb",),
    "Reference": ("api", "docs/limits.md", "docs/glossary.md", "CHANGELOG.md"),
    "Why it can be trusted": ("docs/exact.md", "docs/peers.md", "docs/figures.md"),
    "The code": (
        "README.md",
        "tapestry_sets/README.md",
        "tapestry_plan/README.md",
        "tapestry_*/README.md",
        "CONTRIBUTING.md",
    ),
}
"""The site's contents. A pattern stands for the files that have no entry of their own."""


# -- pages of files --------------------------------------------------------------------------------------------------


@cache
def pages_of_files() -> dict[str, str]:
    """The page of each file of the repository that has one: path from the root to name on the site."""
    found = {f"docs/{path.name}": path.stem for path in sorted(DOCS.glob("*.md"))}
    for pattern in (*COPIED, RESULTS):
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            found[name] = "index" if name == FIRST else f"{MADE}/{name.removeprefix('tests/bench/').rsplit('.', 1)[0]}"
    return found


def follow_links(text: str, file: str, page: str) -> str:
    """Turn each link of a file's text to the page of what it leads to; other files are told from where the page is."""
    pages, here = pages_of_files(), (DOCS / page).parent

    def turn(link: re.Match[str]) -> str:
        path = ((ROOT / file).parent / link[1]).resolve()
        if not path.exists() or ROOT not in path.parents:
            return link[0]
        name = path.relative_to(ROOT).as_posix()
        target = DOCS / f"{pages[name]}{path.suffix}" if name in pages else path
        return Path(os.path.relpath(target, here)).as_posix() + (link[2] or "")

    parts, at = [], 0
    for fence in FENCED.finditer(text):
        parts += [LINK.sub(turn, text[at : fence.start()]), fence[0]]
        at = fence.end()
    return "".join(parts) + LINK.sub(turn, text[at:])


def copy_files() -> dict[str, str]:
    """The texts of pages that are copies: name and ending on the site, to text."""
    made = {}
    for name, page in pages_of_files().items():
        if name.startswith("docs/"):
            continue
        text = (ROOT / name).read_text(encoding="utf-8")
        if name.endswith(".ipynb"):
            book = json.loads(text)
            words = [cell for cell in book["cells"] if cell["cell_type"] == "markdown"]
            for cell in words:
                cell["source"] = follow_links("".join(cell["source"]), name, page)
            part = next((at for at, cell in enumerate(words) if at and cell["source"].startswith("# ")), len(words))
            for cell in words[part:]:  # the page has one title: its parts, and what is in them, stand a level below
                cell["source"] = re.sub("^#", "##", cell["source"], flags=re.M)
            book["cells"].insert(0, STILL)
            if page == "index":
                book["cells"][1]["source"] += "\n\n" + START.format(links=follow_links(LINKS, "README.md", page))
                book["cells"].append(
                    {"cell_type": "markdown", "id": "contents", "metadata": {}, "source": write_contents()}
                )
            made[f"{page}.ipynb"] = json.dumps(book, indent=1, ensure_ascii=False)
        else:
            made[f"{page}.md"] = follow_links(text, name, page)
    return made


def write_contents() -> str:
    """The site's contents, hidden at the end of its first page."""
    pages, trees = pages_of_files(), []
    named = {entry for entries in CONTENTS.values() for entry in entries}
    for title, entries in CONTENTS.items():
        listed = [f"{MADE}/api/index"] if "api" in entries else []
        for entry in entries:
            fitting = [name for name in sorted(pages) if fnmatch(name, entry) and name.count("/") == entry.count("/")]
            listed += [pages[name] for name in fitting if name == entry or name not in named]
        rows = "\n".join(page if page != "index" else "self" for page in dict.fromkeys(listed))
        trees.append(f"```{{toctree}}\n:hidden:\n:caption: {title}\n\n{rows}\n```")
    results = "\n".join(page for page in pages.values() if page.startswith(f"{MADE}/results/"))
    trees.append(f"```{{toctree}}\n:hidden:\n:caption: Tables of figures\n\n{results}\n```")
    return "\n\n".join(trees)


# -- pages of the API ------------------------------------------------------------------------------------------------


class Public(NamedTuple):
    """A public name: the package that has it, what it names, and the module in which that is made."""

    package: str
    name: str
    value: Any
    home: str

    @property
    def path(self) -> str:
        return f"{self.package}.{self.name}"


@cache
def public_names() -> tuple[Public, ...]:
    """Every public name: what a package lists in `__all__`, or a module without it holds and does not borrow."""
    found, packages = [], list(PACKAGES)
    for package in packages:
        module = import_module(package)
        names = getattr(module, "__all__", None) or [name for name in vars(module) if not name.startswith("_")]
        for name in sorted(names):
            value = getattr(module, name)
            if isinstance(value, ModuleType):
                if hasattr(module, "__all__"):
                    packages.append(value.__name__)
                continue
            home = find_home(module, name, value)
            if home and (hasattr(module, "__all__") or f"{home}.".startswith(f"{package}.")):
                found.append(Public(package, name, value, home))
        if package in EXTRA:
            packages.append(EXTRA[package])
    return tuple(found)


def find_home(package: ModuleType, name: str, value: Any) -> str:
    """The module in which a public name is defined; empty where it is not one of ours."""
    home = getattr(value, "__module__", None) if inspect.isclass(value) or inspect.isroutine(value) else None
    home = home or getattr(getattr(value, "function", None), "__module__", None)
    if home:
        return home if home.startswith("tapestry_") else ""
    for module in find_modules(package.__name__.partition(".")[0]):
        if name in vars(module) and vars(module)[name] is value and name in assigned(module):
            return module.__name__
    return ""


@cache
def find_modules(root: str) -> tuple[ModuleType, ...]:
    """The modules of a package that are imported when its public names are."""
    files = sorted((ROOT / root).rglob("*.py"))
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in files]
    return tuple(sys.modules[name] for name in names if name in sys.modules)


@cache
def assigned(module: ModuleType) -> dict[str, str]:
    """The names that a module assigns to at its top, with the text that stands below each."""
    body = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8")).body
    found = {}
    for at, node in enumerate(body):
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        below = body[at + 1] if at + 1 < len(body) else None
        told = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else ""
        found.update({target.id: str(told) for target in targets if isinstance(target, ast.Name)})
    return found


def page_of(public: Public) -> str:
    """The page that describes a name: of the wing that makes it, of operators the theme."""
    depth = 3 if public.home.startswith("tapestry_plan.ops.") else 2
    return ".".join(public.home.split(".")[:depth])


def describe_name(public: Public) -> str:
    """What autodoc is to write of a name."""
    if inspect.isclass(public.value):
        return f".. autoclass:: {public.path}\n   :members:\n   :show-inheritance:\n"
    if inspect.isroutine(public.value):
        return f".. autofunction:: {public.path}\n"
    told = words_of(public) or f"``{str(public.value)[:100]}``"
    told = re.sub(r"^(\w+)\n-+$", r".. rubric:: \1\n", told, flags=re.M)
    return f".. py:data:: {public.path}\n\n   " + "\n   ".join(mend_lines(told.splitlines())) + "\n"


def mend_lines(lines: Iterable[str]) -> list[str]:
    """A docstring's lines as reStructuredText reads them: |x| is a size there, and a name in ticks may have an ending.

    Examples stay as they are; they last until an empty line.
    """
    made, inside = [], False
    for line in lines:
        inside = bool(line.strip()) and (inside or line.lstrip().startswith(">>> "))
        plain = re.sub(r"\|(\w+)\|", r"\\|\1\\|", line)
        made.append(line if inside else re.sub(r"((?<!`)`[^`\s]+`)(?=[a-z])", r"\1\\ ", plain))
    return made


def words_of(public: Public) -> str:
    """The docstring of what a name stands for; of a value without one what stands below its assignment."""
    value = public.value
    has_own = inspect.isclass(value) or inspect.isroutine(value) or hasattr(value, "function")
    told = inspect.getdoc(value) if has_own else assigned(import_module(public.home)).get(public.name)
    return inspect.cleandoc(told or "")


def write_api() -> dict[str, str]:
    """The pages of the API: one for each wing or theme, and one that lists all names."""
    described: dict[int, str] = {}
    pages: dict[str, list[Public]] = {}
    lists: dict[str, list[str]] = {}
    for public in public_names():
        path = described.setdefault(id(public.value), public.path)
        (first,) = mend_lines([" ".join(words_of(public).split("\n\n")[0].split())])
        lists.setdefault(public.package, []).append(f"   * - :py:obj:`{public.name} <{path}>`\n     - {first}")
        if path == public.path:
            pages.setdefault(page_of(public), []).append(public)
    made = {}
    for page, names in pages.items():
        title = f"``{page}``"
        door = inspect.getdoc(import_module(page)) or ""
        parts = [title, "=" * len(title), "", door.splitlines()[0], ""]
        for public in names:
            parts += [f".. currentmodule:: {public.package}", "", describe_name(public)]
        made[f"{MADE}/api/{page}.rst"] = "\n".join(parts)
    index = ["API", "===", "", "Every public name, by the package that it is imported from.", ""]
    for package, rows in lists.items():
        title = f"``{package}``"
        index += [title, "-" * len(title), "", ".. list-table::", "   :widths: 30 70", "", *rows, ""]
    index += [".. toctree::", "   :hidden:", "", *(f"   {page}" for page in sorted(pages)), ""]
    made[f"{MADE}/api/index.rst"] = "\n".join(index)
    return made


def write_pages() -> None:
    """Make all pages that are not there, or differ, and delete those that no file has any more."""
    wanted = {**copy_files(), **write_api()}
    for name, text in wanted.items():
        path = DOCS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in list_made():
        if path.relative_to(DOCS).as_posix() not in wanted:
            path.unlink()


def list_made() -> Iterator[Path]:
    yield from [path for path in (DOCS / MADE).rglob("*") if path.is_file()]
