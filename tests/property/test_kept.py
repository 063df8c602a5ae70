"""Law 1. Kept.

The result begins with the matched step's `prompt_ids + completion_ids`, id for id.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import oracle
from tests.profiles import tries
from tito_core import OddStop, Policy, Step, Stitched, Trajectory, answer, stitch, stitch_questions
from tito_core.testing.strategies.choices import CHOICES, Choices
from tito_core.testing.strategies.message import (
    Chat,
    draw_assistant,
    draw_conversation,
    draw_environment,
    speech,
)
from tito_core.testing.strategies.respelling import edited, respelled
from tito_core.testing.strategies.sampled import right_stop, sampled_words
from tito_core.testing.strategies.stitch_input import ANY_INPUT, StitchInput
from tito_core.testing.toys import Toy, toy_named

alternating, bracketed, chatml, doubled_close, grouped, harmony, markers, thinking = map(
    toy_named,
    ("alternating", "bracketed", "chatml", "doubled_close", "grouped", "harmony", "markers", "thinking"),
)

WELL_BEHAVED = (chatml, thinking, grouped, doubled_close, alternating, markers, harmony, bracketed)


@given(ANY_INPUT)
@tries(3)
def test_sampled_ids_survive_or_nothing_is_returned(stitch_input: StitchInput) -> None:
    found = stitch(
        stitch_input.steps, stitch_input.prompt, stitch_input.suffix, stitch_input.toy, key=stitch_input.key
    )
    usable = oracle.longest(stitch_input.steps, stitch_input.prompt, stitch_input.key)
    assert found is None or any(found[: len(step.ids)] == list(step.ids) for step in usable)


@given(ANY_INPUT)
@tries(2)
def test_only_the_stop_is_ever_replaced_and_only_where_the_policy_says_so(stitch_input: StitchInput) -> None:
    policy = Policy(odd_stop=OddStop.REPLACE)
    found = answer(
        stitch_questions(
            stitch_input.steps, stitch_input.prompt, stitch_input.suffix, policy=policy, key=stitch_input.key
        ),
        stitch_input.toy,
    )
    if not isinstance(found, Stitched):
        return
    kept = list(found.step.ids) if found.replaced_stop is None else list(found.step.ids)[:-1]
    assert found.ids.tolist()[: len(kept)] == kept
    assert found.replaced_stop in {None, found.step.stop}
    assert found.ids.tolist() == [*kept, *found.added]


def next_turn(draw: Any, toy: Toy, chat: Chat) -> Chat:
    """Draw a well-formed continuation: what answers the last turn, and the next turn."""
    called = chat[-1].get("tool_calls") or ()
    new: Chat = [{"role": "tool", "tool_call_id": call["id"], "content": "a"} for call in called]
    new = new or [speech(draw(CHOICES))]
    return [*new, draw_assistant(draw, may_call="tool" in toy.roles)]


@pytest.mark.parametrize("toy", WELL_BEHAVED, ids=lambda toy: toy.name)
@given(data=st.data())
@tries(1 / 4)
def test_every_id_of_every_turn_is_kept_however_long_the_rollout(toy: Toy, data: st.DataObject) -> None:
    """Each prompt begins with the last one and what was sampled after it, so nothing sampled is ever lost."""
    chat: Chat = [speech(data.draw(CHOICES)), draw_assistant(data.draw, may_call=False)]
    ids = data.draw(st.lists(st.integers(100, 120), min_size=1, max_size=3))
    steps = Trajectory()
    sampled_everywhere: list[list[int]] = []
    for _ in range(data.draw(st.integers(2, 6))):
        longer = chat + next_turn(data.draw, toy, chat)
        noise = data.draw(st.lists(st.integers(100, 120), max_size=3))
        sampled = noise + sampled_words(toy, chat, 5) + right_stop(toy, longer, len(chat) - 1)
        steps = steps.append(
            Step(prompt=chat[:-1], completion=chat[-1:], prompt_ids=ids, completion_ids=sampled)
        )
        sampled_everywhere.append(sampled)
        found = stitch(steps, longer[:-1], toy.suffix, toy)
        if found is None:
            return
        assert found[: len(ids) + len(sampled)] == [*ids, *sampled]
        chat, ids = longer, found
    position = 0
    for sampled in sampled_everywhere:
        position = next(i for i in range(position, len(ids)) if ids[i : i + len(sampled)] == sampled)


@given(st.data())
def test_later_edits_by_the_caller_do_not_change_a_step(data: st.DataObject) -> None:
    """A step keeps private copies: message objects that an agent edits in place match no longer, or still."""
    chat = draw_conversation(data.draw, chatml)[:2]
    chat = [*chat[:1], {"role": "assistant", "content": "ab"}]
    before = copy.deepcopy(chat)
    prompt_ids, completion_ids = [1, 2], [197, 2]
    step = Step(prompt=chat[:1], completion=chat[1:], prompt_ids=prompt_ids, completion_ids=completion_ids)
    place = data.draw(st.sampled_from((0, 1)))
    changed = edited(data.draw(CHOICES), chat[place])
    chat[place].clear()
    chat[place].update(changed)
    prompt_ids.append(9)
    completion_ids.clear()
    assert list(step.messages) == before
    assert step.ids == [1, 2, 197, 2]
    new = {"role": "user", "content": "b"}
    assert (stitch([step], [*chat, new], chatml.suffix, chatml) is None) != oracle.begins(step, [*chat, new])


@given(st.data())
def test_a_message_is_found_again_whichever_objects_it_comes_back_in(data: st.DataObject) -> None:
    """The same objects, copies, and every spelling of them are one conversation."""
    chat: Chat = [speech(data.draw(CHOICES)), draw_assistant(data.draw)]
    tail = right_stop(chatml, [*chat, speech(Choices(0))], 1)
    step = Step(prompt=chat[:1], completion=chat[1:], prompt_ids=[1, 2], completion_ids=[197, *tail])
    new = draw_environment(data.draw, chatml, chat[1])
    spelled = [respelled(data.draw(CHOICES), message) for message in chat]
    answers = [
        stitch([step], [*history, *new], chatml.suffix, chatml)
        for history in (chat, copy.deepcopy(chat), list(step.messages), spelled)
    ]
    assert answers.count(answers[0]) == len(answers)
