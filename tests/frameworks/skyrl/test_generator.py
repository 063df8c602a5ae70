"""What the integration does beside SkyRL's own arithmetic, and what of SkyRL it does not take."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from skyrl.train.generators.skyrl_gym_generator import SkyRLGymGenerator

from tests.frameworks.sampler import DONE, Engine
from tests.frameworks.skyrl.rollouts import run
from tito_core import InputError


def test_skyrls_own_arithmetic_writes_no_close_after_a_turn_that_was_cut(tokenizer: Any) -> None:
    engine = Engine(most=5)
    asyncio.run(run(tokenizer, engine, SkyRLGymGenerator))
    first, second, *_ = engine.turns
    assert second.prompt[len(first.all)] != DONE


def test_clean_turns_are_followed_by_what_skyrl_writes(tokenizer: Any) -> None:
    """Where a turn has its stop and a user speaks, both write the same."""
    ours, theirs = Engine(1), Engine(1)
    asyncio.run(run(tokenizer, ours))
    asyncio.run(run(tokenizer, theirs, SkyRLGymGenerator))
    clean = [one for one in ours.turns[:2] if one.ids[-1] == DONE]
    assert clean
    assert ours.turns[: len(clean) + 1] == theirs.turns[: len(clean) + 1]


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"step_wise_trajectories": True}, "render whole conversations anew"),
        ({"use_conversation_multi_turn": False}, "set use_conversation_multi_turn"),
    ],
)
def test_other_ways_to_generate_are_named(tokenizer: Any, options: Any, match: str) -> None:
    with pytest.raises(InputError, match=match):
        asyncio.run(run(tokenizer, Engine(), options=options))
