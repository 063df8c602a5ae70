"""Which error an engine's refusal is.

One classifier for all engines: proxies put one engine's words behind another's routes, so a wording is
recognized wherever it comes from. What the engine said stays in the error's `answer`; its words are repeated
in the message only where they cannot hold any of the conversation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import attrs

from tito_core import TemplateRefused

from .protocol import (
    AuthenticationError,
    EngineAnswer,
    EngineError,
    OverlongError,
    RequestError,
    ServerError,
)

LONGEST_REASON = 1000
"""The most characters of a template's own words."""
OVERLONG_STATUSES = frozenset((400, 413, 422))
OVERLONG = re.compile(
    r"maximum context length|maximum model length|model's context length|max_model_len"
    r"|exceeds this limit even without any output|max_completion_tokens' is too large"
    r"|longer than the maximum|exceeds? the (available )?context size|exceeds the maximum allowed length",
    re.IGNORECASE,
)
"""Ways to say that a prompt, or a prompt and its answer, has no room."""

HARMLESS = re.compile(
    r"The model `[\w./:-]{1,100}` does not exist"
    r"|Token id -?\d+ is out of vocabulary"
    r"|\"auto\" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set"
    r"|\b[a-z_]+ must be [\w ,(\[\])-]{1,60}, got -?[\d.]*\d"
    r"|Cannot apply chat template to an empty conversation"
    r"|maximum (?:context|model) length (?:is |of )?(?:\d+|\(\d+\))"
    r"|prompt contains (?:at least )?\d+|Input length \(\d+\)|decoder prompt \(length \d+\)"
)
"""What an engine may be quoted with."""


ADVICE: Mapping[int, tuple[type[EngineError], str]] = {
    401: (AuthenticationError, "the engine wants other credentials; pass the right api_key"),
    403: (AuthenticationError, "these credentials may not do that; pass another api_key, or allow it there"),
    404: (RequestError, "no such model or route there; check the base_url and the model's name"),
    408: (RequestError, "the engine did not get to it in time; ask again later"),
    429: (RequestError, "the engine has too much to do; ask again later"),
}
"""What a status alone says, and what to do about it."""


@attrs.frozen
class Complaint:
    """An engine's refusal, whichever envelope it came in."""

    message: str = ""
    kind: str = ""
    param: str = ""
    room: tuple[int, int] | None = attrs.field(default=None, repr=False)
    """How many ids were asked for and how many there is room for, where it says so in numbers."""

    @classmethod
    def of(cls, body: object) -> Complaint:
        """Read an error body: nested, flat, or a bare string.

        >>> Complaint.of({"error": {"message": "no", "type": "BadRequestError", "param": None}})
        Complaint(message='no', kind='BadRequestError', param='')
        >>> Complaint.of({"error": "Unauthorized"}).message, Complaint.of({"detail": "Not Found"}).message
        ('Unauthorized', 'Not Found')
        """
        if not isinstance(body, Mapping):
            return cls()
        inner = body.get("error", body)
        if not isinstance(inner, Mapping):
            return cls(message=str(inner))
        message = inner.get("message") or inner.get("detail") or ""
        return cls(str(message), str(inner.get("type") or ""), str(inner.get("param") or ""), _room(inner))

    @property
    def overlong(self) -> bool:
        """Whether it says that the prompt has no room in the context.

        A prompt that fills the context exactly leaves vLLM saying that `max_tokens` must be at least 1.
        Complaints about the form of a request repeat parts of it, which may say anything.
        """
        if self.room is not None:
            return True
        if self.kind == "Bad Request":
            return False
        left_nothing = self.param == "max_tokens" and "got 0" in self.message
        return self.param == "input_tokens" or left_nothing or bool(OVERLONG.search(self.message))

    @property
    def quoted(self) -> str:
        """The part of its words that holds none of the conversation, in parentheses; perhaps nothing."""
        words = [found.group() for found in HARMLESS.finditer(self.message)]
        words += [f"{self.room[0]} ids, and there is room for {self.room[1]}"] if self.room else []
        words += [f"parameter {self.param}"] if re.fullmatch(r"[\w.]{1,60}", self.param) else []
        return f" ({'; '.join(words)})" if words else ""


def refused_by_template(error: RequestError, otherwise: re.Pattern[str]) -> TemplateRefused | None:
    """Return a chat template's refusal, where that is what a server's is.

    Servers put what a template raises into the envelope of their own complaints, without a parameter;
    `otherwise` are the words of those.
    """
    answer = error.answer or EngineAnswer(0, None)
    complaint = Complaint.of(answer.body)
    by_template = answer.status == HTTPStatus.BAD_REQUEST and complaint.kind == "BadRequestError"
    if not by_template or complaint.param or otherwise.search(complaint.message):
        return None
    return TemplateRefused(complaint.message[:LONGEST_REASON]) if complaint.message else None


def _room(inner: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the numbers of Dynamo's `details`, where they are of a context that is too short.

    >>> _room({"details": {"type": "context_length", "limit": 2048, "actual": 2100}})
    (2100, 2048)
    """
    details = inner.get("details")
    found = details if isinstance(details, Mapping) and details.get("type") == "context_length" else {}
    actual, limit = found.get("actual"), found.get("limit")
    return (actual, limit) if type(actual) is int and type(limit) is int else None


def fault(where: str, answer: EngineAnswer) -> EngineError:
    """Return the error for a refusal; `where` is the request, as errors name it."""
    complaint = Complaint.of(answer.body)
    kind, advice = _kind(answer.status, complaint)
    told = f"{where} answered {answer.status}{complaint.quoted}: {advice}; its own words are in `answer.body`"
    return kind(told, answer)


def _kind(status: int, complaint: Complaint) -> tuple[type[EngineError], str]:
    """Return the error's class and what to do."""
    if status in OVERLONG_STATUSES and complaint.overlong:
        return OverlongError, "the prompt does not fit the model's context; shorten it"
    if status in ADVICE:
        return ADVICE[status]
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ServerError, "the engine failed; look into its log"
    if status < HTTPStatus.BAD_REQUEST:
        return RequestError, "something stands between here and the engine; check the base_url"
    return RequestError, "the engine refuses this request; correct what it names"
