"""The canonical form and its receipts, where the tables of law 7 leave room."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from tito_core import Forgiveness, InputError
from tito_core.message import MAX_DEPTH
from tito_core.normalization.canonical import Canonical, normalize, sole_text
from tito_core.normalization.compare import same

F = Forgiveness


def assistant(content: Any = "a", **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def calling(call: Any) -> dict[str, Any]:
    return assistant(None, tool_calls=[call])


def part(text: Any, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": text, **more}


def call(**more: Any) -> dict[str, Any]:
    return {"id": "c", "function": {"name": "f", "arguments": "{}"}, **more}


def nested(depth: int) -> Any:
    data: Any = 1
    for _ in range(depth):
        data = {"a": data}
    return data


def listed(depth: int) -> Any:
    """Return an object that holds lists in lists, as deep as `nested` goes."""
    data: Any = 1
    for _ in range(depth - 1):
        data = [data]
    return {"a": data}


def test_an_invalid_message_is_named() -> None:
    with pytest.raises(InputError, match=r"^message\[0\] has no role"):
        normalize({"content": "x"})
    with pytest.raises(InputError, match=r"^ours\[0\] has no role"):
        same({}, assistant())
    with pytest.raises(InputError, match=r"^theirs\[0\] has no role"):
        same(assistant(), {})


def test_a_canonical_form_has_all_that_identifies_a_message() -> None:
    assert normalize({"role": "tool", "content": "7", "tool_call_id": "c", "name": "f", "x": 1}) == Canonical(
        role="tool", content="7", reasoning=None, tool_calls=(), tool_call_id="c", name="f"
    )


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
    "a number for a flat call's name": (
        calling({"id": "c", "name": 1, "arguments": "{}"}),
        calling({"id": "c", "name": 1.0, "arguments": "{}"}),
        frozenset({F.NUMBERS}),
    ),
    "a number in a result's id": (
        {"role": "tool", "tool_call_id": 1, "content": "7"},
        {"role": "tool", "tool_call_id": 1.0, "content": "7"},
        frozenset({F.NUMBERS}),
    ),
    "a number for a thought": (assistant(reasoning=1), assistant(reasoning=1.0), frozenset({F.NUMBERS})),
    "a number longer than Python writes": (
        assistant([part("a", cache=10**5000), part("b")]),
        assistant([part("a", cache=10**5000), part("b")], x=10**5000),
        frozenset({F.OTHER_KEYS}),
    ),
    "a number deep in a part": (
        {"role": "user", "content": [{"type": "x", "a": [{"b": 1}]}, {"type": "y"}]},
        {"role": "user", "content": [{"type": "x", "a": [{"b": 1.0}]}, {"type": "y"}]},
        frozenset({F.NUMBERS}),
    ),
    "an order of keys in an object is none": (
        calling(call(function={"name": "f", "arguments": {"x": [{"a": 1, "b": 2}]}})),
        calling(call(function={"name": "f", "arguments": {"x": [{"b": 2, "a": 1}]}})),
        frozenset(),
    ),
}


@pytest.mark.parametrize(("ours", "theirs", "receipt"), SAME.values(), ids=SAME.keys())
def test_a_receipt_names_what_differs_and_nothing_else(ours: Any, theirs: Any, receipt: frozenset[F]) -> None:
    assert same(ours, theirs) == receipt
    assert same(theirs, ours) == receipt
    assert same(ours, ours) == frozenset()


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (assistant([part("a"), part("b", cache=None)]), assistant([part("a"), part("b")])),
        (assistant(tool_calls=call()), assistant(tool_calls=[call()])),
        (assistant(tool_calls="f"), assistant(tool_calls=["f"])),
    ],
)
def test_these_are_the_same(ours: Any, theirs: Any) -> None:
    assert same(ours, theirs) is not None
    assert same(theirs, ours) is not None


DIFFERENT = {
    "parts that are strings": (assistant(["a", "b"]), assistant(["a", "c"])),
    "a part that says more": (assistant([part("a", cache=1)]), assistant("a")),
    "a part of another type": (assistant([{"type": "refusal", "text": "a"}]), assistant("a")),
    "a part whose text is none": (assistant([part(1)]), assistant("1")),
    "two parts and their list": (assistant([part("a"), part("b")]), assistant(["a", "b"])),
    "two reasonings": (assistant(reasoning="t", reasoning_content="u"), assistant(reasoning="t")),
    "two reasonings, in turn": (
        assistant(reasoning="t", reasoning_content="u"),
        assistant(reasoning="u", reasoning_content="t"),
    ),
    "calls that are no objects": (calling("f"), calling("g")),
    "odd calls": (calling({"id": "c", "x": 1}), calling({"id": "c", "x": 2})),
    "odd calls of other ids": (calling({"id": "c", "x": 1}), calling({"id": "d", "x": 1})),
    "an odd call and none": (calling({"id": "c"}), assistant(None)),
    "arguments that are a list": (calling(call(function={"name": "f", "arguments": [1]})), calling(call())),
    "an empty list of arguments": (calling(call(function={"name": "f", "arguments": []})), calling(call())),
    "an object and an array of pairs": (assistant({"a": 1}), assistant([["a", 1]])),
    "not a number": (assistant({"a": math.inf}), assistant({"a": -math.inf})),
    "infinity and its name": (assistant({"a": math.inf}), assistant({"a": "inf"})),
    "a truth and its name": (assistant({"a": True}), assistant({"a": ["truth", True]})),
}


@pytest.mark.parametrize(("ours", "theirs"), DIFFERENT.values(), ids=DIFFERENT.keys())
def test_these_differ(ours: Any, theirs: Any) -> None:
    assert same(ours, theirs) is None
    assert same(theirs, ours) is None


@pytest.mark.parametrize("deep", [nested, listed])
def test_arguments_nest_as_deep_as_messages(deep: Callable[[int], Any]) -> None:
    def texts(depth: int) -> tuple[Any, Any]:
        text = json.dumps(deep(depth))
        one, other = (calling(call(function={"name": "f", "arguments": t})) for t in (text, text + " "))
        return one, other

    assert same(*texts(MAX_DEPTH + 1)) == frozenset({F.ARGUMENTS})
    assert same(*texts(MAX_DEPTH + 2)) is None  # too deep to be read: text


def test_only_a_lone_text_part_is_its_string() -> None:
    two = [part("a"), part("b")]
    assert sole_text([part("a")]) == "a"
    assert sole_text([part("")]) == ""
    assert sole_text(two) is two
    for other in (None, "a", [], ["a"], [[part("a")]], {"type": "text", "text": "a"}):
        assert sole_text(other) is other


WHITE = frozenset((F.TRAILING_WHITESPACE,))
DROPPED = frozenset((F.DROPPED_REASONING,))


@pytest.mark.parametrize(
    ("ours", "theirs", "forgive", "receipt"),
    [
        (assistant("a"), assistant("a "), WHITE, WHITE),
        (assistant("a "), assistant("a\n"), WHITE, WHITE),
        (assistant("a"), assistant("a"), WHITE, frozenset()),
        (assistant(" a"), assistant("a"), WHITE, None),
        (assistant(" \n"), assistant(""), WHITE, WHITE),
        ({"role": "user", "content": "a "}, {"role": "user", "content": "a"}, WHITE, None),
        (assistant(reasoning="t"), assistant(), DROPPED, DROPPED),
        (assistant(reasoning="t"), assistant(reasoning="t"), DROPPED, frozenset()),
        (assistant(), assistant(reasoning="t"), DROPPED, None),  # it was never thought
        (assistant(reasoning="t"), assistant(reasoning="u"), DROPPED, None),
        ({"role": "user", "reasoning": "t"}, {"role": "user"}, DROPPED, None),
        (assistant("a ", reasoning="t"), assistant("a"), WHITE | DROPPED, WHITE | DROPPED),
        (assistant("a ", reasoning="t"), assistant("a"), WHITE, None),
        (assistant("a ", reasoning="t"), assistant("a"), DROPPED, None),
    ],
)
def test_what_a_policy_forgives_has_an_owner_and_a_direction(
    ours: Any, theirs: Any, forgive: frozenset[F], receipt: frozenset[F] | None
) -> None:
    assert same(ours, theirs, forgive) == receipt


def written(arguments: Any) -> dict[str, Any]:
    return calling({"id": "c", "function": {"name": "f", "arguments": arguments}})


@pytest.mark.parametrize(
    "text", ['{"a": 1, "a": 2}', '{"a": NaN}', '{"a": Infinity}', '[{"a": 1}]', '"a"', "{a: 1}", "7"]
)
def test_arguments_that_are_not_one_json_object_stay_text(text: str) -> None:
    assert normalize(written(text)).tool_calls[0].arguments == text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", {}),
        (None, {}),
        ('{"a": 1}', {"a": 1.0}),
        ('{"a": 1.50, "b": [true, null]}', {"b": [True, None], "a": 1.5}),
        (f'{{"a": {"7" * 5000}}}', None),  # beyond what Python reads as a whole number
        ('{"a": 0.1000000000000000055511151231257827}', None),
    ],
)
def test_arguments_are_what_they_mean(text: Any, value: Any) -> None:
    spaced = text.replace(":", " :  ") if value is None else value
    assert same(written(text), written(spaced)) is not None
    assert normalize(written(text)) == normalize(written(spaced))
    assert normalize(written(text)).tool_calls[0].arguments != text


def test_numbers_that_differ_in_a_late_digit_differ() -> None:
    assert same(written('{"a": 0.10000000000000000001}'), written('{"a": 0.1}')) is None
    assert same(written(f'{{"a": {"7" * 5000}}}'), written(f'{{"a": {"7" * 4999}8}}')) is None


def test_each_canonical_form_is_distinct_and_none_in_a_part_is_ignored() -> None:
    form = normalize(assistant())
    assert normalize(form) is form
    parts = [part("a"), part("b", cache=None)]
    assert normalize(assistant(parts)) == normalize(assistant([part("a"), part("b")]))
    assert normalize(assistant(parts)) != normalize(assistant([part("a"), part("b", cache=1)]))
    assert normalize(assistant(parts)) != normalize(assistant([part("a"), part("c")]))


def test_invalid_tool_calls_with_equal_values_are_equal() -> None:
    assert same(calling({"id": "c", "kind": "x", "index": 0}), calling({"kind": "x", "id": "c"})) is not None
    assert same(calling({"id": "c", "kind": "x"}), calling({"id": "c", "kind": "y"})) is None
    assert same(calling("x"), calling("x")) is not None
    assert same(calling("x"), calling("y")) is None
    assert same(calling({"id": "c"}), calling({"id": "d"})) is None


def test_a_call_of_no_known_form_is_compared_by_its_other_keys() -> None:
    """Where ids may be renamed, a call of no known form is compared by the rest of it."""
    forgive = frozenset((F.RENAMED_TOOL_IDS,))
    ours, theirs = (calling({"id": name, "kind": "x"}) for name in "cd")
    assert same(ours, theirs, forgive) == forgive


def test_an_id_that_was_left_out_is_not_renamed() -> None:
    forgive = frozenset((F.RENAMED_TOOL_IDS,))
    named, nameless = (calling(call(id=name)) for name in ("c", None))
    assert same(named, nameless, forgive) is None
    assert same(nameless, named, forgive) is None
    assert same(nameless, nameless, forgive) == frozenset()
