"""Run llama.cpp's own HTTP server in this process: `python llamacpp_process.py FILE PORT [NAME=VALUE...]`.

Run by an interpreter that has xllamacpp. The values are those of its `CommonParams`, and `speculative=KIND`.
The cache has full precision, so that log-probabilities are the same whether or not a prompt was cached.
"""

from __future__ import annotations

import ast
import os
import signal
import sys
from importlib import import_module
from typing import Any

ALIAS = "tiny"


def main(path: str, port: str, *settings: str) -> None:
    """Serve until a signal ends the process."""
    library: Any = import_module("xllamacpp")
    options = library.CommonParams()
    options.model.path, options.port, options.model_alias = path, int(port), {ALIAS}
    options.hostnames = ["127.0.0.1"]
    options.n_ctx, options.n_parallel = 8192, 4
    options.cpuparams.n_threads = 1  # more of them spin where processors are shared
    options.cache_type_k = options.cache_type_v = library.ggml_type.GGML_TYPE_F32
    options.flash_attn_type = library.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    options.cache_ram_mib, options.endpoint_slots = 64, True
    for setting in settings:
        name, value = setting.split("=", 1)
        if name == "speculative":
            kind = getattr(library.common_speculative_type, f"COMMON_SPECULATIVE_TYPE_{value}")
            options.speculative.types = [kind]
            # short ones, so that a random model drafts at all
            options.speculative.ngram_simple.size_n, options.speculative.ngram_simple.size_m = 3, 4
        else:
            setattr(options, name, ast.literal_eval(value))
    server = library.Server(options)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    print("listening", server.listening_address, flush=True)  # noqa: T201  # the process's log
    while True:
        signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
