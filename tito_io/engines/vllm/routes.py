"""The ways that lead to a turn: where each is asked, and in what shape it answers."""

from __future__ import annotations

from http import HTTPStatus
from typing import Literal

import attrs

from tito_io.engines.errors import Complaint
from tito_io.engines.protocol import EngineError
from tito_io.engines.replies.shapes import CHATTED, COMPLETED, GENERATED, Shape

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
GENERATE, TOKENS = "/inference/v1/generate", "/v1/chat/completions/tokens"

Route = Literal["completions", "chat", "generate", "tokens", "auto"]
ROUTES: tuple[Route, ...] = ("completions", "chat", "generate", "tokens", "auto")


@attrs.frozen
class Way:
    """A route of the server's."""

    path: str
    shape: Shape


WAYS = {
    "chat": Way(CHAT, CHATTED),
    "tokens": Way(TOKENS, CHATTED),
    "completions": Way(COMPLETIONS, COMPLETED),
    "generate": Way(GENERATE, GENERATED),
}


def shut(error: EngineError) -> bool:
    """Whether the server keeps its generate route shut: nothing was sampled, and another route may be asked.

    Other servers answer 403 to wrong credentials, and 404 to a wrong model.
    """
    if error.answer is None:
        return False
    if error.answer.status == HTTPStatus.FORBIDDEN:
        return "scale-out" in Complaint.of(error.answer.body).message.lower()
    return absent(error)


def absent(error: EngineError) -> bool:
    """Whether the server has no such route; an unknown model is told in vLLM's own envelope.

    A server that knows the path by another method answers 405.
    """
    if error.answer is None:
        return False
    if error.answer.status == HTTPStatus.METHOD_NOT_ALLOWED:
        return True
    complaint = Complaint.of(error.answer.body)
    return error.answer.status == HTTPStatus.NOT_FOUND and not complaint.kind and not complaint.param
