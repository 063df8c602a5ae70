"""Recorded answers of the engines' own parsers, and how they are recorded: in the engines' environments."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.engines import sglang, vllm
from tests.environment import Say
from tests.model_folders import FAMILIES

from .models import Answer, Model
from .outputs import FORMATS, TOOLS

HERE = Path(__file__).parent
RECORDED = HERE.parent.parent / "io" / "engines" / "replies" / "recorded_parsers.jsonl"
ENGINES: Mapping[str, Any] = {"vllm": vllm, "sglang": sglang}
Answers = dict[tuple[str, str], Answer]
"""By format and name of the output."""


def digest() -> str:
    """Return the digest of all outputs: answers that were recorded for others are out of date."""
    texts = {name: [one.outputs(), one.vllm, one.sglang] for name, one in FORMATS.items()}
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:16]


def recorded() -> dict[str, Answers]:
    """Return the answers of each engine; raises `ValueError` if they were recorded for other outputs."""
    first, *lines = RECORDED.read_text(encoding="utf-8").splitlines()
    if json.loads(first) != digest():
        raise ValueError("outputs have changed: run python -m tests.engines.parsers vllm sglang")
    found: dict[str, Answers] = {engine: {} for engine in ENGINES}
    for line in lines:
        name, case, *given = json.loads(line)
        for place, engine in enumerate(ENGINES):
            found[engine][name, case] = given[min(place, len(given) - 1)]
    return found


def written(new: Mapping[str, Answers]) -> str:
    """Return the file with new answers; equal ones of both engines stand there once."""
    kept = new if set(new) == set(ENGINES) else {**recorded(), **new}
    lines: list[Any] = [digest()]
    for name, case in next(iter(kept.values())):
        one, other = (kept[engine][name, case] for engine in ENGINES)
        lines.append([name, case, one, *([] if one == other else [other])])
    return "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)


def asked(engine: str, names: Iterable[str]) -> dict[str, Any]:
    """Return what `record.py` is asked about formats."""
    formats = {}
    for name in names:
        one = FORMATS[name]
        model, folder = Model.load(name), FAMILIES / one.folder[0]
        formats[name] = {
            "folder": str(folder),
            "template": (folder / one.template).read_text(encoding="utf-8"),
            "parsers": getattr(one, engine),
            "arguments": one.arguments,
            "lacks": one.lacks,
            "prompt": model.prompt,
            "outputs": [[case, ids, stop] for case, ids, stop in model.sampled()],
        }
    return {"tools": TOOLS, "formats": formats}


def answers(engine: str, say: Say, names: Iterable[str] = tuple(FORMATS)) -> Answers:
    """Return what the engine's parsers read in all outputs of these formats."""
    found = ENGINES[engine]
    environment = found.environment(say)
    with TemporaryDirectory() as folder:
        given, answer = Path(folder) / "asked.json", Path(folder) / "answers.jsonl"
        given.write_text(json.dumps(asked(engine, names)), encoding="utf-8")
        command = [str(environment.python), str(HERE / "record.py"), engine, str(given), str(answer)]
        settings = {**os.environ, **found.SETTINGS}
        subprocess.run(command, env=settings, check=True, stdout=subprocess.DEVNULL)
        lines = map(json.loads, answer.read_text(encoding="utf-8").splitlines())
        return {(name, case): read for name, case, read in lines}
