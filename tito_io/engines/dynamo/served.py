"""What a frontend says of its models, and how much room that leaves."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from tito_core import InputError
from tito_io.engines.protocol import OverlongError, Sampling
from tito_io.engines.replies.invariants import Check


@attrs.frozen
class DynamoModels:
    """A model that a frontend has."""

    name: str
    context: int | None
    """The most ids of prompt and completion together; None where the frontend does not know."""

    @classmethod
    def of(cls, check: Check, card: object) -> DynamoModels:
        """Read one entry of the frontend's list; it writes 0 where a worker did not say how much it takes."""
        name, rest = check.get(card, "id", str), card if isinstance(card, dict) else {}
        context = rest.get("context_window")
        return cls(name, context if type(context) is int and context > 0 else None)

    def room(self, prompt: int, sampling: Sampling) -> int | None:
        """Return how many ids to ask for after `prompt` ids, None where nobody says.

        Dynamo refuses a prompt that leaves no room for all of `max_tokens`; other engines sample what fits.

        >>> DynamoModels("m", 10).room(7, Sampling(max_tokens=5)), DynamoModels("m", None).room(7, Sampling())
        (3, None)
        """
        if self.context is None:
            return sampling.max_tokens
        if prompt >= self.context:
            raise OverlongError(
                f"the prompt has {prompt} ids, and {self.name} takes {self.context}, a sampled one "
                "among them; shorten the prompt. Nothing was sent"
            )
        left = self.context - prompt
        return left if sampling.max_tokens is None else min(left, sampling.max_tokens)


def chosen(models: Sequence[DynamoModels], name: str | None) -> DynamoModels:
    """Return the model of that name, or the only one.

    >>> chosen([DynamoModels("m", 10)], None), chosen([], "m")
    (Served(name='m', context=10), Served(name='m', context=None))
    """
    if name is not None:
        return next((one for one in models if one.name == name), DynamoModels(name, None))
    if len(models) != 1:
        names = ", ".join(one.name for one in models) or "none, so no worker has come up yet"
        raise InputError(f"model: the frontend has {names}; say which one")
    return models[0]
