"""Requests as agents send them: accepted fields are counted and logged, bodies decoded, probes answered."""

from __future__ import annotations

import gzip
import logging
import re
import socket
import tracemalloc
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import httpx2
import orjson
import pytest
import zstandard
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from starlette.requests import Request

from tests.faults.fault import ROOT
from tests.io.embedded.embedded_client import WEATHER
from tests.io.serve.gateway import (
    HELLO,
    Scripted,
    Watched,
    client,
    embedded_gateway,
    limited,
    scripted_gateway,
    talking,
    user,
)
from tests.io.serve.gateway_process import started
from tito_io.embedded import TIDY
from tito_io.serve.app import app
from tito_io.serve.body import decoded
from tito_io.serve.gateway import GatewayOptions
from tito_io.serve.ignored import MOST, OTHER, IgnoredCounter
from tito_io.serve.metrics import Metrics
from tito_io.serve.refusals import GatewayLimits, RequestRefused
from tito_io.serve.store import StoreError

pytestmark = pytest.mark.anyio

BODY = {"messages": HELLO, "max_tokens": 3}
LIMIT = 100_000
RESPONSES = "/v1/responses"


def ignored(text: str) -> dict[tuple[str, str], float]:
    """Return the counts of accepted fields by API and name."""
    found = re.findall(r'tito_ignored_total\{dialect="(.+?)",name="(.+?)"\} (.+)', text)
    return {(dialect, name): float(count) for dialect, name, count in found}


async def test_fields_without_effect_are_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    secret = "secret words"  # noqa: S105  # of a conversation
    asked = {"input": secret, "client_metadata": {"key": secret}, "user": secret}
    async with talking() as talk:
        for _ in range(2):
            with caplog.at_level(logging.INFO, "tito.serve"):
                answer = await talk.post({**asked, "tools": [{"type": "web_search"}]}, "/v1/responses")
            assert answer.status_code == 200
    names = ("client_metadata", "tools[type=web_search]", "user")
    assert ignored(talk.metrics) == {("responses", name): 2 for name in names}
    lines = [one for one in caplog.records if " is accepted " in one.message]
    levels = ("WARNING", "WARNING", "INFO")
    assert [(one.levelname, one.message.split()[2]) for one in lines] == list(zip(levels, names, strict=True))
    assert "secret" not in talk.metrics + caplog.text


@pytest.mark.parametrize(
    ("path", "body", "dialect", "name"),
    [
        ("/v1/messages/count_tokens", {**BODY, "container": "c"}, "anthropic", "container"),
        ("/v1/responses", {"input": "hi", "client_metadata": {}}, "responses", "client_metadata"),
    ],
)
async def test_a_strict_gateway_refuses_what_others_count(
    path: str, body: dict[str, Any], dialect: str, name: str
) -> None:
    async with talking() as talk:
        assert (await talk.post(body, path)).status_code == 200
    assert ignored(talk.metrics) == {(dialect, name): 1}
    async with talking(choices=GatewayOptions(strict=True)) as strict:
        refused = await strict.post(body, path)
    assert (refused.status_code, name in refused.text) == (400, True)


@pytest.mark.parametrize("strict", [False, True])
async def test_template_arguments_that_no_template_reads_are_counted(strict: bool) -> None:
    """An unread one is a name that was misspelled, or meant for another model."""
    name = "chat_template_kwargs.enable_thinkin"
    async with talking(embedded_gateway(choices=GatewayOptions(strict=strict))) as talk:
        given = {"messages": True, "enable_thinkin": False}
        answer = await talk.post({**BODY, "chat_template_kwargs": given})
    assert answer.status_code == (400 if strict else 200)
    assert ignored(talk.metrics) == ({} if strict else {("chat", name): 1})
    assert not strict or answer.json()["error"]["param"] == name


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"a": nope}', "the body is not valid JSON at character 7: "),
        (b'{"model": "\xe9"}', "the body is not valid UTF-8 at byte 12; "),
        (b"null", "the body is null, and a JSON object is needed"),
        (b"[1]", "the body is a list, and a JSON object is needed"),
        (gzip.compress(b"{}", mtime=0), "; a compressed body needs a content-encoding"),
        (b'{"temperature": -3}', "temperature is -3: give a number that is not negative"),
        (b'{"top_p": 0}', "top_p is 0: give a number above 0, of at most 1"),
        (b'{"top_p": 9}', "top_p is 9: give a number above 0, of at most 1"),
        (b'{"top_k": 1.5}', "top_k is 1.5: give a whole number, 0 or -1 for no limit"),
        (b'{"top_k": -2}', "top_k is -2: give a whole number, 0 or -1 for no limit"),
        (b'{"top_k": true}', "top_k is True: give a number"),
        (b'{"temprature": 1}', "did you mean 'temperature'?"),
    ],
)
async def test_what_opens_no_session_is_told_where_and_what_it_is(body: bytes, words: str) -> None:
    async with client(scripted_gateway(Scripted())) as http:
        answer = await http.post("/sessions", content=body)
        for taken in ({"temperature": 0, "top_p": 1, "top_k": -1}, {"top_k": 3, "note": "n"}):
            assert (await http.post("/sessions", json=taken)).status_code == 200
        assert ignored((await http.get("/metrics")).text) == {("sessions", "note"): 1}
    assert (answer.status_code, words in answer.json()["error"]) == (400, True), answer.text


@pytest.mark.parametrize(
    "body",
    [
        *(b"[1]", b"{", b"\xff", b"", b'{"messages": null}', b'{"messages": []}', b'{"messages": [1]}'),
        b'{"messages": [{"content": "x"}]}',
        b'{"messages": [{"role": "user", "content": "x"}], "n": 0}',
        b'{"messages": [{"role": "user", "content": "x"}], "temperature": "hot"}',
    ],
)
async def test_malformed_chats_are_refused_in_words(body: bytes) -> None:
    async with talking() as talk:
        answer = await talk.post(body)
        assert (answer.status_code, bool(answer.json()["error"]["message"])) == (400, True)
        assert await talk.nodes() == []


@pytest.mark.parametrize("arguments", ["", '{"city": ', "[1", '{"a": NaN}'])
async def test_malformed_arguments_do_not_stop_a_session(arguments: str) -> None:
    function = {"name": "get_weather", "arguments": arguments}
    calls = [{"id": "a", "type": "function", "function": function}]
    called = {"role": "assistant", "content": None, "tool_calls": calls}
    result = {"role": "tool", "tool_call_id": "a", "content": "sunny"}
    async with talking(embedded_gateway(fault_rates=TIDY)) as talk:
        answer = await talk.post({"messages": [*HELLO, called, result], "tools": [WEATHER]})
        assert answer.status_code in (200, 400), answer.text  # a template may refuse what it cannot write
        await talk.chat([*HELLO, await talk.said(HELLO, tools=[WEATHER]), user()], tools=[WEATHER])
        forest = (await talk.session()).forest
    assert forest.nodes[-1].kind.name == "CONTINUES"


def test_names_that_clients_choose_are_bounded_in_number_and_length() -> None:
    counter = IgnoredCounter(Metrics())
    for place in range(3 * MOST):
        counter.count("chat", [f"{place}" + '"\n' + "x" * 1000])
    found = ignored(counter.metrics.text().decode())
    assert len(found) == MOST + 1
    assert found["chat", OTHER] == 2 * MOST
    longest = max(len(name) for _, name in found)
    page = (ROOT / "docs/reference/requests.md").read_text()
    assert f"at most {MOST} names of at most {longest} characters; all others count as `{OTHER}`" in page


# Bodies.


def raw_deflate(data: bytes) -> bytes:
    squeezer = zlib.compressobj(wbits=-15)
    return squeezer.compress(data) + squeezer.flush()


CODINGS: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "GZIP, two members": ("GZIP", lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:])),
    "zlib": ("deflate", zlib.compress),
    "raw deflate": ("deflate", raw_deflate),
    "zstd": ("zstd", zstandard.compress),
    "zstd, two frames": (
        "zstd",
        lambda data: zstandard.compress(data[:9]) + zstandard.compress(data[9:]),
    ),
    "none": ("identity", lambda data: data),
}


@pytest.mark.parametrize("name", CODINGS)
async def test_compressed_bodies_are_decoded(name: str) -> None:
    coding, squeeze = CODINGS[name]
    squeezed, headers = squeeze(orjson.dumps(BODY)), {"content-encoding": coding}
    async with talking() as talk:
        answer = await talk.post(squeezed, headers=headers)
        assert answer.status_code == 200, answer.text
        if name != "none":
            for body in (squeezed[:-2], squeezed[:-9], squeezed[:-9] + b"x" * 9, b"{}"):
                assert (await talk.post(body, headers=headers)).status_code == 400


PACKED = pytest.mark.parametrize(("coding", "squeeze"), [v for k, v in CODINGS.items() if k != "none"])


@PACKED
async def test_a_body_that_grows_too_long_is_refused(coding: str, squeeze: Callable[[bytes], bytes]) -> None:
    whole = orjson.dumps(BODY)
    async with talking(choices=limited(body_bytes=LIMIT)) as talk:
        for length, status in ((LIMIT, 200), (LIMIT + 1, 413), (400 * LIMIT, 413)):
            squeezed = squeeze(whole + b" " * (length - len(whole)))
            assert len(squeezed) < LIMIT
            assert (await talk.post(squeezed, headers={"content-encoding": coding})).status_code == status


def widely(data: bytes, log: int) -> bytes:
    """Return data packed with a window of 2**log bytes."""
    known = zstandard.ZstdCompressionParameters(window_log=log, write_content_size=False)
    squeezer = zstandard.ZstdCompressor(compression_params=known).compressobj()
    return squeezer.compress(data) + squeezer.flush()


async def test_a_window_of_zstd_is_bounded() -> None:
    """A few bytes may demand that much memory."""
    wide, headers = widely(orjson.dumps(BODY), 25), {"content-encoding": "zstd"}
    async with talking(choices=limited(body_bytes=LIMIT)) as talk:
        assert (await talk.post(wide, headers=headers)).status_code == 413
        assert (await talk.post(zstandard.compress(b" ") + wide, headers=headers)).status_code == 400


FRAME = b"\x28\xb5\x2f\xfd\x00%c\x11\x00\x00{}"


@pytest.mark.parametrize(
    ("packed", "taken"),
    [
        (widely(b"{}", 23), True),
        (widely(b"{}", 24), False),
        # RFC 8878, 3.1.1.1.2: a power of two and so many eighths of it.
        (FRAME % (23 - 10 << 3), True),
        (FRAME % ((23 - 10 << 3) + 1), False),
    ],
)
def test_a_window_of_zstd_is_as_wide_as_http_allows(packed: bytes, taken: bool) -> None:
    """RFC 9659: 8 MiB."""
    with nullcontext() if taken else pytest.raises(RequestRefused, match="at most 10 bytes"):
        assert decoded(packed, "zstd", 10) == b"{}"


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", " GZIP ", "deflate", "zstd", "identity", ""])
def test_a_body_may_be_just_as_long_as_the_limit(coding: str) -> None:
    name = coding.strip().lower().removeprefix("x-")
    packs: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "zstd": zstandard.compress}
    pack = (packs | {"deflate": zlib.compress}).get(name, bytes)
    assert decoded(pack(b"0123456789"), coding, 10) == b"0123456789"
    if name in ("gzip", "deflate", "zstd"):
        with pytest.raises(RequestRefused) as caught:
            decoded(pack(b"0123456789+"), coding, 10)
        assert caught.value.status == 413
        with pytest.raises(RequestRefused, match=f"the body is not valid {coding.strip().lower()}"):
            decoded(b"no", coding, 10)


@pytest.mark.parametrize("headers", [[], [(b"content-length", b"20")]])
async def test_a_request_may_be_just_as_long_as_the_limit(headers: list[tuple[bytes, bytes]]) -> None:
    """It may not say how long it is; what comes behind the limit is not read."""
    gateway = scripted_gateway(Scripted(), choices=limited(body_bytes=20))
    parts: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return parts.pop(0)

    async def read(*lengths: int) -> bytes:
        parts[:] = [
            {"type": "http.request", "body": b" " * length, "more_body": place < len(lengths)}
            for place, length in enumerate(lengths, 1)
        ]
        return await gateway.body(Request({"type": "http", "headers": headers}, receive))

    assert await read(1, 19) == b" " * 20
    with pytest.raises(RequestRefused, match="at most 20 bytes are read") as refused:
        await read(1, 20, 9)
    assert (refused.value.status, len(parts)) == (413, 1)


@PACKED
def test_what_is_too_long_is_not_decoded_whole(coding: str, squeeze: Callable[[bytes], bytes]) -> None:
    """A few bytes may stand for gigabytes."""
    packed = squeeze(bytes(64 << 20))
    tracemalloc.start()
    with pytest.raises(RequestRefused) as caught:
        decoded(packed, coding, LIMIT)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert caught.value.status == 413
    assert most < 16 << 20


async def test_an_unknown_encoding_is_named() -> None:
    async with talking() as talk:
        for coding in ("br", "gzip, gzip"):
            answer = await talk.post(b"x", "/v1/messages", headers={"content-encoding": coding})
            assert answer.status_code == 415
            text = answer.json()["error"]["message"]
            assert f"content-encoding '{coding}' is not read; use gzip, deflate or zstd" in text
            assert answer.headers["accept-encoding"] == "gzip, deflate, zstd"


# Probes.


async def test_a_model_is_found_by_its_name() -> None:
    async with talking(Scripted(room=99)) as talk:
        base = f"http://gateway/sessions/{talk.name}"
        openai = AsyncOpenAI(api_key="x", base_url=f"{base}/v1", http_client=talk.http)
        assert (await openai.models.retrieve("scripted")).id == "scripted"
        missing = await talk.http.get(f"{base}/v1/models/org/other")
        assert (missing.status_code, missing.json()["error"]["param"]) == (404, "model")
        assert "the only model is 'scripted'" in missing.json()["error"]["message"]
        card = (await talk.http.get("/v1/models/scripted")).json()
        listed = (await talk.http.get("/v1/models")).json()
        # Claude Code asks for it before its first request.
        assert (await talk.http.head("/")).status_code == 200
        assert (await talk.http.get("/")).json()["status"] == "ok"
    known = {"id": "scripted", "object": "model", "created": 0, "owned_by": "tito", "max_model_len": 99}
    assert card == known
    assert listed == {"object": "list", "data": [card]}


async def test_an_upgrade_is_refused_with_the_protocol_that_is_served() -> None:
    """As an option of this connection: RFC 9110, 15.5.22 and 7.6.1."""
    async with talking() as talk:
        headers = {"upgrade": "websocket", "connection": "upgrade"}
        answer = await talk.http.get("/v1/responses", headers=headers)
    told = (answer.status_code, answer.headers["upgrade"], answer.headers["connection"])
    assert told == (426, "HTTP/1.1", "upgrade")


@pytest.mark.whole
@pytest.mark.parametrize("in_session", [False, True])
def test_an_upgrade_to_a_websocket_is_answered_so_that_codex_uses_http(
    tmp_path: Path, in_session: bool
) -> None:
    """Codex goes on with POST at once after 426; after other answers it repeats the upgrade several times."""
    with started("--store", "memory", complaints=tmp_path / "log") as process:
        name = httpx2.post(f"{process.url}/sessions").json()["session_id"]
        upgrade = (
            f"GET {f'/sessions/{name}' if in_session else ''}/v1/responses HTTP/1.1\r\nhost: localhost\r\n"
            "connection: Upgrade\r\nupgrade: websocket\r\n"
            "sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        port = int(process.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as wire:
            wire.sendall(upgrade.encode())
            head, _, _ = wire.recv(65_536).partition(b"\r\n\r\n")
            first, *lines = head.decode().lower().splitlines()
            assert first.startswith("http/1.1 426 ")
            assert {"upgrade: http/1.1", "connection: upgrade"} <= set(lines)  # RFC 9110, 15.5.22 and 7.8
        assert process.stop() == 0
        assert process.warnings() == []  # uvicorn would advise to install a library


# Compaction.


@pytest.mark.parametrize("way", ["compact", "trigger", "streamed trigger"])
async def test_a_conversation_is_compacted_and_goes_on(way: str) -> None:
    async with talking(Scripted(text="They asked for the bridge.")) as talk:
        items: list[Any] = [user("Where is the bridge?")]
        first = (await talk.post({"input": items, "max_output_tokens": 9}, RESPONSES)).json()
        items += first["output"]
        body = {"input": items, "max_output_tokens": 12}
        if way == "compact":
            base = f"http://gateway/sessions/{talk.name}/v1"
            openai = AsyncOpenAI(api_key="x", base_url=base, http_client=talk.http)
            made = await openai.responses.compact(
                model="m", input=items, extra_body={"max_output_tokens": 12}
            )
            assert made.object == "response.compaction"
            output = [one.model_dump(exclude_none=True, warnings=False) for one in made.output]
        else:
            asked = {**body, "input": [*items, {"type": "compaction_trigger"}], "stream": way != "trigger"}
            answer = await talk.post(asked, RESPONSES)
            lines = [line for line in answer.text.splitlines() if line.startswith("data: ")]
            whole = orjson.loads(lines[-1][6:])["response"] if lines else answer.json()
            assert answer.status_code == 200, answer.text
            output = [items[0], *whole["output"]]
        kinds = [one.get("type", one.get("role")) for one in output]
        assert kinds == ["message" if way == "compact" else "user", "compaction"]
        assert 'tito_turns_total{dialect="responses",route="TITO"} 1.0' in talk.metrics  # the summary's turn
        after = await talk.post({**body, "input": [*output, user("So?")]}, RESPONSES)
        assert after.status_code == 200
        shown = (await talk.get()).json()["records"]
    told = shown[-1]["request"]["messages"][1]["content"]
    assert told.startswith("The conversation so far was replaced by this summary")
    assert told.endswith("They asked for the bridge.")


async def test_requests_as_the_sdks_of_agents_send_them() -> None:
    """What Claude Code 2.1 and Codex 0.169 send beside messages."""
    async with talking(embedded_gateway()) as talk:
        claude = AsyncAnthropic(api_key=talk.name, base_url="http://gateway", http_client=talk.http)
        said = await claude.beta.messages.create(
            model="claude-opus-4-8",
            max_tokens=9,
            messages=[{"role": "user", "content": "hi"}],
            thinking={"type": "adaptive"},
            context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
            output_config={"effort": "high"},
            metadata={"user_id": "u"},
        )
        assert said.role == "assistant"
        tools: list[Any] = [
            {"type": "web_search", "external_web_access": False},
            {"type": "namespace", "name": "agents", "description": "Agents.", "tools": []},
        ]
        extra = {"client_metadata": {"a": "b"}, "prompt_cache_key": "k"}
        openai = AsyncOpenAI(api_key=talk.name, base_url="http://gateway/v1", http_client=talk.http)
        stream = await openai.responses.create(
            model="m",
            input="hi",
            tools=tools,
            stream=True,
            store=False,
            max_output_tokens=9,
            extra_body=extra,
        )
        assert [one.type async for one in stream][-1] in ("response.completed", "response.incomplete")


@pytest.mark.whole
async def test_a_body_in_parts_of_one_byte_takes_no_more_than_a_whole_one() -> None:
    """A client chooses the parts, and a list of them would take eight times the limit."""
    gateway = scripted_gateway(Scripted(), choices=limited(body_bytes=LIMIT))
    left = LIMIT

    async def receive() -> dict[str, Any]:
        nonlocal left
        left -= 1
        return {"type": "http.request", "body": b" ", "more_body": left > 0}

    tracemalloc.start()
    try:
        assert len(await gateway.body(Request({"type": "http", "headers": []}, receive))) == LIMIT
        assert tracemalloc.get_traced_memory()[1] < 3 * LIMIT
    finally:
        tracemalloc.stop()


DEEP = b"[" * 1000 + b"]" * 1000


@pytest.mark.parametrize(
    "field", ["messages", "tools", "metadata", "stop", "chat_template_kwargs", "content", "arguments"]
)
async def test_what_nests_deeply_is_the_client_s_error(field: str) -> None:
    """The JSON reader takes a thousand levels, which Python's own functions do not walk through."""
    body: dict[str, Any] = {**BODY, field: [{"a": 1}]}
    if field == "content":
        body = {**BODY, "messages": [{"role": "user", "content": "deep"}]}
    if field == "arguments":
        function = {"name": "f", "arguments": "deep"}
        calls = [{"id": "a", "type": "function", "function": function}]
        body = {**BODY, "messages": [*HELLO, {"role": "assistant", "tool_calls": calls}]}
    text = orjson.dumps(body).replace(b'"deep"', DEEP).replace(b'[{"a":1}]', DEEP)
    assert DEEP in text
    async with talking() as talk:
        answer = await talk.http.post(f"/sessions/{talk.name}/v1/chat/completions", content=text)
        assert answer.status_code in {200, 400}, answer.text


@pytest.mark.parametrize("levels", [241, 1000])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages/count_tokens", "/samples"])
async def test_a_field_that_nests_too_deep_is_named_before_anything_is_sampled(
    path: str, levels: int
) -> None:
    """The JSON writer takes 254 levels, so that a turn with such a field could not be stored."""

    def nested(count: int) -> bytes:
        whole = orjson.dumps({**BODY, "metadata": {"a": "deep"}})
        return whole.replace(b'"deep"', b"[" * (count - 1) + b"]" * (count - 1))

    async with talking() as talk:
        answer = await talk.post(nested(levels), path)
        assert (answer.status_code, talk.engine.asked) == (400, [])
        assert "metadata nests its values more than 240 levels deep; flatten it" in answer.text
        assert (await talk.post(nested(240))).status_code == 200  # as deep as it may, it is stored
        text = b'{"messages": ' + b"[" * 1500 + b"]" * 1500 + b"}"
        unread = (await talk.post(text)).json()["error"]["message"]
    assert unread == "the body nests too deep at character 1038: flatten it"


async def test_the_embedded_engine_reads_no_tools_of_a_list_that_nests_too_deep() -> None:
    """Its sampler reads the tools that a prompt shows, and a system text may look like them."""
    system = {"role": "system", "content": f"<tools>\n{'[' * 1500}{']' * 1500}\n</tools>"}
    async with talking(embedded_gateway()) as talk:
        answer = await talk.post({"messages": [system, *HELLO], "max_tokens": 3})
    assert answer.status_code == 200, answer.text


SENT: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO, "tools": []},
    "/v1/messages": {"messages": HELLO, "system": "s", "max_tokens": 5},
    "/v1/responses": {"input": HELLO, "instructions": "s", "max_output_tokens": 5},
    "/v1/models/m:generateContent": {
        "contents": [{"parts": [{"text": "a"}]}],
        "systemInstruction": {"parts": [{"text": "s"}]},
        "generationConfig": {"maxOutputTokens": 5},
    },
}


@pytest.mark.parametrize("path", SENT)
async def test_what_is_kept_of_a_request_repeats_no_message(path: str) -> None:
    async with talking() as talk:
        answer = await talk.post({"model": "m", **SENT[path]}, path)
        assert answer.status_code == 200, answer.text
        (commit,) = await talk.commits()
    kept = {"model", "max_tokens", "max_output_tokens", "generationConfig"}
    assert set(commit.origin.request) == {"model", *SENT[path]} & kept


async def test_a_stream_s_headers_keep_proxies_from_collecting_it() -> None:
    async with talking() as talk:
        body = {"messages": HELLO, "stream": True}
        answer = await talk.post(body)
    assert dict(answer.headers) == {
        "content-type": "text/event-stream; charset=utf-8",
        "cache-control": "no-cache",
        "x-accel-buffering": "no",
        "x-tito-session": talk.name,
    }


@pytest.mark.parametrize(
    ("body", "status", "more"),
    [
        ({"messages": HELLO}, 200, {}),
        ({"messages": 7}, 400, {}),
        ({"messages": HELLO, "input_ids": [1]}, 400, {"x-should-retry": "false"}),
    ],
)
async def test_an_answer_in_one_piece_says_how_long_it_is(
    body: dict[str, Any], status: int, more: dict[str, str]
) -> None:
    async with talking() as talk:
        answer = await talk.post(body)
    assert answer.status_code == status, answer.text
    assert dict(answer.headers) == {
        "content-type": "application/json",
        "content-length": str(len(answer.content)),
        "x-tito-session": talk.name,
        **more,
    }


@pytest.mark.parametrize("turns", [1, 2])
async def test_a_prompt_may_have_just_so_many_turns(turns: int) -> None:
    said = {"role": "assistant", "content": "a"}
    async with talking(choices=limited(turns=turns)) as talk:
        found = [
            await talk.post({"messages": [*HELLO, *[said, *HELLO] * count]})
            for count in (turns - 1, turns, turns + 1)
        ]
    assert [one.status_code for one in found] == [200, 200, 429]
    words = f"assistant messages in this prompt: {turns + 1}, and at most {turns}; raise --max-turns"
    assert words in found[-1].text


@pytest.mark.parametrize(("most", "status"), [(20, 200), (19, 431)])
async def test_headers_may_be_just_as_long_as_the_limit(most: int, status: int) -> None:
    choices = GatewayOptions(limits=GatewayLimits(header_bytes=most))
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"a" * 7, b"b" * 3), (b"c" * 4, b"d" * 6)]
    scope = {"type": "http", "method": "GET", "path": "/health", "query_string": b"", "headers": headers}
    await app(scripted_gateway(Scripted(), choices=choices))(scope, receive, send)
    assert sent[0]["status"] == status
    if status == 431:
        said = "the headers have 20 bytes, and at most 19 are read"
        assert orjson.loads(sent[1]["body"]) == {"error": said, "code": "limit_reached"}


async def test_all_parts_are_closed_at_the_end() -> None:
    closed: list[str] = []

    def noting(name: str) -> Any:
        async def close() -> None:
            await anyio.lowlevel.checkpoint()  # a part that is closed may wait, for its server or a thread
            closed.append(name)

        return SimpleNamespace(aclose=close)

    engine = Scripted()
    gateway = scripted_gateway(
        engine, backend=noting("backend"), choices=GatewayOptions(spans=noting("spans"))
    )
    gateway.turns.fetcher = noting("fetcher")
    await gateway.sessions.store.create("a" * 32, b"head")
    async with app(gateway).router.lifespan_context(app(gateway)):
        assert (closed, engine.name) == ([], "scripted")
        assert await gateway.sessions.store.count() == 1
    assert sorted(closed) == ["backend", "fetcher", "spans"]
    assert engine.name == "closed"
    with pytest.raises(StoreError, match="closed"):
        await gateway.sessions.store.count()


async def test_sessions_are_maintained_while_it_is_served() -> None:
    store = Watched()
    application = app(scripted_gateway(Scripted(), store))
    async with application.router.lifespan_context(application):
        with anyio.fail_after(5):
            while not store.calls["sweep"]:  # noqa: ASYNC110  # it has no event for this
                await anyio.sleep(0.001)
