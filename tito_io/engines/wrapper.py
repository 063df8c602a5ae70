"""Base class of engines that wrap another one and pass every call on to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs

from tito_core import Ids, Message

from .family_render import renders_as
from .media import answers_stray_placeholders
from .protocol import Engine, ModelLimits, Rendering, Reply, SampleRequest, Sampling, UnsupportedError
from .replies.output_parser import OutputParser
from .turn_parts import output_parser

if TYPE_CHECKING:  # an adapter that has no model folder loads no tokenizer library
    from tito_io.families.family import Family
    from tito_io.families.tokenizer_family import TokenizerFamily


@attrs.define
class EngineWrapper(Engine):
    """Passes every call on to its engine; a subclass overrides what it changes.

    Attributes:
        engine: The wrapped engine.
        name: Its name.
        keeps_ids: Whether it stores ids itself.
        takes_media: Whether it may take media beside ids.
    """

    engine: Engine
    name: str = attrs.field(init=False, default=attrs.Factory(lambda self: self.engine.name, takes_self=True))
    keeps_ids: bool = attrs.field(
        init=False, default=attrs.Factory(lambda self: self.engine.keeps_ids, takes_self=True)
    )
    takes_media: bool = attrs.field(
        init=False, default=attrs.Factory(lambda self: self.engine.takes_media, takes_self=True)
    )

    @property
    def answers_stray_placeholders(self) -> bool:
        """Whether its engine answers messages in which a text spells an image's placeholder."""
        return answers_stray_placeholders(self.engine)

    @property
    def family(self) -> Family | TokenizerFamily | None:
        """The model's folder, where its engine has it."""
        known: Family | TokenizerFamily | None = getattr(self.engine, "family", None)
        return known

    @property
    def renders_as(self) -> str | None:
        """Whose rules its engine changes messages by (`tito_io.families.preprocessing.engines`)."""
        return renders_as(self.engine)

    @property
    def seeds_by_position(self) -> bool:
        """Whether its engine's seeds belong to positions of the sequence, not to the order of draws."""
        return bool(getattr(self.engine, "seeds_by_position", False))

    @property
    def turns_per_request(self) -> int | None:
        """The most turns that its engine samples after one prompt in one request; None for no limit."""
        most: int | None = getattr(self.engine, "turns_per_request", None)
        return most

    async def output_parser(self) -> OutputParser:
        """Return what makes text and messages of its engine's ids."""
        return await output_parser(self.engine)

    async def render(
        self, messages: Sequence[Message], rendering: Rendering, *, add_generation_prompt: bool
    ) -> Sequence[int]:
        """Return the ids of messages."""
        return await self.engine.render(messages, rendering, add_generation_prompt=add_generation_prompt)

    async def sample(self, request: SampleRequest) -> Reply:
        """Sample a turn."""
        return await self.engine.sample(request)

    async def score(self, ids: Ids, start: int) -> tuple[float | None, ...]:
        """Return the log-probability of each id from `start` on (see `scores.score`)."""
        scored: Any = getattr(self.engine, "score", None)
        if scored is None:
            raise UnsupportedError(f"{self.name}: its adapter computes no log-probabilities of given ids")
        values: tuple[float | None, ...] = await scored(ids, start)
        return values

    async def check_masks(self, sampling: Sampling) -> None:
        """Raise `MasksUnsupportedError` where its engine is known to give no sampling masks."""
        await self.engine.check_masks(sampling)

    async def limits(self) -> ModelLimits:
        """Return how much the model takes."""
        return await self.engine.limits()

    async def aclose(self) -> None:
        """Close the connections."""
        await self.engine.aclose()
