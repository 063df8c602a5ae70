"""The embedded engine behind the same adapter as a server, without a socket."""

from __future__ import annotations

import httpx2

from tito_io.embedded import app

from .vllm import VLLM


def embedded(seed: int = 0) -> VLLM:
    """Return an adapter that talks to a sampler in this process; see `tito_io.embedded`."""
    engine = VLLM("http://embedded", transport=httpx2.ASGITransport(app(seed=seed)))
    engine.name = "embedded sampler, not a language model"
    return engine
