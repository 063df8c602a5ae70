"""Where the integration goes in: the methods of LangChain's `BaseChatModel`, and its converters."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from typing import Any

import anyio
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    convert_to_openai_messages,
    message_chunk_to_message,
)
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult

from tito_io.integrations.langchain import MODEL as SEAM


class Model(BaseChatModel):
    @property
    def _llm_type(self) -> str:
        return "seam"

    def _generate(self, *_: Any, **__: Any) -> ChatResult:
        raise AssertionError

    async def _agenerate(self, messages: Any, stop: Any = None, **kwargs: Any) -> ChatResult:
        text = f"{len(messages)} {stop} {kwargs['seed']}"
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text, id="ours"))])

    async def _astream(
        self, messages: Any, stop: Any = None, **kwargs: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for piece in (str(len(messages)), f" {stop}", f" {kwargs['seed']}"):
            yield ChatGenerationChunk(message=AIMessageChunk(piece, id="ours"))


def test_calls_come_with_messages_stops_and_arguments() -> None:
    async def ask() -> tuple[Any, Any]:
        whole = await Model().ainvoke("hi", stop=["a"], seed=7)
        chunks = [one async for one in Model().astream("hi", stop=["a"], seed=7)]
        return whole, message_chunk_to_message(chunks[0] + chunks[1:])

    whole, streamed = anyio.run(ask)
    assert (whole.text, streamed.text) == ("1 ['a'] 7",) * 2, SEAM
    assert (whole.id, streamed.id) == ("ours", "ours"), SEAM


def test_the_methods_have_the_arguments_that_are_overridden() -> None:
    parameters = list(inspect.signature(BaseChatModel._generate).parameters)
    assert parameters == ["self", "messages", "stop", "run_manager", "kwargs"], SEAM


def test_messages_are_converted_to_those_of_the_chat_api() -> None:
    messages = [SystemMessage("a"), HumanMessage("b"), ToolMessage("c", tool_call_id="1", name="look")]
    assert convert_to_openai_messages(messages) == [
        {"role": "system", "content": "a"},
        {"role": "user", "content": "b"},
        {"role": "tool", "name": "look", "tool_call_id": "1", "content": "c"},
    ], SEAM


def test_a_call_whose_arguments_are_a_string_is_not_completed() -> None:
    def parsed(args: str) -> AIMessageChunk:
        return AIMessageChunk("", tool_call_chunks=[tool_call_chunk(name="f", args=args, id="1", index=0)])

    assert [call["args"] for call in parsed('{"a": 1').tool_calls] == [{"a": 1}]
    assert parsed('"{\\"a\\": 1"').tool_calls == []
    assert len(parsed('"{\\"a\\": 1"').invalid_tool_calls) == 1, SEAM
