"""What is new in a prompt, cleaned and lengthened."""

from __future__ import annotations

from typing import Any

import pytest

from tito_core import InputError
from tito_core.normalization.clean import clean, lengthened, readings, says

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


def test_a_developer_may_be_read_as_the_system() -> None:
    developer, asked = {"role": "developer", "content": "d"}, user("a")
    assert list(readings((asked,))) == [(asked,)]
    assert list(readings(())) == [()]
    assert list(readings((developer, asked, developer))) == [
        (developer, asked, developer),
        ({"role": "system", "content": "d"}, asked, {"role": "system", "content": "d"}),
    ]


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
