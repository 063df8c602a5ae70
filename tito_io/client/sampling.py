"""Sampling arguments as agents and trainers write them, in the manner of the OpenAI client.

`max_tokens` and `max_completion_tokens` are one thing, None says nothing, and `extra_body` holds what the
client library has no name for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from tito_core import InputError
from tito_io.engines.protocol import Sampling

ELSEWHERE: Mapping[str, str] = {
    "messages": "pass the prompt",
    "model": "the engine is made with it",
    "prompt": "pass the prompt",
    "stream": "pass `watch`",
    "stream_options": "pass `watch`",
    "tools": "pass `tools`",
}
"""Arguments that are no sampling arguments here, and what to do instead."""
ALWAYS = frozenset(("logprobs", "return_token_ids", "return_tokens_as_token_ids"))
"""What every adapter asks for in its engine's own words, whatever the caller says."""
LENGTHS = ("max_tokens", "max_completion_tokens")


@attrs.frozen
class SamplingArgs:
    """Sampling arguments, understood."""

    sampling: Sampling
    template_args: Mapping[str, Any]
    """What the chat template is given: it changes the prompt's ids, and the bridge's."""


def parse_sampling(args: Mapping[str, Any] | None) -> SamplingArgs:
    """Return what sampling arguments say; raises `InputError` naming the one that is wrong.

    Where `extra_body` repeats an argument, `extra_body` holds, as it does in the client library.

    >>> asked = parse_sampling({"max_tokens": 8, "stop": "END", "top_p": None, "extra_body": {"top_k": 5}})
    >>> asked.sampling
    Sampling(max_tokens=8, temperature=None, seed=None, stop=('END',), stop_ids=(), n=1, extra={'top_k': 5})
    """
    said = _merged(args or {})
    for name, instead in ELSEWHERE.items():
        if name in said:
            raise InputError(f"sampling: {name!r} is no sampling argument; {instead}")
    sampling = Sampling(
        max_tokens=_length(said),
        temperature=_taken(said, "temperature", _number),
        seed=_taken(said, "seed", _whole),
        stop=_taken(said, "stop", _texts) or (),
        stop_ids=_taken(said, "stop_token_ids", _ids) or (),
        n=_taken(said, "n", _count) or 1,
        extra={},
    )
    template_args = _taken(said, "chat_template_kwargs", _mapping) or {}
    return SamplingArgs(attrs.evolve(sampling, extra=said), template_args)


def _merged(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that say something, `extra_body` among them."""
    extra = _mapping("extra_body", args.get("extra_body") or {})
    both = {**{name: value for name, value in args.items() if name != "extra_body"}, **extra}
    return {name: value for name, value in both.items() if value is not None and name not in ALWAYS}


def _length(said: dict[str, Any]) -> int | None:
    """Return the most ids to sample, under whichever of its names it is given."""
    given = {name: _taken(said, name, _count) for name in LENGTHS}
    found = {value for value in given.values() if value is not None}
    if len(found) > 1:
        raise InputError(f"sampling: max_tokens and max_completion_tokens are one thing, not {given}")
    return found.pop() if found else None


def _taken(said: dict[str, Any], name: str, checked: Callable[[str, Any], Any]) -> Any:
    """Take an argument out and check it; None where it is not there."""
    return checked(name, said.pop(name)) if name in said else None


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"sampling: {name} is {value!r:.60}; give a number")
    return value


def _whole(name: str, value: Any) -> int:
    if type(value) is not int:
        raise InputError(f"sampling: {name} is {value!r:.60}; give a whole number")
    return value


def _count(name: str, value: Any) -> int:
    if _whole(name, value) < 1:
        raise InputError(f"sampling: {name} is {value}; give at least 1")
    return int(value)


def _texts(name: str, value: Any) -> tuple[str, ...]:
    """Return stop strings, of which one may come alone."""
    texts = (value,) if isinstance(value, str) else tuple(_listed(name, value))
    if not all(isinstance(text, str) and text for text in texts):
        raise InputError(f"sampling: {name} is {value!r:.60}; give strings that are not empty")
    return texts


def _ids(name: str, value: Any) -> tuple[int, ...]:
    return tuple(_whole(name, one) for one in _listed(name, value))


def _listed(name: str, value: Any) -> Sequence[Any]:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise InputError(f"sampling: {name} is {value!r:.60}; give a list")
    return value


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InputError(f"sampling: {name} is {value!r:.60}; give an object")
    return value
