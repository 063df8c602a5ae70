"""A receipt names each difference that was forgiven, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.core.normalization.messages import assistant, call, calling, part
from tito_core import Forgiveness
from tito_core.normalization.compare import same

F = Forgiveness


SAME = {
    "a part with an empty field": (
        assistant([part("a", cache=None)]),
        assistant("a"),
        frozenset({F.TEXT_PART}),
    ),
    "reasoning twice and once": (
        assistant(reasoning="t", reasoning_content="t"),
        assistant(reasoning="t"),
        frozenset({F.REASONING_NAME}),
    ),
    "reasoning twice and nothing else": (
        assistant(reasoning="t", reasoning_content=""),
        assistant(reasoning="t"),
        frozenset({F.EMPTY_REASONING}),
    ),
    "no parts and an empty text": (assistant([]), assistant(""), frozenset({F.EMPTY_CONTENT})),
    "no parts and None": (assistant([]), assistant(None), frozenset({F.EMPTY_CONTENT})),
    "no parts and no content": (
        assistant([], tool_calls=[call()]),
        {"role": "assistant", "tool_calls": [call()]},
        frozenset({F.EMPTY_CONTENT}),
    ),
    "an empty part and no parts": (
        assistant([part("")]),
        assistant([]),
        frozenset({F.TEXT_PART, F.EMPTY_CONTENT}),
    ),
    "a flat call": (
        calling({"id": "c", "name": "f", "arguments": "{}"}),
        calling(call()),
        frozenset({F.CALL_KEYS}),
    ),
    "a flat call's arguments": (
        calling({"id": "c", "name": "f", "arguments": "{}"}),
        calling({"id": "c", "name": "f", "arguments": {}}),
        frozenset({F.ARGUMENTS}),
    ),
    "a call's type": (calling(call(type="function")), calling(call()), frozenset({F.CALL_KEYS})),
    "an odd call's index": (calling({"x": 1, "index": 0}), calling({"x": 1}), frozenset({F.CALL_KEYS})),
    "an odd call's empty field": (calling({"x": 1, "y": None}), calling({"x": 1}), frozenset({F.CALL_KEYS})),
    "arguments without a call's text": (
        calling({"id": "c", "function": {"name": "f"}}),
        calling(call()),
        frozenset({F.ARGUMENTS}),
    ),
    "a call in no list": (
        calling(call()),
        {**calling(call()), "tool_calls": call()},
        frozenset({F.CALL_KEYS}),
    ),
    "a part's None": (
        {"role": "user", "content": [{"type": "x", "a": None}, {"type": "x"}]},
        {"role": "user", "content": [{"type": "x"}, {"type": "x"}]},
        frozenset({F.ABSENT}),
    ),
    "arguments that are missing and None": (
        calling(call(function={"name": "f"})),
        calling(call(function={"name": "f", "arguments": None})),
        frozenset({F.ABSENT}),
    ),
    "a call's number for an id": (calling(call(id=1)), calling(call(id=1.0)), frozenset({F.NUMBERS})),
    "a number for a function's name": (
        calling(call(function={"name": 1, "arguments": "{}"})),
        calling(call(function={"name": 1.0, "arguments": "{}"})),
        frozenset({F.NUMBERS}),
    ),
    "a number for a thought": (assistant(reasoning=1), assistant(reasoning=1.0), frozenset({F.NUMBERS})),
    "a number longer than Python writes": (
        assistant([part("a", cache=10**5000), part("b")]),
        assistant([part("a", cache=10**5000), part("b")], x=10**5000),
        frozenset({F.OTHER_KEYS}),
    ),
    "a zero's sign": (
        {"role": "user", "content": [{"type": "x", "a": 0.0}, {"type": "y"}]},
        {"role": "user", "content": [{"type": "x", "a": -0.0}, {"type": "y"}]},
        frozenset({F.NUMBERS}),
    ),
    "a number deep in a part": (
        {"role": "user", "content": [{"type": "x", "a": [{"b": 1}]}, {"type": "y"}]},
        {"role": "user", "content": [{"type": "x", "a": [{"b": 1.0}]}, {"type": "y"}]},
        frozenset({F.NUMBERS}),
    ),
}


@pytest.mark.parametrize(("ours", "theirs", "receipt"), SAME.values(), ids=SAME.keys())
def test_a_receipt_names_what_differs_and_nothing_else(ours: Any, theirs: Any, receipt: frozenset[F]) -> None:
    assert same(ours, theirs) == receipt
    assert same(theirs, ours) == receipt
    assert same(ours, ours) == frozenset()
