"""A renderer of the cookbook for the small family of this project."""

from __future__ import annotations

import json
from typing import Any

from tinker_cookbook.renderers.base import Message, ParseTermination, Renderer, ToolCall

from tests.frameworks.sampler import CALLS, DONE, OVER, calls_in


class OwnRenderer(Renderer):
    """Parses replies of the small family; it renders nothing."""

    def get_stop_sequences(self) -> list[int]:
        return [DONE, OVER]

    def render_message(self, message: Any, ctx: Any) -> Any:
        raise NotImplementedError("prompts are rendered by the chat template")

    def parse_response(self, response: list[int]) -> tuple[Any, ParseTermination]:
        clean = bool(response) and response[-1] in (DONE, OVER)
        text = self.tokenizer.decode(response[:-1] if clean else response)
        calls = calls_in(text)
        message = Message(role="assistant", content=CALLS.sub("", text).strip() if calls else text)
        if calls:
            functions = [
                ToolCall.FunctionBody(name=call["name"], arguments=json.dumps(call["arguments"]))
                for call in calls
            ]
            message["tool_calls"] = [
                ToolCall(function=function, id=str(number)) for number, function in enumerate(functions)
            ]
        return message, ParseTermination.EOS if clean else ParseTermination.MALFORMED
