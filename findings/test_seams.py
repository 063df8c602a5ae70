"""Tails that a profile believes in any history, and texts that a template moves to the front in part."""

# ruff: noqa: S101

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.core.seams.test_adversaries import ANSWERED, HELLO, KEEP, OPENERS, encode, said, tokenizer
from tito_core import Bridge, Message, Refusal
from tito_core.seams.growing import GrowingProfile
from tito_core.seams.probe import probe

Plain = dict[str, Any]
CONDITIONS: dict[str, Callable[[str], bool]] = {
    "ends with": lambda text: text.endswith("again"),
    "is": lambda text: text == "try again",
}


def counting(condition: Callable[[str], bool]) -> Any:
    """Write how many answers there were before a user's text for which a condition holds."""

    def write(messages: Sequence[Message]) -> str:
        text, answers = "", 0
        for m in messages:
            answers += m["role"] == "assistant"
            mark = f"[{answers}]" if m["role"] == "user" and condition(said(m)) and answers > 1 else ""
            text += f"{OPENERS[m['role']]}{mark}{said(m)}<e>"
        return text

    return write


def first_line_in_front(messages: Sequence[Message]) -> str:
    """Write all lines of a user's text but the last in front of everything."""
    lines = {i: said(m).split("\n") for i, m in enumerate(messages)}
    rest = [line for i, m in enumerate(messages) if m["role"] == "user" for line in lines[i][:-1]]
    shown = (lines[i][-1] if m["role"] == "user" else said(m) for i, m in enumerate(messages))
    body = "".join(OPENERS[m["role"]] + text + "<e>" for m, text in zip(messages, shown, strict=True))
    return f"<s>{' '.join(rest)}{body}"


def extended(write: Any, history: list[Plain], new: Plain, *, profiled: bool) -> Any:
    """Return what a bridge adds after an answer "so"."""
    tokenize, stop = tokenizer(write), encode("<e>")
    turn = {"role": "assistant", "content": "so"}
    profile = GrowingProfile(probe(tokenize, stop)) if profiled else None
    ids = [*tokenize(history, add_generation_prompt=True), *encode("so"), *stop]
    return Bridge(tokenize, stop, policy=KEEP, profile=profile).extend(ids, [new], turn=turn, history=history)


@pytest.mark.parametrize("profiled", [False, True])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_what_a_text_and_the_history_change_together_is_seen(condition: str, profiled: bool) -> None:
    """With a profile the unlike history has lengthened texts alone, for which the condition does not hold."""
    found = extended(
        counting(CONDITIONS[condition]), ANSWERED, {"role": "user", "content": "try again"}, profiled=profiled
    )
    assert isinstance(found, Refusal) or found.added == tuple(encode("<u>[2]try again<e><a>"))


@pytest.mark.parametrize("profiled", [False, True])
def test_a_first_line_that_is_written_in_front_is_not_lost(profiled: bool) -> None:
    """A longer text is longer at its end, so that only what becomes of its end is seen."""
    new = {"role": "user", "content": "be careful\nlook"}
    found = extended(first_line_in_front, [HELLO], new, profiled=profiled)
    assert isinstance(found, Refusal)
