"""The kind of a turn, and the shape of what follows it."""

from __future__ import annotations

from typing import Any

import pytest

from tito_core.seams.case import TurnKind, shape_of

Plain = dict[str, Any]


def call(identity: str = "c", name: str = "f", **more: Any) -> Plain:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": "{}"}, **more}


def assistant(**more: Any) -> Plain:
    return {"role": "assistant", **more}


def result(identity: str = "c", **more: Any) -> Plain:
    return {"role": "tool", "tool_call_id": identity, "content": "7", **more}


def user(content: Any = "hi", **more: Any) -> Plain:
    return {"role": "user", "content": content, **more}


NAMED = [
    (assistant(content="hi"), "user", (False, 0, "text")),
    (assistant(content="hi", tool_calls=[]), "user", (False, 0, "text")),
    (assistant(content="hi", tool_calls=None, audio=None), "user", (False, 0, "text")),
    (assistant(content="hi", reasoning="t"), "user", (True, 0, "text")),
    (assistant(content="hi", reasoning_content="t"), "tool", (True, 0, "text")),
    (assistant(content="hi", tool_calls=[call()]), "user", (False, 1, "text")),
    (assistant(content="", tool_calls=[call()]), "user", (False, 1, "empty")),
    (assistant(content=None, tool_calls=[call()]), "tool", (False, 1, "null")),
    (assistant(tool_calls=[call("a"), call("b")]), "user", (False, 2, "absent")),
    (assistant(tool_calls=[call("a"), call("b"), call("c")]), "user", (False, 2, "absent")),
    (assistant(content="", tool_calls=[call(index=0)]), "user", (False, 1, "empty")),
]


@pytest.mark.parametrize(("turn", "before", "kind"), NAMED)
def test_a_turn_is_of_a_kind(turn: Plain, before: str, kind: tuple[bool, int, str]) -> None:
    reasoning, calls, content = kind
    assert TurnKind.of(turn, before) == TurnKind(
        before=before, reasoning=reasoning, calls=calls, content=content
    )


NAMELESS = {
    "after another answer": (assistant(content="hi"), "assistant"),
    "blank": (assistant(content=" \n"), "user"),
    "silent": (assistant(content=""), "user"),
    "silent, with reasoning": (assistant(content="", reasoning="t"), "user"),
    "without a content, with reasoning": (assistant(reasoning_content="t"), "tool"),
    "in parts": (assistant(content=[{"type": "text", "text": "hi"}]), "user"),
    "of another type": (assistant(content=7), "user"),
    "spoken aloud": (assistant(content="hi", audio={"id": "a"}), "user"),
    "named": (assistant(content="hi", name="x"), "user"),
    "a call that is no object": (assistant(tool_calls=["f"]), "user"),
    "a call alone": (assistant(tool_calls=call()), "user"),
    "a flat call": (assistant(tool_calls=[{"id": "c", "name": "f", "arguments": "{}"}]), "user"),
    "a call with more to it": (assistant(tool_calls=[call(cache=1)]), "user"),
    "a call without an id": (assistant(tool_calls=[{"function": {"name": "f", "arguments": "{}"}}]), "user"),
    "a call whose id is a number": (assistant(tool_calls=[call(7)]), "user"),  # type: ignore[arg-type]  # as some send
    "a call whose id is a list": (assistant(tool_calls=[call(["x"])]), "user"),  # type: ignore[arg-type]  # likewise
    "a name that may spell a close": (assistant(tool_calls=[call(name="f<|im_end|>")]), "user"),
    "an id that may spell a close": (assistant(tool_calls=[call("c\n")]), "user"),
    "a name that ends with a line": (assistant(tool_calls=[call(name="f\n")]), "user"),
    "no name": (assistant(tool_calls=[call(name="")]), "user"),
    "letters of other scripts": (assistant(tool_calls=[call(name="é")]), "user"),
    "a very long name": (assistant(tool_calls=[call(name="f" * 129)]), "user"),
    "one usual call of two": (assistant(tool_calls=[call(), call(name="f g")]), "user"),
}


@pytest.mark.parametrize(("turn", "before"), NAMELESS.values(), ids=NAMELESS.keys())
def test_an_unusual_case_has_no_name(turn: Plain, before: str) -> None:
    assert TurnKind.of(turn, before) is None


IMAGE, TEXT = {"type": "image"}, {"type": "text", "text": "x"}
CALLING = assistant(tool_calls=[call("a"), call("b")])


@pytest.mark.parametrize(
    ("environment", "shape"),
    [
        ([user()], ("user",)),
        ([user(""), user("a")], ("user:empty", "user")),
        ([user(), user(), user()], ("user+",)),
        ([user(), assistant(content="x"), user()], ("user", "assistant", "user")),
        (
            [{"role": "system", "content": "x"}, {"role": "developer", "content": "x"}],
            ("system", "developer"),
        ),
        ([result("a")], ("tool",)),
        ([result("a"), result("b"), user()], ("tool+", "user")),
        ([result("a", name="f"), result("b")], ("tool:named", "tool")),
        ([result("a", content="", name="f")], ("tool:empty:named",)),
        ([user([IMAGE, TEXT])], ("user:[image.text]",)),
        ([user([TEXT]), user([TEXT, TEXT]), user([TEXT, TEXT])], ("user:[text]", "user:[text.text]+")),
        ([result("a", content=[TEXT, IMAGE, IMAGE], name="f")], ("tool:[text.image.image]:named",)),
        ([user([{"type": "video"}] * 8)], (f"user:[{'.'.join(['video'] * 8)}]",)),
        ([], ()),
    ],
)
def test_an_environment_has_a_shape(environment: list[Plain], shape: tuple[str, ...]) -> None:
    assert shape_of(environment, CALLING) == shape


@pytest.mark.parametrize(
    "environment",
    [
        [{"role": "critic", "content": "x"}],
        [user([IMAGE] * 9)],
        [user([{"type": "text", "text": " "}, IMAGE])],
        [user([{**TEXT, "cache": 1}, IMAGE])],
        [user([{"type": "image", "image": "cat.png"}])],
        [user([{"type": "file"}])],
        [user(["x", IMAGE])],
        [user(None)],
        [{"role": "user"}],
        [user(" ")],
        [user(name="x")],
        [user(tool_call_id="a")],
        [user(cache=1)],
        [assistant(content="x", tool_calls=[call()])],
        [result("b"), result("a")],  # out of order
        [result("b")],
        [result("x")],
        [result("a"), result("b"), result("c")],
        [{"role": "tool", "content": "7"}],
        [user(), user([])],
    ],
)
def test_an_unusual_environment_has_no_shape(environment: list[Plain]) -> None:
    assert shape_of(environment, CALLING) is None


def test_results_of_calls_that_share_an_id_have_no_shape() -> None:
    assert shape_of([result("a"), result("a")], assistant(tool_calls=[call("a"), call("a")])) is None


@pytest.mark.parametrize(
    ("kind", "label"),
    [
        (("user", False, 0), "plain"),
        (("user", True, 0), "reasoning"),
        (("user", False, 1), "a call"),
        (("user", True, 2), "reasoning and calls"),
        (("tool", False, 0), "plain, in a tool loop"),
    ],
)
def test_every_kind_of_case_has_a_label(kind: tuple[str, bool, int], label: str) -> None:
    before, reasoning, calls = kind
    assert TurnKind(before=before, reasoning=reasoning, calls=calls, content="text").label == label
