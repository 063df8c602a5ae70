"""A proxy in front of a real engine that keeps what the engine said, and makes a random model say something.

What is kept is read from the engine's own bytes, apart from every adapter. The model is random: of itself it
calls nothing and ends nowhere. So every request for a turn that passes gets a grammar, which is all that is
changed; within a grammar the ids are still the model's, in tokenizations that no tokenizer would choose.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import attrs
import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from tito_io.families.family import Family

from .talk import marker_id

SAMPLING = frozenset(("/v1/chat/completions", "/v1/completions", "/generate"))
METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"]
START_SECONDS = 10.0
END = "<|im_end|>"
CALL = r'<tool_call>\n\{"name": "get_weather", "arguments": \{"city":  "[A-Z][a-z]{2,9}"\}\}\n</tool_call>'
"""A call with two spaces before its argument, which nobody writes again."""
THOUGHT = r"<think>\n[a-z ]{2,9}\n</think>\n\n[a-z]{2,9}"
PATTERNS = (CALL, r"[a-zA-Z ]{2,12}", CALL, THOUGHT)
"""What turns look like, one after the other, for ever."""
TAGS = (END, "<tool_call>", "</tool_call>", "<think>", "</think>")
Steered = Callable[[str, dict[str, Any], str, Mapping[str, float]], None]


@attrs.frozen
class Sampled:
    """One turn, as the engine's own bytes tell it."""

    path: str
    streamed: bool
    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float]
    finish: str


@attrs.define
class Proxy:
    """Everything that passed, and how turns are steered."""

    target: str
    steered: Steered
    bias: Mapping[str, float]
    turns: list[Sampled] = attrs.field(factory=list)
    url: str = ""
    _client: httpx2.AsyncClient = attrs.field(init=False)

    def forget(self) -> None:
        """Begin anew."""
        self.turns.clear()

    def app(self) -> Starlette:
        """Return the proxy as an application."""

        @asynccontextmanager
        async def lifespan(_: Starlette) -> AsyncIterator[None]:
            async with httpx2.AsyncClient(base_url=self.target, timeout=120) as self._client:
                yield

        return Starlette(routes=[Route("/{path:path}", self._passed, methods=METHODS)], lifespan=lifespan)

    async def _passed(self, request: Request) -> Response:
        path, body = request.url.path, await request.body()
        if path not in SAMPLING:
            url = f"{path}?{request.url.query}" if request.url.query else path
            answer = await self._client.request(
                request.method, url, content=body or None, headers=_kind(request)
            )
            return Response(answer.content, answer.status_code, media_type=answer.headers.get("content-type"))
        return await self._turn(path, json.loads(body))

    async def _turn(self, path: str, asked: dict[str, Any]) -> Response:
        self.steered(path, asked, PATTERNS[len(self.turns) % len(PATTERNS)], self.bias)
        sent = self._client.build_request("POST", path, json=asked)
        answer = await self._client.send(sent, stream=True)

        async def parts() -> AsyncIterator[bytes]:
            data = b""
            async for part in answer.aiter_bytes():
                data += part
                if asked.get("stream"):
                    yield part
            await answer.aclose()
            if answer.status_code == 200:
                self.turns.append(read(path, asked, data))
            if not asked.get("stream"):
                yield data

        return StreamingResponse(parts(), answer.status_code, media_type=answer.headers.get("content-type"))


def _kind(request: Request) -> dict[str, str]:
    found = request.headers.get("content-type")
    return {"content-type": found} if found else {}


def read(path: str, asked: Mapping[str, Any], data: bytes) -> Sampled:
    """Read a turn from the engine's bytes."""
    events = (
        [json.loads(data)]
        if not asked.get("stream")
        else [json.loads(line[6:]) for line in data.decode().splitlines() if line.startswith("data: {")]
    )
    if path == "/generate":
        return _generated(path, asked, events)
    ids: list[int] = []
    logprobs: list[float] = []
    finish, prompt = "", asked.get("prompt") or asked.get("input_ids")
    for event in events:
        beside = event.get("sglext") or {}
        prompt = event.get("prompt_token_ids") or _only(beside.get("input_ids")) or prompt
        ids += _only(beside.get("output_ids")) or []
        for choice in event.get("choices") or ():
            prompt = choice.get("prompt_token_ids") or prompt
            pairs = (choice.get("meta_info") or {}).get("output_token_logprobs")
            ids += [pair[1] for pair in pairs] if pairs else choice.get("token_ids") or _named(choice)
            logprobs += [pair[0] for pair in pairs] if pairs else _logprobs(choice)
            finish = choice.get("finish_reason") or finish
    return Sampled(path, bool(asked.get("stream")), prompt or [], ids, logprobs, finish)


def _generated(path: str, asked: Mapping[str, Any], events: list[dict[str, Any]]) -> Sampled:
    """Read SGLang's own route, where every event has all that is known so far."""
    last = events[-1]
    pairs = last["meta_info"]["output_token_logprobs"]
    finish = last["meta_info"]["finish_reason"]["type"]
    values = [one[0] for one in pairs]
    return Sampled(path, bool(asked.get("stream")), asked["input_ids"], last["output_ids"], values, finish)


def _only(lists: Any) -> list[int] | None:
    return lists[0] if lists and isinstance(lists[0], list) else lists


def _named(choice: Mapping[str, Any]) -> list[int]:
    """Return ids that stand in the place of their texts beside the log-probabilities, as `token_id:7`."""
    logprobs = choice.get("logprobs") or {}
    names = logprobs.get("tokens") or [one["token"] for one in logprobs.get("content") or ()]
    return [int(name.removeprefix("token_id:")) for name in names if name.startswith("token_id:")]


def _logprobs(choice: Mapping[str, Any]) -> list[float]:
    logprobs = choice.get("logprobs") or {}
    entries = logprobs.get("content")
    if entries is None:
        return list(logprobs.get("token_logprobs") or ())
    return [one["logprob"] for one in entries]


def vllm_steered(_: str, asked: dict[str, Any], pattern: str, bias: Mapping[str, float]) -> None:
    """Ask a vLLM for a turn of a pattern."""
    asked |= {"structured_outputs": {"regex": pattern}, "logit_bias": dict(bias), "temperature": 1.0}


def sglang_steered(path: str, asked: dict[str, Any], pattern: str, bias: Mapping[str, float]) -> None:
    """Ask an SGLang for a turn of a pattern."""
    within = asked["sampling_params"] if path == "/generate" else asked
    if "logit_bias" in within:  # the adapter asks for what is refused, to learn how many ids there are
        return
    within |= {"regex": pattern, "logit_bias": dict(bias), "temperature": 1.0}


STEERED: Mapping[str, Steered] = {"vllm": vllm_steered, "sglang": sglang_steered}


@contextmanager
def proxied(engine: str, target: str, family: Family) -> Iterator[Proxy]:
    """Serve a proxy in front of an engine, on a thread of its own."""
    bias = {str(marker_id(family, tag)): 100.0 for tag in TAGS}
    proxy = Proxy(target, STEERED[engine], bias)
    config = uvicorn.Config(proxy.app(), host="127.0.0.1", port=0, log_level="warning", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        late = time.monotonic() + START_SECONDS
        while not server.started and time.monotonic() < late:
            time.sleep(0.01)
        proxy.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        yield proxy
    finally:
        server.should_exit = True
        thread.join()
