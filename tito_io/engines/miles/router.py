"""A Miles session server: opens sessions, deletes them whatever happens, and runs agents in them.

On most servers only a DELETE frees a session, so an open one is deleted after errors and cancellations too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol

import anyio
import attrs
import httpx2

from tito_core import Message
from tito_io.engines.closing import Closing
from tito_io.engines.protocol import EngineAnswer, EngineError, UnreachableError
from tito_io.engines.replies.invariants import Check
from tito_io.engines.replies.samples_container import MilesSamples, library
from tito_io.engines.wire import Wire, encoded

from . import requests
from .errors import read, refusal
from .session import MilesSession

OPEN_SECONDS = 30.0
"""How long a cancelled caller waits for a session that is being opened: its id is needed to delete it."""
DELETE_SECONDS = 10.0
"""How long a caller waits for a session to be deleted, cancelled or not."""


class Agent(Protocol):
    """A function that calls a model with messages: Miles' custom agent function."""

    def __call__(
        self,
        *,
        base_url: str,
        prompt: Sequence[Message],
        request_kwargs: dict[str, Any],
        metadata: dict[str, Any],
    ) -> Awaitable[Mapping[str, Any] | None]:
        """Run the agent; return what to add to the metadata of the samples.

        `base_url` holds the session; a client library's own base URL is `f"{base_url}/v1"`.
        """


@attrs.frozen
class Health:
    """The state that a session server reports.

    Attributes:
        status: Such as `ok`.
        instance_id: The server's id; None where it reports none.
    """

    status: str
    instance_id: str | None


@attrs.frozen(kw_only=True)
class AgentRun:
    """The result of an agent's run.

    Attributes:
        samples: The session's training samples, also of an agent that failed.
        returned: What the agent returned; None where it failed.
        error: What the agent raised; None where it returned.
    """

    samples: MilesSamples
    returned: Mapping[str, Any] | None
    error: Exception | None


class MilesRouter(Closing):
    """A Miles session server.

    Nothing is sent before a method is called.

    Args:
        base_url: The server's address; a trailing `/v1` is dropped.
        api_key: Sent as a bearer token; None sends none.
        timeout: Seconds without a byte after which a request fails; None waits for ever. Default 600.
        transport: Replaces the network.

    Attributes:
        wire: The connections to the server.
        undeleted: Sessions that could not be deleted, and why: the server may still hold them.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        timeout: float | None = 600.0,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.wire = Wire.to(base_url, api_key=api_key, timeout=timeout, transport=transport)
        self.undeleted: dict[str, str] = {}

    async def health(self) -> Health:
        """Return the state that the server reports."""
        answer = await self.wire.get("/health")
        check = Check(self.wire.where("GET", "/health"), EngineAnswer(200, answer))
        instance = answer.get("session_server_instance_id") if isinstance(answer, Mapping) else None
        return Health(check.get(answer, "status", str), None if instance is None else str(instance))

    @asynccontextmanager
    async def session(
        self, sampling: Mapping[str, Any] | None = None, *, evaluation: bool = False
    ) -> AsyncIterator[MilesSession]:
        """Open a session for as long as the block lasts.

        `sampling` holds the session's `temperature`, `top_p` and `top_k`: later servers apply them to
        requests without, and reject another temperature unless `evaluation` is True. A session that could not
        be deleted is in `undeleted`.
        """
        session = await self.open(sampling, evaluation=evaluation)
        try:
            await anyio.lowlevel.checkpoint()  # a caller that was cancelled meanwhile leaves here
            yield session
        finally:
            await self.close(session)

    async def open(
        self, sampling: Mapping[str, Any] | None = None, *, evaluation: bool = False
    ) -> MilesSession:
        """Open a session; the caller must `close` it.

        Once requested, the session exists, and only the answer holds its id: a cancelled caller waits for it.
        """
        body = encoded(requests.opening(sampling or {}, evaluation=evaluation))
        where, response = self.wire.where("POST", "/sessions"), None
        with anyio.move_on_after(OPEN_SECONDS, shield=True):
            response = await self.wire.exchange("POST", "/sessions", body)
        if response is None:
            raise UnreachableError(f"{where}: no session within {OPEN_SECONDS} s; is the server overloaded?")
        if not response.is_success:
            raise refusal(where, response)
        check, answer = read(where, response)
        return MilesSession(check.get(answer, "session_id", str), self.wire)

    async def close(self, session: MilesSession) -> None:
        """Delete a session: shielded from cancellation, in bounded time, raising no engine errors."""
        if session.deleted:
            return
        self.undeleted[session.id] = f"no answer within {DELETE_SECONDS} s"
        with anyio.move_on_after(DELETE_SECONDS, shield=True):
            try:
                await session.delete()
            except EngineError as error:
                self.undeleted[session.id] = str(error)
            else:
                del self.undeleted[session.id]

    async def run(
        self,
        agent: Agent,
        prompt: Sequence[Message],
        sampling: Mapping[str, Any] | None = None,
        *,
        metadata: Mapping[str, Any] | None = None,
        max_seq_len: int | None = None,
        evaluation: bool = False,
    ) -> AgentRun:
        """Run an agent in a session of its own; return the session's samples, then delete it.

        The samples are taken even where the agent failed. Raises the errors of `MilesSession.samples`.

        Args:
            agent: Called with the session's URL, the prompt, request arguments and metadata.
            prompt: The first messages.
            sampling: Sampling parameters under an engine's names; they are renamed for the chat API.
            metadata: Passed to the agent, with the server's id added.
            max_seq_len: The most ids of a sample; passed to the agent too.
            evaluation: Whether the session is for evaluation.
        """
        library()  # first: nothing must be sampled that could not be read
        kwargs = requests.request_kwargs(sampling or {})
        async with self.session(kwargs, evaluation=evaluation) as session:
            agent_metadata = {**(metadata or {}), "session_server_id": self.wire.root.netloc.decode()}
            if max_seq_len is not None:
                agent_metadata["max_seq_len"] = max_seq_len
            returned, failed = None, None
            try:
                returned = await agent(
                    base_url=session.url, prompt=prompt, request_kwargs=kwargs, metadata=agent_metadata
                )
            except Exception as error:  # noqa: BLE001  # reported in the result; the agent's turns are kept
                failed = error
            samples = await session.samples(max_seq_len, returned)
        return AgentRun(samples=samples, returned=returned, error=failed)

    async def aclose(self) -> None:
        """Close the connections; leaving `async with` does, too."""
        await self.wire.aclose()
