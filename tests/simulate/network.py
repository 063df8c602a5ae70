"""The network between clients and gateways: bytes that take time, connections that break, readers that wait.

A gateway's end of a connection is uvicorn's own protocol, so that bytes become requests, and answers become
bytes, as in production. What the gateway has written is remembered apart from what the client received.
"""

from __future__ import annotations

import asyncio
from typing import Any

import attrs
import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from tests.simulate.draws import Draws
from tests.simulate.history import Answer, Attempt, read_answer
from tests.simulate.loop import SimulatedLoop, SimulatedProcess

WINDOWS = (64, 1_024, 65_536)
"""How many bytes that no client has read a connection takes before the gateway must wait."""
LATENCY_SECONDS = 0.03


class LostError(Exception):
    """The connection broke, or was never made."""


@attrs.define(eq=False)
class Connection:
    """A connection: the client reads and writes here, the gateway by its transport.

    Attributes:
        loop: The event loop.
        draws: What decides delays.
        process: The gateway's process.
        client: The client's process.
        attempt: Where what the gateway writes is remembered; None for requests that are no turns.
        window: How many bytes may wait for the client.
        slow: How long the client waits before it reads again.
    """

    loop: SimulatedLoop
    draws: Draws
    process: SimulatedProcess
    client: SimulatedProcess
    attempt: Attempt | None = None
    window: int = 65_536
    slow: float = 0.0
    _protocol: H11Protocol | None = attrs.field(default=None, init=False)
    _transport: GatewayTransport | None = attrs.field(default=None, init=False)
    _to_client: list[bytes] = attrs.field(factory=list, init=False)
    _waiting: int = attrs.field(default=0, init=False)
    """Bytes that the gateway wrote and the client did not read."""
    _news: asyncio.Event = attrs.field(factory=asyncio.Event, init=False)
    _ended: bool = attrs.field(default=False, init=False)
    _broken: bool = attrs.field(default=False, init=False)
    _arrives: dict[str, float] = attrs.field(factory=dict, init=False)
    """When the last bytes of each direction arrive: those after them do not overtake them."""

    def open(self, config: Config, state: ServerState) -> None:
        """Connect to a gateway."""

        def made() -> None:
            self._protocol = H11Protocol(config=config, server_state=state, app_state={}, _loop=self.loop)
            self._transport = GatewayTransport(self)
            self._protocol.connection_made(self._transport)

        self._at_gateway(made)

    # The client's end.

    def send(self, data: bytes) -> None:
        """Send bytes to the gateway."""

        def arrived() -> None:
            if self._transport is not None and not self._transport.lost and self._protocol is not None:
                self._protocol.data_received(data)

        self._at_gateway(arrived)

    def abandon(self) -> None:
        """Break the connection, as a client does that gives up."""
        self._broken = True
        self._news.set()
        self._at_gateway(self._lose)

    async def read(self) -> bytes:
        """Return the next bytes; nothing at the end. Raises `LostError` where the connection broke."""
        while not self._to_client:
            if self._broken:
                raise LostError
            if self._ended:
                return b""
            self._news.clear()
            await self._news.wait()
        if self.slow:
            await asyncio.sleep(self.draws.between(0, self.slow))
        data, self._to_client = b"".join(self._to_client), []
        self._waiting -= len(data)
        self._at_gateway(self._drained)
        return data

    # The gateway's end.

    def wrote(self, data: bytes) -> None:
        """Take bytes from the gateway."""
        if self.attempt is not None:
            self.attempt.written += data
        self._waiting += len(data)
        if self._waiting > self.window and self._protocol is not None:
            self._protocol.pause_writing()
        cut = self.draws.below(len(data) + 1) if len(data) > 1 and self.draws.chance(0.3) else len(data)
        for part in (data[:cut], data[cut:]):
            if part:
                self._at_client(self._receive, part)

    def closed(self) -> None:
        """Close the connection, as the gateway does after its last answer."""
        self._at_client(self._end)
        self._at_gateway(self._lose)

    def died(self) -> None:
        """Break the connection: the gateway's machine is gone, or its process."""
        if self.draws.chance(0.5):  # what the process wrote still leaves its machine
            self._at_client(self._break)
        else:
            self._break()

    def _lose(self) -> None:
        if self._transport is not None and not self._transport.lost and self._protocol is not None:
            self._transport.lost = True
            self._protocol.connection_lost(None)

    def _drained(self) -> None:
        if self._transport is not None and not self._transport.lost and self._protocol is not None:
            self._protocol.resume_writing()

    def _receive(self, data: bytes) -> None:
        if not self._broken:
            self._to_client.append(data)
            self._news.set()

    def _end(self) -> None:
        self._ended = True
        self._news.set()

    def _break(self) -> None:
        self._broken = True
        self._to_client.clear()
        self._news.set()

    def _at_gateway(self, work: Any, *args: Any) -> None:
        self._later("gateway", self.process, work, *args)

    def _at_client(self, work: Any, *args: Any) -> None:
        self._later("client", self.client, work, *args)

    def _later(self, end: str, process: SimulatedProcess, work: Any, *args: Any) -> None:
        """Run something at one end, after all that is under way to it."""
        soon = self.loop.time() + self.draws.between(0, LATENCY_SECONDS)
        when = max(self._arrives.get(end, 0.0), soon)
        self._arrives[end] = when
        self.loop.call_at(when, work, *args, context=process.context())


class GatewayTransport(asyncio.Transport):
    """The gateway's end of a connection, with the methods that uvicorn uses."""

    def __init__(self, connection: Connection) -> None:
        super().__init__({"peername": ("10.0.0.2", 40_000), "sockname": ("127.0.0.1", 8_010)})
        self.connection = connection
        self.lost = False
        self._closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write bytes; nothing after the connection is lost, as asyncio's own transports do."""
        if data and not (self.lost or self._closing):
            self.connection.wrote(bytes(data))

    def close(self) -> None:
        """Close the connection once everything was sent."""
        if not self._closing:
            self._closing = True
            self.connection.closed()

    def is_closing(self) -> bool:
        """Return whether the connection is closed, or about to be."""
        return self._closing or self.lost

    def pause_reading(self) -> None:
        """Do nothing: no body here is long enough for the gateway to read on later."""

    def resume_reading(self) -> None:
        """Do nothing, likewise."""


@attrs.define
class AnswerReader:
    """Reads the bytes of one answer."""

    method: str
    _wire: h11.Connection = attrs.field(init=False)
    _status: int = 0
    _kind: str = ""
    _data: bytearray = attrs.field(factory=bytearray)
    ended: bool = False

    def __attrs_post_init__(self) -> None:
        self._wire = h11.Connection(h11.CLIENT)
        self._wire.send(h11.Request(method=self.method, target="/", headers=[("host", "h")]))
        self._wire.send(h11.EndOfMessage())

    def feed(self, data: bytes) -> bool:
        """Add bytes; return whether the answer is whole."""
        self._wire.receive_data(data)
        while not self.ended:
            event = self._wire.next_event()
            if event is h11.NEED_DATA or isinstance(event, h11.ConnectionClosed):
                break
            if isinstance(event, h11.Response):
                self._status = event.status_code
                self._kind = dict(event.headers).get(b"content-type", b"").decode()
            elif isinstance(event, h11.Data):
                self._data += event.data
            self.ended = isinstance(event, h11.EndOfMessage)
        return self.ended

    def answer(self) -> Answer | None:
        """Return the answer as far as it was read; None where not even its status was."""
        if not self._status:
            return None
        return read_answer(self._status, self._kind, bytes(self._data), ended=self.ended)


def written_answer(attempt: Attempt) -> Answer | None:
    """Return the answer that a gateway wrote while the connection was open."""
    reader = AnswerReader("POST")
    if attempt.written:
        reader.feed(bytes(attempt.written))
    return reader.answer()


def request_bytes(method: str, path: str, body: bytes, headers: dict[str, str]) -> bytes:
    """Return the bytes of a request."""
    wire = h11.Connection(h11.CLIENT)
    named = {"host": "127.0.0.1:8010", "content-length": str(len(body)), **headers}
    head = wire.send(h11.Request(method=method, target=path, headers=list(named.items())))
    data = wire.send(h11.Data(data=body)) if body else b""
    return head + data + wire.send(h11.EndOfMessage())
