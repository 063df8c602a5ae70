r"""Parts that the answers of several APIs share: server-sent events, error objects, log-probabilities.

Text of a model may hold half of a surrogate pair, which UTF-8 has no bytes for: JSON's escapes have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import orjson

from .protocol import TokenText, as_id

DONE = b"data: [DONE]\n\n"


def event(data: Mapping[str, Any], name: str = "") -> bytes:
    r"""Return one server-sent event, with a `name` where the API has one.

    >>> event({"type": "ping"}, "ping")
    b'event: ping\ndata: {"type":"ping"}\n\n'
    >>> event({"text": "\ud83d"})
    b'data: {"text": "\\ud83d"}\n\n'
    """
    head = f"event: {name}\n".encode() if name else b""
    return b"%sdata: %s\n\n" % (head, dumps(data))


def dumps(data: object) -> bytes:
    """Return JSON, of events and of whole bodies."""
    try:
        return orjson.dumps(data)
    except TypeError:  # half of a surrogate pair, or a number beyond 64 bits
        return json.dumps(data).encode()


OVERLONG = "context_length_exceeded"
"""The code by which clients of OpenAI's API know that a prompt is too long."""
OPENAI_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
ANTHROPIC_TYPES: Mapping[int, str] = {
    **OPENAI_TYPES,
    413: "request_too_large",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}

GOOGLE_STATUSES: Mapping[int, str] = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def openai_error(status: int, kind: str, message: str, param: str | None) -> dict[str, object]:
    """Return the object under `error` in OpenAI's APIs.

    >>> openai_error(400, "context_length_exceeded", "too long", None)["code"]
    'context_length_exceeded'
    """
    failed = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    error_type = OPENAI_TYPES.get(status, "server_error" if failed else "invalid_request_error")
    return {"message": message, "type": error_type, "param": param, "code": kind}


def anthropic_error(status: int, kind: str, message: str) -> dict[str, object]:
    """Return the object under `error` in Anthropic's API."""
    failed = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    error_type = ANTHROPIC_TYPES.get(status, "api_error" if failed else "invalid_request_error")
    if kind == OVERLONG:
        message = f"prompt is too long: {message}"  # the words by which its clients know this error
    return {"type": error_type, "message": message, "kind": kind}


def google_error(status: int, kind: str, message: str, param: str | None) -> dict[str, object]:
    """Return the object under `error` in Google's API.

    >>> google_error(404, "not_found", "no such session", None)["status"]
    'NOT_FOUND'
    """
    failed = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    # Reasons are in capitals (google/rpc/error_details.proto).
    word = GOOGLE_STATUSES.get(status, "INTERNAL" if failed else "INVALID_ARGUMENT")
    about = {} if param is None else {"metadata": {"field": param}}
    kinds = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": kind.upper(), "domain": "tito"}
    info = {**kinds, **about}
    return {"code": status, "message": message, "status": word, "details": [info]}


MISSING_LOGPROB = -9999.0
"""Stands for a log-probability that the engine did not give, as vLLM writes it."""


def logprob_entries(
    ids: Sequence[int], logprobs: Sequence[float | None], token_text: TokenText, *, as_ids: bool
) -> list[dict[str, Any]]:
    """Return log-probabilities in the form of OpenAI's chat API: one entry per id, with its text and bytes.

    >>> logprob_entries([7], [-0.5], lambda index: "hi", as_ids=False)
    [{'token': 'hi', 'logprob': -0.5, 'bytes': [104, 105], 'top_logprobs': []}]
    >>> logprob_entries([7], [None], as_id, as_ids=False)
    [{'token': 'token_id:7', 'logprob': -9999.0, 'bytes': None, 'top_logprobs': []}]
    """
    texts = [None if token_text is as_id else token_text(index) for index in ids]
    return [
        {
            "token": as_id(index) if as_ids or text is None else text,
            "logprob": MISSING_LOGPROB if logprob is None else logprob,
            "bytes": None if text is None else list(text.encode("utf-8", "surrogatepass")),
            "top_logprobs": [],
        }
        for index, logprob, text in zip(ids, logprobs, texts, strict=True)
    ]
