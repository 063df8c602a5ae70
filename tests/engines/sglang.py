"""A real SGLang on the CPU, with the same tiny random model as the other engines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.environment import Environment, Say, cache
from tests.torchvision_operators import declare_operators

from .server import Server, free_port, running, started
from .vllm import model

VERSION = "0.5.23"
HERE = Path(__file__).parent
MODEL = "tiny"
CONTEXT = 8192

SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "SGLANG_USE_CPU_ENGINE": "1",
    "TORCHDYNAMO_DISABLE": "1",  # else the first sampled id waits for a compiler
    "OMP_NUM_THREADS": "1",  # more of them spin where processors are shared
    "PYTHONPATH": str(HERE / "stand_ins"),  # what a CPU lacks; see there
}
FLAGS = (
    "--device=cpu",
    "--dtype=float32",
    "--attention-backend=torch_native",
    "--sampling-backend=pytorch",
    "--disable-cuda-graph",
    "--disable-overlap-schedule",
    f"--context-length={CONTEXT}",
    "--max-total-tokens=32768",
    "--max-running-requests=8",
    "--skip-server-warmup",
    "--tool-call-parser=hermes",
    "--enable-cache-report",
)


def environment(say: Say) -> Environment:
    """Return SGLang's environment, made where it is not there yet."""
    found = Environment(cache() / "venv-sglang", HERE / "requirements-sglang.txt")
    found.ready(say)
    declare_operators(found.packages())
    return found


@contextmanager
def sglang(say: Say, log: Path, *flags: str, folder: Path | None = None) -> Iterator[Server]:
    """Lend a running SGLang, `flags` added to its command; it serves `folder`, or the tiny model."""
    found = environment(say)
    folder = folder or model(found, say)
    port = free_port()
    command = [str(found.python), "-m", "sglang.launch_server", f"--model-path={folder}"]
    command += [f"--served-model-name={MODEL}", "--host=127.0.0.1", f"--port={port}", *FLAGS, *flags]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SGLANG_")}
    process = started(command, {**kept, **SETTINGS}, log)
    with running(Server(f"http://127.0.0.1:{port}", MODEL, folder, process, log), say) as server:
        yield server
