"""Messages as client libraries hand them over, and what in them is media."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import attrs
import pydantic
import pytest

from tests.core import example
from tito_core import InputError, Messages
from tito_core.message import MAX_DEPTH, call_ids, copied, is_multimodal, media_in


@dataclass
class Data:
    role: str
    content: Any = None


@attrs.frozen
class Value:
    role: str
    content: Any = None


@pytest.mark.parametrize("kind", [Data, Value])
def test_objects_with_fields_are_messages_all_the_way_down(kind: Any) -> None:
    message = kind("user", [kind("x", {"n": 1})])
    plain = {"role": "user", "content": [{"role": "x", "content": {"n": 1}}]}
    assert copied([message], "prompt") == (plain,)


@pytest.mark.parametrize("kind", [Data, Value])
def test_a_set_is_not_json_at_any_depth(kind: Any) -> None:
    """It has no order that a template could print."""
    with pytest.raises(InputError, match=r"prompt\[0\] holds a set"):
        copied([kind("user", {"a"})], "prompt")


class Model(pydantic.BaseModel):
    role: str
    content: Any = None


@pytest.mark.parametrize("kind", [Data, Value, Model, dict])
def test_a_class_is_not_a_message(kind: Any) -> None:
    for wrong in (kind, {"role": "user", "content": kind}):
        with pytest.raises(InputError, match=rf"^prompt\[0\] holds a class, {kind.__name__}: convert"):
            copied([wrong], "prompt")


class Loop:
    """What has a `model_dump` that does not end."""

    def model_dump(self) -> object:
        return self.model_dump()


class Wants:
    """What has a `model_dump` of another library."""

    def model_dump(self, mode: str) -> dict[str, str]:
        return {"role": mode}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (Loop(), "Loop whose model_dump raises: maximum recursion depth exceeded"),
        (Wants(), "Wants whose model_dump raises: .* missing 1 required positional"),
        (Model.model_construct(role="user", content=[10**5000]), None),
    ],
)
def test_an_object_that_cannot_be_dumped_is_named(wrong: Any, why: str | None) -> None:
    if why is None:
        assert copied([wrong], "prompt")[0]["content"] == [10**5000]
    else:
        with pytest.raises(InputError, match=rf"^prompt\[0\] holds a {why}"):
            copied([wrong], "prompt")


def test_a_key_of_thousands_of_digits_is_named() -> None:
    with pytest.raises(InputError, match=r"^prompt\[0\] has the key a number of thousands of digits"):
        copied([{"role": "user", 10**5000: "a"}], "prompt")  # type: ignore[dict-item]  # the error under test


class Dumps:
    """What has a `model_dump` that dumps no fields."""

    def model_dump(self) -> list[int]:
        return [1]


def test_a_dump_without_fields_is_not_a_message() -> None:
    with pytest.raises(InputError, match=r"prompt\[0\] holds a Dumps"):
        copied([Dumps()], "prompt")  # type: ignore[list-item]  # no mapping


class Word(str):
    """A string of some library."""

    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


def test_strings_of_a_library_become_strings() -> None:
    (message,) = copied([{Word("role"): Word("user")}], "prompt")
    assert message == {"role": "user"}
    assert {type(word) for pair in message.items() for word in pair} == {str}


def deep(levels: int) -> dict[str, Any]:
    """Return a message with a list in a list, so many levels below it."""
    data: Any = "x"
    for _ in range(levels):
        data = [data]
    return {"role": "user", "content": data}


def test_nesting_ends_at_a_known_depth() -> None:
    assert copied([deep(MAX_DEPTH)], "prompt") == (deep(MAX_DEPTH),)
    with pytest.raises(InputError, match=rf"prompt\[0\] nests deeper than {MAX_DEPTH} levels"):
        copied([deep(MAX_DEPTH + 1)], "prompt")


def test_an_object_counts_as_two_levels() -> None:
    """Itself, and the object of its fields."""

    def nested(count: int) -> Any:
        return Data("user", None if count == 1 else nested(count - 1))

    assert copied([nested(MAX_DEPTH // 2)], "prompt")
    with pytest.raises(InputError, match=rf"prompt\[0\] nests deeper than {MAX_DEPTH} levels"):
        copied([nested(MAX_DEPTH // 2 + 1)], "prompt")


def test_the_deepest_allowed_nesting_can_be_read() -> None:
    assert Messages.of([deep(MAX_DEPTH)])[0] == deep(MAX_DEPTH)


def test_an_object_that_holds_itself_is_too_deep() -> None:
    loop = Data("user")
    loop.content = loop
    with pytest.raises(InputError, match=r"prompt\[0\] nests deeper"):
        copied([loop], "prompt")  # type: ignore[list-item]  # what a client library may hand over


@pytest.mark.parametrize("wrong", [5, None, "hi", b"hi", {"role": "user"}, {1}, iter(())])
def test_a_value_that_is_no_list_of_messages_is_named_by_its_type(wrong: Any) -> None:
    with pytest.raises(InputError, match=f"^turns must be a list of messages, not {type(wrong).__name__}$"):
        copied(wrong, "turns")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        ({"role": ""}, r"^turns\[3\] has no role"),
        ({}, r"^turns\[3\] has no role"),
        (5, r"^turns\[3\] must be a message \(a mapping with a role\), not int"),
        (["role"], r"^turns\[3\] must be a message .* not list"),
        ({"role": "user", None: 1}, r"^turns\[3\] has the key None"),
    ],
)
def test_an_invalid_message_is_named_by_its_index(message: Any, words: str) -> None:
    with pytest.raises(InputError, match=words):
        copied([message], "turns", 3)
    with pytest.raises(InputError, match=words):
        Messages.of([{"role": "user"}] * 3).then([message], "turns")


@pytest.mark.parametrize(
    ("content", "media"),
    [
        ("an image_url", False),
        (None, False),
        (["image_url"], False),  # a part that is a string is text
        ([{"type": "text", "text": "x"}], False),
        ([{"type": "text", "text": "x", "image_url": None}], False),  # a serializer's empty field
        ([{"image_url": {"url": "x"}}], True),  # some clients leave the type out
        ([{"type": "text", "text": "x"}, {"type": "input_audio"}], True),
        ([{"type": "image_embeds", "image_embeds": "AA=="}], True),
        ([{"type": "tool_result", "content": [{"type": "image"}]}], True),
        ([{"type": "tool_result", "content": [{"type": "text", "text": "x"}]}], False),
        ([{"type": "tool_result", "content": "image"}], False),
        ({"type": "image"}, False),  # no list of parts
    ],
)
def test_media_are_parts_of_a_content(content: Any, media: bool) -> None:
    message = {"role": "user", "content": content}
    assert is_multimodal([message]) == media
    assert Messages.of([message]).multimodal == media
    assert Messages.of([message]).then([{"role": "user"}]).multimodal == media


def test_an_assistant_that_spoke_aloud_has_media() -> None:
    assert is_multimodal([{"role": "assistant", "audio": {"id": "a"}}])
    assert is_multimodal([{"role": "user", "content": "a", "images": ["AA=="]}])
    assert not is_multimodal([{"role": "assistant", "audio": None}])


@pytest.mark.parametrize(
    ("message", "texts"),
    [
        ({"role": "user", "content": "x", "name": None}, True),
        ({"role": "user", "content": [{"text": "x"}, ["y"]]}, True),
        ({"role": "user", "content": [{"text": 1}]}, False),
        ({"role": "user", "content": {"a": {"b": [True]}}}, False),
        ({"role": "user", "content": [["x", 0.5]]}, False),
    ],
)
def test_nested_numbers_are_not_text(message: dict[str, Any], texts: bool) -> None:
    assert Messages.of([message]).texts == texts


def test_reading_messages_gives_copies() -> None:
    messages = Messages.of([{"role": "user", "content": ["a"]}])
    for read in (messages[0], messages[:1][0], next(iter(messages))):
        read["content"].append("b")
    assert messages[0] == {"role": "user", "content": ["a"]}
    assert Messages.of(messages) is messages
    with pytest.raises(InputError, match=r"^prompt\[0\] has no role"):
        Messages.of([{}])
    with pytest.raises(InputError, match=r"^prompt\[1\] has no role"):
        messages.then([{}])


def test_the_opening_ends_before_the_first_other_role() -> None:
    system, developer, user = ({"role": role} for role in ("system", "developer", "user"))
    start = Messages.of([system])
    assert start.then([developer]).then([user]).then([system]).opening == (system, developer)
    assert start.then([user, system]).opening == (system,)
    assert Messages.of([]).opening == ()
    assert Messages.of([user]).then([user]).asked == 1
    assert Messages.of([user]).then([system]).asked == 0


def test_a_part_without_a_type_is_not_media() -> None:
    kinds: list[Any] = [[], {}, None, 7]
    for kind in kinds:
        assert not is_multimodal([{"role": "user", "content": [{"type": kind, "text": "a"}]}])
    assert is_multimodal([{"role": "user", "content": [{"type": [], "image_url": {"url": "a"}}]}])


class Said(pydantic.BaseModel):
    role: str
    content: str | None = None


@attrs.frozen
class Spoken:
    role: str
    content: list[Any]


def test_objects_of_client_libraries_become_plain_data() -> None:
    messages: list[Any] = [Said(role="user", content="a"), Spoken("user", [Said(role="x")])]
    assert copied(messages, "prompt") == (
        {"role": "user", "content": "a"},
        {"role": "user", "content": [{"role": "x", "content": None}]},
    )
    with pytest.raises(InputError, match=r"prompt\[3\] holds a SimpleNamespace"):
        copied([SimpleNamespace(role="user")], "prompt", 3)  # type: ignore[list-item]  # no fields to read


def test_messages_that_add_nothing_to_the_summary_share_it() -> None:
    start = Messages.of([{"role": "system", "content": "s"}])
    longer = start.then([example.user()]).then([example.assistant(), example.user("more")])
    assert longer.summary is start.summary
    assert longer.asked == 3
    mixed = longer.then([{"role": "tool", "content": [1]}])
    assert (mixed.summary.mixed, mixed.mixed, mixed.then([example.user()]).texts) == (1, 1, True)


@pytest.mark.parametrize("kind", ["images", "document_x", "file_url", "image_file", "my_image", "text"])
def test_a_part_of_another_type_than_the_known_ones_is_no_media(kind: str) -> None:
    assert not is_multimodal([{"role": "user", "content": [{"type": kind, kind: "a"}]}])


def test_switches_after_the_opening_are_known_by_their_roles() -> None:
    opening = {"role": "system", "content": "Be brief. /no_think"}
    later = {"role": "developer", "content": [{"type": "text", "text": "Now /think"}]}
    start = Messages.of([opening])
    assert start.switched == start.then([{"role": "assistant", "content": "/think"}]).switched == frozenset()
    assert start.then([{**opening, "content": "/think"}]).switched == frozenset()
    asked = start.then([{"role": "user", "content": "Hello. /nothink"}])
    assert asked.switched == {"user"}
    assert asked.then([later]).switched == asked.then([later]).then([opening]).switched == {"user", "system"}
    assert Messages.of([opening, {"role": "user", "content": "a"}, later]).switched == {"system"}


@pytest.mark.parametrize(("key", "kind"), [("images", "image"), ("videos", "video"), ("audio", "audio")])
def test_media_beside_the_content_are_of_their_kind(key: str, kind: str) -> None:
    assert media_in({"role": "user", "content": "?", key: ["x"]}) == [{"type": kind}]
    assert media_in({"role": "user", "content": "?", key: None}) == []


def test_a_call_is_known_by_its_id_however_long_ago_it_was_made() -> None:
    calling = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "call-1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
    }
    messages = Messages.of([{"role": "user", "content": "a"}, calling])
    for number in range(3):
        assert messages.calls(["call-1"])
        assert messages.calls([None, "call-1"])
        assert not messages.calls([])
        assert not messages.calls(["call-2"])
        messages = messages.then([{"role": "user", "content": str(number)}])


def test_a_call_without_an_id_has_none_in_its_place() -> None:
    """A template may tell apart whether an earlier call has an id, so that none is left out."""
    calls: list[Any] = [{"id": "a"}, {}, {"id": None}, {"id": ["b"]}, "no call", {"id": 7}]
    assert call_ids({"role": "assistant", "tool_calls": calls}) == ["a", None, None, None, 7]
    assert call_ids({"role": "assistant", "tool_calls": None}) == []
