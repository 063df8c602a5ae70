"""Translate each API's fields that constrain a turn into those of the chat API.

Forced or single tool calls, and JSON in place of text; `tito_io.client.constraints` reads the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tito_io.engines.constraint import schema_fault, tool_name

from .fields import RequestFields, drop_tool
from .protocol import UntranslatableError

Tools = Sequence[Mapping[str, Any]]
Definitions = tuple[Mapping[str, Any], ...]
INSTEAD = "use auto, none, required, allowed_tools, or name one function"
ALLOWED = "allowed_tools"
"""The type of a `tool_choice` that lists the only tools which may be called, while all stay in the prompt."""
GOOGLE_MODES = {"AUTO": "auto", "ANY": "required", "VALIDATED": "auto"}
"""Google's modes in which tools may be called, under OpenAI's names."""


def callable_tools(declared: Definitions, *, forbidden: bool) -> tuple[Definitions, Definitions]:
    """Return the tools that a turn may call, and those of which calls are `forbidden`.

    >>> callable_tools(({"type": "function"},), forbidden=True)
    ((), ({'type': 'function'},))
    """
    return ((), declared) if forbidden else (declared, ())


def chat_constraint(fields: RequestFields, tools: Tools) -> dict[str, Any]:
    """Return the sampling arguments for `tool_choice`, `parallel_tool_calls` and `response_format`.

    >>> chat_constraint(RequestFields({"response_format": {"type": "json_object"}}), ())
    {'response_format': {'type': 'json_object'}}
    """
    keys = _choice(fields, tools, ("function",), nests=True)
    given = fields.nested("response_format")
    schema = (
        given.nested("json_schema", required=True) if given.values.get("type") == "json_schema" else given
    )
    return {**keys, **_parallel(fields), **_format(given, schema)}


def responses_constraint(fields: RequestFields, tools: Tools) -> dict[str, Any]:
    """Return the sampling arguments for `tool_choice`, `parallel_tool_calls` and `text.format`."""
    keys = _choice(fields, tools, ("function", "custom"), nests=False)  # both are offered as functions
    given = fields.nested("text").nested("format")
    return {**keys, **_parallel(fields), **_format(given, given)}


def anthropic_constraint(fields: RequestFields, tools: Tools) -> dict[str, Any]:
    """Return the sampling arguments for `tool_choice` and `output_config.format`."""
    choice = fields.nested("tool_choice")
    choice.check_names(("type", "name", "disable_parallel_tool_use"))
    choice.check_value("type", ("auto", "none", "any", "tool"), "use auto, none, any or tool")
    keys: dict[str, Any] = {}
    if choice.values.get("type") == "any":
        keys = {"tool_choice": _required(choice.at("type"), tools)}
    elif choice.values.get("type") == "tool":
        keys = _named(choice, tools)
    if choice.flag("disable_parallel_tool_use"):
        keys["parallel_tool_calls"] = False
    given = fields.nested("output_config").nested("format")
    given.check_value("type", ("json_schema",), "give a schema, or leave it out")
    return {**keys, **_format(given, given)}


def google_constraint(calling: RequestFields, tools: Tools) -> dict[str, Any]:
    """Return the sampling arguments for a `functionCallingConfig`.

    VALIDATED is AUTO with calls that keep to their schemas. Pydantic AI sends it by default. It is honoured
    where it names some of the functions, and else has no effect, as `strict` of a function has none.
    https://ai.google.dev/api/caching#FunctionCallingConfig

    >>> tools = [{"type": "function", "function": {"name": "f"}}]
    >>> google_constraint(RequestFields({"mode": "ANY"}), tools)
    {'tool_choice': 'required'}
    """
    allowed_modes = (*GOOGLE_MODES, "NONE", "MODE_UNSPECIFIED")
    calling.check_value("mode", allowed_modes, f"use {', '.join(GOOGLE_MODES)} or NONE")
    given = calling.optional("allowedFunctionNames", list) or []
    path = calling.at("allowedFunctionNames")
    allowed = [calling.typed(name, str, path) for name in given]
    mode = calling.values.get("mode")
    if mode not in ("ANY", "VALIDATED"):
        instead = "set mode to ANY or VALIDATED, or declare only these functions"
        calling.check_value("allowedFunctionNames", ([],), instead)
        return {}
    if not allowed and mode == "ANY":
        return {"tool_choice": _required(calling.at("mode"), tools)}
    found = some_tools(GOOGLE_MODES[mode], allowed, tools, path) if allowed else {}
    if not found:
        why = "'VALIDATED' is AUTO here: a turn that may call any tool or none is not constrained"
        calling.ignored.add(calling.at("mode"), why, "use AUTO")
    return found


def _choice(fields: RequestFields, tools: Tools, kinds: Sequence[str], *, nests: bool) -> dict[str, Any]:
    """Return the argument for OpenAI's `tool_choice`; with `nests`, a choice stands under its type's name."""
    if not isinstance(fields.values.get("tool_choice"), Mapping):
        return _word(fields, tools)
    named = fields.nested("tool_choice")
    named.check_value("type", (*kinds, ALLOWED), INSTEAD)
    if named.values.get("type") != ALLOWED:
        return _named(_inner(named, "function", nests=nests), tools)
    allowed = _inner(named, ALLOWED, nests=nests)
    functions = [_inner(one, "function", nests=nests) for one in _offered(allowed, kinds)]
    return _some(allowed, functions, tools)


def _inner(holder: RequestFields, name: str, *, nests: bool) -> RequestFields:
    return holder.nested(name, required=True) if nests else holder


def _word(fields: RequestFields, tools: Tools) -> dict[str, Any]:
    """Return the argument for a choice that is a word."""
    fields.check_value("tool_choice", ("auto", "none", "required"), INSTEAD)
    if fields.values.get("tool_choice") != "required":
        return {}
    return {"tool_choice": _required("tool_choice", tools)}


def _required(path: str, tools: Tools) -> str:
    if not tools:
        raise UntranslatableError(path, "demands a call, and there are no tools", "declare tools")
    return "required"


def _named(choice: RequestFields, tools: Tools) -> dict[str, Any]:
    """Return the argument for a choice that names one function."""
    name = choice.required("name", str)
    if name not in map(tool_name, tools):
        raise UntranslatableError(choice.at("name"), "is not one of the tools", "name one of them")
    return {"tool_choice": {"type": "function", "function": {"name": name}}}


def _some(choice: RequestFields, functions: Sequence[RequestFields], tools: Tools) -> dict[str, Any]:
    """Return the argument for a choice that lists the only tools which may be called."""
    mode = choice.required("mode", str)
    choice.check_value("mode", ("auto", "required"), "use auto or required")
    return some_tools(mode, [one.required("name", str) for one in functions], tools, choice.at("tools"))


def _offered(choice: RequestFields, kinds: Sequence[str]) -> Iterator[RequestFields]:
    """Yield the entries of the types that are offered as functions; others are dropped, like the tools."""
    for tool in choice.nested_list("tools", required=True):
        kind = tool.optional("type", str) or "function"
        if kind in kinds:
            yield tool
        else:
            drop_tool(tool, kind)


def some_tools(mode: str, names: Sequence[str], tools: Tools, path: str) -> dict[str, Any]:
    """Return the argument that allows calls of some tools alone, whose names stand at `path`.

    >>> tools = [{"type": "function", "function": {"name": name}} for name in "fgh"]
    >>> some_tools("required", ["f", "g", "h"], tools, "")
    {'tool_choice': 'required'}
    >>> some_tools("required", ["f"], tools, "")
    {'tool_choice': {'type': 'function', 'function': {'name': 'f'}}}
    """
    offered = set(map(tool_name, tools))
    if not names:
        raise UntranslatableError(path, "has no tool that can be offered", "name some of the tools")
    other = next((name for name in names if name not in offered), None)
    if other is not None:
        raise UntranslatableError(path, f"has {other!r:.60}, which is no tool here", "name some of the tools")
    if offered == set(names):
        return {"tool_choice": "required"} if mode == "required" else {}
    listed = [{"type": "function", "function": {"name": name}} for name in dict.fromkeys(names)]
    if mode == "required" and len(listed) == 1:
        return {"tool_choice": listed[0]}
    return {"tool_choice": {"type": ALLOWED, ALLOWED: {"mode": mode, "tools": listed}}}


def _parallel(fields: RequestFields) -> dict[str, Any]:
    return {"parallel_tool_calls": False} if fields.optional("parallel_tool_calls", bool) is False else {}


def _format(given: RequestFields, holder: RequestFields) -> dict[str, Any]:
    """Return the argument for a format; `holder` is the object that has its schema."""
    given.check_value("type", ("text", "json_object", "json_schema"), "use text, json_object or json_schema")
    kind = given.values.get("type", "text")
    if kind != "json_schema":
        return {} if kind == "text" else {"response_format": {"type": kind}}
    return json_format(holder.required("schema", dict), holder.at("schema"))


def json_format(schema: dict[str, Any] | None, path: str) -> dict[str, Any]:
    """Return the sampling argument for JSON of a schema that stands at `path`; None for any object.

    >>> json_format(None, "")
    {'response_format': {'type': 'json_object'}}
    """
    if schema is None:
        return {"response_format": {"type": "json_object"}}
    fault = schema_fault(schema, path)
    if fault is not None:
        raise UntranslatableError(fault.path, fault.why, "give a JSON schema")
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}}
