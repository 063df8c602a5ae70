"""Find the placeholder that a model folder's chat template writes for an image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from os import PathLike
from typing import Any

from tito_core import InputError

from .family import Family
from .folder import settings
from .placeholders import written_placeholder

FILES = ("config.json", "processor_config.json", "tokenizer_config.json", "preprocessor_config.json")
"""Where model folders name the placeholder, in the order in which they are believed."""
KEYS = ("image_token_id", "image_token_index", "image_token", "boi_token")
"""How they name it: an id, or a text. Some name ids that only the expanded prompt has."""


def image_placeholder(family: Family, **template_args: Any) -> dict[str, list[int]]:
    """Return the ids that the template writes for an image, as `TokenClient(media=...)` takes them.

    The folder's files name candidates, of which the template is asked for one that it writes exactly once for
    each image. Without such a one the result is empty, and images go by messages.

    Args:
        family: The model folder, loaded.
        template_args: Arguments of the template.

    Raises:
        InputError: `family` is a path.
        FolderError: A file is malformed.
    """
    if isinstance(family, str | PathLike):
        raise InputError(f"family is {str(family)!r:.60}: give Family.load({str(family)!r:.60})")
    run = written_placeholder(family.tokenize_fn(**template_args), placeholder_candidates(family))
    return {} if run is None else {"image": list(run)}


def placeholder_candidates(family: Family) -> dict[str, list[int]]:
    """Return the ids that a model folder's files name for images, by the key that names them."""
    found: dict[str, list[int]] = {}
    for file in reversed(FILES):  # of two files with one key the first of `FILES` comes last, and counts
        for key, value in _named(settings(family.path / file)):
            if type(value) is int and value >= 0:
                found[key] = [value]
            elif isinstance(value, str):
                found[key] = family.encode(value)
    return found


def _named(config: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield the keys and tokens of a file; a token is a text, or an object that has it."""
    extra = config.get("extra_special_tokens")
    for holder in (config, extra if isinstance(extra, Mapping) else {}):
        for key in KEYS:
            value = holder.get(key)
            yield key, value.get("content") if isinstance(value, Mapping) else value
