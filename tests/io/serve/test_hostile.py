"""No control character of a client or an engine reaches a page, an error text or a log as it is."""

from __future__ import annotations

import logging
import unicodedata
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from tests.io.serve.gateway import HELLO, Scripted, client, scripted_gateway, talking, user
from tests.io.serve.gateway_process import started
from tito_io.serve.auth import HEADER
from tito_io.serve.logs import LOG, configure_logs
from tito_io.serve.refusals import RequestRefused

pytestmark = pytest.mark.anyio
HOSTILE = "\x1b]0;title\x07\x1b[31m\r\nWARNING forged\x00\x7f\x9b31m\u202e\u2066"
"""Sets a terminal's title and colour, begins a line, and reverses what follows."""


def controls(text: str) -> set[str]:
    """Return the control and formatting characters of a text, line ends aside."""
    return {one for one in text if unicodedata.category(one) in ("Cc", "Cf", "Cs") and one != "\n"}


async def test_a_page_shows_signs_for_them_wherever_they_stand() -> None:
    """In texts, names and arguments, in what an engine says of a turn's end, and in what tokens spell."""
    engine = Scripted(stop_reason=HOSTILE, text=HOSTILE)
    gateway = scripted_gateway(engine)
    gateway.spell, gateway.decode = lambda _: HOSTILE, lambda _: HOSTILE
    call = {"type": "function", "function": {"name": HOSTILE, "arguments": HOSTILE}, "id": HOSTILE}
    messages: list[Any] = [
        {"role": "system", "content": HOSTILE},
        user(HOSTILE),
        {"role": "assistant", "content": HOSTILE, "reasoning": HOSTILE, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": HOSTILE, "name": HOSTILE, "content": HOSTILE},
    ]
    async with talking(gateway) as talk:
        first = await talk.said(messages, model=HOSTILE)
        await talk.chat([*messages, first, user(HOSTILE)], model=HOSTILE)
        page = await talk.get("/view")
    assert page.status_code == 200
    assert controls(page.text) == set()
    assert page.text.count("␛") > 20


@pytest.mark.parametrize(
    ("method", "path", "body", "headers"),
    [
        ("GET", f"/sessions/{quote(HOSTILE)}", None, {}),
        ("POST", f"/sessions/{quote(HOSTILE)}/v1/chat/completions", {"messages": HELLO}, {}),
        ("GET", f"/{quote(HOSTILE)}", None, {}),
        ("POST", "/v1/chat/completions", {"messages": HELLO, HOSTILE: 1}, {}),
        ("POST", "/v1/chat/completions", {"messages": HELLO, "tool_choice": HOSTILE}, {}),
        ("POST", "/v1/chat/completions", {"messages": [{"role": HOSTILE, "content": "x"}]}, {}),
        ("POST", "/v1/chat/completions", {"messages": HELLO, "temperature": HOSTILE}, {}),
        ("POST", "/v1/messages", {"messages": [{"role": "user", "content": [{"type": HOSTILE}]}]}, {}),
        ("POST", "/v1/responses", {"input": [{"type": HOSTILE}]}, {}),
        ("POST", "/v1/responses", {"input": "x", "previous_response_id": HOSTILE}, {}),
        ("GET", f"/session/view?leaf={quote(HOSTILE)}", None, {}),
        ("GET", f"/session/samples?max_seq_len={quote(HOSTILE)}", None, {}),
        ("GET", "/session", None, {HEADER: "\x1b[31m\x9b31m"}),
        ("DELETE", "/session", None, {"x-miles-session-generation": "\x1b[31m"}),
    ],
)
async def test_no_answer_and_no_log_line_has_them(
    method: str, path: str, body: Any, headers: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        async with client(scripted_gateway(Scripted())) as http:
            raw = {b"authorization": b"Bearer dummy"}
            raw |= {name.encode(): value.encode("latin-1") for name, value in headers.items()}
            await http.post("/v1/chat/completions", json={"messages": HELLO}, headers=raw)
            answer = await http.request(method, path, json=body, headers=raw)
    assert controls(answer.text) == set()
    if answer.status_code >= 400:
        error = answer.json()["error"]
        assert controls(error if isinstance(error, str) else "".join(map(str, error.values()))) == set()
    assert (
        controls("".join(one.getMessage() for one in caplog.records if one.name.startswith("tito"))) == set()
    )


def test_an_error_s_text_and_field_are_printable() -> None:
    error = RequestRefused(400, "bad_request", f"{HOSTILE}: no", parameter=HOSTILE)
    assert controls(str(error)) == controls(error.parameter or "") == set()
    assert "\n" not in str(error)


def test_whatever_is_logged_is_one_line_of_printable_text(capsys: pytest.CaptureFixture[str]) -> None:
    loggers = [logging.getLogger(name) for name in ("tito", "uvicorn")]
    before = [(one.handlers, one.level) for one in loggers]
    try:
        configure_logs("info", access=False)
        LOG.error("session %s", HOSTILE, exc_info=ValueError(HOSTILE))
    finally:
        for logger, (handlers, level) in zip(loggers, before, strict=True):
            logger.handlers, logger.level = handlers, level
    lines = capsys.readouterr().err.splitlines()
    assert controls("".join(lines)) == set()
    assert " ERROR tito.serve: session " in lines[0]
    assert len(lines) > 1
    assert all(line.startswith("  ") for line in lines[1:])


@pytest.mark.whole
def test_a_gateway_s_log_has_none_of_them(tmp_path: Path) -> None:
    log = tmp_path / "log"
    options = ("--store", "memory", "--access-log", "--log-level", "debug")
    with started(*options, complaints=log) as process, httpx2.Client(base_url=process.url) as http:
        http.get(f"/{quote(HOSTILE)}")
        http.get(f"/sessions/{quote(HOSTILE)}/v1/models")
        body = {"messages": [user(HOSTILE)], "model": HOSTILE, "max_tokens": 5}
        headers = {"authorization": "Bearer dummy"}
        assert http.post("/v1/chat/completions", json=body, headers=headers).status_code == 200
        assert process.stop() == 0
    lines = log.read_text()
    assert controls(lines) == set()
    assert "\nWARNING" not in lines
