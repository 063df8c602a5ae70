"""The engine's server as the gateway uses it: a prefix that it may have, a body that it may not, its end."""

from __future__ import annotations

import httpx2
import pytest

from tito_io.serve.backend import Backend

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "address", ["http://engine", "http://engine/", "http://engine/v1", "http://engine/v1/"]
)
async def test_a_server_is_asked_at_its_root(address: str) -> None:
    seen: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(200)

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
