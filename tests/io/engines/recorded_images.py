"""Exchanges with images, recorded from real servers with tiny models; `recorded_images.jsonl` holds them.

Each line is one exchange, as it was sent and answered. Servers: vLLM 0.32.0 with Qwen2.5-VL, Qwen3-VL,
SmolVLM and Gemma 3, and SGLang 0.5.23 with Qwen2.5-VL, on a CPU. Where a request had `features`, they were
left out here: the adapter never sends any.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

from tito_core.media.ranges import MediaRange
from tito_io.engines.protocol import PromptMedium

EXCHANGES = {
    one["name"]: one
    for one in map(orjson.loads, Path(__file__).with_suffix(".jsonl").read_bytes().splitlines())
}
PAD = 4098
"""The placeholder of the Qwen models."""
SMOL_PAD = 4097
"""The placeholder of SmolVLM."""
GEMMA_PAD = 3073
"""The placeholder of Gemma 3."""


def media_of(name: str, pad: int = PAD, places: Sequence[int] = ()) -> tuple[list[int], list[PromptMedium]]:
    """Return the ids and images of a recorded request; the images are at `places`, or at the first PADs."""
    request = EXCHANGES[name]["request"]
    ids = request.get("token_ids") or request.get("input_ids")
    parts = request.get("content_parts") or [{"url": url} for url in request.get("image_data", ())]
    found = places or [place for place, index in enumerate(ids) if index == pad]
    return ids, [
        medium(part.get("uuid") or f"image {number}", place, part.get("url") or BYTES.get(part["uuid"]), pad)
        for number, (part, place) in enumerate(zip(parts, found, strict=False))
    ]


def medium(
    identity: str, place: int, url: str | None = "data:image/png;base64,aGk=", pad: int = PAD
) -> PromptMedium:
    """Return an image whose placeholder stands at a place."""
    one = MediaRange(modality="image", identity=identity, offset=place, length=1, collapsed=(pad,))
    return PromptMedium(place=one, url=url)


def request_parts(exchange: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the images of a recorded request."""
    found: list[dict[str, Any]] = exchange["request"].get("content_parts", [])
    return found


BYTES = {
    part["uuid"]: part["url"]
    for exchange in EXCHANGES.values()
    for part in request_parts(exchange)
    if part.get("url") and part.get("uuid")
}
"""The data URL of each image that was recorded under a key."""
