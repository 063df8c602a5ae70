"""Check the host name and the web page that a request comes from.

A web page can make its own name resolve to an address of this machine, and a browser then lets the page talk
to what listens there (DNS rebinding). The name stands in `Host`, so that a request whose `Host` is not a
name of this gateway is refused. An IP address is always accepted there: no page has one that it could
change. A page of another site stands in `Origin`, which browsers send and agents do not.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from ipaddress import ip_address
from urllib.parse import urlsplit

import attrs
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tito_core import InputError

from .gateway import Gateway
from .refusals import RequestRefused

ANY = "*"
LOCAL = "tito.local"
"""The name, in the scope of a request, of whether it came from this machine to a loopback address."""
PROXIED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
"""Headers that proxies add, such as Caddy and Traefik; a request with one came from anywhere."""
LOOPBACK = "localhost"
POLICY_VIOLATION = 1008
"""The close code of a websocket that is refused (RFC 6455, section 7.4.1)."""


@attrs.frozen
class TrustedNames:
    """The names of a gateway.

    Attributes:
        names: Host names in lower case; `*` stands for all.
        loopback: Whether the gateway listens on a loopback address, which only this machine reaches.
    """

    names: frozenset[str]
    loopback: bool = False

    @classmethod
    def of(cls, host: str, trusted: Iterable[str] = ()) -> TrustedNames:
        """Return the names of a gateway that listens on `host`: this one, the machine's, and `trusted`.

        Raises `InputError` for a trusted name with a scheme or a port, which no request would match.
        """
        trusted = list(trusted)
        for name in trusted:
            if name != ANY and (not name or _hostname(name) != _lower(name)):
                text = f"--trusted-host {name!r:.80}: give a host name alone, such as tito.example.org"
                raise InputError(text)
        names = frozenset(_lower(name) for name in (host, socket.gethostname(), *trusted))
        return cls(names, loopback=_is_loopback(_lower(host)))

    def check(self, host: str, origin: str | None) -> None:
        """Demand that a request's `Host` and `Origin` are known; raises `RequestRefused`.

        >>> TrustedNames(frozenset()).check("127.0.0.1:8010", None)
        >>> TrustedNames(frozenset()).check("localhost:8010", "http://evil.example")
        Traceback (most recent call last):
        ...
        tito_io.serve.refusals.RequestRefused: Origin is 'http://evil.example', a page of another site; ...
        """
        name = _hostname(host)
        if host and not (self._own(name) or _is_address(name)):  # a browser always sends a host
            raise _refused(
                HTTPStatus.MISDIRECTED_REQUEST,
                f"Host is {host!r:.80}, which is not a name of this gateway; use its IP address, or start "
                "it with --trusted-host and that name",
            )
        if origin is not None and not self._from_here(origin, host):
            raise _refused(
                HTTPStatus.FORBIDDEN,
                f"Origin is {origin!r:.80}, a page of another site; to let it, start the gateway with "
                "--trusted-host and that site's name",
            )

    def local(self, headers: Mapping[str, str]) -> bool:
        """Return whether a request came to a loopback address, by a loopback name, and through no proxy.

        A trusted name does not count: it is that of a proxy, or `*`, which lets any page's name through.

        >>> here = TrustedNames.of("127.0.0.1", ["*"])
        >>> here.local({"host": "localhost:8010"}), here.local({"host": "tito.example.org"})
        (True, False)
        >>> here.local({"host": "localhost:8010", "x-forwarded-for": "192.0.2.1"})
        False
        """
        direct = not any(name in headers for name in PROXIED)
        return self.loopback and direct and _is_loopback(_hostname(headers.get("host", "")))

    def _own(self, name: str) -> bool:
        """Return whether a host name is the gateway's, or one that means this machine everywhere."""
        return ANY in self.names or name in self.names or _is_loopback(name)

    def _from_here(self, origin: str, host: str) -> bool:
        """Return whether a page is one of this gateway, of this machine, or of a trusted name."""
        name, place = _split(origin) or ("", "")
        return place == host.lower() or self._own(name)


@attrs.frozen
class OriginCheck:
    """Checks `Host` and `Origin` of each request to an application.

    Attributes:
        app: The application.
        gateway: Counts what is refused.
        trusted: The names of the gateway.
    """

    app: ASGIApp
    gateway: Gateway
    trusted: TrustedNames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or refuse."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            self.trusted.check(headers.get("host", ""), headers.get("origin"))
        except RequestRefused as error:
            await self._refuse(scope, receive, send, error)
        else:
            scope[LOCAL] = self.trusted.local(headers)
            await self.app(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, error: RequestRefused) -> None:
        added = self.gateway.count_error(error)
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
            return
        # In the form that browsers' pages, OpenAI's and Anthropic's clients all find a text in.
        body = {"error": {"message": str(error), "type": error.kind, "code": error.kind}}
        await JSONResponse(body, error.status, added)(scope, receive, send)


def _refused(status: HTTPStatus, text: str) -> RequestRefused:
    return RequestRefused(status, "untrusted_host", text)


def _lower(name: str) -> str:
    """Return a host name as it is compared: names have no case, and may end in a dot."""
    return name.lower().removesuffix(".").strip("[]")


def _hostname(host: str) -> str:
    """Return the name or address of a `Host` header, without its port.

    >>> _hostname("LocalHost:8010"), _hostname("[::1]:8010"), _hostname("a.example.")
    ('localhost', '::1', 'a.example')
    """
    name, _ = _split(f"http://{host}") or ("", "")
    return name


def _split(url: str) -> tuple[str, str] | None:
    """Return the host name of a URL, and the name with its port; None where there is no name in it."""
    try:
        parts = urlsplit(url)
        return (_lower(parts.hostname), parts.netloc.lower()) if parts.hostname else None
    except ValueError:
        return None


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(name: str) -> bool:
    if name == LOOPBACK or name.endswith(f".{LOOPBACK}"):
        return True
    return _is_address(name) and ip_address(name).is_loopback
