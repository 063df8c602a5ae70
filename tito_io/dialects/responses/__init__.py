"""OpenAI's Responses.

Items become messages in the manner of the chat API and the other way round: a thought, what is said, then
calls, in this order, are one assistant message. A thought is a `reasoning` item with its text in `content`,
and, for clients that ask for it in `include`, in `encrypted_content` as well: there is nothing to hide.

The gateway resolves `previous_response_id` (see `ParsedRequest`). `reasoning.effort` becomes the template
argument `reasoning_effort`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from tito_io.dialects import errors
from tito_io.dialects.protocol import ParsedRequest, ReplyStamp, TurnAnswer

from . import answer as answering
from .request import read
from .stream import ResponsesStream


@attrs.frozen
class Responses:
    """The dialect of `/v1/responses`."""

    ignoring: frozenset[str] = frozenset()
    """Fields of a request that are accepted without effect, beside those that never have one."""
    name: str = attrs.field(default="responses", init=False)

    def parse(self, body: object) -> ParsedRequest:
        """Return what a request's body asks; raises `UntranslatableError`."""
        return read(body, self.ignoring)

    def answer_body(self, asked: ParsedRequest, answer: TurnAnswer) -> dict[str, Any]:
        """Return a response."""
        return answering.whole(asked, answer)

    def stream(self, asked: ParsedRequest, stamp: ReplyStamp) -> ResponsesStream:
        """Begin a stream of events."""
        return ResponsesStream(asked, stamp)

    def error(self, status: int, kind: str, message: str, *, param: str | None = None) -> dict[str, Any]:
        """Return an error body."""
        found: Mapping[str, Any] = errors.openai(status, kind, message, param)
        return {"error": found}
