"""Conversations that stand in for the real one, and ways to write its last turn."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tito_core.seams.stand_in import (
    ANSWER,
    CALL_ID,
    NO_KEY,
    SWITCHED,
    SYSTEM,
    UNLIKELY,
    USER,
    WORDS,
    TurnForm,
    akin_histories,
    calls_of,
    contexts,
    forms,
    in_loop,
    lookups,
)

Plain = dict[str, Any]


def call(identity: str, name: str, **more: Any) -> Plain:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": "real"}, **more}


def turn(*calls: Plain, **more: Any) -> Plain:
    return {"role": "assistant", **more, "tool_calls": list(calls)}


def spelled(value: str) -> str:
    return json.dumps({"value": value})


def test_a_plain_turn_is_its_role_and_the_text() -> None:
    assert TurnForm({"role": "assistant", "content": "real"}).write("hi") == {
        "role": "assistant",
        "content": "hi",
    }


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


@pytest.mark.parametrize(
    ("more", "content"),
    [
        ({"content": "real"}, {"content": "So."}),
        ({"content": ""}, {"content": ""}),
        ({"content": None}, {"content": None}),
        ({}, {}),
    ],
)
def test_a_content_keeps_its_kind_beside_a_call(more: Plain, content: Plain) -> None:
    made = TurnForm(turn(call("a", "f"), **more), place=-1).write("hi")
    assert {key: value for key, value in made.items() if key not in {"role", "tool_calls"}} == content


def test_arguments_are_written_as_text_or_as_an_object() -> None:
    written = [TurnForm(turn(call("a", "f")), -1, as_object).write("hi") for as_object in (False, True)]
    given = [made["tool_calls"][0]["function"]["arguments"] for made in written]
    assert given == [spelled("hi"), {"value": "hi"}]


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


def roles(context: tuple[Plain, ...]) -> str:
    """Return the first letters of a history's roles."""
    return "".join(message["role"][0] for message in context)


PASTS = ("suat", "suat", "uat", "uat", "su", "u")
"""What stands before the last answer of unlike histories."""


@pytest.mark.parametrize(
    ("role", "likely", "unlike"),
    [
        ("user", ["u"], ["suatau", "suatau", "uatau", "uatau", "suau", "uau"]),
        ("system", ["s", "us"], [*(f"{past}as" for past in PASTS), *(f"{past}aus" for past in PASTS)]),
        ("developer", ["d", "ud"], [*(f"{past}ad" for past in PASTS), *(f"{past}aud" for past in PASTS)]),
        ("assistant", ["ua"], ["suataua", "suataua", "uataua", "uataua", "suaua", "uaua"]),
    ],
)
def test_a_history_ends_with_the_role_that_the_real_one_ends_with(
    role: str, likely: list[str], unlike: list[str]
) -> None:
    found = contexts(role)
    assert list(map(roles, found.likely)) == likely
    assert list(map(roles, found.unlike)) == unlike


def test_a_tool_loop_ends_with_a_result_and_has_another_before_it() -> None:
    found = contexts("tool", (("real",),))
    assert list(map(roles, found.likely)) == ["uat", "uat"]
    assert {roles(context) for context in found.unlike} == {
        "suatauatat",
        "uatauatat",
        "suauatat",
        "uauatat",
    }
    assert len(found.unlike) == 16
    assert found.calling == found.unlike
    assert {message["tool_call_id"] for message in found.likely[0] if message["role"] == "tool"} == {CALL_ID}
    for place, context in enumerate(found.unlike):
        assert {m["tool_call_id"] for m in context if m["role"] == "tool"} == {"real"}
        assert [bool(m.get("reasoning")) for m in context if calls_of(m)][-2:] == [place < 12, False]


def lookup(context: tuple[Plain, ...]) -> tuple[Any, Plain]:
    """Return the arguments of the last call and its result."""
    return context[-2]["tool_calls"][0]["function"]["arguments"], context[-1]


def test_a_lookup_is_a_call_and_its_result_in_both_spellings() -> None:
    as_object, as_text = contexts("tool").likely
    arguments, result = lookup(as_object)
    assert arguments == {"x": "3"}
    assert lookup(as_text) == ('{"x": "3"}', result)
    assert result == {"role": "tool", "tool_call_id": CALL_ID, "name": "add", "content": "7"}
    calls = calls_of(as_object[-2])
    assert [(one["id"], one["type"], one["function"]["name"]) for one in calls] == [
        (CALL_ID, "function", "add")
    ]
    assert {context[-2]["content"] for context in (as_object, as_text)} == {""}


def test_a_lookup_in_an_unlike_history_is_another() -> None:
    function = {"name": UNLIKELY, "arguments": {"x": "25"}}
    richest = contexts("user", (("real",),)).unlike[0]
    assert calls_of(richest[2]) == [{"id": "real", "type": "function", "function": function}]
    assert richest[2]["content"] == ""
    assert richest[3] == {"role": "tool", "tool_call_id": "real", "name": UNLIKELY, "content": "Now: 29"}


@pytest.mark.parametrize("role", ["user", "tool", "system", "assistant"])
def test_no_text_of_a_likely_history_stands_in_an_unlike_one(role: str) -> None:
    found = contexts(role)
    near = {message["content"] for context in found.likely for message in context} - {""}
    far = {message["content"] for context in found.unlike for message in context}
    assert not near & far


ASKED: Plain = {"role": "user", "content": "real"}
TEXT: Plain = {"role": "system", "content": "real"}


@pytest.mark.parametrize(
    ("role", "history", "kin"),
    [
        ("user", (TEXT, ASKED), [(TEXT, ASKED)]),
        ("user", (), [()]),
        ("system", (TEXT, ASKED), [(TEXT, ASKED, SYSTEM)]),
        ("system", (TEXT,), [(TEXT,)]),  # it ends that way already
        ("assistant", (ASKED,), [(ASKED, ANSWER)]),
    ],
)
def test_related_histories_have_the_messages_of_the_real_history(
    role: str, history: tuple[Plain, ...], kin: list[tuple[Plain, ...]]
) -> None:
    assert list(akin_histories(role, history)) == kin


def test_related_histories_in_a_tool_loop_end_with_a_result_in_both_forms() -> None:
    first, second = akin_histories("tool", (TEXT, USER))
    assert first[:2] == second[:2] == (TEXT, USER)
    assert (lookup(first)[0], lookup(second)[0]) == ({"x": "3"}, '{"x": "3"}')
    assert roles(first) == roles(second) == "suat"
    assert (calls_of(first[2])[0]["function"]["name"], first[3]["name"]) == ("add", "add")


@pytest.mark.parametrize("role", ["function", "ipython", "observation"])
def test_any_other_role_answers_a_call_and_ends_the_history(role: str) -> None:
    """Templates know results of tools by several names."""
    found = contexts(role, (("real",),))
    for context in (*found.likely, *found.unlike, *akin_histories(role, (TEXT, ASKED))):
        assert context[-1]["role"] == role
        assert calls_of(context[-2])[0]["id"] == context[-1]["tool_call_id"]
    assert {context[-1]["tool_call_id"] for context in found.unlike} == {"real"}
    before = [message["role"] for context in found.unlike for message in context[:-4]]
    assert set(before) <= {"system", "user", "assistant", "tool"}


def test_earlier_calls_are_called_in_one_turn_or_in_several_and_answered_in_order() -> None:
    for turns, past in (((("c", "d"),), "suattau"), ((("c",), ("d",)), "suatatau")):
        found = contexts("user", turns)
        for context in found.unlike:
            answered = [message["tool_call_id"] for message in context if message["role"] == "tool"]
            called = [call["id"] for message in context for call in calls_of(message)]
            assert called == answered == (["c", "d"] if context in found.calling else [])
        assert roles(found.calling[0]) == past
        assert found.calling == found.unlike[:4]


def test_an_id_that_is_missing_is_none_or_has_no_key() -> None:
    for missing, call_ids, answered in ((None, [None], [None]), (NO_KEY, ["absent"], ["absent"])):
        messages, _ = lookups("f", 1, ((missing,),))
        called = [call.get("id", "absent") for one in messages for call in calls_of(one)]
        results = [one.get("tool_call_id", "absent") for one in messages if one["role"] == "tool"]
        assert (called, results) == (call_ids, answered)


def test_a_loop_may_go_on_after_other_messages() -> None:
    found = in_loop(("user", "system"), (("c",),))
    assert {roles(one) for one in found} == {f"{past}auatus" for past in PASTS}
    assert {one[-3]["tool_call_id"] for one in found} == {"c"}
    near = {message["content"] for one in contexts("user").likely for message in one}
    assert not near & {message["content"] for one in found for message in one}


@pytest.mark.parametrize(
    ("role", "likely"),
    [
        ("user", ["su"]),
        ("assistant", ["sua"]),
        ("tool", ["suat", "suat"]),
        ("function", ["suaf", "suaf"]),
        ("system", ["s", "us"]),
        ("developer", ["d", "ud"]),
    ],
)
def test_a_likely_history_begins_with_a_system_text_as_the_real_one_does(
    role: str, likely: list[str]
) -> None:
    """Without one, a template looks for it further on, among the new messages."""
    assert list(map(roles, contexts(role, opened=True).likely)) == likely
    assert contexts(role, opened=True).unlike == contexts(role).unlike


def test_the_switches_that_templates_look_for_are_on_in_one_history_and_off_in_another() -> None:
    off, on = ([message["content"].split()[-1] for message in context] for context in SWITCHED)
    assert (off, on) == (["/no_think", "/nothink"], ["/think", "/think"])
    assert list(map(roles, SWITCHED)) == ["su", "su"]


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
        ([{"type": "text", "text": "a", "x": 1}], [{"type": "text", "text": "hi", "x": 1}]),
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


def test_a_content_in_parts_beside_a_call_stays_in_parts() -> None:
    made = TurnForm(turn(call("a", "f"), content=[text_part("a"), text_part("b")]), -1).write("hi")
    assert made["content"] == [text_part("So."), text_part("So.")]
    assert TurnForm(turn(call("a", "f"), content=[]), -1).write("hi")["content"] == []


def test_a_form_writes_the_turn_between_what_is_before_and_what_follows() -> None:
    form = TurnForm({"role": "assistant", "content": "real"})
    write = form.within((USER,), (ASKED,))
    assert write("hi") == (USER, {"role": "assistant", "content": "hi"}, ASKED)
    assert write("ho")[1]["content"] == "ho"
    assert form.within((USER,))("hi") == (USER, {"role": "assistant", "content": "hi"})
