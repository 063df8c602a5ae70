"""Rollouts of the Tinker cookbook, with an environment that answers calls, and asks again without calls."""

from __future__ import annotations

from collections import Counter
from typing import Any

from attrs import define, field
from tinker_cookbook.completers import TokenCompleter, TokensWithLogprobs
from tinker_cookbook.rl.data_processing import trajectory_to_data
from tinker_cookbook.rl.message_env import MessageEnv, MessageStepResult
from tinker_cookbook.rl.rollouts import do_single_rollout

from tests.frameworks.laws.rollouts import QUESTION, TOOL, Given, Rollouts, Talk, asks, results
from tests.frameworks.sampler import DONE, OVER, Engine
from tests.frameworks.tinker.renderer import OwnRenderer
from tito_io.integrations.arguments import with_objects
from tito_io.integrations.shared_prompts import SharedPrompts
from tito_io.integrations.tinker import BridgeEnv

TURNS = 4


@define
class Policy(TokenCompleter):
    """Stands for Tinker's sampling client."""

    engine: Engine

    async def __call__(
        self, model_input: Any, stop: Any, *, max_tokens: int | None = None
    ) -> TokensWithLogprobs:
        assert (stop, max_tokens) == ([DONE, OVER], None)
        reply = self.engine.sample(model_input.to_ints())
        logprobs = [step.logprob for step in reply.steps]
        return TokensWithLogprobs(tokens=reply.ids, maybe_logprobs=logprobs, stop_reason=reply.finish_reason)


@define
class Asking(MessageEnv):
    """The environment.

    Attributes:
        forgets: Whether it drops the first message after the second turn.
        discards: Whether it leaves out the second turn, and asks again.
        messages: The conversation.
        asked: The conversation before each turn.
    """

    forgets: bool = False
    discards: bool = False
    messages: list[Any] = field(factory=lambda: [QUESTION])
    asked: list[list[Any]] = field(factory=list)

    async def initial_observation(self) -> list[Any]:
        return self._observed()

    def _observed(self) -> list[Any]:
        self.asked.append(list(self.messages))
        return list(self.messages)

    async def step(self, message: Any) -> MessageStepResult:
        turns = len(self.asked)
        answers = [
            {"role": "tool", "tool_call_id": call.id, "name": call.function.name, "content": "7"}
            for call in message.get("tool_calls", [])
        ]
        self.messages += [message, *(answers or [{"role": "user", "content": "And then?"}])]
        if self.forgets and turns == 2:
            del self.messages[0]
        if self.discards and turns == 2:
            self.messages[self.messages.index(message) :] = [{"role": "user", "content": "Again."}]
        return MessageStepResult(1.0, turns == TURNS, self._observed())

    async def observe_truncated_response(self, message: Any) -> list[Any]:
        self.messages.append(message)
        return list(self.messages)

    async def add_messages(self, messages: list[Any]) -> list[Any]:
        self.messages += messages
        return list(self.messages)


async def run(tokenizer: Any, engine: Engine, **given: Any) -> tuple[Any, SharedPrompts]:
    """Run one rollout; return its trajectory, and the prompts."""
    prompts = given.pop("prompts", None) or SharedPrompts(on_refusal="rerender")
    options = {"prompts": prompts, "tools": [TOOL], "failed_parse_reward": 0.0, **given}
    env = BridgeEnv(OwnRenderer(tokenizer), options.pop("env", None) or Asking(), **options)
    return await do_single_rollout(Policy(engine), env), prompts


class ROLLOUTS(Rollouts):
    """The Tinker cookbook."""

    tools = (TOOL,)
    between = ({asks("And then?"), results("7"), results("7", "7")},) * 3
    cut_ends = True
    choices = ("rerender", "raise")

    async def talk(self, given: Given) -> Talk:
        env = Asking()
        shared = SharedPrompts(on_refusal=given.on_refusal or "rerender")
        trajectory, prompts = await run(
            given.tokenizer, given.engine, prompts=shared, env=env, template_args=given.template_args
        )
        rows = trajectory_to_data(trajectory, 1.0)
        (inputs,) = [row.loss_fn_inputs for row in rows] if len(rows) == 1 else [None]
        to_openai = OwnRenderer(given.tokenizer).to_openai_message
        turns = len(given.engine.turns)
        asked = [[with_objects(to_openai(one)) for one in messages] for messages in env.asked[:turns]]
        counted = prompts.refused or Counter(ids=prompts.built["ids"])
        more = len(env.asked) - turns  # an observation is made after the last turn, too
        counted -= Counter(dict.fromkeys(counted, more))
        built, refused = counted.pop("ids", 0), counted
        if inputs is None:  # a fresh render began a new row
            return Talk([], [], None, built, refused, asked)
        ids = [*rows[0].model_input.to_ints()[:1], *inputs["target_tokens"].tolist()]
        mask = [0.0, *inputs["mask"].tolist()]
        logprobs = [0.0, *inputs["logprobs"].tolist()]
        return Talk(ids, mask, logprobs, built, refused, asked)
