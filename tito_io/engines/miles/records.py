"""What a session recorded: the ids that went to the engine, and those that came back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from tito_io.engines.replies.invariants import Check

from .replies import echoed, sampled


@attrs.frozen(kw_only=True)
class Record:
    """One recorded turn.

    Attributes:
        response_id: The engine's id of the reply, by which a record and a chat are joined.
        prompt_ids: The ids that went to the engine.
        completion_ids: The ids that it sampled.
        logprobs: One natural-log probability per completion id.
        request: The body that went to the engine.
        response: The whole reply, with fields that clients are not sent, such as `routed_experts`.
    """

    response_id: str
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logprobs: tuple[float | None, ...]
    request: Mapping[str, Any] = attrs.field(repr=False)
    response: Mapping[str, Any] = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class Records:
    """The recorded turns of a session.

    Attributes:
        records: The turns in order; of a branched session, those of the latest branch.
        accumulated_ids: Prompt and completion ids of the latest turn together.
        max_trim_tokens: How many ids of a turn's end the server may drop where it appends the next turn.
        mismatches: Where a fresh render differs from the sampled ids, by the server's own comparison.
        metadata: All other fields, such as the tree of branches.
    """

    records: tuple[Record, ...]
    accumulated_ids: tuple[int, ...]
    max_trim_tokens: int
    mismatches: tuple[Mapping[str, Any], ...]
    metadata: Mapping[str, Any] = attrs.field(repr=False)

    def get(self, response_id: str) -> Record | None:
        """Return the latest record of the reply with `response_id`; None without one."""
        return next((one for one in reversed(self.records) if one.response_id == response_id), None)


def records(check: Check, body: object) -> Records:
    """Read a session."""
    metadata = check.get(body, "metadata", dict)
    mismatches = metadata.get("tito_session_mismatch")
    trim = metadata.get("max_trim_tokens")
    return Records(
        records=tuple(_record(check, one) for one in check.get(body, "records", list)),
        accumulated_ids=check.ids(metadata, "accumulated_token_ids"),
        max_trim_tokens=trim if type(trim) is int else 0,
        mismatches=tuple(mismatches) if isinstance(mismatches, list) else (),
        metadata=metadata,
    )


def _record(check: Check, one: object) -> Record:
    """Read a record. The oldest servers let the engine render the first turn: only its echo has those ids."""
    request, response = check.get(one, "request", dict), check.get(one, "response", dict)
    choice = check.get({"choice": check.get(response, "choices", list)[0]}, "choice", dict)
    turn = sampled(check, choice)
    given = None if request.get("input_ids") is None else check.ids(request, "input_ids")
    prompt = given if given is not None else echoed(check, choice)
    if prompt is None:
        check.fail("a record has neither the prompt's ids nor the engine's echo of them")
    return Record(
        response_id=str(response.get("id")),
        prompt_ids=prompt,
        completion_ids=turn.ids,
        logprobs=turn.logprobs,
        request=request,
        response=response,
    )
