"""The embedded engine behind a network that cuts, delays and spoils its replies.

What it samples is remembered before anything is sent, so that a reply which never arrives is known, too. Each
request gets a seed of its own: two samplings of one prompt have different ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import cache
from typing import Any

import attrs
import httpx2
import orjson
from starlette.applications import Starlette

from tests.simulate.draws import Draws
from tests.simulate.faults import FaultPlan
from tests.simulate.history import History, Sampling
from tito_io.embedded import app, family
from tito_io.embedded.engine import EmbeddedEngine, PromptReplies
from tito_io.embedded.generation import SamplingSettings

SAMPLING = ("/v1/completions", "/v1/chat/completions")
REFUSALS = (400, 429, 500, 502, 503)
GARBAGE = (
    b"",
    b"\x00\xff",
    b"<html>gateway timeout</html>",
    b"[1, 2]",
    b'{"id": 1}',
    b"data: {\n\n",
    b"null",
)
REPLY_SECONDS = 3.0
TIMEOUT_SECONDS = 30.0
KNOWN: dict[tuple[str, str, bytes], tuple[int, str, bytes]] = {}
"""Answers that are the same whenever they are asked for: all but turns."""
MOST_KNOWN = 5_000


@cache
def embedded(seed: int = 0) -> Starlette:
    """Return the embedded engine's application; its answers follow from its requests alone."""
    return app(seed)


@attrs.define(eq=False)
class EngineNetwork(httpx2.AsyncBaseTransport):
    """What a gateway's adapter sends its requests through.

    Attributes:
        history: Where samplings are noted.
        draws: What decides which replies fail, and how.
        plan: How often.
        gateway: The name of the gateway.
    """

    history: History
    draws: Draws
    plan: FaultPlan
    gateway: str

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a request of the adapter."""
        body = await request.aread()
        await asyncio.sleep(self.draws.between(0, 0.02))
        samples = request.url.path in SAMPLING
        fails = self.plan.on and self.draws.chance(self.plan.engine * (1 if samples else 0.3))
        if not fails:
            status, kind, data = await self._answered(request.method, request.url.path, body)
            await asyncio.sleep(self.draws.between(0, REPLY_SECONDS) if samples else 0.001)
            return self._response(status, kind, data)
        return await self._failed(request, body)

    async def _failed(self, request: httpx2.Request, body: bytes) -> httpx2.Response:
        fault = self.draws.pick(("refused", "status", "garbage", "cut", "cut", "cut", "overlong", "silent"))
        self.history.note("engine", f"{self.gateway}: {fault} {request.url.path}")
        if fault == "refused":
            raise httpx2.ConnectError("refused", request=request)
        if fault == "status":
            error = {"error": {"message": "no", "type": "InternalServerError", "param": None, "code": 500}}
            return self._response(self.draws.pick(REFUSALS), "application/json", orjson.dumps(error))
        if fault == "silent":
            await self._answered(request.method, request.url.path, body)
            await asyncio.sleep(TIMEOUT_SECONDS)
            raise httpx2.ReadTimeout("no byte", request=request)
        status, kind, data = await self._answered(request.method, request.url.path, body)
        await asyncio.sleep(self.draws.between(0, REPLY_SECONDS))
        if fault == "garbage":
            return self._response(status, kind, self.draws.pick(GARBAGE))
        if fault == "overlong":
            return self._response(status, kind, _overlong(data))
        return self._response(status, kind, data, cut=self.draws.below(len(data) + 1))

    def _response(self, status: int, kind: str, data: bytes, *, cut: int | None = None) -> httpx2.Response:
        stream = ReplyStream(data, self.draws, cut)
        return httpx2.Response(status, headers={"content-type": kind}, stream=stream)

    async def _answered(self, method: str, path: str, body: bytes) -> tuple[int, str, bytes]:
        """Return the engine's whole answer; what it sampled is noted."""
        if path in SAMPLING:
            body = orjson.dumps({**orjson.loads(body), "seed": len(self.history.samplings)})
            return await _asked(method, path, body)
        if len(KNOWN) > MOST_KNOWN:
            KNOWN.clear()
        if (method, path, body) not in KNOWN:
            KNOWN[method, path, body] = await _asked(method, path, body)
        return KNOWN[method, path, body]


async def _asked(method: str, path: str, body: bytes) -> tuple[int, str, bytes]:
    """Ask the engine, which answers at once."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},  # with which nothing listens for its end
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"content-type", b"application/json"), (b"x-request-id", b"simulated")],
        "server": ("engine", 80),
        "client": ("gateway", 1),
        "scheme": "http",
        "root_path": "",
    }
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await embedded()(scope, receive, send)
    head, *parts = sent
    kind = dict(head["headers"])[b"content-type"] if head["headers"] else b""
    return head["status"], kind.decode(), b"".join(part.get("body", b"") for part in parts)


@attrs.define(eq=False)
class ReplyStream(httpx2.AsyncByteStream):
    """The bytes of a reply in a few parts; the connection breaks at the byte `cut`."""

    data: bytes
    draws: Draws
    cut: int | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the parts."""
        data = self.data[: self.cut]
        while data:
            size = 1 + self.draws.below(len(data)) if self.draws.chance(0.4) else len(data)
            yield data[:size]
            data = data[size:]
            await asyncio.sleep(self.draws.between(0, 0.2))
        if self.cut is not None:
            raise httpx2.RemoteProtocolError("peer closed connection without a whole body")

    async def aclose(self) -> None:
        """Do nothing: nothing is open."""


def _overlong(data: bytes) -> bytes:
    """Return a reply that says more than was sampled: a whole answer twice, or events of a stream twice."""
    events = data.split(b"\n\n")
    if not data.startswith(b"data: "):
        return data * 2
    return b"\n\n".join([*events[:-2], *events[-4:-2], *events[-2:]])


def remember_samplings(history: History) -> Any:
    """Return the method `EmbeddedEngine.run` that notes what is sampled."""
    run = EmbeddedEngine.run

    def noted(
        self: EmbeddedEngine, prompt: list[int], sampling: SamplingSettings, count: int = 1
    ) -> PromptReplies:
        found = run(self, prompt, sampling, count)
        text = family().decode(list(prompt))
        for reply in found.replies:
            made = Sampling(
                number=len(history.samplings) + 1,
                prompt=tuple(reply.prompt),
                ids=tuple(reply.ids),
                logprobs=tuple(step.logprob for step in reply.steps),
                text=text,
            )
            history.samplings.append(made)
            history.note("engine", f"sampled {made.number}: {len(made.prompt)} ids in, {len(made.ids)} out")
        return found

    return noted
