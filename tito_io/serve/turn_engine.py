"""The engine for one turn: waits for a free place, and gives the engine what the session keeps otherwise."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import attrs

from tito_core import Message
from tito_core.message import is_multimodal
from tito_io.engines.media import MediaUnsupportedError, PromptMedium
from tito_io.engines.protocol import Rendering, Reply, Sampling, Watch
from tito_io.engines.wrapper import EngineWrapper

from .media import NO_MEDIA, NamedMedia, restored
from .refusals import bad_request
from .special_tokens import SpecialTokenGuard

SPELLED = (
    "messages: a text spells a special token beside images that have to go by messages; leave either out, or "
    "serve with --special-tokens keep"
)


@attrs.define
class TurnEngine(EngineWrapper):
    """The engine for one turn: waits for a free place, guards special tokens, notes how the prompt was sent.

    Attributes:
        places: How many turns are sampled at once.
        guard: Reads spelled special tokens as text, where the model's folder is known.
        media: The prompt's images; prompts that go by messages get them back.
        by_messages: Whether the prompt was sent as messages, so that the server's parsers read the text.
    """

    places: anyio.CapacityLimiter
    guard: SpecialTokenGuard | None = None
    media: NamedMedia = NO_MEDIA
    by_messages: bool = attrs.field(default=True, init=False)

    async def render(
        self, messages: Sequence[Message], rendering: Rendering, *, add_generation_prompt: bool
    ) -> Sequence[int]:
        """Return the ids of messages."""
        whole = self._restored(messages)
        return await super().render(whole, rendering, add_generation_prompt=add_generation_prompt)

    async def from_messages(
        self,
        messages: Sequence[Message],
        rendering: Rendering,
        sampling: Sampling,
        *,
        watch: Watch | None = None,
    ) -> Reply:
        """Sample a turn after messages; after ids if they spell a special token, which engines would obey.

        Raises `RequestRefused` if there are images, too, which ids alone would leave out.
        """
        if self.guard is not None and not self.engine.keeps_ids and self.guard.count(messages):
            if is_multimodal(messages):
                raise bad_request(SPELLED, "messages")
            ids = await self.guard.tokenize_fn(rendering)(messages, add_generation_prompt=True)
            return await self.from_ids(ids, sampling, rendering, watch=watch)
        whole = self._restored(messages)
        async with self.places:
            return await self.engine.from_messages(whole, rendering, sampling, watch=watch)

    async def from_ids(
        self,
        ids: Sequence[int],
        sampling: Sampling,
        rendering: Rendering | None = None,
        *,
        watch: Watch | None = None,
    ) -> Reply:
        """Sample a turn after ids, once there is a place."""
        self.by_messages = False
        async with self.places:
            return await super().from_ids(ids, sampling, rendering, watch=watch)

    async def from_ids_with_media(
        self,
        ids: Sequence[int],
        media: Sequence[PromptMedium],
        sampling: Sampling,
        rendering: Rendering | None = None,
        *,
        watch: Watch | None = None,
    ) -> Reply:
        """Sample a turn after ids and images, once there is a place."""
        self.by_messages = False
        try:
            async with self.places:
                return await super().from_ids_with_media(ids, media, sampling, rendering, watch=watch)
        except MediaUnsupportedError:  # nothing was sampled, and the prompt goes by messages
            self.by_messages = True
            raise

    async def aclose(self) -> None:
        """Do nothing: the engine is the gateway's."""

    def _restored(self, messages: Sequence[Message]) -> Sequence[Message]:
        return restored(messages, self.media.urls) if self.media.urls else messages
