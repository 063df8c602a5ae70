"""Forward a session's requests to the engine's own routes: only those that inform or tokenize.

An engine's other routes can stop it, change its weights or flush its cache; agents may not use them.
"""

from __future__ import annotations

from http import HTTPStatus

import attrs
import httpx2

from .refusals import RequestRefused, no_route

ALLOWED = frozenset(
    (
        ("GET", "v1/models"),
        ("GET", "health"),
        ("GET", "version"),
        ("GET", "get_model_info"),
        ("GET", "model_info"),
        ("POST", "tokenize"),
        ("POST", "detokenize"),
    )
)
SECONDS = 60.0


@attrs.frozen
class Backend:
    """The engine's server.

    Attributes:
        client: A client whose base URL is the server's root.
    """

    client: httpx2.AsyncClient

    @classmethod
    def to(
        cls, base_url: str, *, api_key: str | None = None, transport: httpx2.AsyncBaseTransport | None = None
    ) -> Backend:
        """Return the server at `base_url`, with or without `/v1`. Nothing is sent yet."""
        root = base_url.rstrip("/").removesuffix("/v1")
        headers = {"Authorization": f"Bearer {api_key}"} if api_key else None
        client = httpx2.AsyncClient(base_url=root, headers=headers, timeout=SECONDS, transport=transport)
        return cls(client)

    async def forward(self, method: str, path: str, body: bytes) -> httpx2.Response:
        """Return the engine's answer, also if it is an error; raises `RequestRefused` for other routes."""
        if (method, path) not in ALLOWED:
            raise no_route(method, f"/{path}")
        headers = {"Content-Type": "application/json"} if body else {}
        try:
            return await self.client.request(method, f"/{path}", content=body or None, headers=headers)
        except httpx2.RequestError as error:
            raise RequestRefused(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "engine_unreachable",
                f"{method} /{path}: the engine does not answer ({type(error).__name__})",
                final=False,
            ) from error

    async def aclose(self) -> None:
        """Close the connections."""
        await self.client.aclose()
