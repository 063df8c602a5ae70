"""Telling a chat template's refusal from everything else that a vLLM server may refuse.

vLLM answers 400 to whatever a template raises and names no parameter. Its own complaints about a request name
one, have another type, or are known by their words. What is in doubt is an error: an outage must never pass
for "cannot be rendered".
"""

from __future__ import annotations

import re
from http import HTTPStatus

from tito_core import TemplateRefused
from tito_io.engines.faults import Complaint
from tito_io.engines.protocol import Answer, RequestError

LONGEST_REASON = 1000

NOT_THE_TEMPLATE = re.compile(
    r"default chat template is no longer allowed"
    r"|--trust-request-chat-template|chat template kwargs from request"
    r"|empty conversation|at least one prompt|multi.?modal|may be provided in one prompt|skip_tokenizer_init",
    re.IGNORECASE,
)
"""What vLLM says by itself in the envelope that it also puts a template's words into."""


def refusal(error: RequestError) -> TemplateRefused | None:
    """Return the template's refusal, where that is what the server's is."""
    answer = error.answer or Answer(0, None)
    complaint = Complaint.of(answer.body)
    by_template = answer.status == HTTPStatus.BAD_REQUEST and complaint.kind == "BadRequestError"
    if not by_template or complaint.param or NOT_THE_TEMPLATE.search(complaint.message):
        return None
    return TemplateRefused(complaint.message[:LONGEST_REASON]) if complaint.message else None
