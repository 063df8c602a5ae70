"""The server: its settings that pages state, what it says of requests, and how it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import anyio
import httpx2
import pytest

from tests.faults.fault import ROOT
from tests.io.serve.gateway import HELLO
from tests.io.serve.gateway_agents import Agent
from tests.io.serve.gateway_process import started
from tito_io.serve.server import KEEP_ALIVE_SECONDS


def test_a_page_says_when_idle_connections_are_closed() -> None:
    """A proxy that keeps them longer gets 502 for some requests."""
    page = (ROOT / "docs/howto/deploy.md").read_text()
    assert f"before the gateway does so, after {KEEP_ALIVE_SECONDS} seconds" in page


@pytest.mark.parametrize("options", [("--access-log",), ("--log-level", "debug")])
def test_a_server_logs_requests_only_if_asked_to_and_has_no_name(
    options: tuple[str, ...], tmp_path: Path
) -> None:
    with started("--store", "memory", *options, complaints=tmp_path / "log") as process:
        answer = httpx2.get(f"{process.url}/health", timeout=60)
        assert (answer.status_code, "server" in answer.headers) == (200, False)
        assert process.stop() == 0
        lines = [line for line in process.warnings() if "/health" in line]
    assert len(lines) == ("--access-log" in options)
    assert all("tito.access: GET /health 200 " in line for line in lines)  # uvicorn's would show whole ids


WITHOUT_RECEIVER = """
import signal
import sys
from tito_io.serve import server
from tito_io.cli.main import main
server.OWN_SIGNALS = False
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
sys.argv[1:] = ["serve", "--store", sys.argv[1], "--port", "0"]
main()
"""


def test_a_system_whose_event_loop_receives_no_signals_is_served_too(tmp_path: Path) -> None:
    """As on Windows: uvicorn receives the interrupt there, and ends what is in flight."""
    store = f"sqlite:{tmp_path / 's.db'}"
    command = [sys.executable, "-c", WITHOUT_RECEIVER, store]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            with httpx2.Client(base_url=process.stdout.readline().strip(), timeout=60) as http:
                body = {"messages": HELLO, "max_tokens": 5}
                key = {"x-api-key": "k"}
                assert http.post("/v1/chat/completions", json=body, headers=key).status_code == 200
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, stderr) == (130, "tito: interrupted\n")
    with started("--store", store) as again, httpx2.Client(base_url=again.url) as http:
        assert len(http.get("/session", headers=key).json()["records"]) == 1


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_gateway_that_is_told_to_stop_ends_what_is_in_flight(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 'sessions.db'}"
    with started("--store", store) as process:
        async with httpx2.AsyncClient(base_url=process.url, timeout=60) as http:
            opened = [await http.post("/sessions") for _ in range(3)]
            talking = [Agent(one.json()["session_id"]) for one in opened]
            async with anyio.create_task_group() as group:
                for agent in talking:
                    group.start_soon(agent.turn, http)
                await anyio.sleep(0.02)
                process.process.terminate()
        assert process.process.wait(30) == 0
    with started("--store", store) as process:
        async with httpx2.AsyncClient(base_url=process.url, timeout=60) as http:
            for agent in talking:
                assert len(agent.received) == 1
                await agent.check(http)
