"""Toys whose text after a turn depends on more than the turn and the new messages."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from .local import CHATML_TURNS, TEXT_CLOSE, Turns, chatml_like
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


def before_results(text: Callable[[Sequence[Message], int], str]) -> Turns:
    """Return a template that writes a text before each tool result."""
    return Turns(before=lambda messages, place: text(messages, place) * (messages[place]["role"] == "tool"))


def results_before(messages: Sequence[Message], place: int) -> str:
    """Return the number of a tool result, counted through the whole conversation."""
    return f"[{sum(message['role'] == 'tool' for message in messages[:place])}]"


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
    page.write(CHATML_TURNS.speaks if add_prompt else "")


def write_tool_changes_opening(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write another header for each message after the first tool result."""
    answered = False
    for place, message in enumerate(messages):
        page.write("<tool_call>" if answered else "")
        CHATML_TURNS.turn(page, messages, place, full_text(message))
        answered = answered or message["role"] == "tool"
    page.write("<tool_call>" * answered + CHATML_TURNS.speaks * add_prompt)


def write_repeats_answer(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Repeat the last assistant text in the generation prompt."""
    CHATML_TURNS(page, messages, add_prompt=False)
    answered = last_index(messages, "assistant")
    if add_prompt and answered >= 0:
        page.write(f"you said: {text_of(messages[answered])}<|im_end|>\n")
    page.write(CHATML_TURNS.speaks if add_prompt else "")


def arguments_again(messages: Sequence[Message], place: int) -> str:
    """Return the arguments of the last call that a result answers."""
    calls = [call for message in messages[:place] for call in calls_of(message)]
    asked = {call.get("id"): as_is(arguments_of(call)) for call in calls}
    return f"for {asked.get(messages[place].get('tool_call_id'), 'no call')}: "


def length_after(messages: Sequence[Message], place: int) -> str:
    """Return the length of the last assistant text, for the message after it."""
    answered = last_index(messages, "assistant")
    shown = place == answered + 1 and answered >= 0
    return f"[{len(text_of(messages[answered]))} letters]" if shown else ""


def no_reasoning(messages: Sequence[Message], place: int) -> str:
    """Return an empty reasoning block for a turn without reasoning."""
    message = messages[place]
    return "<think></think>" * (message["role"] == "assistant" and not reasoning_of(message))


def numbered_if_hello(messages: Sequence[Message], place: int) -> str:
    """Return the number of a message that contains the word hello."""
    message = messages[place]
    return f"[{place}]" * ("hello" in text_of(message) and message["role"] != "assistant")


def first_name(messages: Sequence[Message], place: int) -> str:
    """Return the name of the first call with a result's id."""
    calls = [call for message in messages[:place] for call in calls_of(message)]
    names = {call.get("id"): call["function"]["name"] for call in reversed(calls)}
    return f"{names.get(messages[place].get('tool_call_id'))}: "


def write_thinking_switch(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Open a reasoning block unless a system or user text contains /no_think."""
    CHATML_TURNS(page, messages, add_prompt)
    texts = (text_of(message) for message in messages if message["role"] in {"system", "user"})
    page.write("<think>" if add_prompt and not any("/no_think" in text for text in texts) else "")


def write_ids_later(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write the ids of calls only once something follows them."""
    for index, message in enumerate(messages):
        page.write(f"<|im_start|>{message['role']}\n")
        later = index < len(messages) - 1 and calls_of(message)
        names = [f'<id>"{call.get("id")}"' for call in calls_of(message)] if later else []
        page.body(index, full_text(message) + "".join(names))
        page.write("\n<|im_end|>\n")
    page.write(CHATML_TURNS.speaks if add_prompt else "")


_nonces = itertools.count()


def write_constant(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write the same text for any messages."""
    del messages, add_prompt
    page.write("<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n")


def write_nothing(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write nothing."""
    del page, messages, add_prompt


DEPENDENT_TOYS = (
    chatml_like(
        "numbered_results",
        "tool results are numbered through the conversation",
        before_results(results_before),
        keeps=True,
    ),
    chatml_like(
        "numbered_turns",
        "every message is numbered",
        Turns(before=lambda _, place: f"[{place}]"),
        keeps=True,
    ),
    chatml_like("moving_system", "the system text moves to the last user message", write_moving_system),
    chatml_like(
        "tool_changes_opening",
        "after the first tool result each message has another header",
        write_tool_changes_opening,
        keeps=True,
    ),
    chatml_like(
        "repeats_answer",
        "the last assistant text is repeated in the generation prompt",
        write_repeats_answer,
    ),
    chatml_like(
        "repeats_arguments",
        "the arguments of a call are repeated before its result",
        before_results(arguments_again),
        keeps=True,
    ),
    chatml_like(
        "prints_length",
        "the length of the last assistant text is written after it",
        Turns(before=length_after),
    ),
    chatml_like(
        "marks_no_reasoning",
        "an empty reasoning block follows a turn without reasoning",
        Turns(after=no_reasoning),
        keeps=True,
    ),
    chatml_like(
        "sliding_window",
        "only the last four messages are written",
        Turns(left_out=lambda messages, place: place < len(messages) - 4),
    ),
    chatml_like(
        "numbered_hello",
        "a message that contains the word hello is numbered",
        Turns(before=numbered_if_hello),
        keeps=True,
    ),
    chatml_like(
        "first_call_name",
        "a tool result is headed by the name of the first call with its id",
        before_results(first_name),
        keeps=True,
    ),
    chatml_like(
        "thinking_switch",
        "the text /no_think in a message changes the generation prompt",
        write_thinking_switch,
    ),
    chatml_like(
        "ids_later",
        "a call is written with its id once something follows it",
        write_ids_later,
        tokenizer=TEXT_CLOSE,
        close="\n<|im_end|>\n",
    ),
    chatml_like(
        "nonce",
        "each message begins with a number that was never written before",
        Turns(before=lambda *_: f"[{next(_nonces)}]"),
        nondeterministic=True,
    ),
    chatml_like("constant", "the same text for any messages", write_constant),
    chatml_like("empty", "no text at all", write_nothing),
)
