"""Images beside ids, against answers that were recorded from a real SGLang."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.io.engines.recorded_images import EXCHANGES, PAD, media_of, medium
from tests.io.engines.sglang.sglang_server import complained, mocked
from tito_core import InputError
from tito_core.media.ranges import MediaRange, Placeholders
from tito_io.engines.media import MediaUnsupportedError
from tito_io.engines.protocol import InvalidReplyError, OverlongError, PromptMedium, Rendering, Sampling
from tito_io.engines.sglang import SGLang
from tito_io.engines.sglang.engine import MEDIA_SENT
from tito_io.engines.sglang.requests import GENERATE

pytestmark = pytest.mark.anyio
LARGE = {
    "id": "m",
    "object": "model",
    "owned_by": "sglang",
    "root": "m",
    "parent": None,
    "max_model_len": 4096,
}


def server(name: str, **options: Any) -> tuple[SGLang, Any]:
    """Return an engine whose server answers as was recorded, and its mock."""
    response = EXCHANGES[name]["response"] if name else {}
    answers = {
        GENERATE: lambda _: httpx2.Response(200, json=response),
        "/v1/models": {"object": "list", "data": [LARGE]},
    }
    return mocked(answers, vocab_size=5000, **options)


@pytest.mark.parametrize(
    "name",
    ["sgl_collapsed_ids_plus_image", "sgl_collapsed_odd_ids_plus_image", "sgl_two_images_wrapped"],
)
async def test_images_go_as_placeholders_and_come_back_expanded(name: str) -> None:
    ids, media = media_of(name)
    engine, mock = server(name)
    for _ in range(2):
        reply = await engine.from_ids_with_media(ids, media, Sampling(max_tokens=6))
        assert list(reply.prompt_ids) == EXCHANGES[name]["response"]["prompt_token_ids"]
        assert reply.media_ranges is None
        assert reply.notices == (MEDIA_SENT,)
    bodies = [body for path, body in mock.asked if path == GENERATE]
    assert [body["image_data"] for body in bodies] == [EXCHANGES[name]["request"]["image_data"]] * 2
    assert [body["input_ids"] for body in bodies] == [ids] * 2
    assert all(body["return_prompt_token_ids"] for body in bodies)


TOO_MUCH = (
    "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a "
    "total of 4099 tokens: 23 tokens from the input messages and 4076 tokens for the completion."
)


async def test_more_ids_than_fit_after_the_expanded_images_are_requested_once_more() -> None:
    ids, media = media_of("sgl_collapsed_ids_plus_image")
    good = EXCHANGES["sgl_collapsed_ids_plus_image"]["response"]
    answers = iter([complained(TOO_MUCH), httpx2.Response(200, json=good)])
    listed = {"object": "list", "data": [LARGE]}
    engine, mock = mocked({GENERATE: lambda _: next(answers), "/v1/models": listed}, vocab_size=5000)
    await engine.from_ids_with_media(ids, media, Sampling())
    asked = [body["sampling_params"]["max_new_tokens"] for path, body in mock.asked if path == GENERATE]
    assert asked[1] == 4096 - 23
    assert asked[0] > asked[1]


async def test_a_prompt_that_is_too_long_when_expanded_is_overlong() -> None:
    ids, media = media_of("sgl_collapsed_ids_plus_image")
    longer = complained("The input (4100 tokens) is longer than the model's context length (4096 tokens).")
    listed = {"object": "list", "data": [LARGE]}
    engine, mock = mocked({GENERATE: lambda _: longer, "/v1/models": listed}, vocab_size=5000)
    with pytest.raises(OverlongError):
        await engine.from_ids_with_media(ids, media, Sampling(max_tokens=1))
    assert [path for path, _ in mock.asked].count(GENERATE) == 1


async def test_two_images_for_one_placeholder_are_not_sent() -> None:
    """The server drops the second one, and answers 200."""
    ids, media = media_of("sgl_two_images_one_placeholder")
    engine, mock = server("sgl_two_images_one_placeholder")
    with pytest.raises(InputError, match=r"media\[1\]"):
        await engine.from_ids_with_media(ids, [*media, medium("b", 12)], Sampling(max_tokens=6))
    assert not mock.asked


@pytest.mark.parametrize("extra", [12, 20], ids=["expanded", "sampled"])
async def test_a_placeholder_too_many_is_not_sent(extra: int) -> None:
    """The server never answers such a request, and does not end while it waits."""
    ids, media = media_of("sgl_collapsed_ids_plus_image")
    engine, mock = server("sgl_collapsed_ids_plus_image")
    with pytest.raises(InputError, match=f"a placeholder at {extra} stands for none"):
        await engine.from_ids_with_media([*ids[:extra], PAD, *ids[extra:]], media, Sampling(max_tokens=6))
    assert not mock.asked


async def test_another_echo_is_an_error_with_the_reply() -> None:
    ids, media = media_of("sgl_collapsed_ids_plus_image")
    engine, _ = server("sgl_collapsed_odd_ids_plus_image")
    with pytest.raises(InvalidReplyError, match="the engine made another prompt") as error:
        await engine.from_ids_with_media(ids, media, Sampling(max_tokens=6))
    assert error.value.partial is not None


@pytest.mark.parametrize("route", ["chat", "completions"])
async def test_other_routes_are_refused_by_name(route: Any) -> None:
    engine, mock = server("", route=route)
    with pytest.raises(MediaUnsupportedError, match=f"and this is {route!r}"):
        await engine.from_ids_with_media([PAD], [medium("a", 0)], Sampling(max_tokens=1))
    assert not mock.asked


@pytest.mark.parametrize(
    ("ids", "media", "kind"),
    [
        ([PAD, PAD], [medium("a", 0), medium("b", 1)], MediaUnsupportedError),
        (
            [PAD, 5],
            [
                PromptMedium(
                    place=MediaRange(modality="image", identity="a", offset=0, length=2, collapsed=(PAD, 5)),
                    url="data:,",
                )
            ],
            MediaUnsupportedError,
        ),
        (
            [PAD],
            [
                PromptMedium(
                    place=MediaRange(modality="video", identity="a", offset=0, length=1, collapsed=(PAD,)),
                    url="data:,",
                )
            ],
            MediaUnsupportedError,
        ),
        ([PAD], [medium("a", 0, None)], InputError),
    ],
    ids=["side by side", "several ids", "a video", "no bytes"],
)
async def test_what_the_server_could_not_be_checked_on_is_not_sent(ids: Any, media: Any, kind: Any) -> None:
    engine, mock = server("")
    with pytest.raises(kind):
        await engine.from_ids_with_media(ids, media, Sampling(max_tokens=1))
    assert not mock.asked


async def test_the_server_s_render_has_placeholders() -> None:
    """It was recorded so: `/tokenize` with an image answers as many ids as the template writes."""
    ids = EXCHANGES["sgl_collapsed_ids_plus_image"]["request"]["input_ids"]
    engine, mock = mocked({"/tokenize": {"tokens": ids, "count": len(ids)}}, vocab_size=5000)
    messages = [{"role": "user", "content": [{"type": "text", "text": "What is this? "}, {"type": "image"}]}]
    media = Placeholders((("image", (PAD,)),))
    found = await engine.render_placeholders(messages, Rendering(), media, add_generation_prompt=True)
    assert found == ids
    (body,) = [body for path, body in mock.asked if path == "/tokenize"]
    assert body["messages"][0]["content"][1]["image_url"]["url"].startswith("data:image/png")
