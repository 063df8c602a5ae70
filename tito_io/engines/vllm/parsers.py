"""Messages for vLLM's replies: the text of sampled ids, and the message that it spells."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from tito_io.engines.one_asks import one_asks
from tito_io.engines.protocol import EngineError, Rendering, Reply, Sampling
from tito_io.engines.replies.output_parser import (
    Harmony,
    OutputFormat,
    OutputParser,
    choose_parser,
    with_messages,
)
from tito_io.engines.replies.template_calls import Render
from tito_io.engines.served_tokenizer import ServedTokenizer


@attrs.define
class TurnParser:
    """Makes messages of one model's completions.

    Where `output_format` is None it is detected from the vocabulary, never from a name. Other tool calls are
    read in the syntax of the chat template, for which `render` asks.
    """

    tokenizer: ServedTokenizer
    output_format: OutputFormat | None = None
    render: Render | None = None
    parser: OutputParser | None = None

    @one_asks
    async def chosen(self) -> OutputParser:
        """Return the parser; of a harmony model, with everything known that is needed before sampling."""
        if self.parser is None:
            parser = await choose_parser(self.tokenizer, self.output_format, self.render)
            if isinstance(parser, Harmony):
                await parser.tags()
            self.parser = parser
        return self.parser

    async def with_stops(self, sampling: Sampling) -> Sampling:
        """Return sampling parameters with the stop tokens that vLLM does not add for ids."""
        parser = await self.chosen()
        if not isinstance(parser, Harmony):
            return sampling
        own = (index for index in await parser.stop_ids() if index not in sampling.stop_ids)
        return attrs.evolve(sampling, stop_ids=(*sampling.stop_ids, *own))

    async def parsed(
        self, reply: Reply, sampling: Sampling, *, rendering: Rendering | None, text: bool
    ) -> Reply:
        """Return a reply, and its siblings, with the messages that their ids spell.

        `text` is False where the server sent none. An error on the way holds the whole turn in `partial`.
        """
        key = f"call-{reply.raw.get('id') or reply.raw.get('request_id')}"
        try:
            whole = reply
            if not text:
                first, *others = [
                    attrs.evolve(one, text=await self._decoded(one, sampling))
                    for one in (reply, *reply.siblings)
                ]
                whole = attrs.evolve(first, siblings=tuple(others))
            return await with_messages(await self.chosen(), whole, key, rendering=rendering)
        except EngineError as error:
            error.partial = reply
            raise

    async def reparsed(self, reply: Reply, sampling: Sampling, *, rendering: Rendering | None) -> Reply:
        """Return a chat's reply; of a harmony model, with the messages that its ids spell.

        vLLM parses those models' streams otherwise than their ids, and may know only some channels.
        """
        if not isinstance(await self.chosen(), Harmony):
            return reply
        return await self.parsed(reply, sampling, rendering=rendering, text=False)

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
        """Return the text of ids; half a character at its end is left out, as servers leave it out."""
        return (await self.tokenizer.decode(ids)).rstrip("\ufffd") if ids else ""
