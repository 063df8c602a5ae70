"""Clients that send a part of a request, or open too many connections, do not stop a gateway."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs
import httpx2
import pytest

from tests.io.serve.gateway import HELLO
from tests.io.serve.gateway_process import Process, started
from tito_core import InputError
from tito_io.serve.bounds import OTHER_FILES, ConnectionBounds
from tito_io.serve.refusals import GatewayLimits

LIMITS = GatewayLimits()
HALF_HEADERS = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx-tito-session: a\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
HALF_BODY = HALF_HEADERS + b"content-length: 100\r\n\r\n{"
FEW_FILES = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, {hard}))
"""


STORED_ONCE_THE_CLIENT_IS_GONE = """
import asyncio
from tito_io.serve.connections import BoundedConnection
from tito_io.serve.sqlite import SqliteStore
put, left = SqliteStore.put, []
BoundedConnection.eof_received = lambda self: left.append(self.scope["path"])
async def stored(*args, **options):
    await put(*args, **options)
    print("stored", flush=True)
    while not any(path.endswith("completions") for path in left):
        await asyncio.sleep(0)
SqliteStore.put = stored
"""


@contextmanager
def gateway(*options: str, first: str = "", complaints: Path | None = None) -> Iterator[Process]:
    with started("--store", "memory", *options, first=first, complaints=complaints) as process:
        yield process


def connected(process: Process, sent: bytes = b"") -> socket.socket:
    """Open a connection and send something."""
    wire = socket.create_connection(("127.0.0.1", int(process.url.rpartition(":")[2])), timeout=20)
    wire.sendall(sent)
    return wire


def received(wire: socket.socket) -> bytes:
    """Return all that comes until the gateway closes the connection."""
    with wire:
        return b"".join(iter(lambda: wire.recv(65_536), b""))


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def test_a_turn_whose_client_left_just_before_its_end_was_sent_is_not_stored(tmp_path: Path) -> None:
    """The event loop has read the end of the connection, and has not said so yet."""
    store = f"sqlite:{tmp_path / 's.db'}"
    body = json.dumps({"messages": HELLO, "stream": True, "max_tokens": 5}).encode()
    with started("--store", store, first=STORED_ONCE_THE_CLIENT_IS_GONE) as process:
        name = httpx2.post(f"{process.url}/sessions").json()["session_id"]
        head = f"POST /sessions/{name}/v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n"
        with connected(process, head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body) as wire:
            assert process.process.stdout is not None
            assert "stored\n" in iter(process.process.stdout.readline, "")
            wire.shutdown(socket.SHUT_WR)
            assert process.stop() == 0
    with started("--store", store) as process:
        shown = httpx2.get(f"{process.url}/sessions/{name}").json()
    assert shown["metadata"]["tree"]["nodes"] == []


@pytest.mark.parametrize(
    ("sent", "answer"), [(b"", b""), (HALF_HEADERS, b"HTTP/1.1 408 "), (HALF_BODY, b"HTTP/1.1 408 ")]
)
def test_a_request_that_does_not_arrive_is_given_up(sent: bytes, answer: bytes) -> None:
    with gateway("--header-timeout", "0.5", "--body-timeout", "0.5") as process:
        got = received(connected(process, sent))
        assert got.startswith(answer)
        assert bool(got) == bool(answer)


def test_a_late_body_is_answered_in_the_form_of_its_api() -> None:
    with gateway("--body-timeout", "0.5") as process:
        head, _, body = received(connected(process, HALF_BODY)).partition(b"\r\n\r\n")
    assert b"\r\nconnection: close" in head
    assert "raise --body-timeout" in json.loads(body)["error"]["message"]


def test_a_later_request_on_a_connection_has_the_same_time() -> None:
    with gateway("--header-timeout", "0.5") as process:
        got = received(connected(process, HEALTH + HALF_HEADERS))
        assert status_of(got) == 200
        assert got.count(b"HTTP/1.1 408 ") == 1


def test_a_body_that_no_route_reads_does_not_keep_a_connection() -> None:
    with gateway("--header-timeout", "0.5") as process:
        got = received(connected(process, HEALTH[:-2] + b"content-length: 9\r\n\r\n{"))
        assert status_of(got) == 200


def test_headers_that_come_one_by_one_are_given_up_too() -> None:
    """The time is that of all headers, so that a client cannot extend it."""
    with gateway("--header-timeout", "1") as process, connected(process, HALF_HEADERS) as wire:
        wire.settimeout(0.05)
        for _ in range(400):
            try:
                wire.sendall(b"x: y\r\n")
                got = wire.recv(100)
                break
            except TimeoutError:
                continue
        assert got.startswith(b"HTTP/1.1 408 ")


def test_further_connections_are_answered_with_503_and_when_to_come_again() -> None:
    """An open connection keeps its place, and `/health` is answered all the same."""
    with gateway("--max-connections", "2") as process, httpx2.Client(base_url=process.url) as http:
        assert http.get("/health").status_code == 200
        with connected(process):
            text = json.dumps({"messages": HELLO}).encode()
            sent = HALF_HEADERS + b"content-length: %d\r\n\r\n" % len(text) + text
            head, _, said = received(connected(process, sent)).partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503 ")
            assert b"\r\nretry-after: 1\r\nconnection: close" in head
            assert "raise --max-connections" in json.loads(said)["error"]["message"]
            health = received(connected(process, HEALTH))
            assert status_of(health) == 200
            key = {"x-tito-session": "a"}
            body = {"messages": HELLO, "max_tokens": 3}
            assert http.post("/v1/chat/completions", json=body, headers=key).status_code == 200
        declined = 'tito_declined_total{kind="too_many_connections",status="503"} 1.0'
        assert declined in http.get("/metrics").text


def test_it_allows_itself_as_many_open_files_as_it_may(tmp_path: Path) -> None:
    """Without that, 64 open files would be too few to begin with."""
    first = FEW_FILES.format(hard=450)
    with gateway(first=first, complaints=tmp_path / "log") as process:
        assert process.process.stdout is not None
        lines = [process.process.stdout.readline() for _ in range(5)]
        assert lines[-1] == "  clients    at most 114 connections at once; 450 open files allowed\n"


def test_half_sent_requests_beyond_the_open_files_do_not_stop_it(tmp_path: Path) -> None:
    """They wait in vain; when their time is over, the next client is answered."""
    first = FEW_FILES.format(hard=450)
    options = ("--header-timeout", "2")
    with gateway(*options, first=first, complaints=tmp_path / "log") as process, ExitStack() as held:
        for _ in range(500):
            held.enter_context(connected(process)).sendall(HALF_HEADERS)
        with httpx2.Client(base_url=process.url, transport=httpx2.HTTPTransport(retries=9)) as http:
            for _ in range(100):
                try:
                    assert http.get("/health", timeout=60).status_code == 200
                    break
                except httpx2.TransportError:  # as long as all places are taken
                    continue
        assert process.stop() == 0
        assert len(process.warnings()) < 10  # accepting may fail for a moment before connections are closed


def test_connections_that_cannot_be_accepted_are_logged_once_a_second(tmp_path: Path) -> None:
    """The event loop would log each of 2,048 tries."""
    first = """
from tito_io.serve import bounds
bounds.OTHER_FILES = -10_000  # believe that more files may be opened than may be
""" + FEW_FILES.format(hard=64)
    with gateway(first=first, complaints=tmp_path / "log") as process, ExitStack() as held:
        for _ in range(100):
            held.enter_context(connected(process))
        while not process.warnings():
            assert process.process.poll() is None
        lines = process.warnings()
    assert len(lines) < 50
    assert all("connections cannot be accepted: [Errno 24]" in line for line in lines)


@pytest.mark.parametrize(
    ("files", "served", "accepted"),
    [(None, 8192, 16384), (1 << 20, 8192, 16384), (1024, 616, 704), (328, 7, 8)],
)
def test_connections_are_as_many_as_open_files_allow(files: int | None, served: int, accepted: int) -> None:
    """Each turn that is sampled has a connection to the engine."""
    found = ConnectionBounds.of(LIMITS, files)
    assert (found.files, found.served, found.accepted) == (files, served, accepted)


def test_too_few_open_files_are_said_at_the_start() -> None:
    with pytest.raises(InputError, match=r"may open 327 files, and --max-calls 256 and 64 others"):
        ConnectionBounds.of(LIMITS, LIMITS.calls + OTHER_FILES + 7)
    fewer = attrs.evolve(LIMITS, connections=1)
    assert ConnectionBounds.of(fewer, LIMITS.calls + OTHER_FILES + 1).served == 1
