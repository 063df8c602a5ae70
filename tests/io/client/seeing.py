"""A toy engine that takes images beside ids, and refuses what a real one would attract an image to."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any

import anyio
import attrs

from tests.core.pictures import CLOSE, PAD, START
from tito_core import Ids, TemplateRefused
from tito_core.media.expansion import expand
from tito_io.engines.media import check_places, unsupported
from tito_io.engines.protocol import (
    Delta,
    Engine,
    ModelLimits,
    PromptMedium,
    Rendering,
    Reply,
    SampleRequest,
    Usage,
)

MERGED = 400
"""What becomes of the id before an image where the engine merges the two."""


def url(name: str) -> str:
    """Return a data URL whose bytes are a name."""
    return f"data:image/png;base64,{base64.b64encode(name.encode()).decode()}"


def shown(name: str, **more: Any) -> dict[str, Any]:
    """Return an image as a chat has it."""
    return {"type": "image_url", "image_url": {"url": url(name), **more}}


def asking(text: str, *parts: dict[str, Any], role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": [*parts, {"type": "text", "text": text}]}


CAT = asking("What?", shown("cat"))


@attrs.define
class Seeing(Engine):
    """An engine that expands each image to as many ids as its URL has characters, and samples its own count.

    Its requests are kept. It is as strict as `check_places`.
    """

    name: str = "seeing"
    keeps_ids: bool = False
    takes_media: bool = True
    refuses: bool = False
    """Whether it takes no images beside ids."""
    says_ranges: bool = True
    spoils: bool = False
    """Whether it changes an id around the images."""
    answers_stray_placeholders: bool = True
    merges: bool = False
    """Whether the id before an image becomes one with the image's first."""
    pad: int = PAD
    close: int = CLOSE
    encode: Callable[[str], Sequence[int]] = str.encode
    asked: list[tuple[str, Any]] = attrs.field(factory=list)
    watched: list[bool] = attrs.field(factory=list)
    """Whether each turn was watched while it was sampled."""

    async def render(self, messages: Sequence[Any], rendering: Rendering, **_: bool) -> list[int]:
        raise TemplateRefused(f"{len(messages)} messages with {len(rendering.tools)} tools: no renderer here")

    async def sample(self, request: SampleRequest) -> Reply:
        ids, media, watch = list(request.ids or ()), request.media, request.watch
        if media:
            return await self._beside(ids, media, watch)
        self.asked.append(("ids", ids) if request.messages is None else ("messages", list(request.messages)))
        return await self._reply(ids if request.messages is None else [1, 2, 3], None, watch)

    async def _beside(self, ids: list[int], media: Sequence[PromptMedium], watch: Any) -> Reply:
        await anyio.lowlevel.checkpoint()
        if self.refuses:
            raise unsupported(self.name, "takes no media beside ids")
        check_places(Ids.of(ids), media)
        self.asked.append(("media", [one.url for one in media]))
        places = [one.place for one in media]
        if self.merges:
            places = [
                one
                if one.length > 1
                else attrs.evolve(one, offset=one.offset - 1, length=2, collapsed=(START, *one.collapsed))
                for one in places
            ]
        begin = [MERGED] * self.merges
        seen, ranges = expand(ids, places, [[*begin, *[self.pad] * len(one.url or "")] for one in media])
        seen = [*seen[:-1], 5] if self.spoils else seen
        return await self._reply(seen, tuple((one.offset, one.length) for one in ranges), watch)

    async def limits(self) -> ModelLimits:
        return ModelLimits()

    async def aclose(self) -> None:
        self.name = "closed"

    async def _reply(
        self, prompt: list[int], ranges: tuple[tuple[int, int], ...] | None, watch: Any
    ) -> Reply:
        text = f"It is {len(self.asked)}."
        ids = (*self.encode(text), self.close)
        self.watched.append(watch is not None)
        if watch is not None:
            await watch(Delta(ids=ids, text=text))
        return Reply(
            prompt_ids=prompt,
            completion_ids=ids,
            logprobs=(-0.5,) * len(ids),
            message={"role": "assistant", "content": text},
            text=text,
            finish_reason="stop",
            usage=Usage(prompt_tokens=len(prompt), completion_tokens=len(ids)),
            media_ranges=ranges if self.says_ranges else None,
            raw={"prompt_token_ids": prompt},
        )
