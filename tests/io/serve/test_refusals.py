"""Errors of engines as clients read them."""

from __future__ import annotations

import pytest

from tito_io.engines.protocol import OverlongError, RequestError, UnreachableError
from tito_io.serve.refusals import error_reply


def test_agents_recognize_a_prompt_that_is_too_long() -> None:
    """They look for these words, and make the conversation shorter then."""
    reply = error_reply(OverlongError("the prompt has 9 ids"), {})
    assert str(reply) == (
        "prompt is too long, it exceeds the model's maximum context length: the prompt has 9 ids"
    )
    assert (reply.status, reply.kind) == (400, "OverlongError")


@pytest.mark.parametrize(
    ("error", "status"),
    [(RequestError("odd"), 400), (UnreachableError("odd"), 503), (ValueError("odd"), 500)],
)
def test_other_errors_are_not_said_to_be_that(error: Exception, status: int) -> None:
    reply = error_reply(error, {})
    assert (reply.status, "too long" in str(reply)) == (status, False)
    assert ("odd" in str(reply)) == (status != 500)
