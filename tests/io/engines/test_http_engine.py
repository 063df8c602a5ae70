"""A complete adapter of a small server: what `HttpEngine` leaves for a new one to write."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import httpx2
import orjson
import pytest

from tito_core import Ids, InputError, Message
from tito_io.engines.dynamo import Dynamo
from tito_io.engines.family_engine import FamilyEngine
from tito_io.engines.http_engine import HttpEngine, ServedModel, TurnAfterIds
from tito_io.engines.openai_fields import rendering_keys, sampling_keys, wire_messages
from tito_io.engines.protocol import (
    AbortedError,
    Delta,
    EngineError,
    InvalidReplyError,
    ModelLimits,
    OverlongError,
    Rendering,
    Reply,
    SampleRequest,
    Sampling,
    Watch,
)
from tito_io.engines.replies.chunks import choice_text, chunk_logprobs
from tito_io.engines.replies.invariants import Check
from tito_io.engines.served_tokenizer import ServedTokenizer
from tito_io.engines.sglang import SGLang
from tito_io.engines.turn_groups import TurnGroups
from tito_io.engines.turn_request import (
    ReplyPart,
    TurnRequest,
    partial_reply,
)
from tito_io.engines.vllm import VLLM

pytestmark = pytest.mark.anyio

OWN_ERRORS = re.compile(r"messages must be a list")
OWNED = frozenset(("max_tokens", "n", "prompt", "return_token_ids", "seed", "stop", "temperature"))


# The adapter.


@attrs.frozen(kw_only=True)
class SmallRequest(TurnRequest):
    """One request for a turn, by ids or by messages."""

    sent: Ids | None = None

    def read(self, check: Check, body: Any) -> Reply:
        choice = check.choice(body)
        ids = check.ids(choice, "token_ids")
        prompt = check.ids(body, "prompt_token_ids")
        if self.sent is not None:
            check.echo(prompt, self.sent)
        return Reply(
            prompt_ids=prompt,
            completion_ids=ids,
            logprobs=check.logprobs(chunk_logprobs(choice), len(ids)),
            message=None,
            text=choice_text(choice),
            finish_reason=check.finish_reason(choice),
            usage=check.usage(body, prompt, ids),
            raw=body,
        )

    def partial(self, check: Check, body: Any) -> Reply | None:
        parts = [
            ReplyPart(one.get("token_ids") or (), chunk_logprobs(one), choice_text(one))
            for one in body["choices"]
        ]
        return partial_reply(check, self.sent or (), parts, body)


class Small(HttpEngine):
    """The server's adapter."""

    name = "small"

    async def render(
        self, messages: Sequence[Message], rendering: Rendering, *, add_generation_prompt: bool
    ) -> Sequence[int]:
        tokenizer = ServedTokenizer(wire=self._wire, encode_keys={}, decode_keys={}, text_key="text")
        body = {"messages": wire_messages(messages), **rendering_keys(rendering)}
        return await tokenizer.render({**body, "add_generation_prompt": add_generation_prompt}, OWN_ERRORS)

    async def _sample_messages(self, request: SampleRequest) -> Reply:
        prompt = {"messages": wire_messages(request.messages or ()), **rendering_keys(request.rendered_with)}
        return await self._turn(prompt, request.sampling, request.sampling.max_tokens, None, request.watch)

    async def _sample(self, turn: TurnAfterIds) -> Reply:
        return await self._turn({"prompt": turn.ids}, turn.sampling, turn.max_tokens, turn.ids, turn.watch)

    async def _turn(
        self,
        prompt: Mapping[str, Any],
        sampling: Sampling,
        limit: int | None,
        sent: Ids | None,
        watch: Watch | None,
    ) -> Reply:
        keys = {**sampling_keys(sampling, limit, OWNED), **sampling.extra, "return_token_ids": True}
        body = {"model": (await self.served()).name, **prompt, **keys}
        request = SmallRequest(
            wire=self._wire,
            path="/v1/completions",
            body=body,
            sent=sent,
            conversation=sampling.conversation,
        )
        return await self._send(request, watch, "completions")


# Its server.


@attrs.define
class Server:
    """Answers every prompt with the same ids; keeps the requests."""

    ids: tuple[int, ...] = (7, 8)
    echo: tuple[int, ...] | None = None
    finish_reason: str | None = "stop"
    cards: tuple[Mapping[str, Any], ...] = ({"id": "m", "max_model_len": 8},)
    models: httpx2.Response | None = None
    requests: list[tuple[str, Any]] = attrs.field(factory=list)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        body: Any = orjson.loads(request.content) if request.content else None
        self.requests.append((request.url.path, body))
        if request.url.path == "/v1/models":
            return self.models or httpx2.Response(200, json={"data": list(self.cards)})
        if request.url.path == "/tokenize":
            return httpx2.Response(200, json={"tokens": [4, 5, 6]})
        if request.method == "GET":
            return httpx2.Response(404)
        return self.streamed(body) if body.get("stream") else httpx2.Response(200, json=self.whole(body))

    def whole(self, body: Mapping[str, Any]) -> dict[str, Any]:
        prompt = self.echo or body.get("prompt") or [4, 5, 6]
        choice = {
            "index": 0,
            "text": "ab",
            "token_ids": self.ids,
            "logprobs": {"token_logprobs": [-0.5] * len(self.ids)},
            "finish_reason": self.finish_reason,
        }
        usage = {"prompt_tokens": len(prompt), "completion_tokens": len(self.ids)}
        return {"choices": [choice], "prompt_token_ids": prompt, "usage": usage}

    def streamed(self, body: Mapping[str, Any]) -> httpx2.Response:
        answer = self.whole(body)
        (choice,) = answer.pop("choices")
        chunks = [
            {
                "choices": [
                    {
                        "index": 0,
                        "text": letter,
                        "token_ids": [index],
                        "logprobs": {"token_logprobs": [-0.5]},
                        "finish_reason": choice["finish_reason"] if index == self.ids[-1] else None,
                    }
                ]
            }
            for letter, index in zip("ab", self.ids, strict=True)
        ]
        events = [*chunks, {**answer, "choices": []}]
        text = "".join(f"data: {orjson.dumps(event).decode()}\n\n" for event in events)
        return httpx2.Response(
            200, text=f"{text}data: [DONE]\n\n", headers={"content-type": "text/event-stream"}
        )


def engine_of(server: Server, **options: Any) -> Small:
    return Small("http://small:1", transport=httpx2.MockTransport(server), **options)


HELLO = [{"role": "user", "content": "hi"}]


async def test_a_small_adapter_samples_by_ids_and_by_messages() -> None:
    server = Server()
    async with engine_of(server) as engine:
        assert await engine.render(HELLO, Rendering(), add_generation_prompt=True) == [4, 5, 6]
        by_ids = await engine.from_ids([1, 2, 3], Sampling(max_tokens=9, seed=5))
        by_messages = await engine.from_messages(HELLO, Rendering(), Sampling())
    assert (tuple(by_ids.prompt_ids), by_ids.completion_ids, by_ids.logprobs) == (
        (1, 2, 3),
        (7, 8),
        (-0.5, -0.5),
    )
    assert tuple(by_messages.prompt_ids) == (4, 5, 6)
    sent = [body for path, body in server.requests if path == "/v1/completions"]
    assert (sent[0]["prompt"], sent[0]["max_tokens"], sent[0]["seed"]) == ([1, 2, 3], 5, 5)
    assert [path for path, _ in server.requests].count("/v1/models") == 1


async def test_a_small_adapter_streams() -> None:
    deltas: list[Delta] = []

    async def watch(delta: Delta) -> None:
        deltas.append(delta)

    async with engine_of(Server()) as engine:
        whole, streamed = [
            await engine.from_ids([1], Sampling(max_tokens=2), watch=one) for one in (None, watch)
        ]
    assert [(delta.ids, delta.text) for delta in deltas] == [((7,), "a"), ((8,), "b")]
    assert (whole.completion_ids, whole.logprobs) == (streamed.completion_ids, streamed.logprobs)


class Callback:
    """An object that can be awaited with a delta."""

    async def __call__(self, delta: Delta) -> None: ...


@pytest.mark.parametrize("wrong", [print, lambda _: None, 5, Callback])
async def test_a_callback_that_cannot_be_awaited_is_found_before_anything_is_sent(wrong: Any) -> None:
    """Else the turn would be sampled, and lost at its first delta."""
    server = Server()
    async with engine_of(server) as engine:
        for sampler in (engine, TurnGroups(engine)):
            for n in (1, 2):
                sampling = Sampling(max_tokens=2, n=n)
                with pytest.raises(InputError, match=r"watch is .*: pass a coroutine function"):
                    await sampler.from_ids([1], sampling, watch=wrong)
                with pytest.raises(InputError, match=r"watch is .*: pass a coroutine function"):
                    await sampler.from_messages(HELLO, Rendering(), sampling, watch=wrong)
        assert [path for path, _ in server.requests if path.endswith("completions")] == []
        assert (await engine.from_ids([1], Sampling(max_tokens=2), watch=Callback())).completion_ids == (7, 8)


async def test_a_stream_that_was_aborted_keeps_its_ids() -> None:
    async def watch(_: Delta) -> None:
        """Ignore it."""

    async with engine_of(Server(finish_reason=None)) as engine:
        with pytest.raises(AbortedError) as caught:
            await engine.from_ids([1], Sampling(max_tokens=2), watch=watch)
    assert caught.value.where == "POST http://small:1/v1/completions"
    assert caught.value.partial is not None
    assert caught.value.partial.completion_ids == (7, 8)
    assert caught.value.partial.logprobs == (-0.5, -0.5)


@pytest.mark.parametrize("length", [8, 9, 100])
async def test_ids_that_do_not_fit_are_never_sent(length: int) -> None:
    server = Server()
    async with engine_of(server) as engine:
        with pytest.raises(OverlongError, match="Nothing was sent"):
            await engine.from_ids([1] * length, Sampling())
        assert (await engine.from_ids([1] * 7, Sampling())).completion_ids == (7, 8)
    assert [body["max_tokens"] for path, body in server.requests if path == "/v1/completions"] == [1]


async def test_ids_beyond_the_vocabulary_are_never_sent() -> None:
    server = Server()
    async with engine_of(server, vocab_size=5) as engine:
        with pytest.raises(InputError, match="5 is not in the vocabulary"):
            await engine.from_ids([1, 5], Sampling())
    assert server.requests == []


async def test_an_engine_that_saw_another_prompt_is_an_error() -> None:
    async with engine_of(Server(echo=(1, 3))) as engine:
        with pytest.raises(InvalidReplyError, match="other prompt ids") as caught:
            await engine.from_ids([1, 2], Sampling())
    assert caught.value.where == "POST http://small:1/v1/completions"


async def test_without_a_context_length_max_tokens_is_needed() -> None:
    server = Server(cards=({"id": "m"},))
    async with engine_of(server) as engine:
        with pytest.raises(InputError, match=r"Sampling\.max_tokens is None"):
            await engine.from_ids([1], Sampling())
        await engine.from_ids([1], Sampling(max_tokens=3))


@pytest.mark.parametrize("names", [(), ("a", "b")])
async def test_which_model_must_be_named_unless_there_is_one(names: tuple[str, ...]) -> None:
    cards = tuple({"id": name, "max_model_len": 4} for name in names)
    async with engine_of(Server(cards=cards)) as engine:
        with pytest.raises(InputError, match="model: the server has"):
            await engine.served()
    async with engine_of(Server(cards=cards), model="b") as engine:
        assert await engine.served() == ServedModel("b", 4 if names else None)


@pytest.mark.parametrize(
    "failing", [httpx2.Response(500), httpx2.Response(429), httpx2.Response(200, json={"data": [{}]})]
)
async def test_a_turn_does_not_need_the_list_of_models(
    failing: httpx2.Response, caplog: pytest.LogCaptureFixture
) -> None:
    """The failure is logged once, and the list is used as soon as it works."""
    server = Server(models=failing)
    async with engine_of(server, model="m") as engine:
        for _ in range(2):
            assert (await engine.from_ids([1], Sampling(max_tokens=3))).completion_ids == (7, 8)
        assert [one.getMessage()[:30] for one in caplog.records] == ["the list of models fails, so t"]
        server.models = None
        assert await engine.limits() == ModelLimits(max_model_len=8)


@pytest.mark.parametrize(
    ("named", "checked", "sent"),
    [(None, False, None), ("m", False, "m"), (None, True, "default"), ("m", True, None)],
)
async def test_only_a_model_that_is_certain_goes_without_a_list(
    named: str | None, checked: bool, sent: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where requests do not name the model, a name may be that of an adapter, which only the list shows."""
    monkeypatch.setattr(Small, "checks_name", checked)
    async with engine_of(Server(models=httpx2.Response(500)), model=named) as engine:
        if sent is None:
            with pytest.raises(EngineError, match="/v1/models"):
                await engine.served()
        else:
            assert await engine.served() == ServedModel(sent)


def test_engines_whose_requests_do_not_name_the_model_check_the_name() -> None:
    assert all(kind.checks_name for kind in (FamilyEngine, SGLang))
    assert not any(kind.checks_name for kind in (VLLM, Dynamo))


@pytest.mark.parametrize("adapter", [Small, VLLM, SGLang, Dynamo])
def test_an_argument_that_does_not_exist_is_rejected(adapter: Any) -> None:
    with pytest.raises(TypeError, match="modell"):
        adapter("http://h", modell="m")


async def test_what_an_adapter_must_write_is_not_there() -> None:
    async with HttpEngine("http://h", transport=httpx2.MockTransport(Server())) as engine:
        with pytest.raises(NotImplementedError):
            await engine.from_ids([1], Sampling())
