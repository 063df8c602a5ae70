"""The engine for one turn: waits for a free place, and gives the engine what the session keeps otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from tito_core import Message
from tito_core.message import is_multimodal
from tito_io.engines.media import MediaUnsupportedError
from tito_io.engines.protocol import Rendering, Reply, SampleRequest
from tito_io.engines.wrapper import EngineWrapper

from .media import NO_MEDIA, NamedMedia, restored
from .places import Places
from .refusals import bad_request
from .special_tokens import SpecialTokenGuard

SPELLED = (
    "messages: a text spells a special token beside images that have to go by messages; leave either out, or "
    "serve with --special-tokens keep"
)
UNCALLED = (
    "tool_choice: tools stay in the prompt, and no call can be forbidden beside images that have to go "
    "by messages; leave either out, or serve with --tools-when-tool-choice-none exclude"
)


@attrs.define
class TurnEngine(EngineWrapper):
    """The engine for one turn: waits for a free place, guards special tokens, notes how the prompt was sent.

    Attributes:
        places: The places for turns that are sampled at once.
        guard: Reads spelled special tokens as text, where the model's folder is known.
        media: The prompt's images; prompts that go by messages get them back.
        no_calls: Whether no text of the turn is a call, though the prompt may have tools.
        on_place: Called when the turn has its first place.
        by_messages: Whether the prompt was sent as messages, so that the server's parsers read the text.
    """

    places: Places
    guard: SpecialTokenGuard | None = None
    media: NamedMedia = NO_MEDIA
    no_calls: bool = False
    on_place: Callable[[], object] = bool
    by_messages: bool = attrs.field(default=True, init=False)

    async def render(
        self, messages: Sequence[Message], rendering: Rendering, *, add_generation_prompt: bool
    ) -> Sequence[int]:
        """Return the ids of messages."""
        whole = self._restored(messages)
        return await super().render(whole, rendering, add_generation_prompt=add_generation_prompt)

    async def sample(self, request: SampleRequest) -> Reply:
        """Sample a turn, once there is a place; after ids if messages spell a special token.

        Engines would obey it. Raises `RequestRefused` if there are images, too, which ids would leave out.
        """
        if request.messages is not None:
            request = await self._guarded(request, request.messages)
        if self.no_calls:
            request = await self._without_calls(request, request.messages)
        self.by_messages = request.ids is None
        try:
            async with self.places.of(request.sampling.conversation):
                self.on_place()
                self.on_place = bool  # a turn that is resumed or split waits again, but had its first place
                return await self.engine.sample(request)
        except MediaUnsupportedError:  # nothing was sampled, and the prompt goes by messages
            self.by_messages = True
            raise

    async def _guarded(self, request: SampleRequest, messages: Sequence[Message]) -> SampleRequest:
        """Return a request for messages with their images back, or for ids if they spell a special token."""
        if self.guard is None or self.engine.keeps_ids or not self.guard.count(messages):
            return attrs.evolve(request, messages=self._restored(messages))
        if is_multimodal(messages):
            raise bad_request(SPELLED, "messages")
        render = self.guard.tokenize_fn(request.rendered_with)
        return request.after(await render(messages, add_generation_prompt=True))

    async def _without_calls(
        self, request: SampleRequest, messages: Sequence[Message] | None
    ) -> SampleRequest:
        """Return a request for ids, which show the tools, of whose answer no text is read as a call."""
        shown = request.rendered_with
        if messages is not None:
            if is_multimodal(messages):
                raise bad_request(UNCALLED, "tool_choice")
            request = request.after(await self.render(messages, shown, add_generation_prompt=True))
        return attrs.evolve(request, rendering=attrs.evolve(shown, tools=()))

    async def aclose(self) -> None:
        """Do nothing: the engine is the gateway's."""

    def _restored(self, messages: Sequence[Message]) -> Sequence[Message]:
        return restored(messages, self.media.urls) if self.media.urls else messages
