"""What only the Tinker cookbook has: environments that change the conversation, and its own limits."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from tinker_cookbook.rl.data_processing import trajectory_to_data
from tinker_cookbook.rl.message_env import EnvFromMessageEnv
from tinker_cookbook.rl.rollouts import do_single_rollout

from tests.frameworks.laws.rollouts import TOOL
from tests.frameworks.sampler import DONE, Engine
from tests.frameworks.tinker.renderer import OwnRenderer
from tests.frameworks.tinker.rollouts import Asking, Policy, run
from tito_io.embedded import TIDY
from tito_io.integrations.next_prompts import RefusedError
from tito_io.integrations.shared_prompts import SharedPrompts
from tito_io.integrations.tinker import BridgeEnv


@pytest.fixture
def engine() -> Engine:
    """Return an engine whose turns have no faults."""
    return Engine(1, faults=TIDY)


def trained(datum: Any) -> list[int]:
    """Return the ids that a training row trains on."""
    mask, targets = (datum.loss_fn_inputs[name].tolist() for name in ("mask", "target_tokens"))
    return [one for one, on in zip(targets, mask, strict=True) if on]


def test_arguments_may_be_objects_already(tokenizer: Any) -> None:
    class WithObjects(OwnRenderer):
        def to_openai_message(self, message: Any) -> dict[str, Any]:
            found: dict[str, Any] = super().to_openai_message(message)
            for call in found.get("tool_calls", ()):
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
            return found

    def rollouts(kind: type[OwnRenderer]) -> list[Any]:
        engines = [Engine(seed) for seed in range(8)]
        for engine in engines:
            given: Any = {"prompts": SharedPrompts(), "tools": [TOOL]}
            env = BridgeEnv(kind(tokenizer), Asking(), **given)
            asyncio.run(do_single_rollout(Policy(engine), env))
        return [engine.turns for engine in engines]

    assert rollouts(WithObjects) == rollouts(OwnRenderer)


def begun(tokenizer: Any, **given: Any) -> Any:
    options = {"prompts": SharedPrompts(on_refusal="raise"), **given}
    return BridgeEnv(OwnRenderer(tokenizer), Asking(), **options)


def test_a_turn_that_was_cut_may_go_on(tokenizer: Any) -> None:
    engine, env = Engine(most=4), begun(tokenizer, terminate_on_length=False)

    async def two_turns() -> None:
        observation, stop = await env.initial_observation()
        for _ in range(2):
            sampled = await Policy(engine)(observation, stop)
            result = await env.step(sampled.tokens, extra={"stop_reason": "length"})
            observation = result.next_observation

    asyncio.run(two_turns())
    first, second = engine.turns
    assert second.prompt == first.all


def test_injected_messages_follow_the_last_turn(tokenizer: Any, engine: Engine) -> None:
    env = begun(tokenizer)

    async def inject() -> Any:
        observation, stop = await env.initial_observation()
        sampled = await Policy(engine)(observation, stop)
        await env.step(sampled.tokens, extra={"stop_reason": "stop"})
        return await env.inject_messages([{"role": "user", "content": "Hurry."}])

    observation, _ = asyncio.run(inject())
    (turn,) = engine.turns
    assert turn.ids[-1] == DONE
    assert observation.to_ints()[: len(turn.all)] == turn.all
    assert "And then?<|done|>\n<|turn|>user\nHurry.<|done|>" in tokenizer.decode(observation.to_ints())


@pytest.mark.parametrize("env", [Asking(forgets=True), Asking(discards=True)])
def test_an_environment_that_changes_the_conversation_begins_a_new_row(
    tokenizer: Any, engine: Engine, env: Asking
) -> None:
    trajectory, prompts = asyncio.run(run(tokenizer, engine, env=env))
    assert prompts.refused == {"NO_PREFIX": 1}
    rows = trajectory_to_data(trajectory, 1.0)
    assert len(rows) == 2
    assert [one for row in rows for one in trained(row)] == [one for turn in engine.turns for one in turn.ids]
    assert ("user\nAgain.<|done|>" in tokenizer.decode(engine.turns[2].prompt)) is env.discards


def test_an_environment_that_forgets_may_raise(tokenizer: Any, engine: Engine) -> None:
    with pytest.raises(RefusedError, match="has changed the messages before the turn"):
        asyncio.run(run(tokenizer, engine, env=Asking(forgets=True), prompts=SharedPrompts()))


def test_limits_are_those_of_the_cookbook(tokenizer: Any, engine: Engine) -> None:
    trajectory, _ = asyncio.run(run(tokenizer, engine, max_trajectory_tokens=200))
    assert "context_overflow" in trajectory.transitions[-1].metrics
    assert issubclass(BridgeEnv, EnvFromMessageEnv)
