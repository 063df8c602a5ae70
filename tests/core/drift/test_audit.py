"""What the audit counts and refuses, and its laws over conversations in which anything may go wrong."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.drift.conversations import (
    END,
    START,
    TOY,
    Conversation,
    Family,
    assistant,
    letters,
    turns,
)
from tests.core.drift.random_turns import FAMILIES, TURNS, Turn, calls_of, replayed
from tito_core import InputError, Message, Step
from tito_core.drift import Cause, Tally, audit
from tito_core.drift.audit import Auditor
from tito_core.drift.counters import DriftCounters
from tito_core.drift.diff import Hunk, packed
from tito_core.drift.numbered import NumberedMedia
from tito_core.drift.predecessor import By, find_predecessors
from tito_core.drift.renderings import ComparedRendering, PromptRenderings
from tito_core.samples import Forest, StoredCall
from tito_core.testing.strategies.stored_call import CALLS


def test_a_prompt_that_the_template_refuses_is_counted_and_its_turns_are_not_lost() -> None:
    conversation = turns(1, spelled=-1)
    conversation.turn(
        "abba", prompt=[*conversation.calls[0].step.messages, {"role": "critic", "content": "x"}]
    )
    audited = conversation.audit(Family(refuses=("critic",)))
    assert audited.breaks == ()
    tally = audited.tally
    assert (tally.refused_prompts, tally.compared_prompts, tally.mergeable_ids) == (1, 1, 0)


def test_a_conversation_of_another_model_shares_few_ids_of_its_first_prompt() -> None:
    step = turns(1, spelled=-1).calls[0].step
    other = Step(
        prompt=step.prompt, completion=step.completion, prompt_ids=letters("zyxw"), completion_ids=[3]
    )
    foreign = audit(Forest.of([StoredCall(name="a", step=other)]), TOY)
    assert [one.cause for one in foreign.breaks] == [Cause.RENDERING]
    assert foreign.tally.foreign_conversations == 1
    assert turns(1, spelled=-1).audit().tally.foreign_conversations == 0


@pytest.mark.parametrize(
    ("used", "rendered", "hunk", "alike"),
    [
        pytest.param([1, 2, 3, 4], [1, 9, 3, 4], Hunk(1, 2, 1, 2), True, id="another-date"),
        pytest.param([1, 5, 6, 7, 8, 9, 2], [1, 2], Hunk(1, 6, 1, 1), True, id="tools-are-missing"),
        pytest.param([1, 2], [1, 5, 6, 7, 8, 9, 2], Hunk(1, 1, 1, 6), True, id="tools-are-new"),
        pytest.param([1, 2, 3, 4], [1, 6, 7, 8], Hunk(1, 4, 1, 4), False, id="the-first-id-is-in-both"),
    ],
)
def test_a_rendering_that_lacks_a_part_is_still_alike(
    used: list[int], rendered: list[int], hunk: Hunk, alike: bool
) -> None:
    assert ComparedRendering(packed(used), packed(rendered), [hunk]).alike is alike


def test_media_are_not_compared() -> None:
    conversation = turns(1, spelled=0)
    picture = {"type": "image_url", "image_url": {"url": "data:,"}}
    conversation.turn(
        "abba", prompt=[*conversation.calls[0].step.messages, {"role": "user", "content": [picture]}]
    )
    audited = conversation.audit()
    assert (audited.breaks, audited.tally.prompts_with_media, audited.tally.mergeable_ids) == ((), 1, 0)


def test_calls_without_messages_are_counted() -> None:
    step = Step(prompt=[], completion=[], prompt_ids=[1, 2], completion_ids=[3])
    tally = audit(Forest.of([StoredCall(name="a", step=step)]), TOY).tally
    assert (tally.prompts_without_messages, tally.compared_prompts, tally.breaks) == (1, 0, 0)


def test_no_calls_are_an_empty_conversation() -> None:
    assert audit(Forest.of([]), TOY).tally == Tally(conversations=1)


def test_errors_of_the_renderer_are_raised() -> None:
    class Broken(Family):
        def ids(self, *_: object, **__: object) -> list[int]:
            raise InputError("no such key")

    with pytest.raises(InputError, match="no such key"):
        turns(1, spelled=-1).audit(Broken())


def test_a_long_break_is_cut_for_showing_and_counted_whole() -> None:
    conversation = Conversation().turn("", assistant("ab" * 60), ids=letters("ab" * 60 + END)).turn("so")
    (one,) = conversation.audit().breaks
    assert (one.used_ids, len(one.used), one.rendered_ids, len(one.rendered)) == (120, 48, 60, 48)


def test_a_break_is_shown_with_twelve_tokens_before_and_after_it() -> None:
    (one,) = turns(3, spelled=1).audit().breaks
    assert one.before == f"go on 1{END}\n{START}assistant\n"
    assert one.used_after == one.rendered_after == f"{END}\n{START}user\ngo on 2"
    assert len(TOY.encode(one.before)) == len(TOY.encode(one.used_after)) == 12


def compared_prompts(calls: Sequence[StoredCall], family: Family) -> list[tuple[ComparedRendering, bool]]:
    """Audit calls, and return the compared rendering of each prompt, and whether its end is open."""
    compared: list[tuple[ComparedRendering, bool]] = []

    class Watched(Auditor):
        def _compare(self, renderings: PromptRenderings, earlier: object) -> object:  # type: ignore[override]  # looks on
            found = super()._compare(renderings, earlier)  # type: ignore[arg-type]  # hands on what it got
            if found is not None:
                compared.append((found[0], renderings.open_end))
            return found

    forest = Forest.of(calls)
    list(
        Watched(forest, NumberedMedia(family), "", DriftCounters(forest, find_predecessors(forest), 16)).run()
    )
    return compared


@pytest.mark.whole
@given(TURNS, FAMILIES)
def test_every_prompt_is_compared_whole_though_none_is_compared_twice(
    turns: list[Turn], family: Family
) -> None:
    """What is taken over from the prompt before, and what is new, are together all that differs."""
    compared = compared_prompts(calls_of(turns), family)
    assert len(compared) == len(turns)
    for rendering, open_end in compared:
        ids = replayed(rendering.used.tolist(), rendering.rendered.tolist(), rendering.hunks)
        assert ids == rendering.rendered.tolist()[: len(ids)]
        assert open_end or ids == rendering.rendered.tolist()


def test_a_difference_that_changes_with_each_prompt_is_compared_again() -> None:
    """The template inserts a message behind the first turn, which differs in its end alone."""

    class Counting(Family):
        def write(self, messages: Sequence[Message], key: str | None, *, opener: bool) -> str:
            first = super().write(messages[:2], key, opener=opener and len(messages) == 1)
            if len(messages) == 1:
                return first
            reminder = f"{START}system\n{'be brief ' * 9}{len(messages)}{END}\n"
            return first + reminder + super().write(messages[2:], key, opener=opener)

    for rendering, _ in compared_prompts(turns(4, spelled=0).calls, Counting()):
        used, rendered = rendering.used.tolist(), rendering.rendered.tolist()
        assert replayed(used, rendered, rendering.hunks) == rendered


@given(TURNS, FAMILIES)
def test_drift_is_found_exactly_where_a_prompt_is_not_restated(turns: list[Turn], family: Family) -> None:
    calls = calls_of(turns)
    audited, predecessors = audit(Forest.of(calls), family), find_predecessors(Forest.of(calls))
    by_ids = [call for call in calls if call.name not in predecessors or predecessors[call.name].by is By.IDS]
    restated = [
        list(family.ids(call.step.prompt, call.step.key, add_generation_prompt=True)) == call.step.prompt_ids
        for call in by_ids
    ]
    if len(by_ids) == len(calls):
        assert bool(audited.breaks) != all(restated)
    else:
        assert audited.breaks or all(restated)


@given(TURNS, FAMILIES)
def test_counts_hold_together(turns: list[Turn], family: Family) -> None:
    calls = calls_of(turns)
    audited = audit(Forest.of(calls), family, block=4)
    tally = audited.tally
    assert tally.breaks == len(audited.breaks) == sum(tally.causes.values()) == sum(tally.parts.values())
    assert tally.actual_breaks == sum(one.happened for one in audited.breaks)
    assert tally.causes == Counter(one.cause.name for one in audited.breaks)
    assert tally.also == Counter(other.name for one in audited.breaks for other in one.also)
    assert tally.parts == Counter(one.part.name for one in audited.breaks)
    assert tally.calls == tally.compared_prompts == len(calls)
    assert tally.sampled_ids == sum(len(call.step.completion_ids) for call in calls) == tally.mergeable_ids
    assert 0 <= tally.changed_ids <= tally.restated_ids <= tally.sampled_ids
    assert 0 <= tally.broken_turns <= tally.restated_turns < len(calls) or len(calls) == 1
    assert 0 <= tally.ids_lost_to_merging <= tally.mergeable_ids
    assert tally.cached_ids % 4 == tally.cached_ids_by_messages % 4 == 0
    assert tally.cached_ids_by_messages <= tally.prompt_ids
    assert len({one.key for one in audited.breaks}) == len(audited.breaks)
    for one in audited.breaks:
        assert one.used_ids + one.rendered_ids > 0
        assert one.sampled_ids <= one.used_ids
        assert len({one.cause, *one.also}) == 1 + len(one.also)
        order = list(Cause)
        assert sorted((one.cause, *one.also), key=order.index) == [one.cause, *one.also]


@given(TURNS, FAMILIES, st.randoms(use_true_random=False))
def test_the_order_of_the_calls_does_not_matter(turns: list[Turn], family: Family, random: object) -> None:
    calls = calls_of(turns)
    mixed = list(calls)
    random.shuffle(mixed)  # type: ignore[attr-defined]  # hypothesis' own Random
    assert audit(Forest.of(mixed), family) == audit(Forest.of(calls), family)


class Lettered(Family):
    """Any id is a letter."""

    def text(self, ids: Sequence[int]) -> str:
        return "".join(chr(number + 64) for number in ids)


@given(CALLS)
def test_no_forest_is_too_wild(calls: list[StoredCall]) -> None:
    """Whatever ids and messages tell, every call is looked at and nothing is raised."""
    tally = audit(Forest.of(calls), Lettered(), block=2).tally
    assert tally.compared_prompts + tally.prompts_without_messages == len(calls)
    assert tally.changed_ids <= tally.restated_ids
