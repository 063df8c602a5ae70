"""What is not time: tokens given to the tokenizer, bytes held for each token, and what an import costs."""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from functools import partial

import attrs

from benchmarks.clock import Work
from benchmarks.history import History
from benchmarks.programs import mito, shared, subtraction, whole
from benchmarks.voice import Remembering, Voice
from tito_core import Trajectory, answer, stitch_questions
from tito_core.stitch import Stitched

IMPORTS = {
    "attrs, cattrs": "import attrs, cattrs",
    "tito_core": "import tito_core",
    "all of tito_core": "from tito_core import *",
}
TIMES = 11


def tokenized(history: History) -> dict[str, float]:
    """Return how many tokens are given to the tokenizer for each new one, by program.

    New is what the template writes after the turn's own words. Its stop is among that: that it stands there
    shows where the turn ends, though the engine sampled it.
    """
    new = 1 + len(shared(history, history.profile)(history.voice.tokenize).bridge)
    programs = {"tito": _proving, "tito, profile": whole, "prefix subtraction": subtraction, "MITO": mito}
    return {name: _given(history, prepare) / new for name, prepare in programs.items()}


def _proving(history: History) -> Work:
    return partial(shared(history, None), history.voice.tokenize)


def _given(history: History, prepare: Callable[[History], Work]) -> int:
    """Return how many tokens are made for a turn that is not the first."""
    tokenize, made = history.voice.counted()
    work = prepare(attrs.evolve(history, voice=attrs.evolve(history.voice, tokenize=tokenize)))
    work()
    before = made()
    work()
    return made() - before


def stored(history: History) -> float:
    """Return the bytes that a trajectory holds for each of its tokens, above its copies of the messages."""
    voice = attrs.evolve(history.voice, tokenize=Remembering(history.voice.tokenize))
    _again(history, voice)  # from now on the tokenizer holds nothing new
    gc.collect()
    tracemalloc.start()
    made = _again(history, voice)
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    messages = sum(map(sys.getsizeof, made[-1].messages))
    return (held - messages) / made[-1].ids.length


def _again(history: History, voice: Voice) -> Trajectory:
    """Return the trajectory, made anew as a rollout makes it; texts stay those of the history."""
    first, *later = history.trajectory
    made = Trajectory([first])
    for step in later:
        prompt = made[-1].messages.then(step.prompt[-1:])
        found = answer(stitch_questions(made, prompt, voice.suffix, profile=history.profile), voice.tokenize)
        assert isinstance(found, Stitched)  # noqa: S101  # it was when the history was made
        made = made.append(
            found.then(completion=list(step.completion), completion_ids=step.completion_ids.tolist())
        )
    return made


def imports() -> dict[str, float]:
    """Return the seconds that imports take in a new process, beyond those of an empty one."""
    taken: dict[str, list[float]] = {name: [] for name in ("", *IMPORTS)}
    for _ in range(TIMES):
        for name, code in {"": "pass", **IMPORTS}.items():
            taken[name].append(_run(code))
    return {name: statistics.median(taken[name]) - statistics.median(taken[""]) for name in IMPORTS}


def _run(code: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603  # our own imports
    return time.perf_counter() - started


def loads_asyncio() -> bool:
    """Tell whether importing the kernel loads an event loop."""
    code = "import sys, tito_core; sys.exit('asyncio' in sys.modules)"
    return bool(subprocess.run([sys.executable, "-c", code], check=False).returncode)  # noqa: S603  # our own
