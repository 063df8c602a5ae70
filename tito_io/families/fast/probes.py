"""The rendered texts of the kernel's questions to a chat template."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from tito_core import InputError, Message, TemplateRefused, TokenizeError
from tito_core.seams.probe import probe

TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": 'Größe & "Ort" <in> 東京, \\n',
        "parameters": {"type": "object", "properties": {"b": {"type": "number", "default": 1.50}, "ä": {}}},
    },
}


class Asked(Protocol):
    """A family: what renders, and encodes."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The ids that end a turn."""

    def text(
        self, messages: Sequence[Message], *, tools: Any = None, add_generation_prompt: bool = False
    ) -> str:
        """Return the text of messages."""

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text."""


def probed_texts(family: Asked) -> Iterator[str]:
    """Yield what the template writes when it is asked for its profile, without tools and with one.

    A template that refuses a question is asked no further.
    """
    for tools in (None, [TOOL]):
        texts: list[str] = []
        with suppress(InputError, TemplateRefused, TokenizeError):
            probe(partial(_recorded, family, tools, texts), family.stop_ids)
        yield from texts


def _recorded(
    family: Asked, tools: Any, texts: list[str], messages: Sequence[Message], *, add_generation_prompt: bool
) -> list[int]:
    texts.append(family.text(messages, tools=tools, add_generation_prompt=add_generation_prompt))
    return family.encode(texts[-1])
