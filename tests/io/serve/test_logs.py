"""What a gateway logs: lines of a fixed form, never message text, keys or whole session ids."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import anyio
import httpx2
import pytest

from tests.io.serve.gateway import (
    CHAT,
    HELLO,
    Reporting,
    Scripted,
    Talk,
    chat,
    client,
    limited,
    opened,
    scripted_gateway,
    talking,
    user,
)
from tests.io.serve.gateway_process import started
from tito_io.serve import logs
from tito_io.serve.auth import HEADER
from tito_io.serve.commit import TurnOrigin
from tito_io.serve.logs import ACCESS, AccessLog, configure_logs, log_error, log_turn, short_path

pytestmark = pytest.mark.anyio
KEY = "sk-0123456789abcdef-secret"
TEXT = "zweifel-apricot-4711"
MESSAGES = [{"role": "user", "content": TEXT}]
ACCESS_LINE = re.compile(
    r"\S+ \S+ INFO tito\.access: (GET|POST|DELETE) (/\S*) (\d{3}) (\d+) ms session ([0-9a-f]{8}|-|\.\.\.)"
)


@contextmanager
def logged(tmp_path: Path, *options: str) -> Iterator[tuple[httpx2.Client, list[str]]]:
    """Start a gateway; yield a client, and the lines that it will have written when it has ended."""
    lines: list[str] = []
    with started("--store", "memory", *options, complaints=tmp_path / "log") as process:
        with httpx2.Client(base_url=process.url, timeout=60) as http:
            yield http, lines
        assert process.stop() == 0
        lines += process.warnings()


BODY = {"messages": MESSAGES, "max_tokens": 5}


def test_the_access_log_has_a_line_a_request_and_no_secret(tmp_path: Path) -> None:
    with logged(tmp_path, "--access-log") as (http, lines):
        name = http.post("/sessions").json()["session_id"]
        assert http.post(f"/sessions/{name}{CHAT}", json=BODY).status_code == 200
        keyed = http.post(CHAT, json=BODY, headers={"x-api-key": KEY})
        assert http.get("/session", headers={"x-api-key": KEY}, params={"q": TEXT}).status_code == 200
        assert http.get(f"/sessions/{KEY}").status_code == 404
        assert http.get(f"/{KEY}%0AINFO").status_code == 404
    short = keyed.headers[HEADER][:8]
    found = [re.fullmatch(ACCESS_LINE, line) for line in lines]
    assert [one.group(1, 2, 3, 5) if one else None for one in found] == [
        ("POST", "/sessions", "200", name[:8]),
        ("POST", f"/sessions/{name[:8]}/v1/chat/completions", "200", name[:8]),
        ("POST", "/v1/chat/completions", "200", short),
        ("GET", "/session", "200", short),
        ("GET", "/sessions/...", "404", "-"),
        ("GET", "/...", "404", "-"),
    ]
    text = "\n".join(lines)
    assert not [one for one in (KEY, TEXT, name, keyed.headers[HEADER]) if one in text]


@pytest.mark.parametrize("verbose", [True, False])
def test_verbose_logs_a_line_a_turn_and_no_secret(verbose: bool, tmp_path: Path) -> None:
    with logged(tmp_path, *["-v"] * verbose) as (http, lines):
        name = http.post("/sessions").json()["session_id"]
        assert http.post(f"/sessions/{name}{CHAT}", json=BODY).status_code == 200
        if verbose:
            assert http.post(f"/sessions/{name}{CHAT}", json={"messages": TEXT}).status_code == 400
        assert http.delete(f"/sessions/{name}").status_code == 204
    if not verbose:
        assert lines == []
        return
    text = "\n".join(line for line in lines if "tito." in line)
    assert f"INFO tito.serve: session {name[:8]}: opened" in text
    assert re.search(
        rf"session {name[:8]}: turn committed, MITO, prompt ids: (\d+) \(\1 new, \S+ cached\), "
        r"sampled ids: 5, \d+ ms, forgiven: -, engine's request: [0-9a-f-]{36}, worker: -\n",
        text,
    )
    assert f"session {name[:8]}: 400 UntranslatableError" in text
    assert f"session {name[:8]}: deleted" in text
    assert not [one for one in (TEXT, name, "tito.access") if one in text]


async def test_an_error_is_logged_and_told_by_its_class_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with talking(Scripted(raises=[ZeroDivisionError(TEXT)])) as talk:
        answer = await talk.http.post(CHAT, json={"messages": MESSAGES}, headers={"x-api-key": KEY})
    assert (answer.status_code, "ZeroDivisionError" in answer.text) == (500, True)
    session = answer.headers[HEADER]
    (record,) = [one for one in caplog.records if one.levelname == "ERROR"]
    said = rf"session {session[:8]}: 500 ZeroDivisionError at \S+gateway\.py:\d+"
    assert re.fullmatch(said, record.getMessage())
    assert not [one for one in (TEXT, session) if one in caplog.text]
    assert TEXT not in answer.text


async def test_a_request_that_fails_or_never_answers_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError(TEXT)

    application = AccessLog(broken)
    with caplog.at_level(logging.INFO, ACCESS.name), pytest.raises(RuntimeError):
        await application({"type": "http", "method": "GET", "path": "/x"}, _never, _never)
    assert [re.sub(r"\d+ ms", "N ms", one.getMessage()) for one in caplog.records] == [
        "GET /x - N ms session -"
    ]


async def _never(*_: object) -> NoReturn:
    raise AssertionError("not called")


async def test_lifespans_are_not_requests(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[object] = []

    async def application(scope: object, *_: object) -> None:
        seen.append(scope)

    with caplog.at_level(logging.INFO, ACCESS.name):
        await AccessLog(application)({"type": "lifespan"}, _never, _never)
    assert (seen, caplog.records) == ([{"type": "lifespan"}], [])


async def test_times_are_milliseconds(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([100.0, 102.5, 102.5])
    monkeypatch.setattr(logs, "time", SimpleNamespace(perf_counter=times.__next__))

    async def silent(*_: object) -> Any:
        await anyio.lowlevel.checkpoint()

    scope: dict[str, object] = {"type": "http", "method": "GET", "path": "/health"}
    origin = TurnOrigin(dialect="chat", route="TITO", requested=0)
    reply: Any = SimpleNamespace(prompt_ids=(1,), usage=SimpleNamespace(completion_tokens=1))
    with caplog.at_level(logging.INFO, "tito.serve"), caplog.at_level(logging.INFO, "tito.access"):
        await AccessLog(silent)(scope, silent, silent)
        log_turn("0" * 32, origin, reply, "committed", 100.0)
    assert [re.findall(r"\S+ ms", one.getMessage()) for one in caplog.records] == [["2500 ms"], ["2500 ms"]]


@pytest.mark.parametrize(
    ("status", "level", "place"),
    [
        (400, "INFO", ""),
        (499, "INFO", ""),
        (500, "ERROR", " at deepest.py:3"),
        (501, "ERROR", ""),
        (503, "ERROR", ""),
    ],
)
def test_an_error_that_was_not_foreseen_is_logged_with_its_place(
    caplog: pytest.LogCaptureFixture, status: int, level: str, place: str
) -> None:
    program = compile("\n\nraise ValueError('secret')", "deepest.py", "exec")
    with caplog.at_level(logging.INFO, "tito.serve"):
        try:
            exec(program)  # noqa: S102  # a file of another name
        except ValueError as error:
            log_error(error, status, "0" * 32)
    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == (level, f"session 00000000: {status} ValueError{place}")


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("/", "/"),
        ("/sessions", "/sessions"),
        ("/v1/messages/count_tokens", "/v1/messages/count_tokens"),
        (f"/sessions/{'0' * 32}/x", "/sessions/00000000/x"),
        ("/sessions/mine/x", "/sessions/.../x"),
        (f"/{'0' * 32}", "/00000000"),
        ("/ä\r\n", "/%C3%A4%0D%0A"),
        # The longest part of a route has fewer than 24 characters; a key has more.
        (f"/{'a' * 24}/{'k' * 25}", f"/{'a' * 24}/..."),
        ("/a" * 101, "/a" * 100),
    ],
)
def test_a_path_is_logged_without_ids_and_keys(path: str, short: str) -> None:
    assert short_path(path) == short


async def test_a_line_says_how_a_turn_was_sent_and_what_it_cost(caplog: pytest.LogCaptureFixture) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    async with talking(Reporting()) as talk:
        with caplog.at_level(logging.INFO, "tito.serve"):
            said = await talk.said([user("a")])
            called = await talk.said([user("a"), {**said, "mood": 1}, user("b")])
            await talk.chat([user("a"), said, user("b"), called, user("c")], tools=tools)
    lines = [re.sub(r"\d+ ms", "N ms", one.getMessage()) for one in caplog.records]
    expected = (
        ("MITO", "6 (6 new, ? cached)", "-", 2),
        ("TITO", "15 (6 new, 4 cached)", "OTHER_KEYS", 4),
        ("MITO (RENDERED_DIFFERENTLY)", "26 (26 new, 4 cached)", "-", 6),
    )
    assert lines == [
        f"session {talk.name[:8]}: turn committed, {route}, prompt ids: {ids}, sampled ids: 3, N ms, "
        f"forgiven: {forgiven}, engine's request: request {request}, worker: worker 1"
        for route, ids, forgiven, request in expected
    ]


async def test_a_line_names_what_was_ignored_to_go_on_by_ids(caplog: pytest.LogCaptureFixture) -> None:
    """A turn that went by messages was sampled after what the client sent, so nothing was ignored for it."""

    def marked(text: str) -> dict[str, object]:
        return {**user(text), "cache_control": {"type": "ephemeral"}}

    tools = [{"type": "function", "function": {"name": "f"}}]
    async with talking() as talk:
        with caplog.at_level(logging.INFO, "tito.serve"):
            said = await talk.said([marked("a")])
            await talk.chat([marked("a"), {**said, "mood": 1}, marked("b")])
            await talk.chat([marked("a"), said, marked("c")], tools=tools)
        stored = [commit.origin.forgiven for commit in await talk.commits()]
    lines = [one.getMessage() for one in caplog.records]
    named = [re.findall(r"(?:TITO|MITO).*forgiven: (.*?), engine", one) for one in lines]
    assert named == [["-"], ["OTHER_KEYS, cache-control"], ["-"]]
    assert stored == [(), ("OTHER_KEYS", "cache-control"), ()]


@pytest.fixture
def loggers() -> Iterator[None]:
    """Leave the loggers as they were; other tests have made uvicorn's quiet."""
    names = ("tito", "tito.access", "uvicorn", "uvicorn.error", "opentelemetry")
    found = [logging.getLogger(name) for name in names]
    kept = [(one, one.handlers, one.level) for one in found]
    logging.getLogger("uvicorn.error").setLevel(logging.NOTSET)
    yield
    for one, handlers, level in kept:
        one.handlers = handlers
        one.setLevel(level)


@pytest.mark.parametrize("access", [True, False])
@pytest.mark.usefixtures("loggers")
def test_what_is_logged_is_one_line_each_of_a_level(capsys: pytest.CaptureFixture[str], access: bool) -> None:
    configure_logs("warning", access=access)
    for words in (
        "Unsupported upgrade request.",
        "No supported WebSocket library detected.",
        "A port is in use.",
    ):
        logging.getLogger("uvicorn.error").warning(words)
    logging.getLogger("tito.serve").info("not shown")
    logging.getLogger("opentelemetry.sdk").error("a\nfalse line\x1b[31m")
    ACCESS.info("GET /")
    try:
        int("a\nb")
    except ValueError:
        logging.getLogger("tito.serve").exception("failed")
    lines = [re.sub(r"^\S+ \S+ (?=[A-Z]+ )", "", one) for one in capsys.readouterr().err.splitlines()]
    assert [one for one in lines if not one.startswith("  ")] == [
        "WARNING uvicorn.error: A port is in use.",
        "ERROR opentelemetry.sdk: a\\nfalse line\\x1b[31m",
        *(["INFO tito.access: GET /"] if access else []),
        "ERROR tito.serve: failed",
    ]
    assert "  Traceback (most recent call last):" in lines
    assert lines[-1] == r"  ValueError: invalid literal for int() with base 10: 'a\nb'"


async def test_sessions_that_come_and_go_are_logged_for_who_looks(caplog: pytest.LogCaptureFixture) -> None:
    gateway = scripted_gateway(Scripted(), choices=limited(loaded_seconds=0.0))
    async with client(gateway) as http:
        with caplog.at_level(logging.INFO, "tito.serve"):
            name = await opened(http)
        await chat(http, name, HELLO)
        await anyio.sleep(0.01)
        with caplog.at_level(logging.DEBUG, "tito.serve"):
            await Talk(gateway, http, name).maintained()
            await http.get(f"/sessions/{name}")
            await http.delete(f"/sessions/{name}")
    assert [(one.levelname, one.getMessage()) for one in caplog.records if one.name == "tito.serve"] == [
        ("INFO", f"session {name[:8]}: opened"),
        ("DEBUG", f"session {name[:8]}: unloaded, idle"),
        ("DEBUG", f"session {name[:8]}: loaded, turns: 1"),
        ("INFO", f"session {name[:8]}: deleted"),
    ]
