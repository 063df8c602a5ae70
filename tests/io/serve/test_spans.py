"""One span for each request for a turn, under the caller's, without a word of the conversation."""

from __future__ import annotations

import atexit
import gzip
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import anyio
import anyio.to_thread
import attrs
import httpx2
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
    HELLO,
    Reporting,
    Scripted,
    chat,
    client,
    opened,
    scripted_gateway,
    served,
    user,
)
from tests.io.serve.gateway_process import started
from tito_core import InputError
from tito_io.embedded import MODEL
from tito_io.engines.protocol import OverlongError
from tito_io.serve.app import app
from tito_io.serve.gateway import GatewayOptions, build_gateway
from tito_io.serve.spans import MODEL_LENGTH, TurnSpans
from tito_io.serve.stores import MemoryStore

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
    def attributes(self) -> Mapping[str, Any]:
        return dict(self.only.attributes or {})


def collected(*, with_ids: bool = False) -> Collected:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Collected(GatewayOptions(spans=TurnSpans(provider, with_ids=with_ids)), exporter)


def test_a_turn_that_is_handed_out_again_says_so_and_has_its_own_id() -> None:
    """Who adds up sampled ids must not count it twice."""
    seen = collected()

    async def run() -> list[str]:
        async with client(scripted_gateway(Scripted(), choices=seen.options)) as http:
            path, body = f"/sessions/{await opened(http)}/v1/chat/completions", {"messages": HELLO}
            answers = [await http.post(path, json=body, headers={"idempotency-key": "a"}) for _ in range(2)]
            return [answer.json()["id"] for answer in answers]

    first, again = anyio.run(run)
    found = [dict(span.attributes or {}) for span in seen.spans]
    assert [one["gen_ai.response.id"] for one in found] == [first, again] == [first, first]
    assert [one.get("tito.handed_out_again") for one in found] == [None, True]


def test_a_model_that_the_engine_has_not_named_yet_is_left_out() -> None:
    seen = collected()

    async def run() -> None:
        gateway = build_gateway(Scripted(), MemoryStore(), model="", options=seen.options)
        async with client(gateway) as http:
            await chat(http, await opened(http), HELLO, model="m")

    anyio.run(run)
    assert seen.attributes["gen_ai.request.model"] == "m"
    assert "gen_ai.response.model" not in seen.attributes
    assert seen.only.instrumentation_scope is not None
    assert seen.only.instrumentation_scope.name == "tito"


def test_a_span_says_what_a_turn_was() -> None:
    seen = collected()

    async def run() -> tuple[str, Any, Any]:
        async with client(scripted_gateway(Scripted(), choices=seen.options)) as http:
            name = await opened(http)
            said = await chat(http, name, HELLO, model="m", stream=False)
            seen.exporter.clear()
            prompt = [*HELLO, {"role": "assistant", "content": "ok"}, user("a secret")]
            return name, said, await chat(http, name, prompt, model="m")

    name, said, answer = anyio.run(run)
    usage = answer["usage"]
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
    assert span.start_time is not None
    assert span.end_time is not None
    assert span.start_time <= span.end_time
    assert "secret" not in span.to_json()
    assert name not in span.to_json()


BODIES: list[tuple[str, str, dict[str, Any]]] = [
    ("chat", "chat/completions", {"messages": HELLO, "n": 2}),
    ("anthropic", "messages", {"messages": HELLO, "max_tokens": 9, "stream": True}),
    ("responses", "responses", {"input": HELLO, "stream": True}),
]


@pytest.mark.parametrize(("dialect", "path", "body"), BODIES)
def test_a_turn_of_any_api_and_a_streamed_one_has_its_span(
    dialect: str, path: str, body: dict[str, Any]
) -> None:
    seen = collected()

    async def run() -> None:
        async with client(scripted_gateway(Scripted(), choices=seen.options)) as http:
            answer = await http.post(f"/sessions/{await opened(http)}/v1/{path}", json={"model": "m", **body})
            assert answer.status_code == 200, answer.text

    anyio.run(run)
    attributes = seen.attributes
    assert (attributes["tito.dialect"], attributes["tito.received"]) == (dialect, True)
    assert attributes["gen_ai.request.stream"] is body.get("stream", False)
    assert attributes["gen_ai.response.finish_reasons"] == ("stop",) * body.get("n", 1)


def test_the_caller_of_a_turn_is_its_parent() -> None:
    seen = collected()

    async def run() -> None:
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        async with client(scripted_gateway(Scripted(), choices=seen.options), headers=headers) as http:
            await chat(http, await opened(http), HELLO)

    anyio.run(run)
    context, parent = seen.only.get_span_context(), seen.only.parent
    assert context is not None
    assert parent is not None
    assert (f"{context.trace_id:032x}", f"{parent.span_id:016x}", parent.is_remote) == (TRACE, PARENT, True)


def test_ids_are_added_if_asked_for_and_only_new_ones() -> None:
    seen, engine = collected(with_ids=True), Scripted()

    async def run() -> None:
        async with client(scripted_gateway(engine, choices=seen.options)) as http:
            name = await opened(http)
            said = await chat(http, name, HELLO)
            await chat(http, name, [*HELLO, said["choices"][0]["message"], user()])

    anyio.run(run)
    first, second = (dict(span.attributes or {}) for span in seen.spans)
    whole = [*engine.asked[1][1]]
    assert engine.asked[1][0] == "ids"
    ids: list[Any] = [first[f"tito.{name}_token_ids"] for name in ("new_prompt", "completion")]
    ids.append(second["tito.new_prompt_token_ids"])
    assert [one for part in ids for one in part] == whole
    assert second["tito.reused_ids"] == len(ids[0]) + len(ids[1])
    assert first["tito.completion_token_ids"] == (500, 501, 2)


def test_why_a_prompt_was_sent_as_messages_is_an_attribute() -> None:
    seen = collected()

    async def run() -> None:
        async with client(scripted_gateway(Scripted(), choices=seen.options)) as http:
            name = await opened(http)
            await chat(http, name, HELLO)
            await chat(http, name, [user("another"), {"role": "assistant", "content": "x"}, user()])

    anyio.run(run)
    attributes = dict(seen.spans[1].attributes or {})
    assert (attributes["tito.route"], attributes["tito.refusal"]) == ("MITO", "NO_PREFIX")


def test_an_error_has_its_kind_and_no_words() -> None:
    seen, engine = collected(), Scripted()
    engine.raises.append(OverlongError("a secret", None))

    async def run() -> int:
        async with client(scripted_gateway(engine, choices=seen.options)) as http:
            path = f"/sessions/{await opened(http)}/v1/chat/completions"
            return (await http.post(path, json={"messages": HELLO, "model": "m" * 1000})).status_code

    status = anyio.run(run)
    assert seen.attributes["http.response.status_code"] == status
    assert seen.attributes["error.type"]
    assert seen.attributes["tito.received"] is True
    assert seen.only.status.status_code is StatusCode.ERROR
    assert "secret" not in seen.only.to_json()
    assert seen.attributes["gen_ai.request.model"] == "m" * MODEL_LENGTH
    assert seen.only.name == f"chat {'m' * MODEL_LENGTH}"


def test_a_client_that_goes_away_cancels_its_span() -> None:
    seen, engine = collected(), Scripted(held=anyio.Event())

    async def run() -> None:
        async with served(app(scripted_gateway(engine, choices=seen.options))) as url, _http(url) as http:
            path = f"/sessions/{await opened(http)}/v1/chat/completions"
            with anyio.move_on_after(60) as waiting:
                async with anyio.create_task_group() as group:

                    async def leave() -> None:
                        while not engine.running:  # noqa: ASYNC110  # the engine tells nobody
                            await anyio.sleep(0.001)
                        waiting.cancel()

                    group.start_soon(leave)
                    await http.post(path, json={"messages": HELLO})
            while not seen.spans:  # noqa: ASYNC110  # likewise
                await anyio.sleep(0.001)

    anyio.run(run)
    assert seen.attributes["error.type"] == "cancelled"
    assert seen.attributes["tito.received"] is False
    assert "tito.route" not in seen.attributes


@asynccontextmanager
async def _http(url: str) -> AsyncIterator[Any]:
    async with httpx2.AsyncClient(base_url=url) as http:
        yield http


def test_spans_reach_a_collector_over_http(monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[tuple[str, ExportTraceServiceRequest]] = []

    async def traces(request: Request) -> Response:
        body = await request.body()
        if request.headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        received.append((request.headers.get("x-key", ""), ExportTraceServiceRequest.FromString(body)))
        return Response(media_type="application/x-protobuf")

    async def run() -> None:
        collector = Starlette(routes=[Route("/v1/traces", traces, methods=["POST"])])
        async with served(collector) as url:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=k")
            begun = started("--spans", "ids", "--store", "memory")
            process = await anyio.to_thread.run_sync(begun.__enter__)
            try:
                async with _http(process.url) as http:
                    await chat(http, await opened(http), HELLO, max_tokens=3)
                assert await anyio.to_thread.run_sync(process.stop) == 0
            finally:
                begun.__exit__(None, None, None)

    anyio.run(run)
    ((key, request),) = received
    (resource,) = request.resource_spans
    names = {one.key: one.value.string_value for one in resource.resource.attributes}
    (span,) = resource.scope_spans[0].spans
    ids = {one.key: [i.int_value for i in one.value.array_value.values] for one in span.attributes}
    assert (key, names["service.name"], span.name) == ("k", "tito", f"chat {MODEL}")
    assert len(ids["tito.completion_token_ids"]) == 3


def test_a_name_of_the_service_that_was_chosen_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    spans = TurnSpans.from_environment(with_ids=False)
    assert spans.provider.resource.attributes["service.name"] == "mine"
    anyio.run(spans.aclose)


def test_nothing_is_sent_at_the_end_of_a_process_that_is_stopped_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second Ctrl-C ends a gateway although its collector does not answer."""
    left: list[Callable[..., object]] = []
    monkeypatch.setattr(atexit, "register", left.append)
    spans = TurnSpans.from_environment(with_ids=False)
    # Libraries that are imported here for the first time register what is theirs.
    assert [one for one in left if one.__module__.startswith("opentelemetry")] == []
    anyio.run(spans.aclose)


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


def test_a_request_that_is_refused_early_has_a_span_without_what_is_not_known() -> None:
    seen = collected()

    async def run() -> None:
        async with client(scripted_gateway(Scripted(), choices=seen.options)) as http:
            path = f"/sessions/{'0' * 32}/v1/chat/completions"
            assert (await http.post(path, json={"messages": HELLO, "stream": True})).status_code == 404

    anyio.run(run)
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
        "error.type": "SessionNotFoundError",
        "http.response.status_code": 404,
    }
    assert seen.only.name == "chat"


def test_a_span_names_what_an_engine_and_a_router_tell() -> None:
    seen = collected()

    async def run() -> None:
        async with client(scripted_gateway(Reporting(), choices=seen.options)) as http:
            name = await opened(http)
            said = (await chat(http, name, HELLO))["choices"][0]["message"]
            await chat(http, name, [*HELLO, said, user()])

    anyio.run(run)
    first, second = (dict(span.attributes or {}) for span in seen.spans)
    assert (first["tito.worker"], first["tito.engine_request"]) == ("worker 1", "request 2")
    assert (second["tito.worker"], second["tito.engine_request"]) == ("worker 1", "request 4")
    assert "gen_ai.usage.cache_read.input_tokens" not in first
    assert second["gen_ai.usage.cache_read.input_tokens"] == 4
    assert second["gen_ai.response.finish_reasons"] == ("tool_calls",)
    page = (ROOT / "docs/howto/deploy.md").read_text()
    ours = {name for name in first.keys() | second.keys() if name.startswith("tito.")}
    assert {name for name in ours if f"`{name}`" not in page} == set()
