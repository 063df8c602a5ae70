"""vLLM, over HTTP or straight into an ASGI application that speaks its dialect.

Ids go in by one of four routes. `completions` is meant for them, and the message is parsed here, in the
manner that the model's vocabulary shows (see `speech.py`). `generate` says more of each id: which weights
sampled it, which experts it went through; servers open it on demand. `chat` borrows a key that was made for
splitting prefill from decoding; there the server's own parsers make the message, so it fits families that
write their calls in another way. `tokens` is a route that prime-rl adds, of the same kind.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Literal, Self

import attrs
import httpx2

from tito_core import Ids, InputError, Message
from tito_io.engines.prompt_echo import Proven
from tito_io.engines.protocol import (
    Delta,
    EngineAnswer,
    EngineError,
    InvalidReplyError,
    ModelLimits,
    Rendering,
    Reply,
    RequestError,
    Sampling,
    UnsupportedError,
    Watch,
)
from tito_io.engines.replies.invariants import Check
from tito_io.engines.replies.output_parser import Harmony
from tito_io.engines.wire import Wire

from . import requests
from .calls import VllmRequest
from .echoes import repeated
from .endings import Endings
from .notices import Notice
from .parsers import Manner, Manners
from .refusal import refusal
from .replies import VllmQuestion
from .routes import ROUTES, WAYS, Route, absent, shut
from .served import VllmModels, chosen
from .tokenizer import TOKENIZE, ServedVocabulary
from .versions import Version

MODELS, VERSION = "/v1/models", "/version"


@attrs.frozen
class VllmTurn:
    """A turn after ids, as it is to be asked for."""

    model: str
    sent: Ids
    sampling: Sampling
    rendering: Rendering | None
    limit: int
    """The most ids that it can have."""
    watch: Watch | None

    @property
    def tools(self) -> bool:
        """Whether there may be something that it calls."""
        return self.rendering is None or bool(self.rendering.tools)


class VLLM:
    """A vLLM server."""

    name: str = "vllm"
    keeps_ids: bool = False

    def __init__(  # noqa: PLR0913  # each says one thing about the server, most of them seldom
        self,
        base_url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        timeout: float | None = 600.0,
        route: Route = "completions",
        speech: Manner | None = None,
        vocab_size: int | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """Make ready; nothing is sent before something is asked.

        `model` may be left out where the server has one. `timeout` is in seconds without a byte. `route` is
        how ids go in: `auto` is `generate` where the server has that open, else `completions`. `speech` is
        the manner in which the model writes thoughts and calls; left out, its vocabulary tells. `vocab_size`
        lets ids be checked before they are sent. `transport` replaces the network: with
        `httpx2.ASGITransport(app)` an application in this process answers.
        """
        if route not in ROUTES:
            raise InputError(f"route is {route!r}: ids go in by one of {', '.join(ROUTES)}")
        if speech not in (None, "hermes", "harmony"):
            raise InputError(
                f"speech is {speech!r}: it is 'hermes', 'harmony', or for the vocabulary to tell"
            )
        self.model = model
        self.route = route
        self.vocab_size = vocab_size
        self.notices: Counter[Notice] = Counter()
        """What was done otherwise than asked, and how many times; each reply says so of itself."""
        self._wire = Wire.to(base_url, api_key=api_key, timeout=timeout, transport=transport)
        self._manner: Manner | None = speech
        self._manners: Manners | None = None
        self._endings = Endings()
        self._proven = Proven[str]()
        self._served: VllmModels | None = None
        self._version: Version | None = None
        self._shut = False

    async def render(
        self, messages: Sequence[Message], rendering: Rendering, *, add_generation_prompt: bool
    ) -> list[int]:
        """Return the ids of messages.

        Raises `TemplateRefused` where the chat template rejects them, and `UnsupportedError` for harmony
        models: the route that renders renders those by another template than the server samples with.
        """
        manners = await self._speaking()
        if isinstance(await manners.speech(), Harmony):
            raise UnsupportedError(
                f"{self._wire.where('POST', TOKENIZE)} renders harmony conversations wrongly; render them "
                "here, with the `tokenize_fn` of a `tito_io.families.family.Family`. Nothing was sent"
            )
        model = manners.vocabulary.model
        body = requests.render(model, messages, rendering, add_generation_prompt=add_generation_prompt)
        try:
            answer = await self._wire.post(TOKENIZE, body)
        except RequestError as error:
            refused = refusal(error)
            if refused is None:
                raise
            raise refused from error
        return list(self._check("POST", TOKENIZE, answer).ids(answer, "tokens"))

    async def from_messages(
        self,
        messages: Sequence[Message],
        rendering: Rendering,
        sampling: Sampling,
        *,
        watch: Watch | None = None,
    ) -> Reply:
        """Sample a turn after messages that the server renders."""
        served, manners = await self.served(), await self._speaking()
        wanted = await manners.ending(sampling)
        body = requests.chat(served.name, messages, rendering, wanted)
        reply = await self._answered("chat", body, VllmQuestion(wanted), watch)
        reply = self._endings.settle(reply, served.limit(len(reply.prompt_ids), sampling))
        return await manners.reparsed(reply, wanted, tools=bool(rendering.tools))

    async def from_ids(
        self,
        ids: Sequence[int],
        sampling: Sampling,
        rendering: Rendering | None = None,
        *,
        watch: Watch | None = None,
    ) -> Reply:
        """Sample a turn after exactly these ids, which the answer must repeat, or count once a route has.

        Raises `OverlongError` without sending them where they are known to fill the server's context, and
        `UnsupportedError` where the server does not take them by this route. A generate route that is shut
        samples nothing: the ids then go by completions, and `Reply.notices` and `VLLM.notices` say so.
        """
        sent, served, manners = (
            self._wire.sendable(ids, self.vocab_size),
            await self.served(),
            await self._speaking(),
        )
        limit = served.room(len(sent), sampling)
        wanted = await manners.ending(sampling)
        turn = VllmTurn(served.name, sent, wanted, rendering, limit, watch)
        if self.route in ("chat", "tokens"):
            return await self._chatted(turn, manners)
        await manners.ready()
        reply = await self._generated(turn, manners) if await self._generates() else None
        return reply or await self._completed(turn, manners)

    async def models(self) -> tuple[VllmModels, ...]:
        """Return the models that the server has."""
        answer = await self._wire.get(MODELS)
        check = self._check("GET", MODELS, answer)
        return tuple(VllmModels.of(check, card) for card in check.get(answer, "data", list))

    async def served(self) -> VllmModels:
        """Return the model in use; asked for once."""
        if self._served is None:
            self._served = chosen(await self.models(), self.model)
        return self._served

    async def limits(self) -> ModelLimits:
        """Return how much the model takes. Servers do not say how many ids there are."""
        return ModelLimits(max_model_len=(await self.served()).max_model_len, vocab_size=self.vocab_size)

    async def version(self) -> str:
        """Return the server's version, such as `0.32.0`."""
        answer = await self._wire.get(VERSION)
        return self._check("GET", VERSION, answer).get(answer, "version", str)

    async def logprobs_mode(self) -> Literal["raw", "processed"]:
        """Find out which log-probabilities the server reports; asks for a turn of one id.

        `raw` ones are the model's own, before temperature and what else shapes the choice; `processed` ones,
        after it, as trainers want them at another temperature than 1 (`--logprobs-mode processed_logprobs`).
        Of an id that is the only one allowed, only the latter say that it was certain.
        """
        served = await self.served()
        sampling = Sampling(max_tokens=1, temperature=1.0, extra={"allowed_token_ids": [0]})
        prompt = Ids.of([0])
        body = requests.completion(served.name, prompt, sampling, 1, echo=True)
        reply = await self._answered("completions", body, VllmQuestion(sampling, prompt), None)
        return "processed" if reply.logprobs == (0.0,) else "raw"

    async def aclose(self) -> None:
        """Close the connections; leaving `async with` does, too."""
        await self._wire.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # The routes that ids go in by.

    async def _generated(self, turn: VllmTurn, manners: Manners) -> Reply | None:
        """Return a turn of the generate route, None where that is shut."""
        text = turn.watch is not None or bool(turn.sampling.stop)
        asked = await self._asked("generate", turn)
        body = requests.generation(
            turn.model, turn.sent, turn.sampling, turn.limit, text=text, echo=asked.echo
        )
        try:
            reply = await self._answered("generate", body, asked, turn.watch)
        except EngineError as error:
            if not shut(error):
                raise
            self._shut = True
            return None
        self._endings.learn(reply)
        decoded = reply.raw.get("output_mode") == "text"
        return await manners.said(reply, turn.sampling, tools=turn.tools, text=decoded)

    async def _completed(self, turn: VllmTurn, manners: Manners) -> Reply:
        """Return a turn of the completions route."""
        asked = await self._asked("completions", turn)
        body = requests.completion(turn.model, turn.sent, turn.sampling, turn.limit, echo=asked.echo)
        reply = await self._answered("completions", body, asked, turn.watch)
        if self.route == "generate":
            reply = self._noticed(reply, Notice.FELL_BACK)
        self._endings.learn(reply)
        return await manners.said(reply, turn.sampling, tools=turn.tools)

    async def _chatted(self, turn: VllmTurn, manners: Manners) -> Reply:
        """Return a turn of a route where the server's parsers run."""
        told = requests.chat_after_ids if self.route == "chat" else requests.chat_of_tokens
        asked = await self._asked(self.route, turn)
        body = told(turn.model, turn.sent, turn.rendering, turn.sampling, turn.limit, echo=asked.echo)
        if self.route == "chat" and not (await self._dialect()).ids_by_chat:
            raise UnsupportedError(
                f"route: vLLM {(await self._dialect()).said} takes no ids by chat, which came with 0.27; "
                "choose 'completions'. Nothing was sent"
            )
        try:
            reply = await self._answered(self.route, body, asked, turn.watch)
        except RequestError as error:
            if self.route != "tokens" or not absent(error):
                raise
            raise UnsupportedError(
                f"{self._wire.where('POST', WAYS['tokens'].path)}: the server has no such route, which "
                "prime-rl adds to vLLM; choose 'completions', or 'chat'. Nothing was sampled",
                error.answer,
            ) from error
        reply = self._endings.settle(reply, turn.limit)
        return await manners.reparsed(reply, turn.sampling, tools=turn.tools)

    async def _answered(
        self, way: str, body: dict[str, Any], asked: VllmQuestion, watch: Watch | None
    ) -> Reply:
        """Return the reply to a request, streamed where somebody watches and the version can."""
        check = lambda answer: self._check("POST", WAYS[way].path, answer)  # noqa: E731
        call = VllmRequest(self._wire, check, WAYS[way], body, asked)
        if watch is None:
            return await self._right(way, asked, call.whole())
        if way == "completions" or (await self._dialect()).streams(way):
            return await self._right(way, asked, call.streamed(watch))
        reply = await self._right(way, asked, call.whole())
        for index, one in enumerate((reply, *reply.siblings)):
            await watch(Delta(ids=one.completion_ids, logprobs=one.logprobs, text=one.text, index=index))
        return self._noticed(reply, Notice.WHOLE)

    async def _asked(self, way: str, turn: VllmTurn) -> VllmQuestion:
        """Return what a turn's answer is checked against."""
        quiet = way in self._proven.ways and (
            turn.watch is None or way == "generate" or (await self._dialect()).names_apart
        )
        return VllmQuestion(turn.sampling, turn.sent, echo=not quiet)

    async def _right(self, way: str, asked: VllmQuestion, coming: Coroutine[Any, Any, Reply]) -> Reply:
        """Return a reply as it comes, and take note of whether it holds together."""
        return await self._proven.held_to(way, coming, partial(repeated, way, asked))

    # What is known of the server.

    async def _generates(self) -> bool:
        """Whether the generate route is to be tried."""
        if self.route == "auto" and not (await self._dialect()).generates:
            return False
        return self.route in ("generate", "auto") and not self._shut

    async def _dialect(self) -> Version:
        """Return the server's version; asked for once. Proxies may hide it."""
        if self._version is None:
            try:
                self._version = Version.of(await self.version())
            except (RequestError, InvalidReplyError):
                self._version = Version.of(None)
        return self._version

    async def _speaking(self) -> Manners:
        """Return how the model speaks."""
        if self._manners is None:
            model = self.model or (await self.served()).name
            vocabulary = ServedVocabulary(self._wire, model, self.vocab_size)
            self._manners = Manners(vocabulary, self._manner)
        return self._manners

    def _noticed(self, reply: Reply, notice: Notice) -> Reply:
        self.notices[notice] += 1
        return attrs.evolve(reply, notices=(*reply.notices, notice))

    def _check(self, method: str, path: str, answer: object) -> Check:
        return Check(self._wire.where(method, path), EngineAnswer(200, answer), self.vocab_size)
