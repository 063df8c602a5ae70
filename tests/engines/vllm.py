"""A real vLLM on the CPU, with a tiny random model, which may be one that reads images."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from tests.environment import Environment, Say, cache, locked, run
from tests.torchvision_operators import declare_operators

from .server import Server, free_port, running, started

VERSION = "0.32.0"
HERE = Path(__file__).parent
MIDDLEWARE = HERE / "middleware"
MODEL = "tiny"

SETTINGS = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the worker inside the engine's process: half a gigabyte less
    "TORCHDYNAMO_DISABLE": "1",  # else the first log-probabilities wait for a compiler
    "OMP_NUM_THREADS": "1",  # more of them spin where processors are shared
}
FLAGS = (
    "--dtype=float32",
    "--enforce-eager",
    "--max-num-seqs=8",
    "--no-enable-chunked-prefill",  # on a CPU, a seed and a prompt taken in pieces end the engine
    "--max-num-batched-tokens=8192",
    "--kv-cache-memory-bytes=67108864",
    "--enable-auto-tool-choice",
    "--tool-call-parser=hermes",
    "--enable-prompt-tokens-details",
    "--enable-scale-out",  # the generate route
    "--middleware=tokens_route.TokensRoute",
)


def environment(say: Say) -> Environment:
    """Return vLLM's environment, made where it is not there yet."""
    found = Environment(cache() / "venv-vllm", HERE / "requirements-vllm.txt")
    found.ready(say)
    declare_operators(found.packages())
    _named(found)
    return found


def _named(found: Environment) -> None:
    """Let the package be found under its own name.

    The CPU build is distributed under another one, but asks for the version of `vllm`, and tells from it that
    it is a CPU build.
    """
    folder = found.packages() / f"vllm-{VERSION}+cpu.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")


def model(found: Environment, say: Say) -> Path:
    """Return the model's folder, written where it is not there yet; another script makes another folder."""
    script = HERE / "tiny_model.py"
    folder = cache() / f"tiny-{hashlib.sha256(script.read_bytes()).hexdigest()[:12]}"
    with locked(folder.with_suffix(".lock")):
        if not (folder / "complete").exists():
            say(f"writing the model {folder}")
            run(str(found.python), str(script), str(folder))
            (folder / "complete").touch()
    return folder


@contextmanager
def vllm(
    say: Say,
    log: Path,
    *flags: str,
    folder: Path | None = None,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Server]:
    """Lend a running vLLM, `flags` added to its command; it serves the model in `folder`, or the tiny one.

    `settings` are environment variables beside the usual ones.
    """
    found = environment(say)
    folder = folder or model(found, say)
    port = free_port()
    command = [str(found.folder / "bin" / "vllm"), "serve", str(folder), f"--served-model-name={MODEL}"]
    command += ["--host=127.0.0.1", f"--port={port}", *FLAGS, *flags]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}
    process = started(command, {**kept, **SETTINGS, **settings, "PYTHONPATH": str(MIDDLEWARE)}, log)
    with running(Server(f"http://127.0.0.1:{port}", MODEL, folder, process, log), say) as server:
        yield server
