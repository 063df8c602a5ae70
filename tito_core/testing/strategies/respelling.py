"""The same message as other serializers write it, and messages that differ in one place."""

from __future__ import annotations

import copy
import json
from collections import UserDict
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from ..readings import NotAnObject, object_in
from .choices import CHOICES, Choices
from .text import WORDS


class ModelMessage:
    """A message as client libraries hand it over: an object with pydantic's `model_dump`."""

    def __init__(self, **fields: Any) -> None:
        """Keep the fields, and those that a client library adds."""
        self._fields = {"content": None, "refusal": None} | fields

    def model_dump(self) -> dict[str, Any]:
        """Return the fields as plain data."""
        return copy.deepcopy(self._fields)

    def __repr__(self) -> str:
        return f"ModelMessage({self._fields})"


@attrs.define
class AttrsMessage:
    """A message as a host's own value type."""

    role: str
    content: Any = None
    tool_calls: Any = None
    tool_call_id: Any = None
    reasoning_content: Any = None
    name: Any = None


def as_attrs(message: dict[str, Any]) -> Any:
    """Return the message as an attrs object where it has no key beyond those that one knows."""
    known = {field.name for field in attrs.fields(AttrsMessage)}
    return AttrsMessage(**message) if known >= message.keys() else message


def as_model(message: dict[str, Any]) -> Any:
    """Return the message as an object with `model_dump`."""
    return ModelMessage(**message)


def reparsed(message: dict[str, Any]) -> Any:
    """Return the message after a trip over the wire."""
    return json.loads(json.dumps(message))


WRAPPERS: tuple[Callable[[dict[str, Any]], Any], ...] = (
    dict,
    dict,
    dict,
    reparsed,
    MappingProxyType,
    UserDict,
    as_attrs,
    as_model,
)


def respelled(choices: Choices, message: Mapping[str, Any]) -> Any:
    """Return the same message as another serializer would write it.

    >>> respelled(Choices(0), {"role": "user", "content": "a"})
    {'role': 'user', 'content': 'a'}
    """
    rewritten = copy.deepcopy(dict(message))
    if choices.pick((True, False, False)):
        return rewritten
    content = rewritten.get("content")
    if isinstance(content, str) and choices.pick((False, True)):
        rewritten["content"] = [{"type": "text", "text": content}]
    if isinstance(content, list) and len(content) == 1 and choices.pick((False, True)):
        rewritten["content"] = content[0]["text"]
    if isinstance(rewritten.get("content"), list) and choices.once_in(4):  # as OpenAI Agents JS does
        rewritten["content"] = [
            {**part, "role": message["role"]} if part.get("type") == "text" else part
            for part in rewritten["content"]
        ]
    if message["role"] == "assistant":
        _respell_assistant(choices, rewritten, empty=not content)
    rewritten |= {
        key: None
        for key in ("name", "tool_call_id", "refusal")
        if rewritten.get(key) is None and choices.once_in(4)
    }
    if choices.once_in(4):
        rewritten["x_cached"] = True
    keys = choices.turned(list(rewritten))
    return choices.pick(WRAPPERS)({key: rewritten[key] for key in keys})


def _respell_assistant(choices: Choices, rewritten: dict[str, Any], *, empty: bool) -> None:
    """Change what serializers change in an assistant message, in place."""
    if empty:
        rewritten["content"] = choices.pick((None, "", [{"type": "text", "text": ""}]))
        if choices.once_in(4):
            del rewritten["content"]
    thoughts = [rewritten.pop(name, None) for name in ("reasoning", "reasoning_content")]
    name = choices.pick(("reasoning_content", "reasoning"))
    if any(thoughts):
        thought = thoughts[0] or thoughts[1]
        rewritten[name] = choices.pick((thought, thought, [thought], [{"type": "text", "text": thought}]))
    elif choices.pick((False, True)):
        rewritten[name] = choices.pick((None, ""))
    if choices.once_in(4):  # as LangChain's agents do
        rewritten["name"] = "model"
    if rewritten.get("tool_calls"):
        rewritten["tool_calls"] = [
            respelled_call(choices, call, i) for i, call in enumerate(rewritten["tool_calls"])
        ]
    elif choices.pick((False, True)):
        rewritten["tool_calls"] = choices.pick((None, []))


def respelled_call(choices: Choices, call: Mapping[str, Any], index: int) -> dict[str, Any]:
    """Return the same tool call as another serializer would write it."""
    function = call["function"]
    arguments = respelled_arguments(choices, function.get("arguments", ""))
    rewritten: dict[str, Any] = {"function": {"arguments": arguments, "name": function["name"]}}
    rewritten |= {key: value for key, value in call.items() if key != "function"}
    if choices.pick((False, True)):
        rewritten["index"] = index
    if choices.pick((False, True)):
        rewritten.pop("type", None)
    return rewritten


def respelled_arguments(choices: Choices, arguments: Any) -> Any:
    """Spell arguments as text or as an object, keys in another order, other spacing; leave odd ones alone."""
    try:
        object_in(arguments)
    except NotAnObject:
        return arguments
    plain = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments
    turned = {key: plain[key] for key in choices.turned(list(plain))}
    separators = choices.pick(((", ", ": "), (",", ":"), (" , ", " : ")))
    return choices.pick((arguments, turned, json.dumps(turned, separators=separators)))


def _edit_text(message: dict[str, Any], text: str) -> None:
    message["content"] = text


def _edit_role(message: dict[str, Any], text: str) -> None:
    message["role"] = "user" if message["role"] != "user" else "system"
    message["content"] = message.get("content") or text


def _edit_reasoning(message: dict[str, Any], text: str) -> None:
    message["reasoning"] = f"{message.pop('reasoning_content', '')}{text}."


def _edit_call_id(message: dict[str, Any], text: str) -> None:
    message["tool_call_id"] = f"{message.get('tool_call_id')}{text}."


def _edit_name(message: dict[str, Any], text: str) -> None:
    message["name"] = f"{message.get('name')}{text}."


def _edit_calls(message: dict[str, Any], text: str) -> None:
    message["tool_calls"] = [
        *(message.get("tool_calls") or ()),
        {"id": text, "function": {"name": "f", "arguments": ""}},
    ]


def _edit_arguments(message: dict[str, Any], text: str) -> None:
    for call in message.get("tool_calls") or ():
        call["function"]["arguments"] = json.dumps({"edited": text})


EDITS = (_edit_text, _edit_role, _edit_reasoning, _edit_call_id, _edit_name, _edit_calls, _edit_arguments)


def edited(choices: Choices, message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message that differs in one place, now and then in none: the oracle tells which."""
    changed = copy.deepcopy(dict(message))
    choices.pick(EDITS)(changed, choices.pick(WORDS))
    return changed


# --- a history, as a client sends it back -----------------------------------------------------------------


@st.composite
def echoes(draw: DrawFn, history: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Draw the same messages as another serializer writes them: nothing that they say is changed.

    Args:
        history: The messages.
    """
    return [respelled(draw(CHOICES), message) for message in history]


@st.composite
def edited_histories(draw: DrawFn, history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Draw the messages with an edit in one of them; at times the edit changes nothing.

    Args:
        history: The messages; at least one.
    """
    place = draw(st.integers(0, len(history) - 1))
    changed = copy.deepcopy([dict(message) for message in history])
    changed[place] = edited(draw(CHOICES), changed[place])
    return changed


@st.composite
def renamed_call_ids(draw: DrawFn, history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Draw the messages with other tool call ids, in calls and in their results, as some clients make them.

    Args:
        history: The messages.
    """
    prefix = draw(st.sampled_from(("call_", "toolu_", "functions.f:", "")))
    changed = copy.deepcopy([dict(message) for message in history])
    names: dict[Any, str] = {}
    for message in changed:
        for call in message.get("tool_calls") or ():
            if call.get("id") is not None:
                call["id"] = names.setdefault(call["id"], f"{prefix}{len(names):09}")
        if message.get("tool_call_id") in names:
            message["tool_call_id"] = names[message["tool_call_id"]]
    return changed
