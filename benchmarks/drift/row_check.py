"""Check training rows against the sampled ids that were recorded on the wire."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from tito_io.samples.conversation import Problem
from tito_io.samples.entry import Entry
from tito_io.samples.rows import ConversationRows


@attrs.define
class RowCheck:
    """Result of a check of rows.

    Attributes:
        rows: Rows that were checked.
        calls: Answers that were recorded.
        sampled: Ids that the engine sampled.
        trained: Ids that train in some row, counted by the loss masks.
        wrong: Differences, in words.
    """

    rows: int = 0
    calls: int = 0
    sampled: int = 0
    trained: int = 0
    wrong: list[str] = attrs.field(factory=list)

    @property
    def holds(self) -> bool:
        """Whether every sampled id trains exactly once, unchanged, and no other id trains."""
        return not self.wrong and self.sampled == self.trained > 0


def check_rows(
    rows: Iterable[ConversationRows | Problem], recorded: Mapping[str, Sequence[bytes]]
) -> RowCheck:
    """Compare rows with recorded answers by conversation. The n-th answer is that of the call `turn-n`."""
    check = RowCheck(
        calls=sum(map(len, recorded.values())),
        sampled=sum(len(ids) // 4 for answers in recorded.values() for ids in answers),
    )
    trained: dict[str, dict[str, list[bytes]]] = {name: defaultdict(list) for name in recorded}
    for one in rows:
        if isinstance(one, Problem):
            check.wrong.append(str(one))
            continue
        for entry in one.entries:
            check.rows += 1
            check.trained += entry.row.trained
            check.wrong += _misplaced(entry)
            for call, ids in _turns(entry):
                trained.setdefault(entry.conversation, defaultdict(list))[call].append(ids)
    for name, calls in trained.items():
        check.wrong += _missing(name, calls, recorded.get(name, ()))
    return check


def _turns(entry: Entry) -> Iterator[tuple[str, bytes]]:
    """Yield the name and ids of each turn that trains in a row."""
    ids = entry.row.ids.tolist()
    for turn in entry.row.turns:
        if turn.trained:
            yield turn.call, array("I", ids[turn.start : turn.stop]).tobytes()


def _misplaced(entry: Entry) -> Iterator[str]:
    """Yield an error if the loss mask does not cover exactly the turns that train."""
    wanted = bytearray(len(entry.row))
    for turn in entry.row.turns:
        if turn.trained:
            wanted[turn.start : turn.stop] = b"\1" * (turn.stop - turn.start)
    if bytes(wanted) != entry.row.loss_mask:
        yield f"{entry.conversation}: the loss mask of row {entry.row.name} does not cover exactly its turns"


def _missing(name: str, calls: Mapping[str, Sequence[bytes]], recorded: Sequence[bytes]) -> Iterator[str]:
    """Yield an error for each recorded answer that does not train exactly once."""
    for number, ids in enumerate(recorded, 1):
        if calls.get(f"turn-{number}", []) != [ids]:
            yield f"{name}: answer {number} ({len(ids) // 4} ids) does not train exactly once as sampled"
    if len(calls) > len(recorded):
        yield f"{name}: {len(calls)} calls train, but {len(recorded)} answers were recorded"
