"""One conversation with an engine: prompts go as ids where that is proven, else as messages."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import partial
from typing import TypedDict

import attrs

from tito_core import (
    Message,
    Messages,
    Policy,
    Reason,
    Refusal,
    Step,
    Stitched,
    TemplateRefused,
    Trajectory,
    continue_questions,
    locate,
    suffix_questions,
)
from tito_core.first_prompt import FirstPrompt, first_prompt_questions
from tito_core.media import Placeholders
from tito_core.message import copied, is_multimodal
from tito_core.recheck import recheck_questions
from tito_core.seams.growing import GrowingProfile, for_certificate
from tito_core.seams.profile import Profile
from tito_io.engines.media import check_answers
from tito_io.engines.protocol import Engine, InvalidReplyError, Rendering, Reply, Sampling, Watch

from .certificates import KnownRendering
from .driver import AsyncTokenizeFn, answer
from .media import (
    DETAIL_IGNORED,
    KnownMedia,
    PlaceholderRender,
    as_placeholders,
    renders_placeholders,
    sampled_with_media,
    unsent_settings,
)

NO_RENDERER = Refusal(
    Reason.MULTIMODAL, "the engine renders no placeholders: give a function that renders messages here"
)
MOST_PLACED = 256
"""How many new images of a prompt go by ids: for each, a render shows which placeholder is its own."""


class Completion(TypedDict):
    """The arguments of a step that a reply has."""

    completion: list[Message]
    completion_ids: tuple[int, ...]
    logprobs: tuple[float | None, ...] | None
    truncated: bool


class Route(Enum):
    """How a prompt went to the engine."""

    KEPT = "messages in, tokens out, earlier ids kept by the engine"
    MITO = "messages in, tokens out"
    RENDERED = "rendered here, tokens in, tokens out"
    TITO = "tokens in, tokens out"


@attrs.frozen
class ClientTurn:
    """One turn, and how its prompt was made.

    Attributes:
        route: How the prompt went to the engine.
        step: Prompt and completion, as ids and messages: what a trajectory keeps.
        reply: The engine's answer.
        stitched: The prompt as it was continued from an earlier step; None where it went by messages.
        refusal: Why no earlier step could be continued, or a prompt with images could not be rendered here;
            None also where there was no step.
    """

    route: Route
    step: Step
    reply: Reply
    stitched: Stitched | None
    refusal: Refusal | None


@attrs.define
class Conversation:
    """Samples the turns of one conversation and keeps the ids of every turn.

    A call that fails changes nothing: the trajectory holds the turns that were sampled before.

    Attributes:
        engine: Where turns are sampled.
        rendering: Tools and arguments of the chat template, the same for every turn.
        sampling: How to sample, the same for every turn.
        policy: What the kernel does about cut turns, odd stops and harmless differences.
        tokenize_fn: Renders messages for the bridge; None: the engine renders them.
        trajectory: The steps so far.
        suffix: The ids that close a turn in the template; None until they are asked for, once.
        stop_ids: The ids that end a turn, if known: they show where some tool calls' turns close.
        known: What is known of the template. Cases that it lacks are certified when they come, once each.
        media: The ids that the template writes for an image, such as `{"image": [151655]}`. With them
            conversations with images go by ids, where `tokenize_fn` or the engine renders placeholders; None:
            by messages.
        known_media: The bytes of images that were shown.
        check_every: After how many turns a bridge is compared with a render of the whole conversation;
            0 for never.
        checked_turns: How many bridges were compared, without those that the template cannot render so.
        differing_turns: How many of them differed; those prompts went by messages.
    """

    engine: Engine
    rendering: Rendering = attrs.field(factory=Rendering)
    sampling: Sampling = attrs.field(factory=Sampling)
    policy: Policy = attrs.field(factory=Policy)
    tokenize_fn: AsyncTokenizeFn | None = None
    trajectory: Trajectory = attrs.field(factory=Trajectory)
    suffix: tuple[int, ...] | None = None
    stop_ids: tuple[int, ...] = ()
    known: KnownRendering = attrs.field(factory=KnownRendering)
    media: Placeholders | None = attrs.field(default=None, converter=as_placeholders)
    known_media: KnownMedia = attrs.field(factory=KnownMedia)
    check_every: int = 0
    checked_turns: int = attrs.field(default=0, init=False)
    differing_turns: int = attrs.field(default=0, init=False)

    async def turn(self, prompt: Sequence[Message], *, watch: Watch | None = None) -> ClientTurn:
        """Sample the turn after `prompt` and append it to the trajectory.

        Args:
            prompt: The whole conversation so far.
            watch: Called with every delta of the reply as it comes.

        Raises:
            UnsupportedError: A text spells an image's placeholder, and the engine would never answer messages
                with it.
            EngineError: As the engine raises it. The turn is not asked for again by another route, because
                the engine may have sampled it already.
        """
        if not isinstance(prompt, Messages):
            prompt = copied(prompt, "prompt")  # the caller may go on writing in it while the engine samples
        earlier = self.trajectory[-1] if self.trajectory else None
        stitched = await self._stitch(prompt) if earlier is not None and not self.engine.keeps_ids else None
        refusal = stitched if isinstance(stitched, Refusal) else None
        if self._shows_images(prompt):
            found = await self._turn_with_images(Messages.of(prompt), stitched, watch)
            if isinstance(found, ClientTurn):
                return self._keep(found)
            check_answers(self.engine, found)
            refusal = refusal or found
        elif isinstance(stitched, Stitched):
            reply = await self.engine.from_ids(stitched.ids, self.sampling, self.rendering, watch=watch)
            check_constrained(reply, self.sampling)
            return self._keep(ClientTurn(Route.TITO, _continued(stitched, reply), reply, stitched, None))
        reply = await self.engine.from_messages(prompt, self.rendering, self.sampling, watch=watch)
        check_constrained(reply, self.sampling)
        step = self._first_step(prompt, reply)
        # An engine that keeps ids may still lose them: only the comparison says that it continued the step.
        kept = self.engine.keeps_ids and earlier is not None and step.prompt_ids.starts_with(earlier.ids)
        return self._keep(ClientTurn(Route.KEPT if kept else Route.MITO, step, reply, None, refusal))

    def _shows_images(self, prompt: Sequence[Message]) -> bool:
        if self.media is None or self.engine.keeps_ids:
            return False
        return prompt.multimodal if isinstance(prompt, Messages) else is_multimodal(prompt)

    async def _turn_with_images(
        self, prompt: Messages, stitched: Stitched | Refusal | None, watch: Watch | None
    ) -> ClientTurn | Refusal:
        """Sample a turn with images by ids; return why not, if nothing was sampled.

        A prompt that continues no step is rendered whole, so that it has the range of each image too.
        """
        new = stitched.environment if isinstance(stitched, Stitched) else prompt
        refusal, ignored = unsent_settings(new)
        if refusal is not None:
            return refusal
        found = stitched if isinstance(stitched, Stitched) else await self._rendered(prompt)
        if isinstance(found, Refusal):
            return found
        self.known_media.learn(new)
        beside = self.known_media.beside(found, prompt)
        sampled = await sampled_with_media(
            self.engine, found, beside, self.sampling, self.rendering, watch=watch
        )
        if isinstance(sampled, Refusal):
            return sampled
        seen, reply = sampled
        check_constrained(reply, self.sampling)
        if ignored:
            reply = attrs.evolve(reply, notices=(*reply.notices, DETAIL_IGNORED))
        if isinstance(seen, Stitched):
            return ClientTurn(Route.TITO, _continued(seen, reply), reply, seen, None)
        step = seen.then(**_completion(reply), key=self.rendering.key)
        return ClientTurn(
            Route.RENDERED, step, reply, None, stitched if isinstance(stitched, Refusal) else None
        )

    async def _rendered(self, prompt: Messages) -> FirstPrompt | Refusal:
        """Return a whole prompt with images, rendered here."""
        if self._placeholders is None:
            return NO_RENDERER
        if prompt.media > MOST_PLACED:
            return _too_many(prompt.media)
        return await answer(first_prompt_questions(prompt, self._placeholders), self.render)

    @property
    def _placeholders(self) -> Placeholders | None:
        """The ids that the template writes for an image; None where only expanded images are rendered."""
        able = self.tokenize_fn is not None or renders_placeholders(self.engine)
        return self.media if able else None

    async def close(self) -> tuple[int, ...]:
        """Return the ids that close a turn in the template."""
        if self.suffix is None:
            self.suffix = await answer(for_certificate(suffix_questions()), self.render)
        return self.suffix

    @property
    def render(self) -> AsyncTokenizeFn:
        """The function that renders messages to ids: `tokenize_fn`, or else the engine."""
        if self.tokenize_fn is not None:
            return self.tokenize_fn
        if self.media is not None and renders_placeholders(self.engine):
            return PlaceholderRender(self.engine, self.rendering, self.media)
        return partial(self.engine.render, rendering=self.rendering)

    async def _stitch(self, prompt: Sequence[Message]) -> Stitched | Refusal:
        """Return the prompt's ids, continued from an earlier step, or why it cannot be continued."""
        located = locate(
            self.trajectory, prompt, policy=self.policy, key=self.rendering.key, media=self._placeholders
        )
        if isinstance(located, Refusal):
            return located
        new = located.messages.media - located.match.step.messages.media
        if new > MOST_PLACED:
            return _too_many(new)
        try:
            growing = GrowingProfile(self.known.profile or await self._base_profile())
        except TemplateRefused as refused:  # a template that does not even close a turn
            return Refusal(Reason.TEMPLATE_REFUSED, f"{refused!s:.200}")
        questions = continue_questions(located, growing.suffix, profile=growing)
        stitched = await answer(questions, self.render)
        self.known.learn(growing.profile)
        due = self.check_every > 0 and len(self.trajectory) % self.check_every == 0
        return await self._checked(stitched, prompt) if isinstance(stitched, Stitched) and due else stitched

    async def _base_profile(self) -> Profile:
        return Profile(suffix=await self.close(), stop_ids=self.stop_ids, key=self.rendering.key)

    async def _checked(self, stitched: Stitched, prompt: Sequence[Message]) -> Stitched | Refusal:
        """Return the prompt if a render of the whole conversation ends as it does, else a refusal."""
        same = await answer(recheck_questions(stitched, prompt), self.render)
        self.checked_turns += same is not None
        self.differing_turns += same is False
        if same is False:
            return Refusal(Reason.UNPROVEN_TAIL, "the whole conversation's render ends otherwise")
        return stitched

    def _first_step(self, prompt: Sequence[Message], reply: Reply) -> Step:
        return Step(
            prompt=prompt,
            completion=[reply_message(reply)],
            prompt_ids=reply.prompt_ids,
            completion_ids=reply.completion_ids,
            logprobs=reply.logprobs,
            truncated=reply.truncated,
            key=self.rendering.key,
        )

    def _keep(self, turn: ClientTurn) -> ClientTurn:
        self.trajectory = self.trajectory.append(turn.step)
        return turn


def _too_many(count: int) -> Refusal:
    return Refusal(Reason.MULTIMODAL, f"{count} new images, of which at most {MOST_PLACED} go by ids at once")


def _continued(stitched: Stitched, reply: Reply) -> Step:
    return stitched.then(**_completion(reply))


def _completion(reply: Reply) -> Completion:
    """Return what a step has of a reply."""
    return {
        "completion": [reply_message(reply)],
        "completion_ids": reply.completion_ids,
        "logprobs": reply.logprobs,
        "truncated": reply.truncated,
    }


def reply_message(reply: Reply) -> Message:
    """Return the assistant message of a reply."""
    return reply.message or {"role": "assistant", "content": reply.text}


def check_constrained(reply: Reply, sampling: Sampling) -> None:
    """Raise an error where a finished turn does not keep to the constraint; a turn that was cut may not.

    Servers ignore fields that they do not know, and some constrain only what follows the reasoning, which a
    model may leave out.

    Raises:
        InvalidReplyError: `partial` holds the turn.
    """
    for one in (reply, *reply.siblings):
        if sampling.constraint is None or one.truncated or isinstance(one.stop_reason, str):
            continue
        lack = sampling.constraint.unmet(reply_message(one))
        if lack is not None:
            error = InvalidReplyError(
                f"the engine did not keep to the constraint: the turn was sampled, and {lack}; look whether "
                "the server constrains its output, and whether it knows the model's reasoning tags",
                hint="the turn is in `partial`",
            )
            error.partial = reply
            raise error
