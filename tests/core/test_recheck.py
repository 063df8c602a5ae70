"""A bridge looked over at full price."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pytest

from tests.core import example
from tests.core.example import Recorder, refusing, shown
from tito_core import (
    Message,
    OddStop,
    Policy,
    Rendered,
    Step,
    Stitched,
    answer,
    stitch_questions,
)
from tito_core.recheck import recheck_questions
from tito_core.seams.probe import probe

SUFFIX = (example.CLOSE,)
CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "7"}


def stitched(step: Step, *new: Message, tokenize: Any = example.tokenize, stops: bool = False) -> Stitched:
    profile = probe(tokenize, SUFFIX) if stops else None
    suffix = SUFFIX if profile is None else profile.suffix
    found = answer(stitch_questions([step], [*step.messages, *new], suffix, profile=profile), tokenize)
    assert isinstance(found, Stitched)
    return found


def checked(found: Stitched, *new: Message, tokenize: Any = example.tokenize) -> bool | None:
    return answer(recheck_questions(found, [*found.step.messages, *new]), tokenize)


@pytest.mark.parametrize("truncated", [False, True])
def test_a_close_is_the_turns_own_or_the_bridges(truncated: bool) -> None:
    sampled = [900] if truncated else [900, example.CLOSE]
    found = stitched(example.step(sampled=sampled, truncated=truncated), example.user("more"))
    assert checked(found, example.user("more")) is True
    other = attrs.evolve(found, added=(*found.added[:-1], found.added[-1] + 1))
    assert checked(other, example.user("more")) is False


def test_a_wrong_tail_takes_as_many_renders_as_a_right_one() -> None:
    recorder = Recorder()
    found = stitched(example.step(), example.user("more"))
    assert checked(found, example.user("more"), tokenize=recorder) is True
    right = len(recorder.asked)
    wrong = attrs.evolve(found, added=(*found.added[:-1], found.added[-1] + 1))
    assert checked(wrong, example.user("more"), tokenize=recorder) is False
    assert len(recorder.asked) == 2 * right > 0


def calling(sampled: Sequence[int] = (900, example.CLOSE)) -> Step:
    return Step(
        prompt=[example.user()],
        completion=[{"role": "assistant", "content": "", "tool_calls": [CALL]}],
        prompt_ids=example.tokenize([example.user()], add_generation_prompt=True),
        completion_ids=sampled,
    )


def test_other_keys_of_a_call_are_not_compared() -> None:
    found = stitched(calling(), RESULT)
    assert checked(found, RESULT) is True
    assert checked(attrs.evolve(found, added=found.added[1:]), RESULT) is False
    assert checked(attrs.evolve(found, added=(5, *found.added)), RESULT) is False


def closing(*close: int) -> Any:
    """Return a template that closes every message with these ids."""

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        ids = example.tokenize(messages, add_generation_prompt=add_generation_prompt)
        return [one for index in ids for one in (close if index == example.CLOSE else (index,))]

    return tokenize


SPOILED: dict[str, Callable[[tuple[int, ...]], tuple[int, ...]]] = {
    "first id lost": lambda added: added[1:],
    "two ids lost": lambda added: added[2:],
    "close doubled": lambda added: (example.CLOSE, *added),
    "first id doubled": lambda added: added[:1] + added,
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("called", [False, True])
def test_a_close_is_neither_lost_nor_doubled(
    spoil: Callable[[tuple[int, ...]], tuple[int, ...]], *, cut: bool, called: bool
) -> None:
    """The text that was sampled ends as the close begins; that of a cut turn is its own."""
    tokenize = closing(example.CLOSE, 51)
    sampled = (900, example.CLOSE, 51) if cut else (900, example.CLOSE)
    new = RESULT if called else example.user("more")
    step = attrs.evolve(calling(sampled) if called else example.step(sampled=sampled), truncated=cut)
    found = stitched(step, new, tokenize=tokenize, stops=True)
    assert checked(found, new, tokenize=tokenize) is True
    assert checked(attrs.evolve(found, added=spoil(found.added)), new, tokenize=tokenize) is False
    end = len(found.added) - found.added[::-1].index(example.CLOSE) - 1  # that of the new message
    close = found.added[end : end + 2] if cut else ()
    other = attrs.evolve(found, added=found.added[end:], inserted_close=close)
    assert checked(other, new, tokenize=tokenize) is False


def test_no_text_of_a_cut_turn_is_its_close() -> None:
    step = example.step(sampled=(900, example.CLOSE), truncated=True)
    found = stitched(step, example.user("more"))
    assert checked(found, example.user("more")) is True
    lost = attrs.evolve(found, added=found.added[1:], inserted_close=())
    assert checked(lost, example.user("more")) is False


def test_a_cut_call_may_be_closed_once_something_follows_alone() -> None:
    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        ids = example.tokenize(messages, add_generation_prompt=False)
        ids = ids[:-1] if messages[-1].get("tool_calls") else ids
        return [*ids, example.OPEN, example.ROLES["assistant"]] if add_generation_prompt else ids

    step = attrs.evolve(calling((900,)), truncated=True)
    found = stitched(step, RESULT, tokenize=tokenize, stops=True)
    assert found.inserted_close == (example.CLOSE,)
    assert checked(found, RESULT, tokenize=tokenize) is True


@pytest.mark.parametrize("odd", [OddStop.KEEP, OddStop.REPLACE])
@pytest.mark.parametrize("sampled", [(900, 77), (900, 51, 77)])
def test_the_whole_close_follows_an_odd_stop(sampled: tuple[int, ...], odd: OddStop) -> None:
    tokenize = closing(51, example.CLOSE)
    stops = (example.CLOSE, 77)
    step, new = example.step(sampled=sampled), example.user("more")
    profile, policy = probe(tokenize, stops), Policy(odd_stop=odd)
    asked = stitch_questions([step], [*step.messages, new], profile.suffix, policy=policy, profile=profile)
    found = answer(asked, tokenize)
    assert isinstance(found, Stitched)
    assert (found.kept_stop, found.replaced_stop) == ((77, None) if odd is OddStop.KEEP else (None, 77))
    assert checked(found, new, tokenize=tokenize) is True
    for spoiled in (found.added[1:], (51, *found.added)):
        assert checked(attrs.evolve(found, added=spoiled), new, tokenize=tokenize) is False


def test_a_result_that_is_missing_is_no_rest_of_the_call() -> None:
    """Of a call's turn only what the template writes with nothing after it is not compared."""
    found = stitched(calling(), RESULT)
    lost = example.tokenize([RESULT], add_generation_prompt=False)
    missing = attrs.evolve(found, added=found.added[len(lost) :])
    assert missing.added == (example.OPEN, example.ROLES["assistant"])
    assert checked(missing, RESULT) is False


@pytest.mark.parametrize("sampled", [(900, example.CLOSE), (901, 50, example.CLOSE)])
def test_the_end_of_a_call_may_be_one_id_with_what_follows_it(sampled: tuple[int, ...]) -> None:
    """With nothing after it the last id of the call is another."""

    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        ids: list[int] = []
        for place, message in enumerate(messages):
            written = example.tokenize([message], add_generation_prompt=False)
            last = place == len(messages) - 1 and not add_generation_prompt
            ids += [*written[:-2], 52] if message.get("tool_calls") and last else []
            ids += [*written[:-2], 51, example.CLOSE] if message.get("tool_calls") and not last else []
            ids += written if not message.get("tool_calls") else []
        return [*ids, example.OPEN, example.ROLES["assistant"]] if add_generation_prompt else ids

    found = stitched(calling(sampled), RESULT, tokenize=tokenize)
    assert checked(found, RESULT, tokenize=tokenize) is True


@pytest.mark.parametrize("sampled", [(900, 51, example.CLOSE), (951, example.CLOSE), (900, example.CLOSE)])
def test_the_stop_is_enough_of_a_close_that_begins_with_text(sampled: tuple[int, ...]) -> None:
    """That text may be one id with the end of the turn's own, or the model left it out."""
    tokenize = closing(51, example.CLOSE)
    found = stitched(example.step(sampled=sampled), example.user("more"), tokenize=tokenize, stops=True)
    assert checked(found, example.user("more"), tokenize=tokenize) is True
    missing = attrs.evolve(found, added=found.added[-2:])
    assert checked(missing, example.user("more"), tokenize=tokenize) is False


@pytest.mark.parametrize("sampled", [(900, example.CLOSE), (900, 61, 62, example.CLOSE)])
def test_a_call_may_have_been_sampled_without_what_is_written_once_something_follows(
    sampled: tuple[int, ...],
) -> None:
    def tokenize(messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
        ids: list[int] = []
        for place, message in enumerate(messages):
            written = example.tokenize([message], add_generation_prompt=False)
            late = [61, 62] if message.get("tool_calls") and place < len(messages) - 1 else []
            ids += [*written[:-1], *late, example.CLOSE]
        return [*ids, example.OPEN, example.ROLES["assistant"]] if add_generation_prompt else ids

    found = stitched(calling(sampled), RESULT, tokenize=tokenize, stops=True)
    assert checked(found, RESULT, tokenize=tokenize) is True
    missing = attrs.evolve(found, added=found.added[-2:])
    assert checked(missing, RESULT, tokenize=tokenize) is False


def test_a_call_that_is_written_otherwise_with_nothing_after_it_is_not_compared() -> None:
    tokenize = refusing(lambda messages: bool(messages[-1].get("tool_calls")))
    found = stitched(calling(), RESULT)
    assert checked(found, RESULT, tokenize=tokenize) is True


@pytest.mark.parametrize("given", ['{"x": 1}', {"x": 1}])
@pytest.mark.parametrize("taken", [str, dict])
def test_calls_are_written_in_the_form_that_is_taken(taken: type, given: object) -> None:
    """The last one has the text; the others have their own arguments."""
    first = {**CALL, "id": "b", "function": {"name": "g", "arguments": given}}
    turn = {"role": "assistant", "content": "", "tool_calls": [first, CALL]}
    step, picky = attrs.evolve(calling(), completion=[turn]), example.takes_arguments(taken)
    found = stitched(step, RESULT, tokenize=picky)
    assert checked(found, RESULT, tokenize=picky) is True
    assert checked(attrs.evolve(found, added=(5, *found.added)), RESULT, tokenize=picky) is False


@pytest.mark.parametrize(("words", "since"), [("more", "Zephyr"), ("a zephyr", None)])
def test_only_new_text_is_tokenized_unless_it_repeats_the_stand_in(words: str, since: str | None) -> None:
    found = stitched(example.step(), example.user(words))
    asked: list[str | None] = []

    class Cutting:
        def __call__(self, messages: Sequence[Message], *, add_generation_prompt: bool) -> list[int]:
            asked.append(None)
            return example.tokenize(messages, add_generation_prompt=add_generation_prompt)

        def rendered(
            self, messages: Sequence[Message], since: str | None, *, add_generation_prompt: bool, ids: bool
        ) -> Rendered:
            whole = self(messages, add_generation_prompt=add_generation_prompt)
            asked[-1] = since
            sought = example.text(since or "")
            assert ids
            places = (i for i in range(len(whole)) if whole[i : i + len(sought)] == sought)
            return Rendered(None, whole[max(places) - 1 :])

    prompt = [*found.step.messages, example.user(words)]
    assert answer(recheck_questions(found, prompt), Cutting()) is True
    assert asked == [None, None, since, since]


loses_strings = shown(
    lambda messages: [
        {
            **m,
            "content": "".join(one["text"] for one in m["content"])
            if isinstance(m.get("content"), list)
            else "",
        }
        for m in messages
    ]
)
"""Writes the texts of parts, and nothing of a content that is a string."""

takes_parts = refusing(
    lambda messages: any(isinstance(m.get("content"), str) for m in messages), template=loses_strings
)


@pytest.mark.parametrize("tokenize", [loses_strings, takes_parts])
def test_a_template_that_takes_only_lists_of_parts_is_checked_in_parts(tokenize: Any) -> None:
    for step, new in ((example.step(), example.user("more")), (calling(), RESULT)):
        found = stitched(step, new, tokenize=tokenize)
        assert list(found.added) == example.tokenize([new], add_generation_prompt=True)
        assert checked(found, new, tokenize=tokenize) is True
        other = attrs.evolve(found, added=(*found.added[:-1], 99))
        assert checked(other, new, tokenize=tokenize) is False
