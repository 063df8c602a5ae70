"""The canonical form and its receipts, where the tables of law 7 leave room."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.core.normalization.messages import assistant, call, calling, part
from tito_core import Forgiveness
from tito_core.message import MAX_DEPTH
from tito_core.normalization.canonical import Canonical, normalize, sole_text
from tito_core.normalization.compare import same

F = Forgiveness


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


def test_a_canonical_form_has_all_that_identifies_a_message() -> None:
    assert normalize({"role": "tool", "content": "7", "tool_call_id": "c", "name": "f", "x": 1}) == Canonical(
        role="tool", content="7", reasoning=None, tool_calls=(), tool_call_id="c", name="f"
    )


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


def written(arguments: Any) -> dict[str, Any]:
    return calling({"id": "c", "function": {"name": "f", "arguments": arguments}})


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": Infinity}', '[{"a": 1}]', '"a"', "{a: 1}", "7"])
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


def test_whole_numbers_that_differ_in_a_late_digit_differ() -> None:
    assert same(written('{"a": 0.10000000000000000001}'), written('{"a": 0.1}')) is not None
    assert same(written(f'{{"a": {"7" * 5000}}}'), written(f'{{"a": {"7" * 4999}8}}')) is None


def test_each_canonical_form_is_distinct_and_none_in_a_part_is_ignored() -> None:
    form = normalize(assistant())
    assert normalize(form) is form
    parts = [part("a"), part("b", cache=None)]
    assert normalize(assistant(parts)) == normalize(assistant([part("a"), part("b")]))
    assert normalize(assistant(parts)) == normalize(assistant([part("a"), part("b", cache=1)]))
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


@pytest.mark.parametrize("content", ["", None, [], [part("")]])
def test_an_empty_content_of_an_assistant_is_none_and_a_users_is_not(content: Any) -> None:
    """A client writes what an assistant did not say in several ways; an empty list of parts is one."""
    assert normalize(assistant(content)).content is None
    user = normalize({"role": "user", "content": content})
    assert (user.content is None) is (content is None)
    assert same({"role": "user", "content": []}, {"role": "user", "content": ""}) is None
