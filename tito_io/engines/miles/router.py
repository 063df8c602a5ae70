"""A Miles session server: opens sessions, deletes them whatever happens, and runs agents in them.

Nothing but a DELETE frees a session on most servers, so an open one is never left behind: not by an error,
and not by a cancellation.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol, Self

import anyio
import attrs
import httpx2

from tito_core import Message
from tito_io.engines.protocol import EngineAnswer, EngineError, UnreachableError
from tito_io.engines.replies.invariants import Check
from tito_io.engines.replies.samples_container import MilesSamples, library
from tito_io.engines.wire import Wire, encoded

from . import requests
from .errors import read, refusal
from .session import MilesSession

OPEN_SECONDS = 30.0
"""How long a cancelled caller waits for a session that is being opened, to learn what to delete."""
DELETE_SECONDS = 10.0
"""How long a caller waits for a session to be deleted, also where it was cancelled."""


class Agent(Protocol):
    """A function that talks to a model by messages: Miles' custom agent function."""

    def __call__(
        self,
        *,
        base_url: str,
        prompt: Sequence[Message],
        request_kwargs: dict[str, Any],
        metadata: dict[str, Any],
    ) -> Awaitable[Mapping[str, Any] | None]:
        """Talk, and return what the samples' metadata should have besides.

        `base_url` has the session in it; a client library's own base URL is `f"{base_url}/v1"`.
        """


@attrs.frozen
class Health:
    """What a session server says of itself."""

    status: str
    instance_id: str | None


@attrs.frozen(kw_only=True)
class Rolled:
    """What became of an agent's run."""

    samples: MilesSamples
    returned: Mapping[str, Any] | None
    """What the agent returned."""
    error: Exception | None
    """What the agent raised; what it had sampled until then is in the samples."""


class MilesRouter:
    """A session server."""

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        timeout: float | None = 600.0,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """Make ready; nothing is sent yet. `timeout` is in seconds without a byte."""
        self._wire = Wire.to(base_url, api_key=api_key, timeout=timeout, transport=transport)
        self.left: dict[str, str] = {}
        """Sessions that could not be deleted, and why: the server may hold them still."""

    async def health(self) -> Health:
        """Return what the server says of itself."""
        answer = await self._wire.get("/health")
        check = Check(self._wire.where("GET", "/health"), EngineAnswer(200, answer))
        instance = answer.get("session_server_instance_id") if isinstance(answer, Mapping) else None
        return Health(check.get(answer, "status", str), None if instance is None else str(instance))

    @asynccontextmanager
    async def session(
        self, sampling: Mapping[str, Any] | None = None, *, evaluation: bool = False
    ) -> AsyncIterator[MilesSession]:
        """Open a session for as long as the block lasts.

        `sampling` holds the session's `temperature`, `top_p` and `top_k`: later servers give them to requests
        without, and refuse another temperature unless it is an `evaluation`. A session that could not be
        deleted stands in `left`.
        """
        session = await self.open(sampling, evaluation=evaluation)
        try:
            await anyio.lowlevel.checkpoint()  # where a caller who was cancelled meanwhile leaves
            yield session
        finally:
            await self.close(session)

    async def open(
        self, sampling: Mapping[str, Any] | None = None, *, evaluation: bool = False
    ) -> MilesSession:
        """Open a session that somebody must `close`.

        Once asked for, the session exists, and only the answer names it: a cancelled caller waits for that.
        """
        body = encoded(requests.opening(sampling or {}, evaluation=evaluation))
        where, response = self._wire.where("POST", "/sessions"), None
        with anyio.move_on_after(OPEN_SECONDS, shield=True):
            response = await self._wire.exchange("POST", "/sessions", body)
        if response is None:
            raise UnreachableError(f"{where}: no session within {OPEN_SECONDS} s; is the server overloaded?")
        if not response.is_success:
            raise refusal(where, response)
        check, answer = read(where, response)
        return MilesSession(check.get(answer, "session_id", str), self._wire)

    async def close(self, session: MilesSession) -> None:
        """Delete a session as well as can be: not cancelled, not for long, and raising no engine error."""
        if session.deleted:
            return
        self.left[session.id] = f"no answer within {DELETE_SECONDS} s"
        with anyio.move_on_after(DELETE_SECONDS, shield=True):
            try:
                await session.delete()
            except EngineError as error:
                self.left[session.id] = str(error)
            else:
                del self.left[session.id]

    async def run(
        self,
        agent: Agent,
        prompt: Sequence[Message],
        sampling: Mapping[str, Any] | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        max_seq_len: int | None = None,
        evaluation: bool = False,
    ) -> Rolled:
        """Let an agent talk in a session of its own; return the session's samples.

        `sampling` are an engine's sampling parameters, renamed for the chat API. The samples are taken even
        where the agent failed, then the session is deleted. Raises the errors of `MilesSession.samples`.
        """
        library()  # first, so that nothing is sampled which could not be read
        kwargs = requests.request_kwargs(sampling or {})
        async with self.session(kwargs, evaluation=evaluation) as session:
            told = {**(metadata or {}), "session_server_id": self._wire.root.netloc.decode()}
            if max_seq_len is not None:
                told["max_seq_len"] = max_seq_len
            returned, failed = None, None
            try:
                returned = await agent(
                    base_url=session.url, prompt=prompt, request_kwargs=kwargs, metadata=told
                )
            except Exception as error:  # noqa: BLE001  # whatever an agent raises is told; its turns are kept
                failed = error
            taken = await session.samples(max_seq_len, returned)
        return Rolled(samples=taken, returned=returned, error=failed)

    async def aclose(self) -> None:
        """Close the connections; leaving `async with` does, too."""
        await self._wire.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
