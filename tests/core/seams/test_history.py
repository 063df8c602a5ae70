"""Stand-in histories: short conversations that a template takes, unlike the real one or akin to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from tito_core.message import texts_in
from tito_core.seams.history import (
    CALL_ID,
    OFF,
    ON,
    STYLES,
    SWITCHED,
    Context,
    Past,
    akin_histories,
    shortest,
)
from tito_core.seams.turn_form import calls_of

Plain = dict[str, Any]
ROLES = ("user", "tool", "system", "developer", "assistant", "function", "ipython", "observation")
ASKED: Plain = {"role": "user", "content": "real"}
TEXT: Plain = {"role": "system", "content": "real"}


def roles(context: Sequence[Plain]) -> str:
    """Return the first letters of a history's roles."""
    return "".join(message["role"][0] for message in context)


def written(past: Past) -> list[Context]:
    """Return a history in every style that differs from the earlier ones."""
    return [history for history in past.histories if history is not None]


def called(context: Context) -> list[Any]:
    """Return the ids of the calls."""
    return [call.get("id", "absent") for message in context for call in calls_of(message)]


def answered(context: Context) -> list[Any]:
    """Return the ids that results of tools answer."""
    return [
        message.get("tool_call_id", "absent")
        for message in context
        if message["role"] not in {"system", "developer", "user", "assistant"}
    ]


def says(message: Plain, word: str) -> int:
    return " ".join(texts_in(message)).count(word)


@pytest.mark.parametrize("role", ROLES)
def test_a_history_ends_with_the_role_that_the_real_one_ends_with(role: str) -> None:
    histories = (*written(Past(role=role)), *shortest(role), *akin_histories(role, (TEXT, ASKED)))
    assert {context[-1]["role"] for context in histories} == {role}


@pytest.mark.parametrize("role", ROLES)
def test_a_history_is_written_in_each_manner_once(role: str) -> None:
    past = Past(role=role)
    histories = written(past)
    assert len(past.histories) == len(STYLES) == len(set(STYLES))
    assert all(one not in histories[:place] for place, one in enumerate(histories))
    assert {context[0]["role"] for context in histories} >= {"system", "user"}
    assert {bool(called(context)) for context in written(Past())} == {True, False}


@pytest.mark.parametrize("role", ROLES)
def test_no_text_of_a_likely_history_stands_in_an_unlike_one(role: str) -> None:
    likely = [*shortest(role), *shortest(role, opened=True)]
    near = {message["content"] for context in likely for message in context} - {""}
    far = {message["content"] for context in written(Past(role=role)) for message in context}
    assert not near & far


def test_a_template_may_take_arguments_as_an_object_or_as_text() -> None:
    for histories in (written(Past()), shortest("tool"), akin_histories("tool", (ASKED,))):
        calls = [call for context in histories for message in context for call in calls_of(message)]
        assert {type(call["function"]["arguments"]) for call in calls} == {dict, str}


def test_a_template_may_take_no_reasoning_beside_a_call() -> None:
    histories = written(Past(role="tool"))
    beside = [
        {bool(one.get("reasoning_content")) for one in context if calls_of(one)} for context in histories
    ]
    assert {False} in beside
    assert {True, False} in beside


@pytest.mark.parametrize("role", ["tool", "function", "ipython", "observation"])
def test_a_tool_loop_ends_with_a_result_and_has_another_before_it(role: str) -> None:
    """Templates know results of tools by several names."""
    for context in written(Past(role=role, calls=(("real",),))):
        assert roles(context).endswith(f"ua{role[0]}a{role[0]}")
        assert set(called(context)) == set(answered(context)) == {"real"}
    for context in shortest(role):
        assert (called(context), answered(context)) == ([CALL_ID], [CALL_ID])


@pytest.mark.parametrize(
    ("role", "opened"),
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
    role: str, opened: list[str]
) -> None:
    """Without one, a template looks for it further on, among the new messages."""
    assert list(map(roles, shortest(role, opened=True))) == opened
    usual = opened if role in {"system", "developer"} else [one[1:] for one in opened]
    assert list(map(roles, shortest(role))) == usual


@pytest.mark.parametrize("word", [OFF, ON, "failed:"])
def test_earlier_messages_of_the_given_roles_say_a_word(word: str) -> None:
    for role in ("system", "user", "tool"):
        saying = Past(role="user", words=word, saying=frozenset((role,)))
        histories = written(attrs.evolve(saying, called=role == "tool"))
        spoken = [
            (message["role"], place == len(context) - 1)
            for context in histories
            for place, message in enumerate(context)
            if says(message, word)
        ]
        assert set(spoken) == {(role, False)}  # not the last question: the real one is asked about by itself
    assert not any(says(one, word) for context in written(Past(words=word)) for one in context)


def images(message: Plain) -> int:
    content = message["content"]
    return sum(part == {"type": "image"} for part in content) if isinstance(content, list) else 0


@pytest.mark.parametrize("shown", [0, 1, 5])
@pytest.mark.parametrize("more", [False, True])
@pytest.mark.parametrize("aside", [False, True])
def test_messages_show_media(shown: int, *, more: bool, aside: bool) -> None:
    past = Past(role="tool", media=("image",), shown=shown, more=more, aside=aside)
    for context in written(past):
        counts = [images(one) for one in context if one["role"] in ({"user"} if aside else {"user", "tool"})]
        assert counts == [shown, *[int(more)] * (len(counts) - 1)]
        assert sum(map(images, context)) == sum(counts)
    assert not any(images(one) for context in written(Past(role="tool")) for one in context)


def test_the_switches_that_templates_look_for_are_on_in_one_history_and_off_in_another() -> None:
    off, on = ([message["content"].split()[-1] for message in context] for context in SWITCHED)
    assert (off, on) == (["/no_think", "/nothink"], ["/think", "/think"])
    assert list(map(roles, SWITCHED)) == ["su", "su"]
