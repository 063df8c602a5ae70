"""Answer one request for a turn, and commit the turn only if the client can receive the answer.

All of a stream but its end is sent first. Then the turn is committed. The end is sent when the client has
taken the rest; if it is gone by then, the commit is undone. The store has the turn before the last byte
leaves, so that what a client has received survives a sudden end of the gateway.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import attrs
import orjson
from anyio.abc import TaskGroup
from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope, Send

from tito_io.dialects import Chat, Responses
from tito_io.dialects.protocol import (
    AnswerStream,
    Dialect,
    ParsedRequest,
    ReplyStamp,
    StreamReading,
    TurnAnswer,
)
from tito_io.dialects.wire import dumps
from tito_io.engines.protocol import Delta
from tito_io.thinking import EFFORT

from .auth import HEADER
from .commit import Commit
from .gateway import Gateway
from .item_references import resolved
from .logs import log_error, log_turn
from .recovery import put_back, recover, retry_key
from .refusals import error_body, error_reply
from .session import Session
from .sglang_fields import AddedFields, read_chat
from .spans import TurnRecord
from .store import GoneError
from .turns import RequestStamp, UnreceivedTurn

PREFIXES = {"chat": "chatcmpl-", "anthropic": "msg_", "responses": "resp_"}
JSON = "application/json"
EVENTS = "text/event-stream; charset=utf-8"
UNBUFFERED = {"cache-control": "no-cache", "x-accel-buffering": "no"}
"""Headers that keep proxies from collecting a stream."""
COMMENT = b": waiting\n\n"
UNREAD_HEADER = "x-tito-unread"
UNREAD = frozenset(("thinking", EFFORT))
"""What that header may name: wishes that most clients send, so that an error would be too much."""
CLOSING = "tito.closing"
"""An ASGI extension: returns whether the server drops what is sent now. `receive` says so a little later."""
UNSENT = 1 << 16
"""How many bytes are sent at once: what servers take without waiting for the client."""


@attrs.define
class ClientConnection:
    """A client's connection while one answer is sent.

    Attributes:
        send: Sends an ASGI message.
        closing: Returns whether the server drops what is sent, as far as it can say so.
        gone: Whether the client went away, as far as it is known.
        begun: Whether the answer has begun.
        over: Whether the whole answer was sent.
    """

    send: Send
    closing: Callable[[], bool] = bool
    gone: bool = attrs.field(default=False, init=False)
    begun: bool = attrs.field(default=False, init=False)
    over: bool = attrs.field(default=False, init=False)
    _turns: anyio.Lock = attrs.field(factory=partial(anyio.Lock, fast_acquire=True), init=False)
    _parts: list[bytes] = attrs.field(factory=list, init=False)
    """Parts of a stream that were not sent yet."""
    _size: int = attrs.field(default=0, init=False)
    _due: anyio.Event = attrs.field(factory=anyio.Event, init=False)
    _last: float = attrs.field(factory=anyio.current_time, init=False)
    """When the last part came."""

    async def listen(self, receive: Receive, waiting: anyio.CancelScope) -> None:
        """Wait until the client goes away; then cancel what `waiting` holds."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        waiting.cancel()

    async def flush(self, waiting: anyio.CancelScope) -> None:
        """Send the parts of a stream, forever; if that fails, cancel what `waiting` holds.

        An engine sends several events at once when it is faster than the gateway. What they become is sent
        at once, too: a message of its own for each would cost more than all other work on it.
        """
        while True:
            await self._due.wait()
            self._due = anyio.Event()
            try:
                await self._send_parts()
            except Exception:  # noqa: BLE001  # whatever it is, the client gets no more
                waiting.cancel()

    async def start(self, status: int, headers: Mapping[str, str], first: bytes = b"") -> None:
        """Send the head of an answer, and soon its `first` part."""
        self.begun = True
        self._add(first)
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": raw})
        if self._size:  # the whole answer may have been sent meanwhile
            self._due.set()

    async def silence(self, seconds: float) -> None:
        """Wait until nothing was sent for so many seconds."""
        await anyio.lowlevel.checkpoint_if_cancelled()
        while (left := self._last + seconds - anyio.current_time()) > 0:  # noqa: ASYNC110  # an event costs more
            await anyio.sleep(left)

    async def json(self, status: int, body: object, headers: Mapping[str, str]) -> None:
        """Send JSON."""
        data = orjson.dumps(body)
        await self.start(status, {"content-type": JSON, "content-length": str(len(data)), **headers})
        self._add(data[:-1])
        await self.last(data[-1:])

    async def more(self, data: bytes) -> None:
        """Send a part of a stream, soon; wait while the client takes less than comes."""
        self._add(data)
        if self._size > UNSENT:
            await self._send_parts()
        elif data:
            self._due.set()

    async def last(self, data: bytes) -> None:
        """Send the end, unless the client went away before it took the rest."""
        if self._size > UNSENT:
            await self._send_parts()
        # A send waits until the server has room for it, and is dropped in silence if the client leaves then.
        await self._send({"type": "http.response.body", "body": b"", "more_body": True})
        await anyio.lowlevel.checkpoint()  # so that a client that went away meanwhile is noticed
        if not (self.gone or self.closing()):
            await self._send_parts(data, more=False)
            self.over = True

    def _add(self, data: bytes) -> None:
        if data:
            self._parts.append(data)
            self._size += len(data)
            self._last = anyio.current_time()

    async def _send_parts(self, end: bytes = b"", *, more: bool = True) -> None:
        data, self._parts, self._size = b"".join((*self._parts, end)), [], 0
        await self._send({"type": "http.response.body", "body": data, "more_body": more})

    async def _send(self, message: Message) -> None:
        """Send a message after those before it; a client whose connection does not take it is gone."""
        try:
            async with self._turns:
                await self.send(message)
        except Exception:
            self.gone = True
            raise


@attrs.define(eq=False)
class TurnResponse:
    """The answer to one request for a turn, as an ASGI application.

    Attributes:
        gateway: The gateway.
        dialect: The API of the request.
        name: The session's id.
        body: The request's body.
        plain_errors: Whether errors have the form of the session protocol.
        begun: When the request's headers came, by a clock that only measures.
        connection: The client's connection.
        stream: The stream, once it has begun.
        unread: Wishes of the request of which the chat template reads nothing.
        begin: Begins the stream, once its request is known.
        fresh: Whether the turn is known to be a new one, of the response that the stream may name. A repeated
            request gets the response of the turn that was lost.
        pinging: Holds what keeps a silent stream alive.
        record: What becomes of the request, for its span.
    """

    gateway: Gateway
    dialect: Dialect
    name: str
    body: dict[str, Any]
    plain_errors: bool = attrs.field(kw_only=True)
    begun: float = attrs.field(kw_only=True)
    connection: ClientConnection = attrs.field(init=False)
    stream: AnswerStream | None = attrs.field(default=None, init=False)
    unread: frozenset[str] = attrs.field(default=frozenset(), init=False)
    begin: Callable[[], Awaitable[AnswerStream]] | None = attrs.field(default=None, init=False)
    fresh: bool = attrs.field(default=False, init=False)
    pinging: anyio.CancelScope = attrs.field(factory=anyio.CancelScope, init=False)
    record: TurnRecord = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        dialect = self.dialect.name
        response = PREFIXES.get(dialect, "") + secrets.token_hex(16)
        requested = self.gateway.clock()
        stamp = RequestStamp(dialect=dialect, response=response, requested=requested, begun=self.begun)
        self.record = TurnRecord(stamp=stamp, session=self.name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, unless the client goes away first."""
        record = self.record
        record.stamp = attrs.evolve(record.stamp, retry_key=retry_key(Headers(scope=scope)))
        closing = scope.get("extensions", {}).get(CLOSING, bool)
        connection = self.connection = ClientConnection(send, closing)
        async with anyio.create_task_group() as group:
            group.start_soon(connection.listen, receive, group.cancel_scope)
            group.start_soon(connection.flush, group.cancel_scope)
            try:
                async with self.gateway.sessions.using(self.name) as session:
                    await self._turn(session, group)
            except Exception as error:  # noqa: BLE001  # whatever it is, the client and the log must learn it
                await self._fail(error)
            group.cancel_scope.cancel()
        spans = self.gateway.options.spans
        if spans is not None:
            record.received = connection.over
            spans.write(record, scope, self.gateway.turns.engine.name)

    async def _turn(self, session: Session, group: TaskGroup) -> None:
        """Sample a turn and send it."""
        body, added = self.body, AddedFields()
        connection, record, stamp = self.connection, self.record, self.record.stamp
        if isinstance(self.dialect, Chat):
            body, added = read_chat(body, session.head, later=self.gateway.options.later_wire)
            request = self.dialect.parse(body, session.known_messages)
        else:
            kept = isinstance(self.dialect, Responses)
            request = self.dialect.parse(resolved(session, body) if kept else body)
        turns = self.gateway.turns
        request = self.gateway.fitted(request)
        self.gateway.ignored.count(self.dialect.name, request.ignored)
        self.unread = UNREAD.intersection(request.ignored)
        record.model, record.stream = request.model or await turns.model_name(), request.stream
        asked = await turns.read(session, request, stamp)
        waited = partial(self.gateway.metrics.count_wait, later=bool(session.commits), begun=self.begun)
        engine = turns.turn_engine(asked, waited)
        begin = self.begin = partial(self._begin, request)
        if request.stream:
            group.start_soon(self._ping, begin)

        async def watch(delta: Delta) -> None:
            stream = await begin()
            if stream.reading is None:
                hidden = engine.by_messages
                stream.reading = StreamReading(thinking=delta.thinking, hidden_reasoning=hidden)
            await connection.more(stream.delta(delta))

        watching = watch if request.stream else None
        async with self.gateway.sessions.answering(self.name, self._repeated()):
            turn = await recover(turns, session, asked)
            if turn is None:
                self.fresh = True
                with self.gateway.metrics.turns_running.track_inprogress():
                    turn = await turns.take(session, asked, engine, watching)
            self.pinging.cancel()
            first = turn.commits[0]
            record.stamp = attrs.evolve(stamp, response=first.response, requested=first.origin.requested)
            record.turn, record.served = turn, turns.model
            answer = TurnAnswer.of(turn.reply, **self._head())
            try:
                if request.stream:
                    end = partial(connection.last, (await begin()).finish(answer))
                else:
                    whole = added.add(self.dialect.answer_body(request, answer), turn.reply)
                    end = partial(connection.json, 200, whole, self._headers())
                await self._hand_over(session, turn, end)
            finally:
                if turn.stored and not connection.over:
                    put_back(session, turn)

    def _repeated(self) -> bytes | None:
        """Return a digest of what retries of this request repeat; None where no key says which those are."""
        key = self.record.stamp.retry_key
        return None if key is None else hashlib.blake2b(dumps(self.body), key=key.encode()).digest()

    def _head(self) -> dict[str, Any]:
        """Return what a whole answer and a stream begin with."""
        stamp, model = self.record.stamp, self.record.model
        named = {"id": stamp.response, "created": int(stamp.requested), "model": model}
        return {**named, "token_text": self.gateway.spell}

    async def _begin(self, request: ParsedRequest) -> AnswerStream:
        """Return the stream. It begins with the first delta: an earlier error has a status of its own.

        Only where that takes long, it has begun before, with pings.
        """
        if self.stream is None:
            self.stream = self.dialect.stream(request, ReplyStamp(**self._head()))
            await self._send(self.stream.start())
        return self.stream

    async def _send(self, part: bytes) -> None:
        """Send a part of a stream, behind its head."""
        if self.connection.begun:
            return await self.connection.more(part)
        headers = {"content-type": EVENTS, **UNBUFFERED, **self._headers()}
        return await self.connection.start(200, headers, part)

    async def _ping(self, begin: Callable[[], Awaitable[AnswerStream]]) -> None:
        """Send events while a turn is prepared or sampled in silence: clients give up without any.

        An event names the response: until it is known which one answers, comments must do.
        """
        with self.pinging, suppress(OSError):  # the client is gone, which `listen` learns, too
            while True:
                await self.connection.silence(self.gateway.options.ping_seconds)
                with anyio.CancelScope(shield=True):  # half a message would spoil the stream
                    if not self.fresh:
                        await self._send(COMMENT)
                    elif self.stream is None:
                        await begin()
                    else:
                        await self._send(self.stream.ping())

    async def _hand_over(
        self, session: Session, turn: UnreceivedTurn, send_end: Callable[[], Awaitable[None]]
    ) -> None:
        """Commit a turn and send the end of its answer, both or neither."""
        connection = self.connection
        with anyio.CancelScope(shield=True):
            commits = await self._commit(session, turn)
            try:
                if not connection.gone:
                    await send_end()
            finally:
                new = () if turn.stored else commits
                if not connection.over:
                    self.gateway.metrics.unreceived.inc(len(new))
                    await session.take_back(new)
                elif commits:
                    await session.received(commits)
                    session.last_prompt = turn.prompt
                    self.gateway.metrics.committed.inc(len(new))
                log_turn(self.name, turn.commits[0].origin, turn.reply, self._end(turn, commits), self.begun)

    async def _commit(self, session: Session, turn: UnreceivedTurn) -> tuple[Commit, ...]:
        """Commit a turn; nothing where the session was deleted meanwhile, as its client knows by itself."""
        if turn.stored:
            self.gateway.metrics.recovered.inc(len(turn.commits))
            return turn.commits
        try:
            return await session.commit(turn.commits, turn.media)
        except GoneError:
            self.gateway.metrics.uncommitted.inc(len(turn.commits))
            return ()

    async def _fail(self, error: Exception) -> None:
        """Send an error: with a status where nothing was sent yet, else with an event."""
        connection = self.connection
        self.pinging.cancel()
        reply = self.record.failure = error_reply(error, self.body)
        headers = self.gateway.count_error(reply)
        log_error(error, reply.status, self.name)
        if connection.over or connection.gone:
            return
        if self.begin is not None and connection.begun:
            stream = await self.begin()
            await connection.last(stream.fail(reply.status, reply.kind, str(reply)))
            return
        body = error_body(reply, None if self.plain_errors else self.dialect)
        await connection.json(reply.status, body, {**self._headers(), **headers})

    def _headers(self) -> dict[str, str]:
        unread = {UNREAD_HEADER: ", ".join(sorted(self.unread))} if self.unread else {}
        return {HEADER: self.name, **unread}

    def _end(self, turn: UnreceivedTurn, commits: tuple[Commit, ...]) -> str:
        """Return how a turn ended, in the words of the log."""
        if not self.connection.over:
            return "not received by the client"
        if turn.stored:
            return "handed out again"
        return "committed" if commits else "not committed, its session was deleted"
