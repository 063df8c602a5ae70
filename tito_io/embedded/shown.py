"""Log-probabilities as the two routes show them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from .generation import Sampled
from .logprobs import REACH, alternatives, logprob, rank
from .vocabulary import vocabulary

HALF = "\N{REPLACEMENT CHARACTER}"


def chat_logprobs(steps: Sequence[Sampled], count: int, *, as_ids: bool) -> dict[str, Any]:
    """Return the chat form: an entry for each id, the sampled one first among its `count` shown ids."""
    entries = []
    for step in steps:
        ranked = list(_ranked(step, count, as_ids=as_ids))
        entries.append({**_entry(*ranked[0]), "top_logprobs": [_entry(*one) for one in ranked[:count]]})
    return {"content": entries}


def completion_logprobs(
    steps: Sequence[Sampled], count: int, *, as_ids: bool, offset: int = 0
) -> dict[str, Any]:
    """Return the completions form: lists side by side, text offsets counted from `offset`."""
    ranked = [list(_ranked(step, count, as_ids=as_ids)) for step in steps]
    tokens = [one[0][0] for one in ranked]
    return {
        "text_offset": [offset + sum(map(len, tokens[:place])) for place in range(len(tokens))],
        "token_logprobs": [one[0][1] for one in ranked],
        "tokens": tokens,
        "top_logprobs": [{name: value for name, value, _ in reversed(one)} for one in ranked],
    }


def prompt_logprobs(prompt: Sequence[int], count: int) -> list[dict[str, Any] | None]:
    """Return a mapping for every id of a prompt, None for the first: nothing stands before it."""
    return [
        None,
        *(_place(prompt[max(at - REACH, 0) : at], prompt[at], count) for at in range(1, len(prompt))),
    ]


def _place(before: Sequence[int], chosen: int, count: int) -> dict[str, Any]:
    """Return one place: its id, then `count` others, by the id as a string."""
    others = alternatives(before, chosen, count, vocabulary().size)
    own = (chosen, logprob(before, chosen), rank(before, chosen))
    shown = [own, *((other, value, place) for place, (other, value) in enumerate(others, 1))]
    return {str(one): _scored(one, value, place) for one, value, place in shown}


def _scored(identifier: int, value: float, place: int) -> dict[str, Any]:
    return {"logprob": value, "rank": place, "decoded_token": vocabulary().decode([identifier])}


def _ranked(step: Sampled, count: int, *, as_ids: bool) -> Iterator[tuple[str, float, str]]:
    """Yield name, value and text of the sampled id, then of up to `count` others."""
    text = _text(step)
    yield (f"token_id:{step.id}" if as_ids else text, step.logprob, text)
    words = vocabulary()
    for other, value in alternatives(step.before, step.id, count, words.size):
        text = "" if HALF in (found := words.decode([other])) else found
        yield (f"token_id:{other}" if as_ids else text, value, text)


def _entry(name: str, value: float, text: str) -> dict[str, Any]:
    return {"token": name, "logprob": value, "bytes": list(text.encode())}


def _text(step: Sampled) -> str:
    """Return the text of an id: its own, or with its last byte that of the character it completes."""
    words = vocabulary()
    own = words.decode([step.id])
    if not own.endswith(HALF) and not own.startswith(HALF):
        return own
    for reach in range(1, len(step.before) + 1):
        whole = words.decode([*step.before[-reach:], step.id])
        if HALF not in whole:
            return whole[len(words.decode(step.before[-reach:]).rstrip(HALF)) :]
    return ""
