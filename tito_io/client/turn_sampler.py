"""Sample a turn of a conversation: the prompt goes as ids where that is proven, else as messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import attrs

from tito_core import (
    InputError,
    Located,
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
from tito_core.checks import require
from tito_core.media.first_prompt import FirstPrompt, first_prompt_questions
from tito_core.media.ranges import Placeholders
from tito_core.message import copied, is_multimodal
from tito_core.questions import ask, words_of
from tito_core.recheck import recheck_questions
from tito_core.seams.growing import GrowingProfile, for_certificate
from tito_core.seams.probe import bare_profile_questions
from tito_core.seams.profile import Profile
from tito_io.engines.aborted_turns import AbortedTurns, OnAbort, as_on_abort
from tito_io.engines.family_render import template_words
from tito_io.engines.media import check_answers
from tito_io.engines.protocol import Engine, Rendering, Reply, SampleRequest, Sampling, UnsupportedError
from tito_io.engines.sampling_masks import check_masked
from tito_io.engines.scores import LogprobsFrom, ScoredTurns, as_logprobs_from
from tito_io.engines.speculation import noted
from tito_io.engines.turn_groups import TurnGroups
from tito_io.whole_numbers import TURNS_BETWEEN_CHECKS

from .certificates import CertifyingRender, KnownRendering
from .driver import AsyncTokenizeFn, RenderedBy, answer
from .media import (
    DETAIL_IGNORED,
    KnownMedia,
    P,
    PlaceholderRender,
    as_placeholders,
    renders_placeholders,
    sampled_with_media,
    unsent_settings,
)
from .turn import ClientTurn, Route, check_constrained, completion_of

Renderer = Callable[[Rendering], AsyncTokenizeFn]
"""Returns the function that renders messages with given tools and template arguments."""
NO_RENDERER = Refusal(
    Reason.MULTIMODAL, "the engine renders no placeholders: give a function that renders messages here"
)
MOST_PLACED = 256
"""How many new images of a prompt go by ids: for each, a render shows which placeholder is its own."""


class OpeningUnsupportedError(UnsupportedError):
    """A message begins the answer, and the prompt cannot go by ids; nothing was sampled."""


def check_policy(_: object, __: object, value: Any) -> None:
    """Raise `InputError` for anything but a policy, before a turn is sampled."""
    require(value, Policy, "policy", "a Policy, such as Policy(odd_stop=OddStop.KEEP)")


def check_engine(_: object, __: object, value: Any) -> None:
    """Raise `InputError` for an address, a class, None, or an object of vLLM's in the place of an engine."""
    if isinstance(value, type) or not hasattr(value, "sample"):
        text = f"engine is {value!r:.60}: give an engine, such as VLLM('http://127.0.0.1:8000')"
        raise InputError(f"{text}, or an adapter of `tito_io.engines.in_process` around an object")


@attrs.define
class TurnSampler:
    """Samples turns with an engine; what `TokenClient` and `Conversation` have in common.

    Attributes:
        engine: Where turns are sampled, such as `VLLM("http://127.0.0.1:8000")`.
        policy: What the kernel does about cut turns, odd stops and harmless differences.
            `Policy(truncated=Truncated.REFUSE)` sends what follows a cut turn by messages.
        renderer: Renders messages for the bridge, such as `rendered_by(family)`, which writes the engine's
            prompts; None: the engine renders them.
        stop_ids: The ids that end a turn, if known: they show where some tool calls' turns close. By default
            those of the model folder that `rendered_by` has.
        media: The ids that the template writes for an image, such as `{"image": [151655]}`, or what
            `tito_io.families.image_placeholder` finds. With them conversations with images go by ids, where
            a `renderer` or the engine renders placeholders; None: by messages.
        check_every: After how many turns of a conversation a bridge is compared with a render of all of it;
            0 for never. A prompt that differs goes by messages (`UNPROVEN_TAIL`).
        on_abort: What to do about a turn that the engine aborts, such as for a weight update: raise
            `AbortedError` (default), resume it from the ids that were sampled, or return it cut short
            (`tito_io.engines.aborted_turns`).
        logprobs_from: Where log-probabilities come from: `sampling` (default), `scoring`, which is a pass
            over the exact ids after each turn, or `nowhere` (`tito_io.engines.scores`).
        sampling_masks: Whether each sampled id comes with its sampling mask: the ids that top-p, top-k and
            min-p had kept (`tito_io.engines.sampling_masks`). Log-probabilities are then normalized over it.
            An engine without masks raises `MasksUnsupportedError`. Default: False.
        known_media: The bytes of images that were shown.
        checked_turns: How many bridges were compared, without those that the template cannot render so.
        differing_turns: How many of them differed; those prompts went by messages.
    """

    engine: Engine = attrs.field(validator=check_engine)
    policy: Policy = attrs.field(factory=Policy, validator=check_policy)
    renderer: Renderer | None = None
    stop_ids: tuple[int, ...] = attrs.field(default=(), kw_only=True)
    media: Placeholders | None = attrs.field(default=None, converter=as_placeholders, kw_only=True)
    check_every: int = attrs.field(default=0, validator=TURNS_BETWEEN_CHECKS, kw_only=True)
    on_abort: OnAbort = attrs.field(default=OnAbort.RAISE, converter=as_on_abort, kw_only=True)
    logprobs_from: LogprobsFrom = attrs.field(
        default=LogprobsFrom.SAMPLING, converter=as_logprobs_from, kw_only=True
    )
    sampling_masks: bool = attrs.field(default=False, kw_only=True)
    known_media: KnownMedia = attrs.field(factory=KnownMedia, repr=False, kw_only=True)
    checked_turns: int = attrs.field(default=0, init=False)
    differing_turns: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        """Let a model folder's renderer write the prompts of this engine."""
        if isinstance(self.renderer, RenderedBy):
            self.renderer = self.renderer.of(self.engine)
            self.stop_ids = self.stop_ids or self.renderer.family.stop_ids

    async def turn_after(
        self, steps: Trajectory, request: SampleRequest, known: KnownRendering
    ) -> ClientTurn:
        """Sample what follows the messages of a request.

        Args:
            steps: The conversation's steps so far, and those of its branches.
            request: The turn, by messages and with its rendering.
            known: What is known of the rendering. Cases that it lacks are certified when they come.

        Raises:
            UnsupportedError: A text spells an image's placeholder, and the engine would never answer messages
                with it.
            OpeningUnsupportedError: A message begins the answer, and the prompt cannot go by ids.
            TemplateRefused: The template does not take the message that begins the answer.
            EngineError: As the engine raises it. The turn is not asked for again by another route, because
                the engine may have sampled it already.
        """
        prompt, rendering = request.messages or (), request.rendered_with
        if not isinstance(prompt, Messages):  # the caller may go on writing in it while the engine samples
            prompt = copied(prompt, "prompt")
            request = attrs.evolve(request, messages=prompt)
        if not prompt and rendering.opening is None:
            raise InputError("prompt is empty: give at least one message")
        earlier = steps[-1] if steps else None
        stitched = None
        if earlier is not None and not self.engine.keeps_ids:
            stitched = await self._stitch(steps, request, known)
        refusal = stitched if isinstance(stitched, Refusal) else None
        if self._shows_images(prompt):
            found = await self._turn_with_images(stitched, request, known)
            if isinstance(found, ClientTurn):
                return found
            check_answers(self.engine, found)
            refusal = refusal or found
        elif isinstance(stitched, Stitched):
            reply = await self._reply(request.after(stitched.ids))
            return ClientTurn(Route.TITO, stitched.then(**completion_of(reply)), reply, stitched, None)
        request = await self._opened(request, known)
        reply = await self._reply(request)
        step = Step(prompt=prompt, prompt_ids=reply.prompt_ids, key=rendering.key, **completion_of(reply))
        if request.ids is not None:
            return ClientTurn(Route.RENDERED, step, reply, None, refusal)
        # An engine that keeps ids may still lose them: only the comparison says that it continued the step.
        kept = self.engine.keeps_ids and earlier is not None and step.prompt_ids.starts_with(earlier.ids)
        return ClientTurn(Route.KEPT if kept else Route.MITO, step, reply, None, refusal)

    async def _opened(self, request: SampleRequest, known: KnownRendering) -> SampleRequest:
        """Return a request by the ids of its messages where a message begins the answer; else as it is.

        Engines' chats differ in whether they continue a message, and in what of it they answer.
        """
        rendering, messages = request.rendered_with, request.messages or ()
        if rendering.opening is None:
            return request
        if is_multimodal(messages):
            why = f"{self.engine.name} takes these images by messages, behind which no answer can be begun"
            raise OpeningUnsupportedError(f"{why}. Nothing was sampled")
        render = self.render(rendering, known)
        return request.after(await answer(ask(messages), render))

    async def sample_after(
        self, prompt: P, messages: Sequence[Message], request: SampleRequest
    ) -> tuple[P, Reply] | Refusal:
        """Sample a turn after the ids of a prompt, with its images, which are in `messages`, beside them.

        Return the prompt as the engine saw it, and the reply; a refusal, and nothing was sampled, if the
        engine takes no images beside ids.

        Raises:
            InvalidReplyError: The engine saw another prompt; `partial` holds its reply.
        """
        request = self._with_masks(request)
        if not prompt.media:
            return prompt, await self._reply(request.after(prompt.ids))
        beside = self.known_media.beside(prompt, messages)
        sampled = await sampled_with_media(self._sampler, prompt, beside, request)
        if isinstance(sampled, Refusal):
            return sampled
        seen, reply = sampled
        return seen, await self._checked(reply, request.sampling)

    async def _reply(self, request: SampleRequest) -> Reply:
        request = self._with_masks(request)
        return await self._checked(await self._sampler.sample(request), request.sampling)

    def _with_masks(self, request: SampleRequest) -> SampleRequest:
        """Return a request for a turn with sampling masks, if they are wanted."""
        if not self.sampling_masks or request.sampling.sampling_masks:
            return request
        return attrs.evolve(request, sampling=attrs.evolve(request.sampling, sampling_masks=True))

    async def _checked(self, reply: Reply, sampling: Sampling) -> Reply:
        """Return a reply with notices of what it shows; raises an error if it is not what was asked for."""
        check_masked(self.engine.name, reply, sampling)
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
        self, stitched: Stitched | Refusal | None, request: SampleRequest, known: KnownRendering
    ) -> ClientTurn | Refusal:
        """Sample a turn with images by ids; return why not, if nothing was sampled.

        A prompt that continues no step is rendered whole, so that it has the range of each image too.
        """
        prompt = Messages.of(request.messages or ())
        new = stitched.environment if isinstance(stitched, Stitched) else prompt
        self.known_media.check(new)
        refusal, ignored = unsent_settings(new)
        if refusal is not None:
            return refusal
        found: Stitched | FirstPrompt | Refusal
        if isinstance(stitched, Stitched):
            found = stitched
        else:
            found = await self._first_prompt(prompt, self.render(request.rendered_with, known))
        if isinstance(found, Refusal):
            return found
        self.known_media.learn(new)
        sampled = await self.sample_after(found, prompt, request)
        if isinstance(sampled, Refusal):
            return sampled
        seen, reply = sampled
        if ignored:
            reply = attrs.evolve(reply, notices=(*reply.notices, DETAIL_IGNORED))
        if isinstance(seen, Stitched):
            return ClientTurn(Route.TITO, seen.then(**completion_of(reply)), reply, seen, None)
        step = seen.then(**completion_of(reply), key=request.rendered_with.key)
        return ClientTurn(
            Route.RENDERED, step, reply, None, stitched if isinstance(stitched, Refusal) else None
        )

    async def _first_prompt(self, prompt: Messages, render: AsyncTokenizeFn) -> FirstPrompt | Refusal:
        """Return a whole prompt with images, rendered here."""
        if self._placeholders is None:
            return NO_RENDERER
        if prompt.media > MOST_PLACED:
            return _too_many(prompt.media)
        return await answer(first_prompt_questions(prompt, self._placeholders), render)

    @property
    def _placeholders(self) -> Placeholders | None:
        """The ids that the template writes for an image; None where only expanded images are rendered."""
        able = self.renderer is not None or renders_placeholders(self.engine)
        return self.media if able else None

    def render(self, rendering: Rendering, known: KnownRendering) -> AsyncTokenizeFn:
        """Return the function that renders messages; where tools are long, with another for certificates."""
        full = self._rendered(rendering)
        if known.brief is None:
            return full
        return CertifyingRender(full, self._rendered(known.brief), rendering.tools, known)

    def _rendered(self, rendering: Rendering) -> AsyncTokenizeFn:
        if self.renderer is not None:
            return self.renderer(rendering)
        if self.media is not None and renders_placeholders(self.engine):
            return PlaceholderRender(self.engine, rendering, self.media)
        return partial(self.engine.render, rendering=rendering)

    async def _stitch(
        self, steps: Trajectory, request: SampleRequest, known: KnownRendering
    ) -> Stitched | Refusal:
        """Return the prompt's ids, continued from an earlier step, or why it cannot be continued."""
        prompt, rendering = request.messages or (), request.rendered_with
        located = locate(steps, prompt, policy=self.policy, key=rendering.key, media=self._placeholders)
        if isinstance(located, Refusal):
            return located
        new = located.messages.media - located.match.step.messages.media
        if new > MOST_PLACED:
            return _too_many(new)
        stitched = await known.continued(located, partial(self._continue, located, rendering, known))
        due = self.check_every > 0 and len(steps) % self.check_every == 0
        if not due or isinstance(stitched, Refusal):
            return stitched
        same = await answer(recheck_questions(stitched, prompt), self.render(rendering, known))
        self.checked_turns += same is not None
        self.differing_turns += same is False
        if same is False:
            return Refusal(Reason.UNPROVEN_TAIL, "the whole conversation's render ends otherwise")
        return stitched

    async def _continue(
        self, located: Located, rendering: Rendering, known: KnownRendering
    ) -> Stitched | Refusal:
        """Return the ids of a prompt that continues a step, or why they are not known; `known` grows."""
        try:
            growing = GrowingProfile(await self.profile(rendering, known))
        except TemplateRefused as refused:  # a template that does not even close a turn
            return Refusal(Reason.TEMPLATE_REFUSED, f"{refused!s:.200}")
        asking = continue_questions(located, growing.suffix, profile=growing)
        stitched = await answer(asking, self.render(rendering, known))
        known.learn(growing.profile)
        return stitched

    async def profile(self, rendering: Rendering, known: KnownRendering) -> Profile:
        """Return what is known of a rendering: at least how the template closes a turn.

        Raises `TemplateRefused` for a template that does not even close a turn.
        """
        if known.profile is not None:
            return known.profile
        render = self.render(rendering, known)
        found = await answer(for_certificate(bare_profile_questions(self.stop_ids)), render)
        words = words_of(render) or template_words(self.engine, rendering)
        profile = attrs.evolve(found, key=rendering.key, words=words)
        known.learn(profile)
        return profile


def _too_many(count: int) -> Refusal:
    return Refusal(Reason.MULTIMODAL, f"{count} new images, of which at most {MOST_PLACED} go by ids at once")


def check_branches(engine: Engine) -> None:
    """Raise `UnsupportedError` for an engine whose conversations have no branches."""
    if engine.keeps_ids:
        raise UnsupportedError(
            f"{engine.name} keeps the ids of a conversation itself, which has no branches there: take the "
            "turns of a group in conversations of their own. Nothing was sampled"
        )
