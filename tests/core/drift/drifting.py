"""Conversations that go on by ids, and a toy family that would render them in whatever way a test needs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from tests.toys.steady import CHATML
from tests.toys.tokenizer import Tokenizer
from tests.toys.toy import calls_of, reasoning_of, text_of
from tito_core import Message, Step, TemplateRefused, render_key
from tito_core.drift.audit import Audited, audit
from tito_core.samples import Forest, StoredCall

Voice = Callable[[Message, bool], str]
"""Writes what an assistant said; told whether it is history, that is, whether a user spoke after it."""

END, START, OTHER_END = "<|im_end|>", "<|im_start|>", "<|endoftext|>"


def spoken(message: Message, _: bool = False) -> str:
    """Write thinking, content and calls as they are; the calls' JSON as `json.dumps` has it."""
    thought = f"<think>{reasoning_of(message)}</think>" if reasoning_of(message) else ""
    return thought + text_of(message) + "".join(map(called, calls_of(message)))


def called(call: Message) -> str:
    function = call["function"]
    arguments = function["arguments"]
    held = json.loads(arguments) if isinstance(arguments, str) else arguments
    return f"<tool_call>{json.dumps({'name': function['name'], 'arguments': held})}</tool_call>"


def forgetful(message: Message, history: bool) -> str:
    """Drop thinking from history, also where it stands in the content."""
    text = spoken(message)
    return text.rpartition("</think>")[2] if history else text


def trimming(message: Message, history: bool) -> str:
    return spoken(message).strip() if history else spoken(message)


def shouting(message: Message, history: bool) -> str:
    return spoken(message).upper() if history else spoken(message)


def closing(message: Message, _: bool) -> str:
    """Close thinking that is open."""
    text = spoken(message)
    return f"{text}</think>" if "<think>" in text and "</think>" not in text else text


@attrs.frozen
class Family:
    """A toy family with tools in its opening."""

    voice: Voice = spoken
    opening: str = ""
    end: str = END
    tokenizer: Tokenizer = CHATML
    refuses: tuple[str, ...] = ()
    count: list[int] = attrs.field(factory=list)

    @property
    def markers(self) -> frozenset[int]:
        return frozenset(self.tokenizer.encode(START + END + OTHER_END))

    def ids(
        self, messages: Sequence[Message], key: str | None, *, add_generation_prompt: bool
    ) -> Sequence[int]:
        self.count.append(len(messages))
        return self.tokenizer.encode(self.write(messages, key, speak=add_generation_prompt))

    def write(self, messages: Sequence[Message], key: str | None, *, speak: bool) -> str:
        tools = json.loads(key)[0] if key else []
        text = self.opening + (f"{START}system\ntools: {json.dumps(tools)}{END}\n" if tools else "")
        asked = max((i for i, message in enumerate(messages) if message["role"] == "user"), default=-1)
        for place, message in enumerate(messages):
            if message["role"] in self.refuses:
                raise TemplateRefused(f"no {message['role']}")
            said = self.voice(message, place < asked) if message["role"] == "assistant" else text_of(message)
            text += f"{START}{message['role']}\n{said}{self.end}\n"
        return text + f"{START}assistant\n" * speak

    def text(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids)

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)


TOY = Family()
"""What conversations are sampled and stitched with: it keeps everything."""


def user(text: str = "go on") -> dict[str, Any]:
    return {"role": "user", "content": text}


def says(content: str | None = "yes", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def calls(name: str, arguments: Any) -> list[dict[str, Any]]:
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
class Talk:
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
        asked: Sequence[Message] = (),
        ids: Sequence[int] | None = None,
        prompt_ids: Sequence[int] | None = None,
        truncated: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        silent: bool = False,
    ) -> Talk:
        """Take a turn in which `text`, or `ids`, is sampled and becomes `message`."""
        last = self.calls[-1] if self.calls else None
        before: list[Message] = [] if last is None else list(last.step.messages)
        new = list(asked or [user()])
        key = render_key(self.tools if tools is None else tools)
        messages = [*before, *new] if prompt is None else list(prompt)
        sent = prompt_ids if prompt_ids is not None else self._prompt_ids(last, messages, new, key)
        sampled = TOY.encode(text if truncated else text + END) if ids is None else list(ids)
        said = [] if silent else [says(text) if message is None else message]
        step = Step(
            prompt=messages,
            completion=said,
            prompt_ids=sent,
            completion_ids=sampled,
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
        tail = TOY.write(new, None, speak=True)
        return [*last.ids.tolist(), *close, *TOY.encode("\n" + tail)]

    def audit(self, family: Family = TOY, **more: Any) -> Audited:
        return audit(Forest.of(self.calls), family, **more)


def found(audited: Audited) -> list[tuple[str, str, str]]:
    """Return turn, part and cause of each break, the other causes after it."""
    return [
        (one.turn, one.part.name, "+".join(cause.name for cause in (one.cause, *one.also)))
        for one in audited.breaks
    ]
