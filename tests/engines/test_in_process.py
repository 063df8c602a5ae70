"""The engines in this process, with real objects: each in its own environment, in a process of its own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.engines import mlx, sglang, vllm
from tests.engines.conftest import asked_for
from tests.environment import Environment

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parent.parent.parent
OPTIONS = ("-q", "-ra", "--import-mode=importlib", "-p", "no:cacheprovider")
OVERRIDES = ("--override-ini=addopts=", "--override-ini=filterwarnings=")
"""The engines' packages warn of much that is theirs."""


def inside(
    found: Environment, name: str, model: Path, settings: Mapping[str, str], *options: str
) -> subprocess.CompletedProcess[str]:
    """Run the tests of one engine's object in its environment."""
    tests = ("pytest", *OPTIONS, *OVERRIDES, *options, "tests/engines/in_process")
    return module(found, {**settings, "TITO_INSIDE": name, "TITO_TINY": str(model)}, *tests)


def module(
    found: Environment, settings: Mapping[str, str], *command: str, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a Python module in an engine's environment, with a text on its standard input."""
    kept = {one: value for one, value in os.environ.items() if not one.startswith(("PYTEST_", "VLLM_"))}
    path = os.pathsep.join(filter(None, (str(ROOT), settings.get("PYTHONPATH"))))
    return subprocess.run(
        [str(found.python), "-m", *command],
        cwd=ROOT,
        env={**kept, **settings, "PYTHONPATH": path},
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )


def settings_of(server: Mapping[str, str]) -> dict[str, str]:
    """Return a server's settings but one: an object says itself whether its worker has a process."""
    return {one: value for one, value in server.items() if "MULTIPROCESSING" not in one}


@pytest.mark.parametrize("name", ["vllm-llm", "vllm-async", "sglang-engine", "transformers", "mlx"])
def test_an_object_in_its_own_process(name: str, say: Callable[[str], None]) -> None:
    asked_for(name)
    engine: Any = {"sglang-engine": sglang, "mlx": mlx}.get(name, vllm)
    found = engine.environment(say)
    done = inside(found, name, vllm.model(found, say), settings_of(engine.SETTINGS))
    say(f"{name}: " + done.stdout.strip().rpartition("\n")[2].strip("= "))
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
