"""The renderer of an audit: a protocol to render messages and to decode ids."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from ..message import Message


class Renderer(Protocol):
    """Renders messages through a family's chat template, and decodes ids."""

    @property
    def markers(self) -> Collection[int]:
        """The ids that the template writes at the borders of turns."""

    def ids(
        self, messages: Sequence[Message], key: str | None, *, add_generation_prompt: bool
    ) -> Sequence[int]:
        """Return the ids of `messages`.

        Args:
            messages: The conversation, with `{"type": "image"}` in place of an image. Its ids are then those
                of the template's placeholder, not those that an engine or a processor makes of it.
            key: Tools and arguments to render with, from `render_key`; None for the renderer's own.
            add_generation_prompt: Whether to end with the opening of an assistant's turn.

        Raises:
            TemplateRefused: The template rejects the messages.
        """

    def text(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`, with special tokens."""
