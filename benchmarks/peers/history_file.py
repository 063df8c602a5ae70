"""Write a history to files for another process: messages as JSON, ids as 32-bit integers."""

from __future__ import annotations

import hashlib
import json
import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.clock import Prepare, race


class HistoryFile(NamedTuple):
    """A history and its next message.

    Attributes:
        turns: Turns of the history.
        tokens: Tokens of each message, approximately.
        messages: Messages of the history.
        question: The user message that comes next.
        prompt_ids: Prompt ids of the last call.
        completion_ids: Sampled ids of the last call.
        counts: How many ids each message of the history added.
        answers: Ids of a short turn with and without the new message, for programs that ask a server.
        folder: The model folder; None for the toy tokenizer.
    """

    turns: int
    tokens: int
    messages: list[dict[str, Any]]
    question: dict[str, Any]
    prompt_ids: list[int]
    completion_ids: list[int]
    counts: list[int]
    answers: list[list[int]]
    folder: str | None

    @property
    def prompt(self) -> list[dict[str, Any]]:
        """The messages of the next prompt, sharing no object with the history."""
        copy: list[dict[str, Any]] = json.loads(json.dumps([*self.messages, self.question]))
        return copy

    def write(self, folder: Path) -> Path:
        """Write the history into a folder; return the path for `read`."""
        ids = folder / "ids"
        with ids.open("wb") as file:
            array("I", self.prompt_ids).tofile(file)
            array("I", self.completion_ids).tofile(file)
        fields = self._replace(prompt_ids=[], completion_ids=[])
        path = folder / "given.json"
        path.write_text(json.dumps([*fields, len(self.prompt_ids), len(self.completion_ids)]))
        return path

    @classmethod
    def read(cls, path: Path) -> HistoryFile:
        """Read a history that `write` has written."""
        *fields, prompt, completion = json.loads(path.read_text())
        numbers = array("I")
        with path.with_name("ids").open("rb") as file:
            numbers.fromfile(file, prompt + completion)
        ids = numbers.tolist()
        return cls(*fields)._replace(prompt_ids=ids[:prompt], completion_ids=ids[prompt:])


def digest(ids: Iterable[int] | None) -> str | None:
    """Return a hash of ids, None for a refusal."""
    return None if ids is None else hashlib.sha256(array("I", ids).tobytes()).hexdigest()


Programs = Callable[[HistoryFile], dict[str, Prepare]]
"""Returns programs by name; the work of each returns ids, or None for a refusal."""


def serve(programs: Programs, versions: Sequence[str]) -> None:
    """Read paths of histories from standard input, time the programs, and print a line of JSON for each."""
    answers = sys.stdout
    sys.stdout = sys.stderr  # a library may print to standard output, which must hold JSON only
    print(json.dumps({"versions": list(versions)}), file=answers, flush=True)
    for line in sys.stdin:
        path, slow = json.loads(line)
        chosen = {
            name: makers
            for name, makers in programs(HistoryFile.read(Path(path))).items()
            if name not in slow
        }
        fields = {name: digest(prepare()()) for name, prepare in chosen.items()}
        timings = race(chosen)
        print(json.dumps({name: [fields[name], *timings[name]] for name in chosen}), file=answers, flush=True)
