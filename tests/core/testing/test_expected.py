"""What a template writes after a turn, found without a look at where its texts stand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings

from tito_core import Message
from tito_core.testing import TOYS, CannotLocateError, SampledTurn, Toy, toy_named
from tito_core.testing.expected import Template, expected_parts, tail_after
from tito_core.testing.strategies import Rollout, rollouts
from tito_core.testing.strategies.rollout import can_play

FITTING = tuple(toy for toy in TOYS if can_play(toy))
ECHOING = {"ignores_arguments", "prints_length", "repeats_answer", "repeats_arguments", "truncating"}
"""Toys that write the turn's text again, depend on it, or drop it."""


def plain(toy: Toy) -> Template:
    def render(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        return toy(messages, add_generation_prompt=add_generation_prompt)

    return Template(render, toy.decode, frozenset(toy.stop_ids))


@pytest.mark.whole
def test_the_place_that_is_found_is_the_one_that_a_toy_knows() -> None:
    """It may begin a call's rest earlier, where the toy counts that as the turn's own text."""
    counted: Counter[str] = Counter()

    def judge(rollout: Rollout) -> None:
        toy = rollout.template
        for turn in rollout.turns[1:]:
            place = len(turn.messages) - len(turn.new_messages) - 1
            right = tail_after(Template(toy, toy.decode, ()), turn.messages, place)
            try:
                found = tail_after(plain(toy), turn.messages, place)
            except CannotLocateError:
                assert toy.name in ECHOING, toy
                counted["unseen"] += 1
                continue
            called = turn.messages[place].get("tool_calls")
            assert found == right or (called and found[-len(right) :] == right), toy
            counted["found"] += 1

    few = settings(max_examples=120, derandomize=True, database=None, deadline=None)
    few(given(rollouts(FITTING))(judge))()
    few(given(rollouts([toy for toy in FITTING if toy.name in ECHOING]))(judge))()
    assert set(counted) == {"found", "unseen"}


def test_a_rejected_variation_is_not_seen() -> None:
    mapping = toy_named("mapping_arguments")
    call = {"id": "c", "function": {"name": "f", "arguments": {"a": "b"}}}
    chat: list[dict[str, Any]] = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "b"},
    ]
    assert tail_after(plain(mapping), chat, 1)

    def fixed(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        if messages != chat:
            return mapping([{"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}], **more)
        return mapping(messages, add_generation_prompt=add_generation_prompt)

    more = {"add_generation_prompt": True}
    with pytest.raises(CannotLocateError, match=r"rejects other words in messages\[1\]: Can only get"):
        tail_after(Template(fixed, mapping.decode, ()), chat, 1)


@pytest.mark.parametrize(
    ("toy", "sampled", "added"),
    [
        ("chatml", "b<|im_end|>", "\n"),
        ("chatml", "b<|im_end|>\n", ""),
        ("chatml", "b", "<|im_end|>\n"),
        ("chatml", "b<|endoftext|>", "<|im_end|>\n"),
        ("text_close", "b<|im_end|>", "\n"),  # without the line break that the template writes
        ("text_close", "b\n<|im_end|>", "\n"),
        ("text_close", "b\n", "\n<|im_end|>\n"),  # a line break is no stop
        ("double_close", "b\n<|im_end|>", "\n<|im_end|>"),
        ("doubled_close", "b<|e|>", "<|e|>"),
        ("doubled_close", "b<|e|><|e|>", ""),
        ("palindrome_close", "b<|e|>", "<|n|><|e|>"),
        ("palindrome_close", "b<|e|><|n|><|e|>", ""),
        ("markers", "b<|user|>", ""),
        ("harmony", "b<|end|>", ""),
        ("harmony", "b<|return|>", "<|end|>"),
        ("plain_unmerged", "b\n", ""),
        ("plain_unmerged", "b", "\n"),
    ],
)
def test_what_is_added_follows_what_was_sampled(toy: str, sampled: str, added: str) -> None:
    template = plain(toy_named(toy))
    encode, decode = toy_named(toy).encode, template.text
    chat = [{"role": role, "content": "b"} for role in ("user", "assistant", "user")]
    *_, last = expected_parts(template, chat, {1: SampledTurn(encode(sampled))}, None)
    (only,) = last.choices
    written = decode(last.whole).removeprefix(toy_named(toy).close)
    assert decode(only) == added + written.removeprefix("<|user|>" if toy == "markers" else "")


@pytest.mark.parametrize(("truncated", "added"), [(False, ""), (True, "\n"), (None, "\n")])
def test_an_id_that_holds_the_end_of_the_text_and_its_close_ends_a_turn(
    truncated: bool | None, added: str
) -> None:
    """The engine ended it at a line break, which is one id with the letter before it, and no stop id."""
    toy = toy_named("plain_text")
    chat = [{"role": role, "content": "a"} for role in ("user", "assistant", "user")]
    turn = SampledTurn(toy.encode("a\n"), truncated=truncated)
    *_, last = expected_parts(Template(toy, toy.decode, toy.stop_ids), chat, {1: turn}, None)
    assert [toy.decode(list(one)) for one in last.choices] == [f"{added}USER: a\nASSISTANT: "]
