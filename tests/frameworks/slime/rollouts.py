"""Conversations of one session of slime's adapter; a row is what slime's manager was given."""

from __future__ import annotations

from typing import Any

from tests.frameworks.laws.rollouts import Given, Rollouts, Talk, asks
from tests.frameworks.sampler import Engine
from tests.frameworks.slime.adapter import Adapter, BaseAdapter
from tito_io.integrations.shared_prompts import SharedPrompts


def question(number: int) -> dict[str, Any]:
    return {"role": "user", "content": f"Question {number}?"}


async def converse(adapter: BaseAdapter, engine: Engine, sid: str = "1", count: int = 4) -> list[list[Any]]:
    """Hold a conversation; return the messages of each prompt."""
    asked: list[list[Any]] = [[question(0)]]
    for number in range(1, count + 1):
        _, answer = await adapter.turn(sid, asked[-1], engine)
        asked.append([*asked[-1], answer, question(number)])
    return asked[:-1]


class ROLLOUTS(Rollouts):
    """slime."""

    first = (question(0),)
    between = tuple({asks(f"Question {number}?")} for number in (1, 2, 3))
    variables = False
    choices = ("rerender", "raise")

    async def talk(self, given: Given) -> Talk:
        prompts = None if given.on_refusal is None else SharedPrompts(on_refusal=given.on_refusal)
        adapter = Adapter(tokenizer=given.tokenizer, sglang_url="http://engine", prompts=prompts)
        asked = await converse(adapter, given.engine)
        ids: list[int] = []
        mask: list[int] = []
        for _, turn, _, _ in adapter.manager.recorded:
            mask += [0] * (len(turn.prompt_ids) - len(ids)) + [1] * len(turn.output_ids)
            ids = [*turn.prompt_ids, *turn.output_ids]
        used = adapter.tokenizer.prompts
        return Talk(ids, mask, None, used.built["ids"], used.refused, asked)
