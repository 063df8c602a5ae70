"""Who has no key gets nothing, and nobody sees another's session."""

from __future__ import annotations

import hmac
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import pytest
from starlette.requests import Request

from tests.io.serve.gateway import (
    CHAT,
    HELLO,
    Scripted,
    Watched,
    chat,
    client,
    opened,
    scripted_gateway,
    talking,
)
from tito_io.serve import auth as names
from tito_io.serve.auth import HEADER, ApiKeys, RequestedSession, derived_id, new_id
from tito_io.serve.gateway import GatewayOptions
from tito_io.serve.refusals import ENDED
from tito_io.serve.stores import MemoryStore

pytestmark = pytest.mark.anyio
KEYS = GatewayOptions(keys=("first-key", "second-key"))
ASKED = {"messages": HELLO}


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def session(http: httpx2.AsyncClient, key: str = "first-key") -> str:
    return str((await http.post("/sessions", headers=bearer(key))).json()["session_id"])


@asynccontextmanager
async def keyed(**options: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """Open a client of a gateway with two keys."""
    async with client(scripted_gateway(Scripted(), choices=KEYS), **options) as http:
        yield http


OF_SESSION = [
    ("GET", "/sessions/{}"),
    ("DELETE", "/sessions/{}"),
    ("GET", "/sessions/{}/view"),
    ("POST", "/sessions/{}/samples"),
    ("GET", "/sessions/{}/v1/models"),
    ("GET", "/sessions/{}/health"),
    ("POST", "/sessions/{}/v1/chat/completions"),
    ("POST", "/sessions/{}/v1/messages"),
    ("POST", "/sessions/{}/v1/messages/count_tokens"),
    ("POST", "/sessions/{}/v1/responses"),
]
"""Routes that are about one session."""


@pytest.mark.parametrize("headers", [{}, bearer("wrong"), bearer(""), {"x-api-key": "first-ke"}])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/sessions"),
        *OF_SESSION,
        ("POST", CHAT),
        ("POST", "/v1/responses"),
        ("POST", "/v1/messages/count_tokens"),
        ("GET", "/v1/models"),
    ],
)
async def test_without_a_key_there_is_no_answer(method: str, path: str, headers: dict[str, str]) -> None:
    engine = Scripted()
    async with client(scripted_gateway(engine, choices=KEYS)) as http:
        name = await session(http)
        answer = await http.request(method, path.format(name), headers=headers, json=ASKED)
        assert answer.status_code == 401, answer.text
        still = await http.get(f"/sessions/{name}", headers=bearer("first-key"))
    assert still.json()["records"] == []
    assert engine.asked == []


@pytest.mark.parametrize("headers", [bearer("second-key"), {"x-api-key": "first-key"}])
async def test_any_of_the_keys_opens_in_either_api_s_manner(headers: dict[str, str]) -> None:
    async with keyed(headers=headers) as http:
        await chat(http, await opened(http), HELLO)


async def test_a_session_s_id_is_a_key_to_that_session_alone() -> None:
    async with keyed() as http:
        mine, other = await session(http), await session(http)
        path = "/sessions/{}/v1/chat/completions"
        headers = bearer(mine)
        assert (await http.post(path.format(mine), json=ASKED, headers=headers)).status_code == 200
        assert (await http.post(CHAT, json=ASKED, headers=headers)).status_code == 200
        assert (await http.post(path.format(other), json=ASKED, headers=headers)).status_code == 401
        assert (await http.post("/sessions", headers=headers)).status_code == 401
        both = {**headers, HEADER: other}
        assert (await http.post(CHAT, json=ASKED, headers=both)).status_code == 401
        found = [
            len((await http.get(f"/sessions/{name}", headers=bearer("first-key"))).json()["records"])
            for name in (mine, other)
        ]
    assert found == [1, 0]


async def test_with_keys_a_session_is_named_and_never_guessed() -> None:
    async with keyed(headers=bearer("first-key")) as http:
        answer = await http.post(CHAT, json=ASKED)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "no_session")
        named = await http.post(CHAT, json=ASKED, headers={HEADER: "rollout 7"})
        assert named.status_code == 200
        again = await http.get(f"/sessions/{named.headers[HEADER]}")
        assert len(again.json()["records"]) == 1


async def test_without_any_key_at_all_nothing_names_a_session() -> None:
    """An empty header is what a shell leaves of a variable that is not set."""
    async with talking() as talk:
        for headers in ({}, {HEADER: ""}):
            answer = await talk.http.post(CHAT, json=ASKED, headers=headers)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "no_session")
            assert "/sessions/ID/v1" in answer.json()["error"]["message"]
        answer = await talk.http.post(CHAT, json=ASKED, headers={HEADER: "", **bearer(talk.name)})
        assert (answer.status_code, answer.headers[HEADER]) == (200, talk.name)


async def test_a_session_that_nobody_opened_is_not_opened_by_its_id() -> None:
    name = new_id()
    async with client(scripted_gateway(Scripted())) as http:
        for headers in (bearer(name), {HEADER: name}):
            assert (await http.post(CHAT, json=ASKED, headers=headers)).status_code == 404
        answer = await http.post(f"/sessions/{name}{CHAT}", json=ASKED)
    message = f"session not found: session_id={name}{ENDED}"
    error = {"message": message, "type": "not_found_error", "param": None, "code": "session_not_found"}
    assert answer.json() == {"error": error}


@pytest.mark.parametrize("key", ["d74bf6ad858b014d366b2725311d3182", "another"])
async def test_an_unknown_key_without_a_session_is_an_unknown_key(
    key: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Many keys of other services look like ids of sessions; no log has a part of one."""
    caplog.set_level("INFO")
    async with keyed() as http:
        answer = await http.post(CHAT, json=ASKED, headers=bearer(key))
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unknown_key")
    assert key not in answer.text
    assert key[:8] not in caplog.text


@pytest.mark.parametrize("path", ["/sessions", CHAT, f"/sessions/{'0' * 32}{CHAT}"])
async def test_a_request_without_a_key_learns_that_none_was_sent(path: str) -> None:
    async with keyed() as http:
        for headers in ({}, {"authorization": "Bearer "}):
            answer = await http.post(path, json=ASKED, headers=headers)
            assert answer.status_code == 401
            assert "no API key was sent; send one of this gateway's keys" in answer.text
            assert names.WHERE_KEYS_STAND in answer.text
        known = await http.post(path, json=ASKED, headers=bearer("no-such-key"))
    assert (known.status_code, "does not know the API key" in known.text) == (401, True)


async def test_a_key_of_the_gateway_may_look_like_the_id_of_a_session() -> None:
    key = new_id()
    async with client(scripted_gateway(Scripted(), choices=GatewayOptions(keys=(key,)))) as http:
        answer = await http.post(CHAT, json=ASKED, headers=bearer(key))
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "no_session")
        named = await http.post(CHAT, json=ASKED, headers={**bearer(key), HEADER: "a"})
        assert named.status_code == 200


WAYS = pytest.mark.parametrize(
    "headers",
    [{HEADER: "rollout 7"}, {HEADER: "rollout 7", **bearer("any")}, bearer("a key"), {"x-api-key": "a key"}],
)


@WAYS
async def test_a_session_that_headers_name_is_looked_at_by_them(headers: dict[str, str]) -> None:
    async with client(scripted_gateway(Scripted()), headers=headers) as http:
        said = await http.post(CHAT, json=ASKED)
        name = said.headers[HEADER]
        found = (await http.get("/session")).json()
        assert (found["session_id"], len(found["records"])) == (name, 1)
        for path in ("", "/samples", "/view"):
            shown, by_id = [await http.get(f"{at}{path}") for at in ("/session", f"/sessions/{name}")]
            assert (shown.status_code, shown.text) == (200, by_id.text)
        rows = [await http.post(f"{at}/samples", json={}) for at in ("/session", f"/sessions/{name}")]
        assert rows[0].content == rows[1].content
        assert (await http.delete("/session")).status_code == 204
        assert (await http.get(f"/sessions/{name}")).status_code == 404


@WAYS
async def test_looking_opens_nothing(headers: dict[str, str]) -> None:
    gateway = scripted_gateway(Scripted())
    async with client(gateway, headers=headers) as http:
        for path in ("", "/samples", "/view"):
            answer = await http.get(f"/session{path}")
            assert answer.status_code == 404
            assert answer.json()["error"].startswith("session not found: session_id=")
        assert (await http.delete("/session")).status_code == 404
    assert await gateway.sessions.store.count() == 0


async def test_nobody_looks_by_another_key_or_by_a_key_in_an_address() -> None:
    headers = {**bearer("first-key"), HEADER: "rollout 7"}
    for choices in (GatewayOptions(), KEYS):
        async with client(scripted_gateway(Scripted(), choices=choices)) as http:
            assert (await http.post(CHAT, json=ASKED, headers=headers)).status_code == 200
            other = await http.get("/session", headers={**headers, **bearer("second-key")})
            assert other.status_code == 404
            for name in ("rollout 7", "first-key"):
                told = await http.get(f"/sessions/{name}/samples", headers=headers)
                assert told.status_code == 404
                assert told.json()["error"].endswith(f"session_id={name}{names.NO_ID}")
    async with keyed() as http:
        assert (await http.get("/session")).status_code == 401
        unnamed = await http.get("/session", headers=bearer("first-key"))
    assert (unnamed.status_code, "no session is named" in unnamed.text) == (400, True)


@pytest.mark.parametrize(("options", "status"), [(GatewayOptions(), 400), (KEYS, 401)])
async def test_a_key_in_the_query_is_not_read_and_the_error_names_the_headers(
    options: GatewayOptions, status: int
) -> None:
    """Proxies log URLs, so a key is read from headers alone."""
    async with client(scripted_gateway(Scripted(), choices=options)) as http:
        answer = await http.post("/v1beta/models/any:generateContent?key=first-key", json={"contents": []})
    assert (answer.status_code, names.WHERE_KEYS_STAND in answer.json()["error"]["message"]) == (status, True)


async def test_a_session_s_id_as_the_key_looks_at_it() -> None:
    async with keyed() as http:
        mine = await session(http)
        assert (await http.get("/session", headers=bearer(mine))).json()["session_id"] == mine


async def test_every_key_is_compared_and_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []

    def watched(one: Any, other: Any) -> bool:
        compared.append(other)
        return hmac.compare_digest(one, other)

    class Module:
        compare_digest = staticmethod(watched)

    monkeypatch.setattr(names, "hmac", Module)
    async with keyed(headers=bearer("first-key")) as http:
        await http.get("/v1/models")
    assert compared == [b"first-key", b"second-key"]


def test_names_are_those_that_stores_already_have() -> None:
    """Computed otherwise, they would be other sessions once a gateway is brought up to date."""
    secret, headers = b"s", {"authorization": "Bearer one", "user-agent": "claude-cli/2"}
    agent = {"x-claude-code-session-id": "tree"}

    def digest(*words: str) -> str:
        return hmac.digest(secret, "\0".join(("tito", *words)).encode(), "sha256").hex()[:32]

    def named(keys: ApiKeys, more: dict[str, str]) -> RequestedSession:
        raw = [(name.encode(), value.encode()) for name, value in {**headers, **more}.items()]
        request = Request({"type": "http", "headers": raw, "path_params": {}})
        return keys.session(request, secret)

    assert named(ApiKeys(), {}) == RequestedSession(name=digest("key", "one"), opens=True)
    assert named(ApiKeys(), agent) == RequestedSession(
        name=digest("key", "one"),
        opens=True,
        agent=digest("agent", "tree"),
        own_name=digest("key", "one", "tree"),
    )
    assert named(ApiKeys(("one",)), {HEADER: "x"}) == RequestedSession(
        name=digest("header", "one", "x"), opens=True, owner=digest("owner", "one")
    )


async def test_names_of_one_key_are_not_another_s() -> None:
    assert derived_id(b"s", "header", "a", "bc") != derived_id(b"s", "header", "ab", "c")
    assert derived_id(b"s", "key", "a") != derived_id(b"s", "header", "a")
    assert derived_id(b"s", "key", "a") != derived_id(b"other", "key", "a")
    async with keyed() as http:
        found = [
            (await http.post(CHAT, json=ASKED, headers={**bearer(key), HEADER: "same"})).headers[HEADER]
            for key in ("first-key", "second-key")
        ]
    assert found[0] != found[1]


@pytest.mark.parametrize(("method", "path"), OF_SESSION)
async def test_with_keys_a_session_is_there_only_for_the_key_that_opened_it(method: str, path: str) -> None:
    """Another valid key is told just what it is told of a session that does not exist."""
    engine = Scripted()
    async with client(scripted_gateway(engine, choices=KEYS)) as http:
        mine, missing = await session(http), new_id()
        found = []
        for name in (mine, missing):
            for headers in (bearer("second-key"), {"x-api-key": "second-key"}):
                answer = await http.request(method, path.format(name), headers=headers, json=ASKED)
                found.append((answer.status_code, answer.text.replace(name, "ID")))
        assert {status for status, _ in found} == {404}
        assert found[:2] == found[2:]
        by_header = {**bearer("second-key"), HEADER: mine}
        assert (await http.get("/session", headers=by_header)).status_code == 404
        assert (await http.post(CHAT, json=ASKED, headers=by_header)).status_code == 404
        for headers in (bearer("first-key"), bearer(mine), {**bearer(mine), HEADER: mine}):
            assert (await http.get("/session", headers={HEADER: mine, **headers})).status_code == 200
    assert engine.asked == []


async def test_a_session_that_was_opened_without_keys_is_for_every_key() -> None:
    store = MemoryStore()
    async with talking(store=store) as talk:
        pass
    async with client(scripted_gateway(Scripted(), store, KEYS)) as http:
        for key in ("first-key", "second-key"):
            assert (await http.get(f"/sessions/{talk.name}", headers=bearer(key))).status_code == 200


CLAUDE = "x-claude-code-session-id"
DUMMY = bearer("dummy")
AGENTS = pytest.mark.parametrize(
    "agents",
    [
        [{CLAUDE: "a"}, {CLAUDE: "b"}],
        [{"session-id": name, "user-agent": "codex_exec/0.169.0 (Debian)"} for name in "ab"],
        [{"x-session-id": name, "user-agent": "opencode/1.18.33 ai-sdk"} for name in "ab"],
        [{}, {CLAUDE: "a"}],
    ],
)


async def turn_of(http: httpx2.AsyncClient, headers: dict[str, str]) -> str:
    """Take a turn; return its session."""
    answer = await http.post(CHAT, json=ASKED, headers={**DUMMY, **headers})
    assert answer.status_code == 200, answer.text
    return str(answer.headers[HEADER])


@AGENTS
async def test_agents_with_the_same_key_have_sessions_of_their_own(
    agents: list[dict[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    one, other = agents
    async with client(scripted_gateway(Scripted())) as http:
        names = [await turn_of(http, headers) for headers in (one, other, one, other, other)]
        assert names[0] == names[2] != names[1] == names[3] == names[4]
        by_key = (await http.get("/session", headers=DUMMY)).json()
        assert by_key["session_id"] == names[0]
        assert len(by_key["metadata"]["tree"]["nodes"]) == 2
        assert (await http.get("/session", headers={**DUMMY, **other})).json()["session_id"] == names[1]
        # The first one's end is not the other's: neither takes the other's place.
        assert (await http.delete("/session", headers={**DUMMY, **one})).status_code == 204
        assert await turn_of(http, other) == names[1]
        assert await turn_of(http, one) == names[0]
    (line,) = [one.getMessage() for one in caplog.records if one.levelname == "WARNING"]
    assert line.startswith(f"session {names[1][:8]}: opened for another agent with the API key of session ")
    assert "--share-keys" in line


@AGENTS
async def test_agents_with_the_same_key_share_a_session_where_that_is_asked_for(
    agents: list[dict[str, str]],
) -> None:
    async with client(scripted_gateway(Scripted(), choices=GatewayOptions(share_keys=True))) as http:
        assert len({await turn_of(http, headers) for headers in agents}) == 1


async def test_headers_of_other_programs_name_no_session() -> None:
    """A proxy may number requests by a header of the same name."""
    async with client(scripted_gateway(Scripted())) as http:
        headers = [{"session-id": "1"}, {"session-id": "2"}, {"x-session-id": "3"}, {}]
        assert len({await turn_of(http, one) for one in headers}) == 1


async def test_agents_that_open_at_once_get_one_session_each() -> None:
    async def slow(_: str) -> None:
        await anyio.sleep(0.01)

    found: dict[str, set[str]] = {"a": set(), "b": set()}

    async def turns(agent: str) -> None:
        found[agent].add(await turn_of(http, {CLAUDE: agent}))

    gateway = scripted_gateway(Scripted(), Watched(after={"head": slow}))
    async with client(gateway) as http, anyio.create_task_group() as group:
        for agent in "abab":
            group.start_soon(turns, agent)
    assert [len(names) for names in found.values()] == [1, 1]
    assert not found["a"] & found["b"]


async def test_the_id_of_a_named_session_is_computed_with_a_secret_of_the_store() -> None:
    """The store keeps the secret: the id stays the same for every gateway, and nobody else computes it."""
    stores = [MemoryStore(), MemoryStore()]
    found: list[set[str]] = [set(), set()]
    for place in (0, 1, 0, 1):
        async with client(scripted_gateway(Scripted(), stores[place])) as http:
            found[place].add(await turn_of(http, {}))
    assert [len(names) for names in found] == [1, 1]
    assert not found[0] & found[1]


def test_ids_are_not_to_be_guessed() -> None:
    found = {new_id() for _ in range(100)}
    assert len(found) == 100
    assert all(names.IDENTIFIER.fullmatch(name) for name in found)


async def test_only_the_beginning_of_a_long_name_counts() -> None:
    async with client(scripted_gateway(Scripted())) as http:

        async def session(headers: dict[str, str]) -> str:
            answer = await http.post(CHAT, json=ASKED, headers=headers)
            assert answer.status_code == 200, answer.text
            return str(answer.headers[HEADER])

        for name, begin in ((HEADER, ""), ("x-api-key", ""), ("authorization", "Bearer ")):
            found = [await session({name: begin + "n" * size + end}) for size in (255, 256) for end in "ab"]
            assert (found[0] == found[1], found[2] == found[3]) == (False, True)
