"""Messages that record what is read of them are rendered as others, and what was read decides the render."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.io.families.template_texts import TEXTS
from tests.io.families.test_template import NOON
from tito_core import TemplateRefused
from tito_io.families.folder import Source
from tito_io.families.recorded_reads import MessageReads, RecordingDict
from tito_io.families.template import ChatTemplate

CALLS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["a", "b"]),
        "function": st.fixed_dictionaries(
            {}, optional={"name": st.sampled_from("fg"), "arguments": st.sampled_from(["{}", {"x": 1}, {}])}
        ),
    },
)
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "content"])},
    optional={
        "content": st.sampled_from(["", "hi", "ho"]),
        "name": st.sampled_from(["n", ""]),
        "reasoning": st.sampled_from(["r", "s"]),
        "tool_calls": st.lists(CALLS, max_size=2),
    },
)
CONVERSATIONS = st.lists(MESSAGES, min_size=1, max_size=3)


def text(template: ChatTemplate, messages: list[Any]) -> str:
    try:
        return template.render({"messages": messages}, now=NOON)
    except TemplateRefused as refused:
        return f"refused: {refused}"


@pytest.mark.parametrize("source", TEXTS["readers"])
@settings(max_examples=10)
@given(conversations=st.lists(CONVERSATIONS, min_size=2, max_size=5))
def test_equal_reads_make_equal_renders(source: str, conversations: list[list[dict[str, Any]]]) -> None:
    template = ChatTemplate.compile(Source(source, "t"))
    reads = MessageReads()
    plain = [text(template, one) for one in conversations]
    recorded = [text(template, [reads.recording(m) for m in one]) for one in conversations]
    assert recorded == plain
    first_render: dict[Any, str] = {}
    for one, rendered in zip(conversations, plain, strict=True):
        assert first_render.setdefault(tuple(map(reads.seen, one)), rendered) == rendered


def test_messages_that_differ_only_in_unread_keys_are_equal() -> None:
    reads = MessageReads()
    template = ChatTemplate.compile(Source("{% for m in messages %}{{ m.role }}{% endfor %}", "t"))
    text(template, [reads.recording({"role": "user", "content": "hi", "tool_calls": [{"id": "a"}]})])
    assert reads.messages.keys == {"role"}
    assert reads.seen({"role": "user"}) == reads.seen({"role": "user", "content": "ho"})
    assert reads.seen({"role": "user"}) != reads.seen({"role": "tool"})


def test_a_dict_without_its_reads_differs_from_an_empty_one() -> None:
    reads = MessageReads()
    reads.messages.keys.add("tool_calls")
    one, two = ({"role": "user", "tool_calls": [call]} for call in ({}, {"id": "a"}))
    assert reads.seen(one) != reads.seen(two)


def test_every_method_that_reads_records() -> None:
    """A method of `dict` that is neither replaced nor known to change or to make a dict reads unseen."""
    own = {name for name in vars(RecordingDict) if callable(getattr(RecordingDict, name))}
    changing = {"__delitem__", "__ior__", "__setitem__", "clear", "pop", "popitem", "setdefault", "update"}
    making = {"__class_getitem__", "__init__", "__new__", "fromkeys"}
    ordering = {"__ge__", "__gt__", "__le__", "__lt__"}  # always an error
    of_every_object = {"__getattribute__", "__sizeof__", "__hash__"}
    assert set(vars(dict)) - own - changing - making - ordering - of_every_object == {"__doc__"}
