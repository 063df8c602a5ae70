"""The support of a sampled id: the ids that top-k, top-p and min-p keep, with probabilities over them."""

from __future__ import annotations

import math

from attrs import frozen

from .http import BadRequest, Body
from .logprobs import SampledId, alternatives, single
from .vocabulary import vocabulary


@frozen
class Truncation:
    """The limits (top-k, top-p, min-p) that keep only the likeliest ids.

    Attributes:
        top_k: At most so many ids.
        top_p: The fewest that have this probability together.
        min_p: Only those that have this part of the likeliest one's probability.
    """

    top_k: int = 64
    top_p: float = 0.95
    min_p: float = 0.0

    @classmethod
    def read(cls, body: Body) -> Truncation:
        """Read a request; what it leaves out is as above, as a model's generation config has it.

        Raises `BadRequest` where vLLM does (`vllm/v1/engine/input_processor.py`, 0.33).
        """
        temperature, top_k = body.number("temperature"), body.integer("top_k")
        for name, value in (("temperature", temperature), ("top_k", top_k)):
            if value is not None and value <= 0:
                raise BadRequest(f"sampling distribution replay requires {name} > 0")
        given = {"top_k": top_k, "top_p": body.number("top_p"), "min_p": body.number("min_p")}
        return cls(**{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]  # numbers


def support(step: SampledId, truncation: Truncation) -> dict[int, float]:
    """Return the ids that are kept where an id was sampled, the likeliest first, with log-probabilities.

    The probabilities are normalized over these ids. The sampled one is among them: the sampler draws from no
    distribution, so where the others leave no room for it, it stands in the place of the least likely.

    >>> kept = support(SampledId(7, -0.75, (1, 2), ""), Truncation(top_p=0.9))
    >>> 7 in kept, round(sum(map(math.exp, kept.values())), 6)
    (True, 1.0)
    >>> list(support(SampledId(7, -8.0, (1, 2), ""), Truncation(top_k=1)))
    [7]
    """
    others = alternatives(step.before, step.id, truncation.top_k, vocabulary().size, value=step.logprob)
    ranked = sorted([(step.id, step.logprob), *others], key=lambda one: -one[1])[: truncation.top_k]
    least = ranked[0][1] + math.log(truncation.min_p) if truncation.min_p else -math.inf
    kept, mass = dict[int, float](), 0.0
    for one, value in ranked:
        if kept and (mass >= truncation.top_p or value < least):
            break
        kept[one] = value
        mass += math.exp(value)
    if step.id not in kept:
        kept.popitem()
        kept[step.id] = step.logprob
    whole = math.log(sum(map(math.exp, kept.values())))
    return {one: single(value - whole) if len(kept) > 1 else 0.0 for one, value in kept.items()}
