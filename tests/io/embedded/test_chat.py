"""The chat route: a message and the ids behind it, whole or streamed, on both event loops."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve

from tito_io.embedded import TIDY, FaultRates, family, vocabulary
from tito_io.embedded.vocabulary import END_OF_TEXT, END_OF_TURN, END_THINK, END_TOOL_CALL, TOOL_CALL

from .embedded_client import HELLO, WEATHER, answered, client, events, post

pytestmark = pytest.mark.anyio
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
IDS = {"return_token_ids": True, "logprobs": True}
QUESTIONS = [
    {"messages": [{"role": "user", "content": f"Question {one}?"}], "tools": [WEATHER]} for one in range(8)
]


async def test_an_answer_has_the_fields_of_the_wire() -> None:
    answer = await answered(CHAT, {"messages": HELLO, **IDS, "top_logprobs": 2})
    choice = answer["choices"][0]
    assert set(answer) == {
        *("id", "object", "created", "model", "choices", "service_tier", "system_fingerprint", "usage"),
        *("prompt_logprobs", "prompt_token_ids", "prompt_text", "kv_transfer_params", "ec_transfer_params"),
        "metrics",
    }
    assert set(choice) == {
        *("index", "message", "logprobs", "finish_reason", "stop_reason", "token_ids", "routed_experts"),
    }
    assert set(choice["logprobs"]["content"][0]) == {"token", "logprob", "bytes", "top_logprobs"}
    assert answer["id"].startswith("chatcmpl-")
    assert answer["prompt_token_ids"] == family().ids(HELLO, add_generation_prompt=True)


async def test_the_counts_are_exact() -> None:
    answer = await answered(CHAT, {"messages": HELLO, **IDS})
    ids, usage = answer["choices"][0]["token_ids"], answer["usage"]
    assert usage["prompt_tokens"] == len(answer["prompt_token_ids"])
    assert usage["completion_tokens"] == len(ids) == len(answer["choices"][0]["logprobs"]["content"])
    assert usage["total_tokens"] == usage["prompt_tokens"] + len(ids)


async def test_ids_are_null_where_nobody_asked_for_them() -> None:
    async with client() as opened:
        answer = await post(opened, CHAT, {"messages": HELLO})
        first, *rest = await events(opened, CHAT, {"messages": HELLO})
    assert answer["prompt_token_ids"] is answer["choices"][0]["token_ids"] is None
    assert answer["choices"][0]["logprobs"] is None
    assert first["prompt_token_ids"] is None
    assert {chunk["choices"][0]["token_ids"] for chunk in rest} == {None}


@pytest.mark.parametrize("question", QUESTIONS)
async def test_every_route_samples_the_same_ids(question: dict[str, Any]) -> None:
    async with client(seed=4) as opened:
        chat = await post(opened, CHAT, {**question, **IDS, "seed": 9})
        prompt, choice = chat["prompt_token_ids"], chat["choices"][0]
        again = {"prompt": prompt, "seed": 9, "return_token_ids": True, "logprobs": 0, "max_tokens": 999}
        given = {"messages": [], "kv_transfer_params": {"prompt_token_ids": prompt}, **IDS, "seed": 9}
        whole = await post(opened, COMPLETIONS, again)
        parts = await events(opened, COMPLETIONS, again)
        streamed = await events(opened, CHAT, {**question, **IDS, "seed": 9})
        brought = await post(opened, CHAT, {**given, "tools": [WEATHER]})
    assert whole["choices"][0]["token_ids"] == choice["token_ids"]
    assert [one for part in parts for one in part["choices"][0]["token_ids"]] == choice["token_ids"]
    assert [one for part in streamed for one in part["choices"][0].get("token_ids", [])] == choice[
        "token_ids"
    ]
    assert brought["choices"] == chat["choices"]
    values = [one["logprob"] for one in choice["logprobs"]["content"]]
    assert whole["choices"][0]["logprobs"]["token_logprobs"] == values


async def test_seeds_matter_unless_sampling_is_greedy() -> None:
    async with client() as opened:
        bodies = [{"messages": HELLO, "return_token_ids": True, "seed": seed} for seed in range(4)]
        sampled = [await post(opened, CHAT, body) for body in bodies]
        greedy = [await post(opened, CHAT, {**body, "temperature": 0}) for body in bodies]
    assert len({str(one["choices"][0]["token_ids"]) for one in sampled}) == 4
    assert len({str(one["choices"][0]["token_ids"]) for one in greedy}) == 1


async def test_ids_decode_to_the_parts_of_the_message() -> None:
    async with client(fault_rates=TIDY) as opened:
        answers = [await post(opened, CHAT, {**question, **IDS}) for question in QUESTIONS]
    for answer in answers:
        choice = answer["choices"][0]
        text = vocabulary().decode(choice["token_ids"])
        message = choice["message"]
        assert text.startswith("<think>" + message["reasoning"] + "</think>")
        if "tool_calls" not in message:
            assert text.endswith("</think>" + message["content"] + END_OF_TURN)
    assert any("tool_calls" in answer["choices"][0]["message"] for answer in answers)


async def test_a_stream_adds_up_to_the_answer() -> None:
    async with client(fault_rates=evolve(FaultRates(), malformed=0.0)) as opened:
        for question in QUESTIONS:
            whole = await post(opened, CHAT, {**question, **IDS})
            first, *parts, last = await events(
                opened, CHAT, {**question, **IDS, "stream_options": {"include_usage": True}}
            )
            choice = whole["choices"][0]
            assert first["prompt_token_ids"] == whole["prompt_token_ids"]
            assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
            assert last["choices"] == []
            assert last["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
            joined = _joined(parts)
            assert joined["reasoning"] == (choice["message"]["reasoning"] or "")
            assert joined["content"].strip() == (choice["message"]["content"] or "").strip()
            assert joined["calls"] == [call["id"] for call in choice["message"].get("tool_calls", [])]
            assert joined["logprobs"] == choice["logprobs"]["content"]
            end = parts[-1]["choices"][0]
            assert end["stop_reason"] == choice["stop_reason"]
            assert end["finish_reason"] == choice["finish_reason"]


def _joined(parts: list[Any]) -> dict[str, Any]:
    choices = [part["choices"][0] for part in parts]
    deltas = [choice["delta"] for choice in choices]
    return {
        "reasoning": "".join(delta.get("reasoning") or "" for delta in deltas),
        "content": "".join(delta.get("content") or "" for delta in deltas),
        "calls": [call["id"] for delta in deltas for call in delta.get("tool_calls", []) if "id" in call],
        "logprobs": [one for choice in choices for one in choice["logprobs"]["content"]],
    }


async def test_a_chunk_may_have_ids_and_no_words() -> None:
    async with client(fault_rates=evolve(TIDY, tool_calls=1.0)) as opened:
        parts = await events(opened, CHAT, {**QUESTIONS[0], "return_token_ids": True})
        quiet = await events(opened, CHAT, QUESTIONS[0])
    assert any(part["choices"][0]["delta"] == {} and part["choices"][0]["token_ids"] for part in parts[1:])
    assert all(part["choices"][0]["delta"] for part in quiet[:-1])
    assert "stop_reason" not in parts[1]["choices"][0]
    assert parts[-1]["choices"][0]["stop_reason"] is None


async def test_counts_come_with_every_chunk_where_wanted() -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    async with client() as opened:
        parts = await events(
            opened, CHAT, {"messages": HELLO, "stream_options": options, "return_token_ids": True}
        )
    sent = 0
    for part in parts[:-1]:
        sent += len(part["choices"][0].get("token_ids", []))
        assert part["usage"]["completion_tokens"] == sent
    assert parts[-1]["usage"]["completion_tokens"] == sent


async def test_counts_with_every_chunk_need_the_counts_at_the_end() -> None:
    body = {"messages": HELLO, "stream_options": {"continuous_usage_stats": True}}
    async with client() as opened:
        parts = await events(opened, CHAT, body)
    assert not any("usage" in part for part in parts)


async def test_a_reply_that_says_nothing_has_one_id_and_no_thought() -> None:
    answer = await answered(CHAT, {"messages": HELLO, **IDS}, fault_rates=evolve(TIDY, empty=1.0))
    message, usage = answer["choices"][0]["message"], answer["usage"]
    assert (message["content"], message["reasoning"], answer["choices"][0]["finish_reason"]) == (
        None,
        None,
        "stop",
    )
    assert usage["completion_tokens"] == 1
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 0}


async def test_a_call_ends_a_reply_with_its_own_reason() -> None:
    async with client(fault_rates=evolve(TIDY, tool_calls=1.0)) as opened:
        answer = await post(opened, CHAT, {**QUESTIONS[0], "return_token_ids": True})
        parts = await events(opened, CHAT, QUESTIONS[0])
        unparsed = await post(opened, CHAT, {**QUESTIONS[0], "tool_choice": "none"})
        chosen = await post(opened, CHAT, {**QUESTIONS[0], "tool_choice": "auto", "return_token_ids": True})
    choice = answer["choices"][0]
    call = choice["message"]["tool_calls"][0]
    assert (choice["finish_reason"], choice["stop_reason"]) == ("tool_calls", None)
    assert parts[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert call["function"]["name"] == "get_weather"
    assert "city" in json.loads(call["function"]["arguments"])
    assert chosen["choices"] == answer["choices"]
    assert TOOL_CALL in unparsed["choices"][0]["message"]["content"]
    assert unparsed["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("choice", "reason"),
    [("required", "tool_calls"), ({"type": "function", "function": {"name": "get_weather"}}, "stop")],
)
async def test_a_call_can_be_demanded(choice: Any, reason: str) -> None:
    async with client() as opened:
        for question in QUESTIONS:
            answer = (await post(opened, CHAT, {**question, "tool_choice": choice}))["choices"][0]
            assert answer["message"]["tool_calls"]
            assert answer["message"]["content"] is not None
            assert answer["finish_reason"] == reason


async def test_a_call_before_the_limit_is_a_call_whole_and_a_length_streamed() -> None:
    async with client(fault_rates=evolve(TIDY, tool_calls=1.0, second_calls=1.0)) as opened:
        body = {**QUESTIONS[0], "return_token_ids": True}
        ids = (await post(opened, CHAT, body))["choices"][0]["token_ids"]
        cut = {**body, "max_tokens": ids.index(vocabulary().id(END_TOOL_CALL)) + 1}
        whole = (await post(opened, CHAT, cut))["choices"][0]
        parts = await events(opened, CHAT, cut)
    assert len(whole["message"]["tool_calls"]) == 1
    assert whole["finish_reason"] == "tool_calls"
    assert parts[-1]["choices"][0]["finish_reason"] == "length"


async def test_every_call_has_a_name_of_its_own() -> None:
    body = {**QUESTIONS[0], "n": 3}
    async with client(fault_rates=evolve(TIDY, tool_calls=1.0, second_calls=1.0)) as opened:
        choices = (await post(opened, CHAT, body))["choices"]
        again = (await post(opened, CHAT, body))["choices"]
    names = [call["id"] for choice in choices for call in choice["message"]["tool_calls"]]
    assert len(set(names)) == len(names) == 6
    assert all(name.startswith("chatcmpl-tool-") for name in names)
    assert choices == again


async def test_the_last_body_of_a_stream_is_marked() -> None:
    async with client() as opened:
        plain = await events(opened, CHAT, {"messages": HELLO})
        counted = await events(opened, CHAT, {"messages": HELLO, "stream_options": {"include_usage": True}})
    for parts in (plain, counted):
        assert ["system_fingerprint" in part for part in parts] == [*[False] * (len(parts) - 1), True]


async def test_one_call_is_enough_where_a_client_says_so() -> None:
    calls = []
    async with client(fault_rates=evolve(TIDY, second_calls=1.0)) as opened:
        for seed in range(12):
            body = {**QUESTIONS[0], "seed": seed, "parallel_tool_calls": False, "return_token_ids": True}
            choice = (await post(opened, CHAT, body))["choices"][0]
            count = choice["token_ids"].count(vocabulary().id(TOOL_CALL))
            assert count == len(choice["message"].get("tool_calls") or ())
            calls.append(count)
    assert set(calls) == {0, 1}


async def test_several_choices_are_several_replies() -> None:
    body = {"messages": HELLO, "n": 3, **IDS}
    async with client() as opened:
        answer = await post(opened, CHAT, body)
        parts = await events(opened, CHAT, body)
    found = [choice["token_ids"] for choice in answer["choices"]]
    assert len({str(ids) for ids in found}) == 3
    assert answer["usage"]["completion_tokens"] == sum(map(len, found))
    assert [part["choices"][0]["index"] for part in parts[:3]] == [0, 1, 2]
    for index in range(3):
        mine = [part["choices"][0] for part in parts if part["choices"][0]["index"] == index]
        assert [one for choice in mine for one in choice.get("token_ids", [])] == found[index]


async def test_an_odd_stop_is_told() -> None:
    answer = await answered(CHAT, {"messages": HELLO, **IDS}, fault_rates=evolve(TIDY, odd_stops=1.0))
    choice = answer["choices"][0]
    assert choice["stop_reason"] == choice["token_ids"][-1] == vocabulary().id(END_OF_TEXT)
    assert choice["finish_reason"] == "stop"


async def test_a_reply_without_end_is_cut() -> None:
    async with client(fault_rates=evolve(TIDY, endless=1.0), max_new_tokens=50) as opened:
        choice = (await post(opened, CHAT, {"messages": HELLO, **IDS}))["choices"][0]
        shorter = (await post(opened, CHAT, {"messages": HELLO, **IDS, "max_completion_tokens": 7}))[
            "choices"
        ][0]
    assert (len(choice["token_ids"]), choice["finish_reason"]) == (50, "length")
    assert shorter["token_ids"] == choice["token_ids"][:7]


async def test_without_a_limit_the_context_is_one() -> None:
    async with client(
        fault_rates=evolve(TIDY, endless=1.0), max_new_tokens=None, max_model_len=300
    ) as opened:
        answer = await post(opened, CHAT, {"messages": HELLO})
        clamped = await post(opened, CHAT, {"messages": HELLO, "max_tokens": 10_000})
    assert answer["usage"]["total_tokens"] == clamped["usage"]["total_tokens"] == 300
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_thoughts_can_be_switched_off() -> None:
    body = {"messages": HELLO, "chat_template_kwargs": {"enable_thinking": False}}
    async with client(fault_rates=TIDY) as opened:
        message = (await post(opened, CHAT, body))["choices"][0]["message"]
        usage = (await post(opened, CHAT, body))["usage"]
        thinking = await post(opened, CHAT, {"messages": HELLO, "return_token_ids": True})
    assert message["reasoning"] is None
    assert message["content"]
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 0}
    thought = thinking["usage"]["completion_tokens_details"]["reasoning_tokens"]
    assert thought == thinking["choices"][0]["token_ids"].index(vocabulary().id(END_THINK)) - 1


@pytest.mark.parametrize("count", [0, 2])
async def test_so_many_ids_are_shown_at_each_place(count: int) -> None:
    body = {"messages": HELLO, **IDS, "top_logprobs": count}
    shown = (await answered(CHAT, body))["choices"][0]["logprobs"]["content"]
    for one in shown:
        top = one.pop("top_logprobs")
        assert len(top) == count
        assert top[:1] in ([], [one])


async def test_tokens_can_be_shown_as_ids() -> None:
    body = {"messages": HELLO, **IDS, "return_tokens_as_token_ids": True}
    choice = (await answered(CHAT, body))["choices"][0]
    shown = [one["token"] for one in choice["logprobs"]["content"]]
    assert shown == [f"token_id:{one}" for one in choice["token_ids"]]


async def test_a_character_in_parts_is_shown_with_its_last_byte() -> None:
    async with client(
        fault_rates=evolve(FaultRates(), malformed=0.0, half_characters=0.0, endless=0.0)
    ) as opened:
        for question in QUESTIONS:
            choice = (await post(opened, CHAT, {**question, **IDS}))["choices"][0]
            shown = "".join(one["token"] for one in choice["logprobs"]["content"])
            assert shown == vocabulary().decode(choice["token_ids"])


async def test_a_message_may_go_on() -> None:
    body = {
        "messages": [*HELLO, {"role": "assistant", "content": "The bridge"}],
        "add_generation_prompt": False,
        "continue_final_message": True,
        "return_prompt_text": True,
        "return_token_ids": True,
    }
    answer = await answered(CHAT, body, fault_rates=TIDY)
    assert answer["prompt_text"].endswith("</think>\n\nThe bridge")
    assert family().encode(answer["prompt_text"]) == answer["prompt_token_ids"]
    assert "<think>" not in vocabulary().decode(answer["choices"][0]["token_ids"])


async def test_a_stream_sees_that_the_thought_is_over_and_a_whole_answer_does_not() -> None:
    ids = family().ids(HELLO, add_generation_prompt=True, enable_thinking=False)
    body = {"messages": [], "kv_transfer_params": {"prompt_token_ids": ids}}
    async with client(fault_rates=TIDY) as opened:
        whole = (await post(opened, CHAT, body))["choices"][0]["message"]
        parts = await events(opened, CHAT, body)
        usual = await events(opened, CHAT, {"messages": HELLO, "tools": [WEATHER]})
    text = "".join(part["choices"][0]["delta"].get("content") or "" for part in parts)
    assert (whole["reasoning"], whole["content"]) == (text, None)
    assert "reasoning" in usual[1]["choices"][0]["delta"]


async def test_the_thought_of_a_history_has_two_names() -> None:
    turns = [
        {"role": "assistant", "content": "So.", name: "Hm."} for name in ("reasoning", "reasoning_content")
    ]
    async with client() as opened:
        bodies = [{"messages": [*HELLO, turn], "return_prompt_text": True} for turn in turns]
        texts = [(await post(opened, CHAT, body))["prompt_text"] for body in bodies]
        tokenized = [(await post(opened, "/tokenize", body))["tokens"] for body in bodies]
    assert texts[0] == texts[1]
    assert "Hm." in texts[0]
    assert ["Hm." in vocabulary().decode(ids) for ids in tokenized] == [True, False]


async def test_what_was_seen_before_is_cached_in_whole_blocks() -> None:
    async with client() as opened:
        first = await post(opened, CHAT, {"messages": HELLO, "return_token_ids": True})
        second = await post(opened, CHAT, {"messages": HELLO})
        longer = [*first["prompt_token_ids"], *first["choices"][0]["token_ids"], 5, 6, 7]
        third = await post(opened, COMPLETIONS, {"prompt": longer})
    counts = [one["usage"]["prompt_tokens_details"]["cached_tokens"] for one in (first, second, third)]
    assert counts[0] == 0
    assert counts[1] == (len(first["prompt_token_ids"]) - 1) // 16 * 16
    assert counts[2] == (len(longer) - 4) // 16 * 16


async def test_a_prompt_can_be_scored_as_it_was_sampled() -> None:
    async with client() as opened:
        answer = await post(opened, CHAT, {"messages": HELLO, **IDS})
        choice = answer["choices"][0]
        whole = [*answer["prompt_token_ids"], *choice["token_ids"]]
        body = {"prompt": whole, "prompt_logprobs": 0, "max_tokens": 1}
        scored = (await post(opened, COMPLETIONS, body))["choices"][0]["prompt_logprobs"]
    assert scored[0] is None
    values = [place[str(one)]["logprob"] for place, one in zip(scored[1:], whole[1:], strict=True)]
    assert values[-len(choice["token_ids"]) :] == [one["logprob"] for one in choice["logprobs"]["content"]]


async def test_a_request_can_name_its_answer() -> None:
    async with client() as opened:
        named = await opened.post(CHAT, json={"messages": HELLO}, headers={"x-request-id": "abc"})
        others = [await post(opened, CHAT, {"messages": HELLO}) for _ in range(2)]
    assert named.json()["id"] == "chatcmpl-abc"
    assert others[0]["id"] != others[1]["id"]
