"""A client's switch for reasoning reaches the variable of the chat template, or the answer says otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from tests.io.serve.gateway import CHAT, HELLO, Scripted, Talk, talking, user
from tito_io.embedded import family
from tito_io.families.family import Family
from tito_io.families.folder import Source
from tito_io.serve.gateway import GatewayOptions

pytestmark = pytest.mark.anyio
TURN = "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
LOOP = "{% for m in messages %}" + TURN + "{% endfor %}<|im_start|>assistant\n"
KIMI = LOOP + "{{ '<think></think>' if thinking is defined and thinking is false }}"
OFF = {"thinking": {"type": "disabled"}}
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat, Qwen's name": (CHAT, {"enable_thinking": False}),
    "chat, an argument": (CHAT, {"chat_template_kwargs": {"enable_thinking": False}}),
    "chat, OpenAI's effort": (CHAT, {"reasoning_effort": "none"}),
    "Messages": ("/v1/messages", {**OFF, "model": "m", "max_tokens": 9}),
    "Responses": ("/v1/responses", {"reasoning": {"effort": "none"}}),
    "Google's": (
        "/v1/models/m:generateContent",
        {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}},
    ),
}
"""Ways to switch reasoning off."""


def reading(template: str) -> Family:
    return family().with_templates({"default": Source(template, "chat_template.jinja")})


async def post(talk: Talk, path: str, body: dict[str, Any]) -> Any:
    prompt = {
        "/v1/responses": {"input": HELLO},
        "/v1/models/m:generateContent": {"contents": [{"parts": [{"text": "hi"}]}]},
    }
    answer = await talk.post({**prompt.get(path, {"messages": HELLO}), **body}, path)
    assert answer.status_code == 200, answer.text
    return answer


@pytest.mark.parametrize("way", OTHERS)
async def test_each_way_to_switch_reasoning_off_reaches_the_variable_that_is_read(way: str) -> None:
    async with talking(Scripted(), family=reading(KIMI)) as talk:
        answer = await post(talk, *OTHERS[way])
        (rendering,) = talk.engine.renderings
    assert rendering.template_args == {"thinking": False}
    assert "x-tito-unread" not in answer.headers


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_names_wishes_of_which_the_template_reads_nothing(stream: bool) -> None:
    async with talking(Scripted(), family=reading(LOOP)) as talk:
        body = {**OFF, "reasoning_effort": "low", "stream": stream}
        answer = await post(talk, CHAT, body)
        counted = talk.metrics
    assert answer.headers["x-tito-unread"] == "reasoning_effort, thinking"
    assert 'field="thinking"' in counted or 'name="thinking"' in counted


async def test_a_strict_gateway_refuses_a_wish_of_which_the_template_reads_nothing() -> None:
    async with talking(Scripted(), family=reading(LOOP), choices=GatewayOptions(strict=True)) as talk:
        answer = await talk.post({"messages": HELLO, **OFF})
    assert answer.status_code == 400
    assert "thinking: is no variable of the chat template" in answer.json()["error"]["message"]


@pytest.mark.parametrize(("template", "refusal"), [(KIMI, "RENDERED_DIFFERENTLY"), (LOOP, None)])
async def test_only_a_switch_that_is_read_renders_the_next_prompt_differently(
    template: str, refusal: str | None
) -> None:
    async with talking(Scripted(), family=reading(template)) as talk:
        said = await talk.said(HELLO)
        await talk.said([*HELLO, said, user()], **OFF)
        commits = await talk.commits()
    assert commits[1].origin.refusal == refusal


async def test_an_engine_whose_template_is_not_known_gets_all_names() -> None:
    async with talking(Scripted()) as talk:
        answer = await post(talk, CHAT, OFF)
        (rendering,) = talk.engine.renderings
    assert rendering.template_args == {
        "enable_thinking": False,
        "thinking": False,
        "thinking_mode": "disabled",
    }
    assert "x-tito-unread" not in answer.headers
