"""Tools stay in the prompt of a turn that may not call them, where the engine's own server keeps them.

Agents ask for a summary with the messages and tools of the turn before and `tool_choice: "none"`, so that the
prompt keeps its beginning (Hermes Agent and oh-my-pi, at 235,000 ids and more).
"""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.io.embedded.embedded_client import WEATHER
from tests.io.serve.gateway import HELLO, Scripted, Talk, embedded_gateway, scripted_gateway, talking, user
from tito_core import InputError
from tito_io.embedded import TIDY, family
from tito_io.engines.registry import EngineOptions, make_engine
from tito_io.serve.gateway import GatewayOptions, build_gateway
from tito_io.serve.stores import MemoryStore

pytestmark = pytest.mark.anyio
CALLING = attrs.evolve(TIDY, tool_calls=1.0)
"""An embedded engine that calls a tool in each turn whose prompt has tools."""
WANTED: dict[str, Any] = {"tools": [WEATHER], "max_tokens": 200}
KEEP, EXCLUDE = (GatewayOptions(keep_forbidden_tools=keep) for keep in (True, False))
SHOWN = {
    "vllm": True,  # without --exclude-tools-when-tool-choice-none
    "lmdeploy": True,
    "tensorrt-llm": True,
    "llamacpp": True,
    "sglang": False,
    "dynamo": False,  # with its --exclude-tools-when-tool-choice-none, which is on
}
"""Whether each engine's server keeps the tools, without options."""


def answered(message: Any) -> list[Any]:
    """Return a message with what answers it: results of its calls, or a question."""
    calls = message.get("tool_calls") or ()
    return [message, *({"role": "tool", "tool_call_id": one["id"], "content": "sunny"} for one in calls)]


async def asked_for_a_summary(talk: Talk, **more: Any) -> list[Any]:
    """Take a turn with a call, a summary, and one more turn; return the messages of the last prompt."""
    prompt = [*HELLO, *answered(await talk.said(HELLO, **WANTED)), user("Sum up.")]
    prompt += [await talk.said(prompt, **WANTED, tool_choice="none", **more), user("Go on.")]
    await talk.said(prompt, **WANTED)
    return prompt


async def test_a_summary_and_the_turn_after_it_go_by_ids() -> None:
    async with talking(embedded_gateway(fault_rates=CALLING)) as talk:
        prompt = await asked_for_a_summary(talk)
        commits = await talk.commits()
    assert [commit.origin.route for commit in commits] == ["MITO", "TITO", "TITO"]
    assert len({commit.step.key for commit in commits}) == 1
    summary = prompt[-2]
    assert "tool_calls" not in summary
    assert "<tool_call>" in summary["content"]  # what the model sampled is text, as vLLM has it


FUNCTION: Any = WEATHER["function"]
NAME, SCHEMA = FUNCTION["name"], FUNCTION["parameters"]
FORBIDDING: dict[str, dict[str, Any]] = {
    "/v1/messages": {
        "model": "m",
        "messages": HELLO,
        "max_tokens": 200,
        "tools": [{"name": NAME, "input_schema": SCHEMA}],
        "tool_choice": {"type": "none"},
    },
    "/v1/responses": {
        "input": HELLO,
        "max_output_tokens": 200,
        "tools": [{"type": "function", "name": NAME, "parameters": SCHEMA}],
        "tool_choice": "none",
        "stream": True,
    },
    "/v1/models/m:generateContent": {
        "contents": [{"role": "user", "parts": [{"text": HELLO[0]["content"]}]}],
        "tools": [{"functionDeclarations": [{"name": NAME, "parameters": SCHEMA}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "NONE"}},
        "generationConfig": {"maxOutputTokens": 200},
    },
}


@pytest.mark.parametrize("path", FORBIDDING)
async def test_each_api_reads_no_call_of_a_turn_that_may_not_call(path: str) -> None:
    async with talking(embedded_gateway(fault_rates=CALLING)) as talk:
        text = (await talk.post(FORBIDDING[path], path)).text
        (commit,) = await talk.commits()
    assert "<tool_call>" in text
    assert not any(word in text for word in ("tool_use", "functionCall", '"type":"function_call"'))
    assert NAME in (commit.step.key or "")


async def test_tools_are_left_out_where_the_operator_says_so() -> None:
    async with talking(embedded_gateway(choices=EXCLUDE, fault_rates=CALLING)) as talk:
        await asked_for_a_summary(talk)
        commits = await talk.commits()
    assert [commit.origin.refusal for commit in commits][1] == "RENDERED_DIFFERENTLY"
    assert "tools" not in (commits[1].step.key or "")


@pytest.mark.parametrize("choices", [KEEP, EXCLUDE])
async def test_a_summary_that_goes_by_messages_is_rendered_as_the_operator_says(
    choices: GatewayOptions,
) -> None:
    """The engine reads no call of a turn whose rendering has no tools."""
    async with talking(Scripted(), choices=choices) as talk:
        await talk.said(HELLO, **WANTED, tool_choice="none")
    (way, prompt, _), (rendering,) = talk.engine.asked[0], talk.engine.renderings
    assert not rendering.tools
    assert (way, prompt[:2] == [3, 1]) == (("ids", True) if choices is KEEP else ("messages", False))


@pytest.mark.parametrize("name", SHOWN)
def test_tools_are_kept_as_the_engine_s_own_server_keeps_them(name: str) -> None:
    options = EngineOptions(base_url="http://engine", family=family(), seed=0, model="m")
    gateway = build_gateway(make_engine(name, options), MemoryStore(), model="m")
    assert gateway.turns.keeps_forbidden_tools is SHOWN[name]


def test_an_engine_that_renders_itself_keeps_or_drops_tools_by_itself() -> None:
    with pytest.raises(InputError, match="leave --tools-when-tool-choice-none out"):
        scripted_gateway(Scripted(keeps_ids=True), choices=KEEP)
