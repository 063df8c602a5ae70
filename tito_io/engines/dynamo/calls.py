"""One request for a turn, sent in one piece or as a stream, and read by the same reader.

What was received is never lost: an error after the first id carries it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import aclosing
from http import HTTPStatus
from typing import Any

import attrs

from tito_core import Ids
from tito_io.engines.protocol import (
    AbortedError,
    Delta,
    EngineError,
    InvalidReplyError,
    Reply,
    RequestError,
    ServerError,
    Watch,
)
from tito_io.engines.replies.chunks import Assembly
from tito_io.engines.replies.invariants import Check
from tito_io.engines.wire import Wire

from .replies import read, torn
from .requests import ECHO, DynamoOptions, streamed
from .routes import CHAT, COMPLETIONS, Route


@attrs.frozen
class DynamoRequest:
    """One request for a turn."""

    wire: Wire
    check: Callable[[str, object], Check]
    """Makes what checks an answer to a path."""
    route: Route
    body: Mapping[str, Any]
    asked: DynamoOptions
    sent: Ids | None
    """The ids that go in; None where messages do."""

    @property
    def path(self) -> str:
        """Where it goes."""
        return CHAT if self.route == "chat" else COMPLETIONS

    async def reply(self, watch: Watch | None) -> Reply:
        """Send it; return the reply."""
        try:
            return await self._whole() if watch is None else await self._streamed(watch)
        except RequestError as error:
            raise outage(error) or error from error.__cause__

    def repeated(self, reply: Reply) -> bool:
        """Tell whether ids that were sent came back."""
        return self.sent is not None and ECHO in reply.raw["nvext"]

    async def _whole(self) -> Reply:
        return self._read(await self.wire.post(self.path, self.body))

    async def _streamed(self, watch: Watch) -> Reply:
        made = Assembly()
        try:
            await self._watched(made, watch)
            return self._read(self._ended(made.body()))
        except EngineError as error:
            error.partial = self._torn(made.body())
            raise

    async def _watched(self, made: Assembly, watch: Watch) -> None:
        """Take the stream in, and tell of it as it comes."""
        async with aclosing(self.wire.stream(self.path, streamed(self.body))) as events:
            async for event in events:
                delta = self._delta(event)
                self._add(made, event)
                if delta.ids or delta.text:
                    await watch(delta)

    def _delta(self, event: Mapping[str, Any]) -> Delta:
        """Return what a chunk brings.

        Ids that a parser held back come together, in one chunk. Of an id that lies across what is shown and
        what is held back, the log-probability comes a chunk later; then the reply alone has them.
        """
        check, nvext = self.check(self.path, event), event.get("nvext") or {}
        ids = check.ids(nvext, "completion_token_ids") if "completion_token_ids" in nvext else ()
        choice: Mapping[str, Any] = next(iter(event.get("choices") or ()), {})
        values = _values(choice.get("logprobs") or {}, self.route)
        fit = bool(ids) and len(values) == len(ids)
        text = (choice.get("delta") or {}).get("content") or choice.get("text") or ""
        return Delta(ids=ids, logprobs=check.logprobs(values, len(ids)) if fit else None, text=text)

    def _add(self, made: Assembly, event: Mapping[str, Any]) -> None:
        try:
            made.add(event)
        except (AttributeError, TypeError, ValueError):
            self.check(self.path, event).fail("a chunk's values are of another kind than any should be")

    def _ended(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a stream's body if its turn came to an end: the end mark alone does not say so."""
        if body["choices"] and body["choices"][0].get("finish_reason") is None:
            check = self.check(self.path, body)
            raise AbortedError(
                f"{check.where}: the stream ended, and the turn in it did not: the engine gave it up",
                check.answer,
            )
        return body

    def _read(self, body: Any) -> Reply:
        check = self.check(self.path, body)
        if not isinstance(body, dict):
            check.fail("the answer is no object")
        return read(check, body, self.route, self.asked, self.sent)

    def _torn(self, body: dict[str, Any]) -> Reply | None:
        """Return what was received, where it holds together that far."""
        try:
            return torn(self.check(self.path, body), body, self.route, self.sent)
        except InvalidReplyError:
            return None


def _values(said: Mapping[str, Any], route: Route) -> list[Any]:
    """Return the log-probabilities of a chunk."""
    if route == "completions":
        return list(said.get("token_logprobs") or ())
    return [entry.get("logprob") for entry in said.get("content") or ()]


def outage(error: RequestError) -> ServerError | None:
    """Return the error that a refusal really is: with no worker left, Dynamo answers 404 and nothing else."""
    answer = error.answer
    if answer is None or answer.status != HTTPStatus.NOT_FOUND or answer.body not in ("", b"", None):
        return None
    told = str(error).partition(" answered ")[0]
    return ServerError(f"{told} answered 404 with nothing in it: the model has no worker now", answer)
