"""Errors of engines as clients read them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tito_core import InputError, TemplateRefused, TokenizeError
from tito_io.engines.protocol import (
    AbortedError,
    AuthenticationError,
    EngineAnswer,
    InvalidReplyError,
    OverlongError,
    RequestError,
    ServerError,
    TimedOutError,
    UnreachableError,
    UnsupportedError,
)
from tito_io.serve import refusals
from tito_io.serve.refusals import (
    ENDED,
    MIB,
    NOT_SERVED,
    OTHER_API,
    WRONG_BASE,
    RequestRefused,
    bad_request,
    body_too_long,
    error_reply,
    limit_reached,
    no_route,
    no_websocket,
    not_found,
)
from tito_io.serve.store import BusyError, FencedError, GoneError, LostError, StoreError


def test_agents_recognize_a_prompt_that_is_too_long() -> None:
    """They look for these words, and make the conversation shorter then."""
    reply = error_reply(OverlongError("the prompt has 9 ids"), {})
    assert str(reply) == (
        "prompt is too long, it exceeds the model's maximum context length: the prompt has 9 ids"
    )
    assert (reply.status, reply.kind) == (400, "context_length_exceeded")


@pytest.mark.parametrize(
    ("error", "status"),
    [(RequestError("odd"), 400), (UnreachableError("odd"), 503), (ValueError("odd"), 500)],
)
def test_other_errors_are_not_said_to_be_that(error: Exception, status: int) -> None:
    reply = error_reply(error, {})
    assert (reply.status, "too long" in str(reply)) == (status, False)
    assert ("odd" in str(reply)) == (status != 500)


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (OverlongError("why"), 400, "context_length_exceeded"),
        (UnsupportedError("why"), 400, "unsupported"),
        (AuthenticationError("why"), 502, "engine_refused_key"),
        (TimedOutError("why"), 504, "engine_timeout"),
        (UnreachableError("why"), 503, "engine_unreachable"),
        (InvalidReplyError("why"), 502, "engine_reply_invalid"),
        (AbortedError("why"), 502, "engine_aborted"),
        (ServerError("why"), 502, "engine_failed"),
        (TemplateRefused("why"), 400, "template_refused"),
        (TokenizeError("why"), 502, "tokenizer_failed"),
        (InputError("why"), 400, "bad_request"),
        (GoneError(), 404, "session_not_found"),
        (FencedError("why"), 503, "session_moved"),
        (LostError("why"), 503, "session_lost"),
        (BusyError("why"), 503, "store_failed"),
        (StoreError("why"), 503, "store_failed"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_that_is_foreseen_has_its_status_code_and_words(
    error: Exception, status: int, code: str
) -> None:
    """A client may ask again: whether that helps is not known here."""
    reply = error_reply(error, {})
    assert (reply.status, reply.kind, reply.final) == (status, code, False)
    assert isinstance(error, GoneError) or "why" in str(reply)
    assert (reply.parameter, reply.headers) == (None, {})


@pytest.mark.parametrize(
    ("answered", "status"),
    [
        *((status, status) for status in (400, 404, 408, 413, 422, 429)),
        *((status, 502) for status in (401, 403, 405, 409, 418, 500)),
    ],
)
def test_what_an_engine_says_of_the_request_is_passed_on(answered: int, status: int) -> None:
    error = RequestError("no", EngineAnswer(answered, {"message": "top_k is odd"}))
    reply = error_reply(error, {"messages": []})
    assert (reply.status, reply.kind) == (status, "engine_refused")
    assert str(reply).endswith("; it says: top_k is odd")
    assert "it says" not in str(error_reply(error))  # without the request its words are not safe


def test_a_field_that_an_error_names_is_its_parameter() -> None:
    error = InputError("temperature is odd")
    error.field = "temperature"  # type: ignore[attr-defined]  # as errors of sampling arguments have it
    assert error_reply(error, {}).parameter == "temperature"


def test_an_error_that_nobody_foresaw_says_its_class_alone() -> None:
    reply = error_reply(ZeroDivisionError("a secret"), {"messages": []})
    assert (reply.status, reply.kind, reply.final) == (500, "internal_error", False)
    assert str(reply) == "the gateway failed (ZeroDivisionError); its log says where"


@pytest.mark.parametrize(("depth", "status"), [(100, 500), (101, 400)])
def test_a_body_that_nests_too_deep_is_the_client_s_error(depth: int, status: int) -> None:
    body: Any = []
    for _ in range(depth - 1):
        body = [1, body]
    reply = error_reply(RecursionError(), {"model": "m", "messages": body})
    assert (reply.status, reply.parameter) == (status, "messages" if status == 400 else None)
    assert error_reply(RecursionError()).status == 500


@pytest.mark.parametrize(
    ("refused", "status", "kind", "words"),
    [
        (bad_request("a is odd", "a"), 400, "bad_request", "a is odd"),
        (not_found("s", "; why"), 404, "session_not_found", "session not found: session_id=s; why"),
        (no_route("PUT", "/x", "GET"), 405, "method_not_allowed", "PUT /x: this route takes GET"),
        (limit_reached("ids", 3, 2, "--a"), 429, "limit_reached", "ids: 3, and at most 2; raise --a"),
        (no_websocket(), 426, "websocket", "websockets are not served; send the request with POST"),
    ],
)
def test_a_refusal_is_final_and_says_what_would_be_taken(
    refused: RequestRefused, status: int, kind: str, words: str
) -> None:
    assert (refused.status, refused.kind, str(refused), refused.final) == (status, kind, words, True)
    assert error_reply(refused) is refused
    headers = {405: {"allow": "GET"}, 426: {"upgrade": "HTTP/1.1", "connection": "upgrade"}}
    assert refused.headers == headers.get(status, {})
    assert refused.parameter == ("a" if status == 400 else None)


def test_an_unknown_path_says_what_base_urls_there_are() -> None:
    refused = no_route("GET", "/nowhere")
    assert (refused.status, refused.kind, refused.headers) == (404, "not_found", {})
    assert str(refused).startswith("GET /nowhere: there is no such route; the base URL is http://HOST:PORT/")
    assert body_too_long(1).status == 413


@pytest.mark.parametrize("session", ["", "/sessions/a"])
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/v1/completions", NOT_SERVED["completions"]),
        ("/v1/embeddings", OTHER_API),
        ("/v1beta/models/x:foo", OTHER_API),
        ("/v1/v1/chat/completions", WRONG_BASE),
        ("/v1/v1beta/models/x:generateContent", WRONG_BASE),
        ("/chat/completions", WRONG_BASE),
    ],
)
def test_a_client_whose_base_url_is_right_learns_which_apis_are_served(
    session: str, path: str, why: str
) -> None:
    refused = no_route("POST", session + path)
    assert str(refused) == f"POST {session}{path}: there is no such route; {why}"


@pytest.mark.parametrize(
    ("most", "length", "said"),
    [
        (MIB, MIB + 1, "this body has 2 MiB, and at most 1 MiB are read; raise --max-body"),
        (MIB + 1, 2 * MIB, "this body has 2 MiB, and at most 1 MiB are read; raise --max-body"),
        (MIB - 1, MIB, "this body has 1 MiB, and at most 1048575 bytes are read; raise --max-body"),
        (9, None, "this body has more than 9 bytes, and at most 9 bytes are read; raise --max-body"),
    ],
)
def test_a_body_that_is_too_long_is_measured(most: int, length: int | None, said: str) -> None:
    assert str(body_too_long(most, length)) == said


def test_a_session_that_is_missing_is_named_by_its_beginning() -> None:
    assert str(not_found("s")) == f"session not found: session_id=s{ENDED}"
    assert str(not_found("s" * 99, "")) == f"session not found: session_id={'s' * 64}"


def test_each_code_is_a_word_that_the_page_about_http_has() -> None:
    """A class name would change with the code, and no client could rely on it."""
    root = Path(refusals.__file__).parents[2]
    page = (root / "docs/reference/http.md").read_text()
    written = "\n".join(path.read_text() for path in (root / "tito_io/serve").glob("*.py"))
    raised = re.findall(r'RequestRefused\(\s*[\w.]+,\s*"(\w+)"', written)
    codes = {code for _, _, code in refusals.ANSWERS} | {refusals.REFUSED, *raised}
    assert len(codes) > 25
    assert [code for code in codes if not re.fullmatch(r"[a-z_]+", code)] == []
    assert [code for code in sorted(codes) if f"`{code}`" not in page] == []
