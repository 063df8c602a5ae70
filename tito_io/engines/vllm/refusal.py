"""Telling a chat template's refusal from everything else that a vLLM server may refuse.

vLLM answers 400 to whatever a template raises and names no parameter. Its own complaints about a request name
one, have another type, or are known by their words. What is in doubt is an error: an outage must never pass
for "cannot be rendered".
"""

from __future__ import annotations

import re

from tito_core import TemplateRefused
from tito_io.engines.errors import refused_by_template
from tito_io.engines.protocol import RequestError

NOT_THE_TEMPLATE = re.compile(
    r"default chat template is no longer allowed"
    r"|--trust-request-chat-template|chat template kwargs from request"
    r"|empty conversation|at least one prompt|multi.?modal|may be provided in one prompt|skip_tokenizer_init",
    re.IGNORECASE,
)
"""What vLLM says by itself in the envelope that it also puts a template's words into."""


def refusal(error: RequestError) -> TemplateRefused | None:
    """Return the template's refusal, where that is what the server's is."""
    return refused_by_template(error, NOT_THE_TEMPLATE)
