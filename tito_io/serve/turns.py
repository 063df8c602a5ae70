"""Sample one turn for a session: match its prompt, stitch, sample. Nothing is committed here."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

import anyio.to_thread
import attrs

from tito_core import Message
from tito_core.message import is_multimodal
from tito_core.questions import ask
from tito_core.samples import StoredCall
from tito_io.client.certificates import Certificates, KnownRendering
from tito_io.client.driver import answer
from tito_io.client.media import KnownMedia
from tito_io.client.sampling import SamplingArgs, parse_sampling
from tito_io.client.token_client import CompletedTurn
from tito_io.client.turn import ClientTurn, Route
from tito_io.client.turn_sampler import TurnSampler
from tito_io.dialects.protocol import ParsedRequest
from tito_io.dialects.wire import dumps
from tito_io.engines.protocol import Engine, Rendering, Reply, SampleRequest, Watch
from tito_io.engines.replies.spelling import OTHER_TEXT
from tito_io.engines.routing import digest_name

from .client_noise import NoiseFilter, NoiseRule
from .commit import Commit, TurnOrigin
from .fetch import ImageFetcher
from .media import NO_MEDIA, NamedMedia, media_parts, named_media
from .metrics import Metrics
from .places import Places
from .prompt import AnsweredPrompt, MatchedPrompt, PromptMatcher, SessionPrompt, read_prompt
from .refusals import GatewayLimits, RequestRefused, limit_reached
from .resume import Continuation, continue_turn
from .session import Session
from .special_tokens import SpecialTokenGuard
from .text_check import TextCheck
from .turn_engine import TurnEngine

IN_MESSAGES = frozenset(
    ("messages", "tools", "input", "system", "instructions", "contents", "systemInstruction")
)
"""Fields of a request that its turn's messages and key repeat, in all dialects."""


async def served_model(engine: Engine) -> str:
    """Return the name of the model that an engine serves, or the engine's own name; raises its errors."""
    served = getattr(engine, "served", None)
    return engine.name if served is None else str((await served()).name)


@attrs.frozen(kw_only=True)
class RequestStamp:
    """The names and times that identify a request.

    Attributes:
        dialect: The name of its API.
        response: The id of its response.
        requested: When it came, in seconds since 1970.
        begun: When its headers came, by a clock that only measures.
        retry_key: A digest of its idempotency key; None where it had none.
    """

    dialect: str
    response: str
    requested: float
    begun: float
    retry_key: str | None = None


@attrs.frozen
class AskedTurn:
    """A request for a turn, as it was read.

    Attributes:
        request: The client's request.
        stamp: What it is known by.
        media: The images of its prompt.
        prompt: Its conversation.
        args: How to sample.
        rendering: Its tools, and the arguments of the chat template.
        continued: The message at its end that the turn goes on with, which is not in `prompt`; None where the
            turn begins by itself.
    """

    request: ParsedRequest
    stamp: RequestStamp
    media: NamedMedia
    prompt: SessionPrompt
    args: SamplingArgs
    rendering: Rendering
    continued: Continuation | None = None


@attrs.frozen(kw_only=True)
class UnreceivedTurn:
    """A sampled turn that no client has received yet.

    Attributes:
        reply: The engine's answer.
        commits: What to commit: one turn, or several after the same prompt.
        prompt: The prompt, for the next one that begins with it; None where its last message was continued.
        stored: Whether the turn is committed already, so that it is handed out again.
        media: The images of its prompt.
    """

    reply: Reply
    commits: tuple[Commit, ...]
    prompt: AnsweredPrompt | None
    stored: bool = False
    media: NamedMedia = NO_MEDIA


@attrs.define(kw_only=True)
class TurnTaker:
    """Samples turns with one engine.

    Attributes:
        sampler: How turns are sampled: the engine, the policy with the differences that are ignored, and what
            renders messages and images where the model's folder is known.
        model: The model's name; "" where the engine could not be asked yet.
        noise: Removes client noise from prompts.
        guard: Reads spelled special tokens as text, where the model's folder is known.
        limits: What requests may use.
        metrics: Where turns are counted.
        places: The places for turns that are sampled at once.
        certificates: What is known of each rendering. Agents may send new tools forever: old ones go.
        fetcher: Fetches images by their addresses, if the operator allows it.
        texts: Compares the text of turns with their ids, where the model's folder is known.
        keeps_forbidden_tools: Whether tools that a request forbids to call stay in its prompt.
    """

    sampler: TurnSampler
    model: str
    noise: NoiseFilter
    guard: SpecialTokenGuard | None
    limits: GatewayLimits
    metrics: Metrics
    places: Places = attrs.field(init=False)
    certificates: Certificates = attrs.field(factory=Certificates)
    fetcher: ImageFetcher | None = None
    texts: TextCheck | None = None
    keeps_forbidden_tools: bool = False
    _renderings: dict[bytes, Rendering] = attrs.field(factory=dict, init=False, repr=False)
    """Those that requests had, by a digest of their JSON."""

    def __attrs_post_init__(self) -> None:
        self.places = Places(self.limits.calls)

    @property
    def engine(self) -> Engine:
        """The engine."""
        return self.sampler.engine

    async def model_name(self) -> str:
        """Return the model's name; ask the engine where it is not known yet."""
        self.model = self.model or await served_model(self.engine)
        return self.model

    def turn_engine(self, asked: AskedTurn, on_place: Callable[[], object]) -> TurnEngine:
        """Return the engine for one turn; `on_place` is called when the turn has its place."""
        no_calls = not asked.request.tools and bool(asked.prompt.tools)
        return TurnEngine(self.engine, self.places, self.guard, asked.media, no_calls, on_place)

    async def read(self, session: Session, request: ParsedRequest, stamp: RequestStamp) -> AskedTurn:
        """Return a request as it was read; raises `RequestRefused` where it exceeds a limit.

        Raises `InputError` where it cannot be sampled so.
        """
        media = await self._media(session, request)
        field, messages = request.continue_final_message, media.messages
        continued = None if field is None else Continuation.of(field, self._cleaned(messages[-1]))
        prompt = self._prompt(session, request, messages if field is None else messages[:-1])
        args = parse_sampling(request.sampling).among(prompt.tools if request.tools else ())
        rendering = self.rendering(prompt.tools, args.template_args)
        return AskedTurn(request, stamp, media, prompt, args, rendering, continued)

    def _cleaned(self, message: Message) -> Message:
        """Return a message without client noise; one of which nothing is left stays."""
        return next(iter(self.noise.clean([message], ()).messages), message)

    async def _media(self, session: Session, request: ParsedRequest) -> NamedMedia:
        """Return the messages of a request with their images by digest, and the images' bytes.

        Raises `RequestRefused` where they exceed a limit, or an image cannot be had.
        """
        asked = request.sampling.get("n")
        session.check_limits(asked if isinstance(asked, int) else 1)
        messages = _conversation(session, request)
        if len(messages) > self.limits.messages:
            what = "messages in this conversation"
            raise limit_reached(what, len(messages), self.limits.messages, "--max-messages")
        images = (part for part in media_parts(messages) if not isinstance(part.get("content"), list))
        shown = len([*islice(images, self.limits.images + 1)])  # of too many, no more are looked at
        if shown > self.limits.images:
            raise limit_reached("images in this prompt", None, self.limits.images, "--max-images")
        if not shown:
            return NamedMedia(messages=messages)
        fetched = {} if self.fetcher is None else await self.fetcher.all(messages, session.addresses)
        name = partial(named_media, messages, session.media, fetched)
        media = await anyio.to_thread.run_sync(name)  # it reads megabytes
        session.check_media(media.new)
        return attrs.evolve(media, urls={**media.urls, **await session.media_urls(media.unsent)})

    def shown_tools(self, request: ParsedRequest) -> Sequence[Mapping[str, Any]]:
        """Return the tools that stand in a request's prompt."""
        return request.tools or (request.forbidden_tools if self.keeps_forbidden_tools else ())

    def _prompt(self, session: Session, request: ParsedRequest, messages: Sequence[Message]) -> SessionPrompt:
        """Return the conversation of a request; raises `RequestRefused` where it exceeds a limit."""
        prompt = read_prompt(self.noise, messages, self.shown_tools(request), session.last_prompt)
        if prompt.turns > self.limits.turns:
            what = "assistant messages in this prompt"
            raise limit_reached(what, prompt.turns, self.limits.turns, "--max-turns")
        self.metrics.count_forgiven(prompt.removed)
        if self.guard is not None:
            self.metrics.spelled_specials.inc(self.guard.count(_after_last_turn(prompt.new)))
        return prompt

    async def take(
        self, session: Session, asked: AskedTurn, engine: TurnEngine, watch: Watch | None = None
    ) -> UnreceivedTurn:
        """Sample a turn. An error or a cancellation changes nothing.

        Args:
            session: The session; it is read, not changed.
            asked: The client's request.
            engine: The engine, from `turn_engine()`.
            watch: Called with each delta.
        """
        steps = session.trajectory  # those that there were when the request came
        prompt, stamp = asked.prompt, asked.stamp
        known_media = KnownMedia(urls=dict(engine.media.urls))
        sampler = attrs.evolve(self.sampler, engine=engine, known_media=known_media)
        # A session's id is a key to it: routers, and their logs, get a digest.
        sampling = attrs.evolve(asked.args.sampling, conversation=digest_name(session.name))
        known = await self.certificates.of(asked.rendering)
        matched = await self._unless_read(self.matched(session, asked), asked, known)
        before, answered = None, None
        request = SampleRequest(
            messages=matched.messages, rendering=asked.rendering, sampling=sampling, watch=watch
        )
        if asked.continued is not None:
            reads_key = partial(self._reads_key, asked, known)
            found = await continue_turn(
                sampler, session, request, asked.continued, self.certificates, reads_key
            )
            sampled, before = found.sampled, found.before
        else:
            sampled = CompletedTurn.of(await sampler.turn_after(steps, request, known))
            answered = AnsweredPrompt(prompt, stamp.response, matched.forgiven)
        self._check_text(session, sampled.turn.reply, sampling.stop)
        origin = _origin(sampled.turn, asked, (*matched.forgiven, *sorted(prompt.removed)), before)
        self.metrics.count_turn(origin, sampled.turn, time.perf_counter() - stamp.begun)
        self.metrics.count_constrained(sampling.constraint)
        commits = tuple(_commits(sampled, origin, stamp.response))
        return UnreceivedTurn(reply=sampled.turn.reply, commits=commits, prompt=answered, media=asked.media)

    def _check_text(self, session: Session, reply: Reply, stops: Sequence[str]) -> None:
        """Compare the text of a reply with its ids; count a difference that its adapter did not count."""
        if self.texts is not None and self.texts.differs(session.name, reply, stops):
            self.metrics.notices.labels(OTHER_TEXT).inc(OTHER_TEXT not in reply.notice_counts)

    def rendering(self, tools: Sequence[Mapping[str, Any]], template_args: Mapping[str, Any]) -> Rendering:
        """Return tools and arguments as one value, the same for all requests that repeat them.

        Its key is then computed once; agents send all of their tools with every request.
        """
        data = dumps({"tools": tools, "args": template_args})
        name = hashlib.blake2b(data, digest_size=16).digest()
        if name not in self._renderings:
            while len(self._renderings) >= self.certificates.most:
                del self._renderings[next(iter(self._renderings))]
            self._renderings[name] = Rendering(tools=tuple(tools), template_args=template_args)
        return self._renderings[name]

    def matched(self, session: Session, asked: AskedTurn) -> MatchedPrompt:
        """Return a prompt with the session's own messages in the place of its history."""
        stops = asked.args.sampling.stop if NoiseRule.TEXT_ECHO in self.noise.rules else None
        forgive, key = self.sampler.policy.forgive, asked.rendering.key
        matcher = PromptMatcher(session.trajectory, session.commits, key, forgive, stops)
        return matcher.match(asked.prompt)

    async def _unless_read(
        self, matched: MatchedPrompt, asked: AskedTurn, known: KnownRendering
    ) -> MatchedPrompt:
        """Return a matched prompt; the prompt as it came where the template reads a key that differs in it.

        The kernel then compares it, and says so.
        """
        reads = matched.changed and await self._reads_key(asked, known, matched.changed)
        return MatchedPrompt(asked.prompt.messages) if reads else matched

    async def _reads_key(
        self, asked: AskedTurn, known: KnownRendering, changed: Iterable[tuple[Message, Message]]
    ) -> bool:
        """Return whether the template reads a key in which messages that came back differ.

        It is not asked where nothing is continued by ids: by an engine that keeps them, or with images that
        nothing here renders.
        """
        if self.engine.keeps_ids or (self.sampler.media is None and is_multimodal(asked.prompt.messages)):
            return False
        return await known.reads_key(changed, self.sampler.render(asked.rendering, known))

    async def rendered(self, messages: Sequence[Message], rendering: Rendering) -> Sequence[int]:
        """Return the ids of a prompt, rendered afresh; those of images are known to the engine alone."""
        renderer = self.sampler.renderer
        if renderer is None or is_multimodal(messages):
            return await self.engine.render(messages, add_generation_prompt=True, rendering=rendering)
        return await answer(ask(messages), renderer(rendering))

    async def close(self, rendering: Rendering) -> tuple[int, ...]:
        """Return the ids with which the template closes a turn."""
        known = await self.certificates.of(rendering)
        return (await self.sampler.profile(rendering, known)).suffix


def _conversation(session: Session, request: ParsedRequest) -> Sequence[Message]:
    """Return a request's messages, after those of the stored response that it continues by its id."""
    if request.previous_response_id is None:
        return request.messages
    commit = session.response(request.previous_response_id)
    if commit is None:
        name = "previous_response_id"
        raise RequestRefused(
            404, "response_not_found", f"{name}: this session has no such response", parameter=name
        )
    # Instructions come first and hold for their own request alone, so the stored ones give way to the new.
    own = request.messages[: int(request.instructed)]
    earlier = list(commit.step.messages)[int(commit.origin.instructed) :]
    return [*own, *earlier, *request.messages[len(own) :]]


def _after_last_turn(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages after the last of the assistant: no earlier request had those."""
    roles = [message.get("role") for message in messages][::-1]
    return messages[len(roles) - roles.index("assistant") :] if "assistant" in roles else messages


def _origin(
    turn: ClientTurn, asked: AskedTurn, forgiven: tuple[str, ...], before: Message | None
) -> TurnOrigin:
    expected, stamp = 0, asked.stamp
    if turn.route is Route.TITO:  # a continued turn has all of its prompt's ids from the turn before
        expected = len(turn.reply.prompt_ids if turn.stitched is None else turn.stitched.step.ids)
    return TurnOrigin(
        dialect=stamp.dialect,
        route=turn.route.name,
        requested=stamp.requested,
        refusal=None if turn.refusal is None else turn.refusal.reason.name,
        forgiven=() if turn.stitched is None else forgiven,
        expected=expected,
        cached=turn.reply.usage.cached_tokens,
        stop_reason=turn.reply.stop_reason,
        engine_request=turn.reply.request_id,
        worker=turn.reply.worker,
        continued=before,
        instructed=asked.request.instructed,
        retry_key=stamp.retry_key,
        request=own_fields(asked.request.body),
    )


def own_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request that its turn's messages and key do not repeat."""
    return {name: value for name, value in body.items() if name not in IN_MESSAGES}


def _commits(sampled: CompletedTurn, origin: TurnOrigin, response: str) -> Iterator[Commit]:
    replies = (sampled.turn.reply, *sampled.turn.reply.siblings)
    for place, (step, reply) in enumerate(zip(sampled.steps, replies, strict=True)):
        # A step whose ids were not stitched here stands alone until the trajectory sees whose it continues.
        alone = origin.route != Route.TITO.name and step.prompt.parent is not None
        call = StoredCall(
            name=f"{response}.{place}" if place else response,
            step=attrs.evolve(step, prompt=list(step.prompt)) if alone else step,
            finish_reason=reply.finish_reason,
            weight_versions=reply.weight_versions,
            routed_experts=reply.routed_experts,
        )
        own = attrs.evolve(
            origin,
            stop_reason=reply.stop_reason,
            engine_request=reply.request_id,  # an engine that takes one turn a request had several
            worker=reply.worker,
        )
        yield Commit(call=call, parent=None, response=response, at=time.time(), origin=own)
