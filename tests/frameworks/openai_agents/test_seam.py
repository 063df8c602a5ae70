"""Where the integration goes in: the Responses model of the OpenAI Agents SDK and its client."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from agents import ModelSettings, ModelTracing
from agents.models.openai_responses import OpenAIResponsesModel

from tito_io.integrations.openai_agents import MODEL as SEAM


class Asked(Exception):  # noqa: N818  # it says what happened
    """The client was asked."""


class Client:
    """What the integration gives the model for a client."""

    def __init__(self) -> None:
        self.responses = self
        self.asked: list[dict[str, Any]] = []

    async def create(self, **arguments: Any) -> AsyncIterator[Any]:
        self.asked.append(arguments)
        raise Asked


@pytest.mark.parametrize("streams", [False, True])
def test_the_model_asks_the_client_for_a_response(streams: bool) -> None:
    client = Client()
    model = OpenAIResponsesModel("m", client)
    arguments: Any = ("Be brief.", "hi", ModelSettings(temperature=0.5), [], None, [], ModelTracing.DISABLED)
    no_state = {"previous_response_id": None, "conversation_id": None, "prompt": None}

    async def ask() -> None:
        if streams:
            async for _ in model.stream_response(*arguments, **no_state):
                pass
        else:
            await model.get_response(*arguments, **no_state)

    with pytest.raises(Asked):
        anyio.run(ask)
    (asked,) = client.asked
    known = {name: asked[name] for name in ("input", "instructions", "temperature")}
    assert known == {
        "input": [{"content": "hi", "role": "user"}],
        "instructions": "Be brief.",
        "temperature": 0.5,
    }, SEAM
    assert (asked["stream"] is True) == streams, SEAM
