"""Turns with any engine, by ids wherever that is proven: what a trainer's environment calls a client.

The client keeps nothing of a conversation. Who calls passes the steps so far and keeps the one that comes
back, so any number of conversations may share one client, and any step be continued, twice if need be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from tito_core import Message, Policy, Profile, Reason, Step, Trajectory
from tito_io.engines.protocol import AbortedError, Engine, Rendering, Reply, Watch

from .conversation import ClientTurn, Conversation, Route, reply_message
from .driver import AsyncTokenizeFn
from .sampling import parse_sampling

Renderer = Callable[[Rendering], AsyncTokenizeFn]
"""Returns what renders messages with given tools and template arguments."""


@attrs.frozen
class SampledTurn:
    """What a request came to: a turn, or several after the same prompt."""

    turn: ClientTurn
    steps: tuple[Step, ...]
    """A step for each turn that was sampled, the first of them the turn's."""

    @property
    def step(self) -> Step:
        """What to append to the trajectory."""
        return self.steps[0]

    @property
    def message(self) -> Message:
        """What the model said: what the next prompt repeats."""
        return reply_message(self.turn.reply)


@attrs.define
class Counts:
    """How requests went, and why."""

    routes: Counter[Route] = attrs.field(factory=Counter)
    """Turns by the way that they went."""
    refusals: Counter[Reason] = attrs.field(factory=Counter)
    """Turns that went by messages although there was a step, by the reason."""
    errors: Counter[str] = attrs.field(factory=Counter)
    """Requests that gave no turn, by the name of their error."""


@attrs.define
class TokenClient:
    """Takes turns with an engine.

    The first turn of a conversation goes by messages, later ones by ids: those of the longest step that the
    prompt continues, and what the template writes after it. What cannot be proven goes by messages, as do
    images, audio and files; `counts` says how often, and why.

    Nothing is sampled twice. An engine's error is raised as it is, and no request that may have run is
    repeated; for connections that were never made, see `reconnect.Reconnecting`.
    """

    engine: Engine
    policy: Policy = attrs.field(factory=Policy)
    """`Policy(truncated=Truncated.REFUSE)` sends what follows a cut turn by messages."""
    renderer: Renderer | None = None
    """How messages are rendered for the bridge; the engine's own way where nothing else is given."""
    counts: Counts = attrs.field(factory=Counts)
    _profiles: dict[str, Profile] = attrs.field(factory=dict, repr=False)
    """What is known of templates, by what they are rendered with; it grows with the cases that come, and
    clients of one engine may share it."""

    async def turn(
        self,
        steps: Sequence[Step],
        prompt: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        sampling: Mapping[str, Any] | None = None,
        watch: Watch | None = None,
    ) -> SampledTurn:
        """Sample the turn after `prompt`, the whole conversation so far.

        `steps` are its steps so far, and those of its branches; a `Trajectory` costs what is new, a plain
        list is read through. `sampling` are arguments in the manner of the OpenAI client (`sampling_args`).

        Raises `InputError` for malformed arguments; `OverlongError` where the prompt does not fit, before it
        is sent where that is known; `AbortedError` where the engine gave the turn up, with what it had
        sampled in `partial`; `EmptyReplyError`, `InvalidReplyError`, `AuthenticationError`, `RequestError`,
        `ServerError`, `TimedOutError` and `UnreachableError` as the engine's adapter does.
        """
        asked = parse_sampling(sampling)
        rendering = Rendering(tools=tuple(tools or ()), template_args=asked.template_args)
        conversation = Conversation(
            engine=self.engine,
            rendering=rendering,
            sampling=asked.sampling,
            policy=self.policy,
            tokenize_fn=None if self.renderer is None else self.renderer(rendering),
            trajectory=steps if isinstance(steps, Trajectory) else Trajectory(steps),
        )
        conversation.profile = self._profiles.get(conversation.key)
        try:
            turn = _whole(await conversation.turn(prompt, watch=watch))
        except Exception as error:
            self.counts.errors[type(error).__name__] += 1
            raise
        if conversation.profile is not None:
            self._profiles[conversation.key] = conversation.profile
        self._count(turn)
        return SampledTurn(turn, (turn.step, *(_beside(turn.step, one) for one in turn.reply.siblings)))

    async def aclose(self) -> None:
        """Let go of the engine's connections."""
        await self.engine.aclose()

    def _count(self, turn: ClientTurn) -> None:
        self.counts.routes[turn.route] += 1
        if turn.refusal is not None:
            self.counts.refusals[turn.refusal.reason] += 1


def _whole(turn: ClientTurn) -> ClientTurn:
    """Return a turn that the engine did not give up."""
    if turn.reply.finish_reason != "abort":
        return turn
    error = AbortedError(
        f"the engine gave the turn up after {len(turn.step.completion_ids)} ids; they are in `partial`"
    )
    error.partial = turn.reply
    raise error


def _beside(step: Step, reply: Reply) -> Step:
    """Return the step of another turn after the same prompt."""
    return attrs.evolve(
        step,
        completion=[reply_message(reply)],
        completion_ids=reply.completion_ids,
        logprobs=reply.logprobs,
        truncated=reply.truncated,
    )
