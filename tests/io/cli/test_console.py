"""A narrow terminal loses nothing: what does not fit is broken by the terminal, never cut or drawn over."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from click.testing import CliRunner

from tito_io.cli.console import MIN_COLUMNS
from tito_io.cli.group import tito

COMMANDS = (
    ("rollout", "--turns", "3"),
    ("audit", "calls.jsonl", "--family", "family"),
    ("samples", "calls.jsonl", "-o", "rows.jsonl"),
    ("lint", "plain"),
)
UP = "\x1b[1A"
"""What draws over the line before."""


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
    """Return what a command writes to a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
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


def test_a_table_is_drawn_over_where_its_lines_are_the_terminal_s_and_nowhere_else() -> None:
    wide, narrow = (in_terminal(columns, "rollout", "--turns", "3") for columns in (100, 20))
    assert UP in wide
    assert UP not in narrow
    assert narrow.count("Numbers of ids") == 1
    assert "\u2026" not in narrow
