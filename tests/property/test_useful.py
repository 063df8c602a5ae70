"""The floor under law 2: where a family behaves, the ordinary next prompt is stitched.

A kernel that refuses everything would keep every other law.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests import oracle
from tito_core import Policy, Refusal, Step, Stitched, answer, stitch, stitch_questions, suffix_ids
from tito_core.testing.strategies.message import Chat
from tito_core.testing.strategies.sampled import rendered, right_stop, sampled_words
from tito_core.testing.toys import LOCAL_TOYS, Toy, toy_named

(
    marks_no_reasoning,
    moving_system,
    numbered_results,
    sliding_window,
    backward_calls,
    backward_short_close,
    chatml,
    clock,
    closed_later,
    drops_second,
    ignores_arguments,
    plain_merged_header,
    plain_merged_letters,
    plain_text,
    truncating,
) = map(
    toy_named,
    (
        "marks_no_reasoning",
        "moving_system",
        "numbered_results",
        "sliding_window",
        "backward_calls",
        "backward_short_close",
        "chatml",
        "clock",
        "closed_later",
        "drops_second",
        "ignores_arguments",
        "plain_merged_header",
        "plain_merged_letters",
        "plain_text",
        "truncating",
    ),
)


def call(number: int) -> dict[str, Any]:
    """Return a tool call as OpenAI's wire has it."""
    return {
        "id": f"callaaaa{number}",
        "type": "function",
        "function": {"name": "get", "arguments": '{"q": "ab"}'},
    }


def result(number: int) -> dict[str, Any]:
    """Return the result of a call."""
    return {"role": "tool", "tool_call_id": f"callaaaa{number}", "content": "ba"}


USER = {"role": "user", "content": "hello"}
SYSTEM = {"role": "system", "content": "be good"}
DEVELOPER = {"role": "developer", "content": "be bad"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "ab"}]}
ANSWER = {"role": "assistant", "content": "ab"}
THOUGHT = {"role": "assistant", "content": "ab", "reasoning_content": "aab"}
CALL = {"role": "assistant", "content": None, "tool_calls": [call(1)]}
THOUGHT_CALL = {"role": "assistant", "content": "a", "reasoning_content": "aab", "tool_calls": [call(1)]}
TWO_CALLS = {"role": "assistant", "content": "", "tool_calls": [call(1), call(2)]}

HISTORIES: dict[str, Chat] = {
    "a question": [USER, ANSWER],
    "a system text": [SYSTEM, USER, ANSWER],
    "a thought": [USER, THOUGHT],
    "a long history": [SYSTEM, USER, CALL, result(1), ANSWER, USER, THOUGHT, USER, ANSWER],
    "a tool loop": [USER, CALL, result(1), THOUGHT],
    "a call": [USER, CALL],
    "a call thought over": [USER, THOUGHT_CALL],
    "two calls": [USER, TWO_CALLS],
    "a second call": [USER, CALL, result(1), CALL],
}


def environments(last: dict[str, Any]) -> Iterator[tuple[str, Chat]]:
    """Yield what ordinarily follows a turn, by name."""
    results = [result(number) for number, _ in enumerate(last.get("tool_calls", ()), start=1)]
    if results:
        yield "results", results
    yield "user", [*results, USER]
    yield "two users", [*results, USER, USER]
    yield "parts", [*results, PARTS]
    yield "system, user", [*results, SYSTEM, USER]
    yield "developer, user", [*results, DEVELOPER, USER]
    yield "another's answer, user", [*results, ANSWER, USER]


MAY_REFUSE = {
    clock: "its first text changes from question to question",
    truncating: "the words of the turn may not fit",
    drops_second: "a dropped message is refused, and so is what looks like it",
    plain_text: "a merge may swallow the close",
    plain_merged_header: "a merge swallows the close",
    plain_merged_letters: "a merge swallows the close",
}
UNSURE_AFTER_CALLS = {
    ignores_arguments: "the words of a call leave no trace, so its end cannot be located",
    backward_short_close: "content stands after the calls, and cannot be told from the close",
    backward_calls: "content stands after the calls, and cannot be told from the close",
}
BEHAVED = [toy for toy in LOCAL_TOYS if toy not in MAY_REFUSE]
CASES = [
    pytest.param(toy, [*history, *new], len(history), id=f"{toy.name}-{before}-{after}")
    for toy in BEHAVED
    for before, history in HISTORIES.items()
    if not (toy in UNSURE_AFTER_CALLS and "tool_calls" in history[-1])
    for after, new in environments(history[-1])
]


def ordinary_step(toy: Toy, prompt: Chat, matched: int) -> Step:
    """Return the call that sampled the last matched turn to its right stop."""
    chat = prompt[:matched]
    ids = sampled_words(toy, chat, 1) + right_stop(toy, prompt, matched - 1)
    return Step(
        prompt=chat[:-1], completion=chat[-1:], prompt_ids=rendered(toy, chat[:-1]), completion_ids=ids
    )


@pytest.mark.parametrize(("toy", "prompt", "matched"), CASES)
def test_the_ordinary_next_prompt_is_stitched(toy: Toy, prompt: Chat, matched: int) -> None:
    """Wherever the oracle knows a right answer, the kernel finds it."""
    step = ordinary_step(toy, prompt, matched)
    right = oracle.answers(toy, [step], prompt, toy.suffix, Policy())
    found = answer(stitch_questions([step], prompt, toy.suffix), toy)
    if right:
        assert isinstance(found, Stitched), found
        assert found.ids.tolist() in [one.ids for one in right]


def test_the_table_of_ordinary_prompts_has_a_right_answer_almost_everywhere() -> None:
    """The test above would show nothing if the oracle knew no answers."""
    known = [knows(*case.values) for case in CASES[::7]]  # type: ignore[arg-type]  # pytest forgets their types
    assert sum(known) > 0.9 * len(known)


def knows(toy: Toy, prompt: Chat, matched: int) -> bool:
    """Tell whether the oracle knows a right answer."""
    return bool(oracle.answers(toy, [ordinary_step(toy, prompt, matched)], prompt, toy.suffix, Policy()))


@pytest.mark.parametrize("toy", BEHAVED, ids=lambda toy: toy.name)
def test_a_turn_cut_short_is_closed(toy: Toy) -> None:
    """By default the whole close is written after it."""
    step = Step(prompt=[USER], completion=[ANSWER], prompt_ids=[1], completion_ids=[197], truncated=True)
    right = oracle.answers(toy, [step], [USER, ANSWER, USER], toy.suffix, Policy())
    assert right
    found = stitch([step], [USER, ANSWER, USER], toy.suffix, toy)
    assert found == [1, 197, *toy.suffix, *found[2 + len(toy.suffix) :]] if found else False
    assert found in [one.ids for one in right]


@pytest.mark.parametrize("toy", BEHAVED, ids=lambda toy: toy.name)
def test_the_close_of_a_family_is_found_by_asking(toy: Toy) -> None:
    """`suffix_ids` is the close that the toy declares; nothing at all where only a follower brings it out."""
    assert suffix_ids(toy) == (() if toy is closed_later else toy.suffix)
    prompt = [USER, ANSWER, USER]
    step = ordinary_step(toy, prompt, 2)
    assert stitch([step], prompt, suffix_ids(toy), toy) == stitch([step], prompt, toy.suffix, toy)


@pytest.mark.parametrize(
    ("toy", "history"),
    [
        (numbered_results, "a question"),
        (marks_no_reasoning, "a thought"),
        (marks_no_reasoning, "a question"),
        (sliding_window, "a long history"),
        (moving_system, "a call"),
    ],
)
def test_a_history_that_is_repeated_elsewhere_is_stitched(toy: Toy, history: str) -> None:
    """These templates look back, but not in this environment, and both contexts agree."""
    chat = HISTORIES[history]
    new = [result(1)] if history == "a call" else [USER]
    assert stitch([ordinary_step(toy, [*chat, *new], len(chat))], [*chat, *new], toy.suffix, toy)


def test_a_refusal_is_a_value_with_a_reason() -> None:
    """The floor has a ceiling: nothing begins an unrelated prompt."""
    step = ordinary_step(chatml, [USER, ANSWER, USER], 2)
    assert isinstance(answer(stitch_questions([step], [SYSTEM, USER], chatml.suffix), chatml), Refusal)
