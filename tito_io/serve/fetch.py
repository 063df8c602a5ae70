"""Fetch images that clients name by address: only if the operator allows it, and only from public addresses.

A client chooses the address, and the gateway stands inside of a network. So the host is resolved here, every
address that it has must be public and another machine's, and the connection goes to the one that was checked.
Redirections are checked in the same way. No proxy of the environment is used: it would resolve a name again.
"""

from __future__ import annotations

import ipaddress
import socket
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from http import HTTPStatus
from typing import Self
from urllib.parse import urljoin

import anyio
import attrs
import httpx2

from tito_core import Message

from .media import MIME, address, media_parts
from .refusals import MIB, bad_request

REDIRECTIONS = 3
SECONDS = 20.0
"""How long one image may take, redirections included."""
MOST_BYTES = 20 * MIB
MOST_TOGETHER = 64 * MIB
"""As long as a request that has the images itself."""
MOST_IMAGES = 32
"""How many images of one request are fetched."""

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address


def is_public(ip: IpAddress) -> bool:
    """Return whether an address is one of the public network, also inside of an IPv6 address.

    >>> [is_public(ipaddress.ip_address(ip)) for ip in ("1.1.1.1", "10.0.0.1", "::ffff:127.0.0.1", "::1")]
    [True, False, False, False]
    """
    inner = [ip]
    if isinstance(ip, ipaddress.IPv6Address):
        if ip not in UNICAST and ip not in NAT64:
            return False
        inner += [one for one in (ip.sixtofour, *(ip.teredo or ())) if one is not None]
        embedded = ip in NAT64 or ip.packed[8:12] in ISATAP
        inner += [ipaddress.IPv4Address(ip.packed[-4:])] if embedded else []
    special = any(one in network for one in inner for network in SPECIAL)
    return not special and all(one.is_global and not one.is_multicast for one in inner)


def is_own(ip: IpAddress) -> bool:
    """Return whether an address is one of this machine's: the way to it then begins there.

    Nothing is sent: a UDP socket that is connected has chosen its route alone.

    >>> is_own(ipaddress.ip_address("127.0.0.1"))
    True
    """
    family = socket.AF_INET6 if isinstance(ip, ipaddress.IPv6Address) else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as way:
            way.connect((str(ip), 9))
            return ipaddress.ip_address(way.getsockname()[0]) == ip
    except OSError:  # there is no way to it
        return False


def may_be_fetched_from(ip: IpAddress) -> bool:
    """Return whether images may be fetched from an address: a public one, of another machine."""
    return is_public(ip) and not is_own(ip)


UNICAST = ipaddress.ip_network("2000::/3")
"""The only IPv6 addresses that are assigned to hosts of the public network (RFC 4291 and IANA's registry).

`is_global` is true of others, too: of those that stand for IPv4 addresses, and of the old site-local ones.
"""
NAT64 = ipaddress.ip_network("64:ff9b::/96")
"""IPv6 addresses that stand for an IPv4 address, their last four bytes (RFC 6052)."""
ISATAP = (bytes.fromhex("00005efe"), bytes.fromhex("02005efe"))
"""The bytes before an IPv4 address at the end of an IPv6 one, of a tunnel inside of a site (RFC 5214)."""
SPECIAL = tuple(
    map(ipaddress.ip_network, ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "3fff::/20"))
)
"""Addresses that `is_global` may call public: IANA's for protocols, those of relays, Azure's for its
machines, and those of documents (RFC 9637)."""


class FetchError(Exception):
    """An image cannot be fetched; the text says why, without its address."""


@attrs.frozen(eq=False)
class ImageFetcher:
    """Fetches images.

    Attributes:
        client: Makes the requests.
        allowed: Whether an address may be connected to.
        most_bytes: The longest image.
        most_together: How many bytes the data URLs that are fetched for one request may have.
        seconds: How long one may take.
    """

    client: httpx2.AsyncClient
    allowed: Callable[[IpAddress], bool] = may_be_fetched_from
    most_bytes: int = MOST_BYTES
    most_together: int = MOST_TOGETHER
    seconds: float = SECONDS

    @classmethod
    def of(cls, *, allowed: Callable[[IpAddress], bool] = may_be_fetched_from) -> Self:
        """Return a fetcher with connections of its own."""
        # No connection is used again: another host may have the same address, and another certificate.
        limits = httpx2.Limits(max_keepalive_connections=0)
        return cls(httpx2.AsyncClient(trust_env=False, follow_redirects=False, limits=limits), allowed)

    async def all(self, messages: Sequence[Message], known: Mapping[str, str]) -> dict[str, str]:
        """Return data URLs of the images that messages name by address; of `known` ones what is known.

        Raises `RequestRefused` for an image that cannot be fetched.
        """
        named = [address(part) for part in media_parts(messages)]
        wanted = dict.fromkeys(url for url in named if url is not None and _is_web(url))
        new = [url for url in wanted if url not in known]
        if len(new) > MOST_IMAGES:
            text = f"messages: {len(new)} images to fetch, and at most {MOST_IMAGES}; send their data URLs"
            raise bad_request(text, "messages")
        fetched = {url: known[url] for url in wanted if url in known}
        for url in new:
            try:
                fetched[url] = await self.fetch(url)
                self._check_together(fetched[one] for one in new if one in fetched)
            except FetchError as error:
                text = f"messages: image {named.index(url) + 1} cannot be fetched: {error}; send its data URL"
                raise bad_request(text, "messages") from error
        return fetched

    def _check_together(self, urls: Iterable[str]) -> None:
        if sum(map(len, urls)) > self.most_together:
            raise FetchError(f"with those before it, it has more than {self.most_together} bytes")

    async def fetch(self, url: str) -> str:
        """Return the data URL of an image; raises `FetchError`."""
        with anyio.move_on_after(self.seconds):
            try:
                for _ in range(1 + REDIRECTIONS):
                    found = await self._answer(url)
                    if found.startswith("data:"):
                        return found
                    url = found
            except (httpx2.HTTPError, httpx2.InvalidURL, OSError, UnicodeError, ValueError) as error:
                raise FetchError(f"the server does not answer ({type(error).__name__})") from error
            raise FetchError(f"more than {REDIRECTIONS} redirections")
        raise FetchError(f"it took more than {self.seconds:g} seconds")

    async def _answer(self, url: str) -> str:
        """Return a data URL, or the address that the server names instead."""
        target = httpx2.URL(_web(url))
        ip = await self._resolved(target)
        headers = {"Host": target.netloc.decode(), "Accept": "image/*", "Accept-Encoding": "identity"}
        request = self.client.build_request(
            "GET",
            target.copy_with(host=str(ip), username=None, password=None, fragment=None),
            headers=headers,
            extensions={"sni_hostname": target.host},
        )
        answer = await self.client.send(request, stream=True)
        async with aclosing(answer):
            if answer.has_redirect_location:
                return _web(urljoin(url, answer.headers["location"]))
            return await self._data_url(answer)

    async def _data_url(self, answer: httpx2.Response) -> str:
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if answer.status_code != HTTPStatus.OK:
            raise FetchError(f"the server answers with status {answer.status_code}")
        is_image = kind.startswith("image/") and MIME.fullmatch(kind) is not None
        if not is_image or "content-encoding" in answer.headers:
            raise FetchError("the server does not answer with an image")
        data = bytearray()
        async for part in answer.aiter_raw():
            data += part
            if len(data) > self.most_bytes:
                raise FetchError(f"it has more than {self.most_bytes} bytes")
        if not data:
            raise FetchError("it has no bytes")
        return f"data:{kind};base64,{b64encode(data).decode()}"

    async def _resolved(self, target: httpx2.URL) -> IpAddress:
        """Return an address of a host; raises `FetchError` if any of its addresses is not allowed."""
        found = await anyio.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        addresses = [ipaddress.ip_address(where[0]) for *_, where in found]
        if not addresses or not all(map(self.allowed, addresses)):
            raise FetchError("its host has an address that is not public, or is this machine's")
        return addresses[0]

    async def aclose(self) -> None:
        """Close the connections."""
        await self.client.aclose()


def _web(url: str) -> str:
    """Return an address of the web; raises `FetchError` for another, such as a data URL with any content."""
    if not _is_web(url):
        raise FetchError("it leads to another scheme than http or https")
    return url


def _is_web(url: str) -> bool:
    return url[:8].lower().startswith(("http://", "https://"))
