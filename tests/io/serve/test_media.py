"""Images through the gateway: by ids over all turns and dialects, their bytes once for each session."""

from __future__ import annotations

import base64
import ipaddress
import re
import socket
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import attrs
import httpx2
import pytest

from tests.faults.fault import ROOT
from tests.io.client.seeing import CAT, Seeing, asking, shown, url
from tests.io.families.family_folder import load, tiny_folder
from tests.io.serve.gateway import Talk, chat, client, opened, served, talking, user
from tito_core import InputError
from tito_core.ledger import Origin
from tito_io.engines.protocol import InvalidReplyError
from tito_io.serve import fetch
from tito_io.serve.commit import Commit
from tito_io.serve.fetch import MOST_IMAGES, FetchError, ImageFetcher, is_public
from tito_io.serve.gateway import Gateway, GatewayOptions, build_gateway
from tito_io.serve.media import MediumBytes, addresses_in, named_media, restored
from tito_io.serve.refusals import MIB, GatewayLimits, RequestRefused, error_reply
from tito_io.serve.sqlite import SqliteStore
from tito_io.serve.store import Store
from tito_io.serve.stores import MemoryStore

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio"])]  # as uvicorn's
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content or [] %}"
    "{% if part.type == 'image' %}<bos><image><eos>{% else %}{{ part.text }}{% endif %}"
    "{% endfor %}{% endif %}"
    "{% for call in m.tool_calls or [] %}{{ call.function.name }}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
DIGEST = named_media([CAT], ()).messages[0]["content"][0]["uuid"]


@pytest.fixture
async def talk(engine: Seeing, folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[Talk]:
    """Open a session of a gateway that has the model's folder, unless it has other options."""
    options = getattr(request, "param", {})
    if options is None:
        gateway = build_gateway(engine, MemoryStore(), model="seeing")
    else:
        gateway = gateway_of(engine, folder, **options)
    async with talking(gateway) as talk:
        yield talk


WITHOUT_FOLDER = pytest.mark.parametrize("talk", [None], indirect=True)


FETCHING = pytest.mark.parametrize("talk", [{"fetch_images": True}], indirect=True)


def limited_to(**limits: int) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("talk", [{"limits": GatewayLimits(**limits)}], indirect=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(
        tmp_path_factory.mktemp("model"), TEMPLATE, processor_config__json={"image_token": "<image>"}
    )


@pytest.fixture
def engine(folder: Path) -> Seeing:
    family = load(folder)
    pad, close = (family.tokenizer.token_to_id(one) for one in ("<image>", "<|im_end|>"))
    assert pad is not None
    assert close is not None
    return Seeing(pad=pad, close=close, encode=family.encode)


def gateway_of(engine: Seeing, folder: Path, store: Store | None = None, **options: Any) -> Gateway:
    return build_gateway(
        engine,
        store or MemoryStore(),
        model="seeing",
        family=load(folder),
        options=GatewayOptions(**options),
    )


def routes(turns: Sequence[Commit]) -> list[str]:
    return [one.origin.route for one in turns]


def named(digest: str = DIGEST, **more: Any) -> dict[str, Any]:
    """Return an image that a client names by its digest."""
    return {"type": "image_url", "image_url": {"url": digest}, **more}


async def two_turns(talk: Talk, then: Any) -> list[Commit]:
    await talk.chat([CAT, await talk.said([CAT]), then])
    return await talk.commits()


async def test_images_go_by_ids_from_the_first_turn_on(talk: Talk, engine: Seeing) -> None:
    first, second = await two_turns(talk, asking("And this?", shown("dog"), shown("cat")))
    assert routes([first, second]) == ["RENDERED", "TITO"]
    assert second.step.prompt_ids.starts_with(first.step.ids)
    assert [kind for kind, _ in engine.asked] == ["media", "media"]
    assert engine.asked[1][1] == [url(one) for one in ("cat", "dog", "cat")]
    assert [one.length for one in second.step.media] == [len(url(one)) for one in ("cat", "dog", "cat")]
    assert Origin.MEDIA in {span.origin for span in second.step.ledger.spans}
    assert 'tito_turns_total{dialect="chat",route="TITO"} 1.0' in talk.metrics
    assert "tito_refusals_total{" not in talk.metrics


async def test_bytes_are_kept_once_and_messages_name_them(talk: Talk) -> None:
    _, second = await two_turns(talk, asking("And this?", shown("cat")))
    stored = await talk.gateway.sessions.store.load(talk.name)
    assert stored.media == {DIGEST: len(b"image/png\ncat")}
    assert all(b"base64" not in row for row in stored.rows.values())
    assert second.step.prompt[0]["content"][0] == named(uuid=DIGEST)
    await talk.gateway.sessions.delete(talk.name)
    assert await talk.gateway.sessions.store.delete(talk.name) is False


async def test_a_row_lists_its_images_and_their_bytes_can_be_had(talk: Talk) -> None:
    _, second = await two_turns(talk, asking("And this?", shown("dog")))
    samples = (await talk.post({}, "/samples", headers={"accept": "application/json"})).json()
    (sample,) = samples["samples"]
    media = sample["metadata"]["leaf"]["media"]
    assert [(one["identity"], one["offset"], one["length"]) for one in media] == [
        (one.identity, one.offset, one.length) for one in second.step.media
    ]
    mask = [0] * (len(sample["tokens"]) - len(sample["loss_mask"])) + sample["loss_mask"]
    for one, picture in zip(media, ("cat", "dog"), strict=True):
        assert not any(mask[one["offset"] : one["offset"] + one["length"]])
        answer = await talk.get(f"/media/{one['identity']}")
        assert (answer.content, answer.headers["content-type"]) == (picture.encode(), "image/png")
        assert answer.headers["x-content-type-options"] == "nosniff"
    missing = await talk.get("/media/sha256:00")
    assert missing.status_code == 404
    assert "this session has no image sha256:00: give one of the digests" in missing.json()["error"]
    assert (await talk.http.get(f"/sessions/{'0' * 32}/media/{DIGEST}")).status_code == 404


async def test_a_session_that_is_loaded_again_goes_on_by_ids(
    engine: Seeing, folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "sessions.db"
    store = SqliteStore.open(file)
    async with talking(gateway_of(engine, folder, store)) as talk:
        first = await talk.said([CAT])
    await store.aclose()
    later = gateway_of(engine, folder, SqliteStore.open(file))
    async with client(later) as http:
        again, prompt = Talk(later, http, talk.name), [CAT, first, asking("And?", shown("dog"))]
        second = await again.said(prompt)
        await again.chat([asking("What?", named(uuid=DIGEST)), *prompt[1:], second, user("Sure?")])
        assert routes(await again.commits()) == ["RENDERED", "TITO", "TITO"]
    assert engine.asked[-1] == ("media", [url("cat"), url("dog")])
    await later.sessions.store.aclose()


def responses(name: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "input_image", "image_url": url(name), "detail": "auto"}]}


def anthropic(name: str) -> dict[str, Any]:
    data = base64.b64encode(name.encode()).decode()
    source = {"type": "base64", "media_type": "image/png", "data": data}
    return {"role": "user", "content": [{"type": "image", "source": source}]}


def google(name: str) -> dict[str, Any]:
    data = base64.b64encode(name.encode()).decode()
    return {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": data}}]}


@pytest.mark.parametrize(
    ("path", "field", "image", "said"),
    [
        ("/v1/responses", "input", responses, lambda body: body["output"]),
        (
            "/v1/messages",
            "messages",
            anthropic,
            lambda body: [{"role": "assistant", "content": body["content"]}],
        ),
        (
            "/v1beta/models/any:generateContent",
            "contents",
            google,
            lambda body: [body["candidates"][0]["content"]],
        ),
    ],
)
async def test_each_dialect_sends_images(path: str, field: str, image: Any, said: Any, talk: Talk) -> None:
    items: list[Any] = []
    for name in ("cat", "dog"):
        items.append(image(name))
        answer = await talk.post({field: items, **({"max_tokens": 50} if field == "messages" else {})}, path)
        assert answer.status_code == 200, answer.text
        items += said(answer.json())
    first, second = await talk.commits()
    assert routes([first, second]) == ["RENDERED", "TITO"]
    assert second.step.prompt_ids.starts_with(first.step.ids)
    assert [one.identity == DIGEST for one in second.step.media] == [True, False]
    rows = (await talk.gateway.sessions.store.load(talk.name)).rows.values()
    assert not any(base64.b64encode(b"cat") in row for row in rows)


async def test_a_tool_result_and_a_stream(talk: Talk, engine: Seeing) -> None:
    first = await talk.said([user("Look.")])
    result = asking("7", shown("map"), role="user")
    streamed = await talk.post({"messages": [user("Look."), first, result], "stream": True})
    assert streamed.status_code == 200
    assert engine.watched == [False, True]
    turns = await talk.commits()
    assert routes(turns) == ["MITO", "TITO"]
    assert len(turns[1].step.media) == 1


# By messages: what cannot go by ids has its bytes all the same.


@pytest.mark.parametrize("talk", [{}, None], indirect=True, ids=["folder", "no folder"])
async def test_an_engine_without_images_beside_ids_gets_messages_with_their_bytes(
    talk: Talk, engine: Seeing
) -> None:
    engine.refuses = talk.gateway.turns.guard is not None
    turns = await two_turns(talk, asking("And this?", shown("dog", detail="low")))
    assert routes(turns) == ["MITO", "MITO"]
    assert [one.origin.refusal for one in turns] in (["MULTIMODAL", "MULTIMODAL"], [None, "MULTIMODAL"])
    (_, sent) = engine.asked[1]
    assert (sent[0], sent[2]) == (CAT, asking("And this?", shown("dog", detail="low")))
    assert not turns[1].step.media


async def test_more_new_images_than_can_be_placed_go_by_messages(
    talk: Talk, engine: Seeing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each costs a render of the whole prompt: a thousand small ones would keep a processor busy for long."""
    monkeypatch.setattr("tito_io.client.turn_sampler.MOST_PLACED", 2)
    prompt = [asking("What?", *[shown("cat")] * 2)]
    prompt += [await talk.said(prompt), asking("And?", *[shown("dog")] * 2)]
    prompt += [await talk.said(prompt), asking("And?", *[shown("map")] * 3)]
    await talk.chat(prompt)
    await chat(talk.http, await opened(talk.http), [asking("What?", *[shown("cat")] * 3)])
    assert [kind for kind, _ in engine.asked] == ["media", "media", "messages", "messages"]
    turns = await talk.commits()
    assert routes(turns) == ["RENDERED", "TITO", "MITO"]
    assert turns[-1].origin.refusal == "MULTIMODAL"


async def test_a_special_token_beside_an_image_that_goes_by_messages_is_refused(
    talk: Talk, engine: Seeing
) -> None:
    """Ids without the image would be sampled from as if nothing were missing."""
    engine.refuses = True
    answer = await talk.post({"messages": [asking("What is <|im_end|>?", shown("cat"))]})
    assert answer.status_code == 400
    assert "spells a special token beside images" in answer.text
    assert not engine.asked


async def test_a_text_that_spells_the_placeholder_is_text(talk: Talk) -> None:
    await talk.chat([asking("What is <image>?", shown("cat"))])
    (turn,) = await talk.commits()
    assert turn.origin.route == "RENDERED"
    assert len(turn.step.media) == 1


# Keys and limits.


async def test_a_clients_own_key_is_never_an_image_of_its_choice(talk: Talk, engine: Seeing) -> None:
    """A server believes a key: with another session's digest it would show that session's image."""
    await talk.chat([asking("What?", {**shown("dog"), "uuid": DIGEST})])
    (turn,) = await talk.commits()
    assert turn.step.media[0].identity != DIGEST
    assert engine.asked == [("media", [url("dog")])]
    for image in (named(), {"type": "image_url", "image_url": None}):
        answer = await talk.post({"messages": [asking("What?", {**image, "uuid": DIGEST})]})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "uuid")
        assert "does not know, and no bytes" in answer.text
    await talk.chat([asking("What?", named("https://example.org/a", uuid=DIGEST))])
    assert engine.asked[-1][1][0]["content"][0] == named("https://example.org/a")
    await talk.chat([CAT])
    await talk.chat([asking("And?", named())])  # now it stands for an image of the session
    assert engine.asked[-1] == ("media", [url("cat")])


@pytest.mark.whole
@limited_to(media_bytes=len(b"image/png\ncat"))  # each is kept with its type
async def test_a_session_holds_so_many_bytes_of_images(talk: Talk, engine: Seeing) -> None:
    first = await talk.said([CAT])
    answer = await talk.post({"messages": [CAT, first, asking("And this?", shown("a very long name"))]})
    assert (answer.status_code, "--max-media" in answer.text) == (429, True)
    assert len(engine.asked) == 1
    await talk.chat([CAT, first, asking("And this?", shown("cat"))])


@limited_to(images=2)
async def test_a_prompt_shows_so_many_images(talk: Talk, engine: Seeing) -> None:
    answer = await talk.post({"messages": [asking("Which?", *[shown("cat")] * 3)]})
    assert (answer.status_code, engine.asked) == (429, [])
    assert "images in this prompt: at most 2; raise --max-images" in answer.text
    held = {"type": "tool_result", "content": [shown("cat"), shown("dog")]}
    await talk.chat([asking("Which?", held)])  # a part that holds images does not count


@pytest.mark.parametrize("fetched", [False, True])
async def test_an_image_that_the_store_lost_is_put_back_with_its_bytes(
    engine: Seeing, folder: Path, tmp_path: Path, *, fetched: bool
) -> None:
    store = SqliteStore.open(tmp_path / "sessions.sqlite")
    gateway = gateway_of(engine, folder, store, fetch_images=fetched)
    if fetched:
        gateway.turns.fetcher = ImageFetcher.of(allowed=lambda _: True)
    async with served(web := Web()) as base, talking(gateway) as talk:
        whole = at(f"{base}/cat") if fetched else CAT
        await talk.chat([whole])
        with closing(sqlite3.connect(tmp_path / "sessions.sqlite")) as database, database:
            assert database.execute("DELETE FROM media").rowcount == 1
        answer = await talk.post({"messages": [whole if fetched else asking("And?", named())]})
        assert (answer.status_code, "lost an image" in answer.text) == (503, True)
        assert len(engine.asked) == 1
        await talk.chat([whole])
        assert fetched or list(await store.media(talk.name, [DIGEST])) == [DIGEST]
        assert web.asked == ["/cat", "/cat"] * fetched
    await store.aclose()


async def test_a_turn_is_continued_after_its_images(talk: Talk, engine: Seeing) -> None:
    prompt = [CAT, await talk.said([CAT])]
    await talk.chat(prompt, continue_final_message=True, add_generation_prompt=False)
    first, second = await talk.commits()
    assert routes([first, second]) == ["RENDERED", "TITO"]
    assert engine.asked[1] == ("media", [url("cat")])
    assert second.step.media == first.step.media
    assert second.step.prompt_ids.tolist() == first.step.ids.tolist()[:-1]


async def test_a_turn_whose_images_look_otherwise_now_is_not_continued(
    talk: Talk, engine: Seeing, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors: list[Exception] = []

    def noted(error: Exception, *given: Any) -> Any:
        errors.append(error)
        return error_reply(error, *given)

    monkeypatch.setattr("tito_io.serve.turn_handler.error_reply", noted)
    prompt = [CAT, await talk.said([CAT])]
    engine.spoils = True
    answer = await talk.post(
        {"messages": prompt, "continue_final_message": True, "add_generation_prompt": False}
    )
    assert answer.status_code == 502
    assert "seeing: the engine saw another prompt than the one that was sent" in answer.text
    assert len(await talk.commits()) == 1
    (error,) = errors
    assert isinstance(error, InvalidReplyError)
    assert error.partial is not None
    assert error.partial.completion_ids


async def test_an_id_of_a_response_stands_for_its_images(talk: Talk, engine: Seeing) -> None:
    first = (await talk.post({"input": [responses("cat")]}, "/v1/responses")).json()
    again = await talk.post({"input": "Sure?", "previous_response_id": first["id"]}, "/v1/responses")
    assert again.status_code == 200
    assert routes(await talk.commits()) == ["RENDERED", "TITO"]
    assert engine.asked[1] == ("media", [url("cat")])


# Images by address.


WEB: dict[str, tuple[int, dict[str, str], bytes]] = {
    "/moved": (302, {"location": "/cat"}, b""),
    "/loop": (302, {"location": "/loop"}, b""),
    "/away": (302, {"location": "file:///etc/passwd"}, b""),
    "/inside": (302, {"location": "data:image/png,abc"}, b""),
    "/typed": (200, {"content-type": "Image/PNG; charset=binary"}, b"/typed"),
    "/page": (200, {"content-type": "text/html"}, b"/page"),
    "/comma": (200, {"content-type": "image/png,x"}, b"/comma"),
    "/gone": (404, {}, b""),
    "/long": (200, {}, b"x" * 5_000),
    "/empty": (200, {}, b""),
    "/packed": (200, {"content-encoding": "gzip"}, b"/packed"),
}
"""Status, headers and body by path; any other path is an image."""


@attrs.frozen
class Web:
    """A server on this machine with a few images."""

    asked: list[str] = attrs.field(factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await no_lifespan(receive, send)
        path = scope["path"]
        assert scope["method"] == "GET"
        self.asked.append(path)
        status, headers, body = WEB.get(path, (200, {}, path.encode()))
        headers = {"content-type": "image/png", **headers}
        raw = [(key.encode(), value.encode()) for key, value in headers.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": body})
        return None


async def no_lifespan(receive: Any, send: Any) -> None:
    for kind in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{kind}.complete"})


def at(address: str) -> dict[str, Any]:
    return asking("What?", {"type": "image_url", "image_url": {"url": address}})


async def test_an_address_goes_by_messages_unless_the_operator_lets_it_be_fetched(
    talk: Talk, engine: Seeing
) -> None:
    await talk.chat([at("https://example.org/cat.png")])
    assert engine.asked == [("messages", [at("https://example.org/cat.png")])]
    assert routes(await talk.commits()) == ["MITO"]


@FETCHING
async def test_an_image_is_fetched_once_and_then_it_is_that_image(talk: Talk, engine: Seeing) -> None:
    talk.gateway.turns.fetcher = ImageFetcher.of(allowed=lambda _: True)
    async with served(web := Web()) as base:
        first = await talk.said([at(f"{base}/cat")])
        talk.unload()
        await talk.chat([at(f"{base}/cat"), first, asking("And?", at(f"{base}/moved")["content"][0])])
        turns = await talk.commits()
        assert web.asked == ["/cat", "/moved", "/cat"]
        assert routes(turns) == ["RENDERED", "TITO"]
        assert turns[1].step.media[0].identity == turns[1].step.media[1].identity
        picture = f"data:image/png;base64,{base64.b64encode(b'/cat').decode()}"
        assert engine.asked[1] == ("media", [picture, picture])
        talk.unload()
        await talk.chat([at(f"{base}/dog")])
        await talk.chat([at(f"{base}/moved"), at(f"{base}/cat")])
        talk.unload()
        await talk.chat([at(f"{base}/cat"), at(f"{base}/dog"), at(f"{base}/moved")])
        assert web.asked[3:] == ["/dog"]
        engine.refuses = True
        await talk.chat([at(f"{base}/cat")])
        assert engine.asked[-1][1][0]["content"][0]["image_url"]["url"] == picture


@pytest.fixture
async def fetcher() -> AsyncIterator[ImageFetcher]:
    """Return a fetcher for which all addresses are public."""
    found = ImageFetcher.of(allowed=lambda _: True)
    yield found
    assert not found.client.is_closed
    await found.aclose()
    assert found.client.is_closed


@FETCHING
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/gone", "answers with status 404"),
        ("/page", "does not answer with an image"),
        ("/long", "more than 4000 bytes"),
        ("/loop", "more than 3 redirections"),
        ("/away", "another scheme"),
        ("/inside", "another scheme"),
        ("/comma", "does not answer with an image"),
        ("/empty", "has no bytes"),
        ("/packed", "does not answer with an image"),
    ],
)
async def test_what_cannot_be_fetched_is_the_requests_error(
    talk: Talk, engine: Seeing, fetcher: ImageFetcher, path: str, why: str
) -> None:
    talk.gateway.turns.fetcher = attrs.evolve(fetcher, most_bytes=4000)
    async with served(Web()) as base:
        answer = await talk.post({"messages": [user(), at(f"{base}{path}")]})
        assert answer.status_code == 400
        assert re.search(f"image 1 cannot be fetched: .*{why}", answer.text)
        assert base not in answer.text
    assert not engine.asked


@FETCHING
@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "[::1]", "169.254.169.254", "10.1.2.3", "0", "[::ffff:10.0.0.1]"]
)
async def test_addresses_inside_of_a_network_are_not_fetched(talk: Talk, host: str) -> None:
    answer = await talk.post({"messages": [at(f"http://{host}:9/x.png")]})
    assert (answer.status_code, "not public" in answer.text) == (400, True)


@pytest.mark.parametrize(
    "ip",
    [
        *("::127.0.0.1", "::ffff:0:10.0.0.1", "fec0::1", "64:ff9b:1::7f00:1", "64:ff9b::7f00:1"),
        *("2002:7f00:1::1", "2001:0:7f00:1::1", "192.0.0.192", "192.88.99.1", "168.63.129.16"),
        *("2606:4700::5efe:7f00:1", "2606:4700::200:5efe:10.0.0.1", "3fff::1", "3fff:fff::1"),
    ],
)
async def test_an_address_that_stands_for_another_or_serves_machines_is_not_public(ip: str) -> None:
    """The module `ipaddress` calls some of them global, which of them differs with the version."""
    assert not is_public(ipaddress.ip_address(ip))
    assert is_public(ipaddress.ip_address("2606:4700::1111"))
    assert is_public(ipaddress.ip_address("64:ff9b::1.1.1.1"))
    assert is_public(ipaddress.ip_address("2606:4700::5efe:1.1.1.1"))


async def test_an_address_of_the_machine_itself_is_not_fetched_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine may have a public address, with services on it that listen for neighbours alone."""
    monkeypatch.setattr(fetch, "is_public", lambda _: True)
    assert not fetch.may_be_fetched_from(ipaddress.ip_address("127.0.0.1"))
    assert fetch.may_be_fetched_from(ipaddress.ip_address("1.1.1.1"))


INSIDE, OUTSIDE = "10.1.2.3", "1.1.1.1"


@pytest.mark.parametrize("found", [(INSIDE, OUTSIDE), (OUTSIDE, INSIDE), (OUTSIDE, "::1", OUTSIDE), ()])
@pytest.mark.parametrize("redirected", [False, True])
async def test_a_host_with_one_address_inside_of_the_network_is_not_asked(
    monkeypatch: pytest.MonkeyPatch, found: tuple[str, ...], *, redirected: bool
) -> None:
    """A name may have public and other addresses; the next answer to the same question may begin with any."""
    asked: list[str] = []

    async def resolved(host: str, port: int | None, **_: object) -> list[Any]:
        chosen = found if host == "mixed.example" else (OUTSIDE,)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, port)) for ip in chosen]

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(str(request.url.host))
        return httpx2.Response(302, headers={"location": "http://mixed.example/cat.png"})

    monkeypatch.setattr("anyio.getaddrinfo", resolved)
    fetcher = ImageFetcher(httpx2.AsyncClient(transport=httpx2.MockTransport(answer)))
    with pytest.raises(FetchError, match="its host has an address that is not public"):
        await fetcher.fetch(f"http://{'public' if redirected else 'mixed'}.example/cat.png")
    assert asked == [OUTSIDE] * redirected
    await fetcher.aclose()


async def test_a_server_shows_the_certificate_of_its_name() -> None:
    """It is asked at the address that was checked, and by its name."""
    seen: list[httpx2.Request] = []

    async def cat() -> AsyncIterator[bytes]:
        yield b"cat"

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(200, headers={"content-type": "image/png"}, content=cat())

    transport = httpx2.MockTransport(answer)
    fetcher = ImageFetcher(httpx2.AsyncClient(transport=transport), allowed=lambda _: True)
    assert await fetcher.fetch("https://localhost:7/cat.png#top") == shown("cat")["image_url"]["url"]
    (request,) = seen
    assert request.extensions["sni_hostname"] == "localhost"
    assert request.headers["host"] == "localhost:7"
    assert request.url.host in ("127.0.0.1", "::1")
    await fetcher.aclose()


def mocked(body: bytes, **limits: Any) -> ImageFetcher:
    """Return a fetcher for which every address has an image of these bytes; `/hop/3` is three hops away."""

    async def stream() -> AsyncIterator[bytes]:
        yield body

    def answer(request: httpx2.Request) -> httpx2.Response:
        *path, last = request.url.path.split("/")
        if path[-1:] == ["hop"] and last != "0":
            return httpx2.Response(302, headers={"location": str(int(last) - 1)})
        return httpx2.Response(200, headers={"content-type": "image/png"}, content=stream())

    client = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
    return attrs.evolve(ImageFetcher(client, allowed=lambda _: True), **limits)


ODD_IMAGES: list[dict[str, Any]] = [
    {"type": "image_url"},
    {"type": "image_url", "image_url": None},
    {"type": "image_url", "image_url": 7},
    {"type": "image_url", "image_url": ["https://example.org/cat.png"]},
    {"type": "image_url", "image_url": {"url": 7}},
    {"type": "image_url", "image_url": {"url": ["https://example.org/cat.png"]}},
]


@pytest.mark.parametrize("part", ODD_IMAGES)
async def test_an_image_of_another_form_is_left_to_the_engine(part: dict[str, Any]) -> None:
    asked = [asking("What?", part)]
    assert list(named_media(asked, ()).messages) == asked
    assert await ImageFetcher.of().all(asked, {}) == {}
    assert addresses_in([asking("What?", {**part, "uuid": DIGEST})]) == {}


@pytest.mark.parametrize("part", ODD_IMAGES[:2])
async def test_a_key_alone_stands_for_an_image_whatever_was_in_the_place_of_its_address(
    part: dict[str, Any],
) -> None:
    found = named_media([asking("What?", {**part, "uuid": DIGEST})], {DIGEST})
    (image, _) = found.messages[0]["content"]
    assert (image["uuid"], image["image_url"]) == (DIGEST, {"url": DIGEST})
    assert found.unsent == {DIGEST}
    (back,) = restored(found.messages, {DIGEST: url("cat")})
    assert back["content"][0] == shown("cat")
    beside = {"type": "image_url", "image_url": {"detail": "low"}, "path": None, "uuid": DIGEST}
    (message,) = named_media([asking("What?", beside)], {DIGEST}).messages
    assert {**beside, "image_url": {"detail": "low", "url": DIGEST}} in message["content"]


async def test_an_image_may_be_as_long_as_its_limit_and_three_redirections_away() -> None:
    fetcher = mocked(b"cats", most_bytes=4)
    whole = await fetcher.fetch("http://127.0.0.1/hop/3")
    assert whole == shown("cats")["image_url"]["url"]
    with pytest.raises(FetchError, match="more than 3 redirections"):
        await fetcher.fetch("http://127.0.0.1/hop/4")
    with pytest.raises(FetchError, match="more than 3 bytes"):
        await attrs.evolve(fetcher, most_bytes=3).fetch("http://127.0.0.1/cat")
    together = attrs.evolve(fetcher, most_together=2 * len(whole))
    two = [at(f"http://127.0.0.1/{place}") for place in range(2)]
    assert len(await together.all(two, {})) == 2
    assert len(await together.all([*two, at("http://127.0.0.1/2")], {"http://127.0.0.1/0": DIGEST})) == 3
    short = attrs.evolve(fetcher, most_together=2 * len(whole) - 1)
    with pytest.raises(RequestRefused, match="image 2 cannot be fetched: with those before it") as refused:
        await short.all(two, {})
    assert refused.value.parameter == "messages"
    await fetcher.aclose()


async def test_too_many_addresses_are_refused_and_no_fewer() -> None:
    many = [at(f"http://127.0.0.1/{place}") for place in range(MOST_IMAGES + 1)]
    fetcher = mocked(b"cat")
    assert len(await fetcher.all(many[1:], {})) == MOST_IMAGES
    assert len(await fetcher.all(many, {"http://127.0.0.1/7": "known"})) == MOST_IMAGES + 1
    with pytest.raises(RequestRefused, match="33 images to fetch") as refused:
        await fetcher.all(many, {})
    assert refused.value.parameter == "messages"
    await fetcher.aclose()


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would resolve the name again, and reach what the gateway may not."""
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
        monkeypatch.setenv(name.upper(), "http://127.0.0.1:1")
    fetcher = ImageFetcher.of(allowed=lambda _: True)
    async with served(Web()) as base:
        found = await fetcher.fetch(f"{base}/typed")  # a type may have parameters and capitals
    await fetcher.aclose()
    assert found == f"data:image/png;base64,{base64.b64encode(b'/typed').decode()}"


async def test_no_connection_is_used_again(fetcher: ImageFetcher) -> None:
    """Another host may have the same address, and another certificate."""
    ports: list[int] = []
    web = Web()

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            ports.append(scope["client"][1])
        await web(scope, receive, send)

    async with served(watched) as base:
        await fetcher.all([at(f"{base}/cat"), at(f"{base}/dog")], {})
    assert len(set(ports)) == len(ports) == 2


@WITHOUT_FOLDER
async def test_images_inside_of_parts_and_in_other_forms_are_sent_as_they_came(
    talk: Talk, engine: Seeing
) -> None:
    """Some engines take the address of an `input_image` as a text alone."""
    await talk.chat([asked := asking("What?", {"type": "input_image", "image_url": url("cat")})])
    assert engine.asked == [("messages", [asked])]
    await talk.chat([asking("What?", {"type": "tool_result", "content": [named(uuid=DIGEST)]})])
    (_, (message,)) = engine.asked[1]
    assert message["content"][0]["content"] == [shown("cat")]


@pytest.mark.parametrize(
    ("head", "mime"),
    [
        ("data:image/PNG;name=cat.png;base64", "image/png"),
        ("DATA:image/svg+xml;base64", "image/svg+xml"),
        ("data:;base64", "application/octet-stream"),
        ("data:image;base64", "application/octet-stream"),
        ("data:text/html\nx-evil: 1;base64", "application/octet-stream"),
        ("data:image/<b>;base64", "application/octet-stream"),
    ],
)
async def test_bytes_have_a_type_that_can_stand_in_a_header(head: str, mime: str) -> None:
    """It is the `content-type` of the image's own route, and a client chose it."""
    found = MediumBytes.of_url(f"{head},aGk=")
    assert found == MediumBytes(mime, b"hi")
    assert MediumBytes.decoded(found.encoded()) == found


@pytest.mark.parametrize("body", ["aGk", "a Gk=", "aGk=x", "aGk=,aGk=", "é"])
async def test_bytes_that_are_not_base64_are_an_error(body: str) -> None:
    with pytest.raises(InputError, match="give its bytes in base64"):
        MediumBytes.of_url(f"data:image/png;base64,{body}")


async def test_two_images_that_were_fetched_are_never_one() -> None:
    """A key that stands for no bytes would be one key for all of them."""
    for data in ("", ",abc"):
        with pytest.raises(RequestRefused, match="no bytes"):
            named_media([at("http://a/")], (), {"http://a/": f"data:image/png{data}"})


@pytest.mark.parametrize(
    "part",
    [
        {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,aGk="}},
        {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
        {"type": "tool_result", "content": [shown("cat")]},
        {"type": "image", "image": "https://example.org/cat.png"},
        {"type": "image", "source": {"type": "file", "file_id": "f1"}},
        {"type": "image", "path": "/cat.png"},
        {"type": "image", "data": "no-data-url"},
        {"type": "image", "url": "https://example.org/cat.png"},
    ],
)
async def test_another_medium_with_a_key_has_its_bytes(part: dict[str, Any]) -> None:
    named = named_media([asking("What?", {**part, "uuid": DIGEST})], {DIGEST})
    assert restored(named.messages, named.urls) == [asking("What?", part)]
    alone = {"type": part["type"], "uuid": DIGEST}
    if part["type"] == "video_url":
        with pytest.raises(RequestRefused, match="one video of the prompt has a `uuid`"):
            named_media([asking("What?", alone)], {DIGEST})


@pytest.mark.parametrize("more", [{"image": "https://example.org/cat.png"}, {"type": "video_url"}])
async def test_named_messages_are_named_once(more: dict[str, Any]) -> None:
    """A request that continues a response by its id has the messages as they were stored."""
    named = named_media([asking("What?", {**shown("cat"), **more})], ())
    assert named_media(named.messages, set(named.urls)).messages == named.messages


async def test_parts_inside_of_parts_get_their_bytes_back() -> None:
    inner = {"type": "tool_result", "content": [shown("cat"), {"type": "text", "text": "?"}]}
    messages: list[Any] = [user(), {"role": "tool", "content": [inner, shown("dog", detail="low")]}]
    named = named_media(messages, ())
    assert "base64" not in str(named.messages)
    assert restored(named.messages, named.urls) == messages
    assert len(named.new) == 2


async def test_a_page_says_what_is_fetched_at_most() -> None:
    page = " ".join((ROOT / "docs/howto/images.md").read_text().split())
    one = ImageFetcher.of()
    each = f"at most {one.most_bytes // MIB} MiB and {one.seconds:g} seconds for each"
    assert f"{each}, {MOST_IMAGES} and {one.most_together // MIB} MiB in one request" in page


async def test_only_addresses_of_the_web_are_fetched(fetcher: ImageFetcher) -> None:
    async with served(web := Web()) as base:
        known = f"{base}/known"
        parts = [
            {"type": "text", "text": "hi"},
            *(named(one) for one in (url("cat"), DIGEST, f"{base}/a", known, f"{base}/a")),
            {"type": "image_url", "image_url": {}},
        ]
        found = await fetcher.all([user(), asking("What?", *parts)], {known: "a digest", "other": "unused"})
    picture = f"data:image/png;base64,{base64.b64encode(b'/a').decode()}"
    assert found == {f"{base}/a": picture, known: "a digest"}
    assert web.asked == ["/a"]


@pytest.mark.whole
async def test_a_server_that_takes_too_long_is_given_up(fetcher: ImageFetcher) -> None:
    async def slow(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await no_lifespan(receive, send)
        else:
            await anyio.sleep(5)

    async with served(slow) as base:
        with anyio.fail_after(3), pytest.raises(FetchError, match=r"it took more than 0\.2 seconds"):
            await attrs.evolve(fetcher, seconds=0.2).fetch(f"{base}/cat")
