"""Sessions of rLLM's model gateway in its cumulative token mode, as strictly as its own code; without HTTP.

In rllm-org/rllm 9beb6e0, `rllm-model-gateway/src/rllm_model_gateway`: `server.py` rejects a renderer without
bridges (line 185). `proxy.py` tells a first turn, a turn by ids and a divergence apart (152 to 180), and
keeps the ids and messages of a turn (237, 341). `token_accumulator.py` drops the assistant's messages (34),
compares the messages before (86) and asks the renderer (145). The wheel of 0.1.0 on the package index is
older and has no such mode.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from attrs import define, field

Chat = Callable[[list[Any], Any], list[int]]
"""Renders messages with tools into the ids of a prompt, as the engine's chat route does."""


@define
class Session:
    """One session of an agent.

    Attributes:
        renderer: Builds the next prompts.
        chat: The engine's chat route.
        by_ids: For each turn whether its prompt went by ids.
    """

    renderer: Any
    chat: Chat
    by_ids: list[bool] = field(factory=list)
    _ids: tuple[list[int], list[int]] | None = None
    _before: list[str] = field(factory=list)

    def __attrs_post_init__(self) -> None:
        if type(self.renderer).__name__ == "DefaultRenderer":
            raise ValueError("DefaultRenderer provides no bridge between turns")

    def turn(self, messages: Sequence[Any], tools: Any, sampled: list[int]) -> list[int]:
        """Return the prompt of a turn, after which `sampled` is sampled."""
        said = [json.dumps(one, sort_keys=True, ensure_ascii=False) for one in messages]
        prompt = self._extended(messages, said, tools)
        self.by_ids.append(prompt is not None)
        if prompt is None:
            prompt = self.chat(list(messages), tools)
        self._ids, self._before = (list(prompt), list(sampled)), said
        return prompt

    def _extended(self, messages: Sequence[Any], said: list[str], tools: Any) -> list[int] | None:
        count = len(self._before)
        if self._ids is None or len(said) <= count or said[:count] != self._before:
            return None
        new = [one for one in messages[count:] if one.get("role") != "assistant"]
        if not new:
            return None
        rendered = self.renderer.bridge_to_next_turn(*self._ids, new, tools=tools)
        return None if rendered is None else list(rendered.token_ids)
