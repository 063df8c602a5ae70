"""What the protocol of renderers demands of `bridge_to_next_turn`, for every family."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.frameworks.renderers.models import (
    NAMES,
    NEXT,
    OWN,
    QUESTION,
    SHAPES,
    SYSTEM,
    Case,
    Model,
    case_of,
    model,
    result,
)
from tests.frameworks.renderers.refused import REFUSED
from tito_io.integrations.next_prompts import NextPrompts, RefusedError


def written(one: Model, history: Sequence[Any], case: Case, count: int) -> list[int]:
    """Return the last `count` ids of what the template itself writes, where the turn is not the last one."""
    turn = {**case.turn, "reasoning_content": ""}
    if case.cut:  # a call that was cut is not a call
        turn = {"role": "assistant", "content": "Fjord."}
    messages = [*history, turn, *case.after]
    return list(one.renderer().render_ids(messages, tools=case.tools, add_generation_prompt=True)[-count:])


@pytest.mark.parametrize("remembered", [True, False], ids=["history known", "history unknown"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NAMES)
def test_a_bridge_keeps_all_ids_and_writes_what_the_template_writes(
    name: str, shape: str, remembered: bool
) -> None:
    one, case = model(name), case_of(shape, name)
    renderer = one.renderer(thinking_retention="all")
    prompt, completion = one.sampled([SYSTEM, QUESTION], case)
    if remembered:
        renderer.render([SYSTEM, QUESTION], tools=case.tools, add_generation_prompt=True)
    bridged = renderer.bridge_to_next_turn(prompt, completion, case.after, tools=case.tools)
    if (name, shape) in REFUSED:
        assert bridged is None
        assert dict(renderer.prompts.refused) == {REFUSED[name, shape]: 1}
        return
    before = len(prompt) + len(completion)
    assert bridged.token_ids[:before] == [*prompt, *completion]
    tail = bridged.token_ids[before:]
    assert tail == written(one, [SYSTEM, QUESTION], case, len(tail))
    assert renderer.prompts.built["ids"] == 1
    assert_attributed(one, bridged, before, case.after)


def assert_attributed(one: Model, bridged: Any, before: int, messages: Sequence[Any]) -> None:
    """Assert that each new message has its ids, one after the other, and that its content is its text."""
    ids, owners = bridged.token_ids, bridged.message_indices
    assert len(ids) == len(owners) == len(bridged.is_content) == len(bridged.sampled_mask)
    assert not any(bridged.sampled_mask)
    assert set(owners[:before]) == {-1}
    assert not any(bridged.is_content[:before])
    spans = bridged.message_token_spans()
    assert [span is not None for span in spans] == [True] * len(messages)
    assert [start for start, _ in spans[1:]] == [stop for _, stop in spans[:-1]]
    assert spans[0][0] - before <= 2, "only the close of the turn stands before the first message"
    for place, (message, (start, stop)) in enumerate(zip(messages, spans, strict=True)):
        assert set(owners[start:stop]) == {place}
        said = [index for index in range(start, stop) if bridged.is_content[index]]
        assert said == list(range(said[0], said[-1] + 1))
        assert one.tokenizer.decode([ids[index] for index in said]).strip() == message["content"]
    assert not any(bridged.is_content[spans[-1][1] :])
    assert bridged.message_roles == [message["role"] for message in messages]
    assert bridged.message_tool_names == [message.get("name") for message in messages]


@pytest.mark.parametrize("name", NAMES)
def test_bridges_follow_each_other(name: str) -> None:
    one, renderer = model(name), model(name).renderer(thinking_retention="all")
    tool = (name, "tool") not in REFUSED
    case = case_of("tool" if tool else "user", name)
    _, completion = one.sampled([SYSTEM, QUESTION], case)
    prompt = renderer.render_ids([SYSTEM, QUESTION], tools=case.tools, add_generation_prompt=True)
    for _ in range(4):
        bridged = renderer.bridge_to_next_turn(prompt, completion, case.after, tools=case.tools)
        assert bridged.token_ids[: len(prompt) + len(completion)] == [*prompt, *completion]
        prompt = bridged.token_ids
    assert renderer.prompts.built["ids"] == 4
    assert not renderer.prompts.refused
    assert sum(prompt[place : place + len(completion)] == completion for place in range(len(prompt))) >= 4


def test_there_may_be_nothing_to_bridge() -> None:
    one, case = model(OWN), case_of("user", OWN)
    renderer = one.renderer(thinking_retention="all", on_refusal="raise")
    prompt, completion = one.sampled([QUESTION], case)
    assert renderer.bridge_to_next_turn([], completion, [NEXT]) is None
    assert renderer.bridge_to_next_turn(prompt, completion, []) is None
    assert renderer.bridge_to_next_turn(prompt, completion, [NEXT, {**case.turn}]) is None
    assert not renderer.prompts.built
    assert not renderer.prompts.refused


def test_a_refusal_is_counted_and_rerendered_or_raised(caplog: pytest.LogCaptureFixture) -> None:
    one = model(OWN)
    prompt, completion = one.sampled([QUESTION], case_of("user", OWN))
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "cat.png"}}]}
    patient, strict = (
        one.renderer(thinking_retention="all", on_refusal=choice) for choice in ("rerender", "raise")
    )
    assert patient.bridge_to_next_turn(prompt, completion, [image]) is None
    assert "MULTIMODAL: the conversation has media (rerender)" in caplog.text
    with pytest.raises(RefusedError, match="MULTIMODAL"):
        strict.bridge_to_next_turn(prompt, completion, [image])
    assert dict(patient.prompts.refused) == dict(strict.prompts.refused) == {"MULTIMODAL": 1}


def turns_read(
    monkeypatch: pytest.MonkeyPatch, case: Case, change: Callable[[list[Any]], list[Any]]
) -> list[Any]:
    """Return the turns that a renderer reads before the messages of a case, and before others."""
    one, read = model(OWN), []
    renderer, extend = one.renderer(thinking_retention="all"), NextPrompts.extend

    def watched(*given: Any, **known: Any) -> Any:
        read.append(known["turn"])
        return extend(*given, **known)

    monkeypatch.setattr(NextPrompts, "extend", watched)
    prompt, completion = one.sampled([QUESTION], case)
    for after in (case.after, change(case.after)):
        renderer.bridge_to_next_turn(prompt, completion, after, tools=case.tools)
    return read


def test_a_turn_that_does_not_fit_its_results_stays_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_of("tool", OWN)
    read = turns_read(monkeypatch, case, lambda after: [{**after[0], "name": "another"}])
    assert read[0]["tool_calls"][0]["id"] == case.after[0]["tool_call_id"]
    assert read[1] is None


def test_a_result_without_a_call_that_was_read_says_that_there_was_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    further = result({"id": "more"}, "snow")
    case = case_of("tool", OWN)
    known, more = turns_read(monkeypatch, case, lambda after: [*after, {**further, "name": "hour"}])
    assert [call["id"] for call in more["tool_calls"]] == [case.after[0]["tool_call_id"], "more"]
    assert more["tool_calls"][0] == known["tool_calls"][0]
    assert more["tool_calls"][1]["function"]["name"] == "hour"


def test_a_call_that_was_not_read_needs_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    further = {"role": "tool", "tool_call_id": "more", "content": "snow"}
    case = case_of("tool", OWN)
    assert turns_read(monkeypatch, case, lambda after: [*after, further])[1] is None
