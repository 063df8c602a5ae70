"""Run llama.cpp's HTTP server in this process: `python -P child.py`, with settings on standard input.

The process ends when its standard input does, which is when its parent ends, however that happens. It imports
nothing of tito, so that it starts at once and holds no more memory than the server.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Mapping
from importlib import import_module
from typing import Any

PR_SET_PDEATHSIG = 1
"""From Linux' `prctl.h`: a signal for this process when its parent ends."""


def main() -> None:
    """Serve until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent finishes its turns after Ctrl-C, and stops this
    end_with_parent()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the library may print
    given = json.loads(sys.stdin.readline())
    try:
        server = import_module("xllamacpp").Server(common_params(given))
    except (
        RuntimeError
    ) as error:  # the log has the reason, which a traceback would push out of its last lines
        sys.exit(f"RuntimeError: {error}")
    answers.write(json.dumps({"url": server.listening_address}) + "\n")
    answers.flush()
    sys.stdin.read()
    os._exit(0)  # the library's own end waits for requests


def end_with_parent() -> None:
    """Let Linux end this process with its parent: the library holds the interpreter while it loads."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def common_params(given: Mapping[str, Any]) -> Any:
    """Return llama.cpp's parameters for settings; what none is given for is llama.cpp's own default."""
    library: Any = import_module("xllamacpp")
    params = library.CommonParams()
    params.model.path, params.model_alias = given["file"], {given["name"]}
    params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, [given["api_key"]]
    params.n_ctx, params.n_parallel = given["context"], given["slots"]
    params.ui = False
    params.endpoint_slots = False  # it shows prompts
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = given["threads"]
    if given["gpu_layers"] is not None:
        params.n_gpu_layers = given["gpu_layers"]
    if given["precise"]:
        params.cache_type_k = params.cache_type_v = library.ggml_type.GGML_TYPE_F32
        params.flash_attn_type = library.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return params


if __name__ == "__main__":
    main()
