"""Toys whose text after a turn depends only on the turn and the new messages."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from string import ascii_letters
from typing import Any

import attrs

from ...errors import TemplateRefused
from .page import Page
from .tokenizer import Tokenizer
from .toy import (
    ALL_ROLES,
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
Beside = Callable[[Sequence[Message], int], str]
"""Returns what stands before or after a message, which is given by the conversation and its place."""


def nothing(messages: Sequence[Message], place: int) -> str:
    """Return no text."""
    del messages, place
    return ""


@attrs.frozen
class Turns:
    """Writes one message after the other, all alike.

    Attributes:
        opener: What stands before a message's text; `{role}` is its role, `{ROLE}` that in capitals.
        close: What stands after it.
        speaks: The generation prompt.
        text: The text of a message.
        first: What stands before all messages.
        before: More that stands before the opener.
        after: More that stands after the close.
        lost: Whether a message is not, or not wholly, in the text.
        left_out: Whether nothing is written of a message.
    """

    opener: str = "<|im_start|>{role}\n"
    close: str = "<|im_end|>\n"
    speaks: str = "<|im_start|>assistant\n"
    text: MessageText = full_text
    first: str = ""
    before: Beside = nothing
    after: Beside = nothing
    lost: Callable[[Message], bool] = lambda _: False
    left_out: Callable[[Sequence[Message], int], bool] = lambda *_: False

    def __call__(self, page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
        """Write messages, and the generation prompt if it is asked for."""
        page.write(self.first)
        for place, message in enumerate(messages):
            if not self.left_out(messages, place):
                self.turn(page, messages, place, self.text(message))
            if self.lost(message):
                page.lose(place)
        page.write(self.speaks if add_prompt else "")

    def turn(self, page: Page, messages: Sequence[Message], place: int, text: str) -> None:
        """Write one message with this text."""
        role = str(messages[place]["role"])
        page.write(self.before(messages, place) + self.opener.format(role=role, ROLE=role.upper()))
        page.body(place, text)
        page.write(self.close + self.after(messages, place))


CHATML_TURNS = Turns()


def chatml_like(name: str, quirk: str, write: Any = CHATML_TURNS, **changes: Any) -> Toy:
    """Return a toy that writes ChatML, except for the given changes; its close is that of its turns."""
    usual: dict[str, Any] = {
        "close": getattr(write, "close", CHATML_TURNS.close),
        "stops": ("<|im_end|>", "<|endoftext|>"),
        "tokenizer": CHATML,
    }
    return Toy(name=name, quirk=quirk, write=write, **(usual | changes))


def write_default_system(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Begin with a system text of the template's own if the conversation has no system message."""
    if not messages or messages[0]["role"] != "system":
        page.write("<|im_start|>system\nbe good<|im_end|>\n")
    CHATML_TURNS(page, messages, add_prompt)


_clock = itertools.count()


def write_clock(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write a time first that is another one at each render."""
    page.write(f"<|im_start|>system\nit is {next(_clock) % 7919}<|im_end|>\n")
    CHATML_TURNS(page, messages, add_prompt)


def write_thinking(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Drop reasoning before the last user message; write an empty block into a last turn without any."""
    asked = last_index(messages, "user")
    for place, message in enumerate(messages):
        fresh = place > asked
        bare = "<think></think>" if fresh and place == len(messages) - 1 else ""
        kept = (reasoning_block(message) or bare) if fresh and message["role"] == "assistant" else ""
        CHATML_TURNS.turn(page, messages, place, kept + text_of(message) + hermes_calls(message))
    page.write(CHATML_TURNS.speaks if add_prompt else "")


def write_grouped(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Put adjacent tool results into one user turn."""
    roles = [message["role"] for message in messages]
    for index, message in enumerate(messages):
        if message["role"] != "tool":
            CHATML_TURNS.turn(page, messages, index, full_text(message))
            continue
        page.write("<|im_start|>user" if index == 0 or roles[index - 1] != "tool" else "")
        page.write("\n[result]\n")
        page.body(index, text_of(message))
        page.write("\n[/result]")
        page.write("<|im_end|>\n" if roles[index + 1 : index + 2] != ["tool"] else "")
    page.write(CHATML_TURNS.speaks if add_prompt else "")


def closes_call_otherwise(messages: Sequence[Message], place: int) -> str:
    """Return the close of a turn, which is another token if it calls tools."""
    return "<|eom|>" if calls_of(messages[place]) else "<|im_end|>"


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


def with_close(name: str, close: str) -> Toy:
    """Return a toy whose close contains its own beginning again."""
    return Toy(
        name=name,
        quirk=f"the close is {close}, which overlaps itself",
        write=Turns("<|{role}|>", close, "<|assistant|>"),
        tokenizer=REPEATING,
        close=close,
        stops=("<|e|>",),
        keeps=True,
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


def write_closed_later(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Close an assistant's turn only when something follows it."""
    write = page.write
    for index, message in enumerate(messages):
        assistant = message["role"] == "assistant"
        write("" if assistant else "[RESULTS]" if message["role"] == "tool" else "[INST]")
        page.body(index, text_of(message) + (hermes_calls(message) if assistant else ""))
        write("[/INST]" if not assistant else "</s>" if index < len(messages) - 1 else "")
    del add_prompt


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


PHI_TURNS = Turns("<|{role}|>\n", "<|end|>\n", "<|assistant|>\n")


def write_eos_when_done(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """End with an end-of-text token where there is no generation prompt."""
    PHI_TURNS(page, messages, add_prompt)
    page.write("" if add_prompt else "<|endoftext|>")


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


def writes_calls(written_arguments: Callable[[Any], str]) -> Turns:
    """Return a ChatML template that writes arguments in its own way."""
    return Turns(
        text=lambda message: (
            reasoning_block(message) + text_of(message) + hermes_calls(message, written_arguments)
        )
    )


def backward_call(call: Message) -> str:
    """Write a call with its arguments first, its name and id after."""
    name, identity = call["function"]["name"], call.get("id")
    arguments = as_is(arguments_of(call))
    return f'<tool_call>{{"arguments": {arguments}, "name": "{name}", "id": "{identity}"}}</tool_call>'


def backward(message: Message) -> str:
    """Write the calls before the content."""
    return "".join(backward_call(call) for call in calls_of(message)) + text_of(message)


def repeats_role(messages: Sequence[Message], place: int) -> bool:
    """Tell whether a message has the role of the one before it, which is no assistant."""
    before, role = messages[place - 1]["role"] if place else None, messages[place]["role"]
    return bool(role == before != "assistant")


def write_system_first(page: Page, messages: Sequence[Message], add_prompt: bool) -> None:
    """Write all system texts first."""
    for place in sorted(range(len(messages)), key=lambda one: messages[one]["role"] != "system"):
        CHATML_TURNS.turn(page, messages, place, full_text(messages[place]))
    page.write(CHATML_TURNS.speaks if add_prompt else "")


def without_list(message: Message) -> str:
    """Write a message without a content that is a list of parts."""
    return full_text({**message, "content": ""} if isinstance(message.get("content"), list) else message)


def without_string(message: Message) -> str:
    """Write a message without a content that is a string."""
    return full_text({**message, "content": ""} if isinstance(message.get("content"), str) else message)


def closes_twice(messages: Sequence[Message], place: int) -> str:
    """Return the marker that ends a turn, once more after an assistant's."""
    return "<|im_end|>" if messages[place]["role"] == "assistant" else ""


def closes_list_otherwise(messages: Sequence[Message], place: int) -> str:
    """Return the close, with a line break before it if an assistant's content is a list."""
    message = messages[place]
    listed = message["role"] == "assistant" and isinstance(message.get("content"), list)
    return "\n<|im_end|>\n" if listed else "<|im_end|>\n"


TEXT_CLOSE = attrs.evolve(CHATML, merges=(*CHATML.merges, "a\n", "b\n", "}\n"))
SCRIPT = Turns("{ROLE}: ", "\n", "ASSISTANT: ", text_of)
"""A script without any special token."""


def script(name: str, quirk: str, *merges: str, write: Turns = SCRIPT) -> Toy:
    """Return a toy that writes a script."""
    return Toy(
        name=name,
        quirk=quirk,
        write=write,
        tokenizer=Tokenizer(specials=(), merges=merges),
        close="\n",
        stops=("\n",),
        roles=("system", "user", "assistant"),
        keeps=True,
    )


LOCAL_TOYS = (
    chatml_like("chatml", "none: every turn is written the same way, and the history is kept", keeps=True),
    chatml_like(
        "default_system",
        "the template writes its own system text first if none is sent",
        write_default_system,
        keeps=True,
    ),
    chatml_like(
        "dated",
        "the template's own system text has a date",
        Turns(first="<|im_start|>system\ntoday is 2024-05-07<|im_end|>\n"),
        keeps=True,
    ),
    chatml_like(
        "clock",
        "the system text has the time, which is another one at each render",
        write_clock,
        nondeterministic=True,
    ),
    chatml_like("thinking", "reasoning is dropped from turns before the last user message", write_thinking),
    chatml_like(
        "opens_thinking",
        "the generation prompt opens a reasoning block",
        Turns(speaks="<|im_start|>assistant\n<think>\n"),
    ),
    chatml_like("grouped", "adjacent tool results share one turn", write_grouped),
    chatml_like(
        "two_closes",
        "a turn that calls a tool ends with another token, and the close is one token long",
        Turns(close="", after=closes_call_otherwise),
        close="<|im_end|>",
        stops=("<|im_end|>", "<|eom|>"),
        tokenizer=Tokenizer(specials=(*CHATML.specials, "<|eom|>"), merges=CHATML.merges),
        keeps=True,
    ),
    with_close("doubled_close", "<|e|><|e|>"),
    with_close("palindrome_close", "<|e|><|n|><|e|>"),
    with_close("paired_close", "<|e|><|n|><|e|><|n|>"),
    Toy(
        name="alternating",
        quirk="user and assistant must alternate; no tools; texts are stripped",
        write=write_alternating,
        tokenizer=TURNS,
        close="</turn>\n",
        stops=("</turn>", "<eos>"),
        roles=("system", "user", "assistant"),
        keeps=True,
    ),
    Toy(
        name="markers",
        quirk="turns have no close; the marker of the next role is the stop token",
        write=write_markers,
        tokenizer=MARKERS,
        close="",
        stops=("<|user|>", "<|observation|>", "<|end|>"),
    ),
    Toy(
        name="harmony",
        quirk="a last answer ends with <|return|>, the same answer in history with <|end|>, "
        "a call with <|call|>",
        write=write_harmony,
        tokenizer=HARMONY,
        close="<|end|>",
        stops=("<|return|>", "<|call|>", "<|end|>"),
    ),
    Toy(
        name="bracketed",
        quirk="no generation prompt; a call's id comes after its arguments and must be nine characters long",
        write=write_bracketed,
        tokenizer=BRACKETS,
        close="</s>",
        stops=("</s>",),
        keeps=True,
    ),
    Toy(
        name="closed_later",
        quirk="an assistant's turn is closed only when another message follows",
        write=write_closed_later,
        tokenizer=BRACKETS,
        close="</s>",
        stops=("</s>",),
    ),
    Toy(
        name="eos_when_done",
        quirk="an end-of-text token is written if there is no generation prompt",
        write=write_eos_when_done,
        tokenizer=PHI,
        close="<|end|>\n",
        stops=("<|end|>", "<|endoftext|>"),
        keeps=True,
    ),
    chatml_like("mapping_arguments", "arguments must be a mapping", writes_calls(only_mapping), keeps=True),
    chatml_like("string_arguments", "arguments must be a string", writes_calls(only_string), keeps=True),
    chatml_like(
        "double_encoder",
        "arguments that are JSON text already are encoded again",
        writes_calls(json.dumps),
        keeps=True,
    ),
    chatml_like(
        "ignores_arguments", "the arguments of a call are dropped", writes_calls(lambda _: ""), keeps=True
    ),
    chatml_like(
        "backward_calls",
        "name and id come after the arguments, the content after the calls",
        Turns(text=backward),
        keeps=True,
    ),
    chatml_like(
        "backward_short_close",
        "as backward_calls, and the close is one token, which a name or id may contain",
        Turns(close="<|im_end|>", text=backward),
        keeps=True,
    ),
    chatml_like(
        "no_developer",
        "developer messages are dropped",
        Turns(left_out=lambda messages, place: messages[place]["role"] not in ALL_ROLES),
    ),
    chatml_like(
        "drops_second",
        "the second of two adjacent user or tool messages is dropped",
        Turns(left_out=repeats_role),
    ),
    chatml_like("system_first", "system messages come first, wherever they were sent", write_system_first),
    chatml_like(
        "strings_only",
        "content that is a list of parts is dropped",
        Turns(text=without_list, lost=lambda message: isinstance(message.get("content"), list)),
    ),
    chatml_like(
        "prints_none",
        "missing content is written as the word None",
        Turns(text=lambda message: "None" * (message.get("content") is None) + full_text(message)),
        keeps=True,
    ),
    script(
        "plain_text",
        "turns close with a line break, which merges with some letters before it",
        "a\n",
        "ab",
        "ASSISTANT",
    ),
    script(
        "plain_merged_header",
        "the line break that closes a turn merges with the header that follows it",
        "\nU",
        "\nT",
        "ab",
    ),
    script("plain_unmerged", "turns close with a line break that merges with no other text", "ab", "USER: "),
    script(
        "plain_merged_letters",
        "turns close with a line break, which merges with each letter before it, and a blank line follows",
        *(f"{letter}\n" for letter in ascii_letters),
        write=Turns("\n{ROLE}: ", "\n", "\nASSISTANT: ", text_of),
    ),
    chatml_like(
        "truncating",
        "messages are cut after six characters",
        Turns(text=lambda message: full_text(message)[:6]),
    ),
    chatml_like(
        "capitals",
        "messages are written in capitals",
        Turns(text=lambda message: full_text(message).upper()),
        keeps=True,
    ),
    chatml_like(
        "text_close",
        "the close begins with text, which merges with the end of a turn",
        Turns(close="\n<|im_end|>\n"),
        tokenizer=TEXT_CLOSE,
    ),
    chatml_like(
        "double_close",
        "the close has the marker twice, and the engine samples the first",
        Turns(close="\n<|im_end|>\n", after=closes_twice),
        tokenizer=TEXT_CLOSE,
        close="\n<|im_end|>\n<|im_end|>",
    ),
    chatml_like(
        "spaced",
        "an id for every character, and a space before the close",
        Turns("<|im_start|>{role} ", " <|im_end|>", "<|im_start|>assistant "),
        tokenizer=attrs.evolve(CHATML, merges=()),
    ),
    chatml_like(
        "parts_only",
        "content that is a string is dropped",
        Turns(
            text=without_string,
            lost=lambda message: isinstance(message.get("content"), str) and message["content"] != "",
        ),
    ),
    chatml_like(
        "lists_close_otherwise",
        "a turn whose content is a list of parts has another close",
        Turns(close="", after=closes_list_otherwise),
        close="<|im_end|>\n",
    ),
)
