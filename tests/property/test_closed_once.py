"""Law 5. Closed once.

After the completion the suffix stands exactly once: the largest overlap between the end of the sampled ids
and the beginning of the suffix is not written twice, a truncated completion gets what its message does not
show as sampled, also when the suffix overlaps itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from tito_core import (
    OddStop,
    Policy,
    Reason,
    Refusal,
    Step,
    Stitched,
    Truncated,
    answer,
    stitch,
    stitch_questions,
)
from tito_core.testing.toys import Message, toy_named

harmony, markers = map(toy_named, ("harmony", "markers"))

Ids = tuple[int, ...]
OPENER = 9
"""Opens a user's turn."""
SPEAK = 5
"""Opens an assistant's turn, and with it asks the model to speak."""
TEXT = 1
QUESTION = {"role": "user", "content": "q"}
ANSWER = {"role": "assistant", "content": "a"}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "r"}
TAIL = (OPENER, 100 + ord("q"), 4, SPEAK)
RESULT_TAIL = (6, 100 + ord("r"), 4, SPEAK)


def closing_with(suffix: Ids) -> Callable[..., list[int]]:
    """Return a family whose assistant turns close with `suffix`, all others with 4; letters are over 100."""

    def words(message: Message) -> Iterator[int]:
        for call in message.get("tool_calls") or ():
            yield from (3, *(100 + ord(letter) for letter in str(call["function"]["arguments"])), 2)
        yield from (100 + ord(letter) for letter in message.get("content") or "")

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        ids: list[int] = []
        for message in messages:
            opener = {"user": OPENER, "assistant": SPEAK, "tool": 6}.get(message["role"], 10)
            ids += [opener, *words(message), *(suffix if message["role"] == "assistant" else (4,))]
        return ids + [SPEAK] * add_generation_prompt

    return tokenize


def stitched(
    completion: Ids, suffix: Ids, truncated: bool, turn: Any = ANSWER, new: Any = QUESTION
) -> list[int] | None:
    """Stitch after one turn that was sampled so."""
    step = Step(
        prompt=[QUESTION],
        completion=[turn],
        prompt_ids=[11, 12],
        completion_ids=completion,
        truncated=truncated,
    )
    return stitch([step], [QUESTION, turn, new], suffix, closing_with(suffix))


def expected(completion: Ids, suffix: Ids, truncated: bool, tail: Ids = TAIL) -> list[int] | None:
    """Return what the law says, trying every overlap; a stop that is nothing of the kind is refused."""
    whole, kept = (*suffix, *tail), [11, 12, *completion]
    if truncated:
        return [*kept, *whole]
    sizes = range(1, len(completion) + 1)
    closes = [size for size in sizes if size <= len(suffix) and completion[-size:] == suffix[:size]]
    if closes:
        return [*kept, *whole[max(closes) :]]
    if not suffix and completion[-1:] == tail[:1]:
        return [*kept, *whole[1:]]
    return None


def also_right(completion: Ids, suffix: Ids, truncated: bool, tail: Ids = TAIL) -> list[int] | None:
    """Return the answer where the close and the opener behind it were both sampled, which may be refused."""
    size = len(suffix) + 1
    opened = not truncated and completion[-size:] == (*suffix, tail[0])
    return [11, 12, *completion, *tail[1:]] if opened else expected(completion, suffix, truncated, tail)


def strings(letters: Sequence[int], longest: int) -> Iterator[Ids]:
    """Yield every sequence of at most `longest` ids."""
    return itertools.chain.from_iterable(
        itertools.product(letters, repeat=size) for size in range(longest + 1)
    )


@pytest.mark.parametrize("truncated", [False, True])
def test_every_small_completion_meets_every_small_suffix(truncated: bool) -> None:
    """All suffixes of up to four ids of two kinds, all completions of up to four of three kinds."""
    for suffix in strings((7, 8), 4):
        for completion in strings((TEXT, 7, 8), 4):
            found = stitched(completion, suffix, truncated)
            assert found == expected(completion, suffix, truncated), (completion, suffix)


@pytest.mark.parametrize("truncated", [False, True])
def test_every_completion_that_may_have_sampled_the_next_opener(truncated: bool) -> None:
    """The same with completions that may end in the id that opens the user's turn."""
    for suffix in strings((7, 8), 2):
        for completion in strings((7, 8, OPENER), 4):
            found = stitched(completion, suffix, truncated)
            right = (expected(completion, suffix, truncated), also_right(completion, suffix, truncated))
            assert found in right, (completion, suffix)


@pytest.mark.parametrize("truncated", [False, True])
def test_a_turn_that_calls_a_tool_is_closed_by_the_same_rule(truncated: bool) -> None:
    """All suffixes of up to three ids after a call, all completions of up to three.

    Where nothing closes a turn and nothing stopped it, the end of a call cannot be told: a refusal will do.
    """
    for suffix in strings((7, 8), 3):
        for completion in strings((TEXT, 7, 8), 3):
            found = stitched(completion, suffix, truncated, CALL, RESULT)
            if found is not None or suffix or not truncated:
                assert found == expected(completion, suffix, truncated, RESULT_TAIL), (completion, suffix)


@pytest.mark.parametrize(("suffix", "longest"), [((7,) * 5, 7), ((7, 8, 7, 8, 7), 7), ((7, 7, 8, 7, 7), 7)])
def test_a_long_suffix_that_overlaps_itself(suffix: Ids, longest: int) -> None:
    for completion in strings((7, 8), longest):
        found = stitched(completion, suffix, truncated=False)
        assert found == expected(completion, suffix, truncated=False), completion


def test_a_suffix_that_the_template_does_not_write_closes_nothing() -> None:
    """Somebody took the suffix of another family: a turn that was cut cannot be closed with it."""
    step = Step(
        prompt=[QUESTION], completion=[ANSWER], prompt_ids=[1], completion_ids=[TEXT, 7], truncated=True
    )
    found = answer(stitch_questions([step], [QUESTION, ANSWER, QUESTION], (8, 7)), closing_with((7,)))
    assert isinstance(found, Refusal)
    assert found.reason is Reason.CLOSE_MISMATCH


def step_that_ended_with(toy: Any, text: str, **facts: Any) -> Step:
    """Return a step whose completion is this text."""
    ids = toy.tokenizer.encode(text)
    return Step(
        **({"prompt": [QUESTION], "completion": [ANSWER], "prompt_ids": [1], "completion_ids": ids} | facts)
    )


def ends_in(toy: Any, found: Stitched | Refusal) -> str:
    """Return the text after the prompt's ids."""
    assert isinstance(found, Stitched), found
    return str(toy.tokenizer.decode(found.ids.tolist()[1:]))


def test_a_role_marker_that_was_sampled_as_the_stop_is_not_repeated() -> None:
    """GLM: the user's marker is both the stop and the opener."""
    step = step_that_ended_with(markers, "a<|user|>")
    found = answer(stitch_questions([step], [QUESTION, ANSWER, QUESTION], ()), markers)
    assert ends_in(markers, found) == "a<|user|>\nq<|assistant|>"


def test_a_role_marker_of_another_role_is_refused_unless_a_policy_says_otherwise() -> None:
    """GLM: the model stopped for a tool result, and a user spoke."""
    step = step_that_ended_with(markers, "a<|observation|>")
    prompt = [QUESTION, ANSWER, QUESTION]
    refused = answer(stitch_questions([step], prompt, ()), markers)
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.ODD_STOP
    replaced = answer(stitch_questions([step], prompt, (), policy=Policy(odd_stop=OddStop.REPLACE)), markers)
    assert ends_in(markers, replaced) == "a<|user|>\nq<|assistant|>"
    kept = answer(stitch_questions([step], prompt, (), policy=Policy(odd_stop=OddStop.KEEP)), markers)
    assert ends_in(markers, kept) == "a<|observation|><|user|>\nq<|assistant|>"


def test_a_stop_that_history_writes_otherwise_is_refused_unless_a_policy_says_otherwise() -> None:
    """gpt-oss: a last answer ends with <|return|>, the same answer in history with <|end|>."""
    step = step_that_ended_with(harmony, "a<|return|>")
    prompt = [QUESTION, ANSWER, QUESTION]
    tail = "<|start|>user<|message|>q<|end|><|start|>assistant"
    refused = answer(stitch_questions([step], prompt, harmony.suffix), harmony)
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.ODD_STOP
    replace, keep = (Policy(odd_stop=odd) for odd in (OddStop.REPLACE, OddStop.KEEP))
    replaced = answer(stitch_questions([step], prompt, harmony.suffix, policy=replace), harmony)
    assert ends_in(harmony, replaced) == f"a<|end|>{tail}"
    kept = answer(stitch_questions([step], prompt, harmony.suffix, policy=keep), harmony)
    assert ends_in(harmony, kept) == f"a<|return|><|end|>{tail}"


def test_a_call_that_stopped_with_its_own_stop_needs_no_close() -> None:
    """gpt-oss: a call ends with <|call|>, which is the first thing that the template writes after it."""
    step = step_that_ended_with(harmony, "{}<|call|>", completion=[CALL])
    found = answer(stitch_questions([step], [QUESTION, CALL, RESULT], harmony.suffix), harmony)
    assert ends_in(harmony, found) == "{}<|call|><|start|>f to=assistant<|message|>r<|end|><|start|>assistant"


def test_a_turn_cut_short_is_refused_where_a_policy_says_so() -> None:
    step = step_that_ended_with(markers, "a", truncated=True)
    policy = Policy(truncated=Truncated.REFUSE)
    found = answer(stitch_questions([step], [QUESTION, ANSWER, QUESTION], (), policy=policy), markers)
    assert isinstance(found, Refusal)
    assert found.reason is Reason.TRUNCATED
