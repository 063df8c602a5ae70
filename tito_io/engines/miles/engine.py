"""The Miles adapter: prompts go by messages, each conversation in a session that keeps its ids.

A prompt that continues a conversation goes to that conversation's session. Any other prompt opens a session
of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import attrs
import httpx2

from tito_core import Message, Messages
from tito_core.match import NOTHING, PromptMatcher
from tito_io.engines.http_engine import LIST_FAILURES, log_list_failure
from tito_io.engines.media import unsupported
from tito_io.engines.protocol import (
    Engine,
    ModelLimits,
    Rendering,
    Reply,
    SampleRequest,
    Sampling,
    UnsupportedError,
    watch_whole,
)
from tito_io.engines.sampling_masks import no_masks

from . import requests
from .router import MilesRouter
from .session import MilesSession

OWNS = "Miles' session server keeps the ids: it renders new messages and appends them; send messages"


@attrs.define(eq=False)
class MilesConversation:
    """A conversation with all messages so far, and the session that keeps its ids.

    `session.samples()` returns its samples while the engine is open. `key` says what it was rendered with
    (`tito_core.render_key`).
    """

    session: MilesSession
    key: str
    messages: Messages


class Miles(Engine):
    """A Miles session server as an engine.

    Nothing is sent before a method is called.

    Args:
        base_url: The server's address, such as `http://127.0.0.1:8000`; a trailing `/v1` is dropped.
        model: The model's name in requests. Default `default`.
        api_key: Sent as a bearer token; None sends none.
        timeout: Seconds without a byte after which a request fails; None waits for ever. Default 600.
        evaluation: Whether the sessions are for evaluation; later servers then accept any temperature.
        transport: Replaces the network: `httpx2.ASGITransport(app)` is answered by `app` in this process.

    Attributes:
        name: `miles`.
        keeps_ids: True: prompts go by messages, and the server keeps the ids of earlier turns.
        model: The model's name in requests.
        evaluation: Whether the sessions are for evaluation.
        router: The server; `router.undeleted` names the sessions that could not be deleted.
        conversations: The conversations so far.
    """

    name: str = "miles"
    keeps_ids: bool = True

    def __init__(
        self,
        base_url: str,
        *,
        model: str = "default",
        api_key: str | None = None,
        timeout: float | None = 600.0,
        evaluation: bool = False,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.router = MilesRouter(base_url, api_key=api_key, timeout=timeout, transport=transport)
        self.model = model
        self.evaluation = evaluation
        self.conversations: list[MilesConversation] = []
        self._limits: ModelLimits | None = None

    async def render(
        self,
        messages: Sequence[Message],  # noqa: ARG002  # the protocol's signature
        rendering: Rendering,  # noqa: ARG002  # likewise
        *,
        add_generation_prompt: bool,  # noqa: ARG002  # likewise
    ) -> NoReturn:
        """Raise `UnsupportedError`: the server has no route that renders."""
        raise UnsupportedError(f"{OWNS}; it has no route that shows a rendering")

    async def sample(self, request: SampleRequest) -> Reply:
        """Sample a turn in the session of the conversation that these messages continue.

        `watch` is called once, with the whole turn: the server streams nothing earlier. Raises
        `UnsupportedError` for ids, which the server keeps itself.
        """
        if request.media:
            raise unsupported(self.name)
        if request.messages is None:
            raise UnsupportedError(OWNS)
        if request.sampling.sampling_masks:
            await self.check_masks(request.sampling)
        rendering = request.rendered_with
        body = requests.sampled(self.model, request.messages, rendering, request.sampling)
        conversation = self._continued(request.messages, rendering.key)
        if conversation is None:
            reply = await self._first(body, rendering.key)
        else:
            reply = await conversation.session.chat(body)
            conversation.messages = _after(body, reply)
        if request.watch is not None:
            await watch_whole(request.watch, reply)
        return reply

    async def check_masks(self, sampling: Sampling) -> None:
        """Raise `MasksUnsupportedError`: chats of the server have none."""
        del sampling
        raise no_masks("a session server of Miles has them in its samples alone: read those")

    async def limits(self) -> ModelLimits:
        """Return the sizes that the model accepts, as the engine behind the last session states them."""
        if self._limits is None and self.conversations:
            self._limits = await _limits(self.conversations[-1].session)
        return self._limits or ModelLimits()

    async def aclose(self) -> None:
        """Delete the sessions and close the connections; see `router.undeleted` for failures."""
        try:
            for conversation in self.conversations:
                await self.router.close(conversation.session)
        finally:
            await self.router.aclose()

    def _continued(self, prompt: Sequence[Message], key: str) -> MilesConversation | None:
        """Return the longest conversation that a prompt continues."""
        matcher = PromptMatcher(prompt, NOTHING)
        for conversation in sorted(self.conversations, key=lambda one: one.messages.length, reverse=True):
            fits = conversation.key == key and conversation.messages.length < len(prompt)
            if fits and matcher.fits(conversation.messages) is not None:
                return conversation
        return None

    async def _first(self, body: Mapping[str, Any], key: str) -> Reply:
        """Begin a conversation. A session without a turn is deleted: older servers cannot begin it again."""
        session = await self.router.open(body, evaluation=self.evaluation)
        try:
            reply = await session.chat(body)
        except BaseException:
            await self.router.close(session)
            raise
        self.conversations.append(MilesConversation(session, key, _after(body, reply)))
        return reply


def _after(body: Mapping[str, Any], reply: Reply) -> Messages:
    """Return a request's messages followed by the turn."""
    message = reply.message or {"role": "assistant", "content": reply.text}
    return Messages.of(body["messages"]).then([message])


async def _limits(session: MilesSession) -> ModelLimits:
    try:
        answer = await session.ask("GET", "/v1/models")
    except LIST_FAILURES as error:
        log_list_failure(error)
        return ModelLimits()
    cards = answer.get("data")
    card = cards[0] if isinstance(cards, list) and cards and isinstance(cards[0], Mapping) else {}
    length = card.get("max_model_len")
    return ModelLimits(max_model_len=length if type(length) is int else None)
