"""The names that an answer and its parts go by."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import uuid4

from attrs import frozen
from starlette.requests import Request

from .draws import REACH, alternatives, digest, logprob, pack, rank
from .generation import Generation, SampledId
from .vocabulary import CALL, CLOSE, OVER, THINK, THOUGHT, vocabulary

VERSION = "0.32.0"
"""The version of the engine whose dialect this is."""
FINGERPRINT = f"vllm-{VERSION}-embedded"


@frozen
class Stamp:
    """What every body of one answer carries."""

    id: str
    kind: str
    created: int
    model: str

    def fields(self) -> dict[str, str | int]:
        """Return the fields as they begin a body."""
        return {"id": self.id, "object": self.kind, "created": self.created, "model": self.model}


def stamp(request: Request, prefix: str, kind: str, model: str) -> Stamp:
    """Name an answer: after the request's `X-Request-Id`, otherwise freely."""
    wished = request.headers.get("x-request-id")
    return Stamp(f"{prefix}-{wished or uuid4().hex[:16]}", kind, int(time.time()), model)


def call_ids(reply: Generation) -> Callable[[int], str]:
    """Return what names the tool calls of a reply: the same names for the same ids, streamed or not."""
    seen = digest("call", pack(reply.prompt), pack(reply.ids))
    return lambda place: f"chatcmpl-tool-{digest(seen, place):016x}"


HALF = "\N{REPLACEMENT CHARACTER}"


def chat_logprobs(steps: Sequence[SampledId], count: int, *, as_ids: bool) -> dict[str, Any]:
    """Return the chat form: an entry for each id, the sampled one first among its `count` shown ids."""
    entries = []
    for step in steps:
        ranked = list(_ranked(step, count, as_ids=as_ids))
        entries.append({**_entry(*ranked[0]), "top_logprobs": [_entry(*one) for one in ranked[:count]]})
    return {"content": entries}


def completion_logprobs(
    steps: Sequence[SampledId], count: int, *, as_ids: bool, offset: int = 0
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


def _ranked(step: SampledId, count: int, *, as_ids: bool) -> Iterator[tuple[str, float, str]]:
    """Yield name, value and text of the sampled id, then of up to `count` others."""
    text = _text(step)
    yield (f"token_id:{step.id}" if as_ids else text, step.logprob, text)
    words = vocabulary()
    for other, value in alternatives(step.before, step.id, count, words.size):
        text = "" if HALF in (found := words.decode([other])) else found
        yield (f"token_id:{other}" if as_ids else text, value, text)


def _entry(name: str, value: float, text: str) -> dict[str, Any]:
    return {"token": name, "logprob": value, "bytes": list(text.encode())}


def _text(step: SampledId) -> str:
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


def usage(prompt: int, completion: int) -> dict[str, Any]:
    """Return the three counts.

    >>> usage(5, 2)
    {'prompt_tokens': 5, 'total_tokens': 7, 'completion_tokens': 2}
    """
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}


def cached(count: int, created: int | None) -> dict[str, Any]:
    """Return what is told of the prompt."""
    return {"cached_tokens": count, "created_cache_tokens": created, "multimodal_tokens": None}


def full(
    prompt: int, replies: Sequence[Generation], known: dict[str, Any], thought: int | None
) -> dict[str, Any]:
    """Return the counts of a whole answer with their details."""
    details = None if thought is None else {"reasoning_tokens": thought}
    counts = usage(prompt, sum(len(reply.ids) for reply in replies))
    return {**counts, "prompt_tokens_details": known, "completion_tokens_details": details}


def thoughts(ids: Sequence[int], *, thinking: bool) -> int:
    """Return how many ids are thought: those before `</think>`, without the tags."""
    words = vocabulary()
    ends = {words.id(token) for token in (THOUGHT, CALL, CLOSE, OVER)}
    count = 0
    for identifier in ids if thinking else ():
        if identifier in ends:
            break
        count += identifier != words.id(THINK)
    return count
