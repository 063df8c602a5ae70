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
)
from tito_core.media.first_prompt import FirstPrompt, first_prompt_questions
from tito_core.media.ranges import Placeholders
from tito_core.message import copied, is_multimodal
from tito_core.questions import words_of
from tito_core.recheck import recheck_questions
from tito_core.seams.growing import GrowingProfile, for_certificate
from tito_core.seams.probe import bare_profile_questions
from tito_core.seams.profile import Profile
from tito_io.engines.aborted_turns import AbortedTurns, OnAbort, as_on_abort
from tito_io.engines.family_render import template_words
from tito_io.engines.media import check_answers
from tito_io.engines.protocol import (
    Engine,
    InvalidReplyError,
    Rendering,
    Reply,
    SampleRequest,
    Sampling,
    UnsupportedError,
    Watch,
)
from tito_io.engines.scores import LogprobsFrom, ScoredTurns, as_logprobs_from
from tito_io.engines.speculation import noted
from tito_io.engines.turn_groups import TurnGroups
from tito_io.whole_numbers import TURNS_BETWEEN_CHECKS

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
        parts: Whether the template takes texts as lists of one part alone; asked for with the suffix.
        stop_ids: The ids that end a turn, if known: they show where some tool calls' turns close.
        known: What is known of the template. Cases that it lacks are certified when they come, once each.
        media: The ids that the template writes for an image, such as `{"image": [151655]}`. With them
            conversations with images go by ids, where `tokenize_fn` or the engine renders placeholders; None:
            by messages.
        known_media: The bytes of images that were shown.
        check_every: After how many turns a bridge is compared with a render of the whole conversation;
            0 for never.
        on_abort: What to do about a turn that the engine aborts, such as for a weight update: raise
            `AbortedError` (default), resume it from the ids that were sampled, or return it cut short.
        logprobs_from: Where log-probabilities come from: `sampling` (default), `scoring`, which is a pass
            over the exact ids after each turn, or `nowhere` (`tito_io.engines.scores`).
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
    parts: bool = False
    stop_ids: tuple[int, ...] = ()
    known: KnownRendering = attrs.field(factory=KnownRendering)
    media: Placeholders | None = attrs.field(default=None, converter=as_placeholders)
    known_media: KnownMedia = attrs.field(factory=KnownMedia)
    check_every: int = attrs.field(default=0, validator=TURNS_BETWEEN_CHECKS)
    on_abort: OnAbort = attrs.field(default=OnAbort.RAISE, converter=as_on_abort)
    logprobs_from: LogprobsFrom = attrs.field(default=LogprobsFrom.SAMPLING, converter=as_logprobs_from)
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
        return self._keep(await self._sampled(prompt, self.sampling, watch))

    async def turns(
        self, prompt: Sequence[Message], n: int, *, watch: Watch | None = None
    ) -> tuple[ClientTurn, ...]:
        """Sample `n` turns after `prompt`; each is a step of its own in the trajectory, which branches there.

        The prompt, and the bytes of its images, go to the engine once where it samples several turns a
        request. Else a first request fills its prefix cache and the others follow (notice `group-split`). All
        turns have the same prompt ids. The next prompt continues the turn whose message it repeats.

        Args:
            prompt: The whole conversation so far.
            n: How many turns to sample; it replaces `sampling.n`.
            watch: Called with every delta of every reply as it comes; `Delta.index` says of which.

        Raises:
            UnsupportedError: The engine keeps ids itself: its conversations have no branches.
            EngineError: As `turn` raises it.
        """
        check_branches(self.engine)
        first = await self._sampled(prompt, attrs.evolve(self.sampling, n=n), watch)
        return tuple(self._keep(one) for one in group_of(first))

    async def _sampled(
        self, prompt: Sequence[Message], sampling: Sampling, watch: Watch | None
    ) -> ClientTurn:
        """Sample what follows a prompt."""
        if not isinstance(prompt, Messages):
            prompt = copied(prompt, "prompt")  # the caller may go on writing in it while the engine samples
        request = SampleRequest(messages=prompt, rendering=self.rendering, sampling=sampling, watch=watch)
        earlier = self.trajectory[-1] if self.trajectory else None
        stitched = await self._stitch(prompt) if earlier is not None and not self.engine.keeps_ids else None
        refusal = stitched if isinstance(stitched, Refusal) else None
        if self._shows_images(prompt):
            found = await self._turn_with_images(Messages.of(prompt), stitched, request)
            if isinstance(found, ClientTurn):
                return found
            check_answers(self.engine, found)
            refusal = refusal or found
        elif isinstance(stitched, Stitched):
            reply = await self._sampler.sample(request.after(stitched.ids))
            reply = await self._checked_reply(reply, sampling)
            return ClientTurn(Route.TITO, stitched.then(**_completion(reply)), reply, stitched, None)
        reply = await self._sampler.sample(request)
        reply = await self._checked_reply(reply, sampling)
        step = self._first_step(prompt, reply)
        # An engine that keeps ids may still lose them: only the comparison says that it continued the step.
        kept = self.engine.keeps_ids and earlier is not None and step.prompt_ids.starts_with(earlier.ids)
        return ClientTurn(Route.KEPT if kept else Route.MITO, step, reply, None, refusal)

    async def _checked_reply(self, reply: Reply, sampling: Sampling) -> Reply:
        """Return a reply with notices of what it shows; raises an error if it breaks the constraint."""
        check_constrained(reply, sampling)
        return await noted(self.engine, reply, sampling)

    @property
    def _sampler(self) -> Engine:
        """The engine, with what is done about several turns at once, aborted turns and log-probabilities."""
        # Groups around aborts: a turn of a group that is split is resumed as the one turn of its request.
        return ScoredTurns(TurnGroups(AbortedTurns(self.engine, self.on_abort)), self.logprobs_from)

    def _shows_images(self, prompt: Sequence[Message]) -> bool:
        if self.media is None or self.engine.keeps_ids:
            return False
        return prompt.multimodal if isinstance(prompt, Messages) else is_multimodal(prompt)

    async def _turn_with_images(
        self, prompt: Messages, stitched: Stitched | Refusal | None, request: SampleRequest
    ) -> ClientTurn | Refusal:
        """Sample a turn with images by ids; return why not, if nothing was sampled.

        A prompt that continues no step is rendered whole, so that it has the range of each image too.
        """
        new = stitched.environment if isinstance(stitched, Stitched) else prompt
        self.known_media.check(new)
        refusal, ignored = unsent_settings(new)
        if refusal is not None:
            return refusal
        found = stitched if isinstance(stitched, Stitched) else await self._rendered(prompt)
        if isinstance(found, Refusal):
            return found
        self.known_media.learn(new)
        beside = self.known_media.beside(found, prompt)
        sampled = await sampled_with_media(self._sampler, found, beside, request)
        if isinstance(sampled, Refusal):
            return sampled
        seen, reply = sampled
        reply = await self._checked_reply(reply, request.sampling)
        if ignored:
            reply = attrs.evolve(reply, notices=(*reply.notices, DETAIL_IGNORED))
        if isinstance(seen, Stitched):
            return ClientTurn(Route.TITO, seen.then(**_completion(reply)), reply, seen, None)
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
            known = await answer(for_certificate(bare_profile_questions()), self.render)
            self.suffix, self.parts = known.suffix, known.parts
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
        suffix = await self.close()
        words = words_of(self.render) or template_words(self.engine, self.rendering)
        return Profile(
            suffix=suffix, stop_ids=self.stop_ids, key=self.rendering.key, parts=self.parts, words=words
        )

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


def check_branches(engine: Engine) -> None:
    """Raise `UnsupportedError` for an engine whose conversations have no branches."""
    if engine.keeps_ids:
        raise UnsupportedError(
            f"{engine.name} keeps the ids of a conversation itself, which has no branches there: take the "
            "turns of a group in conversations of their own. Nothing was sampled"
        )


def group_of(turn: ClientTurn) -> tuple[ClientTurn, ...]:
    """Return a turn and its siblings, each with its own step and reply."""
    alone = attrs.evolve(turn, reply=attrs.evolve(turn.reply, siblings=()))
    steps = (attrs.evolve(turn.step, **_completion(reply)) for reply in turn.reply.siblings)
    siblings = zip(steps, turn.reply.siblings, strict=True)
    return (alone, *(attrs.evolve(turn, step=step, reply=reply) for step, reply in siblings))


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
