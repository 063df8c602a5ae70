"""Messages on the session page: the beginning of each text, and the whole text where the page has room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from tito_core import Message
from tito_core.message import is_media
from tito_core.normalization.media import medium_of
from tito_io.pages.media import short_identity

ROLES = frozenset(("system", "developer", "user", "tool", "assistant"))
ROLE_CHARACTERS, TEXT_CHARACTERS, TEXT_LINES = 32, 160, 8
"""How much of a message stands on the page unfolded."""
TOOL_CALLS = 4
"""How many tool calls of a message stand there."""
FOLDED_CHARACTERS = 250_000
"""How many characters of folded texts a page has."""
TAGS = 100
"""What a folded message or call counts beside its text."""


@attrs.define
class Room:
    """The room that a page has left for folded texts.

    Attributes:
        characters: How many characters fit.
        left_out: How many texts, calls and messages did not fit.

    >>> room = Room(5)
    >>> room.takes(4), room.takes(2), room.takes(1), room.left_out
    (True, False, True, 1)
    """

    characters: int
    left_out: int = 0

    def takes(self, characters: int) -> bool:
        """Take the room for a text; False, and count it, where it does not fit."""
        fits = characters <= self.characters
        self.characters -= characters * fits
        self.left_out += not fits
        return fits


@attrs.frozen
class Excerpt:
    """The beginning of a text.

    Attributes:
        beginning: It ends with … where the text is cut.
        whole: The whole text.
        cut: Whether `beginning` leaves something out.
        opens: Whether the page holds the whole text, too.
    """

    beginning: str
    whole: str
    cut: bool
    opens: bool = False

    @classmethod
    def of(cls, text: str) -> Excerpt:
        r"""Return the beginning of a text with its line breaks.

        >>> Excerpt.of("\n two\r\n lines ").beginning, len(Excerpt.of("x" * 999).beginning)
        (' two\n lines', 161)
        >>> Excerpt.of("a\n" * 99).beginning
        'a\na\na\na\na\na\na\na…'
        """
        whole = text.replace("\r\n", "\n").strip("\n").rstrip()  # the first line's indentation stays
        beginning = "\n".join(whole[:TEXT_CHARACTERS].split("\n")[:TEXT_LINES])
        cut = beginning != whole
        return cls(beginning.rstrip() + "…" if cut else whole, whole, cut)

    @classmethod
    def of_call(cls, call: Any) -> Excerpt:
        r"""Return the beginning of a tool call on one line.

        >>> Excerpt.of_call({"function": {"name": "run", "arguments": "two\n lines"}}).beginning
        'run two lines'
        >>> len(Excerpt.of_call({"arguments": "x" * 999}).beginning)
        161
        """
        function = call.get("function", call) if isinstance(call, dict) else {}
        if not isinstance(function, dict):
            function = {}
        whole = f"{function.get('name')} {function.get('arguments') or ''}".strip()
        begins = whole[: 4 * TEXT_CHARACTERS]
        words = " ".join(begins.split())
        cut = len(words) > TEXT_CHARACTERS or begins != whole
        return cls(words[:TEXT_CHARACTERS].rstrip() + "…" if cut else words, whole, cut)

    def within(self, room: Room) -> Excerpt:
        """Return the excerpt with its whole text, where that is longer and there is room for it."""
        return attrs.evolve(self, opens=self.cut and room.takes(len(self.whole)))


@attrs.frozen
class MessageLine:
    """The beginning of a message.

    Attributes:
        role: The message's role.
        kind: The role if it is a known one, else `other`; a CSS class.
        reasoning: The beginning of its reasoning.
        text: The beginning of its content.
        calls: Its first tool calls.
        folded: Its further tool calls, as far as the page has room for them.
        more: How many further tool calls it has.
    """

    role: str
    kind: str
    reasoning: Excerpt
    text: Excerpt
    calls: tuple[Excerpt, ...]
    folded: tuple[Excerpt, ...]
    more: int

    @classmethod
    def of(cls, message: Message) -> MessageLine:
        """Return the beginning of a message."""
        role, calls = str(message["role"]), message.get("tool_calls")
        excerpts = tuple(map(Excerpt.of_call, calls if isinstance(calls, list) else ()))
        return cls(
            role=role[:ROLE_CHARACTERS],
            kind=role if role in ROLES else "other",
            reasoning=Excerpt.of(_text(message.get("reasoning_content") or message.get("reasoning"))),
            text=Excerpt.of(_text(message.get("content"))),
            calls=excerpts[:TOOL_CALLS],
            folded=excerpts[TOOL_CALLS:],
            more=max(len(excerpts) - TOOL_CALLS, 0),
        )

    @property
    def size(self) -> int:
        """What the line takes of a page's room, without what is folded in it."""
        texts = (self.reasoning, self.text, *self.calls)
        return TAGS + sum(TAGS + len(one.beginning) for one in texts if one.beginning)

    def within(self, room: Room) -> MessageLine:
        """Return the line with the whole texts and the further calls that there is room for."""
        return attrs.evolve(
            self,
            text=self.text.within(room),
            reasoning=self.reasoning.within(room),
            calls=tuple(one.within(room) for one in self.calls),
            folded=tuple(one.within(room) for one in self.folded if room.takes(TAGS + len(one.beginning))),
        )


@attrs.frozen
class MessageLines:
    """The messages of a turn: the first and the last ones, and between them those that are folded.

    Attributes:
        first: The first messages.
        folded: Those between, as far as the page has room for them; the newest of them.
        hidden: How many messages are between.
        last: The last messages.
    """

    first: tuple[MessageLine, ...]
    folded: tuple[MessageLine, ...]
    hidden: int
    last: tuple[MessageLine, ...]

    @classmethod
    def of(cls, messages: Sequence[Message], shown: int, room: Room) -> MessageLines:
        """Return the lines of messages, of which `shown` are not folded; the newest take room first."""
        head = len(messages) if len(messages) <= shown else shown // 2
        tail = max(len(messages) - shown // 2, head)
        last = _lines(messages[tail:], room)
        between = list(map(MessageLine.of, reversed(messages[head:tail])))
        folded = [line.within(room) for line in between if room.takes(line.size)]
        return cls(_lines(messages[:head], room), tuple(folded[::-1]), tail - head, last)


def _lines(messages: Sequence[Message], room: Room) -> tuple[MessageLine, ...]:
    lines = [MessageLine.of(message).within(room) for message in reversed(messages)]
    return tuple(lines[::-1])


def _text(content: Any) -> str:
    """Return the text of a message's content; a part that is no text by its type."""
    if isinstance(content, list):
        parts = (part if isinstance(part, dict) else {"text": part} for part in content)
        return " ".join(str(part.get("text") or f"[{_kind(part)}]") for part in parts)
    return "" if content is None else str(content)


def _kind(part: Mapping[str, Any]) -> str:
    """Return what a part is that has no text; a medium with the beginning of its identity.

    >>> _kind({"type": "image_url", "uuid": "cat"}), _kind({"type": "refusal"})
    ('image cat', 'refusal')
    """
    if not is_media(part):
        return str(part.get("type"))
    medium = medium_of(part)
    return " ".join([medium.modality, *([short_identity(medium.identity)] if medium.identity else ())])
