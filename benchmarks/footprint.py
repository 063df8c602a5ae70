"""Measure the tokens given to the tokenizer, the memory of a trajectory, and the cost of an import."""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from tempfile import TemporaryDirectory

import attrs

from benchmarks.clock import Work
from benchmarks.history import History
from benchmarks.programs import mito, shared, subtraction, whole
from benchmarks.renderer import CachingTokenize, ChatRenderer
from tito_core import Trajectory, answer, stitch_questions
from tito_core.stitch import Stitched

IMPORTS = {
    "attrs, cattrs": "import attrs, cattrs",
    "tito_core": "import tito_core",
    "all of tito_core": "from tito_core import *",
}
TIMES = 11


def tokenized(history: History) -> dict[str, float]:
    """Return how many tokens each program gives to the tokenizer for each new token.

    The new tokens are those that the template writes after the text of the turn. The stop token counts as
    new: the engine sampled it, but a bridge must see it to know where the turn ends.
    """
    new = 1 + len(shared(history, history.profile)(history.renderer.tokenize).added)
    programs = {
        "tito": _without_profile,
        "tito, profile": whole,
        "prefix subtraction": subtraction,
        "MITO": mito,
    }
    return {name: _tokens_of_a_turn(history, prepare) / new for name, prepare in programs.items()}


def _without_profile(history: History) -> Work:
    return partial(shared(history, None), history.renderer.tokenize)


def _tokens_of_a_turn(history: History, prepare: Callable[[History], Work]) -> int:
    """Return how many tokens the tokenizer returns for a turn after the first."""
    tokenize, trajectory = history.renderer.counted()
    work = prepare(attrs.evolve(history, renderer=attrs.evolve(history.renderer, tokenize=tokenize)))
    work()
    before = trajectory()
    work()
    return trajectory() - before


def bytes_a_token(history: History) -> float:
    """Return the bytes per token of a trajectory, without its copies of the messages."""
    renderer = attrs.evolve(history.renderer, tokenize=CachingTokenize(history.renderer.tokenize))
    _rebuilt(history, renderer)  # fills the cache of the tokenizer before memory is traced
    gc.collect()
    tracemalloc.start()
    trajectory = _rebuilt(history, renderer)
    gc.collect()
    traced_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    messages = sum(map(sys.getsizeof, trajectory[-1].messages))
    return (traced_bytes - messages) / trajectory[-1].ids.length


def _rebuilt(history: History, renderer: ChatRenderer) -> Trajectory:
    """Build the trajectory again, turn by turn as a rollout does. It shares its texts with the history."""
    first, *later = history.trajectory
    trajectory = Trajectory([first])
    for step in later:
        prompt = trajectory[-1].messages.then(step.prompt[-1:])
        stitched = answer(
            stitch_questions(trajectory, prompt, renderer.suffix, profile=history.profile), renderer.tokenize
        )
        assert isinstance(stitched, Stitched)  # noqa: S101  # the same stitch succeeded when the history was built
        trajectory = trajectory.append(
            stitched.then(completion=list(step.completion), completion_ids=step.completion_ids.tolist())
        )
    return trajectory


def imports() -> dict[str, float]:
    """Return the seconds of imports in a new process, less those of an empty process.

    All modules are compiled before, as those of an installed package are: `pip` compiles what it installs.
    """
    codes = {"": "pass", **IMPORTS}
    taken: dict[str, list[float]] = {name: [] for name in codes}
    with TemporaryDirectory() as compiled:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}
        for code in codes.values():
            _run(code, environment)
        for _ in range(TIMES):
            for name, code in codes.items():
                taken[name].append(_run(code, environment))
    return {name: statistics.median(taken[name]) - statistics.median(taken[""]) for name in IMPORTS}


def _run(code: str, environment: dict[str, str]) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)  # noqa: S603  # our own imports
    return time.perf_counter() - started


def loads_asyncio() -> bool:
    """Return whether importing the kernel loads asyncio."""
    code = "import sys, tito_core; sys.exit('asyncio' in sys.modules)"
    return bool(subprocess.run([sys.executable, "-c", code], check=False).returncode)  # noqa: S603  # our own
