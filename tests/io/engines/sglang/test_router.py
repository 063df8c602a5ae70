"""SGLang behind its own router, which has no `/tokenize` and drops keys: a model folder renders and parses.

What the router 0.3.2 drops and rejects was seen by workers behind a real one, of `tests/engines/routers.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx2
import pytest

from tests.io.engines.scripted import MODEL, YES
from tests.io.engines.sglang.sglang_server import Mock, generated
from tito_io.engines.protocol import Rendering, RequestError, Sampling, UnsupportedError
from tito_io.engines.registry import EngineOptions, make_engine
from tito_io.engines.sglang import SGLang
from tito_io.engines.sglang.requests import GENERATE

pytestmark = pytest.mark.anyio

HELLO: list[Any] = [{"role": "user", "content": "Is it raining?"}]
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
GONE = httpx2.Response(404, json={"error": {"message": "", "type": "not_found"}})
CARDS = {"/v1/models": {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "local"}]}}
"""The router's own list, which states no context length."""


def answered(body: Mapping[str, Any]) -> dict[str, Any]:
    """Answer without an echo: the router has dropped the key that requests it."""
    length = len(body["input_ids"])
    ends = {"type": "stop", "matched": YES.ids[-1]}
    return generated(YES.ids, prompt=None, prompt_tokens=length, finish=ends, text="Yes.")


def routed(**options: Any) -> tuple[SGLang, Mock]:
    """Return an engine behind a router, and the router."""
    answers = {"/server_info": {"version": "0.5.23", "max_req_input_len": 2000}, GENERATE: answered}
    mock = Mock({**dict.fromkeys(("/tokenize", "/detokenize", "probe"), GONE), **CARDS, **answers})
    return SGLang("http://router:30000", transport=httpx2.MockTransport(mock), **options), mock


async def test_messages_are_rendered_with_the_folder_and_go_by_ids() -> None:
    engine, mock = routed(family=MODEL)
    reply = await engine.from_messages(HELLO, Rendering(), Sampling(max_tokens=9))
    ids = MODEL.ids(HELLO, add_generation_prompt=True)
    (body,) = mock.bodies(GENERATE)
    assert body["input_ids"] == list(reply.prompt_ids) == ids
    assert reply.message == {"role": "assistant", "content": "Yes."}
    assert (await engine.limits()).vocab_size == MODEL.vocab_size
    again = await engine.render(HELLO, Rendering(), add_generation_prompt=True)
    assert again == ids
    assert len(mock.bodies("/tokenize")) == 1, "the server is asked once"


@pytest.mark.parametrize("route", ["chat", "completions"])
async def test_routes_whose_ids_are_dropped_are_refused_before_anything_is_sent(route: Any) -> None:
    engine, mock = routed(family=MODEL, route=route)
    with pytest.raises(UnsupportedError, match="route='generate'"):
        await engine.from_ids([5, 6], Sampling(max_tokens=9))
    assert not [path for path, _ in mock.asked if path.endswith(("completions", GENERATE))]


async def test_images_by_messages_are_refused() -> None:
    engine, mock = routed(family=MODEL)
    messages = [{"role": "user", "content": [IMAGE]}]
    with pytest.raises(UnsupportedError, match="images"):
        await engine.from_messages(messages, Rendering(), Sampling(max_tokens=9))
    assert mock.bodies(GENERATE) == []


async def test_without_a_folder_nothing_is_sampled() -> None:
    engine, mock = routed(vocab_size=MODEL.vocab_size)
    with pytest.raises(RequestError, match=r"/tokenize answered 404"):
        await engine.from_ids([5, 6], Sampling(max_tokens=9))
    assert mock.bodies(GENERATE) == []


async def test_a_server_with_a_tokenizer_is_used_as_without_a_folder() -> None:
    mock = Mock({GENERATE: generated()})
    engine = SGLang("http://mock:30000", transport=httpx2.MockTransport(mock), family=MODEL)
    assert await engine.render(HELLO, Rendering(), add_generation_prompt=True) == [1, 2, 3]
    reply = await engine.from_ids([4, 5, 6], Sampling(max_tokens=2))
    assert reply.message == {"role": "assistant", "content": "hi"}


def test_the_command_line_passes_the_folder_on() -> None:
    engine = make_engine("sglang", EngineOptions(base_url="http://router:30000", family=MODEL))
    assert isinstance(engine, SGLang)
    assert engine.family is MODEL
