"""Renders of whole conversations: the template's ids, with their messages."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from renderers.base import ParsedToolCall, build_training_sample

from tests.frameworks.renderers.models import NAMES, OWN, SAID, Model, conversations, model
from tests.model_folders import needs_families
from tito_core import InputError, TemplateRefused

REJECTED = {("gemma3", "call"), ("gemma3", "two calls"), ("llama3", "two calls")}
"""Conversations that the template rejects."""
DROPPED = {(name, said) for name in ("phi3", "phi4") for said in ("call", "two calls")}
"""Conversations of which the template leaves out messages, so that it is not clear whose an id is."""


def of_template(one: Model, messages: list[Any], tools: Any, *, speaks: bool) -> list[int]:
    """Return what `transformers` makes of a conversation."""
    copies = json.loads(json.dumps(messages))
    for message in copies:
        for call in message.get("tool_calls", ()) if one.name != "deepseek-v3" else ():
            call["function"]["arguments"] = json.loads(call["function"]["arguments"])
    return list(
        one.tokenizer.apply_chat_template(
            copies, tools=tools, add_generation_prompt=speaks, return_dict=False, tokenize=True
        )
    )


@pytest.mark.parametrize("said", SAID)
@pytest.mark.parametrize("name", NAMES)
def test_every_id_of_a_render_has_its_message(name: str, said: str) -> None:
    one, (messages, tools) = model(name), conversations(name)[said]
    renderer, speaks = one.renderer(), messages[-1]["role"] != "assistant"
    if (name, said) in REJECTED:
        with pytest.raises(TemplateRefused):
            renderer.render(messages, tools=tools)
        return
    rendered = renderer.render(messages, tools=tools, add_generation_prompt=speaks)
    ids = of_template(one, messages, tools, speaks=speaks)
    assert rendered.token_ids == ids
    assert renderer.render_ids(messages, tools=tools, add_generation_prompt=speaks) == ids
    assert rendered.message_roles == [message["role"] for message in messages]
    if (name, said) in DROPPED:
        assert (set(rendered.message_indices), rendered.is_content, rendered.sampled_mask) == ({-1}, [], [])
        return
    spans = rendered.message_token_spans()
    assert all(before[1] == after[0] for before, after in pairwise(spans))
    for place, (message, (start, stop)) in enumerate(zip(messages, spans, strict=True)):
        said_ids = [index for index in range(start, stop) if rendered.is_content[index]]
        assert said_ids == list(range(said_ids[0], said_ids[-1] + 1))
        if message["role"] == "assistant":
            assert_sampled(one, rendered, messages[: place + 1], tools, said_ids)
        else:
            assert one.tokenizer.decode([ids[index] for index in said_ids]).strip() == message["content"]
            assert not any(rendered.sampled_mask[start:stop])


def assert_sampled(one: Model, rendered: Any, messages: list[Any], tools: Any, said: list[int]) -> None:
    """Assert that a turn's content is what is sampled after its prompt, up to the stop."""
    assert all(rendered.sampled_mask[index] for index in said)
    begun = of_template(one, messages[:-1], tools, speaks=True)
    opener = [
        rendered.token_ids[index] for index in range(*rendered.message_token_spans()[len(messages) - 1])
    ]
    opener = opener[: opener.index(rendered.token_ids[said[0]])]
    assert " ".join(map(str, opener)) in " ".join(map(str, begun))
    stops = [rendered.token_ids[index] in one.stops for index in said]
    assert not any(stops[:-1])


def test_training_samples_have_the_sampled_ids() -> None:
    one, (messages, tools) = model(OWN), conversations(OWN)["two calls"]
    renderer = one.renderer()
    sample = build_training_sample(renderer, messages, tools=tools)
    assert sample.loss_mask == renderer.render(messages, tools=tools).sampled_mask
    trained = [index for index, train in zip(sample.token_ids, sample.loss_mask, strict=True) if train]
    assert one.tokenizer.decode(trained).count("<|done|>") == 2
    tools_too = build_training_sample(renderer, messages, tools=tools, content_sft_roles={"tool"})
    assert sum(tools_too.loss_mask) > sum(sample.loss_mask)


@pytest.mark.parametrize("name", [one for one in NAMES if "gemma3" not in (one, *getattr(one, "values", ()))])
def test_a_missing_content_beside_calls_is_an_empty_one(name: str) -> None:
    messages, tools = conversations(name)["call"]
    none = [{**one, "content": one["content"] or None} for one in messages]
    renderer = model(name).renderer()
    assert renderer.render_ids(none, tools=tools) == renderer.render_ids(messages, tools=tools)


@pytest.mark.parametrize("name", NAMES)
def test_tools_without_function_are_those_with_it(name: str) -> None:
    messages, tools = conversations(name)["tools"]
    renderer = model(name).renderer(thinking_retention="all")
    flat = [one["function"] for one in tools]
    begun = renderer.render_ids(messages, tools=tools, add_generation_prompt=True)
    assert renderer.render_ids(messages, tools=flat, add_generation_prompt=True) == begun
    assert renderer.render(messages, tools=flat, add_generation_prompt=True).token_ids == begun
    answered = [{"role": "user", "content": "And tomorrow?"}]
    sampled = [begun[-1], renderer.get_stop_token_ids()[0]]
    bridges = [renderer.bridge_to_next_turn(begun, sampled, answered, tools=one) for one in (tools, flat)]
    assert bridges[0] == bridges[1]


@pytest.mark.parametrize("name", [OWN, pytest.param("mistral-tekken", marks=needs_families)])
@pytest.mark.parametrize("said", ["call", "two calls"])
def test_calls_that_a_parser_read_are_rendered(name: str, said: str) -> None:
    messages, tools = conversations(name)[said]
    parsed = [
        {**message, "tool_calls": [*map(read, message["tool_calls"]), ParsedToolCall(raw="?")]}
        if message.get("tool_calls")
        else message
        for message in messages
    ]
    renderer = model(name).renderer()
    assert renderer.render_ids(parsed, tools=tools) == renderer.render_ids(messages, tools=tools)


def read(call: dict[str, Any]) -> ParsedToolCall:
    """Return a call as parsers of most families read it, without an id."""
    function = call["function"]
    return ParsedToolCall(raw="?", name=function["name"], arguments=json.loads(function["arguments"]))


def test_an_image_is_not_rendered() -> None:
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "cat.png"}}]}
    for render in (model(OWN).renderer().render, model(OWN).renderer().render_ids):
        with pytest.raises(InputError, match="there are images or other media: use the model's own renderer"):
            render([image])
