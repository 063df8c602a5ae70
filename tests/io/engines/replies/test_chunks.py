"""Chunks of a stream, put together."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.io.engines.vllm.vllm_server import chat_answer, chunks, completion_answer, generate_answer, several
from tito_io.engines.replies.chunks import Assembly

CALLS = [
    {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}},
    {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
]


def made(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what chunks amount to."""
    assembly = Assembly()
    for chunk in found:
        assembly.add(chunk)
    return assembly.body()


def bare(value: Any) -> Any:
    """Return a value without nulls, which chunks leave out, and without what no chunk has."""
    if isinstance(value, dict):
        return {name: bare(one) for name, one in value.items() if one is not None and name != "refusal"}
    return [bare(one) for one in value] if isinstance(value, list) else value


@given(
    st.sampled_from([chat_answer, completion_answer, generate_answer]),
    st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=9), min_size=1, max_size=3),
    st.integers(1, 4),
)
def test_what_chunks_amount_to_is_what_they_were_cut_from(
    answer: Any, turns: list[list[int]], size: int
) -> None:
    whole = several(*(answer(ids, logprobs=[-index / 7 for index in ids]) for ids in turns))
    assert bare(made(chunks(whole, size))) == bare(whole)


def test_chunks_stay_as_they_were() -> None:
    found = chunks(chat_answer((7, 8, 9), tool_calls=CALLS))
    before = copy.deepcopy(found)
    made(copy.deepcopy(found))
    assembly = Assembly()
    assembly.add(found[0])
    assert found == before


def test_calls_are_told_by_their_index_and_lose_it() -> None:
    pieces: list[list[dict[str, Any]]] = [
        [{"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}],
        [{"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": "{"}}],
        [{"index": 0, "function": {"arguments": '{"x": 1}'}}, {"index": 1, "function": {"arguments": "}"}}],
    ]
    body = made([{"choices": [{"index": 0, "delta": {"tool_calls": piece}}]} for piece in pieces])
    assert body["choices"][0]["message"]["tool_calls"] == CALLS


def test_what_comes_again_with_every_turn_is_there_once() -> None:
    found = [{"prompt_token_ids": [1, 2], "choices": [{"index": index, "delta": {}}]} for index in (0, 1)]
    assert made(found)["prompt_token_ids"] == [1, 2]


def test_a_null_takes_nothing_away() -> None:
    first = {
        "usage": {"prompt_tokens": 1},
        "choices": [{"index": 0, "finish_reason": "stop", "token_ids": [1]}],
    }
    later = {"usage": None, "choices": [{"index": 0, "finish_reason": None, "token_ids": None}]}
    assert made([first, later]) == first


def test_no_chunks_are_no_turns() -> None:
    assert made([]) == {"choices": []}
    assert made([{"choices": []}, {}]) == {"choices": []}


@pytest.mark.parametrize("name", ["content", "reasoning", "reasoning_content"])
def test_texts_are_joined(name: str) -> None:
    body = made([{"choices": [{"index": 0, "delta": {name: part}}]} for part in ("a", "", "b")])
    assert body["choices"][0]["message"] == {name: "ab"}
