"""SGLang, over HTTP or straight into an ASGI application that speaks its dialect.

Ids go in by one of three routes. `generate` is the engine's own: it says most of each id, and the message is
parsed here, in the manner that the model's vocabulary shows (see `speech.py`). So it is on `completions`, the
OpenAI route for texts. On `chat` the server's own parsers make the message, so it fits families that write
their calls in another way.

Two things differ from what one may expect. Tools are rendered with a further key, `defer_loading`, which
other renderers do not write. `render` does as the server's chat does, which is right here; a model folder's
rendering of the same tools is another prompt. And a seed changes nothing unless the server was started with
`--enable-deterministic-inference`; replies say so in `notices`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, Self

import attrs
import httpx2

from tito_core import Ids, InputError, Message
from tito_io.engines.errors import Complaint
from tito_io.engines.prompt_echo import Proven
from tito_io.engines.protocol import (
    EngineAnswer,
    ModelLimits,
    OverlongError,
    Rendering,
    Reply,
    RequestError,
    Sampling,
    UnsupportedError,
    Watch,
)
from tito_io.engines.replies.invariants import Check
from tito_io.engines.replies.output_parser import Harmony, Hermes
from tito_io.engines.wire import Wire

from . import replies, requests
from .calls import Chunked, Generated, SglangRequest, Stream
from .meta_info import Routing
from .refusal import refusal
from .replies import Reader, SglangQuestion
from .requests import PATHS, ROUTES, Route
from .served import SglangModels
from .server import Server, ServerFacts
from .tokenizer import TOKENIZE, ServedVocabulary

Manner = Literal["hermes", "harmony"]

CHAT_STREAMS_IDS = (0, 5, 20)
"""The first version whose chats can be streamed with their ids."""
SEED_IGNORED = "seed-ignored"
"""The server samples without seeds: it was started without `--enable-deterministic-inference`."""
TOO_MUCH_ASKED = re.compile(r"(\d+) tokens from the input messages and \d+ tokens for the completion")

READERS: Mapping[Route, Reader] = {
    "generate": replies.generated,
    "chat": replies.chatted,
    "completions": replies.completed,
}
STREAMED: Mapping[Route, Mapping[str, Any]] = {
    "generate": {"stream": True},
    "chat": requests.STREAMED,
    "completions": {"stream": True, "stream_options": {"include_usage": True}},
}
NO_ECHO: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {})
ECHO: Mapping[Route, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "generate": NO_ECHO,  # said in the body
    "chat": (requests.WHOLE_ECHO, requests.STREAMED_ECHO),
}
"""What has a prompt's ids come back, in one piece and streamed, by the routes that need not do so."""


class SGLang:
    """An SGLang server."""

    name: str = "sglang"
    keeps_ids: bool = False

    def __init__(  # noqa: PLR0913  # each says one thing about the server, most of them seldom
        self,
        base_url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        timeout: float | None = 600.0,
        route: Route = "generate",
        speech: Manner | None = None,
        vocab_size: int | None = None,
        routing: Routing | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """Make ready; nothing is sent before something is asked.

        `model` may be left out where the server has one; SGLang never checks it, so it is checked here
        against what the server lists. `timeout` is in seconds without a byte. `route` is how ids go in.
        `speech` is the manner in which the model writes thoughts and calls; left out, its vocabulary tells.
        `vocab_size` is asked of the server where it is left out. `routing` gives routed experts their shape,
        which SGLang does not send. `transport` replaces the network: with `httpx2.ASGITransport(app)` an
        application in this process answers.
        """
        if route not in ROUTES:
            raise InputError(f"route is {route!r}: ids go in by one of {', '.join(ROUTES)}")
        if speech not in (None, "hermes", "harmony"):
            raise InputError(
                f"speech is {speech!r}: it is 'hermes', 'harmony', or None to ask the vocabulary"
            )
        self.route: Route = route
        self.routing = routing
        self._manner = speech
        self._wire = Wire.to(base_url, api_key=api_key, timeout=timeout, transport=transport)
        self._server = Server(self._wire, model, vocab_size)
        self._speech: Hermes | Harmony | None = None
        self._proven = Proven[tuple[Route, bool]]()
        """The routes, streamed or not, that repeated a prompt rightly, and need do so no more."""

    async def render(
        self, messages: Sequence[Message], rendering: Rendering, *, add_generation_prompt: bool
    ) -> list[int]:
        """Return the ids of messages; raises `TemplateRefused` where the chat template rejects them."""
        served = await self.served()
        body = requests.render(served, messages, rendering, add_generation_prompt=add_generation_prompt)
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
        """Sample a turn after messages that the server renders.

        Streamed, the turn's ids come in one delta, after its text. Raises `UnsupportedError` before sending
        where the server's version streams no ids by this route.

        How long the prompt is the server says only as it refuses one that leaves less room than was asked
        for. Nothing ran then, so what is left is asked for in its place.
        """
        served = await self.served()
        await self._chat_streams(watch)
        asked = SglangQuestion(sampling, None, self.routing)
        try:
            return await self._answered(
                "chat", requests.chat(served, messages, rendering, sampling), asked, watch
            )
        except OverlongError as error:
            less = _less(error, served)
            if less is None:
                raise
            body = requests.chat(served, messages, rendering, attrs.evolve(sampling, max_tokens=less))
            return await self._answered("chat", body, asked, watch)

    async def from_ids(
        self,
        ids: Sequence[int],
        sampling: Sampling,
        rendering: Rendering | None = None,
        *,
        watch: Watch | None = None,
    ) -> Reply:
        """Sample a turn after exactly these ids, which the answer must repeat, or count once a route has.

        Raises without sending them: `OverlongError` where they are known to fill the context, `InputError`
        for an id outside the vocabulary, which would end the server.
        """
        served, sent = await self.served(), await self._sendable(ids)
        room = served.room(len(sent), sampling, (await self.facts()).max_prompt)
        quiet = (self.route, watch is not None) in self._proven.ways
        asked = SglangQuestion(sampling, sent, self.routing, echo=not quiet)
        if self.route == "chat":
            await self._chat_streams(watch)
            body = requests.chat_after_ids(served, sent, rendering, sampling, room)
            return await self._answered("chat", body, asked, watch)
        speech = await self._speaking()  # first, so that no sampled turn is lost to it
        if self.route == "generate":
            body = requests.generation(served, sent, sampling, room, echo=asked.echo)
        else:
            body = requests.completion(served, sent, sampling, room)
        reply = await self._answered(self.route, body, asked, watch)
        return await self._parsed(speech, reply, tools=rendering is None or bool(rendering.tools))

    @property
    def model(self) -> str | None:
        """The model's name, as the caller said it."""
        return self._server.model

    async def models(self) -> tuple[SglangModels, ...]:
        """Return the models that the server has."""
        return await self._server.models()

    async def served(self) -> SglangModels:
        """Return the model in use; asked for once."""
        return await self._server.served()

    async def facts(self) -> ServerFacts:
        """Return what the server says of itself; asked for once."""
        return await self._server.facts()

    async def limits(self) -> ModelLimits:
        """Return how much the model takes; asked of the engine once."""
        served = await self.served()
        return ModelLimits(max_model_len=served.max_model_len, vocab_size=await self._server.vocabulary())

    async def aclose(self) -> None:
        """Close the connections; leaving `async with` does, too."""
        await self._wire.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _answered(
        self, route: Route, body: Mapping[str, Any], asked: SglangQuestion, watch: Watch | None
    ) -> Reply:
        """Send a request by a route, in one piece or as a stream; return the reply."""
        ignored = asked.sampling.seed is not None and (await self.facts()).seeded is False
        path = PATHS[route]
        call = SglangRequest(
            wire=self._wire,
            path=path,
            body=body,
            rid=f"tito-{uuid.uuid4().hex}",
            check=lambda answer: self._check("POST", path, answer),
            read=READERS[route],
            asked=asked,
        )
        way = (route, watch is not None)
        reply = await self._proven.held_to(
            way, self._come(call, route, watch), partial(_repeated, asked, *way)
        )
        return attrs.evolve(reply, notices=(SEED_IGNORED,)) if ignored else reply

    async def _come(self, call: SglangRequest, route: Route, watch: Watch | None) -> Reply:
        """Return a call's reply, in one piece or as a stream."""
        n, asked = call.asked.sampling.n, call.asked
        echo = ECHO.get(route, NO_ECHO)[watch is not None] if asked.echo else {}
        if watch is None:
            return await call.whole({**(requests.WHOLE if route == "chat" else {}), **echo})
        stream: Stream = Generated(n) if route == "generate" else Chunked(n)
        return await call.streamed({**STREAMED[route], **echo}, stream, watch)

    async def _parsed(self, speech: Hermes | Harmony, reply: Reply, *, tools: bool) -> Reply:
        """Return a reply with the messages that its turns' ids say."""
        turns = [attrs.evolve(reply, siblings=()), *reply.siblings]
        key = uuid.uuid4().hex[:16]
        first, *others = [
            replies.spoken(
                turn,
                await speech.parsed(
                    turn.prompt_ids,
                    turn.completion_ids,
                    turn.text,
                    whole=not isinstance(turn.stop_reason, str),
                    tools=tools,
                ),
                f"{key}.{place}",
            )
            for place, turn in enumerate(turns)
        ]
        return attrs.evolve(first, siblings=tuple(others))

    async def _speaking(self) -> Hermes | Harmony:
        """Return the manner in which the model speaks, everything asked that must be known beforehand."""
        if self._speech is None:
            vocabulary = ServedVocabulary(self._wire)
            harmony = Harmony(vocabulary)
            spoken = self._manner == "harmony" or (self._manner is None and await harmony.spoken())
            self._speech = harmony if spoken else Hermes(vocabulary)
            await self._speech.ready()
        return self._speech

    async def _sendable(self, ids: Sequence[int]) -> Ids:
        """Return ids as such, or raise `InputError` for what is none, or none of this model's."""
        sent = self._wire.sendable(ids)
        size = await self._server.vocabulary()
        if size is None:
            raise InputError(
                "vocab_size: the server does not say how many ids its model has, and an id beyond them may "
                "end it; pass SGLang(vocab_size=...), the `vocab_size` of the model's config.json"
            )
        return self._wire.sendable(sent, size)

    async def _chat_streams(self, watch: Watch | None) -> None:
        """Raise `UnsupportedError` where a chat would be streamed without its ids."""
        facts = await self.facts()
        if watch is None or facts.at_least(*CHAT_STREAMS_IDS):
            return
        version = ".".join(map(str, facts.version)) if facts.version else "of an unknown version"
        raise UnsupportedError(
            f"{self._wire.where('POST', requests.CHAT)}: SGLang {version} streams no ids of a chat, which "
            "takes 0.5.20 or later; ask without `watch`, or send ids by another route. Nothing was sent"
        )

    def _check(self, method: str, path: str, answer: object) -> Check:
        return Check(self._wire.where(method, path), EngineAnswer(200, answer), self._server.vocab_size)


def _repeated(asked: SglangQuestion, route: Route, streamed: bool, reply: Reply) -> bool:
    """Tell whether ids that were sent by a route that can repeat them came back."""
    return asked.sent is not None and route in ECHO and replies.repeated(reply, streamed=streamed)


def _less(error: OverlongError, served: SglangModels) -> int | None:
    """Return how many ids fit after a prompt that was refused with too many; None where it fits none.

    >>> said = {"message": "... 28 tokens from the input messages and 2047 tokens for the completion ..."}
    >>> _less(OverlongError("no", EngineAnswer(400, said)), SglangModels("m", 2048))
    2020
    """
    found = TOO_MUCH_ASKED.search(Complaint.of(error.answer.body if error.answer else None).message)
    if found is None or served.max_model_len is None:
        return None
    left = served.max_model_len - int(found[1])
    return left if left > 0 else None
