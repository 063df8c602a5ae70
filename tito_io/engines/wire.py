"""JSON over HTTP to one server; every failure on the way becomes an `EngineError`, here and only here.

No request is repeated: a repeated request samples another turn.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import cache, lru_cache, partial
from http import HTTPStatus
from ssl import SSLContext
from typing import Any

import anyio
import attrs
import httpx2
import orjson

from tito_core import Ids, InputError

from .clients import Clients
from .digits import Digits
from .errors import Complaint, Diagnosis, fault
from .prompt_ids import prompt_ids
from .protocol import (
    ArgumentError,
    EngineAnswer,
    EngineError,
    InvalidReplyError,
    TimedOutError,
    UnreachableError,
)

CONNECT_SECONDS = 10.0
DRAIN_SECONDS = 1.0
"""How long to wait for the end of a stream after its end mark."""
IDLE_SECONDS = 2.0
"""How long an unused connection is kept. Servers close theirs after 5 s, and a request sent at that moment is
lost."""


Seen = Callable[[Mapping[str, str]], None]
"""Gets the headers of an answer, before its body is read."""

FAILURES: Mapping[type[httpx2.RequestError], Diagnosis] = {
    httpx2.ConnectError: Diagnosis(
        UnreachableError, "nothing answers; start the engine, or correct the base_url", "base_url"
    ),
    httpx2.ConnectTimeout: Diagnosis(
        UnreachableError, "no connection in time; check that the engine runs there"
    ),
    httpx2.TimeoutException: Diagnosis(
        TimedOutError, "no answer in time; allow more with `timeout`", "timeout"
    ),
    httpx2.DecodingError: Diagnosis(InvalidReplyError, "the answer's compression is broken"),
    httpx2.TransportError: Diagnosis(UnreachableError, "the connection broke before the answer was whole"),
    httpx2.RequestError: Diagnosis(UnreachableError, "the request did not get through"),
}
"""What an exception of the HTTP library means; the most specific first."""


@attrs.define
class Wire:
    """A server, and the connections to it.

    Attributes:
        root: The address before every route.
        clients: The HTTP clients.
        digits: The JSON of ids that were sent before.
    """

    root: httpx2.URL
    clients: Clients
    digits: Digits = attrs.field(factory=Digits)

    @classmethod
    def to(
        cls,
        base_url: str,
        *,
        api_key: str | None = None,
        timeout: float | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> Wire:
        """Return a server's wire; nothing is sent yet. `timeout` is in seconds, from one byte to the next."""
        client = partial(
            httpx2.AsyncClient,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else None,
            timeout=httpx2.Timeout(timeout, connect=CONNECT_SECONDS),
            limits=httpx2.Limits(keepalive_expiry=IDLE_SECONDS),
            transport=transport,
            verify=_certificates() if transport is None else True,
        )
        return cls(root_of(base_url), Clients(client))

    async def get(self, path: str) -> Any:
        """Return the JSON value at `path`."""
        return _read(self.where("GET", path), await self.exchange("GET", path))

    async def post(
        self,
        path: str,
        body: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        seen: Seen | None = None,
    ) -> Any:
        """Send a JSON object; return the JSON value that comes back. `seen` gets the answer's headers."""
        response = await self.exchange("POST", path, encoded(body, self.digits), headers)
        if seen is not None:
            seen(response.headers)
        return _read(self.where("POST", path), response)

    async def stream(
        self,
        path: str,
        body: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
        seen: Seen | None = None,
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Send a JSON object; yield the JSON objects of the events that come back.

        Ends at `[DONE]`. That mark means that the engine is done, not that it succeeded: a finish reason must
        have come before. An event may have any size. Leaving early closes the connection, and that makes
        engines abort the turn: use `contextlib.aclosing`.

        Raises:
            UnreachableError: The stream ends without its mark.
            EngineError: An event is an error.
        """
        where = self.where("POST", path)
        content = encoded(body, self.digits)
        kind = {"Content-Type": "application/json"}
        with self.clients.one() as client:
            request = client.build_request(
                "POST", _at(self.root, path), content=content, headers={**kind, **(headers or {})}
            )
            try:
                response = await client.send(request, stream=True)
                if seen is not None:
                    seen(response.headers)
                try:
                    async with aclosing(_events(where, response)) as events:
                        async for event in events:
                            yield event
                finally:
                    await response.aclose()
            except httpx2.RequestError as error:
                raise _failure(where, error) from error

    async def exchange(
        self, method: str, path: str, content: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        """Send a request; return the response of any status, for routes that answer with more than JSON."""
        kind = {"Content-Type": "application/json"} if content is not None else {}
        try:
            with self.clients.one() as client:
                return await client.request(
                    method, _at(self.root, path), content=content, headers={**kind, **(headers or {})}
                )
        except httpx2.RequestError as error:
            raise _failure(self.where(method, path), error) from error

    def sendable(self, ids: Sequence[int], vocab_size: int | None = None) -> Ids:
        """Return a prompt's ids; raises `InputError` for other values, or ids beyond the vocabulary."""
        return prompt_ids(ids, vocab_size, self.digits.largest)

    def where(self, method: str, path: str) -> str:
        """Return a request as errors name it, without credentials that the address may hold.

        >>> Wire.to("http://me:secret@127.0.0.1:8000/v1").where("GET", "/v1/models")
        'GET http://127.0.0.1:8000/v1/models'
        """
        return f"{method} {_shown(self.root, path)}"

    async def aclose(self) -> None:
        """Close the connections."""
        await self.clients.aclose()


@cache  # reading them takes 30 ms, and each client would do so
def _certificates() -> SSLContext:
    return httpx2.create_ssl_context()


@lru_cache(maxsize=256)  # building a URL takes longer than writing a short request
def _at(root: httpx2.URL, path: str) -> httpx2.URL:
    """Return the address of a route."""
    return root.copy_with(path=root.path.rstrip("/") + path)


@lru_cache(maxsize=256)
def _shown(root: httpx2.URL, path: str) -> str:
    """Return the address of a route without credentials."""
    return str(_at(root, path).copy_with(userinfo=b""))


def root_of(base_url: object) -> httpx2.URL:
    """Return the address before every route of a server; a trailing `/v1` belongs to the routes.

    >>> root_of("http://127.0.0.1:8000/v1/"), root_of("https://host/engines/a")
    (URL('http://127.0.0.1:8000'), URL('https://host/engines/a'))
    """
    if not isinstance(base_url, str):
        kind = type(base_url).__name__  # its value may hold credentials
        text = f"base_url: a value of the type {kind} is no address; give http://HOST:PORT or https://HOST"
        raise ArgumentError(text, parameter="base_url")
    try:
        url = httpx2.URL(base_url)
    except httpx2.InvalidURL as error:
        raise ArgumentError(
            f"base_url: {error}; give http://HOST:PORT or https://HOST", parameter="base_url"
        ) from error
    if url.scheme not in ("http", "https") or not url.host:
        raise _no_address(base_url, "is not an http address")
    if not 0 < (url.port or 80) <= 0xFFFF:  # noqa: PLR2004  # the last port
        raise _no_address(base_url, "has a port that is not one of 1 to 65535")
    return url.copy_with(path=url.path.rstrip("/").removesuffix("/v1").rstrip("/"), query=None, fragment=None)


def _no_address(base_url: str, why: str) -> ArgumentError:
    """Return the error for an address, which is shown without credentials."""
    shown = base_url.partition("?")[0].rpartition("@")[2]
    text = f"base_url: {shown!r:.80} {why}; give http://HOST:PORT or https://HOST"
    return ArgumentError(text, parameter="base_url")


def encoded(body: Mapping[str, Any], digits: Digits | None = None) -> bytes:
    """Return a request's JSON; `digits` holds the JSON of ids that were sent before.

    >>> encoded({"prompt": Ids.of([1, 2]), "stop": ["a"]})
    b'{"prompt":[1,2],"stop":["a"]}'
    """
    ids: list[Ids] = []
    try:
        text = orjson.dumps(body, default=partial(_plain, ids))
    except TypeError as error:  # raised for half a surrogate pair, too
        raise InputError(f"the request cannot be written as JSON: {error}") from error
    text, *rest = text.split(HOLE)
    for prompt, after in zip(ids, rest, strict=True):  # each byte is copied once
        text = (digits or Digits()).write(text + b"[", prompt, b"]" + after)
    return text


HOLE = b"\0"
"""Stands for ids until they are filled in. No JSON text contains it: strings write it as an escape."""


def _plain(ids: list[Ids], value: object) -> object:
    """Return any mapping as a dict; for `Ids`, append them to `ids` and return a hole."""
    if isinstance(value, Ids):
        ids.append(value)
        return orjson.Fragment(HOLE)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not a JSON value")


def _failure(where: str, error: httpx2.RequestError) -> EngineError:
    diagnosis = next(one for kind, one in FAILURES.items() if isinstance(error, kind))
    return diagnosis.kind(f"{where}: {diagnosis.advice}", where=where, parameter=diagnosis.parameter)


def _read(where: str, response: httpx2.Response) -> Any:
    """Return an answer's JSON value; raise the error that an unsuccessful one means."""
    try:
        body = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        if response.is_success:
            answer = EngineAnswer(response.status_code, response.content)
            raise InvalidReplyError(f"{where}: the answer is not JSON; is it an engine?", answer) from None
        raise fault(where, EngineAnswer(response.status_code, response.text)) from None
    # Proxies send errors with status 200.
    failed = isinstance(body, Mapping) and bool(body.get("error")) and "choices" not in body
    if response.is_success and not failed:
        return body
    raise fault(where, EngineAnswer(_status(response, body), body))


async def _events(where: str, response: httpx2.Response) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the objects of an event stream until its end mark."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not response.is_success or kind != "text/event-stream":
        await response.aread()
        body = _read(where, response)
        raise InvalidReplyError(
            f"{where}: a stream was requested, and {kind or 'an answer without a content type'} came",
            EngineAnswer(response.status_code, body),
        )
    source = aiter(httpx2.EventSource(response, max_event_size=None))
    try:
        async for event in source:
            if event.data.startswith("[DONE]"):
                with anyio.move_on_after(DRAIN_SECONDS):
                    async for _ in source:  # to its end: only then can the connection be used again
                        pass
                return
            if event.data:
                yield _event(where, response, event.data)
    finally:
        await _close(response, source)
    raise UnreachableError(
        f"{where}: the stream ended before its end mark: the engine or a proxy closed it", where=where
    )


async def _close(response: httpx2.Response, source: AsyncIterator[object]) -> None:
    """Close a stream, perhaps in its middle, and cancel the library's readers of it.

    Otherwise the garbage collector would find them, and trio warns of that.
    """
    await response.aclose()
    with anyio.CancelScope() as scope, suppress(httpx2.RequestError, httpx2.StreamError):
        scope.cancel()
        async for _ in source:
            pass


def _event(where: str, response: httpx2.Response, data: str) -> dict[str, Any]:
    """Return an event's object; raise the error that it holds: engines send errors with status 200."""
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise InvalidReplyError(
            f"{where}: an event is not JSON", EngineAnswer(response.status_code, data)
        ) from None
    if not isinstance(body, dict):
        raise InvalidReplyError(
            f"{where}: an event is not an object", EngineAnswer(response.status_code, body)
        )
    if body.get("error") or body.get("object") == "error":
        raise fault(where, EngineAnswer(_status(response, body), body))
    return body


def _status(response: httpx2.Response, body: object) -> int:
    """Return the status; of an error with status 200, the one in its body, or the one that it amounts to."""
    if not response.is_success:
        return response.status_code
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    code = inner.get("code") if isinstance(inner, Mapping) else None
    if type(code) is int and code >= HTTPStatus.BAD_REQUEST:
        return code
    return HTTPStatus.BAD_REQUEST if Complaint.of(body).overlong else HTTPStatus.INTERNAL_SERVER_ERROR
