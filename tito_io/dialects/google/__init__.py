"""Google's Gemini API: `generateContent`, `streamGenerateContent` and `countTokens`.

Contents become messages in the form of OpenAI's chat API, and the other way round. Reasoning (parts with
`thought`), then text, then function calls are one assistant message; function responses are messages of their
own, before what the user says.

- Names of fields are read in both forms, as Google's servers do: `systemInstruction`, `system_instruction`.
- A function call has the id of the tool call, which clients send back. A call without an id is named by its
  place in the conversation, and a response without an id answers the first open call of its name.
- A function's response is its `output`, its `error` after `ERROR_PREFIX`, or else the whole object as JSON.
- `thinkingConfig` becomes the template arguments `enable_thinking`, `thinking_budget` and `reasoning_effort`.
  A chat template may or may not read them. Reasoning is always shown.
- A last content of the model is an answer to continue: `ParsedRequest.continue_final_message`.
- Arguments that are not a JSON object come under `message_parts.RAW`.
"""

from __future__ import annotations

from typing import Any

import attrs

from tito_io.dialects.protocol import ParsedRequest
from tito_io.dialects.wire import google_error

from .answer import GoogleStream, answer_body
from .request import parse_count, parse_request


@attrs.frozen
class Google:
    """The dialect of `/v1beta/models/MODEL:generateContent`.

    In this API the path says which model is asked, and whether the answer is streamed.

    Attributes:
        ignoring: Fields of a request that are accepted without effect, even those that would be refused.
        strict: Whether fields and tools that are not known are refused.
        model: The model that the path names.
        streaming: Whether the path asks for a stream.
        name: `google`.
    """

    ignoring: frozenset[str] = frozenset()
    strict: bool = False
    model: str | None = None
    streaming: bool = False
    name: str = attrs.field(default="google", init=False)

    def parse(self, body: object) -> ParsedRequest:
        """Parse a request's body; raises `UntranslatableError`."""
        parsed = parse_request(body, self.ignoring, strict=self.strict)
        return attrs.evolve(parsed, model=self.model, stream=self.streaming)

    def parse_count(self, body: object) -> ParsedRequest:
        """Parse a body of `countTokens`: a request, or contents alone."""
        return parse_count(body, self.ignoring, strict=self.strict)

    def count_body(self, prompt: int) -> dict[str, Any]:
        """Return the answer of `countTokens` for a prompt of so many ids."""
        return {"totalTokens": prompt}

    answer_body = staticmethod(answer_body)
    stream = staticmethod(GoogleStream)

    def error(self, status: int, kind: str, message: str, *, param: str | None = None) -> dict[str, Any]:
        """Return an error body."""
        return {"error": google_error(status, kind, message, param)}
