"""Sessions of slime: their turns are their own, and are forgotten with them."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

from tests.frameworks.sampler import Engine
from tests.frameworks.slime.adapter import Adapter, BaseAdapter
from tests.frameworks.slime.rollouts import converse, question


def made(tokenizer: Any) -> Adapter:
    return Adapter(tokenizer=tokenizer, sglang_url="http://engine")


def extends(engine: Engine) -> list[bool]:
    """Return for each turn but the first whether its prompt begins with all ids before it."""
    return [later.prompt[: len(one.all)] == one.all for one, later in pairwise(engine.turns)]


def test_without_the_integration_prompts_drift(tokenizer: Any) -> None:
    drifted = 0
    for seed in range(20):
        engine = Engine(seed)
        asyncio.run(converse(BaseAdapter(tokenizer=tokenizer, sglang_url="http://engine"), engine))
        drifted += extends(engine).count(False)
    assert drifted > 30  # what slime then masks or forks


def test_sessions_do_not_share_turns(tokenizer: Any) -> None:
    """Two sessions with the same messages have different ids, even when they run at the same time."""
    adapter, one, other = made(tokenizer), Engine(1), Engine(2)

    async def two() -> None:
        await asyncio.gather(converse(adapter, one, "1"), converse(adapter, other, "2"))

    asyncio.run(two())
    assert extends(one) == extends(other) == [True] * 3
    assert one.turns[0].prompt == other.turns[0].prompt
    assert one.turns[1].prompt != other.turns[1].prompt


def test_a_session_that_is_shut_down_is_forgotten(tokenizer: Any) -> None:
    adapter = made(tokenizer)
    asyncio.run(converse(adapter, Engine(), "4"))
    assert list(adapter.tokenizer.turns) == ["4"]
    asyncio.run(adapter.shutdown_session("4", wait_timeout=1.0))
    assert (adapter.tokenizer.turns, adapter.shut) == ({}, ["4"])


def test_other_messages_are_rendered(tokenizer: Any) -> None:
    adapter = made(tokenizer)
    asyncio.run(converse(adapter, Engine(), "5", count=1))
    messages = [question(0), {"role": "assistant", "content": "Other."}, question(1)]
    turn, _ = asyncio.run(adapter.turn("5", messages, Engine()))
    rendered = tokenizer.apply_chat_template(messages, add_generation_prompt=True)["input_ids"]
    assert turn.prompt_ids == rendered


def test_all_else_of_the_tokenizer_is_there(tokenizer: Any) -> None:
    assert made(tokenizer).tokenizer.eos_token_id == tokenizer.eos_token_id
