"""Rollouts of the cookbook: each is one training row of what was sampled, whatever the sampler did."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from attrs import define, field
from tinker_cookbook.rl.data_processing import trajectory_to_data
from tinker_cookbook.rl.message_env import EnvFromMessageEnv, MessageEnv, MessageStepResult
from tinker_cookbook.rl.rollouts import do_single_rollout
from transformers import AutoTokenizer

from tito_core import InputError
from tito_io.embedded import TIDY, write_family
from tito_io.integrations.next_prompts import RefusedError
from tito_io.integrations.shared_prompts import SharedPrompts
from tito_io.integrations.tinker import BridgeEnv

from .renderer import DONE, OwnRenderer, Policy

QUESTION = {"role": "user", "content": "What is 3 + 4?"}
TOOL = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}},
}
TURNS = 4


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return AutoTokenizer.from_pretrained(write_family(tmp_path_factory.mktemp("family") / "model"))


@define
class Asking(MessageEnv):
    """An environment that answers calls, and asks again without calls.

    Attributes:
        forgets: Whether it drops the first message after the second turn.
        discards: Whether it leaves out the second turn, and asks again.
        messages: The conversation.
        turns: How many turns there were.
    """

    forgets: bool = False
    discards: bool = False
    messages: list[Any] = field(factory=lambda: [QUESTION])
    turns: int = 0

    async def initial_observation(self) -> list[Any]:
        return list(self.messages)

    async def step(self, message: Any) -> MessageStepResult:
        self.turns += 1
        results = [
            {"role": "tool", "tool_call_id": call.id, "name": call.function.name, "content": "7"}
            for call in message.get("tool_calls", [])
        ]
        self.messages += [message, *(results or [{"role": "user", "content": "And then?"}])]
        if self.forgets and self.turns == 2:
            del self.messages[0]
        if self.discards and self.turns == 2:
            self.messages[self.messages.index(message) :] = [{"role": "user", "content": "Again."}]
        return MessageStepResult(1.0, self.turns == TURNS, list(self.messages))

    async def observe_truncated_response(self, message: Any) -> list[Any]:
        self.messages.append(message)
        return list(self.messages)

    async def add_messages(self, messages: list[Any]) -> list[Any]:
        self.messages += messages
        return list(self.messages)


def run(tokenizer: Any, policy: Policy, **given: Any) -> tuple[Any, SharedPrompts]:
    """Run one rollout; return its trajectory, and the prompts."""
    prompts = given.pop("prompts", None) or SharedPrompts(on_refusal="rerender")
    options = {"prompts": prompts, "tools": [TOOL], "failed_parse_reward": 0.0, **given}
    env = BridgeEnv(OwnRenderer(tokenizer), options.pop("env", None) or Asking(), **options)
    return asyncio.run(do_single_rollout(policy, env)), prompts


def trained(datum: Any) -> list[int]:
    """Return the ids that a training row trains on."""
    mask, targets = (datum.loss_fn_inputs[name].tolist() for name in ("mask", "target_tokens"))
    return [one for one, on in zip(targets, mask, strict=True) if on]


def test_each_rollout_is_one_row_of_what_was_sampled(tokenizer: Any) -> None:
    lengths = []
    for seed in range(30):
        policy = Policy(seed)
        trajectory, prompts = run(tokenizer, policy)
        (row,) = trajectory_to_data(trajectory, 1.0)
        assert trained(row) == [one for _, sampled in policy.turns for one in sampled]
        before: list[int] = []
        for prompt, sampled in policy.turns:
            assert prompt[: len(before)] == before
            before = [*prompt, *sampled]
        assert not prompts.refused
        lengths.append(len(policy.turns))
    assert max(lengths) == TURNS


def test_the_first_observation_is_what_the_template_writes(tokenizer: Any) -> None:
    policy = Policy()
    run(tokenizer, policy, template_args={"enable_thinking": False})
    rendered = tokenizer.apply_chat_template(
        [QUESTION], tools=[TOOL], add_generation_prompt=True, enable_thinking=False
    )
    assert policy.turns[0][0] == rendered["input_ids"]


def test_observations_are_what_the_template_writes(tokenizer: Any) -> None:
    texts = set()
    for seed in range(30):
        policy = Policy(seed)
        run(tokenizer, policy)
        for (prompt, sampled), (following, _) in zip(policy.turns, policy.turns[1:], strict=False):
            text = tokenizer.decode(following[len(prompt) + len(sampled) :])
            texts.add(text if sampled[-1] == DONE else text.removeprefix("<|done|>"))
    user = "\n<|turn|>user\nAnd then?<|done|>\n<|turn|>assistant\n"
    tool = "\n<|turn|>tool\n<tool_response>\n7\n</tool_response><|done|>\n<|turn|>assistant\n"
    two = tool.replace("\n7\n</tool_response>", "\n7\n</tool_response>\n<tool_response>\n7\n</tool_response>")
    assert {user, tool} <= texts <= {user, tool, two}


def test_arguments_may_be_objects_already(tokenizer: Any) -> None:
    class WithObjects(OwnRenderer):
        def to_openai_message(self, message: Any) -> dict[str, Any]:
            found: dict[str, Any] = super().to_openai_message(message)
            for call in found.get("tool_calls", ()):
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
            return found

    def rollouts(kind: type[OwnRenderer]) -> list[Any]:
        policies = [Policy(seed) for seed in range(8)]
        for policy in policies:
            env = BridgeEnv(kind(tokenizer), Asking(), prompts=SharedPrompts(), tools=[TOOL])
            asyncio.run(do_single_rollout(policy, env))
        return [policy.turns for policy in policies]

    assert rollouts(WithObjects) == rollouts(OwnRenderer)


def test_a_turn_that_was_cut_may_go_on(tokenizer: Any) -> None:
    policy = Policy(most=4)
    env = Asking()
    asked = BridgeEnv(
        OwnRenderer(tokenizer), env, prompts=SharedPrompts(on_refusal="rerender"), terminate_on_length=False
    )

    async def two_turns() -> None:
        observation, stop = await asked.initial_observation()
        for _ in range(2):
            sampled = await policy(observation, stop)
            result = await asked.step(sampled.tokens, extra={"stop_reason": "length"})
            observation = result.next_observation

    asyncio.run(two_turns())
    (first, sampled), (second, _) = policy.turns
    assert second == [*first, *sampled]


def test_injected_messages_follow_the_last_turn(tokenizer: Any) -> None:
    policy, env = Policy(1, faults=TIDY), Asking()
    asked = BridgeEnv(OwnRenderer(tokenizer), env, prompts=SharedPrompts(on_refusal="raise"))

    async def inject() -> Any:
        observation, stop = await asked.initial_observation()
        sampled = await policy(observation, stop)
        await asked.step(sampled.tokens, extra={"stop_reason": "stop"})
        return await asked.inject_messages([{"role": "user", "content": "Hurry."}])

    observation, _ = asyncio.run(inject())
    prompt, sampled = policy.turns[0]
    assert sampled[-1] == DONE
    assert observation.to_ints()[: len(prompt) + len(sampled)] == [*prompt, *sampled]
    assert "And then?<|done|>\n<|turn|>user\nHurry.<|done|>" in tokenizer.decode(observation.to_ints())


def test_an_environment_that_forgets_begins_a_new_row(tokenizer: Any) -> None:
    policy = Policy(1, faults=TIDY)
    trajectory, prompts = run(tokenizer, policy, env=Asking(forgets=True))
    assert prompts.refused == {"NO_PREFIX": 1}
    rows = trajectory_to_data(trajectory, 1.0)
    assert len(rows) == 2
    assert [one for row in rows for one in trained(row)] == [one for _, ids in policy.turns for one in ids]


def test_an_environment_that_leaves_a_turn_out_begins_a_new_row(tokenizer: Any) -> None:
    policy = Policy(1, faults=TIDY)
    trajectory, prompts = run(tokenizer, policy, env=Asking(discards=True))
    assert prompts.refused == {"NO_PREFIX": 1}
    third, _ = policy.turns[2]
    assert "user\nAgain.<|done|>" in tokenizer.decode(third)
    assert len(trajectory_to_data(trajectory, 1.0)) == 2


def test_an_environment_that_forgets_may_raise(tokenizer: Any) -> None:
    with pytest.raises(RefusedError, match="has changed the messages before the turn"):
        run(tokenizer, Policy(1, faults=TIDY), env=Asking(forgets=True), prompts=SharedPrompts())


def rejecting(tmp_path: Path) -> Any:
    """Return a tokenizer whose template takes only conversations that begin with the question."""
    tokenizer = AutoTokenizer.from_pretrained(write_family(tmp_path / "model"))
    guard = "{%- if messages[0].content != 'What is 3 + 4?' -%}{{ raise_exception('no') }}{%- endif -%}"
    tokenizer.chat_template = guard + tokenizer.chat_template
    return tokenizer


def test_after_a_refusal_messages_are_rendered(tmp_path: Path) -> None:
    policy = Policy(1, faults=TIDY)
    _, prompts = run(rejecting(tmp_path), policy)
    assert prompts.refused["TEMPLATE_REFUSED"] == len(policy.turns)
    assert len(policy.turns) == TURNS


def test_a_refusal_may_raise(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="TEMPLATE_REFUSED"):
        run(rejecting(tmp_path), Policy(1, faults=TIDY), prompts=SharedPrompts())


def test_rollouts_may_run_at_the_same_time(tokenizer: Any) -> None:
    prompts = SharedPrompts(on_refusal="rerender")
    alone = []
    for seed in range(8):
        run(tokenizer, policy := Policy(seed))
        alone.append(policy.turns)

    async def together() -> list[Any]:
        policies = [Policy(seed) for seed in range(8)]
        envs = [
            BridgeEnv(
                OwnRenderer(tokenizer), Asking(), prompts=prompts, tools=[TOOL], failed_parse_reward=0.0
            )
            for _ in policies
        ]
        await asyncio.gather(*map(do_single_rollout, policies, envs))
        return [policy.turns for policy in policies]

    assert asyncio.run(together()) == alone


def test_a_tokenizer_without_a_template_is_named(tmp_path: Path) -> None:
    bare = AutoTokenizer.from_pretrained(write_family(tmp_path / "model"))
    bare.chat_template = None
    with pytest.raises(InputError, match="has no chat template"):
        BridgeEnv(OwnRenderer(bare), Asking(), prompts=SharedPrompts())


def test_limits_are_those_of_the_cookbook(tokenizer: Any) -> None:
    trajectory, _ = run(tokenizer, Policy(1, faults=TIDY), max_trajectory_tokens=200)
    assert "context_overflow" in trajectory.transitions[-1].metrics
    assert issubclass(BridgeEnv, EnvFromMessageEnv)
