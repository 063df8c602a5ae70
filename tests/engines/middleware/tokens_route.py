"""A route that prime-rl adds to vLLM, for a stock one: `vllm serve --middleware=tokens_route.TokensRoute`.

`POST /v1/chat/completions/tokens` takes a chat request with `tokens`, the prompt's ids. It goes on as a chat
request with these ids under the key that a stock server takes them by.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

ROUTE, CHAT = "/v1/chat/completions/tokens", "/v1/chat/completions"


class TokensRoute:
    """The application with the route added."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != ROUTE:
            await self.app(scope, receive, send)
            return
        content = translated(await _read(receive))
        headers = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
        headers.append((b"content-length", str(len(content)).encode()))
        chat = {**scope, "path": CHAT, "raw_path": CHAT.encode(), "headers": headers}
        pending = [{"type": "http.request", "body": content, "more_body": False}]

        async def receive_again() -> Message:
            return pending.pop() if pending else await receive()

        await self.app(chat, receive_again, send)


async def _read(receive: Receive) -> bytes:
    parts = [await receive()]
    while parts[-1].get("more_body"):
        parts.append(await receive())
    return b"".join(part.get("body", b"") for part in parts)


def translated(content: bytes) -> bytes:
    """Return the chat request that a request with tokens amounts to; what is none, as it is."""
    try:
        body = json.loads(content)
        body["kv_transfer_params"] = {"prompt_token_ids": body.pop("tokens")}
    except (KeyError, TypeError, ValueError):
        return content
    return json.dumps(body).encode()
