"""One request for a turn, sent in one piece or as a stream, and read by the same reader.

What was received is never lost: an error after the first id carries it. What nobody waits for any more is
aborted at the engine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Protocol

import anyio
import attrs

from tito_io.engines.protocol import AbortedError, Delta, EngineError, InvalidReplyError, Reply, Usage, Watch
from tito_io.engines.replies.chunks import Assembly
from tito_io.engines.replies.invariants import Check
from tito_io.engines.wire import Wire, encoded

from .replies import Reader, SglangQuestion
from .stream import Growth

ABORT = "/abort_request"
ABORT_SECONDS = 5.0
"""How long a cancelled call waits for the engine to take note of it."""


@attrs.frozen
class SglangPart:
    """A turn that may not be whole."""

    ids: Sequence[int]
    logprobs: Sequence[object]
    """As they came; perhaps none, or fewer than ids."""
    text: str


class Stream(Protocol):
    """A streamed answer, put together event by event."""

    def add(self, check: Check, event: dict[str, Any]) -> list[Delta]:
        """Take in an event; return what is new in it."""

    def body(self) -> Any:
        """Return what would have come in one piece."""

    def parts(self) -> list[SglangPart]:
        """Return every turn so far."""

    def ended(self) -> bool:
        """Whether every turn so far has said why it ended."""


@attrs.define
class Generated:
    """A streamed answer of `/generate`."""

    n: int
    growths: dict[int, Growth] = attrs.field(factory=dict)

    def add(self, check: Check, event: dict[str, Any]) -> list[Delta]:
        """Take in an event; it is one turn's."""
        index = event.get("index", 0)
        if type(index) is not int or not 0 <= index < self.n:
            check.fail(f"an event is of turn {index!r:.20}, where {self.n} were asked for")
        delta = self.growths.setdefault(index, Growth(index)).add(check, event)
        return [delta]

    def body(self) -> Any:
        """Return an object, or a list where several turns were asked for."""
        items = [self.growths[index].item() for index in sorted(self.growths)]
        return items if self.n > 1 or not items else items[0]

    def parts(self) -> list[SglangPart]:
        """Return every turn so far."""
        found = [self.growths[index] for index in sorted(self.growths)]
        return [SglangPart(one.ids, [triple[0] for triple in one.triples], one.text) for one in found]

    def ended(self) -> bool:
        """Whether every turn has said why it ended."""
        metas = [growth.rest.get("meta_info", {}) for growth in self.growths.values()]
        return len(metas) == self.n and all(info.get("finish_reason") for info in metas)


@attrs.define
class Chunked:
    """A streamed answer of an OpenAI route. A chat's ids come all at once, after its turns."""

    n: int
    made: Assembly = attrs.field(factory=Assembly)

    def add(self, check: Check, event: dict[str, Any]) -> list[Delta]:
        """Take in a chunk."""
        pieces = [check.get({"choice": piece}, "choice", dict) for piece in event.get("choices") or ()]
        deltas = [_delta(check, piece) for piece in pieces]
        lists = (event.get("sglext") or {}).get("output_ids") or ()
        deltas += [
            Delta(ids=check.ids({"output_ids": ids}, "output_ids"), index=index)
            for index, ids in enumerate(lists)
        ]
        self.made.add(event)
        return deltas

    def body(self) -> Any:
        """Return the chunks' body."""
        return self.made.body()

    def parts(self) -> list[SglangPart]:
        """Return every turn so far."""
        body = self.made.body()
        lists = (body.get("sglext") or {}).get("output_ids") or [[] for _ in body["choices"]]
        return [
            SglangPart(choice.get("token_ids") or ids, _logprobs(choice), _text(choice))
            for choice, ids in zip(body["choices"], lists, strict=False)
        ]

    def ended(self) -> bool:
        """Whether every turn has said why it ended."""
        choices = self.made.choices.values()
        return len(choices) == self.n and all(choice.get("finish_reason") for choice in choices)


def _delta(check: Check, piece: dict[str, Any]) -> Delta:
    """Return what a chunk's choice brings."""
    ids = check.ids(piece, "token_ids") if piece.get("token_ids") is not None else ()
    values = (piece.get("logprobs") or {}).get("token_logprobs") or ()
    logprobs = check.logprobs(values, len(ids)) if ids and len(values) == len(ids) else None
    return Delta(ids=ids, logprobs=logprobs, text=_text(piece), index=piece.get("index", 0))


def _text(choice: Mapping[str, Any]) -> str:
    """Return a choice's text, of a whole answer or of a chunk."""
    said = choice.get("text", (choice.get("message") or choice.get("delta") or {}).get("content"))
    return said if isinstance(said, str) else ""


def _logprobs(choice: Mapping[str, Any]) -> list[object]:
    """Return a choice's log-probabilities, in a list or in entries."""
    found = choice.get("logprobs") or {}
    return found.get("token_logprobs") or [entry.get("logprob") for entry in found.get("content") or ()]


@attrs.frozen
class SglangRequest:
    """One request for a turn."""

    wire: Wire
    path: str
    body: Mapping[str, Any]
    rid: str
    """The request's name, by which it is aborted."""
    check: Callable[[object], Check]
    """Makes what checks an answer."""
    read: Reader
    asked: SglangQuestion

    async def whole(self, keys: Mapping[str, Any]) -> Reply:
        """Send it with `keys`; return the reply that comes in one piece."""
        async with self._abortable():
            answer = await self.wire.post(self.path, {**self.body, **keys, "rid": self.rid})
        return self.read(self.check(answer), answer, self.asked)

    async def streamed(self, keys: Mapping[str, Any], stream: Stream, watch: Watch) -> Reply:
        """Send it with `keys`; tell `watch` what comes, and return the reply that it amounts to."""
        try:
            async with self._abortable():
                await self._watched(keys, stream, watch)
            body = stream.body()
            check = self.check(body)
            if not stream.ended():
                raise InvalidReplyError(
                    f"{check.where}: the stream ended, and a turn in it did not", check.answer
                )
            return self.read(check, body, self.asked)
        except EngineError as error:
            if not isinstance(error, AbortedError):  # whose reader knows more
                error.partial = self._torn(stream)
            raise

    async def _watched(self, keys: Mapping[str, Any], stream: Stream, watch: Watch) -> None:
        """Take the stream in, and tell of it as it comes."""
        body = {**self.body, **keys, "rid": self.rid}
        async with aclosing(self.wire.stream(self.path, body)) as events:
            async for event in events:
                for delta in stream.add(self.check(event), event):
                    if delta.ids or delta.text:
                        await watch(delta)

    def _torn(self, stream: Stream) -> Reply | None:
        """Return what came of a turn before its stream broke, None where no id did."""
        parts, raw = stream.parts(), stream.body()
        if not any(part.ids for part in parts):
            return None
        prompt: Sequence[int] = () if self.asked.sent is None else self.asked.sent
        usage = Usage(prompt_tokens=len(prompt), completion_tokens=sum(len(part.ids) for part in parts))
        first, *others = [
            Reply(
                prompt_ids=prompt,
                completion_ids=tuple(part.ids),
                logprobs=_known(self.check(raw), part),
                message=None,
                text=part.text,
                finish_reason="abort",
                usage=usage,
                raw=raw if isinstance(raw, dict) else {"turns": raw},
            )
            for part in parts
        ]
        return attrs.evolve(first, siblings=tuple(others))

    @asynccontextmanager
    async def _abortable(self) -> AsyncIterator[None]:
        """Abort the request at the engine where it is left before its answer is there."""
        try:
            yield
        except BaseException as error:
            if not isinstance(error, EngineError) or error.answer is None:
                await self._abort()
            raise

    async def _abort(self) -> None:
        """Tell the engine, in bounded time. Where that fails, the closed connection says the same, later."""
        with anyio.move_on_after(ABORT_SECONDS, shield=True), suppress(EngineError):
            await self.wire.exchange("POST", ABORT, encoded({"rid": self.rid}))


def _known(check: Check, part: SglangPart) -> tuple[float | None, ...] | None:
    """Return the log-probabilities of a torn turn, where each id has one."""
    try:
        return check.logprobs(part.logprobs, len(part.ids))
    except InvalidReplyError:
        return None
