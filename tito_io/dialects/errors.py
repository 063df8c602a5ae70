"""What went wrong, in the words that clients of each API look for."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

OVERLONG = "context_length_exceeded"
CODES: Mapping[str, str] = {"OverlongError": OVERLONG}
"""The codes of kinds that clients know under a name of their own."""

OPENAI: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
ANTHROPIC: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def openai(status: int, kind: str, message: str, param: str | None) -> dict[str, object]:
    """Return what stands under `error` in OpenAI's APIs.

    >>> openai(400, "OverlongError", "too long", None)["code"]
    'context_length_exceeded'
    """
    failed = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    known = OPENAI.get(status, "server_error" if failed else "invalid_request_error")
    return {"message": message, "type": known, "param": param, "code": CODES.get(kind, kind)}


def anthropic(status: int, kind: str, message: str) -> dict[str, object]:
    """Return what stands under `error` in Anthropic's API.

    Its clients know an overlong prompt by these words.
    """
    failed = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    known = ANTHROPIC.get(status, "api_error" if failed else "invalid_request_error")
    overlong = CODES.get(kind) == OVERLONG
    return {"type": known, "message": f"prompt is too long: {message}" if overlong else message, "kind": kind}


def failure(status: int) -> str:
    """Return the code of a response that failed: of those that OpenAI's API has."""
    return "rate_limit_exceeded" if status == HTTPStatus.TOO_MANY_REQUESTS else "server_error"
