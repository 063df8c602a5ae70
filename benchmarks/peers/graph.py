"""Programs of `renderers`, and of the message graph of `verifiers` 0.4, which uses its bridge."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from importlib import import_module
from importlib.metadata import version
from typing import Any

from benchmarks.clock import Prepare, Work
from benchmarks.peers.history_file import HistoryFile, serve

BRIDGE = "renderers: bridge"
RENDER = "renderers: render all"
GRAPH = "verifiers 0.4: graph and bridge"


@lru_cache(maxsize=1)
def renderer(folder: str) -> Any:
    """Return the Qwen3 renderer. Its default configuration does not bridge over user messages."""
    tokenizer = import_module("transformers").AutoTokenizer.from_pretrained(folder)
    config = import_module("renderers.configs").Qwen3RendererConfig(thinking_retention="all")
    return import_module("renderers").create_renderer(tokenizer, config)


def bridge(history: HistoryFile) -> Work:
    """Bridge from the ids of the last call; no messages are matched."""
    qwen = renderer(str(history.folder))
    return lambda: _ids(
        qwen.bridge_to_next_turn(history.prompt_ids, history.completion_ids, [history.question])
    )


def render(history: HistoryFile) -> Work:
    """Render and tokenize the whole prompt."""
    qwen, prompt = renderer(str(history.folder)), history.prompt
    return lambda: _ids(qwen.render(prompt, add_generation_prompt=True))


def graph(history: HistoryFile) -> Work:
    """Match the messages of the prompt, collect the ids of the matched nodes, and bridge from them."""
    qwen, trace, prompt = renderer(str(history.folder)), _trace(history), [_typed(m) for m in history.prompt]
    prepare_turn: Callable[..., Any] = import_module("verifiers.v1.graph").prepare_turn

    def work() -> list[int] | None:
        turn = prepare_turn(trace, prompt)
        before = turn.previous_renderer_token_ids()
        return None if before is None else _ids(qwen.bridge_to_next_turn(*before, [history.question]))

    prepare_turn(trace, prompt[:1])  # a rollout has built its index of heads by now
    return work


def _ids(rendered: Any) -> list[int] | None:
    return None if rendered is None else rendered.token_ids


def _typed(message: dict[str, Any]) -> Any:
    types = import_module("verifiers.v1.types")
    kind = types.UserMessage if message["role"] == "user" else types.AssistantMessage
    return kind(content=message["content"])


def _trace(history: HistoryFile) -> Any:
    """Return the graph of a rollout.

    Its nodes are constructed directly, because committing a turn takes time in proportion to the history.
    """
    nodes, start = [], 0
    node = import_module("verifiers.v1.graph").MessageNode
    ids = history.prompt_ids + history.completion_ids
    for place, (message, count) in enumerate(zip(history.messages, history.counts, strict=True)):
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


def programs(history: HistoryFile) -> dict[str, Prepare]:
    """Return the programs by name; none without a model folder."""
    makers = {BRIDGE: bridge, GRAPH: graph, RENDER: render}
    return {name: partial(one, history) for name, one in makers.items()} if history.folder else {}


if __name__ == "__main__":
    serve(programs, [f"{name} {version(name)}" for name in ("renderers", "verifiers")])
