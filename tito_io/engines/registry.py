"""The engine that a command names, made ready. Adapters are loaded only where they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import attrs

from tito_core import InputError
from tito_io.families.family import Family

from .protocol import Engine


@attrs.frozen(kw_only=True)
class Address:
    """What a command line says of an engine."""

    base_url: str | None = None
    model: str | None = None
    api_key: str | None = None
    family: Family | None = None
    """The model's folder, where one is given."""
    vocab_size: int | None = None
    seed: int = 0
    """What the embedded engine samples with."""
    timeout: float | None = 600.0
    """Seconds without a byte from the engine after which a request fails; None for no limit."""

    def where(self, engine: str) -> str:
        """Return the base URL, or say that there is none."""
        if not self.base_url:
            raise InputError(f"--engine {engine} needs --base-url URL")
        return self.base_url


def _embedded(address: Address) -> Engine:
    if address.base_url or address.model:
        raise InputError("the embedded engine has no --base-url and no --model: name another with --engine")
    from .embedded import embedded  # noqa: PLC0415  # training its tokenizer takes a moment

    return embedded(seed=address.seed)


def _vllm(address: Address) -> Engine:
    from .vllm import VLLM  # noqa: PLC0415  # one engine, chosen at run time

    return VLLM(address.where("vllm"), model=address.model, api_key=address.api_key, timeout=address.timeout)


def _sglang(address: Address) -> Engine:
    from .sglang import SGLang  # noqa: PLC0415  # one engine, chosen at run time

    return SGLang(
        address.where("sglang"),
        model=address.model,
        api_key=address.api_key,
        vocab_size=address.vocab_size,
        timeout=address.timeout,
    )


def _dynamo(address: Address) -> Engine:
    from .dynamo import Dynamo  # noqa: PLC0415  # one engine, chosen at run time

    where = address.where("dynamo")
    if address.family is None:
        raise InputError("--engine dynamo needs --family: it has no route that renders, so that is done here")
    return Dynamo(
        where,
        model=address.model,
        api_key=address.api_key,
        family=address.family,
        timeout=address.timeout,
    )


def _miles(address: Address) -> Engine:
    from .miles import Miles  # noqa: PLC0415  # one engine, chosen at run time

    return Miles(
        address.where("miles"),
        model=address.model or "default",
        api_key=address.api_key,
        timeout=address.timeout,
    )


ENGINES: Mapping[str, Callable[[Address], Engine]] = {
    "embedded": _embedded,
    "vllm": _vllm,
    "sglang": _sglang,
    "dynamo": _dynamo,
    "miles": _miles,
}


def chosen(name: str, address: Address) -> Engine:
    """Return the engine of that name; raises `InputError` for options that it does not have."""
    if address.vocab_size is not None and name != "sglang":
        raise InputError(f"--vocab-size is for --engine sglang, and this is {name}: leave it out")
    _check_key(address.api_key)
    return ENGINES[name](address)


def _check_key(key: str | None) -> None:
    """Refuse a key that no header can carry, without repeating it."""
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise InputError(
            "--api-key (or TITO_API_KEY) has a space, a line's end or a letter that no header can carry: "
            "was more copied than the key?"
        )
