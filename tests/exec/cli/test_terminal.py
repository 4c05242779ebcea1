"""What commands say on a terminal and into pipes: readers that go away, tracebacks when asked for, units, widths."""

from __future__ import annotations

import os
import re
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
