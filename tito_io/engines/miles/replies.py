"""Turn a session's answers into replies and records, in SGLang's form: each id with its log-probability.

`meta_info.output_token_logprobs` holds `[log-probability, id, ...]` for every sampled id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from tito_core.samples import WeightVersion
from tito_io.engines.protocol import Reply
from tito_io.engines.replies import sglang_meta
from tito_io.engines.replies.invariants import Check


@attrs.frozen
class MilesSampledIds:
    """The sampled ids of a turn, and one log-probability for each."""

    ids: tuple[int, ...]
    logprobs: tuple[float | None, ...]


def sampled(check: Check, choice: Mapping[str, Any]) -> MilesSampledIds:
    """Return what was sampled, as many ids as the engine counted."""
    meta = check.get(choice, "meta_info", dict)
    entries = check.get(meta, "output_token_logprobs", list)
    ids = check.ids({"ids": [sglang_meta.triple_id(check, entry) for entry in entries]}, "ids")
    check.count("sampled ids", len(ids), "counted ones", check.get(meta, "completion_tokens", int))
    return MilesSampledIds(ids, check.logprobs([entry[0] for entry in entries], len(ids)))


def echoed(check: Check, choice: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return the prompt's ids, where the engine repeats them."""
    return None if choice.get("prompt_token_ids") is None else check.ids(choice, "prompt_token_ids")


def reply(check: Check, body: dict[str, Any], prompt_ids: Sequence[int]) -> Reply:
    """Return a turn whose every count agrees; `prompt_ids` are the engine's echo or the server's record."""
    choice = check.choice(body)
    turn, meta = sampled(check, choice), choice["meta_info"]
    if type(meta.get("prompt_tokens")) is int:
        check.count("counted prompt ids", meta["prompt_tokens"], "prompt ids", len(prompt_ids))
    message = check.message(choice, turn.ids)
    usage = check.usage(body, prompt_ids, turn.ids)
    if usage.cached_tokens is None:
        usage = attrs.evolve(usage, cached_tokens=sglang_meta.cached(meta))
    version = meta.get("weight_version")  # one for all of the turn
    spans = [] if version is None else [WeightVersion(version=str(version), start=0, stop=len(turn.ids))]
    return Reply(
        prompt_ids=tuple(prompt_ids),
        completion_ids=turn.ids,
        logprobs=turn.logprobs,
        message=message,
        text=message.get("content") or "",
        finish_reason=_finish_reason(check, choice),
        usage=usage,
        stop_reason=choice.get("matched_stop"),
        weight_versions=tuple(spans),
        raw=body,
    )


def _finish_reason(check: Check, choice: Mapping[str, Any]) -> str:
    """Return why the turn ended; of a turn that was cut off after a tool call, the chat says `tool_calls`."""
    reason = choice["meta_info"].get("finish_reason")
    kind = reason.get("type") if isinstance(reason, Mapping) else None
    return kind if kind in ("length", "abort") else check.finish_reason(choice)


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
    choice = check.choice(response)
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
