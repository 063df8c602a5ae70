"""The command: what it refuses it names, and what it serves it says where."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import attrs
import click
import httpx2
import pytest
from click.testing import CliRunner, Result

from tests.io.serve.gateway import CHAT, HELLO, chat, failing, opened, served, user
from tests.io.serve.gateway_process import started, started_beside
from tito_core import Forgiveness, InputError, OddStop, Policy, Truncated
from tito_io.cli.errors import BAD_INPUT, ENGINE_FAILED
from tito_io.embedded import MODEL, family
from tito_io.embedded import app as embedded_app
from tito_io.engines.aborted_turns import OnAbort
from tito_io.extras import install
from tito_io.llamacpp_server.settings import ServerSettings
from tito_io.serve import command, logs, server
from tito_io.serve.client_noise import NoiseRule, option_name, parse_rules
from tito_io.serve.command import serve
from tito_io.serve.gateway import Gateway, GatewayOptions
from tito_io.serve.refusals import MIB, GatewayLimits
from tito_io.serve.sqlite import SqliteStore
from tito_io.serve.store import StoreError
from tito_io.serve.stores import MemoryStore
from tito_io.serve.text_check import OnOtherText

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """Return the backend that uvicorn knows."""
    return "asyncio"


def run(*options: str) -> Result:
    """Run the command on any free port, unless the options name one."""
    return CliRunner().invoke(serve, ["--port", "0", *options])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--store", "mysql:x"], "--store"),
        (["--forgive", "everything"], "--forgive 'everything'"),
        (["--strip-system", "("], "--strip-system"),
        (["--strip-system", "(", "--store", "sqlite:/nowhere/at/all/s.db"], "--strip-system"),
        (["--trusted-host", "a/b", "--store", "sqlite:/nowhere/at/all/s.db"], "--trusted-host"),
        (["--engine", "vllm"], "--base-url"),
        (["--engine", "dynamo", "--base-url", "http://127.0.0.1:1"], "--family"),
        (["--base-url", "http://127.0.0.1:1"], "embedded"),
        (["--family", "/nowhere"], "/nowhere"),
        (["--store", "sqlite:/nowhere/at/all/s.db"], "there is no folder /nowhere/at/all; make it"),
        (["--store", "sqlite:/proc/s.db"], "--store sqlite:/proc/s.db: no file can be made in /proc ("),
        (["--store", "sqlite:/"], "--store sqlite:/: this is a folder; name a file in it"),
        (["--store", "sqlite:."], "--store sqlite:.: this is a folder"),
        (["--store", "memory", "--durable"], "--durable is about the file of --store sqlite:PATH"),
        (["--store", "redis://127.0.0.1:1", "--durable"], "--durable is about"),
        (["--trusted-host", "http://tito"], "--trusted-host 'http://tito': give a host name alone"),
        (["--fast"], "--fast: without the model's folder nothing is encoded here"),
        (["--keys", __file__, "--share-keys"], "--share-keys: with --keys no API key names a session"),
        (
            ["--engine", "vllm", "--base-url", "http://127.0.0.1:1", "--special-tokens", "keep"],
            "give --family",
        ),
        (
            ["--engine", "vllm", "--base-url", "http://127.0.0.1:1", "--special-tokens", "text"],
            "give --family",
        ),
        (
            ["--engine", "vllm", "--base-url", "http://127.0.0.1:1", "--on-other-text", "raise"],
            "without the model's folder no text is compared; give --family",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(options: list[str], said: str, tmp_path: Path) -> None:
    found = run(*(["--store", f"sqlite:{tmp_path / 's.db'}"] if "--store" not in options else []), *options)
    assert found.exit_code == BAD_INPUT, found.output
    (line,) = found.stderr.splitlines()
    assert line.startswith("tito: ")
    assert said in line


def test_a_library_that_is_missing_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("gateway", "metrics"):
        monkeypatch.delitem(sys.modules, f"tito_io.serve.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    found = run("--store", "memory")
    assert found.exit_code == BAD_INPUT, found.output
    assert found.stderr == f"tito: prometheus_client is missing: {install('serve')}\n"


def test_the_help_needs_no_library_of_the_server() -> None:
    missing = ("prometheus_client", "uvicorn", "starlette")
    code = f"import sys; sys.modules.update(dict.fromkeys({missing}))\n"
    code += "from tito_io.serve.command import serve; serve(['--help'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "--max-body" in done.stdout


def test_a_store_that_is_away_is_trouble() -> None:
    port = free_port()
    found = run("--store", f"redis://:secret@127.0.0.1:{port}/0")
    assert found.exit_code == ENGINE_FAILED, found.output
    (line,) = found.stderr.splitlines()
    said = "the store failed: ConnectionError; check that the Redis server runs"
    assert line == f"tito: --store redis://127.0.0.1:{port}: {said}"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


async def test_an_engine_that_is_not_there_yet_is_waited_for(tmp_path: Path) -> None:
    """It is told of in a line; until it is there turns are an outage, and then they are answered."""
    port = free_port()
    options = ("--engine", "vllm", "--base-url", f"http://127.0.0.1:{port}", "--store", "memory")
    async with started_beside(*options, complaints=tmp_path / "complaints") as (process, http):
        name = await opened(http)
        early = await http.post(f"/sessions/{name}{CHAT}", json={"messages": HELLO})
        assert (early.status_code, early.json()["error"]["code"]) == (503, "engine_unreachable")
        assert (await http.get("/v1/models")).status_code == 503
        async with served(embedded_app(), port=port):
            answer = await chat(http, name, HELLO, max_tokens=5)
            assert answer["model"] == MODEL
            assert (await http.get("/v1/models")).json()["data"][0]["id"] == MODEL
    line, *_ = process.warnings()
    assert line.startswith(f"tito: GET http://127.0.0.1:{port}/v1/models: nothing answers")
    assert "once it is there" in line


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "--keys"),
        (b"\n \n", "there is no key in it"),
        ("fine\n\n\u2603\n".encode(), "line 3 has characters that no header carries"),
        (b"key\n\x94", "is no UTF-8 text, at byte 4"),
        # A key that is longer could never match, and a comment would be a key that many know.
        (b"k" * 256 + b"\n# of Alice\n", "line 2 is no key: comments and spaces are not taken"),
        (b"k" * 256 + b"\nher-key  # of Alice\n", "line 2 is no key"),
        (b"k" * 256 + b"\n" + b"k" * 257, "line 2 has 257 characters, and a key has at most 256"),
    ],
)
def test_a_line_that_is_no_key_is_refused(tmp_path: Path, content: bytes | None, said: str) -> None:
    if content is not None:
        (tmp_path / "keys").write_bytes(content)
    for place in ("keys", *(["."] if content is None else [])):
        # A store of an unknown kind: were the keys taken, it would end there, and not serve.
        found = run("--keys", str(tmp_path / place), "--store", "nowhere")
        assert (found.exit_code, said in found.output) == (BAD_INPUT, True), found.output


def test_what_every_request_needs_cannot_be_ignored() -> None:
    found = run("--ignore", "user", "--ignore", "messages", "--store", "memory")
    assert found.exit_code == BAD_INPUT
    assert "ignore: without 'messages' requests cannot be answered; leave it out" in found.stderr


def test_the_help_says_what_there_is() -> None:
    found = run("--help")
    assert found.exit_code == 0
    assert run("-h").output == found.output
    flat = "".join(found.output.split())  # lines are broken at hyphens too
    for option in serve.params:
        assert isinstance(option, click.Option)
        assert option.help, option.name
    for word in ("redis://HOST:PORT", "renamed-tool-ids", "--durable", "Exitstatus", "130itwasinterrupted"):
        assert word in flat
    for word in ("memory:", "sqlite:PATH:", "debug:", "keep:", "off:none", "ids:", "later:", "older:"):
        assert word in flat
    for name in parse_rules(["default"]):
        words = name.says if isinstance(name, Forgiveness) else name.value
        assert f"{option_name(name)}: {words}.".replace(" ", "") in flat
    units = {"body": "MIB", "media": "MIB", "idle": "SECONDS"}
    for limit in (*LIMITS, "idle"):
        assert f"--max-{limit}{units.get(limit, 'COUNT')}" in flat
    for word in ("--drainSECONDS", "--hostADDRESS", "--keysFILE", "--ignoreFIELD", "--strip-systemREGEX"):
        assert word in flat
    assert "default:allofthese" in flat
    assert "none:ignorenothing" in flat


@pytest.mark.parametrize(
    ("flag", "values"),
    [
        ("--log-level", ["debug", "info", "warning", "error"]),
        ("--spans", ["off", "turns", "ids"]),
        ("--wire", ["later", "older"]),
        ("--special-tokens", ["text", "keep"]),
        ("--on-abort", ["raise", "resume"]),
        ("--on-other-text", ["notice", "raise"]),
        ("--tools-when-tool-choice-none", ["keep", "exclude"]),
        ("--truncated", ["close", "refuse"]),
        ("--odd-stop", ["keep", "replace", "refuse"]),
    ],
)
def test_an_option_takes_these_values(flag: str, values: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for value in values:
        assert getattr(given(monkeypatch, flag, value), flag[2:].replace("-", "_")) == value
    refused = run(flag, "other")
    assert refused.exit_code == BAD_INPUT
    assert all(f"'{value}'" in refused.output for value in values)


@pytest.mark.parametrize(
    ("flag", "least", "beyond"),
    [
        *((flag, "0", ("-1", "nan")) for flag in ("--drain", "--check-every")),
        ("--max-idle", "0.1", ("-1", "nan")),
        ("--port", "0", ("-1", "nan", "65536")),
        ("--port", "65535", ("65536",)),
    ],
)
def test_a_number_has_a_least_value(
    flag: str, least: str, beyond: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert str(getattr(given(monkeypatch, flag, least), flag[2:].replace("-", "_"), least)) == least
    for value in beyond:
        assert run(flag, value).exit_code == BAD_INPUT


def test_it_says_where_it_listens_and_stops_when_it_is_told_to(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("its-key\n")
    store = f"sqlite:{tmp_path / 's.db'}"
    with started("--store", store, "--keys", str(tmp_path / "keys"), "--wire", "older") as process:
        with httpx2.Client(base_url=process.url) as http:
            assert http.post("/sessions").status_code == 401
            name = http.post("/sessions", headers={"x-api-key": "its-key"}).json()["session_id"]
            body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
            path, key = f"/sessions/{name}/v1/chat/completions", {"x-api-key": name}
            assert "meta_info" in http.post(path, json=body, headers=key).json()["choices"][0]
        assert process.stop() == 0
    with started("--store", store) as process, httpx2.Client(base_url=process.url) as http:
        assert len(http.get(f"/sessions/{name}").json()["records"]) == 1
        assert process.stop() == 0


def test_headers_are_limited() -> None:
    with started("--store", "memory") as process, httpx2.Client(base_url=process.url) as http:
        for size in (40_000, 400_000):  # one comes whole, the other in parts
            assert http.get("/health", headers={"x-long": "x" * size}).status_code in (400, 431)
        assert http.get("/health").status_code == 200
        assert process.stop() == 0


async def test_an_engine_that_was_started_without_sampling_masks_ends_it_at_the_start() -> None:
    async with served(embedded_app()) as url:
        options = ("--engine", "vllm", "--base-url", url, "--store", "memory", "--sampling-masks")
        found = await anyio.to_thread.run_sync(run, *options)
    assert found.exit_code == BAD_INPUT, found.output
    assert found.stderr.startswith("tito: --sampling-masks: the server sends none: ")
    assert "of the turn" not in found.stderr  # there was none
    assert "--return-sampling-mask --logprobs-mode processed_logprobs" in found.stderr


async def test_an_engine_somewhere_else_is_named_by_its_address(tmp_path: Path) -> None:
    """The embedded engine behind a socket answers as a vLLM server does."""
    async with served(embedded_app()) as url:
        options = ("--engine", "vllm", "--base-url", f"{url}/v1", "--store", f"sqlite:{tmp_path / 's.db'}")
        async with started_beside(*options) as (_, http):
            name, messages, last = await opened(http), list(HELLO), list[int]()
            for _ in range(4):
                answer = await chat(http, name, messages, max_tokens=30, return_token_ids=True)
                assert answer["prompt_token_ids"][: len(last)] == last
                last = answer["prompt_token_ids"] + answer["choices"][0]["token_ids"]
                messages = [*messages, answer["choices"][0]["message"], user()]
            listed = (await http.get(f"/sessions/{name}/v1/models")).json()["data"]
            assert listed[0]["id"] == MODEL
            told = await http.post(f"/sessions/{name}/tokenize", json={"model": MODEL, "prompt": "a"})
            assert told.json()["count"] == 1


def test_one_file_has_one_gateway(tmp_path: Path) -> None:
    store = f"sqlite:{tmp_path / 's.db'}"
    with started("--store", store) as process:
        found = run("--store", store)
        assert found.exit_code == BAD_INPUT
        assert "another gateway" in found.stderr
        process.kill()
    with started("--store", store) as process:  # a killed one's lock is no lock
        assert process.stop() == 0


@pytest.mark.parametrize(
    ("host", "said"),
    [
        (
            "127.0.0.1",
            "port {port} is in use: stop what listens on {host}:{port}, or choose another --port",
        ),
        (
            "192.0.2.1",  # for documentation: no machine has it
            "{host}:{port} cannot be listened on: {why}; choose another --host or --port",
        ),
    ],
)
def test_an_address_that_cannot_be_had_is_bad_input_and_leaves_no_files(
    host: str, said: str, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        store = f"sqlite:{tmp_path / 'sessions.db'}"
        done = program("-m", "tito_io", "serve", "--host", host, "--port", port, "--store", store)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line == "tito: " + said.format(host=host, port=port, why=os.strerror(errno.EADDRNOTAVAIL))
    assert not [*tmp_path.iterdir()]


def program(*words: str) -> subprocess.CompletedProcess[str]:
    """Run Python to its end."""
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, timeout=60)


def begun(monkeypatch: pytest.MonkeyPatch, *options: str) -> tuple[Gateway, list[Any]]:
    """Return a gateway that is served nowhere, and what was told to the logs and to the server."""
    found: list[Any] = []

    async def instead(gateway: Gateway, *_: object, **told: object) -> None:
        found.extend((gateway, told))

    monkeypatch.setattr(server, "serve", instead)
    monkeypatch.setattr(logs, "configure_logs", lambda *args, **named: found.append((args, named)))
    done = run(*options)
    assert done.exit_code == 0, done.output
    told, gateway, served = found
    return gateway, [told, served]


INTERRUPTED_THERE = """
import signal
from tito_io.serve import command
import {module} as module
signal.signal(signal.SIGINT, signal.default_int_handler)

def interrupting(done):
    async def asynchronous(*args, **options):
        found = await done(*args, **options)
        signal.raise_signal(signal.SIGINT)
        return found

    def at_once(*args, **options):
        signal.raise_signal(signal.SIGINT)
        return done(*args, **options)

    return {manner}

module.{name} = interrupting(module.{name})
import sys
from tito_io.cli.main import main
sys.argv[1:] = ["serve", "--store", "memory", "--port", "0"]
main()
"""


@pytest.mark.parametrize(
    ("module", "name", "manner", "status"),
    [
        ("tito_io.serve.command", "gateway_of", "asynchronous", 130),
        ("tito_io.serve.server", "check_address", "at_once", 130),
        ("tito_io.serve.server", "uvicorn.Server.startup", "at_once", 0),
        ("tito_io.serve.server", "uvicorn.Server.startup", "asynchronous", 0),
    ],
)
def test_an_interrupt_at_the_start_ends_it_without_a_trace(
    module: str, name: str, manner: str, status: int
) -> None:
    """Before it listens nothing has begun, and the interrupt is told; from then on it was told to stop."""
    program = INTERRUPTED_THERE.format(module=module, name=name, manner=manner)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (status, "tito: interrupted\n" if status else "")
    assert done.stdout.startswith("http://") == (status == 0)


def test_it_prints_what_it_serves_and_where(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("its-key\n")
    options = ("--store", "memory", "--keys", str(tmp_path / "keys"), "--drain", "7")
    with started(*options, complaints=tmp_path / "complaints") as process:
        url = process.url
        assert process.process.stdout is not None
        lines = [process.process.stdout.readline().rstrip("\n") for _ in range(9)]
        assert process.stop() == 0
        assert process.warnings() == []
    assert lines == [
        "  engine     embedded in this process",
        f"  model      {MODEL}",
        "  store      memory, sessions end with the process",
        f"  keys       from {tmp_path / 'keys'}",
        lines[4],  # how many connections, and of how many open files
        f"  session    POST {url}/sessions gives its ID; then point agents to",
        f"  OpenAI     base URL {url}/sessions/ID/v1",
        f"  Anthropic  base URL {url}/sessions/ID, also for Google's clients",
        "  stop       Ctrl-C or SIGTERM; turns in flight get 7 s; Ctrl-C twice stops at once",
    ]


@pytest.mark.parametrize(
    ("options", "synchronous"), [([], 1), (["--durable"], 2)]
)  # SQLite's NORMAL and FULL
def test_a_durable_store_waits_for_the_disk(
    options: list[str], synchronous: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway, _ = begun(monkeypatch, "--store", f"sqlite:{tmp_path / 's.db'}", *options)
    store = gateway.sessions.store
    assert isinstance(store, SqliteStore)
    assert store.db.execute("PRAGMA synchronous").fetchall() == [(synchronous,)]
    anyio.run(store.aclose)


LIMITS = ("body", "turns", "nodes", "tokens", "images", "media", "sessions", "calls")


def test_limits_begin_at_one(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"--max-{name}" for name in LIMITS]
    gateway, _ = begun(monkeypatch, "--store", "memory", *(word for name in names for word in (name, "1")))
    limits = gateway.options.limits
    assert (limits.body_bytes, limits.media_bytes) == (MIB, MIB)
    assert (limits.turns, limits.nodes, limits.tokens, limits.images) == (1, 1, 1, 1)
    assert (limits.sessions, limits.calls) == (1, 1)
    for name in names:
        refused = run("--store", "memory", name, "0")
        assert (refused.exit_code, name in refused.output) == (2, True)


def given(monkeypatch: pytest.MonkeyPatch, *options: str) -> command.ServeOptions:
    """Return what options come to."""
    found: list[command.ServeOptions] = []

    def instead(settings: ServerSettings | None, chosen: command.ServeOptions) -> int:
        assert settings is None
        found.append(chosen)
        return 0

    monkeypatch.setattr(command, "_run", instead)
    done = CliRunner().invoke(serve, list(options))
    assert done.exit_code == 0, done.output
    return found[0]


def test_defaults_are_those_of_the_help(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are the library's, see below."""
    options = given(monkeypatch)
    assert (options.engine, options.host, options.port) == ("embedded", "127.0.0.1", 8010)
    assert (options.store, options.timeout, options.drain) == ("sqlite:tito-sessions.db", 600.0, 30)
    assert (options.log_level, options.spans, options.wire, options.seed) == ("warning", "off", "later", 0)
    off = ("fast", "durable", "verbose", "access_log", "base_url", "model", "api_key", "vocab_size", "family")
    assert not any(getattr(options, name) for name in (*off, "keys", "special_tokens", "on_other_text"))
    assert options.tools_when_tool_choice_none is None
    assert options.limits == GatewayLimits(
        body_bytes=64 * MIB,
        header_bytes=32_768,
        turns=4_096,
        nodes=16_384,
        tokens=16_000_000,
        images=999,
        media_bytes=256 * MIB,
        sessions=100_000,
        idle_seconds=86_400.0,
        loaded_seconds=600.0,
        calls=256,
    )


async def test_the_command_s_defaults_are_the_library_s(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = await command.gateway_of(given(monkeypatch, "--store", "memory"))
    assert gateway.options == GatewayOptions()
    assert (gateway.backend, gateway.turns.model, gateway.decode is None) == (None, MODEL, False)


async def test_each_option_is_a_choice_of_the_gateway(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "keys").write_text("\ufeffone\n\n two \n")
    words = "--engine vllm --base-url http://127.0.0.1:1/v1 --model m --api-key k --store memory --strict"
    words += f" --keys {tmp_path / 'keys'} --trusted-host a --trusted-host b --ignore x --ignore y"
    words += " --forgive developer --forgive dropped-reasoning --strip-system ^a --strip-system b$"
    words += " --truncated refuse --odd-stop replace --on-abort resume --check-every 3 --wire older"
    words += " --one-sample --fetch-images --spans turns --max-body 2 --max-turns 3 --max-nodes 4"
    words += " --max-tokens 5 --max-media 6 --max-images 10"
    words += " --max-sessions 7 --max-calls 8 --max-idle 9.5"
    words += " --max-connections 11 --header-timeout 1.5 --body-timeout 2.5"
    words += " --max-containers 12 --max-scalars 13 --max-messages 14"
    options = given(monkeypatch, *words.split())
    gateway = await command.gateway_of(options)
    assert gateway.options.spans is not None
    assert not gateway.options.spans.with_ids
    assert attrs.evolve(gateway.options, spans=None) == GatewayOptions(
        limits=GatewayLimits(
            body_bytes=2 * MIB,
            turns=3,
            nodes=4,
            tokens=5,
            images=10,
            media_bytes=6 * MIB,
            sessions=7,
            calls=8,
            idle_seconds=9.5,
            connections=11,
            containers=12,
            scalars=13,
            messages=14,
            header_seconds=1.5,
            body_seconds=2.5,
        ),
        forgive=(NoiseRule.DEVELOPER, Forgiveness.DROPPED_REASONING),
        strip_system=("^a", "b$"),
        policy=Policy(truncated=Truncated.REFUSE, odd_stop=OddStop.REPLACE),
        on_abort=OnAbort.RESUME,
        check_every=3,
        keys=("one", "two"),
        trusted_hosts=("a", "b"),
        ignore=frozenset(("x", "y")),
        strict=True,
        one_sample=True,
        later_wire=False,
        fetch_images=True,
    )
    assert (gateway.turns.model, gateway.turns.sampler.check_every) == ("m", 3)
    assert gateway.turns.sampler.on_abort is OnAbort.RESUME
    assert gateway.backend is not None
    assert str(gateway.backend.client.base_url) == "http://127.0.0.1:1"
    assert gateway.backend.client.headers["authorization"] == "Bearer k"
    words = "--share-keys --special-tokens keep --on-other-text raise --store memory --spans ids"
    served_too = given(monkeypatch, *words.split())
    shared = (await command.gateway_of(served_too)).options
    assert (shared.share_keys, shared.guarded, shared.on_other_text) == (True, False, OnOtherText.RAISE)
    for value, keeps in (("keep", True), ("exclude", False)):
        chosen = given(monkeypatch, "--store", "memory", "--tools-when-tool-choice-none", value)
        assert (await command.gateway_of(chosen)).turns.keeps_forbidden_tools is keeps
    assert shared.spans is not None
    assert shared.spans.with_ids


async def test_a_model_that_is_loaded_already_is_not_loaded_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It renders prompts, wherever `--family` says that it came from, and the engine gets it, too."""
    here = family()
    given_too = given(monkeypatch, "--store", "memory", "--family", str(tmp_path), "--fast")
    options = attrs.evolve(given_too, loaded=here)
    for named in (options, attrs.evolve(options, family=None)):
        gateway = await command.gateway_of(named)
        assert gateway.decode == here.decode
        assert gateway.turns.guard is not None
        assert gateway.turns.guard.family.path == here.path


async def test_a_store_that_does_not_answer_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Away(MemoryStore):
        closed = False

        async def aclose(self) -> None:
            Away.closed = True

    monkeypatch.setattr(Away, "check", failing(StoreError("the store failed")))
    monkeypatch.setattr(command, "open_store", lambda *_, **__: Away())
    with pytest.raises(StoreError):
        await command.gateway_of(given(monkeypatch))
    assert Away.closed


@pytest.mark.parametrize(
    ("options", "level", "access"),
    [
        ([], "warning", False),
        (["-v"], "info", False),
        (["-v", "--log-level", "debug"], "debug", False),
        (["-v", "--log-level", "error"], "info", False),
        (["--log-level", "error", "--access-log"], "error", True),
    ],
)
def test_how_much_is_logged(
    options: list[str], level: str, access: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ("--store", "memory", "--host", "localhost", "--port", "7", "--drain", "9")
    _, told = begun(monkeypatch, *place, *options)
    assert told[1].pop("bounds").served <= 8192  # as open files allow
    assert told == [((level,), {"access": access}), {"host": "localhost", "port": 7, "drain_seconds": 9}]


def test_a_gguf_file_is_served_as_the_options_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    @contextmanager
    def lent(settings: ServerSettings, **options: object) -> Iterator[dict[str, object]]:
        seen.extend((settings.file, options))
        yield {"base_url": "http://127.0.0.1:1"}
        seen.append("stopped")

    async def instead(options: command.ServeOptions) -> int:
        seen.append((options.base_url, options.check_every))
        return 0

    monkeypatch.setattr(command, "local_engine", lent)
    monkeypatch.setattr(command, "_serve", instead)
    (tmp_path / "model.gguf").write_bytes(b"")
    done = run("--gguf", str(tmp_path / "model.gguf"), "--check-every", "7", "--store", "memory")
    assert done.exit_code == 0, done.output
    options = {"family": None, "fast": False, "check_every": 7}
    assert seen == [tmp_path / "model.gguf", options, ("http://127.0.0.1:1", 7), "stopped"]


WITHOUT_FCNTL = """
import importlib, pkgutil, sys
sys.modules["fcntl"] = None
import tito_io.serve
for module in pkgutil.iter_modules(tito_io.serve.__path__, "tito_io.serve."):
    importlib.import_module(module.name)
from tito_io.serve.sqlite import SqliteStore
store = SqliteStore.open(sys.argv[1])
try:
    SqliteStore.open(sys.argv[1])
except ValueError as error:
    print(error)
"""


def test_a_system_without_fcntl_has_sqlite_sessions_too(tmp_path: Path) -> None:
    store = str(tmp_path / "s.db")
    done = program("-c", WITHOUT_FCNTL, store)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"--store sqlite:{store} belongs to another gateway that runs; ")


ANOTHER = """
import sys
from tito_io.serve.sqlite import SqliteStore
try:
    SqliteStore.open(sys.argv[1])
except ValueError as error:
    print(error)
"""


def test_a_second_opening_here_leaves_the_lock_to_the_first(tmp_path: Path) -> None:
    """A process loses its locks on a file where it closes any descriptor of that file (POSIX)."""
    file = tmp_path / "s.db"
    store = SqliteStore.open(file)
    with pytest.raises(InputError, match="belongs to another gateway"):
        SqliteStore.open(file)
    assert "belongs to another gateway" in program("-c", ANOTHER, str(file)).stdout
    assert file.stat().st_mode & 0o777 == 0o600
    del store


def test_the_first_lines_say_what_is_served_and_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    place = ("--engine", "vllm", "--base-url", "http://someone:hidden@e")
    options = given(monkeypatch, "--store", "redis://u:p@h:1/0", *place)
    url, engine, model, store, keys, *_ = command.greeting(options, "", "http://g", "")
    assert (url, engine) == ("http://g", "  engine     vllm at http://e")
    assert model == "  model      not known yet: the engine does not answer"
    assert (store, keys) == ("  store      redis://h:1/0", "  keys       not needed")
    sqlite = given(monkeypatch, "--store", "sqlite:a@b.db")
    assert "  store      sqlite:a@b.db" in command.greeting(sqlite, "m", "http://g", "")


def test_a_lock_file_of_another_program_is_named(tmp_path: Path) -> None:
    (tmp_path / "s.db.lock").write_text("something else, and longer than the header of a database " * 9)
    with pytest.raises(InputError, match=r"s\.db\.lock: file is not a database; delete that file"):
        SqliteStore.open(tmp_path / "s.db")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/v1"),
        ("redis://:secret@host:6379/0?password=x", "redis://host:6379/0"),
        ("redis://user:with@sign@host/0", "redis://host/0"),
        ("http://user@host/a#secret", "http://host/a"),
        ("http://host/\x1b[31m", "http://host/\\x1b[31m"),
    ],
)
def test_a_url_is_shown_without_what_is_secret(url: str, shown: str) -> None:
    assert command.public_url(url) == shown
