"""Processors for frameworks that hand over a tokenizer alone, and images as processors take them."""

from __future__ import annotations

import binascii
import logging
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from io import BytesIO
from typing import Any

from tito_core import InputError
from tito_core.checks import short_repr
from tito_core.normalization.media import DATA

_LOG = logging.getLogger("tito.integrations")


def processor_of(tokenizer: Any, template: str | None = None) -> Any | None:
    """Return the processor from the folder or repository of a tokenizer; None for a model without images.

    It is looked for only if a template has the word "image", so that nothing is loaded for a text model. One
    that cannot be loaded is logged as a warning.

    Args:
        tokenizer: A tokenizer of `transformers`, which becomes the processor's own.
        template: The text of a template to look at, beside those of the tokenizer.
    """
    name = getattr(tokenizer, "name_or_path", None)
    own = getattr(tokenizer, "chat_template", None)
    texts = [template or "", *(own.values() if isinstance(own, Mapping) else [own or ""])]
    if not name or not any("image" in text for text in texts):
        return None
    try:
        found = import_module("transformers").AutoProcessor.from_pretrained(name)
    except Exception as error:  # noqa: BLE001  # loading runs code of any model, and a text needs no processor
        _LOG.warning("images will be refused: no processor can be loaded: %.300s", error)
        return None
    if getattr(found, "image_processor", None) is None:
        return None
    found.tokenizer = tokenizer
    return found


def opened(image: Any) -> Any:
    """Return an image of PIL in RGB; it is given as one, as bytes, or as a data URL in base64.

    Raises `InputError` for anything else, such as an address, and for bytes that are no image.
    """
    library: Any = import_module("PIL.Image")
    if not isinstance(image, library.Image):
        try:
            image = library.open(BytesIO(_bytes_of(image)))
        except OSError as error:  # what Pillow raises for bytes that it cannot read
            raise InputError(f"an image is not readable: {error!s:.100}") from error
    return image if image.mode == "RGB" else image.convert("RGB")


def _bytes_of(image: Any) -> bytes:
    if isinstance(image, bytes | bytearray):
        return bytes(image)
    header, comma, body = image.partition(",") if isinstance(image, str) else ("", "", "")
    if comma and header[:5].lower() == DATA and header.lower().endswith(";base64"):
        try:
            return binascii.a2b_base64(body, strict_mode=True)
        except ValueError as error:
            raise InputError(f"a data URL is not in base64: {error}") from error
    kind = "an address" if isinstance(image, str) else short_repr(type(image).__name__)
    raise InputError(f"an image is {kind}: give an image of PIL, its bytes, or a data URL in base64")


def items(inputs: Mapping[str, Any], count: int) -> list[dict[str, Any]] | None:
    """Return what a processor made of each of `count` images; None if the arrays do not say which is whose.

    >>> items({"pixel_values": [[1], [2]]}, 2)
    [{'pixel_values': [[1]]}, {'pixel_values': [[2]]}]
    >>> items({"pixel_values": [[1], [2], [3]]}, 2) is None
    True
    """
    if count == 1:
        return [dict(inputs)]
    if not all(_has(value, count) for value in inputs.values()):
        return None
    return [{name: value[at : at + 1] for name, value in inputs.items()} for at in range(count)]


def _has(value: Any, count: int) -> bool:
    return hasattr(value, "__len__") and hasattr(value, "__getitem__") and len(value) == count


def repeated(values: Sequence[Any], ranges: Iterable[tuple[int, int, int]]) -> list[Any]:
    """Return values of collapsed ids for the expanded ones.

    Each range is the offset and length of a placeholder and the length of what it becomes, which has the
    placeholder's first value.

    >>> repeated(["a", "b", "c"], [(1, 1, 3)])
    ['a', 'b', 'b', 'b', 'c']
    """
    found: list[Any] = []
    end = 0
    for offset, length, grown in ranges:
        found += [*values[end:offset], *[values[offset]] * grown]
        end = offset + length
    return [*found, *values[end:]]
