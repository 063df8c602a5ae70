"""OpenAI's Responses.

Items become messages in the form of the chat API, and the other way round. Reasoning, content and tool calls,
in this order, are one assistant message. Reasoning is a `reasoning` item with its text in `content`. Clients
that ask for `encrypted_content` in `include` get it there, too: the text in base64, since there is nothing to
hide.

Tools that are no functions and compaction have modules of their own (`tools`, `compaction`).

The gateway resolves `previous_response_id` (see `ParsedRequest`). `reasoning.effort` becomes the template
argument `reasoning_effort`.
"""

from __future__ import annotations

from typing import Any

import attrs

from tito_io.dialects.protocol import ParsedRequest, TurnAnswer
from tito_io.dialects.wire import openai_error

from .answer import ResponsesStream, answer_body, compact_body
from .compaction import triggered
from .request import parse_request


@attrs.frozen
class Responses:
    """The dialect of `/v1/responses`, and of `/v1/responses/compact`.

    Attributes:
        ignoring: Fields of a request that are accepted without effect, even those that would be refused.
        strict: Whether fields and tools that are not known are refused.
        compacts: Whether all requests are for a summary, as those to `/v1/responses/compact` are.
        name: `responses`.
    """

    ignoring: frozenset[str] = frozenset()
    strict: bool = False
    compacts: bool = False
    name: str = attrs.field(default="responses", init=False)

    def parse(self, body: object) -> ParsedRequest:
        """Parse a request's body; raises `UntranslatableError`."""
        if self.compacts:
            body = triggered(body)
        return parse_request(body, self.ignoring, strict=self.strict)

    def answer_body(self, request: ParsedRequest, answer: TurnAnswer) -> dict[str, Any]:
        """Return the body of an answer in one piece."""
        return compact_body(request, answer) if self.compacts else answer_body(request, answer)

    stream = staticmethod(ResponsesStream)

    def error(self, status: int, kind: str, message: str, *, param: str | None = None) -> dict[str, Any]:
        """Return an error body."""
        return {"error": openai_error(status, kind, message, param)}
