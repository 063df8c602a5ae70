"""A worker behind a router, in a process of its own: `python router_worker.py KIND PORT MARKER`.

`vllm` is the embedded engine. `sglang` speaks `/generate` of SGLang 0.5.23 with that engine's sampler:

- `input_ids` in, `output_ids` and `meta_info` out, cumulative in a stream (`managers/tokenizer_manager.py`)
- `cached_tokens` counts single ids, as pages have one id by default (`mem_cache/radix_cache.py`, `page_size`
  in `server_args.py`); the last id of a prompt is computed always (`match_prefix` gets `input_len - 1` ids
  in `managers/schedule_batch.py`)
- a prompt that is too long is status 400 with `{"error": {"message": ...}}`

Each sampled turn is a line on stdout: the request's id and the conversation's name. The worker that finds the
file MARKER removes it, samples, and dies in the middle of its answer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tito_io.embedded import MODEL, app, family
from tito_io.embedded.engine import EmbeddedEngine
from tito_io.embedded.generation import Generation, Sampler, SamplingSettings
from tito_io.embedded.rng import FaultRates
from tito_io.embedded.vocabulary import MAX_MODEL_LEN

TURNS = ("/generate", "/v1/completions", "/v1/chat/completions")
MOST = 64
"""The most ids of a reply, so that conversations of a benchmark stay short."""


@attrs.define
class TokenCache:
    """Which prefixes a radix tree with pages of one id holds; it never evicts."""

    prefixes: set[int] = attrs.field(factory=set)

    def cached(self, prompt: Sequence[int]) -> int:
        """Return how many ids at the beginning of a prompt are cached; the last one never is."""
        found = 0
        for state in _states(prompt[:-1]):
            if state not in self.prefixes:
                break
            found += 1
        return found

    def keep(self, ids: Sequence[int]) -> None:
        """Add a prompt and its reply."""
        self.prefixes.update(_states(ids))


def _states(ids: Sequence[int]) -> list[int]:
    states, state = [], 0
    for index in ids:
        state = hash((state, index))
        states.append(state)
    return states


@attrs.define
class Sglang:
    """The routes of an SGLang server that its router asks for."""

    engine: EmbeddedEngine
    cache: TokenCache = attrs.field(factory=TokenCache)

    def app(self) -> Starlette:
        """Return the application."""
        get = {"/health": self.health, "/v1/models": self.models, "/server_info": self.info}
        get |= {"/model_info": self.info, "/get_model_info": self.info, "/get_server_info": self.info}
        routes = [Route(path, answer) for path, answer in get.items()]
        return Starlette(routes=[*routes, Route("/generate", self.generate, methods=["POST"])])

    async def health(self, _: Request) -> Response:
        return Response()

    async def models(self, _: Request) -> Response:
        card = {"id": MODEL, "object": "model", "owned_by": "sglang", "max_model_len": MAX_MODEL_LEN}
        return JSONResponse({"object": "list", "data": [card]})

    async def info(self, _: Request) -> Response:
        known = {"version": "0.5.23", "model_path": MODEL, "served_model_name": MODEL, "is_generation": True}
        limits = {"max_req_input_len": MAX_MODEL_LEN - 6, "enable_deterministic_inference": True}
        return JSONResponse({**known, **limits})

    async def generate(self, request: Request) -> Response:
        body = await request.json()
        prompt, given = body["input_ids"], body["sampling_params"]
        if len(prompt) >= MAX_MODEL_LEN - 6 or max(prompt) >= self.engine.family.vocab_size:
            return JSONResponse({"error": {"message": f"The input ({len(prompt)} tokens) is refused"}}, 400)
        settings = SamplingSettings(
            max_tokens=min(given["max_new_tokens"], MOST),
            seed=given.get("sampling_seed"),
            stop_token_ids=frozenset(given.get("stop_token_ids") or ()),
            skip_special=given.get("skip_special_tokens", True),
        )
        cached = self.cache.cached(prompt)
        (reply,) = self.engine.run(prompt, settings).replies
        self.cache.keep([*prompt, *reply.ids[:-1]])
        answer = self._answer(body, reply, cached)
        if not body.get("stream"):
            return JSONResponse(answer)
        return StreamingResponse(_events(answer), media_type="text/event-stream")

    def _answer(self, body: dict[str, Any], reply: Generation, cached: int) -> dict[str, Any]:
        ends: dict[str, Any] = {"type": reply.finish_reason}
        ends |= {"matched": reply.ids[-1]} if reply.finish_reason == "stop" else {"length": len(reply.ids)}
        triples = [[step.logprob, step.id, None] for step in reply.steps]
        info = {
            "id": body.get("rid"),
            "finish_reason": ends,
            "prompt_tokens": len(reply.prompt),
            "completion_tokens": len(reply.ids),
            "cached_tokens": cached,
            **({"output_token_logprobs": triples} if body.get("return_logprob") else {}),
        }
        echo = {"prompt_token_ids": list(reply.prompt)} if body.get("return_prompt_token_ids") else {}
        return {"text": reply.text, "output_ids": reply.ids, "meta_info": info, **echo}


async def _events(answer: dict[str, Any]) -> AsyncIterator[bytes]:
    """Yield the events of a stream, each with the turn so far."""
    ids, info = answer["output_ids"], answer["meta_info"]
    for count in range(1, len(ids) + 1):
        last = count == len(ids)
        some = {
            "finish_reason": info["finish_reason"] if last else None,
            "completion_tokens": count,
            "output_token_logprobs": info.get("output_token_logprobs", [])[:count],
        }
        text = answer["text"] if last else ""
        event = {**answer, "text": text, "output_ids": ids[:count], "meta_info": {**info, **some}}
        yield b"data: " + orjson.dumps(event) + b"\n\n"
    yield b"data: [DONE]\n\n"


@attrs.frozen
class Watched:
    """Tells of each sampled turn; dies in the middle of the first answer after the marker appeared."""

    app: ASGIApp
    marker: Path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        if scope["type"] != "http" or scope["path"] not in TURNS:
            await self.app(scope, receive, send)
            return
        headers, dies, parts = Headers(scope=scope), self._removed(), 0
        name = headers.get("x-session-id") or headers.get("x-smg-routing-key") or "-"

        async def sent(message: Message) -> None:
            nonlocal parts
            parts += message["type"] == "http.response.body"
            if parts == 1 and message["type"] == "http.response.body":
                sys.stdout.write(f"sampled {headers.get('x-request-id')} {name}\n")
                sys.stdout.flush()
            if (
                dies
                and message["type"] == "http.response.body"
                and (parts > 1 or not message.get("more_body"))
            ):
                await send({**message, "body": message["body"][:20], "more_body": True})
                os._exit(1)
            await send(message)

        await self.app(scope, receive, sent)

    def _removed(self) -> bool:
        try:
            self.marker.unlink()
        except FileNotFoundError:
            return False
        return True


def worker(kind: str) -> ASGIApp:
    """Return the application of a worker."""
    rates = FaultRates()
    if kind == "vllm":
        return app(fault_rates=rates, max_new_tokens=MOST)
    return Sglang(EmbeddedEngine(family=family(), sampler=Sampler(0, rates))).app()


if __name__ == "__main__":
    chosen, port, marker = sys.argv[1:]
    uvicorn.run(Watched(worker(chosen), Path(marker)), host="127.0.0.1", port=int(port), log_level="error")
