"""Objects of the engines' Python packages, a few lines each. They refuse what the real ones refuse.

Each says which source line says so: of vLLM 0.32.0, SGLang 0.5.23, mlx-lm 0.32.2 and transformers 5.19. All
sample scripted turns, and end them as the real ones do.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from enum import Enum
from itertools import accumulate
from types import ModuleType, SimpleNamespace
from typing import Any

import attrs
import pytest

from tests.io.engines.scripted import END, MODEL, spelled
from tito_io.engines.in_process import (
    InProcessEngine,
    MlxModel,
    SglangEngine,
    TransformersModel,
    VllmAsync,
    VllmLLM,
)

CONTEXT = 400


@attrs.frozen(kw_only=True)
class Sampled:
    """What a fake samples in a turn; without a finish reason it goes on until it is given up."""

    ids: Sequence[int]
    finish_reason: str | None = "stop"
    stop_reason: int | str | None = None

    @property
    def values(self) -> list[float]:
        """One log-probability an id, each another."""
        return [-0.5 - 0.25 * place for place in range(len(self.ids))]

    @property
    def kept(self) -> list[list[int]]:
        """The ids that could have been sampled in place of each id."""
        return [[index, *[300, 400][: place % 3]] for place, index in enumerate(self.ids)]

    def ended(self, most: int, stop_ids: Sequence[int], stops: Sequence[str]) -> Sampled:
        """Return the turn as far as the engine samples it."""
        for count in range(1, len(self.ids) + 1):
            ids = self.ids[:count]
            text = next((one for one in stops if one in MODEL.decode(ids)), None)
            if ids[-1] in stop_ids or text:
                return Sampled(ids=ids, stop_reason=text or ids[-1])
            if ids[-1] == END or count == most:
                return Sampled(ids=ids, finish_reason="stop" if ids[-1] == END else "length")
        return self


YES = Sampled(ids=[*spelled("Yes."), END])
ENDLESS = Sampled(ids=spelled("abc"), finish_reason=None)


@attrs.frozen
class Asked:
    """A request as an object was given it: prompt, the most ids to sample, and all parameters."""

    prompt: Sequence[int]
    most: int | None
    given: Any


@attrs.define(kw_only=True, slots=False)
class Fake:
    """What the objects share.

    Attributes:
        turns: What is sampled.
        seen: What was asked for.
        running: How many requests are being sampled.
        steps: How many steps were sampled.
        failing: What it raises in place of sampling.
        change: Changes what it reports.
    """

    turns: Sequence[Sampled] = (YES,)
    seen: list[Asked] = attrs.field(factory=list)
    running: int = 0
    steps: int = 0
    failing: Exception | None = None
    change: Callable[[Any], object] = lambda _: None

    def step(self) -> Any:
        """Count a step."""
        self.steps += 1
        if self.failing is not None:
            raise self.failing


# vLLM.


class RequestOutputKind(Enum):
    """As in vllm/sampling_params.py:221."""

    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


class VLLMValidationError(Exception):
    """As in vllm/exceptions.py:28: no `ValueError`."""


@attrs.frozen(kw_only=True)
class SamplingParams:
    """The parameters of vllm/sampling_params.py:283 that are passed; another name is a TypeError."""

    n: int = 1
    presence_penalty: float = 0.0
    temperature: float = 1.0
    top_p: float = attrs.field(default=1.0)
    top_k: int = 0
    seed: int | None = None
    stop: Sequence[str] = ()
    stop_token_ids: Sequence[int] = ()
    ignore_eos: bool = False
    max_tokens: int = 16
    logprobs: int | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    output_kind: RequestOutputKind = RequestOutputKind.CUMULATIVE
    structured_outputs: Any = None

    @top_p.validator
    def _in_range(self, _: Any, value: float) -> None:
        if not 0 < value <= 1:
            raise VLLMValidationError(f"top_p must be in (0, 1], got {value}.")

    @classmethod
    def from_optional(cls, **keys: Any) -> SamplingParams:
        """As in vllm/sampling_params.py:433."""
        return cls(**keys)


@attrs.frozen(kw_only=True)
class ModelConfig:
    """As far as vllm/config/model.py is read."""

    logprobs_mode: str = "raw_logprobs"
    return_sampling_mask: bool = False
    defaults: Mapping[str, Any] = attrs.field(factory=dict)
    max_model_len: int = CONTEXT

    def get_vocab_size(self) -> int:
        """Return how many ids the model has, which may be more than the tokenizer's."""
        return MODEL.vocab_size

    def get_diff_sampling_param(self) -> dict[str, Any]:
        """Return the parameters that the model's folder states (vllm/config/model.py:1847)."""
        return dict(self.defaults)


@attrs.define
class Request:
    """A request that is being sampled, an id a step."""

    name: str
    prompt: Sequence[int]
    params: SamplingParams
    turns: Sequence[Sampled]
    masks: bool = False
    at: int = 0

    def step(self) -> list[Any]:
        """Return the outputs of a step: of a streamed request always, else of the ends alone."""
        self.at += 1
        streamed = self.params.output_kind is RequestOutputKind.DELTA
        found = []
        for index, turn in enumerate(self.turns):
            last = self.at == max(len(turn.ids), 1)
            if last or (streamed and self.at < len(turn.ids)):
                part = slice(self.at - 1, self.at) if streamed else slice(None)
                found.append(self.output(index, turn, part, end=last and bool(turn.finish_reason)))
        for one in found[-1:]:
            one.finished = self.done
        return found

    @property
    def done(self) -> bool:
        """Whether all turns have ended."""
        return all(self.at >= len(turn.ids) and turn.finish_reason for turn in self.turns)

    def output(self, index: int, turn: Sampled, part: slice, *, end: bool) -> Any:
        """Return a `RequestOutput` of one turn (vllm/outputs.py:125)."""
        ids = list(turn.ids)[part]
        # An entry has the likeliest id too, and the sampled one wherever (vllm/logprobs.py).
        entries = [
            {7: SimpleNamespace(logprob=-0.1), index: SimpleNamespace(logprob=value)}
            for index, value in zip(ids, turn.values[part], strict=True)
        ]
        versions = [SimpleNamespace(version="w1", start=0, end=len(turn.ids))]
        mask = SimpleNamespace(token_ids=turn.kept[part]) if self.masks and ids else None
        one = SimpleNamespace(
            index=index,
            token_ids=tuple(ids),
            logprobs=entries if ids else None,
            finish_reason=turn.finish_reason if end else None,
            stop_reason=turn.stop_reason if end else None,
            weight_versions=versions if end else None,
            routed_experts=None,
            sampling_mask=mask,
        )
        return SimpleNamespace(
            request_id=self.name,
            prompt_token_ids=list(self.prompt),
            outputs=[one],
            finished=False,
            num_cached_tokens=3,
        )


@attrs.define(kw_only=True, slots=False)
class VllmFake(Fake):
    """What vLLM's objects share."""

    model_config: ModelConfig = attrs.field(factory=ModelConfig)
    vllm_config: Any = None

    def request(self, name: str, prompt: Mapping[str, Any], params: SamplingParams) -> Request:
        """Begin a request. A prompt with a type is taken as it is: no id and no length is checked.

        (vllm/v1/engine/input_processor.py:402)
        """
        assert isinstance(name, str)
        assert set(prompt) == {"type", "prompt_token_ids"}
        assert prompt["type"] == "token"
        assert type(prompt["prompt_token_ids"]) is list
        assert params.output_kind is not RequestOutputKind.CUMULATIVE
        assert params.detokenize or not params.stop, "vllm/sampling_params.py: stop needs detokenize"
        self.seen.append(Asked(prompt["prompt_token_ids"], params.max_tokens, params))
        ended = [
            one.ended(params.max_tokens, params.stop_token_ids, params.stop) for one in self.turns[: params.n]
        ]
        masks = self.model_config.return_sampling_mask
        if masks and params.top_k <= 0:  # vllm/v1/engine/input_processor.py:197
            raise ValueError("sampling distribution replay requires top_k > 0 to bound sampling mask size")
        return Request(name, prompt["prompt_token_ids"], params, ended, masks)


@attrs.define(kw_only=True, slots=False)
class LLMEngine(VllmFake):
    """`vllm.v1.engine.llm_engine.LLMEngine`."""

    requests: dict[str, Request] = attrs.field(factory=dict)

    def add_request(self, request_id: str, prompt: Mapping[str, Any], params: SamplingParams) -> str:
        """Begin a request; its internal id is another than the caller's (input_processor.py:349)."""
        self.requests[f"{request_id}-internal"] = self.request(request_id, prompt, params)
        self.running = len(self.requests)
        return f"{request_id}-internal"

    def abort_request(self, request_ids: Sequence[str], *, internal: bool = False) -> None:
        """Give requests up; internal ids that are passed without `internal` name nothing."""
        for name in request_ids if internal else ():
            self.requests.pop(name, None)
        self.running = len(self.requests)

    def has_unfinished_requests(self) -> bool:
        """Whether a request is left."""
        return bool(self.requests)

    def step(self) -> list[Any]:
        """Sample an id of each request; without a request, the client of another process waits for ever."""
        assert self.requests, "step() without a request never returns (core_client.py, get_output)"
        super().step()
        found = []
        for name, request in list(self.requests.items()):
            found += request.step()
            if request.done:
                self.abort_request([name], internal=True)
        for one in found:
            self.change(one)
        return found


@attrs.define
class LLM:
    """`vllm.LLM`."""

    llm_engine: LLMEngine = attrs.field(factory=LLMEngine)


@attrs.define(kw_only=True, slots=False)
class AsyncLLM(VllmFake):
    """`vllm.v1.engine.async_llm.AsyncLLM`."""

    output_handler: Any = None

    async def generate(
        self, prompt: Mapping[str, Any], sampling_params: SamplingParams, request_id: str
    ) -> AsyncIterator[Any]:
        """Yield outputs; closing the generator aborts the request (async_llm.py:779)."""
        loop = asyncio.get_running_loop()
        if self.output_handler is None:  # async_llm.py:827: once, in the loop of the first call
            self.output_handler = SimpleNamespace(get_loop=lambda: loop)
        assert self.output_handler.get_loop() is loop, "in another event loop the real one never answers"
        request = self.request(request_id, prompt, sampling_params)
        self.running += 1
        try:
            while not request.done:
                await asyncio.sleep(0)
                self.step()
                for one in request.step():
                    self.change(one)
                    yield one
        finally:
            self.running -= 1


# SGLang.


@attrs.define
class TokenizerManager:
    """As far as sglang/srt/managers/tokenizer_manager.py is read."""

    context_len: int = CONTEXT
    max_req_input_len: int | None = CONTEXT - 6
    incremental_streaming_output: bool = False
    event_loop: Any = None
    model_config: Any = attrs.field(factory=lambda: SimpleNamespace(vocab_size=MODEL.vocab_size))


@attrs.define(kw_only=True, slots=False)
class SglangObject(Fake):
    """`sglang.Engine`."""

    loop: Any = attrs.field(factory=asyncio.new_event_loop)
    tokenizer_manager: TokenizerManager = attrs.field(factory=TokenizerManager)
    server_args: Any = attrs.field(factory=lambda: SimpleNamespace(enable_deterministic_inference=False))
    repeats_last: bool = False
    masks: bool = False

    async def async_generate(
        self,
        *,
        input_ids: list[int],
        sampling_params: dict[str, Any],
        return_logprob: bool,
        logprob_start_len: int,
        stream: bool,
        return_sampling_mask: bool = False,
    ) -> Any:
        """Sample turns, as sglang/srt/entrypoints/engine.py:545 does; other arguments are a TypeError."""
        running = asyncio.get_running_loop()
        manager = self.tokenizer_manager
        if manager.event_loop is None:  # tokenizer_manager.py:2440: once, in the loop of the first call
            manager.event_loop = running
        assert manager.event_loop is running, "in another event loop the real one never answers"
        assert type(input_ids) is list
        assert return_logprob
        assert logprob_start_len == -1
        self.seen.append(Asked(input_ids, sampling_params["max_new_tokens"], sampling_params))
        assert not return_sampling_mask or sampling_params["top_k"] > 0, (
            "or it is aborted (scheduler.py:3174)"
        )
        self.masks = return_sampling_mask
        chunks = self._chunks(len(input_ids), sampling_params, stream=stream)
        if stream:
            return self._streamed(chunks)
        async for _ in self._streamed(chunks):
            pass
        return chunks if len(chunks) > 1 else chunks[0]

    async def _streamed(self, chunks: Sequence[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
        self.running += 1
        try:
            for chunk in chunks:
                await asyncio.sleep(0)
                self.step()
                self.change(chunk)
                yield chunk
            if chunks[-1]["meta_info"]["finish_reason"] is None:
                await asyncio.Event().wait()
        finally:
            self.running -= 1  # tokenizer_manager.py:958 aborts a request that is closed

    def _chunks(self, prompt: int, params: dict[str, Any], *, stream: bool) -> list[dict[str, Any]]:
        incremental = stream and self.tokenizer_manager.incremental_streaming_output
        chunks = []
        for index, scripted in enumerate(self.turns[: params["n"]]):
            stops = params.get("stop_token_ids", ()), params.get("stop", ())
            turn = scripted.ended(params["max_new_tokens"], *stops)
            named = {"index": index} if params["n"] > 1 else {}
            for end in range(1, len(turn.ids) + 1) if stream else (len(turn.ids),):
                part = slice(end - 1 if incremental else 0, end)
                chunks.append(self._chunk(prompt, turn, part, whole=end == len(turn.ids)) | named)
            if self.repeats_last:  # tokenizer_manager.py:3630: the chunk of an aborted turn
                again = self._chunk(prompt, turn, slice(-1 if incremental else 0, None), whole=True)
                again["meta_info"]["finish_reason"] = {"type": "abort", "message": "Abort in waiting queue"}
                chunks[-1]["meta_info"]["finish_reason"] = None
                chunks.append(again)
        return chunks

    def _chunk(self, prompt: int, turn: Sampled, part: slice, *, whole: bool) -> dict[str, Any]:
        ids = list(turn.ids)[part]
        reason = {"type": turn.finish_reason, "matched": turn.stop_reason}
        values, masks = turn.values[part], dict[str, Any]()
        if self.masks:  # tokenizer_manager.py:2542: lists
            masks = {
                "output_token_sampling_mask": turn.kept[part],
                "output_token_sampling_logprobs": values,
            }
            values = [value - 1 for value in values]  # over the whole vocabulary
        return {
            "text": None,
            "output_ids": ids,
            "meta_info": {
                "id": "rid",
                "prompt_tokens": prompt,
                "completion_tokens": len(turn.ids) if whole else part.stop,
                "cached_tokens": 2,
                "finish_reason": reason if whole and turn.finish_reason else None,
                # Tuples, where HTTP has lists.
                "output_token_logprobs": [
                    (value, index, None) for value, index in zip(values, ids, strict=True)
                ],
                **masks,
            },
        }


def incremental(**options: Any) -> SglangObject:
    """Return an object whose chunks do not repeat what came before."""
    manager = TokenizerManager(incremental_streaming_output=True)
    return SglangObject(tokenizer_manager=manager, **options)


# Models that are run here.


class Model(Fake):
    """A model of mlx-lm or transformers: what is read of it before it is run, and `generate`."""

    layers: tuple[object, ...] = ()
    device = "cpu"
    training = False

    def __init__(self, turns: Sequence[Sampled] = (YES,), **generation: Any) -> None:
        super().__init__(turns=turns)
        sizes = SimpleNamespace(vocab_size=MODEL.vocab_size, max_position_embeddings=CONTEXT)
        self.args = sizes
        self.config = SimpleNamespace(is_encoder_decoder=False, get_text_config=lambda: sizes)
        fields = {"do_sample": True, "eos_token_id": None, "pad_token_id": None, **generation}
        self.generation_config = SimpleNamespace(**fields)
        self.batches: list[int] = []

    def __call__(self) -> None:
        """Compute nothing."""

    def get_input_embeddings(self) -> Any:
        """Return what says how many ids there are."""
        return SimpleNamespace(num_embeddings=MODEL.vocab_size)

    def sampled(self, index: int, place: int) -> tuple[int, float]:
        """Return an id of a turn, and its log-probability; after its script a turn goes on, but slowly."""
        turn = self.turns[index]
        if place >= len(turn.ids):
            time.sleep(0.001)
            return spelled("x")[0], -1.0
        return turn.ids[place], turn.values[place]

    def generate(
        self,
        ids: Any,
        *,
        attention_mask: Any,
        generation_config: Any,
        logits_processor: Any,
        stopping_criteria: Any,
    ) -> None:
        """Leave the drawing to the processor (transformers/generation/utils.py, `_sample`)."""
        assert len({len(row) for row in ids}) == 1
        assert generation_config.pad_token_id is not None
        shown = [row[seen.index(1) :] for row, seen in zip(ids, attention_mask, strict=True)]
        assert [sum(seen) for seen in attention_mask] == [len(row) for row in shown]
        samplers = logits_processor[0].samplers
        self.batches.append(len(samplers))
        starts = accumulate((len(one.sampled.rows) for one in samplers[:-1]), initial=0)
        self.seen += [
            Asked(shown[start], generation_config.max_new_tokens, generation_config) for start in starts
        ]
        self.choices = samplers[0].choices
        for place in range(generation_config.max_new_tokens):
            self.step()
            for one in samplers:
                for index in range(len(one.sampled.rows)):
                    one.sampled.add(index, *self.sampled(index, place))
            if all(stopping_criteria[0](ids, None)):
                return

    def forward(self, *, position_ids: Any) -> None:
        """Compute nothing, at positions that are passed."""


class Values:
    """A row of log-probabilities, of which one is asked for."""

    def __init__(self, index: int, value: float) -> None:
        self.index, self.value = index, value

    def __getitem__(self, index: int) -> Any:
        """Return the value of the id that was sampled; another id's would be another's."""
        value = self.value if index == self.index else -99.0
        return SimpleNamespace(item=lambda: value)


class BatchGenerator:
    """`mlx_lm.generate.BatchGenerator`."""

    def __init__(self, model: Model, *, completion_batch_size: int = 32, prefill_batch_size: int = 8) -> None:
        self.model, self.size = model, completion_batch_size
        assert completion_batch_size == prefill_batch_size
        self.rows: dict[int, int] = {}
        self.most: list[int] = []

    def insert(
        self,
        prompts: list[list[int]],
        max_tokens: list[int],
        *,
        samplers: list[Any],
        logits_processors: list[list[Any]],
    ) -> list[int]:
        """Take prompts (generate.py:1643, insert_segments): an entry of each for every prompt."""
        if not len(prompts) == len(max_tokens) == len(samplers) == len(logits_processors) == self.size:
            raise ValueError("Option must have one entry per segment")
        if not all(prompts):
            raise ValueError("Sequence 0 has an empty prompt.")
        if min(max_tokens) <= 0:
            raise ValueError("Sequence 0's max_tokens must be > 0.")
        assert all(type(prompt) is list for prompt in prompts)
        self.model.seen.append(Asked(prompts[0], max_tokens[0], logits_processors))
        self.most = max_tokens
        self.rows = dict.fromkeys(range(7, 7 + len(prompts)), 0)
        return list(self.rows)

    def next_generated(self) -> list[Any]:
        """Return an id of each turn that goes on (generate.py:1901).

        Without stop tokens only `max_tokens` ends a turn (generate.py:1468); the others go on until removed.
        """
        self.model.step()
        found = []
        for number, place in list(self.rows.items()):
            index, value = self.model.sampled(number - 7, place)
            self.rows[number] += 1
            ended = "length" if place + 1 >= self.most[number - 7] else None
            found.append(
                SimpleNamespace(uid=number, token=index, logprobs=Values(index, value), finish_reason=ended)
            )
            if ended:
                del self.rows[number]
        return found

    def remove(self, uids: list[int]) -> None:
        """Take turns out (generate.py:1744); one that is not there is none."""
        for number in uids:
            del self.rows[number]


class Rows(list[Any]):
    """A tensor."""

    device = "cpu"


MODULES: Mapping[str, Mapping[str, Any]] = {
    "vllm": {},
    "vllm.sampling_params": {
        "SamplingParams": SamplingParams,
        "RequestOutputKind": RequestOutputKind,
        "StructuredOutputsParams": lambda **keys: ("structured", keys),
    },
    "mlx": {},
    "mlx.core": {"random": SimpleNamespace(key=lambda seed: seed, split=lambda key, count=2: [key] * count)},
    "mlx_lm": {},
    "mlx_lm.generate": {"BatchGenerator": BatchGenerator},
    "mlx_lm.sample_utils": {},
    "torch": {
        "tensor": lambda values, **_: Rows(values),
        "cuda": SimpleNamespace(is_initialized=lambda: False),
    },
    "transformers": {"GenerationConfig": SimpleNamespace},
}
"""What is used of the engines' packages beside the objects."""


def fake_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the engines' packages be imported, without what computes."""
    for name, members in MODULES.items():
        module = ModuleType(name)
        vars(module).update(members)
        monkeypatch.setitem(sys.modules, name, module)


MAKERS: Mapping[str, tuple[Callable[..., Any], Callable[..., InProcessEngine]]] = {
    "vllm-llm": (LLMEngine, lambda core, model, **options: VllmLLM(LLM(core), model, **options)),
    "vllm-async": (AsyncLLM, VllmAsync),
    "sglang-engine": (SglangObject, SglangEngine),
    "sglang-engine, new ids only": (incremental, SglangEngine),
    "transformers": (Model, TransformersModel),
    "mlx": (Model, MlxModel),
}
"""Each engine: what makes its object with turns, and what makes the engine of the object."""


def made(kind: str, *turns: Sampled, **options: Any) -> tuple[Any, Any]:
    """Return an engine whose object samples these turns, and the object."""
    make_object, make_engine = MAKERS[kind]
    fake = make_object(turns=turns or (YES,), **options)
    engine = make_engine(fake, MODEL)
    MADE.append((engine, fake))
    return engine, fake


MADE: list[tuple[Any, Any]] = []


def close_loops() -> None:
    """Close the event loops of objects that were made, and those that engines made for trio."""
    for engine, fake in MADE:
        for loop in (getattr(engine, "_own", None), getattr(fake, "loop", None)):
            if loop is not None:
                loop.close()
    MADE.clear()
