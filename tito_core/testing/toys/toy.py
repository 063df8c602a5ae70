"""A toy model family: a chat template, a tokenizer, and the properties of both."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from .page import Page
from .tokenizer import Tokenizer

Message = Mapping[str, Any]
Writer = Callable[[Page, Sequence[Message], bool], None]
ALL_ROLES = ("system", "user", "assistant", "tool")


@attrs.frozen(eq=False)
class Toy:
    r"""A small model family with one quirk.

    It is called like a `tokenize_fn`: messages in, ids out. It takes no tool schemas.

    Attributes:
        name: Its name, by which `toy_named` finds it.
        quirk: What is odd about the template, in one line.
        write: Writes messages on a `Page`, and the generation prompt if the third argument is true.
        tokenizer: Its tokenizer.
        close: What the template writes after an ordinary assistant turn that another message follows.
        stops: The strings at which the family's engine stops.
        roles: The roles that the template takes.
        keeps: Whether the render of a longer conversation begins with the text of the shorter one.
        nondeterministic: Whether the same messages may get different ids when they are rendered again.

    >>> from tito_core.testing.toys import toy_named
    >>> chatml = toy_named("chatml")
    >>> chatml.decode(chatml([{"role": "user", "content": "Hi"}], add_generation_prompt=True))
    '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n'
    """

    name: str
    quirk: str
    write: Writer
    tokenizer: Tokenizer
    close: str
    stops: tuple[str, ...]
    roles: tuple[str, ...] = ALL_ROLES
    keeps: bool = False
    nondeterministic: bool = False

    @property
    def suffix(self) -> tuple[int, ...]:
        """The ids that close an ordinary assistant turn."""
        return tuple(self.tokenizer.encode(self.close))

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The ids at which the engine of this family stops."""
        return tuple(number for stop in self.stops for number in self.tokenizer.encode(stop))

    def page(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> Page:
        """Render messages to text, with the place of each message in it."""
        page = Page()
        self.write(page, messages, add_generation_prompt)
        return page

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        """Return the ids of the rendered messages."""
        return self.tokenizer.encode(self.page(messages, add_generation_prompt=add_generation_prompt).text)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""
        return self.tokenizer.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""
        return self.tokenizer.decode(ids)

    def body(self, messages: Sequence[Message]) -> str:
        """Return the last message's own text, as the template writes it."""
        page = self.page(messages, add_generation_prompt=False)
        start, stop = page.bodies.get(len(messages) - 1, (0, 0))
        return page.text[start:stop]

    def sample(self, messages: Sequence[Message], *, mask: int = 0) -> list[int]:
        """Return sampled ids of the last message, without a stop; `mask` as in `encode_split`."""
        return self.tokenizer.encode_split(self.body(messages), mask)

    def __repr__(self) -> str:
        return f"<toy {self.name}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Keep hypothesis' reports short."""
        del cycle
        printer.text(repr(self))


def text_of(message: Message) -> str:
    """Return the content as most templates read it: a string, the joined texts of parts, empty for None."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content or ())


def reasoning_of(message: Message) -> str:
    """Return the reasoning, under either of its names."""
    return str(message.get("reasoning_content") or message.get("reasoning") or "")


def calls_of(message: Message) -> Sequence[Message]:
    """Return the tool calls; or an empty tuple."""
    return message.get("tool_calls") or ()


def arguments_of(call: Message) -> Any:
    """Return the arguments of a call: JSON text or a mapping."""
    return call["function"].get("arguments")


def as_is(arguments: Any) -> str:
    """Write JSON text unchanged and anything else as JSON, as most templates do.

    >>> as_is('{"a":1}'), as_is({"a": 1})
    ('{"a":1}', '{"a": 1}')
    """
    return arguments if isinstance(arguments, str) else json.dumps(arguments)


def hermes_calls(message: Message, written_arguments: Callable[[Any], str] = as_is) -> str:
    """Write each call as `<tool_call>{"name": ..., "arguments": ...}</tool_call>`."""
    called = [(call["function"]["name"], written_arguments(arguments_of(call))) for call in calls_of(message)]
    return "".join(
        f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>' for name, arguments in called
    )


def reasoning_block(message: Message) -> str:
    """Write the reasoning in its block; empty without reasoning."""
    reasoning = reasoning_of(message)
    return f"<think>{reasoning}</think>" if reasoning else ""


def full_text(message: Message) -> str:
    """Write reasoning, content and calls of a message."""
    return reasoning_block(message) + text_of(message) + hermes_calls(message)


def last_index(messages: Sequence[Message], role: str) -> int:
    """Return the index of the last message of a role; -1 without one."""
    return max((index for index, message in enumerate(messages) if message["role"] == role), default=-1)
