"""A history as a file, for a program in another process: plain messages, and ids as 32-bit numbers."""

from __future__ import annotations

import hashlib
import json
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.clock import Prepare, race


class Given(NamedTuple):
    """What a program is told."""

    turns: int
    tokens: int
    """In each message, about."""
    messages: list[dict[str, Any]]
    """Of the history."""
    asked: dict[str, Any]
    """The message that comes next."""
    prompt_ids: list[int]
    """What the last call saw."""
    completion_ids: list[int]
    """What it sampled."""
    counts: list[int]
    """How many ids each message of the history added."""
    answers: list[list[int]]
    """The ids of a dummy turn with and without what is new, for programs that ask a server for them."""
    folder: str | None
    """The model folder."""

    @property
    def prompt(self) -> list[dict[str, Any]]:
        """The messages of the next prompt, sharing no object with the history."""
        found: list[dict[str, Any]] = json.loads(json.dumps([*self.messages, self.asked]))
        return found

    def write(self, folder: Path) -> Path:
        """Write this into a folder, and return the path to be given to `read`."""
        ids = folder / "ids"
        with ids.open("wb") as file:
            array("I", self.prompt_ids).tofile(file)
            array("I", self.completion_ids).tofile(file)
        told = self._replace(prompt_ids=[], completion_ids=[])
        path = folder / "given.json"
        path.write_text(json.dumps([*told, len(self.prompt_ids), len(self.completion_ids)]))
        return path

    @classmethod
    def read(cls, path: Path) -> Given:
        """Read what was written."""
        *told, prompt, completion = json.loads(path.read_text())
        numbers = array("I")
        with path.with_name("ids").open("rb") as file:
            numbers.fromfile(file, prompt + completion)
        ids = numbers.tolist()
        return cls(*told)._replace(prompt_ids=ids[:prompt], completion_ids=ids[prompt:])


def digest(ids: Iterable[int] | None) -> str | None:
    """Return what two equal answers have in common."""
    return None if ids is None else hashlib.sha256(array("I", ids).tobytes()).hexdigest()


Programs = Callable[[Given], dict[str, Prepare]]
"""Gives programs by name; the work of each returns ids or None."""


def serve(programs: Programs, versions: Sequence[str]) -> None:
    """Time the programs on each history whose path comes on a line; answer with a line of JSON."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # whatever a library prints is no answer
    print(json.dumps({"versions": list(versions)}), file=answers, flush=True)
    for line in sys.stdin:
        path, slow = json.loads(line)
        chosen = {name: made for name, made in programs(Given.read(Path(path))).items() if name not in slow}
        told = {name: digest(prepare()()) for name, prepare in chosen.items()}
        timings = race(chosen)
        print(json.dumps({name: [told[name], *timings[name]] for name in chosen}), file=answers, flush=True)
