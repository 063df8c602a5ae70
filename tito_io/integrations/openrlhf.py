"""OpenRLHF: an agent executor whose environments answer with messages.

Relies on OpenRLHF 0.11.2: `openrlhf/utils/agent.py`, whose `MultiTurnAgentExecutor.execute` calls `reset` and
`step` of an agent instance, `generate` of the engine, and the tokenizer with the text of each feedback.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Literal, Self

from attrs import define, field

from tito_core import Message, Refusal
from tito_io.integrations.arguments import check_on_refusal, check_variables
from tito_io.integrations.framework import Seams, required
from tito_io.integrations.next_prompts import CountsPrompts, NextPrompts

TAKES = ("prompt", "label", "sampling_params", "max_length", "hf_tokenizer", "llm_engine", "images")
SEAMS: Seams = {"openrlhf.utils.agent:MultiTurnAgentExecutor.execute": TAKES}
required("openrlhf", SEAMS)

import torch
from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor


class Rendered(str):
    """A text whose ids are known.

    Attributes:
        ids: Its ids.
    """

    __slots__ = ("ids",)
    ids: list[int]

    def __new__(cls, text: str, ids: Sequence[int]) -> Self:
        """Return the text with its ids."""
        rendered = super().__new__(cls, text)
        rendered.ids = list(ids)
        return rendered


@define(eq=False)
class Conversation:
    """One conversation, which OpenRLHF's loop gets as its tokenizer, engine and agent instance.

    Attributes:
        prompts: Builds the prompts.
        tokenizer: The real tokenizer.
        engine: The real engine.
        agent: The real agent instance.
        ids: The prompt, and what was sampled after it.
        sampled: How many ids at the end were sampled.
        cut: Whether the engine stopped at a limit.
        tools: Tools that the template renders.
        history: The messages before the turn; None if one of them is unknown.
    """

    prompts: NextPrompts
    tokenizer: Any
    engine: Any
    agent: Any
    ids: list[int] = field(factory=list, init=False)
    sampled: int = field(default=0, init=False)
    cut: bool = field(default=False, init=False)
    tools: list[dict[str, Any]] | None = field(default=None, init=False)
    history: list[Message] | None = field(default=None, init=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tokenizer, name)

    def __call__(self, text: str, **options: Any) -> Any:
        """Return the ids of a text."""
        if isinstance(text, Rendered):
            return {"input_ids": torch.tensor([text.ids], dtype=torch.long)}
        return self.tokenizer(text=text, **options)

    async def generate(self, ids: list[int], *given: Any, **options: Any) -> Any:
        """Sample a turn, and keep its ids."""
        found = await self.engine.generate(ids, *given, **options)
        output = found.outputs[0]
        self.ids, self.sampled = [*ids, *output.token_ids], len(output.token_ids)
        self.cut = output.finish_reason == "length"
        return found

    async def reset(self, states: dict[str, Any], **given: Any) -> dict[str, Any]:
        """Render the first prompt if it is messages."""
        found: dict[str, Any] = await self.agent.reset(states, **given)
        self.tools = found.get("tools")
        if isinstance(found["observation"], str):
            return found
        self.history = list(found["observation"])
        ids = self.prompts.family.ids(
            self.history, tools=self.tools, add_generation_prompt=True, **self.prompts.template_args
        )
        return {**found, "observation": self._rendered(ids)}

    async def step(self, states: dict[str, Any], **given: Any) -> dict[str, Any]:
        """Turn the messages of an environment into what the template writes for them."""
        found: dict[str, Any] = await self.agent.step(states, **given)
        feedback = found["environment_feedback"]
        if isinstance(feedback, str):
            return found
        if found["done"]:
            return {**found, "environment_feedback": self._rendered([])}
        added = self._added(list(feedback), found.get("turn"))
        if isinstance(added, Refusal):
            return {**found, "environment_feedback": self._rendered([]), "done": True}
        return {**found, "environment_feedback": self._rendered(added)}

    def _added(self, new: list[Message], turn: Message | None) -> Sequence[int] | Refusal:
        found = self.prompts.extend(
            self.ids,
            new,
            tools=self.tools,
            turn=turn,
            history=self.history,
            sampled=self.sampled,
            truncated=True if self.cut else None,
        )
        history = self.history
        self.history = None if history is None or turn is None else [*history, turn, *new]
        return found if isinstance(found, Refusal) else found.added

    def _rendered(self, ids: Sequence[int]) -> Rendered:
        return Rendered(self.prompts.family.decode(ids) if ids else "", ids)


class MessageAgentExecutor(CountsPrompts, MultiTurnAgentExecutor):
    """A `MultiTurnAgentExecutor` whose agent instances answer with messages; for any chat template.

    Agent instances are OpenRLHF's, with these differences:

    - `step` returns a list of messages as `environment_feedback`: tool results, user messages. A text is
      taken as it is, as before. After `done` no messages are appended.
    - `step` may return the assistant message that was sampled as `turn`. This saves questions and refusals.
    - `reset` may return a list of messages as `observation`, and JSON schemas as `tools`.

    Sampled ids are never changed. What is missing of a turn's close is written, and is no part of an action.

        class AgentExecutor(MessageAgentExecutor):
            def __init__(self):
                super().__init__(AgentInstance)

    Args:
        agent_instance_cls: The class of agent instances.
        stop_ids: The ids that end a turn. None: those of the tokenizer's folder or its end of sequence.
        on_refusal: What to do where the next prompt cannot be built: "end" the conversation, or "raise".
        template_args: Variables for the template. One that it does not have is an error when the first
            conversation begins.

    Raises:
        InputError: `on_refusal` is something else.
    """

    def __init__(
        self,
        agent_instance_cls: type[AgentInstanceBase],
        *,
        stop_ids: Sequence[int] | None = None,
        on_refusal: Literal["end", "raise"] = "end",
        **template_args: Any,
    ) -> None:
        super().__init__(agent_instance_cls)
        check_on_refusal(on_refusal, ("end", "raise"))
        self._options: dict[str, Any] = {
            "stop_ids": stop_ids,
            "on_refusal": on_refusal,
            "template_args": template_args,
        }
        self._prompts: NextPrompts | None = None
        self._tokenizer: Any = None

    async def execute(
        self,
        prompt: Any,
        label: Any,
        sampling_params: Any,
        max_length: int,
        hf_tokenizer: Any,
        llm_engine: Any,
        images: Any = None,
    ) -> dict[str, Any]:
        """Sample one conversation; arguments and result are OpenRLHF's.

        Raises:
            InputError: The tokenizer has no chat template, or the template has no variable of such a name.
            RefusedError: A prompt cannot be built from the ids, and `on_refusal` is "raise".
        """
        prompts = self._prompts
        if prompts is None or hf_tokenizer is not self._tokenizer:
            prompts = self._prompts = NextPrompts.of(hf_tokenizer, **self._options)
            check_variables(prompts.family, prompts.template_args, "stop_ids, on_refusal")
            self._tokenizer = hf_tokenizer
        seen = Conversation(prompts, hf_tokenizer, llm_engine, self.agent_instance_cls())
        loop = copy.copy(self)
        loop.agent_instance_cls = lambda: seen
        found: dict[str, Any] = await MultiTurnAgentExecutor.execute(
            loop, prompt, label, sampling_params, max_length, seen, seen, images
        )
        return found
