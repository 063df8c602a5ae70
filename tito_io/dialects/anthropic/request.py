"""Parse requests of Anthropic's Messages: content blocks become messages in the form of OpenAI's chat API.

What the gateway answers is one message: reasoning, text, tool calls. History that was written elsewhere may
have other blocks, which become the nearest thing that chat templates take:

- Tool results come first, whatever stands before them, because templates want them right after the calls.
- Text after a tool call stands before it, and several thinking blocks are one reasoning. Such changes of
  order are noted as `order[type=...]`.
- A tool call of Anthropic's server and its result are a call and a tool message.
- A tool with `defer_loading` is not offered at the beginning. Its definition stands where a `tool_reference`
  names it, as at Anthropic's server, so that loading a tool changes no earlier id of the prompt.
- Documents and search results in plain text are text. Those in other forms are refused.
- `redacted_thinking` cannot be read, and is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import attrs

from tito_io.dialects.constraints import anthropic_constraint, callable_tools
from tito_io.dialects.fields import ENGINE_ARGUMENTS, ApiNames, RequestFields, drop_tool
from tito_io.dialects.message_parts import ERROR_PREFIX, Content, ToolCall, arguments_text, content_of
from tito_io.dialects.protocol import ParsedRequest, UntranslatableError

TRANSLATED = (
    *("context_management", "max_tokens", "mcp_servers", "messages", "metadata", "model", "output_config"),
    *("stop_sequences", "stream", "system", "thinking", "tool_choice", "tools"),
)
NAMES = ApiNames(
    frozenset((*TRANSLATED, *ENGINE_ARGUMENTS)),
    {
        "function_call": "tool_choice",
        "functions": "tools",
        "input": "messages",
        "instructions": "system",
        "max_completion_tokens": "max_tokens",
        "max_output_tokens": "max_tokens",
        "output_format": "output_config.format",
        "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
        "prompt": "messages",
        "reasoning_effort": "output_config.effort",
        "response_format": "output_config.format",
        "stop": "stop_sequences",
    },
)
KEEP_THINKING = "clear_thinking_20251015"
"""An edit of the context that changes nothing if it keeps all reasoning; Claude Code sends it so."""
TOOL_FIELDS = frozenset(
    (
        *("cache_control", "defer_loading", "description", "eager_input_streaming", "input_schema", "name"),
        *("strict", "type"),
    )
)
BILLING = "x-anthropic-billing-header:"
"""Begins a block of the system text that a client means for Anthropic's servers."""
BLOCK_FIELDS: Mapping[str, frozenset[str]] = {
    "document": frozenset(("type", "source", "title", "context", "cache_control")),
    "image": frozenset(("type", "source", "cache_control")),
    "redacted_thinking": frozenset(("type", "data")),
    "search_result": frozenset(("type", "source", "title", "content", "cache_control")),
    "server_tool_use": frozenset(("type", "id", "name", "input", "cache_control")),
    "text": frozenset(("type", "text", "cache_control")),
    "thinking": frozenset(("type", "thinking", "signature")),
    "tool_reference": frozenset(("type", "tool_name", "cache_control")),
    "tool_result": frozenset(("type", "tool_use_id", "content", "is_error", "cache_control")),
    "tool_use": frozenset(("type", "id", "name", "input", "caller", "cache_control")),
}
"""The blocks that can be translated, and the fields that have an effect here."""
SERVER_CALLS = frozenset(("mcp_tool_use", "server_tool_use"))
"""Calls of tools that Anthropic's servers run; the result is a later block of the same message."""
SERVER_RESULT = "_tool_result"
"""How the types of their results end, such as `web_search_tool_result`."""


def _continued(given: list[RequestFields], last: Mapping[str, Any]) -> str | None:
    """Return the last message as it was `given` where it begins the answer: one of the assistant.

    Anthropic's server answers 400 where its text ends in white space, with these words: few models were
    trained to go on there.
    """
    if last["role"] != "assistant":
        return None
    content = last["content"]
    text = content if isinstance(content, str) else content[-1]["text"]
    if text != text.rstrip() and not last.get("tool_calls"):
        why = "final assistant content cannot end with trailing whitespace"
        raise UntranslatableError(given[-1].at("content"), why, "leave it out")
    return given[-1].path


def parse_request(
    body: object, ignoring: frozenset[str], *, strict: bool = False, counting: bool = False
) -> ParsedRequest:
    """Parse a request's body; `ignoring` are fields to accept without effect.

    A request that is `counting` wants the length of its prompt alone and needs no `max_tokens`.
    """
    given = RequestFields.of_body(body, ()).values
    fields = RequestFields.of_body(given, ignoring, strict=strict)
    _check(fields)
    declared, deferred = _tools(fields)
    choice = fields.nested("tool_choice").values.get("type")
    tools, forbidden = callable_tools(declared, forbidden=choice == "none")
    if deferred:
        fields = fields.inner({**fields.values, "messages": _defined(fields, deferred)}, "")
    given_messages = fields.nested_list("messages", required=True)
    messages = chat_messages(given_messages)
    sampling = _sampling(fields, counting=counting)
    if _has_cache_control(fields.values):
        fields.ignored.note("cache_control")
    return ParsedRequest(
        messages=(*system_message(fields, "system"), *messages),
        tools=tools,
        forbidden_tools=forbidden,
        sampling={**sampling, **anthropic_constraint(fields, tools)},
        model=fields.optional("model", str),
        stream=fields.flag("stream"),
        continue_final_message=_continued(given_messages, messages[-1]),
        metadata=fields.nested("metadata").values,
        ignored=fields.ignored.listed(),
        body=given,
    )


def _check(fields: RequestFields) -> None:
    """Look at the fields that have no effect; raises an error for those that cannot be honoured."""
    fields.check_body(NAMES)
    if fields.values.get("thread") is not None:  # anthropic 2.12's tool runner then sends new messages alone
        why = "asks the server to keep the conversation"
        raise UntranslatableError("thread", why, "send all messages, and leave it out")
    if fields.values.get("mcp_servers"):
        why, instead = "are tools that Anthropic's servers run", "connect the client to them"
        fields.ignored.add("mcp_servers", why, instead)
    management = fields.nested("context_management")
    management.check_names(("edits",))
    for edit in management.nested_list("edits"):
        edit.check_value("type", (KEEP_THINKING,), "leave it out: nothing is cleared from a context")
        if edit.values.get("keep") != "all":
            why = "would clear reasoning from the context"
            raise UntranslatableError(edit.at("keep"), why, "use 'all': nothing is cleared")
        fields.ignored.add("context_management", "has no effect here", "leave it out")


Definition = dict[str, Any]


def _tools(fields: RequestFields) -> tuple[tuple[Definition, ...], dict[str, Definition]]:
    """Return the tools that are offered at the beginning, and by their names those that are loaded later."""
    offered: list[Definition] = []
    deferred: dict[str, Definition] = {}
    for tool, definition in _definitions(fields):
        if tool.flag("defer_loading"):
            deferred[definition["function"]["name"]] = definition
        else:
            offered.append(definition)
    return tuple(offered), deferred


def _defined(fields: RequestFields, deferred: Mapping[str, Definition]) -> list[Any]:
    """Return a request's messages with tools' definitions in place of references to them."""

    def defined(part: Any) -> Any:
        name = part.get("tool_name") if isinstance(part, Mapping) else None
        if not isinstance(name, str) or part.get("type") != "tool_reference" or name not in deferred:
            return part
        return {"type": "text", "text": json.dumps(deferred[name], ensure_ascii=False)}

    def result(block: Any) -> Any:
        return _changed(block, defined)

    return [_changed(message, result) for message in fields.required("messages", list)]


def _changed(holder: Any, change: Callable[[Any], Any]) -> Any:
    """Return a message or a block whose content's items were changed."""
    content = holder.get("content") if isinstance(holder, Mapping) else None
    return {**holder, "content": [change(one) for one in content]} if isinstance(content, list) else holder


def _definitions(fields: RequestFields) -> Iterator[tuple[RequestFields, Definition]]:
    """Yield tools with their definitions in the form of OpenAI's chat API."""
    for tool in fields.nested_list("tools"):
        kind = tool.optional("type", str) or "custom"
        if kind != "custom":
            drop_tool(tool, kind)
            continue
        tool.check_names(TOOL_FIELDS)
        description = tool.values.get("description")
        described = {} if description is None else {"description": description}
        function = {"name": tool.required("name", str), **described}
        strict = {"strict": True} if tool.values.get("strict") else {}
        parameters = tool.required("input_schema", dict)
        yield tool, {"type": "function", "function": {**function, "parameters": parameters, **strict}}


def _sampling(fields: RequestFields, *, counting: bool) -> dict[str, Any]:
    renamed: dict[str, Any] = {}
    if not counting or "max_tokens" in fields.values:
        renamed["max_tokens"] = fields.required("max_tokens", int)
    if fields.values.get("stop_sequences"):
        renamed["stop"] = fields.required("stop_sequences", list)
    template_args = _thinking(fields.nested("thinking"))
    config = fields.nested("output_config")
    config.check_choices("effort", "format")
    if (effort := config.optional("effort", str)) is not None:
        template_args["reasoning_effort"] = effort
    return fields.sampling(template_args, **renamed)


def _thinking(thinking: RequestFields) -> dict[str, Any]:
    """Return the template arguments for a request's `thinking`."""
    thinking.check_choices("type", "budget_tokens", "display")
    thinking.expect_value("display", ("summarized",), "leave it out: reasoning is always shown")
    kind = thinking.values.get("type")
    if kind == "enabled":
        return {"enable_thinking": True, "thinking_budget": thinking.required("budget_tokens", int)}
    if kind in (None, "adaptive"):
        return {}
    thinking.check_value("type", ("disabled",), "use enabled, disabled or adaptive")
    return {"enable_thinking": False}


def _has_cache_control(values: Mapping[str, Any]) -> bool:
    """Tell whether cache marks stand anywhere in what the dialect reads."""
    marked = [values, *(values.get("tools") or []), *_blocks(values.get("system"))]
    for message in values["messages"]:
        for block in _blocks(message.get("content")):
            marked += [block, *_blocks(block.get("content"))]
    return any(isinstance(one, dict) and one.get("cache_control") is not None for one in marked)


def _blocks(content: Any) -> list[Any]:
    return content if isinstance(content, list) else []


def chat_messages(given: list[RequestFields]) -> list[dict[str, Any]]:
    """Return messages in the chat form; one of a user becomes several where it has tool results."""
    if not given:
        raise UntranslatableError("messages", "is empty", "send at least one message")
    messages: list[dict[str, Any]] = []
    for message in given:
        message.check_value("role", ("user", "assistant", "system"), "use user and assistant")
        message.check_names(("role", "content"))
        role = message.required("role", str)
        if role == "assistant":
            messages += _assistant(message)
        else:
            messages += _user(message) if role == "user" else system_message(message, "content")
    if not messages:
        raise UntranslatableError("messages", "have no text", "send a message of the user")
    return messages


def system_message(fields: RequestFields, name: str) -> list[dict[str, Any]]:
    """Return the system message for the text or the text blocks under `name`; none where there is no text.

    >>> system_message(RequestFields({"system": [{"type": "text", "text": BILLING + " cch=1"}]}), "system")
    []
    """
    given = fields.text_or_list(name)
    content: Content
    if isinstance(given, str):
        content = given
    else:
        texts = _parts(given, ("text",))
        content = content_of([text for text in texts if not text["text"].startswith(BILLING)])
    return [{"role": "system", "content": content}] if content else []


def _user(message: RequestFields) -> Iterator[dict[str, Any]]:
    """Yield the tool results, and then what the user says."""
    blocks = message.text_or_list("content", required=True)
    if isinstance(blocks, str):
        yield {"role": "user", "content": blocks}
        return
    results = [block for block in blocks if block.values.get("type") == "tool_result"]
    if results != blocks[: len(results)]:
        why, instead = "comes after other content", "send tool results first"
        results[-1].ignored.add(results[-1].path, why, instead, name="order[type=tool_result]")
    for block in results:
        yield tool_result(block)
    said = [block for block in blocks if block.values.get("type") != "tool_result"]
    if said or not results:
        yield {"role": "user", "content": content_of(list(_parts(said)))}


def tool_result(block: RequestFields) -> dict[str, Any]:
    """Return the message of a tool result.

    >>> block = {"type": "tool_result", "tool_use_id": "a", "content": "gone", "is_error": True}
    >>> tool_result(RequestFields(block))
    {'role': 'tool', 'tool_call_id': 'a', 'content': 'Error: gone'}
    """
    block.check_names(BLOCK_FIELDS["tool_result"])
    given = block.text_or_list("content")
    content: Content = given if isinstance(given, str) else content_of(list(_parts(given)))
    if block.flag("is_error"):
        prefix = [{"type": "text", "text": ERROR_PREFIX}]
        content = ERROR_PREFIX + content if isinstance(content, str) else prefix + content
    return {"role": "tool", "tool_call_id": block.required("tool_use_id", str), "content": content}


@attrs.define
class _Turn:
    """An assistant message that is put together from blocks."""

    reasoning: list[str] = attrs.field(factory=list)
    parts: list[dict[str, Any]] = attrs.field(factory=list)
    calls: list[dict[str, Any]] = attrs.field(factory=list)

    def message(self) -> dict[str, Any]:
        thought = {"reasoning": "\n".join(self.reasoning)} if self.reasoning else {}
        called = {"tool_calls": self.calls} if self.calls else {}
        return {"role": "assistant", "content": content_of(self.parts), **thought, **called}

    def __bool__(self) -> bool:
        return bool(self.reasoning or self.parts or self.calls)


def _assistant(message: RequestFields) -> Iterator[dict[str, Any]]:
    """Yield an assistant message; several, and tool messages, if Anthropic's servers have run tools in it."""
    if isinstance(message.values.get("content"), str):
        yield {"role": "assistant", "content": message.values["content"]}
        return
    turn, alone = _Turn(), True
    for block in message.nested_list("content", required=True):
        if str(block.values.get("type")).endswith(SERVER_RESULT):
            if turn:
                yield turn.message()
            yield _server_result(block)
            turn, alone = _Turn(), False
        else:
            _add_block(turn, block)
    if turn or alone:
        yield turn.message()


def _server_result(block: RequestFields) -> dict[str, Any]:
    """Return the message of what a tool of Anthropic's servers returned, which may be anything."""
    block.check_names(BLOCK_FIELDS["tool_result"] | {"caller"})
    content = block.values.get("content")
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    prefix = ERROR_PREFIX if block.flag("is_error") else ""
    return {"role": "tool", "tool_call_id": block.required("tool_use_id", str), "content": prefix + text}


def _add_block(turn: _Turn, block: RequestFields) -> None:
    kind = block.required("type", str)
    if kind in SERVER_CALLS or kind == "tool_use":
        block.check_names(BLOCK_FIELDS["tool_use"])
        block.expect_value("caller", ({"type": "direct"},), "leave it out: the model alone calls tools")
        names = block.required("id", str), block.required("name", str)
        arguments = arguments_text(block.required("input", dict), block.at("input"))
        turn.calls.append(ToolCall(*names, arguments).chat_form())
    elif kind == "thinking":
        block.check_names(BLOCK_FIELDS[kind])
        if turn.reasoning:
            block.ignored.add(block.path, "is a second reasoning", "send one", name="order[type=thinking]")
        turn.reasoning.append(block.required("thinking", str))
    elif kind == "redacted_thinking":
        why = "is reasoning that cannot be read here"
        block.ignored.add(block.path, why, "leave it out", name="messages[].content[type=redacted_thinking]")
    else:
        if turn.calls:
            instead = "send text before the calls"
            block.ignored.add(block.path, "is text after a tool call", instead, name="order[type=text]")
        turn.parts += _parts([block], ("text",))


def _parts(
    blocks: Iterable[RequestFields],
    allowed: tuple[str, ...] = ("text", "image", "document", "search_result", "tool_reference"),
) -> Iterator[dict[str, Any]]:
    """Yield the parts of a content."""
    for block in blocks:
        kind = block.required("type", str)
        if kind not in allowed:
            why = f"a block of type {kind!r:.60} cannot be translated here"
            raise UntranslatableError(block.path, why, f"use {', '.join(allowed)}")
        block.check_names(BLOCK_FIELDS[kind])
        yield from PARTS[kind](block)


def _text(block: RequestFields) -> Iterator[dict[str, Any]]:
    yield {"type": "text", "text": block.required("text", str)}


def _image(block: RequestFields) -> Iterator[dict[str, Any]]:
    source = block.nested("source", required=True)
    source.check_value("type", ("base64", "url"), "send the image itself, or its address")
    if source.values.get("type") == "url":
        url = source.required("url", str)
    else:
        url = f"data:{source.required('media_type', str)};base64,{source.required('data', str)}"
    yield {"type": "image_url", "image_url": {"url": url}}


def _document(block: RequestFields) -> Iterator[dict[str, Any]]:
    """Yield the text of a document after its title and context."""
    for name in ("title", "context"):
        if (text := block.optional(name, str)) is not None:
            yield {"type": "text", "text": text}
    source = block.nested("source", required=True)
    source.check_value("type", ("text", "content"), "send its text: files are not read")
    if source.values.get("type") == "text":
        yield {"type": "text", "text": source.required("data", str)}
    elif isinstance(source.values.get("content"), str):
        yield {"type": "text", "text": source.values["content"]}
    else:
        yield from _parts(source.nested_list("content", required=True), ("text", "image"))


def _search_result(block: RequestFields) -> Iterator[dict[str, Any]]:
    yield {"type": "text", "text": f"{block.required('title', str)}\n{block.required('source', str)}"}
    yield from _parts(block.nested_list("content", required=True), ("text",))


def _tool_reference(block: RequestFields) -> Iterator[dict[str, Any]]:
    """Yield the name of a tool that a search has found, and that is in the prompt already."""
    yield {"type": "text", "text": block.required("tool_name", str)}


PARTS: Mapping[str, Callable[[RequestFields], Iterator[dict[str, Any]]]] = {
    "document": _document,
    "image": _image,
    "search_result": _search_result,
    "text": _text,
    "tool_reference": _tool_reference,
}
