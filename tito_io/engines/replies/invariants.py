"""Checks that every reply of every engine must pass.

Ids, log-probabilities and counts agree, or the whole answer is rejected: nothing is padded, cut or guessed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import attrs

from tito_core.samples import WeightVersion
from tito_core.step import LARGEST_LOGPROB
from tito_io.engines.protocol import EmptyReplyError, EngineAnswer, InvalidReplyError, ServerError, Usage
from tito_io.families.stop_ids import LARGEST_ID
from tito_io.fields import FieldReader

MISSING = -9999.0
"""What vLLM and TensorRT-LLM send in place of a log-probability that they do not have."""
NOTHING = -1e30
"""What Dynamo sends in its place; in single precision a little less."""

FINISHES = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_calls",
    "abort": "abort",
    "cancelled": "abort",
    "repetition": "abort",
}
"""Engines' finish reasons, and those of `Reply`. An interrupted turn has sampled no stop token."""


@attrs.frozen
class Check(FieldReader):
    """The checks of one answer, and a reader of its typed fields. Every violation raises `InvalidReplyError`.

    Attributes:
        where: The request, as errors name it.
        answer: The answer, for errors.
        vocab_size: How many ids there are; None where it is unknown.
    """

    where: str
    answer: EngineAnswer
    vocab_size: int | None = None

    def fail(self, problem: str) -> NoReturn:
        """Reject the answer."""
        raise self.error(problem)

    def error(self, problem: str) -> InvalidReplyError:
        """Return the error that rejects the answer."""
        return InvalidReplyError(f"{self.where}: {problem}", self.answer, where=self.where)

    def wrong_type(self, path: str, kind: type, value: object) -> Exception:
        """Return the error for a field of another type."""
        actual = "null or missing" if value is None else type(value).__name__
        return self.error(f"the answer's `{path}` is {actual}, where a {kind.__name__} belongs")

    def choice(self, body: object) -> dict[str, Any]:
        """Return the only choice of an answer in OpenAI's form."""
        return self.choices(body, 1)[0]

    def choices(self, body: object, n: int) -> list[dict[str, Any]]:
        """Return the `n` choices of an answer in OpenAI's form, in the order of their indexes.

        Raises:
            EmptyReplyError: The list is empty, null or missing.
        """
        if isinstance(body, Mapping) and body.get("choices") in (None, []):
            raise EmptyReplyError(
                f"{self.where}: the answer holds no choice at all", self.answer, where=self.where
            )
        items = self.get(body, "choices", list)
        self.count("choices", len(items), "turns requested", n)
        choices = [self.typed(choice, dict, "choice") for choice in items]
        if n == 1:
            return choices
        indexes = [self.get(choice, "index", int) for choice in choices]
        if sorted(indexes) != list(range(n)):
            self.fail(f"the choices have the indexes {indexes}, where 0 to {n - 1} belong")
        return sorted(choices, key=lambda choice: int(choice["index"]))

    def ids(self, holder: object, name: str) -> tuple[int, ...]:
        """Return ids: integers that `tito_core` takes, none negative, none outside the vocabulary."""
        ids = self.get(holder, name, list)
        if not set(map(type, ids)) <= {int}:
            self.fail(f"`{name}` holds something other than whole numbers")
        lowest, highest = min(ids, default=0), max(ids, default=0)
        if lowest < 0:
            self.fail(f"`{name}` holds the negative id {lowest}")
        if ids and self.vocab_size is not None and highest >= self.vocab_size:
            self.fail(f"`{name}` holds the id {highest}, outside the vocabulary of {self.vocab_size}")
        if highest > LARGEST_ID:
            self.fail(f"`{name}` holds the id {highest}: an id is a whole number from 0 to {LARGEST_ID}")
        return tuple(ids)

    def echo(self, echoed: Sequence[int], sent: Sequence[int]) -> None:
        """Demand that the engine saw the ids that were sent."""
        if tuple(echoed) == tuple(sent):
            return
        pairs = enumerate(zip(echoed, sent, strict=False))
        common = next((place for place, (a, b) in pairs if a != b), min(len(echoed), len(sent)))
        self.fail(
            f"the engine saw other prompt ids than were sent ({len(echoed)} for {len(sent)}, equal up to "
            f"position {common}): it rendered, cut or replaced the prompt, so this route takes no ids here"
        )

    def logprobs(self, values: Sequence[object], count: int) -> tuple[float | None, ...]:
        """Return one log-probability per id; None in place of a value that the engine does not have."""
        self.count("log-probabilities", len(values), "sampled ids", count)
        if set(map(type, values)) == {float} and _are_usual(values):  # type: ignore[arg-type]  # floats alone
            return tuple(values)  # type: ignore[arg-type]  # likewise
        return tuple(self._logprob(value, place) for place, value in enumerate(values))

    def _logprob(self, value: object, place: int) -> float | None:
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            self.fail(f"the log-probability at position {place} is not a number")
        if value > LARGEST_LOGPROB:
            self.fail(
                f"the log-probability at position {place} is {value}, above 0: does the server report logits?"
            )
        return None if value == MISSING or value <= NOTHING else float(value)

    def count(self, one: str, actual: int, other: str, expected: int) -> None:
        """Demand that two counts agree; `one` and `other` name them."""
        if actual != expected:
            self.fail(f"{actual} {one} for {expected} {other}: the answer does not hold together")

    def usage(self, body: object, prompt_ids: Sequence[int], completion_ids: Sequence[int]) -> Usage:
        """Return the engine's counts, which must be those of the ids."""
        return self.counted(body, len(prompt_ids), len(completion_ids))

    def counted(self, body: object, prompt_ids: int, completion_ids: int) -> Usage:
        """Return the engine's counts, which must be these; the sampled ids of several turns add up."""
        usage = self.get(body, "usage", dict)
        prompt, completion = self.get(usage, "prompt_tokens", int), self.get(usage, "completion_tokens", int)
        self.count("counted prompt ids", prompt, "prompt ids", prompt_ids)
        self.count("counted sampled ids", completion, "sampled ids", completion_ids)
        details = usage.get("prompt_tokens_details")  # engines have it only when they are started so
        cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
        cached = cached if type(cached) is int else None
        return Usage(prompt_tokens=prompt, completion_tokens=completion, cached_tokens=cached)

    def finish_reason(self, holder: object) -> str:
        """Return why the turn ended, as `Reply.finish_reason` has it."""
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
        for span in self.typed(spans, list, "weight_versions"):
            start, stop = self.get(span, "start", int), self.get(span, "end", int)
            if start != end or stop < start:
                self.fail(f"a weight version's ids go from {start} to {stop}, and those before it to {end}")
            versions.append(WeightVersion(version=self.get(span, "version", str), start=start, stop=stop))
            end = stop
        self.count("ids with a weight version", end, "sampled ids", count)
        return tuple(versions)

    def message(self, holder: object, ids: Sequence[int]) -> dict[str, Any]:
        """Return the assistant message.

        A turn that sampled only its stop token is valid and empty: servers with a reasoning parser send null
        for its content. Without `ids` there is no turn.
        """
        message = self.get(holder, "message", dict)
        if message.get("role") != "assistant":
            self.fail("the answer's message is not an assistant's")
        others = (message.get("reasoning"), message.get("reasoning_content"), message.get("tool_calls"))
        if message.get("content") is not None or any(others):
            return message
        if not ids:
            raise EmptyReplyError(
                f"{self.where}: the answer's message has no content, reasoning or tool call", self.answer
            )
        return {**message, "content": ""}


def _are_usual(values: Sequence[float]) -> bool:
    """Return whether all are log-probabilities that an engine has; loops in C, as there are many."""
    # No comparison sees every NaN, and any sum with one is NaN.
    return (
        not math.isnan(sum(values)) and min(values) > NOTHING and max(values) <= 0 and MISSING not in values
    )
