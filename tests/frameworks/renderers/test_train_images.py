"""`TrainClient` of verifiers with images: prompts of placeholders, which the engine expands."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from verifiers.v1 import graph
from verifiers.v1.clients.train import TrainClient
from verifiers.v1.configs.client import TrainClientConfig
from verifiers.v1.dialects.chat import ChatDialect
from verifiers.v1.trace import Trace
from verifiers.v1.types import SamplingConfig, SystemMessage, UserMessage

from tests.frameworks.renderers.models import PATH
from tests.frameworks.renderers.server import Generating, scripted, serving
from tests.frameworks.renderers.test_images import processor, url
from tests.frameworks.renderers.test_train_client import path_to
from tests.processors.shapes import drawn

REPLIES = ("I see.", "Yes.", "No, a", "Two.")
CUT = 2


def asking(*parts: str) -> Any:
    """Return a question; the names of images among its parts are images."""
    content = [
        {"type": "image_url", "image_url": {"url": url(drawn(part))}}
        if part in ("wide", "tall")
        else {"type": "text", "text": part}
        for part in parts
    ]
    return UserMessage.model_validate({"content": content})


async def rollout(base_url: str, folder: Path) -> tuple[Any, list[Any]]:
    """Return a trace, and the responses of its turns with their nodes."""
    renderer = {"name": "custom", "import_path": PATH, "thinking_retention": "all", "on_refusal": "raise"}
    given = {"base_url": base_url, "api_key_var": "NO_KEY", "renderer_model_name": str(folder)}
    client = TrainClient(TrainClientConfig.model_validate({**given, "renderer": renderer}))
    trace: Any = Trace.model_construct(nodes=[], tools=[], calls=[])
    turns: list[Any] = []
    messages: list[Any] = [SystemMessage(content="Be brief.")]
    for question in (asking("wide", "A?"), asking("B?"), asking("tall", "C?"), asking("D?", "wide")):
        messages.append(question)
        turn = graph.prepare_turn(trace, messages, [])
        sampling = SamplingConfig(max_tokens=50)
        response = await client.get_response(ChatDialect(), {"model": "model"}, sampling, turn=turn)
        turns.append((response, turn.commit(response)))
        messages.append(response.message)
    await client.close()
    return trace, turns


def test_a_rollout_with_images_goes_by_ids(tmp_path: Path) -> None:
    given = processor("llava")
    given.save_pretrained(tmp_path)
    tokenizer = given.tokenizer
    stop = tokenizer.convert_tokens_to_ids("<|im_end|>")
    letters = [[index for one in text for index in tokenizer.encode(one)] for text in REPLIES]
    said = [[*ids, stop] if place != CUT else ids for place, ids in enumerate(letters)]
    engine = Generating(scripted(said, [stop]), [stop], placeholder=given.image_token_id)
    with serving(engine) as base_url:
        trace, turns = asyncio.run(rollout(base_url, tmp_path))
    assert [response.tokens.bridged for response, _ in turns] == [False, True, True, True]
    assert [len(urls) for urls in engine.urls] == [1, 1, 2, 3]
    for ways in (engine.prompts, engine.expanded):
        for before, reply, prompt in zip(ways, said, ways[1:], strict=False):
            assert prompt[: len(before) + len(reply)] == [*before, *reply]
    for (response, node), prompt, reply in zip(turns, engine.expanded, said, strict=True):
        assert response.tokens.prompt_ids == prompt
        path = path_to(trace.nodes, node)
        assert [one for place in path for one in trace.nodes[place].token_ids] == [*prompt, *reply]
        sampled = [place for place in path if trace.nodes[place].sampled]
        trained = [one for place in path for one in trace.nodes[place].mask]
        assert sum(trained) == sum(len(said[number]) for number in range(len(sampled)))
    assert trace.mm_token_type_id_map == {given.image_token_id: 1}
