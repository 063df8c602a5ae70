"""What a vLLM server says of its models, and how much room that leaves."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from tito_core import InputError
from tito_io.engines.protocol import OverlongError, Sampling
from tito_io.engines.replies.invariants import Check


@attrs.frozen
class VllmModels:
    """A model that a server has."""

    name: str
    max_model_len: int | None
    """The most ids of prompt and completion together; None where the server does not say."""
    parent: str | None = None
    """The model that this one is an adapter of."""

    @classmethod
    def of(cls, check: Check, card: object) -> VllmModels:
        """Read one entry of the server's list."""
        name, rest = check.get(card, "id", str), card if isinstance(card, dict) else {}
        length, parent = rest.get("max_model_len"), rest.get("parent")
        return cls(name, length if type(length) is int else None, parent if isinstance(parent, str) else None)

    def limit(self, prompt: int, sampling: Sampling) -> int | None:
        """Return the most ids that a turn after `prompt` ids can have, None where nobody says.

        >>> VllmModels("m", 10).limit(7, Sampling(max_tokens=5)), VllmModels("m", None).limit(7, Sampling())
        (3, None)
        """
        room = None if self.max_model_len is None else self.max_model_len - prompt
        return min((size for size in (room, sampling.max_tokens) if size is not None), default=None)

    def room(self, prompt: int, sampling: Sampling) -> int:
        """Return that limit; raises `OverlongError` where it leaves nothing to sample."""
        limit = self.limit(prompt, sampling)
        if limit is None:
            raise InputError(
                f"Sampling.max_tokens: {self.name} does not say how long its context is; pass a number"
            )
        if self.max_model_len is not None and prompt >= self.max_model_len:
            raise OverlongError(
                f"the prompt has {prompt} ids, and {self.name} takes {self.max_model_len}, with at least one "
                "that it samples; shorten the prompt. Nothing was sent"
            )
        return limit


def chosen(models: Sequence[VllmModels], name: str | None) -> VllmModels:
    """Return the model of that name, or the only one.

    A name that is not listed may be right: servers load adapters when they are first asked for them. An
    adapter has no more context than the models there.

    >>> chosen([VllmModels("m", 10), VllmModels("lora", None, "m")], "lora")
    Served(name='lora', max_model_len=10, parent=None)
    """
    longest = min((one.max_model_len for one in models if one.max_model_len is not None), default=None)
    if name is not None:
        known = [one for one in models if one.name == name and one.max_model_len is not None]
        return known[0] if known else VllmModels(name, longest)
    whole = [one for one in models if one.parent is None]
    if len(whole) != 1:
        names = ", ".join(one.name for one in models) or "none"
        raise InputError(f"model: the server has {names}; say which one")
    return whole[0]
