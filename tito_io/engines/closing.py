"""Base class of what holds connections: `async with` closes them."""

from __future__ import annotations

from typing import Self


class Closing:
    """`async with` closes the connections."""

    __slots__ = ()

    async def aclose(self) -> None:
        """Close the connections; leaving `async with` does so too."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
