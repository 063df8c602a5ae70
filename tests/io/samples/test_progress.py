"""Progress by bytes, also inside one long line; and what an interrupted run says."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from click.testing import CliRunner
from rich.progress import Progress

from tests.core.samples.calls import call
from tests.io.samples.sample_files import chat, dumped, own, put
from tests.io.samples.terminal import on_terminal, tito
from tito_io.cli.main import INTERRUPTED
from tito_io.samples import command
from tito_io.samples.line_groups import LONG
from tito_io.samples.lines import BUFFER, lines
from tito_io.samples.progress import RunProgress, _Elapsed, shown_progress
from tito_io.samples.read import conversations

CALL = own("c", [call("a", [1], [2, 3])])


def session(folder: Path, size: int) -> Path:
    """Write one line of at least `size` bytes: a session with several records."""
    records = [chat(str(number), [number], [2], padding="x" * (size // 4)) for number in range(4)]
    return put(folder, dumped({"session_id": "s", "records": records, "metadata": {}}))


def test_bytes_are_counted_while_one_long_line_is_read(tmp_path: Path) -> None:
    path, counts = put(tmp_path, b" " * (3 * BUFFER) + CALL), list[int]()
    reading = lines(path, counts.append)
    next(reading)
    assert len(counts) > 3
    assert counts == sorted(counts)
    assert counts[0] <= BUFFER
    assert counts[-1] == path.stat().st_size


def test_the_parts_of_a_long_line_are_steps(tmp_path: Path) -> None:
    steps: list[tuple[str, bool]] = []
    progress = RunProgress(show=lambda state, draw: steps.append((state.step, draw)))
    list(conversations(session(tmp_path, LONG), None, progress))
    names = dict.fromkeys(step for step in steps if step[0])
    assert list(names) == [("line 1: parsing JSON", True)] + [
        (f"line 1: part {number} of 4", False) for number in range(1, 5)
    ]
    short: list[str] = []
    list(
        conversations(put(tmp_path, CALL), None, RunProgress(show=lambda state, _: short.append(state.step)))
    )
    assert set(short) == {""}


def test_progress_is_drawn_on_a_terminal_and_rows_stay_on_their_stream(tmp_path: Path) -> None:
    path = session(tmp_path, 4 * LONG)
    line = tito("samples", str(path), "--json")
    rows, shown = on_terminal(line)
    assert [orjson.loads(row)["name"] for row in rows.splitlines()] == ["0", "1", "2", "3"]
    words = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b" ", shown).split()  # without the colours
    assert {b"log.jsonl", b"0:00:00", b"JSON"} <= set(words)
    quiet = subprocess.run(line, capture_output=True, check=True)
    assert quiet.stdout == rows
    assert orjson.loads(quiet.stderr)["rows"] == 4


@pytest.mark.parametrize(("stdout", "columns"), [(True, 120), (False, 40)])
def test_no_progress_is_drawn_over_rows_or_on_a_narrow_terminal(
    tmp_path: Path, stdout: bool, columns: int
) -> None:
    line = tito("samples", str(session(tmp_path, 4 * LONG)), "--json")
    _, shown = on_terminal(line, stdout=stdout, columns=columns)
    assert b"parsing JSON" not in shown
    assert b"conversations" in shown


@pytest.mark.parametrize("output", [None, "rows.jsonl"])
def test_an_interrupted_run_says_what_was_done(tmp_path: Path, output: str | None) -> None:
    options = [] if output is None else ["--output", str(tmp_path / output)]
    line = tito("samples", "/dev/stdin", *options)
    pipe = subprocess.PIPE
    with subprocess.Popen(line, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdin is not None
        process.stdin.write(CALL + own("d", [call("a", [1], [2])]))
        process.stdin.flush()
        time.sleep(4)  # the pipe stays open: the run waits for more lines
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == INTERRUPTED
    done, interrupted = errors.decode().splitlines()
    assert interrupted == "tito: interrupted"
    where = "printed" if output is None else f"made; {tmp_path / 'rows.jsonl'} was not written"
    assert done.startswith("tito: /dev/stdin: ")
    assert done.endswith(f" read: 1 conversation, 1 row {where}")
    assert [one.name for one in tmp_path.iterdir()] == []


@pytest.mark.parametrize("options", [[], ["--format", "tito"]])
def test_the_command_shows_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    path, seen = put(tmp_path, CALL + own("d", [call("a", [1], [2])])), list[RunProgress]()

    @contextmanager
    def shown(file: Path, *, prints_rows: bool) -> Iterator[RunProgress]:
        assert (file, prints_rows) == (path, True)
        seen.append(RunProgress(size=path.stat().st_size))
        yield seen[0]

    monkeypatch.setattr(command, "shown_progress", shown)
    assert CliRunner().invoke(command.samples, [str(path), *options]).exit_code == 0
    assert str(seen[0]).endswith("read (100%)")


@pytest.mark.parametrize(
    ("seconds", "shown"), [(None, "0:00:00"), (0.9, "0:00:00"), (65.5, "0:01:05"), (3_600, "1:00:00")]
)
def test_the_time_goes_on_after_all_bytes_are_read(seconds: float | None, shown: str) -> None:
    clock = [0.0]
    bar = Progress(get_time=lambda: clock[0])
    number = bar.add_task("log.jsonl", start=seconds is not None, total=1, completed=1)
    clock[0] = seconds or 0.0
    assert _Elapsed().render(bar.tasks[number]).plain == shown


@pytest.mark.parametrize(
    ("name", "shown"),
    [("n" * 18 + ".jsonl", "n" * 18 + ".jsonl"), ("n" * 19 + ".jsonl", "n" * 19 + ".j...")],
)
def test_a_long_name_is_cut(tmp_path: Path, name: str, shown: str) -> None:
    path = session(tmp_path, 4 * LONG).rename(tmp_path / name)
    _, drawn = on_terminal(tito("samples", str(path), "--json"))
    words = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b" ", drawn).split()
    assert shown.encode() in words


def test_nothing_is_drawn_where_nobody_looks(tmp_path: Path) -> None:
    path = put(tmp_path, CALL)
    with shown_progress(path, prints_rows=False) as progress:
        progress.on_read(3)
    assert (progress.size, progress.bytes_read) == (len(CALL), 3)
    with shown_progress(tmp_path / "pipe", prints_rows=False) as progress:
        assert progress.size is None
