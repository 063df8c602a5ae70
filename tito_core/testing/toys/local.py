"""Toys that write after a turn what depends on the turn and the new messages alone."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from string import ascii_letters
from typing import Any

import attrs

from ...errors import TemplateRefused
from .page import Page
from .tokenizer import Tokenizer
from .toy import (
    Message,
    Toy,
    arguments_of,
    as_is,
    calls_of,
    full_text,
    hermes_calls,
    last_index,
    reasoning_block,
    reasoning_of,
    text_of,
)

CHATML = Tokenizer(
    specials=(
        "<|im_start|>",
        "<|im_end|>",
        "<|endoftext|>",
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
    ),
    merges=("assistant", "system", "user", "tool", "ab", "ba", "\n\n", '": ', '", "'),
)
MessageText = Callable[[Message], str]


def chatml_turn(page: Page, index: int, message: Message, message_text: MessageText = full_text) -> None:
    """Write one turn: header, words, close."""
    page.write(f"<|im_start|>{message['role']}\n")
    page.body(index, message_text(message))
    page.write("<|im_end|>\n")


def chatml_prompt(page: Page, add_prompt: bool) -> None:
    """Write the generation prompt if it is asked for."""
    page.write("<|im_start|>assistant\n" if add_prompt else "")


def write_chatml(
    page: Page, messages: Sequence[Message], add_prompt: bool, message_text: MessageText = full_text
) -> None:
    """Write every message alike, and nothing else."""
    for index, message in enumerate(messages):
        chatml_turn(page, index, message, message_text)
    chatml_prompt(page, add_prompt)


def chatml_like(name: str, quirk: str, write: Any, **changes: Any) -> Toy:
    """Return a toy that writes ChatML, except for the given changes."""
    usual: dict[str, Any] = {
        "close": "<|im_end|>\n",
        "stops": ("<|im_end|>", "<|endoftext|>"),
        "tokenizer": CHATML,
    }
    return Toy(name=name, quirk=quirk, write=write, **(usual | changes))


chatml = chatml_like(
    "chatml", "none: every turn is written alike, and the history is kept", write_chatml, keeps=True
)


def write_default_system(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Begin with a system text of the template's own if the conversation has no system message."""
    if not messages or messages[0]["role"] != "system":
        page.write("<|im_start|>system\nbe good<|im_end|>\n")
    write_chatml(page, messages, add_prompt)


default_system = chatml_like(
    "default_system",
    "a system text of the template's own stands first if none is sent",
    write_default_system,
    keeps=True,
)


def write_dated(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write a date first."""
    page.write("<|im_start|>system\ntoday is 2024-05-07<|im_end|>\n")
    write_chatml(page, messages, add_prompt)


dated = chatml_like("dated", "a date stands in a system text of the template's own", write_dated, keeps=True)

_clock = itertools.count()


def write_clock(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write a time first that is another one at each render."""
    page.write(f"<|im_start|>system\nit is {next(_clock) % 7919}<|im_end|>\n")
    write_chatml(page, messages, add_prompt)


clock = chatml_like(
    "clock",
    "a time stands in the system text, and is another one at each render",
    write_clock,
    nondeterministic=True,
)


def after_reasoning(kept: str, message: Message) -> str:
    """Write content and calls of a message after the given reasoning."""
    return kept + text_of(message) + hermes_calls(message)


def write_thinking(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Drop reasoning before the last user message; write an empty block into a last turn without any."""
    asked = last_index(messages, "user")
    for index, message in enumerate(messages):
        fresh = index > asked
        bare = "<think></think>" if fresh and index == len(messages) - 1 else ""
        kept = (reasoning_block(message) or bare) if fresh and message["role"] == "assistant" else ""
        chatml_turn(page, index, message, partial(after_reasoning, kept))
    chatml_prompt(page, add_prompt)


thinking = chatml_like(
    "thinking", "reasoning is dropped from turns before the last user message", write_thinking
)


def write_opens_thinking(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """End the generation prompt with an open reasoning block."""
    write_chatml(page, messages, add_prompt)
    page.write("<think>\n" if add_prompt else "")


opens_thinking = chatml_like(
    "opens_thinking", "the generation prompt opens a reasoning block", write_opens_thinking
)


def write_grouped(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Put adjacent tool results into one user turn."""
    roles = [message["role"] for message in messages]
    for index, message in enumerate(messages):
        if message["role"] != "tool":
            chatml_turn(page, index, message)
            continue
        page.write("<|im_start|>user" if index == 0 or roles[index - 1] != "tool" else "")
        page.write("\n[result]\n")
        page.body(index, text_of(message))
        page.write("\n[/result]")
        page.write("<|im_end|>\n" if roles[index + 1 : index + 2] != ["tool"] else "")
    chatml_prompt(page, add_prompt)


grouped = chatml_like("grouped", "adjacent tool results share one turn", write_grouped)


def write_two_closes(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Close a turn that calls tools with another token."""
    for index, message in enumerate(messages):
        page.write(f"<|im_start|>{message['role']}\n")
        page.body(index, full_text(message))
        page.write("<|eom|>" if calls_of(message) else "<|im_end|>")
    chatml_prompt(page, add_prompt)


two_closes = chatml_like(
    "two_closes",
    "a turn that calls a tool ends with another token, and the close is one token long",
    write_two_closes,
    close="<|im_end|>",
    stops=("<|im_end|>", "<|eom|>"),
    tokenizer=Tokenizer(specials=(*CHATML.specials, "<|eom|>"), merges=CHATML.merges),
    keeps=True,
)


def write_repeating(page: Page, messages: Sequence[Message], add_prompt: bool, *, close: str) -> None:
    """Close every turn with a close that contains its own beginning again."""
    for index, message in enumerate(messages):
        page.write(f"<|{message['role']}|>")
        page.body(index, full_text(message))
        page.write(close)
    page.write("<|assistant|>" if add_prompt else "")


REPEATING = Tokenizer(
    specials=(
        "<|system|>",
        "<|user|>",
        "<|assistant|>",
        "<|tool|>",
        "<|developer|>",
        "<|e|>",
        "<|n|>",
        "<|pad|>",
    ),
    merges=("ab",),
)
doubled_close, palindrome_close, paired_close = (
    Toy(
        name=name,
        quirk=f"the close is {close}, which overlaps itself",
        write=partial(write_repeating, close=close),
        tokenizer=REPEATING,
        close=close,
        stops=("<|e|>",),
        keeps=True,
    )
    for name, close in (
        ("doubled_close", "<|e|><|e|>"),
        ("palindrome_close", "<|e|><|n|><|e|>"),
        ("paired_close", "<|e|><|n|><|e|><|n|>"),
    )
)

TURNS = Tokenizer(
    specials=("<bos>", "<turn>", "</turn>", "<eos>"), merges=("user\n", "model\n", "ab", "\n\n")
)


def write_alternating(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Require that user and assistant alternate; write the system text into the first user turn."""
    page.write("<bos>")
    system = messages[0] if messages and messages[0]["role"] == "system" else None
    for index, message in enumerate(messages[1:] if system else messages):
        expected = ("user", "assistant")[index % 2]
        if message["role"] != expected:
            raise TemplateRefused(f"roles must alternate: found {message['role']} for {expected}")
        page.write("<turn>user\n" if expected == "user" else "<turn>model\n")
        if system is not None and index == 0:
            page.body(0, text_of(system))
            page.write("\n\n")
        page.body(index + (system is not None), text_of(message).strip())
        page.write("</turn>\n")
    page.write("<turn>model\n" if add_prompt else "")


alternating = Toy(
    name="alternating",
    quirk="user and assistant must alternate; no tools; texts are stripped",
    write=write_alternating,
    tokenizer=TURNS,
    close="</turn>\n",
    stops=("</turn>", "<eos>"),
    roles=("system", "user", "assistant"),
    keeps=True,
)

MARKERS = Tokenizer(
    specials=(
        "[mask]",
        "<|system|>",
        "<|user|>",
        "<|assistant|>",
        "<|observation|>",
        "<|end|>",
        "<think>",
        "</think>",
    ),
    merges=("ab", "\n\n"),
)


def write_markers(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Close no turn: the marker of the next role ends it; tool results share one marker."""
    page.write("[mask]")
    before = ""
    for index, message in enumerate(messages):
        role = {"tool": "observation", "developer": "system"}.get(message["role"]) or str(message["role"])
        page.write(f"<|{role}|>" if role != "observation" or before != role else "")
        page.write("\n")
        page.body(index, full_text(message))
        before = role
    page.write("<|assistant|>" if add_prompt else "")


markers = Toy(
    name="markers",
    quirk="turns have no close; the marker of the next role is the stop token",
    write=write_markers,
    tokenizer=MARKERS,
    close="",
    stops=("<|user|>", "<|observation|>", "<|end|>"),
)

HARMONY = Tokenizer(
    specials=("<|start|>", "<|end|>", "<|return|>", "<|call|>", "<|channel|>", "<|message|>"),
    merges=("assistant", "analysis", "commentary", "final", "ab"),
)


def write_harmony_assistant(page: Page, index: int, message: Message, last: bool) -> None:
    """Write a call with its own stop; end a final answer in another way while it is the last message."""
    if calls_of(message):
        call = calls_of(message)[0]
        if reasoning_of(message):
            page.write(f"<|start|>assistant<|channel|>analysis<|message|>{reasoning_of(message)}<|end|>")
        page.write(f"<|start|>assistant to={call['function']['name']}<|channel|>commentary<|message|>")
        page.body(index, as_is(arguments_of(call)))
        page.write("<|call|>")
        return
    page.write("<|start|>assistant<|channel|>final<|message|>")
    page.body(index, text_of(message))
    page.write("<|return|>" if last else "<|end|>")


def write_harmony(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write channels; name each tool result after the last call; drop system texts that come late."""
    caller: str | None = None
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            last = index == len(messages) - 1 and not add_prompt
            write_harmony_assistant(page, index, message, last)
            caller = calls_of(message)[0]["function"]["name"] if calls_of(message) else caller
            continue
        if message["role"] == "tool" and caller is None:
            raise TemplateRefused("a tool message needs a tool call before it")
        if message["role"] in {"system", "developer"} and index > 0:
            continue
        speaker = f"{caller} to=assistant" if message["role"] == "tool" else message["role"]
        page.write(f"<|start|>{speaker}<|message|>")
        page.body(index, text_of(message))
        page.write("<|end|>")
    page.write("<|start|>assistant" if add_prompt else "")


harmony = Toy(
    name="harmony",
    quirk="a last answer ends with <|return|>, the same answer in history with <|end|>, a call with <|call|>",
    write=write_harmony,
    tokenizer=HARMONY,
    close="<|end|>",
    stops=("<|return|>", "<|call|>", "<|end|>"),
)

BRACKETS = Tokenizer(
    specials=(
        "<s>",
        "</s>",
        "[INST]",
        "[/INST]",
        "[CALLS]",
        "[RESULTS]",
        "[/RESULTS]",
        "[SYSTEM]",
        "[/SYSTEM]",
    ),
    merges=("ab", '": ', '", "'),
)


CALL_ID_LENGTH = 9


def bracketed_call(call: Message) -> str:
    """Write a call with its id last; reject an id that is not nine letters or digits."""
    identity = str(call.get("id"))
    if len(identity) != CALL_ID_LENGTH or not identity.isalnum():
        raise TemplateRefused("tool call ids are nine letters or digits")
    function = call["function"]
    return f'{{"name": "{function["name"]}", "arguments": {as_is(arguments_of(call))}, "id": "{identity}"}}'


def bracketed_words(message: Message) -> str:
    """Write an assistant's content and calls."""
    calls = ", ".join(bracketed_call(call) for call in calls_of(message))
    return text_of(message) + (f"[CALLS][{calls}]" if calls else "")


def write_bracketed(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Put each message but the assistant's in brackets, and write no generation prompt."""
    brackets = {"user": "INST", "tool": "RESULTS", "system": "SYSTEM", "developer": "SYSTEM"}
    page.write("<s>")
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            page.body(index, bracketed_words(message))
            page.write("</s>")
            continue
        bracket = brackets[message["role"]]
        page.write(f"[{bracket}]")
        page.body(index, text_of(message))
        page.write(f"[/{bracket}]")
    del add_prompt  # the closing bracket is all the invitation the model gets


bracketed = Toy(
    name="bracketed",
    quirk="no generation prompt; a call's id stands after its arguments and must be nine characters long",
    write=write_bracketed,
    tokenizer=BRACKETS,
    close="</s>",
    stops=("</s>",),
    keeps=True,
)


def write_closed_later(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Close an assistant's turn only when something follows it."""
    write = page.write
    for index, message in enumerate(messages):
        assistant = message["role"] == "assistant"
        write("" if assistant else "[RESULTS]" if message["role"] == "tool" else "[INST]")
        page.body(index, text_of(message) + (hermes_calls(message) if assistant else ""))
        write("[/INST]" if not assistant else "</s>" if index < len(messages) - 1 else "")
    del add_prompt


closed_later = Toy(
    name="closed_later",
    quirk="an assistant's turn is closed only when another message follows",
    write=write_closed_later,
    tokenizer=BRACKETS,
    close="</s>",
    stops=("</s>",),
)

PHI = Tokenizer(
    specials=(
        "<|system|>",
        "<|user|>",
        "<|assistant|>",
        "<|tool|>",
        "<|developer|>",
        "<|end|>",
        "<|endoftext|>",
    ),
    merges=("ab",),
)


def write_eos_when_done(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """End with an end-of-text token where there is no generation prompt."""
    for index, message in enumerate(messages):
        page.write(f"<|{message['role']}|>\n")
        page.body(index, full_text(message))
        page.write("<|end|>\n")
    page.write("<|assistant|>\n" if add_prompt else "<|endoftext|>")


eos_when_done = Toy(
    name="eos_when_done",
    quirk="an end-of-text token stands where there is no generation prompt",
    write=write_eos_when_done,
    tokenizer=PHI,
    close="<|end|>\n",
    stops=("<|end|>", "<|endoftext|>"),
    keeps=True,
)


def only_mapping(arguments: Any) -> str:
    """Write a mapping key by key; reject anything else."""
    if not isinstance(arguments, Mapping):
        raise TemplateRefused("Can only get item pairs from a mapping.")
    return "".join(f"[{key}={json.dumps(value)}]" for key, value in arguments.items())


def only_string(arguments: Any) -> str:
    """Write a string; reject anything else."""
    if not isinstance(arguments, str):
        raise TemplateRefused('can only concatenate str (not "dict") to str')
    return arguments


def no_arguments(arguments: Any) -> str:
    """Write no arguments at all."""
    del arguments
    return ""


def writes_calls(written_arguments: Callable[[Any], str]) -> Any:
    """Return a ChatML template that writes arguments in its own way."""
    return partial(
        write_chatml,
        message_text=lambda message: (
            reasoning_block(message) + text_of(message) + hermes_calls(message, written_arguments)
        ),
    )


mapping_arguments = chatml_like(
    "mapping_arguments", "arguments must be a mapping", writes_calls(only_mapping), keeps=True
)
string_arguments = chatml_like(
    "string_arguments", "arguments must be a string", writes_calls(only_string), keeps=True
)
double_encoder = chatml_like(
    "double_encoder",
    "arguments that are JSON text already are encoded again",
    writes_calls(json.dumps),
    keeps=True,
)
ignores_arguments = chatml_like(
    "ignores_arguments", "the arguments of a call are dropped", writes_calls(no_arguments), keeps=True
)


def backward_call(call: Message) -> str:
    """Write a call with its arguments first, its name and id after."""
    name, identity = call["function"]["name"], call.get("id")
    arguments = as_is(arguments_of(call))
    return f'<tool_call>{{"arguments": {arguments}, "name": "{name}", "id": "{identity}"}}</tool_call>'


def backward(message: Message) -> str:
    """Write the calls before the content."""
    return "".join(backward_call(call) for call in calls_of(message)) + text_of(message)


backward_calls = chatml_like(
    "backward_calls",
    "name and id stand after the arguments, the content after the calls",
    partial(write_chatml, message_text=backward),
    keeps=True,
)


def write_backward_short_close(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write calls with the arguments first, and close with one token."""
    for index, message in enumerate(messages):
        page.write(f"<|im_start|>{message['role']}\n")
        page.body(index, backward(message))
        page.write("<|im_end|>")
    chatml_prompt(page, add_prompt)


backward_short_close = chatml_like(
    "backward_short_close",
    "as backward_calls, and the close is one token, which a name or id may contain",
    write_backward_short_close,
    close="<|im_end|>",
    keeps=True,
)


def write_no_developer(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Skip messages with other roles than these four."""
    for index, message in enumerate(messages):
        if message["role"] in {"system", "user", "assistant", "tool"}:
            chatml_turn(page, index, message)
    chatml_prompt(page, add_prompt)


no_developer = chatml_like("no_developer", "developer messages are dropped", write_no_developer)


def write_drops_second(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Skip a message with the role of the one before it, unless that is an assistant."""
    before = None
    for index, message in enumerate(messages):
        if message["role"] != before or before == "assistant":
            chatml_turn(page, index, message)
        before = message["role"]
    chatml_prompt(page, add_prompt)


def write_system_first(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write all system texts first."""
    order = sorted(enumerate(messages), key=lambda placed: placed[1]["role"] != "system")
    for index, message in order:
        chatml_turn(page, index, message)
    chatml_prompt(page, add_prompt)


system_first = chatml_like(
    "system_first", "system messages stand first, wherever they were sent", write_system_first
)


drops_second = chatml_like(
    "drops_second", "the second of two adjacent user or tool messages is dropped", write_drops_second
)


def write_strings_only(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write an empty turn for a message whose content is a list of parts."""
    for index, message in enumerate(messages):
        if isinstance(message.get("content"), str | None):
            chatml_turn(page, index, message)
        else:
            chatml_turn(page, index, {**message, "content": ""})
            page.lose(index)
    chatml_prompt(page, add_prompt)


strings_only = chatml_like("strings_only", "content that is a list of parts is dropped", write_strings_only)


def none_or_text(message: Message) -> str:
    """Write the word None where there is no content."""
    return "None" * (message.get("content") is None) + full_text(message)


def write_prints_none(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write the word None where there is no content."""
    write_chatml(
        page,
        messages,
        add_prompt,
        none_or_text,
    )


prints_none = chatml_like(
    "prints_none", "missing content is written as the word None", write_prints_none, keeps=True
)

TEXT_CLOSE = attrs.evolve(CHATML, merges=(*CHATML.merges, "a\n", "b\n", "}\n"))


def write_text_close(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write a line break, which belongs to the close, before the marker that ends a turn."""
    for index, message in enumerate(messages):
        page.write(f"<|im_start|>{message['role']}\n")
        page.body(index, full_text(message))
        page.write("\n<|im_end|>\n")
    chatml_prompt(page, add_prompt)


text_close = chatml_like(
    "text_close",
    "the close begins with text, which merges with the end of a turn",
    write_text_close,
    tokenizer=TEXT_CLOSE,
    close="\n<|im_end|>\n",
)


def write_double_close(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write a line break and the marker that ends a turn, both twice."""
    for index, message in enumerate(messages):
        page.write(f"<|im_start|>{message['role']}\n")
        page.body(index, full_text(message))
        page.write("\n<|im_end|>\n<|im_end|>" if message["role"] == "assistant" else "\n<|im_end|>\n")
    chatml_prompt(page, add_prompt)


double_close = chatml_like(
    "double_close",
    "the close has the marker twice, of which the engine samples the first",
    write_double_close,
    tokenizer=TEXT_CLOSE,
    close="\n<|im_end|>\n<|im_end|>",
)


def write_spaced(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write a space before the marker that ends a turn."""
    for index, message in enumerate(messages):
        page.write(f"<|im_start|>{message['role']} ")
        page.body(index, full_text(message))
        page.write(" <|im_end|>")
    page.write("<|im_start|>assistant " if add_prompt else "")


spaced = chatml_like(
    "spaced",
    "an id for every character, and a space before the close",
    write_spaced,
    tokenizer=attrs.evolve(CHATML, merges=()),
    close=" <|im_end|>",
)


def write_parts_only(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write the text of parts; a content that is a string is lost."""
    for index, message in enumerate(messages):
        parts = message.get("content")
        given = parts if isinstance(parts, list) else []
        chatml_turn(page, index, {**message, "content": given})
        if isinstance(parts, str) and parts:
            page.lose(index)
    chatml_prompt(page, add_prompt)


parts_only = chatml_like("parts_only", "content that is a string is dropped", write_parts_only)


def write_lists_close_otherwise(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write a line break after an assistant's content if it is a list."""
    for index, message in enumerate(messages):
        page.write(f"<|im_start|>{message['role']}\n")
        page.body(index, full_text(message))
        listed = message["role"] == "assistant" and isinstance(message.get("content"), list)
        page.write("\n<|im_end|>\n" if listed else "<|im_end|>\n")
    chatml_prompt(page, add_prompt)


lists_close_otherwise = chatml_like(
    "lists_close_otherwise",
    "a turn whose content is a list of parts has another close",
    write_lists_close_otherwise,
)

_PLAIN: dict[str, Any] = {
    "close": "\n",
    "stops": ("\n",),
    "roles": ("system", "user", "assistant"),
    "keeps": True,
}


def write_plain_text(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write a script without any special token."""
    for index, message in enumerate(messages):
        page.write(f"{message['role'].upper()}: ")
        page.body(index, text_of(message))
        page.write("\n")
    page.write("ASSISTANT: " if add_prompt else "")


plain_text = Toy(
    name="plain_text",
    quirk="turns close with a line break, which merges with some letters before it",
    write=write_plain_text,
    tokenizer=Tokenizer(specials=(), merges=("a\n", "ab", "ASSISTANT")),
    **_PLAIN,
)
plain_merged_header = Toy(
    name="plain_merged_header",
    quirk="the line break that closes a turn merges with the header that follows it",
    write=write_plain_text,
    tokenizer=Tokenizer(specials=(), merges=("\nU", "\nT", "ab")),
    **_PLAIN,
)
plain_unmerged = Toy(
    name="plain_unmerged",
    quirk="turns close with a line break that merges with no other text",
    write=write_plain_text,
    tokenizer=Tokenizer(specials=(), merges=("ab", "USER: ")),
    **_PLAIN,
)


def write_sticky(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write a script with a blank line between the turns."""
    for index, message in enumerate(messages):
        page.write(f"\n{message['role'].upper()}: ")
        page.body(index, text_of(message))
        page.write("\n")
    page.write("\nASSISTANT: " if add_prompt else "")


plain_merged_letters = Toy(
    name="plain_merged_letters",
    quirk="turns close with a line break, which merges with each letter before it, and a blank line follows",
    write=write_sticky,
    tokenizer=Tokenizer(specials=(), merges=tuple(f"{letter}\n" for letter in ascii_letters)),
    **_PLAIN,
)


def write_truncating(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write the first six characters of each message."""
    for index, message in enumerate(messages):
        chatml_turn(page, index, message, lambda message: full_text(message)[:6])
    chatml_prompt(page, add_prompt)


truncating = chatml_like("truncating", "messages are cut after six characters", write_truncating)


def write_capitals(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write in capitals."""
    write_chatml(page, messages, add_prompt, lambda message: full_text(message).upper())


capitals = chatml_like("capitals", "messages are written in capitals", write_capitals, keeps=True)

LOCAL_TOYS = (
    chatml,
    default_system,
    dated,
    clock,
    thinking,
    opens_thinking,
    grouped,
    two_closes,
    doubled_close,
    palindrome_close,
    paired_close,
    alternating,
    markers,
    harmony,
    bracketed,
    closed_later,
    eos_when_done,
    mapping_arguments,
    string_arguments,
    double_encoder,
    ignores_arguments,
    backward_calls,
    backward_short_close,
    no_developer,
    drops_second,
    system_first,
    strings_only,
    prints_none,
    plain_text,
    plain_merged_header,
    plain_unmerged,
    plain_merged_letters,
    truncating,
    capitals,
    text_close,
    double_close,
    spaced,
    parts_only,
    lists_close_otherwise,
)
