"""A gateway with a model folder sends the prompt that the engine would render, stitched or not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engines.preprocessing.shapes import text, user
from tito_io.embedded import family

from .gateway import HELLO, Remembering, embedded_gateway, talking

pytestmark = pytest.mark.anyio

NEXT: dict[str, list[dict[str, Any]]] = {
    "one part": [user([text("And now?")])],
    "two parts": [user([text("And"), text("now?")])],
    "an empty part": [user([text(""), text("now?")])],
    "a marked part": [user([text("now?", cache_control={"type": "ephemeral"})])],
    "a system text in parts": [{"role": "system", "content": [text("Be"), text("brief.")]}, user("Go on.")],
    "parts of a tool's result": [
        {"role": "tool", "tool_call_id": "a", "content": [text("And"), text("now?")]}
    ],
    "a developer": [{"role": "developer", "content": "Be brief."}, user("Go on.")],
}


@pytest.mark.parametrize("new", NEXT.values(), ids=NEXT)
async def test_what_follows_a_turn_is_what_vllm_renders(new: list[dict[str, Any]]) -> None:
    async with talking(embedded_gateway()) as talk:
        first = (await talk.post({"messages": HELLO})).json()["choices"][0]["message"]
        messages = [*HELLO, first, *new]
        await talk.post({"messages": messages})
    assert isinstance(talk.engine, Remembering)
    one, two = talk.engine.replies
    kept = [*one.prompt_ids, *one.completion_ids]
    assert list(two.prompt_ids[: len(kept)]) == kept  # stitched
    renamed = [one | {"role": "system"} if one["role"] == "developer" else one for one in messages]
    rendering = family().rendered_as("vllm")
    whole = rendering.text(renamed, add_generation_prompt=True)
    turn = rendering.text(renamed[: -len(new)])[-30:]  # the end of the answer, and of its turn
    assert family().decode(two.prompt_ids).endswith(whole[whole.rindex(turn) :])
