"""SGLang's requests for a turn: whole or streamed, and aborted at the engine when they are cancelled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import anyio
import attrs

from tito_io.engines.protocol import Delta, EngineError, InvalidReplyError, Reply, Watch
from tito_io.engines.replies import sglang_meta as meta
from tito_io.engines.replies.chunks import choice_text, chunk_logprobs
from tito_io.engines.replies.invariants import Check
from tito_io.engines.replies.sampling_mask import sampling_mask
from tito_io.engines.turn_request import ChunkStream, ReplyPart, TurnRequest, TurnStream, partial_reply
from tito_io.engines.wire import encoded

from . import replies
from .replies import SglangQuestion
from .requests import ECHO, Route

T = TypeVar("T")

ABORT = "/abort_request"
ABORT_SECONDS = 5.0
"""How long a cancelled call waits for the engine to confirm the abort."""


@attrs.frozen(kw_only=True)
class SglangRequest(TurnRequest):
    """One request for a turn, whose body has the keys of a stream already; `rid` names it to abort it."""

    route: Route
    question: SglangQuestion
    streamed: bool
    rid: str

    async def reply(self, watch: Watch | None) -> Reply:
        """Send the request; return the reply. One that is left without an answer is aborted."""
        try:
            return await super().reply(watch)
        except BaseException as error:
            if not isinstance(error, EngineError) or error.answer is None:
                # In bounded time; should it fail, the closed connection aborts the turn later.
                with anyio.move_on_after(ABORT_SECONDS, shield=True), suppress(EngineError):
                    await self.wire.exchange("POST", ABORT, encoded({"rid": self.rid}))
            raise

    @property
    def streamed_body(self) -> Mapping[str, Any]:
        """The body."""
        return self.body

    def read(self, check: Check, body: Any) -> Reply:
        """Return the reply that a whole answer holds."""
        return replies.read(check, body, self.route, self.question)

    def open_stream(self) -> TurnStream:
        """Return what puts a streamed answer together."""
        if self.route != "generate":
            return SglangChatStream()
        sampling = self.question.sampling
        return GenerateStream(sampling.n, logprobs=sampling.logprobs, masks=sampling.sampling_masks)

    def check_ends(self, check: Check, body: Any) -> None:
        """Demand that every requested turn states why it ended."""
        if self.route == "generate":
            ends = [item["meta_info"].get("finish_reason") for item in _items(body)]
        else:
            ends = [choice.get("finish_reason") for choice in body["choices"]]
        if len(ends) != self.question.sampling.n or not all(ends):
            raise InvalidReplyError(f"{check.where}: the stream ended before its turn did", check.answer)

    def partial(self, check: Check, body: Any) -> Reply | None:
        """Return what was received of a turn when its stream broke."""
        prompt: Sequence[int] = () if self.question.sent is None else self.question.sent
        if self.route == "generate":
            parts = [_part(item, masks=self.question.sampling.sampling_masks) for item in _items(body)]
        else:
            lists = (body.get("sglext") or {}).get("output_ids") or [[] for _ in body["choices"]]
            parts = [
                ReplyPart(choice.get("token_ids") or ids, chunk_logprobs(choice), choice_text(choice)).ended(
                    {**choice, "stop_reason": choice.get("matched_stop")}
                )
                for choice, ids in zip(body["choices"], lists, strict=False)
            ]
        return partial_reply(check, prompt, parts, body if isinstance(body, dict) else {"turns": body})

    def echoed(self, reply: Reply) -> bool:
        """Whether ids that were sent by a route that can repeat them came back."""
        came = self.route in ECHO and replies.repeated(reply, streamed=self.streamed)
        return self.question.sent is not None and came


def _part(item: Mapping[str, Any], *, masks: bool) -> ReplyPart:
    """Return what was received of a turn of `/generate`."""
    info = item["meta_info"]
    values = [triple[0] for triple in info["output_token_logprobs"]]
    kept = info.get(meta.KEPT) if masks else None
    if kept is not None:
        values = info[meta.OVER_KEPT]
    return ReplyPart(item["output_ids"], values, item["text"], kept=kept).ended(_end(item))


def _end(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return why a turn of `/generate` ended, as choices of the other routes name it."""
    reason = item["meta_info"].get("finish_reason")
    fields = reason if isinstance(reason, Mapping) else {}
    return {"finish_reason": fields.get("type"), "stop_reason": fields.get("matched")}


def _items(body: Any) -> list[dict[str, Any]]:
    return body if isinstance(body, list) else [body]


class SglangChatStream(ChunkStream):
    """A streamed answer of an OpenAI route. A chat's ids come all at once, after its turns."""

    def take(self, check: Check, event: dict[str, Any]) -> Sequence[Delta]:
        """Add a chunk; return what each of its choices brings, and a chat's ids."""
        extra = check.find(event, "sglext", dict) or {}
        lists = check.find(extra, "output_ids", list) or ()
        ids = [
            Delta(ids=check.ids({"output_ids": one}, "output_ids"), index=index)
            for index, one in enumerate(lists)
        ]
        return [*super().take(check, event), *ids]


@attrs.define
class GenerateStream:
    """A streamed answer of `/generate` with `n` turns; each event is of one turn."""

    n: int
    logprobs: bool = True
    masks: bool = False
    turns: dict[int, GeneratedTurn] = attrs.field(factory=dict)

    def take(self, check: Check, event: dict[str, Any]) -> Sequence[Delta]:
        """Add an event; return what is new in it."""
        index = event.get("index", 0)
        if type(index) is not int or not 0 <= index < self.n:
            check.fail(f"an event is of turn {index!r:.20}, and {self.n} were requested")
        begun = GeneratedTurn(index, logprobs=self.logprobs, masks=self.masks)
        return [self.turns.setdefault(index, begun).add(check, event)]

    def body(self) -> Any:
        """Return an object, or a list where several turns were requested."""
        items = [self.turns[index].item() for index in sorted(self.turns)]
        return items if self.n > 1 or not items else items[0]


@attrs.define
class GeneratedTurn:
    """One turn of a streamed `/generate` answer, as far as it has come.

    By default every event repeats the turn so far; a server started with `--incremental-streaming-output`
    sends only what is new. A request cannot choose, and an answer does not say which. The engine's count of
    sampled ids is the whole turn's in both modes, and tells them apart, event by event.

    Attributes:
        index: Which of the turns of its request it is.
        logprobs: Whether log-probabilities were requested.
        masks: Whether sampling masks were requested.
        ids: The sampled ids so far.
        triples: Log-probabilities as SGLang sends them: `[log-probability, id, text]`.
        kept: The kept ids of each sampled id.
        over_kept: Its log-probability, normalized over them.
        text: The text so far.
        rest: The other fields of the latest event.
    """

    index: int
    logprobs: bool = True
    masks: bool = False
    ids: list[int] = attrs.field(factory=list)
    triples: list[Any] = attrs.field(factory=list)
    kept: list[Any] = attrs.field(factory=list)
    over_kept: list[Any] = attrs.field(factory=list)
    text: str = ""
    rest: dict[str, Any] = attrs.field(factory=dict)

    def add(self, check: Check, event: dict[str, Any]) -> Delta:
        """Add an event; return what is new in it. An event that does not add up changes nothing.

        In the incremental mode, an abort's event repeats the last id after ids that were not sent yet, if
        there are such, and all of the log-probabilities after those of the latter.
        """
        info = check.get(event, "meta_info", dict)
        replies.check_refused(check, info)
        total = check.get(info, "completion_tokens", int)
        received = check.ids(event, "output_ids")
        aborted = replies.end_kind(info) == "abort"
        whole = len(received) == total
        fresh = received[: max(total - len(self.ids), 0)] if aborted and not whole else received
        ids = self._new(check, "sampled ids", fresh, total)
        if whole and list(received[: len(self.ids)]) != self.ids:
            check.fail("the stream took sampled ids back")
        values = check.find(info, "output_token_logprobs", list) or []
        for triple in values:
            meta.triple_id(check, triple)
        triples: Sequence[Any] = ()
        latest = slice(-total if aborted and total else 0, None)
        if self.logprobs:
            triples = self._new(check, "log-probabilities", values[latest], total)
        kept, over_kept = [
            self._new(check, "sampling masks", check.get(info, name, list)[latest], total)
            if self.masks and info.get(name) is not None
            else ()
            for name in (meta.KEPT, meta.OVER_KEPT)
        ]
        text = self._new_text(event.get("text"), whole=whole, aborted=aborted)
        self.ids += ids
        self.triples += triples
        self.kept += kept
        self.over_kept += over_kept
        self.rest = {**event, "meta_info": info}
        matched = self.logprobs and len(triples) == len(ids)
        logprobs = tuple(triple[0] for triple in triples) if matched else None
        if not self.masks:
            return Delta(ids=tuple(ids), logprobs=logprobs, text=text, index=self.index)
        mask = sampling_mask(check, [*kept], ids) if len(kept) == len(ids) else None
        logprobs = check.logprobs(over_kept, len(ids)) if matched and mask else None
        return Delta(ids=tuple(ids), logprobs=logprobs, sampling_mask=mask, text=text, index=self.index)

    def item(self) -> dict[str, Any]:
        """Return the turn as it would have come in one piece."""
        info = {**self.rest.get("meta_info", {}), "output_token_logprobs": self.triples}
        if self.kept:
            info |= {meta.KEPT: self.kept, meta.OVER_KEPT: self.over_kept}
        return {**self.rest, "text": self.text, "output_ids": self.ids, "meta_info": info}

    def _new(self, check: Check, what: str, values: Sequence[T], total: int) -> Sequence[T]:
        """Return the values that the turn does not have yet, from all of its values or the new ones."""
        have = len(self.ids)
        if len(values) == total:
            return values[have:]
        if len(values) != total - have:
            check.fail(f"{len(values)} {what} after {have}, and the engine counts {total} in all")
        return values

    def _new_text(self, value: object, *, whole: bool, aborted: bool) -> str:
        """Add the text; return what is new. A stop string may take back what was already sent."""
        text = value if isinstance(value, str) else ""
        if not whole:
            text = self.text if aborted else self.text + text  # an abort's event has the whole text again
        new = text[len(self.text) :] if text.startswith(self.text) else ""
        self.text = text
        return new
