"""Toys that write after a turn what depends on more than the turn and the new messages."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from .local import TEXT_CLOSE, chatml_like, chatml_prompt, chatml_turn, write_chatml
from .page import Page
from .toy import (
    Message,
    arguments_of,
    as_is,
    calls_of,
    full_text,
    last_index,
    reasoning_of,
    text_of,
)


def write_numbered_results(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write a number before each tool result, counted through the whole conversation."""
    results = itertools.count()
    for index, message in enumerate(messages):
        if message["role"] == "tool":
            page.write(f"[{next(results)}]")
        chatml_turn(page, index, message)
    chatml_prompt(page, add_prompt)


numbered_results = chatml_like(
    "numbered_results",
    "tool results are numbered through the conversation",
    write_numbered_results,
    keeps=True,
)


def write_numbered_turns(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write a number before every message."""
    for index, message in enumerate(messages):
        page.write(f"[{index}]")
        chatml_turn(page, index, message)
    chatml_prompt(page, add_prompt)


numbered_turns = chatml_like("numbered_turns", "every message is numbered", write_numbered_turns, keeps=True)


def write_moving_system(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Put the system text in front of the last user message, wherever that is."""
    system = messages[0] if messages and messages[0]["role"] == "system" else None
    asked = last_index(messages, "user")
    if system is not None:
        page.bodies[0] = (0, 0)
    for index, message in enumerate(messages[1:] if system else messages, start=system is not None):
        page.write(f"<|im_start|>{message['role']}\n")
        page.write(f"{text_of(system)}\n\n" if system and index == asked else "")
        page.body(index, full_text(message))
        page.write("<|im_end|>\n")
    chatml_prompt(page, add_prompt)


moving_system = chatml_like(
    "moving_system", "the system text moves to the last user message", write_moving_system
)


def write_tool_changes_opening(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write another header for each message after the first tool result."""
    answered = False
    for index, message in enumerate(messages):
        page.write("<tool_call>" if answered else "")
        chatml_turn(page, index, message)
        answered = answered or message["role"] == "tool"
    page.write("<tool_call>" if answered else "")
    chatml_prompt(page, add_prompt)


tool_changes_opening = chatml_like(
    "tool_changes_opening",
    "after the first tool result each message has another header",
    write_tool_changes_opening,
    keeps=True,
)


def write_repeats_answer(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Repeat the last assistant text in the generation prompt."""
    write_chatml(page, messages, add_prompt=False)
    answered = last_index(messages, "assistant")
    if add_prompt and answered >= 0:
        page.write(f"you said: {text_of(messages[answered])}<|im_end|>\n")
    chatml_prompt(page, add_prompt)


repeats_answer = chatml_like(
    "repeats_answer", "the last assistant text is repeated in the generation prompt", write_repeats_answer
)


def write_repeats_arguments(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Repeat a call's arguments in front of its result."""
    asked: dict[object, str] = {}
    for index, message in enumerate(messages):
        asked |= {call.get("id"): as_is(arguments_of(call)) for call in calls_of(message)}
        if message["role"] == "tool":
            page.write(f"for {asked.get(message.get('tool_call_id'), 'no call')}: ")
        chatml_turn(page, index, message)
    chatml_prompt(page, add_prompt)


repeats_arguments = chatml_like(
    "repeats_arguments",
    "the arguments of a call are repeated before its result",
    write_repeats_arguments,
    keeps=True,
)


def write_prints_length(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write the length of the last assistant text after it."""
    answered = last_index(messages, "assistant")
    for index, message in enumerate(messages):
        if index == answered + 1 and answered >= 0:
            page.write(f"[{len(text_of(messages[answered]))} letters]")
        chatml_turn(page, index, message)
    chatml_prompt(page, add_prompt)


prints_length = chatml_like(
    "prints_length", "the length of the last assistant text is written after it", write_prints_length
)


def write_marks_no_reasoning(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write an empty reasoning block after a turn without reasoning."""
    for index, message in enumerate(messages):
        chatml_turn(page, index, message)
        if message["role"] == "assistant" and not reasoning_of(message):
            page.write("<think></think>")
    chatml_prompt(page, add_prompt)


marks_no_reasoning = chatml_like(
    "marks_no_reasoning",
    "an empty reasoning block follows a turn without reasoning",
    write_marks_no_reasoning,
    keeps=True,
)


def write_sliding_window(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write the last four messages only."""
    first = max(len(messages) - 4, 0)
    for index, message in enumerate(messages[first:], start=first):
        chatml_turn(page, index, message)
    chatml_prompt(page, add_prompt)


sliding_window = chatml_like(
    "sliding_window", "only the last four messages are written", write_sliding_window
)


def write_numbered_hello(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write a number before a message that contains the word hello."""
    for index, message in enumerate(messages):
        page.write(f"[{index}]" if "hello" in text_of(message) and message["role"] != "assistant" else "")
        chatml_turn(page, index, message)
    chatml_prompt(page, add_prompt)


numbered_hello = chatml_like(
    "numbered_hello",
    "a message that contains the word hello is numbered",
    write_numbered_hello,
    keeps=True,
)


def write_first_call_name(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write before a result the name of the first call with its id."""
    names: dict[object, str] = {}
    for index, message in enumerate(messages):
        for call in calls_of(message):
            names.setdefault(call.get("id"), call["function"]["name"])
        page.write(f"{names.get(message.get('tool_call_id'))}: " if message["role"] == "tool" else "")
        chatml_turn(page, index, message)
    chatml_prompt(page, add_prompt)


first_call_name = chatml_like(
    "first_call_name",
    "a tool result is headed by the name of the first call with its id",
    write_first_call_name,
    keeps=True,
)


def write_thinking_switch(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Open a reasoning block unless a system or user text contains /no_think."""
    write_chatml(page, messages, add_prompt)
    texts = (text_of(message) for message in messages if message["role"] in {"system", "user"})
    page.write("<think>" if add_prompt and not any("/no_think" in text for text in texts) else "")


thinking_switch = chatml_like(
    "thinking_switch", "the text /no_think in a message changes the generation prompt", write_thinking_switch
)


def write_ids_later(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write the ids of calls only once something follows them."""
    for index, message in enumerate(messages):
        page.write(f"<|im_start|>{message['role']}\n")
        later = index < len(messages) - 1 and calls_of(message)
        names = [f'<id>"{call.get("id")}"' for call in calls_of(message)] if later else []
        page.body(index, full_text(message) + "".join(names))
        page.write("\n<|im_end|>\n")
    chatml_prompt(page, add_prompt)


ids_later = chatml_like(
    "ids_later",
    "a call is written with its id once something follows it",
    write_ids_later,
    tokenizer=TEXT_CLOSE,
    close="\n<|im_end|>\n",
)

_nonces = itertools.count()


def write_nonce(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write a number before each message that was never written before."""
    for index, message in enumerate(messages):
        page.write(f"[{next(_nonces)}]")
        chatml_turn(page, index, message)
    chatml_prompt(page, add_prompt)


nonce = chatml_like(
    "nonce",
    "before each message stands a number that was never written before",
    write_nonce,
    nondeterministic=True,
)


def write_constant(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write the same text for any messages."""
    del messages, add_prompt
    page.write("<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n")


constant = chatml_like("constant", "the same text for any messages", write_constant)


def write_nothing(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write nothing."""
    del page, messages, add_prompt


empty = chatml_like("empty", "no text at all", write_nothing)

DEPENDENT_TOYS = (
    numbered_results,
    numbered_turns,
    moving_system,
    tool_changes_opening,
    repeats_answer,
    repeats_arguments,
    prints_length,
    marks_no_reasoning,
    sliding_window,
    numbered_hello,
    first_call_name,
    thinking_switch,
    ids_later,
    nonce,
    constant,
    empty,
)
