"""Audio and video have the same hooks as images, and each place that lacks the rest refuses them by name.

What is missing is listed in docs/reference/media.md. A test here fails once a place takes them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import httpx2
import pytest

from tests.core.pictures import CLOSE, PLACEHOLDERS, first_step, showing, tokenize
from tests.io.client.seeing import Seeing
from tests.io.client.test_images import client_of
from tests.io.engines.recorded_images import PAD, medium
from tests.processors.toy import ToyProcessor, run
from tito_core import Bridge, Message, Reason, Refusal, suffix_ids, try_stitch
from tito_core.media.expansion import collapse, expand
from tito_core.media.first_prompt import first_prompt
from tito_core.media.ranges import MediaRange
from tito_core.normalization.media import media_of
from tito_io.client import Route
from tito_io.dialects import Anthropic, Chat, Google, Responses, UntranslatableError
from tito_io.engines.media import MediaUnsupportedError
from tito_io.engines.protocol import Sampling
from tito_io.engines.sglang import SGLang
from tito_io.engines.vllm import VLLM
from tito_io.families import Family

pytestmark = pytest.mark.anyio
both = pytest.mark.parametrize("modality", ["audio", "video"])


def hearing(modality: str) -> dict[str, Any]:
    """Return a message with audio or video, known by its bytes."""
    part = {"type": f"{modality}_url", f"{modality}_url": {"url": f"data:{modality}/x;base64,aGk="}}
    return {"role": "user", "content": [part, {"type": "text", "text": "What is it?"}]}


def refusal(found: object) -> Refusal:
    assert isinstance(found, Refusal)
    assert found.reason is Reason.MULTIMODAL
    return found


# The hooks: what is general already.


@both
def test_ranges_collapse_and_expand_whatever_the_modality(modality: str) -> None:
    (one,) = media_of([hearing(modality)])
    assert (one.modality, one.part) == (modality, {"type": modality})
    assert (one.identity or "").startswith("sha256:")
    heard = MediaRange(modality=modality, identity="a", offset=1, length=3, collapsed=(7,))
    ids, places = collapse([5, 7, 7, 7, 6], [heard])
    assert (ids, expand(ids, places, [(7, 7, 7)])) == ([5, 7, 6], ([5, 7, 7, 7, 6], [heard]))


# What is missing: a placeholder that the template is known to write.


@both
@pytest.mark.parametrize("place", ["stitch", "bridge", "first prompt", "processor"])
def test_no_placeholder_is_known(modality: str, place: str) -> None:
    step, messages = first_step(showing("hi")), [hearing(modality)]
    asked: dict[str, Callable[[], object]] = {
        "stitch": lambda: try_stitch(
            [step], [*step.messages, *messages], suffix_ids(tokenize), tokenize, media=PLACEHOLDERS
        ),
        "bridge": lambda: Bridge(tokenize, stop_ids=[CLOSE], media=PLACEHOLDERS).extend(step.ids, messages),
        "first prompt": lambda: first_prompt(messages, tokenize, PLACEHOLDERS),
        "processor": lambda: Family.of(ToyProcessor(run)).first_prompt(messages, []),
    }
    assert refusal(asked[place]()).detail == f"no placeholder is given for {modality} parts"


# What is missing: an engine that takes them beside ids.


def unasked(request: httpx2.Request) -> httpx2.Response:
    raise AssertionError(f"{request.url} was asked")


@both
@pytest.mark.parametrize("kind", [VLLM, SGLang])
async def test_engines_take_images_alone_beside_ids(modality: str, kind: Any) -> None:
    engine = kind("http://mock", route="generate", transport=httpx2.MockTransport(unasked))
    image = medium("a", 0)
    heard = attrs.evolve(image, place=attrs.evolve(image.place, modality=modality))
    with pytest.raises(MediaUnsupportedError, match=f"takes images beside ids, and a medium is '{modality}'"):
        await engine.from_ids_with_media([PAD], [heard], Sampling(max_tokens=1))
    await engine.aclose()


# So a conversation goes by messages, as it came.


@both
async def test_a_conversation_goes_by_messages(modality: str) -> None:
    engine = Seeing()
    client = client_of(engine)
    first = await client.turn([], [hearing(modality)])
    prompt: list[Message] = [hearing(modality), first.message, {"role": "user", "content": "And now?"}]
    second = await client.turn([first.step], prompt)
    assert [done.turn.route for done in (first, second)] == [Route.MITO, Route.MITO]
    assert engine.asked == [("messages", [hearing(modality)]), ("messages", prompt)]
    assert client.counts.refusals == {Reason.MULTIMODAL: 2}


# What is missing: their form in the clients' APIs.

TEXT = {"type": "text", "text": "What is it?"}
SOUND = {"data": "aGk=", "format": "wav"}


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_audio", "input_audio": SOUND},
        {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,aGk="}},
    ],
)
def test_chat_passes_parts_on_as_they_came(part: dict[str, Any]) -> None:
    message = {"role": "user", "content": [part, TEXT]}
    assert list(Chat().parse({"messages": [message], "model": "m"}).messages) == [message]


def inline(mime: str) -> dict[str, Any]:
    return {"inlineData": {"mimeType": mime, "data": "aGk="}}


@pytest.mark.parametrize(
    ("dialect", "body", "error"),
    [
        (
            Responses(),
            {"input": [{"role": "user", "content": [{"type": "input_audio", "input_audio": SOUND}]}]},
            r"'input_audio' cannot be translated; use texts and images",
        ),
        (
            Anthropic(),
            {
                "messages": [{"role": "user", "content": [{"type": "audio", "source": SOUND}]}],
                "max_tokens": 9,
            },
            r"a block of type 'audio' cannot be translated here; use text, image",
        ),
        (Google(), {"contents": [{"parts": [inline("audio/wav")]}]}, r"'audio/wav' cannot be translated"),
        (Google(), {"contents": [{"parts": [inline("video/mp4")]}]}, r"'video/mp4' cannot be translated"),
    ],
)
def test_other_apis_refuse_them_by_name(dialect: Any, body: dict[str, Any], error: str) -> None:
    with pytest.raises(UntranslatableError, match=error):
        dialect.parse({"model": "m", **body})
