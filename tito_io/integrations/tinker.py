"""Tinker cookbook: an `EnvFromMessageEnv` whose observations extend what was sampled.

Relies on tinker-cookbook 0.6: `tinker_cookbook/rl/message_env.py`, whose `EnvFromMessageEnv` renders each
observation in `_render_in_thread`, and gets each action in `step`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from tito_core import Message, Refusal
from tito_core.checks import require
from tito_core.refusal import Reason
from tito_io.integrations.arguments import with_objects
from tito_io.integrations.framework import Seams, required
from tito_io.integrations.next_prompts import RefusedError
from tito_io.integrations.shared_prompts import SharedPrompts

ENV = "tinker_cookbook.rl.message_env:EnvFromMessageEnv"
SEAMS: Seams = {f"{ENV}._render_in_thread": ("messages", "kwargs"), f"{ENV}.step": ("action", "extra")}
required("tinker", SEAMS)

import tinker
from tinker_cookbook.rl.message_env import EnvFromMessageEnv


@frozen(eq=False)
class SampledTurn:
    """A turn, and the prompt that it was sampled after.

    Attributes:
        ids: The prompt and the sampled ids.
        sampled: How many ids were sampled.
        history: The messages of the prompt.
        cut: Whether the sampler stopped at a limit.
    """

    ids: list[int]
    sampled: int
    history: list[Message]
    cut: bool


class BridgeEnv(EnvFromMessageEnv):
    """An `EnvFromMessageEnv` that appends to the sampled ids what the chat template writes for new messages.

    So each observation begins with the observation and the action before it, and Tinker makes one training
    row of a trajectory. The first observation is what the chat template of `renderer.tokenizer` writes. The
    renderer parses replies, as before.

        env = BridgeEnv(renderer, message_env, prompts=SharedPrompts(on_refusal="rerender"))

    Args:
        renderer: The renderer that parses replies and has the stop sequences.
        message_env: The environment.
        prompts: What builds prompts and counts refusals: one for all environments. With "rerender" a refused
            prompt is rendered by the template, and Tinker begins a new row; with "raise" it raises.
        tools: JSON schemas that the template renders.
        template_args: Variables for the template.
        options: Further arguments of `EnvFromMessageEnv`.

    Raises:
        InputError: The tokenizer has no chat template, or `prompts` is something else.
    """

    def __init__(
        self,
        renderer: Any,
        message_env: Any,
        *,
        prompts: SharedPrompts,
        tools: Sequence[Mapping[str, Any]] | None = None,
        template_args: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(renderer, message_env, **options)
        require(prompts, SharedPrompts, "prompts", 'SharedPrompts(on_refusal="rerender") or another one')
        self._shared = prompts
        self._prompts = prompts.of(renderer.tokenizer, template_args or {})
        self._tools = tools
        self._messages: list[Message] = []
        self._ids: list[int] = []
        self._turn: SampledTurn | None = None

    async def step(self, action: list[int], *, extra: Any = None) -> Any:
        """Keep the sampled ids, and do what Tinker does.

        Raises:
            RefusedError: The next prompt cannot be built, and the prompts raise.
        """
        cut = (extra or {}).get("stop_reason") == "length"
        self._turn = SampledTurn([*self._ids, *action], len(action), self._messages, cut)
        return await super().step(action, extra=extra)

    async def _render_in_thread(self, messages: list[Any]) -> tinker.ModelInput:
        """Return the next observation."""
        # Some renderers of the cookbook give arguments as texts, and many templates want objects.
        given = map(self.renderer.to_openai_message, messages)
        plain: list[Message] = [with_objects(message) for message in given]
        ids = await asyncio.to_thread(self._next, plain)
        self._messages, self._ids = plain, ids
        return tinker.ModelInput.from_ints(ids)

    def _next(self, messages: list[Message]) -> list[int]:
        turn = self._turn
        found = None if turn is None else self._extended(messages, turn)
        if found is not None:
            return found
        self._turn = None
        return self._prompts.render(messages, tools=self._tools)

    def _extended(self, messages: list[Message], turn: SampledTurn) -> list[int] | None:
        """Return the ids of the turn and what follows it; None if the messages are to be rendered."""
        count = len(turn.history)
        answered = len(messages) > count and messages[count]["role"] == "assistant"
        if messages[:count] != turn.history or not answered:  # changed, or the turn is left out
            self._count_change()
            return None
        if len(messages) == count + 1:
            return turn.ids  # the episode is over, or the model goes on after its own turn
        found = self._shared.extend(
            self._prompts,
            turn.ids,
            messages[count + 1 :],
            tools=self._tools,
            turn=messages[count],
            history=turn.history,
            sampled=turn.sampled,
            truncated=True if turn.cut else None,
        )
        return None if isinstance(found, Refusal) else found.ids.tolist()

    def _count_change(self) -> None:
        """Count that the environment has changed earlier messages, so that no ids can be kept."""
        refusal = Refusal(Reason.NO_PREFIX, "the environment has changed the messages before the turn")
        self._prompts.refused[refusal.reason.name] += 1
        if self._prompts.on_refusal == "raise":
            raise RefusedError(refusal)
