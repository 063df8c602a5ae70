"""Log-probabilities of sampled and prompt ids, and how the routes write them.

They come from no model. Each follows from its id and the `REACH` ids before it alone, so that an id has the
same one whether it was sampled or is scored as part of a prompt.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from attrs import frozen

from .rng import digest, pack
from .vocabulary import vocabulary

REACH = 3
"""How many ids before an id its log-probability depends on."""
LOWEST = -9.0
"""The lowest log-probability, but for rounding."""
HALF = "\N{REPLACEMENT CHARACTER}"
"""What a decoder writes for an incomplete character."""


@frozen
class SampledId:
    """One sampled id.

    Attributes:
        id: The token id.
        logprob: Its natural-log probability.
        before: The few ids just before it, on which `logprob` depends.
        text: The text that became certain with this id. Often the id's own; none for a part of a character,
            and that of earlier ids too where the id completes one.
    """

    id: int
    logprob: float
    before: tuple[int, ...]
    text: str


def logprob(before: Sequence[int], chosen: int) -> float:
    """Return the log-probability of `chosen` after `before`: finite, below 0, exact in 32 bits.

    >>> logprob([1, 2, 3], 7) == logprob([9, 1, 2, 3], 7), logprob([1], 7) < 0
    (True, True)
    """
    part = digest("logprob", pack(before[-REACH:]), chosen) / 2**64
    return single(LOWEST * part**4 - 2**-12)


def alternatives(
    before: Sequence[int], chosen: int, count: int, size: int, *, value: float | None = None
) -> list[tuple[int, float]]:
    """Return up to `count` other ids below `size` with their log-probabilities, the most probable first.

    Together with `chosen` they are an engine's top `count` ids: one fewer where `chosen` is among those.
    `value` is the log-probability of `chosen`, if it is known.
    """
    value = logprob(before, chosen) if value is None else value
    # Each takes half of the probability that is left, so that all of them together stay below 1.
    rest = -math.expm1(value)
    others: dict[int, float] = {}
    place = 0
    while len(others) < count:
        other = digest("other", pack(before[-REACH:]), place) % size
        place += 1
        if other != chosen and other not in others:
            others[other] = single(math.log(rest) - (len(others) + 1) * math.log(2))
    among = count > sum(1 for other in others.values() if other > value)
    return list(others.items())[: count - 1 if among else count]


def rank(before: Sequence[int], chosen: int) -> int:
    """Return the place of `chosen` among all ids, 1 for the most probable.

    >>> rank([], 5) >= 1
    True
    """
    value = logprob(before, chosen)
    above = (math.log(-math.expm1(value)) - value) / math.log(2)
    return max(math.ceil(above), 1)


def single(value: float) -> float:
    """Round to 32 bits, the precision that engines compute in."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


def chat_logprobs(steps: Sequence[SampledId], count: int, *, as_ids: bool) -> dict[str, Any]:
    """Return the form of the chat route: an entry for each id, with its top `count` ids."""
    entries = []
    for step in steps:
        ranked = list(_ranked(step, count, as_ids=as_ids))
        entries.append({**_entry(*ranked[0]), "top_logprobs": [_entry(*one) for one in ranked[:count]]})
    return {"content": entries}


def completion_logprobs(
    steps: Sequence[SampledId], count: int, *, as_ids: bool, offset: int = 0
) -> dict[str, Any]:
    """Return the form of the completions route: parallel lists, text offsets counted from `offset`."""
    ranked = [list(_ranked(step, count, as_ids=as_ids)) for step in steps]
    tokens = [one[0][0] for one in ranked]
    return {
        "text_offset": [offset + sum(map(len, tokens[:place])) for place in range(len(tokens))],
        "token_logprobs": [one[0][1] for one in ranked],
        "tokens": tokens,
        "top_logprobs": [{name: value for name, value, _ in reversed(one)} for one in ranked],
    }


def _ranked(step: SampledId, count: int, *, as_ids: bool) -> Iterator[tuple[str, float, str]]:
    """Yield name, log-probability and text of the sampled id, then of up to `count` others."""
    words, own = vocabulary(), shown_text(step)
    yield (f"token_id:{step.id}" if as_ids else own, step.logprob, own)
    for other, value in alternatives(step.before, step.id, count, words.size):
        decoded = words.decode([other])
        text = "" if HALF in decoded else decoded
        yield (f"token_id:{other}" if as_ids else text, value, text)


def shown_text(step: SampledId) -> str:
    """Return an id's own text; a character in several ids is shown with the last of them."""
    words = vocabulary()
    own = words.decode([step.id])
    if not own.endswith(HALF) and not own.startswith(HALF):
        return own
    for reach in range(1, len(step.before) + 1):
        complete = words.decode([*step.before[-reach:], step.id])
        if HALF not in complete:
            return complete[len(words.decode(step.before[-reach:]).rstrip(HALF)) :]
    return ""


def _entry(name: str, value: float, text: str) -> dict[str, Any]:
    return {"token": name, "logprob": value, "bytes": list(text.encode())}


def prompt_logprobs(prompt: Sequence[int], count: int) -> list[dict[str, Any] | None]:
    """Return the scores of a prompt: of each id and `count` others; None for the first, after nothing."""
    words, scores = vocabulary(), list[dict[str, Any] | None]([None])
    for place in range(1, len(prompt)):
        before, chosen = prompt[max(place - REACH, 0) : place], prompt[place]
        own = rank(before, chosen)
        others = enumerate(alternatives(before, chosen, count, words.size), 1)
        shown = [(own, (chosen, logprob(before, chosen)))]
        shown += [(ranked + (ranked >= own), other) for ranked, other in others]
        scores.append(
            {
                str(one): {"logprob": value, "rank": ranked, "decoded_token": words.decode([one])}
                for ranked, (one, value) in shown
            }
        )
    return scores
