"""A value of a wrong type, anywhere in an answer, is an `EngineError` and never an error of Python's own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import anyio
import attrs
import httpx2
import pytest

from tests.io.engines.dynamo.dynamo_server import Turn
from tests.io.engines.llamacpp.recorded import Replayed
from tests.io.engines.sglang import sglang_server
from tests.io.engines.vllm import vllm_server
from tito_core import InputError
from tito_io.engines.dynamo import Dynamo
from tito_io.engines.http_engine import HttpEngine
from tito_io.engines.protocol import Delta, EngineError, Sampling
from tito_io.engines.vllm import GENERATE
from tito_io.engines.wire import Wire

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
PROMPT = vllm_server.PROMPT
WRONG: tuple[Any, ...] = (None, 5, "no", [5], {"a": 1}, [[]])
EXPERTS = {"routed_experts": {"data": "AA==", "shape": [1, 1, 1], "dtype": "uint8"}}


@attrs.frozen
class Case:
    """An engine that gets one response by a route, and the events of a right one, or its one body."""

    engine: Callable[[httpx2.Response], HttpEngine]
    events: tuple[Mapping[str, Any], ...]
    streamed: bool

    def response(self, events: tuple[Any, ...]) -> httpx2.Response:
        return vllm_server.events(*events) if self.streamed else httpx2.Response(200, json=events[0])

    def changed(self) -> Iterator[tuple[Any, ...]]:
        """Yield the events with each value replaced by each wrong one."""
        for place, event in enumerate(self.events):
            for path in _paths(event):
                for wrong in WRONG:
                    yield (*self.events[:place], _put(event, path, wrong), *self.events[place + 1 :])


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield from _paths(inner, (*path, name))


def _put(value: Any, path: tuple[Any, ...], wrong: Any) -> Any:
    if not path:
        return wrong
    changed = copy.deepcopy(value)
    holder = changed
    for name in path[:-1]:
        holder = holder[name]
    holder[path[-1]] = wrong
    return changed


def vllm(route: Any, path: str) -> Callable[[httpx2.Response], HttpEngine]:
    return lambda response: vllm_server.mocked({path: response}, route=route)[0]


def sglang(route: Any, path: str) -> Callable[[httpx2.Response], HttpEngine]:
    return lambda response: sglang_server.mocked({path: response}, route=route)[0]


def dynamo(route: Any) -> Callable[[httpx2.Response], HttpEngine]:
    def engine(response: httpx2.Response) -> HttpEngine:
        card = httpx2.Response(200, json={"data": [{"id": "m", "context_window": 50}]})
        answers = httpx2.MockTransport(lambda request: card if request.method == "GET" else response)
        return Dynamo("http://mock", route=route, transport=answers)

    return engine


def dynamo_cases() -> Iterator[tuple[str, Case]]:
    turn = Turn(ids=(7, 8), stop_reason=8, detailed="stop")
    for route, path in (("chat", CHAT), ("completions", COMPLETIONS)):
        fields = ["completion_token_ids", "prompt_token_ids", "engine_data", "stop_reason"]
        body = {"logprobs": True, "nvext": {"extra_fields": fields, "token_data": list(PROMPT)}}
        whole = turn.whole(path, body if route == "chat" else {**body, "prompt": list(PROMPT)})
        whole["nvext"] |= EXPERTS
        yield f"dynamo {route}", Case(dynamo(route), (whole,), streamed=False)
        yield f"dynamo {route} streamed", Case(dynamo(route), tuple(turn.chunks(path, whole)), streamed=True)


def vllm_cases() -> Iterator[tuple[str, Case]]:
    answers = {
        ("chat", CHAT): vllm_server.chat_answer(),
        ("completions", COMPLETIONS): vllm_server.completion_answer(),
        ("generate", GENERATE): vllm_server.generate_answer(),
    }
    for (route, path), answer in answers.items():
        yield f"vllm {route}", Case(vllm(route, path), (answer,), streamed=False)
        chunks = tuple(vllm_server.chunks(answer))
        yield f"vllm {route} streamed", Case(vllm(route, path), chunks, streamed=True)


def sglang_cases() -> Iterator[tuple[str, Case]]:
    extra = {"sglext": {"input_ids": list(PROMPT), "output_ids": [[7, 8]]}}
    info = {"output_token_logprobs": sglang_server.triples((7, 8)), "cached_tokens": 1, "weight_versions": []}
    chat = {**sglang_server.chatted(meta_info=info), **extra}
    generated, completed = sglang_server.generated(), sglang_server.completed()
    first = {"index": 0, "delta": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    first["logprobs"] = {"content": [{"token": "x", "logprob": -0.5}] * 2}
    chunks = ({"choices": [first]}, {"choices": [], **extra}, {"choices": [], "usage": chat["usage"]})
    yield "sglang chat", Case(sglang("chat", CHAT), (chat,), streamed=False)
    yield "sglang chat streamed", Case(sglang("chat", CHAT), chunks, streamed=True)
    for name, path, answer in (
        ("generate", "/generate", generated),
        ("completions", COMPLETIONS, completed),
    ):
        yield f"sglang {name}", Case(sglang(name, path), (answer,), streamed=False)
        yield f"sglang {name} streamed", Case(sglang(name, path), (answer,), streamed=True)


def llamacpp_cases() -> Iterator[tuple[str, Case]]:
    entry = {"token": "x", "bytes": [120], "logprob": -0.5}
    entries = [{"id": index, **entry, "top_logprobs": [{"id": index, **entry}]} for index in (7, 8)]
    answer = {"index": 0, "content": "", "tokens": [7, 8], "stop_type": "word", "stopping_word": "x"}
    answer |= {"tokens_evaluated": len(PROMPT), "tokens_predicted": 2, "timings": {"cache_n": 1}}
    answer |= {"generation_settings": {"top_k": 0}, "completion_probabilities": entries}
    yield "llamacpp", Case(lambda response: Replayed([response]).engine(), (answer,), streamed=False)


CASES = dict([*vllm_cases(), *sglang_cases(), *dynamo_cases(), *llamacpp_cases()])


@pytest.mark.anyio
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
async def test_a_callback_that_cannot_be_awaited_is_found_before_anything_is_sent(case: Case) -> None:
    asked: list[str] = []
    response = case.response(case.events)
    engine = case.engine(response)
    engine._wire = Wire.to("http://mock", transport=httpx2.MockTransport(_noting(asked, response)))
    async with engine:
        with pytest.raises(InputError, match="nothing was sent"):
            await engine.from_ids(PROMPT, Sampling(max_tokens=9), watch=print)  # type: ignore[arg-type]
    assert asked == []


def _noting(paths: list[str], response: httpx2.Response) -> Callable[[httpx2.Request], httpx2.Response]:
    def answer(request: httpx2.Request) -> httpx2.Response:
        paths.append(request.url.path)
        return response

    return answer


async def _watch(_: Delta) -> None:
    """Take a delta."""


async def _asked(case: Case, response: httpx2.Response) -> bool:
    """Return whether the answer is read as a reply; raise whatever is no `EngineError`."""
    async with case.engine(response) as engine:
        try:
            await engine.from_ids(PROMPT, Sampling(max_tokens=9), watch=_watch if case.streamed else None)
        except EngineError:
            return False
    return True


@pytest.mark.parametrize("name", CASES)
def test_no_malformed_answer_raises_an_error_of_python_s_own(name: str) -> None:
    case = CASES[name]

    async def all_of_them() -> list[bool]:
        return [await _asked(case, case.response(events)) for events in case.changed()]

    assert anyio.run(_asked, case, case.response(case.events)), "the right answer is read"
    assert not all(anyio.run(all_of_them))
