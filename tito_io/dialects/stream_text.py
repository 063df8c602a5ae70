"""Read the deltas of a streamed turn: which text is certain before the turn is over.

Deltas bring text in which tags of reasoning and tool calls may stand (`tito_io.engines.replies.hermes`,
`harmony`). Only text that the final message certainly begins with is sent; the rest waits for the whole
message. A tag counts where it came as the text of one id alone, for then it was sampled as a tag. Letters
that spell out a tag are text, so that everything else that looks like a tag waits.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from functools import cache, cached_property
from typing import ClassVar

import attrs

from tito_core import Message
from tito_io.engines.protocol import Delta
from tito_io.engines.replies.harmony import MARKERS
from tito_io.engines.replies.hermes import CALL, THINKS, THOUGHTS

from .message_parts import AssistantParts
from .protocol import ParsedRequest, ReplyStamp, StreamMismatchError, StreamReading

RECIPIENT = "to="
"""How harmony's header of a tool call goes on where the prompt has opened the header."""
OPENINGS = (*THINKS, *THOUGHTS, CALL, RECIPIENT, *MARKERS)


class TextPlace(Enum):
    """Where in a turn the text is; from `BUFFER` on, everything waits for the end."""

    START = auto()
    REASONING = auto()
    CONTENT = auto()
    BUFFER = auto()


@attrs.frozen
class CertainText:
    """Text that has become certain; empty where none has."""

    reasoning: str = ""
    content: str = ""


@attrs.define
class StreamText:
    """The reader of one turn's deltas."""

    tools: bool
    """Whether the turn may have tool calls."""
    place: TextPlace
    reasoning: list[str] = attrs.field(init=False, factory=list)
    """The reasoning that was returned."""
    content: list[str] = attrs.field(init=False, factory=list)
    """The content that was returned."""
    _text: str = attrs.field(init=False, default="")
    """Text that is not decided yet."""
    _reasoning_closed: bool = attrs.field(init=False, default=False)

    @classmethod
    def of(cls, reading: StreamReading | None, *, tools: bool, ordered: bool) -> StreamText:
        """Begin to read; `ordered` where the API cannot send reasoning after content."""
        reading = reading or StreamReading()
        if reading.buffered or (ordered and reading.hidden_reasoning):
            return cls(tools, TextPlace.BUFFER)
        return cls(tools, TextPlace.REASONING if reading.thinking else TextPlace.START)

    def feed(self, delta: Delta) -> CertainText:
        """Return the text that a delta makes certain."""
        if self.place is TextPlace.BUFFER or not delta.text:
            return CertainText()
        self._text += delta.text
        alone = delta.text if len(delta.ids) == 1 else ""
        if self.place is TextPlace.START:
            self._begin(alone)
        reasoning = self._certain_reasoning(alone) if self.place is TextPlace.REASONING else ""
        content = self._certain_content() if self.place is TextPlace.CONTENT else ""
        self.reasoning += filter(None, (reasoning,))
        self.content += filter(None, (content,))
        return CertainText(reasoning, content)

    def remaining(self, message: Message) -> CertainText:
        """Return the text of the final message that was not returned yet.

        Raises `StreamMismatchError` where the message does not begin with what was returned.
        """
        parts, reasoning, content = AssistantParts.of(message), "".join(self.reasoning), "".join(self.content)
        if not (parts.reasoning.startswith(reasoning) and parts.content.startswith(content)):
            raise StreamMismatchError("the turn's message does not begin with what was streamed of it")
        if reasoning and content and parts.reasoning != reasoning:
            raise StreamMismatchError("the turn's reasoning goes on after the content that was streamed")
        return CertainText(parts.reasoning[len(reasoning) :], parts.content[len(content) :])

    def _begin(self, alone: str) -> None:
        """Decide what the turn begins with, where that is certain."""
        text = self._text.lstrip()
        if text.startswith(THINKS):
            opened = text == alone and text in THINKS
            self.place = TextPlace.REASONING if opened else TextPlace.BUFFER
            self._text = ""
        elif text.startswith(RECIPIENT):
            self.place = TextPlace.BUFFER
        elif text and not any(tag.startswith(text) for tag in OPENINGS):
            self.place = TextPlace.CONTENT

    @property
    def _calls(self) -> tuple[str, ...]:
        """The tags with which calls may begin."""
        return (CALL,) if self.tools else ()

    def _certain_reasoning(self, alone: str) -> str:
        # Line breaks around reasoning belong to the template; they are not in the final message.
        text = self._text if self.reasoning else self._text.lstrip("\n")
        openings = () if self.reasoning else THINKS
        before, tag = _before_tag(text, (*THOUGHTS, *openings, *self._calls, *MARKERS))
        certain = before.rstrip("\n")
        if tag not in THOUGHTS and not self.reasoning and not certain.strip():
            certain = ""  # reasoning may be opened once more
        if tag:
            # Letters may spell the tag out, too. Only the tag's own token closes reasoning for certain.
            real = tag == alone and tag in THOUGHTS and text.endswith(tag)
            self.place = TextPlace.CONTENT if real else TextPlace.BUFFER
            self._reasoning_closed, self._text = True, ""
        else:
            self._text = text[len(certain) :]
        return certain

    def _certain_content(self) -> str:
        fresh = self._reasoning_closed and not self.content
        text = self._text.lstrip("\n") if fresh else self._text
        closings = () if self._reasoning_closed else THOUGHTS
        certain, tag = _before_tag(text, (*self._calls, *closings, *MARKERS))
        if self.tools or tag:
            certain = certain.rstrip("\n")  # line breaks before a tool call belong to the template
        if self.tools and not self.content and not certain.strip():
            certain = ""  # white space alone before a tool call is no content
        self._text = text[len(certain) :]
        if tag:
            self.place = TextPlace.BUFFER
        return certain


@attrs.define
class OrderedStream:
    """A stream of an API that sends the parts of an answer one after the other: reasoning, then content.

    Attributes:
        request: The request.
        stamp: What is known of the answer before it is sampled.
        reading: How the deltas are read.
        open: The kind of the open part; empty where none is open.
    """

    REASONING: ClassVar[str]
    CONTENT: ClassVar[str]
    """The kinds of the parts."""

    request: ParsedRequest
    stamp: ReplyStamp
    reading: StreamReading | None = attrs.field(default=None, init=False)
    open: str = attrs.field(default="", init=False)

    @cached_property
    def text(self) -> StreamText:
        """The reader of the deltas, made when the first one comes."""
        return StreamText.of(self.reading, tools=bool(self.request.tools), ordered=True)

    def delta(self, delta: Delta) -> bytes:
        """Return the events that a delta makes certain; such an API has one choice alone."""
        return self.send(self.text.feed(delta)) if delta.index == 0 else b""

    def send(self, text: CertainText) -> bytes:
        """Return the events of a text: reasoning first, unless content is open."""
        parts, events = [(self.REASONING, text.reasoning), (self.CONTENT, text.content)], b""
        for kind, more in reversed(parts) if self.open == self.CONTENT else parts:
            if more:
                opened = b"" if self.open == kind else self.open_part(kind)
                events += opened + self.grow(kind, more)
        return events

    def open_part(self, kind: str) -> bytes:
        """Return the events that close the open part, and open one of this kind."""
        raise NotImplementedError

    def grow(self, kind: str, more: str) -> bytes:
        """Return the event that adds text to the open part."""
        raise NotImplementedError


def _before_tag(text: str, tags: tuple[str, ...]) -> tuple[str, str]:
    """Return the text before the first tag, and the tag; without a tag, the text that cannot become one.

    >>> _before_tag("so <tool_call>x", ("<tool_call>",)), _before_tag("so <to", ("<tool_call>",))
    (('so ', '<tool_call>'), ('so ', ''))
    """
    places = [(place, tag) for tag in tags if (place := text.find(tag)) >= 0]
    if places:
        place, tag = min(places)
        return text[:place], tag
    begun = _begun(tags).search(text)
    return (text if begun is None else text[: begun.start()]), ""


@cache
def _begun(tags: tuple[str, ...]) -> re.Pattern[str]:
    """Return what matches the beginning of a tag at the end of a text."""
    return re.compile("|".join(rf"{re.escape(tag[:size])}\Z" for tag in tags for size in range(1, len(tag))))
