"""A page of another site does not reach a gateway on this machine, whatever name it resolves to it."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.io.serve.gateway import HELLO, Scripted, scripted_gateway
from tests.io.serve.gateway_process import started
from tito_core import InputError
from tito_io.serve.app import app
from tito_io.serve.origins import OriginCheck, TrustedNames

pytestmark = pytest.mark.anyio
HERE = TrustedNames.of("127.0.0.1")
EVIL = "evil.example"
EVERYWHERE = "0.0.0.0"  # noqa: S104  # nothing listens there


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1:8010",
        "127.8.9.1",
        "localhost",
        "LOCALHOST:8010",
        "localhost.:8010",
        "tito.localhost:8010",
        "[::1]:8010",
        "10.1.2.3:8010",
        "[fe80::1]",
        socket.gethostname(),
        "",
    ],
)
def test_addresses_and_the_machine_s_own_names_are_known(host: str) -> None:
    HERE.check(host, None)
    if host:
        HERE.check(host, f"http://{host}")


@pytest.mark.parametrize(
    "host",
    [
        EVIL,
        f"{EVIL}:8010",
        f"localhost.{EVIL}",
        "notlocalhost",
        "127.0.0.1.nip.example",
        f"127.0.0.1@{EVIL}",
        "[::1",
        "\x1b[31m",
        "*",
    ],
)
def test_another_name_is_refused_and_named_without_control_characters(host: str) -> None:
    with pytest.raises(Exception, match="which is not a name of this gateway") as caught:
        HERE.check(host, None)
    assert getattr(caught.value, "status", 0) == 421
    assert str(caught.value).isprintable()
    assert "--trusted-host" in str(caught.value)


@pytest.mark.parametrize(
    "origin",
    [
        f"http://{EVIL}",
        f"https://localhost.{EVIL}:8010",
        "null",
        "",
        "http://10.9.9.9",
        "file://",
        "http://[::1",
    ],
)
def test_a_page_of_another_site_is_refused(origin: str) -> None:
    with pytest.raises(Exception, match="a page of another site") as caught:
        HERE.check("10.1.2.3:8010", origin)
    assert getattr(caught.value, "status", 0) == 403


@pytest.mark.parametrize("origin", ["http://localhost:3000", "http://127.0.0.1", "http://10.1.2.3:8010"])
def test_pages_of_this_machine_and_of_the_gateway_are_answered(origin: str) -> None:
    HERE.check("10.1.2.3:8010", origin)


def test_names_can_be_added_and_the_check_turned_off() -> None:
    TrustedNames.of(EVERYWHERE, ["Tito.Example."]).check("tito.example:443", "https://tito.example")
    TrustedNames.of(EVERYWHERE, ["tito.example"]).check("10.1.2.3", "https://tito.example")
    TrustedNames.of("gateway").check("gateway:8010", None)
    TrustedNames.of(EVERYWHERE, ["*"]).check(EVIL, "null")
    with pytest.raises(Exception, match="not a name"):
        TrustedNames.of(EVERYWHERE, ["tito.example"]).check(f"tito.example.{EVIL}", None)


@pytest.mark.parametrize("name", ["http://tito.example", "tito.example:8010", "", "a/b", "[::1"])
def test_a_trusted_name_is_a_host_name_alone(name: str) -> None:
    with pytest.raises(InputError, match="give a host name alone"):
        TrustedNames.of("127.0.0.1", [name])


async def test_what_is_refused_opens_nothing_and_is_counted() -> None:
    gateway = scripted_gateway(Scripted())
    transport = httpx2.ASGITransport(OriginCheck(app(gateway), gateway, HERE))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        headers = {"authorization": "Bearer dummy"}
        asked: list[tuple[dict[str, str], int]] = [
            ({"host": EVIL}, 421),
            ({"origin": f"http://{EVIL}"}, 403),
            ({}, 200),
        ]
        for more, status in asked:
            body = {"messages": HELLO}
            answer = await http.post("/v1/chat/completions", json=body, headers={**headers, **more})
            assert answer.status_code == status
            if status != 200:
                refused = answer.json()["error"]
                assert refused.pop("type") == refused.pop("code") == "untrusted_host"
                assert list(refused) == ["message"]
                assert EVIL in refused["message"]
                assert answer.headers["content-type"] == "application/json"
            assert answer.headers.get("x-should-retry") == (None if status == 200 else "false")
    assert await gateway.sessions.store.count() == 1
    counted = gateway.metrics.text().decode()
    assert re.findall(r'tito_declined_total\{kind="untrusted_host",status="(\d+)"\} 1.0', counted) == [
        "421",
        "403",
    ]


async def test_a_websocket_of_another_site_is_closed_and_a_lifespan_passes() -> None:
    reached: list[str] = []
    sent: list[Any] = []

    async def application(scope: Any, *_: object) -> None:
        reached.append(scope["type"])

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("not called")

    check = OriginCheck(application, scripted_gateway(Scripted()), HERE)
    await check({"type": "lifespan"}, receive, send)
    for origin in (b"http://evil.example", b"http://localhost"):
        headers = [(b"host", b"127.0.0.1"), (b"origin", origin)]
        await check({"type": "websocket", "headers": headers}, receive, send)
    assert reached == ["lifespan", "websocket"]
    assert sent == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.whole
def test_the_command_checks_names(tmp_path: Path) -> None:
    log = tmp_path / "log"
    options = ("--store", "memory", "--trusted-host", "tito.example", "--access-log")
    with started(*options, complaints=log) as process, httpx2.Client(base_url=process.url) as http:
        found = [
            http.post("/sessions", headers={"host": host}).status_code for host in ("tito.example", EVIL)
        ]
        assert found == [200, 421]
        assert http.get("/health", headers={"origin": f"http://{EVIL}"}).status_code == 403
        assert http.get("/health").status_code == 200
        process.stop()
        assert [line.split(" tito.access: ")[1].split()[2] for line in process.warnings()] == [
            "200",
            "421",
            "403",
            "200",
        ]
