"""`renderers`, and the message graph of `verifiers` 0.4 that goes on from it."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from importlib import import_module
from importlib.metadata import version
from typing import Any

from benchmarks.clock import Prepare, Work
from benchmarks.peers.given import Given, serve

BRIDGE = "renderers: bridge"
RENDER = "renderers: render all"
GRAPH = "verifiers 0.4: graph and bridge"


@lru_cache(maxsize=1)
def renderer(folder: str) -> Any:
    """Return the renderer of Qwen3 that goes on over user messages, which by default it does not."""
    tokenizer = import_module("transformers").AutoTokenizer.from_pretrained(folder)
    config = import_module("renderers.configs").Qwen3RendererConfig(thinking_retention="all")
    return import_module("renderers").create_renderer(tokenizer, config)


def bridge(given: Given) -> Work:
    """Go on from ids; nothing is matched."""
    speaks = renderer(str(given.folder))
    return lambda: _ids(speaks.bridge_to_next_turn(given.prompt_ids, given.completion_ids, [given.asked]))


def render(given: Given) -> Work:
    """Render and tokenize the whole prompt."""
    speaks, prompt = renderer(str(given.folder)), given.prompt
    return lambda: _ids(speaks.render(prompt, add_generation_prompt=True))


def graph(given: Given) -> Work:
    """Match the prompt's messages, gather the ids before, and go on from them."""
    speaks, trace, prompt = renderer(str(given.folder)), _trace(given), [_typed(m) for m in given.prompt]
    prepare_turn: Callable[..., Any] = import_module("verifiers.v1.graph").prepare_turn

    def work() -> list[int] | None:
        turn = prepare_turn(trace, prompt)
        before = turn.previous_renderer_token_ids()
        return None if before is None else _ids(speaks.bridge_to_next_turn(*before, [given.asked]))

    prepare_turn(trace, prompt[:1])  # a rollout has its index of heads
    return work


def _ids(rendered: Any) -> list[int] | None:
    return None if rendered is None else rendered.token_ids


def _typed(message: dict[str, Any]) -> Any:
    types = import_module("verifiers.v1.types")
    kind = types.UserMessage if message["role"] == "user" else types.AssistantMessage
    return kind(content=message["content"])


def _trace(given: Given) -> Any:
    """Return the graph of a rollout, its nodes made at once: committing them takes the history each time."""
    nodes, start = [], 0
    node = import_module("verifiers.v1.graph").MessageNode
    ids = given.prompt_ids + given.completion_ids
    for place, (message, count) in enumerate(zip(given.messages, given.counts, strict=True)):
        part, sampled = ids[start : start + count], message["role"] == "assistant"
        parent = place - 1 if place else None
        nodes.append(
            node.model_construct(
                parent=parent,
                message=_typed(message),
                sampled=sampled,
                token_ids=part,
                mask=[sampled] * count,
            )
        )
        start += count
    return import_module("verifiers.v1.trace").Trace.model_construct(nodes=nodes)


def programs(given: Given) -> dict[str, Prepare]:
    """Return the programs; each needs a model folder."""
    made = {BRIDGE: bridge, GRAPH: graph, RENDER: render}
    return {name: partial(one, given) for name, one in made.items()} if given.folder else {}


if __name__ == "__main__":
    serve(programs, [f"{name} {version(name)}" for name in ("renderers", "verifiers")])
