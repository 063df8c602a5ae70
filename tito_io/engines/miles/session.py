"""One conversation at a session server: messages go in, ids come out, and the server keeps the ids.

One request at a time: a server whose session changes during a turn discards that turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import anyio
import attrs
import httpx2

from tito_core import InputError, render_key
from tito_io.engines.protocol import EngineAnswer, Reply
from tito_io.engines.replies.invariants import Check
from tito_io.engines.replies.samples_container import MilesSamples, library, samples
from tito_io.engines.wire import Wire, encoded
from tito_io.rewards import check_reward

from . import replies, requests
from .errors import NotRecordedError, SessionNotFoundError, read, refusal

CHAT = "/v1/chat/completions"
GENERATION = "x-miles-session-generation"
"""The header in which later servers count a session's uses, so that none is deleted in use."""


@attrs.define(eq=False)
class MilesSession:
    """An open session. `MilesRouter.session` opens one and deletes it.

    Attributes:
        id: The server's id of the session.
        wire: The server.
        tools: The tools of the first turn, which are the session's; None before that turn.
        generation: The server's count of the session's uses when its samples were taken; None where unknown.
        deleted: Whether the server deleted it.
    """

    id: str
    wire: Wire = attrs.field(repr=False)
    tools: tuple[Mapping[str, Any], ...] | None = None
    generation: str | None = None
    deleted: bool = False
    _lock: anyio.Lock = attrs.field(factory=anyio.Lock, repr=False)

    @property
    def path(self) -> str:
        """The path before the session's routes."""
        return f"/sessions/{self.id}"

    @property
    def url(self) -> str:
        """The base URL for an agent; a client library's own ends in `/v1`."""
        return str(self.wire.root).rstrip("/") + self.path

    async def chat(self, body: Mapping[str, Any]) -> Reply:
        """Send a chat request with the whole conversation so far; return the turn with all its ids.

        The prompt's ids are the engine's echo; without one they are looked up in the session's records, which
        costs O(history). A request that is cancelled may still be sampled and recorded.

        Raises:
            CutTurnError: The turn before was cut off, and the server continues no such turn.
            NotRecordedError: The server did not record this turn.
            EngineError: As other engines.
        """
        sent = requests.chat(body)
        tools = sent.get("tools")
        if self.tools is not None and tools and render_key(tools) != render_key(self.tools):
            raise InputError("tools: a session's tools do not change; open another session for these")
        if self.tools:
            sent["tools"] = list(self.tools)  # later servers refuse other tools, older ones ignore them
        async with self._lock:
            check, answer = await self._json("POST", CHAT, sent)
            choice = check.choice(answer)
            turn = replies.sampled(check, choice)
            prompt = replies.echoed(check, choice)
            if prompt is None:
                prompt = await self._recorded(check, answer, turn)
            self.tools = tuple(sent.get("tools") or ())
        return replies.reply(check, answer, prompt)

    async def records(self) -> replies.Records:
        """Return what the server recorded: O(history)."""
        check, answer = await self._json("GET", "")
        return replies.records(check, answer)

    async def samples(
        self, max_seq_len: int | None = None, metadata: Mapping[str, Any] | None = None
    ) -> MilesSamples:
        """Return the session's training samples, cut to `max_seq_len` ids.

        Servers that branch put `metadata` into the samples; `reward` in it is for all of them.

        Raises:
            InputError: `metadata["reward"]` is no finite number; NaN would be sent as null.
            SamplesRefusedError: The records cannot be made into samples.
            RecordsUnavailableError: The records cannot be read now.
        """
        library()
        check_reward(metadata or {})
        body = {"max_seq_len": max_seq_len, **({} if metadata is None else {"metadata": dict(metadata)})}
        response = await self._request("POST", "/samples", encoded(body))
        where = self.wire.where("POST", f"{self.path}/samples")
        rows = samples(Check(where, EngineAnswer(response.status_code, response.content)), response.content)
        self.generation = response.headers.get(GENERATION)
        return rows

    async def ask(self, method: str, path: str) -> Any:
        """Return what the engine behind the session answers to `method` and `path`, which is not recorded."""
        return (await self._json(method, path))[1]

    async def delete(self) -> None:
        """Delete the session at the server; one that is deleted already is not an error.

        Raises:
            SessionUsedError: It was used after its samples were taken, which lack those turns.
        """
        headers = {} if self.generation is None else {GENERATION: self.generation}
        response = await self.wire.exchange("DELETE", self.path, headers=headers)
        if not response.is_success:
            error = refusal(self.wire.where("DELETE", self.path), response)
            if not isinstance(error, SessionNotFoundError):
                raise error
        self.deleted = True

    async def _recorded(
        self, check: Check, answer: Mapping[str, Any], turn: replies.MilesSampledIds
    ) -> tuple[int, ...]:
        """Return the prompt's ids from the record of this turn."""
        record = (await self.records()).get(str(answer.get("id")))
        if record is None:
            raise NotRecordedError(
                f"{check.where}: the turn was sampled and not recorded: another request changed the session "
                "meanwhile; send one at a time",
                check.answer,
            )
        if record.completion_ids != turn.ids:
            check.fail("the server recorded other ids than it sent")
        return record.prompt_ids

    async def _json(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> tuple[Check, dict[str, Any]]:
        """Return an answer that is a JSON object, and its checks."""
        response = await self._request(method, path, None if body is None else encoded(body))
        check, answer = read(self.wire.where(method, self.path + path), response)
        return check, check.typed(answer, dict, "body")

    async def _request(self, method: str, path: str, content: bytes | None = None) -> httpx2.Response:
        """Send a request; raise the error that its answer means. Each request is a use of the session."""
        self.generation = None
        response = await self.wire.exchange(method, self.path + path, content)
        if not response.is_success:
            raise refusal(self.wire.where(method, self.path + path), response)
        return response
