"""A gateway of a few lines: three dialects over one engine, by ids wherever that is proven.

It keeps one list of steps for everybody and every response for ever; what is tested is the translation.
"""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import attrs
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tito_core import InputError, OddStop, Policy, Step, TemplateRefused
from tito_io.client.token_client import TokenClient
from tito_io.dialects import (
    Anthropic,
    Chat,
    Dialect,
    ParsedRequest,
    Responses,
    StreamReading,
    TurnAnswer,
    UntranslatableError,
)
from tito_io.dialects.protocol import AnswerStream, ReplyStamp
from tito_io.dialects.wire import dumps
from tito_io.engines.protocol import (
    AuthenticationError,
    Delta,
    Engine,
    EngineError,
    OverlongError,
    Reply,
    RequestError,
    SampleRequest,
    Watch,
)

STATUSES: Mapping[type[Exception], int] = {
    InputError: 400,
    TemplateRefused: 400,
    OverlongError: 400,
    RequestError: 400,
    AuthenticationError: 401,
    EngineError: 502,
}


def status(error: Exception) -> int:
    return next(code for kind, code in STATUSES.items() if isinstance(error, kind))


@attrs.define
class Gateway:
    """The state of one gateway."""

    engine: Engine
    client: TokenClient = attrs.field(init=False)
    steps: list[Step] = attrs.field(factory=list)
    answers: dict[str, tuple[ParsedRequest, TurnAnswer]] = attrs.field(factory=dict)
    reading: StreamReading = attrs.field(factory=lambda: StreamReading(hidden_reasoning=True))
    numbers: Iterator[int] = attrs.field(factory=itertools.count)

    @client.default
    def _client(self) -> TokenClient:
        return TokenClient(self.engine, Policy(odd_stop=OddStop.KEEP))

    def app(self) -> Starlette:
        dialects: dict[str, Dialect] = {
            "chat/completions": Chat(),
            "messages": Anthropic(),
            "responses": Responses(),
        }
        routes = [
            Route(f"/v1/{path}", partial(self.answered, dialect), methods=["POST"])
            for path, dialect in dialects.items()
        ]
        return Starlette(routes=[*routes, Route("/v1/messages/count_tokens", self.counted, methods=["POST"])])

    async def counted(self, request: Request) -> Response:
        dialect = Anthropic()
        asked = dialect.parse_count(await request.json())
        return json(dialect.count_body(len(str(asked.messages))))

    async def answered(self, dialect: Dialect, request: Request) -> Any:
        try:
            asked = self.resumed(dialect.parse(await request.json()))
        except UntranslatableError as error:
            return json(dialect.error(400, "UntranslatableError", str(error), param=error.field), 400)
        stamp = ReplyStamp(id=f"resp_{next(self.numbers)}", created=17, model="m", reading=self.reading)
        if asked.stream:
            return StreamedResponse(
                dialect.ping, dialect.stream(asked, stamp), partial(self.turn, asked, stamp)
            )
        try:
            return json(dialect.answer_body(asked, await self.turn(asked, stamp, None)))
        except (EngineError, InputError) as error:
            code = status(error)
            return json(dialect.error(code, type(error).__name__, str(error)), code)

    def resumed(self, asked: ParsedRequest) -> ParsedRequest:
        if asked.previous_response_id is None:
            return asked
        earlier, answer = self.answers[asked.previous_response_id]
        own, past = int(asked.instructed), int(earlier.instructed)
        before = (*earlier.messages[past:], answer.choices[0].message)
        return attrs.evolve(asked, messages=(*asked.messages[:own], *before, *asked.messages[own:]))

    async def turn(self, asked: ParsedRequest, stamp: ReplyStamp, watch: Watch | None) -> TurnAnswer:
        taken = await self.client.turn(
            self.steps, asked.messages, tools=asked.tools, sampling=asked.sampling, watch=watch
        )
        self.steps += taken.steps
        answer = TurnAnswer.of(taken.turn.reply, id=stamp.id, created=stamp.created, model=stamp.model)
        self.answers[stamp.id] = (asked, answer)
        return answer


def json(body: Mapping[str, Any], code: int = 200) -> Response:
    return Response(dumps(body), code, media_type="application/json")


@attrs.frozen
class StreamedResponse:
    """A stream, sent as it comes."""

    ping: bytes
    stream: AnswerStream
    turn: Callable[[Watch], Awaitable[TurnAnswer]]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope, receive
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})

        async def sent(raw: bytes, *, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": raw, "more_body": more})

        async def watch(delta: Delta) -> None:
            await sent(self.ping + self.stream.delta(delta))

        await sent(self.ping + self.stream.start())
        try:
            rest = self.stream.finish(await self.turn(watch))
        except (EngineError, InputError) as error:
            rest = self.stream.fail(status(error), type(error).__name__, str(error))
        await sent(rest, more=False)


@contextmanager
def serving(gateway: Gateway) -> Iterator[str]:
    """Serve on the loopback from a thread of its own until the block ends; the block gets the base URL."""
    config = uvicorn.Config(gateway.app(), log_level="critical", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@attrs.define
class Failing(Engine):
    """An engine that says something and then fails."""

    error: Exception
    deltas: tuple[Delta, ...] = ()
    name: str = "failing"
    keeps_ids: bool = True

    async def render(self, *_: object, **__: object) -> list[int]:
        raise self.error

    async def sample(self, request: SampleRequest) -> Reply:
        for delta in self.deltas:
            if request.watch is not None:
                await request.watch(delta)
        raise self.error
