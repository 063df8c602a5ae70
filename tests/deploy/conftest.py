"""Programs that the page about deploying names, for tests that ask for them.

The environment variable TITO_DEPLOY lists them, as in `TITO_DEPLOY=nginx,caddy`. They come from the
distribution's packages. `systemd` asks for systemd-analyze alone, and `container` for buildah.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import attrs
import httpx2
import pytest

from tests.io.serve.gateway_process import Process, started

from .paced_engine import PacedEngine, paced_engine
from .page import NAME
from .proxies import PROXIES, Proxy

KEY = "first-key"
QUICK_PINGS = """
import attrs
import tito_io.serve.gateway as module
build = module.build_gateway
def quick(*parts, options, **more):
    return build(*parts, options=attrs.evolve(options, ping_seconds=0.2), **more)
module.build_gateway = quick
"""
"""Lets pings come after 0.2 s instead of 10."""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep these tests on one worker, so that each proxy is started once."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.xdist_group("deploy"))


def asked_for(program: str) -> None:
    """Skip the test unless this program was asked for."""
    if program not in [name.strip() for name in os.environ.get("TITO_DEPLOY", "").split(",")]:
        pytest.skip(f"needs {program}: ask for it with TITO_DEPLOY={program}")


@attrs.frozen
class Deployed:
    """A gateway behind a proxy.

    Attributes:
        kind: The proxy's name.
        proxy: The proxy.
        gateway: The gateway, with keys.
        engine: Its engine, which waits where a test says so.
        http: Calls the proxy with a key of the gateway.
    """

    kind: str
    proxy: Proxy
    gateway: Process
    engine: PacedEngine
    http: httpx2.Client

    def session(self) -> str:
        """Open a session; return the path of its chats."""
        answer = self.http.post("/sessions")
        assert answer.status_code == 200, answer.text
        return f"/sessions/{answer.json()['session_id']}/v1/chat/completions"


@pytest.fixture(scope="module", params=["nginx", "caddy"])
def deployed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    """Lend a gateway behind each proxy, started as the page says."""
    asked_for(request.param)
    folder = tmp_path_factory.mktemp(request.param)
    keys = folder / "keys.txt"
    keys.write_text(f"{KEY}\nsecond-key\n")
    trusted = ("--trusted-host", NAME) if request.param == "caddy" else ()
    with paced_engine() as (engine, url):
        options = ("--engine", "vllm", "--base-url", url, "--store", "memory", "--keys", str(keys), *trusted)
        with (
            started(*options, first=QUICK_PINGS) as gateway,
            PROXIES[request.param](gateway.url, folder) as proxy,
            proxy.client(headers={"authorization": f"Bearer {KEY}"}) as http,
        ):
            yield Deployed(request.param, proxy, gateway, engine, http)


@pytest.fixture(autouse=True)
def _free(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let the engine's turns pass before and after each test."""
    yield
    if "deployed" in request.fixturenames:
        request.getfixturevalue("deployed").engine.free()
