"""One conversation with an engine: by ids wherever that is proven, by messages elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import partial

import attrs

from tito_core import (
    Message,
    Policy,
    Refusal,
    Step,
    Stitched,
    Trajectory,
    render_key,
    stitching,
    suffix_asking,
)

from .ask import AsyncTokenizeFn, answer
from .engines.protocol import Engine, Rendering, Reply, Sampling


class Route(Enum):
    """How a prompt went to the engine."""

    MITO = "messages in, tokens out"
    TITO = "tokens in, tokens out"


@attrs.frozen
class Turn:
    """One turn, and how it came about."""

    route: Route
    step: Step
    reply: Reply
    stitched: Stitched | None
    """How the prompt was made, where it went by ids."""
    refusal: Refusal | None
    """Why it did not; None also where there was no step to continue."""


@attrs.define
class Conversation:
    """Takes turns, and keeps every id of them.

    A call that fails changes nothing: the trajectory holds what was sampled before.
    """

    engine: Engine
    rendering: Rendering = attrs.field(factory=Rendering)
    sampling: Sampling = attrs.field(factory=Sampling)
    policy: Policy = attrs.field(factory=Policy)
    tokenize_fn: AsyncTokenizeFn | None = None
    """How messages are rendered for the bridge; the engine's own way where nothing else is given."""
    trajectory: Trajectory = attrs.field(factory=Trajectory)
    suffix: tuple[int, ...] | None = None
    """The template's turn close, asked for once."""

    async def turn(self, prompt: Sequence[Message]) -> Turn:
        """Send the whole conversation and keep the answer.

        Raises the engine's errors as they are. An engine in trouble is never asked again by another route.
        """
        found = await self._stitch(prompt) if self.trajectory else None
        if isinstance(found, Stitched):
            reply = await self.engine.from_ids(found.ids, self.sampling, self.rendering)
            return self._keep(Turn(Route.TITO, _continued(found, reply), reply, found, None))
        reply = await self.engine.from_messages(prompt, self.rendering, self.sampling)
        return self._keep(Turn(Route.MITO, self._begun(prompt, reply), reply, None, found))

    async def close(self) -> tuple[int, ...]:
        """Return the template's turn close."""
        if self.suffix is None:
            self.suffix = await answer(suffix_asking(), self.render)
        return self.suffix

    @property
    def render(self) -> AsyncTokenizeFn:
        """How messages become ids."""
        return self.tokenize_fn or partial(self.engine.render, rendering=self.rendering)

    @property
    def key(self) -> str:
        """What prompts are rendered with."""
        return render_key(self.rendering.tools, self.rendering.template_args)

    async def _stitch(self, prompt: Sequence[Message]) -> Stitched | Refusal:
        asking = stitching(self.trajectory, prompt, await self.close(), policy=self.policy, key=self.key)
        return await answer(asking, self.render)

    def _begun(self, prompt: Sequence[Message], reply: Reply) -> Step:
        return Step(
            prompt=prompt,
            completion=[spoken(reply)],
            prompt_ids=reply.prompt_ids,
            completion_ids=reply.completion_ids,
            logprobs=reply.logprobs,
            truncated=reply.truncated,
            key=self.key,
        )

    def _keep(self, turn: Turn) -> Turn:
        self.trajectory = self.trajectory.append(turn.step)
        return turn


def _continued(found: Stitched, reply: Reply) -> Step:
    return found.then(
        completion=[spoken(reply)],
        completion_ids=reply.completion_ids,
        logprobs=reply.logprobs,
        truncated=reply.truncated,
    )


def spoken(reply: Reply) -> Message:
    """Return the assistant message of a reply."""
    return reply.message or {"role": "assistant", "content": reply.text}
