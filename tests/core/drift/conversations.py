"""Conversations to audit, and a toy family that renders them in whatever way a test needs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from tito_core import Message, Step, TemplateRefused, render_key
from tito_core.drift import Audited, audit
from tito_core.samples import Forest, StoredCall
from tito_core.testing.toys.local import CHATML
from tito_core.testing.toys.tokenizer import Tokenizer
from tito_core.testing.toys.toy import calls_of, reasoning_of, text_of

Writer = Callable[[Message, bool], str]
"""Writes an assistant's message; the flag says whether it is history: whether a user's message follows."""

END, START, OTHER_END = "<|im_end|>", "<|im_start|>", "<|endoftext|>"


def whole(message: Message, _: bool = False) -> str:
    """Write reasoning, content and calls as they are; the calls' JSON as `json.dumps` has it."""
    reasoning = f"<think>{reasoning_of(message)}</think>" if reasoning_of(message) else ""
    return reasoning + text_of(message) + "".join(map(call_text, calls_of(message)))


def call_text(call: Message) -> str:
    function = call["function"]
    arguments = function["arguments"]
    parsed = json.loads(arguments) if isinstance(arguments, str) else arguments
    return f"<tool_call>{json.dumps({'name': function['name'], 'arguments': parsed})}</tool_call>"


def forgetful(message: Message, history: bool) -> str:
    """Drop reasoning from history, also where it stands in the content."""
    text = whole(message)
    return text.rpartition("</think>")[2] if history else text


def trimming(message: Message, history: bool) -> str:
    return whole(message).strip() if history else whole(message)


def shouting(message: Message, history: bool) -> str:
    return whole(message).upper() if history else whole(message)


def closing(message: Message, _: bool) -> str:
    """Close reasoning that is open."""
    text = whole(message)
    return f"{text}</think>" if "<think>" in text and "</think>" not in text else text


@attrs.frozen
class Family:
    """A toy family with tools in its opening."""

    writer: Writer = whole
    opening: str = ""
    end: str = END
    tokenizer: Tokenizer = CHATML
    refuses: tuple[str, ...] = ()
    rendered: list[int] = attrs.field(factory=list)
    """Number of messages of each rendering so far."""

    @property
    def markers(self) -> frozenset[int]:
        return frozenset(self.tokenizer.encode(START + END + OTHER_END))

    def ids(
        self, messages: Sequence[Message], key: str | None, *, add_generation_prompt: bool
    ) -> Sequence[int]:
        self.rendered.append(len(messages))
        return self.tokenizer.encode(self.write(messages, key, opener=add_generation_prompt))

    def write(self, messages: Sequence[Message], key: str | None, *, opener: bool) -> str:
        tools = json.loads(key)[0] if key else []
        text = self.opening + (f"{START}system\ntools: {json.dumps(tools)}{END}\n" if tools else "")
        last_user = max((i for i, message in enumerate(messages) if message["role"] == "user"), default=-1)
        for place, message in enumerate(messages):
            role = message["role"]
            if role in self.refuses:
                raise TemplateRefused(f"no {role}")
            body = self.writer(message, place < last_user) if role == "assistant" else text_of(message)
            text += f"{START}{role}\n{body}{self.end}\n"
        return text + f"{START}assistant\n" * opener

    def text(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids)

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)


TOY = Family()
"""What conversations are sampled and stitched with: it keeps everything."""


def user(text: str = "go on") -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(content: str | None = "yes", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def tool_calls(name: str, arguments: Any) -> list[dict[str, Any]]:
    return [{"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}]


def letters(text: str) -> list[int]:
    """Spell text without merges, each special string as its id."""
    ids = []
    for number in TOY.encode(text):
        piece = TOY.text([number])
        special = piece in TOY.tokenizer.specials
        ids += [number] if special or len(piece) == 1 else [100 + ord(letter) for letter in piece]
    return ids


@attrs.define
class Conversation:
    """Grows a conversation call by call."""

    tools: Sequence[Mapping[str, Any]] = ()
    calls: list[StoredCall] = attrs.field(factory=list)
    by_ids: bool = True

    def turn(  # noqa: PLR0913  # each names one thing that may be out of the ordinary
        self,
        text: str,
        message: Message | None = None,
        *,
        prompt: Sequence[Message] | None = None,
        new: Sequence[Message] = (),
        ids: Sequence[int] | None = None,
        prompt_ids: Sequence[int] | None = None,
        truncated: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        without_message: bool = False,
    ) -> Conversation:
        """Add a turn in which `text`, or `ids`, is sampled and becomes `message`."""
        last = self.calls[-1] if self.calls else None
        before: list[Message] = [] if last is None else list(last.step.messages)
        new = list(new or [user()])
        key = render_key(self.tools if tools is None else tools)
        messages = [*before, *new] if prompt is None else list(prompt)
        step = Step(
            prompt=messages,
            completion=[] if without_message else [assistant(text) if message is None else message],
            prompt_ids=self._prompt_ids(last, messages, new, key) if prompt_ids is None else prompt_ids,
            completion_ids=TOY.encode(text if truncated else text + END) if ids is None else list(ids),
            truncated=truncated,
            key=key,
        )
        self.calls.append(StoredCall(name=f"t{len(self.calls)}", order=len(self.calls), step=step))
        return self

    def _prompt_ids(
        self, last: StoredCall | None, messages: Sequence[Message], new: Sequence[Message], key: str
    ) -> list[int]:
        if last is None or not self.by_ids:
            return list(TOY.ids(messages, key, add_generation_prompt=True))
        close = [] if not last.step.truncated else TOY.encode(END)
        tail = TOY.write(new, None, opener=True)
        return [*last.ids.tolist(), *close, *TOY.encode("\n" + tail)]

    def audit(self, family: Family = TOY, **more: Any) -> Audited:
        return audit(Forest.of(self.calls), family, **more)


def causes_of(audited: Audited) -> list[tuple[str, str, str]]:
    """Return turn, part and cause of each break, the other causes after it."""
    return [
        (one.turn, one.part.name, "+".join(cause.name for cause in (one.cause, *one.also)))
        for one in audited.breaks
    ]


TOOLS = [{"type": "function", "function": {"name": "f"}}]


def thinks(reasoning: str = "hm", content: str = "yes") -> dict[str, object]:
    return assistant(content, reasoning_content=reasoning)


SPELLED = letters("abba" + END)


def turns(count: int, *, spelled: int) -> Conversation:
    """Take turns, of which one is spelled as no tokenizer would."""
    conversation = Conversation()
    for number in range(count):
        ids = SPELLED if number == spelled else TOY.encode("abba" + END)
        conversation.turn("abba", ids=ids, new=[user(f"go on {number}")])
    return conversation
