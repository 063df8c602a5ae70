"""Base class of the engines that render messages and read sampled ids with a family, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from tito_core import Message

from .family_render import check_family, family_as, family_ids
from .protocol import Rendering
from .replies.output_parser import LocalTokenizer, OutputFormat, OutputParser, check_format, choose_parser

if TYPE_CHECKING:
    from tito_io.families.family import Family
    from tito_io.families.tokenizer_family import TokenizerFamily


class WithFamily:
    """Base class of engines whose object or server renders and parses nothing.

    Attributes:
        family: Renders messages and parses sampled ids.
    """

    family: Family | TokenizerFamily

    def _take_family(self, family: Family | TokenizerFamily, output_format: OutputFormat | None) -> None:
        """Keep a family; raises `InputError` where it or the format is invalid."""
        check_format(output_format)
        check_family(family)
        self.family = family
        self._rendered = family_as(family, self)
        self._output_format = output_format
        self._chosen: OutputParser | None = None

    async def render(
        self, messages: Sequence[Message], rendering: Rendering, *, add_generation_prompt: bool
    ) -> list[int]:
        """Return the ids of messages; raises `TemplateRefused` where the chat template rejects them."""
        return await family_ids(
            self._rendered, messages, rendering, add_generation_prompt=add_generation_prompt
        )

    async def output_parser(self) -> OutputParser:
        """Return what reads messages from ids; the vocabulary is asked once."""
        if self._chosen is None:
            self._chosen = await choose_parser(
                LocalTokenizer(self.family), self._output_format, partial(family_ids, self.family)
            )
        return self._chosen
