"""The generate route: what it is asked, what it says more of each id, and what happens where it is shut."""

from __future__ import annotations

import base64
import io
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.io.engines.scripted import Heard
from tests.io.engines.vllm.vllm_server import (
    PROMPT,
    completion_answer,
    events,
    generate_answer,
    mocked,
    refused,
    serving,
    several,
)
from tito_core import InputError
from tito_core.samples import RoutedExperts, WeightVersion
from tito_io.engines.protocol import (
    AuthenticationError,
    InvalidReplyError,
    Rendering,
    RequestError,
    Sampling,
    ServerError,
)
from tito_io.engines.replies.experts import npy_experts
from tito_io.engines.vllm import COMPLETIONS, GENERATE, VLLM, Notice
from tito_io.engines.vllm.requests import OWNED

pytestmark = pytest.mark.anyio

SHUT = refused(
    "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them.",
    403,
    "PermissionDeniedError",
)
CALL = '<tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call>'


def generating(answer: Any, **options: Any) -> VLLM:
    """Return an engine whose generate route answers this."""
    return mocked({GENERATE: answer}, route="generate", **options)[0]


async def test_ids_go_as_they_are_and_the_rest_in_its_place() -> None:
    engine, mock = mocked({GENERATE: generate_answer()}, route="generate")
    extra = {"top_p": 0.9, "cache_salt": "s", "priority": 3, "logit_bias": {"5": 1.0}}
    await engine.from_ids(PROMPT, Sampling(max_tokens=9, temperature=0.5, seed=1, stop_ids=(8,), extra=extra))
    sampling = {"max_tokens": 9, "temperature": 0.5, "seed": 1, "stop_token_ids": [8], "top_p": 0.9}
    assert mock.bodies(GENERATE) == [
        {
            "model": "m",
            "token_ids": list(PROMPT),
            "cache_salt": "s",
            "priority": 3,
            "return_token_ids": True,
            "output_mode": "tokens",
            "sampling_params": {
                **sampling,
                "skip_special_tokens": False,
                "logit_bias": {"5": 1.0},
                "logprobs": 0,
            },
        }
    ]


async def test_trap_06_a_limit_always_goes_along() -> None:
    engine, mock = mocked({GENERATE: generate_answer(), COMPLETIONS: completion_answer()}, route="generate")
    await engine.from_ids(PROMPT, Sampling())
    assert mock.bodies(GENERATE)[0]["sampling_params"]["max_tokens"] == 47


@pytest.mark.parametrize("name", ["response_format", "tempreature", "stop_tokens"])
async def test_a_key_that_the_route_would_ignore_is_refused(name: str) -> None:
    engine, mock = mocked({GENERATE: generate_answer()}, route="generate")
    with pytest.raises(InputError, match=name):
        await engine.from_ids(PROMPT, Sampling(extra={name: 1}))
    assert not mock.bodies(GENERATE)


@pytest.mark.parametrize("name", sorted(OWNED))
async def test_no_extra_key_may_part_ids_from_answers(name: str) -> None:
    with pytest.raises(InputError, match=name):
        await generating(generate_answer()).from_ids(PROMPT, Sampling(extra={name: 1}))


# Log-probabilities of either shape.


def older(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer as it was before 0.32."""
    for choice in answer["choices"]:
        entries = choice["logprobs"]["content"]
        choice["logprobs"] = {
            "content": [
                {"token": f"token_id:{one['token_id']}", "logprob": one["logprob"]} for one in entries
            ]
        }
        for name in ("stop_reason", "weight_versions", "routed_experts", "sampling_mask"):
            del choice[name]
    return {name: answer[name] for name in ("request_id", "choices", "usage", "prompt_token_ids")}


async def test_trap_04_both_shapes_of_log_probabilities_are_read() -> None:
    answer = generate_answer((72, 105, 2), logprobs=(-1.0, -2.0, -3.0))
    new = await generating(answer).from_ids(PROMPT, Sampling())
    old = await generating(older(generate_answer((72, 105, 2), logprobs=(-1.0, -2.0, -3.0)))).from_ids(
        PROMPT, Sampling()
    )
    assert new.logprobs == old.logprobs == (-1.0, -2.0, -3.0)
    assert new.completion_ids == old.completion_ids
    assert new.text == old.text == "Hi", "the end is no text"


@pytest.mark.parametrize("shape", ["new", "old"])
async def test_trap_04_log_probabilities_of_other_ids_are_refused(shape: str) -> None:
    answer = generate_answer((7, 8))
    answer["choices"][0]["logprobs"]["content"][1]["token_id"] = 9
    with pytest.raises(InvalidReplyError, match="belong to other ids"):
        await generating(older(answer) if shape == "old" else answer).from_ids(PROMPT, Sampling())


async def test_an_older_server_repeats_no_ids_and_counts_them() -> None:
    answer = older(generate_answer((7, 8)))
    del answer["prompt_token_ids"]
    assert (await generating(answer).from_ids(PROMPT, Sampling())).prompt_ids == PROMPT
    answer["usage"]["prompt_tokens"] = 2
    with pytest.raises(InvalidReplyError, match="2 counted prompt ids for 3"):
        await generating(answer).from_ids(PROMPT, Sampling())


# Texts.


async def test_a_message_is_parsed_from_ids_alone() -> None:
    answer = generate_answer((92, *map(ord, '{"name": "f", "arguments": {"a": 1}}'), 93, 2))
    reply = await generating(answer).from_ids(PROMPT, Sampling())
    assert reply.message is not None
    assert reply.message["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"a": 1}'}
    assert (reply.finish_reason, reply.text) == ("tool_calls", CALL)


@pytest.mark.parametrize("older_server", [False, True])
async def test_trap_09_a_stop_string_cuts_the_text_and_no_id(older_server: bool) -> None:
    """A server that decodes cuts it; the ids of one that does not are decoded and cut here."""
    ids = tuple(map(ord, "so STOP"))
    answer = (
        older(generate_answer(ids)) if older_server else generate_answer(ids, text="so ", stop_reason="ST")
    )
    engine, mock = mocked({GENERATE: answer}, route="generate")
    reply = await engine.from_ids(PROMPT, Sampling(stop=("ST",)))
    assert mock.bodies(GENERATE)[0]["output_mode"] == "text"
    assert (reply.completion_ids, reply.text) == (ids, "so ")
    assert reply.message == {"role": "assistant", "content": "so "}


async def test_trap_09_an_end_without_the_stop_string_is_an_end() -> None:
    answer = older(generate_answer((*map(ord, "so"), 2)))
    reply = await generating(answer).from_ids(PROMPT, Sampling(stop=("STOP",)))
    assert reply.text == "so"


async def test_a_turn_whose_text_cannot_be_had_is_not_lost() -> None:
    engine, _ = mocked(
        {GENERATE: generate_answer((7, 8, 2)), "/detokenize": refused("boom", 500)}, route="generate"
    )
    with pytest.raises(ServerError) as caught:
        await engine.from_ids(PROMPT, Sampling())
    assert caught.value.partial is not None
    assert caught.value.partial.completion_ids == (7, 8, 2)
    assert caught.value.partial.logprobs == (-0.5,) * 3


async def test_several_turns_have_messages_of_their_own() -> None:
    calls = generate_answer((92, *map(ord, '{"name": "f", "arguments": {}}'), 93, 2))
    reply = await generating(several(calls, calls, generate_answer((72, 2)))).from_ids(PROMPT, Sampling(n=3))
    messages = [one.message or {} for one in (reply, *reply.siblings)]
    keys = [call["id"] for message in messages for call in message.get("tool_calls", ())]
    assert len(set(keys)) == 2
    assert messages[2]["content"] == "H"


# What it says more.


async def test_weights_are_told() -> None:
    answer = generate_answer((7, 8, 9))
    spans = [{"version": "a", "start": 0, "end": 2}, {"version": "b", "start": 2, "end": 3}]
    answer["choices"][0]["weight_versions"] = spans
    reply = await generating(answer).from_ids(PROMPT, Sampling())
    assert reply.weight_versions == (
        WeightVersion(version="a", start=0, stop=2),
        WeightVersion(version="b", start=2, stop=3),
    )


@pytest.mark.parametrize(
    "spans",
    [
        [{"version": "a", "start": 0, "end": 2}],
        [{"version": "a", "start": 1, "end": 3}],
        [{"version": "a", "start": 0, "end": 2}, {"version": "a", "start": 1, "end": 3}],
        [{"version": 1, "start": 0, "end": 3}],
        ["a"],
    ],
)
async def test_weights_that_do_not_cover_the_ids_are_refused(spans: Any) -> None:
    answer = generate_answer((7, 8, 9))
    answer["choices"][0]["weight_versions"] = spans
    with pytest.raises(InvalidReplyError):
        await generating(answer).from_ids(PROMPT, Sampling())


def saved(dtype: str, shape: tuple[int, ...], data: bytes, order: bool = False, version: int = 1) -> str:
    """Return the base64 of a `.npy` file, written by the format's own description."""
    header = f"{{'descr': '{dtype}', 'fortran_order': {order}, 'shape': {shape}, }}"
    width = 2 if version == 1 else 4
    header += " " * (-(len(header) + 9 + width) % 64) + "\n"
    head = b"\x93NUMPY" + bytes((version, 0)) + len(header).to_bytes(width, "little")
    return base64.b64encode(head + header.encode() + data).decode()


def test_routing_of_records_is_refused() -> None:
    plain = base64.b64decode(saved("|u1", (1, 1, 1), b"a"))
    records = plain.replace(b"'|u1'", b"['a']")
    with pytest.raises(ValueError, match="its rows are records"):
        npy_experts(base64.b64encode(records).decode())


@pytest.mark.parametrize(
    ("dtype", "name", "size"), [("|u1", "uint8", 1), ("<u2", "uint16", 2), ("<i4", "int32", 4)]
)
@pytest.mark.parametrize("version", [1, 2])
async def test_routing_keeps_its_bytes_and_kind(dtype: str, name: str, size: int, version: int) -> None:
    data = bytes(range(4 * 2 * 3 * size))
    answer = generate_answer((7, 8))
    answer["choices"][0]["routed_experts"] = saved(dtype, (4, 2, 3), data, version=version)
    reply = await generating(answer).from_ids(PROMPT, Sampling())
    assert reply.routed_experts == RoutedExperts(data=data, dtype=name, shape=(4, 2, 3))
    streamed = await generating(events(answer)).from_ids(PROMPT, Sampling(), watch=Heard())
    assert streamed.routed_experts == reply.routed_experts


async def test_routing_may_begin_after_the_prompts_beginning() -> None:
    answer = generate_answer((7, 8))
    answer["choices"][0]["routed_experts"] = saved("|u1", (2, 1, 1), b"ab")
    reply = await generating(answer).from_ids(PROMPT, Sampling(extra={"routed_experts_prompt_start": 2}))
    assert reply.routed_experts is not None
    assert reply.routed_experts.start == 2


def test_numpy_writes_what_is_read_here() -> None:
    numpy = pytest.importorskip("numpy")
    rows = numpy.arange(24, dtype="uint16").reshape(4, 3, 2)
    file = io.BytesIO()
    numpy.save(file, rows)
    found = npy_experts(base64.b64encode(file.getvalue()).decode(), 5)
    assert (found.data, found.dtype, found.shape, found.start) == (rows.tobytes(), "uint16", (4, 3, 2), 5)


GOOD = saved("|u1", (2, 1, 3), b"abcdef")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("###", "not base64"),
        ("e\u0301", "not base64"),
        (base64.b64encode(b"PK\x03\x04zip").decode(), "not a .npy"),
        (base64.b64encode(base64.b64decode(GOOD)[:9]).decode(), "ends in its header"),
        (base64.b64encode(base64.b64decode(GOOD)[:40]).decode(), "header is longer"),
        (base64.b64encode(base64.b64decode(GOOD)[:-1]).decode(), "5 bytes do not make 2x1x3"),
        (saved("|u1", (2, 1, 3), b"abcdefg"), "7 bytes do not make 2x1x3"),
        (saved("<f4", (1, 1, 1), b"abcd"), "its numbers are '<f4'"),
        (saved(">u2", (1, 1, 1), b"ab"), "its numbers are '>u2'"),
        (saved("|u1", (6,), b"abcdef"), "its shape is"),
        (saved("|u1", (2, 1, 3), b"abcdef", order=True), "C order"),
        (saved("|O", (1, 1, 1), b"a"), "its numbers are"),
        (GOOD.replace(GOOD[20:24], "AAAA"), "header"),
    ],
)
async def test_routing_that_is_no_such_file_is_refused(text: str, told: str) -> None:
    answer = generate_answer((7, 8))
    answer["choices"][0]["routed_experts"] = text
    with pytest.raises(InvalidReplyError, match=told):
        await generating(answer).from_ids(PROMPT, Sampling())


async def test_routing_of_more_positions_than_there_are_is_refused() -> None:
    answer = generate_answer((7, 8))
    answer["choices"][0]["routed_experts"] = saved("|u1", (6, 1, 1), b"abcdef")
    with pytest.raises(InvalidReplyError, match="6 rows from position 0 for 5 ids"):
        await generating(answer).from_ids(PROMPT, Sampling())


@pytest.mark.whole
@given(st.binary(max_size=200))
def test_no_file_is_an_error_of_another_kind(content: bytes) -> None:
    for file in (content, b"\x93NUMPY\x01\x00" + content, base64.b64decode(GOOD)[:30] + content):
        try:
            found = npy_experts(base64.b64encode(file).decode())
        except ValueError:
            continue
        assert len(found.shape) == 3


# A route that is shut.


@pytest.mark.parametrize("watched", [False, True])
@pytest.mark.parametrize(
    "answer", [SHUT, httpx2.Response(404, json={"detail": "Not Found"}), httpx2.Response(405, json={})]
)
async def test_trap_05_a_route_that_is_shut_is_left_for_another_and_told(answer: Any, watched: bool) -> None:
    engine, mock = mocked({GENERATE: answer, COMPLETIONS: serving(completion_answer())}, route="generate")
    for turns in (1, 2):
        reply = await engine.from_ids(PROMPT, Sampling(), watch=Heard() if watched else None)
        assert reply.completion_ids == (7, 8)
        assert reply.notices == (Notice.FELL_BACK,)
        assert engine.notices == {Notice.FELL_BACK: turns}
    assert len(mock.bodies(GENERATE)) == 1, "asked once, and then known"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refused("no", 403, "PermissionDeniedError"), AuthenticationError),
        (httpx2.Response(401, json={"error": "Unauthorized"}), AuthenticationError),
        (refused("The model `m` does not exist.", 404, "NotFoundError", "model"), RequestError),
        (httpx2.Response(429, json={"error": "busy"}), RequestError),
        (refused("boom", 500, "InternalServerError"), ServerError),
        (httpx2.Response(503, text=""), ServerError),
    ],
)
async def test_trap_05_no_outage_passes_for_a_shut_route(answer: Any, kind: type[Exception]) -> None:
    engine, mock = mocked({GENERATE: answer, COMPLETIONS: completion_answer()}, route="generate")
    with pytest.raises(kind):
        await engine.from_ids(PROMPT, Sampling())
    assert not mock.bodies(COMPLETIONS)
    assert not engine.notices


@pytest.mark.parametrize(
    ("version", "generate", "path"),
    [
        ("0.32.0", generate_answer(), GENERATE),
        ("0.32.0", SHUT, COMPLETIONS),
        ("0.10.2", generate_answer(), COMPLETIONS),
        ("dev", generate_answer(), GENERATE),
    ],
)
async def test_the_route_can_be_left_to_the_server(version: str, generate: Any, path: str) -> None:
    known = {GENERATE: generate, COMPLETIONS: completion_answer(), "/version": {"version": version}}
    engine, mock = mocked(known, route="auto")
    for _ in range(2):
        reply = await engine.from_ids(PROMPT, Sampling(), Rendering())
        assert reply.notices == ()
    assert mock.asked[-1][0] in (path, "/detokenize")
    assert len(mock.bodies("/version")) == 1
