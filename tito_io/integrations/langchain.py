"""A chat model for LangChain and LangGraph that samples with a `TokenClient`, without a server.

`TokenChatModel` is a `BaseChatModel` of `langchain_core/language_models/chat_models.py`, 1.7.2, which calls
`_agenerate`, or `_astream` for streams. `convert_to_openai_messages` makes the messages of a request.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import Any

from tito_core import InputError, Message
from tito_io.client.token_client import TokenClient
from tito_io.dialects import Chat
from tito_io.dialects.message_parts import AssistantParts, ToolCall
from tito_io.engines import protocol
from tito_io.integrations.framework import Seams, required
from tito_io.integrations.model_calls import Decode, ModelCalls, OnRefusal

MODEL = "langchain_core.language_models:BaseChatModel"
ASKED = ("messages", "stop", "run_manager", "kwargs")
SEAMS: Seams = {
    f"{MODEL}._agenerate": ASKED,
    f"{MODEL}._astream": ASKED,
    f"{MODEL}.bind_tools": ("tools", "tool_choice", "kwargs"),
    "langchain_core.messages:convert_to_openai_messages": ("messages", ...),
}
required("langchain", SEAMS)

from langchain_core import exceptions
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    InvalidToolCall,
    ToolCallChunk,
    UsageMetadata,
    convert_to_openai_messages,
    message_chunk_to_message,
)
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import ConfigDict, Field, PrivateAttr, model_validator

ERRORS = {
    protocol.AuthenticationError: exceptions.ModelAuthenticationError,
    protocol.OverlongError: exceptions.ContextOverflowError,
    protocol.RequestError: exceptions.ModelInvalidRequestError,
    protocol.ServerError: exceptions.ModelAPIError,
    protocol.TimedOutError: exceptions.ModelTimeoutError,
    protocol.UnreachableError: exceptions.ModelConnectionError,
}
"""What an engine's error is in LangChain; others are a `ModelError`."""
BLOCKS = frozenset(("text", "reasoning", "tool_call", "invalid_tool_call"))
"""The content blocks of a turn that can be sent back."""


class TokenChatModel(BaseChatModel):
    """A model of one rollout: its turns are sampled with a `TokenClient` and kept for training rows.

    It samples asynchronously: use `ainvoke` and `astream`.

    Attributes:
        client: Samples the turns.
        settings: Fields of every request, such as `{"temperature": 0.5}`. Arguments of a call override them.
        on_refusal: What follows where a prompt cannot be continued by ids; see `ModelCalls`.
        decode: Returns the text of ids, such as `Family.decode`; with it, streams have text as it comes.
        calls: The turns so far: `calls.rows(reward=1.0)` makes training rows, `calls.refused` counts the
            prompts that could not be continued.

    Raises:
        ValidationError: pydantic's, for a field that is missing, malformed or unknown.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    client: TokenClient = Field(exclude=True)
    settings: dict[str, Any] = Field(default_factory=dict)
    on_refusal: OnRefusal = "rerender"
    decode: Decode | None = Field(default=None, exclude=True)
    _calls: ModelCalls = PrivateAttr()

    @model_validator(mode="before")
    @classmethod
    def _require_known_fields(cls, given: Any) -> Any:
        """Reject arguments that are no fields: LangChain's classes ignore them."""
        for name in given if isinstance(given, Mapping) else ():
            if name not in cls.model_fields:
                raise InputError(
                    f"{name}: {cls.__name__} has no such field; give arguments of requests in `settings`,"
                    ' such as settings={"temperature": 0.5}'
                )
        return given

    def model_post_init(self, context: Any, /) -> None:
        """Begin without calls."""
        super().model_post_init(context)
        self._calls = ModelCalls(self.client, on_refusal=self.on_refusal, decode=self.decode)

    @property
    def calls(self) -> ModelCalls:
        """The turns so far."""
        return self._calls

    @property
    def _llm_type(self) -> str:
        return "tito"

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: Any = None, strict: bool | None = None, **kwargs: Any
    ) -> Any:
        """Return the model with tools; see `BaseChatModel.bind_tools`."""
        kwargs.pop("ls_structured_output_format", None)  # for LangSmith's traces
        chosen = {} if tool_choice is None else {"tool_choice": _choice(tool_choice)}
        return self.bind(
            tools=[convert_to_openai_tool(one, strict=strict) for one in tools], **chosen, **kwargs
        )

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError("TokenChatModel samples asynchronously: use ainvoke, abatch or astream")

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002  # LangChain passes it
        **kwargs: Any,
    ) -> ChatResult:
        with _errors():
            answer = await self._calls.answer(Chat(strict=True), self._body(messages, stop, kwargs))
        message = message_chunk_to_message(_chunk(answer, "message"))
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002  # LangChain passes it
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        body = self._body(messages, stop, kwargs)
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        with _errors():
            async with aclosing(self._calls.events(Chat(strict=True), body)) as events:
                async for event in events:
                    yield ChatGenerationChunk(message=_chunk(event, "delta"))

    def _body(
        self, messages: Sequence[BaseMessage], stop: list[str] | None, fields: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return a request of the chat API."""
        given = {name: value for name, value in {**fields, "stop": stop}.items() if value is not None}
        mapped = [one for message in messages for one in self._mapped(message)]
        return {**self.settings, **given, "messages": mapped, "stream": False}

    def _mapped(self, message: BaseMessage) -> list[Message]:
        """Return a message in the form of the chat API; a turn that was sampled here exactly as it was.

        An agent's name stands beside it: the kernel ignores it where the template does.
        """
        if not isinstance(message, AIMessage):
            return list(convert_to_openai_messages([message]))
        ours, theirs = self._calls.message(message.id), _parts(message)
        same = ours is not None and _readable(AssistantParts.of(ours)) == _readable(theirs)
        named = {"name": message.name} if message.name else {}
        if ours is not None and same:
            return [{**ours, **named}]
        calls = {"tool_calls": [call.chat_form() for call in theirs.calls]} if theirs.calls else {}
        said = {"content": theirs.content, "reasoning": theirs.reasoning}
        return [{"role": "assistant", **said, **calls, **named}]


def _choice(choice: Any) -> Any:
    """Return a choice of tools in the chat API's form; LangChain has words of its own, and bare names."""
    if choice in ("any", True):
        return "required"
    if not isinstance(choice, str) or choice in ("auto", "none", "required"):
        return choice
    return {"type": "function", "function": {"name": choice}}


def _parts(message: AIMessage) -> AssistantParts:
    """Return the parts of a message; raises `InputError` for a content block that cannot be sent."""
    blocks = [{**block} for block in message.content_blocks]
    for block in blocks:
        if block["type"] not in BLOCKS:
            raise InputError(f"messages: an AIMessage has a block of type {block['type']!r}: take it out")
    calls = [ToolCall(str(call["id"]), call["name"], json.dumps(call["args"])) for call in message.tool_calls]
    calls += [ToolCall(str(one["id"]), one["name"] or "", _text(one)) for one in message.invalid_tool_calls]
    reasoning = "".join(block.get("reasoning", "") for block in blocks)
    return AssistantParts(reasoning, "".join(block.get("text", "") for block in blocks), tuple(calls))


def _readable(parts: AssistantParts) -> tuple[str, dict[str, tuple[str, Any]]]:
    """Return what a message says, whichever way LangChain has stored it."""
    return parts.content, {call.id: (call.name, _arguments(call.arguments)) for call in parts.calls}


def _arguments(text: str) -> dict[str, Any] | str:
    """Return arguments as an object; malformed ones as their text."""
    with suppress(ValueError, RecursionError):
        values = json.loads(text or "{}")
        if isinstance(values, dict):
            return values
    return text


def _text(call: InvalidToolCall) -> str:
    """Return malformed arguments as they were sampled."""
    with suppress(ValueError):
        return str(json.loads(call["args"] or ""))
    return call["args"] or ""


def _chunk(answer: Mapping[str, Any], key: str) -> AIMessageChunk:
    """Return the message of an answer, or what a stream's event adds to it; the last one has the usage."""
    choice: Mapping[str, Any] = next(iter(answer["choices"]), {})
    message, reason, usage = choice.get(key, {}), choice.get("finish_reason"), answer.get("usage")
    reasoning = message.get("reasoning")
    return AIMessageChunk(
        id=answer["id"],
        content=message.get("content") or "",
        additional_kwargs={"reasoning_content": reasoning} if reasoning else {},
        tool_call_chunks=[_call(*one) for one in enumerate(message.get("tool_calls") or ())],
        response_metadata={"finish_reason": reason, "model_name": answer["model"]} if reason else {},
        usage_metadata=None if usage is None else _usage(usage),
        chunk_position=None if usage is None else "last",
    )


def _call(index: int, call: Mapping[str, Any]) -> ToolCallChunk:
    """Return a call. LangChain would complete malformed arguments; a string stays an invalid call."""
    text = call["function"]["arguments"]
    whole = isinstance(_arguments(text), dict)
    name, args = call["function"]["name"], text if whole else json.dumps(text)
    # A stream's event has one call, with its place among the calls; a whole message has all of them without.
    return tool_call_chunk(name=name, args=args, id=call["id"], index=call.get("index", index))


def _usage(usage: Mapping[str, Any]) -> UsageMetadata:
    cached = (usage["prompt_tokens_details"] or {}).get("cached_tokens", 0)
    return UsageMetadata(
        input_tokens=usage["prompt_tokens"],
        output_tokens=usage["completion_tokens"],
        total_tokens=usage["total_tokens"],
        input_token_details={"cache_read": cached},
    )


@contextmanager
def _errors() -> Iterator[None]:
    """Raise errors of engines as LangChain knows them."""
    try:
        yield
    except protocol.EngineError as error:
        raise ERRORS.get(type(error), exceptions.ModelError)(str(error)) from error
