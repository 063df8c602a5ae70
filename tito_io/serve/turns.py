"""Taking one turn for a session: matched, stitched, sampled; committed by whoever hands it to the client."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Sequence
from functools import partial

import anyio
import attrs

from tito_core import Message, Policy, Profile, Step, render_key
from tito_core.samples import StoredCall
from tito_io.client.conversation import ClientTurn, Conversation, Route
from tito_io.client.driver import AsyncTokenizeFn
from tito_io.client.sampling import parse_sampling
from tito_io.client.token_client import Renderer, SampledTurn, TokenClient
from tito_io.dialects.protocol import ParsedRequest
from tito_io.engines.protocol import Engine, Rendering, Reply, Watch

from .client_noise import Door
from .commit import Commit, TurnOrigin
from .limits import Caps
from .metrics import Metrics
from .model_name import named_by
from .prompt import Heard, Prompt, met, read
from .refusals import RequestRefused, capped
from .resume import resumed
from .session import Session
from .special_tokens import Guard
from .turn_engine import Tap

PROFILES = 256
"""How many renderings' profiles are kept; a rendering is a set of tools and template arguments."""
UNSAID = frozenset(("messages", "tools", "input", "system", "instructions"))
"""What a turn's record need not repeat: it is in the turn."""


@attrs.frozen(kw_only=True)
class UnreceivedTurn:
    """A turn that nobody has received yet."""

    taken: SampledTurn
    commits: tuple[Commit, ...]
    """What to commit: a turn, or several after the same prompt."""
    heard: Heard | None
    """The prompt, for the next one that begins with it; None where its last message went on."""

    @property
    def reply(self) -> Reply:
        """What the engine answered."""
        return self.taken.turn.reply


@attrs.define(kw_only=True)
class TurnTaker:
    """Takes turns with one engine."""

    engine: Engine
    model: str
    """What the model is called; empty where the engine was not there yet to say it."""
    policy: Policy
    door: Door
    guard: Guard | None
    caps: Caps
    metrics: Metrics
    renderer: Renderer | None = None
    """How messages are rendered for the bridge, where there is no guard; else the engine's own way."""
    places: anyio.CapacityLimiter = attrs.field(init=False)
    profiles: dict[str, Profile] = attrs.field(factory=dict, init=False)

    @places.default
    def _as_many(self) -> anyio.CapacityLimiter:
        return anyio.CapacityLimiter(self.caps.calls)

    async def named(self) -> str:
        """Return what the model is called, asked of the engine where it is not known yet."""
        self.model = self.model or await named_by(self.engine)
        return self.model

    def tap(self) -> Tap:
        """Return the engine for one turn."""
        return Tap(self.engine, self.places, self.guard)

    def prompt(self, session: Session, asked: ParsedRequest) -> Prompt:
        """Return the conversation that a request is about, if there is room for it."""
        session.room()
        found = read(self.door, self._said(session, asked), asked.tools, session.heard)
        if found.turns > self.caps.turns:
            raise capped("assistant messages in this prompt", found.turns, self.caps.turns, "--max-turns")
        self.metrics.forgave(found.taken)
        if self.guard is not None:
            self.metrics.spelled(self.guard.count(_unseen(found.new)))
        return found

    async def take(
        self,
        session: Session,
        asked: ParsedRequest,
        prompt: Prompt,
        tap: Tap,
        *,
        response: str,
        dialect: str,
        watch: Watch | None = None,
    ) -> UnreceivedTurn:
        """Sample a turn. Nothing is committed; an error or a cancellation has changed nothing."""
        requested = time.time()
        goes_on = asked.continue_final_message
        taken, forgiven = await (self._resumed if goes_on else self._taken)(
            session, asked, prompt, tap, watch
        )
        origin = _origin(taken, asked, (*forgiven, *sorted(prompt.taken)), dialect, requested)
        self.metrics.took(origin, taken.turn, time.time() - requested)
        commits = tuple(_commits(taken, origin, response))
        heard = None if goes_on else Heard(prompt, response, forgiven)
        return UnreceivedTurn(taken=taken, commits=commits, heard=heard)

    async def _taken(
        self, session: Session, asked: ParsedRequest, prompt: Prompt, tap: Tap, watch: Watch | None
    ) -> tuple[SampledTurn, tuple[str, ...]]:
        """Answer a prompt; return what was forgiven to know its history, too."""
        steps, key = session.trajectory, _key(asked, prompt)
        found = met(prompt, steps, session.commits, key, self.policy.forgive)
        client = TokenClient(tap, self.policy, self._renderer(), profiles=self.profiles)
        tools, sampling = prompt.tools, asked.sampling
        taken = await client.turn(steps, found.prompt, tools=tools, sampling=sampling, watch=watch)
        self._trim()
        return taken, found.forgiven

    async def _resumed(
        self, session: Session, asked: ParsedRequest, prompt: Prompt, tap: Tap, watch: Watch | None
    ) -> tuple[SampledTurn, tuple[str, ...]]:
        """Go on with the last message."""
        steps, key, forgive = session.trajectory, _key(asked, prompt), self.policy.forgive
        sampling = asked.sampling
        taken = await resumed(
            tap,
            steps,
            prompt,
            key,
            sampling=sampling,
            forgive=forgive,
            watch=watch,
            stopped=[one.step for one in session.commits.values() if isinstance(one.origin.stop_reason, str)],
        )
        return taken, ()

    async def rendered(self, messages: Sequence[Message], rendering: Rendering) -> Sequence[int]:
        """Return the ids of a prompt, rendered afresh."""
        render = self._tokenize_fn(rendering) or partial(self.engine.render, rendering=rendering)
        return await render(messages, add_generation_prompt=True)

    async def close(self, rendering: Rendering) -> tuple[int, ...]:
        """Return the template's turn close."""
        known = self.profiles.get(render_key(rendering.tools, rendering.template_args))
        if known is not None:
            return known.suffix
        return await Conversation(
            engine=self.tap(), rendering=rendering, tokenize_fn=self._tokenize_fn(rendering)
        ).close()

    def _tokenize_fn(self, rendering: Rendering) -> AsyncTokenizeFn | None:
        renderer = self._renderer()
        return None if renderer is None else renderer(rendering)

    def _renderer(self) -> Renderer | None:
        guard = self.guard
        if guard is None:
            return self.renderer
        return lambda rendering: guard.tokenize_fn(rendering.tools, rendering.template_args)

    def _trim(self) -> None:
        """Forget the oldest renderings' profiles: agents may bring new tools for ever."""
        for key in list(self.profiles)[: max(len(self.profiles) - PROFILES, 0)]:
            del self.profiles[key]

    def _said(self, session: Session, asked: ParsedRequest) -> Sequence[Message]:
        """Return what is said, after the stored conversation that a request goes on from by name."""
        if asked.previous_response_id is None:
            return asked.messages
        commit = session.response(asked.previous_response_id)
        if commit is None:
            raise RequestRefused(
                404, "ResponseNotFoundError", "previous_response_id: this session has no such response"
            )
        own = asked.messages[: int(instructed(asked))]
        earlier = list(commit.step.messages)[int(commit.origin.instructed) :]
        return [*own, *earlier, *asked.messages[len(own) :]]


def _key(asked: ParsedRequest, prompt: Prompt) -> str:
    """Return what a prompt is rendered with."""
    return render_key(prompt.tools, parse_sampling(asked.sampling).template_args)


def _unseen(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages after the last of the assistant: those that no request had before."""
    roles = [message.get("role") for message in messages][::-1]
    return messages[len(roles) - roles.index("assistant") :] if "assistant" in roles else messages


def _origin(
    taken: SampledTurn, asked: ParsedRequest, forgiven: tuple[str, ...], dialect: str, requested: float
) -> TurnOrigin:
    turn, found = taken.turn, taken.turn.stitched
    return TurnOrigin(
        dialect=dialect,
        route=turn.route.name,
        requested=requested,
        refusal=None if turn.refusal is None else turn.refusal.reason.name,
        forgiven=() if found is None else forgiven,
        expected=_expected(turn),
        cached=turn.reply.usage.cached_tokens,
        stop_reason=turn.reply.stop_reason,
        instructed=instructed(asked),
        asked={name: value for name, value in asked.body.items() if name not in UNSAID},
    )


def _expected(turn: ClientTurn) -> int:
    """Return how many of a prompt's ids an earlier turn had: where it goes on from one's very end, all."""
    if turn.route is not Route.TITO:
        return 0
    return len(turn.reply.prompt_ids if turn.stitched is None else turn.stitched.step.ids)


def _commits(taken: SampledTurn, origin: TurnOrigin, response: str) -> list[Commit]:
    replies = (taken.turn.reply, *taken.turn.reply.siblings)
    pairs = zip(taken.steps, replies, strict=True)
    return [_commit(step, reply, origin, response, place) for place, (step, reply) in enumerate(pairs)]


def _commit(step: Step, reply: Reply, origin: TurnOrigin, response: str, place: int) -> Commit:
    call = StoredCall(
        name=f"{response}.{place}" if place else response,
        step=_kept(step, origin),
        finish_reason=reply.finish_reason,
        weight_versions=reply.weight_versions,
        routed_experts=reply.routed_experts,
    )
    told = attrs.evolve(origin, stop_reason=reply.stop_reason)
    return Commit(call=call, parent=None, response=response, at=time.time(), origin=told)


def response_id(prefix: str) -> str:
    """Return a new response id, which nobody can guess."""
    return prefix + secrets.token_hex(16)


def instructed(asked: ParsedRequest) -> bool:
    """Tell whether the first message is a response's own instructions."""
    return bool(asked.body.get("instructions"))


def _kept(step: Step, origin: TurnOrigin) -> Step:
    """Return a step as it is to be kept.

    Its key is the one that others with the same tools hold: a key spells them all out. One whose ids were
    not put together here stands by itself, until the trajectory sees whether they go on from another's.
    """
    key = None if step.key is None else sys.intern(step.key)
    if origin.route != Route.TITO.name and step.prompt.parent is not None:
        return attrs.evolve(step, key=key, prompt=list(step.prompt))
    return step if key is step.key else attrs.evolve(step, key=key)
