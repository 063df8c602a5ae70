"""Bridge: the next prompt for callers that hold ids and new messages; see docs/reference/bridge.md.

Whatever a caller knows, the right answer is that of the real conversation. Who knows less gets it, or a
refusal.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.model.messages import Message, media
from tests.model.stitch import Answer, Placeholders, after, ranges, stray
from tests.model.templates import Template
from tests.model.tokenizers import Tokenizer
from tito_core import Policy, Step


def extend(  # noqa: PLR0913  # what the kernel's function takes, and the template itself
    step: Step,
    new: Sequence[Message],
    template: Template,
    tokenizer: Tokenizer,
    *,
    policy: Policy,
    stops: Sequence[int],
    truncated: bool | None,
    counted: bool,
    placeholders: Placeholders | None = None,
) -> list[Answer] | str:
    """Return every right next prompt after a step, or why there is none.

    `counted` is whether the caller knows the history, and how many ids were sampled.
    """
    messages = [*step.messages, *new]
    if not len(step.prompt_ids if counted else step.ids):
        return "NO_IDS"
    if not new:
        return "NOTHING_NEW"
    if step.messages[-1]["role"] != "assistant":
        return "NOT_ASSISTANT"
    if placeholders is None and (
        media(messages if counted else [step.messages[-1], *new]) or len(step.media)
    ):
        return "MULTIMODAL"
    if not counted and placeholders and stray(list(step.ids), ranges(step), placeholders):
        return "PLACEHOLDERS"
    return after(
        step,
        messages,
        template,
        tokenizer,
        policy,
        stops,
        placeholders=placeholders,
        truncated=truncated,
        counted=counted,
    )
