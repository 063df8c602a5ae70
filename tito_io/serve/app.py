"""The gateway as an ASGI application: its routes, and how their errors are answered."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Any

import anyio
import attrs
import orjson
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tito_core import InputError
from tito_io.client.sampling import parse_sampling
from tito_io.dialects import Anthropic, Chat, Dialect, Google, Responses
from tito_io.engines.family_render import renders_as
from tito_io.engines.protocol import Rendering
from tito_io.rewards import check_reward

from .auth import with_basic_key
from .gateway import BODY, Gateway
from .logs import LOG, SESSION, short_id
from .media import MediumBytes
from .metrics import CONTENT_TYPE
from .payload import SamplesPayload
from .records import session_calls, session_metadata, session_records
from .refusals import (
    RequestRefused,
    bad_request,
    error_body,
    error_reply,
    no_route,
    no_websocket,
    not_found,
    too_many_connections,
)
from .resume import Continuation
from .session import SessionHead
from .session_list import HTML, asks_for_page, list_page
from .sglang_fields import DEFAULTS, session_defaults, unread_fields
from .turn_handler import JSON, TurnResponse
from .view import page

GENERATION = "x-miles-session-generation"
MAX_LENGTH = "max_seq_len"
BY_ID = "/sessions/{session}"
BY_KEY = "/session"
"""The session that a header or an API key names. A key does not belong in a path, which logs keep."""
BINARY = "application/octet-stream"
JSON_LINES = "application/x-ndjson"
OWN = re.compile(
    r"/(health|metrics|sessions)?|(/session|/sessions/[^/]+)(/(calls|view|samples|media/[^/]+))?"
)
"""The paths of the gateway's own routes."""
FORWARDED = BY_ID + "/{path:path}"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
SAFE = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
"""Headers of what holds a part of a conversation: it runs no script and fetches nothing, whatever it is."""
PAGE = {**SAFE, "content-security-policy": f"{SAFE['content-security-policy']}; img-src data:"}
"""Headers of a session's page, which shows pictures that are in itself."""
LIST = {**SAFE, "cache-control": "no-store", "vary": "accept, authorization"}
"""Headers of the list of sessions, whose ids are keys; a client that does not ask for a page gets JSON."""
CHALLENGE = {"www-authenticate": 'Basic realm="tito: a key as password", charset="UTF-8"'}
"""What makes a browser ask for a password."""

Endpoint = Callable[[Gateway, Request], Awaitable[Response]]


def app(gateway: Gateway) -> Starlette:
    """Return the application. While it runs it maintains the sessions; at its end it closes all parts."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with anyio.create_task_group() as group:
            group.start_soon(gateway.sessions.maintain)
            try:
                yield
            finally:
                group.cancel_scope.cancel()
                with anyio.CancelScope(shield=True):
                    await gateway.aclose()

    async def unrouted(request: Request, _: Exception) -> Response:
        """Answer a request for an unknown path, or for one that takes other methods."""
        return _error(gateway, _no_such(request, request.app.routes), _dialect(gateway, request))

    handlers: Any = {HTTPException: unrouted}
    return Starlette(routes=_routes(gateway), lifespan=lifespan, exception_handlers=handlers)


def full(gateway: Gateway, most: int) -> ASGIApp:
    """Return the application for connections above `most`: it answers with 503, and for the health."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        if request.url.path == "/health":
            response = await _health(gateway, request)
            response.headers["connection"] = "close"
        else:
            response = _error(gateway, too_many_connections(most), _dialect(gateway, request))
        await response(scope, receive, send)

    return answer


def _no_such(request: Request, routes: Iterable[Route]) -> RequestRefused:
    """Return the error for a request that none of the routes takes: a websocket, a method, or a path."""
    if request.headers.get("upgrade", "").lower() == "websocket":
        return no_websocket()
    near = [one for one in routes if one.matches(request.scope)[0] is not Match.NONE]
    own = [one for one in near if one.path != FORWARDED] or near
    allowed = ", ".join(sorted({method for one in own for method in one.methods or ()}))
    return no_route(request.method, request.url.path, allowed)


def _routes(gateway: Gateway) -> list[Route]:
    """Return all routes; the first that matches answers."""
    reading = gateway.options.ignore, gateway.options.strict
    dialects: Mapping[str, Dialect] = {
        "/v1/chat/completions": Chat(*reading),
        "/v1/messages": Anthropic(*reading),
        "/v1/responses": Responses(*reading),
        "/v1/responses/compact": Responses(*reading, compacts=True),
    }
    # The first ones, since nearly all requests are for turns, and each route before theirs costs some time.
    turns: list[tuple[str, str, Endpoint]] = [
        ("POST", at + path, partial(_turn, dialect=one))
        for at in (BY_ID, "")
        for path, one in dialects.items()
    ]
    own: list[tuple[str, str, Endpoint]] = [
        ("GET", "/", _page_of(_front)),
        ("GET", "/health", _health),
        ("GET", "/metrics", _metrics),
        ("POST", "/sessions", _open),
    ]
    for at in (BY_ID, BY_KEY):
        own += [("GET", at, _records), ("DELETE", at, _delete), ("GET", f"{at}/view", _page_of(_view))]
        own += [("GET", f"{at}/calls", _calls), ("GET", f"{at}/media/{{digest}}", _medium)]
        own += [(method, f"{at}/samples", _samples) for method in ("POST", "GET")]
    of_clients: list[tuple[str, str, Endpoint]] = []
    for at in ("", BY_ID):
        of_clients += [
            ("GET", f"{at}/v1/models", _models),
            ("GET", f"{at}/v1/models/{{path:path}}", _model),
            ("POST", f"{at}/v1/messages/count_tokens", partial(_count, dialect=Anthropic(*reading))),
        ]
        for version in GOOGLE_VERSIONS:
            model = f"{at}/{version}/models/{{model:path}}"
            of_clients += [("POST", f"{model}:{method}", answer) for method, answer in GOOGLE.items()]
    of_clients += [(method, FORWARDED, _forward) for method in METHODS]
    return [
        *(_route(gateway, *one) for one in turns),
        *(_route(gateway, *one) for one in own),
        *(_route(gateway, *one) for one in of_clients),
    ]


def _route(gateway: Gateway, method: str, path: str, answer: Endpoint) -> Route:
    """Return a route, whose errors have the form of its path (see `_dialect`)."""

    async def endpoint(request: Request) -> Response:
        try:
            _check_headers(request, gateway.options.limits.header_bytes)
            return await answer(gateway, request)
        except Exception as error:  # noqa: BLE001  # whatever it is, the client must learn it
            return _error(gateway, error, _dialect(gateway, request), request.scope.get(BODY))

    return Route(path, endpoint, methods=[method])


def _check_headers(request: Request, most: int) -> None:
    size = sum(len(name) + len(value) for name, value in request.headers.raw)
    if size > most:
        text = f"the headers have {size} bytes, and at most {most} are read"
        raise RequestRefused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "limit_reached", text)


def _error(
    gateway: Gateway, error: Exception, dialect: Dialect | None, body: Mapping[str, Any] | None = None
) -> Response:
    """Return the answer for an error, in the gateway's own form without a dialect; `body` is the request."""
    reply = error_reply(error, body)
    return _json(error_body(reply, dialect), reply.status, gateway.count_error(reply))


def _dialect(gateway: Gateway, request: Request) -> Dialect | None:
    """Return the API in whose form a client reads errors: Google's, Anthropic's, OpenAI's for all others.

    None stands for the form of the gateway's own routes, whatever the method, which the older wire has on all
    routes of sessions.
    """
    path = request.url.path
    if OWN.fullmatch(path):
        return None
    if path.endswith(tuple(f":{method}" for method in GOOGLE)):
        return Google()
    if "anthropic-version" in request.headers or "/messages" in path:
        return Anthropic()
    older = not gateway.options.later_wire and path.startswith("/sessions/")
    return None if older else Chat()


def _json(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(orjson.dumps(body), status, headers, JSON)


async def _turn(gateway: Gateway, request: Request, dialect: Dialect) -> Response:
    """Answer with a turn; a session that the client names itself is opened by its first turn."""
    begun = time.perf_counter()
    name = await gateway.session_name(request, opening=True)
    body = await gateway.messages(request)
    plain = _dialect(gateway, request) is None
    # Starlette calls a response as ASGI does.
    application: Any = TurnResponse(gateway, dialect, name, body, plain_errors=plain, begun=begun)
    response: Response = application
    return response


async def _generate(gateway: Gateway, request: Request, *, streaming: bool = False) -> Response:
    """Answer on one of Google's routes, whose path names the model and whether the answer is streamed."""
    if streaming and request.query_params.get("alt") != "sse":  # the only stream that is known here
        raise bad_request("alt is not sse: add ?alt=sse, so that the stream has server-sent events", "alt")
    return await _turn(gateway, request, attrs.evolve(_google(gateway, request), streaming=streaming))


def _google(gateway: Gateway, request: Request) -> Google:
    options = gateway.options
    return Google(options.ignore, options.strict, request.path_params["model"])


async def _health(gateway: Gateway, _: Request) -> Response:
    return _json({"status": "ok", "session_server_instance_id": gateway.instance})


async def _metrics(gateway: Gateway, _: Request) -> Response:
    gateway.metrics.turns_waiting.set(gateway.turns.places.waiting)
    return Response(gateway.metrics.text(), media_type=CONTENT_TYPE)


async def _open(gateway: Gateway, request: Request) -> Response:
    """Open a session."""
    gateway.keys.admit(request)
    body = await gateway.json(request)
    other = unread_fields(body, (*DEFAULTS, "evaluation"), "default of a session")
    evaluation = body.get("evaluation")
    if not isinstance(evaluation, bool | None):
        raise bad_request(f"evaluation is {evaluation!r:.40}: give true or false", "evaluation")
    head = SessionHead(
        created=gateway.clock(),
        defaults=session_defaults(body) if gateway.options.later_wire else {},
        evaluation=bool(evaluation),
        owner=gateway.keys.owner(request, await gateway.sessions.secret()),
    )
    gateway.ignored.count("sessions", other)
    name = request.scope[SESSION] = await gateway.sessions.open(head)
    LOG.info("session %s: opened", short_id(name))
    return _json({"session_id": name})


async def _records(gateway: Gateway, request: Request) -> Response:
    """Answer with a session's records, one after the other; other requests are answered between them."""
    async with gateway.sessions.using(await gateway.session_name(request)) as session:
        return StreamingResponse(_parts(session_records(session)), media_type=JSON)


async def _calls(gateway: Gateway, request: Request) -> Response:
    """Answer with the turns of all branches of a session, a line each; likewise."""
    async with gateway.sessions.using(await gateway.session_name(request)) as session:
        return StreamingResponse(
            _parts(session_calls(session, renders_as(gateway.turns.engine))), media_type=JSON_LINES
        )


async def _parts(parts: Iterable[bytes]) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
        await anyio.lowlevel.checkpoint()


async def _delete(gateway: Gateway, request: Request) -> Response:
    name, generation = await gateway.session_name(request), request.headers.get(GENERATION)
    if generation is not None:
        async with gateway.sessions.using(name) as session:
            session.generation -= 1  # this request is no use of the session
            if not generation.isdecimal():
                text = f"{GENERATION} is not a number"
                raise RequestRefused(HTTPStatus.UNPROCESSABLE_ENTITY, "bad_request", text)
            if int(generation) != session.generation:  # it was used since its samples were taken
                text = "session generation changed"
                raise RequestRefused(HTTPStatus.PRECONDITION_FAILED, "session_used", text)
    if not await gateway.sessions.delete(name):
        raise not_found(name)
    LOG.info("session %s: deleted", short_id(name))
    return Response(status_code=HTTPStatus.NO_CONTENT)


async def _samples(gateway: Gateway, request: Request) -> Response:
    """Answer with a session's rows: safetensors, or JSON for a client that accepts only that."""
    name, body = await gateway.session_name(request), await gateway.json(request)
    length, collected = _max_length(request, body), body.get("metadata")
    if collected is not None and not isinstance(collected, dict):
        raise bad_request("metadata is not a JSON object", "metadata")
    _check_rewards(body, collected or {})
    given = {**request.query_params, **body}
    gateway.ignored.count("samples", unread_fields(given, (MAX_LENGTH, "metadata"), "field of samples"))
    async with gateway.sessions.using(name) as session:
        metadata = session_metadata(session) | ({} if collected is None else {"agent": collected})
        one = gateway.options.one_sample
        payload = SamplesPayload.of(session, length, collected or {}, metadata, gateway.decode, one=one)
        headers = {GENERATION: str(session.generation)} if gateway.options.later_wire else {}
    accepted = request.headers.get("accept", "").lower().split(",")
    kinds = {kind.partition(";")[0].strip() for kind in accepted}
    if JSON in kinds and BINARY not in kinds:
        return _json(payload.plain(), headers=headers)
    return Response(payload.safetensors(), headers=headers, media_type=BINARY)


def _check_rewards(body: Mapping[str, Any], collected: Mapping[str, Any]) -> None:
    """Demand that a reward can be trained with, and stands where it is read."""
    try:
        check_reward(collected)
    except InputError as error:
        raise bad_request(str(error), "metadata.reward") from None
    for name in ("reward", "rewards"):
        if name in body:
            raise bad_request(f"{name} is not read here: put one number into metadata.reward", name)


async def _medium(gateway: Gateway, request: Request) -> Response:
    """Answer with the bytes of an image, which a session's messages and rows name by digest."""
    name, digest = await gateway.session_name(request), request.path_params["digest"]
    if not await gateway.sessions.exists(name):
        raise not_found(name)
    stored = await gateway.sessions.store.media(name, [digest])
    if digest not in stored:
        text = (
            f"this session has no image {digest:.80}: give one of the digests, sha256: and 64 digits, that "
            "its records and rows name"
        )
        raise RequestRefused(HTTPStatus.NOT_FOUND, "not_found", text)
    medium = MediumBytes.decoded(stored[digest])
    headers = {**SAFE, "content-disposition": "attachment"}  # a client chose what it is
    return Response(medium.data, headers=headers, media_type=medium.mime)


def _max_length(request: Request, body: Mapping[str, Any]) -> int | None:
    """Return the longest row that a client wants, in ids; a GET gives it in its query."""
    query = request.query_params.get(MAX_LENGTH, "")
    value = int(query) if query.isdecimal() else query or body.get(MAX_LENGTH)
    if value is None or (type(value) is int and value > 0):
        return value
    text = f"{MAX_LENGTH} is {value!r:.40}: give a whole number of ids from 1 on, or null"
    raise bad_request(text, MAX_LENGTH)


async def _check_session(gateway: Gateway, request: Request) -> None:
    """Demand that the session of the path exists; without one in the path, that the key is known."""
    if "session" not in request.path_params:
        gateway.keys.admit(request)
        return
    name = await gateway.session_name(request)
    if not await gateway.sessions.exists(name):
        raise not_found(name)


async def _models(gateway: Gateway, request: Request) -> Response:
    return _json({"object": "list", "data": [await _card(gateway, request)]})


async def _model(gateway: Gateway, request: Request) -> Response:
    """Answer for one model; turns may name any model, and are all sampled with this one."""
    card, name = await _card(gateway, request), request.path_params["path"]
    if name != card["id"]:
        text = f"model {name!r:.80} is not served here; the only model is {card['id']!r:.200}"
        raise RequestRefused(HTTPStatus.NOT_FOUND, "model_not_found", text, parameter="model")
    return _json(card)


async def _card(gateway: Gateway, request: Request) -> dict[str, Any]:
    await _check_session(gateway, request)
    length = (await gateway.turns.engine.limits()).max_model_len
    card = {"id": await gateway.turns.model_name(), "object": "model", "created": 0, "owned_by": "tito"}
    return {**card, "max_model_len": length}


async def _count_google(gateway: Gateway, request: Request) -> Response:
    return await _count(gateway, request, _google(gateway, request))


async def _count(gateway: Gateway, request: Request, dialect: Anthropic | Google) -> Response:
    """Answer how many ids a prompt has, rendered afresh."""
    if "session" in request.path_params:
        await _check_session(gateway, request)
    await gateway.session_name(request)
    parsed = gateway.fitted(dialect.parse_count(await gateway.messages(request)))
    gateway.ignored.count(dialect.name, parsed.ignored)
    prompt = gateway.turns.noise.clean(parsed.messages, gateway.turns.shown_tools(parsed))
    args = parse_sampling(parsed.sampling).template_args
    messages, field = prompt.messages, parsed.continue_final_message
    opening = None if field is None else Continuation(field, messages[-1]).opening
    rendering = Rendering(tools=tuple(prompt.tools), template_args=args, opening=opening)
    ids = await gateway.turns.rendered(messages if opening is None else messages[:-1], rendering)
    return _json(dialect.count_body(len(ids)))


def _page_of(answer: Endpoint) -> Endpoint:
    """Let a browser give a key as the password of HTTP Basic, for which it is asked where none is known."""

    async def endpoint(gateway: Gateway, request: Request) -> Response:
        try:
            return await answer(gateway, with_basic_key(request))
        except RequestRefused as error:
            if error.status == HTTPStatus.UNAUTHORIZED and asks_for_page(request):
                error.headers |= CHALLENGE
            raise

    return endpoint


async def _front(gateway: Gateway, request: Request) -> Response:
    """Answer with the list of sessions where a browser asks, else with the health."""
    if not asks_for_page(request):
        return await _health(gateway, request)
    return Response(await list_page(gateway, request), headers=LIST, media_type=HTML)


async def _view(gateway: Gateway, request: Request) -> Response:
    gateway.ignored.count("view", unread_fields(request.query_params, ("leaf",), "parameter of the page"))
    async with gateway.sessions.using(await gateway.session_name(request)) as session:
        html = await page(gateway, session, request.query_params.get("leaf"))
    return Response(html, headers=PAGE, media_type=HTML)


async def _forward(gateway: Gateway, request: Request) -> Response:
    """Forward a request to the engine; it leaves no record."""
    async with gateway.sessions.using(await gateway.session_name(request)):
        pass
    refused = _no_such(request, [one for one in request.app.routes if one.path != FORWARDED])
    if gateway.backend is None or refused.status != HTTPStatus.NOT_FOUND:
        raise refused
    body = await gateway.body(request)
    answer = await gateway.backend.forward(request.method, request.path_params["path"], body)
    kind = answer.headers.get("content-type", JSON)
    return Response(answer.content, answer.status_code, media_type=kind)


GOOGLE: Mapping[str, Endpoint] = {
    "generateContent": _generate,
    "streamGenerateContent": partial(_generate, streaming=True),
    "countTokens": _count_google,
}
"""What Google's API can do with a model; the path names it after the model."""
GOOGLE_VERSIONS = ("v1beta", "v1")
"""Versions in the paths of Google's API; its library `google-genai` takes v1 since its own version 3."""
