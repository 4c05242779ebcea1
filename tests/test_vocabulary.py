"""One word, one idea: a type name stands in one module of a package, functions are verbs, spelling is American."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("tapestry_sets", "tapestry_plan", "tapestry_exec")
WINGS = [
    ".".join(door.parent.relative_to(ROOT).parts)
    for package in PACKAGES
    for door in sorted([ROOT / package / "__init__.py", *(ROOT / package).glob("*/__init__.py")])
]


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


IRREGULAR = words(
    "begun bound broken brought built chosen done drawn driven fallen felt found given gone grown held kept known laid "
    "left lost made met paid said seen sent shown spent spoken spun stood taken thought told torn understood woven "
    "written"
)
"""Participles that do not end in -ed; -ing and -ed are seen by their ends."""
NO_PARTICIPLES = words("embed feed ring seed shed speed string")
"""Words that end as participles do."""
PREPOSITIONS = words("as at by for from in into of on out over to up with")
BRITISH = re.compile(
    r"(?:colour|behaviour|neighbour|favour|honour|labour|flavour|analys(?:e[sdr]?|ing)\b|catalogue|centre\b|centred|"
    r"fibre|metres?\b|litre|defence|licence|artefact|grey\b|whilst|amongst|learnt|spelt|labell(?!edby)|cancelled|cancelling|"
    r"modell|travell|signall|channell|(?:author|categor|capital|general|initial|local|material|maxim|memor|minim|"
    r"normal|optim|organ|parallel|penal|quant|random|real|recogn|serial|special|stabil|standard|summar|symbol|"
    r"synchron|util|vector|visual)is(?:e[sdr]?\b|ing\b|ation))",
    re.IGNORECASE,
)

IS_NO = re.compile(r"(?<!there )\b(?:is|are) no\s+(?!longer\b|more\b|larger\b)\w+", re.IGNORECASE)
"""``7 is no axis``, where ``7 is not an axis`` is plain; ``there is no axis`` tells of absence."""


def type_names(path: Path) -> set[str]:
    """The classes, type aliases and type variables that a module defines, without the underscore of private ones."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.ClassDef(name=name):
                found.add(name.lstrip("_"))
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if names_a_type(value):
                bare = name.lstrip("_")
                found |= {bare} if bare[:1].isupper() and not bare.isupper() else set()
            case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias")):
                found.add(name.lstrip("_"))
    return found


def names_a_type(value: ast.expr) -> bool:
    """Whether what is assigned may be a type: no call, but for that of ``TypeVar``."""
    return not isinstance(value, ast.Call) or (isinstance(value.func, ast.Name) and value.func.id == "TypeVar")


def modules_by_type(package: str) -> dict[str, list[str]]:
    """For each type name of a package the modules that define it."""
    found = defaultdict(list)
    for path in sorted((ROOT / package).rglob("*.py")):
        for name in type_names(path):
            found[name].append(str(path.relative_to(ROOT / package)))
    return found


def is_participle(name: str) -> bool:
    """Whether a function's name is a participle, alone or before prepositions: a state, not what the function does."""
    first, *rest = name.strip("_").split("_")
    if not PREPOSITIONS.issuperset(rest):
        return False
    return first in IRREGULAR or (first not in NO_PARTICIPLES and len(first) > 4 and first.endswith(("ed", "ing")))


def exported_functions(wing: str) -> set[str]:
    """The functions of our own that a door exports."""
    door = importlib.import_module(wing)
    found = ((name, thing) for name, thing in vars(door).items() if not name.startswith("_"))
    return {name for name, thing in found if inspect.isfunction(inspect.unwrap(thing) if callable(thing) else thing)}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_type_name_has_one_meaning_in_a_package(package: str) -> None:
    several = {name: modules for name, modules in modules_by_type(package).items() if len(modules) > 1}
    assert not several, f"define each type in one module, and give different things different names: {several}"


@pytest.mark.parametrize("wing", WINGS)
def test_exported_functions_are_not_participles(wing: str) -> None:
    found = {name for name in exported_functions(wing) if is_participle(name)}
    assert not found, f"functions are verbs (`place`, not `placed`): {sorted(found)}"


def test_spelling_is_american() -> None:
    texts = [*ROOT.glob("*.md"), *(path for top in (*PACKAGES, "tests") for path in (ROOT / top).rglob("*.py"))]
    places: dict[str, Path] = {}  # each word is looked at once
    for path in texts:
        if path != Path(__file__).resolve():
            places.update(dict.fromkeys(re.findall(r"\w+", path.read_text()), path.relative_to(ROOT)))
    foreign = {"Is_cancelled"}  # of MPI
    found = {f"{path}: {word}" for word, path in places.items() if BRITISH.search(word) and word not in foreign}
    assert not found, f"write American English: {sorted(found)}"


@pytest.mark.parametrize("word", ["colour", "normalisation", "Neighbours", "modelled", "centre"])
def test_british_words_are_seen(word: str) -> None:
    assert BRITISH.search(f"a {word} here")


def test_what_something_is_not_is_said_plainly() -> None:
    texts = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *(p for top in PACKAGES for p in (ROOT / top).rglob("*.py"))]
    found = {f"{p.relative_to(ROOT)}: {match.group()}" for p in texts for match in IS_NO.finditer(p.read_text())}
    assert not found, f"write `is not a`: {sorted(found)}"


def test_participles_are_seen() -> None:
    names = ("spilled", "made_by", "placing", "spill", "feed", "is_coarse", "shared_memory")
    assert [name for name in names if is_participle(name)] == ["spilled", "made_by", "placing"]
    assert {"spill", "lower"} <= exported_functions("tapestry_plan.steps")
