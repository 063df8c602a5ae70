"""Each line of `atif_steps.jsonl` has messages, and the steps of ATIF that they become and come back from.

A line with `read` has steps of another program, and the messages that they are read as.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.io.samples.sample_files import examples
from tito_io.samples.forms.atif_messages import append_message, step_messages


@pytest.mark.parametrize("line", examples("atif_steps.jsonl"), ids=lambda one: one["rule"])
def test_messages_are_written_as_steps_and_come_back(line: dict[str, Any]) -> None:
    steps: list[dict[str, Any]] = []
    for message in line.get("messages", ()):
        append_message(steps, message)
    assert "messages" not in line or steps == line["steps"]
    back = [message for step in line["steps"] for message in step_messages(step)]
    assert back == line.get("read", line.get("messages"))
