"""What SGLang answers, read or refused. Traps are numbered as in the list of known ones."""

from __future__ import annotations

import base64
import struct
from collections.abc import Sequence
from typing import Any

import httpx2
import pytest

from tests.io.engines.sglang.sglang_server import (
    PROMPT,
    chatted,
    completed,
    generated,
    mocked,
    refused,
    stream,
    triples,
)
from tito_core import InputError
from tito_core.samples import WeightVersion
from tito_io.engines.protocol import (
    AbortedError,
    EmptyReplyError,
    InvalidReplyError,
    OverlongError,
    Rendering,
    Reply,
    Sampling,
    ServerError,
    UnsupportedError,
)
from tito_io.engines.replies.experts import Routing
from tito_io.engines.sglang import ROUTES
from tito_io.engines.sglang.engine import SEED_IGNORED
from tito_io.engines.sglang.requests import CHAT, COMPLETIONS, GENERATE

pytestmark = pytest.mark.anyio

HELLO = [{"role": "user", "content": "hello"}]
ANSWERS: dict[str, Any] = {GENERATE: generated(), CHAT: chatted(), COMPLETIONS: completed()}


async def by_ids(answer: Any, **options: Any) -> Reply:
    """Return what an answer of `/generate` is read as."""
    engine, _ = mocked({GENERATE: answer}, **options)
    return await engine.from_ids(PROMPT, Sampling())


async def by_messages(answer: Any, **sampling: Any) -> Reply:
    """Return what an answer of the chat route is read as."""
    engine, _ = mocked({CHAT: answer})
    return await engine.from_messages(HELLO, Rendering(), Sampling(**sampling))


@pytest.mark.parametrize("route", ROUTES)
async def test_every_route_says_which_weights_sampled(route: Any) -> None:
    engine, _ = mocked(ANSWERS, route=route)
    reply = await engine.from_ids(PROMPT, Sampling())
    assert reply.weight_versions == (WeightVersion(version="default", start=0, stop=2),)


async def test_cached_ids_are_counted() -> None:
    assert (await by_ids(generated())).usage.cached_tokens == 2
    said = await by_messages(
        chatted(meta_info={"output_token_logprobs": triples((7, 8)), "cached_tokens": 1})
    )
    assert said.usage.cached_tokens == 1


# Ids.


@pytest.mark.parametrize("name", ["response_token_ids", "token_ids", "completion_token_ids"])
async def test_trap_25_a_chats_ids_come_under_any_name_sglang(name: str) -> None:
    answer = chatted()
    choice = answer["choices"][0]
    choice[name] = choice.pop("response_token_ids")
    assert (await by_messages(answer)).completion_ids == (7, 8)


async def test_trap_25_or_beside_the_choices_or_with_the_log_probabilities_sglang() -> None:
    bare = chatted(response_token_ids=..., prompt_token_ids=...)
    extra = {**bare, "sglext": {"input_ids": list(PROMPT), "output_ids": [[7, 8]]}}
    assert (await by_messages(extra)).completion_ids == (7, 8)
    old = chatted(
        response_token_ids=..., logprobs=None, meta_info={"output_token_logprobs": triples((7, 8), -0.25)}
    )
    reply = await by_messages(old)
    assert (reply.completion_ids, reply.logprobs) == ((7, 8), (-0.25, -0.25))


async def test_names_that_disagree_are_no_ids() -> None:
    with pytest.raises(InvalidReplyError, match="different ids for one turn"):
        await by_messages(chatted(token_ids=[7, 9]))
    with pytest.raises(InvalidReplyError, match="ids are missing"):
        await by_messages(chatted(response_token_ids=...))


@pytest.mark.parametrize(
    ("info", "told"),
    [
        ({"output_token_logprobs": triples((7, 9))}, "belong to other ids"),
        ({"output_token_logprobs": [[-0.5, 7], -0.5]}, "not a log-probability with its id"),
        ({"weight_versions": [{"version": "a", "start": 0, "end": 1}]}, "1 ids with a weight version for 2"),
        ({"weight_versions": [{"version": "a", "start": 1, "end": 2}]}, "go from 1 to 2"),
    ],
)
async def test_what_does_not_hold_together_is_refused(info: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidReplyError, match=told):
        await by_ids(generated(**info))


async def test_trap_32_a_prompt_that_was_cut_is_noticed_sglang() -> None:
    with pytest.raises(InvalidReplyError, match="2 counted prompt ids for 3"):
        await by_ids(generated(prompt=None, prompt_tokens=2))
    assert (await by_ids(generated(prompt=None))).prompt_ids == PROMPT, "older servers only count"


# Several turns.


async def test_an_answer_without_a_turn_is_empty() -> None:
    for choices in (list[Any](), None):
        with pytest.raises(EmptyReplyError):
            await by_messages({**chatted(), "choices": choices})
    with pytest.raises(EmptyReplyError):
        await by_ids([])


@pytest.mark.parametrize("first", [PROMPT, (4, 5, 7)])
async def test_several_turns_have_one_prompt(first: Sequence[int]) -> None:
    """The counts agree, and no ids were sent that one of the prompts could be compared with."""
    one, other = chatted(prompt=first), chatted((9,), index=1, prompt=(4, 5, 6))
    usage = {"prompt_tokens": 3, "completion_tokens": 3, "prompt_tokens_details": None}
    body = {**one, "choices": [*one["choices"], *other["choices"]], "usage": usage}
    if first == PROMPT:
        reply = await by_messages(body, n=2)
        assert [tuple(turn.prompt_ids) for turn in (reply, *reply.siblings)] == [PROMPT, PROMPT]
        return
    with pytest.raises(InvalidReplyError, match="different prompts"):
        await by_messages(body, n=2)


async def test_several_turns_have_prompts_of_one_length() -> None:
    engine, _ = mocked({GENERATE: [generated(prompt=None), generated(prompt=None, prompt_tokens=4)]})
    with pytest.raises(InvalidReplyError, match="prompts of different lengths"):
        await engine.from_ids(PROMPT, Sampling(n=2))


# What stands beside.


async def test_a_seed_that_changes_nothing_is_said_so() -> None:
    info = {"version": "0.5.23", "enable_deterministic_inference": False}
    engine, _ = mocked({"/server_info": info, GENERATE: generated()})
    assert (await engine.from_ids(PROMPT, Sampling(seed=1))).notices == (SEED_IGNORED,)
    assert (await engine.from_ids(PROMPT, Sampling())).notices == ()
    assert (await mocked(ANSWERS)[0].from_ids(PROMPT, Sampling(seed=1))).notices == ()


def routed(rows: int) -> str:
    """Return routed experts of two layers and three experts each, as they are sent."""
    return base64.b64encode(struct.pack(f"<{rows * 6}i", *range(rows * 6))).decode()


async def test_routed_experts_have_the_shape_that_the_caller_knows() -> None:
    answer = generated(routed_experts=routed(4))
    shaped = (await by_ids(answer, routing=Routing(layers=2, experts=3))).routed_experts
    flat = (await by_ids(answer)).routed_experts
    assert shaped is not None
    assert flat is not None
    assert (shaped.shape, shaped.dtype, flat.shape) == ((4, 2, 3), "int32", (4, 6))
    assert struct.unpack("<24i", shaped.data) == tuple(range(24))


@pytest.mark.parametrize("routing", [None, Routing(layers=2, experts=3)])
async def test_trap_31_routing_past_the_stop_is_refused_sglang(routing: Routing | None) -> None:
    told = "which 4 positions from 0 on do not make"
    if routing is not None:
        with pytest.raises(InvalidReplyError, match=told):
            await by_ids(generated(routed_experts=routed(6)), routing=routing)
    with pytest.raises(InvalidReplyError, match=told):
        await by_ids(generated(routed_experts=base64.b64encode(b"x" * 7).decode()), routing=routing)


async def test_routing_may_begin_later() -> None:
    engine, mock = mocked({GENERATE: generated(routed_experts=routed(2))})
    extra = {"return_routed_experts": True, "routed_experts_start_len": 2}
    reply = await engine.from_ids(PROMPT, Sampling(extra=extra))
    assert reply.routed_experts is not None
    assert (reply.routed_experts.start, reply.routed_experts.shape) == (2, (2, 6))
    assert extra.items() <= mock.bodies(GENERATE)[0].items()


# Aborts.


async def test_an_abort_in_the_queue_has_nothing_to_carry() -> None:
    finish = {"type": "abort", "message": "Abort in waiting queue"}
    answer = generated((), finish=finish, text="", prompt_tokens=..., output_token_logprobs=...)
    with pytest.raises(AbortedError) as caught:
        await by_ids(answer)
    assert caught.value.partial is None


async def test_a_siblings_abort_is_the_requests() -> None:
    engine, _ = mocked({GENERATE: [generated(), generated((9,), finish={"type": "abort", "message": "A"})]})
    with pytest.raises(AbortedError) as caught:
        await engine.from_ids(PROMPT, Sampling(n=2))
    assert caught.value.partial is not None
    assert [one.completion_ids for one in (caught.value.partial, *caught.value.partial.siblings)] == [
        (7, 8),
        (9,),
    ]


async def test_a_refusal_in_a_turns_clothes_is_no_turn() -> None:
    """What the scheduler refuses goes through the engine as one id, and comes back as a turn after it."""
    said = "Input length (49 tokens) exceeds the maximum allowed length (44 tokens). Use a shorter input."
    finish = {"type": "abort", "message": said, "status_code": 400, "err_type": "BadRequestError"}
    bogus = generated((0,), finish=finish, prompt=None, prompt_tokens=1, text="!")
    engine, _ = mocked({GENERATE: stream([bogus])})
    told = []

    async def watch(delta: Any) -> None:
        told.append(delta)

    with pytest.raises(OverlongError) as caught:
        await engine.from_ids(PROMPT, Sampling(), watch=watch)
    assert (told, caught.value.partial) == ([], None)
    with pytest.raises(ServerError):
        await by_ids(generated(finish={**finish, "message": "no memory", "status_code": 500}))


# What is not asked.


async def test_an_old_server_streams_no_chat() -> None:
    async def watch(_: Any) -> None:
        raise AssertionError

    for info in ({"version": "0.5.19"}, {"version": "dev"}, httpx2.Response(404, json={"detail": "no"})):
        engine, mock = mocked({"/server_info": info, CHAT: chatted()}, route="chat")
        with pytest.raises(UnsupportedError, match="Nothing was sent"):
            await engine.from_messages(HELLO, Rendering(), Sampling(), watch=watch)
        with pytest.raises(UnsupportedError, match=r"0\.5\.20 or later"):
            await engine.from_ids(PROMPT, Sampling(), watch=watch)
        assert mock.bodies(CHAT) == []


async def test_ids_that_would_end_the_server_are_not_sent() -> None:
    engine, mock = mocked(ANSWERS)
    for wrong in ([5, 1000], [-1], []):
        with pytest.raises(InputError):
            await engine.from_ids(wrong, Sampling())
    silent, asked = mocked({**ANSWERS, "probe": httpx2.Response(404, json={"detail": "Not Found"})})
    with pytest.raises(InputError, match="pass SGLang"):
        await silent.from_ids(PROMPT, Sampling())
    assert (await silent.limits()).vocab_size is None
    assert mock.bodies(GENERATE) + asked.bodies(GENERATE) == []
    told, _ = mocked({**ANSWERS, "probe": generated()}, vocab_size=10)
    assert (await told.from_ids(PROMPT, Sampling())).completion_ids == (7, 8)


async def test_an_outage_is_no_answer_about_the_vocabulary() -> None:
    engine, _ = mocked({"probe": httpx2.Response(503, text="loading")})
    with pytest.raises(ServerError):
        await engine.from_ids(PROMPT, Sampling())


async def test_what_is_overlong_is_not_sent() -> None:
    engine, mock = mocked(ANSWERS)
    for length in (44, 49, 50, 99):
        with pytest.raises(OverlongError, match="takes 43"):
            await engine.from_ids([1] * length, Sampling(max_tokens=1))
    assert mock.bodies(GENERATE) == []


async def test_a_turn_is_asked_for_no_more_than_fits() -> None:
    engine, mock = mocked({GENERATE: generated()})
    await engine.from_ids(PROMPT, Sampling(max_tokens=9))
    await engine.from_ids(PROMPT, Sampling(max_tokens=99))
    await engine.from_ids(PROMPT, Sampling())
    sizes = [body["sampling_params"]["max_new_tokens"] for body in mock.bodies(GENERATE)]
    assert sizes == [9, 47, 47]


async def test_a_chat_is_asked_for_less_where_it_would_not_fit() -> None:
    told = (
        "Requested token count exceeds the model's maximum context length of 50 tokens. You requested a "
        "total of 69 tokens: 30 tokens from the input messages and 39 tokens for the completion."
    )

    engine, mock = mocked({CHAT: lambda body: chatted() if body["max_tokens"] == 20 else refused(told)})
    reply = await engine.from_messages(HELLO, Rendering(), Sampling(max_tokens=39))
    assert reply.completion_ids == (7, 8)
    assert [body["max_tokens"] for body in mock.bodies(CHAT)] == [39, 20]


@pytest.mark.parametrize("name", ["nope", "m:", ":m", "a:b"])
async def test_a_name_that_the_server_does_not_list_is_not_asked_for(name: str) -> None:
    engine, mock = mocked(ANSWERS, model=name)
    with pytest.raises(InputError, match="the server has m"):
        await engine.from_ids(PROMPT, Sampling())
    assert mock.bodies(GENERATE) == []


async def test_an_adapter_is_asked_for_by_the_name_that_selects_it() -> None:
    cards = [
        {"id": "m", "parent": None, "max_model_len": 50},
        {"id": "lora", "parent": "m", "max_model_len": None},
    ]
    for name in ("lora", "m:lora"):
        answers = {**ANSWERS, "/v1/models": {"data": cards}}
        engine, mock = mocked(answers, model=name)
        await engine.from_ids(PROMPT, Sampling())
        assert mock.bodies(GENERATE)[0]["lora_path"] == "lora"
        await engine.from_messages(HELLO, Rendering(), Sampling())
        assert mock.bodies(CHAT)[0]["model"] == "m:lora"


async def test_extras_go_where_the_route_has_them() -> None:
    extra = {"top_p": 0.5, "extra_key": "k"}
    engine, mock = mocked(ANSWERS)
    await engine.from_ids(PROMPT, Sampling(extra=extra))
    (body,) = mock.bodies(GENERATE)
    assert (body["sampling_params"]["top_p"], body["extra_key"]) == (0.5, "k")
    assert "extra_key" not in body["sampling_params"]
    for wrong in ("rid", "input_ids", "return_logprob", "max_new_tokens", "skip_special_tokens", "stream"):
        with pytest.raises(InputError, match="cannot be passed here"):
            await engine.from_ids(PROMPT, Sampling(extra={wrong: 1}))


async def test_a_route_that_does_not_exist_is_no_route() -> None:
    with pytest.raises(InputError, match="one of generate, chat, completions"):
        mocked(route="tokens")


async def test_trap_33_special_tokens_are_asked_for_sglang() -> None:
    """A tag that is spelled beside one that was sampled: only the decoded ids between tell which is which."""
    text = '<tool_call><tool_call>{"name": "f", "arguments": {}}</tool_call>'
    spelled = map(ord, text[len("<tool_call>") : -len("</tool_call>")])
    ids = (92, *spelled, 93)
    engine, mock = mocked({GENERATE: generated(ids, text=text)})
    await engine.from_ids(PROMPT, Sampling())
    assert mock.bodies("/detokenize")
    assert all(body["skip_special_tokens"] is False for body in mock.bodies("/detokenize"))
    assert mock.bodies(GENERATE)[0]["sampling_params"]["skip_special_tokens"] is False
