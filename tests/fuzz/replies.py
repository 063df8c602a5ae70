"""Engines' replies: event streams, and the JSON of every route of each adapter."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import cache
from typing import Any

import httpx2
import orjson

from tests.io.engines.llamacpp.recorded import EXCHANGES, Replayed
from tests.io.engines.miles.miles_server import Fake
from tests.io.engines.routes import IDS, ROUTES, Route, Served, right_answer, written
from tests.io.engines.sglang import sglang_server
from tests.io.engines.vllm import test_derender, vllm_server
from tito_core import TitoError
from tito_io.engines.http_engine import HttpEngine
from tito_io.engines.miles import MilesRouter, MilesSession
from tito_io.engines.protocol import Delta, Rendering, Sampling
from tito_io.engines.vllm import GENERATE
from tito_io.engines.wire import Wire

from .target import Parser, Target

HELLO = [{"role": "user", "content": "hi"}]
PROMPT = (4, 5, 6)
LOOK: Any = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
STREAM = {"content-type": "text/event-stream"}
Ask = Callable[[Any], Awaitable[object]]
Responder = Callable[[httpx2.Response], Any]


@cache
def _runner() -> asyncio.Runner:
    return asyncio.Runner()


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in the one event loop of this process."""
    return _runner().run(work)


async def _watch(_: Delta) -> None:
    """Take a delta."""


def response(body: bytes, *, streamed: bool = False) -> httpx2.Response:
    """Return a response of status 200 with this body."""
    return httpx2.Response(200, content=body, headers=STREAM if streamed else None)


async def _asked(engine: Any, ask: Ask) -> object:
    async with engine:
        return await ask(engine)


def reads(make: Responder, ask: Ask, *, streamed: bool = False) -> Parser:
    """Return the parser of one response: `make` returns the engine that gets it, `ask` asks for it."""
    return lambda data: run(_asked(make(response(data, streamed=streamed)), ask))


def _turn(ids: Sequence[int] = PROMPT, *, watched: bool = False) -> Ask:
    wanted, watch = Sampling(max_tokens=9), _watch if watched else None
    return lambda engine: engine.from_ids(ids, wanted, Rendering(tools=(LOOK,)), watch=watch)


async def _chat(engine: Any) -> object:
    return await engine.from_messages(HELLO, Rendering(tools=(LOOK,)), Sampling(max_tokens=9))


async def _render(engine: Any) -> object:
    return await engine.render(HELLO, Rendering(), add_generation_prompt=True)


def _served(route: Route) -> Responder:
    return lambda answer: Served(route, change=lambda _: answer).engine()


def _route_parsers(kind: str) -> Iterator[tuple[str, tuple[Parser, bytes]]]:
    """Yield the parsers of turns by each route of an engine, whole and streamed."""
    for name, route in ROUTES.items():
        ways = (False,) if "stream" in route.lacks else (False, True)
        for streamed in ways if name.split()[0] == kind else ():
            seed = written(run(right_answer(route, streamed=streamed)), streamed=streamed).content
            parser = reads(_served(route), _turn(IDS, watched=streamed), streamed=streamed)
            yield f"{name}{' streamed' * streamed}", (parser, seed)


def _vllm(path: str, others: Mapping[str, Any] | None = None, **options: Any) -> Responder:
    return lambda answer: vllm_server.mocked({**(others or {}), path: answer}, **options)[0]


def _sglang(path: str, others: Mapping[str, Any] | None = None) -> Responder:
    return lambda answer: sglang_server.mocked({**(others or {}), path: answer})[0]


def _sglang_probe(answer: httpx2.Response) -> Any:
    answer.status_code = 400
    return _sglang("probe")(answer)


TAGGED = vllm_server.completion_answer((90, 104, 91, 92, 93), text="<think>h</think><tool_call></tool_call>")
DERENDERING = _vllm(GENERATE, {"/version": {"version": "0.33.0"}}, route="derender")
DETOKENIZING = _vllm("/detokenize", {GENERATE: vllm_server.generate_answer()}, route="generate")

VLLM: Mapping[str, tuple[Parser, bytes]] = {
    **dict(_route_parsers("vllm")),
    "derender": (reads(DERENDERING, _turn((1, 2))), orjson.dumps(test_derender.answer())),
    "tagged": (reads(_vllm("/v1/completions"), _turn()), orjson.dumps(TAGGED)),
    "messages": (reads(_vllm("/v1/chat/completions"), _chat), orjson.dumps(vllm_server.chat_answer())),
    "models": (
        reads(_vllm("/v1/models"), HttpEngine.models),
        orjson.dumps({"object": "list", "data": [vllm_server.CARD]}),
    ),
    "tokenize": (reads(_vllm("/tokenize"), _render), b'{"count":2,"max_model_len":50,"tokens":[1,2]}'),
    "detokenize": (reads(DETOKENIZING, _turn()), b'{"prompt":"hi"}'),
    "version": (reads(_vllm("/version"), lambda engine: engine.version()), b'{"version":"0.32.0"}'),
}
SGLANG: Mapping[str, tuple[Parser, bytes]] = {
    **dict(_route_parsers("sglang")),
    "messages": (reads(_sglang("/v1/chat/completions"), _chat), orjson.dumps(sglang_server.chatted())),
    "facts": (
        reads(_sglang("/server_info"), lambda engine: engine.facts()),
        orjson.dumps(sglang_server.INFO),
    ),
    "probe": (
        reads(_sglang_probe, lambda engine: engine.limits()),
        b'{"error":{"message":"logit_bias must has keys in [0, 999], got 1000."}}',
    ),
    "models": (
        reads(_sglang("/v1/models"), HttpEngine.models),
        orjson.dumps({"object": "list", "data": [sglang_server.CARD]}),
    ),
    "detokenize": (
        reads(_sglang("/detokenize", {"/generate": sglang_server.generated(text="")}), _turn()),
        b'{"text":"hi"}',
    ),
}


def _llamacpp_models(answer: httpx2.Response) -> Any:
    engine = Replayed([]).engine()
    engine.wire = Wire.to("http://mock", transport=httpx2.MockTransport(lambda _: answer))
    return engine


LLAMACPP: Mapping[str, tuple[Parser, bytes]] = {
    **dict(_route_parsers("llamacpp")),
    "models": (
        reads(_llamacpp_models, lambda engine: engine.models()),
        orjson.dumps(EXCHANGES["models"]["response"]),
    ),
}


async def _in_session(ask: Callable[[MilesRouter, MilesSession], Awaitable[object]], answer: Any) -> object:
    router = MilesRouter("http://miles", transport=httpx2.MockTransport(lambda _: answer))
    async with router:
        return await ask(router, MilesSession("s", router.wire))


def _miles(ask: Callable[[MilesRouter, MilesSession], Awaitable[object]]) -> Parser:
    return lambda data: run(_in_session(ask, response(data)))


async def _recorded() -> tuple[bytes, bytes, bytes]:
    """Return a reply, the records and the samples of a session with one turn."""
    client = httpx2.AsyncClient(transport=Fake().transport, base_url="http://miles")
    async with client:
        name = (await client.post("/sessions", json={})).json()["session_id"]
        body = {"messages": HELLO, "logprobs": True, "return_meta_info": True}
        body["return_prompt_token_ids"] = True
        reply = await client.post(f"/sessions/{name}/v1/chat/completions", json=body)
        records = await client.get(f"/sessions/{name}")
        samples = await client.post(f"/sessions/{name}/samples", json={})
    return reply.content, records.content, samples.content


REPLY, RECORDS, SAMPLES = asyncio.run(_recorded())
MILES: Mapping[str, tuple[Parser, bytes]] = {
    "chat": (_miles(lambda _, session: session.chat({"messages": HELLO})), REPLY),
    "records": (_miles(lambda _, session: session.records()), RECORDS),
    "health": (_miles(lambda router, _: router.health()), b'{"status":"ok"}'),
    "open": (_miles(lambda router, _: router.open({})), b'{"session_id":"s"}'),
    "models": (_miles(lambda _, session: session.ask("GET", "/v1/models")), b'{"data":[{"id":"m"}]}'),
}
SAFETENSORS: Mapping[str, tuple[Parser, bytes]] = {
    "samples": (_miles(lambda _, session: session.samples()), SAMPLES),
}


class _Pieces(httpx2.AsyncByteStream):
    """A body in pieces of the sizes that its first bytes say."""

    def __init__(self, data: bytes) -> None:
        self._sizes, self._body = data[:4] or b"\x01", data[4:]

    async def __aiter__(self) -> Any:
        at = turn = 0
        while at < len(self._body):
            size = 1 + self._sizes[turn % len(self._sizes)]
            yield self._body[at : at + size]
            at, turn = at + size, turn + 1


async def _events(stream: httpx2.AsyncByteStream) -> list[Any]:
    answer = httpx2.Response(200, headers=STREAM, stream=stream)
    wire = Wire.to("http://mock", transport=httpx2.MockTransport(lambda _: answer))
    async with aclosing(wire.stream("/x", {})) as events:
        return [event async for event in events]


async def _same_in_pieces(data: bytes) -> object:
    """Read a stream in pieces and whole; both must give the same events, or both an error."""
    found: list[object] = []
    for stream in (_Pieces(data), httpx2.ByteStream(data[4:])):
        try:
            found.append(await _events(stream))
        except TitoError as error:
            found.append(type(error))
    if repr(found[0]) != repr(found[1]):
        raise AssertionError(f"in pieces {found[0]!r:.200}, whole {found[1]!r:.200}")
    return found[1]


EVENTS = b'\x03\x00\x07\xff: ping\n\nid: 1\nevent: delta\ndata: {"a": 1}\n\n'
EVENTS += b'data: {"b":\r\ndata: 2}\r\n\r\ndata: [DONE]\n\n'
TARGETS = (
    Target(
        name="sse",
        parsers={"stream": (lambda data: run(_same_in_pieces(data)), EVENTS)},
        errors=(TitoError,),
    ),
    *(
        Target(name=name, parsers=parsers, errors=(TitoError,), json=name != "safetensors")
        for name, parsers in (
            ("vllm", VLLM),
            ("sglang", SGLANG),
            *((name, dict(_route_parsers(name))) for name in ("dynamo", "lmdeploy", "tensorrt-llm")),
            ("llamacpp", LLAMACPP),
            ("miles", MILES),
            ("safetensors", SAFETENSORS),
        )
    ),
)
