"""Parse requests of Google's Gemini API: contents become messages in the form of OpenAI's chat API."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import attrs

from tito_io.dialects.constraints import callable_tools, google_constraint, json_format
from tito_io.dialects.fields import ApiNames, drop_tool, in_json
from tito_io.dialects.message_parts import ERROR_PREFIX, ToolCall, arguments_text, content_of
from tito_io.dialects.protocol import ParsedRequest, UntranslatableError
from tito_io.thinking import under_all_names, with_effort

from .fields import GoogleFields, camel

TRANSLATED = (
    *("contents", "generationConfig", "systemInstruction", "toolConfig", "tools"),
    *("cachedContent", "labels", "model", "safetySettings", "serviceTier", "store"),
)
"""The last five change nothing about an answer; the path names the model."""
SAMPLING: Mapping[str, tuple[str, type]] = {
    "frequencyPenalty": ("frequency_penalty", float),
    "maxOutputTokens": ("max_tokens", int),
    "presencePenalty": ("presence_penalty", float),
    "seed": ("seed", int),
    "stopSequences": ("stop", list),
    "temperature": ("temperature", float),
    "topK": ("top_k", int),
    "topP": ("top_p", float),
}
"""Sampling arguments under their names in the API, with the engines' names and their types."""
LIMITED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "candidateCount": ((1,), "ask for one candidate"),
    "logprobs": ((0,), "leave it out: only the log-probabilities of sampled ids are known"),
    "responseMimeType": (("text/plain", "application/json"), "ask for text or JSON"),
    "responseModalities": ((["TEXT"], []), "ask for text"),
}
"""Fields of `generationConfig` of which only some values can be translated."""
SCHEMAS = ("responseJsonSchema", "responseSchema")
CONFIG = ApiNames(
    frozenset((*SAMPLING, *LIMITED, *SCHEMAS, "responseLogprobs", "thinkingConfig")),
    {
        **{one: one for one in (*SAMPLING, *LIMITED, *SCHEMAS)},
        "maxCompletionTokens": "maxOutputTokens",
        "maxTokens": "maxOutputTokens",
        "n": "candidateCount",
        "responseFormat": "responseJsonSchema",
        "stop": "stopSequences",
    },
    camel,
)
NAMES = ApiNames(
    frozenset(TRANSLATED),
    {
        "functionDeclarations": "tools",
        "functions": "tools",
        "instructions": "systemInstruction",
        "messages": "contents",
        "system": "systemInstruction",
        "toolChoice": "toolConfig.functionCallingConfig",
        **{name: f"generationConfig.{there}" for name, there in CONFIG.written.items()},
    },
    camel,
)
PART_FIELDS = frozenset(
    (
        *("functionCall", "functionResponse", "inlineData", "fileData", "text", "thought"),
        *("partMetadata", "thoughtSignature"),
    )
)
KINDS = TEXT, CALL, RESULT, INLINE, FILE = (
    "text",
    "functionCall",
    "functionResponse",
    "inlineData",
    "fileData",
)
"""What a part holds, one of these."""


def parse_request(body: object, ignoring: frozenset[str], *, strict: bool = False) -> ParsedRequest:
    """Parse a request's body; `ignoring` are fields to accept without effect."""
    given = GoogleFields.of_body(body, ()).values
    fields = GoogleFields.of_body(body, ignoring, strict=strict)
    fields.check_body(NAMES)
    fields.check_value("cachedContent", (), "send the contents: none are kept under a name")
    config = fields.nested("generationConfig")
    sampling = _sampling(config)
    calling = fields.nested("toolConfig").nested("functionCallingConfig")
    declared = tuple(_tools(fields))
    tools, forbidden = callable_tools(declared, forbidden=calling.values.get("mode") == "NONE")
    messages = chat_messages(fields.nested_list("contents", required=True))
    return ParsedRequest(
        messages=(*_system(fields.nested("systemInstruction")), *messages),
        tools=tools,
        forbidden_tools=forbidden,
        sampling={**sampling, **google_constraint(calling, tools), **_format(config)},
        logprobs=config.flag("responseLogprobs"),
        continue_final_message=_continued(fields),
        ignored=fields.ignored.listed(),
        body=given,
    )


def _continued(fields: GoogleFields) -> str | None:
    """Return the last content where the model is to continue it: one of the model's own."""
    contents = fields.nested_list("contents")
    return contents[-1].path if _is_model(contents[-1]) else None


def parse_count(body: object, ignoring: frozenset[str], *, strict: bool = False) -> ParsedRequest:
    """Parse a body of `countTokens`, which has a request under `generateContentRequest`, or contents."""
    request = GoogleFields.of_body(body, ignoring, strict=strict).values.get("generateContentRequest", body)
    return parse_request(request, ignoring, strict=strict)


def _sampling(config: GoogleFields) -> dict[str, Any]:
    """Return the sampling arguments of a `generationConfig`."""
    config.check_body(CONFIG)
    for name, (allowed, instead) in LIMITED.items():
        config.check_value(name, allowed, instead)
    found = {
        ours: _number(config, name) if kind is float else config.required(name, kind)
        for name, (ours, kind) in SAMPLING.items()
        if config.values.get(name) is not None
    }
    template_args = _thinking(config.nested("thinkingConfig"))
    return {**found, **({"chat_template_kwargs": template_args} if template_args else {})}


def _number(config: GoogleFields, name: str) -> float:
    value = config.values[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UntranslatableError(config.at(name), f"is {in_json(value):.60}", "give a number")
    return value


def _thinking(thinking: GoogleFields) -> dict[str, Any]:
    """Return the template arguments for a `thinkingConfig`; a budget of -1 leaves it to the model."""
    thinking.check_choices("includeThoughts", "thinkingBudget", "thinkingLevel")
    budget, level = thinking.optional("thinkingBudget", int), thinking.optional("thinkingLevel", str)
    found: dict[str, Any] = {} if level is None else {"reasoning_effort": level.lower()}
    if budget is not None and budget >= 0:
        found["enable_thinking"] = budget > 0
    if budget is not None and budget > 0:
        found["thinking_budget"] = budget
    return with_effort(under_all_names(found))


def _format(config: GoogleFields) -> dict[str, Any]:
    """Return the sampling argument for an answer in JSON, with a schema or without."""
    if config.values.get("responseMimeType") != "application/json":
        for name in SCHEMAS:
            config.check_value(name, (), "set responseMimeType to application/json")
        return {}
    given = [name for name in SCHEMAS if config.values.get(name) is not None]
    if not given:
        return json_format(None, config.path)
    return json_format(json_schema(config.required(given[0], dict)), config.at(given[0]))


def _tools(fields: GoogleFields) -> Iterator[dict[str, Any]]:
    """Yield tool definitions in the form of OpenAI's chat API; drop tools that Google's servers run."""
    for tool in fields.nested_list("tools"):
        for kind in sorted(tool.values.keys() - {"functionDeclarations"}):
            drop_tool(tool, kind)
        for declared in tool.nested_list("functionDeclarations"):
            yield {"type": "function", "function": _function(declared)}


def _function(declared: GoogleFields) -> dict[str, Any]:
    declared.check_names(
        (
            "behavior",
            "description",
            "name",
            "parameters",
            "parametersJsonSchema",
            "response",
            "responseJsonSchema",
        )
    )
    description = declared.optional("description", str)
    schema = declared.optional("parametersJsonSchema", dict)
    if schema is None:
        schema = json_schema(declared.optional("parameters", dict) or {"type": "object", "properties": {}})
    described = {} if description is None else {"description": description}
    return {"name": declared.required("name", str), **described, "parameters": schema}


def json_schema(schema: Any) -> Any:
    """Return a schema of Google's form, whose types are in capitals, as a JSON schema.

    >>> json_schema({"type": "OBJECT", "properties": {"type": {"type": "STRING"}}})
    {'type': 'object', 'properties': {'type': {'type': 'string'}}}
    """
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    for name, value in schema.items():
        if name == "type" and isinstance(value, str):
            found[name] = value.lower()
        elif name == "properties" and isinstance(value, dict):
            found[name] = {key: json_schema(one) for key, one in value.items()}
        elif name in ("anyOf", "any_of") and isinstance(value, list):
            found["anyOf"] = [json_schema(one) for one in value]
        else:
            found[name] = json_schema(value) if name == "items" else value
    return found


def _system(instruction: GoogleFields) -> list[dict[str, Any]]:
    """Return the system message; none where there is no text."""
    content = content_of([_part(part, (TEXT,)) for part in instruction.nested_list("parts")])
    return [{"role": "system", "content": content}] if content else []


def chat_messages(given: list[GoogleFields]) -> list[dict[str, Any]]:
    """Return messages in the chat form. Contents of the model in a row are one message, as it was sampled."""
    if not given:
        raise UntranslatableError("contents", "is empty", "send at least one content")
    history = _History()
    for model, contents in groupby(given, _is_model):
        if model:
            history.add_model([part for one in contents for part in one.nested_list("parts")])
        else:
            for one in contents:
                history.add_user(one.nested_list("parts"))
    return history.messages


def _is_model(content: GoogleFields) -> bool:
    content.check_names(("parts", "role"))
    content.check_value("role", ("user", "model", "function"), "use user and model")
    return content.values.get("role") == "model"


@attrs.define
class _History:
    """Messages that are put together, and the calls that no response has answered yet."""

    messages: list[dict[str, Any]] = attrs.field(factory=list)
    open: list[ToolCall] = attrs.field(factory=list)
    calls: int = 0

    def add_model(self, parts: list[GoogleFields]) -> None:
        """Add an assistant message: reasoning, text and calls."""
        reasoning, text = "", ""
        self.open = []
        for part in parts:
            kind = _kind(part, (TEXT, CALL))
            if kind == CALL:
                call = part.nested(CALL)
                self.calls += 1
                identifier = call.optional("id", str) or f"call_{self.calls}"
                arguments = arguments_text(call.optional("args", dict) or {}, call.at("args"))
                self.open.append(ToolCall(identifier, call.required("name", str), arguments))
            elif part.flag("thought"):
                reasoning += part.required(TEXT, str)
            else:
                if self.open:
                    why, instead = "is text after a call", "send text before calls"
                    part.ignored.add(part.path, why, instead, name="order[type=text]")
                text += part.required(TEXT, str)
        thought = {"reasoning": reasoning} if reasoning else {}
        called = {"tool_calls": [call.chat_form() for call in self.open]} if self.open else {}
        self.messages.append({"role": "assistant", "content": text, **thought, **called})

    def add_user(self, parts: list[GoogleFields]) -> None:
        """Add the results of calls, and then what the user says."""
        answered: list[dict[str, Any]] = []
        said: list[dict[str, Any]] = []
        for part in parts:
            if _kind(part, (TEXT, RESULT, INLINE, FILE)) != RESULT:
                said.append(_part(part, (TEXT, INLINE, FILE)))
            elif (message := self._result(part.nested(RESULT))) not in answered:
                answered.append(message)
            else:  # Gemini CLI doubles all of them when it resumes a conversation
                why, instead = "repeats a response", "send it once"
                part.ignored.add(part.path, why, instead, name="repeated[type=functionResponse]")
        self.messages += answered
        if said or not answered:
            self.messages.append({"role": "user", "content": content_of(said)})

    def _result(self, result: GoogleFields) -> dict[str, Any]:
        if result.values.get("parts"):
            instead = "put text into the response"
            raise UntranslatableError(result.at("parts"), "cannot be translated", instead)
        name = result.required("name", str)
        identifier = result.optional("id", str) or self._answered(result, name)
        content = response_text(result.optional("response", dict) or {})
        return {"role": "tool", "tool_call_id": identifier, "content": content}

    def _answered(self, result: GoogleFields, name: str) -> str:
        """Return the id of the first open call of a function, which is open no more."""
        call = next((one for one in self.open if one.name == name), None)
        if call is None:
            why, instead = "answers no call of the model's turn before", "send the call with it"
            raise UntranslatableError(result.path, why, instead)
        self.open.remove(call)
        return call.id


def response_text(response: Mapping[str, Any]) -> str:
    """Return what a function's response says to the model.

    >>> response_text({"output": "sunny"}), response_text({"error": "gone"}), response_text({"a": 1})
    ('sunny', 'Error: gone', '{"a": 1}')
    """
    for name, prefix in (("output", ""), ("error", ERROR_PREFIX)):
        if list(response) == [name]:
            value = response[name]
            return prefix + (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return json.dumps(response, ensure_ascii=False)


def _kind(part: GoogleFields, allowed: tuple[str, ...]) -> str:
    """Return what a part holds; raises an error if it is not allowed here, or if it holds several things.

    An empty text beside something else does not count.
    """
    part.check_names(PART_FIELDS)
    kinds = [one for one in KINDS if part.values.get(one) not in (None, "")] or [TEXT]
    if len(kinds) > 1:
        raise UntranslatableError(part.path, f"has {' and '.join(kinds)}", "send a part for each")
    if kinds[0] not in allowed or kinds[0] not in part.values:
        found = ", ".join(sorted(part.values))
        instead = f"use {', '.join(allowed)}"
        raise UntranslatableError(part.path, f"a part with {found:.80} cannot be translated here", instead)
    return kinds[0]


def _part(part: GoogleFields, allowed: tuple[str, ...]) -> dict[str, Any]:
    """Return a part of a content: a text, or an image by its data or its address."""
    kind = _kind(part, allowed)
    if kind == TEXT:
        return {"type": "text", "text": part.required(TEXT, str)}
    media = part.nested(kind, required=True)
    mime = media.required("mimeType", str)
    if not mime.startswith("image/"):
        raise UntranslatableError(media.at("mimeType"), f"{mime!r:.60} cannot be translated", "send an image")
    url = (
        f"data:{mime};base64,{media.required('data', str)}"
        if kind == INLINE
        else media.required("fileUri", str)
    )
    return {"type": "image_url", "image_url": {"url": url}}
