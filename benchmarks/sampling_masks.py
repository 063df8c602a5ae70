"""Measure what sampling masks cost a turn: processor time of its reply, step and stored row, and bytes.

python -m benchmarks.sampling_masks [--sampled 444] [--rounds 40]

Turns are read from one recorded answer of vLLM's generate route, so that no engine's time counts. Nearly half
of the masks have one id, the mean is 8 ids. Turns with masks and without alternate within a round, so that
other load on the machine meets both; the shortest time counts.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Sequence
from typing import Any

import anyio
import click
import httpx2
import orjson

from benchmarks.command import interruptible
from tito_core import Step
from tito_core.samples import StoredCall
from tito_io.cli.options import WholeRange
from tito_io.client.turn import completion_of
from tito_io.engines.protocol import Reply, Sampling
from tito_io.engines.vllm import VLLM
from tito_io.samples.forms.tito import line

PROMPT = 2_000
VOCABULARY = 150_000
SINGLE = 0.46
"""The share of masks with one id, as measured in rollouts with top-p."""
WIDTH = 14
"""How many ids the others have on average, which makes 8 for all."""


def masks_of(ids: Sequence[int]) -> list[list[int]]:
    """Return masks of ids, of the sizes that top-p leaves."""
    draw = random.Random(1)  # noqa: S311  # sizes, no secrets
    sizes = [1 if draw.random() < SINGLE else 2 + int(draw.expovariate(1 / (WIDTH - 2))) for _ in ids]
    return [[one, *draw.sample(range(VOCABULARY), size - 1)] for one, size in zip(ids, sizes, strict=True)]


def answer_of(ids: Sequence[int], masks: Sequence[Sequence[int]] | None) -> bytes:
    """Return an answer of the generate route."""
    entries = [{"token_id": one, "logprob": -0.5, "rank": 1} for one in ids]
    choice = {"index": 0, "token_ids": ids, "logprobs": {"content": entries}, "finish_reason": "stop"}
    counts = {"prompt_tokens": PROMPT, "completion_tokens": len(ids), "total_tokens": PROMPT + len(ids)}
    return orjson.dumps({"choices": [{**choice, "sampling_mask": masks}], "usage": counts})


def engine_of(answer: bytes) -> VLLM:
    """Return an engine that always gets this answer."""

    def answered(request: httpx2.Request) -> httpx2.Response:
        if request.url.path == "/version":
            return httpx2.Response(200, json={"version": "0.33.0"})
        if request.url.path == "/tokenize":  # whether the vocabulary is a harmony model's
            return httpx2.Response(200, json={"tokens": [1, 2, 3]})
        if request.url.path == "/detokenize":
            return httpx2.Response(200, json={"prompt": "said"})
        if b'"token_ids":[0]' in request.content:
            return httpx2.Response(200, content=answer_of([0], [[0]]))
        return httpx2.Response(200, content=answer)

    transport = httpx2.MockTransport(answered)
    return VLLM("http://recorded", route="generate", model="m", max_model_len=10**6, transport=transport)


def stored(prompt: Sequence[int], reply: Reply) -> bytes:
    """Return the line of a turn in a file of calls."""
    step = Step(prompt=[], prompt_ids=prompt, **completion_of(reply))
    return line("talk", StoredCall(name="turn", step=step))


async def measured(sampled: int, rounds: int) -> dict[str, Any]:
    """Return processor time and bytes of turns with masks and without."""
    prompt, ids = list(range(PROMPT)), list(range(500, 500 + sampled))
    masks = masks_of(ids)
    engines = {True: engine_of(answer_of(ids, masks)), False: engine_of(answer_of(ids, None))}
    seconds, sizes = dict[bool, float](), dict[bool, int]()
    for _ in range(rounds):
        for wanted, engine in engines.items():
            begun = time.process_time()
            reply = await engine.from_ids(prompt, Sampling(max_tokens=sampled, sampling_masks=wanted))
            sizes[wanted] = len(stored(prompt, reply))
            took = time.process_time() - begun
            seconds[wanted] = min(seconds.get(wanted, took), took)
    kept = sum(map(len, masks))
    return {
        "sampled ids": sampled,
        "kept ids": kept,
        "milliseconds without": round(seconds[False] * 1000, 2),
        "milliseconds with": round(seconds[True] * 1000, 2),
        "bytes a kept id": round((sizes[True] - sizes[False]) / kept, 2),
        "bytes a sampled id": round((sizes[True] - sizes[False]) / sampled, 1),
    }


@click.command()
@click.option("--sampled", type=WholeRange(1), default=444, show_default=True, help="Ids of a turn.")
@click.option("--rounds", type=WholeRange(1), default=40, show_default=True, help="Turns of each kind.")
@interruptible
def main(*, sampled: int, rounds: int) -> None:
    """Measure what sampling masks cost a turn."""
    click.echo(json.dumps(anyio.run(measured, sampled, rounds), indent=2))


if __name__ == "__main__":
    main()
