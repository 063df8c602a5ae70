"""Parsers from sampled ids to an assistant message, for every engine.

A parser needs a tokenizer, on a server or in this process, and asks it two questions: encode and decode.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal, cast
from uuid import uuid4

import attrs

from tito_core import InputError
from tito_io.engines.constraint import tool_name
from tito_io.engines.one_asks import one_asks
from tito_io.engines.protocol import Rendering, Reply, RequestError, Watch, watch_with

from . import harmony, hermes
from .harmony import ANY_MARKER, CALLS, END, MARKERS, MESSAGE, RETURN, START
from .hermes import BRACKETS, TAGS, ParsedMessage, Tags, any_of
from .sampled_marks import AsyncTokenizer, Completion, sampled_marks
from .template_calls import CallTextFilter, Render, TemplateCalls

if TYPE_CHECKING:  # an adapter that has no model folder loads no tokenizer library
    from tito_io.families.family import Family
    from tito_io.families.tokenizer_family import TokenizerFamily

OutputFormat = Literal["hermes", "harmony"]
"""How a model writes reasoning and tool calls."""


@attrs.frozen
class LocalTokenizer:
    """The tokenizer of a model folder, for engines whose server renders and tokenizes nothing."""

    family: Family | TokenizerFamily

    async def encode(self, text: str) -> Sequence[int]:
        """Return the ids of a text alone."""
        return self.family.encode(text)

    async def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens included."""
        return self.family.decode(ids)


@attrs.define
class OutputParser:
    """Parses completions of one output format.

    Attributes:
        tokenizer: The model's tokenizer.
        known: The ids of the format's tags, once asked for.
    """

    tokenizer: AsyncTokenizer
    known: Tags | None = None

    async def tags(self) -> Tags:
        """Return the ids of the format's tags.

        Ask for them before a turn is sampled: a failure then loses no turn.
        """
        raise NotImplementedError

    async def ready(
        self, watch: Watch | None, rendering: Rendering | None, prompt_ids: Sequence[int]
    ) -> Watch | None:
        """Ask for what is needed to read a turn, before it is sampled: a failure then loses no turn.

        Returns the `watch` whose deltas say whether the prompt leaves reasoning open, and bring no text of
        calls that is not known as such.
        """
        del rendering
        tags = await self.tags()
        if watch is None or not tags.thinking(prompt_ids):
            return watch
        return watch_with(watch, thinking=True)

    async def parsed(
        self,
        prompt_ids: Sequence[int],
        ids: Sequence[int],
        text: str,
        *,
        whole: bool,
        rendering: Rendering | None,
    ) -> ParsedMessage:
        """Return the parts of a completion; the arguments are those of `Completion`."""
        return await self._read(
            Completion(prompt_ids=prompt_ids, ids=ids, text=text, whole=whole, rendering=rendering)
        )

    async def _read(self, turn: Completion) -> ParsedMessage:
        """Return the parts of a completion."""
        raise NotImplementedError


@attrs.define
class Hermes(OutputParser):
    """Parser of the Hermes format, which Qwen and many others write; see `hermes`.

    Attributes:
        calls: Reads calls in the syntax of the model's own template, where that is another one; None where
            nothing renders.
    """

    calls: TemplateCalls | None = None

    async def ready(
        self, watch: Watch | None, rendering: Rendering | None, prompt_ids: Sequence[int]
    ) -> Watch | None:
        """Ask for the tags and, if there are tools, how the template writes calls."""
        found = None if self.calls is None else await self.calls.own(rendering)
        watching = watch if watch is None or found is None else CallTextFilter(watch, found.syntax)
        return await super().ready(watching, rendering, prompt_ids)

    async def _read(self, turn: Completion) -> ParsedMessage:
        tags = await self.tags()
        marks = await sampled_marks(self.tokenizer, tags, turn)
        thinking = tags.thinking(turn.prompt_ids)
        read = partial(hermes.parse, turn.text, marks, thinking=thinking)
        own = None if self.calls is None else await self.calls.own(turn.rendering)
        if self.calls is None or own is None:
            return read(tools=turn.may_call)
        start = hermes.thought(turn.text, marks, thinking=thinking)
        found = await self.calls.reread(own, read(tools=False), start, turn)
        if found.calls or hermes.CALL not in tags.ids:
            return found
        other = read(tools=True)  # a model may sample the tags of the Hermes form, too
        return other if other.calls else found

    @one_asks
    async def tags(self) -> Tags:
        """Return the ids of those tags and line breaks that are single tokens."""
        if self.known is None:
            tags = (*TAGS, *BRACKETS)
            encoded = {text: await self.tokenizer.encode(text) for text in (*tags, "\n", "\n\n")}
            single = {text: ids[0] for text, ids in encoded.items() if len(ids) == 1}
            breaks = frozenset(index for text, index in single.items() if text not in tags)
            known = {tag: single[tag] for tag in tags if tag in single}
            self.known = Tags(known, breaks, any_of(dict.fromkeys((*TAGS, *known))))
        return self.known


@attrs.define
class Harmony(OutputParser):
    """Parser of the harmony format of gpt-oss; see `harmony`."""

    async def supported(self) -> bool:
        """Whether each of the format's markers is a token of the vocabulary."""
        ids = tuple(await self.tokenizer.encode("".join(MARKERS)))
        if len(ids) == len(set(ids)) == len(MARKERS):
            self.known = Tags(dict(zip(MARKERS, ids, strict=True)), pattern=ANY_MARKER)
        return self.known is not None

    @one_asks
    async def tags(self) -> Tags:
        """Return the markers' ids; raises `InputError` where they are not tokens."""
        if self.known is None and not await self.supported():
            raise InputError(
                "output_format is 'harmony', and the model's vocabulary has no harmony markers: pass "
                "'hermes', or leave it out"
            )
        return cast("Tags", self.known)

    async def stop_ids(self) -> tuple[int, ...]:
        """Return the ids that end a turn; servers do not add them where a prompt goes by ids."""
        tags = await self.tags()
        return tags.ids[RETURN], tags.ids[CALLS]

    async def _read(self, turn: Completion) -> ParsedMessage:
        tags = await self.tags()
        end = next((tag for tag in (RETURN, CALLS) if turn.ids and turn.ids[-1] == tags.ids[tag]), "")
        # Most servers leave the text of a stop token out; those that do not are made equal to them.
        ids = turn.ids[:-1] if end else turn.ids
        shown = attrs.evolve(turn, ids=ids, text=turn.text.removesuffix(end))
        marks = await sampled_marks(self.tokenizer, tags, shown)
        opened = await self._opened(turn.prompt_ids)
        tools = turn.rendering.tools if turn.rendering is not None else ()
        names = frozenset(map(tool_name, tools))
        return harmony.parse(shown.text, marks, opened=opened, end=end, tools=turn.may_call, functions=names)

    async def _opened(self, prompt_ids: Sequence[int]) -> str:
        """Return the header of the message that the prompt leaves open, up to `<|message|>` if it has that.

        The usual header is a role alone, which says nothing: it is not decoded.
        """
        ids = (await self.tags()).ids
        tail: list[int] = []
        for index in reversed(prompt_ids):
            if index == ids[START]:
                return await self.tokenizer.decode(tail[::-1]) if len(tail) > 1 else ""
            if index in (ids[END], ids[CALLS], ids[RETURN]):
                break
            if index == ids[MESSAGE]:
                tail.clear()  # what follows it is text, not a header
            tail.append(index)
        return ""


async def choose_parser(
    tokenizer: AsyncTokenizer, output_format: OutputFormat | None, render: Render | None = None
) -> OutputParser:
    """Return the parser of `output_format`; where that is None, of the format that the vocabulary shows.

    A server without a tokenizer route cannot show one, and its model is taken for a Hermes model. With
    `render`, calls in another syntax are read in that of the chat template, unless a format is given.
    """
    parser = Harmony(tokenizer)
    if output_format is not None:
        return parser if output_format == "harmony" else Hermes(tokenizer)
    other = Hermes(tokenizer, calls=None if render is None else TemplateCalls(tokenizer, render))
    try:
        return parser if await parser.supported() else other
    except RequestError as error:
        if error.answer is None or error.answer.status != HTTPStatus.NOT_FOUND:
            raise
        return Hermes(tokenizer)


def check_format(output_format: object) -> None:
    """Raise `InputError` for what is not an output format."""
    if output_format not in (None, "hermes", "harmony"):
        raise InputError(
            f"output_format is {output_format!r}: pass 'hermes', 'harmony', or None to detect it from the "
            "vocabulary"
        )


def with_message(reply: Reply, parsed: ParsedMessage, call_key: str) -> Reply:
    """Return a reply with the message that its ids spell; the ids of its tool calls are made from `call_key`.

    The finish reason is `tool_calls` of a finished turn with calls, whatever the server made of them.
    """
    finish = reply.finish_reason
    if not reply.truncated:
        finish = "tool_calls" if parsed.calls else "stop"
    notices = (*reply.notices, *parsed.notices)
    return attrs.evolve(reply, message=parsed.message(call_key), finish_reason=finish, notices=notices)


async def with_messages(
    parser: OutputParser, reply: Reply, call_key: str = "", *, rendering: Rendering | None
) -> Reply:
    """Return a reply, and its siblings, with the messages that their ids spell.

    The ids of calls are made from `call_key`; without one, where an answer has no id, from random letters.
    """
    call_key = call_key or f"call-{uuid4().hex[:16]}"
    turns = []
    for place, turn in enumerate((attrs.evolve(reply, siblings=()), *reply.siblings)):
        whole = not isinstance(turn.stop_reason, str)
        parsed = await parser.parsed(
            turn.prompt_ids, turn.completion_ids, turn.text, whole=whole, rendering=rendering
        )
        turns.append(with_message(turn, parsed, f"{call_key}.{place}" if place else call_key))
    return attrs.evolve(turns[0], siblings=tuple(turns[1:]))
