"""`TrainClient` of verifiers with the renderer over HTTP: rollouts with tools, cut turns and branches."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from renderers import client
from renderers.configs import BaseRendererConfig
from verifiers.v1 import graph
from verifiers.v1.clients.train import TrainClient
from verifiers.v1.configs.client import TrainClientConfig
from verifiers.v1.dialects.chat import ChatDialect
from verifiers.v1.trace import Trace
from verifiers.v1.types import SamplingConfig, SystemMessage, Tool, ToolMessage, UserMessage

from tests.frameworks.renderers.models import CHOSEN, NAMES, OWN, TOOLS, Model, case_of, model
from tests.frameworks.renderers.server import Generating, embedded, scripted, serving
from tests.model_folders import needs_families

TURNS = 20
BRANCHES = (7, 13)
"""The turns before which a rollout goes back to an earlier one and asks something else."""
CUT = (4, 11)
"""The turns that are cut short."""
WEATHER = Tool.model_validate(TOOLS[0]["function"])


@attrs.define
class Rollout:
    """One rollout of verifiers.

    Attributes:
        client: Renders and samples.
        tools: The tools in every prompt.
        limits: How many ids each turn may have.
        trace: The graph of messages.
        turns: The responses, each with its node.
    """

    client: TrainClient
    tools: list[Tool]
    limits: Sequence[int]
    trace: Any = attrs.field(factory=lambda: Trace.model_construct(nodes=[], tools=[], calls=[]))
    turns: list[tuple[Any, int]] = attrs.field(factory=list)

    async def run(self) -> None:
        """Take all turns."""
        messages: list[Any] = [SystemMessage(content="Be brief."), UserMessage(content="How is the weather?")]
        stations: list[list[Any]] = []
        for turn, limit in enumerate(self.limits):
            if turn in BRANCHES:
                *messages, reply = stations[turn // 3]
                messages = [*messages, reply, *self._after(reply, turn)]
            reply = await self._sample(messages, limit)
            stations.append([*messages, reply])
            messages = [*messages, reply, *self._after(reply, turn)]

    async def _sample(self, messages: list[Any], most: int) -> Any:
        turn = graph.prepare_turn(self.trace, messages, self.tools)
        sampling = SamplingConfig(max_tokens=most)
        response = await self.client.get_response(ChatDialect(), {"model": "model"}, sampling, turn=turn)
        self.turns.append((response, turn.commit(response)))
        return response.message

    def _after(self, reply: Any, turn: int) -> list[Any]:
        """Return tool results if there are calls, else a question; sometimes both."""
        results = [
            ToolMessage(tool_call_id=call.id, name=call.name, content=f"{turn}.{place} C")
            for place, call in enumerate(reply.tool_calls or ())
        ]
        question = UserMessage(content=f"And on day {turn}?")
        return [question] if not results else [*results, question] if turn % 3 == 2 else results


def rolled(
    engine: Generating, one: Model, renderer: BaseRendererConfig, tools: list[Tool], limits: Sequence[int]
) -> Rollout:
    """Return a finished rollout of a client that is configured as in a file."""

    async def run(url: str) -> Rollout:
        fields = {"name": renderer.name, **renderer.model_dump(mode="json", exclude_defaults=True)}
        given = {"renderer": fields, "renderer_model_name": str(one.folder)}
        config = TrainClientConfig.model_validate({"base_url": url, "api_key_var": "NO_KEY", **given})
        rollout = Rollout(TrainClient(config), tools, limits)
        try:
            await rollout.run()
        finally:
            await rollout.client.close()
        return rollout

    with serving(engine) as url:
        return asyncio.run(run(url))


def assert_exact(rollout: Rollout, engine: Generating) -> None:
    """Assert that the graph has the ids that went over the wire, and masks those that were sampled."""
    nodes = rollout.trace.nodes
    assert len(rollout.turns) == len(engine.prompts) == len(engine.replies) == TURNS
    replies = {node: ids for (_, node), ids in zip(rollout.turns, engine.replies, strict=True)}
    assert len(replies) == TURNS
    for (response, last), prompt, reply in zip(rollout.turns, engine.prompts, engine.replies, strict=True):
        assert response.tokens.prompt_ids == prompt
        path = path_to(nodes, last)
        ids = [one for place in path for one in nodes[place].token_ids]
        mask = [one for place in path for one in nodes[place].mask]
        assert ids == [*prompt, *reply]
        sampled = [one for place in path if nodes[place].sampled for one in replies[place]]
        assert [one for one, trained in zip(ids, mask, strict=True) if trained] == sampled
        assert len(nodes[last].logprobs) == len(reply)


def assert_contents(rollout: Rollout, tokenizer: Any) -> None:
    """Assert that what nodes have as content is the content of their messages."""
    given = [node for node in rollout.trace.nodes if node.message.role != "assistant"]
    assert all(node.is_content for node in given)
    for node in given:
        said = [one for one, content in zip(node.token_ids, node.is_content, strict=True) if content]
        assert tokenizer.decode(said).strip() == node.message.content


def path_to(nodes: list[Any], node: int) -> list[int]:
    """Return the nodes from the root on."""
    path = [node]
    while nodes[path[0]].parent is not None:
        path.insert(0, nodes[path[0]].parent)
    return path


def bridged(rollout: Rollout) -> list[bool]:
    """Return which turns after the first went by ids."""
    return [response.tokens.bridged for response, _ in rollout.turns[1:]]


def script(one: Model, *, tools: bool) -> list[list[int]]:
    """Return what a family's model samples, a turn after the other."""
    shapes = ["tool", "user", "two tools" if one.name != "llama3" else "tool", "user"] if tools else ["user"]
    cases = [case_of(shape, one.name) for shape in shapes]
    given = [attrs.evolve(case, tools=TOOLS if tools else None) for case in cases]
    turns = [one.sampled([{"role": "user", "content": "Hello."}], case)[1] for case in given]
    return [turns[place % len(turns)] for place in range(TURNS)]


def scripted_rollout(
    one: Model, config: BaseRendererConfig, *, tools: bool, cut: bool = True
) -> tuple[Rollout, Generating]:
    """Return a rollout over a family's script, and the engine."""
    turns = script(one, tools=tools)
    limits = [len(ids) - 3 if cut and place in CUT else 400 for place, ids in enumerate(turns)]
    stops = one.stops if config.name == "custom" else one.by_hand().get_stop_token_ids()
    engine = Generating(scripted(turns, one.stops), stops)
    rollout = rolled(engine, one, config, [WEATHER] if tools else [], limits)
    assert_exact(rollout, engine)
    return rollout, engine


@pytest.mark.parametrize("seed", range(3))
def test_a_rollout_of_the_embedded_engine_goes_by_ids(seed: int) -> None:
    one = model(OWN)
    engine = Generating(embedded(seed), one.stops)
    config = one.config(thinking_retention="all", on_refusal="raise")
    limits = [9 if place in CUT else 400 for place in range(TURNS)]
    rollout = rolled(engine, one, config, [WEATHER], limits)
    assert_exact(rollout, engine)
    assert_contents(rollout, one.tokenizer)
    assert all(bridged(rollout))
    assert len(graph.leaves(rollout.trace)) == 1 + len(BRANCHES)
    assert {response.finish_reason for response, _ in rollout.turns} == {"stop", "length", "tool_calls"}


@pytest.mark.parametrize("name", NAMES)
def test_every_family_goes_by_ids(name: str) -> None:
    one = model(name)
    rollout, _ = scripted_rollout(one, one.config(thinking_retention="all"), tools=False)
    assert_contents(rollout, one.tokenizer)
    assert all(bridged(rollout))


WITH_TOOLS = ("glm4.5", "llama3", "nemotron3", "qwen3", "qwen3.5")
WITHOUT = ("deepseek-v3", "kimi-k2")
"""Where hand and template agree on whole prompts only if there are no tools; see `test_hand.py`.

DeepSeek's template opens a list of results in the first round of calls only; the one by hand always does.
"""
PAIRS = [
    pytest.param(name, retention, marks=needs_families)
    for name in (*WITH_TOOLS, *WITHOUT)
    if name in CHOSEN
    for retention in ("all", None)
    if (name, retention) != ("glm4.5", None)  # by hand, a missing content beside a call becomes "None"
]


@pytest.mark.parametrize(("name", "retention"), PAIRS)
def test_prompts_are_those_of_the_renderer_by_hand(name: str, retention: Any) -> None:
    one, tools = model(name), name in WITH_TOOLS
    cut = name != "glm4.5"  # whose cut turns the one by hand closes as no template does
    hand = one.by_hand(thinking_retention=retention).config
    own = one.config(thinking_retention=retention)
    other, expected = scripted_rollout(one, hand, tools=tools, cut=cut)
    rollout, engine = scripted_rollout(one, own, tools=tools, cut=cut)
    assert bridged(rollout) == bridged(other)
    assert any(bridged(rollout))
    assert engine.prompts == expected.prompts


def test_what_vllm_0_32_answers_is_read_once_the_ids_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page about renderers names them so."""
    one, parse = model(OWN), client.parse_generate_response

    def parse_named(raw: bytes) -> Any:
        answer = parse(raw)
        for choice in answer["choices"]:
            for entry in choice["logprobs"]["content"]:
                entry.setdefault("token", f"token_id:{entry.get('token_id')}")
        return answer

    def sampled() -> list[list[int]]:
        engine = Generating(embedded(1), one.stops, named=False)
        config = one.config(thinking_retention="all", on_refusal="raise")
        found = rolled(engine, one, config, [WEATHER], [24] * 3)
        return [list(response.tokens.completion_ids) for response, _ in found.turns]

    with pytest.raises(Exception, match=r"logprobs\.content\[0\]\.token must be 'token_id:\d+'"):
        sampled()
    monkeypatch.setattr(client, "parse_generate_response", parse_named)
    assert len(sampled()) == 3
