"""What a gateway shows: counts, and a page in which nothing that was said is more than text."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import httpx2
import pytest

from tests.io.serve.gateway import (
    HELLO,
    Scripted,
    chat,
    client,
    embedded_gateway,
    opened,
    scripted_gateway,
    user,
)
from tito_io.embedded import TIDY
from tito_io.serve import view
from tito_io.serve.backend import Backend
from tito_io.serve.fresh_diff import drifted

pytestmark = pytest.mark.anyio
EVIL = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


class Read(HTMLParser):
    """Reads a page as a browser does: its tags, its text, and the classes of its tokens."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.classes: list[str] = []
        self.attributes: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.classes += [value or "" for name, value in attrs if name == "class"]

    def handle_data(self, data: str) -> None:
        self.text += data


async def page(messages: list[Any], turns: int = 2, **options: Any) -> tuple[httpx2.Response, Any]:
    gateway = embedded_gateway(**options)
    async with client(gateway) as http:
        name = await opened(http)
        for _ in range(turns):
            said = (await chat(http, name, messages))["choices"][0]["message"]
            messages = [*messages, said, user()]
        found = await http.get(f"/sessions/{name}/view")
        async with gateway.sessions.using(name) as session:
            return found, (gateway, session)


async def test_what_is_said_is_text_and_nothing_more() -> None:
    found, _ = await page([user(EVIL)])
    read = Read(found.text)
    assert set(read.tags) <= {"html", "meta", "title", "style", "h1", "h2", "p", "span", "pre", "table",
                              "tr", "th", "td", "a", "em"}  # fmt: skip
    assert read.attributes <= {"class", "title", "charset", "lang", "href"}
    assert EVIL in read.text
    policy = found.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script" not in policy
    assert found.headers["x-content-type-options"] == "nosniff"


async def test_every_token_has_the_colour_of_who_wrote_it() -> None:
    found, (_, session) = await page(list(HELLO))
    shown = [one.split()[0] for one in Read(found.text).classes if "drift" not in one.split()[:1]]
    legend = len(view.COLOURS)
    assert session.newest is not None
    assert shown[legend:] == [origin.name for origin in session.newest.step.ledger]


async def test_drift_is_marked_where_a_fresh_rendering_differs() -> None:
    found, (gateway, _) = await page(list(HELLO), turns=8)
    marked = [one for one in Read(found.text).classes if one.endswith(" drift")]
    assert marked
    assert f"tito_drift_ids_total {float(len(marked))}".encode() in gateway.metrics.text()
    tidy, _ = await page(list(HELLO), turns=1, fault_rates=TIDY)
    assert not [one for one in Read(tidy.text).classes if one.endswith(" drift")]


def test_drift_is_found_position_by_position() -> None:
    assert list(drifted([1, 5, 6, 2, 9], [1, 56, 2, 9], [2])) == [0, 1, 1, 0, 0]
    assert list(drifted([1, 2], [1, 2], [2])) == [0, 0]
    assert list(drifted([1, 2, 3, 2], [1, 2], [2])) == [0, 0, 1, 1]


async def test_a_long_path_says_how_much_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "MOST", 10)
    found, (_, session) = await page(list(HELLO))
    assert session.newest is not None
    assert f"{len(session.newest.step.ids) - 10:,} ids before these" in found.text


async def test_a_session_of_no_turns_and_an_engine_that_renders_nothing_have_a_page() -> None:
    engine = Scripted(renders=False)
    gateway = scripted_gateway(Scripted())
    async with client(gateway) as http:
        name = await opened(http)
        assert (await http.get(f"/sessions/{name}/view")).status_code == 200
        await chat(http, name, HELLO)
        gateway.turns.engine = engine
        found = await http.get(f"/sessions/{name}/view")
    assert "drift is not known" in found.text


@pytest.mark.parametrize("leaf", ["zzz", "", "%3Cscript%3E"])
async def test_a_turn_that_is_not_there_has_no_page(leaf: str) -> None:
    async with client(scripted_gateway(Scripted())) as http:
        name = await opened(http)
        answer = await chat(http, name, HELLO)
        assert (await http.get(f"/sessions/{name}/view?leaf={answer['id']}")).status_code == 200
        found = await http.get(f"/sessions/{name}/view?leaf={leaf}")
    assert (found.status_code, found.json()) == (
        404,
        {"error": "leaf: this session has no turn of that name"},
    )


async def test_counts_are_told_and_hold_no_words_of_a_client() -> None:
    gateway = embedded_gateway()
    async with client(gateway) as http:
        name = await opened(http)
        said = (await chat(http, name, HELLO, model="apricot"))["choices"][0]["message"]
        await chat(http, name, [*HELLO, said, user("apricot")])
        await http.post(f"/sessions/{name}/v1/chat/completions", json={"apricot": 1})
        await http.get("/sessions/apricot")
        text = (await http.get("/metrics")).text
    lines = set(text.splitlines())
    assert 'tito_turns_total{dialect="chat",route="MITO"} 1.0' in lines
    assert 'tito_turns_total{dialect="chat",route="TITO"} 1.0' in lines
    assert 'tito_declined_total{kind="SessionNotFoundError",status="404"} 1.0' in lines
    assert "tito_committed_total 2.0" in lines
    assert any(line.startswith("tito_cached_ids_total ") and not line.endswith(" 0.0") for line in lines)
    assert "apricot" not in text
    assert "_created" not in text
    assert 'tito_turn_seconds_bucket{le="+Inf"} 2.0' in lines


async def test_what_samples_or_commands_is_not_passed_on() -> None:
    seen: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(f"{request.method} {request.url.path} {request.headers.get('authorization')}")
        return httpx2.Response(200, json={"ok": True})

    gateway = scripted_gateway(Scripted())
    gateway.backend = Backend.to(
        "http://engine/v1", api_key="its-key", transport=httpx2.MockTransport(answer)
    )
    async with client(gateway) as http:
        name = await opened(http)
        body = {"prompt": "x"}
        passed = await http.post(f"/sessions/{name}/tokenize", json=body, headers={"authorization": "mine"})
        assert passed.json() == {"ok": True}
        for method, path in (
            ("POST", "v1/completions"),
            ("POST", "abort_requests"),
            ("GET", "shutdown"),
            ("GET", "tokenize"),
            ("POST", "../tokenize"),
        ):
            assert (await http.request(method, f"/sessions/{name}/{path}")).status_code in (404, 405)
        assert (await http.post(f"/sessions/{'0' * 32}/tokenize", json=body)).status_code == 404
    assert seen == ["POST /tokenize Bearer its-key"]


async def test_an_engine_that_is_away_is_no_refusal() -> None:
    def away(_: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("no")

    gateway = scripted_gateway(Scripted())
    gateway.backend = Backend.to("http://engine", transport=httpx2.MockTransport(away))
    async with client(gateway) as http:
        name = await opened(http)
        assert (await http.get(f"/sessions/{name}/version")).status_code == 503
