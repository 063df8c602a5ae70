"""What Dynamo answers: bodies become replies, every invariant checked on the way.

Ids stand in `nvext`, beside the OpenAI answer. The frontend writes `completion_token_ids` and
`prompt_token_ids` there, the worker `engine_data`. The frontend's are read, since the worker's are missing
after a stop string, which the frontend matches itself, and hold only the end of a turn that was migrated.
What the worker does say must agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from tito_core import Ids
from tito_core.samples import RoutedExperts
from tito_io.engines.protocol import Reply, ServerError, Usage
from tito_io.engines.replies.described_experts import routed_experts
from tito_io.engines.replies.invariants import FINISHES, Check

from .notices import DynamoNotice
from .requests import ECHO, DynamoOptions
from .routes import Route

Logprobs = tuple[float | None, ...] | None

ENDS = {"eos": "stop"}
"""Dynamo's own words for the end of a turn that are no one else's."""


@attrs.frozen
class DynamoIds:
    """What was said of ids, and by whom."""

    nvext: Mapping[str, Any]
    engine: Mapping[str, Any]
    """What the worker said; it is empty where it said nothing."""
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    moved: int = 0
    """How many ids were sampled before another worker went on."""


def read(
    check: Check, body: Mapping[str, Any], route: Route, asked: DynamoOptions, sent: Ids | None
) -> Reply:
    """Read an answer; `sent` are the ids that went in, None where messages did."""
    choice = check.choice(body)
    told = _told(check, body, sent, echo=asked.echo)
    ids = told.completion_ids
    logprobs = _logprobs(check, choice, told, route)
    message = check.message(choice, ids) if route == "chat" else None
    missing = asked.logprobs and logprobs is None
    return Reply(
        prompt_ids=told.prompt_ids if sent is None else sent,
        completion_ids=ids,
        logprobs=logprobs,
        message=message,
        text=(message.get("content") or "") if message else check.get(choice, "text", str),
        finish_reason=_finish_reason(check, choice, told.nvext),
        usage=_usage(check, body, told),
        stop_reason=_stop_reason(told.nvext),
        routed_experts=_experts(check, told),
        notices=(*([DynamoNotice.NO_LOGPROBS] * missing), *([DynamoNotice.MIGRATED] * bool(told.moved))),
        raw=body,
    )


def torn(check: Check, body: Mapping[str, Any], route: Route, sent: Ids | None) -> Reply | None:
    """Return what is left of a stream that broke; None where no id came.

    The frontend says last which prompt it saw, so of a prompt that went by messages there is none yet.
    """
    choice: Mapping[str, Any] = next(iter(body.get("choices") or ()), {})
    nvext = body.get("nvext") or {}
    ids = tuple(nvext.get("completion_token_ids") or ())
    if not ids:
        return None
    prompt = tuple(nvext.get(ECHO) or ()) if sent is None else tuple(sent)
    told = DynamoIds(nvext, {}, prompt, ids)
    message = choice.get("message")
    return Reply(
        prompt_ids=prompt,
        completion_ids=ids,
        logprobs=_logprobs(check, choice, told, route),
        message=message if route == "chat" else None,
        text=(message or {}).get("content") or choice.get("text") or "",
        finish_reason="abort",
        usage=Usage(prompt_tokens=len(prompt), completion_tokens=len(ids)),
        raw=body,
    )


def _told(check: Check, body: Mapping[str, Any], sent: Ids | None, *, echo: bool) -> DynamoIds:
    nvext = body.get("nvext")
    if not isinstance(nvext, Mapping):
        check.fail(_deaf(body, sent))
    engine = nvext.get("engine_data")
    engine = engine if isinstance(engine, Mapping) else {}
    if engine.get("finished") is False:
        raise ServerError(f"{check.where}: the engine failed while it sampled", check.answer)
    prompt = _prompt(check, nvext, engine, sent, echo=echo)
    sampled = nvext if "completion_token_ids" in nvext else engine
    told = DynamoIds(nvext, engine, prompt, check.ids(sampled, "completion_token_ids"))
    return attrs.evolve(told, moved=_moved(check, told))


def _prompt(
    check: Check, nvext: Mapping[str, Any], engine: Mapping[str, Any], sent: Ids | None, *, echo: bool
) -> tuple[int, ...]:
    """Return the ids that the frontend says it saw; those that were sent, where it was not to say so."""
    if sent is not None and not echo and ECHO not in nvext:
        return tuple(sent.tolist())
    prompt = check.ids(nvext if ECHO in nvext else engine, ECHO)
    if sent is not None:
        check.echo(prompt, sent)
    return prompt


def _deaf(body: Mapping[str, Any], sent: Sequence[int] | None) -> str:
    """Say what a frontend that leaves `nvext` out has done to the prompt."""
    usage = body.get("usage")
    counted = usage.get("prompt_tokens") if isinstance(usage, Mapping) else None
    prompted = f"; it prompted with {counted} ids, and {len(sent)} were sent" if sent is not None else ""
    return (
        f"the frontend says nothing of ids{prompted}. It drops `nvext`: start it without "
        "DYN_DISABLE_FRONTEND_NVEXT and without --dyn-chat-processor vllm, or take route='completions'"
    )


def _moved(check: Check, told: DynamoIds) -> int:
    """Return how many ids another worker had sampled; the worker's ids must be the others.

    A worker that goes on is prompted with what was sampled before it, and tells only of what it sampled
    itself. An engine that tells of its ids otherwise is not compared.
    """
    if "prompt_token_ids" not in told.engine or "completion_token_ids" not in told.engine:
        return 0
    prompt = check.ids(told.engine, "prompt_token_ids")
    ids = check.ids(told.engine, "completion_token_ids")
    moved = len(prompt) - len(told.prompt_ids)
    if moved < 0 or prompt + ids != told.prompt_ids + told.completion_ids:
        check.fail("the worker tells of other ids than the frontend, and no migration explains it")
    return moved


def _usage(check: Check, body: Mapping[str, Any], told: DynamoIds) -> Usage:
    """Return what was counted; after a migration that is the last worker's prompt."""
    return check.counted(body, len(told.prompt_ids) + told.moved, len(told.completion_ids))


def _logprobs(check: Check, choice: Mapping[str, Any], told: DynamoIds, route: Route) -> Logprobs:
    """Return log-probabilities from the first source that has one an id; None where none has."""
    said = choice.get("logprobs")
    said = said if isinstance(said, Mapping) else {}
    first = _entries(check, said, told.completion_ids) if route == "chat" else said.get("token_logprobs")
    for values in (first, told.engine.get("completion_logprobs")):
        if isinstance(values, list) and len(values) == len(told.completion_ids):
            return check.logprobs(values, len(values))
    return None


def _entries(check: Check, said: Mapping[str, Any], ids: Sequence[int]) -> list[object] | None:
    """Return the values of a chat's entries, each of which names its id."""
    found = said.get("content")
    entries = [entry if isinstance(entry, Mapping) else {} for entry in found] if found else None
    if entries is None:
        return None
    named = [entry.get("token_id") for entry in entries]
    if len(named) == len(ids) and None not in named and named != list(ids):
        check.fail("the log-probabilities belong to other ids than were sampled")
    return [entry.get("logprob") for entry in entries]


def _finish_reason(check: Check, choice: Mapping[str, Any], nvext: Mapping[str, Any]) -> str:
    """Return why the turn ended.

    Dynamo says `tool_calls` of every turn with a call, of one that was cut off after it too, and `stop` of a
    cancelled one. What it says in detail is what the engine said.
    """
    reason, detail = check.finish_reason(choice), nvext.get("detailed_finish_reason")
    if detail is None:
        return reason
    word = str(detail).partition(":")[0].strip()
    told = check.finish_reason({"finish_reason": ENDS.get(word, word)})
    return reason if told == FINISHES["stop"] else told


def _stop_reason(nvext: Mapping[str, Any]) -> int | str | None:
    """Return the id or the string that ended the turn; Dynamo leaves it out for the model's first end."""
    found = nvext.get("stop_reason")
    return found if isinstance(found, str) or type(found) is int else None


def _experts(check: Check, told: DynamoIds) -> RoutedExperts | None:
    found = told.nvext.get("routed_experts") or told.engine.get("routed_experts")
    ids = len(told.prompt_ids) + len(told.completion_ids)
    return routed_experts(check, found, ids) if found else None
