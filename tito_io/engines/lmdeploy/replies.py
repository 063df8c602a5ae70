"""Turn LMDeploy's answers into replies, and check every invariant.

An answer has SGLang's shape: ids in `output_ids`, and `[log-probability, id]` an id in `meta_info`. Of the
prompt only its length comes back. A stream brings what is new in each event, and its last event the stop
token (`serve/openai/endpoints/generate.py` of 0.18.0).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from tito_io.engines.ids_server import IdsRequest
from tito_io.engines.protocol import (
    Delta,
    Reply,
    RequestError,
    Usage,
    Watch,
)
from tito_io.engines.replies import sglang_meta
from tito_io.engines.replies.invariants import Check
from tito_io.engines.replies.text_stream import Decode, TextStream
from tito_io.engines.turn_request import aborted

NO_LOGPROBS = "not enabled logprobs_mode"
"""What an engine answers that was started without them (`generate.py`, `check_request`)."""

ABORTED = "the engine aborted the turn, on demand or to update its weights"


@attrs.define
class GenerateStream:
    """The events of one turn, put together."""

    decode: Decode
    ids: list[int] = attrs.field(factory=list)
    entries: list[object] = attrs.field(factory=list)
    meta: dict[str, Any] = attrs.field(factory=dict)
    _text: TextStream = attrs.field(init=False)

    @_text.default
    def _no_text(self) -> TextStream:
        return TextStream(self.decode)

    def take(self, check: Check, event: dict[str, Any]) -> Sequence[Delta]:
        """Add an event; return what is new in it. The text is decoded here: the server's ends in the stop."""
        ids, meta = check.ids(event, "output_ids"), check.get(event, "meta_info", dict)
        entries = check.find(meta, "output_token_logprobs", list) or []
        logprobs = sglang_meta.triples(check, {"output_token_logprobs": entries}, ids) if entries else None
        self.ids += ids
        self.entries += entries
        self.meta = meta
        kind = end_kind(check, meta)
        text = self._text.add(ids) if kind is None else self._text.end_by_id(ids, stopped=kind == "stop")
        return [Delta(ids=ids, logprobs=logprobs, text=text)]

    def body(self) -> dict[str, Any]:
        """Return the body that would have come in one piece."""
        meta = {**self.meta, "output_token_logprobs": self.entries or None}
        return {"output_ids": self.ids, "meta_info": meta}


def end_kind(check: Check, meta: Mapping[str, Any]) -> str | None:
    """Return the server's name for the end of a turn; None while it goes on."""
    reason = check.find(meta, "finish_reason", dict)
    return None if reason is None else check.get(reason, "type", str)


class GenerateRequest(IdsRequest):
    """One request for a turn."""

    async def reply(self, watch: Watch | None) -> Reply:
        """Send the request; return the reply."""
        try:
            return await super().reply(watch)
        except RequestError as error:
            if NO_LOGPROBS not in str(error.answer.body if error.answer else ""):
                raise
            raise RequestError(
                f"{self.where}: the server keeps no log-probabilities; start it with "
                "--logprobs-mode raw_logprobs, or make the engine with logprobs=False",
                error.answer,
                where=self.where,
                parameter="logprobs",
            ) from error

    @property
    def streamed_body(self) -> Mapping[str, Any]:
        """The body that requests a stream."""
        return {**self.body, "stream": True}

    def open_stream(self) -> GenerateStream:
        """Return what puts a streamed answer together."""
        return GenerateStream(self.decode)

    def check_ends(self, check: Check, body: Any) -> None:
        """Demand that a stream states why its turn ended."""
        if end_kind(check, body["meta_info"]) is None:
            raise aborted(check, f"the stream ended before its turn did: {ABORTED}")

    def read(self, check: Check, body: Any) -> Reply:
        """Return the reply that a whole answer holds."""
        ids, meta = check.ids(body, "output_ids"), check.get(body, "meta_info", dict)
        finish = check.finish_reason({"finish_reason": end_kind(check, meta)})
        if finish == "abort":
            raise aborted(check, ABORTED, self.partial(check, body))
        self.check_end(check, ids, finish)
        logprobs = sglang_meta.triples(check, meta, ids) if self.logprobs else None
        return self.turn(ids, finish, logprobs, self._usage(check, meta, len(ids)), body)

    def partial(self, check: Check, body: Any) -> Reply | None:
        """Return what was received of a turn when it broke; None where no id was received."""
        entries = body["meta_info"].get("output_token_logprobs")
        listed = entries if isinstance(entries, list) else []
        values = [entry[0] for entry in listed if isinstance(entry, list) and entry]
        return self.received(check, [(body["output_ids"], values)], body)

    def _usage(self, check: Check, meta: Mapping[str, Any], sampled: int) -> Usage:
        """Return the counts, which must be those of the ids. The server takes a list of ids as it is."""
        prompt = len(self.sent)
        check.count("counted prompt ids", check.get(meta, "prompt_tokens", int), "prompt ids", prompt)
        counted = check.get(meta, "completion_tokens", int)
        check.count("counted sampled ids", counted, "sampled ids", sampled)
        return Usage(prompt_tokens=prompt, completion_tokens=sampled)
