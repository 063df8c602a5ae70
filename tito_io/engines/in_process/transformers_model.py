"""A model of `transformers` as an engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any, get_args

from anyio import to_thread

from tito_core import Ids, InputError
from tito_io.engines.prompt_ids import prompt_ids
from tito_io.engines.protocol import ModelLimits, Sampling, UnsupportedError
from tito_io.engines.replies.output_parser import OutputFormat
from tito_io.engines.sampling_masks import no_masks
from tito_io.families.family import Family
from tito_io.families.tokenizer_family import TokenizerFamily

from .objects import check_object
from .packages import package
from .threaded import SampledRows, ThreadedEngine
from .token_sampler import BatchSampler, LogprobsMode, TokenSampler

EXTRAS = frozenset(("logits_processor", "min_p", "repetition_penalty", "top_k", "top_p"))
OTHER_CHOICES = (
    *("assistant_early_exit", "bad_words_ids", "begin_suppress_tokens", "constraints", "diversity_penalty"),
    *("dola_layers", "encoder_no_repeat_ngram_size", "encoder_repetition_penalty", "epsilon_cutoff"),
    *("eta_cutoff", "exponential_decay_length_penalty", "force_words_ids", "forced_bos_token_id"),
    *("forced_eos_token_id", "guidance_scale", "max_time", "min_length", "min_new_tokens"),
    *("no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_return_sequences", "penalty_alpha"),
    *("prompt_lookup_num_tokens", "remove_invalid_values", "renormalize_logits", "sequence_bias"),
    *("stop_strings", "suppress_tokens", "token_healing", "top_h", "typical_p", "watermarking_config"),
)
"""Fields of a generation config that change what is sampled, and that are not honoured here."""
NEUTRAL: tuple[Any, ...] = (None, False, 0, 1, [], {})


class TransformersModel(ThreadedEngine):
    """A `transformers` model with `generate`, in this process.

    `generate` runs the model. Ids are drawn here from its exact logits, with random numbers of each turn's
    own, so that a seed repeats a turn and changes nothing else. Turns that are asked for together are sampled
    as one batch, in one thread, with shorter prompts padded on the left and hidden by a mask. Logits of a
    batch are those of a turn alone up to the rounding of floats.

    Temperature, top_k, top_p, min_p and repetition_penalty are taken from `Sampling`, else from the model's
    `generation_config`. Nothing else limits what is sampled: `top_k=50`, which `generate` uses where no
    config says otherwise, is left out. A model in training mode is refused: dropout would change
    log-probabilities.

    Args:
        model: The object, in `eval` mode.
        family: Renders messages and parses sampled ids.
        logprobs: `raw` (default): log-probabilities of the model's own distribution; `processed`: of the
            one that was sampled from, after temperature and the others. At temperature 0 without
            penalties both are the same.
        output_format: How the model writes reasoning and tool calls: `hermes` or `harmony`; None (default)
            detects it from the vocabulary.
        batch_size: How many turns are sampled as one batch at most; the `n` turns of one request always are.
            Default: 32. With 1, a turn never depends on others, not even by rounding.

    Attributes:
        name: `transformers`.
        keeps_ids: False: prompts go by ids.
        where: The object's method, as errors name it.
        extras: The keys that `Sampling.extra` may hold. `logits_processor` is a list of transformers'
            processors, which are applied before temperature.
        family: As it was passed.
        model: The object.
        logprobs: As it was passed.
        batch_size: As it was passed.

    Raises:
        InputError: `logprobs` or `batch_size` is invalid, or `model` is something else.
        UnsupportedError: The model has an encoder.
    """

    name: str = "transformers"
    where = "model.generate"
    extras = EXTRAS

    def __init__(
        self,
        model: Any,
        family: Family | TokenizerFamily,
        *,
        logprobs: LogprobsMode = "raw",
        output_format: OutputFormat | None = None,
        batch_size: int = 32,
    ) -> None:
        super().__init__(family, output_format=output_format)
        if type(batch_size) is not int or batch_size < 1:
            raise InputError(f"batch_size is {batch_size!r:.60}: give a whole number of at least 1")
        if logprobs not in get_args(LogprobsMode):
            raise InputError(f"logprobs is {logprobs!r}: pass 'raw' or 'processed'")
        needed = ("config", "generate", "get_input_embeddings")
        check_object(
            model, "model", needed, "a model such as AutoModelForCausalLM loads", "TransformersModel"
        )
        if model.config.is_encoder_decoder:
            raise UnsupportedError("the model has an encoder: its prompt and its turns are two sequences")
        self.model = model
        self.logprobs: LogprobsMode = logprobs
        self.batch_size = batch_size

    async def limits(self) -> ModelLimits:
        """Return the sizes that the model accepts."""
        text = self.model.config.get_text_config()
        length = getattr(text, "max_position_embeddings", None)
        return ModelLimits(
            max_model_len=length if type(length) is int else None,
            vocab_size=self.model.get_input_embeddings().num_embeddings,
        )

    async def score(self, ids: Ids, start: int) -> tuple[float | None, ...]:
        """Return the raw log-probability of each id from `start` on, by one forward pass."""
        (await self.limits()).room(len(ids), 1)
        sent = prompt_ids(ids, (await self.limits()).vocab_size)
        future = self._executor().submit(self._forward, sent.tolist(), start)
        return await to_thread.run_sync(future.result)

    def _forward(self, ids: list[int], start: int) -> tuple[float | None, ...]:
        torch = package("torch")
        with torch.no_grad():
            given = torch.tensor([ids], device=self.model.device)
            logits = self.model(given).logits[0, start - 1 : -1].float()
            values = logits.log_softmax(-1).gather(1, given[0, start:, None])[:, 0]
        return tuple(values.tolist())

    def _check_sampling(self, sampling: Sampling) -> None:
        """Raise `UnsupportedError` for a model that would sample otherwise than asked."""
        del sampling  # `Sampling.extra` has no other keys than those that are honoured
        if self.model.training:
            raise UnsupportedError(
                "the model is in training mode, in which dropout changes log-probabilities: call "
                "model.eval() first. Nothing was sampled"
            )
        config = self.model.generation_config
        for name in OTHER_CHOICES:
            if getattr(config, name, None) not in NEUTRAL:
                raise UnsupportedError(
                    f"the model's generation_config has {name}, which is not honoured here: set it to None. "
                    "Nothing was sampled"
                )

    async def check_masks(self, sampling: Sampling) -> None:
        """Raise `MasksUnsupportedError` where nothing truncates the distribution: every id is kept."""
        choices = self._choices(sampling)
        whole = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
        if choices["temperature"] != 0 and all(choices[name] in (None, one) for name, one in whole.items()):
            raise no_masks("every id is kept: pass top_p, top_k or min_p")

    def _joins(self, batch: Sequence[SampledRows], other: SampledRows) -> bool:
        """Whether the turns fit into the batch, and into the context behind the longest prompt."""
        turns = [*(one.turn for one in batch), other.turn]
        lengths = {len(turn.ids) for turn in turns}
        most = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        return (
            sum(turn.sampling.n for turn in turns) <= self.batch_size
            and (len(lengths) == 1 or self._pads)
            and (most is None or max(lengths) + max(turn.max_tokens for turn in turns) <= most)
        )

    @property
    def _pads(self) -> bool:
        """Whether a mask hides padding. A recurrent state sees it, and so do positions of its own."""
        stateful = getattr(self.model, "_is_stateful", False)
        return not stateful and "position_ids" in signature(self.model.forward).parameters

    def _sample(self, batch: Sequence[SampledRows]) -> None:
        torch, transformers = package("torch"), package("transformers")
        prompts = [one.turn.ids.tolist() for one in batch for _ in one.rows]
        width = max(map(len, prompts))
        padding = [width - len(prompt) for prompt in prompts]
        rows = [[self._padding()] * pad + prompt for pad, prompt in zip(padding, prompts, strict=True)]
        # Without a mask, ids that are the padding token would be hidden.
        seen = [[0] * pad + [1] * len(prompt) for pad, prompt in zip(padding, prompts, strict=True)]
        choices = [self._choices(one.turn.sampling) for one in batch]
        samplers = [TokenSampler(one, own, self.logprobs) for one, own in zip(batch, choices, strict=True)]
        sampler = BatchSampler(samplers, width)
        self.model.generate(
            torch.tensor(rows, device=self.model.device),
            attention_mask=torch.tensor(seen, device=self.model.device),
            # What is None here would be taken from the model's own config.
            generation_config=transformers.GenerationConfig(
                max_new_tokens=max(one.turn.max_tokens for one in batch),
                eos_token_id=[*self._stop_ids()] or None,
                pad_token_id=self._padding(),
                **NO_CHOICES,
            ),
            logits_processor=[sampler],
            stopping_criteria=[sampler.ended],
        )

    def _stop_ids(self) -> tuple[int, ...]:
        """Return the ids that end a turn: the generation config's, else the family's."""
        stated = self.model.generation_config.eos_token_id
        if stated is None:
            return self.family.stop_ids
        return (stated,) if isinstance(stated, int) else tuple(stated)

    def _padding(self) -> int:
        """Return an id for what follows the shorter turns of a batch."""
        stated = self.model.generation_config.pad_token_id
        return stated if isinstance(stated, int) else next(iter(self._stop_ids()), 0)

    def _choices(self, sampling: Sampling) -> Mapping[str, Any]:
        """Return how to sample: the caller's parameters, else the model's own."""
        config = self.model.generation_config
        own = {name: getattr(config, name, None) for name in ("temperature", *EXTRAS)}
        if not config.do_sample:
            own["temperature"] = 0.0
        given = {**sampling.extra, "temperature": sampling.temperature}
        return {**own, **{name: value for name, value in given.items() if value is not None}}


NO_CHOICES: Mapping[str, Any] = {
    "do_sample": False,
    "num_beams": 1,
    "num_return_sequences": 1,
    "repetition_penalty": 1.0,
    "return_dict_in_generate": False,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 1.0,
}
"""Makes `generate` take the ids that the sampler chose; the last three are defaults that do nothing then."""
