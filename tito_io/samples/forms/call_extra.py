"""A call's data beyond ids and log-probabilities, as JSON for the `extra` objects of foreign formats.

The object stands in `extra` under the key `tito`. A call that continues another one has only what it adds to
it, and `joins`, by which another call of the same name is recognized.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import orjson

from tito_core import InputError, Ledger, Message, Messages, SamplingMask, Step
from tito_core.data import from_data, to_data
from tito_core.media.ranges import NO_MEDIA, Media
from tito_core.samples import RoutedExperts, StoredCall, WeightVersion
from tito_io.engines.replies.invariants import Check

from .form import Record, at
from .tito import check_finite, fingerprint, ledger_of, plain_runs

MARK = "tito"
"""The key in `extra`."""


def call_extra(call: StoredCall, older: Step | None) -> dict[str, Any]:
    """Return the fields of a call that continues the ids of `older`; null values are left out.

    Raises `InputError` for a reward or a log-probability that JSON has no word for.
    """
    step = call.step
    check_finite(call)
    fields = {
        "name": call.name,
        "order": call.order,
        "finish_reason": call.finish_reason,
        "truncated": step.truncated or None,
        "key": step.key,
        "weight_versions": [to_data(run) for run in call.weight_versions] or None,
        "routed_experts": None if call.routed_experts is None else to_data(call.routed_experts),
        "sampling_mask": None if step.sampling_mask is None else to_data(step.sampling_mask),
        "reward": call.reward,
        "metadata": dict(call.metadata) or None,
        **_ledger_fields(step.prompt_ledger, older),
        **_media_fields(step.media, older),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _ledger_fields(ledger: Ledger, older: Step | None) -> dict[str, Any]:
    """Return the runs after an older step; all runs where the ledger does not continue that step's."""
    since = ledger.since(0 if older is None else len(older.ids))
    if older is None or older.ledger.then(*since) == ledger:
        return {"ledger": plain_runs(since)}
    return {"whole_ledger": plain_runs(ledger.runs)}


def _media_fields(media: Media, older: Step | None) -> dict[str, Any]:
    """Return the media after those of an older step; all of them where they do not continue that step's."""
    known = [] if older is None else list(older.media)
    goes_on = media[: len(known)] == known
    new = [to_data(one) for one in (media[len(known) :] if goes_on else media)]
    return {"media" if goes_on else "whole_media": new} if new or not goes_on else {}


def own_extra(holder: Record) -> Record:
    """Return what tito wrote into the `extra` of an object; nothing where another program wrote it."""
    own = at(holder, "extra", MARK)
    return own if isinstance(own, Mapping) else {}


def extended_call(step: Step, extra: Record, older: Step | None, *, name: str, order: int) -> StoredCall:
    """Return the call of a step whose other fields are in `extra`.

    Args:
        step: Messages, ids and log-probabilities.
        extra: What `call_extra` wrote; empty for calls of other programs.
        older: The step that it continues.
        name: The call's name if `extra` has none.
        order: Its order if `extra` has none.

    Raises:
        InputError: A field is of another type, or does not fit the step.
    """
    if older is not None and extra.get("joins") not in (None, fingerprint(older)):
        raise InputError("`joins` is not that of the call that it continues: the ids do not continue")
    finish, routed = extra.get("finish_reason"), extra.get("routed_experts")
    versions = extra.get("weight_versions") or []
    if not isinstance(versions, list):
        raise InputError("weight_versions is no list")
    changes: dict[str, Any] = {"truncated": extra.get("truncated", False), "key": extra.get("key")}
    changes["media"] = _media(extra, older)
    if extra.get("sampling_mask") is not None:
        changes["sampling_mask"] = from_data(extra["sampling_mask"], SamplingMask)
    ledger = _ledger(extra, older)
    if ledger is not None:
        changes["prompt_ledger"] = ledger
    return StoredCall(
        name=extra.get("name", name),
        step=attrs.evolve(step, **changes),
        order=extra.get("order", order),
        finish_reason=finish,
        weight_versions=tuple(from_data(run, WeightVersion) for run in versions),
        routed_experts=None if routed is None else from_data(routed, RoutedExperts),
        reward=extra.get("reward"),
        metadata=extra.get("metadata") or {},
    )


def _ledger(extra: Record, older: Step | None) -> Ledger | None:
    if "whole_ledger" in extra:
        return ledger_of(extra["whole_ledger"])
    if "ledger" not in extra:
        return None
    own = ledger_of(extra["ledger"])
    return own if older is None else older.ledger.then(*own.runs)


def _media(extra: Record, older: Step | None) -> Media:
    known = NO_MEDIA if older is None or "whole_media" in extra else older.media
    new = extra.get("whole_media", extra.get("media", []))
    return known.then(from_data(new, Media)) if new else known


def read_logprobs(check: Check, holder: Record, extra: Record, count: int) -> tuple[float | None, ...] | None:
    """Return the log-probabilities of `count` ids in a holder, or those in `extra`, which may have null."""
    values = check.find(extra if holder.get("logprobs") is None else holder, "logprobs", list)
    if values is not None and "name" in extra:  # tito wrote them, as they were
        return tuple(values)
    return None if values is None else check.logprobs(values, count)


def added_messages(step: Step, older: Step | None) -> tuple[dict[str, Any] | None, list[Message]]:
    """Return how a prompt changes the messages of an older step, and the messages that follow them.

    The change is None where the prompt begins with the very same messages. Otherwise `kept` is the number of
    messages that are the same, and `messages` are those in place of the others.
    """
    prompt = step.prompt
    if older is None:
        return None, list(prompt)
    history = older.messages
    size = len(history)
    if prompt.extends(history):
        return None, list(prompt[size:])
    kept = _common(prompt, history)
    if kept == size:
        return None, list(prompt[size:])
    return {"kept": kept, "messages": list(prompt[kept:size])}, list(prompt[size:])


def _common(left: Messages, right: Messages) -> int:
    """Return how many messages two prompts have in common, from the first one on."""
    pairs = zip(left, right, strict=False)
    same = (orjson.dumps(one) == orjson.dumps(other) for one, other in pairs)
    return next((place for place, equal in enumerate(same) if not equal), min(len(left), len(right)))


def joined_messages(older: Step | None, change: object, added: list[Message]) -> Messages:
    """Return the prompt that `added_messages` took apart. Raises `InputError` for a malformed change."""
    if older is None:
        return Messages.of(added)
    if change is None:
        return older.messages.then(added)
    kept, messages = at(change, "kept"), at(change, "messages")
    if type(kept) is not int or not 0 <= kept <= len(older.messages) or not isinstance(messages, list):
        raise InputError(f"restated is {change!r:.60}: give `kept` and `messages`")
    return Messages.of([*older.messages[:kept], *messages, *added])


def dumped(record: object, name: str) -> bytes:
    """Return a line; raises `InputError` that names the call for values that JSON does not have."""
    try:
        return orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError as error:
        raise InputError(f"{name!r:.60} cannot be written: {error}") from None
