"""OpenTelemetry spans: one for each request for a turn, by the conventions for generative AI.

Names: `gen_ai.*` of opentelemetry-semantic-conventions 0.66b2, whose status is development; `tito.*` is this
gateway's own. Spans hold no text of a conversation. A session's id is a key to it, so that they hold a digest
of it (`gen_ai.conversation.id`) and its first 8 characters (`tito.session`), as logs do.

OpenTelemetry is imported when spans are asked for. Its own environment variables choose the collector
(`OTEL_EXPORTER_OTLP_ENDPOINT`), the sampler, the service's name and everything else.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import attrs
from starlette.types import Scope

from tito_core import InputError
from tito_io.engines.routing import digest_name
from tito_io.extras import install

from .logs import short_id
from .refusals import RequestRefused
from .turns import RequestStamp, UnreceivedTurn

MODEL_LENGTH = 128
"""Characters of a model's name, which a client chooses."""
CANCELLED = "cancelled"
"""The `error.type` of a turn whose client went away before it was sampled."""


@attrs.define(kw_only=True)
class TurnRecord:
    """The record of a request for a turn; filled in while it is answered.

    Attributes:
        began: When the request came, in nanoseconds since 1970.
        stamp: What the request is known by. Of a turn that is handed out again, as it was the first time.
        session: The session's id.
        model: The model's name as the client gave it, or the served one's; "" while unknown.
        served: The name of the served model; "" while unknown.
        stream: Whether the answer is streamed.
        turn: The sampled turn.
        failure: The error that was answered.
        received: Whether the client received the whole answer.
    """

    began: int = attrs.field(factory=time.time_ns)
    stamp: RequestStamp
    session: str
    model: str = ""
    served: str = ""
    stream: bool = False
    turn: UnreceivedTurn | None = None
    failure: RequestRefused | None = None
    received: bool = False


@attrs.frozen
class TurnSpans:
    """Writes spans of turns.

    Attributes:
        provider: OpenTelemetry's tracer provider, which is shut down with the gateway.
        with_ids: Whether spans have the ids that a turn adds.
    """

    provider: Any
    with_ids: bool = False
    _tracer: Any = attrs.field(init=False)

    @_tracer.default
    def _make_tracer(self) -> Any:
        return self.provider.get_tracer("tito")

    @classmethod
    def from_environment(cls, *, with_ids: bool) -> TurnSpans:
        """Return spans that are sent over HTTP as OpenTelemetry's environment variables say.

        Raises `InputError` where the extra is not installed.
        """
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415  # an extra
                OTLPSpanExporter,
            )
            from opentelemetry.sdk.resources import SERVICE_NAME, Resource  # noqa: PLC0415  # likewise
            from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415  # likewise
            from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415  # likewise
        except ImportError:
            raise InputError(f"--spans needs OpenTelemetry: {install('otel')}") from None
        resource = Resource.create()
        if str(resource.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):  # it was not chosen
            resource = resource.merge(Resource({SERVICE_NAME: "tito"}))
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        return cls(provider, with_ids=with_ids)

    def write(self, record: TurnRecord, scope: Scope, provider_name: str) -> None:
        """Write the span of a request; the request's `traceparent` header names its parent.

        Args:
            record: What became of the request.
            scope: The request's ASGI scope.
            provider_name: The name of the engine.
        """
        from opentelemetry.propagate import extract  # noqa: PLC0415  # imported already
        from opentelemetry.trace import SpanKind, Status, StatusCode  # noqa: PLC0415  # likewise

        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        attributes = {**_request(record, provider_name), **_outcome(record)}
        if self.with_ids and record.turn is not None:
            attributes |= _ids(record.turn)
        span = self._tracer.start_span(
            f"chat {record.model[:MODEL_LENGTH]}".rstrip(),
            context=extract(headers),
            kind=SpanKind.CLIENT,
            attributes=attributes,
            start_time=record.began,
        )
        if "error.type" in attributes:
            span.set_status(Status(StatusCode.ERROR))
        span.end()

    async def aclose(self) -> None:
        """Send what waits to be sent."""
        await anyio.to_thread.run_sync(self.provider.shutdown)


def _request(record: TurnRecord, provider_name: str) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": provider_name,
        "gen_ai.request.model": record.model[:MODEL_LENGTH],
        "gen_ai.request.stream": record.stream,
        "gen_ai.conversation.id": digest_name(record.session),
        "gen_ai.response.id": record.stamp.response,
        "tito.session": short_id(record.session),
        "tito.dialect": record.stamp.dialect,
        "tito.received": record.received,
    }


def _outcome(record: TurnRecord) -> Mapping[str, Any]:
    """Return the attributes of a sampled turn, and those of an error."""
    attributes = {} if record.turn is None else _sampled(record.turn)
    if record.turn is not None and record.served:
        attributes["gen_ai.response.model"] = record.served
    if record.failure is not None:
        status = int(record.failure.status)
        attributes |= {"error.type": record.failure.kind, "http.response.status_code": status}
    elif record.turn is None:
        attributes["error.type"] = CANCELLED
    return attributes


def _sampled(turn: UnreceivedTurn) -> dict[str, Any]:
    reply, origin = turn.reply, turn.commits[0].origin
    optional = {
        "gen_ai.usage.cache_read.input_tokens": reply.usage.cached_tokens,
        "tito.refusal": origin.refusal,
        "tito.engine_request": origin.engine_request,
        "tito.worker": origin.worker,
        "tito.handed_out_again": turn.stored or None,
    }
    return {
        "gen_ai.response.finish_reasons": [one.finish_reason for one in (reply, *reply.siblings)],
        "gen_ai.usage.input_tokens": reply.usage.prompt_tokens,
        "gen_ai.usage.output_tokens": reply.usage.completion_tokens,
        "tito.route": origin.route,
        "tito.reused_ids": origin.expected,
        "tito.forgiven": list(origin.forgiven),
        **{name: value for name, value in optional.items() if value is not None},
    }


def _ids(turn: UnreceivedTurn) -> dict[str, Sequence[int]]:
    """Return the prompt ids that no earlier turn had, and the sampled ids of the first turn."""
    reply, reused = turn.reply, turn.commits[0].origin.expected
    return {
        "tito.new_prompt_token_ids": list(reply.prompt_ids[reused:]),
        "tito.completion_token_ids": list(reply.completion_ids),
    }
