"""A trainer that normalizes over sampling masks has the log-probabilities of the sampler; without, others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import attrs
import orjson

from tests.engines.talk import HELLO
from tito_core import Message, SamplingMask, Step, Stitched, Trajectory, try_stitch
from tito_core.data import from_data
from tito_core.samples import Forest, SampleOptions, StoredCall
from tito_io.families import Family
from tito_io.samples.entry import entries
from tito_io.samples.read import StoredConversation
from tito_io.samples.sink import open_sink
from tito_io.samples.trainer_columns import COLUMNS

from .reference import Reference

TOP_P = 0.9
CLOSE = 1e-5


@attrs.frozen
class Sampler:
    """Samples among the likeliest ids that have the probability `TOP_P` together."""

    model: Any
    generator: Any
    most: int = 16

    def completion(self, prompt: Sequence[int]) -> dict[str, Any]:
        """Return the fields of a step, which ends at a length: one forward pass for each id."""
        ids, logprobs, kept = list[int](), list[float](), list[list[int]]()
        for _ in range(self.most):
            index, logprob, among = self._next([*prompt, *ids])
            ids.append(index)
            logprobs.append(logprob)
            kept.append(among)
        fields = {"completion_ids": ids, "logprobs": logprobs, "sampling_mask": SamplingMask.of(kept)}
        return {**fields, "truncated": True}

    def _next(self, ids: list[int]) -> tuple[int, float, list[int]]:
        torch: Any = import_module("torch")
        with torch.no_grad():
            values, order = self.model(torch.tensor([ids])).logits[0, -1].sort(descending=True)
        probabilities = values.softmax(-1)
        among = probabilities.cumsum(-1) - probabilities < TOP_P
        logprobs = values[among].log_softmax(-1)
        chosen = torch.multinomial(logprobs.exp(), 1, generator=self.generator).item()
        return order[chosen].item(), logprobs[chosen].item(), order[among].tolist()


def taken(steps: Trajectory, prompt: list[Message], family: Family, sampler: Sampler) -> Step:
    """Take a turn by the ids of the turn before."""
    said = [{"role": "assistant", "content": f"answer {len(steps)}"}]
    found = try_stitch(steps, prompt, family.suffix(), family.tokenize_fn()) if steps else None
    if isinstance(found, Stitched):
        return found.then(completion=said, **sampler.completion(found.ids.tolist()))
    assert found is None, found
    ids = family.ids(prompt, add_generation_prompt=True)
    return Step(prompt=prompt, completion=said, prompt_ids=ids, **sampler.completion(ids))


def rollout(family: Family, sampler: Sampler) -> Trajectory:
    """Take five turns, of which two go on from the second one."""
    steps = Trajectory().append(taken(Trajectory(), HELLO, family, sampler))
    for number, before in enumerate((0, 1, 1, 2)):
        prompt = [*steps[before].messages, {"role": "user", "content": f"Go on, {number}."}]
        steps = steps.append(taken(steps, prompt, family, sampler))
        assert steps[-1].prompt_ids.starts_with(steps[before].ids)
    return steps


def rows_of(steps: Trajectory, path: Path) -> list[dict[str, Any]]:
    """Return the rows of a rollout as a trainer reads them from a file."""
    calls = [StoredCall(name=f"{place}", step=step, order=place) for place, step in enumerate(steps)]
    stored = StoredConversation(name="talk", forest=Forest.of(calls), first=1, last=1)
    with open_sink(path, sys.stdout.buffer, columns=COLUMNS["prime-rl"]) as sink:
        for entry in entries(stored, SampleOptions())[0]:
            sink.write(entry)
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def distance(model: Any, row: dict[str, Any], *, masks: bool) -> float:
    """Return how far the log-probabilities of a forward pass are from those of the row, at most.

    With masks they are log p(i) - log(the sum of p over the kept ids).
    """
    torch: Any = import_module("torch")
    ids = torch.tensor(row["token_ids"])
    with torch.no_grad():
        every = model(ids[None]).logits[0, :-1].log_softmax(-1)
    found = every.gather(-1, ids[1:, None])[:, 0]
    if masks:
        kept = [*map(list, from_data(row["sampling_mask"], SamplingMask))][1:]
        found -= torch.stack([one[among].logsumexp(-1) for one, among in zip(every, kept, strict=True)])
    trained = torch.tensor(row["mask"][1:])
    far: float = (found - torch.tensor(row["logprobs"][1:]))[trained].abs().max().item()
    return far


def test_a_trainer_that_replays_the_masks_normalizes_as_the_sampler_did(
    family: Family, reference: Reference, tmp_path: Path, say: Callable[[str], None]
) -> None:
    torch: Any = import_module("torch")
    model = reference.model
    sampler = Sampler(model, torch.Generator().manual_seed(0))
    rows = rows_of(rollout(family, sampler), tmp_path / "rows.jsonl")
    assert [sum(row["mask"]) for row in rows] == [3 * sampler.most, 2 * sampler.most]
    assert all(row["processed_logprobs"] for row in rows)
    counts = [count for row in rows for count in row["sampling_mask"]["counts"] if count]
    assert max(counts) > 8
    near, far = ([distance(model, row, masks=masks) for row in rows] for masks in (True, False))
    say(f"largest distance to the sampler: {max(near):.1e} with masks, {max(far):.1e} without")
    assert max(near) < CLOSE
    assert min(far) > 1000 * CLOSE
