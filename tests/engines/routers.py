"""Real routers on the CPU: SGLang's and vLLM's before workers of ours, Dynamo's before its own mockers."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import attrs
import httpx2

from tests.environment import Environment, Say, cache
from tito_io.embedded import MODEL

from .dynamo import Deployment, mocker
from .server import START_SECONDS, Server, free_port, running, started

HERE = Path(__file__).parent
STICKY = {"sglang": ("--policy=manual",), "vllm": ("--policy=consistent_hash",)}
"""What keeps a named conversation on one worker."""
KV_ROUTER = ("--router-mode=kv", "--no-router-kv-events", "--router-session-affinity-ttl-secs=600")
"""The KV router of Dynamo, which keeps a named session on its worker for ten minutes after its last turn.

Without events of the workers it predicts what they have cached from what it sent them.
"""


@attrs.frozen
class Routed:
    """A router and its workers."""

    router: Server
    workers: Sequence[Server]
    marker: Path
    """A worker that finds this file removes it, and dies in the middle of its next answer."""

    @property
    def base_url(self) -> str:
        """Where requests go."""
        return self.router.base_url

    def sampled(self) -> list[tuple[str, str, int]]:
        """Return each sampled turn: its request's id, its conversation's name, and its worker's number."""
        lines = [
            (line.split(), place)
            for place, worker in enumerate(self.workers)
            for line in worker.log.read_text().splitlines()
            if line.startswith("sampled ")
        ]
        return [(request, name, place) for (_, request, name), place in lines]

    def by_request(self) -> Counter[str]:
        """Return how often each request was sampled."""
        return Counter(request for request, _, _ in self.sampled())


def environment(say: Say) -> Environment:
    """Return the environment of both routers, made where it is not there yet."""
    found = Environment(cache() / "venv-routers", HERE / "requirements-routers.txt")
    found.ready(say)
    return found


@contextmanager
def router(kind: str, say: Say, logs: Path, *flags: str, workers: int = 4) -> Iterator[Routed]:
    """Lend a running router of SGLang (`sglang`) or vLLM (`vllm`) and its workers; `flags` set its policy."""
    found, marker = environment(say), logs / "die"
    logs.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        lent = [stack.enter_context(_worker(kind, place, logs, marker, say)) for place in range(workers)]
        port, url = free_port(), "http://127.0.0.1:{}"
        command = [str(found.python), "-m", f"{kind}_router.launch_router", "--host=127.0.0.1"]
        command += [f"--port={port}", f"--prometheus-port={free_port()}", "--prometheus-host=127.0.0.1"]
        command += [*(flags or STICKY[kind]), "--worker-urls", *(one.base_url for one in lent)]
        log = logs / "router.log"
        server = Server(url.format(port), MODEL, Path(), started(command, _settings(), log), log)
        with running(server, say):
            _lists(server, workers)
            yield Routed(server, lent, marker)


@contextmanager
def _worker(kind: str, place: int, logs: Path, marker: Path, say: Say) -> Iterator[Server]:
    port, log = free_port(), logs / f"worker-{place}.log"
    command = [sys.executable, "-m", "tests.engines.router_worker", kind, str(port), str(marker)]
    server = Server(f"http://127.0.0.1:{port}", MODEL, Path(), started(command, _settings(), log), log)
    with running(server, say):
        yield server


def _settings() -> dict[str, str]:
    """Return the environment of every process; workers find this checkout."""
    return {**os.environ, "PYTHONPATH": str(HERE.parents[1]), "NO_PROXY": "127.0.0.1"}


def _lists(server: Server, workers: int) -> None:
    """Return once the router knows all of its workers: it answers before that."""
    late = time.monotonic() + START_SECONDS
    while time.monotonic() < late:
        with suppress(httpx2.TransportError, ValueError):
            answer = httpx2.get(f"{server.base_url}/workers", timeout=5, trust_env=False)
            if answer.is_success and _count(answer.json()) == workers:
                return
        time.sleep(0.2)
    raise RuntimeError(f"the router does not know its workers:\n{server.tail()}")


def _count(body: object) -> int:
    found = body.get("workers", body.get("urls", [])) if isinstance(body, dict) else body
    return len(found) if isinstance(found, list) else 0


@contextmanager
def kv_router(say: Say, logs: Path, *flags: str, workers: int = 4) -> Iterator[Deployment]:
    """Lend a running Dynamo with its KV router and mockers, once all of them are known to it."""
    with mocker(say, logs, *(flags or KV_ROUTER), workers=workers) as deployment:
        _instances(deployment, workers)
        yield deployment


def _instances(deployment: Deployment, workers: int) -> None:
    late = time.monotonic() + START_SECONDS
    while time.monotonic() < late:
        answer = httpx2.get(f"{deployment.base_url}/health", timeout=5, trust_env=False)
        found = answer.json().get("instances", []) if answer.is_success else []
        if sum(one.get("endpoint") == "generate" for one in found) >= workers:
            return
        time.sleep(0.2)
    raise RuntimeError(f"the frontend does not know its workers:\n{deployment.frontend.tail()}")
