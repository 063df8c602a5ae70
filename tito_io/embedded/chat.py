"""`POST /v1/chat/completions`: messages in, or ids beside them; a parsed message and its ids out."""

from __future__ import annotations

from typing import Any

from attrs import frozen
from starlette.requests import Request
from starlette.responses import Response

from .body import Body, token_ids
from .chat_answer import ChatAnswer
from .chat_stream import chunks
from .engine import Engine
from .errors import Refused, bad
from .events import JSON, stream
from .names import stamp
from .rendering import Rendering
from .request import Asked, asked

GIVEN = "kv_transfer_params.prompt_token_ids"
"""Where a chat request may bring the ids of its prompt; its messages are then not rendered."""


@frozen
class Tools:
    """What a request says of its tools."""

    parsed: bool
    """Whether calls are looked for in the reply."""
    must_call: str | None
    """The tool that has to be called, `""` for any, None for none."""
    named: bool
    """Whether it was chosen by name: such a reply ends with `stop`."""


async def chat(engine: Engine, request: Request) -> Response:
    """Answer one request."""
    body = await Body.read(request)
    body.need("messages")
    engine.check_model(body)
    tools = _tools(body)
    rendering = Rendering.read(body, renamed=True)
    prompt = _prompt(engine, body, rendering)
    wanted = _asked(engine, body, prompt, tools)
    run = engine.run(prompt, wanted.sampling, wanted.count)
    answer = ChatAnswer(
        stamp=stamp(request, "chatcmpl", "chat.completion", engine.model),
        prompt=prompt,
        prompt_text=engine.family.decode(prompt) if body.flag("return_prompt_text") else None,
        run=run,
        asked=wanted,
        thinking=rendering.thinking,
        tools=tools.parsed,
        calls_end=not tools.named,
        one_call=not body.flag("parallel_tool_calls", default=True),
    )
    return stream(chunks(answer)) if wanted.stream else JSON(answer.body())


def _prompt(engine: Engine, body: Body, rendering: Rendering) -> list[int]:
    """Return the ids that the request brings along, or those of its messages."""
    given = body.object("kv_transfer_params").get("prompt_token_ids")
    if given is None:
        return rendering.ids(engine.family)
    ids = _given(given)
    engine.check_ids(ids, GIVEN)
    if len(ids) > engine.max_model_len:
        text = f"Input length ({len(ids)}) exceeds model's maximum context length ({engine.max_model_len})."
        raise Refused(text)
    return ids


def _given(ids: Any) -> list[int]:
    """Return the ids that a request brings along, at least one."""
    try:
        found = token_ids(ids, GIVEN)
    except Refused:
        found = []
    if not found:
        text = "`kv_transfer_params['prompt_token_ids']` must be a non-empty list of non-negative integers."
        raise bad(text, GIVEN)
    return found


def _asked(engine: Engine, body: Body, prompt: list[int], tools: Tools) -> Asked:
    """Read the options: without a limit the reply may fill the context."""
    newer = body.integer("max_completion_tokens")
    limit = body.integer("max_tokens") if newer is None else newer
    room = engine.room(prompt, limit, from_text=True)
    shown = body.integer("top_logprobs")
    if shown and not body.flag("logprobs"):
        raise bad("when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs")
    logprobs = (shown or 0) if body.flag("logprobs") else None
    return asked(body, max_tokens=room, logprobs=logprobs, must_call=tools.must_call)


def _tools(body: Body) -> Tools:
    """Read the tools and the choice among them."""
    tools, choice = body.objects("tools"), body.get("tool_choice")
    if tools == []:
        text = (
            "`tools` must not be an empty array. Either provide at least one tool or omit the field entirely."
        )
        raise bad(text, "tools")
    if choice in (None, "none"):
        return Tools(parsed=tools is not None and choice is None, must_call=None, named=False)
    if not tools:
        raise bad("When using `tool_choice`, `tools` must be set.", "tool_choice")
    if choice == "auto":
        return Tools(parsed=True, must_call=None, named=False)
    if choice == "required":
        return Tools(parsed=True, must_call="", named=False)
    return Tools(parsed=True, must_call=_chosen(choice, tools), named=True)


def _chosen(choice: Any, tools: list[dict[str, Any]]) -> str:
    """Return the name that an object names, which must be a tool's."""
    function = choice.get("function") if isinstance(choice, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    names = [tool["function"].get("name") for tool in tools if isinstance(tool.get("function"), dict)]
    if not isinstance(name, str):
        text = (
            f'Invalid value for `tool_choice`: {choice}! Only named tools, "none", "auto" or "required" are '
        )
        raise bad(text + "supported.", "tool_choice")
    if name not in names:
        raise bad(
            "The tool specified in `tool_choice` does not match any of the specified `tools`", "tool_choice"
        )
    return name
