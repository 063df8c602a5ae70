"""Law 3. Refuses or is right.

For any input at all: no exception but those of `tokenize_fn`, no argument changed, a bounded number of
questions, each O(new messages), and either `None` or laws 1, 2.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import oracle
from tests.profiles import tries
from tito_core import (
    Policy,
    Question,
    Reason,
    Refusal,
    Step,
    Stitched,
    TemplateRefused,
    Trajectory,
    answer,
    stitch,
    stitch_questions,
)
from tito_core.testing.readings import unwrapped
from tito_core.testing.strategies.json_value import json_messages
from tito_core.testing.strategies.message import MEDIA, Chat
from tito_core.testing.strategies.sampled import right_stop, sampled_words
from tito_core.testing.strategies.stitch_input import ANY_INPUT, TIDY_INPUT, StitchInput
from tito_core.testing.toys import TOYS, Message, Toy, toy_named

alternating, chatml, grouped, harmony, markers, thinking = map(
    toy_named, ("alternating", "chatml", "grouped", "harmony", "markers", "thinking")
)

MOST_QUESTIONS = 40
USER = {"role": "user", "content": "hello"}
ANSWER = {"role": "assistant", "content": "ab"}


class OutageError(Exception):
    """An engine that cannot be reached."""


@attrs.define
class Recorder:
    """A `tokenize_fn` that keeps what it was asked, fails on demand, and has bad manners."""

    toy: Toy
    fails_at: int = -1
    error: Exception | None = None
    scribbles: bool = False
    asked: list[tuple[Message, ...]] = attrs.Factory(list)

    def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        """Render, then scribble over the question if asked to."""
        self.asked.append(tuple(copy.deepcopy(list(messages))))
        if len(self.asked) - 1 == self.fails_at and self.error is not None:
            raise self.error
        ids = self.toy(messages, add_generation_prompt=add_generation_prompt)
        if self.scribbles:
            scribble(messages)
        return ids


def scribble(value: Any) -> None:
    """Spoil everything that can be spoilt."""
    if isinstance(value, Mapping):
        for item in value.values():
            scribble(item)
        if isinstance(value, dict):
            value.clear()
    elif isinstance(value, list | tuple):
        for item in value:
            scribble(item)
        if isinstance(value, list):
            value.clear()


def photograph(stitch_input: StitchInput) -> Any:
    """Return all there is to see of the arguments, as plain data."""
    steps = [
        (list(step.messages), list(step.ids), len(step.prompt), step.truncated, step.key)
        for step in stitch_input.steps
    ]
    return copy.deepcopy(
        (steps, unwrapped(stitch_input.prompt), [type(message) for message in stitch_input.prompt])
    )


@given(ANY_INPUT)
@tries(2)
def test_no_argument_changes_even_if_the_tokenizer_edits_its_input(
    stitch_input: StitchInput,
) -> None:
    before, suffix = photograph(stitch_input), list(stitch_input.suffix)
    clean = stitch(stitch_input.steps, stitch_input.prompt, suffix, stitch_input.toy, key=stitch_input.key)
    rude = stitch(
        stitch_input.steps,
        stitch_input.prompt,
        suffix,
        Recorder(stitch_input.toy, scribbles=True),
        key=stitch_input.key,
    )
    assert photograph(stitch_input) == before
    assert suffix == list(stitch_input.suffix)
    assert stitch_input.toy.nondeterministic or rude == clean


@given(ANY_INPUT, st.integers(0, 6))
@tries(2)
def test_an_outage_is_raised_unchanged(stitch_input: StitchInput, question: int) -> None:
    """It never becomes "cannot stitch"."""
    outage = OutageError("gone")
    recorder = Recorder(stitch_input.toy, fails_at=question, error=outage)
    asking = stitch_questions(
        stitch_input.steps, stitch_input.prompt, stitch_input.suffix, key=stitch_input.key
    )
    seen = raised_by(lambda: answer(asking, recorder))
    reached = len(recorder.asked) == question + 1
    assert seen is (outage if reached else None)
    assert reached or len(recorder.asked) <= question


def raised_by(call: Callable[[], object]) -> Exception | None:
    """Return what a call raises."""
    try:
        call()
    except Exception as error:  # noqa: BLE001  # whatever it is, it is what the test is about
        return error
    return None


@given(ANY_INPUT, st.integers(0, 12))
@tries(2)
def test_a_template_that_refuses_a_question_makes_a_refusal_or_changes_nothing(
    stitch_input: StitchInput, question: int
) -> None:
    refuses = Recorder(stitch_input.toy, fails_at=question, error=TemplateRefused("no"))
    found = stitch(
        stitch_input.steps, stitch_input.prompt, stitch_input.suffix, refuses, key=stitch_input.key
    )
    right = oracle.answers(
        stitch_input.toy,
        stitch_input.steps,
        stitch_input.prompt,
        stitch_input.suffix,
        Policy(),
        stitch_input.key,
    )
    if found is not None and right is not None:
        assert found in [one.ids for one in right]


def size(messages: Sequence[Any]) -> int:
    """Return how much there is to read in messages."""
    return len(json.dumps(unwrapped(list(messages))))


@given(ANY_INPUT)
@tries(2)
def test_the_questions_are_few_and_as_long_as_what_is_new(stitch_input: StitchInput) -> None:
    recorder = Recorder(stitch_input.toy)
    found = answer(
        stitch_questions(stitch_input.steps, stitch_input.prompt, stitch_input.suffix, key=stitch_input.key),
        recorder,
    )
    assert len(recorder.asked) <= MOST_QUESTIONS
    matched = len(found.step.messages) if isinstance(found, Stitched) else shortest(stitch_input)
    new = stitch_input.prompt[matched:]
    for question in recorder.asked:
        assert len(question) <= len(new) + 16
        assert size(question) <= size(stitch_input.prompt[max(matched - 1, 0) :]) + 2_500


def shortest(stitch_input: StitchInput) -> int:
    """Return the number of messages of the shortest step that may have been used."""
    return min(
        (len(step.messages) for step in stitch_input.steps if oracle.begins(step, stitch_input.prompt)),
        default=0,
    )


@pytest.mark.parametrize(
    "toy", [chatml, grouped, thinking, markers, harmony, alternating], ids=lambda toy: toy.name
)
def test_a_long_history_costs_the_same_questions_as_a_short_one(toy: Toy) -> None:
    """Number and text of the questions do not depend on what came before the turn."""

    def questions(turns: int) -> list[tuple[Message, ...]]:
        chat = [USER, ANSWER] * turns
        step = Step(
            prompt=chat[:-1], completion=chat[-1:], prompt_ids=[1] * turns, completion_ids=[*toy.suffix[:1]]
        )
        recorder = Recorder(toy)
        stitch(Trajectory([step]), [*chat, USER], toy.suffix, recorder)
        return recorder.asked

    assert questions(1) == questions(200)


@given(
    st.lists(json_messages(), min_size=1, max_size=3),
    st.lists(json_messages(), max_size=3),
    st.booleans(),
    st.sampled_from((chatml, markers, grouped)),
)
@tries(1)
def test_no_message_however_odd_raises(history: Chat, new: Chat, truncated: bool, toy: Toy) -> None:
    """Any JSON may stand where content, calls and names are expected, stored or new."""
    history.append({**history[-1], "role": "assistant"})
    step = Step(
        prompt=history[:-1],
        completion=history[-1:],
        prompt_ids=[1],
        completion_ids=[2, 2],
        truncated=truncated,
    )
    found = stitch([step], [*history, *new], toy.suffix, forgiving(toy))
    assert found is None or found[:3] == [1, 2, 2]


def forgiving(toy: Toy) -> Any:
    """Return the toy as a `tokenize_fn` that refuses, as it ought to, what its template cannot render."""

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        try:
            return toy(messages, add_generation_prompt=add_generation_prompt)
        except (TypeError, AttributeError, KeyError, ValueError) as error:
            raise TemplateRefused(str(error)) from error

    return tokenize


@given(st.data(), st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=30))
@tries(1)
def test_a_tokenizer_that_answers_nonsense_gets_a_refusal_or_keeps_the_ids(
    data: st.DataObject, nonsense: list[list[int]]
) -> None:
    stitch_input = data.draw(TIDY_INPUT)
    answers = iter(nonsense)

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        del messages, add_generation_prompt
        return next(answers, [])

    found = stitch(stitch_input.steps, stitch_input.prompt, stitch_input.suffix, tokenize)
    usable = oracle.longest(stitch_input.steps, stitch_input.prompt)
    assert found is None or any(found[: len(step.ids)] == list(step.ids) for step in usable)


@given(TIDY_INPUT)
@tries(1)
def test_new_text_that_imitates_the_questions_changes_no_answer(stitch_input: StitchInput) -> None:
    """A tool result may contain whatever the kernel puts into its own questions, closes and all."""
    spied = Recorder(stitch_input.toy)
    stitch(stitch_input.steps, stitch_input.prompt, stitch_input.suffix, spied)
    dummies = [
        said
        for question in spied.asked
        for message in question
        if message["role"] == "assistant" and isinstance(said := message.get("content"), str)
    ]
    calls = [
        call["function"]
        for question in spied.asked
        for message in question
        for call in message.get("tool_calls") or ()
    ]
    spells = {*dummies, *(str(call["arguments"]) for call in calls), *stitch_input.toy.stops}
    closes = {f"{spell}{stitch_input.toy.close}{spell}" for spell in spells}
    for spell in sorted(spells | closes):
        injected = [
            *stitch_input.prompt[:-1],
            {**unwrapped(stitch_input.prompt[-1]), "content": spell},
        ]
        found = stitch(stitch_input.steps, injected, stitch_input.suffix, stitch_input.toy)
        right = oracle.answers(stitch_input.toy, stitch_input.steps, injected, stitch_input.suffix, Policy())
        assert found is None or right is None or found in [one.ids for one in right]


@pytest.mark.parametrize("toy", TOYS, ids=lambda toy: toy.name)
@pytest.mark.parametrize("truncated", [False, True])
def test_a_call_that_spells_a_close_changes_no_answer(toy: Toy, truncated: bool) -> None:
    """Names, ids and arguments of the call come from the model, and its result from anywhere."""
    for spell in (*toy.stops, toy.close, f"{toy.close}{toy.close}", f'"{toy.close}"', "}"):
        for place in ("id", "name", "arguments", "result"):
            values = {"id": "callaaaa1", "name": "f", "arguments": "{}", "result": "a"} | {place: spell}
            function = {"name": values["name"], "arguments": values["arguments"]}
            call = {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": values["id"], "function": function}],
            }
            prompt: Chat = [
                USER,
                call,
                {"role": "tool", "tool_call_id": values["id"], "content": values["result"]},
            ]
            ids = sampled_words(toy, prompt[:2], 0) + ([] if truncated else right_stop(toy, prompt, 1))
            step = Step(
                prompt=prompt[:1],
                completion=prompt[1:2],
                prompt_ids=[1],
                completion_ids=ids,
                truncated=truncated,
            )
            found = stitch([step], prompt, toy.suffix, toy)
            right = oracle.answers(toy, [step], prompt, toy.suffix, Policy())
            assert found is None or right is None or found in [one.ids for one in right], (spell, place)


@pytest.mark.parametrize("toy", TOYS, ids=lambda toy: toy.name)
def test_nothing_is_added_to_a_call_that_breaks_off(toy: Toy) -> None:
    """An engine may stop anywhere (a stop string, a limit that it does not report), and say it was the end.

    What the model did not say is not written for it: the answer is a refusal, or what would be right.
    """
    function = {"name": "f", "arguments": '{"a": "b c_/"}'}
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "callaaaa1", "function": function}]}
    prompt: Chat = [USER, call, {"role": "tool", "tool_call_id": "callaaaa1", "content": "a"}]
    words = sampled_words(toy, prompt[:2], 0)
    for size in {last: size for size, last in enumerate(words, start=1)}.values():
        step = Step(prompt=prompt[:1], completion=prompt[1:2], prompt_ids=[1], completion_ids=words[:size])
        found = stitch([step], prompt, toy.suffix, toy)
        right = oracle.answers(toy, [step], prompt, toy.suffix, Policy())
        assert found is None or right is None or found in [one.ids for one in right], words[:size]


@pytest.mark.parametrize("part", MEDIA, ids=lambda part: part["type"])
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_media_anywhere_are_refused(part: dict[str, Any], place: int) -> None:
    """In the stored history, in the turn itself, or in what is new."""
    chat: Chat = [dict(USER), dict(ANSWER), dict(USER), dict(USER)]
    chat[place] |= {"content": [{"type": "text", "text": "see"}, part]}
    step = Step(prompt=chat[:1], completion=chat[1:2], prompt_ids=[1], completion_ids=[2])
    found = answer(stitch_questions([step], chat, chatml.suffix), chatml)
    assert isinstance(found, Refusal)
    assert found.reason is Reason.MULTIMODAL


NESTED = '{"a":' * 3_000 + "1" + "}" * 3_000
MONSTERS = {
    "nested": NESTED,
    "nested array": '{"a":' + "[" * 100_000,
    "long integer": '{"a": ' + "7" * 5_000 + "}",
    "large exponent": '{"a": 1e999999999}',
    "small exponent": '{"a": 1e-999999999999999999999}',
    "lone surrogate": '{"a": "\\ud800"}',
    "minus zero": '{"a": -0.0}',
    "many keys": json.dumps({str(number): number for number in range(2_000)}),
    "unclosed": '{"a": "',
    "control characters": '{"a": "\x00"}',
    "byte order mark": "\ufeff{}",
}


@pytest.mark.parametrize("arguments", MONSTERS.values(), ids=MONSTERS.keys())
def test_extreme_arguments_match_themselves(arguments: str) -> None:
    """What is the same text is the same call, whatever a JSON parser makes of it."""
    called = {
        "role": "assistant",
        "tool_calls": [{"id": "callaaaa1", "function": {"name": "f", "arguments": arguments}}],
    }
    other = copy.deepcopy(called)
    other["tool_calls"][0]["function"]["arguments"] = '{"b": 1}'  # type: ignore[index]  # literals above
    tool = {"role": "tool", "tool_call_id": "callaaaa1", "content": "a"}
    step = Step(prompt=[USER], completion=[called], prompt_ids=[1], completion_ids=[197, chatml.suffix[0]])
    assert stitch([step], [USER, copy.deepcopy(called), tool], chatml.suffix, chatml)
    assert stitch([step], [USER, other, tool], chatml.suffix, chatml) is None


@given(TIDY_INPUT)
def test_an_unfinished_stitch_can_be_abandoned(stitch_input: StitchInput) -> None:
    """Closing the generator after any question raises nothing."""
    asking = stitch_questions(stitch_input.steps, stitch_input.prompt, stitch_input.suffix)
    try:
        question = next(asking)
    except StopIteration:
        return
    assert isinstance(question, Question)
    asking.close()
