"""Draw ids from a model's exact logits, as logits processors of `transformers`' `generate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Literal

import attrs

from .packages import package
from .threaded import SampledRows

LogprobsMode = Literal["raw", "processed"]
"""`raw`: of the model's own distribution. `processed`: of the one that was sampled from."""


@attrs.define(eq=False)
class TokenSampler:
    """Chooses the next id of each turn and leaves `generate` no other.

    The step after a turn's end is not used: on a GPU, `generate` sees one step late that a turn has ended.

    Attributes:
        sampled: The turns, as they are sampled.
        choices: Temperature, top_k, top_p, min_p, repetition_penalty and logits_processor; None for none.
        logprobs: Which log-probabilities to report.
    """

    sampled: SampledRows
    choices: Mapping[str, Any]
    logprobs: LogprobsMode
    _generators: list[Any] = attrs.field(factory=list, init=False)
    _steps: tuple[list[Any], list[Any]] | None = attrs.field(default=None, init=False)

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Return scores that leave one id a row."""
        torch = package("torch")

        own, warped = scores, self._warped(input_ids, scores)
        chosen = self._chosen(warped)
        only = torch.full_like(scores, float("-inf")).scatter_(-1, chosen[:, None], 0.0)
        masks: list[list[int] | None] = [None] * len(chosen)
        if self.sampled.turn.sampling.sampling_masks:
            own = warped if self._temperature else only
            masks = [row.isfinite().nonzero()[:, 0].tolist() for row in own]
        elif self.logprobs == "processed":
            own = warped
        values = torch.log_softmax(own, dim=-1)
        sampled = values.gather(-1, chosen[:, None])[:, 0].tolist()
        for index, row in enumerate(zip(chosen.tolist(), sampled, masks, strict=True)):
            self.sampled.add(index, *row)
        return only

    def _warped(self, input_ids: Any, scores: Any) -> Any:
        """Return the scores of the distribution to sample from; those of the model stay as they are."""
        if self._steps is None:
            self._steps = self._processors()
        before, after = self._steps
        scores = scores.clone()
        for process in (*before, *(after if self._temperature else ())):
            scores = process(input_ids, scores)
        return scores

    def _processors(self) -> tuple[list[Any], list[Any]]:
        """Return what changes scores always, and what does so where ids are drawn at random."""
        process = package("transformers.generation.logits_process")

        choices = self.choices
        before: list[Any] = []
        after: list[Any] = []
        if choices.get("repetition_penalty") not in (None, 1.0):
            before.append(process.RepetitionPenaltyLogitsProcessor(float(choices["repetition_penalty"])))
        before += choices.get("logits_processor") or ()
        if self._temperature not in (0.0, 1.0):
            after.append(process.TemperatureLogitsWarper(self._temperature))
        if choices.get("top_k"):
            after.append(process.TopKLogitsWarper(choices["top_k"]))
        if choices.get("top_p") not in (None, 1.0):
            after.append(process.TopPLogitsWarper(float(choices["top_p"])))
        if choices.get("min_p"):
            after.append(process.MinPLogitsWarper(float(choices["min_p"])))
        return before, after

    @property
    def _temperature(self) -> float:
        stated = self.choices.get("temperature")
        return 1.0 if stated is None else float(stated)

    def _chosen(self, scores: Any) -> Any:
        """Return an id for each row: the likeliest at temperature 0, else one drawn at random."""
        torch = package("torch")

        if not self._temperature:
            return scores.argmax(dim=-1)
        if not self._generators:
            self._generators = self._seeded(scores.device)
        rows = zip(torch.softmax(scores, dim=-1), self._generators, strict=True)
        return torch.cat([torch.multinomial(row, 1, generator=generator) for row, generator in rows])

    def _seeded(self, device: Any) -> list[Any]:
        """Return a generator for each row, from the seed on; without a seed, from one of the system's."""
        seed = self.sampled.turn.sampling.seed
        generators = [package("torch").Generator(device=device) for _ in self.sampled.rows]
        for index, generator in enumerate(generators):
            if seed is None:
                generator.seed()
            else:
                generator.manual_seed(seed + index)
        return generators


@attrs.define(eq=False)
class BatchSampler:
    """Chooses the next ids of the turns of several requests, whose prompts are padded on the left.

    Attributes:
        samplers: One for each request, in the order of its rows.
        width: Number of ids of the longest prompt.
    """

    samplers: Sequence[TokenSampler]
    width: int

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Return scores that leave one id a row."""
        torch = package("torch")

        start, parts = 0, []
        for one in self.samplers:
            rows = slice(start, start + len(one.sampled.rows))
            start, padding = rows.stop, self.width - len(one.sampled.turn.ids)
            parts.append(self._part(one, input_ids[rows, padding:], scores[rows]))
        return torch.cat(parts)

    def ended(self, input_ids: Any, scores: Any, **_: Any) -> Any:
        """Return which rows have ended, as a stopping criterion; end the requests that others outlast."""
        del scores
        torch = package("torch")

        over = [one.sampled.ended for one in self.samplers]
        for one, ended in zip(self.samplers, over, strict=True):
            if all(ended) and not all(map(all, over)):
                one.sampled.close(one.sampled.error)
        return torch.tensor([*chain(*over)], device=input_ids.device)

    def _part(self, sampler: TokenSampler, input_ids: Any, scores: Any) -> Any:
        """Return the scores of one request; an error, such as that of a processor, ends its turns alone."""
        if all(sampler.sampled.ended):
            return scores
        try:
            return sampler(input_ids, scores)
        except Exception as error:  # noqa: BLE001  # its caller gets it
            sampler.sampled.fail(error)
            return scores
