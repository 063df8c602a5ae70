"""Engines by name: make the engine that a command line names. Only its adapter is imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import attrs

from tito_core import InputError
from tito_io.families.family import Family

from .protocol import Engine, UnsupportedError
from .refused import refused_name

if TYPE_CHECKING:
    from .http_engine import Connection


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
    """

    base_url: str | None = None
    model: str | None = None
    api_key: str | None = None
    family: Family | None = None
    vocab_size: int | None = None
    seed: int = 0
    timeout: float | None = 600.0

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

    def folder(self, engine: str, why: str = "it has no route that renders") -> Family:
        """Return the model's folder; raises `InputError` where none was passed."""
        if self.family is None:
            raise InputError(f"--engine {engine} needs --family: {why}, so that is done here")
        return self.family


def embedded(seed: int = 0) -> Engine:
    """Return the engine that needs no server: a sampler of random text behind vLLM's API, in this process."""
    import httpx2  # noqa: PLC0415  # one engine, chosen at run time

    from tito_io.embedded import app  # noqa: PLC0415  # training its tokenizer takes a moment

    from .vllm import VLLM  # noqa: PLC0415  # one engine, chosen at run time

    engine = VLLM("http://embedded", transport=httpx2.ASGITransport(app(seed=seed)))
    engine.name = "embedded sampler, not a language model"
    return engine


def _embedded(address: EngineOptions) -> Engine:
    if address.base_url or address.model:
        raise InputError("the embedded engine has no --base-url and no --model: name another with --engine")
    return embedded(seed=address.seed)


def _vllm(address: EngineOptions) -> Engine:
    from .vllm import VLLM  # noqa: PLC0415  # one engine, chosen at run time

    return VLLM(address.where("vllm"), **address.connection)


def _sglang(address: EngineOptions) -> Engine:
    from .sglang import SGLang  # noqa: PLC0415  # one engine, chosen at run time

    return SGLang(address.where("sglang"), family=address.family, **address.connection)


def _dynamo(address: EngineOptions) -> Engine:
    from .dynamo import Dynamo  # noqa: PLC0415  # one engine, chosen at run time

    where, family = address.where("dynamo"), address.folder("dynamo")
    return Dynamo(where, family=family, **address.connection)


def _llamacpp(address: EngineOptions) -> Engine:
    from .llamacpp import LlamaCpp  # noqa: PLC0415  # one engine, chosen at run time

    where = address.where("llamacpp")
    family = address.folder(
        "llamacpp", "the server's own renderer and tokenizer write other ids than the model's"
    )
    return LlamaCpp(where, family=family, **address.connection)


def _lmdeploy(address: EngineOptions) -> Engine:
    from .lmdeploy import LMDeploy  # noqa: PLC0415  # one engine, chosen at run time

    where, family = address.where("lmdeploy"), address.folder("lmdeploy")
    return LMDeploy(where, family=family, **address.connection)


def _tensorrt_llm(address: EngineOptions) -> Engine:
    from .tensorrt_llm import TensorRTLLM  # noqa: PLC0415  # one engine, chosen at run time

    where, family = address.where("tensorrt-llm"), address.folder("tensorrt-llm")
    return TensorRTLLM(where, family=family, **address.connection)


def _miles(address: EngineOptions) -> Engine:
    from .miles import Miles  # noqa: PLC0415  # one engine, chosen at run time

    return Miles(
        address.where("miles"),
        model=address.model or "default",
        api_key=address.api_key,
        timeout=address.timeout,
    )


ENGINES: Mapping[str, Callable[[EngineOptions], Engine]] = {
    "embedded": _embedded,
    "vllm": _vllm,
    "sglang": _sglang,
    "dynamo": _dynamo,
    "llamacpp": _llamacpp,
    "lmdeploy": _lmdeploy,
    "tensorrt-llm": _tensorrt_llm,
    "miles": _miles,
}


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
    return ENGINES[name](address)
