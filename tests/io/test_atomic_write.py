"""A file is written as a whole, whatever its neighbours, links, signals and disks do."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from tempfile import gettempdir
from threading import Thread

import pytest

from tests.core.samples.calls import call
from tests.interrupts import interrupt
from tests.io.samples.sample_files import own, put
from tito_core import InputError
from tito_io.atomic_write import replaced, write_atomically
from tito_io.samples.forms.tito import CallFile
from tito_io.samples.sink import SUFFIXES

COMMAND = (sys.executable, "-m", "tito_io")
MANY = own("many", [call(f"c{place}", [1, place], [2, 3], order=place) for place in range(300)])


def waiting_run(output: Path, *before: str) -> subprocess.Popen[bytes]:
    """Start a `tito samples` that has begun its file and waits for its input."""
    command = [*before, *COMMAND, "samples", "-", "-o", str(output)]
    run = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    while not list(output.parent.glob(".tito-*.part")):
        assert run.poll() is None
        time.sleep(0.01)
    return run


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir())


def test_two_runs_to_one_file_do_not_mix(tmp_path: Path) -> None:
    """The file has the rows of the run that ended last, and no others."""
    output, calls = tmp_path / "rows.jsonl", put(tmp_path, MANY, "many.jsonl")
    slow = waiting_run(output)
    subprocess.run([*COMMAND, "samples", str(calls), "-o", str(output)], check=True, capture_output=True)
    assert len(output.read_bytes().splitlines()) == 300
    slow.communicate(own("few", [call("a", [1], [2])]), timeout=60)
    assert slow.returncode == 0
    assert len(output.read_bytes().splitlines()) == 1
    assert names(tmp_path) == ["many.jsonl", "rows.jsonl"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_old_file_and_no_other(tmp_path: Path, number: signal.Signals) -> None:
    output = put(tmp_path, b"old", "rows.jsonl")
    run = waiting_run(output)
    interrupt(run, number)
    assert run.returncode == 128 + number
    assert (names(tmp_path), output.read_bytes()) == (["rows.jsonl"], b"old")


def test_a_signal_that_the_caller_ignores_changes_nothing(tmp_path: Path) -> None:
    output = tmp_path / "rows.jsonl"
    run = waiting_run(output, "sh", "-c", 'trap "" HUP; exec "$@"', "sh")
    run.send_signal(signal.SIGHUP)
    run.communicate(own("few", [call("a", [1], [2])]), timeout=60)
    assert (run.returncode, names(tmp_path)) == (0, ["rows.jsonl"])


def test_signals_do_as_before_once_a_file_is_written(tmp_path: Path) -> None:
    write_atomically(tmp_path / "page.html", "new")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_threads_write_files_too(tmp_path: Path) -> None:
    """Only the main thread may change what signals do."""
    thread = Thread(target=write_atomically, args=(tmp_path / "page.html", "new"))
    thread.start()
    thread.join()
    assert (tmp_path / "page.html").read_text() == "new"


def test_what_raises_leaves_the_old_file(tmp_path: Path) -> None:
    path = put(tmp_path, b"old", "rows.jsonl")

    def fail() -> None:
        with replaced(path) as (file, _):
            file.write(b"new")
            raise InputError("a row is wrong")

    with pytest.raises(InputError):
        fail()
    assert (names(tmp_path), path.read_bytes()) == (["rows.jsonl"], b"old")


def test_a_link_in_the_place_of_the_temporary_file_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its name cannot be guessed; a neighbour that knows it gains nothing."""
    precious = put(tmp_path, b"precious", "precious")
    for name in ("rows.jsonl.part", ".tito-0.part"):
        (tmp_path / name).symlink_to(precious)
    write_atomically(tmp_path / "rows.jsonl", "new")
    monkeypatch.setattr("secrets.token_hex", lambda _: "0")
    with pytest.raises(FileExistsError, match=r"rows\.jsonl"):
        write_atomically(tmp_path / "rows.jsonl", "newer")
    assert (precious.read_bytes(), (tmp_path / "rows.jsonl").read_text()) == (b"precious", "new")


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_one_and_the_file_that_it_names_is_replaced(tmp_path: Path, *, exists: bool) -> None:
    (tmp_path / "disk").mkdir()
    target, link = tmp_path / "disk" / "target.html", tmp_path / "page.html"
    if exists:
        target.write_text("old")
    link.symlink_to(Path("disk") / "target.html")
    write_atomically(link, "new")
    assert (link.is_symlink(), target.is_symlink(), target.read_text()) == (True, False, "new")
    assert (names(tmp_path), names(tmp_path / "disk")) == (["disk", "page.html"], ["target.html"])


def test_a_link_that_is_not_followed_is_replaced_itself(tmp_path: Path) -> None:
    precious, link = put(tmp_path, b"precious", "precious"), tmp_path / "link"
    link.symlink_to(precious)
    write_atomically(link, "new", follow=False)
    assert (link.is_symlink(), link.read_text(), precious.read_bytes()) == (False, "new", b"precious")


def test_links_that_name_each_other_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        write_atomically(tmp_path / "a", "new")


def test_permissions_are_those_of_the_old_file_or_of_a_new_one(tmp_path: Path) -> None:
    private, other = put(tmp_path, b"old", "private"), tmp_path / "other"
    private.chmod(0o660)
    before = os.umask(0o027)
    try:
        write_atomically(private, "new")
        write_atomically(other, "new")
    finally:
        os.umask(before)
    assert [stat.S_IMODE(one.stat().st_mode) for one in (private, other)] == [0o660, 0o640]


def test_a_pipe_is_written_as_it_is(tmp_path: Path) -> None:
    pipe, found = tmp_path / "pipe", list[bytes]()
    os.mkfifo(pipe)
    reader = Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    write_atomically(pipe, "new")
    reader.join()
    assert (found, pipe.is_fifo()) == ([b"new"], True)


def samples_within(limit: int, calls: Path, output: Path) -> subprocess.CompletedProcess[str]:
    """Run `tito samples` in a process whose files may have so many bytes."""
    limited = f"import resource as r; r.setrlimit(r.RLIMIT_FSIZE, ({limit}, {limit})); "
    code = f"{limited}from tito_io.cli.main import main; main()"
    command = [sys.executable, "-c", code, "samples", str(calls), "-o", str(output)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_device_that_is_full_is_named(tmp_path: Path, suffix: str) -> None:
    output, calls = tmp_path / f"rows{suffix}", put(tmp_path, MANY, "many.jsonl")
    output.symlink_to("/dev/full")
    done = samples_within(resource.RLIM_INFINITY, calls, output)
    assert (done.returncode, done.stderr) == (2, f"tito: {output}: No space left on device\n")
    assert output.is_symlink()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_that_cannot_grow_is_named_and_removed(tmp_path: Path, suffix: str) -> None:
    """Numbers of `.safetensors` go through files in the folder for temporary ones, which may be full too."""
    output, calls = tmp_path / f"rows{suffix}", put(tmp_path, MANY, "many.jsonl")
    done = samples_within(1000, calls, output)
    named = gettempdir() if suffix == ".safetensors" else output
    assert (done.returncode, done.stderr) == (2, f"tito: {named}: File too large\n")
    assert names(tmp_path) == ["many.jsonl"]


def test_calls_of_two_rollouts_do_not_mix(tmp_path: Path) -> None:
    """They are written as they are taken, so that the second rollout to one file is refused."""
    path = tmp_path / "calls.jsonl"
    with CallFile(path):
        path.write_bytes(b"a turn\n")
        with pytest.raises(InputError, match=r"calls\.jsonl cannot be written: another process writes it"):
            CallFile(path).__enter__()
        assert path.read_bytes() == b"a turn\n"
    with CallFile(path):
        assert path.read_bytes() == b""
