"""What of a stream's text is certain before the turn is over.

Deltas bring text in which tags of thoughts and calls may stand (`tito_io.engines.replies.hermes`, `harmony`).
Only text that the final message certainly begins with is sent; the rest waits for the whole message.
A tag is believed where it came as the text of one id alone, for then it was sampled as a tag. Everything else
that looks like one is held, since letters that spell a tag out are text.
"""

from __future__ import annotations

from enum import Enum, auto

import attrs

from tito_core import Message
from tito_io.engines.protocol import Delta
from tito_io.engines.replies.harmony import MARKERS
from tito_io.engines.replies.hermes import CALL, THINK, THOUGHT

from .message_parts import Spoken
from .protocol import StreamMismatchError, StreamReading

RECIPIENT = "to="
"""How harmony's header of a call goes on where the prompt has opened it."""
OPENINGS = (THINK, THOUGHT, CALL, RECIPIENT, *MARKERS)


class TextPlace(Enum):
    """Where in a turn the text is."""

    BEFORE = auto()
    THOUGHT = auto()
    SAID = auto()
    HELD = auto()


@attrs.frozen
class CertainText:
    """What has become certain; empty where nothing has."""

    reasoning: str = ""
    content: str = ""


@attrs.define
class StreamText:
    """The reader of one turn's deltas."""

    tools: bool
    """Whether there is anything to call."""
    place: TextPlace
    thought: list[str] = attrs.field(init=False, factory=list)
    """What was told of the thought."""
    said: list[str] = attrs.field(init=False, factory=list)
    """What was told of the content."""
    _text: str = attrs.field(init=False, default="")
    """What is not decided yet."""
    _closed: bool = attrs.field(init=False, default=False)
    """Whether a thought has been closed."""

    @classmethod
    def of(cls, reading: StreamReading, *, tools: bool, ordered: bool) -> StreamText:
        """Begin to read; `ordered` where a thought cannot be told of after what was said."""
        if reading.buffered or (ordered and reading.hidden_reasoning):
            return cls(tools, TextPlace.HELD)
        return cls(tools, TextPlace.THOUGHT if reading.thinking else TextPlace.BEFORE)

    def fed(self, delta: Delta) -> CertainText:
        """Return what a delta makes certain."""
        if self.place is TextPlace.HELD or not delta.text:
            return CertainText()
        self._text += delta.text
        alone = delta.text if len(delta.ids) == 1 else ""
        if self.place is TextPlace.BEFORE:
            self._begun(alone)
        reasoning = self._told_thought(alone) if self.place is TextPlace.THOUGHT else ""
        content = self._told_content() if self.place is TextPlace.SAID else ""
        self.thought += filter(None, (reasoning,))
        self.said += filter(None, (content,))
        return CertainText(reasoning, content)

    def rest(self, message: Message) -> CertainText:
        """Return what is left to tell of; raises `StreamMismatchError` where something else was told."""
        whole, thought, said = Spoken.of(message), "".join(self.thought), "".join(self.said)
        if not (whole.reasoning.startswith(thought) and whole.content.startswith(said)):
            raise StreamMismatchError("the turn's message does not begin with what was streamed of it")
        if thought and said and whole.reasoning != thought:
            raise StreamMismatchError("the turn's thought goes on behind the content that was streamed")
        return CertainText(whole.reasoning[len(thought) :], whole.content[len(said) :])

    def _begun(self, alone: str) -> None:
        """Find out what the turn begins with, where that can be told."""
        text = self._text.lstrip()
        if text.startswith(THINK):
            self.place = TextPlace.THOUGHT if text == alone == THINK else TextPlace.HELD
            self._text = ""
        elif text.startswith(RECIPIENT):
            self.place = TextPlace.HELD
        elif text and not any(tag.startswith(text) for tag in OPENINGS):
            self.place = TextPlace.SAID

    def _told_thought(self, alone: str) -> str:
        """Return what was thought for certain: without the line breaks around it."""
        text = self._text if self.thought else self._text.lstrip("\n")
        certain, tag, _ = _parted(text, (THOUGHT, *MARKERS))
        if tag:
            real = tag == alone == THOUGHT and text.endswith(tag)
            self.place, self._closed, self._text = (TextPlace.SAID if real else TextPlace.HELD), True, ""
            return certain.rstrip("\n")
        certain = certain.rstrip("\n")
        self._text = text[len(certain) :]
        return certain

    def _told_content(self) -> str:
        """Return what was said for certain: without the line breaks that may set a call off."""
        fresh = self._closed and not self.said
        text = self._text.lstrip("\n") if fresh else self._text
        tags = (*((CALL,) if self.tools else ()), *(() if self._closed else (THOUGHT,)), *MARKERS)
        certain, tag, _ = _parted(text, tags)
        certain = certain.rstrip("\n") if self.tools or tag else certain
        self._text = text[len(certain) :]
        if tag:
            self.place = TextPlace.HELD
        return certain


def _parted(text: str, tags: tuple[str, ...]) -> tuple[str, str, str]:
    """Return the text before the first tag, the tag and the rest; without what may become a tag.

    >>> _parted("so <tool_call>x", ("<tool_call>",)), _parted("so <to", ("<tool_call>",))
    (('so ', '<tool_call>', 'x'), ('so ', '', '<to'))
    """
    found = min(((place, tag) for tag in tags if (place := text.find(tag)) >= 0), default=None)
    if found:
        place, tag = found
        return text[:place], tag, text[place + len(tag) :]
    longest = max(map(len, tags)) - 1
    sizes = range(min(longest, len(text)), 0, -1)
    open_ = next((size for size in sizes if any(tag.startswith(text[-size:]) for tag in tags)), 0)
    return text[: len(text) - open_], "", text[len(text) - open_ :]
