"""An engine for one turn: waits for a free place, guards what is rendered, knows how the prompt went."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import attrs

from tito_core import Message
from tito_io.engines.protocol import Rendering, Reply, Sampling, Watch
from tito_io.engines.wrapper import EngineWrapper

from .special_tokens import Guard

TAIL = 8
"""Ids at a prompt's end in which an open thought shows."""
OPEN_THOUGHT = "<think>"


@attrs.define
class Tap(EngineWrapper):
    """Stands between one turn and its engine."""

    places: anyio.CapacityLimiter
    """How many turns are sampled at once; the others wait."""
    guard: Guard | None = None
    parsed: bool = attrs.field(default=True, init=False)
    """Whether the prompt went by messages, so that a server's parsers may have read the text."""
    thinking: bool = attrs.field(default=False, init=False)
    """Whether the prompt is known to leave a thought open."""

    async def from_messages(
        self,
        messages: Sequence[Message],
        rendering: Rendering,
        sampling: Sampling,
        *,
        watch: Watch | None = None,
    ) -> Reply:
        """Sample a turn after messages; by ids where they spell a special token, which engines believe."""
        if self.guard is not None and not self.engine.keeps_ids and self.guard.count(messages):
            render = self.guard.tokenize_fn(rendering.tools, rendering.template_args)
            ids = await render(messages, add_generation_prompt=True)
            return await self.from_ids(ids, sampling, rendering, watch=watch)
        async with self.places:
            return await self.engine.from_messages(messages, rendering, sampling, watch=watch)

    async def from_ids(
        self,
        ids: Sequence[int],
        sampling: Sampling,
        rendering: Rendering | None = None,
        *,
        watch: Watch | None = None,
    ) -> Reply:
        """Sample a turn after ids, once there is a place."""
        self.parsed = False
        if self.guard is not None:
            tail = self.guard.family.decode(ids[-TAIL:])
            self.thinking = tail.rstrip().endswith(OPEN_THOUGHT)
        async with self.places:
            return await super().from_ids(ids, sampling, rendering, watch=watch)

    async def aclose(self) -> None:
        """Do nothing: the engine is the gateway's."""
