"""A file that takes the calls of one conversation as they are made."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self
from uuid import uuid4

import attrs

from tito_core import InputError
from tito_core.samples import StoredCall
from tito_io.client.conversation import ClientTurn
from tito_io.samples.forms.tito import call_of, write_calls


@attrs.define
class CallFile:
    """Writes each turn when it is taken, so that a rollout that breaks off loses none of them.

    Raises `InputError` where the file cannot be made.
    """

    path: Path
    conversation: str = attrs.field(factory=lambda: f"rollout-{uuid4().hex[:16]}")
    """What the conversation is called; no two are alike unless told, so that files may be joined."""
    _file: BinaryIO | None = attrs.field(default=None, init=False)
    _last: StoredCall | None = attrs.field(default=None, init=False)
    _count: int = attrs.field(default=0, init=False)

    def __enter__(self) -> Self:
        try:
            self._file = self.path.open("wb")
        except OSError as error:
            raise InputError(f"{self.path} cannot be written: {error.strerror}") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()

    def add(self, turn: ClientTurn) -> None:
        """Write a turn; the file is open."""
        if self._file is None:
            raise ValueError("the file is not open: use it in a with statement")
        self._count += 1
        call = call_of(turn, f"turn-{self._count}", self._count)
        self._last = write_calls(self._file, self.conversation, [call], after=self._last)
        self._file.flush()
