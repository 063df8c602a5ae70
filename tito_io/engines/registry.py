"""Engines by name: make the engine that a command line names. Only its adapter is imported."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import attrs

from tito_core import InputError
from tito_io.families.family import Family

from .names import ENGINES
from .protocol import Engine, UnsupportedError
from .refused import refused_name

if TYPE_CHECKING:
    from .http_engine import Connection


LONGEST = 4_096
"""The most ids of a turn of the embedded engine for agents: more than a turn that ends has."""


@attrs.frozen(kw_only=True)
class EngineOptions:
    """The command-line options of an engine.

    Attributes:
        base_url: The server's address.
        model: The model's name.
        api_key: Sent as a bearer token.
        family: The model's folder.
        vocab_size: How many ids there are.
        seed: The seed of the embedded engine.
        timeout: Seconds without a byte from the engine after which a request fails; None for no limit.
        for_agents: Whether the embedded engine's turns say something and end: agent programs give up at an
            empty turn (Qwen Code) and at one that a limit has cut (Codex).
        sampling_masks: Whether turns are sampled with sampling masks, which not all routes of an engine have.
    """

    base_url: str | None = None
    model: str | None = None
    api_key: str | None = None
    family: Family | None = None
    vocab_size: int | None = None
    seed: int = 0
    timeout: float | None = 600.0
    for_agents: bool = False
    sampling_masks: bool = False

    @property
    def connection(self) -> Connection:
        """The keyword arguments that every adapter of an HTTP engine takes."""
        return {
            "model": self.model,
            "api_key": self.api_key,
            "timeout": self.timeout,
            "vocab_size": self.vocab_size,
        }

    def where(self, engine: str) -> str:
        """Return the base URL; raises `InputError` where none was passed."""
        if not self.base_url:
            raise InputError(f"--engine {engine} needs --base-url URL")
        return self.base_url

    def folder(self, engine: str, why: str) -> Family | None:
        """Return the model's folder; raises `InputError` where one is needed and was not passed."""
        if self.family is None and why:
            raise InputError(f"--engine {engine} needs --family: {why}, so that is done here")
        return self.family


def embedded(seed: int = 0, *, for_agents: bool = False, sampling_masks: bool = False) -> Engine:
    """Return the engine that needs no server: a sampler of random text behind vLLM's API, in this process.

    Args:
        seed: The sampler's seed.
        for_agents: Whether all of its turns say something and end.
        sampling_masks: Whether it gives sampling masks (`Sampling.sampling_masks`).
    """
    import httpx2  # noqa: PLC0415  # one engine, chosen at run time

    from tito_io.embedded import FaultRates, app  # noqa: PLC0415  # training its tokenizer takes a moment

    from .vllm import VLLM  # noqa: PLC0415  # one engine, chosen at run time

    rates = FaultRates(endless=0.0, empty=0.0)
    ending: dict[str, Any] = {"fault_rates": rates, "max_new_tokens": LONGEST} if for_agents else {}
    transport = httpx2.ASGITransport(app(seed=seed, sampling_masks=sampling_masks, **ending))
    engine = VLLM(
        "http://embedded", route="generate" if sampling_masks else "completions", transport=transport
    )
    engine.name = "embedded sampler, not a language model"
    return engine


def _embedded(address: EngineOptions) -> Engine:
    if address.base_url or address.model:
        raise InputError("the embedded engine has no --base-url and no --model: name another with --engine")
    return embedded(seed=address.seed, for_agents=address.for_agents, sampling_masks=address.sampling_masks)


def _miles(address: EngineOptions) -> Engine:
    from .miles import Miles  # noqa: PLC0415  # one engine, chosen at run time

    return Miles(
        address.where("miles"),
        model=address.model or "default",
        api_key=address.api_key,
        timeout=address.timeout,
    )


def _adapter(name: str, address: EngineOptions) -> Engine:
    """Return an engine of the adapter that `ENGINES` names."""
    row, where = ENGINES[name], address.where(name)
    own: dict[str, Any] = {} if row.family is None else {"family": address.folder(name, row.family)}
    if row.masks and address.sampling_masks:
        own["route"] = row.masks
    module, _, kind = row.adapter.partition(":")
    engine: Engine = getattr(import_module(f".{module}", __package__), kind)(
        where, **own, **address.connection
    )
    return engine


def make_engine(name: str, address: EngineOptions) -> Engine:
    """Return the engine called `name`.

    Raises:
        InputError: There is no such engine, or it lacks an option of `address`.
        UnsupportedError: `name` is a server that keeps no ids, such as Ollama.
    """
    refused = refused_name(name)
    if refused is not None:
        raise UnsupportedError(f"--engine {name}: {refused.why}", parameter="engine")
    if name not in ENGINES:
        raise InputError(f"--engine {name!r:.60} is unknown; name one of {', '.join(ENGINES)}")
    if address.vocab_size is not None and name != "sglang":
        raise InputError(f"--vocab-size is for --engine sglang, and this is {name}: leave it out")
    key = address.api_key
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise InputError(
            "--api-key (or TITO_API_KEY) has a space, a line's end or a letter that no header can carry: "
            "was more copied than the key?"
        )
    factory = {"embedded": _embedded, "miles": _miles}.get(name)
    return _adapter(name, address) if factory is None else factory(address)
