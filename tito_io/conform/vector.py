"""Vectors: made by the program, or read from files of JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any

import attrs

from tito_core import TitoError
from tito_io.atomic_write import write_atomically
from tito_io.fields import FieldReader

from .oracle import without_comments
from .scenario import ALLOWED, NEVER, REQUIRED, VERSION, vector
from .scenarios import SETS, scenarios

SHIPPED = ("schema.json", "README.md")
"""Files that stand beside the vectors."""
SIGNS = {
    **{f"{name}.jsonl": f'"set": "{name}"' for name in SETS},
    "schema.json": '"title": "Conformance vector, version ',
    "README.md": "# Conformance vectors\n",
}
"""What stands in the first `HEAD` bytes of each file, in every version: other files are never replaced."""
HEAD = 300
NOT_ASKED = ("set", "title", "expected")
"""Fields that a program is not sent."""


class ConformError(TitoError):
    """Vectors cannot be read, or the program cannot be asked."""


@attrs.frozen
class Vector:
    """A vector.

    Attributes:
        data: Its fields, as the schema describes them.
    """

    data: Mapping[str, Any]

    @property
    def id(self) -> str:
        """Its name, with the set in front."""
        return str(self.data["id"])

    @property
    def title(self) -> str:
        """What it is about."""
        return str(self.data["title"])

    @property
    def set(self) -> str:
        """The set that it belongs to."""
        return str(self.data["set"])

    @property
    def question(self) -> dict[str, Any]:
        """What a program is sent: all but the answer, and the template without the oracle's comments."""
        asked = {name: value for name, value in self.data.items() if name not in NOT_ASKED}
        return {**asked, "template": without_comments(asked["template"])}

    @property
    def answers(self) -> list[Mapping[str, Any]]:
        """The right answers; none where a refusal is required."""
        return list(self.data["expected"]["answers"])

    @property
    def refusal(self) -> str:
        """Whether a refusal is right: never, allowed or required."""
        return str(self.data["expected"]["refusal"])


def make_vectors(only: str = "") -> Iterator[Vector]:
    """Make the vectors whose id has the text `only`; unless given, all."""
    for scenario in scenarios():
        if only in scenario.name:
            # Through JSON, so that values are those that a reader of the files gets.
            yield Vector(json.loads(json.dumps(vector(scenario))))


def line(one: Vector) -> str:
    """Return a vector as a line of a file."""
    return json.dumps(one.data, ensure_ascii=False) + "\n"


def write(folder: Path) -> dict[str, int]:
    """Write the vectors, their schema and their README into a folder; returns how many each set has.

    Raises `ConformError`, before anything is written, if a file of one of these names was not written here.
    """
    for name in SIGNS:
        _check_replaceable(folder / name)
    lines: dict[str, list[str]] = {name: [] for name in SETS}
    for one in make_vectors():
        lines[one.set].append(line(one))
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in lines.items():
        write_atomically(folder / f"{name}.jsonl", "".join(text))
    for name in SHIPPED:
        write_atomically(folder / name, files(__package__).joinpath(name).read_bytes())
    return {name: len(text) for name, text in lines.items()}


def _check_replaceable(path: Path) -> None:
    """Raise `ConformError` if there is a file at `path` that `write` did not write."""
    if not path.exists():
        return
    with path.open("rb") as file:
        head = file.read(HEAD)
    if SIGNS[path.name].encode() not in head:
        raise ConformError(
            f"{path}: `tito vectors` did not write this file, and does not replace it: give another folder"
        )


def read(folder: Path) -> Iterator[Vector]:
    """Read the vectors of every .jsonl file of a folder; raises `ConformError`."""
    paths = sorted(folder.glob("*.jsonl"))
    if not paths:
        raise ConformError(
            f"{folder}: no .jsonl file in this folder; write one with: tito vectors -o {folder}"
        )
    found: dict[str, str] = {}
    for place, one in chain.from_iterable(map(_lines, paths)):
        checked = _checked(one, place)
        if checked.id in found:
            raise ConformError(
                f"{place}: the id {checked.id!r:.80} stands at {found[checked.id]}, too: give each id once"
            )
        found[checked.id] = place
        yield checked
    if not found:
        raise ConformError(f"{folder}: the .jsonl files of this folder have no vectors")


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the lines of a file, each after its place; empty ones are left out."""
    try:
        text = path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConformError(f"{path}: cannot be read as UTF-8 text: {error}") from error
    for number, one in enumerate(text.split("\n"), 1):
        if one:
            yield f"{path}, line {number}", one


class _Reader(FieldReader):
    """Reads the fields that judging needs."""

    def wrong_type(self, path: str, kind: type, value: object) -> Exception:
        """Return the error for a field of another type."""
        return ConformError(f"{path} must be {kind.__name__}, not {type(value).__name__}")


def _checked(text: str, where: str) -> Vector:
    """Return the vector in a line."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConformError(f"{where}: not JSON: {error}") from error
    try:
        _check(_Reader(), data)
    except ConformError as error:
        raise ConformError(f"{where}: {error}") from None
    return Vector(data)


def _check(reader: _Reader, data: object) -> None:
    """Check what judging needs."""
    if isinstance(data, dict) and data.keys().isdisjoint(("template", "tokenizer", "trajectory", "expected")):
        raise ConformError("is no vector: give a folder of vectors, which `tito vectors` writes")
    version = reader.get(data, "version", int)
    if version != VERSION:
        raise ConformError(f"version is {version}, and this program reads version {VERSION}")
    for name in ("id", "set", "title", "template"):
        reader.get(data, name, str)
    for step in reader.get(data, "trajectory", list):
        _check_ids(reader, step, "prompt_ids")
        _check_ids(reader, step, "sampled_ids")
    _check_expected(reader, reader.get(data, "expected", dict))
    tokenizer = reader.get(data, "tokenizer", dict)
    for name in ("tokens", "special"):
        if not is_ids(list(reader.get(tokenizer, name, dict).values())):
            raise ConformError(f"tokenizer.{name} must map texts to whole numbers")


def _check_ids(reader: _Reader, holder: object, name: str) -> None:
    if not is_ids(reader.get(holder, name, list)):
        raise ConformError(f"{name} must be whole numbers from 0 on")


def _check_expected(reader: _Reader, expected: dict[str, Any]) -> None:
    refusal = reader.get(expected, "refusal", str)
    if refusal not in (NEVER, ALLOWED, REQUIRED):
        raise ConformError(f"refusal is {refusal!r:.40}: give {NEVER}, {ALLOWED} or {REQUIRED}")
    answers = reader.get(expected, "answers", list)
    for one in answers:
        _check_ids(reader, one, "ids")
        reader.get(one, "spans", list)
    if bool(answers) == (refusal == REQUIRED):
        raise ConformError(f"{len(answers)} answers, and a refusal is {refusal}: these contradict each other")


def is_ids(value: object) -> bool:
    """Return whether a value is a list of whole numbers from 0 on.

    >>> is_ids([0, 7]), is_ids([True]), is_ids(["7"]), is_ids(7)
    (True, False, False, False)
    """
    return isinstance(value, list) and all(type(one) is int and one >= 0 for one in value)
