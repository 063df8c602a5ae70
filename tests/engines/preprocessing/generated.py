"""Generated conversations: any mixture of what clients send, and at times of what none should send."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from .shapes import TOOL, Conversation, Message, text

Drawn = st.SearchStrategy[Any]

TEXTS = st.sampled_from(
    ("", " ", "one", "two\nlines", " spaced ", "é 東京", "<b>&'\"", "x-anthropic-billing-header: a\nb")
)
THOUGHTS = st.sampled_from((None, "", "hm", "\nhm "))
OBJECTS = ("{}", '{"k": "v"}', '{"b": 1, "a": [1.50, null, true]}', '{"k": "\\u00e9"}', ' {"k":{}} ')
ODD_OBJECTS = ('{"k": NaN}', '{"k": 1e400}', '{"k": 1, "k": 2}', '{"k": 18446744073709551616}')
NO_OBJECTS = ("", "[1]", "null", '"{}"', '{"k": "v', "words")
ARGUMENTS = st.sampled_from((*OBJECTS, *ODD_OBJECTS, *NO_OBJECTS))
IDS = st.sampled_from(("callabc12", "callxyz98", "call-1"))

OF_ANY: Mapping[str, Drawn] = {
    "name": st.sampled_from(("ann", "")),
    "cache_control": st.just({"type": "ephemeral"}),
    "unknown": st.just({"a": 1}),
}
OF_ASSISTANTS: Mapping[str, Drawn] = {
    "reasoning": THOUGHTS,
    "reasoning_content": THOUGHTS,
    "refusal": st.sampled_from((None, "No.")),
    "annotations": st.just([]),
    "audio": st.none(),
    "function_call": st.none(),
    "phase": st.just("final"),
    "task": st.just("sum"),
}
OF_PARTS: Mapping[str, Drawn] = {**OF_ANY, "annotations": st.just([])}


def sparse(optional: Mapping[str, Drawn]) -> Drawn:
    """Return objects with some of these keys, in any order."""
    return st.fixed_dictionaries({}, optional=optional).flatmap(
        lambda found: st.permutations(list(found)).map(lambda keys: {key: found[key] for key in keys})
    )


def merged(*objects: Drawn) -> Drawn:
    """Return objects with the keys of all of these."""
    return st.tuples(*objects).map(lambda found: {key: one for each in found for key, one in each.items()})


TYPES = st.sampled_from(("text", "text", "text", "input_text", "output_text", "hologram"))
PARTS = st.one_of(
    st.builds(text, TEXTS),
    st.fixed_dictionaries({"type": st.just("refusal"), "refusal": TEXTS}),
    st.fixed_dictionaries({"type": st.just("thinking"), "thinking": TEXTS}),
    st.just({"type": "tool_reference", "name": "f", "unknown": 1}),
    merged(sparse({"type": TYPES, "text": TEXTS | st.none()}), sparse(OF_PARTS)),
    TEXTS,
    st.none(),
    st.just(3),
)
USUAL = TEXTS | st.lists(st.builds(text, TEXTS), max_size=3)
CONTENTS = st.one_of(USUAL, USUAL, st.lists(PARTS, max_size=3), st.none(), st.just(7))

FUNCTIONS = merged(
    st.sampled_from(({"name": "f"}, {})),
    st.fixed_dictionaries({"arguments": ARGUMENTS}),
    st.just({"name": "f"}),
)
CALLS = merged(
    st.fixed_dictionaries({"id": IDS, "function": FUNCTIONS}, optional={"type": st.just("function")}),
    sparse({"index": st.just(0), "unknown": OF_ANY["unknown"]}),
)
OF_CALLING = {"tool_calls": st.lists(CALLS, max_size=2) | st.none()}


BILLED = st.just("x-anthropic-billing-header: cch=1")


def said(role: str, *objects: Drawn) -> Drawn:
    """Return messages of a role; the content may be missing."""
    return merged(st.just({"role": role}), sparse({"content": CONTENTS}), *objects, sparse(OF_ANY))


MESSAGES = st.one_of(
    said("user"),
    said("system"),
    st.fixed_dictionaries({"role": st.just("system"), "content": BILLED}),
    said("developer"),
    said("assistant", sparse(OF_CALLING)),
    said("assistant", sparse({**OF_CALLING, **OF_ASSISTANTS})),
    said("tool", st.fixed_dictionaries({"tool_call_id": IDS})),
)


def _conversation(messages: list[Message], tools: list[Message] | None) -> Conversation:
    return Conversation("generated", messages, tools)


CONVERSATIONS = st.builds(
    _conversation,
    st.lists(MESSAGES, min_size=1, max_size=5),
    st.sampled_from((None, [TOOL], [{**TOOL, "defer_loading": True}])),
)
"""Conversations of up to five messages, with a tool or without."""
