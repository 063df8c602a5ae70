"""Print the log-probabilities of ids that a model folder's engine gives in one forward pass, as JSON.

`python -m tests.engines.in_process.real_scores ENGINE FOLDER`, with a list of ids on standard input, in the
environment of the engine. TITO_DTYPE names the type of the weights.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio

from tito_io.engines.scores import score
from tito_io.families import Family

from .objects import OBJECTS


def scores(name: str, folder: Path, ids: Sequence[int]) -> list[float | None]:
    """Return the log-probability of each id but the first."""
    subject = OBJECTS[name]
    made = subject.make(folder)
    if name == "vllm-llm":
        return _vllm(made, ids)
    return list(anyio.run(score, subject.engine(made, Family.load(folder)), ids, 1))


def _vllm(llm: Any, ids: Sequence[int]) -> list[float | None]:
    """Return what `LLM` computes for a prompt, which tito's engine of this object has no way to ask for."""
    sampling = import_module("vllm").SamplingParams(max_tokens=1, prompt_logprobs=0)
    (output,) = llm.generate({"prompt_token_ids": list(ids)}, sampling, use_tqdm=False)
    places = zip(ids[1:], output.prompt_logprobs[1:], strict=True)
    return [at[index].logprob for index, at in places]


if __name__ == "__main__":
    found = scores(sys.argv[1], Path(sys.argv[2]), json.load(sys.stdin))
    sys.stdout.write(json.dumps(found) + "\n")
