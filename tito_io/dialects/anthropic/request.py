"""Requests of Anthropic's Messages, read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tito_io.dialects.fields import (
    ENGINE,
    body_of,
    demanded,
    known,
    objects,
    only,
    passed,
    present,
    taken,
    with_template,
)
from tito_io.dialects.protocol import ParsedRequest

from .blocks import system_text
from .turns import messages

HONOURED = frozenset(
    (
        "max_tokens",
        "messages",
        "metadata",
        "model",
        "output_config",
        "stop_sequences",
        "stream",
        "system",
        "thinking",
        "tool_choice",
        "tools",
    )
)
NOISE = frozenset(("cache_control", "inference_geo", "service_tier", "user_profile_id", "workspace_id"))
"""What changes nothing about an answer."""
SPEEDS = ("standard",)
NAMES = HONOURED | NOISE | ENGINE | {"speed"}
TOOL = frozenset(
    ("cache_control", "description", "eager_input_streaming", "input_schema", "name", "strict", "type")
)


def read(body: object, ignoring: frozenset[str], *, counting: bool = False) -> ParsedRequest:
    """Return what a request asks; `counting` where it asks for a count alone."""
    given = body_of(body)
    said = {name: value for name, value in given.items() if name not in ignoring}
    known(said, NAMES)
    only(said, "speed", SPEEDS, "leave it out")
    silent = _silent(present(taken(said, "tool_choice", dict) or {}))
    tools = list(_tools(objects(said.get("tools", []), "tools")))
    turns = messages(objects(demanded(said, "messages", list), "messages"))
    return ParsedRequest(
        messages=(*_system(said), *turns),
        tools=() if silent else tuple(tools),
        sampling=_sampling(said, counting=counting),
        model=taken(said, "model", str),
        stream=taken(said, "stream", bool) or False,
        continue_final_message=turns[-1]["role"] == "assistant",
        metadata=taken(said, "metadata", dict) or {},
        ignored=(*sorted(given.keys() & (ignoring | (NOISE - {"cache_control"}))), *_marks(said)),
        body=given,
    )


def _system(said: Mapping[str, Any]) -> list[dict[str, Any]]:
    text = system_text(said.get("system"), "system")
    return [] if text is None else [{"role": "system", "content": text}]


def _silent(choice: Mapping[str, Any]) -> bool:
    """Return whether calls are forbidden; raises where they are demanded."""
    known(choice, ("type", "disable_parallel_tool_use"), "tool_choice.")
    only(
        choice,
        "type",
        ("auto", "none"),
        "use auto or none: nothing that is sampled can be forced here",
        "tool_choice.",
    )
    only(choice, "disable_parallel_tool_use", (False,), "allow parallel calls", "tool_choice.")
    return choice.get("type") == "none"


def _tools(tools: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield definitions in the manner of OpenAI."""
    for place, tool in enumerate(tools):
        within = f"tools[{place}]."
        only(tool, "type", ("custom",), "declare a tool with an input_schema that the client runs", within)
        known(tool, TOOL, within)
        described = {name: tool[name] for name in ("description",) if tool.get(name) is not None}
        strict = {"strict": True} if tool.get("strict") else {}
        function = {"name": demanded(tool, "name", str, within), **described}
        schema = demanded(tool, "input_schema", dict, within)
        yield {"type": "function", "function": {**function, "parameters": schema, **strict}}


def _sampling(said: Mapping[str, Any], *, counting: bool) -> dict[str, Any]:
    found = passed(said)
    if not counting or "max_tokens" in said:
        found["max_tokens"] = demanded(said, "max_tokens", int)
    if said.get("stop_sequences"):
        found["stop"] = demanded(said, "stop_sequences", list)
    return with_template(found, {**_thinking(said), **_effort(said)})


def _thinking(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return template arguments for the wish to think."""
    wish = present(taken(said, "thinking", dict) or {})
    known(wish, ("type", "budget_tokens", "display"), "thinking.")
    only(wish, "display", ("summarized",), "thoughts are always shown", "thinking.")
    kind = wish.get("type")
    if kind == "enabled":
        return {"enable_thinking": True, "thinking_budget": demanded(wish, "budget_tokens", int, "thinking.")}
    if kind in (None, "adaptive"):
        return {}
    only(wish, "type", ("disabled",), "use enabled, disabled or adaptive", "thinking.")
    return {"enable_thinking": False}


def _effort(said: Mapping[str, Any]) -> dict[str, Any]:
    config = present(taken(said, "output_config", dict) or {})
    known(config, ("effort",), "output_config.")
    effort = taken(config, "effort", str, "output_config.")
    return {} if effort is None else {"reasoning_effort": effort}


def _marks(said: Mapping[str, Any]) -> list[str]:
    """Return the name of the marks for caches, wherever one stands in what the dialect reads."""
    tops = [said, *(said.get("tools") or []), *_blocks(said.get("system"))]
    for message in said["messages"]:
        for block in _blocks(message.get("content")):
            tops += [block, *_blocks(block.get("content"))]
    return ["cache_control"] if any(one.get("cache_control") is not None for one in tops) else []


def _blocks(content: Any) -> list[dict[str, Any]]:
    return content if isinstance(content, list) else []
