"""OpenAI's Chat Completions.

Messages and tools are the project's own form and pass unchanged. An answer has reasoning under both of its
names, `reasoning` and `reasoning_content`, and may have token ids and log-probabilities as vLLM writes them
(`return_token_ids`). In a stream the prompt's ids come with the last chunk of the first choice: they are not
known before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from tito_core import Message
from tito_io.dialects.protocol import ParsedRequest
from tito_io.dialects.wire import openai_error

from .answer import ChatStream, answer_body
from .request import parse_request


@attrs.frozen
class Chat:
    """The dialect of `/v1/chat/completions`.

    Attributes:
        ignoring: Fields of a request that are accepted without effect, even those that would be refused.
        strict: Whether fields and tools that are not known are refused.
        name: `chat`.
    """

    ignoring: frozenset[str] = frozenset()
    strict: bool = False
    name: str = attrs.field(default="chat", init=False)

    def parse(self, body: object, known: Sequence[Message] = ()) -> ParsedRequest:
        """Parse a request's body; raises `UntranslatableError`.

        Args:
            body: The body.
            known: Messages of an earlier request that hold texts alone. Where the body begins with them, only
                the others are read: clients send the whole conversation with every request.
        """
        return parse_request(body, self.ignoring, strict=self.strict, known=known)

    answer_body = staticmethod(answer_body)
    stream = staticmethod(ChatStream)

    def error(self, status: int, kind: str, message: str, *, param: str | None = None) -> dict[str, Any]:
        """Return an error body."""
        return {"error": openai_error(status, kind, message, param)}
