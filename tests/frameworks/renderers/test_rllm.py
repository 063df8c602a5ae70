"""Sessions of rLLM's gateway: after the first turn prompts go by ids, where the template needs no history."""

from __future__ import annotations

import pytest
from renderers import DefaultRendererConfig, create_renderer

from tests.frameworks.renderers.models import NAMES, OWN, QUESTION, SYSTEM, Model, case_of, model, taken
from tests.frameworks.renderers.refused import REFUSED
from tests.frameworks.renderers.rllm import Session

SHAPES = ("tool", "user", "two tools", "tool then user", "user after a cut turn", "user")


def session(one: Model) -> Session:
    """Return a session; the engine renders by itself, so that the gateway knows no first messages."""
    engine = one.renderer()
    return Session(
        one.renderer(thinking_retention="all"),
        lambda messages, tools: engine.render_ids(messages, tools=tools, add_generation_prompt=True),
    )


@pytest.mark.parametrize("name", NAMES)
def test_prompts_after_the_first_go_by_ids(name: str) -> None:
    one = model(name)
    talk, messages, kept = session(one), [SYSTEM, QUESTION], [0]
    cases = taken(name, SHAPES)
    for case in cases:
        _, sampled = one.sampled([SYSTEM, QUESTION], case)
        prompt = talk.turn(messages, case.tools, sampled)
        assert prompt[: len(kept)] == kept or not talk.by_ids[-1]
        kept = [*prompt, *sampled]
        messages = [*messages, {**case.turn, "reasoning_content": ""}, *case.after]
    written = talk.chat(messages, cases[0].tools)
    last = talk.turn(messages, cases[0].tools, [1])
    assert talk.by_ids == [False, *(True for shape in SHAPES if (name, shape) not in REFUSED)]
    tail = last[len(kept) :] if talk.by_ids[-1] else last
    assert tail == written[len(written) - len(tail) :]


def test_a_session_whose_messages_changed_begins_anew() -> None:
    one = model(OWN)
    talk, case = session(one), case_of("user", OWN)
    _, sampled = one.sampled([QUESTION], case)
    talk.turn([QUESTION], None, sampled)
    talk.turn([SYSTEM, QUESTION, case.turn, *case.after], None, sampled)
    assert talk.by_ids == [False, False]


def test_the_gateway_takes_no_renderer_without_bridges() -> None:
    one = model(OWN)
    with pytest.raises(ValueError, match="no bridge"):
        Session(create_renderer(one.tokenizer, DefaultRendererConfig()), lambda *_: [])
    with pytest.raises(TypeError, match="renderer"):  # as `server.py` calls it, line 176
        create_renderer(one.tokenizer, renderer="qwen3")
