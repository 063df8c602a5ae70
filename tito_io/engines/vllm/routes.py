"""vLLM's routes for a turn, which versions have them, and what the adapter does where they lack something.

Only what decides how to ask stands here. What differs in answers is read from the answers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from http import HTTPStatus
from typing import Literal

import attrs

from tito_io.engines.errors import Complaint
from tito_io.engines.media import unsupported
from tito_io.engines.protocol import EngineError, UnsupportedError
from tito_io.engines.replies.shapes import CHATTED, COMPLETED, DERENDERED, GENERATED, Shape

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
RENDER = CHAT + "/render"
"""The route that answers the ids of a chat, images expanded, and where those stand."""
GENERATE, TOKENS = "/inference/v1/generate", "/v1/chat/completions/tokens"

Route = Literal["completions", "chat", "generate", "derender", "tokens", "auto"]
ROUTES: tuple[Route, ...] = ("completions", "chat", "generate", "derender", "tokens", "auto")

MASKED: tuple[Route, ...] = ("generate", "derender", "auto")
"""Those that send sampling masks."""

CLOSED = (
    "takes images beside ids by its generate route alone, which is closed: start it with --enable-scale-out"
)
"""What images beside ids are refused with where the generate route is closed."""

NUMBERS = re.compile(r"(\d+)\.(\d+)")


ENDPOINTS: Mapping[str, tuple[str, Shape]] = {
    "chat": (CHAT, CHATTED),
    "tokens": (TOKENS, CHATTED),
    "completions": (COMPLETIONS, COMPLETED),
    "generate": (GENERATE, GENERATED),
    "derender": (GENERATE, DERENDERED),
}
"""Each route's path, and the shape of its answers."""


class Notice(StrEnum):
    """Notices about data that were requested from vLLM and did not come.

    Attributes:
        FELL_BACK: The ids went by `/v1/completions`: the server has no generate route, or keeps it closed.
        CONSTRAINED_BY_CHAT: The ids went by `/v1/chat/completions`, where the server's own parser constrains
            tool calls: the template writes them in a form for which no grammar is made here.
        WHOLE: The turn was not streamed: this version loses ids when it streams this route.
        MEDIA_SENT: Bytes of images went along; `VLLM.notices` counts the images.
        MEDIA_LEFT_OUT: The server had images from earlier requests: their keys went alone.
        MEDIA_RESENT: The server no longer had them: the request went once more, with the bytes of all images.
    """

    CONSTRAINED_BY_CHAT = "constrained-by-chat"
    FELL_BACK = "generate-is-closed"
    MEDIA_LEFT_OUT = "media-left-out"
    MEDIA_RESENT = "media-resent"
    MEDIA_SENT = "media-sent"
    WHOLE = "came-whole"


def closed(error: EngineError) -> bool:
    """Whether the server keeps its generate route closed: nothing was sampled, another route may be tried.

    Other servers answer 403 to wrong credentials, and 404 to a wrong model.
    """
    if error.answer is None:
        return False
    if error.answer.status == HTTPStatus.FORBIDDEN:
        return "scale-out" in Complaint.of(error.answer.body).message.lower()
    return absent(error)


def absent(error: EngineError) -> bool:
    """Whether the server has no such route; of an unknown model, vLLM's error names a type or a parameter.

    A server that knows the path by another method answers 405.
    """
    if error.answer is None:
        return False
    if error.answer.status == HTTPStatus.METHOD_NOT_ALLOWED:
        return True
    complaint = Complaint.of(error.answer.body)
    return error.answer.status == HTTPStatus.NOT_FOUND and not complaint.kind and not complaint.param


@attrs.frozen
class Version:
    """A vLLM version; one that is not stated, or cannot be read, is taken for the newest.

    Attributes:
        text: As the server writes it.
        number: Major and minor; None for the newest.

    >>> Version.of("0.20.1rc1.dev4+g12ab").streams("generate"), Version.of("0.9.2").at_least(0, 10)
    (True, False)
    """

    text: str | None
    number: tuple[int, int] | None

    @classmethod
    def of(cls, text: str | None) -> Version:
        """Read a version; a development build without one calls itself 0.1."""
        match = NUMBERS.match(text or "")
        number = (int(match[1]), int(match[2])) if match else None
        return cls(text, number if number is not None and number > (0, 1) else None)

    def at_least(self, major: int, minor: int) -> bool:
        """Whether it is this version or a later one."""
        return self.number is None or self.number >= (major, minor)

    def streams(self, route: str) -> bool:
        """Whether a route streams every id.

        Before 0.13 the chat route dropped chunks in which a parser held everything back, with their ids,
        before 0.31 with their log-probabilities. The generate route streams from 0.20 on, and never with a
        message.
        """
        if route == "derender":
            return False
        return self.at_least(0, 31) if route in ("chat", "tokens") else self.at_least(0, 20)

    @property
    def logprobs_name_ids(self) -> bool:
        """Whether a streamed turn's log-probabilities can name its ids.

        Up to 0.28 a chunk without ids repeated the log-probabilities of all before it, which shows only
        where a list of ids stands beside them. A server that hides its version may be such a one.
        """
        return self.number is not None and self.at_least(0, 29)


def check_takes_media(route: str, version: Version) -> None:
    """Raise `MediaUnsupportedError` where images do not go beside ids.

    Other routes than `generate` take placeholders for text, and answer 200. How a server before 0.32 reads
    `content_parts` is not known.
    """
    if route not in ("generate", "derender", "auto"):
        raise unsupported(
            "vLLM",
            f"takes images beside ids by its routes generate, derender and auto, and this is {route!r}",
        )
    if not version.at_least(0, 32):
        raise unsupported("vLLM", f"takes images beside ids from 0.32 on, and this is {version.text}")


def check_derenders(version: Version) -> None:
    """Raise `UnsupportedError` for a server whose generate route makes no messages."""
    if not version.at_least(0, 33):
        raise UnsupportedError(
            f"route is 'derender', and vLLM {version.text} makes no messages of ids, which came with 0.33: "
            "pass 'completions' or 'chat'. Nothing was sent",
            parameter="route",
        )


def check_constrains(version: Version) -> None:
    """Raise `UnsupportedError` for a server that does not know `structured_outputs`, and would ignore it."""
    if not version.at_least(0, 11):
        raise UnsupportedError(
            f"vLLM {version.text} constrains turns by older keys; tool_choice, parallel_tool_calls and "
            "response_format take 0.11 or later. Nothing was sent",
            parameter="sampling",
        )
