"""The wheel in a fresh environment of each Python that is given: README's examples and the demo, in an empty folder.

python tests/bench/try_interpreters.py [--write] PYTHON...

Each PYTHON is an interpreter, such as /usr/bin/python3.12. The wheel is built once, by `pip wheel`. What is installed
is imported from nowhere else: the folder in which the commands run is empty, and is asked where the packages lie.
"""

from __future__ import annotations

import argparse
import datetime
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "tests" / "bench" / "results" / "interpreters.md"
ASKED = """
import platform, sys, numpy, islpy, onnx
import tapestry_exec, tapestry_plan, tapestry_sets
assert all(sys.prefix in each.__file__ for each in (tapestry_exec, tapestry_plan, tapestry_sets))
print(platform.python_version(), numpy.__version__, islpy.version.VERSION_TEXT, onnx.__version__)
"""


def examples() -> list[tuple[str, str]]:
    """README's, with what each prints."""
    sys.path[:0] = [str(ROOT)]
    from tests.test_docs import examples

    return examples(ROOT / "README.md")


def try_wheel(python: str, wheel: Path, folder: Path) -> tuple[list[str], str]:
    """What was installed, and the seconds of the demo; CalledProcessError or AssertionError where something fails."""

    def call(*command: str | Path) -> str:
        done = subprocess.run([str(part) for part in command], cwd=empty, capture_output=True, text=True, check=True)
        return done.stdout

    empty = folder / "empty"
    empty.mkdir()
    call(python, "-I", "-m", "venv", folder / "venv")
    own = folder / "venv" / "bin"
    call(own / "pip", "install", "--quiet", wheel)
    found = call(own / "python", "-c", ASKED).split()
    for code, printed in examples():
        assert call(own / "python", "-c", code) == printed, f"{python}: README prints otherwise"
    begin = time.perf_counter()
    call(own / "tapestry", "demo")
    return found, f"{time.perf_counter() - begin:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pythons", nargs="+", metavar="PYTHON")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as made:
        build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", made, str(ROOT)]
        subprocess.run(build, check=True)
        (wheel,) = Path(made).glob("*.whl")
        for at, python in enumerate(given.pythons):
            folder = Path(made) / str(at)
            folder.mkdir()
            try:
                found, seconds = try_wheel(python, wheel, folder)
            except (subprocess.CalledProcessError, AssertionError) as error:
                print(python, getattr(error, "stderr", error), file=sys.stderr)
                raise SystemExit(1) from None
            rows.append(f"| {' | '.join(found)} | {len(examples())} | {seconds} | yes |")
            print(rows[-1])
    table = [
        f"# The wheel on several Pythons, {datetime.date.today()}",
        "",
        f"{platform.system()}, {platform.machine()}; made by `python tests/bench/try_interpreters.py --write PYTHON`:",
        "the wheel in a fresh environment each, README's examples and `tapestry demo` from an empty folder.",
        "",
        "| Python | NumPy | islpy | onnx | README's examples that print what they say | demo, s | passed |",
        "|---|---|---|---|---|---|---|",
        *rows,
    ]
    if given.write:
        RESULTS.write_text("\n".join(table) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
