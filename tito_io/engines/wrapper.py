"""Base class of engines that wrap another one and pass every call on to it."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from tito_core import Message

from .media import PromptMedium, answers_stray_placeholders, sample_with_media
from .protocol import Engine, ModelLimits, Rendering, Reply, Sampling, Watch


@attrs.define
class EngineWrapper:
    """Passes every call on to its engine; a subclass overrides what it changes.

    Attributes:
        engine: The wrapped engine.
        name: Its name.
        keeps_ids: Whether it stores ids itself.
    """

    engine: Engine
    name: str = attrs.field(init=False, default=attrs.Factory(lambda self: self.engine.name, takes_self=True))
    keeps_ids: bool = attrs.field(
        init=False, default=attrs.Factory(lambda self: self.engine.keeps_ids, takes_self=True)
    )

    @property
    def answers_stray_placeholders(self) -> bool:
        """Whether its engine answers messages in which a text spells an image's placeholder."""
        return answers_stray_placeholders(self.engine)

    async def render(
        self, messages: Sequence[Message], rendering: Rendering, *, add_generation_prompt: bool
    ) -> Sequence[int]:
        """Return the ids of messages."""
        return await self.engine.render(messages, rendering, add_generation_prompt=add_generation_prompt)

    async def from_messages(
        self,
        messages: Sequence[Message],
        rendering: Rendering,
        sampling: Sampling,
        *,
        watch: Watch | None = None,
    ) -> Reply:
        """Sample a turn after messages."""
        return await self.engine.from_messages(messages, rendering, sampling, watch=watch)

    async def from_ids(
        self,
        ids: Sequence[int],
        sampling: Sampling,
        rendering: Rendering | None = None,
        *,
        watch: Watch | None = None,
    ) -> Reply:
        """Sample a turn after ids."""
        return await self.engine.from_ids(ids, sampling, rendering, watch=watch)

    async def from_ids_with_media(
        self,
        ids: Sequence[int],
        media: Sequence[PromptMedium],
        sampling: Sampling,
        rendering: Rendering | None = None,
        *,
        watch: Watch | None = None,
    ) -> Reply:
        """Sample a turn after ids and media."""
        return await sample_with_media(self.engine, ids, media, sampling, rendering, watch=watch)

    async def limits(self) -> ModelLimits:
        """Return how much the model takes."""
        return await self.engine.limits()

    async def aclose(self) -> None:
        """Close the connections."""
        await self.engine.aclose()
