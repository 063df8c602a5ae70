"""Requests of OpenAI's Responses, read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

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

from .items import messages

HONOURED = frozenset(
    (
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "metadata",
        "model",
        "previous_response_id",
        "reasoning",
        "store",
        "stream",
        "text",
        "tool_choice",
        "tools",
    )
)
NOISE = frozenset(
    (
        "max_tool_calls",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "stream_options",
        "user",
    )
)
"""What changes nothing about an answer; `max_tool_calls` counts calls of tools that a server runs."""
ONLY: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "background": ((False,), "wait for the answer"),
    "parallel_tool_calls": ((True,), "allow parallel calls, or name the field in `ignoring`"),
    "tool_choice": (("auto", "none"), "use auto or none: nothing that is sampled can be forced here"),
    "top_logprobs": ((0,), "ask the chat completions for log-probabilities"),
    "truncation": (("disabled",), "shorten the input yourself: nothing is cut silently"),
}
"""Fields of which only some values can be honoured."""
NAMES = HONOURED | NOISE | ENGINE | ONLY.keys()
INCLUDED = frozenset(("reasoning.encrypted_content",))


def read(body: object, ignoring: frozenset[str]) -> ParsedRequest:
    """Return what a request asks."""
    given = body_of(body)
    said = {name: value for name, value in given.items() if name not in ignoring}
    known(said, NAMES)
    for name, (allowed, instead) in ONLY.items():
        only(said, name, allowed, instead)
    _only_text(present(taken(said, "text", dict) or {}))
    _included(taken(said, "include", list) or [])
    tools = tuple(_tools(objects(said.get("tools", []), "tools")))
    stored = taken(said, "store", bool)
    instructions = _instructions(said)
    return ParsedRequest(
        messages=(*instructions, *_input(said)),
        instructed=bool(instructions),
        tools=() if said.get("tool_choice") == "none" else tools,
        sampling=_sampling(said),
        model=taken(said, "model", str),
        stream=taken(said, "stream", bool) or False,
        previous_response_id=taken(said, "previous_response_id", str),
        store=True if stored is None else stored,
        metadata=taken(said, "metadata", dict) or {},
        ignored=(*sorted(given.keys() & (ignoring | NOISE)), *_summaries(said)),
        body=given,
    )


def _instructions(said: Mapping[str, Any]) -> list[dict[str, Any]]:
    text = taken(said, "instructions", str)
    return [{"role": "system", "content": text}] if text else []


def _input(said: Mapping[str, Any]) -> list[dict[str, Any]]:
    given = said.get("input")
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    found = messages(objects(given, "input")) if given is not None else []
    if not found and "previous_response_id" not in said:
        raise UntranslatableError("input", "is missing or empty", "give a string or items")
    return found


def _tools(tools: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield definitions in the manner of the chat API."""
    for place, tool in enumerate(tools):
        within = f"tools[{place}]."
        only(tool, "type", ("function",), "declare functions, which the client runs", within)
        known(tool, ("type", "name", "description", "parameters", "strict"), within)
        described = {name: tool[name] for name in ("description", "parameters") if tool.get(name) is not None}
        strict = {"strict": True} if tool.get("strict") else {}
        yield {
            "type": "function",
            "function": {"name": demanded(tool, "name", str, within), **described, **strict},
        }


def _sampling(said: Mapping[str, Any]) -> dict[str, Any]:
    found = passed(said)
    if "max_output_tokens" in said:
        found["max_tokens"] = demanded(said, "max_output_tokens", int)
    effort = taken(_reasoning(said), "effort", str, "reasoning.")
    return with_template(found, {} if effort is None else {"reasoning_effort": effort})


def _reasoning(said: Mapping[str, Any]) -> dict[str, Any]:
    wish = present(taken(said, "reasoning", dict) or {})
    known(wish, ("effort", "summary", "generate_summary"), "reasoning.")
    return wish


def _summaries(said: Mapping[str, Any]) -> list[str]:
    """Return the wishes for a summary, which have no effect: thoughts are told whole."""
    return [f"reasoning.{name}" for name in sorted(_reasoning(said).keys() - {"effort"})]


def _only_text(wish: Mapping[str, Any]) -> None:
    known(wish, ("format", "verbosity"), "text.")
    only(wish, "format", ({"type": "text"},), "ask for text", "text.")
    only(wish, "verbosity", ("medium",), "leave it out", "text.")


def _included(wishes: list[Any]) -> None:
    for place, wish in enumerate(wishes):
        if of_kind(wish, str, f"include[{place}]") not in INCLUDED:
            raise UntranslatableError(f"include[{place}]", f"{wish!r:.60} is not there", "leave it out")
