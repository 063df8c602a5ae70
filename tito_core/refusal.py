"""Refusals: why a prompt cannot be stitched, as data that a caller can count."""

from __future__ import annotations

from enum import Enum

import attrs


class Reason(Enum):
    """Why a prompt cannot be stitched."""

    NO_PREFIX = "no step's messages begin the prompt"
    KEY_DIFFERS = "a message differs from the step's in a key that the template reads"
    NO_IDS = "the matched step has no prompt ids"
    NOTHING_NEW = "the prompt ends where a step ends"
    MULTIMODAL = "media whose ids are unknown in the prompt or in the matched step"
    PLACEHOLDERS = "the placeholders in the ids are not those of the media"
    RENDERED_DIFFERENTLY = "the matched step was rendered with other tools or template arguments"
    NOT_ASSISTANT = "no matched step ends with an assistant turn"
    TRUNCATED = "the matched turn was cut short, and the policy refuses such turns"
    ODD_STOP = "the sampled stop is neither the template's close nor the next opener"
    CLOSE_MISMATCH = "after the turn the template does not write the given suffix"
    UNPROVEN_TAIL = "what the template writes after the turn cannot be proven"
    TEMPLATE_REFUSED = "the chat template rejects the new messages"
    SWALLOWED = "the chat template drops a new message"


@attrs.frozen
class Refusal:
    """A prompt that cannot be stitched; send it by messages instead.

    Attributes:
        reason: Why, as a value that can be counted.
        detail: What was seen, without any conversation text.

    >>> Refusal(Reason.NO_PREFIX, "no steps yet")
    Refusal(reason=<Reason.NO_PREFIX: "no step's messages begin the prompt">, detail='no steps yet')
    """

    reason: Reason
    detail: str = ""
