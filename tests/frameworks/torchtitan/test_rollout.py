"""Rollouts of torchtitan: prompts go by ids, and its trainer gets one sample with the sampled ids."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import pytest
from torchtitan.experiments.rl.renderer import RendererConfig
from torchtitan.experiments.rl.rollout import RolloutStatus

from tests.frameworks.renderers.models import (
    CHOSEN,
    HAND,
    NAMES,
    OWN,
    QUESTION,
    SYSTEM,
    TOOLS,
    Model,
    model,
    taken,
)
from tests.frameworks.renderers.refused import REFUSED
from tests.frameworks.torchtitan.rollout import Script, StitchedRendererConfig, group, training_samples
from tests.model_folders import needs_families

SHAPES = ("tool", "user", "two tools", "tool then user", "user")
FLAT = [TOOLS[0]["function"]]
"""Tools as torchtitan's own environments give them."""
NEED_IDS = {"deepseek-v3": 2, "gpt-oss": 1, "mistral-tekken": 1}
"""Families whose tool results are refused where they have neither id nor name: how often in the script."""
WITH_TOOLS = ("glm4.5", "llama3", "nemotron3", "qwen3", "qwen3.5")
"""Families whose renderer by hand writes a first prompt with tools as the template does."""


def script(one: Model, shapes: Sequence[str] = SHAPES, *, plain: bool = False) -> Script:
    """Return a rollout of these cases; with `plain`, tools and results are like those in torchtitan."""
    cases = taken(one.name, shapes)
    replies = [one.sampled([SYSTEM, QUESTION], case)[1] for case in cases]
    tools = [] if cases[0].tools is None else FLAT if plain else TOOLS
    answers = [[without_id(message) if plain else message for message in case.after] for case in cases]
    return Script([SYSTEM, QUESTION], tools, [*replies, replies[-1]], answers)


def without_id(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message without what names the call."""
    return {name: value for name, value in message.items() if name not in ("tool_call_id", "name")}


def built(one: Model, **options: Any) -> Any:
    """Return the renderer, built as torchtitan's controller builds it."""
    known = one.config(**options).model_dump(exclude_unset=True)
    given = {name: value for name, value in known.items() if name not in ("name", "import_path")}
    return StitchedRendererConfig(options=given).build(tokenizer_path=str(one.folder))


def rolled(given: Script, renderer: Any) -> Any:
    """Return the only rollout of a group, and what torchtitan trains of it."""
    rollouts = asyncio.run(group(given, renderer))
    return rollouts.rollouts[0], training_samples(rollouts)


def tails(one: Model, given: Script) -> Iterator[list[int]]:
    """Yield what the template writes of all messages before each turn but the first."""
    messages = list(given.prompt)
    for case, answer in zip(taken(one.name, SHAPES), given.answers, strict=True):
        messages += [{**case.turn, "reasoning_content": ""}, *answer]
        yield one.renderer().render_ids(messages, tools=given.tools, add_generation_prompt=True)


@pytest.mark.parametrize("plain", [False, True], ids=["with ids", "as torchtitan's examples"])
@pytest.mark.parametrize("name", NAMES)
def test_a_rollout_goes_by_ids_and_is_one_sample(name: str, plain: bool) -> None:
    if plain and name in NEED_IDS:
        pytest.skip("its results need ids: see below")
    one = model(name)
    given, renderer = script(one, plain=plain), built(one, thinking_retention="all", on_refusal="raise")
    rollout, samples = rolled(given, renderer)
    assert rollout.status is RolloutStatus.COMPLETED
    assert [turn.completion_token_ids for turn in rollout.turns] == given.replies
    for (before, turn), written in zip(pairwise(rollout.turns), tails(one, given), strict=True):
        so_far = [*before.prompt_token_ids, *before.completion_token_ids]
        assert turn.prompt_token_ids[: len(so_far)] == so_far
        tail = turn.prompt_token_ids[len(so_far) :]
        assert tail == written[len(written) - len(tail) :]
    (sample,) = samples
    trained = [one for one, mask in zip(sample.token_ids, sample.loss_mask, strict=True) if mask]
    assert trained == [one for reply in given.replies for one in reply]
    assert dict(renderer.prompts.built) == {"ids": len(given.answers)}


WITHOUT_IDS = [pytest.param(name, marks=needs_families) for name in NEED_IDS if name in CHOSEN]


@pytest.mark.parametrize("name", WITHOUT_IDS)
def test_results_without_ids_are_refused_by_some_templates(name: str) -> None:
    one = model(name)
    given, renderer = script(one, plain=True), built(one, thinking_retention="all")
    rollout, samples = rolled(given, renderer)
    assert renderer.prompts.refused.total() == NEED_IDS[name]
    if name == "mistral-tekken":  # whose template takes no result without an id, in a whole render either
        assert rollout.status is RolloutStatus.ERROR
        return
    assert rollout.status is RolloutStatus.COMPLETED
    assert len(samples) == 1 + NEED_IDS[name]


TALKS = [
    *(
        pytest.param(name, ("tool", "two tools"), marks=needs_families)
        for name in WITH_TOOLS
        if name in CHOSEN
    ),
    *(pytest.param(name, ("user", "user"), marks=needs_families) for name in HAND if name in CHOSEN),
]
OTHERWISE = ("gpt-oss",)
"""Where the renderer by hand writes another first prompt than the template; see `renderers/test_hand.py`."""


@pytest.mark.parametrize(("name", "shapes"), [one for one in TALKS if one.values[0] not in OTHERWISE])
def test_prompts_are_those_of_torchtitans_own_renderer(name: str, shapes: Sequence[str]) -> None:
    one = model(name)
    given = script(one, [shape for shape in shapes if (name, shape) not in REFUSED])
    hand = RendererConfig(name=HAND[name]).build(tokenizer_path=str(one.folder))
    theirs, ours = (rolled(given, renderer) for renderer in (hand, built(one)))
    prompts = [[turn.prompt_token_ids for turn in rollout.turns] for rollout, _ in (theirs, ours)]
    assert prompts[0] == prompts[1]
    assert len(theirs[1]) == len(ours[1])


def test_calls_that_torchtitan_parsed_are_rendered_again() -> None:
    """Its environment puts the parser's objects into messages, and renders these when a user speaks."""
    one = model(OWN)
    given, renderer = script(one, ("tool", "user"), plain=True), built(one, thinking_retention="tool_cycle")
    rollout, _ = rolled(given, renderer)
    assert rollout.status is RolloutStatus.COMPLETED
    assert dict(renderer.prompts.built) == {"ids": 1, "rendered": 1}
    calling, answer = (case.turn for case in taken(one.name, ("tool", "user")))
    calling = {**calling, "tool_calls": [{**calling["tool_calls"][0], "id": "call0"}]}
    messages = [*given.prompt, calling, *given.answers[0], answer, *given.answers[1]]
    written = one.renderer().render_ids(messages, tools=TOOLS, add_generation_prompt=True)
    assert rollout.turns[2].prompt_token_ids == written


@needs_families
def test_renderers_by_hand_do_not_render_such_calls() -> None:
    one = model("qwen3")
    hand = RendererConfig(name="qwen3").build(tokenizer_path=str(one.folder))
    rollout, _ = rolled(script(one, ("tool", "user")), hand)
    assert rollout.status is RolloutStatus.ERROR
