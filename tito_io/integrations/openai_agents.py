"""A model for the OpenAI Agents SDK that samples with a `TokenClient`, without a server.

`TokenModel` is the SDK's own Responses model with another client. It relies on `OpenAIResponsesModel` in
`agents/models/openai_responses.py`, 0.24.0: `_build_response_create_kwargs` makes the request, and
`_fetch_response` calls `client.responses.create` with it. With `stream=True` it returns an iterator.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

import attrs

from tito_core import InputError
from tito_io.client.token_client import TokenClient
from tito_io.dialects import ParsedRequest, Responses
from tito_io.engines.protocol import EngineError, TimedOutError, UnreachableError
from tito_io.integrations.framework import Seams, required
from tito_io.integrations.model_calls import Decode, ModelCalls, OnRefusal

MODEL = "agents.models.openai_responses:OpenAIResponsesModel"
SEAMS: Seams = {
    f"{MODEL}.__init__": ("model", "openai_client", ...),
    f"{MODEL}.get_retry_advice": ("request",),
    f"{MODEL}._build_response_create_kwargs": (...,),
}
required("openai-agents", SEAMS)

from agents import ModelSettings
from agents.exceptions import UserError
from agents.models.openai_responses import OpenAIResponsesModel
from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest, ModelRetryNormalizedError
from openai import Omit
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

PENALTIES = ("frequency_penalty", "presence_penalty")
"""Settings that the SDK's Responses model silently leaves out."""
EVENTS: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)


@attrs.frozen
class _RunnerRequests(Responses):
    """The dialect of what the SDK passes to its client: `stop` too, and arguments for HTTP."""

    def parse(self, body: Any) -> ParsedRequest:
        headers = {**(body.get("extra_headers") or {})}
        headers.pop("User-Agent", None)  # the SDK's own
        fields = {**body, **(body.get("extra_body") or {}), "extra_headers": headers or None}
        stop = fields.pop("stop", None)
        request = super().parse({name: fields[name] for name in fields if name != "extra_body"})
        return request if stop is None else attrs.evolve(request, sampling={**request.sampling, "stop": stop})


@attrs.frozen
class _InProcess:
    """What the SDK's model uses of an `AsyncOpenAI` client: `responses.create`."""

    calls: ModelCalls

    @property
    def responses(self) -> _InProcess:
        return self

    async def create(self, **arguments: Any) -> Response | AsyncIterator[ResponseStreamEvent]:
        body = {
            name: value.model_dump(exclude_none=True) if isinstance(value, BaseModel) else value
            for name, value in arguments.items()
            if not isinstance(value, Omit)
        }
        if body.get("stream"):
            return self._stream(body)
        try:
            return Response.model_validate(await self.calls.answer(_RunnerRequests(strict=True), body))
        except InputError as error:
            raise UserError(str(error)) from error

    async def _stream(self, body: Mapping[str, Any]) -> AsyncIterator[ResponseStreamEvent]:
        try:
            async with aclosing(self.calls.events(_RunnerRequests(strict=True), body)) as events:
                async for event in events:
                    yield EVENTS.validate_python(event)
        except InputError as error:
            raise UserError(str(error)) from error


class TokenModel(OpenAIResponsesModel):
    """A model of one rollout: its turns are sampled with a `TokenClient` and kept for training rows.

    Args:
        client: Samples the turns.
        on_refusal: What follows where a prompt cannot be continued by ids; see `ModelCalls`.
        decode: Returns the text of ids, such as `Family.decode`; with it, streams have text as it comes.

    Attributes:
        calls: The turns so far: `calls.rows(reward=1.0)` makes training rows, `calls.refused` counts the
            prompts that could not be continued.

    Raises:
        InputError: `on_refusal` is unknown.
    """

    def __init__(
        self, client: TokenClient, *, on_refusal: OnRefusal = "rerender", decode: Decode | None = None
    ) -> None:
        self.calls = ModelCalls(client, on_refusal=on_refusal, decode=decode)
        super().__init__(client.engine.name, _InProcess(self.calls))

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """Say what an engine's error is, for the retries that `ModelSettings.retry` asks for."""
        error = request.error
        if not isinstance(error, EngineError):
            return None
        facts = ModelRetryNormalizedError(
            status_code=None if error.answer is None else error.answer.status,
            message=str(error),
            is_network_error=isinstance(error, UnreachableError),
            is_timeout=isinstance(error, TimedOutError),
        )
        return ModelRetryAdvice(normalized=facts)

    def _build_response_create_kwargs(
        self, *, model_settings: ModelSettings, **others: Any
    ) -> dict[str, Any]:
        request = super()._build_response_create_kwargs(model_settings=model_settings, **others)
        return {**request, **{name: getattr(model_settings, name) for name in PENALTIES}}
