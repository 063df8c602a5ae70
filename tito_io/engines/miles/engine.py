"""Miles as an engine: a conversation goes by messages, each in a session, and no id is lost on the way.

The server keeps the ids, so a prompt that continues a conversation goes to that conversation's session. One
that continues none gets a session of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, Self

import attrs
import httpx2

from tito_core import Message, Messages, render_key
from tito_core.match import NOTHING, PromptMatcher
from tito_io.engines.protocol import (
    Delta,
    ModelLimits,
    Rendering,
    Reply,
    RequestError,
    Sampling,
    UnsupportedError,
    Watch,
)

from . import requests
from .router import MilesRouter
from .session import MilesSession

OWNS = (
    "Miles' session server owns the ids: it renders what is new and joins it to what it kept; send messages"
)


@attrs.define(eq=False)
class MilesConversation:
    """A conversation, and the session that keeps it."""

    session: MilesSession
    key: str
    """What it was rendered with."""
    messages: Messages
    """All messages so far, the model's last one among them."""


class Miles:
    """A Miles session server as an engine."""

    name: str = "miles"
    keeps_ids: bool = True
    """Prompts go by messages, and the ids of earlier turns stand in them all the same."""

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
        """Make ready; nothing is sent before something is asked. `timeout` is in seconds without a byte."""
        self.router = MilesRouter(base_url, api_key=api_key, timeout=timeout, transport=transport)
        self.model = model
        self.evaluation = evaluation
        self.talks: list[MilesConversation] = []
        """The conversations so far; `talk.session.samples()` gives their samples as long as this is open."""
        self._limits: ModelLimits | None = None

    async def render(
        self,
        messages: Sequence[Message],  # noqa: ARG002  # engines are asked with it
        rendering: Rendering,  # noqa: ARG002  # likewise
        *,
        add_generation_prompt: bool,  # noqa: ARG002  # likewise
    ) -> NoReturn:
        """Raise `UnsupportedError`: the server has no route that renders, and its templates are its own."""
        raise UnsupportedError(f"{OWNS}; a session server shows no rendering of them")

    async def from_messages(
        self,
        messages: Sequence[Message],
        rendering: Rendering,
        sampling: Sampling,
        *,
        watch: Watch | None = None,
    ) -> Reply:
        """Sample a turn in the session of the conversation that these messages continue.

        `watch` is told of the whole turn at once: the server streams nothing earlier.
        """
        body = requests.sampled(self.model, messages, rendering, sampling)
        talk = self._continued(messages, render_key(rendering.tools, rendering.template_args))
        reply = await (self._first(body, rendering) if talk is None else self._next(talk, body))
        if watch is not None:
            await watch(Delta(ids=reply.completion_ids, logprobs=reply.logprobs, text=reply.text))
        return reply

    async def from_ids(
        self,
        ids: Sequence[int],  # noqa: ARG002  # engines are asked with it
        sampling: Sampling,  # noqa: ARG002  # likewise
        rendering: Rendering | None = None,  # noqa: ARG002  # likewise
        *,
        watch: Watch | None = None,  # noqa: ARG002  # likewise
    ) -> NoReturn:
        """Raise `UnsupportedError`: the server owns the ids."""
        raise UnsupportedError(OWNS)

    async def limits(self) -> ModelLimits:
        """Return how much the model takes, where a session is open and the engine behind it says so."""
        if self._limits is None and self.talks:
            self._limits = await _limits(self.talks[-1].session)
        return self._limits or ModelLimits()

    async def aclose(self) -> None:
        """Delete the sessions and close the connections; `router.left` names what could not be deleted."""
        try:
            for talk in self.talks:
                await self.router.close(talk.session)
        finally:
            await self.router.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _continued(self, prompt: Sequence[Message], key: str) -> MilesConversation | None:
        """Return the conversation that a prompt continues, the longest where there are several."""
        wanted = PromptMatcher(prompt, NOTHING)
        for talk in sorted(self.talks, key=_length, reverse=True):
            fits = talk.key == key and _length(talk) < len(prompt)
            if fits and wanted.fits(talk.messages) is not None:
                return talk
        return None

    async def _first(self, body: Mapping[str, Any], rendering: Rendering) -> Reply:
        """Begin a conversation. A session without a turn is deleted: older servers cannot begin it again."""
        session = await self.router.open(body, evaluation=self.evaluation)
        try:
            reply = await session.chat(body)
        except BaseException:
            await self.router.close(session)
            raise
        key = render_key(rendering.tools, rendering.template_args)
        self.talks.append(MilesConversation(session, key, _after(body, reply)))
        return reply

    async def _next(self, talk: MilesConversation, body: Mapping[str, Any]) -> Reply:
        reply = await talk.session.chat(body)
        talk.messages = _after(body, reply)
        return reply


def _length(talk: MilesConversation) -> int:
    return talk.messages.length


def _after(body: Mapping[str, Any], reply: Reply) -> Messages:
    """Return a request's messages followed by the turn."""
    said = reply.message or {"role": "assistant", "content": reply.text}
    return Messages.of(body["messages"]).then([said])


async def _limits(session: MilesSession) -> ModelLimits:
    try:
        answer = await session.ask("GET", "/v1/models")
    except RequestError:
        return ModelLimits()
    cards = answer.get("data")
    card = cards[0] if isinstance(cards, list) and cards and isinstance(cards[0], Mapping) else {}
    found = card.get("max_model_len")
    return ModelLimits(max_model_len=found if type(found) is int else None)
