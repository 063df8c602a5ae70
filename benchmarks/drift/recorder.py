"""Record the sampled ids of an engine's replies on the wire, before any adapter parses them."""

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

SAMPLING_PATHS = ("/completions", "/generate")
"""Ends of the paths whose replies have sampled ids."""
ID_FIELDS = ("token_ids", "output_ids", "completion_token_ids", "response_token_ids")
"""Names of the field with the sampled ids, by engine."""
CONNECT_SECONDS = 120.0
"""Timeout of a connection. It is long because the engine shares its processors with the clients."""
ENGINE_ARGUMENTS = "token_id:"
"""Prefix of the token names that vLLM sends with `return_tokens_as_token_ids`."""
CONVERSATION: ContextVar[str] = ContextVar("whose")
"""Name of the running task's conversation."""


@attrs.define
class Recorder(httpx2.AsyncBaseTransport):
    """A transport that records the sampled ids of every reply, four bytes each.

    Attributes:
        inner: The transport that sends the requests.
        recorded: Sampled ids by conversation, in the order of the replies.
    """

    inner: httpx2.AsyncBaseTransport
    recorded: dict[str, list[bytes]] = attrs.field(factory=lambda: defaultdict(list))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request and record the sampled ids of its reply."""
        timeout = {**request.extensions.get("timeout", {}), "connect": CONNECT_SECONDS}
        request.extensions["timeout"] = timeout
        response = await self.inner.handle_async_request(request)
        content = await response.aread()
        conversation = CONVERSATION.get(None)
        samples_a_turn = request.url.path.endswith(SAMPLING_PATHS)
        if conversation is not None and samples_a_turn and response.status_code == HTTPStatus.OK:
            self.recorded[conversation].append(sampled(orjson.loads(content)))
        headers = {name: value for name, value in response.headers.items() if name != "content-encoding"}
        return httpx2.Response(response.status_code, headers=headers, content=content, request=request)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.inner.aclose()


def sampled(body: Mapping[str, Any] | list[Any]) -> bytes:
    """Return the sampled ids of a reply with one choice.

    >>> sampled({"choices": [{"token_ids": [1, 2]}]}) == sampled({"output_ids": [1, 2]})
    True
    >>> sampled({"choices": [{"logprobs": {"tokens": ["token_id:1"]}}]}) == packed([1])
    True
    """
    whole = body[0] if isinstance(body, list) else body
    turn = (whole.get("choices") or [whole])[0]
    ids = [turn[name] for name in ID_FIELDS if turn.get(name) is not None]
    return packed(ids[0] if ids else _ids_in_token_names(turn.get("logprobs") or {}))


def _ids_in_token_names(logprobs: Mapping[str, Any]) -> list[int]:
    """Return the ids in token names such as `token_id:7`; raises `ValueError` for other names."""
    chat = [one["token"] for one in logprobs.get("content") or ()]
    ids = [token.removeprefix(ENGINE_ARGUMENTS) for token in logprobs.get("tokens") or chat]
    return [int(number) for number in ids]


def packed(ids: list[int]) -> bytes:
    """Return ids as 32-bit integers in native byte order.

    >>> packed([1]) == bytes([1, 0, 0, 0])
    True
    """
    return array("I", ids).tobytes()
