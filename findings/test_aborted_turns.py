"""A turn that is aborted in the step that samples its end token, at an engine that names no end token."""

# ruff: noqa: S101

from __future__ import annotations

from tests.io.engines.aborting_engine import END, AbortingEngine
from tests.io.engines.test_aborted_turns import resuming, sample
from tito_io.engines.protocol import Sampling

PROMPT = tuple(map(ord, "hello"))


def test_a_turn_is_not_resumed_past_its_end_token() -> None:
    """SGLang's HTTP adapter knows no end token; `stop_token_ids` in the request name it until it does."""
    whole = sample(AbortingEngine(), Sampling(), PROMPT)
    assert whole.completion_ids[-1] == END
    engine = AbortingEngine([[len(whole.completion_ids)]], late=True)
    assert sample(resuming(engine), Sampling(), PROMPT).completion_ids == whole.completion_ids
