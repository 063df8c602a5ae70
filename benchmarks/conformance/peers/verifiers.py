"""The message graph of verifiers' training client, with the renderer that it takes for unknown models."""

from __future__ import annotations

from typing import Any

from renderers import create_renderer
from renderers.configs import DefaultRendererConfig
from verifiers.v1 import types
from verifiers.v1.clients.train import _is_valid_incremental_tail
from verifiers.v1.graph import MessageNode, prepare_turn
from verifiers.v1.trace import Trace

from benchmarks.conformance.asked import Asked, NotOffered, typed

PACKAGE, OPERATION = "verifiers", "the message graph and bridge of the training client"


def next_prompt(asked: Asked) -> list[int] | None:
    """Match the request against the graph, and bridge from the ids of the matched nodes."""
    turn = prepare_turn(trace(asked), [message_of(message) for message in asked.question["messages"]])
    tail = asked.question["messages"][turn.tail_start :]
    previous = turn.previous_renderer_token_ids() if _is_valid_incremental_tail(tail) else None
    if previous is None:
        return None
    renderer = create_renderer(asked.tokenizer, DefaultRendererConfig(**asked.arguments))
    tools = None if asked.tools is None else list(asked.tools)
    found = renderer.bridge_to_next_turn(*previous, tail, tools=tools)
    return None if found is None else list(found.token_ids)


def trace(asked: Asked) -> Trace:
    """Return the graph of the trajectory's steps; new ids of a prompt are those of its first new message."""
    nodes: list[MessageNode] = []
    for step in asked.question["trajectory"]:
        parent, known = None, 0
        prompt, sampled = list(step["prompt_ids"]), list(step["sampled_ids"])
        for data in step["messages"]:
            message = message_of(data)
            same = [at for at, one in enumerate(nodes) if (one.parent, one.message) == (parent, message)]
            if same:
                parent, known = same[-1], known + len(nodes[same[-1]].token_ids)
                continue
            node = {"parent": parent, "message": message, "token_ids": prompt[known:], "tools": []}
            known = len(prompt)
            nodes.append(MessageNode.model_construct(**node, mask=[False] * len(node["token_ids"])))
            parent = len(nodes) - 1
        scaffold = prompt[known:]
        mask = [*([False] * len(scaffold)), *([True] * len(sampled))]
        answer = {"parent": parent, "message": message_of(step["turn"]), "sampled": True, "tools": []}
        nodes.append(MessageNode.model_construct(**answer, token_ids=[*scaffold, *sampled], mask=mask))
    return Trace.model_construct(nodes=nodes)


def message_of(data: dict[str, Any]) -> Any:
    """Return a message as verifiers has it."""
    if data["role"] == "assistant" and isinstance(data.get("content"), list):
        raise NotOffered("assistant messages with lists of parts")
    return typed(types, data)
