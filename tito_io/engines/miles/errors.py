"""What a session server refuses, and which error that is; the rest is refused by the engine behind it.

The server says `{"error": text}`, and its texts may repeat the whole conversation: none is quoted.
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
"""What a 404 says of a session; a gateway of ours says it on chats where OpenAI's clients read it."""
UNAVAILABLE = "session_record_unavailable"
"""The `error.code` of a server whose records are on disk and cannot be read in time."""


class SessionNotFoundError(RequestError):
    """The server has no such session: it was deleted, expired, or lives on another server."""


class SamplesRefusedError(RequestError):
    """The server cannot make samples of what it recorded, and never will."""


class CutTurnError(RequestError):
    """The turn before was cut short, and this server continues no such turn."""


class SessionUsedError(RequestError):
    """The session was used since its samples were taken, so it was not deleted."""


class RecordsUnavailableError(ServerError):
    """The server cannot read its records now. They still exist, and asking again samples nothing."""


class NotRecordedError(InvalidReplyError):
    """The server answered a turn and recorded none: another request changed the session meanwhile."""


TOLD: Mapping[type[EngineError], str] = {
    SessionNotFoundError: "it has no such session; was it deleted, or is it another server's?",
    SamplesRefusedError: "it cannot make samples of this session",
    CutTurnError: "it continues no turn that was cut short; open another session, or allow more max_tokens",
    SessionUsedError: "the session was used since its samples were taken; take them again",
    RecordsUnavailableError: "it cannot read its records now; ask again",
}


def refusal(where: str, response: httpx2.Response) -> EngineError:
    """Return the error that an unsuccessful answer amounts to; `where` is the request, as errors name it."""
    answer = EngineAnswer(response.status_code, _body(response))
    kind = _kind(answer)
    if kind is None:
        return fault(where, answer)
    return kind(
        f"{where} answered {answer.status}: {TOLD[kind]}",
        answer,
        hint="its own words are in `answer.body`",
        where=where,
    )


def read(where: str, response: httpx2.Response) -> tuple[Check, Any]:
    """Return a successful answer's JSON and what its checks need to know; `where` names the request.

    Raises `InvalidReplyError` for what is no JSON: another server's page, say.
    """
    try:
        answer = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        raw = EngineAnswer(response.status_code, response.content)
        raise InvalidReplyError(f"{where}: the answer is no JSON; is it a session server?", raw) from None
    return Check(where, EngineAnswer(response.status_code, answer)), answer


def _body(response: httpx2.Response) -> object:
    try:
        return orjson.loads(response.content)
    except orjson.JSONDecodeError:
        return response.text


def _kind(answer: EngineAnswer) -> type[EngineError] | None:
    """Return which of the session server's own refusals it is.

    A 404 is also what the engine behind it says of an unknown model, and a 422 what the server's framework
    says of a malformed request, in JSON.
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
