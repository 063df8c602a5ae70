"""Messages of ATIF steps: what another program wrote has the usual names."""

from __future__ import annotations

from typing import Any

import pytest

from tito_io.samples.forms.atif_messages import append_message, step_messages


@pytest.mark.parametrize(
    ("extra", "name"),
    [
        ({}, "reasoning_content"),
        ({"extra": {"tito": {}}}, "reasoning_content"),
        ({"extra": {"tito": {"reasoning": "content"}}}, "reasoning_content"),
        ({"extra": {"tito": {"reasoning": "reasoning"}}}, "reasoning"),
    ],
)
def test_reasoning_has_the_name_that_it_had_or_the_usual_one(extra: dict[str, Any], name: str) -> None:
    step = {"source": "agent", "message": "yes", "reasoning_content": "hm", **extra}
    assert list(step_messages(step)) == [{"role": "assistant", "content": "yes", name: "hm"}]


def test_a_step_without_reasoning_has_none() -> None:
    step = {"source": "user", "message": "yes", "reasoning_content": None}
    assert list(step_messages(step)) == [{"role": "user", "content": "yes"}]


@pytest.mark.parametrize(
    ("name", "extra"),
    [("reasoning_content", {}), ("reasoning", {"extra": {"tito": {"reasoning": "reasoning"}}})],
)
def test_only_an_unusual_name_of_reasoning_is_written(name: str, extra: dict[str, Any]) -> None:
    steps: list[dict[str, Any]] = []
    append_message(steps, {"role": "assistant", "content": "yes", name: "hm"})
    step = {"step_id": 1, "source": "agent", "message": "yes", "reasoning_content": "hm", **extra}
    assert steps == [step]
