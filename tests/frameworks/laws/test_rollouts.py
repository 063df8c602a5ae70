"""Laws of training frameworks: what is trained was sampled, and all else is what the chat template writes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.frameworks.laws.adapter import adapters
from tests.frameworks.laws.rollouts import Given, Rollouts
from tests.frameworks.sampler import DONE, Engine
from tito_core import InputError
from tito_io.integrations.next_prompts import RefusedError

SEEDS = range(30)
CUT = 5
CHOICES = ("rerender", "end", "raise")


@pytest.fixture(params=adapters("rollouts", "ROLLOUTS"))
def rollouts(request: pytest.FixtureRequest) -> Rollouts:
    found: Rollouts = request.param()
    return found


@pytest.mark.parametrize("most", [300, CUT])
def test_what_is_trained_was_sampled(rollouts: Rollouts, tokenizer: Any, most: int) -> None:
    longest = 0
    for seed in SEEDS if most != CUT else SEEDS[:5]:
        engine = Engine(seed, most)
        talk = asyncio.run(rollouts.talk(Given(tokenizer, engine)))
        mask, logprobs = [0] * len(talk.ids), [0.0] * len(talk.ids)
        for turn in engine.turns:
            start, stop = len(turn.prompt), len(turn.all)
            assert list(talk.ids[:stop]) == turn.all
            mask[start:stop], logprobs[start:stop] = [1] * len(turn.ids), turn.logprobs
        assert len(talk.ids) == len(engine.turns[-1].all)
        assert [int(one) for one in talk.mask] == mask
        assert talk.logprobs is None or list(talk.logprobs) == logprobs
        assert (talk.built, talk.refused) == (len(engine.turns) - 1, {})
        longest = max(longest, len(engine.turns))
    ended = most == CUT and rollouts.cut_ends  # a turn may have its stop before it is cut
    assert longest < rollouts.turns if ended else longest == rollouts.turns


def written(tokenizer: Any, engine: Engine) -> Iterator[str]:
    """Yield what stands between two turns, from the stop on."""
    for before, after in pairwise(engine.turns):
        text = tokenizer.decode(after.prompt[len(before.all) :])
        yield text if before.ids[-1] == DONE else text.removeprefix("<|done|>")
        assert before.ids[-1] == DONE or text.startswith("<|done|>")


def test_between_turns_stands_what_the_template_writes(rollouts: Rollouts, tokenizer: Any) -> None:
    seen: list[set[str]] = [set() for _ in rollouts.between]
    for seed in SEEDS:
        engine = Engine(seed, CUT if seed % 10 == 1 else 300)
        asyncio.run(rollouts.talk(Given(tokenizer, engine)))
        for place, text in enumerate(written(tokenizer, engine) if rollouts.between else ()):
            seen[place].add(text)
    for place, texts in enumerate(seen):
        assert texts <= rollouts.between[place]
    assert set().union(*seen) == set().union(*rollouts.between)


def test_the_first_prompt_is_what_the_template_writes(rollouts: Rollouts, tokenizer: Any) -> None:
    engine = Engine()
    asyncio.run(rollouts.talk(Given(tokenizer, engine)))
    assert engine.turns[0].prompt == rendered(tokenizer, rollouts.first, rollouts)


def rendered(tokenizer: Any, messages: Any, rollouts: Rollouts) -> Any:
    options = {"tools": rollouts.tools, "add_generation_prompt": True, "return_dict": False}
    return tokenizer.apply_chat_template(list(messages), **options)


def test_template_variables_are_used(rollouts: Rollouts, tokenizer: Any) -> None:
    if not rollouts.variables:
        pytest.skip("the framework sets no variables")
    engine = Engine()
    asyncio.run(rollouts.talk(Given(tokenizer, engine, template_args={"enable_thinking": False})))
    assert all(tokenizer.decode(turn.prompt).endswith("<think>\n\n</think>\n\n") for turn in engine.turns)


def refused(rollouts: Rollouts, tokenizer: Any, choice: str) -> tuple[Any, Engine]:
    """Hold a conversation of two turns or more in which every prompt after the first is refused."""
    tokenizer.chat_template = rollouts.rejecting(tokenizer.chat_template)
    for seed in SEEDS:
        engine = Engine(seed)
        talk = asyncio.run(rollouts.talk(Given(tokenizer, engine, on_refusal=choice)))
        if talk.refused:
            return talk, engine
    raise AssertionError("nothing was refused")


@pytest.mark.parametrize("choice", CHOICES)
def test_a_refusal_is_counted_and_what_was_chosen_follows(
    rollouts: Rollouts, tokenizer: Any, choice: str
) -> None:
    if not rollouts.choices:
        pytest.skip("the integration always raises")
    if choice not in rollouts.choices:
        with pytest.raises(InputError, match=rf"on_refusal is '{choice}': give "):
            asyncio.run(rollouts.talk(Given(tokenizer, Engine(), on_refusal=choice)))
        return
    if choice == "raise":
        with pytest.raises(RefusedError, match="TEMPLATE_REFUSED"):
            refused(rollouts, tokenizer, choice)
        return
    talk, engine = refused(rollouts, tokenizer, choice)
    assert talk.built == 0
    if choice == "end":
        assert (len(engine.turns), list(talk.ids)) == (1, engine.turns[0].all)
        assert talk.refused == {"TEMPLATE_REFUSED": 1}
    else:
        assert len(engine.turns) > 1
        assert talk.refused == {"TEMPLATE_REFUSED": len(engine.turns) - 1}
        for turn, messages in zip(engine.turns, talk.asked, strict=True):
            assert turn.prompt == rendered(tokenizer, messages, rollouts)


def test_conversations_may_be_held_at_the_same_time(rollouts: Rollouts, tokenizer: Any) -> None:
    alone, together = ([Engine(seed) for seed in range(6)] for _ in range(2))
    for engine in alone:
        asyncio.run(rollouts.talk(Given(tokenizer, engine)))

    async def gather() -> None:
        await asyncio.gather(*(rollouts.talk(Given(tokenizer, engine)) for engine in together))

    asyncio.run(gather())
    assert [one.turns for one in together] == [one.turns for one in alone]
