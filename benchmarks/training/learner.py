"""Train a causal model on rows: the clipped loss of PPO over group advantages, and a supervised one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import attrs
import torch

from .mismatch import LARGEST, Mismatch
from .rows import Arm, Batch, TrainingRow

CLIP = 0.2
MOST_NORM = 1.0


def clipped_loss(new: Any, old: Any, advantage: Any) -> tuple[Any, Any]:
    """Return the loss of each id, and whether clipping took its gradient away.

    Args:
        new: Log-probabilities of the model that is trained, one for each id.
        old: Those that it is compared with.
        advantage: Advantage of each id's row.
    """
    ratio = (new - old).clamp(-LARGEST, LARGEST).exp()
    free, bound = ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage
    return -torch.minimum(free, bound), bound < free


@attrs.define(eq=False)
class Learner:
    """A model and its optimizer.

    Attributes:
        model: A causal language model of `transformers`, in `eval` mode, whose trainable parameters
            require gradients.
        optimizer: Of these parameters.
        epochs: How often a batch is gone through.
        parts: Into how many optimizer steps an epoch is cut.
        together: How many rows are computed at once.
    """

    model: Any
    optimizer: Any
    epochs: int
    parts: int
    together: int

    @classmethod
    def of(cls, model: Any, rate: float, *, epochs: int, parts: int, together: int) -> Learner:
        """Return a learner with a fresh optimizer."""
        own = [one for one in model.parameters() if one.requires_grad]
        return cls(model, torch.optim.AdamW(own, lr=rate, weight_decay=0.0), epochs, parts, together)

    def logprobs(self, rows: Sequence[TrainingRow]) -> Any:
        """Return the log-probabilities of the ids that train, of all rows in order, as one tensor."""
        width = max(len(row.ids) for row in rows)
        # Padding stands behind the ids, where a causal model does not look.
        ids = torch.tensor([row.ids + [0] * (width - len(row.ids)) for row in rows])
        picked = torch.zeros_like(ids, dtype=torch.bool)
        for row, mask in zip(rows, picked, strict=True):
            mask[row.places] = True
        hidden = self.model.model(ids, use_cache=False).last_hidden_state[:, :-1]
        logits = self.model.lm_head(hidden[picked[:, 1:]]).float()
        return logits.log_softmax(-1).gather(1, ids[:, 1:][picked[:, 1:]][:, None])[:, 0]

    def update(self, batch: Batch, arm: Arm, seed: int) -> dict[str, float]:
        """Train on a batch; return what was seen."""
        rows = [row for row in batch.rows if row.places]
        if not rows:
            return {"clipped": 0.0, "gradient_norm": 0.0, **_seen([], [], [])}
        gains = dict(zip(map(id, batch.rows), batch.advantages, strict=True))
        before = self._before(rows)
        sampler = [[*row.old] for row in rows]
        old = before if arm.recomputes else sampler
        pairs = [(row, own, gains[id(row)]) for row, own in zip(rows, old, strict=True)]
        clipped, norms = [], []
        for part in self._parts(pairs, seed):
            share, norm = self._step(part)
            clipped.append(share)
            norms.append(norm)
        seen = _seen(rows, before, sampler)
        return {"clipped": sum(clipped) / len(clipped), "gradient_norm": sum(norms) / len(norms), **seen}

    def teach(self, rows: Sequence[TrainingRow]) -> float:
        """Take a step of supervised training; return the mean loss of an id."""
        total, count = 0.0, sum(len(row.places) for row in rows)
        for some in _cut(rows, self.together):
            loss = -self.logprobs(some).sum() / count
            loss.backward()
            total += loss.item()
        self._apply()
        return total

    def _before(self, rows: Sequence[TrainingRow]) -> list[list[float]]:
        """Return the log-probabilities of the weights that sampled, for each row."""
        found = list[list[float]]()
        with torch.no_grad():
            for some in _cut(rows, self.together):
                values = iter(self.logprobs(some).tolist())
                found += [[next(values) for _ in row.places] for row in some]
        return found

    def _parts(self, pairs: list[Any], seed: int) -> Iterator[Sequence[Any]]:
        rng = Random(seed)  # noqa: S311  # an order, not a secret
        for _ in range(self.epochs):
            order = rng.sample(pairs, len(pairs))
            yield from _cut(order, -(-len(order) // self.parts))

    def _step(self, part: Sequence[tuple[TrainingRow, list[float], float]]) -> tuple[float, float]:
        """Take one step of the optimizer; return the clipped share and the norm of the gradient."""
        count, clipped = sum(len(row.places) for row, _, _ in part), 0.0
        for some in _cut(part, self.together):
            old = torch.tensor([value for _, values, _ in some for value in values])
            gain = torch.tensor([gain for row, _, gain in some for _ in row.places])
            losses, over = clipped_loss(self.logprobs([row for row, _, _ in some]), old, gain)
            (losses.sum() / count).backward()
            clipped += over.sum().item() / count
        return clipped, self._apply()

    def _apply(self) -> float:
        own = self.optimizer.param_groups[0]["params"]
        norm = torch.nn.utils.clip_grad_norm_(own, MOST_NORM).item()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return float(norm)


def _cut(items: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


def _seen(
    rows: Sequence[TrainingRow], before: Sequence[Sequence[float]], sampler: Sequence[Sequence[float]]
) -> dict[str, float]:
    """Return how far the weights that sampled are, in the trainer, from the sampler.

    `trained`: on all ids that train, with whatever log-probability was sampled at their place.
    `own`: on those that the sampler wrote there.
    """
    every = [
        (new, old, sampled)
        for row, one, other in zip(rows, before, sampler, strict=True)
        for new, old, sampled in zip(one, other, row.sampled, strict=True)
        if old == old  # noqa: PLR0124  # nothing was sampled at this place
    ]
    trained = Mismatch.of([new for new, _, _ in every], [old for _, old, _ in every])
    own = Mismatch.of([new for new, _, same in every if same], [old for _, old, same in every if same])
    ids = sum(len(row.places) for row in rows)
    return {
        "trained_ids": float(ids),
        "unsampled_ids": float(ids - sum(sum(row.sampled) for row in rows)),
        **attrs.asdict(trained),
        "own_k3": own.k3,
    }
