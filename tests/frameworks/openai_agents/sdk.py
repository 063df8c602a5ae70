"""How agents of the OpenAI Agents SDK are run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, ClassVar

from agents import Agent, ModelSettings, Runner, function_tool, set_tracing_disabled
from agents.exceptions import ModelBehaviorError, UserError
from openai.types.shared import Reasoning

from tests.frameworks.laws.sdk import INSTRUCTIONS, SAMPLING, Answer, Sdk, hour, weather
from tito_io.client import TokenClient
from tito_io.engines.protocol import OverlongError, ServerError
from tito_io.integrations.openai_agents import TokenModel

set_tracing_disabled(True)


def agent(model: TokenModel, **settings: Any) -> Agent[None]:
    return Agent(
        name="helper",
        instructions=INSTRUCTIONS,
        tools=[function_tool(weather), function_tool(hour)],
        model=model,
        model_settings=ModelSettings(**settings),
    )


class SDK(Sdk):
    """The OpenAI Agents SDK."""

    settings: ClassVar = {
        **SAMPLING,
        "reasoning": Reasoning(effort="low"),
        "extra_args": {"seed": 7, "stop": ["END", "FIN"]},
        "extra_body": {"top_k": 5},
        "extra_headers": {"User-Agent": "mine"},
    }
    bad = (
        ("tool_choice", {"tool_choice": "minute"}),
        ("truncation", {"truncation": "auto"}),
        ("text.verbosity", {"verbosity": "low"}),
        ("top_logprobs|output_text.logprobs", {"top_logprobs": 3}),
        ("include", {"response_include": ["web_search_call.results"]}),
        ("extra_query", {"extra_query": {"a": "b"}}),
        ("extra_headers", {"extra_headers": {"X-Key": "b"}}),
        ("context_management", {"context_management": [{"type": "compaction", "compact_threshold": 9}]}),
        ("maxtokens", {"extra_args": {"maxtokens": 9}}),
        ("n: changes what is sampled", {"extra_args": {"n": 2}}),
        ("stop", {"extra_args": {"stop": [3]}}),
        ("seed", {"extra_args": {"seed": "x"}}),
        ("previous_response_id", {"extra_args": {"previous_response_id": "resp_1"}}),
    )
    refuses = UserError
    errors = tuple((one, type(one)) for one in (ServerError("out of memory"), OverlongError("too long")))
    cut = unfinished = ModelBehaviorError

    def model(self, client: TokenClient, **options: Any) -> TokenModel:
        return TokenModel(client, **options)

    async def run(
        self, model: Any, question: str, history: Any, settings: Mapping[str, Any], *, streams: bool
    ) -> Answer:
        asking, asked = agent(model, **settings), _asked(history, question)
        if not streams:
            return _answer(await Runner.run(asking, asked))
        result = Runner.run_streamed(asking, asked)
        async for _ in result.stream_events():
            pass
        return _answer(result)

    async def pieces(self, model: Any, question: str, history: Sequence[Any]) -> AsyncIterator[str]:
        result = Runner.run_streamed(agent(model), _asked(history, question))
        try:
            async for event in result.stream_events():
                if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
                    yield event.data.delta
        finally:
            result.cancel()

    def edited(self, history: Sequence[Any], text: str) -> Sequence[Any]:
        return [*history[:-1], {"role": "assistant", "content": text}]


def _asked(history: Sequence[Any], question: str) -> Any:
    return [*history, {"role": "user", "content": question}]


def _answer(result: Any) -> Answer:
    turns = [[item.type for item in one.output] for one in result.raw_responses]
    counted = result.context_wrapper.usage
    usage = counted.input_tokens, counted.output_tokens, counted.input_tokens_details.cached_tokens
    return Answer(result.final_output, result.to_input_list(), turns, usage)
