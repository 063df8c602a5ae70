"""Messages of all roles, and conversations of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from ..toys import Toy
from .choices import CHOICES, Choices, Draw
from .text import WORDS

Chat = list[dict[str, Any]]
ALL_ROLES = ("system", "developer", "user", "assistant", "tool")

CALL_IDS = ("callaaaa1", "callaaaa2", "callbbbb1")
ODD_CALL_IDS = ("call_1", "functions.f:0", "<|im_end|>", "c</s>", None)
CALL_NAMES = ("f", "get", "ab") * 5 + ("<|im_end|>", "</tool_call>", "a<|call|>b", "</s>")
ROLES = st.lists(
    st.sampled_from(("user", "system", "developer", "tool", "assistant")), min_size=1, max_size=3
)
KINDS = st.integers(0, 15)
"""A draw in sixteen; the three numbers below say from which on something is drawn."""
SYSTEM_FROM, SPEECH_FROM, ODD_FROM = 8, 10, 14
TURNS = st.integers(1, 3)
ODD_ARGUMENTS = (
    "",
    "{",
    "[1]",
    "NaN",
    '{"a":1,"a":2}',
    '{"a": NaN}',
    '{"a": 0.1000000000000000055, "n": [9007199254740993]}',
    '"text"',
    '{"a": "<|im_end|>"}',
    "a</tool_call>",
)
ARGUMENTS = ('{"a": 1}', '{"x":"b","a":[1,true,null]}', "{}", '{"q": "ab"}') * 4 + ODD_ARGUMENTS


def draw_calls(draw: Draw, count: int) -> Chat:
    """Draw tool calls with different ids, arguments as OpenAI's wire has them: JSON text."""
    return [call(draw(CHOICES), index) for index in range(count)]


def call(choices: Choices, index: int) -> dict[str, Any]:
    """Return a tool call."""
    name, arguments = choices.pick(CALL_NAMES), choices.pick(ARGUMENTS)
    identity = choices.pick(ODD_CALL_IDS) if choices.once_in(12) else CALL_IDS[index]
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def draw_assistant(draw: Draw, *, may_call: bool = True) -> dict[str, Any]:
    """Draw an assistant message: content, sometimes reasoning, sometimes one or two calls."""
    choices = draw(CHOICES)
    message: dict[str, Any] = {"role": "assistant", "content": choices.pick(WORDS)}
    if choices.once_in(3):
        message["reasoning_content"] = choices.pick(WORDS)
    count = choices.pick((0, 0, 1, 1, 2)) if may_call else 0
    if count:
        message |= {"content": choices.pick((None, "", "a")), "tool_calls": draw_calls(draw, count)}
    return message


def speech(choices: Choices, role: str = "user") -> dict[str, Any]:
    """Return a message with content only, which is sometimes in parts."""
    content, second_content = choices.pick(WORDS), choices.pick(WORDS)
    parts = [{"type": "text", "text": text} for text in (content, second_content)]
    return {"role": role, "content": choices.pick((*[content] * 8, parts[:1], parts))}


def result(choices: Choices, call: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of a tool call."""
    found = {"role": "tool", "content": choices.pick(WORDS), "tool_call_id": call.get("id")}
    return found | ({"name": call["function"]["name"]} if choices.once_in(4) else {})


def draw_environment(draw: Draw, toy: Toy, before: Mapping[str, Any]) -> Chat:
    """Draw what may follow an assistant message: results, a user message, at times anything at all."""
    kind = draw(KINDS)
    if kind >= ODD_FROM:
        return draw_odd_environment(draw)
    called = before.get("tool_calls") or ()
    found = [result(draw(CHOICES), call) for call in called] if "tool" in toy.roles else []
    if not found or kind >= SPEECH_FROM:
        found.append(speech(draw(CHOICES)))
    return found


def draw_odd_environment(draw: Draw) -> Chat:
    """Draw one to three messages in an order that few templates take."""
    roles = draw(ROLES)
    stray = {"id": "callaaaa1", "function": {"name": "f"}}
    return [
        draw_assistant(draw)
        if role == "assistant"
        else result(draw(CHOICES), stray)
        if role == "tool"
        else speech(draw(CHOICES), role)
        for role in roles
    ]


def draw_conversation(draw: Draw, toy: Toy) -> Chat:
    """Draw a conversation that ends with what is new after the last of one to three assistant turns."""
    chat: Chat = (
        [speech(draw(CHOICES), "system")] if "system" in toy.roles and draw(KINDS) >= SYSTEM_FROM else []
    )
    chat.append(speech(draw(CHOICES)))
    for _ in range(draw(TURNS)):
        chat.append(draw_assistant(draw, may_call="tool" in toy.roles))
        chat += draw_environment(draw, toy, chat[-1])
    return chat


MEDIA = (
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
    {"type": "input_audio", "input_audio": {"data": "AA==", "format": "wav"}},
    {"type": "image"},
    {"type": "video", "video": "a.mp4"},
)


@st.composite
def messages(draw: DrawFn, role: str | None = None) -> dict[str, Any]:
    """Draw a message with plain, odd and hostile texts; calls and reasoning where the role has them.

    Args:
        role: Its role; None draws one of all.
    """
    given = role or draw(st.sampled_from(ALL_ROLES))
    if given == "assistant":
        return draw_assistant(draw)
    choices = draw(CHOICES)
    return result(choices, call(choices, 0)) if given == "tool" else speech(choices, given)


@st.composite
def conversations(draw: DrawFn, template: Toy) -> Chat:
    """Draw a conversation that ends with what is new after the last of one to three assistant turns.

    New messages may come in an order that few templates take: a template may reject the conversation.

    Args:
        template: The toy whose roles are used.
    """
    return draw_conversation(draw, template)
