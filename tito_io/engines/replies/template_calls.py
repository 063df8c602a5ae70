"""Calls that a chat template writes in a syntax of its own: learned once, read, and checked by a round trip.

A call that was read is believed if the template writes a call from which the same is read. Otherwise the
turn stays text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import product
from typing import Any

import attrs

from tito_core import Message, TemplateRefused, render_key
from tito_io.engines.one_asks import one_asks
from tito_io.engines.protocol import Delta, Rendering, RequestError, Watch

from .call_syntax import (
    ASKED,
    IDS,
    NAMED_IDS,
    NAMES,
    SAID,
    TAG,
    CallSyntax,
    ReadCall,
    around,
    calling,
    learned,
    stand_in_tools,
)
from .hermes import CALL, CALLED, Mark, ParsedMessage, Tags, Thought, any_of
from .sampled_marks import AsyncTokenizer, Completion, sampled_marks

Render = Callable[..., Awaitable[Sequence[int]]]
KEPT = "call-kept-as-text"
"""The notice that a call was read which the template would not write so: the turn is text."""


@attrs.frozen
class LearnedCalls:
    """The syntax of one rendering.

    Attributes:
        syntax: The syntax.
        tags: Its tags that are single tokens.
        as_text: Whether the template takes arguments as JSON text, and not as objects.
    """

    syntax: CallSyntax
    tags: Tags
    as_text: bool


@attrs.define
class TemplateCalls:
    """Reads the calls of one model, in the syntax of its chat template.

    Attributes:
        tokenizer: The model's tokenizer.
        render: Renders messages to ids with a `Rendering`, as engines do.
        known: What was learned, by template arguments; None where the template has no syntax that is read
            here.
    """

    tokenizer: AsyncTokenizer
    render: Render
    known: dict[str, LearnedCalls | None] = attrs.field(factory=dict)

    async def learn(self, rendering: Rendering) -> LearnedCalls | None:
        """Return the syntax of calls; the template is asked once for each of its arguments.

        None also where the server renders or tokenizes nothing.
        """
        return await self._learn(render_key((), rendering.template_args), rendering)

    @one_asks
    async def _learn(self, key: str, rendering: Rendering) -> LearnedCalls | None:
        if key not in self.known:
            asked = attrs.evolve(rendering, tools=tuple(stand_in_tools()))
            try:
                self.known[key] = await self._learned(asked)
            except RequestError:
                self.known[key] = None
        return self.known[key]

    async def _learned(self, rendering: Rendering) -> LearnedCalls | None:
        for count, as_text, answered in product((2, 1), (False, True), (False, True)):
            called = await self._called(rendering, count, as_text=as_text, answered=answered)
            if called is None:
                continue
            if NAMES[0] not in called[called.rfind(ASKED) :]:
                return None  # it writes no calls
            turn = {"role": "assistant", "content": SAID}
            said = await self._text(around(turn, answered=answered), rendering)
            syntax = None if said is None else learned(said, called, count)
            if syntax is not None:
                return LearnedCalls(syntax, await self._tags(called), as_text)
        return None

    async def _called(self, rendering: Rendering, count: int, *, as_text: bool, answered: bool) -> str | None:
        """Return a conversation whose turn calls functions; None if the template rejects it."""
        for content in (None, ""):  # some templates demand a text
            for ids in (IDS, NAMED_IDS):
                turn = {**calling(count, ids, as_text=as_text), "content": content}
                called = await self._text(around(turn, answered=answered), rendering)
                if called is None:
                    break
                if NAMES[0] in called[called.rfind(ASKED) :]:
                    return called
            else:
                return called
        return None

    async def _tags(self, called: str) -> Tags:
        """Return the tags of a text that are tokens."""
        found = dict.fromkeys(re.findall(TAG, called[called.rfind(ASKED) :]))
        ids = {tag: await self.tokenizer.encode(tag) for tag in found}
        single = {tag: one[0] for tag, one in ids.items() if len(one) == 1}
        pattern = any_of(sorted(single, key=len, reverse=True)) if single else re.compile(r"(?!)")
        return Tags(single, pattern=pattern)

    async def own(self, rendering: Rendering | None) -> LearnedCalls | None:
        """Return the syntax in which the template writes calls, if that is not the Hermes format."""
        learned = await self.learn(rendering) if rendering is not None and rendering.tools else None
        return None if learned is None or is_hermes(learned.syntax) else learned

    async def reread(
        self, learned: LearnedCalls, found: ParsedMessage, start: Thought, turn: Completion
    ) -> ParsedMessage:
        """Return what was `found` in a completion, with the calls that stand in it after its `start`."""
        rendering = turn.rendering or Rendering()
        marks = await sampled_marks(self.tokenizer, learned.tags, turn)
        spelled = spelled_places(turn.text, learned.tags, marks, start.begin)
        pieces, calls = learned.syntax.read(turn.text[start.begin :], rendering.tools, spelled)
        if not calls:
            return found
        named = [(call.name, call.arguments) for call in calls]
        for identities in ([call.id for call in calls], ()):  # Mistral's templates reject some ids
            # Only calls are asked for: text beside them may hold calls that are broken.
            asked = ParsedMessage(None, "", tuple(named), tuple(identities)).message("call")
            if await self._is_written_so(learned, asked, calls, rendering):
                return start.message(pieces, named, identities)
        return attrs.evolve(found, notices=(KEPT,))

    async def _is_written_so(
        self, learned: LearnedCalls, message: Message, calls: Sequence[ReadCall], rendering: Rendering
    ) -> bool:
        """Return whether the same calls are read from what the template writes of a message with them."""
        expected = [learned.syntax.written(call) for call in calls]
        for as_text in (learned.as_text, not learned.as_text):
            text = await self._text(around(_with_arguments(message, as_text=as_text)), rendering)
            if text is not None:
                start = text.rfind(ASKED) + len(ASKED)
                start = max(text.find("{", start), start) if learned.syntax.bare else start
                again = learned.syntax.read(text[start:], rendering.tools)[1]
                if [learned.syntax.written(call) for call in again] == expected:
                    return True
        return False

    async def _text(self, messages: Sequence[Message], rendering: Rendering) -> str | None:
        """Return the text of a conversation; None if the template rejects it."""
        try:
            ids = await self.render(messages, rendering, add_generation_prompt=False)
        except TemplateRefused:
            return None
        return await self.tokenizer.decode(ids)


@attrs.define
class CallTextFilter:
    """A callback of a streamed turn that passes on no text of calls: it comes with the whole message.

    Ids are passed on at once. Text that waited comes without ids, so that it is not taken for a tag's own.

    Attributes:
        watch: The callback.
        syntax: How calls are written.
    """

    watch: Watch
    syntax: CallSyntax
    _waiting: dict[int, str] = attrs.field(factory=dict, init=False)
    """By turn: what may be the beginning of a call."""
    _begun: dict[int, bool] = attrs.field(factory=dict, init=False)
    """By turn: whether calls have begun; a bare object is one at the turn's beginning alone."""

    async def __call__(self, delta: Delta) -> None:
        """Pass a delta on."""
        waited = self._waiting.pop(delta.index, "")
        free = "" if self._begun.get(delta.index) else self._free(delta.index, waited + delta.text)
        if not waited and free == delta.text:
            await self.watch(delta)
            return
        await self.watch(attrs.evolve(delta, text=""))
        if free:
            await self.watch(Delta(text=free, index=delta.index, thinking=delta.thinking))

    def _free(self, index: int, text: str) -> str:
        """Return the text that belongs to no call; keep what may."""
        sign = self.syntax.sign
        if self.syntax.bare:
            if index not in self._begun and text.strip():
                self._begun[index] = text.lstrip().startswith(sign)
            return "" if self._begun.get(index) else text
        place = text.find(sign)
        if place >= 0:
            self._begun[index] = True
            return text[:place]
        sizes = range(min(len(sign) - 1, len(text)), 0, -1)
        size = next((size for size in sizes if text.endswith(sign[:size])), 0)
        if size:
            self._waiting[index] = text[-size:]
        return text[: len(text) - size]


def is_hermes(syntax: CallSyntax) -> bool:
    """Return whether the parser of the Hermes format reads a syntax: it takes more, such as cut calls."""
    tagged = syntax.begin == re.escape(CALL) and syntax.end == re.escape(CALLED)
    return syntax.kind == "object" and tagged and syntax.keys == ("name", "arguments")


def spelled_places(text: str, tags: Tags, marks: Sequence[Mark], begin: int) -> list[int]:
    """Return where a text spells tags in letters, from `begin` on, counted from there.

    >>> tags = Tags({"<a>": 7}, pattern=re.compile("<a>"))
    >>> spelled_places("x<a><a>", tags, [Mark("<a>", 4, 7)], 1)
    [0]
    """
    real = {mark.start for mark in marks}
    found = (match.start() for match in tags.pattern.finditer(text, begin))
    return [place - begin for place in found if place not in real]


def _with_arguments(message: Message, *, as_text: bool) -> Message:
    """Return a message whose calls have their arguments as text, or as objects."""
    calls = [dict(call) for call in message["tool_calls"]]
    for call in calls:
        function: Mapping[str, Any] = call["function"]
        arguments = function["arguments"]
        call["function"] = {**function, "arguments": arguments if as_text else json.loads(arguments)}
    return {**message, "tool_calls": calls}
