"""A toy model family: a template, a tokenizer, and the truth about both."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from tests.toys.page import Page
from tests.toys.tokenizer import Tokenizer

Message = Mapping[str, Any]
Writer = Callable[[Page, Sequence[Message], bool], None]
ALL_ROLES = ("system", "user", "assistant", "tool")


@attrs.frozen(eq=False)
class Toy:
    """A family small enough to be all quirk.

    `close` is what the template truly writes after an ordinary assistant turn that is followed by another,
    `stops` are the special strings at which its engine stops, `roles` what its template takes, and
    `quirk` says in a sentence what is odd.
    """

    name: str
    quirk: str
    write: Writer
    tokenizer: Tokenizer
    close: str
    stops: tuple[str, ...]
    roles: tuple[str, ...] = ALL_ROLES
    keeps: bool = False
    """Whether the render of a longer conversation begins with the words of the shorter one."""
    fickle: bool = False
    """Whether two identical questions may get two answers."""

    @property
    def suffix(self) -> tuple[int, ...]:
        """The ids that close an ordinary assistant turn."""
        return tuple(self.tokenizer.encode(self.close))

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The ids at which the engine of this family stops."""
        return tuple(number for stop in self.stops for number in self.tokenizer.encode(stop))

    def page(self, messages: Sequence[Message], *, speak: bool) -> Page:
        """Render; `speak` asks for the generation prompt."""
        page = Page()
        self.write(page, messages, speak)
        return page

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        """Answer as a `tokenize_fn` does."""
        return self.tokenizer.encode(self.page(messages, speak=add_generation_prompt).text)

    def words(self, messages: Sequence[Message]) -> str:
        """Return the last message's own text, as the template writes it."""
        page = self.page(messages, speak=False)
        start, stop = page.bodies.get(len(messages) - 1, (0, 0))
        return page.text[start:stop]

    def sample(self, messages: Sequence[Message], *, mask: int = 0) -> list[int]:
        """Return ids that a model may have sampled for the last message, without its stop."""
        return self.tokenizer.spell(self.words(messages), mask)

    def __repr__(self) -> str:
        return f"<toy {self.name}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Keep hypothesis' reports short."""
        del cycle
        printer.text(repr(self))


def text_of(message: Message) -> str:
    """Return the content as most templates read it: a string, the texts of its parts, nothing for nothing."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content or ())


def reasoning_of(message: Message) -> str:
    """Return the thinking, under either of its names."""
    return str(message.get("reasoning_content") or message.get("reasoning") or "")


def calls_of(message: Message) -> Sequence[Message]:
    """Return the tool calls, none for none."""
    return message.get("tool_calls") or ()


def arguments_of(call: Message) -> Any:
    """Return what the call carries: JSON text or a mapping."""
    return call["function"].get("arguments")


def as_is(arguments: Any) -> str:
    """Write JSON text as it came and anything else as JSON, which is what most templates do.

    >>> as_is('{"a":1}'), as_is({"a": 1})
    ('{"a":1}', '{"a": 1}')
    """
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def hermes_calls(message: Message, spelled: Callable[[Any], str] = as_is) -> str:
    """Write each call as `<tool_call>{"name": ..., "arguments": ...}</tool_call>`."""
    called = [(call["function"]["name"], spelled(arguments_of(call))) for call in calls_of(message)]
    return "".join(
        f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>' for name, arguments in called
    )


def thought(message: Message) -> str:
    """Write the thinking in its block, or nothing."""
    reasoning = reasoning_of(message)
    return f"<think>{reasoning}</think>" if reasoning else ""


def full_text(message: Message) -> str:
    """Write all that a message says: thinking, content, calls."""
    return thought(message) + text_of(message) + hermes_calls(message)


def last_index(messages: Sequence[Message], role: str) -> int:
    """Return where the last message of a role is, -1 for nowhere."""
    return max((index for index, message in enumerate(messages) if message["role"] == role), default=-1)
