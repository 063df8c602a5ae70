"""OpenAI's Chat Completions.

Messages and tools are the project's own form and pass as they are. An answer has reasoning under both of its
names, `reasoning` and `reasoning_content`, and may tell ids and log-probabilities as vLLM does
(`return_token_ids`). In a stream the prompt's ids come with the last chunk of the first choice: before that
nobody knows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from tito_io.dialects import errors
from tito_io.dialects.protocol import ParsedRequest, ReplyStamp, TurnAnswer

from . import answer as answering
from .request import read
from .stream import ChatStream


@attrs.frozen
class Chat:
    """The dialect of `/v1/chat/completions`."""

    ignoring: frozenset[str] = frozenset()
    """Fields of a request that are accepted without effect, beside those that never have one."""
    name: str = attrs.field(default="chat", init=False)

    def parse(self, body: object) -> ParsedRequest:
        """Return what a request's body asks; raises `UntranslatableError`."""
        return read(body, self.ignoring)

    def answer_body(self, asked: ParsedRequest, answer: TurnAnswer) -> dict[str, Any]:
        """Return a `chat.completion`."""
        return answering.whole(asked, answer)

    def stream(self, asked: ParsedRequest, stamp: ReplyStamp) -> ChatStream:
        """Begin a stream of `chat.completion.chunk`."""
        return ChatStream(asked, stamp)

    def error(self, status: int, kind: str, message: str, *, param: str | None = None) -> dict[str, Any]:
        """Return an error body."""
        found: Mapping[str, Any] = errors.openai(status, kind, message, param)
        return {"error": found}
