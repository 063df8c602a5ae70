"""A model of `mlx-lm` as an engine."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tito_io.engines.protocol import ModelLimits
from tito_io.engines.replies.output_parser import OutputFormat
from tito_io.families.family import Family
from tito_io.families.tokenizer_family import TokenizerFamily

from .objects import check_object
from .packages import package
from .threaded import SampledRows, ThreadedEngine
from .turns import LocalTurn

EXTRAS = frozenset(("logits_processors", "min_p", "top_k", "top_p"))


class MlxModel(ThreadedEngine):
    """A model of `mlx-lm`, such as `mlx_lm.load` returns, in this process.

    `mlx_lm.generate.BatchGenerator` runs the model; the `n` turns of one request are a batch. Turns are
    sampled one after the other, in one thread, each with random numbers of its own, so that a seed repeats a
    turn and changes nothing else. Each turn computes its whole prompt: no cache is kept between turns.

    Log-probabilities are those after `logits_processors` and before temperature, top_k, top_p and min_p.

    Args:
        model: The object.
        family: Renders messages and parses sampled ids. Its stop ids end a turn.
        context_length: The most ids of prompt and completion. None (default): what the model's arguments
            state (`max_position_embeddings`).
        output_format: How the model writes reasoning and tool calls: `hermes` or `harmony`; None (default)
            detects it from the vocabulary.

    Attributes:
        name: `mlx`.
        keeps_ids: False: prompts go by ids.
        where: The object's method, as errors name it.
        extras: The keys that `Sampling.extra` may hold. `logits_processors` is a list of mlx-lm's processors.
        family: As it was passed.
        model: The object.
        context_length: As it was passed.

    Raises:
        InputError: `output_format` is invalid, or `model` is something else.
    """

    name: str = "mlx"
    where = "mlx_lm.generate.BatchGenerator"
    extras = EXTRAS

    def __init__(
        self,
        model: Any,
        family: Family | TokenizerFamily,
        *,
        context_length: int | None = None,
        output_format: OutputFormat | None = None,
    ) -> None:
        super().__init__(family, output_format=output_format)
        check_object(
            model, "model", ("__call__", "layers"), "the model that mlx_lm.load returns first", "MlxModel"
        )
        self.model = model
        self.context_length = context_length

    async def limits(self) -> ModelLimits:
        """Return the sizes that the model accepts, as far as its arguments state them."""
        size, length = self._stated("vocab_size"), self._stated("max_position_embeddings")
        return ModelLimits(
            max_model_len=self.context_length or length, vocab_size=size or self.family.vocab_size
        )

    def _stated(self, name: str) -> int | None:
        """Return a size from the model's arguments; of a model with images, from those of its text."""
        own = getattr(self.model, "args", None)
        text = getattr(own, "text_config", None)
        inner = text.get(name) if isinstance(text, Mapping) else getattr(text, name, None)
        found = [value for value in (getattr(own, name, None), inner) if type(value) is int]
        return found[0] if found else None

    def _sample(self, batch: Sequence[SampledRows]) -> None:
        (sampled,) = batch
        turn, count = sampled.turn, sampled.turn.sampling.n
        generator = package("mlx_lm.generate").BatchGenerator(
            self.model, completion_batch_size=count, prefill_batch_size=count
        )
        numbers = generator.insert(
            [turn.ids.tolist() for _ in range(count)],
            [turn.max_tokens] * count,
            samplers=[sampler(turn, place) for place in range(count)],
            logits_processors=[list(turn.sampling.extra.get("logits_processors") or ())] * count,
        )
        places = {number: place for place, number in enumerate(numbers)}
        while places and not sampled.given_up.is_set():
            for one in generator.next_generated():
                if sampled.add(places[one.uid], one.token, one.logprobs[one.token].item()):
                    del places[one.uid]
                    if one.finish_reason is None:  # the generator would go on with it
                        generator.remove([one.uid])


def sampler(turn: LocalTurn, place: int) -> Callable[[Any], Any]:
    """Return what draws the ids of one turn, from log-probabilities of the shape (1, vocabulary).

    mlx-lm's own samplers share one state of random numbers among all callers.
    """
    core, utils = package("mlx.core"), package("mlx_lm.sample_utils")
    choices, stated = turn.sampling.extra, turn.sampling.temperature
    temperature = 1.0 if stated is None else stated
    if not temperature:
        return lambda logprobs: core.argmax(logprobs, axis=-1)
    keys = [_key(core, turn.sampling.seed, place)]

    def draw(logprobs: Any) -> Any:
        if 0 < (choices.get("top_p") or 0) < 1:
            logprobs = utils.apply_top_p(logprobs, choices["top_p"])
        if choices.get("min_p"):
            logprobs = utils.apply_min_p(logprobs, choices["min_p"])
        if choices.get("top_k"):
            logprobs = utils.apply_top_k(logprobs, choices["top_k"])
        keys[0], key = core.random.split(keys[0])
        return core.random.categorical(logprobs * (1 / temperature), key=key)

    return draw


def _key(core: Any, seed: int | None, place: int) -> Any:
    """Return the random numbers' beginning of one turn; without a seed, from the system's."""
    own = secrets.randbits(63) if seed is None else seed
    return core.random.split(core.random.key(own), place + 1)[place]
