"""A real llama.cpp server on the CPU, with a tiny random model. All of it takes seconds."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.environment import Environment, Say, cache, locked, run

from .dynamo import described
from .llamacpp_process import ALIAS
from .server import Server, free_port, running, started

HERE = Path(__file__).parent
CONTEXT, SLOTS = 2048, 4
"""The context of each slot, and how many there are."""


def environment(say: Say) -> Environment:
    """Return llama.cpp's environment, made where it is not there yet."""
    found = Environment(cache() / "venv-llamacpp", HERE / "requirements-llamacpp.txt")
    found.ready(say)
    return found


@contextmanager
def importable(say: Say) -> Iterator[None]:
    """Put xllamacpp on the path of this process and its children, and not the packages beside it."""
    (library,) = (environment(say).python.parents[1] / "lib").glob("python*/site-packages/xllamacpp")
    with TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patched:
        (Path(place) / "xllamacpp").symlink_to(library)
        patched.syspath_prepend(place)
        patched.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
        yield


def model_file(found: Environment, folder: Path, architecture: str, say: Say) -> Path:
    """Return the model's GGUF file, written where it is not there yet; another script makes another file."""
    script = HERE / "tiny_gguf.py"
    digest = hashlib.sha256(script.read_bytes()).hexdigest()[:12]
    file = folder.with_name(f"{folder.name}-{architecture}-{digest}.gguf")
    with locked(file.with_suffix(".lock")):
        if not file.exists():
            say(f"writing the model {file}")
            part = file.with_suffix(".part")
            run(str(found.python), str(script), str(folder), str(part), architecture)
            part.rename(file)
    return file


@contextmanager
def llamacpp(say: Say, log: Path, *settings: str, architecture: str = "qwen3") -> Iterator[Server]:
    """Lend a running server; `settings` are `NAME=VALUE` of its parameters."""
    found, folder, port = environment(say), described(say), free_port()
    file = model_file(found, folder, architecture, say)
    command = [str(found.python), str(HERE / "llamacpp_process.py"), str(file), str(port), *settings]
    process = started(command, dict(os.environ), log)
    with running(Server(f"http://127.0.0.1:{port}", ALIAS, folder, process, log), say) as server:
        yield server
