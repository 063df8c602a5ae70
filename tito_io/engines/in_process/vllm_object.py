"""Shared by the engines of vLLM's Python objects: sampling parameters, outputs and limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tito_core.samples import RoutedExperts
from tito_io.engines.grammar import Format, vllm_keys
from tito_io.engines.protocol import ModelLimits, Sampling, UnsupportedError
from tito_io.engines.replies.output_parser import OutputFormat
from tito_io.engines.sampling_masks import no_masks
from tito_io.families.family import Family
from tito_io.families.tokenizer_family import TokenizerFamily

from .base import InProcessEngine
from .packages import package
from .turns import LocalTurn, Piece

EXTRAS = frozenset(
    (
        *("allowed_token_ids", "bad_words", "extra_args", "frequency_penalty", "ignore_eos", "logit_bias"),
        *("min_p", "min_tokens", "presence_penalty", "repetition_detection", "repetition_penalty"),
        *("structured_outputs", "thinking_token_budget", "top_k", "top_p", "trace_decode_token_ids"),
    )
)
"""Parameters of `vllm.SamplingParams` that change what is sampled, and not which of it comes back."""
LOGPROBS = {"raw_logprobs": "raw", "processed_logprobs": "processed"}
"""What `logprobs_mode` of the model's config means; the other two modes report logits."""


class VllmObject(InProcessEngine):
    """Base class of the engines of vLLM's objects."""

    renders_as: str = "vllm"
    extras = EXTRAS

    def __init__(
        self, core: Any, family: Family | TokenizerFamily, *, output_format: OutputFormat | None = None
    ) -> None:
        super().__init__(family, output_format=output_format)
        self._core = core
        self.logprobs_mode = logprobs_mode(core.model_config)

    async def limits(self) -> ModelLimits:
        """Return the sizes that the model accepts."""
        config = self._core.model_config
        return ModelLimits(max_model_len=config.max_model_len, vocab_size=config.get_vocab_size())

    async def check_masks(self, sampling: Sampling) -> None:
        """Raise `MasksUnsupportedError` for an object that was made without sampling masks."""
        del sampling
        if not getattr(self._core.model_config, "return_sampling_mask", False):
            raise no_masks(
                "the object gives none: make it, of vLLM 0.32 or later, with return_sampling_mask=True and "
                "logprobs_mode='processed_logprobs'"
            )

    def _grammar_keys(self, answer: Format) -> dict[str, Any]:
        return vllm_keys(answer)

    def _frees_reasoning(self) -> bool:
        """Whether an engine constrains nothing before reasoning is closed, as with a reasoning parser.

        `StructuredOutputsConfig.reasoning_parser` of its config names the parser; empty for none
        (`vllm/v1/structured_output/__init__.py`, 0.32).
        """
        config = getattr(self._core, "vllm_config", None)
        return bool(getattr(getattr(config, "structured_outputs_config", None), "reasoning_parser", ""))

    def _request(self, turn: LocalTurn) -> tuple[dict[str, Any], Any]:
        """Return a prompt of ids in the form that vLLM neither renders nor cuts, and parameters.

        The form is `vllm.inputs.TokensInput`.
        """
        params = sampling_params(turn, self._core.model_config.get_diff_sampling_param())
        return {"type": "token", "prompt_token_ids": turn.ids.tolist()}, params


def sampling_params(turn: LocalTurn, defaults: Mapping[str, Any]) -> Any:
    """Return `vllm.SamplingParams` for a turn.

    `max_tokens` always goes along: without it, vLLM samples 16 ids. Text is made here from ids, so that vLLM
    makes it only where it must look for stop strings.

    Args:
        turn: What to sample.
        defaults: The model's own parameters, as vLLM's server uses them.
    """
    vllm = package("vllm.sampling_params")
    sampling = turn.sampling
    keys: dict[str, Any] = {**defaults, **sampling.extra}
    if isinstance(keys.get("structured_outputs"), Mapping):
        keys["structured_outputs"] = vllm.StructuredOutputsParams(**keys["structured_outputs"])
    if sampling.temperature is not None:
        keys["temperature"] = sampling.temperature
    return vllm.SamplingParams.from_optional(
        **{**keys, "max_tokens": min(turn.max_tokens, most(turn, defaults))},
        n=sampling.n,
        seed=sampling.seed,
        stop=list(sampling.stop),
        stop_token_ids=list(turn.stop_ids),
        logprobs=0 if sampling.logprobs else None,  # of the sampled id alone
        detokenize=bool(sampling.stop),
        skip_special_tokens=False,  # or a stop string in which one stands is never found
        output_kind=vllm.RequestOutputKind.DELTA if turn.stream else vllm.RequestOutputKind.FINAL_ONLY,
    )


def most(turn: LocalTurn, defaults: Mapping[str, Any]) -> int:
    """Return the most ids to sample: the caller's number, else the model's own, else all that fit."""
    if turn.sampling.max_tokens is not None:
        return turn.max_tokens
    return int(defaults.get("max_tokens") or turn.max_tokens)


def pieces(output: Any) -> Iterator[Piece]:
    """Yield the pieces of a `vllm.RequestOutput`."""
    for one in output.outputs:
        ids = list(one.token_ids)
        yield Piece(
            index=one.index,
            ids=ids,
            logprobs=sampled_logprobs(one.logprobs, ids),
            kept=getattr(getattr(one, "sampling_mask", None), "token_ids", None),
            finish_reason=one.finish_reason,
            stop_reason=one.stop_reason,
            prompt_ids=output.prompt_token_ids,
            cached_tokens=output.num_cached_tokens,
            weight_versions=_versions(one),
            routed_experts=_experts(one),
        )


def sampled_logprobs(logprobs: Any, ids: Sequence[int]) -> list[object]:
    """Return the log-probability of each sampled id: an entry holds those of likelier ids, too.

    None where an entry lacks its id: the value of another id is not its own.
    """
    if not ids:  # an aborted turn of no ids comes with None
        return []
    entries = list(logprobs or ())
    if len(entries) != len(ids):
        return entries  # which the check of the count rejects
    found = [(entry or {}).get(index) for entry, index in zip(entries, ids, strict=True)]
    return [None if one is None else one.logprob for one in found]


def logprobs_mode(model_config: Any) -> str:
    """Return which log-probabilities the model reports, `raw` or `processed`.

    Raises:
        UnsupportedError: It reports logits in their place.
    """
    mode = getattr(model_config, "logprobs_mode", "raw_logprobs")
    if mode not in LOGPROBS:
        raise UnsupportedError(
            f"logprobs_mode is {mode!r}: the object reports logits in place of log-probabilities; make it "
            "with logprobs_mode='raw_logprobs' or 'processed_logprobs'"
        )
    return LOGPROBS[mode]


def _versions(output: Any) -> list[dict[str, Any]]:
    spans = getattr(output, "weight_versions", None) or ()
    return [{"version": span.version, "start": span.start, "end": span.end} for span in spans]


def _experts(output: Any) -> RoutedExperts | None:
    array = getattr(output, "routed_experts", None)
    if array is None:
        return None
    return RoutedExperts(data=array.tobytes(), dtype=str(array.dtype), shape=tuple(array.shape))
