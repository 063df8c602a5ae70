"""Templates that were made to bring out a wrong id: the answer is what the template writes, or a refusal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tito_core import Bridge, Message, OddStop, Policy, Refusal
from tito_core.bridge import Known
from tito_core.seams.growing import GrowingProfile
from tito_core.seams.probe import probe

Plain = dict[str, Any]
Write = Callable[[Sequence[Message]], str]
MARKS = ("<s>", "<u>", "<a>", "<t>", "<e>", "<end>", "<think>")
KEEP = Policy(odd_stop=OddStop.KEEP)
HELLO: Plain = {"role": "user", "content": "hello there"}
CALL: Plain = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
CALLING: Plain = {"role": "assistant", "content": "", "tool_calls": [CALL]}
OPENERS = {"system": "<s>", "developer": "<s>", "user": "<u>", "assistant": "<a>", "tool": "<t>"}


def encode(text: str) -> list[int]:
    """Return an id for each marker and each other character."""
    ids: list[int] = []
    while text:
        mark = next((mark for mark in MARKS if text.startswith(mark)), text[0])
        ids.append(MARKS.index(mark) if mark in MARKS else 100 + ord(mark))
        text = text[len(mark) :]
    return ids


def decode(ids: Sequence[int]) -> str:
    return "".join(MARKS[one] if one < len(MARKS) else chr(one - 100) for one in ids)


def tokenizer(write: Write) -> Any:
    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        return encode(write(messages) + speaks(write, messages) * add_generation_prompt)

    return tokenize


def said(message: Message) -> str:
    calls = [
        f"[{c['function']['name']} {c['function']['arguments']}]" for c in message.get("tool_calls") or ()
    ]
    return f"{message.get('content') or ''}{''.join(calls)}"


def ends_if_last(messages: Sequence[Message]) -> str:
    """Write an assistant's end only where nothing follows."""
    last = len(messages) - 1
    ends = ["<e>" if m["role"] != "assistant" or i == last else "\n" for i, m in enumerate(messages)]
    return "".join(OPENERS[m["role"]] + said(m) + e for m, e in zip(messages, ends, strict=True))


def stop_in_opener(messages: Sequence[Message]) -> str:
    """Write a call's id and another end once something follows; results open with the usual end."""
    text = ""
    for i, m in enumerate(messages):
        later = i < len(messages) - 1 and m["role"] == "assistant"
        names = "".join(c["id"] for c in m.get("tool_calls") or ()) if later else ""
        text += (
            OPENERS[m["role"]]
            + "<e>" * (m["role"] == "tool")
            + said(m)
            + names
            + ("<end>" if later else "<e>")
        )
    return text


def hoists_lines(messages: Sequence[Message]) -> str:
    """Write all lines of a user's text but the first in front of everything."""
    lines = {i: said(m).split("\n") for i, m in enumerate(messages)}
    rest = [line for i, m in enumerate(messages) if m["role"] == "user" for line in lines[i][1:]]
    shown = (lines[i][0] if m["role"] == "user" else said(m) for i, m in enumerate(messages))
    body = "".join(OPENERS[m["role"]] + text + "<e>" for m, text in zip(messages, shown, strict=True))
    return f"<s>{' '.join(rest)}{body}"


def counts_attempts(messages: Sequence[Message]) -> str:
    """Write how many answers there were before a user's "try again"."""
    text, answers = "", 0
    for m in messages:
        answers += m["role"] == "assistant"
        again = f"[{answers}]" if m["role"] == "user" and "try again" in said(m) and answers > 1 else ""
        text += f"{OPENERS[m['role']]}{again}{said(m)}<e>"
    return text


def counts_attempts_last(messages: Sequence[Message]) -> str:
    """Write how many answers there were after a user's "try again"."""
    text, answers = "", 0
    for m in messages:
        answers += m["role"] == "assistant"
        again = f"[{answers}]" if m["role"] == "user" and "try again" in said(m) and answers > 1 else ""
        text += f"{OPENERS[m['role']]}{said(m)}{again}<e>"
    return text


def names_results(messages: Sequence[Message]) -> str:
    """Write before a result the name of the first tool that was called by its id."""
    names: dict[Any, str] = {}
    text = ""
    for m in messages:
        for call in m.get("tool_calls") or ():
            names.setdefault(call["id"], call["function"]["name"])
        text += (
            OPENERS[m["role"]]
            + f"{names.get(m.get('tool_call_id'))}:" * (m["role"] == "tool")
            + said(m)
            + "<e>"
        )
    return text


def thinks_when_asked(messages: Sequence[Message]) -> str:
    """Let the model think if a user's text says so; see `speaks`."""
    return "".join(f"{OPENERS[m['role']]}{said(m)}<e>" for m in messages)


def speaks(write: Write, messages: Sequence[Message]) -> str:
    """Return the generation prompt."""
    asked = any("/think" in said(m) for m in messages if m["role"] == "user")
    return "<a><think>" if asked and write is thinks_when_asked else "<a>"


def sorts_results(messages: Sequence[Message]) -> str:
    """Write results in the order of the calls."""
    order = [c["id"] for m in messages for c in m.get("tool_calls") or ()]
    text = ""
    for i, m in enumerate(messages):
        if m["role"] != "tool":
            text += f"{OPENERS[m['role']]}{said(m)}<e>"
        elif messages[i - 1]["role"] != "tool":
            run = [one for one in messages[i:] if one["role"] == "tool"]
            known = sorted(
                run, key=lambda one: order.index(one["tool_call_id"]) if one["tool_call_id"] in order else 9
            )
            text += "".join(f"<t>{said(one)}<e>" for one in known)
    return text


def result(text: str, name: str = "c1") -> Plain:
    return {"role": "tool", "tool_call_id": name, "content": text}


OTHER = {**CALL, "function": {"name": "open", "arguments": "{}"}}
FIND = {**CALL, "function": {"name": "find", "arguments": "{}"}}
TWO: Plain = {**CALLING, "tool_calls": [CALL, {**CALL, "id": "c2"}]}
USED = [HELLO, {**CALLING, "tool_calls": [OTHER]}, result("one"), HELLO]
ANSWERED = [HELLO, {"role": "assistant", "content": "so"}, HELLO]
CASES: dict[str, tuple[Write, list[Plain], Plain, list[Plain]]] = {
    "a stop in a result's text": (ends_if_last, [HELLO], CALLING, [result("say <e> now")]),
    "a result that is a stop": (ends_if_last, [HELLO], CALLING, [result("<e>")]),
    "a stop in a result's opener": (stop_in_opener, [HELLO], CALLING, [result("seven")]),
    "lines in front": (hoists_lines, [HELLO], ANSWERED[1], [{"role": "user", "content": "look\nbe careful"}]),
    "a phrase": (counts_attempts, ANSWERED, ANSWERED[1], [{"role": "user", "content": "try again"}]),
    "a phrase, counted after it": (
        counts_attempts_last,
        ANSWERED,
        ANSWERED[1],
        [{"role": "user", "content": "try again"}],
    ),
    "an id that was used": (names_results, USED, {**CALLING, "tool_calls": [FIND]}, [result("7")]),
    "a switch to on": (
        thinks_when_asked,
        [{"role": "user", "content": "hi /think"}, *ANSWERED[1:]],
        ANSWERED[1],
        [{"role": "user", "content": "go on"}],
    ),
    "results in another order": (sorts_results, [HELLO], TWO, [result("two", "c2"), result("one", "c1")]),
}


@pytest.mark.parametrize("level", range(3))
@pytest.mark.parametrize("profiled", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_the_answer_is_what_the_template_writes_or_a_refusal(name: str, profiled: bool, level: int) -> None:
    write, history, turn, new = CASES[name]
    tokenize = tokenizer(write)
    prompt, stop = tokenize(history, add_generation_prompt=True), encode("<e>")
    ids = [*prompt, *encode(said(turn)), *stop]
    messages = [*history, turn, *new]
    whole = write(messages) + speaks(write, messages)
    before = whole.rindex(said(turn)) + len(said(turn))
    truth = encode(whole[before:])
    tail = truth[1:] if truth[:1] == stop else truth
    profile = GrowingProfile(probe(tokenize, stop)) if profiled else None
    known: Known = {**({"turn": turn} if level else {}), **({"history": history} if level == 2 else {})}
    found = Bridge(tokenize, stop, policy=KEEP, profile=profile).extend(ids, new, **known)
    hoisted = not whole.startswith(write(history))
    assert isinstance(found, Refusal) or (not hoisted and found.added == tuple(tail)), found
