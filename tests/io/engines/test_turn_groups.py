"""Several turns after one prompt, in one request or in several."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.io.engines.aborting_engine import AbortingEngine
from tito_core import InputError
from tito_core.samples import Forest, make_rows
from tito_io.client.conversation import Conversation
from tito_io.client.token_client import TokenClient
from tito_io.engines.protocol import Delta, InvalidReplyError, Sampling, ServerError, UnsupportedError
from tito_io.engines.turn_groups import SPLIT, TurnGroups
from tito_io.samples.forms.tito import call_of

pytestmark = pytest.mark.anyio
PROMPT = [{"role": "user", "content": "x"}]


@attrs.define
class OneByOne(AbortingEngine):
    """Samples one turn a request, as Dynamo does."""

    turns_per_request: int = 1


async def test_turns_of_a_group_are_branches_with_equal_prompts() -> None:
    """Rows have as many branches, in which each sampled id trains once."""
    for engine in (AbortingEngine(), OneByOne(draws=True)):
        conversation = Conversation(engine, sampling=Sampling(max_tokens=6, temperature=1.0))
        turns = await conversation.turns(PROMPT, 4)
        assert list(conversation.trajectory) == [turn.step for turn in turns]
        assert {tuple(turn.step.prompt_ids) for turn in turns} == {tuple(turns[0].step.prompt_ids)}
        assert [one.siblings for one in (turn.reply for turn in turns)] == [()] * 4
        calls = [call_of(turn, f"turn-{place}", place) for place, turn in enumerate(turns)]
        rows = make_rows(Forest.of(calls)).rows
        assert len({tuple(turn.step.completion_ids) for turn in turns}) == len(rows) == 4
        assert sum(row.trained for row in rows) == sum(len(call.step.completion_ids) for call in calls)


async def test_one_request_where_the_engine_takes_several_turns() -> None:
    engine = AbortingEngine()
    done = await TokenClient(engine).turns([], PROMPT, 3, sampling={"max_tokens": 5})
    assert [one.n for _, one in engine.asked] == [3]
    assert [turn.step for turn in done.turns] == list(done.steps)
    assert len(done.turns) == 3


async def test_else_a_first_request_alone_and_the_others_together() -> None:
    engine = OneByOne()
    heard: list[int] = []

    async def watch(delta: Delta) -> None:
        heard.append(delta.index)

    client = TokenClient(engine)
    done = await client.turns([], PROMPT, 3, sampling={"max_tokens": 5, "seed": 7}, watch=watch)
    assert sorted((one.n, one.seed) for _, one in engine.asked) == [(1, 7), (1, 8), (1, 9)]
    assert set(heard) == {0, 1, 2}
    assert heard[0] == 0
    assert client.counts.notices == {SPLIT: 1}
    assert done.turn.reply.usage.completion_tokens == sum(len(step.completion_ids) for step in done.steps)


async def test_seeds_of_positions_are_split_so_that_turns_differ() -> None:
    for seed, requests in ((None, [3]), (7, [1, 1, 1])):
        engine = AbortingEngine(seeds_by_position=True)
        await TurnGroups(engine).from_ids([1], Sampling(n=3, max_tokens=2, seed=seed))
        assert [one.n for _, one in engine.asked] == requests


async def test_a_group_that_fails_holds_what_was_sampled() -> None:
    engine = OneByOne([[None], "500", [None]])
    with pytest.raises(ServerError) as raised:
        await TurnGroups(engine).from_ids([9, 9], Sampling(n=3, max_tokens=3))
    partial = raised.value.partial
    assert partial is not None
    assert len(partial.siblings) == 1
    engine = OneByOne(["500"])
    with pytest.raises(ServerError):
        await TurnGroups(engine).from_ids([9, 9], Sampling(n=3, max_tokens=3))
    assert len(engine.asked) == 1


async def test_a_split_group_is_resumed_turn_by_turn() -> None:
    whole = (await Conversation(AbortingEngine(), sampling=Sampling(max_tokens=6)).turn(PROMPT)).step
    for raising in (False, True):
        engine = OneByOne([[2], [None], [1], [0], [None], [None]], raising=raising)
        conversation = Conversation(engine, sampling=Sampling(max_tokens=6), on_abort="resume")
        turns = await conversation.turns(PROMPT, 3)
        assert [tuple(turn.step.completion_ids) for turn in turns] == [tuple(whole.completion_ids)] * 3
        notices = [one for turn in turns for one in turn.reply.notices]
        assert (notices.count("turn-resumed"), notices.count("turn-retried")) in {(2, 1), (3, 0)}


async def test_a_turn_that_fails_is_not_lost_among_those_that_were_aborted() -> None:
    engine = OneByOne([[None], [1], "500"], raising=True)
    with pytest.raises(ServerError) as raised:
        await Conversation(engine, sampling=Sampling(max_tokens=6), on_abort="resume").turns(PROMPT, 3)
    assert raised.value.partial is not None


async def test_a_group_whose_prompts_differ_is_an_error() -> None:
    """Each step would have the first one's prompt, which the other turns were not sampled after."""

    @attrs.define
    class Clock(OneByOne):
        async def render(self, messages: Any, rendering: Any, *, add_generation_prompt: bool) -> list[int]:
            named = {"add_generation_prompt": add_generation_prompt}
            return [len(self.asked), *await OneByOne.render(self, messages, rendering, **named)]

    engine = Clock()
    with pytest.raises(InvalidReplyError, match="after 3 different prompts") as raised:
        await Conversation(engine, sampling=Sampling(max_tokens=4)).turns(PROMPT, 3)
    group = raised.value.partial
    assert group is not None
    assert {turn.prompt_ids[0] for turn in (group, *group.siblings)} == {0, 1, 2}


async def test_what_cannot_be_a_group_is_refused() -> None:
    kept: Any = AbortingEngine(keeps_ids=True)
    with pytest.raises(UnsupportedError, match="keeps the ids of a conversation itself"):
        await Conversation(kept).turns(PROMPT, 2)
    with pytest.raises(UnsupportedError, match="has no branches there"):
        await TokenClient(kept).turns([], PROMPT, 2)
    with pytest.raises(InputError, match="n is the argument `n` of `turns`"):
        await TokenClient(AbortingEngine()).turns([], PROMPT, 2, sampling={"n": 3})
    assert kept.asked == []
