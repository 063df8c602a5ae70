"""The conversations that every template is asked about."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

import attrs

from tito_core import OddStop

Message = Mapping[str, Any]
TOOL: Message = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Report the weather.",
        "parameters": {
            "type": "object",
            "properties": {
                "days": {"type": "integer", "description": "How many days."},
                "place": {"type": "object", "description": "Where."},
            },
            "required": ["place"],
        },
    },
}
IDS = ("aB3dE5gH7", "bC4eF6hI8", "cD5fG7iJ9")
"""Nine letters and digits: Mistral's templates take nothing else."""
SYSTEM: Message = {"role": "system", "content": "Answer in one word."}
QUESTION: Message = {"role": "user", "content": "Where is it raining?"}
LATER: Message = {"role": "system", "content": "Answer in two words."}
NEXT: Message = {"role": "user", "content": "And tomorrow?"}
MORE: Message = {"role": "user", "content": "Or on Sunday?"}
EARLIER: Message = {"role": "assistant", "content": "Bergen"}
REASONING = "It rains there."
THOUGHT = dict.fromkeys(("reasoning_content", "reasoning"), REASONING)
RESULTS = ("rain, 7 C", "snow, 2 C", "wind, 9 C")
SPOKEN, STOPPED_TEXT = "Fjord", "It is in the north."
"""What the sampled turn says. The second ends with a mark that tokenizers merge with what follows it."""


class End(Enum):
    """How the sampled turn ended."""

    STOP = "with the stop that the template writes"
    CUT = "it was cut short"
    ODD = "with a stop that the template never writes"


@attrs.frozen
class Spelling:
    """How turns with calls are written: as much as templates disagree on.

    Attributes:
        content: The content beside the calls.
        as_object: Whether arguments are an object; else their JSON text.
        is_tree: Whether they are a tree with a number; else one text, since some templates take nothing else.
    """

    content: str | None
    as_object: bool
    is_tree: bool = True


SPELLINGS = tuple(
    Spelling(content, as_object, is_tree)
    for is_tree in (True, False)
    for content in ("", None, SPOKEN)
    for as_object in (True, False)
)


@attrs.frozen(kw_only=True)
class Conversation:
    """A history, the sampled turn, and what follows it.

    Attributes:
        shape: Its name.
        history: The messages before the turn.
        environment: The messages after it.
        text: What the turn says: its content, and each call's argument.
        calls: How many calls the turn has.
        thinks: Whether it has reasoning.
        end: How it ended.
        odd_stop: The policy for odd stops.
        spelling: How calls are written.
    """

    shape: str
    history: tuple[Message, ...]
    environment: tuple[Message, ...]
    text: str = SPOKEN
    calls: int = 0
    thinks: bool = False
    end: End = End.STOP
    odd_stop: OddStop = OddStop.REFUSE
    spelling: Spelling = SPELLINGS[0]

    @property
    def turn(self) -> Message:
        """The sampled turn."""
        return self.saying(self.text)

    def saying(self, text: str) -> Message:
        """Return the turn with another text everywhere."""
        message: dict[str, Any] = {"role": "assistant", "content": text, **(THOUGHT if self.thinks else {})}
        if self.calls:
            words = self.marks(text)
            calls = [call(IDS[i], words[i], self.spelling) for i in range(self.calls)]
            content = words[-1] if self.spelling.content else self.spelling.content
            message |= {"content": content, "tool_calls": calls}
        return message

    def marks(self, text: str) -> tuple[str, ...]:
        """Return what each place of the turn says if it says `text`: each call, then the content."""
        if not self.calls:
            return (text,)
        content = (f"0{text}",) if self.spelling.content else ()
        return (*(f"{place + 1}{text}" for place in range(self.calls)), *content)

    def prompt(self, text: str | None = None) -> list[Message]:
        """Return the messages of the next request, in which the turn may say another text."""
        return [*self.history, self.turn if text is None else self.saying(text), *self.environment]


def call(identifier: str, city: str, spelling: Spelling) -> dict[str, Any]:
    """Return a call. Its arguments are a tree; what is looked for stands at the end in any order of keys."""
    tree = {"days": 2, "place": {"city": city}} if spelling.is_tree else {"place": city}
    arguments = tree if spelling.as_object else json.dumps(tree)
    return {"id": identifier, "type": "function", "function": {"name": "weather", "arguments": arguments}}


def result(place: int) -> Message:
    """Return the result of a call."""
    return {"role": "tool", "tool_call_id": IDS[place], "name": "weather", "content": RESULTS[place]}


def loop(spelling: Spelling, *, thinks: bool = True) -> tuple[Message, Message]:
    """Return an earlier turn with a call, and its result."""
    content = "Let me look." if spelling.content else spelling.content
    turn = {"role": "assistant", "content": content, "tool_calls": [call(IDS[2], "Tromso", spelling)]}
    return {**turn, **(THOUGHT if thinks else {})}, result(2)


def plain(spelling: Spelling) -> Iterator[Conversation]:
    """Yield conversations whose turn has no calls."""
    start: tuple[Message, ...] = (SYSTEM, QUESTION)
    again = (QUESTION, EARLIER, NEXT)

    def shape(name: str, history: Sequence[Message], *new: Message, **options: Any) -> Conversation:
        return Conversation(shape=name, history=tuple(history), environment=new, spelling=spelling, **options)

    yield shape("user", start, NEXT)
    yield shape("user, no system text", (QUESTION,), NEXT)
    yield shape("user after a full stop", start, NEXT, text=STOPPED_TEXT)
    yield shape("user in a longer conversation", again, MORE)
    yield shape("user after reasoning", start, NEXT, thinks=True)
    yield shape("user after a cut turn", start, NEXT, end=End.CUT)
    yield shape("user after an odd stop: refuse", start, NEXT, end=End.ODD)
    for choice in (OddStop.REPLACE, OddStop.KEEP):
        name = f"user after an odd stop: {choice.name.lower()}"
        yield shape(name, start, NEXT, end=End.ODD, odd_stop=choice)
    yield shape("two users", start, NEXT, MORE)
    yield shape("system", start, LATER)
    yield shape("system then user", start, LATER, NEXT)
    yield shape("user after a turn after a system message", (*again, LATER), MORE)


def in_loops(spelling: Spelling) -> Iterator[Conversation]:
    """Yield conversations with calls."""
    start: tuple[Message, ...] = (SYSTEM, QUESTION)
    looped = (*start, *loop(spelling))

    def shape(name: str, history: Sequence[Message], *new: Message, **options: Any) -> Conversation:
        return Conversation(shape=name, history=tuple(history), environment=new, spelling=spelling, **options)

    yield shape("user after a tool loop", looped, NEXT)
    yield shape("user after reasoning in a tool loop", looped, NEXT, thinks=True)
    yield shape("tool", start, result(0), calls=1)
    yield shape("tool, no system text", (QUESTION,), result(0), calls=1)
    yield shape("two tools", start, result(0), result(1), calls=2)
    yield shape("tool then user", start, result(0), NEXT, calls=1)
    yield shape("tool after a tool loop", (*start, *loop(spelling, thinks=False)), result(0), calls=1)
    yield shape("tool after reasoning", start, result(0), calls=1, thinks=True)
    yield shape("tool after a cut turn", start, result(0), calls=1, end=End.CUT)


def conversations(spelling: Spelling) -> list[Conversation]:
    """Return every conversation with this spelling."""
    return [*plain(spelling), *in_loops(spelling)]


SHAPES = tuple(one.shape for one in conversations(SPELLINGS[0]))
