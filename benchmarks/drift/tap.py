"""What an engine really answered, heard on the wire before any adapter reads it."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any

import attrs
import httpx2
import orjson

ANSWERED = ("/completions", "/generate")
"""How the paths end that sample turns."""
PLACES = ("token_ids", "output_ids", "completion_token_ids", "response_token_ids")
"""What engines call the sampled ids."""
CONNECT_SECONDS = 120.0
"""How long a connection may take: the engine shares its processors with whoever asks."""
SPELLED = "token_id:"
"""What ids begin with that vLLM says in the place of tokens."""
WHOSE: ContextVar[str] = ContextVar("whose")
"""The conversation that the running task is in."""


@attrs.define
class Tap(httpx2.AsyncBaseTransport):
    """Passes everything on, and keeps the sampled ids of every answer: four bytes each."""

    inner: httpx2.AsyncBaseTransport
    heard: dict[str, list[bytes]] = attrs.field(factory=lambda: defaultdict(list))
    """By conversation, in the order of the answers."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request on."""
        timeout = {**request.extensions.get("timeout", {}), "connect": CONNECT_SECONDS}
        request.extensions["timeout"] = timeout
        response = await self.inner.handle_async_request(request)
        content = await response.aread()
        whose = WHOSE.get(None)
        asked = request.url.path.endswith(ANSWERED)
        if whose is not None and asked and response.status_code == HTTPStatus.OK:
            self.heard[whose].append(sampled(orjson.loads(content)))
        kept = {name: value for name, value in response.headers.items() if name != "content-encoding"}
        return httpx2.Response(response.status_code, headers=kept, content=content, request=request)

    async def aclose(self) -> None:
        """Let go of the connections."""
        await self.inner.aclose()


def sampled(body: Mapping[str, Any] | list[Any]) -> bytes:
    """Return the sampled ids of an answer with one turn.

    >>> sampled({"choices": [{"token_ids": [1, 2]}]}) == sampled({"output_ids": [1, 2]})
    True
    >>> sampled({"choices": [{"logprobs": {"tokens": ["token_id:1"]}}]}) == packed([1])
    True
    """
    whole = body[0] if isinstance(body, list) else body
    turn = (whole.get("choices") or [whole])[0]
    found = [turn[name] for name in PLACES if turn.get(name) is not None]
    return packed(found[0] if found else _spelled(turn.get("logprobs") or {}))


def _spelled(logprobs: Mapping[str, Any]) -> list[int]:
    """Return ids that stand in the place of tokens; raises `ValueError` where they are none."""
    chat = [one["token"] for one in logprobs.get("content") or ()]
    found = [token.removeprefix(SPELLED) for token in logprobs.get("tokens") or chat]
    return [int(number) for number in found]


def packed(ids: list[int]) -> bytes:
    """Return ids as bytes.

    >>> packed([1]) == bytes([1, 0, 0, 0])
    True
    """
    return array("I", ids).tobytes()
