"""A narrow terminal loses nothing: what does not fit is broken by the terminal, never cut or drawn over."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from click.testing import CliRunner

from tito_io.cli.console import MIN_COLUMNS
from tito_io.cli.group import tito
from tito_io.rollout.report import LEGEND

COMMANDS = (
    ("rollout", "--turns", "3"),
    ("audit", "calls.jsonl", "--family", "family"),
    ("samples", "calls.jsonl", "-o", "rows.jsonl"),
    ("lint", "plain"),
)
COLOUR = r"\x1b\[[0-9;]*m"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_narrow_console_says_what_a_wider_one_says(
    command: tuple[str, ...], place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)

    def told(columns: int) -> tuple[int, str, str]:
        found = CliRunner().invoke(tito, [*command], env={"COLUMNS": str(columns)})
        return found.exit_code, found.stdout, found.stderr

    wide = told(MIN_COLUMNS)
    assert wide[1] + wide[2]
    for columns in (0, 1, 20, MIN_COLUMNS - 1):
        assert told(columns) == wide


def in_terminal(columns: int, *command: str) -> str:
    """Return what a command writes to a terminal of so many columns and 24 lines."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environ = {**os.environ, "TERM": "xterm"} | {"PYTHONPATH": os.pathsep.join(sys.path)}
    for name in ("COLUMNS", "LINES"):
        environ.pop(name, None)
    with subprocess.Popen(
        [sys.executable, "-m", "tito_io", *command], stdin=theirs, stdout=theirs, stderr=theirs, env=environ
    ) as run:
        os.close(theirs)
        parts = []
        try:
            while part := os.read(ours, 4096):
                parts.append(part)
        except OSError:  # how the other end's closing is told
            pass
        finally:
            os.close(ours)
    assert run.returncode == 0
    return b"".join(parts).decode()


def test_a_rollout_that_is_longer_than_its_terminal_writes_each_turn_once() -> None:
    """Nothing moves the cursor: what was drawn anew would stay above the last line of the terminal."""
    turns = 30
    for columns in (80, 20):
        written = in_terminal(columns, "rollout", "--turns", str(turns), "--max-tokens", "4")
        plain = re.sub(COLOUR, "", written)
        assert "\x1b" not in plain
        lines = plain.splitlines()
        first = lines.index(next(line for line in lines if line.split()[:1] == ["1"]))
        assert [line.split()[0] for line in lines[first:]][:turns] == [str(n + 1) for n in range(turns)]
        assert plain.count("Numbers of ids") == plain.count("turn route") == 1
        assert "\u2026" not in plain
    assert "\x1b[32mTITO " in written


def test_the_legend_is_broken_between_words() -> None:
    legend = in_terminal(80, "rollout", "--turns", "2").partition("Numbers of ids")[2]
    assert max(len(line) for line in legend.splitlines()) <= 80
    assert re.sub(r"\s+", " ", LEGEND.removeprefix("Numbers of ids")) in re.sub(r"\s+", " ", legend)
