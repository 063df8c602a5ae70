"""A stand-in for the package `xllamacpp`, whose server answers `/tokenize` with the ids of letters.

It has the part of xllamacpp 2026.10.11549 that is used, as its `xllamacpp.pyx` has it: attributes of
`CommonParams` that exist (another name is an AttributeError, another type a TypeError), and `Server`, which
returns once the model is loaded, has `listening_address`, and raises a RuntimeError where it could not load.
What the model's file holds decides what happens: `dies`, `aborts`, or else it is served.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest

SOURCE = r"""
import json, os, sys, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Model:
    path = ""


class CpuParams:
    __slots__ = ("n_threads",)

    def __init__(self):
        self.n_threads = -1


class ggml_type:
    GGML_TYPE_F32 = 0


class llama_flash_attn_type:
    LLAMA_FLASH_ATTN_TYPE_DISABLED = 0


class CommonParams:
    __slots__ = (
        *("model", "model_alias", "hostnames", "port", "api_keys", "n_ctx", "n_parallel", "ui"),
        *("endpoint_slots", "cpuparams", "cpuparams_batch", "n_gpu_layers"),
        *("cache_type_k", "cache_type_v", "flash_attn_type"),
    )

    def __init__(self):
        self.model, self.cpuparams, self.cpuparams_batch = Model(), CpuParams(), CpuParams()

    def __setattr__(self, name, value):
        kinds = {"model_alias": set, "hostnames": list, "api_keys": list, "port": int, "n_ctx": int}
        if not isinstance(value, kinds.get(name, object)):
            raise TypeError(name)
        super().__setattr__(name, value)


class Server:
    def __init__(self, params):
        content = open(params.model.path, "rb").read()
        print("srv: loading model", file=sys.stderr, flush=True)
        if b"dies" in content:
            raise RuntimeError("Failed to init server, please check the input params.")
        if b"aborts" in content:
            print("GGML_ASSERT failed", file=sys.stderr, flush=True)
            os.abort()
        assert params.hostnames == ["127.0.0.1"] and params.port == 0
        served = ThreadingHTTPServer(("127.0.0.1", 0), handler(params))
        threading.Thread(target=served.serve_forever, daemon=True).start()
        self.listening_address = f"http://127.0.0.1:{served.server_port}"


def handler(params):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            allowed = self.headers["Authorization"] == f"Bearer {params.api_keys[0]}"
            assert (sent.pop("add_special"), sent.pop("parse_special")) == (False, True)
            tokens = [params.n_ctx, *map(ord, sent["content"])]
            self.send_response(200 if allowed else 401)
            self.end_headers()
            self.wfile.write(json.dumps({"tokens": tokens}).encode())

        def log_message(self, *_):
            pass

    return Handler
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the stand-in on the path of this process and of its children; return its folder."""
    folder = tmp_path / "stand_in"
    folder.mkdir()
    (folder / "xllamacpp.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *filter(None, sys.path)]))
    importlib.invalidate_caches()
    return folder
