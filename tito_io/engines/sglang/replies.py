"""Turn SGLang's answers into replies, and check every invariant.

Each route has its own reader of one turn. The body that a stream adds up to goes through the same reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import attrs

from tito_core import Message
from tito_core.samples import RoutedExperts, WeightVersion
from tito_io.engines.errors import fault
from tito_io.engines.protocol import EmptyReplyError, EngineAnswer, Reply, Usage
from tito_io.engines.replies import sglang_meta as meta
from tito_io.engines.replies.experts import Routing, bare_experts
from tito_io.engines.replies.invariants import Check
from tito_io.engines.replies.sampling_mask import masked
from tito_io.engines.turn_request import Question, aborted

from .requests import Route

COMPLETION_IDS = ("response_token_ids", "token_ids", "completion_token_ids")
"""Where a choice has its sampled ids: chat from 0.5.18 on, chat in 0.5.17 and completions, a fork's chat."""

SENT_BY = ": SGLang sends them from 0.5.20 on, and a router may drop the key that asks for them"
"""Which servers send sampling masks; 0.5.20 is the oldest that was looked at."""
EXPERTS_FROM = "routed_experts_start_len"
"""The request key for the first position whose routing is returned."""


@attrs.frozen
class SglangQuestion(Question):
    """What was requested; `routing` is the shape of routed experts, None where it is unknown."""

    routing: Routing | None = None


@attrs.frozen(kw_only=True)
class SglangTurn:
    """One turn of an answer of any route; `prompt` is None where the engine only counts the prompt's ids."""

    prompt: tuple[int, ...] | None
    ids: tuple[int, ...]
    logprobs: tuple[float | None, ...] | None
    message: Message | None
    text: str
    finish_reason: str
    stop_reason: int | str | None
    versions: tuple[WeightVersion, ...]
    experts: object
    kept: object = None


def read(check: Check, body: Any, route: Route, question: SglangQuestion) -> Reply:
    """Read an answer of a route; only a chat has messages, as the server's parsers made them."""
    if route == "generate":
        return _generate_reply(check, body, question)
    choices = check.choices(body, question.sampling.n)
    if route == "chat":
        turns = [_chatted(check, body, choice, place, question) for place, choice in enumerate(choices)]
    else:
        turns = [_completed(check, body, choice, place) for place, choice in enumerate(choices)]
    prompt = turns[0].prompt if turns[0].prompt is not None else question.sent
    usage = check.counted(body, len(prompt or ()), sum(len(turn.ids) for turn in turns))
    if usage.cached_tokens is None:
        usage = attrs.evolve(
            usage, cached_tokens=meta.cached(check.find(choices[0], "meta_info", dict) or {})
        )
    return _reply(check, turns, usage, body, question)


def _generate_reply(check: Check, body: object, question: SglangQuestion) -> Reply:
    """Read an answer of `/generate`: an object, or a list of them where several turns were requested."""
    if body in (None, []):
        raise EmptyReplyError(
            f"{check.where}: the answer holds no turn at all", check.answer, where=check.where
        )
    items = body if isinstance(body, list) else [body]
    check.count("turns", len(items), "turns requested", question.sampling.n)
    items = [check.typed(item, dict, "turn") for item in items]
    metas = [check.get(item, "meta_info", dict) for item in items]
    for info in metas:
        check_refused(check, info)
    turns = [_generated(check, item, info, question) for item, info in zip(items, metas, strict=True)]
    for info, turn in zip(metas, turns, strict=True):
        check.count(
            "counted sampled ids", check.get(info, "completion_tokens", int), "sampled ids", len(turn.ids)
        )
    usage = Usage(
        prompt_tokens=_prompt_tokens(check, metas, question),
        completion_tokens=sum(len(turn.ids) for turn in turns),
        cached_tokens=meta.cached(metas[0]),
    )
    raw = body if isinstance(body, dict) else {"turns": body}
    return _reply(check, turns, usage, raw, question)


def _prompt_tokens(check: Check, metas: Sequence[Mapping[str, Any]], question: SglangQuestion) -> int:
    """Return how many ids the prompt had, by the engine's own count.

    A turn that was aborted before it was sampled is not counted at all.
    """
    counts = {
        check.get(info, "prompt_tokens", int)
        for info in metas
        if not (end_kind(info) == "abort" and info.get("prompt_tokens") is None)
    } or {len(question.sent or ())}
    if len(counts) > 1:
        check.fail("the turns have prompts of different lengths")
    return counts.pop()


def prompt_logprobs(check: Check, body: object, sent: Sequence[int], start: int) -> tuple[float | None, ...]:
    """Return the log-probabilities of the prompt's ids from `start` on.

    The last id of the vocabulary is named 0 beside its own value (`logprob_result_processor.py`, 0.5.23).
    """
    info = check.get(body, "meta_info", dict)
    check_refused(check, info)
    check.count("counted prompt ids", check.get(info, "prompt_tokens", int), "prompt ids", len(sent))
    entries = check.get(info, "input_token_logprobs", list)[1:]
    wanted = list(sent[start:])
    named = [meta.triple_id(check, entry) for entry in entries]
    last = (0, (check.vocab_size or 0) - 1)
    ids = [0 if (name, index) == last else index for name, index in zip(named, wanted, strict=False)]
    return meta.triples(check, {"output_token_logprobs": entries}, ids + wanted[len(named) :])


def _generated(
    check: Check, item: dict[str, Any], info: dict[str, Any], question: SglangQuestion
) -> SglangTurn:
    ids = check.ids(item, "output_ids")
    values: tuple[float | None, ...] | None = None
    if question.sampling.logprobs:
        values = () if not ids and end_kind(info) == "abort" else meta.triples(check, info, ids)
        values = _over_kept(check, info, question, values)
    reason = check.get(info, "finish_reason", dict)
    return SglangTurn(
        prompt=check.ids(item, "prompt_token_ids") if item.get("prompt_token_ids") is not None else None,
        ids=ids,
        logprobs=values,
        message=None,
        text=check.get(item, "text", str),
        finish_reason=check.finish_reason({"finish_reason": reason.get("type")}),
        stop_reason=check.stop_reason(reason.get("matched")),
        versions=check.weight_versions(info.get("weight_versions"), len(ids)),
        experts=info.get("routed_experts"),
        kept=info.get(meta.KEPT),
    )


def _over_kept(
    check: Check, info: Mapping[str, Any], question: SglangQuestion, values: tuple[float | None, ...]
) -> tuple[float | None, ...]:
    """Return log-probabilities over sampling masks in place of `values`, where masks came as requested."""
    if not question.sampling.sampling_masks or info.get(meta.KEPT) is None:
        return values
    return meta.over_kept(check, info, len(values))


def check_refused(check: Check, info: Mapping[str, Any]) -> None:
    """Raise the error that an abort with an HTTP status means, whatever ids stand beside it.

    A prompt that the scheduler rejects is replaced by a single id, and the turn after that id comes back,
    in a stream with status 200.
    """
    reason = info.get("finish_reason")
    status = reason.get("status_code") if isinstance(reason, Mapping) else None
    if end_kind(info) == "abort" and type(status) is int and status >= HTTPStatus.BAD_REQUEST:
        body = {"message": reason.get("message"), "type": reason.get("err_type")} if reason else {}
        raise fault(check.where, EngineAnswer(status, {"error": body}))


def end_kind(info: Mapping[str, Any]) -> object:
    """Return SGLang's name for the end of a turn of `/generate`; None while it goes on."""
    reason = info.get("finish_reason")
    return reason.get("type") if isinstance(reason, Mapping) else None


def _chatted(
    check: Check, body: dict[str, Any], choice: dict[str, Any], place: int, question: SglangQuestion
) -> SglangTurn:
    ids = _completion_ids(check, body, choice, place)
    message = check.message(choice, ids)
    info = check.find(choice, "meta_info", dict) or {}
    extra = check.find(body, "sglext", dict) or {}
    if info.get("output_token_logprobs") is not None:
        logprobs = meta.triples(check, info, ids)
    else:
        entries = check.get(_logprobs(choice, ids, "content"), "content", list)
        logprobs = check.logprobs(
            [check.typed(entry, dict, "entry").get("logprob") for entry in entries], len(ids)
        )
    logprobs = _over_kept(check, info, question, logprobs)
    return SglangTurn(
        prompt=_prompt_ids(check, body, choice, question),
        ids=ids,
        logprobs=logprobs,
        message=message,
        text=message.get("content") or "",
        finish_reason=check.finish_reason(choice),
        stop_reason=check.stop_reason(choice.get("matched_stop")),
        versions=check.weight_versions(
            info.get("weight_versions") or _metadata(check, body, place), len(ids)
        ),
        experts=info.get("routed_experts", extra.get("routed_experts") if place == 0 else None),
        kept=info.get(meta.KEPT),
    )


def _completion_ids(
    check: Check, body: dict[str, Any], choice: dict[str, Any], place: int
) -> tuple[int, ...]:
    """Return the sampled ids of a chat, under whichever name they come; all that come must agree."""
    candidates = [check.ids(choice, name) for name in COMPLETION_IDS if choice.get(name) is not None]
    lists = (check.find(body, "sglext", dict) or {}).get("output_ids")
    if isinstance(lists, list) and place < len(lists):
        candidates.append(check.ids({"sglext.output_ids": lists[place]}, "sglext.output_ids"))
    entries = (check.find(choice, "meta_info", dict) or {}).get("output_token_logprobs")
    if isinstance(entries, list):
        candidates.append(tuple(meta.triple_id(check, triple) for triple in entries))
    if not candidates:
        check.fail(f"the answer's ids are missing: it has neither `{'`, `'.join(COMPLETION_IDS)}` nor others")
    if len(set(candidates)) > 1:
        check.fail("the answer names different ids for one turn")
    return candidates[0]


def _prompt_ids(
    check: Check, body: dict[str, Any], choice: dict[str, Any], question: SglangQuestion
) -> tuple[int, ...] | None:
    """Return the prompt's ids; None where none were requested, and none came."""
    extra = check.find(body, "sglext", dict) or {}
    if choice.get("prompt_token_ids") is None and extra.get("input_ids") is not None:
        return check.ids({"sglext.input_ids": extra["input_ids"]}, "sglext.input_ids")
    if choice.get("prompt_token_ids") is None and not question.echo:
        return None
    return check.ids(choice, "prompt_token_ids")


def repeated(reply: Reply, *, streamed: bool) -> bool:
    """Whether an answer has its prompt's ids, and would have its own without the prompt's."""
    raw = reply.raw
    if streamed and "choices" in raw:
        return (raw.get("sglext") or {}).get("input_ids") is not None
    first = (raw.get("turns") or raw.get("choices") or [raw])[0]
    named = (first.get("meta_info") or {}).get("output_token_logprobs") is not None
    return named and first.get("prompt_token_ids") is not None


def _completed(check: Check, body: dict[str, Any], choice: dict[str, Any], place: int) -> SglangTurn:
    name = next((name for name in COMPLETION_IDS if choice.get(name) is not None), "token_ids")
    ids = check.ids(choice, name)
    logprobs = _logprobs(choice, ids, "token_logprobs")
    extra = check.find(body, "sglext", dict) or {}
    return SglangTurn(
        prompt=check.ids(choice, "prompt_token_ids"),
        ids=ids,
        logprobs=check.logprobs(check.get(logprobs, "token_logprobs", list), len(ids)),
        message=None,
        text=check.get(choice, "text", str),
        finish_reason=check.finish_reason(choice),
        stop_reason=check.stop_reason(choice.get("matched_stop")),
        versions=check.weight_versions(_metadata(check, body, place), len(ids)),
        experts=extra.get("routed_experts") if place == 0 else None,
    )


def _logprobs(choice: dict[str, Any], ids: Sequence[int], name: str) -> object:
    """Return the log-probabilities' object; a turn of no ids may come without."""
    return {name: []} if not ids and choice.get("logprobs") is None else choice.get("logprobs")


def _metadata(check: Check, body: dict[str, Any], place: int) -> object:
    """Return which weights sampled the first turn; the OpenAI routes say it of no other."""
    return (check.find(body, "metadata", dict) or {}).get("weight_versions") if place == 0 else None


def _reply(
    check: Check, turns: Sequence[SglangTurn], usage: Usage, raw: dict[str, Any], question: SglangQuestion
) -> Reply:
    """Return the reply of all turns; the first has the others for siblings.

    Raises `AbortedError`, with what was sampled, where the engine aborted one of them.
    """
    prompt = _seen(check, turns, usage, question)
    first, *others = [
        Reply(
            prompt_ids=prompt,
            completion_ids=turn.ids,
            logprobs=turn.logprobs,
            message=turn.message,
            text=turn.text,
            finish_reason=turn.finish_reason,
            usage=usage,
            stop_reason=turn.stop_reason,
            weight_versions=turn.versions,
            routed_experts=_experts(check, turn, question, len(prompt)),
            raw=raw,
        )
        for turn in turns
    ]
    whole = attrs.evolve(first, siblings=tuple(others))
    if question.sampling.sampling_masks:
        whole = masked(check, whole, [turn.kept for turn in turns], SENT_BY)
    if any(turn.finish_reason == "abort" for turn in turns):
        partial = whole if any(turn.ids for turn in turns) else None
        raise aborted(check, "the engine aborted the turn, by request or as it shut down", partial)
    return whole


def _seen(check: Check, turns: Sequence[SglangTurn], usage: Usage, question: SglangQuestion) -> Sequence[int]:
    """Return the ids that the engine saw; where it repeats none, those that were sent, if it counted as many.

    A server that may truncate prompts does so silently.
    """
    named = {turn.prompt for turn in turns if turn.prompt is not None}
    if len(named) > 1:
        check.fail("the turns have different prompts")
    prompt: Sequence[int] = named.pop() if named else question.sent or ()
    if question.sent is not None and prompt is not question.sent:
        check.echo(prompt, question.sent)
    check.count("counted prompt ids", usage.prompt_tokens, "prompt ids", len(prompt))
    return prompt if question.sent is None else question.sent


def _experts(check: Check, turn: SglangTurn, question: SglangQuestion, prompt: int) -> RoutedExperts | None:
    if turn.finish_reason == "abort":
        return None  # it may have been aborted between an id and its routing
    start = question.sampling.extra.get(EXPERTS_FROM, 0)
    return bare_experts(check, turn.experts, prompt + len(turn.ids), start, question.routing)
