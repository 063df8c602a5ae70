"""TRL: a rollout worker for `AsyncGRPOTrainer` that builds each prompt from the ids before it.

Relies on TRL 1.16: `trl/experimental/async_grpo/async_rollout_worker.py`, whose `AsyncRolloutWorker` starts
the class in `_loop_cls`, and whose `_generate_one` samples one conversation. TRL's own `openenv_harness.py`
replaces both in the same way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar
from uuid import uuid4

from tito_core import Message, Refusal
from tito_io.integrations.framework import Seams, required
from tito_io.integrations.next_prompts import NextPrompts, OnRefusal
from tito_io.integrations.trl import Rollout

TAKES = ("prompt", "tool_dict", "tools", "group_id")
SEAMS: Seams = {"trl.experimental.async_grpo.async_rollout_worker:_AsyncRolloutLoop._generate_one": TAKES}
required("trl", SEAMS)

from transformers.utils.chat_template_utils import get_json_schema
from trl.chat_template_utils import parse_response
from trl.experimental.async_grpo.async_rollout_worker import (
    AsyncRolloutWorker,
    TurnRecord,
    _AsyncRolloutLoop,
    _chain_to_sequences,
)


class ToolRolloutLoop(_AsyncRolloutLoop):
    """TRL's loop in the worker's process, with prompts that extend the sampled ids.

    Attributes:
        prompts: Builds the prompts, and counts refusals.
    """

    def __init__(
        self,
        *,
        tools: Sequence[Callable[..., Any]] | None = None,
        on_refusal: OnRefusal = "rerender",
        **given: Any,
    ) -> None:
        environments = given.get("environment_factory") is not None
        # Without tools TRL neither replaces the chat template nor raises for one that it does not know.
        super().__init__(tools=tools if environments else None, **given)
        if not environments:
            self.tools = self._standalone_tools = list(tools or ())
        self.prompts = NextPrompts.of(
            self.tokenizer,
            stop_ids=self.eos_token_ids,
            template_args=self.chat_template_kwargs,
            on_refusal=on_refusal,
        )

    async def _generate_one(
        self,
        prompt: list[Message],
        tool_dict: dict[str, Callable[..., Any]],
        tools: list[Callable[..., Any]],
        group_id: int = 0,  # noqa: ARG002  # TRL passes it
    ) -> tuple[list[Message], list[int], list[Any], int, int, None]:
        """Sample one conversation; arguments and result are those of TRL's method."""
        began, called, failed, exhausted = time.monotonic(), 0, 0, False
        schemas = [get_json_schema(tool) for tool in tools]
        rollout = Rollout(prompt, self.prompts.render(prompt, tools=schemas))
        while rollout.end is None:
            await self._sample(rollout, tools)
            exhausted = bool(rollout.calls) and self._turns_are_used(rollout)
            if exhausted or not rollout.calls:
                break
            results, count, failures = await self._execute_tool_calls(rollout.calls, tool_dict)
            called, failed = called + count, failed + failures
            self._extend(rollout, results, schemas)
        turns = [
            TurnRecord(list(step.prompt_ids), list(step.completion_ids), list(step.logprobs or ()))
            for step in rollout.steps
        ]
        rows, tally = _chain_to_sequences(turns, uuid4().hex, self._fork_threshold_tokens)
        sampled = [one for turn in turns for one in turn.output_ids]
        self._push_rollout_metrics(
            turns=len(turns),
            sequences=len(rows),
            completion_ids=sampled,
            tally=tally,
            loop_exhausted=exhausted,
            duration_s=time.monotonic() - began,
        )
        return rollout.messages, sampled, rows, called, failed, None

    async def _sample(self, rollout: Rollout, tools: list[Callable[..., Any]]) -> None:
        asked = list(rollout.prompt_ids)
        ids, logprobs = await self._generate_one_turn(asked)
        rollout.then(parse_response(self.tokenizer, ids, prefix=asked, tools=tools), ids, logprobs)

    def _turns_are_used(self, rollout: Rollout) -> bool:
        most = self.max_tool_calling_iterations
        return most is not None and len(rollout.steps) > most

    def _extend(self, rollout: Rollout, results: list[Message], schemas: Sequence[dict[str, Any]]) -> None:
        """Put tool results into the next prompt, or do what was chosen for a refusal."""
        named = [
            {**result, "tool_call_id": call["id"]}
            for result, call in zip(results, rollout.calls, strict=True)
        ]
        found = rollout.extended(self.prompts, named, schemas)
        if isinstance(found, Refusal) and self.prompts.on_refusal == "end":
            rollout.end = "refused"
            return
        rollout.messages += named
        if isinstance(found, Refusal):  # TRL compares this render with the ids before it
            messages = [*rollout.prompt, *rollout.messages]
            rollout.prompt_ids = self.prompts.render(messages, tools=schemas)
        else:
            rollout.prompt_ids = found.ids


class ToolRolloutWorker(AsyncRolloutWorker):
    """A `rollout_worker` for `AsyncGRPOTrainer` whose prompts extend the sampled ids; for any chat template.

    It takes the arguments of TRL's `AsyncRolloutWorker`, and `on_refusal`. That is what to do where the next
    prompt cannot be built from the ids: "rerender" the messages as TRL does in each turn (the default), "end"
    the rollout with the turns that it has, or "raise". After a fresh render TRL begins a new row, or masks
    the ids that differ. The tokenizer needs a `response_template` where TRL does not know the template.

        AsyncGRPOTrainer(..., rollout_worker=ToolRolloutWorker(tools=[multiply], ...))
    """

    _loop_cls: ClassVar[type[_AsyncRolloutLoop]] = ToolRolloutLoop
