"""Anthropic's Messages.

Blocks become messages in the manner of OpenAI and the other way round: a thought, then text, then calls are
one assistant message; results of tools are messages of their own, in front of what the user says.

- A result with `is_error` has `ERROR_MARK` in front of its text: messages have no field for it.
- `thinking` becomes the template arguments `enable_thinking` and `thinking_budget`, `output_config.effort`
  becomes `reasoning_effort`; whether a template reads them is the template's matter. `adaptive` leaves it all
  to the template.
- A prefilled answer, a last message of the assistant, is `ParsedRequest.continue_final_message`.
- Marks for caches are accepted and mean nothing. A block of the system text that is a billing header of a
  client is none of the prompt: it changes with every request.
- Arguments that are no JSON object come in `arguments.RAW`.
- A thought's `signature` names the response that it came with. It is not looked at when it comes back: the
  text itself is compared.
"""

from __future__ import annotations

from typing import Any

import attrs

from tito_io.dialects import errors
from tito_io.dialects.protocol import ParsedRequest, ReplyStamp, TurnAnswer

from . import answer as answering
from .request import read
from .stream import AnthropicStream


@attrs.frozen
class Anthropic:
    """The dialect of `/v1/messages`."""

    ignoring: frozenset[str] = frozenset()
    """Fields of a request that are accepted without effect, beside those that never have one."""
    name: str = attrs.field(default="anthropic", init=False)

    def parse(self, body: object) -> ParsedRequest:
        """Return what a request's body asks; raises `UntranslatableError`."""
        return read(body, self.ignoring)

    def parse_count(self, body: object) -> ParsedRequest:
        """Return what a body of `/v1/messages/count_tokens` asks to have counted."""
        return read(body, self.ignoring, counting=True)

    def count_body(self, prompt: int) -> dict[str, Any]:
        """Return the body that tells how many ids a prompt has."""
        return {"input_tokens": prompt}

    def answer_body(self, asked: ParsedRequest, answer: TurnAnswer) -> dict[str, Any]:
        """Return a message."""
        return answering.whole(asked, answer)

    def stream(self, asked: ParsedRequest, stamp: ReplyStamp) -> AnthropicStream:
        """Begin a stream of events."""
        return AnthropicStream(asked, stamp)

    def error(self, status: int, kind: str, message: str, *, param: str | None = None) -> dict[str, Any]:
        """Return an error body; the API has no place for `param`, which the message names."""
        del param
        return {"type": "error", "error": errors.anthropic(status, kind, message)}
