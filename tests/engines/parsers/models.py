"""The models of the output formats: real tokenizers and chat templates, and what tito reads with them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import attrs

from tests.model_folders import FAMILIES
from tito_core import Message
from tito_io.engines.protocol import Rendering
from tito_io.engines.replies.output_parser import LocalTokenizer, choose_parser
from tito_io.families import Family
from tito_io.families.folder import Folder

from .outputs import CUT, FORMATS, LETTERS, TOOLS, Format

Answer = Mapping[str, Any]
"""What was read: content, reasoning and calls, each as name and arguments; what is empty is left out."""


@cache
def _loaded(folder: str, template: str) -> Family:
    return Family.load(FAMILIES / folder, template=template)


@attrs.frozen
class Model:
    """A format with a model that writes it."""

    format: Format
    family: Family

    @classmethod
    def load(cls, name: str) -> Model:
        """Load the model of a format; a folder's tokenizer is loaded once."""
        given = FORMATS[name]
        loaded = _loaded(given.folder[0], "chat_template.jinja")
        chosen = Folder.read(FAMILIES / given.folder[0]).chosen(given.template)
        return cls(given, loaded.with_templates(chosen))

    def ids(self, messages: Sequence[Message], tools: Sequence[Any] = TOOLS, **options: bool) -> list[int]:
        """Return the ids of a conversation."""
        return self.family.ids(messages, tools=list(tools), **self.format.arguments, **options)

    @property
    def prompt(self) -> list[int]:
        """The ids of a prompt."""
        return self.ids([{"role": "user", "content": "?"}], add_generation_prompt=True)

    def sampled(self) -> Iterator[tuple[str, list[int], list[int]]]:
        """Yield each output by its name: its ids, and what stopped it."""
        for name, text in self.format.outputs().items():
            said, stop = text.removesuffix(CUT), list(self.family.stop_ids[:1])
            if self.format.say != "@text":
                end = re.search(r"<\|(?:end|call|return)\|>$|$", text)
                said = said[: end.start()] if end else said
                stop = self.family.encode("<|call|>" if text.endswith("<|call|>") else "<|return|>")
            ids = [index for part in said.split(LETTERS) for index in self.family.encode(part)]
            yield name, ids, [] if text.endswith(CUT) else stop

    async def read(self) -> dict[str, Answer]:
        """Return what tito reads in each output."""

        async def render(messages: Sequence[Message], given: Rendering, **options: bool) -> Sequence[int]:
            return self.ids(messages, given.tools, **options)

        tokenizer, rendering = LocalTokenizer(self.family), Rendering(tools=tuple(TOOLS))
        parser, prompt = await choose_parser(tokenizer, None, render), self.prompt
        await parser.ready(None, rendering, prompt)
        answers: dict[str, Answer] = {}
        for name, ids, stop in self.sampled():
            said = self.family.decode(ids)
            found = await parser.parsed(prompt, [*ids, *stop], said, whole=True, rendering=rendering)
            answers[name] = {
                "content": found.content,
                "reasoning": found.reasoning or "",
                "calls": [list(call) for call in found.calls],
            }
        return answers
