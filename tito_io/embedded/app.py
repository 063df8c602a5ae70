"""The application: an engine's routes over ASGI, in this process or behind a server."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import cache, partial
from tempfile import TemporaryDirectory
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tito_io.families.family import Family

from .chat import chat
from .completions import completions, detokenize, tokenize
from .draws import FaultRates
from .engine import EmbeddedEngine
from .folder import MAX_MODEL_LEN, MODEL, write_family
from .http import JSON, BadRequest
from .reply_parts import VERSION
from .sampler import Sampler

MAX_NEW_TOKENS = 256
GATED = (
    *("/inference/v1/generate", "/inference/v1/abort_requests"),
    *(f"/v1/{route}/render" for route in ("chat/completions", "completions", "messages", "responses")),
    *(f"/v1/{route}/derender" for route in ("chat/completions", "completions")),
)
"""Routes that a server has only when started for them; this one is not, which a client must live with."""


@cache
def family() -> Family:
    """Return the embedded family, loaded once as any other is: from a folder."""
    with TemporaryDirectory(prefix="tito-embedded-") as folder:
        return Family.load(write_family(folder))


def app(
    seed: int = 0,
    *,
    fault_rates: FaultRates | None = None,
    model: str = MODEL,
    max_model_len: int = MAX_MODEL_LEN,
    max_new_tokens: int | None = MAX_NEW_TOKENS,
) -> Starlette:
    """Return an application that answers as a vLLM 0.32 server with one small model does.

    The same `seed`, prompt ids and request seed give the same reply on every route, in any order, in any
    process. `max_new_tokens` limits every reply (None: the context does); `fault_rates` say what goes wrong.
    """
    engine = EmbeddedEngine(
        family=family(),
        sampler=Sampler(seed, fault_rates or FaultRates()),
        model=model,
        max_model_len=max_model_len,
        max_new_tokens=max_new_tokens,
    )
    return Starlette(
        routes=_routes(engine), exception_handlers={BadRequest: _refused, HTTPException: _missing}
    )


def _routes(engine: EmbeddedEngine) -> list[Route]:
    asked = {"/health": _health, "/version": _version, "/v1/models": _models}
    posted = {
        "/tokenize": tokenize,
        "/detokenize": detokenize,
        "/v1/chat/completions": chat,
        "/v1/completions": completions,
    }
    return [
        *(_route(path, partial(answer, engine), "GET") for path, answer in asked.items()),
        *(_route(path, partial(answer, engine), "POST") for path, answer in posted.items()),
        *(_route(path, _gated, "POST") for path in GATED),
    ]


def _route(path: str, answer: Callable[[Request], Awaitable[Response]], method: str) -> Route:
    return Route(path, answer, methods=[method])


async def _health(_engine: EmbeddedEngine, _request: Request) -> Response:
    return Response()


async def _version(_engine: EmbeddedEngine, _request: Request) -> Response:
    return JSON({"version": VERSION})


async def _models(engine: EmbeddedEngine, _request: Request) -> Response:
    now = int(time.time())
    card = {"id": engine.model, "object": "model", "created": now, "owned_by": "vllm", "root": engine.model}
    return JSON(
        {
            "object": "list",
            "data": [{**card, "parent": None, "max_model_len": engine.max_model_len, **_rights(now)}],
        }
    )


def _rights(now: int) -> dict[str, Any]:
    allowed = ("allow_sampling", "allow_logprobs", "allow_view")
    denied = ("allow_create_engine", "allow_search_indices", "allow_fine_tuning", "is_blocking")
    flags = {**dict.fromkeys(allowed, True), **dict.fromkeys(denied, False)}
    named = {"id": "modelperm-embedded", "object": "model_permission", "created": now}
    return {"permission": [{**named, **flags, "organization": "*", "group": None}]}


async def _gated(_request: Request) -> Response:
    text = "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them."
    refused = BadRequest(text, kind="PermissionDeniedError", status=403)
    return JSON(refused.body(), status_code=refused.status)


async def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, BadRequest)  # noqa: S101  # registered for this class alone
    return JSON(error.body(), status_code=error.status)


async def _missing(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101  # registered for this class alone
    return JSON({"detail": error.detail}, status_code=error.status_code)
