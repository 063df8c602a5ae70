"""The engine's server as the gateway uses it: a prefix that it may have, a body that it may not, its end."""

from __future__ import annotations

import httpx2
import pytest

from tests.io.serve.gateway import talking
from tito_io.serve.backend import Backend
from tito_io.serve.refusals import RequestRefused

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "address", ["http://engine", "http://engine/", "http://engine/v1", "http://engine/v1/"]
)
async def test_a_server_is_asked_at_its_root(address: str) -> None:
    seen: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(200)

    keyed = Backend.to(address, api_key="its-key", transport=httpx2.MockTransport(answer))
    await keyed.forward("GET", "version", b"")
    assert seen.pop().headers["authorization"] == "Bearer its-key"
    await keyed.aclose()
    backend = Backend.to(address, transport=httpx2.MockTransport(answer))
    await backend.forward("POST", "tokenize", b'{"prompt": "x"}')
    await backend.forward("GET", "version", b"")
    assert [str(one.url) for one in seen] == ["http://engine/tokenize", "http://engine/version"]
    assert [one.headers.get("content-type") for one in seen] == ["application/json", None]
    assert [one.content for one in seen] == [b'{"prompt": "x"}', b""]
    assert not any("authorization" in one.headers for one in seen)
    assert not backend.client.is_closed
    await backend.aclose()
    assert backend.client.is_closed


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("GET", path) for path in ("v1/models", "health", "version", "get_model_info", "model_info")),
        ("POST", "tokenize"),
        ("POST", "detokenize"),
    ],
)
async def test_what_informs_is_forwarded_and_nothing_else(method: str, path: str) -> None:
    transport = httpx2.MockTransport(lambda request: httpx2.Response(200, text=request.url.path))
    backend = Backend.to("http://engine", transport=transport)
    assert (await backend.forward(method, path, b"")).text == f"/{path}"
    for other in ("PUT", "DELETE", "POST" if method == "GET" else "GET"):
        with pytest.raises(RequestRefused) as caught:
            await backend.forward(other, path, b"")
        assert caught.value.status == 404
        assert str(caught.value).startswith(f"{other} /{path}: there is no such route; ")
    await backend.aclose()


async def test_an_engine_that_does_not_answer_may_be_asked_again() -> None:
    def away(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ConnectError("no", request=request)

    backend = Backend.to("http://engine", transport=httpx2.MockTransport(away))
    with pytest.raises(RequestRefused) as caught:
        await backend.forward("GET", "version", b"")
    found = caught.value
    assert (found.status, found.kind, found.final) == (503, "engine_unreachable", False)
    assert str(found) == "GET /version: the engine does not answer (ConnectError)"
    await backend.aclose()


@pytest.mark.parametrize(("kind", "passed"), [("text/plain", "text/plain"), (None, "application/json")])
async def test_a_session_s_client_gets_the_engine_s_answer(kind: str | None, passed: str) -> None:
    seen: list[bytes] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request.content)
        return httpx2.Response(418, content=b"{}", headers={} if kind is None else {"content-type": kind})

    backend = Backend.to("http://engine", transport=httpx2.MockTransport(answer))
    async with talking(backend=backend) as talk:
        found = await talk.http.post(f"/sessions/{talk.name}/tokenize", content=b"a body")
        missing = await talk.http.post(f"/sessions/{'0' * 32}/tokenize", content=b"a body")
        taken = await talk.http.put(f"/sessions/{talk.name}/samples")
    assert (found.status_code, found.content) == (418, b"{}")
    assert found.headers["content-type"].partition(";")[0] == passed
    assert (missing.status_code, taken.status_code, seen) == (404, 405, [b"a body"])
    await backend.aclose()
