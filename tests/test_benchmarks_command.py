"""Benchmark commands reject numbers out of range, and end an interrupt with one line and status 130."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import pytest

from benchmarks.command import INTERRUPTED, interruptible, whole
from tests.faults.children import Children
from tests.interrupts import interrupt

RUN = (
    "import runpy, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "name = sys.argv.pop(1); runpy.run_module(name, run_name='__main__', alter_sys=True)"
)


def ended(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command], capture_output=True, text=True, check=False, timeout=60
    )


@pytest.mark.parametrize(
    "command",
    [
        ("benchmarks.gateway", "--turns", "0"),
        ("benchmarks.audit", "--conversations", "0"),
        ("benchmarks.drift", "--conversations", "0"),
        ("benchmarks.drift", "--turns", "-1"),
        ("benchmarks.drift", "--together", "0"),
        ("benchmarks.gateway", "--sessions", "0"),
        ("benchmarks.gateway", "--session-turns", "some"),
    ],
    ids=" ".join,
)
def test_a_number_out_of_range_is_a_usage_error(command: tuple[str, ...]) -> None:
    done = ended(*command)
    assert done.returncode == 2
    assert f"argument {command[1]}: '{command[2]}' is not a whole number of at least 1" in done.stderr
    assert done.stderr.startswith(f"usage: python -m {command[0]} ")


@pytest.mark.parametrize("name", ["benchmarks.gateway", "tests.families.table", "tests.faults"])
def test_help_names_the_program_as_it_is_run(name: str) -> None:
    done = ended(name, "--help")
    assert done.returncode == 0
    assert f"usage: python -m {name} " in done.stdout.replace("Usage", "usage")


@pytest.mark.parametrize("text", ["", "1.5", "²", "-1", "0", "1e3"])
def test_text_that_is_not_a_whole_number_is_rejected(text: str) -> None:
    with pytest.raises(Exception, match="is not a whole number of at least 1"):
        whole(1)(text)


def test_an_interrupt_prints_one_line_and_exits_with_130(capsys: pytest.CaptureFixture[str]) -> None:
    @interruptible
    def work() -> None:
        raise KeyboardInterrupt

    with pytest.raises(SystemExit) as done:
        work()
    assert (done.value.code, capsys.readouterr().err) == (INTERRUPTED, "interrupted\n")


@pytest.mark.parametrize(
    ("command", "by"),
    [
        (("benchmarks.gateway", "--turns", "100000"), signal.SIGINT),
        (("tests.faults",), signal.SIGINT),
        (("tests.faults",), signal.SIGTERM),
    ],
    ids=["a server", "children", "children, by a terminated process"],
)
def test_an_interrupt_during_a_run_leaves_no_traceback_and_no_files(
    command: tuple[str, ...], by: signal.Signals, tmp_path: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", RUN, *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as run:
        for _ in range(600):
            if any(tmp_path.iterdir()):  # it works in a folder of its own
                break
            time.sleep(0.05)
        time.sleep(0.5)
        start = time.monotonic()
        _, error = interrupt(run, by)
    assert (run.returncode, error) == (INTERRUPTED, "interrupted\n")
    assert time.monotonic() - start < 6
    assert list(tmp_path.iterdir()) == []


def test_children_are_stopped_together_and_none_starts_afterwards(tmp_path: Path) -> None:
    found: list[int | None] = []
    sleeping = [sys.executable, "-c", "import time; time.sleep(60)"]
    start = time.monotonic()
    with Children() as children:
        run = lambda: found.append(children.run(sleeping, tmp_path, {}))  # noqa: E731  # a thread's
        threads = [Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
    for thread in threads:
        thread.join()
    assert found == [-signal.SIGKILL] * 2
    assert children.run(sleeping, tmp_path, {}) is None
    assert time.monotonic() - start < 30


def test_the_exit_status_of_a_child_is_returned(tmp_path: Path) -> None:
    with Children() as children:
        assert children.run([sys.executable, "-c", "raise SystemExit(3)"], tmp_path, {}) == 3
