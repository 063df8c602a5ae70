"""Requests with replies: ids are read wherever an engine keeps them, and never guessed."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from tests.io.samples.sample_files import chat, dumped, put, read
from tito_core import render_key
from tito_core.samples import Ending, StoredCall

GENERATED: dict[str, Any] = {
    "path": "/generate",
    "status": 200,
    "request": {"input_ids": [1, 2], "sampling_params": {}},
    "response": {
        "text": "hi",
        "output_ids": [3, 4],
        "meta_info": {
            "id": "g",
            "finish_reason": {"type": "stop", "matched": 4},
            "prompt_tokens": 2,
            "completion_tokens": 2,
            "weight_versions": [{"version": "7", "start": 0, "end": 2}],
            "output_token_logprobs": [[-0.5, 3, None], [-0.25, 4, None]],
        },
    },
}
LEGACY: dict[str, Any] = {
    "request": {"prompt": "hello"},
    "response": {
        "id": "l",
        "choices": [
            {
                "index": index,
                "text": "hi",
                "finish_reason": "length",
                "prompt_token_ids": [1, 2],
                "token_ids": [3, 4 + index],
                "logprobs": {"tokens": ["token_id:3", f"token_id:{4 + index}"], "token_logprobs": [-1, -2]},
            }
            for index in range(2)
        ],
        "usage": {"prompt_tokens": 2, "completion_tokens": 4},
    },
}
DYNAMO: dict[str, Any] = {
    "request": {
        "messages": [{"role": "user", "content": "(token-in mode)"}],
        "nvext": {"token_data": [1, 2]},
    },
    "response": {
        "id": "d",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 2, "completion_tokens": 2},
        "nvext": {
            "completion_token_ids": [3, 4],
            "engine_data": {
                "prompt_token_ids": [1, 2],
                "completion_token_ids": [3, 4],
                "completion_logprobs": [-1.0, -2.0],
            },
            "detailed_finish_reason": "eos",
        },
    },
}


def npy(rows: int) -> str:
    """Return routed experts as vLLM sends them."""
    shape = (rows, 1, 2)
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    data = np.arange(rows * 2, dtype=np.uint8).tobytes()
    file = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data
    return base64.b64encode(file).decode()


EXPERTS = chat("e", [1, 2], [3, 4])
EXPERTS["response"]["choices"][0]["routed_experts"] = npy(3)


def one(tmp_path: Path, record: dict[str, Any]) -> StoredCall:
    (stored,), problems = read(put(tmp_path, dumped(record)), form="exchange")
    assert problems == []
    return stored.forest.calls[0]


def wrong(tmp_path: Path, record: dict[str, Any]) -> str:
    """Return why a record has no call; one before it says what form the file has."""
    (_,), (problem,) = read(put(tmp_path, dumped(chat("first", [1], [2]), record)))
    assert problem.line == 2
    return problem.reason


def test_a_chat_is_a_call_with_all_that_the_reply_says(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    record = chat("a", [1, 2], [3, 4], reward=0.5, metadata={"task": 3})
    record["request"] |= {"tools": [tool], "chat_template_kwargs": {"thinking": True}}
    spans = [{"version": "v1", "start": 0, "end": 1}, {"version": "v2", "start": 1, "end": 2}]
    record["response"]["choices"][0]["weight_versions"] = spans
    call = one(tmp_path, record)
    assert call.name == "a"
    assert (call.step.prompt_ids.tolist(), call.step.completion_ids.tolist()) == ([1, 2], [3, 4])
    assert call.step.logprobs == (-0.5, -1.5)
    assert call.step.prompt[0] == {"role": "user", "content": "hi"}
    assert call.step.completion[0]["content"] == "said a"
    assert call.step.key == render_key([tool], {"thinking": True})
    assert [(run.version, run.start, run.stop) for run in call.weight_versions] == [
        ("v1", 0, 1),
        ("v2", 1, 2),
    ]
    assert (call.reward, call.metadata) == (0.5, {"model": "m", "task": 3})
    assert (call.finish_reason, call.ending) == ("stop", Ending.WHOLE)


def test_sglangs_own_route_has_its_ids_in_meta_info(tmp_path: Path) -> None:
    call = one(tmp_path, GENERATED)
    assert (call.name, call.step.prompt_ids.tolist(), call.step.completion_ids.tolist()) == (
        "g",
        [1, 2],
        [3, 4],
    )
    assert call.step.logprobs == (-0.5, -0.25)
    assert call.step.completion[0] == {"role": "assistant", "content": "hi"}
    assert [run.version for run in call.weight_versions] == ["7"]


def test_each_turn_of_a_reply_is_a_call(tmp_path: Path) -> None:
    (stored,), _ = read(put(tmp_path, dumped(LEGACY)))
    assert [(call.name, call.ids.tolist(), call.order) for call in stored.forest.calls] == [
        ("l", [1, 2, 3, 4], 0),
        ("l.1", [1, 2, 3, 5], 1),
    ]
    assert {call.ending for call in stored.forest.calls} == {Ending.TRUNCATED}
    several = {**GENERATED, "response": [GENERATED["response"], copy.deepcopy(GENERATED["response"])]}
    several["response"][1]["meta_info"]["id"] = "h"
    (stored,), _ = read(put(tmp_path, dumped(several)))
    assert [call.name for call in stored.forest.calls] == ["g", "h"]


def test_dynamo_tells_ids_beside_the_choices(tmp_path: Path) -> None:
    call = one(tmp_path, DYNAMO)
    assert (call.ids.tolist(), call.step.logprobs, call.finish_reason) == (
        [1, 2, 3, 4],
        (-1.0, -2.0),
        "stop",
    )
    moved = copy.deepcopy(DYNAMO)
    moved["response"]["nvext"]["engine_data"] |= {
        "prompt_token_ids": [1, 2, 3],
        "completion_token_ids": [4],
        "completion_logprobs": [-2.0],
    }
    moved["response"]["usage"]["prompt_tokens"] = 3
    call = one(tmp_path, moved)
    assert (call.ids.tolist(), call.step.logprobs) == ([1, 2, 3, 4], None)
    del moved["response"]["nvext"]["completion_token_ids"]
    assert "another worker continued the turn" in wrong(tmp_path, moved)
    several = copy.deepcopy(DYNAMO)
    several["response"]["choices"] *= 2
    assert "Dynamo sends the ids of one" in wrong(tmp_path, several)


def test_what_the_engine_saw_goes_before_what_was_sent(tmp_path: Path) -> None:
    record = chat("a", [1, 2], [3])
    record["request"]["kv_transfer_params"] = {"prompt_token_ids": [9]}
    assert one(tmp_path, record).step.prompt_ids.tolist() == [1, 2]
    del record["response"]["prompt_token_ids"], record["response"]["usage"]
    assert one(tmp_path, record).step.prompt_ids.tolist() == [9]


@pytest.mark.parametrize("field", ["prompt_token_ids", "input_ids", "prompt", "tokens", "token_ids"])
def test_ids_that_were_sent_are_the_prompt_where_nothing_else_is_said(tmp_path: Path, field: str) -> None:
    record = chat("a", [], [3])
    record["request"][field] = [7, 8]
    del record["response"]["prompt_token_ids"], record["response"]["usage"]
    assert one(tmp_path, record).step.prompt_ids.tolist() == [7, 8]


def test_weights_beside_the_choices_are_those_of_the_first(tmp_path: Path) -> None:
    spans = [{"version": "v1", "start": 0, "end": 1}]
    for index, count in ((0, 1), (1, 0)):
        record = chat("a", [1], [2])
        record["response"]["metadata"] = {"weight_versions": spans}
        record["response"]["choices"][0]["index"] = index
        assert len(one(tmp_path, record).weight_versions) == count


def test_a_reply_alone_may_say_all(tmp_path: Path) -> None:
    call = one(tmp_path, chat("a", [1, 2], [3])["response"])
    assert (call.ids.tolist(), len(call.step.prompt)) == ([1, 2, 3], 0)


def test_stored_replies_may_lack_log_probabilities_and_names(tmp_path: Path) -> None:
    record = chat("a", [1, 2], [3])
    record["response"]["choices"][0] |= {"logprobs": None, "finish_reason": None}
    del record["response"]["id"]
    call = one(tmp_path, record)
    assert (call.step.logprobs, call.name, call.finish_reason) == (None, "line-1", None)


@pytest.mark.parametrize("said", [{"content": 1}, {"tokens": 1}, {"content": "x", "tokens": {}}, 1, "x"])
def test_log_probabilities_of_no_known_form_are_none(tmp_path: Path, said: Any) -> None:
    record = chat("a", [1, 2], [3, 4])
    _choice(record)["logprobs"] = said
    call = one(tmp_path, record)
    assert (call.step.completion_ids.tolist(), call.step.logprobs) == ([3, 4], None)


def test_sentinels_are_missing_log_probabilities(tmp_path: Path) -> None:
    record = chat("a", [1], [3, 4])
    record["response"]["choices"][0]["logprobs"]["content"][0]["logprob"] = -9999.0
    assert one(tmp_path, record).step.logprobs == (None, -1.5)


def events() -> list[Any]:
    """Return the events of a chat stream."""
    pieces: list[dict[str, Any]] = [
        {"delta": {"role": "assistant", "content": ""}},
        {"delta": {"content": "h"}, "token_ids": [3], "logprobs": {"content": [{"logprob": -1.0}]}},
        {"delta": {"content": "i"}, "token_ids": [4], "logprobs": {"content": [{"logprob": -2.0}]}},
        {"delta": {}, "finish_reason": "length"},
    ]
    chunks: list[Any] = [{"id": "s", "choices": [{"index": 0, **piece}]} for piece in pieces]
    chunks[0]["prompt_token_ids"] = [1, 2]
    return [*chunks, "[DONE]"]


@pytest.mark.parametrize("raw", [False, True])
def test_a_stream_is_what_its_events_amount_to(tmp_path: Path, raw: bool) -> None:
    said = "".join(
        f"data: {one if isinstance(one, str) else orjson.dumps(one).decode()}\n\n" for one in events()
    )
    call = one(tmp_path, {"request": {"stream": True}, "response": said if raw else events()})
    assert (call.ids.tolist(), call.step.logprobs, call.ending) == (
        [1, 2, 3, 4],
        (-1, -2),
        Ending.TRUNCATED,
    )
    assert call.step.completion[0] == {"role": "assistant", "content": "hi"}


def test_routed_experts_are_read_in_each_engines_form(tmp_path: Path) -> None:
    experts = one(tmp_path, EXPERTS).routed_experts
    assert experts is not None
    assert (experts.dtype, experts.shape, experts.start) == ("uint8", (3, 1, 2), 0)
    started = copy.deepcopy(EXPERTS)
    started["request"]["routed_experts_prompt_start"] = 1
    found = one(tmp_path, started).routed_experts
    assert found is not None
    assert found.start == 1
    bare = copy.deepcopy(GENERATED)
    numbers = np.arange(6, dtype=np.int32).tobytes()
    bare["response"]["meta_info"]["routed_experts"] = base64.b64encode(numbers).decode()
    found = one(tmp_path, bare).routed_experts
    assert found is not None
    assert (found.dtype, found.shape, found.data) == ("int32", (3, 2), numbers)
    bare["request"]["routed_experts_start_len"] = 1
    found = one(tmp_path, bare).routed_experts
    assert found is not None
    assert (found.start, found.rows) == (1, 2)
    told = copy.deepcopy(DYNAMO)
    data = base64.b64encode(bytes(3)).decode()
    told["response"]["nvext"]["routed_experts"] = {"data": data, "shape": [3, 1, 1], "dtype": "uint8"}
    found = one(tmp_path, told).routed_experts
    assert found is not None
    assert found.rows == 3
    started["request"]["routed_experts_prompt_start"] = 2
    assert "routed experts cover positions 2 to 5 of 4 ids" in wrong(tmp_path, started)
    broken = copy.deepcopy(EXPERTS)
    broken["response"]["choices"][0]["routed_experts"] = npy(3)[:-8]
    assert "`routed_experts` is unreadable" in wrong(tmp_path, broken)


@pytest.mark.parametrize(
    "beside",
    [
        {"path": "/tokenize", "status": 200},
        {"path": "/v1/chat/completions", "status": 400},
        {"path": "/v1/chat/completions/render", "status": 200},
        {"status_code": 503},
    ],
)
def test_what_is_about_no_turn_holds_none(tmp_path: Path, beside: dict[str, Any]) -> None:
    record = {"request": {}, "response": {"error": "no"}, **beside}
    (stored,), problems = read(put(tmp_path, dumped(chat("a", [1], [2]), record)))
    assert (len(stored.forest), problems) == (1, [])


def _choice(record: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = record["response"]["choices"][0]
    return found


OTHERS: dict[str, dict[str, Any]] = {
    "response_token_ids": {"response_token_ids": [9, 9]},
    "completion_token_ids": {"completion_token_ids": [9, 9]},
    "output_ids": {"output_ids": [9, 9]},
    "output_token_logprobs": {"meta_info": {"output_token_logprobs": [[-1, 9, None]]}},
    "logprobs": {"logprobs": {"tokens": ["token_id:9", "token_id:9"]}},
    "nvext": {},
}


@pytest.mark.parametrize("field", OTHERS)
def test_fields_that_contradict_each_other_are_named(tmp_path: Path, field: str) -> None:
    record = chat("a", [1, 2], [3, 4])
    _choice(record).update(OTHERS[field])
    if field == "nvext":
        record["response"]["nvext"] = {"completion_token_ids": [9, 9]}
    assert f"`token_ids` and `{field}`" in wrong(tmp_path, record)


Change = Callable[[dict[str, Any]], object]
WRONG: dict[str, tuple[Change, str]] = {
    "no ids": (lambda r: _choice(r).pop("token_ids"), "it has no sampled ids: ask vLLM for return_token_ids"),
    "no prompt": (lambda r: r["response"].pop("prompt_token_ids"), "has the prompt's ids"),
    "other ids": (lambda r: _choice(r).update(response_token_ids=[9, 9]), "have different ids for one turn"),
    "text for ids": (lambda r: _choice(r).update(token_ids=["3"]), "other than whole numbers"),
    "negative": (lambda r: r["response"].update(prompt_token_ids=[-1]), "negative id"),
    "counts": (lambda r: r["response"]["usage"].update(completion_tokens=9), "2 sampled ids for 9 counted"),
    "prompts": (lambda r: r["response"]["usage"].update(prompt_tokens=9), "2 prompt ids for 9 counted"),
    "few logprobs": (
        lambda r: _choice(r)["logprobs"]["content"].pop(),
        "1 log-probabilities for 2 sampled ids",
    ),
    "an entry": (lambda r: _choice(r)["logprobs"].update(content=[7, 8]), "`entry` is int"),
    "logits": (lambda r: _choice(r)["logprobs"]["content"][0].update(logprob=1.0), "above 0"),
    "others' logprobs": (
        lambda r: [entry.update(token_id=9) for entry in _choice(r)["logprobs"]["content"]],
        "belong to other ids",
    ),
    "an unknown end": (lambda r: _choice(r).update(finish_reason="bored"), "unknown reason, 'bored'"),
    "a failure": (lambda r: _choice(r).update(finish_reason="error"), "the engine failed"),
    "no choices": (lambda r: r["response"].update(choices=[]), "it has no choices"),
    "a request": (lambda r: r.update(request=[1]), "its request is not an object"),
    "messages": (lambda r: r["request"].update(messages="hi"), "`messages` is str"),
    "no role": (lambda r: r["request"].update(messages=[{"content": "x"}]), r"prompt\[0\] has no role"),
    "a reward": (lambda r: r.update(reward="high"), "reward is 'high'"),
    "text": (lambda r: r.update(response="Internal Server Error"), "a text without stream events"),
    "half an event": (lambda r: r.update(response='data: {"a'), "an event of the stream is not valid JSON"),
    "a stream of others": (lambda r: r.update(response=[{"output_ids": [1]}]), "store the whole reply"),
    "nothing": (lambda r: r.update(response=None), "`choices` is null or missing"),
    "a number": (lambda r: r.update(response=7), "`choices` is null or missing"),
    "a choice": (lambda r: r["response"].update(choices=[7]), "`choice` is int"),
    "an event": (lambda r: r.update(response=[7]), "`event` is int"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_reply_that_does_not_hold_together_is_a_problem(tmp_path: Path, name: str) -> None:
    change, told = WRONG[name]
    record = chat("a", [1, 2], [3, 4])
    change(record)
    with pytest.raises(AssertionError, match=told):
        raise AssertionError(wrong(tmp_path, record))


@pytest.mark.parametrize("detail", ["length", "abort", "cancelled : by the client"])
def test_an_engine_s_own_reason_says_that_a_turn_was_cut(tmp_path: Path, detail: str) -> None:
    record = copy.deepcopy(DYNAMO)
    record["response"]["nvext"]["detailed_finish_reason"] = detail
    call = one(tmp_path, record)
    assert call.finish_reason == ("length" if detail == "length" else "abort")
    assert call.step.truncated


def test_ids_in_the_place_of_texts_are_the_sampled_ones(tmp_path: Path) -> None:
    """With `return_tokens_as_token_ids` vLLM writes them so."""
    record = chat("a", [1, 2], [3, 4])
    del _choice(record)["token_ids"]
    for index, entry in zip((3, 4), _choice(record)["logprobs"]["content"], strict=True):
        entry["token"] = f"token_id:{index}"
    assert one(tmp_path, record).step.completion_ids.tolist() == [3, 4]


def test_fields_that_disagree_are_named(tmp_path: Path) -> None:
    record = chat("a", [1, 2], [3, 4])
    _choice(record)["output_ids"] = [5]
    record["response"]["nvext"] = {"completion_token_ids": [6]}
    assert "`token_ids` and `output_ids` and `nvext` have different ids" in wrong(tmp_path, record)


@pytest.mark.parametrize(
    "request_",
    [
        {"prompt": [1, 2], "tools": []},
        {"messages": [{"role": "user", "content": "x"}], "tools": {}},
        {"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": []},
    ],
)
def test_what_was_not_rendered_or_is_odd_has_no_key(tmp_path: Path, request_: dict[str, Any]) -> None:
    record = chat("a", [1, 2], [3])
    record["request"] = request_
    assert one(tmp_path, record).step.key is None


def test_events_of_several_parts_are_read_to_their_end(tmp_path: Path) -> None:
    first, *rest = events()
    call = one(tmp_path, {"request": {"stream": True}, "response": [first, "[DONE]", *rest]})
    assert call.ids.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("holder", ["nvext", "sglext"])
def test_routed_experts_may_stand_beside_the_choices(tmp_path: Path, holder: str) -> None:
    record = chat("a", [1, 2], [3, 4])
    data = base64.b64encode(bytes(3)).decode()
    record["response"][holder] = {"routed_experts": {"data": data, "shape": [3, 1, 1], "dtype": "uint8"}}
    experts = one(tmp_path, record).routed_experts
    assert experts is not None
    assert (experts.data, experts.shape) == (bytes(3), (3, 1, 1))


def test_the_ids_that_sglang_saw_are_the_prompt(tmp_path: Path) -> None:
    record = chat("a", [], [3])
    del record["response"]["prompt_token_ids"], record["response"]["usage"]
    record["response"]["sglext"] = {"input_ids": [7, 8]}
    assert one(tmp_path, record).step.prompt_ids.tolist() == [7, 8]


@pytest.mark.parametrize(
    "chunk",
    [
        {"choices": [7]},
        {"choices": 7},
        {"choices": [{"index": 0, "delta": {"content": 7}}]},
        {"choices": [{"index": 0, "delta": {"tool_calls": [7]}}]},
        {"choices": [], "usage": ["ab", "abc"]},
        {"choices": [], "usage": {}},
    ],
)
def test_chunks_that_do_not_fit_each_other_are_one_problem(tmp_path: Path, chunk: dict[str, Any]) -> None:
    first = {"index": 0, "delta": {"content": "hi"}, "token_ids": [3]}
    begun = {"id": "s", "prompt_token_ids": [1], "usage": "abc", "choices": [first]}
    record = {"request": {}, "response": [begun, chunk, "[DONE]"]}
    assert "a chunk has values of other types than the chunks before it" in wrong(tmp_path, record)


def test_a_choice_whose_index_is_no_number_is_named(tmp_path: Path) -> None:
    choices = [{"index": index, "text": "a", "finish_reason": "stop"} for index in ("a", 1.5)]
    record = {"request": {"prompt": "hello"}, "response": [{"choices": choices}]}
    assert "`index` is str" in wrong(tmp_path, record)
