"""What every engine that scores ids keeps to: a score is of the id in its place, after the ids before it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import attrs
import httpx2
import numpy as np
import orjson
import pytest

from tests.io.engines.scripted import MODEL
from tito_io.engines.in_process import transformers_model
from tito_io.engines.names import ENGINES
from tito_io.engines.protocol import Engine, Sampling
from tito_io.engines.registry import EngineOptions, embedded, make_engine
from tito_io.engines.scores import score
from tito_io.engines.sglang import SGLang
from tito_io.engines.vllm import VLLM

pytestmark = pytest.mark.anyio
VOCABULARY = 12
IDS = [3, 3, 7, 3, 11, 0, 7]
"""Some ids twice: their scores differ, because other ids stand before them."""


def distribution(before: Sequence[int]) -> list[float]:
    """Return the log-probability of each id after those before it, as a model computes it."""
    weights = [1 + crc32(repr((*before, index)).encode()) % 97 for index in range(VOCABULARY)]
    return [float(np.log(weight / sum(weights))) for weight in weights]


def scores(ids: Sequence[int]) -> list[float | None]:
    """Return the score of each id; the first has none."""
    return [None, *(distribution(ids[:place])[ids[place]] for place in range(1, len(ids)))]


def vllm_answer(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return vLLM's answer, with one more alternative in each place."""
    ids = body["prompt"]
    entries = [
        {str(index): {"logprob": value}, str(index + 1): {"logprob": -9.0}}
        for index, value in zip(ids, scores(ids), strict=True)
    ]
    choice = {"index": 0, "text": "x", "token_ids": [5], "finish_reason": "length", "prompt_token_ids": ids}
    usage = {"prompt_tokens": len(ids), "completion_tokens": 1}
    return {"choices": [{**choice, "prompt_logprobs": [None, *entries[1:]]}], "usage": usage}


def sglang_answer(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return SGLang's answer: from the position asked for on, the first without its value."""
    ids, start = body["input_ids"], body["logprob_start_len"]
    values = [None, *scores(ids)[start + 1 :]]
    entries = [[value, index, None] for value, index in zip(values, ids[start:], strict=True)]
    info = {"prompt_tokens": len(ids), "completion_tokens": 0, "input_token_logprobs": entries}
    return {"text": "", "output_ids": [], "meta_info": {**info, "finish_reason": {"type": "length"}}}


def serving(answer: Callable[[Mapping[str, Any]], dict[str, Any]]) -> httpx2.MockTransport:
    def handle(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/v1/models":
            return httpx2.Response(200, json={"data": [{"id": "m", "root": "m", "max_model_len": 64}]})
        if request.method == "GET":
            return httpx2.Response(200, json={"max_req_input_len": 64, "version": "0.5.23"})
        return httpx2.Response(200, json=answer(orjson.loads(request.content)))

    return httpx2.MockTransport(handle)


@attrs.frozen
class Tensor:
    """What the adapter needs of a tensor of PyTorch, on an array of NumPy."""

    array: Any

    def __getitem__(self, place: Any) -> Tensor:
        return Tensor(self.array[place])

    def float(self) -> Tensor:
        return self

    def log_softmax(self, axis: int) -> Tensor:
        return Tensor(self.array - np.log(np.exp(self.array).sum(axis, keepdims=True)))

    def gather(self, axis: int, index: Tensor) -> Tensor:
        return Tensor(np.take_along_axis(self.array, index.array, axis))

    def tolist(self) -> Any:
        return self.array.tolist()


class Model:
    """A model of `transformers`; its logits are the log-probabilities plus one."""

    device = "cpu"
    config = SimpleNamespace(is_encoder_decoder=False, get_text_config=SimpleNamespace)

    def generate(self) -> None:
        """Sample nothing."""

    def get_input_embeddings(self) -> Any:
        return SimpleNamespace(num_embeddings=VOCABULARY)

    def __call__(self, given: Tensor) -> Any:
        (ids,) = given.tolist()
        logits = [distribution(ids[: place + 1]) for place in range(len(ids))]
        return SimpleNamespace(logits=Tensor(np.array([logits]) + 1))


TORCH = SimpleNamespace(no_grad=nullcontext, tensor=lambda ids, **_: Tensor(np.array(ids)))
SCORING: Mapping[str, Callable[[], Engine]] = {
    "vllm": lambda: VLLM("http://h", transport=serving(vllm_answer), vocab_size=VOCABULARY),
    "sglang": lambda: SGLang("http://h", transport=serving(sglang_answer), vocab_size=VOCABULARY),
    "transformers": lambda: transformers_model.TransformersModel(Model(), MODEL),
}


@pytest.mark.parametrize("name", SCORING)
@pytest.mark.parametrize("start", range(1, len(IDS) + 1))
async def test_a_score_is_of_the_id_in_its_place(
    name: str, start: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transformers_model, "package", lambda _: TORCH)
    engine: Any = SCORING[name]()
    assert await score(engine, IDS, start) == pytest.approx(scores(IDS)[start:])
    await engine.aclose()


async def test_the_embedded_engine_scores_what_it_sampled_as_it_sampled_it() -> None:
    engine = embedded(seed=2)
    reply = await engine.from_ids([5, 6, 7], Sampling(max_tokens=24))
    ids = [*reply.prompt_ids, *reply.completion_ids]
    assert len(reply.completion_ids) > 3
    for start in range(len(reply.prompt_ids), len(ids)):
        assert await score(engine, ids, start) == (reply.logprobs or ())[start - len(ids) :]


def test_every_engine_that_scores_keeps_to_these_laws() -> None:
    made = {
        name: make_engine(name, EngineOptions(base_url="http://h" * (name != "embedded"), family=MODEL))
        for name in ENGINES
    }
    assert {name for name, engine in made.items() if hasattr(engine, "score")} == {
        "embedded",
        *(SCORING.keys() & ENGINES.keys()),
    }
