"""A model for Pydantic AI that samples with a `TokenClient`, without a server.

`TokenModel` is Pydantic AI's own chat model with another way to send a request. It relies on
`OpenAIChatModel` in `pydantic_ai/models/openai/_chat_model.py`, 2.68.0: `_map_messages`, `_get_tool_choice`
and `_completions_create`, which sends a request for a `ChatCompletion` or for a stream of chunks.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Self

import attrs

from tito_core import InputError
from tito_io.client.token_client import TokenClient
from tito_io.dialects import Chat
from tito_io.dialects.message_parts import ToolCall
from tito_io.engines import protocol
from tito_io.integrations.framework import Seams, required
from tito_io.integrations.model_calls import Decode, ModelCalls, OnRefusal

MODEL = "pydantic_ai.models.openai:OpenAIChatModel"
SEAMS: Seams = {
    f"{MODEL}._completions_create": ("messages", "stream", "model_settings", "model_request_parameters"),
    f"{MODEL}._map_messages": ("messages", "model_request_parameters", ...),
    f"{MODEL}._map_model_response": ("message", ...),
    f"{MODEL}._get_tool_choice": ("model_settings", "model_request_parameters", ...),
}
required("pydantic-ai", SEAMS)

from openai.types.chat import ChatCompletion, ChatCompletionChunk
from pydantic_ai import exceptions
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers import Provider
from pydantic_ai.settings import ModelSettings

SETTINGS = {
    "openai_reasoning_effort": "reasoning_effort",
    "stop_sequences": "stop",
    **{
        name: name
        for name in (
            *("frequency_penalty", "logit_bias", "max_tokens", "parallel_tool_calls", "presence_penalty"),
            *("seed", "temperature", "top_k", "top_p"),
        )
    },
}
"""Settings that are sent to the engine, and their names in a request."""
OWN = frozenset(
    ("extra_body", "first_event_timeout", "framing_announcement", "request_timeout", "tool_choice")
)
"""Settings that Pydantic AI applies itself, and `extra_body`."""
PROFILE = OpenAIModelProfile(
    default_framing_announcement="never",  # the usual one edits the system prompt of earlier turns
    openai_chat_supports_multiple_system_messages=False,  # few chat templates take two
    supported_native_tools=frozenset(),
    supports_forced_tool_choice=False,
    supports_json_schema_output=False,
    thinking_tags=("\0thinking\0", "\0/thinking\0"),  # reasoning is parsed already: tags in content are text
)
ERRORS = {
    protocol.AuthenticationError: exceptions.ModelAuthenticationError,
    protocol.OverlongError: exceptions.ModelContextWindowExceededError,
    protocol.RequestError: exceptions.ModelRequestRejectedError,
    protocol.ServerError: exceptions.ModelServerError,
    protocol.TimedOutError: exceptions.ModelTimeoutError,
    protocol.UnreachableError: exceptions.ModelConnectionError,
}
"""What an engine's error is in Pydantic AI; others are a `ModelAPIError`."""


class _InProcess(Provider[Any]):
    """The provider of a model without a server."""

    name = "tito"
    base_url = ""
    client = SimpleNamespace(chat=SimpleNamespace(completions=None))


@attrs.frozen
class _Chunks:
    """A stream of chunks, as far as Pydantic AI uses one."""

    model_name: str
    events: AsyncGenerator[dict[str, Any], None]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self.events.aclose()

    async def __aiter__(self) -> AsyncIterator[ChatCompletionChunk]:
        with _errors(self.model_name):
            async for event in self.events:
                yield ChatCompletionChunk.model_validate(event)


class TokenModel(OpenAIChatModel):
    """A model of one rollout: its turns are sampled with a `TokenClient` and kept for training rows.

    Args:
        client: Samples the turns.
        on_refusal: What follows where a prompt cannot be continued by ids; see `ModelCalls`.
        decode: Returns the text of ids, such as `Family.decode`; with it, streams have text as it comes.
        settings: Settings of every request, which those of an agent or a run override.

    Attributes:
        calls: The turns so far: `calls.rows(reward=1.0)` makes training rows, `calls.refused` counts the
            prompts that could not be continued.

    Raises:
        InputError: `on_refusal` is unknown.
    """

    unsupported_settings: frozenset[str] = frozenset()

    def __init__(
        self,
        client: TokenClient,
        *,
        on_refusal: OnRefusal = "rerender",
        decode: Decode | None = None,
        settings: ModelSettings | None = None,
    ) -> None:
        self.calls = ModelCalls(client, on_refusal=on_refusal, decode=decode)
        super().__init__(client.engine.name, provider=_InProcess(), profile=PROFILE, settings=settings)

    def prepare_request(
        self, model_settings: ModelSettings | None, model_request_parameters: ModelRequestParameters
    ) -> tuple[ModelSettings | None, ModelRequestParameters]:
        """Refuse settings that cannot be honoured; then do what Pydantic AI does."""
        given = {**(self.settings or {}), **(model_settings or {})}
        for name in sorted(given.keys() - SETTINGS.keys() - OWN):
            advice = "leave it out, or put what the engine knows into extra_body"
            raise exceptions.UserError(f"the setting {name!r} cannot be honoured: {advice}")
        prepared: tuple[ModelSettings | None, ModelRequestParameters]
        prepared = super().prepare_request(model_settings, model_request_parameters)
        return prepared

    async def _completions_create(
        self, messages: Any, stream: bool, model_settings: Any, model_request_parameters: Any
    ) -> ChatCompletion | _Chunks:
        tools, tool_choice = self._get_tool_choice(model_settings, model_request_parameters)
        mapped = await self._map_messages(messages, model_request_parameters, model_settings=model_settings)
        sent = {SETTINGS[name]: value for name, value in model_settings.items() if name in SETTINGS}
        body = {**sent, "messages": mapped, "tools": tools, "tool_choice": tool_choice}
        body |= model_settings.get("extra_body") or {}
        if stream:
            usage = {"include_usage": True}
            body |= {"stream": True, "stream_options": usage}
            return _Chunks(self.model_name, self.calls.events(Chat(strict=True), body))
        with _errors(self.model_name):
            return ChatCompletion.model_validate(await self.calls.answer(Chat(strict=True), body))

    def _map_model_response(self, message: ModelResponse) -> Any:
        """Return a turn exactly as it was sampled; Pydantic AI writes arguments and white space otherwise."""
        if not all(isinstance(part, TextPart | ThinkingPart | ToolCallPart) for part in message.parts):
            return super()._map_model_response(message)
        texts = [part.content for part in message.parts if isinstance(part, TextPart)]
        thoughts = [part.content for part in message.parts if isinstance(part, ThinkingPart)]
        calls = [_call(part) for part in message.parts if isinstance(part, ToolCallPart)]
        mapped = {"role": "assistant", "content": "".join(texts), "reasoning": "".join(thoughts)}
        return {**mapped, "tool_calls": calls} if calls else mapped


def _call(part: ToolCallPart) -> dict[str, Any]:
    arguments = part.args if isinstance(part.args, str) else part.args_as_json_str()
    return ToolCall(part.tool_call_id, part.tool_name, arguments).chat_form()


@contextmanager
def _errors(model_name: str) -> Iterator[None]:
    """Raise errors as Pydantic AI knows them."""
    try:
        yield
    except InputError as error:
        raise exceptions.UserError(str(error)) from error
    except protocol.EngineError as error:
        kind = ERRORS.get(type(error), exceptions.ModelAPIError)
        raise kind(model_name=model_name, message=str(error)) from error
