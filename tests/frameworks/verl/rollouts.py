"""Conversations by verl's Continuous Token builder."""

from __future__ import annotations

from typing import Any

from tests.frameworks.laws.rollouts import QUESTION, TOOL, Given, Rollouts, Talk, asks, results
from tests.frameworks.verl.rollout import Rollout
from tito_io.integrations.shared_prompts import SharedPrompts
from tito_io.integrations.verl import TitoContinuousTokenBuilder

ASKS = {"role": "user", "content": "And then?"}
CALL = {"type": "function", "function": {"name": "add", "arguments": {}}}
RESULT = {"role": "tool", "content": "7"}


class ROLLOUTS(Rollouts):
    """verl."""

    tools = (TOOL,)
    between = ({asks("And then?")}, {results("7")}, {results("7", "7")})
    choices = ("rerender", "raise")
    after = ([ASKS], [RESULT], [RESULT, RESULT])

    async def talk(self, given: Given) -> Talk:
        shared = SharedPrompts(on_refusal=given.on_refusal or "raise")
        variables: Any = {"chat_template_kwargs": given.template_args}
        builder: Any = TitoContinuousTokenBuilder(given.tokenizer, shared=shared, **variables)
        rollout = Rollout(builder, [QUESTION], tools=[TOOL])
        asked = []
        for new in (*self.after, []):
            asked.append(rollout.messages)
            reply = given.engine.sample(rollout.ids)
            calls = {"tool_calls": [CALL for one in new if one is RESULT]} if RESULT in new else {}
            turn = {"role": "assistant", "content": reply.text, **calls}
            rollout.sample(reply.ids, turn, [step.logprob for step in reply.steps])
            if new:
                rollout.answer(*new)
        prompt = rollout.ids[: len(rollout.ids) - len(rollout.mask)]
        response = rollout.ids[len(prompt) :], rollout.mask, rollout.logprobs
        return Talk.of(prompt, *response, shared.built["ids"], shared.refused, asked)
