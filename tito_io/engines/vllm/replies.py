"""What vLLM answers: bodies become replies, every invariant checked on the way."""

from __future__ import annotations

from typing import Any

import attrs

from tito_core import Ids
from tito_core.samples import RoutedExperts, WeightVersion
from tito_io.engines.protocol import InvalidReplyError, Reply, Sampling, Usage
from tito_io.engines.replies import npy
from tito_io.engines.replies.hermes import ParsedMessage
from tito_io.engines.replies.invariants import Check
from tito_io.engines.replies.shapes import Choice, Shape

EXPERTS_FROM = "routed_experts_prompt_start"
"""The request key that leaves out the routing of the prompt's beginning."""


@attrs.frozen
class VllmQuestion:
    """What an answer is an answer to."""

    sampling: Sampling
    sent: Ids | None = None
    """The prompt's ids, where ids were sent."""
    echo: bool = True
    """Whether they were to come back."""


def read(check: Check, body: dict[str, Any], shape: Shape, asked: VllmQuestion) -> Reply:
    """Read a whole answer; the first turn has the others for siblings."""
    choices = check.choices(body, asked.sampling.n)
    if not asked.echo:
        choices = [shape.identified(choice) for choice in choices]
    found = [_turn(check, choice, shape) for choice in choices]
    prompts = [shape.prompt(check, body, choice, asked.sent, echo=asked.echo) for choice in choices]
    if any(prompt != prompts[0] for prompt in prompts[1:]):
        check.fail("the choices have different prompts")
    usage = check.counted(body, len(prompts[0]), sum(len(one["completion_ids"]) for one in found))
    common: dict[str, Any] = {"prompt_ids": prompts[0], "usage": usage, "raw": body}
    first, *others = [
        Reply(**common, **one, routed_experts=_experts(check, choice, asked, len(prompts[0])))
        for one, choice in zip(found, choices, strict=True)
    ]
    return attrs.evolve(first, siblings=tuple(others))


def torn(check: Check, body: dict[str, Any], shape: Shape, asked: VllmQuestion) -> Reply | None:
    """Return what came of a turn before its stream broke, None where no id did.

    Nothing is known to be wrong with the ids. Log-probabilities are there where each id has one.
    """
    choices = body["choices"]
    if not any(choice.get("token_ids") for choice in choices):
        return None
    count = sum(len(choice.get("token_ids") or ()) for choice in choices)
    first, *others = [_piece(check, body, choice, shape, asked, count) for choice in choices]
    return attrs.evolve(first, siblings=tuple(others))


def _piece(
    check: Check, body: dict[str, Any], choice: Choice, shape: Shape, asked: VllmQuestion, count: int
) -> Reply:
    ids = tuple(choice.get("token_ids") or ())
    holder = choice if shape.ids_in_choice else body
    prompt = tuple(holder.get("prompt_token_ids") or ()) if asked.sent is None else asked.sent
    try:
        logprobs = shape.logprobs(check, choice, ids)
    except InvalidReplyError:
        logprobs = None
    return Reply(
        prompt_ids=prompt,
        completion_ids=ids,
        logprobs=logprobs,
        message=None,
        text=shape.text(choice),
        finish_reason="abort",
        usage=Usage(prompt_tokens=len(prompt), completion_tokens=count),
        raw=body,
    )


def _turn(check: Check, choice: Choice, shape: Shape) -> dict[str, Any]:
    """Return what one choice says by itself, as a reply has it."""
    ids = check.ids(choice, "token_ids")
    logprobs = shape.logprobs(check, choice, ids)
    return {
        "completion_ids": ids,
        "logprobs": logprobs,
        "message": shape.message(check, choice, ids),
        "text": shape.text(choice),
        "finish_reason": check.finish_reason(choice),
        "stop_reason": _stop_reason(check, choice),
        "weight_versions": _weights(check, choice, len(ids)),
    }


def _stop_reason(check: Check, choice: Choice) -> int | str | None:
    """Return the id or the string that ended the turn."""
    found = choice.get("stop_reason")
    if found is not None and type(found) not in (int, str):
        check.fail("`stop_reason` is neither an id nor a string")
    return found


def _weights(check: Check, choice: Choice, count: int) -> tuple[WeightVersion, ...]:
    """Return which weights sampled what: runs one after the other, over every id."""
    found, place = [], 0
    for span in choice.get("weight_versions") or ():
        start, stop = check.get(span, "start", int), check.get(span, "end", int)
        if start != place or stop < start:
            check.fail(
                f"a weight version's ids go from {start} to {stop}, and the last one's ended at {place}"
            )
        found.append(WeightVersion(version=check.get(span, "version", str), start=start, stop=stop))
        place = stop
    if found:
        check.count("ids with a weight version", place, "sampled ids", count)
    return tuple(found)


def _experts(check: Check, choice: Choice, asked: VllmQuestion, prompt: int) -> RoutedExperts | None:
    """Return which experts the ids were routed to; no more rows than there are ids."""
    if choice.get("routed_experts") is None:
        return None
    text, start = check.get(choice, "routed_experts", str), asked.sampling.extra.get(EXPERTS_FROM, 0)
    try:
        found = npy.routed_experts(text, start)
    except ValueError as error:
        check.fail(f"`routed_experts` is unreadable: {error}")
    positions = prompt + len(choice["token_ids"])
    if start + found.shape[0] > positions:
        check.fail(f"`routed_experts` has {found.shape[0]} rows from position {start} for {positions} ids")
    return found


def spoken(reply: Reply, text: str, parsed: ParsedMessage, place: int = 0) -> Reply:
    """Return a reply with its text, and the message that this says; `place` is the turn's among several."""
    called, finish = bool(parsed.calls), reply.finish_reason
    if finish in ("stop", "tool_calls"):
        finish = "tool_calls" if called else "stop"
    key = f"call-{reply.raw.get('id') or reply.raw.get('request_id')}" + (f".{place}" if place else "")
    return attrs.evolve(reply, text=text, message=parsed.message(key), finish_reason=finish)
