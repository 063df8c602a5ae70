"""A turn whose text is not that of its ids is counted and logged, or is an error; no other turn is."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import attrs
import httpx2
import orjson
import pytest

from tests.io.serve.gateway import HELLO, client, opened, user
from tito_io.embedded import MODEL, family
from tito_io.embedded import app as embedded_app
from tito_io.engines.protocol import InvalidReplyError, Reply, Usage
from tito_io.engines.replies.spelling import OTHER_TEXT, Spelling
from tito_io.engines.vllm import CHAT, COMPLETIONS, VLLM
from tito_io.serve.gateway import Gateway, GatewayOptions, build_gateway
from tito_io.serve.stores import MemoryStore
from tito_io.serve.text_check import OnOtherText, TextCheck, least_ids

pytestmark = pytest.mark.anyio
Choices = list[dict[str, Any]]
"""The choice of an answer, or of each event of a stream."""
Edit = Callable[[Choices], None]
COUNTED = f'tito_notices_total{{name="{OTHER_TEXT}"}}'


def rename(choice: dict[str, Any], ids: list[int]) -> None:
    """Let a choice name other ids, in every place where it names them."""
    choice["logprobs"]["tokens"] = [f"token_id:{index}" for index in ids]
    if choice["token_ids"] is not None:
        choice["token_ids"] = ids


def ids_of(choice: dict[str, Any]) -> list[int]:
    return [int(name.removeprefix("token_id:")) for name in choice["logprobs"]["tokens"]]


def words(choices: Choices) -> Choices:
    """Return the events that are a word."""
    return [one for one in choices if one["text"].strip().isalpha()]


def wrong_id(choices: Choices) -> None:
    first = words(choices)[0]
    rename(first, [*ids_of(first)[:-1], ids_of(first)[-1] - 1])


def swapped_ids(choices: Choices) -> None:
    *before, one, other = ids_of(choices[0])
    rename(choices[0], [*before, other, one])


def swapped_texts(choices: Choices) -> None:
    one, other = words(choices)[:2]
    one["text"], other["text"] = other["text"], one["text"]


def text_of_another_turn(choices: Choices) -> None:
    choices[0]["text"] = "What another agent asked for"


def no_text(choices: Choices) -> None:
    for one in choices:
        one["text"] = ""


EDITS: dict[str, tuple[bool, Edit]] = {
    "a wrong token_id:N": (True, wrong_id),
    "swapped ids": (False, swapped_ids),
    "swapped deltas": (True, swapped_texts),
    "the text of another turn": (False, text_of_another_turn),
    "no text": (False, no_text),
    "a stream without text": (True, no_text),
}
"""What goes wrong on the way, and whether the turn is streamed."""


@attrs.define
class Edited(httpx2.AsyncBaseTransport):
    """The embedded engine behind something that changes what it answers on one route."""

    path: str
    edit: Edit
    inner: httpx2.ASGITransport = attrs.field(factory=lambda: httpx2.ASGITransport(embedded_app()))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self.inner.handle_async_request(request)
        body = await response.aread()
        if request.url.path == self.path:
            body = self.changed(body)
        headers = {name: value for name, value in response.headers.items() if name != "content-length"}
        return httpx2.Response(response.status_code, headers=headers, content=body)

    def changed(self, body: bytes) -> bytes:
        streamed, end = body.startswith(b"data: "), b"data: [DONE]\n\n"
        pieces = body.removesuffix(end).split(b"\n\n") if streamed else [body]
        events = [orjson.loads(piece.removeprefix(b"data: ")) for piece in pieces if piece]
        self.edit([event["choices"][0] for event in events if event["choices"]])
        if not streamed:
            return orjson.dumps(events[0])
        return b"".join(b"data: " + orjson.dumps(event) + b"\n\n" for event in events) + end


def edited_gateway(edit: Edit, on_other_text: str = "notice", path: str = COMPLETIONS) -> Gateway:
    engine = VLLM("http://embedded", transport=Edited(path, edit))
    options = GatewayOptions(on_other_text=OnOtherText(on_other_text))
    return build_gateway(engine, MemoryStore(), model=MODEL, family=family(), options=options)


async def second_turn(http: httpx2.AsyncClient, *, stream: bool, **more: Any) -> tuple[str, httpx2.Response]:
    """Return a session, and the answer to its second turn, which goes by ids; the first one by messages."""
    name = await opened(http)
    asked = {"max_tokens": 12, "seed": 3, **more}
    path = f"/sessions/{name}/v1/chat/completions"
    first = await http.post(path, json={"messages": HELLO, **asked})
    messages = [*HELLO, first.json()["choices"][0]["message"], user()]
    return name, await http.post(path, json={"messages": messages, **asked, "stream": stream})


@pytest.mark.parametrize("fault", EDITS)
async def test_a_text_that_is_not_of_the_ids_is_counted_and_logged(
    fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    stream, edit = EDITS[fault]
    async with client(edited_gateway(edit)) as http:
        with caplog.at_level(logging.WARNING, "tito.serve"):
            name, answer = await second_turn(http, stream=stream)
        calls = (await http.get(f"/sessions/{name}/calls")).text.splitlines()
        metrics = (await http.get("/metrics")).text
    assert (answer.status_code, len(calls)) == (200, 2)
    assert f"{COUNTED} 1.0" in metrics
    (line,) = [one.message for one in caplog.records if "the engine's text" in one.message]
    assert line.startswith(f"session {name[:8]}: the engine's text is not that of its ids, from sampled id ")
    assert " of 12 on: look whether --family is the folder of the engine's model" in line


@pytest.mark.parametrize("fault", EDITS)
async def test_such_a_turn_is_an_error_where_that_is_chosen_and_is_not_kept(fault: str) -> None:
    stream, edit = EDITS[fault]
    async with client(edited_gateway(edit, "raise")) as http:
        name, answer = await second_turn(http, stream=stream)
        calls = (await http.get(f"/sessions/{name}/calls")).text.splitlines()
    assert len(calls) == 1
    assert "--on-other-text notice keeps such turns" in answer.text
    assert answer.status_code == (200 if stream else 502)


async def test_a_second_turn_of_that_kind_is_logged_by_info_alone(caplog: pytest.LogCaptureFixture) -> None:
    async with client(edited_gateway(text_of_another_turn)) as http:
        with caplog.at_level(logging.INFO, "tito.serve"):
            for _ in range(2):
                await second_turn(http, stream=False)
    levels = [one.levelname for one in caplog.records if "the engine's text" in one.message]
    assert levels == ["WARNING", "INFO"]


def other_content(choices: Choices) -> None:
    choices[0]["message"].update(content="The message of another parser", reasoning=None)


async def test_a_message_that_the_servers_parsers_made_is_not_compared() -> None:
    """They leave out and move what they like, so that a difference would say nothing."""
    async with client(edited_gateway(other_content, "raise", CHAT)) as http:
        _, answer = await second_turn(http, stream=False)
        assert answer.status_code == 200
        assert COUNTED not in (await http.get("/metrics")).text


TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"max_tokens": 300},
        {"stop": ["the", " a"], "max_tokens": 100},
        {"tools": [TOOL], "max_tokens": 200},
        {"n": 3},
        {"chat_template_kwargs": {"enable_thinking": False}, "max_tokens": 100},
    ],
    ids=str,
)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_an_engine_really_says_is_no_difference(asked: dict[str, Any], *, stream: bool) -> None:
    more = {name: value for name, value in asked.items() if not (stream and name == "n")}
    async with client(edited_gateway(lambda _: None, "raise")) as http:
        for seed in range(6):
            _, answer = await second_turn(http, stream=stream, **{**more, "seed": seed})
            assert (answer.status_code, '"error"' in answer.text) == (200, False), answer.text


def reply(text: str, *, raw: Any = None, **fields: Any) -> Reply:
    ids = tuple(family().encode("so it is"))
    return Reply(
        prompt_ids=(),
        completion_ids=ids,
        logprobs=None,
        message=None,
        text=text,
        usage=Usage(prompt_tokens=0, completion_tokens=len(ids)),
        raw=raw or {},
        **{"finish_reason": "length", **fields},
    )


CHECK = TextCheck(Spelling.of(family()), OnOtherText.RAISE)


async def test_a_difference_in_any_of_several_turns_is_found() -> None:
    assert not CHECK.differs("s", attrs.evolve(reply("so it is"), siblings=(reply("so it is"),)), ())
    with pytest.raises(InvalidReplyError, match="from sampled id 1 of"):
        CHECK.differs("s", attrs.evolve(reply("so it is"), siblings=(reply("no it is"),)), ())


async def test_what_an_adapter_has_compared_is_as_it_says() -> None:
    with pytest.raises(InvalidReplyError, match="that of its ids: look whether"):
        CHECK.differs("s", reply("so it is", notices=(OTHER_TEXT,)), ())


@pytest.mark.parametrize(
    ("fields", "stops", "least"),
    [
        ({"finish_reason": "length"}, (), 0),
        ({"finish_reason": "length"}, ("x",), 0),
        ({"finish_reason": "stop"}, (), 1),
        ({"finish_reason": "tool_calls", "stop_reason": 7}, ("x",), 1),
        ({"finish_reason": "stop"}, ("x",), None),
        ({"finish_reason": "stop", "stop_reason": "x"}, (), None),
        ({"finish_reason": "abort"}, (), None),
    ],
)
async def test_how_many_ids_must_stand_in_a_text_depends_on_its_end(
    fields: dict[str, Any], stops: tuple[str, ...], least: int | None
) -> None:
    """All of one that was cut, all but a stop token, and none where a string or an abort ended it."""
    turn = reply("so it is", **fields)
    assert least_ids(turn, stops) == (0 if least is None else len(turn.completion_ids) - least)
