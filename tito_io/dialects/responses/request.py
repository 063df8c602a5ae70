"""Parse requests of OpenAI's Responses: items become messages in the form of the chat API.

A reasoning item may have its text in `encrypted_content` alone, for clients that keep nothing else of it.
Here that is the text in base64 after a mark. What another server encrypted cannot be read: the summary stands
for it, if there is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tito_io.dialects.constraints import callable_tools, responses_constraint
from tito_io.dialects.fields import ENGINE_ARGUMENTS, ApiNames, RequestFields
from tito_io.dialects.protocol import ParsedRequest, UntranslatableError

from .compaction import TRIGGER, summary_request
from .items import ADDITIONAL_TOOLS, FOUND_TOOLS, chat_messages, tools_in
from .tools import call_items, offered_tools

ENCRYPTED = "reasoning.encrypted_content"
"""The one entry of `include` that has an effect."""
TRANSLATED = (
    *("include", "input", "instructions", "max_output_tokens", "metadata", "model", "parallel_tool_calls"),
    *("previous_response_id", "reasoning", "store", "stream", "text", "tool_choice", "tools"),
    "truncation",
)
LIMITED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "background": ((False,), "wait for the answer"),
    "context_management": ((), "compact or shorten the conversation: nothing is cut or cleared here"),
    "conversation": ((), "send the items, or previous_response_id"),
    "prompt": ((), "send the text: no prompts are stored"),
    "top_logprobs": ((0,), "ask the chat completions for log-probabilities"),
}
"""Fields of which only some values can be translated: those values, and what to do instead."""
NAMES = ApiNames(
    frozenset((*TRANSLATED, *ENGINE_ARGUMENTS, *LIMITED)),
    {
        "function_call": "tool_choice",
        "functions": "tools",
        "max_completion_tokens": "max_output_tokens",
        "max_tokens": "max_output_tokens",
        "messages": "input",
        "reasoning_effort": "reasoning.effort",
        "output_config": "text.format",
        "output_format": "text.format",
        "response_format": "text.format",
        "system": "instructions",
    },
)


def parse_request(body: object, ignoring: frozenset[str], *, strict: bool = False) -> ParsedRequest:
    """Parse a request's body; `ignoring` are fields to accept without effect."""
    given = RequestFields.of_body(body, ()).values
    fields = RequestFields.of_body(given, ignoring, strict=strict)
    _check(fields)
    asked = fields.text_or_list("input")
    items = [] if isinstance(asked, str) else asked
    offered = tuple(offered_tools([*fields.nested_list("tools"), *tools_in(items, ADDITIONAL_TOOLS)]))
    found = offered_tools(tools_in(items, FOUND_TOOLS))
    compacting = bool(items) and items[-1].values.get("type") == TRIGGER
    declared = tuple(one.definition for one in offered)
    tools, forbidden = callable_tools(declared, forbidden=fields.values.get("tool_choice") == "none")
    instructions = fields.optional("instructions", str)
    system = [{"role": "system", "content": instructions}] if instructions else []
    reasoning = fields.nested("reasoning")
    _note_summary(reasoning)
    store = fields.optional("store", bool)
    return ParsedRequest(
        messages=(*system, *_input(fields, items[: len(items) - compacting]), *summary_request(compacting)),
        instructed=bool(system),
        compacting=compacting,
        tools=tools,
        forbidden_tools=forbidden,
        call_items=call_items((*offered, *found)),
        sampling={**_sampling(fields, reasoning), **responses_constraint(fields, tools)},
        model=fields.optional("model", str),
        stream=fields.flag("stream"),
        previous_response_id=fields.optional("previous_response_id", str),
        store=True if store is None else store,
        metadata=fields.nested("metadata").values,
        ignored=fields.ignored.listed(),
        body=given,
    )


def _check(fields: RequestFields) -> None:
    """Raise an error for a field, or a value of one, that cannot be translated."""
    fields.check_body(NAMES)
    for name, (allowed, instead) in LIMITED.items():
        fields.check_value(name, allowed, instead)
    text = fields.nested("text")
    text.check_choices("format", "verbosity")
    text.expect_value("verbosity", ("medium",), "leave it out")
    fields.expect_value("truncation", ("disabled",), "shorten the input yourself: nothing is cut silently")
    for place, name in enumerate(fields.optional("include", list) or []):
        _check_included(fields, name, f"include[{place}]")


def _check_included(fields: RequestFields, name: Any, path: str) -> None:
    """Look at an entry of `include`; what it asks for of tools that run elsewhere never exists here."""
    if fields.typed(name, str, path) == ENCRYPTED:
        return
    if "logprobs" in name:
        why, instead = f"{name!r:.60} cannot be given", "ask the chat completions for log-probabilities"
        raise UntranslatableError(path, why, instead)
    fields.ignored.add(path, f"{name!r:.60} is not known here", "leave it out")


def _input(fields: RequestFields, items: list[RequestFields]) -> list[dict[str, Any]]:
    if isinstance(fields.values.get("input"), str):
        return [{"role": "user", "content": fields.values["input"]}]
    messages = chat_messages(items)
    if not messages and "previous_response_id" not in fields.values:
        raise UntranslatableError("input", "is missing or empty", "give a string or items")
    return messages


def _sampling(fields: RequestFields, reasoning: RequestFields) -> dict[str, Any]:
    limit, effort = fields.optional("max_output_tokens", int), reasoning.optional("effort", str)
    renamed = {} if limit is None else {"max_tokens": limit}
    return fields.sampling({} if effort is None else {"reasoning_effort": effort}, **renamed)


def _note_summary(reasoning: RequestFields) -> None:
    """Note the fields that ask for a summary. They have no effect: reasoning is shown in full."""
    reasoning.check_choices("effort", "summary", "generate_summary")
    for name in ("summary", "generate_summary"):
        if reasoning.values.get(name) is not None:
            reasoning.ignored.note(reasoning.at(name))
