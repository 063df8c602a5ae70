"""The folder of one model's conversations: a file for each finished one, and the settings of the run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import attrs

from tito_core import InputError
from tito_io.atomic_write import write_atomically

from .design import Plan

SETTINGS = "settings.json"


@attrs.frozen(kw_only=True)
class RunSettings:
    """What all conversations of a folder have in common.

    Attributes:
        model: Name of the model.
        gguf: The GGUF file.
        family: Model folder in place of the file's tokenizer and template; empty without one.
        turns: Turns of each conversation.
        seed: Seed of scripts and sampling.
        tools: Whether tools are offered to every second conversation.
    """

    model: str
    gguf: str
    family: str
    turns: int
    seed: int
    tools: bool

    @property
    def source(self) -> Path:
        """Where the tokenizer and the template are."""
        return Path(self.family or self.gguf)


@attrs.frozen
class ModelFolder:
    """A folder with conversations of one model.

    Attributes:
        path: The folder.
        settings: What its conversations have in common.
    """

    path: Path
    settings: RunSettings

    @classmethod
    def opened(cls, path: Path) -> Self:
        """Return a folder that a run has begun; raises `InputError` for another folder."""
        try:
            return cls(path, RunSettings(**json.loads((path / SETTINGS).read_text("utf-8"))))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(f"{path / SETTINGS}: {error}: give the folder of an earlier run") from None

    @classmethod
    def begun(cls, path: Path, settings: RunSettings) -> Self:
        """Return a new folder, or one of an earlier run; raises `InputError` if its settings were others."""
        if (path / SETTINGS).exists():
            found = cls.opened(path)
            if found.settings != settings:
                raise InputError(
                    f"{path}: has conversations with other settings ({found.settings}, now {settings}): "
                    "give the same, or another --folder"
                )
            return found
        path.mkdir(parents=True, exist_ok=True)
        write_atomically(path / SETTINGS, json.dumps(attrs.asdict(settings), indent=1).encode())
        return cls(path, settings)

    def missing(self, plans: Iterator[Plan]) -> list[Plan]:
        """Return the conversations that are not finished."""
        return [plan for plan in plans if not plan.path(self.path).exists()]

    def finished(self) -> list[Path]:
        """Return the files of the finished conversations."""
        return sorted(self.path.glob("*.jsonl"))
