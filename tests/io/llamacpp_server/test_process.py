"""llama.cpp's server starts, answers, and is never left behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gguf_file import write_gguf
from tito_core import InputError
from tito_io.llamacpp_server import LlamaCppServer, ServerSettings, ServerStartError, running
from tito_io.llamacpp_server.check import server_ids


def gguf(path: Path, **metadata: object) -> Path:
    return write_gguf(
        path / "m.gguf", {"general.architecture": "tito", "tito.context_length": 4096, **metadata}
    )


@pytest.fixture
def file(tmp_path: Path, stand_in: Path) -> Path:
    assert stand_in.is_dir()
    return gguf(tmp_path)


def ended(server: LlamaCppServer) -> bool:
    return server.process.poll() is not None


def test_a_server_answers_those_who_have_its_key_and_ends_with_the_block(file: Path) -> None:
    seen = []
    with running(ServerSettings(file=file), waiting=lambda process: seen.append(process.pid)) as server:
        assert server.url.startswith("http://127.0.0.1:")
        assert server_ids(server, "ab") == [4096, 97, 98]
        assert server.api_key not in repr(server)
        other = LlamaCppServer(server.url, "guessed", server.process, server.log)
        with pytest.raises(ServerStartError, match="HTTPStatusError"):
            server_ids(other, "ab")
        assert not ended(server)
    assert ended(server)
    assert set(seen) == {server.process.pid}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_an_error_or_an_interrupt_stops_the_server(file: Path, error: type[BaseException]) -> None:
    with pytest.raises(error), running(ServerSettings(file=file)) as server:
        raise error
    assert ended(server)


def test_a_server_that_does_not_end_is_killed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tito_io.llamacpp_server.process.GRACE", 0.1)
    with running(ServerSettings(file=file)) as server:
        server.process.send_signal(signal.SIGSTOP)
    assert server.process.returncode == -signal.SIGKILL


def test_an_interrupt_of_the_whole_group_leaves_the_server_to_its_turns(file: Path) -> None:
    with running(ServerSettings(file=file)) as server:
        server.process.send_signal(signal.SIGINT)
        assert server_ids(server, "a") == [4096, 97]


def test_an_interrupt_while_it_loads_stops_the_server(file: Path) -> None:
    seen: list[subprocess.Popen[str]] = []

    def interrupted(process: subprocess.Popen[str]) -> None:
        seen.append(process)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), running(ServerSettings(file=file), waiting=interrupted):
        pytest.fail("the block was entered")
    assert seen[0].poll() is not None


@pytest.mark.whole
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only Linux lets a process wait for any other")
def test_a_server_ends_with_a_process_that_was_killed(file: Path) -> None:
    program = (
        "import sys\nfrom tito_io.llamacpp_server import ServerSettings, running\n"
        f"with running(ServerSettings(file={str(file)!r})) as server:\n"
        "    print(server.process.pid, flush=True)\n    sys.stdin.read()\n"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, text=True) as parent:
        assert parent.stdout is not None
        child = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()
        waiting = select.poll()
        waiting.register(child, select.POLLIN)
        assert waiting.poll(60_000)
        os.close(child)


@pytest.mark.parametrize(
    ("name", "how", "line"),
    [("dies", "status 1", "RuntimeError"), ("aborts", "signal 6", "GGML_ASSERT failed")],
)
def test_a_server_that_ends_while_it_loads_shows_its_last_lines(
    stand_in: Path, name: str, how: str, line: str
) -> None:
    file = gguf(stand_in, **{"general.name": name})
    with (
        pytest.raises(ServerStartError, match=f"ended with {how}") as raised,
        running(ServerSettings(file=file)),
    ):
        pytest.fail("the block was entered")
    assert str(raised.value).startswith(f"{file}: ")
    assert any(line in one for one in raised.value.log)


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tito_io.llamacpp_server.process.find_spec", lambda _: None)
    with (
        pytest.raises(InputError, match=r"tito-kernel\[llamacpp\]"),
        running(ServerSettings(file=gguf(tmp_path))),
    ):
        pytest.fail("the block was entered")
