"""One conversation with an engine: by ids wherever that is proven, by messages elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import partial

import attrs

from tito_core import (
    Located,
    Message,
    Messages,
    Policy,
    Profile,
    Reason,
    Refusal,
    Step,
    Stitched,
    TemplateRefused,
    Trajectory,
    continue_questions,
    locate,
    render_key,
    suffix_questions,
)
from tito_core.message import copied
from tito_core.recheck import recheck_questions
from tito_core.seams.certify import certify_questions
from tito_io.engines.protocol import Engine, Rendering, Reply, Sampling, Watch

from .driver import AsyncTokenizeFn, answer


class Route(Enum):
    """How a prompt went to the engine."""

    KEPT = "messages in, tokens out, earlier ids kept by the engine"
    MITO = "messages in, tokens out"
    TITO = "tokens in, tokens out"


@attrs.frozen
class ClientTurn:
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
    stop_ids: tuple[int, ...] = ()
    """The ids that end a turn, where they are known: they tell where some calls' turns close."""
    profile: Profile | None = None
    """What is known of the template. Cases that it lacks are certified when they come, once each."""
    check_every: int = 0
    """Every so many turns the bridge is compared with a render of the whole conversation; 0 for never."""
    checked: int = attrs.field(default=0, init=False)
    """How many were compared; not those that the template cannot write so."""
    differed: int = attrs.field(default=0, init=False)
    """How many of them ended otherwise."""

    async def turn(self, prompt: Sequence[Message], *, watch: Watch | None = None) -> ClientTurn:
        """Send the whole conversation and keep the answer; `watch` is called with every delta of it.

        Raises the engine's errors as they are. An engine in trouble is never asked again by another route.
        """
        if not isinstance(prompt, Messages):
            prompt = copied(prompt, "prompt")  # who asked may go on writing in it while the engine samples
        if self.engine.keeps_ids:
            return self._keep(await self._told(prompt, watch))
        found = await self._stitch(prompt) if self.trajectory else None
        if isinstance(found, Stitched):
            reply = await self.engine.from_ids(found.ids, self.sampling, self.rendering, watch=watch)
            return self._keep(ClientTurn(Route.TITO, _continued(found, reply), reply, found, None))
        reply = await self.engine.from_messages(prompt, self.rendering, self.sampling, watch=watch)
        return self._keep(ClientTurn(Route.MITO, self._begun(prompt, reply), reply, None, found))

    async def _told(self, prompt: Sequence[Message], watch: Watch | None) -> ClientTurn:
        """Take a turn at an engine that keeps the ids itself, and compare them with what came before."""
        reply = await self.engine.from_messages(prompt, self.rendering, self.sampling, watch=watch)
        step = self._begun(prompt, reply)
        kept = bool(self.trajectory) and step.prompt_ids.starts_with(self.trajectory[-1].ids)
        return ClientTurn(Route.KEPT if kept else Route.MITO, step, reply, None, None)

    async def close(self) -> tuple[int, ...]:
        """Return the template's turn close."""
        if self.suffix is None:
            self.suffix = await answer(suffix_questions(), self.render)
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
        located = locate(self.trajectory, prompt, policy=self.policy, key=self.key)
        if isinstance(located, Refusal):
            return located
        try:
            profile = await self._learnt(located)
        except TemplateRefused as refused:  # a template that does not even close a turn
            return Refusal(Reason.TEMPLATE_REFUSED, f"{refused!s:.200}")
        found = await answer(continue_questions(located, profile.suffix, profile=profile), self.render)
        due = self.check_every > 0 and len(self.trajectory) % self.check_every == 0
        return await self._checked(found, prompt) if isinstance(found, Stitched) and due else found

    async def _learnt(self, located: Located) -> Profile:
        """Return the profile with the case of this place in it, if the case has a name."""
        if self.profile is None:
            self.profile = Profile(suffix=await self.close(), stop_ids=self.stop_ids, key=self.key)
        named = located.case
        if named is not None and self.profile.case(*named) is None:
            asking = certify_questions(*named, self.profile.suffix, self.profile.stop_ids)
            self.profile = self.profile.then(await answer(asking, self.render))
        return self.profile

    async def _checked(self, found: Stitched, prompt: Sequence[Message]) -> Stitched | Refusal:
        """Return what was found if the whole conversation's render ends with it."""
        same = await answer(recheck_questions(found, prompt), self.render)
        self.checked += same is not None
        self.differed += same is False
        if same is False:
            return Refusal(Reason.UNPROVEN_TAIL, "the whole conversation's render ends otherwise")
        return found

    def _begun(self, prompt: Sequence[Message], reply: Reply) -> Step:
        return Step(
            prompt=prompt,
            completion=[reply_message(reply)],
            prompt_ids=reply.prompt_ids,
            completion_ids=reply.completion_ids,
            logprobs=reply.logprobs,
            truncated=reply.truncated,
            key=self.key,
        )

    def _keep(self, turn: ClientTurn) -> ClientTurn:
        self.trajectory = self.trajectory.append(turn.step)
        return turn


def _continued(found: Stitched, reply: Reply) -> Step:
    return found.then(
        completion=[reply_message(reply)],
        completion_ids=reply.completion_ids,
        logprobs=reply.logprobs,
        truncated=reply.truncated,
    )


def reply_message(reply: Reply) -> Message:
    """Return the assistant message of a reply."""
    return reply.message or {"role": "assistant", "content": reply.text}
