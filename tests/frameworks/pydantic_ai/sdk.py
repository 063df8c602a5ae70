"""How agents of Pydantic AI are run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, ClassVar

from pydantic_ai import Agent, exceptions
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.openai import OpenAIChatModelSettings

from tests.frameworks.laws.sdk import INSTRUCTIONS, SAMPLING, Answer, Sdk, hour, weather
from tito_io.client import TokenClient
from tito_io.engines.protocol import OverlongError, ServerError, UnreachableError
from tito_io.integrations.pydantic_ai import OWN, SETTINGS, TokenModel

OTHERS = sorted(OpenAIChatModelSettings.__annotations__.keys() - SETTINGS.keys() - OWN)


def agent(model: Any, **options: Any) -> Agent[None, Any]:
    return Agent(model, instructions=INSTRUCTIONS, tools=[weather, hour], **options)


class SDK(Sdk):
    """Pydantic AI."""

    settings: ClassVar = {
        **SAMPLING,
        "top_k": 5,
        "openai_reasoning_effort": "low",
        "seed": 7,
        "stop_sequences": ["END", "FIN"],
        "tool_choice": "auto",
        "extra_body": {"min_p": 0.1},
        "request_timeout": 60.0,
    }
    asked: ClassVar = {"min_p": 0.1}
    bad = (
        ("parallel_tool_calls", {"parallel_tool_calls": "no"}),
        ("tool_choice", {"tool_choice": "required"}),
        ("tool_choice", {"tool_choice": ["hour"]}),
        ("maxtokens", {"extra_body": {"maxtokens": 9}}),
        ("n is 2", {"extra_body": {"n": 2}}),
        ("stop", {"stop_sequences": [3]}),
        ("seed", {"seed": "x"}),
        ("max_tokens", {"max_tokens": 0}),
        *((f"the setting '{name}' cannot be honoured", {name: None}) for name in OTHERS),
    )
    refuses = exceptions.UserError
    errors = (
        (ServerError("out of memory"), exceptions.ModelServerError),
        (UnreachableError("no answer"), exceptions.ModelConnectionError),
        (OverlongError("too long"), exceptions.ModelContextWindowExceededError),
    )
    unfinished = exceptions.UnexpectedModelBehavior  # a turn without end or answer, thrice

    def model(self, client: TokenClient, **options: Any) -> TokenModel:
        return TokenModel(client, **options)

    async def run(
        self, model: Any, question: str, history: Any, settings: Mapping[str, Any], *, streams: bool
    ) -> Answer:
        async def listen(_: Any, events: Any) -> None:
            async for _event in events:
                pass

        given: Any = {"message_history": list(history), "model_settings": dict(settings)}
        listening = {"event_stream_handler": listen} if streams else {}
        return _answer(await agent(model).run(question, **given, **listening))

    async def pieces(self, model: Any, question: str, history: Sequence[Any]) -> AsyncIterator[str]:
        async with agent(model).run_stream(question, message_history=list(history)) as result:
            try:
                async for piece in result.stream_text(delta=True, debounce_by=None):
                    yield piece
            except GeneratorExit:
                await result.cancel()
                raise

    def edited(self, history: Sequence[Any], text: str) -> Sequence[Any]:
        return [*history[:-1], ModelResponse(parts=[TextPart(text)])]


def _answer(result: Any) -> Answer:
    messages = result.all_messages()
    turns = [[type(part) for part in one.parts] for one in messages if isinstance(one, ModelResponse)]
    counted = result.usage
    usage = counted.input_tokens, counted.output_tokens, counted.cache_read_tokens
    return Answer(result.output, messages, turns, usage)
