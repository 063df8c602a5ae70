"""Anthropic's Messages.

Blocks become messages in the form of OpenAI's chat API, and the other way round. Reasoning, then text, then
tool calls are one assistant message; tool results are messages of their own, before what the user says.

- A tool result with `is_error` has `ERROR_PREFIX` before its text: messages have no field for it.
- `thinking` becomes the template arguments `enable_thinking` and `thinking_budget`, `output_config.effort`
  becomes `reasoning_effort`. A chat template may or may not read them. `adaptive` leaves all of it to the
  template.
- A last message of the assistant is an answer to continue: `ParsedRequest.continue_final_message`. Its text
  may not end in white space.
- `cache_control` is accepted without effect. A block of the system text that holds a client's billing header
  is left out of the prompt: it changes with every request.
- Arguments that are not a JSON object come under `message_parts.RAW`.
- The `signature` of a thinking block is the id of the response that it came with. It is not checked when it
  comes back: the text itself is compared.
"""

from __future__ import annotations

from typing import Any

import attrs

from tito_io.dialects.protocol import ParsedRequest
from tito_io.dialects.wire import anthropic_error

from .answer import AnthropicStream, answer_body
from .request import parse_request


@attrs.frozen
class Anthropic:
    """The dialect of `/v1/messages`.

    Attributes:
        ignoring: Fields of a request that are accepted without effect, even those that would be refused.
        strict: Whether fields and tools that are not known are refused.
        name: `anthropic`.
    """

    ignoring: frozenset[str] = frozenset()
    strict: bool = False
    name: str = attrs.field(default="anthropic", init=False)

    def parse(self, body: object) -> ParsedRequest:
        """Parse a request's body; raises `UntranslatableError`."""
        return parse_request(body, self.ignoring, strict=self.strict)

    def parse_count(self, body: object) -> ParsedRequest:
        """Parse a body of `/v1/messages/count_tokens`, which needs no `max_tokens`."""
        return parse_request(body, self.ignoring, strict=self.strict, counting=True)

    def count_body(self, prompt: int) -> dict[str, Any]:
        """Return the answer of `/v1/messages/count_tokens` for a prompt of so many ids."""
        return {"input_tokens": prompt}

    answer_body = staticmethod(answer_body)
    stream = staticmethod(AnthropicStream)

    def error(self, status: int, kind: str, message: str, *, param: str | None = None) -> dict[str, Any]:
        """Return an error body; the API has no place for `param`, which the message names.

        A client whose `thread` is refused with these details sends the whole conversation by itself.
        """
        error = anthropic_error(status, kind, message)
        details = {"details": {"error_code": "thread_unsupported_request", "unsupported": []}}
        return {"type": "error", "error": error | (details if param == "thread" else {})}
