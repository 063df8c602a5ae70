"""Turns that come back as text with something new in it, and histories of which one turn is an echo."""

from __future__ import annotations

from typing import Any

import pytest

from tests.io.serve.gateway import HELLO
from tests.io.serve.test_prompt import KEY, base, commit
from tito_core import Trajectory
from tito_io.serve.client_noise import NoiseFilter
from tito_io.serve.prompt import PromptMatcher, read_prompt
from tito_io.serve.text_echo import CALLING, undone


@pytest.mark.parametrize("arguments", ["", " ", "a"])
def test_a_call_that_the_turn_did_not_make_is_no_echo_of_its_code(arguments: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "erase", "arguments": arguments}}
    content = f"Let me say what it was.\n{CALLING}\n{[call]}"
    found = undone({"role": "assistant", "content": content}, [CALLING])
    assert found.get("tool_calls") == [call] or found["content"] == content


def test_a_history_with_an_echo_after_a_turn_that_was_sampled_with_the_stop_of_this_request() -> None:
    """The first request had other stop strings, so that its turn could end with one of the second."""
    user: dict[str, Any] = {"role": "user", "content": "go on"}
    plan, code, echo = (
        {"role": "assistant", "content": text} for text in ("plan</code>", "<code>f()", "<code>f()</code>")
    )
    made = [commit("r0", HELLO, plan), commit("r1", [*HELLO, plan, user], code)]
    steps = Trajectory(one.step for one in made)
    prompt = read_prompt(NoiseFilter(), [*HELLO, plan, user, echo, user], [], None)
    found = PromptMatcher(steps, {one.name: one for one in made}, KEY, frozenset(), ["</code>"]).match(prompt)
    assert base(found.messages) is steps[1].messages
