"""What vLLM's turns say: the text of sampled ids, and the message that it makes."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Literal

import attrs

from tito_io.engines.protocol import EngineError, Reply, RequestError, Sampling
from tito_io.engines.replies.hermes import ParsedMessage
from tito_io.engines.replies.output_parser import Harmony, Hermes

from .replies import spoken
from .tokenizer import ServedVocabulary

Manner = Literal["hermes", "harmony"]


@attrs.define
class Manners:
    """How one model writes thoughts and calls. Nothing is told by its name."""

    vocabulary: ServedVocabulary
    manner: Manner | None = None
    """As the caller says; where nobody does, the vocabulary tells."""
    known: Hermes | Harmony | None = None

    async def speech(self) -> Hermes | Harmony:
        """Return the manner, everything asked that must be known before a turn is sampled."""
        if self.known is None:
            harmony = self.manner == "harmony" or (self.manner is None and await self._harmony())
            found = Harmony(self.vocabulary) if harmony else Hermes(self.vocabulary)
            if harmony:
                await found.ready()
            self.known = found
        return self.known

    async def ready(self) -> None:
        """Ask what messages will be parsed with."""
        await (await self.speech()).ready()

    async def ending(self, sampling: Sampling) -> Sampling:
        """Return how to sample, with the stops that a server does not add by itself."""
        speech = await self.speech()
        if not isinstance(speech, Harmony):
            return sampling
        own = (index for index in await speech.stop_ids() if index not in sampling.stop_ids)
        return attrs.evolve(sampling, stop_ids=(*sampling.stop_ids, *own))

    async def said(self, reply: Reply, sampling: Sampling, *, tools: bool, text: bool = True) -> Reply:
        """Return a reply, and its siblings, with the messages that their ids say.

        `text` is false where the server sent none. An error on the way carries the whole turn.
        """
        try:
            turns = [
                spoken(one, *await self._parsed(one, sampling, tools=tools, text=text), place)
                for place, one in enumerate((reply, *reply.siblings))
            ]
        except EngineError as error:
            error.partial = reply
            raise
        return attrs.evolve(turns[0], siblings=tuple(turns[1:]))

    async def reparsed(self, reply: Reply, sampling: Sampling, *, tools: bool) -> Reply:
        """Return a chat's reply; of a harmony model, with the messages that its ids say.

        Servers parse those models' streams another way than their ids, and may know only some channels.
        """
        if not isinstance(await self.speech(), Harmony):
            return reply
        return await self.said(reply, sampling, tools=tools, text=False)

    async def _parsed(
        self, reply: Reply, sampling: Sampling, *, tools: bool, text: bool
    ) -> tuple[str, ParsedMessage]:
        said = reply.text if text else await self._decoded(reply, sampling)
        whole = not isinstance(reply.stop_reason, str)
        speech = await self.speech()
        parsed = await speech.parsed(reply.prompt_ids, reply.completion_ids, said, whole=whole, tools=tools)
        return said, parsed

    async def _decoded(self, reply: Reply, sampling: Sampling) -> str:
        """Return a completion's text as a server that decodes would send it: without its stop.

        Servers before 0.32 do not say what ended a turn; where a stop string stands in the text, it did.
        """
        ids, ended = reply.completion_ids, reply.finish_reason in ("stop", "tool_calls")
        if ended and sampling.stop:
            text = await self._text(ids)
            places = [place for place in map(text.find, sampling.stop) if place >= 0]
            if places and not isinstance(reply.stop_reason, int):
                return text[: min(places)]
        return await self._text(ids[:-1] if ended else ids)

    async def _text(self, ids: Sequence[int]) -> str:
        """Return the text of ids; half a character at its end is held back, as servers hold it back."""
        return (await self.vocabulary.decode(ids)).rstrip("\ufffd") if ids else ""

    async def _harmony(self) -> bool:
        """Ask whether the vocabulary has the markers; a server without a tokenizer does not say."""
        try:
            return await Harmony(self.vocabulary).spoken()
        except RequestError as error:
            if error.answer is None or error.answer.status != HTTPStatus.NOT_FOUND:
                raise
            return False
