"""What Dynamo is asked: every key under the name that it has there, or an error."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.io.engines.dynamo.dynamo_server import KNOWN, NVEXT, PROMPT, Turn, mocked
from tito_core import InputError
from tito_core.samples import RoutedExperts
from tito_io.engines.constraint import Constraint
from tito_io.engines.dynamo import CHAT, COMPLETIONS, Dynamo
from tito_io.engines.dynamo.requests import FIELDS, PLACEHOLDER, REJECTED, TABLE, Route, translated
from tito_io.engines.http_engine import ServedModel
from tito_io.engines.protocol import InvalidReplyError, ModelLimits, Rendering, Sampling, UnsupportedError

pytestmark = pytest.mark.anyio

ROUTES: tuple[Route, ...] = ("chat", "completions")
HELLO = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {}}}
SIGNED: dict[str, Any] = {"structured_outputs": {"regex": "a"}, "nvext": {"annotations": ["x"]}}
"""Values for keys that want more than a number."""


async def sent(route: Route, sampling: Sampling, **options: Any) -> Any:
    """Return the body that goes out for ids."""
    engine, mock = mocked(route=route, **options)
    await engine.from_ids(PROMPT, sampling, Rendering(tools=(TOOL,), template_args={"a": 1}))
    return mock.body


async def test_ids_go_in_beside_one_placeholder() -> None:
    body = await sent("chat", Sampling(max_tokens=5, temperature=0.0, seed=3, stop=("x",), stop_ids=(9,)))
    assert body == {
        "model": "m",
        "messages": [PLACEHOLDER],
        "tools": [TOOL],
        "chat_template_kwargs": {"a": 1},
        "max_completion_tokens": 5,
        "temperature": 0.0,
        "seed": 3,
        "stop": ["x"],
        "stop_token_ids": [9],
        "logprobs": True,
        "nvext": {"token_data": list(PROMPT), "extra_fields": list(FIELDS)},
    }


async def test_ids_are_the_prompt_of_a_completion() -> None:
    body = await sent("completions", Sampling(max_tokens=5))
    assert body == {
        "model": "m",
        "prompt": list(PROMPT),
        "skip_special_tokens": False,
        "max_tokens": 5,
        "logprobs": 0,
        "nvext": {"extra_fields": list(FIELDS)},
    }


async def test_messages_go_in_with_the_same_extensions() -> None:
    engine, mock = mocked()
    function: dict[str, Any] = {"name": "f", "arguments": {"é": [1]}}
    call = {"id": "1", "type": "function", "function": function}
    await engine.from_messages([*HELLO, {"role": "assistant", "tool_calls": [call]}], Rendering(), Sampling())
    assert mock.body["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"é": [1]}'
    assert mock.body["nvext"] == {"extra_fields": list(FIELDS)}
    assert "max_completion_tokens" not in mock.body
    assert function["arguments"] == {"é": [1]}, "the caller's own stays"


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("name", sorted(TABLE))
def test_every_key_of_the_table_is_one_that_the_frontend_takes(name: str, route: Route) -> None:
    value = SIGNED.get(name, True if name == "return_token_ids" else 1)
    try:
        body = translated({name: value}, route)
    except UnsupportedError:
        assert route == "completions"
        return
    assert body.keys() <= KNOWN[CHAT if route == "chat" else COMPLETIONS]
    assert body.get("nvext", {}).keys() <= NVEXT


@pytest.mark.parametrize(
    ("extra", "route", "body"),
    [
        ({"priority": 3}, "chat", {"nvext": {"agent_hints": {"priority": -3}}}),
        ({"cache_salt": "s"}, "completions", {"nvext": {"cache_salt": "s"}}),
        (
            {"cache_salt": "s", "priority": 0, "nvext": {"agent_hints": {"osl": 5}}},
            "chat",
            {"nvext": {"cache_salt": "s", "agent_hints": {"priority": 0, "osl": 5}}},
        ),
        ({"logprobs": 3}, "chat", {"logprobs": True, "top_logprobs": 3}),
        ({"logprobs": 3}, "completions", {"logprobs": 3}),
        ({"top_logprobs": 2}, "completions", {"logprobs": 2}),
        ({"return_token_ids": True}, "chat", {}),
        ({"structured_outputs": {"json": {"type": "object"}}}, "chat", {"guided_json": {"type": "object"}}),
        ({"tool_choice": "none"}, "chat", {"tool_choice": "none"}),
    ],
)
def test_keys_have_another_name_there(extra: dict[str, Any], route: Route, body: dict[str, Any]) -> None:
    assert translated(extra, route) == body


@pytest.mark.parametrize(
    ("extra", "route", "kind"),
    [
        *[({name: 1}, "chat", UnsupportedError) for name in REJECTED],
        ({"misspelt": 1}, "chat", UnsupportedError),
        ({"max_completion_tokens": 1}, "chat", UnsupportedError),
        ({"detokenize": False}, "chat", UnsupportedError),
        ({"tool_choice": "none"}, "completions", UnsupportedError),
        ({"structured_outputs": {"regex": "a", "json": {}}}, "chat", UnsupportedError),
        ({"return_token_ids": False}, "chat", InputError),
        ({"logprobs": 6}, "completions", InputError),
        ({"logprobs": 21}, "chat", InputError),
        ({"logprobs": True}, "chat", InputError),
        ({"priority": "high"}, "chat", InputError),
        ({"nvext": {"token_data": [1]}}, "chat", InputError),
        ({"nvext": {"extra_fields": []}}, "completions", InputError),
        ({"nvext": "x"}, "chat", InputError),
        ({"temperature": 1.0}, "chat", InputError),
    ],
)
async def test_what_cannot_be_said_is_an_error(extra: dict[str, Any], route: Route, kind: Any) -> None:
    engine, mock = mocked(route=route)
    with pytest.raises(kind) as caught:
        await engine.from_ids(PROMPT, Sampling(extra=extra))
    assert next(iter(extra)) in str(caught.value)
    assert mock.asked == []


async def test_a_callers_extensions_stay_its_own() -> None:
    extra = {"nvext": {"agent_hints": {"osl": 5}}, "priority": 1}
    await sent("chat", Sampling(extra=extra))
    assert extra == {"nvext": {"agent_hints": {"osl": 5}}, "priority": 1}


async def test_what_is_not_asked_for_is_not_missed() -> None:
    engine, mock = mocked(logprobs=False)
    reply = await engine.from_ids(PROMPT, Sampling())
    assert (reply.logprobs, reply.notices) == (None, ())
    assert "logprobs" not in mock.body


EXPERTS = {"start": 1, "dtype": "uint16", "data": "AQACAAMABAA=", "shape": [2, 1, 2]}
"""In any order of its keys."""


@pytest.mark.parametrize("place", ["nvext", "engine"])
async def test_routed_experts_are_asked_for_and_read(place: str) -> None:
    turn = (
        Turn(nvext={"routed_experts": EXPERTS})
        if place == "nvext"
        else Turn(engine={"routed_experts": EXPERTS})
    )
    engine, mock = mocked(turn, routed_experts=True)
    reply = await engine.from_ids(PROMPT, Sampling())
    data = bytes([1, 0, 2, 0, 3, 0, 4, 0])
    assert reply.routed_experts == RoutedExperts(data=data, dtype="uint16", shape=(2, 1, 2), start=1)
    assert "routed_experts" in mock.body["nvext"]["extra_fields"]


@pytest.mark.parametrize(
    "odd",
    [
        {"dtype": "float32"},
        {"shape": [2, 2, 2]},
        {"shape": [2, 2]},
        {"shape": [2, -1, -2]},
        {"start": 4},
        {"start": -1},
        {"data": "AQACAAMABA"},
        {"data": "AQACAAM#BAA="},
        {"data": None},
    ],
)
async def test_routed_experts_that_do_not_add_up_are_refused(odd: dict[str, Any]) -> None:
    engine, _ = mocked(Turn(engine={"routed_experts": {**EXPERTS, **odd}}))
    with pytest.raises(InvalidReplyError, match=r"routed experts|`data` is null"):
        await engine.from_ids(PROMPT, Sampling())


async def test_a_renderer_of_ones_own_renders() -> None:
    def tokenize(messages: Any, *, add_generation_prompt: bool) -> list[int]:
        return [len(messages), int(add_generation_prompt)]

    engine, mock = mocked(tokenize_fn=tokenize)
    assert await engine.render(HELLO, Rendering(), add_generation_prompt=True) == [1, 1]
    assert mock.asked == []


async def test_the_model_is_the_only_one_or_the_one_named() -> None:
    engine, _ = mocked(card={"id": "m", "context_window": 0})
    assert await engine.limits() == ModelLimits()

    async def served(model: str | None, listed: dict[str, int]) -> ServedModel:
        cards = [{"id": name, "context_window": length} for name, length in listed.items()]
        answer = httpx2.MockTransport(lambda _: httpx2.Response(200, json={"data": cards}))
        return await Dynamo("http://h", model=model, transport=answer).served()

    assert await served("b", {"a": 5, "b": 6}) == ServedModel("b", 6)
    assert await served("b", {"a": 5}) == ServedModel("b", None)
    for models in ({}, {"a": 5, "b": 6}):
        with pytest.raises(InputError, match="pass one of them"):
            await served(None, models)


@pytest.mark.parametrize("route", ROUTES)
async def test_a_constraint_is_refused_before_anything_is_sent(route: Route) -> None:
    constrained = Sampling(max_tokens=4, constraint=Constraint(schema={"type": "object"}))
    with pytest.raises(UnsupportedError, match=r"cannot be honoured with Dynamo: .* Nothing was sent"):
        await sent(route, constrained)
