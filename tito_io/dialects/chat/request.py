"""Requests of Chat Completions, read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tito_core.message import copied
from tito_io.dialects.fields import (
    ENGINE,
    body_of,
    demanded,
    known,
    objects,
    of_kind,
    only,
    passed,
    present,
    taken,
    with_template,
)
from tito_io.dialects.protocol import ParsedRequest, UntranslatableError

SAMPLING = frozenset(("max_tokens", "max_completion_tokens", "stop", "n", "extra_body"))
HONOURED = frozenset(
    (
        "add_generation_prompt",
        "continue_final_message",
        "logprobs",
        "messages",
        "metadata",
        "model",
        "reasoning_effort",
        "return_token_ids",
        "return_tokens_as_token_ids",
        "stream",
        "stream_options",
        "tool_choice",
        "tools",
    )
)
NOISE = frozenset(
    (
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "user",
    )
)
"""What changes nothing about an answer: bookkeeping, billing and hints to caches."""
ONLY: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "functions": (([],), "use tools"),
    "function_call": (("none",), "use tool_choice"),
    "modalities": ((["text"],), "ask for text"),
    "parallel_tool_calls": ((True,), "allow parallel calls, or name the field in `ignoring`"),
    "response_format": (
        ({"type": "text"},),
        "ask for text, or use structured_outputs where the engine has it",
    ),
    "tool_choice": (("auto", "none"), "use auto or none: nothing that is sampled can be forced here"),
    "top_logprobs": ((0,), "leave it out: the sampled id's log-probability is told, and no other's"),
    "verbosity": (("medium",), "leave it out"),
}
"""Fields of which only some values can be honoured."""
NAMES = SAMPLING | HONOURED | NOISE | ENGINE | ONLY.keys()


def read(body: object, ignoring: frozenset[str]) -> ParsedRequest:
    """Return what a request asks."""
    given = body_of(body)
    said = {name: value for name, value in given.items() if name not in ignoring}
    known(said, NAMES)
    for name, (allowed, instead) in ONLY.items():
        only(said, name, allowed, instead)
    silent = said.get("tool_choice") == "none"
    options = present(taken(said, "stream_options", dict) or {})
    return ParsedRequest(
        messages=_messages(demanded(said, "messages", list)),
        tools=() if silent else tuple(_tools(said.get("tools", []))),
        sampling=_sampling(said),
        model=taken(said, "model", str),
        stream=taken(said, "stream", bool) or False,
        include_usage=_include_usage(options),
        logprobs=taken(said, "logprobs", bool) or False,
        return_token_ids=taken(said, "return_token_ids", bool) or False,
        tokens_as_ids=taken(said, "return_tokens_as_token_ids", bool) or False,
        continue_final_message=_goes_on(said),
        metadata=taken(said, "metadata", dict) or {},
        ignored=tuple(sorted(given.keys() & (ignoring | NOISE))),
        body=given,
    )


def _goes_on(said: Mapping[str, Any]) -> bool:
    """Return whether the last message goes on: an answer is opened where it does not, and nowhere else."""
    goes_on = taken(said, "continue_final_message", bool) or False
    only(said, "add_generation_prompt", (not goes_on,), "continue_final_message is its opposite")
    return goes_on


def _messages(found: Sequence[Any]) -> tuple[dict[str, Any], ...]:
    """Return messages as they are; raises `InputError` for what is none."""
    for place, message in enumerate(found):
        _parts(message, f"messages[{place}]")
    messages = copied(found, "messages")
    if not messages:
        raise UntranslatableError("messages", "is empty", "send at least one")
    for place, message in enumerate(messages):
        if message["role"] == "function" or message.get("function_call") is not None:
            raise UntranslatableError(
                f"messages[{place}]", "is in the old manner of functions", "use tool_calls and the role tool"
            )
    return messages


def _parts(message: Any, field: str) -> None:
    """Demand that what a message's content is made of says what it is."""
    content = message.get("content") if isinstance(message, Mapping) else None
    for place, part in enumerate(content if isinstance(content, list) else ()):
        if isinstance(part, Mapping):
            demanded(part, "type", str, f"{field}.content[{place}].")


def _tools(found: Any) -> list[dict[str, Any]]:
    tools = objects(found, "tools")
    for place, tool in enumerate(tools):
        only(tool, "type", ("function",), "use functions", f"tools[{place}].")
        function = demanded(tool, "function", dict, f"tools[{place}].")
        demanded(function, "name", str, f"tools[{place}].function.")
    return tools


def _sampling(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return sampling arguments; an `extra_body` that comes over the wire is none."""
    if "extra_body" in said:
        raise UntranslatableError(
            "extra_body", "is a word of client libraries", "put its fields into the body"
        )
    found = {**passed(said), **{name: said[name] for name in SAMPLING & said.keys()}}
    effort = taken(said, "reasoning_effort", str)
    return with_template(found, {} if effort is None else {"reasoning_effort": effort})


def _include_usage(options: Mapping[str, Any]) -> bool:
    known(options, ("include_usage", "include_obfuscation", "continuous_usage_stats"), "stream_options.")
    only(options, "continuous_usage_stats", (False,), "counts come at the end", "stream_options.")
    return of_kind(options.get("include_usage", False), bool, "stream_options.include_usage")
