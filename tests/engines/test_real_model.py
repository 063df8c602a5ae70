"""A real language model, SmolLM2-135M-Instruct, in several engines: laws, and how log-probabilities differ.

The file's weights are quantized (Q4_1). llama.cpp computes with them, and rounds activations to 8 bits;
transformers and vLLM have the same weights as numbers of 32 or 16 bits.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from math import exp
from pathlib import Path
from statistics import mean
from typing import Any, TypeVar

import anyio
import attrs
import pytest

from tests.engines import vllm
from tests.engines.llamacpp import importable
from tests.engines.test_in_process import inside, module, settings_of
from tests.environment import Say, cache, locked, run
from tests.faults.fault import ROOT
from tests.real_models import real_model
from tito_core import Step
from tito_io.client import Route, TokenClient
from tito_io.engines.llamacpp import LlamaCpp
from tito_io.engines.llamacpp.recovery import Recovery, whole_id
from tito_io.families import Family
from tito_io.llamacpp_server import LlamaCppServer, ServerSettings, running

pytestmark = [pytest.mark.engine, pytest.mark.xdist_group("engines")]

TEXTS = (
    "Tell me about the sea.",
    "Écris deux phrases sur Oslo.",
    "Write a Python function that adds.",
)
SIZES = {"TITO_CACHE_BYTES": str(1 << 29)}
"""Memory for a context of 8,192 ids."""
T = TypeVar("T")
LAWS = "branches or cut_turn or a_temperature or every_id_of or siblings or seed_repeats or concurrent_turns"
"""Tests of `in_process/test_turns.py` that need no tags of the tiny model's vocabulary."""


@pytest.fixture(scope="module")
def file(say: Say) -> Path:
    """Return the model's GGUF file."""
    return real_model("smollm2", say)


@pytest.fixture(scope="module")
def family(file: Path) -> Family:
    """Read the file's tokenizer and template."""
    return Family.of_gguf(file)


@pytest.fixture(scope="module")
def folder(file: Path, say: Say) -> Path:
    """Return the model as a folder of transformers, written once: 540 MB."""
    found, written = vllm.environment(say), cache() / "model-smollm2-float32"
    with locked(written.with_suffix(".lock")):
        if not (written / "complete").exists():
            say(f"writing the model {written}")
            run(str(found.python), str(ROOT / "tests/engines/real_folder.py"), str(file), str(written))
            (written / "complete").touch()
    return written


@attrs.frozen
class Served:
    """The model at servers of llama.cpp.

    Attributes:
        file: Its GGUF file.
        family: The file's tokenizer and template.
        say: Says how far things are.
    """

    file: Path
    family: Family
    say: Say

    def __call__(self, use: Callable[[LlamaCpp], Awaitable[T]], *, precise: bool = False) -> T:
        """Return what a function makes of a server of its own."""

        async def used(server: LlamaCppServer) -> T:
            async with LlamaCpp(server.url, api_key=server.api_key, family=self.family) as engine:
                return await use(engine)

        settings = ServerSettings(file=self.file, context=2048, threads=1, precise=precise)
        with importable(self.say), running(settings) as server:
            return anyio.run(used, server)


@pytest.fixture(scope="module")
def at_llamacpp(file: Path, family: Family, say: Say) -> Served:
    """Return what starts servers."""
    return Served(file, family, say)


@pytest.fixture(scope="module")
def steps(at_llamacpp: Served) -> list[Step]:
    """Return the steps of a rollout that llama.cpp samples with its defaults."""
    return at_llamacpp(talk)


async def talk(engine: LlamaCpp) -> list[Step]:
    client, steps, messages = TokenClient(engine), list[Step](), list[dict[str, Any]]()
    for text in TEXTS:
        messages.append({"role": "user", "content": text})
        sampling = {"max_tokens": 48, "temperature": 1.0, "seed": 0}
        done = await client.turn(steps, messages, sampling=sampling)
        steps.append(done.step)
        messages.append(dict(done.message))
    assert client.counts.routes == {Route.MITO: 1, Route.TITO: len(TEXTS) - 1}
    return steps


def test_transformers_reads_the_file_as_tito_does(family: Family, folder: Path) -> None:
    converted = Family.load(folder)
    messages = [{"role": "user", "content": TEXTS[1]}]
    ids = [one.ids(messages, add_generation_prompt=True) for one in (family, converted)]
    assert ids[0] == ids[1]
    assert family.decode(ids[0]).endswith(f"<|im_start|>user\n{TEXTS[1]}<|im_end|>\n<|im_start|>assistant\n")


def test_a_rollout_keeps_its_ids_and_a_seed_repeats_it(at_llamacpp: Served, steps: list[Step]) -> None:
    for before, after in pairwise(steps):
        assert after.prompt_ids.starts_with(before.ids)
    again = at_llamacpp(talk)
    assert [(one.ids, one.logprobs) for one in again] == [(one.ids, one.logprobs) for one in steps]


@pytest.mark.parametrize("name", ["transformers", "vllm-llm"])
def test_objects_in_this_process_keep_the_laws(name: str, folder: Path, say: Say) -> None:
    settings = {**settings_of(vllm.SETTINGS), **SIZES}
    done = inside(vllm.environment(say), name, folder, settings, "-k", LAWS)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert re.search(r"\b7 passed", done.stdout), done.stdout


def test_the_verdict_of_the_readme(file: Path, say: Say) -> None:
    """Figures are those of one kind of processor; words and sums hold on all."""
    command = [
        sys.executable,
        "-m",
        "tito_io",
        "rollout",
        "--gguf",
        str(file),
        "--turns",
        "8",
        "--threads",
        "1",
    ]
    with importable(say):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    (_, shown) = re.findall(r"```text\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    found = re.search(r"^([\d,]+) of ([\d,]+) sampled ids kept\n(.*)", done.stdout, re.DOTALL | re.MULTILINE)
    assert found is not None
    assert found[1] == found[2]
    assert re.sub(r"[\d,]+", "N", found[0]) == re.sub(r"[\d,]+", "N", shown)
    assert "8 turns: 7 by ids, 1 by messages\n" in found[0]
    assert "\n0 drift ids" not in found[0]


@attrs.frozen
class Distance:
    """How far log-probabilities of the same ids are apart.

    Attributes:
        mean: The mean of absolute differences, in nats.
        most: The largest of them.
        divergence: An estimate of KL(first | second), if the ids were sampled from the first.
    """

    mean: float
    most: float
    divergence: float

    @classmethod
    def of(cls, first: Sequence[float | None], second: Sequence[float | None]) -> Distance:
        """Compare two, but where one has no value: llama.cpp has none inside of a character."""
        pairs = zip(first, second, strict=True)
        apart = [other - one for one, other in pairs if one is not None and other is not None]
        return cls(mean(map(abs, apart)), max(map(abs, apart)), mean(exp(one) - 1 - one for one in apart))


@pytest.fixture(scope="module")
def scored(at_llamacpp: Served, folder: Path, steps: list[Step], say: Say) -> dict[str, list[float | None]]:
    """Return the log-probabilities of the sampled ids by what computed them, sampling first."""
    found = {"llama.cpp, as sampled": [value for step in steps for value in step.logprobs or ()]}
    for name, precise in (("llama.cpp, again", False), ("llama.cpp, --precise", True)):
        found[name] = at_llamacpp(lambda engine: rescored(engine, steps), precise=precise)
    for name in ("transformers", "vllm-llm"):
        for dtype in ("float32", "bfloat16"):
            found[f"{name}, {dtype}"] = in_one_pass(name, dtype, folder, steps, say)
    return found


async def rescored(engine: LlamaCpp, steps: Sequence[Step]) -> list[float | None]:
    """Ask a server for each sampled id by itself; the first prompt is evaluated whole."""
    served = (await engine.served()).name
    recovery = Recovery(engine.wire, served, whole_id(engine.family), engine.family.vocab_size)
    return [
        await recovery.logprob(step.prompt_ids.then(step.completion_ids[:place]), index)
        for step in steps
        for place, index in enumerate(step.completion_ids)
    ]


def in_one_pass(name: str, dtype: str, folder: Path, steps: Sequence[Step], say: Say) -> list[float | None]:
    """Return the log-probabilities of one forward pass over the last step, which has all sampled ids."""
    settings = {**settings_of(vllm.SETTINGS), **SIZES, "TITO_DTYPE": dtype}
    ids = json.dumps(steps[-1].ids.tolist())
    command = ("tests.engines.in_process.real_scores", name, str(folder))
    done = module(vllm.environment(say), settings, *command, given=ids)
    assert done.returncode == 0, done.stderr[-4000:]
    values: list[float | None] = [None, *json.loads(done.stdout.splitlines()[-1])]
    return [values[place] for step in steps for place in range(len(step.prompt_ids), len(step.ids))]


MEAN, MOST = 0.1, 1.0
"""The largest mean, and the largest single difference, to what llama.cpp sampled with, in nats."""
ALIKE = 1e-3
"""The largest difference of two that compute with the same numbers in the same order, nearly, in nats."""


def test_engines_agree_about_the_same_ids(scored: dict[str, list[float | None]], say: Say) -> None:
    sampled, exact = scored["llama.cpp, as sampled"], scored["transformers, float32"]
    say(f"{sum(one is not None for one in sampled)} ids, to llama.cpp: mean, largest, KL; to transformers")
    for name, values in scored.items():
        ours, theirs = Distance.of(sampled, values), Distance.of(exact, values)
        figures = (ours.mean, ours.most, ours.divergence, theirs.mean, theirs.most)
        say(f"| {name} | {' | '.join(f'{one:.2g}' for one in figures)} |")
        assert (ours.mean < MEAN, ours.most < MOST) == (True, True), name
    assert Distance.of(sampled, scored["llama.cpp, again"]).most < ALIKE
    assert Distance.of(exact, scored["vllm-llm, float32"]).most < ALIKE
