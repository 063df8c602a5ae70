"""How the turn before the seam is written: its shape is kept, its words are not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tito_core.seams.turn_form import WORDS, TurnForm, calls_of, forms, naming, plainly_named

Plain = dict[str, Any]


def call(identity: str, name: str, **more: Any) -> Plain:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": "real"}, **more}


def turn(*calls: Plain, **more: Any) -> Plain:
    return {"role": "assistant", **more, "tool_calls": list(calls)}


def spelled(value: str) -> str:
    return json.dumps({"value": value})


def test_other_keys_of_a_turn_are_kept_for_the_template() -> None:
    """A name, say, that a template writes after the text."""
    turn = {"role": "assistant", "content": "real", "name": "ann", "reasoning": "why", "x": None}
    assert TurnForm(turn).write("hi", "so") == {**turn, "content": "hi", "reasoning": "so"}


def test_reasoning_is_written_under_the_names_that_the_turn_has() -> None:
    form = TurnForm({"role": "assistant", "content": "real", "reasoning": "t", "reasoning_content": ""})
    assert form.write("hi") == {"role": "assistant", "reasoning": WORDS[0], "content": "hi"}
    other = TurnForm({"role": "assistant", "reasoning_content": "t"})
    assert other.write("hi", "Hm.") == {"role": "assistant", "reasoning_content": "Hm.", "content": "hi"}


@pytest.mark.parametrize(
    ("place", "arguments"),
    [(-1, ["So.", "hi"]), (0, ["hi", "So."]), (None, ["So.", "So."])],
)
def test_the_text_stands_in_one_place_and_other_words_elsewhere(
    place: int | None, arguments: list[str]
) -> None:
    made = TurnForm(turn(call("a", "f"), call("b", "g"), content="real"), place).write("hi")
    assert made["tool_calls"] == [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": spelled(arguments[0])}},
        {"id": "b", "type": "function", "function": {"name": "g", "arguments": spelled(arguments[1])}},
    ]
    assert made["content"] == ("hi" if place is None else "So.")


def test_a_flat_call_stays_flat_and_other_keys_are_left_out() -> None:
    flat = {"id": "a", "name": "f", "arguments": "real", "index": 0}
    made = TurnForm(turn(flat), -1).write("hi")
    assert made["tool_calls"] == [{"id": "a", "name": "f", "arguments": spelled("hi")}]
    nameless = TurnForm(turn({"function": {}}), -1).write("hi")
    assert nameless["tool_calls"] == [{"function": {"name": None, "arguments": spelled("hi")}}]


@pytest.mark.parametrize(
    ("calls", "shapes"),
    [
        (0, [(None, False)]),
        (1, [(-1, False), (-1, True), (None, False), (None, True)]),
        (2, [(-1, False), (-1, True), (0, False), (0, True), (None, False), (None, True)]),
    ],
)
def test_the_most_similar_form_of_a_turn_comes_first(
    calls: int, shapes: list[tuple[int | None, bool]]
) -> None:
    message = turn(*[call("a", "f")] * calls, content="")
    found = forms(message)
    assert [(form.place, form.as_object) for form in found] == shapes
    assert all(form.turn is message for form in found)


@pytest.mark.parametrize("given", [{}, {"content": None}])
def test_a_call_without_a_content_has_an_empty_one_before_its_content_holds_the_text(given: Plain) -> None:
    message = turn(call("a", "f"), **given)
    found = [(form.turn.get("content"), form.place) for form in forms(message)]
    assert found == [*[(None, -1)] * 2, *[("", -1)] * 2, *[(None, None)] * 2]


@pytest.mark.parametrize(
    ("calls", "found"),
    [(None, []), ([], []), ("f", []), ({"id": "a"}, []), (["f", {"id": "a"}, None], [{"id": "a"}])],
)
def test_only_calls_that_are_objects_count(calls: Any, found: list[Plain]) -> None:
    assert calls_of({"role": "assistant", "tool_calls": calls}) == found


def text_part(text: str) -> Plain:
    return {"type": "text", "text": text}


@pytest.mark.parametrize(
    ("content", "written"),
    [
        ([text_part("a"), text_part("b")], [text_part("So."), text_part("hi")]),
        ([text_part("a")], "hi"),  # a lone text part is its text
        (
            [text_part("a"), {"type": "refusal", "refusal": "b"}],
            [text_part("hi"), {"type": "refusal", "refusal": "b"}],
        ),
        ([{"type": "text", "text": "a", "x": 1}], "hi"),
        ([text_part("a"), {**text_part("b"), "x": 1}], [text_part("So."), {**text_part("hi"), "x": 1}]),
        ([{"type": "refusal", "refusal": "b"}], "hi"),
        ([], "hi"),
        (["a", "b"], "hi"),
        (7, "hi"),
    ],
)
def test_the_text_stands_in_the_last_text_part_of_a_content_in_parts(content: Any, written: Any) -> None:
    """Templates join several parts in ways of their own."""
    given = json.loads(json.dumps(content))
    assert TurnForm({"role": "assistant", "content": content}).write("hi")["content"] == written
    assert content == given


@pytest.mark.parametrize("said", [{"content": ""}, {"content": None}, {"content": []}, {}])
def test_a_silent_turn_has_its_content_as_it_is(said: Plain) -> None:
    reasoning = {"reasoning": "Three and four."}
    assert TurnForm({"role": "assistant", **said}).silent() == {"role": "assistant", **said}
    found = TurnForm({"role": "assistant", **said, **reasoning}).silent()
    assert found == {"role": "assistant", **said, "reasoning": WORDS[0]}


@pytest.mark.parametrize("odd", ["</s>", "two words", "line\n", "", "\u00e9", "f" * 129])
def test_names_and_ids_that_may_spell_a_close_are_replaced_by_usual_ones(odd: str) -> None:
    calling = turn(call(odd, odd), call("c1", "find"), content="Look.")
    first, second = plainly_named(calling)["tool_calls"]
    assert all(word.isascii() and word.replace("_", "").isalnum() for word in naming(first))
    assert first == {**first, "type": "function"}
    assert second == calling["tool_calls"][1]
    assert plainly_named(calling)["content"] == "Look."
    assert naming(calling["tool_calls"][0]) == (odd, odd)  # the turn itself is as it was
