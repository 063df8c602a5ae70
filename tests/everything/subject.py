"""What is tried: a real program, the variables that ask for it, and its tests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from tests import real_models
from tests.faults.fault import ROOT

ENGINES = {
    "vllm": ("vllm",),
    "vllm-more": ("vllm",),
    "vllm-vl": ("vllm",),
    "vllm-llm": ("vllm",),
    "vllm-async": ("vllm",),
    "sglang": ("sglang",),
    "sglang-vl": ("sglang",),
    "sglang-engine": ("sglang",),
    "dynamo": ("dynamo",),
    "dynamo-mocker": ("dynamo-mocker",),
    "llamacpp": ("llamacpp",),
    "transformers": ("vllm",),
    "mlx": ("mlx",),
    "dynamo-kv,sglang-router,vllm-router": ("routers",),
}
"""Names in TITO_ENGINES, and whose environments they use."""
REAL_MODELS = ("tests/engines/test_real_model.py",)
"""Tests that need a real language model."""


@attrs.frozen
class Subject:
    """A real program, or several that are tried together.

    Attributes:
        name: Its name, on the command line and in the table.
        variables: What asks for its tests.
        paths: Its tests.
        pins: The files that name its versions.
    """

    name: str
    variables: Mapping[str, str]
    paths: tuple[str, ...]
    pins: tuple[Path, ...] = ()

    @property
    def versions(self) -> str:
        """The versions of the packages that have the subject's name in theirs."""
        parts = {part for part in re.split(r"\W+|_", self.name.partition(" ")[2]) if part}
        pinned = {name: version for file in self.pins for name, version in _pinned(file)}
        shared = {one: len(parts & set(re.split(r"\W+|_", one.lower()))) for one in pinned}
        best = sorted(pinned, key=lambda one: (-shared[one], len(one)))[:2]
        return ", ".join(f"{one} {pinned[one]}" for one in best if shared[one] or len(pinned) == 1)


def _pinned(file: Path) -> Iterator[tuple[str, str]]:
    if file.suffix == ".json":
        yield from json.loads(file.read_text())["dependencies"].items()
    else:
        for line in file.read_text().splitlines():
            name, is_pin, version = line.partition("==")
            if is_pin:
                yield name, version


def subjects() -> list[Subject]:
    """Return all that the tests know."""
    tests = ROOT / "tests"
    found = [
        Subject(
            f"engine {name}",
            {"TITO_ENGINES": name},
            ("tests/engines",),
            tuple(tests / "engines" / f"requirements-{one}.txt" for one in environments),
        )
        for name, environments in ENGINES.items()
    ]
    found += [
        Subject(
            f"framework {file.parent.name}",
            {"TITO_FRAMEWORKS": file.parent.name},
            ("tests/frameworks/test_frameworks.py",),
            (file,),
        )
        for file in sorted(tests.glob("frameworks/*/requirements.txt"))
    ]
    found += [
        Subject(f"agent {file.stem}", {"TITO_AGENTS": file.stem}, ("tests/agents/test_agents.py",), (file,))
        for file in sorted(tests.glob("agents/pins/*"))
    ]
    found += [
        Subject(f"deployment {name}", {"TITO_DEPLOY": name}, ("tests/deploy",))
        for name in ("nginx", "caddy", "systemd", "container")
    ]
    stores = {"TITO_STORES": "all", "TITO_REDIS": "1"}
    return [
        *found,
        Subject("stores", stores, ("tests/simulate/test_real_stores.py", "tests/io/serve/test_stores.py")),
        Subject("processors", {"TITO_PROCESSORS": "1"}, ("tests/processors",)),
        Subject("real models", {real_models.VARIABLE: ",".join(real_models.PACKAGES)}, REAL_MODELS),
    ]
