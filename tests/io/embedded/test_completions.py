"""The completions route: ids in, ids out, nothing parsed."""

from __future__ import annotations

import pytest

from tito_io.embedded import TIDY, family, vocabulary

from .embedded_client import answered, client, events, post, prompt

pytestmark = pytest.mark.anyio
COMPLETIONS = "/v1/completions"
LONG = {"max_tokens": 256, "return_token_ids": True, "logprobs": 0}


async def test_an_answer_has_the_fields_of_the_wire() -> None:
    answer = await answered(COMPLETIONS, {"prompt": prompt(), **LONG})
    choice = answer["choices"][0]
    assert set(answer) == {
        *("id", "object", "created", "model", "choices", "service_tier", "system_fingerprint", "usage"),
        *("kv_transfer_params", "ec_transfer_params", "metrics"),
    }
    assert set(choice) == {
        *("index", "text", "logprobs", "finish_reason", "stop_reason", "token_ids", "prompt_logprobs"),
        *("prompt_token_ids", "routed_experts"),
    }
    assert set(choice["logprobs"]) == {"text_offset", "token_logprobs", "tokens", "top_logprobs"}
    assert choice["prompt_token_ids"] == prompt()
    assert answer["usage"]["completion_tokens"] == len(choice["token_ids"])
    assert {len(column) for column in choice["logprobs"].values()} == {len(choice["token_ids"])}


async def test_without_the_wish_there_are_no_ids() -> None:
    async with client() as opened:
        choice = (await post(opened, COMPLETIONS, {"prompt": prompt()}))["choices"][0]
        parts = await events(opened, COMPLETIONS, {"prompt": prompt()})
    assert choice["token_ids"] is choice["prompt_token_ids"] is choice["logprobs"] is None
    assert {part["choices"][0]["token_ids"] for part in parts} == {None}


async def test_sixteen_ids_are_the_default() -> None:
    answer = await answered(COMPLETIONS, {"prompt": prompt(tools=False)})
    assert answer["usage"]["completion_tokens"] == 16
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_a_stream_adds_up_to_the_answer() -> None:
    async with client() as opened:
        whole = await post(opened, COMPLETIONS, {"prompt": prompt(), **LONG})
        parts = await events(
            opened, COMPLETIONS, {"prompt": prompt(), **LONG, "stream_options": {"include_usage": True}}
        )
    choice, last = whole["choices"][0], parts.pop()
    chunks = [part["choices"][0] for part in parts]
    assert "".join(chunk["text"] for chunk in chunks) == choice["text"]
    assert [one for chunk in chunks for one in chunk["token_ids"]] == choice["token_ids"]
    assert [chunk["prompt_token_ids"] for chunk in chunks] == [prompt(), *[None] * (len(chunks) - 1)]
    for column in choice["logprobs"]:
        assert [one for chunk in chunks for one in chunk["logprobs"][column]] == choice["logprobs"][column]
    assert last["usage"]["total_tokens"] == whole["usage"]["total_tokens"]
    assert last["choices"] == []
    assert "system_fingerprint" in last
    assert not any("system_fingerprint" in part for part in parts)


async def test_counts_come_with_every_chunk_where_wanted() -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    async with client() as opened:
        body = {"prompt": prompt(), **LONG, "stream_options": options}
        *parts, last = await events(opened, COMPLETIONS, body)
    sent = 0
    for part in parts:
        sent += len(part["choices"][0]["token_ids"])
        assert part["usage"]["completion_tokens"] == sent
    assert last["usage"]["completion_tokens"] == sent


async def test_text_is_tokenized_and_tags_stay_in_it() -> None:
    text = family().decode(prompt(tools=False))
    async with client(fault_rates=TIDY) as opened:
        by_text = (await post(opened, COMPLETIONS, {"prompt": text, **LONG}))["choices"][0]
        by_ids = (await post(opened, COMPLETIONS, {"prompt": prompt(tools=False), **LONG}))["choices"][0]
    assert by_text == by_ids
    assert by_text["text"].startswith("<think>\n")
    assert "<|done|>" not in by_text["text"]


async def test_several_prompts_are_answered_one_after_another() -> None:
    prompts = [prompt("One?"), prompt("Two?")]
    async with client() as opened:
        alone = [(await post(opened, COMPLETIONS, {"prompt": ids, **LONG}))["choices"][0] for ids in prompts]
        answer = await post(opened, COMPLETIONS, {"prompt": prompts, **LONG, "n": 2})
        texts = await post(opened, COMPLETIONS, {"prompt": ["a", "b c"], "max_tokens": 2})
        parts = await events(opened, COMPLETIONS, {"prompt": prompts, **LONG})
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2, 3]
    assert [answer["choices"][place]["token_ids"] for place in (0, 2)] == [one["token_ids"] for one in alone]
    assert answer["usage"]["prompt_tokens"] == sum(map(len, prompts))
    assert len(texts["choices"]) == 2
    for place, choice in enumerate(alone):
        mine = [part["choices"][0] for part in parts if part["choices"][0]["index"] == place]
        assert [one for chunk in mine for one in chunk["token_ids"]] == choice["token_ids"]


async def test_a_stop_string_is_cut_from_the_text_only() -> None:
    async with client(fault_rates=TIDY) as opened:
        body = {"prompt": prompt(tools=False), **LONG}
        whole = (await post(opened, COMPLETIONS, body))["choices"][0]
        cut = (await post(opened, COMPLETIONS, {**body, "stop": "</think>"}))["choices"][0]
        parts = await events(opened, COMPLETIONS, {**body, "stop": ["</think>"]})
    assert cut["text"] == whole["text"].partition("</think>")[0]
    assert cut["token_ids"] == whole["token_ids"][: len(cut["token_ids"])]
    assert vocabulary().decode(cut["token_ids"]).endswith("</think>")
    assert (cut["finish_reason"], cut["stop_reason"]) == ("stop", "</think>")
    assert "".join(part["choices"][0]["text"] for part in parts) == cut["text"]


@pytest.mark.parametrize("count", [0, 1, 5])
async def test_other_ids_are_shown_beside_the_sampled_one(count: int) -> None:
    body = {"prompt": prompt(), "logprobs": count, "max_tokens": 30, "return_tokens_as_token_ids": True}
    choice = (await answered(COMPLETIONS, {**body, "return_token_ids": True}))["choices"][0]
    for one, value, top in zip(
        choice["token_ids"],
        choice["logprobs"]["token_logprobs"],
        choice["logprobs"]["top_logprobs"],
        strict=True,
    ):
        assert top[f"token_id:{one}"] == value
        assert max(count, 1) <= len(top) <= count + 1


async def test_a_reply_is_as_long_as_the_context_has_room() -> None:
    body = {"prompt": prompt(tools=False), "ignore_eos": True, "return_token_ids": True, "max_tokens": 10_000}
    answer = await answered(COMPLETIONS, body, max_model_len=200, max_new_tokens=None)
    assert answer["usage"]["total_tokens"] == 200
    assert answer["choices"][0]["finish_reason"] == "length"
