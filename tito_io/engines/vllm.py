"""vLLM, over HTTP or straight into an ASGI application that speaks its dialect.

Ids go in by one of two routes. `completions` is meant for them, and the message is parsed here, in the Hermes
manner (see `hermes.py`). `chat` borrows a key that was made for splitting prefill from decoding; there the
server's own parsers make the message, so it fits families that write their calls in another way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import httpx2

from tito_core import Ids, InputError, Message

from . import hermes, vllm_replies, vllm_requests
from .invariants import Check
from .protocol import Answer, Rendering, Reply, RequestError, Sampling
from .vllm_refusal import refusal
from .vllm_served import Served, chosen
from .vllm_vocabulary import TOKENIZE, Vocabulary
from .wire import Wire

CHAT, COMPLETIONS, MODELS, VERSION = "/v1/chat/completions", "/v1/completions", "/v1/models", "/version"


class VLLM:
    """A vLLM server."""

    name: str = "vllm"

    def __init__(  # noqa: PLR0913  # each says one thing about the server, most of them seldom
        self,
        base_url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        timeout: float | None = 600.0,
        route: Literal["completions", "chat"] = "completions",
        vocab_size: int | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """Make ready; nothing is sent before something is asked.

        `model` may be left out where the server has one. `timeout` is in seconds without a byte. `route` is
        how ids go in. `vocab_size` lets ids be checked before they are sent. `transport` replaces the
        network: with `httpx2.ASGITransport(app)` an application in this process answers.
        """
        if route not in ("completions", "chat"):
            raise InputError(f"route is {route!r}: ids go in by 'completions' or by 'chat'")
        self.model = model
        self.route = route
        self.vocab_size = vocab_size
        self._wire = Wire.to(base_url, api_key=api_key, timeout=timeout, transport=transport)
        self._vocabulary = Vocabulary(self._wire, vocab_size)
        self._endings = vllm_replies.Endings()
        self._served: Served | None = None

    async def render(
        self, messages: Sequence[Message], rendering: Rendering, *, add_generation_prompt: bool
    ) -> list[int]:
        """Return the ids of messages; raises `TemplateRefused` where the chat template rejects them."""
        model = self.model or (await self.served()).name
        body = vllm_requests.render(model, messages, rendering, add_generation_prompt=add_generation_prompt)
        try:
            answer = await self._wire.post(TOKENIZE, body)
        except RequestError as error:
            refused = refusal(error)
            if refused is None:
                raise
            raise refused from error
        return list(self._check("POST", TOKENIZE, answer).ids(answer, "tokens"))

    async def from_messages(
        self, messages: Sequence[Message], rendering: Rendering, sampling: Sampling
    ) -> Reply:
        """Sample a turn after messages that the server renders."""
        served = await self.served()
        reply = await self._chat(vllm_requests.chat(served.name, messages, rendering, sampling))
        return self._endings.settle(reply, served.limit(len(reply.prompt_ids), sampling))

    async def from_ids(
        self, ids: Sequence[int], sampling: Sampling, rendering: Rendering | None = None
    ) -> Reply:
        """Sample a turn after exactly these ids, which the answer must repeat.

        Raises `OverlongError` without sending them where they are known to fill the server's context.
        """
        sent = self._sendable(ids)
        served = await self.served()
        limit = served.room(len(sent), sampling)
        if self.route == "chat":
            body = vllm_requests.chat_after_ids(served.name, sent, rendering, sampling, limit)
            return self._endings.settle(await self._chat(body, sent), limit)
        body = vllm_requests.completion(served.name, sent, sampling, limit)
        return await self._completion(body, sent, tools=rendering is None or bool(rendering.tools))

    async def models(self) -> tuple[Served, ...]:
        """Return the models that the server has."""
        answer = await self._wire.get(MODELS)
        check = self._check("GET", MODELS, answer)
        return tuple(Served.of(check, card) for card in check.get(answer, "data", list))

    async def served(self) -> Served:
        """Return the model in use; asked for once."""
        if self._served is None:
            self._served = chosen(await self.models(), self.model)
        return self._served

    async def version(self) -> str:
        """Return the server's version, such as `0.32.0`."""
        answer = await self._wire.get(VERSION)
        return self._check("GET", VERSION, answer).get(answer, "version", str)

    async def aclose(self) -> None:
        """Close the connections; leaving `async with` does, too."""
        await self._wire.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _chat(self, body: dict[str, Any], sent: list[int] | None = None) -> Reply:
        answer = await self._wire.post(CHAT, body)
        check = self._check("POST", CHAT, answer)
        reply = vllm_replies.chat(check, answer)
        if sent is not None:
            check.echo(reply.prompt_ids, sent)
        return reply

    async def _completion(self, body: dict[str, Any], sent: list[int], *, tools: bool) -> Reply:
        tags = await self._vocabulary.tags(body["model"])  # first, so that no sampled turn is lost to it
        answer = await self._wire.post(COMPLETIONS, body)
        check = self._check("POST", COMPLETIONS, answer)
        reply = vllm_replies.completion(check, answer)
        check.echo(reply.prompt_ids, sent)
        self._endings.learn(reply)
        marks = await self._vocabulary.marks(body["model"], reply)
        return vllm_replies.spoken(
            reply, hermes.parse(reply.text, marks, thinking=tags.thinking(sent), tools=tools)
        )

    def _sendable(self, ids: Sequence[int]) -> list[int]:
        """Return ids as a list, or raise `InputError` for what is none."""
        sent = Ids.of(ids).tolist()
        if not sent:
            raise InputError("ids: a prompt has at least one id")
        if self.vocab_size is not None and max(sent) >= self.vocab_size:
            raise InputError(f"ids: {max(sent)} is not in the vocabulary of {self.vocab_size}; whose is it?")
        return sent

    def _check(self, method: str, path: str, answer: object) -> Check:
        return Check(self._wire.where(method, path), Answer(200, answer), self.vocab_size)
