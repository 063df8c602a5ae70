"""What an SGLang server says of its models, and how much room that leaves."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from tito_core import InputError
from tito_io.engines.protocol import OverlongError, Sampling
from tito_io.engines.replies.invariants import Check


@attrs.frozen
class SglangModels:
    """A model that a server has."""

    name: str
    max_model_len: int | None
    """The most ids of prompt and completion together; None where the server does not say."""
    parent: str | None = None
    """The model that this one is an adapter of."""

    @classmethod
    def of(cls, check: Check, card: object) -> SglangModels:
        """Read one entry of the server's list."""
        name, rest = check.get(card, "id", str), card if isinstance(card, dict) else {}
        length, parent = rest.get("max_model_len"), rest.get("parent")
        return cls(name, length if type(length) is int else None, parent if isinstance(parent, str) else None)

    @property
    def asked_for(self) -> str:
        """The name that the OpenAI routes know it by; an adapter's own name would ask for its parent."""
        return self.name if self.parent is None else f"{self.parent}:{self.name}"

    def room(self, prompt: int, sampling: Sampling, max_prompt: int | None) -> int:
        """Return how many ids to ask for after `prompt` ids.

        SGLang refuses what would not fit, and clamps nothing. Raises `OverlongError` where nothing is left.

        >>> SglangModels("m", 10).room(7, Sampling(max_tokens=5), None)
        3
        """
        whole = self.max_model_len
        if (whole is not None and prompt >= whole) or (max_prompt is not None and prompt > max_prompt):
            most = min(size for size in (max_prompt, whole and whole - 1) if size is not None)
            raise OverlongError(
                f"the prompt has {prompt} ids, and {self.name} takes {most}; shorten the prompt. "
                "Nothing was sent"
            )
        room = None if whole is None else whole - prompt
        sizes = [size for size in (room, sampling.max_tokens) if size is not None]
        if not sizes:
            raise InputError(
                f"Sampling.max_tokens: {self.name} does not say how long its context is; pass a number"
            )
        return min(sizes)


def chosen(models: Sequence[SglangModels], name: str | None) -> SglangModels:
    """Return the model of that name, or the only one.

    SGLang answers whatever name it is asked by, with the model that it has. A name that it does not list is
    therefore refused here. `base:adapter` is the server's own way to name an adapter; such a one it refuses
    by itself where it has none.

    >>> base = SglangModels("m", 10)
    >>> chosen([base], None).name, chosen([base], "m:lora").asked_for
    ('m', 'm:lora')
    """
    whole = [one for one in models if one.parent is None]
    known = {name: one for one in models for name in (one.name, one.asked_for)}
    if name is None and len(whole) == 1:
        return whole[0]
    if name in known:
        one = known[name]
        return one if one.max_model_len is not None else attrs.evolve(one, max_model_len=_length(whole))
    base, colon, adapter = (name or "").partition(":")
    if colon and adapter and base in {one.name for one in whole}:
        return SglangModels(adapter, _length(whole), base)
    names = ", ".join(one.name for one in models) or "none"
    raise InputError(f"model: the server has {names}; say which one" + (f", not {name!r}" if name else ""))


def _length(models: Sequence[SglangModels]) -> int | None:
    """Return the context of a server's models; an adapter has its parent's."""
    return min((one.max_model_len for one in models if one.max_model_len is not None), default=None)
