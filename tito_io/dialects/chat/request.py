"""Parse requests of Chat Completions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from tito_core import Message
from tito_core.message import copied
from tito_core.normalization.canonical import call_objects
from tito_io.dialects.constraints import callable_tools, chat_constraint
from tito_io.dialects.fields import (
    ENGINE_ARGUMENTS,
    LONGEST,
    ApiNames,
    Ignored,
    RequestFields,
    drop_tool,
    nearest,
)
from tito_io.dialects.protocol import ParsedRequest, UntranslatableError
from tito_io.fields import json_kind
from tito_io.thinking import under_all_names

SAMPLING = frozenset(("max_tokens", "max_completion_tokens", "stop", "n"))
TRANSLATED = (
    *("add_generation_prompt", "continue_final_message", "extra_body", "logprobs", "messages", "metadata"),
    *("enable_thinking", "model", "parallel_tool_calls", "reasoning", "reasoning_effort", "response_format"),
    *("return_token_ids", "return_tokens_as_token_ids", "stream", "stream_options", "thinking"),
    *("tool_choice", "tools"),
)
LIMITED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "audio": ((), "ask for text"),
    "echo": ((False,), "leave it out: an answer has what is new alone"),
    "functions": (([],), "use tools: the old form of function calls is not read"),
    "function_call": (("none",), "use tool_choice: the old form of function calls is not read"),
    "modalities": ((["text"],), "ask for text"),
    "top_logprobs": ((0,), "leave it out: only the log-probabilities of sampled ids are known"),
}
"""Fields of which only some values can be translated: those values, and what to do instead."""
OTHER_TEXTS = {"input_text": "text", "output_text": "text", "refusal": "refusal"}
"""The field with the text in parts of other types, which engines take for texts and templates leave out."""
SYSTEM = "a message with the role system"
CONTINUES = "continue_final_message"
OPENS = ("partial", "prefix")
"""Fields of a last message that begins the answer."""
ROLES = ("assistant", "developer", "system", "tool", "user")
"""Roles of OpenAI's API. A template may have others, such as GLM-4's `observation`."""
KEYS = ("content", "name", "reasoning", "reasoning_content", "role", "tool_call_id", "tool_calls")
"""Keys of messages that most templates read. A template may read others, which pass unchanged."""
NAMES = ApiNames(
    SAMPLING.union(TRANSLATED, ENGINE_ARGUMENTS, LIMITED),
    {
        "functions": "tools",
        "input": "messages",
        "instructions": SYSTEM,
        "output_config": "response_format",
        "output_format": "response_format",
        "prompt": "messages",
        "system": SYSTEM,
    },
)

meant_by = lru_cache(1024)(nearest)  # clients send the same keys again and again


def parse_request(
    body: object, ignoring: frozenset[str], *, strict: bool = False, known: Sequence[Message] = ()
) -> ParsedRequest:
    """Parse a request's body; `ignoring` are fields to accept without effect, `known` earlier messages."""
    given = RequestFields.of_body(body, ()).values
    fields = RequestFields.of_body(given, ignoring, strict=strict)
    _check(fields)
    declared = tuple(_tools(fields))
    tools, forbidden = callable_tools(declared, forbidden=fields.values.get("tool_choice") == "none")
    messages, continued = _messages(fields, known), _continued(fields)
    own = {name: fields.values[name] for name in SAMPLING & fields.values.keys()}
    sampling = fields.sampling(reasoning_switches(fields), **own)
    return ParsedRequest(
        messages=messages,
        tools=tools,
        forbidden_tools=forbidden,
        sampling={**sampling, **chat_constraint(fields, tools)},
        model=fields.optional("model", str),
        stream=fields.flag("stream"),
        include_usage=fields.nested("stream_options").flag("include_usage"),
        logprobs=fields.flag("logprobs"),
        return_token_ids=fields.flag("return_token_ids"),
        tokens_as_ids=fields.flag("return_tokens_as_token_ids"),
        continue_final_message=continued,
        metadata=fields.nested("metadata").values,
        ignored=fields.ignored.listed(),
        body=given,
    )


def _check(fields: RequestFields) -> None:
    """Raise an error for a field, or a value of one, that cannot be translated."""
    fields.check_body(NAMES)
    for name, (allowed, instead) in LIMITED.items():
        fields.check_value(name, allowed, instead)
    if "extra_body" in fields.values:
        why = "is an argument of client libraries, not a field of a request"
        raise UntranslatableError("extra_body", why, "put its fields into the body")
    options = fields.nested("stream_options")
    options.check_names(("include_usage", "include_obfuscation", "continuous_usage_stats"))
    options.expect_value("continuous_usage_stats", (False,), "token counts come at the end")


def _continued(fields: RequestFields) -> str | None:
    """Return the field by which the client says that the last message is continued, None where none says so.

    It is vLLM's and SGLang's own, or stands in the message: `prefix` in DeepSeek's API
    (https://api-docs.deepseek.com/guides/chat_prefix_completion), `partial` in Kimi's
    (https://platform.moonshot.ai/docs/guide/use-partial-mode-feature-of-kimi-api). Each of them answers with
    what is new alone.
    """
    given = fields.values["messages"]
    last = RequestFields(given[-1], f"messages[{len(given) - 1}]")
    names = OPENS if given[-1]["role"] == "assistant" else ()
    flagged = [CONTINUES] if fields.flag(CONTINUES) else [last.at(name) for name in names if last.flag(name)]
    instead = "leave it out: a turn is opened exactly where no message is continued"
    fields.check_value("add_generation_prompt", (not flagged,), instead)
    return next(iter(flagged), None)


def _messages(fields: RequestFields, known: Sequence[Message]) -> tuple[Message, ...]:
    """Return the messages unchanged; raises `InputError` for what is not a message."""
    given = fields.required("messages", list)
    if not given:
        raise UntranslatableError("messages", "is empty", "send at least one message")
    read = len(known) if given[: len(known)] == list(known) else 0
    messages = (*known[:read], *_new_messages(given[read:], read, fields.ignored))
    _note_unasked(messages, read, fields.ignored)
    return messages


def _new_messages(given: list[Any], read: int, ignored: Ignored) -> tuple[Message, ...]:
    """Return messages; `read` others stand before them in the request."""
    for place, message in enumerate(given, read):
        _check_message(message, f"messages[{place}]", ignored)
    for place, message in enumerate(given[:-1], read):
        _note_flags(message, f"messages[{place}]", ignored)
    plain = [_with_text_parts(_without_custom_calls(_without_flags(message))) for message in given]
    messages = copied(plain, "messages", read)
    for place, message in enumerate(messages, read):
        if message["role"] == "function" or message.get("function_call") is not None:
            why, instead = "is in the old form of function calls", "use tool_calls and the role tool"
            raise UntranslatableError(f"messages[{place}]", why, instead)
    return messages


def _check_message(message: Any, path: str, ignored: Ignored) -> None:
    """Raise an error for what is no message: later errors would not name the field."""
    if not isinstance(message, Mapping):
        raise UntranslatableError(path, f"is {json_kind(message)}", "give an object with role and content")
    fields, content = RequestFields(message, path, ignored), message.get("content")
    _check_role(fields)
    if content is None:
        fields.check_spelling("content")
    elif not isinstance(content, str | list):
        why, instead = f"is {json_kind(content)}", "give a string or a list of parts"
        raise UntranslatableError(fields.at("content"), why, instead)
    for place, part in enumerate(content if isinstance(content, list) else ()):
        if isinstance(part, Mapping):
            RequestFields(part, f"{path}.content[{place}]").required("type", str)
    _note_keys(fields)


def _check_role(fields: RequestFields) -> None:
    """Raise an error for a role that is nearly a known one; the template decides about all others."""
    role = fields.required("role", str)
    meant = None if role in ROLES else meant_by(role[:LONGEST], ROLES)
    if meant is not None:
        why, instead = f"{role!r:.60} is not known", f"did you mean {meant!r}?"
        raise UntranslatableError(fields.at("role"), why, f"{instead} The roles are {', '.join(ROLES)}")


def _note_keys(fields: RequestFields) -> None:
    """Note a text that is missing, and keys that are nearly known: a template may mean that all the same."""
    if fields.values["role"] in ("user", "tool") and fields.values.get("content") is None:
        fields.ignored.add(fields.at("content"), "is missing", "give a string or a list of parts")
    for key in fields.values:
        meant = None if key in KEYS else meant_by(str(key)[:LONGEST], KEYS)
        if meant is not None:
            fields.ignored.add(fields.at(key), "is not known", f"did you mean {meant!r}?")


def _note_unasked(messages: Sequence[Message], read: int, ignored: Ignored) -> None:
    """Note tool results in messages from `read` on whose call is not before them: most APIs refuse these."""
    unasked: dict[str, list[int]] = {}
    for place in reversed(range(len(messages))):
        if place < read and not unasked:
            break  # the calls stand a few messages before, so that a long history is not read again
        for call in call_objects(messages[place]):
            unasked.pop(str(call.get("id")), None)
        called = messages[place].get("tool_call_id")
        if place >= read and called is not None:
            unasked.setdefault(str(called), []).append(place)
    for place in sorted(chain.from_iterable(unasked.values())):
        why = f"{messages[place]['tool_call_id']!r:.60} is the id of no call before it"
        ignored.add(f"messages[{place}].tool_call_id", why, "send the call, or correct the id")


def _note_flags(message: Mapping[str, Any], path: str, ignored: Ignored) -> None:
    """Note that a message before the last one says that it is continued: clients leave that in it."""
    for name in OPENS if message["role"] == "assistant" else ():
        if message.get(name):
            ignored.add(f"{path}.{name}", "is not in the last message", "leave it out")


def _without_flags(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message without what says of an assistant's that it is continued: no template knows it."""
    if message["role"] != "assistant" or not any(name in message for name in OPENS):
        return message
    return {name: value for name, value in message.items() if name not in OPENS}


def _with_text_parts(message: Any) -> Any:
    """Return a message whose texts have the type that chat templates read."""
    content = message.get("content")
    return {**message, "content": list(map(_text_part, content))} if isinstance(content, list) else message


def _text_part(part: Any) -> Any:
    text = part.get(OTHER_TEXTS.get(part["type"])) if isinstance(part, Mapping) else None
    return {"type": "text", "text": text} if isinstance(text, str) else part


def _without_custom_calls(message: Any) -> Any:
    """Return a message whose calls of custom tools are calls of functions with one string argument."""
    calls = message.get("tool_calls") if isinstance(message, Mapping) else None
    if not isinstance(calls, list) or not any(map(_is_custom, calls)):
        return message
    return {**message, "tool_calls": [_function_call(call) if _is_custom(call) else call for call in calls]}


def _is_custom(call: Any) -> bool:
    return (
        isinstance(call, Mapping) and call.get("type") == "custom" and isinstance(call.get("custom"), Mapping)
    )


def _function_call(call: Mapping[str, Any]) -> Any:
    custom = call["custom"]
    arguments = json.dumps({"input": custom.get("input")}, ensure_ascii=False)
    function = {"name": custom.get("name"), "arguments": arguments}
    return {"id": call.get("id"), "type": "function", "function": function}


def _tools(fields: RequestFields) -> Iterator[Mapping[str, Any]]:
    """Yield the functions; tools of other types are dropped by name."""
    for tool in fields.nested_list("tools"):
        kind = tool.optional("type", str) or "function"
        if kind == "function":
            tool.nested("function", required=True).required("name", str)
            yield tool.values
        else:
            drop_tool(tool, kind)


def reasoning_switches(fields: RequestFields) -> dict[str, Any]:
    """Return the template arguments for what several vendors call the wish for reasoning.

    `reasoning_effort` is OpenAI's, `reasoning` OpenRouter's, `enable_thinking` Qwen's; `thinking` is that of
    DeepSeek, GLM and Kimi. A switch is written under the names of all templates.

    >>> reasoning_switches(RequestFields({"thinking": {"type": "disabled"}, "reasoning": {"effort": "low"}}))
    {'enable_thinking': False, 'thinking': False, 'thinking_mode': 'disabled', 'reasoning_effort': 'low'}
    """
    reasoning = fields.nested("reasoning")
    reasoning.check_choices("effort")
    effort = fields.optional("reasoning_effort", str) or reasoning.optional("effort", str)
    thinking = fields.values.get("thinking")
    kind = thinking.get("type") if isinstance(thinking, Mapping) else None
    enabled = fields.optional("enable_thinking", bool)
    if kind in ("enabled", "disabled"):
        enabled = kind == "enabled"
    else:
        fields.expect_value("thinking", ({"type": "adaptive"}, {"type": "auto"}), "use enabled or disabled")
    found = {"reasoning_effort": effort, "enable_thinking": enabled}
    return under_all_names({name: value for name, value in found.items() if value is not None})
