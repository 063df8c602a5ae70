"""A GGUF file in one command: a family of it, a rollout and a gateway, on a real llama.cpp server."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.engines.conftest import asked_for
from tests.engines.dynamo import described
from tests.engines.llamacpp import environment, importable, model_file
from tests.environment import Say
from tests.interrupts import interrupt
from tito_io.families import Family
from tito_io.families.fast.texts import texts
from tito_io.llamacpp_server import ServerSettings, running
from tito_io.llamacpp_server.check import TEXTS, difference, server_ids

pytestmark = pytest.mark.engine
TURNS = 50


@pytest.fixture(scope="module")
def gguf(say: Say) -> Path:
    """Return a model's GGUF file, as the package gguf wrote it; xllamacpp is on the path of processes."""
    asked_for("llamacpp")
    found = environment(say)
    return model_file(found, described(say), "qwen3", say)


@pytest.fixture(autouse=True)
def _package(gguf: Path, say: Say) -> Iterator[None]:
    assert gguf.exists()
    with importable(say):
        yield


def tito(*options: str) -> list[str]:
    return [sys.executable, "-m", "tito_io", *options, "--threads", "1"]


def test_the_family_of_the_file_is_that_of_its_folder(gguf: Path, say: Say) -> None:
    """The folder's rule is Qwen's without short forms such as "it's"; the file has no name for that."""
    ours, theirs = Family.of_gguf(gguf), Family.load(described(say))
    for _, text in texts(theirs.tokenizer):
        if text.encode(errors="ignore").decode() == text and "'" not in text:
            assert ours.encode(text) == theirs.encode(text)
    messages = [{"role": "user", "content": "Hello."}]
    assert ours.ids(messages, add_generation_prompt=True) == theirs.ids(messages, add_generation_prompt=True)
    assert set(theirs.stop_ids) <= set(ours.stop_ids)


def test_the_servers_own_tokenizer_differs_where_it_is_said(gguf: Path) -> None:
    family = Family.of_gguf(gguf)
    with running(ServerSettings(file=gguf, context=512, threads=1)) as server:
        assert difference(family, server) is None
        decomposed = "e\u0301"
        assert server_ids(server, decomposed) != family.encode(decomposed) == family.encode("\u00e9")
        assert server_ids(server, TEXTS[0]) == family.encode(TEXTS[0])


def test_a_rollout_of_fifty_turns_keeps_every_sampled_id(gguf: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text('{"user": "On?"}\n{"user": "So?", "tool": "7"}\n')
    command = tito("rollout", "--gguf", str(gguf), "--turns", str(TURNS), "--max-tokens", "12", "--json")
    done = subprocess.run([*command, "--script", str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *turns, last = (json.loads(line) for line in done.stdout.splitlines())
    assert last["summary"]["routes"] == {"MITO": 1, "TITO": TURNS - 1}
    assert last["summary"]["lost_ids"] == 0
    for turn in turns:
        assert (
            turn["prompt_ids"] - turn["cached_ids"] <= turn["new_ids"] + 2
        )  # the last sampled id is evaluated
    assert turns[-1]["prompt_ids"] > TURNS * 10
    assert "loaded" in done.stderr


def test_a_gateway_serves_turns_until_a_signal(gguf: Path) -> None:
    command = tito("serve", "--gguf", str(gguf), "--port", "0", "--store", "memory")
    gateway = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert gateway.stdout is not None
        url = gateway.stdout.readline().strip()
        session = httpx2.post(f"{url}/sessions", timeout=60).json()["session_id"]
        chat = f"{url}/sessions/{session}/v1/chat/completions"
        messages = [{"role": "user", "content": "Hello."}]
        answer = httpx2.post(chat, json={"model": "m", "messages": messages, "max_tokens": 8}, timeout=60)
        assert answer.json()["choices"][0]["message"]["role"] == "assistant"
    finally:
        _, said = interrupt(gateway)
    assert gateway.returncode == 0
    assert "ended by itself" not in said


def test_a_file_whose_last_tensor_is_cut_ends_with_the_last_lines_of_the_log(
    gguf: Path, tmp_path: Path
) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(gguf.read_bytes()[:-1])
    done = subprocess.run(tito("rollout", "--gguf", str(cut)), capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "is not within the file bounds" in done.stderr
    assert "could not load the model" in done.stderr


def test_a_file_that_is_cut_is_refused_before_a_server_starts(gguf: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(gguf.read_bytes()[: gguf.stat().st_size // 2])
    done = subprocess.run(tito("rollout", "--gguf", str(cut)), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert f"{cut}: is cut: " in line
