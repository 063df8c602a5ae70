"""Conversations of AReaL's OpenAI client in concat mode, and the rows that it makes of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from areal.api.io_struct import ModelResponse
from areal.experimental.openai.client import ArealOpenAI
from attrs import define, evolve

from tests.frameworks.laws.rollouts import Given, Rollouts, Talk, asks
from tests.frameworks.sampler import Engine
from tito_io.integrations.areal import ConcatenatedPrompts
from tito_io.integrations.shared_prompts import SharedPrompts


@contextmanager
def installed(prompts: ConcatenatedPrompts) -> Iterator[None]:
    prompts.install()
    try:
        yield
    finally:
        prompts.uninstall()


@define
class Client:
    """Stands for AReaL's engine."""

    tokenizer: Any
    engine: Engine

    async def agenerate(self, request: Any) -> ModelResponse:
        reply = self.engine.sample(request.input_ids)
        return ModelResponse(
            input_tokens=list(request.input_ids),
            output_tokens=list(reply.ids),
            output_logprobs=[step.logprob for step in reply.steps],
            output_versions=[0] * len(reply.ids),
            stop_reason="stop" if reply.finish_reason == "stop" else "length",
            tokenizer=self.tokenizer,
        )


class ROLLOUTS(Rollouts):
    """AReaL."""

    first = ({"role": "user", "content": "Question 0?"},)
    between = tuple({asks(f"Question {number}?")} for number in (1, 2, 3))
    choices = ("raise",)

    async def talk(self, given: Given) -> Talk:
        prompts = ConcatenatedPrompts(SharedPrompts(on_refusal=given.on_refusal or "raise"))
        tokenizer, engine = given.tokenizer, given.engine
        engine.faults = evolve(engine.faults, empty=0.0)  # AReaL takes no turn that is a stop alone
        openai = ArealOpenAI(
            engine=Client(tokenizer, engine), tokenizer=tokenizer, chat_template_type="concat"
        )
        messages: list[Any] = []
        extra = {"chat_template_kwargs": given.template_args}
        with installed(prompts):
            for number in range(self.turns):
                messages.append({"role": "user", "content": f"Question {number}?"})
                answer = await openai.chat.completions.create(
                    model="any", messages=messages, max_completion_tokens=200, extra_body=extra
                )
                messages.append(answer.choices[0].message.model_dump(exclude_none=True))
        row = openai.get_interaction(answer.id).to_tensor_dict()
        ids, mask = (row[name].squeeze(0).tolist() for name in ("input_ids", "loss_mask"))
        return Talk(ids, mask, None, prompts.built["ids"], prompts.refused)
