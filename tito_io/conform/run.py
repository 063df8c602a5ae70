"""Ask a program for all vectors, and judge its answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import aclosing
from pathlib import Path

import anyio

from .judge import Judged, Verdict, judge
from .program import NotAskedError, ProgramError, answers
from .report import Report
from .vector import ConformError, Vector, make_vectors, read


def selected(folder: Path | None, only: str) -> list[Vector]:
    """Return the vectors of a folder, or those of this version, whose id has the text `only`.

    Raises `ConformError` if no vector has it, or if a file cannot be read.
    """
    every = make_vectors(only) if folder is None else read(folder)
    found = [one for one in every if only in one.id]
    if not found:
        raise ConformError(f"--only {only}: no vector's id has this text")
    return found


def report_on(command: Sequence[str], name: str, vectors: Iterable[Vector], seconds: float) -> Report:
    """Return the report on a program, which it calls `name`; raises `ConformError` if it cannot be started.

    `seconds` are the time for each answer.
    """
    return Report(name, anyio.run(_judged, command, vectors, seconds))


async def _judged(command: Sequence[str], vectors: Iterable[Vector], seconds: float) -> list[Judged]:
    judged: list[Judged] = []
    async with aclosing(answers(command, vectors, seconds)) as found:
        async for vector, answer in found:
            if isinstance(answer, ProgramError):
                verdict = Verdict.NOT_ASKED if isinstance(answer, NotAskedError) else Verdict.ERROR
                judged.append(Judged(vector, verdict, str(answer)))
            else:
                judged.append(judge(vector, answer))
    return judged
