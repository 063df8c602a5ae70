"""Turn Dynamo's answers into replies, and check every invariant.

Ids stand in `nvext`, beside the OpenAI answer. The frontend writes `completion_token_ids` and
`prompt_token_ids` there, the worker `engine_data`. The frontend's are read: the worker's are missing after a
stop string, which the frontend matches itself, and hold only the end of a turn that was migrated. What the
worker does report must agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Any

import attrs

from tito_core import Ids
from tito_io.engines.protocol import InvalidReplyError, Reply, ServerError
from tito_io.engines.replies.chunks import choice_text
from tito_io.engines.replies.experts import described_experts
from tito_io.engines.replies.invariants import FINISHES, Check
from tito_io.engines.turn_request import ReplyPart, partial_reply

from .requests import ECHO, DynamoOptions, Route

Logprobs = tuple[float | None, ...] | None

ENDS = {"eos": "stop"}
"""Dynamo's own names for the end of a turn."""


class DynamoNotice(StrEnum):
    """Notices about data missing in a reply of Dynamo, which its ids do not show.

    These are values on the reply, not warnings: where warnings are errors, a warning would lose the turn.

    Attributes:
        MIGRATED: A worker died and another went on: the seed no longer determines the turn, and usage counts
            twice what the first worker had sampled.
        READ_FROM_IDS: The server's message lacks a part of what was sampled, or has a call that was not
            sampled; the message was parsed from the ids instead.
        INCOMPLETE: The server's message lacks a part of what was sampled, such as a malformed call, or has a
            call that was not sampled. It stands as it came: without a model folder the ids cannot be parsed.
    """

    MIGRATED = "migrated"
    READ_FROM_IDS = "read-from-ids"
    INCOMPLETE = "unsaid"


@attrs.frozen
class DynamoIds:
    """The ids of an answer, and who reported them.

    Attributes:
        nvext: The frontend's fields.
        engine: The worker's fields; empty where it reported none.
        prompt_ids: The prompt.
        completion_ids: The sampled ids.
        moved: How many ids were sampled before another worker went on.
    """

    nvext: Mapping[str, Any]
    engine: Mapping[str, Any]
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    moved: int = 0


def read(
    check: Check, body: Mapping[str, Any], route: Route, options: DynamoOptions, sent: Ids | None
) -> Reply:
    """Read an answer; `sent` are the ids that went in, None where messages did."""
    choice = check.choice(body)
    answer_ids = _answer_ids(check, body, sent, echo=options.echo)
    ids = answer_ids.completion_ids
    logprobs = _logprobs(check, choice, answer_ids, route, requested=options.logprobs)
    message = check.message(choice, ids) if route == "chat" else None
    stop = answer_ids.nvext.get("stop_reason")  # left out for the model's first end
    experts = answer_ids.nvext.get("routed_experts") or answer_ids.engine.get("routed_experts")
    positions = len(answer_ids.prompt_ids) + len(ids)
    return Reply(
        prompt_ids=answer_ids.prompt_ids if sent is None else sent,
        completion_ids=ids,
        logprobs=logprobs,
        message=message,
        text=(message.get("content") or "") if message else check.get(choice, "text", str),
        finish_reason=_finish_reason(check, choice, answer_ids.nvext),
        usage=check.counted(body, len(answer_ids.prompt_ids) + answer_ids.moved, len(ids)),
        stop_reason=stop if type(stop) in (int, str) else None,
        routed_experts=described_experts(check, experts, positions) if experts else None,
        notices=(DynamoNotice.MIGRATED,) if answer_ids.moved else (),
        worker=worker_name(answer_ids.nvext),
        raw=body,
    )


def worker_name(nvext: Mapping[str, Any]) -> str | None:
    """Return which worker decoded the turn, as the frontend names it; None where it does not say.

    >>> worker_name({"worker_id": {"prefill_worker_id": 7, "decode_worker_id": 8}}), worker_name({})
    ('8', None)
    """
    named = nvext.get("worker_id")
    worker = named.get("decode_worker_id") if isinstance(named, Mapping) else None
    return str(worker) if type(worker) is int else None


def partial(check: Check, body: Mapping[str, Any], route: Route, sent: Ids | None) -> Reply | None:
    """Return what was received of a turn when its stream broke; None where no id was received.

    The frontend reports the prompt last, so that a prompt that went by messages is still unknown.
    """
    choice: Mapping[str, Any] = next(iter(body.get("choices") or ()), {})
    nvext = check.find(body, "nvext", dict) or {}
    ids = tuple(nvext.get("completion_token_ids") or ())
    prompt = tuple(nvext.get(ECHO) or ()) if sent is None else tuple(sent)
    logprobs: Logprobs = None
    with suppress(InvalidReplyError):
        logprobs = _logprobs(check, choice, DynamoIds(nvext, {}, prompt, ids), route, requested=False)
    message = choice.get("message") if route == "chat" else None
    part = ReplyPart(ids, logprobs or (), choice_text(choice), message)
    return partial_reply(check, prompt, [part], body)


def _answer_ids(check: Check, body: Mapping[str, Any], sent: Ids | None, *, echo: bool) -> DynamoIds:
    nvext = body.get("nvext")
    if not isinstance(nvext, Mapping):
        usage = body.get("usage")
        counted = usage.get("prompt_tokens") if isinstance(usage, Mapping) else None
        prompted = f"; it prompted with {counted} ids, and {len(sent)} were sent" if sent is not None else ""
        check.fail(
            f"the frontend reports no ids{prompted}. It drops `nvext`: start it without "
            "DYN_DISABLE_FRONTEND_NVEXT and without --dyn-chat-processor vllm, or pass route='completions'"
        )
    engine = nvext.get("engine_data")
    engine = engine if isinstance(engine, Mapping) else {}
    if engine.get("finished") is False:
        raise ServerError(f"{check.where}: the engine failed while it sampled", check.answer)
    if sent is not None and not echo and ECHO not in nvext:
        prompt = tuple(sent.tolist())  # the frontend was not to repeat them
    else:
        prompt = check.ids(nvext if ECHO in nvext else engine, ECHO)
        if sent is not None:
            check.echo(prompt, sent)
    sampled = nvext if "completion_token_ids" in nvext else engine
    answer_ids = DynamoIds(nvext, engine, prompt, check.ids(sampled, "completion_token_ids"))
    return attrs.evolve(answer_ids, moved=_moved(check, answer_ids))


def _moved(check: Check, answer_ids: DynamoIds) -> int:
    """Return how many ids another worker had sampled; the worker's ids must be the others.

    A worker that takes over is prompted with what was sampled before it, and reports only what it sampled
    itself. A worker that reports its ids otherwise is not compared.
    """
    if "prompt_token_ids" not in answer_ids.engine or "completion_token_ids" not in answer_ids.engine:
        return 0
    prompt = check.ids(answer_ids.engine, "prompt_token_ids")
    ids = check.ids(answer_ids.engine, "completion_token_ids")
    moved = len(prompt) - len(answer_ids.prompt_ids)
    if moved < 0 or prompt + ids != answer_ids.prompt_ids + answer_ids.completion_ids:
        check.fail("the worker reports other ids than the frontend, and no migration explains it")
    return moved


def _logprobs(
    check: Check, choice: Mapping[str, Any], answer_ids: DynamoIds, route: Route, *, requested: bool
) -> Logprobs:
    """Return log-probabilities from the first source that has one an id; None where none was `requested`.

    A chat has them in entries, each of which names its id.
    """
    fields, ids = check.find(choice, "logprobs", dict) or {}, answer_ids.completion_ids
    first = check.find(fields, "token_logprobs", list)
    if route == "chat":
        content = check.find(fields, "content", list) or []
        entries = [check.typed(entry, dict, "entry") for entry in content]
        named = [entry.get("token_id") for entry in entries]
        first = [entry.get("logprob") for entry in entries] or None
        if len(named) == len(ids) and None not in named and named != list(ids):
            check.fail("the log-probabilities belong to other ids than were sampled")
    for values in (first, answer_ids.engine.get("completion_logprobs")):
        if isinstance(values, list) and len(values) == len(ids):
            return check.logprobs(values, len(values))
    if requested and ids:
        check.fail(
            f"log-probabilities were requested; none came that are as many as the {len(ids)} sampled ids: "
            "where the worker has none, pass Dynamo(logprobs=False)"
        )
    return None


def _finish_reason(check: Check, choice: Mapping[str, Any], nvext: Mapping[str, Any]) -> str:
    """Return why the turn ended.

    Dynamo answers `tool_calls` for every turn with a call, also for one that was cut off after it, and `stop`
    for a cancelled one. `detailed_finish_reason` is the engine's own.
    """
    reason, detail = check.finish_reason(choice), nvext.get("detailed_finish_reason")
    if detail is None:
        return reason
    word = str(detail).partition(":")[0].strip()
    engine_reason = check.finish_reason({"finish_reason": ENDS.get(word, word)})
    return reason if engine_reason == FINISHES["stop"] else engine_reason
