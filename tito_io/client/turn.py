"""The turn of a client: how its prompt went to the engine, its step, and the engine's reply."""

from __future__ import annotations

from enum import Enum
from typing import TypedDict

import attrs

from tito_core import Message, Refusal, SamplingMask, Step, Stitched
from tito_io.engines.protocol import InvalidReplyError, Reply, Sampling


class Completion(TypedDict):
    """The arguments of a step that a reply has."""

    completion: list[Message]
    completion_ids: tuple[int, ...]
    logprobs: tuple[float | None, ...] | None
    truncated: bool
    sampling_mask: SamplingMask | None


class Route(Enum):
    """How a prompt went to the engine."""

    KEPT = "messages in, tokens out, earlier ids kept by the engine"
    MITO = "messages in, tokens out"
    RENDERED = "rendered here, tokens in, tokens out"
    TITO = "tokens in, tokens out"


@attrs.frozen
class ClientTurn:
    """One turn, and how its prompt was made.

    Attributes:
        route: How the prompt went to the engine.
        step: Prompt and completion, as ids and messages: what a trajectory keeps.
        reply: The engine's answer.
        stitched: The prompt as it was continued from an earlier step; None where it went by messages.
        refusal: Why no earlier step could be continued, or a prompt with images could not be rendered here;
            None also where there was no step.
    """

    route: Route
    step: Step
    reply: Reply
    stitched: Stitched | None
    refusal: Refusal | None

    @property
    def group(self) -> tuple[ClientTurn, ...]:
        """The turn and its siblings, each with its own step and reply."""
        alone = attrs.evolve(self, reply=attrs.evolve(self.reply, siblings=()))
        steps = (attrs.evolve(self.step, **completion_of(reply)) for reply in self.reply.siblings)
        siblings = zip(steps, self.reply.siblings, strict=True)
        return (alone, *(attrs.evolve(self, step=step, reply=reply) for step, reply in siblings))


def completion_of(reply: Reply) -> Completion:
    """Return what a step has of a reply."""
    return {
        "completion": [reply_message(reply)],
        "completion_ids": reply.completion_ids,
        "logprobs": reply.logprobs,
        "truncated": reply.truncated,
        "sampling_mask": reply.sampling_mask,
    }


def reply_message(reply: Reply) -> Message:
    """Return the assistant message of a reply."""
    return reply.message or {"role": "assistant", "content": reply.text}


def check_constrained(reply: Reply, sampling: Sampling) -> None:
    """Raise an error where a finished turn does not keep to the constraint; a turn that was cut may not.

    Servers ignore fields that they do not know, and some constrain only what follows the reasoning, which a
    model may leave out.

    Raises:
        InvalidReplyError: `partial` holds the turn.
    """
    for one in (reply, *reply.siblings):
        if sampling.constraint is None or one.truncated or isinstance(one.stop_reason, str):
            continue
        lack = sampling.constraint.unmet(reply_message(one))
        if lack is not None:
            error = InvalidReplyError(
                f"the engine did not keep to the constraint: the turn was sampled, and {lack}; look whether "
                "the server constrains its output, and whether it knows the model's reasoning tags",
                hint="the turn is in `partial`",
            )
            error.partial = reply
            raise error
