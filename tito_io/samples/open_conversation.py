"""A conversation that more lines may belong to: its calls so far, which share their history."""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from tito_core import InputError, TitoError
from tito_core.samples import StoredCall

from .forms import Batch, CallPlace
from .problem import Problem
from .share_history import Thrift


@attrs.define
class Growing:
    """Takes calls in."""

    name: str
    first: int
    """Its first line, counted from 1."""
    last: int = attrs.field(init=False, default=0)
    calls: dict[str, StoredCall] = attrs.field(factory=dict)
    """By name, as they came."""
    problems: list[Problem] = attrs.field(factory=list)
    """What could not be read, as it came."""
    _thrift: Thrift = attrs.field(factory=Thrift)

    def take(self, batch: Batch, line: int) -> None:
        """Take in what a line has."""
        self.last = line
        for make in batch.parts:
            try:
                self._keep(make(CallPlace(line, self.calls)))
            except TitoError as error:
                self.problems.append(Problem(line, str(error)))

    def _keep(self, made: Iterable[StoredCall]) -> None:
        for call in made:
            if call.name in self.calls:
                raise InputError(f"a second call of its conversation has the name {call.name!r:.60}")
            self.calls[call.name] = self._thrift.share(call)
