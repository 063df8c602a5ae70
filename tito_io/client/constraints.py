"""Read a constraint from the arguments `tool_choice`, `parallel_tool_calls` and `response_format`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tito_core import InputError
from tito_io.engines.constraint import ANY_OBJECT, Constraint, schema_fault, tool_name

CONSTRAINTS = frozenset(("tool_choice", "parallel_tool_calls", "response_format"))
"""The arguments that become a `Constraint`."""
CHOICES = (
    'give "auto", "required", {"type": "function", "function": {"name": NAME}} or {"type": "allowed_tools", '
    '"allowed_tools": {"mode": "auto" or "required", "tools": FUNCTIONS}}'
)
FORMATS = 'give {"type": "json_schema", "json_schema": {"schema": SCHEMA}}, json_object or text'


def take_constraint(given: dict[str, Any]) -> Constraint | None:
    """Take the arguments of a constraint out of `given`; None where nothing is constrained.

    A turn that must call a tool has no content, so that a schema has no effect on it.

    >>> take_constraint({"tool_choice": "required", "parallel_tool_calls": False})
    Constraint(schema=None, must_call=(), may_call=None, one_call=True)
    >>> take_constraint({"tool_choice": "auto", "response_format": {"type": "text"}})
    """
    names, demanded = _choice(given.pop("tool_choice", "auto"))
    parallel = given.pop("parallel_tool_calls", True)
    if not isinstance(parallel, bool):
        raise InputError(f"sampling.parallel_tool_calls is {parallel!r:.60}; give True or False")
    schema = _schema(given.pop("response_format", {"type": "text"}))
    constraint = Constraint(
        schema=None if demanded else schema,
        must_call=names if demanded else None,
        may_call=None if demanded else names or None,
        one_call=not parallel,
    )
    return None if constraint == Constraint() else constraint


def _choice(choice: object) -> tuple[tuple[str, ...], bool]:
    """Return the names of the only tools that may be called (empty for any), and if a call is demanded."""
    if choice in ("auto", "required"):
        return (), choice == "required"
    if choice == "none":
        raise InputError("sampling.tool_choice is 'none' and forbids calls: pass no `tools` instead")
    allowed = choice.get("allowed_tools") if isinstance(choice, Mapping) else None
    tools = allowed.get("tools") if isinstance(allowed, Mapping) else [choice]
    mode = allowed.get("mode") if isinstance(allowed, Mapping) else "required"
    listed = tools if isinstance(tools, Sequence) and not isinstance(tools, str | bytes) else ()
    names = [tool_name(tool) if isinstance(tool, Mapping) else "" for tool in listed]
    if not names or not all(names) or mode not in ("auto", "required"):
        raise InputError(f"sampling.tool_choice is {choice!r:.60}; {CHOICES}")
    return tuple(names), mode == "required"


def _schema(response_format: object) -> Mapping[str, Any] | None:
    """Return the schema of the content; None for any text."""
    kind = response_format.get("type") if isinstance(response_format, Mapping) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return ANY_OBJECT
    named = response_format.get("json_schema") if isinstance(response_format, Mapping) else None
    schema: Any = named.get("schema") if isinstance(named, Mapping) else None
    if kind != "json_schema" or not isinstance(schema, Mapping):
        raise InputError(f"sampling.response_format is {response_format!r:.60}; {FORMATS}")
    fault = schema_fault(schema, "response_format.json_schema.schema")
    if fault is not None:
        raise InputError(f"sampling.{fault.path} {fault.why}; give a JSON schema")
    return schema
