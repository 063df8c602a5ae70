"""Images beside ids, against answers that were recorded from a real vLLM; traps by the numbers of their list.

The traps: 1 a sampled placeholder, 2 one that a text spells, 3 expanded ids, 4 one spelled in plain ids, 5
other counts, 6 two caches that differ, 7 sparse images, 8 and 12 keys that servers believe, 9 the order, 10
what ends the engine, 11 wrong requests. Trap 8 is in `tests/io/client/test_images.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import httpx2
import pytest

from tests.io.engines.recorded_images import EXCHANGES, GEMMA_PAD, PAD, SMOL_PAD, media_of, medium
from tests.io.engines.vllm.vllm_server import Mock, generate_answer, mocked, refused
from tito_core import InputError, Reason, Refusal, TemplateRefused
from tito_core.media.first_prompt import first_prompt
from tito_core.media.ranges import MediaRange, Placeholders
from tito_core.media.wider_ranges import ranges_seen
from tito_io.engines.media import MediaUnsupportedError, check_seen
from tito_io.engines.protocol import (
    Delta,
    EngineAnswer,
    InvalidReplyError,
    OverlongError,
    PromptMedium,
    Rendering,
    RequestError,
    Sampling,
    ServerError,
)
from tito_io.engines.registry import embedded
from tito_io.engines.replies.invariants import Check
from tito_io.engines.vllm import GENERATE, VLLM, Notice
from tito_io.engines.vllm.routes import RENDER

pytestmark = pytest.mark.anyio
LARGE = {"id": "m", "object": "model", "owned_by": "vllm", "root": "m", "parent": None, "max_model_len": 2048}
CHECK = Check("POST http://mock", EngineAnswer(200, {}))


def answered(name: str) -> httpx2.Response:
    """Return a recorded answer."""
    exchange = EXCHANGES[name]
    if isinstance(exchange["response"], str):
        kind = {"content-type": "text/event-stream; charset=utf-8"}
        # It was recorded without `include_usage`, which adds this chunk.
        counts = b'data: {"choices": [], "usage": {"prompt_tokens": 23, "completion_tokens": 6}}\n\n'
        before, _, after = exchange["response"].encode().rpartition(b"data: [DONE]")
        content = before + counts + b"data: [DONE]" + after
        return httpx2.Response(exchange["status"], content=content, headers=kind)
    return httpx2.Response(exchange["status"], json=exchange["response"])


def server(*names: str | httpx2.Response, **options: Any) -> tuple[VLLM, Mock]:
    """Return an engine whose server answers as was recorded, one exchange after the other, and its mock."""
    answers: Iterator[Any] = iter([answered(one) if isinstance(one, str) else one for one in names])
    found = {GENERATE: lambda *_: next(answers), "/v1/models": {"object": "list", "data": [LARGE]}}
    return mocked(found, **{"route": "generate", **options})


async def test_an_image_goes_as_one_placeholder_and_comes_back_expanded() -> None:
    ids, media = media_of("generate_content_parts_collapsed")
    engine, mock = server("generate_content_parts_collapsed")
    reply = await engine.from_ids_with_media(ids, media, Sampling(max_tokens=6))
    (body,) = mock.bodies(GENERATE)
    assert body["token_ids"] == ids
    assert body["content_parts"] == EXCHANGES["generate_content_parts_collapsed"]["request"]["content_parts"]
    assert body["return_token_ids"] is True
    assert "features" not in body
    assert reply.prompt_ids == (*ids[:11], *[PAD] * 4, *ids[12:])
    assert reply.media_ranges == ((11, 4),)
    assert reply.completion_ids == (1325, 1961, 1133, 3711, 476, 3711)
    assert None not in (reply.logprobs or (None,))
    assert reply.notices == (Notice.MEDIA_SENT,)


async def test_bytes_go_once_and_keys_alone_afterwards() -> None:
    """Five turns: an image, a text, two images in one turn, one in a tool result, the first image again."""
    names = [f"qwen3_turn_{number}_generate_content_parts" for number in range(1, 6)]
    engine, mock = server(*names)
    for name in names:
        reply = await engine.from_ids_with_media(*media_of(name), Sampling(max_tokens=6))
        assert reply.media_ranges is not None
        assert len(reply.media_ranges) == len(EXCHANGES[name]["request"]["content_parts"])
    sent = [body["content_parts"] for body in mock.bodies(GENERATE)]
    assert sent == [EXCHANGES[name]["request"]["content_parts"] for name in names]
    assert engine.notices == {Notice.MEDIA_SENT: 4, Notice.MEDIA_LEFT_OUT: 10}


async def test_a_stream_has_ranges_and_ids_in_its_first_chunk() -> None:
    ids, media = media_of("generate_content_parts_collapsed")
    engine, mock = server("f_features_stream")  # the same prompt and answer as the other form of the route
    parts: list[Delta] = []

    async def watch(delta: Delta) -> None:
        parts.append(delta)

    reply = await engine.from_ids_with_media(ids, media, Sampling(max_tokens=6), watch=watch)
    assert mock.bodies(GENERATE)[0]["stream"] is True
    assert reply.media_ranges == ((11, 4),)
    assert [index for delta in parts for index in delta.ids] == list(reply.completion_ids)


async def test_several_turns_after_one_prompt_have_one_echo() -> None:
    engine, _ = server("x_content_parts_n2")
    reply = await engine.from_ids_with_media(*media_of("x_content_parts_n2"), Sampling(max_tokens=6, n=2))
    assert reply.media_ranges == ((1, 4),)
    assert len(reply.siblings) == 1


async def test_a_prompt_that_is_too_long_when_expanded_is_overlong() -> None:
    engine, mock = server("x_overlong_content_parts")
    with pytest.raises(OverlongError):
        await engine.from_ids_with_media(*media_of("x_overlong_content_parts"), Sampling(max_tokens=1))
    assert len(mock.bodies(GENERATE)) == 1


# Caches.


@pytest.mark.parametrize(
    "miss",
    [
        "generate_content_parts_unknown_uuid",
        "nocache_content_parts_uuid_only",
        "api2_content_parts_uuid_only_1",
    ],
)
async def test_a_server_without_an_image_is_asked_once_more_with_all_bytes(miss: str) -> None:
    ids, media = media_of("generate_content_parts_collapsed")
    engine, mock = server(*["generate_content_parts_collapsed"] * 2, miss, "generate_content_parts_collapsed")
    for _ in range(2):
        await engine.from_ids_with_media(ids, media, Sampling(max_tokens=6))
    reply = await engine.from_ids_with_media(ids, media, Sampling(max_tokens=6))
    assert [["url" in part for part in body["content_parts"]] for body in mock.bodies(GENERATE)] == [
        [True],
        [False],
        [False],
        [True],
    ]
    assert reply.notices == (Notice.MEDIA_RESENT, Notice.MEDIA_SENT)
    assert engine.notices[Notice.MEDIA_RESENT] == 1


async def test_an_image_that_is_missed_again_and_again_goes_with_its_bytes() -> None:
    ids, media = media_of("generate_content_parts_collapsed")
    hit, miss = "generate_content_parts_collapsed", "api2_content_parts_uuid_only_1"
    engine, mock = server(hit, miss, hit, miss, hit, hit, hit)
    for _ in range(5):
        await engine.from_ids_with_media(ids, media, Sampling(max_tokens=6))
    assert ["url" in body["content_parts"][0] for body in mock.bodies(GENERATE)] == [
        *(True, False, True, False, True),
        *(True, True),
    ]


async def test_a_request_with_all_bytes_is_not_sent_twice() -> None:
    ids, media = media_of("generate_content_parts_collapsed")
    engine, mock = server("generate_content_parts_unknown_uuid")
    with pytest.raises(RequestError):
        await engine.from_ids_with_media(ids, media, Sampling(max_tokens=6))
    assert len(mock.bodies(GENERATE)) == 1


async def test_an_image_without_bytes_that_the_server_does_not_have_is_an_error() -> None:
    ids, _ = media_of("generate_content_parts_collapsed")
    hit, miss = "generate_content_parts_collapsed", "generate_content_parts_unknown_uuid"
    engine, mock = server(hit, hit, miss)
    with pytest.raises(InputError, match=r"media\[0\]: the server may not have its bytes"):
        await engine.from_ids_with_media(ids, [medium("cat", 11, None)], Sampling(max_tokens=6))
    assert not mock.bodies(GENERATE)
    await engine.from_ids_with_media(ids, [medium("cat", 11)], Sampling(max_tokens=6))
    await engine.from_ids_with_media(ids, [medium("cat", 11, None)], Sampling(max_tokens=6))
    with pytest.raises(RequestError):
        await engine.from_ids_with_media(ids, [medium("cat", 11, None)], Sampling(max_tokens=6))


# Traps.


async def test_trap_01_a_sampled_placeholder_is_not_sent() -> None:
    ids, media = media_of("f_after_sampled_pad_content_parts", places=(11, 31))
    engine, mock = server("f_after_sampled_pad_content_parts")
    with pytest.raises(InputError, match="a placeholder at 20 stands for none of the 2 media"):
        await engine.from_ids_with_media(ids, media, Sampling(max_tokens=6))
    assert not mock.asked
    response = EXCHANGES["f_after_sampled_pad_content_parts"]["response"]
    ranges = [(one["offset"], one["length"]) for one in response["mm_placeholders"]["image"]]
    with pytest.raises(InvalidReplyError):  # and what the server made of it would not have been believed
        check_seen(CHECK, ids, media, response["prompt_token_ids"], ranges)


def test_trap_02_a_text_that_spells_a_placeholder_is_refused() -> None:
    spelled = EXCHANGES["x_render_literal_placeholder"]["response"]["token_ids"]
    collapsed = [*spelled[:6], PAD, *spelled[10:]]
    (message,) = EXCHANGES["x_render_literal_placeholder"]["request"]["messages"]
    found = first_prompt([message], lambda *_, **__: collapsed, {"image": [PAD]})
    assert isinstance(found, Refusal)
    assert found.reason is Reason.PLACEHOLDERS


async def test_trap_03_expanded_ids_are_not_sent() -> None:
    ids, media = media_of("generate_content_parts_expanded_ids", places=(11,))
    engine, mock = server("generate_content_parts_expanded_ids")
    with pytest.raises(InputError, match="a placeholder at 12"):
        await engine.from_ids_with_media(ids, media, Sampling(max_tokens=6))
    assert not mock.asked


async def test_trap_04_other_ids_around_an_image_are_an_error_with_the_reply() -> None:
    ids, _ = media_of("x_content_parts_spelled_placeholder")
    engine, _ = server("x_content_parts_spelled_placeholder")
    place = MediaRange(modality="image", identity="a", offset=3, length=9, collapsed=tuple(ids[3:12]))
    with pytest.raises(InvalidReplyError, match="the engine made another prompt") as error:
        await engine.from_ids_with_media(
            ids, [PromptMedium(place=place, url="data:,")], Sampling(max_tokens=6)
        )
    assert error.value.partial is not None
    response = EXCHANGES["x_content_parts_spelled_placeholder"]["response"]
    assert list(error.value.partial.completion_ids) == response["choices"][0]["token_ids"]


@pytest.mark.parametrize(
    "name",
    [
        "generate_content_parts_two_placeholders_one_image",
        "generate_content_parts_no_placeholder",
        "x_content_parts_more_images_than_pads",
    ],
)
async def test_trap_05_other_counts_are_not_sent(name: str) -> None:
    request = EXCHANGES[name]["request"]
    places = [place for place, index in enumerate(request["token_ids"]) if index == PAD]
    count = len(request["content_parts"])
    media = [medium(str(number), place) for number, place in enumerate([*places, 0, 1][:count])]
    engine, mock = server(name)
    with pytest.raises(InputError):
        await engine.from_ids_with_media(request["token_ids"], media, Sampling(max_tokens=6))
    assert not mock.asked


async def test_trap_06_a_server_whose_caches_differ_is_not_asked_again_by_itself() -> None:
    hit, failed = "generate_content_parts_collapsed", "evict_drift_content_parts_uuid_only"
    ids, media = media_of(hit)
    engine, mock = server(hit, failed, hit)
    await engine.from_ids_with_media(ids, media, Sampling(max_tokens=6))
    with pytest.raises(ServerError):
        await engine.from_ids_with_media(ids, media, Sampling(max_tokens=6))
    assert len(mock.bodies(GENERATE)) == 2
    await engine.from_ids_with_media(ids, media, Sampling(max_tokens=6))
    assert "url" in mock.bodies(GENERATE)[2]["content_parts"][0]


async def test_trap_07_sparse_images_have_their_ranges() -> None:
    names = ["sparse_content_parts", "sparse_content_parts_turn_2"]
    engine, mock = server(*names)
    for name in names:
        reply = await engine.from_ids_with_media(*media_of(name, SMOL_PAD), Sampling(max_tokens=6))
    assert reply.media_ranges == ((5, 34), (41, 34), (96, 34))
    assert [[*map(len, body["content_parts"])] for body in mock.bodies(GENERATE)] == [[3, 3], [2, 2, 3]]


async def test_an_id_that_merged_with_an_image_belongs_to_it() -> None:
    """A line end before the image, or between two, is one id with the line ends of the image's own text."""
    for name, ranges in (
        ("gemma3_image_after_a_line_end", ((2, 8),)),
        ("gemma3_images_side_by_side", ((2, 8), (10, 7))),
    ):
        ids, media = media_of(name, GEMMA_PAD)
        engine, _ = server(name)
        reply = await engine.from_ids_with_media(ids, media, Sampling(max_tokens=6))
        assert reply.media_ranges == ranges
        assert list(reply.prompt_ids) == EXCHANGES[name]["response"]["prompt_token_ids"]
        wide = ranges_seen(ids, [one.place for one in media], reply.prompt_ids, ranges)
        assert wide is not None
        assert wide[0].collapsed == (ids[2], GEMMA_PAD)
        # The next request has the same ids, and the wider placeholders.
        later = [attrs.evolve(one, place=place) for one, place in zip(media, wide, strict=True)]
        engine, mock = server(name)
        await engine.from_ids_with_media(ids, later, Sampling(max_tokens=6))
        assert mock.bodies(GENERATE)[0]["token_ids"] == ids


async def test_trap_09_images_go_in_the_order_of_their_placeholders() -> None:
    ids, media = media_of("sparse_content_parts", SMOL_PAD)
    engine, mock = server("sparse_content_parts")
    with pytest.raises(InputError, match=r"media\[1\] begins"):
        await engine.from_ids_with_media(ids, media[::-1], Sampling(max_tokens=6))
    assert not mock.asked


@pytest.mark.parametrize("modality", ["audio", "video"])
async def test_trap_10_other_media_are_never_sent(modality: str) -> None:
    place = MediaRange(modality=modality, identity="a", offset=0, length=1, collapsed=(9,))
    engine, mock = server()
    with pytest.raises(MediaUnsupportedError, match="takes images beside ids"):
        await engine.from_ids_with_media(
            [9], [PromptMedium(place=place, url="data:,")], Sampling(max_tokens=1)
        )
    assert not mock.asked


async def test_trap_11_a_wrong_id_is_an_error_also_with_all_bytes() -> None:
    hit, wrong = "generate_content_parts_collapsed", "f_out_of_vocabulary"
    ids, media = media_of(hit)
    engine, mock = server(hit, wrong, wrong)
    await engine.from_ids_with_media(ids, media, Sampling(max_tokens=6))
    with pytest.raises(RequestError, match="out of vocabulary"):
        await engine.from_ids_with_media(ids, media, Sampling(max_tokens=6))
    assert len(mock.bodies(GENERATE)) == 3


async def test_trap_12_an_image_has_one_key_in_all_turns() -> None:
    ids, media = media_of("generate_content_parts_collapsed")
    engine, mock = server(*["generate_content_parts_collapsed"] * 2)
    for _ in range(2):
        await engine.from_ids_with_media(ids, media, Sampling(max_tokens=6))
    assert {body["content_parts"][0]["uuid"] for body in mock.bodies(GENERATE)} == {media[0].place.identity}


# Rendering.


async def test_the_server_s_render_is_collapsed() -> None:
    """The recorded text spells a placeholder: the server took that for the image."""
    engine, mock = mocked({RENDER: EXCHANGES["x_render_literal_placeholder"]["response"]})
    question = [{"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image"}]}]
    ids = await engine.render_placeholders(
        question, Rendering(), Placeholders((("image", (PAD,)),)), add_generation_prompt=False
    )
    assert ids[:8] == [4088, 1561, 198, 332, 907, 220, PAD, 619]
    assert ids.count(PAD) == 2
    (body,) = mock.bodies(RENDER)
    assert (body["mm_payload"], body["add_generation_prompt"]) == ("none", False)
    assert body["messages"][0]["content"][1]["image_url"]["url"].startswith("data:image/png")


async def test_a_render_without_images_is_as_it_is() -> None:
    engine, _ = mocked({RENDER: {"token_ids": [5, 6], "features": None}})
    media = Placeholders((("image", (PAD,)),))
    assert await engine.render_placeholders([], Rendering(), media, add_generation_prompt=True) == [5, 6]


@pytest.mark.parametrize(
    ("status", "error"), [(400, TemplateRefused), (404, RequestError), (500, ServerError)]
)
async def test_what_the_server_does_not_render_is_refused(status: int, error: type[Exception]) -> None:
    engine, _ = mocked(
        {RENDER: refused("At most 8 image(s) may be provided in one prompt.", status, param="image")}
    )
    media = Placeholders((("image", (PAD,)),))
    with pytest.raises(error):
        await engine.render_placeholders([], Rendering(), media, add_generation_prompt=True)


# Servers and routes that take no images beside ids.


@pytest.mark.parametrize("route", ["completions", "chat", "tokens"])
async def test_other_routes_are_refused_by_name(route: str) -> None:
    engine, mock = server(route=route)
    with pytest.raises(MediaUnsupportedError, match=f"and this is {route!r}"):
        await engine.from_ids_with_media([PAD], [medium("a", 0)], Sampling(max_tokens=1))
    assert not mock.bodies(GENERATE)


async def test_an_older_server_is_refused_by_name() -> None:
    engine, mock = mocked({"/version": {"version": "0.31.2"}}, route="auto")
    with pytest.raises(MediaUnsupportedError, match=r"from 0.32 on, and this is 0.31.2"):
        await engine.from_ids_with_media([PAD], [medium("a", 0)], Sampling(max_tokens=1))
    assert not mock.bodies(GENERATE)


async def test_a_closed_route_is_refused_and_remembered() -> None:
    engine, mock = server(httpx2.Response(404, json={"detail": "Not Found"}))
    for _ in range(2):
        with pytest.raises(MediaUnsupportedError, match="--enable-scale-out"):
            await engine.from_ids_with_media([PAD], [medium("a", 0)], Sampling(max_tokens=1))
    assert len(mock.bodies(GENERATE)) == 1


async def test_an_answer_without_ranges_is_an_error_with_the_reply() -> None:
    """A server that ignores images takes placeholders for text, and answers 200."""
    engine, _ = mocked({GENERATE: generate_answer(prompt=(4, PAD))}, route="generate")
    with pytest.raises(InvalidReplyError, match="does not say where the images stand") as error:
        await engine.from_ids_with_media([4, PAD], [medium("a", 1)], Sampling(max_tokens=2))
    assert error.value.partial is not None
    assert error.value.partial.completion_ids == (7, 8)


async def test_the_embedded_engine_is_refused_by_name() -> None:
    engine = embedded()
    with pytest.raises(MediaUnsupportedError, match="vLLM takes images beside ids by its routes generate"):
        await engine.from_ids_with_media([PAD], [medium("a", 0)], Sampling(max_tokens=1))
    await engine.aclose()


@pytest.mark.parametrize("media", [[], [medium("a", 1)], [medium("a", 0), medium("b", 0)]])
async def test_places_that_do_not_fit_the_ids_are_an_error(media: Sequence[PromptMedium]) -> None:
    engine, mock = server()
    with pytest.raises(InputError):
        await engine.from_ids_with_media([PAD, 5], media, Sampling(max_tokens=1))
    assert not mock.asked


async def test_a_refusal_of_a_whole_request_is_an_error() -> None:
    engine, _ = server(refused("Failed to load image"))
    with pytest.raises(RequestError):
        await engine.from_ids_with_media([PAD, 5], [medium("a", 0)], Sampling(max_tokens=1))


def test_help_says_what_the_route_and_images_need() -> None:
    said = " ".join(str(VLLM.__doc__).split())
    for need in ("`derender` needs vLLM 0.33", "--enable-scale-out", "`TokenClient(media=...)`"):
        assert need in said
