"""A gateway: its parts, its options, and how it is built from an engine and a store."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import aclosing
from functools import lru_cache, partial
from typing import Any, TypeVar

import anyio.to_thread
import attrs
from starlette.requests import Request

from tito_core import Forgiveness, InputError, OddStop, Policy, TemplateRefused
from tito_core.media.ranges import Placeholders
from tito_io.client.certificates import Certificates, KnownRendering
from tito_io.client.turn_sampler import TurnSampler
from tito_io.dialects.protocol import ParsedRequest, TokenText, UntranslatableError, as_id
from tito_io.engines.aborted_turns import OnAbort, as_on_abort
from tito_io.engines.family_render import family_as, renders_as
from tito_io.engines.protocol import Engine, Rendering
from tito_io.engines.replies.spelling import Spelling
from tito_io.families.family import Family
from tito_io.families.image_tokens import image_placeholder
from tito_io.families.preprocessing.engines import rules_for
from tito_io.families.stored_profile import StoredProfile
from tito_io.families.thinking_switches import ThinkingSwitches
from tito_io.fields import json_kind
from tito_io.thinking import EFFORT, SWITCHES
from tito_io.whole_numbers import TURNS_BETWEEN_CHECKS

from .auth import ApiKeys, unknown_key
from .backend import Backend
from .body import MESSAGES, SMALL, check_messages, decoded, parsed
from .client_noise import DEFAULT, NoiseFilter, NoiseRule
from .fetch import ImageFetcher
from .ignored import IgnoredCounter
from .logs import SESSION
from .metrics import Metrics
from .refusals import (
    DEEPEST_STORED,
    GatewayLimits,
    RequestRefused,
    bad_request,
    body_too_late,
    body_too_long,
    deep_field,
    too_deep,
)
from .sessions import Sessions
from .spans import TurnSpans
from .special_tokens import SpecialTokenGuard
from .store import Store
from .text_check import OnOtherText, TextCheck
from .turns import TurnTaker, own_fields

T = TypeVar("T")
TEXTS = 65_536
"""How many ids' texts are kept."""
BODY = "tito.body"
"""Where a request's scope holds its body, once that was read."""
READERS = 2
"""Few, since the JSON reader lets no other thread run until it is done."""


def _not_needed(_: object, __: object, names: Collection[str]) -> None:
    for name in sorted({*MESSAGES} & {*names}):
        raise InputError(f"ignore: without {name!r} requests cannot be answered; leave it out")


@attrs.frozen(kw_only=True)
class GatewayOptions:
    """The options of a gateway's operator.

    Attributes:
        limits: What requests and sessions may use.
        forgive: Differences that clients introduce and that start no branch.
        strip_system: Regular expressions; what they match is removed from system texts.
        policy: How turns that were cut, and odd stops, are continued. Its `forgive` is replaced.
        guarded: Whether spelled special tokens are read as text, where the model's folder is known.
        check_every: After how many turns a bridge is compared with a render of the whole conversation; 0 for
            never.
        on_abort: What to do about turns that the engine aborts: raise, which is an error for the client, or
            resume.
        sampling_masks: Whether each sampled id is stored with its sampling mask (`TurnSampler`).
        keys: API keys; without any, every client may use the gateway.
        share_keys: Whether agents that name a session of their own share one if they have the same API key.
        trusted_hosts: Names of this gateway beside its addresses and the machine's; `*` for all. They are
            checked by `serve`, and not by `app`.
        ignore: Request fields that are accepted without effect, even those that would be refused.
        strict: Whether fields and tools that would be accepted without effect are refused.
        one_sample: Whether a session's samples are one at most: the path to its newest turn.
        later_wire: Whether the later generation of the session protocol is spoken.
        ping_seconds: After how much silence a stream gets a ping, until its turn is sampled. The first begins
            the stream if no id was sampled by then.
        on_other_text: What to do about a turn whose text is not that of its ids, where the model's folder is
            known: notice (default), or raise, which is an error for the client.
        fetch_images: Whether images are fetched that clients name by address.
        keep_forbidden_tools: Whether tools stay in the prompt of a request with `tool_choice: "none"`; None:
            as the engine's own server does it.
        spans: Writes OpenTelemetry spans of turns; None for none.
    """

    limits: GatewayLimits = attrs.field(factory=GatewayLimits)
    forgive: tuple[NoiseRule | Forgiveness, ...] = DEFAULT
    strip_system: tuple[str, ...] = ()
    policy: Policy = attrs.field(factory=lambda: Policy(odd_stop=OddStop.KEEP))
    guarded: bool = True
    check_every: int = attrs.field(default=0, validator=TURNS_BETWEEN_CHECKS)
    on_abort: OnAbort = attrs.field(default=OnAbort.RAISE, converter=as_on_abort)
    sampling_masks: bool = False
    keys: tuple[str, ...] = ()
    share_keys: bool = False
    trusted_hosts: tuple[str, ...] = ()
    ignore: frozenset[str] = attrs.field(default=frozenset(), validator=_not_needed)
    strict: bool = False
    one_sample: bool = False
    later_wire: bool = True
    ping_seconds: float = 10.0
    on_other_text: OnOtherText = attrs.field(default=OnOtherText.NOTICE, converter=OnOtherText)
    fetch_images: bool = False
    keep_forbidden_tools: bool | None = None
    spans: TurnSpans | None = None


@attrs.define(kw_only=True, eq=False)
class Gateway:
    """A gateway; `app.app` serves it.

    Attributes:
        turns: Samples turns.
        sessions: The sessions.
        keys: The API keys.
        metrics: What is counted.
        ignored: Counts what of requests is accepted without effect.
        options: The operator's choices.
        backend: The engine's own routes, where it has any.
        variables: All words of the chat templates, where the model's folder is known: the names that a
            template may read are among them.
        switches: Which variables of the chat templates switch reasoning, where the model's folder is known.
        spell: Returns the text of an id, or `token_id:N` where the model's folder is not known.
        decode: Returns the text of ids, where the model's folder is known.
        clock: Returns seconds since 1970.
        instance: A random name of this process, for the session protocol.
        readers: How many bodies are decoded or parsed at once, beside small ones.
    """

    turns: TurnTaker
    sessions: Sessions
    keys: ApiKeys
    metrics: Metrics
    ignored: IgnoredCounter
    options: GatewayOptions
    backend: Backend | None = None
    variables: Collection[str] | None = None
    switches: ThinkingSwitches | None = None
    spell: TokenText = as_id
    decode: Callable[[list[int]], str] | None = None
    clock: Callable[[], float]
    instance: str = attrs.field(factory=lambda: secrets.token_hex(16))
    readers: anyio.CapacityLimiter = attrs.field(factory=lambda: anyio.CapacityLimiter(READERS))

    async def session_name(self, request: Request, *, opening: bool = False) -> str:
        """Return the session that a request names, and note it for the access log.

        Args:
            request: The request.
            opening: Whether to open the session if it is missing and the request names it itself.
        """
        asked = self.keys.session(request, await self.sessions.secret())
        name = await self.sessions.find(asked, self.clock() if opening else None)
        if asked.by_key and not await self.sessions.exists(name):
            raise unknown_key()  # before the name is logged
        request.scope[SESSION] = name
        return name

    async def body(self, request: Request) -> bytes:
        """Return a request's body, decoded; raises `RequestRefused` where it is too long."""
        most, length = self.options.limits.body_bytes, request.headers.get("content-length", "")
        if length.isdecimal() and int(length) > most:
            raise body_too_long(most, int(length))
        body = bytearray()  # a list of its parts would take eight bytes for each part, which may have one
        seconds = self.options.limits.body_seconds
        try:
            with anyio.fail_after(seconds):
                async with aclosing(request.stream()) as stream:
                    async for part in stream:
                        body += part
                        if len(body) > most:
                            raise body_too_long(most)
        except TimeoutError:
            raise body_too_late(seconds) from None
        coding = request.headers.get("content-encoding", "identity")
        if coding == "identity":
            return bytes(body)
        return await self._in_thread(decoded, bytes(body), coding, most)

    async def json(self, request: Request) -> dict[str, Any]:
        """Return a request's body, a JSON object; an empty body is an empty object."""
        raw = await self.body(request) or b"{}"
        limits = self.options.limits
        body = parsed(raw, limits) if len(raw) <= SMALL else await self._in_thread(parsed, raw, limits)
        if not isinstance(body, dict):
            raise bad_request(f"the body is {json_kind(body)}, and a JSON object is needed")
        request.scope[BODY] = body
        deep = deep_field(own_fields(body), DEEPEST_STORED)
        if deep is not None:
            raise too_deep(deep, DEEPEST_STORED)
        return body

    async def messages(self, request: Request) -> dict[str, Any]:
        """Return the body of a request with messages, of which there are not too many."""
        body = await self.json(request)
        for one in (body, *(value for value in body.values() if isinstance(value, dict))):
            check_messages(one, self.options.limits.messages)  # Google's `countTokens` may nest a request
        return body

    async def _in_thread(self, function: Callable[..., T], *given: Any) -> T:
        """Call a function of `body` while other requests are answered."""
        return await anyio.to_thread.run_sync(function, *given, limiter=self.readers)

    def fitted(self, request: ParsedRequest) -> ParsedRequest:
        """Return a request whose switches for reasoning are those that the chat template reads.

        What it reads nothing of is added to `ignored`; raises `UntranslatableError` if the gateway is strict.
        """
        args = request.sampling.get("chat_template_kwargs")
        if self.variables is None or self.switches is None or not isinstance(args, Mapping):
            return request
        given = request.body.get("chat_template_kwargs")
        known = {*self.variables, *SWITCHES, EFFORT}
        others = (name for name in given if name not in known) if isinstance(given, Mapping) else ()
        unread = (*sorted(f"chat_template_kwargs.{name}" for name in others), *self.switches.unread(args))
        for path in unread:
            if self.options.strict and path not in self.options.ignore:
                raise UntranslatableError(path, "is no variable of the chat template", "leave it out")
        sampling = {**request.sampling, "chat_template_kwargs": self.switches.reaching(args)}
        return attrs.evolve(request, sampling=sampling, ignored=(*request.ignored, *unread))

    def count_error(self, reply: RequestRefused) -> dict[str, str]:
        """Count an error that a request is answered with; return its headers."""
        self.metrics.declined.labels(str(reply.status), reply.kind).inc()
        return {**reply.headers, **({"x-should-retry": "false"} if reply.final else {})}

    async def aclose(self) -> None:
        """Close all parts."""
        parts = (self.sessions.store, self.turns.engine, self.turns.fetcher, self.backend, self.options.spans)
        for part in parts:
            if part is not None:
                await part.aclose()


def build_gateway(
    engine: Engine,
    store: Store,
    *,
    model: str,
    family: Family | None = None,
    options: GatewayOptions | None = None,
    backend: Backend | None = None,
    clock: Callable[[], float] = time.time,
) -> Gateway:
    """Return a gateway in front of an engine.

    Args:
        engine: Samples turns.
        store: Keeps sessions.
        model: The model's name; "" to ask the engine later.
        family: The engine's own model folder. With it, prompts are rendered here, special tokens that users
            and tools spell are read as text, and pages show texts for ids.
        options: The operator's choices.
        backend: The engine's own routes.
        clock: Returns seconds since 1970.

    Raises:
        InputError: The folder's vocabulary cannot spell a special token, or a regular expression is wrong.
    """
    chosen, metrics = options or GatewayOptions(), Metrics()
    rules = frozenset(one for one in chosen.forgive if isinstance(one, NoiseRule))
    forgiven = frozenset(one for one in chosen.forgive if isinstance(one, Forgiveness))
    guard = None
    if family is not None and not engine.keeps_ids:  # an engine that keeps ids renders for itself
        guard = SpecialTokenGuard.of(family_as(family, engine), guarded=chosen.guarded)
    placeholders = None
    if family is not None and engine.takes_media:
        placeholders = Placeholders.of(image_placeholder(family) or None)
    if family is not None and family.fast is not None:
        metrics.watch(family.fast.use)
    return Gateway(
        turns=TurnTaker(
            sampler=TurnSampler(
                engine,
                attrs.evolve(chosen.policy, forgive=forgiven),
                None if guard is None else guard.tokenize_fn,
                media=placeholders,
                check_every=chosen.check_every,
                on_abort=chosen.on_abort,
                sampling_masks=chosen.sampling_masks,
            ),
            model=model,
            noise=NoiseFilter(rules, chosen.strip_system),
            guard=guard,
            limits=chosen.limits,
            metrics=metrics,
            texts=None if family is None else TextCheck(Spelling.of(family), chosen.on_other_text),
            fetcher=ImageFetcher.of() if chosen.fetch_images else None,
            keeps_forbidden_tools=_keeps_forbidden_tools(engine, chosen.keep_forbidden_tools),
            certificates=Certificates() if family is None else Certificates(begin=partial(_stored, family)),
        ),
        sessions=Sessions(store, chosen.limits, metrics),
        keys=ApiKeys(chosen.keys, chosen.share_keys),
        metrics=metrics,
        ignored=IgnoredCounter(metrics),
        options=chosen,
        backend=backend,
        variables=None if family is None else _words(family),
        switches=None if family is None else ThinkingSwitches.of(family),
        # The text of a part of a character is its replacement sign, as in engines.
        spell=as_id if family is None else lru_cache(TEXTS)(lambda index: family.decode([index])),
        decode=None if family is None else family.decode,
        clock=clock,
    )


def _keeps_forbidden_tools(engine: Engine, chosen: bool | None) -> bool:
    """Return whether tools stay in prompts of turns that may not call them; raises `InputError`."""
    if engine.keeps_ids and chosen:
        raise InputError(
            f"keep_forbidden_tools: {engine.name} renders all prompts itself, and leaves these tools out or "
            "keeps them as its own engine does; leave --tools-when-tool-choice-none out"
        )
    rules = rules_for(renders_as(engine) or "transformers")
    return rules.keeps_forbidden_tools if chosen is None else chosen


def _words(family: Family) -> frozenset[str]:
    """Return the words of a family's chat templates."""
    sources = (template.source.text for template in family.templates.values())
    return frozenset(word for source in sources for word in re.findall(r"\w+", source))


async def _stored(family: Family, rendering: Rendering) -> KnownRendering:
    """Return what earlier processes learned of a rendering, kept where `Family` keeps its profiles."""

    def find() -> StoredProfile:
        return family.rendering(tools=rendering.tools or None, **rendering.template_args).grown_profile()

    try:
        stored = await anyio.to_thread.run_sync(find)
    except (InputError, TemplateRefused):  # a turn says so when it asks
        return KnownRendering()
    profile = attrs.evolve(stored.profile, key=rendering.key)
    return KnownRendering(profile, store=stored.learn)
