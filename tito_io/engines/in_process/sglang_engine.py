"""A `sglang.Engine` as an engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import attrs

from tito_io.engines.errors import fault
from tito_io.engines.grammar import Format, sglang_keys
from tito_io.engines.protocol import EngineAnswer, ModelLimits, Sampling, UnsupportedError
from tito_io.engines.replies import sglang_meta
from tito_io.engines.replies.invariants import Check
from tito_io.engines.replies.output_parser import OutputFormat
from tito_io.families.family import Family
from tito_io.families.tokenizer_family import TokenizerFamily

from .awaited import AwaitedEngine
from .objects import check_object
from .turns import LocalTurn, Piece, local_check

PARAMETERS = frozenset(
    (
        *("custom_params", "ebnf", "frequency_penalty", "ignore_eos", "json_schema", "logit_bias"),
        *("min_new_tokens", "min_p", "presence_penalty", "regex", "repetition_penalty", "stop_regex"),
        *("structural_tag", "top_k", "top_p"),
    )
)
"""Extra keys that go into `sampling_params` (`sglang/srt/sampling/sampling_params.py`)."""
BESIDE = frozenset(("cache_salt", "custom_logit_processor", "lora_path", "priority", "session_params"))
"""Extra keys that are arguments of `Engine.async_generate`."""


class SglangEngine(AwaitedEngine):
    """A `sglang.Engine` in this process.

    Turns are sampled in the event loop to which the object belongs: its own, which a thread runs while there
    are turns, or the one in which `async_generate` was awaited first. So its blocking methods, such as those
    that update weights, work between turns.

    SGLang's log-probabilities are those of the distribution that was sampled from, after temperature.

    Args:
        engine: The object. It is not closed.
        family: Renders messages and parses sampled ids.
        output_format: How the model writes reasoning and tool calls: `hermes` or `harmony`; None (default)
            detects it from the vocabulary.

    Attributes:
        name: `sglang-engine`.
        keeps_ids: False: prompts go by ids.
        where: The object's method, as errors name it.
        extras: The keys that `Sampling.extra` may hold: sampling parameters and arguments of SGLang.
        family: As it was passed.
        engine: The object.
        seeds_by_position: True: a seed belongs to positions of the sequence, not to the order of draws.

    Raises:
        InputError: `engine` is something else.
    """

    seeds_by_position: bool = True
    name: str = "sglang-engine"
    renders_as: str = "sglang"
    where = "sglang.Engine.async_generate"
    extras = PARAMETERS | BESIDE

    def __init__(
        self, engine: Any, family: Family | TokenizerFamily, *, output_format: OutputFormat | None = None
    ) -> None:
        super().__init__(family, output_format=output_format)
        needed = ("tokenizer_manager", "async_generate", "server_args")
        check_object(engine, "engine", needed, "a sglang.Engine", "SglangEngine")
        self.engine = engine

    def _grammar_keys(self, answer: Format) -> dict[str, str]:
        return sglang_keys(answer)

    async def limits(self) -> ModelLimits:
        """Return the sizes that the model accepts."""
        manager = self.engine.tokenizer_manager
        longest = manager.max_req_input_len
        return ModelLimits(
            max_model_len=manager.context_len,
            vocab_size=manager.model_config.vocab_size,
            max_prompt_len=longest - 1 if type(longest) is int else None,
        )

    def _check_sampling(self, sampling: Sampling) -> None:
        """Raise `UnsupportedError` for a seed that would change nothing."""
        if sampling.seed is not None and not self.engine.server_args.enable_deterministic_inference:
            raise UnsupportedError(
                "Sampling.seed: the engine samples without seeds; leave it out, or make the engine with "
                "enable_deterministic_inference=True. Nothing was sampled",
                parameter="sampling",
            )

    async def check_masks(self, sampling: Sampling) -> None:
        """Do nothing: each request asks for them, and SGLang rejects those that it cannot honour."""

    async def _pieces(self, turn: LocalTurn) -> AsyncGenerator[Piece]:
        incremental = self.engine.tokenizer_manager.incremental_streaming_output
        check = local_check(self.where, None)
        incremental = turn.stream and incremental
        reader = ChunkReader(check, incremental, turn.sampling.logprobs, turn.sampling.sampling_masks)
        answer = await self.engine.async_generate(**arguments(turn), stream=turn.stream)
        if not turn.stream:
            for place, one in enumerate(answer if isinstance(answer, list) else [answer]):
                yield reader.piece({**one, "index": place})
            return
        async with aclosing(answer):  # which aborts the request
            async for chunk in answer:
                yield reader.piece(chunk)

    def _loop(self) -> Any:
        return self.engine.tokenizer_manager.event_loop or self.engine.loop


def arguments(turn: LocalTurn) -> dict[str, Any]:
    """Return the arguments of `async_generate` for a turn.

    `max_new_tokens` always goes along: without it, SGLang samples 128 ids. A start of -1 requests the
    log-probabilities of sampled ids only.
    """
    sampling = turn.sampling
    own = {
        "max_new_tokens": turn.max_tokens,
        "temperature": sampling.temperature,
        "sampling_seed": sampling.seed,
        "stop": list(sampling.stop) or None,
        "stop_token_ids": list(turn.stop_ids) or None,
        "n": sampling.n,
        "skip_special_tokens": False,
    }
    extra = {name: value for name, value in sampling.extra.items() if name in PARAMETERS}
    return {
        "input_ids": turn.ids.tolist(),
        "sampling_params": {**extra, **{name: value for name, value in own.items() if value is not None}},
        **({"return_logprob": True, "logprob_start_len": -1} if sampling.logprobs else {}),
        **(sglang_meta.MASKED if sampling.sampling_masks else {}),
        **{name: value for name, value in sampling.extra.items() if name in BESIDE},
    }


@attrs.define
class ChunkReader:
    """Reads the chunks of one request; each repeats what came before, unless the engine is set otherwise.

    Attributes:
        check: The checks of what the engine reports.
        incremental: Whether a chunk holds new ids only (`incremental_streaming_output`).
        logprobs: Whether log-probabilities were requested.
        masks: Whether sampling masks were requested.
    """

    check: Check
    incremental: bool
    logprobs: bool
    masks: bool
    _seen: Counter[int] = attrs.field(factory=Counter, init=False)

    def piece(self, chunk: Mapping[str, Any]) -> Piece:
        """Return what is new in a chunk."""
        check, index = self.check, chunk.get("index") or 0
        meta = check.get(chunk, "meta_info", dict)
        reason = meta.get("finish_reason") or {}
        self._check_refused(reason)
        ids, logprobs, kept = self._new(chunk, meta, index)
        self._seen[index] += len(ids)
        return Piece(
            index=index,
            ids=ids,
            logprobs=logprobs,
            kept=kept,
            finish_reason=reason.get("type"),
            stop_reason=reason.get("matched"),
            prompt_tokens=meta.get("prompt_tokens") if ids or reason.get("type") != "abort" else None,
            cached_tokens=sglang_meta.cached(meta),
            weight_versions=meta.get("weight_versions") or () if reason else (),
        )

    def _new(
        self, chunk: Mapping[str, Any], meta: Mapping[str, Any], index: int
    ) -> tuple[list[int], tuple[float | None, ...], list[list[int]] | None]:
        """Return the chunk's ids, log-probabilities and kept ids that did not come before.

        The chunk of an aborted turn repeats the last id: the count shows it.
        """
        before, check = self._seen[index], self.check
        count = check.get(meta, "completion_tokens", int) - before
        start = 0 if self.incremental else before
        ids = check.get(chunk, "output_ids", list)[start:][:count]
        new = slice(start, start + len(ids))
        found = meta.get(sglang_meta.KEPT) if self.masks else None
        kept = None if found is None else check.typed(found, list, sglang_meta.KEPT)[new]
        if not (ids and self.logprobs):
            return ids, (), kept
        lists = [list(one) for one in check.get(meta, "output_token_logprobs", list)[new]]  # as JSON has them
        logprobs = sglang_meta.triples(check, {"output_token_logprobs": lists}, ids)
        if kept is not None:
            values = check.get(meta, sglang_meta.OVER_KEPT, list)[new]
            logprobs = sglang_meta.over_kept(check, {sglang_meta.OVER_KEPT: values}, len(ids))
        return ids, logprobs, kept

    def _check_refused(self, reason: Mapping[str, Any]) -> None:
        """Raise the error that an abort with an HTTP status means."""
        status = reason.get("status_code")
        if reason.get("type") == "abort" and type(status) is int:
            body = {"error": {"message": reason.get("message"), "type": reason.get("err_type")}}
            raise fault(self.check.where, EngineAnswer(int(status), body))
