"""Turn vLLM's answers into replies, and check every invariant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from tito_core.samples import RoutedExperts
from tito_io.engines.protocol import Reply
from tito_io.engines.replies.chunks import choice_text
from tito_io.engines.replies.experts import npy_experts
from tito_io.engines.replies.invariants import Check
from tito_io.engines.replies.sampling_mask import masked
from tito_io.engines.replies.shapes import Choice, Shape
from tito_io.engines.turn_request import Question

STARTED = (
    "start the server, vLLM 0.32 or later, with --return-sampling-mask --logprobs-mode processed_logprobs "
    "--enable-scale-out"
)
"""How a server is made to send sampling masks (`_verify_sampling_replay_config` in `vllm/config/vllm.py`)."""
EXPERTS_FROM = "routed_experts_prompt_start"
"""The request key for the first position whose routing is returned."""


def read(check: Check, body: dict[str, Any], shape: Shape, question: Question) -> Reply:
    """Read a whole answer; turns 2 to n become the siblings of the first."""
    choices = check.choices(body, question.sampling.n)
    if not question.echo:
        choices = [shape.identified(choice) for choice in choices]
    turns = [_turn(check, choice, shape, question) for choice in choices]
    prompts = [shape.prompt(check, body, choice, question.sent, echo=question.echo) for choice in choices]
    if any(prompt != prompts[0] for prompt in prompts[1:]):
        check.fail("the choices have different prompts")
    usage = check.counted(body, len(prompts[0]), sum(len(one["completion_ids"]) for one in turns))
    common: dict[str, Any] = {"prompt_ids": prompts[0], "usage": usage, "raw": body}
    first, *others = [
        Reply(**common, **one, routed_experts=_experts(check, choice, question, len(prompts[0])))
        for one, choice in zip(turns, choices, strict=True)
    ]
    whole = attrs.evolve(first, siblings=tuple(others))
    if not question.sampling.sampling_masks:  # a server that was started with them sends them always
        return whole
    return masked(check, whole, [choice.get("sampling_mask") for choice in choices], f": {STARTED}")


def _turn(check: Check, choice: Choice, shape: Shape, question: Question) -> dict[str, Any]:
    """Return the fields of a reply that one choice holds."""
    ids = check.ids(choice, "token_ids")
    logprobs = shape.logprobs(check, choice, ids) if question.sampling.logprobs else None
    return {
        "completion_ids": ids,
        "logprobs": logprobs,
        "message": shape.message(check, choice, ids),
        "text": choice_text(choice),
        "finish_reason": check.finish_reason(choice),
        "stop_reason": check.stop_reason(choice.get("stop_reason")),
        "weight_versions": check.weight_versions(choice.get("weight_versions"), len(ids)),
    }


def _experts(check: Check, choice: Choice, question: Question, prompt: int) -> RoutedExperts | None:
    """Return which experts the ids were routed to; no more rows than there are ids."""
    if choice.get("routed_experts") is None:
        return None
    text, start = check.get(choice, "routed_experts", str), question.sampling.extra.get(EXPERTS_FROM, 0)
    try:
        experts = npy_experts(text, start)
    except ValueError as error:
        check.fail(f"`routed_experts` is unreadable: {error}")
    positions = prompt + len(choice["token_ids"])
    if start + experts.shape[0] > positions:
        check.fail(f"`routed_experts` has {experts.shape[0]} rows from position {start} for {positions} ids")
    return experts


def prompt_logprobs(
    check: Check, body: dict[str, Any], sent: Sequence[int], start: int
) -> tuple[float | None, ...]:
    """Return the log-probabilities of the prompt's ids from `start` on.

    Each position has an object whose keys are ids as text; the prompt's own id is always among them.
    """
    choice = check.choice(body)
    check.echo(check.ids(choice, "prompt_token_ids"), sent)
    entries = check.get(choice, "prompt_logprobs", list)
    check.count("positions with log-probabilities", len(entries), "prompt ids", len(sent))
    own = [
        check.get(check.typed(entry, dict, "prompt_logprobs"), str(index), dict).get("logprob")
        for entry, index in zip(entries[start:], sent[start:], strict=True)
    ]
    return check.logprobs(own, len(sent) - start)


def most_likely(check: Check, body: dict[str, Any], start: int, top: int) -> list[list[tuple[int, float]]]:
    """Return the `top` most likely (id, log-probability) of each position of the prompt from `start` on.

    An entry has them by rank, and the prompt's own id, whatever its rank.
    """
    found = []
    for entry in check.get(check.choice(body), "prompt_logprobs", list)[start:]:
        ranked = {
            check.get(value, "rank", int): (int(index), check.get(value, "logprob", float))
            for index, value in check.typed(entry, dict, "prompt_logprobs").items()
        }
        if not ranked.keys() >= set(range(1, top + 1)):
            check.fail(f"a position has the ranks {sorted(ranked)}, where 1 to {top} belong")
        found.append([ranked[rank] for rank in range(1, top + 1)])
    return found


@attrs.define
class ChatEndings:
    """Tells a turn that was cut off from a finished one where vLLM's chat route does not.

    The chat route answers `tool_calls` for every turn in which a call was parsed, also for one that was cut
    off after the call. It names every other end but the model's EOS id, which is learnt from other turns.

    Attributes:
        end_ids: Ids that finished turns have ended with, where the server named no other reason.
    """

    end_ids: set[int] = attrs.field(factory=set)

    def learn(self, reply: Reply) -> None:
        """Record the last id of a turn that the server says is finished."""
        if reply.finish_reason == "stop" and reply.stop_reason is None:
            self.end_ids.update(reply.completion_ids[-1:])

    def corrected(self, reply: Reply, limit: int | None) -> Reply:
        """Return a chat's reply with the right finish reason; `limit` is the most ids it could have.

        A turn that fills its limit was cut off unless its last id ends turns. As long as no such id is
        known, the server's finish reason stands.
        """
        self.learn(reply)
        siblings = tuple(self.corrected(one, limit) for one in reply.siblings)
        reply = attrs.evolve(reply, siblings=siblings)
        if reply.finish_reason != "tool_calls" or len(reply.completion_ids) != limit or not self.end_ids:
            return reply
        ended = reply.stop_reason is not None or reply.completion_ids[-1] in self.end_ids
        return reply if ended else attrs.evolve(reply, finish_reason="length")
