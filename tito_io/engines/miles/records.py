"""What a session recorded: the ids that really went to the engine, and those that came back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from tito_io.engines.replies.invariants import Check

from .replies import echoed, sampled


@attrs.frozen(kw_only=True)
class Record:
    """One recorded turn."""

    response_id: str
    """The engine's id of the reply: what joins a record and a chat."""
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logprobs: tuple[float | None, ...]
    request: Mapping[str, Any] = attrs.field(repr=False)
    """The body that went to the engine."""
    response: Mapping[str, Any] = attrs.field(repr=False)
    """The whole reply, with what clients are not sent, such as `routed_experts`."""


@attrs.frozen(kw_only=True)
class Records:
    """The turns of a session, in order; of a branched one those of the latest branch."""

    records: tuple[Record, ...]
    accumulated_ids: tuple[int, ...]
    """Prompt and completion ids of the latest turn together."""
    max_trim_tokens: int
    """How many ids of a turn's end the server may drop where it joins the next turn to it."""
    mismatches: tuple[Mapping[str, Any], ...]
    """Where a fresh rendering differs from what was sampled, as the server sees it."""
    metadata: Mapping[str, Any] = attrs.field(repr=False)
    """All that the server says besides, such as the tree of branches."""

    def get(self, response_id: str) -> Record | None:
        """Return the record of a reply, the latest where several have its id."""
        return next((one for one in reversed(self.records) if one.response_id == response_id), None)


def records(check: Check, body: object) -> Records:
    """Read a session."""
    metadata = check.get(body, "metadata", dict)
    found = metadata.get("tito_session_mismatch")
    trim = metadata.get("max_trim_tokens")
    return Records(
        records=tuple(_record(check, one) for one in check.get(body, "records", list)),
        accumulated_ids=check.ids(metadata, "accumulated_token_ids"),
        max_trim_tokens=trim if type(trim) is int else 0,
        mismatches=tuple(found) if isinstance(found, list) else (),
        metadata=metadata,
    )


def _record(check: Check, one: object) -> Record:
    """Read a record. The oldest servers let the engine render the first turn, and only it knows those ids."""
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
