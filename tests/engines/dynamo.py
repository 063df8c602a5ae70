"""A real NVIDIA Dynamo on the CPU: its HTTP frontend, and behind it its mocker or a vLLM worker.

No discovery service runs: the two find each other through a folder, and everything stays on the loopback. The
mocker samples without a model, and says exactly the ids of a script where a request names one. The worker
samples from the same tiny model as the vLLM of `vllm.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import attrs
import httpx2

from tests.environment import Environment, Say, cache, locked
from tests.torchvision_operators import declare_operators
from tito_io.families.family import Family

from . import tiny_model
from .server import Server, free_port, started
from .vllm import model

VERSION = "1.6.1"
HERE = Path(__file__).parent
MODEL = "tiny"
SCRIPTS: dict[str, tuple[str, ...]] = {
    "end": ("hello", tiny_model.END),
    "letters": (*"hello", tiny_model.END),
    "call": (
        *("<tool_call>", '\n{"name": "get_weather", "arguments": {"city":  "Ulm"}}\n', "</tool_call>"),
        tiny_model.END,
    ),
    "cut call": ("So: ", "<tool_call>", '\n{"name": "get_wea'),
    "thought": ("<think>", "\nhm\n", "</think>", "\n\nyes", tiny_model.END),
    "nothing": (tiny_model.END,),
    "long": tuple("again and " for _ in range(300)),
}
"""What the mocker says, piece by piece: each is encoded alone, so letters stay letters."""
START_SECONDS = 480.0
MOCKER_CONTEXT = 2048

LISTENERS = ("DYN_HTTP", "DYN_SYSTEM", "DYN_TCP_RPC", "DYN_TCP_RESPONSE_STREAM", "DYN_EVENT_PLANE")
SETTINGS = {
    **{f"{name}_HOST": "127.0.0.1" for name in LISTENERS},
    "VLLM_HOST_IP": "127.0.0.1",
    "DYN_DISCOVERY_BACKEND": "file",
    "DYN_REQUEST_PLANE": "tcp",
    "DYN_EVENT_PLANE": "zmq",
    "DYN_SELF_HOST_METADATA": "0",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "TORCHDYNAMO_DISABLE": "1",  # else the first log-probabilities wait for a compiler
}
WORKER_FLAGS = (
    "--dyn-tool-call-parser=hermes",
    "--dtype=float32",
    "--enforce-eager",
    "--max-num-seqs=8",
    "--no-enable-chunked-prefill",  # on a CPU, a seed and a prompt taken in pieces end the engine
    "--max-num-batched-tokens=8192",
    "--kv-cache-memory-bytes=67108864",
)


@attrs.frozen
class Deployment:
    """A frontend and its workers."""

    frontend: Server
    workers: list[Server]
    system_url: str
    """Where the first worker tells of itself; nothing answers there for a mocker."""

    @property
    def base_url(self) -> str:
        """Where requests go."""
        return self.frontend.base_url

    @property
    def model(self) -> str:
        """The name that the model is served by."""
        return self.frontend.model

    @property
    def family(self) -> Path:
        """The model's folder."""
        return self.frontend.family

    def stop(self) -> None:
        """End all of it, the workers first; they let requests in flight come to an end."""
        for server in (*self.workers, self.frontend):
            server.stop()


def environment(say: Say, name: str) -> Environment:
    """Return the environment of `dynamo` or of `dynamo-mocker`, made where it is not there yet."""
    found = Environment(cache() / f"venv-{name}", HERE / f"requirements-{name}.txt")
    found.ready(say)
    return found


def _named(found: Environment) -> None:
    """Let the CPU build of vLLM be found under its own name, and a package for images be imported."""
    packages = found.packages()
    folder = packages / "vllm-0.31.0+cpu.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.31.0+cpu\n")
    declare_operators(packages)


def described(say: Say) -> Path:
    """Return a folder that describes the tiny model and has no weights: a mocker needs none."""
    script = Path(tiny_model.__file__)
    folder = cache() / f"tiny-{hashlib.sha256(script.read_bytes()).hexdigest()[:12]}-described"
    with locked(folder.with_suffix(".lock")):
        if not (folder / "complete").exists():
            say(f"writing the model {folder}")
            describe(folder)
            (folder / "complete").touch()
    return folder


def describe(folder: Path) -> None:
    """Write the tiny model's folder without its weights."""
    with patch.object(tiny_model, "weights", _described):
        tiny_model.write(folder)


def scripts(folder: Path) -> dict[str, list[int]]:
    """Return the ids of each script in the model's vocabulary."""
    family = Family.load(folder)
    return {name: [i for piece in pieces for i in family.encode(piece)] for name, pieces in SCRIPTS.items()}


def _replay(folder: Path, logs: Path) -> Path:
    """Write the scripts as a mocker reads them: a trace of requests, of which only names and ids matter."""
    lines = [
        {"timestamp": place, "input_length": 1, "output_length": len(ids), "hash_ids": [0]}
        | {"request_id": name, "output_token_ids": ids}
        for place, (name, ids) in enumerate(scripts(folder).items())
    ]
    path = logs / "scripts.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def _described(folder: Path, ids: dict[str, int]) -> None:
    """Say what the model would be: that is all that a mocker reads."""
    ends = [ids[tiny_model.END], ids[tiny_model.TEXT_END]]
    config = {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "vocab_size": tiny_model.SIZE,
        "max_position_embeddings": tiny_model.CONTEXT,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "bos_token_id": ends[1],
        "eos_token_id": ends[0],
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))


@contextmanager
def dynamo(say: Say, logs: Path, *flags: str) -> Iterator[Deployment]:
    """Lend a running Dynamo with a vLLM worker, `flags` added to the worker's command."""
    found = environment(say, "dynamo")
    _named(found)
    folder = model(found, say)
    worker = ["-m", "dynamo.vllm", f"--model={folder}", f"--served-model-name={MODEL}", *WORKER_FLAGS, *flags]
    with _running(found, folder, logs, [(), worker], {}, say) as deployment:
        yield deployment


@contextmanager
def mocker(
    say: Say,
    logs: Path,
    *frontend: str,
    folder: Path | None = None,
    workers: int = 1,
    settings: dict[str, str] | None = None,
) -> Iterator[Deployment]:
    """Lend a running Dynamo with mockers, flags added to the frontend's command and `settings` to all.

    They serve the model that `folder` describes, or the tiny one.
    """
    found = environment(say, "dynamo-mocker")
    folder = folder or described(say)
    worker = ["-m", "dynamo.mocker", f"--model-path={folder}", f"--model-name={MODEL}"]
    logs.mkdir(parents=True, exist_ok=True)
    worker += [
        f"--max-model-len={MOCKER_CONTEXT}",
        f"--response-replay-trace-path={_replay(described(say), logs)}",
    ]
    with _running(found, folder, logs, [frontend, *[worker] * workers], settings or {}, say) as deployment:
        yield deployment


@contextmanager
def _running(
    found: Environment,
    folder: Path,
    logs: Path,
    commands: Sequence[Sequence[str]],
    settings: dict[str, str],
    say: Say,
) -> Iterator[Deployment]:
    """Start a frontend, given its flags, and workers; wait for the model, lend them, and stop them."""
    port, system = free_port(), _low_port()
    told = _settings(logs) | settings
    url = f"http://127.0.0.1:{port}"

    def start(name: str, command: Sequence[str], **more: str) -> Server:
        process = started([str(found.python), *command], told | more, logs / f"{name}.log")
        return Server(url, MODEL, folder, process, logs / f"{name}.log")

    flags, *workers = commands
    frontend = start("frontend", ["-m", "dynamo.frontend", f"--http-port={port}", *flags])
    deployment = Deployment(frontend, [], f"http://127.0.0.1:{system}")
    try:
        for number, command in enumerate(workers):
            more = {"DYN_SYSTEM_PORT": str(system)} if "dynamo.vllm" in command else {}
            deployment.workers.append(start(f"worker-{number}", command, **more))
        _serving(deployment, say)
        yield deployment
    finally:
        deployment.stop()


def _low_port() -> int:
    """Return a free port of fifteen bits: a worker reads no larger number for telling of itself."""
    while True:
        port = 20000 + secrets.randbelow(12000)
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def _settings(logs: Path) -> dict[str, str]:
    """Return the environment of every process: what is set outside for engines stays outside."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("VLLM_", "DYN_"))}
    registry = logs / "registry"
    registry.mkdir(parents=True, exist_ok=True)
    # a worker's publisher of events binds every interface, unless it is told to connect to a broker; there is
    # none, and routing in turns needs no events
    broker = f"xsub=tcp://127.0.0.1:{free_port()} , xpub=tcp://127.0.0.1:{free_port()}"
    return {**kept, **SETTINGS, "DYN_FILE_KV": str(registry), "DYN_ZMQ_BROKER_URL": broker}


def _serving(deployment: Deployment, say: Say) -> None:
    """Return once the model is listed: a frontend without a worker calls itself healthy."""
    began = told = time.monotonic()
    while not _listed(deployment.base_url):
        now = time.monotonic()
        for server in (deployment.frontend, *deployment.workers):
            if server.process.poll() is not None:
                raise RuntimeError(f"a part of it ended while it started:\n{server.tail()}")
        if now - began > START_SECONDS:
            tails = "\n".join(server.tail() for server in (deployment.frontend, *deployment.workers))
            raise RuntimeError(f"no model is served after {START_SECONDS:.0f} s:\n{tails}")
        if now - told > 5:
            told = now
            say(f"waiting for {deployment.base_url}, {now - began:.0f} s")
        time.sleep(0.1)
    say(f"{deployment.base_url} serves after {time.monotonic() - began:.1f} s")


def _listed(base_url: str) -> bool:
    with suppress(httpx2.TransportError):
        answer = httpx2.get(f"{base_url}/v1/models", timeout=5, trust_env=False)
        cards: list[Any] = answer.json().get("data", []) if answer.is_success else []
        return any(card["id"] == MODEL for card in cards)
    return False
