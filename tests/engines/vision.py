"""Engines on the CPU that serve tiny random models with images."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.environment import Environment, Say, cache, locked, run
from tests.torchvision_operators import declare_operators

from .server import Server
from .sglang import sglang
from .vllm import vllm

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
REQUIREMENTS = HERE.parent / "processors" / "requirements.txt"
SOURCES = (HERE / "tiny_vision_model.py", HERE / "tiny_model.py", HERE.parent / "processors" / "kinds.py")
"""What the models are made by."""
MODULE = ("-m", "tests.engines.tiny_vision_model")
FLAGS = {
    "vllm": (
        "--chat-template-content-format=openai",
        '--limit-mm-per-prompt={"image": 32, "video": 0}',
        "--mm-processor-cache-gb=1",
    ),
    "sglang": ("--mm-attention-backend=sdpa",),
}


def environment(say: Say) -> Environment:
    """Return an environment with torch and transformers, made where it is not there yet."""
    found = Environment(cache() / "venv-processors", REQUIREMENTS)
    found.ready(say)
    declare_operators(found.packages())
    return found


def vision_model(kind: str, say: Say) -> Path:
    """Return the folder of a kind's model, written where it is not there yet."""
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in SOURCES)).hexdigest()[:12]
    folder = cache() / f"tiny-{kind}-{digest}"
    found = environment(say)
    with locked(folder.with_suffix(".lock")):
        if not (folder / "complete").exists():
            say(f"writing the model {folder}")
            run("env", f"PYTHONPATH={ROOT}", str(found.python), *MODULE, str(folder), kind)
            (folder / "complete").touch()
    return folder


@contextmanager
def vision_server(engine: str, kind: str, say: Say, log: Path) -> Iterator[Server]:
    """Lend a running `vllm` or `sglang` that serves a kind's model."""
    start = {"vllm": vllm, "sglang": sglang}[engine]
    with start(say, log, *FLAGS[engine], folder=vision_model(kind, say)) as server:
        yield server
