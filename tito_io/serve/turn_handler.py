"""A turn as a client sees it: one request, one answer, and a commit just where the answer can be received.

A turn is committed when all of its answer but the end has been handed to the connection, and the end is
handed over next; where the client turns out to be gone by then, the commit is undone. It is stored before the
last byte leaves, so that what a client has received survives the gateway's sudden end.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import attrs
from starlette.types import Receive, Scope, Send

from tito_io.dialects.protocol import (
    Dialect,
    ParsedRequest,
    ReplyStamp,
    StreamReading,
    AnswerStream,
    StreamMismatchError,
    TurnAnswer,
)
from tito_io.engines.protocol import Delta, Reply

from .auth import HEADER
from .connection import ClientConnection
from .error_format import error_body
from .gateway import Gateway
from .refusals import ErrorReply, told
from .session import Session
from .sglang_fields import Wishes, enriched
from .turn_engine import Tap
from .turns import UnreceivedTurn, response_id

LOG = logging.getLogger("tito.serve")
PREFIXES = {"chat": "chatcmpl-", "anthropic": "msg_", "responses": "resp_"}


@attrs.define(eq=False)
class TurnResponse:
    """The answer to one request for a turn, as an ASGI application."""

    gateway: Gateway
    dialect: Dialect
    name: str
    """The session's."""
    body: dict[str, Any]
    response: str = attrs.field(init=False)
    created: int = attrs.field(init=False)
    telling: AnswerStream | None = attrs.field(default=None, init=False)
    """The stream, once it has begun."""

    @response.default
    def _named(self) -> str:
        return response_id(PREFIXES.get(self.dialect.name, ""))

    @created.default
    def _now(self) -> int:
        return int(self.gateway.clock())

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, unless the client goes away first."""
        line = ClientConnection(send)
        async with anyio.create_task_group() as group:
            group.start_soon(line.listen, receive, group.cancel_scope)
            await self._answer(line)
            group.cancel_scope.cancel()

    async def _answer(self, line: ClientConnection) -> None:
        try:
            async with self.gateway.sessions.using(self.name) as session:
                await self._turn(session, line)
        except Exception as error:  # noqa: BLE001  # whatever it is, the client is told, and the log
            await self._failed(line, error)

    async def _turn(self, session: Session, line: ClientConnection) -> None:
        """Take a turn and hand it over."""
        asked, wishes = self._asked(session)
        turns = self.gateway.turns
        if asked.model is None:
            await turns.named()
        prompt, tap = turns.prompt(session, asked), turns.tap()
        watch = self._watch(line, asked, tap) if asked.stream else None
        with self.gateway.metrics.running.track_inprogress():
            sampled = await turns.take(
                session,
                asked,
                prompt,
                tap,
                response=self.response,
                dialect=self.dialect.name,
                watch=watch,
            )
        if asked.stream:
            end = await self._end(line, asked, tap, sampled)
            await self._hand_over(session, sampled, line, lambda: line.last(end))
        else:
            body = self._whole(asked, sampled.reply, wishes)
            await self._hand_over(session, sampled, line, lambda: line.json(200, body, self._headers()))

    def _asked(self, session: Session) -> tuple[ParsedRequest, Wishes]:
        """Return what is asked; a chat may have SGLang's words in it."""
        if self.dialect.name != "chat":
            return self.dialect.parse(self.body), Wishes()
        body, wishes = self.gateway.wire.read(self.body, session.head)
        return self.dialect.parse(body), wishes

    def _whole(self, asked: ParsedRequest, reply: Reply, wishes: Wishes) -> dict[str, Any]:
        body = self.dialect.answer_body(asked, self._told(asked, reply))
        return enriched(body, reply, wishes) if wishes.meta or wishes.prompt else body

    def _told(self, asked: ParsedRequest, reply: Reply) -> TurnAnswer:
        model = asked.model or self.gateway.turns.model
        return TurnAnswer.of(
            reply, id=self.response, created=self.created, model=model, token_text=self.gateway.spell
        )

    def _watch(
        self, line: ClientConnection, asked: ParsedRequest, tap: Tap
    ) -> Callable[[Delta], Awaitable[None]]:
        """Return what passes deltas on as they come."""

        async def watch(delta: Delta) -> None:
            telling = await self._begun(line, asked, tap)
            await line.more(telling.delta(delta))

        return watch

    async def _begun(self, line: ClientConnection, asked: ParsedRequest, tap: Tap) -> AnswerStream:
        """Return the stream, begun with the first delta: until then an error has a status of its own."""
        if self.telling is None:
            stamp = ReplyStamp(
                id=self.response,
                created=self.created,
                model=asked.model or self.gateway.turns.model,
                token_text=self.gateway.spell,
                reading=StreamReading(thinking=tap.thinking, hidden_reasoning=tap.parsed),
            )
            self.telling = self.dialect.stream(asked, stamp)
            await line.stream(self._headers())
            await line.more(self.telling.start())
        return self.telling

    async def _end(
        self, line: ClientConnection, asked: ParsedRequest, tap: Tap, sampled: UnreceivedTurn
    ) -> bytes:
        """Return what is left of a stream."""
        telling = await self._begun(line, asked, tap)
        return telling.finish(self._told(asked, sampled.reply))

    async def _hand_over(
        self,
        session: Session,
        sampled: UnreceivedTurn,
        line: ClientConnection,
        end: Callable[[], Awaitable[None]],
    ) -> None:
        """Commit a turn and hand over the end of its answer, both or neither."""
        with anyio.CancelScope(shield=True):
            commits = await session.commit(sampled.commits)
            try:
                await anyio.lowlevel.checkpoint()  # where a client that went away meanwhile is noticed
                if not line.gone:
                    await end()
            finally:
                if line.over:
                    session.heard = sampled.heard
                    self.gateway.metrics.committed.inc(len(commits))
                else:
                    self.gateway.metrics.unreceived.inc(len(commits))
                    await session.take_back(commits)

    async def _failed(self, line: ClientConnection, error: Exception) -> None:
        """Tell a client of an error: with a status where nothing was sent yet, else with an event."""
        status, headers = self.gateway.declined(error)
        said = told(error, self.body)
        _log(said, error, self.name)
        if line.over or line.gone:
            return
        if self.telling is not None and line.begun:
            await line.last(self.telling.fail(status, said.kind, said.message))
            return
        await line.json(status, error_body(said, self.dialect), {**self._headers(), **headers})

    def _headers(self) -> dict[str, str]:
        return {HEADER: self.name}


def _log(said: ErrorReply, error: Exception, session: str) -> None:
    """Log an error by its kind: its words may be a client's."""
    if isinstance(error, StreamMismatchError) or said.status >= 500:  # noqa: PLR2004  # the first that is no client's fault
        place = _place(error) if said.status == 500 else ""  # noqa: PLR2004  # nobody foresaw it
        LOG.error("session %s: %s %s%s", session[:8], said.status, type(error).__name__, place)


def _place(error: Exception) -> str:
    """Return where an error was raised, without its words."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else f" at {trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
