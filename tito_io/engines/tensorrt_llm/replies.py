"""Turn TensorRT-LLM's answers into replies, and check every invariant.

A choice has its ids in `token_ids` and one log-probability an id in `logprobs.token_logprobs`. Of the prompt
only its length comes back (`serve/postprocess_handlers.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from tito_io.engines.ids_server import IdsRequest
from tito_io.engines.protocol import Reply, Usage
from tito_io.engines.replies.invariants import Check
from tito_io.engines.turn_request import aborted

ABORTED = ("timeout", "not_finished")
"""Ends of a turn beside `stop`, `length` and `cancelled` (`executor/result.py`, `_handle_sequence`)."""


class CompletionRequest(IdsRequest):
    """One request for a turn."""

    def read(self, check: Check, body: Any) -> Reply:
        """Return the reply that a whole answer holds."""
        choices = check.choices(body, self.question.sampling.n)
        for choice in choices:
            if choice.get("token_ids") is None:
                check.fail(
                    "the answer has no `token_ids`: this version of TensorRT-LLM returns no ids on "
                    "/v1/completions; use a newer one"
                )
        ids = [check.ids(choice, "token_ids") for choice in choices]
        usage = check.counted(body, len(self.sent), sum(map(len, ids)))
        first, *others = (self._turn(check, *pair, usage, body) for pair in zip(choices, ids, strict=True))
        reply = attrs.evolve(first, siblings=tuple(others))
        if any(turn.finish_reason == "abort" for turn in (first, *others)):
            why = "the engine gave the turn up: it was cancelled, or its time was over"
            raise aborted(check, why, reply if any(ids) else None)
        return reply

    def _turn(
        self,
        check: Check,
        choice: dict[str, Any],
        ids: tuple[int, ...],
        usage: Usage,
        body: Mapping[str, Any],
    ) -> Reply:
        """Return one turn, without a message."""
        ended = "abort" if choice.get("finish_reason") in ABORTED else choice.get("finish_reason")
        finish = check.finish_reason({"finish_reason": ended})
        self.check_end(check, ids, finish)
        named = check.stop_reason(choice.get("stop_reason"))
        if named is not None and (finish != "stop" or ids[-1:] != (named,)):
            check.fail("the answer names another stop than the last id")
        return self.turn(ids, finish, self._logprobs(check, choice, len(ids)), usage, body)

    def _logprobs(self, check: Check, choice: dict[str, Any], count: int) -> tuple[float | None, ...] | None:
        if not self.logprobs:
            return None
        values = check.get(check.get(choice, "logprobs", dict), "token_logprobs", list)
        return check.logprobs(values, count)
