"""Ask a server once for data that do not change: other turns wait for that answer.

When many conversations begin at once, each would else ask all of it, and all of them would wait longer.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import anyio

S = TypeVar("S")
P = ParamSpec("P")
T = TypeVar("T")


def one_asks(
    ask: Callable[Concatenate[S, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Return a method of which one call runs at a time; other calls wait for it, and run then.

    The method keeps what it learns, so that those that waited find it. If the first call fails, or is
    cancelled, each of the others asks for itself: none gets an error of another turn, and none waits twice.
    Calls of one object with equal first arguments ask the same.

    >>> class Server:
    ...     version, requests = "", 0
    ...     @one_asks
    ...     async def known_version(self) -> str:
    ...         if not self.version:
    ...             self.requests += 1
    ...             await anyio.sleep(0)
    ...             self.version = "0.32.0"
    ...         return self.version
    >>> async def three_turns(server):
    ...     async with anyio.create_task_group() as group:
    ...         for _ in range(3):
    ...             group.start_soon(server.known_version)
    ...     return server.requests
    >>> anyio.run(three_turns, Server())
    1
    """
    running: dict[tuple[object, ...], anyio.Event] = {}

    @wraps(ask)
    async def run(self: S, /, *given: P.args, **named: P.kwargs) -> T:
        asked = (id(self), *given[:1])
        if asked in running:
            await running[asked].wait()
            return await ask(self, *given, **named)
        ended = running[asked] = anyio.Event()
        try:
            return await ask(self, *given, **named)
        finally:
            del running[asked]
            ended.set()

    return run
