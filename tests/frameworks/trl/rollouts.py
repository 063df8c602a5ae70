"""Conversations of `ToolRollout` with a trainer, and of the asynchronous worker's loop."""

from __future__ import annotations

import multiprocessing
import queue
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, ClassVar

from datasets import Dataset

from tests.frameworks.laws.rollouts import Given, Rollouts, Talk
from tests.frameworks.sampler import Engine
from tito_io.embedded import MODEL
from tito_io.integrations.trl import ToolRollout
from tito_io.integrations.trl_async import ToolRolloutLoop

from .families import RESPONSE, of
from .training import QUESTION, Model, made, multiply

TURNS = 3


@cache
def trainer(tokenizer: Any, args: tuple[tuple[str, Any], ...]) -> Any:
    """Return a trainer for a tokenizer and variables of its template."""
    limits = {"max_completion_length": 2000, "max_tool_calling_iterations": TURNS - 1}
    return made(of(tokenizer), Path(mkdtemp()), chat_template_kwargs=dict(args), **limits).trainer


class Trained(Rollouts):
    """`GRPOTrainer`, with log-probabilities as from vLLM."""

    turns = TURNS
    first = (QUESTION,)
    tools: ClassVar[Any] = (multiply,)
    cut_ends = True
    choices: ClassVar[Sequence[str]] = ("end", "raise")

    async def talk(self, given: Given) -> Talk:
        rollout = ToolRollout([multiply], parse=of(given.tokenizer).parse, **given.choice)
        grpo = trainer(given.tokenizer, tuple(given.template_args.items()))

        def sampled(prompts: list[list[int]], *_: Any) -> Any:
            (prompt,) = prompts
            steps = given.engine.sample(prompt).steps
            return [[one.id for one in steps]], [[one.logprob for one in steps]]

        grpo._generate_single_turn = sampled
        found = {name: value[0] for name, value in rollout([[QUESTION]], grpo).items()}
        columns = [found[name] for name in ("prompt_ids", "completion_ids", "env_mask", "logprobs")]
        return Talk.of(*columns, rollout.built, rollout.refused)


class Loop(ToolRolloutLoop):
    """The worker's loop with a sampler in the place of HTTP."""

    def __init__(self, engine: Engine, **given: Any) -> None:
        context = multiprocessing.get_context("spawn")
        super().__init__(
            rollout_buffer=queue.Queue(),
            model_version_value=context.Value("i", 0),
            heartbeat_value=context.Value("d", 0.0),
            failed_event=context.Event(),
            exception_info_queue=queue.Queue(),
            metrics_queue=queue.Queue(),
            **given,
        )
        self.engine = engine

    async def _generate_one_turn(self, prompt_ids: list[int]) -> tuple[list[int], list[float]]:
        reply = self.engine.sample(prompt_ids)
        return reply.ids, [step.logprob for step in reply.steps]

    async def conversation(self) -> Any:
        """Sample one conversation."""
        self._loop.close()
        return await self._generate_one([QUESTION], {"multiply": multiply}, [multiply])


def rewarded(completions: list[Any], **_: Any) -> list[float]:
    return [float(len(completion)) for completion in completions]


def arguments(model: Model, **given: Any) -> dict[str, Any]:
    """Return the arguments of a loop or a worker."""
    model.tokenizer.response_template = RESPONSE
    return {
        "model_name": MODEL,
        "dataset": Dataset.from_list([{"prompt": [QUESTION]}]),
        "reward_funcs": [rewarded],
        "processing_class": model.tokenizer,
        "eos_token_ids": list(model.stops),
        "tools": [multiply],
        **given,
    }


class Looped(Trained):
    """`AsyncGRPOTrainer`."""

    choices = ("rerender", "end", "raise")

    async def talk(self, given: Given) -> Talk:
        options = {
            "max_tool_calling_iterations": TURNS - 1,
            "chat_template_kwargs": given.template_args,
        }
        loop = Loop(given.engine, **arguments(of(given.tokenizer), **options, **given.choice))
        messages, sampled, rows, *_ = await loop.conversation()
        assert sampled == [one for turn in given.engine.turns for one in turn.ids]
        places = [at for at, one in enumerate(messages) if one["role"] == "assistant"]
        asked = [[QUESTION, *messages[:at]] for at in places]
        row, prompts = rows[-1], loop.prompts
        columns = row.input_ids, row.completion_mask, row.old_log_probs
        return Talk(*columns, prompts.built["ids"], prompts.refused, asked)


ROLLOUTS = (Trained, Looped)
