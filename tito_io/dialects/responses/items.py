"""The items of a request's input, as messages in the form of the chat API.

Besides messages, reasoning and calls of functions there may be items of an earlier conversation elsewhere. A
call of another tool stays in the history as a call of a function that is named like the tool, with the item's
other fields as arguments, and its output as a tool message. Of tools that a server ran, one item is both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tito_io.dialects.fields import RequestFields
from tito_io.dialects.message_parts import ERROR_PREFIX, Content, ToolCall, arguments_text, content_of, unseal
from tito_io.dialects.protocol import UntranslatableError

from .compaction import COMPACTIONS, summary_message
from .tools import SEARCH, custom_arguments, flat_name, offered_tools

Messages = list[dict[str, Any]]
ADDITIONAL_TOOLS = "additional_tools"
"""An item that holds tool definitions, as Codex sends them for models of OpenAI."""
FOUND_TOOLS = "tool_search_output"
"""An item that holds the tools that a search of the client has found."""
WITHOUT_EFFECT = frozenset(("configuration_update", "mcp_list_tools"))
"""Items that only report to a client."""
OWN = frozenset(("type", "id", "status", "call_id", "name", "namespace", "server_label"))
"""Fields of calls that are no arguments."""
RESULTS = ("output", "outputs", "results", "error")
"""Fields in which the item of a call has the result, where a server ran the tool."""


def tools_in(items: Iterable[RequestFields], kind: str) -> Iterator[RequestFields]:
    """Yield the tools that stand in items of a type."""
    for item in items:
        if item.values.get("type") == kind:
            yield from item.nested_list("tools")


def chat_messages(items: list[RequestFields]) -> Messages:
    """Return the messages of a request's items.

    >>> chat_messages([RequestFields({"role": "user", "content": "hi"})])
    [{'role': 'user', 'content': 'hi'}]
    """
    messages: Messages = []
    for item in items:
        kind = item.optional("type", str) or "message"
        _adder(item, kind)(messages, item)
    return messages


def _adder(item: RequestFields, kind: str) -> Callable[[Messages, RequestFields], None]:
    """Return what adds an item of this type to the messages."""
    if kind in ADDERS:
        return ADDERS[kind]
    if kind.endswith("_output"):
        return _add_output
    if kind.endswith("_call"):
        return _add_other_call
    instead = "send messages, reasoning, and calls with their outputs"
    if kind == "item_reference":
        instead = "send the item itself: single items are not kept"
    raise UntranslatableError(item.at("type"), f"{kind!r:.60} cannot be translated", instead)


def _add_message(messages: Messages, item: RequestFields) -> None:
    """Add a message; an assistant's content joins the reasoning before it, where that has none yet."""
    item.check_names(("type", "role", "content", "id", "status"))
    item.check_value("role", ("user", "assistant", "system", "developer"), "use one of them")
    role, content = item.required("role", str), _content(item, "content")
    before = messages[-1] if messages else {}
    reasoning_alone = before.keys() == {"role", "content", "reasoning"} and not before["content"]
    if role == "assistant" and reasoning_alone:
        before["content"] = content
    else:
        messages.append({"role": role, "content": content})


def _add_agent_message(messages: Messages, item: RequestFields) -> None:
    """Add a message of another agent, which stands where a user's would."""
    item.check_names(("type", "id", "content"))
    messages.append({"role": "user", "content": _content(item, "content")})


def _add_reasoning(messages: Messages, item: RequestFields) -> None:
    if text := _reasoning_text(item):
        messages.append({"role": "assistant", "content": "", "reasoning": text})


def _add_call(messages: Messages, item: RequestFields) -> None:
    item.check_names(("type", "call_id", "name", "namespace", "arguments", "id", "status", "caller"))
    item.expect_value("caller", ({"type": "direct"},), "leave it out: the model alone calls tools")
    _append_call(messages, item, item.required("arguments", str))


def _add_custom_call(messages: Messages, item: RequestFields) -> None:
    item.check_names(("type", "call_id", "name", "namespace", "input", "id", "status", "caller"))
    _append_call(messages, item, custom_arguments(item.required("input", str)))


def _add_search(messages: Messages, item: RequestFields) -> None:
    """Add a search for tools that the client runs; other servers' searches are calls like any other."""
    if "call_id" not in item.values:
        _add_other_call(messages, item)
        return
    item.check_names(("type", "call_id", "execution", "arguments", "id", "status"))
    arguments = arguments_text(item.required("arguments", dict), item.at("arguments"))
    _append_call(messages, item.inner({**item.values, "name": SEARCH}, item.path), arguments)


def _add_found(messages: Messages, item: RequestFields) -> None:
    """Add the tools that a search has found, under the names that they are called by."""
    item.check_names(("type", "call_id", "execution", "tools", "id", "status"))
    tools = offered_tools(item.nested_list("tools"))
    content = _json([tool.definition["function"] for tool in tools])
    call_id = item.required("call_id", str)
    messages.append({"role": "tool", "tool_call_id": call_id, "content": content})


def _append_call(messages: Messages, item: RequestFields, arguments: str) -> None:
    """Add a tool call to the assistant message before it, or to a new one."""
    name = flat_name(item.required("name", str), item.optional("namespace", str))
    call = ToolCall(item.required("call_id", str), name, arguments)
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": ""})
    messages[-1].setdefault("tool_calls", []).append(call.chat_form())


def _add_other_call(messages: Messages, item: RequestFields) -> None:
    """Add a call of a tool that is not offered here; with its result, where a server ran the tool."""
    values = item.values
    kind = str(values["type"]).removesuffix("_call")
    item.ignored.add(
        item.at("type"), f"{kind!r:.60} is not a tool here", "leave it out", f"input[type={kind:.60}]"
    )
    called = item.optional("call_id", str) or item.optional("id", str) or item.path
    arguments = {name: value for name, value in values.items() if name not in OWN and name not in RESULTS}
    named = {**values, "call_id": called, "name": values.get("name") or kind}
    _append_call(messages, item.inner(named, item.path), _json(arguments))
    results = {name: values[name] for name in RESULTS if values.get(name) is not None}
    if results or values.get("call_id") is None:
        result = _json(results) if results else str(values.get("status") or "")
        messages.append({"role": "tool", "tool_call_id": called, "content": result})


def _add_output(messages: Messages, item: RequestFields) -> None:
    item.check_names(("type", "call_id", "name", "namespace", "output", "id", "status", "caller"))
    own = item.values["type"] in OUTPUTS
    content = _content(item, "output") if own else _other_output(item)
    if own and "call_id" not in item.values and "name" in item.values:
        messages.append(_unasked_output(item, content))
        return
    older = not own and "call_id" not in item.values
    call_id = item.required("id" if older else "call_id", str)
    messages.append({"role": "tool", "tool_call_id": call_id, "content": content})


def _unasked_output(item: RequestFields, content: Content) -> dict[str, Any]:
    """Return an output that no call asked for as a user's message: templates take no result without a call.

    Codex 0.171 sends `goal_objective` of the namespace `agent` so, once a model has set a goal.
    """
    name = f"{flat_name(item.required('name', str), item.optional('namespace', str))}:"
    whole = f"{name} {content}" if isinstance(content, str) else [{"type": "text", "text": name}, *content]
    return {"role": "user", "content": whole}


def _other_output(item: RequestFields) -> str:
    """Return the text of another tool's output; its status where it has none."""
    output, status = item.values.get("output"), item.values.get("status")
    given = str(status or "") if output is None else output
    text = given if isinstance(given, str) else _json(given)
    return ERROR_PREFIX + text if status == "failed" else text


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _add_summary(messages: Messages, item: RequestFields) -> None:
    item.check_names(("type", "id", "encrypted_content", "status"))
    sealed = item.optional("encrypted_content", str)
    messages.append(summary_message(sealed, item.at("encrypted_content")))


def _skip(_messages: Messages, item: RequestFields) -> None:
    kind = item.values["type"]
    if kind != ADDITIONAL_TOOLS:
        item.ignored.add(
            item.at("type"), f"{kind!r:.60} has no effect here", "leave it out", f"input[type={kind}]"
        )


ADDERS: Mapping[str, Callable[[Messages, RequestFields], None]] = {
    "agent_message": _add_agent_message,
    "custom_tool_call": _add_custom_call,
    "function_call": _add_call,
    "message": _add_message,
    "reasoning": _add_reasoning,
    "tool_search_call": _add_search,
    ADDITIONAL_TOOLS: _skip,
    FOUND_TOOLS: _add_found,
    **dict.fromkeys(COMPACTIONS, _add_summary),
    **dict.fromkeys(WITHOUT_EFFECT, _skip),
}
OUTPUTS = frozenset(("custom_tool_call_output", "function_call_output"))
"""Items whose output may be a list of texts and images."""


def _reasoning_text(item: RequestFields) -> str:
    """Return the text of a reasoning item; the empty string where it has none."""
    item.check_names(("type", "id", "summary", "content", "encrypted_content", "status"))
    parts = item.nested_list("content") if item.values.get("content") else []
    for part in parts:
        if part.values.get("type") not in ("reasoning_text", "text"):
            raise UntranslatableError(part.at("type"), "is not the text of reasoning", "use reasoning_text")
    if said := "".join(part.required("text", str) for part in parts):
        return said
    sealed = item.optional("encrypted_content", str)
    text = None if sealed is None else unseal(sealed)
    return _summary(item, sealed) if text is None else text


def _summary(item: RequestFields, sealed: str | None) -> str:
    """Return the summary of reasoning whose text is not known here."""
    parts = item.nested_list("summary")
    name = "encrypted_content" if sealed is not None else "summary"
    if sealed is not None or parts:
        why = "was not written here" if sealed is not None else "is not the reasoning itself"
        item.ignored.add(item.at(name), why, "send the content, or no item")
    return "\n".join(part.required("text", str) for part in parts)


def _content(item: RequestFields, name: str) -> Content:
    if isinstance(item.values.get(name), str):
        return str(item.values[name])
    return content_of([_part(part) for part in item.nested_list(name, required=True)])


def _part(part: RequestFields) -> dict[str, Any]:
    kind = part.values.get("type")
    if kind in ("input_text", "output_text", "text"):
        part.check_names(("type", "text", "logprobs"))
        return {"type": "text", "text": part.required("text", str)}
    if kind == "refusal":
        return {"type": "text", "text": part.required("refusal", str)}
    if kind == "input_image":
        part.check_names(("type", "image_url", "detail"))
        detail = part.optional("detail", str)
        image = {"url": part.required("image_url", str), **({} if detail is None else {"detail": detail})}
        return {"type": "image_url", "image_url": image}
    raise UntranslatableError(part.at("type"), f"{kind!r:.60} cannot be translated", "use texts and images")
