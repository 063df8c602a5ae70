"""Objects of vLLM's and SGLang's Python packages, a few lines each. They refuse what the real ones refuse.

Each says which source line says so: of vLLM 0.32.0 and SGLang 0.5.23.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import attrs
import pytest

from tito_io.embedded import family

MODEL = family()
CONTEXT = 400
END = MODEL.stop_ids[0]


def spelled(text: str) -> list[int]:
    """Return the ids of a text, letter by letter, so that hardly any text has these ids otherwise."""
    return [MODEL.encode(letter)[0] for letter in text]


@attrs.frozen(kw_only=True)
class Sampled:
    """What a fake samples in a turn."""

    ids: Sequence[int]
    finish_reason: str | None = "stop"
    stop_reason: int | str | None = None
    logprobs: Sequence[float] | None = None

    @property
    def values(self) -> list[float]:
        """One log-probability an id."""
        return list(
            self.logprobs if self.logprobs is not None else (-0.5 - 0.01 * n for n in range(len(self.ids)))
        )


YES = Sampled(ids=[*spelled("Yes."), END])


# vLLM.


class RequestOutputKind(Enum):
    """As in vllm/sampling_params.py:221."""

    CUMULATIVE = 0
    DELTA = 1
    FINAL_ONLY = 2


@attrs.frozen(kw_only=True)
class SamplingParams:
    """The parameters of vllm/sampling_params.py:283 that are passed; another name is a TypeError."""

    n: int = 1
    presence_penalty: float = 0.0
    temperature: float = 1.0
    top_p: float = attrs.field(default=1.0)
    top_k: int = 0
    seed: int | None = None
    stop: Sequence[str] | None = None
    stop_token_ids: Sequence[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | None = 16
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


class VLLMValidationError(Exception):
    """As in vllm/exceptions.py:28: no `ValueError`."""


def fake_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `vllm.sampling_params` be imported."""
    module: Any = ModuleType("vllm.sampling_params")
    module.SamplingParams, module.RequestOutputKind = SamplingParams, RequestOutputKind
    module.StructuredOutputsParams = lambda **keys: ("structured", keys)
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", module)


@attrs.frozen(kw_only=True)
class ModelConfig:
    """As far as vllm/config/model.py is read."""

    logprobs_mode: str = "raw_logprobs"
    defaults: Mapping[str, Any] = attrs.field(factory=dict)
    max_model_len: int = CONTEXT

    def get_vocab_size(self) -> int:
        """Return how many ids the model has, which may be more than the tokenizer's."""
        return MODEL.vocab_size

    def get_diff_sampling_param(self) -> dict[str, Any]:
        """Return the parameters that the model's folder states (vllm/config/model.py:1847)."""
        return dict(self.defaults)


def output(
    name: str, prompt: Sequence[int], index: int, sampled: Sampled, part: slice, *, finished: bool, end: bool
) -> Any:
    """Return a `RequestOutput` of one turn (vllm/outputs.py:125)."""
    ids = list(sampled.ids)[part]
    # An entry has the likeliest id too, and the sampled one wherever (vllm/logprobs.py).
    entries = [
        {7: SimpleNamespace(logprob=-0.1), index: SimpleNamespace(logprob=value)}
        for index, value in zip(ids, sampled.values[part], strict=True)
    ]
    one = SimpleNamespace(
        index=index,
        token_ids=tuple(ids),
        logprobs=entries if ids else None,
        finish_reason=sampled.finish_reason if end else None,
        stop_reason=sampled.stop_reason if end else None,
        weight_versions=[SimpleNamespace(version="w1", start=0, end=len(sampled.ids))] if end else None,
        routed_experts=None,
    )
    return SimpleNamespace(
        request_id=name, prompt_token_ids=list(prompt), outputs=[one], finished=finished, num_cached_tokens=3
    )


@attrs.define
class Request:
    """A request that is being sampled, an id a step."""

    name: str
    prompt: Sequence[int]
    params: SamplingParams
    turns: Sequence[Sampled]
    at: int = 0

    def step(self) -> list[Any]:
        """Return the outputs of a step: of a streamed request always, else of the ends alone."""
        self.at += 1
        streamed = self.params.output_kind is RequestOutputKind.DELTA
        found = []
        for index, turn in enumerate(self.turns):
            end = self.at == max(len(turn.ids), 1)
            if self.at > max(len(turn.ids), 1) or not (streamed or end):
                continue
            part = slice(self.at - 1, self.at) if streamed else slice(None)
            found.append(
                output(
                    self.name,
                    self.prompt,
                    index,
                    turn,
                    part,
                    finished=self.done,
                    end=end and bool(turn.finish_reason),
                )
            )
        for one in found[:-1]:
            one.finished = False
        return found

    @property
    def done(self) -> bool:
        """Whether all turns have ended."""
        return all(self.at >= len(turn.ids) and turn.finish_reason for turn in self.turns)


@attrs.define
class LLMEngine:
    """`vllm.v1.engine.llm_engine.LLMEngine`, with scripted turns."""

    model_config: ModelConfig = attrs.field(factory=ModelConfig)
    turns: Sequence[Sampled] = (YES,)
    requests: dict[str, Request] = attrs.field(factory=dict)
    seen: list[Request] = attrs.field(factory=list)
    aborted: list[str] = attrs.field(factory=list)
    steps: int = 0
    failing: Exception | None = None

    def add_request(self, request_id: str, prompt: Mapping[str, Any], params: SamplingParams) -> str:
        """Begin a request; its internal id is another than the caller's (input_processor.py:349).

        A prompt with a type is taken as it is: no id and no length is checked (input_processor.py:402).
        """
        assert isinstance(request_id, str)
        assert set(prompt) == {"type", "prompt_token_ids"}
        assert prompt["type"] == "token"
        assert type(prompt["prompt_token_ids"]) is list
        assert params.output_kind is not RequestOutputKind.CUMULATIVE
        assert params.detokenize or not params.stop, "vllm/sampling_params.py: stop needs detokenize"
        request = Request(request_id, prompt["prompt_token_ids"], params, list(self.turns)[: params.n])
        self.requests[f"{request_id}-internal"] = request
        self.seen.append(request)
        return f"{request_id}-internal"

    def abort_request(self, request_ids: Sequence[str], *, internal: bool = False) -> None:
        """Give requests up; internal ids that are passed without `internal` name nothing."""
        for name in request_ids:
            if internal:
                self.requests.pop(name, None)
                self.aborted.append(name)

    def has_unfinished_requests(self) -> bool:
        """Whether a request is left."""
        return bool(self.requests)

    def step(self) -> list[Any]:
        """Sample an id of each request; without a request, the client of another process waits for ever."""
        assert self.requests, "step() without a request never returns (core_client.py, get_output)"
        self.steps += 1
        if self.failing is not None:
            raise self.failing
        found = []
        for name, request in list(self.requests.items()):
            found += request.step()
            if request.done:
                del self.requests[name]
        return found


@attrs.define
class LLM:
    """`vllm.LLM`."""

    llm_engine: LLMEngine = attrs.field(factory=LLMEngine)


@attrs.define
class AsyncLLM:
    """`vllm.v1.engine.async_llm.AsyncLLM`."""

    model_config: ModelConfig = attrs.field(factory=ModelConfig)
    turns: Sequence[Sampled] = (YES,)
    output_handler: Any = None
    running: int = 0
    failing: Exception | None = None

    async def generate(
        self, prompt: Mapping[str, Any], sampling_params: SamplingParams, request_id: str
    ) -> AsyncIterator[Any]:
        """Yield outputs; closing the generator aborts the request (async_llm.py:779)."""
        loop = asyncio.get_running_loop()
        if self.output_handler is None:  # async_llm.py:827: once, in the loop of the first call
            self.output_handler = SimpleNamespace(get_loop=lambda: loop)
        assert self.output_handler.get_loop() is loop, "in another event loop the real one never answers"
        if self.failing is not None:
            raise self.failing
        request = Request(
            request_id, prompt["prompt_token_ids"], sampling_params, self.turns[: sampling_params.n]
        )
        self.running += 1
        try:
            while not request.done:
                await asyncio.sleep(0)
                for one in request.step():
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


@attrs.define
class SglangObject:
    """`sglang.Engine`."""

    turns: Sequence[Sampled] = (YES,)
    loop: Any = None
    tokenizer_manager: TokenizerManager = attrs.field(factory=TokenizerManager)
    deterministic: bool = False
    calls: list[dict[str, Any]] = attrs.field(factory=list)
    closed: int = 0
    cut_prompt: int = 0
    repeats_last: bool = False

    @property
    def server_args(self) -> Any:
        """What the engine was made with."""
        return SimpleNamespace(enable_deterministic_inference=self.deterministic)

    async def async_generate(
        self,
        *,
        input_ids: list[int],
        sampling_params: dict[str, Any],
        return_logprob: bool,
        logprob_start_len: int,
        stream: bool,
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
        self.calls.append(sampling_params)
        chunks = self._chunks(len(input_ids) - self.cut_prompt, sampling_params.get("n", 1), stream=stream)
        if stream:
            return self._streamed(chunks)
        await asyncio.sleep(0)
        return chunks if len(chunks) > 1 else chunks[0]

    async def _streamed(self, chunks: Sequence[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
        try:
            for chunk in chunks:
                await asyncio.sleep(0)
                yield chunk
            if chunks[-1]["meta_info"]["finish_reason"] is None:
                await asyncio.Event().wait()
        except (asyncio.CancelledError, GeneratorExit):
            self.closed += 1  # tokenizer_manager.py:958 aborts the request
            raise

    def _chunks(self, prompt: int, n: int, *, stream: bool) -> list[dict[str, Any]]:
        incremental = stream and self.tokenizer_manager.incremental_streaming_output
        chunks = []
        for index, turn in enumerate(list(self.turns)[:n]):
            for end in range(1, len(turn.ids) + 1) if stream else (len(turn.ids),):
                start = end - 1 if incremental else 0
                whole = end == len(turn.ids)
                chunks.append(
                    self._chunk(prompt, turn, slice(start, end), whole=whole)
                    | ({"index": index} if n > 1 else {})
                )
            if self.repeats_last:  # tokenizer_manager.py:3630: the chunk of an aborted turn
                again = self._chunk(prompt, turn, slice(-1 if incremental else 0, None), whole=True)
                again["meta_info"]["finish_reason"] = {"type": "abort", "message": "Abort in waiting queue"}
                chunks[-1]["meta_info"]["finish_reason"] = None
                chunks.append(again)
        return chunks

    def _chunk(self, prompt: int, turn: Sampled, part: slice, *, whole: bool) -> dict[str, Any]:
        ids = list(turn.ids)[part]
        reason = (
            {"type": turn.finish_reason, "matched": turn.stop_reason}
            if whole and turn.finish_reason
            else None
        )
        return {
            "text": None,
            "output_ids": ids,
            "meta_info": {
                "id": "rid",
                "prompt_tokens": prompt,
                "completion_tokens": len(turn.ids) if whole else part.stop,
                "cached_tokens": 2,
                "finish_reason": reason,
                # Tuples, where HTTP has lists.
                "output_token_logprobs": [
                    (value, index, None) for value, index in zip(turn.values[part], ids, strict=True)
                ],
            },
        }
