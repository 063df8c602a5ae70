"""An agent of CAMEL: `URL WAY TASK`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from camel.agents import ChatAgent
from camel.models import ModelFactory
from camel.types import ModelPlatformType
from camel.utils import BaseTokenCounter


class Letters(BaseTokenCounter):
    """Counts letters: the usual counter downloads its vocabulary."""

    def count_tokens_from_messages(self, messages: Any) -> int:
        """Return the number of letters of messages."""
        return len(str(messages))

    def encode(self, text: str) -> list[int]:
        """Return a number for each letter."""
        return list(map(ord, text))

    def decode(self, token_ids: list[int]) -> str:
        """Return the text of such numbers."""
        return "".join(map(chr, token_ids))


def read_note(path: str, lines: int) -> str:
    """Read the first lines of a note.

    Args:
        path (str): The note.
        lines (int): How many.
    """
    return "".join(Path(path).read_text().splitlines(keepends=True)[:lines])


url, _, task = sys.argv[1:]
model = ModelFactory.create(
    model_platform=ModelPlatformType.OPENAI_COMPATIBLE_MODEL,
    model_type="any",
    url=f"{url}/v1",
    api_key="none",
    token_counter=Letters(),
)
print(ChatAgent("Be brief.", model=model, tools=[read_note]).step(task).msgs[0].content)
