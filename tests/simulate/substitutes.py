"""What of Python and its libraries is replaced while a simulation runs: clocks, secrets, threads.

Nothing of the gateway is. Work for a thread runs at once, in one step of the loop, between two moments at
which others may run: no two threads' work is ever mixed, and whether a process dies before or after it is
the loop's choice.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import anyio
from anyio._backends import _asyncio

from tests.simulate.draws import Draws
from tests.simulate.engine import remember_samplings
from tests.simulate.history import History
from tests.simulate.loop import SimulatedLoop
from tito_io.embedded.engine import EmbeddedEngine

THREAD_SECONDS = 0.01


@contextmanager
def simulated(loop: SimulatedLoop, draws: Draws, history: History) -> Iterator[None]:
    """Replace clocks, secrets and threads for a block."""
    with ExitStack() as stack:
        for owner, name, value in _substitutes(loop, draws, history):
            stack.enter_context(mock.patch.object(owner, name, value))
        yield


def _substitutes(loop: SimulatedLoop, draws: Draws, history: History) -> Iterator[tuple[Any, str, Any]]:
    for name in ("time", "monotonic", "perf_counter"):
        yield time, name, loop.time
    yield time, "time_ns", lambda: int(loop.time() * 1e9)
    yield secrets, "token_bytes", lambda count=32: draws.token(count)
    yield secrets, "token_hex", lambda count=32: draws.token(count).hex()
    yield secrets, "randbits", lambda count: int.from_bytes(draws.token(8), "big") >> (64 - count)
    yield _asyncio.AsyncIOBackend, "run_sync_in_worker_thread", classmethod(_thread(draws))
    yield _asyncio, "CancelScope", _numbered_scopes()
    yield EmbeddedEngine, "run", remember_samplings(history)


def _thread(draws: Draws) -> Callable[..., Any]:
    async def run(_: Any, func: Any, args: Any, abandon_on_cancel: bool = False, limiter: Any = None) -> Any:  # noqa: ARG001  # anyio's own arguments
        await anyio.lowlevel.checkpoint()
        with anyio.CancelScope(shield=not abandon_on_cancel):
            if draws.chance(0.3):
                await anyio.sleep(draws.between(0, THREAD_SECONDS))
            try:
                return func(*args)
            finally:
                await anyio.lowlevel.cancel_shielded_checkpoint()

    return run


def _numbered_scopes() -> type[_asyncio.CancelScope]:
    """Return anyio's cancel scope with a number as its hash, so that sets of scopes have one order."""
    made = 0

    class NumberedScope(_asyncio.CancelScope):
        __slots__ = ("number",)

        def __init__(self, *args: Any, **named: Any) -> None:
            nonlocal made
            made += 1
            self.number = made
            super().__init__(*args, **named)

        def __hash__(self) -> int:
            return self.number

    return NumberedScope
