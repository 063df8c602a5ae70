"""Offer the tools of the Responses API as functions, and translate their calls back.

Chat templates know functions only. Three other kinds of tools can be offered as functions without loss:

- A function in a namespace is named `NAMESPACE__NAME`. Its calls are answered with both names. The
  namespace's description stands before that of its first tool.
- A custom tool takes free text. It is offered with one string argument, `input`, and a grammar stands in that
  argument's description. Its calls are answered as `custom_tool_call`. Arguments that are not such an object
  come as their text after `RAW`: the tool sees that the call is malformed, and the text comes back unchanged.
- `tool_search` that the client runs. Its calls are answered as `tool_search_call`. The tools that it found
  stand in its result as text: the prompt's own tools, and the ids after them, stay as they are.

All other tools (web search, code interpreters, ...) are run by OpenAI's servers, and are dropped by name.
Codex 0.169 sends all of these: https://github.com/openai/codex.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from tito_io.dialects.fields import RequestFields, drop_tool
from tito_io.dialects.message_parts import RAW, ToolCall, arguments_object

JOINT = "__"
INPUT = "input"
RAW_INPUT = f"{RAW}:"
"""Begins the input of a custom call whose arguments are not an object with `input` alone."""
SEARCH = "tool_search"
CALL, CUSTOM_CALL, SEARCH_CALL = "function_call", "custom_tool_call", "tool_search_call"


def flat_name(name: str, namespace: str | None) -> str:
    """Return the name of the function that a tool is offered as.

    >>> flat_name("wait", "functions"), flat_name("look", "mcp__web__"), flat_name("look", None)
    ('functions__wait', 'mcp__web__look', 'look')
    """
    if not namespace:
        return name
    return namespace.removesuffix(JOINT) + JOINT + name


@attrs.frozen
class OfferedTool:
    """A tool as it is offered.

    Attributes:
        name: The function's name.
        definition: The function in the form of the chat API.
        item: Type, name and namespace of the items that are calls of it.
    """

    name: str
    definition: Mapping[str, Any]
    item: Mapping[str, str]


def offered_tools(tools: Iterable[RequestFields], namespace: str | None = None) -> Iterator[OfferedTool]:
    """Yield the tools that can be offered; `namespace` is the one that they stand in."""
    for tool in tools:
        kind = tool.optional("type", str) or "function"
        if kind == "function":
            yield _function(tool, namespace)
        elif kind == "custom":
            yield _custom(tool, namespace)
        elif kind == SEARCH and tool.values.get("execution") == "client":
            yield _search(tool)
        elif kind == "namespace" and namespace is None:
            yield from _inside(tool)
        else:
            drop_tool(tool, kind)


def _inside(space: RequestFields) -> Iterator[OfferedTool]:
    """Yield the tools of a namespace; the first has the namespace's description before its own."""
    space.check_names(("type", "name", "description", "tools"))
    about = space.optional("description", str)
    for tool in offered_tools(space.nested_list("tools"), space.required("name", str)):
        yield _described(tool, about) if about else tool
        about = None


def _described(tool: OfferedTool, about: str) -> OfferedTool:
    function = tool.definition["function"]
    own = function.get("description")
    function = {**function, "description": f"{about}\n\n{own}" if own else about}
    return attrs.evolve(tool, definition={**tool.definition, "function": function})


def _function(tool: RequestFields, namespace: str | None) -> OfferedTool:
    tool.check_names(("type", "name", "description", "parameters", "strict"))
    names = ("description", "parameters")
    described = {name: tool.values[name] for name in names if tool.values.get(name) is not None}
    return _offered(tool, namespace, CALL, described)


def _custom(tool: RequestFields, namespace: str | None) -> OfferedTool:
    tool.check_names(("type", "name", "description", "format"))
    described = {"description": tool.values["description"]} if tool.optional("description", str) else {}
    form = tool.nested("format")
    grammar, syntax = form.optional("definition", str), form.optional("syntax", str) or "the"
    text = {"type": "string"}
    if grammar is not None:
        text["description"] = f"Text in {syntax} grammar:\n{grammar}"
    schema = {"type": "object", "properties": {INPUT: text}, "required": [INPUT]}
    parameters = {"parameters": {**schema, "additionalProperties": False}}
    return _offered(tool, namespace, CUSTOM_CALL, described | parameters)


def _search(tool: RequestFields) -> OfferedTool:
    tool.check_names(("type", "execution", "description", "parameters"))
    names = ("description", "parameters")
    described = {name: tool.values[name] for name in names if tool.values.get(name) is not None}
    function = {"name": SEARCH, **described}
    item = {"type": SEARCH_CALL, "execution": "client"}
    return OfferedTool(SEARCH, {"type": "function", "function": function}, item)


def _offered(
    tool: RequestFields, namespace: str | None, kind: str, described: Mapping[str, Any]
) -> OfferedTool:
    name = tool.required("name", str)
    function = {"name": flat_name(name, namespace), **described}
    if tool.values.get("strict"):
        function["strict"] = True
    spaced = {"namespace": namespace} if namespace else {}
    item = {"type": kind, "name": name, **spaced}
    return OfferedTool(function["name"], {"type": "function", "function": function}, item)


def call_items(tools: Iterable[OfferedTool]) -> dict[str, Mapping[str, str]]:
    """Return type and names of the items for calls, by function, of those that are not plain functions."""
    items = {tool.name: tool.item for tool in tools}
    return {name: one for name, one in items.items() if one != {"type": CALL, "name": name}}


def custom_input(arguments: str) -> str:
    """Return the input of a custom call.

    >>> custom_input('{"input": "ls"}'), custom_input('{"cmd": "ls"}')
    ('ls', 'tito_raw_arguments:{"cmd": "ls"}')
    """
    values = arguments_object(arguments)
    text = values.get(INPUT)
    if values.keys() == {INPUT} and isinstance(text, str) and not text.startswith(RAW_INPUT):
        return text
    return RAW_INPUT + arguments


def custom_arguments(text: str) -> str:
    """Return the arguments of a custom call that a client sends back.

    >>> custom_arguments("ls"), custom_arguments('tito_raw_arguments:{"cmd": "ls"}')
    ('{"input": "ls"}', '{"cmd": "ls"}')
    """
    if text.startswith(RAW_INPUT):
        return text.removeprefix(RAW_INPUT)
    return json.dumps({INPUT: text}, ensure_ascii=False)


def call_item(call: ToolCall, items: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """Return the item of a call without its id and status.

    >>> items = {"a__b": {"type": "function_call", "name": "b", "namespace": "a"}}
    >>> call_item(ToolCall("c", "a__b", "{}"), items)
    {'type': 'function_call', 'name': 'b', 'namespace': 'a', 'call_id': 'c', 'arguments': '{}'}
    """
    item = items.get(call.name, {"type": CALL, "name": call.name})
    if item["type"] == CUSTOM_CALL:
        return {**item, "call_id": call.id, "input": custom_input(call.arguments)}
    if item["type"] == SEARCH_CALL:
        return {**item, "call_id": call.id, "arguments": arguments_object(call.arguments)}
    return {**item, "call_id": call.id, "arguments": call.arguments}
