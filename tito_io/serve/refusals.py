"""Errors that the gateway answers requests with, and the limits that a request can exceed.

Each error has an HTTP status, a kind that metrics and logs count, and a text that says what to do. The text
holds nothing of a conversation. Of an unexpected exception the client sees the class alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import attrs

from tito_core import InputError, TemplateRefused, TitoError, TokenizeError
from tito_io.cli.errors import visible, with_option, without_embedded_url
from tito_io.engines.errors import Complaint
from tito_io.engines.protocol import (
    AbortedError,
    ArgumentError,
    AuthenticationError,
    EngineError,
    InvalidReplyError,
    OverlongError,
    RequestError,
    ServerError,
    TimedOutError,
    UnreachableError,
    UnsupportedError,
)

from .redact import engine_words
from .store import FencedError, GoneError, LostError, StoreError

if TYPE_CHECKING:  # the command imports this module, and needs no dialect to print its --help
    from tito_io.dialects import Dialect

MIB = 1 << 20


@attrs.frozen(kw_only=True)
class GatewayLimits:
    """Limits of one gateway, one session and one request. Exceeding a limit is an error; nothing is cut.

    Attributes:
        body_bytes: Longest request body. A chat repeats its whole history, at about four bytes an id.
        containers: Most lists and objects in a request body. No other request runs while they are built.
        scalars: Most keys and values in a request body; the first value of each list is not counted.
        messages: Most messages in a request, and in a conversation that it continues by an id: three for each
            of `turns`. A message of several parts counts as so many. All are read before any other request.
        header_bytes: Longest headers together; a session's name and a key are all that is read of them.
        turns: Most assistant messages in one prompt.
        nodes: Most committed turns of a session, all branches together.
        tokens: Most ids that a session keeps, each shared id counted once.
        images: Most images in one prompt; vLLM takes 999 by default
            (`MultiModalConfig.get_limit_per_prompt`).
        media_bytes: Most bytes of images that a session keeps, each image counted once.
        sessions: Most sessions in the store.
        idle_seconds: How long an unused session is kept.
        loaded_seconds: How long an unused session stays in memory; the store still has it.
        calls: Most turns that are sampled at once; others wait.
        connections: Most connections of clients that are served at once, where so many files may be open.
        header_seconds: How long the headers of a request may take to arrive.
        body_seconds: How long the body of a request may take to arrive.
    """

    body_bytes: int = 64 * MIB
    containers: int = 200_000
    scalars: int = 500_000
    messages: int = 12_288
    header_bytes: int = 32_768
    turns: int = 4_096
    nodes: int = 16_384
    tokens: int = 16_000_000
    images: int = 999
    media_bytes: int = 256 * MIB
    sessions: int = 100_000
    idle_seconds: float = 86_400.0
    loaded_seconds: float = 600.0
    calls: int = 256
    connections: int = 8_192
    header_seconds: float = 10.0
    body_seconds: float = 60.0


class RequestRefused(TitoError):  # noqa: N818  # it is an answer, and no failure of the gateway
    """A request that is answered with an error.

    Attributes:
        status: The HTTP status.
        kind: The error's code, such as `bad_request`, which clients, metrics and logs see. It stays.
        parameter: The field of the request that is wrong; None where the error is about no field.
        final: Whether the same request would fail again; client libraries then do not repeat it.
        headers: Headers of the answer that say what would be taken instead.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        message: str,
        *,
        parameter: str | None = None,
        final: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Take the message as the client will read it; it names the `parameter`, if there is one.

        Control characters are escaped: what a request contains may end up in a terminal.
        """
        super().__init__(visible(message))
        self.status, self.kind, self.final = status, kind, final
        self.headers = dict(headers or {})
        self.parameter = None if parameter is None else visible(parameter)


def bad_request(message: str, parameter: str | None = None) -> RequestRefused:
    """Return the error 400 for a request whose `parameter`, or whole body, is wrong."""
    return RequestRefused(HTTPStatus.BAD_REQUEST, "bad_request", message, parameter=parameter)


ENDED = "; it never was, or was deleted, or not used for --max-idle seconds: POST /sessions opens one"


def not_found(name: str, hint: str = ENDED) -> RequestRefused:
    """Return the error for a missing session; its first words are those of the session protocol."""
    text = f"session not found: session_id={name:.64}{hint}"
    return RequestRefused(HTTPStatus.NOT_FOUND, "session_not_found", text)


RIGHT_BASE = re.compile(r"(/sessions/[^/]+)?/v1(beta)?/(?!v1)")
"""How the path of a client begins whose base URL is right; a wrong one has `/v1` twice, or not at all."""
WRONG_BASE = (
    "the base URL is http://HOST:PORT/sessions/ID/v1 for OpenAI's clients, and the same without /v1 for "
    "Anthropic's and Google's"
)
NOT_SERVED = {"completions": "legacy completions are not served: use /v1/chat/completions"}
OTHER_API = (
    "of the APIs /v1/chat/completions, /v1/responses and /v1/messages are served, and of Google's methods "
    "generateContent, streamGenerateContent and countTokens"
)


def no_route(method: str, path: str, allowed: str = "") -> RequestRefused:
    """Return the error for an unknown path, or for a path that takes the `allowed` methods only."""
    if allowed:
        text = f"{method} {path:.200}: this route takes {allowed}"
        headers = {"allow": allowed}
        return RequestRefused(HTTPStatus.METHOD_NOT_ALLOWED, "method_not_allowed", text, headers=headers)
    served = RIGHT_BASE.match(path)
    why = WRONG_BASE if served is None else NOT_SERVED.get(path[served.end() :], OTHER_API)
    text = f"{method} {path:.200}: there is no such route; {why}"
    return RequestRefused(HTTPStatus.NOT_FOUND, "not_found", text)


def no_websocket() -> RequestRefused:
    """Return the error for a websocket's upgrade. Codex goes on over HTTP at once after 426 alone.

    Such an answer must name a protocol that is served (RFC 9110, 15.5.22), as an option of this connection.
    """
    text = "websockets are not served; send the request with POST"
    headers = {"upgrade": "HTTP/1.1", "connection": "upgrade"}
    return RequestRefused(HTTPStatus.UPGRADE_REQUIRED, "websocket", text, headers=headers)


def limit_reached(
    what: str, count: int | None, most: int, option: str, parameter: str | None = None
) -> RequestRefused:
    """Return the error for a `count` over a limit; `option` of `tito serve` raises the limit.

    `count` is None where counting ended at the limit, `parameter` the field that is too long.

    >>> str(limit_reached("images in this prompt", None, 999, "--max-images"))
    'images in this prompt: at most 999; raise --max-images'
    """
    counted = "" if count is None else f"{count}, and "
    text = f"{what}: {counted}at most {most}; raise {option}"
    return RequestRefused(HTTPStatus.TOO_MANY_REQUESTS, "limit_reached", text, parameter=parameter)


def body_too_long(most: int, length: int | None = None) -> RequestRefused:
    """Return the error for a body of more than `most` bytes; `length` is None where it is not known.

    >>> str(body_too_long(64 << 20, 70_000_000))
    'this body has 67 MiB, and at most 64 MiB are read; raise --max-body'
    """
    size = f"more than {_size(most)}" if length is None else _size(length, up=True)
    text = f"this body has {size}, and at most {_size(most)} are read; raise --max-body"
    return RequestRefused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "limit_reached", text)


def too_deep(field: str, most: int) -> RequestRefused:
    """Return the error for a field whose value nests more than `most` levels deep."""
    return bad_request(f"{field:.40} nests its values more than {most} levels deep; flatten it", field)


def body_too_late(seconds: float) -> RequestRefused:
    """Return the error for a body that did not arrive in time; the connection cannot be used further."""
    text = f"the body did not arrive within {seconds:g} seconds; send it faster, or raise --body-timeout"
    close = {"connection": "close"}
    return RequestRefused(HTTPStatus.REQUEST_TIMEOUT, "body_timeout", text, final=False, headers=close)


def too_many_connections(most: int) -> RequestRefused:
    """Return the error for a request on a connection that is one too many."""
    text = f"{most} connections are open; try again later, keep fewer open, or raise --max-connections"
    later = {"retry-after": "1", "connection": "close"}
    status = HTTPStatus.SERVICE_UNAVAILABLE
    return RequestRefused(status, "too_many_connections", text, final=False, headers=later)


def _size(count: int, *, up: bool = False) -> str:
    """Return a number of bytes in whole MiB, rounded down or `up`; less than 1 MiB in bytes."""
    return f"{count} bytes" if count < MIB else f"{(count + (MIB - 1) * up) // MIB} MiB"


ANSWERS: tuple[tuple[type[Exception], int, str], ...] = (
    (OverlongError, 400, "context_length_exceeded"),
    (UnsupportedError, 400, "unsupported"),
    (AuthenticationError, 502, "engine_refused_key"),
    (TimedOutError, 504, "engine_timeout"),
    (UnreachableError, 503, "engine_unreachable"),
    (InvalidReplyError, 502, "engine_reply_invalid"),
    (AbortedError, 502, "engine_aborted"),
    (ServerError, 502, "engine_failed"),
    (TemplateRefused, 400, "template_refused"),
    (TokenizeError, 502, "tokenizer_failed"),
    (InputError, 400, "bad_request"),
    (GoneError, 404, "session_not_found"),
    (FencedError, 503, "session_moved"),
    (LostError, 503, "session_lost"),
    (StoreError, 503, "store_failed"),
)
"""The status and code of each error, subclasses before their bases. An outage is never a client's error."""
REFUSED = "engine_refused"
"""The code of an engine's error that is about the request; its status is the engine's own."""
OVERLONG = "prompt is too long, it exceeds the model's maximum context length"
"""Agents that shorten their history look for these words of their APIs."""
DEEPEST = 100
"""Levels of a field that are always read. Deeper ones are, too, unless Python's functions end first."""
DEEPEST_STORED = 240
"""Levels of a field that is stored as it came: the JSON writer takes 254, with those around it."""
PASSED_ON = frozenset((400, 404, 408, 413, 422, 429))
"""Statuses of an engine that are about the request; the client gets these unchanged."""


def error_reply(error: Exception, body: Mapping[str, Any] | None = None) -> RequestRefused:
    """Return an error as a client sees it.

    Args:
        error: Any exception.
        body: The request. With it, the engine's own words follow, without what they repeat of the request:
            error texts end up in logs.
    """
    if isinstance(error, RequestRefused):
        return error
    found = next(((status, code) for kind, status, code in ANSWERS if isinstance(error, kind)), None)
    status, code = found or (None, REFUSED)
    if status is None and isinstance(error, RequestError):
        answered = 400 if error.answer is None else error.answer.status
        status = answered if answered in PASSED_ON else 502
    deep = deep_field(body or {}, DEEPEST) if isinstance(error, RecursionError) else None
    if deep is not None:
        return too_deep(deep, DEEPEST)
    if status is None:
        text = f"the gateway failed ({type(error).__name__}); its log says where"
        return RequestRefused(500, "internal_error", text, final=False)
    # The text of an engine's error ends with a hint at a Python attribute, which no client can read.
    text = error.message if isinstance(error, EngineError) else str(error)
    if isinstance(error, EngineError | ArgumentError):  # the client has a base URL and a key of its own
        text = with_option(text, error.parameter, " of the gateway")
    if isinstance(error, InputError):  # what the client's libraries call so is a field of the request here
        text = text.removeprefix("sampling.").removeprefix("sampling: ")
    text = without_embedded_url(text) + engine_words(error, body)
    words = f"{OVERLONG}: {text}" if isinstance(error, OverlongError) else text
    return RequestRefused(status, code, words, parameter=_parameter(error, body or {}), final=False)


def _parameter(error: Exception, body: Mapping[str, Any]) -> str | None:
    """Return the field that an error is about; None where the request has no field of its name.

    An engine, and the check of sampling arguments, name fields as OpenAI's chat API does.
    """
    if isinstance(error, EngineError):
        name = Complaint.of(None if error.answer is None else error.answer.body).param
    else:
        field = getattr(error, "field", None)
        if isinstance(field, str):
            return field
        name = getattr(error, "argument", "")
    return name if name in body else None


def deep_field(body: Mapping[str, Any], most: int) -> str | None:
    """Return the first field whose value nests more than `most` levels deep; None where none does.

    >>> deep_field({"a": {"b": 1}, "c": [[1]]}, 1)
    'c'
    """
    return next((name for name, value in body.items() if _depth(value) > most), None)


def _depth(value: object) -> int:
    """Return how deep a JSON value nests.

    >>> _depth([{"a": [1]}]), _depth(1)
    (3, 0)
    """
    level, depth = [value], 0
    while level := [one for one in level if isinstance(one, dict | list)]:
        depth += 1
        level = [part for one in level for part in (one.values() if isinstance(one, dict) else one)]
    return depth


def error_body(reply: RequestRefused, dialect: Dialect | None) -> Mapping[str, Any]:
    """Return an error's body in the form of a `dialect`, or of the gateway's own routes without one.

    Miles' session protocol has a text under `error`, on chats too, and so has the older wire. But OpenAI's
    clients, which send chats, read no text and no code there; the protocol's own clients read only the
    status of a failed chat.
    """
    if dialect is None:
        return {"error": str(reply), "code": reply.kind}
    return dialect.error(reply.status, reply.kind, str(reply), param=reply.parameter)
