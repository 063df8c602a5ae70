"""What holds for every reply of every engine, checked before anything is made of it.

Ids, log-probabilities and counts agree, or the answer is refused whole: nothing is padded, cut or guessed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import attrs

from tito_core.samples import WeightVersion
from tito_io.engines.protocol import EmptyReplyError, EngineAnswer, InvalidReplyError, ServerError, Usage

T = TypeVar("T")

MISSING = -9999.0
"""What vLLM and TensorRT-LLM send for a log-probability that they do not have."""
NOTHING = -1e30
"""What Dynamo sends for it, in single precision a little less."""

FINISHES = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "abort": "abort",
    "cancelled": "abort",
    "repetition": "abort",
}
"""Engines' words for the end of a turn, and ours. Whatever interrupts a turn, no stop was sampled."""


@attrs.frozen
class Check:
    """One answer with what must hold for it. Every violation raises `InvalidReplyError`."""

    where: str
    """The request, as errors name it."""
    answer: EngineAnswer
    vocab_size: int | None = None
    """How many ids there are, where that is known."""

    def fail(self, told: str) -> NoReturn:
        """Refuse the answer."""
        raise InvalidReplyError(f"{self.where}: {told}", self.answer)

    def get(self, holder: object, name: str, kind: type[T]) -> T:
        """Return a value of an object in the answer."""
        value = holder.get(name) if isinstance(holder, Mapping) else None
        if not isinstance(value, kind):
            told = "null or missing" if value is None else type(value).__name__
            self.fail(f"the answer's `{name}` is {told}, where a {kind.__name__} belongs")
        return value

    def choice(self, body: object) -> dict[str, Any]:
        """Return the one choice of an answer in the OpenAI manner."""
        return self.choices(body, 1)[0]

    def choices(self, body: object, n: int) -> list[dict[str, Any]]:
        """Return the choices of an answer in the OpenAI manner, in the order of their indexes."""
        found = self.get(body, "choices", list)
        if not found:
            raise EmptyReplyError(f"{self.where}: the answer holds no choice at all", self.answer)
        self.count("choices", len(found), "turns asked for", n)
        choices = [self.get({"choice": choice}, "choice", dict) for choice in found]
        if n == 1:
            return choices
        indexes = [self.get(choice, "index", int) for choice in choices]
        if sorted(indexes) != list(range(n)):
            self.fail(f"the choices have the indexes {indexes}, where 0 to {n - 1} belong")
        return sorted(choices, key=lambda choice: int(choice["index"]))

    def ids(self, holder: object, name: str) -> tuple[int, ...]:
        """Return ids: whole numbers, none negative, none outside the vocabulary."""
        found = self.get(holder, name, list)
        if not set(map(type, found)) <= {int}:
            self.fail(f"`{name}` holds something other than whole numbers")
        if found and min(found) < 0:
            self.fail(f"`{name}` holds the negative id {min(found)}")
        if found and self.vocab_size is not None and max(found) >= self.vocab_size:
            self.fail(f"`{name}` holds the id {max(found)}, outside the vocabulary of {self.vocab_size}")
        return tuple(found)

    def echo(self, echoed: Sequence[int], sent: Sequence[int]) -> None:
        """Demand that the engine saw the ids that it was sent."""
        if tuple(echoed) != tuple(sent):
            self.fail(
                f"the engine saw other prompt ids than were sent ({len(echoed)} for {len(sent)}, equal up to "
                f"position {_common(echoed, sent)}): it rendered, cut or replaced the prompt, so this route "
                "takes no ids here"
            )

    def logprobs(self, values: Sequence[object], count: int) -> tuple[float | None, ...]:
        """Return one log-probability an id, None where the engine says that it has none."""
        self.count("log-probabilities", len(values), "sampled ids", count)
        return tuple(self._logprob(value, place) for place, value in enumerate(values))

    def _logprob(self, value: object, place: int) -> float | None:
        if type(value) is float and NOTHING < value <= 0 and value != MISSING:
            return value  # as nearly all are
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            self.fail(f"the log-probability at position {place} is no number")
        if value > 0:
            self.fail(
                f"the log-probability at position {place} is {value}, above 0: does the server report logits?"
            )
        return None if value == MISSING or value <= NOTHING else float(value)

    def count(self, one: str, found: int, other: str, expected: int) -> None:
        """Demand that two counts agree."""
        if found != expected:
            self.fail(f"{found} {one} for {expected} {other}: the answer does not hold together")

    def usage(self, body: object, prompt_ids: Sequence[int], completion_ids: Sequence[int]) -> Usage:
        """Return what the engine counted, if it counted what it sent."""
        return self.counted(body, len(prompt_ids), len(completion_ids))

    def counted(self, body: object, prompt_ids: int, completion_ids: int) -> Usage:
        """Return what the engine counted, if that is so many; of several turns the sampled ids add up."""
        usage = self.get(body, "usage", dict)
        prompt, completion = self.get(usage, "prompt_tokens", int), self.get(usage, "completion_tokens", int)
        self.count("counted prompt ids", prompt, "prompt ids", prompt_ids)
        self.count("counted sampled ids", completion, "sampled ids", completion_ids)
        return Usage(prompt_tokens=prompt, completion_tokens=completion, cached_tokens=_cached(usage))

    def finish_reason(self, holder: object) -> str:
        """Return why the turn ended, in our word."""
        reason = self.get(holder, "finish_reason", str)
        if reason == "error":
            raise ServerError(f"{self.where}: the engine failed while it sampled", self.answer)
        if reason not in FINISHES:
            self.fail(f"the turn ended for an unknown reason, {reason!r:.40}")
        return FINISHES[reason]

    def stop_reason(self, value: object) -> int | str | None:
        """Return the id or the string that ended the turn; None where the engine names none."""
        if value is not None and type(value) not in (int, str):
            self.fail("what ended the turn is neither an id nor a string")
        return value if isinstance(value, int | str) else None

    def weight_versions(self, spans: object, count: int) -> tuple[WeightVersion, ...]:
        """Return which weights sampled which of `count` ids: spans without gaps, over every id.

        Empty where the engine does not say. Older servers name only the version that they have at the end,
        which says nothing about the ids before it.
        """
        if not spans:
            return ()
        versions, end = [], 0
        for span in self.get({"weight_versions": spans}, "weight_versions", list):
            start, stop = self.get(span, "start", int), self.get(span, "end", int)
            if start != end or stop < start:
                self.fail(f"a weight version's ids go from {start} to {stop}, and those before it to {end}")
            versions.append(WeightVersion(version=self.get(span, "version", str), start=start, stop=stop))
            end = stop
        self.count("ids with a weight version", end, "sampled ids", count)
        return tuple(versions)

    def message(self, holder: object, ids: Sequence[int]) -> dict[str, Any]:
        """Return the assistant message.

        A turn that sampled nothing but its end says nothing, and is a turn: servers with a reasoning parser
        send null for its content. Without `ids` there is no turn.
        """
        message = self.get(holder, "message", dict)
        if message.get("role") != "assistant":
            self.fail("the answer's message is not an assistant's")
        said = (message.get("reasoning"), message.get("reasoning_content"), message.get("tool_calls"))
        if message.get("content") is not None or any(said):
            return message
        if not ids:
            raise EmptyReplyError(
                f"{self.where}: the answer's message has no content, reasoning or tool call", self.answer
            )
        return {**message, "content": ""}


def _cached(usage: Mapping[str, Any]) -> int | None:
    """Return how much of the prompt was in the prefix cache; engines say so only when told to."""
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    return cached if type(cached) is int else None


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """Return the length of the common beginning."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))
