"""Attacks on a gateway that runs as a process of its own: what an agent, a neighbour or an engine may try."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from benchmarks.gateway.agents import load
from tests.answering import answering
from tests.io.engines.vllm.vllm_server import Mock, chat_answer
from tests.io.engines.vllm.vllm_server import refused as vllm_error
from tests.io.serve.gateway import HELLO, user
from tests.io.serve.gateway_process import Process, started
from tests.io.serve.test_bodies import ATTACKS

CHAT = "/v1/chat/completions"
KEYS = {"a": "sk-" + "a" * 40, "b": "sk-" + "b" * 40}
HALF = r'{"at": "\ud83d"}'
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": HALF}}


@contextmanager
def gateway(
    *options: str, store: str = "memory", complaints: Path | None = None
) -> Iterator[tuple[Process, httpx2.Client]]:
    with (
        started("--store", store, *options, complaints=complaints) as process,
        httpx2.Client(base_url=process.url, timeout=60) as http,
    ):
        yield process, http


@contextmanager
def engine(answers: Mapping[str, Any]) -> Iterator[str]:
    """Serve a vLLM that answers so, and return its address."""
    mock = Mock(dict(answers))

    def answer(method: str, path: str, body: bytes) -> tuple[int, bytes]:
        found = mock(httpx2.Request(method, f"http://engine{path}", content=body))
        return found.status_code, found.content

    with answering(answer) as url:
        yield url


def asked(http: httpx2.Client, session: str, messages: list[Any], **more: Any) -> httpx2.Response:
    body = {"messages": messages, "max_tokens": 20, **more}
    return http.post(CHAT, json=body, headers={"x-tito-session": session})


def test_an_agent_goes_on_while_others_send_bodies_that_stand_for_gigabytes() -> None:
    """Its ids are those that it had, and the gateway does not stop."""
    with gateway() as (process, http), ThreadPoolExecutor(len(ATTACKS)) as pool:

        def attack(name: str) -> int:
            data, coding, _ = ATTACKS[name]
            headers = {"content-encoding": coding or "identity", "x-tito-session": name.replace(" ", "-")}
            return httpx2.post(process.url + CHAT, content=data, headers=headers, timeout=60).status_code

        attacks = [pool.submit(attack, name) for name in ATTACKS]
        messages, last = list[Any](HELLO), list[int]()
        for _ in range(5):
            answer = asked(http, "agent", messages, return_token_ids=True).json()
            assert answer["prompt_token_ids"][: len(last)] == last
            last = answer["prompt_token_ids"] + answer["choices"][0]["token_ids"]
            messages = [*messages, answer["choices"][0]["message"], user()]
        assert {one.result() for one in attacks} == {400, 429}
        assert http.get("/health").status_code == 200


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_second_name_of_a_store_opens_no_second_gateway(tmp_path: Path, link: Any) -> None:
    target, other = tmp_path / "target.db", tmp_path / "other.db"
    with gateway(store=f"sqlite:{target}"):
        link(target, other)
        with pytest.raises(AssertionError, match="ended with"), gateway(store=f"sqlite:{other}"):
            pass
    assert (target.stat().st_mode & 0o077, (tmp_path / "other.db.lock").exists()) == (0, False)


def test_a_password_in_an_address_of_a_store_is_not_written(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for store in ("Redis://:secret@127.0.0.1:1", "redis://:secret@127.0.0.1:1", "redis//:secret@h"):
        with pytest.raises(AssertionError) as ended, gateway(store=store, complaints=log):
            pass
        assert "secret" not in log.read_text() + str(ended.value)
        assert log.read_text().startswith("tito: ")


def test_no_key_and_no_key_of_another_reads_a_session(tmp_path: Path) -> None:
    """Also where it looks like the id of a session; and no log has the beginning of it."""
    keys, log = tmp_path / "keys", tmp_path / "log"
    keys.write_text("".join(f"{key}\n" for key in KEYS.values()))
    guessed = "0123456789abcdef" * 2
    options = ("--keys", str(keys), "--verbose", "--access-log")
    with gateway(*options, complaints=log) as (_, http):
        bearer = {name: {"authorization": f"Bearer {key}"} for name, key in KEYS.items()}
        session = http.post("/sessions", headers=bearer["a"]).json()["session_id"]
        paths = ("", "/view", "/calls", "/samples", "/v1/models")
        statuses = {
            who: {http.get(f"/sessions/{session}{path}", headers=headers).status_code for path in paths}
            for who, headers in bearer.items()
        }
        assert statuses == {"a": {200}, "b": {404}}
        for headers in ({}, {"authorization": f"Bearer {guessed}"}, {"x-api-key": guessed}):
            assert http.get("/session", headers=headers).status_code == 401
            assert http.post(CHAT, json={"messages": HELLO}, headers=headers).status_code == 401
    assert guessed[:8] not in log.read_text()
    assert session not in log.read_text()


@pytest.mark.parametrize(
    ("answers", "status"),
    [
        ({"/v1/models": vllm_error("broken", 500, "InternalServerError")}, 200),
        ({CHAT: chat_answer(content=None, tool_calls=[CALL], finish_reason="tool_calls")}, 200),
        ({CHAT: chat_answer(logprobs=[7.5, -0.5])}, 502),
        ({CHAT: chat_answer(logprobs=[-0.5])}, 502),
        ({CHAT: {**chat_answer(), "prompt_token_ids": ["4"]}}, 502),
    ],
    ids=["no-list", "half-a-character", "above-0", "too-few", "no-ids"],
)
@pytest.mark.parametrize("path", [CHAT, "/v1/messages"])
def test_an_engine_that_answers_oddly_loses_no_turn_and_makes_up_none(
    path: str, answers: Mapping[str, Any], status: int
) -> None:
    everything = {CHAT: chat_answer(), **answers}
    tool = {"name": "look", "input_schema": {"type": "object"}}
    tools = [tool] if path != CHAT else [{"type": "function", "function": {"name": "look"}}]
    with (
        engine(everything) as url,
        gateway("--engine", "vllm", "--base-url", url, "--model", "m") as (_, http),
    ):
        session = http.post("/sessions").json()["session_id"]
        body = {"messages": HELLO, "max_tokens": 9, "tools": tools}
        answer = http.post(f"/sessions/{session}{path}", json=body)
        assert answer.status_code == status, answer.text
        turns = http.get(f"/sessions/{session}/calls").text.splitlines()
        assert len(turns) == (status == 200)
        assert all("[7,8]" in turn for turn in turns)


def test_a_body_that_nests_as_deep_as_it_can_is_an_error_of_its_client() -> None:
    arguments = '{"a":' * 1500 + "1" + "}" * 1500
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    messages = [*HELLO, {"role": "assistant", "content": None, "tool_calls": [call]}, user()]
    with gateway() as (_, http):
        assert asked(http, "deep", messages).status_code < 500
        deep = b'{"messages":' + b"[" * 900 + b"]" * 900 + b"}"
        answer = http.post(CHAT, content=deep, headers={"x-tito-session": "deep"})
        assert answer.status_code == 400


def test_sessions_that_begin_at_once_get_their_own_ids_and_their_waits_are_counted(tmp_path: Path) -> None:
    sessions, turns = 60, 3
    with gateway("--max-calls", "2", store=f"sqlite:{tmp_path / 's.db'}") as (process, http):
        agents = anyio.run(load, process.url, sessions, turns)
        assert [agent.errors for agent in agents] == [[]] * sessions
        assert [agent.mismatches for agent in agents] == [0] * sessions
        lines = http.get("/metrics").text.splitlines()
    for turn, count in (("first", sessions), ("later", sessions * (turns - 1))):
        assert f'tito_turn_wait_seconds_count{{turn="{turn}"}} {count}.0' in lines
