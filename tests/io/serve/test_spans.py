"""One span for each request for a turn, under the caller's, without a word of the conversation."""

from __future__ import annotations

import atexit
import gzip
import subprocess
import sys
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Any

import anyio
import anyio.to_thread
import attrs
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.faults.fault import ROOT
from tests.io.serve.gateway import (
    CHAT,
    HELLO,
    Reporting,
    Scripted,
    chat,
    client,
    opened,
    scripted_gateway,
    served,
    talking,
    user,
)
from tests.io.serve.gateway_process import started_beside
from tito_core import InputError
from tito_io.embedded import MODEL
from tito_io.engines.protocol import OverlongError
from tito_io.serve.gateway import GatewayOptions, build_gateway
from tito_io.serve.spans import MODEL_LENGTH, TurnSpans
from tito_io.serve.stores import MemoryStore

pytestmark = pytest.mark.anyio
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@attrs.define
class Collected:
    """A gateway's options, and the spans that it wrote."""

    options: GatewayOptions
    exporter: InMemorySpanExporter

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    @property
    def only(self) -> ReadableSpan:
        (span,) = self.spans
        return span

    @property
    def all(self) -> list[Mapping[str, Any]]:
        """The attributes of each span."""
        return [dict(span.attributes or {}) for span in self.spans]

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The attributes of the only span."""
        return dict(self.only.attributes or {})


def collected(*, with_ids: bool = False) -> Collected:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Collected(GatewayOptions(spans=TurnSpans(provider, with_ids=with_ids)), exporter)


@pytest.fixture
def seen() -> Collected:
    return collected()


async def test_a_turn_that_is_handed_out_again_says_so_and_has_its_own_id(seen: Collected) -> None:
    """Who adds up sampled ids must not count it twice."""
    async with talking(choices=seen.options) as talk:
        answers = [await talk.post({"messages": HELLO}, headers={"idempotency-key": "a"}) for _ in range(2)]
    first, again = (answer.json()["id"] for answer in answers)
    assert [one["gen_ai.response.id"] for one in seen.all] == [first, again] == [first, first]
    assert [one.get("tito.handed_out_again") for one in seen.all] == [None, True]


async def test_a_model_that_the_engine_has_not_named_yet_is_left_out(seen: Collected) -> None:
    async with talking(build_gateway(Scripted(), MemoryStore(), model="", options=seen.options)) as talk:
        await talk.chat(HELLO, model="m")
    assert seen.attributes["gen_ai.request.model"] == "m"
    assert "gen_ai.response.model" not in seen.attributes
    assert seen.only.instrumentation_scope is not None
    assert seen.only.instrumentation_scope.name == "tito"


async def test_a_span_says_what_a_turn_was(seen: Collected) -> None:
    async with talking(choices=seen.options) as talk:
        said = await talk.chat(HELLO, model="m", stream=False)
        seen.exporter.clear()
        prompt = [*HELLO, {"role": "assistant", "content": "ok"}, user("a secret")]
        answer = await talk.chat(prompt, model="m")
    name, usage = talk.name, answer["usage"]
    assert seen.attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "m",
        "gen_ai.request.stream": False,
        "gen_ai.conversation.id": sha256(name.encode()).hexdigest()[:32],
        "gen_ai.response.id": answer["id"],
        "gen_ai.response.model": "scripted",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": usage["prompt_tokens"],
        "gen_ai.usage.output_tokens": usage["completion_tokens"],
        "tito.session": name[:8],
        "tito.dialect": "chat",
        "tito.received": True,
        "tito.route": "TITO",
        "tito.reused_ids": said["usage"]["total_tokens"],
        "tito.forgiven": (),
    }
    span = seen.only
    assert (span.name, span.kind, span.status.status_code) == ("chat m", SpanKind.CLIENT, StatusCode.UNSET)
    assert span.parent is None
    assert 0 < (span.start_time or 0) <= (span.end_time or 0)
    assert "secret" not in span.to_json()
    assert name not in span.to_json()


@pytest.mark.parametrize(
    ("dialect", "path", "body"),
    [
        ("chat", CHAT, {"messages": HELLO, "n": 2}),
        ("anthropic", "/v1/messages", {"messages": HELLO, "max_tokens": 9, "stream": True}),
        ("responses", "/v1/responses", {"input": HELLO, "stream": True}),
    ],
)
async def test_a_turn_of_any_api_and_a_streamed_one_has_its_span(
    dialect: str, path: str, body: dict[str, Any], seen: Collected
) -> None:
    async with talking(choices=seen.options) as talk:
        answer = await talk.post({"model": "m", **body}, path)
        assert answer.status_code == 200, answer.text
    attributes = seen.attributes
    assert (attributes["tito.dialect"], attributes["tito.received"]) == (dialect, True)
    assert attributes["gen_ai.request.stream"] is body.get("stream", False)
    assert attributes["gen_ai.response.finish_reasons"] == ("stop",) * body.get("n", 1)


async def test_the_caller_of_a_turn_is_its_parent(seen: Collected) -> None:
    async with talking(choices=seen.options) as talk:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        await talk.post({"messages": HELLO}, headers=headers)
    context, parent = seen.only.get_span_context(), seen.only.parent
    assert context is not None
    assert parent is not None
    assert (f"{context.trace_id:032x}", f"{parent.span_id:016x}", parent.is_remote) == (TRACE, PARENT, True)


async def test_ids_are_added_if_asked_for_and_only_new_ones() -> None:
    seen = collected(with_ids=True)
    async with talking(choices=seen.options) as talk:
        await talk.chat([*HELLO, await talk.said(HELLO), user()])
    (first, second), (kind, whole, _) = seen.all, talk.engine.asked[1]
    ids: list[Any] = [first[f"tito.{name}_token_ids"] for name in ("new_prompt", "completion")]
    ids.append(second["tito.new_prompt_token_ids"])
    assert (kind, [one for part in ids for one in part]) == ("ids", whole)
    assert second["tito.reused_ids"] == len(ids[0]) + len(ids[1])
    assert first["tito.completion_token_ids"] == (500, 501, 2)


async def test_why_a_prompt_was_sent_as_messages_is_an_attribute(seen: Collected) -> None:
    async with talking(choices=seen.options) as talk:
        await talk.chat(HELLO)
        await talk.chat([user("another"), {"role": "assistant", "content": "x"}, user()])
    assert (seen.all[1]["tito.route"], seen.all[1]["tito.refusal"]) == ("MITO", "NO_PREFIX")


async def test_an_error_has_its_kind_and_no_words(seen: Collected) -> None:
    engine = Scripted(raises=[OverlongError("a secret", None)])
    async with talking(engine, choices=seen.options) as talk:
        answer = await talk.post({"messages": HELLO, "model": "m" * 1000})
    assert seen.attributes["http.response.status_code"] == answer.status_code
    assert seen.attributes["error.type"]
    assert seen.attributes["tito.received"] is True
    assert seen.only.status.status_code is StatusCode.ERROR
    assert "secret" not in seen.only.to_json()
    assert seen.attributes["gen_ai.request.model"] == "m" * MODEL_LENGTH
    assert seen.only.name == f"chat {'m' * MODEL_LENGTH}"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # uvicorn knows no other
async def test_a_client_that_goes_away_cancels_its_span(seen: Collected) -> None:
    engine = Scripted(held=anyio.Event())
    async with talking(engine, choices=seen.options, socket=True) as talk:
        async with anyio.create_task_group() as group:
            group.start_soon(talk.chat, HELLO)
            await engine.runs()
            group.cancel_scope.cancel()
        while not seen.spans:  # noqa: ASYNC110  # it has no event for this
            await anyio.sleep(0.001)
    assert seen.attributes["error.type"] == "cancelled"
    assert seen.attributes["tito.received"] is False
    assert "tito.route" not in seen.attributes


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # uvicorn knows no other
async def test_spans_reach_a_collector_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[tuple[str, ExportTraceServiceRequest]] = []

    async def traces(request: Request) -> Response:
        body = await request.body()
        if request.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        received.append((request.headers.get("x-key", ""), ExportTraceServiceRequest.FromString(body)))
        return Response(media_type="application/x-protobuf")

    async with served(Starlette(routes=[Route("/v1/traces", traces, methods=["POST"])])) as url:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=k")
        async with started_beside("--spans", "ids", "--store", "memory") as (process, http):
            await chat(http, await opened(http), HELLO, max_tokens=3)
            assert await anyio.to_thread.run_sync(process.stop) == 0
    ((key, request),) = received
    (resource,) = request.resource_spans
    names = {one.key: one.value.string_value for one in resource.resource.attributes}
    (span,) = resource.scope_spans[0].spans
    ids = {one.key: [i.int_value for i in one.value.array_value.values] for one in span.attributes}
    assert (key, names["service.name"], span.name) == ("k", "tito", f"chat {MODEL}")
    assert len(ids["tito.completion_token_ids"]) == 3


async def test_spans_keep_a_name_that_was_chosen_and_register_nothing_for_the_end_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second Ctrl-C ends a gateway although its collector does not answer."""
    left: list[Callable[..., object]] = []
    monkeypatch.setattr(atexit, "register", left.append)
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    spans = TurnSpans.from_environment(with_ids=False)
    assert spans.provider.resource.attributes["service.name"] == "mine"
    # Libraries that are imported here for the first time register what is theirs.
    assert [one for one in left if one.__module__.startswith("opentelemetry")] == []
    await spans.aclose()


def test_a_gateway_without_the_extra_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(InputError, match=r"--spans needs OpenTelemetry: .*tito-kernel\[otel\]"):
        TurnSpans.from_environment(with_ids=False)


def test_nothing_is_imported_unless_asked_for() -> None:
    code = (
        "import sys, anyio\n"
        "from tests.io.serve.gateway import *\n"
        "async def run():\n"
        "    async with client(scripted_gateway(Scripted())) as http:\n"
        "        await chat(http, await opened(http), HELLO)\n"
        "anyio.run(run)\n"
        "assert not [one for one in sys.modules if one.startswith('opentelemetry')], sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


async def test_a_request_that_is_refused_early_has_a_span_without_what_is_not_known(seen: Collected) -> None:
    async with client(scripted_gateway(Scripted(), choices=seen.options)) as http:
        body = {"messages": HELLO, "stream": True}
        assert (await http.post(f"/sessions/{'0' * 32}{CHAT}", json=body)).status_code == 404
    attributes = dict(seen.attributes)
    assert str(attributes.pop("gen_ai.response.id")).startswith("chatcmpl-")
    assert attributes == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": "",
        "gen_ai.request.stream": False,
        "gen_ai.conversation.id": sha256(b"0" * 32).hexdigest()[:32],
        "tito.session": "00000000",
        "tito.dialect": "chat",
        "tito.received": True,
        "error.type": "session_not_found",
        "http.response.status_code": 404,
    }
    assert seen.only.name == "chat"


async def test_a_span_names_what_an_engine_and_a_router_tell(seen: Collected) -> None:
    async with talking(Reporting(), choices=seen.options) as talk:
        await talk.chat([*HELLO, await talk.said(HELLO), user()])
    first, second = seen.all
    assert (first["tito.worker"], first["tito.engine_request"]) == ("worker 1", "request 2")
    assert (second["tito.worker"], second["tito.engine_request"]) == ("worker 1", "request 4")
    assert "gen_ai.usage.cache_read.input_tokens" not in first
    assert second["gen_ai.usage.cache_read.input_tokens"] == 4
    assert second["gen_ai.response.finish_reasons"] == ("tool_calls",)
    page = (ROOT / "docs/howto/deploy.md").read_text()
    ours = {name for name in first.keys() | second.keys() if name.startswith("tito.")}
    assert {name for name in ours if f"`{name}`" not in page} == set()
