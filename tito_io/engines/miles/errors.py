"""Errors of Miles' session server, and which answer means which; other errors are the engine's behind it.

The server answers `{"error": text}`, and its texts may repeat the whole conversation: none is quoted.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import httpx2
import orjson

from tito_io.engines.errors import Complaint, fault
from tito_io.engines.protocol import EngineAnswer, EngineError, InvalidReplyError, RequestError, ServerError
from tito_io.engines.replies.invariants import Check

GONE = "session not found"
"""The text of a 404 about a session; tito's gateway sends it where OpenAI's clients read it."""
UNAVAILABLE = "session_record_unavailable"
"""The `error.code` of a server whose records are on disk and cannot be read in time."""


class SessionNotFoundError(RequestError):
    """The server has no such session: it was deleted, expired, or lives on another server."""


class SamplesRefusedError(RequestError):
    """The server cannot make samples of what it recorded, and never will."""


class CutTurnError(RequestError):
    """The turn before was cut short, and this server continues no such turn."""


class SessionUsedError(RequestError):
    """The session was used after its samples were taken, so it was not deleted."""


class RecordsUnavailableError(ServerError):
    """The server cannot read its records now. They still exist; another request for them samples nothing."""


class NotRecordedError(InvalidReplyError):
    """The server answered a turn and did not record it: another request changed the session meanwhile."""


ADVICE: Mapping[type[EngineError], str] = {
    SessionNotFoundError: "it has no such session: it was deleted, or is another server's; open a new one",
    SamplesRefusedError: "it cannot make samples of this session: its text says why",
    CutTurnError: "it continues no turn that was cut short; open another session, or allow more max_tokens",
    SessionUsedError: "the session was used after its samples were taken; take them again",
    RecordsUnavailableError: "it cannot read its records now; ask again",
}


def refusal(where: str, response: httpx2.Response) -> EngineError:
    """Return the error for an unsuccessful answer; `where` is the request, as errors name it."""
    try:
        body = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        body = response.text
    answer = EngineAnswer(response.status_code, body)
    kind = _kind(answer)
    if kind is None:
        return fault(where, answer)
    return kind(
        f"{where} answered {answer.status}: {ADVICE[kind]}",
        answer,
        hint="its own words are in the error's `reason`",
        where=where,
    )


def read(where: str, response: httpx2.Response) -> tuple[Check, Any]:
    """Return a successful answer's JSON, and its checks; `where` names the request.

    Raises:
        InvalidReplyError: It is not JSON, such as another server's page.
    """
    try:
        answer = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        raw = EngineAnswer(response.status_code, response.content)
        raise InvalidReplyError(f"{where}: the answer is not JSON; is it a session server?", raw) from None
    return Check(where, EngineAnswer(response.status_code, answer)), answer


def _kind(answer: EngineAnswer) -> type[EngineError] | None:
    """Return the error class of the session server's own errors; None for other errors.

    The engine behind it also answers 404, for an unknown model; the server's framework also answers 422, for
    a malformed request, and in JSON.
    """
    error = answer.body.get("error") if isinstance(answer.body, Mapping) else None
    if answer.status == HTTPStatus.NOT_FOUND and Complaint.of(answer.body).message.startswith(GONE):
        return SessionNotFoundError
    if answer.status == HTTPStatus.UNPROCESSABLE_ENTITY and isinstance(answer.body, str):
        return SamplesRefusedError
    if answer.status == HTTPStatus.CONFLICT:
        return CutTurnError
    if answer.status == HTTPStatus.PRECONDITION_FAILED:
        return SessionUsedError
    unread = isinstance(error, Mapping) and error.get("code") == UNAVAILABLE
    return RecordsUnavailableError if unread else None
