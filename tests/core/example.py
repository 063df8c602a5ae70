"""An example conversation and chat template for tests that need any."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tito_core import Message, Step, TemplateRefused, TokenizeFn

OPEN, CLOSE, CALLS = 1, 2, 3
ROLES = {"system": 10, "user": 11, "assistant": 12, "tool": 13, "developer": 14}
BASE = 100
"""Each byte of text is one id, from this one on."""


def text(words: str) -> list[int]:
    return [BASE + byte for byte in words.encode()]


def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Render as OPEN, role, content, calls, CLOSE."""
    ids: list[int] = []
    for message in messages:
        if message["role"] not in ROLES:
            raise TemplateRefused(f"no role {message['role']}")
        ids += [OPEN, ROLES[message["role"]], *text(str(message.get("content") or ""))]
        for call in message.get("tool_calls") or ():
            ids += [CALLS, *text(call["function"]["name"]), *text(str(call["function"]["arguments"]))]
        ids.append(CLOSE)
    return [*ids, OPEN, ROLES["assistant"]] if add_generation_prompt else ids


def each(write: Callable[[Message, list[int], Sequence[Message]], list[int]]) -> TokenizeFn:
    """Return a template that writes what a function makes of each message, its ids and those before."""

    def changed(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        ids: list[int] = []
        for place, message in enumerate(messages):
            ids += write(message, tokenize([message], add_generation_prompt=False), messages[:place])
        return ids + tokenize([], add_generation_prompt=add_generation_prompt)

    return changed


def shown(
    change: Callable[[Sequence[Message]], Sequence[Message]], template: TokenizeFn = tokenize
) -> TokenizeFn:
    """Return a template that writes what a function makes of the messages."""

    def changed(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        written = [dict(message) for message in change(messages)]
        return list(template(written, add_generation_prompt=add_generation_prompt))

    return changed


def speaking(more: Callable[[Sequence[Message]], Sequence[int]]) -> TokenizeFn:
    """Return a template that writes more after the generation prompt."""

    def changed(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        ids = tokenize(messages, add_generation_prompt=add_generation_prompt)
        return [*ids, *more(messages)] if add_generation_prompt else ids

    return changed


def refusing(
    refuses: Callable[[Sequence[Message]], bool], words: str = "no", template: TokenizeFn = tokenize
) -> TokenizeFn:
    """Return a template that refuses some conversations."""

    def checked(messages: Sequence[Message]) -> Sequence[Message]:
        if refuses(messages):
            raise TemplateRefused(words)
        return messages

    return shown(checked, template)


class Recorder:
    """A template that keeps the messages which it is asked about."""

    def __init__(self, template: TokenizeFn = tokenize) -> None:
        self.template = template
        self.asked: list[tuple[Message, ...]] = []

    def __call__(self, messages: list[dict[str, Any]], *, add_generation_prompt: bool) -> list[int]:
        self.asked.append(tuple(messages))
        return list(self.template(messages, add_generation_prompt=add_generation_prompt))


def part(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def by_parts(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
    """Write 40 after each part of a content, and a string as one part."""
    ids: list[int] = []
    for message in messages:
        content = message.get("content") or ""
        parts = [content] if isinstance(content, str) else [one["text"] for one in content]
        own = tokenize([{**message, "content": ""}], add_generation_prompt=False)
        ids += [*own[:2], *(index for words in parts for index in [*text(words), 40]), *own[2:]]
    return ids + tokenize([], add_generation_prompt=add_generation_prompt)


only_parts = refusing(
    lambda messages: any(isinstance(message.get("content"), str) for message in messages),
    "a content is a list of parts",
    by_parts,
)
"""Takes no content but a list of parts."""


def calls(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the calls of all messages."""
    return [call for message in messages for call in message.get("tool_calls") or ()]


def takes_arguments(kind: type, template: TokenizeFn = tokenize) -> TokenizeFn:
    """Return a template that takes arguments of calls in one form."""

    def refuses(messages: Sequence[Message]) -> bool:
        return any(not isinstance(call["function"]["arguments"], kind) for call in calls(messages))

    return refusing(refuses, f"arguments are a {kind.__name__}", template)


CALL: dict[str, Any] = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLING: dict[str, Any] = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT: dict[str, Any] = {"role": "tool", "tool_call_id": "c", "content": "7"}


def calling(identity: str = "c", name: str = "f", **more: Any) -> dict[str, Any]:
    """Return a turn with one call."""
    call = {**CALL, "id": identity, "function": {**CALL["function"], "name": name}}
    return {**CALLING, "tool_calls": [call], **more}


def user(words: str = "hi") -> dict[str, Any]:
    return {"role": "user", "content": words}


def assistant(words: str = "hello") -> dict[str, Any]:
    return {"role": "assistant", "content": words}


def step(
    messages: Sequence[Message] = ({"role": "user", "content": "hi"},),
    words: str = "hello",
    sampled: Sequence[int] = (900, 901, CLOSE),
    **more: Any,
) -> Step:
    """Return a step whose sampled ids are not those that its text would tokenize to."""
    prompt_ids = more.pop("prompt_ids", None) or tokenize(messages, add_generation_prompt=True)
    return Step(
        prompt=messages, completion=[assistant(words)], prompt_ids=prompt_ids, completion_ids=sampled, **more
    )


def prompt(after: Step, words: str = "more") -> list[Message]:
    return [*after.messages, user(words)]


def cut(ids: list[int], since: str | None) -> list[int]:
    """Return the ids from a text on; all of them where it occurs not exactly once."""
    sought = text(since or "")
    starts = [i for i in range(len(ids)) if ids[i : i + len(sought)] == sought]
    return ids[starts[0] :] if since is not None and len(starts) == 1 else ids
