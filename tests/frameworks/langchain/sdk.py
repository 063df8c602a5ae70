"""How agents of LangChain, which are graphs of LangGraph, are run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, ClassVar

from langchain.agents import create_agent
from langchain_core import exceptions
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.tools import tool
from pydantic import ValidationError

from tests.frameworks.laws.sdk import INSTRUCTIONS, SAMPLING, Answer, Sdk, hour, weather
from tito_io.client import TokenClient
from tito_io.engines.protocol import OverlongError, RequestError, ServerError, UnreachableError
from tito_io.integrations.langchain import TokenChatModel

TOOLS = [tool(parse_docstring=True)(weather), tool(hour)]


def agent(model: TokenChatModel, **options: Any) -> Any:
    return create_agent(model, TOOLS, system_prompt=INSTRUCTIONS, name="helper", **options)


class SDK(Sdk):
    """LangChain."""

    settings: ClassVar = {
        **SAMPLING,
        "top_k": 5,
        "seed": 7,
        "stop": ["END", "FIN"],
        "reasoning_effort": "low",
    }
    bad = (
        ("tool_choice", {"tool_choice": "any"}),
        ("response_format", {"response_format": {"type": "grammar"}}),
        ("top_logprobs", {"top_logprobs": 3}),
        ("verbosity", {"verbosity": "low"}),
        ("maxtokens", {"maxtokens": 9}),
        ("timeout", {"timeout": 9}),
        ("extra_body", {"extra_body": {"top_k": 1}}),
        ("n is 2", {"n": 2}),
        ("stop", {"stop": [3]}),
        ("seed", {"seed": "x"}),
    )
    errors = (
        (ServerError("out of memory"), exceptions.ModelAPIError),
        (UnreachableError("no answer"), exceptions.ModelConnectionError),
        (RequestError("not so"), exceptions.ModelInvalidRequestError),
        (OverlongError("too long"), exceptions.ContextOverflowError),
    )
    unknown = ValidationError

    def model(self, client: TokenClient, **options: Any) -> TokenChatModel:
        return TokenChatModel(client=client, **options)

    async def run(
        self, model: Any, question: str, history: Any, settings: Mapping[str, Any], *, streams: bool
    ) -> Answer:
        model.settings = dict(settings)
        given = {"messages": [*history, HumanMessage(question)]}
        if not streams:
            return _answer((await agent(model).ainvoke(given))["messages"])
        found: list[Any] = []
        async for kind, data in agent(model).astream(given, stream_mode=["messages", "values"]):
            found = data["messages"] if kind == "values" else found
        return _answer(found)

    async def pieces(self, model: Any, question: str, history: Sequence[Any]) -> AsyncIterator[str]:
        async for chunk in model.bind_tools(TOOLS).astream(
            [("system", INSTRUCTIONS), *history, ("user", question)]
        ):
            if chunk.text:
                yield chunk.text

    def edited(self, history: Sequence[Any], text: str) -> Sequence[Any]:
        return [*history[:-1], history[-1].model_copy(update={"content": text})]


def _answer(messages: list[Any]) -> Answer:
    said = [one for one in messages if isinstance(one, AIMessage)]
    counted: list[Any] = [one.usage_metadata for one in said]
    usage = (
        sum(one["input_tokens"] for one in counted),
        sum(one["output_tokens"] for one in counted),
        sum(one["input_token_details"]["cache_read"] or 0 for one in counted),
    )
    return Answer(messages[-1].text, messages, [_turn(one) for one in said], usage)


def _turn(message: AIMessage) -> Any:
    """Return a turn without the ids of its calls, which the engine draws."""
    called = [(one["name"], one["args"]) for one in message.tool_calls]
    said = message.content, message.additional_kwargs
    return *said, called, message.usage_metadata, message.response_metadata
