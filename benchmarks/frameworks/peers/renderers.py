"""The renderers that `renderers` has by hand, its default where it has none, and tito's."""

from __future__ import annotations

from functools import partial
from typing import Any

from renderers import config_from_name, create_renderer
from renderers.configs import CustomRendererConfig, DefaultRendererConfig

from benchmarks.frameworks.turns import Extend, Turn
from tests.frameworks.renderers.models import HAND, OF_DEFAULT, PATH, write_harmony
from tests.frameworks.turns import stop_ids
from tests.model_folders import FAMILIES

ALL = {"thinking_retention": "all"}
"""Reasoning stays: else the conversation is rendered again after each question, which says nothing of ids."""


def own(tokenizer: Any, family: str) -> Extend:
    """Return the bridge of the renderer that is made for the family, or of the default one."""
    if family == "gpt-oss":
        write_harmony(FAMILIES / family)
    by_hand = type(config_from_name(HAND[family]))(**ALL) if family in HAND else DefaultRendererConfig()
    return partial(bridge, create_renderer(tokenizer, by_hand))


def tito(tokenizer: Any, family: str) -> Extend:
    """Return the bridge of tito's renderer; one of the package's parsers reads the turn where it has one."""
    if family == "gpt-oss":
        write_harmony(FAMILIES / family)
    parsers = {"tool_parser": "qwen3", "reasoning_parser": "think"} if family in OF_DEFAULT else {}
    options = {"parser": HAND[family]} if family in HAND else parsers
    config = CustomRendererConfig(
        import_path=PATH, stop_ids=list(stop_ids(family)), on_refusal="raise", **options, **ALL
    )
    renderer, rendered = create_renderer(tokenizer, config), set[str]()

    def extend(turn: Turn) -> list[int] | None:
        if turn.prompt.case not in rendered:  # a caller has had the prompt from the renderer
            rendered.add(turn.prompt.case)
            history, tools = list(turn.prompt.history), turn.prompt.tools
            renderer.render_ids(history, tools=tools, add_generation_prompt=True)
        return bridge(renderer, turn)

    return extend


def bridge(renderer: Any, turn: Turn) -> list[int] | None:
    """Return the ids of the next turn, or None if the caller renders again."""
    prompt, completion = turn.ids[: turn.start], turn.ids[turn.start :]
    new, tools = list(turn.prompt.new), turn.prompt.tools
    found = renderer.bridge_to_next_turn(prompt, completion, new, tools=tools)
    return None if found is None else list(found.token_ids)
