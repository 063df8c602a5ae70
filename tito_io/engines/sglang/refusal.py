"""Telling a chat template's refusal from everything else that an SGLang server may refuse.

SGLang answers 400 to whatever a template raises, in the envelope of its own complaints, and names nothing.
Its own are known by their words, or have another type. What is in doubt is an error: an outage must never
pass for "cannot be rendered".
"""

from __future__ import annotations

import re

from tito_core import TemplateRefused
from tito_io.engines.errors import refused_by_template
from tito_io.engines.protocol import RequestError

NOT_THE_TEMPLATE = re.compile(
    r"Messages cannot be empty|must be valid JSON|Failed to render chat messages"
    r"|add_generation_prompt is supported only|continue_final_message|Chat template tokenization requires"
    r"|--trust-request-chat-template|supports? text input|unsupported content type|is not supported for this"
    r"|cannot enforce|Cannot rewrap|tool_choice|reasoning.effort|Unsupported parameter|return_sampling_mask",
    re.IGNORECASE,
)
"""What SGLang says by itself in the envelope that it also puts a template's words into."""


def refusal(error: RequestError) -> TemplateRefused | None:
    """Return the template's refusal, where that is what the server's is."""
    return refused_by_template(error, NOT_THE_TEMPLATE)
