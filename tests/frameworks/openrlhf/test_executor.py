"""What only OpenRLHF has: prompts and feedback that are texts."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from openrlhf.utils.agent import MultiTurnAgentExecutor

from tests.frameworks.laws.rollouts import QUESTION
from tests.frameworks.openrlhf.rollouts import Adding, run
from tests.frameworks.sampler import Engine
from tito_core import InputError
from tito_io.integrations.openrlhf import MessageAgentExecutor


class Templated(Adding):
    """An environment that takes the prompt as it is."""

    async def reset(self, states: dict[str, Any], **_: Any) -> dict[str, Any]:
        return states


class Plain(Templated):
    """One that answers with texts, too."""

    async def step(self, states: dict[str, Any], **given: Any) -> dict[str, Any]:
        return {**await super().step(states, **given), "environment_feedback": "\nMore."}


class Guessed(Adding):
    """An environment that does not tell the turn."""

    known = False


def test_a_turn_may_stay_unknown(tokenizer: Any) -> None:
    executor = MessageAgentExecutor(Guessed)
    for seed in range(10):
        engine = Engine(seed)
        found = asyncio.run(run(executor, tokenizer, engine))
        actions = [found["observation_tokens"][start:stop] for start, stop in found["action_ranges"]]
        assert actions == [turn.ids for turn in engine.turns]
    assert (executor.built["ids"], executor.refused) == (30, {})


def test_a_text_is_taken_as_it_is(tokenizer: Any) -> None:
    found, expected = (
        asyncio.run(run(executor(Plain), tokenizer, Engine(3), "Hello."))
        for executor in (MessageAgentExecutor, MultiTurnAgentExecutor)
    )
    assert found == expected
    assert len(found["action_ranges"]) == 4


def test_a_prompt_that_is_a_text_may_have_messages_after_it(tokenizer: Any) -> None:
    text = tokenizer.apply_chat_template([QUESTION], tokenize=False, add_generation_prompt=True)
    engine = Engine(1)
    found = asyncio.run(run(MessageAgentExecutor(Templated), tokenizer, engine, text))
    assert engine.turns[0].prompt == tokenizer.encode(text)
    assert len(found["action_ranges"]) == 4


def test_a_misspelt_option_is_named(tokenizer: Any) -> None:
    with pytest.raises(InputError, match=r"stop_id: the chat template has no such variable, .* stop_ids"):
        asyncio.run(run(MessageAgentExecutor(Adding, stop_id=[1517]), tokenizer, Engine()))
