"""The session page shows an image as one block where it stands; only known formats are shown as pictures."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from pathlib import Path

import attrs
import pytest

from tests.io.client.seeing import Seeing, asking
from tests.io.families.family_folder import load, tiny_folder
from tests.io.serve.gateway import Scripted, chat, client, opened, scripted_gateway
from tests.io.serve.test_media import TEMPLATE, gateway_of
from tests.io.serve.test_view import EVIL, ParsedPage
from tito_core import Message, Reason, Refusal, Step
from tito_core.ledger import Origin, Span
from tito_core.media.ranges import MediaRange
from tito_core.samples import StoredCall
from tito_io.client.turn import Route
from tito_io.engines.protocol import Rendering
from tito_io.pages.media import PICTURE_CHARACTERS, picture_url
from tito_io.serve import path_tokens, view
from tito_io.serve.commit import Commit, TurnOrigin
from tito_io.serve.media import MediumBytes
from tito_io.serve.path_tokens import PathTokens, changed_prompt_ids
from tito_io.serve.refusals import GatewayLimits
from tito_io.serve.session import Session, SessionHead
from tito_io.serve.stores import MemoryStore

pytestmark = pytest.mark.anyio
PLACEHOLDER = 7
PNG = "data:image/png;base64," + b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()
SVG = b64encode(b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>").decode()


class Drawing(Scripted):
    """A scripted engine whose template writes a placeholder for each image."""

    async def render(
        self, messages: Sequence[Message], rendering: Rendering, *, add_generation_prompt: bool
    ) -> list[int]:
        del rendering
        return rendered(messages, add_generation_prompt=add_generation_prompt)


class Blind(Drawing):
    """Its template leaves images out."""

    async def render(
        self, messages: Sequence[Message], rendering: Rendering, *, add_generation_prompt: bool
    ) -> list[int]:
        ids = await super().render(messages, rendering, add_generation_prompt=add_generation_prompt)
        return [index for index in ids if index != PLACEHOLDER]


def rendered(messages: Sequence[Message], *, add_generation_prompt: bool = True) -> list[int]:
    """Return what `toy` does, with a placeholder for each image."""
    ids: list[int] = []
    for message in messages:
        content = message["content"]
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        pieces = (letters(part["text"]) if part["type"] == "text" else [PLACEHOLDER] for part in parts)
        ids += [1, len(message["role"]), *chain.from_iterable(pieces), 2]
    return ids + [1, 9] * add_generation_prompt


def letters(text: str) -> list[int]:
    return [10 + byte for byte in text.encode()]


def image(identity: str, offset: int, length: int) -> MediaRange:
    return MediaRange(
        modality="image", identity=identity, offset=offset, length=length, collapsed=(PLACEHOLDER,)
    )


TAIL = [*letters("?"), 2, 1, 9]
"""What follows the images of a prompt."""


def step(*identities: str) -> Step:
    """Return a step whose prompt has images of 300 ids before a text."""
    parts = [{"type": "image_url", "uuid": identity} for identity in identities]
    images = [image(identity, 2 + 300 * place, 300) for place, identity in enumerate(identities)]
    return Step(
        prompt=[{"role": "user", "content": [*parts, {"type": "text", "text": "?"}]}],
        completion=[{"role": "assistant", "content": "a cat"}],
        prompt_ids=[1, 4, *[PLACEHOLDER] * 300 * len(identities), *TAIL],
        completion_ids=[500, 2],
        media=images,
    )


class Pictures(MemoryStore):
    """Has these media in every session."""

    def __init__(self, media: Mapping[str, MediumBytes]) -> None:
        super().__init__()
        self.known = {digest: one.encoded() for digest, one in media.items()}

    async def media(self, name: str, digests: Collection[str]) -> dict[str, bytes]:
        del name
        return {digest: self.known[digest] for digest in digests}


async def shown(
    one: Step,
    pictures: Mapping[str, MediumBytes] | None = None,
    engine: Scripted | None = None,
    route: Route = Route.TITO,
) -> str:
    """Return the page of a session with one turn."""
    gateway, store = scripted_gateway(engine or Drawing()), Pictures(pictures or {})
    session = Session("s", SessionHead(created=0), store, GatewayLimits(), 0)
    session.media = {digest: len(stored) for digest, stored in store.known.items()}
    call = StoredCall(name="t", step=one, finish_reason="stop")
    origin = TurnOrigin(dialect="chat", route=route.name, requested=0.0)
    session.commits["t"] = Commit(call=call, parent=None, response="r", at=1.0, origin=origin)
    return await view.page(gateway, session)


async def test_an_image_is_one_block_in_place_of_its_ids() -> None:
    text = await shown(step("cat", "dog"))
    parsed = ParsedPage(text)
    assert parsed.open == []
    assert parsed.classes.count("medium") == 2
    assert [index for _, index in parsed.tokens] == [1, 4, *TAIL, 500, 2]
    words = " ".join(parsed.text.split())
    assert "image cat · 300 ids from 2 on, in place of" in words
    assert "image dog · 300 ids from 302 on, in place of" in words
    assert "[image cat] [image dog] ?" in words
    assert re.search(r"would differ\s*0\s*0\.0%\s*prompt ids", words)
    assert "img" not in parsed.tags


async def test_a_placeholder_of_several_ids_is_one_text() -> None:
    one = step("cat")
    (medium,) = one.media
    page = await shown(attrs.evolve(one, media=[attrs.evolve(medium, collapsed=(7, 8))]))
    assert "<code>token_id:7token_id:8</code>" in page


async def test_an_image_that_the_template_leaves_out_is_marked() -> None:
    assert "would differ</u></figcaption>" not in await shown(step("cat"))
    assert "would differ</u></figcaption>" in await shown(step("cat"), engine=Blind())


async def test_a_known_picture_is_shown_and_nothing_else_may_be_loaded() -> None:
    known = {"cat": MediumBytes.of_url(PNG), "dog": MediumBytes("image/svg+xml", b64decode(SVG))}
    parsed = ParsedPage(await shown(step("cat", "dog"), known))
    assert parsed.tags.count("img") == 1
    policies = [value for value in parsed.values if value and value.startswith("default-src")]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; img-src data:"]
    assert [value for value in parsed.values if value and value.startswith(("data:", "http"))] == [PNG]


async def test_a_page_has_no_more_pictures_than_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    one = MediumBytes.of_url(PNG)
    monkeypatch.setattr(view, "PICTURES", len(one.encoded()) + 1)
    parsed = ParsedPage(await shown(step("cat", "cat"), {"cat": one}))
    assert (parsed.tags.count("img"), parsed.classes.count("medium")) == (1, 2)


@pytest.mark.parametrize("evil", [EVIL, '"><img src=x onerror=alert(1)>', "javascript:alert(1)"])
async def test_identities_and_types_are_text_and_nothing_more(evil: str) -> None:
    known = {evil: MediumBytes(f"image/png{evil}", MediumBytes.of_url(PNG).data)}
    text = await shown(step(evil), known)
    parsed = ParsedPage(text)
    assert parsed.open == []
    assert not {"img", "script"} & set(parsed.tags)
    assert not [name for name in parsed.attributes if name.startswith("on") or name == "src"]
    assert evil[:20] in parsed.text


async def test_a_session_of_the_gateway_shows_its_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_folder(tmp_path / "model", TEMPLATE, processor_config__json={"image_token": "<image>"})
    family = load(folder)
    pad, close = (family.tokenizer.get_vocab()[one] for one in ("<image>", "<|im_end|>"))
    gateway = gateway_of(Seeing(pad=pad, close=close, encode=family.encode), folder)
    picture = {"type": "image_url", "image_url": {"url": PNG}}
    async with client(gateway) as http:
        name = await opened(http)
        await chat(http, name, [asking("What?", picture)])
        answer = await http.get(f"/sessions/{name}/view")
    parsed = ParsedPage(answer.text)
    assert PNG in parsed.values
    words = " ".join(parsed.text.split())
    assert f"image sha256:{sha256(MediumBytes.of_url(PNG).data).hexdigest()[:10]}" in words
    assert re.search(r"in place of <image>", words)
    assert re.search(r"would differ\s*0\s*0\.0%\s*prompt ids", words)

    async def refused(*_: object) -> Refusal:
        return Refusal(Reason.MULTIMODAL, "the template hides the image")

    monkeypatch.setattr(view, "answer", refused)
    async with client(gateway) as http:
        again = await http.get(f"/sessions/{name}/view")
    assert again.status_code == 200
    assert "The engine cannot render, so drift is not known." in again.text


@pytest.mark.parametrize(
    "url",
    [
        None,
        "",
        "https://example.org/cat.png",
        f"data:image/svg+xml;base64,{SVG}",
        f"data:image/png;base64,{SVG}",
        "data:image/png,%89PNG",
        PNG.replace("png", "PNG"),
        PNG.replace("png", "jpeg"),
        PNG + "\n",
        PNG + '" onload="alert(1)',
        "data:text/html;base64,PGI+",
        "data:image/png;base64,iVBO",
        "data:image/png;base64,iVB",
        PNG + "A" * PICTURE_CHARACTERS,
    ],
)
def test_what_is_no_known_picture_is_not_shown(url: str | None) -> None:
    assert picture_url(url) is None


@pytest.mark.parametrize(
    ("kind", "head"),
    [
        ("png", b"\x89PNG\r\n\x1a\n"),
        ("jpeg", b"\xff\xd8\xff\xe0"),
        ("webp", b"RIFF\x10\0\0\0WEBPVP8 "),
        ("gif", b"GIF89a"),
    ],
)
def test_pictures_of_four_formats_are_shown(kind: str, head: bytes) -> None:
    url = f"data:image/{kind};base64,{b64encode(head + bytes(99)).decode()}"
    assert picture_url(url) == url


@pytest.mark.parametrize("shown", [3, 7, 12, 1000])
@pytest.mark.parametrize("chunk", [1, 2, 1000])
def test_no_cut_goes_through_an_image(monkeypatch: pytest.MonkeyPatch, shown: int, chunk: int) -> None:
    for name, value in (("SHOWN", shown), ("DETAILED", shown), ("CHUNK", chunk)):
        monkeypatch.setattr(path_tokens, name, value)
    decoded: list[int] = []

    def decode(ids: list[int]) -> str:
        decoded.extend(ids)
        return "x" * len(ids)

    two = [image("cat", 2, 6), image("dog", 8, 1)]
    spans = (Span(Origin.PROMPT, 0, 2), Span(Origin.MEDIA, 2, 8), Span(Origin.MEDIA, 8, 9),
             Span(Origin.PROMPT, 9, 10), Span(Origin.SAMPLED, 10, 12))  # fmt: skip
    path = PathTokens(
        ids=list(range(12)), spans=spans, ends=[12], drift=b"", spell=lambda index: decode([index]),
        decode=decode, media=two,
    )  # fmt: skip
    (runs,), skipped = path.runs()
    assert skipped == {3: 9, 7: 2, 12: 0, 1000: 0}[shown]
    assert [run.medium for run in runs if run.medium is not None] == [
        one for one in two if one.offset >= skipped
    ]
    assert sum(run.length for run in runs) == 12 - skipped
    assert sorted(decoded) == [index for index in range(skipped, 12) if not 2 <= index < 9]


def test_a_render_changes_all_ids_of_an_image_or_none() -> None:
    one = step("cat", "dog")
    assert sum(changed_prompt_ids(one, [1, 4, 7, 7, *TAIL], [2])) == 0
    assert list(changed_prompt_ids(one, [1, 4, 7, *TAIL], [2])) == [0] * 302 + [1] * 300 + [0] * len(TAIL)


@pytest.mark.parametrize(
    ("route", "words"),
    [
        (Route.TITO, "sent by ids"),
        (Route.MITO, "sent by messages"),
        (Route.KEPT, "kept ids"),
        (Route.RENDERED, "rendered here"),
    ],
)
async def test_a_page_says_how_a_prompt_was_sent(route: Route, words: str) -> None:
    assert len(Route) == 4
    assert f"{words} · prompt 306 ids · sampled 2 in 1.0 s" in await shown(step("cat"), route=route)
