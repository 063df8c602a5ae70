"""What vLLM is asked for where a turn is constrained, and when it is not asked at all."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs
import httpx2
import pytest

from tests.io.engines.test_grammar import HERMES, written
from tests.io.engines.vllm.vllm_server import (
    PROMPT,
    TAG_IDS,
    chat_answer,
    completion_answer,
    generate_answer,
    mocked,
    serving,
)
from tito_core import InputError
from tito_io.engines.constraint import Constraint
from tito_io.engines.protocol import Delta, Rendering, Sampling, UnsupportedError
from tito_io.engines.vllm import CHAT, COMPLETIONS, GENERATE

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "hello"}]
LOOK = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
TOOLED = Rendering(tools=(LOOK,))
SCHEMA = {"type": "object", "title": "x"}
FORCED = Sampling(max_tokens=9, constraint=Constraint(must_call=("look",), one_call=True))
BOUND = Sampling(max_tokens=9, constraint=Constraint(schema=SCHEMA))
CALLED = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'
XML = "<tool_call>\n<function=NAME>\n<parameter=place>\nWORD\n</parameter>\n</function>\n</tool_call>"


def templated(call: str) -> dict[str, Any]:
    """Return answers of a server whose template writes calls like this."""

    def decoded(_: httpx2.Request, body: Mapping[str, Any]) -> httpx2.Response:
        text = written(call, "\n") if body["tokens"] == [1, 2, 3] else "hi"
        return httpx2.Response(200, json={"prompt": text})

    return {"/detokenize": decoded}


def tag_of(body: Mapping[str, Any]) -> Any:
    """Return the grammar of a request."""
    return json.loads(body["structured_outputs"]["structural_tag"])["format"]


async def test_a_schema_goes_as_it_is_by_messages_and_behind_reasoning_by_ids() -> None:
    def completed(_: httpx2.Request, body: Mapping[str, Any]) -> httpx2.Response:
        return httpx2.Response(200, json=completion_answer(text="{}", prompt=body["prompt"]))

    engine, mock = mocked({CHAT: chat_answer(content="{}"), COMPLETIONS: completed})
    await engine.from_messages(HELLO, Rendering(), BOUND)
    await engine.from_ids(PROMPT, BOUND, Rendering())
    await engine.from_ids((*PROMPT, TAG_IDS["</think>"], 11), BOUND, Rendering())
    [chatted], [fresh, closed] = mock.bodies(CHAT), mock.bodies(COMPLETIONS)
    assert chatted["structured_outputs"] == closed["structured_outputs"] == {"json": SCHEMA}
    assert [part["type"] for part in tag_of(fresh)["elements"]] == ["optional", "json_schema"]


async def test_a_forced_call_goes_in_the_template_s_form() -> None:
    answers = {**templated(HERMES), CHAT: chat_answer(), COMPLETIONS: completion_answer(text=CALLED)}
    engine, mock = mocked(answers)
    await engine.from_messages(HELLO, TOOLED, FORCED)
    await engine.from_ids(PROMPT, FORCED, TOOLED)
    [chatted], [completed] = mock.bodies(CHAT), mock.bodies(COMPLETIONS)
    assert tag_of(chatted)["elements"][0] == {"type": "token", "token": TAG_IDS["<tool_call>"]}
    assert tag_of(completed)["elements"][1] == tag_of(chatted)
    assert "tool_choice" not in chatted
    rendered = [body for path, body in mock.asked if path == "/tokenize" and "messages" in body]
    # The template is asked for its grammar once, and how calls are read twice: this one shows no call.
    assert len(rendered) == 3


@pytest.mark.parametrize(
    ("constraint", "keys"),
    [
        (Constraint(must_call=()), {"tool_choice": "required"}),
        (
            Constraint(must_call=("look",), one_call=True),
            {
                "tool_choice": {"type": "function", "function": {"name": "look"}},
                "parallel_tool_calls": False,
            },
        ),
        (
            Constraint(schema=SCHEMA),
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "answer", "schema": SCHEMA},
                }
            },
        ),
    ],
)
async def test_calls_in_another_form_are_the_server_s_to_force(
    constraint: Constraint, keys: dict[str, Any]
) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    engine, mock = mocked({**templated(XML), CHAT: chat_answer(tool_calls=[call])})
    sampling = attrs.evolve(FORCED, constraint=constraint)
    await engine.from_messages(HELLO, TOOLED, sampling)
    reply = await engine.from_ids(PROMPT, sampling, TOOLED)
    by_messages, by_ids = mock.bodies(CHAT)
    assert {name: by_messages[name] for name in keys} == {name: by_ids[name] for name in keys} == keys
    assert by_ids["kv_transfer_params"] == {"prompt_token_ids": list(PROMPT)}  # still exactly these ids
    assert reply.notices == ("constrained-by-chat",)
    assert mock.bodies(COMPLETIONS) == []


@pytest.mark.parametrize(
    "constraint", [Constraint(must_call=("look", "wait")), Constraint(may_call=("look",))]
)
async def test_some_of_the_tools_cannot_be_named_to_the_server(constraint: Constraint) -> None:
    engine, mock = mocked(templated(XML))
    sampling = attrs.evolve(FORCED, constraint=constraint)
    for turn in (engine.from_messages(HELLO, TOOLED, sampling), engine.from_ids(PROMPT, sampling, TOOLED)):
        with pytest.raises(UnsupportedError, match=r"tool_choice: allowed_tools .* Nothing was sent"):
            await turn
    assert mock.bodies(CHAT) == mock.bodies(COMPLETIONS) == []


async def test_what_the_server_told_apart_comes_at_the_end_of_a_stream() -> None:
    heard: list[Delta] = []

    async def watch(delta: Delta) -> None:
        heard.append(delta)

    engine, _ = mocked({**templated(XML), CHAT: serving(chat_answer((7, 8)))})
    reply = await engine.from_ids(PROMPT, FORCED, TOOLED, watch=watch)
    assert [one for delta in heard for one in delta.ids] == list(reply.completion_ids)
    assert {delta.text for delta in heard} == {""}


async def test_the_generate_route_is_told_that_the_grammar_has_the_reasoning() -> None:
    prompt = (*PROMPT, TAG_IDS["<think>"])
    engine, mock = mocked({GENERATE: generate_answer(prompt=prompt)}, route="generate")
    await engine.from_ids(prompt, BOUND, Rendering())
    [body] = mock.bodies(GENERATE)
    assert body["reasoning_ended"] is True
    parts = [part["type"] for part in tag_of(body["sampling_params"])["elements"]]
    assert parts == ["any_tokens", "token", "regex", "json_schema"]


@pytest.mark.parametrize("parses", [False, True])
async def test_a_server_is_asked_once_whether_it_leaves_reasoning_free(*, parses: bool) -> None:
    prompt = (*PROMPT, TAG_IDS["<think>"])

    def answered(_: httpx2.Request, body: Mapping[str, Any]) -> httpx2.Response:
        probed = body["max_tokens"] == 1
        ids = (7,) if parses or not probed else (TAG_IDS["<think>"],)
        return httpx2.Response(200, json=completion_answer(ids, prompt=prompt, finish_reason="length"))

    engine, mock = mocked({COMPLETIONS: answered})
    for _ in range(2):
        await engine.from_ids(prompt, BOUND, Rendering())
    probe, *turns = mock.bodies(COMPLETIONS)
    assert tag_of(probe)["elements"][0] == {"type": "token", "token": TAG_IDS["<think>"]}
    assert len(turns) == 2
    for body in turns:
        assert ("json" in body["structured_outputs"]) is parses


async def test_a_server_that_would_ignore_it_is_not_asked() -> None:
    engine, mock = mocked({"/version": {"version": "0.10.2"}})
    for turn in (engine.from_ids(PROMPT, BOUND, Rendering()), engine.from_messages(HELLO, TOOLED, FORCED)):
        with pytest.raises(UnsupportedError, match=r"0\.10\.2 .* take 0\.11 or later\. Nothing was sent"):
            await turn
    assert mock.bodies(COMPLETIONS) == mock.bodies(CHAT) == []


async def test_two_grammars_for_one_turn_are_one_too_many() -> None:
    engine, _ = mocked()
    both = attrs.evolve(BOUND, extra={"structured_outputs": {"regex": "a"}})
    with pytest.raises(InputError, match="structured_outputs and tool_choice"):
        await engine.from_messages(HELLO, Rendering(), both)
