"""Counts by example: ids that change, turns that merging loses, ids that a prefix cache has."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from tests.core.drift.conversations import (
    SPELLED,
    TOY,
    Conversation,
    Family,
    assistant,
    turns,
    user,
)
from tito_core import Message
from tito_core.drift import audit
from tito_core.samples import Forest


def test_a_trainer_that_merges_afterwards_keeps_turns_up_to_the_first_break() -> None:
    """Turn 2 of four is respelled: its own ids and all later turns' prompts are not in the last rendering."""
    tally = turns(4, spelled=2).audit().tally
    assert (tally.ids_lost_to_merging, tally.mergeable_ids) == (5 + 3, 3 + 3 + 5 + 3)


def test_the_last_turn_is_lost_where_the_last_conversation_respells_it() -> None:
    tally = turns(3, spelled=2).audit().tally
    assert tally.breaks == 0  # no prompt shows it
    assert (tally.ids_lost_to_merging, tally.mergeable_ids) == (5, 11)


def test_a_conversation_that_cannot_be_rendered_leaves_the_others_to_be_counted() -> None:
    refused = turns(1, spelled=-1).calls[0]
    side = Conversation().turn("yes", prompt=[{"role": "critic", "content": "x"}], prompt_ids=[1])
    for order in (-1, 1):
        other = attrs.evolve(side.calls[0], name="side", order=order)
        tally = audit(Forest.of([refused, other]), Family(refuses=("critic",))).tally
        assert tally.mergeable_ids == 3


def test_a_turn_that_one_of_two_branches_keeps_is_not_lost() -> None:
    conversation = turns(2, spelled=-1)
    side = Conversation(calls=conversation.calls[:1]).turn(
        "", assistant("abba"), ids=SPELLED, new=[user("else")]
    )
    calls = [*conversation.calls, attrs.evolve(side.calls[-1], name="side")]
    tally = audit(Forest.of(calls), TOY).tally
    assert (tally.ids_lost_to_merging, tally.mergeable_ids) == (5, 3 + 3 + 5)
    assert tally.restated_turns == 1


def test_a_prefix_cache_has_what_came_before_the_break_in_whole_blocks() -> None:
    conversation = turns(3, spelled=0)
    assert conversation.audit() == conversation.audit(block=16) != conversation.audit(block=17)
    for block in (1, 4, 16, 1000):
        tally = conversation.audit(block=block).tally
        first, second, third = conversation.calls
        rendered = TOY.ids(second.step.prompt, second.step.key, add_generation_prompt=True)
        assert tally.cached_ids == first.stop // block * block + second.stop // block * block
        assert tally.cached_ids_by_messages == (
            first.start // block * block + (len(rendered) + 3) // block * block
        )
        assert tally.prompt_ids == len(rendered) + len(
            TOY.ids(third.step.prompt, third.step.key, add_generation_prompt=True)
        )
        assert tally.cached_ids_lost == tally.cached_ids - tally.cached_ids_by_messages


def test_changed_ids_are_counted_once_however_many_prompts_show_them() -> None:
    conversation = turns(6, spelled=0)
    retried = attrs.evolve(conversation.calls[-1], name="again", order=9)
    tally = audit(Forest.of([*conversation.calls, retried]), TOY).tally
    assert (tally.changed_ids, tally.restated_ids) == (4, 5 + 4 * 3)
    assert (tally.broken_turns, tally.restated_turns) == (1, 5)
    assert (tally.drifted_conversations, tally.conversations) == (1, 1)


def test_each_turn_that_a_break_covers_is_broken() -> None:
    """The template leaves out all but the last message of a long prompt."""

    class Forgetting(Family):
        def write(self, messages: Sequence[Message], key: str | None, *, opener: bool) -> str:
            return super().write(messages if len(messages) < 4 else messages[-1:], key, opener=opener)

    tally = turns(3, spelled=-1).audit(Forgetting()).tally
    assert (tally.breaks, tally.broken_turns, tally.changed_ids) == (1, 2, 3 + 3)


def test_a_turn_whose_close_was_lost_is_broken_and_none_of_its_ids_changed() -> None:
    conversation = Conversation().turn("yes")
    tail = TOY.encode("<|im_start|>user\ngo on<|im_end|>\n<|im_start|>assistant\n")
    conversation.turn("so", prompt_ids=[*conversation.calls[0].ids, *tail])
    tally = conversation.audit().tally
    assert (tally.broken_turns, tally.restated_turns, tally.changed_ids) == (1, 1, 0)


def test_a_prompt_that_went_by_messages_would_find_its_whole_turn_in_the_cache() -> None:
    conversation = Conversation(by_ids=False).turn("abba", ids=SPELLED).turn("so")
    assert conversation.audit(block=1).tally.cached_ids == conversation.calls[0].stop


def test_the_last_id_of_a_prompt_is_never_cached() -> None:
    """A turn that is resumed is sent as it stands: an engine computes its last id again."""
    conversation = Conversation().turn("ye", truncated=True)
    first = conversation.calls[0]
    conversation.turn("s", prompt=first.step.messages, prompt_ids=[*first.ids])
    assert conversation.audit(block=1).tally.cached_ids == first.stop - 1
