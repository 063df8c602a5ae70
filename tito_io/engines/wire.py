"""JSON over HTTP to one server; whatever goes wrong on the way becomes one of our errors, here and only here.

Nothing is tried twice: a repeated request samples another turn.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, suppress
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Any

import anyio
import attrs
import httpx2
import orjson

from tito_core import Ids, InputError

from .digits import Digits
from .errors import fault
from .protocol import EngineAnswer, EngineError, InvalidReplyError, TimedOutError, UnreachableError

CONNECT_SECONDS = 10.0
DRAIN_SECONDS = 1.0
"""How long the end of a stream is waited for after its end mark."""
IDLE_SECONDS = 2.0
"""How long an unused connection is kept. Servers close theirs after 5 s, and a request that meets the close
is lost."""

FAILURES: tuple[tuple[type[httpx2.RequestError], type[EngineError], str], ...] = (
    (
        httpx2.ConnectError,
        UnreachableError,
        "nothing answers; start the engine, or correct the base_url",
    ),
    (httpx2.ConnectTimeout, UnreachableError, "no connection in time; check that the engine runs there"),
    (httpx2.TimeoutException, TimedOutError, "no answer in time; allow more with `timeout`"),
    (httpx2.DecodingError, InvalidReplyError, "the answer's compression is broken"),
    (httpx2.TransportError, UnreachableError, "the connection broke before the answer was whole"),
    (httpx2.RequestError, UnreachableError, "the request did not get through"),
)
"""The library's exceptions and ours, the most particular first."""


@attrs.define
class Wire:
    """A server, and the connections to it."""

    root: httpx2.URL
    """Where its routes begin."""
    client: httpx2.AsyncClient
    digits: Digits = attrs.field(factory=Digits)
    """How the ids that were sent before are written."""

    @classmethod
    def to(
        cls,
        base_url: str,
        *,
        api_key: str | None = None,
        timeout: float | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> Wire:
        """Make ready; nothing is sent yet. `timeout` is in seconds, from one byte to the next."""
        client = httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {api_key}"} if api_key else None,
            timeout=httpx2.Timeout(timeout, connect=CONNECT_SECONDS),
            limits=httpx2.Limits(keepalive_expiry=IDLE_SECONDS),
            transport=transport,
        )
        return cls(root_of(base_url), client)

    async def get(self, path: str) -> Any:
        """Return the JSON value at `path`."""
        return await self._ask("GET", path, None)

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Send a JSON object; return the JSON value that comes back."""
        return await self._ask("POST", path, encoded(body, self.digits))

    async def stream(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """Send a JSON object; yield the JSON objects of the events that come back.

        Ends at `[DONE]`, which says that the engine is through with the request and not that it went well: a
        finish reason must have come before. Raises `UnreachableError` where the stream ends without, and the
        error that an event amounts to. An event may be of any size. Leaving early closes the connection,
        which is how engines learn that nobody waits any more: use `contextlib.aclosing`.
        """
        where = self.where("POST", path)
        content = encoded(body, self.digits)
        request = self.client.build_request(
            "POST", self._url(path), content=content, headers={"Content-Type": "application/json"}
        )
        try:
            response = await self.client.send(request, stream=True)
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
        """Send a request; return the answer whatever it says, for routes that answer with more than JSON."""
        kind = {"Content-Type": "application/json"} if content is not None else {}
        try:
            return await self.client.request(
                method, self._url(path), content=content, headers={**kind, **(headers or {})}
            )
        except httpx2.RequestError as error:
            raise _failure(self.where(method, path), error) from error

    def sendable(self, ids: Sequence[int], vocab_size: int | None = None) -> Ids:
        """Return ids as such; raises `InputError` for what is none, or is known to be none of the model's."""
        sent = Ids.of(ids)
        if not sent:
            raise InputError("ids: a prompt has at least one id")
        largest = -1 if vocab_size is None else self.digits.largest(sent)
        if vocab_size is not None and largest >= vocab_size:
            raise InputError(f"ids: {largest} is not in the vocabulary of {vocab_size}; whose is it?")
        return sent

    def where(self, method: str, path: str) -> str:
        """Name a request, for errors; credentials in the address stay out.

        >>> Wire.to("http://me:secret@127.0.0.1:8000/v1").where("GET", "/v1/models")
        'GET http://127.0.0.1:8000/v1/models'
        """
        return f"{method} {_shown(self.root, path)}"

    async def aclose(self) -> None:
        """Close the connections."""
        await self.client.aclose()

    def _url(self, path: str) -> httpx2.URL:
        return _at(self.root, path)

    async def _ask(self, method: str, path: str, content: bytes | None) -> Any:
        return _read(self.where(method, path), await self.exchange(method, path, content))


@lru_cache(maxsize=256)  # a URL takes longer to make than a short request to write
def _at(root: httpx2.URL, path: str) -> httpx2.URL:
    """Return the address of a route."""
    return root.copy_with(path=root.path.rstrip("/") + path)


@lru_cache(maxsize=256)
def _shown(root: httpx2.URL, path: str) -> str:
    """Return that address without credentials."""
    return str(_at(root, path).copy_with(userinfo=b""))


def root_of(base_url: str) -> httpx2.URL:
    """Return where a server's routes begin: a trailing `/v1` is one of them.

    >>> root_of("http://127.0.0.1:8000/v1/"), root_of("https://host/engines/a")
    (URL('http://127.0.0.1:8000'), URL('https://host/engines/a'))
    """
    try:
        url = httpx2.URL(base_url)
    except (httpx2.InvalidURL, TypeError) as error:
        raise InputError(f"base_url: {error}; give http://HOST:PORT or https://HOST") from error
    if url.scheme not in ("http", "https") or not url.host or not 0 <= (url.port or 0) <= 0xFFFF:  # noqa: PLR2004  # the last port
        raise InputError("base_url: no http address; give http://HOST:PORT or https://HOST")
    return url.copy_with(path=url.path.rstrip("/").removesuffix("/v1").rstrip("/"), query=None, fragment=None)


def encoded(body: Mapping[str, Any], digits: Digits | None = None) -> bytes:
    """Return a request's JSON; `digits` has those of the ids that were sent before.

    >>> encoded({"prompt": Ids.of([1, 2]), "stop": ["a"]})
    b'{"prompt":[1,2],"stop":["a"]}'
    """
    found: list[Ids] = []
    try:
        text = orjson.dumps(body, default=partial(_plain, found))
    except TypeError as error:  # what the library says to half a surrogate pair, and to what is no JSON
        raise InputError(f"the request cannot be written as JSON: {error}") from error
    return _filled(text, found, digits or Digits()) if found else text


HOLE = b"\0"
"""Stands for ids until they are filled in; no JSON text has it, since strings write it as an escape."""


def _plain(found: list[Ids], value: object) -> object:
    """Return a mapping of the caller's own as a plain one; of ids, note where they belong."""
    if isinstance(value, Ids):
        found.append(value)
        return orjson.Fragment(HOLE)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no JSON value")


def _filled(text: bytes, found: Sequence[Ids], digits: Digits) -> bytes:
    """Return the text with the ids in its holes, everything copied once."""
    body, *rest = text.split(HOLE)
    for ids, after in zip(found, rest, strict=True):
        body = digits.write(body + b"[", ids, b"]" + after)
    return body


def _failure(where: str, error: httpx2.RequestError) -> EngineError:
    kind, told = next((ours, told) for theirs, ours, told in FAILURES if isinstance(error, theirs))
    return kind(f"{where}: {told}")


def _read(where: str, response: httpx2.Response) -> Any:
    """Return an answer's JSON value, or raise what the answer amounts to."""
    try:
        body = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        if response.is_success:
            answer = EngineAnswer(response.status_code, response.content)
            raise InvalidReplyError(f"{where}: the answer is no JSON; is it an engine?", answer) from None
        raise fault(where, EngineAnswer(response.status_code, response.text)) from None
    if response.is_success and not _is_error(body):
        return body
    raise fault(where, EngineAnswer(_status(response, body), body))


async def _events(where: str, response: httpx2.Response) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the objects of an event stream until its end mark."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    if not response.is_success or kind != "text/event-stream":
        await response.aread()
        body = _read(where, response)
        raise InvalidReplyError(
            f"{where}: a stream was asked for, and {kind or 'something else'} came",
            EngineAnswer(response.status_code, body),
        )
    source = aiter(httpx2.EventSource(response, max_event_size=None))
    try:
        async for event in source:
            if event.data.startswith("[DONE]"):
                await _drained(source)
                return
            if event.data:
                yield _event(where, response, event.data)
    finally:
        await _left(response, source)
    raise UnreachableError(
        f"{where}: the stream ended before its end mark: the engine, or a proxy, broke it off"
    )


async def _drained(source: AsyncIterator[object]) -> None:
    """Read to the end of a stream that has said all: a connection can be used again only from there."""
    with anyio.move_on_after(DRAIN_SECONDS):
        async for _ in source:
            pass


async def _left(response: httpx2.Response, source: AsyncIterator[object]) -> None:
    """Close a stream, perhaps in its middle, and cancel the library's readers of it.

    Left where they are, they would be found by the garbage collector, of which trio warns.
    """
    await response.aclose()
    with anyio.CancelScope() as scope, suppress(httpx2.RequestError, httpx2.StreamError):
        scope.cancel()
        async for _ in source:
            pass


def _event(where: str, response: httpx2.Response, data: str) -> dict[str, Any]:
    """Return an event's object, or raise the error that it is: engines report theirs inside a success."""
    try:
        body = orjson.loads(data)
    except orjson.JSONDecodeError:
        raise InvalidReplyError(
            f"{where}: an event is no JSON", EngineAnswer(response.status_code, data)
        ) from None
    if not isinstance(body, dict):
        raise InvalidReplyError(f"{where}: an event is no object", EngineAnswer(response.status_code, body))
    if body.get("error") or body.get("object") == "error":
        raise fault(where, EngineAnswer(_status(response, body), body))
    return body


def _is_error(body: object) -> bool:
    """Tell whether an answer that calls itself a success is an error's body: proxies send such."""
    return isinstance(body, Mapping) and bool(body.get("error")) and "choices" not in body


def _status(response: httpx2.Response, body: object) -> int:
    """Return the status, that of the error's body where the response claims success."""
    if not response.is_success:
        return response.status_code
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    code = inner.get("code") if isinstance(inner, Mapping) else None
    return code if type(code) is int and code >= HTTPStatus.BAD_REQUEST else 500
