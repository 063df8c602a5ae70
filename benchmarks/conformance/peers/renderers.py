"""The renderer that `renderers` takes for a model that it does not know."""

from __future__ import annotations

from renderers import create_renderer
from renderers.configs import DefaultRendererConfig

from benchmarks.conformance.asked import Asked

PACKAGE, OPERATION = "renderers", "`bridge_to_next_turn` of the default renderer"


def next_prompt(asked: Asked) -> list[int] | None:
    """Bridge from prompt and completion to the next turn."""
    renderer = create_renderer(asked.tokenizer, DefaultRendererConfig(**asked.arguments))
    step = asked.step
    tools = None if asked.tools is None else list(asked.tools)
    found = renderer.bridge_to_next_turn(step["prompt_ids"], step["sampled_ids"], asked.new, tools=tools)
    return None if found is None else list(found.token_ids)
