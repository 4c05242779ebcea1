"""What commands say on a terminal and into pipes: readers that go away, tracebacks when asked for, units, widths."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.exec.cli.test_cli import call, refused

COMMAND = [sys.executable, "-m", "tapestry_exec.cli"]
ROOT = Path(__file__).resolve().parents[3]


def piped(*words: str, lines: int) -> tuple[list[str], str, int]:
    """What a reader of some lines gets, what stands on stderr, and the exit status."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [*COMMAND, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        read = [process.stdout.readline().decode() for _ in range(lines)]
        process.stdout.close()
        return read, process.stderr.read().decode(), process.wait(60)


@pytest.mark.skipif(sys.platform == "win32", reason="there, pipes have no readers that go away")
@pytest.mark.parametrize(
    "words", [("ops", "--json"), ("ops",), ("plan", "--help"), ("plan", "model.onnx", "--units", "exact", "-q")]
)
def test_a_reader_that_goes_away_is_no_failure(words: tuple[str, ...], folder: Path) -> None:
    """Quiet, and 141, the status that shells have for it: of JSON, of a table, of a help text, of lines."""
    assert piped(*words, lines=0) == ([], "", 141)


@pytest.mark.skipif(sys.platform == "win32", reason="there, pipes have no readers that go away")
def test_a_reader_of_some_lines(folder: Path) -> None:
    """As `| head -2`; all may have been written before it goes."""
    read, told, status = piped("show", "gemm", lines=2)
    assert read[0] == "gemm\n" and told == "" and status in (141, 0)


ENCODINGS = [
    ("utf-8", "conv.leaves…", "─"),
    ("ascii", "conv.leaves...", "-"),
    ("ascii:surrogateescape", "conv.leaves...", "-"),
    ("cp1252", "conv.leaves…", "-"),
    ("ascii:replace", "conv.leaves?", "?"),
]


@pytest.mark.parametrize(("encoding", "name", "line"), ENCODINGS)
def test_terminals_that_have_not_all_signs(encoding: str, name: str, line: str, tmp_path: Path) -> None:
    """A table's line and a cut name are shown as such a terminal can; what nothing is like is escaped, not lost."""
    script = tmp_path / "say.py"
    script.write_text(
        "from tapestry_exec.cli.terminal import echo, print_table, ready_streams\n"
        "ready_streams()\n"
        "echo('conv.leaves…')\n"
        "echo('naïve √', err=True)\n"
        "print_table('', ['sum'], [['n²']], [])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, check=True)
    kind = encoding.partition(":")[0]
    out, told = done.stdout.decode(kind).split(), done.stderr.decode(kind).strip()
    assert out[:3] == [name, "sum", line * 3]
    escaped = {"utf-8": "n²", "cp1252": "n²", "ascii": r"n\xb2", "ascii:surrogateescape": r"n\xb2"}
    assert out[3] == escaped.get(encoding, "n?")
    known = {"utf-8": "naïve √", "cp1252": r"naïve \u221a"}
    assert told == known.get(encoding, r"na\xefve \u221a")


@pytest.mark.skipif(sys.platform == "win32", reason="there, streams are closed otherwise")
@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_streams_that_were_closed_before(closed: str, folder: Path) -> None:
    """As services begin commands: what is printed there is lost, and nothing else."""
    words = f"{shlex.join([*COMMAND, 'plan', 'model.onnx', '--mesh', '2', '--html', 'page.html'])} {closed}"
    done = subprocess.run(["sh", "-c", words], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True)
    assert done.returncode == 0 and b"Traceback" not in done.stderr
    assert (folder / "page.html").stat().st_size > 1000


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_pipe_is_not_said_to_be_missing(folder: Path) -> None:
    os.mkfifo(folder / "pipe.json")
    refused(call("verify", "pipe.json"), "'pipe.json' is not an ordinary file; write what it gives to one")


def test_errors_show_their_traceback_when_asked(folder: Path) -> None:
    refused(call("plan", "none.onnx"), "there is no file 'none.onnx'")
    for words in (("plan", "none.onnx", "--debug"), ("--debug", "plan", "none.onnx")):
        result = call(*words)
        assert result.exit_code == 2 and result.stdout == ""
        assert result.stderr.startswith("Traceback (most recent call last):\n")
        assert "find_file" in result.stderr and result.stderr.endswith(" there is no file 'none.onnx'\n")
    early = call("plan", "model.onnx", "--machine", "none", "--debug")
    assert early.exit_code == 2 and "parse_machine" in early.stderr
    assert call("plan", "model.onnx", "--mesh", "2", "--debug", "-q").exit_code == 0


def test_units(folder: Path) -> None:
    human, exact = (call("verify", "plan.json", "--units", way).stdout for way in ("human", "exact"))
    assert human == call("verify", "plan.json").stdout != exact
    assert re.search(r"bytes moved: [\d.]+ KiB\n", human) and re.search(r"bytes moved: [\d,]+ B\n", exact)
    assert re.search(r"modeled [\d.]+ us, .* [\d.]+ kFLOP", human)
    assert re.search(r"modeled \d[\d.e-]+ s, .* [\d,]+ flop", exact)
    shown, whole = (re.findall(r"^ \d +([\d.,]+) (B|KiB)", text, re.M) for text in (human, exact))
    scale = {"B": 1, "KiB": 1024}
    for (n, unit), (m, _) in zip(shown, whole, strict=True):
        assert float(n.replace(",", "")) * scale[unit] == pytest.approx(int(m.replace(",", "")), rel=5e-4)


def test_tables_say_what_they_show(folder: Path) -> None:
    text = call("plan", "model.onnx", "--mesh", "2x2", "--no-fuse").stdout
    assert re.search(r"operator +type +tensor +shape +sharding +pulled +shared", text)
    assert re.search(r"^ conv +conv +c +2x4x8x8 ", text, re.M) and re.search(r"^ act +relu +y +2x4x8x8 ", text, re.M)
    for word in ("tensor, shape: ", "sharding: ", "pulled: ", "shared: ", "received: ", "peak: "):
        assert word in " ".join(text.split())


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
@pytest.mark.parametrize("columns", [80, 120])
def test_tables_fit_the_terminal(columns: int, folder: Path) -> None:
    import fcntl
    import pty
    import struct
    import termios

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    environment.pop("COLUMNS", None)
    words = ["plan", "model.onnx", "--mesh", "2x2", "--no-fuse", "-q"]
    with subprocess.Popen([*COMMAND, *words], stdout=slave, stderr=slave, stdin=slave, env=environment) as process:
        os.close(slave)
        found = b""
        try:
            while chunk := os.read(master, 65536):
                found += chunk
        except OSError:  # so Linux says that the other end is closed
            pass
        assert process.wait(60) == 0
    os.close(master)
    lines = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", found.decode()).splitlines()
    table = [line for line in lines if re.match(r" (operator|conv|act|\d) ", line)]
    assert len(table) >= 3 and all(len(line) <= columns for line in table)
