"""What is new in a prompt, cleaned and lengthened."""

from __future__ import annotations

from typing import Any

import pytest

from tito_core import InputError
from tito_core.normalization.clean import clean, lengthened, says

Plain = dict[str, Any]


def part(text: str) -> Plain:
    return {"type": "text", "text": text}


def user(content: Any, **more: Any) -> Plain:
    return {"role": "user", "content": content, **more}


@pytest.mark.parametrize(
    ("message", "cleaned"),
    [
        (user([part("a")], name="x"), user("a", name="x")),
        (user("a"), user("a")),
        (user(None), user(None)),
        ({"role": "user"}, {"role": "user"}),
        (user([part("a"), part("b")]), user([part("a"), part("b")])),
    ],
)
def test_a_lone_text_part_becomes_its_string(message: Plain, cleaned: Plain) -> None:
    assert clean([message]) == (cleaned,)


def test_an_invalid_message_is_named() -> None:
    with pytest.raises(InputError, match=r"^environment\[1\] has no role"):
        clean([user("a"), {}])


@pytest.mark.parametrize(
    ("content", "longer"),
    [
        ("a", "a more"),
        ("", " more"),
        (None, " more"),
        ([part("a")], [part("a"), part(" more")]),
        (7, 7),
        ({"x": 1}, {"x": 1}),
    ],
)
def test_a_refusal_has_a_hint_where_one_is_known(content: Any, longer: Any) -> None:
    assert lengthened([user(content), user(content)], [1]) == (user(content), user(longer))


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ([user("a ZEPHYR, no?")], True),
        ([user("zep")], False),
        ([user([part("one"), part("zephyr")])], True),
        ([user("one", zephyrs=None)], True),  # a key may be written, too
        ([user(("one", {"x": ("two", "Zephyr")}))], True),
        ([user(7), user(None), user({"x": True})], False),
        ([], False),
    ],
)
def test_a_word_of_the_new_messages_is_found_at_any_depth(value: Any, found: bool) -> None:
    assert says(value, "Zephyr") is found


def test_letters_with_equal_case_folding_are_alike() -> None:
    assert says([user("STRASSE")], "straße")
    assert says([user("straße")], "STRASSE")


def test_a_message_with_a_number_that_python_does_not_write_may_say_anything() -> None:
    assert says([{**user("no"), "n": 10**5000}], "Zephyr")


def calling(*calls: Any, **more: Any) -> Plain:
    return {"role": "assistant", "tool_calls": list(calls), **more}


def call(name: str, **more: Any) -> Plain:
    return {"id": "c", "function": {"name": name, "arguments": "{}"}, **more}


@pytest.mark.parametrize("content", [{"content": ""}, {"content": None}, {"content": []}, {}])
def test_an_empty_text_beside_calls_stays_empty_and_the_names_are_longer(content: Plain) -> None:
    """A template may not write a text that is empty; the name of a call it writes."""
    message = calling(call("f", type="function"), call("g"), **content)
    assert lengthened([message], [0]) == (
        calling(call("f_and_more", type="function"), call("g_and_more"), **content),
    )
    assert message == calling(call("f", type="function"), call("g"), **content)


def test_a_flat_call_and_one_in_no_list_have_a_longer_name_too() -> None:
    flat = {"id": "c", "name": "f", "arguments": "{}"}
    assert lengthened([calling(flat)], [0]) == (calling({**flat, "name": "f_and_more"}),)
    alone = {"role": "assistant", "tool_calls": call("f")}
    assert lengthened([alone], [0]) == (calling(call("f_and_more")),)
    assert lengthened([calling("f")], [0]) == (calling("f"),)


def test_a_text_beside_calls_is_longer_and_the_names_are_not() -> None:
    assert lengthened([calling(call("f"), content="a")], [0]) == (calling(call("f"), content="a more"),)
    assert lengthened([calling(content="")], [0]) == (calling(content=" more"),)  # it has no calls


@pytest.mark.parametrize(
    ("text", "longer"),
    [("a <think>", "a more <think>"), ("<a> > b", "<a> > b more"), ("<<<", "<<< more"), ("<7", "<7 more")],
)
def test_no_word_goes_into_a_tag(text: str, longer: str) -> None:
    assert lengthened([user(text)], [0]) == (user(longer),)


@pytest.mark.parametrize("text", ["a b " * 100_000, "." * 400_000, f"<{'a' * 400_000}>"])
def test_a_long_text_is_read_once(text: str) -> None:
    """Files and pages stand in tool results; looking for a tag from each letter would take minutes."""
    (message,) = lengthened([user(text)], [0])
    assert len(message["content"]) == len(text) + len(" more")


def test_graded_messages_grow_by_one_word_more_each() -> None:
    """Then the text of one does not pass for that of another."""
    environment = [user("a"), calling(call("f")), user([part("b")]), user(None)]
    assert lengthened(environment, range(4), graded=True) == (
        user("a more"),
        calling(call("f_and_more_and_more")),
        user([part("b"), part(" more more more")]),
        user(" more more more more"),
    )
    some = lengthened(environment, [0, 2], graded=True)
    assert some == (user("a more"), environment[1], user([part("b"), part(" more more")]), environment[3])
    assert lengthened(environment, [2])[2] == user([part("b"), part(" more")])
