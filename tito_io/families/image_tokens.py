"""What a model folder's chat template writes for an image: the ids that a client needs for images by ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tito_core import TemplateRefused
from tito_core.media import places

from .family import Family
from .folder import settings

FILES = ("config.json", "processor_config.json", "tokenizer_config.json", "preprocessor_config.json")
"""Where model folders name the placeholder, in the order in which they are believed."""
KEYS = ("image_token_id", "image_token_index", "image_token", "boi_token")
"""How they name it: an id, or a text. Some name ids that only the expanded prompt has."""
IMAGE = {"type": "image"}
TEXT = {"type": "text", "text": "What is it?"}


def image_placeholder(family: Family, **template_args: Any) -> dict[str, list[int]]:
    """Return the ids that the template writes for an image, as `TokenClient(media=...)` takes them.

    The folder's files name candidates. The one that counts is the first that the template writes exactly once
    for each image, and nowhere else. Without such a one the result is empty, and images go by messages.

    Args:
        family: The model folder, loaded.
        template_args: Arguments of the template.

    Raises:
        FolderError: A file is malformed.
    """
    try:
        renders = [
            family.ids([{"role": "user", "content": [*[IMAGE] * count, TEXT]}], **template_args)
            for count in range(3)
        ]
    except TemplateRefused:
        return {}
    for ids in _candidates(family):
        if ids and [len(list(places(tuple(ids), render))) for render in renders] == [0, 1, 2]:
            return {"image": ids}
    return {}


def _candidates(family: Family) -> Iterator[list[int]]:
    for name in FILES:
        for value in _named(settings(family.path / name)):
            if type(value) is int and value >= 0:
                yield [value]
            elif isinstance(value, str):
                yield family.encode(value)


def _named(config: Mapping[str, Any]) -> Iterator[object]:
    """Yield what a file names; a token is a text, or an object that has it."""
    extra = config.get("extra_special_tokens")
    for holder in (config, extra if isinstance(extra, Mapping) else {}):
        for key in KEYS:
            value = holder.get(key)
            yield value.get("content") if isinstance(value, Mapping) else value
