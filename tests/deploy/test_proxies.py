"""The gateway behind nginx and Caddy with TLS, as the page configures them: asked for with TITO_DEPLOY."""

from __future__ import annotations

import gzip
import json
import re
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.io.serve.gateway_process import started
from tito_io.cli.options import TIMEOUT
from tito_io.serve.refusals import GatewayLimits
from tito_io.serve.server import KEEP_ALIVE_SECONDS

from .conftest import KEY, Deployed, asked_for
from .page import NAME, PAGE, shown
from .proxies import PROXIES, caddy, free_port, nginx

HELLO = [{"role": "user", "content": "Where is the bridge?"}]
CHAT: dict[str, Any] = {"messages": HELLO, "max_tokens": 30}
STREAMED = {**CHAT, "stream": True}
LONGEST = GatewayLimits().body_bytes
SECONDS = 10.0


def until(what: Callable[[], object]) -> None:
    """Wait until something holds."""
    late = time.monotonic() + SECONDS
    while not what():
        assert time.monotonic() < late, "it does not come to hold"
        time.sleep(0.02)


def padded(length: int) -> bytes:
    """Return a chat's body of so many bytes."""
    short = json.dumps({**CHAT, "metadata": {"note": ""}}).encode()
    return short.replace(b'"note": ""', b'"note": "%b"' % (b"a" * (length - len(short))))


def test_a_turn_is_answered(deployed: Deployed) -> None:
    answer = deployed.http.post(deployed.session(), json=CHAT)
    assert (answer.status_code, answer.json()["object"]) == (200, "chat.completion")
    assert answer.headers["x-tito-session"] in str(answer.request.url)


def test_keys_are_asked_for(deployed: Deployed) -> None:
    with deployed.proxy.client() as http:
        chat = deployed.session()
        name = chat.split("/")[2]
        assert http.post("/sessions").status_code == 401
        assert http.post(chat, json=CHAT).status_code == 401
        assert http.post(chat, json=CHAT, headers={"authorization": f"Bearer {name}"}).status_code == 200
        assert http.post(chat, json=CHAT, headers={"x-api-key": "second-key"}).status_code == 404
        by_header = {"authorization": f"Bearer {KEY}", "x-tito-session": name}
        answer = http.post("/v1/chat/completions", json=CHAT, headers=by_header)
        assert answer.headers["x-tito-session"] == name


def test_a_stream_is_passed_on_while_the_engine_samples(deployed: Deployed) -> None:
    deployed.engine.goes_on.clear()
    with deployed.http.stream("POST", deployed.session(), json=STREAMED) as answer:
        parts = answer.iter_text()
        assert next(parts).startswith("data: ")  # the engine is still held: with a buffer nothing would come
        assert not deployed.engine.goes_on.is_set()
        deployed.engine.goes_on.set()
        assert "".join(parts).endswith("data: [DONE]\n\n")


def test_pings_are_passed_on_before_the_engine_begins(deployed: Deployed) -> None:
    deployed.engine.begins.clear()
    with deployed.http.stream("POST", deployed.session(), json=STREAMED) as answer:
        parts = answer.iter_text()
        assert '"delta":{"role":"assistant"}' in next(parts)
        assert '"delta":{}' in next(parts)
        deployed.engine.begins.set()
        assert "".join(parts).endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_turn(deployed: Deployed, stream: bool) -> None:
    deployed.engine.begins.clear()
    body = json.dumps({**CHAT, "stream": stream})
    head = f"host: {NAME}\r\nauthorization: Bearer {KEY}\r\ncontent-length: {len(body)}\r\n"
    with deployed.proxy.wire() as wire:
        wire.sendall(f"POST {deployed.session()} HTTP/1.1\r\n{head}\r\n{body}".encode())
        until(lambda: deployed.engine.running == 1)
    until(lambda: deployed.engine.left == 1 and deployed.engine.running == 0)


def test_the_longest_body_is_passed_on(deployed: Deployed) -> None:
    answer = deployed.http.post(deployed.session(), content=padded(LONGEST))
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("chunked", [False, True])
def test_a_longer_body_is_answered_by_the_gateway(deployed: Deployed, chunked: bool) -> None:
    body = padded(LONGEST + 1)

    def parts() -> Iterator[bytes]:
        yield from (body[at : at + 65_536] for at in range(0, len(body), 65_536))

    answer = deployed.http.post(deployed.session(), content=parts() if chunked else body)
    assert answer.status_code == 413
    assert "raise --max-body" in answer.json()["error"]["message"]


def test_a_compressed_body_is_passed_on(deployed: Deployed) -> None:
    body = gzip.compress(json.dumps(CHAT).encode())
    answer = deployed.http.post(deployed.session(), content=body, headers={"content-encoding": "gzip"})
    assert answer.status_code == 200, answer.text


def test_an_upgrade_to_a_websocket_gets_426(deployed: Deployed) -> None:
    """Codex goes on with POST after 426 alone."""
    upgrade = {
        "connection": "Upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": "13",
        "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    path = deployed.session().replace("chat/completions", "responses")
    assert deployed.http.get(path, headers=upgrade).status_code == 426


@pytest.mark.parametrize(
    "path",
    ["/metrics", "/metrics/", "//metrics", "/%6Detrics", "/x/../metrics", "/metrics%2F", "/metrics?a=1"],
)
def test_metrics_are_not_published(deployed: Deployed, path: str) -> None:
    assert "tito_turns_total" in httpx2.get(f"{deployed.gateway.url}/metrics").text
    with deployed.proxy.client(follow_redirects=True) as http:
        answer = http.get(f"https://{NAME}:{deployed.proxy.port}{path}")
        assert answer.status_code in (403, 404), answer.text


def test_a_session_has_its_page_and_rows(deployed: Deployed) -> None:
    chat = deployed.session()
    deployed.http.post(chat, json=CHAT).raise_for_status()
    session = chat.removesuffix("/v1/chat/completions")
    page = deployed.http.get(f"{session}/view")
    assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.headers["content-security-policy"].startswith("default-src 'none'")
    rows = deployed.http.post(f"{session}/samples", headers={"accept": "application/json"})
    assert len(rows.json()["samples"]) == 1
    assert deployed.http.delete(session, headers={"x-miles-session-generation": "9"}).status_code == 412
    assert deployed.http.delete(session).status_code == 204


def test_a_redirection_leads_to_the_proxy(deployed: Deployed) -> None:
    assert deployed.http.get("/health/").headers["location"] == f"https://{NAME}:{deployed.proxy.port}/health"


def test_a_page_of_another_site_is_refused(deployed: Deployed) -> None:
    answer = deployed.http.post("/sessions", headers={"origin": "https://evil.example"})
    assert answer.status_code == 403


def test_caddy_passes_a_name_on_that_must_be_trusted(tmp_path: Path) -> None:
    asked_for("caddy")
    with (
        started("--store", "memory") as gateway,
        caddy(gateway.url, tmp_path) as proxy,
        proxy.client() as http,
    ):
        answer = http.post("/sessions")
        assert answer.status_code == 421
        assert f"Host is '{NAME}:{proxy.port}'" in answer.json()["error"]["message"]


def test_a_log_has_no_session_s_id(deployed: Deployed, tmp_path: Path) -> None:
    """A request that fails is logged with its path and headers, unless the configuration prevents it."""
    chat = deployed.session()
    name = chat.split("/")[2]
    headers = {"x-api-key": name, "x-tito-session": name, "idempotency-key": name}
    with deployed.proxy.client(headers=headers) as http:
        assert http.post(chat, json=CHAT).status_code == 200
    unused = f"http://127.0.0.1:{free_port()}"
    with PROXIES[deployed.kind](unused, tmp_path) as proxy, proxy.client(headers=headers) as http:
        assert http.post(f"{chat}?key={name}", json=CHAT).status_code == 502
    assert name not in deployed.proxy.written() + proxy.written()
    assert "connection refused" in proxy.written() or deployed.kind == "nginx"  # whose log has no such lines


def test_the_gateway_keeps_connections_longer_than_proxies() -> None:
    """Measured with Caddy: 3 of 200 requests got 502 at the moment when the gateway closed the connection."""
    assert KEEP_ALIVE_SECONDS > 120  # Caddy's `keepalive` is 2 minutes
    assert f"after {KEEP_ALIVE_SECONDS} seconds; nginx and Caddy do" in PAGE.read_text("utf-8")


def test_nginx_waits_longer_than_the_gateway(tmp_path: Path) -> None:
    """The gateway gives up first, with an answer that says so. What the page sets is what nginx waits."""
    asked_for("nginx")
    seconds = re.findall(r"proxy_read_timeout (\d+)s;", shown(PAGE.read_text(), "server {"))
    assert float(*seconds) > TIMEOUT
    short = {f"proxy_read_timeout {seconds[0]}s": "proxy_read_timeout 1s"}
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with nginx(url, tmp_path, short) as proxy, proxy.client() as http:
            assert http.get("/health").status_code == 504
