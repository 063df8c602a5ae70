"""Real engines, for tests that ask for them.

The environment variable TITO_ENGINES lists the engines to start, as in `TITO_ENGINES=vllm`. Each is installed
once, outside the checkout, and started once a test run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tito_io.families import Family

from .dynamo import Deployment, dynamo, mocker
from .llamacpp import llamacpp
from .server import Server
from .sglang import sglang
from .vllm import vllm

ORACLES = ["preprocessing/vllm_oracle.py", "preprocessing/sglang_oracle.py"]
collect_ignore = ORACLES if os.environ.get("TITO_INSIDE") else [*ORACLES, "in_process"]
"""What runs in an engine's own environment: its oracles, and the tests of `test_in_process.py`."""


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of real engines on one worker, so that each engine is started once."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.xdist_group("engines"))


@pytest.fixture
def anyio_backend() -> str:
    """Run on one event loop; where the other matters a test says so."""
    return "asyncio"


def asked_for(engine: str) -> None:
    """Skip the test unless this engine was asked for."""
    wanted = [name.strip() for name in os.environ.get("TITO_ENGINES", "").split(",")]
    if engine not in wanted:
        pytest.skip(f"needs a real {engine}: ask for it with TITO_ENGINES={engine}")


@pytest.fixture(scope="session")
def vllm_server(tmp_path_factory: pytest.TempPathFactory, say: Callable[[str], None]) -> Iterator[Server]:
    """Lend the run's one vLLM server: `base_url`, `model`, and `family`, the path of the model's folder.

    It has the routes of its developers, too, which pause it for an update of the weights.
    """
    asked_for("vllm")
    log = tmp_path_factory.mktemp("vllm") / "vllm.log"
    with vllm(say, log, settings={"VLLM_SERVER_DEV_MODE": "1"}) as server:
        yield server


@pytest.fixture(scope="session")
def folder(vllm_server: Server) -> Family:
    """Load the folder of the model that vLLM serves."""
    return Family.load(vllm_server.family)


@pytest.fixture(scope="session")
def dynamo_server(
    tmp_path_factory: pytest.TempPathFactory, say: Callable[[str], None]
) -> Iterator[Deployment]:
    """Lend the run's one Dynamo with a vLLM worker."""
    asked_for("dynamo")
    with dynamo(say, tmp_path_factory.mktemp("dynamo")) as deployment:
        yield deployment


@pytest.fixture(scope="session")
def dynamo_mocker(
    tmp_path_factory: pytest.TempPathFactory, say: Callable[[str], None]
) -> Iterator[Deployment]:
    """Lend the run's one Dynamo with a mocker."""
    asked_for("dynamo-mocker")
    with mocker(say, tmp_path_factory.mktemp("dynamo-mocker")) as deployment:
        yield deployment


@pytest.fixture(scope="session")
def sglang_server(tmp_path_factory: pytest.TempPathFactory, say: Callable[[str], None]) -> Iterator[Server]:
    """Lend the run's one SGLang server."""
    asked_for("sglang")
    with sglang(say, tmp_path_factory.mktemp("sglang") / "sglang.log") as server:
        yield server


@pytest.fixture(scope="session")
def llamacpp_server(tmp_path_factory: pytest.TempPathFactory, say: Callable[[str], None]) -> Iterator[Server]:
    """Lend the run's one llama.cpp server: four slots of 2,048 ids."""
    asked_for("llamacpp")
    with llamacpp(say, tmp_path_factory.mktemp("llamacpp") / "llamacpp.log") as server:
        yield server
