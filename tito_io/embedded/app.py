"""The application: the routes of a vLLM 0.32 server over ASGI, in this process or behind a socket."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .chat import chat
from .completions import completions, detokenize, tokenize
from .engine import EmbeddedEngine
from .generation import Sampler
from .http import JSON, VERSION, BadRequest
from .ids_route import generate_ids
from .rng import FaultRates
from .vocabulary import MAX_MODEL_LEN, MODEL, family

Handler = Callable[[EmbeddedEngine, Request], Awaitable[Response]]
MAX_NEW_TOKENS = 256
GENERATE = "/inference/v1/generate"
DISABLED = (
    *(GENERATE, "/inference/v1/abort_requests"),
    *(f"/v1/{route}/render" for route in ("chat/completions", "completions", "messages", "responses")),
    *(f"/v1/{route}/derender" for route in ("chat/completions", "completions")),
)
"""Routes that the real server enables with a flag alone; clients have to cope with a server without it."""


def app(
    seed: int = 0,
    *,
    fault_rates: FaultRates | None = None,
    model: str = MODEL,
    max_model_len: int = MAX_MODEL_LEN,
    max_new_tokens: int | None = MAX_NEW_TOKENS,
    sampling_masks: bool = False,
) -> Starlette:
    """Return an ASGI application that answers as a vLLM 0.32 server with one small model does.

    The same `seed`, prompt ids and request seed give the same reply: on every route, in any order of
    requests, in any process.

    Args:
        seed: The sampler's seed.
        fault_rates: How often replies have each fault; the defaults of `FaultRates` where it is None.
        model: The served model name.
        max_model_len: The most ids of a prompt and its reply together.
        max_new_tokens: The most ids of a reply, whatever a request asks for; None for no such limit.
        sampling_masks: Whether `/inference/v1/generate` is open, and sends the ids that a request's top-k,
            top-p and min-p keep. Its log-probabilities are normalized over them.
    """
    engine = EmbeddedEngine(
        family=family().rendered_as("vllm"),  # as the server whose routes these are
        sampler=Sampler(seed, fault_rates or FaultRates()),
        model=model,
        max_model_len=max_model_len,
        max_new_tokens=max_new_tokens,
    )
    return engine_app(engine, sampling_masks=sampling_masks)


def engine_app(engine: EmbeddedEngine, *, sampling_masks: bool = False) -> Starlette:
    """Return an engine as an ASGI application, on the routes of a vLLM 0.32 server."""
    handlers = {BadRequest: _bad_request, HTTPException: _http_error}
    own = {GENERATE: generate_ids} if sampling_masks else {}
    return Starlette(routes=_routes(engine, own), exception_handlers=handlers)


def _routes(engine: EmbeddedEngine, own: Mapping[str, Handler]) -> list[Route]:
    get: dict[str, Handler] = {"/health": _health, "/version": _version, "/v1/models": _models}
    post: dict[str, Handler] = {"/tokenize": tokenize, "/detokenize": detokenize}
    post |= {"/v1/chat/completions": chat, "/v1/completions": completions}
    post |= {**dict.fromkeys(DISABLED, _disabled), **own}
    return [
        Route(path, partial(handler, engine), methods=[method])
        for method, handlers in (("GET", get), ("POST", post))
        for path, handler in handlers.items()
    ]


async def _health(_engine: EmbeddedEngine, _request: Request) -> Response:
    return Response()


async def _version(_engine: EmbeddedEngine, _request: Request) -> Response:
    return JSON({"version": VERSION})


async def _models(engine: EmbeddedEngine, _request: Request) -> Response:
    created: dict[str, object] = {"created": int(time.time())}
    permission = {"id": "modelperm-embedded", "object": "model_permission", **created}
    permission |= dict.fromkeys(("allow_sampling", "allow_logprobs", "allow_view"), True)
    permission |= dict.fromkeys(("allow_create_engine", "allow_search_indices", "allow_fine_tuning"), False)
    permission |= {"is_blocking": False, "organization": "*", "group": None}
    card = {"id": engine.model, "object": "model", **created, "owned_by": "vllm", "root": engine.model}
    card |= {"parent": None, "max_model_len": engine.max_model_len, "permission": [permission]}
    return JSON({"object": "list", "data": [card]})


async def _disabled(_engine: EmbeddedEngine, _request: Request) -> Response:
    text = "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them."
    raise BadRequest(text, kind="PermissionDeniedError", status=403)


async def _bad_request(_request: Request, error: Exception) -> Response:
    assert isinstance(error, BadRequest)  # noqa: S101  # registered for this class alone
    return JSON(error.body(), status_code=error.status)


async def _http_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101  # registered for this class alone
    return JSON({"detail": error.detail}, status_code=error.status_code)
