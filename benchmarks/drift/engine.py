"""Address of the measured engine; starts one if no URL is given."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx2

from tito_io.embedded import app, write_family
from tito_io.engines.protocol import Engine
from tito_io.engines.reconnect import Reconnecting
from tito_io.engines.sglang import SGLang
from tito_io.engines.vllm import VLLM
from tito_io.families.family import Family

from .recorder import Recorder
from .sampling import STYLES, SamplingStyle, embedded, of_sglang, of_vllm

ENGINE_ARGUMENTS: Mapping[str, Callable[..., dict[str, Any]]] = {"vllm": of_vllm, "sglang": of_sglang}


@attrs.frozen
class EngineAddress:
    """Address of an engine.

    Attributes:
        name: `vllm`, `sglang` or `embedded`.
        url: Base URL.
        model: Name of the served model; None if there is only one.
        family: The model folder.
    """

    name: str
    url: str
    model: str | None
    family: Path

    def engine(self, recorder: Recorder) -> Engine:
        """Return a client of the engine whose requests pass `recorder`."""
        if self.name == "sglang":
            return SGLang(self.url, model=self.model, transport=recorder)
        return VLLM(self.url, model=self.model, transport=recorder)

    def recorder(self, seed: int) -> Recorder:
        """Return a transport to the engine that records sampled ids."""
        if self.name == "embedded":
            return Recorder(httpx2.ASGITransport(app(seed=seed)))
        limits = httpx2.Limits(max_keepalive_connections=0)  # a pooled connection may be closing
        return Recorder(Reconnecting(inner=httpx2.AsyncHTTPTransport(limits=limits)))

    def styles(self) -> list[SamplingStyle]:
        """Return the sampling styles to measure with this engine."""
        if self.name == "embedded":
            return [embedded()]
        family = Family.load(self.family)
        return [make(family, ENGINE_ARGUMENTS[self.name]) for make in STYLES.values()]


@contextmanager
def engine_address(
    args: argparse.Namespace, folder: Path, say: Callable[[str], None]
) -> Iterator[EngineAddress]:
    """Return the address of the engine of the command line; start one if there is no `--url`."""
    if args.engine == "embedded":
        yield EngineAddress("embedded", "http://embedded", None, write_family(folder / "family"))
        return
    if args.url is not None:
        yield EngineAddress(args.engine, args.url, args.model, args.family)
        return
    from tests.engines.sglang import sglang  # noqa: PLC0415  # only where an engine is started here
    from tests.engines.vllm import vllm  # noqa: PLC0415  # likewise

    os.environ.setdefault(
        "OMP_NUM_THREADS", "1"
    )  # OpenMP threads spin while they wait, which starves other processes
    limit = {"vllm": "--max-num-seqs", "sglang": "--max-running-requests"}[args.engine]
    start = {"vllm": vllm, "sglang": sglang}[args.engine]
    with start(say, folder / "engine.log", f"{limit}={args.together}") as server:
        yield EngineAddress(args.engine, server.base_url, server.model, server.family)
