"""Where the integration goes in: Pydantic AI's chat model, and the methods that make and send a request."""

from __future__ import annotations

import inspect
from typing import Any

import anyio
import pytest
from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.tools import ToolDefinition

from tito_io.integrations.pydantic_ai import MODEL as SEAM
from tito_io.integrations.pydantic_ai import PROFILE, _InProcess

HISTORY = [
    ModelRequest(parts=[UserPromptPart(content="hi")]),
    ModelResponse(parts=[ToolCallPart("look", '{"at": 1}', tool_call_id="a")]),
]
LOOK = ToolDefinition(name="look", description="Look.", parameters_json_schema={"type": "object"})


class Asked(Exception):  # noqa: N818  # it says what happened
    """A request would be sent."""


class Model(OpenAIChatModel):
    asked: tuple[Any, ...] = ()

    async def _completions_create(self, *arguments: Any) -> Any:
        self.asked = arguments
        raise Asked


def model() -> Model:
    return Model("m", provider=_InProcess(), profile=PROFILE)


@pytest.mark.parametrize("streams", [False, True])
def test_both_ways_to_ask_send_a_request_by_one_method(streams: bool) -> None:
    asked = model()

    async def ask() -> None:
        if streams:
            async with asked.request_stream(HISTORY, {"seed": 1}, ModelRequestParameters()):
                pass
        else:
            await asked.request(HISTORY, {"seed": 1}, ModelRequestParameters())

    with pytest.raises(Asked):
        anyio.run(ask)
    messages, stream, settings, parameters = asked.asked
    assert (messages, stream, settings) == (HISTORY, streams, {"seed": 1}), SEAM
    assert isinstance(parameters, ModelRequestParameters)


def test_messages_and_tools_are_mapped_to_those_of_the_chat_api() -> None:
    parameters = ModelRequestParameters(function_tools=[LOOK])
    _, parameters = model().prepare_request(None, parameters)
    mapped = anyio.run(model()._map_messages, HISTORY, parameters)
    assert [one["role"] for one in mapped] == ["user", "assistant"], SEAM
    tools, choice = model()._get_tool_choice({}, parameters)
    assert ([one["function"]["name"] for one in tools], choice) == (["look"], "auto"), SEAM


def test_a_response_is_mapped_by_a_method_of_its_own() -> None:
    assert "_map_model_response(message)" in inspect.getsource(OpenAIChatModel._map_messages), SEAM
