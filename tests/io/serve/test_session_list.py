"""The list of sessions: a key sees its own alone, without keys only this machine sees any."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from tests.io.serve.gateway import HELLO, Scripted, chat, opened, scripted_gateway, user
from tests.io.serve.test_view import ParsedPage
from tito_io.serve.app import app
from tito_io.serve.gateway import Gateway, GatewayOptions
from tito_io.serve.origins import OriginCheck, TrustedNames
from tito_io.serve.session import SessionHead
from tito_io.serve.session_list import LISTED
from tito_io.serve.stores import MemoryStore

pytestmark = pytest.mark.anyio
KEYS = GatewayOptions(keys=("first-key", "second:key"))
HTML = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
"""What Chromium and Firefox send."""
EVERYWHERE = "0.0.0.0"  # noqa: S104  # nothing listens there


def basic(key: str, user: str = "") -> dict[str, str]:
    return {"authorization": "Basic " + b64encode(f"{user}:{key}".encode()).decode()}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@asynccontextmanager
async def browser(
    gateway: Gateway,
    host: str = "127.0.0.1",
    trusted: tuple[str, ...] = (),
    url: str = "http://localhost:8010",
) -> AsyncIterator[httpx2.AsyncClient]:
    """Open a client that asks for pages, of a gateway that listens on `host` and is called by `url`."""
    checked = OriginCheck(app(gateway), gateway, TrustedNames.of(host, trusted))
    transport = httpx2.ASGITransport(checked)
    async with httpx2.AsyncClient(transport=transport, base_url=url, headers=HTML) as http:
        yield http


def listed(answer: httpx2.Response) -> list[str]:
    """Return the ids on a page, which must be one."""
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/html")
    return re.findall(r'href="sessions/(\w+)/view"', answer.text)


async def test_a_key_sees_its_own_sessions_alone() -> None:
    gateway = scripted_gateway(Scripted(), choices=KEYS)
    async with browser(gateway) as http:
        mine, theirs = [
            (await http.post("/sessions", headers=bearer(key))).json()["session_id"] for key in KEYS.keys
        ]
        await gateway.sessions.open(SessionHead(created=0.0))  # of a time when there were no keys
        for headers in (basic("first-key"), basic("first-key", "somebody"), bearer("first-key")):
            assert listed(await http.get("/", headers=headers)) == [mine]
        assert listed(await http.get("/", headers=basic("second:key"))) == [theirs]
        page = await http.get(f"/sessions/{mine}/view", headers=basic("first-key"))
        assert page.headers["content-type"].startswith("text/html")
        assert (await http.get(f"/sessions/{mine}/view", headers=basic("second:key"))).status_code == 404


@pytest.mark.parametrize(
    "headers",
    [
        {},
        basic("wrong"),
        basic(""),
        bearer("wrong"),
        {"authorization": "Basic %"},
        {"authorization": "Basic"},
    ],
)
async def test_a_browser_is_asked_for_a_key_and_sees_nothing_without(headers: Mapping[str, str]) -> None:
    gateway = scripted_gateway(Scripted(), choices=KEYS)
    async with browser(gateway) as http:
        name = (await http.post("/sessions", headers=bearer("first-key"))).json()["session_id"]
        for path in ("/", f"/sessions/{name}/view"):
            answer = await http.get(path, headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"].startswith("Basic ")
            assert name not in answer.text
        plain = await http.get(f"/sessions/{name}/view", headers={**headers, "accept": "*/*"})
    assert (plain.status_code, "www-authenticate" in plain.headers) == (401, False)


async def test_a_session_s_own_id_as_a_key_lists_nothing() -> None:
    gateway = scripted_gateway(Scripted(), choices=KEYS)
    async with browser(gateway) as http:
        name = (await http.post("/sessions", headers=bearer("first-key"))).json()["session_id"]
        assert (await http.get("/", headers=basic(name))).status_code == 401


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_a_password_that_browsers_send_by_themselves_opens_pages_alone(method: str) -> None:
    """Another site's form sends it, too."""
    gateway = scripted_gateway(Scripted(), choices=KEYS)
    async with browser(gateway) as http:
        name = (await http.post("/sessions", headers=bearer("first-key"))).json()["session_id"]
        paths = {"POST": ["/sessions", f"/sessions/{name}/v1/chat/completions", f"/sessions/{name}/samples"]}
        for path in paths.get(method, [f"/sessions/{name}"]):
            answer = await http.request(method, path, headers=basic("first-key"))
            assert answer.status_code == 401
            assert "www-authenticate" not in answer.headers


LOCAL = "http://localhost:8010"


@pytest.mark.parametrize(
    ("host", "trusted", "url", "headers", "sees"),
    [
        ("127.0.0.1", (), LOCAL, {}, True),
        ("::1", (), "http://[::1]:8010", {}, True),
        ("localhost", (), "http://127.0.0.1:8010", {}, True),
        (EVERYWHERE, (), LOCAL, {}, False),
        ("::", (), LOCAL, {}, False),
        ("10.1.2.3", (), "http://10.1.2.3:8010", {}, False),
        ("127.0.0.1", (), "http://10.1.2.3:8010", {}, False),
        ("127.0.0.1", ("tito.example.org",), "http://tito.example.org", {}, False),
        ("127.0.0.1", ("*",), "http://evil.example", {}, False),
        ("127.0.0.1", (), LOCAL, {"x-forwarded-for": "192.0.2.1"}, False),
        ("127.0.0.1", (), LOCAL, {"via": "1.1 proxy"}, False),
    ],
)
async def test_without_keys_only_this_machine_sees_sessions(
    host: str, trusted: tuple[str, ...], url: str, headers: dict[str, str], *, sees: bool
) -> None:
    gateway = scripted_gateway(Scripted())
    name = await gateway.sessions.open(SessionHead(created=0.0))
    await gateway.sessions.open(SessionHead(created=0.0, owner="a key of another gateway's"))
    async with browser(gateway, host, trusted, url) as http:
        answer = await http.get("/", headers=headers)
    assert listed(answer) == ([name] if sees else [])
    assert ("--keys" in answer.text) is not sees


async def test_another_name_is_refused_as_on_every_route() -> None:
    async with browser(scripted_gateway(Scripted()), url="http://evil.example") as http:
        assert (await http.get("/")).status_code == 421


async def test_an_application_behind_another_server_lists_nothing_without_keys() -> None:
    """What it listens on is not known there."""
    gateway = scripted_gateway(Scripted())
    await gateway.sessions.open(SessionHead(created=0.0))
    transport = httpx2.ASGITransport(app(gateway))
    async with httpx2.AsyncClient(transport=transport, base_url=LOCAL, headers=HTML) as http:
        assert listed(await http.get("/")) == []


@pytest.mark.parametrize("accept", ["*/*", "application/json", ""])
@pytest.mark.parametrize("choices", [None, KEYS])
async def test_who_does_not_ask_for_a_page_gets_the_health(
    accept: str, choices: GatewayOptions | None
) -> None:
    async with browser(scripted_gateway(Scripted(), choices=choices)) as http:
        answer = await http.get("/", headers={"accept": accept})
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")


async def test_a_line_says_what_a_session_is() -> None:
    times = [1_000_000_000.0]
    store = MemoryStore(clock=lambda: times[0])
    gateway = scripted_gateway(Scripted(), store, clock=lambda: times[0])
    async with browser(gateway) as http:
        name = await opened(http, evaluation=True)
        times[0] += 90
        for text in ("one", "two"):
            await chat(http, name, [*HELLO, user(text)])
        times[0] += 600
        answer = await http.get("/")
    (line,) = re.findall(r"<tr><td>.*</tr>", answer.text)
    cells = [ParsedPage(cell).text for cell in re.findall(r"<td.*?</td>", line)]
    assert cells == [name[:8], "2", "2001-09-09 01:48:10", "2001-09-09 01:46:40", "", "evaluation"]
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "script" not in answer.headers["content-security-policy"]
    assert {"script", "img", "link", "form"}.isdisjoint(ParsedPage(answer.text).tags)


async def test_the_list_is_bounded_and_says_so() -> None:
    gateway = scripted_gateway(Scripted())
    for _ in range(LISTED + 1):
        await gateway.sessions.open(SessionHead(created=0.0, agent="f" * 32))
    async with browser(gateway) as http:
        answer = await http.get("/")
    assert len(listed(answer)) == LISTED
    assert "Older ones are left out" in answer.text


async def test_a_name_of_a_store_is_text_and_a_head_that_cannot_be_read_is_left_out() -> None:
    store = MemoryStore()
    evil: Any = "<script>x</script>"
    await store.create(evil, SessionHead(created=0.0).encoded())
    await store.create("b" * 32, b"no head")
    async with browser(scripted_gateway(Scripted(), store)) as http:
        text = (await http.get("/")).text
    assert "<script" not in text
    assert "b" * 32 not in text
    assert "1 session," in text


async def test_a_gateway_without_sessions_says_how_to_open_one() -> None:
    async with browser(scripted_gateway(Scripted())) as http:
        assert "There are no sessions yet." in (await http.get("/")).text
    async with browser(scripted_gateway(Scripted(), choices=KEYS)) as http:
        assert (
            "This key has opened no sessions yet." in (await http.get("/", headers=basic("first-key"))).text
        )
