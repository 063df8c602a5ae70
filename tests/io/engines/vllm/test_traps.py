"""Traps that servers set, one test or more for each; the numbers are those of the project's list of them.

Many others no engine's adapter may fall into: `tests/io/engines/test_laws.py` sets them to all. Those of
streams stand in `test_streams.py`, of the generate route in `test_generate.py`, of harmony in
`test_harmony.py`.
"""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.io.engines.vllm.vllm_server import (
    PROMPT,
    chat_answer,
    completion_answer,
    generate_answer,
    mocked,
    refused,
    several,
)
from tito_core import InputError, Reason
from tito_core.seams.profile import Profile
from tito_io.client.conversation import Conversation
from tito_io.client.turn import Route
from tito_io.engines.protocol import (
    EngineAnswer,
    InvalidReplyError,
    OverlongError,
    Rendering,
    RequestError,
    Sampling,
    UnsupportedError,
)
from tito_io.engines.replies.invariants import Check
from tito_io.engines.replies.shapes import COMPLETED
from tito_io.engines.turn_request import Question
from tito_io.engines.vllm import CHAT, COMPLETIONS, GENERATE, TOKENS
from tito_io.engines.vllm.replies import read

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "hello"}]
PATHS = {"completions": COMPLETIONS, "chat": CHAT, "generate": GENERATE, "tokens": TOKENS}
ROUTES: Any = tuple(PATHS)


def answer_of(route: str, ids: tuple[int, ...] = (7, 8), **parts: Any) -> dict[str, Any]:
    """Return the route's answer."""
    if route == "completions":
        return completion_answer(ids, **parts)
    return generate_answer(ids, **parts) if route == "generate" else chat_answer(ids, **parts)


def engine_of(route: Any, answer: Any) -> Any:
    """Return an engine that gets this answer, and its mock."""
    return mocked({PATHS[route]: answer}, route=route)


async def test_trap_10_a_stop_string_inside_a_thought_ends_no_sentence() -> None:
    answer = completion_answer((90, 65, 66), text="<think>A", stop_reason="B")
    reply = await engine_of("completions", answer)[0].from_ids(PROMPT, Sampling(stop=("B",)))
    assert reply.message == {"role": "assistant", "content": "", "reasoning": "A"}
    assert (reply.stop_reason, len(reply.completion_ids)) == ("B", 3)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("echo", True),  # 12
        ("truncate_prompt_tokens", -1),  # 13
        ("include_reasoning", False),  # 17
        ("top_logprobs", 5),  # 19
        ("logprobs", 5),
        ("features", {"mm_hashes": {}}),  # 24
        ("content_parts", [{"type": "image_url", "url": "data:"}]),
    ],
)
async def test_traps_12_13_17_19_24_what_would_part_ids_from_answers_is_not_sent(
    route: str, name: str, value: Any
) -> None:
    engine, mock = engine_of(route, answer_of(route))
    with pytest.raises(InputError, match=name):
        await engine.from_ids(PROMPT, Sampling(extra={name: value}))
    assert not mock.bodies(PATHS[route])


@pytest.mark.parametrize("route", ROUTES)
async def test_trap_15_a_full_context_that_looks_like_a_wrong_setting_is_overlong(route: str) -> None:
    told = refused(
        "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)", param="max_tokens"
    )
    with pytest.raises(OverlongError):
        await engine_of(route, told)[0].from_ids(PROMPT, Sampling())


@pytest.mark.parametrize("route", ["completions", "generate"])
async def test_trap_18_calls_are_told_whatever_the_server_says_of_the_end(route: str) -> None:
    """What takes ids back to messages there rejects an empty turn, and says `stop` of calls."""
    body = '{"name": "f", "arguments": {}}'
    ids, text = (92, *map(ord, body), 93, 2), f"<tool_call>{body}</tool_call>"
    parts = {"text": text} if route == "completions" else {}
    reply = await engine_of(route, answer_of(route, ids, **parts))[0].from_ids(PROMPT, Sampling())
    assert reply.finish_reason == "tool_calls"
    nothing = answer_of(route, (), finish_reason="abort", **({"text": ""} if parts else {}))
    reply = await engine_of(route, nothing)[0].from_ids(PROMPT, Sampling())
    assert reply.message == {"role": "assistant", "content": ""}


@pytest.mark.parametrize("route", ROUTES)
async def test_trap_19_as_many_log_probabilities_are_asked_for_every_time(route: str) -> None:
    engine, mock = engine_of(route, answer_of(route))
    for sampling in (Sampling(), Sampling(temperature=0.5, seed=1, extra={"top_p": 0.5})):
        await engine.from_ids(PROMPT, sampling)
    bodies = [body.get("sampling_params", body) for body in mock.bodies(PATHS[route])]
    assert {body["logprobs"] for body in bodies} == {True if PATHS[route] in (CHAT, TOKENS) else 0}
    assert not any("top_logprobs" in body for body in bodies)


@pytest.mark.parametrize(("logprob", "mode"), [(0.0, "processed"), (-8.3, "raw"), (-9999.0, "raw")])
async def test_trap_21_which_log_probabilities_a_server_reports_is_found_out(
    logprob: float, mode: str
) -> None:
    answer = completion_answer((0,), prompt=(0,), logprobs=(logprob,), finish_reason="length")
    engine, mock = engine_of("completions", answer)
    assert await engine.logprobs_mode() == mode
    assert mock.bodies(COMPLETIONS)[0]["allowed_token_ids"] == [0]


@pytest.mark.parametrize(
    "answer", [httpx2.Response(404, json={"detail": "Not Found"}), httpx2.Response(405, json={})]
)
async def test_trap_23_a_route_that_others_add_is_told_where_it_is_not(answer: Any) -> None:
    engine, mock = mocked({TOKENS: answer}, route="tokens")
    with pytest.raises(UnsupportedError, match="no such route, which prime-rl adds to vLLM"):
        await engine.from_ids(PROMPT, Sampling())
    assert [path for path, _ in mock.asked][-1] == TOKENS, "and no other is tried"


async def test_trap_23_a_wrong_model_is_no_missing_route() -> None:
    engine, _ = mocked(
        {TOKENS: refused("The model `m` does not exist.", 404, "NotFoundError", "model")}, route="tokens"
    )
    with pytest.raises(RequestError, match="does not exist"):
        await engine.from_ids(PROMPT, Sampling())


async def test_trap_24_media_never_go_by_ids() -> None:
    """Neither where the image is new, nor where an old one is in the history."""
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}
    engine, mock = mocked({CHAT: chat_answer()})
    talk = Conversation(engine=engine, sampling=Sampling(max_tokens=5))
    talk.known.profile = Profile(suffix=(2,))
    prompts: list[list[Any]] = [[image]]
    for _ in range(2):
        turn = await talk.turn(prompts[-1])
        assert turn.route is Route.MITO
        assert turn.refusal is None or turn.refusal.reason is Reason.MULTIMODAL
        prompts.append([*prompts[-1], *turn.step.completion, *HELLO])
    assert turn.refusal is not None, "the second turn had a step to continue"
    sent = [path for path, _ in mock.asked if path in PATHS.values()]
    assert sent == [CHAT, CHAT]
    assert mock.bodies(CHAT)[0]["messages"] == [image]


# All engines.


async def test_trap_39_every_turns_prompt_is_compared() -> None:
    answer = several(completion_answer((7,)), completion_answer((8,), prompt=(4, 5, 7)))
    with pytest.raises(InvalidReplyError, match="the engine saw other prompt ids"):
        await engine_of("completions", answer)[0].from_ids(PROMPT, Sampling(n=2))


def test_trap_39_turns_that_name_other_prompts_than_each_other_are_refused() -> None:
    body = several(completion_answer((7,)), completion_answer((8,), prompt=(4, 5, 7)))
    with pytest.raises(InvalidReplyError, match="different prompts"):
        read(Check("here", EngineAnswer(200, body)), body, COMPLETED, Question(Sampling(n=2)))


@pytest.mark.parametrize("reason", [[8], {"id": 8}, True, 0.5])
async def test_what_ended_a_turn_is_an_id_or_a_string(reason: object) -> None:
    answer = completion_answer(stop_reason=reason)
    with pytest.raises(InvalidReplyError, match="neither an id nor a string"):
        await engine_of("completions", answer)[0].from_ids(PROMPT, Sampling())


async def test_trap_39_several_turns_after_messages() -> None:
    engine, mock = mocked({CHAT: several(chat_answer((7,)), chat_answer((8, 9)))})
    reply = await engine.from_messages(HELLO, Rendering(), Sampling(n=2))
    assert mock.bodies(CHAT)[0]["n"] == 2
    assert [one.completion_ids for one in (reply, *reply.siblings)] == [(7,), (8, 9)]
