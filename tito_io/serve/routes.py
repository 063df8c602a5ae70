"""The routes of a gateway: what is asked, who asks, and which session it is about."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from tito_io.client.sampling import parse_sampling
from tito_io.dialects import Anthropic, Chat, Dialect, Responses
from tito_io.engines.protocol import Rendering

from .connection import JSON
from .error_format import error_body, manner
from .gateway import Gateway
from .metrics import CONTENT_TYPE
from .payload import checked_length, payload
from .records import metadata, shown
from .refusals import RequestRefused, no_route, not_found, told
from .session import Head, Session
from .sglang_fields import DEFAULTS
from .turn_handler import TurnResponse
from .view import page

GENERATION = "x-miles-session-generation"
ONE = "/sessions/{session}"
MINE = "/session"
"""The session that a header or an API key names: a key has no place in an address, which logs keep."""
BINARY = "application/octet-stream"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
SAFE = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
"""A page of a conversation runs no script and fetches nothing, whatever stands in it."""

Answer = Callable[[Gateway, Request], Awaitable[Response]]


def routes(gateway: Gateway) -> list[Route]:
    """Return all routes; the first that fits answers."""
    ignoring = gateway.ignoring
    spoken: Mapping[str, Dialect] = {
        "/v1/chat/completions": Chat(ignoring),
        "/v1/messages": Anthropic(ignoring),
        "/v1/responses": Responses(ignoring),
    }
    own: list[tuple[str, str, Answer]] = [
        ("GET", "/health", _health),
        ("GET", "/metrics", _metrics),
        ("POST", "/sessions", _open),
    ]
    looked: list[tuple[str, str, Answer]] = [
        ("GET", "", _records),
        ("DELETE", "", _delete),
        ("GET", "/view", _view),
        ("POST", "/samples", _samples),
        ("GET", "/samples", _samples),
    ]
    theirs: list[tuple[str, str, Answer]] = [
        ("GET", "/v1/models", _models),
        ("POST", "/v1/messages/count_tokens", _count),
        *(("POST", path, partial(_talk, dialect=dialect)) for path, dialect in spoken.items()),
    ]
    return [
        *(_route(gateway, method, path, answer, own=True) for method, path, answer in own),
        *(
            _route(gateway, method, at + path, answer, own=True)
            for method, path, answer in looked
            for at in (ONE, MINE)
        ),
        *(_route(gateway, method, at + path, answer) for method, path, answer in theirs for at in ("", ONE)),
        *(_route(gateway, method, ONE + "/{path:path}", _passed) for method in METHODS),
    ]


def _route(gateway: Gateway, method: str, path: str, answer: Answer, *, own: bool = False) -> Route:
    """Return a route whose errors are told in its client's manner; its `own` is the session protocol's."""

    async def endpoint(request: Request) -> Response:
        try:
            _modest(request, gateway.caps.header_bytes)
            return await answer(gateway, request)
        except Exception as error:  # noqa: BLE001  # whatever it is, the client is told
            return refusal(gateway, error, None if own else manner(request))

    return Route(path, endpoint, methods=[method])


def _modest(request: Request, most: int) -> None:
    """Refuse headers that are too long together."""
    size = sum(len(name) + len(value) for name, value in request.headers.raw)
    if size > most:
        text = f"the headers have {size} bytes, and at most {most} are read"
        raise RequestRefused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "CapReachedError", text)


def refusal(gateway: Gateway, error: Exception, dialect: Dialect | None) -> Response:
    """Return what an error is answered with: `{"error": text}` where no dialect is spoken."""
    status, headers = gateway.declined(error)
    return answered(error_body(told(error), dialect), status, headers)


def unrouted(gateway: Gateway, request: Request) -> Response:
    """Return what a request for no route is answered with, or for one that takes other methods."""
    allowed = ", ".join(sorted(_allowed(request)))
    answer = refusal(gateway, no_route(request.method, request.url.path, allowed), manner(request))
    if allowed:
        answer.headers["allow"] = allowed
    return answer


def _allowed(request: Request) -> set[str]:
    """Return the methods of the routes whose path a request has."""
    near = (one for one in request.app.routes if one.matches(request.scope)[0] is not Match.NONE)
    return {method for one in near for method in one.methods}


def answered(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return JSON."""
    return Response(orjson.dumps(body), status, headers, JSON)


async def _talk(gateway: Gateway, request: Request, dialect: Dialect) -> Response:
    """Answer with a turn."""
    name = await gateway.session_name(request)
    body = await gateway.json(request)
    talk: Any = TurnResponse(gateway, dialect, name, body)  # an ASGI application, which is what a response is
    found: Response = talk
    return found


async def _health(gateway: Gateway, _: Request) -> Response:
    return answered({"status": "ok", "session_server_instance_id": gateway.instance})


async def _metrics(gateway: Gateway, _: Request) -> Response:
    gateway.metrics.waiting.set(gateway.turns.places.statistics().tasks_waiting)
    return Response(gateway.metrics.text(), media_type=CONTENT_TYPE)


async def _open(gateway: Gateway, request: Request) -> Response:
    gateway.names.admit(request)
    body = await gateway.json(request)
    defaults = {name: body[name] for name in DEFAULTS if body.get(name) is not None}
    kept = defaults if gateway.wire.later else {}
    head = Head(created=gateway.clock(), defaults=kept, evaluation=bool(body.get("evaluation")))
    return answered({"session_id": await gateway.sessions.open(head)})


async def _records(gateway: Gateway, request: Request) -> Response:
    async with gateway.sessions.using(gateway.names.session(request).name) as session:
        return answered(shown(session))


async def _delete(gateway: Gateway, request: Request) -> Response:
    name, given = gateway.names.session(request).name, request.headers.get(GENERATION)
    if given is not None:
        async with gateway.sessions.using(name) as session:
            session.generation -= 1  # asking is no use
            _unused(session, given)
    if not await gateway.sessions.delete(name):
        raise not_found(name)
    return Response(status_code=HTTPStatus.NO_CONTENT)


def _unused(session: Session, given: str) -> None:
    """Refuse to delete what was used since its samples were taken."""
    if not given.isdecimal():
        raise RequestRefused(HTTPStatus.UNPROCESSABLE_ENTITY, "BadRequestError", f"{GENERATION} is no number")
    if int(given) != session.generation:
        raise RequestRefused(HTTPStatus.PRECONDITION_FAILED, "SessionUsedError", "session generation changed")


async def _samples(gateway: Gateway, request: Request) -> Response:
    """Answer with a session's rows: safetensors, or JSON for who asks for that."""
    name, body = gateway.names.session(request).name, await gateway.json(request)
    length, given = checked_length(_longest(request, body)), body.get("metadata")
    if given is not None and not isinstance(given, dict):
        raise RequestRefused(HTTPStatus.BAD_REQUEST, "BadRequestError", "metadata is no JSON object")
    async with gateway.sessions.using(name) as session:
        said = metadata(session) | ({} if given is None else {"agent": given})
        contained = payload(session, length, given, said, gateway.decode)
        headers = {GENERATION: str(session.generation)} if gateway.wire.later else {}
    if _wants_json(request):
        return answered(contained.plain(), headers=headers)
    return Response(contained.safetensors(), headers=headers, media_type=BINARY)


def _longest(request: Request, body: Mapping[str, Any]) -> Any:
    """Return the longest row that is wanted, which a GET says in its query."""
    said = request.query_params.get("max_seq_len", "")
    return int(said) if said.isdecimal() else body.get("max_seq_len") or said or None


def _wants_json(request: Request) -> bool:
    """Tell whether a client names JSON and not the container; who takes anything gets the container."""
    kinds = {kind.partition(";")[0].strip() for kind in request.headers.get("accept", "").lower().split(",")}
    return JSON in kinds and BINARY not in kinds


async def _named(gateway: Gateway, request: Request) -> None:
    """Demand that the session of a path is there, and that whoever asks may."""
    if "session" not in request.path_params:
        return gateway.names.admit(request)
    name = gateway.names.session(request).name
    if not await gateway.sessions.exists(name):
        raise not_found(name)
    return None


async def _models(gateway: Gateway, request: Request) -> Response:
    await _named(gateway, request)
    room = (await gateway.turns.engine.limits()).max_model_len
    card = {"id": await gateway.turns.named(), "object": "model", "created": 0, "owned_by": "tito"}
    return answered({"object": "list", "data": [{**card, "max_model_len": room}]})


async def _count(gateway: Gateway, request: Request) -> Response:
    """Answer how many ids a prompt has, rendered afresh."""
    if "session" in request.path_params:
        await _named(gateway, request)
    gateway.names.session(request)
    dialect = Anthropic(gateway.ignoring)
    asked = dialect.parse_count(await gateway.json(request))
    entered = gateway.turns.door.enter(asked.messages, asked.tools)
    args = parse_sampling(asked.sampling).template_args
    rendering = Rendering(tools=tuple(entered.tools), template_args=args)
    return answered(dialect.count_body(len(await gateway.turns.rendered(entered.messages, rendering))))


async def _view(gateway: Gateway, request: Request) -> Response:
    async with gateway.sessions.using(gateway.names.session(request).name) as session:
        html = await page(gateway, session, request.query_params.get("leaf"))
    return Response(html, headers=SAFE, media_type="text/html")


async def _passed(gateway: Gateway, request: Request) -> Response:
    """Hand on to the engine, unrecorded."""
    async with gateway.sessions.using(gateway.names.session(request).name):
        pass
    if gateway.backend is None:
        raise no_route(request.method, request.url.path)
    body = await gateway.body(request)
    found = await gateway.backend.passed(request.method, request.path_params["path"], body)
    kind = found.headers.get("content-type", JSON)
    return Response(found.content, found.status_code, media_type=kind)
