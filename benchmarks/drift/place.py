"""Where an engine is, and one of one's own where there is none."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import httpx2

from tito_io.client.driver import InThread
from tito_io.embedded import app, write_family
from tito_io.engines.protocol import Engine
from tito_io.engines.protocol import Rendering as Given
from tito_io.engines.reconnect import Reconnecting
from tito_io.engines.sglang import SGLang
from tito_io.engines.vllm import VLLM
from tito_io.families.family import Family

from .tap import Tap
from .voice import VOICES, Voice, embedded, of_sglang, of_vllm

SPELLED: Mapping[str, Callable[..., dict[str, Any]]] = {"vllm": of_vllm, "sglang": of_sglang}


@attrs.frozen
class Place:
    """Where an engine is."""

    name: str
    url: str
    model: str | None
    family: Path

    def engine(self, tap: Tap) -> Engine:
        """Return what talks to it."""
        if self.name == "sglang":
            return SGLang(self.url, model=self.model, transport=tap)
        return VLLM(self.url, model=self.model, transport=tap)

    def tap(self, seed: int) -> Tap:
        """Return what listens to it."""
        if self.name == "embedded":
            return Tap(httpx2.ASGITransport(app(seed=seed)))
        limits = httpx2.Limits(max_keepalive_connections=0)  # one that is kept may just be closing
        return Tap(Reconnecting(inner=httpx2.AsyncHTTPTransport(limits=limits)))

    def voices(self) -> list[Voice]:
        """Return the voices that its model is given."""
        if self.name == "embedded":
            return [embedded()]
        family = Family.load(self.family)
        return [make(family, SPELLED[self.name]) for make in VOICES.values()]


def bound(family: Family, rendering: Given) -> InThread:
    """Return what renders for the bridge: the model's folder, as `tito rollout --family` has it."""
    return InThread(family.tokenize_fn(tools=rendering.tools or None, **rendering.template_args))


@contextmanager
def lent(args: argparse.Namespace, folder: Path, say: Callable[[str], None]) -> Iterator[Place]:
    """Lend the engine that was asked for, started where no address was given."""
    if args.engine == "embedded":
        yield Place("embedded", "http://embedded", None, write_family(folder / "family"))
        return
    if args.url is not None:
        yield Place(args.engine, args.url, args.model, args.family)
        return
    from tests.engines.sglang import sglang  # noqa: PLC0415  # only where an engine is started here
    from tests.engines.vllm import vllm  # noqa: PLC0415  # likewise

    os.environ.setdefault("OMP_NUM_THREADS", "1")  # two wait for each other by spinning, and others work here
    limit = {"vllm": "--max-num-seqs", "sglang": "--max-running-requests"}[args.engine]
    start = {"vllm": vllm, "sglang": sglang}[args.engine]
    with start(say, folder / "engine.log", f"{limit}={args.together}") as server:
        yield Place(args.engine, server.base_url, server.model, server.family)
